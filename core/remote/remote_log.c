/* SPDX-License-Identifier: MIT */
/* Lines for the program's log: see remote_log.h. */
#include "remote/remote_log.h"

#include "base/error.h"
#include "os/os.h"
#include <stdarg.h>
#include <stdio.h>

void remote_log_init(struct remote_log *log, const struct log_sink *sink)
{
    log->sink = sink;
    pthread_mutex_init(&log->lock, NULL);
}

void remote_log_free(struct remote_log *log)
{
    os_thread_join(log->thread);
    remote_log_write(log);
    pthread_mutex_destroy(&log->lock);
}

void remote_log_add(struct remote_log *log, enum weir_log_level level, const char *format, ...)
{
    struct remote_line *line;
    va_list arguments;
    uint32_t n;

    if (!log->sink->write || level > log->sink->level_max)
        return;
    pthread_mutex_lock(&log->lock);
    n = atomic_load_explicit(&log->lines_n, memory_order_relaxed);
    if (n < REMOTE_LINES_MAX) {
        line = &log->lines[(log->first + n) % REMOTE_LINES_MAX];
        line->level = level;
        va_start(arguments, format);
        vsnprintf(line->message, sizeof(line->message), format, arguments);
        va_end(arguments);
        atomic_store_explicit(&log->lines_n, n + 1, memory_order_relaxed);
    } else {
        log->dropped_n++;
    }
    pthread_mutex_unlock(&log->lock);
}

/* Takes the first line out. Returns false if there is none. With the lock. */
static bool remote_log_take(struct remote_log *log, struct remote_line *ret)
{
    uint32_t n = atomic_load_explicit(&log->lines_n, memory_order_relaxed);

    if (n > 0) {
        *ret = log->lines[log->first];
        log->first = (log->first + 1) % REMOTE_LINES_MAX;
        atomic_store_explicit(&log->lines_n, n - 1, memory_order_relaxed);
        return true;
    }
    if (!log->dropped_n)
        return false;
    ret->level = WEIR_LOG_WARNING;
    snprintf(ret->message, sizeof(ret->message), "%u lines about backends were left out",
             log->dropped_n);
    log->dropped_n = 0;
    return true;
}

/* Writes the lines as the thread that does. */
static void remote_log_write_lines(void *of)
{
    struct remote_log *log = of;
    struct remote_line line;

    pthread_mutex_lock(&log->lock);
    while (remote_log_take(log, &line)) {
        pthread_mutex_unlock(&log->lock);
        log_write(log->sink, line.level, "%s", line.message);
        pthread_mutex_lock(&log->lock);
    }
    log->is_writing = false;
    pthread_mutex_unlock(&log->lock);
}

/* Becomes the thread that writes. Returns false if there is one. */
static bool remote_log_claim(struct remote_log *log)
{
    bool was_writing;

    pthread_mutex_lock(&log->lock);
    was_writing = log->is_writing;
    log->is_writing = true;
    pthread_mutex_unlock(&log->lock);
    return !was_writing;
}

void remote_log_write_all(struct remote_log *log)
{
    if (remote_log_claim(log))
        remote_log_write_lines(log);
}

void remote_log_write_apart(struct remote_log *log)
{
    if (!atomic_load_explicit(&log->lines_n, memory_order_relaxed) || !remote_log_claim(log))
        return;
    os_thread_join(log->thread); /* it has written all */
    log->thread = NULL;
    if (os_thread_start(&log->thread, remote_log_write_lines, log, "weir-log") == 0)
        return;
    pthread_mutex_lock(&log->lock);
    log->is_writing = false; /* the next thread does */
    pthread_mutex_unlock(&log->lock);
}
