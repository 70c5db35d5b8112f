/* SPDX-License-Identifier: MIT */
#include "shared.h"
#include "lib/child.h"
#include "lib/tmpdir.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN_MAX 64

static char directory[TMPDIR_SIZE];
static pid_t children[CHILDREN_MAX]; /* that were not waited for; 0: none */

void shared_begin(void)
{
    require(tmpdir_make(directory, NULL));
}

void shared_end(void)
{
    require(tmpdir_remove(directory));
}

int shared_setup(void **state)
{
    (void)state;
    shared_begin();
    return 0;
}

int shared_teardown(void **state)
{
    (void)state;
    shared_end();
    return 0;
}

bool shared_is_empty(void)
{
    DIR *entries = opendir(directory);
    struct dirent *entry;
    bool empty = true;

    require(entries);
    while ((entry = readdir(entries)))
        empty &= entry->d_name[0] == '.';
    closedir(entries);
    return empty;
}

const char *shared_directory(void)
{
    return directory;
}

int shared_try_open(weir **ret, const char *text, struct weir_error *reterr)
{
    const struct weir_options options = {
        .size = sizeof(options), .text = text, .process_dir = directory};

    return weir_open(ret, &options, reterr);
}

weir *shared_open(const char *text)
{
    struct weir_error error = {0};
    weir *w = NULL;

    if (shared_try_open(&w, text, &error) < 0) {
        fprintf(stderr, "weir_open: %d: %s\n", error.code, error.message);
        require(!"weir_open");
    }
    return w;
}

weir_pool *shared_pool(weir *w, const char *name)
{
    weir_pool *pool = NULL;

    require(weir_pool_open(&pool, w, name, WEIR_WORKER_AUTO, NULL) == 0);
    return pool;
}

const struct weir_request *shared_ask(struct shared_request *memory, const char *key, uint64_t n,
                                      uint64_t timeout_ns)
{
    *memory = (struct shared_request){.amounts = {{key, n}}};
    memory->request = (struct weir_request){.size = sizeof(memory->request),
                                            .amounts = memory->amounts,
                                            .amounts_n = 1,
                                            .timeout_ns = timeout_ns};
    return &memory->request;
}

struct weir_set_stats shared_stats(weir_pool *pool)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};

    require(weir_set_stats(weir_pool_set(pool, 0), &stats, NULL, 0) >= 0);
    return stats;
}

uint64_t shared_held(weir_pool *pool, size_t limit)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[8];

    require(limit < 8);
    require(weir_set_stats(weir_pool_set(pool, 0), &stats, limits, 8) > (int)limit);
    return limits[limit].held;
}

pid_t shared_fork(void (*body)(void *argument), void *argument)
{
    pid_t pid = child_fork();

    require(pid >= 0);
    for (size_t i = 0; i < CHILDREN_MAX; i++) {
        if (pid == 0)
            children[i] = 0; /* those of its parent */
        else if (children[i] == 0) {
            children[i] = pid;
            break;
        }
    }
    if (pid > 0)
        return pid;
    alarm(300);               /* no child waits for ever */
    signal(SIGSEGV, SIG_DFL); /* a crash is a crash, not a test that failed here */
    signal(SIGBUS, SIG_DFL);
    signal(SIGILL, SIG_DFL);
    signal(SIGFPE, SIG_DFL);
    body(argument);
    fflush(NULL);
    _exit(0);
}

/* Forgets a child that was waited for. Returns whether another one has ended as no test asks: what
 * a test kills dies of SIGKILL. */
static bool shared_has_failed(pid_t *child)
{
    siginfo_t end = {0};

    if (waitid(P_PID, (id_t)*child, &end, WEXITED | WNOHANG | WNOWAIT) < 0)
        *child = 0;
    if (end.si_pid == 0)
        return false;
    return end.si_code == CLD_EXITED ? end.si_status != 0 : end.si_status != SIGKILL;
}

void shared_check_children(void)
{
    for (size_t i = 0; i < CHILDREN_MAX; i++)
        require(!children[i] || !shared_has_failed(&children[i]));
}

void shared_pause(void)
{
    shared_check_children();
    pause_ns(MS);
}

void shared_wait(pid_t pid, int signal)
{
    int status = child_wait(pid);

    require(signal ? child_was_killed(status, signal) : child_exited(status, 0));
}

struct shared_pipe shared_pipe(void)
{
    struct shared_pipe made;

    require(pipe(made.fds) == 0);
    return made;
}

void shared_tell(const struct shared_pipe *pipe)
{
    require(write(pipe->fds[1], "!", 1) == 1);
}

/* The thread, or the process, that was to report may have died of what is tested. That is to be a
 * failure, and not a test that waits for ever. */
void shared_hear(const struct shared_pipe *pipe)
{
    enum { PATIENCE_S = 300 };
    struct pollfd fd = {pipe->fds[0], POLLIN, 0};
    int heard = 0;
    char byte;

    for (int s = 0; heard == 0; s++) {
        require(s < PATIENCE_S);
        if (s > 0)
            shared_check_children();
        heard = poll(&fd, 1, 1000);
    }
    require(heard == 1);
    require(read(pipe->fds[0], &byte, 1) == 1);
}

void shared_pipe_close(struct shared_pipe *pipe)
{
    close(pipe->fds[0]);
    close(pipe->fds[1]);
}
