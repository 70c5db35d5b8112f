/* SPDX-License-Identifier: MIT */
/* A reload changes of a shared set what each process has for itself, and drops a set for one
 * process. Two instances are two participants; the other one notices nothing. */
#include "lib/clock.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/tmpdir.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <weir/queue.h>
#include <weir/segment.h>
#include <weir/weir.h>

#include <cmocka.h>

#define SLOT(capacity) "{ type: resource, key: slot, capacity: " capacity " }"
#define MORE(capacity) "{ type: resource, key: more, capacity: " capacity " }"
#define RATE(capacity)                                                                             \
    "{ type: rate, key: rate, algorithm: token_bucket, capacity: " capacity ", window: 100d }"
#define SET(fields)   "version: 1\nsets: { s: { backend: process, " fields " } }\n"
#define SLOTS(own)    SET(own " limits: [ " SLOT("2") " ]")
#define SUBJECTS(own) SET(own " subjects: { max: 8 }, limits: [ " SLOT("2") " ]")
#define RATE_OF(own)  SET(own " subjects: { max: 8 }, limits: [ " RATE("10") " ]")
#define NOTHING       "version: 1\nsets: {}\n"
#define OTHER         "t: { limits: [ " SLOT("5") " ] }"

static char directory[TMPDIR_SIZE];
static struct weir_error error;
static bool has_more; /* the set has the limit `more` at times, besides */

static struct weir_options options_for(const char *text)
{
    return (struct weir_options){
        .size = sizeof(struct weir_options), .text = text, .process_dir = directory};
}

struct user {
    weir *w;
    weir_pool *pool;
};

static struct user user_open(const char *text)
{
    const struct weir_options options = options_for(text);
    struct user user = {0};

    error = (struct weir_error){0};
    if (weir_open(&user.w, &options, &error) < 0)
        fail_msg("%s", error.message);
    assert_int_equal(weir_pool_open(&user.pool, user.w, "s", 0, NULL), 0);
    return user;
}

static void user_close(struct user *user)
{
    weir_pool_close(user->pool);
    weir_close(user->w);
}

static int reload(const struct user *user, const char *text)
{
    const struct weir_options options = options_for(text);

    error = (struct weir_error){0};
    return weir_reload(user->w, &options, &error);
}

static int apply(const char *text)
{
    const struct weir_options options = options_for(text);

    error = (struct weir_error){0};
    return weir_segment_redefine(&options, "s", 0, NULL, NULL, &error);
}

/* A request for so much of a key, and nothing of others that a set may have. */
static struct weir_request ask(const char *key, uint64_t n, struct weir_amount amounts[2])
{
    amounts[0] = (struct weir_amount){.key = key, .amount = n};
    amounts[1] = (struct weir_amount){.key = strcmp(key, "more") == 0 ? "slot" : "more"};
    return (struct weir_request){.size = sizeof(struct weir_request),
                                 .amounts = amounts,
                                 .amounts_n = has_more ? 2 : 1,
                                 .subject = "one",
                                 .subject_size = 3};
}

static int try_n(const struct user *user, const char *key, uint64_t n, weir_acquisition **ret)
{
    struct weir_amount amounts[2];
    const struct weir_request request = ask(key, n, amounts);

    return weir_try_acquire(user->pool, &request, ret, NULL);
}

static int take(const struct user *user, uint64_t n)
{
    struct weir_amount amounts[2];
    const struct weir_request request = ask("rate", n, amounts);

    return weir_take(user->pool, &request, NULL);
}

static weir_acquisition *have(const struct user *user, uint64_t n)
{
    weir_acquisition *acquisition = NULL;

    assert_int_equal(try_n(user, "slot", n, &acquisition), 0);
    return acquisition;
}

static weir_acquisition *wait_for(const struct user *user, uint64_t n)
{
    weir_acquisition *acquisition = NULL;
    struct weir_amount amounts[2];
    const struct weir_request request = ask("slot", n, amounts);

    assert_int_equal(weir_submit(user->pool, &request, &acquisition, NULL), 1);
    return acquisition;
}

static void expect_result(weir_acquisition *acquisition, int result)
{
    struct pollfd fd = {weir_acquisition_fd(acquisition), POLLIN, 0};

    assert_int_equal(poll(&fd, 1, 20000), 1);
    assert_int_equal(weir_acquisition_result(acquisition), result);
}

static struct weir_set_stats stats_of(const struct user *user)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};

    assert_true(weir_set_stats(weir_pool_set(user->pool, 0), &stats, NULL, 0) >= 0);
    return stats;
}

/* Returns of how many acquisitions it was counted how long they were held. */
static uint64_t holds_of(const struct user *user)
{
    const struct weir_set_stats stats = stats_of(user);
    uint64_t n = 0;

    for (size_t i = 0; i < WEIR_WAIT_BUCKETS; i++)
        n += stats.hold_histogram[i];
    return n;
}

static struct weir_set_info info_of(const struct user *user)
{
    struct weir_set_info info = {.size = sizeof(info)};

    assert_int_equal(weir_set_info(weir_pool_set(user->pool, 0), &info), 0);
    return info;
}

/* Returns what remains of the only limit. */
static uint64_t remaining_of(const struct user *user)
{
    struct weir_amount amounts[2];
    const struct weir_request request = ask("rate", 1, amounts);
    struct weir_remaining remaining;

    assert_int_equal(weir_set_remaining(weir_pool_set(user->pool, 0), &request, &remaining, 1), 1);
    return remaining.available;
}

static int place_setup(void **state)
{
    has_more = false;
    return tmpdir_make(directory, NULL) ? fixture_setup(state) : -1;
}

static int place_teardown(void **state)
{
    int r = fixture_teardown(state);

    return tmpdir_remove(directory) ? r : -1;
}

#define place_test(function) cmocka_unit_test_setup_teardown(function, place_setup, place_teardown)

/* ---- what each process has for itself ---- */

static void expect_own_settings(const char *before, const char *after)
{
    struct user a = user_open(before), b = user_open(before);
    weir_acquisition *held = have(&a, 1), *later, *none = NULL;

    assert_string_equal(weir_acquisition_config(held, "model"), "small");
    assert_int_equal(reload(&a, after), 0);
    assert_int_equal(info_of(&a).timeout_ns, 3 * SECOND);
    assert_int_equal(info_of(&a).max_wait_ns, 2 * SECOND);
    assert_int_equal(info_of(&b).timeout_ns, WEIR_FOREVER);
    later = have(&a, 1);
    assert_string_equal(weir_acquisition_config(held, "model"), "small");
    assert_string_equal(weir_acquisition_config(later, "model"), "large");
    assert_int_equal(try_n(&a, "slot", 1, &none), -EAGAIN); /* the state is the same */
    assert_int_equal(try_n(&b, "slot", 1, &none), -EAGAIN);
    assert_int_equal(weir_release(&held), 0);
    assert_int_equal(weir_release(&later), 0);
    assert_int_equal(holds_of(&a), 1); /* that of the first definition is not counted */
    assert_int_equal(try_n(&a, "unknown", 1, &none), -ENOENT);
    held = have(&b, 2);
    assert_string_equal(weir_acquisition_config(held, "model"), "small");
    assert_int_equal(weir_release(&held), 0);
    assert_int_equal(reload(&a, before), 0);
    assert_int_equal(info_of(&a).timeout_ns, WEIR_FOREVER);
    later = have(&a, 2);
    assert_string_equal(weir_acquisition_config(later, "model"), "small");
    assert_int_equal(weir_release(&later), 0);
    user_close(&a);
    user_close(&b);
}

#define SMALL "config: { model: small },"
#define LARGE                                                                                      \
    "config: { model: large, url: here }, timeout: 3s, max_wait: 2s, strict: true, "               \
    "hold_histogram: true,"

static void a_reload_changes_what_is_the_process_own(void **state)
{
    (void)state;
    expect_own_settings(SLOTS(SMALL), SLOTS(LARGE));
}

static void with_subjects_it_does_so_too(void **state)
{
    (void)state;
    expect_own_settings(SUBJECTS(SMALL), SUBJECTS(LARGE));
}

/* Of a subject that is a word, with what is taken of it. */
static void a_word_stays_as_it_is(void **state)
{
    struct user a = user_open(RATE_OF("")), b = user_open(RATE_OF(""));

    (void)state;
    assert_int_equal(take(&a, 6), 0);
    assert_int_equal(reload(&a, RATE_OF("timeout: 1s,")), 0);
    assert_int_equal(take(&a, 5), -EAGAIN);
    assert_int_equal(take(&b, 5), -EAGAIN);
    assert_int_equal(apply(SET("subjects: { max: 8 }, limits: [ " RATE("20") " ]")), 1);
    assert_int_equal(take(&a, 5), -EAGAIN);
    assert_int_equal(take(&a, 4), 0);
    assert_int_equal(info_of(&a).timeout_ns, SECOND);
    user_close(&a);
    user_close(&b);
}

/* A state that was a word of the first definition, and fits none of the others, goes over to the
 * third one through the second when it is asked for: a change does not bind it. The
 * own settings have changed in between, of one of two processes. */
static void a_word_passes_over_variants(void **state)
{
#define PACED(own, capacity, window)                                                               \
    SET(own " subjects: { max: 8 }, limits: [ { type: rate, key: rate, algorithm: gcra, "          \
            "capacity: " capacity ", window: " window " } ]")
    struct user a = user_open(PACED("", "10", "100d")), b = user_open(PACED("", "10", "100d"));

    (void)state;
    assert_int_equal(take(&a, 6), 0);
    assert_int_equal(apply(PACED("", "70", "100d")), 1);
    assert_int_equal(info_of(&a).timeout_ns, WEIR_FOREVER); /* it has followed */
    assert_int_equal(reload(&a, PACED("timeout: 1s,", "70", "100d")), 0);
    assert_int_equal(apply(PACED("", "7", "100d")), 1);
    assert_int_equal(remaining_of(&a), 4);
    assert_int_equal(remaining_of(&b), 4);
    user_close(&a);
    user_close(&b);
}

/* Each change of one kind is followed by one of the other, and what is held outlasts all. */
static void definitions_and_own_settings_take_turns(void **state)
{
#define TWO(n) SLOT(n) ", " MORE("9")
    struct user a = user_open(SET("limits: [ " TWO("2") " ]")),
                b = user_open(SET("limits: [ " TWO("2") " ]"));
    weir_acquisition *first, *second, *third, *more = NULL, *none = NULL;

    (void)state;
    has_more = true;
    first = have(&a, 1);
    assert_int_equal(try_n(&a, "more", 9, &more), 0);
    assert_int_equal(reload(&a, SET("timeout: 1s, limits: [ " TWO("2") " ]")), 0);
    second = have(&a, 1);
    assert_int_equal(apply(SET("limits: [ " SLOT("3") " ]")), 1);
    third = have(&a, 1);
    assert_int_equal(info_of(&a).timeout_ns, SECOND);
    assert_int_equal(reload(&a, SET("timeout: 2s, limits: [ " SLOT("3") " ]")), 0);
    assert_int_equal(reload(&a, SET("timeout: 3s, limits: [ " SLOT("3") " ]")), 0);
    assert_int_equal(apply(SET("limits: [ " TWO("3") " ]")), 1);
    assert_int_equal(info_of(&a).timeout_ns, 3 * SECOND);
    assert_int_equal(try_n(&b, "slot", 1, &none), -EAGAIN);
    assert_int_equal(weir_release(&first), 0);
    assert_int_equal(weir_release(&more), 0); /* of a limit that is gone; another one has its key */
    more = NULL;
    assert_int_equal(try_n(&b, "more", 9, &more), 0);
    assert_int_equal(try_n(&a, "more", 1, &none), -EAGAIN);
    assert_int_equal(weir_release(&more), 0);
    assert_int_equal(weir_release(&third), 0);
    assert_int_equal(weir_release(&second), 0);
    assert_int_equal(try_n(&b, "slot", 4, &none), -ERANGE);
    assert_int_equal(try_n(&a, "more", 9, &more), 0); /* which came with this definition */
    assert_int_equal(reload(&a, SET("timeout: 4s, limits: [ " TWO("3") " ]")), 0);
    assert_int_equal(apply(SET("limits: [ " TWO("4") " ]")), 1);
    assert_int_equal(weir_release(&more), 0);
    assert_int_equal(try_n(&b, "more", 9, &more), 0);
    assert_int_equal(weir_release(&more), 0);
    third = have(&b, 3);
    assert_int_equal(weir_release(&third), 0);
    user_close(&a);
    user_close(&b);
}

static void waiters_stay_where_they_are(void **state)
{
    struct user a = user_open(SLOTS("")), b = user_open(SLOTS(""));
    weir_acquisition *held = have(&b, 2), *before = wait_for(&a, 2), *after;

    (void)state;
    assert_int_equal(reload(&a, SLOTS("config: { x: y },")), 0);
    after = wait_for(&a, 2);
    assert_int_equal(weir_release(&held), 0);
    expect_result(before, 0);
    assert_null(weir_acquisition_config(before, "x"));
    assert_int_equal(weir_acquisition_result(after), -EINPROGRESS);
    assert_int_equal(weir_release(&before), 0);
    expect_result(after, 0);
    assert_string_equal(weir_acquisition_config(after, "x"), "y");
    assert_int_equal(weir_release(&after), 0);
    user_close(&a);
    user_close(&b);
}

/* The fast path of a pool of several sets asks a handle of each. */
static void pools_of_several_sets_go_by_them(void **state)
{
#define POOL(own)                                                                                  \
    "version: 1\nsets: { s: { backend: process, " own                                              \
    " limits: [ " SLOT("2") " ] }, " OTHER " }\npools: { p: { sets: [s, t] } }\n"
    struct user a = user_open(POOL(""));
    weir_acquisition *held = NULL;
    weir_pool *pool = NULL;

    (void)state;
    assert_int_equal(weir_pool_open(&pool, a.w, "p", 0, NULL), 0);
    assert_int_equal(weir_try_acquire(pool, NULL, &held, NULL), 0); /* the first pick is of `s` */
    assert_int_equal(weir_release(&held), 0);
    assert_int_equal(reload(&a, POOL("config: { x: y },")), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir_try_acquire(pool, NULL, &held, NULL), 0);
        if (strcmp(weir_acquisition_set(held), "s") == 0)
            assert_string_equal(weir_acquisition_config(held, "x"), "y");
        assert_int_equal(weir_release(&held), 0);
    }
    weir_pool_close(pool);
    user_close(&a);
}

static void what_all_processes_share_is_refused(void **state)
{
    struct user a = user_open(SLOTS(""));

    (void)state;
    assert_int_equal(reload(&a, SET("timeout: 1s, limits: [ " SLOT("3") " ]")), -EOPNOTSUPP);
    assert_non_null(strstr(error.message, "weir apply"));
    assert_int_equal(info_of(&a).timeout_ns, WEIR_FOREVER);
    assert_int_equal(apply(SET("limits: [ " SLOT("3") " ]")), 1);
    assert_int_equal(reload(&a, SET("timeout: 1s, limits: [ " SLOT("3") " ]")), 0);
    assert_int_equal(info_of(&a).timeout_ns, SECOND);
    user_close(&a);
}

/* Nothing has changed after one that failed, and then it can be made again. */
static void each_call_of_a_reload_fails(void **state)
{
    bool has_failed = true;

    (void)state;
    for (uint64_t n = 1; has_failed; n++) {
        struct user a = user_open(SUBJECTS(SMALL));
        weir_acquisition *held = have(&a, 1), *later;
        int r;

        fake_os_fail_at(n);
        r = reload(&a, SUBJECTS(LARGE));
        has_failed = fake_os_has_failed();
        fake_os_fail_kind_at(0, 0, 0);
        if (r < 0) {
            assert_int_equal(error.code, r);
            assert_int_equal(info_of(&a).timeout_ns, WEIR_FOREVER);
            assert_int_equal(reload(&a, SUBJECTS(LARGE)), 0);
        }
        later = have(&a, 1);
        assert_string_equal(weir_acquisition_config(later, "model"), "large");
        assert_int_equal(weir_release(&held), 0);
        assert_int_equal(weir_release(&later), 0);
        user_close(&a);
        assert_true(tmpdir_remove(directory) && tmpdir_make(directory, NULL));
    }
}

/* ---- a set that a process drops ---- */

static void *acquire_and_wait(void *pool)
{
    weir_acquisition *acquisition = NULL;
    struct weir_amount amounts[2];
    const struct weir_request request = ask("slot", 2, amounts);

    return (void *)(intptr_t)weir_acquire(pool, &request, &acquisition, NULL);
}

static void until_waiting(const struct user *user, uint64_t n)
{
    while (stats_of(user).waiting < n)
        pause_ns(MS);
}

/* Its waiters end, those of others do not; what is held is held until its release. */
static void expect_dropped(const char *text)
{
    struct user a = user_open(text), b = user_open(text);
    weir_acquisition *held = have(&a, 2), *waiting = wait_for(&a, 1), *of_b, *none = NULL;
    const struct weir_request request = {
        .size = sizeof(request), .subject = "one", .subject_size = 3};
    weir_queue *queue = NULL;
    struct weir_completion completion;
    pthread_t thread;
    void *result;

    assert_int_equal(weir_queue_open(&queue, a.w, 4), 0);
    assert_int_equal(weir_queue_submit(queue, a.pool, &request, 7, NULL, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, acquire_and_wait, a.pool), 0);
    until_waiting(&a, 3);
    of_b = wait_for(&b, 2);
    assert_int_equal(reload(&a, NOTHING), 0);
    expect_result(waiting, -ESHUTDOWN);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_int_equal((int)(intptr_t)result, -ESHUTDOWN);
    assert_int_equal(poll(&(struct pollfd){weir_queue_fd(queue), POLLIN, 0}, 1, 20000), 1);
    assert_int_equal(weir_queue_reap(queue, &completion, 1), 1);
    assert_int_equal(completion.result, -ESHUTDOWN);
    assert_int_equal(try_n(&a, "slot", 1, &none), -ESTALE);
    assert_int_equal(weir_submit(a.pool, &request, &none, NULL), -ESTALE);
    assert_int_equal(weir_acquisition_result(of_b), -EINPROGRESS);
    assert_int_equal(weir_release(&waiting), 0);
    assert_int_equal(apply(text), 0);
    assert_int_equal(weir_release(&held), 0);
    expect_result(of_b, 0);
    assert_int_equal(weir_release(&of_b), 0);
    weir_queue_close(queue);
    user_close(&a);
    user_close(&b);
}

static void a_dropped_set_ends_the_waits_of_its_process(void **state)
{
    (void)state;
    expect_dropped(SLOTS(""));
}

static void a_dropped_set_with_subjects_does_so_too(void **state)
{
    (void)state;
    expect_dropped(SUBJECTS(""));
}

/* Later definitions hold for what is held, and for the set when it comes back. */
static void a_dropped_set_follows_and_comes_back(void **state)
{
    struct user a = user_open(SLOTS("")), b = user_open(SLOTS(""));
    weir_acquisition *held = have(&a, 2), *again = NULL, *none = NULL;
    struct weir_amount amounts[2];
    struct weir_request slot;
    weir_pool *pool = NULL;

    (void)state;
    has_more = true;
    slot = ask("slot", 1, amounts);
    assert_int_equal(apply(SET("limits: [ " SLOT("3") " ]")), 1);
    assert_int_equal(try_n(&a, "slot", 3, &none), -EAGAIN); /* a successor is dropped */
    assert_int_equal(reload(&a, NOTHING), 0);
    assert_int_equal(weir_pool_open(&pool, a.w, "s", 0, NULL), -ENOENT);
    assert_int_equal(apply(SET("limits: [ " SLOT("4") ", " MORE("1") " ]")), 1);
    assert_int_equal(reload(&a, SLOTS("")), -EOPNOTSUPP);
    assert_int_equal(try_n(&a, "slot", 1, &none), -ESTALE);
    assert_int_equal(try_n(&b, "slot", 3, &none), -EAGAIN);
    assert_int_equal(reload(&a, SET("timeout: 1s, limits: [ " SLOT("4") ", " MORE("1") " ]")), 0);
    assert_int_equal(info_of(&a).timeout_ns,
                     SECOND); /* it is the same set, for open handles, too */
    assert_int_equal(weir_pool_open(&pool, a.w, "s", 0, NULL), 0);
    assert_int_equal(weir_try_acquire(pool, &slot, &again, NULL), 0);
    assert_int_equal(try_n(&b, "slot", 2, &none), -EAGAIN);
    assert_int_equal(weir_release(&held), 0);
    held = have(&b, 3);
    assert_int_equal(try_n(&b, "slot", 1, &none), -EAGAIN);
    assert_int_equal(weir_release(&held), 0);
    assert_int_equal(weir_release(&again), 0);
    held = have(&b, 4);
    assert_int_equal(weir_release(&held), 0);
    weir_pool_close(pool);
    user_close(&a);
    user_close(&b);
}

/* Again and again: a process takes one place among the participants. */
static void dropping_takes_no_places(void **state)
{
    struct user a = user_open(SLOTS("")), b;

    (void)state;
    for (int i = 0; i < 1100; i++) {
        assert_int_equal(reload(&a, NOTHING), 0);
        assert_int_equal(reload(&a, SLOTS("")), 0);
    }
    b = user_open(SLOTS(""));
    user_close(&b);
    user_close(&a);
}

/* Nothing has changed after one that failed. */
static void each_call_of_a_return_fails(void **state)
{
    bool has_failed = true;

    (void)state;
    for (uint64_t n = 1; has_failed; n++) {
        struct user a = user_open(SLOTS(""));
        weir_acquisition *held = have(&a, 1), *none = NULL;
        weir_pool *pool = NULL;
        int r;

        assert_int_equal(reload(&a, NOTHING), 0);
        fake_os_fail_at(n);
        r = reload(&a, POOL("config: { x: y },"));
        has_failed = fake_os_has_failed();
        fake_os_fail_kind_at(0, 0, 0);
        if (r < 0) {
            assert_int_equal(try_n(&a, "slot", 1, &none), -ESTALE);
            assert_int_equal(weir_pool_open(&pool, a.w, "s", 0, NULL), -ENOENT);
            assert_int_equal(weir_pool_open(&pool, a.w, "p", 0, NULL), -ENOENT);
            assert_int_equal(reload(&a, POOL("config: { x: y },")), 0);
        }
        assert_int_equal(weir_release(&held), 0);
        held = have(&a, 2);
        assert_int_equal(weir_release(&held), 0);
        user_close(&a);
        assert_true(tmpdir_remove(directory) && tmpdir_make(directory, NULL));
    }
}

/* Units that a thread has taken ahead do not stay with it. */
static void leased_units_of_a_dropped_set_go_back(void **state)
{
#define LEASED                                                                                     \
    SET("limits: [ { type: rate, key: rate, algorithm: gcra, capacity: 10, window: 100d, "         \
        "lease: 5 } ]")
    struct user a = user_open(LEASED), b = user_open(LEASED);

    (void)state;
    assert_int_equal(take(&a, 1), 0);
    assert_int_equal(reload(&a, NOTHING), 0);
    assert_int_equal(take(&a, 1), -ESTALE);
    assert_int_equal(take(&b, 9), 0);
    assert_int_equal(reload(&a, LEASED), 0);
    assert_int_equal(take(&a, 1), -EAGAIN);
    user_close(&a);
    user_close(&b);
}

/* Then other processes have another segment. */
static void a_dropped_set_that_was_removed_comes_back_anew(void **state)
{
    struct user a = user_open(SLOTS("")), b;
    const struct weir_options options = options_for(SLOTS(""));
    weir_acquisition *held, *none = NULL;
    weir_pool *pool = NULL;

    (void)state;
    assert_int_equal(reload(&a, NOTHING), 0);
    assert_int_equal(weir_segment_remove(&options, "s", WEIR_SEGMENT_FORCE, &error), 0);
    b = user_open(SLOTS(""));
    held = have(&b, 2);
    assert_int_equal(reload(&a, SLOTS("")), 0);
    assert_int_equal(weir_pool_open(&pool, a.w, "s", 0, NULL), 0);
    assert_int_equal(weir_try_acquire(pool, NULL, &none, NULL), -EAGAIN);
    assert_int_equal(weir_release(&held), 0);
    weir_pool_close(pool);
    user_close(&b);
    user_close(&a);
}

static void other_names_of_classes_are_refused(void **state)
{
#define NAMED(own, name) SET(own " shares: { a: 1, " name ": 1 }, limits: [ " SLOT("2") " ]")
    struct user a = user_open(NAMED("", "b"));

    (void)state;
    assert_int_equal(reload(&a, NAMED("", "c")), -EOPNOTSUPP);
    assert_int_equal(reload(&a, NAMED("timeout: 1s,", "c")), -EOPNOTSUPP);
    assert_int_equal(info_of(&a).timeout_ns, WEIR_FOREVER);
    assert_int_equal(reload(&a, NAMED("timeout: 1s,", "b")), 0);
    assert_int_equal(info_of(&a).timeout_ns, SECOND);
    user_close(&a);
}

/* A set that was dropped and came back has two pools, one of which has the name. */
static void names_are_given_back_once(void **state)
{
    bool has_failed = true;

    (void)state;
    for (uint64_t n = 1; has_failed; n++) {
        struct user a = user_open(SLOTS(""));
        weir_pool *again = NULL, *third = NULL;
        weir_acquisition *held = NULL;
        int r;

        assert_int_equal(reload(&a, NOTHING), 0);
        assert_int_equal(reload(&a, SLOTS("")), 0);
        assert_int_equal(weir_pool_open(&again, a.w, "s", 0, NULL), 0);
        fake_os_fail_at(n);
        r = reload(&a, "version: 1\nsets: { " OTHER " }\npools: { p: { sets: [t] } }\n");
        has_failed = fake_os_has_failed();
        fake_os_fail_kind_at(0, 0, 0);
        if (r < 0) {
            assert_int_equal(weir_pool_open(&third, a.w, "s", 0, NULL), 0);
            assert_int_equal(weir_try_acquire(third, NULL, &held, NULL), 0);
            assert_int_equal(weir_release(&held), 0);
            weir_pool_close(third);
            assert_int_equal(reload(&a, NOTHING), 0);
        }
        assert_int_equal(weir_pool_open(&third, a.w, "s", 0, NULL), -ENOENT);
        weir_pool_close(again);
        user_close(&a);
        assert_true(tmpdir_remove(directory) && tmpdir_make(directory, NULL));
    }
}

/* One that is not shared is another set when its name comes back: without limits, or in an instance
 * that shares none. */
static void a_set_of_no_segment_comes_back_anew(void **state)
{
    static const char *const sets[] = {SET("limits: []"), SLOTS("")};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct weir_options options = options_for(sets[i]);
        weir_acquisition *held = NULL;
        struct user a = {0};
        weir_pool *again = NULL;

        options.flags = i ? WEIR_OPEN_APART : 0;
        assert_int_equal(weir_open(&a.w, &options, NULL), 0);
        assert_int_equal(weir_pool_open(&a.pool, a.w, "s", 0, NULL), 0);
        for (int turn = 0; turn < 2; turn++) {
            assert_int_equal(reload(&a, NOTHING), 0);
            assert_int_equal(reload(&a, sets[i]), 0);
        }
        assert_int_equal(weir_pool_open(&again, a.w, "s", 0, NULL), 0);
        assert_int_equal(weir_try_acquire(again, NULL, &held, NULL), 0);
        assert_int_equal(weir_release(&held), 0);
        weir_pool_close(again);
        user_close(&a);
    }
}

/* A thread has cached what the fast path needs. */
static void the_fast_path_does_not_serve_a_dropped_set(void **state)
{
    struct user a = user_open(SET("limits: [ " RATE("100") " ]"));
    struct weir_amount amounts[2];
    const struct weir_request request = ask("rate", 1, amounts);
    weir_acquisition *held = NULL;

    (void)state;
    assert_int_equal(take(&a, 1), 0);
    assert_int_equal(weir_try_acquire(a.pool, &request, &held, NULL), 0);
    assert_int_equal(weir_update(held, "rate", 1), 0);
    assert_int_equal(weir_release(&held), 0);
    assert_int_equal(reload(&a, NOTHING), 0);
    assert_int_equal(take(&a, 1), -ESTALE);
    assert_int_equal(weir_try_acquire(a.pool, &request, &held, NULL), -ESTALE);
    assert_int_equal(weir_acquire(a.pool, &request, &held, NULL), -ESTALE);
    user_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        place_test(a_reload_changes_what_is_the_process_own),
        place_test(with_subjects_it_does_so_too),
        place_test(a_word_stays_as_it_is),
        place_test(a_word_passes_over_variants),
        place_test(definitions_and_own_settings_take_turns),
        place_test(waiters_stay_where_they_are),
        place_test(pools_of_several_sets_go_by_them),
        place_test(what_all_processes_share_is_refused),
        place_test(each_call_of_a_reload_fails),
        place_test(a_dropped_set_ends_the_waits_of_its_process),
        place_test(a_dropped_set_with_subjects_does_so_too),
        place_test(a_dropped_set_follows_and_comes_back),
        place_test(dropping_takes_no_places),
        place_test(each_call_of_a_return_fails),
        place_test(leased_units_of_a_dropped_set_go_back),
        place_test(a_dropped_set_that_was_removed_comes_back_anew),
        place_test(other_names_of_classes_are_refused),
        place_test(names_are_given_back_once),
        place_test(a_set_of_no_segment_comes_back_anew),
        place_test(the_fast_path_does_not_serve_a_dropped_set),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
