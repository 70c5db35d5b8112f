/* SPDX-License-Identifier: MIT */
/* Bytes to be sent. */
#include "redis_buffer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST 4096

/* Makes room for n more bytes. The old bytes are wiped: a password may be among them. Returns 0, or
 * -ENOMEM. */
static int redis_buffer_grow(struct redis_buffer *buffer, size_t n)
{
    size_t room = buffer->room ? buffer->room : ROOM_FIRST;
    if (n > SIZE_MAX / 4)
        return -ENOMEM;
    while (room - buffer->size < n)
        room *= 2;
    char *bytes = malloc(room);
    if (!bytes)
        return -ENOMEM;
    if (buffer->size > 0)
        memcpy(bytes, buffer->bytes, buffer->size);
    if (buffer->bytes)
        explicit_bzero(buffer->bytes, buffer->room);
    free(buffer->bytes);
    buffer->bytes = bytes;
    buffer->room = room;
    return 0;
}

static void redis_buffer_add(struct redis_buffer *buffer, const void *bytes, size_t n)
{
    if (buffer->room - buffer->size < n && redis_buffer_grow(buffer, n) < 0)
        buffer->failed = 1;
    if (buffer->failed || n == 0)
        return;
    memcpy(buffer->bytes + buffer->size, bytes, n);
    buffer->size += n;
}

/* Adds a type, a number and the end of the line. */
static void redis_buffer_count(struct redis_buffer *buffer, char type, size_t n)
{
    char line[24];
    char *at = line + sizeof(line);
    *--at = '\n';
    *--at = '\r';
    do {
        *--at = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    *--at = type;
    redis_buffer_add(buffer, at, (size_t)(line + sizeof(line) - at));
}

void redis_buffer_begin(struct redis_buffer *buffer, size_t words_n)
{
    buffer->mark = buffer->size;
    buffer->failed = 0;
    redis_buffer_count(buffer, '*', words_n);
}

void redis_buffer_begin_next(struct redis_buffer *buffer, size_t words_n)
{
    redis_buffer_count(buffer, '*', words_n);
}

void redis_buffer_word(struct redis_buffer *buffer, const void *bytes, size_t n)
{
    redis_buffer_count(buffer, '$', n);
    redis_buffer_add(buffer, bytes, n);
    redis_buffer_add(buffer, "\r\n", 2);
}

void redis_buffer_text(struct redis_buffer *buffer, const char *text)
{
    redis_buffer_word(buffer, text, strlen(text));
}

void redis_buffer_number(struct redis_buffer *buffer, int64_t number)
{
    char text[24];
    int n = snprintf(text, sizeof(text), "%" PRId64, number);
    redis_buffer_word(buffer, text, (size_t)n);
}

int redis_buffer_end(struct redis_buffer *buffer)
{
    if (!buffer->failed)
        return 0;
    buffer->size = buffer->mark;
    return -ENOMEM;
}

void redis_buffer_clear(struct redis_buffer *buffer)
{
    if (buffer->size > 0)
        explicit_bzero(buffer->bytes, buffer->size);
    buffer->size = 0;
}

void redis_buffer_free(struct redis_buffer *buffer)
{
    redis_buffer_clear(buffer);
    free(buffer->bytes);
    *buffer = (struct redis_buffer){0};
}
