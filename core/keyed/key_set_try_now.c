/* SPDX-License-Identifier: MIT */
/* Fast paths of private key sets: acquire and release without the full version. They apply while
 * the wait queue is empty, no reservation exists, and the binding is the intended one. */
#include "keyed/key_set.h"
#include "set/instance_base.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "set/try_now_inline.h"
#include <errno.h>

static bool key_set_fits_stack(const weir_set *set)
{
    return !set->is_robust && CONTENT_STATES + set->limits.state_words <= STACK_VERSION_WORDS;
}

/* Makes the record HELD. The record of a request that does not wait is known to no other thread. */
static void key_set_set_held(struct acq_record *r, uint64_t now_ns)
{
    WEIR_INVARIANT(record_state(record_load(&r->word)) == RECORD_FREE);
    try_now_stamp_record(r, now_ns);
    atomic_store_explicit(&r->word, record_next_word(record_load(&r->word), RECORD_HELD),
                          memory_order_release);
    SCHED_POINT();
}

int key_set_try_take(struct thread_ctx *ctx, struct key_set *key_set, const uint64_t *amounts,
                     uint32_t record, struct decision *ret)
{
    weir_set *set = &key_set->set;
    struct weir_instant at;
    struct stack_version version;
    struct txn txn = {.ctx = ctx, .set = set, .version.content = version.content};
    unsigned turn = 0;

    WEIR_INVARIANT(ctx->w == set->w);
    if (!key_set_fits_stack(set) ||
        version_peek_content(set->region, set->head_unit, CONTENT_COUNT) & WAITQ_COUNT_MASK)
        return -EINPROGRESS;
    contention_yield(region_block(set->region, set->head_unit));
    at = clock_instant(&set->w->clock, set->limits.reads_wall);
    for (;; stack_version_backoff(false, version.head, &turn)) {
        if (!try_now_read(false, ctx, set, &turn, &version))
            return -EINPROGRESS;
        if (!key_set_admits(&txn) || !try_now_is_reached(set, &version, &at))
            return -EINPROGRESS;
        if (!limits_take_or_clobber(&set->limits, try_now_states(&version), &at, amounts))
            return -EINPROGRESS;
        version.content[CONTENT_LAST_NS] = at.now_ns;
        if (try_now_commit(false, ctx, set, turn, &version))
            break;
    }
    if (record)
        key_set_set_held(record_at(set->region, record), at.now_ns);
    ret->now_ns = ret->forecast_ns = at.now_ns;
    set_count_grant(ctx, set, amounts, record);
    return 0;
}

/* Returns whether each plain resource holds at least its amount. */
static inline bool key_set_holds(const struct limits *limits, const uint64_t *states,
                                 const uint64_t *amounts)
{
    for (uint32_t i = 0; i < limits->n; i++)
        if (limits->items[i].type == WEIR_LIMIT_RESOURCE &&
            states[limits->items[i].state_offset] < amounts[i])
            return false;
    return true;
}

int key_set_release_now(struct thread_ctx *ctx, struct key_set *key_set, const uint64_t *amounts)
{
    weir_set *set = &key_set->set;
    struct stack_version version;
    struct txn txn = {.ctx = ctx, .set = set, .version.content = version.content};

    for (unsigned turn = 0;; stack_version_backoff(false, version.head, &turn)) {
        if (!key_set_fits_stack(set) || !try_now_read(false, ctx, set, &turn, &version))
            return -EINPROGRESS;
        if (!key_set_admits(&txn))
            return -EINPROGRESS;
        WEIR_INVARIANT(key_set_holds(&set->limits, try_now_states(&version), amounts));
        try_now_release_all(&set->limits, try_now_states(&version), amounts);
        if (try_now_commit(false, ctx, set, turn, &version))
            return 1;
    }
}
