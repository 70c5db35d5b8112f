/* SPDX-License-Identifier: MIT */
/*
 * Sets with inline state: while the wait queue is empty, the state word is the state itself. That
 * applies to a set of one rate or call with one word of state, or of one resource that is not
 * revoked. A grant is one CAS, a refusal one load, and nothing is allocated. A request that has to
 * wait inflates the set into a version block (version.h) and is enqueued. The first operation that
 * finds the queue empty deflates it. Compare the thin and inflated locks of Bacon et al., PLDI
 * 1998.
 *
 * No request may be granted as of a time when others were queued. So `deflated_ns` says when the
 * set was last deflated, and an older timestamp is read anew. An inline word may recur (ABA); a
 * decision from it is then the right one. try_now.h has grant and release.
 *
 * The models tests/models/inline_state.pml and README.md show that inflation and deflation lose or
 * duplicate no notification, unit or block.
 */
#ifndef WEIR_CORE_SET_INLINE_STATE_H
#define WEIR_CORE_SET_INLINE_STATE_H

#include "set/txn.h"

/* Returns the inline format of a set with these limits. `use_dcas`: processes share it. */
enum inline_format inline_format_for(const struct limits *limits, bool use_dcas);

/* Returns true if the set is inline, or this call deflated it: stored the state that `txn` read
 * into the state word. Returns false if there are waiters, the state does not fit, a join is
 * pending, or the set has changed. */
bool set_become_inline(const struct txn *txn);

#endif
