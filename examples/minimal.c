/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* A conversation of two turns through the C API, with scratch memory lent once and the pending token handled.
 *
 *   cc -std=c99 minimal.c $(pkg-config --cflags --libs superslm-static) -o minimal
 *   ./minimal model.sslm
 *
 * docs/packaging.md says where pkg-config finds it. A file mapping is better than reading the model.
 *
 * The token that decode emitted last is pending: it is not in the context until the next decode step writes
 * its row, and a prefill drops it. So the next turn's prefill begins with it - unless it is a stop token,
 * which the chat format writes behind the reply anyway. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SSLM_ENABLE_DRAFT_EXTENSIONS
#include <superslm/sslm_ext.h>

enum { MAX_IDS = 1024, CHUNK = 128, REPLY = 48, NO_TOKEN = -1 };

static const char SYSTEM[] = "You keep an old lighthouse. Answer in one sentence.";

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

typedef struct talk {
  sslm_model model;
  sslm_seq seq;
  sslm_workspace ws;
  sslm_decode_params params;
  sslm_ext_model_info_out info;
  int32_t pending; /* the last emitted token, or NO_TOKEN before the first reply */
} talk;

typedef struct id_list {
  int32_t ids[MAX_IDS];
  size_t count;
} id_list;

static void add_chat(const talk* t, id_list* list, int32_t role, int32_t part) {
  size_t n = MAX_IDS - list->count;
  check(sslm_ext_chat_ids(t->model, role, part, list->ids + list->count, &n), "chat format");
  list->count += n;
}

/* A player's text: no flag, so it cannot forge a control token. */
static void add_text(const talk* t, id_list* list, const char* text) {
  size_t n = MAX_IDS - list->count;
  check(sslm_ext_tokenize(t->model, text, strlen(text), 0, list->ids + list->count, &n), "tokenize");
  list->count += n;
}

static int is_stop(const talk* t, int32_t token) {
  for (int32_t i = 0; i < t->info.stop_id_count; ++i) {
    if (t->info.stop_ids[i] == token) return 1;
  }
  return 0;
}

/* The order of a conversation: the system's turn, then turns of user and assistant. Each reply before is
 * closed, and the last prefix asks for the next one. Without a system turn SSLM_EXT_CHAT_OPENING opens. */
static void add_turn(const talk* t, id_list* list, const char* text) {
  if (t->pending != NO_TOKEN) {
    if (!is_stop(t, t->pending)) list->ids[list->count++] = t->pending;
    add_chat(t, list, SSLM_EXT_CHAT_ASSISTANT, SSLM_EXT_CHAT_SUFFIX);
  } else {
    add_chat(t, list, SSLM_EXT_CHAT_SYSTEM, SSLM_EXT_CHAT_PREFIX);
    add_text(t, list, SYSTEM);
    add_chat(t, list, SSLM_EXT_CHAT_SYSTEM, SSLM_EXT_CHAT_SUFFIX);
  }
  add_chat(t, list, SSLM_EXT_CHAT_USER, SSLM_EXT_CHAT_PREFIX);
  add_text(t, list, text);
  add_chat(t, list, SSLM_EXT_CHAT_USER, SSLM_EXT_CHAT_SUFFIX);
  add_chat(t, list, SSLM_EXT_CHAT_ASSISTANT, SSLM_EXT_CHAT_PREFIX);
}

/* At most CHUNK tokens per call: a game would make one call per frame. */
static void prefill(const talk* t, const id_list* list) {
  size_t done = 0;
  while (done < list->count) {
    int32_t consumed = 0;
    check(sslm_prefill(t->model, t->seq, list->ids + done, (int32_t)(list->count - done), CHUNK,
                       SSLM_SPAN_PROMPT, t->ws, &consumed),
          "prefill");
    done += (size_t)consumed;
  }
}

static void say(talk* t, const char* text) {
  id_list list = {{0}, 0};
  sslm_detok_state state = {{0}, 0};
  add_turn(t, &list, text);
  prefill(t, &list);
  printf("> %s\n", text);
  for (int i = 0; i < REPLY; ++i) {
    char piece[256];
    int32_t length = sizeof(piece);
    check(sslm_decode_step(t->model, &t->seq, 1, &t->params, t->ws, &t->pending), "decode");
    if (is_stop(t, t->pending)) break;
    check(sslm_detokenize_stream(t->model, &state, &t->pending, 1, piece, &length), "detokenize");
    fwrite(piece, 1, (size_t)length, stdout);
    fflush(stdout);
  }
  printf("\n");
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: minimal model.sslm [line...]\n");
    return 2;
  }
  talk t;
  memset(&t, 0, sizeof(t));
  t.pending = NO_TOKEN;
  size_t size = 0;
  void* bytes = read_file(argv[1], &size);
  t.model = map(bytes, size, argv[1]);
  t.info.struct_size = sizeof(t.info);
  check(sslm_ext_model_info(t.model, &t.info), "model info");

  /* K/V memory for one context, and scratch for calls of one sequence: within it no call allocates. */
  sslm_kv_pool pool;
  const size_t kv_size = sslm_kv_block_size(t.model) + sslm_kv_pool_overhead_size(t.model, 1);
  void *kv_memory, *kv = lend(kv_size, &kv_memory);
  check(sslm_kv_pool_create(t.model, kv, kv_size, 1, &pool), "pool");
  const sslm_config config = {1, CHUNK, t.info.layers, 0};
  const size_t scratch_size = sslm_workspace_size(t.model, &config);
  void *scratch_memory, *scratch = lend(scratch_size, &scratch_memory);
  check(sslm_workspace_create(t.model, &config, scratch, scratch_size, &t.ws), "workspace");
  check(sslm_seq_create(t.model, &pool, &t.seq), "sequence");
  check(sslm_decode_params_init(t.model, SSLM_DECODE_MODE_GREEDY, t.info.layers, &t.params), "parameters");

  for (int i = 2; i < argc; ++i) say(&t, argv[i]);
  if (argc == 2) {
    say(&t, "My name is Ada. What is a lighthouse?");
    say(&t, "Who needs one?");
  }

  check(sslm_seq_release(t.seq), "release");
  check(sslm_workspace_destroy(t.ws), "workspace");
  check(sslm_kv_pool_destroy(pool), "pool");
  check(sslm_model_unmap(t.model), "unmap");
  free(scratch_memory);
  free(kv_memory);
  free(bytes);
  return 0;
}
