/* SPDX-License-Identifier: MIT */
/* Looks at the limits of a key, and changes nothing: forecasts, and what remains of them. */
#include "keyed/keyed_internal.h"

#include "base/invariant.h"
#include "set/instance_base.h"
#include "set/shadow.h"
#include <errno.h>
#include <string.h>

/* A look at the state of a key: at the words of its states, or at the key set that has them, maybe
 * again and again. */
struct keyed_look {
    void (*at_states)(struct keyed_look *look, const struct limits *limits, const uint64_t *states,
                      const struct weir_instant *at);
    void (*at_key_set)(struct keyed_look *look, weir_set *key_set);
    struct acquire_op *op;
    enum forecast_walk walk;    /* of a forecast */
    struct weir_remaining *ret; /* of what remains */
    uint32_t n;
};

/* Looks at the state of a key of the set; of one that is not known, at that of a new one. Returns
 * false if it cannot be found: the set is broken, or memory is short. */
static bool keyed_look(struct keyed_look *look, weir_set *set, const struct key_digest *key)
{
    struct keyed_slot slot = {.keyed = keyed_of(set), .ctx = look->op->ctx, .key = key};
    struct thread_ctx *ctx = look->op->ctx; /* its content is room for states, and may move */
    struct weir_instant at;

    WEIR_INVARIANT(ctx->w == set->w);
    while (keyed_slot_find(&slot)) {
        uint64_t word = slot.entry.word;
        const struct keyed *of = keyed_definition_of(slot.keyed, slot.entry.id);
        struct key_set storage, *key_set;

        if (!of) { /* a definition has come since this one was found to be the latest */
            (void)keyed_may_be_later(slot.keyed);
            return false;
        }
        if (of != slot.keyed && !key_word_is_key_set(word) && !keyed_is_valid(of, word))
            return false;
        if (of != slot.keyed && !key_word_is_key_set(word)) {
            keyed_convert(ctx, slot.keyed, of, &word, 0, ctx->content);
            at = clock_instant(&set->w->clock, set->limits.clock_needs);
            look->at_states(look, &set->limits, ctx->content, &at);
            return true;
        }
        if (!key_word_is_key_set(word) && keyed_is_valid(slot.keyed, word)) {
            at = clock_instant(&set->w->clock, set->limits.clock_needs);
            look->at_states(look, &set->limits, &word, &at);
            return true;
        }
        key_set = key_set_at(slot.keyed, word, &storage);
        if (keyed_is_outdated(slot.keyed) || (!key_set && !set_is_shared(set)))
            return false; /* there is a later one, or no memory for this one */
        if (key_set)
            look->at_key_set(look, &key_set->set);
        /* A word that named a key set all the time: its states were the key's. */
        if (key_set && keyed_slot_is_same(&slot))
            return !set_is_shared(set) || !keyed_is_outdated(slot.keyed);
        if (set_is_broken(set) || !key_set_repair(&slot))
            return false;
    }
    at = clock_instant(&set->w->clock, set->limits.clock_needs);
    memset(ctx->content, 0, (set->limits.state_words - KEY_SET_WORDS) * sizeof(*ctx->content));
    limits_init(&set->limits, ctx->content, &at);
    look->at_states(look, &set->limits, ctx->content, &at);
    return true;
}

/* ---- forecasts ---- */

static void keyed_forecast_states(struct keyed_look *look, const struct limits *limits,
                                  const uint64_t *states, const struct weir_instant *at)
{
    struct acquire_op *op = look->op;
    struct decision *ret = &op->decision;

    *ret = (struct decision){.now_ns = at->now_ns};
    /* If only a resource is short, it is the limiting one, although it has no forecast. */
    limits_ready_at(limits, states, at, op->amounts, true, &ret->limiting);
    ret->forecast_ns = limits_ready_at(limits, states, at, op->amounts, false, &ret->limiting);
}

static void keyed_forecast_key_set(struct keyed_look *look, weir_set *key_set)
{
    struct acquire_op *op = look->op;

    set_forecast(op->ctx, key_set, &(struct newcomer){.amounts = op->amounts, .within = op->within},
                 look->walk, &op->decision);
}

static void keyed_forecast_key(struct acquire_op *op, weir_set *set, const struct key_digest *key,
                               enum forecast_walk walk)
{
    struct keyed_look look = {.at_states = keyed_forecast_states,
                              .at_key_set = keyed_forecast_key_set,
                              .op = op,
                              .walk = walk};

    if (!keyed_look(&look, set, key))
        op->decision =
            (struct decision){.now_ns = clock_now_ns(&set->w->clock), .forecast_ns = WEIR_NEVER};
}

/* Forecasts by the definition that has succeeded that of the request. */
static void keyed_forecast_moved(struct acquire_op *op, const weir_set *set, weir_set *newest,
                                 const struct key_digest *key, enum forecast_walk walk)
{
    struct acquire_op moved = *op;

    moved.ctx = moved_borrow_ctx(op->ctx, newest);
    successor_translate(newest, set, UINT32_MAX, moved.amounts);
    shadow_remove(newest, 0, moved.amounts);
    keyed_forecast_key(&moved, newest, key, walk);
    moved_return_ctx(op->ctx, moved.ctx);
    op->decision = moved.decision;
}

void keyed_forecast(struct acquire_op *op, uint32_t record, enum forecast_walk walk)
{
    weir_set *set = key_set_template(op->set), *newest;
    const struct key_digest key = record ? keyed_record_key(set, record) : op->key;
    uint64_t amounts[WEIR_LIMITS_MAX];

    memcpy(amounts, op->amounts, set->limits.n * sizeof(*amounts));
    do {
        newest = set_current(set);
        memcpy(op->amounts, amounts, set->limits.n * sizeof(*amounts)); /* less a grant in shadow */
        if (newest != set)
            keyed_forecast_moved(op, set, newest, &key, walk);
        else if (!set->limits.has_shadow || !shadow_forecast(op, record))
            keyed_forecast_key(op, set, &key, walk);
    } while (set_current(newest) != newest);
}

/* ---- what remains ---- */

static void keyed_remaining_states(struct keyed_look *look, const struct limits *limits,
                                   const uint64_t *states, const struct weir_instant *at)
{
    for (uint32_t i = 0; i < look->n; i++)
        limit_remaining(&limits->items[i], states + limits->items[i].state_offset, at, at->now_ns,
                        &look->ret[i]);
}

static void keyed_remaining_key_set(struct keyed_look *look, weir_set *key_set)
{
    set_remaining(look->op->ctx, key_set, look->ret, look->n); /* a broken set is seen below */
}

int keyed_remaining(struct acquire_op *op, struct weir_remaining *ret, uint32_t n)
{
    struct keyed_look look = {.at_states = keyed_remaining_states,
                              .at_key_set = keyed_remaining_key_set,
                              .op = op,
                              .ret = ret,
                              .n = n};

    bool is_found = keyed_look(&look, op->set, &op->key);

    if (set_is_broken(op->set))
        return -EUCLEAN;
    if (is_found)
        return 0;
    return set_current(op->set) == op->set ? -ENOMEM : -ESTALE;
}
