/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* How the host's hook is used on a model of real size.
 * Artifacts: the shape of Qwen2.5-0.5B. */
#include "check.h"

enum { QWEN_05B, MOST_CALLS = 512 };

typedef struct calls {
  int count;
  int32_t tasks[MOST_CALLS];
} calls;

static void run_tasks(void* context, int32_t count, sslm_task_fn task, void* task_context) {
  calls* c = (calls*)context;
  int32_t i;
  CHECK(c->count < MOST_CALLS);
  c->tasks[c->count++] = count;
  for (i = 0; i < count; ++i) task(task_context, i);
}

static void install(sslm_workspace ws, calls* c, uint32_t bits) {
  sslm_parallel_for pf;
  pf.run = run_tasks;
  pf.host_ctx = c;
  pf.max_tasks = 4;
  pf.reserved = bits;
  c->count = 0;
  OK(sslm_workspace_set_parallel_for(ws, &pf));
}

static void a_token_makes_97_calls_with_the_bit_and_one_without(void) {
  static const int32_t decode_groups[] = {3, 3, 4, 4};     /* q, o, gate+up, down; k+v is too small */
  static const int32_t prefill_groups[] = {3, 3, 4, 4, 4}; /* q, o, gate, up, down */
  const sslm_model model = map_artifact(QWEN_05B);
  pool_memory memory = make_pool(model, PAGE_POOL, 4);
  const sslm_workspace ws = make_workspace(model, 1, 4);
  sslm_seq seq = make_budgeted(model, memory.pool, 20);
  calls c;
  int i;
  CHECK_INT(info_of(model).layers, 24);
  install(ws, &c, SSLM_PARALLEL_FOR_MATVEC);
  prefill_run(model, seq, 1, 1, ws);
  CHECK_INT(c.count, 24 * 5);
  for (i = 0; i < c.count; ++i) CHECK_INT(c.tasks[i], prefill_groups[i % 5]);
  decode_token(model, seq, ws); /* ready: the logits alone */
  CHECK_INT(c.count, 24 * 5 + 1);
  c.count = 0;
  decode_token(model, seq, ws);
  CHECK_INT(c.count, 97);
  for (i = 0; i < 96; ++i) CHECK_INT(c.tasks[i], decode_groups[i % 4]);
  CHECK_INT(c.tasks[96], 4);
  install(ws, &c, 0);
  decode_token(model, seq, ws);
  CHECK_INT(c.count, 1);
  prefill_run(model, seq, 2, 2, ws);
  CHECK_INT(c.count, 1);
  FINISH(model, memory.pool, ws, seq);
}

static const cell cells[] = {
    CELL(a_token_makes_97_calls_with_the_bit_and_one_without),
};

CELLS(cells)
