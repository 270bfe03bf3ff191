// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Edited artifacts: map and check agree, a refusal names a field, and what is accepted runs: prefill, decode
// under each schema, text, the self-check. The first byte chooses the artifact, the rest are edits.
#include "edits.h"
#include "run.h"

using namespace superslm::fuzz;

namespace {

constexpr const char* kNames[] = {"verbs", "biased", "centred", "qwen2"};
auto& bases = *new std::vector<Parts>;

void run_schemas(sslm_model model, sslm_kv_pool pool, const sslm_ext_model_info_out& info) {
  char name[64];
  for (int32_t i = 0; i < info.schema_count && i < 3; ++i) {
    size_t n = sizeof(name) - 1;
    if (sslm_schema_name(model, i, name, &n) != SSLM_OK) continue;
    name[n] = 0;
    sslm_schema schema = nullptr;
    sslm_seq seq = nullptr;
    const sslm_status found = sslm_schema_lookup(model, name, &schema);
    REQUIRE(found == SSLM_OK || std::strlen(name) != n);
    if (found != SSLM_OK || sslm_seq_create_budgeted(model, &pool, 1, &seq) != SSLM_OK) continue;
    REQUIRE_EQ(sslm_seq_set_schema(seq, schema), SSLM_OK);
    run_sequence(model, info, seq);
    REQUIRE_EQ(sslm_seq_release(seq), SSLM_OK);
  }
}

void run_text(sslm_model model) {
  static const char kText[] = "<|im_start|>sp\xc3\xa4te 10 the e\xcc\x81 \xff\xea\xb0\x80";
  int32_t ids[64];
  int32_t n = 64;
  if (sslm_tokenize(model, kText, ids, &n) != SSLM_OK) return;
  sslm_detok_state state = {};
  char text[512];
  int32_t size = sizeof(text);
  sslm_detokenize_stream(model, &state, ids, n, text, &size);
  size_t count = 64;
  sslm_ext_chat_ids(model, SSLM_EXT_CHAT_USER, SSLM_EXT_CHAT_PREFIX, ids, &count);
}

void run_model(sslm_model model) {
  const sslm_ext_model_info_out info = info_of(model);
  const size_t size = 6 * sslm_kv_page_size(model) + sslm_kv_page_pool_overhead_size(model, 6);
  if (size > size_t{1} << 22) return;
  const Aligned memory(size);
  sslm_kv_pool pool = nullptr;
  sslm_seq seq = nullptr;
  REQUIRE_EQ(sslm_kv_page_pool_create(model, memory.data(), size, 6, &pool), SSLM_OK);
  const sslm_status created = sslm_seq_create_budgeted(model, &pool, info.cap < 4 ? info.cap : 4, &seq);
  REQUIRE_EQ(created, SSLM_OK);
  run_sequence(model, info, seq);
  REQUIRE_EQ(sslm_seq_release(seq), SSLM_OK);
  run_schemas(model, pool, info);
  run_text(model);
  sslm_ext_self_check_out check = {};
  check.struct_size = sizeof(check);
  if (info.cap <= 64) {
    const sslm_status status = sslm_ext_self_check(model, nullptr, &check);
    REQUIRE(status == SSLM_OK || status == SSLM_ARTIFACT_REJECTED);
  }
  REQUIRE_EQ(sslm_kv_pool_destroy(pool), SSLM_OK);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  sslm_test_pin_page_positions(4);
  for (const char* name : kNames) bases.emplace_back(read_base(name));
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  const uint8_t choice = in.byte();
  const Bytes edited = Editor(bases[choice % 4]).apply(in);
  const Shifted file(edited, choice / 4 % 4);
  char message[256];
  size_t n = sizeof(message);
  const sslm_status checked = sslm_ext_model_check(file.data(), edited.size(), message, &n);
  sslm_model model = nullptr;
  REQUIRE_EQ(sslm_model_map(file.data(), edited.size(), &model), checked);
  if (checked != SSLM_OK) {
    REQUIRE_EQ(checked, SSLM_ARTIFACT_REJECTED);
    REQUIRE(model == nullptr && names_field(message));
    return 0;
  }
  REQUIRE_EQ(n, 0);
  run_model(model);
  REQUIRE_EQ(sslm_model_unmap(model), SSLM_OK);
  return 0;
}
