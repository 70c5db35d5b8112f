/* SPDX-License-Identifier: MIT */
/* What a server is told from outside, as one descriptor for its loop: signals, and that its
 * configuration file was written. */
#ifndef WEIR_EXAMPLES_NOTICES_H
#define WEIR_EXAMPLES_NOTICES_H

#include <stdbool.h>

struct notices {
    const char *file_name; /* without its directories */
    int signals, changes;
    int fd; /* an epoll descriptor of both: readable if there is a notice */
};

enum notice { NOTICE_STOP = 1, NOTICE_RELOAD = 2 };

/* Blocks SIGTERM, SIGINT and SIGHUP, and watches the file, which has to outlive the notices.
 * Returns 0 or a negative errno. */
int notices_open(struct notices *notices, const char *file);
/* Returns what came since the last call, a sum of enum notice. */
unsigned notices_read(const struct notices *notices);
void notices_close(struct notices *notices);

#endif
