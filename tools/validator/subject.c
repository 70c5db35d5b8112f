/* SPDX-License-Identifier: MIT */
#include "subject.h"
#include <stdio.h>
#include <string.h>

#define SUBJECT_TRIES     200u                /* so many settings may be refused in a row */
#define SUBJECT_STATE_MAX (UINT64_C(1) << 16) /* larger states would take too long */

static const char *subject_type_name(uint32_t type)
{
    return type == WEIR_LIMIT_RATE   ? "type: rate"
           : type == WEIR_LIMIT_CALL ? "type: call"
                                     : "type: resource";
}

/* One of the limit types that the algorithm serves. */
static uint32_t subject_choose_type(struct trial *trial, uint32_t types)
{
    uint32_t type;

    if (!(types & (1u << WEIR_LIMIT_RATE | 1u << WEIR_LIMIT_CALL | 1u << WEIR_LIMIT_RESOURCE)))
        trial_fail(trial, "serves no type of limit");
    do {
        type = 1 + (uint32_t)trial_below(trial, 3);
    } while (!(types & 1u << type));
    return type;
}

static void subject_check_footprint(struct trial *trial, const struct weir_footprint *footprint)
{
    if (footprint->config > WEIR_CONFIG_MAX)
        trial_fail(trial, "wants %llu bytes of configuration, more than WEIR_CONFIG_MAX",
                   (unsigned long long)footprint->config);
    if (footprint->state > WEIR_STATE_MAX || footprint->state % 8)
        trial_fail(trial,
                   "wants %llu bytes of state: not a multiple of 8, or more than WEIR_STATE_MAX",
                   (unsigned long long)footprint->state);
    if (footprint->flags & WEIR_FLAGS_NEEDED)
        trial_fail(trial, "needs a newer weir: the flags 0x%x of its footprint are unknown here",
                   footprint->flags & WEIR_FLAGS_NEEDED);
    if (!footprint->amount_max)
        trial_fail(trial, "says amount_max 0");
}

/* Calls `configure`, at first without memory. Returns what it does. */
static int subject_configure(struct subject *subject, void *config, struct weir_footprint *ret)
{
    struct trial *trial = subject->trial;
    struct weir_reason reason = {.size = sizeof(reason), .parameter = UINT32_MAX - 1};
    int r;

    *ret = (struct weir_footprint){.size = sizeof(*ret)};
    memset(reason.message, 'x', sizeof(reason.message));
    trial_note(trial, config ? "configure" : "configure without memory", 0, 0);
    trial_fill_stack(subject->way.fill);
    r = subject->ops->configure(&subject->settings.setup, config, ret, &reason);
    if (ret->size != sizeof(*ret) || reason.size != sizeof(reason))
        trial_fail(trial, "configure changes a size that is the library's");
    if (r != 0 && r != -1)
        trial_fail(trial, "configure returns %d, neither 0 nor -1", r);
    if (r == -1 && (!memchr(reason.message, 0, sizeof(reason.message)) || !reason.message[0]))
        trial_fail(trial, "configure refuses without a reason");
    if (r == -1 && reason.parameter != UINT32_MAX &&
        reason.parameter >= trial->plugin->parameters_n)
        trial_fail(trial, "configure blames parameter %u of %u", reason.parameter,
                   trial->plugin->parameters_n);
    return r;
}

/* Makes configuration and states, once the settings are chosen. False: they are refused, or the
 * state is too large to be tried. */
static bool subject_build(struct subject *subject)
{
    struct trial *trial = subject->trial;
    struct weir_footprint again;
    bool at_the_end = subject->way.fill & 1;

    settings_describe(trial, &subject->settings,
                      subject_type_name(subject->settings.setup.limit_type));
    if (subject_configure(subject, NULL, &subject->footprint) < 0)
        return false;
    subject_check_footprint(trial, &subject->footprint);
    if (subject->footprint.state > SUBJECT_STATE_MAX) {
        subject->is_too_large = true;
        return false;
    }
    arena_make(trial, &subject->config, "its configuration", subject->footprint.config, at_the_end);
    if (subject_configure(subject, subject->config.data, &again) < 0)
        trial_fail(trial, "configure accepts at first, and refuses then");
    if (memcmp(&again, &subject->footprint, sizeof(again)) != 0)
        trial_fail(trial, "configure says another footprint at its second call");
    arena_check(trial, &subject->config);
    arena_freeze(&subject->config, true);
    for (unsigned i = 0; i < 2; i++)
        arena_make(trial, &subject->states[i], "its state", subject->footprint.state,
                   at_the_end == (i == 0));
    arena_make(trial, &subject->other, "another state", subject->footprint.state, true);
    return true;
}

bool subject_make(struct trial *trial, struct subject *ret, const struct subject_way *way,
                  uint32_t limit_type)
{
    const struct weir_algorithm *ops = trial->plugin->ops;
    bool is_too_large = false;

    for (unsigned i = 0; i < SUBJECT_TRIES; i++) {
        memset(ret, 0, sizeof(*ret));
        ret->trial = trial;
        ret->ops = ops;
        ret->way = *way;
        if (!settings_choose(trial, &ret->settings))
            continue;
        ret->settings.setup.limit_type =
            limit_type ? limit_type : subject_choose_type(trial, ops->types);
        if (subject_build(ret))
            return true;
        is_too_large |= ret->is_too_large;
    }
    if (is_too_large)
        trial_skip(trial, "its states are too large");
    return false;
}

void subject_make_again(struct subject *ret, const struct subject *like,
                        const struct subject_way *way)
{
    memset(ret, 0, sizeof(*ret));
    ret->trial = like->trial;
    ret->ops = like->ops;
    ret->way = *way;
    ret->settings = like->settings;
    settings_bind(&ret->settings);
    if (!subject_build(ret))
        trial_fail(like->trial, "configure refuses what it has accepted before");
}

void subject_free(struct subject *subject)
{
    arena_free(&subject->config);
    arena_free(&subject->states[0]);
    arena_free(&subject->states[1]);
    arena_free(&subject->other);
}

void *subject_state(const struct subject *subject)
{
    return subject->states[subject->current].data;
}

bool subject_is_resource(const struct subject *subject)
{
    return subject->settings.setup.limit_type == WEIR_LIMIT_RESOURCE;
}

void subject_copy(struct subject *subject, const struct subject *from)
{
    memcpy(subject_state(subject), subject_state(from), from->footprint.state);
}

/* ---- calls ---- */

static struct weir_instant subject_instant(const struct subject *subject, uint64_t now)
{
    return (struct weir_instant){.now_ns = now, .wall_offset_ns = subject->way.wall_offset_ns};
}

/* Uses another state, so that what is kept anywhere else is confused. */
static void subject_disturb(struct subject *subject, uint64_t now)
{
    const struct weir_instant at = subject_instant(subject, now / 2);

    memset(subject->other.data, 0, subject->other.size);
    if (subject->ops->init)
        subject->ops->init(subject->config.data, subject->other.data, &at);
    if (subject->ops->ready_at(subject->config.data, subject->other.data, &at, 1) == at.now_ns)
        subject->ops->take(subject->config.data, subject->other.data, &at, 1);
}

/* Prepares a call. `is_pure`: it must not change the state. */
static struct weir_instant subject_begin(struct subject *subject, const char *function,
                                         uint64_t now, uint64_t amount, bool is_pure)
{
    trial_note(subject->trial, function, now, amount);
    if (subject->way.is_disturbed)
        subject_disturb(subject, now);
    if (subject->way.moves) {
        struct arena *old = &subject->states[subject->current];

        subject->current = !subject->current;
        memcpy(subject_state(subject), old->data, old->size);
        memset(old->data, 0xee, old->size);
    }
    if (subject->way.is_frozen && is_pure)
        arena_freeze(&subject->states[subject->current], true);
    trial_fill_stack(subject->way.fill);
    return subject_instant(subject, now);
}

static void subject_end(struct subject *subject)
{
    struct arena *state = &subject->states[subject->current];

    if (state->is_frozen)
        arena_freeze(state, false);
    arena_check(subject->trial, state);
}

void subject_init(struct subject *subject, uint64_t now)
{
    struct weir_instant at;

    memset(subject_state(subject), 0, subject->footprint.state);
    if (!subject->ops->init)
        return;
    at = subject_begin(subject, "init", now, 0, false);
    subject->ops->init(subject->config.data, subject_state(subject), &at);
    subject_end(subject);
}

uint64_t subject_ready_at(struct subject *subject, uint64_t now, uint64_t amount)
{
    const struct weir_instant at = subject_begin(subject, "ready_at", now, amount, true);
    uint64_t ready =
        subject->ops->ready_at(subject->config.data, subject_state(subject), &at, amount);

    subject_end(subject);
    return ready;
}

uint64_t subject_try_take(struct subject *subject, uint64_t now, uint64_t amount)
{
    const struct weir_instant at = subject_begin(subject, "try_take", now, amount, false);
    uint64_t ready =
        subject->ops->try_take(subject->config.data, subject_state(subject), &at, amount);

    subject_end(subject);
    return ready;
}

uint64_t subject_available(struct subject *subject, uint64_t now)
{
    const struct weir_instant at = subject_begin(subject, "available", now, 0, true);
    uint64_t available = subject->ops->available(subject->config.data, subject_state(subject), &at);

    subject_end(subject);
    return available;
}

void subject_take(struct subject *subject, uint64_t now, uint64_t amount)
{
    const struct weir_instant at = subject_begin(subject, "take", now, amount, false);

    subject->ops->take(subject->config.data, subject_state(subject), &at, amount);
    subject_end(subject);
}

void subject_refund(struct subject *subject, uint64_t now, uint64_t amount, uint64_t granted_ns)
{
    const struct weir_instant at = subject_begin(subject, "refund", now, amount, false);

    subject->ops->refund(subject->config.data, subject_state(subject), &at, amount, granted_ns);
    subject_end(subject);
}

void subject_refund_strict(struct subject *subject, uint64_t now, uint64_t amount,
                           uint64_t granted_ns)
{
    const struct weir_instant at = subject_begin(subject, "refund_strict", now, amount, false);

    subject->ops->refund_strict(subject->config.data, subject_state(subject), &at, amount,
                                granted_ns);
    subject_end(subject);
}

void subject_charge(struct subject *subject, uint64_t now, uint64_t amount)
{
    const struct weir_instant at = subject_begin(subject, "charge", now, amount, false);

    subject->ops->charge(subject->config.data, subject_state(subject), &at, amount);
    subject_end(subject);
}

void subject_release(struct subject *subject, uint64_t now, const struct weir_release *release)
{
    const struct weir_instant at = subject_begin(subject, "release", now, release->amount, false);

    subject->ops->release(subject->config.data, subject_state(subject), &at, release);
    subject_end(subject);
}

struct weir_release subject_choose_release(struct subject *subject, uint64_t now, uint64_t amount,
                                           uint64_t granted_ns)
{
    struct trial *trial = subject->trial;
    struct weir_release release = {.size = sizeof(release),
                                   .amount = amount,
                                   .granted_ns = granted_ns,
                                   .latency_ns = now > granted_ns ? now - granted_ns : 0,
                                   .outcome =
                                       (uint32_t)trial_below(trial, WEIR_OUTCOME_CANCELED + 3)};

    if (trial_below(trial, 4) == 0) /* as the program says */
        release.latency_ns = trial_random(trial) >> trial_below(trial, 64);
    if (trial_below(trial, 8) == 0)
        release.outcome = UINT32_MAX;
    return release;
}

void subject_observe(struct subject *subject, uint64_t now, uint64_t *ret)
{
    const struct weir_instant at = subject_begin(subject, "observe", now, 0, true);

    subject->ops->observe(subject->config.data, subject_state(subject), &at, ret);
    subject_end(subject);
}

void subject_reconfigure(struct subject *subject, const struct subject *old, uint64_t now)
{
    struct weir_instant at;

    memset(subject_state(subject), 0, subject->footprint.state);
    at = subject_begin(subject, "reconfigure", now, 0, false);
    subject->ops->reconfigure(old->config.data, subject_state(old), subject->config.data,
                              subject_state(subject), &at);
    subject_end(subject);
    arena_check(subject->trial, &old->states[old->current]);
}

int subject_migrate(struct subject *subject, const char *version, const struct arena *old,
                    uint64_t now)
{
    struct weir_instant at;
    int r;

    memset(subject_state(subject), 0, subject->footprint.state);
    at = subject_begin(subject, "migrate", now, old->size, false);
    r = subject->ops->migrate(version, old->data, old->size, subject->config.data,
                              subject_state(subject), &at);
    subject_end(subject);
    return r;
}

int subject_check(struct subject *subject)
{
    int r;

    (void)subject_begin(subject, "check", 0, 0, true);
    r = subject->ops->check(subject->config.data, subject_state(subject));
    subject_end(subject);
    return r;
}

int subject_is_new(struct subject *subject, uint64_t now)
{
    const struct weir_instant at = subject_begin(subject, "is_new", now, 0, true);
    int r = subject->ops->is_new(subject->config.data, subject_state(subject), &at);

    subject_end(subject);
    return r;
}
