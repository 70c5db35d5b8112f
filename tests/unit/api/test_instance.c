/* SPDX-License-Identifier: MIT */
/* Opening, closing with waiters in all forms, and fork. */
#include "api/instance.h"
#include "api/set_object.h"
#include "lib/world.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOT "limits: [ { type: resource, key: r, capacity: 1 } ]"
#define RATE "{ type: rate, key: tokens, algorithm: token_bucket, capacity: 10, window: 10s }"

#if defined(__SANITIZE_THREAD__)
#define IS_THREAD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define IS_THREAD_SANITIZED 1
#endif
#endif
#ifndef IS_THREAD_SANITIZED
#define IS_THREAD_SANITIZED 0
#endif

/* Opening */

static void wrong_options_are_einval(void **state)
{
    static const struct weir_clock small = {.size = 1}, empty = {.size = sizeof(empty)};
    const struct weir_options wrong[] = {
        {.size = sizeof(*wrong) - 1},
        {.size = 0},
        {.size = sizeof(*wrong), .file = "x", .text = "version: 1\n"},
        {.size = sizeof(*wrong), .clock = &small},
        {.size = sizeof(*wrong), .clock = &empty},
        {.size = sizeof(*wrong), .text = "version: 2\n"},
        {.size = sizeof(*wrong), .process_dir = "run/weir"},
        {.size = sizeof(*wrong), .process_dir = ""},
        {.size = sizeof(*wrong), .text = "version: 1\n", .process_dir = "run/weir"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct weir_error error = {0};
        weir *w = NULL;

        assert_int_equal(weir_open(&w, &wrong[i], &error), -EINVAL);
        assert_int_equal(error.code, -EINVAL);
        assert_true(strlen(error.message) > 0);
        assert_null(w);
        assert_int_equal(weir_open(&w, &wrong[i], NULL), -EINVAL);
        assert_int_equal(weir_open(NULL, &wrong[i], NULL), -EINVAL);
    }
}

static void a_file_that_is_not_there_is_enoent(void **state)
{
    struct weir_options options = {.size = sizeof(options), .file = "/nonexistent/weir.yaml"};
    struct weir_error error = {0};
    weir *w = NULL;

    (void)state;
    assert_int_equal(weir_open(&w, &options, &error), -ENOENT);
    assert_string_equal(error.file, "/nonexistent/weir.yaml");
    assert_null(w);
}

static void weir_config_names_the_file(void **state)
{
    char path[] = "/tmp/weir-test-XXXXXX";
    int fd = mkstemp(path);
    weir_pool *pool = NULL;
    weir *w = NULL;

    (void)state;
    assert_true(fd >= 0);
    assert_true(dprintf(fd, "version: 1\nsets: { s: { limits: [] } }\n") > 0);
    close(fd);
    setenv("WEIR_CONFIG", path, 1);
    assert_int_equal(weir_open(&w, NULL, NULL), 0);
    assert_int_equal(weir_pool_open(&pool, w, "s", 0, NULL), 0);
    weir_pool_close(pool);
    pool = NULL;
    assert_int_equal(weir_pool_open(&pool, w, "t", 0, NULL),
                     -ENOENT); /* there is a configuration */
    weir_close(w);
    unlink(path);
    assert_int_equal(weir_open(&w, NULL, NULL), -ENOENT);
    unsetenv("WEIR_CONFIG");
}

static void expect_process_dir(const char *option, const char *text, const char *dir)
{
    const struct weir_options options = {
        .size = sizeof(options), .text = text, .process_dir = option};
    weir *w = NULL;

    assert_int_equal(weir_open(&w, &options, NULL), 0);
    if (dir)
        assert_string_equal(w->process_dir, dir);
    else
        assert_null(w->process_dir);
    weir_close(w);
}

/* Options before the configuration, before the environment. */
static void segments_are_where_the_first_of_three_says(void **state)
{
    static const char silent[] = "version: 1\n", text[] = "version: 1\nprocess_dir: /text\n";
    struct weir_error error;
    weir *w = NULL;

    (void)state;
    expect_process_dir(NULL, NULL, NULL);
    expect_process_dir(NULL, silent, NULL);
    setenv("WEIR_PROCESS_DIR", "", 1);
    expect_process_dir(NULL, silent, NULL);
    setenv("WEIR_PROCESS_DIR", "/environment", 1);
    expect_process_dir(NULL, NULL, "/environment");
    expect_process_dir(NULL, silent, "/environment");
    expect_process_dir(NULL, text, "/text");
    expect_process_dir("/option", NULL, "/option");
    expect_process_dir("/option", text, "/option");
    setenv("WEIR_PROCESS_DIR", "environment", 1);
    expect_process_dir(NULL, text, "/text");
    assert_int_equal(weir_open(&w, NULL, &error), -EINVAL);
    assert_string_equal(error.message, "WEIR_PROCESS_DIR is `environment`, not an absolute path: "
                                       "begin it with `/`");
    assert_string_equal(error.file, "");
    unsetenv("WEIR_PROCESS_DIR");
}

/* Without limits there is no state, and nothing to share but the name. */
/* What is left of a configuration if only `only` is wanted: names of sets, then of pools. */
static void assert_left(const char *only, const char *expected)
{
    static const char text[] = "version: 1\n"
                               "sets: { a: {}, b: { " SLOT " }, c: {}, d: {} }\n"
                               "pools: { p: { sets: [c, a] }, q: { sets: [b] }, r: {} }\n";
    struct weir_options options = {.size = sizeof(options), .text = text, .only = only};
    const char *names[8];
    char left[64] = "";
    weir *w = NULL;
    int n;

    assert_int_equal(weir_open(&w, &options, NULL), 0);
    n = weir_sets(w, names, 8);
    for (int i = 0; i < n; i++)
        strcat(left, names[i]);
    strcat(left, " ");
    n = weir_pools(w, names, 8);
    for (int i = 0; i < n; i++)
        strcat(left, names[i]);
    assert_string_equal(left, expected);
    weir_close(w);
}

static void all_but_one_can_be_left_out(void **state)
{
    struct weir_options wrong = {.size = sizeof(wrong),
                                 .text = "version: 1\nsets: { a: {}, b: { limit: [] } }\n",
                                 .only = "a"};
    weir_pool *pool = NULL;
    weir *w = NULL;

    (void)state;
    assert_left(NULL, "abcd pqr");
    assert_left("a", "a ");
    assert_left("d", "d ");
    assert_left("p", "ac p");
    assert_left("q", "b q");
    assert_left("r", " r");
    assert_left("x", " ");
    assert_left("", " ");
    assert_int_equal(weir_open(&w, &wrong, NULL), -EINVAL); /* it is checked all the same */
    wrong.text = "version: 1\nsets: { a: {}, b: {} }\n";
    assert_int_equal(weir_open(&w, &wrong, NULL), 0);
    assert_int_equal(weir_pool_open(&pool, w, "b", 0, NULL), -ENOENT);
    assert_int_equal(weir_pool_open(&pool, w, "a", 0, NULL), 0);
    weir_pool_close(pool);
    weir_close(w);
}

static void a_set_says_where_its_state_is(void **state)
{
    static const struct {
        const char *fields, *backend, *lifetime;
    } rows[] = {
        {"", "thread", NULL},
        {"backend: thread", "thread", NULL},
        {"backend: process", "process", "boot"},
        {"backend: process, lifetime: boot", "process", "boot"},
        {"backend: process, lifetime: users", "process", "users"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct weir_set_info info = {.size = sizeof(info)};

        world_set(rows[i].fields);
        assert_int_equal(weir_set_info(world.set, &info), 0);
        assert_string_equal(info.backend, rows[i].backend);
        if (rows[i].lifetime)
            assert_string_equal(info.lifetime, rows[i].lifetime);
        else
            assert_null(info.lifetime);
        release(granted(ASK({"anything", 1})));
        world_close();
    }
}

static void several_instances_do_not_disturb_each_other(void **state)
{
    struct world first;
    weir_acquisition *a, *b;

    (void)state;
    world_set(SLOT);
    first = world;
    a = granted(NULL);
    world_set(SLOT);
    b = granted(NULL);
    assert_int_equal(stats().held, 1);
    world_close();
    release(b);
    world = first;
    assert_int_equal(stats().held, 1);
    release(a);
    world_close();
}

/* What hears the log may use the library: no lock is held that it would need. */
static void ask_again(void *userdata, enum weir_log_level level, const char *message)
{
    unsigned *heard = userdata;
    weir_acquisition *a = NULL;
    weir_pool *pool = NULL;

    (void)level;
    (void)message;
    if (++*heard > 1)
        return;
    assert_int_equal(weir_pool_open(&pool, world.w, "main", 0, NULL), 0);
    assert_int_equal(weir_try_acquire(pool, ASK({"other", 1}), &a, NULL), 0);
    assert_int_equal(weir_release(&a), 0);
    weir_pool_close(pool);
}

static void the_log_callback_may_use_the_library(void **state)
{
    unsigned heard = 0;
    struct weir_options options = {.size = sizeof(options),
                                   .text = "version: 1\nsets: { main: { " SLOT " } }\n",
                                   .log = ask_again,
                                   .userdata = &heard};

    (void)state;
    world = (struct world){0};
    assert_int_equal(weir_open(&world.w, &options, NULL), 0);
    world.pool = pool_open("main", 0);
    release(granted(ASK({"unknown", 1})));
    assert_int_equal(heard, 2);
    world_close();
}

/* Closing */

/* Another thread closes the instance while a warning is heard, and the hearer gives something back.
 */
static void *close_world(void *unused)
{
    (void)unused;
    world.w = weir_close(world.w);
    return NULL;
}

static void close_and_release(void *held, enum weir_log_level level, const char *message)
{
    pthread_t thread;

    (void)level;
    (void)message;
    assert_int_equal(pthread_create(&thread, NULL, close_world, NULL), 0);
    pthread_join(thread, NULL);
    assert_int_equal(weir_release(held), 0);
}

/* What the release let go of is not used by the call that is under way: all memory comes back. */
static void an_instance_may_be_closed_while_a_warning_is_logged(void **state)
{
    weir_acquisition *held = NULL, *a = NULL;
    struct weir_options options = {.size = sizeof(options),
                                   .text = "version: 1\nsets: { main: { " SLOT " } }\n",
                                   .log = close_and_release,
                                   .userdata = &held};

    (void)state;
    world = (struct world){0};
    assert_int_equal(weir_open(&world.w, &options, NULL), 0);
    world.pool = pool_open("main", 0);
    held = granted(NULL);
    assert_int_equal(try_acquire(ASK({"unknown", 1}), &a), -ESHUTDOWN);
    assert_null(held);
    world_close();
}

static void closing_nothing_is_fine(void **state)
{
    (void)state;
    assert_null(weir_close(NULL));
}

static void pending_waiters_end_with_eshutdown(void **state)
{
    weir_acquisition *holder, *a, *b;
    int fd;

    (void)state;
    world_set(SLOT);
    holder = granted(NULL);
    a = pending(NULL);
    b = pending(with_timeout(ASK_DEFAULTS, SECOND));
    fd = weir_acquisition_fd(a);
    assert_false(readable(fd));
    world.w = weir_close(world.w);
    assert_null(world.w);
    assert_true(readable(fd));
    assert_int_equal(weir_acquisition_result(a), -ESHUTDOWN);
    assert_int_equal(weir_acquisition_result(b), -ESHUTDOWN);
    assert_int_equal(weir_cancel(a), -EALREADY);
    assert_int_equal(weir_acquisition_result(holder), 0);
    release(a);
    release(b);
    assert_int_equal(weir_release(&holder), 0);
    world_close();
}

/* The order of the last references is up to the program; the memory goes with the last. */
static void memory_goes_with_the_last_of_acquisitions_and_pools(void **state)
{
    (void)state;
    for (int order = 0; order < 3; order++) {
        weir_acquisition *holder, *waiter;

        world_limits("{ type: resource, key: r, capacity: 1 }," RATE);
        holder = granted(ASK({"r", 1}, {"tokens", 5}));
        waiter = pending(ASK({"r", 1}));
        if (order == 0)
            world.pool = weir_pool_close(world.pool);
        world.w = weir_close(world.w);
        assert_string_equal(weir_acquisition_set(holder), "main");
        if (order == 1)
            release(waiter);
        assert_int_equal(weir_update(holder, "tokens", 3), 0);
        release(holder);
        if (order != 1)
            release(waiter);
        world.pool = weir_pool_close(world.pool);
    }
}

static void calls_after_close_say_eshutdown(void **state)
{
    struct weir_pool_spec spec = {.size = sizeof(spec), .name = "q"};
    weir_acquisition *a = NULL, *holder;
    uint64_t at = 7;
    weir *w;

    (void)state;
    world_set(SLOT);
    holder = granted(NULL);
    w = world.w; /* the pool keeps its memory */
    world.w = weir_close(world.w);
    assert_int_equal(try_acquire(NULL, &a), -ESHUTDOWN);
    assert_int_equal(submit(NULL, &a), -ESHUTDOWN);
    assert_int_equal(weir_acquire(world.pool, NULL, &a, NULL), -ESHUTDOWN);
    assert_int_equal(take(ASK({"r", 0})), -ESHUTDOWN);
    assert_int_equal(reserve(ASK({"r", 0}), &a, &at), -ESHUTDOWN);
    assert_null(a);
    {
        weir_pool *pool = NULL;

        assert_int_equal(weir_pool_open(&pool, w, "main", 0, NULL), -ESHUTDOWN);
        assert_int_equal(weir_pool_new(&pool, w, &spec, NULL), -ESHUTDOWN);
        assert_null(pool);
    }
    assert_int_equal(stats().held, 1); /* looking is still fine */
    assert_int_equal(stats().waiting, 0);
    release(holder);
    world_close();
}

struct caller {
    pthread_t thread;
    int result;
};

static void *call(void *argument)
{
    struct caller *caller = argument;
    weir_acquisition *a = NULL;

    caller->result = weir_acquire(world.pool, NULL, &a, NULL);
    weir_release(&a);
    return NULL;
}

static void close_with_blocked(void)
{
    struct caller callers[4];
    weir_acquisition *holder = granted(NULL), *submitted;

    for (unsigned i = 0; i < 4; i++) {
        callers[i].result = 1;
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
    }
    while (stats().waiting < 4)
        sched_yield();
    submitted = pending(NULL);
    world.w = weir_close(world.w);
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(callers[i].thread, NULL);
        assert_int_equal(callers[i].result, -ESHUTDOWN);
    }
    assert_int_equal(weir_acquisition_result(submitted), -ESHUTDOWN);
    release(submitted);
    release(holder);
    world_close();
}

static void blocked_callers_are_woken_and_waited_for(void **state)
{
    (void)state;
    world_set(SLOT);
    close_with_blocked();
}

static void blocked_callers_on_the_real_clock_too(void **state)
{
    (void)state;
    world_real(SLOT);
    close_with_blocked();
}

static void a_thread_that_ends_gives_its_part_back(void **state)
{
    struct caller caller;

    (void)state;
    world_set(SLOT);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(pthread_create(&caller.thread, NULL, call, &caller), 0);
        pthread_join(caller.thread, NULL);
        assert_int_equal(caller.result, 0);
    }
    assert_int_equal(stats().granted, 20); /* its counts stay */
    assert_int_equal(stats().released, 20);
    world_close();
}

/* A call that looked before the instance was closed, and comes to the set only afterwards. */
static void a_call_under_way_says_eshutdown_too(void **state)
{
    weir_acquisition *a = NULL;
    struct thread_ctx *actor;

    (void)state;
    world_limits(RATE);
    actor = thread_ctx_borrow(world.set);
    set_shutdown(actor, world.set);
    thread_ctx_return(actor);
    assert_int_equal(try_acquire(ASK({"tokens", 1}), &a), -ESHUTDOWN);
    assert_null(refusal.set); /* it is untouched */
    assert_int_equal(submit(ASK({"tokens", 1}), &a), -ESHUTDOWN);
    assert_int_equal(take(ASK({"tokens", 1})), -ESHUTDOWN);
    assert_null(a);
    assert_int_equal(available(0), 10);
    world_close();
}

static void a_clock_at_its_end_stands_still(void **state)
{
    (void)state;
    world_limits(RATE);
    world.now = UINT64_MAX;
    assert_true(weir_now(world.w) == WEIR_CLOCK_MAX);
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    assert_int_equal(take(ASK({"tokens", 1})), -EAGAIN);
    world_close();
}

/* Fork. The child answers by its exit status: the line of the first check that failed, modulo 251.
 */

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            _exit(1 + __LINE__ % 251);                                                             \
    } while (0)

static void await(pid_t child)
{
    int status;

    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("the child ended with status %#x; a check failed at line ≡ %d (mod 251)",
                 (unsigned)status, WEXITSTATUS(status) - 1);
}

/* A waiter that starts the timer thread, which sleeps by then: so no thread uses a sanitizer's
 * allocator: a fork copies its locks as they are. */
static weir_acquisition *pending_before_a_fork(void)
{
    uint64_t before = fake_os_counts().epoll_wait;
    weir_acquisition *waiting = pending(NULL);

    while (fake_os_counts().epoll_wait == before)
        sched_yield();
    return waiting;
}

static void check_every_call(weir_acquisition *held, weir_acquisition *waiting)
{
    struct weir_pool_spec spec = {.size = sizeof(spec)};
    struct weir_set_stats s = {.size = sizeof(s)};
    weir_acquisition *a = NULL;
    weir_pool *pool = NULL;
    uint64_t at;

    CHECK(weir_take(world.pool, ASK({"r", 0}), NULL) == -ECHILD);
    CHECK(weir_try_acquire(world.pool, NULL, &a, NULL) == -ECHILD);
    CHECK(weir_acquire(world.pool, NULL, &a, NULL) == -ECHILD);
    CHECK(weir_submit(world.pool, NULL, &a, NULL) == -ECHILD);
    CHECK(weir_reserve(world.pool, NULL, &a, &at, NULL) == -ECHILD);
    CHECK(weir_acquisition_fd(held) == -ECHILD);
    CHECK(weir_acquisition_fd(waiting) == -ECHILD);
    CHECK(weir_acquisition_attach(waiting, 0) == -ECHILD);
    CHECK(weir_acquisition_result(held) == -ECHILD);
    CHECK(weir_acquisition_result(waiting) == -ECHILD);
    CHECK(weir_cancel(waiting) == -ECHILD);
    CHECK(weir_acquisition_refusal(waiting, NULL) == -ECHILD);
    CHECK(weir_update(held, "r", 1) == -ECHILD);
    CHECK(weir_set_ready_at(world.set, NULL, &at) == -ECHILD);
    CHECK(weir_set_stats(world.set, &s, NULL, 0) == -ECHILD);
    CHECK(weir_set_holders(world.set, NULL, 0) == -ECHILD);
    CHECK(weir_tick(world.w) == -ECHILD);
    CHECK(weir_pool_open(&pool, world.w, "main", 0, NULL) == -ECHILD);
    CHECK(weir_pool_new(&pool, world.w, &spec, NULL) == -ECHILD);
    CHECK(!a && !pool);
}

static void in_the_child_every_call_says_echild(void **state)
{
    weir_acquisition *held, *waiting;
    pid_t child;

    (void)state;
    world_set(SLOT);
    held = granted(NULL);
    waiting = pending(NULL);
    child = fork();
    if (child == 0) {
        check_every_call(held, waiting);
        CHECK(strcmp(weir_acquisition_set(held), "main") == 0); /* looking at names is harmless */
        _exit(0);
    }
    await(child);
    release(waiting);
    release(held);
    world_close();
}

static void give_everything_up_in_the_child(weir_acquisition *held, weir_acquisition *waiting)
{
    CHECK(weir_release(&held) == -ECHILD);
    CHECK(!held);
    CHECK(weir_release(&waiting) == -ECHILD);
    CHECK(!weir_pool_close(world.pool));
    CHECK(!weir_close(world.w));
}

static unsigned open_fds(void)
{
    unsigned n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* On the real clock: there are a timer thread, its descriptors, and an eventfd to be disturbed. */
static void releasing_and_closing_in_the_child_disturbs_nothing_of_the_parent(void **state)
{
    weir_acquisition *held, *waiting;
    unsigned fds_before = open_fds();
    pid_t child;
    int fd;

    (void)state;
    world_real("limits: [ { type: resource, key: r, capacity: 1 } ]");
    held = granted(NULL);
    waiting = pending_before_a_fork();
    fd = weir_acquisition_fd(waiting);
    child = fork();
    if (child == 0) {
        give_everything_up_in_the_child(held, waiting);
        CHECK(open_fds() == fds_before); /* its copies are closed */
        _exit(0);
    }
    await(child);
    assert_int_equal(stats().held, 1);
    assert_int_equal(stats().waiting, 1);
    assert_int_equal(limit_stats(0).held, 1);
    assert_false(readable(fd));
    release(held);
    assert_int_equal(weir_acquisition_result(waiting), 0);
    assert_true(readable(fd));
    release(waiting);
    /* The parent's timer thread still keeps time. */
    held = granted(NULL);
    waiting = pending(with_timeout(ASK_DEFAULTS, 5 * MS));
    while (weir_acquisition_result(waiting) == -EINPROGRESS)
        sched_yield();
    assert_int_equal(weir_acquisition_result(waiting), -ETIMEDOUT);
    release(waiting);
    release(held);
    world_close();
}

static void use_an_instance_of_its_own(bool with_a_timer_thread)
{
    struct weir_options options = {.size = sizeof(options),
                                   .text = "version: 1\nsets: { s: { limits: [ { type: resource,"
                                           " key: r, capacity: 1 } ] } }\n"};
    weir_acquisition *a = NULL, *b = NULL;
    weir_pool *pool = NULL;
    weir *w = NULL;

    CHECK(weir_open(&w, &options, NULL) == 0);
    CHECK(weir_pool_open(&pool, w, "s", 0, NULL) == 0);
    CHECK(weir_acquire(pool, NULL, &a, NULL) == 0);
    if (with_a_timer_thread) {
        CHECK(weir_submit(pool, with_timeout(ASK_DEFAULTS, MS), &b, NULL) == 1);
        while (weir_acquisition_result(b) == -EINPROGRESS)
            sched_yield();
        CHECK(weir_acquisition_result(b) == -ETIMEDOUT);
        CHECK(weir_release(&b) == 0);
    }
    CHECK(weir_release(&a) == 0);
    CHECK(!weir_pool_close(pool));
    CHECK(!weir_close(w));
}

static void an_instance_opened_anew_in_the_child_works(void **state)
{
    weir_acquisition *held, *waiting;

    (void)state;
    if (getenv("MESON_EXE_WRAPPER") || IS_THREAD_SANITIZED) {
        print_message("neither qemu-user nor the thread sanitizer can start a thread in a child of"
                      " a process with threads\n");
        skip();
    }
    for (int given_up = 0; given_up < 2; given_up++) {
        pid_t child;

        world_real(SLOT);
        held = granted(NULL);
        waiting = pending_before_a_fork();
        child = fork();
        if (child == 0) {
            if (given_up)
                give_everything_up_in_the_child(held, waiting);
            use_an_instance_of_its_own(true);
            _exit(0);
        }
        await(child);
        release(waiting);
        release(held);
        world_close();
    }
}

/* Runs after weir's own, which was made before. A process that is a copy of one thread is no
 * business of the leak checkers that wait for an orderly end. */
static void leave_at_once(void *unused)
{
    (void)unused;
    _exit(0);
}

static void *fork_in_a_thread(void *argument)
{
    pid_t *child = argument;
    pthread_key_t key;

    release(granted(ASK({"r", 0}))); /* has a part in the parent's instance */
    *child = fork();
    if (*child == 0) {
        use_an_instance_of_its_own(false);
        CHECK(pthread_key_create(&key, leave_at_once) == 0);
        CHECK(pthread_setspecific(key, argument) == 0);
    }
    return NULL; /* in the child too: the thread ends with what it has of the parent's */
}

static void a_thread_may_end_in_the_child(void **state)
{
    weir_acquisition *held;
    pthread_t thread;
    pid_t child = -1;

    (void)state;
    world_set(SLOT);
    held = granted(NULL);
    assert_int_equal(pthread_create(&thread, NULL, fork_in_a_thread, &child), 0);
    pthread_join(thread, NULL);
    assert_true(child > 0);
    await(child);
    assert_int_equal(stats().held, 1);
    release(held);
    world_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(wrong_options_are_einval),
        leak_checked_test(a_file_that_is_not_there_is_enoent),
        leak_checked_test(weir_config_names_the_file),
        leak_checked_test(segments_are_where_the_first_of_three_says),
        leak_checked_test(all_but_one_can_be_left_out),
        leak_checked_test(a_set_says_where_its_state_is),
        leak_checked_test(several_instances_do_not_disturb_each_other),
        leak_checked_test(the_log_callback_may_use_the_library),
        leak_checked_test(an_instance_may_be_closed_while_a_warning_is_logged),
        leak_checked_test(closing_nothing_is_fine),
        leak_checked_test(pending_waiters_end_with_eshutdown),
        leak_checked_test(memory_goes_with_the_last_of_acquisitions_and_pools),
        leak_checked_test(calls_after_close_say_eshutdown),
        leak_checked_test(blocked_callers_are_woken_and_waited_for),
        leak_checked_test(blocked_callers_on_the_real_clock_too),
        leak_checked_test(a_thread_that_ends_gives_its_part_back),
        leak_checked_test(a_call_under_way_says_eshutdown_too),
        leak_checked_test(a_clock_at_its_end_stands_still),
        leak_checked_test(in_the_child_every_call_says_echild),
        leak_checked_test(releasing_and_closing_in_the_child_disturbs_nothing_of_the_parent),
        leak_checked_test(an_instance_opened_anew_in_the_child_works),
        leak_checked_test(a_thread_may_end_in_the_child),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
