/* SPDX-License-Identifier: MIT */
/* cmocka, with the headers it wants before it. */
#ifndef WEIR_TESTS_CMOCKA_ALL_H
#define WEIR_TESTS_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
