/* SPDX-License-Identifier: MIT */
/*
 * Limits in shadow, sentence by sentence: they refuse and delay nothing, take what is there, count
 * what they would have refused, and get back what they gave. Each test runs where the state is in
 * the process, in a segment, and, with subjects, in sets of subjects. What follows from random
 * histories is in test_set_model.c.
 */
#include "lib/require.h"
#include "lib/world.h"

static const char *subject; /* of the requests that are made; NULL: none */
static uint64_t route;

static struct weir_request *ask(uint64_t calls, uint64_t slots)
{
    static struct weir_amount amounts[2];
    static struct weir_request request;

    amounts[0] = (struct weir_amount){"calls", calls};
    amounts[1] = (struct weir_amount){"slots", slots};
    request = (struct weir_request){.size = sizeof(request),
                                    .amounts = amounts,
                                    .amounts_n = 2,
                                    .route = route,
                                    .timeout_ns = WEIR_FOREVER,
                                    .subject = subject,
                                    .subject_size = subject ? strlen(subject) : 0};
    return &request;
}

/* Opens the set with these fields of its two limits. */
static void open_set(const char *fields, const char *of_calls, const char *of_slots)
{
    char text[512];

    snprintf(text, sizeof(text),
             "%slimits: [ { type: call, key: calls, algorithm: gcra, capacity: 4, window: 4s%s }, "
             "{ type: resource, key: slots, capacity: 2%s } ]",
             fields, of_calls, of_slots);
    world_set(text);
}

static void close_set(void)
{
    subject = NULL;
    route = 0;
    world_close();
}

/* Calls `check` with sets of every kind. */
static void with_each_kind(void (*check)(const char *fields))
{
    subject = NULL;
    check("");
    check("fair: per_limit, ");
    subject = "a client";
    check("subjects: { max: 10 }, ");
}

static void assert_counts(unsigned limit, uint64_t granted, uint64_t would_refuse)
{
    struct weir_limit_stats limits[2];
    struct weir_set_stats stats = {.size = sizeof(stats)};

    assert_int_equal(weir_set_stats(world.set, &stats, limits, 2), 2);
    assert_int_equal(limits[limit].granted, granted);
    assert_int_equal(limits[limit].would_refuse, would_refuse);
    assert_int_equal(limits[limit].refused, 0);
}

static uint64_t held(void)
{
    struct weir_limit_stats limits[2];
    struct weir_set_stats stats = {.size = sizeof(stats)};

    assert_int_equal(weir_set_stats(world.set, &stats, limits, 2), 2);
    return limits[1].held;
}

static void check_rate(const char *fields)
{
    weir_acquisition *all[6];
    uint64_t at;

    open_set(fields, ", shadow: true", "");
    for (unsigned i = 0; i < 6; i++) {
        all[i] = granted(ask(1, 0));
        assert_int_equal(weir_set_ready_at(world.set, ask(4, 0), &at), 0);
        assert_int_equal(at, weir_now(world.w));
    }
    assert_counts(0, 4, 2);
    advance(SECOND);
    assert_int_equal(take(ask(1, 0)), 0); /* what came back in the time of an enforced limit */
    assert_int_equal(take(ask(1, 0)), 0);
    assert_counts(0, 5, 3);
    for (unsigned i = 0; i < 6; i++)
        release(all[i]);
    close_set();
}

static void a_rate_takes_what_it_would_grant_and_counts_the_rest(void **state)
{
    (void)state;
    with_each_kind(check_rate);
}

static void check_resource(const char *fields)
{
    weir_acquisition *first, *second, *third;

    open_set(fields, "", ", shadow: true");
    first = granted(ask(1, 2));
    second = granted(ask(1, 1));
    assert_int_equal(held(), 2);
    release(first);
    assert_int_equal(held(), 0);
    third = granted(ask(1, 1));
    release(second); /* has nothing to give back */
    assert_int_equal(held(), 1);
    release(third);
    assert_int_equal(held(), 0);
    assert_counts(1, 3, 1);
    close_set();
}

static void a_release_returns_what_was_taken_and_no_more(void **state)
{
    (void)state;
    with_each_kind(check_resource);
}

static void check_parts(const char *fields)
{
    weir_acquisition *first, *second;

    open_set(fields, "", ", shadow: true");
    first = granted(ask(1, 2));
    second = granted(ask(1, 2));
    assert_int_equal(weir_return(second, "slots", 1), 0);
    assert_int_equal(held(), 2);
    assert_int_equal(weir_return(first, "slots", 1), 0);
    assert_int_equal(held(), 1);
    release(second);
    assert_int_equal(held(), 1);
    release(first);
    assert_int_equal(held(), 0);
    close_set();
}

static void a_part_that_was_not_taken_does_not_go_back(void **state)
{
    (void)state;
    with_each_kind(check_parts);
}

static void check_more_than_ever(const char *fields)
{
    weir_acquisition *all;

    open_set(fields, ", shadow: true", ", enforce: 0%");
    all = granted(ask(100, UINT64_MAX - 1));
    assert_int_equal(held(), 0);
    assert_counts(0, 0, 1);
    release_used(all, "calls", 100);
    assert_int_equal(held(), 0);
    close_set();
}

static void more_than_can_ever_be_granted_is_not_refused(void **state)
{
    (void)state;
    with_each_kind(check_more_than_ever);
}

/* Limits in shadow of one request are all or nothing, as they will be when they are enforced. */
static void check_together(const char *fields)
{
    weir_acquisition *first, *second;

    open_set(fields, ", shadow: true", ", shadow: true");
    first = granted(ask(1, 2));
    second = granted(ask(1, 1));
    assert_counts(0, 1, 0);
    assert_counts(1, 2, 1);
    if (!subject)
        assert_int_equal(available(0), 3); /* nor is it taken without being counted */
    release(first);
    release(second);
    assert_int_equal(held(), 0);
    close_set();
}

static void limits_in_shadow_grant_together(void **state)
{
    (void)state;
    with_each_kind(check_together);
}

/* Waits for an enforced limit; what is in shadow is decided when it is granted. */
static void check_waiter(const char *fields)
{
    weir_acquisition *holder, *waiter, *free_one;

    open_set(fields, ", shadow: true", "");
    holder = granted(ask(4, 2));
    waiter = pending(ask(1, 1));
    free_one = granted(ask(1, 0)); /* asks for nothing that is enforced */
    assert_counts(0, 4, 1);
    release_used(holder, "calls", 4);
    assert_int_equal(weir_acquisition_result(waiter), 0);
    assert_counts(0, 4, 2);
    assert_int_equal(weir_cancel(free_one), -EALREADY);
    release(free_one);
    assert_int_equal(held(), 1);
    release_used(waiter, "calls", 1);
    assert_int_equal(held(), 0);
    close_set();
}

static void no_request_waits_for_a_limit_in_shadow_or_behind_one_that_waits(void **state)
{
    (void)state;
    with_each_kind(check_waiter);
}

/* Of counted resources alone, which a release would hand over. */
static void a_limit_in_shadow_holds_up_no_hand_over(void **state)
{
    weir_acquisition *other, *holder, *waiter;

    (void)state;
    world_limits("{ type: resource, key: a, capacity: 1 },"
                 " { type: resource, key: b, capacity: 1, shadow: true }");
    other = granted(ASK({"a", 0}, {"b", 1}));
    holder = granted(ASK({"a", 1}, {"b", 1}));
    waiter = pending(ASK({"a", 1}, {"b", 1}));
    release(holder);
    assert_int_equal(weir_acquisition_result(waiter), 0);
    assert_counts(1, 1, 2);
    assert_int_equal(held(), 1);
    release(waiter);
    assert_int_equal(held(), 1);
    release(other);
    assert_int_equal(held(), 0);
    world_close();
}

/* ---- which requests ---- */

static bool is_enforced(const char *of, uint64_t by_route)
{
    weir_acquisition *second = NULL;
    bool is_refused;

    subject = of;
    route = by_route;
    is_refused = try_acquire(ask(9, 0), &second) == -ERANGE;
    if (!is_refused)
        release_used(second, "calls", 9);
    return is_refused;
}

/* From the formula of docs/configuration.md, computed by another program. */
static void a_request_is_enforced_by_its_subject_or_route(void **state)
{
    static const struct {
        const char *subject;
        uint64_t route;
        unsigned number;
    } known[] = {
        {"a", 0, 96},         {"customer-1", 0, 19}, {"customer-2", 0, 30},
        {"192.0.2.7", 0, 46}, {"\xc3\xbc", 0, 74},   {NULL, 0, 5},
        {NULL, 1, 96},        {NULL, 12345, 64},     {NULL, UINT64_MAX, 57},
    };
    char fields[64];

    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        for (unsigned percent = known[i].number; percent <= known[i].number + 1; percent++) {
            snprintf(fields, sizeof(fields), ", enforce: %u%%", percent);
            open_set("", fields, "");
            assert_int_equal(is_enforced(known[i].subject, known[i].route),
                             percent > known[i].number);
            close_set();
        }
    }
}

static void a_set_says_it_for_its_limits(void **state)
{
    (void)state;
    open_set("shadow: true, ", "", ", enforce: 100%");
    assert_false(is_enforced(NULL, 0));
    assert_int_equal(try_acquire(ask(1, 3), &(weir_acquisition *){NULL}), -ERANGE);
    close_set();
    open_set("enforce: 0%, ", ", shadow: false", "");
    assert_true(is_enforced(NULL, 0));
    close_set();
}

/* ---- reload ---- */

static void reload_limits(const char *of_calls, const char *of_slots)
{
    struct weir_options options = {.size = sizeof(options)};
    char text[512];

    snprintf(text, sizeof(text),
             "version: 1\nsets:\n  main: { limits: [ { type: call, key: calls, algorithm: gcra, "
             "capacity: 4, window: 4s%s }, { type: resource, key: slots, capacity: 2%s } ] }\n",
             of_calls, of_slots);
    options.text = text;
    assert_int_equal(weir_reload(world.w, &options, NULL), 0);
}

static void reload_as(const char *of_slots)
{
    reload_limits("", of_slots);
}

static void a_reload_turns_shadow_off_and_on(void **state)
{
    weir_acquisition *first, *second, *third = NULL, *waiter;

    (void)state;
    if (backend->is_shared)
        skip_because("a reload changes no limit of what processes share");
    open_set("", "", ", shadow: true");
    first = granted(ask(0, 2));
    second = granted(ask(0, 1));
    reload_as("");
    assert_int_equal(held(), 2);
    assert_int_equal(try_acquire(ask(0, 1), &third), -EAGAIN);
    waiter = pending(ask(0, 1));
    release(second); /* by the old definition it has taken nothing */
    assert_int_equal(weir_acquisition_result(waiter), -EINPROGRESS);
    reload_as(", shadow: true");
    assert_int_equal(weir_acquisition_result(waiter), 0); /* nothing keeps it any more */
    release(waiter);                                      /* nor has it taken anything */
    assert_int_equal(held(), 2);
    release(first);
    assert_int_equal(held(), 0);
    close_set();
}

/* One limit goes on as two: what was taken of the first one alone goes back there. */
static void a_limit_that_became_two_gets_back_what_it_gave(void **state)
{
    weir_acquisition *first, *waiter;

    (void)state;
    if (backend->is_shared)
        skip_because("a reload changes no limit of what processes share");
    open_set("", "", "");
    first = granted(ask(0, 2));
    waiter = pending(ask(0, 2));
    reload_as(" }, { type: resource, key: slots, capacity: 1, shadow: true");
    release(first);
    assert_int_equal(weir_acquisition_result(waiter), 0);
    assert_int_equal(limit_stats(1).held, 2);
    assert_int_equal(limit_stats(2).held, 0);
    release(waiter);
    assert_int_equal(limit_stats(1).held, 0);
    assert_int_equal(limit_stats(2).held, 0);
    close_set();
}

/* Without shadow by the definition that has made the record, too. */
static void what_was_not_taken_after_a_reload_is_not_counted_as_refunded(void **state)
{
    weir_acquisition *first, *waiter;
    struct weir_limit_stats calls;

    (void)state;
    if (backend->is_shared)
        skip_because("a reload changes no limit of what processes share");
    open_set("", ", refund: true", "");
    first = granted(ask(4, 2));
    waiter = pending(ask(2, 1));
    reload_limits(", refund: true, shadow: true", "");
    release_used(first, "calls", 4);
    assert_int_equal(weir_acquisition_result(waiter), 0);
    calls = limit_stats(0);
    assert_int_equal(calls.would_refuse, 1);
    assert_int_equal(calls.granted, 4);
    release_used(waiter, "calls", 1);
    assert_int_equal(limit_stats(0).refunded, calls.refunded);
    assert_int_equal(limit_stats(0).available, calls.available);
    close_set();
}

/* A reservation moves the time of the set; a request that is not enforced is granted now. */
static void a_reservation_does_not_delay_what_is_in_shadow(void **state)
{
    weir_acquisition *reserved, *other, *early;
    uint64_t at = 0;

    (void)state;
    subject = NULL;
    open_set("", ", enforce: 50%", "");
    route = 0; /* number 5 */
    other = granted(ask(4, 0));
    assert_int_equal(reserve(ask(4, 0), &reserved, &at), 0);
    assert_int_equal(at, weir_now(world.w) + 4 * SECOND);
    route = 1; /* number 96 */
    assert_int_equal(reserve(ask(1, 0), &early, &at), 0);
    assert_int_equal(at, weir_now(world.w));
    release_used(early, "calls", 1);
    early = granted(ask(1, 0));
    assert_int_equal(weir_acquisition_granted_ns(early, &at), 0);
    assert_int_equal(at, weir_now(world.w));
    assert_counts(0, 8, 2);
    release(early);
    release_used(reserved, "calls", 4);
    release_used(other, "calls", 4);
    close_set();
}

/* ---- what is told of a set ---- */

static void check_remaining(const char *fields)
{
    struct weir_remaining remaining[2];
    weir_acquisition *holder;

    open_set(fields, ", shadow: true", "");
    holder = granted(ask(4, 2));
    assert_int_equal(weir_set_remaining(world.set, ask(1, 1), remaining, 2), 2);
    assert_int_equal(remaining[0].available, 4);
    assert_int_equal(remaining[0].more_after_ns, 0);
    assert_int_equal(remaining[0].full_after_ns, 0);
    assert_int_equal(remaining[1].available, 0);
    release_used(holder, "calls", 4);
    close_set();
}

static void what_remains_of_a_limit_that_refuses_nothing_is_all_of_it(void **state)
{
    (void)state;
    with_each_kind(check_remaining);
}

static void a_holder_that_has_taken_nothing_is_listed(void **state)
{
    weir_acquisition *first, *second;
    struct weir_holder holders[3];
    uint64_t amounts[2];

    (void)state;
    subject = NULL;
    open_set("", "", ", shadow: true");
    first = granted(ask(0, 2));
    second = granted(ask(0, 1));
    assert_int_equal(stats().held, 2);
    assert_int_equal(weir_set_holders(world.set, holders, 3), 2);
    release(first);
    assert_int_equal(weir_set_holders(world.set, holders, 3), 1);
    assert_int_equal(weir_set_holder_amounts(world.set, &holders[0], amounts, 2), 2);
    assert_int_equal(amounts[1], 0);
    release(second);
    assert_int_equal(weir_set_holders(world.set, holders, 3), 0);
    close_set();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_rate_takes_what_it_would_grant_and_counts_the_rest),
        leak_checked_test(a_release_returns_what_was_taken_and_no_more),
        leak_checked_test(a_part_that_was_not_taken_does_not_go_back),
        leak_checked_test(more_than_can_ever_be_granted_is_not_refused),
        leak_checked_test(limits_in_shadow_grant_together),
        leak_checked_test(no_request_waits_for_a_limit_in_shadow_or_behind_one_that_waits),
        leak_checked_test(a_limit_in_shadow_holds_up_no_hand_over),
        leak_checked_test(a_request_is_enforced_by_its_subject_or_route),
        leak_checked_test(a_set_says_it_for_its_limits),
        leak_checked_test(a_reload_turns_shadow_off_and_on),
        leak_checked_test(a_limit_that_became_two_gets_back_what_it_gave),
        leak_checked_test(what_was_not_taken_after_a_reload_is_not_counted_as_refunded),
        leak_checked_test(a_reservation_does_not_delay_what_is_in_shadow),
        leak_checked_test(what_remains_of_a_limit_that_refuses_nothing_is_all_of_it),
        leak_checked_test(a_holder_that_has_taken_nothing_is_listed),
    };

    backend_choose(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
