/* SPDX-License-Identifier: MIT */
/* Connects the keys and amounts of the traffic with the limits of a candidate. */
#include "engine_keys.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Adds the keys of rates that the traffic does not name: 1 of each is requested. */
static void add_rates(struct engine *engine)
{
    const struct candidate *candidate = engine->candidate;

    for (uint32_t i = 0; i < candidate->limits_n && engine->keys_n < ENGINE_KEYS_MAX; i++) {
        unsigned key = 0;

        while (key < engine->keys_n && strcmp(engine->keys[key], candidate->limits[i].key) != 0)
            key++;
        if (key == engine->keys_n && candidate->limits[i].type == WEIR_LIMIT_RATE)
            engine->keys[engine->keys_n++] = candidate->limits[i].key;
    }
}

/* Connects keys and limits. */
static void connect_keys(struct engine *engine)
{
    const struct candidate *candidate = engine->candidate;

    for (size_t i = 0; i < (size_t)candidate->sets_n * ENGINE_KEYS_MAX; i++)
        engine->key_limits[i] = -1;
    for (uint32_t i = 0; i < candidate->limits_n; i++) {
        const struct candidate_limit *limit = &candidate->limits[i];

        engine->limit_keys[i] = -1;
        for (unsigned key = 0; key < engine->keys_n; key++) {
            int *first = &engine->key_limits[(size_t)limit->set * ENGINE_KEYS_MAX + key];

            if (strcmp(engine->keys[key], limit->key) != 0)
                continue;
            engine->limit_keys[i] = (int)key;
            engine->has_key[key] = true;
            if (*first < 0)
                *first = (int)i;
        }
    }
}

/* Finds what is used of each amount. Returns 0, or -EINVAL after a message. */
static int connect_used(struct engine *engine)
{
    const struct mapping *mapping = engine->options.mapping;

    for (unsigned i = 0; i < EVENT_VALUES_MAX; i++)
        engine->used[i] = -1;
    for (unsigned used = mapping->amounts_n; used < mapping->values_n; used++) {
        unsigned key = 0;

        while (key < mapping->amounts_n && strcmp(mapping->keys[key], mapping->keys[used]) != 0)
            key++;
        if (key == mapping->amounts_n) {
            fprintf(stderr, "%s: --used %s needs --amount %s\n", engine->candidate->command,
                    mapping->keys[used], mapping->keys[used]);
            return -EINVAL;
        }
        engine->used[key] = (int)used;
    }
    return 0;
}

int engine_open_keys(struct engine *engine)
{
    const struct candidate *candidate = engine->candidate;
    const struct mapping *mapping = engine->options.mapping;

    if (engine->options.mode == ENGINE_TAKE && candidate->sets_n > 1) {
        fprintf(stderr, "%s: %s: --mode take is for one set\n", candidate->command,
                candidate->name);
        return -EINVAL; /* nothing tells which set it was taken from */
    }
    for (unsigned i = 0; i < mapping->amounts_n; i++)
        engine->keys[engine->keys_n++] = mapping->keys[i];
    add_rates(engine);
    engine->key_limits =
        calloc((size_t)candidate->sets_n * ENGINE_KEYS_MAX, sizeof(*engine->key_limits));
    engine->bindings = calloc((size_t)candidate->sets_n + 1, sizeof(*engine->bindings));
    engine->limit_keys = calloc((size_t)candidate->limits_n + 1, sizeof(*engine->limit_keys));
    if (!engine->key_limits || !engine->limit_keys || !engine->bindings)
        return -ENOMEM;
    for (uint32_t i = 0; i < candidate->sets_n; i++)
        engine->bindings[i] = -1;
    connect_keys(engine);
    engine->keeps_nothing = mapping->values_n == mapping->amounts_n;
    for (uint32_t i = 0; i < candidate->limits_n; i++)
        if (candidate->limits[i].type == WEIR_LIMIT_RESOURCE)
            engine->keeps_nothing = false;
    return connect_used(engine);
}
