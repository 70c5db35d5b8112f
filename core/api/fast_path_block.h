/* SPDX-License-Identifier: MIT */
/*
 * The short way (fast_path.h) of a set whose state is in a box: of several limits, or of one
 * that does not fit its word; then the long one (acquire.h), if that had not to do with it. Who is
 * refused is told the long way.
 */
#ifndef WEIR_CORE_API_FAST_PATH_BLOCK_H
#define WEIR_CORE_API_FAST_PATH_BLOCK_H

#include "api/acquire.h"
#include "api/acquisition.h"

/* weir_take(), weir_try_acquire() and others, weir_release() of a pool of one such set, or an acquisition
 * that can go back so. */
int fast_block_take(weir_pool *pool, const struct weir_request *request,
                    struct weir_refusal *retref);
int fast_block_acquire(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                       struct weir_refusal *retref, slow_path_fn *slow_path);
int fast_block_release(weir_acquisition *acquisition);

#endif
