/* SPDX-License-Identifier: MIT */
/* Checking histories; each check sorts and goes through them once. */
#include "lib/history.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENGINE_NS 1000 /* that an engine counts in */

__extension__ typedef __int128 i128;

static void *room(void *items, size_t n, size_t *capacity, size_t size)
{
    if (n < *capacity)
        return items;
    *capacity = *capacity ? 2 * *capacity : 1024;
    items = realloc(items, *capacity * size);
    if (!items)
        abort();
    return items;
}

void history_add(struct history *history, const struct event *event)
{
    history->events =
        room(history->events, history->events_n, &history->events_capacity, sizeof(*event));
    history->events[history->events_n++] = *event;
}

void history_add_refund(struct history *history, const struct refund *refund)
{
    history->refunds =
        room(history->refunds, history->refunds_n, &history->refunds_capacity, sizeof(*refund));
    history->refunds[history->refunds_n++] = *refund;
}

void history_merge(struct history *history, struct history *from)
{
    for (size_t i = 0; i < from->events_n; i++)
        history_add(history, &from->events[i]);
    for (size_t i = 0; i < from->refunds_n; i++)
        history_add_refund(history, &from->refunds[i]);
    history_free(from);
}

void history_free(struct history *history)
{
    free(history->events);
    free(history->refunds);
    *history = (struct history){0};
}

/* An instant and what came with it. */
struct point {
    uint64_t at, amount;
};

static int compare_points(const void *a, const void *b)
{
    const struct point *x = a, *y = b;

    return x->at < y->at ? -1 : x->at > y->at;
}

enum which { LO, HI };

static struct point *points(size_t n)
{
    struct point *all = calloc(n + 1, sizeof(*all));

    if (!all)
        abort();
    return all;
}

static bool is_of(const struct event *e, unsigned limits)
{
    for (unsigned i = 0; i < HISTORY_LIMITS; i++)
        if (limits >> i & 1 && e->amounts[i])
            return true;
    return false;
}

/* Returns the latest `amount` of the points up to an instant, less a unit of the engine's clock. */
static uint64_t latest_up_to(const struct point *points, size_t n, uint64_t at)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (points[middle].at <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low && points[low - 1].amount > ENGINE_NS ? points[low - 1].amount - ENGINE_NS : 0;
}

void history_date_by_replies(struct history *history, unsigned limits)
{
    struct point *known = points(history->events_n);
    size_t n = 0;

    for (size_t i = 0; i < history->events_n; i++)
        if (is_of(&history->events[i], limits))
            known[n++] = (struct point){history->events[i].hi, history->events[i].lo};
    qsort(known, n, sizeof(*known), compare_points);
    for (size_t i = 1; i < n; i++)
        if (known[i].amount < known[i - 1].amount)
            known[i].amount = known[i - 1].amount;
    for (size_t i = 0; i < history->events_n; i++)
        history->events[i].lo = latest_up_to(known, n, history->events[i].lo);
    for (size_t i = 0; i < history->refunds_n; i++)
        history->refunds[i].lo = latest_up_to(known, n, history->refunds[i].lo);
    free(known);
}

static struct point *grants(const struct history *history, unsigned limit, enum which which)
{
    struct point *all = points(history->events_n);

    for (size_t i = 0; i < history->events_n; i++) {
        const struct event *e = &history->events[i];

        all[i] = (struct point){which == LO ? e->lo : e->hi, e->amounts[limit]};
    }
    qsort(all, history->events_n, sizeof(*all), compare_points);
    return all;
}

static struct point *refunds(const struct history *history, unsigned limit, enum which which)
{
    struct point *all = points(history->refunds_n);

    for (size_t i = 0; i < history->refunds_n; i++) {
        const struct refund *r = &history->refunds[i];

        all[i] = (struct point){which == LO ? r->lo : r->hi, r->amounts[limit]};
    }
    qsort(all, history->refunds_n, sizeof(*all), compare_points);
    return all;
}

/* A running sum of the points before an instant. */
struct sum {
    const struct point *points;
    size_t n, next;
    i128 total;
};

static i128 sum_before(struct sum *sum, uint64_t at)
{
    for (; sum->next < sum->n && sum->points[sum->next].at < at; sum->next++)
        sum->total += sum->points[sum->next].amount;
    return sum->total;
}

/*
 * With everything multiplied by the window: for spans that begin at some grant's `lo` and end at
 * some grant's `hi`, sum(hi <= b) - sum(lo < a) were granted in [a, b] at least, and
 * sum(lo <= b) - sum(hi < a) refunded at most. The best beginning so far is carried along.
 */
bool history_keeps_rate(const struct history *history, unsigned limit, uint64_t burst,
                        uint64_t capacity, uint64_t window)
{
    size_t n = history->events_n, m = history->refunds_n, begin = 0;
    struct point *lo = grants(history, limit, LO), *hi = grants(history, limit, HI);
    struct point *early = refunds(history, limit, LO), *late = refunds(history, limit, HI);
    struct sum granted_before = {lo, n, 0, 0}, granted = {hi, n, 0, 0};
    struct sum refunded_before = {late, m, 0, 0}, refunded = {early, m, 0, 0};
    i128 best = 0;
    bool kept = true;

    for (size_t end = 0; end < n && kept; end++) {
        uint64_t b = hi[end].at;
        i128 excess;

        for (; begin < n && lo[begin].at <= b; begin++) {
            uint64_t a = lo[begin].at;
            i128 value =
                (i128)capacity * a -
                (sum_before(&granted_before, a) - sum_before(&refunded_before, a)) * window;

            if (begin == 0 || value > best)
                best = value;
        }
        excess = (sum_before(&granted, b + 1) - sum_before(&refunded, b + 1)) * window -
                 (i128)capacity * b + best - (i128)burst * window;
        kept = excess <= 0;
        if (!kept)
            fprintf(stderr, "limit %u: %" PRId64 " units too many up to instant %" PRIu64 "\n",
                    limit, (int64_t)(excess / window) + 1, b);
    }
    free(lo);
    free(hi);
    free(early);
    free(late);
    return kept;
}

bool history_keeps_window(const struct history *history, unsigned limit, uint64_t capacity,
                          uint64_t window)
{
    size_t n = history->events_n;
    struct point *lo = grants(history, limit, LO), *hi = grants(history, limit, HI);
    struct sum gone = {lo, n, 0, 0}, granted = {hi, n, 0, 0};
    bool kept = true;

    for (size_t end = 0; end < n && kept; end++) {
        uint64_t b = hi[end].at;
        i128 in = sum_before(&granted, b + 1) - sum_before(&gone, b < window ? 0 : b - window + 1);

        kept = in <= (i128)capacity;
        if (!kept)
            fprintf(stderr, "limit %u: %" PRId64 " units in the window that ends at %" PRIu64 "\n",
                    limit, (int64_t)in, b);
    }
    free(lo);
    free(hi);
    return kept;
}

static uint64_t came(const struct event *e)
{
    return e->since ? e->since : e->lo;
}

static int compare_coming(const void *a, const void *b)
{
    uint64_t x = came(a), y = came(b);

    return x < y ? -1 : x > y;
}

bool history_keeps_order(const struct history *history)
{
    size_t n = history->events_n, before = 0;
    struct event *events = calloc(n + 1, sizeof(*events));
    uint64_t latest = 0;
    bool kept = true;

    if (!events)
        abort();
    if (n)
        memcpy(events, history->events, n * sizeof(*events));
    qsort(events, n, sizeof(*events), compare_coming);
    for (size_t i = 0; i < n && kept; i++) {
        /* Of the waiters that joined at an earlier instant, which was granted last? */
        for (; before < i && came(&events[before]) < came(&events[i]); before++)
            if (events[before].since && events[before].lo > latest)
                latest = events[before].lo;
        kept = latest <= events[i].hi;
        if (!kept)
            fprintf(stderr, "came at %" PRIu64 ", granted by %" PRIu64 ", overtook %" PRIu64 "\n",
                    came(&events[i]), events[i].hi, latest);
    }
    free(events);
    return kept;
}
