/* SPDX-License-Identifier: MIT */
/*
 * Wrong arguments of every public call. CALLS has each call of include/weir with all its pointers:
 * each is NULL in turn, and the result must be the one listed. With --list the program prints the
 * calls and their numbers of pointers, which check_arguments.py compares with the headers. The
 * other tests pass sizes, flags, values of enums and numbers that nothing can be meant by.
 */
#include "lib/world.h"
#include "os/os.h"

#include <limits.h>
#include <signal.h>
#include <unistd.h>
#include <weir/segment.h>

#define LIMIT "{ type: call, key: c, algorithm: gcra, capacity: 100, window: 1s }"

/* Arguments that are all right. */
static struct {
    weir_acquisition *held;  /* granted, and not updated */
    weir_acquisition *ended; /* timed out */
    weir_queue *queue;
    weir_token *token;
    struct weir_holder holder;
    struct weir_options options, admin;
    struct weir_pool_spec spec;
    struct weir_request request;
    struct weir_refusal refusal;
    struct weir_error error;
    uint32_t users[1];
    struct weir_set_info info;
    struct weir_set_stats stats;
    struct weir_limit_stats limit_stats;
    struct weir_lease_stats lease_stats;
    struct weir_overheld overheld;
    struct weir_class_stats class_stats;
    struct weir_limit_gauge gauge;
    struct weir_remaining remaining, limit;
    struct weir_http_triple triple;
    char text[64];
    struct weir_subjects_stats subjects;
    struct weir_setting settings[8];
    struct weir_completion completion;
    struct weir_listener listener;
    struct weir_trace trace;
    siginfo_t siginfo;
    const char *names[4];
    uint64_t amounts[4], at_ns;
} right;

/* What a call may make. */
static struct {
    weir *w;
    weir_pool *pool;
    weir_queue *queue;
    weir_acquisition *acquisition;
    weir_token *token;
    int directory; /* 0: none */
} made;

static void hear(void *userdata, const struct weir_event *event)
{
    (void)userdata;
    assert_non_null(event);
}

static int stop_at_plugin(void *userdata, const struct weir_plugin_info *info)
{
    (void)userdata;
    assert_non_null(info);
    return 1;
}

static int stop_at_dir(void *userdata, const char *dir)
{
    (void)userdata;
    assert_non_null(dir);
    return 1;
}

static int stop_at_backend(void *userdata, const struct weir_backend_info *info)
{
    (void)userdata;
    assert_non_null(info);
    return 1;
}

static int stop_at_redefinition(void *userdata, const struct weir_redefinition *redefinition)
{
    (void)userdata;
    (void)redefinition;
    return 1;
}

static int stop_at_segment(void *userdata, const struct weir_segment *segment)
{
    (void)userdata;
    assert_non_null(segment);
    return 1;
}

static int drop(void *userdata, const char *text, size_t n)
{
    (void)userdata;
    assert_true(text && n > 0);
    return 0;
}

/* P(i, value): pointer number `i` of the call, NULL when it is its turn. Then the results, by the
 * number of the pointer that is NULL. */
#define P(i, value) (null == (i) ? NULL : (value))

#define CALLS(CALL)                                                                                \
    CALL(weir_take, (P(0, world.pool), P(1, &right.request), P(2, &right.refusal)), -EINVAL, 0, 0) \
    CALL(weir_try_acquire,                                                                         \
         (P(0, world.pool), P(1, &right.request), P(2, &made.acquisition), P(3, &right.refusal)),  \
         -EINVAL, 0, -EINVAL, 0)                                                                   \
    CALL(weir_acquire,                                                                             \
         (P(0, world.pool), P(1, &right.request), P(2, &made.acquisition), P(3, &right.refusal)),  \
         -EINVAL, 0, -EINVAL, 0)                                                                   \
    CALL(weir_submit,                                                                              \
         (P(0, world.pool), P(1, &right.request), P(2, &made.acquisition), P(3, &right.refusal)),  \
         -EINVAL, 0, -EINVAL, 0)                                                                   \
    CALL(weir_reserve,                                                                             \
         (P(0, world.pool), P(1, &right.request), P(2, &made.acquisition), P(3, &right.at_ns),     \
          P(4, &right.refusal)),                                                                   \
         -EINVAL, 0, -EINVAL, -EINVAL, 0)                                                          \
    CALL(weir_acquisition_fd, (P(0, right.held)), -EINVAL)                                         \
    CALL(weir_acquisition_grant_fd, (P(0, right.held)), -EINVAL)                                   \
    CALL(weir_acquisition_lost_fd, (P(0, right.held)), -EINVAL)                                    \
    CALL(weir_acquisition_attach, (P(0, right.held), 0), -EINVAL)                                  \
    CALL(weir_acquisition_result, (P(0, right.held)), -EINVAL)                                     \
    CALL(weir_acquisition_refusal, (P(0, right.ended), P(1, &right.refusal)), -EINVAL, -EINVAL)    \
    CALL(weir_cancel, (P(0, right.held)), -EINVAL)                                                 \
    CALL(weir_update, (P(0, right.held), P(1, "c"), 1), -EINVAL, -EINVAL)                          \
    CALL(weir_return, (P(0, right.held), P(1, "c"), 1), -EINVAL, -EINVAL)                          \
    CALL(weir_outcome, (P(0, right.held), WEIR_OUTCOME_SUCCESS, 0), -EINVAL)                       \
    CALL(weir_release, (P(0, &right.held)), 0)                                                     \
    CALL(weir_acquisition_set, (P(0, right.held)), 0)                                              \
    CALL(weir_acquisition_config, (P(0, right.held), P(1, "host")), 0, 0)                          \
    CALL(weir_acquisition_config_settings, (P(0, right.held), P(1, right.settings), 8), -EINVAL,   \
         -EINVAL)                                                                                  \
    CALL(weir_acquisition_amount, (P(0, right.held), P(1, "c"), P(2, right.amounts)), -EINVAL,     \
         -EINVAL, -EINVAL)                                                                         \
    CALL(weir_acquisition_granted_ns, (P(0, right.held), P(1, &right.at_ns)), -EINVAL, -EINVAL)    \
    CALL(weir_acquisition_fence, (P(0, right.held), P(1, &right.at_ns)), -EINVAL, -EINVAL)         \
    CALL(weir_acquisition_missing_update, (P(0, right.held)), 0)                                   \
    CALL(weir_set_ready_at, (P(0, world.set), P(1, &right.request), P(2, &right.at_ns)), -EINVAL,  \
         0, -EINVAL)                                                                               \
    CALL(weir_set_remaining, (P(0, world.set), P(1, &right.request), P(2, &right.remaining), 1),   \
         -EINVAL, 1, -EINVAL)                                                                      \
    CALL(weir_http_retry_after, (1, P(0, right.text), sizeof(right.text)), -EINVAL)                \
    CALL(weir_http_ratelimit_policy,                                                               \
         (P(0, &right.limit), 1, P(1, right.text), sizeof(right.text)), -EINVAL, -EINVAL)          \
    CALL(weir_http_ratelimit, (P(0, &right.limit), 1, 1, P(1, right.text), sizeof(right.text)),    \
         -EINVAL, -EINVAL)                                                                         \
    CALL(weir_http_triple, (P(0, &right.limit), 1, P(1, &right.triple)), -EINVAL, -EINVAL)         \
    CALL(weir_set_waiter_refusal, (P(0, world.set), P(1, &right.holder), P(2, &right.refusal)),    \
         -EINVAL, -EINVAL, -EINVAL)                                                                \
    CALL(weir_clock_in_use, (P(0, world.w)), WEIR_CLOCK_DEFAULT)                                   \
    CALL(weir_now, (P(0, world.w)), 0)                                                             \
    CALL(weir_metrics_write, (P(0, world.w), 0, P(1, drop), P(2, &right)), -EINVAL, -EINVAL, 0)    \
    CALL(weir_listen, (P(0, world.w), P(1, &right.listener)), -EINVAL, 0)                          \
    CALL(weir_trace_parse, (P(0, "00-"), P(1, &right.trace)), -EINVAL, -EINVAL)                    \
    CALL(weir_tick, (P(0, world.w)), -EINVAL)                                                      \
    CALL(weir_due_at, (P(0, world.w), P(1, &right.at_ns)), -EINVAL, -EINVAL)                       \
    CALL(weir_open, (P(0, &made.w), P(1, &right.options), P(2, &right.error)), -EINVAL, 0, 0)      \
    CALL(weir_reload, (P(0, world.w), P(1, &right.options), P(2, &right.error)), -EINVAL, -ENOENT, \
         0)                                                                                        \
    CALL(weir_close, (P(0, world.w)), 0)                                                           \
    CALL(weir_sets, (P(0, world.w), P(1, right.names), 4), -EINVAL, -EINVAL)                       \
    CALL(weir_pools, (P(0, world.w), P(1, right.names), 4), -EINVAL, -EINVAL)                      \
    CALL(weir_plugins,                                                                             \
         (P(0, &right.options), P(1, stop_at_plugin), P(2, &right), P(3, &right.error)), 1,        \
         -EINVAL, 1, 1)                                                                            \
    CALL(weir_plugin_files,                                                                        \
         (P(0, &right.options), P(1, stop_at_plugin), P(2, &right), P(3, &right.error)), 1,        \
         -EINVAL, 1, 1)                                                                            \
    CALL(weir_plugin_file,                                                                         \
         (P(0, "/nowhere/at/all.so"), P(1, stop_at_plugin), P(2, &right), P(3, &right.error)),     \
         -EINVAL, -EINVAL, -ENOENT, -ENOENT)                                                       \
    CALL(weir_plugin_dirs,                                                                         \
         (P(0, &right.options), P(1, stop_at_dir), P(2, &right), P(3, &right.error)), 0, -EINVAL,  \
         0, 0)                                                                                     \
    CALL(weir_check_backends, (P(0, world.w), 1, P(1, stop_at_backend), P(2, &right)), -EINVAL,    \
         -EINVAL, 0)                                                                               \
    CALL(weir_pool_open, (P(0, &made.pool), P(1, world.w), P(2, "main"), 0, P(3, &right.error)),   \
         -EINVAL, -EINVAL, -EINVAL, 0)                                                             \
    CALL(weir_pool_new, (P(0, &made.pool), P(1, world.w), P(2, &right.spec), P(3, &right.error)),  \
         -EINVAL, -EINVAL, -EINVAL, 0)                                                             \
    CALL(weir_pool_close, (P(0, world.pool)), 0)                                                   \
    CALL(weir_pool_balancer, (P(0, world.pool)), 0)                                                \
    CALL(weir_pool_flags, (P(0, world.pool)), 0)                                                   \
    CALL(weir_pool_sets, (P(0, world.pool)), 0)                                                    \
    CALL(weir_pool_set, (P(0, world.pool), 0), 0)                                                  \
    CALL(weir_queue_open, (P(0, &made.queue), P(1, world.w), 4), -EINVAL, -EINVAL)                 \
    CALL(weir_queue_submit,                                                                        \
         (P(0, right.queue), P(1, world.pool), P(2, &right.request), 7, P(3, &made.acquisition),   \
          P(4, &right.refusal)),                                                                   \
         -EINVAL, -EINVAL, 0, 0, 0)                                                                \
    CALL(weir_queue_cancel, (P(0, right.queue), 7), -EINVAL)                                       \
    CALL(weir_queue_fd, (P(0, right.queue)), -EINVAL)                                              \
    CALL(weir_queue_reap, (P(0, right.queue), P(1, &right.completion), 1), -EINVAL, -EINVAL)       \
    CALL(weir_queue_attach, (P(0, right.queue), 0), -EINVAL)                                       \
    CALL(weir_queue_detach, (P(0, right.queue)), -EINVAL)                                          \
    CALL(weir_queue_close, (P(0, right.queue)), 0)                                                 \
    CALL(weir_segments,                                                                            \
         (P(0, &right.admin), P(1, stop_at_segment), P(2, &right), P(3, &right.error)), 0,         \
         -EINVAL, 0, 0)                                                                            \
    CALL(weir_segment_dir, (P(0, &right.admin), P(1, &made.directory), P(2, &right.error)), 0,     \
         -EINVAL, 0)                                                                               \
    CALL(weir_segment_users,                                                                       \
         (P(0, &right.admin), P(1, "none"), P(2, right.users), 1, P(3, &right.error)), -ENOENT,    \
         -EINVAL, -EINVAL, -ENOENT)                                                                \
    CALL(weir_segment_remove, (P(0, &right.admin), P(1, "none"), 0, P(2, &right.error)), -ENOENT,  \
         -EINVAL, -ENOENT)                                                                         \
    CALL(weir_segment_redefine,                                                                    \
         (P(0, &right.admin), P(1, "none"), 0, P(2, stop_at_redefinition), P(3, &right),           \
          P(4, &right.error)),                                                                     \
         -EINVAL, -EINVAL, -ENOENT, -ENOENT, -ENOENT)                                              \
    CALL(weir_engine_redefine,                                                                     \
         (P(0, world.set), 0, 1, P(1, stop_at_redefinition), P(2, &right), P(3, &right.error)),    \
         -EINVAL, -EINVAL, -EINVAL, -EINVAL)                                                       \
    CALL(weir_segment_fault, (P(0, &right.siginfo)), 0)                                            \
    CALL(weir_token_open, (P(0, &made.token), P(1, world.w)), -EINVAL, -EINVAL)                    \
    CALL(weir_token_cancel, (P(0, right.token)), -EINVAL)                                          \
    CALL(weir_token_is_canceled, (P(0, right.token)), -EINVAL)                                     \
    CALL(weir_token_close, (P(0, right.token)), 0)                                                 \
    CALL(weir_set_name, (P(0, world.set)), 0)                                                      \
    CALL(weir_set_config, (P(0, world.set), P(1, "host")), 0, 0)                                   \
    CALL(weir_set_config_settings, (P(0, world.set), P(1, right.settings), 8), -EINVAL, -EINVAL)   \
    CALL(weir_set_limit_key, (P(0, world.set), 0), 0)                                              \
    CALL(weir_set_limit_find, (P(0, world.set), P(1, "c"), 0), -EINVAL, -EINVAL)                   \
    CALL(weir_set_limits, (P(0, world.set)), 0)                                                    \
    CALL(weir_set_info, (P(0, world.set), P(1, &right.info)), -EINVAL, -EINVAL)                    \
    CALL(weir_set_limit_settings, (P(0, world.set), 0, P(1, right.settings), 8), -EINVAL, -EINVAL) \
    CALL(weir_set_subjects, (P(0, world.set), P(1, &right.subjects)), -EINVAL, -EINVAL)            \
    CALL(weir_set_stats, (P(0, world.set), P(1, &right.stats), P(2, &right.limit_stats), 1),       \
         -EINVAL, -EINVAL, -EINVAL)                                                                \
    CALL(weir_set_lease_stats, (P(0, world.set), 0, P(1, &right.lease_stats)), -EINVAL, -EINVAL)   \
    CALL(weir_set_limit_gauges, (P(0, world.set), 0, P(1, &right.gauge), 1), -EINVAL, -EINVAL)     \
    CALL(weir_set_holders, (P(0, world.set), P(1, &right.holder), 1), -EINVAL, -EINVAL)            \
    CALL(weir_set_holder_amounts, (P(0, world.set), P(1, &right.holder), P(2, right.amounts), 4),  \
         -EINVAL, -EINVAL, -EINVAL)                                                                \
    CALL(weir_set_holder_overheld, (P(0, world.set), P(1, &right.holder), P(2, &right.overheld)),  \
         -EINVAL, -EINVAL, -EINVAL)                                                                \
    CALL(weir_set_classes, (P(0, world.set), P(1, &right.class_stats), 1), -EINVAL, -EINVAL)

#define MAKE_CALL(name, arguments, ...)                                                            \
    static intptr_t call_##name(int null)                                                          \
    {                                                                                              \
        return (intptr_t)name arguments;                                                           \
    }
CALLS(MAKE_CALL)

#define RESULTS_MAX 5
#define MAKE_ROW(name_, arguments, ...)                                                            \
    {.name = #name_,                                                                               \
     .call = call_##name_,                                                                         \
     .pointers = sizeof((const intptr_t[]){__VA_ARGS__}) / sizeof(intptr_t),                       \
     .results = {__VA_ARGS__}},

static const struct row {
    const char *name;
    intptr_t (*call)(int null);
    size_t pointers;
    intptr_t results[RESULTS_MAX];
} rows[] = {CALLS(MAKE_ROW)};

#define ROWS_N (sizeof(rows) / sizeof(*rows))

static void make_right(void)
{
    static const struct weir_limit_spec limit = {
        .size = sizeof(limit), .type = WEIR_LIMIT_RESOURCE, .key = "r", .capacity = 3};
    static const struct weir_set_spec set = {
        .size = sizeof(set), .name = "own", .limits = &limit, .limits_n = 1};
    static const char text[] = "version: 1\nsets: { s: { limits: [ " LIMIT " ] } }\n";

    world_open("version: 1\nsets: { main: { config: { host: h }, limits: [ " LIMIT " ] } }\n",
               "main");
    memset(&right, 0, sizeof(right));
    memset(&made, 0, sizeof(made));
    right.options = (struct weir_options){.size = sizeof(right.options), .text = text};
    right.listener = (struct weir_listener){.size = sizeof(right.listener), .event = hear};
    right.admin =
        (struct weir_options){.size = sizeof(right.admin), .process_dir = world_directory()};
    right.spec = (struct weir_pool_spec){.size = sizeof(right.spec), .sets = &set, .sets_n = 1};
    right.request.size = sizeof(right.request);
    right.refusal.size = sizeof(right.refusal);
    right.info.size = sizeof(right.info);
    right.stats.size = sizeof(right.stats);
    right.subjects.size = sizeof(right.subjects);
    right.limit = (struct weir_remaining){.type = WEIR_LIMIT_CALL, .key = "c", .capacity = 1};
    assert_int_equal(weir_queue_open(&right.queue, world.w, 4), 0);
    assert_int_equal(weir_token_open(&right.token, world.w), 0);
    assert_int_equal(take(ASK({"c", 100})), 0);
    right.ended = pending(with_timeout(ASK({"c", 100}), SECOND / 1000));
    advance(5 * SECOND);
    assert_int_equal(weir_acquisition_result(right.ended), -ETIMEDOUT);
    right.held = granted(ASK({"c", 2}));
    assert_int_equal(weir_set_holders(world.set, &right.holder, 1), 1);
}

static void unmake_right(void)
{
    made.pool = weir_pool_close(made.pool);
    made.queue = weir_queue_close(made.queue);
    made.w = weir_close(made.w);
    if (made.directory > 0)
        os_close(made.directory); /* which counts it */
    weir_release(&made.acquisition);
    weir_release(&right.held);
    weir_release(&right.ended);
    right.queue = weir_queue_close(right.queue);
    right.token = weir_token_close(right.token);
    made.token = weir_token_close(made.token);
    world_close();
}

static void each_pointer_may_be_null(void **state)
{
    (void)state;
    unsetenv("WEIR_CONFIG");
    setenv("WEIR_PROCESS_DIR", world_directory(), 1);
    for (size_t i = 0; i < ROWS_N; i++) {
        for (size_t null = 0; null < rows[i].pointers; null++) {
            struct picture before;
            intptr_t result;

            make_right();
            before = picture();
            result = rows[i].call((int)null);
            if (result != rows[i].results[null])
                fail_msg("%s with pointer %zu NULL: %zd, not %zd", rows[i].name, null,
                         (ssize_t)result, (ssize_t)rows[i].results[null]);
            if (result < 0) {
                struct picture after = picture();

                assert_same_limits(&before, &after);
                assert_true(!made.w && !made.pool && !made.queue && !made.acquisition &&
                            !made.token);
            }
            unmake_right();
        }
    }
}

/* ---- sizes, flags and numbers ---- */

static void wrong_requests_are_refused(void **state)
{
    const struct weir_amount no_key = {NULL, 1};
    const size_t size = sizeof(struct weir_request);
    const struct weir_request wrong[] = {
        {.size = 0},
        {.size = 1},
        {.size = size - 1},
        {.size = size, .flags = 2},
        {.size = size, .flags = UINT32_MAX},
        {.size = offsetof(struct weir_request, token), .amounts_n = 1},
        {.size = size, .amounts_n = 1},
        {.size = size, .amounts_n = SIZE_MAX},
        {.size = size, .amounts = &no_key, .amounts_n = 1},
    };

    (void)state;
    make_right();
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct picture before = picture(), after;
        uint64_t at = 7;

        assert_int_equal(take(&wrong[i]), -EINVAL);
        assert_int_equal(try_acquire(&wrong[i], &made.acquisition), -EINVAL);
        assert_int_equal(submit(&wrong[i], &made.acquisition), -EINVAL);
        assert_int_equal(weir_acquire(world.pool, &wrong[i], &made.acquisition, NULL), -EINVAL);
        assert_int_equal(reserve(&wrong[i], &made.acquisition, &at), -EINVAL);
        assert_int_equal(
            weir_queue_submit(right.queue, world.pool, &wrong[i], 1, &made.acquisition, NULL),
            -EINVAL);
        assert_int_equal(weir_set_ready_at(world.set, &wrong[i], &at), -EINVAL);
        assert_null(made.acquisition);
        assert_int_equal(at, 7);
        after = picture();
        assert_same_limits(&before, &after);
    }
    /* A request of a later version is larger. */
    assert_int_equal(take(&(struct weir_request){.size = SIZE_MAX}), 0);
    unmake_right();
}

/* Every call that refuses a request as -EINVAL says why, and the log does once. */
static void expect_reason(const struct weir_request *request, const char *reason)
{
    struct weir_refusal refusals[3] = {{.size = sizeof(refusals[0])},
                                       {.size = sizeof(refusals[0])},
                                       {.size = sizeof(refusals[0])}};

    assert_int_equal(weir_take(world.pool, request, &refusals[0]), -EINVAL);
    assert_int_equal(weir_acquire(world.pool, request, &made.acquisition, &refusals[1]), -EINVAL);
    assert_int_equal(
        weir_queue_submit(right.queue, world.pool, request, 1, &made.acquisition, &refusals[2]),
        -EINVAL);
    for (int i = 0; i < 3; i++) {
        assert_non_null(refusals[i].reason);
        assert_non_null(strstr(refusals[i].reason, reason));
        assert_true(refusals[i].key && refusals[i].set);
        assert_true(refusals[i].retry_after_ns == WEIR_FOREVER);
    }
}

static void a_wrong_request_says_why(void **state)
{
    const struct weir_amount no_key = {NULL, 1}, twice[] = {{"c", 1}, {"c", 1}};
    const size_t size = sizeof(struct weir_request);
    struct weir_refusal refused = {.size = sizeof(refused)}, small = {.size = sizeof(small) - 1};

    (void)state;
    make_right();
    assert_int_equal(world.logged, 0);
    expect_reason(&(struct weir_request){.amounts_n = 0}, "`size` is 0: set it to sizeof");
    assert_int_equal(world.logged, 1);
    assert_non_null(strstr(world.log[0], "a request is refused: the request's `size` is 0"));
    expect_reason(&(struct weir_request){.size = 3}, "`size` is not that of");
    expect_reason(&(struct weir_request){.size = size, .amounts_n = 1}, "`amounts` is NULL");
    expect_reason(&(struct weir_request){.size = size, .flags = 1u << 31}, "a flag");
    expect_reason(&(struct weir_request){.size = size, .amounts = &no_key, .amounts_n = 1},
                  "no key");
    expect_reason(&(struct weir_request){.size = size, .amounts = twice, .amounts_n = 2}, "twice");
    assert_int_equal(world.logged, 1);
    assert_int_equal(weir_take(world.pool, &(struct weir_request){.size = 0}, &small), -EINVAL);
    assert_null(small.reason);
    assert_int_equal(weir_take(world.pool, ASK({"c", 100}), &refused), -EAGAIN);
    assert_null(refused.reason);
    unmake_right();

    world_limits("{ type: resource, key: r, capacity: 3 }, "
                 "{ type: rate, key: t, algorithm: gcra, capacity: 3, window: 1s }");
    assert_int_equal(weir_take(world.pool, ASK({"r", 1}), &refused), -EINVAL);
    assert_non_null(strstr(refused.reason, "a resource must be left out"));
    assert_int_equal(weir_take(world.pool, NULL, &refused), -EINVAL);
    assert_non_null(strstr(refused.reason, "names nothing"));
    world_close();
}

static void wrong_sizes_of_results_are_refused(void **state)
{
    static const size_t wrong[] = {0, 1, 8};

    (void)state;
    make_right();
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        right.info.size = right.stats.size = right.subjects.size = right.refusal.size = wrong[i];
        right.lease_stats.size = wrong[i];
        assert_int_equal(weir_set_info(world.set, &right.info), -EINVAL);
        assert_int_equal(weir_set_stats(world.set, &right.stats, NULL, 0), -EINVAL);
        assert_int_equal(weir_set_lease_stats(world.set, 0, &right.lease_stats), -EINVAL);
        assert_int_equal(weir_set_subjects(world.set, &right.subjects), -EINVAL);
        assert_int_equal(weir_acquisition_refusal(right.ended, &right.refusal), -EINVAL);
        assert_null(right.refusal.key);
    }
    assert_int_equal(weir_set_limit_settings(world.set, SIZE_MAX, right.settings, 8), -EINVAL);
    assert_null(weir_pool_set(world.pool, SIZE_MAX));
    assert_int_equal(weir_queue_open(&made.queue, world.w, 0), -EINVAL);
    assert_int_equal(weir_queue_open(&made.queue, world.w, WEIR_QUEUE_CAPACITY_MAX + 1), -EINVAL);
    assert_int_equal(weir_queue_open(&made.queue, world.w, UINT_MAX), -EINVAL);
    assert_int_equal(weir_acquisition_attach(right.held, -1), -EBADF);
    assert_int_equal(weir_acquisition_attach(right.held, INT_MAX), -EBADF);
    assert_int_equal(weir_segment_remove(&right.admin, "none", 2, NULL), -EINVAL);
    assert_int_equal(weir_segment_remove(&right.admin, "none", UINT32_MAX, NULL), -EINVAL);
    assert_int_equal(weir_segment_users(&right.admin, "none", NULL, 1, NULL), -EINVAL);
    assert_int_equal(weir_segment_redefine(&right.admin, "none", 2, NULL, NULL, NULL), -EINVAL);
    unmake_right();
}

static void wrong_options_are_refused(void **state)
{
    const size_t size = sizeof(struct weir_options);
    const struct weir_clock small = {.size = 1}, none = {.size = sizeof(none)};
    const struct weir_options wrong[] = {
        {.size = 0},
        {.size = size - 1},
        {.size = size, .flags = 1u << 30},
        {.size = size, .flags = UINT32_MAX},
        {.size = size, .clock_source = WEIR_CLOCK_INJECTED},
        {.size = size, .clock_source = (enum weir_clock_source)77},
        {.size = size, .clock_source = (enum weir_clock_source) - 1},
        {.size = size, .timer_advance_ns = WEIR_TIMER_ADVANCE_MAX_NS + 1},
        {.size = size, .timer_advance_ns = UINT64_MAX},
        {.size = size, .clock = &small},
        {.size = size, .clock = &none},
        {.size = size, .file = "f", .text = "t"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct weir_error error = {0};
        weir *w = NULL;

        assert_int_equal(weir_open(&w, &wrong[i], &error), -EINVAL);
        assert_null(w);
        assert_int_equal(error.code, -EINVAL);
        assert_true(error.message[0]);
        assert_int_equal(weir_open(&w, &wrong[i], NULL), -EINVAL);
    }
}

/* Expects that this specification is refused, with words of the complaint. */
static void refused_spec(const struct weir_pool_spec *spec, const char *words)
{
    struct weir_error error = {0};

    assert_int_equal(weir_pool_new(&made.pool, world.w, spec, &error), -EINVAL);
    assert_null(made.pool);
    if (!strstr(error.message, words))
        fail_msg("`%s` says nothing of `%s`", error.message, words);
}

static void refused_set(const struct weir_set_spec *set, const char *words)
{
    refused_spec(
        &(struct weir_pool_spec){.size = sizeof(struct weir_pool_spec), .sets = set, .sets_n = 1},
        words);
}

static void refused_limit(const struct weir_limit_spec *limit, const char *words)
{
    refused_set(
        &(struct weir_set_spec){
            .size = sizeof(struct weir_set_spec), .name = "own", .limits = limit, .limits_n = 1},
        words);
}

static void wrong_limits_are_refused(void **state)
{
    const size_t size = sizeof(struct weir_limit_spec);
    const struct weir_limit_spec limit = {
        .size = size, .type = WEIR_LIMIT_RESOURCE, .key = "r", .capacity = 3};
    static const size_t sizes[] = {0, 1, 8, 12, 4097, 8192, SIZE_MAX, SIZE_MAX - 7};
    static const int types[] = {0, 4, 77, -1, INT_MAX, INT_MIN}, choices[] = {3, 77, -1, INT_MAX};
    static const size_t counts[] = {65, SIZE_MAX};
    struct weir_limit_spec wrong;

    (void)state;
    make_right();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        wrong = limit;
        wrong.size = sizes[i];
        refused_limit(&wrong, "size of struct weir_limit_spec");
    }
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        wrong = limit;
        wrong.type = (enum weir_limit_type)types[i];
        refused_limit(&wrong, "type");
    }
    for (size_t i = 0; i < sizeof(choices) / sizeof(*choices); i++) {
        wrong = limit;
        wrong.refund = (enum weir_choice)choices[i];
        refused_limit(&wrong, "refund");
        wrong = limit;
        wrong.charge_overuse = (enum weir_choice)choices[i];
        refused_limit(&wrong, "charge_overuse");
    }
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
        wrong = limit;
        wrong.settings_n = counts[i];
        refused_limit(&wrong, "settings");
    }
    unmake_right();
}

/* One array has structs of one size: behind the last, nothing may be read. */
static void an_array_has_structs_of_one_size(void **state)
{
    struct {
        struct weir_limit_spec limits[2];
        char behind[4096];
    } array = {.limits = {{.size = sizeof(struct weir_limit_spec),
                           .type = WEIR_LIMIT_RESOURCE,
                           .key = "r",
                           .capacity = 3},
                          {.size = sizeof(array.limits[0]) + sizeof(size_t),
                           .type = WEIR_LIMIT_RESOURCE,
                           .key = "s",
                           .capacity = 3}}};
    struct weir_set_spec set = {
        .size = sizeof(set), .name = "own", .limits = array.limits, .limits_n = 2};

    (void)state;
    make_right();
    refused_set(&set, "all structs of an array have one size");
    array.limits[1].size -= 2 * sizeof(size_t);
    refused_set(&set, "all structs of an array have one size");
    unmake_right();
}

static void wrong_sets_are_refused(void **state)
{
    const size_t size = sizeof(struct weir_set_spec);
    const struct weir_limit_spec limit = {
        .size = sizeof(limit), .type = WEIR_LIMIT_RESOURCE, .key = "r", .capacity = 3};
    const struct weir_subjects_spec small = {.size = 0}, large = {.size = SIZE_MAX},
                                    none = {.size = sizeof(none)},
                                    many = {.size = sizeof(many), .max = WEIR_SUBJECTS_MAX + 1},
                                    most = {.size = sizeof(most), .max = UINT64_MAX},
                                    tiny = {.size = sizeof(tiny), .max = 5, .memory = 1};
    const struct {
        struct weir_set_spec set;
        const char *words;
    } wrong[] = {
        {{.size = 0, .name = "own"}, "size of struct weir_set_spec"},
        {{.size = 8, .name = "own"}, "size of struct weir_set_spec"},
        {{.size = SIZE_MAX, .name = "own"}, "size of struct weir_set_spec"},
        {{.size = size}, "name"},
        {{.size = size, .name = ""}, "name"},
        {{.size = size, .name = "own", .flags = 4}, "flags"},
        {{.size = size, .name = "own", .flags = UINT32_MAX}, "flags"},
        {{.size = size, .name = "own", .limits_n = 1}, "limits is NULL"},
        {{.size = size, .name = "own", .limits = &limit, .limits_n = 65}, "limits_n is 65"},
        {{.size = size, .name = "own", .limits = &limit, .limits_n = SIZE_MAX}, "limits_n"},
        {{.size = size, .name = "own", .config_n = 1}, "config is NULL"},
        {{.size = size, .name = "own", .config = right.settings, .config_n = 4097}, "config_n"},
        {{.size = size, .name = "own", .config = right.settings, .config_n = 1}, "not NULL"},
        {{.size = size, .name = "own", .backend = "elsewhere"}, "backend"},
        {{.size = size, .name = "own", .lifetime = "boot"}, "lifetime"},
        {{.size = size, .name = "own", .limits = &limit, .limits_n = 1, .subjects = &small},
         "size"},
        {{.size = size, .name = "own", .limits = &limit, .limits_n = 1, .subjects = &large},
         "size"},
        {{.size = size, .name = "own", .limits = &limit, .limits_n = 1, .subjects = &none}, "max"},
        {{.size = size, .name = "own", .limits = &limit, .limits_n = 1, .subjects = &many}, "max"},
        {{.size = size, .name = "own", .limits = &limit, .limits_n = 1, .subjects = &most}, "max"},
        {{.size = size, .name = "own", .limits = &limit, .limits_n = 1, .subjects = &tiny},
         "memory"},
    };

    (void)state;
    make_right();
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        refused_set(&wrong[i].set, wrong[i].words);
    unmake_right();
}

static void wrong_pools_are_refused(void **state)
{
    const size_t size = sizeof(struct weir_pool_spec);
    static const char *const names[] = {NULL};
    const struct weir_set_spec set = {.size = sizeof(set), .name = "own"};
    const struct {
        struct weir_pool_spec pool;
        const char *words;
    } wrong[] = {
        {{.size = 0}, "size of struct weir_pool_spec"},
        {{.size = size + 4096}, "size of struct weir_pool_spec"},
        {{.size = SIZE_MAX}, "size of struct weir_pool_spec"},
        {{.size = size, .sets_n = 1}, "sets is NULL"},
        {{.size = size, .sets = &set, .sets_n = SIZE_MAX}, "sets_n"},
        {{.size = size, .set_names_n = 1}, "set_names is NULL"},
        {{.size = size, .set_names = names, .set_names_n = SIZE_MAX}, "set_names_n"},
        {{.size = size, .set_names = names, .set_names_n = 1}, "NULL"},
        {{.size = size, .settings_n = 1}, "settings is NULL"},
        {{.size = size, .settings = right.settings, .settings_n = 65}, "settings_n"},
        {{.size = size, .settings = right.settings, .settings_n = 1}, "not NULL"},
        {{.size = size, .name = ""}, "name"},
        {{.size = size, .balancer = ""}, "balancer"},
    };

    (void)state;
    make_right();
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        refused_spec(&wrong[i].pool, wrong[i].words);
    unmake_right();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(each_pointer_may_be_null),
        leak_checked_test(wrong_requests_are_refused),
        leak_checked_test(a_wrong_request_says_why),
        leak_checked_test(wrong_sizes_of_results_are_refused),
        leak_checked_test(wrong_options_are_refused),
        leak_checked_test(wrong_limits_are_refused),
        leak_checked_test(an_array_has_structs_of_one_size),
        leak_checked_test(wrong_sets_are_refused),
        leak_checked_test(wrong_pools_are_refused),
    };

    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < ROWS_N; i++)
            printf("%s %zu\n", rows[i].name, rows[i].pointers);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
