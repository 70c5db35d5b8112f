/* SPDX-License-Identifier: MIT */
/* Error messages: one at a time, or collected as complaints about a configuration. */
#ifndef WEIR_CORE_BASE_ERROR_H
#define WEIR_CORE_BASE_ERROR_H

#include <stdarg.h>
#include <stdbool.h>
#include <weir/error.h>

/* Location in a configuration text, from 1; 0, 0: in a specification in code. */
struct mark {
    uint32_t line, column;
};

/* Location in a specification in code, for complaints without a line. All 0: the whole. */
struct spec_location {
    const char *set, *pool; /* names; NULL: none */
    uint32_t set_number;    /* from 1, for a set without a name */
    uint32_t limit_number;  /* from 1; 0: the set itself */
};

/* Complaints beyond this number are counted, but not stored. */
#define COMPLAINTS_MAX 1000

/*
 * Complaints about one configuration. complaint_add collects them. complaints_report reports them
 * in the order of the text and frees their memory, so it must be called.
 */
struct complaints {
    const char *file; /* file name in messages; "" for a specification in code */
    void (*report)(void *userdata, const struct weir_error *complaint); /* may be NULL */
    void *userdata;
    struct weir_error first; /* set by complaints_report; first.complaints counts all */

    struct spec_location location; /* of the next complaints that have no line */
    struct complaint *items;       /* from here on private to error.c; initially zero */
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

/* Returns whether further complaints would only be counted; then a hint is useless. */
bool complaints_full(const struct complaints *complaints);

/*
 * Reports all complaints, sorted by line and column, and frees them. Returns 0 if there are none,
 * the code of the first, or -ENOMEM if one could not be stored.
 */
int complaints_report(struct complaints *complaints);

/* Returns the offset of the first byte that is not well-formed UTF-8, or `length`. */
size_t utf8_valid_length(const char *text, size_t length);

/* User text prepared for an error message: on one line, truncated if long. */
struct error_text {
    char text[88];
};
struct error_text error_text(const char *text);

/* Returns the candidate closest to `word`, or NULL if none is close. */
const char *hint_find(const char *word, const char *const *candidates, size_t n);

/* Returns " (did you mean `x`?)", or "" if `closest` is NULL. */
struct hint {
    char text[112];
};
struct hint hint_format(const char *closest);

#endif
