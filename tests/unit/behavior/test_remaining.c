/* SPDX-License-Identifier: MIT */
/*
 * What remains of limits, of every algorithm and wherever the state is. What it says is held
 * against what happens: so much is granted and no more, and at the times that it tells there is
 * more, or all, and not one tick before.
 */
#include "lib/require.h"
#include "lib/world.h"

#define TEN "capacity: 10, window: 10s"

static const struct kind {
    const char *limit; /* of a rate, all but type and key */
} kinds[] = {
    {"algorithm: token_bucket, " TEN},
    {"algorithm: token_bucket, every: 2s, " TEN},
    {"algorithm: token_bucket, capacity: 999983, window: 1s, burst: 7"},
    {"algorithm: gcra, " TEN},
    {"algorithm: gcra, capacity: 10, window: 10s, burst: 3"},
    {"algorithm: leaky_bucket, " TEN},
    {"algorithm: leaky_bucket, mode: shaper, " TEN},
    {"algorithm: fixed_window, " TEN},
    {"algorithm: sliding_window, " TEN},
    {"algorithm: sliding_window, segments: 5, " TEN},
};

static const char *const places[] = {"", "subjects: { max: 10 }, "};

/* Requires it of this kind, and says which one it was. */
#define holds(kind, condition)                                                                     \
    do {                                                                                           \
        bool holds_ = (condition);                                                                 \
                                                                                                   \
        if (!holds_)                                                                               \
            fprintf(stderr, "{ %s }: %s\n", (kind)->limit, #condition);                            \
        require(holds_);                                                                           \
    } while (0)

#define SLOT ", { type: resource, key: slots, capacity: 9 }"

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]), PLACES = sizeof(places) / sizeof(places[0]) };

static struct weir_request *of(const char *subject, uint64_t amount)
{
    static struct weir_amount amounts[2];
    static struct weir_request request;

    amounts[0] = (struct weir_amount){"k", amount};
    amounts[1] = (struct weir_amount){"slots", 0};
    request = (struct weir_request){.size = sizeof(request),
                                    .amounts = amounts,
                                    .amounts_n = 2,
                                    .timeout_ns = WEIR_FOREVER,
                                    .subject = subject,
                                    .subject_size = strlen(subject)};
    return &request;
}

static struct weir_remaining remaining(const char *subject)
{
    struct weir_remaining ret[2];

    memset(ret, 0xff, sizeof(ret));
    assert_true(weir_set_remaining(world.set, of(subject, 1), ret, 2) > 0);
    return ret[0];
}

static void open_kind(const struct kind *kind, const char *place, bool with_slot)
{
    char fields[512];

    snprintf(fields, sizeof(fields), "%slimits: [ { type: rate, key: k, %s } %s ]", place,
             kind->limit, with_slot ? SLOT : "");
    world_set(fields);
}

/* Compares what is said of a subject with what comes. */
static void hold_against_time(const struct kind *kind, const char *subject)
{
    struct weir_remaining before = remaining(subject), now;
    uint64_t step;

    holds(kind, before.available < before.capacity);
    holds(kind, before.more_after_ns > 0 && before.more_after_ns <= before.full_after_ns);
    holds(kind, take(of(subject, before.available + 1)) == -EAGAIN);
    advance(before.more_after_ns - TICK);
    now = remaining(subject);
    holds(kind, now.available == before.available);
    holds(kind, now.more_after_ns == TICK);
    advance(TICK);
    now = remaining(subject);
    holds(kind, now.available > before.available);
    step = before.full_after_ns - before.more_after_ns;
    holds(kind, now.full_after_ns == step);
    if (step > TICK) {
        advance(step - TICK);
        now = remaining(subject);
        holds(kind, now.available < now.capacity);
        advance(TICK);
    } else {
        advance(step);
    }
    now = remaining(subject);
    holds(kind, now.available == now.capacity);
    holds(kind, now.more_after_ns == 0 && now.full_after_ns == 0);
}

static void what_is_told_comes_true(void **state)
{
    (void)state;
    for (unsigned i = 0; i < KINDS * PLACES * 2; i++) {
        const struct kind *kind = &kinds[i / 2 % KINDS];
        struct weir_remaining of_limit;
        uint64_t capacity;

        open_kind(kind, places[i / 2 / KINDS], i % 2);
        of_limit = remaining("s");
        capacity = of_limit.capacity;
        holds(kind, of_limit.available == capacity && of_limit.full_after_ns == 0);
        holds(kind, strcmp(of_limit.key, "k") == 0 && of_limit.type == WEIR_LIMIT_RATE);
        advance(SECOND / 7 / TICK * TICK);
        holds(kind, take(of("s", capacity / 2)) == 0);
        advance(SECOND / 3 / TICK * TICK);
        of_limit = remaining("s");
        if (of_limit.available)
            holds(kind, take(of("s", of_limit.available)) == 0);
        hold_against_time(kind, "s");
        world_close();
    }
}

static void subjects_have_their_own(void **state)
{
    (void)state;
    for (unsigned with_slot = 0; with_slot < 2; with_slot++) {
        open_kind(&kinds[3], places[1], with_slot);
        assert_int_equal(take(of("a", 4)), 0);
        assert_int_equal(take(of("b", 10)), 0);
        assert_int_equal(remaining("a").available, 6);
        assert_int_equal(remaining("a").more_after_ns, SECOND);
        assert_int_equal(remaining("a").full_after_ns, 4 * SECOND);
        assert_int_equal(remaining("b").available, 0);
        assert_int_equal(remaining("b").full_after_ns, 10 * SECOND);
        assert_int_equal(remaining("c").available, 10);
        assert_int_equal(remaining("c").window_ns, 10 * SECOND);
        world_close();
    }
}

/* A look at a subject without requests leaves no trace of it. */
static void a_look_makes_no_subject_known(void **state)
{
    struct weir_subjects_stats known = {.size = sizeof(known)};

    (void)state;
    needs(HAS_OWN_CLOCK); /* elsewhere the engine has them */
    open_kind(&kinds[3], places[1], false);
    assert_int_equal(take(of("a", 4)), 0);
    remaining("unknown");
    remaining("a");
    assert_int_equal(weir_set_subjects(world.set, &known), 1);
    assert_int_equal(known.known, 1);
    world_close();
}

static void those_of_a_subject_that_is_waited_for(void **state)
{
    weir_acquisition *waits;

    (void)state;
    open_kind(&kinds[3], places[1], false);
    assert_int_equal(take(of("a", 9)), 0);
    waits = pending(of("a", 3));
    assert_int_equal(remaining("a").available, 1);
    assert_int_equal(remaining("a").more_after_ns, SECOND);
    assert_int_equal(remaining("b").available, 10);
    advance(2 * SECOND);
    assert_int_equal(remaining("a").available, 0);
    assert_int_equal(remaining("a").full_after_ns, 10 * SECOND);
    assert_int_equal(weir_acquisition_result(waits), 0);
    release_expecting(waits, -EPROTO);
    assert_int_equal(remaining("a").available, 0);
    world_close();
}

static void a_resource_comes_back_by_no_time(void **state)
{
    struct weir_remaining slots[3];
    weir_acquisition *a;

    (void)state;
    world_limits("{ type: resource, key: slots, capacity: 4 },"
                 "{ type: call, algorithm: gcra, capacity: 6, window: 6s }");
    assert_int_equal(weir_set_remaining(world.set, NULL, slots, 3), 2);
    assert_int_equal(slots[0].full_after_ns, 0);
    assert_int_equal(slots[0].window_ns, 0);
    a = granted(ASK({"slots", 3}));
    memset(slots, 0xff, sizeof(slots));
    assert_int_equal(weir_set_remaining(world.set, NULL, slots, 1), 2);
    assert_int_equal(slots[0].available, 1);
    assert_int_equal(slots[0].more_after_ns, WEIR_FOREVER);
    assert_int_equal(slots[0].full_after_ns, WEIR_FOREVER);
    assert_int_equal(slots[1].capacity, UINT64_MAX); /* not asked for */
    assert_int_equal(weir_set_remaining(world.set, NULL, slots, 2), 2);
    assert_int_equal(slots[1].type, WEIR_LIMIT_CALL);
    assert_int_equal(slots[1].available, 5);
    assert_int_equal(slots[1].full_after_ns, SECOND);
    assert_string_equal(slots[1].key, "call_count");
    release(a);
    settle();
    assert_int_equal(weir_set_remaining(world.set, NULL, slots, 2), 2);
    assert_int_equal(slots[0].available, 4);
    assert_int_equal(slots[0].full_after_ns, 0);
    world_close();
}

static void nothing_is_there_before_a_reservation(void **state)
{
    weir_acquisition *a = NULL;
    uint64_t at_ns;

    (void)state;
    open_kind(&kinds[0], "", false);
    assert_int_equal(take(of("s", 10)), 0);
    assert_int_equal(reserve(of("s", 3), &a, &at_ns), 0);
    assert_int_equal(remaining("s").available, 0);
    assert_int_equal(remaining("s").more_after_ns, 4 * SECOND);
    assert_int_equal(remaining("s").full_after_ns, 13 * SECOND);
    advance(3 * SECOND);
    assert_int_equal(remaining("s").available, 0);
    assert_int_equal(remaining("s").more_after_ns, SECOND);
    advance(2 * SECOND);
    assert_int_equal(remaining("s").available, 2);
    release_expecting(a, -EPROTO);
    world_close();
}

/* The limit that the reservation does not wait for has units, but none before it. */
static void nor_of_a_limit_that_has_some(void **state)
{
    struct weir_request *request = ASK({"k", 1}, {"c", 1});
    weir_acquisition *a = NULL;
    uint64_t at_ns;

    (void)state;
    world_limits("{ type: rate, key: k, algorithm: token_bucket, " TEN " },"
                 "{ type: call, key: c, algorithm: gcra, capacity: 1, window: 5s }");
    assert_int_equal(take(request), 0);
    assert_int_equal(reserve(request, &a, &at_ns), 0);
    assert_int_equal(remaining("s").available, 0);
    assert_int_equal(remaining("s").more_after_ns, 5 * SECOND);
    assert_int_equal(remaining("s").full_after_ns, 6 * SECOND);
    advance(5 * SECOND);
    assert_int_equal(remaining("s").available, 9);
    release_expecting(a, -EPROTO);
    world_close();
}

static void what_is_wrong_with_a_request(void **state)
{
    struct weir_remaining ret = {.capacity = 77};
    struct weir_request *request = of("s", 1);

    (void)state;
    open_kind(&kinds[0], places[1], false);
    assert_int_equal(weir_set_remaining(world.set, NULL, &ret, 1), -EINVAL);
    request->subject_size = 0;
    assert_int_equal(weir_set_remaining(world.set, request, &ret, 1), -EINVAL);
    request->subject_size = WEIR_SUBJECT_MAX + 1;
    assert_int_equal(weir_set_remaining(world.set, request, &ret, 1), -EINVAL);
    request->subject_size = 1;
    request->flags = 0x8000;
    assert_int_equal(weir_set_remaining(world.set, request, &ret, 1), -EINVAL);
    request->flags = 0;
    assert_int_equal(weir_set_remaining(world.set, request, NULL, 1), -EINVAL);
    assert_int_equal(ret.capacity, 77);
    assert_int_equal(weir_set_remaining(world.set, request, NULL, 0), 1);
    world_close();
    world_limits("");
    assert_int_equal(weir_set_remaining(world.set, NULL, &ret, 1), 0);
    assert_int_equal(ret.capacity, 77);
    world_close();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(what_is_told_comes_true),
        leak_checked_test(subjects_have_their_own),
        leak_checked_test(a_look_makes_no_subject_known),
        leak_checked_test(those_of_a_subject_that_is_waited_for),
        leak_checked_test(a_resource_comes_back_by_no_time),
        leak_checked_test(nothing_is_there_before_a_reservation),
        leak_checked_test(nor_of_a_limit_that_has_some),
        leak_checked_test(what_is_wrong_with_a_request),
    };

    backend_choose(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
