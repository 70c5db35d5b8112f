/* SPDX-License-Identifier: MIT */
/* The steps of an operation that serves the line, compiled into operation.c, and into what is done
 * most often. */
#ifndef WEIR_CORE_SET_TXN_INTERNAL_H
#define WEIR_CORE_SET_TXN_INTERNAL_H

#include "api/instance.h"
#include "base/mutant.h"
#include "base/sched_point.h"
#include "set/txn.h"
#include "wait/notify.h"

/* One by one: most of it is arrays that are filled only up to their counts. */
static inline void operation_begin(struct operation *op, struct actor *actor, weir_set *set)
{
    op->actor = actor;
    op->set = set;
    op->version.content = actor->content;
    op->version.content_capacity = set->member ? set_content_max(set) : actor->content_capacity;
    op->version.form = set->form;
    op->wakes_n = 0;
    op->arm_ns = op->look_ns = WEIR_FOREVER;
    op->again = false;
    op->granted = 0;
    op->version.tells = false;
}

/* After the word: no published version can have read a later instant from the clock. */
static inline void operation_read_clock(struct operation *op)
{
    op->at = instance_instant(op->actor->w, op->set->limits.reads_wall);
    op->now_ns = op->at.now_ns;
    if (op->at.now_ns < op->version.content[CONTENT_LAST])
        op->at.now_ns = op->version.content[CONTENT_LAST];
}

/* When the head can be granted; if that is now, and nothing is reserved, what it waits for is
 * taken, and the actor has how much. */
static inline uint64_t operation_take_for(const struct operation *op, uint32_t head)
{
    const struct limits *limits = &op->set->limits;
    uint64_t *amounts = op->actor->granted_amounts;
    const struct limit *blame;

    if (op->at.now_ns != op->now_ns && !MUTANT(111))
        return operation_head_ready(op);
    operation_amounts(op, head, amounts);
    return limits_try_take(limits, operation_states(op), &op->at, amounts, &blame);
}

/* What it waited for was taken. */
static inline void operation_grant(struct operation *op, uint32_t record, const struct record *r)
{
    uint64_t word = record_load(&r->word), since = record_load(&r->since);
    uint64_t held = record_next_word(word, RECORD_HELD);

    line_pop_to(&op->version, link_record(record_load(&r->next)));
    /* In this order: whoever sees the record held finds the instant of the grant. */
    version_add_effect(&op->version, record, RECORD_GRANTED, record_load(&r->granted),
                       op->at.now_ns);
    version_add_effect(&op->version, record, RECORD_WORD, word, held);
    op->granted = record;
    op->waited_ns = op->at.now_ns > since ? op->at.now_ns - since : 0;
    if (!MUTANT(12))
        op->wakes[op->wakes_n++] = (struct wake){record, held};
}

/* Grants to the head if that can be now. Returns when it can, or could. */
static inline uint64_t operation_serve_head(struct operation *op, uint32_t head)
{
    uint64_t ready = operation_take_for(op, head);

    if (operation_is_due(op, ready) || (MUTANT(111) && ready <= op->at.now_ns))
        operation_grant(op, head, record_at(op->set->region, head));
    return ready;
}

/* What is said in each version: it is ready to be published. */
static inline void operation_close(struct operation *op)
{
    const weir_set *set = op->set;
    uint32_t n = set_content_min(set);
    uint32_t flags = version_flags(&op->version) & ~(uint32_t)CONTENT_EXPECTED;

    if (!line_length(&op->version))
        flags &= ~(uint32_t)CONTENT_PROJECTED;
    if (flags & CONTENT_PROJECTED)
        n += 1 + set->limits.state_words;
    version_set_flags(&op->version, flags);
    op->version.content[CONTENT_LAST] = op->at.now_ns;
    if (MUTANT(118))
        op->version.content[CONTENT_LAST] = op->now_ns;
    op->version.content_n = n;
    op->version.tells = set->member && op->wakes_n;
}

static inline void operation_count_grant(const struct operation *op)
{
    struct counters *counters = actor_counters(op->actor, op->set->number);

    count(&counters->granted, 1);
    for (uint32_t i = 0; i < op->set->limits.n; i++)
        count(&counters->limits[i].granted, op->actor->granted_amounts[i]);
}

/* Who is woken finds the grant counted. How long it took can wait until he is. */
static inline void operation_finish(const struct operation *op)
{
    if (op->granted)
        operation_count_grant(op);
    for (uint32_t i = 0; i < op->wakes_n; i++) {
        wake_waiter(op->set, op->wakes[i].record, op->wakes[i].word);
        STEP();
    }
    if (op->version.tells)
        publication_told(op->set->region, op->set->head, &op->version);
    if (op->arm_ns != WEIR_FOREVER)
        wake_at(op->set, op->arm.record, op->arm.word, op->arm_ns);
    if (op->granted)
        counters_waited(actor_counters(op->actor, op->set->number), op->waited_ns);
}

#endif
