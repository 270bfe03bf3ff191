/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* Where the fields of a save lie, in bytes; those from AT_MODE on are in SSB6 only. */
#ifndef SUPERSLM_TESTS_BLOB_FIELDS_H
#define SUPERSLM_TESTS_BLOB_FIELDS_H

enum {
  AT_DIGEST = 4,
  AT_PRECISION = 36,
  AT_SCHEMA = 40,
  AT_WALK = 48,
  AT_LENGTH = 60,
  AT_LAYER = 68,
  AT_PENDING = 72,
  AT_SCALE = 76,
  AT_ORDER = 108,
  AT_HISTORY_LENGTH = 112,
  AT_READY = 120,
  AT_MODE = 156,
  AT_BUDGET = 160,
  AT_ORIGIN = 164,
  SSB3_FIXED = 120,
  SSB5_FIXED = 156,
  SSB6_FIXED = 172
};

#endif
