/* SPDX-License-Identifier: MIT */
#include "tests.h"
const struct validator_test balancer_tests[] = {{NULL, NULL, NULL}};
