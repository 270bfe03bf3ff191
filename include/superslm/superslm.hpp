// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// C++20 convenience over sslm_abi.h: handles that release themselves, std::span for buffers, results that
// carry a status. Header only; no exceptions unless SUPERSLM_HPP_EXCEPTIONS is defined before the include,
// and no allocation of its own: buffers stay the host's. Thread rules are those of the verbs. Baked prefixes
// are drafts (sslm_ext.h): they are here where SSLM_ENABLE_DRAFT_EXTENSIONS is defined before the include.
#ifndef SUPERSLM_SUPERSLM_HPP
#define SUPERSLM_SUPERSLM_HPP

#if __cplusplus <= 201703L && (!defined(_MSVC_LANG) || _MSVC_LANG <= 201703L)
#error "superslm.hpp needs C++20 (-std=c++20 or /std:c++20); sslm_abi.h serves C99 and every C++"
#endif

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <utility>

#include "superslm/sslm_abi.h"

#ifdef SSLM_ENABLE_DRAFT_EXTENSIONS
#include "superslm/sslm_ext.h"
#endif

#ifdef SUPERSLM_HPP_EXCEPTIONS
#include <stdexcept>
#include <string>
#endif

namespace sslm {

// A value or the status that refused it. value() of a refusal throws std::runtime_error where exceptions are
// enabled and aborts otherwise; test with `if (result)` first.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(sslm_status refusal) : status_(refusal) {}

  explicit operator bool() const { return status_ == SSLM_OK; }
  sslm_status status() const { return status_; }
  T& value() & {
    require();
    return value_;
  }
  T&& value() && {
    require();
    return std::move(value_);
  }
  T& operator*() & { return value(); }
  T* operator->() { return &value(); }

 private:
  void require() const {
    if (status_ == SSLM_OK) return;
#ifdef SUPERSLM_HPP_EXCEPTIONS
    throw std::runtime_error("SuperSLM refused with status " + std::to_string(static_cast<int>(status_)));
#else
    std::abort();
#endif
  }
  T value_{};
  sslm_status status_ = SSLM_OK;
};

namespace detail {

// Owns one handle and releases it once; movable, not copyable.
template <typename Handle, sslm_status (*Release)(Handle)>
class Owner {
 public:
  Owner() = default;
  explicit Owner(Handle handle) : handle_(handle) {}
  Owner(Owner&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owner& operator=(Owner&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Owner() { reset(); }

  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }
  // Gives the handle back now; a refusal (something still depends on it) keeps it.
  sslm_status reset() {
    if (handle_ == nullptr) return SSLM_OK;
    const sslm_status status = Release(handle_);
    if (status == SSLM_OK) handle_ = nullptr;
    return status;
  }

 private:
  Handle handle_ = nullptr;
};

}  // namespace detail

// A mapped artifact. `bytes` is used in place and must stay mapped while the model lives.
class Model : public detail::Owner<sslm_model, sslm_model_unmap> {
 public:
  using Owner::Owner;
  static Result<Model> map(std::span<const std::byte> bytes) {
    sslm_model handle = nullptr;
    const sslm_status status = sslm_model_map(bytes.data(), bytes.size(), &handle);
    if (status != SSLM_OK) return status;
    return Model(handle);
  }

  // Writes the ids of NUL-terminated UTF-8 and returns how many there are. SSLM_BUFFER_TOO_SMALL: `ids` is
  // short; ask token_count().
  Result<int32_t> tokenize(const char* utf8, std::span<int32_t> ids) const {
    int32_t n = static_cast<int32_t>(ids.size());
    const sslm_status status = sslm_tokenize(get(), utf8, ids.data(), &n);
    if (status != SSLM_OK) return status;
    return n;
  }
  Result<int32_t> token_count(const char* utf8) const {
    int32_t n = 0;
    const sslm_status status = sslm_tokenize(get(), utf8, nullptr, &n);
    if (status != SSLM_BUFFER_TOO_SMALL) return status == SSLM_OK ? SSLM_INVALID_ARGUMENT : status;
    return n;
  }

  // What a plan of a pool is made of. Any thread may ask.
  int64_t page_positions() const { return sslm_kv_page_positions(get()); }  // positions per page, 64 or 128
  size_t page_size() const { return sslm_kv_page_size(get()); }             // bytes per page
  // Pages that a sequence or prefix of `budget` positions (1..context cap) reserves; 0 outside that range.
  size_t pages_for_budget(int32_t budget) const { return sslm_kv_pages_for_budget(get(), budget); }
  // Bytes that no sequence's save exceeds.
  size_t state_size() const { return sslm_seq_state_size(get()); }
};

// Turns ids into UTF-8 bytes; an incomplete character waits for its next bytes.
class Detokenizer {
 public:
  // `state`: what state() gave when the game was saved, or a new text.
  explicit Detokenizer(const Model& model, const sslm_detok_state& state = {})
      : model_(model.get()), state_(state) {}
  // Save its bytes beside the sequence's blob, so that no character is cut in two.
  const sslm_detok_state& state() const { return state_; }
  // Writes the text that `ids` complete and returns its bytes. A refusal leaves the stream unchanged.
  Result<int32_t> push(std::span<const int32_t> ids, std::span<char> utf8) {
    int32_t n = static_cast<int32_t>(utf8.size());
    const sslm_status status = sslm_detokenize_stream(model_, &state_, ids.data(),
                                                      static_cast<int32_t>(ids.size()), utf8.data(), &n);
    if (status != SSLM_OK) return status;
    return n;
  }

 private:
  sslm_model model_;
  sslm_detok_state state_;
};

// Scratch in the host's 64-byte aligned `buffer` of at least size() bytes.
class Workspace : public detail::Owner<sslm_workspace, sslm_workspace_destroy> {
 public:
  using Owner::Owner;
  static size_t size(const Model& model, const sslm_config& config) {
    return sslm_workspace_size(model.get(), &config);
  }
  static Result<Workspace> create(const Model& model, const sslm_config& config,
                                  std::span<std::byte> buffer) {
    sslm_workspace handle = nullptr;
    const sslm_status status =
        sslm_workspace_create(model.get(), &config, buffer.data(), buffer.size(), &handle);
    if (status != SSLM_OK) return status;
    return Workspace(handle);
  }
  sslm_status set_parallel_for(const sslm_parallel_for& hook) {
    return sslm_workspace_set_parallel_for(get(), &hook);
  }
};

// K/V memory in the host's 64-byte aligned `buffer`.
class Pool : public detail::Owner<sslm_kv_pool, sslm_kv_pool_destroy> {
 public:
  using Owner::Owner;
  // Bytes for a pool of `pages` pages; SIZE_MAX where none can exist.
  static size_t size(const Model& model, uint32_t pages) {
    const size_t page = sslm_kv_page_size(model.get());
    const size_t overhead = sslm_kv_page_pool_overhead_size(model.get(), pages);
    if (page == 0 || overhead == SIZE_MAX || pages > (SIZE_MAX - overhead) / page) return SIZE_MAX;
    return page * pages + overhead;
  }
  static Result<Pool> create(const Model& model, uint32_t pages, std::span<std::byte> buffer) {
    sslm_kv_pool handle = nullptr;
    const sslm_status status =
        sslm_kv_page_pool_create(model.get(), buffer.data(), buffer.size(), pages, &handle);
    if (status != SSLM_OK) return status;
    return Pool(handle);
  }
  // One consistent snapshot, in pages: all, free, shared. Any thread may ask.
  Result<sslm_kv_pool_stats_out> stats() const {
    sslm_kv_pool_stats_out out{};
    out.struct_size = sizeof out;
    const sslm_status status = sslm_kv_pool_stats(get(), &out);
    if (status != SSLM_OK) return status;
    return out;
  }
};

// A LoRA adapter of one model, shared by any number of its sequences; see Sequence::set_adapter. `bytes` is
// used in place and must stay mapped while the adapter lives.
class Adapter : public detail::Owner<sslm_adapter, sslm_adapter_release> {
 public:
  using Owner::Owner;
  static Result<Adapter> map(std::span<const std::byte> bytes, const Model& base) {
    sslm_adapter handle = nullptr;
    const sslm_status status = sslm_adapter_map(bytes.data(), bytes.size(), base.get(), &handle);
    if (status != SSLM_OK) return status;
    return Adapter(handle);
  }
  // Bytes of the mapped file.
  size_t residency() const { return sslm_adapter_residency(get()); }
};

// A prompt computed once; frozen, it is shared by the sequences that adopt it.
class Prefix : public detail::Owner<sslm_prefix, sslm_prefix_release> {
 public:
  using Owner::Owner;
  // Open, for at most `budget` positions (1..context cap), whose pages are reserved until freeze().
  // SSLM_KV_POOL_EXHAUSTED: the pool has fewer free.
  static Result<Prefix> begin(const Model& model, const Pool& pool, int32_t budget) {
    sslm_kv_pool at = pool.get();
    sslm_prefix handle = nullptr;
    const sslm_status status = sslm_prefix_begin_budgeted(model.get(), &at, budget, &handle);
    if (status != SSLM_OK) return status;
    return Prefix(handle);
  }
  // An open prefix that continues this frozen one by at most `budget` positions and shares its full pages.
  // Any number of threads may begin from one parent, which must not be released meanwhile, but may be
  // afterwards.
  Result<Prefix> nested(int32_t budget) const {
    sslm_prefix handle = nullptr;
    const sslm_status status = sslm_prefix_begin_from(get(), budget, &handle);
    if (status != SSLM_OK) return status;
    return Prefix(handle);
  }
  // Appends at most `chunk` tokens and returns how many went in; a refusal says so in `*admitted`.
  Result<int32_t> prefill(const Model& model, std::span<const int32_t> tokens, int32_t chunk,
                          const Workspace& workspace, int32_t* admitted = nullptr) {
    int32_t consumed = 0;
    const sslm_status status =
        sslm_prefix_prefill(model.get(), get(), tokens.data(), static_cast<int32_t>(tokens.size()), chunk,
                            SSLM_SPAN_PROMPT, workspace.get(), &consumed);
    if (admitted != nullptr) *admitted = consumed;
    if (status != SSLM_OK) return status;
    return consumed;
  }
  sslm_status freeze() { return sslm_prefix_freeze(get()); }  // gives back the pages it does not use
};

#ifdef SSLM_ENABLE_DRAFT_EXTENSIONS
// Baked prefixes. Functions and not members, so that the classes are the same with drafts and without.
// Compare sslm_ext_version() with SSLM_EXT_VERSION once before.

// Bytes of prefix_save(); 0 for an empty handle or an open prefix.
inline size_t prefix_save_size(const Prefix& prefix) {
  size_t n = 0;
  return sslm_ext_prefix_save(prefix.get(), nullptr, &n) == SSLM_BUFFER_TOO_SMALL ? n : 0;
}
// Writes a frozen prefix and returns the bytes written; a nested one carries its own positions only. Any
// number of threads may save one prefix, which must not be released meanwhile. SSLM_INVALID_ARGUMENT: it is
// open; SSLM_BUFFER_TOO_SMALL: ask prefix_save_size().
inline Result<size_t> prefix_save(const Prefix& prefix, std::span<std::byte> blob) {
  size_t n = blob.size();
  const sslm_status status = sslm_ext_prefix_save(prefix.get(), blob.data(), &n);
  if (status != SSLM_OK) return status;
  return n;
}
// A frozen prefix of such a blob, which is not needed after the call. A nested one needs its `parent`,
// restored first in the same pool, and shares its full pages; the parent must not be released meanwhile, but
// may be afterwards. SSLM_INVALID_ARGUMENT: a damaged blob, a pool of another model, a missing or other
// parent; SSLM_RESTORE_MODEL_MISMATCH: another model's blob; SSLM_KV_POOL_EXHAUSTED: too few free pages.
inline Result<Prefix> prefix_restore(const Model& model, const Pool& pool, std::span<const std::byte> blob,
                                     const Prefix& parent = {}) {
  sslm_kv_pool at = pool.get();
  sslm_prefix handle = nullptr;
  const sslm_status status =
      sslm_ext_prefix_restore(model.get(), &at, blob.data(), blob.size(), parent.get(), &handle);
  if (status != SSLM_OK) return status;
  return Prefix(handle);
}
#endif

// One conversation.
class Sequence : public detail::Owner<sslm_seq, sslm_seq_release> {
 public:
  using Owner::Owner;
  // Empty, for `budget` positions (1..context cap) beyond a prefix it adopts. All its pages are reserved here
  // (Model::pages_for_budget), so nothing later runs out. SSLM_KV_POOL_EXHAUSTED: the pool has fewer free.
  static Result<Sequence> create(const Model& model, const Pool& pool, int32_t budget) {
    sslm_kv_pool at = pool.get();
    sslm_seq handle = nullptr;
    const sslm_status status = sslm_seq_create_budgeted(model.get(), &at, budget, &handle);
    if (status != SSLM_OK) return status;
    return Sequence(handle);
  }
  // Continues as the saved sequence, without its adapter. It shares no page, which takes more free ones than
  // restore_shared().
  static Result<Sequence> restore(const Model& model, const Pool& pool, std::span<const std::byte> blob) {
    sslm_kv_pool at = pool.get();
    sslm_seq handle = nullptr;
    const sslm_status status = sslm_seq_restore(model.get(), &at, blob.data(), blob.size(), &handle);
    if (status != SSLM_OK) return status;
    return Sequence(handle);
  }
  // The same with the prefix it had adopted at hand: its full pages are shared again and counted in
  // `*shared_pages`. With another prefix or an empty one nothing is shared (0) and nothing is refused for it,
  // but SSLM_KV_POOL_EXHAUSTED may come. The prefix must not be released meanwhile.
  static Result<Sequence> restore_shared(const Model& model, const Pool& pool,
                                         std::span<const std::byte> blob, const Prefix& prefix,
                                         uint32_t* shared_pages = nullptr) {
    sslm_kv_pool at = pool.get();
    sslm_seq handle = nullptr;
    const sslm_status status = sslm_seq_restore_shared(model.get(), &at, blob.data(), blob.size(),
                                                       prefix.get(), &handle, shared_pages);
    if (status != SSLM_OK) return status;
    return Sequence(handle);
  }
  // Appends at most `chunk` tokens and returns how many went in; a refusal says so in `*admitted`. After
  // decoding, pass the last emitted token first: it is not in the context yet.
  Result<int32_t> prefill(const Model& model, std::span<const int32_t> tokens, int32_t chunk,
                          const Workspace& workspace, int32_t* admitted = nullptr) {
    int32_t consumed = 0;
    const sslm_status status =
        sslm_prefill(model.get(), get(), tokens.data(), static_cast<int32_t>(tokens.size()), chunk,
                     SSLM_SPAN_PROMPT, workspace.get(), &consumed);
    if (admitted != nullptr) *admitted = consumed;
    if (status != SSLM_OK) return status;
    return consumed;
  }
  // One step of at most `layer_budget` layers: a token id, or -1 while the token is unfinished, -2 at a
  // schema's dead end.
  Result<int32_t> decode(const Model& model, int32_t layer_budget, const Workspace& workspace) {
    sslm_seq self = get();
    sslm_decode_params params{};
    params.layer_budget = layer_budget;
    int32_t token = -1;
    const sslm_status status = sslm_decode_step(model.get(), &self, 1, &params, workspace.get(), &token);
    if (status != SSLM_OK) return status;
    return token;
  }
  // Binds an adapter, in place of another, or with an empty one unbinds it; between two tokens only.
  sslm_status set_adapter(const Adapter& adapter) { return sslm_seq_set_adapter(get(), adapter.get()); }
  sslm_status adopt(const Prefix& prefix) { return sslm_seq_adopt_prefix(get(), prefix.get()); }
  sslm_status rewind() { return sslm_seq_reset(get()); }  // empties the sequence
  // Budget, limit and context length in positions; own, shared, reserved and materialised pages. Not while
  // another thread prefills this sequence.
  Result<sslm_seq_kv_stats_out> kv_stats() const {
    sslm_seq_kv_stats_out out{};
    out.struct_size = sizeof out;
    const sslm_status status = sslm_seq_kv_stats(get(), &out);
    if (status != SSLM_OK) return status;
    return out;
  }
  // The model's layers (decode_step_ceiling, the largest layer budget) and the schema's counters. Not while
  // another thread changes this sequence.
  Result<sslm_stats_out> stats(const Model& model) const {
    sslm_stats_out out{};
    const sslm_status status = sslm_stats(model.get(), get(), &out);
    if (status != SSLM_OK) return status;
    return out;
  }
  // Bytes a save needs now. Save the Detokenizer's state and the token decoded last beside the blob.
  size_t save_size() const {
    size_t n = 0;
    sslm_seq_save(get(), nullptr, &n);
    return n;
  }
  Result<size_t> save(std::span<std::byte> blob) const {
    size_t n = blob.size();
    const sslm_status status = sslm_seq_save(get(), blob.data(), &n);
    if (status != SSLM_OK) return status;
    return n;
  }
};

}  // namespace sslm

#endif  // SUPERSLM_SUPERSLM_HPP
