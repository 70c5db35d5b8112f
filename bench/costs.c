/* SPDX-License-Identifier: MIT */
/*
 * Measures operations that need not wait, beside the bare primitive that they are made of: by one
 * thread, and by two.
 *
 *     costs [--seconds S] [--rounds N] [--samples N] [--only TEXT]
 *
 *     NAME               one thread: the time of an operation, over batches
 *     two: NAME          two threads on one object: the time of one thread per operation, while
 * both are at it two, single: NAME  single operations of one of them, with a clock reading between
 */
#include "costs.h"

#include <string.h>

enum { BATCH = 1000, SAMPLES = 30, WARM_UP = 2 };

/* ---- figures ---- */

static struct lane *lane_of(struct lanes *lanes, const char *name)
{
    for (unsigned i = 0; name && i < lanes->n; i++)
        if (strcmp(lanes->items[i].work->name, name) == 0)
            return &lanes->items[i];
    return NULL;
}

/* Returns true if a figure is wanted, or one that is compared with it. */
static bool wanted(const struct bench *bench, const char *before, const struct work *work)
{
    char name[BENCH_NAME];

    snprintf(name, sizeof(name), "%s%s", before, work->name);
    if (bench_wants(bench, name))
        return true;
    for (const struct work *other = works; other->name; other++)
        if (other->baseline && strcmp(other->baseline, work->name) == 0 &&
            wanted(bench, before, other))
            return true;
    return false;
}

static struct bench_figure *figure_of(struct bench *bench, const char *before,
                                      const struct work *work, struct bench_figure *baseline)
{
    if (!wanted(bench, before, work))
        return NULL;
    return bench_figure(bench, baseline, "%s%s", before, work->name);
}

static void add_lanes(struct lanes *lanes)
{
    for (const struct work *work = works; work->name; work++) {
        struct lane *lane = &lanes->items[lanes->n];

        require(lanes->n < LANES_MAX);
        *lane = (struct lane){
            .work = work, .baseline = lane_of(lanes, work->baseline), .object = object_new(work)};
        require(!work->baseline || lane->baseline);
        lanes->n++;
    }
}

static void add_alone(struct bench *bench, struct lanes *lanes)
{
    for (unsigned i = 0; i < lanes->n; i++) {
        struct lane *lane = &lanes->items[i];

        lane->alone =
            figure_of(bench, "", lane->work, lane->baseline ? lane->baseline->alone : NULL);
    }
}

static void add_two(struct bench *bench, struct lanes *lanes)
{
    for (unsigned i = 0; i < lanes->n; i++) {
        struct lane *lane = &lanes->items[i];

        if (lane->work->two)
            lane->two =
                figure_of(bench, "two: ", lane->work, lane->baseline ? lane->baseline->two : NULL);
    }
    for (unsigned i = 0; i < lanes->n; i++) {
        struct lane *lane = &lanes->items[i];

        if (lane->work->two)
            lane->single = figure_of(bench, "two, single: ", lane->work,
                                     lane->baseline ? lane->baseline->single : NULL);
    }
}

/* ---- alone ---- */

static void run_batch(struct lane *lane, bool counts)
{
    uint64_t begin = clock_now();

    lane->work->loop(lane->object, BATCH);
    if (counts)
        bench_add(lane->alone, (double)(clock_now() - begin) / BATCH);
    lane->done += BATCH;
}

/* Runs forth and back, so that drift affects a baseline and its figures alike. */
static void alone_round(struct lanes *lanes, unsigned samples)
{
    for (unsigned i = 0; i < WARM_UP + samples; i++)
        for (unsigned j = 0; j < lanes->n; j++) {
            struct lane *lane = &lanes->items[i % 2 == 0 ? j : lanes->n - 1 - j];

            if (lane->alone)
                run_batch(lane, i >= WARM_UP);
        }
}

/* ---- main ---- */

/* Returns the median share of all runs, from 0 to 1; 0 if there were none. */
static double middle_share(const struct lane *lane)
{
    unsigned n = 0, below = 0, share = 0;

    for (unsigned i = 0; i <= SHARES; i++)
        n += lane->shares[i];
    while (share < SHARES && below + lane->shares[share] <= n / 2)
        below += lane->shares[share++];
    return n ? share / (2.0 * SHARES) : 0;
}

static void add_shares(struct bench *bench, const struct lanes *lanes)
{
    for (unsigned i = 0; i < lanes->n; i++)
        if (lanes->items[i].two)
            bench_value(bench, 100 * middle_share(&lanes->items[i]), "% by the slower",
                        "two, share: %s", lanes->items[i].work->name);
}

int main(int argc, char **argv)
{
    static struct lanes lanes;
    struct bench bench;

    bench_open(&bench, "costs", 18, argc, argv);
    add_lanes(&lanes);
    add_alone(&bench, &lanes);
    if (bench_processors() > 1)
        add_two(&bench, &lanes);
    else
        bench_skip("two: ...", "there is but one processor");
    bench_pin(HERE);
    while (bench_round(&bench)) {
        alone_round(&lanes, bench_samples(&bench, SAMPLES));
        two_round(&lanes, bench_samples(&bench, SAMPLES));
    }
    add_shares(&bench, &lanes);
    for (unsigned i = 0; i < lanes.n; i++)
        object_free(lanes.items[i].object, lanes.items[i].work, lanes.items[i].done);
    return bench_close(&bench);
}
