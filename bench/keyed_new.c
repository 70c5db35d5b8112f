/* SPDX-License-Identifier: MIT */
/*
 * Measures takes of subjects that a set has never seen, beside the least that these cost: the hash
 * of the subject, a slot of a table as large that is in no cache, the clock, a CAS of the slot.
 * Both begin with memory that was never used.
 */
#include "base/siphash.h"
#include "keyed.h"

#include <stdatomic.h>
#include <sys/mman.h>

enum { BATCH = 2000 };

#define LARGE_PAGE ((size_t)2 << 20)

/* Open addressing, at most half full, with the hash of the library. */
struct slot {
    _Atomic uint64_t id; /* 0: free */
    _Atomic uint64_t word;
};

static struct {
    uint64_t n;
    uint64_t mask;
    unsigned char *memory;
    struct slot *slots;
    struct bench_figure *raw, *own;
} fresh;

static const struct siphash_secret secret = {{1, 2}};

static size_t memory_size(void)
{
    return (fresh.mask + 1) * sizeof(struct slot) + LARGE_PAGE;
}

/* Maps a table in large pages, if the system has some, as the library does. */
static void table_open(void)
{
    fresh.mask = 1;
    while (fresh.mask + 1 < 2 * fresh.n)
        fresh.mask = 2 * fresh.mask + 1;
    fresh.memory =
        mmap(NULL, memory_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(fresh.memory != MAP_FAILED);
    fresh.slots =
        (struct slot *)(void *)(fresh.memory + LARGE_PAGE - (uintptr_t)fresh.memory % LARGE_PAGE);
    (void)madvise(fresh.slots, memory_size() - LARGE_PAGE, MADV_HUGEPAGE);
}

/* Takes for a subject that is not in the table. Returns false if another thread was faster. */
static inline bool table_take_new(uint64_t subject)
{
    struct key_digest key;
    uint64_t at, now, none = 0;

    siphash_128(&secret, &subject, sizeof(subject), &key);
    at = key.buckets & fresh.mask;
    __builtin_prefetch(&fresh.slots[at]);
    now = clock_now();
    while (atomic_load_explicit(&fresh.slots[at].id, memory_order_acquire))
        at = (at + 1) & fresh.mask;
    if (!atomic_compare_exchange_strong_explicit(&fresh.slots[at].id, &none, key.id | 1,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return false;
    atomic_store_explicit(&fresh.slots[at].word, now, memory_order_release);
    return true;
}

void new_open(struct bench *bench, uint64_t n)
{
    fresh.n = n;
    if (!bench_wants(bench, ", most subjects, each new"))
        return;
    fresh.raw = bench_figure(bench, NULL, "raw: hash + find + clock + CAS, each new");
    fresh.own = bench_figure(bench, fresh.raw, "take, most subjects, each new");
}

static void add_batch(struct bench_figure *figure, weir_pool *pool, uint64_t from)
{
    uint64_t begin = clock_now();

    for (uint64_t i = from; i < from + BATCH; i++)
        require(pool ? set_take(pool, subject_of(i)) == 0 : table_take_new(subject_of(i)));
    bench_add(figure, (double)(clock_now() - begin) / BATCH);
}

void new_round(void)
{
    weir_pool *pool;
    weir *w;

    if (!fresh.own)
        return;
    w = bench_instance(NULL);
    pool = open_set(w, "fresh", fresh.n, 1, KEPT_WINDOW);
    table_open();
    for (uint64_t i = 0; i + BATCH <= fresh.n; i += BATCH) {
        add_batch(fresh.raw, NULL, i);
        add_batch(fresh.own, pool, i);
    }
    require(keys_of(pool).known == fresh.n / BATCH * BATCH);
    munmap(fresh.memory, memory_size());
    weir_pool_close(pool);
    weir_close(w);
}
