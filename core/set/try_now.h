/* SPDX-License-Identifier: MIT */
/*
 * Fast path of inflated sets: grants now, or releases, while the wait queue is empty and nothing is
 * reserved. inline_state.h does that for inline sets.
 *
 * A version is read onto the stack, changed and published; no waiters, notifications or forecast
 * are involved. In a private set the record's word is no deferred write, since no other thread
 * knows the record of a request that does not wait. It becomes HELD after the commit of the grant,
 * and FREE before the commit of the release. All other cases take the slow path (txn.h).
 */
#ifndef WEIR_CORE_SET_TRY_NOW_H
#define WEIR_CORE_SET_TRY_NOW_H

#include "set/set.h"

/* Returns true if this fast path can work on the set. */
bool try_now_supports(const weir_set *set);

/*
 * Releases a record with the word `word`. Returns 1; 0 if another thread has released it; or
 * -EINPROGRESS if the slow path is needed. `use_algorithm`: an algorithm decides what is returned.
 * `is_owner`: the caller holds the record. `*record_freed`: the record is FREE, before or after the
 * call.
 */
int try_now_release(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                    bool is_owner, bool use_algorithm, const struct release_args *args,
                    bool *record_freed);

#endif
