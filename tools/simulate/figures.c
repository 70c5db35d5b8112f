/* SPDX-License-Identifier: MIT */
/* Numbers of a report as text. */
#include "figures.h"
#include "base/units.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NS_PER_S UINT64_C(1000000000)

__extension__ typedef unsigned __int128 figures_u128;

/* Writes thousandths with three digits, as long as they are no more than 999 of the unit. */
static void three_digits(uint64_t thousandths, const char *unit, char buffer[FIGURE_MAX])
{
    uint64_t whole = thousandths / 1000, rest = thousandths % 1000;

    if (whole >= 100)
        snprintf(buffer, FIGURE_MAX, "%" PRIu64 "%s", whole, unit);
    else if (whole >= 10)
        snprintf(buffer, FIGURE_MAX, "%" PRIu64 ".%" PRIu64 "%s", whole, rest / 100, unit);
    else
        snprintf(buffer, FIGURE_MAX, "%" PRIu64 ".%02" PRIu64 "%s", whole, rest / 10, unit);
}

const char *figure_duration(uint64_t ns, char buffer[FIGURE_MAX])
{
    uint64_t s = ns / NS_PER_S;

    if (ns == UINT64_MAX)
        snprintf(buffer, FIGURE_MAX, "never");
    else if (ns == 0)
        snprintf(buffer, FIGURE_MAX, "0");
    else if (ns < 1000)
        snprintf(buffer, FIGURE_MAX, "%" PRIu64 "ns", ns);
    else if (ns < 1000000)
        three_digits(ns, "us", buffer);
    else if (ns < NS_PER_S)
        three_digits(ns / 1000, "ms", buffer);
    else if (s < 60)
        three_digits(ns / 1000000, "s", buffer);
    else if (s < 3600)
        snprintf(buffer, FIGURE_MAX, "%" PRIu64 "m%02" PRIu64 "s", s / 60, s % 60);
    else if (s < 172800)
        snprintf(buffer, FIGURE_MAX, "%" PRIu64 "h%02" PRIu64 "m", s / 3600, s / 60 % 60);
    else
        snprintf(buffer, FIGURE_MAX, "%" PRIu64 "d%02" PRIu64 "h", s / 86400, s / 3600 % 24);
    return buffer;
}

const char *figure_per_second(uint64_t n, uint64_t length_ns, char buffer[FIGURE_MAX])
{
    figures_u128 thousandths = (figures_u128)n * 1000 * NS_PER_S / (length_ns ? length_ns : 1);
    uint64_t cut = thousandths < UINT64_MAX ? (uint64_t)thousandths : UINT64_MAX;

    if (n == 0)
        snprintf(buffer, FIGURE_MAX, "0");
    else if (cut < 1000)
        snprintf(buffer, FIGURE_MAX, "0.%03" PRIu64, cut);
    else
        three_digits(cut, "", buffer);
    return buffer;
}

const char *figure_percent(int64_t thousandths, char buffer[FIGURE_MAX])
{
    if (thousandths < 0)
        snprintf(buffer, FIGURE_MAX, "-");
    else
        snprintf(buffer, FIGURE_MAX, "%" PRId64 ".%" PRId64 "%%", thousandths / 10,
                 thousandths % 10);
    return buffer;
}

const char *figure_share(uint64_t part, uint64_t whole, char buffer[FIGURE_MAX])
{
    return figure_percent(
        whole > 0 ? (int64_t)(((figures_u128)part * 1000 + whole / 2) / whole) : 0, buffer);
}

const char *figure_capacity(const struct candidate_limit *limit, char buffer[FIGURE_MAX])
{
    char capacity[UNITS_TEXT_MAX], window[UNITS_TEXT_MAX];

    units_format(UNITS_AMOUNT, limit->capacity, capacity);
    if (limit->window_ns == 0)
        snprintf(buffer, FIGURE_MAX, "%s", capacity);
    else
        snprintf(buffer, FIGURE_MAX, "%s/%s", capacity,
                 units_format(UNITS_DURATION, limit->window_ns, window));
    return buffer;
}

const char *figure_limit(const struct candidate *candidate, uint32_t limit, char *buffer,
                         size_t size)
{
    const struct candidate_limit *at = &candidate->limits[limit];
    const struct candidate_set *set = &candidate->sets[at->set];
    unsigned which = 1, n = 0;

    for (uint32_t i = set->limits_first; i < set->limits_first + set->limits_n; i++) {
        bool is_same = strcmp(candidate->limits[i].key, at->key) == 0;

        n += is_same;
        which += is_same && i < limit;
    }
    if (candidate->sets_n > 1)
        snprintf(buffer, size, "%s/%s", set->name, at->key);
    else
        snprintf(buffer, size, "%s", at->key);
    if (n > 1) {
        size_t end = strlen(buffer);

        snprintf(buffer + end, size - end, "#%u", which);
    }
    return buffer;
}
