/* SPDX-License-Identifier: MIT */
/* Threads of the library. */
#include "os/os.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

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
    struct os_thread *thread = os_alloc(1, sizeof *thread);
    sigset_t all, before;
    int r;

    if (thread == NULL)
        return -ENOMEM;
    thread->run = run;
    thread->argument = argument;
    strncpy(thread->name, name, sizeof thread->name - 1);
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
    if (thread == NULL)
        return;
    pthread_join(thread->thread, NULL);
    os_free(thread);
}

uint32_t os_thread_id(void)
{
    return (uint32_t)gettid();
}
