// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// A small cast over superslm.hpp: a world, a persona nested in it, two speakers, each count of pages as
// planned. Prints "ok NAME" per cell.
//
//   hpp_cast CELLS.sslm: an artifact whose context cap leaves room for some pages.
#define SSLM_ENABLE_DRAFT_EXTENSIONS
#include "superslm/superslm.hpp"

#include <cstdio>
#include <cstring>
#include <utility>

#include "hpp_support.hpp"

namespace {

constexpr int32_t kChunk = 32;
constexpr int32_t kBudget = 40;
constexpr uint32_t kSpeakers = 2;
constexpr int kReply = 6;

uint32_t pages_of(int64_t positions, int64_t page) {
  return static_cast<uint32_t>((positions + page - 1) / page);
}

// The plan: a world of one page and a half, a persona of one page more, speakers of kBudget positions.
struct Plan {
  explicit Plan(const sslm::Model& model)
      : page(model.page_positions()),
        world(page + page / 2),
        context(world + page),
        speaker(static_cast<uint32_t>(model.pages_for_budget(kBudget))) {}
  uint32_t world_pages() const { return pages_of(world, page); }
  uint32_t world_full() const { return static_cast<uint32_t>(world / page); }
  uint32_t persona_pages() const { return pages_of(context, page) - world_full(); }
  uint32_t persona_full() const { return static_cast<uint32_t>(context / page); }
  uint32_t prefixes() const { return world_pages() + persona_pages(); }
  uint32_t pages() const { return prefixes() + kSpeakers * speaker; }

  int64_t page;      // positions of a page
  int64_t world;     // positions of the world
  int64_t context;   // positions of the world and the persona
  uint32_t speaker;  // pages of one speaker
};

// A pool of a plan's pages with the memory lent to it.
struct Table {
  Table(const sslm::Model& model, uint32_t pages)
      : memory(sslm::Pool::size(model, pages)),
        pool(sslm::Pool::create(model, pages, memory.span()).value()) {}
  ~Table() { EXPECT(pool.reset() == SSLM_OK); }
  uint32_t free_pages() const { return pool.stats().value().free_pages; }

  Memory memory;
  sslm::Pool pool;
};

// What the studio makes and ships.
struct Baked {
  Memory world;
  Memory persona;
};

struct Host {
  explicit Host(const char* path)
      : artifact(read_file(path)), model(sslm::Model::map(artifact.span()).value()), plan(model) {
    const sslm_config config{1, kChunk, 1, 0};
    scratch = Memory(sslm::Workspace::size(model, config));
    workspace = sslm::Workspace::create(model, config, scratch.span()).value();
  }
  ~Host() { EXPECT(workspace.reset() == SSLM_OK && model.reset() == SSLM_OK); }

  void fill(sslm::Prefix& prefix, int64_t from, int64_t to) {
    for (int64_t at = from; at < to; ++at) {
      const int32_t token = static_cast<int32_t>(at * 7 % 50 + 3);
      EXPECT(prefix.prefill(model, std::span(&token, 1), kChunk, workspace).value() == 1);
    }
    EXPECT(sslm::prefix_save_size(prefix) == 0);  // still open
    EXPECT(sslm::prefix_save(prefix, {}).status() == SSLM_INVALID_ARGUMENT);
    EXPECT(prefix.freeze() == SSLM_OK);
  }
  int32_t layers(const sslm::Sequence& sequence) const {
    return static_cast<int32_t>(sequence.stats(model).value().decode_step_ceiling);
  }
  void speak_alike(sslm::Sequence& one, sslm::Sequence& other) {
    const int32_t all = layers(one);
    for (int i = 0; i < kReply; ++i) {
      EXPECT(one.decode(model, all, workspace).value() == other.decode(model, all, workspace).value());
    }
  }

  Memory artifact;
  sslm::Model model;
  Plan plan;
  Memory scratch;
  sslm::Workspace workspace;
};

Memory bake(const sslm::Prefix& prefix) {
  Memory blob(sslm::prefix_save_size(prefix));
  EXPECT(blob.span().size() > 8);
  EXPECT(sslm::prefix_save(prefix, blob.span().first(8)).status() == SSLM_BUFFER_TOO_SMALL);
  EXPECT(sslm::prefix_save(prefix, blob.span()).value() == blob.span().size());
  return blob;
}

bool same_bytes(const Memory& one, const Memory& other) {
  return one.span().size() == other.span().size() &&
         std::memcmp(one.span().data(), other.span().data(), one.span().size()) == 0;
}

Baked prefixes_are_baked(Host& host) {
  const Plan& plan = host.plan;
  const auto world_budget = static_cast<int32_t>(plan.world);
  const auto persona_budget = static_cast<int32_t>(plan.context - plan.world);
  const auto reserved = static_cast<uint32_t>(host.model.pages_for_budget(world_budget) +
                                              host.model.pages_for_budget(persona_budget));
  Table studio(host.model, reserved);
  sslm::Prefix world = sslm::Prefix::begin(host.model, studio.pool, world_budget).value();
  host.fill(world, 0, plan.world);
  EXPECT(studio.free_pages() == reserved - plan.world_pages());
  sslm::Prefix persona = world.nested(persona_budget).value();
  host.fill(persona, plan.world, plan.context);
  EXPECT(studio.free_pages() == reserved - plan.prefixes());
  Baked baked{bake(world), bake(persona)};
  EXPECT(world.reset() == SSLM_OK);
  EXPECT(same_bytes(bake(persona), baked.persona));  // the parent may be gone
  return baked;
}

void restores_refuse_what_does_not_fit(Host& host, const Baked& baked) {
  Table table(host.model, host.plan.world_pages());
  const auto restore = [&](std::span<const std::byte> blob, const sslm::Prefix& parent) {
    return sslm::prefix_restore(host.model, table.pool, blob, parent).status();
  };
  EXPECT(restore(baked.persona.span(), {}) == SSLM_INVALID_ARGUMENT);
  EXPECT(restore(baked.world.span().first(40), {}) == SSLM_INVALID_ARGUMENT);
  sslm::Prefix world = sslm::prefix_restore(host.model, table.pool, baked.world.span()).value();
  EXPECT(restore(baked.persona.span(), world) == SSLM_KV_POOL_EXHAUSTED);
  EXPECT(sslm::Prefix::begin(host.model, table.pool, 1).status() == SSLM_KV_POOL_EXHAUSTED);
  EXPECT(host.model.pages_for_budget(0) == 0 && sslm::Pool().stats().status() == SSLM_INVALID_ARGUMENT);
  EXPECT(sslm::Sequence().kv_stats().status() == SSLM_INVALID_ARGUMENT);
}

void a_cast_fits_the_pages_of_its_plan(Host& host, const Baked& baked) {
  const Plan& plan = host.plan;
  Table table(host.model, plan.pages());
  sslm::Prefix world = sslm::prefix_restore(host.model, table.pool, baked.world.span()).value();
  sslm::Prefix persona = sslm::prefix_restore(host.model, table.pool, baked.persona.span(), world).value();
  EXPECT(same_bytes(bake(world), baked.world) && same_bytes(bake(persona), baked.persona));
  EXPECT(table.free_pages() == plan.pages() - plan.prefixes());
  sslm::Sequence speakers[kSpeakers];
  for (sslm::Sequence& speaker : speakers) {
    speaker = sslm::Sequence::create(host.model, table.pool, kBudget).value();
    EXPECT(speaker.adopt(persona) == SSLM_OK);
  }
  EXPECT(sslm::Sequence::create(host.model, table.pool, kBudget).status() == SSLM_KV_POOL_EXHAUSTED);

  const sslm_kv_pool_stats_out pool = table.pool.stats().value();
  EXPECT(pool.page_count == plan.pages() && pool.page_positions == plan.page && pool.free_pages == 0);
  EXPECT(pool.shared_pages == plan.persona_full());
  const sslm_seq_kv_stats_out own = speakers[0].kv_stats().value();
  EXPECT(own.mode == 1 && own.budget == kBudget && own.origin == plan.context);
  EXPECT(own.context_length == plan.context && own.limit == plan.context + kBudget);
  EXPECT(own.shared_pages == plan.persona_full() && own.materialized_pages == 0);
  EXPECT(own.mapped_private_pages + own.reserve_pages == plan.speaker);
  host.speak_alike(speakers[0], speakers[1]);

  EXPECT(world.reset() == SSLM_OK);  // its partly filled page goes, its full one is the persona's too
  EXPECT(table.free_pages() == plan.world_pages() - plan.world_full());
}

void a_save_shares_its_persona_again(Host& host, const Baked& baked) {
  const Plan& plan = host.plan;
  Table table(host.model, plan.pages() + plan.persona_full());
  sslm::Prefix world = sslm::prefix_restore(host.model, table.pool, baked.world.span()).value();
  sslm::Prefix persona = sslm::prefix_restore(host.model, table.pool, baked.persona.span(), world).value();
  sslm::Sequence speaker = sslm::Sequence::create(host.model, table.pool, kBudget).value();
  EXPECT(speaker.adopt(persona) == SSLM_OK);
  (void)speaker.decode(host.model, host.layers(speaker), host.workspace).value();
  Memory blob(speaker.save_size());
  EXPECT(speaker.save(blob.span()).value() <= host.model.state_size());
  EXPECT(speaker.reset() == SSLM_OK);
  const uint32_t before = table.free_pages();

  uint32_t shared = 99;
  sslm::Sequence again =
      sslm::Sequence::restore_shared(host.model, table.pool, blob.span(), persona, &shared).value();
  EXPECT(shared == plan.persona_full() && again.kv_stats().value().shared_pages == shared);
  EXPECT(again.kv_stats().value().materialized_pages == 0);
  EXPECT(table.free_pages() == before - plan.speaker);
  sslm::Sequence apart =
      sslm::Sequence::restore_shared(host.model, table.pool, blob.span(), {}, &shared).value();
  EXPECT(shared == 0 && apart.kv_stats().value().shared_pages == 0);
  EXPECT(apart.kv_stats().value().materialized_pages == plan.persona_full());
  EXPECT(table.free_pages() == before - 2 * plan.speaker - plan.persona_full());
  host.speak_alike(again, apart);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  Host host(argv[1]);
  const Baked baked = prefixes_are_baked(host);
  std::puts("ok prefixes_are_baked");
#define CELL(name) name(host, baked), std::printf("ok %s\n", #name)
  CELL(restores_refuse_what_does_not_fit);
  CELL(a_cast_fits_the_pages_of_its_plan);
  CELL(a_save_shares_its_persona_again);
  return 0;
}
