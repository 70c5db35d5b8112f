/* SPDX-License-Identifier: MIT */
/*
 * Lines for the program's log. What an engine says is reported with locks of its backend held, and
 * by the thread that keeps the connection. The program's callback may call weir, or block. So lines
 * are kept until a thread of the program that has asked something is through with that, or a thread
 * of their own writes them.
 */
#ifndef WEIR_CORE_REMOTE_REMOTE_LOG_H
#define WEIR_CORE_REMOTE_REMOTE_LOG_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <weir/instance.h>

#define REMOTE_LINES_MAX 16 /* that are kept; of more the first ones */
#define REMOTE_LINE_SIZE 512

struct log_sink;
struct os_thread;

struct remote_line {
    enum weir_log_level level;
    char message[REMOTE_LINE_SIZE];
};

struct remote_log {
    const struct log_sink *sink;
    pthread_mutex_t lock;
    bool is_writing;           /* a thread writes, and takes along what comes up meanwhile */
    struct os_thread *thread;  /* the last one that was started for that; NULL: none */
    _Atomic uint32_t lines_n;  /* that are kept; changes under the lock */
    uint32_t first, dropped_n; /* dropped: since the last line that was kept */
    struct remote_line lines[REMOTE_LINES_MAX]; /* a ring */
};

void remote_log_init(struct remote_log *log, const struct log_sink *sink);
void remote_log_free(struct remote_log *log);

/* Keeps a line. Any thread, with any lock but the log's. */
__attribute__((format(printf, 3, 4))) void
remote_log_add(struct remote_log *log, enum weir_log_level level, const char *format, ...);
/* Writes the lines that are kept, unless a thread does. Without locks. */
void remote_log_write_all(struct remote_log *log);
/* Has another thread write them. Without locks. */
void remote_log_write_apart(struct remote_log *log);

static inline void remote_log_write(struct remote_log *log)
{
    if (atomic_load_explicit(&log->lines_n, memory_order_relaxed))
        remote_log_write_all(log);
}

#endif
