/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* A story that survives the game: told in slices, saved in the middle of a token, continued from the file.
 *
 *   cc -std=c11 savegame.c $(pkg-config --cflags --libs superslm) -o savegame
 *   ./savegame model.sslm story.sav      begins a story and saves it
 *   ./savegame model.sslm story.sav      continues it and saves it again
 *   ./savegame model.sslm story.sav 4    with another number of layers per call: the same text
 *
 * A blob holds the context, the pending token and the token in the making. It fits any pool of the same
 * model, and is checked like any other bytes from outside. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SSLM_ENABLE_DRAFT_EXTENSIONS
#include <superslm/sslm_ext.h>

enum { BUDGET = 512, CHUNK = 128, TOKENS = 24 };

static void check(sslm_status status, const char* what) {
  if (status == SSLM_OK) return;
  fprintf(stderr, "%s: %s\n", what, sslm_ext_status_name(status));
  exit(1);
}

static void* lend(size_t size) {
  void* memory = aligned_alloc(SSLM_ABI_ALIGNMENT_BYTES, (size + 63) / 64 * 64);
  if (memory == NULL) check(SSLM_ALLOCATION_FAILED, "memory");
  return memory;
}

/* A whole file, or null when there is none. */
static void* read_file(const char* path, size_t* size) {
  FILE* file = fopen(path, "rb");
  if (file == NULL) return NULL;
  fseek(file, 0, SEEK_END);
  *size = (size_t)ftell(file);
  void* bytes = lend(*size);
  rewind(file);
  if (fread(bytes, 1, *size, file) != *size) check(SSLM_ARTIFACT_REJECTED, path);
  fclose(file);
  return bytes;
}

/* Written beside the old file and put in its place, so that a crash never costs the game. */
static void save(sslm_seq seq, const char* path) {
  size_t size = 0;
  sslm_seq_save(seq, NULL, &size); /* asks for the size */
  void* blob = lend(size);
  check(sslm_seq_save(seq, blob, &size), "save");
  char part[1024];
  snprintf(part, sizeof(part), "%s.part", path);
  FILE* file = fopen(part, "wb");
  if (file == NULL || fwrite(blob, 1, size, file) != size || fclose(file) != 0 || rename(part, path) != 0) {
    perror(path);
    exit(1);
  }
  free(blob);
  printf("\n[saved %zu bytes in the middle of a token]\n", size);
}

static sslm_seq begin(sslm_model model, sslm_kv_pool* pool) {
  static const char prompt[] = "Long ago, in a village by the sea, there lived a fisherman who";
  int32_t ids[CHUNK], count = CHUNK, done = 0;
  sslm_seq seq;
  check(sslm_seq_create_budgeted(model, pool, BUDGET, &seq), "sequence");
  check(sslm_tokenize(model, prompt, ids, &count), "tokenize");
  check(sslm_prefill(model, seq, ids, count, CHUNK, SSLM_SPAN_PROMPT, NULL, &done), "prefill");
  printf("%s", prompt);
  return seq;
}

/* Tells TOKENS tokens and begins the next one. */
static void tell(sslm_model model, sslm_seq seq, int32_t layers) {
  sslm_decode_params params = {0};
  sslm_detok_state state = {{0}, 0};
  params.layer_budget = layers;
  for (int told = 0; told < TOKENS;) {
    int32_t token = -1, length;
    char piece[256];
    check(sslm_decode_step(model, &seq, 1, &params, NULL, &token), "decode");
    if (token < 0) continue; /* call again */
    length = sizeof(piece);
    check(sslm_detokenize_stream(model, &state, &token, 1, piece, &length), "detokenize");
    fwrite(piece, 1, (size_t)length, stdout);
    ++told;
  }
  int32_t token = -1;
  params.layer_budget = 1;
  check(sslm_decode_step(model, &seq, 1, &params, NULL, &token), "decode");
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: savegame model.sslm story.sav [layers]\n");
    return 2;
  }
  size_t size = 0, saved_size = 0;
  void* bytes = read_file(argv[1], &size);
  if (bytes == NULL) {
    perror(argv[1]);
    return 1;
  }
  sslm_model model;
  check(sslm_model_map(bytes, size, &model), "model");
  sslm_ext_model_info_out info = {0};
  info.struct_size = sizeof(info);
  check(sslm_ext_model_info(model, &info), "model info");
  const size_t kv_size = sslm_kv_block_size(model) + sslm_kv_pool_overhead_size(model, 1);
  void* kv = lend(kv_size);
  sslm_kv_pool pool;
  check(sslm_kv_pool_create(model, kv, kv_size, 1, &pool), "pool");

  sslm_seq seq;
  void* blob = read_file(argv[2], &saved_size);
  if (blob != NULL) {
    check(sslm_seq_restore(model, &pool, blob, saved_size, &seq), argv[2]);
  } else {
    seq = begin(model, &pool);
  }
  tell(model, seq, argc > 3 ? atoi(argv[3]) : info.layers);
  save(seq, argv[2]);

  check(sslm_seq_release(seq), "release");
  check(sslm_kv_pool_destroy(pool), "pool");
  check(sslm_model_unmap(model), "unmap");
  free(blob);
  free(kv);
  free(bytes);
  return 0;
}
