/* SPDX-License-Identifier: MIT */
/*
 * Threads on a few keys of a table with too few places: they add up decisions in the words, empty
 * words so that keys may be forgotten or evicted, and take keys out; another thread looks for keys
 * that are there twice. At the end every decision is in a word or was in one that was emptied. The
 * table is compiled with its steps, at which threads now and then let others run.
 *
 * WEIR_ROUNDS: decisions per thread, 15000 if not given; WEIR_SEED.
 */
#include "base/sched_point.h"
#include "lib/require.h"
#include "shm/key_table.h"
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>

#define THREADS 4u
#define KEYS    40u
#define BUCKETS 2u /* 16 places */

/*
 * A word: the number of its key's life, which no other life has, and the decisions in it. While
 * there are any the key is held; a word without is as good as new, or else may be evicted.
 */
#define LIFE(word)      ((word) >> 24)
#define DECISIONS(word) ((word)&0x3fffff)
#define EMPTY           (UINT64_C(1) << 22)
#define WORN            (UINT64_C(1) << 23)

static struct key_table table;
static _Alignas(128) struct atomic128 slots[BUCKETS * 8];
static struct key_digest keys[KEYS];
static _Atomic uint64_t emptied; /* decisions in words that were emptied or taken out */
static _Atomic bool stop;
static uint64_t decisions_n = 15000;

struct worker {
    uint64_t number, rng, lives;
    uint64_t decided, refused;
    uint64_t claimant;
    struct probe_stats tally;
};

static _Thread_local uint64_t step_rng;

void sched_point(void)
{
    if (step_rng && random_below(&step_rng, 32) == 0)
        sched_yield();
}

static enum key_use use(const void *userdata, uint64_t id, uint64_t word, uint64_t *ret_instant)
{
    (void)userdata;
    (void)id;
    *ret_instant = LIFE(word);
    if (DECISIONS(word))
        return KEY_PINNED;
    return word & WORN ? KEY_EVICTABLE : KEY_AS_NEW;
}

static const struct key_policy policies[] = {{use, NULL, KEY_EVICT_NONE, NULL},
                                             {use, NULL, KEY_EVICT_OLDEST, NULL},
                                             {use, NULL, KEY_EVICT_RANDOM, NULL}};

/* The word of a new life. */
static uint64_t new_life(struct worker *worker)
{
    return (worker->number << 32 | ++worker->lives) << 24;
}

/* Adds a decision to the key's word. False: not this time. */
static bool decide(struct worker *worker, const struct key_digest *key)
{
    const struct key_policy *policy = &policies[random_below(&worker->rng, 3)];
    struct key_entry entry;

    if (key_table_find(&table, key, &entry))
        return key_entry_swap(&entry, DECISIONS(entry.word) ? entry.word + 1
                                                            : new_life(worker) | 1) == KEY_SWAPPED;
    if (key_table_claim(&table, key, policy, &worker->claimant, &entry, &worker->tally) !=
        KEY_CLAIMED)
        return false;
    if (random_below(&worker->rng, 8) == 0) {
        key_claim_drop(&entry);
        return false;
    }
    return key_claim_commit(&entry, new_life(worker) | 1);
}

/* Takes the decisions out of a word, with its key or without. */
static void empty(struct worker *worker, const struct key_digest *key)
{
    struct key_entry entry;
    uint64_t before;
    bool done;

    if (!key_table_find(&table, key, &entry))
        return;
    before = entry.word;
    switch (random_below(&worker->rng, 3)) {
    case 0:
        done = key_entry_remove(&entry);
        break;
    case 1:
        done = key_entry_swap(&entry, new_life(worker) | EMPTY) == KEY_SWAPPED;
        break;
    default:
        done = key_entry_swap(&entry, new_life(worker) | WORN) == KEY_SWAPPED;
        break;
    }
    if (done)
        atomic_fetch_add(&emptied, DECISIONS(before));
}

static void *run_worker(void *argument)
{
    struct worker *worker = argument;

    step_rng = worker->rng * 2 | 1;
    for (uint64_t n = 0; n < decisions_n; n++) {
        /* Most of the time all want the same one. */
        const uint64_t of = random_below(&worker->rng, 4) ? 1 : KEYS;
        const struct key_digest *key = &keys[random_below(&worker->rng, of)];

        if (decide(worker, key))
            worker->decided++;
        if (random_below(&worker->rng, 2) == 0)
            empty(worker, &keys[random_below(&worker->rng, of)]);
    }
    return NULL;
}

/* A key is there twice if it is seen in two slots, and still in the first with the same life. */
static void look_for_twins(void)
{
    for (uint64_t i = 0; i < key_table_slots(&table); i++) {
        struct key_entry first, second, again;

        if (!key_table_at(&table, i, &first))
            continue;
        for (uint64_t j = i + 1; j < key_table_slots(&table); j++)
            if (key_table_at(&table, j, &second) && second.id == first.id)
                require(!key_table_at(&table, i, &again) || again.id != first.id ||
                        LIFE(again.word) != LIFE(first.word));
    }
}

static void *run_observer(void *argument)
{
    uint64_t *looks = argument;

    for (; !atomic_load(&stop); ++*looks)
        look_for_twins();
    return NULL;
}

static void check_sums(const struct worker *workers)
{
    uint64_t decided = 0, there = 0;
    struct probe_stats tally = {0};
    struct key_entry entry;

    for (uint32_t i = 0; i < THREADS; i++) {
        decided += workers[i].decided;
        tally.forgotten += workers[i].tally.forgotten;
        tally.evicted += workers[i].tally.evicted;
        tally.refused += workers[i].tally.refused;
    }
    for (uint64_t i = 0; i < key_table_slots(&table); i++)
        if (key_table_at(&table, i, &entry))
            there += DECISIONS(entry.word);
    printf("%" PRIu64 " decisions, %" PRIu64 " keys forgotten, %" PRIu64 " evicted, %" PRIu64
           " refused\n",
           decided, tally.forgotten, tally.evicted, tally.refused);
    require(decided == atomic_load(&emptied) + there);
    require(tally.forgotten > 0 && tally.evicted > 0);
}

/* Claims were all committed, dropped or withdrawn: nothing but keys is left. */
static void check_rest(void)
{
    struct key_entry entry;

    for (uint64_t i = 0; i < key_table_slots(&table); i++)
        require(key_table_at(&table, i, &entry) || !atomic_load(&table.slots[i].low));
    look_for_twins();
}

int main(void)
{
    struct worker workers[THREADS];
    pthread_t threads[THREADS], observer;
    uint64_t looks = 0;

    seed_begin();
    decisions_n = effort_from("WEIR_ROUNDS", decisions_n);
    printf("WEIR_SEED=%" PRIu64 "\n", test_seed);
    require(atomic128_detect());
    table = (struct key_table){.slots = slots, .buckets_n = BUCKETS, .id_mask = KEY_ID_MASK};
    for (uint64_t i = 0; i < KEYS; i++)
        keys[i] = (struct key_digest){i * UINT64_C(0x9e3779b97f4a7c15), 2 * i + 2};
    require(pthread_create(&observer, NULL, run_observer, &looks) == 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.number = i + 1,
                                     .rng = random_case(test_seed, i),
                                     .claimant = random_case(test_seed, THREADS + i)};
        require(pthread_create(&threads[i], NULL, run_worker, &workers[i]) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        require(pthread_join(threads[i], NULL) == 0);
    atomic_store(&stop, true);
    require(pthread_join(observer, NULL) == 0);
    check_sums(workers);
    check_rest();
    return 0;
}
