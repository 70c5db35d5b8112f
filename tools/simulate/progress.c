/* SPDX-License-Identifier: MIT */
/* A bar on the terminal. */
#include "progress.h"
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define BAR      30
#define DELAY_NS UINT64_C(500000000)
#define PAUSE_NS UINT64_C(100000000)

static uint64_t clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

struct progress progress_start(const char *what)
{
    struct progress progress = {.what = what};

    if (isatty(STDERR_FILENO)) {
        progress.started_ns = clock_ns();
        progress.shown_ns = progress.started_ns + DELAY_NS - PAUSE_NS;
    }
    return progress;
}

void progress_show(struct progress *progress, int done, uint64_t events)
{
    static const char full[] = "##############################";
    uint64_t now_ns;

    if (progress->started_ns == 0)
        return;
    now_ns = clock_ns();
    if (now_ns < progress->shown_ns + PAUSE_NS)
        return;
    progress->shown_ns = now_ns;
    progress->is_shown = true;
    if (done < 0)
        fprintf(stderr, "\r%s %" PRIu64 " events\033[K", progress->what, events);
    else
        fprintf(stderr, "\r%s [%.*s%*s] %3d%%  %" PRIu64 " events\033[K", progress->what,
                done * BAR / 1000, full, BAR - done * BAR / 1000, "", done / 10, events);
    fflush(stderr);
}

void progress_end(struct progress *progress)
{
    if (progress->is_shown)
        fputs("\r\033[K", stderr);
    progress->is_shown = false;
}
