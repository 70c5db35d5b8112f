/* SPDX-License-Identifier: MIT */
/* Leases: what each call of each thread comes to, exactly as in a model of a rate with threads
 * that take ahead; the bound that is promised; waiters; where leases go in the end. In a set of one
 * process, and in one that two share. Long form: WEIR_ROUNDS. */
#include "api/instance.h"
#include "lib/require.h"
#include "lib/tmpdir.h"
#include "lib/world.h"
#include "limit/counters.h"
#include "shm/participant.h"
#include "shm/segment.h"
#include <pthread.h>
#include <sys/wait.h>

enum { WORKERS = 3, STEPS = 400, LEASE_MAX = 40 };

static uint64_t seed_at;

static uint64_t below(uint64_t n)
{
    return random_below(&seed_at, n);
}

/* ---- threads that do what they are told, one after the other ---- */

struct worker {
    pthread_t thread;
    bool runs;
    weir_pool *pool;
    uint64_t amount; /* to take; 0: to end */
    bool told;       /* there is something to do */
    int result;
    struct weir_refusal refusal;
};

static struct worker workers[WORKERS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void *work(void *argument)
{
    struct worker *worker = argument;
    uint64_t amount;

    pthread_mutex_lock(&lock);
    do {
        while (!worker->told)
            pthread_cond_wait(&changed, &lock);
        amount = worker->amount;
        worker->refusal = (struct weir_refusal){.size = sizeof(struct weir_refusal)};
        if (amount)
            worker->result = weir_take(worker->pool, ASK({"k", amount}), &worker->refusal);
        worker->told = false;
        pthread_cond_broadcast(&changed);
    } while (amount);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void tell(struct worker *worker, uint64_t amount)
{
    pthread_mutex_lock(&lock);
    worker->amount = amount;
    worker->told = true;
    pthread_cond_broadcast(&changed);
    while (worker->told)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void worker_start(struct worker *worker, weir_pool *pool)
{
    *worker = (struct worker){.pool = pool, .runs = true};
    assert_int_equal(pthread_create(&worker->thread, NULL, work, worker), 0);
}

static int worker_take(struct worker *worker, uint64_t amount)
{
    tell(worker, amount);
    return worker->result;
}

static void worker_end(struct worker *worker)
{
    if (!worker->runs)
        return;
    tell(worker, 0);
    assert_int_equal(pthread_join(worker->thread, NULL), 0);
    worker->runs = false;
}

/* ---- against a model ---- */

static struct model {
    uint64_t unit, full; /* ns per unit; of the burst */
    uint64_t lease;
    uint64_t tat;
    uint64_t left[WORKERS], filled[WORKERS]; /* what is left of leases, and when they were filled */
    uint64_t granted;
    bool strict; /* returns are strict refunds */
} model;

/* What happened when, and how much was leased before. */
static struct {
    uint64_t at, amount, leased;
} history[STEPS];

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t model_leased(void)
{
    uint64_t leased = 0;

    for (unsigned i = 0; i < WORKERS; i++)
        leased += model.left[i];
    return leased;
}

static uint64_t model_available(void)
{
    uint64_t ahead = later(model.tat, world.now) - world.now;

    return (model.full - ahead) / model.unit;
}

/* 0: granted; else how long it takes until it will be. */
static uint64_t model_take(unsigned i, uint64_t amount)
{
    uint64_t *left = &model.left[i], needed, wanted, tat = later(model.tat, world.now);

    if (amount <= *left) {
        *left -= amount;
        model.granted += amount;
        return 0;
    }
    needed = amount - *left;
    wanted = needed < model.lease ? model.lease : needed;
    if (tat + wanted * model.unit > world.now + model.full)
        wanted = needed;
    if (tat + wanted * model.unit > world.now + model.full)
        return tat + needed * model.unit - world.now - model.full;
    model.tat = tat + wanted * model.unit;
    model.granted += amount;
    *left = wanted - needed;
    model.filled[i] = world.now;
    return 0;
}

static void model_end(unsigned i)
{
    uint64_t back = model.left[i] * model.unit, since = world.now - model.filled[i];

    if (model.strict)
        back -= since < back ? since : back;
    model.tat = later(later(model.tat, world.now) - back, world.now);
    model.left[i] = 0;
}

/* From each instant on, no more was granted than the burst, what came back since, and the leases.
 */
static void check_bound(unsigned n)
{
    uint64_t granted = 0;

    for (unsigned i = n; i-- > 0;) {
        granted += history[i].amount;
        require(granted * model.unit <=
                model.full + (history[n - 1].at - history[i].at) + history[i].leased * model.unit);
        require(history[i].leased <= (model.lease - 1) * WORKERS);
    }
}

static void check_figures(void)
{
    struct weir_limit_stats s = limit_stats(0);

    require(s.leased == model_leased());
    require(s.granted == model.granted);
    require(s.available == model_available());
}

static void step(unsigned at, struct twin *twins, unsigned twins_n)
{
    unsigned i = (unsigned)below(WORKERS);
    uint64_t burst = model.full / model.unit, few = burst < 4 ? burst : 4;
    uint64_t amount = 1 + below(below(8) ? few : burst), wait;

    history[at].at = world.now;
    history[at].leased = model_leased();
    history[at].amount = 0;
    if (below(20) == 0 && workers[i].runs) {
        worker_end(&workers[i]);
        model_end(i);
        return;
    }
    if (!workers[i].runs)
        worker_start(&workers[i], twins[i % twins_n].pool);
    wait = model_take(i, amount);
    require(worker_take(&workers[i], amount) == (wait ? -EAGAIN : 0));
    require(!wait || workers[i].refusal.retry_after_ns == wait);
    history[at].amount = wait ? 0 : amount;
}

static void random_round(bool shared)
{
    uint64_t capacity = 1 + below(1000), burst = 1 + below(3 * LEASE_MAX);
    struct twin twins[2];
    char fields[300];

    model =
        (struct model){.unit = 1 + below(MS), .lease = 1 + below(LEASE_MAX), .strict = below(2)};
    if (model.lease > burst)
        model.lease = burst;
    model.full = burst * model.unit;
    snprintf(fields, sizeof(fields),
             "%slimits: [ { type: rate, key: k, algorithm: gcra, capacity: %" PRIu64
             ", window: %" PRIu64 "ns, burst: %" PRIu64 ", lease: %" PRIu64 ", refund: %s } ]",
             shared ? "backend: process, lifetime: users, " : "", capacity, capacity * model.unit,
             burst, model.lease,
             model.strict ? "strict"
             : below(2)   ? "true"
                          : "false");
    world_set(fields);
    twins[0] = (struct twin){world.w, world.pool, world.set};
    if (shared)
        twins[1] = world_twin("main");
    for (unsigned i = 0; i < STEPS; i++) {
        step(i, twins, shared ? 2 : 1);
        check_figures();
        check_bound(i + 1);
        world.now += below(3) ? below(3 * model.unit) : below(4) ? 0 : below(model.full);
    }
    for (unsigned i = 0; i < WORKERS; i++) {
        worker_end(&workers[i]);
        model_end(i);
    }
    check_figures();
    if (shared)
        world_twin_close(&twins[1]);
    world_close();
}

static void decisions_are_those_of_the_model(void **state)
{
    (void)state;
    for (uint64_t rounds = effort_from("WEIR_ROUNDS", 20); rounds > 0; rounds--)
        random_round(false);
}

static void decisions_are_those_of_the_model_in_two_instances(void **state)
{
    (void)state;
    for (uint64_t rounds = effort_from("WEIR_ROUNDS", 20); rounds > 0; rounds--)
        random_round(true);
}

/* ---- one by one ---- */

#define RATE(more) "{ type: rate, key: k, algorithm: gcra, capacity: 10, window: 1s, " more " }"
#define ONE        ASK({"k", 1})

static void one_take_fills_the_lease_and_the_next_use_it(void **state)
{
    (void)state;
    world_limits(RATE("lease: 4"));
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(take(ONE), 0);
        assert_int_equal(available(0), 6);
        assert_int_equal(limit_stats(0).leased, 3 - i);
        assert_int_equal(limit_stats(0).granted, i + 1);
        assert_int_equal(stats().granted, i + 1);
        assert_int_equal(stats().taken, i + 1);
        assert_int_equal(stats().held, 0);
    }
    assert_int_equal(take(ASK({"k", 5})), 0); /* more than a lease: just that */
    assert_int_equal(available(0), 1);
    assert_int_equal(limit_stats(0).leased, 0);
    assert_int_equal(take(ONE), 0); /* there is no whole one */
    assert_int_equal(available(0), 0);
    assert_int_equal(limit_stats(0).leased, 0);
    assert_int_equal(take(ONE), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, SECOND / 10);
    assert_string_equal(refusal.key, "k");
    assert_int_equal(limit_stats(0).refused, 1);
    assert_int_equal(take(ASK({"k", 11})), -ERANGE);
    assert_int_equal(take(ASK({"k", 0})), 0);
    world_close();
}

/* What is left counts towards what is asked for. */
static void what_is_left_is_used_first(void **state)
{
    (void)state;
    world_limits(RATE("lease: 4"));
    assert_int_equal(take(ONE), 0);
    assert_int_equal(take(ASK({"k", 9})), 0);
    assert_int_equal(available(0), 0);
    assert_int_equal(limit_stats(0).leased, 0);
    assert_int_equal(limit_stats(0).granted, 10);
    world_close();
}

/* Other calls ask the set itself, and leave what is leased. */
static void acquisitions_come_from_the_set(void **state)
{
    weir_acquisition *acquisition = NULL;

    (void)state;
    world_limits(RATE("lease: 4"));
    assert_int_equal(take(ONE), 0);
    assert_int_equal(try_acquire(ASK({"k", 7}), &acquisition), -EAGAIN);
    assert_int_equal(try_acquire(ASK({"k", 6}), &acquisition), 0);
    assert_int_equal(limit_stats(0).leased, 3);
    assert_int_equal(take(ASK({"k", 3})), 0);
    assert_int_equal(take(ONE), -EAGAIN);
    release_used(acquisition, "k", 6);
    world_close();
}

/* What was leased before the waiter came may be used up, but nothing more is leased until it is
 * granted, and that is when the forecast said. */
static void a_lease_is_not_filled_before_a_waiter_is_granted(void **state)
{
    weir_acquisition *first, *second;

    (void)state;
    world_limits(RATE("lease: 4"));
    assert_int_equal(take(ONE), 0);
    first = granted(ASK({"k", 6}));
    release_used(first, "k", 6);
    first = pending(ASK({"k", 2}));
    second = pending(ASK({"k", 5}));
    assert_int_equal(take(ASK({"k", 3})), 0);
    assert_int_equal(take(ONE), -EAGAIN);
    assert_int_equal(advance(SECOND / 5 - 1), 0);
    assert_int_equal(advance(1), 1);
    assert_int_equal(take(ONE), -EAGAIN);
    assert_int_equal(advance(SECOND / 2), 1);
    assert_int_equal(take(ONE), -EAGAIN);
    advance(SECOND);
    assert_int_equal(take(ONE), 0);
    assert_int_equal(limit_stats(0).leased, 3);
    release_used(first, "k", 2);
    release_used(second, "k", 5);
    world_close();
}

/* A thread that may barge takes what it needs, and no lease. */
static void a_lease_is_not_filled_by_a_barging_thread(void **state)
{
    weir_acquisition *acquisition;

    (void)state;
    world_set("fair: false, limits: [ " RATE("lease: 4") " ]");
    acquisition = granted(ASK({"k", 5}));
    release_used(acquisition, "k", 5);
    acquisition = pending(ASK({"k", 6}));
    assert_int_equal(take(ONE), 0);
    assert_int_equal(limit_stats(0).leased, 0);
    assert_int_equal(available(0), 4);
    assert_int_equal(advance(2 * SECOND / 10), 1);
    release_used(acquisition, "k", 6);
    world_close();
}

static void a_lease_is_not_filled_before_a_reservation(void **state)
{
    weir_acquisition *acquisition;
    uint64_t at;

    (void)state;
    world_limits(RATE("lease: 4"));
    assert_int_equal(take(ASK({"k", 2})), 0);
    assert_int_equal(limit_stats(0).leased, 2);
    assert_int_equal(reserve(ASK({"k", 8}), &acquisition, &at), 0);
    assert_int_equal(at, START + 2 * SECOND / 10);
    assert_int_equal(take(ASK({"k", 2})), 0);
    assert_int_equal(take(ONE), -EAGAIN);
    advance(3 * SECOND / 10);
    assert_int_equal(take(ONE), 0);
    assert_int_equal(limit_stats(0).leased, 0);
    release_used(acquisition, "k", 8);
    world_close();
}

/* A thread that ends gives back the rest of its lease, which the waiter gets. */
static void a_thread_that_ends_gives_back(void **state)
{
    weir_acquisition *acquisition;

    (void)state;
    world_limits(RATE("lease: 4, refund: false"));
    worker_start(&workers[0], world.pool);
    assert_int_equal(worker_take(&workers[0], 1), 0);
    assert_int_equal(available(0), 6);
    worker_end(&workers[0]);
    assert_int_equal(available(0), 9);
    assert_int_equal(limit_stats(0).leased, 0);
    assert_int_equal(limit_stats(0).granted, 1);
    assert_int_equal(limit_stats(0).refunded, 0);
    assert_int_equal(stats().released, 0);

    worker_start(&workers[0], world.pool); /* on the part of the other */
    assert_int_equal(worker_take(&workers[0], 3), 0);
    acquisition = granted(ASK({"k", 5}));
    release_used(acquisition, "k", 5);
    acquisition = pending(ONE);
    worker_end(&workers[0]);
    assert_int_equal(weir_acquisition_result(acquisition), 0);
    assert_int_equal(available(0), 0);
    assert_int_equal(limit_stats(0).leased, 0);
    release_used(acquisition, "k", 1);
    world_close();
}

#define SHARED "backend: process, lifetime: users, limits: [ " RATE("lease: 4") " ]"

static void closing_gives_back(void **state)
{
    struct twin twin;

    (void)state;
    world_set(SHARED);
    twin = world_twin("main");
    assert_int_equal(weir_take(twin.pool, ONE, NULL), 0);
    assert_int_equal(take(ASK({"k", 2})), 0);
    assert_int_equal(available(0), 2);
    assert_int_equal(limit_stats(0).leased, 5);
    world_twin_close(&twin);
    assert_int_equal(available(0), 5);
    assert_int_equal(limit_stats(0).leased, 2);
    assert_int_equal(limit_stats(0).granted, 3);
    world_close();
}

/* What the dead had leased counts as used, and no other uses it. */
static void a_process_that_dies_gives_nothing_back(void **state)
{
    struct twin twin;
    int status, ends[2];
    char byte;
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    pid = fork(); /* while there is no other thread */
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ends[1]);
        if (read(ends[0], &byte, 1) != 0)
            _exit(1);
        world_set(SHARED);
        _exit(take(ONE) == 0 ? 0 : 1);
    }
    world_set(SHARED);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(available(0), 6);
    assert_int_equal(stats().granted, 1);
    advance(SECOND);
    twin = world_twin("main");
    for (unsigned i = 0; i < WORKERS; i++) { /* one of them has the place of the dead */
        worker_start(&workers[i], twin.pool);
        assert_int_equal(worker_take(&workers[i], 2), 0);
        assert_int_equal(available(0), 6);
        assert_int_equal(limit_stats(0).leased, 2);
        worker_end(&workers[i]);
        assert_int_equal(available(0), 8);
        advance(SECOND);
    }
    assert_int_equal(limit_stats(0).leased, 0);
    world_twin_close(&twin);
    world_close();
}

/* Of what others may write to nothing is believed. */
static void a_lease_that_cannot_be_breaks_the_set(void **state)
{
    struct segment *segment;

    (void)state;
    world_set(SHARED);
    assert_int_equal(take(ONE), 0);
    segment = world.set->participant->segment;
    for (uint32_t i = 0; i < segment_threads_n(segment); i++) {
        struct counters *counters = segment_thread_counters(segment, i);

        if (atomic_load(&counters->limits[0].leased))
            atomic_store(&counters->limits[0].leased, 1000);
    }
    assert_int_equal(take(ONE), -EUCLEAN);
    assert_int_equal(take(ONE), -EUCLEAN);
    world_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(decisions_are_those_of_the_model),
        leak_checked_test(decisions_are_those_of_the_model_in_two_instances),
        leak_checked_test(one_take_fills_the_lease_and_the_next_use_it),
        leak_checked_test(what_is_left_is_used_first),
        leak_checked_test(acquisitions_come_from_the_set),
        leak_checked_test(a_lease_is_not_filled_before_a_waiter_is_granted),
        leak_checked_test(a_lease_is_not_filled_by_a_barging_thread),
        leak_checked_test(a_lease_is_not_filled_before_a_reservation),
        leak_checked_test(a_thread_that_ends_gives_back),
        leak_checked_test(closing_gives_back),
        leak_checked_test(a_process_that_dies_gives_nothing_back),
        leak_checked_test(a_lease_that_cannot_be_breaks_the_set),
    };

    char directory[TMPDIR_SIZE];
    int failed;

    seed_begin();
    seed_at = test_seed;
    if (!tmpdir_make(directory, NULL) || setenv("WEIR_PROCESS_DIR", directory, 1) < 0)
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed || rmdir(directory) < 0;
}
