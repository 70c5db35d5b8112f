/* SPDX-License-Identifier: MIT */
/* Error messages: one at a time, or collected as complaints about a configuration. */
#ifndef WEIR_CORE_ERROR_H
#define WEIR_CORE_ERROR_H

#include <stdarg.h>
#include <weir/error.h>

/* A place in a configuration text, from 1; 0, 0 for a specification in code. */
struct mark {
    uint32_t line, column;
};

/* Where complaints about one configuration go: to the callback, all; to `first`, the first. */
struct complaints {
    const char *file; /* what messages call the text; "" for a specification in code */
    void (*hear)(void *userdata, const struct weir_error *complaint);
    void *userdata;
    struct weir_error first; /* first.complaints counts them all */
};

/* Fills `reterr`, if not NULL, and returns `code`. */
__attribute__((format(printf, 3, 4))) int error_set(struct weir_error *reterr, int code,
                                                    const char *format, ...);

/* Adds a complaint and returns `code`. */
__attribute__((format(printf, 4, 5))) int complain(struct complaints *complaints, int code,
                                                   struct mark mark, const char *format, ...);

/* The candidate closest to `word`, or NULL if none is close: for "did you mean". */
const char *closest_word(const char *word, const char *const *candidates, size_t n);

#endif
