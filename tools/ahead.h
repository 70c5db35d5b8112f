/* SPDX-License-Identifier: MIT */
/* Says on the terminal how many waiters are ahead while the process waits. */
#ifndef WEIR_TOOLS_AHEAD_H
#define WEIR_TOOLS_AHEAD_H

#include <pthread.h>
#include <stdbool.h>
#include <weir/weir.h>

struct ahead {
    weir_pool *pool;
    const char *title; /* prefix of the line */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ended; /* signals `is_ended` */
    bool is_ended;        /* under `lock` */
    bool is_running;      /* there is a thread */
    int width;            /* columns of the line that is shown, or 0 */
};

/* Starts a thread that shows a line once the process has waited for a moment, if the standard error
 * is a terminal, and as long as the process is in its foreground. Without memory for the thread
 * nothing is shown. */
void ahead_begin(struct ahead *ahead, weir_pool *pool, const char *title);

/* Ends the thread and erases the line. */
void ahead_end(struct ahead *ahead);

#endif
