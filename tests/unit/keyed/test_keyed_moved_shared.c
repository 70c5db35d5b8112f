/* SPDX-License-Identifier: MIT */
/* Shared sets with subjects that get another definition while two instances use them: what becomes
 * of a subject's state, of those that hold and wait for it; what is refused; and damage. */
#include "keyed/keyed_internal.h"
#include "lib/world.h"
#include "set/instance_base.h"
#include "shm/participant.h"
#include "shm/segment.h"
#include "shm/segment_definition.h"
#include <unistd.h>

#define RATE(algorithm, n)                                                                         \
    "{ type: rate, key: tokens, algorithm: " algorithm ", capacity: " n ", window: 10s }"
#define SLOTS(n) "{ type: resource, key: slots, capacity: " n " }"

static struct weir_error error;
static struct twin twin;

static const char *text_of(const char *how, const char *limits)
{
    static char texts[4][2048];
    static unsigned turn;
    char *text = texts[turn++ % 4];

    snprintf(text, sizeof(texts[0]),
             "version: 1\nsets: { main: { subjects: { %s }, limits: [ %s ] } }\n", how, limits);
    return text;
}

static int try_redefine(const char *text)
{
    error = (struct weir_error){0};
    return world_redefine(text, "main", 0, &error);
}

static void redefine(const char *how, const char *limits)
{
    if (try_redefine(text_of(how, limits)) != 1)
        fail_msg("%d: %s", error.code, error.message);
}

static void refused(const char *text, const char *why)
{
    assert_int_equal(try_redefine(text), -EOPNOTSUPP);
    if (!strstr(error.message, why) || !strstr(error.message, "weir rm"))
        fail_msg("%s", error.message);
}

static void open_two(const char *how, const char *limits)
{
    world_open(text_of(how, limits), "main");
    twin = world_twin("main");
}

static void close_two(void)
{
    assert_int_equal(world.logged, 0);
    world_twin_close(&twin);
    world_close();
}

/* What comes goes to the other of the two instances. */
static void change_sides(void)
{
    struct twin other = {world.w, world.pool, world.set};

    world.w = twin.w;
    world.pool = twin.pool;
    world.set = twin.set;
    twin = other;
}

static struct weir_request *of(struct weir_request *request, const char *subject)
{
    request->subject = subject;
    request->subject_size = strlen(subject);
    return request;
}

#define TOKENS(n, subject) of(ASK({"tokens", n}), subject)
#define SLOT(n, subject)   of(ASK({"slots", n}), subject)
/* Of sets with both. */
#define TOKENS_ALONE(n, subject) of(ASK({"tokens", n}, {"slots", 0}), subject)
#define SLOT_ALONE(n, subject)   of(ASK({"slots", n}, {"tokens", 0}), subject)

static struct weir_subjects_stats keys(void)
{
    struct weir_subjects_stats ret = {.size = sizeof(ret)};

    assert_int_equal(weir_set_subjects(world.set, &ret), 1);
    return ret;
}

/* How much there is of a limit for a subject. */
static uint64_t left(const char *subject, size_t limit)
{
    struct weir_remaining remaining[4];

    assert_true(weir_set_remaining(world.set, of(ASK_DEFAULTS, subject), remaining, 4) >= 1);
    return remaining[limit].available;
}

static const struct segment *segment(void)
{
    return world.set->participant->segment;
}

static uint64_t oldest(void)
{
    return atomic_load(&segment_keyed(segment())->oldest);
}

#define ADAPTIVE(n) "{ type: resource, key: slots, algorithm: aimd, capacity: " n " }"

/* It was being bound to a key when the set changed. Zeros are no state of its algorithm. */
static void a_key_set_that_was_never_bound_changes(void **state)
{
    struct keyed *keyed;

    (void)state;
    open_two("max: 10", ADAPTIVE("8"));
    keyed = keyed_of(world.set);
    assert_int_equal(segment_alloc_key_set(keyed->segment, 0), 0);
    assert_int_equal(key_sets_n(keyed), 1);
    for (int i = 0; i < 2; i++) {
        redefine("max: 10", i ? ADAPTIVE("9") : ADAPTIVE("7"));
        assert_int_equal(stats().waiting, 0);
        release(granted(SLOT(1, "a")));
        change_sides();
    }
    close_two();
}

/* ---- states ---- */

/* A state that is a word by each definition, by the first one alone, by the last one alone, and by
 * none. */
static void a_subject_keeps_its_level(void **state)
{
    static const char *const limits[][3] = {
        {RATE("gcra", "10"), RATE("gcra", "20"), RATE("gcra", "5")},
        {RATE("gcra", "10"), RATE("gcra", "21"), RATE("gcra", "6")},
        {RATE("gcra", "11"), RATE("gcra", "21"), RATE("gcra", "5")},
        {RATE("token_bucket", "10"), RATE("token_bucket", "20"), RATE("token_bucket", "5")}};

    (void)state;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        open_two("max: 10", limits[i][0]);
        assert_int_equal(take(TOKENS(4, "a")), 0);
        assert_int_equal(take(TOKENS(4, "b")), 0);
        redefine("max: 10", limits[i][1]);
        assert_in_range(left("a", 0), 6, 17);
        for (int side = 0; side < 2; side++) {
            uint64_t rest = left("a", 0);

            assert_int_equal(take(TOKENS(rest + 1, "a")), -EAGAIN);
            assert_int_equal(take(TOKENS(2, "a")), 0);
            assert_int_equal(left("a", 0), rest - 2);
            change_sides();
            assert_int_equal(left("a", 0), rest - 2);
        }
        redefine("max: 10", limits[i][2]);
        assert_true(left("a", 0) <= 5);
        assert_true(left("b", 0) <= 6);
        assert_int_equal(left("new", 0), i == 1 ? 6 : 5);
        close_two();
    }
}

/* Levels of a bucket are told exactly. */
static void a_level_is_that_of_before(void **state)
{
    (void)state;
    open_two("max: 10", RATE("token_bucket", "10"));
    assert_int_equal(take(TOKENS(4, "a")), 0);
    redefine("max: 10", RATE("token_bucket", "20"));
    assert_int_equal(left("a", 0), 6);
    assert_int_equal(left("b", 0), 20);
    assert_int_equal(take(TOKENS(7, "a")), -EAGAIN);
    assert_int_equal(take(TOKENS(6, "a")), 0);
    change_sides();
    redefine("max: 10", RATE("token_bucket", "5"));
    assert_int_equal(take(TOKENS(1, "a")), -EAGAIN);
    advance(2 * SECOND);
    assert_int_equal(take(TOKENS(1, "a")), 0);
    close_two();
}

/* Time passes by the new definition from the change on, whenever the subject is asked for. */
static void the_change_is_as_of_its_instant(void **state)
{
    (void)state;
    open_two("max: 10", RATE("token_bucket", "10"));
    assert_int_equal(take(TOKENS(10, "a")), 0);
    advance(2 * SECOND);
    redefine("max: 10", RATE("token_bucket", "100"));
    advance(SECOND);
    assert_int_equal(left("a", 0), 12);
    change_sides();
    assert_int_equal(take(TOKENS(12, "a")), 0);
    assert_int_equal(take(TOKENS(1, "a")), -EAGAIN);
    close_two();
}

/* It could have been forgotten before the change as well. */
static void a_subject_as_good_as_new_begins_anew(void **state)
{
    (void)state;
    open_two("max: 10", RATE("gcra", "10"));
    assert_int_equal(take(TOKENS(4, "a")), 0);
    advance(4 * SECOND);
    assert_int_equal(keys().known, 1);
    redefine("max: 10", RATE("gcra", "20"));
    assert_int_equal(keys().known, 0);
    assert_int_equal(left("a", 0), 20);
    close_two();
    open_two("max: 10", RATE("token_bucket", "10"));
    assert_int_equal(take(TOKENS(4, "new")), 0);
    assert_int_equal(take(TOKENS(5, "old")), 0);
    advance(4 * SECOND);
    redefine("max: 10", RATE("token_bucket", "20"));
    advance(SECOND);
    change_sides();
    assert_int_equal(left("new", 0), 20);
    assert_int_equal(left("old", 0), 11);
    close_two();
}

/* What was reserved stays so, and what is given back of it comes back. */
static void a_subject_with_a_reservation_ahead_goes_on(void **state)
{
    static const char strict[] = "{ type: rate, key: tokens, algorithm: token_bucket, capacity: 1, "
                                 "window: 10s, refund: strict }";
    weir_acquisition *ahead;
    uint64_t at_ns;

    (void)state;
    open_two("max: 10", strict);
    assert_int_equal(take(TOKENS(1, "a")), 0);
    assert_int_equal(weir_reserve(world.pool, TOKENS(1, "a"), &ahead, &at_ns, NULL), 0);
    release_used(ahead, "tokens", 0);
    redefine("max: 10", RATE("token_bucket", "5"));
    advance(10 * SECOND);
    assert_int_equal(left("a", 0), 1);
    close_two();
}

/* The walk of a change cannot give a key set to a subject that it does not know. A process that
 * comes later reads the earlier definitions. */
static void earlier_definitions_are_recalled(void **state)
{
    struct twin later;

    (void)state;
    open_two("max: 10", RATE("gcra", "10"));
    assert_int_equal(take(TOKENS(8, "a")), 0);
    assert_int_equal(oldest(), 0);
    redefine("max: 10", RATE("gcra", "21"));
    assert_int_equal(oldest(), 0);
    redefine("max: 10", RATE("gcra", "31"));
    redefine("max: 10", RATE("gcra", "7"));
    assert_int_equal(oldest(), 0);
    assert_int_equal(take(TOKENS(1, "of 3")), 0);
    later = world_twin("main");
    world_twin_close(&twin);
    twin = later;
    change_sides();
    assert_true(set_newest(weir_pool_set(world.pool, 0))->origin != NULL);
    assert_true(left("a", 0) <= 2);
    assert_int_equal(take(TOKENS(left("a", 0) + 1, "a")), -EAGAIN);
    assert_int_equal(left("of 3", 0), 6);
    redefine("max: 10", RATE("gcra", "10"));
    assert_int_equal(oldest(), 4);
    close_two();
}

static void one_that_was_never_asked_for_is_recalled(void **state)
{
    struct twin later;

    (void)state;
    open_two("max: 10", RATE("gcra", "10") ", " SLOTS("1"));
    assert_int_equal(take(TOKENS_ALONE(8, "a")), 0);
    redefine("max: 10", RATE("gcra", "21") ", " SLOTS("1"));
    assert_int_equal(oldest(), 1);
    later = world_twin("main");
    world_twin_close(&twin);
    twin = later;
    change_sides();
    assert_null(set_newest(weir_pool_set(world.pool, 0))->origin);
    assert_true(left("a", 0) < 14);
    close_two();
}

static void nothing_differs(void **state)
{
    (void)state;
    open_two("max: 10", SLOTS("3"));
    assert_int_equal(try_redefine(text_of("max: 10", SLOTS("3"))), 0);
    redefine("max: 10", SLOTS("4"));
    assert_int_equal(try_redefine(text_of("max: 10", SLOTS("4"))), 0);
    close_two();
}

/* ---- holders ---- */

static void what_is_held_stays_held(void **state)
{
    weir_acquisition *held[2], *none = NULL;
    struct weir_holder holder[2];

    (void)state;
    open_two("max: 10", SLOTS("3"));
    held[0] = granted(SLOT(2, "a"));
    change_sides();
    held[1] = granted(SLOT(1, "a"));
    redefine("max: 10", SLOTS("2"));
    for (int side = 0; side < 2; side++) {
        assert_int_equal(limit_stats(0).held, 3);
        assert_int_equal(limit_stats(0).capacity, 2);
        assert_int_equal(weir_set_holders(world.set, holder, 2), 2);
        assert_int_equal(try_acquire(SLOT(1, "a"), &none), -EAGAIN);
        assert_int_equal(try_acquire(SLOT(3, "b"), &none), -ERANGE);
        release(granted(SLOT(2, "b")));
        change_sides();
    }
    release(held[1]);
    assert_int_equal(try_acquire(SLOT(1, "a"), &none), -EAGAIN);
    assert_int_equal(weir_return(held[0], "slots", 1), 0);
    held[1] = granted(SLOT(1, "a"));
    assert_int_equal(try_acquire(SLOT(1, "a"), &none), -EAGAIN);
    redefine("max: 10", SLOTS("4"));
    release(granted(SLOT(2, "a")));
    release(held[0]);
    release(held[1]);
    release(granted(SLOT(4, "a")));
    assert_int_equal(limit_stats(0).held, 0);
    close_two();
}

/* Parts of grants go back to the definition that there is. */
static void what_was_taken_comes_back(void **state)
{
    static const char refunded[] = "{ type: rate, key: tokens, algorithm: token_bucket, capacity: "
                                   "%s, window: 10s, refund: true }";
    char limits[3][128];
    weir_acquisition *held;

    (void)state;
    for (int i = 0; i < 3; i++)
        snprintf(limits[i], sizeof(limits[i]), refunded, i == 0 ? "10" : i == 1 ? "20" : "30");
    open_two("max: 10", limits[0]);
    held = granted(TOKENS(5, "a"));
    redefine("max: 10", limits[1]);
    redefine("max: 10", limits[2]);
    assert_int_equal(left("a", 0), 5);
    release_used(held, "tokens", 2);
    assert_int_equal(left("a", 0), 8);
    close_two();
}

/* ---- waiters ---- */

static void waiters_go_on_in_their_order(void **state)
{
    weir_acquisition *held, *waiting[3];

    (void)state;
    open_two("max: 10", SLOTS("1"));
    held = granted(SLOT(1, "a"));
    for (size_t i = 0; i < 3; i++) {
        change_sides();
        waiting[i] = pending(SLOT(1, "a"));
    }
    redefine("max: 10", SLOTS("3"));
    assert_int_equal(weir_acquisition_result(waiting[0]), 0);
    assert_int_equal(weir_acquisition_result(waiting[1]), 0);
    assert_int_equal(weir_acquisition_result(waiting[2]), -EINPROGRESS);
    assert_int_equal(stats().waiting, 1);
    release(waiting[0]);
    assert_int_equal(weir_acquisition_result(waiting[2]), 0);
    release(held);
    release(waiting[1]);
    release(waiting[2]);
    assert_int_equal(limit_stats(0).held, 0);
    assert_int_equal(stats().waiting, 0);
    close_two();
}

/* An instance that has not met the change ends, and what waits there. */
static void a_wait_ends_with_an_instance_that_is_behind(void **state)
{
    weir_acquisition *held, *waits;

    (void)state;
    open_two("max: 10", SLOTS("2"));
    held = granted(SLOT(2, "a"));
    change_sides();
    waits = pending(SLOT(2, "a"));
    change_sides();
    redefine("max: 10", SLOTS("3"));
    world_twin_close(&twin);
    assert_int_equal(weir_acquisition_result(waits), -ESHUTDOWN);
    assert_int_equal(weir_release(&waits), 0);
    assert_int_equal(world.logged, 0);
    assert_int_equal(stats().waiting, 0);
    release(held);
    release(granted(SLOT(3, "a")));
    world_close();
}

/* Those of both definitions are in one queue, which those leave that are canceled. */
static void waiters_of_two_definitions_are_one_queue(void **state)
{
    weir_acquisition *held, *before[2], *after[2];

    (void)state;
    open_two("max: 10", SLOTS("2"));
    held = granted(SLOT(2, "a"));
    before[0] = pending(SLOT(1, "a"));
    before[1] = pending(SLOT(1, "a"));
    redefine("max: 10", SLOTS("1"));
    change_sides();
    after[0] = pending(SLOT(1, "a"));
    after[1] = pending(SLOT(1, "a"));
    change_sides();
    assert_int_equal(weir_cancel(before[1]), 0);
    release(before[1]);
    release(held);
    assert_int_equal(weir_acquisition_result(before[0]), 0);
    change_sides();
    assert_int_equal(weir_cancel(after[0]), 0);
    release(after[0]);
    assert_int_equal(weir_acquisition_result(after[1]), -EINPROGRESS);
    release(before[0]);
    assert_int_equal(weir_acquisition_result(after[1]), 0);
    release(after[1]);
    close_two();
}

static void waiters_end_by_time_and_by_the_new_rate(void **state)
{
    weir_acquisition *soon, *late, *canceled;

    (void)state;
    open_two("max: 10", RATE("gcra", "10"));
    assert_int_equal(take(TOKENS(10, "a")), 0);
    soon = pending(TOKENS(1, "a"));
    canceled = pending(TOKENS(2, "a"));
    late = pending(with_timeout(TOKENS(9, "a"), 3 * SECOND));
    redefine("max: 10", RATE("gcra", "100"));
    assert_int_equal(weir_cancel(canceled), 0);
    release(canceled);
    advance(SECOND / 10);
    assert_int_equal(weir_acquisition_result(soon), 0);
    release_used(soon, "tokens", 1);
    assert_int_equal(weir_acquisition_result(late), -EINPROGRESS);
    redefine("max: 10", RATE("gcra", "10"));
    advance(3 * SECOND);
    assert_int_equal(weir_acquisition_result(late), -ETIMEDOUT);
    release_expecting(late, 0);
    close_two();
}

static void what_can_never_be_granted_ends(void **state)
{
    weir_acquisition *held, *large, *small;

    (void)state;
    open_two("max: 10", SLOTS("3"));
    held = granted(SLOT(1, "a"));
    large = pending(SLOT(3, "a"));
    change_sides();
    small = pending(SLOT(1, "a"));
    redefine("max: 10", SLOTS("2"));
    assert_int_equal(weir_acquisition_result(small), 0);
    change_sides();
    assert_int_equal(weir_acquisition_result(large), -ERANGE);
    release(large);
    release(small);
    release(held);
    assert_int_equal(limit_stats(0).held, 0);
    close_two();
}

/* ---- what is refused, and room ---- */

static void what_cannot_be_right_is_refused(void **state)
{
    (void)state;
    open_two("max: 10", RATE("gcra", "10") ", " SLOTS("1"));
    refused("version: 1\nsets: { main: { limits: [ " RATE("gcra", "10") ", " SLOTS("1") " ] } }\n",
            "it has a state for each subject");
    assert_int_equal(left("a", 0), 10);
    close_two();
    world_limits(SLOTS("1"));
    refused(text_of("max: 10", SLOTS("1")), "it would have a state for each subject");
    world_close();
}

/* The table is as large as it was made. */
static void room_stays_as_it_is(void **state)
{
    char subject[16];

    (void)state;
    open_two("max: 100, evict: none", RATE("gcra", "10"));
    refused(text_of("max: 101, evict: none", RATE("gcra", "10")),
            "it would have room for 101 subjects, and its segment has room for 100");
    for (int i = 0; i < 100; i++) {
        snprintf(subject, sizeof(subject), "s%d", i);
        assert_int_equal(take(TOKENS(5, subject)), 0);
    }
    redefine("max: 2, evict: oldest", RATE("gcra", "10"));
    assert_int_equal(keys().max, 2);
    assert_int_equal(keys().room, 100);
    assert_int_equal(keys().known, 100);
    assert_string_equal(keys().evict, "oldest");
    world_twin_close(&twin);
    twin = world_twin("main");
    change_sides();
    assert_int_equal(take(TOKENS(6, "s7")), -EAGAIN);
    assert_int_equal(take(TOKENS(5, "s7")), 0);
    redefine("max: 100, evict: none", RATE("gcra", "10"));
    close_two();
}

/* Key sets have blocks of the size that the first definition needed: the smallest if there were one
 * or two resources alone. */
static void a_state_that_does_not_fit_is_refused(void **state)
{
#define SEGMENTS(n)                                                                                \
    "{ type: call, algorithm: sliding_window, capacity: 1000000, window: 2s, segments: " n " }"
    (void)state;
    open_two("max: 10", SEGMENTS("2"));
    refused(text_of("max: 10", SEGMENTS("60")), "its segment has room for");
    close_two();
    open_two("max: 10", SEGMENTS("60"));
    redefine("max: 10", SEGMENTS("2"));
    close_two();
    open_two("max: 10", SLOTS("1"));
    refused(text_of("max: 10", SLOTS("1") ", " RATE("gcra", "10")), "its segment has room for");
    redefine("max: 10", SLOTS("1") ", { type: resource, key: disk, capacity: 2 }");
    refused(text_of("max: 10", SLOTS("1") ", { type: resource, key: disk, capacity: 2 }, "
                                          "{ type: resource, key: more, capacity: 2 }"),
            "its segment has room for");
    close_two();
}

/* ---- limits of words ---- */

#define REFUNDED(type, algorithm, n)                                                               \
    "{ type: " type ", key: tokens, algorithm: " algorithm ", capacity: " n                        \
    ", window: 100s, refund: true }"

/* How many limits a set has with those that are gone, and where a limit of it is. */
static uint32_t places_n(void)
{
    return set_current(world.set)->limits.n;
}

static uint32_t place_of(size_t limit)
{
    return set_listed(set_current(world.set), (uint32_t)limit);
}

/* What was taken, reserved or waits of the former one is nothing of the one that begins anew: of a
 * word that becomes a key set, that stays a word, that was a key set. */
static void another_algorithm_begins_anew(void **state)
{
    static const char *const limits[][2] = {
        {REFUNDED("rate", "gcra", "10"), REFUNDED("rate", "token_bucket", "10")},
        {REFUNDED("rate", "gcra", "10"), REFUNDED("call", "gcra", "10")},
        {REFUNDED("rate", "token_bucket", "10"), REFUNDED("rate", "gcra", "10")}};

    (void)state;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        weir_acquisition *early, *ahead, *late, *waiting;
        uint64_t at_ns;

        open_two("max: 10, evict: none", limits[i][0]);
        early = granted(TOKENS(4, "a"));
        assert_int_equal(take(TOKENS(6, "a")), 0);
        assert_int_equal(weir_reserve(world.pool, TOKENS(3, "a"), &ahead, &at_ns, NULL), 0);
        late = granted(TOKENS(7, "b"));
        change_sides();
        waiting = pending(TOKENS(5, "b"));
        redefine("max: 10, evict: none", limits[i][1]);
        assert_int_equal(weir_acquisition_result(waiting), -ERANGE); /* it could ask nothing */
        assert_int_equal(left("b", 0), 10);
        assert_int_equal(take(TOKENS(8, "b")), 0);
        change_sides();
        release_used(late, "tokens", 1);
        release_used(early, "tokens", 0);
        release_used(ahead, "tokens", 0);
        change_sides();
        assert_int_equal(weir_release(&waiting), 0);
        assert_int_equal(left("b", 0), 2);
        assert_int_equal(take(TOKENS(3, "b")), -EAGAIN);
        assert_int_equal(take(TOKENS(2, "b")), 0);
        advance(60 * SECOND);
        assert_int_equal(left("a", 0), i < 3 ? left("a", 0) : 0);
        late = granted(TOKENS(5, "b"));
        release_used(late, "tokens", 0);
        assert_in_range(left("b", 0), 5, 6);
        close_two();
    }
}

/* Wherever the limit is, which is alone. */
static void a_word_of_another_place_stays_a_word(void **state)
{
    uint64_t memory;

    (void)state;
    open_two("max: 10", REFUNDED("rate", "gcra", "10"));
    memory = keys().memory;
    redefine("max: 10", REFUNDED("call", "gcra", "10"));
    assert_int_equal(place_of(0), 1);
    assert_int_equal(take(TOKENS(4, "a")), 0);
    release_used(granted(TOKENS(3, "a")), "tokens", 1);
    assert_int_equal(take(TOKENS(6, "a")), -EAGAIN);
    assert_int_equal(keys().memory, memory); /* no key set was made */
    assert_int_equal(left("a", 0), 5);
    close_two();
}

/* The state of one limit alone is a word, of several it is in a key set, and may be a word again.
 */
static void limits_come_to_a_word_and_go(void **state)
{
    static const char both[] = SLOTS("2") ", " RATE("gcra", "10");
    weir_acquisition *before, *held, *waiting;

    (void)state;
    open_two("max: 10", RATE("gcra", "10"));
    before = granted(TOKENS(8, "a"));
    assert_int_equal(take(TOKENS(3, "never asked again")), 0);
    redefine("max: 10", both);
    assert_int_equal(oldest(), 0);
    held = granted(of(ASK({"tokens", 2}, {"slots", 2}), "a"));
    change_sides();
    assert_int_equal(left("a", 1), 0);
    waiting = pending(of(ASK({"tokens", 0}, {"slots", 1}), "a"));
    redefine("max: 10", RATE("gcra", "10"));
    assert_int_equal(weir_acquisition_result(waiting), 0);
    assert_int_equal(left("a", 0), 0);
    change_sides();
    /* Parts of limits that are gone, while the state is a word again. */
    release(waiting);
    advance(SECOND);
    assert_int_equal(take(TOKENS(1, "a")), 0);
    assert_int_equal(keys().live, 0);
    assert_int_equal(weir_return(held, "slots", 1), 0);
    release_used(held, "tokens", 2);
    release_used(before, "tokens", 8);
    assert_int_equal(take(TOKENS(1, "a")), -EAGAIN);
    assert_in_range(left("never asked again", 0), 8, 9);
    close_two();
}

/* A part of a limit that is gone frees its place, where nothing is left of it. */
static void a_part_is_returned_where_the_subject_is_a_word(void **state)
{
    weir_acquisition *held;

    (void)state;
    open_two("max: 10", RATE("gcra", "10") ", " SLOTS("4"));
    held = granted(of(ASK({"tokens", 6}, {"slots", 3}), "a"));
    redefine("max: 10", RATE("gcra", "10"));
    change_sides();
    assert_int_equal(take(TOKENS(1, "a")), 0);
    assert_int_equal(keys().live, 0);
    assert_int_equal(weir_return(held, "slots", 1), 0);
    assert_int_equal(weir_return(held, "slots", 2), 0);
    assert_int_equal(left("a", 0), 3);
    redefine("max: 10", RATE("gcra", "10") ", { type: resource, key: other, capacity: 1 }");
    assert_int_equal(place_of(1), 1);
    assert_int_equal(limit_stats(1).held, 0);
    release_used(held, "tokens", 6);
    release(granted(of(ASK({"tokens", 0}, {"other", 1}), "a")));
    close_two();
}

/* What is held of a limit that is gone does not keep a subject. */
static void a_limit_that_is_gone_keeps_no_subject(void **state)
{
    weir_acquisition *held;

    (void)state;
    open_two("max: 10", SLOTS("4") ", " RATE("gcra", "10"));
    held = granted(of(ASK({"slots", 3}, {"tokens", 1}), "a"));
    advance(2 * SECOND);
    redefine("max: 10", RATE("token_bucket", "10"));
    assert_int_equal(place_of(0), 2);
    assert_int_equal(take(TOKENS(1, "b")), 0);
    assert_int_equal(weir_return(held, "slots", 1), 0);
    advance(2 * SECOND);
    redefine("max: 10", RATE("token_bucket", "20"));
    release_used(held, "tokens", 1);
    assert_int_equal(left("a", 0), 20);
    assert_int_equal(left("b", 0), 20);
    close_two();
}

/* A place is not given away while a subject may still have a state of the limit that had it, and
 * one that no process asks for keeps its definition. */
static void keep_a_place(bool is_forgotten)
{
    static const char last[] = RATE("gcra", "10") ", { type: resource, key: last, capacity: 1 }";
    char limits[512] = RATE("gcra", "10");
    weir_acquisition *none = NULL;
    struct twin later;
    uint32_t room;
    int r = 1;

    open_two("max: 10", limits);
    room = set_amounts_n(world.set);
    assert_int_equal(take(TOKENS(8, "a")), 0);
    for (unsigned n = 0; r == 1; n++) { /* as each limit goes another one comes */
        snprintf(limits, sizeof(limits),
                 RATE("gcra", "10") ", { type: resource, key: k%u, capacity: 1 }", n);
        r = try_redefine(text_of("max: 10", limits));
        assert_true(n < room || r < 0);
    }
    assert_int_equal(r, -EBUSY);
    assert_non_null(
        strstr(error.message, "or a subject that has taken of them was not asked for since"));
    assert_int_equal(oldest(), 0);
    snprintf(limits, sizeof(limits),
             RATE("gcra", "10") ", { type: resource, key: k%u, capacity: 1 }", room - 2);
    assert_int_equal(try_redefine(text_of("max: 10", limits)), 0);
    later = world_twin("main"); /* knows all of them, too */
    world_twin_close(&twin);
    twin = later;
    change_sides();
    assert_int_equal(try_redefine(text_of("max: 10", last)), -EBUSY);
    release_used(granted(TOKENS(1, "b")), "tokens", 1); /* not the one that matters */
    assert_int_equal(try_redefine(text_of("max: 10", last)), -EBUSY);
    assert_true(left("a", 0) <= 2); /* which is a look, and changes nothing */
    assert_int_equal(try_redefine(text_of("max: 10", last)), -EBUSY);
    if (is_forgotten)
        advance(10 * SECOND);
    else
        assert_int_equal(try_acquire(TOKENS(9, "a"), &none), -EAGAIN);
    redefine("max: 10", last);
    assert_int_equal(place_of(1), 1);
    close_two();
}

static void a_place_is_kept_for_subjects_that_were_not_asked_for(void **state)
{
    (void)state;
    keep_a_place(false);
    keep_a_place(true);
}

/* No resource gets the place of a rate that was a word: its grants may be stored late. */
static void a_resource_gets_no_place_of_a_word(void **state)
{
    static const char both[] = SLOTS("3") ", " RATE("token_bucket", "10");

    (void)state;
    open_two("max: 10", RATE("gcra", "10"));
    redefine("max: 10", RATE("token_bucket", "10"));
    assert_int_equal(place_of(0), 1);
    redefine("max: 10", both);
    assert_int_equal(place_of(0), 2);
    redefine("max: 10", RATE("gcra", "10"));
    assert_int_equal(place_of(0), 0); /* but a rate does */
    assert_int_equal(places_n(), 2);  /* what may wait for the bucket ends */
    redefine("max: 10", both);
    assert_int_equal(place_of(0), 1); /* a bucket was no word */
    assert_int_equal(place_of(1), 2);
    close_two();
}

/* A thread that was stopped between the grant in the word and the store of its record, until
 * another rate has the place. The acquisition is made of a completion, by the newest definition. */
static void a_grant_that_is_stored_late_gives_nothing_back(void **state)
{
    struct weir_completion completion;
    struct acq_record *r = NULL;
    weir_queue *queue;
    uint64_t word;

    (void)state;
    open_two("max: 10", REFUNDED("rate", "gcra", "10"));
    assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
    assert_int_equal(weir_queue_submit(queue, world.pool, TOKENS(6, "a"), 7, NULL, NULL), 0);
    for (uint32_t at = 0; !r && (at = region_next_record(world.set->region, at)) != 0;)
        if (record_state(record_load(&set_record(world.set, at)->word)) == RECORD_HELD)
            r = set_record(world.set, at);
    assert_non_null(r);
    word = record_load(&r->word);
    atomic_store(&r->word, ((word >> 8) - 1) << 8 | RECORD_FREE);
    advance(SECOND);
    redefine("max: 10", REFUNDED("rate", "token_bucket", "10"));
    assert_int_equal(take(TOKENS(1, "a")), 0); /* by which it changes its definition */
    advance(SECOND);
    redefine("max: 10", REFUNDED("rate", "gcra", "9"));
    assert_int_equal(place_of(0), 0);
    assert_int_equal(take(TOKENS(9, "a")), 0);
    atomic_store(&r->word, word);
    assert_int_equal(weir_queue_reap(queue, &completion, 1), 1);
    assert_int_equal(completion.result, 0);
    release_used(completion.acquisition, "tokens", 0);
    assert_int_equal(left("a", 0), 0);
    release_used(granted(TOKENS(9, "b")), "tokens", 0);
    assert_int_equal(left("b", 0), 9);
    weir_queue_close(queue);
    close_two();
}

/* Where there is memory for few key sets, all subjects cannot need one. */
static void key_sets_have_to_be_enough(void **state)
{
    (void)state;
    open_two("max: 1000, memory: 64KiB", RATE("gcra", "10"));
    refused(text_of("max: 1000", RATE("gcra", "10") ", " SLOTS("1")),
            "with a state that is no word");
    refused(text_of("max: 1000", RATE("token_bucket", "10")), "with a state that is no word");
    refused(text_of("max: 20", RATE("token_bucket", "10")), "with a state that is no word");
    close_two();
}

/* Bound by memory, smaller states would have room for more subjects. That asks for no more of them.
 */
static void smaller_states_fit_where_larger_did(void **state)
{
    uint64_t room;

    (void)state;
    open_two("max: 1000, memory: 64KiB", SLOTS("3") ", " RATE("gcra", "10"));
    room = keys().room;
    assert_true(room < 1000);
    redefine("max: 1000, memory: 64KiB", RATE("gcra", "10"));
    assert_true(keys().room >= room && keys().room < 1000);
    refused(text_of("max: 1000, memory: 128KiB", RATE("gcra", "10")), "has room for");
    close_two();
}

/* As many as there are tags, and no more. */
static void changes_have_an_end(void **state)
{
    int r = 1, n = 0;

    (void)state;
    open_two("max: 10", RATE("gcra", "10"));
    assert_int_equal(take(TOKENS(9, "a")), 0);
    for (; r == 1 && n < 3000; n++)
        r = try_redefine(text_of("max: 10", n % 2 ? RATE("gcra", "10") : RATE("gcra", "5")));
    assert_int_equal(r, -ENOSPC);
    assert_non_null(strstr(error.message, "its segment has no room for another definition"));
    assert_int_equal(n, SEGMENT_DEFINITIONS_KEYED + 1);
    assert_int_equal(left("a", 0), 1);
    close_two();
}

/* ---- failing calls ---- */

/* A change that fails has changed nothing, or all: it can be made again, and no subject loses or
 * gains. */
static void each_call_of_a_change_fails(void **state)
{
    bool has_failed = true;
    uint64_t rest = 0;

    (void)state;
    for (unsigned long n = 0; has_failed || n == 1; n++) {
        weir_acquisition *held, *waiting;
        int r;

        open_two("max: 10", RATE("gcra", "10") ", " SLOTS("2"));
        assert_int_equal(take(TOKENS_ALONE(4, "a")), 0);
        held = granted(SLOT_ALONE(2, "a"));
        change_sides();
        waiting = pending(SLOT_ALONE(2, "a"));
        fake_os_fail_at(n);
        r = try_redefine(text_of("max: 10", RATE("gcra", "21") ", " SLOTS("4")));
        has_failed = fake_os_has_failed();
        fake_os_fail_at(0);
        if (r < 0 && (error.code != r || !error.message[0]))
            fail_msg("call %lu: %d, %d: %s", n, r, error.code, error.message);
        assert_true(try_redefine(text_of("max: 10", RATE("gcra", "21") ", " SLOTS("4"))) >= 0);
        while (weir_tick(world.w) + weir_tick(twin.w))
            ;
        assert_int_equal(weir_acquisition_result(waiting), 0);
        rest = n ? rest : left("a", 0); /* without a failure */
        assert_int_equal(left("a", 0), rest);
        release(held);
        release(waiting);
        assert_int_equal(limit_stats(1).held, 0);
        world.logged = 0;
        close_two();
    }
}

/* Makes changes by which a word is none any more, a limit comes, and a rate begins anew. Calls fail
 * of a request or of the last change, or 0. Returns whether one did. */
static bool change_limits_with_failure(unsigned long of_request, unsigned long of_change)
{
    static const char *const limits[] = {REFUNDED("rate", "gcra", "10"),
                                         SLOTS("2") ", " REFUNDED("rate", "gcra", "10"),
                                         REFUNDED("rate", "token_bucket", "10") ", " SLOTS("3")};
    weir_acquisition *before, *held = NULL, *waiting;
    bool has_failed;

    open_two("max: 10", limits[0]);
    before = granted(TOKENS(4, "a"));
    redefine("max: 10", limits[1]);
    fake_os_fail_at(of_request);
    (void)try_acquire(SLOT_ALONE(2, "a"), &held);
    has_failed = fake_os_has_failed();
    fake_os_fail_at(0);
    held = held ? held : granted(SLOT_ALONE(2, "a"));
    assert_int_equal(left("a", 1), 6);
    change_sides();
    waiting = pending(SLOT_ALONE(2, "a"));
    fake_os_fail_at(of_change);
    try_redefine(text_of("max: 10", limits[2]));
    has_failed |= fake_os_has_failed();
    fake_os_fail_at(0);
    assert_true(try_redefine(text_of("max: 10", limits[2])) >= 0);
    while (weir_tick(world.w) + weir_tick(twin.w))
        ;
    assert_int_equal(weir_acquisition_result(waiting), -EINPROGRESS);
    assert_int_equal(left("a", 1), 1);
    release(held);
    assert_int_equal(weir_acquisition_result(waiting), 0);
    assert_int_equal(take(TOKENS_ALONE(9, "a")), 0);
    release_used(before, "tokens", 0);
    assert_int_equal(left("a", 0), 1);
    release(waiting);
    assert_int_equal(limit_stats(1).held, 0);
    world.logged = 0;
    close_two();
    return has_failed;
}

static void each_call_of_a_change_of_limits_fails(void **state)
{
    (void)state;
    for (unsigned long n = 1; change_limits_with_failure(n, 0); n++)
        ;
    for (unsigned long n = 1; change_limits_with_failure(0, n); n++)
        ;
}

/* Opening fails with a reason where an earlier definition cannot be recalled. */
static void each_call_of_a_recall_fails(void **state)
{
    const struct weir_options options = {
        .size = sizeof(options),
        .text = "version: 1\nsets: { main: { backend: process, "
                "subjects: { max: 10 }, limits: [ " RATE("gcra", "31") " ] } }\n",
        .process_dir = world_directory()};
    bool has_failed = true;

    (void)state;
    open_two("max: 10", RATE("gcra", "10"));
    assert_int_equal(take(TOKENS(8, "a")), 0);
    redefine("max: 10", RATE("gcra", "21"));
    redefine("max: 10", RATE("gcra", "31"));
    for (unsigned long n = 1; has_failed; n++) {
        weir *w = NULL;
        int r;

        error = (struct weir_error){0};
        fake_os_fail_at(n);
        r = weir_open(&w, &options, &error);
        has_failed = fake_os_has_failed();
        fake_os_fail_at(0);
        if (r < 0 && (error.code != r || !error.message[0]))
            fail_msg("call %lu: %d, %d: %s", n, r, error.code, error.message);
        if (r == 0)
            weir_close(w);
    }
    assert_true(left("a", 0) <= 6);
    world.logged = 0;
    close_two();
}

/* Want of memory delays what it is needed for, and damages nothing. */
static void want_of_memory_passes(void **state)
{
    weir_acquisition *held, *waiting;

    (void)state;
    open_two("max: 10", RATE("gcra", "10") ", " SLOTS("2"));
    held = granted(SLOT_ALONE(2, "a"));
    waiting = pending(SLOT_ALONE(1, "a"));
    change_sides();
    redefine("max: 10", RATE("gcra", "10") ", " SLOTS("1"));
    change_sides();
    fake_os_fail_kind_from(1, FAKE_MEMORY, 0);
    assert_int_equal(take(TOKENS_ALONE(1, "b")), -ENOMEM);
    weir_tick(world.w);
    fake_os_fail_kind_at(0, 0, 0);
    assert_int_equal(take(TOKENS_ALONE(1, "b")), 0);
    release(held);
    assert_int_equal(weir_acquisition_result(waiting), 0);
    release(waiting);
    world.logged = 0;
    close_two();
}

/* A release finds no memory for the key set that a word is to become: it goes by the earlier
 * definition, and the subject changes after it. */
static void a_release_needs_no_key_set(void **state)
{
    weir_acquisition *held;

    (void)state;
    open_two("max: 10", REFUNDED("rate", "gcra", "10"));
    held = granted(TOKENS(6, "a"));
    assert_int_equal(take(TOKENS(1, "a")), 0);
    redefine("max: 10", SLOTS("2") ", " REFUNDED("rate", "gcra", "10"));
    assert_int_equal(left("a", 1), 3);
    fake_os_fail_kind_from(1, FAKE_MEMORY | FAKE_ROOM, 0);
    release_used(held, "tokens", 2);
    fake_os_fail_kind_at(0, 0, 0);
    assert_int_equal(left("a", 1), 7);
    assert_int_equal(take(TOKENS_ALONE(8, "a")), -EAGAIN);
    assert_int_equal(take(TOKENS_ALONE(7, "a")), 0);
    world.logged = 0;
    close_two();
}

/* ---- damage ---- */

/* Each call ends, and with -EUCLEAN once it meets the damage. */
static void expect_broken(void)
{
    weir_acquisition *none = NULL;
    struct weir_remaining remaining[4];

    assert_int_equal(weir_take(world.pool, TOKENS(1, "a"), NULL), -EUCLEAN);
    assert_int_equal(weir_try_acquire(world.pool, TOKENS(1, "a"), &none, NULL), -EUCLEAN);
    assert_int_equal(weir_set_remaining(world.set, of(ASK_DEFAULTS, "a"), remaining, 4), -EUCLEAN);
    assert_true(try_redefine(text_of("max: 10", RATE("gcra", "3"))) < 0 || error.code == 0);
    world.logged = 0;
    close_two();
}

/* Returns the slot of the only subject. */
static struct key_entry only_entry(void)
{
    const struct key_table *table = &keyed_of(set_newest(world.set))->table;
    struct key_entry entry = {0};

    for (uint64_t i = 0; i < key_table_slots(table); i++)
        if (key_table_at(table, i, &entry))
            return entry;
    fail_msg("there is no subject");
    return entry;
}

static void tags_of_no_definition_are_damage(void **state)
{
    static const uint64_t tags[] = {1, 2, 3, 100, 2047, 2048, 2049, 4094, 4095};

    (void)state;
    for (int later = 0; later < 2; later++)
        for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
            struct key_entry entry;

            if (later && tags[i] == 1)
                continue;
            open_two("max: 10", RATE("gcra", "10"));
            if (later)
                redefine("max: 10", RATE("gcra", "20"));
            assert_int_equal(take(TOKENS(4, "a")), 0);
            entry = only_entry();
            atomic_store(&entry.slot->low, (entry.id & ~KEY_TAG_MASK) | tags[i] << KEY_TAG_SHIFT);
            expect_broken();
        }
}

/* A word of an earlier definition is checked by that. */
static void a_word_of_no_state_is_damage(void **state)
{
    static const uint64_t words[] = {UINT64_MAX, UINT64_C(1) << 63,
                                     UINT64_C(1) << 63 | UINT64_C(77) << 39};

    (void)state;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        struct key_entry entry;

        open_two("max: 10", RATE("gcra", "10"));
        assert_int_equal(take(TOKENS(4, "a")), 0);
        redefine("max: 10", RATE("gcra", "21"));
        entry = only_entry();
        atomic_store(&entry.slot->high, words[i]);
        expect_broken();
    }
}

/* The version of a key set names a definition that there is not. */
static void a_version_of_no_definition_is_damage(void **state)
{
    static const uint64_t numbers[] = {2, 3, 2047, 2048, 4096, (UINT64_C(1) << 23) - 1};

    (void)state;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        uint64_t word;
        struct version_block *block;
        weir_set *set;

        open_two("max: 10", RATE("token_bucket", "10"));
        assert_int_equal(take(TOKENS(4, "a")), 0);
        redefine("max: 10", RATE("token_bucket", "20"));
        assert_int_equal(take(TOKENS(1, "a")), 0);
        set = &key_set_by_number(keyed_of(set_newest(world.set)), 0, NULL)->set;
        word = version_peek_word(set->region, set->head_unit);
        block = (struct version_block *)(void *)(segment()->base +
                                                 (state_word_slot(word) << set->block_class));
        atomic_store(&block->content[CONTENT_STATES + set->limits.state_words - KEY_SET_WORDS + 2],
                     numbers[i] << (BINDING_BITS + 2) | UINT64_C(1) << 2 | 2);
        expect_broken();
    }
}

/* The instant of a change, and the oldest definition, may be any number. */
static void other_numbers_are_checked(void **state)
{
    static const uint64_t numbers[] = {
        1, 2, 2047, 2048, UINT64_C(1) << 40, CLOCK_MAX_NS, CLOCK_MAX_NS + 1, UINT64_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        int r;

        open_two("max: 10", RATE("gcra", "10"));
        assert_int_equal(take(TOKENS(4, "a")), 0);
        redefine("max: 10", RATE("gcra", "21"));
        assert_int_equal(oldest(), 0);
        atomic_store(&segment_definition(segment(), 1)->opened_ns, numbers[i]);
        r = weir_take(world.pool, TOKENS(1, "a"), NULL);
        assert_int_equal(r, numbers[i] > CLOCK_MAX_NS ? -EUCLEAN : 0);
        atomic_store(&segment_keyed(segment())->oldest, numbers[i]);
        r = try_redefine(text_of("max: 10", RATE("gcra", "3")));
        assert_true(r == 1 || r == -EUCLEAN);
        world.logged = 0;
        close_two();
    }
}

/* The text of an earlier definition is damaged: none that has to recall it attaches. */
static void a_damaged_definition_is_not_recalled(void **state)
{
    (void)state;
    for (uint32_t number = 0; number < 2; number++) {
        unsigned char *text;

        open_two("max: 10", RATE("gcra", "10"));
        assert_int_equal(take(TOKENS(4, "a")), 0);
        redefine("max: 10", RATE("gcra", "21"));
        redefine("max: 10", RATE("gcra", "31"));
        text = segment()->base +
               (number ? segment_definition_at(&segment()->layout, number)
                       : (size_t)SEGMENT_DEFINITION_AT - SEGMENT_PAGE) +
               SEGMENT_PAGE;
        memset(text, 'x', 20);
        assert_true(try_redefine(text_of("max: 10", RATE("gcra", "3"))) < 0);
        if (!strstr(error.message, "damaged"))
            fail_msg("%u: %s", number, error.message);
        world.logged = 0;
        close_two();
    }
}

/* What a test that has failed left there makes no other one fail. */
static int place_setup(void **state)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/main.weir", world_directory());
    unlink(path);
    return fixture_setup(state);
}

#define place_test(function)                                                                       \
    cmocka_unit_test_setup_teardown(function, place_setup, fixture_teardown)

int main(int argc, char **argv)
{
    static char process[] = "process";
    char *arguments[] = {argv[0], process, NULL};
    const struct CMUnitTest tests[] = {
        place_test(a_subject_keeps_its_level),
        place_test(a_level_is_that_of_before),
        place_test(the_change_is_as_of_its_instant),
        place_test(a_subject_as_good_as_new_begins_anew),
        place_test(a_subject_with_a_reservation_ahead_goes_on),
        place_test(earlier_definitions_are_recalled),
        place_test(one_that_was_never_asked_for_is_recalled),
        place_test(nothing_differs),
        place_test(what_is_held_stays_held),
        place_test(what_was_taken_comes_back),
        place_test(waiters_go_on_in_their_order),
        place_test(waiters_of_two_definitions_are_one_queue),
        place_test(a_wait_ends_with_an_instance_that_is_behind),
        place_test(a_key_set_that_was_never_bound_changes),
        place_test(waiters_end_by_time_and_by_the_new_rate),
        place_test(what_can_never_be_granted_ends),
        place_test(what_cannot_be_right_is_refused),
        place_test(room_stays_as_it_is),
        place_test(a_state_that_does_not_fit_is_refused),
        place_test(another_algorithm_begins_anew),
        place_test(a_word_of_another_place_stays_a_word),
        place_test(limits_come_to_a_word_and_go),
        place_test(a_part_is_returned_where_the_subject_is_a_word),
        place_test(a_limit_that_is_gone_keeps_no_subject),
        place_test(a_place_is_kept_for_subjects_that_were_not_asked_for),
        place_test(a_resource_gets_no_place_of_a_word),
        place_test(a_grant_that_is_stored_late_gives_nothing_back),
        place_test(key_sets_have_to_be_enough),
        place_test(smaller_states_fit_where_larger_did),
        place_test(changes_have_an_end),
        place_test(each_call_of_a_change_fails),
        place_test(each_call_of_a_change_of_limits_fails),
        place_test(a_release_needs_no_key_set),
        place_test(each_call_of_a_recall_fails),
        place_test(want_of_memory_passes),
        place_test(tags_of_no_definition_are_damage),
        place_test(a_word_of_no_state_is_damage),
        place_test(a_version_of_no_definition_is_damage),
        place_test(other_numbers_are_checked),
        place_test(a_damaged_definition_is_not_recalled),
    };

    (void)argc;
    backend_choose(2, arguments);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
