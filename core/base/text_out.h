/* SPDX-License-Identifier: MIT */
/* Text that is written in pieces, and handed on in larger ones. */
#ifndef WEIR_CORE_BASE_TEXT_OUT_H
#define WEIR_CORE_BASE_TEXT_OUT_H

#include <stddef.h>
#include <stdint.h>

/* All but `write` and `userdata` is zero at first. */
struct text_out {
    /* Takes text, not terminated. Not 0: no more is handed to it. */
    int (*write)(void *userdata, const char *text, size_t n);
    void *userdata;
    int code; /* what `write` has returned */
    size_t n;
    char bytes[512];
};

void text_out_char(struct text_out *out, char c);
void text_out_string(struct text_out *out, const char *text);
void text_out_number(struct text_out *out, uint64_t number);
/* Hands on the rest. Returns 0, or what `write` returned. */
int text_out_end(struct text_out *out);

/* A buffer of the caller's as the end of a text. */
struct text_buffer {
    char *bytes;
    size_t size, n;
};

/* `write` for `userdata` a struct text_buffer. -ENOBUFS: it has no room for the text and a NUL. */
int text_buffer_write(void *userdata, const char *text, size_t n);
/* Ends a text in a buffer with a NUL. Returns its length; or -ENOBUFS, and it is empty. */
int text_buffer_end(struct text_out *out);

#endif
