/* SPDX-License-Identifier: MIT */
/*
 * Fast path: acquire and release by one compare-and-swap while the wait queue is empty.
 *
 * It serves sets with inline state and sets with a small version block (try_now.h), requests with
 * at most one key, and threads that have used the set before. Its rules are those of acquire_op.h,
 * inline_state.h and release.c, inlined into one function.
 *
 * All preconditions are checked before anything changes. If one fails, a step returns -EINPROGRESS
 * or false: nothing has happened, and the slow path (acquire.h) decides or reports the error.
 *
 * An acquisition that came and went on the fast path stays in its thread's cache with its record.
 * The record is FREE and keeps what does not change from one use to the next: its owner and its
 * wait target. `set` is NULL for cached acquisitions without a record.
 *
 * In a shared set the record lies in the segment, and the recovery of a dead thread relies on it.
 * Owner and active set are still valid, because this thread context filled them in its current
 * generation. Amount, thread and times are written before the set changes. The record's word is
 * written after (detectable_cas.h), or with the version. Other processes may overwrite all of it at
 * any time, so values are checked where a decision depends on them.
 */
#ifndef WEIR_CORE_API_FAST_PATH_H
#define WEIR_CORE_API_FAST_PATH_H

#include "api/acquisition.h"

/* Returns whether the fast path supports a set: inline state or a small version (try_now.h). */
bool fast_path_supports(const weir_set *set);

#endif
