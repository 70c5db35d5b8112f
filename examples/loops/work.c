/* SPDX-License-Identifier: MIT */
/* The work of every loop of this directory, apart from waiting. */
#include "work.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)

/* Kinds of requests: each is a set. The first requests are for the door, then calls and slots take
 * turns. The number of a request is its user_data. */
enum kind { CALL, SLOT, DOOR };
enum { DOORS = 3, OTHERS = 80, ALL = DOORS + OTHERS, CAPACITY = 16 };

static const char *const names[] = {[CALL] = "calls", [SLOT] = "slots", [DOOR] = "door"};

static const char limits[] =
    "version: 1\n"
    "sets:\n"
    "  calls:\n"
    "    limits:\n"
    "      - { type: call, algorithm: gcra, capacity: 1000, window: 1s, burst: 1 }\n"
    "  slots:\n"
    "    limits:\n"
    "      - { type: resource, key: slots, capacity: 2 }\n"
    "  door:\n"
    "    limits:\n"
    "      - { type: resource, key: door, capacity: 1 }\n";

static enum kind kind_of(uint64_t number)
{
    if (number < DOORS)
        return DOOR;
    return number % 2 ? CALL : SLOT;
}

static bool to_be_canceled(uint64_t number)
{
    return kind_of(number) != DOOR && (number - DOORS) / 2 % 5 == 4;
}

void work_fail(const char *what, int code)
{
    fprintf(stderr, "%s: %s\n", what, strerror(-code));
    exit(EXIT_FAILURE);
}

static void check(const char *what, int code)
{
    if (code < 0)
        work_fail(what, code);
}

static void log_line(void *unused, enum weir_log_level level, const char *message)
{
    (void)unused;
    (void)level;
    fprintf(stderr, "%s\n", message);
}

static void open_all(struct work *work)
{
    const struct weir_options options = {.size = sizeof(options), .text = limits, .log = log_line};
    struct weir_error error = {0};

    if (weir_open(&work->w, &options, &error) < 0) {
        fprintf(stderr, "weir_open: %s\n", error.message);
        exit(EXIT_FAILURE);
    }
    for (int kind = 0; kind < WORK_KINDS; kind++)
        check("weir_pool_open", weir_pool_open(&work->pools[kind], work->w, names[kind], 0, NULL));
    check("weir_queue_open", weir_queue_open(&work->queue, work->w, CAPACITY));
}

void work_begin(struct work *work)
{
    *work = (struct work){.in_order = true, .in_time = true};
    open_all(work);
    check("weir_try_acquire", weir_try_acquire(work->pools[DOOR], NULL, &work->door, NULL));
    check("weir_submit", weir_submit(work->pools[DOOR], NULL, &work->alone, NULL));
    work->begun_ns = weir_now(work->w);
    work_submit(work);
}

void work_submit(struct work *work)
{
    for (; work->submitted < ALL; work->submitted++) {
        uint64_t number = work->submitted;
        enum kind kind = kind_of(number);
        const struct weir_request request = {.size = sizeof(request),
                                             .timeout_ns = kind == DOOR ? 5 * MS : WEIR_FOREVER};
        int r = weir_queue_submit(work->queue, work->pools[kind], &request, number, NULL, NULL);

        if (r == -ENOSPC)
            return; /* after the next reap */
        check("weir_queue_submit", r);
        if (to_be_canceled(number))
            check("weir_queue_cancel", weir_queue_cancel(work->queue, number));
    }
}

/* Counts a grant, and checks its order and that it is not too early. */
static void count_grant(struct work *work, uint64_t number)
{
    enum kind kind = kind_of(number);

    if (number < work->last[kind])
        work->in_order = false;
    work->last[kind] = number;
    work->granted++;
    if (kind == CALL && weir_now(work->w) < work->begun_ns + work->paced++ * MS)
        work->in_time = false;
}

static weir_acquisition *hold(struct work *work, weir_acquisition *acquisition)
{
    if (++work->held > work->held_most)
        work->held_most = work->held;
    return acquisition;
}

weir_acquisition *work_completed(struct work *work, const struct weir_completion *completion)
{
    weir_acquisition *acquisition = completion->acquisition;

    work->completed++;
    switch (completion->result) {
    case 0:
        count_grant(work, completion->user_data);
        if (kind_of(completion->user_data) == SLOT)
            return hold(work, acquisition);
        check("weir_release", weir_release(&acquisition)); /* the call itself would be made here */
        return NULL;
    case -ECANCELED:
        work->canceled++;
        return NULL;
    case -ETIMEDOUT:
        if (++work->timed_out == DOORS)
            check("weir_release",
                  weir_release(&work->door)); /* opens it for the request that is left */
        return NULL;
    default:
        work_fail("a completion", completion->result);
    }
}

void work_hold_over(struct work *work, weir_acquisition *acquisition)
{
    work->held--;
    check("weir_release", weir_release(&acquisition));
}

void work_alone_decided(struct work *work)
{
    work->alone_granted = weir_acquisition_result(work->alone) == 0;
    check("weir_release", weir_release(&work->alone));
}

bool work_is_over(const struct work *work)
{
    return work->completed == ALL && work->held == 0 && !work->alone;
}

static const char *yes_or_no(bool condition)
{
    return condition ? "yes" : "no";
}

int work_finish(struct work *work)
{
    weir_queue_close(work->queue);
    for (int kind = 0; kind < WORK_KINDS; kind++)
        weir_pool_close(work->pools[kind]);
    weir_close(work->w);
    printf("%u granted, %u canceled, %u timed out\n", work->granted, work->canceled,
           work->timed_out);
    printf("in FIFO order: %s\n", yes_or_no(work->in_order));
    printf("at most one call per ms: %s\n", yes_or_no(work->in_time));
    printf("slots held at a time: at most %u\n", work->held_most);
    printf("granted apart from the completion queue: %s\n", yes_or_no(work->alone_granted));
    return fflush(stdout) == 0 && work->in_order && work->in_time && work->alone_granted
               ? EXIT_SUCCESS
               : EXIT_FAILURE;
}
