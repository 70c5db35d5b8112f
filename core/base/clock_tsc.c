/* SPDX-License-Identifier: MIT */
/* Readings of CLOCK_MONOTONIC, shared while the time stamp counter says that they are fresh. */
#include "base/clock.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "os/os.h"
#include <errno.h>

/* Measurement of the TSC: duration, maximum error (1 / MEASURE_PRECISION), attempts in case the
 * thread is interrupted, and clock readings per attempt, enough unless the clock stands still. */
#define MEASURE_NS UINT64_C(20000)
enum { MEASURE_PRECISION = 32, TRIES = 8, MEASURE_READINGS_MAX = 100000 };

/* Longest gap that clock_tsc_check compares: its product must fit 64 bits. */
#define GAP_TICKS_MAX (UINT64_C(1) << 40)

/* A clock reading between two TSC readings. */
struct clock_tsc_bracket {
    uint64_t before, ns, after;
};

static struct clock_tsc_bracket clock_tsc_read_bracket(void)
{
    struct clock_tsc_bracket bracket;

    bracket.before = os_tsc_read();
    bracket.ns = os_now_ns();
    bracket.after = os_tsc_read();
    return bracket;
}

/* Returns TSC_FRESH_NS in ticks, as measured between two brackets; 0: not precise enough. */
static uint64_t clock_tsc_fresh_ticks(const struct clock_tsc_bracket *first,
                                      const struct clock_tsc_bracket *last)
{
    uint64_t least = last->before - first->after, most = last->after - first->before;

    if (first->after < first->before || last->before < first->after || last->after < last->before)
        return 0; /* the TSC went back */
    if (most - least > most / MEASURE_PRECISION || most > GAP_TICKS_MAX)
        return 0;
    WEIR_INVARIANT(last->ns > first->ns && least <= most);
    return least * TSC_FRESH_NS / (last->ns - first->ns);
}

static uint64_t clock_tsc_measure_once(void)
{
    struct clock_tsc_bracket first = clock_tsc_read_bracket(), last = first;

    for (int i = 0; i < MEASURE_READINGS_MAX && last.ns - first.ns < MEASURE_NS; i++)
        last = clock_tsc_read_bracket();
    return last.ns - first.ns < MEASURE_NS ? 0 : clock_tsc_fresh_ticks(&first, &last);
}

int clock_tsc_new(struct clock_tsc **ret)
{
    int r = os_tsc_check();
    uint64_t fresh_ticks = 0;
    struct clock_tsc_bracket first;
    struct clock_tsc *tsc;

    if (r < 0)
        return r;
    for (int i = 0; i < TRIES && !fresh_ticks; i++)
        fresh_ticks = clock_tsc_measure_once();
    if (!fresh_ticks)
        return -ETIME;
    tsc = os_alloc_aligned(alignof(struct clock_tsc), sizeof(*tsc));
    if (!tsc)
        return -ENOMEM;
    tsc->fresh_ticks = fresh_ticks;
    first = clock_tsc_read_bracket();
    atomic_store_explicit(&tsc->ns, first.ns, memory_order_seq_cst);
    atomic_store_explicit(&tsc->ticks, first.before, memory_order_seq_cst);
    *ret = tsc;
    return 0;
}

/*
 * Compares the TSC with the clock since the shared reading. The TSC was read before that reading
 * and now after the clock, so its interval is the longer one if both run alike. The clock may run
 * up to twice as fast, because of slewing. The TSC may be behind by TSC_FRESH_NS, because it is
 * read out of order.
 */
static enum clock_tsc_state clock_tsc_check(const struct clock_tsc *tsc, uint64_t ticks,
                                            uint64_t ns, const struct clock_tsc_bracket *now)
{
    uint64_t elapsed_ticks = now->after - ticks + tsc->fresh_ticks;

    if (elapsed_ticks > UINT64_MAX / 2)
        return TSC_WENT_BACK;
    if (elapsed_ticks > GAP_TICKS_MAX || now->ns < ns)
        return TSC_OK;
    if (now->ns - ns > elapsed_ticks * TSC_FRESH_NS / tsc->fresh_ticks * 2)
        return TSC_LOST_TIME;
    return TSC_OK;
}

void clock_tsc_disable(struct clock_tsc *tsc, enum clock_tsc_state why)
{
    enum clock_tsc_state ok = TSC_OK;

    WEIR_INVARIANT(why != TSC_OK);
    atomic_compare_exchange_strong_explicit(&tsc->state, &ok, why, memory_order_seq_cst,
                                            memory_order_seq_cst);
}

/* Reads the clock and shares the reading: stores `ns`, then `ticks`. If the thread stops between
 * the two, other threads read the clock again. If it stores `ticks` late, the value is older than
 * that of `ns`, so the reading expires earlier. The relaxed load only serves the check. */
static uint64_t clock_tsc_refresh(struct clock_tsc *tsc, uint64_t ticks, uint64_t before)
{
    uint64_t ns = atomic_load_explicit(&tsc->ns, memory_order_relaxed);
    struct clock_tsc_bracket now = {.before = before};
    enum clock_tsc_state state;

    WEIR_INVARIANT(tsc->fresh_ticks != 0);
    now.ns = os_now_ns();
    now.after = os_tsc_read();
    state = clock_tsc_check(tsc, ticks, ns, &now);
    if (state != TSC_OK)
        clock_tsc_disable(tsc, state);
    SCHED_POINT();
    if (shm_raise_seq_cst(&tsc->ns, now.ns) < now.ns)
        atomic_store_explicit(&tsc->ticks, before, memory_order_release);
    return now.ns;
}

/* The acquire load of `ticks` orders the relaxed load of `ns`: it is at least as new. */
uint64_t clock_tsc_now(struct clock_tsc *tsc)
{
    uint64_t ticks = atomic_load_explicit(&tsc->ticks, memory_order_acquire), ns, before;

    SCHED_POINT();
    ns = atomic_load_explicit(&tsc->ns, memory_order_relaxed);
    if (clock_tsc_state(tsc) != TSC_OK)
        return os_now_ns();
    before = os_tsc_read();
    if (before - ticks + tsc->fresh_ticks <= 2 * tsc->fresh_ticks)
        return ns;
    return clock_tsc_refresh(tsc, ticks, before);
}

uint64_t clock_tsc_now_fresh(struct clock_tsc *tsc)
{
    uint64_t ticks = atomic_load_explicit(&tsc->ticks, memory_order_acquire);

    return clock_tsc_state(tsc) == TSC_OK ? clock_tsc_refresh(tsc, ticks, os_tsc_read())
                                          : os_now_ns();
}
