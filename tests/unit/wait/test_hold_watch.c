/* SPDX-License-Identifier: MIT */
/*
 * Acquisitions that are held too long, sentence by sentence: what is told, once; what is revoked,
 * and what every call on a revoked acquisition says. Each test runs where the state is in the
 * process, in a segment, and, with subjects, in sets of subjects.
 */
#include "lib/require.h"
#include "lib/world.h"
#include "set/set.h"
#include <poll.h>
#include <unistd.h>
#include <weir/segment.h>

#define LIMIT   "{ type: resource, key: slots, capacity: 2, max_hold: 30s"
#define WARNS   LIMIT " }"
#define REVOKES LIMIT ", max_hold_action: revoke }"
#define CALLS   ", { type: call, key: calls, algorithm: gcra, capacity: 10, window: 10s }"

static const char *subject; /* of the requests that are made; NULL: none */

/* ---- events ---- */

static struct weir_event last;
static uint64_t last_amounts[4];
static char last_key[16];
static unsigned told;

static void hear(void *userdata, const struct weir_event *event)
{
    (void)userdata;
    told++;
    last = *event;
    snprintf(last_key, sizeof(last_key), "%s", event->key);
    assert_true(event->amounts_n <= 4);
    memcpy(last_amounts, event->amounts, event->amounts_n * sizeof(uint64_t));
    assert_string_equal(event->set, "main");
}

/* Opens the set with these fields and limits. The listener hears of what is overheld. */
static void open_set(const char *fields, const char *limits)
{
    char text[512];

    snprintf(text, sizeof(text), "%slimits: [ %s ]", fields, limits);
    world_set(text);
    told = 0;
    assert_int_equal(
        weir_listen(world.w, &(struct weir_listener){.size = sizeof(struct weir_listener),
                                                     .event = hear,
                                                     .types = 1u << WEIR_EVENT_OVERHELD}),
        0);
}

static struct weir_request *slots(uint64_t n)
{
    static struct weir_amount amount;
    static struct weir_request request;

    amount = (struct weir_amount){"slots", n};
    request = (struct weir_request){.size = sizeof(request),
                                    .amounts = &amount,
                                    .amounts_n = 1,
                                    .timeout_ns = WEIR_FOREVER,
                                    .subject = subject,
                                    .subject_size = subject ? strlen(subject) : 0};
    return &request;
}

/* Calls `check` with sets of every kind. */
static void with_each_kind(void (*check)(const char *fields))
{
    subject = NULL;
    check("");
    check("fair: per_limit, ");
    check("priorities: 2, ");
    subject = "a client";
    check("subjects: { max: 10 }, ");
    subject = NULL;
}

static uint64_t held(void)
{
    return limit_stats(0).held;
}

static void assert_counts(uint64_t overheld, uint64_t revoked)
{
    assert_int_equal(stats().overheld, overheld);
    assert_int_equal(stats().revoked, revoked);
}

/* ---- warnings ---- */

static void check_warning(const char *fields)
{
    weir_acquisition *first, *second;
    uint64_t due;

    open_set(fields, WARNS);
    first = granted(slots(1));
    advance(10 * SECOND);
    second = granted(slots(1));
    assert_int_equal(weir_due_at(world.w, &due), 0);
    assert_true(due <= world_start + 30 * SECOND);
    advance(20 * SECOND - 1);
    assert_int_equal(told, 0);
    assert_int_equal(world.logged, 0);
    advance(1);
    assert_int_equal(told, 1);
    assert_int_equal(last.type, WEIR_EVENT_OVERHELD);
    assert_int_equal(last.result, 0);
    assert_int_equal(last.hold_ns, 30 * SECOND);
    assert_string_equal(last_key, "slots");
    assert_int_equal(last_amounts[0], 1);
    assert_int_equal(last.process, getpid());
    assert_int_equal(last.thread, gettid());
    assert_true(last.id != 0);
    assert_true((last.subject != 0) == (subject != NULL));
    assert_int_equal(world.logged, 1);
    assert_non_null(strstr(world.log[0], "`main`"));
    assert_non_null(strstr(world.log[0], "`slots` has been held for 30000 ms"));
    advance(5 * SECOND);
    assert_int_equal(told, 1);
    advance(5 * SECOND);
    assert_int_equal(told, 2);
    advance(100 * SECOND);
    assert_int_equal(told, 2); /* each once */
    assert_counts(2, 0);
    assert_int_equal(held(), 2);
    release(first);
    release(second);
    assert_int_equal(held(), 0);
    release(granted(slots(2))); /* another one, of a record that was told */
    first = granted(slots(2));
    advance(30 * SECOND);
    assert_int_equal(told, 3);
    release(first);
    world_close();
}

static void what_is_held_too_long_is_told_once(void **state)
{
    (void)state;
    with_each_kind(check_warning);
}

static void check_waiter(const char *fields)
{
    weir_acquisition *first, *waiter;

    open_set(fields, WARNS);
    first = granted(slots(2));
    waiter = pending(slots(2));
    advance(20 * SECOND);
    release(first);
    assert_int_equal(weir_acquisition_result(waiter), 0);
    advance(30 * SECOND - 1);
    assert_int_equal(told, 0);
    advance(1);
    assert_int_equal(told, 1);
    assert_int_equal(last.hold_ns, 30 * SECOND); /* it counts from the grant */
    first = waiter;
    waiter = pending(slots(2)); /* it is all that there is left to tell of */
    advance(50 * SECOND);
    release(first);
    assert_int_equal(weir_acquisition_result(waiter), 0);
    advance(30 * SECOND);
    assert_int_equal(told, 2);
    release(waiter);
    world_close();
}

static void what_has_waited_is_held_from_its_grant_on(void **state)
{
    (void)state;
    with_each_kind(check_waiter);
}

static void nothing_is_scheduled_while_nothing_is_held(void **state)
{
    uint64_t due;

    (void)state;
    open_set("", WARNS);
    release(granted(slots(1)));
    advance(60 * SECOND);
    assert_int_equal(weir_due_at(world.w, &due), 0);
    assert_int_equal(due, WEIR_FOREVER);
    release(granted(slots(1)));
    advance(1);
    assert_int_equal(weir_due_at(world.w, &due), 0);
    assert_true(due > weir_now(world.w) && due <= weir_now(world.w) + 30 * SECOND);
    assert_int_equal(told, 0);
    world_close();
}

/* The shortest one counts first, of those of which units are held. */
static void each_limit_has_its_own_time(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    open_set("",
             "{ type: resource, key: long, capacity: 9, max_hold: 60s, max_hold_action: revoke }, "
             "{ type: resource, key: slots, capacity: 9, max_hold: 30s }, "
             "{ type: resource, key: free, capacity: 9 }");
    a = granted(ASK({"long", 1}, {"slots", 0}, {"free", 1}));
    b = granted(ASK({"long", 0}, {"slots", 0}, {"free", 5}));
    advance(59 * SECOND);
    assert_int_equal(told, 0);
    advance(SECOND);
    assert_int_equal(told, 1);
    assert_string_equal(last_key, "long");
    assert_int_equal(last.result, -EOWNERDEAD);
    release_expecting(a, -EOWNERDEAD);
    a = granted(ASK({"long", 1}, {"slots", 1}, {"free", 0}));
    advance(30 * SECOND);
    assert_int_equal(told, 2);
    assert_string_equal(last_key, "slots");
    assert_int_equal(last.result, 0);
    advance(30 * SECOND);
    assert_int_equal(told, 3); /* told of the one, and revoked by the other */
    assert_string_equal(last_key, "long");
    assert_int_equal(last.result, -EOWNERDEAD);
    assert_counts(2, 2);
    release_expecting(a, -EOWNERDEAD);
    advance(1000 * SECOND);
    assert_int_equal(told, 3);
    release(b);
    world_close();
}

/* ---- revocations ---- */

static void check_revocation(const char *fields)
{
    weir_acquisition *a, *waiter, *next;
    struct weir_holder holder;
    uint64_t ns;
    int lost;

    open_set(fields, REVOKES CALLS);
    a = granted(slots(2));
    lost = weir_acquisition_lost_fd(a);
    assert_true(lost >= 0);
    assert_int_equal(weir_acquisition_lost_fd(a), lost);
    waiter = pending(slots(1));
    advance(30 * SECOND - 1);
    assert_int_equal(weir_acquisition_result(a), 0);
    assert_false(readable(lost));
    assert_int_equal(weir_acquisition_result(waiter), -EINPROGRESS);
    assert_int_equal(advance(1), 1);
    assert_int_equal(told, 1);
    assert_int_equal(last.result, -EOWNERDEAD);
    assert_int_equal(last_amounts[0], 2);
    assert_non_null(strstr(world.log[0], "revoked"));
    assert_int_equal(weir_acquisition_result(waiter), 0);
    assert_int_equal(held(), 1);
    assert_counts(1, 1);
    assert_true(readable(lost));
    assert_int_equal(weir_set_holders(world.set, &holder, 1), 1);

    assert_int_equal(weir_acquisition_result(a), -EOWNERDEAD);
    assert_int_equal(weir_update(a, "calls", 1), -EOWNERDEAD);
    assert_int_equal(weir_return(a, "slots", 1), -EOWNERDEAD);
    assert_int_equal(weir_outcome(a, WEIR_OUTCOME_SUCCESS, 0), -EOWNERDEAD);
    assert_int_equal(weir_acquisition_granted_ns(a, &ns), -EOWNERDEAD);
    assert_int_equal(weir_acquisition_fence(a, &ns), -EOWNERDEAD);
    assert_int_equal(weir_cancel(a), -EALREADY);
    assert_int_equal(weir_acquisition_lost_fd(a), lost);
    next = granted(slots(1));
    release_expecting(a, -EOWNERDEAD);
    assert_int_equal(held(), 2); /* nothing went back a second time */
    assert_int_equal(stats().held, 2);
    release(next);
    release(waiter);
    assert_int_equal(held(), 0);
    assert_int_equal(stats().held, 0);
    assert_int_equal(stats().granted, stats().released);
    world_close();
}

static void what_is_revoked_goes_back_once(void **state)
{
    (void)state;
    with_each_kind(check_revocation);
}

static void check_part(const char *fields)
{
    weir_acquisition *a;
    int lost;

    open_set(fields, REVOKES CALLS);
    a = granted(slots(2));
    lost = weir_acquisition_lost_fd(a);
    advance(10 * SECOND);
    assert_int_equal(weir_return(a, "slots", 1), 0);
    assert_int_equal(held(), 1);
    assert_false(readable(lost));
    advance(20 * SECOND - 1);
    assert_int_equal(held(), 1);
    advance(1); /* what is left is held from the grant on */
    assert_int_equal(held(), 0);
    assert_int_equal(last_amounts[0], 1);
    assert_true(readable(lost));
    assert_int_equal(weir_return(a, "slots", 1), -EOWNERDEAD);
    release_expecting(a, -EOWNERDEAD);
    assert_int_equal(held(), 0);

    a = granted(slots(2)); /* a release in time, after a part */
    assert_int_equal(weir_return(a, "slots", 1), 0);
    release(a);
    assert_int_equal(held(), 0);
    a = granted(slots(1)); /* a part of what is used up */
    assert_int_equal(weir_return(a, "calls", 1), 0);
    advance(30 * SECOND);
    release_expecting(a, -EOWNERDEAD);
    assert_counts(2, 2);
    world_close();
}

static void what_is_left_of_an_acquisition_is_revoked(void **state)
{
    (void)state;
    with_each_kind(check_part);
}

/* A grant that the program has not seen is held as well. */
static void check_unseen(const char *fields)
{
    weir_acquisition *first, *waiter;
    int fd;

    open_set(fields, REVOKES);
    first = granted(slots(2));
    waiter = pending(slots(2));
    fd = weir_acquisition_fd(waiter);
    release(first);
    assert_true(readable(fd));
    advance(30 * SECOND);
    assert_int_equal(held(), 0);
    assert_int_equal(weir_cancel(waiter), -EALREADY);
    assert_int_equal(weir_acquisition_result(waiter), -EOWNERDEAD);
    release_expecting(waiter, -EOWNERDEAD);
    world_close();
}

static void a_grant_that_was_not_seen_is_revoked(void **state)
{
    (void)state;
    with_each_kind(check_unseen);
}

static void check_queue(const char *fields)
{
    struct weir_completion out[3];
    weir_acquisition *own = NULL, *first;
    weir_queue *queue;

    open_set(fields, REVOKES);
    assert_int_equal(weir_queue_open(&queue, world.w, 8), 0);
    first = granted(slots(2));
    assert_int_equal(weir_queue_submit(queue, world.pool, slots(1), 1, NULL, NULL), 0);
    assert_int_equal(weir_queue_submit(queue, world.pool, slots(1), 2, &own, NULL), 0);
    assert_int_equal(weir_queue_submit(queue, world.pool, slots(2), 3, NULL, NULL), 0);
    release(first);
    advance(30 * SECOND); /* the first two are revoked, and the third is granted */
    assert_int_equal(weir_queue_cancel(queue, 1), 0);
    assert_int_equal(weir_queue_reap(queue, out, 3), 3);
    assert_int_equal(out[0].result, -EOWNERDEAD);
    assert_null(out[0].acquisition);
    assert_int_equal(out[1].result, -EOWNERDEAD);
    assert_ptr_equal(out[1].acquisition, own);
    release_expecting(own, -EOWNERDEAD);
    assert_int_equal(out[2].result, 0);
    assert_int_equal(held(), 2);
    release(out[2].acquisition);
    assert_int_equal(held(), 0);
    first = granted(slots(2)); /* closed with a revoked one that was not reaped */
    assert_int_equal(weir_queue_submit(queue, world.pool, slots(1), 4, NULL, NULL), 0);
    release(first);
    advance(30 * SECOND);
    weir_queue_close(queue);
    assert_int_equal(held(), 0);
    world_close();
}

static void completions_say_what_was_revoked(void **state)
{
    (void)state;
    with_each_kind(check_queue);
}

/* A program that injects a clock may reap and never tick. */
static void a_reap_looks_as_well(void **state)
{
    struct weir_completion out;
    weir_acquisition *first;
    weir_queue *queue;
    uint64_t due;

    (void)state;
    open_set("", REVOKES);
    assert_int_equal(weir_queue_open(&queue, world.w, 8), 0);
    first = granted(slots(2));
    assert_int_equal(weir_queue_submit(queue, world.pool, slots(2), 1, NULL, NULL), 0);
    assert_int_equal(weir_queue_reap(queue, &out, 1), 0);
    assert_int_equal(weir_due_at(world.w, &due), 0);
    assert_true(due <= world_start + 30 * SECOND);
    world.now = world_start + 30 * SECOND;
    assert_int_equal(weir_queue_reap(queue, &out, 1), 1);
    assert_int_equal(out.result, 0);
    assert_counts(1, 1);
    release_expecting(first, -EOWNERDEAD);
    release(out.acquisition);
    weir_queue_close(queue);
    world_close();
}

/* By another instance, as another process: its clock is the only one that goes on. */
static void any_process_revokes(void **state)
{
    struct twin other;
    weir_acquisition *a, *b = NULL;
    int lost;

    (void)state;
    if (!backend->is_shared)
        skip_because("only sets that processes share");
    open_set("", REVOKES);
    other = world_twin("main");
    a = granted(slots(2));
    lost = weir_acquisition_lost_fd(a);
    assert_int_equal(weir_submit(other.pool, slots(1), &b, NULL), 1);
    world.now += 30 * SECOND;
    assert_int_equal(weir_tick(other.w), 1);
    assert_int_equal(weir_acquisition_result(b), 0);
    assert_int_equal(weir_acquisition_result(a), -EOWNERDEAD);
    assert_int_equal(told, 0); /* it was told there */
    assert_false(readable(lost));
    assert_int_equal(weir_tick(world.w), 0);
    assert_true(readable(lost)); /* it looks at the same time */
    assert_int_equal(told, 0);
    assert_counts(1, 1);
    release_expecting(a, -EOWNERDEAD);
    assert_int_equal(held(), 1);
    assert_int_equal(weir_release(&b), 0);
    assert_int_equal(held(), 0);
    world_twin_close(&other);
    world_close();
}

static void a_process_that_only_tries_looks_as_well(void **state)
{
    struct twin other;
    weir_acquisition *a, *b = NULL;

    (void)state;
    if (!backend->is_shared)
        skip_because("only sets that processes share");
    open_set("", REVOKES);
    other = world_twin("main");
    a = granted(slots(2));
    assert_int_equal(weir_try_acquire(other.pool, slots(1), &b, NULL), -EAGAIN);
    assert_int_equal(weir_tick(other.w), 0);
    world.now += 29 * SECOND;
    assert_int_equal(weir_try_acquire(other.pool, slots(1), &b, NULL), -EAGAIN);
    world.now += SECOND;
    weir_tick(other.w);
    assert_int_equal(weir_acquisition_result(a), -EOWNERDEAD);
    assert_int_equal(weir_try_acquire(other.pool, slots(1), &b, NULL), 0);
    assert_int_equal(weir_release(&b), 0);
    release_expecting(a, -EOWNERDEAD);
    world_twin_close(&other);
    world_close();
}

static void only_what_can_be_revoked_has_a_descriptor_for_it(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_set("", WARNS);
    a = granted(slots(1));
    assert_int_equal(weir_acquisition_lost_fd(a), -EOPNOTSUPP);
    release(a);
    world_close();
    open_set("", REVOKES);
    a = granted(slots(1));
    advance(30 * SECOND);
    assert_int_equal(weir_acquisition_lost_fd(a), -EOWNERDEAD);
    release_expecting(a, -EOWNERDEAD);
    world_close();
}

/* ---- holders ---- */

static void a_holder_says_that_it_is_overheld(void **state)
{
    struct weir_overheld overheld = {.size = sizeof(overheld)};
    weir_acquisition *a, *waiter;
    struct weir_holder holders[2];

    (void)state;
    open_set("", WARNS);
    a = granted(slots(2));
    waiter = pending(slots(1));
    assert_int_equal(weir_set_holders(world.set, holders, 2), 2);
    assert_int_equal(holders[0].thread, gettid());
    advance(30 * SECOND - 1);
    assert_int_equal(weir_set_holder_overheld(world.set, &holders[0], &overheld), 0);
    advance(SECOND);
    assert_int_equal(weir_set_holder_overheld(world.set, &holders[0], &overheld), 1);
    assert_string_equal(overheld.key, "slots");
    assert_int_equal(overheld.since_ns, world_start + 30 * SECOND);
    assert_int_equal(overheld.revoke_ns, WEIR_FOREVER);
    assert_int_equal(weir_set_holder_overheld(world.set, &holders[1], &overheld), 0);
    assert_int_equal(weir_set_holders(world.set, holders, 2), 2);
    assert_int_equal(holders[0].thread, gettid()); /* also of one that was told */
    release(a);
    assert_int_equal(weir_set_holder_overheld(world.set, &holders[0], &overheld), -ESRCH);
    assert_int_equal(weir_set_holder_overheld(world.set, &holders[0], NULL), -EINVAL);
    overheld.size--;
    assert_int_equal(weir_set_holder_overheld(world.set, &holders[0], &overheld), -EINVAL);
    release(waiter);
    world_close();
}

/* ---- reload ---- */

static void reload(const char *limits)
{
    char text[512];

    snprintf(text, sizeof(text), "version: 1\nsets: { main: { limits: [ %s ] } }\n", limits);
    assert_int_equal(
        weir_reload(world.w,
                    &(struct weir_options){.size = sizeof(struct weir_options), .text = text},
                    NULL),
        0);
}

static void a_reload_changes_max_hold(void **state)
{
    weir_acquisition *a, *b, *c;

    (void)state;
    if (backend->is_shared)
        skip_because("a reload changes no limit of what processes share");
    open_set("", WARNS);
    a = granted(slots(1));
    reload("{ type: resource, key: slots, capacity: 3, max_hold: 5s, max_hold_action: revoke }");
    b = granted(slots(1));
    advance(5 * SECOND);
    assert_int_equal(told, 2);
    assert_counts(2, 1);
    assert_int_equal(weir_acquisition_result(a), 0); /* it was granted without `revoke` */
    release_expecting(b, -EOWNERDEAD);
    b = granted(slots(1));
    reload("{ type: resource, key: slots, capacity: 3, max_hold: 10s, max_hold_action: revoke }");
    c = granted(slots(1));
    assert_int_equal(weir_return(b, "slots", 1), 0);
    assert_int_equal(held(), 2);
    advance(9 * SECOND);
    assert_counts(2, 1);
    advance(SECOND);
    assert_counts(3, 2); /* `b` holds nothing any more */
    release(b);
    release_expecting(c, -EOWNERDEAD);
    b = granted(slots(1)); /* granted by one definition, and revoked by the next */
    c = granted(slots(1));
    reload("{ type: resource, key: slots, capacity: 1, max_hold: 1s, max_hold_action: revoke }");
    assert_int_equal(weir_tick(world.w), 0);
    advance(SECOND);
    assert_int_equal(held(), 1);
    release_expecting(b, -EOWNERDEAD);
    reload(LIMIT ", max_hold_action: warn }");
    release_expecting(c, -EOWNERDEAD);
    b = granted(slots(1));
    reload("{ type: resource, key: slots, capacity: 1 }");
    advance(100 * SECOND);
    release(b);
    release(a);
    assert_int_equal(held(), 0);
    world_close();
}

/* What is granted since a holder of an earlier definition is revoked is told by weir_tick(). */
static void a_grant_after_a_reload_is_counted(void **state)
{
    weir_acquisition *held, *waits;

    (void)state;
    if (backend->is_shared)
        skip_because("a reload changes no limit of what processes share");
    open_set("",
             "{ type: resource, key: slots, capacity: 1, max_hold: 5s, max_hold_action: revoke }");
    held = granted(slots(1));
    reload("{ type: resource, key: slots, capacity: 1, max_hold: 6s, max_hold_action: revoke }");
    waits = pending(slots(1));
    assert_int_equal(advance(5 * SECOND), 0);
    assert_int_equal(advance(SECOND), 1);
    assert_int_equal(weir_acquisition_result(waits), 0);
    release_expecting(held, -EOWNERDEAD);
    release(waits);
    world_close();
}

/* Nothing is asked for after the reload. */
static void a_reload_watches_what_is_held(void **state)
{
    weir_acquisition *a;

    (void)state;
    if (backend->is_shared)
        skip_because("a reload changes no limit of what processes share");
    open_set("", "{ type: resource, key: slots, capacity: 2 }");
    a = granted(slots(1));
    advance(10 * SECOND);
    reload(WARNS);
    advance(20 * SECOND - FAKE_TICK_NS);
    assert_int_equal(told, 0);
    advance(FAKE_TICK_NS);
    assert_int_equal(told, 1);
    assert_counts(1, 0);
    release(a);
    world_close();
}

#define OF_SUBJECT(time)                                                                           \
    "{ type: resource, key: slots, capacity: 2, max_hold: " time ", max_hold_action: revoke }"
#define CALLS ", { type: call, key: calls, algorithm: gcra, capacity: 10, window: 10s }"

static void reload_subjects(const char *limits)
{
    char text[512];
    struct weir_options options = {.size = sizeof(options), .text = text};

    snprintf(text, sizeof(text),
             "version: 1\nsets: { main: { subjects: { max: 10 }, limits: [ %s ] } }\n", limits);
    assert_int_equal(weir_reload(world.w, &options, NULL), 0);
}

/* Also if nothing is asked for after the reload, so that the state of the subject is as before. */
static void a_reload_changes_max_hold_of_subjects(void **state)
{
    static const struct {
        const char *before, *longer, *shorter;
    } changes[] = {
        {OF_SUBJECT("30s"), OF_SUBJECT("60s"), OF_SUBJECT("5s")},
        {OF_SUBJECT("30s") CALLS, OF_SUBJECT("60s") CALLS, OF_SUBJECT("5s") CALLS},
        {OF_SUBJECT("30s"), OF_SUBJECT("60s") CALLS, OF_SUBJECT("5s")},
        {OF_SUBJECT("30s") CALLS, OF_SUBJECT("60s"), OF_SUBJECT("5s") CALLS},
    };

    (void)state;
    if (backend->is_shared)
        skip_because("a reload changes no limit of what processes share");
    subject = "a client";
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        weir_acquisition *a, *b;
        uint64_t told_subject;

        open_set("subjects: { max: 10 }, ", changes[i].before);
        a = granted(slots(1));
        reload_subjects(changes[i].longer);
        advance(30 * SECOND);
        assert_counts(0, 0);
        advance(30 * SECOND);
        assert_counts(1, 1);
        told_subject = last.subject;
        release_expecting(a, -EOWNERDEAD);
        b = granted(slots(2));
        advance(10 * SECOND);
        reload_subjects(changes[i].shorter);
        assert_int_equal(weir_tick(world.w), 0);
        assert_counts(2, 2);
        assert_int_equal(last.subject, told_subject);
        release_expecting(b, -EOWNERDEAD);
        b = granted(slots(2));
        release(b);
        world_close();
    }
    subject = NULL;
}

/* ---- changes of a shared set ---- */

#define HELD_FOR(time, action)                                                                     \
    "{ type: resource, key: slots, capacity: 2, max_hold: " time ", max_hold_action: " action " }"

static int apply(const char *limits)
{
    struct weir_error error = {0};
    char text[512], written[1024];
    int r;

    snprintf(text, sizeof(text), "version: 1\nsets: { main: { %slimits: [ %s ] } }\n",
             subject ? "subjects: { max: 8 }, " : "", limits);
    backend_write(text, written, sizeof(written));
    r = weir_segment_redefine(&(struct weir_options){.size = sizeof(struct weir_options),
                                                     .text = written,
                                                     .process_dir = world_directory()},
                              "main", 0, NULL, NULL, &error);
    if (r < 0)
        print_message("%s\n", error.message);
    return r;
}

/* weir_segment_redefine() has the system's clock: those of the test are ahead of it. */
static bool open_shared(const char *limits)
{
    world_start = UINT64_C(1000000000) * SECOND;
    if (backend->is_shared)
        open_set(subject ? "subjects: { max: 8 }, " : "", limits);
    return backend->is_shared;
}

/* A record does not say by which definition it was granted. So a limit that revokes is another one
 * than one that does not: what is held of the former is neither counted nor revoked. */
static void each_change_revokes_no_more_and_no_less(void)
{
    static const char counts[] = "{ type: resource, key: slots, capacity: 2 }";
    static const struct {
        const char *before, *after;
        bool goes_on;
    } changes[] = {
        {WARNS, REVOKES, false},  {WARNS, HELD_FOR("60s", "warn"), true},
        {counts, REVOKES, false}, {counts, WARNS, true},
        {REVOKES, WARNS, false},  {REVOKES, HELD_FOR("60s", "revoke"), true},
        {REVOKES, counts, false},
    };

    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct weir_set_stats stats = {.size = sizeof(stats)};
        struct weir_limit_stats limits[1];
        weir_acquisition *held = NULL;

        if (!open_shared(changes[i].before))
            skip_because("only sets that processes share");
        held = granted(slots(1));
        assert_int_equal(apply(changes[i].after), 1);
        assert_int_equal(weir_set_stats(weir_pool_set(world.pool, 0), &stats, limits, 1), 1);
        assert_int_equal(limits[0].held, changes[i].goes_on ? 1 : 0);
        assert_int_equal(weir_release(&held), 0);
        assert_int_equal(weir_set_stats(weir_pool_set(world.pool, 0), &stats, limits, 1), 1);
        assert_int_equal(limits[0].held, 0);
        world_close();
    }
}

static void a_change_of_a_shared_set_revokes_no_more_and_no_less(void **state)
{
    (void)state;
    each_change_revokes_no_more_and_no_less();
    subject = "a";
    each_change_revokes_no_more_and_no_less();
    subject = NULL;
}

/* A process that has not noticed the change revokes nothing by the shorter time. */
static void a_longer_max_hold_holds_for_all_at_once(void **state)
{
    struct twin other;
    weir_acquisition *a, *b = NULL;

    (void)state;
    if (!open_shared(REVOKES))
        skip_because("only sets that processes share");
    other = world_twin("main");
    a = granted(slots(2));
    assert_int_equal(weir_try_acquire(other.pool, slots(1), &b, NULL), -EAGAIN);
    assert_int_equal(apply(HELD_FOR("60s", "revoke")), 1);
    world.now += 60 * SECOND - 1;
    assert_int_equal(weir_tick(other.w), 0);
    assert_int_equal(weir_tick(world.w), 0);
    assert_int_equal(weir_acquisition_result(a), 0);
    assert_int_equal(told, 0);
    world.now++;
    weir_tick(other.w);
    assert_int_equal(weir_acquisition_result(a), -EOWNERDEAD);
    release_expecting(a, -EOWNERDEAD);
    world_twin_close(&other);
    world_close();
}

/* It counts for what is held, from the grant on, once a process has noticed the change. */
static void a_shorter_max_hold_holds_for_what_is_held(void **state)
{
    struct twin other;
    weir_acquisition *a, *b = NULL;

    (void)state;
    if (!open_shared(REVOKES))
        skip_because("only sets that processes share");
    other = world_twin("main");
    a = granted(slots(2));
    world.now += 5 * SECOND;
    assert_int_equal(weir_submit(other.pool, slots(2), &b, NULL), 1);
    assert_int_equal(weir_tick(other.w), 0); /* it has looked, and would again at 30 s */
    assert_int_equal(apply(HELD_FOR("10s", "revoke")), 1);
    assert_int_equal(weir_set_holders(other.set, NULL, 0), 2); /* any call notices it */
    assert_int_equal(weir_tick(other.w), 0);
    world.now += 5 * SECOND - 1;
    assert_int_equal(weir_tick(other.w), 0);
    assert_int_equal(weir_acquisition_result(a), 0);
    world.now++;
    assert_int_equal(weir_tick(other.w), 1);
    assert_int_equal(weir_acquisition_result(b), 0);
    release_expecting(a, -EOWNERDEAD);
    assert_int_equal(weir_release(&b), 0);
    world_twin_close(&other);
    world_close();
}

/* The one that waits notices it, and makes no other request. */
static void a_max_hold_that_is_new_is_watched(void **state)
{
    weir_acquisition *a, *waiter;

    (void)state;
    if (!open_shared("{ type: resource, key: slots, capacity: 2 }"))
        skip_because("only sets that processes share");
    a = granted(slots(2));
    assert_int_equal(apply(WARNS), 1);
    waiter = pending(slots(1));
    advance(30 * SECOND - FAKE_TICK_NS);
    assert_int_equal(told, 0);
    advance(FAKE_TICK_NS);
    assert_int_equal(told, 1);
    assert_counts(1, 0);
    advance(100 * SECOND);
    assert_int_equal(told, 1);
    release(a);
    advance(30 * SECOND);
    assert_int_equal(told, 2);
    release(waiter);
    world_close();
}

/* What is due is looked at again, until the new definition can be read. */
static void a_change_that_cannot_be_read_now_revokes_nothing(void **state)
{
    weir_acquisition *a;
    uint64_t due;

    (void)state;
    if (!open_shared(REVOKES))
        skip_because("only sets that processes share");
    a = granted(slots(2));
    assert_int_equal(apply(HELD_FOR("31s", "revoke")), 1);
    fake_os_fail_kind_from(1, FAKE_MEMORY, 0);
    advance(30 * SECOND);
    fake_os_reset();
    assert_int_equal(weir_acquisition_result(a), 0);
    assert_int_equal(weir_due_at(world.w, &due), 0);
    assert_int_equal(due, world_start + 31 * SECOND);
    advance(SECOND - 1);
    assert_int_equal(weir_acquisition_result(a), 0);
    advance(1);
    release_expecting(a, -EOWNERDEAD);
    world_close();
}

/* ---- the timer thread, and what fails ---- */

/* A release needs no memory: the state is never in the word. */
static void a_release_needs_no_memory(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_set("", REVOKES);
    assert_int_equal(world.set->inline_format, INLINE_NONE);
    a = granted(slots(1));
    fake_os_fail_kind_from(1, FAKE_MEMORY, 0);
    release(a);
    fake_os_reset();
    assert_int_equal(held(), 0);
    world_close();
}

static void the_timer_thread_looks(void **state)
{
    weir_acquisition *a = NULL;
    struct pollfd fd = {.events = POLLIN};

    (void)state;
    world_real("limits: [ { type: resource, key: slots, capacity: 2, max_hold: 5ms, "
               "max_hold_action: revoke } ]");
    assert_int_equal(fake_os_counts().thread_start, 0);
    assert_int_equal(weir_try_acquire(world.pool, slots(1), &a, NULL), 0);
    assert_int_equal(fake_os_live().threads, 1);
    fd.fd = weir_acquisition_lost_fd(a);
    assert_int_equal(poll(&fd, 1, 60000), 1);
    assert_int_equal(weir_acquisition_result(a), -EOWNERDEAD);
    release_expecting(a, -EOWNERDEAD);
    assert_int_equal(held(), 0);
    world_close();
}

static void without_a_thread_nothing_is_granted(void **state)
{
    weir_acquisition *a = NULL;

    (void)state;
    world_real("limits: [ " WARNS " ]");
    fake_os_fail_kind_at(1, FAKE_THREAD, 0);
    assert_int_equal(weir_try_acquire(world.pool, slots(1), &a, NULL), -ENOMEM);
    assert_null(a);
    assert_int_equal(held(), 0);
    assert_int_equal(weir_try_acquire(world.pool, slots(1), &a, NULL), 0);
    release(a);
    world_close();
}

static void a_descriptor_that_cannot_be_had_watches_nothing(void **state)
{
    weir_acquisition *a;
    int r = -1;

    (void)state;
    open_set("", REVOKES);
    a = granted(slots(1));
    for (uint64_t n = 1; r < 0; n++) {
        fake_os_fail_kind_at(n, FAKE_DESCRIPTOR | FAKE_MEMORY, 0);
        r = weir_acquisition_lost_fd(a);
        assert_true(r >= 0 || r == -EMFILE || r == -ENOMEM);
        assert_true(n < 10);
    }
    fake_os_fail_kind_at(0, 0, 0);
    advance(30 * SECOND);
    assert_true(readable(r));
    release_expecting(a, -EOWNERDEAD);
    world_close();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(what_is_held_too_long_is_told_once),
        leak_checked_test(what_has_waited_is_held_from_its_grant_on),
        leak_checked_test(nothing_is_scheduled_while_nothing_is_held),
        leak_checked_test(each_limit_has_its_own_time),
        leak_checked_test(what_is_revoked_goes_back_once),
        leak_checked_test(what_is_left_of_an_acquisition_is_revoked),
        leak_checked_test(a_grant_that_was_not_seen_is_revoked),
        leak_checked_test(completions_say_what_was_revoked),
        leak_checked_test(a_reap_looks_as_well),
        leak_checked_test(any_process_revokes),
        leak_checked_test(a_process_that_only_tries_looks_as_well),
        leak_checked_test(only_what_can_be_revoked_has_a_descriptor_for_it),
        leak_checked_test(a_holder_says_that_it_is_overheld),
        leak_checked_test(a_reload_changes_max_hold),
        leak_checked_test(a_reload_watches_what_is_held),
        leak_checked_test(a_grant_after_a_reload_is_counted),
        leak_checked_test(a_reload_changes_max_hold_of_subjects),
        leak_checked_test(a_change_of_a_shared_set_revokes_no_more_and_no_less),
        leak_checked_test(a_longer_max_hold_holds_for_all_at_once),
        leak_checked_test(a_shorter_max_hold_holds_for_what_is_held),
        leak_checked_test(a_max_hold_that_is_new_is_watched),
        leak_checked_test(a_change_that_cannot_be_read_now_revokes_nothing),
        leak_checked_test(a_release_needs_no_memory),
        leak_checked_test(the_timer_thread_looks),
        leak_checked_test(without_a_thread_nothing_is_granted),
        leak_checked_test(a_descriptor_that_cannot_be_had_watches_nothing),
    };

    backend_choose(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
