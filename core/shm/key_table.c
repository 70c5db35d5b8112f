/* SPDX-License-Identifier: MIT */
/* Implements the key table: two buckets per key, and insertion by claim and commit. */
#include "shm/key_table.h"
#include "base/hash.h"

#include "base/backoff.h"
#include "base/compiler.h"
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
    *ret = (struct key_table){
        .slots = memory, .buckets_n = key_table_buckets_for(keys_max), .id_mask = KEY_ID_MASK};
    return 0;
}

/* ---- the slots of a key ---- */

struct key_places {
    struct atomic128 *buckets[2];
    uint64_t id, own_id; /* without a tag, and with that of the handle */
    uint64_t id_mask;
};

static inline uint32_t key_table_scale(uint32_t random, uint32_t n)
{
    return (uint32_t)((uint64_t)random * n >> 32);
}

/* Computes the key's two buckets, which always differ, and its id, by the tag of `handle`. */
static inline struct key_places key_places_in(const struct key_table *table,
                                              const struct key_table *handle,
                                              const struct key_digest *key)
{
    uint32_t n = table->buckets_n, first = key_table_scale((uint32_t)key->buckets, n);
    uint64_t second = (uint64_t)first + 1 + key_table_scale((uint32_t)(key->buckets >> 32), n - 1);
    uint64_t id = key->id & handle->id_mask;

    WEIR_INVARIANT(first < n && second > first && second < (uint64_t)first + n);
    return (struct key_places){
        {table->slots + (size_t)first * BUCKET_SLOTS,
         table->slots + (size_t)(second < n ? second : second - n) * BUCKET_SLOTS},
        id ? id : 2,
        (id ? id : 2) | handle->tag,
        handle->id_mask};
}

static inline struct key_places key_places_of(const struct key_table *table,
                                              const struct key_digest *key)
{
    return key_places_in(table, table, key);
}

/* Returns the cache line of the i-th slot of the bucket in the key's own order, which visits one
 * line first. So most keys are in the line that is looked at first. */
static inline struct atomic128 *key_line_in_bucket(struct atomic128 *bucket, uint64_t id,
                                                   uint32_t i)
{
    return &bucket[(id / (CLAIM_BIT + 1) ^ i) % BUCKET_SLOTS / LINE_SLOTS * LINE_SLOTS];
}

static inline struct atomic128 *key_slot_at(const struct key_places *places, uint32_t i)
{
    WEIR_INVARIANT(i < KEY_PLACES);
    return &places->buckets[i / BUCKET_SLOTS][(places->id / (CLAIM_BIT + 1) ^ i) % BUCKET_SLOTS];
}

void key_table_prefetch(const struct key_table *table, const struct key_digest *key)
{
    struct key_places places = key_places_of(table, key);

    for (uint32_t i = 0; i < 2; i++) {
        prefetch_read(places.buckets[i]);
        prefetch_read(places.buckets[i] + LINE_SLOTS);
    }
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

enum key_swap key_entry_retag(const struct key_table *table, struct key_entry *entry, uint64_t word)
{
    uint64_t id = (entry->id & ~table->tag_mask) | table->tag;

    if (id == entry->id)
        return key_entry_swap(entry, word);
    if (!key_entry_replace(entry, id, word))
        return KEY_GONE;
    entry->id = id;
    entry->word = word;
    return KEY_SWAPPED;
}

bool key_entry_remove(const struct key_entry *entry)
{
    return key_entry_replace(entry, 0, 0);
}

/* Returns whether a slot has this id but for bits that are not in `mask`. */
static inline bool key_slot_has(const struct atomic128 *slot, uint64_t id, uint64_t mask)
{
    return (shm_load_acquire(&slot->low) & mask) == id;
}

/* Returns the slot of a line that has the id, or NULL. Branch-free, because the position in the
 * line is not predictable; and without a loop, for which some compilers take longer. A hit is only
 * a hint: the caller loads both halves again. */
static inline struct atomic128 *key_find_in_line(struct atomic128 *line, uint64_t id, uint64_t mask)
{
    struct atomic128 *found = key_slot_has(&line[0], id, mask) ? &line[0] : NULL;

    found = key_slot_has(&line[1], id, mask) ? &line[1] : found;
    found = key_slot_has(&line[2], id, mask) ? &line[2] : found;
    return key_slot_has(&line[3], id, mask) ? &line[3] : found;
}

/* Returns which slots of a bucket have the id, as bits. Branch-free, and as fast as the slots can
 * be loaded; without a loop, as above. */
static inline uint32_t key_bucket_matches(const struct atomic128 *bucket, uint64_t id,
                                          uint64_t mask)
{
    uint32_t bits = key_slot_has(&bucket[7], id, mask);

    bits += bits + key_slot_has(&bucket[6], id, mask);
    bits += bits + key_slot_has(&bucket[5], id, mask);
    bits += bits + key_slot_has(&bucket[4], id, mask);
    bits += bits + key_slot_has(&bucket[3], id, mask);
    bits += bits + key_slot_has(&bucket[2], id, mask);
    bits += bits + key_slot_has(&bucket[1], id, mask);
    return bits + bits + key_slot_has(&bucket[0], id, mask);
}

/* Searches the lines of the buckets in the key's own order. */
static inline bool key_find_in_table(const struct key_places *places, uint64_t id, uint64_t mask,
                                     struct key_entry *ret)
{
    struct atomic128 *const *buckets = places->buckets;
    struct atomic128 *slot = key_find_in_line(key_line_in_bucket(buckets[0], id, 0), id, mask);
    struct atomic128_value value;

    if (!slot)
        slot = key_find_in_line(key_line_in_bucket(buckets[0], id, LINE_SLOTS), id, mask);
    if (!slot)
        slot = key_find_in_line(key_line_in_bucket(buckets[1], id, 0), id, mask);
    if (!slot)
        slot = key_find_in_line(key_line_in_bucket(buckets[1], id, LINE_SLOTS), id, mask);
    if (!slot)
        return false;
    value = key_slot_load(slot);
    if ((value.low & mask) != id)
        return false; /* the key was absent at an instant */
    *ret = (struct key_entry){slot, value.low, value.high};
    return true;
}

bool key_table_find_own(const struct key_table *table, const struct key_digest *key,
                        struct key_entry *ret)
{
    struct key_places places = key_places_of(table, key);

    return key_find_in_table(&places, places.own_id, UINT64_MAX, ret);
}

bool key_table_find(const struct key_table *handle, const struct key_digest *key,
                    struct key_entry *ret)
{
    for (const struct key_table *table = handle; table; table = table->more) {
        struct key_places places = key_places_in(table, handle, key);

        /* A miss in the first bucket is known too late to start loading the second one then. */
        prefetch_read(key_slot_at(&places, BUCKET_SLOTS));
        if (key_find_in_table(&places, places.id, places.id_mask | CLAIM_BIT, ret))
            return true;
    }
    return false;
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

/* Returns what a slot holds of a key, by any tag: its entry, a claim, or (id 0) neither. */
static inline struct key_entry key_slot_match(struct atomic128 *slot,
                                              const struct key_places *places)
{
    struct atomic128_value value = key_slot_load(slot);

    return (value.low & places->id_mask) == places->id
               ? (struct key_entry){slot, value.low, value.high}
               : (struct key_entry){slot, 0, 0};
}

/* Result of a search for a key. */
struct key_lookup {
    struct key_entry entry; /* the key's entry, or its first claim; id 0: neither */
    bool is_only;           /* no other claim was found, or all were withdrawn */
};

/* Searches a bucket of the key, and withdraws every claim but the first by this tag. Returns
 * whether it found the key's entry. Most buckets have nothing of a key that is claimed. */
static inline bool key_search_bucket(const struct key_places *places, struct atomic128 *bucket,
                                     struct key_lookup *found)
{
    uint32_t matches = key_bucket_matches(bucket, places->id, places->id_mask);

    for (; matches; matches &= matches - 1) {
        struct key_entry seen = key_slot_match(bucket + __builtin_ctz(matches), places);

        if (seen.id && !(seen.id & CLAIM_BIT)) {
            *found = (struct key_lookup){seen, true};
            return true;
        }
        if (seen.id && (found->entry.id || seen.id != (places->own_id | CLAIM_BIT)))
            found->is_only &= key_entry_replace(&seen, 0, 0);
        else if (seen.id)
            found->entry = seen;
    }
    return false;
}

/* Searches all slots of the key, as key_search_bucket(). */
static struct key_lookup key_search(const struct key_table *handle, const struct key_digest *key)
{
    struct key_lookup found = {.is_only = true};

    for (const struct key_table *table = handle; table; table = table->more) {
        struct key_places places = key_places_in(table, handle, key);

        if (key_search_bucket(&places, places.buckets[0], &found) ||
            key_search_bucket(&places, places.buckets[1], &found))
            break;
    }
    return found;
}

/* What a slot holds. A new key takes a slot of the first kind that there is, but no pinned one. */
enum slot_kind { SLOT_EMPTY, SLOT_AS_NEW, SLOT_EVICTABLE, SLOT_CLAIMED, SLOT_PINNED };

/* Slots of one kind, and the preferred one of them. */
struct slot_offer {
    struct key_entry entry;
    uint64_t instant; /* of an evictable key */
    uint32_t n;
};

static enum slot_kind key_slot_kind(const struct key_entry *entry, const struct key_policy *policy,
                                    uint64_t *ret_instant)
{
    enum key_use use;

    if (!entry->id)
        return SLOT_EMPTY;
    if (entry->id & CLAIM_BIT)
        return SLOT_CLAIMED;
    use = policy->use(policy->userdata, entry->id, entry->word, ret_instant);
    if (use == KEY_EVICTABLE && policy->eviction != KEY_EVICT_NONE)
        return SLOT_EVICTABLE;
    return use == KEY_AS_NEW ? SLOT_AS_NEW : SLOT_PINNED;
}

/* Returns whether the policy evicts a key rather than those before it; it is the n-th. */
static bool slot_offer_is_better(const struct slot_offer *offer, const struct slot_offer *before,
                                 enum key_eviction eviction, uint64_t random)
{
    return eviction == KEY_EVICT_OLDEST ? offer->instant < before->instant
                                        : key_table_scale((uint32_t)(random >> 32), offer->n) == 0;
}

/* Chooses the bucket for a new key by the number of usable slots in each; -1: neither has any. */
static inline int slot_choose_bucket(uint32_t first_n, uint32_t second_n)
{
    if (first_n > BUCKET_SLOTS - FEW_KEYS || (first_n && first_n >= second_n))
        return 0;
    return second_n ? 1 : -1;
}

/* Returns how many of the slots of a bucket are named by bits. */
static inline uint32_t key_slots_n(uint32_t bits)
{
    bits -= bits >> 1 & 0x55;
    bits = (bits & 0x33) + (bits >> 2 & 0x33);
    return (bits & 0xf) + (bits >> 4);
}

/* Chooses an empty slot for a new key, without a look at the keys in the others: in the line of
 * the bucket that is looked at first, if possible. Returns false if there is none. */
static bool slot_choose_empty(const struct key_places *places, struct key_entry *ret)
{
    uint32_t line = places->id / (CLAIM_BIT + 1) % BUCKET_SLOTS / LINE_SLOTS * LINE_SLOTS;
    uint32_t empty[2] = {key_bucket_matches(places->buckets[0], 0, UINT64_MAX),
                         key_bucket_matches(places->buckets[1], 0, UINT64_MAX)};
    int bucket = slot_choose_bucket(key_slots_n(empty[0]), key_slots_n(empty[1]));

    if (bucket < 0)
        return false;
    if (!(empty[bucket] >> line & ((1u << LINE_SLOTS) - 1)))
        line ^= LINE_SLOTS;
    ret->slot = &places->buckets[bucket][line + (uint32_t)__builtin_ctz(empty[bucket] >> line)];
    ret->id = 0;
    ret->word = shm_load_acquire(&ret->slot->high);
    return true;
}

/* Chooses a slot where none is empty. Returns its kind. The halves of a slot may be from different
 * instants: then the compare-and-swap that replaces it fails. */
WEIR_NOINLINE enum slot_kind slot_choose_used(const struct key_places *places,
                                              const struct key_policy *policy, uint64_t random,
                                              struct key_entry *ret)
{
    struct slot_offer offers[SLOT_PINNED][2] = {0};
    enum slot_kind kind;

    for (uint32_t i = 0; i < KEY_PLACES; i++) {
        struct slot_offer seen = {.entry.slot = key_slot_at(places, i)}, *offer;

        seen.entry.id = shm_load_acquire(&seen.entry.slot->low);
        seen.entry.word = shm_load_acquire(&seen.entry.slot->high);
        kind = key_slot_kind(&seen.entry, policy, &seen.instant);
        if (kind == SLOT_PINNED)
            continue;
        offer = &offers[kind][kind < SLOT_EVICTABLE ? i / BUCKET_SLOTS : 0];
        seen.n = ++offer->n;
        if (seen.n == 1 || (kind == SLOT_EVICTABLE &&
                            slot_offer_is_better(&seen, offer, policy->eviction, random)))
            *offer = seen;
    }
    for (kind = SLOT_EMPTY; kind < SLOT_PINNED; kind++) {
        int bucket = slot_choose_bucket(offers[kind][0].n, offers[kind][1].n);

        if (bucket >= 0) {
            *ret = offers[kind][bucket].entry;
            break;
        }
    }
    return kind;
}

/* Returns whether the key policy agrees to replace a slot of this kind. */
static bool key_policy_agrees(const struct key_policy *policy, enum slot_kind kind, uint64_t word)
{
    if (!policy->may_remove || (kind != SLOT_AS_NEW && kind != SLOT_EVICTABLE))
        return true;
    return policy->may_remove(policy->userdata, word,
                              kind == SLOT_AS_NEW ? KEY_AS_NEW : KEY_EVICTABLE);
}

/* Chooses a slot for a new key, in the first table of the chain that has the best kind of slot.
 * Returns SLOT_PINNED if there is none. Keys as good as new are replaced only if no slot is empty:
 * they may return, and the table has room for them. */
static enum slot_kind slot_choose_in_chain(const struct key_table *handle,
                                           const struct key_digest *key,
                                           const struct key_policy *policy, uint64_t random,
                                           struct key_entry *ret)
{
    enum slot_kind best = SLOT_PINNED;

    for (const struct key_table *table = handle; table && best != SLOT_EMPTY; table = table->more) {
        struct key_places places = key_places_in(table, handle, key);
        struct key_entry chosen;
        enum slot_kind kind = slot_choose_empty(&places, &chosen)
                                  ? SLOT_EMPTY
                                  : slot_choose_used(&places, policy, random, &chosen);

        if (kind >= best)
            continue;
        best = kind;
        *ret = chosen;
    }
    return best;
}

/* Claims a slot for a key without claims. `ret` is the claim, or untouched if a race was lost.
 * Returns false if there is no slot. The fence orders the claim before the loads of the search that
 * follows. So of two threads that claim and then search, at least one sees the other's claim. */
static bool key_claim_any(const struct key_table *table, const struct key_digest *key,
                          const struct key_policy *policy, uint64_t *nonce_state,
                          struct key_entry *ret, struct probe_stats *stats)
{
    uint64_t nonce = splitmix64_next(nonce_state);
    uint64_t id = key_places_of(table, key).own_id | CLAIM_BIT;
    struct key_entry chosen = {0};
    enum slot_kind kind = slot_choose_in_chain(table, key, policy, nonce, &chosen);

    if (kind == SLOT_PINNED)
        return false;
    if (!key_policy_agrees(policy, kind, chosen.word) || !key_entry_replace(&chosen, id, nonce))
        return true;
    atomic128_fence();
    stats->forgotten += kind == SLOT_AS_NEW;
    stats->evicted += kind == SLOT_EVICTABLE;
    *ret = (struct key_entry){chosen.slot, id, nonce};
    return true;
}

/* Returns whether a claim may be committed: it is older than the search, and the search found
 * nothing else of the key. */
static bool key_claim_is_valid(const struct key_lookup *found, const struct key_entry *known)
{
    if (!known->id || !found->is_only)
        return false;
    return found->entry.slot == known->slot && found->entry.id == known->id &&
           found->entry.word == known->word;
}

/* Claims an empty slot before a search, as the table has nothing of most keys that are claimed.
 * Returns false if it has, and `*ret` is the claim; or untouched, if no slot is empty. */
static inline bool key_claim_empty(const struct key_table *table, const struct key_digest *key,
                                   uint64_t *nonce_state, struct key_entry *ret)
{
    struct key_places places = key_places_of(table, key);
    uint64_t own_nonce = splitmix64_next(nonce_state);
    struct key_entry chosen;
    uint32_t found;

    if (table->more || !slot_choose_empty(&places, &chosen) ||
        !key_entry_replace(&chosen, places.own_id | CLAIM_BIT, own_nonce))
        return false;
    atomic128_fence();
    found = key_bucket_matches(places.buckets[0], places.id, places.id_mask) |
            key_bucket_matches(places.buckets[1], places.id, places.id_mask) << BUCKET_SLOTS;
    *ret = (struct key_entry){chosen.slot, places.own_id | CLAIM_BIT, own_nonce};
    return !(found & (found - 1)); /* the claim, or there is none to commit any more */
}

/* Claims any slot, beginning with a claim `known`, if there is one. A function of its own, so that
 * the common case needs few registers. */
WEIR_NOINLINE enum key_claim key_claim_any_slot(const struct key_table *table,
                                                const struct key_digest *key,
                                                const struct key_policy *policy,
                                                uint64_t *nonce_state, struct key_entry known,
                                                struct key_entry *ret, struct probe_stats *stats)
{
    unsigned turn = 0;

    for (uint32_t attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        struct key_lookup found = key_search(table, key);

        if (found.entry.id && !(found.entry.id & CLAIM_BIT)) {
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
        if (!known.id && !key_claim_any(table, key, policy, nonce_state, &known, stats))
            break;
        if (attempt)
            spin_backoff(&turn);
    }
    if (known.id)
        key_claim_drop(&known);
    stats->refused++;
    return KEY_FULL;
}

enum key_claim key_table_claim(const struct key_table *table, const struct key_digest *key,
                               const struct key_policy *policy, uint64_t *nonce_state,
                               struct key_entry *ret, struct probe_stats *stats)
{
    struct key_entry known = {0};

    if (!key_claim_empty(table, key, nonce_state, &known))
        return key_claim_any_slot(table, key, policy, nonce_state, known, ret, stats);
    *ret = known;
    return KEY_CLAIMED;
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
    *ret = (struct key_entry){&table->slots[slot], value.low, value.high};
    return value.low && !(value.low & CLAIM_BIT);
}
