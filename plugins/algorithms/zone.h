/* SPDX-License-Identifier: MIT */
/*
 * The calendar of a time zone: days, weeks and months by local time, as instants. A zone is the
 * table of its changes of offset, as tzif.h reads it. Days are counted from 1970-01-01; months and
 * days are converted by H. Hinnant, "chrono-compatible low-level date algorithms".
 *
 * A period begins at the first instant of which the local time is in it or later. So a midnight
 * that a clock leaps over is the leap itself, and one that comes twice is the first of them: local
 * time that goes back past midnight does not reopen the day before. A day that a zone skipped has
 * no instants.
 */
#ifndef WEIR_PLUGINS_ZONE_H
#define WEIR_PLUGINS_ZONE_H

#include <stdbool.h>

#include "exact.h"

enum { PERIOD_DAY, PERIOD_WEEK, PERIOD_MONTH };

#define ZONE_CHANGES_MAX  4096
#define DAY_S             INT64_C(86400)
#define ZONE_OFFSET_MAX_S (26 * INT64_C(3600)) /* no zone is further from UTC */

/* From `at_s` on, local time is `offset_s` later than UTC; `at_s` counts from 1970. */
struct zone_change {
    int64_t at_s, offset_s;
};

struct zone {
    int64_t first_offset_s; /* before the first change */
    uint64_t changes_n;
    const struct zone_change *changes; /* in their order */
};

/* Returns how many changes are at or before the instant. */
static inline uint64_t zone_changes_by(const struct zone *zone, int64_t at_s)
{
    uint64_t low = 0, high = zone->changes_n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (zone->changes[middle].at_s <= at_s)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Returns the offset after so many changes. */
static inline int64_t zone_offset_after(const struct zone *zone, uint64_t changes)
{
    return changes == 0 ? zone->first_offset_s : zone->changes[changes - 1].offset_s;
}

/* Returns the first instant at which the local time is `local_s` or later. */
static inline int64_t zone_first_at(const struct zone *zone, int64_t local_s)
{
    uint64_t i = zone_changes_by(zone, local_s - ZONE_OFFSET_MAX_S);
    int64_t at_s = local_s - zone_offset_after(zone, i);
    for (; i < zone->changes_n && at_s >= zone->changes[i].at_s; i++) {
        int64_t change_s = zone->changes[i].at_s;
        at_s = local_s - zone->changes[i].offset_s;
        at_s = at_s > change_s ? at_s : change_s;
    }
    return at_s;
}

/* Returns the month of a day of 1970 or later, from 0. */
static inline uint64_t month_of_day(uint64_t day)
{
    uint64_t z = day + 719468, era = z / 146097, of_era = z % 146097;
    uint64_t year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    uint64_t of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    uint64_t from_march = (5 * of_year + 2) / 153;
    uint64_t year = year_of_era + era * 400 + (from_march >= 10 ? 1 : 0);
    uint64_t month = from_march < 10 ? from_march + 2 : from_march - 10; /* 0: January */
    return (year - 1970) * 12 + month;
}

/* Returns the first day of a month. */
static inline uint64_t first_day_of_month(uint64_t number)
{
    uint64_t year = 1970 + number / 12, month = number % 12;
    uint64_t from_march = month >= 2 ? month - 2 : month + 10;
    year -= month < 2 ? 1 : 0;
    uint64_t of_era = year % 400;
    return year / 400 * 146097 + of_era * 365 + of_era / 4 - of_era / 100 +
           (153 * from_march + 2) / 5 - 719468;
}

/* Returns the period of a day; what is before 1970 belongs to period 0. Weeks begin on Mondays, and
 * 1970-01-01 was a Thursday. */
static inline uint64_t period_of_day(uint64_t period, int64_t day)
{
    if (day < 0)
        return 0;
    return period == PERIOD_DAY    ? (uint64_t)day
           : period == PERIOD_WEEK ? ((uint64_t)day + 3) / 7
                                   : month_of_day((uint64_t)day);
}

/* Returns the instant at which a period begins, s. */
static inline int64_t period_begins_at(const struct zone *zone, uint64_t period, uint64_t number)
{
    int64_t day = period == PERIOD_DAY    ? (int64_t)number
                  : period == PERIOD_WEEK ? (int64_t)number * 7 - 3
                                          : (int64_t)first_day_of_month(number);
    return zone_first_at(zone, day * DAY_S);
}

/* Returns the period of an instant of 1970 or later. */
static inline uint64_t period_at(const struct zone *zone, uint64_t period, int64_t at_s)
{
    int64_t local_s = at_s + zone_offset_after(zone, zone_changes_by(zone, at_s));
    int64_t day = local_s < 0 ? -1 : local_s / DAY_S;
    uint64_t number = period_of_day(period, day);
    while (period_begins_at(zone, period, number + 1) <= at_s)
        number++; /* it has begun before the clock went back */
    return number;
}

#endif
