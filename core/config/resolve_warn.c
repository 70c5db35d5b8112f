/* SPDX-License-Identifier: MIT */
/* Warnings about a configuration that is right: what is probably not meant, above all what limits
 * nothing. Each goes to `complaints->warnings`. */
#include "base/invariant.h"
#include "base/units.h"
#include "config/resolve.h"
#include <string.h>

/* A burst is warned of if it is so many times the capacity and takes so long to come. Either alone
 * is common: `window` may be short because a rate is meant, or long because a quota is. */
#define WARN_BURST_TIMES 100
#define WARN_BURST_NS    (600 * UINT64_C(1000000000))

/* Algorithms of one family compare by their numbers alone. */
enum warn_family {
    WARN_INCOMPARABLE,
    WARN_COUNT,   /* a counted resource */
    WARN_BUCKET,  /* at most burst + rate · time */
    WARN_SLIDING, /* at most the capacity in any window */
    WARN_FIXED    /* at most the capacity in each window */
};

/* What a limit bounds, as far as limits of its family can be compared. */
struct warn_bound {
    enum warn_family family;
    uint64_t capacity, window_ns, burst;
};

static enum warn_family warn_family_of(const struct limit *limit)
{
    static const struct {
        const char *algorithm;
        enum warn_family family;
    } known[] = {{"token_bucket", WARN_BUCKET},
                 {"gcra", WARN_BUCKET},
                 {"leaky_bucket", WARN_BUCKET},
                 {"sliding_window", WARN_SLIDING},
                 {"fixed_window", WARN_FIXED}};
    if (!limit->algorithm)
        return WARN_COUNT;
    for (size_t i = 0; i < ARRAY_LENGTH(known); i++)
        if (strcmp(limit->algorithm_name, known[i].algorithm) == 0)
            return known[i].family;
    return WARN_INCOMPARABLE;
}

/* Returns the setting of a limit, or NULL. */
static const struct setting *warn_find_setting(const struct ast_limit *ast, const char *name)
{
    for (size_t i = 0; i < ast->settings.n; i++)
        if (strcmp(ast->settings.items[i].name.text, name) == 0)
            return &ast->settings.items[i];
    return NULL;
}

/* Reads a number that was checked before. Returns whether the limit has it. */
static bool warn_read(const struct ast_limit *ast, const char *name, enum units_kind kind,
                      uint64_t *ret)
{
    const struct setting *setting = warn_find_setting(ast, name);
    return setting && units_parse(kind, setting->value.text, ret) == 0;
}

/* Reads the bound. A limit with settings besides (`initial`, `every`, `mode`, …) has none that
 * could be compared; nor has one that refunds strictly, since that depends on the rate. */
static struct warn_bound warn_read_bound(const struct ast_limit *ast, const struct limit *limit)
{
    struct warn_bound bound = {.family = warn_family_of(limit)};
    size_t known = 0;
    known += warn_read(ast, "capacity", UNITS_AMOUNT, &bound.capacity);
    known += warn_read(ast, "window", UNITS_DURATION, &bound.window_ns);
    bound.burst = bound.capacity;
    known += warn_read(ast, "burst", UNITS_AMOUNT, &bound.burst);
    if (known != ast->settings.n || limit->refund == REFUND_STRICT)
        bound.family = WARN_INCOMPARABLE;
    return bound;
}

__extension__ typedef unsigned __int128 warn_u128;

static bool warn_rate_at_least(const struct warn_bound *bound, const struct warn_bound *other)
{
    return (warn_u128)bound->capacity * other->window_ns >=
           (warn_u128)other->capacity * bound->window_ns;
}

/* Returns whether a limit never refuses what another one of its key grants. */
static bool warn_is_implied(const struct warn_bound *bound, const struct warn_bound *other)
{
    bool is_wider = bound->capacity >= other->capacity;
    if (bound->family != other->family)
        return false;
    switch (bound->family) {
    case WARN_COUNT:
        return is_wider;
    case WARN_BUCKET:
        return bound->burst >= other->burst && warn_rate_at_least(bound, other);
    case WARN_SLIDING:
        return is_wider && bound->window_ns <= other->window_ns;
    case WARN_FIXED:
        return is_wider && bound->window_ns == other->window_ns;
    default:
        return false;
    }
}

/* Returns whether the limit can never refuse because of the other one. Of two that allow the same
 * it is the later one. */
static bool warn_never_binds(const struct ast_set *ast, const struct set_plan *plan, uint32_t at,
                             uint32_t other_at)
{
    const struct limit *limit = &plan->limits[at], *other = &plan->limits[other_at];
    if (at == other_at || strcmp(limit->key, other->key) != 0 || limit->refund != other->refund ||
        limit->charges != other->charges)
        return false;
    struct warn_bound bound = warn_read_bound(&ast->limits[at], limit);
    struct warn_bound tighter = warn_read_bound(&ast->limits[other_at], other);
    return warn_is_implied(&bound, &tighter) &&
           (at > other_at || !warn_is_implied(&tighter, &bound));
}

/* Warns of a burst far above the capacity. Of another algorithm the word may mean another thing. */
static void warn_of_burst(struct complaints *warnings, const struct ast_limit *ast,
                          const struct limit *limit)
{
    const uint64_t minute = UINT64_C(60000000000), hour = 60 * minute, day = 24 * hour;
    const struct setting *burst = warn_find_setting(ast, "burst");
    struct warn_bound bound = warn_read_bound(ast, limit);
    char about[UNITS_TEXT_MAX];
    uint64_t ns;
    if (!burst || warn_family_of(limit) != WARN_BUCKET ||
        bound.burst / bound.capacity < WARN_BURST_TIMES)
        return;
    if (__builtin_mul_overflow(bound.burst / bound.capacity, bound.window_ns, &ns))
        ns = UINT64_MAX;
    if (ns < WARN_BURST_NS)
        return;
    ns -= ns % (ns >= 2 * day ? day : ns >= 2 * hour ? hour : minute);
    complain(warnings, burst->value.mark,
             "`burst` %s is what this rate grants in about %s: all of it can be granted at once",
             error_text(burst->value.text).text, units_format(UNITS_DURATION, ns, about));
}

static void warn_of_limit(struct complaints *warnings, const struct ast_set *ast,
                          const struct set_plan *plan, uint32_t at)
{
    for (uint32_t i = 0; i < plan->limits_n; i++) {
        if (!warn_never_binds(ast, plan, at, i))
            continue;
        complain(
            warnings, ast->limits[at].name.mark,
            "this limit never refuses anything: limit %u of this set, with the same key, never "
            "grants more",
            i + 1);
        break;
    }
    warn_of_burst(warnings, &ast->limits[at], &plan->limits[at]);
}

static void warn_of_set(struct complaints *warnings, const struct ast_set *ast,
                        const struct set_plan *plan)
{
    if (plan->limits_n == 0)
        complain(warnings, ast->name.mark, "set `%s` has no limits: it grants everything",
                 error_text(ast->name.text).text);
    if (plan->max_wait_ns > plan->timeout_ns && plan->max_wait_ns != WEIR_FOREVER)
        complain(
            warnings, ast->max_wait.mark,
            "a request that is to wait longer than `timeout` %s, but no longer than `max_wait` "
            "%s, waits in vain: set `max_wait` to %s or less, so that it is refused at once",
            error_text(ast->timeout.text).text, error_text(ast->max_wait.text).text,
            error_text(ast->timeout.text).text);
    for (uint32_t i = 0; i < plan->limits_n; i++)
        warn_of_limit(warnings, ast, plan, i);
}

static void warn_of_plugins(struct resolver *resolver)
{
    const struct config_ast *ast = resolver->ast;
    for (size_t i = 0; i < ast->backends_n; i++)
        resolve_warn_hidden(resolver, WEIR_PLUGIN_BACKEND, &ast->backends[i].type);
    for (size_t i = 0; i < ast->sets_n; i++)
        for (size_t j = 0; j < ast->sets[i].limits_n; j++)
            resolve_warn_hidden(resolver, WEIR_PLUGIN_ALGORITHM, &ast->sets[i].limits[j].algorithm);
    for (size_t i = 0; i < ast->pools_n; i++) {
        const struct config_value preset = {"round_robin", ast->pools[i].name.mark};
        const struct config_value *balancer = &ast->pools[i].balancer;
        resolve_warn_hidden(resolver, WEIR_PLUGIN_BALANCER, balancer->text ? balancer : &preset);
    }
}

void resolve_warn(struct resolver *resolver)
{
    const struct config_ast *ast = resolver->ast;
    struct complaints *warnings = resolver->complaints->warnings;
    WEIR_INVARIANT(warnings && resolver->plan->sets_n == ast->sets_n);
    warn_of_plugins(resolver);
    for (size_t i = 0; i < ast->sets_n; i++)
        warn_of_set(warnings, &ast->sets[i], &resolver->plan->sets[i]);
    for (size_t i = 0; i < ast->pools_n; i++) {
        if (ast->pools[i].sets_n == 0)
            complain(warnings, ast->pools[i].name.mark,
                     "pool `%s` has no sets: it grants everything",
                     error_text(ast->pools[i].name.text).text);
    }
    resolver->complaints->memory_failed |= warnings->memory_failed;
}
