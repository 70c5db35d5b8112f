/* SPDX-License-Identifier: MIT */
/*
 * Threads that come and go, instances that are closed under them, acquisitions that outlive the
 * thread that asked: nothing hangs, nothing is lost, nothing stays behind.
 */
#include "api/instance.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/require.h"
#include "limit/counters.h"
#include "wait/wait_timer.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <weir/weir.h>

#include <cmocka.h>

#define THREADS_MAX 64

static const struct weir_limit_spec limits[] = {
    {.size = sizeof(limits[0]),
     .type = WEIR_LIMIT_RATE,
     .key = "tokens",
     .algorithm = "token_bucket",
     .capacity = 1000000,
     .window_ns = 1000000000},
    {.size = sizeof(limits[0]), .type = WEIR_LIMIT_RESOURCE, .key = "db", .capacity = 4},
};

static const struct weir_amount one_db[] = {{"db", 1}};
static const struct weir_amount some_tokens[] = {{"tokens", 3}, {"db", 0}};
static const struct weir_request want_db = {
    .size = sizeof(want_db), .amounts = one_db, .amounts_n = 1, .timeout_ns = WEIR_FOREVER};
static const struct weir_request want_tokens = {
    .size = sizeof(want_tokens), .amounts = some_tokens, .amounts_n = 2};

static weir *open_instance(void)
{
    weir *w = NULL;

    require(weir_open(&w, NULL, NULL) == 0);
    return w;
}

static weir_pool *define(weir *w, const char *name)
{
    struct weir_set_spec set = {.size = sizeof(set), .name = name, .limits = limits, .limits_n = 2};
    struct weir_pool_spec spec = {.size = sizeof(spec), .sets = &set, .sets_n = 1};
    struct weir_error error = {0};
    weir_pool *pool = NULL;
    int r = weir_pool_new(&pool, w, &spec, &error);

    if (r < 0)
        fprintf(stderr, "%s\n", error.message);
    require(r == 0);
    return pool;
}

static struct weir_set_stats stats_of(weir_pool *pool, struct weir_limit_stats *ret)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};

    require(weir_set_stats(weir_pool_set(pool, 0), &stats, ret, 2) == 2);
    return stats;
}

/* All of the capacity can be had, once more. */
static void check_whole(weir_pool *pool)
{
    struct weir_limit_stats limit_stats[2];
    struct weir_set_stats stats = stats_of(pool, limit_stats);

    require(stats.held == 0 && stats.waiting == 0);
    require(stats.granted == stats.released + stats.taken);
    require(limit_stats[1].held == 0 && limit_stats[1].available == 4);
}

static void start(pthread_t *threads, int n, void *(*run)(void *), void *argument)
{
    for (int i = 0; i < n; i++)
        require(pthread_create(&threads[i], NULL, run, argument) == 0);
}

static void join(pthread_t *threads, int n)
{
    for (int i = 0; i < n; i++)
        require(pthread_join(threads[i], NULL) == 0);
}

static atomic_int takes; /* that were granted */

static void *use_once(void *pool)
{
    weir_acquisition *acquisitions[4] = {0};
    int r;

    for (int i = 0; i < 4; i++)
        require(weir_submit(pool, &want_db, &acquisitions[i], NULL) >= 0);
    for (int i = 0; i < 4; i++)
        require(weir_release(&acquisitions[i]) == 0);
    r = weir_take(pool, &want_tokens, NULL);
    require(r == 0 || r == -EAGAIN); /* others may wait already */
    if (r == 0)
        atomic_fetch_add(&takes, 1);
    return NULL;
}

/* A thread's part is used again by the next thread: memory follows how many live at once. */
static void test_threads_come_and_go(void **state)
{
    weir *w = open_instance();
    weir_pool *pool = define(w, "set");
    struct fake_os_live live;
    size_t blocks, records;
    pthread_t thread;

    (void)state;
    for (int i = 0; i < 3; i++) {
        start(&thread, 1, use_once, pool);
        join(&thread, 1);
    }
    live = fake_os_live();
    blocks = w->region.blocks.used;
    records = w->region.records.used;
    for (int i = 0; i < 1000; i++) {
        start(&thread, 1, use_once, pool);
        join(&thread, 1);
    }
    assert_int_equal(fake_os_live().blocks, live.blocks);
    assert_int_equal(fake_os_live().bytes, live.bytes);
    assert_int_equal(w->region.blocks.used, blocks);
    assert_int_equal(w->region.records.used, records);
    check_whole(pool);
    weir_pool_close(pool);
    weir_close(w);
}

/* Many come and go at once, and what they counted stays counted. */
static void test_crowds_come_and_go(void **state)
{
    weir *w = open_instance();
    weir_pool *pool = define(w, "set");
    struct weir_limit_stats limit_stats[2];
    pthread_t threads[16];

    (void)state;
    atomic_store(&takes, 0);
    for (int i = 0; i < 20; i++) {
        start(threads, 16, use_once, pool);
        join(threads, 16);
    }
    check_whole(pool);
    assert_int_equal(stats_of(pool, limit_stats).taken, takes);
    assert_int_equal(limit_stats[0].granted, 3 * takes);
    weir_pool_close(pool);
    weir_close(w);
}

static void *acquire_two(void *argument)
{
    weir_acquisition **held = ((void **)argument)[0];
    weir_pool *pool = ((void **)argument)[1];

    require(weir_acquire(pool, &want_db, &held[0], NULL) == 0);
    require(weir_submit(pool, &want_db, &held[1], NULL) == 0);
    return NULL;
}

/* A thread ends while it holds; another one that has the acquisitions gives them back. */
static void test_holder_ends(void **state)
{
    weir *w = open_instance();
    weir_pool *pool = define(w, "set");
    weir_acquisition *held[2] = {0}, *pending = NULL;
    void *argument[] = {held, pool};
    struct weir_limit_stats limit_stats[2];
    pthread_t thread;

    (void)state;
    start(&thread, 1, acquire_two, argument);
    join(&thread, 1);
    assert_int_equal(stats_of(pool, limit_stats).held, 2);
    assert_int_equal(limit_stats[1].held, 2);
    require(weir_acquire(pool, &want_db, &pending, NULL) == 0);
    require(weir_release(&pending) == 0);
    require(weir_release(&held[0]) == 0 && weir_release(&held[1]) == 0);
    check_whole(pool);
    weir_pool_close(pool);
    weir_close(w);
}

static void *release_canceled(void *argument)
{
    require(pthread_cancel(pthread_self()) == 0);
    require(weir_release(argument) == 0);
    pthread_testcancel();
    return NULL;
}

/* Nor is a thread canceled in the middle of a release, with locks in its hands. */
static void test_canceled_thread_releases(void **state)
{
    weir *w = open_instance();
    weir_pool *pool = define(w, "set");
    weir_acquisition *held[4] = {0}, *next = NULL;
    struct pollfd poll_fd = {.events = POLLIN};
    pthread_t thread;
    void *result = NULL;

    (void)state;
    for (int i = 0; i < 4; i++)
        require(weir_submit(pool, &want_db, &held[i], NULL) == 0);
    require(weir_submit(pool, &want_db, &next, NULL) == 1);
    poll_fd.fd = weir_acquisition_fd(next);
    require(poll_fd.fd >= 0);
    start(&thread, 1, release_canceled, &held[0]);
    require(pthread_join(thread, &result) == 0);
    require(result == PTHREAD_CANCELED);
    require(poll(&poll_fd, 1, 10000) == 1);
    require(weir_acquisition_fd(next) == poll_fd.fd); /* takes the lock */
    for (int i = 1; i < 4; i++)
        require(weir_release(&held[i]) == 0);
    require(weir_release(&next) == 0);
    check_whole(pool);
    weir_pool_close(pool);
    weir_close(w);
}

/* Closing. */

struct closing {
    weir_pool *pool;
    atomic_int begun, shut;
};

static void *block(void *argument)
{
    struct closing *closing = argument;
    weir_acquisition *acquisition = NULL;

    atomic_fetch_add(&closing->begun, 1);
    require(weir_acquire(closing->pool, &want_db, &acquisition, NULL) == -ESHUTDOWN);
    require(!acquisition);
    atomic_fetch_add(&closing->shut, 1);
    return NULL;
}

static void *submit_and_poll(void *argument)
{
    struct closing *closing = argument;
    weir_acquisition *acquisition = NULL;
    struct pollfd poll_fd = {.events = POLLIN};
    int r = weir_submit(closing->pool, &want_db, &acquisition, NULL);

    atomic_fetch_add(&closing->begun, 1);
    if (r == 1) {
        poll_fd.fd = weir_acquisition_fd(acquisition);
        require(poll_fd.fd >= 0);
        require(poll(&poll_fd, 1, 60000) == 1);
        require(weir_acquisition_result(acquisition) == -ESHUTDOWN);
        require(weir_release(&acquisition) == 0);
    } else {
        require(r == -ESHUTDOWN);
    }
    atomic_fetch_add(&closing->shut, 1);
    return NULL;
}

static void *submit_again_and_again(void *argument)
{
    struct closing *closing = argument;
    int r = 0;

    atomic_fetch_add(&closing->begun, 1);
    while (r != -ESHUTDOWN) {
        weir_acquisition *acquisition = NULL;

        r = weir_submit(closing->pool, &want_db, &acquisition, NULL);
        require(r == 1 || r == -ESHUTDOWN);
        require(weir_release(&acquisition) == 0);
    }
    atomic_fetch_add(&closing->shut, 1);
    return NULL;
}

static void test_close_under_waiters(void **state)
{
    static void *(*const ways[])(void *) = {block, submit_and_poll, submit_again_and_again};

    (void)state;
    for (int round = 0; round < 5; round++) {
        weir *w = open_instance();
        struct closing closing = {define(w, "set"), 0, 0};
        weir_acquisition *all[4] = {0};
        pthread_t threads[50];

        for (int i = 0; i < 4; i++)
            require(weir_acquire(closing.pool, &want_db, &all[i], NULL) == 0);
        for (int i = 0; i < 50; i++)
            start(&threads[i], 1, ways[i % 3], &closing);
        while (atomic_load(&closing.begun) < 50 || !atomic_load(&instance_wait(w)->blocked_n))
            pause_ns(100000);
        weir_close(w);
        assert_int_equal(instance_wait(w)->blocked_n, 0); /* the pool keeps it */
        join(threads, 50);
        assert_int_equal(closing.shut, 50);
        for (int i = 0; i < 4; i++)
            require(weir_release(&all[i]) == 0);
        require(weir_take(closing.pool, &want_tokens, NULL) == -ESHUTDOWN);
        weir_pool_close(closing.pool);
    }
}

/* Once weir_close has come back no thread is inside any more, so the pool may go at once: a blocked
 * thread must not look at the instance again on its way out. */
static void test_close_pool_right_after_instance(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        weir *w = open_instance();
        struct closing closing = {define(w, "set"), 0, 0};
        weir_acquisition *all[4] = {0};
        pthread_t thread;

        for (int i = 0; i < 4; i++)
            require(weir_acquire(closing.pool, &want_db, &all[i], NULL) == 0);
        start(&thread, 1, block, &closing);
        while (!atomic_load(&instance_wait(w)->blocked_n))
            sched_yield();
        weir_close(w);
        for (int i = 0; i < 4; i++)
            require(weir_release(&all[i]) == 0);
        weir_pool_close(closing.pool);
        join(&thread, 1);
    }
}

/* The timer thread is told to stop while it is about to try again to set its timer. */
static void test_close_when_timer_cannot_be_set(void **state)
{
    uint64_t random = test_seed;

    (void)state;
    for (int round = 0; round < 500; round++) {
        weir *w = open_instance();
        weir_pool *pool = define(w, "set");
        struct weir_request request = want_db;
        weir_acquisition *all[4] = {0}, *late[2] = {0};
        uint64_t until;

        for (int i = 0; i < 4; i++)
            require(weir_acquire(pool, &want_db, &all[i], NULL) == 0);
        require(weir_submit(pool, &want_db, &late[0], NULL) == 1);
        while (!fake_os_counts().epoll_wait)
            sched_yield();
        fake_os_fail_kind_at(1, FAKE_EVENT, 0);
        request.timeout_ns = UINT64_C(3600000000000);
        require(weir_submit(pool, &request, &late[1], NULL) == 1);
        for (until = clock_now() + random_below(&random, 60000); clock_now() < until;)
            ;
        weir_close(w);
        for (int i = 0; i < 2; i++)
            require(weir_release(&late[i]) == 0);
        for (int i = 0; i < 4; i++)
            require(weir_release(&all[i]) == 0);
        weir_pool_close(pool);
        fake_os_reset();
    }
}

/* The timer thread by itself: several deadlines, and no calls of weir meanwhile. */
static void test_one_deadline_after_another(void **state)
{
    weir *w = open_instance();
    weir_pool *pool = define(w, "set");
    weir_acquisition *all[4] = {0}, *late[3] = {0};

    (void)state;
    for (int i = 0; i < 4; i++)
        require(weir_acquire(pool, &want_db, &all[i], NULL) == 0);
    for (unsigned i = 0; i < 3; i++) {
        struct weir_request request = want_db;

        request.timeout_ns = (i + 1) * 20000000;
        require(weir_submit(pool, &request, &late[i], NULL) == 1);
    }
    for (int i = 2; i >= 0; i--) {
        struct pollfd poll_fd = {.fd = weir_acquisition_fd(late[i]), .events = POLLIN};

        require(poll(&poll_fd, 1, 10000) == 1);
        require(weir_acquisition_result(late[i]) == -ETIMEDOUT);
        require(weir_release(&late[i]) == 0);
    }
    for (int i = 0; i < 4; i++)
        require(weir_release(&all[i]) == 0);
    check_whole(pool);
    weir_pool_close(pool);
    weir_close(w);
}

/* Instances. */

enum { INSTANCES = 5, USERS = 8 };

static void *use_several(void *argument)
{
    weir_pool **pools = argument;
    uint64_t random = random_case(test_seed, (uint64_t)(uintptr_t)&pools);
    weir_acquisition *held[INSTANCES] = {0};
    weir *own = open_instance();
    weir_pool *own_pool = define(own, "own");

    for (int i = 0; i < 400; i++) {
        uint64_t n = random_below(&random, INSTANCES + 1);

        if (n == INSTANCES) {
            use_once(own_pool);
            if (i % 8 == 0) { /* one of its own comes and goes */
                weir_close(own);
                weir_pool_close(own_pool);
                own = open_instance();
                own_pool = define(own, "own");
            }
        } else if (held[n]) {
            require(weir_release(&held[n]) == 0);
        } else {
            int r = weir_try_acquire(pools[n], &want_db, &held[n], NULL);

            require(r == 0 || r == -EAGAIN);
        }
    }
    for (int i = 0; i < INSTANCES; i++)
        require(weir_release(&held[i]) == 0);
    weir_close(own);
    weir_pool_close(own_pool);
    return NULL;
}

static void test_several_instances(void **state)
{
    weir *instances[INSTANCES];
    weir_pool *pools[INSTANCES];
    pthread_t threads[USERS];

    (void)state;
    for (int i = 0; i < INSTANCES; i++) {
        instances[i] = open_instance();
        pools[i] = define(instances[i], "shared");
    }
    start(threads, USERS, use_several, pools);
    join(threads, USERS);
    for (int i = 0; i < INSTANCES; i++) {
        check_whole(pools[i]);
        weir_close(instances[i]);
        weir_pool_close(pools[i]);
    }
}

/* Definitions and observers, while others acquire. */

struct growing {
    weir *w;
    weir_pool *pool;
    atomic_int number;
    atomic_bool over;
};

static void *define_more(void *argument)
{
    struct growing *growing = argument;

    for (int i = 0; i < 60; i++) {
        char name[32];
        weir_pool *pool, *again;

        snprintf(name, sizeof(name), "set-%d", atomic_fetch_add(&growing->number, 1));
        pool = define(growing->w, name);
        require(weir_pool_open(&again, growing->w, name, WEIR_WORKER_AUTO, NULL) == 0);
        require(weir_pool_set(pool, 0) == weir_pool_set(again, 0));
        use_once(again);
        check_whole(pool);
        weir_pool_close(pool);
        weir_pool_close(again);
    }
    return NULL;
}

static void *look_on(void *argument)
{
    struct growing *growing = argument;
    weir_set *set = weir_pool_set(growing->pool, 0);

    while (!atomic_load(&growing->over)) {
        struct weir_limit_stats limit_stats[2];
        struct weir_set_stats stats = stats_of(growing->pool, limit_stats);
        struct weir_holder holders[8];
        int n = weir_set_holders(set, holders, 8);

        require(stats.waiting <= THREADS_MAX && stats.held <= THREADS_MAX * 5);
        require(limit_stats[1].held <= 4);
        require(n >= 0);
        for (int i = 0; i < n && i < 8; i++)
            require(holders[i].thread != 0 && holders[i].waiting <= 1);
    }
    return NULL;
}

static void *use_often(void *argument)
{
    struct growing *growing = argument;

    while (!atomic_load(&growing->over))
        use_once(growing->pool);
    return NULL;
}

static void test_defining_while_others_acquire(void **state)
{
    weir *w = open_instance();
    struct growing growing = {w, define(w, "shared"), 0, false};
    pthread_t definers[4], lookers[2], users[4];

    (void)state;
    start(lookers, 2, look_on, &growing);
    start(users, 4, use_often, &growing);
    start(definers, 4, define_more, &growing);
    join(definers, 4);
    atomic_store(&growing.over, true);
    join(lookers, 2);
    join(users, 4);
    check_whole(growing.pool);
    assert_int_equal(w->sets_n, 4 * 60 + 1);
    weir_pool_close(growing.pool);
    weir_close(w);
}

/* An observer may read one counter before and another after a thread moved both. */
static void test_counters_read_between(void **state)
{
    weir *w = open_instance();
    weir_pool *pool = define(w, "set");
    weir_set *set = weir_pool_set(pool, 0);
    struct weir_limit_stats limit_stats[2];
    struct counters *counters;

    (void)state;
    use_once(pool);
    counters = thread_ctx_counters(thread_ctx_get(set), set->number);
    counter_add(&counters->released, 5); /* more than were granted before */
    assert_int_equal(stats_of(pool, limit_stats).held, 0);
    counter_add(&counters->acquired, 5);
    assert_int_equal(stats_of(pool, limit_stats).held, 0);
    counter_add(&counters->taken, 1);
    assert_int_equal(stats_of(pool, limit_stats).held, 0);
    counter_add(&counters->acquired, 1);
    assert_int_equal(stats_of(pool, limit_stats).held, 1);
    weir_pool_close(pool);
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(test_threads_come_and_go),
        leak_checked_test(test_crowds_come_and_go),
        leak_checked_test(test_holder_ends),
        leak_checked_test(test_canceled_thread_releases),
        leak_checked_test(test_close_under_waiters),
        leak_checked_test(test_close_pool_right_after_instance),
        leak_checked_test(test_close_when_timer_cannot_be_set),
        leak_checked_test(test_one_deadline_after_another),
        leak_checked_test(test_several_instances),
        leak_checked_test(test_defining_while_others_acquire),
        leak_checked_test(test_counters_read_between),
    };

    seed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
