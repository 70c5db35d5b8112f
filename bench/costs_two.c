/* SPDX-License-Identifier: MIT */
/*
 * Measures two threads on one object, each bound to a processor. The first does its share and reads
 * the clock. The second repeats that work and ends only on request: after one of them has ended, an
 * operation of the other would cost what it costs alone.
 */
#include "costs.h"

enum { SHARE = 2000, SINGLES = 200, BLOCK = 16 };
_Static_assert(SHARE % BLOCK == 0, "a share is whole blocks");

/* State that both threads share. Runs are numbered from 1. */
static struct {
    struct lane *lane; /* NULL: the end */
    _Alignas(64) atomic_uint asked;
    _Alignas(64) atomic_uint over;
    _Alignas(64) _Atomic uint64_t done; /* operations of the second thread in this run */
    atomic_uint left;
} duel;

static void await(atomic_uint *word, unsigned value)
{
    while (atomic_load_explicit(word, memory_order_acquire) != value)
        bench_yield();
}

static void say(atomic_uint *word, unsigned value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

/* ---- the second thread ---- */

static void compete(unsigned run)
{
    void (*loop)(struct object *, unsigned) = duel.lane->work->loop;
    uint64_t done = 0;

    while (atomic_load_explicit(&duel.over, memory_order_relaxed) != run) {
        loop(duel.lane->object, BLOCK);
        done += BLOCK;
        atomic_store_explicit(&duel.done, done, memory_order_relaxed);
    }
}

static void *second(void *unused)
{
    for (unsigned run = 1;; run++) {
        await(&duel.asked, run);
        if (!duel.lane)
            return unused;
        compete(run);
        say(&duel.left, run);
    }
}

/* ---- the first ---- */

static uint64_t done_by_second(void)
{
    return atomic_load_explicit(&duel.done, memory_order_relaxed);
}

/* Starts a run. Returns once the second thread is at work. */
static void begin(struct lane *lane, unsigned run)
{
    duel.lane = lane;
    atomic_store(&duel.done, 0);
    say(&duel.asked, run);
    while (lane && done_by_second() == 0)
        bench_yield();
}

static void end(unsigned run)
{
    say(&duel.over, run);
    await(&duel.left, run);
    duel.lane->done += done_by_second();
}

/* Measures ns of one thread per operation, over both threads, whatever their shares. */
static void run_shares(struct lane *lane, unsigned run)
{
    uint64_t begin_ns, other, slower;
    double ns;

    begin(lane, run);
    other = done_by_second();
    begin_ns = clock_now();
    for (unsigned i = 0; i < SHARE; i += BLOCK)
        lane->work->loop(lane->object, BLOCK);
    ns = (double)(clock_now() - begin_ns);
    other = done_by_second() - other;
    end(run);
    bench_add(lane->two, 2 * ns / (double)(SHARE + other));
    slower = other < SHARE ? other : SHARE;
    lane->shares[2 * SHARES * slower / (SHARE + other)]++;
    lane->done += SHARE;
}

static void run_singles(struct lane *lane, unsigned run)
{
    uint64_t at[SINGLES + 1];

    begin(lane, run);
    at[0] = clock_now();
    for (unsigned i = 1; i <= SINGLES; i++) {
        lane->work->loop(lane->object, 1);
        at[i] = clock_now();
    }
    end(run);
    for (unsigned i = 1; i <= SINGLES; i++)
        bench_add(lane->single, (double)(at[i] - at[i - 1]));
    lane->done += SINGLES;
}

void two_round(struct lanes *lanes, unsigned samples)
{
    pthread_t thread = bench_start(THERE, second, NULL);
    unsigned run = 0;

    for (unsigned i = 0; i < samples; i++)
        for (unsigned j = 0; j < lanes->n; j++) {
            struct lane *lane = &lanes->items[i % 2 == 0 ? j : lanes->n - 1 - j];

            if (lane->two)
                run_shares(lane, ++run);
            if (lane->single)
                run_singles(lane, ++run);
        }
    begin(NULL, ++run);
    require(pthread_join(thread, NULL) == 0);
    atomic_store(&duel.asked, 0);
    atomic_store(&duel.over, 0);
    atomic_store(&duel.left, 0);
}
