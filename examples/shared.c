/* SPDX-License-Identifier: MIT */
/*
 * Two processes share three slots: one takes two of them, this one the third, and each sees what
 * the other holds. Then the other is killed, and the waiting process is granted its slots.
 *
 * The set is in WEIR_PROCESS_DIR, or below /dev/shm, and is removed with the last of the two:
 * `lifetime: users`. While they run, `weir top` shows it.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/weir.h>

#define SLOTS_MAX 8

static const char text[] = "version: 1\n"
                           "sets:\n"
                           "  weir-example:\n"
                           "    backend: process\n"
                           "    lifetime: users\n"
                           "    limits: [ { type: resource, key: slots, capacity: 3 } ]\n";

/* Opens the set, in each process: a child cannot use what its parent has opened. */
static weir_pool *open_set(weir **ret)
{
    const struct weir_options options = {.size = sizeof(options), .text = text};
    struct weir_error error = {0};
    weir_pool *pool = NULL;
    int e = weir_open(ret, &options, &error);

    if (e == 0)
        e = weir_pool_open(&pool, *ret, "weir-example", 0, &error);
    if (e < 0)
        fprintf(stderr, "shared: %s\n", error.message[0] ? error.message : strerror(-e));
    return pool;
}

static int take(weir_pool *pool, uint64_t n, uint64_t timeout_ns, weir_acquisition **ret)
{
    const struct weir_amount slots = {"slots", n};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = &slots, .amounts_n = 1, .timeout_ns = timeout_ns};

    return weir_acquire(pool, &request, ret, NULL);
}

static void print_holders(weir_pool *pool)
{
    weir_set *set = weir_pool_set(pool, 0);
    struct weir_holder holders[SLOTS_MAX];
    int n = weir_set_holders(set, holders, SLOTS_MAX);

    for (int i = 0; i < n && i < SLOTS_MAX; i++) {
        uint64_t slots = 0;

        if (weir_set_holder_amounts(set, &holders[i], &slots, 1) == 1)
            printf("    %" PRIu64 " held by %s\n", slots,
                   holders[i].process == (uint32_t)getpid() ? "this process" : "the other");
    }
}

/* Runs the other process: takes two slots, reports that, and never releases them. */
static int hold_two(int ready)
{
    weir *w = NULL;
    weir_pool *pool = open_set(&w);
    weir_acquisition *two = NULL;

    if (!pool || take(pool, 2, WEIR_FOREVER, &two) < 0 || write(ready, "!", 1) != 1)
        return 1;
    for (;;)
        pause();
}

static int share(weir_pool *pool, pid_t other)
{
    weir_acquisition *one = NULL, *more = NULL;
    int e = take(pool, 1, WEIR_FOREVER, &one);

    if (e < 0)
        return e;
    printf("all three are taken:\n");
    print_holders(pool);
    e = take(pool, 2, 20 * UINT64_C(1000000), &more);
    printf("two more: %s\n", strerror(-e));

    kill(other, SIGKILL);
    e = take(pool, 2, WEIR_FOREVER, &more);
    printf("two more, now that the other is killed: %s\n", e == 0 ? "granted" : strerror(-e));
    print_holders(pool);
    weir_release(&more);
    weir_release(&one);
    return e;
}

int main(void)
{
    weir *w = NULL;
    weir_pool *pool;
    int ready[2], e = -EIO;
    char byte;
    pid_t other;

    if (pipe(ready) < 0)
        return 1;
    other = fork();
    if (other == 0)
        _exit(hold_two(ready[1]));
    close(ready[1]);
    pool = open_set(&w);
    if (other > 0 && pool && read(ready[0], &byte, 1) == 1)
        e = share(pool, other);
    if (other > 0) {
        kill(other, SIGKILL);
        waitpid(other, NULL, 0);
    }
    weir_pool_close(pool);
    weir_close(w);
    return e == 0 ? 0 : 1;
}
