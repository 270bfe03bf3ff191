// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "decode/select.h"

#include "kernels/kernels.h"
#include "kernels/scalar.h"

namespace superslm::decode {

namespace {

// Tokens without a transition from the walk state can only be chosen when nothing else is there.
void mask_illegal(const Automaton& automaton, uint32_t walk_state, int32_t* logits, int32_t vocab) {
  for (int32_t token = 0; token < vocab; ++token) {
    if (automaton.step(walk_state, token) == kNoWalkState) logits[token] = INT32_MIN;
  }
}

// Base-2 logarithm of p >= 1 in Q16, by squaring the normalised mantissa once per bit.
int64_t log2_q16(uint64_t p) {
  int n = 0;
  for (uint64_t u = p; u != 0; u >>= 1) ++n;
  uint64_t y = n > 32 ? p >> (n - 32) : p << (32 - n);
  int64_t r = int64_t{n - 1} << 16;
  for (int k = 15; k >= 0; --k) {
    y = (y * y) >> 31;
    if (y >> 32 == 0) continue;
    y >>= 1;
    r |= int64_t{1} << k;
  }
  return r;
}

}  // namespace

Selected select(const Choice& choice, uint32_t walk_state, int32_t* logits, int32_t vocab, int32_t* token,
                uint32_t* next_walk_state) {
  if (choice.automaton) mask_illegal(*choice.automaton, walk_state, logits, vocab);
  const int32_t best = kernels::active().argmax(logits, vocab);
  if (choice.automaton) {
    const uint32_t next = choice.automaton->step(walk_state, best);
    if (next == kNoWalkState) return Selected::kDeadEnd;
    *next_walk_state = next;
  }
  *token = best;
  return Selected::kToken;
}

int64_t log_probability(const int32_t* logits, int32_t vocab, int32_t token) {
  // invT = round(log2(e) * 2^32): a distance of nats becomes one of log2 units.
  constexpr uint64_t kWhole = 1, kFraction = 0x71547653;
  const int64_t top = logits[kernels::active().argmax(logits, vocab)];
  uint64_t sum = 0;
  for (int32_t i = 0; i < vocab; ++i) {
    const uint64_t d = static_cast<uint64_t>(top - logits[i]);
    sum += kernels::exp2_weight(d * kWhole + ((d * kFraction) >> 32));
  }
  return (logits[token] - top) - (((log2_q16(sum) - 30 * 65536) * 45426) >> 16);
}

}  // namespace superslm::decode
