/* SPDX-License-Identifier: MIT */
/*
 * Several windows in one limit, against one reference for each: it grants what all of them grant,
 * and its ready_at is the first instant at which they do.
 *
 *     test_multi_window [--seed N]
 */
#include "cmocka_all.h"
#include "lib/random.h"
#include "model.h"
#include "subject.h"
#include <inttypes.h>
#include <stdio.h>

#define START   (12345 * SECOND + 678)
#define WINDOWS 5
#define GRANTS  8
#define LENGTH  150

static const struct {
    const char *name;
    uint64_t window_ns;
} kinds[WINDOWS] = {{"per_second", SECOND},
                    {"per_minute", 60 * SECOND},
                    {"per_hour", 3600 * SECOND},
                    {"per_day", DAY},
                    {"capacity", 0}};

static uint64_t rng, seed;

struct trial {
    struct subject subject;
    struct model windows[WINDOWS];
    size_t windows_n;
    uint64_t now, ready, most; /* most: the least capacity */
    struct model_grant grants[GRANTS];
};

/* Any of the windows, at least one. */
static void start(struct trial *trial)
{
    struct setting settings[WINDOWS + 3] = {{"segments", random_below(&rng, 4) * 7}};
    struct weir_reason reason = {sizeof(reason), 0, ""};
    size_t n = 1, must = random_below(&rng, WINDOWS);

    *trial = (struct trial){.now = START, .ready = START, .most = UINT64_MAX};
    for (size_t i = 0; i < WINDOWS; i++) {
        struct model *model = &trial->windows[trial->windows_n];

        if (i != must && random_chance(&rng, 50))
            continue;
        *model = (struct model){.kind = settings[0].value == 0 ? LOG : SEGMENTS,
                                .capacity = random_magnitude(&rng, 200),
                                .window = kinds[i].window_ns,
                                .segments = settings[0].value};
        if (model->window == 0)
            model->window = random_from(&rng, 1000, 100 * SECOND);
        if (kinds[i].window_ns == 0)
            settings[n++] = (struct setting){"window", model->window};
        settings[n++] = (struct setting){kinds[i].name, model->capacity};
        model->burst = model->initial = model->capacity;
        if (model->capacity < trial->most)
            trial->most = model->capacity;
        model_init(model, trial->now, 0);
        trial->windows_n++;
    }
    settings[n] = (struct setting){NULL, 0};
    if (subject_try(&trial->subject, "multi_window", settings, &reason) < 0)
        fail_msg("refused: %s", reason.message);
    subject_init(&trial->subject, trial->now);
    assert_int_equal(trial->subject.footprint.amount_max, trial->most);
    assert_true(subject_is_new(&trial->subject, trial->now));
}

static bool expected(const struct trial *trial, uint64_t at, uint64_t amount)
{
    for (size_t i = 0; i < trial->windows_n; i++)
        if (!model_grants(&trial->windows[i], at, 0, amount))
            return false;
    return true;
}

static void go(struct trial *trial)
{
    const struct model *model = &trial->windows[random_below(&rng, trial->windows_n)];

    switch (random_below(&rng, 6)) {
    case 0:
    case 1:
        break;
    case 2:
        trial->now += random_below(&rng, model->window / model->capacity + 2);
        break;
    case 3:
        trial->now += model->window - random_below(&rng, 2);
        break;
    case 4:
        if (trial->ready > trial->now && trial->ready < WEIR_CLOCK_MAX)
            trial->now = trial->ready - random_below(&rng, 2);
        break;
    default:
        trial->now += random_magnitude(&rng, DAY);
    }
}

static void request(struct trial *trial)
{
    uint64_t amount = random_magnitude(&rng, trial->most + trial->most / 8), ready;

    if (random_chance(&rng, 30))
        amount = subject_available(&trial->subject, trial->now) + random_below(&rng, 2);
    if (amount == 0)
        return;
    ready = subject_ready_at(&trial->subject, trial->now, amount);
    if (amount > trial->most) {
        assert_true(ready == WEIR_NEVER);
        return;
    }
    assert_true(ready >= trial->now && ready < WEIR_BLOCKED);
    assert_true(expected(trial, ready, amount));
    if (ready > trial->now) {
        assert_false(expected(trial, ready - 1, amount));
        trial->ready = ready;
        return;
    }
    subject_take(&trial->subject, trial->now, amount);
    for (size_t i = 0; i < trial->windows_n; i++)
        model_take(&trial->windows[i], trial->now, 0, amount);
    assert_false(subject_is_new(&trial->subject, trial->now));
    trial->grants[random_below(&rng, GRANTS)] = (struct model_grant){trial->now, amount, 0};
}

static void refund(struct trial *trial)
{
    struct model_grant *grant = &trial->grants[random_below(&rng, GRANTS)];

    if (grant->amount == 0)
        return;
    if (random_chance(&rng, 50))
        subject_refund(&trial->subject, trial->now, grant->amount, grant->instant);
    else
        subject_refund_strictly(&trial->subject, trial->now, grant->amount, grant->instant);
    for (size_t i = 0; i < trial->windows_n; i++)
        model_refund(&trial->windows[i], trial->now, 0, grant->amount, grant->instant);
    grant->amount = 0;
}

static void check_available(struct trial *trial)
{
    uint64_t most = subject_available(&trial->subject, trial->now);

    assert_true(most <= trial->most);
    assert_true(most == 0 || expected(trial, trial->now, most));
    assert_true(most == trial->most || !expected(trial, trial->now, most + 1));
}

static void test_against_one_reference_for_each(void **state)
{
    static struct trial trial;
    uint64_t operations = random_operations(40000);

    (void)state;
    for (uint64_t number = 0, done = 0; done < operations; number++, done += LENGTH) {
        rng = random_case(seed, number);
        start(&trial);
        for (int i = 0; i < LENGTH; i++) {
            go(&trial);
            if (random_chance(&rng, 75))
                request(&trial);
            else if (random_chance(&rng, 60))
                refund(&trial);
            else
                check_available(&trial);
            assert_int_equal(subject_check(&trial.subject), 0);
        }
        for (size_t i = 0; i < trial.windows_n; i++)
            model_free(&trial.windows[i]);
        subject_free(&trial.subject);
    }
}

static void test_the_tightest_window_decides(void **state)
{
    struct subject subject;
    uint64_t now = START;

    (void)state;
    SUBJECT(&subject, now, "multi_window", {"segments", 0}, {"per_second", 10}, {"per_minute", 25},
            {"per_day", 40});
    for (int i = 0; i < 2; i++, now += SECOND) {
        assert_true(subject_request(&subject, now, 10));
        assert_int_equal(subject_ready_at(&subject, now, 1), now + SECOND);
    }
    assert_true(subject_request(&subject, now, 5));
    assert_int_equal(subject_ready_at(&subject, now, 1), START + 60 * SECOND);
    now = START + 61 * SECOND;
    assert_true(subject_request(&subject, now, 10));
    assert_int_equal(subject_available(&subject, now + SECOND), 5);
    assert_true(subject_request(&subject, now + SECOND, 5));
    assert_int_equal(subject_ready_at(&subject, now + SECOND, 1), START + DAY);
    subject_free(&subject);
}

static void test_windows_that_stay_keep_their_counts(void **state)
{
    struct subject old, new;

    (void)state;
    SUBJECT(&old, START, "multi_window", {"per_second", 10}, {"per_minute", 20});
    SUBJECT(&new, 0, "multi_window", {"per_minute", 15}, {"per_day", 100});
    assert_true(subject_request(&old, START, 9));
    subject_reconfigure(&new, &old, START + 2 * SECOND);
    assert_int_equal(subject_available(&new, START + 2 * SECOND), 6);
    subject_free(&old);
    subject_free(&new);
}

static void test_settings_that_say_nothing(void **state)
{
    (void)state;
    REFUSED("multi_window", "per_second", "at least one window", {"segments", 5});
    REFUSED("multi_window", "capacity", "come together", {"capacity", 5}, {"per_day", 1});
    REFUSED("multi_window", "window", "come together", {"window", SECOND}, {"per_day", 1});
    REFUSED("multi_window", "per_day", "set segments", {"per_day", 1000000000}, {"segments", 0});
}

/* Explains what was going on if a test ends early. */
static int explain(void **state)
{
    (void)state;
    printf("--seed %" PRIu64 "\n", seed);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_against_one_reference_for_each, explain),
        cmocka_unit_test(test_the_tightest_window_decides),
        cmocka_unit_test(test_windows_that_stay_keep_their_counts),
        cmocka_unit_test(test_settings_that_say_nothing),
    };

    seed = random_seed_of(argc, argv);
    printf("--seed %" PRIu64 "\n", seed);
    fflush(stdout);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
