/* SPDX-License-Identifier: MIT */
/* Completion queues attached to a ring of the program: each completion comes as a CQE or by a reap,
 * once, and whatever ends the posting loses none. On every kind of ring. The program is run again
 * as on an older kernel, where the timer thread posts by a source ring. */
#include "lib/child.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "rings.h"
#include "sandbox.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <weir/weir.h>

#include <cmocka.h>

#define PATIENCE (5 * SECOND) /* for what must come */
#define MOMENT   (2 * MS)     /* for what must not */

/* Of the timer, where that is tested, by a clock moved by hand. */
#define ADVANCE (MS / 2)

enum { PERMITS = 4, CAPACITY = 4096 };

static unsigned kind;
static uint64_t now_ns;
static weir *w;
static weir_pool *pool;
static weir_queue *queue;
static struct io_uring ring;
static bool ring_open;
static _Atomic unsigned logged;
static uint64_t advance_ns;

static void hear(void *unused, enum weir_log_level level, const char *message)
{
    (void)unused;
    require(level == WEIR_LOG_WARNING && message[0]);
    logged++;
}

static uint64_t read_clock(void *unused)
{
    (void)unused;
    return now_ns;
}

static int open_all(void **state, bool injected, unsigned entries)
{
    static const struct weir_clock clock = {sizeof(clock), read_clock, NULL, NULL};
    static const struct weir_limit_spec limits[] = {
        {.size = sizeof(limits[0]),
         .type = WEIR_LIMIT_CALL,
         .algorithm = "gcra",
         .capacity = 1,
         .window_ns = 20 * MS},
        {.size = sizeof(limits[0]), .type = WEIR_LIMIT_RESOURCE, .key = "db", .capacity = PERMITS},
    };
    struct weir_options options = {.size = sizeof(options),
                                   .clock = injected ? &clock : NULL,
                                   .log = hear,
                                   .timer_advance_ns = advance_ns};
    struct weir_set_spec set = {
        .size = sizeof(set), .name = "set", .limits = limits, .limits_n = 2};
    struct weir_pool_spec spec = {.size = sizeof(spec), .sets = &set, .sets_n = 1};
    struct io_uring_params params = {.flags = ring_kinds[kind].flags | IORING_SETUP_CQSIZE,
                                     .cq_entries = entries};

    fixture_setup(state);
    if (advance_ns)
        fake_clock_set(5 * SECOND);
    now_ns = 5 * SECOND;
    logged = 0;
    require(weir_open(&w, &options, NULL) == 0);
    require(weir_pool_new(&pool, w, &spec, NULL) == 0);
    require(weir_queue_open(&queue, w, CAPACITY) == 0);
    require(io_uring_queue_init_params(2, &ring, &params) == 0);
    ring_open = true;
    return 0;
}

static int setup(void **state)
{
    return open_all(state, false, 64);
}

static int setup_injected(void **state)
{
    return open_all(state, true, 64);
}

static int setup_ahead(void **state)
{
    int r;

    advance_ns = ADVANCE;
    r = open_all(state, false, 64);
    advance_ns = 0;
    return r;
}

static int setup_tiny(void **state)
{
    return open_all(state, false, 2);
}

static int teardown(void **state)
{
    weir_queue_close(queue);
    weir_close(w);
    weir_pool_close(pool);
    if (ring_open)
        io_uring_queue_exit(&ring);
    return fixture_teardown(state);
}

static void attach(void)
{
    assert_int_equal(weir_queue_attach(queue, ring.ring_fd), 0);
}

/* Asks for one call or some of the resource. */
static int ask_for(unsigned calls, unsigned db, uint64_t timeout_ns, uint64_t user_data,
                   weir_acquisition **ret)
{
    const struct weir_amount amounts[] = {{"call_count", calls}, {"db", db}};
    struct weir_request request = {
        .size = sizeof(request), .amounts = amounts, .amounts_n = 2, .timeout_ns = timeout_ns};

    return weir_queue_submit(queue, pool, &request, user_data, ret, NULL);
}

static weir_acquisition *submit(unsigned db, uint64_t user_data)
{
    weir_acquisition *acquisition = NULL;

    require(ask_for(0, db, WEIR_FOREVER, user_data, &acquisition) == 0);
    require(acquisition != NULL);
    return acquisition;
}

/* Takes some of the resource apart from the queue. */
static weir_acquisition *hold(unsigned db)
{
    const struct weir_amount amounts[] = {{"call_count", 0}, {"db", db}};
    struct weir_request request = {.size = sizeof(request), .amounts = amounts, .amounts_n = 2};
    weir_acquisition *acquisition = NULL;

    require(weir_try_acquire(pool, &request, &acquisition, NULL) == 0);
    return acquisition;
}

static void release(weir_acquisition *acquisition)
{
    require(weir_release(&acquisition) == 0);
}

static void expect_cqe(uint64_t user_data, int result)
{
    struct io_uring_cqe cqe = {.res = 0};

    assert_int_equal(ring_next(&ring, PATIENCE, &cqe), 0);
    assert_int_equal(cqe.user_data, user_data);
    assert_int_equal(cqe.res, result);
    assert_int_equal(cqe.flags, 0);
}

static void expect_no_cqe(void)
{
    struct io_uring_cqe cqe;

    assert_int_equal(ring_next(&ring, MOMENT, &cqe), -ETIME);
}

/* The queue's descriptor becomes readable, and a reap hands out this one. */
static void expect_reaped(uint64_t user_data, int result, weir_acquisition *acquisition)
{
    struct weir_completion done;
    int n = 0;

    /* While the timer thread is at it, the descriptor is readable and there is nothing yet. */
    for (int turn = 0; n == 0 && turn < 50000; turn++) {
        struct pollfd readable = {.fd = weir_queue_fd(queue), .events = POLLIN};

        require(poll(&readable, 1, 5000) == 1);
        n = weir_queue_reap(queue, &done, 1);
        if (n == 0)
            pause_ns(100000);
    }
    assert_int_equal(n, 1);
    assert_int_equal(done.user_data, user_data);
    assert_int_equal(done.result, result);
    assert_ptr_equal(done.acquisition, acquisition);
}

static void expect_nothing_to_reap(void)
{
    struct weir_completion done;

    assert_int_equal(weir_queue_reap(queue, &done, 1), 0);
}

/* None holds or waits for anything. */
static void expect_whole(void)
{
    release(hold(PERMITS));
}

/* The warning comes from the first thread without a lock. */
static void expect_logged(unsigned n)
{
    for (uint64_t until = clock_now() + PATIENCE; logged < n && clock_now() < until;)
        pause_ns(MS);
    pause_ns(MOMENT);
    assert_int_equal(logged, n);
}

/* ---- how a submission can end ---- */

static void test_granted(void **state)
{
    weir_acquisition *now, *later;

    (void)state;
    attach();
    now = submit(PERMITS, 1);
    expect_cqe(1, 0);
    later = submit(1, UINT64_MAX);
    expect_no_cqe();
    assert_int_equal(weir_acquisition_result(later), -EINPROGRESS);
    release(now);
    expect_cqe(UINT64_MAX, 0);
    expect_nothing_to_reap();
    assert_true(weir_acquisition_fd(later) >= 0);
    release(later);
    expect_whole();
    assert_int_equal(logged, 0);
}

/* Time passes without a reap. */
static void test_time_moves(void **state)
{
    weir_acquisition *calls[3], *all = hold(PERMITS), *late = NULL;

    (void)state;
    attach();
    for (unsigned i = 0; i < 3; i++)
        require(ask_for(1, 0, WEIR_FOREVER, i, &calls[i]) == 0);
    for (unsigned i = 0; i < 3; i++)
        expect_cqe(i, 0);
    require(ask_for(0, 1, 5 * MS, 77, &late) == 0);
    expect_cqe(77, -ETIMEDOUT);
    release(late);
    for (unsigned i = 0; i < 3; i++)
        release(calls[i]);
    release(all);
    expect_whole();
}

static void test_injected_clock(void **state)
{
    weir_acquisition *first = NULL, *next = NULL, *all = hold(PERMITS), *late = NULL;

    (void)state;
    attach();
    require(ask_for(1, 0, WEIR_FOREVER, 1, &first) == 0);
    require(ask_for(1, 0, WEIR_FOREVER, 2, &next) == 0);
    expect_cqe(1, 0);
    now_ns += 20 * MS - 1;
    assert_int_equal(weir_tick(w), 0);
    expect_no_cqe();
    now_ns += 1;
    assert_int_equal(weir_tick(w), 1);
    expect_cqe(2, 0);
    require(ask_for(0, 1, 5 * MS, 3, &late) == 0);
    now_ns += 5 * MS;
    assert_int_equal(weir_tick(w), 1);
    expect_cqe(3, -ETIMEDOUT);
    release(first);
    release(next);
    release(late);
    release(all);
}

static void test_refused(void **state)
{
    const struct weir_amount amounts[] = {{"call_count", 1}, {"db", 0}};
    struct weir_request request = {
        .size = sizeof(request), .amounts = amounts, .amounts_n = 2, .max_wait_ns = 1};
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    weir_acquisition *first, *second;

    (void)state;
    attach();
    require(weir_queue_submit(queue, pool, &request, 1, &first, NULL) == 0);
    require(weir_queue_submit(queue, pool, &request, 2, &second, NULL) == 0);
    expect_cqe(1, 0);
    expect_cqe(2, -EAGAIN);
    assert_int_equal(weir_acquisition_refusal(second, &refusal), 0);
    if (refusal.retry_after_ns) /* or a busy machine was late, and it would be granted by now */
        assert_string_equal(refusal.key, "call_count");
    release(first);
    release(second);
}

static void test_canceled(void **state)
{
    weir_acquisition *all = hold(PERMITS), *a, *b, *c;

    (void)state;
    attach();
    a = submit(1, 1);
    b = submit(1, 2);
    assert_int_equal(weir_cancel(a), 0);
    expect_cqe(1, -ECANCELED);
    assert_int_equal(weir_cancel(a), -EALREADY);
    assert_int_equal(weir_queue_cancel(queue, 2), 1);
    expect_cqe(2, -ECANCELED);
    release(all);
    c = submit(1, 3);
    expect_cqe(3, 0);
    assert_int_equal(weir_cancel(c), -EALREADY);
    assert_int_equal(weir_queue_cancel(queue, 3), 0);
    expect_no_cqe();
    release(a);
    release(b);
    release(c);
    expect_whole();
}

static void test_released_while_pending(void **state)
{
    weir_acquisition *all = hold(PERMITS), *a;

    (void)state;
    attach();
    a = submit(1, 1);
    release(a);
    release(all);
    expect_no_cqe();
    expect_nothing_to_reap();
    expect_whole();
}

/* What weir_close decides is posted; then the queue is detached. */
static void test_shut_down(void **state)
{
    weir_acquisition *all = hold(PERMITS), *waiting[8];

    (void)state;
    attach();
    for (unsigned i = 0; i < 8; i++)
        waiting[i] = submit(1, i);
    weir_close(w);
    w = NULL;
    for (unsigned i = 0; i < 8; i++)
        expect_cqe(i, -ESHUTDOWN);
    assert_int_equal(weir_queue_attach(queue, ring.ring_fd), -ESHUTDOWN);
    assert_int_equal(weir_queue_detach(queue), 0);
    for (unsigned i = 0; i < 8; i++)
        release(waiting[i]);
    release(all);
    assert_int_equal(logged, 0);
}

/* Grants that are told by a CQE alone could not be released. */
static void test_without_acquisition(void **state)
{
    struct weir_completion done;

    (void)state;
    attach();
    require(ask_for(0, 1, WEIR_FOREVER, 9, NULL) == 0);
    assert_int_equal(weir_queue_reap(queue, &done, 1), 1);
    assert_int_equal(done.user_data, 9);
    expect_no_cqe();
    release(done.acquisition);
    expect_whole();
}

/* ---- order, batches, full rings ---- */

static void test_order(void **state)
{
    enum { N = 1000 };
    static weir_acquisition *waiting[N];
    weir_acquisition *all = hold(PERMITS);

    (void)state;
    attach();
    for (unsigned i = 0; i < N; i++)
        waiting[i] = submit(PERMITS, i);
    release(all);
    for (unsigned i = 0; i < N; i++) {
        expect_cqe(i, 0);
        release(waiting[i]);
    }
    expect_no_cqe();
    expect_whole();
}

/* Far more CQEs than the CQ has room for, before any is taken. */
static void test_full(void **state)
{
    enum { N = 3000 };
    static weir_acquisition *waiting[N];
    weir_acquisition *all = hold(PERMITS);

    (void)state;
    attach();
    for (unsigned i = 0; i < N; i++)
        waiting[i] = submit(1, i);
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(weir_cancel(waiting[i]), 0);
    for (unsigned i = 0; i < N; i++)
        expect_cqe(i, -ECANCELED);
    expect_no_cqe();
    for (unsigned i = 0; i < N; i++)
        release(waiting[i]);
    release(all);
    expect_whole();
    assert_int_equal(logged, 0);
}

/* ---- attaching and detaching ---- */

static void test_decided_before(void **state)
{
    weir_acquisition *a = submit(1, 1), *b = submit(1, 2), *c;
    struct weir_completion done;

    (void)state;
    require(ask_for(0, 1, WEIR_FOREVER, 9, NULL) == 0);
    expect_no_cqe();
    attach();
    c = submit(1, 3);
    for (unsigned i = 1; i <= 3; i++)
        expect_cqe(i, 0);
    assert_int_equal(weir_queue_reap(queue, &done, 1), 1);
    assert_int_equal(done.user_data, 9);
    expect_nothing_to_reap();
    release(a);
    release(b);
    release(c);
    release(done.acquisition);
}

static void test_detached(void **state)
{
    weir_acquisition *a, *b, *all;

    (void)state;
    assert_int_equal(weir_queue_detach(queue), 0);
    attach();
    a = submit(PERMITS, 1);
    b = submit(PERMITS, 2);
    expect_cqe(1, 0);
    assert_int_equal(weir_queue_detach(queue), 0);
    assert_int_equal(weir_queue_detach(queue), 0);
    release(a);
    expect_reaped(2, 0, b);
    all = b;
    attach();
    a = submit(1, 3);
    release(all);
    expect_cqe(3, 0);
    expect_nothing_to_reap();
    release(a);
    assert_int_equal(logged, 0);
}

/* All that was posted is on the CQ when the ring's own thread has detached. */
static void test_nothing_under_way(void **state)
{
    weir_acquisition *held[PERMITS];
    unsigned ready, reaped = 0;
    struct weir_completion done;

    (void)state;
    attach();
    for (unsigned i = 0; i < PERMITS; i++)
        held[i] = submit(1, i);
    require(weir_queue_detach(queue) == 0);
    ready = io_uring_cq_ready(&ring);
    while (weir_queue_reap(queue, &done, 1) == 1)
        reaped++;
    assert_int_equal(ready + reaped, PERMITS);
    for (unsigned i = 0; i < ready; i++)
        expect_cqe(i, 0);
    expect_no_cqe();
    for (unsigned i = 0; i < PERMITS; i++)
        release(held[i]);
}

static void *attach_here(void *result)
{
    *(int *)result = weir_queue_attach(queue, ring.ring_fd);
    return NULL;
}

static int attach_elsewhere(void)
{
    pthread_t thread;
    int r;

    require(pthread_create(&thread, NULL, attach_here, &r) == 0);
    require(pthread_join(thread, NULL) == 0);
    return r;
}

static void test_wrong_arguments(void **state)
{
    struct io_uring_params params = {.flags = ring_kinds[kind].flags | IORING_SETUP_R_DISABLED};
    struct io_uring disabled;
    weir_acquisition *a;

    (void)state;
    require(io_uring_queue_init_params(2, &disabled, &params) == 0);
    assert_int_equal(weir_queue_attach(NULL, ring.ring_fd), -EINVAL);
    assert_int_equal(weir_queue_detach(NULL), -EINVAL);
    assert_int_equal(weir_queue_attach(queue, -1), -EBADF);
    assert_int_equal(weir_queue_attach(queue, weir_queue_fd(queue)), -EBADFD);
    assert_int_equal(weir_queue_attach(queue, disabled.ring_fd), -EBADFD);
    if (kind == DEFER)
        assert_int_equal(attach_elsewhere(), -EEXIST);
    attach();
    assert_int_equal(weir_queue_attach(queue, ring.ring_fd), -EBUSY);
    a = submit(1, 1);
    expect_cqe(1, 0);
    release(a);
    io_uring_queue_exit(&disabled);
}

/* ---- what ends posting ---- */

/* From here on everything is reaped, the program was told once, and it can attach anew. */
static void expect_fallen_back(weir_acquisition *all)
{
    weir_acquisition *a = submit(PERMITS, 1), *b;

    release(all);
    expect_reaped(1, 0, a);
    b = submit(PERMITS, 2);
    assert_int_equal(weir_cancel(b), 0);
    expect_reaped(2, -ECANCELED, b);
    release(b);
    release(a);
    expect_logged(1);
    require(ask_for(0, 1, WEIR_FOREVER, 3, &a) == 0);
    expect_reaped(3, 0, a);
    all = hold(PERMITS - 1);
    require(ask_for(0, 1, 5 * MS, 4, &b) == 0);
    expect_reaped(4, -ETIMEDOUT, b);
    release(a);
    release(b);
    release(all);
    expect_whole();
    expect_logged(1);
}

static void expect_attachable(void)
{
    weir_acquisition *a;

    attach();
    a = submit(1, 5);
    expect_cqe(5, 0);
    expect_nothing_to_reap();
    release(a);
}

static void test_ring_closed(void **state)
{
    weir_acquisition *all = hold(PERMITS);

    (void)state;
    attach();
    io_uring_queue_exit(&ring);
    ring_open = false;
    expect_fallen_back(all);
}

/* A new ring with the number of the old one is not the old one. */
static void test_ring_replaced(void **state)
{
    weir_acquisition *all = hold(PERMITS);
    int number = ring.ring_fd;

    (void)state;
    attach();
    io_uring_queue_exit(&ring);
    require(io_uring_queue_init(8, &ring, ring_kinds[kind].flags) == 0);
    assert_int_equal(ring.ring_fd, number);
    expect_fallen_back(all);
    expect_no_cqe();
    expect_attachable();
}

static void *own_a_ring(void *argument)
{
    struct io_uring *own = argument;

    require(io_uring_queue_init(8, own, ring_kinds[kind].flags) == 0);
    require(weir_queue_attach(queue, own->ring_fd) == 0);
    return NULL;
}

static void test_owner_gone(void **state)
{
    weir_acquisition *all = hold(PERMITS);
    struct io_uring own;
    pthread_t thread;

    (void)state;
    require(pthread_create(&thread, NULL, own_a_ring, &own) == 0);
    require(pthread_join(thread, NULL) == 0);
    expect_fallen_back(all);
    assert_int_equal(io_uring_cq_ready(&own), 0);
    io_uring_queue_exit(&own);
    expect_attachable();
}

static void test_messages_fail(void **state)
{
    enum { N = 9 };

    (void)state;
    for (unsigned at = 1; at <= N; at++) {
        weir_acquisition *all = hold(PERMITS), *waiting[N];

        logged = 0;
        attach();
        for (unsigned i = 0; i < N; i++)
            waiting[i] = submit(PERMITS, i);
        fake_os_fail_kind_at(at, FAKE_MESSAGE, 0);
        release(all);
        for (unsigned i = 0; i < N; i++) {
            if (i + 1 < at)
                expect_cqe(i, 0);
            else
                expect_reaped(i, 0, waiting[i]);
            release(waiting[i]);
        }
        assert_true(fake_os_has_failed());
        expect_no_cqe();
        expect_nothing_to_reap();
        expect_logged(1);
        expect_whole();
    }
    expect_attachable();
}

/* Attaching with each thing that it needs missing in turn. */
static void test_attach_fails(void **state)
{
    unsigned failures = 0;

    (void)state;
    for (unsigned at = 1;; at++) {
        weir_acquisition *a;
        int r;

        fake_os_fail_at(at);
        r = weir_queue_attach(queue, ring.ring_fd);
        if (!fake_os_has_failed()) {
            assert_int_equal(r, 0);
            break;
        }
        fake_os_fail_at(0);
        assert_true(r == -ENOMEM || r == -EMFILE || r == -EAGAIN);
        failures++;
        a = submit(1, at);
        expect_reaped(at, 0, a);
        expect_no_cqe();
        release(a);
    }
    assert_true(failures >= 6);
    fake_os_fail_at(0);
    require(weir_queue_detach(queue) == 0);
    expect_attachable();
    assert_int_equal(logged, 0);
}

static void test_no_descriptors(void **state)
{
    struct rlimit before, none;
    weir_acquisition *a;
    int r;

    (void)state;
    require(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = 3;
    require(setrlimit(RLIMIT_NOFILE, &none) == 0);
    r = weir_queue_attach(queue, ring.ring_fd);
    require(setrlimit(RLIMIT_NOFILE, &before) == 0);
    assert_int_equal(r, -EMFILE);
    a = submit(1, 1);
    expect_reaped(1, 0, a);
    release(a);
    expect_attachable();
}

/* The kernel refuses to set the completion queue's timer for a while; no thread reaps. */
static void test_timer_fails(void **state)
{
    weir_acquisition *first = NULL, *next = NULL;

    (void)state;
    attach();
    require(ask_for(1, 0, WEIR_FOREVER, 1, &first) == 0);
    expect_cqe(1, 0);
    fake_os_fail_kind_from(1, FAKE_EVENT, 0);
    require(ask_for(1, 0, WEIR_FOREVER, 2, &next) == 0);
    pause_ns(5 * MS);
    fake_os_fail_kind_at(0, 0, 0);
    assert_true(fake_os_counts().timer_set > 0);
    for (int i = 0; i < 2; i++) /* the call to the timer thread may have been lost with the rest */
        require(weir_queue_reap(queue, NULL, 0) == 0);
    expect_cqe(2, 0);
    release(first);
    release(next);
}

static void expect_spin(void)
{
    uint64_t readings = fake_os_counts().now + 1000;

    for (uint64_t until = clock_now() + PATIENCE; fake_os_counts().now < readings;) {
        require(clock_now() < until);
        pause_ns(MS);
    }
}

static bool is_readable(void)
{
    struct pollfd readable = {.fd = weir_queue_fd(queue), .events = POLLIN};

    return poll(&readable, 1, 0) == 1;
}

/* The timer thread spins for what becomes due in an attached queue, and only there. */
static void test_timer_set_ahead(void **state)
{
    weir_acquisition *calls[3];

    (void)state;
    attach();
    require(ask_for(1, 0, WEIR_FOREVER, 1, &calls[0]) == 0);
    expect_cqe(1, 0);
    require(ask_for(1, 0, WEIR_FOREVER, 2, &calls[1]) == 0);
    fake_clock_advance(20 * MS - ADVANCE);
    expect_spin();
    /* A program that is woken by the descriptor is not woken again and again. */
    expect_nothing_to_reap();
    assert_false(is_readable());
    fake_clock_advance(ADVANCE - 1);
    expect_spin();
    expect_no_cqe();
    fake_clock_advance(1);
    expect_cqe(2, 0);
    for (uint64_t until = clock_now() + PATIENCE; is_readable(); pause_ns(MS))
        require(clock_now() < until); /* the timer thread has yet to set the timer anew */
    require(weir_queue_detach(queue) == 0);
    require(ask_for(1, 0, WEIR_FOREVER, 3, &calls[2]) == 0);
    fake_clock_advance(20 * MS - 1);
    assert_false(is_readable());
    fake_clock_advance(1);
    expect_reaped(3, 0, calls[2]);
    for (int i = 0; i < 3; i++)
        release(calls[i]);
}

/* A step of the wall clock decides what waits for the next window of the calendar. */
static void test_a_step_of_the_wall_clock_reaches_the_ring(void **state)
{
    static const struct weir_setting anchor = {"anchor", "epoch"};
    static const struct weir_limit_spec limit = {.size = sizeof(limit),
                                                 .type = WEIR_LIMIT_CALL,
                                                 .algorithm = "fixed_window",
                                                 .capacity = 1,
                                                 .window_ns = 3600 * SECOND,
                                                 .settings = &anchor,
                                                 .settings_n = 1};
    struct weir_set_spec set = {
        .size = sizeof(set), .name = "calendar", .limits = &limit, .limits_n = 1};
    struct weir_pool_spec spec = {.size = sizeof(spec), .sets = &set, .sets_n = 1};
    weir_acquisition *next = NULL;
    weir_pool *calendar;

    (void)state;
    require(weir_pool_new(&calendar, w, &spec, NULL) == 0);
    attach();
    require(weir_take(calendar, NULL, NULL) == 0);
    require(weir_queue_submit(queue, calendar, NULL, 1, &next, NULL) == 0);
    expect_no_cqe();
    fake_clock_step_wall((int64_t)(3600 * SECOND));
    expect_cqe(1, 0);
    release(next);
    weir_pool_close(calendar);
}

/* The timer thread's wait fails: it rests for a moment of real time, whatever an injected clock
 * says.
 */
static void test_rests_by_the_real_clock(void **state)
{
    weir_acquisition *first, *next;

    (void)state;
    now_ns = UINT64_C(1) << 62;
    attach();
    pause_ns(MOMENT);                       /* it waits */
    fake_os_fail_kind_at(3, FAKE_EVENT, 0); /* it is called, hears, and waits again */
    first = submit(1, 1);
    expect_cqe(1, 0);
    pause_ns(MOMENT);
    next = submit(1, 2);
    expect_cqe(2, 0);
    fake_os_fail_kind_at(0, 0, 0);
    release(first);
    release(next);
}

/* ---- sandboxes, as a child puts itself into one ---- */

static void in_child(void (*run)(void))
{
    pid_t child = child_fork();

    require(child >= 0);
    if (child == 0) {
        run();
        fflush(NULL);
        _exit(0);
    }
    assert_int_equal(child_wait(child), 0);
}

/* Everything anew: a child can use nothing of its parent's. */
static void begin_anew(void)
{
    void *state = NULL;

    require(open_all(&state, false, 64) == 0);
}

static void forbid_after(void)
{
    weir_acquisition *all, *a;

    begin_anew();
    all = hold(PERMITS);
    require(weir_queue_attach(queue, ring.ring_fd) == 0);
    a = submit(PERMITS, 1);
    sandbox_forbid_rings(EPERM);
    release(all);
    expect_reaped(1, 0, a);
    expect_fallen_back(a);
    require(weir_queue_detach(queue) == 0);
    weir_queue_close(queue);
    weir_close(w);
    weir_pool_close(pool);
}

static void forbid_before(void)
{
    weir_acquisition *a;

    begin_anew();
    sandbox_forbid_rings(EPERM);
    require(weir_queue_attach(queue, ring.ring_fd) == 1);
    require(weir_queue_attach(queue, ring.ring_fd) == 1);
    require(logged == 1);
    a = submit(1, 1);
    expect_reaped(1, 0, a);
    require(weir_queue_detach(queue) == 0);
    release(a);
    weir_queue_close(queue);
    weir_close(w);
    weir_pool_close(pool);
}

static void forbid_unknown(void)
{
    begin_anew();
    sandbox_forbid_rings(ENOSYS);
    require(weir_queue_attach(queue, ring.ring_fd) == 1);
    require(logged == 1);
}

/* A ring may be there, but the process may not make one or send without one. */
static void forbid_sending(void)
{
    begin_anew();
    sandbox_forbid_sending();
    require(weir_queue_attach(queue, ring.ring_fd) == 1);
    require(logged == 1);
}

static void test_sandboxed_later(void **state)
{
    (void)state;
    in_child(forbid_after);
}

static void test_sandboxed_before(void **state)
{
    (void)state;
    in_child(forbid_before);
    in_child(forbid_unknown);
    in_child(forbid_sending);
}

static void touch_in_child(void)
{
    require(weir_queue_attach(queue, ring.ring_fd) == -ECHILD);
    require(weir_queue_detach(queue) == -ECHILD);
    weir_queue_close(queue);
    weir_close(w);
}

static void test_child(void **state)
{
    weir_acquisition *all = hold(PERMITS), *a;

    (void)state;
    attach();
    a = submit(1, 1);
    in_child(touch_in_child);
    release(all);
    expect_cqe(1, 0);
    release(a);
    expect_whole();
}

/* ---- no call is interrupted ---- */

struct sleeper {
    pthread_t thread;
    weir_acquisition *acquisition;
    _Atomic bool released;
    int result;
};

static void *release_and_sleep(void *argument)
{
    struct sleeper *sleeper = argument;
    struct epoll_event event;
    int fd = epoll_create1(EPOLL_CLOEXEC);

    require(fd >= 0);
    release(sleeper->acquisition);
    sleeper->released = true;
    sleeper->result = epoll_wait(fd, &event, 1, 200) < 0 ? -errno : 0;
    close(fd);
    return NULL;
}

/* Neither by a grant that it made nor by the end of what it was made by. */
static void test_no_interruption(void **state)
{
    struct sleeper sleepers[PERMITS];
    weir_acquisition *a[PERMITS];

    (void)state;
    attach();
    for (unsigned i = 0; i < PERMITS; i++)
        sleepers[i] = (struct sleeper){.acquisition = hold(1)};
    for (unsigned i = 0; i < PERMITS; i++)
        a[i] = submit(1, i);
    for (unsigned i = 0; i < PERMITS; i++) {
        require(pthread_create(&sleepers[i].thread, NULL, release_and_sleep, &sleepers[i]) == 0);
        while (!sleepers[i].released)
            pause_ns(MS / 10);
        expect_cqe(i, 0);
    }
    pause_ns(MS);
    require(weir_queue_detach(queue) == 0);
    require(poll(NULL, 0, 50) == 0); /* this thread attached and detached */
    for (unsigned i = 0; i < PERMITS; i++) {
        require(pthread_join(sleepers[i].thread, NULL) == 0);
        assert_int_equal(sleepers[i].result, 0);
        release(a[i]);
    }
}

#define on_ring(test)      cmocka_unit_test_setup_teardown(test, setup, teardown)
#define on_injected(test)  cmocka_unit_test_setup_teardown(test, setup_injected, teardown)
#define on_ahead(test)     cmocka_unit_test_setup_teardown(test, setup_ahead, teardown)
#define on_tiny_ring(test) cmocka_unit_test_setup_teardown(test, setup_tiny, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_ring(test_granted),
        on_ring(test_time_moves),
        on_injected(test_injected_clock),
        on_ring(test_refused),
        on_ring(test_canceled),
        on_ring(test_released_while_pending),
        on_ring(test_shut_down),
        on_injected(test_shut_down),
        on_ring(test_without_acquisition),
        on_ring(test_order),
        on_tiny_ring(test_full),
        on_ring(test_decided_before),
        on_ring(test_detached),
        on_ring(test_nothing_under_way),
        on_ring(test_wrong_arguments),
        on_ring(test_ring_closed),
        on_ring(test_ring_replaced),
        on_ring(test_owner_gone),
        on_ring(test_messages_fail),
        on_ring(test_attach_fails),
        on_ring(test_no_descriptors),
        on_ring(test_timer_fails),
        on_ahead(test_timer_set_ahead),
        on_ahead(test_a_step_of_the_wall_clock_reaches_the_ring),
        on_injected(test_rests_by_the_real_clock),
        on_ring(test_sandboxed_later),
        on_ring(test_sandboxed_before),
        on_ring(test_child),
        on_ring(test_no_interruption),
    };
    struct weir_uring unused;
    int failed = 0;

    if (!rings_begin(&unused))
        return 77;
    for (kind = 0; kind < RING_KINDS; kind++) {
        if (!ring_exists(kind))
            fprintf(stderr, "SKIPPED: no %s rings here\n", ring_kinds[kind].name);
        else
            failed += cmocka_run_group_tests_name(ring_kinds[kind].name, tests, NULL, NULL);
    }
    return failed;
}
