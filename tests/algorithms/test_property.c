/* SPDX-License-Identifier: MIT */
/*
 * An algorithm against the reference: random configurations from one unit per century to billions
 * per nanosecond, random requests, refunds, charges, and clocks that stand, creep, jump far ahead
 * and back. Every decision, every ready_at, try_take and available is compared.
 *
 *     test_property ALGORITHM [--seed N]
 */
#include "cmocka_all.h"
#include "lib/random.h"
#include "model.h"
#include "subject.h"
#include <inttypes.h>
#include <stdio.h>

#define AMOUNT_MAX   ((UINT64_C(1) << 63) - 1)
#define WINDOW_MAX   (UINT64_C(1) << 62)
#define GRANTS       16
#define CASE_LENGTH  160
#define LOG_CAPACITY 300 /* of the exact log: keeps the reference fast */

static const char *algorithm;
static uint64_t rng;

enum { PLUGIN_KINDS = EPOCH + 1 };
static uint64_t forgotten[PLUGIN_KINDS]; /* by kind */
static bool had[PLUGIN_KINDS];

struct trial {
    struct model model;
    struct subject subject;
    struct subject twin; /* of gcra: a token_bucket, which must decide alike */
    bool has_twin, is_word;
    bool charges;
    bool forgets;        /* what is as new; then no clock goes back, which is noticed */
    uint64_t now, ready; /* ready: the last one that lay ahead */
    struct model_grant grants[GRANTS];
    uint64_t operation;
    unsigned at_end; /* operations at the last instant there is: see end_of_time() */
};

static uint64_t any_capacity(void)
{
    static const uint64_t usual[] = {1, 2, 3, 10, 100, 3000, 90000, 999983, 1000000000, AMOUNT_MAX};
    if (random_chance(&rng, 40))
        return usual[random_below(&rng, sizeof(usual) / sizeof(usual[0]))];
    return random_magnitude(&rng, random_chance(&rng, 50) ? 1000 : AMOUNT_MAX);
}

static uint64_t any_window(void)
{
    static const uint64_t usual[] = {1,   2,    1000,       SECOND,    60 * SECOND, 3600 * SECOND,
                                     DAY, YEAR, 100 * YEAR, WINDOW_MAX};
    if (random_chance(&rng, 40))
        return usual[random_below(&rng, sizeof(usual) / sizeof(usual[0]))];
    return random_magnitude(&rng, random_chance(&rng, 50) ? 1000 : WINDOW_MAX);
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    return b == 0 ? a : gcd(b, a % b);
}

/* By the day and in UTC, it decides as a fixed window of the epoch does. */
static bool is_calendar(void)
{
    return strcmp(algorithm, "calendar") == 0;
}

/* The kind of limit, of those the algorithm has. */
static enum model_kind any_kind(void)
{
    if (strcmp(algorithm, "token_bucket") == 0)
        return random_chance(&rng, 70) ? BUCKET : STEPS;
    if (strcmp(algorithm, "gcra") == 0)
        return BUCKET;
    if (strcmp(algorithm, "leaky_bucket") == 0)
        return random_chance(&rng, 50) ? METER : QUEUE;
    if (strcmp(algorithm, "sliding_window") == 0)
        return random_chance(&rng, 50) ? LOG : SEGMENTS;
    if (is_calendar())
        return EPOCH;
    return FIRST_USE + (enum model_kind)random_below(&rng, 3);
}

static void choose(struct model *model)
{
    model->kind = any_kind();
    model->capacity = any_capacity();
    model->window = is_calendar() ? DAY : any_window();
    if (model->kind == LOG && model->window > LOG_CAPACITY)
        model->capacity = model->capacity % LOG_CAPACITY + 1;
    model->burst = model->capacity;
    if (model->kind <= STEPS && random_chance(&rng, 50))
        model->burst = any_capacity();
    model->strict = random_chance(&rng, 50);
    model->initial = model->burst;
    if (model->kind != QUEUE && random_chance(&rng, 30))
        model->initial = random_from(&rng, 0, model->burst);
    if (model->kind == STEPS) {
        uint64_t least = model->window / gcd(model->window, model->capacity);
        uint64_t most = WINDOW_MAX / least;
        model->every = least * random_magnitude(&rng, most < 50 ? most : 50);
    }
    if (model->kind == SEGMENTS)
        model->segments = random_magnitude(&rng, model->window < 200 ? model->window : 200);
}

/* The settings that make the algorithm what the model is; room for 6. */
static void settings_of(const struct model *model, struct setting *ret)
{
    static const char *const extra[] = {
        [METER] = "mode",   [QUEUE] = "mode",  [FIRST_USE] = "anchor", [CREATION] = "anchor",
        [EPOCH] = "anchor", [STEPS] = "every", [SEGMENTS] = "segments"};
    const uint64_t values[] = {[METER] = 0,
                               [QUEUE] = 1,
                               [FIRST_USE] = 0,
                               [CREATION] = 1,
                               [EPOCH] = 2,
                               [STEPS] = model->every,
                               [SEGMENTS] = model->segments};
    *ret++ = (struct setting){"capacity", model->capacity};
    if (!is_calendar())
        *ret++ = (struct setting){"window", model->window};
    if (model->burst != model->capacity)
        *ret++ = (struct setting){"burst", model->burst};
    if (model->initial != model->burst)
        *ret++ = (struct setting){"initial", model->initial};
    if (extra[model->kind] && !is_calendar())
        *ret++ = (struct setting){extra[model->kind], values[model->kind]};
    *ret = (struct setting){NULL, 0};
}

/* The last instant at which decisions are exact: in one word, and by the wall clock, that of the
 * clock. */
static uint64_t end_of_time(const struct trial *trial)
{
    return trial->is_word || trial->model.kind == EPOCH ? WEIR_CLOCK_MAX : WEIR_INSTANT_MAX;
}

/* An instant where a word of 62, 63 or 64 bits is full, or one beside it. */
static uint64_t any_extreme(const struct trial *trial)
{
    static const uint64_t extremes[] = {0,
                                        UINT64_C(1) << 60,
                                        UINT64_C(1) << 61,
                                        UINT64_C(1) << 62,
                                        WEIR_CLOCK_MAX,
                                        UINT64_C(1) << 63,
                                        (UINT64_C(3) << 62),
                                        WEIR_INSTANT_MAX};
    uint64_t at = extremes[random_below(&rng, sizeof(extremes) / sizeof(extremes[0]))];
    at += random_below(&rng, 3);
    at -= at == 0 ? 0 : 1;
    return at < end_of_time(trial) ? at : end_of_time(trial);
}

static uint64_t any_start(const struct trial *trial)
{
    switch (random_below(&rng, 5)) {
    case 0:
        return 0;
    case 1:
        return random_magnitude(&rng, 30 * DAY);
    case 2:
        return random_magnitude(&rng, end_of_time(trial));
    case 3:
        return any_extreme(trial);
    default:
        return end_of_time(trial) - random_magnitude(&rng, 60 * SECOND);
    }
}

/* Of what counts from its creation, or first had less than it has later, no other is like it. */
static bool is_for_ever(const struct model *model)
{
    return model->kind == STEPS || model->kind == CREATION || model->initial != model->burst;
}

static void start(struct trial *trial)
{
    struct setting settings[6];
    struct weir_reason reason = {sizeof(reason), 0, ""};
    *trial = (struct trial){.operation = trial->operation};
    choose(&trial->model);
    settings_of(&trial->model, settings);
    if (subject_try(&trial->subject, algorithm, settings, &reason) < 0)
        fail_msg("refused: %s", reason.message);
    trial->is_word = trial->subject.footprint.state == 8;
    trial->charges = trial->subject.ops->charge != NULL;
    trial->forgets = random_chance(&rng, 50);
    assert_non_null(
        trial->subject.ops->try_take); /* which subject.c compares with ready_at and take */
    trial->has_twin = strcmp(algorithm, "gcra") == 0;
    trial->now = trial->ready = any_start(trial);
    if (trial->model.kind == EPOCH)
        trial->subject.wall_offset_ns = (int64_t)random_next(&rng) >> random_from(&rng, 2, 40);
    model_init(&trial->model, trial->now, trial->subject.wall_offset_ns);
    subject_init(&trial->subject, trial->now);
    if (trial->has_twin) {
        assert_int_equal(subject_try(&trial->twin, "token_bucket", settings, &reason), 0);
        subject_init(&trial->twin, trial->now);
    }
    assert_int_equal(trial->subject.footprint.amount_max, trial->model.burst);
    assert_int_equal(subject_is_new(&trial->subject, trial->now), !is_for_ever(&trial->model));
}

static void end(struct trial *trial)
{
    subject_free(&trial->subject);
    model_free(&trial->model);
    if (trial->has_twin)
        subject_free(&trial->twin);
}

static void forward(struct trial *trial, uint64_t by)
{
    uint64_t most = end_of_time(trial) - trial->now;
    trial->now += by < most ? by : most;
}

/* By decades, or to an extreme instant: what was idle for 2^62 ns has recovered. */
static void forward_far(struct trial *trial)
{
    uint64_t extreme = any_extreme(trial);
    if (random_chance(&rng, 80))
        forward(trial, random_magnitude(&rng, 100 * YEAR));
    else if (extreme > trial->now)
        forward(trial, extreme - trial->now);
}

/* Of the wall clock. */
static int64_t any_step(const struct trial *trial)
{
    uint64_t window = trial->model.window, most = 4 * window < DAY ? 4 * window : DAY;
    int64_t step = (int64_t)random_from(&rng, 0, most);
    return trial->forgets ? step : step - (int64_t)random_from(&rng, 0, most);
}

static void go(struct trial *trial)
{
    const struct model *model = &trial->model;
    uint64_t apart = model->window / model->capacity;
    switch (random_below(&rng, 12)) {
    case 0:
    case 1: /* the clock stands */
        break;
    case 2:
        forward(trial, 1);
        break;
    case 3:
        forward(trial, random_below(&rng, 2 * apart + 2));
        break;
    case 4:
        forward(trial, random_below(&rng, model->window) * 2);
        break;
    case 5:
        forward(trial, model->window - random_below(&rng, 2));
        break;
    case 6:
    case 7: /* to the instant that was promised, or just before it */
        if (trial->ready > trial->now && trial->ready <= WEIR_INSTANT_MAX)
            forward(trial, trial->ready - trial->now - random_below(&rng, 2));
        break;
    case 8:
        forward_far(trial);
        break;
    case 9:
        if (!trial->is_word && !trial->forgets &&
            random_chance(&rng, 30)) /* there is no room for the last instant */
            trial->now -= random_from(&rng, 0, trial->now) >> random_below(&rng, 64);
        break;
    case 10:
        if (model->kind == EPOCH)
            trial->subject.wall_offset_ns += any_step(trial);
        break;
    default:
        forward(trial, random_magnitude(&rng, DAY));
    }
}

static bool expected(const struct trial *trial, uint64_t at, uint64_t amount)
{
    return model_grants(&trial->model, at, trial->subject.wall_offset_ns, amount);
}

static uint64_t any_amount(struct trial *trial)
{
    uint64_t most = trial->model.burst;
    switch (random_below(&rng, 8)) {
    case 0:
        return 0;
    case 1:
    case 2:
        return 1;
    case 3:
        return most;
    case 4:
        return random_chance(&rng, 80) ? most : most + random_magnitude(&rng, AMOUNT_MAX);
    case 5:
        return subject_available(&trial->subject, trial->now) + random_below(&rng, 2);
    default:
        return random_magnitude(&rng, most);
    }
}

static void check_ready_at(struct trial *trial, uint64_t amount, uint64_t ready)
{
    uint64_t now = trial->now, seen = now > trial->model.last ? now : trial->model.last;
    if (amount == 0) {
        assert_int_equal(ready, now);
    } else if (amount > trial->model.burst) {
        assert_true(ready == WEIR_NEVER);
    } else if (expected(trial, now, amount)) {
        assert_int_equal(ready, now);
    } else if (seen == WEIR_INSTANT_MAX) {
        assert_true(ready == WEIR_NEVER);
    } else {
        assert_true(ready > seen && ready <= WEIR_INSTANT_MAX);
        assert_false(expected(trial, ready - 1, amount));
        if (ready < WEIR_INSTANT_MAX)
            assert_true(expected(trial, ready, amount));
    }
}

static void request(struct trial *trial)
{
    uint64_t amount = any_amount(trial);
    uint64_t ready = subject_ready_at(&trial->subject, trial->now, amount);
    check_ready_at(trial, amount, ready);
    if (trial->has_twin)
        assert_true(ready == subject_ready_at(&trial->twin, trial->now, amount));
    if (ready != trial->now) {
        trial->ready = ready;
        return;
    }
    if (random_chance(&rng, 20))
        return;
    subject_take(&trial->subject, trial->now, amount);
    if (trial->has_twin)
        subject_take(&trial->twin, trial->now, amount);
    if (amount == 0)
        return;
    model_take(&trial->model, trial->now, trial->subject.wall_offset_ns, amount);
    trial->grants[random_below(&rng, GRANTS)] =
        (struct model_grant){.instant = trial->now, .amount = amount};
}

static void refund_subject(const struct trial *trial, struct subject *subject, uint64_t amount,
                           uint64_t granted_ns)
{
    if (trial->model.strict)
        subject_refund_strictly(subject, trial->now, amount, granted_ns);
    else
        subject_refund(subject, trial->now, amount, granted_ns);
}

static void refund(struct trial *trial)
{
    struct model_grant *grant = &trial->grants[random_below(&rng, GRANTS)];
    if (grant->amount == 0)
        return;
    uint64_t amount = random_chance(&rng, 50) ? grant->amount : random_below(&rng, grant->amount);
    refund_subject(trial, &trial->subject, amount, grant->instant);
    if (trial->has_twin)
        refund_subject(trial, &trial->twin, amount, grant->instant);
    model_refund(&trial->model, trial->now, trial->subject.wall_offset_ns, amount, grant->instant);
    grant->amount = 0;
}

static void charge(struct trial *trial)
{
    uint64_t amount =
        random_magnitude(&rng, random_chance(&rng, 80) ? trial->model.burst : UINT64_MAX);
    subject_charge(&trial->subject, trial->now, amount);
    if (trial->has_twin)
        subject_charge(&trial->twin, trial->now, amount);
    model_charge(&trial->model, trial->now, amount);
}

static void check_available(struct trial *trial)
{
    uint64_t most = subject_available(&trial->subject, trial->now);
    assert_true(most <= trial->model.burst);
    if (most > 0)
        assert_true(expected(trial, trial->now, most));
    if (most < trial->model.burst)
        assert_false(expected(trial, trial->now, most + 1));
    if (trial->has_twin)
        assert_true(most == subject_available(&trial->twin, trial->now));
}

/* A limit that is as new may be forgotten, and begins anew: the reference knows nothing of that. */
static void forget(struct trial *trial)
{
    if (!trial->forgets || !subject_is_new(&trial->subject, trial->now) || random_chance(&rng, 50))
        return;
    subject_init(&trial->subject, trial->now);
    forgotten[trial->model.kind]++;
}

static void step(struct trial *trial)
{
    go(trial);
    forget(trial);
    if (trial->now == end_of_time(trial))
        trial->at_end++;
    uint64_t which = random_below(&rng, 100);
    if (which < 65)
        request(trial);
    else if (which < 78)
        refund(trial);
    else if (which < 85 && trial->charges)
        charge(trial);
    else
        check_available(trial);
    assert_int_equal(subject_check(&trial->subject), 0);
}

static uint64_t seed;
static struct trial trial;

static void test_against_reference(void **state)
{
    (void)state;
    uint64_t operations = random_operations(5000000);
    for (uint64_t number = 0; trial.operation < operations; number++) {
        rng = random_case(seed, number);
        start(&trial);
        for (int i = 0; i < CASE_LENGTH && trial.at_end < 8; i++, trial.operation++)
            step(&trial);
        had[trial.model.kind] = true;
        end(&trial);
    }
    for (int kind = 0; kind < PLUGIN_KINDS; kind++)
        assert_true((forgotten[kind] > 0) == (had[kind] && kind != STEPS && kind != CREATION));
    trial = (struct trial){.operation = 0};
}

/* What was going on, if the test ended early. */
static int explain(void **state)
{
    (void)state;
    if (trial.model.capacity == 0)
        return 0;
    const struct model *model = &trial.model;
    printf("%s%s", trial.forgets ? "forgets " : "", model->strict ? "strict " : "");
    printf("failed: --seed %" PRIu64 ", operation %" PRIu64 ", now %" PRIu64 ", last %" PRIu64
           ", created %" PRIu64 ", offset %" PRId64 ", kind %d\n",
           seed, trial.operation, trial.now, model->last, model->created,
           trial.subject.wall_offset_ns, (int)model->kind);
    struct setting settings[6];
    settings_of(model, settings);
    for (const struct setting *setting = settings; setting->name; setting++)
        printf("  %s: %" PRIu64 "\n", setting->name, setting->value);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(test_against_reference, explain)};
    if (argc < 2) {
        fprintf(stderr, "usage: %s ALGORITHM [--seed N]\n", argv[0]);
        return 2;
    }
    algorithm = argv[1];
    seed = random_seed_of(argc, argv);
    printf("%s: --seed %" PRIu64 "\n", algorithm, seed);
    fflush(stdout);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
