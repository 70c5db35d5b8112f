/* SPDX-License-Identifier: MIT */
/* A configuration that is missing, or a name that it does not have, is seen. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

#include <cmocka.h>

#include "lib/fixture.h"

struct heard {
    char lines[4][256];
    unsigned n;
};

static void hear(void *userdata, enum weir_log_level level, const char *message)
{
    struct heard *heard = userdata;

    assert_int_equal(level, WEIR_LOG_WARNING);
    assert_true(heard->n < 4);
    snprintf(heard->lines[heard->n++], sizeof(heard->lines[0]), "%s", message);
}

static int opens(uint32_t flags, const char *text, const char *variable, struct weir_error *reterr)
{
    const struct weir_options options = {.size = sizeof(options), .text = text, .flags = flags};
    weir *w = NULL;
    int r;

    if (variable)
        setenv("WEIR_REQUIRE_CONFIG", variable, 1);
    r = weir_open(&w, flags != 0 || text ? &options : NULL, reterr);
    unsetenv("WEIR_REQUIRE_CONFIG");
    assert_int_equal(r == 0, w != NULL);
    weir_close(w);
    return r;
}

static void a_required_configuration_that_is_missing_is_enoent(void **state)
{
    struct weir_error error = {0};

    (void)state;
    assert_int_equal(opens(WEIR_OPEN_REQUIRE_CONFIG, NULL, NULL, &error), -ENOENT);
    assert_int_equal(error.code, -ENOENT);
    assert_non_null(strstr(error.message, "WEIR_OPEN_REQUIRE_CONFIG requires a configuration"));
    assert_non_null(strstr(error.message, "WEIR_CONFIG is not set"));
    assert_int_equal(opens(0, NULL, "1", &error), -ENOENT);
    assert_non_null(strstr(error.message, "WEIR_REQUIRE_CONFIG=1 requires a configuration"));
    assert_int_equal(opens(0, NULL, "1", NULL), -ENOENT);
}

static void a_required_configuration_may_come_from_anywhere(void **state)
{
    char path[] = "/tmp/weir-test-XXXXXX";
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");

    (void)state;
    assert_non_null(file);
    fputs("version: 1\n", file);
    fclose(file);
    assert_int_equal(opens(WEIR_OPEN_REQUIRE_CONFIG, "version: 1\n", "1", NULL), 0);
    setenv("WEIR_CONFIG", path, 1);
    assert_int_equal(opens(WEIR_OPEN_REQUIRE_CONFIG, NULL, "1", NULL), 0);
    unsetenv("WEIR_CONFIG");
    unlink(path);
}

static void the_variable_takes_zero_and_one(void **state)
{
    struct weir_error error = {0};

    (void)state;
    assert_int_equal(opens(0, NULL, "0", NULL), 0);
    assert_int_equal(opens(0, NULL, "", NULL), 0);
    assert_int_equal(opens(0, NULL, "yes", &error), -EINVAL);
    assert_string_equal(error.message, "WEIR_REQUIRE_CONFIG is `yes`: it takes 0 or 1");
    assert_int_equal(opens(0, "version: 1\n", "yes", NULL), -EINVAL);
}

static void each_name_without_a_configuration_is_warned_of_once(void **state)
{
    struct heard heard = {0};
    const struct weir_options options = {.size = sizeof(options), .log = hear, .userdata = &heard};
    weir_pool *pools[3] = {NULL};
    weir *w = NULL;

    (void)state;
    assert_int_equal(weir_open(&w, &options, NULL), 0);
    assert_int_equal(heard.n, 0);
    assert_int_equal(weir_pool_open(&pools[0], w, "a", 0, NULL), 0);
    assert_int_equal(weir_pool_open(&pools[1], w, "a", 0, NULL), 0);
    assert_int_equal(weir_pool_open(&pools[2], w, "b", 0, NULL), 0);
    assert_int_equal(heard.n, 2);
    assert_string_equal(heard.lines[0],
                        "pool `a` has no limits and grants everything: there is no configuration");
    for (int i = 0; i < 3; i++)
        weir_pool_close(pools[i]);
    weir_close(w);
}

static void expect_enoent(weir *w, const char *name, const char *message)
{
    struct weir_error error = {0};
    weir_pool *pool = NULL;

    assert_int_equal(weir_pool_open(&pool, w, name, 0, &error), -ENOENT);
    assert_null(pool);
    assert_int_equal(error.code, -ENOENT);
    assert_string_equal(error.message, message);
}

static void a_wrong_name_says_what_was_meant(void **state)
{
    const struct weir_options options = {
        .size = sizeof(options),
        .text = "version: 1\nsets: { uploads: {}, queries: {} }\npools: { api: { sets: [uploads] } "
                "}\n"};
    weir_pool *pool = NULL;
    weir *w = NULL;

    (void)state;
    assert_int_equal(weir_open(&w, &options, NULL), 0);
    expect_enoent(w, "upload", "there is no set or pool `upload` (did you mean `uploads`?)");
    expect_enoent(w, "qureies", "there is no set or pool `qureies` (did you mean `queries`?)");
    expect_enoent(w, "apj", "there is no set or pool `apj` (did you mean `api`?)");
    expect_enoent(w, "something", "there is no set or pool `something`");
    expect_enoent(w, "", "there is no set or pool ``");
    assert_int_equal(weir_pool_open(&pool, w, "upload", 0, NULL), -ENOENT);
    weir_close(w);
}

/* A mistyped key is granted without its limit, which only the log tells. */
static void a_mistyped_key_says_what_was_meant(void **state)
{
    struct heard heard = {0};
    const struct weir_options options = {
        .size = sizeof(options),
        .text =
            "version: 1\nsets: { s: { limits: [ { type: resource, key: connections, capacity: 1 "
            "}, { type: rate, key: tokens, algorithm: gcra, capacity: 9, window: 1s } ] } }\n",
        .log = hear,
        .userdata = &heard};
    const struct weir_amount amounts[] = {
        {"connections", 0}, {"tokesn", 1}, {"bytes", 1}, {"tokesn", 2}};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = amounts, .amounts_n = 4};
    weir_pool *pool = NULL;
    weir *w = NULL;

    (void)state;
    assert_int_equal(weir_open(&w, &options, NULL), 0);
    assert_int_equal(weir_pool_open(&pool, w, "s", 0, NULL), 0);
    assert_int_equal(weir_take(pool, &request, NULL), 0);
    assert_int_equal(weir_take(pool, &request, NULL), 0);
    assert_int_equal(heard.n, 2);
    assert_string_equal(
        heard.lines[0],
        "set `s`: key `tokesn` is unknown and was skipped (did you mean `tokens`?)");
    assert_string_equal(heard.lines[1], "set `s`: key `bytes` is unknown and was skipped");
    weir_pool_close(pool);
    weir_close(w);
}

static void the_other_refusals_have_reasons(void **state)
{
    struct weir_error error = {0};
    weir_pool *pool = NULL, *kept = NULL;
    weir *w = NULL;

    (void)state;
    assert_int_equal(weir_open(&w, NULL, NULL), 0);
    assert_int_equal(weir_pool_open(&pool, w, NULL, 0, &error), -EINVAL);
    assert_string_equal(error.message, "an argument is NULL");
    expect_enoent(w, "", "there is no set or pool ``");
    assert_int_equal(weir_pool_open(&kept, w, "kept", 0, &error), 0);
    weir_pool_close(kept);
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_required_configuration_that_is_missing_is_enoent),
        leak_checked_test(a_required_configuration_may_come_from_anywhere),
        leak_checked_test(the_variable_takes_zero_and_one),
        leak_checked_test(each_name_without_a_configuration_is_warned_of_once),
        leak_checked_test(a_wrong_name_says_what_was_meant),
        leak_checked_test(a_mistyped_key_says_what_was_meant),
        leak_checked_test(the_other_refusals_have_reasons),
    };

    unsetenv("WEIR_CONFIG");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
