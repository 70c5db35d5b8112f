/* SPDX-License-Identifier: MIT */
/* Lines of a file. */
#include "lines.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_SIZE (2 * LINE_MAX_SIZE)

int lines_open(struct lines *ret, const char *path)
{
    bool is_input = strcmp(path, "-") == 0;
    struct lines lines = {.fd = is_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC)};
    struct stat status;

    if (lines.fd < 0)
        return -errno;
    lines.buffer = malloc(BUFFER_SIZE);
    if (!lines.buffer) {
        lines_close(&lines);
        return -ENOMEM;
    }
    if (fstat(lines.fd, &status) == 0 && S_ISREG(status.st_mode))
        lines.size = (uint64_t)status.st_size;
    *ret = lines;
    return 0;
}

void lines_close(struct lines *lines)
{
    if (lines->fd > STDIN_FILENO)
        close(lines->fd);
    free(lines->buffer);
    *lines = (struct lines){.fd = -1};
}

int lines_rewind(struct lines *lines)
{
    if (lseek(lines->fd, 0, SEEK_SET) < 0)
        return -errno;
    lines->from = lines->to = 0;
    lines->number = lines->read_n = 0;
    lines->is_over = lines->is_cut = lines->has_rest = false;
    return 0;
}

/* Reads more, behind what is left. Returns 0 or a negative errno. */
static int fill(struct lines *lines)
{
    ssize_t n;

    memmove(lines->buffer, lines->buffer + lines->from, lines->to - lines->from);
    lines->to -= lines->from;
    lines->from = 0;
    do
        n = read(lines->fd, lines->buffer + lines->to, BUFFER_SIZE - lines->to);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    lines->to += (size_t)n;
    lines->read_n += (uint64_t)n;
    lines->is_over = n == 0;
    return 0;
}

/* Drops the rest of a line that is too long. Returns 0 or a negative errno. */
static int skip_rest(struct lines *lines)
{
    for (;;) {
        char *end = memchr(lines->buffer + lines->from, '\n', lines->to - lines->from);
        int r;

        lines->from = end ? (size_t)(end + 1 - lines->buffer) : lines->to;
        if (end || lines->is_over)
            return 0;
        r = fill(lines);
        if (r < 0)
            return r;
    }
}

int lines_next(struct lines *lines, struct text *ret)
{
    const char *at;
    char *end;

    if (lines->has_rest) {
        int r = skip_rest(lines);

        if (r < 0)
            return r;
    }
    lines->is_cut = lines->has_rest = false;
    while (!(end = memchr(lines->buffer + lines->from, '\n', lines->to - lines->from)) &&
           !lines->is_over && lines->to - lines->from <= LINE_MAX_SIZE) {
        int r = fill(lines);

        if (r < 0)
            return r;
    }
    at = lines->buffer + lines->from;
    if (!end && lines->from == lines->to)
        return 0;
    lines->number++;
    *ret = (struct text){at, end ? (size_t)(end - at) : lines->to - lines->from};
    lines->is_cut = ret->n > LINE_MAX_SIZE;
    lines->from += ret->n + (end != NULL);
    lines->has_rest = !end;
    if (ret->n > 0 && at[ret->n - 1] == '\r')
        ret->n--;
    return 1;
}
