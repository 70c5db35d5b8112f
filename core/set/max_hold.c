/* SPDX-License-Identifier: MIT */
/* Says when an acquisition is held too long, that this is told once, and revokes it. */
#include "set/max_hold.h"

#include "limit/counters.h"
#include "set/fairness.h"
#include "set/set_ops.h"
#include "set/waiter.h"

bool max_hold_read(const weir_set *set, uint32_t record, struct max_hold *ret)
{
    const struct acq_record *r = set_record(set, record);
    const weir_set *of = set_is_foreign(set, r) ? set_ancestor(set, record_set_number(r)) : set;
    uint64_t amounts[WEIR_LIMITS_MAX];

    *ret = (struct max_hold){.granted_ns = grant_time(record_load(&r->granted_ns)),
                             .overheld_ns = WEIR_FOREVER,
                             .revoked_ns = WEIR_FOREVER};
    if (!of || ret->granted_ns > CLOCK_MAX_NS)
        return false;
    fairness_amounts(set, record, amounts);
    for (uint32_t i = 0; i < set->limits.n; i++) {
        const struct limit *limit = &set->limits.items[i];
        uint64_t at_ns = ret->granted_ns + limit->max_hold_ns;

        if (!limit->max_hold_ns || !amounts[i])
            continue;
        if (at_ns < ret->overheld_ns) {
            ret->overheld_ns = at_ns;
            ret->limit = limit;
        }
        if (limit->revokes && of->limits.revokes && at_ns < ret->revoked_ns) {
            ret->revoked_ns = at_ns;
            ret->revoking = limit;
        }
    }
    return ret->limit != NULL;
}

/* Takes the flag back if the record was reused meanwhile. */
bool max_hold_claim_notice(struct acq_record *r, uint64_t word)
{
    uint64_t before = record_load(&r->set);

    if (before & RECORD_OVERHELD || !shm_cas_seq_cst(&r->set, before, before | RECORD_OVERHELD))
        return false;
    if (record_load(&r->word) == word)
        return true;
    shm_cas_seq_cst(&r->set, before | RECORD_OVERHELD, before);
    return false;
}

/* The amounts read may be those of a later use of the record; then the word differs. */
bool max_hold_revoke(struct thread_ctx *ctx, const weir_set *set, weir_set *of, uint32_t record,
                     uint64_t word)
{
    const struct acq_record *r = set_record(of, record);
    uint64_t amounts[WEIR_LIMITS_MAX];
    const struct release_args args = {
        .amounts = amounts, .used = amounts, .outcome = WEIR_OUTCOME_DROPPED, .revoker = set};

    WEIR_INVARIANT(record_state(word) == RECORD_HELD && of->limits.revokes);
    for (uint32_t i = 0; i < of->limits.n; i++)
        amounts[i] = record_load(&r->amounts[i]);
    if (!of->ops->release(ctx, of, record, word, false, &args) || set_is_broken(of))
        return false;
    counter_add(&thread_ctx_counters(ctx, of->number)->revoked, 1);
    notify_waiter(of, record, record_next_word(word, RECORD_REVOKED));
    return true;
}
