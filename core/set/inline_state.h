/* SPDX-License-Identifier: MIT */
/*
 * Sets whose whole state is one word, while nobody is in line: one rate or call whose algorithm
 * needs no more, or one resource. Then the set's word is not the name of a box (version.h) but
 * the state itself; a grant is one compare-and-swap of it, a refusal one load, and nothing is
 * allocated. Whoever has to wait boxes the set, and then joins the line; the first who comes once the
 * line is empty puts the state back into the word.
 *
 * A private set has nothing there but the state. What is given back goes first from the record, by
 * a compare-and-swap from HELD to FREE, so that it is done once, and then from the state: in
 * between the set still counts it as held.
 *
 * A resource that processes share must lose nothing by a death between any two steps. There the
 * word also has a bit for each actor, which says whether what it has announced has happened: detectable_cas.h.
 * Of rates and calls nothing is given back after a death, so they do without.
 *
 * The clock is read before the word, so that as little time as can be passes between that and the
 * compare-and-swap; an earlier instant grants no more. A counted resource does not go by it: there it
 * only says since when something is held, and the kernel's last tick will do. But nobody is granted as of an instant at
 * which others were in line: so `unboxed_ns` has when the state last went back to the word. A word
 * that is a state may come back while somebody is late; what he decides from it is the same then.
 *
 * That no wake-up, permit or box is lost or had twice as a set is boxed and unboxed was searched for
 * exhaustively in a model (tests/crash/word.pml; docs/publication.md has the figures).
 */
#ifndef WEIR_CORE_SET_INLINE_STATE_H
#define WEIR_CORE_SET_INLINE_STATE_H

#include "set/txn.h"

/* The form that the word of such a set can have. */
enum inline_format inline_format_for(const struct limits *limits, bool use_dcas);

/* inline_acquire(), as set_acquire() if the set's word is its state and nothing has to wait, is declared in
 * set.h. -EINPROGRESS: nothing has happened yet, and the set is boxed, for it had to be or was
 * already; or something is strange. Also -ENOMEM. */

/*
 * As inline_acquire() of a take of `amount`, but if there is that much, `lease` is taken, which is more
 * or 0: `ret->leased` is the rest.
 */
int inline_lease(struct thread_ctx *ctx, weir_set *set, uint64_t amount, uint64_t lease,
                 struct decision *ret);

/*
 * As set_release_exact(): 1 done, 0 somebody else did it. -EINPROGRESS: the set is boxed; then, if
 * `*claimed`, the record is FREE already and only its set lacks what it gives back. If it is so from the start,
 * there need not be a record.
 */
int inline_release(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                   bool is_owner, const struct release_args *args, bool *record_freed);

/* Puts the state that was read into the word, if nobody is in line or expected there. False: it is
 * there already, or does not fit, or the set has changed. The first is the second for a set with a
 * box and without a line, whose word could be its state. */
bool set_deflate(const struct txn *txn);
static inline bool set_try_deflate(const struct txn *txn)
{
    return txn->set->inline_format != INLINE_NONE && version_is_inflated(&txn->version) &&
           !waitq_length(&txn->version) && set_deflate(txn);
}

/* Boxes the set, whose word is not, so that somebody can join its line: -EINPROGRESS, whether that
 * was done or the set has changed; or -ENOMEM. */
int set_inflate(struct thread_ctx *ctx, weir_set *set, uint64_t word);

#endif
