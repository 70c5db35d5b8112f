/* SPDX-License-Identifier: MIT */
/*
 * Corrupt states: `check` refuses what would do harm and what plainly cannot be; what it accepts,
 * whatever the bytes are, never makes a call crash, go on for ever or write elsewhere. True states
 * are always accepted.
 *
 *     test_check [--seed N]
 */
#include "cmocka_all.h"
#include "lib/random.h"
#include "subject.h"
#include <inttypes.h>
#include <stdio.h>

#define START      (12345 * SECOND + 678)
#define AMOUNT_MAX ((UINT64_C(1) << 63) - 1)
#define WINDOW_MAX (UINT64_C(1) << 62)
#define UNITS_MAX  ((UINT64_C(1) << 31) - 1)

static uint64_t rng;

struct kind {
    const char *algorithm;
    struct setting settings[4];
};

/* Every form of state, and the ends of what may be configured. */
static const struct kind kinds[] = {
    {"token_bucket", {{"capacity", 40}, {"window", SECOND}}},
    {"token_bucket", {{"capacity", 3}, {"window", 70 * SECOND}, {"burst", 7}}},
    {"token_bucket", {{"capacity", 50}, {"window", SECOND}, {"every", SECOND / 50}}},
    {"token_bucket", {{"capacity", 6}, {"window", SECOND}, {"every", SECOND / 2}}},
    {"token_bucket", {{"capacity", AMOUNT_MAX}, {"window", WINDOW_MAX}}},
    {"token_bucket", {{"capacity", AMOUNT_MAX}, {"window", 1}, {"every", WINDOW_MAX}}},
    {"gcra", {{"capacity", 100}, {"window", 60 * SECOND}}}, /* one word */
    {"gcra", {{"capacity", 7}, {"window", SECOND}}},
    {"gcra", {{"capacity", AMOUNT_MAX}, {"window", 1}}},
    {"gcra", {{"capacity", 1}, {"window", WINDOW_MAX}, {"burst", AMOUNT_MAX}}},
    {"leaky_bucket", {{"capacity", 100}, {"window", 60 * SECOND}}},
    {"leaky_bucket", {{"capacity", 7}, {"window", SECOND}, {"mode", 1}}},
    {"leaky_bucket", {{"capacity", AMOUNT_MAX}, {"window", WINDOW_MAX}, {"mode", 1}}},
    {"sliding_window", {{"capacity", 1}, {"window", SECOND}}},
    {"sliding_window", {{"capacity", 5}, {"window", SECOND}}},
    {"sliding_window", {{"capacity", AMOUNT_MAX}, {"window", 30}}},
    {"sliding_window", {{"capacity", 200}, {"window", DAY}, {"segments", 7}}},
    {"sliding_window", {{"capacity", AMOUNT_MAX}, {"window", WINDOW_MAX}, {"segments", 12}}},
    {"multi_window", {{"per_second", 3}, {"per_minute", 5}, {"segments", 4}}},
    {"multi_window", {{"capacity", 9}, {"window", 30}, {"per_day", 5}, {"segments", 0}}},
    {"fixed_window", {{"capacity", 5}, {"window", SECOND}, {"anchor", 0}}},
    {"fixed_window", {{"capacity", 5}, {"window", SECOND}, {"anchor", 1}}},
    {"fixed_window", {{"capacity", 5}, {"window", SECOND}, {"anchor", 2}}},
    {"fixed_window", {{"capacity", AMOUNT_MAX}, {"window", WINDOW_MAX}, {"anchor", 1}}},
    {"fixed_window", {{"capacity", AMOUNT_MAX}, {"window", 1}, {"anchor", 2}}},
    {"calendar", {{"capacity", 5}, {"period", 0}}},
    {"calendar", {{"capacity", AMOUNT_MAX}, {"period", 2}}},
    {"aimd", {{"capacity", 100}, {"timeout", SECOND}}},
    {"aimd", {{"capacity", UNITS_MAX}, {"increase", UNITS_MAX}, {"initial", UNITS_MAX}}},
    {"gradient2", {{"capacity", 100}, {"window", SECOND / 10}}},
    {"gradient2", {{"capacity", UNITS_MAX}, {"window", 1}, {"floor", 1000}}},
    {"gradient2", {{"capacity", 1}, {"window", WINDOW_MAX}, {"tolerance", 1000}}},
    {"vegas", {{"capacity", 100}, {"window", SECOND / 10}}},
    {"vegas", {{"capacity", UNITS_MAX}, {"window", 1}, {"probe", 1}}},
};
enum { PLUGIN_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static size_t words_of(const struct subject *subject)
{
    return subject->footprint.state / 8;
}

/* Of an amount that may be held or not, after any time. */
static struct weir_release any_release(uint64_t now, uint64_t most)
{
    return (struct weir_release){.size = sizeof(struct weir_release),
                                 .amount = random_magnitude(&rng, most),
                                 .granted_ns = random_next(&rng) % (now | 1),
                                 .latency_ns = random_magnitude(&rng, UINT64_MAX),
                                 .outcome = (uint32_t)random_below(&rng, 7)};
}

/* A true state with some history. */
static void begin(struct subject *subject, const struct kind *kind, uint64_t *ret_now)
{
    uint64_t now = START, step = kind->settings[1].value / 8 + 1;
    SUBJECT(subject, now, kind->algorithm, kind->settings[0], kind->settings[1], kind->settings[2],
            kind->settings[3]);
    for (uint64_t n = random_below(&rng, 12); n > 0; n--) {
        uint64_t most = subject->footprint.amount_max;
        subject_request(subject, now, random_magnitude(&rng, most / 4 + 1));
        now += random_below(&rng, step);
        if (subject->ops->release && random_chance(&rng, 80))
            subject_release(subject, now, any_release(now, most));
    }
    assert_int_equal(subject_check(subject), 0);
    *ret_now = now;
}

/* Any instant, or one near those of the state. */
static uint64_t any_instant(uint64_t near)
{
    static const uint64_t ends[] = {0, 1, WEIR_INSTANT_MAX - 1, WEIR_INSTANT_MAX};
    switch (random_below(&rng, 4)) {
    case 0:
        return ends[random_below(&rng, sizeof(ends) / sizeof(ends[0]))];
    case 1:
        return random_next(&rng) >> random_from(&rng, 1, 63);
    default:
        return near - START / 2 + random_below(&rng, START);
    }
}

/* All that the core may do with a state that was checked, and some that it would not. */
static void use(struct subject *subject, uint64_t near)
{
    uint64_t most = subject->footprint.amount_max;
    for (int i = 0; i < 12; i++) {
        uint64_t now = any_instant(near), amount = random_magnitude(&rng, most);
        if (random_chance(&rng, 30))
            subject->wall_offset_ns = (int64_t)random_next(&rng);
        uint64_t ready = subject_ready_at(subject, now, amount);
        assert_true(ready >= now);
        assert_true(subject_available(subject, now) <= most);
        if (ready == now || random_chance(&rng, 10))
            subject_take(subject, now, amount);
        if (subject->ops->release && random_chance(&rng, 80))
            subject_release(subject, now, any_release(now, most));
        if (subject->ops->refund && random_chance(&rng, 50))
            subject_refund(subject, now, amount, random_chance(&rng, 50) ? now : any_instant(near));
        if (subject->ops->refund && random_chance(&rng, 50))
            subject_refund_strictly(subject, now, amount,
                                    random_chance(&rng, 50) ? now : any_instant(near));
        if (subject->ops->charge && random_chance(&rng, 30))
            subject_charge(subject, now, random_magnitude(&rng, UINT64_MAX));
    }
}

static void carry_over(const struct subject *subject, const struct kind *kind, uint64_t now)
{
    struct subject other;
    struct weir_instant at = {.now_ns = now};
    SUBJECT(&other, START, kind->algorithm, {kind->settings[0].name, random_magnitude(&rng, 9)},
            {kind->settings[1].name, random_magnitude(&rng, DAY) % UNITS_MAX + 1});
    memset(other.state, 0, other.footprint.state);
    other.ops->reconfigure(subject->config, subject->state, other.config, other.state, &at);
    subject_free(&other);
}

/* Uses the state if it is accepted. True: it was. */
static bool try_state(struct subject *subject, const struct kind *kind, uint64_t now)
{
    int checked = subject_check(subject);
    if (checked != 0) {
        assert_int_equal(checked, -1);
        return false;
    }
    if (random_chance(&rng, 10))
        carry_over(subject, kind, now);
    use(subject, now);
    return true;
}

static void test_every_bit(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < PLUGIN_KINDS; i++) {
            uint64_t now, saved[128];
            struct subject subject;
            begin(&subject, &kinds[i], &now);
            size_t words = words_of(&subject);
            assert_in_range(words, 1, sizeof(saved) / sizeof(saved[0]));
            memcpy(saved, subject.state, subject.footprint.state);
            for (size_t bit = 0; bit < 64 * words; bit++) {
                memcpy(subject.state, saved, subject.footprint.state);
                subject.state[bit / 64] ^= UINT64_C(1) << bit % 64;
                try_state(&subject, &kinds[i], now);
            }
            subject_free(&subject);
        }
    }
}

/* Bytes that may look like a state: noise, all of one value, or a true state with words changed. */
static void corrupt(struct subject *subject)
{
    static const uint64_t values[] = {
        0, 1, 5, 6, 29, 30, 31, UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 63, UINT64_C(1) << 62};
    size_t words = words_of(subject), values_n = sizeof(values) / sizeof(values[0]);
    uint64_t kind = random_below(&rng, 5), value = values[random_below(&rng, values_n)];
    for (size_t i = 0; i < words; i++) {
        if (kind == 0)
            subject->state[i] = random_next(&rng) >> random_below(&rng, 64);
        else if (kind == 1)
            subject->state[i] = value;
        else if (kind == 2 && random_below(&rng, words) < 2)
            subject->state[i] = values[random_below(&rng, values_n)];
        else if (random_below(&rng, words) < 2)
            subject->state[i] += random_next(&rng) >> random_below(&rng, 64);
    }
}

static void test_noise(void **state)
{
    uint64_t accepted[PLUGIN_KINDS] = {0}, rejected[PLUGIN_KINDS] = {0};
    uint64_t rounds = random_operations(100000);
    (void)state;
    for (uint64_t i = 0; i < rounds; i++) {
        size_t at = i % PLUGIN_KINDS;
        struct subject subject;
        uint64_t now;
        begin(&subject, &kinds[at], &now);
        corrupt(&subject);
        if (try_state(&subject, &kinds[at], now))
            accepted[at]++;
        else
            rejected[at]++;
        subject_free(&subject);
    }
    for (size_t i = 0; i < PLUGIN_KINDS && rounds >= 1000; i++) {
        assert_true(accepted[i] > 0);
        assert_true(rejected[i] > 0);
    }
}

/* One word of a true state is that much more, and it cannot be one any more. */
static void test_what_cannot_be(void **state)
{
    static const struct {
        struct kind kind;
        size_t word;
        uint64_t more;
    } rows[] = {
        {{"token_bucket", {{"capacity", 4}, {"window", SECOND}}}, 1, 1},            /* missing */
        {{"token_bucket", {{"capacity", 4}, {"window", SECOND}}}, 2, UINT64_MAX},   /* last */
        {{"token_bucket", {{"capacity", 4}, {"window", SECOND}}}, 3, 1},            /* created */
        {{"gcra", {{"capacity", 4}, {"window", SECOND}}}, 0, UINT64_C(1) << 63},    /* top bit */
        {{"gcra", {{"capacity", 7}, {"window", SECOND}}}, 1, 1},                    /* tat */
        {{"leaky_bucket", {{"capacity", 4}, {"window", SECOND}}}, 1, 1},            /* empty */
        {{"leaky_bucket", {{"capacity", 4}, {"window", SECOND}}}, 3, 1},            /* granted */
        {{"sliding_window", {{"capacity", 4}, {"window", SECOND}}}, 0, UINT64_MAX}, /* last */
        {{"sliding_window", {{"capacity", 4}, {"window", SECOND}}}, 1, 2},          /* before */
        {{"sliding_window", {{"capacity", 4}, {"window", SECOND}}}, 2, 4},          /* head */
        {{"sliding_window", {{"capacity", 4}, {"window", SECOND}}}, 3, 4},          /* count */
        {{"sliding_window", {{"capacity", 4}, {"window", SECOND}}}, 4, 1},          /* instant */
        {{"sliding_window", {{"capacity", 4}, {"window", SECOND}}}, 5, UINT64_MAX - 1}, /* sum */
        {{"fixed_window", {{"capacity", 4}, {"window", SECOND}}}, 0, 1},          /* created */
        {{"fixed_window", {{"capacity", 4}, {"window", SECOND}}}, 1, 1},          /* start */
        {{"fixed_window", {{"capacity", 4}, {"window", SECOND}}}, 2, 1},          /* number */
        {{"fixed_window", {{"capacity", 4}, {"window", SECOND}}}, 3, AMOUNT_MAX}, /* count */
        {{"fixed_window", {{"capacity", 4}, {"window", SECOND}}}, 4, UINT64_MAX}, /* last */
        {{"calendar", {{"capacity", 4}, {"period", 1}}}, 0, 2},                   /* start */
        {{"calendar", {{"capacity", 4}, {"period", 1}}}, 1, 1 << 21},             /* number */
        {{"calendar", {{"capacity", 4}, {"period", 1}}}, 2, AMOUNT_MAX},          /* count */
        {{"aimd", {{"capacity", 4}, {"timeout", SECOND}}}, 0, UNITS_MAX},         /* held */
        {{"aimd", {{"capacity", 4}, {"timeout", SECOND}}}, 1, 1},                 /* limit */
        {{"aimd", {{"capacity", 4}, {"timeout", SECOND}}}, 1, UINT64_MAX << 18},  /* limit */
        {{"aimd", {{"capacity", 4}, {"timeout", SECOND}}}, 2, 5},                 /* grace */
        {{"gradient2", {{"capacity", 4}, {"window", SECOND}}}, 1, 1},             /* limit */
        {{"gradient2", {{"capacity", 4}, {"window", SECOND}}}, 2, 1 << 21},       /* samples */
        {{"gradient2", {{"capacity", 4}, {"window", SECOND}}}, 3, 1},             /* sum */
        {{"gradient2", {{"capacity", 4}, {"window", SECOND}}}, 5, 1 << 21},       /* overloads */
        {{"gradient2", {{"capacity", 4}, {"window", SECOND}}}, 7, 3},             /* phase */
        {{"gradient2", {{"capacity", 4}, {"window", SECOND}}}, 11, UINT64_MAX},   /* usual */
        {{"gradient2", {{"capacity", 4}, {"window", SECOND}}}, 12, 11},           /* usual_n */
        {{"vegas", {{"capacity", 4}, {"window", SECOND}}}, 7, 3},                 /* phase */
        {{"vegas", {{"capacity", 4}, {"window", SECOND}}}, 11, UINT64_MAX},       /* base */
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct subject subject;
        SUBJECT(&subject, START, rows[i].kind.algorithm, rows[i].kind.settings[0],
                rows[i].kind.settings[1]);
        assert_true(subject_request(&subject, START, 1));
        assert_int_equal(subject_check(&subject), 0);
        subject.state[rows[i].word] += rows[i].more;
        if (subject_check(&subject) != -1)
            fail_msg("row %zu: %s accepts it", i, rows[i].kind.algorithm);
        subject_free(&subject);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_bit),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_what_cannot_be),
    };
    rng = random_seed_of(argc, argv);
    printf("--seed %" PRIu64 "\n", rng);
    fflush(stdout);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
