/* SPDX-License-Identifier: MIT */
/* What a plugin is tested for. */
#ifndef WEIR_TOOLS_TESTS_H
#define WEIR_TOOLS_TESTS_H

#include "trial.h"

struct validator_test {
    const char *name;
    const char *promise; /* what holds, if nothing is found */
    void (*run)(struct trial *trial);
};

/* Both end with a test without a name. */
extern const struct validator_test algorithm_tests[];
extern const struct validator_test balancer_tests[];

/* Looks at a file without loading it. Returns NULL, or what is wrong; the text is static.
 * `*ret_about` names the test. */
struct file_finding {
    const char *test;
    char text[512];
};
/* Fills up to `max` findings. Returns how many there are. */
unsigned file_look(const char *path, struct file_finding *ret, unsigned max);

#endif
