// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Edited adapters of one base: map and check agree, a refusal names a field, and what is accepted runs bound
// to a sequence. The first byte chooses the alignment, the rest are edits.
#include "edits.h"
#include "run.h"

using namespace superslm::fuzz;

namespace {

auto& base = *new std::vector<Parts>;
sslm_model model;
sslm_ext_model_info_out info;
sslm_seq seq;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  sslm_test_pin_page_positions(4);
  base.emplace_back(read_base("adapter"));
  model = map_base("verbs");
  info = info_of(model);
  sslm_kv_pool pool = make_pool(model, false, 1);
  REQUIRE_EQ(sslm_seq_create(model, &pool, &seq), SSLM_OK);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  const uint8_t choice = in.byte();
  const Bytes edited = Editor(base[0]).apply(in);
  const Shifted file(edited, choice % 4);
  char message[256];
  size_t n = sizeof(message);
  const sslm_status checked = sslm_ext_adapter_check(model, file.data(), edited.size(), message, &n);
  sslm_adapter adapter = nullptr;
  REQUIRE_EQ(sslm_adapter_map(file.data(), edited.size(), model, &adapter), checked);
  if (checked != SSLM_OK) {
    REQUIRE(checked == SSLM_ARTIFACT_REJECTED || checked == SSLM_ADAPTER_MODEL_MISMATCH);
    REQUIRE(adapter == nullptr && names_field(message));
    return 0;
  }
  REQUIRE_EQ(sslm_adapter_residency(adapter), edited.size());
  REQUIRE_EQ(sslm_seq_reset(seq), SSLM_OK);
  REQUIRE_EQ(sslm_seq_set_adapter(seq, adapter), SSLM_OK);
  REQUIRE_EQ(sslm_adapter_release(adapter), SSLM_ADAPTER_HAS_LIVE_SEQUENCES);
  run_sequence(model, info, seq);
  REQUIRE_EQ(sslm_seq_set_adapter(seq, nullptr), SSLM_OK);
  REQUIRE_EQ(sslm_adapter_release(adapter), SSLM_OK);
  return 0;
}
