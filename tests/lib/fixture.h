/* SPDX-License-Identifier: MIT */
/*
 * A fixture that fails a test which leaves something behind: a descriptor or thread of the
 * process, or a byte, descriptor or thread that weir obtained. Each test starts with a fake system
 * that works.
 */
#ifndef WEIR_TESTS_FIXTURE_H
#define WEIR_TESTS_FIXTURE_H

int fixture_setup(void **state);
int fixture_teardown(void **state);

/* In place of cmocka_unit_test(). */
#define leak_checked_test(function)                                                                \
    cmocka_unit_test_setup_teardown(function, fixture_setup, fixture_teardown)

#endif
