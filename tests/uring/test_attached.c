/* SPDX-License-Identifier: MIT */
/* Completion queues that are attached to rings, on sets that processes share: which of them notice
 * the dead? */
#include "processes/shared.h"

#include <errno.h>
#include <liburing.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static const char slots[] = "version: 1\n"
                            "sets:\n"
                            "  s:\n"
                            "    backend: process\n"
                            "    limits:\n"
                            "      - { type: resource, key: slot, capacity: 2 }\n";

static void hold_and_be_killed(void *argument)
{
    struct shared_pipe *ready = argument;
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;

    require(weir_try_acquire(pool, shared_ask(&memory, "slot", 2, 0), &acquisition, NULL) == 0);
    shared_tell(ready);
    for (;;)
        pause();
}

static uint64_t cpu_ns(void)
{
    struct timespec t;

    require(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return (uint64_t)t.tv_sec * 1000 * MS + (uint64_t)t.tv_nsec;
}

/* The queue through which the timer thread knew of the other process is closed when that dies. */
static void a_later_death_keeps_no_thread_busy(void **state)
{
    struct shared_pipe ready = shared_pipe();
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;
    struct io_uring ring;
    weir_queue *queue;
    weir_pool *pool;
    weir *w;
    uint64_t before;
    pid_t pid;

    (void)state;
    shared_begin();
    pid = shared_fork(hold_and_be_killed, &ready);
    shared_hear(&ready);
    w = shared_open(slots);
    pool = shared_pool(w, "s");
    require(io_uring_queue_init(4, &ring, 0) == 0);
    require(weir_queue_open(&queue, w, 4) == 0);
    require(weir_queue_attach(queue, ring.ring_fd) == 0);
    require(weir_queue_submit(queue, pool, shared_ask(&memory, "slot", 1, WEIR_FOREVER), 1,
                              &acquisition, NULL) == 0);
    weir_release(&acquisition);
    weir_queue_close(queue);
    kill(pid, SIGKILL);
    shared_wait(pid, SIGKILL);
    before = cpu_ns();
    pause_ns(200 * MS);
    require(cpu_ns() - before < 40 * MS);
    weir_pool_close(pool);
    weir_close(w);
    io_uring_queue_exit(&ring);
    shared_pipe_close(&ready);
    shared_end();
}

static uint64_t next_cqe(struct io_uring *ring)
{
    struct __kernel_timespec patience = {.tv_sec = 10};
    struct io_uring_cqe *cqe;
    uint64_t user_data;

    require(io_uring_wait_cqe_timeout(ring, &cqe, &patience) == 0);
    user_data = cqe->user_data;
    io_uring_cqe_seen(ring, cqe);
    return user_data;
}

/* A submission that waits long enough for its end to be noticed, which only the timer thread brings
 * about: no thread reaps. */
static weir_acquisition *submit_in_vain(weir_queue *queue, weir_pool *pool, uint64_t user_data)
{
    struct shared_request memory;
    weir_acquisition *ret = NULL;

    require(weir_queue_submit(queue, pool, shared_ask(&memory, "slot", 2, 10 * MS), user_data, &ret,
                              NULL) == 0);
    return ret;
}

/* The first ring is closed, which weir notices by a completion that it cannot post any more. */
static void another_ring_takes_the_place_of_one_that_was_closed(void **state)
{
    struct shared_request memory;
    struct weir_completion done;
    struct io_uring ring;
    weir_acquisition *holder = NULL, *waits;
    weir_queue *queue;
    weir_pool *pool;
    weir *w;

    (void)state;
    shared_begin();
    w = shared_open(slots);
    pool = shared_pool(w, "s");
    require(weir_try_acquire(pool, shared_ask(&memory, "slot", 2, 0), &holder, NULL) == 0);
    require(weir_queue_open(&queue, w, 4) == 0);
    for (uint64_t i = 0; i < 3; i++) {
        require(io_uring_queue_init(4, &ring, 0) == 0);
        assert_int_equal(weir_queue_attach(queue, ring.ring_fd), 0);
        waits = submit_in_vain(queue, pool, i);
        assert_int_equal(next_cqe(&ring), i);
        require(weir_release(&waits) == 0);
        io_uring_queue_exit(&ring);
        waits = submit_in_vain(queue, pool, i);
        while (weir_queue_reap(queue, &done, 1) == 0)
            pause_ns(MS);
        assert_ptr_equal(done.acquisition, waits);
        require(weir_release(&waits) == 0);
    }
    weir_queue_close(queue);
    require(weir_release(&holder) == 0);
    weir_pool_close(pool);
    weir_close(w);
    shared_end();
}

/* Of a request that waits in two sets one completion is posted. The program uses the acquisition
 * as that of the set that has granted. */
static void a_wait_in_several_sets_is_posted_once(void **state)
{
    static const char *const names[] = {"a", "b"};
    weir_acquisition *holders[2] = {NULL, NULL}, *waits = NULL;
    struct shared_request memory;
    struct io_uring ring;
    weir_queue *queue;
    weir_pool *pool, *of[2];
    weir *w;

    (void)state;
    shared_begin();
    w = shared_open("version: 1\nsets:\n"
                    "  a: { limits: [ { type: resource, key: slot, capacity: 1 } ] }\n"
                    "  b: { backend: process,\n"
                    "       limits: [ { type: resource, key: slot, capacity: 1 } ] }\n"
                    "pools: { p: { sets: [a, b], wait: any } }\n");
    pool = shared_pool(w, "p");
    require(io_uring_queue_init(4, &ring, 0) == 0);
    require(weir_queue_open(&queue, w, 4) == 0);
    assert_int_equal(weir_queue_attach(queue, ring.ring_fd), 0);
    for (int i = 0; i < 2; i++) {
        of[i] = shared_pool(w, names[i]);
        require(weir_try_acquire(of[i], shared_ask(&memory, "slot", 1, 0), &holders[i], NULL) == 0);
    }
    for (uint64_t i = 0; i < 4; i++) {
        uint64_t winner = i % 2;

        require(weir_queue_submit(queue, pool, shared_ask(&memory, "slot", 1, WEIR_FOREVER), i,
                                  &waits, NULL) == 0);
        require(weir_release(&holders[winner]) == 0);
        assert_int_equal(next_cqe(&ring), i);
        assert_string_equal(weir_acquisition_set(waits), names[winner]);
        assert_int_equal(weir_cancel(waits), -EALREADY);
        holders[winner] = waits;
        waits = NULL;
    }
    require(weir_queue_submit(queue, pool, shared_ask(&memory, "slot", 1, 10 * MS), 9, &waits,
                              NULL) == 0);
    assert_int_equal(next_cqe(&ring), 9); /* the time runs out in both */
    assert_int_equal(weir_acquisition_result(waits), -ETIMEDOUT);
    require(weir_release(&waits) == 0);
    weir_queue_close(queue);
    for (int i = 0; i < 2; i++) {
        require(weir_release(&holders[i]) == 0);
        weir_pool_close(of[i]);
    }
    weir_pool_close(pool);
    weir_close(w);
    io_uring_queue_exit(&ring);
    shared_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_later_death_keeps_no_thread_busy),
        cmocka_unit_test(another_ring_takes_the_place_of_one_that_was_closed),
        cmocka_unit_test(a_wait_in_several_sets_is_posted_once),
    };
    struct io_uring ring;

    if (io_uring_queue_init(2, &ring, 0) < 0) {
        fprintf(stderr, "SKIPPED: there is no io_uring here: NOTHING OF THIS WAS TESTED\n");
        return 77;
    }
    io_uring_queue_exit(&ring);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
