// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "stage.hpp"

#include <fstream>

namespace game {
namespace {

std::vector<std::byte> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::vector<std::byte> bytes(file ? static_cast<size_t>(file.tellg()) : 0);
  file.seekg(0).read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file) throw std::runtime_error("cannot read " + path);
  return bytes;
}

void append_ids(std::string& out, const std::vector<int32_t>& ids) {
  for (const int32_t id : ids) out += ' ' + std::to_string(id);
}

}  // namespace

// No exception may enter an engine.
std::string Stage::guarded(const std::function<void()>& action) {
  try {
    action();
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

bool Stage::on_stage(int who) const {
  return cast_ != nullptr && who >= 0 && static_cast<size_t>(who) < cast_->characters().size();
}

std::string Stage::open(const std::string& path, const std::string& world, int characters, double budget_ms) {
  return guarded([&] {
    if (characters < 1) throw std::runtime_error("a cast has at least one character");
    cast_.reset();
    artifact_ = read_file(path);
    cast_ = std::make_unique<Cast>(artifact_, characters, budget_ms, world.c_str());
    cast_->use(jobs_.hook());
  });
}

std::string Stage::say(int who, const std::string& persona, const std::string& line) {
  return guarded([&] {
    if (!on_stage(who)) throw std::runtime_error("no such character");
    cast_->say(who, persona.c_str(), line.c_str());
  });
}

std::string Stage::frame() {
  return guarded([&] {
    if (cast_ != nullptr) cast_->frame();
  });
}

std::string Stage::text(int who) const {
  return on_stage(who) ? cast_->text(cast_->characters()[static_cast<size_t>(who)].reply) : std::string();
}

int64_t Stage::save_and_restore() {
  int64_t bytes = -1;
  guarded([&] {
    if (cast_ != nullptr) bytes = static_cast<int64_t>(cast_->save_and_restore());
  });
  return bytes;
}

std::string Stage::transcript() const {
  std::string out;
  if (cast_ == nullptr) return out;
  for (const Character& character : cast_->characters()) {
    out += "prompt";
    append_ids(out, cast_->world_ids());
    append_ids(out, character.prompt);
    out += "\nreply";
    append_ids(out, character.reply);
    out += '\n';
  }
  return out;
}

std::string Stage::close() {
  return guarded([&] { cast_.reset(); });
}

}  // namespace game
