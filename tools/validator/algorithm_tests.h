/* SPDX-License-Identifier: MIT */
/* What the files of tests of algorithms share. */
#ifndef WEIR_TOOLS_ALGORITHM_TESTS_H
#define WEIR_TOOLS_ALGORITHM_TESTS_H

#include "walk.h"

/* Makes a subject for the next round, for a limit of this type; 0: of any. False: the rounds are
 * over. */
bool algorithm_next(struct trial *trial, struct subject *ret, const struct subject_way *way,
                    uint32_t limit_type);

/* purity_tests.c */
void test_frozen(struct trial *trial);
void test_address(struct trial *trial);
void test_hidden_state(struct trial *trial);
void test_uninitialized(struct trial *trial);
void test_wall_clock(struct trial *trial);
void test_system_calls(struct trial *trial);
void test_speed(struct trial *trial);
/* resource_tests.c */
void test_release(struct trial *trial);
void test_observe(struct trial *trial);
/* carry_tests.c */
void test_reconfigure(struct trial *trial);
void test_migrate(struct trial *trial);
void test_zone(struct trial *trial);

#endif
