/* SPDX-License-Identifier: MIT */
/* Keyed sets: when a key could be granted something, which changes nothing. */
#include "keyed/keyed_internal.h"

#include "api/instance.h"
#include "keyed/key_set.h"
#include <errno.h>
#include <string.h>

static void estimate_states(const weir_set *set, const uint64_t *states,
                            const struct weir_instant *at, const uint64_t *amounts,
                            struct verdict *ret)
{
    *ret = (struct verdict){.now_ns = at->now_ns};
    /* If only a resource is short, that is what is to blame, though nothing can be foreseen. */
    limits_ready_at(&set->limits, states, at, amounts, true, &ret->blame);
    ret->estimate_ns = limits_ready_at(&set->limits, states, at, amounts, false, &ret->blame);
}

void keyed_estimate(struct actor *actor, weir_set *set, const struct key *key,
                    const uint64_t *amounts, enum walk walk, struct verdict *ret)
{
    struct keyed *keyed = set->keyed;
    uint64_t *states = actor->content;
    struct weir_instant at;
    struct key_entry entry;

    while (key_table_find(&keyed->table, key, &entry)) {
        struct live storage, *live;

        if (!word_is_live(entry.word) && keyed_is_sound(keyed, entry.word)) {
            at = instance_instant(set->w, set->limits.reads_wall);
            estimate_states(set, &entry.word, &at, amounts, ret);
            return;
        }
        live = live_at(keyed, entry.word, &storage);
        if (live && live_estimate(actor, live, entry.word, amounts, walk, ret))
            return;
        if (set_is_broken(set) || live_mend(actor, keyed, key, &entry) == -EUCLEAN) {
            *ret = (struct verdict){.now_ns = instance_now(set->w), .estimate_ns = WEIR_NEVER};
            return;
        }
    }
    at = instance_instant(set->w, set->limits.reads_wall);
    memset(states, 0, (set->limits.state_words - LIVE_WORDS) * sizeof(*states));
    limits_init(&set->limits, states, &at);
    estimate_states(set, states, &at, amounts, ret);
}

void keyed_estimate_record(struct actor *actor, weir_set *set, uint32_t record,
                           const uint64_t *amounts, enum walk walk, struct verdict *ret)
{
    const struct key key = key_of(set, record);

    keyed_estimate(actor, set, &key, amounts, walk, ret);
}
