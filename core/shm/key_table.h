/* SPDX-License-Identifier: MIT */
/*
 * Key table: a lock-free hash table that maps each key to one 64-bit word.
 *
 * Holds up to KEY_TABLE_KEYS_MAX keys, for any number of threads and processes. The caller defines
 * what a word means. A key policy tells the table which words are as good as new, and which keys
 * may be evicted when room is short. An operation on a key:
 *
 *     if (key_table_find(table, &key, &entry))                            // the usual case
 *         decide on entry.word, then key_entry_swap(&entry, new word);    // one compare-and-swap
 *     else
 *         switch (key_table_claim(table, &key, &policy, &nonce_state, &entry, &stats)) {
 *         case KEY_FOUND:    another thread inserted the key: decide on entry.word
 *         case KEY_CLAIMED:  decide as for a new key, no earlier than it was removed, then
 *                            key_claim_commit(&entry, word) or key_claim_drop(&entry)
 *         case KEY_FULL:     no room for the key
 *         }
 *
 * If a swap returns KEY_GONE or a commit returns false, nothing has changed: start again. Another
 * thread's operation has completed each time.
 *
 * The key may have been in the table until the claim, and another thread may have removed it as
 * good as new by a later reading of the clock. With an earlier instant the new state would start in
 * the past and grant too much. So either the clock is read after the claim, or instants of removals
 * are noted before them, and what is noted is read after the claim.
 *
 * The caller owns the memory: key_table_size() bytes, initially zero, aligned to 64 bytes (128 is
 * better), never moved while in use. It contains no addresses, so processes may map it anywhere.
 * Whatever its content, no call accesses memory outside it, and every call terminates.
 *
 * A slot is 16 bytes, {id, word}, and changes only by a 16-byte compare-and-swap. So a decision
 * about a key that was replaced in the meantime fails. A bucket is 8 slots, two cache lines. A key
 * may be in any slot of its two buckets, and never moves. A key is identified by its buckets and 63
 * bits of id. Among n keys, some two collide with probability below n^2 / 2 * 4 / buckets * 2^-63:
 * 2^-36 for ten million keys. The digest depends on a secret, so collisions cannot be provoked.
 *
 * A tagged table spends 12 of the bits of an id on a tag, which says how a word is to be read: ten
 * million keys collide with 2^-24 then. Each user of it has a handle with the tag that it writes.
 * Claims of another tag are withdrawn, so only words that were found keep theirs. Tables may be
 * chained: a key is in one of them, and new ones prefer the first. The proof that no key is there
 * twice counts slots, not tables. But a handle that lacks a table of the chain may not claim.
 *
 * docs/decisions/keys.md: the proof that no key is in the table twice, and measurements of room.
 */
#ifndef WEIR_CORE_SHM_KEY_TABLE_H
#define WEIR_CORE_SHM_KEY_TABLE_H

#include "base/atomic128.h"
#include "base/siphash.h"
#include <stddef.h>

#define KEY_TABLE_KEYS_MAX (UINT64_C(1) << 33)

/* A process's handle of a table. Only the memory is shared. */
struct key_table {
    struct atomic128 *slots;
    uint32_t buckets_n;
    uint64_t tag_mask;            /* KEY_TAG_MASK; 0: the table is not tagged */
    uint64_t id_mask;             /* bits of an id that tell keys apart */
    uint64_t tag;                 /* of what is written by this handle */
    const struct key_table *more; /* the next one of the chain; its tag does not matter */
};

/* Of a table that is not tagged: the lowest bit of an id is that of claims. */
#define KEY_ID_MASK   (~UINT64_C(1))
#define KEY_TAGS      UINT64_C(4096)
#define KEY_TAG_SHIFT 52u
#define KEY_TAG_MASK  ((KEY_TAGS - 1) << KEY_TAG_SHIFT)

/* Makes the handle one of a tagged table. A table is tagged by all of its users, or by none. */
static inline void key_table_set_tag(struct key_table *table, uint32_t tag)
{
    table->id_mask &= ~KEY_TAG_MASK;
    table->tag_mask = KEY_TAG_MASK;
    table->tag = tag % KEY_TAGS << KEY_TAG_SHIFT;
}

/* Returns by how many tags what is written by this handle is ahead of an id, modulo KEY_TAGS. */
static inline uint32_t key_table_age(const struct key_table *table, uint64_t id)
{
    return (uint32_t)((table->tag - (id & table->tag_mask)) >> KEY_TAG_SHIFT);
}

/* Returns the size in bytes of a table for `keys_max` keys; 0 if that is 0 or above the maximum. */
size_t key_table_size(uint64_t keys_max);

/*
 * Opens a table in `memory`, which is zero or was opened before with this `keys_max`. Writes
 * nothing to it; there is no close. Returns 0, -EINVAL (keys_max), or -ENOTSUP (the processor has
 * no 16-byte compare-and-swap).
 */
int key_table_open(struct key_table *ret, void *memory, uint64_t keys_max);

/* Snapshot of a key's entry, or of a slot that is claimed for the key. */
struct key_entry {
    struct atomic128 *slot;
    uint64_t id;   /* low half of the slot */
    uint64_t word; /* high half of the slot; for a claim, its nonce */
};

/* Prefetches the cache lines of both buckets of the key: a new key is looked for in all of them. */
void key_table_prefetch(const struct key_table *table, const struct key_digest *key);

/* Looks a key up that was prefetched, if its word has the tag of this handle, in the first table of
 * the chain. Returns false, with `*ret` untouched, if it did not find that; a claim finds the key
 * in any case. */
bool key_table_find_own(const struct key_table *table, const struct key_digest *key,
                        struct key_entry *ret);

/* Looks a key up and writes nothing. Returns false, with `*ret` untouched, if the key was absent at
 * some instant during the call. Its word may have another tag. Any thread. */
bool key_table_find(const struct key_table *table, const struct key_digest *key,
                    struct key_entry *ret);

enum key_swap {
    KEY_SWAPPED, /* entry->word is the new word */
    KEY_CHANGED, /* the key has another word, stored in entry->word: decide again */
    KEY_GONE     /* the slot no longer holds the key: find it again */
};

/* Replaces the key's word if the slot still holds the key and entry->word. */
enum key_swap key_entry_swap(struct key_entry *entry, uint64_t word);

/* As key_entry_swap(), but the word gets the tag of `table`. */
enum key_swap key_entry_retag(const struct key_table *table, struct key_entry *entry,
                              uint64_t word);

/* Removes the key if the slot still holds entry->word. Returns whether it did. */
bool key_entry_remove(const struct key_entry *entry);

/* What a claim may do with a key that is in the table. */
enum key_use {
    KEY_AS_NEW,    /* decides like a new key: its removal cannot be observed */
    KEY_EVICTABLE, /* has state, but may be evicted if the policy allows it */
    KEY_PINNED     /* must stay */
};

enum key_eviction {
    KEY_EVICT_NONE,   /* evict none: refuse the claim */
    KEY_EVICT_OLDEST, /* evict the key with the least instant, of those in the new key's buckets */
    KEY_EVICT_RANDOM  /* evict any of them, at random */
};

struct key_policy {
    /* Classifies a word, of a key with this id. For KEY_EVICTABLE it also returns an instant; the
     * key with the least one is evicted first. The word may be outdated or another key's, and in a
     * shared segment it may be any number. */
    enum key_use (*use)(const void *userdata, uint64_t id, uint64_t word, uint64_t *ret_instant);
    const void *userdata;
    enum key_eviction eviction;
    /* Agrees to remove a key that was classified as `use`. False: that no longer holds.
     * NULL: always agrees. */
    bool (*may_remove)(const void *userdata, uint64_t word, enum key_use use);
};

/* Counters of what claims did to other keys. Calls add to them. */
struct probe_stats {
    uint64_t forgotten; /* keys as good as new that were replaced */
    uint64_t evicted;   /* evictable keys that were replaced */
    uint64_t refused;   /* claims that found no slot */
};

enum key_claim {
    KEY_CLAIMED, /* the key was absent after the claim was made, and `ret` is the claimed slot */
    KEY_FOUND,   /* the key is in the table, and `ret` is its entry */
    KEY_FULL     /* no usable slot was found in the key's buckets */
};

/* Claims a slot for a key, or finds the key. `ret` is untouched on KEY_FULL. Any thread. */
enum key_claim key_table_claim(const struct key_table *table, const struct key_digest *key,
                               const struct key_policy *policy, uint64_t *nonce_state,
                               struct key_entry *ret, struct probe_stats *stats);

/*
 * Turns a claim into the key's entry with this word, and updates `entry`. Returns false, and
 * changes nothing, if another thread committed or withdrew the claim, or used the slot for another
 * key.
 */
bool key_claim_commit(struct key_entry *entry, uint64_t word);

/* Withdraws a claim. An abandoned claim blocks nothing: the next claim for this key takes it over,
 * and other keys use its slot if there is no better one. */
void key_claim_drop(const struct key_entry *entry);

/* Returns the number of slots of this table alone, for an iteration over all keys. */
uint64_t key_table_slots(const struct key_table *table);
/* Reads one slot. Returns false if it holds no key: then `*ret` is a claim, or has the id 0. */
bool key_table_at(const struct key_table *table, uint64_t slot, struct key_entry *ret);

#endif
