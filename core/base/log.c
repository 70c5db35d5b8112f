/* SPDX-License-Identifier: MIT */
/* Log lines: to the callback of the program, or to the standard error. */
#include "base/error.h"
#include "os/os.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LOG_MESSAGE_MAX = 512 };

/* The names in WEIR_LOG, by level. */
static const char *const log_level_names[] = {[WEIR_LOG_ERROR] = "error",
                                              [WEIR_LOG_WARNING] = "warning",
                                              [WEIR_LOG_INFO] = "info",
                                              [WEIR_LOG_DEBUG] = "debug"};
enum { LOG_LEVELS_N = sizeof(log_level_names) / sizeof(log_level_names[0]) };

/* Returns the level of a name, or 0. */
static enum weir_log_level log_level_find(const char *name)
{
    for (size_t i = 0; i < LOG_LEVELS_N; i++)
        if (log_level_names[i] && strcmp(log_level_names[i], name) == 0)
            return (enum weir_log_level)i;
    return 0;
}

/* Writes a line to the standard error, in one piece. What cannot be written is lost. */
static void log_write_stderr(void *userdata, enum weir_log_level level, const char *message)
{
    char line[LOG_MESSAGE_MAX + sizeof("weir: warning: \n")];
    int n = snprintf(line, sizeof(line), "weir: %s: %s\n", log_level_names[level], message);

    (void)userdata;
    os_stderr_write(line, (size_t)n);
}

void log_open(struct log_sink *log, const struct weir_options *options)
{
    const char *name = options->log ? NULL : os_getenv("WEIR_LOG");

    *log = (struct log_sink){options->log, options->userdata, WEIR_LOG_WARNING};
    if (!name || !*name)
        return;
    log->write = log_write_stderr;
    log->level_max = log_level_find(name);
    if (log->level_max)
        return;
    log->level_max = WEIR_LOG_WARNING;
    log_write(log, WEIR_LOG_WARNING,
              "WEIR_LOG is `%s`: it takes error, warning, info or debug; warning is used",
              error_text(name).text);
}

void log_write(const struct log_sink *log, enum weir_log_level level, const char *format, ...)
{
    char message[LOG_MESSAGE_MAX];
    va_list arguments;

    if (!log->write || level > log->level_max)
        return;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    error_sanitize(message, sizeof(message)); /* it may quote a program's text */
    log->write(log->userdata, level, message);
}
