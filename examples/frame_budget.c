/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* A story told within a game's frames: 60 a second, a busy host, and a layer budget that keeps one library
 * call below a number of milliseconds. Prints how long the calls took.
 *
 *   cc -std=c99 frame_budget.c $(pkg-config --cflags --libs superslm-static) -o frame_budget
 *   ./frame_budget model.sslm [frames] [milliseconds]
 *
 * The last layer of a token brings the logits along, a matrix of vocabulary x hidden that no layer budget
 * cuts: it gets a frame of its own, and a job system (sslm_workspace_set_parallel_for) divides it. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime, nanosleep */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SSLM_ENABLE_DRAFT_EXTENSIONS
#include <superslm/sslm_ext.h>

enum { BUDGET = 1024, CHUNK = 128, BUSY_MS = 5 };

static void check(sslm_status status, const char* what) {
  if (status == SSLM_OK) return;
  fprintf(stderr, "%s: %s\n", what, sslm_ext_status_name(status));
  exit(1);
}

/* Memory to lend, at a multiple of 64; `*whole` is what free() takes. */
static void* lend(size_t size, void** whole) {
  *whole = malloc(size + SSLM_ABI_ALIGNMENT_BYTES - 1);
  if (*whole == NULL) check(SSLM_ALLOCATION_FAILED, "memory");
  return (char*)*whole + (SSLM_ABI_ALIGNMENT_BYTES - (uintptr_t)*whole % 64) % 64;
}

static void* read_file(const char* path, size_t* size) {
  FILE* file = fopen(path, "rb");
  if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
    perror(path);
    exit(1);
  }
  *size = (size_t)ftell(file);
  void* bytes = malloc(*size);
  if (bytes == NULL) check(SSLM_ALLOCATION_FAILED, path);
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

static double now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void sleep_until(double ms) {
  const double left = ms - now_ms();
  if (left <= 0) return;
  struct timespec time = {(time_t)(left / 1e3), (long)(left * 1e6) % 1000000000L};
  nanosleep(&time, NULL);
}

/* What the rest of the game does. */
static void be_busy(void) {
  volatile unsigned work = 1;
  for (const double end = now_ms() + BUSY_MS; now_ms() < end;) work = work * 1664525u + 1013904223u;
}

static int by_size(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void report(const char* what, double* ms, int n) {
  if (n == 0) return;
  qsort(ms, (size_t)n, sizeof(*ms), by_size);
  printf("%s: %d calls, median %.2f ms, 99 %% %.2f ms, worst %.2f ms\n", what, n, ms[n / 2],
         ms[(n - 1) * 99 / 100], ms[n - 1]);
}

typedef struct story {
  sslm_model model;
  sslm_workspace ws;
  sslm_seq seq;
  sslm_ext_model_info_out info;
  sslm_detok_state text;
} story;

static void begin(story* s, const char* prompt) {
  int32_t ids[CHUNK], count = CHUNK, done = 0;
  check(sslm_tokenize(s->model, prompt, ids, &count), "tokenize");
  check(sslm_prefill(s->model, s->seq, ids, count, CHUNK, SSLM_SPAN_PROMPT, s->ws, &done), "prefill");
}

/* Decode does not stop at the ids that end a text: the host looks. */
static int is_stop(const story* s, int32_t token) {
  for (int32_t i = 0; i < s->info.stop_id_count; ++i) {
    if (s->info.stop_ids[i] == token) return 1;
  }
  return 0;
}

static void tell(story* s, int32_t token) {
  char piece[256];
  int32_t length = sizeof(piece);
  check(sslm_detokenize_stream(s->model, &s->text, &token, 1, piece, &length), "detokenize");
  fwrite(piece, 1, (size_t)length, stdout);
  fflush(stdout);
}

/* The frames. A call within the limit lets the next one run a little more, a late one half as much. */
static void play(story* s, int frames, double limit_ms) {
  double* slices = malloc((size_t)frames * sizeof(double));
  double* ends = malloc((size_t)frames * sizeof(double));
  if (slices == NULL || ends == NULL) check(SSLM_ALLOCATION_FAILED, "memory");
  int slice_count = 0, end_count = 0, late = 0;
  double allowed = 1, next = now_ms();
  int32_t layer = 0;
  for (int frame = 0; frame < frames; ++frame) {
    be_busy();
    const int32_t left = s->info.layers - layer, fit = (int32_t)allowed;
    sslm_decode_params params = {0};
    params.layer_budget = left == 1 ? 1 : fit < left ? fit : left - 1;
    int32_t token = -1;
    const double start = now_ms();
    check(sslm_decode_step(s->model, &s->seq, 1, &params, s->ws, &token), "decode");
    const double ms = now_ms() - start;
    layer = token < 0 ? layer + params.layer_budget : 0;
    if (token < 0) {
      slices[slice_count++] = ms;
      allowed = ms > limit_ms ? (allowed > 2 ? allowed / 2 : 1) : allowed + 0.25;
      late += ms > limit_ms;
    } else {
      ends[end_count++] = ms;
      if (is_stop(s, token))
        frames = frame + 1;
      else
        tell(s, token);
    }
    sleep_until(next += 1000.0 / 60);
  }
  printf("\n%d frames, %d tokens, %d slices above %.1f ms\n", frames, end_count, late, limit_ms);
  report("slices of layers", slices, slice_count);
  report("last layer and logits", ends, end_count);
  free(slices);
  free(ends);
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: frame_budget model.sslm [frames] [milliseconds]\n");
    return 2;
  }
  story s;
  memset(&s, 0, sizeof(s));
  size_t size = 0;
  void* bytes = read_file(argv[1], &size);
  s.model = map(bytes, size, argv[1]);
  s.info.struct_size = sizeof(s.info);
  check(sslm_ext_model_info(s.model, &s.info), "model info");

  const uint32_t pages = (uint32_t)sslm_kv_pages_for_budget(s.model, BUDGET);
  const size_t kv_size = pages * sslm_kv_page_size(s.model) + sslm_kv_page_pool_overhead_size(s.model, pages);
  void *kv_memory, *kv = lend(kv_size, &kv_memory);
  memset(kv, 0, kv_size); /* so that no page of it appears in the middle of a frame */
  sslm_kv_pool pool;
  check(sslm_kv_page_pool_create(s.model, kv, kv_size, pages, &pool), "pool");
  const sslm_config config = {1, CHUNK, s.info.layers, 0};
  const size_t scratch_size = sslm_workspace_size(s.model, &config);
  void *scratch_memory, *scratch = lend(scratch_size, &scratch_memory);
  check(sslm_workspace_create(s.model, &config, scratch, scratch_size, &s.ws), "workspace");
  check(sslm_seq_create_budgeted(s.model, &pool, BUDGET, &s.seq), "sequence");

  begin(&s, "Long ago, in a village by the sea, there lived a fisherman who"); /* while the level loads */
  play(&s, argc > 2 ? atoi(argv[2]) : 600, argc > 3 ? atof(argv[3]) : 2.0);

  check(sslm_seq_release(s.seq), "release");
  check(sslm_workspace_destroy(s.ws), "workspace");
  check(sslm_kv_pool_destroy(pool), "pool");
  check(sslm_model_unmap(s.model), "unmap");
  free(scratch_memory);
  free(kv_memory);
  free(bytes);
  return 0;
}
