/* SPDX-License-Identifier: MIT */
/* Tests of limits of resources against a model: what was taken comes back, however the work went.
 */
#include "algorithm_tests.h"
#include <string.h>

#define RESOURCE_HELD_MAX 32u

/* What is held, by what was taken and released. */
struct resource_model {
    struct subject *subject;
    uint64_t now, held; /* units */
    struct {
        uint64_t amount, granted_ns;
    } grants[RESOURCE_HELD_MAX];
    unsigned grants_n;
};

/* The number of the gauge that says what is held, or -1. */
static int resource_held_gauge(const struct weir_algorithm *ops)
{
    for (uint32_t i = 0; i < ops->gauges_n; i++)
        if (strcmp(ops->gauges[i].name, "held") == 0)
            return (int)i;
    return -1;
}

/* Holds the state against the model. */
static void resource_compare(struct trial *trial, const struct resource_model *model)
{
    struct subject *subject = model->subject;
    uint64_t available = subject_available(subject, model->now), gauges[WEIR_GAUGES_MAX];
    uint64_t max = subject->footprint.amount_max;
    int gauge = resource_held_gauge(subject->ops);

    if (model->held > max)
        trial_fail(trial, "%llu are held of at most %llu", (unsigned long long)model->held,
                   (unsigned long long)max);
    if (available > max - model->held)
        trial_fail(trial, "available says %llu, while %llu are held of at most %llu",
                   (unsigned long long)available, (unsigned long long)model->held,
                   (unsigned long long)max);
    if (gauge < 0)
        return;
    subject_observe(subject, model->now, gauges);
    if (gauges[gauge] != model->held)
        trial_fail(trial, "the gauge `held` says %llu; taken and not released are %llu",
                   (unsigned long long)gauges[gauge], (unsigned long long)model->held);
}

static void resource_take(struct trial *trial, struct resource_model *model)
{
    struct subject *subject = model->subject;
    uint64_t available = subject_available(subject, model->now);
    uint64_t amount = trial_magnitude(trial, subject->footprint.amount_max);

    if (trial_below(trial, 3) && available && available <= subject->footprint.amount_max)
        amount = trial_magnitude(trial, available);
    if (model->grants_n == RESOURCE_HELD_MAX ||
        subject_ready_at(subject, model->now, amount) != model->now)
        return;
    subject_take(subject, model->now, amount);
    model->held += amount;
    model->grants[model->grants_n].amount = amount;
    model->grants[model->grants_n++].granted_ns = model->now;
}

/* Releases a grant, or a part of it as the library does: as ignored. */
static void resource_release(struct trial *trial, struct resource_model *model, bool in_parts)
{
    unsigned i = (unsigned)trial_below(trial, model->grants_n);
    uint64_t amount = model->grants[i].amount;
    uint64_t part = in_parts ? trial_magnitude(trial, amount) : amount;
    struct weir_release release =
        subject_choose_release(model->subject, model->now, part, model->grants[i].granted_ns);

    if (part < amount)
        release.outcome = WEIR_OUTCOME_IGNORED;
    subject_release(model->subject, model->now, &release);
    model->held -= part;
    model->grants[i].amount -= part;
    if (!model->grants[i].amount)
        model->grants[i] = model->grants[--model->grants_n];
}

/* What is taken, and released at once as if it had not been used, makes no room. */
static void resource_return_at_once(struct trial *trial, struct resource_model *model)
{
    struct subject *subject = model->subject;
    uint64_t before = subject_available(subject, model->now);
    const struct weir_release release = {.size = sizeof(release),
                                         .amount = 1,
                                         .granted_ns = model->now,
                                         .outcome = trial_below(trial, 2) ? WEIR_OUTCOME_IGNORED
                                                                          : WEIR_OUTCOME_CANCELED};

    if (subject_ready_at(subject, model->now, 1) != model->now)
        return;
    subject_take(subject, model->now, 1);
    subject_release(subject, model->now, &release);
    if (subject_available(subject, model->now) > before)
        trial_fail(trial, "a grant that was undone leaves more than before");
}

static void resource_pass_time(struct trial *trial, struct resource_model *model)
{
    uint64_t span = trial_magnitude(trial, UINT64_C(1) << (10 + trial_below(trial, 30)));

    if (trial_below(trial, 2) && span < WEIR_CLOCK_MAX - model->now)
        model->now += span;
}

/* Everything goes back, and then a unit can be had without a release: there is none to come. */
static void resource_end(struct trial *trial, struct resource_model *model)
{
    while (model->grants_n) {
        resource_release(trial, model, false);
        resource_compare(trial, model);
    }
    if (subject_ready_at(model->subject, model->now, 1) >= WEIR_BLOCKED)
        trial_fail(trial, "nothing is held any more, and ready_at says that a release is needed");
}

/* A release of more than is held, as after damage, mints nothing. */
static void resource_release_too_much(struct trial *trial, struct resource_model *model)
{
    struct subject *subject = model->subject;
    const struct weir_release release =
        subject_choose_release(subject, model->now, trial_magnitude(trial, UINT64_MAX), model->now);

    subject_release(subject, model->now, &release);
    if (subject_available(subject, model->now) > subject->footprint.amount_max)
        trial_fail(trial, "a release of more than is held leaves more than amount_max");
    if (subject->ops->check && subject_check(subject) != 0)
        trial_fail(trial, "a release of more than is held leaves a state that check refuses");
}

void test_release(struct trial *trial)
{
    const struct weir_algorithm *ops = trial->plugin->ops;
    const struct subject_way way = {.fill = 0};
    struct subject subject;

    if (!(ops->types & 1u << WEIR_LIMIT_RESOURCE))
        trial_skip(trial, "it serves no resources");
    if (!ops->release)
        trial_fail(trial, "serves resources, and has no release: what is taken never comes back");
    while (algorithm_next(trial, &subject, &way, WEIR_LIMIT_RESOURCE)) {
        struct resource_model model = {.subject = &subject,
                                       .now = trial_magnitude(trial, WEIR_CLOCK_MAX / 2)};

        subject_init(&subject, model.now);
        for (unsigned i = 0; i < 2 * WALK_STEPS; i++) {
            resource_pass_time(trial, &model);
            if (trial_below(trial, 2) || !model.grants_n)
                resource_take(trial, &model);
            else
                resource_release(trial, &model, trial_below(trial, 2));
            resource_compare(trial, &model);
            resource_return_at_once(trial, &model);
        }
        resource_end(trial, &model);
        resource_release_too_much(trial, &model);
        subject_free(&subject);
    }
}

/* ---- gauges ---- */

/* Asks for all gauges of one state, twice: the answers are those of the state alone. */
static void observe_twice(struct trial *trial, struct subject *subject, uint64_t now)
{
    uint32_t n = subject->ops->gauges_n;
    struct arena values[2];

    for (unsigned i = 0; i < 2; i++) {
        arena_make(trial, &values[i], "the values of its gauges", n * sizeof(uint64_t), true);
        memset(values[i].data, i ? 0xff : 0, values[i].size);
        subject_observe(subject, now, (uint64_t *)(void *)values[i].data);
        arena_check(trial, &values[i]);
    }
    if (memcmp(values[0].data, values[1].data, values[0].size) != 0)
        trial_fail(trial, "observe leaves a gauge without a value, or gives another one at once");
    for (unsigned i = 0; i < 2; i++)
        arena_free(&values[i]);
}

void test_observe(struct trial *trial)
{
    const struct weir_algorithm *ops = trial->plugin->ops;
    const struct subject_way way = {.is_frozen = true, .moves = true};
    struct subject subject;

    if (!ops->gauges_n)
        trial_skip(trial, "it has no gauges");
    while (algorithm_next(trial, &subject, &way, 0)) {
        struct walk walk;

        walk_begin(trial, &walk, &subject);
        for (unsigned i = 0; i < WALK_STEPS; i++) {
            uint64_t amount, ready = walk_ask(&walk, &amount);

            (void)walk_take(&walk, ready, amount);
            observe_twice(trial, &subject, walk.now);
        }
        subject_free(&subject);
    }
}
