// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "kv/holder.h"

#include <cstring>

#include "base/memory.h"

namespace superslm::kv {

namespace {

int64_t reservation(const Pool& pool, Mode mode, int32_t budget) {
  return mode == Mode::kBudget ? pool.pages_for_budget(budget) : pool.pages_per_context();
}

int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

}  // namespace

Status Holder::draw(Pool& pool, Mode mode, int32_t budget, int64_t pages) {
  *this = Holder();
  const Status status = pool.draw(pages, &reserve_);
  if (status != Status::kOk) return status;
  const size_t table_bytes = static_cast<size_t>(pool.pages_per_context()) * sizeof(uint32_t);
  table_ = static_cast<uint32_t*>(base::allocate(table_bytes));
  if (table_ == nullptr) {
    pool.give_back(nullptr, 0, nullptr, 0, reserve_, true);
    *this = Holder();
    return Status::kNoMemory;
  }
  pool_ = &pool;
  mode_ = mode;
  budget_ = budget;
  set_origin(0);
  return Status::kOk;
}

void Holder::set_origin(int64_t origin) {
  const int64_t cap = pool_->geometry().cap;
  origin_ = origin;
  limit_ = mode_ == Mode::kBudget ? lesser(origin + budget_, cap) : cap;
}

Status Holder::create(Pool& pool, Mode mode, int32_t budget, Holder* out) {
  return out->draw(pool, mode, budget, reservation(pool, mode, budget));
}

Status Holder::begin_from(const Holder& parent, int64_t parent_length, int32_t budget, Holder* out) {
  const Status status = create(*parent.pool_, Mode::kBudget, budget, out);
  if (status == Status::kOk) out->adopt(parent, parent_length);
  return status;
}

// Takes the leading pages of a frozen holder into the empty front of the table.
void Holder::share_pages_of(const Holder& source, int64_t count) {
  std::memcpy(table_, source.table_, static_cast<size_t>(count) * sizeof(uint32_t));
  shared_ = static_cast<uint32_t>(count);
}

void Holder::adopt(const Holder& prefix, int64_t prefix_length) {
  const bool shares = mode_ == Mode::kBudget && pool_->pages_per_context() > 1;
  const int64_t shared = shares ? prefix_length / page_positions() : 0;
  pool_->share(prefix.table_, shared);  // before the old pages go: some may be the same
  reset();
  share_pages_of(prefix, shared);
  set_origin(prefix_length);
  map_to(prefix_length);
  copy_rows(prefix.view(), view(), shared * page_positions(), prefix_length);
}

bool Holder::map_to(int64_t end) {
  const int64_t needed = pages_covering(end, page_positions());
  const int64_t have = mapped();
  if (needed > have + int64_t{reserve_.count} || needed > pool_->pages_per_context()) return false;
  for (int64_t i = have; i < needed; ++i) {
    table_[i] = pool_->pop(reserve_);
    ++private_;
  }
  return true;
}

void Holder::unmap_behind(int64_t end) {
  const int64_t keep = pages_covering(end, page_positions());
  for (; private_ > 0 && mapped() > keep; --private_) pool_->push(reserve_, table_[mapped() - 1]);
}

void Holder::reset() {
  unmap_behind(0);
  pool_->give_back(table_, shared_, table_ + shared_, materialized_, Chain(), false);
  shared_ = materialized_ = 0;
  set_origin(0);
}

void Holder::freeze(int64_t length) {
  if (frozen_) return;
  unmap_behind(length);
  pool_->give_back(nullptr, 0, nullptr, 0, reserve_, false);
  reserve_ = Chain();
  frozen_ = true;
}

void Holder::release() {
  pool_->give_back(table_, shared_, table_ + shared_, int64_t{materialized_} + private_, reserve_, true);
  base::deallocate(table_);
  *this = Holder();
}

bool Holder::can_share(const Pool& pool, const RestoreRequest& request) {
  const Holder* prefix = request.prefix;
  if (prefix == nullptr || !prefix->frozen_ || prefix->pool_ != &pool) return false;
  if (request.prefix_length != request.origin || pool.pages_per_context() <= 1) return false;
  const int64_t page = pool.geometry().page_positions;
  return rows_equal(prefix->view(), request.rows, request.origin / page * page);
}

Status Holder::restore(Pool& pool, const RestoreRequest& request, Holder* out, uint32_t* shared_pages) {
  *shared_pages = 0;
  const int64_t reserved = reservation(pool, request.mode, request.budget);
  const int64_t full = request.origin / pool.geometry().page_positions;
  int64_t shared = 0;
  int64_t materialized = 0;
  if (request.mode == Mode::kBudget) {
    if (can_share(pool, request)) {
      shared = full;
    } else {
      materialized = lesser(full, pool.pages_per_context() - reserved);
    }
  }
  const Status status = out->draw(pool, request.mode, request.budget, reserved + materialized);
  if (status != Status::kOk) return status;
  if (shared != 0) {
    pool.share(request.prefix->table_, shared);
    out->share_pages_of(*request.prefix, shared);
  }
  while (out->materialized_ < materialized) out->table_[out->materialized_++] = pool.pop(out->reserve_);
  out->set_origin(request.origin);
  out->map_to(request.positions);
  unpack_rows(request.rows, out->view(), shared * out->page_positions(), request.positions);
  *shared_pages = static_cast<uint32_t>(shared);
  return Status::kOk;
}

Status Holder::restore_frozen(Pool& pool, const FrozenRequest& request, Holder* out) {
  const int64_t page = pool.geometry().page_positions;
  const bool shares = request.parent != nullptr && pool.pages_per_context() > 1;
  const int64_t shared = shares ? request.origin / page : 0;
  const int64_t needed = pages_covering(request.length, page);
  const Status status = out->draw(pool, request.mode, request.budget, needed - shared);
  if (status != Status::kOk) return status;
  if (shared != 0) {
    pool.share(request.parent->table_, shared);
    out->share_pages_of(*request.parent, shared);
  }
  out->set_origin(request.origin);
  out->map_to(request.length);
  if (request.parent != nullptr)
    copy_rows(request.parent->view(), out->view(), shared * page, request.origin);
  unpack_rows(request.rows, out->view(), request.origin, request.length);
  out->frozen_ = true;
  return Status::kOk;
}

HolderStats Holder::stats() const {
  return HolderStats{materialized_ + private_, shared_, reserve_.count, materialized_};
}

}  // namespace superslm::kv
