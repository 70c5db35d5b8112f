/* SPDX-License-Identifier: MIT */
/*
 * Limits that an engine gives to this process to decide, on states that the backend keeps. The
 * backend is that of engine.c; its part is played by the tests, which call `decide` of the host.
 */
#include "../engine.h"
#include "lib/world.h"
#include "remote/remote.h"
#include <weir/backend.h>

#define PLAIN "{ type: resource, key: plain, capacity: 3 }"
#define RATE                                                                                       \
    "{ type: rate, key: k, algorithm: gcra, capacity: 10, window: 10s, burst: 7, refund: true }"
#define SLOTS   "{ type: resource, key: slot, algorithm: aimd, capacity: 5, floor: 5, initial: 5 }"
#define THREE   "limits: [ " PLAIN ", " RATE ", " SLOTS " ]"
#define AT      (5000 * SECOND) /* by the engine's clock, which is another one */
#define NO_UNIT UINT64_C(77)    /* what no operation writes */

enum { LIMITS_N = 3, K = 1, SLOT = 2, STATES_MAX = 32 };

static struct engine_control control;
static uint64_t states[STATES_MAX];
static struct weir_backend_decision decision; /* the last one */

static const char *text_of(const char *fields)
{
    static char text[1024];

    snprintf(text, sizeof(text),
             "version: 1\nbackends: { far: { type: engine, control: \"%p\" } }\n"
             "sets: { main: { backend: far, %s } }\n",
             (void *)&control, fields);
    return text;
}

/* Does something to the states of the set, at an instant. */
static int decide_at(uint64_t now_ns, enum weir_backend_deed deed, const uint64_t *amounts)
{
    const struct weir_backend_host *host = control.host;

    decision.size = sizeof(decision);
    decision.deed = deed;
    decision.states = states;
    decision.at.now_ns = now_ns;
    decision.amounts = amounts;
    return host->decide(host->context, control.host_set, &decision);
}

static int decide(enum weir_backend_deed deed, const uint64_t *amounts)
{
    return decide_at(AT, deed, amounts);
}

/* A set with limits of which those of these bits are given over. */
static void open_given(const char *fields, uint32_t bits)
{
    control = (struct engine_control){.decides = bits};
    world_open(text_of(fields), "main");
    decision = (struct weir_backend_decision){0};
    for (size_t i = 0; i < STATES_MAX; i++)
        states[i] = NO_UNIT;
}

/* The rate and the resource with an algorithm are given over, and new. */
static void open_three(void)
{
    open_given(THREE, 1u << K | 1u << SLOT);
    assert_int_equal(decide(WEIR_BACKEND_BEGIN, NULL), 0);
}

/* What is had of a limit at an instant. */
static struct weir_backend_limit_stats look_at(uint64_t now_ns, uint32_t limit)
{
    struct weir_backend_limit_stats stats[LIMITS_N] = {{NO_UNIT, NO_UNIT}};

    decision.stats = stats;
    assert_int_equal(decide_at(now_ns, WEIR_BACKEND_LOOK, NULL), 0);
    assert_int_equal(stats[0].available, NO_UNIT); /* it is not decided here */
    return stats[limit];
}

static size_t words(void)
{
    return (size_t)(control.state_sizes[K] + control.state_sizes[SLOT]) / sizeof(uint64_t);
}

/* ---- what an engine is told ---- */

static void limits_say_what_they_are(void **state)
{
    (void)state;
    open_three();
    assert_int_equal(control.state_sizes[0], 0);
    assert_int_equal(control.state_ids[0], 0);
    assert_int_equal(control.state_sizes[K], sizeof(uint64_t));
    assert_true(control.state_ids[K] == UINT64_C(0xe0523881fe18ae4b));
    assert_true(control.state_sizes[SLOT] > 0 && control.state_sizes[SLOT] % 8 == 0);
    assert_true(control.state_ids[SLOT] == UINT64_C(0x9894f8eb323ea724));
    world_close();
}

static void states_lie_together_in_order(void **state)
{
    (void)state;
    open_three();
    assert_true(words() < STATES_MAX);
    assert_int_equal(states[words()], NO_UNIT);
    assert_int_equal(decide(WEIR_BACKEND_DECIDE, (const uint64_t[]){0, 0, 2}), 0);
    assert_int_equal(states[1], 2); /* aimd begins with what is held; before it is gcra's word */
    assert_int_equal(states[words()], NO_UNIT);
    world_close();
}

/* ---- taking ---- */

static void amounts_of_other_limits_are_ignored(void **state)
{
    (void)state;
    open_three();
    assert_int_equal(decide(WEIR_BACKEND_DECIDE, (const uint64_t[]){99, 3, 2}), 0);
    assert_int_equal(look_at(AT, K).available, 4);
    assert_int_equal(look_at(AT, SLOT).available, 3);
    assert_int_equal(look_at(AT, SLOT).held, 2);
    world_close();
}

static void a_refusal_takes_nothing_of_any_limit(void **state)
{
    uint64_t before[STATES_MAX];

    (void)state;
    open_three();
    assert_int_equal(decide(WEIR_BACKEND_DECIDE, (const uint64_t[]){0, 7, 2}), 0);
    memcpy(before, states, sizeof(before));
    assert_int_equal(decide(WEIR_BACKEND_DECIDE, (const uint64_t[]){0, 2, 1}), -EAGAIN);
    assert_int_equal(decision.limit, K);
    assert_true(decision.ready_ns == AT + 2 * SECOND);
    assert_int_equal(decide(WEIR_BACKEND_DECIDE, (const uint64_t[]){0, 0, 4}), -EAGAIN);
    assert_int_equal(decision.limit, SLOT);
    assert_true(decision.ready_ns == WEIR_BLOCKED);
    assert_int_equal(decide(WEIR_BACKEND_DECIDE, (const uint64_t[]){0, 8, 0}), -EAGAIN);
    assert_int_equal(decision.limit, K);
    assert_true(decision.ready_ns == WEIR_NEVER);
    assert_memory_equal(before, states, sizeof(before));
    assert_int_equal(decide_at(AT + 2 * SECOND, WEIR_BACKEND_DECIDE, (const uint64_t[]){0, 2, 1}),
                     0);
    world_close();
}

static void what_is_foreseen_is_not_taken(void **state)
{
    uint64_t before[STATES_MAX];

    (void)state;
    open_three();
    assert_int_equal(decide(WEIR_BACKEND_DECIDE, (const uint64_t[]){0, 5, 5}), 0);
    memcpy(before, states, sizeof(before));
    assert_int_equal(decide(WEIR_BACKEND_FORESEE, (const uint64_t[]){0, 2, 0}), 0);
    assert_int_equal(decide(WEIR_BACKEND_FORESEE, (const uint64_t[]){0, 3, 0}), -EAGAIN);
    assert_int_equal(decision.limit, K);
    assert_true(decision.ready_ns == AT + SECOND);
    assert_int_equal(decide(WEIR_BACKEND_FORESEE, (const uint64_t[]){0, 2, 1}), -EAGAIN);
    assert_int_equal(decision.limit, SLOT);
    assert_memory_equal(before, states, sizeof(before));
    world_close();
}

/* ---- giving back ---- */

static int give_back(const uint64_t *amounts, const uint64_t *used, bool undo)
{
    decision.used = used;
    decision.undo = undo;
    decision.granted_ns = AT;
    decision.outcome = undo ? WEIR_OUTCOME_CANCELED : WEIR_OUTCOME_IGNORED;
    return decide(WEIR_BACKEND_GIVE_BACK, amounts);
}

static void what_was_not_used_is_refunded(void **state)
{
    const uint64_t amounts[LIMITS_N] = {9, 6, 4}, used[LIMITS_N] = {0, 2, 4}, none[LIMITS_N] = {0};

    (void)state;
    open_three();
    assert_int_equal(decide(WEIR_BACKEND_DECIDE, amounts), 0);
    assert_int_equal(give_back(amounts, used, false), 0);
    assert_int_equal(look_at(AT, K).available, 5);
    assert_int_equal(look_at(AT, SLOT).held, 0);
    assert_int_equal(decide(WEIR_BACKEND_DECIDE, (const uint64_t[]){0, 5, 1}), 0);
    assert_int_equal(give_back((const uint64_t[]){0, 5, 1}, none, true), 0);
    assert_int_equal(look_at(AT, K).available, 5);
    assert_int_equal(look_at(AT, SLOT).held, 0);
    world_close();
}

/* ---- what comes from the network ---- */

static void states_that_are_none_are_refused(void **state)
{
    (void)state;
    open_three();
    assert_int_equal(decide(WEIR_BACKEND_CHECK, NULL), 0);
    states[0] = UINT64_MAX; /* of gcra */
    assert_int_equal(decide(WEIR_BACKEND_CHECK, NULL), -EUCLEAN);
    states[0] = 0;
    assert_int_equal(decide(WEIR_BACKEND_CHECK, NULL), 0);
    states[2] = UINT64_MAX; /* the limit of aimd, which is beyond its capacity */
    assert_int_equal(decide(WEIR_BACKEND_CHECK, NULL), -EUCLEAN);
    assert_int_equal(decide(WEIR_BACKEND_BEGIN, NULL), 0); /* the set is as well as before */
    assert_int_equal(decide(WEIR_BACKEND_CHECK, NULL), 0);
    world_close();
}

static void what_cannot_be_is_refused(void **state)
{
    const uint64_t one[LIMITS_N] = {0, 1, 0};

    (void)state;
    open_three();
    assert_int_equal(decide_at(WEIR_CLOCK_MAX, WEIR_BACKEND_BEGIN, NULL), 0);
    assert_int_equal(decide_at(WEIR_CLOCK_MAX + 1, WEIR_BACKEND_BEGIN, NULL), -EUCLEAN);
    assert_int_equal(decide((enum weir_backend_deed)0, one), -EUCLEAN);
    assert_int_equal(decide((enum weir_backend_deed)(WEIR_BACKEND_LAST + 1), one), -EUCLEAN);
    world_close();
    open_given(THREE, 0);
    assert_int_equal(decide(WEIR_BACKEND_DECIDE, one), -EUCLEAN); /* no limit is given over */
    assert_int_equal(states[0], NO_UNIT);
    world_close();
}

/* ---- how long states last ---- */

static void states_last_until_they_are_as_new(void **state)
{
    (void)state;
    open_three();
    assert_int_equal(decide(WEIR_BACKEND_DECIDE, (const uint64_t[]){0, 3, 0}), 0);
    assert_int_equal(decide(WEIR_BACKEND_LAST, NULL), 0);
    assert_true(decision.ready_ns >= AT + 3 * SECOND);
    assert_true(decision.ready_ns <=
                AT + 12 * SECOND); /* looked at after spans four times as long */
    assert_int_equal(decide(WEIR_BACKEND_DECIDE, (const uint64_t[]){0, 0, 1}), 0);
    assert_int_equal(decide(WEIR_BACKEND_LAST, NULL), 0);
    assert_true(decision.ready_ns == WEIR_NEVER); /* a unit is held */
    world_close();
}

static void what_cannot_be_told_lasts_for_ever(void **state)
{
    (void)state;
    open_three();
    assert_int_equal(decide_at(WEIR_CLOCK_MAX, WEIR_BACKEND_DECIDE, (const uint64_t[]){0, 3, 0}),
                     0);
    assert_int_equal(decide_at(WEIR_CLOCK_MAX, WEIR_BACKEND_LAST, NULL), 0);
    assert_true(decision.ready_ns == WEIR_NEVER);
    world_close();
    open_given("limits: [ { type: rate, key: k, algorithm: past } ]", 1);
    assert_int_equal(decide(WEIR_BACKEND_BEGIN, NULL), 0);
    assert_int_equal(decide(WEIR_BACKEND_LAST, NULL), 0); /* it does not say when it is as new */
    assert_true(decision.ready_ns == WEIR_NEVER);
    world_close();
}

/* ---- algorithms that break their contract ---- */

static void a_broken_contract_ends_the_set(void **state)
{
    static const char *const names[] = {"past", "past_try", "frozen", "frozen_try", "topped"};
    const uint64_t one[] = {1, 0};
    weir_acquisition *a = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char fields[192];

        snprintf(fields, sizeof(fields),
                 "limits: [ { type: rate, key: k, algorithm: %s }, " SLOTS " ]", names[i]);
        open_given(fields, 3);
        assert_int_equal(decide(WEIR_BACKEND_BEGIN, NULL), 0);
        assert_int_equal(decide(WEIR_BACKEND_DECIDE, one), 0);
        assert_int_equal(decide(WEIR_BACKEND_DECIDE, one), 0);
        assert_int_equal(decide(WEIR_BACKEND_DECIDE, one), -EUCLEAN);
        assert_int_equal(decide(WEIR_BACKEND_DECIDE, one), -EUCLEAN);
        assert_int_equal(decide(WEIR_BACKEND_BEGIN, NULL), -EUCLEAN);
        assert_int_equal(try_acquire(ASK({"k", 1}), &a), -EUCLEAN);
        remote_log_write(&remote_of(world.set)->engine->log);
        assert_int_equal(world.logged, 1); /* once */
        assert_non_null(strstr(world.log[0], names[i]));
        assert_non_null(strstr(world.log[0], "far"));
        world_close();
    }
}

/* ---- the set ---- */

static void what_is_decided_here_is_not_reserved(void **state)
{
    weir_acquisition *a = NULL;
    uint64_t at;

    (void)state;
    open_given("limits: [ " RATE
               ", { type: rate, key: other, algorithm: gcra, capacity: 9, window: 1s } ]",
               1);
    assert_int_equal(reserve(ASK({"k", 1}, {"other", 1}), &a, &at), -EOPNOTSUPP);
    assert_int_equal(reserve(ASK({"k", 0}, {"other", 1}), &a, &at), 0);
    release_used(a, "other", 1);
    world_close();
}

static void a_failed_opening_leaves_nothing(void **state)
{
    const struct weir_options options = {.size = sizeof(options), .text = text_of(THREE)};
    bool failed = true;

    (void)state;
    control = (struct engine_control){.decides = 1u << K | 1u << SLOT};
    for (uint64_t n = 1; failed; n++) {
        weir *w = NULL;
        int r;

        fake_os_fail_kind_at(n, FAKE_ANY, 0);
        r = weir_open(&w, &options, NULL);
        failed = fake_os_has_failed();
        fake_os_fail_kind_at(0, 0, 0);
        assert_true(failed || r == 0);
        weir_close(w);
        assert_int_equal(control.connections, 0);
        assert_int_equal(control.sets, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(limits_say_what_they_are),
        leak_checked_test(states_lie_together_in_order),
        leak_checked_test(amounts_of_other_limits_are_ignored),
        leak_checked_test(a_refusal_takes_nothing_of_any_limit),
        leak_checked_test(what_is_foreseen_is_not_taken),
        leak_checked_test(what_was_not_used_is_refunded),
        leak_checked_test(states_that_are_none_are_refused),
        leak_checked_test(what_cannot_be_is_refused),
        leak_checked_test(states_last_until_they_are_as_new),
        leak_checked_test(what_cannot_be_told_lasts_for_ever),
        leak_checked_test(a_broken_contract_ends_the_set),
        leak_checked_test(what_is_decided_here_is_not_reserved),
        leak_checked_test(a_failed_opening_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
