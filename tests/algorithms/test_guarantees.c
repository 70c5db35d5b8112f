/* SPDX-License-Identifier: MIT */
/*
 * What users rely on, seen from outside: only the log of what was granted and refunded is looked
 * at, over random histories of greedy requests that come as soon as they are promised. With strict
 * refunds it says what was used: what was granted at each instant, less all that was ever refunded
 * of it.
 *
 *     test_guarantees [--seed N]
 */
#include "cmocka_all.h"
#include "lib/random.h"
#include "subject.h"
#include "wide.h"
#include <inttypes.h>
#include <stdio.h>

#define EVENTS 120

struct event {
    uint64_t instant;
    uint64_t granted, refunded; /* one of them is 0 */
};

struct history {
    uint64_t capacity, window, burst;
    struct event events[EVENTS];
    size_t n;
};

static uint64_t rng;
static struct history history;

static void record(uint64_t instant, uint64_t granted, uint64_t refunded)
{
    history.events[history.n++] = (struct event){instant, granted, refunded};
}

/* Refunds some of any grant so far strictly, and forgets that it was granted. */
static void refund_strictly(struct subject *subject, uint64_t now)
{
    struct event *grant = &history.events[random_below(&rng, history.n)];
    if (grant->granted == 0)
        return;
    uint64_t back = random_chance(&rng, 50) ? grant->granted : random_from(&rng, 1, grant->granted);
    subject_refund_strictly(subject, now, back, grant->instant);
    grant->granted -= back;
}

/* How long to wait before a refund: not at all, a little, or until what was granted is back. */
static uint64_t any_pause(void)
{
    uint64_t unit = history.window / history.capacity + 1;
    switch (random_below(&rng, 3)) {
    case 0:
        return 0;
    case 1:
        return random_below(&rng, 3 * unit);
    default:
        return random_below(&rng, 2 * unit * (history.burst < 1000 ? history.burst : 1000) + 1);
    }
}

/* As play(), with strict refunds of recent and old grants, some of them one after another. */
static void play_strictly(struct subject *subject, uint64_t now)
{
    uint64_t all = subject->footprint.amount_max;
    history.n = 0;
    while (history.n < EVENTS) {
        uint64_t most = random_chance(&rng, 50) && all > 3 ? 3 : all;
        uint64_t amount = random_chance(&rng, 30) ? most : random_from(&rng, 1, most);
        now = subject_ready_at(subject, now, amount);
        assert_true(subject_request(subject, now, amount));
        record(now, amount, 0);
        if (random_chance(&rng, 50))
            now += any_pause();
        while (random_chance(&rng, 50))
            refund_strictly(subject, now);
    }
}

/* Asks for random amounts at the very instants they are promised for, now and then later. */
static void play(struct subject *subject, uint64_t now, bool refunds)
{
    history.n = 0;
    while (history.n < EVENTS) {
        uint64_t most = random_chance(&rng, 70) ? 3 : subject->footprint.amount_max;
        uint64_t amount = random_from(
            &rng, 1, most < subject->footprint.amount_max ? most : subject->footprint.amount_max);
        now = subject_ready_at(subject, now, amount);
        if (random_chance(&rng, 10))
            now += random_below(&rng, 2 * history.window);
        assert_true(subject_request(subject, now, amount));
        record(now, amount, 0);
        if (refunds && history.n < EVENTS && random_chance(&rng, 20)) {
            uint64_t granted = now, back = random_from(&rng, 1, amount);
            now += random_below(&rng, history.window / 4 + 1);
            subject_refund(subject, now, back, granted);
            record(now, 0, back);
        }
    }
}

static void choose(void)
{
    history.capacity = random_magnitude(&rng, 1000);
    history.window = random_magnitude(&rng, random_chance(&rng, 50) ? 1000 : DAY);
    history.burst = history.capacity;
}

/* In any [a, b], granted ≤ B + r · (b - a) + what was refunded in [a, b]. */
static void check_bucket(void)
{
    for (size_t a = 0; a < history.n; a++) {
        u128 granted = 0, allowed = history.burst;
        for (size_t b = a; b < history.n; b++) {
            granted += history.events[b].granted;
            allowed += history.events[b].refunded;
            u128 time = history.events[b].instant - history.events[a].instant;
            assert_true(granted * history.window <=
                        allowed * history.window + time * history.capacity);
        }
    }
}

static void test_buckets(void **state)
{
    (void)state;
    static const char *const names[] = {"token_bucket", "gcra", "leaky_bucket"};
    for (uint64_t i = 0; i < random_operations(500000) / EVENTS; i++) {
        const char *name = names[random_below(&rng, 3)];
        struct subject subject;
        choose();
        bool wide = name != names[2] && random_chance(&rng, 50);
        if (wide)
            history.burst = random_magnitude(&rng, 1000);
        SUBJECT(&subject, SECOND, name, {"capacity", history.capacity}, {"window", history.window},
                {wide ? "burst" : NULL, history.burst});
        play(&subject, SECOND, random_chance(&rng, 50));
        check_bucket();
        subject_free(&subject);
    }
}

/* 10 are granted, and come back once the bucket is full again: then as much more can be used at one
 * instant as was refunded, but nothing with strict refunds. */
static void test_the_bound_of_plain_refunds_is_reached(void **state)
{
    static const char *const names[] = {"token_bucket", "gcra", "leaky_bucket"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        for (int strict = 0; strict < 2; strict++) {
            struct subject subject;
            uint64_t now = SECOND;
            SUBJECT(&subject, now, names[i], {"capacity", 25}, {"window", SECOND});
            assert_true(subject_request(&subject, now, 10));
            now += 400 * MS;
            assert_true(subject_request(&subject, now, 25));
            if (strict)
                subject_refund_strictly(&subject, now, 10, SECOND);
            else
                subject_refund(&subject, now, 10, SECOND);
            assert_int_equal(subject_available(&subject, now), strict ? 0 : 10);
            subject_free(&subject);
        }
    }
}

/* In any [a, b], what was used ≤ B + r · (b - a). */
static void test_strict_refunds_of_buckets(void **state)
{
    static const char *const names[] = {"token_bucket", "gcra", "leaky_bucket"};
    (void)state;
    for (uint64_t i = 0; i < random_operations(500000) / EVENTS; i++) {
        const char *name = names[random_below(&rng, 3)];
        struct subject subject;
        choose();
        if (random_chance(&rng, 30)) /* one word, of gcra */
            history.window = history.capacity * random_magnitude(&rng, 1000);
        bool has_burst = name != names[2] && random_chance(&rng, 50);
        if (has_burst)
            history.burst = random_magnitude(&rng, 1000);
        SUBJECT(&subject, SECOND, name, {"capacity", history.capacity}, {"window", history.window},
                {has_burst ? "burst" : NULL, history.burst});
        play_strictly(&subject, SECOND);
        check_bucket();
        subject_free(&subject);
    }
}

/* In any [a, b], what was used ≤ B + what the steps in (a, b] bring. */
static void check_steps(uint64_t created, uint64_t every, uint64_t step)
{
    for (size_t a = 0; a < history.n; a++) {
        u128 used = 0, before = (history.events[a].instant - created) / every;
        for (size_t b = a; b < history.n; b++) {
            used += history.events[b].granted;
            u128 steps = (history.events[b].instant - created) / every - before;
            assert_true(used <= history.burst + steps * step);
        }
    }
}

static void test_strict_refunds_of_steps(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < random_operations(500000) / EVENTS; i++) {
        struct subject subject;
        uint64_t step = random_magnitude(&rng, 100), every = random_magnitude(&rng, 1000);
        history.capacity = step * random_magnitude(&rng, 10);
        history.window = history.capacity / step * every;
        history.burst = random_magnitude(&rng, 300);
        SUBJECT(&subject, SECOND, "token_bucket", {"capacity", history.capacity},
                {"window", history.window}, {"burst", history.burst}, {"every", every});
        play_strictly(&subject, SECOND);
        check_steps(SECOND, every, step);
        subject_free(&subject);
    }
}

/* In any (t - W, t], granted ≤ C. */
static void check_sliding(void)
{
    for (size_t b = 0; b < history.n; b++) {
        uint64_t granted = 0;
        for (size_t a = 0; a <= b; a++)
            if (history.events[a].instant + history.window > history.events[b].instant)
                granted += history.events[a].granted - history.events[a].refunded;
        assert_true(granted <= history.capacity);
    }
}

static void test_sliding_windows(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < random_operations(500000) / EVENTS; i++) {
        struct subject subject;
        choose();
        uint64_t segments = random_chance(&rng, 50) ? random_magnitude(&rng, 30) : 0;
        if (segments > history.window)
            segments = 0;
        SUBJECT(&subject, SECOND, "sliding_window", {"capacity", history.capacity},
                {"window", history.window}, {"segments", segments});
        if (random_chance(&rng, 50))
            play_strictly(&subject, SECOND);
        else
            play(&subject, SECOND, false);
        check_sliding();
        subject_free(&subject);
    }
}

/* Which window an instant lies in; `start` is that of the window before, for first_use. */
static uint64_t window_of(uint64_t anchor, uint64_t instant, uint64_t created, uint64_t start)
{
    if (anchor == 0)
        return instant - start >= history.window ? instant : start;
    return (instant - (anchor == 1 ? created : 0)) / history.window;
}

static void check_fixed(uint64_t anchor, uint64_t created)
{
    uint64_t window = anchor == 0 ? history.events[0].instant : 0, granted = 0;
    for (size_t i = 0; i < history.n; i++) {
        uint64_t next = window_of(anchor, history.events[i].instant, created, window);
        granted = (next == window ? granted : 0) + history.events[i].granted;
        window = next;
        assert_true(granted <= history.capacity);
    }
}

static void test_fixed_windows(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < random_operations(500000) / EVENTS; i++) {
        struct subject subject;
        uint64_t anchor = random_below(&rng, 3), created = random_magnitude(&rng, YEAR);
        choose();
        SUBJECT(&subject, created, "fixed_window", {"capacity", history.capacity},
                {"window", history.window}, {"anchor", anchor});
        if (random_chance(&rng, 50))
            play_strictly(&subject, created);
        else
            play(&subject, created, false);
        check_fixed(anchor, created);
        subject_free(&subject);
    }
}

/* The k-th unit leaves no earlier than first + (k - 1) · W/C, counted from any grant on; an
 * instant is seen as a whole ns, so less than one is forgiven except from the very first. */
static void check_queue(void)
{
    for (size_t a = 0; a < history.n; a++) {
        u128 before = 0;
        for (size_t b = a; b < history.n; b++) {
            u128 time = history.events[b].instant - history.events[a].instant + (a != 0);
            u128 reach = time * history.capacity;
            assert_true(reach >= before * history.window);
            before += history.events[b].granted;
        }
    }
}

static void test_queues(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < random_operations(500000) / EVENTS; i++) {
        struct subject subject;
        choose();
        SUBJECT(&subject, SECOND, "leaky_bucket", {"capacity", history.capacity},
                {"window", history.window}, {"mode", 1});
        if (random_chance(&rng, 50))
            play_strictly(&subject, SECOND);
        else
            play(&subject, SECOND, false);
        check_queue();
        subject_free(&subject);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_the_bound_of_plain_refunds_is_reached),
        cmocka_unit_test(test_strict_refunds_of_buckets),
        cmocka_unit_test(test_strict_refunds_of_steps),
        cmocka_unit_test(test_sliding_windows),
        cmocka_unit_test(test_fixed_windows),
        cmocka_unit_test(test_queues),
    };
    rng = random_seed_of(argc, argv);
    printf("--seed %" PRIu64 "\n", rng);
    fflush(stdout);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
