/* SPDX-License-Identifier: MIT */
/* Grants and releases on the fast path of inflated sets. */
#include "set/try_now.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "set/try_now_inline.h"
#include <errno.h>

/* ---- grant ---- */

static void try_now_set_held(struct acq_record *r)
{
    WEIR_INVARIANT(record_state(record_load(&r->word)) == RECORD_FREE);
    atomic_store_explicit(&r->word, record_next_word(record_load(&r->word), RECORD_HELD),
                          memory_order_release);
    SCHED_POINT();
}

int try_now_acquire(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts, uint32_t record,
                    enum wait_mode mode, struct decision *ret)
{
    /* No other thread knows the record of a request that does not wait. */
    bool is_owner = mode == MODE_PROBE || mode == MODE_TRY;
    int r;

    WEIR_INVARIANT(set->inline_format == INLINE_NONE && thread_ctx_is_ready(ctx, set));
    if (CONTENT_STATES + set->limits.state_words > STACK_VERSION_WORDS)
        return -EINPROGRESS;
    if (try_now_has_queue(set, mode))
        return -EINPROGRESS;
    r = set->is_robust ? try_now_take(true, ctx, set, amounts, record, is_owner, &ret->now_ns)
                       : try_now_take(false, ctx, set, amounts, 0, false, &ret->now_ns);
    if (r < 0)
        return r;
    if (record && !set->is_robust) {
        try_now_stamp_record(record_at(set->region, record), ret->now_ns);
        try_now_set_held(record_at(set->region, record));
    }
    ret->forecast_ns = ret->now_ns;
    set_count_grant(ctx, set, amounts, record);
    return 0;
}

/* ---- release ---- */

/* Makes a HELD record FREE. Of all threads that try, one gets true and returns the units. */
static bool try_now_claim_record(struct acq_record *r, uint64_t word, bool is_owner)
{
    uint64_t free_word = record_next_word(word, RECORD_FREE);
    bool record_freed = true;

    WEIR_INVARIANT(record_state(word) == RECORD_HELD &&
                   (!is_owner || record_load(&r->word) == word));
    if (is_owner)
        atomic_store_explicit(&r->word, free_word, memory_order_release);
    else
        record_freed = atomic_compare_exchange_strong_explicit(
            &r->word, &word, free_word, memory_order_seq_cst, memory_order_seq_cst);
    SCHED_POINT();
    return record_freed;
}

/* Applies a release to the limits, at a time that is not before the version's. */
static void try_now_release_limits(const weir_set *set, struct stack_version *version,
                                   struct weir_instant *at, uint64_t granted_ns,
                                   const struct release_args *args)
{
    if (at->now_ns < version->content[CONTENT_LAST_NS])
        at->now_ns = version->content[CONTENT_LAST_NS];
    for (uint32_t i = 0; i < set->limits.n; i++)
        set_release_limit(set, i, try_now_states(version) + set->limits.items[i].state_offset, at,
                          args, granted_ns);
    version->content[CONTENT_LAST_NS] = at->now_ns;
}

WEIR_ALWAYS_INLINE int try_now_release_impl(bool shared, struct thread_ctx *ctx, weir_set *set,
                                            uint32_t record, uint64_t word, bool use_algorithm,
                                            const struct release_args *args, uint64_t granted_ns)
{
    struct weir_instant at = {0};
    struct stack_version version;

    if (use_algorithm)
        at = clock_instant(&set->w->clock, set->limits.reads_wall);
    for (unsigned turn = 0;; stack_version_backoff(shared, version.head, &turn)) {
        if (!try_now_read(shared, ctx, set, &turn, &version))
            return -EINPROGRESS;
        if (shared && record_load(&record_at(set->region, record)->word) != word)
            return 0;
        WEIR_INVARIANT(shared ||
                       limits_hold(&set->limits, try_now_states(&version), args->amounts));
        if (use_algorithm)
            try_now_release_limits(set, &version, &at, granted_ns, args);
        else
            try_now_release_all(&set->limits, try_now_states(&version), args->amounts);
        try_now_set_write(shared, &version, record, true, word, RECORD_FREE);
        if (try_now_commit(shared, ctx, set, turn, &version))
            return 1;
    }
}

int try_now_release(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                    bool is_owner, bool use_algorithm, const struct release_args *args,
                    bool *record_freed)
{
    uint64_t granted_ns = set_granted_ns(set, record, args);

    WEIR_INVARIANT(*record_freed || record);
    if (CONTENT_STATES + set->limits.state_words > STACK_VERSION_WORDS)
        return -EINPROGRESS;
    if (set->is_robust)
        return is_owner && record ? try_now_release_impl(true, ctx, set, record, word,
                                                         use_algorithm, args, granted_ns)
                                  : -EINPROGRESS;
    if (!*record_freed && !try_now_claim_record(record_at(set->region, record), word, is_owner))
        return 0;
    *record_freed = true;
    return try_now_release_impl(false, ctx, set, record, word, use_algorithm, args, granted_ns);
}

bool try_now_supports(const weir_set *set)
{
    return set->head_unit && set->inline_format == INLINE_NONE &&
           CONTENT_STATES + set->limits.state_words <= STACK_VERSION_WORDS;
}
