// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Every restore check, alone and in order, over every format.
#include "blob_fixture.h"
#include "failing_memory.h"

using blob::Status;
using kv::PoolKind;

namespace {

using Bytes = std::vector<uint8_t>;

struct Fixture {
  kv::Geometry geometry = kv::make_geometry(3, 1, 16, 1, 150);
  blob::ModelFacts facts = facts_of(geometry);
  PoolFixture pool{geometry, PoolKind::kPage, 12};
  Filled prefix{no_budget(pool.pool), {}};
  Speaker budget{budgeted(pool.pool, 60)}, plain{no_budget(pool.pool)};
  Bytes ssb6, ssb5;

  explicit Fixture(int64_t length = 100) {
    prefix.append_many(70, 1);
    prefix.freeze();
    for (Speaker* s : {&budget, &plain}) {
      s->kv.adopt(prefix);
      s->fill(length, 400);
      s->order = 2;
      s->history = {1, 2, 3};
      s->schema = kKnownSchema;
      s->state.walk_state = 4;
    }
    save();
  }
  ~Fixture() {
    for (kv::Holder* h : {&budget.kv.holder, &plain.kv.holder, &prefix.holder}) h->release();
  }
  void save() {
    ssb6 = budget.save(facts);
    ssb5 = plain.save(facts);
  }
  template <typename T>
  void expect(const Bytes& good, size_t at, T value, Status status) {
    Bytes bad = good;
    put(bad, at, value);
    CHECK_EQ(parse(facts, bad), status);
  }
  // In both written formats.
  template <typename T>
  void expect_both(size_t at, T value, Status status) {
    expect(ssb6, at, value, status);
    expect(ssb5, at, value, status);
  }
};

constexpr size_t kCountAt6 = 172 + 4 * kHidden + 12, kCountAt5 = 156 + 4 * kHidden + 12;

void good_blobs_parse() {
  Fixture f;
  CHECK_EQ(parse(f.facts, f.ssb6), Status::kOk);
  CHECK_EQ(parse(f.facts, f.ssb5), Status::kOk);
}

void short_and_unknown_containers_are_invalid() {
  Fixture f;
  for (const Bytes* good : {&f.ssb6, &f.ssb5}) {
    for (size_t size = 0; size < good->size(); size += size < 300 ? 1 : 97) {
      CHECK_EQ(parse(f.facts, Bytes(good->begin(), good->begin() + static_cast<std::ptrdiff_t>(size))),
               Status::kInvalid);
    }
  }
  f.expect_both<uint8_t>(3, '7', Status::kInvalid);
  f.expect_both<uint8_t>(3, '1', Status::kInvalid);
  f.expect_both<uint8_t>(0, 's', Status::kInvalid);
}

void identity_fields_have_statuses_of_their_own() {
  Fixture f;
  f.expect_both<uint8_t>(4, 0, Status::kModelMismatch);
  f.expect_both<uint8_t>(35, 1, Status::kModelMismatch);
  f.expect_both<uint32_t>(36, 1, Status::kKvMismatch);
  f.expect_both<uint32_t>(36, 0xFFFFFFFF, Status::kKvMismatch);
  f.expect_both<uint64_t>(40, kKnownSchema + 1, Status::kSchemaMismatch);
  f.expect_both<uint32_t>(48, kSchemaStates, Status::kSchemaMismatch);
  f.expect_both<uint32_t>(48, 0xFFFFFFFF, Status::kSchemaMismatch);
  f.expect_both<uint64_t>(40, 0, Status::kSchemaMismatch);  // no schema, but a walk state
  f.expect_both<uint32_t>(48, kSchemaStates - 1, Status::kOk);
}

void histories_and_lengths_are_bounded() {
  Fixture f;
  f.expect_both<int32_t>(108, 83, Status::kInvalid);
  f.expect_both<int32_t>(108, -1, Status::kInvalid);
  f.expect_both<int32_t>(108, 0, Status::kInvalid);
  f.expect_both<int32_t>(108, 82, Status::kOk);
  f.expect_both<uint64_t>(112, 101, Status::kInvalid);
  f.expect_both<uint64_t>(112, UINT64_MAX, Status::kInvalid);
  f.expect_both<uint64_t>(112, uint64_t{1} << 62, Status::kInvalid);
  f.expect_both<int64_t>(60, -1, Status::kInvalid);
  f.expect_both<int64_t>(60, 151, Status::kInvalid);
  f.expect_both<int64_t>(60, INT64_MIN, Status::kInvalid);
  f.expect_both<int64_t>(60, INT64_MAX, Status::kInvalid);
  f.expect_both<uint32_t>(68, 3, Status::kInvalid);
  f.expect_both<uint32_t>(68, 0xFFFFFFFF, Status::kInvalid);
}

void a_row_past_the_cap_is_invalid() {
  Fixture f;
  for (Bytes blob : {f.ssb6, f.ssb5}) {
    put<int64_t>(blob, 60, 150);
    put<uint32_t>(blob, 68, 1);
    put<uint32_t>(blob, 120, 0);
    CHECK_EQ(parse(f.facts, blob), Status::kInvalid);
  }
}

void budget_fields_are_consistent() {
  Fixture f;
  f.expect<uint32_t>(f.ssb6, 156, 2, Status::kInvalid);
  f.expect<uint32_t>(f.ssb6, 156, 0, Status::kInvalid);  // mode 0 with a budget below the cap
  f.expect<int32_t>(f.ssb6, 160, 0, Status::kInvalid);
  f.expect<int32_t>(f.ssb6, 160, -1, Status::kInvalid);
  f.expect<int32_t>(f.ssb6, 160, 151, Status::kInvalid);
  f.expect<int32_t>(f.ssb6, 160, INT32_MAX, Status::kInvalid);
  f.expect<int32_t>(f.ssb6, 160, 29, Status::kInvalid);
  f.expect<int32_t>(f.ssb6, 160, 30, Status::kOk);
  f.expect<int64_t>(f.ssb6, 164, -1, Status::kInvalid);
  f.expect<int64_t>(f.ssb6, 164, 101, Status::kInvalid);
  f.expect<int64_t>(f.ssb6, 164, INT64_MAX, Status::kInvalid);
  f.expect<int64_t>(f.ssb6, 164, INT64_MIN, Status::kInvalid);
  f.expect<int64_t>(f.ssb6, 164, 100, Status::kOk);
  Bytes mode0 = f.ssb6;
  put<uint32_t>(mode0, 156, 0);
  put<int32_t>(mode0, 160, 150);
  CHECK_EQ(parse(f.facts, mode0), Status::kOk);
  blob::Parsed parsed;
  CHECK_EQ(blob::parse(f.facts, mode0.data(), mode0.size(), &parsed), Status::kOk);
  CHECK(parsed.mode == kv::Mode::kNoBudget);
  CHECK_EQ(parsed.origin, 70);
}

void rows_must_have_their_exact_count() {
  Fixture f;
  f.expect<uint64_t>(f.ssb6, kCountAt6, 101, Status::kInvalid);
  f.expect<uint64_t>(f.ssb6, kCountAt6, 99, Status::kInvalid);
  f.expect<uint64_t>(f.ssb6, kCountAt6, UINT64_MAX, Status::kInvalid);
  f.expect<uint32_t>(f.ssb5, kCountAt5, 0, Status::kInvalid);
  f.expect<uint32_t>(f.ssb5, kCountAt5, 2, Status::kInvalid);
  Bytes longer6 = f.ssb6, longer5 = f.ssb5;
  longer6.push_back(0);
  longer5.resize(longer5.size() + 1000, 0xAA);
  CHECK_EQ(parse(f.facts, longer6), Status::kInvalid);
  CHECK_EQ(parse(f.facts, longer5), Status::kOk);
}

void only_the_four_resting_states_exist() {
  Fixture f;
  f.expect_both<int64_t>(76, 2, Status::kInvalid);
  f.expect_both<int64_t>(84, -15, Status::kInvalid);
  f.expect_both<uint64_t>(52, 1, Status::kInvalid);
  f.expect_both<uint32_t>(120, 2, Status::kInvalid);
  f.expect_both<uint32_t>(120, 0, Status::kInvalid);  // neither ready, pending nor mid-token
  f.expect_both<int32_t>(72, 5, Status::kInvalid);    // ready and pending
  for (Bytes blob : {f.ssb6, f.ssb5}) {
    const size_t history_at = blob[3] == '6' ? kCountAt6 - 12 : kCountAt5 - 12;
    f.expect<int32_t>(blob, history_at, kVocab, Status::kInvalid);
    f.expect<int32_t>(blob, history_at + 8, -1, Status::kInvalid);
    put<uint32_t>(blob, 120, 0);
    f.expect<int32_t>(blob, 72, 0, Status::kOk);
    f.expect<int32_t>(blob, 72, kVocab - 1, Status::kOk);
    f.expect<int32_t>(blob, 72, kVocab, Status::kInvalid);
    f.expect<int32_t>(blob, 72, -2, Status::kInvalid);
  }
  // Mid-token at 100: the row of the unfinished token is carried too, and counts in the exact size.
  f.budget.rest_mid_token(1);
  f.plain.rest_mid_token(1);
  f.save();
  CHECK_EQ(parse(f.facts, f.ssb6), Status::kOk);
  CHECK_EQ(parse(f.facts, f.ssb5), Status::kOk);
  f.expect_both<uint32_t>(120, 1, Status::kInvalid);
  f.expect_both<int32_t>(72, 3, Status::kInvalid);
  f.expect_both<uint32_t>(68, 2, Status::kOk);
  f.expect_both<uint32_t>(68, 3, Status::kInvalid);      // past the last layer
  f.expect<int32_t>(f.ssb6, 160, 30, Status::kInvalid);  // an unfinished token at its limit
  f.expect<int32_t>(f.ssb6, 160, 31, Status::kOk);
}

void a_ready_sequence_has_emitted_less_than_its_context() {
  Fixture f;
  for (int64_t length : {3, 4}) {
    f.plain.kv.reset();
    f.plain.fill(length, 1);
    CHECK_EQ(f.plain.history.size(), 3);
    CHECK_EQ(parse(f.facts, f.plain.save(f.facts)), length == 3 ? Status::kInvalid : Status::kOk);
  }
}

void fresh_blobs_carry_nothing() {
  Fixture f;
  f.plain.kv.reset();
  f.plain.fill(0, 0);
  f.plain.history.clear();
  f.plain.order = 0;
  const Bytes fresh = f.plain.save(f.facts);
  CHECK_EQ(parse(f.facts, fresh), Status::kOk);
  f.expect<int64_t>(fresh, 76, 1, Status::kInvalid);
  f.expect<int64_t>(fresh, 84, -kResidualExponent, Status::kInvalid);
  f.expect<uint32_t>(fresh, 120, 1, Status::kInvalid);
  f.expect<int32_t>(fresh, 72, 1, Status::kInvalid);
  f.expect<uint32_t>(fresh, 68, 1, Status::kInvalid);
}

void older_formats_are_read() {
  Fixture f;
  const Bytes ssb4 = downgrade(f.ssb5, blob::kSsb4, 12);
  CHECK_EQ(parse(f.facts, ssb4), Status::kOk);
  blob::Parsed parsed;
  CHECK_EQ(blob::parse(f.facts, ssb4.data(), ssb4.size(), &parsed), Status::kOk);
  CHECK_EQ(parsed.state.counts.total, 11);
  CHECK_EQ(parsed.state.counts.value_landing, 0);
  CHECK_EQ(parsed.history.length, 3);
  CHECK(parsed.state.ready);
  for (const blob::Format* format : {&blob::kSsb3, &blob::kSsb2}) {
    f.plain.state = decode::SequenceState(f.plain.state);
    CHECK_EQ(parse(f.facts, downgrade(f.ssb5, *format, 12)), Status::kResidualLost);
  }
  f.plain.rest_pending(9);
  f.save();
  for (const blob::Format* format : {&blob::kSsb4, &blob::kSsb3, &blob::kSsb2}) {
    const Bytes old = downgrade(f.ssb5, *format, 12);
    CHECK_EQ(blob::parse(f.facts, old.data(), old.size(), &parsed), Status::kOk);
    CHECK_EQ(parsed.state.pending_token, 9);
    CHECK_EQ(static_cast<bool>(parsed.residual), format == &blob::kSsb4);
    CHECK_EQ(parsed.history.length, format == &blob::kSsb2 ? 0 : 3);
    CHECK(std::memcmp(parsed.rows.bytes, f.ssb5.data() + kCountAt5 + 4, 1000) == 0);
  }
  f.plain.state.pending_token = -1;
  f.plain.rest_mid_token(2);
  f.save();
  for (const blob::Format* format : {&blob::kSsb4, &blob::kSsb3, &blob::kSsb2}) {
    const Bytes old = downgrade(f.ssb5, *format, 12);
    CHECK_EQ(blob::parse(f.facts, old.data(), old.size(), &parsed), Status::kOk);
    CHECK_EQ(parsed.residual[1], -2 * 1000003);
    for (size_t size = 0; size < old.size(); size += size < 200 ? 1 : 211) {
      CHECK_EQ(parse(f.facts, Bytes(old.begin(), old.begin() + static_cast<std::ptrdiff_t>(size))),
               Status::kInvalid);
    }
  }
}

// One defect of each check, added from the last to the first: the earlier one always decides.
void the_first_failing_check_decides() {
  Fixture f;
  struct Defect {
    Status status;
    void (*spoil)(Bytes&);
  };
  const Defect defects[] = {
      {Status::kInvalid, [](Bytes& b) { put<int32_t>(b, 72, kVocab); }},
      {Status::kInvalid, [](Bytes& b) { b.pop_back(); }},
      {Status::kInvalid, [](Bytes& b) { put<uint32_t>(b, 156, 2); }},
      {Status::kInvalid, [](Bytes& b) { put<int64_t>(b, 60, -1); }},
      {Status::kInvalid, [](Bytes& b) { put<int32_t>(b, 108, 83); }},
      {Status::kSchemaMismatch, [](Bytes& b) { put<uint32_t>(b, 48, 99); }},
      {Status::kKvMismatch, [](Bytes& b) { put<uint32_t>(b, 36, 1); }},
      {Status::kModelMismatch, [](Bytes& b) { put<uint8_t>(b, 10, 0xFF); }},
      {Status::kInvalid, [](Bytes& b) { put<uint8_t>(b, 0, 'X'); }},
  };
  Bytes blob = f.ssb6;
  for (const Defect& defect : defects) {
    defect.spoil(blob);
    CHECK_EQ(parse(f.facts, blob), defect.status);
  }
  Bytes lost = downgrade(f.ssb5, blob::kSsb3, 12);
  lost.resize(130);  // the tail is judged later
  CHECK_EQ(parse(f.facts, lost), Status::kResidualLost);
  put<int32_t>(lost, 108, 83);
  CHECK_EQ(parse(f.facts, lost), Status::kInvalid);
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests({TEST(good_blobs_parse), TEST(short_and_unknown_containers_are_invalid),
                    TEST(identity_fields_have_statuses_of_their_own), TEST(histories_and_lengths_are_bounded),
                    TEST(a_row_past_the_cap_is_invalid), TEST(budget_fields_are_consistent),
                    TEST(rows_must_have_their_exact_count), TEST(only_the_four_resting_states_exist),
                    TEST(a_ready_sequence_has_emitted_less_than_its_context), TEST(fresh_blobs_carry_nothing),
                    TEST(older_formats_are_read), TEST(the_first_failing_check_decides)},
                   argc, argv);
}
