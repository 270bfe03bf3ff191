// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// What a save writes, byte by byte, and that a restored sequence saves the same bytes again.
#include "blob_fixture.h"
#include "failing_memory.h"

using kv::PoolKind;

namespace {

template <typename T>
T get(const std::vector<uint8_t>& bytes, size_t at) {
  T value;
  CHECK(at + sizeof(T) <= bytes.size());
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

uint32_t units_for(PoolKind kind, uint32_t contexts, const kv::Geometry& g) {
  return kind == PoolKind::kPage ? contexts * static_cast<uint32_t>(kv::pages_per_context(g)) : contexts;
}

void fields_lie_where_the_layout_says() {
  const kv::Geometry g = kv::make_geometry(3, 2, 16, 1, 300);
  const blob::ModelFacts facts = facts_of(g);
  PoolFixture fixture(g, PoolKind::kPage, 20);
  Speaker s{budgeted(fixture.pool, 200)};
  s.fill(100, 5);
  s.schema = kKnownSchema;
  s.state.walk_state = 9;
  s.order = 2;
  s.history = {5, 999, 0};
  const std::vector<uint8_t> b = s.save(facts);
  CHECK_EQ(b.size(), 172 + 4 * kHidden + 12 + 8 + 100 * g.position_bytes());
  CHECK(std::memcmp(b.data(), "SSB6", 4) == 0);
  CHECK(std::memcmp(b.data() + 4, kModelDigest, 32) == 0);
  CHECK_EQ(get<uint32_t>(b, 36), 0);
  CHECK(get<uint64_t>(b, 40) == kKnownSchema);
  CHECK_EQ(get<uint32_t>(b, 48), 9);
  CHECK_EQ(get<uint64_t>(b, 52), 0);
  CHECK_EQ(get<int64_t>(b, 60), 100);
  CHECK_EQ(get<uint32_t>(b, 68), 0);
  CHECK_EQ(get<int32_t>(b, 72), -1);
  CHECK_EQ(get<int64_t>(b, 76), 1);
  CHECK_EQ(get<int64_t>(b, 84), -kResidualExponent);
  CHECK_EQ(get<uint64_t>(b, 92), 11);
  CHECK_EQ(get<int64_t>(b, 100), 33);
  CHECK_EQ(get<int32_t>(b, 108), 2);
  CHECK_EQ(get<uint64_t>(b, 112), 3);
  CHECK_EQ(get<uint32_t>(b, 120), 1);
  CHECK_EQ(get<uint64_t>(b, 124), 2);
  CHECK_EQ(get<uint64_t>(b, 132), 3);
  CHECK_EQ(get<uint64_t>(b, 140), 4);
  CHECK_EQ(get<uint64_t>(b, 148), 2);
  CHECK_EQ(get<uint32_t>(b, 156), 1);
  CHECK_EQ(get<int32_t>(b, 160), 200);
  CHECK_EQ(get<int64_t>(b, 164), 0);
  CHECK_EQ(get<int32_t>(b, 172), -3 * 1000003);
  CHECK_EQ(get<int32_t>(b, 172 + 32 + 4), 999);
  CHECK_EQ(get<uint64_t>(b, 172 + 32 + 12), 100);
  size_t at = 172 + 32 + 12 + 8;
  for (int plane = 0; plane < 12; ++plane) {
    for (int64_t position = 0; position < 100; ++position) {
      for (int i = 0; i < 16; ++i)
        CHECK_EQ(b[at++], row_byte(5 + static_cast<uint64_t>(position), position, plane, i));
    }
  }
  CHECK_EQ(at, b.size());
  s.kv.holder.release();
}

void a_whole_block_is_zero_past_the_rows() {
  const kv::Geometry g = kv::make_geometry(3, 2, 16, 1, 150);
  const blob::ModelFacts facts = facts_of(g);
  PoolFixture fixture(g, PoolKind::kBlock, 1);
  Speaker used{no_budget(fixture.pool)};
  used.fill(150, 90);
  used.kv.reset();
  for (int64_t length : {0, 1, 63, 64, 65, 130}) {
    used.kv.reset();
    used.fill(length, 5);
    const std::vector<uint8_t> b = used.save(facts);
    CHECK_EQ(b.size(), 160 + 4 * kHidden + 150 * g.position_bytes());
    CHECK_EQ(get<uint32_t>(b, 156 + 4 * kHidden), 1);
    CHECK_EQ(get<int64_t>(b, 76), length ? 1 : 0);
    CHECK_EQ(get<int64_t>(b, 84), length ? -kResidualExponent : 0);
    size_t at = 160 + 4 * kHidden;
    for (int plane = 0; plane < 12; ++plane) {
      for (int64_t position = 0; position < 150; ++position) {
        for (int i = 0; i < 16; ++i) {
          const uint64_t stamp = 5 + static_cast<uint64_t>(position);
          CHECK_EQ(b[at++], position < length ? row_byte(stamp, position, plane, i) : 0);
        }
      }
    }
  }
  used.kv.holder.release();
}

void unrun_layers_of_the_last_row_are_zero() {
  const kv::Geometry g = kv::make_geometry(3, 1, 16, 1, 150);
  const blob::ModelFacts facts = facts_of(g);
  for (bool budget : {true, false}) {
    for (int32_t layers : {1, 2}) {
      for (int64_t length : {1, 64, 100}) {
        PoolFixture fixture(g, PoolKind::kPage, 3);
        Speaker s{budget ? budgeted(fixture.pool, 120) : no_budget(fixture.pool)};
        s.fill(length, 5);
        s.rest_mid_token(layers);
        const std::vector<uint8_t> b = s.save(facts);
        const int64_t stride = budget ? length + 1 : 150;
        const size_t rows_at = b.size() - static_cast<size_t>(stride) * g.position_bytes();
        for (int plane = 0; plane < 6; ++plane) {
          const size_t row = rows_at + (static_cast<size_t>(plane * stride + length)) * 16;
          for (size_t i = 0; i < 16; ++i) CHECK_EQ(b[row + i], plane / 2 < layers ? 0x11 + plane : 0);
        }
        s.kv.holder.release();
      }
    }
  }
}

// Every resting state in every pair of pool kinds, as itself and restored.
void restored_sequences_save_the_same_bytes() {
  const kv::Geometry g = kv::make_geometry(3, 1, 16, 1, 150);
  const blob::ModelFacts facts = facts_of(g);
  const PoolKind kinds[] = {PoolKind::kBlock, PoolKind::kPage, PoolKind::kContiguous};
  for (PoolKind from : kinds) {
    for (PoolKind to : kinds) {
      for (int state = 0; state < 4; ++state) {
        for (bool budget : {true, false}) {
          PoolFixture source(g, from, units_for(from, 3, g)), target(g, to, units_for(to, 1, g));
          Filled prefix{no_budget(source.pool), {}};
          prefix.append_many(70, 1);
          prefix.freeze();
          Speaker s{budget ? budgeted(source.pool, 60) : no_budget(source.pool)};
          if (state != 0) {
            s.kv.adopt(prefix);
            s.fill(100, 300);
          }
          s.order = state == 0 ? 0 : 3;
          if (state != 0) s.history = {1, 2, 3};
          if (state == 2) s.rest_pending(77);
          if (state == 3) s.rest_mid_token(2);
          const std::vector<uint8_t> b = s.save(facts);
          blob::Parsed parsed;
          CHECK(blob::parse(facts, b.data(), b.size(), &parsed) == blob::Status::kOk);
          CHECK_EQ(parsed.origin, budget ? s.kv.holder.origin() : 0);
          Speaker restored;
          CHECK(rebuild(target.pool, parsed, 0, &restored) == kv::Status::kOk);
          CHECK(restored.save(facts) == b);
          CHECK_EQ(restored.kv.holder.limit(), s.kv.holder.limit());
          restored.kv.holder.release();
          s.kv.holder.release();
          prefix.holder.release();
        }
      }
    }
  }
}

void blobs_at_odd_addresses_read_and_write_alike() {
  const kv::Geometry g = kv::make_geometry(2, 1, 16, 1, 150);
  const blob::ModelFacts facts = facts_of(g);
  PoolFixture fixture(g, PoolKind::kPage, 6);
  Speaker s{no_budget(fixture.pool)};
  s.fill(90, 5);
  s.order = 1;
  s.history = {4, 5};
  const std::vector<uint8_t> b = s.save(facts);
  std::vector<uint8_t> moved(b.size() + 3);
  blob::write(facts, s.content(), moved.data() + 3);
  CHECK(std::memcmp(moved.data() + 3, b.data(), b.size()) == 0);
  blob::Parsed parsed;
  CHECK(blob::parse(facts, moved.data() + 3, b.size(), &parsed) == blob::Status::kOk);
  Speaker restored;
  CHECK(rebuild(fixture.pool, parsed, 0, &restored) == kv::Status::kOk);
  CHECK(restored.save(facts) == b);
  restored.kv.holder.release();
  s.kv.holder.release();
}

void two_byte_elements_keep_the_formulas() {
  const kv::Geometry g = kv::make_geometry(2, 1, 16, 2, 150);
  const blob::ModelFacts facts = facts_of(g);
  PoolFixture fixture(g, PoolKind::kPage, 6);
  Speaker s{budgeted(fixture.pool, 100)};
  s.fill(90, 5);
  const std::vector<uint8_t> b = s.save(facts);
  CHECK_EQ(b.size(), 172 + 4 * kHidden + 8 + 90 * 2 * 2 * 16 * 2);
  CHECK_EQ(get<uint32_t>(b, 36), 1);
  CHECK(parse(facts, b) == blob::Status::kOk);
  CHECK(parse(facts_of(kv::make_geometry(2, 1, 16, 1, 150)), b) == blob::Status::kKvMismatch);
  s.kv.holder.release();
}

void the_bound_adds_180_to_the_parts() {
  const kv::Geometry g = kv::make_geometry(24, 2, 64, 1, 4096);
  const blob::ModelFacts facts = facts_of(g);
  CHECK_EQ(blob::state_size_bound(facts), 180 + 4 * kHidden + 4 * 4096 + 4096 * 6144);
}

void impossible_contents_have_no_size() {
  const kv::Geometry g = kv::make_geometry(2, 1, 16, 1, 150);
  PoolFixture fixture(g, PoolKind::kPage, 6);
  Speaker s{no_budget(fixture.pool)};
  s.fill(2, 5);
  s.history = {1, 2, 3};
  CHECK_EQ(blob::saved_size(facts_of(g), s.content()), 0);
  s.history.clear();
  s.state.length = -1;
  CHECK_EQ(blob::saved_size(facts_of(g), s.content()), 0);
  s.kv.holder.release();
}

void schema_hashes_are_fnv1a_of_name_and_tables() {
  const uint8_t digest[32] = {};
  // FNV-1a 64 of "a" is af63dc4c8601ec8c; then 32 zero bytes multiply by the prime 32 times.
  uint64_t expected = 0xAF63DC4C8601EC8Cu;
  for (int i = 0; i < 32; ++i) expected *= 0x100000001B3u;
  CHECK(blob::schema_hash("a", 1, digest) == expected);
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests({TEST(fields_lie_where_the_layout_says), TEST(a_whole_block_is_zero_past_the_rows),
                    TEST(unrun_layers_of_the_last_row_are_zero), TEST(restored_sequences_save_the_same_bytes),
                    TEST(blobs_at_odd_addresses_read_and_write_alike),
                    TEST(two_byte_elements_keep_the_formulas), TEST(the_bound_adds_180_to_the_parts),
                    TEST(impossible_contents_have_no_size), TEST(schema_hashes_are_fnv1a_of_name_and_tables)},
                   argc, argv);
}
