/* SPDX-License-Identifier: MIT */
/*
 * A process without its first thread is alive, and one of many: it opens and makes sets, waits,
 * is granted, and holds while others look at it. What /proc/self says of such a process is what is
 * left of that thread: no namespaces, no descriptors, and the state of a zombie.
 */
#include "shared.h"

#include "lib/child.h"
#include "lib/tmpdir.h"
#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#define ORDINARY 65534u

static const char slots[] = "version: 1\n"
                            "sets:\n"
                            "  s:\n"
                            "    backend: process\n"
                            "    limits:\n"
                            "      - { type: resource, key: slot, capacity: 1 }\n";

static struct shared_pipe opened, holds, waits, ends;
static pid_t parent;

/* Returns the state letter of the first thread of the calling process. */
static char first_thread_state(void)
{
    char line[512] = "", *end;
    FILE *file = fopen("/proc/self/stat", "r");

    require(file && fgets(line, sizeof(line), file));
    fclose(file);
    end = strrchr(line, ')');
    require(end);
    return end[2];
}

static weir_acquisition *acquire(weir_pool *pool)
{
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;
    int r = weir_acquire(pool, shared_ask(&memory, "slot", 1, 30000 * MS), &acquisition, NULL);

    if (r < 0)
        fprintf(stderr, "weir_acquire: %d\n", r);
    require(r == 0);
    return acquisition;
}

/* Opens the set, acquires twice, and stays. */
static void *second_thread(void *unused)
{
    weir_acquisition *acquisition;
    weir_pool *pool;
    weir *w;

    child_ends_with(parent);
    while (first_thread_state() != 'Z')
        pause_ns(MS);
    w = shared_open(slots);
    pool = shared_pool(w, "s");
    shared_tell(&opened);
    acquisition = acquire(pool);
    shared_tell(&holds);
    shared_hear(&waits);
    require(weir_release(&acquisition) == 0);
    acquisition = acquire(pool);
    shared_tell(&holds);
    shared_hear(&ends);
    require(weir_release(&acquisition) == 0);
    weir_pool_close(pool);
    weir_close(w);
    fflush(NULL);
    _exit(unused !=
          NULL); /* what the first thread had of the test's memory is gone with its stack */
}

static void run_without_first_thread(void *unused)
{
    pthread_t thread;

    require(pthread_create(&thread, NULL, second_thread, unused) == 0);
    pthread_exit(NULL);
}

static pid_t start_child(void)
{
    parent = getpid();
    opened = shared_pipe();
    holds = shared_pipe();
    waits = shared_pipe();
    ends = shared_pipe();
    return shared_fork(run_without_first_thread, NULL);
}

static void close_pipes(void)
{
    shared_pipe_close(&opened);
    shared_pipe_close(&holds);
    shared_pipe_close(&waits);
    shared_pipe_close(&ends);
}

static int try_it(weir_pool *pool)
{
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;
    int r = weir_try_acquire(pool, shared_ask(&memory, "slot", 1, 0), &acquisition, NULL);

    if (r == 0)
        weir_release(&acquisition);
    return r;
}

/* The child holds. Looks for the dead again and again, by each call that does. */
static void look_at_it(weir_pool *pool, pid_t child)
{
    for (int i = 0; i < 20; i++) {
        struct weir_holder holder;

        require(try_it(pool) == -EAGAIN);
        require(shared_held(pool, 0) == 1);
        require(weir_set_holders(weir_pool_set(pool, 0), &holder, 1) >= 1);
        require(holder.process == (uint32_t)child);
        pause_ns(2 * MS);
    }
    require(kill(child, 0) == 0);
}

/* It waits for its turn, is granted by another process, holds, and what it holds comes back. */
static void share_with(pid_t child, weir_pool *pool, weir_acquisition *held)
{
    struct shared_request memory;
    weir_acquisition *waiting = NULL;
    struct pollfd fd = {.events = POLLIN};

    if (held) {
        while (shared_stats(pool).waiting == 0)
            pause_ns(MS);
        require(weir_release(&held) == 0);
    }
    shared_hear(&holds);
    look_at_it(pool, child);
    require(weir_submit(pool, shared_ask(&memory, "slot", 1, 0), &waiting, NULL) == 1);
    fd.fd = weir_acquisition_fd(waiting);
    require(poll(&fd, 1, 100) == 0); /* it is watched, and not taken for dead */
    shared_tell(&waits);
    require(poll(&fd, 1, 20000) == 1 && weir_acquisition_result(waiting) == 0);
    require(weir_release(&waiting) == 0); /* it waits again behind this one */
    shared_hear(&holds);
    look_at_it(pool, child);
    require(weir_submit(pool, shared_ask(&memory, "slot", 1, 0), &waiting, NULL) == 1);
    fd.fd = weir_acquisition_fd(waiting);
    require(kill(child, SIGKILL) == 0);
    require(poll(&fd, 1, 20000) == 1 && weir_acquisition_result(waiting) == 0);
    require(weir_release(&waiting) == 0);
    shared_wait(child, SIGKILL);
}

/* The set is there already. */
static void scenario_joins(void)
{
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    weir_acquisition *held = acquire(pool);
    pid_t child = start_child();

    shared_hear(&opened);
    share_with(child, pool, held);
    weir_pool_close(pool);
    weir_close(w);
    close_pipes();
}

/* The set is the child's, and others join it. */
static void scenario_makes(void)
{
    pid_t child = start_child();
    weir_pool *pool;
    weir *w;

    shared_hear(&opened);
    w = shared_open(slots);
    pool = shared_pool(w, "s");
    share_with(child, pool, NULL);
    weir_pool_close(pool);
    weir_close(w);
    close_pipes();
}

/* Its instance is closed by the thread that is left. */
static void scenario_closes(void)
{
    pid_t child = start_child();

    shared_hear(&opened);
    shared_hear(&holds);
    shared_tell(&waits);
    shared_hear(&holds);
    shared_tell(&ends);
    shared_wait(child, 0);
    close_pipes();
}

static void run_scenarios(void *unused)
{
    (void)unused;
    shared_begin();
    scenario_joins();
    shared_end();
    shared_begin();
    scenario_makes();
    scenario_closes();
    shared_end();
}

/* ---- tests ---- */

static void it_shares_like_any_other(void **state)
{
    (void)state;
    run_scenarios(NULL);
}

/* Whether this process could become an ordinary user, that may link no file by its descriptor. */
static bool become_ordinary(void)
{
    return setgroups(0, NULL) == 0 && setresgid(ORDINARY, ORDINARY, ORDINARY) == 0 &&
           setresuid(ORDINARY, ORDINARY, ORDINARY) == 0;
}

static void run_as_ordinary(void *unused)
{
    char path[TMPDIR_SIZE];

    if (!become_ordinary() || !tmpdir_make(path, NULL) || !tmpdir_remove(path)) {
        fprintf(stderr, "skipped: needs to be root, and a directory for any user\n");
        return;
    }
    prctl(PR_SET_DUMPABLE, 1);
    run_scenarios(unused);
}

static void an_ordinary_users_does_too(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: the test before was one of an ordinary user\n");
        skip();
    }
    shared_wait(shared_fork(run_as_ordinary, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_shares_like_any_other),
        cmocka_unit_test(an_ordinary_users_does_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
