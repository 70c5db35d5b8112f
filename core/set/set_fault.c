/* SPDX-License-Identifier: MIT */
/*
 * Faults: what becomes of a set with an algorithm that broke its contract. The functions of limit.h
 * find that where its answers are used, and note it in the set; they grant nothing then. A private
 * set is shut down. A shared set is broken for this process only: what its segment holds may be
 * right for others, or damaged.
 */
#include "set/inline_state.h"
#include "set/set_ops.h"
#include "shm/participant.h"
#include "state/version.h"

#include "set/instance_base.h"

static void set_report_fault(const weir_set *set)
{
    const struct limit *limit = limits_faulty(&set->limits);

    log_write(&set->w->log, WEIR_LOG_ERROR,
              "set `%s`, limit `%s`: the algorithm `%s` %s broke the contract of plugins%s; the "
              "set grants nothing any more",
              set_own_name(set), limit->key, limit->algorithm_name, limit->algorithm_version,
              set_is_shared(set) ? ", or the segment is damaged" : "");
}

/* Moves the state out of the state word, so that the set can be marked. Without memory for that it
 * stays there, and each grant is checked for itself. */
static void set_inflate_faulty(struct thread_ctx *ctx, weir_set *set)
{
    uint64_t word = version_peek_word(set->region, set->head_unit);

    while (!(word & INFLATED_BIT) && set_inflate(ctx, set, word) == 0)
        word = version_peek_word(set->region, set->head_unit);
}

void set_end_faulty(struct thread_ctx *ctx, weir_set *set)
{
    weir_set *owner = set_is_key_set(set) ? key_set_owner(set) : set;

    WEIR_INVARIANT(set_is_faulty(set));
    limits_note_fault(&owner->limits, (uint32_t)(limits_faulty(&set->limits) - set->limits.items));
    if (set_is_shared(set)) {
        atomic_store_explicit(&set->participant->broken_reported, true, memory_order_seq_cst);
        participant_mark_broken(set->participant);
    } else {
        if (owner->inline_format != INLINE_NONE)
            set_inflate_faulty(ctx, owner);
        owner->ops->shut_down(ctx, owner);
    }
    if (!(atomic_fetch_or_explicit(&owner->limits.fault, LIMITS_FAULT_REPORTED,
                                   memory_order_seq_cst) &
          LIMITS_FAULT_REPORTED))
        set_report_fault(owner);
}
