// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// The liveness registry of sequences. A sequence's handle is a number, slot and generation, not an address:
// a released one is recognised without touching freed memory, also when memory or slot have been reused.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/lock.h"
#include "superslm/sslm_abi.h"

namespace superslm::abi {

struct Sequence;

// One place of the registry. Slots never move and are never freed, so their locks outlive every sequence.
struct Slot {
  base::Mutex lock;  // the lock of the sequence that lives here
  std::atomic<Sequence*> sequence{nullptr};
  std::atomic<uint32_t> generation{1};
  uint32_t next_free = 0;
};

// Enters a sequence and gives its handle; null when memory is exhausted.
sslm_seq register_sequence(Sequence* sequence);

// The sequence leaves the registry, after a decode in flight on it has ended. Null when it is not live.
Sequence* unregister_sequence(sslm_seq handle);

// The live sequence of a handle, else null. Takes no lock: for verbs that own the handle.
Sequence* find_sequence(sslm_seq handle);

// The number of a handle's slot, the global order in which locks are taken.
uint32_t slot_number(sslm_seq handle);

// The slot of a number, null where none was ever made.
Slot* find_slot(uint32_t number);

// The sequence of a handle whose slot is locked by the caller, else null.
Sequence* sequence_in(const Slot& slot, sslm_seq handle);

// Holds the lock of a live sequence for a scope; empty when the handle is not live.
class LockedSequence {
 public:
  explicit LockedSequence(sslm_seq handle);
  ~LockedSequence();
  LockedSequence(const LockedSequence&) = delete;
  LockedSequence& operator=(const LockedSequence&) = delete;
  explicit operator bool() const { return sequence_ != nullptr; }
  Sequence& operator*() const { return *sequence_; }
  Sequence* operator->() const { return sequence_; }

 private:
  Slot* slot_;
  Sequence* sequence_ = nullptr;
};

}  // namespace superslm::abi
