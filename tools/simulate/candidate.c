/* SPDX-License-Identifier: MIT */
/* A candidate: a configuration on a clock that the simulation moves. */
#include "candidate.h"
#include "base/units.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETTINGS_MAX 80 /* of a limit: 64 parameters, and the fields of every limit */

static uint64_t look_at_clock(void *userdata)
{
    const struct candidate *candidate = userdata;

    return candidate->now_ns;
}

/* ---- reading ---- */

/* Returns the only name of a list, or NULL. */
static const char *only_name(weir *w, int (*list)(weir *w, const char **ret, size_t n))
{
    const char *name;

    return list(w, &name, 1) == 1 ? name : NULL;
}

/* Chooses the pool or set: the only pool, or without a pool the only set. Keeps a copy. */
static int choose_target(struct candidate *candidate, weir *w, const char *target)
{
    const char *name = target;
    struct weir_error error = {0};
    weir_pool *pool = NULL;
    int r;

    if (!name)
        name = weir_pools(w, NULL, 0) > 0 ? only_name(w, weir_pools) : only_name(w, weir_sets);
    if (!name) {
        fprintf(stderr, "%s: %s: has not one pool or set: --set NAME says which\n",
                candidate->command, candidate->name);
        return -EINVAL;
    }
    r = weir_pool_open(&pool, w, name, 0, &error);
    weir_pool_close(pool);
    if (r < 0) {
        source_complain(candidate->command, &error);
        return -EINVAL;
    }
    candidate->target = strdup(name);
    return candidate->target ? 0 : -ENOMEM;
}

/* Returns whether the configuration may have a field of this name. */
static bool has_word(const struct candidate *candidate, const char *name)
{
    return candidate->text && strstr(candidate->text, name);
}

int candidate_read(struct candidate *ret, const struct source *source, const char *target,
                   const char *command)
{
    weir *w;
    int r;

    *ret = (struct candidate){.command = command, .source = *source};
    ret->source.text = NULL;
    ret->source.owns_dirs = false;
    ret->source.flags = WEIR_OPEN_APART | WEIR_OPEN_OFFLINE | WEIR_OPEN_REQUIRE_CONFIG;
    source_read(&ret->source);
    ret->text = ret->source.text;
    ret->name = ret->source.file ? ret->source.file : "WEIR_CONFIG";
    ret->has_max_hold = has_word(ret, "max_hold");
    ret->is_taken_apart = ret->has_max_hold || has_word(ret, "shadow") || has_word(ret, "enforce");
    r = source_open(&ret->source, NULL, command, &w);
    if (r < 0)
        return ret->text ? -EINVAL : -EIO;
    if (!ret->text) { /* it is there again, or is no text */
        fprintf(stderr, "%s: %s: cannot be read\n", command, ret->name);
        r = -EIO;
    }
    if (r == 0)
        r = choose_target(ret, w, target);
    weir_close(w);
    return r;
}

/* ---- opening ---- */

/* Returns a setting of a limit as a number, or 0: it has none. */
static uint64_t limit_setting(weir_set *set, size_t limit, const char *name, enum units_kind kind)
{
    struct weir_setting settings[SETTINGS_MAX];
    uint64_t value = 0;
    int n = weir_set_limit_settings(set, limit, settings, SETTINGS_MAX);

    for (int i = 0; i < n && i < SETTINGS_MAX; i++)
        if (strcmp(settings[i].name, name) == 0)
            return units_parse(kind, settings[i].value, &value) == 0 ? value : 0;
    return 0;
}

static void describe_limit(struct candidate *candidate, uint32_t set, uint32_t number,
                           const struct weir_limit_stats *stats)
{
    weir_set *of = candidate->sets[set].set;
    struct candidate_limit limit = {.type = stats->type,
                                    .key = stats->key,
                                    .set = set,
                                    .number = number,
                                    .capacity = limit_setting(of, number, "capacity", UNITS_AMOUNT),
                                    .window_ns = 0};

    if (stats->type != WEIR_LIMIT_RESOURCE)
        limit.window_ns = limit_setting(of, number, "window", UNITS_DURATION);
    limit.has_capacity = limit.capacity > 0;
    if (!limit.has_capacity)
        limit.capacity = stats->capacity;
    candidate->limits[candidate->limits_n++] = limit;
}

static int describe_set(struct candidate *candidate, uint32_t index, weir_set *set)
{
    struct weir_set_info info = {.size = sizeof(info)};
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[WEIR_LIMITS_MAX];
    struct weir_error error = {0};
    int n = weir_set_stats(set, &stats, limits, WEIR_LIMITS_MAX), r;
    struct candidate_limit *grown;

    if (n < 0)
        return n;
    grown = realloc(candidate->limits,
                    (candidate->limits_n + (size_t)n + 1) * sizeof(*candidate->limits));
    if (!grown)
        return -ENOMEM;
    candidate->limits = grown;
    r = weir_set_info(set, &info);
    candidate->sets[index] = (struct candidate_set){.set = set,
                                                    .name = weir_set_name(set),
                                                    .limits_first = candidate->limits_n,
                                                    .limits_n = (uint32_t)n,
                                                    .has_subjects = info.subjects_max > 0};
    for (uint32_t i = 0; i < (uint32_t)n; i++)
        describe_limit(candidate, index, i, &limits[i]);
    candidate->sets_n++;
    if (r == 0)
        r = weir_pool_open(&candidate->sets[index].pool, candidate->w, weir_set_name(set), 0,
                           &error);
    return r;
}

static int describe(struct candidate *candidate)
{
    uint32_t n = (uint32_t)weir_pool_sets(candidate->pool);
    int r = 0;

    candidate->sets = calloc(n, sizeof(*candidate->sets));
    if (!candidate->sets)
        return -ENOMEM;
    for (uint32_t i = 0; r == 0 && i < n; i++)
        r = describe_set(candidate, i, weir_pool_set(candidate->pool, i));
    return r;
}

/* Closes what candidate_open() has opened. */
static void close_instance(struct candidate *candidate)
{
    for (uint32_t i = 0; i < candidate->sets_n; i++)
        weir_pool_close(candidate->sets[i].pool);
    free(candidate->sets);
    free(candidate->limits);
    weir_pool_close(candidate->pool);
    weir_close(candidate->w);
    candidate->sets = NULL;
    candidate->limits = NULL;
    candidate->sets_n = candidate->limits_n = 0;
    candidate->pool = NULL;
    candidate->w = NULL;
}

int candidate_open(struct candidate *candidate, uint64_t now_ns, const struct capacity_edit *edit)
{
    const struct weir_clock clock = {.size = sizeof(clock), look_at_clock, NULL, candidate};
    struct weir_error error = {0};
    int r;

    close_instance(candidate);
    candidate->now_ns = now_ns;
    candidate->source.clock = &clock;
    candidate->source.text = candidate_text(candidate->text, edit);
    r = candidate->source.text
            ? source_open(&candidate->source, candidate->target, candidate->command, &candidate->w)
            : -ENOMEM;
    free(candidate->source.text);
    candidate->source.text = NULL;
    candidate->source.clock = NULL;
    if (r < 0)
        return r;
    r = weir_pool_open(&candidate->pool, candidate->w, candidate->target, 0, &error);
    if (r == 0)
        r = describe(candidate);
    if (r < 0)
        fprintf(stderr, "%s: %s: %s\n", candidate->command, candidate->name,
                error.code ? error.message : strerror(-r));
    return r;
}

bool candidate_accepts(const struct candidate *candidate, const struct capacity_edit *edit)
{
    struct source source = candidate->source;
    weir *w = NULL;
    int r;

    source.is_quiet = true;
    source.text = candidate_text(candidate->text, edit);
    r = source.text ? source_open(&source, candidate->target, candidate->command, &w) : -ENOMEM;
    free(source.text);
    if (r == 0)
        weir_close(w);
    return r != -EINVAL;
}

void candidate_close(struct candidate *candidate)
{
    close_instance(candidate);
    free((char *)(uintptr_t)candidate->target);
    free(candidate->text);
    *candidate = (struct candidate){0};
}

/* ---- limits by name ---- */

/* Returns whether a limit has the name, of `key_n` bytes, and is the wanted one with its key. */
static bool limit_has_name(const struct candidate *candidate, uint32_t limit, const char *name,
                           size_t name_n, uint64_t wanted)
{
    const struct candidate_limit *at = &candidate->limits[limit];
    const char *set = candidate->sets[at->set].name;
    size_t set_n = strlen(set), key_n = strlen(at->key);
    uint64_t which = 1;

    for (uint32_t i = candidate->sets[at->set].limits_first; i < limit; i++)
        which += strcmp(candidate->limits[i].key, at->key) == 0;
    if (wanted != 0 && which != wanted)
        return false;
    if (name_n == key_n && memcmp(name, at->key, key_n) == 0)
        return true;
    return name_n == set_n + 1 + key_n && memcmp(name, set, set_n) == 0 && name[set_n] == '/' &&
           memcmp(name + set_n + 1, at->key, key_n) == 0;
}

int candidate_find_limit(const struct candidate *candidate, const char *name)
{
    const char *sign = strrchr(name, '#');
    size_t n = sign ? (size_t)(sign - name) : strlen(name);
    int found = -EINVAL;
    uint64_t wanted = 0;

    if (sign && (units_parse(UNITS_AMOUNT, sign + 1, &wanted) < 0 || wanted == 0))
        n = strlen(name); /* a part of the key */
    for (uint32_t i = 0; i < candidate->limits_n; i++) {
        if (!limit_has_name(candidate, i, name, n, wanted))
            continue;
        if (found >= 0) {
            fprintf(stderr, "%s: several limits are `%s`: say SET/KEY, or SET/KEY#N\n",
                    candidate->command, name);
            return -EINVAL;
        }
        found = (int)i;
    }
    if (found < 0)
        fprintf(stderr, "%s: there is no limit `%s`\n", candidate->command, name);
    return found;
}
