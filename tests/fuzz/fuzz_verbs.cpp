// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Any sequence of verbs, against the model of contract.h: every status, every count of pages and positions,
// every state, and the size of every save must be what the model says. Some steps compare a sequence with a
// twin that got its tokens in one prefill.
#include "verbs.h"

using namespace superslm::fuzz;

namespace {

World* world;

using Step = void (World::*)(Input&);
constexpr Step kSteps[] = {
    &World::create, &World::create,      &World::release,       &World::reset,
    &World::begin,  &World::begin_from,  &World::fill_prefix,   &World::fill_prefix,
    &World::freeze, &World::drop_prefix, &World::prefix_schema, &World::adopt,
    &World::adopt,  &World::prefill,     &World::prefill,       &World::prefill,
    &World::decode, &World::decode,      &World::decode,        &World::decode,
    &World::decode, &World::set_schema,  &World::set_schema,    &World::set_adapter,
    &World::save,   &World::restore,     &World::save_prefix,   &World::restore_prefix,
    &World::score,  &World::compare,     &World::busy,          &World::choose_workspace,
};

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  sslm_test_pin_page_positions(kPage);
  world = new World;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  world->open();
  while (!in.empty()) {
    (world->*kSteps[in.byte() % (sizeof(kSteps) / sizeof(kSteps[0]))])(in);
    world->check_pools();
  }
  world->close();
  return 0;
}
