/* SPDX-License-Identifier: MIT */
/*
 * What the library tells the program in words: error messages, one at a time or collected as
 * complaints about a configuration, and log lines.
 */
#ifndef WEIR_CORE_BASE_ERROR_H
#define WEIR_CORE_BASE_ERROR_H

#include <errno.h>
#include <stdbool.h>
#include <weir/error.h>
#include <weir/instance.h>

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
    struct weir_error first;     /* set by complaints_report; first.complaints counts all */
    struct complaints *warnings; /* about the same configuration, if it is right; NULL: unwanted */
    bool are_warnings;           /* these are: their codes are 0 */

    struct spec_location location; /* of the next complaints that have no line */
    bool memory_failed;            /* then complaints_report returns -ENOMEM */
    struct complaint *items;       /* from here on private to error.c; initially zero */
    uint32_t items_n;
    uint32_t total;
};

/* Fills `reterr`, if not NULL, and returns `code`. */
__attribute__((format(printf, 3, 4))) int error_set(struct weir_error *reterr, int code,
                                                    const char *format, ...);

/* Adds a complaint and returns `code`. An error in a text is reported as -EINVAL, or as -ENOEXEC
 * for a bad plugin; an error in code may also say that something exists or not. */
__attribute__((format(printf, 4, 5))) int complaint_add(struct complaints *complaints, int code,
                                                        struct mark mark, const char *format, ...);
#define complain(complaints, mark, ...) complaint_add((complaints), -EINVAL, (mark), __VA_ARGS__)

/* Returns whether nothing went wrong so far. */
bool complaints_none(const struct complaints *complaints);
/* Returns whether further complaints would only be counted; then a hint is useless. */
bool complaints_full(const struct complaints *complaints);

/*
 * Reports all complaints, sorted by line and column, and frees them. Returns 0 if there are none,
 * the code of the first, or -ENOMEM if one could not be stored.
 */
int complaints_report(struct complaints *complaints);

/* Returns whether the text has a control character. */
bool text_has_control(const char *text);

/* User text prepared for an error message: on one line, truncated if long. */
struct error_text {
    char text[88];
};
struct error_text error_text(const char *text);

/* Appends to the text in a buffer of `size` bytes, and cuts what has no room. */
__attribute__((format(printf, 3, 4))) void text_append(char *text, size_t size, const char *format,
                                                       ...);

/* The items of a list in one text: "a, b or c". */
struct text_list {
    char text[256];
};
struct text_list text_join(const char *const *items, size_t n, const char *between,
                           const char *before_last);

/* The candidate that a word was perhaps meant to be. */
struct hint {
    const char *closest; /* NULL: none is close */
    char text[112];      /* " (did you mean `x`?)", or "" */
};
struct hint hint_find(const char *word, const char *const *candidates, size_t n);

/* Where the log lines of an instance go. All 0: nowhere. */
struct log_sink {
    void (*write)(void *userdata, enum weir_log_level level, const char *message); /* or NULL */
    void *userdata;
    enum weir_log_level level_max; /* lines of less importance are dropped */
};

/* Chooses the sink (log.c): the callback of the options, which hears warnings; else the standard
 * error if WEIR_LOG names a level; else none. A WEIR_LOG that is no level counts as `warning`, and
 * a line says so. */
void log_open(struct log_sink *log, const struct weir_options *options);

/* Formats one line, cut at 511 bytes, and passes it on. Any thread; the callback may call the
 * library, so no lock is held. */
__attribute__((format(printf, 3, 4))) void
log_write(const struct log_sink *log, enum weir_log_level level, const char *format, ...);

/* Makes a message that quotes any bytes one line of UTF-8 without a partial character. */
void error_sanitize(char *message, size_t size);

#endif
