/* SPDX-License-Identifier: MIT */
/* Implements the key table: two buckets per key, and insertion by claim and commit. */
#include "shm/key_table.h"
#include "base/hash.h"

#include "base/backoff.h"
#include "base/invariant.h"
#include "base/sched_point.h"
#include <errno.h>

#define BUCKET_SLOTS 8u
#define BUCKET_SIZE  (BUCKET_SLOTS * sizeof(struct atomic128))
#define KEY_PLACES   (2 * BUCKET_SLOTS)
#define LINE_SLOTS   4u /* slots per cache line */

/* A full table has 9 keys per 16 slots, and 8 buckets more than that. */
#define KEYS_PER_16_SLOTS 9u
#define BUCKETS_MORE      8u

/* A first bucket with fewer keys than this takes the new key even if the second is emptier. */
#define FEW_KEYS 5u

/*
 * Marks a claim in the low half of a slot. That half is 0 (empty), an id, or an id with this bit.
 */
#define CLAIM_BIT UINT64_C(1)

/* Attempts after which a claim is refused. */
#define ATTEMPTS_MAX 256u

static uint32_t key_table_buckets_for(uint64_t keys_max)
{
    return (uint32_t)((keys_max * 16 / KEYS_PER_16_SLOTS) / BUCKET_SLOTS + BUCKETS_MORE);
}

size_t key_table_size(uint64_t keys_max)
{
    if (keys_max == 0 || keys_max > KEY_TABLE_KEYS_MAX)
        return 0;
    return key_table_buckets_for(keys_max) * BUCKET_SIZE;
}

int key_table_open(struct key_table *ret, void *memory, uint64_t keys_max)
{
    if (key_table_size(keys_max) == 0)
        return -EINVAL;
    if (!atomic128_detect())
        return -ENOTSUP;
    WEIR_INVARIANT((uintptr_t)memory % sizeof(struct atomic128) == 0);
    *ret = (struct key_table){memory, key_table_buckets_for(keys_max)};
    return 0;
}

/* ---- the slots of a key ---- */

struct key_places {
    struct atomic128 *buckets[2];
    uint64_t id;
};

static inline uint32_t key_table_scale(uint32_t random, uint32_t n)
{
    return (uint32_t)((uint64_t)random * n >> 32);
}

/* Computes the key's two buckets, which always differ, and its id. */
static inline struct key_places key_places_of(const struct key_table *table,
                                              const struct key_digest *key)
{
    uint32_t n = table->buckets_n, first = key_table_scale((uint32_t)key->buckets, n);
    uint64_t second = (uint64_t)first + 1 + key_table_scale((uint32_t)(key->buckets >> 32), n - 1);

    WEIR_INVARIANT(first < n && second > first && second < (uint64_t)first + n);
    return (struct key_places){
        {table->slots + (size_t)first * BUCKET_SLOTS,
         table->slots + (size_t)(second < n ? second : second - n) * BUCKET_SLOTS},
        key->id & ~CLAIM_BIT ? key->id & ~CLAIM_BIT : 2};
}

/* Returns the i-th slot of the bucket in the key's own order, which visits one cache line first. So
 * most keys are in the line that is looked at first. */
static inline struct atomic128 *key_slot_in_bucket(struct atomic128 *bucket, uint64_t id,
                                                   uint32_t i)
{
    return &bucket[(id / (CLAIM_BIT + 1) ^ i) % BUCKET_SLOTS];
}

/* Returns the cache line of the i-th slot. */
static inline struct atomic128 *key_line_in_bucket(struct atomic128 *bucket, uint64_t id,
                                                   uint32_t i)
{
    return &bucket[(id / (CLAIM_BIT + 1) ^ i) % BUCKET_SLOTS / LINE_SLOTS * LINE_SLOTS];
}

static inline struct atomic128 *key_slot_at(const struct key_places *places, uint32_t i)
{
    WEIR_INVARIANT(i < KEY_PLACES);
    return key_slot_in_bucket(places->buckets[i / BUCKET_SLOTS], places->id, i);
}

void key_table_prefetch(const struct key_table *table, const struct key_digest *key)
{
    struct key_places places = key_places_of(table, key);

    __builtin_prefetch(key_slot_at(&places, 0));
    __builtin_prefetch(key_slot_at(&places, BUCKET_SLOTS));
}

/* ---- entries ---- */

static inline struct atomic128_value key_entry_value(const struct key_entry *entry)
{
    return (struct atomic128_value){entry->id, entry->word};
}

/* Changes the slot from `*value` to {id, word}. If it differs, stores what it holds in `*value`. */
static inline bool key_slot_cas(struct atomic128 *slot, struct atomic128_value *value, uint64_t id,
                                uint64_t word)
{
    bool swapped = atomic128_cas(slot, value, (struct atomic128_value){id, word});

    SCHED_POINT();
    return swapped;
}

static inline struct atomic128_value key_slot_load(const struct atomic128 *slot)
{
    struct atomic128_value value = atomic128_load(slot);

    SCHED_POINT();
    return value;
}

static bool key_entry_replace(const struct key_entry *entry, uint64_t id, uint64_t word)
{
    struct atomic128_value value = key_entry_value(entry);

    return key_slot_cas(entry->slot, &value, id, word);
}

enum key_swap key_entry_swap(struct key_entry *entry, uint64_t word)
{
    struct atomic128_value value = key_entry_value(entry);

    WEIR_INVARIANT(entry->slot && entry->id && !(entry->id & CLAIM_BIT));
    if (key_slot_cas(entry->slot, &value, entry->id, word)) {
        entry->word = word;
        return KEY_SWAPPED;
    }
    if (value.low != entry->id)
        return KEY_GONE;
    entry->word = value.high;
    return KEY_CHANGED;
}

bool key_entry_remove(const struct key_entry *entry)
{
    return key_entry_replace(entry, 0, 0);
}

/* Returns the slot of a line that has this id, or NULL. Branch-free, because the position in the
 * line is not predictable. A hit is only a hint: the caller loads both halves again. */
static inline struct atomic128 *key_find_in_line(struct atomic128 *line, uint64_t id)
{
    struct atomic128 *found = NULL;

    for (uint32_t i = 0; i < LINE_SLOTS; i++)
        found = shm_load_acquire(&line[i].low) == id ? &line[i] : found;
    return found;
}

/* Searches the lines of a bucket in the key's own order. */
static inline bool key_find_in_bucket(struct atomic128 *bucket, uint64_t id, struct key_entry *ret)
{
    for (uint32_t i = 0; i < BUCKET_SLOTS; i += LINE_SLOTS) {
        struct atomic128 *line = key_line_in_bucket(bucket, id, i);
        struct atomic128 *slot = key_find_in_line(line, id);
        struct atomic128_value value;

        if (!slot)
            continue;
        value = key_slot_load(slot);
        if (value.low != id)
            continue; /* the key was absent at an instant */
        *ret = (struct key_entry){slot, id, value.high};
        return true;
    }
    return false;
}

bool key_table_find(const struct key_table *table, const struct key_digest *key,
                    struct key_entry *ret)
{
    struct key_places places = key_places_of(table, key);

    /* A miss in the first bucket is known too late to start loading the second one then. */
    __builtin_prefetch(key_slot_at(&places, BUCKET_SLOTS));
    return key_find_in_bucket(places.buckets[0], places.id, ret) ||
           key_find_in_bucket(places.buckets[1], places.id, ret);
}

/* ---- claims ---- */

bool key_claim_commit(struct key_entry *entry, uint64_t word)
{
    WEIR_INVARIANT(entry->slot && entry->id & CLAIM_BIT);
    if (!key_entry_replace(entry, entry->id & ~CLAIM_BIT, word))
        return false;
    entry->id &= ~CLAIM_BIT;
    entry->word = word;
    return true;
}

void key_claim_drop(const struct key_entry *entry)
{
    WEIR_INVARIANT(entry->slot && entry->id & CLAIM_BIT);
    key_entry_replace(entry, 0, 0);
}

/* Returns what a slot holds of a key: its entry, a claim, or (id 0) neither. */
static struct key_entry key_slot_match(struct atomic128 *slot, uint64_t id)
{
    struct atomic128_value value = {shm_load_acquire(&slot->low), 0};

    if ((value.low & ~CLAIM_BIT) == id)
        value = key_slot_load(slot);
    return (value.low & ~CLAIM_BIT) == id ? (struct key_entry){slot, value.low, value.high}
                                          : (struct key_entry){slot, 0, 0};
}

/* Result of a search for a key. */
struct key_lookup {
    struct key_entry entry; /* the key's entry, or its first claim; id 0: neither */
    bool is_only;           /* no other claim was found, or all were withdrawn */
};

/* Searches all slots of the key, and withdraws every claim but the first. */
static struct key_lookup key_search(const struct key_places *places)
{
    struct key_lookup found = {.is_only = true};

    for (uint32_t i = 0; i < KEY_PLACES; i++) {
        struct key_entry seen = key_slot_match(key_slot_at(places, i), places->id);

        if (seen.id == places->id)
            return (struct key_lookup){seen, true};
        if (seen.id && found.entry.id)
            found.is_only &= key_entry_replace(&seen, 0, 0);
        else if (seen.id)
            found.entry = seen;
    }
    return found;
}

/* A slot for a new key, and what the slot holds. */
struct slot_choice {
    struct key_entry entry; /* slot NULL: no choice */
    enum { CHOICE_EMPTY, CHOICE_AS_NEW, CHOICE_VICTIM, CHOICE_CLAIM } kind;
};

/* Slots of one bucket that can be used: empty ones, and those of keys as good as new. */
struct bucket_offer {
    uint32_t empty_n, new_n;
    struct slot_choice empty, as_new;
};

struct slot_chooser {
    const struct key_policy *policy;
    uint64_t random;
    struct bucket_offer offers[2];
    struct slot_choice victim, claim;
    uint32_t evictable_n;
    uint64_t least;
};

static bool slot_chooser_prefers(struct slot_chooser *chooser, uint64_t instant)
{
    chooser->evictable_n++;
    switch (chooser->policy->eviction) {
    case KEY_EVICT_OLDEST:
        return chooser->evictable_n == 1 || (instant < chooser->least);
    case KEY_EVICT_RANDOM:
        return key_table_scale((uint32_t)(chooser->random >> 32), chooser->evictable_n) == 0;
    case KEY_EVICT_NONE:
        break;
    }
    return false;
}

static void bucket_offer_empty(struct bucket_offer *offer, const struct key_entry *entry)
{
    if (offer->empty_n++ == 0)
        offer->empty = (struct slot_choice){*entry, CHOICE_EMPTY};
}

static void bucket_offer_as_new(struct bucket_offer *offer, const struct key_entry *entry)
{
    if (offer->new_n++ == 0)
        offer->as_new = (struct slot_choice){*entry, CHOICE_AS_NEW};
}

static void slot_chooser_add_key(struct slot_chooser *chooser, struct bucket_offer *offer,
                                 const struct key_entry *entry)
{
    const struct key_policy *policy = chooser->policy;
    uint64_t instant = 0;

    switch (policy->use(policy->userdata, entry->word, &instant)) {
    case KEY_AS_NEW:
        bucket_offer_as_new(offer, entry);
        break;
    case KEY_EVICTABLE:
        if (!slot_chooser_prefers(chooser, instant))
            break;
        chooser->victim = (struct slot_choice){*entry, CHOICE_VICTIM};
        chooser->least = instant;
        break;
    case KEY_PINNED:
        break;
    }
}

/* Adds a slot to the choice. The halves may be from different instants. Then the compare-and-swap
 * that replaces the slot fails. */
static void slot_chooser_add_slot(struct slot_chooser *chooser, struct bucket_offer *offer,
                                  struct atomic128 *slot)
{
    struct key_entry entry = {.slot = slot};

    entry.id = shm_load_acquire(&slot->low);
    entry.word = shm_load_acquire(&slot->high);
    if (!entry.id)
        bucket_offer_empty(offer, &entry);
    else if (entry.id & CLAIM_BIT)
        chooser->claim = (struct slot_choice){entry, CHOICE_CLAIM};
    else
        slot_chooser_add_key(chooser, offer, &entry);
}

/* Chooses the bucket for a new key by the number of usable slots in each; -1: neither has any. */
static int bucket_offer_choose(uint32_t first_n, uint32_t second_n)
{
    WEIR_INVARIANT(first_n <= BUCKET_SLOTS && second_n <= BUCKET_SLOTS);
    if (first_n > BUCKET_SLOTS - FEW_KEYS || (first_n && first_n >= second_n))
        return 0;
    if (!second_n)
        return -1;
    return 1;
}

/* Chooses a slot for a new key. Keys as good as new are replaced only if no slot is empty: they may
 * return, and the table has room for them. */
static struct slot_choice slot_choose(const struct key_places *places,
                                      const struct key_policy *policy, uint64_t random)
{
    struct slot_chooser chooser = {.policy = policy, .random = random};
    const struct bucket_offer *offers = chooser.offers;
    int empty, as_new;

    for (uint32_t i = 0; i < KEY_PLACES; i++)
        slot_chooser_add_slot(&chooser, &chooser.offers[i / BUCKET_SLOTS], key_slot_at(places, i));
    empty = bucket_offer_choose(offers[0].empty_n, offers[1].empty_n);
    as_new = bucket_offer_choose(offers[0].new_n, offers[1].new_n);
    if (empty >= 0)
        return offers[empty].empty;
    if (as_new >= 0)
        return offers[as_new].as_new;
    return chooser.victim.entry.slot ? chooser.victim : chooser.claim;
}

static void probe_stats_count(struct probe_stats *stats, const struct slot_choice *choice)
{
    stats->forgotten += choice->kind == CHOICE_AS_NEW;
    stats->evicted += choice->kind == CHOICE_VICTIM;
}

/* Claims the chosen slot. The fence orders the claim before the loads of the search that follows.
 * So of two threads that claim and then search, at least one sees the other's claim. */
static bool key_claim_place(const struct slot_choice *choice, uint64_t id, uint64_t nonce,
                            struct probe_stats *stats)
{
    WEIR_INVARIANT(choice->entry.slot && !(id & CLAIM_BIT));
    if (!key_entry_replace(&choice->entry, id | CLAIM_BIT, nonce))
        return false;
    atomic_thread_fence(memory_order_seq_cst);
    probe_stats_count(stats, choice);
    return true;
}

/* Returns whether the key policy agrees to replace the chosen slot. */
static bool slot_choice_may_go(const struct slot_choice *choice, const struct key_policy *policy)
{
    if (!policy->may_remove || (choice->kind != CHOICE_AS_NEW && choice->kind != CHOICE_VICTIM))
        return true;
    return policy->may_remove(policy->userdata, choice->entry.word,
                              choice->kind == CHOICE_AS_NEW ? KEY_AS_NEW : KEY_EVICTABLE);
}

/* Claims a slot for a key without claims. `ret` is the claim, or untouched if a race was lost.
 * Returns false if there is no slot. */
static bool key_claim_any(const struct key_places *places, const struct key_policy *policy,
                          struct nonce_source *nonces, struct key_entry *ret,
                          struct probe_stats *stats)
{
    uint64_t nonce = splitmix64_next(&nonces->last);
    struct slot_choice choice = slot_choose(places, policy, nonce);

    if (!choice.entry.slot)
        return false;
    if (slot_choice_may_go(&choice, policy) && key_claim_place(&choice, places->id, nonce, stats))
        *ret = (struct key_entry){choice.entry.slot, places->id | CLAIM_BIT, nonce};
    return true;
}

static bool key_entry_equals(const struct key_entry *entry, const struct key_entry *other)
{
    return entry->slot == other->slot && entry->id == other->id && entry->word == other->word;
}

/* Returns whether a claim may be committed: it is older than the search, and the search found
 * nothing else of the key. */
static bool key_claim_is_valid(const struct key_lookup *found, const struct key_entry *known)
{
    return known->id && found->is_only && key_entry_equals(&found->entry, known);
}

enum key_claim key_table_claim(const struct key_table *table, const struct key_digest *key,
                               const struct key_policy *policy, struct nonce_source *nonces,
                               struct key_entry *ret, struct probe_stats *stats)
{
    struct key_places places = key_places_of(table, key);
    struct key_entry known = {0}; /* a claim from before the search */
    unsigned turn = 0;

    for (uint32_t attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        struct key_lookup found = key_search(&places);

        if (found.entry.id == places.id) {
            if (known.id)
                key_claim_drop(&known);
            *ret = found.entry;
            return KEY_FOUND;
        }
        if (key_claim_is_valid(&found, &known)) {
            *ret = found.entry;
            return KEY_CLAIMED;
        }
        known = found.entry;
        if (!known.id && !key_claim_any(&places, policy, nonces, &known, stats))
            break;
        if (attempt)
            spin_backoff(&turn);
    }
    if (known.id)
        key_claim_drop(&known);
    stats->refused++;
    return KEY_FULL;
}

/* ---- iteration ---- */

uint64_t key_table_slots(const struct key_table *table)
{
    return (uint64_t)table->buckets_n * BUCKET_SLOTS;
}

bool key_table_at(const struct key_table *table, uint64_t slot, struct key_entry *ret)
{
    struct atomic128_value value = atomic128_load(&table->slots[slot]);

    WEIR_INVARIANT(slot < key_table_slots(table));
    if (!value.low || value.low & CLAIM_BIT)
        return false;
    *ret = (struct key_entry){&table->slots[slot], value.low, value.high};
    return true;
}
