/* SPDX-License-Identifier: MIT */
/* The report of a simulation as tables. */
#include "figures.h"
#include "report.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ROWS_MAX   16 /* of the table over time */
#define SHOWN_MAX  6  /* limits in the table over time */
#define NAME_WIDTH 24
#define CELL       22 /* of which SHARE are for a share */
#define SHARE      8

static const struct {
    enum decision decision;
    const char *words;
    bool always; /* shown although there is none */
} decision_rows[] = {
    {DECISION_AT_ONCE, "granted at once", true},
    {DECISION_WAITED, "granted after a wait", true},
    {DECISION_BUSY, "refused: would wait", false},
    {DECISION_MAX_WAIT, "refused: max_wait", false},
    {DECISION_FULL, "refused: queue full", false},
    {DECISION_IMPOSSIBLE, "refused: impossible", false},
    {DECISION_TIMEOUT, "timed out", false},
    {DECISION_NEVER, "undecided", false},
};

static const struct {
    const char *words;
    uint32_t share;
} wait_rows[] = {{"wait p50", 500000},
                 {"wait p90", 900000},
                 {"wait p99", 990000},
                 {"wait p99.9", 999000},
                 {"wait max", 1000000}};

static void print_traffic(const struct simulation *simulation)
{
    const struct traffic *traffic = simulation->traffic;
    const struct tally *tally = &simulation->engines[0].tally;
    uint64_t length_ns = tally_length(tally);
    char length[FIGURE_MAX], rate[FIGURE_MAX];

    printf("%s: %" PRIu64 " events in %s, %s per second\n",
           traffic->load.n > 0 ? "generated load" : traffic->options->path, tally->events,
           figure_duration(length_ns, length), figure_per_second(tally->events, length_ns, rate));
    if (traffic->load.n > 0)
        printf("seed %" PRIu64 "\n", traffic->options->seed);
    if (traffic->wrong_n > 0)
        printf("%" PRIu64 " lines were not understood and left out\n", traffic->wrong_n);
    if (traffic->reorder.late_n > 0)
        printf("%" PRIu64 " events came too late to be sorted (--reorder %" PRIu32
               ") and were moved to the event before\n",
               traffic->reorder.late_n, traffic->reorder.size);
}

static void print_decisions(const struct simulation *simulation)
{
    for (size_t row = 0; row < sizeof(decision_rows) / sizeof(decision_rows[0]); row++) {
        bool is_shown = decision_rows[row].always;

        for (unsigned i = 0; i < simulation->n; i++)
            is_shown |= simulation->engines[i].tally.decisions[decision_rows[row].decision] > 0;
        if (!is_shown)
            continue;
        printf("%-*s", NAME_WIDTH, decision_rows[row].words);
        for (unsigned i = 0; i < simulation->n; i++) {
            const struct tally *tally = &simulation->engines[i].tally;
            uint64_t n = tally->decisions[decision_rows[row].decision];
            char share[FIGURE_MAX];

            printf("%*" PRIu64 " %*s", CELL - SHARE, n, SHARE - 1,
                   figure_share(n, tally->events, share));
        }
        putchar('\n');
    }
}

static void print_waits(const struct simulation *simulation)
{
    char text[FIGURE_MAX];

    for (size_t row = 0; row < sizeof(wait_rows) / sizeof(wait_rows[0]); row++) {
        printf("%-*s", NAME_WIDTH, wait_rows[row].words);
        for (unsigned i = 0; i < simulation->n; i++)
            printf("%*s", i == 0 ? CELL - SHARE : CELL,
                   figure_duration(tally_wait(&simulation->engines[i].tally, wait_rows[row].share),
                                   text));
        putchar('\n');
    }
    printf("%-*s", NAME_WIDTH, "waiting at most");
    for (unsigned i = 0; i < simulation->n; i++)
        printf("%*" PRIu64, i == 0 ? CELL - SHARE : CELL,
               simulation->engines[i].tally.waiting_most);
    putchar('\n');
}

/* Prints the waits of each class of the first candidate, also in the others. */
static void print_classes(const struct simulation *simulation)
{
    const struct tally *first = &simulation->engines[0].tally;
    char text[FIGURE_MAX], words[NAME_WIDTH + EVENT_CLASS_MAX];

    for (unsigned k = 0; k < first->classes_n; k++)
        for (size_t row = 0; row < sizeof(wait_rows) / sizeof(wait_rows[0]); row++) {
            snprintf(words, sizeof(words), "%s: %s", first->classes[k]->name, wait_rows[row].words);
            printf("%-*s", NAME_WIDTH, words);
            for (unsigned i = 0; i < simulation->n; i++) {
                const struct tally_class *at =
                    tally_find_class(&simulation->engines[i].tally, first->classes[k]->name);

                printf("%*s", i == 0 ? CELL - SHARE : CELL,
                       at ? figure_duration(
                                histogram_percentile(&at->waits, wait_rows[row].share, 0), text)
                          : "-");
            }
            putchar('\n');
        }
}

/* Returns the part of a limit that was used in the whole time, and in the fullest interval. */
static void find_use(const struct tally *tally, uint32_t limit, int64_t *ret_mean,
                     int64_t *ret_most)
{
    const struct timeline *timeline = &tally->timeline;
    struct interval_limit all = timeline_limit_merged(timeline, 0, timeline->n, limit);
    uint64_t length_ns = UINT64_C(1) << timeline->bits;

    *ret_mean = tally_used(tally, limit, &all, tally_length(tally));
    *ret_most = *ret_mean;
    for (unsigned i = 0; i < timeline->n; i++) {
        int64_t used = tally_used(tally, limit, timeline_limit(timeline, i, limit), length_ns);

        if (used > *ret_most)
            *ret_most = used;
    }
}

static void print_limit(const struct tally *tally, uint32_t limit)
{
    static const char *const types[] = {
        [WEIR_LIMIT_RATE] = "rate", [WEIR_LIMIT_CALL] = "call", [WEIR_LIMIT_RESOURCE] = "resource"};
    const struct candidate_limit *at = &tally->candidate->limits[limit];
    const struct tally_limit *of = &tally->limits[limit];
    char name[LIMIT_NAME_MAX], capacity[FIGURE_MAX], mean_text[FIGURE_MAX], most_text[FIGURE_MAX];
    int64_t mean, most;

    find_use(tally, limit, &mean, &most);
    printf("  %-*s %-8s %12s %8s %8s %12" PRIu64 " %12" PRIu64 "\n", NAME_WIDTH - 2,
           figure_limit(tally->candidate, limit, name, sizeof(name)), types[at->type],
           figure_capacity(at, capacity), figure_percent(mean, mean_text),
           figure_percent(most, most_text), of->waited, of->refused);
}

static void print_binding(const struct tally *tally)
{
    int binding = tally_binding(tally);
    char name[LIMIT_NAME_MAX], share[FIGURE_MAX];
    uint64_t all = 0;

    for (uint32_t i = 0; i < tally->candidate->limits_n; i++)
        all += tally->limits[i].waited + tally->limits[i].refused;
    if (binding < 0) {
        printf("  no limit holds a request back\n");
        return;
    }
    printf(
        "  %s binds: it is behind %s of the waits and refusals\n",
        figure_limit(tally->candidate, (uint32_t)binding, name, sizeof(name)),
        figure_share(tally->limits[binding].waited + tally->limits[binding].refused, all, share));
}

/* Says what limits that are not enforced would have refused. */
static void print_shadow(const struct tally *tally)
{
    char name[LIMIT_NAME_MAX];

    for (uint32_t i = 0; i < tally->candidate->limits_n; i++)
        if (tally->limits[i].would_refuse > 0)
            printf("  %s is not enforced: it would have refused %" PRIu64 " more requests\n",
                   figure_limit(tally->candidate, i, name, sizeof(name)),
                   tally->limits[i].would_refuse);
}

static void print_limits(const struct tally *tally)
{
    printf("  %-*s %-8s %12s %8s %8s %12s %12s\n", NAME_WIDTH - 2, "LIMIT", "TYPE", "CAPACITY",
           "USED", "MOST", "WAITED", "REFUSED");
    for (uint32_t i = 0; i < tally->candidate->limits_n; i++)
        print_limit(tally, i);
    print_binding(tally);
    print_shadow(tally);
}

/* Returns the limits to be shown over time: those that hold back most, in their order. */
static uint32_t choose_limits(const struct tally *tally, uint32_t ret[SHOWN_MAX])
{
    uint32_t n = tally->candidate->limits_n;

    for (uint32_t i = 0; i < n && i < SHOWN_MAX; i++)
        ret[i] = i;
    return n < SHOWN_MAX ? n : SHOWN_MAX;
}

static void print_row(const struct tally *tally, unsigned first, unsigned n, const uint32_t *shown,
                      uint32_t shown_n)
{
    const struct timeline *timeline = &tally->timeline;
    struct interval in = timeline_merged(timeline, first, n);
    uint64_t from_ns = (uint64_t)first << timeline->bits;
    uint64_t to_ns = (uint64_t)(first + n) << timeline->bits, length_ns = tally_length(tally);
    char text[FIGURE_MAX];

    length_ns = (to_ns < length_ns ? to_ns : length_ns) - from_ns;
    printf("  %8s", figure_duration(from_ns, text));
    printf(" %10s", figure_per_second(in.arrivals, length_ns, text));
    printf(" %10s", figure_per_second(in.granted, length_ns, text));
    printf(" %10s", figure_per_second(in.refused, length_ns, text));
    printf(" %8s", figure_duration(interval_wait(&in, 500000), text));
    printf(" %8s", figure_duration(interval_wait(&in, 990000), text));
    printf(" %8s", figure_duration(in.wait_max_ns, text));
    for (uint32_t i = 0; i < shown_n; i++) {
        struct interval_limit of = timeline_limit_merged(timeline, first, n, shown[i]);

        printf(" %12s", figure_percent(tally_used(tally, shown[i], &of, length_ns), text));
    }
    putchar('\n');
}

static void print_timeline(const struct tally *tally)
{
    unsigned n = tally->timeline.n, step = (n + ROWS_MAX - 1) / ROWS_MAX;
    uint32_t shown[SHOWN_MAX], shown_n = choose_limits(tally, shown);

    printf("\n  %8s %10s %10s %10s %8s %8s %8s", "TIME", "ARRIVE/S", "GRANTED/S", "REFUSED/S",
           "P50", "P99", "MAX");
    for (uint32_t i = 0; i < shown_n; i++) {
        char name[LIMIT_NAME_MAX];

        printf(" %12.12s", figure_limit(tally->candidate, shown[i], name, sizeof(name)));
    }
    putchar('\n');
    for (unsigned first = 0; first < n; first += step)
        if (((uint64_t)first << tally->timeline.bits) < tally_length(tally))
            print_row(tally, first, step, shown, shown_n);
}

static void print_suggestion(const struct suggestion *suggestion)
{
    if (suggestion->capacity == 0)
        printf("no capacity of %s/%s up to %" PRIu64 " meets the target\n", suggestion->set,
               suggestion->key, suggestion->most);
    else
        printf("%s/%s: capacity %" PRIu64 " is the smallest that meets the target (it says %" PRIu64
               "); %u runs\n",
               suggestion->set, suggestion->key, suggestion->capacity, suggestion->before,
               suggestion->runs_n);
    putchar('\n');
}

void report_text(const struct simulation *simulation, const struct suggestion *suggestion)
{
    print_traffic(simulation);
    if (suggestion)
        print_suggestion(suggestion);
    putchar('\n');
    if (simulation->n > 1)
        printf("%*s%*s\n", NAME_WIDTH + CELL - SHARE, "A", CELL, "B");
    print_decisions(simulation);
    print_waits(simulation);
    print_classes(simulation);
    for (unsigned i = 0; i < simulation->n; i++) {
        const struct candidate *candidate = &simulation->candidates[i];

        printf("\n%s%s: %s\n", simulation->n > 1 ? (i == 0 ? "A: " : "B: ") : "", candidate->name,
               candidate->target);
        print_limits(&simulation->engines[i].tally);
        print_timeline(&simulation->engines[i].tally);
    }
}
