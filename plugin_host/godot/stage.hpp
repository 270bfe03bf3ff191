// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// The cast of ../job_system behind strings and numbers, for engines that load a plugin and call it from
// scripts. An action returns an empty string, or what went wrong.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../job_system/cast.hpp"
#include "../job_system/superslm_jobs.hpp"

namespace game {

class Stage {
 public:
  std::string open(const std::string& path, const std::string& world, int characters, double budget_ms);
  std::string say(int who, const std::string& persona, const std::string& line);
  // One frame's slice.
  std::string frame();
  // Whether everybody has answered.
  bool done() const { return cast_ == nullptr || cast_->done(); }
  // What a character has said so far.
  std::string text(int who) const;
  // Saves and restores everyone who speaks. Returns the bytes of the blobs, negative after a refusal.
  int64_t save_and_restore();
  // Lines of token ids, "prompt ..." and "reply ...", for tests.
  std::string transcript() const;
  std::string close();

 private:
  std::string guarded(const std::function<void()>& action);
  bool on_stage(int who) const;

  std::vector<std::byte> artifact_;
  superslm_jobs::Pool jobs_{1};
  std::unique_ptr<Cast> cast_;
};

}  // namespace game
