/* SPDX-License-Identifier: MIT */
/* Keyed sets: the limits of each key, how keys come and go, wait queues per key, and what happens
 * without room. */
#include "lib/world.h"
#include <inttypes.h>

#define RATE  "{ type: rate, key: tokens, algorithm: gcra, capacity: 10, window: 10s }"
#define SLOTS "{ type: resource, key: slots, capacity: 2 }"
#define BOTH  RATE ", " SLOTS

/* All of it with sets of threads, and again with sets that processes share. */
static bool shared;

static void keyed(const char *how, const char *limits)
{
    char fields[1024];

    snprintf(fields, sizeof(fields), "%ssubjects: { %s }, limits: [ %s ]",
             shared ? "backend: process, lifetime: users, " : "", how, limits);
    world_set(fields);
}

static struct weir_subjects_stats keys(void)
{
    struct weir_subjects_stats ret = {.size = sizeof(ret)};

    assert_int_equal(weir_set_subjects(world.set, &ret), 1);
    return ret;
}

static struct weir_request *of(struct weir_request *request, const char *subject)
{
    request->subject = subject;
    request->subject_size = strlen(subject);
    return request;
}

static struct weir_request *of_number(struct weir_request *request, const uint64_t *number)
{
    request->subject = number;
    request->subject_size = sizeof(*number);
    return request;
}

static int result(weir_acquisition *acquisition)
{
    return weir_acquisition_result(acquisition);
}

/* ---- subjects ---- */

static void a_keyed_set_asks_for_a_subject(void **state)
{
    struct weir_request *request = ASK({"tokens", 1});
    static char subject[WEIR_SUBJECT_MAX + 1];
    uint64_t at;

    (void)state;
    keyed("max: 10", RATE);
    assert_int_equal(take(NULL), -EINVAL);
    assert_int_equal(take(request), -EINVAL);
    request->subject = subject;
    assert_int_equal(take(request), -EINVAL);
    request->subject_size = sizeof(subject);
    assert_int_equal(take(request), -EINVAL);
    assert_int_equal(weir_set_ready_at(world.set, request, &at), -EINVAL);
    request->subject_size--;
    assert_int_equal(take(request), 0);
    request->subject_size = 1;
    assert_int_equal(take(request), 0);
    request->subject = NULL;
    assert_int_equal(take(request), -EINVAL);
    assert_int_equal(keys().known, 2);
    world_close();
}

/* Its requests then do not wait for the kernel to clear pages. Once, whatever opens it again. */
static void a_private_table_has_its_memory_before_the_first_request(void **state)
{
    uint64_t before = fake_os_counts().populate;
    weir_pool *again;

    (void)state;
    keyed("max: 10", RATE);
    assert_int_equal(fake_os_counts().populate - before, shared ? 0 : 1);
    assert_int_equal(weir_pool_open(&again, world.w, "main", 0, NULL), 0);
    assert_int_equal(fake_os_counts().populate - before, shared ? 0 : 1);
    weir_pool_close(again);
    world_close();
}

static void a_request_of_before_there_were_subjects_is_understood(void **state)
{
    struct weir_request *request = of(ASK({"tokens", 1}), "somebody");

    (void)state;
    world_limits(RATE);
    request->size = offsetof(struct weir_request, subject);
    assert_int_equal(take(request), 0);
    request->size--;
    assert_int_equal(take(request), -EINVAL);
    world_close();
    keyed("max: 10", RATE);
    request->size++;
    assert_int_equal(take(request), -EINVAL); /* nothing is there behind its end */
    request->size = sizeof(*request);
    assert_int_equal(take(request), 0);
    world_close();
}

static void a_set_that_is_not_keyed_ignores_subjects(void **state)
{
    struct weir_subjects_stats untouched = {.size = sizeof(untouched), .known = 77};

    (void)state;
    world_limits(RATE);
    assert_int_equal(take(of(ASK({"tokens", 10}), "a")), 0);
    assert_int_equal(take(of(ASK({"tokens", 1}), "b")), -EAGAIN);
    assert_int_equal(weir_set_subjects(world.set, &untouched), 0);
    assert_int_equal(untouched.known, 77);
    untouched.size--;
    assert_int_equal(weir_set_subjects(world.set, &untouched), -EINVAL);
    assert_int_equal(weir_set_subjects(world.set, NULL), -EINVAL);
    world_close();
}

static void subjects_are_bytes(void **state)
{
    static const char *const bytes = "a\0b";
    struct weir_request *request = ASK({"tokens", 10});

    (void)state;
    keyed("max: 10", RATE);
    for (size_t size = 1; size <= 3; size++) {
        request->subject = bytes;
        request->subject_size = size;
        assert_int_equal(take(request), 0);
        assert_int_equal(take(request), -EAGAIN);
    }
    request->subject = "a\0c";
    assert_int_equal(take(request), 0);
    assert_int_equal(keys().known, 4);
    world_close();
}

static void each_subject_has_the_limits_for_itself(const char *limits)
{
    weir_acquisition *a, *b;

    keyed("max: 10", limits);
    assert_int_equal(take(of(ASK({"tokens", 10}, {"slots", 0}), "a")), 0);
    assert_int_equal(take(of(ASK({"tokens", 1}, {"slots", 0}), "a")), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, SECOND);
    assert_string_equal(refusal.key, "tokens");
    assert_string_equal(refusal.set, "main");
    assert_int_equal(take(of(ASK({"tokens", 11}, {"slots", 0}), "a")), -ERANGE);
    assert_int_equal(take(of(ASK({"tokens", 9}, {"slots", 0}), "b")), 0);
    a = pending(of(ASK({"tokens", 2}, {"slots", 0}), "a"));
    b = pending(of(ASK({"tokens", 2}, {"slots", 0}), "b"));
    assert_string_equal(weir_acquisition_set(a), "main");
    assert_int_equal(stats().waiting, 2);
    assert_int_equal(advance(SECOND), 1);
    assert_int_equal(result(a), -EINPROGRESS);
    assert_int_equal(result(b), 0);
    assert_int_equal(advance(SECOND), 1);
    assert_int_equal(result(a), 0);
    release_used(a, "tokens", 1);
    release_used(b, "tokens", 2);
    assert_int_equal(stats().waiting, 0);
    assert_int_equal(take(of(ASK({"tokens", 2}, {"slots", 0}), "a")), -EAGAIN);
    assert_int_equal(take(of(ASK({"tokens", 1}, {"slots", 0}), "a")), 0); /* what was refunded */
    assert_int_equal(stats().granted, 5);
    world_close();
}

static void one_key_word_is_enough_for_a_key(void **state)
{
    (void)state;
    each_subject_has_the_limits_for_itself(RATE);
}

static void several_limits_have_a_set_of_their_own(void **state)
{
    (void)state;
    each_subject_has_the_limits_for_itself(BOTH);
}

/* ---- coming and going ---- */

static void many_keys_come_and_go_without_a_trace(void **state)
{
    uint64_t n = 1000000;

    (void)state;
    keyed("max: 1k, evict: none", RATE);
    for (uint64_t i = 0; i < n; i++) {
        world.now += 2 * MS; /* 500 are taken from within a second, which is what they recover in */
        assert_int_equal(take(of_number(ASK({"tokens", 1}), &i)), 0);
    }
    assert_true(keys().known <= 2000);
    assert_true(keys().forgotten >= n - 2000);
    assert_int_equal(keys().evicted, 0);
    assert_int_equal(keys().refused, 0);
    /* As new. */
    for (uint64_t i = 0; i < 400; i++) {
        world.now += 10 * SECOND;
        assert_int_equal(take(of_number(ASK({"tokens", 10}), &i)), 0);
        assert_int_equal(take(of_number(ASK({"tokens", 1}), &i)), -EAGAIN);
    }
    world_close();
}

/* So many keys that matter that no more find room; their number, which is that of the next. */
static uint64_t fill(const struct weir_request *request, uint64_t most)
{
    struct weir_request one = *request;
    uint64_t i = 0;

    for (; i < most; i++) {
        int r = take(of_number(&one, &i));

        if (r == -ENOBUFS)
            break;
        assert_int_equal(r, 0);
    }
    return i;
}

static void without_eviction_a_new_key_is_refused(const char *limits)
{
    const struct weir_request *request = ASK({"tokens", 10}, {"slots", 0});
    uint64_t n, again;

    keyed("max: 100, evict: none", limits);
    n = fill(request, 1000);
    assert_in_range(n, 100, 400);
    assert_int_equal(keys().known, n);
    assert_int_equal(keys().refused, 1);
    assert_int_equal(stats().refused_full, 1);
    assert_string_equal(refusal.key, "");
    assert_string_equal(refusal.set, "main");
    again = n; /* the one that found no room */
    assert_int_equal(take(of_number(ASK({"tokens", 1}, {"slots", 0}), &again)), -ENOBUFS);
    again = 0; /* a known key goes on */
    assert_int_equal(take(of_number(ASK({"tokens", 1}, {"slots", 0}), &again)), -EAGAIN);
    world.now += 10 * SECOND; /* all have recovered */
    assert_int_equal(take(of_number(ASK({"tokens", 1}, {"slots", 0}), &n)), 0);
    assert_true(keys().forgotten >= 1);
    assert_int_equal(keys().evicted, 0);
    world_close();
}

static void without_eviction_a_new_key_of_a_word_is_refused(void **state)
{
    (void)state;
    without_eviction_a_new_key_is_refused(RATE);
}

static void without_eviction_a_new_key_of_a_key_set_is_refused(void **state)
{
    (void)state;
    without_eviction_a_new_key_is_refused(BOTH);
}

static void a_key_gives_way_to_a_new_one(const char *how, const char *limits)
{
    keyed(how, limits);
    assert_int_equal(fill(ASK({"tokens", 10}, {"slots", 0}), 1000), 1000);
    assert_in_range(keys().known, 100, 400);
    assert_int_equal(keys().known + keys().evicted, 1000);
    assert_int_equal(keys().forgotten, 0);
    assert_int_equal(keys().refused, 0);
    world_close();
}

static void keys_that_matter_give_way_where_the_configuration_says_so(void **state)
{
    (void)state;
    a_key_gives_way_to_a_new_one("max: 100", RATE);
    a_key_gives_way_to_a_new_one("max: 100, evict: oldest", RATE);
    a_key_gives_way_to_a_new_one("max: 100, evict: random", RATE);
    a_key_gives_way_to_a_new_one("max: 100, evict: oldest", BOTH);
    a_key_gives_way_to_a_new_one("max: 100, evict: random", BOTH);
}

/* Of the keys that were used last, at least so many of a hundred are left. */
static void the_oldest_give_way(const char *limits)
{
    struct weir_request *request = ASK({"tokens", 1}, {"slots", 0});
    uint64_t left = 0;

    keyed("max: 1000, evict: oldest", limits);
    for (uint64_t i = 0; i < 20000; i++) {
        world.now += 1000;
        assert_int_equal(take(of_number(request, &i)), 0);
    }
    assert_true(keys().evicted > 10000);
    request = ASK({"tokens", 10}, {"slots", 0});
    for (uint64_t i = 19900; i < 20000; i++)
        left += take(of_number(request, &i)) == -EAGAIN;
    assert_true(left > 90);
    world_close();
}

static void the_oldest_give_way_first(void **state)
{
    (void)state;
    the_oldest_give_way(RATE);
    the_oldest_give_way(BOTH);
}

/* Keys that hold until there is no room for one more, whatever the policy; and one that waits. */
static void a_key_with_holders_or_waiters_never_gives_way(const char *limits, const char *how,
                                                          const struct weir_amount *amounts)
{
    struct weir_request request = {.size = sizeof(request), .amounts = amounts, .amounts_n = 2};
    weir_acquisition *holders[400], *waiter, *news = NULL;
    uint64_t n = 0, first = 0;
    int r;

    keyed(how, limits);
    while ((r = try_acquire(of_number(&request, &n), &holders[n])) == 0)
        assert_true(++n < 400);
    assert_int_equal(r, -ENOBUFS);
    assert_in_range(n, 70, 300);
    waiter = pending(of_number(&request, &first));
    assert_int_equal(try_acquire(of_number(&request, &n), &news), -ENOBUFS);
    assert_int_equal(keys().evicted, 0);
    assert_int_equal(keys().refused, 2);
    for (uint64_t i = 0; i < n; i++) {
        assert_int_equal(try_acquire(of_number(&request, &i), &news), -EAGAIN);
        weir_update(holders[i], "tokens", 0);
        release(holders[i]);
    }
    assert_int_equal(result(waiter), 0);
    weir_update(waiter, "tokens", 0);
    release(waiter);
    assert_int_equal(stats().held, 0);
    news = granted(of_number(&request, &n));
    weir_update(news, "tokens", 0);
    release(news);
    world_close();
}

static void holders_and_waiters_stay(void **state)
{
    static const struct weir_amount slots[] = {{"slots", 2}, {"tokens", 0}};
    static const struct weir_amount tokens[] = {{"slots", 0}, {"tokens", 10}};

    (void)state;
    a_key_with_holders_or_waiters_never_gives_way(SLOTS, "max: 70, evict: oldest", slots);
    a_key_with_holders_or_waiters_never_gives_way(SLOTS, "max: 70, evict: random", slots);
    a_key_with_holders_or_waiters_never_gives_way(BOTH, "max: 70, evict: oldest", slots);
    a_key_with_holders_or_waiters_never_gives_way(BOTH, "max: 70, evict: random", slots);
    a_key_with_holders_or_waiters_never_gives_way(BOTH, "max: 70, evict: none", tokens);
}

static void waits_from_the_first_time_on(const char *limits)
{
    uint64_t n;

    keyed("max: 10, evict: none", limits);
    assert_int_equal(take(of(ASK({"tokens", 1}), "a")), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, SECOND);
    world.now += SECOND;
    assert_int_equal(take(of(ASK({"tokens", 1}), "a")), 0); /* its time has run since then */
    world.now += 100 * SECOND;
    for (n = 0; n < 100; n++)
        assert_true(take(of_number(ASK({"tokens", 1}), &n)) < 0);
    assert_int_equal(keys().forgotten, 0);
    assert_int_equal(take(of(ASK({"tokens", 10}), "a")), 0);
    world_close();
}

#define EMPTY(algorithm)                                                                           \
    "{ type: rate, key: tokens, algorithm: " algorithm ", capacity: 10, window: 10s, initial: 0 }"

static void a_key_that_does_not_begin_full_is_not_forgotten(void **state)
{
    (void)state;
    waits_from_the_first_time_on(EMPTY("gcra"));
    waits_from_the_first_time_on(EMPTY("token_bucket"));
    waits_from_the_first_time_on(EMPTY("leaky_bucket"));
    waits_from_the_first_time_on(
        EMPTY("gcra") ", { type: call, algorithm: gcra, capacity: 1000, window: 1s }");
}

static void pays_all_the_same(const char *limits)
{
    weir_acquisition *holder;

    keyed("max: 1, evict: none", limits);
    holder = granted(of(ASK({"tokens", 1}), "a"));
    world.now += 100 * SECOND;
    for (uint64_t i = 0; keys().forgotten == 0; i++) {
        int r = take(of_number(ASK({"tokens", 1}), &i));

        assert_true(r == 0 || r == -ENOBUFS); /* the others are not as new, until it is its turn */
    }
    world.now += 100 * SECOND;
    release_used(holder, "tokens", 9); /* eight more than were granted */
    assert_int_equal(take(of(ASK({"tokens", 3}), "a")), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, SECOND);
    assert_int_equal(take(of(ASK({"tokens", 2}), "a")), 0);
    world_close();
}

static void a_forgotten_key_pays_all_the_same(void **state)
{
    (void)state;
    pays_all_the_same("{ type: rate, key: tokens, algorithm: gcra, capacity: 10, window: 10s, "
                      "overuse: charge }");
    pays_all_the_same(
        "{ type: rate, key: tokens, algorithm: gcra, capacity: 10, window: 10s, "
        "overuse: charge }, { type: call, algorithm: gcra, capacity: 50, window: 5s }");
}

/* It may rely on instants that never go back. */
static void an_algorithm_that_does_not_say_so_is_not_decided_by_the_word(void **state)
{
    (void)state;
    keyed("max: 10", "{ type: rate, key: tokens, algorithm: stock }");
    assert_int_equal(take(of(ASK({"tokens", 1}), "a")), 0);
    assert_int_equal(keys().live, 1);
    world_close();
}

/* As in a set without subjects. */
static void a_release_that_breaks_the_word_breaks_the_set(void **state)
{
    static const char limit[] = "{ type: rate, key: tokens, algorithm: spill }";

    (void)state;
    for (int of_subjects = 0; of_subjects < 2; of_subjects++) {
        if (of_subjects)
            keyed("max: 10", limit);
        else
            world_set("limits: [ { type: rate, key: tokens, algorithm: spill } ]");
        release_used(granted(of(ASK({"tokens", 4}), "a")), "tokens", 1);
        assert_int_equal(take(of(ASK({"tokens", 6}), "a")), -EUCLEAN);
        assert_int_equal(take(of(ASK({"tokens", 1}), "b")), -EUCLEAN);
        assert_int_equal(world.logged, 1);
        world_close();
    }
}

static void a_refusal_for_ever_leaves_no_key(void **state)
{
    (void)state;
    keyed("max: 10", SLOTS);
    assert_int_equal(take(of(ASK({"slots", 0}), "a")), 0);
    assert_int_equal(try_acquire(of(ASK({"slots", 3}), "a"), &(weir_acquisition *){NULL}), -ERANGE);
    assert_int_equal(keys().known, 0);
    world_close();
}

static void steps_and_windows_since_creation_are_counted_from_the_first_use(void **state)
{
    (void)state;
    keyed("max: 10", "{ type: call, algorithm: fixed_window, capacity: 1, window: 10s, "
                     "anchor: creation }");
    world.now += 3 * SECOND;
    assert_int_equal(take(of(ASK_DEFAULTS, "a")), 0);
    assert_int_equal(take(of(ASK_DEFAULTS, "a")), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, 10 * SECOND);
    world.now += 25 * SECOND;
    assert_int_equal(take(of(ASK_DEFAULTS, "a")), 0);
    assert_int_equal(take(of(ASK_DEFAULTS, "a")), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, 5 * SECOND);
    assert_int_equal(keys().forgotten, 0);
    world_close();
}

static void memory_bounds_the_keys(void **state)
{
    const struct weir_request *request = ASK({"tokens", 10}, {"slots", 0});
    uint64_t of_words, live;

    (void)state;
    keyed("max: 1M, memory: 64KiB, evict: none", RATE);
    of_words = fill(request, 100000);
    assert_true(keys().memory <= 65536 && keys().memory_max == 65536);
    assert_in_range(of_words, 1500, 5000); /* no more than 32 bytes each */
    world_close();
    keyed("max: 1M, memory: 64KiB, evict: none", BOTH);
    live = fill(request, 100000);
    assert_true(keys().memory <= 65536);
    assert_in_range(live, 16, 200);
    assert_int_equal(keys().live, live);
    world_close();
}

static void a_million_keys_take_no_more_than_32_bytes_each(void **state)
{
    (void)state;
    keyed("max: 1M", RATE);
    assert_true(keys().memory <= 32 * keys().max);
    assert_int_equal(keys().room, 1000000);
    world_close();
}

/* ---- wait queues ---- */

static void each_key_has_a_wait_queue_of_its_own(void **state)
{
    weir_acquisition *holders[2][2], *waiters[2][4];
    static const char *const subjects[] = {"a", "b"};

    (void)state;
    keyed("max: 10", SLOTS);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            holders[i][j] = granted(of(ASK({"slots", 1}), subjects[i]));
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 2; i++)
            waiters[i][j] = pending(of(ASK({"slots", 1}), subjects[i]));
    assert_int_equal(take(of(ASK({"slots", 0}), "a")), 0);
    assert_int_equal(stats().waiting, 8);
    assert_int_equal(limit_stats(0).held, 4);
    assert_int_equal(keys().live, 2);
    for (int j = 0; j < 2; j++)
        release(holders[0][j]);
    for (int j = 0; j < 4; j++) {
        assert_int_equal(result(waiters[0][j]), j < 2 ? 0 : -EINPROGRESS);
        assert_int_equal(result(waiters[1][j]), -EINPROGRESS);
    }
    for (int j = 0; j < 4; j++)
        release(waiters[0][j]);
    assert_int_equal(keys().live, 1); /* the other is inline again, or forgotten */
    release(holders[1][1]);
    assert_int_equal(result(waiters[1][0]), 0);
    assert_int_equal(weir_cancel(waiters[1][1]), 0);
    release(holders[1][0]);
    assert_int_equal(result(waiters[1][2]), 0);
    for (int j = 0; j < 4; j++)
        release(waiters[1][j]);
    assert_int_equal(stats().held, 0);
    assert_int_equal(keys().live, 0);
    world_close();
}

static void max_waiters_holds_for_each_key(void **state)
{
    weir_acquisition *holders[2], *waiters[2], *news = NULL;
    static const char *const subjects[] = {"a", "b"};

    (void)state;
    keyed("max: 10 }, max_waiters: 1, config: { a: b", SLOTS);
    for (int i = 0; i < 2; i++) {
        holders[i] = granted(of(ASK({"slots", 2}), subjects[i]));
        waiters[i] = pending(of(ASK({"slots", 1}), subjects[i]));
        assert_int_equal(submit(of(ASK({"slots", 1}), subjects[i]), &news), -ENOBUFS);
    }
    assert_int_equal(keys().refused, 0);
    assert_int_equal(stats().refused_full, 2);
    for (int i = 0; i < 2; i++) {
        release(holders[i]);
        release(waiters[i]);
    }
    world_close();
}

static void a_key_is_inline_again_after_its_wait_queue(void **state)
{
    weir_acquisition *waiter;

    (void)state;
    keyed("max: 10", RATE);
    assert_int_equal(take(of(ASK({"tokens", 10}), "a")), 0);
    assert_int_equal(keys().live, 0);
    waiter = pending(of(ASK({"tokens", 2}), "a"));
    assert_int_equal(keys().live, 1);
    assert_int_equal(take(of(ASK({"tokens", 1}), "a")), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, 3 * SECOND); /* behind the waiter */
    release(waiter);
    assert_int_equal(keys().live, 0);
    assert_int_equal(keys().known, 1);
    assert_int_equal(take(of(ASK({"tokens", 1}), "a")), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, SECOND);
    world.now += SECOND;
    assert_int_equal(take(of(ASK({"tokens", 1}), "a")), 0);
    world_close();
}

static void timeouts_and_max_wait_are_kept_for_each_key(void **state)
{
    weir_acquisition *a, *b, *news = NULL;

    (void)state;
    keyed("max: 10", RATE);
    assert_int_equal(take(of(ASK({"tokens", 10}), "a")), 0);
    assert_int_equal(take(of(ASK({"tokens", 10}), "b")), 0);
    a = pending(with_timeout(of(ASK({"tokens", 5}), "a"), 2 * SECOND));
    b = pending(of(ASK({"tokens", 3}), "b"));
    assert_int_equal(submit(with_max_wait(of(ASK({"tokens", 3}), "b"), SECOND), &news), -EAGAIN);
    assert_int_equal(advance(2 * SECOND), 1);
    assert_int_equal(result(a), -ETIMEDOUT);
    refusal = (struct weir_refusal){.size = sizeof(refusal)};
    assert_int_equal(weir_acquisition_refusal(a, &refusal), 0);
    assert_int_equal(refusal.retry_after_ns, 3 * SECOND);
    assert_int_equal(advance(SECOND), 1);
    assert_int_equal(result(b), 0);
    release(a);
    release_used(b, "tokens", 3);
    world_close();
}

static void holders_and_waiters_are_listed_for_all_keys(void **state)
{
    weir_acquisition *holders[2], *waiters[2][2];
    static const char *const subjects[] = {"a", "b"};
    struct weir_holder seen[8];
    uint64_t amount = 0;

    (void)state;
    keyed("max: 10", SLOTS);
    for (int i = 0; i < 2; i++)
        holders[i] = granted(of(ASK({"slots", 2}), subjects[i]));
    for (int j = 0; j < 2; j++)
        for (int i = 0; i < 2; i++)
            waiters[i][j] = pending(of(ASK({"slots", 1}), subjects[i]));
    assert_int_equal(weir_set_holders(world.set, seen, 8), 6);
    for (int i = 0; i < 6; i++) {
        bool waits = seen[i].waiting != 0;

        assert_int_equal(weir_set_holder_amounts(world.set, &seen[i], &amount, 1), 1);
        assert_int_equal(amount, waits ? 1 : 2);
        assert_in_range(seen[i].position, waits ? 1 : 0, waits ? 2 : 0);
    }
    for (int i = 0; i < 2; i++) {
        release(holders[i]);
        for (int j = 0; j < 2; j++)
            release(waiters[i][j]);
    }
    assert_int_equal(weir_set_holders(world.set, seen, 8), 0);
    world_close();
}

static void closing_ends_all_lines(const char *limits)
{
    weir_acquisition *holders[3], *waiters[3];

    keyed("max: 10", limits);
    for (uint64_t i = 0; i < 3; i++) {
        holders[i] = granted(of_number(ASK({"slots", 2}, {"tokens", 0}), &i));
        waiters[i] = pending(of_number(ASK({"slots", 1}, {"tokens", 0}), &i));
    }
    world.w = weir_close(world.w);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(result(waiters[i]), -ESHUTDOWN);
        release(holders[i]);
        release(waiters[i]);
    }
    assert_int_equal(take(of(ASK({"slots", 0}), "a")), -ESHUTDOWN);
    weir_pool_close(world.pool);
}

static void closing_ends_the_wait_queues_of_all_keys(void **state)
{
    (void)state;
    closing_ends_all_lines(SLOTS);
    closing_ends_all_lines(BOTH);
}

/* ---- queues and reservations ---- */

static void queues_serve_keys(const char *limits)
{
    struct weir_completion done[8];
    weir_queue *queue = NULL;
    weir_acquisition *mine = NULL;

    keyed("max: 10", limits);
    assert_int_equal(weir_queue_open(&queue, world.w, 16), 0);
    for (uint64_t i = 0; i < 6; i++) { /* two for each of three subjects; one has to wait */
        uint64_t subject = i % 3;

        assert_int_equal(weir_queue_submit(queue, world.pool,
                                           of_number(ASK({"slots", 2}, {"tokens", 0}), &subject), i,
                                           i == 5 ? &mine : NULL, NULL),
                         0);
    }
    assert_int_equal(weir_queue_reap(queue, done, 8), 3);
    for (uint64_t i = 0; i < 3; i++)
        assert_true(done[i].result == 0 && done[i].user_data == i);
    assert_int_equal(weir_queue_cancel(queue, 4), 1);
    release(done[0].acquisition);
    release(done[2].acquisition);
    release(done[1].acquisition);
    assert_int_equal(weir_queue_reap(queue, done, 8), 3);
    assert_true(done[0].user_data == 4 && done[0].result == -ECANCELED);
    assert_true(done[1].user_data == 3 && done[1].result == 0);
    assert_true(done[2].user_data == 5 && done[2].result == 0 && done[2].acquisition == mine);
    release(done[1].acquisition);
    release(mine);
    /* An unseen grant goes back. */
    assert_int_equal(weir_queue_submit(queue, world.pool, of(ASK({"slots", 2}, {"tokens", 0}), "d"),
                                       9, NULL, NULL),
                     0);
    assert_int_equal(weir_queue_cancel(queue, 9), 1);
    release(granted(of(ASK({"slots", 2}, {"tokens", 0}), "d")));
    weir_queue_close(queue);
    assert_int_equal(stats().held, 0);
    world_close();
}

static void queues_serve_keys_of_any_kind(void **state)
{
    (void)state;
    queues_serve_keys(SLOTS);
    queues_serve_keys(BOTH);
}

static void a_queue_tells_why_a_key_was_refused(void **state)
{
    struct weir_completion done;
    weir_queue *queue = NULL;

    (void)state;
    keyed("max: 10", RATE);
    assert_int_equal(weir_queue_open(&queue, world.w, 16), 0);
    assert_int_equal(take(of(ASK({"tokens", 10}), "a")), 0);
    assert_int_equal(weir_queue_submit(queue, world.pool,
                                       with_max_wait(of(ASK({"tokens", 5}), "a"), SECOND), 1, NULL,
                                       NULL),
                     0);
    assert_int_equal(weir_queue_reap(queue, &done, 1), 1);
    assert_int_equal(done.result, -EAGAIN);
    assert_int_equal(done.refusal.retry_after_ns, 5 * SECOND);
    weir_queue_close(queue);
    world_close();
}

static void a_reservation_is_one_key_s(void **state)
{
    weir_acquisition *reservation = NULL;
    uint64_t at = 0;

    (void)state;
    keyed("max: 10", RATE);
    assert_int_equal(take(of(ASK({"tokens", 10}), "a")), 0);
    assert_int_equal(reserve(of(ASK({"tokens", 2}), "a"), &reservation, &at), 0);
    assert_int_equal(at, world.now + 2 * SECOND);
    assert_int_equal(take(of(ASK({"tokens", 1}), "b")), 0);
    assert_int_equal(weir_update(reservation, "tokens", 0), 0);
    release(reservation);
    world.now += SECOND; /* one is there, but nothing is granted before the instant */
    assert_int_equal(take(of(ASK({"tokens", 1}), "a")), -EAGAIN);
    world.now += SECOND;
    assert_int_equal(take(of(ASK({"tokens", 2}), "a")), 0);
    world_close();
}

/* ---- definitions in code ---- */

static void a_set_in_code_can_be_keyed(void **state)
{
    struct weir_subjects_spec how = {.size = sizeof(how), .max = 5, .evict = "none"};
    struct weir_limit_spec limit = {
        .size = sizeof(limit), .type = WEIR_LIMIT_RESOURCE, .key = "slots", .capacity = 1};
    struct weir_set_spec set = {
        .size = sizeof(set), .name = "in code", .limits = &limit, .limits_n = 1, .subjects = &how};
    struct weir_pool_spec spec = {.size = sizeof(spec), .sets = &set, .sets_n = 1};
    struct weir_error error = {0};
    weir_pool *pool = NULL;
    struct weir_subjects_stats seen = {.size = sizeof(seen)};

    (void)state;
    world_limits(SLOTS);
    assert_int_equal(weir_pool_new(&pool, world.w, &spec, &error), 0);
    assert_int_equal(weir_set_subjects(weir_pool_set(pool, 0), &seen), 1);
    assert_true(seen.max == 5 && seen.memory_max == 0);
    assert_string_equal(seen.evict, "none");
    weir_pool_close(pool);
    set.name = "another";
    how.max = 0;
    assert_int_equal(weir_pool_new(&pool, world.w, &spec, &error), -EINVAL);
    assert_string_equal(error.message, "set `another`: `max` is missing: how many subjects the "
                                       "set may know at a time");
    how = (struct weir_subjects_spec){.size = sizeof(how), .max = 5, .evict = "all"};
    assert_int_equal(weir_pool_new(&pool, world.w, &spec, &error), -EINVAL);
    assert_string_equal(error.message,
                        "set `another`: `evict` takes oldest, random or none, not `all`");
    how.size = 1;
    assert_int_equal(weir_pool_new(&pool, world.w, &spec, &error), -EINVAL);
    world_close();
}

/* ---- without memory ---- */

/* What a few subjects do, whatever fails: afterwards nothing is held, and all can be had. */
static void work(void)
{
    for (uint64_t i = 0; i < 3; i++) {
        weir_acquisition *holder = NULL, *waiter = NULL;
        struct weir_request *request = of_number(ASK({"slots", 2}, {"tokens", 0}), &i);
        int r = try_acquire(request, &holder);

        assert_true(r == 0 || r == -ENOMEM);
        if (r == 0) {
            r = submit(request, &waiter);
            assert_true(r == 1 || r == -ENOMEM);
        }
        if (waiter)
            assert_int_equal(result(waiter), -EINPROGRESS);
        if (holder)
            release(holder);
        if (waiter) {
            assert_int_equal(result(waiter), 0);
            release(waiter);
        }
    }
}

static void a_lack_of_memory_takes_nothing(const char *limits)
{
    bool failed = true;

    for (uint64_t n = 1; failed; n++) {
        keyed("max: 10", limits);
        fake_os_fail_kind_at(n, FAKE_MEMORY, 0);
        work();
        failed = fake_os_has_failed();
        fake_os_fail_kind_at(0, 0, 0);
        work();
        assert_int_equal(stats().held, 0);
        assert_int_equal(stats().waiting, 0);
        for (uint64_t i = 0; i < 3; i++)
            release(granted(of_number(ASK({"slots", 2}, {"tokens", 0}), &i)));
        world_close();
    }
}

static void a_lack_of_memory_fails_cleanly(void **state)
{
    (void)state;
    a_lack_of_memory_takes_nothing(SLOTS);
    a_lack_of_memory_takes_nothing(BOTH);
}

static void a_keyed_set_is_made_whole_or_not_at_all(void **state)
{
    static const char text[] =
        "version: 1\nsets: { main: { subjects: { max: 10 }, limits: [ " SLOTS " ] } }\n";
    const struct weir_options options = {.size = sizeof(options), .text = text};
    bool failed = true;

    (void)state;
    for (uint64_t n = 1; failed; n++) {
        struct weir_error error = {0};
        weir *w = NULL;
        int r;

        fake_os_fail_kind_at(n, FAKE_MEMORY, 0);
        r = weir_open(&w, &options, &error);
        failed = fake_os_has_failed();
        fake_os_fail_kind_at(0, 0, 0);
        assert_true(r == 0 || (failed && r == -ENOMEM)); /* addresses may be fewer */
        weir_close(w);
    }
}

static void without_a_secret_there_is_no_keyed_set(void **state)
{
    static const char text[] =
        "version: 1\nsets: { main: { subjects: { max: 10 }, limits: [ " SLOTS " ] } }\n";
    const struct weir_options options = {.size = sizeof(options), .text = text};
    struct weir_error error = {0};
    weir *w = NULL;

    (void)state;
    fake_os_fail_kind_from(1, FAKE_RANDOM, 0);
    assert_int_equal(weir_open(&w, &options, &error), -EPERM);
    assert_non_null(strstr(error.message, "no table of 10 subjects can be created"));
    fake_os_fail_kind_at(0, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_keyed_set_asks_for_a_subject),
        leak_checked_test(a_private_table_has_its_memory_before_the_first_request),
        leak_checked_test(a_request_of_before_there_were_subjects_is_understood),
        leak_checked_test(a_set_that_is_not_keyed_ignores_subjects),
        leak_checked_test(subjects_are_bytes),
        leak_checked_test(one_key_word_is_enough_for_a_key),
        leak_checked_test(several_limits_have_a_set_of_their_own),
        leak_checked_test(many_keys_come_and_go_without_a_trace),
        leak_checked_test(without_eviction_a_new_key_of_a_word_is_refused),
        leak_checked_test(without_eviction_a_new_key_of_a_key_set_is_refused),
        leak_checked_test(keys_that_matter_give_way_where_the_configuration_says_so),
        leak_checked_test(the_oldest_give_way_first),
        leak_checked_test(holders_and_waiters_stay),
        leak_checked_test(a_key_that_does_not_begin_full_is_not_forgotten),
        leak_checked_test(a_forgotten_key_pays_all_the_same),
        leak_checked_test(an_algorithm_that_does_not_say_so_is_not_decided_by_the_word),
        leak_checked_test(a_release_that_breaks_the_word_breaks_the_set),
        leak_checked_test(a_refusal_for_ever_leaves_no_key),
        leak_checked_test(steps_and_windows_since_creation_are_counted_from_the_first_use),
        leak_checked_test(memory_bounds_the_keys),
        leak_checked_test(a_million_keys_take_no_more_than_32_bytes_each),
        leak_checked_test(each_key_has_a_wait_queue_of_its_own),
        leak_checked_test(max_waiters_holds_for_each_key),
        leak_checked_test(a_key_is_inline_again_after_its_wait_queue),
        leak_checked_test(timeouts_and_max_wait_are_kept_for_each_key),
        leak_checked_test(holders_and_waiters_are_listed_for_all_keys),
        leak_checked_test(closing_ends_the_wait_queues_of_all_keys),
        leak_checked_test(queues_serve_keys_of_any_kind),
        leak_checked_test(a_queue_tells_why_a_key_was_refused),
        leak_checked_test(a_reservation_is_one_key_s),
        leak_checked_test(a_set_in_code_can_be_keyed),
        leak_checked_test(without_a_secret_there_is_no_keyed_set),
        leak_checked_test(a_lack_of_memory_fails_cleanly),
        leak_checked_test(a_keyed_set_is_made_whole_or_not_at_all),
    };

    int failed = cmocka_run_group_tests_name("private", tests, NULL, NULL);

    shared = true;
    return failed + cmocka_run_group_tests_name("shared", tests, NULL, NULL);
}
