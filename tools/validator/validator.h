/* SPDX-License-Identifier: MIT */
/* Runs the tests of a plugin's file, each in a process of its own. */
#ifndef WEIR_TOOLS_VALIDATOR_H
#define WEIR_TOOLS_VALIDATOR_H

#include "trial.h"

enum verdict { VERDICT_FINE, VERDICT_SKIPPED, VERDICT_WRONG };

struct validator_result {
    const char *plugin; /* kind, name and version; "" for the file itself */
    const char *test, *promise;
    enum verdict verdict;
    const char *text;    /* the finding, or why it was skipped */
    const char *subject; /* parameters, or "" */
    const char *doing;   /* the last call, or "" */
    uint64_t calls;
};

struct validator_options {
    const char *path;
    const char *only; /* name of the one test to be made; NULL: all */
    uint64_t seed;
    uint64_t budget_ns; /* processor time of each test; 0: some rounds, as many with each seed */
    void (*report)(void *userdata, const struct validator_result *result);
    void *userdata;
};

/* Returns 0 (the tests have run), or -1: the file could not be copied, or no process be made; errno
 * says why. */
int validator_run(const struct validator_options *options);

#endif
