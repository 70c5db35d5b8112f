/* SPDX-License-Identifier: MIT */
/* Lines of a file or of the standard input, in a buffer of a fixed size. */
#ifndef WEIR_TOOLS_SIMULATE_LINES_H
#define WEIR_TOOLS_SIMULATE_LINES_H

#include "when.h"

/* A longer line counts as a wrong one. */
#define LINE_MAX_SIZE ((size_t)1 << 20)

struct lines {
    int fd;
    char *buffer;
    size_t from, to; /* of what is left in the buffer */
    uint64_t number; /* of the line that was returned last, from 1 */
    uint64_t read_n; /* bytes */
    uint64_t size;   /* of the file, bytes; 0: not known */
    bool is_over;    /* the end of the file was read */
    bool is_cut;     /* the line that was returned last is longer than LINE_MAX_SIZE */
    bool has_rest;   /* of that line, which was not returned */
};

/* Opens a file, `-` is the standard input. Returns 0 or a negative errno. */
int lines_open(struct lines *ret, const char *path);
void lines_close(struct lines *lines);

/* Goes back to the first line. Returns 0 or a negative errno: it is no file. */
int lines_rewind(struct lines *lines);

/* Returns the next line without its end, valid until the next call: 1, 0 at the end, or a negative
 * errno. */
int lines_next(struct lines *lines, struct text *ret);

#endif
