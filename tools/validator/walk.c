/* SPDX-License-Identifier: MIT */
#include "walk.h"
#include <string.h>

/* A third of the histories begins near the end of the clock, or at its beginning. */
void walk_begin(struct trial *trial, struct walk *ret, struct subject *subject)
{
    memset(ret, 0, sizeof(*ret));
    ret->subject = subject;
    switch (trial_below(trial, 6)) {
    case 0:
        ret->now = trial_below(trial, 3);
        break;
    case 1:
        ret->now = WEIR_CLOCK_MAX - trial_magnitude(trial, UINT64_C(1) << 40);
        break;
    default:
        ret->now = trial_magnitude(trial, WEIR_CLOCK_MAX / 2);
    }
    subject_init(subject, ret->now);
}

static void walk_note(struct walk *walk, uint64_t answer)
{
    if (walk->trace_n < sizeof(walk->trace) / sizeof(walk->trace[0]))
        walk->trace[walk->trace_n++] = answer;
}

/* Goes on to an instant, but not beyond the end of the clock. */
static void walk_until(struct walk *walk, uint64_t at)
{
    if (at > walk->now)
        walk->now = at < WEIR_CLOCK_MAX ? at : WEIR_CLOCK_MAX;
}

static void walk_wait(struct trial *trial, struct walk *walk)
{
    uint64_t most = UINT64_C(1) << (10 + trial_below(trial, 38));

    if (trial_below(trial, 4))
        walk_until(walk, walk->now + trial_magnitude(trial, most));
}

static void walk_release(struct trial *trial, struct walk *walk)
{
    unsigned i;

    if (!walk->held_n || !subject_is_resource(walk->subject))
        return;
    i = (unsigned)trial_below(trial, walk->held_n);
    if (walk->subject->ops->release) {
        const struct weir_release release = subject_choose_release(
            walk->subject, walk->now, walk->held[i].amount, walk->held[i].granted_ns);

        subject_release(walk->subject, walk->now, &release);
    }
    walk->taken -= walk->held[i].amount;
    walk->held[i] = walk->held[--walk->held_n];
}

static uint64_t walk_choose_amount(struct trial *trial, struct walk *walk)
{
    uint64_t max = walk->subject->footprint.amount_max, available;

    switch (trial_below(trial, 5)) {
    case 0:
        return 1;
    case 1:
        return max;
    case 2:
        available = subject_available(walk->subject, walk->now);
        walk_note(walk, available);
        return available && available <= max ? available : 1;
    default:
        return trial_magnitude(trial, max);
    }
}

uint64_t walk_ask(struct walk *walk, uint64_t *ret_amount)
{
    struct trial *trial = walk->subject->trial;
    uint64_t ready;

    walk_wait(trial, walk);
    if (trial_below(trial, 3) == 0 || walk->held_n == WALK_HELD_MAX)
        walk_release(trial, walk);
    *ret_amount = walk_choose_amount(trial, walk);
    ready = subject_ready_at(walk->subject, walk->now, *ret_amount);
    walk_note(walk, ready);
    if (ready > walk->now && ready <= WEIR_CLOCK_MAX && trial_below(trial, 2)) {
        walk_until(walk, ready);
        ready = subject_ready_at(walk->subject, walk->now, *ret_amount);
    }
    return ready;
}

bool walk_take(struct walk *walk, uint64_t ready, uint64_t amount)
{
    bool is_resource = subject_is_resource(walk->subject);

    if (ready != walk->now || (is_resource && walk->held_n == WALK_HELD_MAX))
        return false;
    subject_take(walk->subject, walk->now, amount);
    if (walk->held_n == WALK_HELD_MAX)
        walk->held_n--;
    walk->held[walk->held_n].amount = amount;
    walk->held[walk->held_n++].granted_ns = walk->now;
    walk->taken = walk->taken + amount < amount ? UINT64_MAX : walk->taken + amount;
    return true;
}

/* A number that stands for some words: FNV-1a (G. Fowler, L. C. Noll, K.-P. Vo), by words. */
static uint64_t walk_digest(const unsigned char *bytes, size_t size)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325), word;

    for (size_t i = 0; i < size; i += sizeof(word)) {
        memcpy(&word, bytes + i, sizeof(word));
        digest = (digest ^ word) * UINT64_C(0x100000001b3);
    }
    return digest;
}

void walk_all(struct trial *trial, struct walk *walk, struct subject *subject)
{
    uint64_t amount;

    walk_begin(trial, walk, subject);
    for (unsigned i = 0; i < WALK_STEPS; i++) {
        uint64_t ready = walk_ask(walk, &amount);

        (void)walk_take(walk, ready, amount);
        walk_note(walk, walk_digest(subject_state(subject), subject->footprint.state));
    }
}
