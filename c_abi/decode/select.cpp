// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "decode/select.h"

#include "kernels/kernels.h"
#include "kernels/scalar.h"

namespace superslm::decode {

namespace {

// A token joins the history only once it is chosen and legal; the anti-LM of another order starts over.
void remember(const Damped& damped, int32_t token) {
  EmittedHistory& history = *damped.history;
  if (history.order != damped.order) history.length = 0;
  history.order = damped.order;
  history.tokens[history.length++] = token;
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

Selected select(const Choice& choice, const SequenceState& state, const LogitRow& row, int32_t* token,
                uint32_t* next_walk_state) {
  int32_t chosen = -1;
  switch (choice.mode) {
    case Mode::kGreedy:
      chosen = row.best;
      break;
    case Mode::kDamped:
      if (!choice.damped.history->reserve(choice.damped.most_tokens)) return Selected::kNoMemory;
      if (!damped_greedy(choice.damped, choice.automaton, state.walk_state, row, &chosen))
        return Selected::kRefused;
      break;
    case Mode::kSampled:
      chosen = sample(choice.sampling, choice.automaton, state, row);
      break;
  }
  if (chosen < 0) return Selected::kDeadEnd;
  if (choice.automaton != nullptr) {
    const uint32_t next = choice.automaton->step(state.walk_state, chosen);
    if (next == kNoWalkState) return Selected::kDeadEnd;
    *next_walk_state = next;
  }
  if (choice.mode == Mode::kDamped) remember(choice.damped, chosen);
  *token = chosen;
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
