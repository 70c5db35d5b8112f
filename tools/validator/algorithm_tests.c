/* SPDX-License-Identifier: MIT */
/* Tests of algorithms: each promise of weir/algorithm.h that can be seen from outside. */
#include "algorithm_tests.h"
#include "tests.h"
#include <string.h>

static const struct subject_way plain = {.fill = 0};

bool algorithm_next(struct trial *trial, struct subject *ret, const struct subject_way *way,
                    uint32_t limit_type)
{
    struct subject_way of_round = *way;

    if (!trial_next(trial))
        return false;
    of_round.fill = way->fill ? way->fill : (unsigned char)(trial->round & 1);
    if (!subject_make(trial, ret, &of_round, limit_type))
        trial_fail(trial, "accepts no settings: 200 random ones within the ranges of its "
                          "parameters were refused");
    return true;
}

typedef void look_fn(struct trial *trial, struct walk *walk, uint64_t ready, uint64_t amount);

/* Runs histories, and looks at each request before and after it is taken. */
static void algorithm_walk(struct trial *trial, look_fn *before, look_fn *after)
{
    struct subject subject;

    while (algorithm_next(trial, &subject, &plain, 0)) {
        struct walk walk;

        walk_begin(trial, &walk, &subject);
        for (unsigned i = 0; i < WALK_STEPS; i++) {
            uint64_t amount, ready = walk_ask(&walk, &amount);

            if (before)
                before(trial, &walk, ready, amount);
            if (walk_take(&walk, ready, amount) && after)
                after(trial, &walk, ready, amount);
        }
        subject_free(&subject);
    }
}

/* ---- configuration ---- */

static void test_configure(struct trial *trial)
{
    struct subject subject, again;
    struct subject_way way = plain;

    while (algorithm_next(trial, &subject, &plain, 0)) {
        way.fill = 0xff;
        subject_make_again(&again, &subject, &way);
        if (memcmp(&again.footprint, &subject.footprint, sizeof(again.footprint)) != 0)
            trial_fail(trial, "equal settings give another footprint");
        if (memcmp(again.config.data, subject.config.data, subject.footprint.config) != 0)
            trial_fail(trial,
                       "equal settings give other bytes of configuration: a pointer, padding or "
                       "uninitialized memory");
        subject_free(&again);
        subject_free(&subject);
    }
}

/* ---- time ---- */

static void look_first_instant(struct trial *trial, struct walk *walk, uint64_t ready,
                               uint64_t amount)
{
    struct subject *subject = walk->subject;
    uint64_t span, at;

    if (ready < walk->now)
        trial_fail(trial, "ready_at answers with an instant before now");
    if (ready >= WEIR_INSTANT_MAX)
        return;
    for (unsigned i = 0; i < 2 && ready > walk->now; i++) {
        at = i ? ready - 1 : walk->now + trial_below(trial, ready - walk->now);
        if (subject_ready_at(subject, at, amount) != ready)
            trial_fail(trial, "ready_at said %llu before, and now another instant",
                       (unsigned long long)ready);
    }
    span = ready < WEIR_CLOCK_MAX ? WEIR_CLOCK_MAX - ready : 0;
    for (unsigned i = 0; i < 3; i++) {
        at = ready + (i && span ? trial_magnitude(trial, span) : 0);
        if (subject_ready_at(subject, at, amount) != at)
            trial_fail(trial, "what is granted at %llu must be granted at every later instant",
                       (unsigned long long)ready);
    }
}

static void test_first_instant(struct trial *trial)
{
    algorithm_walk(trial, look_first_instant, NULL);
}

/* After a take, which has seen the instant. */
static void look_time_back(struct trial *trial, struct walk *walk, uint64_t ready, uint64_t amount)
{
    uint64_t back = walk->now - trial_below(trial, walk->now + 1);
    uint64_t early = subject_ready_at(walk->subject, back, amount);

    ready = subject_ready_at(walk->subject, walk->now, amount);
    if (early < back)
        trial_fail(trial, "ready_at answers with an instant before that of the call");
    if (early == back && ready != walk->now)
        trial_fail(trial, "grants at an earlier instant what it refuses at %llu",
                   (unsigned long long)walk->now);
}

static void test_time_back(struct trial *trial)
{
    algorithm_walk(trial, NULL, look_time_back);
}

/* ---- taking ---- */

static unsigned char algorithm_copy[1 << 16];

static size_t algorithm_compared(const struct subject *subject)
{
    return subject->footprint.state < sizeof(algorithm_copy) ? subject->footprint.state
                                                             : sizeof(algorithm_copy);
}

static uint64_t algorithm_available; /* before the take */

static void look_before_take(struct trial *trial, struct walk *walk, uint64_t ready,
                             uint64_t amount)
{
    (void)trial;
    (void)ready;
    (void)amount;
    algorithm_available = subject_available(walk->subject, walk->now);
    memcpy(algorithm_copy, subject_state(walk->subject), algorithm_compared(walk->subject));
}

static void look_taken(struct trial *trial, struct walk *walk, uint64_t ready, uint64_t amount)
{
    struct subject *subject = walk->subject;
    uint64_t left = subject_available(subject, walk->now);

    (void)ready;
    if (subject->footprint.state &&
        memcmp(algorithm_copy, subject_state(subject), algorithm_compared(subject)) == 0)
        trial_fail(trial, "take changes nothing");
    if (left > algorithm_available)
        trial_fail(trial, "available says %llu, and after %llu were taken %llu",
                   (unsigned long long)algorithm_available, (unsigned long long)amount,
                   (unsigned long long)left);
}

static void test_take(struct trial *trial)
{
    algorithm_walk(trial, look_before_take, look_taken);
}

static void look_available(struct trial *trial, struct walk *walk, uint64_t ready, uint64_t amount)
{
    uint64_t available = subject_available(walk->subject, walk->now);

    if (available > walk->subject->footprint.amount_max)
        trial_fail(trial, "available says %llu, more than amount_max %llu",
                   (unsigned long long)available,
                   (unsigned long long)walk->subject->footprint.amount_max);
    if ((amount <= available) != (ready == walk->now))
        trial_fail(trial, "available says %llu, but ready_at %s", (unsigned long long)available,
                   ready == walk->now ? "grants it" : "does not grant it now");
}

static void test_available(struct trial *trial)
{
    algorithm_walk(trial, look_available, NULL);
}

static void look_try_take(struct trial *trial, struct walk *walk, uint64_t ready, uint64_t amount)
{
    struct subject *subject = walk->subject;
    size_t size = algorithm_compared(subject);
    static unsigned char tried[sizeof(algorithm_copy)];
    uint64_t answer;

    memcpy(algorithm_copy, subject_state(subject), size);
    answer = subject_try_take(subject, walk->now, amount);
    memcpy(tried, subject_state(subject), size);
    memcpy(subject_state(subject), algorithm_copy, size);
    if (answer != ready)
        trial_fail(trial, "try_take answers %llu, but ready_at %llu", (unsigned long long)answer,
                   (unsigned long long)ready);
    if (ready == walk->now)
        subject_take(subject, walk->now, amount);
    if (memcmp(tried, subject_state(subject), size) != 0)
        trial_fail(trial, "try_take %s",
                   ready == walk->now ? "leaves another state than take"
                                      : "changes the state and refuses");
    memcpy(subject_state(subject), algorithm_copy, size);
}

static void test_try_take(struct trial *trial)
{
    const struct weir_algorithm *ops = trial->plugin->ops;

    if (!ops->try_take)
        trial_skip(trial, "it has no try_take");
    algorithm_walk(trial, look_try_take, NULL);
}

static void bound_is_kept(struct trial *trial, const struct walk *walk)
{
    uint64_t max = walk->subject->footprint.amount_max;

    if (subject_is_resource(walk->subject) && walk->taken > max)
        trial_fail(trial, "%llu are held of at most %llu", (unsigned long long)walk->taken,
                   (unsigned long long)max);
}

/* Takes at one instant until nothing is left. Grants that are less than a nanosecond apart are at
 * one instant, so that up to as much again may come from an exact schedule. */
static void bound_at_once(struct trial *trial, struct subject *subject, uint64_t now)
{
    uint64_t sum = 0, max = subject->footprint.amount_max, amount;

    subject_init(subject, now);
    if (subject_ready_at(subject, now, max) == WEIR_NEVER)
        trial_fail(trial, "never grants amount_max, %llu", (unsigned long long)max);
    for (unsigned i = 0; i < 1000; i++) {
        amount = subject_available(subject, now);
        if (!amount || amount > max || subject_ready_at(subject, now, amount) != now)
            return;
        subject_take(subject, now, amount);
        sum += amount;
        if (sum / 2 > max)
            trial_fail(trial, "grants %llu at one instant: amount_max is %llu",
                       (unsigned long long)sum, (unsigned long long)max);
    }
}

static void test_bound(struct trial *trial)
{
    struct subject subject;

    while (algorithm_next(trial, &subject, &plain, 0)) {
        struct walk walk;
        uint64_t amount, ready;

        bound_at_once(trial, &subject, trial_below(trial, WEIR_CLOCK_MAX));
        walk_begin(trial, &walk, &subject);
        for (unsigned i = 0; i < WALK_STEPS; i++) {
            ready = walk_ask(&walk, &amount);
            (void)walk_take(&walk, ready, amount);
            bound_is_kept(trial, &walk);
        }
        subject_free(&subject);
    }
}

/* ---- giving back ---- */

typedef void back_fn(struct subject *subject, uint64_t now, uint64_t amount, uint64_t granted_ns);

/* Refunds a part, of an older grant, too: no more is available than that part more than before. */
static void back_is_part(struct trial *trial, back_fn *back, const char *name,
                         struct subject *subject, const struct walk *walk, uint64_t amount)
{
    uint64_t part = trial_magnitude(trial, amount), left = subject_available(subject, walk->now);
    uint64_t granted_ns = walk->held[trial_below(trial, walk->held_n)].granted_ns;

    back(subject, walk->now, part, granted_ns);
    if (subject_available(subject, walk->now) > left &&
        subject_available(subject, walk->now) - left > part)
        trial_fail(trial, "%s of %llu leaves more than so much more", name,
                   (unsigned long long)part);
}

/* Refunds twice what was taken once: no more is available than if nothing had been taken. */
static void back_is_bounded(struct trial *trial, back_fn *back, const char *name)
{
    struct subject subject, twin;

    while (algorithm_next(trial, &subject, &plain, 0)) {
        struct walk walk;
        uint64_t amount, ready, left;

        subject_make_again(&twin, &subject, &plain);
        walk_begin(trial, &walk, &subject);
        for (unsigned i = 0; i < WALK_STEPS; i++) {
            ready = walk_ask(&walk, &amount);
            subject_copy(&twin, &subject);
            if (!walk_take(&walk, ready, amount))
                continue;
            back(&subject, walk.now, amount, walk.now);
            left = subject_available(&twin, walk.now);
            if (subject_available(&subject, walk.now) > left)
                trial_fail(trial, "%s of what was taken leaves more than before", name);
            back_is_part(trial, back, name, &subject, &walk, amount);
            back(&subject, walk.now, subject.footprint.amount_max, walk.now);
            if (subject_available(&subject, walk.now) > subject.footprint.amount_max)
                trial_fail(trial, "%s leaves more than amount_max", name);
            subject_copy(&subject, &twin);
            subject_take(&subject, walk.now, amount); /* so that more and more is taken */
        }
        subject_free(&subject);
        subject_free(&twin);
    }
}

static void test_refund(struct trial *trial)
{
    const struct weir_algorithm *ops = trial->plugin->ops;

    if (!ops->refund)
        trial_skip(trial, "it has no refund");
    back_is_bounded(trial, subject_refund, "refund");
}

static void test_refund_strict(struct trial *trial)
{
    const struct weir_algorithm *ops = trial->plugin->ops;

    if (!ops->refund_strict)
        trial_skip(trial, "it has no refund_strict");
    back_is_bounded(trial, subject_refund_strict, "refund_strict");
}

static void look_charge(struct trial *trial, struct walk *walk, uint64_t ready, uint64_t amount)
{
    struct subject *subject = walk->subject;
    size_t size = algorithm_compared(subject);
    uint64_t before = subject_available(subject, walk->now), after;

    (void)ready;
    memcpy(algorithm_copy, subject_state(subject), size);
    subject_charge(subject, walk->now, trial_below(trial, 4) ? amount : UINT64_MAX);
    after = subject_available(subject, walk->now);
    memcpy(subject_state(subject), algorithm_copy, size);
    if (after > before)
        trial_fail(trial, "charge makes more available");
}

static void test_charge(struct trial *trial)
{
    const struct weir_algorithm *ops = trial->plugin->ops;

    if (!ops->charge)
        trial_skip(trial, "it has no charge");
    algorithm_walk(trial, look_charge, NULL);
}

/* ---- state ---- */

static void look_word(struct trial *trial, struct walk *walk, uint64_t ready, uint64_t amount)
{
    uint64_t word;

    (void)ready;
    (void)amount;
    if (walk->subject->footprint.state != sizeof(word))
        return;
    memcpy(&word, subject_state(walk->subject), sizeof(word));
    if (word >> 63)
        trial_fail(trial, "sets the top bit of its word, against WEIR_ALGORITHM_WORD");
}

static void test_word(struct trial *trial)
{
    const struct weir_algorithm *ops = trial->plugin->ops;

    if (!(ops->flags & WEIR_ALGORITHM_WORD))
        trial_skip(trial, "it does not say WEIR_ALGORITHM_WORD");
    algorithm_walk(trial, look_word, look_word);
}

static void look_check(struct trial *trial, struct walk *walk, uint64_t ready, uint64_t amount)
{
    (void)ready;
    (void)amount;
    if (subject_check(walk->subject) != 0)
        trial_fail(trial, "check refuses a state that the algorithm made");
}

/* Any bytes that `check` accepts: whatever is called then stays within the state, and ends. */
static void corrupt_is_safe(struct trial *trial, struct subject *subject)
{
    const struct weir_algorithm *ops = subject->ops;
    unsigned char *state = subject_state(subject);
    uint64_t now = trial_magnitude(trial, WEIR_CLOCK_MAX), amount, gauges[WEIR_GAUGES_MAX];

    for (size_t i = 0; i < subject->footprint.state; i += 8) {
        uint64_t word = trial_below(trial, 3)   ? trial_random(trial)
                        : trial_below(trial, 2) ? UINT64_MAX
                                                : 0;

        memcpy(state + i, &word, 8);
    }
    if (ops->check && subject_check(subject) != 0)
        return;
    amount = trial_magnitude(trial, subject->footprint.amount_max);
    (void)subject_available(subject, now);
    if (subject_ready_at(subject, now, amount) == now)
        subject_take(subject, now, amount);
    if (ops->try_take)
        (void)subject_try_take(subject, now, amount);
    if (ops->refund)
        subject_refund(subject, now, amount, trial_magnitude(trial, now));
    if (ops->refund_strict)
        subject_refund_strict(subject, now, amount, trial_magnitude(trial, now));
    if (ops->charge)
        subject_charge(subject, now, amount);
    if (ops->release && subject_is_resource(subject)) {
        const struct weir_release release =
            subject_choose_release(subject, now, amount, trial_magnitude(trial, now));

        subject_release(subject, now, &release);
    }
    if (ops->is_new)
        (void)subject_is_new(subject, now);
    if (ops->gauges_n)
        subject_observe(subject, now, gauges);
}

static void test_corrupt_state(struct trial *trial)
{
    struct subject subject;

    while (algorithm_next(trial, &subject, &plain, 0)) {
        for (unsigned i = 0; i < 100; i++)
            corrupt_is_safe(trial, &subject);
        subject_free(&subject);
    }
}

static void test_check(struct trial *trial)
{
    const struct weir_algorithm *ops = trial->plugin->ops;

    if (!ops->check)
        trial_skip(trial, "it has no check");
    algorithm_walk(trial, look_check, look_check);
}

/* What is_new calls new decides as a state that is made at that instant. */
static void look_is_new(struct trial *trial, struct walk *walk, uint64_t ready, uint64_t amount)
{
    struct subject *subject = walk->subject;
    size_t size = algorithm_compared(subject);
    uint64_t later, old;
    int is_new = subject_is_new(subject, walk->now);

    (void)ready;
    if (is_new != 0 && is_new != 1)
        trial_fail(trial, "is_new returns %d, neither 0 nor 1", is_new);
    if (!is_new || walk->now >= WEIR_CLOCK_MAX)
        return;
    memcpy(algorithm_copy, subject_state(subject), size);
    later = walk->now + trial_magnitude(trial, WEIR_CLOCK_MAX - walk->now);
    old = subject_ready_at(subject, later, amount);
    subject_init(subject, walk->now);
    if (subject_ready_at(subject, later, amount) != old)
        trial_fail(trial, "is_new calls a state new that decides otherwise than a new one");
    memcpy(subject_state(subject), algorithm_copy, size);
}

static void test_is_new(struct trial *trial)
{
    const struct weir_algorithm *ops = trial->plugin->ops;

    if (!ops->is_new)
        trial_skip(trial, "it has no is_new");
    algorithm_walk(trial, look_is_new, NULL);
}

/* Taking later never makes room earlier. */
static void look_monotone(struct trial *trial, struct walk *walk, uint64_t ready, uint64_t amount)
{
    struct subject *subject = walk->subject;
    size_t size = algorithm_compared(subject);
    uint64_t later, next = trial_magnitude(trial, subject->footprint.amount_max), soon;

    if (ready != walk->now || walk->now > WEIR_CLOCK_MAX / 2)
        return;
    later = walk->now + trial_magnitude(trial, walk->now + 1);
    memcpy(algorithm_copy, subject_state(subject), size);
    subject_take(subject, walk->now, amount);
    soon = subject_ready_at(subject, later, next);
    memcpy(subject_state(subject), algorithm_copy, size);
    subject_take(subject, later, amount);
    if (subject_ready_at(subject, later, next) < soon)
        trial_fail(trial, "taking later makes room earlier, against WEIR_ALGORITHM_MONOTONE");
    memcpy(subject_state(subject), algorithm_copy, size);
}

static void test_monotone(struct trial *trial)
{
    const struct weir_algorithm *ops = trial->plugin->ops;

    if (!(ops->flags & WEIR_ALGORITHM_MONOTONE))
        trial_skip(trial, "it does not say WEIR_ALGORITHM_MONOTONE");
    algorithm_walk(trial, look_monotone, NULL);
}

const struct validator_test algorithm_tests[] = {
    {"configure", "equal settings give equal bytes, in two calls that agree", test_configure},
    {"first-instant", "ready_at is the first instant, and grants at all later ones",
     test_first_instant},
    {"time-back", "time that goes back grants nothing more", test_time_back},
    {"take", "take takes what was asked for", test_take},
    {"available", "available is the largest amount that is granted", test_available},
    {"try-take", "try_take is ready_at and take in one", test_try_take},
    {"bound", "amount_max is granted, and no more", test_bound},
    {"refund", "no more comes back than was taken", test_refund},
    {"refund-strict", "no more comes back strictly than was taken", test_refund_strict},
    {"release", "what was taken of a resource comes back, and no more", test_release},
    {"charge", "charges make nothing available", test_charge},
    {"read-only", "state and configuration are not written by what must not", test_frozen},
    {"address", "the state can be moved", test_address},
    {"hidden-state", "nothing but the arguments decides", test_hidden_state},
    {"uninitialized", "no uninitialized memory is used", test_uninitialized},
    {"wall-clock", "the wall clock decides only if the flag says so", test_wall_clock},
    {"system-calls", "no system call is made", test_system_calls},
    {"word", "the top bit of a state word is clear", test_word},
    {"check", "check accepts every state that is made", test_check},
    {"corrupt-state", "damaged states harm nothing", test_corrupt_state},
    {"observe", "gauges have values, and asking for them changes nothing", test_observe},
    {"reconfigure", "a state is carried over to other settings, and is one there",
     test_reconfigure},
    {"migrate", "foreign states are taken over rightly, or refused", test_migrate},
    {"zone", "damaged files of time zones harm nothing", test_zone},
    {"is-new", "a new state decides as one", test_is_new},
    {"monotone", "taking later never makes room earlier", test_monotone},
    {"speed", "calls are quick", test_speed},
    {NULL, NULL, NULL},
};
