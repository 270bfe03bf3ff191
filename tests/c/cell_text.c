/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* Text: capacity queries, streams of bytes, and ids without text.
 * Artifacts: a model with a byte-level tokenizer, a model without one. */
#include "check.h"

enum { TALKING, MUTE };

static const char sample[] =
    "Na\xC3\xAFve caf\xC3\xA9 \xE2\x80\x94 \xE6\xBC\xA2\xE5\xAD\x97, "
    "\xF0\x9F\x90\x89\xF0\x9F\x91\xA9\xE2\x80\x8D"
    "\xF0\x9F\x9A\x80 and 1234 words.\n\n\tEnd";

/* All ids of a text. */
static int32_t* ids_of(sslm_model model, const char* text, int32_t* n) {
  int32_t* ids;
  *n = 0;
  STATUS(BUFFER_TOO_SMALL, sslm_tokenize(model, text, NULL, n));
  ids = (int32_t*)check_alloc(sizeof(int32_t) * (size_t)(*n + 1));
  OK(sslm_tokenize(model, text, ids, n));
  return ids;
}

static void a_stream_of_single_tokens_adds_up_to_the_text(void) {
  const sslm_model model = map_artifact(TALKING);
  int32_t n, step_size;
  const int32_t* ids = ids_of(model, sample, &n);
  for (step_size = 1; step_size <= 3; ++step_size) {
    sslm_detok_state state = {{0, 0, 0}, 0};
    char out[2 * sizeof(sample)];
    int32_t used = 0, i, held = 0;
    for (i = 0; i < n; i += step_size) {
      int32_t bytes = (int32_t)sizeof(out) - used;
      const int32_t count = n - i < step_size ? n - i : step_size;
      OK(sslm_detokenize_stream(model, &state, ids + i, count, out + used, &bytes));
      CHECK(state.pending_count <= 3);
      held += state.pending_count > 0;
      used += bytes;
    }
    CHECK_INT(used, sizeof(sample) - 1);
    CHECK(memcmp(out, sample, sizeof(sample) - 1) == 0);
    CHECK_INT(state.pending_count, 0);
    if (step_size == 1) CHECK(held > 0); /* some character was cut between two tokens */
  }
  OK(sslm_model_unmap(model));
}

static void ids_without_text_are_refused_and_the_state_stays(void) {
  const sslm_model model = map_artifact(TALKING);
  const sslm_ext_model_info_out info = info_of(model);
  const int32_t outside[] = {-1, info.vocab, INT32_MIN, INT32_MAX};
  sslm_detok_state state = {{0xE6, 0xBC, 0}, 2}, before = state;
  char out[64];
  int32_t tokens[2] = {5, 0}, n, i;
  for (i = 0; i < 4; ++i) {
    tokens[1] = outside[i];
    n = sizeof(out);
    STATUS(INVALID_ARGUMENT, sslm_detokenize_stream(model, &state, tokens, 2, out, &n));
    CHECK_INT(n, 0);
  }
  if (info.tokenizer_size < info.vocab) {
    tokens[1] = info.tokenizer_size;
    n = sizeof(out);
    STATUS(TOKEN_ID_UNMAPPED, sslm_detokenize_stream(model, &state, tokens, 2, out, &n));
    CHECK_INT(n, 0);
    tokens[1] = info.vocab - 1;
    n = sizeof(out);
    STATUS(TOKEN_ID_UNMAPPED, sslm_detokenize_stream(model, &state, tokens, 2, out, &n));
  } else {
    printf("note: this vocabulary has no padded ids\n");
  }
  CHECK(memcmp(&state, &before, sizeof(state)) == 0);
  state.pending_count = 4;
  tokens[1] = 5;
  n = sizeof(out);
  STATUS(INVALID_ARGUMENT, sslm_detokenize_stream(model, &state, tokens, 2, out, &n));
  CHECK_INT(n, 0);
  n = -1;
  state = before;
  STATUS(INVALID_ARGUMENT, sslm_detokenize_stream(model, &state, tokens, 2, out, &n));
  CHECK_INT(n, 0);
  n = sizeof(out);
  STATUS(INVALID_ARGUMENT, sslm_detokenize_stream(model, &state, tokens, -1, out, &n));
  OK(sslm_model_unmap(model));
}

static void a_short_call_reports_what_is_needed_and_the_second_one_succeeds(void) {
  const sslm_model model = map_artifact(TALKING);
  int32_t n, m, bytes;
  const int32_t* ids = ids_of(model, sample, &n);
  int32_t few[1] = {77};
  sslm_detok_state state = {{0, 0, 0}, 0}, before = state;
  char out[2 * sizeof(sample)];
  m = 1;
  STATUS(BUFFER_TOO_SMALL, sslm_tokenize(model, sample, few, &m));
  CHECK_INT(m, n);
  m = 0;
  STATUS(BUFFER_TOO_SMALL, sslm_tokenize(model, "", NULL, &m)); /* an empty text needs no ids */
  CHECK_INT(m, 0);
  OK(sslm_tokenize(model, "", few, &m));
  CHECK_INT(m, 0);
  bytes = 0;
  STATUS(BUFFER_TOO_SMALL, sslm_detokenize_stream(model, &state, ids, n, NULL, &bytes));
  CHECK_INT(bytes, sizeof(sample) - 1);
  bytes -= 1;
  STATUS(BUFFER_TOO_SMALL, sslm_detokenize_stream(model, &state, ids, n, out, &bytes));
  CHECK_INT(bytes, sizeof(sample) - 1);
  CHECK(memcmp(&state, &before, sizeof(state)) == 0);
  OK(sslm_detokenize_stream(model, &state, ids, n, out, &bytes));
  CHECK(memcmp(out, sample, sizeof(sample) - 1) == 0);
  OK(sslm_model_unmap(model));
}

static void without_a_tokenizer_both_text_verbs_refuse(void) {
  const sslm_model model = map_artifact(MUTE);
  sslm_detok_state state = {{0, 0, 0}, 0};
  int32_t tokens[4] = {1, 2, 3, 4}, n = 4;
  char out[16];
  STATUS(ARTIFACT_REJECTED, sslm_tokenize(model, "text", tokens, &n));
  CHECK_INT(n, 0);
  n = sizeof(out);
  STATUS(ARTIFACT_REJECTED, sslm_detokenize_stream(model, &state, tokens, 4, out, &n));
  CHECK_INT(n, 0);
  CHECK_INT(info_of(model).has_tokenizer, 0);
  OK(sslm_model_unmap(model));
}

/* Built with CHECK_STACK_BYTES it also shows that the stack does not grow with the text. */
static void a_long_text_of_one_word_comes_back(void) {
  enum { LENGTH = 1 << 18 };
  static const char* const units[] = {"a", "\xC3\xA9", "e\xCC\x81", "<|im_", " ", "\xFF", "\n1"};
  const sslm_model model = map_artifact(TALKING);
  char* text = (char*)check_alloc(LENGTH + 8);
  char* out = (char*)check_alloc(2 * LENGTH);
  size_t u;
  for (u = 0; u < sizeof(units) / sizeof(units[0]); ++u) {
    const size_t width = strlen(units[u]);
    sslm_detok_state state = {{0, 0, 0}, 0};
    int32_t n, size = 2 * LENGTH;
    size_t used = 0;
    int32_t* ids;
    for (; used + width <= LENGTH; used += width) memcpy(text + used, units[u], width);
    text[used] = 0;
    ids = ids_of(model, text, &n);
    OK(sslm_detokenize_stream(model, &state, ids, n, out, &size));
    if (u != 2) CHECK(size == (int32_t)used && memcmp(out, text, used) == 0); /* one unit is not in NFC */
    free(ids);
  }
  free(out);
  free(text);
  OK(sslm_model_unmap(model));
}

static const cell cells[] = {
    CELL(a_stream_of_single_tokens_adds_up_to_the_text),
    CELL(ids_without_text_are_refused_and_the_state_stays),
    CELL(a_short_call_reports_what_is_needed_and_the_second_one_succeeds),
    CELL(without_a_tokenizer_both_text_verbs_refuse),
    CELL(a_long_text_of_one_word_comes_back),
};

CELLS(cells)
