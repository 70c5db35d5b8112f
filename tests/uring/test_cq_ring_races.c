/* SPDX-License-Identifier: MIT */
/*
 * Posting against whatever the program does with an acquisition at that very moment, and against
 * detaching: one outcome each, nothing lost, totals right. With WEIR_ROUNDS more of it, or
 * with WEIR_GRANTS less.
 */
#include "lib/fixture.h"
#include "rings.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <weir/weir.h>

#include <cmocka.h>

#define PATIENCE (10 * SECOND)

/* ENOUGH: outcomes of each kind after which a meeting may end, if it has taken PATIENCE. */
enum { RELEASERS = 2, WAITERS = 64, ENOUGH = 50 };

static unsigned kind;
static weir *w;
static weir_pool *pool;
static weir_queue *queue;
static struct io_uring ring;

static int open_all(void **state, uint64_t permits)
{
    const struct weir_limit_spec limits[] = {
        {.size = sizeof(limits[0]), .type = WEIR_LIMIT_RESOURCE, .key = "db", .capacity = permits}};
    struct weir_options options = {.size = sizeof(options)};
    struct weir_set_spec set = {
        .size = sizeof(set), .name = "set", .limits = limits, .limits_n = 1};
    struct weir_pool_spec spec = {.size = sizeof(spec), .sets = &set, .sets_n = 1};

    fixture_setup(state);
    require(weir_open(&w, &options, NULL) == 0);
    require(weir_pool_new(&pool, w, &spec, NULL) == 0);
    require(weir_queue_open(&queue, w, 2 * WAITERS) == 0);
    require(io_uring_queue_init(2 * WAITERS, &ring, ring_kinds[kind].flags) == 0);
    require(weir_queue_attach(queue, ring.ring_fd) == 0);
    return 0;
}

static int setup_one(void **state)
{
    return open_all(state, 1);
}

static int setup_some(void **state)
{
    return open_all(state, RELEASERS);
}

static int teardown(void **state)
{
    weir_queue_close(queue);
    weir_close(w);
    weir_pool_close(pool);
    io_uring_queue_exit(&ring);
    return fixture_teardown(state);
}

static weir_acquisition *submit(uint64_t user_data)
{
    struct weir_request request = {.size = sizeof(request), .timeout_ns = WEIR_FOREVER};
    weir_acquisition *acquisition = NULL;

    require(weir_queue_submit(queue, pool, &request, user_data, &acquisition, NULL) == 0);
    return acquisition;
}

static weir_acquisition *take(void)
{
    struct weir_request request = {.size = sizeof(request)};
    weir_acquisition *acquisition = NULL;

    require(weir_try_acquire(pool, &request, &acquisition, NULL) == 0);
    return acquisition;
}

static void release(weir_acquisition *acquisition)
{
    require(weir_release(&acquisition) == 0);
}

/* The result in the one CQE that is due. */
static int await(uint64_t user_data)
{
    struct io_uring_cqe cqe;

    require(ring_next(&ring, PATIENCE, &cqe) == 0);
    require(cqe.user_data == user_data);
    return cqe.res;
}

static struct weir_set_stats stats(void)
{
    struct weir_set_stats ret = {.size = sizeof(ret)};

    require(weir_set_stats(weir_pool_set(pool, 0), &ret, NULL, 0) >= 0);
    return ret;
}

/* ---- two threads that meet: one gives back the only permit, the other gives up waiting ---- */

struct meeting {
    _Atomic uint32_t round; /* the releaser's turn begins when this moves on, and ends so too */
    _Atomic uint32_t done;
    _Atomic bool over;
    weir_acquisition *held;
};

#define DELAY_MAX (UINT64_C(1) << 24)

static void spin(uint64_t n)
{
    for (volatile uint64_t i = 0; i < n; i++)
        ;
}

static void *run_releaser(void *argument)
{
    struct meeting *meeting = argument;
    uint64_t random = test_seed;

    for (uint32_t round = 1;; round++) {
        while (meeting->round != round && !meeting->over)
            sched_yield(); /* it need not have two processors */
        if (meeting->over)
            return NULL;
        spin(random_below(&random, 300));
        release(meeting->held);
        meeting->done = round;
    }
}

struct outcomes {
    uint64_t posted, given_up;
};

static uint64_t rounds_wanted(void)
{
    return effort_from("WEIR_ROUNDS", effort_from("WEIR_GRANTS", 4000));
}

/* Where both threads share a processor, a round takes as long as the kernel lets one run. */
static bool is_enough(const struct outcomes *outcomes, uint64_t since_ns)
{
    return outcomes->posted >= ENOUGH && outcomes->given_up >= ENOUGH &&
           clock_now() - since_ns > PATIENCE;
}

/* A busy machine lets one thread wait for many rounds, until `delay` is as long as that takes. */
static bool goes_on(const struct outcomes *outcomes, uint64_t round, uint64_t since_ns)
{
    if (!outcomes->posted || !outcomes->given_up)
        return clock_now() - since_ns < 60 * SECOND;
    return round <= rounds_wanted() && !is_enough(outcomes, since_ns);
}

/* `give_up` returns whether the acquisition was granted all the same, and releases it. */
static struct outcomes meet(bool (*give_up)(weir_acquisition *acquisition, uint64_t user_data))
{
    uint64_t random = random_case(test_seed, 1);
    uint64_t since_ns = clock_now();
    uint64_t delay = 300; /* moves to where both are equally often first */
    struct meeting meeting = {.held = NULL};
    struct outcomes outcomes = {0, 0};
    pthread_t thread;

    require(pthread_create(&thread, NULL, run_releaser, &meeting) == 0);
    for (uint64_t i = 1; goes_on(&outcomes, i, since_ns); i++) {
        weir_acquisition *acquisition;

        meeting.held = take();
        acquisition = submit(i);
        meeting.round = (uint32_t)i;
        spin(random_below(&random, 2 * delay));
        if (give_up(acquisition, i)) {
            outcomes.posted++;
            delay -= delay / 16;
        } else {
            outcomes.given_up++;
            delay += delay < DELAY_MAX ? delay / 16 + 1 : 0;
        }
        while (meeting.done != i)
            sched_yield();
        require(io_uring_cq_ready(&ring) == 0);
        require(stats().held == 0 && stats().waiting == 0);
    }
    meeting.over = true;
    require(pthread_join(thread, NULL) == 0);
    printf("%s: %" PRIu64 " posted, %" PRIu64 " given up\n", ring_kinds[kind].name, outcomes.posted,
           outcomes.given_up);
    return outcomes;
}

/* 0: its CQE says so; -EALREADY: its CQE says granted. */
static bool cancel(weir_acquisition *acquisition, uint64_t user_data)
{
    int canceled = weir_cancel(acquisition), result = await(user_data);

    require(canceled == 0 || canceled == -EALREADY);
    require(result == (canceled == 0 ? -ECANCELED : 0));
    require(weir_acquisition_result(acquisition) == result);
    release(acquisition);
    return result == 0;
}

static void test_cancel(void **state)
{
    struct outcomes outcomes = meet(cancel);

    (void)state;
    require(outcomes.posted > 0 && outcomes.given_up > 0);
    assert_int_equal(weir_queue_reap(queue, NULL, 0), 0);
}

static bool cancel_by_user_data(weir_acquisition *acquisition, uint64_t user_data)
{
    int canceled = weir_queue_cancel(queue, user_data), result = await(user_data);

    require(result == (canceled == 1 ? -ECANCELED : 0));
    release(acquisition);
    return result == 0;
}

static void test_cancel_by_user_data(void **state)
{
    struct outcomes outcomes = meet(cancel_by_user_data);

    (void)state;
    require(outcomes.posted > 0 && outcomes.given_up > 0);
}

/* A CQE may come or not, and the acquisition is gone in any case. */
static bool let_go(weir_acquisition *acquisition, uint64_t user_data)
{
    struct io_uring_cqe cqe;
    bool posted;

    (void)weir_acquisition_result(acquisition);
    (void)weir_acquisition_fd(acquisition);
    release(acquisition);
    posted = ring_next(&ring, 0, &cqe) == 0;
    require(!posted || (cqe.user_data == user_data && cqe.res == 0));
    return posted;
}

static void test_release(void **state)
{
    (void)state;
    meet(let_go);
}

/* ---- a storm: many wait, some release, and the queue is detached and attached again ---- */

struct storm {
    weir_acquisition *waiting[WAITERS];
    uint64_t granted, canceled, reaped;
    _Atomic(weir_acquisition *) to_release[RELEASERS];
    _Atomic bool over;
};

struct storm_thread {
    struct storm *storm;
    pthread_t thread;
    unsigned number;
};

static void *release_all(void *argument)
{
    struct storm_thread *self = argument;
    struct storm *storm = self->storm;

    while (!storm->over) {
        weir_acquisition *acquisition = atomic_exchange(&storm->to_release[self->number], NULL);

        if (acquisition)
            release(acquisition);
        else
            sched_yield();
    }
    return NULL;
}

/* Hands a grant to a thread that releases it, or releases it here. */
static void pass_on(struct storm *storm, weir_acquisition *acquisition, uint64_t *random)
{
    weir_acquisition *nothing = NULL;
    unsigned to = (unsigned)random_below(random, RELEASERS);

    if (!atomic_compare_exchange_strong(&storm->to_release[to], &nothing, acquisition))
        release(acquisition);
}

/* One that is over: it was waiting, and is replaced by another. */
static void end(struct storm *storm, uint64_t user_data, int result, uint64_t *random)
{
    weir_acquisition *acquisition = storm->waiting[user_data];

    require(user_data < WAITERS && acquisition);
    require(weir_acquisition_result(acquisition) == result);
    storm->waiting[user_data] = NULL;
    if (result == 0) {
        storm->granted++;
        pass_on(storm, acquisition, random);
    } else {
        require(result == -ECANCELED);
        storm->canceled++;
        release(acquisition);
    }
}

static unsigned take_cqes(struct storm *storm, uint64_t *random)
{
    struct io_uring_cqe cqe;
    unsigned n = 0;

    for (; ring_next(&ring, 0, &cqe) == 0; n++)
        end(storm, cqe.user_data, cqe.res, random);
    return n;
}

static void reap_all(struct storm *storm, uint64_t *random)
{
    struct weir_completion done;

    while (weir_queue_reap(queue, &done, 1) == 1) {
        require(done.acquisition == storm->waiting[done.user_data]);
        storm->reaped++;
        end(storm, done.user_data, done.result, random);
    }
}

static void wait_anew(struct storm *storm)
{
    for (unsigned i = 0; i < WAITERS; i++)
        if (!storm->waiting[i])
            storm->waiting[i] = submit(i);
}

static void cancel_one(struct storm *storm, uint64_t *random)
{
    weir_acquisition *acquisition = storm->waiting[random_below(random, WAITERS)];

    if (acquisition)
        (void)weir_cancel(acquisition);
}

static void detach_and_attach(struct storm *storm, uint64_t *random)
{
    require(weir_queue_detach(queue) == 0);
    take_cqes(storm, random);
    spin(random_below(random, 2000));
    require(take_cqes(storm, random) == 0); /* nothing comes after the detaching */
    reap_all(storm, random);
    require(weir_queue_attach(queue, ring.ring_fd) == 0);
}

static void test_storm(void **state)
{
    uint64_t rounds = rounds_wanted() / 4, random = test_seed;
    struct storm_thread threads[RELEASERS];
    struct storm storm = {.granted = 0};

    (void)state;
    for (unsigned i = 0; i < RELEASERS; i++) {
        threads[i] = (struct storm_thread){.storm = &storm, .number = i};
        require(pthread_create(&threads[i].thread, NULL, release_all, &threads[i]) == 0);
    }
    for (uint64_t i = 0; i < rounds; i++) {
        wait_anew(&storm);
        cancel_one(&storm, &random);
        take_cqes(&storm, &random);
        if (random_below(&random, 8) == 0)
            detach_and_attach(&storm, &random);
    }
    for (unsigned i = 0; i < WAITERS; i++)
        if (storm.waiting[i])
            (void)weir_cancel(storm.waiting[i]);
    for (uint64_t until = clock_now() + PATIENCE; clock_now() < until;) {
        unsigned left = 0;

        take_cqes(&storm, &random);
        for (unsigned i = 0; i < WAITERS; i++)
            left += storm.waiting[i] != NULL;
        if (!left)
            break;
    }
    for (unsigned i = 0; i < WAITERS; i++)
        require(!storm.waiting[i]);
    storm.over = true;
    for (unsigned i = 0; i < RELEASERS; i++) {
        require(pthread_join(threads[i].thread, NULL) == 0);
        weir_release((weir_acquisition *[]){storm.to_release[i]});
    }
    printf("%s: %" PRIu64 " granted, %" PRIu64 " canceled, of these %" PRIu64 " reaped\n",
           ring_kinds[kind].name, storm.granted, storm.canceled, storm.reaped);
    require(storm.granted > 0 && storm.canceled > 0);
    require(stats().held == 0 && stats().waiting == 0);
}

#define on_ring(test, setup) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_ring(test_cancel, setup_one),
        on_ring(test_cancel_by_user_data, setup_one),
        on_ring(test_release, setup_one),
        on_ring(test_storm, setup_some),
    };
    struct weir_uring unused;
    int failed = 0;

    seed_begin();
    if (!rings_begin(&unused))
        return 77;
    for (kind = 0; kind < RING_KINDS; kind++)
        if (ring_exists(kind))
            failed += cmocka_run_group_tests_name(ring_kinds[kind].name, tests, NULL, NULL);
    return failed;
}
