/* SPDX-License-Identifier: MIT */
/* Says on the terminal how many waiters are ahead while the process waits. */
#ifndef WEIR_TOOLS_AHEAD_H
#define WEIR_TOOLS_AHEAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <weir/weir.h>

struct ahead {
    weir_pool *pool;
    const char *title; /* prefix of the line */
    pthread_t thread;
    int end_fd;      /* readable once the thread has to end */
    int signal_fd;   /* readable once a signal came that ends the process */
    sigset_t mask;   /* of the calling thread, before it blocked those signals */
    bool is_running; /* there is a thread */
    int width;       /* columns of the line that is shown, or 0 */
};

/*
 * Starts a thread that shows a line once the process has waited for a moment, if the standard error
 * is the terminal that controls the process, and as long as the process is in its foreground. The
 * thread erases the line also before a signal ends the process. Without memory or descriptors for
 * the thread nothing is shown.
 */
void ahead_begin(struct ahead *ahead, weir_pool *pool, const char *title);

/* Ends the thread and erases the line. A signal that came meanwhile ends the process here. */
void ahead_end(struct ahead *ahead);

#endif
