/* SPDX-License-Identifier: MIT */
/*
 * Sets with inline state: while the wait queue is empty, the state word is the state itself. That
 * applies to a set of one rate or call with one word of state, or of one resource. A grant is one
 * CAS, a refusal one load, and nothing is allocated. A request that has to wait inflates the set
 * into a version block (version.h) and is enqueued. The first operation that finds the queue empty
 * deflates it. Compare the thin and inflated locks of Bacon et al., PLDI 1998.
 *
 * A private set has no other word. A release first changes the record from HELD to FREE, which
 * succeeds once, and then returns the units to the state. In between the set still counts them as
 * held. A resource shared by processes must lose nothing at a death between the two: see
 * detectable_cas.h. Rates and calls get nothing back after a death, so they need no announcement.
 *
 * The clock is read before the word, to keep the time between load and CAS short; an older
 * timestamp can only grant less. But no request may be granted as of a time when others were
 * queued. So `deflated_ns` says when the set was last deflated, and an older timestamp is read
 * anew. An inline word may recur (ABA); a decision from it is then the right one.
 *
 * The models tests/models/inline_state.pml and README.md show that inflation and deflation lose or
 * duplicate no notification, unit or block.
 */
#ifndef WEIR_CORE_SET_INLINE_STATE_H
#define WEIR_CORE_SET_INLINE_STATE_H

#include "set/txn.h"

/* Returns the inline format of a set with these limits. `use_dcas`: processes share it. */
enum inline_format inline_format_for(const struct limits *limits, bool use_dcas);

/* inline_acquire() is declared in set.h. It acquires as set_acquire() if the set is inline and the
 * request need not wait. -EINPROGRESS: nothing has happened, and the set is inflated or invalid.
 * Also -ENOMEM. */

/* Takes `lease` units if there are so many, or else `amount`, without a record and without waiting.
 * `lease` is 0 or more than `amount`; `ret->lease_rest` is what exceeds the amount. Errors as
 * inline_acquire(). */
int inline_lease(struct thread_ctx *ctx, weir_set *set, uint64_t amount, uint64_t lease,
                 struct decision *ret);

/*
 * Releases `record` if its word is exactly `word`. Returns 1 if done, 0 if another thread did it,
 * -EINPROGRESS if the set is inflated. In that case `*record_freed` says that the record is FREE
 * already, and only the units are still to be returned. If `*record_freed` is true from the start,
 * `record` may be 0.
 */
int inline_release(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                   bool is_owner, const struct release_args *args, bool *record_freed);

/* Deflates the set: stores the state that `txn` read into the state word. Returns false if the
 * state does not fit, a join is pending, or the set has changed. set_try_deflate() first checks
 * that the set is inflated, can be inline, and has an empty wait queue. */
bool set_deflate(const struct txn *txn);
static inline bool set_try_deflate(const struct txn *txn)
{
    return txn->set->inline_format != INLINE_NONE && version_is_inflated(&txn->version) &&
           !waitq_length(&txn->version) && set_deflate(txn);
}

#endif
