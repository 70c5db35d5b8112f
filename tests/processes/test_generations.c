/* SPDX-License-Identifier: MIT */
/* Generations of a segment: those that use one which was removed by force, or has vanished with its
 * directory, go on beside those that came later, and what the dead leave in the directory goes. */
#include "lib/child.h"
#include "shared.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/segment.h>

#include <cmocka.h>

static const char slots[] = "version: 1\n"
                            "sets:\n"
                            "  s:\n"
                            "    backend: process\n"
                            "    limits:\n"
                            "      - { type: resource, key: slot, capacity: 2 }\n";

/* ---- the directory ---- */

static unsigned files_with(const char *text)
{
    DIR *entries = opendir(shared_directory());
    const struct dirent *entry;
    unsigned n = 0;

    require(entries);
    while ((entry = readdir(entries)))
        n += entry->d_name[0] != '.' && strstr(entry->d_name, text);
    closedir(entries);
    return n;
}

static unsigned doorbells(void)
{
    return files_with(".bell") + files_with(".new");
}

static void remove_by_force(void)
{
    const struct weir_options options = {.size = sizeof(options),
                                         .process_dir = shared_directory()};
    struct weir_error error;

    assert_int_equal(weir_segment_remove(&options, "s", WEIR_SEGMENT_FORCE, &error), 0);
}

static int setup(void **state)
{
    (void)state;
    shared_begin();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    shared_end();
    return 0;
}

/* ---- a generation ---- */

/* Two participants: one holds everything, the other waits in every way but by blocking. */
struct generation {
    weir *w[2];
    weir_pool *pools[2];
    weir_acquisition *held, *pending;
    weir_queue *queue;
};

static weir_acquisition *get(weir_pool *pool, uint64_t n)
{
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;

    assert_int_equal(
        weir_acquire(pool, shared_ask(&memory, "slot", n, 30000 * MS), &acquisition, NULL), 0);
    return acquisition;
}

static void begin(struct generation *generation)
{
    *generation = (struct generation){0};
    for (int i = 0; i < 2; i++) {
        generation->w[i] = shared_open(slots);
        generation->pools[i] = shared_pool(generation->w[i], "s");
    }
    generation->held = get(generation->pools[0], 2);
}

static void wait_for_it(struct generation *generation)
{
    struct shared_request memory;
    const struct weir_request *request = shared_ask(&memory, "slot", 1, WEIR_FOREVER);

    assert_int_equal(weir_submit(generation->pools[1], request, &generation->pending, NULL), 1);
    assert_int_equal(weir_queue_open(&generation->queue, generation->w[1], 4), 0);
    assert_int_equal(
        weir_queue_submit(generation->queue, generation->pools[1], request, 7, NULL, NULL), 0);
    assert_int_equal(shared_stats(generation->pools[0]).waiting, 2);
}

static bool is_pending(const struct generation *generation)
{
    struct weir_completion completion;

    assert_int_equal(weir_queue_reap(generation->queue, &completion, 1), 0);
    return weir_acquisition_result(generation->pending) == -EINPROGRESS;
}

/* A release there is a grant here, of this generation and of no other. */
static void hand_over(struct generation *generation)
{
    struct pollfd fd = {.fd = weir_acquisition_fd(generation->pending), .events = POLLIN};
    struct weir_completion completion;

    assert_true(is_pending(generation));
    assert_int_equal(weir_release(&generation->held), 0);
    assert_int_equal(poll(&fd, 1, 30000), 1);
    assert_int_equal(weir_acquisition_result(generation->pending), 0);
    fd.fd = weir_queue_fd(generation->queue);
    do
        assert_int_equal(poll(&fd, 1, 30000), 1);
    while (weir_queue_reap(generation->queue, &completion, 1) == 0);
    assert_int_equal(completion.user_data, 7);
    assert_int_equal(completion.result, 0);
    assert_int_equal(weir_release(&completion.acquisition), 0);
    assert_int_equal(weir_release(&generation->pending), 0);
    assert_int_equal(shared_held(generation->pools[0], 0), 0);
}

static void end(struct generation *generation)
{
    weir_release(&generation->held);
    if (generation->queue)
        assert_null(weir_queue_close(generation->queue));
    for (int i = 0; i < 2; i++) {
        weir_pool_close(generation->pools[i]);
        weir_close(generation->w[i]);
    }
}

enum { GENERATIONS = 3, DOORBELLS = 2 /* of each: of the timer and of the queue */ };

/* Removed by force while it is in use, and made again, and that again. */
static void all_generations_are_served(void **state)
{
    struct generation generations[GENERATIONS];

    (void)state;
    for (unsigned i = 0; i < GENERATIONS; i++) {
        begin(&generations[i]);
        wait_for_it(&generations[i]);
        assert_true(doorbells() >= DOORBELLS * (i + 1)); /* no generation replaces another's */
        remove_by_force();
        assert_int_equal(files_with(".weir"), 0);
        assert_true(doorbells() >= DOORBELLS * (i + 1));
    }
    for (unsigned i = 0; i < GENERATIONS; i++) {
        hand_over(&generations[(i + 1) % GENERATIONS]);
        for (unsigned k = 0; k < GENERATIONS; k++)
            assert_true(!generations[k].pending || is_pending(&generations[k]));
    }
    for (unsigned i = 0; i < GENERATIONS; i++)
        end(&generations[i]);
    assert_true(shared_is_empty());
}

/* The first wait of the old users comes after the removal, and after that of the new ones. */
static void old_users_begin_to_wait_later(void **state)
{
    struct generation old, new;

    (void)state;
    begin(&old);
    remove_by_force();
    begin(&new);
    wait_for_it(&new);
    wait_for_it(&old);
    hand_over(&new);
    hand_over(&old);
    end(&old);
    end(&new);
    assert_int_equal(doorbells(), 0);
}

/* ---- the dead ---- */

struct waiter {
    struct shared_pipe ready;
};

static void wait_to_be_killed(void *argument)
{
    struct waiter *waiter = argument;
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;

    require(weir_submit(pool, shared_ask(&memory, "slot", 2, WEIR_FOREVER), &acquisition, NULL) >=
            0);
    shared_tell(&waiter->ready);
    for (;;)
        pause();
}

static pid_t start_waiter(struct waiter *waiter)
{
    pid_t pid;

    waiter->ready = shared_pipe();
    pid = shared_fork(wait_to_be_killed, waiter);
    shared_hear(&waiter->ready);
    shared_pipe_close(&waiter->ready);
    return pid;
}

static void kill_waiter(pid_t pid)
{
    require(kill(pid, SIGKILL) == 0);
    shared_wait(pid, SIGKILL);
}

/* After the removal, too. */
static void old_users_clean_up_after_their_dead(void **state)
{
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    weir_acquisition *acquisition = get(pool, 1);
    struct waiter waiter;
    pid_t pid = start_waiter(&waiter);
    weir *later;

    (void)state;
    remove_by_force();
    later = shared_open(slots);
    assert_int_equal(doorbells(), 1);
    assert_int_equal(shared_stats(pool).waiting, 1);
    kill_waiter(pid);
    assert_int_equal(shared_stats(pool).waiting, 0);
    assert_int_equal(doorbells(), 0);
    weir_release(&acquisition);
    weir_pool_close(pool);
    weir_close(w);
    weir_close(later);
}

/* None is there to clean up, in either generation. */
static void a_later_user_sweeps(void **state)
{
    struct waiter waiter;

    (void)state;
    for (int i = 0; i < 3; i++) {
        weir *w = shared_open(slots);
        weir_pool *pool = shared_pool(w, "s");
        weir_acquisition *acquisition = get(pool, 1);
        pid_t pid = start_waiter(&waiter);

        if (i == 1)
            remove_by_force();
        weir_release(&acquisition);
        weir_pool_close(pool);
        weir_close(w);
        kill_waiter(pid);
        assert_int_equal(doorbells(), 1);
        if (i < 2)
            weir_close(shared_open(slots));
        else
            remove_by_force();
        assert_int_equal(doorbells(), 0);
    }
}

/* Takes descriptors until there are no more. */
static void use_up(void)
{
    const struct rlimit few = {24, 24};

    require(setrlimit(RLIMIT_NOFILE, &few) == 0);
    while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0)
        ;
}

struct cleaner {
    struct shared_pipe ready, dead, clean;
    uint64_t rounds;
};

/* Cleans up without a descriptor, by asking for what it cannot have. */
static void clean_up(void *argument)
{
    struct cleaner *cleaner = argument;
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    weir_acquisition *held = NULL;
    struct shared_request memory;

    require(weir_acquire(pool, shared_ask(&memory, "slot", 1, 0), &held, NULL) == 0);
    use_up();
    shared_tell(&cleaner->ready);
    for (uint64_t i = 0; i < cleaner->rounds; i++) {
        shared_hear(&cleaner->dead);
        while (shared_stats(pool).waiting)
            pause_ns(MS / 10);
        shared_tell(&cleaner->clean);
    }
    shared_hear(&cleaner->dead);
    weir_release(&held);
    weir_pool_close(pool);
    weir_close(w);
}

static void with_few_descriptors_none_stays(void **state)
{
    enum { AT_ONCE = 5 };
    struct cleaner cleaner = {shared_pipe(), shared_pipe(), shared_pipe(),
                              number_from("WEIR_ROUNDS", 30)};
    pid_t pid = shared_fork(clean_up, &cleaner), killed[AT_ONCE];
    struct waiter waiter;

    (void)state;
    shared_hear(&cleaner.ready);
    for (uint64_t i = 0; i < cleaner.rounds; i++) {
        for (int k = 0; k < AT_ONCE; k++)
            killed[k] = start_waiter(&waiter);
        assert_int_equal(doorbells(), AT_ONCE);
        for (int k = 0; k < AT_ONCE; k++)
            kill_waiter(killed[k]);
        shared_tell(&cleaner.dead);
        shared_hear(&cleaner.clean);
        assert_int_equal(doorbells(), 0);
    }
    shared_tell(&cleaner.dead);
    shared_wait(pid, 0);
    weir_close(shared_open(slots));
    assert_int_equal(doorbells(), 0);
    shared_pipe_close(&cleaner.ready);
    shared_pipe_close(&cleaner.dead);
    shared_pipe_close(&cleaner.clean);
}

#define generation_test(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        generation_test(all_generations_are_served),
        generation_test(old_users_begin_to_wait_later),
        generation_test(old_users_clean_up_after_their_dead),
        generation_test(a_later_user_sweeps),
        generation_test(with_few_descriptors_none_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
