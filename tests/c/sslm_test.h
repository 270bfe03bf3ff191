/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* Seams of the test build (SUPERSLM_TEST_SEAMS). The release exports none of them. */
#ifndef SUPERSLM_TESTS_SSLM_TEST_H
#define SUPERSLM_TESTS_SSLM_TEST_H

#include <stddef.h>
#include <stdint.h>

#include "superslm/sslm_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lets `count` more heap allocations of the library succeed, then fails every one; -1 ends the failing. */
SUPERSLM_API void sslm_test_fail_allocation_after(int64_t count);

/* Heap allocations the library has made since the program started. */
SUPERSLM_API uint64_t sslm_test_allocation_count(void);

/* Pins the positions per page of every model; 0 restores the page rule. Set it before any pool is made. */
SUPERSLM_API void sslm_test_pin_page_positions(int64_t positions);

/* Times the mutex of any pool was taken since the program started. */
SUPERSLM_API uint64_t sslm_test_pool_lock_count(void);

/* Bytes of K/V rows copied between pages, to or from blobs, and poisoned, since the program started. */
SUPERSLM_API uint64_t sslm_test_bytes_touched(void);

/* The residual (`hidden` values) at which the sequence rests. */
SUPERSLM_API sslm_status sslm_test_seq_residual(sslm_seq seq, int32_t* out);

/* The five saturation counts in blob order: total, V landing, K landing, RoPE Q, RoPE K. */
SUPERSLM_API sslm_status sslm_test_seq_counts(sslm_seq seq, uint64_t out[5]);

/* One row (head_dim bytes) of a layer; kind 0 is K, 1 is V. */
SUPERSLM_API sslm_status sslm_test_seq_kv_row(sslm_seq seq, int32_t layer, int32_t kind, int32_t head,
                                              int64_t position, int8_t* out);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SUPERSLM_TESTS_SSLM_TEST_H */
