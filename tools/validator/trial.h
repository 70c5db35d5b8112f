/* SPDX-License-Identifier: MIT */
/*
 * One test of a plugin, in a process of its own: what it finds, and memory that shows where a
 * plugin reads and writes. A finding ends the process. So does a crash, which becomes a finding
 * that says what the plugin was doing.
 */
#ifndef WEIR_TOOLS_TRIAL_H
#define WEIR_TOOLS_TRIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/plugin.h>

#define TRIAL_ROUNDS  40u /* of a test, if no time is given */
#define TRIAL_ROUND_S 5u  /* processor time that a round may take, and loading the file */

/* What a test leaves behind, in memory shared with the command. */
struct trial_report {
    bool is_loaded;     /* the plugin was found in the file */
    bool is_done;       /* the test came to its end */
    char skipped[160];  /* why there was nothing to test, or "" */
    char finding[1024]; /* what is wrong, or "" */
    char subject[512];  /* parameters that the plugin is configured with */
    char doing[160];    /* the last call */
    uint64_t calls;     /* of the plugin's functions */
};

struct trial {
    const struct weir_plugin *plugin;
    struct trial_report *report;
    uint64_t random; /* state of the random numbers of the current round */
    uint64_t seed;
    uint64_t budget_ns; /* processor time after which no further round begins; 0: TRIAL_ROUNDS */
    unsigned round;
};

/* Ends the process with a finding. */
_Noreturn void trial_fail(struct trial *trial, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Ends the process: nothing can be tested, for this reason. */
_Noreturn void trial_skip(struct trial *trial, const char *reason);
/* Notes which call comes next, for a finding about a crash. */
void trial_note(struct trial *trial, const char *function, uint64_t now_ns, uint64_t amount);
/* Begins the next round, with random numbers of its own. False: there were enough. */
bool trial_next(struct trial *trial);
/* Makes faults findings. From then on system calls are findings, too, if the kernel can tell. */
void trial_catch_faults(struct trial *trial);
bool trial_forbid_system_calls(void);

/* ---- random numbers ---- */

uint64_t trial_random(struct trial *trial);
uint64_t trial_below(struct trial *trial, uint64_t n); /* 0 .. n - 1 */
/* Of any magnitude up to `most`, at least 1. */
uint64_t trial_magnitude(struct trial *trial, uint64_t most);

/* ---- memory ---- */

/* Bytes between two pages that cannot be touched. */
struct arena {
    const char *what; /* "the state", for findings */
    unsigned char *pages, *data;
    size_t pages_size, size;
    bool is_frozen;
};

/* Makes zeroed memory; it ends at the second of these pages, or begins at the first. */
void arena_make(struct trial *trial, struct arena *arena, const char *what, size_t size,
                bool at_the_end);
void arena_free(struct arena *arena);
/* Writing there becomes a finding, until it is thawed. */
void arena_freeze(struct arena *arena, bool is_frozen);
/* Finds what was written beside the bytes. */
void arena_check(struct trial *trial, const struct arena *arena);

/* Fills the stack that a call is going to use. */
void trial_fill_stack(unsigned char byte);

/* ---- static data of the plugin's file ---- */

struct statics;
/* Remembers what the file that has `address` keeps in writable memory. */
struct statics *statics_of(struct trial *trial, const void *address);
void statics_check(struct trial *trial, const struct statics *statics);

#endif
