/* SPDX-License-Identifier: MIT */
/* Sets that processes share, in the small: what one does the other sees, whatever way it waits; and
 * a process that dies gives everything back. Two instances of one process are two participants like
 * any others. */
#include "lib/child.h"
#include "shared.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char slots[] = "version: 1\n"
                            "sets:\n"
                            "  s:\n"
                            "    backend: process\n"
                            "    limits:\n"
                            "      - { type: resource, key: slot, capacity: 2 }\n";

static const char rates[] = "version: 1\n"
                            "sets:\n"
                            "  s:\n"
                            "    backend: process\n"
                            "    limits:\n"
                            "      - { type: rate, key: n, algorithm: gcra, capacity: 1, window: "
                            "50ms }\n";

struct two {
    weir *w[2];
    weir_pool *pools[2];
};

static struct two open_two(const char *text)
{
    struct two two;

    for (int i = 0; i < 2; i++) {
        two.w[i] = shared_open(text);
        two.pools[i] = shared_pool(two.w[i], "s");
    }
    return two;
}

static void close_two(struct two *two)
{
    for (int i = 0; i < 2; i++) {
        weir_pool_close(two->pools[i]);
        weir_close(two->w[i]);
    }
}

static weir_acquisition *get(weir_pool *pool, const char *key, uint64_t n)
{
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;

    assert_int_equal(weir_acquire(pool, shared_ask(&memory, key, n, 5000 * MS), &acquisition, NULL),
                     0);
    return acquisition;
}

static void what_one_takes_the_other_lacks(void **state)
{
    struct two two = open_two(slots);
    struct shared_request memory;
    weir_acquisition *a = get(two.pools[0], "slot", 2), *b = NULL;

    (void)state;
    assert_int_equal(weir_try_acquire(two.pools[1], shared_ask(&memory, "slot", 1, 0), &b, NULL),
                     -EAGAIN);
    assert_int_equal(shared_held(two.pools[1], 0), 2);
    assert_int_equal(weir_release(&a), 0);
    assert_int_equal(weir_try_acquire(two.pools[1], shared_ask(&memory, "slot", 1, 0), &b, NULL),
                     0);
    assert_int_equal(weir_release(&b), 0);
    assert_int_equal(shared_held(two.pools[0], 0), 0);
    assert_int_equal(shared_stats(two.pools[0]).granted, 2);
    close_two(&two);
}

static void a_release_there_is_a_grant_here(void **state)
{
    struct two two = open_two(slots);
    struct shared_request memory;
    weir_acquisition *a = get(two.pools[0], "slot", 2), *b = NULL;
    struct pollfd fd = {.events = POLLIN};

    (void)state;
    assert_int_equal(weir_submit(two.pools[1], shared_ask(&memory, "slot", 1, 0), &b, NULL), 1);
    fd.fd = weir_acquisition_fd(b);
    assert_true(fd.fd >= 0);
    assert_int_equal(poll(&fd, 1, 0), 0);
    assert_int_equal(weir_release(&a), 0);
    assert_int_equal(poll(&fd, 1, 10000), 1);
    assert_int_equal(weir_acquisition_result(b), 0);
    assert_int_equal(weir_release(&b), 0);
    close_two(&two);
}

/* `held` is all of the slots, had by way of the other pool. A waiter that is notified twice, by the
 * other participant and by its own release, may see the later notification first. */
static void learn_of_others(weir_queue *queue, weir_pool *pool, weir_acquisition *held)
{
    unsigned heard = 0;
    struct pollfd fd = {weir_queue_fd(queue), POLLIN, 0};
    struct weir_completion completion;
    struct shared_request memory;

    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(weir_queue_submit(queue, pool,
                                           shared_ask(&memory, "slot", 1, WEIR_FOREVER), i, NULL,
                                           NULL),
                         0);
    assert_int_equal(weir_queue_reap(queue, &completion, 1), 0);
    assert_int_equal(weir_release(&held), 0);
    for (uint64_t i = 0; i < 3; i++) {
        int n;

        do {
            assert_int_equal(poll(&fd, 1, 10000), 1);
            n = weir_queue_reap(queue, &completion, 1);
        } while (n == 0);
        assert_int_equal(n, 1);
        assert_in_range(completion.user_data, 0, 2);
        heard |= 1u << completion.user_data;
        assert_int_equal(completion.result, 0);
        assert_int_equal(weir_release(&completion.acquisition), 0);
    }
    assert_int_equal(heard, 7);
}

static void a_queue_learns_of_other_processes(void **state)
{
    struct two two = open_two(slots);
    weir_queue *queue;

    (void)state;
    assert_int_equal(weir_queue_open(&queue, two.w[1], 16), 0);
    learn_of_others(queue, two.pools[1], get(two.pools[0], "slot", 2));
    assert_null(weir_queue_close(queue));
    close_two(&two);
}

/* Its descriptor was made before it was known that there would be any. */
static void a_queue_learns_of_sets_that_came_later(void **state)
{
    const struct weir_limit_spec slot = {
        .size = sizeof(slot), .type = WEIR_LIMIT_RESOURCE, .key = "slot", .capacity = 2};
    const struct weir_set_spec set = {
        .size = sizeof(set), .name = "s", .backend = "process", .limits = &slot, .limits_n = 1};
    const struct weir_pool_spec spec = {.size = sizeof(spec), .sets = &set, .sets_n = 1};
    weir *w = shared_open(slots), *later = shared_open("version: 1\n");
    weir_pool *pool = shared_pool(w, "s"), *joined;
    weir_queue *queue, *other;

    (void)state;
    assert_int_equal(weir_queue_open(&queue, later, 16), 0);
    assert_int_equal(weir_queue_open(&other, later, 16), 0);
    assert_int_equal(weir_pool_new(&joined, later, &spec, NULL), 0);
    for (int i = 0; i < 2; i++) {
        learn_of_others(queue, joined, get(pool, "slot", 2));
        learn_of_others(other, joined, get(pool, "slot", 2));
    }
    assert_null(weir_queue_close(queue));
    learn_of_others(other, joined, get(pool, "slot", 2));
    assert_null(weir_queue_close(other));
    weir_pool_close(joined);
    weir_pool_close(pool);
    weir_close(later);
    weir_close(w);
}

static void time_passes_as_ever(void **state)
{
    struct two two = open_two(rates);
    struct shared_request memory;
    weir_acquisition *b = NULL;
    uint64_t before = weir_now(two.w[0]);

    (void)state;
    assert_int_equal(weir_take(two.pools[0], shared_ask(&memory, "n", 1, 0), NULL), 0);
    assert_int_equal(weir_take(two.pools[1], shared_ask(&memory, "n", 1, 0), NULL), -EAGAIN);
    b = get(two.pools[1], "n", 1);
    assert_true(weir_now(two.w[0]) - before >= 50 * MS);
    assert_int_equal(weir_update(b, "n", 1), 0);
    assert_int_equal(weir_release(&b), 0);
    close_two(&two);
}

static void timeouts_end_waits(void **state)
{
    struct two two = open_two(slots);
    struct shared_request memory;
    weir_acquisition *a = get(two.pools[0], "slot", 2), *b = NULL;

    (void)state;
    assert_int_equal(weir_acquire(two.pools[1], shared_ask(&memory, "slot", 1, 20 * MS), &b, NULL),
                     -ETIMEDOUT);
    assert_int_equal(weir_submit(two.pools[1], shared_ask(&memory, "slot", 1, 20 * MS), &b, NULL),
                     1);
    while (weir_acquisition_result(b) == -EINPROGRESS)
        pause_ns(MS);
    assert_int_equal(weir_acquisition_result(b), -ETIMEDOUT);
    weir_release(&b);
    weir_release(&a);
    assert_int_equal(shared_stats(two.pools[0]).waiting, 0);
    close_two(&two);
}

/* ---- children ---- */

struct child {
    struct shared_pipe ready, go;
    const char *text;
    int how; /* 0 holds, 1 waits blocked, 2 waits in a queue, */
             /* 3 blocked for 30 ms, 4 in a queue for 30 ms, 5 blocked for one of a rate */
};

static void hold_or_wait(void *argument)
{
    struct child *child = argument;
    weir *w = shared_open(child->text);
    weir_pool *pool = shared_pool(w, "s");
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;
    weir_queue *queue;
    int r = -ECANCELED;

    if (child->how == 0)
        require(weir_acquire(pool, shared_ask(&memory, "slot", 2, 0), &acquisition, NULL) == 0);
    if (child->how == 2 || child->how == 4) {
        require(weir_queue_open(&queue, w, 4) == 0);
        require(weir_queue_submit(
                    queue, pool,
                    shared_ask(&memory, "slot", 2, child->how == 2 ? WEIR_FOREVER : 30 * MS), 1,
                    NULL, NULL) == 0);
    }
    shared_tell(&child->ready);
    if (child->how == 1 || child->how == 3)
        r = weir_acquire(pool,
                         shared_ask(&memory, "slot", 2, child->how == 1 ? WEIR_FOREVER : 30 * MS),
                         &acquisition, NULL);
    if (child->how == 5)
        r = weir_acquire(pool, shared_ask(&memory, "n", 1, WEIR_FOREVER), &acquisition, NULL);
    require(child->how == 0 || (r == 0) == (acquisition != NULL));
    shared_hear(&child->go);
    weir_release(&acquisition);
    weir_pool_close(pool);
    weir_close(w);
}

static pid_t start(struct child *child, const char *text, int how)
{
    pid_t pid;

    *child = (struct child){shared_pipe(), shared_pipe(), text, how};
    pid = shared_fork(hold_or_wait, child);
    shared_hear(&child->ready);
    return pid;
}

static void end(struct child *child)
{
    shared_pipe_close(&child->ready);
    shared_pipe_close(&child->go);
}

static void fail_at_once(void *unused)
{
    (void)unused;
    require(!"a child does what its test asks");
}

static void wait_for_a_byte(void *unused)
{
    struct shared_pipe ready = shared_pipe();

    (void)unused;
    require(freopen("/dev/null", "w", stderr));
    (void)shared_fork(fail_at_once, NULL);
    alarm(10); /* otherwise it would wait for five minutes */
    shared_hear(&ready);
}

static void wait_for_a_change(void *unused)
{
    (void)unused;
    require(freopen("/dev/null", "w", stderr));
    (void)shared_fork(fail_at_once, NULL);
    alarm(10); /* otherwise it would wait for ever */
    for (;;)
        shared_pause();
}

/* Of these tests themselves: the failure of a child is one of its test. */
static void a_child_that_fails_is_not_waited_for(void **state)
{
    (void)state;
    assert_true(child_exited(child_wait(shared_fork(wait_for_a_byte, NULL)), 1));
    assert_true(child_exited(child_wait(shared_fork(wait_for_a_change, NULL)), 1));
}

static void what_the_dead_held_comes_back(void **state)
{
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    struct child child;
    pid_t pid = start(&child, slots, 0);
    weir_acquisition *acquisition;
    struct shared_request memory;

    (void)state;
    assert_int_equal(weir_try_acquire(pool, shared_ask(&memory, "slot", 1, 0), &acquisition, NULL),
                     -EAGAIN);
    assert_int_equal(kill(pid, SIGKILL), 0);
    acquisition = get(pool, "slot", 2);
    shared_wait(pid, SIGKILL);
    weir_release(&acquisition);
    assert_int_equal(shared_held(pool, 0), 0);
    end(&child);
    weir_pool_close(pool);
    weir_close(w);
}

/* Returns a descriptor of a doorbell that this process has open, and its file; -1: none. */
static int find_doorbell(char ret[static 256])
{
    char path[64];

    for (int fd = 0; fd < 1024; fd++) {
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        n = readlink(path, ret, 255);
        ret[n > 0 ? n : 0] = '\0';
        if (n > 0 && strstr(ret, ".bell"))
            return fd;
    }
    return -1;
}

/* A grant to it has opened its doorbell, which goes with it: with its file, and in this process. */
static void the_doorbell_of_a_dead_process_is_closed(void **state)
{
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    struct child child;
    weir_acquisition *acquisition = get(pool, "slot", 2);
    struct shared_request memory;
    char of_child[256], after[256];
    pid_t pid;

    (void)state;
    assert_int_equal(find_doorbell(of_child), -1);
    pid = start(&child, slots, 2);
    while (!shared_stats(pool).waiting)
        shared_pause();
    assert_int_equal(weir_release(&acquisition), 0);
    assert_true(find_doorbell(of_child) >= 0);
    assert_int_equal(access(of_child, F_OK), 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    shared_wait(pid, SIGKILL);
    do /* which looks for the dead before it refuses */
        pause_ns(MS);
    while (weir_try_acquire(pool, shared_ask(&memory, "slot", 2, 0), &acquisition, NULL) ==
           -EAGAIN);
    assert_int_equal(access(of_child, F_OK), -1);
    assert_int_equal(find_doorbell(after), -1);
    weir_release(&acquisition);
    end(&child);
    weir_pool_close(pool);
    weir_close(w);
}

/* No thread waits while it dies: the next refused request looks first. */
static void the_next_to_ask_finds_the_dead(void **state)
{
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    struct child child;
    pid_t pid = start(&child, slots, 0);
    weir_acquisition *acquisition = NULL;
    struct shared_request memory;

    (void)state;
    assert_int_equal(kill(pid, SIGKILL), 0);
    shared_wait(pid, SIGKILL);
    pause_ns(2 * MS);
    assert_int_equal(weir_try_acquire(pool, shared_ask(&memory, "slot", 2, 0), &acquisition, NULL),
                     0);
    weir_release(&acquisition);
    end(&child);
    weir_pool_close(pool);
    weir_close(w);
}

static void observers_do_not_see_the_dead(void **state)
{
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    struct weir_holder holder;
    struct child child;
    pid_t pid = start(&child, slots, 0);

    (void)state;
    assert_int_equal(shared_held(pool, 0), 2);
    assert_int_equal(weir_set_holders(weir_pool_set(pool, 0), &holder, 1), 1);
    assert_int_equal(holder.process, pid);
    assert_int_equal(kill(pid, SIGKILL), 0);
    shared_wait(pid, SIGKILL);
    assert_int_equal(weir_set_holders(weir_pool_set(pool, 0), NULL, 0), 0);
    assert_int_equal(shared_held(pool, 0), 0);
    assert_int_equal(shared_stats(pool).held, 0);
    end(&child);
    weir_pool_close(pool);
    weir_close(w);
}

static void the_dead_leave_the_wait_queue(void **state)
{
    (void)state;
    for (int how = 1; how <= 2; how++) {
        weir *w = shared_open(slots);
        weir_pool *pool = shared_pool(w, "s");
        weir_acquisition *held = get(pool, "slot", 1), *acquisition;
        struct child child;
        pid_t pid = start(&child, slots, how);

        while (!shared_stats(pool).waiting)
            shared_pause();
        assert_int_equal(kill(pid, SIGKILL), 0);
        acquisition = get(pool, "slot", 1); /* the child, ahead of it, wanted two */
        shared_wait(pid, SIGKILL);
        weir_release(&acquisition);
        weir_release(&held);
        assert_int_equal(shared_stats(pool).waiting, 0);
        end(&child);
        weir_pool_close(pool);
        weir_close(w);
    }
}

/* Descriptors until there are no more; and back. */
static int use_up(int *fds, int n_max)
{
    int n = 0;

    while (n < n_max && (fds[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        n++;
    return n;
}

struct scarcity {
    int fds[64], n;
    pid_t holder;
};

static void *end_scarcity(void *argument)
{
    struct scarcity *scarcity = argument;

    pause_ns(100 * MS);
    while (scarcity->n)
        close(scarcity->fds[--scarcity->n]);
    require(kill(scarcity->holder, SIGKILL) == 0);
    return NULL;
}

static void start_timer_thread(weir_pool *pool)
{
    struct shared_request memory;
    weir_acquisition *pending = NULL;

    assert_int_equal(weir_submit(pool, shared_ask(&memory, "slot", 2, 0), &pending, NULL), 1);
    weir_release(&pending);
}

/* There was no descriptor left to watch the holder with when the wait began. */
static void a_process_that_is_not_watched_is_looked_after(void **state)
{
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    weir_acquisition *acquisition = get(pool, "slot", 2);
    struct rlimit before, few;
    struct scarcity scarcity;
    struct child child;
    pthread_t thread;

    (void)state;
    start_timer_thread(pool);
    weir_release(&acquisition);
    scarcity.holder = start(&child, slots, 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){32, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    scarcity.n = use_up(scarcity.fds, 64);
    assert_int_equal(pthread_create(&thread, NULL, end_scarcity, &scarcity), 0);
    acquisition = get(pool, "slot", 2);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    shared_wait(scarcity.holder, SIGKILL);
    weir_release(&acquisition);
    end(&child);
    weir_pool_close(pool);
    weir_close(w);
}

static void stop(pid_t pid)
{
    int status;

    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
}

static void finish(struct child *child, pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    shared_wait(pid, SIGKILL);
    end(child);
}

/* Starts a child and stops it while it waits. A child that was too quick is tried again. */
static pid_t start_stopped(weir_pool *pool, struct child *child, int how)
{
    for (;;) {
        uint64_t ended = shared_stats(pool).timed_out;
        pid_t pid = start(child, slots, how);

        while (!shared_stats(pool).waiting && shared_stats(pool).timed_out == ended)
            shared_pause();
        stop(pid);
        if (shared_stats(pool).waiting)
            return pid;
        finish(child, pid);
    }
}

/* Its wait should have ended long ago: others see to that. They count it after it has left. */
static void a_stopped_waiter_times_out(void **state)
{
    (void)state;
    for (int how = 3; how <= 4; how++) {
        weir *w = shared_open(slots);
        weir_pool *pool = shared_pool(w, "s");
        weir_acquisition *held = get(pool, "slot", 1), *acquisition;
        struct child child;
        pid_t pid = start_stopped(pool, &child, how);
        uint64_t ended = shared_stats(pool).timed_out;

        acquisition = get(pool, "slot", 1); /* the child, ahead of it, wanted two */
        while (shared_stats(pool).timed_out == ended)
            shared_pause();
        assert_int_equal(shared_stats(pool).timed_out, ended + 1);
        weir_release(&acquisition);
        weir_release(&held);
        finish(&child, pid);
        weir_pool_close(pool);
        weir_close(w);
    }
}

/*
 * It heads the wait queue and sleeps through its instant: it is granted, and the next one is next.
 */
static void a_stopped_head_holds_up_no_other_process(void **state)
{
    weir *w = shared_open(rates);
    weir_pool *pool = shared_pool(w, "s");
    struct shared_request memory;
    weir_acquisition *acquisition;
    struct child child;
    pid_t pid;

    (void)state;
    assert_int_equal(weir_take(pool, shared_ask(&memory, "n", 1, 0), NULL), 0);
    pid = start(&child, rates, 5);
    while (!shared_stats(pool).waiting && shared_stats(pool).granted < 2)
        shared_pause();
    stop(pid);
    acquisition = get(pool, "n", 1);
    assert_int_equal(shared_stats(pool).granted, 3);
    weir_update(acquisition, "n", 1);
    weir_release(&acquisition);
    finish(&child, pid);
    weir_pool_close(pool);
    weir_close(w);
}

/* A waiter is notified of its grant or its end, not of a cleanup. */
static void a_cleanup_decides_nothing(void **state)
{
    struct two two = open_two(slots);
    weir_acquisition *held = get(two.pools[0], "slot", 2), *pending = NULL;
    struct weir_completion completion;
    struct shared_request memory;
    struct pollfd fd = {.events = POLLIN};
    struct child child;
    weir_queue *queue;

    (void)state;
    assert_int_equal(weir_queue_open(&queue, two.w[1], 16), 0);
    for (int way = 0; way < 2; way++) {
        pid_t pid;

        if (way == 0)
            assert_int_equal(weir_queue_submit(queue, two.pools[1],
                                               shared_ask(&memory, "slot", 1, WEIR_FOREVER), 1,
                                               NULL, NULL),
                             0);
        else
            assert_int_equal(weir_submit(two.pools[1], shared_ask(&memory, "slot", 1, WEIR_FOREVER),
                                         &pending, NULL),
                             1);
        pid = start(&child, slots, 1);
        while (shared_stats(two.pools[0]).waiting < 2)
            shared_pause();
        assert_int_equal(kill(pid, SIGKILL), 0);
        shared_wait(pid, SIGKILL);
        while (shared_stats(two.pools[0]).waiting > 1)
            assert_int_equal(weir_queue_reap(queue, &completion, 1), 0);
        pause_ns(5 * MS);
        assert_int_equal(weir_queue_reap(queue, &completion, 1), 0);
        if (way == 0) {
            assert_int_equal(weir_queue_cancel(queue, 1), 1);
            assert_int_equal(weir_queue_reap(queue, &completion, 1), 1);
        } else {
            fd.fd = weir_acquisition_fd(pending);
            assert_int_equal(poll(&fd, 1, 0), 0);
            weir_release(&pending);
        }
        end(&child);
    }
    weir_release(&held);
    assert_null(weir_queue_close(queue));
    close_two(&two);
}

static void a_process_that_just_exits_counts_as_dead(void **state)
{
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    struct child child;
    pid_t pid = start(&child, slots, 0);
    weir_acquisition *acquisition;

    (void)state;
    shared_tell(&child.go);
    acquisition = get(pool, "slot", 2);
    shared_wait(pid, 0);
    weir_release(&acquisition);
    end(&child);
    weir_pool_close(pool);
    weir_close(w);
}

static void come_and_die(void *argument)
{
    (void)argument;
    shared_pool(shared_open(slots), "s");
}

/* No request ever needs what the dead had: their slots are given back all the same. */
static void the_dead_do_not_crowd(void **state)
{
    weir *w;

    (void)state;
    for (int i = 0; i < 1100; i++)
        shared_wait(shared_fork(come_and_die, NULL), 0);
    w = shared_open(slots);
    weir_close(w);
}

static void closing_ends_the_own_waiters_only(void **state)
{
    struct two two = open_two(slots);
    struct shared_request memory;
    weir_acquisition *held = get(two.pools[0], "slot", 2), *mine = NULL, *other = NULL;

    (void)state;
    assert_int_equal(weir_submit(two.pools[1], shared_ask(&memory, "slot", 1, 0), &mine, NULL), 1);
    assert_int_equal(weir_submit(two.pools[0], shared_ask(&memory, "slot", 1, 0), &other, NULL), 1);
    weir_close(two.w[1]);
    assert_int_equal(weir_acquisition_result(mine), -ESHUTDOWN);
    assert_int_equal(weir_acquisition_result(other), -EINPROGRESS);
    weir_release(&mine);
    weir_release(&held);
    assert_int_equal(weir_acquisition_result(other), 0);
    weir_release(&other);
    weir_pool_close(two.pools[0]);
    weir_pool_close(two.pools[1]);
    weir_close(two.w[0]);
}

static void another_definition_is_refused(void **state)
{
    struct weir_error error = {0};
    weir *w = shared_open(slots), *other = NULL;

    (void)state;
    assert_int_equal(shared_try_open(&other, rates, &error), -EEXIST);
    assert_non_null(strstr(error.message, "is there only"));
    assert_null(other);
    weir_close(w);
}

/* Where the segment's word is that names the set's version. */
#define WORD_AT 576

static void damage(void)
{
    const uint64_t nonsense = UINT64_MAX;
    char path[128];
    int fd;

    snprintf(path, sizeof(path), "%s/s.weir", shared_directory());
    fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &nonsense, sizeof(nonsense), WORD_AT), sizeof(nonsense));
    close(fd);
}

static void a_damaged_set_says_so(void **state)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    struct shared_request memory;
    const struct weir_request *request = shared_ask(&memory, "slot", 1, WEIR_FOREVER);
    weir_acquisition *acquisition = get(pool, "slot", 2), *other = NULL;
    weir_set *set = weir_pool_set(pool, 0);
    uint64_t at_ns = 0;

    (void)state;
    damage();
    assert_int_equal(weir_try_acquire(pool, request, &other, NULL), -EUCLEAN);
    assert_int_equal(weir_acquire(pool, request, &other, NULL), -EUCLEAN);
    assert_int_equal(weir_submit(pool, request, &other, NULL), -EUCLEAN);
    assert_int_equal(weir_set_stats(set, &stats, NULL, 0), -EUCLEAN);
    assert_int_equal(weir_set_ready_at(set, request, &at_ns), -EUCLEAN);
    assert_int_equal(at_ns, 0);
    assert_int_equal(weir_acquisition_result(acquisition), -EUCLEAN);
    assert_int_equal(weir_update(acquisition, "slot", 1), -EUCLEAN);
    assert_true(weir_acquisition_fd(acquisition) >= 0); /* the slow path from now on */
    assert_int_equal(weir_update(acquisition, "slot", 1), -EUCLEAN);
    assert_int_equal(weir_release(&acquisition), 0);
    weir_pool_close(pool);
    weir_close(w);
}

static void in_child(void *argument)
{
    struct two *two = argument;
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;
    weir *w;
    weir_pool *pool;

    require(weir_take(two->pools[0], shared_ask(&memory, "slot", 1, 0), NULL) == -ECHILD);
    w = shared_open(slots);
    pool = shared_pool(w, "s");
    require(weir_try_acquire(pool, shared_ask(&memory, "slot", 2, 0), &acquisition, NULL) ==
            -EAGAIN);
    require(weir_try_acquire(pool, shared_ask(&memory, "slot", 1, 0), &acquisition, NULL) == 0);
    weir_pool_close(pool);
    weir_close(w); /* what it holds goes with it */
}

static void a_forked_child_opens_it_anew(void **state)
{
    struct two two = open_two(slots);
    weir_acquisition *held = get(two.pools[0], "slot", 1), *both;

    (void)state;
    shared_wait(shared_fork(in_child, &two), 0);
    weir_release(&held);
    both = get(two.pools[1], "slot", 2);
    weir_release(&both);
    close_two(&two);
}

static uint64_t still(void *unused)
{
    (void)unused;
    return MS;
}

struct ticking {
    weir *w;
    _Atomic bool ends;
};

static void *tick(void *argument)
{
    struct ticking *ticking = argument;

    while (!ticking->ends)
        require(weir_tick(ticking->w) >= 0);
    return NULL;
}

/* A tick looks into all completion queues, also into one that is being closed. */
static void queues_close_while_another_thread_ticks(void **state)
{
    const struct weir_clock clock = {.size = sizeof(clock), .now_ns = still};
    const struct weir_options options = {
        .size = sizeof(options), .text = slots, .process_dir = shared_directory(), .clock = &clock};
    struct ticking ticking = {.ends = false};
    struct shared_request memory;
    weir_pool *pool;
    weir_queue *queue;
    pthread_t thread;

    (void)state;
    assert_int_equal(weir_open(&ticking.w, &options, NULL), 0);
    pool = shared_pool(ticking.w, "s");
    assert_int_equal(pthread_create(&thread, NULL, tick, &ticking), 0);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(weir_queue_open(&queue, ticking.w, 4), 0);
        assert_int_equal(
            weir_queue_submit(queue, pool, shared_ask(&memory, "slot", 1, 0), 1, NULL, NULL), 0);
        assert_null(weir_queue_close(queue));
    }
    ticking.ends = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    weir_pool_close(pool);
    weir_close(ticking.w);
}

/* With each number of descriptors: it opens, or it does not and all is as before. */
static void too_few_descriptors(void *unused)
{
    struct weir_error error;
    struct rlimit limit;
    weir *w = NULL;
    int next = open("/dev/null", O_RDWR | O_CLOEXEC), missing, r;

    (void)unused;
    require(next >= 0 && dup2(next, 0) == 0 && close(next) == 0);
    require(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (missing = 0; !w; missing++) {
        limit.rlim_cur = (rlim_t)(next + missing);
        require(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        r = shared_try_open(&w, slots, &error);
        require(r == 0 || r == -EMFILE);
        require(fcntl(0, F_GETFD) >= 0);
    }
    require(missing > 3);
    weir_close(w);
    require(fcntl(0, F_GETFD) >= 0 && fcntl(next, F_GETFD) < 0);
}

static void descriptors_that_are_short_cost_no_others(void **state)
{
    (void)state;
    shared_wait(shared_fork(too_few_descriptors, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        shared_test(what_one_takes_the_other_lacks),
        shared_test(a_release_there_is_a_grant_here),
        shared_test(a_queue_learns_of_other_processes),
        shared_test(a_queue_learns_of_sets_that_came_later),
        shared_test(time_passes_as_ever),
        shared_test(timeouts_end_waits),
        shared_test(a_child_that_fails_is_not_waited_for),
        shared_test(what_the_dead_held_comes_back),
        shared_test(the_doorbell_of_a_dead_process_is_closed),
        shared_test(the_next_to_ask_finds_the_dead),
        shared_test(observers_do_not_see_the_dead),
        shared_test(the_dead_leave_the_wait_queue),
        shared_test(a_process_that_is_not_watched_is_looked_after),
        shared_test(a_stopped_waiter_times_out),
        shared_test(a_stopped_head_holds_up_no_other_process),
        shared_test(a_cleanup_decides_nothing),
        shared_test(a_process_that_just_exits_counts_as_dead),
        shared_test(the_dead_do_not_crowd),
        shared_test(closing_ends_the_own_waiters_only),
        shared_test(another_definition_is_refused),
        shared_test(a_damaged_set_says_so),
        shared_test(a_forked_child_opens_it_anew),
        shared_test(queues_close_while_another_thread_ticks),
        shared_test(descriptors_that_are_short_cost_no_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
