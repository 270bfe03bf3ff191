// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Seeded sampling, docs/numerics.md section 12.
#include <algorithm>

#include "base/fixed_point.h"
#include "decode/select.h"
#include "kernels/scalar.h"

namespace superslm::decode {

namespace {

void adjust(const Sampling& s, int32_t* logits) {
  uint64_t clipped = 0;  // not one of the sites that are counted
  for (int32_t i = 0; i < s.bias_count; ++i) {
    int32_t& logit = logits[s.bias_tokens[i]];
    logit = base::sat32(int64_t{logit} + s.bias[i], clipped);
  }
  for (int32_t i = 0; i < s.penalty_count; ++i) {
    int32_t& logit = logits[s.penalty_tokens[i]];
    logit = base::sat32(logit - int64_t{s.frequency} * s.penalty_counts[i] - s.presence, clipped);
  }
}

// Tokens that are legal and not banned; returns their number.
int32_t collect(const Sampling& s, const Automaton* automaton, uint32_t walk_state, const LogitRow& row) {
  if (s.banned_count > 0) std::fill(row.weights, row.weights + row.vocab, 0u);
  for (int32_t i = 0; i < s.banned_count; ++i) row.weights[s.banned[i]] = 1;
  int32_t count = 0;
  for (int32_t i = 0; i < row.vocab; ++i) {
    if (s.banned_count > 0 && row.weights[i] != 0) continue;
    if (automaton == nullptr || automaton->legal(walk_state, i)) row.candidates[count++] = i;
  }
  return count;
}

// Sets the weights of the candidates and drops those of weight 0, which rank behind all others and are never
// drawn; returns how many are left.
int32_t weigh(uint64_t inverse_temperature, const LogitRow& row, int32_t count) {
  int64_t top = INT32_MIN;
  for (int32_t i = 0; i < count; ++i) top = std::max<int64_t>(top, row.logits[row.candidates[i]]);
  const uint64_t whole = inverse_temperature >> 32, fraction = inverse_temperature & 0xFFFFFFFFu;
  int32_t left = 0;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t id = row.candidates[i];
    const auto distance = static_cast<uint64_t>(top - row.logits[id]);
    const uint32_t weight = kernels::exp2_weight(distance * whole + ((distance * fraction) >> 32));
    if (weight == 0) continue;
    row.weights[id] = weight;
    row.candidates[left++] = id;
  }
  return left;
}

// Candidates by rank, found one by one in a heap: most draws end after a few.
class Ranking {
 public:
  Ranking(const LogitRow& row, int32_t count, int32_t top_k)
      : row_(row), count_(top_k > 0 && top_k < count ? top_k : count), unranked_(count_) {
    int32_t* ids = row.candidates;
    if (count_ < count) std::nth_element(ids, ids + count_, ids + count, better());
    for (int32_t i = 0; i < count_; ++i) sum_ += row.weights[ids[i]];
    std::make_heap(ids, ids + count_, worse());
  }

  int32_t count() const { return count_; }
  uint64_t sum() const { return sum_; }

  // The token of a rank below count(). Ranked ones stand at the back of the array, in reverse order.
  int32_t at(int32_t rank) {
    for (; count_ - unranked_ <= rank; --unranked_)
      std::pop_heap(row_.candidates, row_.candidates + unranked_, worse());
    return row_.candidates[count_ - 1 - rank];
  }

 private:
  struct Better {
    const int32_t* logits;
    bool operator()(int32_t a, int32_t b) const {
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    }
  };
  struct Worse {
    Better better;
    bool operator()(int32_t a, int32_t b) const { return better(b, a); }
  };
  Better better() const { return Better{row_.logits}; }
  Worse worse() const { return Worse{better()}; }

  const LogitRow& row_;
  int32_t count_;
  int32_t unranked_;
  uint64_t sum_ = 0;
};

// The 64 random bits of a position: Philox4x32-10.
uint64_t random_bits(uint64_t seed, uint64_t position) {
  uint32_t c[4] = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0};
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    c[0] = static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0;
    c[1] = static_cast<uint32_t>(p1);
    c[2] = static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1;
    c[3] = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c[0] | uint64_t{c[1]} << 32;
}

uint64_t high_product(uint64_t a, uint64_t b) {
  const uint64_t a0 = a & 0xFFFFFFFFu, a1 = a >> 32, b0 = b & 0xFFFFFFFFu, b1 = b >> 32;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
  return a1 * b1 + (middle >> 32) + ((a0 * b1 + (middle & 0xFFFFFFFFu)) >> 32);
}

}  // namespace

int32_t sample(const Sampling& s, const Automaton* automaton, const SequenceState& state,
               const LogitRow& row) {
  adjust(s, row.logits);
  const int32_t legal = collect(s, automaton, state.walk_state, row);
  if (legal == 0) return -1;
  Ranking ranking(row, weigh(s.inverse_temperature, row, legal), s.top_k);
  int32_t keep = ranking.count();
  uint64_t sum = ranking.sum();
  uint64_t likely = 0;
  if (s.top_p < 32768 || s.min_p > 0) {
    // Top-p counts over the whole sum; of what it keeps, min-p removes the unlikely. A weight is at most
    // 2^30 - 2^14, so that 32768 times the sum of 2^19 of them is below 2^64.
    const uint64_t enough = static_cast<uint64_t>(s.top_p) * sum;
    likely = static_cast<uint64_t>(s.min_p) * row.weights[ranking.at(0)];
    const int32_t all = keep;
    uint64_t running = 0;
    keep = 0;
    for (sum = 0; keep < all && running * 32768 < enough; ++keep) {
      const uint64_t weight = row.weights[ranking.at(keep)];
      // From rank to rank a weight may rise by less than its 2^-14th part.
      if ((weight + (weight >> 14) + 1) * 32768 < likely) break;
      running += weight;
      if (weight * 32768 >= likely) sum += weight;
    }
  }
  const uint64_t drawn = high_product(random_bits(s.seed, static_cast<uint64_t>(state.length)), sum);
  uint64_t running = 0;
  for (int32_t rank = 0; rank < keep; ++rank) {
    const int32_t id = ranking.at(rank);
    const uint64_t weight = row.weights[id];
    if (weight * 32768 < likely) continue;
    running += weight;
    if (running > drawn) return id;
  }
  return -1;  // not reached: the draw lies below the sum
}

}  // namespace superslm::decode
