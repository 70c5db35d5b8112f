/* SPDX-License-Identifier: MIT */
/*
 * The table of keys: what a claim finds, takes and leaves alone; random operations against a plain
 * list. WEIR_SEED and WEIR_ROUNDS (operations) override what is random.
 */
#include "lib/fixture.h"
#include "shm/key_table.h"

#include "lib/require.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* A word is the instant until which its key is live; with this bit, it is held. */
#define HELD (UINT64_C(1) << 63)

#define BUCKET_SLOTS 8u

static uint64_t now, rng;
static struct key_table table;
static uint64_t claimant = 7;
static struct probe_stats tally;
static void *memory;
static size_t memory_size;

static enum key_use use(const void *userdata, uint64_t id, uint64_t word, uint64_t *ret_instant)
{
    (void)id;
    assert_ptr_equal(userdata, &now);
    if (word & HELD)
        return KEY_PINNED;
    *ret_instant = word;
    return word <= now ? KEY_AS_NEW : KEY_EVICTABLE;
}

static const struct key_policy none = {use, &now, KEY_EVICT_NONE, NULL};
static const struct key_policy oldest = {use, &now, KEY_EVICT_OLDEST, NULL};
static const struct key_policy any_live = {use, &now, KEY_EVICT_RANDOM, NULL};

static void make(uint64_t keys_max)
{
    memory_size = key_table_size(keys_max);
    assert_true(memory_size > 0);
    memory = aligned_alloc(128, memory_size);
    assert_non_null(memory);
    memset(memory, 0, memory_size);
    assert_int_equal(key_table_open(&table, memory, keys_max), 0);
    now = 100;
    tally = (struct probe_stats){0};
}

static void unmake(void)
{
    free(memory);
}

static struct key_digest key_of(uint64_t number)
{
    const struct siphash_secret secret = {{1, 2}};
    struct key_digest key;

    siphash_128(&secret, &number, sizeof(number), &key);
    return key;
}

/* One that has the same buckets as another. */
static struct key_digest beside(const struct key_digest *key, uint64_t id)
{
    return (struct key_digest){key->buckets, id * 2 + 2};
}

static bool put(const struct key_digest *key, const struct key_policy *policy, uint64_t word)
{
    struct key_entry entry;

    switch (key_table_claim(&table, key, policy, &claimant, &entry, &tally)) {
    case KEY_CLAIMED:
        assert_true(key_claim_commit(&entry, word));
        return true;
    case KEY_FOUND:
        fail_msg("it was there");
        break;
    case KEY_FULL:
        break;
    }
    return false;
}

static uint64_t word_of(const struct key_digest *key)
{
    struct key_entry entry = {0};

    return key_table_find(&table, key, &entry) ? entry.word : 0;
}

static uint64_t count_keys(void)
{
    struct key_entry entry;
    uint64_t n = 0;

    for (uint64_t i = 0; i < key_table_slots(&table); i++)
        n += key_table_at(&table, i, &entry);
    return n;
}

/* ---- double words ---- */

static void both_halves_change_or_neither(void **state)
{
    struct atomic128 word = {1, 2};
    struct atomic128_value expected = {1, 2};

    (void)state;
    assert_true(atomic128_detect());
    assert_true(atomic128_cas(&word, &expected, (struct atomic128_value){3, 4}));
    assert_true(word.low == 3 && word.high == 4);
    assert_false(atomic128_cas(&word, &expected, (struct atomic128_value){5, 6}));
    assert_true(expected.low == 3 && expected.high == 4);
    expected.low = 9; /* one half is right */
    assert_false(atomic128_cas(&word, &expected, (struct atomic128_value){5, 6}));
    expected.high = 9;
    assert_false(atomic128_cas(&word, &expected, (struct atomic128_value){5, 6}));
    assert_true(word.low == 3 && word.high == 4);
}

static void a_load_is_the_same_either_way(void **state)
{
    struct atomic128 word = {UINT64_MAX, 0};
    struct atomic128_value value;

    (void)state;
    for (int way = 0; way < 2; way++) {
        value = way ? atomic128_load_by_cas(&word) : atomic128_load(&word);
        assert_true(value.low == UINT64_MAX && value.high == 0);
    }
    word.low = 0; /* what the swap writes again */
    value = atomic128_load_by_cas(&word);
    assert_true(value.low == 0 && value.high == 0 && word.high == 0);
}

/* ---- a key ---- */

static void a_key_is_there_from_its_commit_on(void **state)
{
    const struct key_digest key = key_of(1);
    struct key_entry entry = {0}, found;

    (void)state;
    make(10);
    assert_false(key_table_find(&table, &key, &entry));
    assert_null(entry.slot);
    assert_int_equal(key_table_claim(&table, &key, &none, &claimant, &entry, &tally), KEY_CLAIMED);
    assert_false(key_table_find(&table, &key, &found));
    assert_int_equal(count_keys(), 0);
    assert_true(key_claim_commit(&entry, 200));
    assert_true(key_table_find(&table, &key, &found));
    assert_int_equal(found.word, 200);
    assert_ptr_equal(found.slot, entry.slot);
    assert_int_equal(key_table_claim(&table, &key, &none, &claimant, &found, &tally), KEY_FOUND);
    assert_int_equal(found.word, 200);
    assert_int_equal(key_entry_swap(&entry, 201), KEY_SWAPPED); /* a commit made it an entry */
    assert_int_equal(count_keys(), 1);
    assert_int_equal(tally.forgotten + tally.evicted + tally.refused, 0);
    unmake();
}

static void a_word_changes_only_from_what_was_seen(void **state)
{
    const struct key_digest key = key_of(1), other = beside(&key, 5);
    struct key_entry mine, late;

    (void)state;
    make(10);
    assert_true(put(&key, &none, 200));
    assert_true(key_table_find(&table, &key, &mine));
    late = mine;
    assert_int_equal(key_entry_swap(&mine, 300), KEY_SWAPPED);
    assert_int_equal(mine.word, 300);
    assert_int_equal(key_entry_swap(&late, 400), KEY_CHANGED);
    assert_int_equal(late.word, 300);
    assert_int_equal(key_entry_swap(&late, 400), KEY_SWAPPED);
    assert_false(key_entry_remove(&mine));
    assert_true(key_entry_remove(&late));
    assert_int_equal(key_entry_swap(&late, 500), KEY_GONE);
    assert_int_equal(count_keys(), 0);
    assert_true(put(&other, &none, 400)); /* the same place, the same word, another key */
    assert_int_equal(key_entry_swap(&late, 500), KEY_GONE);
    assert_int_equal(word_of(&other), 400);
    unmake();
}

static void ids_that_say_nothing_work(void **state)
{
    const struct key_digest keys[] = {{0, 0}, {0, 4}, {UINT64_MAX, 0}, {UINT64_MAX, UINT64_MAX}};

    (void)state;
    make(10);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(word_of(&keys[i]), 0);
        assert_true(put(&keys[i], &none, 200 + i));
    }
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(word_of(&keys[i]), 200 + i);
    unmake();
}

/* ---- claims ---- */

static void the_first_of_two_commits_counts(void **state)
{
    const struct key_digest key = key_of(1);
    struct key_entry a, b;

    (void)state;
    make(10);
    assert_int_equal(key_table_claim(&table, &key, &none, &claimant, &a, &tally), KEY_CLAIMED);
    assert_int_equal(key_table_claim(&table, &key, &none, &claimant, &b, &tally), KEY_CLAIMED);
    assert_ptr_equal(a.slot, b.slot); /* taken over, not made anew */
    assert_true(key_claim_commit(&b, 200));
    assert_false(key_claim_commit(&a, 300));
    assert_int_equal(word_of(&key), 200);
    assert_int_equal(count_keys(), 1);
    unmake();
}

static void a_claim_that_is_dropped_leaves_nothing(void **state)
{
    const struct key_digest key = key_of(1);
    struct key_entry entry;

    (void)state;
    make(10);
    assert_int_equal(key_table_claim(&table, &key, &none, &claimant, &entry, &tally), KEY_CLAIMED);
    key_claim_drop(&entry);
    assert_false(key_claim_commit(&entry, 300));
    for (size_t i = 0; i < memory_size; i++)
        assert_int_equal(((unsigned char *)memory)[i], 0);
    unmake();
}

/* An old claim is not taken for a new one in the same place. */
static void claims_have_nonces(void **state)
{
    const struct key_digest key = key_of(1);
    struct key_entry old, new;

    (void)state;
    make(10);
    assert_int_equal(key_table_claim(&table, &key, &none, &claimant, &old, &tally), KEY_CLAIMED);
    key_claim_drop(&old);
    assert_int_equal(key_table_claim(&table, &key, &none, &claimant, &new, &tally), KEY_CLAIMED);
    assert_ptr_equal(old.slot, new.slot);
    assert_false(key_claim_commit(&old, 300));
    key_claim_drop(&old); /* too late as well */
    assert_true(key_claim_commit(&new, 200));
    unmake();
}

/* Claims as others may leave them behind: the first is taken over, the rest go. */
static void of_many_claims_one_is_left(void **state)
{
    const struct key_digest key = key_of(1);
    struct key_entry entry, again;
    struct atomic128 *bucket;
    uint64_t n = 0;

    (void)state;
    make(10);
    assert_int_equal(key_table_claim(&table, &key, &none, &claimant, &entry, &tally), KEY_CLAIMED);
    bucket = table.slots + (entry.slot - table.slots) / BUCKET_SLOTS * BUCKET_SLOTS;
    for (uint32_t i = 0; i < BUCKET_SLOTS; i++)
        if (&bucket[i] != entry.slot) {
            atomic_store(&bucket[i].low, entry.id);
            atomic_store(&bucket[i].high, i);
        }
    assert_int_equal(key_table_claim(&table, &key, &none, &claimant, &again, &tally), KEY_CLAIMED);
    assert_ptr_equal(again.slot, entry.slot);
    for (uint64_t i = 0; i < key_table_slots(&table); i++)
        n += atomic_load(&table.slots[i].low) != 0;
    assert_int_equal(n, 1);
    unmake();
}

/* ---- eviction ---- */

enum { PLACES = 2 * BUCKET_SLOTS }; /* of a key */

/* The i-th of those that fill both buckets of a key. */
static struct key_digest filler(const struct key_digest *key, uint64_t i)
{
    return beside(key, 1000 + i);
}

static uint64_t filler_word(const struct key_digest *key, uint64_t i)
{
    const struct key_digest other = filler(key, i);

    return word_of(&other);
}

/* Fills both buckets of a key with others; their words are `first` and up. */
static void fill(const struct key_digest *key, uint64_t first)
{
    for (uint64_t i = 0; i < PLACES; i++) {
        const struct key_digest other = filler(key, i);

        assert_true(put(&other, &none, first + i));
    }
    assert_int_equal(count_keys(), PLACES);
}

/* The same with keys that are all held, but that in the place of the last there is a claim. */
static void fill_and_claim(const struct key_digest *key, const struct key_digest *claimed,
                           struct key_entry *ret_claim)
{
    const struct key_digest last = filler(key, PLACES - 1);
    struct key_entry entry;

    fill(key, HELD);
    assert_true(key_table_find(&table, &last, &entry));
    assert_true(key_entry_remove(&entry));
    assert_int_equal(key_table_claim(&table, claimed, &none, &claimant, ret_claim, &tally),
                     KEY_CLAIMED);
    assert_ptr_equal(ret_claim->slot, entry.slot);
}

static void where_all_are_in_use_none_goes_unless_asked(void **state)
{
    const struct key_digest key = key_of(1);

    (void)state;
    make(100);
    fill(&key, 200);
    assert_int_equal(tally.refused, 0);
    assert_false(put(&key, &none, 500));
    assert_int_equal(tally.refused, 1);
    assert_int_equal(count_keys(), PLACES);
    now = 199;
    assert_false(put(&key, &none, 500));
    now = 200; /* the first has recovered */
    assert_true(put(&key, &none, 500));
    assert_int_equal(tally.forgotten, 1);
    assert_int_equal(tally.evicted, 0);
    assert_int_equal(word_of(&key), 500);
    for (uint64_t i = 0; i < PLACES; i++)
        assert_int_equal(filler_word(&key, i), i ? 200 + i : 0);
    unmake();
}

static void the_oldest_goes_first(void **state)
{
    const struct key_digest key = key_of(1);

    (void)state;
    make(100);
    fill(&key, 200);
    for (uint64_t i = 0; i < PLACES; i++) {
        const struct key_digest next = beside(&key, 2000 + i);

        assert_int_equal(filler_word(&key, i), 200 + i);
        assert_true(put(&next, &oldest, 500 + i));
        assert_int_equal(filler_word(&key, i), 0);
        assert_int_equal(tally.evicted, i + 1);
        assert_int_equal(count_keys(), PLACES);
    }
    unmake();
}

static void at_random_each_may_go(void **state)
{
    const struct key_digest key = key_of(1);
    uint32_t gone = 0;

    (void)state;
    make(100);
    for (uint64_t n = 0; n < 1000; n++) {
        memset(memory, 0, memory_size);
        fill(&key, 200);
        assert_true(put(&key, &any_live, 500));
        for (uint64_t i = 0; i < PLACES; i++)
            gone |= (uint32_t)(filler_word(&key, i) == 0) << i;
        assert_int_equal(count_keys(), PLACES);
    }
    assert_int_equal(gone, 0xffff);
    assert_int_equal(tally.evicted, 1000);
    unmake();
}

static void a_key_that_is_held_stays(void **state)
{
    const struct key_digest key = key_of(1);

    (void)state;
    make(100);
    fill(&key, HELD);
    assert_false(put(&key, &oldest, 500));
    assert_false(put(&key, &any_live, 500));
    assert_int_equal(tally.refused, 2);
    assert_int_equal(tally.evicted, 0);
    assert_int_equal(count_keys(), PLACES);
    unmake();
}

/* A claim is given up for another key only where nothing else can be. */
static void claims_of_others_are_the_last_to_go(void **state)
{
    const struct key_digest key = key_of(1), claimed = beside(&key, 3000);
    struct key_entry claim;

    (void)state;
    make(100);
    fill_and_claim(&key, &claimed, &claim);
    /* The one before is live: it goes, where that is allowed. */
    atomic_store(&claim.slot[-1].high, 300);
    assert_true(put(&key, &oldest, 500 | HELD));
    assert_int_equal(tally.evicted, 1);
    assert_true(key_claim_commit(&claim, 700 | HELD)); /* it was let alone */
    assert_int_equal(word_of(&claimed), 700 | HELD);
    unmake();
}

static void a_claim_of_the_dead_is_no_loss(void **state)
{
    const struct key_digest key = key_of(1), claimed = beside(&key, 3000);
    struct key_entry claim;

    (void)state;
    make(100);
    fill_and_claim(&key, &claimed, &claim);
    assert_true(put(&key, &none, 500));
    assert_false(key_claim_commit(&claim, 700));
    assert_int_equal(word_of(&claimed), 0);
    assert_int_equal(word_of(&key), 500);
    assert_int_equal(tally.evicted + tally.forgotten + tally.refused, 0);
    unmake();
}

/* ---- memory ---- */

static void sizes_are_bounded(void **state)
{
    struct key_table none_at_all;

    (void)state;
    assert_int_equal(key_table_size(0), 0);
    assert_int_equal(key_table_size(KEY_TABLE_KEYS_MAX + 1), 0);
    assert_int_equal(key_table_size(UINT64_MAX), 0);
    assert_int_equal(key_table_open(&none_at_all, NULL, 0), -EINVAL);
    assert_int_equal(key_table_open(&none_at_all, NULL, UINT64_MAX), -EINVAL);
    for (uint64_t n = 1; n <= KEY_TABLE_KEYS_MAX; n += 1 + n / 7) {
        assert_true(key_table_size(n) > 0);
        assert_true(key_table_size(n) <= 32 * n + 1024);
        assert_true(n < 300 || key_table_size(n) <= 32 * n);
        assert_true(key_table_size(n) >= 28 * n);
    }
    assert_true(key_table_size(KEY_TABLE_KEYS_MAX) <= 32 * KEY_TABLE_KEYS_MAX);
}

static void it_can_be_moved(void **state)
{
    struct key_table other;
    void *copy;

    (void)state;
    make(1000);
    for (uint64_t i = 0; i < 1000; i++) {
        const struct key_digest key = key_of(i);

        assert_true(put(&key, &none, 200 + i));
    }
    copy = aligned_alloc(128, memory_size);
    assert_non_null(copy);
    memcpy(copy, memory, memory_size);
    memset(memory, 0, memory_size);
    assert_int_equal(key_table_open(&other, copy, 1000), 0);
    for (uint64_t i = 0; i < 1000; i++) {
        const struct key_digest key = key_of(i);
        struct key_entry entry;

        assert_true(key_table_find(&other, &key, &entry));
        assert_int_equal(entry.word, 200 + i);
    }
    free(copy);
    unmake();
}

/* As many keys as were promised, all of them live, in tables of many sizes. */
static void there_is_room_for_all(void **state)
{
    static const struct {
        uint64_t keys, tables;
    } cases[] = {{1, 50},   {2, 50},   {8, 50},    {9, 50},     {17, 50},   {40, 100},
                 {100, 50}, {300, 50}, {1000, 20}, {10000, 10}, {100000, 2}};

    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        make(cases[c].keys);
        for (uint64_t t = 0; t < cases[c].tables; t++) {
            memset(memory, 0, memory_size);
            for (uint64_t i = 0; i < cases[c].keys; i++) {
                const struct key_digest key = key_of(t << 32 | i);

                key_table_prefetch(&table, &key);
                if (!put(&key, &none, 200 + i))
                    fail_msg("key %lu of %lu found no room", i, cases[c].keys);
            }
        }
        assert_int_equal(count_keys(), cases[c].keys);
        unmake();
    }
}

/* As many keys as were promised, that recover and come back, in any order: none has to go, and none
 * loses its place meanwhile. */
static void clients_that_come_back_find_room(void **state)
{
    enum { ALL = 2000 };

    (void)state;
    test_seed = number_from("WEIR_SEED", 1);
    rng = test_seed;
    make(ALL);
    for (uint64_t i = 0; i < 40 * ALL; i++) {
        const struct key_digest key = key_of(random_below(&rng, ALL));
        struct key_entry entry;

        if (i % (ALL / 4) == 0)
            now += ALL / 2; /* a part recovers */
        if (key_table_find(&table, &key, &entry))
            assert_int_equal(key_entry_swap(&entry, i + 2 * ALL), KEY_SWAPPED);
        else
            assert_true(put(&key, &none, i + 2 * ALL));
        now = i % ALL == 0 ? i + 4 * ALL : now; /* or all */
    }
    assert_int_equal(count_keys(), ALL);
    assert_int_equal(tally.forgotten + tally.evicted + tally.refused, 0);
    unmake();
}

/* Anything may be in the memory: every call ends, and touches nothing beyond. */
static void whatever_is_in_it_does_no_harm(void **state)
{
    enum { GUARD = 256 };
    const size_t size = key_table_size(20);
    unsigned char *all = aligned_alloc(128, size + 2 * GUARD);

    (void)state;
    assert_non_null(all);
    test_seed = number_from("WEIR_SEED", 1);
    rng = test_seed;
    memset(all, 0x5a, size + 2 * GUARD);
    assert_int_equal(key_table_open(&table, all + GUARD, 20), 0);
    for (uint64_t n = 0; n < 2000; n++) {
        const struct key_digest key = key_of(n);
        const uint64_t id = key.id & ~UINT64_C(1);

        for (uint64_t i = 0; i < key_table_slots(&table); i++) {
            const uint64_t ids[] = {0, 1, id, id | 1, random_next(&rng)};

            atomic_store(&table.slots[i].low, ids[random_below(&rng, 5)]);
            atomic_store(&table.slots[i].high, random_below(&rng, 300));
        }
        for (int turn = 0; turn < 8; turn++) {
            const struct key_policy *policies[] = {&none, &oldest, &any_live};
            struct key_entry entry;

            if (key_table_find(&table, &key, &entry)) {
                assert_int_equal(key_entry_swap(&entry, 500), KEY_SWAPPED);
                assert_true(key_entry_remove(&entry));
            } else if (key_table_claim(&table, &key, policies[turn % 3], &claimant, &entry,
                                       &tally) == KEY_CLAIMED) {
                assert_true(key_claim_commit(&entry, 600));
            }
        }
    }
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(all[i], 0x5a);
        assert_int_equal(all[GUARD + size + i], 0x5a);
    }
    free(all);
}

/* ---- against a list ---- */

#define KEYS 90u

static struct {
    bool there;
    uint64_t word;
} model[KEYS];

/* The slot of a key, by looking at all of them. */
static struct atomic128 *place_of(uint32_t number)
{
    const struct key_digest key = key_of(number);
    struct atomic128 *found = NULL;

    for (uint64_t i = 0; i < key_table_slots(&table); i++) {
        struct key_entry entry;

        if (!key_table_at(&table, i, &entry) || entry.id != (key.id & ~UINT64_C(1)))
            continue;
        assert_null(found); /* never twice */
        assert_int_equal(entry.word, model[number].word);
        found = entry.slot;
    }
    return found;
}

static void check_all(void)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < KEYS; i++) {
        const struct key_digest key = key_of(i);
        struct key_entry entry = {0};

        assert_int_equal(key_table_find(&table, &key, &entry), model[i].there);
        assert_ptr_equal(place_of(i), entry.slot);
        assert_true(!model[i].there || entry.word == model[i].word);
        n += model[i].there;
    }
    assert_int_equal(count_keys(), n);
}

/* Of the keys in the model one has left its slot to another, and it could. */
static void check_left(const struct atomic128 *slot, const struct key_policy *policy, bool evicted)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        const struct key_digest key = key_of(i);
        struct key_entry entry;

        if (!model[i].there || key_table_find(&table, &key, &entry))
            continue;
        assert_false(model[i].word & HELD);
        assert_int_equal(model[i].word > now, evicted);
        assert_true(!evicted || policy->eviction != KEY_EVICT_NONE);
        model[i].there = false;
        return;
    }
    fail_msg("no key left slot %p", (const void *)slot);
}

static void operate(const struct key_policy *policy)
{
    const uint32_t number = (uint32_t)random_below(&rng, KEYS);
    const struct key_digest key = key_of(number);
    const uint64_t word = now + random_below(&rng, 60) + (random_below(&rng, 8) ? 0 : HELD);
    const struct probe_stats before = tally;
    struct key_entry entry;

    if (key_table_find(&table, &key, &entry)) {
        assert_true(model[number].there);
        if (random_below(&rng, 4) == 0) {
            assert_true(key_entry_remove(&entry));
            model[number].there = false;
        } else {
            assert_int_equal(key_entry_swap(&entry, word), KEY_SWAPPED);
            model[number].word = word;
        }
        return;
    }
    assert_false(model[number].there);
    switch (key_table_claim(&table, &key, policy, &claimant, &entry, &tally)) {
    case KEY_CLAIMED:
        if (random_below(&rng, 4) == 0) {
            key_claim_drop(&entry);
        } else {
            assert_true(key_claim_commit(&entry, word));
            model[number].there = true;
            model[number].word = word;
        }
        if (tally.evicted + tally.forgotten != before.evicted + before.forgotten)
            check_left(entry.slot, policy, tally.evicted != before.evicted);
        break;
    case KEY_FOUND:
        fail_msg("it was not there");
        break;
    case KEY_FULL:
        assert_int_equal(tally.refused, before.refused + 1);
        break;
    }
}

static void it_agrees_with_a_list(void **state)
{
    const uint64_t operations = effort_from("WEIR_ROUNDS", 20000);
    const struct key_policy *policies[] = {&none, &oldest, &any_live};

    (void)state;
    test_seed = number_from("WEIR_SEED", 1);
    rng = test_seed;
    print_message("WEIR_SEED=%" PRIu64 "\n", test_seed);
    make(4);
    table.buckets_n = 3; /* too few slots for all */
    memset(model, 0, sizeof(model));
    for (uint64_t n = 0; n < operations; n++) {
        operate(policies[n / 500 % 3]);
        now += random_below(&rng, 3);
        if (n % 97 == 0)
            check_all();
    }
    check_all();
    assert_true(tally.forgotten && tally.evicted && tally.refused);
    unmake();
}

/* ---- tags and chains ---- */

static struct key_table handle(const struct key_table *of, uint32_t tag)
{
    struct key_table ret = *of;

    key_table_set_tag(&ret, tag);
    return ret;
}

/* Claims a key in a table and gives it this word. */
static struct key_entry add_to(const struct key_table *to, const struct key_digest *key,
                               uint64_t word)
{
    struct key_entry entry;

    assert_int_equal(key_table_claim(to, key, &none, &claimant, &entry, &tally), KEY_CLAIMED);
    assert_true(key_claim_commit(&entry, word));
    return entry;
}

static void a_word_has_the_tag_of_its_writer(void **state)
{
    const struct key_digest key = key_of(1);
    struct key_table first, second;
    struct key_entry entry, late, found;

    (void)state;
    make(100);
    first = handle(&table, 4095);
    second = handle(&table, 4096);
    entry = add_to(&first, &key, 100);
    assert_int_equal(key_table_age(&first, entry.id), 0);
    assert_int_equal(key_table_age(&second, entry.id), 1);
    assert_true(key_table_find(&second, &key, &found));
    assert_int_equal(found.word, 100);
    assert_int_equal(key_table_age(&second, found.id), 1);
    assert_int_equal(key_table_claim(&second, &key, &none, &claimant, &late, &tally), KEY_FOUND);
    /* An entry that got another tag meanwhile is not exchanged, though its word is the same. */
    late = found;
    assert_int_equal(key_entry_retag(&second, &found, 100), KEY_SWAPPED);
    assert_int_equal(key_table_age(&second, found.id), 0);
    assert_int_equal(key_entry_swap(&late, 101), KEY_GONE);
    assert_int_equal(key_entry_retag(&second, &late, 101), KEY_GONE);
    assert_true(key_table_find(&first, &key, &late));
    assert_int_equal(key_table_age(&first, late.id), KEY_TAGS - 1);
    assert_true(key_entry_remove(&late));
    assert_false(key_table_find(&second, &key, &found));
    unmake();
}

static void a_claim_of_another_tag_is_withdrawn(void **state)
{
    const struct key_digest key = key_of(1);
    struct key_table first, second;
    struct key_entry claim, entry;

    (void)state;
    make(100);
    first = handle(&table, 0);
    second = handle(&table, 1);
    assert_int_equal(key_table_claim(&first, &key, &none, &claimant, &claim, &tally), KEY_CLAIMED);
    entry = add_to(&second, &key, 200);
    assert_false(key_claim_commit(&claim, 100));
    assert_int_equal(key_table_age(&second, entry.id), 0);
    assert_true(key_table_find(&second, &key, &entry));
    assert_int_equal(entry.word, 200);
    unmake();
}

static void a_key_is_in_one_table_of_a_chain(void **state)
{
    const size_t size = key_table_size(1000);
    void *more = aligned_alloc(128, (size + 127) / 128 * 128);
    struct key_table first, second;
    struct key_entry entry;
    uint64_t n = 0, in_first = 0;

    (void)state;
    make(100);
    first = handle(&table, 0);
    for (uint64_t i = 0; i < 50; i++) {
        const struct key_digest key = key_of(i);

        add_to(&first, &key, i + 1);
    }
    assert_non_null(more);
    memset(more, 0, size);
    assert_int_equal(key_table_open(&second, more, 1000), 0);
    second = handle(&second, 1);
    second.more = &first;
    for (uint64_t i = 0; i < 1000; i++) {
        const struct key_digest key = key_of(i);

        if (i < 50)
            assert_int_equal(key_table_claim(&second, &key, &none, &claimant, &entry, &tally),
                             KEY_FOUND);
        else
            add_to(&second, &key, i + 1);
        assert_true(key_table_find(&second, &key, &entry));
        assert_int_equal(entry.word, i + 1);
    }
    for (uint64_t i = 0; i < key_table_slots(&second); i++)
        n += key_table_at(&second, i, &entry);
    for (uint64_t i = 0; i < key_table_slots(&first); i++)
        in_first += key_table_at(&first, i, &entry);
    assert_int_equal(n + in_first, 1000);
    assert_int_equal(in_first, 50); /* a new key prefers the first table, while that has room */
    unmake();
    free(more);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(both_halves_change_or_neither),
        leak_checked_test(a_load_is_the_same_either_way),
        leak_checked_test(a_key_is_there_from_its_commit_on),
        leak_checked_test(a_word_changes_only_from_what_was_seen),
        leak_checked_test(ids_that_say_nothing_work),
        leak_checked_test(the_first_of_two_commits_counts),
        leak_checked_test(a_claim_that_is_dropped_leaves_nothing),
        leak_checked_test(claims_have_nonces),
        leak_checked_test(of_many_claims_one_is_left),
        leak_checked_test(where_all_are_in_use_none_goes_unless_asked),
        leak_checked_test(the_oldest_goes_first),
        leak_checked_test(at_random_each_may_go),
        leak_checked_test(a_key_that_is_held_stays),
        leak_checked_test(claims_of_others_are_the_last_to_go),
        leak_checked_test(a_claim_of_the_dead_is_no_loss),
        leak_checked_test(sizes_are_bounded),
        leak_checked_test(it_can_be_moved),
        leak_checked_test(there_is_room_for_all),
        leak_checked_test(clients_that_come_back_find_room),
        leak_checked_test(whatever_is_in_it_does_no_harm),
        leak_checked_test(it_agrees_with_a_list),
        leak_checked_test(a_word_has_the_tag_of_its_writer),
        leak_checked_test(a_claim_of_another_tag_is_withdrawn),
        leak_checked_test(a_key_is_in_one_table_of_a_chain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
