/* SPDX-License-Identifier: MIT */
/* A simulation. */
#include "simulation.h"
#include "progress.h"
#include <errno.h>
#include <stdio.h>

#define LOOK_EVENTS 8192 /* between looks at the progress and the targets */

/* Returns 0, or -EINVAL after a message: a key of the traffic is that of no limit at all. */
static int check_keys(const struct simulation *simulation, const struct mapping *mapping)
{
    for (unsigned key = 0; key < mapping->amounts_n; key++) {
        bool is_known = false;

        for (unsigned i = 0; i < simulation->n; i++)
            is_known |= simulation->engines[i].has_key[key];
        if (!is_known) {
            fprintf(stderr, "%s: %s: no limit has the key `%s`\n", simulation->command,
                    simulation->candidates[0].name, mapping->keys[key]);
            return -EINVAL;
        }
    }
    return 0;
}

/* Opens candidates and engines as of the time of the first event. */
static int open_engines(struct simulation *simulation, const struct engine_options *options,
                        const struct simulation_run *run, uint64_t start_ns)
{
    static const struct capacity_edit none = {NULL, 0, 0};
    struct engine_options own = *options;
    int r = 0;

    for (unsigned i = 0; i < simulation->n && r == 0; i++) {
        r = candidate_open(&simulation->candidates[i], start_ns, i == 0 ? &run->edit : &none);
        if (r == 0)
            r = engine_open(&simulation->engines[i], &simulation->candidates[i], &own);
        own.decisions = NULL; /* those of the first candidate alone are written */
    }
    return r < 0 ? r : check_keys(simulation, options->mapping);
}

static bool is_missed(const struct simulation *simulation, const struct simulation_run *run)
{
    return run->events_n > 0 &&
           !targets_are_met(&simulation->engines[0].tally.targets, run->events_n);
}

/* Feeds all events, the first of which is `event`. */
static int feed_all(struct simulation *simulation, const struct simulation_run *run,
                    const struct event *event, bool *ret_is_missed)
{
    struct traffic *traffic = simulation->traffic;
    struct progress progress = progress_start(run->what ? run->what : "simulating");
    int r = 1;

    *ret_is_missed = false;
    while (r > 0) {
        for (unsigned i = 0; i < simulation->n && r >= 0; i++) {
            int fed = engine_feed(&simulation->engines[i], event);

            r = fed < 0 ? fed : r;
        }
        if (r > 0 && traffic->events_n % LOOK_EVENTS == 0) {
            progress_show(&progress, traffic_progress(traffic), traffic->events_n);
            *ret_is_missed = is_missed(simulation, run);
        }
        if (*ret_is_missed)
            break;
        if (r > 0)
            r = traffic_next(traffic, &event);
    }
    for (unsigned i = 0; i < simulation->n && r == 0; i++)
        r = engine_finish(&simulation->engines[i]);
    progress_end(&progress);
    traffic_stop(traffic);
    return r < 0 ? r : 0;
}

int simulation_go(struct simulation *simulation, const struct engine_options *options,
                  const struct simulation_run *run, bool *ret_is_missed)
{
    const struct event *event;
    int r = traffic_next(simulation->traffic, &event);

    if (r == 0) {
        fprintf(stderr, "%s: there are no events\n", simulation->command);
        r = -ENODATA;
    }
    if (r > 0)
        r = open_engines(simulation, options, run, event->at_ns);
    if (r == 0)
        r = feed_all(simulation, run, event, ret_is_missed);
    if (r == 0 && !*ret_is_missed)
        *ret_is_missed = is_missed(simulation, run);
    return r;
}

void simulation_end_run(struct simulation *simulation)
{
    for (unsigned i = 0; i < simulation->n; i++)
        engine_close(&simulation->engines[i]);
}
