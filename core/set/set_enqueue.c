/* SPDX-License-Identifier: MIT */
/* Enqueues behind other waiters of a private set, without a copy of the states. */
#include "set/set_enqueue.h"
#include "base/backoff.h"
#include "base/compiler.h"
#include "base/invariant.h"

#include "base/sched_point.h"
#include "set/instance_base.h"
#include "set/txn.h"
#include "state/version_block.h"
#include <errno.h>

/* One attempt: the version that was read, without its states. */
struct enqueue_txn {
    const struct region *region;
    struct set_head *head;
    uint32_t block_class;
    const struct limits *limits;
    uint32_t states_n;     /* words of the states */
    uint32_t forecast_n;   /* words of the forecast; 0: none */
    uint64_t *limit_words; /* in ctx->content: the forecast, or else the states */
    const struct version_block *block;
    uint64_t state_word; /* the set's; names `block` */
    uint64_t ends, count, last_ns;
};

/* Deferred writes of the enqueue: the record's word, and the link of the present tail to it. */
struct enqueue_links {
    struct acq_record *tail;
    struct deferred_write word, link;
};

/* Relaxed: a fence and a second load of the state word, or the commit, validate what was read. */
static uint64_t enqueue_load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* Relaxed: the CAS of the state word publishes the block. */
static void enqueue_store(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
    SCHED_POINT();
}

static void enqueue_copy(uint64_t *to, const _Atomic uint64_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to[i] = enqueue_load(&from[i]);
        SCHED_POINT();
    }
}

static uint32_t enqueue_length(const struct enqueue_txn *enq)
{
    return (uint32_t)enq->count & WAITQ_COUNT_MASK;
}

/* Returns true if the request can only be enqueued, because others wait. */
static bool enqueue_is_allowed(const struct enqueue_txn *enq, uint32_t max_waiters)
{
    uint32_t length = enqueue_length(enq);
    uint64_t flags = enq->count >> CONTENT_FLAGS_SHIFT;

    return length && !(flags & ~(uint64_t)CONTENT_FORECAST) &&
           (!max_waiters || length < max_waiters);
}

/* Copies what the limits decide on: the forecast, or the states. Resources alone need neither. */
static void enqueue_copy_limit_words(struct enqueue_txn *enq)
{
    const _Atomic uint64_t *states = enq->block->content + CONTENT_STATES;
    bool has_forecast = enq->count >> CONTENT_FLAGS_SHIFT & CONTENT_FORECAST;

    enq->forecast_n = has_forecast ? 1 + enq->states_n : 0;
    if (has_forecast)
        enqueue_copy(enq->limit_words, states + enq->states_n, enq->forecast_n);
    else if (enq->limits->has_waits)
        enqueue_copy(enq->limit_words, states, enq->states_n);
}

/* Reads a complete version. False: it stays incomplete, or this path does not handle it. */
static bool enqueue_read(struct enqueue_txn *enq, uint32_t max_waiters)
{
    for (unsigned turn = 0; turn < HELP_AFTER; spin_backoff(&turn)) {
        uint64_t word = atomic_load_explicit(&enq->head->state_word, memory_order_acquire);
        const struct version_block *block = block_at(false, enq->region, enq->block_class, word);
        bool done;

        if (!(word & INFLATED_BIT))
            return false;
        done = atomic_load_explicit(&block->completed, memory_order_acquire) ==
               state_word_version(word);
        enq->state_word = word;
        enq->block = block;
        enq->count = enqueue_load(&block->content[CONTENT_COUNT]);
        SCHED_POINT();
        if (!enqueue_is_allowed(enq, max_waiters))
            return false;
        enq->ends = enqueue_load(&block->content[CONTENT_ENDS]);
        SCHED_POINT();
        enq->last_ns = enqueue_load(&block->content[CONTENT_LAST_NS]);
        SCHED_POINT();
        enqueue_copy_limit_words(enq);
        atomic_thread_fence(memory_order_acquire);
        if (enqueue_load(&enq->head->state_word) == word && done)
            return true;
    }
    return false;
}

/* ---- the next version ---- */

/* Prepares the record, which is free and the caller's, behind the tail, as waitq_enqueue() does. */
static void enqueue_prepare(const struct enqueue_txn *enq, uint32_t record, struct acq_record *r,
                            struct enqueue_links *ret)
{
    uint32_t tail = (uint32_t)(enq->ends >> 32);
    struct acq_record *ahead = record_at(enq->region, tail);
    uint64_t word = record_load(&r->word), link = record_load(&ahead->next);

    WEIR_INVARIANT(tail && tail != record && record_state(word) == RECORD_FREE);
    waitq_prepare(r, word, tail);
    ret->tail = ahead;
    ret->word = (struct deferred_write){.target = deferred_write_target(record, RECORD_FIELD_WORD),
                                        .expected = word,
                                        .desired = record_next_word(word, RECORD_WAITING)};
    ret->link = (struct deferred_write){.target = deferred_write_target(tail, RECORD_FIELD_NEXT),
                                        .expected = link,
                                        .desired = record_link_next(link, record)};
}

/* Writes the deferred writes. Readers of a private set ignore the block's `version` and
 * `notified`. */
static void enqueue_write_header(const struct enqueue_txn *enq, uint32_t unit,
                                 struct version_block *block, uint64_t version,
                                 const struct enqueue_links *links)
{
    uint32_t n = CONTENT_STATES + enq->states_n + enq->forecast_n;

    enqueue_store(&block->completed, version - 1);
    enqueue_store(&block->predecessor, enq->state_word);
    enqueue_store(&block->meta, block_meta(unit, n, 2));
    enqueue_store(&block->targets[0], links->word.target | (uint64_t)links->link.target << 32);
    enqueue_store(&block->writes[0][0], links->word.expected);
    enqueue_store(&block->writes[0][1], links->word.desired);
    enqueue_store(&block->writes[1][0], links->link.expected);
    enqueue_store(&block->writes[1][1], links->link.desired);
}

/* Writes the content with one waiter more. The states are read from the replaced block; the commit
 * succeeds only if that block is still current. */
static void enqueue_write_content(const struct enqueue_txn *enq, struct version_block *block,
                                  uint32_t record, uint64_t at_ns)
{
    const _Atomic uint64_t *states = enq->block->content + CONTENT_STATES;
    _Atomic uint64_t *to = block->content + CONTENT_STATES;
    size_t n = enq->states_n, forecast_n = enq->forecast_n;
    const uint64_t *forecast = enq->limit_words;

    enqueue_store(&block->content[CONTENT_ENDS], (uint64_t)record << 32 | (uint32_t)enq->ends);
    enqueue_store(&block->content[CONTENT_COUNT],
                  enq->count + 1); /* there are fewer records than it can count */
    enqueue_store(&block->content[CONTENT_LAST_NS], at_ns);
    for (size_t i = 0; i < n; i++)
        enqueue_store(&to[i], enqueue_load(&states[i]));
    for (size_t i = 0; i < forecast_n; i++)
        enqueue_store(&to[n + i], forecast[i]);
}

/* Completes a deferred write; a helper may have done so already, and more. */
static void enqueue_complete(_Atomic uint64_t *place, const struct deferred_write *write)
{
    uint64_t expected = write->expected;

    atomic_compare_exchange_strong_explicit(place, &expected, write->desired, memory_order_acq_rel,
                                            memory_order_relaxed);
    SCHED_POINT();
}

/* Publishes the version, as version_commit() does. Not inlined, to keep its registers apart. */
WEIR_NOINLINE bool enqueue_commit(const struct enqueue_txn *enq, uint32_t unit, uint32_t record,
                                  struct acq_record *r, uint64_t at_ns)
{
    _Atomic uint64_t *own_ref = block_own_ref(false, enq->region, unit, enq->block_class);
    uint64_t mine = atomic_load_explicit(own_ref, memory_order_acquire), expected = enq->state_word;
    uint64_t word = state_word_next(mine);
    struct version_block *block = block_at(false, enq->region, enq->block_class, word);
    struct enqueue_links links;

    WEIR_INVARIANT(mine && state_word_slot(mine) != state_word_slot(expected));
    enqueue_prepare(enq, record, r, &links);
    atomic_thread_fence(memory_order_release);
    enqueue_write_header(enq, unit, block, state_word_version(word), &links);
    enqueue_write_content(enq, block, record, at_ns);
    /* seq_cst: ordered with the store of `closed`, as in version_cas_word(). */
    if (!atomic_compare_exchange_strong_explicit(&enq->head->state_word, &expected, word,
                                                 memory_order_seq_cst, memory_order_seq_cst))
        return false;
    SCHED_POINT();
    WEIR_INVARIANT(record_may_become(links.word.expected, links.word.desired));
    enqueue_complete(&r->word, &links.word);
    enqueue_complete(&links.tail->next, &links.link);
    enqueue_store(own_ref, block_ref_of_word(enq->state_word));
    atomic_store_explicit(&block->completed, state_word_version(word), memory_order_release);
    SCHED_POINT();
    return true;
}

/* ---- enqueue ---- */

/* Extends a valid forecast by the request. False: the request can never be granted. */
static bool enqueue_forecast(const struct enqueue_txn *enq, const struct weir_instant *at,
                             const uint64_t *amounts)
{
    const struct limits *limits = enq->limits;
    const struct limit *limiting;

    if (enq->forecast_n)
        return forecast_extend(limits, at, enq->limit_words, amounts);
    return !limits->has_waits ||
           limits_ready_at(limits, enq->limit_words, at, amounts, true, &limiting) != WEIR_NEVER;
}

/* Returns true if this path serves the set: private, fair, and no key set. The slow path checks the
 * binding of key sets. */
static bool enqueue_supports(const weir_set *set)
{
    return !set->is_robust && !set_is_key_set(set) && set->fair &&
           !set->limits.has_opaque_resources;
}

/* Returns 1; 0 if the set has changed meanwhile; or -EINPROGRESS. */
static int enqueue_once(struct enqueue_txn *enq, struct thread_ctx *ctx, const weir_set *set,
                        const uint64_t *amounts, uint32_t record, struct decision *ret)
{
    /* After the state word: no published version can contain a later clock reading. */
    struct weir_instant at = clock_instant(&set->w->clock, set->limits.reads_wall);
    struct acq_record *r = record_at(enq->region, record);
    uint32_t departures = (uint32_t)(enq->count >> DEPARTURES_SHIFT) & WAITQ_COUNT_MASK;

    *ret = (struct decision){
        .now_ns = at.now_ns, .forecast_ns = WEIR_NEVER, .ticket = departures + enqueue_length(enq)};
    WEIR_INVARIANT((uint32_t)enq->ends && enq->ends >> 32 && enqueue_length(enq));
    if (at.now_ns < enq->last_ns)
        at.now_ns = enq->last_ns;
    if (!enqueue_forecast(enq, &at, amounts))
        return -EINPROGRESS;
    record_store(&r->enqueued_ns, ret->now_ns);
    SCHED_POINT();
    return enqueue_commit(enq, thread_ctx_for_set(ctx, set->number)->unit, record, r, at.now_ns);
}

int enqueue_waiter(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts, uint32_t record,
                   uint64_t max_wait_ns, struct decision *ret)
{
    struct enqueue_txn enq;
    unsigned turn = 0;
    int r;

    if (!enqueue_supports(set) || max_wait_ns != WEIR_FOREVER)
        return -EINPROGRESS;
    WEIR_INVARIANT(!set_is_shared(set) && thread_ctx_is_ready(ctx, set));
    WEIR_INVARIANT(set_content_max(set) <= ctx->content_capacity);
    enq.region = set->region;
    enq.head = region_block(set->region, set->head_unit);
    enq.block_class = enq.head->block_class;
    enq.limits = &set->limits;
    enq.states_n = set->limits.state_words;
    enq.limit_words = ctx->content;
    for (;; spin_backoff(&turn)) {
        if (!enqueue_read(&enq, set->max_waiters))
            return -EINPROGRESS;
        r = enqueue_once(&enq, ctx, set, amounts, record, ret);
        if (r != 0)
            return r;
    }
}
