/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* A story that survives the game: told in slices, saved in the middle of a token, continued from the file.
 *
 *   cc -std=c99 savegame.c $(pkg-config --cflags --libs superslm-static) -o savegame
 *   ./savegame model.sslm story.sav      begins a story and saves it
 *   ./savegame model.sslm story.sav      continues it and saves it again
 *   ./savegame model.sslm story.sav 4    with another number of layers per call: the same text
 *   ./savegame model.sslm new.sav 4 "There was"    another story
 *
 * A blob holds the context and the token in the making. It fits any pool of the same model, and is checked
 * like any other bytes from outside. What the blob does not hold stands in front of it: the start of a
 * character whose last bytes are in tokens still to come, and the token emitted last, which belongs in front
 * of the player's next line (here nobody answers). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SSLM_ENABLE_DRAFT_EXTENSIONS
#include <superslm/sslm_ext.h>

enum { BUDGET = 512, CHUNK = 128, TOKENS = 25 };

static void check(sslm_status status, const char* what) {
  if (status == SSLM_OK) return;
  fprintf(stderr, "%s: %s\n", what, sslm_ext_status_name(status));
  exit(1);
}

static void* allocate(size_t size) {
  void* memory = malloc(size);
  if (memory == NULL) check(SSLM_ALLOCATION_FAILED, "memory");
  return memory;
}

/* A whole file, or null when there is none. */
static void* read_file(const char* path, size_t* size) {
  FILE* file = fopen(path, "rb");
  if (file == NULL) return NULL;
  fseek(file, 0, SEEK_END);
  *size = (size_t)ftell(file);
  void* bytes = allocate(*size);
  rewind(file);
  if (fread(bytes, 1, *size, file) != *size) check(SSLM_INVALID_ARGUMENT, path);
  fclose(file);
  return bytes;
}

/* A model of a file's bytes, or the reason why they are none. */
static sslm_model map(const void* bytes, size_t size, const char* path) {
  sslm_model model;
  if (sslm_model_map(bytes, size, &model) == SSLM_OK) return model;
  char why[256];
  size_t n = sizeof(why);
  sslm_ext_model_check(bytes, size, why, &n);
  fprintf(stderr, "%s: %s\n", path, why);
  exit(1);
}

/* What is saved: `head` byte for byte, then the sequence's blob. */
typedef struct story {
  sslm_model model;
  sslm_seq seq;
  sslm_ext_model_info_out info;
  struct {
    sslm_detok_state text; /* all-zero at the start of a text only */
    int32_t pending;       /* the token emitted last, or -1 */
  } head;
} story;

/* Written beside the old file and put in its place, so that a crash never costs the game. */
static void save(const story* s, const char* path) {
  size_t size = 0;
  sslm_seq_save(s->seq, NULL, &size); /* asks for the size */
  void* blob = allocate(size);
  check(sslm_seq_save(s->seq, blob, &size), "save");
  char part[1024];
  snprintf(part, sizeof(part), "%s.part", path);
  FILE* file = fopen(part, "wb");
  if (file == NULL || fwrite(&s->head, sizeof(s->head), 1, file) != 1 ||
      fwrite(blob, 1, size, file) != size || fclose(file) != 0 || rename(part, path) != 0) {
    perror(path);
    exit(1);
  }
  free(blob);
  printf("\n[saved %zu bytes in the middle of a token]\n", sizeof(s->head) + size);
}

/* Takes the story up again where `saved` left it. */
static void restore(story* s, sslm_kv_pool* pool, const char* saved, size_t size, const char* path) {
  if (size < sizeof(s->head)) check(SSLM_INVALID_ARGUMENT, path);
  memcpy(&s->head, saved, sizeof(s->head));
  check(sslm_seq_restore(s->model, pool, saved + sizeof(s->head), size - sizeof(s->head), &s->seq), path);
}

static void begin(story* s, sslm_kv_pool* pool, const char* prompt) {
  int32_t ids[CHUNK], count = CHUNK, done = 0;
  check(sslm_seq_create_budgeted(s->model, pool, BUDGET, &s->seq), "sequence");
  check(sslm_tokenize(s->model, prompt, ids, &count), "tokenize");
  check(sslm_prefill(s->model, s->seq, ids, count, CHUNK, SSLM_SPAN_PROMPT, NULL, &done), "prefill");
  s->head.pending = -1;
  printf("%s", prompt);
}

static int is_stop(const story* s, int32_t token) {
  for (int32_t i = 0; i < s->info.stop_id_count; ++i) {
    if (s->info.stop_ids[i] == token) return 1;
  }
  return 0;
}

/* Tells TOKENS tokens, or up to the end of the story, and begins the token after them. */
static void tell(story* s, int32_t layers) {
  sslm_decode_params params = {0};
  params.layer_budget = layers;
  if (is_stop(s, s->head.pending)) return; /* the story had ended */
  for (int told = 0; told < TOKENS;) {
    int32_t token = -1, length;
    char piece[256];
    check(sslm_decode_step(s->model, &s->seq, 1, &params, NULL, &token), "decode");
    if (token < 0) continue; /* call again */
    ++told;
    s->head.pending = token;
    if (is_stop(s, token)) return; /* its text is not for the player */
    length = sizeof(piece);
    check(sslm_detokenize_stream(s->model, &s->head.text, &token, 1, piece, &length), "detokenize");
    fwrite(piece, 1, (size_t)length, stdout);
  }
  int32_t token = -1;
  params.layer_budget = 1;
  check(sslm_decode_step(s->model, &s->seq, 1, &params, NULL, &token), "decode");
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: savegame model.sslm story.sav [layers [beginning]]\n");
    return 2;
  }
  size_t size = 0, saved_size = 0;
  void* bytes = read_file(argv[1], &size);
  if (bytes == NULL) {
    perror(argv[1]);
    return 1;
  }
  story s;
  memset(&s, 0, sizeof(s));
  s.model = map(bytes, size, argv[1]);
  s.info.struct_size = sizeof(s.info);
  check(sslm_ext_model_info(s.model, &s.info), "model info");
  const size_t kv_size = sslm_kv_block_size(s.model) + sslm_kv_pool_overhead_size(s.model, 1);
  char* kv = allocate(kv_size + SSLM_ABI_ALIGNMENT_BYTES - 1);
  void* lent = kv + (SSLM_ABI_ALIGNMENT_BYTES - (uintptr_t)kv % 64) % 64;
  sslm_kv_pool pool;
  check(sslm_kv_pool_create(s.model, lent, kv_size, 1, &pool), "pool");

  void* saved = read_file(argv[2], &saved_size);
  if (saved != NULL) {
    restore(&s, &pool, saved, saved_size, argv[2]);
  } else {
    begin(&s, &pool, argc > 4 ? argv[4] : "Long ago, in a village by the sea, there lived a fisherman who");
  }
  tell(&s, argc > 3 ? atoi(argv[3]) : s.info.layers);
  save(&s, argv[2]);

  check(sslm_seq_release(s.seq), "release");
  check(sslm_kv_pool_destroy(pool), "pool");
  check(sslm_model_unmap(s.model), "unmap");
  free(saved);
  free(kv);
  free(bytes);
  return 0;
}
