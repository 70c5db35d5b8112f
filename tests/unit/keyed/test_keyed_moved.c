/* SPDX-License-Identifier: MIT */
/* Reloads of keyed sets: what becomes of a subject's state, of those that hold and wait for it, and
 * of the room for subjects. */
#include "keyed/keyed.h"
#include "lib/world.h"
#include "set/instance_base.h"
#include <inttypes.h>
#include <pthread.h>

#define RATE(algorithm, n)                                                                         \
    "{ type: rate, key: tokens, algorithm: " algorithm ", capacity: " n ", window: 10s }"
#define SLOTS(n)        "{ type: resource, key: slots, capacity: " n " }"
#define SHADOW_SLOTS(n) "{ type: resource, key: slots, capacity: " n ", shadow: true }"

static struct weir_error error;

static int reload_text(const char *text)
{
    const struct weir_options options = {.size = sizeof(options), .text = text};

    error = (struct weir_error){0};
    return weir_reload(world.w, &options, &error);
}

static int reload_fields(const char *fields)
{
    char text[4096];

    snprintf(text, sizeof(text), "version: 1\nsets: { main: { %s } }\n", fields);
    return reload_text(text);
}

static void reload(const char *how, const char *limits)
{
    char fields[2048];

    snprintf(fields, sizeof(fields), "subjects: { %s }, limits: [ %s ]", how, limits);
    assert_int_equal(reload_fields(fields), 0);
}

static void open_keyed(const char *how, const char *limits)
{
    char fields[2048];

    snprintf(fields, sizeof(fields), "subjects: { %s }, limits: [ %s ]", how, limits);
    world_set(fields);
}

static struct weir_request *of(struct weir_request *request, const char *subject)
{
    request->subject = subject;
    request->subject_size = strlen(subject);
    return request;
}

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

#define TOKENS(n, subject) of(ASK({"tokens", n}, {"slots", 0}), subject)
#define SLOT(n, subject)   of(ASK({"slots", n}, {"tokens", 0}), subject)

/* ---- states ---- */

static void keep_level(const char *ten, const char *twenty, const char *five)
{
    open_keyed("max: 10", ten);
    assert_int_equal(take(TOKENS(4, "a")), 0);
    reload("max: 10", twenty);
    assert_int_equal(left("a", 0), 6);
    assert_int_equal(left("b", 0), 20);
    assert_int_equal(take(TOKENS(7, "a")), -EAGAIN);
    assert_int_equal(take(TOKENS(6, "a")), 0);
    reload("max: 10", five);
    assert_int_equal(take(TOKENS(1, "a")), -EAGAIN);
    advance(2 * SECOND);
    assert_int_equal(take(TOKENS(1, "a")), 0);
    world_close();
}

/* Of a token bucket in a key set, of the other one in the entry itself. */
static void a_subject_keeps_its_level(void **state)
{
    (void)state;
    keep_level(RATE("token_bucket", "10"), RATE("token_bucket", "20"), RATE("token_bucket", "5"));
    keep_level(RATE("gcra", "10"), RATE("gcra", "20"), RATE("gcra", "5"));
}

/* Time passes by the new definition from the reload on, whenever the subject is asked for. */
static void the_change_is_as_of_the_reload(void **state)
{
    (void)state;
    open_keyed("max: 10", RATE("token_bucket", "10"));
    assert_int_equal(take(TOKENS(10, "a")), 0);
    advance(2 * SECOND);
    reload("max: 10", RATE("token_bucket", "100"));
    advance(SECOND);
    assert_int_equal(left("a", 0), 12);
    assert_int_equal(take(TOKENS(12, "a")), 0);
    assert_int_equal(take(TOKENS(1, "a")), -EAGAIN);
    world_close();
}

/* It could have been forgotten before the reload as well. */
static void a_subject_as_good_as_new_begins_anew(void **state)
{
    (void)state;
    open_keyed("max: 10", RATE("gcra", "10"));
    assert_int_equal(take(TOKENS(4, "a")), 0);
    advance(4 * SECOND);
    assert_int_equal(keys().known, 1);
    reload("max: 10", RATE("gcra", "20"));
    assert_int_equal(keys().known, 0);
    assert_int_equal(left("a", 0), 20);
    world_close();
    open_keyed("max: 10", RATE("token_bucket", "10"));
    assert_int_equal(take(TOKENS(4, "new")), 0);
    assert_int_equal(take(TOKENS(5, "old")), 0);
    advance(4 * SECOND);
    reload("max: 10", RATE("token_bucket", "20"));
    advance(SECOND);
    assert_int_equal(left("new", 0), 20);
    assert_int_equal(left("old", 0), 11);
    world_close();
}

/* It could not have been forgotten: later requests are granted after the reservation, if it gave
 * all back as well. */
static void a_subject_with_a_reservation_ahead_goes_on(void **state)
{
    static const char strict[] = "{ type: rate, key: tokens, algorithm: token_bucket, capacity: 1, "
                                 "window: 10s, refund: strict }";
    weir_acquisition *ahead;
    uint64_t at_ns;

    (void)state;
    open_keyed("max: 10", strict);
    assert_int_equal(take(TOKENS(1, "a")), 0);
    assert_int_equal(weir_reserve(world.pool, TOKENS(1, "a"), &ahead, &at_ns, NULL), 0);
    assert_int_equal(at_ns, world.now + 10 * SECOND);
    release_used(ahead, "tokens", 0);
    reload("max: 10", RATE("token_bucket", "5"));
    advance(10 * SECOND);
    assert_int_equal(left("a", 0), 1);
    world_close();
}

static void an_algorithm_that_changed_begins_anew(void **state)
{
    (void)state;
    open_keyed("max: 10", RATE("token_bucket", "10") "," SLOTS("2"));
    assert_int_equal(take(TOKENS(4, "a")), 0);
    reload("max: 10", RATE("fixed_window", "10") "," SLOTS("2"));
    assert_int_equal(take(TOKENS(10, "a")), 0);
    assert_int_equal(take(TOKENS(1, "a")), -EAGAIN);
    world_close();
}

/* From a word to a key set and back, the one limit goes on, and the other one comes and goes. */
static void limits_come_and_go(void **state)
{
    weir_acquisition *held, *none = NULL;

    (void)state;
    open_keyed("max: 10", RATE("gcra", "10"));
    assert_int_equal(take(TOKENS(4, "a")), 0);
    assert_int_equal(keys().live, 0);
    reload("max: 10", SLOTS("1") "," RATE("gcra", "10"));
    assert_int_equal(left("a", 1), 6);
    held = granted(SLOT(1, "a"));
    assert_int_equal(keys().live, 1);
    assert_int_equal(try_acquire(SLOT(1, "a"), &none), -EAGAIN);
    assert_int_equal(take(TOKENS(7, "a")), -EAGAIN);
    reload("max: 10", RATE("gcra", "10"));
    assert_int_equal(left("a", 0), 6);
    release(held);
    assert_int_equal(left("a", 0), 6);
    assert_int_equal(take(of(ASK({"tokens", 6}), "a")), 0);
    assert_int_equal(take(of(ASK({"tokens", 1}), "a")), -EAGAIN);
    assert_int_equal(keys().live, 0);
    world_close();
}

/* Each of several reloads counts, also where no request came between them: a level that the second
 * definition has cut is that of a new subject, and stays so. */
static void reloads_add_up(void **state)
{
    static const char *const limits[][2] = {
        {RATE("token_bucket", "10"), RATE("token_bucket", "10") "," SLOTS("1")},
        {RATE("token_bucket", "5"), RATE("token_bucket", "5") "," SLOTS("1")},
        {RATE("token_bucket", "12"), RATE("token_bucket", "12") "," SLOTS("1")},
        {RATE("fixed_window", "12"), RATE("fixed_window", "12") "," SLOTS("1")}};

    (void)state;
    for (int bound = 0; bound < 2; bound++) {
        open_keyed("max: 10", limits[0][bound]);
        assert_int_equal(take(TOKENS(1, "cut")), 0);
        assert_int_equal(take(TOKENS(7, "low")), 0);
        reload("max: 10", limits[1][bound]);
        reload("max: 10", limits[2][bound]);
        reload("max: 10", limits[2][1 - bound]);
        assert_int_equal(left("cut", 0), 12);
        assert_int_equal(left("low", 0), 3);
        reload("max: 10", limits[3][bound]);
        reload("max: 10", limits[2][bound]);
        assert_int_equal(left("low", 0), 12);
        world_close();
    }
}

/* More definitions than are looked up at once: the first one has no key sets, so the word stays as
 * it was. By the second nothing comes back. */
static void many_reloads_add_up(void **state)
{
    (void)state;
    open_keyed("max: 10", RATE("token_bucket", "10"));
    assert_int_equal(take(TOKENS(7, "a")), 0);
    reload("max: 10", "{ type: rate, key: tokens, algorithm: token_bucket, capacity: 10,"
                      " window: 10000s }," SLOTS("1"));
    advance(2 * SECOND);
    for (int i = 0; i < 300; i++)
        reload("max: 10", i % 2 ? RATE("token_bucket", "10") "," SLOTS("1")
                                : RATE("token_bucket", "10") "," SLOTS("2"));
    assert_int_equal(keys().known, 1);
    assert_int_equal(left("a", 0), 3);
    advance(2 * SECOND);
    assert_int_equal(left("a", 0), 5);
    world_close();
}

/* ---- holders ---- */

static void what_is_held_stays_held(void **state)
{
    static const char *const before[] = {SLOTS("3"), SLOTS("3") "," RATE("gcra", "10")};
    static const char *const after[] = {SLOTS("2"), SLOTS("2") "," RATE("gcra", "10")};
    weir_acquisition *held[2], *none = NULL;
    struct weir_holder holder[2];

    (void)state;
    for (int from = 0; from < 2; from++) {
        for (int to = 0; to < 2; to++) {
            open_keyed("max: 10", before[from]);
            held[0] = granted(SLOT(2, "a"));
            held[1] = granted(SLOT(1, "a"));
            reload("max: 10", after[to]);
            assert_int_equal(limit_stats(0).held, 3);
            assert_int_equal(weir_set_holders(world.set, holder, 2), 2);
            assert_int_equal(try_acquire(SLOT(1, "a"), &none), -EAGAIN);
            release(granted(SLOT(2, "b")));
            release(held[1]);
            assert_int_equal(try_acquire(SLOT(1, "a"), &none), -EAGAIN);
            assert_int_equal(weir_return(held[0], "slots", 1), 0);
            held[1] = granted(SLOT(1, "a"));
            assert_int_equal(try_acquire(SLOT(1, "a"), &none), -EAGAIN);
            release(held[0]);
            release(held[1]);
            release(granted(SLOT(2, "a")));
            assert_int_equal(limit_stats(0).held, 0);
            world_close();
        }
    }
}

/* A thread may meet a successor by a key set of that one, and then a subject that is still of an
 * earlier definition. */
static void *release_and_take(void *held)
{
    weir_acquisition *acquisition = held;
    int r = weir_release(&acquisition);

    return (void *)(intptr_t)(r ? r : take(TOKENS(4, "b")));
}

static void a_new_thread_releases_then_asks(void **state)
{
    pthread_t thread;
    void *result;

    (void)state;
    open_keyed("max: 10", SLOTS("2") "," RATE("gcra", "10"));
    assert_int_equal(take(TOKENS(1, "a")), 0);
    assert_int_equal(take(TOKENS(3, "b")), 0);
    reload("max: 10", SLOTS("3") "," RATE("gcra", "10"));
    assert_int_equal(pthread_create(&thread, NULL, release_and_take, granted(SLOT(2, "a"))), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, NULL);
    assert_int_equal(left("a", 0), 3);
    assert_int_equal(left("b", 1), 3);
    world_close();
}

/* What a limit holds that began anew was not granted by it. */
static void a_limit_that_began_anew_gets_nothing_back(void **state)
{
    weir_acquisition *held;

    (void)state;
    open_keyed("max: 10", "{ type: rate, key: tokens, algorithm: fixed_window, capacity: 10, "
                          "window: 10s, refund: true }");
    held = granted(TOKENS(5, "a"));
    reload("max: 10", RATE("token_bucket", "10"));
    assert_int_equal(take(TOKENS(6, "a")), 0);
    release_used(held, "tokens", 0);
    assert_int_equal(left("a", 0), 4);
    world_close();
}

/* ---- waiters ---- */

static void waiters_go_on_in_their_order(void **state)
{
    static const char *const more[] = {SLOTS("3"), RATE("gcra", "10") "," SLOTS("3")};
    weir_acquisition *held, *waiting[3];

    (void)state;
    for (int to = 0; to < 2; to++) {
        open_keyed("max: 10", SLOTS("1"));
        held = granted(SLOT(1, "a"));
        for (size_t i = 0; i < 3; i++)
            waiting[i] = pending(SLOT(1, "a"));
        reload("max: 10", more[to]);
        assert_int_equal(weir_acquisition_result(waiting[0]), 0);
        assert_int_equal(weir_acquisition_result(waiting[1]), 0);
        assert_int_equal(weir_acquisition_result(waiting[2]), -EINPROGRESS);
        assert_int_equal(stats().waiting, 1);
        release(waiting[0]);
        assert_int_equal(weir_acquisition_result(waiting[2]), 0);
        release(held);
        release(waiting[1]);
        release(waiting[2]);
        assert_int_equal(limit_stats(to).held, 0);
        assert_int_equal(stats().waiting, 0);
        world_close();
    }
}

static void waiters_end_by_time_and_by_the_new_rate(void **state)
{
    weir_acquisition *soon, *late, *canceled;

    (void)state;
    open_keyed("max: 10", RATE("gcra", "10"));
    assert_int_equal(take(TOKENS(10, "a")), 0);
    soon = pending(TOKENS(1, "a"));
    canceled = pending(TOKENS(2, "a"));
    late = pending(with_timeout(TOKENS(9, "a"), 3 * SECOND));
    reload("max: 10", RATE("gcra", "100"));
    assert_int_equal(weir_cancel(canceled), 0);
    release(canceled);
    advance(SECOND / 10);
    assert_int_equal(weir_acquisition_result(soon), 0);
    release_used(soon, "tokens", 1);
    assert_int_equal(weir_acquisition_result(late), -EINPROGRESS);
    reload("max: 10", RATE("gcra", "10"));
    advance(3 * SECOND);
    assert_int_equal(weir_acquisition_result(late), -ETIMEDOUT);
    release_expecting(late, 0);
    world_close();
}

static void what_can_never_be_granted_ends(void **state)
{
    weir_acquisition *held, *large, *small;

    (void)state;
    open_keyed("max: 10", SLOTS("3"));
    held = granted(SLOT(1, "a"));
    large = pending(SLOT(3, "a"));
    small = pending(SLOT(1, "a"));
    reload("max: 10", SLOTS("2"));
    assert_int_equal(weir_acquisition_result(large), -ERANGE);
    assert_int_equal(weir_acquisition_result(small), 0);
    release(large);
    release(small);
    release(held);
    assert_int_equal(limit_stats(0).held, 0);
    world_close();
}

static void a_removed_set_ends_its_waits(void **state)
{
    weir_acquisition *held, *waiting, *none = NULL;

    (void)state;
    open_keyed("max: 10", SLOTS("1"));
    held = granted(SLOT(1, "a"));
    waiting = pending(SLOT(1, "a"));
    reload("max: 10", SLOTS("1") "," RATE("gcra", "10"));
    assert_int_equal(reload_text("version: 1\n"), 0);
    assert_int_equal(weir_acquisition_result(waiting), -ESHUTDOWN);
    assert_int_equal(try_acquire(SLOT(1, "b"), &none), -ESTALE);
    release(waiting);
    release(held);
    world_close();
}

static void nested_requests_go_on(void **state)
{
    weir_acquisition *outer, *inner;
    struct weir_request *request = SLOT(1, "a");

    (void)state;
    open_keyed("max: 10", SLOTS("1"));
    outer = granted(SLOT(1, "a"));
    request->within = outer;
    for (int i = 0; i < 2; i++) {
        reload("max: 10", i ? RATE("gcra", "9") "," SLOTS("3") : SLOTS("2"));
        request->subject = "a";
        inner = granted(request);
        release(inner);
        request->subject = "b";
        assert_int_equal(try_acquire(request, &inner), -EINVAL);
    }
    release(outer);
    assert_int_equal(left("a", 1), 3);
    world_close();
}

/* What was not taken in shadow does not come back, whatever the limit is now. */
static void shadow_goes_on(void **state)
{
    weir_acquisition *untaken, *taken;

    (void)state;
    open_keyed("max: 10", SHADOW_SLOTS("1"));
    taken = granted(SLOT(1, "a"));
    untaken = granted(SLOT(1, "a"));
    reload("max: 10", SLOTS("2"));
    assert_int_equal(limit_stats(0).held, 1);
    release(untaken);
    assert_int_equal(left("a", 0), 1);
    release(taken);
    assert_int_equal(left("a", 0), 2);
    world_close();
}

/* ---- subjects ---- */

static void room_grows_and_stays(void **state)
{
    char subject[16];
    uint64_t room, populated;

    (void)state;
    open_keyed("max: 4, evict: none", RATE("gcra", "10"));
    room = keys().room;
    for (int i = 0; i < 4; i++) {
        snprintf(subject, sizeof(subject), "s%d", i);
        assert_int_equal(take(TOKENS(5, subject)), 0);
    }
    populated = fake_os_counts().populate;
    reload("max: 2000, evict: none", RATE("gcra", "10"));
    assert_int_equal(fake_os_counts().populate, populated + 1); /* what is added */
    assert_int_equal(keys().max, 2000);
    assert_true(keys().room >= 2000 && keys().room >= 2 * room);
    for (int i = 0; i < 2000; i++) {
        snprintf(subject, sizeof(subject), "s%d", i);
        assert_int_equal(take(TOKENS(5, subject)), 0);
    }
    for (int i = 0; i < 4; i++) {
        snprintf(subject, sizeof(subject), "s%d", i);
        assert_int_equal(take(TOKENS(1, subject)), -EAGAIN);
    }
    assert_int_equal(keys().known, 2000);
    room = keys().room;
    reload("max: 1, evict: oldest", RATE("gcra", "10"));
    assert_int_equal(fake_os_counts().populate, populated + 1);
    assert_int_equal(keys().room, room);
    assert_string_equal(keys().evict, "oldest");
    assert_int_equal(keys().known, 2000);
    assert_int_equal(take(TOKENS(6, "s1999")), -EAGAIN);
    assert_int_equal(take(TOKENS(5, "s1999")), 0);
    assert_int_equal(keys().evicted, 0);
    world_close();
}

static void subjects_are_neither_added_nor_removed(void **state)
{
    (void)state;
    open_keyed("max: 10", SLOTS("1"));
    assert_int_equal(reload_fields("limits: [ " SLOTS("1") " ]"), -EOPNOTSUPP);
    assert_non_null(strstr(error.message, "it has a state for each subject"));
    world_close();
    world_limits(SLOTS("1"));
    assert_int_equal(reload_fields("subjects: { max: 10 }, limits: [ " SLOTS("1") " ]"),
                     -EOPNOTSUPP);
    assert_non_null(strstr(error.message, "it would have a state for each subject"));
    world_close();
}

/* A subject of one word that is to be a key set changes when it is asked for. If it never is, the
 * words of its definition are told apart for so many reloads, and no longer. */
static void tags_are_not_used_twice(void **state)
{
    weir_acquisition *held;
    int r = 0, n = 0;

    (void)state;
    open_keyed("max: 10", SLOTS("1"));
    held = granted(SLOT(1, "a"));
    for (; r == 0 && n < 5000; n++)
        r = reload_fields(
            n % 2 ? "subjects: { max: 10 }, limits: [ " SLOTS("2") "," RATE("gcra", "9") " ]"
                  : "subjects: { max: 10 }, limits: [ " SLOTS("3") "," RATE("gcra", "9") " ]");
    assert_int_equal(n, 2048);
    assert_int_equal(r, -EOPNOTSUPP);
    assert_non_null(strstr(error.message, "subjects were not asked for"));
    assert_int_equal(left("a", 0), 2);
    release(granted(SLOT(2, "a")));
    reload("max: 10", SLOTS("3") "," RATE("gcra", "9"));
    release(held);
    assert_int_equal(left("a", 0), 3);
    world_close();
}

static void take_of_each(weir_pool *pool, int n)
{
    weir_pool *before = world.pool;
    char subject[16];

    world.pool = pool;
    for (int i = 0; i < n; i++) {
        snprintf(subject, sizeof(subject), "s%d", i);
        assert_int_equal(take(TOKENS(1, subject)), 0);
    }
    world.pool = before;
}

/* What key sets of earlier definitions take up is not freed. A reload is refused before the room is
 * used up: each subject has a key set by every definition. */
static void room_is_left_for_each_subject(void **state)
{
    struct region_area *area;
    size_t reserved;
    char subject[16];
    int n = 0, r = 0;

    (void)state;
    open_keyed("max: 1000", SLOTS("2") "," RATE("gcra", "1000000"));
    area = &world.w->region.blocks;
    reserved = area->reserved;
    area->reserved = area->committed;
    for (; r == 0; n++) {
        take_of_each(world.pool, 100);
        r = reload_fields(n % 2 ? "subjects: { max: 1000 }, limits: [ " SLOTS("2") "," RATE(
                                      "gcra", "1000000") " ]"
                                : "subjects: { max: 1000 }, limits: [ " SLOTS("3") "," RATE(
                                      "gcra", "1000000") " ]");
        assert_true(n < 100);
    }
    assert_true(n > 2);
    assert_int_equal(r, -EOPNOTSUPP);
    assert_non_null(strstr(error.message, "used up the room"));
    for (int i = 0; i < 100; i++) {
        snprintf(subject, sizeof(subject), "s%d", i);
        assert_int_equal(left(subject, 1), 1000000 - (uint64_t)n);
        assert_int_equal(take(TOKENS(1, subject)), 0);
    }
    area->reserved = reserved;
    reload("max: 1000", SLOTS("5") "," RATE("gcra", "1000000"));
    world_close();
}

/* New subjects leave the room to those that have a key set already. */
static void new_subjects_leave_room_for_others(void **state)
{
    struct region_area *area;
    size_t reserved;
    char subject[16];
    int r = 0, n = 0;

    (void)state;
    open_keyed("max: 5000, evict: none", SLOTS("2") "," RATE("gcra", "1000000"));
    area = &world.w->region.blocks;
    reserved = area->reserved;
    area->reserved = area->committed;
    take_of_each(world.pool, 100);
    reload("max: 5000, evict: none", SLOTS("3") "," RATE("gcra", "1000000"));
    for (; r == 0; n++) {
        snprintf(subject, sizeof(subject), "new%d", n);
        r = take(TOKENS(1, subject));
    }
    assert_int_equal(r, -ENOBUFS);
    assert_true(n > 100);
    take_of_each(world.pool, 100);
    area->reserved = reserved;
    world_close();
}

/* ---- room of several sets ---- */

/* Two sets, the states of which have blocks of two sizes. */
static int reload_two(int capacity, int other)
{
    char text[2048];

    snprintf(text, sizeof(text),
             "version: 1\nsets: { main: { subjects: { max: 20000, evict: none }, limits: [ "
             "{ type: resource, key: slots, capacity: %d }, " RATE(
                 "gcra", "1000000") " ] }, "
                                    "other: { subjects: { max: 20000, evict: none }, limits: [ "
                                    "{ type: resource, key: slots, capacity: %d }, " RATE(
                                        "sliding_window, segments: 60", "1000000") " ] } }\n",
             capacity, other);
    return reload_text(text);
}

/* Leaves so much room. What was committed beyond that will be committed again. */
static void bound_blocks(struct region_area *area, size_t reserved)
{
    area->reserved = reserved;
    if (area->committed > reserved)
        area->committed = reserved;
}

static void one_set_leaves_room_to_another(void **state)
{
    struct region_area *area;
    weir_pool *other;
    size_t reserved;
    char subject[16];
    int n = 1, r = 0;

    (void)state;
    open_keyed("max: 10", SLOTS("2"));
    assert_int_equal(reload_two(1, 1), 0);
    other = pool_open("other", 0);
    area = &world.w->region.blocks;
    reserved = area->reserved;
    take_of_each(world.pool, 100);
    take_of_each(other, 100);
    bound_blocks(area, 5 * area->used);
    for (; r == 0; n++) { /* `other` is owed its room from the first change on */
        assert_true(n < 100);
        r = reload_two(n + 1, 2);
        take_of_each(world.pool, 100);
    }
    assert_true(n > 3);
    assert_int_equal(r, -EOPNOTSUPP);
    assert_non_null(strstr(error.message, "used up the room"));
    for (n = r = 0; r == 0; n++) { /* nor do new subjects take what is owed to others */
        snprintf(subject, sizeof(subject), "new%d", n);
        r = take(TOKENS(1, subject));
    }
    assert_int_equal(r, -ENOBUFS);
    take_of_each(other, 100);
    area->reserved = reserved;
    assert_int_equal(reload_two(1000, 3), 0);
    weir_pool_close(other);
    world_close();
}

/* Each set alone would have room for another definition. */
static void sets_that_change_together_have_room_together(void **state)
{
    struct region_area *area;
    weir_pool *other;
    size_t reserved, used;

    (void)state;
    open_keyed("max: 10", SLOTS("2"));
    assert_int_equal(reload_two(1, 1), 0);
    other = pool_open("other", 0);
    area = &world.w->region.blocks;
    reserved = area->reserved;
    take_of_each(world.pool, 400);
    used = area->used;
    take_of_each(other, 100);
    /* Room for what the subjects of `other` take, and a little more. */
    bound_blocks(area, (area->used + (area->used - used) * 5 / 4) * 8 / 7);
    assert_int_equal(reload_two(2, 2), -EOPNOTSUPP);
    assert_int_equal(reload_two(1, 2), 0);
    assert_int_equal(reload_two(2, 2), -EOPNOTSUPP);
    for (int n = 3; n < 6; n++) /* in place of what was promised before */
        assert_int_equal(reload_two(1, n), 0);
    assert_int_equal(
        reload_text("version: 1\nsets: { main: { subjects: { max: 20000, evict: none }, "
                    "limits: [ " SLOTS("1") ", " RATE("gcra", "1000000") " ] } }\n"),
        0); /* and a set that is removed needs none */
    bound_blocks(area, (area->used + 400 * 400) * 8 / 7);
    take_of_each(world.pool, 500);
    area->reserved = reserved;
    weir_pool_close(other);
    world_close();
}

/* What does not fit leaves the room as it is, however often it is tried. */
static void a_set_without_room_takes_none(void **state)
{
    const uint64_t content[CONTENT_STATES] = {0};
    struct region *region, before;
    size_t reserved;

    (void)state;
    open_keyed("max: 10", SLOTS("2") "," RATE("gcra", "10"));
    region = &world.w->region;
    reserved = region->blocks.reserved;
    region->blocks.reserved = region->blocks.committed;
    do
        before = *region;
    while (version_new_set(region, BLOCK_CLASS_MAX, 0, content, CONTENT_STATES));
    assert_memory_equal(&before, region, sizeof(before));
    region->blocks.reserved = reserved;
    world_close();
}

/* A key set that is free stays so if there is no memory for it by the latest definition. */
static void a_free_key_set_is_not_lost(void **state)
{
    (void)state;
    open_keyed("max: 10", SLOTS("2") "," RATE("gcra", "10"));
    release(granted(SLOT(1, "a")));
    assert_int_equal(keys().known, 0);
    reload("max: 10", SLOTS("3") "," RATE("gcra", "10"));
    fake_os_fail_kind_from(1, FAKE_MEMORY, 0);
    assert_int_equal(take(TOKENS(1, "b")), -ENOMEM);
    fake_os_fail_at(0);
    assert_int_equal(take(TOKENS(1, "b")), 0);
    assert_int_equal(key_sets_n(keyed_of(world.set)), 1);
    world_close();
}

/* A thread that was stopped with its claim begins again. */
static void a_claim_by_an_earlier_definition_ends(void **state)
{
    const struct key_policy none = {NULL, NULL, KEY_EVICT_NONE, NULL};
    const struct key_digest key = {UINT64_C(0x123456789abcdef0), UINT64_C(0xfedcba9876543210)};
    struct probe_stats stats = {0};
    struct key_entry entry;
    uint64_t nonce = 1;

    (void)state;
    open_keyed("max: 10", RATE("gcra", "10"));
    assert_int_equal(
        key_table_claim(&keyed_of(world.set)->table, &key, &none, &nonce, &entry, &stats),
        KEY_CLAIMED);
    reload("max: 10", RATE("gcra", "20"));
    assert_false(key_claim_commit(&entry, 1));
    world_close();
}

/* A fault ends the definition in which it shows, and no later one. */
static void a_late_fault_ends_no_later_definition(void **state)
{
    weir_acquisition *held, *waiting;
    weir_set *first;

    (void)state;
    open_keyed("max: 10", SLOTS("1") "," RATE("gcra", "10"));
    held = granted(SLOT(1, "a"));
    waiting = pending(SLOT(1, "a"));
    first = world.set;
    reload("max: 10", RATE("gcra", "10") "," SLOTS("1"));
    first->ops->shut_down(thread_ctx_get(first), first);
    assert_int_equal(weir_acquisition_result(waiting), -EINPROGRESS);
    release(held);
    assert_int_equal(weir_acquisition_result(waiting), 0);
    release(waiting);
    world_close();
}

/* The definition of a removed subject does not come back with it. */
static void counters_add_up(void **state)
{
    (void)state;
    open_keyed("max: 10", RATE("gcra", "10"));
    assert_int_equal(take(TOKENS(4, "a")), 0);
    reload("max: 10", SLOTS("1") "," RATE("gcra", "10"));
    assert_int_equal(take(TOKENS(4, "a")), 0);
    assert_int_equal(stats().granted, 2);
    assert_int_equal(limit_stats(1).granted, 8);
    assert_int_equal(limit_stats(0).granted, 0);
    world_close();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_subject_keeps_its_level),
        leak_checked_test(the_change_is_as_of_the_reload),
        leak_checked_test(a_subject_as_good_as_new_begins_anew),
        leak_checked_test(a_subject_with_a_reservation_ahead_goes_on),
        leak_checked_test(an_algorithm_that_changed_begins_anew),
        leak_checked_test(limits_come_and_go),
        leak_checked_test(reloads_add_up),
        leak_checked_test(many_reloads_add_up),
        leak_checked_test(what_is_held_stays_held),
        leak_checked_test(a_new_thread_releases_then_asks),
        leak_checked_test(a_limit_that_began_anew_gets_nothing_back),
        leak_checked_test(waiters_go_on_in_their_order),
        leak_checked_test(waiters_end_by_time_and_by_the_new_rate),
        leak_checked_test(what_can_never_be_granted_ends),
        leak_checked_test(a_removed_set_ends_its_waits),
        leak_checked_test(nested_requests_go_on),
        leak_checked_test(shadow_goes_on),
        leak_checked_test(room_grows_and_stays),
        leak_checked_test(subjects_are_neither_added_nor_removed),
        leak_checked_test(tags_are_not_used_twice),
        leak_checked_test(room_is_left_for_each_subject),
        leak_checked_test(new_subjects_leave_room_for_others),
        leak_checked_test(one_set_leaves_room_to_another),
        leak_checked_test(sets_that_change_together_have_room_together),
        leak_checked_test(a_set_without_room_takes_none),
        leak_checked_test(a_free_key_set_is_not_lost),
        leak_checked_test(a_claim_by_an_earlier_definition_ends),
        leak_checked_test(a_late_fault_ends_no_later_definition),
        leak_checked_test(counters_add_up),
    };

    backend_choose(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
