/* SPDX-License-Identifier: MIT */
/* Tests of what algorithms must not do: depend on more than their arguments, write elsewhere, or
 * take long. */
#include "algorithm_tests.h"
#include <string.h>
#include <time.h>

/* So long may a call take on average, in the quickest of several tries. */
#define SLOW_NS 20000u

static const struct subject_way plain = {.fill = 0};

/* ---- purity ---- */

void test_frozen(struct trial *trial)
{
    const struct subject_way way = {.is_frozen = true};
    struct subject subject;

    while (algorithm_next(trial, &subject, &way, 0)) {
        struct walk walk;

        walk_all(trial, &walk, &subject);
        if (subject.ops->check)
            (void)subject_check(&subject);
        if (subject.ops->is_new)
            (void)subject_is_new(&subject, walk.now);
        subject_free(&subject);
    }
}

/* Runs one history in two ways, which must agree in all that is answered. */
static void algorithm_twice(struct trial *trial, const struct subject_way *other, const char *what)
{
    static struct walk first, second;
    struct subject subject, twin;
    uint64_t random;

    while (algorithm_next(trial, &subject, &plain, 0)) {
        struct subject_way way = *other;

        way.fill = other->fill ? other->fill : subject.way.fill;
        random = trial->random;
        walk_all(trial, &first, &subject);
        subject_make_again(&twin, &subject, &way);
        trial->random = random;
        walk_all(trial, &second, &twin);
        if (first.trace_n != second.trace_n ||
            memcmp(first.trace, second.trace, first.trace_n * sizeof(first.trace[0])) != 0)
            trial_fail(trial, "%s", what);
        subject_free(&subject);
        subject_free(&twin);
    }
}

void test_address(struct trial *trial)
{
    const struct subject_way way = {.moves = true};

    algorithm_twice(trial, &way, "decides otherwise when its state lies at another address");
}

void test_hidden_state(struct trial *trial)
{
    const struct subject_way way = {.is_disturbed = true};
    const struct statics *statics = statics_of(trial, trial->plugin);

    algorithm_twice(trial, &way,
                    "decides otherwise when another limit is used in between, or when "
                    "the same is done once more: it has state elsewhere");
    statics_check(trial, statics);
}

void test_uninitialized(struct trial *trial)
{
    const struct subject_way way = {.fill = 0xdb};

    algorithm_twice(trial, &way, "answers or leaves bytes that depend on uninitialized memory");
}

void test_wall_clock(struct trial *trial)
{
    const struct subject_way way = {.wall_offset_ns = INT64_C(1790000000123456789)};
    const struct weir_algorithm *ops = trial->plugin->ops;

    if (ops->flags & WEIR_ALGORITHM_WALL)
        trial_skip(trial, "it says that it reads the wall clock");
    algorithm_twice(trial, &way, "reads the wall clock without WEIR_ALGORITHM_WALL");
}

void test_system_calls(struct trial *trial)
{
    struct subject subject;
    struct walk walk;

    if (!trial_forbid_system_calls())
        trial_skip(trial, "system calls cannot be filtered here");
    while (algorithm_next(trial, &subject, &plain, 0)) {
        walk_all(trial, &walk, &subject);
        subject_free(&subject);
    }
}

/* ---- speed ---- */

static unsigned char speed_state[1 << 16]; /* from which each call begins */

static size_t speed_state_size(const struct subject *subject)
{
    return subject->footprint.state < sizeof(speed_state) ? subject->footprint.state
                                                          : sizeof(speed_state);
}

static uint64_t speed_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The operations that are timed. */
enum speed_call { SPEED_READY, SPEED_AVAILABLE, SPEED_TAKE, SPEED_CHECK, SPEED_BACK, SPEED_CALLS };

static const char *const speed_names[SPEED_CALLS] = {"ready_at", "available", "take, or try_take",
                                                     "check", "refund, or release"};

static void speed_call(const struct subject *subject, enum speed_call call,
                       const struct weir_instant *at)
{
    const struct weir_algorithm *ops = subject->ops;
    const struct weir_release release = {.size = sizeof(release), .amount = 1};
    const void *config = subject->config.data;
    void *state = subject_state(subject);

    if (call == SPEED_READY)
        (void)ops->ready_at(config, state, at, 1);
    else if (call == SPEED_AVAILABLE)
        (void)ops->available(config, state, at);
    else if (call == SPEED_TAKE && ops->try_take)
        (void)ops->try_take(config, state, at, 1);
    else if (call == SPEED_TAKE && ops->ready_at(config, state, at, 1) == at->now_ns)
        ops->take(config, state, at, 1);
    else if (call == SPEED_CHECK && ops->check)
        (void)ops->check(config, state);
    else if (call == SPEED_BACK && subject_is_resource(subject) && ops->release)
        ops->release(config, state, at, &release);
    else if (call == SPEED_BACK && !subject_is_resource(subject) && ops->refund)
        ops->refund(config, state, at, 1, at->now_ns);
}

/* Nanoseconds of one operation, by the quickest of several tries, each from the same state. */
static uint64_t speed_of(const struct subject *subject, enum speed_call call, uint64_t now)
{
    const struct weir_instant at = {.now_ns = now};
    size_t size = speed_state_size(subject);
    uint64_t best = UINT64_MAX;

    memcpy(speed_state, subject_state(subject), size);
    for (unsigned i = 0; i < 10; i++) {
        uint64_t begin = speed_clock(), spent;

        for (unsigned j = 0; j < 10; j++) {
            speed_call(subject, call, &at);
            memcpy(subject_state(subject), speed_state, size);
        }
        spent = (speed_clock() - begin) / 10;
        best = spent < best ? spent : best;
    }
    return best;
}

void test_speed(struct trial *trial)
{
    struct subject subject;
    struct walk walk;

    while (algorithm_next(trial, &subject, &plain, 0)) {
        walk_all(trial, &walk, &subject);
        for (enum speed_call call = 0; call < SPEED_CALLS; call++) {
            uint64_t ns = speed_of(&subject, call, walk.now);

            if (ns > SLOW_NS)
                trial_fail(trial, "%s takes %llu ns: every request of the set waits for it",
                           speed_names[call], (unsigned long long)ns);
        }
        subject_free(&subject);
    }
}
