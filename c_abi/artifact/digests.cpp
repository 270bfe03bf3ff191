// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "artifact/digests.h"

#include "artifact/container.h"

namespace superslm::artifact {

namespace {

size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

// The first chunk with its file digest taken as zero.
Digest first_chunk(const uint8_t* data, size_t size) {
  const uint8_t zeros[32] = {};
  constexpr size_t kRest = kFileDigestOffset + sizeof(zeros);
  Sha256 hash;
  return hash.update(data, kFileDigestOffset)
      .update(zeros, sizeof(zeros))
      .update(data + kRest, size - kRest)
      .finish();
}

}  // namespace

Digests compute_digests(const uint8_t* data, size_t size, Span model_entries, size_t model_end) {
  const size_t first = smaller(size, kChunk);
  Sha256 file, model;
  file.update(first_chunk(data, first).bytes, 32);
  model.update(model_entries.data, model_entries.size);
  model.update(sha256(data + kModelStart, smaller(model_end, kChunk) - kModelStart).bytes, 32);

  const Sha256Kernel& kernel = sha256_kernel();
  const auto lanes = static_cast<size_t>(kernel.lanes);
  for (size_t begin = first; begin < size;) {
    Digest digests[kMaxSha256Lanes];
    const bool side_by_side = (size - begin) / kChunk >= lanes;
    if (side_by_side) {
      const uint8_t* messages[kMaxSha256Lanes];
      for (size_t i = 0; i < lanes; ++i) messages[i] = data + begin + i * kChunk;
      sha256_lanes(kernel, messages, kChunk, digests);
    } else {
      digests[0] = sha256(data + begin, smaller(size - begin, kChunk));
    }
    for (size_t i = 0; i < (side_by_side ? lanes : 1); ++i) {
      const size_t length = smaller(size - begin, kChunk);
      file.update(digests[i].bytes, 32);
      if (model_end >= begin + length) {
        model.update(digests[i].bytes, 32);
      } else if (model_end > begin) {
        model.update(sha256(data + begin, model_end - begin).bytes, 32);
      }
      begin += length;
    }
  }
  return Digests{file.finish(), model.finish()};
}

}  // namespace superslm::artifact
