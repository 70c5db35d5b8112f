/* SPDX-License-Identifier: MIT */
/* What algorithms are told of releases: outcomes and latencies; and what they tell: gauges. */
#include "lib/child.h"
#include "lib/world.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define WITNESS  "{ type: resource, key: slots, algorithm: witness }"
#define RATE     "{ type: rate, key: tokens, algorithm: token_bucket, capacity: 100, window: 1s }"
#define SHARED   "backend: process, lifetime: users, "
#define SUBJECTS "subjects: { max: 9 }, "

enum { HELD, RELEASES, OUTCOME, LATENCY, GAUGES };

/* Where the witness may be: alone, beside another limit, in memory that processes share. */
static const struct {
    const char *fields;
    size_t limit;
} places[] = {
    {"limits: [ " WITNESS " ]", 0},
    {"limits: [ " RATE ", " WITNESS " ]", 1},
    {SHARED "limits: [ " WITNESS " ]", 0},
    {SHARED "limits: [ " RATE ", " WITNESS " ]", 1},
};
#define PLACES (sizeof(places) / sizeof(*places))

static void assert_told(size_t place, uint64_t releases, uint64_t outcome, uint64_t latency_ns)
{
    struct weir_limit_gauge gauges[GAUGES];

    assert_int_equal(weir_set_limit_gauges(world.set, places[place].limit, gauges, GAUGES), GAUGES);
    assert_int_equal(gauges[RELEASES].value, releases);
    assert_int_equal(gauges[OUTCOME].value, outcome);
    assert_int_equal(gauges[LATENCY].value, latency_ns);
}

static weir_acquisition *hold(uint64_t ns)
{
    weir_acquisition *a = granted(ASK({"slots", 1}));

    assert_int_equal(weir_acquisition_result(a), 0);
    advance(ns);
    return a;
}

static void nothing_reported_is_success_for_as_long_as_it_was_held(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES; i++) {
        world_set(places[i].fields);
        release(hold(7 * MS));
        assert_told(i, 1, WEIR_OUTCOME_SUCCESS, 7 * MS);
        release(hold(3 * MS));
        assert_told(i, 2, WEIR_OUTCOME_SUCCESS, 3 * MS);
        world_close();
    }
}

static void the_last_report_reaches_the_algorithm(void **state)
{
    static const uint32_t outcomes[] = {WEIR_OUTCOME_OVERLOAD, WEIR_OUTCOME_FAILURE,
                                        WEIR_OUTCOME_IGNORED, WEIR_OUTCOME_SUCCESS};

    (void)state;
    for (size_t i = 0; i < PLACES; i++) {
        world_set(places[i].fields);
        for (size_t k = 0; k < sizeof(outcomes) / sizeof(*outcomes); k++) {
            weir_acquisition *a = hold(5 * MS);

            assert_int_equal(weir_outcome(a, outcomes[(k + 1) % 4], 123), 0);
            assert_int_equal(weir_outcome(a, outcomes[k], k % 2 ? 2 * MS + k : 0), 0);
            advance(1 * MS);
            release(a);
            assert_told(i, k + 1, outcomes[k], k % 2 ? 2 * MS + k : 6 * MS);
        }
        release(hold(4 * MS)); /* a report is not taken for one of the next acquisition */
        assert_told(i, 5, WEIR_OUTCOME_SUCCESS, 4 * MS);
        world_close();
    }
}

static void an_unseen_grant_is_canceled(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES; i++) {
        weir_acquisition *holder, *a;

        world_set(places[i].fields);
        holder = granted(ASK({"slots", 10}));
        a = pending(ASK({"slots", 1}));
        assert_int_equal(weir_outcome(holder, WEIR_OUTCOME_OVERLOAD, 0), 0);
        release(holder);
        assert_told(i, 1, WEIR_OUTCOME_OVERLOAD, 0);
        release(a);
        assert_told(i, 2, WEIR_OUTCOME_CANCELED, 0);
        a = granted(ASK({"slots", 1}));
        assert_int_equal(weir_outcome(a, WEIR_OUTCOME_FAILURE, 9), 0); /* that is having seen it */
        assert_int_equal(weir_cancel(a), -EALREADY);
        release(a);
        assert_told(i, 3, WEIR_OUTCOME_FAILURE, 9);
        world_close();
    }
}

static void parts_that_go_back_early_are_ignored(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES; i++) {
        weir_acquisition *a;

        world_set(places[i].fields);
        a = granted(ASK({"slots", 5}));
        assert_int_equal(weir_outcome(a, WEIR_OUTCOME_OVERLOAD, 0), 0);
        advance(2 * MS);
        assert_int_equal(weir_return(a, "slots", 2), 0);
        assert_told(i, 1, WEIR_OUTCOME_IGNORED, 2 * MS);
        advance(1 * MS);
        release(a);
        assert_told(i, 2, WEIR_OUTCOME_OVERLOAD, 3 * MS);
        world_close();
    }
}

static void a_holder_that_dies_is_dropped(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES; i++) {
        pid_t child;
        int status;

        if (!strstr(places[i].fields, SHARED))
            continue;
        world_set(places[i].fields);
        child = child_fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct twin other = world_twin("main");
            weir_acquisition *a = NULL;

            if (weir_try_acquire(other.pool, ASK({"slots", 3}), &a, NULL) < 0 ||
                weir_outcome(a, WEIR_OUTCOME_SUCCESS, 1) < 0)
                _exit(1);
            raise(SIGKILL);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        advance(8 * MS);
        assert_int_equal(limit_stats(places[i].limit).held, 0); /* cleans up after it */
        assert_told(i, 1, WEIR_OUTCOME_DROPPED, 8 * MS);
        world_close();
    }
}

static struct weir_request *of_subject(struct weir_request *request)
{
    request->subject = "s";
    request->subject_size = 1;
    return request;
}

static void limits_of_subjects_are_told_as_well(void **state)
{
    static const char *const fields[] = {SUBJECTS "limits: [ " WITNESS " ]",
                                         SHARED SUBJECTS "limits: [ " RATE ", " WITNESS " ]"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        weir_acquisition *a, *keep, *b = NULL;

        world_set(fields[i]);
        keep = granted(of_subject(ASK({"slots", 1})));
        a = granted(of_subject(ASK({"slots", 3})));
        assert_int_equal(try_acquire(of_subject(ASK({"slots", 2})), &b), -EAGAIN);
        assert_int_equal(limit_stats(i).held, 4);
        assert_int_equal(weir_outcome(a, WEIR_OUTCOME_OVERLOAD, 0), 0);
        release(a);
        b = granted(of_subject(ASK({"slots", 2})));
        release(b);
        release(keep);
        assert_int_equal(limit_stats(i).held, 0);
        world_close();
    }
}

/* A counted resource and rates do not care. */
static void other_limits_take_reports_too(void **state)
{
    static const char *const fields[] = {
        "limits: [ { type: resource, key: slots, capacity: 4 } ]",
        "limits: [ " RATE ", { type: resource, key: slots, capacity: 4 } ]",
        SHARED "limits: [ { type: resource, key: slots, capacity: 4 } ]",
    };

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        world_set(fields[i]);
        for (int k = 0; k < 3; k++) {
            weir_acquisition *a = granted(ASK({"slots", 1}));

            assert_int_equal(weir_outcome(a, WEIR_OUTCOME_OVERLOAD, 5), 0);
            release(a);
        }
        assert_int_equal(limit_stats(i == 1).held, 0);
        assert_int_equal(weir_set_limit_gauges(world.set, 0, NULL, 0), 0);
        world_close();
    }
}

static void what_cannot_be_reported_is_refused(void **state)
{
    weir_acquisition *holder, *a, *empty;

    (void)state;
    world_set(places[0].fields);
    holder = granted(ASK({"slots", 10}));
    a = pending(ASK({"slots", 1}));
    empty = granted(ASK({"slots", 0}));
    assert_int_equal(weir_outcome(NULL, WEIR_OUTCOME_SUCCESS, 0), -EINVAL);
    assert_int_equal(weir_outcome(holder, WEIR_OUTCOME_DROPPED, 0), -EINVAL);
    assert_int_equal(weir_outcome(holder, WEIR_OUTCOME_CANCELED, 0), -EINVAL);
    assert_int_equal(weir_outcome(holder, UINT32_MAX, 0), -EINVAL);
    assert_int_equal(weir_outcome(a, WEIR_OUTCOME_SUCCESS, 0), -EINVAL);
    assert_int_equal(weir_outcome(empty, WEIR_OUTCOME_SUCCESS, 0), 0);
    release(empty);
    release(a);
    release(holder);
    world_close();
}

static void a_completion_is_reaped_before_its_outcome_is_reported(void **state)
{
    weir_queue *queue = NULL;
    weir_acquisition *a = NULL;
    struct weir_completion done;

    (void)state;
    world_set(places[0].fields);
    assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
    assert_int_equal(weir_queue_submit(queue, world.pool, ASK({"slots", 1}), 42, &a, NULL), 0);
    assert_int_equal(weir_outcome(a, WEIR_OUTCOME_OVERLOAD, 6), -EBUSY);
    assert_int_equal(weir_queue_reap(queue, &done, 1), 1);
    assert_int_equal(done.user_data, 42);
    assert_int_equal(weir_outcome(a, WEIR_OUTCOME_OVERLOAD, 6), 0);
    release(a);
    assert_told(0, 1, WEIR_OUTCOME_OVERLOAD, 6);
    weir_queue_close(queue);
    world_close();
}

static void gauges_have_names_and_meanings(void **state)
{
    struct weir_limit_gauge gauges[GAUGES];

    (void)state;
    world_set(places[1].fields);
    assert_int_equal(weir_set_limit_gauges(world.set, 1, NULL, 0), GAUGES);
    assert_int_equal(weir_set_limit_gauges(world.set, 0, NULL, 0), 0);
    assert_int_equal(weir_set_limit_gauges(world.set, 2, NULL, 0), -EINVAL);
    assert_int_equal(weir_set_limit_gauges(world.set, 1, NULL, 1), -EINVAL);
    assert_int_equal(weir_set_limit_gauges(NULL, 0, NULL, 0), -EINVAL);
    gauges[HELD].name = NULL;
    assert_int_equal(weir_set_limit_gauges(world.set, 1, gauges, 0), GAUGES);
    assert_null(gauges[HELD].name);
    assert_int_equal(weir_set_limit_gauges(world.set, 1, gauges, GAUGES), GAUGES);
    assert_string_equal(gauges[HELD].name, "held");
    assert_string_equal(gauges[HELD].doc, "units held");
    assert_int_equal(gauges[HELD].type, WEIR_PARAMETER_AMOUNT);
    assert_string_equal(gauges[LATENCY].name, "latency");
    assert_int_equal(gauges[LATENCY].type, WEIR_PARAMETER_DURATION);
    world_close();
}

static void what_is_held_is_known_of_a_limit_that_tells(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES; i++) {
        weir_acquisition *a;

        world_set(places[i].fields);
        a = granted(ASK({"slots", 3}));
        assert_int_equal(limit_stats(places[i].limit).held, 3);
        release(a);
        assert_int_equal(limit_stats(places[i].limit).held, 0);
        world_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(nothing_reported_is_success_for_as_long_as_it_was_held),
        leak_checked_test(the_last_report_reaches_the_algorithm),
        leak_checked_test(an_unseen_grant_is_canceled),
        leak_checked_test(parts_that_go_back_early_are_ignored),
        leak_checked_test(a_holder_that_dies_is_dropped),
        leak_checked_test(limits_of_subjects_are_told_as_well),
        leak_checked_test(other_limits_take_reports_too),
        leak_checked_test(what_cannot_be_reported_is_refused),
        leak_checked_test(a_completion_is_reaped_before_its_outcome_is_reported),
        leak_checked_test(gauges_have_names_and_meanings),
        leak_checked_test(what_is_held_is_known_of_a_limit_that_tells),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
