/* SPDX-License-Identifier: MIT */
/*
 * The fast path: grants now, and gives back, while the wait queue is empty and nothing is reserved.
 * All other cases take the slow path (txn.h).
 *
 * try_now() and give_back_now() are templates, compiled into their callers for each representation
 * of the state, and for private and shared sets. A private set dies as a whole, so its state and a
 * record may change one after the other: a record becomes HELD after the grant, and FREE before its
 * units are returned. In a shared set a peer must be able to complete what a dead thread has begun.
 * The record is filled before the state changes; its word is a deferred write of the version, or is
 * announced (detectable_cas.h). A rate or call in a shared state word gets nothing back after a
 * death, so its record changes as in a private set.
 *
 * A grant reads the clock before the state, to keep the time between load and CAS short; an older
 * timestamp can only grant less. A release reads it after the state, because a strict refund as of
 * an older timestamp than that of a grant in the state word would give back too much.
 */
#ifndef WEIR_CORE_SET_TRY_NOW_H
#define WEIR_CORE_SET_TRY_NOW_H

#include "base/invariant.h"
#include "limit/counters.h"
#include "set/detectable_cas.h"
#include "set/instance_base.h"
#include "state/stack_version.h"

/* Results of an acquire that are no errors; and of its steps: the next one is needed, or another
 * thread committed first. */
enum { ACQUIRE_GRANTED = 0, ACQUIRE_ENQUEUED = 1, ACQUIRE_RETRY = 2 };

/* Results of the templates. */
enum try_result {
    TRY_DONE,
    TRY_REFUSED, /* not available now; or another thread has released the record */
    TRY_SLOW,    /* the slow path is needed */
    TRY_LOST     /* of a release with `once`: as TRY_SLOW, since another thread committed first */
};

/* Where the state is. */
enum state_repr {
    REPR_WORD,   /* of an algorithm, in the state word while the set is inline (inline_state.h) */
    REPR_COUNT,  /* of a counted resource, in the state word while the set is inline */
    REPR_BLOCK,  /* in a version block; the fast path works on a stack version */
    REPR_KEY_SET /* in a version block of a key set with the binding ctx->binding */
};

/* Returns true if the state is in the state word. */
WEIR_ALWAYS_INLINE bool repr_is_inline(enum state_repr repr)
{
    return repr <= REPR_COUNT;
}

/* One grant. */
struct try_grant {
    const uint64_t *amounts;
    struct acq_record *known; /* the cached record of a private set */
    uint32_t record;          /* FREE, becomes HELD; 0: none */
    bool is_owner;   /* no other thread completes the grant of the record and releases it */
    bool is_cached;  /* the record is a cached one, without amount and thread */
    bool is_dated;   /* its time matters, even if nothing is decided by it; not on the fast path */
    bool is_timed;   /* the caller has read the clock: now_ns, coarse for a counted resource */
    uint64_t now_ns; /* result: time of the decision */
    /* Results of an inline state: the word that was read, INFLATED_BIT if it was inflated or
     * invalid; and when a refused request would be granted. */
    uint64_t word, ready;
};

/* One release. */
struct release_op {
    const struct release_args *args;
    uint32_t record;      /* 0: none */
    uint64_t record_word; /* of the record, HELD */
    bool is_owner;        /* the caller holds it; no other thread releases it */
    bool record_freed;    /* the record is FREE, before or after the call, or there is none */
    bool use_algorithm;   /* an algorithm may decide what is returned */
    /* FREE, becomes HELD in the same version in which `record` becomes FREE, and holds what is not
     * returned; 0: nothing is left. Of sets that exchange records, on the slow path. */
    uint32_t rest;
    uint64_t word; /* result for shared sets, as in struct try_grant */
};

WEIR_ALWAYS_INLINE bool try_now_has_record(const struct try_grant *grant)
{
    if (grant->is_cached)
        return true; /* known when compiled */
    return grant->record != 0;
}

static inline bool try_now_fits_stack(const weir_set *set)
{
    return CONTENT_STATES + set->limits.state_words <= STACK_VERSION_WORDS &&
           !set->limits.has_shadow;
}

/* Returns true if a request that may wait seems to have others ahead; it needs no clock then. */
static inline bool try_now_has_queue(const weir_set *set)
{
    if (set->inline_format != INLINE_NONE)
        return version_peek_word(set->region, set->head_unit) & INFLATED_BIT;
    return version_peek_content(set->region, set->head_unit, CONTENT_COUNT) & WAITQ_COUNT_MASK;
}

/* Returns when the set was last deflated, ns. Its inline state takes no older timestamp: no request
 * may be granted as of a time when others were queued. */
WEIR_ALWAYS_INLINE uint64_t inline_deflated_ns(const weir_set *set)
{
    return atomic_load_explicit(set->deflated_ns, memory_order_acquire);
}

/* Upper bound of the kernel's tick, ns. */
#define INLINE_TICK_NS UINT64_C(20000000)

/* Contention, from thread and set (state/contention.h). Out of line: calls are rare. */
void try_now_give_turn(const struct thread_ctx *ctx, const weir_set *set);
void try_now_backoff(enum state_repr repr, const struct thread_ctx *ctx, const weir_set *set,
                     unsigned *losses);

/*
 * Prepares for a grant, and returns its timestamp. A counted resource in the state word does not
 * depend on time: there the coarse clock suffices, as `granted_ns` is informational, unless the
 * grant `is_dated`. Its result is raised to the deflation if that came after the tick.
 */
WEIR_ALWAYS_INLINE struct weir_instant try_now_begin(enum state_repr repr,
                                                     const struct thread_ctx *ctx,
                                                     const weir_set *set,
                                                     const struct try_grant *grant)
{
    struct weir_instant at = {.now_ns = grant->now_ns};
    uint64_t deflated_ns;

    if (!repr_is_inline(repr) && contention_is_contended(set->region, set->head_unit))
        try_now_give_turn(ctx, set);
    if (repr != REPR_COUNT || grant->is_dated) {
        if (!grant->is_timed)
            at = clock_instant(&set->w->clock, set->limits.clock_needs);
        if (!repr_is_inline(repr))
            version_prefetch(set->region, set->head_unit);
        return at;
    }
    if (!grant->is_timed)
        at.now_ns = clock_now_coarse(&set->w->clock);
    deflated_ns = inline_deflated_ns(set);
    if (at.now_ns < deflated_ns && deflated_ns - at.now_ns < INLINE_TICK_NS)
        at.now_ns = deflated_ns;
    return at;
}

WEIR_ALWAYS_INLINE uint64_t *try_now_states(const struct stack_version *version)
{
    return version->content + CONTENT_STATES;
}

/* Returns true if the state of a shared set can be the result of an operation. */
WEIR_ALWAYS_INLINE bool try_now_is_valid(enum state_repr repr, const weir_set *set,
                                         const struct stack_version *version)
{
    if (!set_is_shared(set))
        return true;
    if (participant_is_broken(set->participant) || !participant_has_slot(set->participant))
        return false;
    if (repr_is_inline(repr))
        return limit_check(set->limits.items, try_now_states(version)) == 0;
    return version->content[CONTENT_LAST_NS] <= CLOCK_MAX_NS &&
           limits_check(&set->limits, try_now_states(version)) == 0;
}

/* Reads the version block. False: there are waiters or flags, or the version is incomplete. */
WEIR_ALWAYS_INLINE bool try_now_read_block(bool shared, const struct thread_ctx *ctx,
                                           const weir_set *set, unsigned *losses,
                                           struct stack_version *ret)
{
    if (shared)
        version_set_active(set->region, thread_ctx_for_set(ctx, set->number)->unit, set->head_unit);
    if (!stack_version_read(shared, set->region, set->head_unit,
                            thread_ctx_for_set(ctx, set->number)->unit,
                            CONTENT_STATES + set->limits.state_words, losses, ret))
        return false;
    return !(ret->content[CONTENT_ENDS] | (ret->content[CONTENT_COUNT] & ~DEPARTURES_MASK));
}

/* Returns the format of the state word. */
WEIR_ALWAYS_INLINE enum inline_format try_now_format(enum state_repr repr, bool shared)
{
    if (repr == REPR_COUNT)
        return shared ? INLINE_DCAS : INLINE_COUNT;
    return repr == REPR_WORD ? INLINE_STATE : INLINE_NONE;
}

/*
 * Reads the state word. False: the set is inflated, or shared and the word is 0. Such a word may be
 * what takes the place of a truncated segment, where a swap would succeed without effect on any
 * other process. The slow path inflates the set, or finds it broken.
 */
WEIR_ALWAYS_INLINE bool try_now_read_word(enum state_repr repr, bool shared, const weir_set *set,
                                          struct stack_version *ret)
{
    enum inline_format inline_format = try_now_format(repr, shared);

    WEIR_INVARIANT(set->inline_format == inline_format);
    WEIR_INVARIANT(set->head == region_block(set->region, set->head_unit));
    ret->head = set->head;
    ret->state_word = shm_load_acquire(&ret->head->state_word);
    *try_now_states(ret) = inline_state_decode(inline_format, ret->state_word);
    return shared ? (int64_t)ret->state_word > 0 : !(ret->state_word & INFLATED_BIT);
}

/* Reads the state. False: the slow path is needed, and finds out why. `ret->state_word` says
 * whether it inflates the set first: not if it is INFLATED_BIT. */
WEIR_ALWAYS_INLINE bool try_now_read(enum state_repr repr, bool shared,
                                     const struct thread_ctx *ctx, const weir_set *set,
                                     unsigned *losses, struct stack_version *ret)
{
    if (!(repr_is_inline(repr) ? try_now_read_word(repr, shared, set, ret)
                               : try_now_read_block(shared, ctx, set, losses, ret)))
        return false;
    if (repr == REPR_KEY_SET && !key_set_admits(ctx, set, ret->content))
        return false;
    if (!shared || try_now_is_valid(repr, set, ret))
        return true;
    ret->state_word = INFLATED_BIT;
    return false;
}

/* Returns the time of the state. It is ahead of the clock if there is a reservation. */
WEIR_ALWAYS_INLINE uint64_t try_now_last_ns(enum state_repr repr, const weir_set *set,
                                            const struct stack_version *version)
{
    return repr_is_inline(repr) ? inline_deflated_ns(set) : version->content[CONTENT_LAST_NS];
}

/* Takes the amounts if they are available now. Otherwise `states` is clobbered. */
WEIR_ALWAYS_INLINE bool try_now_take(enum state_repr repr, const weir_set *set, uint64_t *states,
                                     const struct weir_instant *at, struct try_grant *grant)
{
    if (!repr_is_inline(repr))
        return limits_take_or_clobber(&set->limits, states, at, grant->amounts);
    grant->ready = repr == REPR_COUNT
                       ? limit_try_count(set->limits.items, states, at, grant->amounts[0])
                       : limit_try_take(set->limits.items, states, at, grant->amounts[0]);
    return grant->ready == at->now_ns;
}

/* Of the versions of a block, one in so many is checked. */
#define TRY_NOW_CHECK_EVERY UINT64_C(64)

/* Returns true if each algorithm that took has changed its state, `states`, since the version of
 * `state_word`. The block may belong to another version by now, but then the commit fails. By
 * value, so that a version can be in registers. */
bool try_now_is_taken(const weir_set *set, uint64_t state_word, const uint64_t *states,
                      const uint64_t *amounts);

/* Returns true if an algorithm seems to have granted without taking, against its contract: in a
 * state word always, in a block sometimes. The slow path finds out. */
WEIR_ALWAYS_INLINE bool try_now_is_doubtful(enum state_repr repr, const weir_set *set,
                                            const struct stack_version *version,
                                            const uint64_t *amounts)
{
    if (repr == REPR_COUNT)
        return false; /* no algorithm took */
    if (repr == REPR_WORD)
        return *try_now_states(version) == version->state_word;
    return !(version->state_word & (TRY_NOW_CHECK_EVERY - 1) << BLOCK_SLOT_BITS) &&
           !try_now_is_taken(set, version->state_word, try_now_states(version), amounts);
}

/* Returns the record. Of a private set the number is one that this process has given out. */
WEIR_ALWAYS_INLINE struct acq_record *try_now_record(bool shared, const weir_set *set,
                                                     uint32_t record)
{
    return shared ? set_record(set, record) : record_known(set->region, record);
}

/* Sets how the word of `record` changes from `expected` to `state`. */
WEIR_ALWAYS_INLINE void try_now_set_write(struct stack_version *version, uint32_t record,
                                          bool is_owner, uint64_t expected, enum record_state state)
{
    version->write =
        (struct deferred_write){.target = deferred_write_target(record, RECORD_FIELD_WORD),
                                .is_exclusive = is_owner,
                                .expected = expected,
                                .desired = record_next_word(expected, state)};
}

/* Fills the record `r`, still FREE, and sets how its word becomes HELD. Relaxed: the word is stored
 * last. */
WEIR_ALWAYS_INLINE void try_now_prepare_hold(const struct thread_ctx *ctx, const weir_set *set,
                                             const struct try_grant *grant, struct acq_record *r,
                                             struct stack_version *version)
{
    WEIR_INVARIANT(set->is_robust || record_state(record_load(&r->word)) == RECORD_FREE);
    if (grant->is_cached)
        shm_store_relaxed(&r->amounts[0], grant->amounts[0]);
    shm_store_relaxed(&r->granted_ns, grant->now_ns);
    shm_store_relaxed(&r->enqueued_ns, grant->now_ns);
    if (grant->is_cached)
        shm_store_release(&r->set, (uint64_t)set->id << 32 | ctx->thread);
    try_now_set_write(version, grant->record, grant->is_owner, record_load(&r->word), RECORD_HELD);
}

/* Writes the word of the record `r` apart from the state. Returns false if another thread did. */
WEIR_ALWAYS_INLINE bool try_now_apply_write(const weir_set *set, struct acq_record *r,
                                            const struct deferred_write *write)
{
    WEIR_INVARIANT(set->is_robust || record_may_become(write->expected, write->desired));
    WEIR_INVARIANT(set->is_robust || !write->is_exclusive ||
                   record_load(&r->word) == write->expected);
    if (!write->is_exclusive)
        return shm_cas_seq_cst(&r->word, write->expected, write->desired);
    shm_store_release(&r->word, write->desired);
    return true;
}

/* Replaces a state that belongs into the state word by that word. A shared resource also announces
 * the write. False: the state does not fit, or there is no slot or no record to announce. */
WEIR_ALWAYS_INLINE bool try_now_encode(enum state_repr repr, bool shared,
                                       const struct thread_ctx *ctx, const weir_set *set,
                                       const struct stack_version *version)
{
    uint64_t *state = try_now_states(version);
    uint32_t slot, record = version->write.target >> 3;

    if (!repr_is_inline(repr))
        return true;
    if (!shared || repr != REPR_COUNT)
        return !(*state & INFLATED_BIT);
    slot = thread_ctx_for_set(ctx, set->number)->dcas_slot;
    if (!dcas_is_slot(slot) || !record || *state > DCAS_USED_MAX)
        return false;
    *state = dcas_announce(set->announce_slots, slot, version->state_word, *state, record,
                           version->write.desired);
    return true;
}

/* Commits the state. False: another thread committed first. */
WEIR_ALWAYS_INLINE bool try_now_commit(enum state_repr repr, bool shared,
                                       const struct thread_ctx *ctx, const weir_set *set,
                                       const struct stack_version *version)
{
    if (repr_is_inline(repr))
        return shm_cas_seq_cst(&version->head->state_word, version->state_word,
                               *try_now_states(version));
    return stack_version_commit(shared, set->region, thread_ctx_for_set(ctx, set->number)->unit,
                                *version);
}

/* Grants if available now, else TRY_REFUSED. Counts nothing. `once`: by one attempt, then TRY_SLOW.
 */
WEIR_ALWAYS_INLINE enum try_result try_now(enum state_repr repr, bool shared, bool once,
                                           const struct thread_ctx *ctx, const weir_set *set,
                                           struct try_grant *grant)
{
    struct weir_instant at = try_now_begin(repr, ctx, set, grant);
    uint64_t content[STACK_VERSION_WORDS];
    struct stack_version version = {.content = content};
    struct acq_record *r = NULL;

    version.has_write = shared && try_now_has_record(grant);
    SCHED_POINT(); /* after the clock, before the state */
    for (unsigned losses = 0;; try_now_backoff(repr, ctx, set, &losses)) {
        bool is_read = try_now_read(repr, shared, ctx, set, once ? NULL : &losses, &version),
             is_taken;

        if (repr_is_inline(repr))
            grant->word = version.state_word;
        if (!is_read)
            return TRY_SLOW;
        if (at.now_ns < try_now_last_ns(repr, set, &version)) {
            if (once)
                return TRY_SLOW;
            at = clock_instant(&set->w->clock, set->limits.clock_needs);
            if (at.now_ns < try_now_last_ns(repr, set, &version))
                return TRY_SLOW;
        }
        is_taken = try_now_take(repr, set, content + CONTENT_STATES, &at, grant);
        grant->now_ns = at.now_ns; /* later than needed: no copy is kept meanwhile */
        if (!is_taken)
            return TRY_REFUSED;
        if (try_now_is_doubtful(repr, set, &version, grant->amounts))
            return TRY_SLOW;
        if (!repr_is_inline(repr))
            content[CONTENT_LAST_NS] = at.now_ns;
        if (version.has_write) {
            r = try_now_record(shared, set, grant->record);
            try_now_prepare_hold(ctx, set, grant, r, &version);
        }
        if (!try_now_encode(repr, shared, ctx, set, &version))
            return TRY_SLOW;
        if (try_now_commit(repr, shared, ctx, set, &version))
            break;
        if (once) {
            if (repr_is_inline(repr))
                contention_lost_word(repr == REPR_COUNT ? 0 : at.now_ns);
            return TRY_SLOW;
        }
    }
    if (!shared && try_now_has_record(grant)) {
        r = grant->is_cached ? grant->known : try_now_record(shared, set, grant->record);
        try_now_prepare_hold(ctx, set, grant, r, &version);
    }
    if (try_now_has_record(grant) && (!shared || repr_is_inline(repr)))
        try_now_apply_write(set, r, &version.write);
    return TRY_DONE;
}

/* Applies a release to the state. False: a shared resource holds too little, and the set is marked
 * broken. */
WEIR_ALWAYS_INLINE bool give_back_apply(enum state_repr repr, bool shared, const weir_set *set,
                                        const struct release_op *rel, struct weir_instant *at,
                                        uint64_t granted_ns, uint64_t *content)
{
    const struct limit *limit = set->limits.items;
    uint64_t *states = content + CONTENT_STATES;
    uint32_t n = repr_is_inline(repr) ? 1 : set->limits.n;

    WEIR_INVARIANT(set->is_robust || limits_hold(&set->limits, states, rel->args->amounts));
    if (repr == REPR_COUNT) {
        bool is_held = !shared || *states >= rel->args->amounts[0];

        if (!is_held)
            participant_mark_broken(set->participant); /* no correct process writes that */
        *states -= rel->args->amounts[0];
        return is_held;
    }
    if (rel->use_algorithm) {
        if (!repr_is_inline(repr) && at->now_ns < content[CONTENT_LAST_NS])
            at->now_ns = content[CONTENT_LAST_NS];
        for (uint32_t i = 0; i < n; i++)
            set_release_limit(set, i, states + set->limits.items[i].state_offset, at, rel->args,
                              granted_ns);
        if (!repr_is_inline(repr))
            content[CONTENT_LAST_NS] = at->now_ns;
        return true;
    }
    for (uint32_t i = 0; i < set->limits.n; i++, limit++) {
        uint64_t *state = states + limit->state_offset;

        if (limit->type != WEIR_LIMIT_RESOURCE)
            continue;
        if (shared && *state < rel->args->amounts[i]) {
            participant_mark_broken(set->participant);
            return false;
        }
        *state -= rel->args->amounts[i];
    }
    return true;
}

/* Gives back what the record `r` holds, and makes it FREE. TRY_REFUSED: another thread has released
 * it. Counts nothing. */
WEIR_ALWAYS_INLINE enum try_result give_back_now(enum state_repr repr, bool shared, bool once,
                                                 const struct thread_ctx *ctx, const weir_set *set,
                                                 struct acq_record *r, struct release_op *rel)
{
    bool changes = repr == REPR_COUNT || rel->use_algorithm || set->limits.has_resources;
    /* The record's word changes by the commit, or is announced. */
    bool is_linked = shared && repr != REPR_WORD && changes;
    uint64_t content[STACK_VERSION_WORDS], granted_ns = 0;
    struct stack_version version = {.content = content, .has_write = is_linked};
    struct weir_instant at = {0};

    if (!repr_is_inline(repr) && shared && !(rel->is_owner && rel->record))
        return TRY_SLOW;
    try_now_set_write(&version, rel->record, rel->is_owner, rel->record_word, RECORD_FREE);
    if (rel->use_algorithm)
        granted_ns = set_granted_ns(set, rel->record, rel->args);
    if (!is_linked && !rel->record_freed) {
        if (!try_now_apply_write(set, r, &version.write))
            return TRY_REFUSED;
        rel->record_freed = true;
    }
    if (!changes)
        return TRY_DONE;
    for (unsigned losses = 0;; try_now_backoff(repr, ctx, set, &losses)) {
        bool is_read = try_now_read(repr, shared, ctx, set, once ? NULL : &losses, &version);

        if (shared && repr_is_inline(repr))
            rel->word = version.state_word;
        if (!is_read)
            return TRY_SLOW;
        if (is_linked && !rel->is_owner)
            return TRY_SLOW; /* whether another thread released it is known once inflated */
        if (is_linked && record_load(&r->word) != rel->record_word)
            return TRY_REFUSED;
        if (rel->use_algorithm)
            at = clock_instant(&set->w->clock, set->limits.clock_needs);
        if (!give_back_apply(repr, shared, set, rel, &at, granted_ns, content))
            return TRY_SLOW;
        if (!try_now_encode(repr, shared, ctx, set, &version))
            /* Without a link the algorithm set the top bit, against its contract. */
            return is_linked ? TRY_SLOW : TRY_DONE;
        if (try_now_commit(repr, shared, ctx, set, &version))
            break;
        if (once)
            return repr_is_inline(repr) ? TRY_LOST : TRY_SLOW;
    }
    if (is_linked && repr_is_inline(repr))
        try_now_apply_write(set, r, &version.write);
    return TRY_DONE;
}

/* Refuses a request that got TRY_REFUSED of a state word. The wait queue was empty, so the forecast
 * is the limit's own. Returns -EAGAIN or -ERANGE, and has counted the refusal. ACQUIRE_RETRY: the
 * request may wait, or, with the word unknown as INFLATED_BIT, dead peers were cleaned up, so that
 * it is decided again. */
WEIR_ALWAYS_INLINE int try_now_refuse(bool shared, struct thread_ctx *ctx, weir_set *set,
                                      struct try_grant *grant, enum wait_mode mode,
                                      struct counters *counters, struct decision *ret)
{
    const struct limit *limit = set->limits.items;

    /* Dead peers may hold the missing units. */
    if (shared && set_is_shared(set) && peer_reap_if_due(ctx, set, grant->now_ns)) {
        grant->word = INFLATED_BIT;
        return ACQUIRE_RETRY;
    }
    if (grant->ready != WEIR_NEVER && mode != MODE_TRY && mode != MODE_PROBE)
        return ACQUIRE_RETRY;
    if (grant->ready <= grant->now_ns)
        return ACQUIRE_RETRY; /* the algorithm broke its contract */
    /* Each member by itself: gcc clears a whole decision by a slow instruction. Of a resource there
     * is no forecast. */
    if (ret) {
        ret->now_ns = grant->now_ns;
        ret->forecast_ns =
            grant->ready != WEIR_NEVER && mode == MODE_TRY && limit->type == WEIR_LIMIT_RESOURCE
                ? grant->now_ns
                : grant->ready;
        ret->limiting = limit;
    }
    if (grant->ready == WEIR_NEVER) {
        set_count_refusal(ctx, set, -ERANGE, limit->key);
        return -ERANGE;
    }
    if (mode == MODE_TRY) {
        counter_add(&counters->refused_busy, 1);
        counter_add(&counters->limits[0].refused, 1);
    }
    return -EAGAIN;
}

/* The first step of set_acquire(), while the wait queue is empty. Returns 0, -EAGAIN, -ERANGE or
 * -ENOMEM; ACQUIRE_RETRY: the slow path is needed. */
int try_now_acquire(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts, uint32_t record,
                    enum wait_mode mode, struct decision *ret);

/* Takes `lease` units without a record if there are so many, or else `amount`. `lease` is 0 or more
 * than `amount`; `ret->lease_rest` is what exceeds the amount. Results as try_now_acquire(). */
int try_now_lease(struct thread_ctx *ctx, weir_set *set, uint64_t amount, uint64_t lease,
                  struct decision *ret);

/* Releases from any set without subjects, as give_back_now(). Inflates a set if its state word does
 * not serve. */
enum try_result try_now_release(struct thread_ctx *ctx, weir_set *set, struct release_op *rel);

/* Returns true if an algorithm takes part in the release. */
static inline bool set_release_uses_algorithm(const weir_set *set, const struct release_args *args)
{
    uint64_t different = 0;

    if (args->return_all || set->limits.has_opaque_resources)
        return true; /* if there is one */
    for (uint32_t i = 0; i < set->limits.n; i++)
        different |= args->used[i] ^ args->amounts[i];
    return different;
}

/* Releases on the slow path; counts nothing. Returns TRY_DONE; TRY_REFUSED if another thread did
 * it; -ESTALE if a key set is no longer bound as ctx->binding says. */
int set_release_inflated(struct thread_ctx *ctx, weir_set *set, struct release_op *rel);

#endif
