/* SPDX-License-Identifier: MIT */
/* Error messages: one at a time, or collected as complaints about a configuration. */
#ifndef WEIR_CORE_BASE_ERROR_H
#define WEIR_CORE_BASE_ERROR_H

#include <stdarg.h>
#include <stdbool.h>
#include <weir/error.h>

/* A place in a configuration text, from 1; 0, 0 for a specification in code. */
struct mark {
    uint32_t line, column;
};

/* What a complaint without a line is about: a part of a specification in code. All 0: the whole. */
struct spec_location {
    const char *set, *pool; /* names; NULL: none */
    uint32_t set_number;    /* from 1, for a set without a name */
    uint32_t limit_number;  /* from 1; 0: the set itself */
};

/* More complaints than this are counted, but not kept. */
#define COMPLAINTS_MAX 1000

/*
 * Complaints about one configuration. They are collected by `complain` and told, in the order of
 * the text, by `complaints_report`, which must be called to give their memory back.
 */
struct complaints {
    const char *file; /* what messages call the text; "" for a specification in code */
    void (*report)(void *userdata, const struct weir_error *complaint); /* may be NULL */
    void *userdata;
    struct weir_error first; /* once told; first.complaints counts them all */

    struct spec_location location; /* of the next complaints that have no line */
    struct complaint *items;       /* the rest is error.c's own; zero at the beginning */
    uint32_t items_n;
    uint32_t total;
    bool memory_failed;
};

/* Fills `reterr`, if not NULL, and returns `code`. */
__attribute__((format(printf, 3, 4))) int error_set(struct weir_error *reterr, int code,
                                                    const char *format, ...);

/* Adds a complaint and returns `code`. */
__attribute__((format(printf, 4, 5))) int complaint_add(struct complaints *complaints, int code,
                                                        struct mark mark, const char *format, ...);

/* Whether further complaints would only be counted: hints need not be looked for any more. */
bool complaints_full(const struct complaints *complaints);

/*
 * Tells all complaints, sorted by line and column, and forgets them. Returns 0 if there are none,
 * the code of the first, or -ENOMEM if one could not be kept.
 */
int complaints_report(struct complaints *complaints);

/* Where the first byte lies that is not part of well-formed UTF-8, or `length`. */
size_t utf8_valid_length(const char *text, size_t length);

/* A text of the user's as a message may show it: on one line, cut if it is long. */
struct error_text {
    char text[88];
};
struct error_text error_text(const char *text);

/* The candidate closest to `word`, or NULL if none is close: for "did you mean". */
const char *hint_find(const char *word, const char *const *candidates, size_t n);

/* " (did you mean `x`?)", or "" without a hint. */
struct hint {
    char text[112];
};
struct hint hint_format(const char *closest);

#endif
