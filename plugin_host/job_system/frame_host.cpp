// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// A game loop of 60 frames a second with a job system, in which three characters speak at once:
//
//   frame_host MODEL.sslm [--frames N] [--budget MS] [--busy MS] [--workers N] [--png FILE] [--ids]
//
// Half-way through, everyone who speaks is saved, released and restored in mid-sentence. At the end it prints
// what was said and how long the library took in each frame.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>

#include "cast.hpp"
#include "histogram.hpp"
#include "superslm_jobs.hpp"

namespace {

const char kWorld[] =
    "You are in the Drowned Lantern, a tavern on the quay of Saltreach. Outside a storm pulls at the "
    "shutters, "
    "and the ferry will not sail tonight. The stove is hot, a lame gull named Commodore sleeps "
    "on the counter, and at dusk the bell of the lighthouse rang by itself. "
    "Nobody trusts the tax collector, who sits by the window with wet boots and a locked chest, "
    "and nobody knows why the harbour master has not been seen since noon. The soup is thin, the stories are "
    "long. "
    "Stay in your part and answer in one or two short sentences.";

struct Line {
  const char* name;
  const char* persona;
  const char* line;
};
const Line kLines[] = {
    {"Marta", " You are Marta, who keeps the tavern.", "What do you serve tonight?"},
    {"Oren", " You are Oren, an old sailor.", "Have you ever seen a storm like this?"},
    {"Pip", " You are Pip, a young thief.", "Who is the man by the window?"},
};

struct Options {
  const char* model = nullptr;
  const char* png = nullptr;
  int frames = 600, workers = 1;
  double budget_ms = 2.0, busy_ms = 5.0;
  bool ids = false;
};

std::optional<Options> parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (name == "--ids") {
      options.ids = true;
    } else if (name.substr(0, 2) != "--") {
      options.model = argv[i];
    } else if (value == nullptr) {
      return std::nullopt;
    } else {
      ++i;
      if (name == "--frames") options.frames = std::atoi(value);
      if (name == "--workers") options.workers = std::atoi(value);
      if (name == "--budget") options.budget_ms = std::atof(value);
      if (name == "--busy") options.busy_ms = std::atof(value);
      if (name == "--png") options.png = value;
    }
  }
  if (options.model == nullptr) return std::nullopt;
  return options;
}

std::vector<std::byte> read_file(const char* path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::vector<std::byte> bytes(file ? static_cast<size_t>(file.tellg()) : 0);
  file.seekg(0).read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file) throw std::runtime_error(std::string("cannot read ") + path);
  return bytes;
}

// What the rest of a game does in a frame.
void be_busy(double ms) {
  const auto end = game::Clock::now() + game::Milliseconds(ms);
  volatile unsigned work = 1;
  while (game::Clock::now() < end) work = work * 1664525u + 1013904223u;
}

void print_ids(const char* what, const std::vector<int32_t>& first, const std::vector<int32_t>& rest) {
  std::printf("%s", what);
  for (const int32_t id : first) std::printf(" %d", id);
  for (const int32_t id : rest) std::printf(" %d", id);
  std::printf("\n");
}

void print_times(const Options& options, const std::vector<double>& library_ms) {
  std::printf("library per frame: budget %.2f ms, median %.2f ms, 99 %% %.2f ms, worst %.2f ms\n",
              options.budget_ms, game::quantile(library_ms, 0.5), game::quantile(library_ms, 0.99),
              game::quantile(library_ms, 1.0));
  const double bin = options.budget_ms / 8;
  std::printf("%s", game::histogram_text(library_ms, bin, 24).c_str());
  if (options.png != nullptr && !game::histogram_png(options.png, library_ms, bin, 24, options.budget_ms)) {
    throw std::runtime_error(std::string("cannot write ") + options.png);
  }
}

void print_replies(game::Cast& cast, bool ids) {
  for (size_t i = 0; i < std::size(kLines); ++i) {
    const game::Character& character = cast.characters()[i];
    std::printf("%s: %s\n", kLines[i].name, cast.text(character.reply).c_str());
    if (!ids) continue;
    print_ids("prompt", cast.world_ids(), character.prompt);
    print_ids("reply", character.reply, {});
  }
}

void play(const Options& options) {
  const std::vector<std::byte> artifact = read_file(options.model);
  superslm_jobs::Pool jobs(options.workers);
  game::Cast cast(artifact, std::size(kLines), options.budget_ms, kWorld);
  const sslm_parallel_for hook = options.workers > 0 ? jobs.hook()
                                                     : sslm_parallel_for{superslm_jobs::run_serially, nullptr,
                                                                         4, SSLM_PARALLEL_FOR_MATVEC};
  cast.use(hook);
  for (int i = 0; i < static_cast<int>(std::size(kLines)); ++i)
    cast.say(i, kLines[i].persona, kLines[i].line);

  std::vector<double> library_ms;
  library_ms.reserve(static_cast<size_t>(options.frames));
  size_t saved = 0;
  int spoken = 0, frame = 0;
  auto next = game::Clock::now();
  for (; frame < options.frames && !cast.done(); ++frame) {
    be_busy(options.busy_ms);
    const double ms = cast.frame();
    if (ms > 0) library_ms.push_back(ms);
    if (ms > 0 && ++spoken == 40) saved = cast.save_and_restore();
    next += std::chrono::microseconds(16667);
    std::this_thread::sleep_until(next);
  }
  print_replies(cast, options.ids);
  std::printf("\n%d frames, %zu with speech; saved and restored in mid-sentence: %zu bytes\n", frame,
              library_ms.size(), saved);
  print_times(options, library_ms);
}

}  // namespace

int main(int argc, char** argv) {
  const std::optional<Options> options = parse(argc, argv);
  if (!options) {
    std::fprintf(
        stderr,
        "usage: frame_host MODEL.sslm [--frames N] [--budget MS] [--busy MS] [--workers N] [--png FILE] "
        "[--ids]\n");
    return 2;
  }
  try {
    play(*options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "frame_host: %s\n", error.what());
    return 1;
  }
}
