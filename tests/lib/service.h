/* SPDX-License-Identifier: MIT */
/*
 * A simulated service behind a limit that adapts, and clients that ask it again and again: events
 * in the order of their instants, on a clock that is moved by hand. Everything is decided by the
 * plan and the seed, so a run is the same on every machine.
 *
 * The service works on so many requests at once; others stand in its queue, and what finds that
 * full is refused at once. So the best concurrency is the number at once: fewer leave the service
 * idle, and more only wait. A client acquires from the pool, asks, releases with the outcome, and
 * begins anew.
 */
#ifndef WEIR_TESTS_SERVICE_H
#define WEIR_TESTS_SERVICE_H

#include <stddef.h>
#include <weir/weir.h>

#define SERVICE_CLIENTS_MAX 1024

/* How the service is for a time. */
struct service_phase {
    uint64_t for_ns;
    uint32_t servers;   /* requests that it works on at once: the best concurrency */
    uint32_t queue_max; /* further requests that wait in it */
    uint64_t
        service_ns;   /* the mean time of one; each takes from half of it to half as much again */
    uint32_t clients; /* that ask at the same time, at most SERVICE_CLIENTS_MAX */
};

/* What was seen in a part of a phase. */
struct service_sample {
    uint64_t at_ns;      /* its end, since the beginning of the run */
    uint64_t limit;      /* gauge `limit`, at the end */
    uint64_t held;       /* at the end */
    uint64_t done;       /* requests that succeeded in it */
    uint64_t refused;    /* by the service */
    uint64_t latency_ns; /* mean of those that succeeded; 0: none did */
};

struct service_plan {
    const struct service_phase *phases;
    size_t phases_n;
    uint64_t seed;
    uint64_t sample_ns; /* the length of a part */
    const char *key;    /* of the limit */
    void (*sample)(void *userdata, size_t phase, const struct service_sample *sample);
    void *userdata;
};

/* Runs the plan on a pool of one set, the clock of which is `*now`. Ends with nothing held. Returns
 * 0, or the error of weir. */
int service_run(const struct service_plan *plan, weir_pool *pool, _Atomic uint64_t *now);

#endif
