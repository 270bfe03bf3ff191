// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "cast.hpp"

namespace game {
namespace {

sslm_ext_model_info_out info_of(const sslm::Model& model) {
  sslm_ext_model_info_out info{};
  info.struct_size = sizeof(info);
  check(sslm_ext_model_info(model.get(), &info), "model info");
  return info;
}

uint32_t pages(const sslm::Model& model, int32_t budget) {
  return static_cast<uint32_t>(sslm_kv_pages_for_budget(model.get(), budget));
}

// The value of a call, or the end of the program with the refusal's name.
template <typename T>
T must(sslm::Result<T> result, const char* what) {
  check(result.status(), what);
  return std::move(*result);
}

}  // namespace

Cast::Cast(std::span<const std::byte> artifact, int count, double budget_ms, const char* world)
    : model_(must(sslm::Model::map(artifact), "model")),
      info_(info_of(model_)),
      budget_(budget_ms, info_.layers),
      // Twice the pages of a character, so that one can be restored while the other still lives.
      pages_(pages(model_, kWorldBudget) + static_cast<uint32_t>(count) * 2 * pages(model_, kBudget)),
      kv_(sslm::Pool::size(model_, pages_)),
      frame_memory_(sslm::Workspace::size(model_, {count, 1, info_.layers, 0})),
      reading_memory_(sslm::Workspace::size(model_, {1, kChunk, info_.layers, 0})),
      pool_(must(sslm::Pool::create(model_, pages_, kv_.span()), "pool")),
      frame_space_(must(sslm::Workspace::create(model_, {count, 1, info_.layers, 0}, frame_memory_.span()),
                        "workspace")),
      reading_space_(
          must(sslm::Workspace::create(model_, {1, kChunk, info_.layers, 0}, reading_memory_.span()),
               "workspace")),
      world_(must(sslm::Prefix::begin(model_, pool_, kWorldBudget), "world")),
      characters_(static_cast<size_t>(count)) {
  append_chat(world_ids_, SSLM_EXT_CHAT_SYSTEM, SSLM_EXT_CHAT_PREFIX);
  append_text(world_ids_, world);
  for (std::span<const int32_t> rest(world_ids_); !rest.empty();) {
    const int32_t n = must(world_.prefill(model_, rest, kChunk, reading_space_), "reading the world");
    rest = rest.subspan(static_cast<size_t>(n));
  }
  check(world_.freeze(), "world");
  for (Character& character : characters_) {
    character.sequence = must(sslm::Sequence::create(model_, pool_, kBudget), "sequence");
    check(character.sequence.adopt(world_), "adopt");
    character.reply.reserve(kReply);
  }
  speaking_.reserve(characters_.size());
  handles_.reserve(characters_.size());
  tokens_.resize(characters_.size());
  reader_ = std::thread([this] { read_prompts(); });
}

Cast::~Cast() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  reader_.join();
}

void Cast::say(int who, const char* persona, const char* line) {
  Character& character = characters_[static_cast<size_t>(who)];
  append_text(character.prompt, persona);
  append_chat(character.prompt, SSLM_EXT_CHAT_SYSTEM, SSLM_EXT_CHAT_SUFFIX);
  append_chat(character.prompt, SSLM_EXT_CHAT_USER, SSLM_EXT_CHAT_PREFIX);
  append_text(character.prompt, line);
  append_chat(character.prompt, SSLM_EXT_CHAT_USER, SSLM_EXT_CHAT_SUFFIX);
  append_chat(character.prompt, SSLM_EXT_CHAT_ASSISTANT, SSLM_EXT_CHAT_PREFIX);
  character.mood = Mood::kReading;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(who);
  }
  wake_.notify_one();
}

// A prompt's token costs a whole pass over the weights, so prompts are read outside the frame.
void Cast::read_prompts() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return ending_ || !queue_.empty(); });
    if (ending_) return;
    Character& character = characters_[static_cast<size_t>(queue_.front())];
    queue_.erase(queue_.begin());
    lock.unlock();
    std::exception_ptr failure;
    try {
      read(character);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure != nullptr) failure_ = failure;
  }
}

void Cast::read(Character& character) {
  for (std::span<const int32_t> rest(character.prompt); !rest.empty();) {
    const int32_t n =
        must(character.sequence.prefill(model_, rest, kChunk, reading_space_), "reading a line");
    rest = rest.subspan(static_cast<size_t>(n));
  }
  character.mood = Mood::kSpeaking;
}

double Cast::frame() {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  speaking_.clear();
  int32_t layer = 0;
  for (size_t i = 0; i < characters_.size(); ++i) {
    if (characters_[i].mood == Mood::kSpeaking) layer = std::max(layer, characters_[i].layer);
  }
  // Those who stand at the same layer go together: their weights are read once.
  for (size_t i = 0; i < characters_.size(); ++i) {
    if (characters_[i].mood == Mood::kSpeaking && characters_[i].layer == layer) speaking_.push_back(i);
  }
  if (speaking_.empty()) return 0;
  const int32_t layers = budget_.next(layer);
  const Clock::time_point start = Clock::now();
  step(layers);
  const double ms = Milliseconds(Clock::now() - start).count();
  if (layer + layers < info_.layers) budget_.learn(ms);
  return ms;
}

void Cast::step(int32_t layers) {
  handles_.clear();
  for (const size_t i : speaking_) handles_.push_back(characters_[i].sequence.get());
  sslm_decode_params params{};
  params.layer_budget = layers;
  check(sslm_decode_step(model_.get(), handles_.data(), static_cast<int32_t>(handles_.size()), &params,
                         frame_space_.get(), tokens_.data()),
        "decode");
  for (size_t k = 0; k < speaking_.size(); ++k) {
    Character& character = characters_[speaking_[k]];
    const int32_t token = tokens_[k];
    character.layer = token < 0 ? character.layer + layers : 0;
    if (token < 0) continue;
    if (!stops(token)) character.reply.push_back(token);
    if (stops(token) || character.reply.size() == kReply) character.mood = Mood::kDone;
  }
}

size_t Cast::save_and_restore() {
  size_t bytes = 0;
  for (Character& character : characters_) {
    if (character.mood != Mood::kSpeaking) continue;
    std::vector<std::byte> blob(character.sequence.save_size());
    must(character.sequence.save(blob), "save");
    check(character.sequence.reset(), "release");
    sslm_kv_pool at = pool_.get();
    sslm_seq restored = nullptr;
    check(sslm_seq_restore_shared(model_.get(), &at, blob.data(), blob.size(), world_.get(), &restored,
                                  nullptr),
          "restore");
    character.sequence = sslm::Sequence(restored);
    bytes += blob.size();
  }
  return bytes;
}

bool Cast::done() const {
  return std::all_of(characters_.begin(), characters_.end(),
                     [](const Character& character) { return character.mood == Mood::kDone; });
}

bool Cast::stops(int32_t token) const {
  const std::span<const int32_t> ids(info_.stop_ids, static_cast<size_t>(info_.stop_id_count));
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

void Cast::append_text(std::vector<int32_t>& ids, const char* text) const {
  size_t n = 0;
  sslm_ext_tokenize(model_.get(), text, std::strlen(text), 0, nullptr, &n);
  ids.resize(ids.size() + n);
  check(sslm_ext_tokenize(model_.get(), text, std::strlen(text), 0, ids.data() + ids.size() - n, &n),
        "tokenize");
}

void Cast::append_chat(std::vector<int32_t>& ids, int32_t role, int32_t part) const {
  size_t n = 0;
  sslm_ext_chat_ids(model_.get(), role, part, nullptr, &n);
  ids.resize(ids.size() + n);
  check(sslm_ext_chat_ids(model_.get(), role, part, ids.data() + ids.size() - n, &n), "chat format");
}

std::string Cast::text(std::span<const int32_t> ids) const {
  sslm::Detokenizer stream(model_);
  std::string out(64 * ids.size() + 64, ' ');
  out.resize(static_cast<size_t>(must(stream.push(ids, out), "detokenize")));
  return out;
}

}  // namespace game
