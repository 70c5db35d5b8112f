/* SPDX-License-Identifier: MIT */
/*
 * Acquisitions that are held longer than the `max_hold` of a limit.
 *
 * That a record is held too long is told once: RECORD_OVERHELD in its `set` says that it was.
 *
 * A revocation is a release by another thread. It expects the record's word, and ends it as REVOKED
 * in place of FREE. The record stays its owner's, which frees it. Owner and revocation may come at
 * one time, so in a set that revokes both change word and state with one version: that of one of
 * them is committed. There an owner's release is not exclusive (release_op.is_owner), and not made
 * in a state word.
 */
#ifndef WEIR_CORE_SET_MAX_HOLD_H
#define WEIR_CORE_SET_MAX_HOLD_H

#include "set/set.h"

/* When a HELD record is held too long, by the clock of its set; WEIR_FOREVER: never. */
struct max_hold {
    uint64_t granted_ns;
    uint64_t overheld_ns, revoked_ns; /* when it is to be told, and to be revoked */
    const struct limit *limit;        /* of which it is told; NULL: of none */
    const struct limit *revoking;     /* by which it is revoked; NULL: by none */
};

/* Finds out when a HELD record is held too long, by the limits of `set`, its newest definition.
 * Returns false if it never is. What was asked for by a definition that did not revoke is not
 * revoked. What is read counts if the record still has its word. */
bool max_hold_read(const weir_set *set, uint32_t record, struct max_hold *ret);

static inline bool max_hold_is_told(const struct acq_record *r)
{
    return record_load(&r->set) & RECORD_OVERHELD;
}

/* Returns whether it is this caller that tells that the record with this word is held too long. */
bool max_hold_claim_notice(struct acq_record *r, uint64_t word);

/* Has the record `to`, which is held in place of `from`, count as told if that one does. */
static inline void max_hold_move_notice(const struct acq_record *from, struct acq_record *to)
{
    if (max_hold_is_told(from))
        atomic_fetch_or_explicit(&to->set, RECORD_OVERHELD, memory_order_seq_cst);
}

/* Revokes what a record with the word `word`, which is HELD, holds. `set`: the definition that says
 * so. `of`: the one by which it was asked for: the template of a shared set with subjects, the key
 * set of a private one, if it has one.
 * Returns false if another thread has released it, there is a newer definition, or the set is
 * broken. Counts it. */
bool max_hold_revoke(struct thread_ctx *ctx, const weir_set *set, weir_set *of, uint32_t record,
                     uint64_t word);

#endif
