/* SPDX-License-Identifier: MIT */
/* Formats what the log callback gets. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void log_write(const struct log_sink *log, enum weir_log_level level, const char *format, ...)
{
    char message[512];
    va_list arguments;

    if (!log->write)
        return;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    log->write(log->userdata, level, message);
}
