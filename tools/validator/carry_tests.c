/* SPDX-License-Identifier: MIT */
/* Tests of what carries a state over to another configuration or version, and of files of zones. */
#include "algorithm_tests.h"
#include <string.h>

/* ---- reconfigure ---- */

/* A limit before a reload and after it. */
struct carry {
    struct subject old, new, again; /* `again`: the same once more, elsewhere */
    uint64_t now;
};

/* Holds that the new state is one, and of the arguments alone. */
static void carry_check(struct trial *trial, struct carry *carry)
{
    struct subject *new = &carry->new;
    uint64_t word, available;

    subject_reconfigure(&carry->again, &carry->old, carry->now);
    if (memcmp(subject_state(new), subject_state(&carry->again), new->footprint.state) != 0)
        trial_fail(trial, "reconfigure leaves bytes that depend on uninitialized memory or on "
                          "addresses");
    if (new->ops->check && subject_check(new) != 0)
        trial_fail(trial, "reconfigure leaves a state that check refuses");
    memcpy(&word, subject_state(new), new->footprint.state ? sizeof(word) : 0);
    if (new->footprint.state == sizeof(word) && new->ops->flags & WEIR_ALGORITHM_WORD &&word >> 63)
        trial_fail(trial, "reconfigure sets the top bit of a word");
    available = subject_available(new, carry->now);
    if (available > new->footprint.amount_max)
        trial_fail(trial, "reconfigure leaves %llu available of at most %llu",
                   (unsigned long long)available, (unsigned long long)new->footprint.amount_max);
}

/* Gauges called `held` stay as they are: each of them has its holder. */
static void carry_holds(struct trial *trial, struct carry *carry)
{
    const struct weir_algorithm *ops = carry->old.ops;
    uint64_t before[WEIR_GAUGES_MAX], after[WEIR_GAUGES_MAX];

    if (!ops->gauges_n || !subject_is_resource(&carry->old))
        return;
    subject_observe(&carry->old, carry->now, before);
    subject_observe(&carry->new, carry->now, after);
    for (uint32_t i = 0; i < ops->gauges_n; i++)
        if (strcmp(ops->gauges[i].name, "held") == 0 && before[i] != after[i])
            trial_fail(trial, "%llu were held, and after reconfigure %llu",
                       (unsigned long long)before[i], (unsigned long long)after[i]);
}

/* Under an equal configuration the same is granted as before, now and later. */
static void carry_is_same(struct trial *trial, struct carry *carry)
{
    struct subject *old = &carry->old, *new = &carry->new;
    uint64_t before = subject_available(old, carry->now);
    uint64_t after = subject_available(new, carry->now);

    if (before != after)
        trial_fail(trial, "%llu were available, and after reconfigure with equal settings %llu",
                   (unsigned long long)before, (unsigned long long)after);
    for (unsigned i = 0; i < 3; i++) {
        uint64_t amount = trial_magnitude(trial, old->footprint.amount_max);
        uint64_t ready = subject_ready_at(old, carry->now, amount);

        if (subject_ready_at(new, carry->now, amount) != ready)
            trial_fail(trial, "reconfigure with equal settings moves the instant of a grant, %llu",
                       (unsigned long long)ready);
    }
}

/* Any bytes that `check` accepts are carried over without harm. */
static void carry_damaged(struct trial *trial, struct carry *carry)
{
    struct subject *old = &carry->old;
    unsigned char *state = subject_state(old);

    for (size_t i = 0; i < old->footprint.state; i += 8) {
        uint64_t word = trial_random(trial) >> trial_below(trial, 64);

        memcpy(state + i, &word, 8);
    }
    if (!old->ops->check || subject_check(old) == 0)
        subject_reconfigure(&carry->new, old, carry->now);
}

static void carry_freeze(struct carry *carry, bool is_frozen)
{
    arena_freeze(&carry->old.states[carry->old.current], is_frozen);
}

/* Reloads in the middle of a history, with these settings and others. */
static void carry_run(struct trial *trial, struct carry *carry, bool is_equal)
{
    struct walk walk;

    walk_begin(trial, &walk, &carry->old);
    for (unsigned i = 0; i < WALK_STEPS; i++) {
        uint64_t amount, ready = walk_ask(&walk, &amount);

        (void)walk_take(&walk, ready, amount);
        carry->now = walk.now;
        carry_freeze(carry, true);
        subject_reconfigure(&carry->new, &carry->old, walk.now);
        carry_freeze(carry, false);
        carry_check(trial, carry);
        carry_holds(trial, carry);
        if (is_equal)
            carry_is_same(trial, carry);
    }
    carry_damaged(trial, carry);
}

void test_reconfigure(struct trial *trial)
{
    const struct weir_algorithm *ops = trial->plugin->ops;
    const struct subject_way way = {.fill = 0}, other = {.fill = 0xdb};
    static struct carry carry;

    if (!ops->reconfigure)
        trial_skip(trial, "it has no reconfigure");
    while (algorithm_next(trial, &carry.old, &way, 0)) {
        bool is_equal = trial_below(trial, 3) == 0;
        uint32_t type = carry.old.settings.setup.limit_type;

        if (is_equal)
            subject_make_again(&carry.new, &carry.old, &way);
        else if (!subject_make(trial, &carry.new, &way, type))
            trial_fail(trial, "accepts no other settings");
        subject_make_again(&carry.again, &carry.new, &other);
        carry_run(trial, &carry, is_equal);
        subject_free(&carry.old);
        subject_free(&carry.new);
        subject_free(&carry.again);
    }
}

/* ---- migrate ---- */

/* The state of an unknown version: of any size, and with any bytes. */
static void migrate_choose(struct trial *trial, struct arena *ret, size_t usual_size)
{
    size_t size = trial_below(trial, 3) ? 8 * (size_t)trial_below(trial, 32) : usual_size;

    arena_make(trial, ret, "the state of another version", size, trial_below(trial, 2));
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = trial_random(trial) >> trial_below(trial, 64);

        memcpy(ret->data + i, &word, 8);
    }
    arena_freeze(ret, true);
}

void test_migrate(struct trial *trial)
{
    static const char *const versions[] = {"",    "0", "1",        "1.0",
                                           "0.9", "2", "99.99.99", "a version"};
    const struct weir_algorithm *ops = trial->plugin->ops;
    const struct subject_way way = {.fill = 0}, other = {.fill = 0xdb};
    struct subject subject, again;

    if (!ops->migrate)
        trial_skip(trial, "it has no migrate");
    while (algorithm_next(trial, &subject, &way, 0)) {
        subject_make_again(&again, &subject, &other);
        for (unsigned i = 0; i < 50; i++) {
            const char *version =
                trial_below(trial, 3)
                    ? versions[trial_below(trial, sizeof(versions) / sizeof(*versions))]
                    : trial->plugin->version;
            uint64_t now = trial_magnitude(trial, WEIR_CLOCK_MAX);
            struct arena old;
            int r;

            migrate_choose(trial, &old, subject.footprint.state);
            r = subject_migrate(&subject, version, &old, now);
            if (r != 0 && r != -1)
                trial_fail(trial, "migrate returns %d, neither 0 nor -1", r);
            if (subject_migrate(&again, version, &old, now) != r ||
                (r == 0 && memcmp(subject_state(&subject), subject_state(&again),
                                  subject.footprint.state) != 0))
                trial_fail(trial, "migrate depends on uninitialized memory or on addresses");
            if (r == 0 && ops->check && subject_check(&subject) != 0)
                trial_fail(trial, "migrate makes a state that check refuses, of version `%s`",
                           version);
            arena_free(&old);
        }
        subject_free(&subject);
        subject_free(&again);
    }
}

/* ---- files of time zones ---- */

/* Damages a file that is right, or cuts it off, or makes one of anything. */
static size_t zone_choose(struct trial *trial, unsigned char bytes[256])
{
    size_t size = settings_write_zone(bytes);
    uint64_t how = trial_below(trial, 4);

    for (uint64_t i = trial_below(trial, 8); how && i > 0; i--)
        bytes[trial_below(trial, size)] = (unsigned char)trial_random(trial);
    if (how == 2)
        size = trial_below(trial, size + 1);
    for (size_t i = 20; how == 3 && i < 44; i++)
        bytes[i] = (unsigned char)(trial_random(trial) >> trial_below(trial, 56));
    return size;
}

void test_zone(struct trial *trial)
{
    const struct subject_way way = {.fill = 0};
    unsigned char bytes[256];
    struct subject subject;

    if (!settings_have_zone(trial->plugin))
        trial_skip(trial, "it has no parameter of type zone");
    while (trial_next(trial)) {
        size_t size = zone_choose(trial, bytes);
        struct arena file;

        if (!size)
            continue;
        arena_make(trial, &file, "the file of its zone", (size + 7) / 8 * 8, true);
        memcpy(file.data + file.size - size, bytes, size);
        arena_freeze(&file, true);
        settings_use_zone(file.data + file.size - size, size);
        if (subject_make(trial, &subject, &way, 0)) {
            struct walk walk;

            walk_all(trial, &walk, &subject);
            subject_free(&subject);
        }
        arena_free(&file);
    }
}
