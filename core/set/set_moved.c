/* SPDX-License-Identifier: MIT */
/* Moves a set to its successor, and does there what is asked of a set that has moved. */
#include "base/backoff.h"
#include "base/invariant.h"
#include "base/sched_point.h"
#include "os/os.h"
#include "set/class_order.h"
#include "set/detectable_cas.h"
#include "set/instance_base.h"
#include "set/places.h"
#include "set/set_ops.h"
#include "set/shadow.h"
#include "set/try_now.h"
#include "set/txn_internal.h"
#include "shm/nameless.h"
#include "shm/participant.h"
#include "shm/segment_definition.h"
#include <errno.h>
#include <string.h>

/* ---- the two commits ---- */

/* The spare context is prepared: it was before the successor was known. */
struct thread_ctx *moved_borrow_ctx(struct thread_ctx *ctx, weir_set *set)
{
    if (thread_ctx_is_prepared(ctx, set->number))
        return ctx;
    for (const struct thread_ctx *own = thread_ctx_self; own; own = own->thread_next)
        if (own == ctx)
            return thread_ctx_borrow(set);
    return thread_ctx_lock_spare(set); /* the thread ends, and has given `ctx` back */
}

void moved_return_ctx(const struct thread_ctx *ctx, struct thread_ctx *borrowed)
{
    if (borrowed != ctx)
        thread_ctx_return(borrowed);
}

/* Commits a version with this flag, CONTENT_MOVED or CONTENT_SHUT_DOWN, which stays: the set is
 * inflated from then on. */
static void set_close_state(struct thread_ctx *ctx, weir_set *set, uint32_t flag)
{
    struct txn txn;
    unsigned turn = 0;

    WEIR_INVARIANT(set->head_unit);
    for (;; spin_backoff(&turn)) {
        uint64_t deflated_ns = inline_deflated_ns(set);

        txn_begin(&txn, ctx, set);
        if (set_is_broken(set) || version_flags(&txn.version) & (flag | CONTENT_MOVED))
            return;
        if (!version_is_inflated(&txn.version) &&
            !inline_word_is_valid(set, txn.version.state_word))
            return;
        if (set_is_shared(set) && !version_is_inflated(&txn.version)) {
            /* The word may come back, by grants that are later than the clock was read. */
            set_inflate(ctx, set, txn.version.state_word);
            continue;
        }
        /* No time passes by the limits of a key set that end before: they change as of the reload.
         */
        if (set_is_key_set(set))
            txn.now_ns = txn.at.now_ns = txn.version.content[CONTENT_LAST_NS];
        if (!version_is_inflated(&txn.version) && txn.at.now_ns < deflated_ns)
            txn.at.now_ns = deflated_ns;
        WEIR_INVARIANT(set->is_robust || version_is_inflated(&txn.version) ||
                       version_reserve_block(set->region, set->head_unit) != 0);
        forecast_invalidate(&txn);
        version_set_flags(&txn.version, version_flags(&txn.version) | flag);
        if (txn_commit(&txn))
            return;
    }
}

void successor_convert(const weir_set *set, const uint64_t *before, const struct weir_instant *at,
                       uint64_t *states)
{
    memset(states, 0, set->limits.state_words * sizeof(*states));
    for (uint32_t i = 0; i < set->limits.n; i++) {
        const struct origin_limit *link = &set->origin->limits[i];
        const struct limit *limit = &set->limits.items[i], *from;
        uint64_t *state = states + limit->state_offset;

        if (!link->is_carried) {
            if (limit->algorithm && limit->algorithm->init)
                limit->algorithm->init(limit->config, state, at);
            continue;
        }
        from = &set->origin->predecessor->limits.items[link->from];
        if (!limit->algorithm || limit_is_same(from, limit))
            memcpy(state, before + from->state_offset, limit->state_words * sizeof(*state));
        else
            limit->algorithm->reconfigure(from->config, before + from->state_offset, limit->config,
                                          state, at);
    }
}

/* Copies the classes of waiters. Tags by other weights or costs are not compared with new ones. */
static void successor_convert_classes(const weir_set *set, const uint64_t *before, uint64_t *states)
{
    const struct wait_classes *from = set->origin->predecessor->classes;
    const struct wait_class_rule *rule = &set->classes->rule;
    uint64_t *words = class_order_words(set, states);

    memcpy(words, before + from->state_offset, rule->n * WAIT_CLASS_WORDS * sizeof(*words));
    if (rule->ageing ||
        (memcmp(rule->unit_times, from->rule.unit_times, sizeof(rule->unit_times)) == 0 &&
         memcmp(set->classes->unit_costs, from->unit_costs,
                WEIR_LIMITS_MAX * sizeof(*from->unit_costs)) == 0))
        return;
    for (uint32_t c = 0; c < rule->n; c++)
        words[WAIT_CLASS_WORDS * c + 1] = 0;
}

/* Returns whether a limit of a shared set begins anew, or is new in its place. Subjects do so as of
 * an instant that is no later than their first grant. */
static bool successor_begins_anew(const weir_set *set)
{
    for (uint32_t i = 0; set_is_shared(set) && !set->is_keyed && i < set->limits.n; i++)
        if (!set->origin->limits[i].is_carried && places_limit(set, i))
            return true;
    return false;
}

/* Writes the first content of a successor to the saved states of `to`. `ctx` is prepared for the
 * predecessor, the state of which ends here. */
static void successor_take_over(struct thread_ctx *ctx, const weir_set *set, struct thread_ctx *to)
{
    weir_set *before = set->origin->predecessor;
    /* By the clock of the new definition, and with the calendar by which the former one is read. */
    uint32_t needs = set->limits.clock_needs | (before->limits.clock_needs & CLOCK_NEEDS_WALL);
    struct weir_instant at = clock_instant(&set->w->clock, needs);
    uint64_t *content = to->saved_states;
    struct txn txn;

    if (!before->head_unit) { /* it had no limits */
        memset(content, 0, CONTENT_STATES * sizeof(*content));
        content[CONTENT_LAST_NS] = at.now_ns;
        successor_convert(set, NULL, &at, content + CONTENT_STATES);
        return;
    }
    set_close_state(ctx, before, CONTENT_MOVED);
    content = to->saved_states; /* opening the predecessor may have moved them */
    txn_begin(&txn, ctx, before);
    if (set_is_broken(before))
        return; /* no algorithm may see its states */
    WEIR_INVARIANT(version_flags(&txn.version) & CONTENT_MOVED);
    version_set_flags(&txn.version, 0);
    memcpy(content, txn.version.content, CONTENT_STATES * sizeof(*content));
    if (set_is_shared(set) && !set_is_key_set(set)) {
        uint64_t bits = dcas_bits(before, &txn.version);

        segment_definition_note_dcas(set->participant->segment, set->head_unit, bits);
        if (set->inline_format == INLINE_DCAS)
            content[DCAS_BITS_AT] = bits | DCAS_MARK;
    }
    if ((before->limits.clock_needs ^ set->limits.clock_needs) & CLOCK_NEEDS_BOOTTIME)
        content[CONTENT_LAST_NS] = at.now_ns; /* no limit that knows the time is carried over */
    if (successor_begins_anew(set) && content[CONTENT_LAST_NS] < CLOCK_MAX_NS)
        content[CONTENT_LAST_NS]++; /* after all grants before it */
    at.now_ns = content[CONTENT_LAST_NS];
    if (set_is_key_set(set))
        key_set_convert(to, set, txn_states(&txn), at.now_ns, content + CONTENT_STATES);
    else
        successor_convert(set, txn_states(&txn), &at, content + CONTENT_STATES);
    if (set->classes)
        successor_convert_classes(set, txn_states(&txn), content + CONTENT_STATES);
}

/* Lets processes that attach from now on begin with this definition: it has the state. */
static void set_tell_opened(const weir_set *set)
{
    const struct segment *segment = set->participant->segment;
    uint32_t number;

    if (segment_definition_of_unit(segment, set->head_unit, &number))
        shm_raise_seq_cst(&segment_header(segment)->definition, number);
}

/* The first version also grants to the head, or arranges that it is looked at in time. */
void set_open(struct thread_ctx *ctx, weir_set *set)
{
    struct thread_ctx *before_ctx = ctx;
    struct txn txn;

    WEIR_INVARIANT(set->origin && set->head_unit);
    if (set->origin->predecessor->head_unit)
        before_ctx = moved_borrow_ctx(ctx, set->origin->predecessor);
    successor_take_over(before_ctx, set, ctx);
    moved_return_ctx(ctx, before_ctx);
    if (set_is_broken(set))
        return;
    txn_init(&txn, ctx, set);
    txn.within = txn.wait_class = 0;
    txn.forecast_walks = 0;
    txn.version.needs_notify = false;
    txn.version.state_word = set->origin->unopened_word;
    txn.version.content_n = set_content_min(set);
    memcpy(txn.version.content, ctx->saved_states, txn.version.content_n * sizeof(uint64_t));
    txn_read_clock(&txn);
    version_set_active(set->region, thread_ctx_for_set(ctx, set->number)->unit, set->head_unit);
    if (set_is_shared(set)) /* subjects: the first one; else all that open it note the same */
        segment_definition_note_opened(set->participant->segment, set->head_unit,
                                       set->is_keyed ? txn.at.now_ns
                                                     : txn.version.content[CONTENT_LAST_NS]);
    txn_grant_waiters(&txn, HEAD_WATCH_NONE);
    if (txn_commit(&txn) && txn.grant_again)
        set_grant_waiters(ctx, set);
    if (set_is_shared(set))
        set_tell_opened(set);
    set_end_if_faulty(ctx, set);
}

void set_remove(struct thread_ctx *ctx, weir_set *set)
{
    WEIR_INVARIANT(set_is_shared(set) || set_is_removed(set)); /* a shared one may be back */
    if (!set->head_unit)
        return;
    if (!set_is_shared(set))
        set_close_state(ctx, set, CONTENT_SHUT_DOWN);
    set->ops->shut_down(ctx, set);
}

/* ---- shared sets ---- */

void set_fill_unopened(const weir_set *set, uint64_t *content)
{
    content[CONTENT_COUNT] = (uint64_t)CONTENT_UNOPENED << CONTENT_FLAGS_SHIFT;
    if (set->inline_format == INLINE_DCAS)
        content[DCAS_BITS_AT] = DCAS_MARK;
}

/* Returns whether the version of a shared set is final. A version of a block that another head has
 * by now is not taken for it. */
bool set_is_moved(const weir_set *set)
{
    uint64_t word = version_peek_word(set->region, set->head_unit);
    uint64_t count = version_peek_content(set->region, set->head_unit, CONTENT_COUNT);

    atomic_thread_fence(memory_order_acquire);
    return word & INFLATED_BIT && version_peek_word(set->region, set->head_unit) == word &&
           content_flags_in(count) & CONTENT_MOVED;
}

int set_catch_up(const weir_set *set, bool must)
{
    weir_set *newest = set_newest(set_definition(set));
    int r = 0;

    WEIR_INVARIANT(set_is_shared(set));
    if (instance_is_forked(set->w))
        return 0;
    for (; r == 0 && !set_is_broken(newest) && set_is_moved(newest); newest = set_newest(newest))
        r = set_follow(newest, must);
    return set_is_broken(newest) ? -EUCLEAN : r;
}

/* Returns the newest set that this process knows; of a key set that of its key. */
static weir_set *moved_known(const weir_set *set)
{
    return set_is_shared(set) && set_is_key_set(set) ? key_set_newest(set) : set_newest(set);
}

weir_set *moved_newest(const weir_set *set)
{
    weir_set *newest = moved_known(set);

    if (newest != set || !set_is_shared(set))
        return newest;
    /* No process takes the flag back. Of a key set it may be memory that is short; then others
     * return what this process holds, after its end. */
    if (set_is_key_set(set) && !set_is_broken(set))
        atomic_store_explicit(&set->participant->is_outdated, true, memory_order_seq_cst);
    participant_mark_broken(set->participant);
    return newest;
}

weir_set *set_current(const weir_set *set)
{
    if (set_is_shared(set))
        (void)set_catch_up(set, false);
    return moved_known(set);
}

static int set_redefine_locked(struct thread_ctx *ctx, weir_set *before, const weir_set *after,
                               const struct limit_places *places, const char *text, uint64_t hash)
{
    const struct segment *segment = before->participant->segment;
    struct limit_base base[WEIR_LIMITS_MAX];
    uint64_t *content = ctx->saved_states;
    uint32_t number, n = set_content_min(after);
    int r;

    if (!segment_definition_of_unit(segment, after->head_unit, &number))
        return -EUCLEAN;
    if (set_is_broken(before))
        return -EUCLEAN;
    if (set_is_moved(before) || nameless_segment_is(segment))
        return -ESTALE; /* there is a newer definition, or a newer segment */
    memset(content, 0, n * sizeof(*content));
    set_fill_unopened(after, content);
    places_count_base(after, base);
    r = segment_definition_write(segment, number, text, hash, places, base, content, n);
    if (r < 0)
        return r;
    set_close_state(ctx, before, CONTENT_MOVED);
    SCHED_POINT();
    return set_is_broken(before) ? -EUCLEAN : 0;
}

int set_redefine(struct thread_ctx *ctx, weir_set *before, weir_set *after,
                 const struct limit_places *places, const char *text, uint64_t hash)
{
    const struct segment *segment = before->participant->segment;
    int r = os_file_lock(segment->fd);

    if (r < 0)
        return r;
    r = set_redefine_locked(ctx, before, after, places, text, hash);
    os_file_unlock(segment->fd);
    if (r == 0)
        set_succeed(before, after);
    return r;
}

/* ---- what is asked of a set that has moved ---- */

/* Returns the newest set for what cannot fail. If that is not known, the set is broken: the old
 * definition must decide nothing any more. */
static weir_set *moved_must_follow(const weir_set *set)
{
    if (set_is_shared(set))
        (void)set_catch_up(set, true);
    return moved_newest(set);
}

/* Returns the newest set, or NULL: it is not known yet, and this call does without it. */
static weir_set *moved_follow(const weir_set *set)
{
    weir_set *newest = set_current(set);

    return newest == set ? NULL : newest;
}

/* Returns to a shared set what was granted by any definition. */
static int moved_release_shared(struct thread_ctx *ctx, weir_set *newest, const weir_set *set,
                                struct release_op *rel)
{
    const struct release_args *args = rel->args;
    uint64_t amounts[WEIR_LIMITS_MAX], used[WEIR_LIMITS_MAX];
    struct release_args translated = *args;
    int r;

    memcpy(amounts, args->amounts, set->limits.n * sizeof(*amounts));
    memcpy(used, args->used, set->limits.n * sizeof(*used));
    successor_translate(newest, set, 0, amounts);
    successor_translate(newest, set, 0, used);
    translated.amounts = amounts;
    translated.used = used;
    if (rel->rest)
        places_translate_record(newest, set, rel->rest);
    rel->args = &translated;
    r = set_release_inflated(ctx, newest, rel);
    rel->args = args;
    return r;
}

/* Returns what was granted by the old definition, or by a later one to a record of the old one. */
int moved_release(struct thread_ctx *ctx, weir_set *set, struct release_op *rel)
{
    /* What has no record any more is revoked, and goes back by whatever definition. */
    const weir_set *revoker = rel->record_freed ? NULL : rel->args->revoker;
    weir_set *newest = revoker ? set_newest(set) : moved_must_follow(set);
    struct acq_record *r = rel->record ? set_record(set, rel->record) : NULL;
    uint64_t amounts[WEIR_LIMITS_MAX], used[WEIR_LIMITS_MAX];
    struct release_args args = *rel->args;
    struct thread_ctx *own;

    if (revoker && (newest == set || newest != revoker))
        return TRY_REFUSED; /* it may be held for longer by the newest definition */
    if (set_is_shared(set)) /* the record changes with the state */
        return moved_release_shared(ctx, newest, set, rel);
    args.granted_ns = grant_time(set_granted_ns(set, rel->record, rel->args));
    memcpy(amounts, rel->args->amounts, set->limits.n * sizeof(*amounts));
    memcpy(used, rel->args->used, set->limits.n * sizeof(*used));
    if (r)
        shadow_translate_taken(newest, set, r, amounts);
    else
        successor_translate(newest, set, set->id, amounts);
    successor_translate(newest, set, r ? (uint32_t)record_load(&r->owner) : set->id, used);
    if (!rel->record_freed) {
        struct deferred_write write = {
            .is_exclusive = rel->is_owner,
            .expected = rel->record_word,
            .desired = record_next_word(rel->record_word, release_end_state(&args))};

        if (!try_now_apply_write(set, r, &write))
            return TRY_REFUSED;
        rel->record_freed = true;
        if (rel->rest) /* no other thread knows of it yet */
            shm_store_release(
                &set_record(set, rel->rest)->word,
                record_next_word(record_load(&set_record(set, rel->rest)->word), RECORD_HELD));
    }
    if (!newest->head_unit)
        return TRY_DONE;
    args.amounts = amounts;
    args.used = used;
    args.revoker = NULL; /* it is revoked: the units go back wherever the set is by now */
    own = moved_borrow_ctx(ctx, newest);
    set_return_units(own, newest, &args);
    moved_return_ctx(ctx, own);
    return TRY_DONE;
}

bool moved_cancel_wait(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t expected,
                       enum record_state state)
{
    weir_set *newest = moved_must_follow(set);
    struct thread_ctx *own = moved_borrow_ctx(ctx, newest);
    bool is_done = set_cancel_wait(own, newest, record, expected, state);

    moved_return_ctx(ctx, own);
    return is_done;
}

/* A process that cannot follow leaves the waiters to others, and to its next stall check. */
void moved_grant_waiters(struct thread_ctx *ctx, weir_set *set)
{
    weir_set *newest = moved_follow(set);
    struct thread_ctx *own;

    if (!newest)
        return;
    own = moved_borrow_ctx(ctx, newest);
    set_grant_waiters(own, newest);
    moved_return_ctx(ctx, own);
}

uint64_t moved_poll_head(struct thread_ctx *ctx, weir_set *set, uint32_t record)
{
    weir_set *newest = moved_follow(set);
    struct thread_ctx *own;
    uint64_t until;

    if (!newest)
        return WEIR_FOREVER;
    own = moved_borrow_ctx(ctx, newest);
    until = set_poll_head(own, newest, record);
    moved_return_ctx(ctx, own);
    return until;
}

void moved_forecast(struct thread_ctx *ctx, weir_set *set, const struct newcomer *newcomer,
                    enum forecast_walk walk, struct decision *ret)
{
    weir_set *newest = moved_follow(set);
    uint64_t translated[WEIR_LIMITS_MAX], now_ns;
    struct thread_ctx *own;

    if (!newest) { /* a lower bound */
        now_ns = clock_now_ns(&set->w->clock);
        *ret = (struct decision){.now_ns = now_ns, .forecast_ns = now_ns};
        return;
    }
    own = moved_borrow_ctx(ctx, newest);
    memcpy(translated, newcomer->amounts, set->limits.n * sizeof(*translated));
    successor_translate(newest, set, UINT32_MAX, translated);
    shadow_remove(newest, 0, translated);
    set_forecast(own, newest,
                 &(struct newcomer){translated, newcomer->within, newcomer->wait_class}, walk, ret);
    moved_return_ctx(ctx, own);
}

void moved_look(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts,
                struct set_look *ret)
{
    weir_set *newest = moved_follow(set);
    uint64_t translated[WEIR_LIMITS_MAX], now_ns;
    struct thread_ctx *own;

    if (!newest) { /* as if it was empty */
        now_ns = clock_now_ns(&set->w->clock);
        *ret = (struct set_look){.now_ns = now_ns, .ready_ns = now_ns};
        return;
    }
    own = moved_borrow_ctx(ctx, newest);
    memcpy(translated, amounts, set->limits.n * sizeof(*amounts));
    successor_translate(newest, set, UINT32_MAX, translated);
    shadow_remove(newest, 0, translated);
    set_look(own, newest, translated, ret);
    moved_return_ctx(ctx, own);
}
