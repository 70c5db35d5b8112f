/* SPDX-License-Identifier: MIT */
/* Definitions of shared sets that change while instances use them: what stays, what is refused, and
 * what becomes of an instance that cannot follow. Two instances are two participants. */
#include "base/hash.h"
#include "lib/child.h"
#include "lib/clock.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/random.h"
#include "lib/require.h"
#include "lib/tmpdir.h"
#include "set/set.h"
#include "shm/participant.h"
#include "shm/segment_definition.h"
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <weir/segment.h>
#include <weir/weir.h>

#include <cmocka.h>

static char directory[TMPDIR_SIZE];
static struct weir_error error;
static char logged[4][512];
static unsigned logged_n;

static void hear(void *userdata, enum weir_log_level level, const char *message)
{
    (void)userdata;
    (void)level;
    if (logged_n < 4)
        snprintf(logged[logged_n], sizeof(logged[0]), "%s", message);
    logged_n++;
}

static struct weir_options options_for(const char *text)
{
    return (struct weir_options){
        .size = sizeof(struct weir_options), .text = text, .process_dir = directory, .log = hear};
}

/* A set `s` of these fields. */
static const char *set_of(const char *fields)
{
    static char texts[4][1024];
    static unsigned turn;
    char *text = texts[turn++ % 4];

    snprintf(text, sizeof(texts[0]), "version: 1\nsets: { s: { backend: process, %s } }\n", fields);
    return text;
}

static const char *slots(unsigned capacity)
{
    char fields[128];

    snprintf(fields, sizeof(fields), "limits: [ { type: resource, key: slot, capacity: %u } ]",
             capacity);
    return set_of(fields);
}

static int apply_flags(const char *text, uint32_t flags)
{
    const struct weir_options options = options_for(text);

    error = (struct weir_error){0};
    return weir_segment_redefine(&options, "s", flags, NULL, NULL, &error);
}

static int apply(const char *text)
{
    return apply_flags(text, 0);
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

static weir_set *set_of_user(const struct user *user)
{
    return weir_pool_set(user->pool, 0);
}

static const struct weir_request *ask(uint64_t n)
{
    static struct weir_amount amount = {.key = "slot"};
    static const struct weir_request request = {
        .size = sizeof(request), .amounts = &amount, .amounts_n = 1, .timeout_ns = WEIR_FOREVER};

    amount.amount = n;
    return &request;
}

static weir_acquisition *have(const struct user *user, uint64_t n)
{
    weir_acquisition *acquisition = NULL;

    assert_int_equal(weir_try_acquire(user->pool, ask(n), &acquisition, NULL), 0);
    return acquisition;
}

static weir_acquisition *wait_for(const struct user *user, uint64_t n)
{
    weir_acquisition *acquisition = NULL;

    assert_int_equal(weir_submit(user->pool, ask(n), &acquisition, NULL), 1);
    return acquisition;
}

static void expect_result(weir_acquisition *acquisition, int result)
{
    struct pollfd fd = {weir_acquisition_fd(acquisition), POLLIN, 0};

    assert_int_equal(poll(&fd, 1, 20000), 1);
    assert_int_equal(weir_acquisition_result(acquisition), result);
}

static int place_setup(void **state)
{
    logged_n = 0;
    return tmpdir_make(directory, NULL) ? fixture_setup(state) : -1;
}

static int place_teardown(void **state)
{
    int r = fixture_teardown(state);

    return tmpdir_remove(directory) ? r : -1;
}

#define place_test(function) cmocka_unit_test_setup_teardown(function, place_setup, place_teardown)

/* ---- waiters ---- */

/* Longer than the interval of stall checks. */
static void pass_stall_checks(void)
{
    pause_ns(100 * MS);
}

/* A check of a waiter that came by the first definition looks at the last one. */
static void waiters_outlast_stall_checks(void **state)
{
    struct user a = user_open(slots(2)), b = user_open(slots(2));
    weir_acquisition *held = have(&a, 2), *before = wait_for(&b, 2), *after;

    (void)state;
    assert_int_equal(apply(slots(3)), 1);
    after = wait_for(&a, 3);
    pass_stall_checks();
    assert_int_equal(weir_acquisition_result(before), -EINPROGRESS);
    assert_int_equal(weir_release(&held), 0);
    expect_result(before, 0);
    assert_int_equal(weir_acquisition_result(after), -EINPROGRESS);
    assert_int_equal(weir_release(&before), 0);
    expect_result(after, 0);
    assert_int_equal(weir_release(&after), 0);
    user_close(&a);
    user_close(&b);
    assert_int_equal(logged_n, 0);
}

/* By an instance that attached when the set had no waiters, and has waited for nothing. */
static void a_wait_begins_after_a_change(void **state)
{
    struct user a = user_open(slots(2)), b = user_open(slots(2));
    weir_acquisition *held, *waiting;

    (void)state;
    assert_int_equal(apply(slots(4)), 1);
    held = have(&a, 3);
    waiting = wait_for(&b, 3);
    pass_stall_checks();
    assert_int_equal(weir_release(&held), 0);
    expect_result(waiting, 0);
    assert_int_equal(weir_release(&waiting), 0);
    user_close(&a);
    user_close(&b);
    assert_int_equal(logged_n, 0);
}

static void impossible_waits_end(void **state)
{
    enum { N = 5 };
    struct user a = user_open(slots(4)), b = user_open(slots(4));
    weir_acquisition *held = have(&a, 2), *waiting[N], *small;

    (void)state;
    for (int i = 0; i < N; i++)
        waiting[i] = wait_for(i % 2 ? &a : &b, 4);
    small = wait_for(&b, 1);
    assert_int_equal(apply(slots(3)), 1);
    for (int i = 0; i < N; i++)
        expect_result(waiting[i], -ERANGE);
    expect_result(small, 0);
    for (int i = 0; i < N; i++)
        weir_release(&waiting[i]);
    assert_int_equal(weir_release(&small), 0);
    assert_int_equal(weir_release(&held), 0);
    user_close(&a);
    user_close(&b);
    assert_int_equal(logged_n, 0);
}

/* ---- what changes, and what does not ---- */

#define OF_CLASSES(fields) set_of(fields ", limits: [ { type: resource, key: slot, capacity: 2 } ]")

/* Also of an instance that has ended, and of one that came later. */
static void counts_of_classes_go_on(void **state)
{
    struct user a = user_open(OF_CLASSES("shares: { x: 1, y: 2 }")), b;
    struct weir_class_stats classes[2];
    weir_acquisition *held[2], *waiting;
    struct weir_request request = *ask(2);

    (void)state;
    request.wait_class = "x";
    assert_int_equal(weir_try_acquire(a.pool, &request, &held[0], NULL), 0);
    waiting = wait_for(&a, 2); /* of the last class */
    assert_int_equal(apply(OF_CLASSES("shares: { x: 5, y: 1 }")), 1);
    b = user_open(OF_CLASSES("shares: { x: 5, y: 1 }"));
    assert_int_equal(weir_try_acquire(b.pool, &request, &held[1], NULL), -EAGAIN);
    assert_int_equal(weir_release(&held[0]), 0);
    expect_result(waiting, 0);
    assert_int_equal(weir_release(&waiting), 0);
    user_close(&a);
    held[1] = have(&b, 1);
    assert_int_equal(weir_set_classes(set_of_user(&b), classes, 2), 2);
    assert_int_equal(classes[0].granted, 1);
    assert_int_equal(classes[0].refused, 1);
    assert_int_equal(classes[1].granted, 2);
    assert_int_equal(classes[1].granted_waited, 1);
    assert_int_equal(weir_release(&held[1]), 0);
    user_close(&b);
}

static void what_is_held_stays(void **state)
{
    struct user a = user_open(slots(4));
    struct weir_limit_stats limit;
    struct weir_set_stats stats = {.size = sizeof(stats)};
    weir_acquisition *held = have(&a, 4), *one = NULL;

    (void)state;
    assert_int_equal(apply(slots(2)), 1);
    assert_int_equal(apply(slots(2)), 0);
    assert_int_equal(weir_try_acquire(a.pool, ask(1), &one, NULL), -EAGAIN);
    assert_int_equal(weir_try_acquire(a.pool, ask(3), &one, NULL), -ERANGE);
    assert_int_equal(weir_set_stats(set_of_user(&a), &stats, &limit, 1), 1);
    assert_int_equal(limit.capacity, 2);
    assert_int_equal(limit.held, 4);
    assert_int_equal(weir_release(&held), 0);
    held = have(&a, 2);
    assert_int_equal(weir_release(&held), 0);
    user_close(&a);
}

/* As the segment says, before and after its last user has gone. */
static void a_newcomer_needs_the_last_definition(void **state)
{
    struct user a = user_open(slots(2)), b;
    struct weir_options options;
    weir *w = NULL;

    (void)state;
    for (unsigned capacity = 3; capacity < 9; capacity++)
        assert_int_equal(apply(slots(capacity)), 1);
    b = user_open(slots(8));
    user_close(&a);
    user_close(&b);
    options = options_for(slots(2));
    assert_int_equal(weir_open(&w, &options, &error), -EEXIST);
    assert_non_null(strstr(error.message, "is 8 there, 2 here"));
    assert_non_null(strstr(error.message, "weir apply"));
    b = user_open(slots(8));
    user_close(&b);
}

/* The header names a definition from which the search for the last one begins. */
static void a_stale_header_is_no_obstacle(void **state)
{
    struct user a = user_open(slots(2)), b;
    struct segment_header *header = segment_header(set_of_user(&a)->participant->segment);

    (void)state;
    assert_int_equal(apply(slots(3)), 1);
    assert_int_equal(apply(slots(4)), 1);
    assert_int_equal(header->definition, 2);
    atomic_store(&header->definition, 0);
    b = user_open(slots(4));
    user_close(&b);
    assert_int_equal(apply(slots(4)), 0);
    assert_int_equal(apply(slots(5)), 1);
    user_close(&a);
}

static int note_length(void *userdata, const struct weir_segment *segment)
{
    *(size_t *)userdata = strlen(segment->definition);
    return 1;
}

/* A set of many limits with long keys, the definition of which almost fills its place. */
static const char *long_set(unsigned key_n, unsigned capacity)
{
    enum { LIMITS = 60 };
    static char text[65536];
    size_t n = (size_t)snprintf(text, sizeof(text),
                                "version: 1\nsets: { s: { backend: process, limits: [");

    for (int i = 0; i < LIMITS; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n,
                              "%s { type: resource, key: %0*d, capacity: %u }", i ? "," : "",
                              (int)key_n, i, capacity);
    snprintf(text + n, sizeof(text) - n, " ] } }\n");
    return text;
}

static void a_long_definition_has_no_room(void **state)
{
    struct weir_options options = options_for(NULL);
    unsigned key_n = 200;
    size_t length = 0;

    (void)state;
    for (;; key_n++) {
        struct user a = user_open(long_set(key_n, 2));

        assert_int_equal(weir_segments(&options, note_length, &length, NULL), 1);
        user_close(&a);
        if (length > SEGMENT_DEFINITION_MAX - 100)
            break;
        assert_int_equal(weir_segment_remove(&options, "s", 0, &error), 0);
    }
    assert_in_range(length, SEGMENT_DEFINITION_MAX - 100, SEGMENT_DEFINITION_MAX - 1);
    assert_int_equal(apply_flags(long_set(key_n, 3), WEIR_REDEFINE_CHECK), 1);
    assert_int_equal(apply_flags(long_set(key_n, 30000), WEIR_REDEFINE_CHECK), -E2BIG);
    assert_int_equal(apply(long_set(key_n, 30000)), -E2BIG);
    assert_int_equal(apply(long_set(key_n, 3)), 1);
}

static void what_has_to_stay_is_refused(void **state)
{
    static const struct {
        const char *fields, *reason;
    } refused[] = {
        {"limits: []", "it would have no limits"},
        {"lifetime: users, limits: [ { type: resource, key: slot, capacity: 3 } ]",
         "another lifetime"},
        {"priorities: 2, limits: [ { type: resource, key: slot, "
         "capacity: 3 } ]",
         "classes"},
        {"subjects: { max: 10 }, limits: [ { type: resource, key: slot, capacity: 3 } ]",
         "for each subject"},
    };
    struct user a = user_open(slots(2));

    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_true(apply(set_of(refused[i].fields)) < 0);
        if (!strstr(error.message, refused[i].reason))
            fail_msg("`%s`: %d: %s", refused[i].fields, error.code, error.message);
        assert_int_equal(error.code, -EOPNOTSUPP);
    }
    assert_int_equal(apply(slots(2)), 0);
    assert_int_equal(apply("version: 1\nsets: { t: { backend: process } }\n"), -ENOENT);
    assert_int_equal(apply("version: 1\nsets: { s: { backend: thread } }\n"), -EOPNOTSUPP);
    user_close(&a);
}

/* A rate of this algorithm, of which the units come back after an hour. */
static const char *calls(const char *algorithm, unsigned capacity)
{
    char fields[256];

    snprintf(fields, sizeof(fields),
             "limits: [ { type: rate, key: slot, algorithm: %s, capacity: %u, window: 1h, refund: "
             "true } ]",
             algorithm, capacity);
    return set_of(fields);
}

/* Takes all calls that there are, at most `max`, and returns how many. */
static unsigned take_calls(const struct user *user, unsigned max, weir_acquisition **ret)
{
    unsigned n = 0;
    int r = 0;

    pause_ns(1); /* the instant of a change is over */
    while (n < max && (r = weir_try_acquire(user->pool, ask(1), &ret[n], NULL)) == 0)
        n++;
    assert_true(r == 0 || r == -EAGAIN);
    return n;
}

/* Releases a call that was not made. */
static void give_back(weir_acquisition **acquisition)
{
    assert_int_equal(weir_update(*acquisition, "slot", 0), 0);
    assert_int_equal(weir_release(acquisition), 0);
}

/* Also by a process that follows several changes at once, and what waits is granted. */
static void another_algorithm_begins_anew(void **state)
{
    static const char *const algorithms[] = {"token_bucket", "fixed_window", "gcra"};
    struct user a = user_open(calls("gcra", 3)), b = user_open(calls("gcra", 3));
    weir_acquisition *before[4], *waiting, *after[8];

    (void)state;
    assert_int_equal(take_calls(&a, 4, before), 3);
    waiting = wait_for(&b, 2);
    assert_int_equal(apply(calls("sliding_window", 5)), 1);
    expect_result(waiting, 0);
    assert_int_equal(take_calls(&a, 8, after), 3);
    for (int i = 0; i < 3; i++)
        give_back(&after[i]);
    for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++)
        assert_int_equal(apply(calls(algorithms[i], 5)), 1);
    assert_int_equal(take_calls(&b, 8, after), 5);
    for (int i = 0; i < 3; i++)
        give_back(&before[i]);
    give_back(&waiting);
    assert_int_equal(take_calls(&a, 1, before), 0);
    give_back(&after[0]);
    assert_int_equal(take_calls(&a, 2, before), 1);
    give_back(&before[0]);
    for (int i = 1; i < 5; i++)
        give_back(&after[i]);
    user_close(&a);
    user_close(&b);
    assert_int_equal(logged_n, 0);
}

/* What an earlier algorithm gave is no unit of a later one; what the later one gave is. */
static void grants_of_another_algorithm_return_nothing(void **state)
{
    struct user a = user_open(calls("gcra", 3)), b = user_open(calls("gcra", 3));
    weir_acquisition *before[3], *after[4], *more[4];

    (void)state;
    assert_int_equal(take_calls(&a, 3, before), 3);
    assert_int_equal(apply(calls("fixed_window", 4)), 1);
    assert_int_equal(take_calls(&b, 4, after), 4);
    give_back(&before[0]);
    assert_int_equal(take_calls(&a, 1, more), 0);
    assert_int_equal(apply(calls("fixed_window", 5)), 1);
    give_back(&before[1]);
    assert_int_equal(take_calls(&b, 2, more), 1);
    give_back(&after[0]);
    assert_int_equal(take_calls(&b, 2, more + 1), 1);
    assert_int_equal(apply(calls("gcra", 1)), 1);
    assert_int_equal(take_calls(&b, 2, more + 2), 1);
    for (int i = 1; i < 4; i++)
        give_back(&after[i]);
    for (int i = 0; i < 2; i++)
        give_back(&more[i]);
    give_back(&before[2]);
    assert_int_equal(take_calls(&a, 1, more), 0);
    give_back(&more[2]);
    assert_int_equal(take_calls(&a, 2, more), 1);
    give_back(&more[0]);
    user_close(&a);
    user_close(&b);
    assert_int_equal(logged_n, 0);
}

static const char *rate(const char *algorithm, const char *more)
{
    char fields[256];

    snprintf(fields, sizeof(fields),
             "limits: [ { type: rate, key: slot, algorithm: %s, capacity: 8, window: 1d, refund: "
             "true%s } ]",
             algorithm, more);
    return set_of(fields);
}

static void expect_try(const struct user *user, uint64_t n, int result)
{
    weir_acquisition *acquisition = NULL;

    assert_int_equal(weir_try_acquire(user->pool, ask(n), &acquisition, NULL), result);
    if (result == 0) {
        assert_int_equal(weir_update(acquisition, "slot", n), 0);
        assert_int_equal(weir_release(&acquisition), 0);
    }
}

/* What was used beyond a grant of the earlier algorithm is no debt of the later one, and what is
 * returned of it early is no unit of that. */
static void grants_of_another_algorithm_charge_nothing(void **state)
{
    const char *charging = ", overuse: charge";
    struct user a = user_open(rate("gcra", charging));
    weir_acquisition *charged = have(&a, 2), *returned = have(&a, 3), *later;

    (void)state;
    assert_int_equal(apply(rate("token_bucket", charging)), 1);
    assert_int_equal(weir_update(charged, "slot", 6), 0);
    assert_int_equal(weir_release(&charged), 0);
    later = have(&a, 5);
    expect_try(&a, 3, 0); /* all of the eight */
    assert_int_equal(weir_return(returned, "slot", 2), 0);
    assert_int_equal(weir_update(returned, "slot", 0), 0);
    assert_int_equal(weir_release(&returned), 0);
    expect_try(&a, 1, -EAGAIN);
    assert_int_equal(weir_return(later, "slot", 2), 0);
    expect_try(&a, 2, 0);
    assert_int_equal(weir_update(later, "slot", 7), 0); /* four more than it has */
    assert_int_equal(weir_release(&later), 0);
    expect_try(&a, 1, -EAGAIN);
    user_close(&a);
    assert_int_equal(logged_n, 1); /* one warning of use beyond a grant */
}

/* A state may become smaller, and become what it was. */
static void a_large_state_gets_smaller(void **state)
{
    static const char *const algorithms[] = {"gcra", "token_bucket", "sliding_window"};
    struct user a = user_open(calls("sliding_window", 100)), b;
    weir_acquisition *acquisitions[101];

    (void)state;
    for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++) {
        assert_int_equal(apply(calls(algorithms[i], 100)), 1);
        b = user_open(calls(algorithms[i], 100));
        assert_int_equal(take_calls(&a, 60, acquisitions), 60);
        assert_int_equal(take_calls(&b, 41, acquisitions + 60), 40);
        for (int k = 0; k < 100; k++)
            give_back(&acquisitions[k]);
        user_close(&b);
    }
    assert_true(apply(calls("sliding_window", 1000)) == -EOPNOTSUPP);
    assert_non_null(strstr(error.message, "bytes, and its segment has room for"));
    user_close(&a);
    assert_int_equal(logged_n, 0);
}

/* A clock that stands tells grants before a change and after it apart all the same. */
static void grants_of_one_instant_are_told_apart(void **state)
{
    weir_acquisition *before[3], *after[3], *more;
    struct user a;

    (void)state;
    fake_clock_set(1000 * MS);
    a = user_open(calls("gcra", 2));
    for (int i = 0; i < 2; i++)
        before[i] = have(&a, 1);
    assert_int_equal(apply(calls("token_bucket", 2)), 1);
    fake_clock_advance(1);
    for (int i = 0; i < 2; i++)
        after[i] = have(&a, 1);
    give_back(&before[0]);
    assert_int_equal(weir_try_acquire(a.pool, ask(1), &more, NULL), -EAGAIN);
    give_back(&after[0]);
    more = have(&a, 1);
    give_back(&more);
    give_back(&before[1]);
    give_back(&after[1]);
    user_close(&a);
    assert_int_equal(logged_n, 0);
}

/* The definition is the same text, but means plugins of other versions. */
static void other_plugins_are_told_at_once(void **state)
{
    struct user a = user_open(slots(2));
    struct segment_definition *next;

    (void)state;
    assert_int_equal(apply(slots(3)), 1);
    next = (struct segment_definition *)(void *)segment_definition_head(
        set_of_user(&a)->participant->segment, 1);
    next->hash ^= 1;
    segment_definition_seal(next);
    assert_int_equal(apply(slots(4)), -EEXIST);
    assert_non_null(strstr(error.message, "with other plugins of these names"));
    user_close(&a);
}

/* An operator declines. */
static int decline(void *userdata, const struct weir_redefinition *redefinition)
{
    assert_int_equal(redefinition->size, sizeof(*redefinition));
    assert_string_equal(redefinition->name, "s");
    assert_non_null(strstr(redefinition->before, "capacity: 2"));
    assert_non_null(strstr(redefinition->after, "capacity: 3"));
    assert_string_equal(redefinition->changes, "`capacity` of limit 1 (`slot`): 2 -> 3");
    ++*(int *)userdata;
    return 1;
}

static void a_change_is_shown_and_declined(void **state)
{
    const struct weir_options options = options_for(slots(3));
    struct user a = user_open(slots(2));
    int shown = 0;

    (void)state;
    assert_int_equal(weir_segment_redefine(&options, "s", 0, decline, &shown, &error), -ECANCELED);
    assert_int_equal(shown, 1);
    assert_int_equal(apply(slots(2)), 0);
    user_close(&a);
}

/* The one that is in use has lost its name: what would be changed is not what newcomers find. */
static int take_the_name(void *userdata, const struct weir_redefinition *redefinition)
{
    const struct weir_options options = options_for(NULL);

    (void)redefinition;
    if ((*(int *)userdata)++ == 0)
        assert_int_equal(weir_segment_remove(&options, "s", WEIR_SEGMENT_FORCE, &error), 0);
    return 0;
}

static void a_segment_that_is_removed_meanwhile(void **state)
{
    const struct weir_options options = options_for(slots(3));
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct user a = user_open(slots(2)), b;
    struct weir_limit_stats limit;
    int called = 0;

    (void)state;
    assert_int_equal(weir_segment_redefine(&options, "s", 0, take_the_name, &called, &error),
                     -EIDRM);
    assert_int_equal(called, 1);
    b = user_open(slots(2));
    assert_int_equal(apply(slots(3)), 1);
    assert_int_equal(weir_set_stats(set_of_user(&a), &stats, &limit, 1), 1);
    assert_int_equal(limit.capacity, 2);
    assert_int_equal(weir_set_stats(set_of_user(&b), &stats, &limit, 1), 1);
    assert_int_equal(limit.capacity, 3);
    user_close(&a);
    user_close(&b);
}

/* ---- an instance that cannot follow ---- */

/* One that cannot for want of memory or of a file follows later, and nothing is lost. */
static void want_of_memory_is_no_damage(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        struct user a = user_open(slots(2));
        struct weir_set_stats stats = {.size = sizeof(stats)};
        weir_acquisition *one = NULL, *held = have(&a, 1);
        bool has_failed;
        int r;

        assert_int_equal(apply(slots(5)), 1);
        fake_os_fail_kind_from(n, FAKE_MEMORY | FAKE_FILE, 0);
        (void)weir_set_stats(set_of_user(&a), &stats, NULL, 0);
        r = weir_try_acquire(a.pool, ask(4), &one, NULL);
        has_failed = fake_os_has_failed();
        fake_os_fail_kind_at(0, 0, 0);
        if (r < 0 && r != -ENOMEM)
            fail_msg("call %lu: %d", n, r);
        if (r < 0)
            assert_int_equal(weir_try_acquire(a.pool, ask(4), &one, NULL), 0);
        assert_int_equal(weir_release(&one), 0);
        assert_int_equal(weir_release(&held), 0);
        assert_int_equal(logged_n, 0);
        user_close(&a);
        assert_true(tmpdir_remove(directory) && tmpdir_make(directory, NULL));
        if (!has_failed)
            return;
    }
}

/* Then the change can be made again. */
static void each_call_of_a_change_fails(void **state)
{
    bool has_failed = true;

    (void)state;
    for (uint64_t n = 1; has_failed; n++) {
        struct user a = user_open(slots(2));
        weir_acquisition *held = have(&a, 2), *waiting = wait_for(&a, 2);
        int r;

        fake_os_fail_at(n);
        r = apply(slots(4));
        has_failed = fake_os_has_failed();
        fake_os_fail_kind_at(0, 0, 0);
        if (r < 0 && (error.code != r || !error.message[0]))
            fail_msg("call %lu: %d, %d: %s", n, r, error.code, error.message);
        assert_true(apply(slots(4)) >= 0);
        expect_result(waiting, 0);
        assert_int_equal(weir_release(&held), 0);
        assert_int_equal(weir_release(&waiting), 0);
        held = have(&a, 4);
        assert_int_equal(weir_release(&held), 0);
        user_close(&a);
        assert_true(tmpdir_remove(directory) && tmpdir_make(directory, NULL));
    }
}

/* The next definition of the segment is damaged in one way after the other. */
static void damage_next(struct segment *segment, int way)
{
    struct segment_definition *next =
        (struct segment_definition *)(void *)segment_definition_head(segment, 1);
    char *text = (char *)next + SEGMENT_PAGE;

    if (way == 0)
        text[20] ^= 1;
    else if (way == 1)
        next->hash ^= 1;
    else if (way == 2)
        next->checksum ^= 1;
    else if (way == 3)
        memset(text, 'x', SEGMENT_DEFINITION_MAX);
    else
        memset(next, 0, sizeof(*next));
}

static void a_damaged_definition_breaks_the_set(void **state)
{
    (void)state;
    for (int way = 0; way < 5; way++) {
        struct user a = user_open(slots(2));
        weir_acquisition *one = NULL, *held = have(&a, 1);

        logged_n = 0;
        assert_int_equal(apply(slots(5)), 1);
        damage_next(set_of_user(&a)->participant->segment, way);
        assert_int_equal(weir_try_acquire(a.pool, ask(1), &one, NULL), -EUCLEAN);
        assert_int_equal(weir_try_acquire(a.pool, ask(1), &one, NULL), -EUCLEAN);
        weir_release(&held);
        assert_int_equal(logged_n, 1);
        assert_non_null(strstr(logged[0], "this process cannot follow"));
        assert_true(apply(slots(5)) < 0);
        user_close(&a);
        assert_true(tmpdir_remove(directory) && tmpdir_make(directory, NULL));
    }
}

enum way { LEAVES, ASKS, RETURNS };

/* Holds two units until it is told to give them back, and then leaves in good order. */
static _Noreturn void hold_and_leave(int ready, int go, enum way way)
{
    const struct weir_options options = options_for(slots(2));
    weir_acquisition *held = NULL, *none = NULL;
    weir_pool *pool = NULL;
    weir *w = NULL;
    char byte = 0;

    if (weir_open(&w, &options, NULL) < 0 || weir_pool_open(&pool, w, "s", 0, NULL) < 0 ||
        weir_try_acquire(pool, ask(2), &held, NULL) < 0)
        _exit(1);
    if (write(ready, &byte, 1) != 1 || read(go, &byte, 1) != 1)
        _exit(2);
    if (way == ASKS && weir_try_acquire(pool, ask(1), &none, NULL) != -EUCLEAN)
        _exit(3);
    if (way == RETURNS && weir_return(held, "slot", 1) != -EUCLEAN)
        _exit(5);
    weir_release(&held);
    if (way == ASKS && weir_try_acquire(pool, ask(1), &none, NULL) != -EUCLEAN)
        _exit(4);
    weir_pool_close(pool);
    weir_close(w);
    _exit(0);
}

/* A definition of so many limits, which have these letters and following ones as keys. */
static const char *lettered(char first, unsigned n)
{
    char fields[512];
    int length = snprintf(fields, sizeof(fields), "limits: [");

    for (unsigned i = 0; i < n; i++)
        length += snprintf(fields + length, sizeof(fields) - (size_t)length,
                           "%s { type: resource, key: %c, capacity: 1 }", i ? "," : "",
                           (char)(first + (char)i));
    snprintf(fields + length, sizeof(fields) - (size_t)length, " ]");
    return set_of(fields);
}

/* No process is left that would find out that another one has ended. */
static void what_the_dead_hold_takes_no_place(void **state)
{
    unsigned room = 1;
    pid_t pid;

    (void)state;
    pid = child_fork();
    if (pid == 0) {
        struct user user = user_open(lettered('a', 1));
        weir_acquisition *held = NULL;

        _exit(weir_try_acquire(user.pool, NULL, &held, NULL) < 0); /* without a release */
    }
    assert_true(child_exited(child_wait(pid), 0));
    while (apply_flags(lettered('a', room + 1), WEIR_REDEFINE_CHECK) == 1)
        room++;
    assert_true(room > 1);
    assert_int_equal(apply(lettered('b', room - 1)), 1);
    assert_int_equal(apply(lettered('b', room)), 1); /* with the place that `a` had */
}

/* Also if it closes the set: it has not returned it. The process finds that out by a request, by
 * the return of a part, or by the release. */
static void cannot_follow(enum way way)
{
    struct user a = user_open(slots(2));
    struct segment *segment = set_of_user(&a)->participant->segment;
    struct weir_set_stats stats = {.size = sizeof(stats)};
    uint64_t end = clock_now() + 20000 * MS;
    weir_acquisition *all = NULL;
    int ready[2], go[2];
    char byte = 0;
    pid_t pid;

    assert_true(pipe(ready) == 0 && pipe(go) == 0);
    pid = child_fork();
    if (pid == 0)
        hold_and_leave(ready[1], go[0], way);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(apply(slots(3)), 1);
    assert_int_equal(weir_set_stats(set_of_user(&a), &stats, NULL, 0), 1);
    damage_next(segment, 0);
    assert_int_equal(write(go[1], &byte, 1), 1);
    assert_true(child_exited(child_wait(pid), 0));
    damage_next(segment, 0);
    while (weir_try_acquire(a.pool, ask(3), &all, NULL) < 0 && clock_now() < end)
        pause_ns(MS);
    assert_non_null(all);
    assert_int_equal(weir_release(&all), 0);
    user_close(&a);
    close(ready[0]);
    close(go[0]);
    close(go[1]);
}

static void what_cannot_follow_holds_until_its_end(void **state)
{
    (void)state;
    cannot_follow(LEAVES);
}

static void what_asks_before_it_releases_holds_too(void **state)
{
    (void)state;
    cannot_follow(ASKS);
}

static void what_returns_a_part_holds_all(void **state)
{
    (void)state;
    cannot_follow(RETURNS);
}

/* ---- late stores ---- */

#define PACED(key)                                                                                 \
    "{ type: rate, key: " key ", algorithm: gcra, capacity: 10, window: 1h, refund: true }"

static int take_of(const struct user *user, const char *key, uint64_t n)
{
    const struct weir_amount amounts[] = {{"b", 0}, {"slot", 0}, {key, n}};
    const struct weir_request request = {.size = sizeof(request),
                                         .amounts = strcmp(key, "c") == 0 ? amounts : amounts + 2,
                                         .amounts_n = strcmp(key, "c") == 0 ? 3 : 1};
    weir_acquisition *taken = NULL;
    int r = weir_try_acquire(user->pool, &request, &taken, NULL);

    if (r == 0) {
        assert_int_equal(weir_update(taken, key, n), 0);
        assert_int_equal(weir_release(&taken), 0);
    }
    return r;
}

/* A grant of an inline rate takes effect in the word of the set. Its record becomes HELD later,
 * here when another rate has its place. */
static void a_late_grant_gives_another_rate_nothing(void **state)
{
    const struct weir_amount amount = {"a", 5};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = &amount, .amounts_n = 1};
    struct user a = user_open(set_of("limits: [ " PACED("a") " ]")), b;
    struct weir_set_stats stats = {.size = sizeof(stats)};
    weir_set *set = set_of_user(&a);
    struct weir_completion completion;
    struct acq_record *r = NULL;
    weir_queue *queue = NULL;
    uint64_t word;

    (void)state;
    assert_int_equal(weir_queue_open(&queue, a.w, 4), 0);
    assert_int_equal(weir_queue_submit(queue, a.pool, &request, 7, NULL, NULL), 0);
    for (uint32_t at = 0; !r && (at = region_next_record(set->region, at)) != 0;)
        if (record_state(record_load(&set_record(set, at)->word)) == RECORD_HELD)
            r = set_record(set, at);
    assert_non_null(r);
    word = record_load(&r->word);
    atomic_store(&r->word, ((word >> 8) - 1) << 8 | RECORD_FREE);
    assert_int_equal(apply(set_of("limits: [ " PACED("b") ", { type: resource, key: slot, "
                                                          "capacity: 4 } ]")),
                     1);
    assert_int_equal(apply(set_of("limits: [ " PACED("b") ", { type: resource, key: slot, "
                                                          "capacity: 4 }, " PACED("c") " ]")),
                     1);
    b = user_open(set_of(
        "limits: [ " PACED("b") ", { type: resource, key: slot, capacity: 4 }, " PACED("c") " ]"));
    assert_int_equal(take_of(&b, "c", 8), 0);
    assert_int_equal(weir_set_stats(set_of_user(&a), &stats, NULL, 0), 3); /* it follows */
    atomic_store(&r->word, word);
    assert_int_equal(weir_queue_reap(queue, &completion, 1), 1);
    assert_int_equal(completion.result, 0);
    assert_int_equal(weir_update(completion.acquisition, "c", 0), 0);
    assert_int_equal(weir_release(&completion.acquisition), 0);
    assert_int_equal(take_of(&b, "c", 3), -EAGAIN);
    assert_int_equal(take_of(&b, "c", 2), 0);
    weir_queue_close(queue);
    user_close(&a);
    user_close(&b);
}

/* Grants of a rate that is no word are stored with them. */
static void a_place_of_no_word_is_any_limits(void **state)
{
    struct user a = user_open(set_of(
        "limits: [ { type: rate, key: t, algorithm: token_bucket, capacity: 10, window: 1h } ]"));

    (void)state;
    assert_int_equal(apply(lettered('a', 3)), 1);
    assert_int_equal(apply(lettered('a', 4)), 1);
    user_close(&a);
}

/* ---- what an instance that cannot follow leaves behind ---- */

/* A child that holds or waits, and the pipes by which it is led. */
struct lost_child {
    pid_t pid;
    int ready[2], go[2];
};

static void child_tells_and_waits(const struct lost_child *child)
{
    char byte = 0;

    if (write(child->ready[1], &byte, 1) != 1 || read(child->go[0], &byte, 1) != 1)
        _exit(2);
}

static void child_submit(weir_queue *queue, const struct user *user, uint64_t n)
{
    if (weir_queue_submit(queue, user->pool, ask(n), 1, NULL, NULL) != 0)
        _exit(3);
}

static weir_acquisition *child_reap(weir_queue *queue)
{
    struct weir_completion done;

    if (weir_queue_reap(queue, &done, 1) != 1 || done.result != 0)
        _exit(4);
    return done.acquisition;
}

/* No call reads a file from now on, so a definition cannot be followed. Leaves in good order. */
static _Noreturn void hold_by_queue_and_leave(const struct lost_child *child)
{
    struct user user = user_open(slots(2));
    weir_acquisition *first, *second, *none = NULL;
    weir_queue *queue;

    if (weir_queue_open(&queue, user.w, 4) < 0)
        _exit(5);
    child_submit(queue, &user, 1);
    first = child_reap(queue);
    child_submit(queue, &user, 1);
    second = child_reap(queue);
    fake_os_fail_kind_from(1, FAKE_FILE, 0);
    child_tells_and_waits(child);
    weir_release(&first);
    if (weir_try_acquire(user.pool, ask(2), &none, NULL) != -EUCLEAN)
        _exit(6);
    weir_release(&second);
    if (weir_try_acquire(user.pool, ask(2), &none, NULL) != -EUCLEAN)
        _exit(7);
    weir_queue_close(queue);
    user_close(&user);
    _exit(0);
}

static _Noreturn void wait_by_queue_and_leave(const struct lost_child *child)
{
    struct user user = user_open(slots(4));
    struct weir_completion done;
    weir_queue *queue;

    if (weir_queue_open(&queue, user.w, 4) < 0)
        _exit(5);
    child_submit(queue, &user, 2);
    child_submit(queue, &user, 1);
    if (weir_queue_reap(queue, &done, 1) != 0)
        _exit(6);
    fake_os_fail_kind_from(1, FAKE_FILE, 0);
    child_tells_and_waits(child);
    weir_queue_close(queue);
    user_close(&user);
    child_tells_and_waits(child);
    _exit(0);
}

static void lost_child_start(struct lost_child *child, void (*run)(const struct lost_child *child))
{
    char byte = 0;

    assert_true(pipe(child->ready) == 0 && pipe(child->go) == 0);
    child->pid = child_fork();
    if (child->pid == 0)
        run(child);
    close(child->ready[1]);
    assert_int_equal(read(child->ready[0], &byte, 1), 1);
}

static void lost_child_go_on(const struct lost_child *child)
{
    char byte = 0;

    assert_int_equal(write(child->go[1], &byte, 1), 1);
}

static void lost_child_end(struct lost_child *child)
{
    lost_child_go_on(child);
    assert_true(child_exited(child_wait(child->pid), 0));
    close(child->ready[0]);
    close(child->go[0]);
    close(child->go[1]);
}

/* Its records are not used for what it asks for meanwhile. */
static void what_was_held_comes_back(void **state)
{
    struct user a = user_open(slots(2));
    uint64_t end = clock_now() + 20000 * MS;
    weir_acquisition *all = NULL;
    struct lost_child child;

    (void)state;
    lost_child_start(&child, hold_by_queue_and_leave);
    assert_int_equal(apply(slots(3)), 1);
    lost_child_end(&child);
    while (weir_try_acquire(a.pool, ask(3), &all, NULL) < 0 && clock_now() < end)
        pause_ns(MS);
    assert_non_null(all);
    assert_int_equal(weir_release(&all), 0);
    user_close(&a);
    assert_int_equal(logged_n, 0);
}

/* What it waited for may be granted, and comes back; then those behind it are granted. */
static void waiters_that_were_left_break_no_set(void **state)
{
    struct user a = user_open(slots(4)), b = user_open(slots(4));
    weir_acquisition *held = have(&a, 3), *behind;
    struct lost_child child;
    char byte = 0;

    (void)state;
    lost_child_start(&child, wait_by_queue_and_leave);
    behind = wait_for(&b, 3);
    assert_int_equal(apply(slots(3)), 1);
    lost_child_go_on(&child);
    assert_int_equal(read(child.ready[0], &byte, 1), 1);
    pass_stall_checks();
    assert_int_equal(weir_release(&held), 0);
    lost_child_end(&child);
    expect_result(behind, 0);
    assert_int_equal(weir_release(&behind), 0);
    user_close(&a);
    user_close(&b);
    assert_int_equal(logged_n, 0);
}

/* ---- limits of one key ---- */

/* Limits of one key, some in shadow, that hold different numbers of units. */
struct doubled {
    unsigned n, capacities[4];
    bool shadow[4];
};

static const char *doubled_text(const struct doubled *doubled)
{
    char fields[512];
    size_t n = (size_t)snprintf(fields, sizeof(fields), "limits: [");

    for (unsigned i = 0; i < doubled->n; i++)
        n += (size_t)snprintf(fields + n, sizeof(fields) - n,
                              "%s { type: resource, key: slot, capacity: %u%s }", i ? "," : "",
                              doubled->capacities[i], doubled->shadow[i] ? ", shadow: true" : "");
    snprintf(fields + n, sizeof(fields) - n, " ]");
    return set_of(fields);
}

/* No limit gets the capacity of another one: it would be taken for that. */
static void doubled_draw(struct doubled *doubled, uint64_t *random)
{
    for (unsigned i = 0; i < doubled->n; i++)
        doubled->capacities[i] = 1 + i + 4 * (unsigned)random_from(random, 0, 1);
}

static void doubled_look(const struct user *user, const struct doubled *doubled, uint64_t ret[4])
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[4];

    assert_int_equal(weir_set_stats(set_of_user(user), &stats, limits, 4), doubled->n);
    for (unsigned i = 0; i < doubled->n; i++) {
        assert_int_equal(limits[i].capacity, doubled->capacities[i]);
        ret[i] = limits[i].held;
    }
}

/* A change moves no units from one limit to another. */
static void doubled_change(const struct user *user, struct doubled *doubled, uint64_t *random)
{
    uint64_t before[4], after[4];

    doubled_look(user, doubled, before);
    doubled_draw(doubled, random);
    assert_true(apply(doubled_text(doubled)) >= 0);
    doubled_look(user, doubled, after);
    assert_memory_equal(before, after, doubled->n * sizeof(*before));
}

static void doubled_case(uint64_t random)
{
    enum { STEPS = 40, HELD_MAX = 8 };
    struct doubled doubled = {.n = (unsigned)random_from(&random, 2, 4)};
    weir_acquisition *held[HELD_MAX];
    unsigned held_n = 0;
    uint64_t left[4];
    struct user user;

    doubled_draw(&doubled, &random);
    for (unsigned i = 0; i < doubled.n; i++)
        doubled.shadow[i] = random_chance(&random, 50);
    user = user_open(doubled_text(&doubled));
    for (int i = 0; i < STEPS; i++) {
        unsigned choice = (unsigned)random_below(&random, 4);

        if (choice == 0)
            doubled_change(&user, &doubled, &random);
        else if (choice == 1 && held_n)
            assert_int_equal(weir_release(&held[--held_n]), 0);
        else if (held_n < HELD_MAX)
            held_n += weir_try_acquire(user.pool, ask(random_from(&random, 1, 2)), &held[held_n],
                                       NULL) == 0;
    }
    while (held_n)
        assert_int_equal(weir_release(&held[--held_n]), 0);
    doubled_look(&user, &doubled, left);
    for (unsigned i = 0; i < doubled.n; i++)
        assert_int_equal(left[i], 0);
    user_close(&user);
    assert_true(tmpdir_remove(directory) && tmpdir_make(directory, NULL));
}

static void limits_of_one_key_keep_their_states(void **state)
{
    const uint64_t cases = effort_from("WEIR_ROUNDS", 40);

    (void)state;
    for (uint64_t i = 0; i < cases; i++)
        doubled_case(random_case(test_seed, i));
}

/* ---- hostile numbers ---- */

/* Numbers that lead nowhere. */
static void a_hostile_header_is_refused(void **state)
{
    static const uint64_t numbers[] = {1, 2, 16384, 16385, UINT32_MAX, UINT64_MAX};
    const struct weir_options options = options_for(slots(2));

    (void)state;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct user a = user_open(slots(2));
        weir *w = NULL;

        atomic_store(&segment_header(set_of_user(&a)->participant->segment)->definition,
                     numbers[i]);
        assert_int_equal(weir_open(&w, &options, &error), -EUCLEAN);
        assert_non_null(strstr(error.message, "damaged"));
        assert_int_equal(apply(slots(3)), -EUCLEAN);
        user_close(&a);
        assert_true(tmpdir_remove(directory) && tmpdir_make(directory, NULL));
    }
}

/* MOVED without a definition that follows, as no process writes it. */
static void a_set_that_leads_nowhere_is_broken(void **state)
{
    struct user a = user_open(slots(2));
    const weir_set *set = set_of_user(&a);
    weir_acquisition *held = have(&a, 2), *waiting = wait_for(&a, 1), *one = NULL;
    struct version_block *block;
    uint64_t word;

    (void)state;
    word = version_peek_word(set->region, set->head_unit);
    assert_true(word & INFLATED_BIT);
    block = (struct version_block *)(void *)(set->participant->segment->base +
                                             ((word & BLOCK_SLOT_MASK) << set->block_class));
    atomic_fetch_or(&block->content[CONTENT_COUNT], (uint64_t)CONTENT_MOVED << CONTENT_FLAGS_SHIFT);
    assert_int_equal(weir_try_acquire(a.pool, ask(1), &one, NULL), -EUCLEAN);
    weir_release(&held);
    weir_release(&waiting);
    user_close(&a);
    assert_int_equal(logged_n, 1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        place_test(waiters_outlast_stall_checks),
        place_test(a_wait_begins_after_a_change),
        place_test(impossible_waits_end),
        place_test(counts_of_classes_go_on),
        place_test(what_is_held_stays),
        place_test(a_newcomer_needs_the_last_definition),
        place_test(a_stale_header_is_no_obstacle),
        place_test(another_algorithm_begins_anew),
        place_test(grants_of_another_algorithm_return_nothing),
        place_test(grants_of_another_algorithm_charge_nothing),
        place_test(grants_of_one_instant_are_told_apart),
        place_test(a_large_state_gets_smaller),
        place_test(a_long_definition_has_no_room),
        place_test(what_has_to_stay_is_refused),
        place_test(other_plugins_are_told_at_once),
        place_test(a_change_is_shown_and_declined),
        place_test(a_segment_that_is_removed_meanwhile),
        place_test(want_of_memory_is_no_damage),
        place_test(each_call_of_a_change_fails),
        place_test(a_damaged_definition_breaks_the_set),
        place_test(what_the_dead_hold_takes_no_place),
        place_test(what_cannot_follow_holds_until_its_end),
        place_test(what_asks_before_it_releases_holds_too),
        place_test(what_returns_a_part_holds_all),
        place_test(a_late_grant_gives_another_rate_nothing),
        place_test(a_place_of_no_word_is_any_limits),
        place_test(what_was_held_comes_back),
        place_test(waiters_that_were_left_break_no_set),
        place_test(limits_of_one_key_keep_their_states),
        place_test(a_hostile_header_is_refused),
        place_test(a_set_that_leads_nowhere_is_broken),
    };

    seed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
