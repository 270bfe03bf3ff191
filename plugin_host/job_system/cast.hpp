// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// A cast of characters in one model: a shared world, prompts read by a thread of their own, replies decoded
// in slices of a frame. Nothing on the frame's path allocates.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#define SSLM_ENABLE_DRAFT_EXTENSIONS
#include "superslm/sslm_ext.h"
#include "superslm/superslm.hpp"

namespace game {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

// A call that the library refused.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void check(sslm_status status, const char* what) {
  if (status != SSLM_OK) throw Refused(std::string(what) + ": " + sslm_ext_status_name(status));
}

// Memory to lend, at the alignment the library asks for.
class Buffer {
 public:
  explicit Buffer(size_t size) : storage_(size + SSLM_ABI_ALIGNMENT_BYTES), size_(size) {}
  std::span<std::byte> span() {
    void* start = storage_.data();
    size_t space = storage_.size();
    return {static_cast<std::byte*>(std::align(SSLM_ABI_ALIGNMENT_BYTES, size_, start, space)), size_};
  }

 private:
  std::vector<std::byte> storage_;
  size_t size_;
};

enum class Mood { kSilent, kReading, kSpeaking, kDone };

struct Character {
  std::vector<int32_t> prompt;  // behind the world
  std::vector<int32_t> reply;
  sslm::Sequence sequence;
  int32_t layer = 0;  // layers of the current token that are done
  std::atomic<Mood> mood{Mood::kSilent};
};

// How many layers a frame may take: a little more after every frame within its budget, half as many after one
// that was late. The last layer of a token brings the logits along and waits for a frame of its own.
class LayerBudget {
 public:
  LayerBudget(double budget_ms, int32_t layers) : budget_ms_(budget_ms), layers_(layers) {}
  int32_t next(int32_t layer) const {
    const int32_t left = layers_ - layer;
    return left == 1 ? 1 : std::min(static_cast<int32_t>(allowed_), left - 1);
  }
  void learn(double ms) {
    allowed_ = ms > budget_ms_ ? std::max(1.0, allowed_ / 2) : std::min<double>(layers_, allowed_ + 0.25);
  }

 private:
  double budget_ms_;
  int32_t layers_;
  double allowed_ = 1.0;
};

class Cast {
 public:
  Cast(std::span<const std::byte> artifact, int characters, double budget_ms, const char* world);
  ~Cast();
  Cast(const Cast&) = delete;
  Cast& operator=(const Cast&) = delete;

  // Installs the host's job system for the slices of a frame.
  void use(const sslm_parallel_for& hook) { check(frame_space_.set_parallel_for(hook), "hook"); }
  // Queues a line; the character answers some frames later.
  void say(int who, const char* persona, const char* line);
  // One slice for every character that speaks; returns the milliseconds spent in the library.
  double frame();
  // Saves every speaker, mid-token or not, lets go of it and restores it. Returns the bytes of all blobs.
  size_t save_and_restore();

  bool done() const;
  std::vector<Character>& characters() { return characters_; }
  const std::vector<int32_t>& world_ids() const { return world_ids_; }
  std::string text(std::span<const int32_t> ids) const;

 private:
  static constexpr int32_t kChunk = 64, kWorldBudget = 512, kBudget = 256, kReply = 40;

  void append_text(std::vector<int32_t>& ids, const char* text) const;
  void append_chat(std::vector<int32_t>& ids, int32_t role, int32_t part) const;
  void read_prompts();
  void read(Character& character);
  void step(int32_t layers);
  bool stops(int32_t token) const;

  sslm::Model model_;
  sslm_ext_model_info_out info_{};
  LayerBudget budget_;
  uint32_t pages_;
  Buffer kv_, frame_memory_, reading_memory_;
  sslm::Pool pool_;
  sslm::Workspace frame_space_, reading_space_;
  sslm::Prefix world_;
  std::vector<Character> characters_;
  std::vector<int32_t> world_ids_;
  std::vector<size_t> speaking_;  // who takes part in this frame's step
  std::vector<sslm_seq> handles_;
  std::vector<int32_t> tokens_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<int> queue_;  // who waits to be read
  bool ending_ = false;
  std::exception_ptr failure_;  // of the reader, for the next frame
  std::thread reader_;
};

}  // namespace game
