/* SPDX-License-Identifier: MIT */
/* Processes and threads, the machine's identity, the environment and random numbers. */
#include "os/os_internal.h"
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

uint32_t os_process_id(void)
{
    return (uint32_t)getpid();
}

int os_process_exists(uint32_t pid)
{
    return os_result(kill((pid_t)pid, 0));
}

/* The line is `pid (name) state parent ...`. The name may have any bytes, what follows has no
 * parenthesis. */
int os_process_parent(uint32_t pid, uint32_t *ret)
{
    char path[32], text[256];
    const char *name_end;
    int n;

    snprintf(path, sizeof(path), "/proc/%" PRIu32 "/stat", pid);
    n = os_file_read_part(path, 0, text, sizeof(text) - 1);
    if (n < 0)
        return n;
    text[n] = '\0';
    name_end = strrchr(text, ')');
    return name_end && sscanf(name_end + 1, " %*c %" SCNu32, ret) == 1 ? 0 : -EIO;
}

int os_pidfd_open(uint32_t pid)
{
    return os_result(syscall(SYS_pidfd_open, (pid_t)pid, 0)); /* always close-on-exec */
}

int os_boot_id(unsigned char ret[16])
{
    char text[40] = "";
    unsigned char id[16];
    int n = os_file_read_part("/proc/sys/kernel/random/boot_id", 0, text, sizeof(text) - 1), used;
    const char *at = text;

    if (n < 0)
        return n;
    for (size_t i = 0; i < sizeof(id); i++, at += used)
        if (sscanf(at, "%*[-]%2hhx%n", &id[i], &used) != 1 &&
            sscanf(at, "%2hhx%n", &id[i], &used) != 1)
            return -EIO;
    memcpy(ret, id, sizeof(id));
    return 0;
}

/* Of the calling thread: a first thread that has ended is listed still, but is in no namespace. A
 * kernel without such namespaces does not list the link, either. */
int os_namespace_id(const char *kind, uint64_t *ret)
{
    char path[48];
    struct stat found;
    int r;

    snprintf(path, sizeof(path), "/proc/thread-self/ns/%s", kind);
    r = os_result(stat(path, &found));
    if (r == 0)
        *ret = found.st_ino;
    if (r != -ENOENT || lstat(path, &found) == 0 || stat("/proc/thread-self/ns", &found) < 0)
        return r;
    *ret = 0;
    return 0;
}

const char *os_getenv(const char *name)
{
    return secure_getenv(name);
}

/* A signal that was pending before stays so. Not a cancellation point. */
void os_stderr_write(const char *text, size_t length)
{
    const struct timespec at_once = {0};
    sigset_t broken, pending, before;

    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken, &before);
    sigpending(&pending);
    if (os_write(STDERR_FILENO, text, length) == -EPIPE && sigismember(&pending, SIGPIPE) == 0)
        syscall(SYS_rt_sigtimedwait, &broken, NULL, &at_once, sizeof(uint64_t));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

uint32_t os_user_id(void)
{
    return (uint32_t)geteuid();
}

int os_random_secret(uint64_t *ret, size_t n)
{
    int r;

    OS_RETRY(r, getrandom(ret, n * sizeof(*ret), 0)); /* whole, for as few as these */
    return r < 0 ? r : 0;
}

uint64_t os_random(void)
{
    uint64_t random;

    if (os_random_secret(&random, 1) == 0)
        return random;
    random = os_clock_read(CLOCK_REALTIME) * UINT64_C(0x9e3779b97f4a7c15);
    return random ^ os_clock_read(CLOCK_MONOTONIC) ^ ((uint64_t)getpid() << 32);
}

/* ---- threads ---- */

struct os_thread {
    pthread_t thread;
    void (*run)(void *);
    void *argument;
    char name[16]; /* size: the kernel's maximum */
};

static void *os_thread_main(void *argument)
{
    struct os_thread *thread = argument;

    pthread_setname_np(pthread_self(), thread->name);
    thread->run(thread->argument);
    return NULL;
}

int os_thread_start(struct os_thread **ret, void (*run)(void *), void *argument, const char *name)
{
    struct os_thread *thread = os_alloc(1, sizeof(*thread));
    sigset_t all, before;
    int r;

    if (!thread)
        return -ENOMEM;
    thread->run = run;
    thread->argument = argument;
    strncpy(thread->name, name, sizeof(thread->name) - 1);
    /* The new thread inherits the mask, so that no signal can reach it at any time. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&thread->thread, NULL, os_thread_main, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0) {
        os_free(thread);
        return -r;
    }
    *ret = thread;
    return 0;
}

void os_thread_join(struct os_thread *thread)
{
    if (!thread)
        return;
    pthread_join(thread->thread, NULL);
    os_free(thread);
}

uint32_t os_thread_id(void)
{
    return (uint32_t)gettid();
}

void os_thread_be_ordinary(void)
{
    const struct sched_param ordinary = {.sched_priority = 0};

    (void)pthread_setschedparam(pthread_self(), SCHED_OTHER, &ordinary);
}

uint64_t os_thread_cpu_ns(void)
{
    return os_clock_read(CLOCK_THREAD_CPUTIME_ID);
}
