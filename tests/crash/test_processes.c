/* SPDX-License-Identifier: MIT */
/*
 * Real processes on shared memory: killed or stopped at every step, and killed at random while
 * several of them work as fast as they can.
 *
 *     test_processes [STRIDE [KILLS [SEED]]]
 *
 * STRIDE: every STRIDE-th step; 1 in the long form. KILLS: at random; 10000 or more in the long
 * form.
 */
#include "crash_world.h"
#include "system.h"
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>

#include <cmocka.h>

enum { HOLDER, FIRST, SECOND, RESCUER, SECOND_RESCUER, WORKERS = 4 };
enum { STATES = 4 };

static uint64_t stride = 7, kills = 400, seed = 88172645463325252u, rounds;

static void prepare(uint32_t set, uint32_t state)
{
    world_restore();
    if (state)
        world_acquire(HOLDER, set, 0, state < 3 ? state : 2, MODE_WAIT);
    for (uint32_t i = 1; state == 3 && i < 3; i++)
        world_acquire(HOLDER, set, i, 1, MODE_WAIT);
}

static void finish(uint32_t set)
{
    rounds++;
    world_check();
    for (uint32_t i = 0; i < RECORDS; i++)
        world_release(HOLDER, set, i, 0);
    world_check_empty();
    world_check_log();
}

/* A child that is sent `signal` at its n-th step; of the script, or of recovering FIRST. */
static pid_t spawn(uint32_t thread, uint32_t set, bool recovers, uint64_t n, int signal)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        system_signal_at(n, signal);
        if (recovers)
            world_recover(thread, FIRST);
        else
            world_script(thread, set);
        _exit(0);
    }
    return pid;
}

static bool stopped_or_killed(pid_t pid)
{
    int status;

    assert_true(waitpid(pid, &status, WUNTRACED) == pid);
    if (WIFEXITED(status))
        expect(WEXITSTATUS(status) == 0, "a child failed");
    return !WIFEXITED(status);
}

/* Calls `round` for each step until it says that the script was at its end before. */
static void each_step(const char *what, bool (*round)(uint32_t set, uint64_t n))
{
    rounds = 0;
    world.what = what;
    for (uint32_t set = 0; set < SETS; set++)
        for (uint32_t state = 0; state < STATES; state++)
            for (uint64_t n = 1 + state % stride;; n += stride) {
                world.where[0] = set;
                world.where[1] = state;
                world.where[2] = n;
                prepare(set, state);
                if (!round(set, n))
                    break;
            }
    printf("%s: %lu rounds\n", what, rounds);
    assert_int_equal(world.failures, 0);
}

static bool round_kill(uint32_t set, uint64_t n)
{
    bool killed = stopped_or_killed(spawn(FIRST, set, false, n, SIGKILL));

    world_recover(RESCUER, FIRST);
    finish(set);
    return killed;
}

static void test_kill_at_every_step(void **state)
{
    (void)state;
    each_step("kill -9 at a step", round_kill);
}

static bool round_stop(uint32_t set, uint64_t n)
{
    pid_t pid = spawn(FIRST, set, false, n, SIGSTOP);
    bool stopped = stopped_or_killed(pid);

    expect(!stopped_or_killed(spawn(SECOND, set, false, 0, 0)), "held up by a stopped process");
    if (stopped) {
        kill(pid, SIGCONT);
        expect(!stopped_or_killed(pid), "a stopped process did not end");
    }
    finish(set);
    return stopped;
}

static void test_stop_at_every_step(void **state)
{
    (void)state;
    each_step("SIGSTOP at a step", round_stop);
}

static bool round_rescuer(uint32_t set, uint64_t n)
{
    bool killed = stopped_or_killed(spawn(FIRST, set, false, n, SIGKILL));

    stopped_or_killed(spawn(RESCUER, set, true, 1 + n * 17 % 150, SIGKILL));
    world_recover(SECOND_RESCUER, FIRST);
    world_recover(SECOND_RESCUER, RESCUER);
    finish(set);
    return killed;
}

static void test_rescuer_killed(void **state)
{
    (void)state;
    each_step("kill -9 of a rescuer", round_rescuer);
}

/* ---- at random ---- */

static pid_t start_worker(uint32_t thread)
{
    uint64_t random = random_next(&seed);
    pid_t pid = fork();

    assert_true(pid >= 0);
    while (pid == 0)
        world_turn(thread, &random);
    return pid;
}

/* Two rescuers at once, one of which may be killed, too. */
static void recover(uint32_t thread)
{
    pid_t rescuer = fork();

    if (rescuer == 0) {
        world_recover(RESCUER + WORKERS, thread);
        _exit(0);
    }
    world_recover(HOLDER, thread);
    kill(rescuer, SIGKILL);
    waitpid(rescuer, NULL, 0);
    world_recover(HOLDER, RESCUER + WORKERS);
}

static void kill_worker(pid_t pid, uint32_t thread)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    recover(thread);
}

static void test_random_kills(void **state)
{
    pid_t pids[1 + WORKERS] = {0};

    (void)state;
    world_restore();
    clock_is_real = true;
    world.what = "random kills";
    for (uint32_t a = 1; a <= WORKERS; a++)
        pids[a] = start_worker(a);
    for (uint64_t i = 0; i < kills; i++) {
        uint32_t a = (uint32_t)(1 + random_below(&seed, WORKERS));

        usleep((useconds_t)random_below(&seed, 3000));
        kill_worker(pids[a], a);
        pids[a] = start_worker(a);
    }
    for (uint32_t a = 1; a <= WORKERS; a++)
        kill_worker(pids[a], a);
    printf("%lu kills, %lu turns, %lu grants logged\n", kills, atomic_load(&shared->turns),
           atomic_load(&shared->logged));
    world_check_empty();
    world_check_log();
    assert_int_equal(atomic_load(&shared->overslept), 0);
    assert_int_equal(world.failures, 0);
    clock_is_real = false;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill_at_every_step),
        cmocka_unit_test(test_stop_at_every_step),
        cmocka_unit_test(test_rescuer_killed),
        cmocka_unit_test(test_random_kills),
    };
    int failed;

    stride = argc > 1 ? strtoull(argv[1], NULL, 10) : effort_stride(stride);
    kills = argc > 2 ? strtoull(argv[2], NULL, 10) : effort_from("WEIR_ROUNDS", kills);
    if (argc > 3)
        seed = strtoull(argv[3], NULL, 10);
    stride = stride ? stride : 1;
    world_make(100000);
    world_save();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    world_free();
    return failed;
}
