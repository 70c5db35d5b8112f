/* SPDX-License-Identifier: MIT */
/* Forecasts when a key could be granted an amount. Changes nothing. */
#include "keyed/keyed_internal.h"

#include "base/invariant.h"
#include "keyed/key_set.h"
#include "set/instance_base.h"
#include <errno.h>
#include <string.h>

static void keyed_forecast_states(const weir_set *set, const uint64_t *states,
                                  const struct weir_instant *at, const uint64_t *amounts,
                                  struct decision *ret)
{
    *ret = (struct decision){.now_ns = at->now_ns};
    /* If only a resource is short, it is the limiting one, although it has no forecast. */
    limits_ready_at(&set->limits, states, at, amounts, true, &ret->limiting);
    ret->forecast_ns = limits_ready_at(&set->limits, states, at, amounts, false, &ret->limiting);
}

void keyed_forecast(struct thread_ctx *ctx, weir_set *set, const struct key_digest *key,
                    const uint64_t *amounts, enum forecast_walk forecast_walk, struct decision *ret)
{
    struct keyed *keyed = set->keyed;
    uint64_t *states = ctx->content;
    struct weir_instant at;
    struct key_entry entry;

    WEIR_INVARIANT(keyed && ctx->w == set->w);
    while (key_table_find(&keyed->table, key, &entry)) {
        struct key_set storage, *key_set;

        if (!key_word_is_key_set(entry.word) && keyed_is_valid(keyed, entry.word)) {
            at = clock_instant(&set->w->clock, set->limits.reads_wall);
            keyed_forecast_states(set, &entry.word, &at, amounts, ret);
            return;
        }
        key_set = key_set_at(keyed, entry.word, &storage);
        if (key_set && key_set_forecast(ctx, key_set, entry.word, amounts, forecast_walk, ret))
            return;
        if (set_is_broken(set) || key_set_repair(ctx, keyed, key, &entry) == -EUCLEAN) {
            *ret = (struct decision){.now_ns = clock_now_ns(&set->w->clock),
                                     .forecast_ns = WEIR_NEVER};
            return;
        }
    }
    at = clock_instant(&set->w->clock, set->limits.reads_wall);
    memset(states, 0, (set->limits.state_words - KEY_SET_WORDS) * sizeof(*states));
    limits_init(&set->limits, states, &at);
    keyed_forecast_states(set, states, &at, amounts, ret);
}

void keyed_forecast_record(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                           const uint64_t *amounts, enum forecast_walk forecast_walk,
                           struct decision *ret)
{
    const struct key_digest key = keyed_record_key(set, record);

    keyed_forecast(ctx, set, &key, amounts, forecast_walk, ret);
}
