/* SPDX-License-Identifier: MIT */
/*
 * Waiters of a set that is moved to another server while they wait: they keep their order, and what
 * is held stays held.
 *
 *     engine_waiters PLUGIN URL SESSION_MS
 *
 * Prints a line when all wait, and goes on when it reads one.
 */
#include "engine_user.h"

#define WAITERS 11 /* the first one does not wait */

static struct user user;
static void *set;
static const uint64_t one[] = {1};

static void submit(struct request *request)
{
    request_begin(request);
    const struct weir_backend_ask ask = {.size = sizeof(ask),
                                         .token = (uintptr_t)request,
                                         .mode = WEIR_BACKEND_WAIT,
                                         .flags = WEIR_BACKEND_PATIENT,
                                         .timeout_ns = UINT64_MAX,
                                         .max_wait_ns = UINT64_MAX,
                                         .amounts = one};
    require(user.backend->ask(set, &ask) == 0);
    require(user.backend->wait(set, ask.token, now_ns() + PATIENCE_NS) == 1);
}

static void rendezvous(void)
{
    char line[16];
    puts("ready");
    fflush(stdout);
    require(fgets(line, sizeof(line), stdin));
}

int main(int argc, char **argv)
{
    static struct request requests[WAITERS];
    struct weir_reason reason = {0};
    struct weir_backend_verdict held;
    require(argc == 4);
    require(user_open(&user, argv[1], &reason,
                      (const char *const[]){"url", argv[2], "session", argv[3], NULL}) == 0);
    set = user_open_set(&user, "waiters", 1, 0, 0);
    user_start(&user);
    for (size_t i = 0; i < WAITERS; i++)
        submit(&requests[i]);
    /* On a server that is young it is granted after a session. */
    if (strtoull(argv[3], NULL, 10) * MS < PATIENCE_NS)
        require(request_wait(&requests[0], now_ns() + PATIENCE_NS));
    rendezvous();
    require(request_wait(&requests[0], now_ns() + PATIENCE_NS));
    require(requests[0].verdict.result == 0);
    held = requests[0].verdict;
    for (size_t i = 1; i < WAITERS; i++) {
        for (size_t later = i; later < WAITERS; later++)
            require(atomic_load(&requests[later].state) == UNDECIDED);
        user_release(&user, set, held.hold, one);
        require(request_wait(&requests[i], now_ns() + PATIENCE_NS));
        require(requests[i].verdict.result == 0 && requests[i].verdict.fence > held.fence);
        held = requests[i].verdict;
    }
    user_release(&user, set, held.hold, one);
    require(atomic_load(&user.losses) == 0);
    user.backend->set_close(set);
    user_close(&user);
    return 0;
}
