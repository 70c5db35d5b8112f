/* SPDX-License-Identifier: MIT */
/* Limits of shared sets that come and go, change their type or their algorithm, and are listed in
 * another order, while instances use them. Two instances are two participants. Most of it is done
 * again with a set that has subjects. */
#include "lib/fixture.h"
#include "lib/random.h"
#include "lib/require.h"
#include "lib/tmpdir.h"
#include "set/places.h"
#include "shm/segment_definition.h"
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <weir/event.h>
#include <weir/segment.h>
#include <weir/weir.h>

#include <cmocka.h>

#define SLOT(capacity) "{ type: resource, key: slot, capacity: " #capacity " }"
#define DISK(capacity) "{ type: resource, key: disk, capacity: " #capacity " }"
#define CALLS(capacity)                                                                            \
    "{ type: call, key: calls, algorithm: fixed_window, capacity: " #capacity ", window: 1h,"      \
    " refund: true }"

#define REVOKING(key)                                                                              \
    "{ type: resource, key: " #key ", capacity: 1, max_hold: 1h, max_hold_action: revoke }"

/* Alone it is the word of its set. */
#define PACE "{ type: call, key: pace, algorithm: gcra, capacity: 9, window: 1h, refund: true }"

static char directory[TMPDIR_SIZE];
static struct weir_error error;
static unsigned logged_n;
static const char *subjects = ""; /* or the field of a set that has subjects */

static void hear(void *userdata, enum weir_log_level level, const char *message)
{
    (void)userdata;
    (void)message;
    logged_n += level == WEIR_LOG_ERROR;
}

static struct weir_options options_for(const char *text)
{
    return (struct weir_options){
        .size = sizeof(struct weir_options), .text = text, .process_dir = directory, .log = hear};
}

static const char *set_of(const char *limits)
{
    static char texts[4][2048];
    static unsigned turn;
    char *text = texts[turn++ % 4];

    snprintf(text, sizeof(texts[0]),
             "version: 1\nsets: { s: { backend: process, %slimits: [ %s ] } }\n", subjects, limits);
    return text;
}

static int apply(const char *limits)
{
    const struct weir_options options = options_for(set_of(limits));

    error = (struct weir_error){0};
    return weir_segment_redefine(&options, "s", 0, NULL, NULL, &error);
}

struct user {
    weir *w;
    weir_pool *pool;
};

static struct user user_open(const char *limits)
{
    const struct weir_options options = options_for(set_of(limits));
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

/* Gives a request a subject, if there are subjects. */
static void ask_for(struct weir_request *request, unsigned subject)
{
    static const char *const names[] = {"one", "two", "three"};

    request->subject = names[subject];
    request->subject_size = subjects[0] ? strlen(names[subject]) : 0;
}

/* A request for so much of each of these keys; NULL: no key. */
static const struct weir_request *ask(const char *key, uint64_t n, const char *other, uint64_t m)
{
    static struct weir_amount amounts[2];
    static struct weir_request request = {
        .size = sizeof(request), .amounts = amounts, .timeout_ns = WEIR_FOREVER};

    amounts[0] = (struct weir_amount){.key = key, .amount = n};
    amounts[1] = (struct weir_amount){.key = other, .amount = m};
    request.amounts_n = (key != NULL) + (other != NULL);
    ask_for(&request, 0);
    return &request;
}

static weir_acquisition *have(const struct user *user, const struct weir_request *request)
{
    weir_acquisition *acquisition = NULL;

    assert_int_equal(weir_try_acquire(user->pool, request, &acquisition, NULL), 0);
    return acquisition;
}

static void have_not(const struct user *user, const struct weir_request *request, const char *key)
{
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    weir_acquisition *acquisition = NULL;

    assert_int_equal(weir_try_acquire(user->pool, request, &acquisition, &refusal), -EAGAIN);
    assert_string_equal(refusal.key, key);
}

/* Without an update of what was taken of a call, which a release says. */
static void end(weir_acquisition **acquisition)
{
    int r = weir_release(acquisition);

    assert_true(r == 0 || r == -EPROTO);
}

static weir_acquisition *wait_for(const struct user *user, const struct weir_request *request)
{
    weir_acquisition *acquisition = NULL;

    assert_int_equal(weir_submit(user->pool, request, &acquisition, NULL), 1);
    return acquisition;
}

static void expect_result(weir_acquisition *acquisition, int result)
{
    struct pollfd fd = {weir_acquisition_fd(acquisition), POLLIN, 0};

    assert_int_equal(poll(&fd, 1, 20000), 1);
    assert_int_equal(weir_acquisition_result(acquisition), result);
}

struct held {
    const char *key;
    uint64_t n;
};

/* Checks what is held of each limit, in the order in which they are listed. */
static void expect_held(const struct user *user, unsigned n, const struct held *wanted)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[8];

    assert_int_equal(weir_set_stats(set_of_user(user), &stats, limits, 8), n);
    assert_int_equal(weir_set_limits(set_of_user(user)), n);
    for (unsigned i = 0; i < n; i++) {
        assert_string_equal(limits[i].key, wanted[i].key);
        assert_string_equal(weir_set_limit_key(set_of_user(user), i), wanted[i].key);
        assert_int_equal(limits[i].held, wanted[i].n);
    }
}

#define EXPECT_HELD(user, ...)                                                                     \
    expect_held(user, sizeof((struct held[]){__VA_ARGS__}) / sizeof(struct held),                  \
                (struct held[]){__VA_ARGS__})

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

/* ---- limits come and go ---- */

/* What is held already is nothing of the limit that came. */
static void a_limit_comes(void **state)
{
    struct user a = user_open(SLOT(3)), b = user_open(SLOT(3)), c;
    weir_acquisition *before = have(&a, ask("slot", 1, NULL, 0)), *after;

    (void)state;
    assert_int_equal(apply(SLOT(3) ", " DISK(1)), 1);
    c = user_open(SLOT(3) ", " DISK(1));
    EXPECT_HELD(&b, {"slot", 1}, {"disk", 0});
    after = have(&b, ask("disk", 1, NULL, 0));
    EXPECT_HELD(&c, {"slot", 2}, {"disk", 1});
    have_not(&a, ask("disk", 1, NULL, 0), "disk");
    have_not(&c, ask("slot", 2, "disk", 0), "slot");
    end(&before);
    EXPECT_HELD(&a, {"slot", 1}, {"disk", 1});
    end(&after);
    EXPECT_HELD(&a, {"slot", 0}, {"disk", 0});
    user_close(&a);
    user_close(&b);
    user_close(&c);
    assert_int_equal(logged_n, 0);
}

static void a_limit_goes(void **state)
{
    struct user a = user_open(SLOT(2) ", " DISK(1)), b = user_open(SLOT(2) ", " DISK(1)), c;
    weir_acquisition *before = have(&a, ask(NULL, 0, NULL, 0)), *after;

    (void)state;
    have_not(&b, ask(NULL, 0, NULL, 0), "disk");
    assert_int_equal(apply(SLOT(2)), 1);
    c = user_open(SLOT(2));
    after = have(&b, ask(NULL, 0, NULL, 0));
    have_not(&c, ask(NULL, 0, NULL, 0), "slot");
    end(&before);
    EXPECT_HELD(&c, {"slot", 1});
    end(&after);
    EXPECT_HELD(&a, {"slot", 0});
    user_close(&a);
    user_close(&b);
    user_close(&c);
    assert_int_equal(logged_n, 0);
}

/* The first of two, so that the other one has not the first place. */
static void the_first_limit_goes(void **state)
{
    struct user a = user_open(DISK(1) ", " SLOT(2)), b = user_open(DISK(1) ", " SLOT(2));
    weir_acquisition *before = have(&a, ask(NULL, 0, NULL, 0)), *after;
    struct weir_limit_stats limits[2];
    struct weir_set_stats stats = {.size = sizeof(stats)};

    (void)state;
    assert_int_equal(apply(SLOT(2)), 1);
    after = have(&b, ask("slot", 1, NULL, 0));
    have_not(&b, ask(NULL, 0, NULL, 0), "slot");
    EXPECT_HELD(&b, {"slot", 2});
    assert_int_equal(weir_set_stats(set_of_user(&b), &stats, limits, 1), 1);
    assert_int_equal(limits[0].granted, 2);
    assert_int_equal(limits[0].refused, 1);
    assert_int_equal(weir_set_limit_find(set_of_user(&b), "disk", 0), -ENOENT);
    assert_int_equal(weir_set_limit_find(set_of_user(&b), "slot", 0), 0);
    end(&before);
    end(&after);
    EXPECT_HELD(&a, {"slot", 0});
    user_close(&a);
    user_close(&b);
    assert_int_equal(logged_n, 0);
}

/* It begins anew, also while units of it are held from before. */
static void a_limit_goes_and_comes_back(void **state)
{
    struct user a = user_open(SLOT(9) ", " DISK(2)), b = user_open(SLOT(9) ", " DISK(2));
    weir_acquisition *before = have(&a, ask("disk", 2, NULL, 0)), *after[2];

    (void)state;
    assert_int_equal(apply(SLOT(9)), 1);
    assert_int_equal(apply(SLOT(9) ", " DISK(2)), 1);
    after[0] = have(&b, ask("disk", 2, NULL, 0));
    EXPECT_HELD(&a, {"slot", 2}, {"disk", 2});
    end(&before);
    EXPECT_HELD(&b, {"slot", 1}, {"disk", 2});
    have_not(&a, ask("disk", 1, NULL, 0), "disk");
    end(&after[0]);
    after[0] = have(&a, ask("disk", 1, NULL, 0));
    after[1] = have(&b, ask("disk", 1, NULL, 0));
    have_not(&a, ask("disk", 1, NULL, 0), "disk");
    end(&after[0]);
    end(&after[1]);
    EXPECT_HELD(&b, {"slot", 0}, {"disk", 0});
    user_close(&a);
    user_close(&b);
    assert_int_equal(logged_n, 0);
}

static void a_set_without_limits_is_refused(void **state)
{
    struct user a = user_open(SLOT(1));

    (void)state;
    assert_int_equal(apply(""), -EOPNOTSUPP);
    assert_non_null(strstr(error.message, "no limits"));
    user_close(&a);
}

/* ---- waiters ---- */

static void a_waiter_of_a_limit_that_goes_is_granted(void **state)
{
    struct user a = user_open(SLOT(5) ", " DISK(1)), b = user_open(SLOT(5) ", " DISK(1));
    weir_acquisition *held = have(&a, ask(NULL, 0, NULL, 0));
    weir_acquisition *waiting = wait_for(&b, ask(NULL, 0, NULL, 0));

    (void)state;
    assert_int_equal(apply(SLOT(5)), 1);
    expect_result(waiting, 0);
    EXPECT_HELD(&a, {"slot", 2});
    end(&waiting);
    end(&held);
    EXPECT_HELD(&a, {"slot", 0});
    user_close(&a);
    user_close(&b);
    assert_int_equal(logged_n, 0);
}

static void a_waiter_asks_nothing_of_a_limit_that_comes(void **state)
{
    struct user a = user_open(SLOT(1)), b = user_open(SLOT(1));
    weir_acquisition *held = have(&a, ask("slot", 1, NULL, 0));
    weir_acquisition *waiting = wait_for(&b, ask("slot", 1, NULL, 0)), *disk;

    (void)state;
    assert_int_equal(apply(SLOT(1) ", " DISK(1)), 1);
    disk = wait_for(&a, ask("slot", 0, "disk", 1));
    end(&held);
    expect_result(waiting, 0);
    expect_result(disk, 0);
    EXPECT_HELD(&a, {"slot", 1}, {"disk", 1});
    end(&waiting);
    EXPECT_HELD(&b, {"slot", 0}, {"disk", 1});
    end(&disk);
    EXPECT_HELD(&a, {"slot", 0}, {"disk", 0});
    user_close(&a);
    user_close(&b);
    assert_int_equal(logged_n, 0);
}

/* What a waiter asks of a limit that is gone is not asked of one that comes later. */
static void a_waiter_keeps_its_place_from_others(void **state)
{
    static const char other[] = SLOT(1) ", { type: resource, key: other, capacity: 9 }";
    struct user a = user_open(SLOT(1) ", " DISK(5)), b;
    weir_acquisition *held = have(&a, ask("slot", 1, "disk", 0));
    weir_acquisition *waiting = wait_for(&a, ask("slot", 1, "disk", 3));

    (void)state;
    assert_int_equal(apply(SLOT(1)), 1);
    assert_int_equal(apply(other), 1);
    b = user_open(other);
    end(&held);
    expect_result(waiting, 0);
    EXPECT_HELD(&b, {"slot", 1}, {"other", 0});
    end(&waiting);
    EXPECT_HELD(&b, {"slot", 0}, {"other", 0});
    user_close(&a);
    user_close(&b);
    assert_int_equal(logged_n, 0);
}

/* ---- other kinds ---- */

/* A resource becomes a rate, and a rate a resource. */
static void a_limit_gets_another_type(void **state)
{
    static const char rate[] = "{ type: rate, key: slot, algorithm: fixed_window, capacity: 2, "
                               "window: 1h, refund: true }";
    struct user a = user_open(SLOT(2)), b = user_open(SLOT(2));
    weir_acquisition *before = have(&a, ask("slot", 2, NULL, 0)), *after;

    (void)state;
    assert_int_equal(apply(rate), 1);
    after = have(&b, ask("slot", 2, NULL, 0));
    have_not(&a, ask("slot", 1, NULL, 0), "slot");
    end(&before);
    have_not(&a, ask("slot", 1, NULL, 0), "slot");
    assert_int_equal(apply(SLOT(1)), 1);
    EXPECT_HELD(&a, {"slot", 0});
    assert_int_equal(weir_update(after, "slot", 0), 0);
    end(&after);
    after = have(&a, ask("slot", 1, NULL, 0));
    have_not(&b, ask("slot", 1, NULL, 0), "slot");
    end(&after);
    user_close(&a);
    user_close(&b);
    assert_int_equal(logged_n, 0);
}

/* A resource is decided by a plugin now, and counted again. */
static void a_resource_gets_another_algorithm(void **state)
{
    static const char aimd[] = "{ type: resource, key: slot, algorithm: aimd, capacity: 4 }";
    struct user a = user_open(SLOT(2)), b = user_open(SLOT(2));
    weir_acquisition *before = have(&a, ask("slot", 2, NULL, 0)), *after;

    (void)state;
    assert_int_equal(apply(aimd), 1);
    after = have(&b, ask("slot", 1, NULL, 0));
    end(&before);
    assert_int_equal(apply(SLOT(1)), 1);
    before = have(&a, ask("slot", 1, NULL, 0));
    end(&after);
    have_not(&b, ask("slot", 1, NULL, 0), "slot");
    end(&before);
    EXPECT_HELD(&b, {"slot", 0});
    user_close(&a);
    user_close(&b);
    assert_int_equal(logged_n, 0);
}

/* Nothing is granted because a limit begins anew in another place. What waits for it ends, first in
 * line first; also what a later definition finds, and behind a waiter that goes on. */
static void waits_for_a_limit_that_moves_end(void **state)
{
    enum { N = 5 };
    static const char aimd[] = "{ type: resource, key: slot, algorithm: aimd, capacity: 4 }";
    const char *const others[] = {REVOKING(slot), aimd};

    (void)state;
    for (unsigned kind = 0; kind < 2; kind++) {
        struct user a = user_open(SLOT(1) ", " DISK(1) ", " CALLS(9)),
                    b = user_open(SLOT(1) ", " DISK(1) ", " CALLS(9));
        weir_acquisition *held = have(&a, ask("slot", 1, "disk", 1)), *waiting[N], *ahead;
        struct weir_refusal refusal = {.size = sizeof(refusal)};
        char text[512];

        ahead = wait_for(&a, ask("slot", 0, "disk", 1));
        for (int i = 0; i < N; i++)
            waiting[i] = wait_for(i % 2 ? &a : &b, ask("slot", 1, "disk", 0));
        snprintf(text, sizeof(text), "%s, " DISK(1) ", " CALLS(9), others[kind]);
        assert_int_equal(apply(text), 1);
        snprintf(text, sizeof(text), "%s, " DISK(2) ", " CALLS(9), others[kind]);
        for (int i = 0; i < N; i++)
            assert_int_equal(weir_acquisition_result(waiting[i]), -EINPROGRESS);
        have_not(&b, ask("slot", 0, "disk", 1), "disk");
        assert_int_equal(apply(text), 1);
        expect_result(ahead, 0);
        for (int i = 0; i < N; i++) {
            expect_result(waiting[i], -ERANGE);
            assert_int_equal(weir_acquisition_refusal(waiting[i], &refusal), 0);
            assert_string_equal(refusal.key, "");
            assert_int_equal(weir_release(&waiting[i]), 0);
        }
        waiting[0] = have(&b, ask("slot", 1, "disk", 0)); /* it has begun anew */
        EXPECT_HELD(&a, {"slot", 1}, {"disk", 2}, {"calls", 0});
        end(&held);
        end(&ahead);
        end(&waiting[0]);
        EXPECT_HELD(&a, {"slot", 0}, {"disk", 0}, {"calls", 0});
        user_close(&a);
        user_close(&b);
        assert_int_equal(logged_n, 0);
        assert_true(tmpdir_remove(directory) && tmpdir_make(directory, NULL));
    }
}

/* Where nothing waits any more, waits need not end. */
static void a_place_from_which_a_limit_moved_gets_free(void **state)
{
    static const char moved[] = REVOKING(slot) ", " REVOKING(disk) ", " CALLS(9);
    struct user a = user_open(SLOT(1) ", " DISK(1) ", " CALLS(9));
    weir_acquisition *held = have(&a, ask("slot", 1, "disk", 1)), *waiting;

    (void)state;
    waiting = wait_for(&a, ask("slot", 0, "disk", 1));
    assert_int_equal(apply(moved), 1);
    expect_result(waiting, -ERANGE);
    assert_int_equal(limits_moved(&set_current(set_of_user(&a))->limits), 3);
    assert_null(decision_key(
        &(struct decision){.limiting = &set_current(set_of_user(&a))->limits.items[0]}));
    assert_int_equal(weir_release(&waiting), 0);
    end(&held);
    assert_int_equal(apply(REVOKING(slot) ", " REVOKING(disk) ", " CALLS(9) ", " REVOKING(tape)),
                     1);
    held = have(&a, ask("slot", 1, "disk", 1));
    assert_int_equal(limits_moved(&set_current(set_of_user(&a))->limits), 0);
    end(&held);
    user_close(&a);
    assert_int_equal(logged_n, 0);
}

/* More than a state word that processes share can count. */
static void a_resource_grows_beyond_its_word(void **state)
{
    struct user a = user_open(SLOT(2)), b = user_open(SLOT(2));
    weir_acquisition *before = have(&a, ask("slot", 2, NULL, 0)), *after;

    (void)state;
    assert_int_equal(apply(SLOT(1000000)), 1);
    after = have(&b, ask("slot", 999998, NULL, 0));
    have_not(&a, ask("slot", 1, NULL, 0), "slot");
    assert_int_equal(apply(SLOT(3)), 1);
    end(&after);
    EXPECT_HELD(&a, {"slot", 2});
    after = have(&b, ask("slot", 1, NULL, 0));
    end(&before);
    end(&after);
    EXPECT_HELD(&b, {"slot", 0});
    user_close(&a);
    user_close(&b);
    assert_int_equal(logged_n, 0);
}

/* A limit that is enforced now begins anew: what is held was granted in shadow, or may have been.
 */
static void a_limit_leaves_the_shadow(void **state)
{
    static const char shadow[] =
        SLOT(9) ", { type: resource, key: disk, capacity: 1, shadow: true }";
    struct user a = user_open(shadow), b = user_open(shadow), c;
    weir_acquisition *held[2], *waiting, *more;

    (void)state;
    held[0] = have(&a, ask("disk", 1, NULL, 0));
    held[1] = have(&b, ask("disk", 1, NULL, 0)); /* takes nothing of `disk` */
    EXPECT_HELD(&a, {"slot", 2}, {"disk", 1});
    assert_int_equal(apply(SLOT(9) ", " DISK(1)), 1);
    c = user_open(SLOT(9) ", " DISK(1));
    EXPECT_HELD(&c, {"slot", 2}, {"disk", 0});
    more = have(&b, ask("disk", 1, NULL, 0));
    waiting = wait_for(&a, ask("disk", 1, "slot", 2));
    end(&held[1]);
    EXPECT_HELD(&c, {"slot", 2}, {"disk", 1});
    assert_int_equal(apply(shadow), 1);
    expect_result(waiting, 0); /* it asks nothing of the limit in shadow, which came later */
    EXPECT_HELD(&c, {"slot", 4}, {"disk", 0});
    end(&held[0]);
    held[0] = have(&c, ask("disk", 1, NULL, 0));
    held[1] = have(&b, ask("disk", 1, NULL, 0));
    EXPECT_HELD(&a, {"slot", 5}, {"disk", 1});
    end(&waiting);
    end(&held[1]);
    EXPECT_HELD(&a, {"slot", 2}, {"disk", 1});
    end(&held[0]);
    end(&more);
    EXPECT_HELD(&a, {"slot", 0}, {"disk", 0});
    user_close(&a);
    user_close(&b);
    user_close(&c);
    assert_int_equal(logged_n, 0);
}

/* ---- records that are read by their numbers ---- */

/* Submissions without an acquisition, which a queue completes, or does not any more. */
static void a_queue_knows_limits_that_came(void **state)
{
    struct user a = user_open(SLOT(9));
    struct weir_completion completion;
    weir_acquisition *held;
    weir_queue *queue;

    (void)state;
    assert_int_equal(apply(SLOT(9) ", " DISK(4)), 1);
    assert_int_equal(weir_queue_open(&queue, a.w, 8), 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(weir_queue_submit(queue, a.pool, ask("slot", 1, "disk", 3), i, NULL, NULL),
                         0);
        EXPECT_HELD(&a, {"slot", 1}, {"disk", 3});
        if (i == 0) {
            assert_int_equal(weir_queue_reap(queue, &completion, 1), 1);
            held = completion.acquisition;
            assert_int_equal(weir_release(&held), 0);
        } else if (i == 1) {
            assert_int_equal(weir_queue_cancel(queue, i), 1);
        } else {
            weir_queue_close(queue);
        }
        EXPECT_HELD(&a, {"slot", 0}, {"disk", 0});
    }
    user_close(&a);
    assert_int_equal(logged_n, 0);
}

/* What is left after a part was returned is in another record. */
static void a_rest_knows_limits_that_came(void **state)
{
    struct user a = user_open(SLOT(9)), b;
    weir_acquisition *held;
    struct weir_holder holder;
    uint64_t amounts[2];

    (void)state;
    assert_int_equal(apply(SLOT(9) ", " DISK(4)), 1);
    b = user_open(SLOT(9) ", " DISK(4));
    held = have(&a, ask("slot", 3, "disk", 4));
    assert_int_equal(weir_return(held, "slot", 1), 0);
    assert_int_equal(weir_set_holders(set_of_user(&b), &holder, 1), 1);
    assert_int_equal(weir_set_holder_amounts(set_of_user(&b), &holder, amounts, 2), 2);
    assert_true(amounts[0] == 2 && amounts[1] == 4);
    end(&held);
    EXPECT_HELD(&b, {"slot", 0}, {"disk", 0});
    user_close(&a);
    user_close(&b);
}

/* A part of a rate that is gone is not written where another limit is by now. */
static void a_part_of_a_limit_that_is_gone_goes_nowhere(void **state)
{
    static const char before[] = "{ type: rate, key: r, algorithm: fixed_window, capacity: 9, "
                                 "window: 1h, refund: true }, " SLOT(9);
    static const char after[] =
        SLOT(9) ", { type: rate, key: x, algorithm: fixed_window, capacity: 9, window: 1h }";
    struct user a = user_open(before), b;
    weir_acquisition *held = have(&a, ask("r", 6, "slot", 5));
    struct weir_holder holder;
    uint64_t amounts[2];

    (void)state;
    assert_int_equal(apply(SLOT(9)), 1);
    assert_int_equal(weir_return(held, "slot", 2), 0);
    assert_int_equal(apply(after), 1);
    b = user_open(after);
    assert_int_equal(set_of_user(&b)->limits.n, 2);
    assert_int_equal(weir_return(held, "r", 1), 0);
    assert_int_equal(weir_set_holders(set_of_user(&b), &holder, 1), 1);
    assert_int_equal(weir_set_holder_amounts(set_of_user(&b), &holder, amounts, 2), 2);
    assert_true(amounts[0] == 3 && amounts[1] == 0);
    assert_int_equal(weir_return(held, "slot", 1), 0); /* which makes another record */
    assert_int_equal(weir_set_holders(set_of_user(&b), &holder, 1), 1);
    assert_int_equal(weir_set_holder_amounts(set_of_user(&b), &holder, amounts, 2), 2);
    assert_true(amounts[0] == 2 && amounts[1] == 0);
    weir_update(held, "r", 0);
    end(&held);
    EXPECT_HELD(&b, {"slot", 0}, {"x", 0});
    user_close(&a);
    user_close(&b);
}

/* A grant that is stored late may say something of the first place at any time. */
static void a_resource_does_not_follow_a_rate_there(void **state)
{
    struct user a = user_open(PACE), b = {0};

    (void)state;
    assert_int_equal(apply(SLOT(9)), 1);
    assert_int_equal(apply(SLOT(9) ", " DISK(9)), 1);
    b = user_open(SLOT(9) ", " DISK(9));
    assert_true(limit_is_retired(&set_of_user(&b)->limits.items[0]));
    assert_int_equal(apply(SLOT(9) ", " DISK(9) ", " PACE), 1);
    EXPECT_HELD(&b, {"slot", 0}, {"disk", 0}, {"pace", 0});
    assert_false(limit_is_retired(&weir_pool_set(b.pool, 0)->limits.items[0]));
    user_close(&a);
    user_close(&b);
}

static void what_a_waiter_waits_for_is_told(void **state)
{
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    struct user a = user_open(SLOT(9) ", " CALLS(9) ", " DISK(1));
    weir_acquisition *held = have(&a, ask("disk", 1, "calls", 0)), *waiting;
    struct weir_holder holders[2];

    (void)state;
    assert_int_equal(apply(DISK(1) ", " CALLS(9)), 1);
    waiting = wait_for(&a, ask("disk", 1, "calls", 1));
    assert_int_equal(weir_set_holders(set_of_user(&a), holders, 2), 2);
    assert_true(holders[1].waiting);
    assert_int_equal(weir_set_waiter_refusal(set_of_user(&a), &holders[1], &refusal), 0);
    assert_string_equal(refusal.key, "disk");
    end(&held);
    expect_result(waiting, 0);
    end(&waiting);
    user_close(&a);
}

/* Waiters for a limit that is gone wait for each other no more. */
static void a_limit_that_is_gone_keeps_no_order(void **state)
{
    static const char *const limits[] = {"{ type: resource, key: x, capacity: 1 }, ",
                                         "{ type: resource, key: y, capacity: 1 }, "
                                         "{ type: resource, key: z, capacity: 1 }"};
    char texts[2][512];
    struct weir_options options;
    weir_acquisition *held, *waiting[2];
    struct user a = {0};

    (void)state;
    for (int i = 0; i < 2; i++)
        snprintf(
            texts[i], sizeof(texts[i]),
            "version: 1\nsets: { s: { backend: process, fair: per_limit, limits: [ %s%s ] } }\n",
            i == 0 ? limits[0] : "", limits[1]);
    options = options_for(texts[0]);
    assert_int_equal(weir_open(&a.w, &options, &error), 0);
    assert_int_equal(weir_pool_open(&a.pool, a.w, "s", 0, NULL), 0);
    held = have(&a, &(struct weir_request){.size = sizeof(struct weir_request)}); /* all three */
    waiting[0] = wait_for(&a, ask("z", 0, "x", 1));
    waiting[1] = wait_for(&a, ask("y", 0, "x", 1));
    options = options_for(texts[1]);
    assert_int_equal(weir_segment_redefine(&options, "s", 0, NULL, NULL, &error), 1);
    assert_int_equal(weir_return(held, "z", 1), 0);
    expect_result(waiting[1], 0); /* it asks for z by default, the other one for y */
    end(&held);
    expect_result(waiting[0], 0);
    end(&waiting[0]);
    end(&waiting[1]);
    user_close(&a);
}

static void no_request_names_a_limit_that_is_gone(void **state)
{
    struct weir_request request = {0};
    struct user a = user_open(DISK(9) ", " SLOT(9));
    weir_acquisition *one = NULL;
    const struct limit *retired;
    uint64_t amount;

    (void)state;
    assert_int_equal(apply(SLOT(9)), 1);
    end(&(weir_acquisition *){have(&a, ask("slot", 1, NULL, 0))});
    retired = &weir_pool_set(a.pool, 0)->limits.items[0];
    assert_true(limit_is_retired(retired));
    for (uint64_t n = 0; n < 2; n++) {
        request = *ask(retired->key, n, NULL, 0);
        request.flags = WEIR_STRICT;
        assert_int_equal(weir_try_acquire(a.pool, &request, &one, NULL), -ENOENT);
    }
    one = have(&a, ask("slot", 1, NULL, 0));
    assert_int_equal(weir_acquisition_amount(one, retired->key, &amount), -ENOENT);
    end(&one);
    user_close(&a);
}

/* ---- listing ---- */

static unsigned events_n;
static uint64_t event_amounts[2];

static void note_event(void *userdata, const struct weir_event *event)
{
    (void)userdata;
    events_n++;
    assert_int_equal(event->amounts_n, 2);
    memcpy(event_amounts, event->amounts, sizeof(event_amounts));
}

/* Programs see limits as the new configuration lists them; states stay. */
static void limits_are_listed_in_another_order(void **state)
{
    const struct weir_listener listener = {
        .size = sizeof(listener), .types = 1u << WEIR_EVENT_GRANT, .event = note_event};
    struct user a = user_open(SLOT(9) ", " DISK(8) ", " CALLS(7)), b;
    weir_acquisition *held = have(&a, ask("slot", 4, "disk", 3)), *more;
    struct weir_remaining remaining[2];
    struct weir_holder holder;
    uint64_t amounts[2];

    (void)state;
    assert_int_equal(apply(CALLS(7) ", " SLOT(9)), 1);
    EXPECT_HELD(&a, {"calls", 0}, {"slot", 4});
    b = user_open(CALLS(7) ", " SLOT(9));
    EXPECT_HELD(&b, {"calls", 0}, {"slot", 4});
    assert_int_equal(weir_set_holders(set_of_user(&b), &holder, 1), 1);
    assert_int_equal(weir_set_holder_amounts(set_of_user(&b), &holder, amounts, 2), 2);
    assert_true(amounts[0] == 1 && amounts[1] == 4);
    assert_int_equal(weir_set_remaining(set_of_user(&b), ask(NULL, 0, NULL, 0), remaining, 2), 2);
    assert_string_equal(remaining[0].key, "calls");
    assert_int_equal(remaining[0].available, 6);
    assert_int_equal(remaining[1].available, 5);
    assert_int_equal(weir_set_remaining(set_of_user(&b), ask(NULL, 0, NULL, 0), remaining, 1), 2);
    events_n = 0;
    assert_int_equal(weir_listen(b.w, &listener), 0);
    more = have(&b, ask("calls", 2, "slot", 3));
    assert_int_equal(weir_listen(b.w, NULL), 0);
    assert_int_equal(events_n, 1);
    assert_true(event_amounts[0] == 2 && event_amounts[1] == 3);
    end(&more);
    end(&held);
    EXPECT_HELD(&a, {"calls", 0}, {"slot", 0});
    user_close(&a);
    user_close(&b);
    assert_int_equal(logged_n, 0);
}

/* A program that reads the new file later finds what it says. */
static void a_reload_finds_the_same(void **state)
{
    struct weir_options options = options_for(NULL);
    struct user a = user_open(SLOT(9) ", " DISK(8));

    (void)state;
    assert_int_equal(apply(CALLS(7) ", " DISK(8)), 1);
    options.text = set_of(CALLS(7) ", " DISK(8));
    assert_int_equal(weir_reload(a.w, &options, &error), 0);
    options.text = set_of(DISK(8) ", " CALLS(7));
    assert_int_equal(weir_reload(a.w, &options, &error), -EOPNOTSUPP);
    user_close(&a);
}

/* ---- places are used again ---- */

static void a_place_is_used_again_when_nothing_is_held_there(void **state)
{
    char limits[128];
    struct user a = user_open(SLOT(9));
    weir_acquisition *slot = have(&a, ask("slot", 1, NULL, 0));
    weir_acquisition *held[8] = {NULL};
    unsigned n = 0;
    int r = 1;

    (void)state;
    for (; r == 1; n++) {
        snprintf(limits, sizeof(limits), SLOT(9) ", { type: resource, key: k%u, capacity: 1 }", n);
        r = apply(limits);
        if (r == 1) {
            snprintf(limits, sizeof(limits), "k%u", n);
            held[n] = have(&a, ask(limits, 1, NULL, 0));
        }
    }
    assert_int_equal(r, -EBUSY);
    assert_non_null(strstr(error.message, "there is no room for limit 2 (`k"));
    assert_int_equal(n - 1, set_amounts_n(set_of_user(&a)) - 1);
    assert_true(n - 1 >= PLACES_SPARE);
    end(&held[1]);
    assert_int_equal(apply(SLOT(9) ", { type: resource, key: last, capacity: 1 }"), 1);
    EXPECT_HELD(&a, {"slot", n - 1}, {"last", 0});
    held[1] = have(&a, ask("last", 1, NULL, 0));
    for (unsigned i = 0; i < n - 1; i++)
        end(&held[i]);
    EXPECT_HELD(&a, {"slot", 1}, {"last", 0});
    end(&slot);
    user_close(&a);
    assert_int_equal(logged_n, 0);
}

/* A record that is used again says nothing of limits that it had amounts of before. */
static void a_record_keeps_nothing_of_limits_that_are_gone(void **state)
{
    static const char other[] = SLOT(9) ", { type: resource, key: other, capacity: 9 }";
    struct user a = user_open(SLOT(9) ", " DISK(5)), b;
    weir_acquisition *held = have(&a, ask("slot", 1, "disk", 3));

    (void)state;
    end(&held);
    assert_int_equal(apply(SLOT(9)), 1);
    held = have(&a, ask("slot", 1, NULL, 0));
    assert_int_equal(apply(other), 1);
    b = user_open(other);
    assert_int_equal(set_of_user(&b)->limits.n, 2); /* the place of `disk` was free */
    EXPECT_HELD(&b, {"slot", 1}, {"other", 0});
    end(&held);
    user_close(&a);
    user_close(&b);
}

/* More limits than there is room for, whatever is held. */
static void too_many_limits_are_refused(void **state)
{
    char limits[2048] = SLOT(9);
    struct user a = user_open(limits);

    (void)state;
    for (unsigned i = 0; i < set_amounts_n(set_of_user(&a)); i++)
        snprintf(limits + strlen(limits), sizeof(limits) - strlen(limits),
                 ", { type: resource, key: k%u, capacity: 1 }", i);
    assert_int_equal(apply(limits), -EOPNOTSUPP);
    assert_non_null(strstr(error.message, "remove it with `weir rm`"));
    EXPECT_HELD(&a, {"slot", 0});
    limits[0] = '\0';
    for (unsigned i = 0; i < set_amounts_n(set_of_user(&a)); i++)
        snprintf(limits + strlen(limits), sizeof(limits) - strlen(limits),
                 "%s{ type: resource, key: k%u, capacity: 1 }", i ? ", " : "", i);
    assert_int_equal(apply(limits), -EOPNOTSUPP); /* the one that would go has a place, too */
    assert_non_null(strstr(error.message, "change it twice"));
    user_close(&a);
}

/* A rate that was never the only limit has no grants that are stored late. */
static void a_resource_follows_one_of_two_rates(void **state)
{
    struct user a = user_open(CALLS(9) ", " SLOT(9)), b;

    (void)state;
    assert_int_equal(apply(SLOT(9)), 1);
    assert_int_equal(apply(SLOT(9) ", " DISK(9)), 1);
    b = user_open(SLOT(9) ", " DISK(9));
    assert_string_equal(set_of_user(&b)->limits.items[0].key, "disk");
    user_close(&a);
    user_close(&b);
}

/* The place that is left is none for a resource, whatever is released. */
static void a_place_that_never_gets_free_is_none(void **state)
{
    static const char three[] = "{ type: resource, key: b, capacity: 1 }, "
                                "{ type: resource, key: c, capacity: 1 }, "
                                "{ type: resource, key: d, capacity: 1 }";
    char four[512];
    struct user a = user_open(PACE);

    (void)state;
    assert_int_equal(set_amounts_n(set_of_user(&a)), 4);
    assert_int_equal(apply(three), 1);
    snprintf(four, sizeof(four), "%s, { type: resource, key: e, capacity: 1 }", three);
    assert_int_equal(apply(four), -EOPNOTSUPP);
    snprintf(four, sizeof(four), "%s, " PACE, three);
    assert_int_equal(apply(four), 1);
    user_close(&a);
}

/* Another thread has made the newest definition known, and not yet as the successor of the one
 * before. */
static void a_release_needs_no_chain_of_successors(void **state)
{
    struct user a = user_open(SLOT(9));
    weir_acquisition *held = have(&a, ask("slot", 1, NULL, 0));
    weir_set *first = set_of_user(&a), *second, *third;

    (void)state;
    assert_int_equal(apply(SLOT(9) ", " DISK(1)), 1);
    second = set_current(first);
    assert_int_equal(apply(SLOT(9)), 1);
    third = set_current(first);
    assert_true(first != second && second != third && set_successor(second) == third);
    atomic_store(&second->successor, NULL);
    end(&held);
    atomic_store(&second->successor, third);
    EXPECT_HELD(&a, {"slot", 0});
    user_close(&a);
    assert_int_equal(logged_n, 0);
}

/* Tags of classes are by what requests cost, and that is another number with another limit. */
static void a_class_does_not_starve_when_a_limit_goes(void **state)
{
    enum { WAITERS = 20 };
    static const char text[] =
        "version: 1\nsets: { s: { backend: process, shares: { a: 1, b: 1 }, limits: [ %s%s ] } }\n";
    char texts[2][512];
    struct weir_options options;
    weir_acquisition *waiting[2][WAITERS];
    unsigned next[2] = {0, 0};
    struct user a = {0};

    (void)state;
    for (int i = 0; i < 2; i++)
        snprintf(texts[i], sizeof(texts[i]), text, SLOT(1), i == 0 ? ", " DISK(1) : "");
    options = options_for(texts[0]);
    assert_int_equal(weir_open(&a.w, &options, &error), 0);
    assert_int_equal(weir_pool_open(&a.pool, a.w, "s", 0, NULL), 0);
    for (int i = 0; i < WAITERS; i++)
        for (int c = 0; c < 2; c++) {
            struct weir_request request = {
                .size = sizeof(request), .timeout_ns = WEIR_FOREVER, .wait_class = c ? "b" : "a"};

            assert_true(weir_submit(a.pool, &request, &waiting[c][i], NULL) >= 0);
        }
    for (int i = 0; i < 2 * WAITERS - 8; i++) { /* of either class some are left */
        int c = weir_acquisition_result(waiting[0][next[0]]) == 0 ? 0 : 1;

        if (i == 5) {
            options = options_for(texts[1]);
            assert_int_equal(weir_segment_redefine(&options, "s", 0, NULL, NULL, &error), 1);
        }
        expect_result(waiting[c][next[c]], 0);
        end(&waiting[c][next[c]++]);
        assert_in_range(next[0] + 3 - next[1], 0, 6); /* they take turns, begun anew */
    }
    for (int c = 0; c < 2; c++)
        for (; next[c] < WAITERS; next[c]++)
            weir_release(&waiting[c][next[c]]);
    user_close(&a);
}

/* Counts of the limit that had the place are not those of the one that has got it. */
static void counts_begin_anew_with_a_place(void **state)
{
    struct user a = user_open(SLOT(9) ", " DISK(1)), b = user_open(SLOT(9) ", " DISK(1));
    struct weir_limit_stats limits[2];
    struct weir_set_stats stats = {.size = sizeof(stats)};
    weir_acquisition *held = have(&a, ask("disk", 1, NULL, 0));

    (void)state;
    have_not(&b, ask("disk", 1, NULL, 0), "disk");
    end(&held);
    assert_int_equal(apply(SLOT(9)), 1);
    assert_int_equal(apply(SLOT(9) ", { type: resource, key: other, capacity: 1 }"), 1);
    assert_int_equal(weir_set_stats(set_of_user(&b), &stats, limits, 2), 2);
    assert_int_equal(limits[0].granted, 1);
    assert_string_equal(limits[1].key, "other");
    assert_int_equal(limits[1].granted, 0);
    assert_int_equal(limits[1].refused, 0);
    user_close(&a);
    user_close(&b);
}

/* An acquisition that has got a new record by a part that was returned, by each definition. */
static void parts_are_returned_to_what_there_is(void **state)
{
    struct user a = user_open(SLOT(9) ", " DISK(8)), b = user_open(SLOT(9) ", " DISK(8));
    weir_acquisition *held = have(&a, ask("slot", 5, "disk", 4)), *more;

    (void)state;
    assert_int_equal(weir_return(held, "disk", 1), 0);
    assert_int_equal(apply(SLOT(9)), 1);
    assert_int_equal(weir_return(held, "slot", 2), 0);
    EXPECT_HELD(&b, {"slot", 3});
    assert_int_equal(weir_return(held, "disk", 1), 0);
    EXPECT_HELD(&b, {"slot", 3});
    /* Its record has no amount of `disk` any more, so the place is free. */
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(apply(SLOT(9) ", { type: resource, key: x, capacity: 2 }"), 1);
        more = have(&b, ask("x", 2, NULL, 0));
        assert_int_equal(weir_return(held, "disk", 0), 0);
        EXPECT_HELD(&a, {"slot", 4}, {"x", 2});
        assert_int_equal(apply(SLOT(9)), 1);
        end(&more);
    }
    assert_int_equal(weir_return(held, "disk", 2), 0);
    end(&held);
    EXPECT_HELD(&b, {"slot", 0});
    user_close(&a);
    user_close(&b);
    assert_int_equal(logged_n, 0);
}

#define LEASED(key)                                                                                \
    "{ type: call, key: " #key ", algorithm: gcra, capacity: 100, window: 1h, lease: 10 }"

static uint64_t available(const struct user *user)
{
    struct weir_limit_stats limits[1];
    struct weir_set_stats stats = {.size = sizeof(stats)};

    assert_true(weir_set_stats(set_of_user(user), &stats, limits, 1) >= 1);
    return limits[0].available;
}

static void take(const struct user *user, const char *key, uint64_t n)
{
    assert_int_equal(weir_take(user->pool, ask(key, n, NULL, 0), NULL), 0);
}

/* What a thread has leased is of the limit that it was taken of, not of one that comes after it. */
static void a_lease_is_of_one_limit(void **state)
{
    struct user a = user_open(LEASED(calls)), b;

    (void)state;
    take(&a, "calls", 1);
    assert_int_equal(apply(LEASED(other)), 1);
    assert_int_equal(apply(LEASED(last)), 1);
    b = user_open(LEASED(last));
    assert_int_equal(set_of_user(&b)->limits.n, 1); /* in the first place again */
    take(&b, "last", 30);
    for (unsigned i = 0; i < 5; i++)
        take(&a, "last", 1);
    assert_int_equal(available(&b), 65);
    user_close(&a);
    assert_int_equal(available(&b), 65);
    user_close(&b);
    assert_int_equal(logged_n, 0);
}

/* A limit with another lease is another one, and has none. */
static void a_limit_gets_another_lease(void **state)
{
    static const char more[] = "{ type: call, key: calls, algorithm: gcra, capacity: 100, "
                               "window: 1h, lease: 20 }";
    struct user a = user_open(LEASED(calls)), b;

    (void)state;
    take(&a, "calls", 1);
    assert_int_equal(apply(more), 1);
    b = user_open(more);
    take(&b, "calls", 1);
    take(&a, "calls", 1); /* of what is left of the former one */
    assert_int_equal(available(&b), 99);
    user_close(&a);
    assert_int_equal(available(&b), 99);
    user_close(&b);
    assert_int_equal(logged_n, 0);
}

/* ---- damage ---- */

/* Places that no process has written, in the definition that another one is to follow. */
static void hostile_places_are_refused(void **state)
{
    static const struct limit_places hostile[] = {
        {.n = 2, .of_limit = {0, 0}},
        {.n = 2, .of_limit = {0, 255}},
        {.n = 2, .of_limit = {0, 4}},
        {.n = 1, .of_limit = {0}},
        {.n = 3, .of_limit = {0, 1, 2}},
        {.n = 0},
        {.n = 2, .of_limit = {1, 0}},             /* where there is a limit of another key */
        {.n = 2, .of_limit = {0, 1}, .moved = 2}, /* from where a limit is */
        {.n = 2, .of_limit = {0, 1}, .moved = UINT64_C(1) << 63},
    };
    struct weir_options options;

    (void)state;
    for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
        struct user a = user_open(SLOT(2)), b = user_open(SLOT(2));
        const struct segment *segment = set_of_user(&b)->participant->segment;
        struct segment_definition *next;
        weir_acquisition *one = NULL;
        weir *w = NULL;
        int r;

        assert_int_equal(apply(SLOT(2) ", " DISK(2)), 1);
        next = segment_definition(segment, 1);
        next->places = hostile[i];
        segment_definition_seal(next);
        options = options_for(set_of(SLOT(2) ", " DISK(2)));
        r = weir_open(&w, &options, &error);
        if (r != -EUCLEAN && i != 6)
            fail_msg("%zu: %d: %s", i, r, error.message);
        if (r == 0)
            weir_close(w);
        assert_int_equal(weir_try_acquire(b.pool, ask("slot", 1, NULL, 0), &one, NULL), -EUCLEAN);
        user_close(&a);
        user_close(&b);
        assert_true(tmpdir_remove(directory) && tmpdir_make(directory, NULL));
    }
}

/* ---- against a model ---- */

enum { KEYS = 4, USERS = 3, HOLDERS = 12, SUBJECTS = 3 };
static const char *const model_keys[KEYS] = {"a", "b", "c", "d"};

/* A limit of a key, of which there is one at a time. What it was before counts nothing. */
struct model_limit {
    bool is_there, is_call;
    uint64_t capacity, used[SUBJECTS];
    unsigned epoch;
};

/* An acquisition that waits or is held. */
struct model_holder {
    weir_acquisition *acquisition;
    bool is_waiting, ends; /* ends: a limit that it asks has begun anew in another place */
    unsigned subject;
    uint64_t amounts[KEYS];
    unsigned epochs[KEYS]; /* 0: it asks nothing of the key */
};

struct model {
    struct model_limit limits[KEYS];
    unsigned order[KEYS], limits_n, epoch;
    struct model_holder holders[HOLDERS]; /* waiters in their order */
    unsigned holders_n, subjects_n;
    struct user users[USERS];
    uint64_t random;
    unsigned changes, refused;
};

static void model_text(const struct model *model, char *ret, size_t size)
{
    size_t n = 0;

    ret[0] = '\0';
    for (unsigned i = 0; i < model->limits_n; i++) {
        const struct model_limit *limit = &model->limits[model->order[i]];

        n += (size_t)snprintf(
            ret + n, size - n, "%s{ type: %s, key: %s, capacity: %u }", i ? ", " : "",
            limit->is_call ? "call, algorithm: fixed_window, window: 10h, refund: true"
                           : "resource",
            model_keys[model->order[i]], (unsigned)limit->capacity);
    }
}

/* Draws limits, of at least one key, in any order. */
static void model_draw(struct model *model)
{
    struct model_limit before[KEYS];

    memcpy(before, model->limits, sizeof(before));
    model->limits_n = 0;
    for (unsigned k = 0; k < KEYS; k++) {
        struct model_limit *limit = &model->limits[k];
        bool stays = before[k].is_there && random_chance(&model->random, 70);

        limit->is_there = stays || random_chance(&model->random, 40);
        if (!limit->is_there)
            continue;
        limit->capacity = random_from(&model->random, 1, 6);
        if (!stays || random_chance(&model->random, 10))
            limit->is_call = random_chance(&model->random, 30);
        if (!before[k].is_there || before[k].is_call != limit->is_call) {
            memset(limit->used, 0, sizeof(limit->used));
            limit->epoch = ++model->epoch;
        }
        model->order[model->limits_n++] = k;
    }
    for (unsigned i = model->limits_n; i > 1; i--) {
        unsigned k = (unsigned)random_below(&model->random, i), swapped = model->order[k];

        model->order[k] = model->order[i - 1];
        model->order[i - 1] = swapped;
    }
    if (!model->limits_n) {
        memcpy(model->limits, before, sizeof(before));
        model_draw(model);
    }
}

/* Returns what the holder has of a limit, or asks of it: nothing of one that came later. */
static uint64_t model_amount(const struct model *model, const struct model_holder *holder,
                             unsigned k)
{
    const struct model_limit *limit = &model->limits[k];

    return limit->is_there && holder->epochs[k] == limit->epoch ? holder->amounts[k] : 0;
}

enum { FITS, FITS_NOT, NEVER_FITS };

static int model_fits(const struct model *model, const struct model_holder *holder)
{
    int fits = FITS;

    if (holder->ends)
        return NEVER_FITS;
    for (unsigned k = 0; k < KEYS; k++) {
        const struct model_limit *limit = &model->limits[k];
        uint64_t amount = model_amount(model, holder, k);

        if (amount > limit->capacity)
            return NEVER_FITS;
        if (amount && limit->used[holder->subject] + amount > limit->capacity)
            fits = FITS_NOT;
    }
    return fits;
}

static void model_take(struct model *model, const struct model_holder *holder)
{
    for (unsigned k = 0; k < KEYS; k++)
        model->limits[k].used[holder->subject] += model_amount(model, holder, k);
}

static void model_remove(struct model *model, unsigned i)
{
    memmove(&model->holders[i], &model->holders[i + 1],
            (--model->holders_n - i) * sizeof(model->holders[0]));
}

/* Grants the waiters of a subject as the set should have, and checks that it has. */
static void model_settle_subject(struct model *model, unsigned subject)
{
    bool is_blocked = false;

    for (unsigned i = 0; i < model->holders_n; i++) {
        struct model_holder *holder = &model->holders[i];
        int fits;

        if (!holder->is_waiting || holder->subject != subject)
            continue;
        fits = model_fits(model, holder);
        is_blocked |= fits == FITS_NOT;
        if (is_blocked) {
            assert_int_equal(weir_acquisition_result(holder->acquisition), -EINPROGRESS);
            continue;
        }
        expect_result(holder->acquisition, fits == FITS ? 0 : -ERANGE);
        if (fits == FITS) {
            model_take(model, holder);
            holder->is_waiting = false;
        } else {
            assert_int_equal(weir_release(&holder->acquisition), 0);
            model_remove(model, i--);
        }
    }
}

static void model_settle(struct model *model)
{
    for (unsigned subject = 0; subject < model->subjects_n; subject++)
        model_settle_subject(model, subject);
}

static struct user *model_user(struct model *model)
{
    return &model->users[random_below(&model->random, USERS)];
}

/* Some subjects are not asked for, for some time. */
static void model_check_subject(struct model *model, unsigned subject)
{
    struct weir_request request = {.size = sizeof(request)};
    struct weir_remaining remaining[KEYS];

    ask_for(&request, subject);
    assert_int_equal(weir_set_remaining(set_of_user(model_user(model)), &request, remaining, KEYS),
                     model->limits_n);
    for (unsigned i = 0; i < model->limits_n; i++) {
        const struct model_limit *limit = &model->limits[model->order[i]];
        uint64_t used = limit->used[subject];

        assert_string_equal(remaining[i].key, model_keys[model->order[i]]);
        assert_int_equal(remaining[i].capacity, limit->capacity);
        assert_int_equal(remaining[i].available,
                         used < limit->capacity ? limit->capacity - used : 0);
    }
}

static void model_check(struct model *model)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[KEYS];

    assert_int_equal(weir_set_stats(set_of_user(model_user(model)), &stats, limits, KEYS),
                     model->limits_n);
    for (unsigned i = 0; i < model->limits_n; i++) {
        const struct model_limit *limit = &model->limits[model->order[i]];

        assert_string_equal(limits[i].key, model_keys[model->order[i]]);
        assert_int_equal(limits[i].capacity, limit->capacity);
        if (!limit->is_call)
            assert_int_equal(limits[i].held, limit->used[0] + limit->used[1] + limit->used[2]);
    }
    for (unsigned subject = 0; subject < model->subjects_n; subject++)
        if (random_chance(&model->random, subjects[0] ? 30 : 100))
            model_check_subject(model, subject);
}

static bool model_has_waiters(const struct model *model, unsigned subject)
{
    for (unsigned i = 0; i < model->holders_n; i++)
        if (model->holders[i].is_waiting && model->holders[i].subject == subject)
            return true;
    return false;
}

static void model_request(struct model *model)
{
    struct model_holder holder = {.subject =
                                      (unsigned)random_below(&model->random, model->subjects_n)};
    struct weir_amount amounts[KEYS];
    struct weir_request request = {
        .size = sizeof(request), .amounts = amounts, .timeout_ns = WEIR_FOREVER};
    bool waits = random_chance(&model->random, 40), is_free;
    int fits, r;

    for (unsigned k = 0; k < KEYS; k++) {
        const struct model_limit *limit = &model->limits[k];

        if (!limit->is_there)
            continue;
        holder.epochs[k] = limit->epoch;
        holder.amounts[k] =
            random_from(&model->random, 0, limit->capacity < 3 ? limit->capacity : 3);
        amounts[request.amounts_n++] =
            (struct weir_amount){.key = model_keys[k], .amount = holder.amounts[k]};
    }
    fits = model_fits(model, &holder);
    is_free = fits == FITS && !model_has_waiters(model, holder.subject);
    ask_for(&request, holder.subject);
    for (unsigned k = 0; k < KEYS && !is_free; k++)
        if (holder.amounts[k])
            break;
        else if (k == KEYS - 1)
            return; /* it asks for nothing, which the set is not asked for */
    r = waits ? weir_submit(model_user(model)->pool, &request, &holder.acquisition, NULL)
              : weir_try_acquire(model_user(model)->pool, &request, &holder.acquisition, NULL);
    if (is_free)
        assert_int_equal(r, 0);
    else
        assert_int_equal(r, waits ? 1 : -EAGAIN);
    if (r < 0)
        return;
    holder.is_waiting = r == 1;
    if (r == 0)
        model_take(model, &holder);
    model->holders[model->holders_n++] = holder;
}

/* Some give back what they have taken of a call. */
static void model_release(struct model *model, unsigned i)
{
    struct model_holder *holder = &model->holders[i];
    bool refunds = random_chance(&model->random, 50);

    for (unsigned k = 0; k < KEYS && !holder->is_waiting; k++) {
        uint64_t amount = model_amount(model, holder, k);

        if (refunds && holder->epochs[k] && holder->amounts[k] &&
            weir_update(holder->acquisition, model_keys[k], 0) == 0 && model->limits[k].is_call)
            model->limits[k].used[holder->subject] -= amount;
        if (!model->limits[k].is_call)
            model->limits[k].used[holder->subject] -= amount;
    }
    end(&holder->acquisition);
    model_remove(model, i);
}

static void model_return(struct model *model, unsigned i)
{
    struct model_holder *holder = &model->holders[i];
    unsigned k = (unsigned)random_below(&model->random, KEYS);
    uint64_t n;

    if (holder->is_waiting || !holder->amounts[k] || !model->limits[k].is_there ||
        model->limits[k].is_call)
        return;
    n = random_from(&model->random, 1, holder->amounts[k]);
    if (weir_return(holder->acquisition, model_keys[k], n) < 0)
        return; /* a call by the definition that has granted it */
    if (model_amount(model, holder, k))
        model->limits[k].used[holder->subject] -= n;
    holder->amounts[k] -= n;
}

/* Waits for a limit that was exchanged for another one of its key end. */
static void model_end_moved(struct model *model, const struct model *before)
{
    for (unsigned i = 0; i < model->holders_n; i++) {
        struct model_holder *holder = &model->holders[i];

        for (unsigned k = 0; k < KEYS && holder->is_waiting; k++)
            holder->ends |= model_amount(before, holder, k) && model->limits[k].is_there &&
                            model->limits[k].epoch != holder->epochs[k];
    }
}

static void model_change(struct model *model)
{
    struct model before = *model;
    char text[512];
    int r;

    model_draw(model);
    model_text(model, text, sizeof(text));
    r = apply(text);
    if (r == -EBUSY || r == -EOPNOTSUPP) {
        if (!strstr(error.message, "its segment has room for"))
            fail_msg("%s", error.message);
        assert_true(r == -EBUSY || subjects[0] || strstr(error.message, "change it twice"));
        before.random = model->random;
        before.refused++;
        *model = before;
        return;
    }
    if (r < 0)
        fail_msg("%s", error.message);
    model_end_moved(model, &before);
    model->changes++;
}

static void model_end(struct model *model)
{
    while (model->holders_n) {
        model_release(model, model->holders_n - 1);
        model_settle(model);
    }
    model_check(model);
    for (unsigned i = 0; i < KEYS; i++)
        assert_true(
            model->limits[i].is_call || !model->limits[i].is_there ||
            model->limits[i].used[0] + model->limits[i].used[1] + model->limits[i].used[2] == 0);
    for (unsigned i = 0; i < USERS; i++)
        user_close(&model->users[i]);
    assert_true(tmpdir_remove(directory) && tmpdir_make(directory, NULL));
}

static bool model_has_call(const struct model *model)
{
    for (unsigned k = 0; k < KEYS; k++)
        if (model->limits[k].is_there && model->limits[k].is_call)
            return true;
    return false;
}

static void model_case(uint64_t random, unsigned *changes, unsigned *refused)
{
    enum { STEPS = 60 };
    struct model model = {.random = random, .subjects_n = subjects[0] ? SUBJECTS : 1};
    char text[512];

    do /* with subjects, resources alone have room for nothing else */
        model_draw(&model);
    while (subjects[0] && !model_has_call(&model));
    model_text(&model, text, sizeof(text));
    for (unsigned i = 0; i < USERS; i++)
        model.users[i] = user_open(text);
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned i = model.holders_n ? (unsigned)random_below(&model.random, model.holders_n) : 0;

        switch (random_below(&model.random, 8)) {
        case 0:
            model_change(&model);
            break;
        case 1:
            if (model.holders_n)
                model_return(&model, i);
            break;
        case 2:
        case 3:
        case 4:
            if (model.holders_n)
                model_release(&model, i);
            break;
        default:
            if (model.holders_n < HOLDERS)
                model_request(&model);
        }
        model_settle(&model);
        model_check(&model);
    }
    model_end(&model);
    *changes += model.changes;
    *refused += model.refused;
}

static void random_changes_are_as_the_model_says(void **state)
{
    const uint64_t cases = effort_from("WEIR_ROUNDS", 60);
    unsigned changes = 0, refused = 0;

    (void)state;
    for (uint64_t i = 0; i < cases; i++)
        model_case(random_case(test_seed, i), &changes, &refused);
    assert_true(changes > 0);
    printf("%u changes, %u without room\n", changes, refused);
    assert_int_equal(logged_n, 0);
}

static int with_subjects(void **state)
{
    (void)state;
    subjects = "subjects: { max: 8, evict: none }, ";
    return 0;
}

int main(void)
{
    static const struct CMUnitTest keyed[] = {
        place_test(a_limit_comes),
        place_test(a_limit_goes),
        place_test(the_first_limit_goes),
        place_test(a_limit_goes_and_comes_back),
        place_test(a_waiter_of_a_limit_that_goes_is_granted),
        place_test(a_waiter_asks_nothing_of_a_limit_that_comes),
        place_test(a_waiter_keeps_its_place_from_others),
        place_test(waits_for_a_limit_that_moves_end),
        place_test(a_place_from_which_a_limit_moved_gets_free),
        place_test(a_resource_grows_beyond_its_word),
        place_test(a_limit_leaves_the_shadow),
        place_test(a_queue_knows_limits_that_came),
        place_test(a_rest_knows_limits_that_came),
        place_test(a_part_of_a_limit_that_is_gone_goes_nowhere),
        place_test(what_a_waiter_waits_for_is_told),
        place_test(no_request_names_a_limit_that_is_gone),
        place_test(limits_are_listed_in_another_order),
        place_test(a_place_is_used_again_when_nothing_is_held_there),
        place_test(a_record_keeps_nothing_of_limits_that_are_gone),
        place_test(too_many_limits_are_refused),
        place_test(a_resource_follows_one_of_two_rates),
        place_test(a_release_needs_no_chain_of_successors),
        place_test(counts_begin_anew_with_a_place),
        place_test(parts_are_returned_to_what_there_is),
        place_test(hostile_places_are_refused),
        place_test(random_changes_are_as_the_model_says),
    };
    static const struct CMUnitTest tests[] = {
        place_test(a_limit_comes),
        place_test(a_limit_goes),
        place_test(the_first_limit_goes),
        place_test(a_limit_goes_and_comes_back),
        place_test(a_set_without_limits_is_refused),
        place_test(a_waiter_of_a_limit_that_goes_is_granted),
        place_test(a_waiter_asks_nothing_of_a_limit_that_comes),
        place_test(a_waiter_keeps_its_place_from_others),
        place_test(a_limit_gets_another_type),
        place_test(a_resource_gets_another_algorithm),
        place_test(waits_for_a_limit_that_moves_end),
        place_test(a_place_from_which_a_limit_moved_gets_free),
        place_test(a_resource_grows_beyond_its_word),
        place_test(a_limit_leaves_the_shadow),
        place_test(a_queue_knows_limits_that_came),
        place_test(a_rest_knows_limits_that_came),
        place_test(a_part_of_a_limit_that_is_gone_goes_nowhere),
        place_test(a_resource_does_not_follow_a_rate_there),
        place_test(what_a_waiter_waits_for_is_told),
        place_test(a_limit_that_is_gone_keeps_no_order),
        place_test(no_request_names_a_limit_that_is_gone),
        place_test(limits_are_listed_in_another_order),
        place_test(a_reload_finds_the_same),
        place_test(a_place_is_used_again_when_nothing_is_held_there),
        place_test(a_record_keeps_nothing_of_limits_that_are_gone),
        place_test(too_many_limits_are_refused),
        place_test(a_resource_follows_one_of_two_rates),
        place_test(a_place_that_never_gets_free_is_none),
        place_test(a_release_needs_no_chain_of_successors),
        place_test(a_class_does_not_starve_when_a_limit_goes),
        place_test(counts_begin_anew_with_a_place),
        place_test(parts_are_returned_to_what_there_is),
        place_test(a_lease_is_of_one_limit),
        place_test(a_limit_gets_another_lease),
        place_test(hostile_places_are_refused),
        place_test(random_changes_are_as_the_model_says),
    };

    seed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL) +
           cmocka_run_group_tests_name("with subjects", keyed, with_subjects, NULL);
}
