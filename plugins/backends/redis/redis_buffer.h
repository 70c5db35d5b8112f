/* SPDX-License-Identifier: MIT */
/*
 * Bytes to be sent: commands in the format of RESP.
 *
 *     redis_buffer_begin(buffer, 2); redis_buffer_text(buffer, "GET"); redis_buffer_text(buffer,
 * k); if (redis_buffer_end(buffer) < 0) … -ENOMEM: nothing was added
 */
#ifndef WEIR_REDIS_BUFFER_H
#define WEIR_REDIS_BUFFER_H

#include <stddef.h>
#include <stdint.h>

struct redis_buffer {
    char *bytes;
    size_t size, room;
    size_t mark; /* where the command begins that is being written */
    int failed;  /* there was no memory for it */
};

/* Begins a command of so many words. */
void redis_buffer_begin(struct redis_buffer *buffer, size_t words_n);
/* Begins another one: it is added, or left out, together with that before. */
void redis_buffer_begin_next(struct redis_buffer *buffer, size_t words_n);
void redis_buffer_word(struct redis_buffer *buffer, const void *bytes, size_t n);
void redis_buffer_text(struct redis_buffer *buffer, const char *text);
void redis_buffer_number(struct redis_buffer *buffer, int64_t number);
/* Returns 0; or -ENOMEM, and the command is gone. */
int redis_buffer_end(struct redis_buffer *buffer);

/* Wipes what is in it. */
void redis_buffer_clear(struct redis_buffer *buffer);
void redis_buffer_free(struct redis_buffer *buffer);

#endif
