/* SPDX-License-Identifier: MIT */
/* Threads. */
#include "os/os.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

struct sys_thread {
    pthread_t thread;
    void (*run)(void *);
    void *argument;
    char name[16]; /* the kernel's bound */
};

static void *thread_main(void *argument)
{
    struct sys_thread *thread = argument;

    pthread_setname_np(pthread_self(), thread->name);
    thread->run(thread->argument);
    return NULL;
}

int sys_thread_start(struct sys_thread **ret, void (*run)(void *), void *argument, const char *name)
{
    struct sys_thread *thread = sys_alloc(1, sizeof *thread);
    sigset_t all, before;
    int r;

    if (thread == NULL)
        return -ENOMEM;
    thread->run = run;
    thread->argument = argument;
    strncpy(thread->name, name, sizeof thread->name - 1);
    /* A thread inherits the mask: this way there is no moment in which it can get a signal. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&thread->thread, NULL, thread_main, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0) {
        sys_free(thread);
        return -r;
    }
    *ret = thread;
    return 0;
}

void sys_thread_join(struct sys_thread *thread)
{
    if (thread == NULL)
        return;
    pthread_join(thread->thread, NULL);
    sys_free(thread);
}

uint32_t sys_thread_id(void)
{
    return (uint32_t)gettid();
}
