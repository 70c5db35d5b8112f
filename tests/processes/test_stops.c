/* SPDX-License-Identifier: MIT */
/* A process that is stopped, or that runs and does not reap its completion queue, holds up others
 * by what it holds only: its waiters are granted and end on time, by the threads that come behind.
 */
#include "shared.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PLACES_MAX 64
#define PATIENCE   (10000 * MS) /* much more than any wait here takes, and less than for ever */

#define SET(fields, limit)                                                                         \
    "version: 1\nsets:\n  s:\n    backend: process\n" fields "    limits:\n      - { " limit " }"  \
    "\n"
#define SLOTS     "type: resource, key: n, capacity: 3"
#define RATE(per) "type: rate, key: n, algorithm: gcra, capacity: 1, window: " per

/* What a process does before it does nothing any more. */
struct idler {
    const char *text;
    uint64_t take;       /* of a rate, first of all */
    unsigned places;     /* submissions to a queue that it never reaps */
    uint64_t n, timeout; /* of each */
    bool is_stopped;     /* else it waits for a signal */
    struct shared_pipe ready;
    pid_t pid;
};

static void idle(void *argument)
{
    const struct idler *idler = argument;
    struct shared_request memory;
    weir *w = shared_open(idler->text);
    weir_pool *pool = shared_pool(w, "s");
    weir_queue *queue;

    require(weir_queue_open(&queue, w, PLACES_MAX) == 0);
    if (idler->take)
        require(weir_take(pool, shared_ask(&memory, "n", idler->take, 0), NULL) == 0);
    for (unsigned i = 0; i < idler->places; i++)
        require(weir_queue_submit(queue, pool, shared_ask(&memory, "n", idler->n, idler->timeout),
                                  i, NULL, NULL) == 0);
    shared_tell(&idler->ready);
    for (;;)
        pause();
}

static void start(struct idler *idler)
{
    int status;

    idler->ready = shared_pipe();
    idler->pid = shared_fork(idle, idler);
    shared_hear(&idler->ready);
    if (idler->is_stopped) {
        require(kill(idler->pid, SIGSTOP) == 0);
        require(waitpid(idler->pid, &status, WUNTRACED) == idler->pid && WIFSTOPPED(status));
    }
}

static void end(struct idler *idler)
{
    require(kill(idler->pid, SIGKILL) == 0);
    shared_wait(idler->pid, SIGKILL);
    shared_pipe_close(&idler->ready);
}

struct here {
    weir *w;
    weir_pool *pool;
};

static struct here here_open(const char *text)
{
    weir *w = shared_open(text);

    return (struct here){w, shared_pool(w, "s")};
}

static void here_close(struct here *here)
{
    weir_pool_close(here->pool);
    weir_close(here->w);
}

/* Asks every millisecond until the answer is another than `refusal`. */
static int take_at_last(weir_pool *pool, uint64_t n, int refusal)
{
    struct shared_request memory;
    uint64_t until = clock_now() + PATIENCE;
    int r;

    while ((r = weir_take(pool, shared_ask(&memory, "n", n, 0), NULL)) == refusal &&
           clock_now() < until)
        usleep(1000);
    return r;
}

static int try_at_last(weir_pool *pool, uint64_t n, weir_acquisition **ret)
{
    struct shared_request memory;
    uint64_t until = clock_now() + PATIENCE;
    int r;

    while ((r = weir_try_acquire(pool, shared_ask(&memory, "n", n, 0), ret, NULL)) == -EAGAIN &&
           clock_now() < until)
        usleep(1000);
    return r;
}

static void ready_heads(bool is_stopped)
{
    struct idler idler = {.text = SET("", RATE("10ms")),
                          .take = 1,
                          .places = 6,
                          .n = 1,
                          .timeout = WEIR_FOREVER,
                          .is_stopped = is_stopped};
    struct here here = here_open(idler.text);

    start(&idler);
    assert_int_equal(take_at_last(here.pool, 1, -EAGAIN), 0);
    assert_int_equal(shared_stats(here.pool).waiting, 0);
    end(&idler);
    here_close(&here);
}

static void ready_heads_of_a_stopped_process_refuse_nothing(void **state)
{
    (void)state;
    ready_heads(true);
}

static void ready_heads_of_a_queue_that_is_not_reaped_refuse_nothing(void **state)
{
    (void)state;
    ready_heads(false);
}

/* Two units are free, and the head wants three. */
static void overdue_head(bool is_stopped)
{
    struct idler idler = {.text = SET("    max_waiters: 1\n", SLOTS),
                          .places = 1,
                          .n = 3,
                          .timeout = 20 * MS,
                          .is_stopped = is_stopped};
    struct here here = here_open(idler.text);
    weir_acquisition *held[3] = {NULL, NULL, NULL};
    struct shared_request memory;

    assert_int_equal(try_at_last(here.pool, 1, &held[0]), 0);
    start(&idler);
    assert_int_equal(try_at_last(here.pool, 1, &held[1]), 0);
    assert_int_equal(weir_acquire(here.pool, shared_ask(&memory, "n", 1, PATIENCE), &held[2], NULL),
                     0);
    assert_int_equal(shared_stats(here.pool).timed_out, 1);
    end(&idler);
    for (int i = 0; i < 3; i++)
        weir_release(&held[i]);
    here_close(&here);
}

static void an_overdue_head_of_a_stopped_process_refuses_nothing(void **state)
{
    (void)state;
    overdue_head(true);
}

static void an_overdue_head_of_a_queue_that_is_not_reaped_refuses_nothing(void **state)
{
    (void)state;
    overdue_head(false);
}

/* The head waits for long, and rightly so. No running process waits, so none makes stall checks. */
static void overdue_waiters_in_the_middle_take_no_place(void **state)
{
    static const char text[] = SET("    max_waiters: 4\n", SLOTS);
    struct idler head = {
        .text = text, .places = 1, .n = 1, .timeout = WEIR_FOREVER, .is_stopped = true};
    struct idler middle = {
        .text = text, .places = 3, .n = 1, .timeout = 20 * MS, .is_stopped = true};
    struct here here = here_open(text);
    weir_acquisition *held = NULL, *next = NULL;
    struct shared_request memory;
    uint64_t until = clock_now() + PATIENCE;
    int r;

    (void)state;
    assert_int_equal(try_at_last(here.pool, 3, &held), 0);
    start(&head);
    start(&middle);
    while ((r = weir_submit(here.pool, shared_ask(&memory, "n", 1, WEIR_FOREVER), &next, NULL)) ==
               -ENOBUFS &&
           clock_now() < until)
        usleep(1000);
    assert_int_equal(r, 1);
    /* Those that were asked for later are overdue later; the next look finds them. */
    while (shared_stats(here.pool).waiting != 2 && clock_now() < until)
        usleep(1000);
    assert_int_equal(shared_stats(here.pool).waiting, 2);
    weir_release(&held);
    end(&head);
    end(&middle);
    weir_release(&next);
    here_close(&here);
}

/* Waits behind many places: blocked, with a descriptor, or in a queue. */
static int wait_behind(const struct here *here, char way)
{
    struct shared_request memory;
    const struct weir_request *request = shared_ask(&memory, "n", 1, PATIENCE);
    struct weir_completion completion = {.result = -ETIMEDOUT};
    weir_acquisition *acquisition = NULL;
    struct pollfd fd = {.events = POLLIN};
    weir_queue *queue = NULL;
    int result;

    if (way == 'b') {
        result = weir_acquire(here->pool, request, &acquisition, NULL);
    } else if (way == 'f') {
        require(weir_submit(here->pool, request, &acquisition, NULL) >= 0);
        fd.fd = weir_acquisition_fd(acquisition);
        require(poll(&fd, 1, 60000) == 1);
        result = weir_acquisition_result(acquisition);
    } else {
        require(weir_queue_open(&queue, here->w, 1) == 0);
        require(weir_queue_submit(queue, here->pool, request, 0, NULL, NULL) == 0);
        fd.fd = weir_queue_fd(queue);
        while (weir_queue_reap(queue, &completion, 1) == 0)
            require(poll(&fd, 1, 60000) == 1);
        result = completion.result;
        acquisition = completion.acquisition;
    }
    if (acquisition)
        weir_release(&acquisition);
    weir_queue_close(queue);
    return result;
}

static void behind(struct idler *idlers, unsigned n)
{
    static const char ways[] = "bfq";

    for (const char *way = ways; *way; way++) {
        struct here here;
        int result;

        shared_end();
        shared_begin();
        here = here_open(idlers->text);
        for (unsigned i = 0; i < n; i++)
            start(&idlers[i]);
        result = wait_behind(&here, *way);
        for (unsigned i = 0; i < n; i++)
            end(&idlers[i]);
        here_close(&here);
        if (result)
            fail_msg("waiting by %c behind %u: %d", *way, n, result);
    }
}

static void many_ready_places_delay_no_waiter(void **state)
{
    struct idler idler = {.text = SET("", RATE("1ms")),
                          .take = 1,
                          .places = 60,
                          .n = 1,
                          .timeout = WEIR_FOREVER,
                          .is_stopped = true};

    (void)state;
    behind(&idler, 1);
}

/* Each of them wants more than there is as long as one unit is held here. */
static void many_overdue_places_delay_no_waiter(void **state)
{
    static const char text[] = SET("", SLOTS);
    struct idler idler = {
        .text = text, .places = 60, .n = 3, .timeout = 20 * MS, .is_stopped = true};
    struct here holder = {NULL, NULL};
    weir_acquisition *held = NULL;

    (void)state;
    for (const char *way = "bfq"; *way; way++) {
        shared_end();
        shared_begin();
        holder = here_open(text);
        assert_int_equal(try_at_last(holder.pool, 1, &held), 0);
        start(&idler);
        assert_int_equal(wait_behind(&holder, *way), 0);
        end(&idler);
        weir_release(&held);
        here_close(&holder);
    }
}

static void many_stopped_processes_delay_no_waiter(void **state)
{
    struct idler idlers[10];

    (void)state;
    for (int i = 0; i < 10; i++)
        idlers[i] = (struct idler){.text = SET("", RATE("1ms")),
                                   .take = i == 0,
                                   .places = 1 + 5 * (unsigned)(i % 3),
                                   .n = 1,
                                   .timeout = WEIR_FOREVER,
                                   .is_stopped = true};
    behind(idlers, 10);
}

#define TEST(name) shared_test(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ready_heads_of_a_stopped_process_refuse_nothing),
        TEST(ready_heads_of_a_queue_that_is_not_reaped_refuse_nothing),
        TEST(an_overdue_head_of_a_stopped_process_refuses_nothing),
        TEST(an_overdue_head_of_a_queue_that_is_not_reaped_refuses_nothing),
        TEST(overdue_waiters_in_the_middle_take_no_place),
        TEST(many_ready_places_delay_no_waiter),
        TEST(many_overdue_places_delay_no_waiter),
        TEST(many_stopped_processes_delay_no_waiter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
