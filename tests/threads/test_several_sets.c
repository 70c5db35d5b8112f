/* SPDX-License-Identifier: MIT */
/*
 * A request that stands in the wait queues of several sets at once, as a program makes it of public
 * calls: it submits to each set, one eventfd is attached to all, and the first grant wins. All
 * others are canceled, which undoes those that were granted meanwhile. Such requests race with each
 * other's grants and withdrawals, with timeouts and with cancellations. Each has one outcome, and
 * in the end nothing is held, nothing waits, and of each rate as much was used as there were
 * winners.
 *
 * WEIR_OPERATIONS is the number of races.
 */
#include "lib/clock.h"
#include "lib/require.h"
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <weir/weir.h>

enum { SETS = 3, RACERS = 8, SLOTS = 1, CALLS = 100000000 };

#define LIMITS                                                                                     \
    "limits: [ { type: resource, key: slots, capacity: 1 },"                                       \
    " { type: rate, key: calls, algorithm: fixed_window, capacity: 100M, window: 365d,"            \
    " refund: false } ]"

static const char text[] = "version: 1\nsets: { a: { " LIMITS " }, b: { " LIMITS " },\n"
                           "  c: { fair: false, " LIMITS " } }\n";

static weir *w;
static weir_pool *pools[SETS];
static _Atomic unsigned in_use[SETS], wins[SETS], canceled_n, timed_out_n;

struct race {
    uint64_t random;
    int fd;
    weir_acquisition *pending[SETS]; /* NULL: it is not in that set */
};

/* Sleeps for up to `ns`, so that others run: half of the time not at all. */
static void pause_at_most(uint64_t *random, uint64_t ns)
{
    struct timespec time = {.tv_nsec = (long)random_below(random, ns)};

    if (random_below(random, 2))
        nanosleep(&time, NULL);
}

/* Checks that a set grants no more than it has, and gives everything back. */
static void use(struct race *race, int set, weir_acquisition *won)
{
    require(atomic_fetch_add(&in_use[set], 1) < SLOTS);
    atomic_fetch_add(&wins[set], 1);
    pause_at_most(&race->random, 60 * US);
    require(weir_update(won, "calls", 1) == 0);
    atomic_fetch_sub(&in_use[set], 1);
    require(weir_release(&won) == 0);
}

/* Takes the request out of all sets where it still is. What was granted there is undone. */
static void withdraw(struct race *race)
{
    for (int i = 0; i < SETS; i++) {
        int r;

        if (!race->pending[i])
            continue;
        r = weir_cancel(race->pending[i]);
        require(r == 0 || r == -EALREADY);
        require(weir_release(&race->pending[i]) == 0);
    }
}

/* Submits to the sets in turn. Returns the set that has granted at once, or -1. */
static int submit(struct race *race, uint64_t timeout_ns)
{
    const struct weir_request request = {.size = sizeof(request),
                                         .amounts = (const struct weir_amount[]){{"calls", 1}},
                                         .amounts_n = 1,
                                         .timeout_ns = timeout_ns};
    uint64_t first = random_below(&race->random, SETS);

    for (int i = 0; i < SETS; i++) {
        int set = (int)((first + (uint64_t)i) % SETS);
        int r = weir_submit(pools[set], &request, &race->pending[set], NULL);

        require(r == 0 || r == 1);
        if (r == 0)
            return set;
        require(weir_acquisition_attach(race->pending[set], race->fd) == 0);
    }
    return -1;
}

/* Returns the first set that has granted; -1: none yet; SETS: all waits have ended. A result of 0
 * is asked for once: it says that the grant is known. */
static int winner(struct race *race)
{
    int ended = 0;

    for (int i = 0; i < SETS; i++) {
        int r = weir_acquisition_result(race->pending[i]);

        require(r == 0 || r == -EINPROGRESS || r == -ETIMEDOUT);
        if (r == 0)
            return i;
        ended += r == -ETIMEDOUT;
    }
    return ended == SETS ? SETS : -1;
}

static int wait_for_any(struct race *race)
{
    struct pollfd decided = {.fd = race->fd, .events = POLLIN};
    eventfd_t n;
    int set;

    while ((set = winner(race)) < 0) {
        require(poll(&decided, 1, 20000) == 1);
        require(eventfd_read(race->fd, &n) == 0);
    }
    return set;
}

static void run_race(struct race *race)
{
    bool gives_up = random_below(&race->random, 4) == 0;
    uint64_t timeout_ns =
        random_below(&race->random, 3) == 0 ? 1 + random_below(&race->random, 300 * US) : 0;
    weir_acquisition *won;
    int set = submit(race, timeout_ns);

    if (set < 0 && gives_up)
        pause_at_most(&race->random, 60 * US);
    if (set < 0 && !gives_up)
        set = wait_for_any(race);
    if (set < 0 || set == SETS) {
        withdraw(race);
        atomic_fetch_add(set < 0 ? &canceled_n : &timed_out_n, 1);
        return;
    }
    won = race->pending[set];
    race->pending[set] = NULL;
    withdraw(race);
    use(race, set, won);
}

static void *run_races(void *argument)
{
    uint64_t n = random_operations(600) / RACERS;
    struct race race = {.random = *(uint64_t *)argument,
                        .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    eventfd_t left;

    require(race.fd >= 0);
    for (uint64_t i = 0; i < n; i++) {
        run_race(&race);
        eventfd_read(race.fd, &left); /* what the withdrawn ones have signaled */
    }
    close(race.fd);
    return NULL;
}

static void check_set(int i)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[2];

    require(weir_set_stats(weir_pool_set(pools[i], 0), &stats, limits, 2) == 2);
    require(stats.held == 0 && stats.waiting == 0);
    require(limits[0].available == SLOTS);
    require(limits[1].available == CALLS - atomic_load(&wins[i]));
}

int main(void)
{
    struct weir_options options = {.size = sizeof(options), .text = text};
    uint64_t cases[RACERS], n = random_operations(600) / RACERS * RACERS;
    pthread_t threads[RACERS];
    unsigned sum;

    seed_begin();
    require(weir_open(&w, &options, NULL) == 0);
    for (int i = 0; i < SETS; i++)
        require(weir_pool_open(&pools[i], w, (const char *const[]){"a", "b", "c"}[i], 0, NULL) ==
                0);
    for (uint64_t i = 0; i < RACERS; i++) {
        cases[i] = random_case(test_seed, i);
        require(pthread_create(&threads[i], NULL, run_races, &cases[i]) == 0);
    }
    for (int i = 0; i < RACERS; i++)
        require(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < SETS; i++)
        check_set(i);
    sum = wins[0] + wins[1] + wins[2] + canceled_n + timed_out_n;
    printf("%u races: granted by a %u, b %u, c %u; canceled %u, timed out %u\n", sum, wins[0],
           wins[1], wins[2], canceled_n, timed_out_n);
    require(sum == n);
    for (int i = 0; i < SETS; i++)
        weir_pool_close(pools[i]);
    weir_close(w);
    return 0;
}
