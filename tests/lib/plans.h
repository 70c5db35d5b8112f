/* SPDX-License-Identifier: MIT */
/* Tests of plans: each has plugins of its own, loaded when they are wanted, from the project's
 * (WEIR_PLUGIN_PATH). */
#ifndef WEIR_TESTS_PLANS_H
#define WEIR_TESTS_PLANS_H

#include "config/plan.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fixture.h"
#include "lib/plan_from.h"

static struct plugin_search *plugins;

static int plans_setup(void **state)
{
    int rc = fixture_setup(state);
    return rc != 0 ? rc : plugin_search_new(&plugins, NULL);
}

static int plans_teardown(void **state)
{
    plugin_search_free(plugins);
    return fixture_teardown(state);
}

#define plans_test(function) cmocka_unit_test_setup_teardown(function, plans_setup, plans_teardown)

/* The plan of a whole text, which must be right. */
static inline void plan_of(const char *text, struct plan *ret)
{
    struct complaints complaints = {.file = "test"};
    if (plan_from_text(text, strlen(text), plugins, ret, &complaints) < 0)
        fail_msg("%u:%u: %s\n%s", complaints.first.line, complaints.first.column,
                 complaints.first.message, text);
}

#endif
