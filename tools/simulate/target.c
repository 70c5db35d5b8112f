/* SPDX-License-Identifier: MIT */
/* What a capacity has to reach. */
#include "target.h"
#include "base/units.h"
#include <stdio.h>
#include <string.h>

#define MILLION 1000000u

static const struct {
    const char *name;
    uint32_t share;
} percentiles[] = {{"p50", 500000}, {"p90", 900000},  {"p95", 950000},
                   {"p99", 990000}, {"p999", 999000}, {"max", MILLION}};

static bool complain(struct option_complaint *ret_wrong)
{
    snprintf(ret_wrong->text, sizeof(ret_wrong->text),
             "a target is p50, p90, p95, p99, p999 or max < DURATION, or refused < RATIO");
    return false;
}

static bool target_parse(struct target *ret, char *text)
{
    char *sign = strchr(text, '<');
    uint64_t ratio;

    if (!sign)
        return false;
    *sign = '\0';
    *ret = (struct target){.is_refused = strcmp(text, "refused") == 0, .bound_ns = UINT64_MAX};
    if (ret->is_refused) {
        if (units_parse(UNITS_RATIO, sign + 1, &ratio) < 0 || ratio > UNITS_RATIO_ONE)
            return false;
        ret->share = (uint32_t)(ratio / (UNITS_RATIO_ONE / MILLION));
        return ret->share > 0;
    }
    for (size_t i = 0; i < sizeof(percentiles) / sizeof(percentiles[0]); i++)
        if (strcmp(percentiles[i].name, text) == 0)
            ret->share = percentiles[i].share;
    return ret->share > 0 && units_parse(UNITS_DURATION, sign + 1, &ret->bound_ns) == 0 &&
           ret->bound_ns > 0;
}

bool targets_parse(struct targets *ret, char *text, struct option_complaint *ret_wrong)
{
    char *rest = text;

    while (rest) {
        char *comma = strchr(rest, ',');

        if (comma)
            *comma++ = '\0';
        if (ret->n == TARGETS_MAX || !target_parse(&ret->items[ret->n], rest))
            return complain(ret_wrong);
        ret->n++;
        rest = comma;
    }
    return true;
}

void targets_clear(struct targets *targets)
{
    for (unsigned i = 0; i < targets->n; i++)
        targets->items[i].over_n = 0;
}

/* Returns how many of `n` may be beyond a target. */
static uint64_t target_allowed(const struct target *target, uint64_t n)
{
    uint64_t part =
        n / MILLION * target->share + (n % MILLION * target->share + MILLION - 1) / MILLION;

    if (target->is_refused) /* fewer than this share */
        return part > 0 ? part - 1 : 0;
    return n - part; /* those behind the percentile's rank */
}

bool targets_are_met(const struct targets *targets, uint64_t n)
{
    for (unsigned i = 0; i < targets->n; i++)
        if (targets->items[i].over_n > target_allowed(&targets->items[i], n))
            return false;
    return true;
}
