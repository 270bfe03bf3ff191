// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "abi/registry.h"

#include <climits>
#include <new>

#include "base/fixed_point.h"
#include "base/memory.h"

namespace superslm::abi {
namespace {

// A handle is generation << kSlotBits | slot + 1: never null, and 32 bits are enough on small machines.
constexpr int kSlotBits = sizeof(uintptr_t) >= 8 ? 32 : 16;
constexpr uintptr_t kSlotMask = (uintptr_t{1} << kSlotBits) - 1;
constexpr uint32_t kLastGeneration = sizeof(uintptr_t) >= 8 ? UINT32_MAX : 0xFFFF;
constexpr uint32_t kNone = UINT32_MAX;

// Chunk k holds 64 << k slots, so a few chunks hold any number.
constexpr uint32_t kFirstChunk = 64;
constexpr uint32_t kChunks = sizeof(uintptr_t) >= 8 ? 25 : 10;

struct Registry {
  base::Mutex lock;  // of the free list and of the growth; held for a few instructions
  std::atomic<Slot*> chunks[kChunks] = {};
  uint32_t chunk_count = 0;
  uint32_t first_free = kNone;
};

Registry registry;

uint32_t generation_of(sslm_seq handle) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(handle) >> kSlotBits);
}

sslm_seq make_handle(uint32_t number, uint32_t generation) {
  return reinterpret_cast<sslm_seq>((static_cast<uintptr_t>(generation) << kSlotBits) | (number + 1));
}

// Makes the next chunk and links its slots into the free list, lowest number first.
bool grow() {
  if (registry.chunk_count == kChunks) return false;
  const uint32_t size = kFirstChunk << registry.chunk_count;
  const uint32_t first = size - kFirstChunk;
  void* memory = base::allocate(sizeof(Slot) * size);
  if (memory == nullptr) return false;
  Slot* slots = static_cast<Slot*>(memory);
  for (uint32_t i = 0; i < size; ++i) {
    Slot* slot = new (slots + i) Slot;
    slot->next_free = i + 1 < size ? first + i + 1 : kNone;
  }
  registry.first_free = first;
  registry.chunks[registry.chunk_count++].store(slots, std::memory_order_release);
  return true;
}

}  // namespace

sslm_seq register_sequence(Sequence* sequence) {
  base::LockGuard guard(registry.lock);
  if (registry.first_free == kNone && !grow()) return nullptr;
  const uint32_t number = registry.first_free;
  Slot* slot = find_slot(number);
  registry.first_free = slot->next_free;
  slot->sequence.store(sequence, std::memory_order_release);
  return make_handle(number, slot->generation.load(std::memory_order_relaxed));
}

Sequence* unregister_sequence(sslm_seq handle) {
  const uint32_t number = slot_number(handle);
  Slot* slot = find_slot(number);
  if (slot == nullptr) return nullptr;
  Sequence* sequence;
  bool reusable;
  {
    base::LockGuard guard(slot->lock);
    sequence = sequence_in(*slot, handle);
    if (sequence == nullptr) return nullptr;
    const uint32_t generation = generation_of(handle);
    // A slot whose generations are used up is retired, so that no handle ever comes back to life.
    reusable = generation != kLastGeneration;
    if (reusable) slot->generation.store(generation + 1, std::memory_order_release);
    slot->sequence.store(nullptr, std::memory_order_release);
  }
  if (!reusable) return sequence;
  base::LockGuard guard(registry.lock);
  slot->next_free = registry.first_free;
  registry.first_free = number;
  return sequence;
}

uint32_t slot_number(sslm_seq handle) {
  return static_cast<uint32_t>((reinterpret_cast<uintptr_t>(handle) & kSlotMask) - 1);
}

Slot* find_slot(uint32_t number) {
  const uint64_t rank = uint64_t{number} / kFirstChunk + 1;
  const uint32_t chunk = static_cast<uint32_t>(base::bit_length(rank)) - 1;
  if (chunk >= kChunks) return nullptr;
  Slot* slots = registry.chunks[chunk].load(std::memory_order_acquire);
  return slots == nullptr ? nullptr : slots + (number - ((kFirstChunk << chunk) - kFirstChunk));
}

Sequence* sequence_in(const Slot& slot, sslm_seq handle) {
  if (slot.generation.load(std::memory_order_acquire) != generation_of(handle)) return nullptr;
  return slot.sequence.load(std::memory_order_acquire);
}

Sequence* find_sequence(sslm_seq handle) {
  const Slot* slot = handle == nullptr ? nullptr : find_slot(slot_number(handle));
  return slot == nullptr ? nullptr : sequence_in(*slot, handle);
}

LockedSequence::LockedSequence(sslm_seq handle)
    : slot_(handle == nullptr ? nullptr : find_slot(slot_number(handle))) {
  if (slot_ == nullptr) return;
  slot_->lock.lock();
  sequence_ = sequence_in(*slot_, handle);
}

LockedSequence::~LockedSequence() {
  if (slot_ != nullptr) slot_->lock.unlock();
}

}  // namespace superslm::abi
