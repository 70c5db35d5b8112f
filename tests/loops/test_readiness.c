/* SPDX-License-Identifier: MIT */
/*
 * When a queue's descriptor is readable, and how often that wakes a loop: level- and
 * edge-triggered, behind other epolls, in two loops at once; by a clock moved by hand.
 */
#include "lib/clock.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/require.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>
#include <weir/weir.h>

#include <cmocka.h>

enum { CAPACITY = 1024, SLOTS = 100, BATCH_MAX = 256, PATIENCE_MS = 10000 };

static weir *w;
static weir_pool *calls; /* one per millisecond */
static weir_pool *slots; /* so many at a time */
static weir_queue *queue;
static int level_fd, edge_fd; /* epolls that watch the queue */
static weir_acquisition *held[CAPACITY];
static unsigned held_n;

/* ---- the world ---- */

static weir_pool *open_pool(const char *name, const struct weir_limit_spec *limit)
{
    struct weir_set_spec set = {.size = sizeof(set), .name = name, .limits = limit, .limits_n = 1};
    struct weir_pool_spec spec = {.size = sizeof(spec), .sets = &set, .sets_n = 1};
    weir_pool *pool = NULL;

    require(weir_pool_new(&pool, w, &spec, NULL) == 0);
    return pool;
}

static int watch(int fd, uint32_t events)
{
    struct epoll_event event = {.events = events};
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);

    require(epoll_fd >= 0);
    require(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0);
    return epoll_fd;
}

static int setup(void **state)
{
    const struct weir_setting burst = {"burst", "1"};
    const struct weir_limit_spec call = {.size = sizeof(call),
                                         .type = WEIR_LIMIT_CALL,
                                         .algorithm = "gcra",
                                         .capacity = 1000,
                                         .window_ns = 1000 * MS,
                                         .settings = &burst,
                                         .settings_n = 1};
    const struct weir_limit_spec slot = {
        .size = sizeof(slot), .type = WEIR_LIMIT_RESOURCE, .key = "slot", .capacity = SLOTS};

    fixture_setup(state);
    fake_clock_set(5000 * MS);
    require(weir_open(&w, NULL, NULL) == 0);
    calls = open_pool("calls", &call);
    slots = open_pool("slots", &slot);
    require(weir_queue_open(&queue, w, CAPACITY) == 0);
    level_fd = watch(weir_queue_fd(queue), EPOLLIN);
    edge_fd = watch(weir_queue_fd(queue), EPOLLIN | EPOLLET);
    held_n = 0;
    return 0;
}

static void release_held(void)
{
    while (held_n > 0)
        require(weir_release(&held[--held_n]) == 0);
}

static int teardown(void **state)
{
    release_held();
    close(level_fd);
    close(edge_fd);
    queue = weir_queue_close(queue);
    weir_pool_close(calls);
    weir_pool_close(slots);
    weir_close(w);
    return fixture_teardown(state);
}

/* ---- asking, and looking ---- */

/* Submits one call. */
static void submit_call(uint64_t user_data, uint64_t timeout_ns)
{
    const struct weir_request request = {.size = sizeof(request), .timeout_ns = timeout_ns};

    require(weir_queue_submit(queue, calls, &request, user_data, NULL, NULL) == 0);
}

static void submit_slots(uint64_t n, uint64_t amount)
{
    const struct weir_amount slot = {"slot", amount};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = &slot, .amounts_n = 1, .timeout_ns = WEIR_FOREVER};

    for (uint64_t i = 0; i < n; i++)
        require(weir_queue_submit(queue, slots, &request, i, NULL, NULL) == 0);
}

static bool readable(int fd)
{
    struct pollfd poll_fd = {fd, POLLIN, 0};
    int r = poll(&poll_fd, 1, 0);

    require(r == 0 || (r == 1 && poll_fd.revents == POLLIN));
    return r == 1;
}

/* Whether a loop over this epoll would wake now. Takes an edge. */
static bool wakes(int epoll_fd)
{
    struct epoll_event events[2];
    int n = epoll_wait(epoll_fd, events, 2, 0);

    require(n == 0 || (n == 1 && events[0].events == EPOLLIN));
    return n == 1;
}

/* Reaps once; keeps what was granted. */
static unsigned reap(unsigned n)
{
    struct weir_completion done[BATCH_MAX];
    int reaped = weir_queue_reap(queue, done, n);

    require(reaped >= 0 && (unsigned)reaped <= n);
    for (int i = 0; i < reaped; i++) {
        require(!done[i].acquisition == (done[i].result != 0));
        if (done[i].acquisition)
            held[held_n++] = done[i].acquisition;
    }
    return (unsigned)reaped;
}

/* The loop that the header shows for edges. */
static unsigned reap_all(unsigned batch)
{
    unsigned all = 0, n;

    do {
        n = reap(batch);
        all += n;
    } while (n == batch);
    return all;
}

static uint64_t eventfd_writes(void)
{
    return fake_os_counts().signal;
}

static void check_quiet(void)
{
    assert_false(readable(weir_queue_fd(queue)));
    assert_false(wakes(level_fd));
    assert_false(wakes(edge_fd));
}

/* ---- tests ---- */

static void test_not_readable_when_idle(void **state)
{
    (void)state;
    check_quiet();
    assert_int_equal(reap(1), 0);
    check_quiet();
    submit_slots(1, SLOTS);
    assert_int_equal(reap(2), 1);
    wakes(edge_fd); /* of what was reaped, if the kernel tells of it */
    check_quiet();
    submit_slots(2, 1); /* which wait for a release, that is for no instant */
    fake_clock_advance(1000 * MS);
    check_quiet();
    assert_int_equal(weir_queue_cancel(queue, 0), 1);
    assert_true(readable(weir_queue_fd(queue)));
    assert_int_equal(reap(2), 1);
    wakes(edge_fd);
    check_quiet();
}

/* Level-triggered: one event and one reap for each, however small. */
static void test_level_one_at_a_time(void **state)
{
    unsigned events = 0;

    (void)state;
    submit_slots(SLOTS, 1);
    while (wakes(level_fd)) {
        assert_int_equal(reap(1), 1);
        events++;
    }
    assert_int_equal(events, SLOTS);
    assert_false(readable(weir_queue_fd(queue)));
}

/* Edge-triggered: one event, and the loop of the header gets all, however small its batches. */
static void test_edge_in_batches(void **state)
{
    static const unsigned batches[] = {1, 3, 7, SLOTS / 2, SLOTS - 1, SLOTS, SLOTS + 1, BATCH_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
        for (int round = 0; round < 10; round++) {
            submit_slots(SLOTS, 1);
            assert_true(wakes(edge_fd));
            assert_false(wakes(edge_fd));
            assert_int_equal(reap_all(batches[i]), SLOTS);
            check_quiet();
            release_held();
        }
    }
}

/* The contrary of the header: an edge-triggered loop that stops early hears no more of the rest. */
static void test_edge_needs_the_whole_loop(void **state)
{
    (void)state;
    submit_slots(2, 1);
    assert_true(wakes(edge_fd));
    assert_int_equal(reap(1), 1);
    assert_false(wakes(edge_fd));
    assert_true(wakes(level_fd));
    assert_int_equal(reap_all(1), 1);
    check_quiet();
}

/* One write, and one wake, for all that comes while the queue is not empty. */
static void test_one_wake_per_change(void **state)
{
    uint64_t writes;

    (void)state;
    for (unsigned round = 1; round <= SLOTS; round++) {
        submit_slots(1, SLOTS);
        assert_true(wakes(edge_fd));
        assert_int_equal(reap_all(BATCH_MAX), 1);
        submit_slots(round, 1);
        assert_false(wakes(edge_fd));
        writes = eventfd_writes();
        release_held(); /* grants them all */
        assert_int_equal(eventfd_writes(), writes + 1);
        assert_true(wakes(edge_fd));
        assert_false(wakes(edge_fd));
        assert_int_equal(reap_all(BATCH_MAX), round);
        assert_int_equal(eventfd_writes(), writes + 1);
        release_held();
        check_quiet();
    }
}

/* What only time brings: one wake for each instant, whichever way the loop is triggered. */
static void test_one_wake_per_instant(void **state)
{
    enum { GRANTS = 500 };

    (void)state;
    for (unsigned i = 0; i < GRANTS; i++)
        submit_call(i, WEIR_FOREVER);
    assert_true(wakes(edge_fd));
    assert_int_equal(reap_all(8), 1);
    for (unsigned i = 1; i < GRANTS; i++) {
        fake_clock_advance(MS - 1);
        check_quiet();
        fake_clock_advance(1);
        assert_true(readable(weir_queue_fd(queue)));
        assert_true(wakes(level_fd));
        assert_true(wakes(edge_fd));
        assert_int_equal(reap_all(8), 1);
        check_quiet();
    }
}

/* A reap that comes late grants what was due, in one go, and one wake was enough. */
static void test_a_late_reap_catches_up(void **state)
{
    unsigned n = 0, wakes_n = 0;

    (void)state;
    for (unsigned i = 0; i < 100; i++)
        submit_call(i, 50 * MS);
    assert_int_equal(reap_all(8), 1);
    wakes(edge_fd);
    fake_clock_advance(1000 * MS);
    while (wakes(edge_fd)) {
        n += reap_all(8);
        wakes_n++;
    }
    assert_int_equal(n, 99);
    assert_true(wakes_n <= 2);
    check_quiet();
}

/* An instant at which nothing is to be done any more wakes at most once. */
static void test_nothing_due_does_not_spin(void **state)
{
    unsigned level = 0, edge = 0;

    (void)state;
    submit_call(0, WEIR_FOREVER);
    assert_int_equal(reap_all(8), 1);
    wakes(edge_fd);
    for (unsigned round = 0; round < 100; round++) {
        submit_call(0, WEIR_FOREVER);
        release_held();
        submit_call(1, WEIR_FOREVER); /* heads the wait queue, unless the first waits */
        fake_clock_advance(MS / 2);
        assert_int_equal(weir_queue_cancel(queue, 0), 1);
        assert_int_equal(weir_queue_cancel(queue, 1), 1);
        assert_int_equal(reap_all(8), 2);
        wakes(edge_fd);
        assert_false(readable(weir_queue_fd(queue)));
        fake_clock_advance(10 * MS);
        edge += wakes(edge_fd);
        for (unsigned i = 0; i < 10 && wakes(level_fd); i++) {
            level++;
            assert_int_equal(reap(8), 0);
        }
        check_quiet();
        fake_clock_advance(1000 * MS);
        check_quiet();
        submit_call(0, WEIR_FOREVER);
        assert_int_equal(reap_all(8), 1);
        wakes(edge_fd);
    }
    assert_true(level <= 100);
    assert_true(edge <= 100);
}

/* Nor do deadlines of what was granted long ago. */
static void test_deadlines_met_do_not_wake(void **state)
{
    (void)state;
    submit_call(0, 100 * MS);
    submit_call(1, 100 * MS);
    assert_int_equal(reap_all(8), 1);
    wakes(edge_fd);
    fake_clock_advance(MS);
    assert_true(wakes(edge_fd));
    assert_int_equal(reap_all(8), 1);
    fake_clock_advance(1000 * MS);
    check_quiet();
}

/* With n = 0 a reap moves time on and nothing else. */
static void test_reap_of_none(void **state)
{
    struct weir_completion done;

    (void)state;
    assert_int_equal(weir_queue_reap(queue, NULL, 0), 0);
    check_quiet();
    submit_call(0, WEIR_FOREVER);
    submit_call(1, 2 * MS);
    for (int i = 0; i < 3; i++)
        assert_int_equal(weir_queue_reap(queue, NULL, 0), 0);
    assert_true(wakes(level_fd));
    assert_true(wakes(edge_fd));
    assert_int_equal(reap_all(1), 1);
    check_quiet();
    fake_clock_advance(MS);
    assert_true(wakes(edge_fd));
    assert_int_equal(weir_queue_reap(queue, NULL, 0), 0);
    assert_true(wakes(level_fd)); /* there is a completion now */
    assert_true(wakes(edge_fd));
    assert_int_equal(weir_queue_reap(queue, &done, 0), 0);
    assert_false(wakes(edge_fd)); /* it was there before */
    assert_int_equal(weir_queue_reap(queue, NULL, 1), -EINVAL);
    assert_int_equal(weir_queue_reap(queue, &done, 1), 1);
    assert_int_equal(done.user_data, 1);
    assert_int_equal(done.result, 0);
    require(weir_release(&done.acquisition) == 0);
    check_quiet();
}

/* Level by level, to the outermost, which any loop can poll. */
static void check_nested(int outer_fd, bool expected)
{
    struct timeval none = {0, 0};
    fd_set set;

    assert_int_equal(readable(outer_fd), expected);
    FD_ZERO(&set);
    FD_SET(outer_fd, &set);
    FD_SET(weir_queue_fd(queue), &set);
    assert_int_equal(select(outer_fd + 1, &set, NULL, NULL, &none), expected ? 2 : 0);
    if (expected)
        assert_true(FD_ISSET(weir_queue_fd(queue), &set));
}

/* An epoll in an epoll in poll and select, for completions and for time. */
static void test_nested(void **state)
{
    int middle_fd = watch(level_fd, EPOLLIN), outer_fd = watch(middle_fd, EPOLLIN);

    (void)state;
    check_nested(outer_fd, false);
    submit_call(0, WEIR_FOREVER);
    submit_call(1, WEIR_FOREVER);
    check_nested(outer_fd, true);
    assert_int_equal(reap(8), 1);
    check_nested(outer_fd, false);
    fake_clock_advance(MS);
    check_nested(outer_fd, true);
    assert_int_equal(reap(8), 1);
    check_nested(outer_fd, false);
    close(outer_fd);
    close(middle_fd);
}

/* Two loops that watch one queue both wake; whichever reaps, the other finds nothing. */
static void test_two_loops(void **state)
{
    int other_fd = watch(weir_queue_fd(queue), EPOLLIN);

    (void)state;
    for (int round = 0; round < 10; round++) {
        submit_slots(4, 1);
        assert_true(wakes(level_fd) && wakes(other_fd) && wakes(edge_fd));
        assert_int_equal(reap(2), 2);
        assert_true(wakes(level_fd) && wakes(other_fd));
        assert_int_equal(reap(8), 2);
        assert_false(wakes(level_fd) || wakes(other_fd) || wakes(edge_fd));
        release_held();
    }
    close(other_fd);
}

/* A loop that already sleeps, in the way given, wakes when another thread releases. */

struct sleeper {
    int (*sleep)(int fd); /* how many descriptors are ready */
    int fd;
};

static int sleep_in_poll(int fd)
{
    return poll(&(struct pollfd){fd, POLLIN, 0}, 1, PATIENCE_MS);
}

static int sleep_in_select(int fd)
{
    struct timeval patience = {PATIENCE_MS / 1000, 0};
    fd_set set;

    FD_ZERO(&set);
    FD_SET(fd, &set);
    return select(fd + 1, &set, NULL, NULL, &patience);
}

static int sleep_in_epoll(int fd)
{
    struct epoll_event event;

    return epoll_wait(fd, &event, 1, PATIENCE_MS);
}

static void *release_soon(void *unused)
{
    pause_ns(2 * MS);
    release_held();
    return unused;
}

static void *advance_soon(void *unused)
{
    pause_ns(2 * MS);
    fake_clock_advance(MS);
    return unused;
}

static void wake_by(const struct sleeper *sleeper, void *(*run)(void *))
{
    pthread_t thread;

    require(pthread_create(&thread, NULL, run, NULL) == 0);
    assert_int_equal(sleeper->sleep(sleeper->fd), 1);
    require(pthread_join(thread, NULL) == 0);
    assert_int_equal(reap_all(8), 1);
    release_held();
    wakes(edge_fd);
}

static void test_a_sleeper_wakes(void **state)
{
    int middle_fd = watch(edge_fd, EPOLLIN | EPOLLET), outer_fd = watch(level_fd, EPOLLIN);
    const struct sleeper sleepers[] = {
        {sleep_in_poll, weir_queue_fd(queue)},
        {sleep_in_select, weir_queue_fd(queue)},
        {sleep_in_epoll, level_fd},
        {sleep_in_epoll, edge_fd},
        {sleep_in_poll, outer_fd},
        {sleep_in_epoll, outer_fd},
        {sleep_in_select, outer_fd},
        {sleep_in_epoll, middle_fd},
    };

    (void)state;
    submit_call(0, WEIR_FOREVER);
    assert_int_equal(reap_all(8), 1);
    for (size_t i = 0; i < sizeof(sleepers) / sizeof(sleepers[0]); i++) {
        release_held();
        submit_slots(1, SLOTS);
        assert_int_equal(reap_all(8), 1);
        submit_slots(1, 1);
        while (wakes(edge_fd) || wakes(middle_fd))
            ;
        wake_by(&sleepers[i], release_soon);
        submit_call(0, WEIR_FOREVER);
        while (wakes(edge_fd) || wakes(middle_fd))
            ;
        wake_by(&sleepers[i], advance_soon);
    }
    close(outer_fd);
    close(middle_fd);
}

/*
 * Many threads submit, one sits in an edge-triggered loop: it misses nothing, and wakes no more
 * often than the queue was signaled.
 */

enum { SUBMITTERS = 3, SUBMISSIONS = 5000 };

static void *submit_many(void *unused)
{
    for (unsigned i = 0; i < SUBMISSIONS; i++) {
        const struct weir_amount none = {"slot", 0};
        const struct weir_request request = {
            .size = sizeof(request), .amounts = &none, .amounts_n = 1};
        int r;

        do {
            r = weir_queue_submit(queue, slots, &request, i, NULL, NULL);
            if (r == -ENOSPC)
                sched_yield();
        } while (r == -ENOSPC);
        require(r == 0);
    }
    return unused;
}

static void test_wakes_are_no_more_than_signals(void **state)
{
    pthread_t threads[SUBMITTERS];
    unsigned reaped = 0, wakes_n = 0;
    uint64_t writes = eventfd_writes();

    (void)state;
    for (int i = 0; i < SUBMITTERS; i++)
        require(pthread_create(&threads[i], NULL, submit_many, NULL) == 0);
    while (reaped < SUBMITTERS * SUBMISSIONS) {
        assert_int_equal(sleep_in_epoll(edge_fd), 1);
        wakes_n++;
        for (unsigned n = 16; n == 16;) {
            n = reap(16);
            reaped += n;
            release_held();
        }
    }
    for (int i = 0; i < SUBMITTERS; i++)
        require(pthread_join(threads[i], NULL) == 0);
    assert_int_equal(reaped, SUBMITTERS * SUBMISSIONS);
    assert_true(wakes_n <= eventfd_writes() - writes);
    print_message("%u grants, %u wakes, %u writes\n", reaped, wakes_n,
                  (unsigned)(eventfd_writes() - writes));
}

/* A set without limits grants everything, each submission once and in order. */
static void test_without_limits(void **state)
{
    const struct weir_set_spec set = {.size = sizeof(set), .name = "free"};
    const struct weir_pool_spec spec = {.size = sizeof(spec), .sets = &set, .sets_n = 1};
    weir_pool *pool = NULL;

    (void)state;
    assert_int_equal(weir_pool_new(&pool, w, &spec, NULL), 0);
    for (uint64_t n = 1; n <= CAPACITY; n *= 2) {
        struct weir_completion done;

        for (uint64_t i = 0; i < n; i++)
            assert_int_equal(weir_queue_submit(queue, pool, NULL, i, NULL, NULL), 0);
        assert_true(wakes(edge_fd));
        for (uint64_t i = 0; i < n; i++) {
            assert_int_equal(weir_queue_reap(queue, &done, 1), 1);
            assert_int_equal(done.user_data, i);
            assert_int_equal(done.result, 0);
            assert_int_equal(weir_release(&done.acquisition), 0);
        }
        assert_int_equal(weir_queue_reap(queue, &done, 1), 0);
        check_quiet();
    }
    weir_pool_close(pool);
}

/* Out of memory, fewer come than there are. An edge-triggered loop must hear of the others. */
static void test_edge_out_of_memory(void **state)
{
    (void)state;
    for (uint64_t fails_at = 1; fails_at < 40; fails_at++) {
        unsigned n, all = 0;

        submit_slots(SLOTS, 1);
        assert_true(wakes(edge_fd));
        fake_os_fail_kind_at(fails_at, FAKE_MEMORY, 0);
        do {
            struct weir_completion done[BATCH_MAX];
            int r = weir_queue_reap(queue, done, BATCH_MAX);

            assert_true(r >= 0 || r == -ENOMEM);
            n = r < 0 ? 0 : (unsigned)r;
            for (unsigned i = 0; i < n; i++)
                held[held_n++] = done[i].acquisition;
            all += n;
        } while (n == BATCH_MAX || wakes(edge_fd));
        fake_os_fail_kind_at(0, 0, 0);
        assert_int_equal(all, SLOTS);
        check_quiet();
        release_held();
    }
}

/* Whenever the timer cannot be set, the loop is asked to reap again: that tries again. */
static void test_edge_without_timer(void **state)
{
    (void)state;
    submit_call(0, WEIR_FOREVER);
    assert_true(wakes(edge_fd));
    assert_int_equal(reap_all(8), 1);
    fake_os_fail_kind_at(1, FAKE_EVENT, 0);
    submit_call(1, WEIR_FOREVER);
    for (int i = 0; i < 3; i++) {
        assert_true(fake_os_has_failed());
        assert_true(wakes(edge_fd));
        assert_true(wakes(level_fd));
        fake_os_fail_kind_at(1, FAKE_EVENT, 0);
        assert_int_equal(reap_all(8), 0);
    }
    assert_true(wakes(edge_fd));
    fake_os_fail_kind_at(0, 0, 0);
    assert_int_equal(reap_all(8), 0);
    check_quiet();
    fake_clock_advance(MS);
    assert_true(wakes(edge_fd));
    assert_int_equal(reap_all(8), 1);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_not_readable_when_idle),
        TEST(test_level_one_at_a_time),
        TEST(test_edge_in_batches),
        TEST(test_edge_needs_the_whole_loop),
        TEST(test_one_wake_per_change),
        TEST(test_one_wake_per_instant),
        TEST(test_a_late_reap_catches_up),
        TEST(test_nothing_due_does_not_spin),
        TEST(test_deadlines_met_do_not_wake),
        TEST(test_reap_of_none),
        TEST(test_nested),
        TEST(test_two_loops),
        TEST(test_a_sleeper_wakes),
        TEST(test_wakes_are_no_more_than_signals),
        TEST(test_without_limits),
        TEST(test_edge_out_of_memory),
        TEST(test_edge_without_timer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
