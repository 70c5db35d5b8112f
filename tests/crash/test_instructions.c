/* SPDX-License-Identifier: MIT */
/*
 * Death at every machine instruction. A child runs the script under ptrace, one instruction at a
 * time. Whenever the memory that it shares has changed, it counts as dead. Its parent recovers it,
 * checks everything, and puts the memory back as it was, so that the same child can go on to its
 * next death. Needs no SCHED_POINT() in the right place.
 *
 *     test_instructions [STATES]
 *
 * STATES: from how many of the states of the set (free, full, two waiters, …) it starts; 2, or 5 in
 * the long form. Exits with 77 if ptrace is not allowed, and under ThreadSanitizer.
 */
#include "crash_world.h"
#include "system.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HOLDER, FIRST, SECOND, RESCUER };

static void prepare(uint32_t set, uint32_t state)
{
    world_restore();
    if (state)
        world_acquire(HOLDER, set, 0, state < 3 ? state : 2, MODE_WAIT);
    if (state >= 3)
        world_acquire(HOLDER, set, 1, 1, MODE_WAIT);
    if (state >= 4)
        world_acquire(HOLDER, set, 2, 1, MODE_WAIT);
}

static void recover_and_check(uint32_t set)
{
    world_recover(RESCUER, FIRST);
    world_check();
    for (uint32_t i = 0; i < RECORDS; i++)
        world_release(HOLDER, set, i, 0);
    world_check_empty();
    world_script(SECOND, set);
    world_check_empty();
}

static pid_t start(uint32_t set)
{
    pid_t pid = fork();

    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
            _exit(77);
        raise(SIGSTOP);
        world_script(FIRST, set);
        _exit(0);
    }
    return pid;
}

/* Returns the deaths tried, or -1 if ptrace is not allowed. */
static long run(uint32_t set, uint64_t *instructions)
{
    pid_t pid = start(set);
    long deaths = 0;
    int status;

    if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status))
        return -1;
    world_save();
    for (; ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0; ++*instructions) {
        waitpid(pid, &status, 0);
        if (WIFEXITED(status))
            return deaths;
        if (!world_changed())
            continue;
        world.where[2] = *instructions;
        world_save();
        recover_and_check(set);
        world_restore();
        deaths++;
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return -1;
}

int main(int argc, char **argv)
{
    uint32_t states = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 2;
    uint64_t instructions = 0;
    long deaths = 0;

    if (UNDER_TSAN) {
        printf("this takes for ever under ThreadSanitizer: SKIPPED\n");
        return 77;
    }
    world_make(INTERVAL_NS);
    world_save();
    world.what = "death at an instruction";
    for (uint32_t i = 0; i < states * SETS; i++) {
        uint32_t set = i % SETS, state = (4 + 2 * (i / SETS)) % 5;
        long more;

        world.where[0] = set;
        world.where[1] = state;
        prepare(set, state);
        more = run(set, &instructions);
        if (more < 0) {
            printf("ptrace is not allowed here: SKIPPED\n");
            return 77;
        }
        deaths += more;
        for (uint32_t a = 0; a < SETS; a++)
            for (uint32_t r = 0; r < RECORDS; r++)
                world_release(HOLDER, a, r, 0);
        world_check_empty();
        world_save();
    }
    printf("%lu instructions, %ld of them changed what is shared: %u failures\n", instructions,
           deaths, world.failures);
    deaths = deaths && !world.failures ? 0 : 1;
    world_free();
    return (int)deaths;
}
