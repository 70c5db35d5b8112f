/* SPDX-License-Identifier: MIT */
/* The log callback of an instance: what the library tells the program outside of return values. */
#ifndef WEIR_CORE_BASE_LOG_H
#define WEIR_CORE_BASE_LOG_H

#include <weir/instance.h>

struct log_sink {
    void (*write)(void *userdata, enum weir_log_level level, const char *message); /* or NULL */
    void *userdata;
};

/* Formats one line, cut at 511 bytes, and calls back. Any thread; the callback may call the
 * library, so no lock is held. */
__attribute__((format(printf, 3, 4))) void
log_write(const struct log_sink *log, enum weir_log_level level, const char *format, ...);

#endif
