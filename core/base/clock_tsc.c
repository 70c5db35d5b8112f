/* SPDX-License-Identifier: MIT */
/* Readings of CLOCK_MONOTONIC that are shared while they are fresh. */
#include "base/clock_tsc.h"

#include "base/mutant.h"
#include "base/sched_point.h"
#include "os/os.h"
#include <errno.h>

/* For how long the counter is measured, within which error (1 / PRECISION), how often that is tried
 * if the thread is interrupted, and how often the clock is asked for it: one that moves has then. */
#define MEASURE_NS UINT64_C(20000)
enum { PRECISION = 32, TRIES = 8, READINGS = 100000 };

/* A longer gap is no longer compared: the product must fit. */
#define GAP_TICKS_MAX (UINT64_C(1) << 40)

/* A reading of the clock between two of the counter. */
struct bracket {
    uint64_t before, ns, after;
};

static struct bracket bracket_read(void)
{
    struct bracket bracket;

    bracket.before = sys_tsc();
    bracket.ns = sys_now_ns();
    bracket.after = sys_tsc();
    return bracket;
}

/* How many ticks are fresh by what went by between two readings; 0: that cannot be told. */
static uint64_t fresh_between(const struct bracket *first, const struct bracket *last)
{
    uint64_t least = last->before - first->after, most = last->after - first->before;

    if (first->after < first->before || last->before < first->after || last->after < last->before ||
        most - least > most / PRECISION || most > GAP_TICKS_MAX)
        return 0;
    return least * TSC_FRESH_NS / (last->ns - first->ns);
}

static uint64_t measure_once(void)
{
    struct bracket first = bracket_read(), last = first;

    for (int i = 0; i < READINGS && last.ns - first.ns < MEASURE_NS; i++)
        last = bracket_read();
    return last.ns - first.ns < MEASURE_NS ? 0 : fresh_between(&first, &last);
}

static int measure(struct tsc *tsc)
{
    for (int i = 0; i < TRIES && !tsc->fresh; i++)
        tsc->fresh = measure_once();
    return tsc->fresh ? 0 : -ETIME;
}

int tsc_new(struct tsc **ret)
{
    int r = sys_tsc_usable();
    struct bracket first;
    struct tsc *tsc;

    if (r < 0)
        return r;
    tsc = sys_alloc_aligned(alignof(struct tsc), sizeof(*tsc));
    if (!tsc)
        return -ENOMEM;
    r = measure(tsc);
    if (r < 0) {
        tsc_free(tsc);
        return r;
    }
    first = bracket_read();
    atomic_store(&tsc->ns, first.ns);
    atomic_store(&tsc->ticks, first.before);
    *ret = tsc;
    return 0;
}

void tsc_free(struct tsc *tsc)
{
    sys_free(tsc);
}

/*
 * What the counter has to say of the time since the earlier reading. It was read before that, and
 * is read now after the clock, so more has gone by on it, as far as both run alike; half of that is
 * left to slewing. A little behind it may be read out of order.
 */
static enum tsc_state judge(const struct tsc *tsc, uint64_t ticks, uint64_t ns,
                            const struct bracket *now)
{
    uint64_t gone = now->after - ticks + tsc->fresh;

    if (gone > UINT64_MAX / 2 && !MUTANT(416))
        return TSC_WENT_BACK;
    if (gone > GAP_TICKS_MAX || now->ns < ns)
        return TSC_WORKS;
    if (now->ns - ns > gone * TSC_FRESH_NS / tsc->fresh * 2 && !MUTANT(417))
        return TSC_LOST_TIME;
    return TSC_WORKS;
}

void tsc_give_up(struct tsc *tsc, enum tsc_state why)
{
    enum tsc_state works = TSC_WORKS;

    atomic_compare_exchange_strong(&tsc->state, &works, why);
}

/* Reads the clock, for all. Whoever is stopped before he has said by the counter when it was lets
 * them read it again; if he says so late, all the sooner. */
static uint64_t renew(struct tsc *tsc, uint64_t ticks, uint64_t before)
{
    uint64_t ns = atomic_load_explicit(&tsc->ns, memory_order_relaxed), seen = ns;
    struct bracket now = {.before = before};
    enum tsc_state state;

    now.ns = sys_now_ns();
    now.after = sys_tsc();
    state = judge(tsc, ticks, ns, &now);
    if (state != TSC_WORKS)
        tsc_give_up(tsc, state);
    if (MUTANT(415))
        atomic_store(&tsc->ticks, before);
    STEP();
    while (now.ns > seen && !atomic_compare_exchange_weak(&tsc->ns, &seen, now.ns))
        ;
    if (MUTANT(413))
        atomic_store(&tsc->ns, now.ns);
    STEP();
    if (now.ns > seen)
        atomic_store_explicit(&tsc->ticks, MUTANT(414) ? now.after : before, memory_order_release);
    return now.ns;
}

uint64_t tsc_now(struct tsc *tsc)
{
    uint64_t ticks = atomic_load_explicit(&tsc->ticks, memory_order_acquire), ns, before;

    STEP();
    ns = atomic_load_explicit(&tsc->ns, memory_order_relaxed);
    if (tsc_state(tsc) != TSC_WORKS)
        return sys_now_ns();
    before = sys_tsc();
    if (before - ticks + tsc->fresh <= (MUTANT(412) ? 6 : 2) * tsc->fresh)
        return ns;
    return renew(tsc, ticks, before);
}

uint64_t tsc_now_fresh(struct tsc *tsc)
{
    uint64_t ticks = atomic_load_explicit(&tsc->ticks, memory_order_acquire);

    return tsc_state(tsc) == TSC_WORKS ? renew(tsc, ticks, sys_tsc()) : sys_now_ns();
}
