/* SPDX-License-Identifier: MIT */
/* Waits for the grant of a shared set, as the command line says: what `weir exec` and `weir hold`
 * have in common. */
#ifndef WEIR_TOOLS_GRANT_H
#define WEIR_TOOLS_GRANT_H

#include "amounts.h"
#include "source.h"
#include <stdbool.h>
#include <weir/weir.h>

/* Results of waiting besides 0 and EXEC_FAILED. See grant_exit_code(). */
enum {
    GRANT_REFUSED = 123,
    GRANT_TIMED_OUT = 124,
    GRANT_NEVER = 256, /* refused for good: more than can ever be granted */
    GRANT_ENDED        /* it is not wanted any more; not for an exit code */
};

struct grant {
    const char *title; /* prefix of messages */
    const char *name;
    const char *subject;    /* or NULL */
    const char *wait_class; /* or NULL */
    struct source source;
    struct weir_limit_spec limits[WEIR_LIMITS_MAX];
    size_t limits_n;
    struct amounts amounts;
    char **texts; /* copies of arguments that are cut: those stay as /proc shows them */
    size_t texts_n;
    bool has_timeout, has_max_wait, has_exit_code;
    uint64_t timeout_ns, max_wait_ns;
    int exit_code; /* instead of GRANT_REFUSED and GRANT_TIMED_OUT */
    bool retry_after, verbose;
    uint64_t begun_ns;
    bool of_engine; /* an engine keeps a set of those named: a process has to stay that holds it */

    /* Of a process that holds for another one (engine_grant.h): descriptors that become readable
     * when that is to end. -1: none. */
    struct {
        int signals, process, event;
    } ends;

    weir *w;
    weir_pool *pool;
    weir_acquisition *acquisition;
};

/* The options without a letter, apart from those of a source. */
enum { GRANT_CLASS = 300 };

/* Options of a grant, those of its source among them: part of getopt_long's table and of its
 * letters. */
#define GRANT_LETTERS "s:l:a:S:t:w:E:rv" SOURCE_LETTERS
#define GRANT_OPTIONS                                                                              \
    {"set", required_argument, NULL, 's'}, {"name", required_argument, NULL, 's'}, /* as --set */  \
        {"limit", required_argument, NULL, 'l'}, {"amount", required_argument, NULL, 'a'},         \
        {"subject", required_argument, NULL, 'S'}, {"timeout", required_argument, NULL, 't'},      \
        {"max-wait", required_argument, NULL, 'w'}, {"exit-code", required_argument, NULL, 'E'},   \
        {"class", required_argument, NULL, GRANT_CLASS}, {"retry-after", no_argument, NULL, 'r'},  \
        {"verbose", no_argument, NULL, 'v'}, SOURCE_OPTIONS

/* A grant without options. */
#define GRANT_NONE(title_)                                                                         \
    {                                                                                              \
        .title = (title_), .ends = { -1, -1, -1 }                                                  \
    }

/* The part of a help text that describes these options. */
extern const char grant_help[];

/* Takes an option. Returns 0, or EXEC_FAILED: it is wrong, or not one of these, which is reported.
 */
int grant_option(struct grant *grant, int option, const char *argument);

/* Checks the options together. Returns 0, or EXEC_FAILED, reported. */
int grant_check_options(const struct grant *grant);

/* Opens the set, once it has a place. Returns 0 and `of_engine`, or another result, reported. */
int grant_open(struct grant *grant);

/* Waits for the grant of what was opened. Returns 0 with an acquisition, or another result,
 * reported. */
int grant_request(struct grant *grant);

/* Releases a grant of which nothing was used. */
void grant_return(struct grant *grant);

/*
 * Closes the pool and the instance, so that its threads end in order. An acquisition outlives it,
 * with the entry in the set that names this process as its holder.
 */
void grant_detach(struct grant *grant);
void grant_free(struct grant *grant);

/* Returns the exit code for a result of waiting. */
int grant_exit_code(const struct grant *grant, int result);

/* Report errors of the system and of usage. Return EXEC_FAILED. */
int grant_fail(const struct grant *grant, int code);
int grant_fail_usage(const struct grant *grant, const char *what, const char *which);

#endif
