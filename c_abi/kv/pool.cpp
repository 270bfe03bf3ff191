// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "kv/pool.h"

#include <cstring>
#include <new>

#include "base/memory.h"
#include "kv/seams.h"

namespace superslm::kv {

namespace {

constexpr uint8_t kPoison = 0xCD;

// A page entry's word.
constexpr uint32_t kWritten = 0x80000000u;  // mapped since the page left the free list
constexpr uint32_t kOrphan = 0x40000000u;   // its owner is gone; the sharers keep it
constexpr uint32_t kSharers = 0x3FFFFFFFu;

#ifdef SUPERSLM_TEST_SEAMS
}  // namespace
std::atomic<uint64_t> seams::lock_count{0};
std::atomic<uint64_t> seams::bytes_filled{0};
namespace {
#endif

class PoolLock {
 public:
  explicit PoolLock(base::Mutex& mutex) : guard_(mutex) { seams::count_lock(); }

 private:
  base::LockGuard guard_;
};

// The first address at or after p where an entry may lie; the bookkeeping's spare bytes pay for it.
template <typename T>
T* aligned(uint8_t* p) {
  const uintptr_t mask = alignof(T) - 1;
  return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(p) + mask) & ~mask);
}

}  // namespace

Pool::~Pool() {
  if (entries_on_heap_) base::deallocate(entries_);
}

Status Pool::check(const Geometry& geometry, PoolKind kind, const void* buffer, size_t size, uint32_t units) {
  if (units == 0) return Status::kInvalid;
  const base::CheckedSize needed = pool_buffer_size(geometry, kind, units);
  const uint64_t total = pool_page_total(geometry, kind, units);
  if (kind != PoolKind::kPage && total >= UINT32_MAX) return Status::kInvalid;
  if (!needed.ok()) return Status::kInvalid;
  if (size < needed.value()) return Status::kTooSmall;
  if (reinterpret_cast<uintptr_t>(buffer) % kPoolAlignment != 0) return Status::kMisaligned;
  if (total >= UINT32_MAX) return Status::kInvalid;  // a page count is judged last
  return Status::kOk;
}

Status Pool::open(const Geometry& geometry, PoolKind kind, void* buffer, size_t size, uint32_t units) {
  const Status status = check(geometry, kind, buffer, size, units);
  if (status != Status::kOk) return status;
  kind_ = kind;
  geometry_ = geometry_for(geometry, kind);
  pages_per_context_ = kv::pages_per_context(geometry_);
  base_ = static_cast<uint8_t*>(buffer);
  page_count_ = static_cast<uint32_t>(pool_page_total(geometry, kind, units));
  if (kind == PoolKind::kBlock) {
    const base::CheckedSize bytes = base::CheckedSize(sizeof(Entry)) * page_count_;
    entries_ = bytes.ok() ? static_cast<Entry*>(base::allocate(static_cast<size_t>(bytes.value()))) : nullptr;
    if (entries_ == nullptr) return Status::kNoMemory;
    entries_on_heap_ = true;
  } else {
    entries_ = aligned<Entry>(base_ + size_t{page_count_} * geometry_.page_bytes());
  }
  for (uint32_t i = 0; i < page_count_; ++i) new (&entries_[i]) Entry{i + 1, 0};
  entries_[page_count_ - 1].next = kNoPage;
  free_ = Chain{0, page_count_ - 1, page_count_};
  return Status::kOk;
}

PoolStats Pool::stats() {
  PoolLock lock(mutex_);
  return PoolStats{page_count_, free_.count, shared_pages_, geometry_.page_positions};
}

uint32_t Pool::live_holders() {
  PoolLock lock(mutex_);
  return live_holders_;
}

Status Pool::draw(int64_t count, Chain* out) {
  PoolLock lock(mutex_);
  if (count > int64_t{free_.count}) return Status::kExhausted;
  ++live_holders_;
  *out = Chain();
  if (count == 0) return Status::kOk;
  Chain taken{free_.head, free_.head, static_cast<uint32_t>(count)};
  for (int64_t i = 1; i < count; ++i) taken.tail = entries_[taken.tail].next;
  free_.head = entries_[taken.tail].next;
  free_.count -= taken.count;
  if (free_.count == 0) free_.tail = kNoPage;
  entries_[taken.tail].next = kNoPage;
  *out = taken;
  return Status::kOk;
}

void Pool::share(const uint32_t* pages, int64_t count) {
  if (count == 0) return;
  PoolLock lock(mutex_);
  for (int64_t i = 0; i < count; ++i) {
    uint32_t& word = entries_[pages[i]].word;
    if ((word & kSharers) == 0) ++shared_pages_;
    ++word;
  }
}

void Pool::give_back(const uint32_t* shared, int64_t shared_count, const uint32_t* owned, int64_t owned_count,
                     const Chain& reserve, bool leave) {
  if (shared_count == 0 && owned_count == 0 && reserve.count == 0 && !leave) return;
  Chain freed;
  if (shared_count != 0 || owned_count != 0) {
    PoolLock lock(mutex_);
    for (int64_t i = 0; i < shared_count; ++i) {
      uint32_t& word = entries_[shared[i]].word;
      --word;
      if ((word & kSharers) != 0) continue;
      --shared_pages_;
      if ((word & kOrphan) != 0) append(freed, shared[i]);
    }
    for (int64_t i = 0; i < owned_count; ++i) {
      uint32_t& word = entries_[owned[i]].word;
      if ((word & kSharers) != 0) {
        word |= kOrphan;
      } else {
        append(freed, owned[i]);
      }
    }
  }
  splice(freed, reserve);
  poison(freed);  // nobody else can reach these pages now: no lock for the long part
  PoolLock lock(mutex_);
  splice(freed, free_);
  free_ = freed;
  if (leave) --live_holders_;
}

uint32_t Pool::pop(Chain& chain) {
  const uint32_t page = chain.head;
  chain.head = entries_[page].next;
  if (--chain.count == 0) chain.tail = kNoPage;
  entries_[page].word |= kWritten;
  return page;
}

void Pool::push(Chain& chain, uint32_t page) {
  entries_[page].next = chain.head;
  chain.head = page;
  if (chain.count++ == 0) chain.tail = page;
}

void Pool::append(Chain& chain, uint32_t page) {
  entries_[page].next = kNoPage;
  if (chain.count++ == 0) {
    chain.head = page;
  } else {
    entries_[chain.tail].next = page;
  }
  chain.tail = page;
}

void Pool::splice(Chain& chain, const Chain& rest) {
  if (rest.count == 0) return;
  if (chain.count == 0) {
    chain = rest;
    return;
  }
  entries_[chain.tail].next = rest.head;
  chain.tail = rest.tail;
  chain.count += rest.count;
}

// Rows of a released holder must not be readable through the host's buffer.
void Pool::poison(const Chain& chain) {
  const size_t bytes = geometry_.page_bytes();
  uint32_t page = chain.head;
  for (uint32_t i = 0; i < chain.count; ++i, page = entries_[page].next) {
    if ((entries_[page].word & kWritten) != 0) {
      std::memset(base_ + page * bytes, kPoison, bytes);
      seams::count_filled(bytes);
    }
    entries_[page].word = 0;
  }
}

}  // namespace superslm::kv
