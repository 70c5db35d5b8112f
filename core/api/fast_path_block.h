/* SPDX-License-Identifier: MIT */
/*
 * The fast path (fast_path.h) of sets with their state in a version block: several limits, or one
 * that does not fit the state word. Falls back to the slow path (acquire.h), which also reports
 * refusals.
 */
#ifndef WEIR_CORE_API_FAST_PATH_BLOCK_H
#define WEIR_CORE_API_FAST_PATH_BLOCK_H

#include "api/acquire.h"
#include "api/acquisition.h"

/* Take, acquire and release for a pool with one such set, or an acquisition with `fast_ctx`. */
int fast_block_take(weir_pool *pool, const struct weir_request *request,
                    struct weir_refusal *retref);
int fast_block_acquire(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                       struct weir_refusal *retref, slow_path_fn *slow_path, enum wait_mode mode);
int fast_block_release(weir_acquisition *acquisition);

#endif
