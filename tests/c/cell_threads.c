/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* Threads: what the thread rules allow at the same time, with the results of one thread.
 * Artifacts: a small model of cap 4,096. Meant to run under a thread checker too. -DSOAK_SECONDS=n keeps the
 * sixteen threads at it for n seconds. */
#include "check.h"
#include "pages.h"

#include <time.h>

#ifndef SOAK_SECONDS
#define SOAK_SECONDS 0
#endif

#if defined(__wasm__)

int main(void) {
  printf("skipped: no threads on this platform\n");
  return 0;
}

#else

#include <pthread.h>

enum { SMALL };

static pthread_t start(void* (*body)(void*), void* argument) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, body, argument) != 0) check_fail(__FILE__, __LINE__, "no thread");
  return thread;
}

/* ---- A sequence released while a batch names it ---- */

static void* release_it(void* seq) {
  OK(sslm_seq_release((sslm_seq)seq));
  return NULL;
}

static void a_sequence_released_by_another_thread_turns_into_minus_three(void) {
  enum { ROUNDS = 16, STEPS = 8 };
  const sslm_model model = map_artifact(SMALL);
  const int32_t layers = info_of(model).layers;
  pool_memory memory = make_pool(model, BLOCK_POOL, 3);
  const sslm_workspace ws = make_workspace(model, 2, 8);
  const sslm_seq twin = make_seq(model, memory.pool);
  sslm_seq sibling = make_seq(model, memory.pool);
  int32_t expected[STEPS], round, i;
  prefill_run(model, twin, 8, 1, NULL);
  decode_run(model, twin, STEPS, NULL, expected);
  for (round = 0; round < ROUNDS; ++round) {
    sslm_seq batch[2];
    int dead = 0;
    pthread_t releaser;
    batch[0] = make_budgeted(model, memory.pool, 200);
    batch[1] = sibling;
    OK(sslm_seq_reset(sibling));
    prefill_run(model, batch[0], 8, 2, ws);
    prefill_run(model, sibling, 8, 1, ws);
    releaser = start(release_it, batch[0]);
    for (i = 0; i < STEPS; ++i) {
      int32_t out[2] = {77, 77};
      OK(step(model, batch, 2, layers, ws, out));
      CHECK(dead ? out[0] == -3 : out[0] == -3 || out[0] >= 0);
      dead = out[0] == -3;
      CHECK_INT(out[1], expected[i]);
    }
    pthread_join(releaser, NULL);
    CHECK_SAME(sibling, twin);
  }
  FINISH(model, memory.pool, ws, sibling, twin);
}

/* ---- Overlapping batches ---- */

enum { SHARED = 5, BATCHES = 4, BATCH_STEPS = 12 };

typedef struct batch_job {
  sslm_model model;
  sslm_seq batch[SHARED];
  int32_t count;
} batch_job;

static void* decode_batches(void* argument) {
  batch_job* job = (batch_job*)argument;
  const sslm_workspace ws = make_workspace(job->model, SHARED, 1);
  const int32_t layers = info_of(job->model).layers;
  int32_t i, out[SHARED];
  for (i = 0; i < BATCH_STEPS; ++i) OK(step(job->model, job->batch, job->count, layers, ws, out));
  OK(sslm_workspace_destroy(ws));
  return NULL;
}

static void* save_often(void* seq) {
  int i;
  for (i = 0; i < 20; ++i) free(save((sslm_seq)seq).bytes);
  return NULL;
}

static void overlapping_batches_in_any_order_neither_wait_for_ever_nor_lose_a_step(void) {
  static const int orders[BATCHES][SHARED] = {
      {0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {2, 0, 4, 1, 3}, {3, 4, 0, 2, 2}};
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, BLOCK_POOL, SHARED + 1);
  const sslm_seq twin = make_seq(model, memory.pool);
  sslm_seq seqs[SHARED];
  batch_job jobs[BATCHES];
  pthread_t threads[BATCHES + 1];
  int steps[SHARED] = {0}, i, j;
  for (i = 0; i < SHARED; ++i) {
    seqs[i] = make_seq(model, memory.pool);
    prefill_run(model, seqs[i], 6, (uint32_t)i, NULL);
  }
  for (j = 0; j < BATCHES; ++j) {
    jobs[j].model = model;
    jobs[j].count = SHARED;
    for (i = 0; i < SHARED; ++i) {
      jobs[j].batch[i] = seqs[orders[j][i]];
      steps[orders[j][i]] += BATCH_STEPS;
    }
  }
  for (j = 0; j < BATCHES; ++j) threads[j] = start(decode_batches, &jobs[j]);
  threads[BATCHES] = start(save_often, seqs[0]);
  for (j = 0; j <= BATCHES; ++j) pthread_join(threads[j], NULL);
  for (i = 0; i < SHARED; ++i) {
    OK(sslm_seq_reset(twin));
    prefill_run(model, twin, 6, (uint32_t)i, NULL);
    decode_run(model, twin, steps[i], NULL, NULL);
    CHECK_SAME(seqs[i], twin);
    OK(sslm_seq_release(seqs[i]));
  }
  FINISH(model, memory.pool, NULL, twin);
}

/* ---- Many threads over shared prefixes ---- */

enum { THREADS = 16, ROUNDS = 2, PREFIXES = 3, STEPS = 20, VARIANTS = PREFIXES * 2 };

typedef struct shared_world {
  sslm_model model;
  sslm_kv_pool pool;
  sslm_prefix prefixes[PREFIXES];
  int32_t expected[VARIANTS][STEPS]; /* by prefix and prompt */
  time_t end;                        /* of a soak */
} shared_world;

typedef struct player {
  const shared_world* world;
  int number;
} player;

static void play_once(const shared_world* w, sslm_seq seq, int variant, sslm_workspace ws, int32_t* out) {
  OK(sslm_seq_adopt_prefix(seq, w->prefixes[variant % PREFIXES]));
  prefill_run(w->model, seq, 3, (uint32_t)(variant / PREFIXES), ws);
  decode_run(w->model, seq, STEPS, ws, out);
}

static void* play(void* argument) {
  const player* p = (const player*)argument;
  const shared_world* w = p->world;
  const sslm_workspace ws = make_workspace(w->model, 1, 64);
  int round;
  for (round = 0; round < ROUNDS || time(NULL) < w->end; ++round) {
    const int variant = (p->number + round) % VARIANTS;
    sslm_kv_pool pool = w->pool;
    sslm_prefix child = NULL;
    sslm_seq seq = make_budgeted(w->model, pool, 100);
    int32_t out[STEPS];
    size_t size = 0;
    play_once(w, seq, variant, ws, out);
    CHECK(memcmp(out, w->expected[variant], sizeof(out)) == 0);
    {
      blob saved = save(seq);
      uint32_t shared = 0;
      OK(sslm_seq_reset(seq));
      OK(sslm_seq_release(seq));
      OK(sslm_seq_restore_shared(w->model, &pool, saved.bytes, saved.size, w->prefixes[variant % PREFIXES],
                                 &seq, &shared));
      CHECK((shared > 0) == (pool_stats(pool).page_positions < info_of(w->model).cap));
      CHECK_UNCHANGED(seq, saved);
    }
    STATUS(BUFFER_TOO_SMALL, sslm_seq_save(seq, NULL, &size));
    OK(sslm_prefix_begin_from(w->prefixes[variant % PREFIXES], 10, &child));
    prefill_prefix(w->model, child, 5, 9, ws);
    OK(sslm_prefix_freeze(child));
    OK(sslm_seq_adopt_prefix(seq, child));
    OK(sslm_prefix_release(child));
    decode_run(w->model, seq, 3, ws, NULL);
    OK(sslm_seq_release(seq));
  }
  OK(sslm_workspace_destroy(ws));
  return NULL;
}

static void sixteen_threads_over_shared_prefixes_give_the_serial_tokens_and_a_whole_pool(void) {
  shared_world w;
  player players[THREADS];
  pthread_t threads[THREADS];
  uint32_t all;
  int i;
  w.model = map_artifact(SMALL);
  w.pool = make_pool(w.model, PAGE_POOL, THREADS * 8).pool;
  all = free_pages(w.pool);
  w.end = time(NULL) + SOAK_SECONDS;
  for (i = 0; i < PREFIXES; ++i) {
    OK(sslm_prefix_begin_budgeted(w.model, &w.pool, 200, &w.prefixes[i]));
    prefill_prefix(w.model, w.prefixes[i], 64 + 30 * i, (uint32_t)i, NULL);
    OK(sslm_prefix_freeze(w.prefixes[i]));
  }
  for (i = 0; i < VARIANTS; ++i) {
    const sslm_seq seq = make_budgeted(w.model, w.pool, 100);
    play_once(&w, seq, i, NULL, w.expected[i]);
    OK(sslm_seq_release(seq));
  }
  for (i = 0; i < THREADS; ++i) {
    players[i].world = &w;
    players[i].number = i;
    threads[i] = start(play, &players[i]);
  }
  for (i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
  for (i = 0; i < PREFIXES; ++i) OK(sslm_prefix_release(w.prefixes[i]));
  CHECK_INT(free_pages(w.pool), all);
  OK(sslm_kv_pool_destroy(w.pool));
  OK(sslm_model_unmap(w.model));
}

static const cell cells[] = {
    CELL(a_sequence_released_by_another_thread_turns_into_minus_three),
    CELL(overlapping_batches_in_any_order_neither_wait_for_ever_nor_lose_a_step),
    CELL(sixteen_threads_over_shared_prefixes_give_the_serial_tokens_and_a_whole_pool),
};

CELLS(cells)

#endif
