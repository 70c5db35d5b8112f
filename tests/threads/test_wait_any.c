/* SPDX-License-Identifier: MIT */
/*
 * Requests that wait in several sets at once (`wait: any`), by every way of waiting, on the real
 * clock. They race with each other's grants and withdrawals, with timeouts, and with cancellations
 * by other threads. Each has one outcome. In the end nothing is held, nothing waits, and of each
 * rate as much was used as there were winners.
 *
 * Order: of two requests of one thread the first stands before the second in each set, so it was
 * not granted later. (Unless it has a timeout: then its wait ends in one set after the other.)
 *
 * An argument names the kinds of the three sets. WEIR_OPERATIONS is the number of races.
 */
#include "lib/clock.h"
#include "lib/require.h"
#include "lib/tmpdir.h"
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <weir/weir.h>

enum { SETS = 3, RACERS = 8, SLOTS = 1, CALLS = 100000000, PAIR = 2 };

#define LIMITS                                                                                     \
    "limits: [ { type: resource, key: slots, capacity: 1 },"                                       \
    " { type: rate, key: calls, algorithm: fixed_window, capacity: 100M, window: 365d,"            \
    " refund: false } ]"
#define TEXT(a, b, c)                                                                              \
    "version: 1\nsets: { a: { " a LIMITS " }, b: { " b LIMITS " }, c: { " c LIMITS                 \
    " } }\npools: { p: { sets: [a, b, c], wait: any } }\n"

static const struct {
    const char *name, *text;
} kinds[] = {
    {"private", TEXT("", "", "")},
    {"shared", TEXT("backend: process, ", "backend: process, ", "backend: process, ")},
    {"mixed", TEXT("", "backend: process, ", "subjects: { max: 4 }, ")},
};

static const char *const names[SETS] = {"a", "b", "c"};

static weir *w;
static weir_pool *pool;
static weir_set *sets[SETS];
static _Atomic unsigned in_use[SETS], wins[SETS], canceled_n, timed_out_n;

struct race {
    uint64_t random;
    int fd;            /* eventfd, attached to acquisitions */
    weir_queue *queue; /* of this thread alone */
    /* A token that the thread beside it may cancel, and whether that is done with it. */
    pthread_t canceler;
    uint64_t canceler_random;
    _Atomic(weir_token *) token;
    _Atomic bool has_ended;
    _Atomic unsigned canceling_n;
};

/* Sleeps for up to `ns`, so that others run: half of the time not at all. */
static void pause_at_most(uint64_t *random, uint64_t ns)
{
    struct timespec time = {.tv_nsec = (long)random_below(random, ns)};

    if (random_below(random, 2))
        nanosleep(&time, NULL);
}

static struct weir_request draw_request(struct race *race)
{
    static const struct weir_amount one = {"calls", 1};

    return (struct weir_request){.size = sizeof(struct weir_request),
                                 .amounts = &one,
                                 .amounts_n = 1,
                                 .subject = "s",
                                 .subject_size = 1,
                                 .timeout_ns = random_below(&race->random, 3) == 0
                                                   ? 1 + random_below(&race->random, 300 * US)
                                                   : 0};
}

static int set_of(const weir_acquisition *acquisition)
{
    const char *name = weir_acquisition_set(acquisition);

    for (int i = 0; i < SETS; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    require(!"it was granted by a set");
    return -1;
}

/* Checks that a set grants no more than it has, and gives everything back. Returns the instant of
 * the grant. */
static uint64_t use(struct race *race, weir_acquisition *won)
{
    int set = set_of(won);
    uint64_t granted_ns;

    require(atomic_fetch_add(&in_use[set], 1) < SLOTS);
    atomic_fetch_add(&wins[set], 1);
    pause_at_most(&race->random, 60 * US);
    require(weir_acquisition_granted_ns(won, &granted_ns) == 0);
    require(weir_update(won, "calls", 1) == 0);
    require(weir_cancel(won) == -EALREADY);
    atomic_fetch_sub(&in_use[set], 1);
    require(weir_release(&won) == 0);
    return granted_ns;
}

static void count_end(int result)
{
    if (result == -ETIMEDOUT)
        atomic_fetch_add(&timed_out_n, 1);
    else if (result == -ECANCELED)
        atomic_fetch_add(&canceled_n, 1);
    else
        require(!"one of the ends that there are");
}

/* ---- an acquisition ---- */

/* Cancels it, or lets the release do so. */
static void give_up(struct race *race, weir_acquisition *acquisition)
{
    int r = -EALREADY;

    if (random_below(&race->random, 2))
        r = weir_cancel(acquisition);
    if (r == 0)
        require(weir_acquisition_result(acquisition) == -ECANCELED);
    require(weir_release(&acquisition) == 0);
    atomic_fetch_add(&canceled_n, 1);
}

static void await_decision(const struct race *race, weir_acquisition *acquisition)
{
    struct pollfd decided = {.fd = race->fd, .events = POLLIN};
    eventfd_t n;

    while (weir_acquisition_result(acquisition) == -EINPROGRESS) {
        require(poll(&decided, 1, 20000) == 1);
        require(eventfd_read(race->fd, &n) == 0);
    }
}

static void race_acquisition(struct race *race)
{
    const struct weir_request request = draw_request(race);
    weir_acquisition *acquisition;
    int r = weir_submit(pool, &request, &acquisition, NULL);

    require(r == 0 || r == 1);
    if (r == 1 && random_below(&race->random, 4) == 0) {
        pause_at_most(&race->random, 60 * US);
        give_up(race, acquisition); /* its grant has no descriptor, so it is undone */
        return;
    }
    if (r == 1) {
        eventfd_t left;

        eventfd_read(race->fd, &left);
        require(weir_acquisition_attach(acquisition, race->fd) == 0);
        await_decision(race, acquisition);
    }
    r = weir_acquisition_result(acquisition);
    if (r == 0) {
        use(race, acquisition);
    } else {
        count_end(r);
        require(weir_release(&acquisition) == 0);
    }
}

/* ---- a blocked thread ---- */

static void *run_canceler(void *argument)
{
    struct race *race = argument;
    uint64_t random = race->canceler_random;

    while (!atomic_load(&race->has_ended)) {
        weir_token *token;

        nanosleep(&(struct timespec){.tv_nsec = (long)random_below(&random, 100 * US)}, NULL);
        atomic_fetch_add(&race->canceling_n, 1);
        token = atomic_exchange(&race->token, NULL);
        if (token)
            require(weir_token_cancel(token) >= 0);
        atomic_fetch_sub(&race->canceling_n, 1);
    }
    return NULL;
}

/* Ends a token, which the other thread may be canceling. */
static void end_token(struct race *race, weir_token *token)
{
    atomic_store(&race->token, NULL);
    while (atomic_load(&race->canceling_n))
        nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
    weir_token_close(token);
}

static void race_blocked(struct race *race)
{
    struct weir_request request = draw_request(race);
    weir_acquisition *acquisition = NULL;
    int r;

    if (random_below(&race->random, 2)) {
        require(weir_token_open(&request.token, w) == 0);
        atomic_store(&race->token, request.token);
    }
    r = weir_acquire(pool, &request, &acquisition, NULL);
    if (request.token)
        end_token(race, request.token);
    if (r == 0)
        use(race, acquisition);
    else
        count_end(r);
}

/* ---- a completion queue ---- */

static int reap(const struct race *race, struct weir_completion *ret)
{
    struct pollfd decided = {.fd = weir_queue_fd(race->queue), .events = POLLIN};
    int n;

    while ((n = weir_queue_reap(race->queue, ret, 1)) == 0)
        require(poll(&decided, 1, 20000) == 1);
    require(n == 1);
    return ret->result;
}

/* Two requests, one behind the other. */
static void race_queue(struct race *race)
{
    bool has_acquisition = random_below(&race->random, 2);
    weir_acquisition *acquisitions[PAIR] = {NULL};
    uint64_t granted_ns[PAIR] = {0};
    bool stays = true; /* the first one, in each set until it is granted */

    for (uint64_t i = 0; i < PAIR; i++) {
        const struct weir_request request = draw_request(race);

        stays &= i > 0 || !request.timeout_ns;
        require(weir_queue_submit(race->queue, pool, &request, i,
                                  has_acquisition ? &acquisitions[i] : NULL, NULL) == 0);
    }
    if (random_below(&race->random, 4) == 0) {
        pause_at_most(&race->random, 60 * US);
        require(weir_queue_cancel(race->queue, random_below(&race->random, PAIR)) >= 0);
    }
    for (uint64_t i = 0; i < PAIR; i++) {
        struct weir_completion done;
        int r = reap(race, &done);

        require(done.user_data < PAIR && !granted_ns[done.user_data]);
        require(!has_acquisition || done.acquisition == acquisitions[done.user_data]);
        if (r == 0) {
            granted_ns[done.user_data] = use(race, done.acquisition);
            continue;
        }
        count_end(r);
        require(weir_release(&done.acquisition) == 0);
    }
    require(!stays || !granted_ns[0] || !granted_ns[1] || granted_ns[0] <= granted_ns[1]);
}

/* What is submitted is dropped with its completion queue, or by a release. */
static void race_drop(struct race *race)
{
    const struct weir_request request = draw_request(race);
    weir_acquisition *acquisition = NULL;
    weir_queue *queue;

    require(weir_queue_open(&queue, w, PAIR) == 0);
    require(weir_queue_submit(queue, pool, &request, 1, NULL, NULL) == 0);
    require(weir_queue_submit(queue, pool, &request, 2, &acquisition, NULL) == 0);
    pause_at_most(&race->random, 60 * US);
    if (random_below(&race->random, 2))
        require(weir_release(&acquisition) == 0);
    weir_queue_close(queue);
    require(weir_release(&acquisition) == 0);
    atomic_fetch_add(&canceled_n, PAIR);
}

/* ---- all of them ---- */

static void await_no_waiter(weir_set *set)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    uint64_t end = clock_now() + 20 * SECOND;

    do
        require(weir_set_stats(set, &stats, NULL, 0) == 2);
    while (stats.waiting > 0 && clock_now() < end);
    require(stats.waiting == 0);
}

/* A request that was granted leaves the other sets, though the program does nothing. */
static void check_withdrawal(void)
{
    struct race race = {.random = test_seed};
    struct weir_request request = draw_request(&race);
    weir_acquisition *holders[SETS] = {NULL}, *waits = NULL;
    weir_pool *of;

    request.timeout_ns = 0;
    for (int i = 0; i < SETS; i++) {
        require(weir_pool_open(&of, w, names[i], 0, NULL) == 0);
        require(weir_try_acquire(of, &request, &holders[i], NULL) == 0);
        weir_pool_close(of);
    }
    require(weir_submit(pool, &request, &waits, NULL) == 1);
    use(&race, holders[1]);
    for (int i = 0; i < SETS; i++)
        await_no_waiter(sets[i]);
    require(weir_acquisition_result(waits) == 0 && set_of(waits) == 1);
    use(&race, waits);
    use(&race, holders[0]);
    use(&race, holders[2]);
}

/* Returns how many requests that were. */
static unsigned run_race(struct race *race)
{
    switch (random_below(&race->random, 8)) {
    case 0:
    case 1:
    case 2:
        race_acquisition(race);
        return 1;
    case 3:
    case 4:
        race_blocked(race);
        return 1;
    case 5:
        race_drop(race);
        return PAIR;
    default:
        race_queue(race);
        return PAIR;
    }
}

static uint64_t races_of_one(void)
{
    return random_operations(1600) / RACERS;
}

/* A thread that races. Its descriptor is made before all threads: the thread sanitizer does not see
 * that the kernel orders the end of one descriptor before the next one of the same number. */
struct racer {
    pthread_t thread;
    uint64_t random, races_n;
    int fd;
};

static void *run_races(void *argument)
{
    struct racer *racer = argument;
    struct race race = {.random = racer->random, .fd = racer->fd};
    uint64_t n = 0;

    race.canceler_random = random_next(&race.random);
    require(race.fd >= 0 && weir_queue_open(&race.queue, w, PAIR) == 0);
    require(pthread_create(&race.canceler, NULL, run_canceler, &race) == 0);
    while (n < races_of_one())
        n += run_race(&race);
    atomic_store(&race.has_ended, true);
    require(pthread_join(race.canceler, NULL) == 0);
    weir_queue_close(race.queue);
    racer->races_n = n;
    return NULL;
}

/* Waits until the last ones have left the sets: the timer thread may be about to withdraw them. */
static void check_set(int i)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_subjects_stats subjects = {.size = sizeof(subjects)};
    struct weir_limit_stats limits[2];
    uint64_t end = clock_now() + 20 * SECOND;

    do
        require(weir_set_stats(sets[i], &stats, limits, 2) == 2);
    while ((stats.held > 0 || stats.waiting > 0) && clock_now() < end);
    require(stats.held == 0 && stats.waiting == 0);
    require(limits[1].granted - limits[1].refunded == atomic_load(&wins[i]));
    if (weir_set_subjects(sets[i], &subjects) == 1) /* what is available is that of a new subject */
        return;
    require(limits[0].available == SLOTS);
    require(limits[1].available == CALLS - atomic_load(&wins[i]));
}

static void check_total(uint64_t n)
{
    unsigned sum = wins[0] + wins[1] + wins[2] + canceled_n + timed_out_n;

    printf("%u requests: granted by a %u, b %u, c %u; canceled %u, timed out %u\n", sum, wins[0],
           wins[1], wins[2], canceled_n, timed_out_n);
    require(sum == n);
}

static const char *text_of(const char *kind)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (strcmp(kind, kinds[i].name) == 0)
            return kinds[i].text;
    return NULL;
}

int main(int argc, char **argv)
{
    char directory[TMPDIR_SIZE];
    struct weir_options options = {.size = sizeof(options),
                                   .text = text_of(argc > 1 ? argv[1] : "private"),
                                   .process_dir = directory};
    struct weir_error error = {0};
    struct racer racers[RACERS];
    uint64_t n;

    seed_begin();
    require(options.text && tmpdir_make(directory, NULL));
    if (weir_open(&w, &options, &error) < 0)
        printf("%s\n", error.message);
    require(w && weir_pool_open(&pool, w, "p", 0, NULL) == 0);
    for (size_t i = 0; i < SETS; i++)
        sets[i] = weir_pool_set(pool, i);
    check_withdrawal();
    n = SETS + 1;
    for (uint64_t i = 0; i < RACERS; i++)
        racers[i] = (struct racer){.random = random_case(test_seed, i),
                                   .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    for (int i = 0; i < RACERS; i++)
        require(pthread_create(&racers[i].thread, NULL, run_races, &racers[i]) == 0);
    for (int i = 0; i < RACERS; i++) {
        require(pthread_join(racers[i].thread, NULL) == 0);
        n += racers[i].races_n;
        close(racers[i].fd);
    }
    for (int i = 0; i < SETS; i++)
        check_set(i);
    check_total(n);
    weir_pool_close(pool);
    weir_close(w);
    require(tmpdir_remove(directory));
    return 0;
}
