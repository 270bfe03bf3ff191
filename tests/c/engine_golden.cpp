// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Feeds tokens to an artifact and prints the digests of residuals, logits, K and V, for comparison with
// another engine's: engine_golden FILE decode|N TOKEN... With "decode" each token goes layer by layer; with a
// number, all go through prefill in chunks of N.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "artifact/reader.h"
#include "artifact/sha256.h"
#include "decode/decode.h"
#include "forward/layer.h"

namespace {

using namespace superslm;

std::vector<uint8_t> read_file(const char* path) {
  std::vector<uint8_t> bytes;
  std::FILE* file = std::fopen(path, "rb");
  if (file == nullptr) return bytes;
  std::fseek(file, 0, SEEK_END);
  bytes.resize(static_cast<size_t>(std::ftell(file)));
  std::rewind(file);
  constexpr size_t kPart = size_t{1} << 24;  // WebAssembly runtimes limit a single read
  size_t got = 0, read = 0;
  while ((read = std::fread(bytes.data() + got, 1, std::min(kPart, bytes.size() - got), file)) > 0)
    got += read;
  std::fclose(file);
  bytes.resize(got);
  return bytes;
}

void print_digest(const char* name, const void* bytes, size_t size) {
  const artifact::Digest digest = artifact::sha256(bytes, size);
  std::printf("%s ", name);
  for (uint8_t byte : digest.bytes) std::printf("%02x", byte);
  std::printf("\n");
}

// One sequence over one contiguous block of K/V memory.
struct Run {
  artifact::Model model;
  kv::Geometry geometry;
  std::vector<uint8_t> pages;
  uint32_t page = 0;
  std::vector<int32_t> residual;
  std::vector<unsigned char> buffer;
  decode::SequenceState state;
  forward::Engine engine;

  bool open(const std::vector<uint8_t>& file, int32_t chunk) {
    base::Message why;
    if (artifact::read(file.data(), file.size(), &model, &why) != artifact::ReadResult::ok) {
      std::fprintf(stderr, "refused: %s\n", why.text);
      return false;
    }
    const artifact::ModelView& m = model.view;
    geometry = kv::Geometry{m.layer_count, m.kv_heads, m.head_dim, 1, m.cap, m.cap};
    pages.resize(geometry.page_bytes());
    residual.resize(static_cast<size_t>(m.hidden));
    state.residual = residual.data();
    const forward::Shape shape{1, chunk};
    buffer.resize(forward::scratch_size(m, shape) + forward::kScratchAlignment);
    void* at = buffer.data();
    size_t space = buffer.size();
    std::align(forward::kScratchAlignment, buffer.size() - forward::kScratchAlignment, at, space);
    engine = forward::make_engine(m, shape, at, {});
    return true;
  }
  kv::KvView view() const { return kv::KvView{const_cast<uint8_t*>(pages.data()), &page, &geometry}; }

  void print_cache() const {
    for (int kind = 0; kind < 2; ++kind) {
      for (int32_t l = 0; l < geometry.layers; ++l) {
        std::vector<int8_t> rows;
        for (int64_t j = 0; j < state.length; ++j) {
          for (int32_t h = 0; h < geometry.kv_heads; ++h) {
            const int8_t* row = view().row(l, static_cast<kv::Kind>(kind), h, j);
            rows.insert(rows.end(), row, row + geometry.head_dim);
          }
        }
        print_digest(kind == 0 ? "k" : "v", rows.data(), rows.size());
      }
    }
  }
  void print_logits() {
    std::vector<int32_t> logits(static_cast<size_t>(model.view.vocab));
    forward::LogitRow row;
    row.residual = state.residual;
    row.logits = logits.data();
    forward::logits(engine, &row, 1);
    print_digest("final", residual.data(), residual.size() * sizeof(int32_t));
    print_digest("logits", logits.data(), logits.size() * sizeof(int32_t));
  }
  void decode_token(int32_t token) {
    state.ready = false;
    state.pending_token = token;
    std::vector<int32_t> residuals;
    decode::Entry entry;
    for (int32_t l = 0; l < geometry.layers; ++l) {
      entry = decode::Entry{&state, view(), nullptr, {}, -1, decode::Outcome::kNotRun};
      decode::decode_group(engine, &entry, 1, 1);
      residuals.insert(residuals.end(), residual.begin(), residual.end());
    }
    print_digest("residuals", residuals.data(), residuals.size() * sizeof(int32_t));
    print_logits();
    std::printf("argmax %d\n", entry.token);
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::vector<uint8_t> file = read_file(argv[1]);
  const bool decodes = std::strcmp(argv[2], "decode") == 0;
  const int32_t chunk = decodes ? 1 : std::atoi(argv[2]);
  Run run;
  if (!run.open(file, chunk)) return 1;
  std::vector<int32_t> tokens;
  for (int i = 3; i < argc; ++i) tokens.push_back(std::atoi(argv[i]));
  const int32_t count = static_cast<int32_t>(tokens.size());
  for (int32_t i = 0; i < count; i += chunk) {
    const int32_t part = count - i < chunk ? count - i : chunk;
    if (decodes) {
      run.decode_token(tokens[static_cast<size_t>(i)]);
    } else {
      decode::prefill(run.engine, run.state, run.view(), nullptr, tokens.data() + i, part);
    }
  }
  if (!decodes) run.print_logits();
  run.print_cache();
  const decode::SaturationCounts& c = run.state.counts;
  std::printf("counts %llu %llu %llu %llu %llu\n", static_cast<unsigned long long>(c.total),
              static_cast<unsigned long long>(c.value_landing),
              static_cast<unsigned long long>(c.key_landing), static_cast<unsigned long long>(c.rotary_query),
              static_cast<unsigned long long>(c.rotary_key));
  std::printf("tier %s\n", run.engine.kernels->name);
  artifact::release(&run.model);
  return 0;
}
