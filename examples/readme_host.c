/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */
#include <stdio.h>
#include <stdlib.h>
#include <superslm/sslm_abi.h>

#define CHECK(call) ((call) == SSLM_OK ? (void)0 : (fprintf(stderr, "refused: %s\n", #call), exit(1)))

int main(int argc, char** argv) { /* host MODEL.sslm PROMPT */
  FILE* file = argc == 3 ? fopen(argv[1], "rb") : NULL;
  if (file == NULL || fseek(file, 0, SEEK_END) != 0) return 2;
  size_t size = (size_t)ftell(file);
  void* bytes = malloc(size); /* a file mapping is better: the bytes are used in place */
  rewind(file);
  if (bytes == NULL || fread(bytes, 1, size, file) != size) return 2;
  sslm_model model;
  CHECK(sslm_model_map(bytes, size, &model));
  size_t room = sslm_kv_block_size(model) + sslm_kv_pool_overhead_size(model, 1);
  sslm_kv_pool pool; /* memory for one whole context */
  CHECK(sslm_kv_pool_create(model, aligned_alloc(64, (room + 63) / 64 * 64), room, 1, &pool));
  sslm_seq seq;
  CHECK(sslm_seq_create(model, &pool, &seq));
  int32_t ids[512], count = 512, done = 0, token = 0, length;
  CHECK(sslm_tokenize(model, argv[2], ids, &count));
  CHECK(sslm_prefill(model, seq, ids, count, count, SSLM_SPAN_PROMPT, NULL, &done));
  sslm_stats_out stats; /* its ceiling is the number of layers: one whole token per call */
  CHECK(sslm_stats(model, seq, &stats));
  sslm_decode_params params = {.layer_budget = (int32_t)stats.decode_step_ceiling};
  sslm_detok_state state = {{0}, 0};
  for (char text[256]; done < count + 64; ++done) {
    CHECK(sslm_decode_step(model, &seq, 1, &params, NULL, &token));
    length = sizeof(text);
    CHECK(sslm_detokenize_stream(model, &state, &token, 1, text, &length));
    fwrite(text, 1, (size_t)length, stdout);
  }
  return 0; /* a real host calls sslm_seq_release, sslm_kv_pool_destroy and sslm_model_unmap here */
}
