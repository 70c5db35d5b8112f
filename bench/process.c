/* SPDX-License-Identifier: MIT */
/*
 * Measures sets that processes share. Operations beside those on a set for threads: alone, and two
 * at a time. The time from a release in one process until the waiter in another runs, beside the
 * bare primitives that carry it. The time from the kill of a holder until the waiter has its units,
 * beside a bare pidfd.
 *
 *     process [--seconds S] [--rounds N] [--samples N] [--only TEXT]
 */
#include "process.h"

#include "lib/child.h"
#include "lib/tmpdir.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define AWAIT_MAX (30 * UINT64_C(1000000000))

static char directory[TMPDIR_SIZE];

const char *process_directory(void)
{
    return directory;
}

weir *process_open(const char *text, uint32_t flags)
{
    const struct weir_options options = {
        .size = sizeof(options), .text = text, .process_dir = directory, .flags = flags};

    return bench_instance(&options);
}

weir_pool *process_pool(weir *w, const char *name)
{
    weir_pool *pool;

    require(weir_pool_open(&pool, w, name, WEIR_WORKER_AUTO, NULL) == 0);
    return pool;
}

void *process_memory(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    require(memory != MAP_FAILED);
    return memory;
}

void process_memory_free(void *memory, size_t size)
{
    require(munmap(memory, size) == 0);
}

pid_t process_start(void (*run)(void *argument), void *argument)
{
    pid_t pid = child_fork();

    require(pid >= 0);
    if (pid > 0)
        return pid;
    bench_unpin();
    run(argument);
    _exit(0);
}

void process_end(pid_t pid, int signal)
{
    int status;

    require(waitpid(pid, &status, 0) == pid);
    if (signal)
        require(WIFSIGNALED(status) && WTERMSIG(status) == signal);
    else
        require(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void process_await(atomic_uint *word, unsigned value)
{
    uint64_t begin = 0;

    for (unsigned turn = 1; atomic_load_explicit(word, memory_order_acquire) != value; turn++) {
        bench_yield();
        if (turn % 65536 != 0)
            continue;
        begin = begin ? begin : clock_now();
        require(clock_now() - begin < AWAIT_MAX);
    }
}

void process_say(atomic_uint *word, unsigned value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

int main(int argc, char **argv)
{
    struct bench bench;

    bench_open(&bench, "process", 18, argc, argv);
    require(tmpdir_make(directory, "/dev/shm"));
    costs_open(&bench);
    hands_open(&bench);
    bench_pin(HERE);
    while (bench_round(&bench)) {
        costs_round(&bench);
        hands_round(&bench);
    }
    costs_close();
    hands_close();
    require(rmdir(directory) == 0); /* the sets were removed with their last users */
    return bench_close(&bench);
}
