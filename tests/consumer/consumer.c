/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* Links against an installed library and makes two calls that need no model. */
#define SSLM_ENABLE_DRAFT_EXTENSIONS
#include <stdio.h>
#include <string.h>

#include "superslm/sslm_ext.h"

int main(void) {
  sslm_model model = (sslm_model)&model;
  const sslm_status status = sslm_model_map("not an artifact", 15, &model);
  if (status != SSLM_ARTIFACT_REJECTED || model != NULL) {
    printf("sslm_model_map: %s\n", sslm_ext_status_name(status));
    return 1;
  }
  if (sslm_ext_version() != SSLM_EXT_VERSION || strcmp(sslm_ext_status_name(SSLM_OK), "SSLM_OK") != 0) {
    printf("the library is not the one of these headers\n");
    return 1;
  }
  printf("superslm %s\n", sslm_ext_kernel_tier());
  return 0;
}
