// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Damped greedy (docs/damped_greedy.md).
#include <algorithm>
#include <climits>

#include "decode/select.h"

namespace superslm::decode {

namespace {

constexpr int kMaxOrder = 82;
constexpr int64_t kOne = 32768;               // Q15
constexpr int64_t kDiscount = 29491;          // weight of an order relative to the next higher one
constexpr int64_t kLargestRoot = 3037000499;  // its square is the largest below 2^63

// The second-order exponential of I-BERT at q <= 0; false when a step does not fit int64 or the value lies
// outside [0, peak].
bool exponential(const base::DampedConstants& c, int64_t q, int64_t* out) {
  q = std::max(q, -30 * c.q_ln2);
  const int64_t z = -q / c.q_ln2;
  const int64_t r = q + z * c.q_ln2;
  if (c.q_b < INT64_MIN - r) return false;
  const int64_t root = r + c.q_b;
  if (root > kLargestRoot || root < -kLargestRoot) return false;
  const int64_t square = root * root;
  if (c.q_c > 0 && square > INT64_MAX - c.q_c) return false;
  const int64_t value = (square + c.q_c) >> z;
  // In its domain the peak fits int64, though the square of q_b alone may not.
  const uint64_t b = static_cast<uint64_t>(c.q_b);
  const auto peak = static_cast<int64_t>(b * b + static_cast<uint64_t>(c.q_c));
  *out = value;
  return value >= 0 && value <= peak;
}

// The best `count` positions by masked logit descending, legal before masked, index ascending.
void rank_candidates(const LogitRow& row, const Automaton* automaton, uint32_t walk_state, int32_t count) {
  const auto better = [&](int32_t a, int32_t b) {
    if (row.logits[a] != row.logits[b]) return row.logits[a] > row.logits[b];
    if (automaton != nullptr && row.logits[a] == INT32_MIN) {
      const bool legal_a = automaton->legal(walk_state, a), legal_b = automaton->legal(walk_state, b);
      if (legal_a != legal_b) return legal_a;
    }
    return a < b;
  };
  int32_t* heap = row.candidates;  // the worst on top
  for (int32_t i = 0; i < count; ++i) heap[i] = i;
  std::make_heap(heap, heap + count, better);
  for (int32_t i = count; i < row.vocab; ++i) {
    if (row.logits[i] < row.logits[heap[0]] || !better(i, heap[0])) continue;
    std::pop_heap(heap, heap + count, better);
    heap[count - 1] = i;
    std::push_heap(heap, heap + count, better);
  }
  std::sort_heap(heap, heap + count, better);
}

// The anti-language model at the end of a history: n-gram counts, read off the tokens themselves.
class AntiLm {
 public:
  // `last` [vocab] is working memory; afterwards it holds, for candidates, 1 + where they last occurred.
  AntiLm(const EmittedHistory& history, int32_t order, const int32_t* candidates, int32_t count,
         uint32_t* last)
      : history_(history), length_(history.order == order ? history.length : 0), order_(order), last_(last) {
    for (int32_t i = 0; i < count; ++i) last[candidates[i]] = 0;
    for (size_t j = 0; j < length_; ++j) last[history.tokens[j]] = 0;
    int64_t totals[kMaxOrder + 1] = {};
    for (size_t j = 0; j < length_; ++j) {
      uint32_t& place = last[history.tokens[j]];
      history.previous()[j] = static_cast<int32_t>(place);
      place = static_cast<uint32_t>(j + 1);
      const int matched = match_before(j);
      history.match()[j] = static_cast<uint8_t>(matched);
      ++totals[matched];
    }
    for (int i = order - 1; i >= 0; --i) totals[i] += totals[i + 1];  // shorter contexts occur there too
    set_shares(totals);
  }

  // How much a candidate repeats, Q15 in 0..32768.
  int64_t repetition(int32_t token) const {
    if (active_ == 0) return 0;
    int64_t counts[kMaxOrder + 1] = {};
    for (uint32_t at = last_[token]; at != 0; at = static_cast<uint32_t>(history_.previous()[at - 1])) {
      ++counts[history_.match()[at - 1]];
    }
    int64_t count = 0, sum = 0;
    for (int i = order_ - 1; i >= 0; --i) {
      count += counts[i];
      if (i < active_) sum += (shares_[i] * ((count << 15) / totals_[i])) >> 15;
    }
    return std::clamp<int64_t>(sum, 0, kOne);
  }

 private:
  // How many tokens in front of position j equal the last ones, up to order - 1.
  int match_before(size_t j) const {
    const int32_t* tokens = history_.tokens;
    const size_t most = std::min(j, static_cast<size_t>(order_ - 1));
    size_t n = 0;
    while (n < most && tokens[j - 1 - n] == tokens[length_ - 1 - n]) ++n;
    return static_cast<int>(n);
  }

  // totals[i]: how often the current context of i tokens has been followed by any.
  void set_shares(const int64_t* totals) {
    int64_t weights[kMaxOrder] = {};
    int64_t sum = 0;
    for (active_ = 0; active_ < order_ && totals[active_] > 0; ++active_) totals_[active_] = totals[active_];
    int64_t weight = kOne;
    for (int i = order_ - 1; i >= 0; --i, weight = (weight * kDiscount) >> 15) {
      if (i < active_) sum += weights[i] = weight;
    }
    int64_t rest = kOne;
    for (int i = 0; i + 1 < active_; ++i) {
      shares_[i] = (weights[i] << 15) / sum;
      rest -= shares_[i];
    }
    if (active_ > 0) shares_[active_ - 1] = rest;
  }

  const EmittedHistory& history_;
  size_t length_;
  int order_;
  const uint32_t* last_;
  int active_ = 0;  // orders whose context has been followed
  int64_t totals_[kMaxOrder] = {};
  int64_t shares_[kMaxOrder] = {};  // Q15
};

}  // namespace

bool damped_greedy(const Damped& damped, const Automaton* automaton, uint32_t walk_state, const LogitRow& row,
                   int32_t* token) {
  for (int32_t i = 0; automaton != nullptr && i < row.vocab; ++i) {
    row.logits[i] = automaton->legal(walk_state, i) ? row.logits[i] : INT32_MIN;
  }
  const int32_t* candidates = row.candidates;
  const int32_t count = damped.top_k;
  rank_candidates(row, automaton, walk_state, count);
  const int64_t top = row.logits[candidates[0]];
  int64_t sum = 0, value = 0;  // count * peak fits int64
  for (int32_t i = 0; i < count; ++i) {
    if (!exponential(damped.constants, row.logits[candidates[i]] - top, &value)) return false;
    sum += value;
  }
  sum = std::max<int64_t>(sum, 1);
  const AntiLm anti(*damped.history, damped.order, candidates, count, row.weights);
  int64_t best = 0;
  *token = -1;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t id = candidates[i];
    int64_t score = INT64_MIN;
    if (automaton == nullptr || automaton->legal(walk_state, id)) {
      exponential(damped.constants, row.logits[id] - top, &value);
      score = (value << 15) / sum - ((damped.alpha * anti.repetition(id)) >> 15);
    }
    if (*token >= 0 && (score < best || (score == best && id > *token))) continue;
    best = score;
    *token = id;
  }
  return true;
}

}  // namespace superslm::decode
