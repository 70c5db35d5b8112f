/* SPDX-License-Identifier: MIT */
/* A library built without liburing: no queue posts to a ring, the log says so once, all is reaped.
 */
#include "lib/fixture.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <weir/weir.h>

#include <cmocka.h>

static unsigned logged;

static void hear(void *unused, enum weir_log_level level, const char *message)
{
    (void)unused;
    assert_int_equal(level, WEIR_LOG_WARNING);
    assert_non_null(message);
    logged++;
}

static void test_attach(void **state)
{
    static const struct weir_limit_spec limit = {
        .size = sizeof(limit), .type = WEIR_LIMIT_RESOURCE, .key = "db", .capacity = 1};
    struct weir_options options = {.size = sizeof(options), .log = hear};
    struct weir_set_spec set = {
        .size = sizeof(set), .name = "set", .limits = &limit, .limits_n = 1};
    struct weir_pool_spec spec = {.size = sizeof(spec), .sets = &set, .sets_n = 1};
    const struct weir_amount amount = {"db", 1};
    struct weir_request request = {
        .size = sizeof(request), .amounts = &amount, .amounts_n = 1, .timeout_ns = WEIR_FOREVER};
    struct weir_completion completion;
    weir_acquisition *acquisition = NULL;
    weir *w = NULL;
    weir_pool *pool = NULL;
    weir_queue *queue = NULL;

    (void)state;
    assert_int_equal(weir_open(&w, &options, NULL), 0);
    assert_int_equal(weir_pool_new(&pool, w, &spec, NULL), 0);
    assert_int_equal(weir_queue_open(&queue, w, 4), 0);
    assert_int_equal(weir_queue_attach(queue, 0), 1);
    assert_int_equal(weir_queue_attach(queue, 0), 1);
    assert_int_equal(logged, 1);

    assert_int_equal(weir_queue_submit(queue, pool, &request, 7, &acquisition, NULL), 0);
    assert_int_equal(weir_queue_reap(queue, &completion, 1), 1);
    assert_int_equal(completion.user_data, 7);
    assert_int_equal(completion.result, 0);
    assert_ptr_equal(completion.acquisition, acquisition);
    assert_int_equal(weir_queue_detach(queue), 0);

    assert_int_equal(weir_release(&acquisition), 0);
    weir_queue_close(queue);
    weir_close(w);
    weir_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {leak_checked_test(test_attach)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
