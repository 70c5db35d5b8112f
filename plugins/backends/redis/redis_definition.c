/* SPDX-License-Identifier: MIT */
/* The definition of a set, as every call carries it. */
#include "redis_definition.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define WINDOW_MAX_US (UINT64_C(1) << 51)
#define LOG_MAX       (UINT64_C(1) << 20) /* entries of an exact log */
#define NS_PER_US     1000

__extension__ typedef unsigned __int128 definition_u128;

/* An algorithm that the server has too, by the name and the state_id of its plugin. `extra` names
 * the parameter that only it has. */
struct definition_algorithm {
    uint64_t state_id;
    const char *name, *extra;
    char letter;
    int has_burst;
    int is_time; /* the extra is a duration */
};

static const struct definition_algorithm definition_algorithms[] = {
    {UINT64_C(0x2842883cf3aa332f), "token_bucket", "every", 't', 1, 1},
    {UINT64_C(0xe0523881fe18ae4b), "gcra", "", 'g', 1, 0},
    {UINT64_C(0x29e0040b825d8ead), "leaky_bucket", "mode", 'l', 0, 0},
    {UINT64_C(0x11d0232e4869e5ef), "sliding_window", "segments", 's', 0, 0},
    {UINT64_C(0x2127feb9f4472599), "fixed_window", "anchor", 'f', 0, 0},
};

struct definition_text {
    char *at;
    size_t left; /* 0: it was too long */
};

static void definition_add(struct definition_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void definition_add(struct definition_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text->at, text->left, format, arguments);
    va_end(arguments);
    if (n < 0 || (size_t)n >= text->left) {
        text->left = 0;
        return;
    }
    text->at += n;
    text->left -= (size_t)n;
}

static int definition_refuse(struct weir_reason *reterr, const char *limit, const char *message)
{
    snprintf(reterr->message, sizeof(reterr->message), "limit `%s`: %s", limit, message);
    return -EINVAL;
}

static const struct weir_backend_limit *definition_limit(const struct weir_backend_set *set,
                                                         uint32_t i)
{
    return (const void *)((const char *)set->limits + i * set->limits->size);
}

static uint64_t definition_setting(const struct weir_backend_limit *limit, const char *name,
                                   uint64_t otherwise)
{
    for (uint32_t i = 0; i < limit->settings_n; i++) {
        if (!strcmp(limit->settings[i].name, name))
            return limit->settings[i].value;
    }
    return otherwise;
}

/* A plugin of the same name that is another one is none of the server's: NULL. So is one of a core
 * that tells no state_id. */
static const struct definition_algorithm *
definition_algorithm(const struct weir_backend_limit *limit)
{
    const size_t with_id = offsetof(struct weir_backend_limit, state_id) + sizeof(limit->state_id);
    for (size_t i = 0; i < sizeof(definition_algorithms) / sizeof(*definition_algorithms); i++) {
        const struct definition_algorithm *algorithm = &definition_algorithms[i];
        if (limit->size >= with_id && limit->state_id == algorithm->state_id &&
            !strcmp(algorithm->name, limit->algorithm))
            return algorithm;
    }
    return NULL;
}

/* The numbers of a rate. Durations are ns. */
enum { CAPACITY, WINDOW, BURST, INITIAL, EXTRA, RATE_NUMBERS };

/* Returns how much a batch can have, or one request: what the server makes of the burst, so that
 * all that is used by the end of batches keeps to the definition (buckets.lua). 0: nothing. */
static uint64_t definition_leased(const struct weir_backend_limit *limit,
                                  const struct definition_algorithm *algorithm, const uint64_t *n)
{
    definition_u128 less;
    uint64_t steps, delta = limit->lease_for_ns;
    if (!delta || algorithm->letter == 's' || algorithm->letter == 'f')
        return n[BURST];
    if (algorithm->is_time && n[EXTRA]) {
        steps = (delta + n[EXTRA] - 2 * NS_PER_US) / n[EXTRA];
        less = (definition_u128)n[EXTRA] * n[CAPACITY] / n[WINDOW] * steps;
    } else {
        less = ((definition_u128)delta * n[CAPACITY] + n[WINDOW] - 1) / n[WINDOW];
    }
    return less < n[BURST] ? n[BURST] - (uint64_t)less : 0;
}

static const char *definition_wrong_lease(const struct weir_backend_limit *limit,
                                          const struct definition_algorithm *algorithm,
                                          const uint64_t *n)
{
    if (!limit->lease_for_ns)
        return NULL;
    if (algorithm->letter == 'l' && n[EXTRA])
        return "a shaper cannot be leased: its units leave one by one";
    if (limit->lease_for_ns % NS_PER_US)
        return "`lease` on a Redis server is for whole microseconds";
    if (limit->lease_for_ns / NS_PER_US > WINDOW_MAX_US)
        return "`lease` on a Redis server is for at most 71 years";
    if (definition_leased(limit, algorithm, n) == 0)
        return "what flows in during `lease` is all of the burst: make it shorter, or the burst "
               "larger";
    return NULL;
}

static const char *definition_wrong(const struct weir_backend_limit *limit,
                                    const struct definition_algorithm *algorithm, const uint64_t *n)
{
    if (n[WINDOW] == 0 || n[WINDOW] % NS_PER_US)
        return "a window on a Redis server is whole microseconds";
    if (n[WINDOW] / NS_PER_US > WINDOW_MAX_US)
        return "a window on a Redis server is at most 71 years";
    if (algorithm->is_time && n[EXTRA] % NS_PER_US)
        return "`every` on a Redis server is whole microseconds";
    if (n[CAPACITY] == 0 || n[CAPACITY] > REDIS_AMOUNT_MAX || n[BURST] == 0 ||
        n[BURST] > REDIS_AMOUNT_MAX || n[INITIAL] > n[BURST])
        return "amounts on a Redis server are from 1 to 2^49";
    if (algorithm->letter == 's' && n[EXTRA] == 0 && n[CAPACITY] > LOG_MAX &&
        n[WINDOW] / NS_PER_US > LOG_MAX)
        return "an exact log on a Redis server has at most 1048576 entries: set `segments`";
    if (limit->charges && algorithm->letter != 't' && algorithm->letter != 'g')
        return "only token_bucket and gcra have debt";
    return definition_wrong_lease(limit, algorithm, n);
}

/* A limit of an algorithm that the server does not have. */
static int definition_foreign(const struct weir_backend_limit *limit, struct definition_text *text,
                              struct weir_reason *reterr)
{
    uint64_t most = limit->capacity < REDIS_AMOUNT_MAX ? limit->capacity : REDIS_AMOUNT_MAX;
    if (limit->lease_for_ns)
        return definition_refuse(
            reterr, limit->key,
            "a Redis server leases units of the algorithms token_bucket, gcra, "
            "leaky_bucket, sliding_window and fixed_window only");
    definition_add(text, "/x,%" PRIu64 ",%d", most, limit->type == WEIR_LIMIT_RESOURCE);
    return 0;
}

static int definition_rate(const struct weir_backend_limit *limit, struct definition_text *text,
                           struct weir_reason *reterr)
{
    const struct definition_algorithm *algorithm = definition_algorithm(limit);
    if (redis_definition_is_foreign(limit))
        return definition_foreign(limit, text, reterr);
    uint64_t capacity = definition_setting(limit, "capacity", 0);
    uint64_t burst = algorithm->has_burst ? definition_setting(limit, "burst", 0) : 0;
    burst = burst ? burst : capacity;
    uint64_t n[RATE_NUMBERS] = {capacity, definition_setting(limit, "window", 0), burst,
                                definition_setting(limit, "initial", burst),
                                definition_setting(limit, algorithm->extra, 0)};
    const char *wrong = definition_wrong(limit, algorithm, n);
    if (wrong)
        return definition_refuse(reterr, limit->key, wrong);
    definition_add(
        text, "/%c,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%u,%u",
        algorithm->letter, capacity, n[WINDOW] / NS_PER_US, burst, n[INITIAL],
        algorithm->is_time ? n[EXTRA] / NS_PER_US : n[EXTRA], limit->lease_for_ns / NS_PER_US,
        limit->refund, limit->charges);
    if (limit->lease_for_ns)
        *limit->ret_capacity = definition_leased(limit, algorithm, n);
    return 0;
}

uint64_t redis_definition_waiters(const struct weir_backend_set *set)
{
    return set->max_waiters == 0 || set->max_waiters > REDIS_WAITERS_MAX ? REDIS_WAITERS_MAX
                                                                         : set->max_waiters;
}

int redis_definition_is_foreign(const struct weir_backend_limit *limit)
{
    return limit->algorithm && !definition_algorithm(limit);
}

/* FNV-1a: all nodes, of any version, make the same of the same. */
static uint64_t definition_hash(uint64_t hash, const void *bytes, size_t n)
{
    for (const unsigned char *byte = bytes; n > 0; byte++, n--)
        hash = (hash ^ *byte) * UINT64_C(0x100000001b3);
    return hash;
}

/* Keys, with their zeros; and all about the limits that nodes decide. */
uint64_t redis_definition_shape(const struct weir_backend_set *set)
{
    const size_t with_identity = offsetof(struct weir_backend_limit, identity) + sizeof(uint64_t);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (uint32_t i = 0; i < set->limits_n; i++) {
        const struct weir_backend_limit *limit = definition_limit(set, i);
        hash = definition_hash(hash, limit->key, strlen(limit->key) + 1);
        hash = definition_hash(hash, &limit->type, sizeof(limit->type));
        if (redis_definition_is_foreign(limit) && limit->size >= with_identity)
            hash = definition_hash(hash, &limit->identity, sizeof(limit->identity));
    }
    return hash;
}

int redis_definition_write(const struct weir_backend_set *set,
                           const struct redis_definition_options *options,
                           char ret[REDIS_DEFINITION_MAX + 1], struct weir_reason *reterr)
{
    struct definition_text text = {ret, REDIS_DEFINITION_MAX + 1};
    uint64_t waiters = redis_definition_waiters(set);
    reterr->parameter = UINT32_MAX;
    definition_add(&text, "%016" PRIx64, set->fingerprint);
    if (set->revision)
        definition_add(&text, ".%" PRIu32 ".%016" PRIx64, set->revision,
                       redis_definition_shape(set));
    definition_add(&text, "/%s%s/%" PRIu64 "/%" PRIu64, set->fair ? "" : "b",
                   options->drains ? "d"
                   : set->fair     ? "-"
                                   : "",
                   waiters, options->session_us);
    for (uint32_t i = 0; i < set->limits_n; i++) {
        const struct weir_backend_limit *limit = definition_limit(set, i);
        if (limit->algorithm) {
            int r = definition_rate(limit, &text, reterr);
            if (r < 0)
                return r;
        } else if (limit->capacity == 0 || limit->capacity > REDIS_AMOUNT_MAX) {
            return definition_refuse(reterr, limit->key,
                                     "amounts on a Redis server are from 1 to 2^49");
        } else {
            definition_add(&text, "/r,%" PRIu64, limit->capacity);
        }
    }
    if (text.left == 0) {
        snprintf(reterr->message, sizeof(reterr->message),
                 "the definition of a set on a Redis server has at most %d bytes",
                 REDIS_DEFINITION_MAX);
        return -EINVAL;
    }
    return (int)(text.at - ret);
}

uint64_t redis_definition_initial(const struct weir_backend_limit *limit)
{
    if (!limit->algorithm)
        return limit->capacity;
    uint64_t burst = definition_setting(limit, "burst", 0);
    burst = burst ? burst : definition_setting(limit, "capacity", 0);
    return definition_setting(limit, "initial", burst);
}
