// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Mutated blobs of every format: a status each, nothing drawn on refusal, and what is accepted saves again.
//   blob_mutations [COUNT]
#include "blob_fixture.h"
#include "failing_memory.h"

using kv::PoolKind;

namespace {

using Bytes = std::vector<uint8_t>;

Bytes mutate(Random& random, const Bytes& good) {
  Bytes bytes = good;
  const int64_t header = 230 < static_cast<int64_t>(good.size()) ? 230 : static_cast<int64_t>(good.size());
  for (int64_t edits = 1 + random.below(4); edits > 0; --edits) {
    const int64_t at = random.below(random.below(8) ? header : static_cast<int64_t>(bytes.size()));
    if (bytes.empty()) break;
    switch (random.below(7)) {
      case 0:
        bytes[static_cast<size_t>(at % static_cast<int64_t>(bytes.size()))] ^=
            static_cast<uint8_t>(1u << random.below(8));
        break;
      case 1:
        bytes[static_cast<size_t>(at % static_cast<int64_t>(bytes.size()))] =
            static_cast<uint8_t>(random.next());
        break;
      case 2:
        bytes.resize(static_cast<size_t>(random.below(static_cast<int64_t>(bytes.size()) + 40)));
        break;
      case 3:
        bytes[3 % bytes.size()] = static_cast<uint8_t>('1' + random.below(7));
        break;
      default: {
        // A field replaced by a number near a bound.
        static constexpr size_t kFields[] = {36, 40,  48,  52,  60,  68,  72,  76, 84,
                                             92, 100, 108, 112, 120, 156, 160, 164};
        static constexpr int64_t kValues[] = {0,   1,    -1,        2,         3,         60,       63,
                                              64,  99,   100,       101,       149,       150,      151,
                                              999, 1000, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
        const size_t field = kFields[random.below(static_cast<int64_t>(std::size(kFields)))];
        const int64_t value = kValues[random.below(static_cast<int64_t>(std::size(kValues)))];
        if (field + 8 <= bytes.size()) std::memcpy(bytes.data() + field, &value, random.below(2) ? 4 : 8);
      }
    }
  }
  return bytes;
}

long mutations_never_break_the_pool(int64_t count) {
  const kv::Geometry g = kv::make_geometry(3, 1, 16, 1, 150);
  const blob::ModelFacts facts = facts_of(g);
  PoolFixture fixture(g, PoolKind::kPage, 12);
  std::vector<Bytes> seeds;
  for (int state = 0; state < 4; ++state) {
    for (bool budget : {true, false}) {
      Speaker s{budget ? budgeted(fixture.pool, 120) : no_budget(fixture.pool)};
      s.fill(state ? 100 : 0, 5);
      if (state) s.order = 3, s.history = {1, 2, 3, 4};
      if (state == 2) s.rest_pending(77);
      if (state == 3) s.rest_mid_token(2);
      seeds.push_back(s.save(facts));
      if (!budget) {
        for (const blob::Format* f : {&blob::kSsb4, &blob::kSsb3, &blob::kSsb2}) {
          seeds.push_back(downgrade(seeds.back(), *f, state ? 16 : 0));
          std::swap(seeds.back(), seeds[seeds.size() - 2]);
        }
      }
      s.kv.holder.release();
    }
  }
  Random random{20};
  long accepted = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Bytes& seed = seeds[static_cast<size_t>(random.below(static_cast<int64_t>(seeds.size())))];
    Bytes bytes = mutate(random, seed);
    bytes.shrink_to_fit();
    blob::Parsed parsed;
    if (blob::parse(facts, bytes.data(), bytes.size(), &parsed) == blob::Status::kOk) {
      ++accepted;
      uint64_t schema = 0;
      std::memcpy(&schema, bytes.data() + blob::kSchemaHashAt, 8);
      Speaker restored;
      CHECK(rebuild(fixture.pool, parsed, schema, &restored) == kv::Status::kOk);
      const Bytes again = restored.save(facts);
      if (std::memcmp(bytes.data(), "SSB6", 4) == 0 && restored.kv.holder.mode() == kv::Mode::kBudget &&
          parsed.state.layer_index == 0) {
        CHECK(again == bytes);
      }
      restored.kv.holder.release();
    }
    CHECK_EQ(fixture.free_pages(), 12);
  }
  return accepted;
}

}  // namespace

int main(int argc, char** argv) {
  current_test = "mutations_never_break_the_pool";
  const int64_t count = argc > 1 ? std::atoll(argv[1]) : 5 * 20000;  // the formats take turns
  std::printf("ok %lld mutated blobs, %ld of them restored\n", static_cast<long long>(count),
              mutations_never_break_the_pool(count));
  return 0;
}
