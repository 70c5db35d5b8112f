/* SPDX-License-Identifier: MIT */
/* Joining a line that others are in: see set_enqueue.h. */
#include "set/set_enqueue.h"
#include "base/compiler.h"

#include "base/sched_point.h"
#include "set/instance_base.h"
#include "set/txn.h"
#include "state/version_block.h"
#include <errno.h>

/* One attempt: what is read of a version, and what becomes of it. Its states are not among that. */
struct enqueue_txn {
    const struct region *region;
    struct set_head *head;
    uint32_t block_class;
    const struct limits *limits;
    uint32_t states_n;     /* words of the limits' states */
    uint32_t forecast_n;   /* of the projection behind them; 0: there is none */
    uint64_t *limit_words; /* memory of the actor's: that, or else the states */
    const struct version_block *block;
    uint64_t state_word; /* the set's, which names that box */
    uint64_t ends, count, last_ns;
};

/* Between whom he is to stand: what his record's word and the link behind the tail are, and become. */
struct enqueue_links {
    struct acq_record *tail;
    struct deferred_write word, link;
};

static uint64_t enqueue_load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

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

/* Whether nothing but his place is to be decided of a newcomer, because others are in line. */
static bool enqueue_is_allowed(const struct enqueue_txn *enq, uint32_t max_waiters)
{
    uint32_t length = enqueue_length(enq);
    uint64_t flags = enq->count >> CONTENT_FLAGS_SHIFT;

    return length && !(flags & ~(uint64_t)CONTENT_FORECAST) &&
           (!max_waiters || length < max_waiters);
}

/* What the limits are asked by, if there is anything to ask of them: a resource waits for what is
 * given back, whatever it is. */
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

/* Reads a version that owes nothing any more. False: it is none yet, or takes more than a place. */
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

/* ---- the version behind it ---- */

/* The record, which is free and the caller's, as the one behind the tail. As waitq_enqueue(). */
static void enqueue_prepare(const struct enqueue_txn *enq, uint32_t record, struct acq_record *r,
                            struct enqueue_links *ret)
{
    uint32_t tail = (uint32_t)(enq->ends >> 32);
    struct acq_record *ahead = record_at(enq->region, tail);
    uint64_t word = record_load(&r->word), link = record_load(&ahead->next);

    waitq_prepare(r, word, tail);
    ret->tail = ahead;
    ret->word = (struct deferred_write){.target = deferred_write_target(record, RECORD_FIELD_WORD),
                                        .expected = word,
                                        .desired = record_next_word(word, RECORD_WAITING)};
    ret->link = (struct deferred_write){.target = deferred_write_target(tail, RECORD_FIELD_NEXT),
                                        .expected = link,
                                        .desired = record_link_next(link, record)};
}

/* What is owed with it. In private memory nobody looks at which version of a box it is, nor whether
 * it was told of. */
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

/* The line is one longer. What is read of the other box here counts only if the commit finds that it
 * is still current. */
static void enqueue_write_content(const struct enqueue_txn *enq, struct version_block *block,
                                  uint32_t record, uint64_t at_ns)
{
    const _Atomic uint64_t *states = enq->block->content + CONTENT_STATES;
    _Atomic uint64_t *to = block->content + CONTENT_STATES;
    size_t n = enq->states_n, forecast_n = enq->forecast_n;
    const uint64_t *forecast = enq->limit_words;

    enqueue_store(&block->content[CONTENT_ENDS], (uint64_t)record << 32 | (uint32_t)enq->ends);
    enqueue_store(&block->content[CONTENT_COUNT],
                  enq->count + 1); /* there are fewer records than it holds */
    enqueue_store(&block->content[CONTENT_LAST_NS], at_ns);
    for (size_t i = 0; i < n; i++)
        enqueue_store(&to[i], enqueue_load(&states[i]));
    for (size_t i = 0; i < forecast_n; i++)
        enqueue_store(&to[n + i], forecast[i]);
}

/* Somebody else may have done it by now, and more. */
static void enqueue_complete(_Atomic uint64_t *place, const struct deferred_write *write)
{
    uint64_t expected = write->expected;

    atomic_compare_exchange_strong_explicit(place, &expected, write->desired, memory_order_acq_rel,
                                            memory_order_relaxed);
    SCHED_POINT();
}

/* As version_commit(). Apart from the rest, which needs registers of its own. */
WEIR_NOINLINE bool enqueue_commit(const struct enqueue_txn *enq, uint32_t unit, uint32_t record,
                                  struct acq_record *r, uint64_t at_ns)
{
    _Atomic uint64_t *own_ref = block_own_ref(false, enq->region, unit, enq->block_class);
    uint64_t mine = atomic_load_explicit(own_ref, memory_order_acquire), expected = enq->state_word;
    uint64_t word = state_word_next(mine);
    struct version_block *block = block_at(false, enq->region, enq->block_class, word);
    struct enqueue_links links;

    enqueue_prepare(enq, record, r, &links);
    atomic_thread_fence(memory_order_release);
    enqueue_write_header(enq, unit, block, state_word_version(word), &links);
    enqueue_write_content(enq, block, record, at_ns);
    /* In one order with what says that the instance is closed, as version_cas_word(). */
    if (!atomic_compare_exchange_strong(&enq->head->state_word, &expected, word))
        return false;
    SCHED_POINT();
    enqueue_complete(&r->word, &links.word);
    enqueue_complete(&links.tail->next, &links.link);
    enqueue_store(own_ref, block_ref_of_word(enq->state_word));
    atomic_store_explicit(&block->completed, state_word_version(word), memory_order_release);
    SCHED_POINT();
    return true;
}

/* ---- joining ---- */

/* What others are in line for is foreseen of one more, if it was of them. False: he can never be
 * granted. */
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

/* 1, 0: the set has changed meanwhile, or -EINPROGRESS. */
static int enqueue_once(struct enqueue_txn *enq, struct thread_ctx *ctx, const weir_set *set,
                        const uint64_t *amounts, uint32_t record, struct decision *ret)
{
    /* After the word: no published version can have read a later instant from the clock. */
    struct weir_instant at = clock_instant(&set->w->clock, set->limits.reads_wall);
    struct acq_record *r = record_at(enq->region, record);
    uint32_t departures = (uint32_t)(enq->count >> DEPARTURES_SHIFT) & WAITQ_COUNT_MASK;

    *ret = (struct decision){
        .now_ns = at.now_ns, .forecast_ns = WEIR_NEVER, .ticket = departures + enqueue_length(enq)};
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

    if (set->is_shared || set_is_key_set(set) || !set->fair || set->limits.has_opaque_resources ||
        max_wait_ns != WEIR_FOREVER)
        return -EINPROGRESS;
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
