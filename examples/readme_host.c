/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */
#define SSLM_ENABLE_DRAFT_EXTENSIONS
#include <stdio.h>
#include <stdlib.h>
#include <superslm/sslm_ext.h>

static void need(int ok, const char* what, const char* why) {
  if (ok) return;
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static void check(sslm_status status, const char* what) {
  need(status == SSLM_OK, what, sslm_ext_status_name(status));
}

int main(int argc, char** argv) {
  need(argc == 3 && argv[2][0] != 0, "usage", "host MODEL.sslm PROMPT");
  FILE* file = fopen(argv[1], "rb");
  need(file != NULL && fseek(file, 0, SEEK_END) == 0, argv[1], "cannot be opened");
  size_t size = (size_t)ftell(file);
  void* bytes = malloc(size); /* a file mapping is better: the bytes are used in place */
  rewind(file);
  need(bytes != NULL && fread(bytes, 1, size, file) == size, argv[1], "cannot be read");
  sslm_model model;
  check(sslm_model_map(bytes, size, &model), argv[1]);
  sslm_ext_model_info_out info = {.struct_size = sizeof(info)};
  check(sslm_ext_model_info(model, &info), "model info");
  size_t room = sslm_kv_block_size(model) + sslm_kv_pool_overhead_size(model, 1);
  void* kv = (void*)(((uintptr_t)malloc(room + 63) + 63) / 64 * 64); /* lent at a multiple of 64 */
  sslm_kv_pool pool;                                                 /* memory for one whole context */
  check(sslm_kv_pool_create(model, kv, room, 1, &pool), "pool");
  sslm_seq seq;
  check(sslm_seq_create(model, &pool, &seq), "sequence");
  int32_t ids[512], count = 512, done, token, length, stops = 0;
  check(sslm_tokenize(model, argv[2], ids, &count), "tokenize");
  check(sslm_prefill(model, seq, ids, count, 512, SSLM_SPAN_PROMPT, NULL, &done), "prefill");
  sslm_decode_params params = {.layer_budget = info.layers}; /* a whole token per call */
  sslm_detok_state state = {{0}, 0};
  for (char text[256]; done < count + 24; ++done) {
    check(sslm_decode_step(model, &seq, 1, &params, NULL, &token), "decode");
    for (int i = 0; i < info.stop_id_count; ++i) stops |= token == info.stop_ids[i];
    if (stops) break; /* the host stops, not the library */
    length = sizeof(text);
    check(sslm_detokenize_stream(model, &state, &token, 1, text, &length), "detokenize");
    fwrite(text, 1, (size_t)length, stdout);
  }
  puts("");
  return 0; /* a real host calls sslm_seq_release, sslm_kv_pool_destroy and sslm_model_unmap here */
}
