/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* play_scene ARTIFACT: replays the artifact's golden record through the public headers alone, as a game would
 * at its first start, and says with which kernels it was verified. For any system that has a C library. */
#define SSLM_ENABLE_DRAFT_EXTENSIONS
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "superslm/sslm_ext.h"

static void* read_file(const char* path, size_t* size) {
  FILE* file = fopen(path, "rb");
  void* bytes = NULL;
  long length;
  if (file == NULL) return NULL;
  fseek(file, 0, SEEK_END);
  length = ftell(file);
  rewind(file);
  if (length > 0) bytes = malloc((size_t)length);
  *size = bytes ? fread(bytes, 1, (size_t)length, file) : 0;
  fclose(file);
  return bytes;
}

int main(int argc, char** argv) {
  sslm_model model = NULL;
  sslm_ext_self_check_out result;
  sslm_status status;
  size_t size = 0;
  void* bytes = argc == 2 ? read_file(argv[1], &size) : NULL;
  if (bytes == NULL) {
    fprintf(stderr, "play_scene ARTIFACT: cannot read %s\n", argc == 2 ? argv[1] : "it, none is named");
    return 2;
  }
  status = sslm_model_map(bytes, size, &model);
  memset(&result, 0, sizeof(result));
  result.struct_size = sizeof(result);
  if (status == SSLM_OK) status = sslm_ext_self_check(model, NULL, &result);
  if (status != SSLM_OK || result.verdict != SSLM_EXT_SELF_CHECK_VERIFIED) {
    fprintf(stderr, "%s, verdict %d after %d of %d tokens\n", sslm_ext_status_name(status),
            (int)result.verdict, (int)result.tokens, (int)result.expected_tokens);
    return 1;
  }
  printf("verified %d tokens (%s)\n", (int)result.tokens, sslm_ext_kernel_tier());
  sslm_model_unmap(model);
  free(bytes);
  return 0;
}
