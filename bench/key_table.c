/* SPDX-License-Identifier: MIT */
/*
 * Measures decisions on one of very many keys, in the key table itself (core/shm/key_table.h),
 * beside a bare lookup in a table with open addressing and a CAS of 8 bytes.
 *
 *     key_table [--seconds S] [--rounds N] [--samples N] [--only TEXT] [KEYS ...]
 *
 *     bare, KEYS           linear probing of 16-byte entries, half of them used; the hash is given,
 *                          so that the processor begins with the next key while it waits for one
 *     decide, KEYS         find and swap, the hash is given; all keys one after the other, which is
 *                          no order in the tables
 *     hash + bare, KEYS    bare with the table's hash of a key of 16 bytes
 *     hash + decide, KEYS  decide with that hash: the cost of one decision
 *     new key, KEYS        hash, look, claim and commit, in a table full of keys that may be
 *                          removed
 *
 * KEYS: 100000 and 1000000 if not given.
 */
#include "shm/key_table.h"
#include "bench.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { BATCH = 4000, SAMPLES = 40, SIZES_MAX = 8 };

#define LARGE_PAGE ((size_t)2 << 20)

/* The bare table. */
struct bare {
    uint64_t id; /* 0: empty */
    _Atomic uint64_t word;
};

struct size {
    uint64_t keys_n;
    struct key_digest *keys;
    struct bare *bare;
    uint64_t bare_n;
    struct key_table table, worn; /* for decisions; for new keys, which replace others */
    uint64_t at, at_new;          /* next key of a batch */
    uint64_t decided, decided_bare, made;
    struct probe_stats filled, replaced;
    uint64_t claimant;
    struct bench_figure *figures[5];
};

static const struct siphash_secret secret = {{1, 2}};

/* Returns zeroed memory, allocated only where it is used, in large pages if the system allows. It
 * is never freed. */
static void *memory_new(size_t size)
{
    unsigned char *memory = mmap(NULL, size + LARGE_PAGE, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    require(memory != MAP_FAILED);
    memory += LARGE_PAGE - (uintptr_t)memory % LARGE_PAGE;
    (void)madvise(memory, size, MADV_HUGEPAGE);
    return memory;
}

static inline struct key_digest key_of(uint64_t number)
{
    const uint64_t client[2] = {number, ~number};
    struct key_digest key;

    siphash_128(&secret, client, sizeof(client), &key);
    return key;
}

/* ---- bare ---- */

static inline struct bare *bare_find(const struct size *size, const struct key_digest *key)
{
    uint64_t i = (key->buckets >> 32) * size->bare_n >> 32;

    while (size->bare[i].id != key->id && size->bare[i].id)
        i = i + 1 < size->bare_n ? i + 1 : 0;
    return &size->bare[i];
}

static inline void decide_bare(struct size *size, const struct key_digest *key)
{
    struct bare *entry = bare_find(size, key);
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_acquire);

    size->decided_bare += atomic_compare_exchange_strong(&entry->word, &word, word + 1);
}

static inline uint64_t next_of(struct size *size)
{
    const uint64_t at = size->at;

    size->at = at + 1 < size->keys_n ? at + 1 : 0;
    return at;
}

static void run_bare(struct size *size, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        decide_bare(size, &size->keys[next_of(size)]);
}

static void run_hash_bare(struct size *size, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        const struct key_digest key = key_of(next_of(size));

        decide_bare(size, &key);
    }
}

/* ---- the table ---- */

static inline void decide(struct size *size, const struct key_digest *key)
{
    struct key_entry entry;

    if (key_table_find(&size->table, key, &entry))
        size->decided += key_entry_swap(&entry, entry.word + 1) == KEY_SWAPPED;
}

static void run_decide(struct size *size, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        decide(size, &size->keys[next_of(size)]);
}

static void run_hash_decide(struct size *size, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        const struct key_digest key = key_of(next_of(size));

        decide(size, &key);
    }
}

static enum key_use is_new(const void *userdata, uint64_t id, uint64_t word, uint64_t *ret_instant)
{
    (void)userdata;
    (void)id;
    (void)word;
    (void)ret_instant;
    return KEY_AS_NEW;
}

static enum key_use is_live(const void *userdata, uint64_t id, uint64_t word, uint64_t *ret_instant)
{
    (void)userdata;
    (void)id;
    *ret_instant = word;
    return KEY_EVICTABLE;
}

static bool put(const struct key_table *table, const struct key_digest *key, struct size *size,
                enum key_use (*use)(const void *, uint64_t, uint64_t, uint64_t *),
                struct probe_stats *tally)
{
    const struct key_policy policy = {use, NULL, KEY_EVICT_OLDEST, NULL};
    struct key_entry entry;

    return !key_table_find(table, key, &entry) &&
           key_table_claim(table, key, &policy, &size->claimant, &entry, tally) == KEY_CLAIMED &&
           key_claim_commit(&entry, 1);
}

static void run_new(struct size *size, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        const struct key_digest key = key_of(size->at_new++);

        size->made += put(&size->worn, &key, size, is_new, &size->replaced);
    }
}

/* Works, each after its baseline. */
static const struct {
    const char *name;
    void (*run)(struct size *size, unsigned n);
    int baseline; /* index of the baseline; -1: this is bare */
} works[] = {{"bare", run_bare, -1},
             {"decide", run_decide, 0},
             {"hash + bare", run_hash_bare, -1},
             {"hash + decide", run_hash_decide, 2},
             {"new key", run_new, 2}};
enum { WORKS = sizeof(works) / sizeof(works[0]) };

/* ---- main ---- */

static void table_new(struct key_table *ret, uint64_t keys_n)
{
    require(key_table_open(ret, memory_new(key_table_size(keys_n)), keys_n) == 0);
}

static void size_fill(struct size *size)
{
    for (uint64_t i = 0; i < size->keys_n; i++) {
        const struct key_digest key = key_of(i);
        struct probe_stats unused = {0};

        size->keys[i] = key;
        bare_find(size, &key)->id = key.id;
        require(put(&size->table, &key, size, is_live, &size->filled));
        require(put(&size->worn, &key, size, is_live, &unused));
    }
}

static void size_new(struct size *ret, struct bench *bench, uint64_t keys_n)
{
    *ret = (struct size){.keys_n = keys_n, .bare_n = 2 * keys_n, .at_new = keys_n};
    ret->keys = memory_new(keys_n * sizeof(*ret->keys));
    ret->bare = memory_new(ret->bare_n * sizeof(*ret->bare));
    table_new(&ret->table, keys_n);
    table_new(&ret->worn, keys_n);
    size_fill(ret);
    for (int i = 0; i < WORKS; i++) {
        const int baseline = works[i].baseline;
        char name[BENCH_NAME];

        snprintf(name, sizeof(name), "%s, %lu keys", works[i].name, (unsigned long)keys_n);
        if (baseline < 0 || bench_wants(bench, name))
            ret->figures[i] =
                bench_figure(bench, baseline < 0 ? NULL : ret->figures[baseline], "%s", name);
    }
    bench_value(bench, (double)key_table_size(keys_n) / (double)keys_n, "B", "memory of a key, %lu",
                (unsigned long)keys_n);
    bench_value(bench, (double)ret->filled.evicted, "keys", "evicted while it filled, %lu",
                (unsigned long)keys_n);
}

static void run_batch(struct size *size, int work)
{
    uint64_t begin = clock_now();

    works[work].run(size, BATCH);
    bench_add(size->figures[work], (double)(clock_now() - begin) / BATCH);
}

static void size_round(struct size *size, unsigned samples)
{
    for (unsigned i = 0; i < samples; i++)
        for (int j = 0; j < WORKS; j++) {
            const int work = i % 2 ? WORKS - 1 - j : j;

            if (size->figures[work])
                run_batch(size, work);
        }
}

/* Requires that each key that was inserted and not evicted was found, and that no word is lost. */
static void size_check(const struct size *size)
{
    uint64_t sum = 0, n = 0, bare = 0;

    for (uint64_t i = 0; i < key_table_slots(&size->table); i++) {
        struct key_entry entry;

        if (!key_table_at(&size->table, i, &entry))
            continue;
        sum += entry.word - 1;
        n++;
    }
    for (uint64_t i = 0; i < size->bare_n; i++)
        bare += atomic_load(&size->bare[i].word);
    require(n == size->keys_n - size->filled.evicted);
    require(sum == size->decided && bare == size->decided_bare);
    require(size->made == size->at_new - size->keys_n);
    require(size->replaced.evicted == 0 && size->replaced.refused == 0);
}

int main(int argc, char **argv)
{
    static struct size sizes[SIZES_MAX];
    struct bench bench;
    int n = 0;

    bench_open(&bench, "key_table", 18, argc, argv);
    bench_pin(0);
    for (; n < bench.argc && n < SIZES_MAX; n++) {
        const uint64_t keys_n = strtoull(bench.argv[n], NULL, 10);

        require(keys_n > 0 && keys_n <= 1u << 31);
        size_new(&sizes[n], &bench, keys_n);
    }
    if (n == 0) {
        size_new(&sizes[n++], &bench, 100000);
        size_new(&sizes[n++], &bench, 1000000);
    }
    while (bench_round(&bench))
        for (int i = 0; i < n; i++)
            size_round(&sizes[i], bench_samples(&bench, SAMPLES));
    for (int i = 0; i < n; i++)
        size_check(&sizes[i]);
    return bench_close(&bench);
}
