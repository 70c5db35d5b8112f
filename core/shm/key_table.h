/* SPDX-License-Identifier: MIT */
/*
 * A table of keys, each with one word of state, for up to some thousand millions of keys and any
 * number of threads and processes, without locks. What a word means is the caller's business; the
 * table knows from a judge which words are as good as new, and which may go when room is short.
 *
 * An operation on a key:
 *
 *     if (key_table_find(table, &key, &entry))                            // the usual case
 *         decide on entry.word, then key_entry_swap(&entry, new word);    // one compare-and-swap
 *     else
 *         switch (key_table_claim(table, &key, &judge, &nonce, &entry, &tally)) {
 *         case KEY_FOUND:    somebody was faster: decide on entry.word, as above
 *         case KEY_CLAIMED:  read the clock (again), decide as for a new key, then
 *                            key_claim_commit(&entry, word) or key_claim_drop(&entry)
 *         case KEY_FULL:     no room for it
 *         }
 *
 * and all of it again when a swap says KEY_GONE or a commit says false: then somebody else came
 * first and nothing has happened. Somebody's operation is complete each time.
 *
 * The clock is read after a claim because the key may have been in the table until then, and have
 * been forgotten by somebody whose clock said that it was as good as new. With an instant from
 * before that, the caller would take part of the past for the key's beginning and grant too much.
 *
 * Memory is the caller's: key_table_size() bytes that are zero at first, aligned to 64 (128 is
 * better), and never moved while in use. Nothing in it is an address, so processes may map it where
 * they like. Whatever is in it, nothing outside it is touched, and every call comes to an end.
 *
 * A slot is 16 bytes, {id, word}, and changes by compare-and-swap of both alone: whoever decides on
 * a key that was replaced meanwhile fails. Eight slots are a bucket, two lines of the cache; a key
 * may be in any slot of two buckets, which are its places, and never moves. A key is known by its
 * buckets and 63 bits of id. Of n keys any two are taken for one with a probability below
 * n^2 / 2 * 4 / buckets * 2^-63: for ten million keys 2^-36, and as of the secret, so nobody can aim
 * at it.
 *
 * No key is ever in the table twice. To put one there takes two compare-and-swaps: a claim, {id | 1,
 * nonce}, and a commit, which makes it {id, word}; and between them a search of all the key's places
 * that finds neither the key nor another claim for it (or withdraws that one). Proof: let A and B be
 * two entries of a key at one time, A committed before B. B's committer searched after B was
 * claimed and did not see A, so A was claimed after that search saw its slot, so after B. A's
 * committer searched after A was claimed, so it did see B's claim, and either withdrew it, so that
 * B's commit fails, or did not commit. What this rests on:
 *   - A commit compares the nonce, so that a claim stood in its slot from before the search until
 *     then. Nonces are random numbers of 64 bits: one comes back by chance alone.
 *   - Whoever claims and then searches, searches what is there after all can see the claim: there is
 *     a fence in between. Whoever takes over a claim has seen it before its search.
 * Likewise nobody had the key in the table between that search and the commit, so a clock that is
 * read in between is past all that was forgotten.
 *
 * Nobody waits for anybody. A claim of somebody who is stopped, or dead, is taken over by the next
 * one for the same key, whose commit counts, whoever made the claim; of several claims all prefer
 * the one in the first place, so that one of them is committed. For another key a claim is
 * the last choice of a place; where several keys fight for one place and there is no other, they
 * may thwart one another, with a back-off, until one gets through or 256 attempts are over: that
 * one is refused.
 *
 * Checked by tests/crash: key_table.pml, a model of all this that was searched exhaustively (three
 * actors of one key in two places, 4.3 million states; with a third of another key, three places,
 * 2.9 million; with more attempts, 18.9 million), and every pair of stops (test_key_steps.c).
 *
 * Room: 8 slots in a bucket, 9 keys for 16 slots and 8 buckets more than that: 28.4 bytes a key. A
 * key goes to the emptier of its buckets, but stays in the first while that has less than 5. Only
 * where neither has an empty slot, keys as good as new are forgotten, by the same rule, and then live
 * ones evicted. Measured with a million keys (tests/unit and simulations; with a single bucket for
 * each, one key in 70 would have been evicted, and with 4 slots in a bucket one in 14000):
 *   - As many keys as there is room for are put in, or come and come back: none is evicted.
 *   - New ones come for ever while as many others are live as there is room for: 150 are evicted, in
 *     all, as the empty slots run out, and then one in some million. With nine tenths of them live
 *     23; with a tenth more than was promised, 7 in 50000; with a quarter more, 1 in 400.
 * To find and swap takes 1.2 misses of a cache that the table is much larger than (cachegrind).
 */
#ifndef WEIR_CORE_SHM_KEY_TABLE_H
#define WEIR_CORE_SHM_KEY_TABLE_H

#include "base/atomic128.h"
#include "base/siphash.h"
#include <stddef.h>

#define KEY_TABLE_KEYS_MAX (UINT64_C(1) << 33)

/* What a process knows of a table. No more than this needs to be shared but the memory. */
struct key_table {
    struct atomic128 *slots;
    uint32_t buckets_n;
};

/* Bytes of a table in which `keys_max` keys find room; 0 if that is 0 or above KEY_TABLE_KEYS_MAX.
 */
size_t key_table_size(uint64_t keys_max);

/*
 * A table in this memory, which is zero or has been one for as many keys. Writes nothing there.
 * There is nothing to close. Returns 0, -EINVAL (keys_max), -ENOTSUP (the processor has no
 * compare-and-swap of 16 bytes).
 */
int key_table_open(struct key_table *ret, void *memory, uint64_t keys_max);

/* The key's entry as it was at an instant, or a place that is claimed for it. */
struct key_entry {
    struct atomic128 *slot;
    uint64_t id;   /* as it stands in the slot */
    uint64_t word; /* of a claim: its nonce */
};

/* Begins to fetch from memory where the key is or would be. */
void key_table_prefetch(const struct key_table *table, const struct key_digest *key);

/* Looks for a key, and writes nothing. False: at some instant during the call it was not there, and
 * `*ret` is untouched. Any thread. */
bool key_table_find(const struct key_table *table, const struct key_digest *key,
                    struct key_entry *ret);

enum key_swap {
    KEY_SWAPPED, /* entry->word is the new word now */
    KEY_CHANGED, /* the key has another word, in entry->word now: decide again */
    KEY_GONE     /* the key is not here any more: find it again */
};

/* Gives the key this word, if it is here and still has the one that the entry says. */
enum key_swap key_entry_swap(struct key_entry *entry, uint64_t word);

/* Takes the key out of the table if it still has the word that the entry says; false: not so. */
bool key_entry_remove(const struct key_entry *entry);

/* What may be done with a key that is in the table. */
enum key_use {
    KEY_AS_NEW, /* it would be decided on as if it were new: it may be forgotten without a trace */
    KEY_EVICTABLE, /* it matters, but may be evicted where the policy says so */
    KEY_PINNED     /* it has to stay */
};

enum key_eviction {
    KEY_EVICT_NONE,   /* refuse instead */
    KEY_EVICT_OLDEST, /* of those that share the key's buckets, the one whose instant is least */
    KEY_EVICT_RANDOM  /* any of them */
};

struct key_policy {
    /* What the word is good for; of one that is live also an instant, any number: least goes first.
     * It is called for words that are out of date, and in a shared segment for any number. */
    enum key_use (*use)(const void *userdata, uint64_t word, uint64_t *ret_instant);
    const void *userdata;
    enum key_eviction eviction;
    /* Asked before a key with this word goes, which is good for that; false: it is not any more.
     * NULL: it always is. */
    bool (*may_remove)(const void *userdata, uint64_t word, enum key_use use);
};

/* Who makes claims: one thread at a time. All that work on a table begin with random numbers. */
struct nonce_source {
    uint64_t last;
};

/* Counts what claims did to other keys; added to. */
struct probe_stats {
    uint64_t forgotten; /* keys as good as new whose place was used */
    uint64_t evicted;   /* live keys that had to go */
    uint64_t refused;   /* claims that found no place */
};

enum key_claim {
    KEY_CLAIMED, /* the key was not there after the claim was made, and this is a place for it */
    KEY_FOUND,   /* it is there */
    KEY_FULL     /* every place it might have is taken by a key that has to stay */
};

/* Claims a place for a key, or finds it. `ret` is untouched on KEY_FULL. Any thread. */
enum key_claim key_table_claim(const struct key_table *table, const struct key_digest *key,
                               const struct key_policy *policy, struct nonce_source *nonces,
                               struct key_entry *ret, struct probe_stats *stats);

/* The key is in the table from now on, with this word, and `entry` is its entry. False: somebody
 * else put it there, or took the place for another key, and nothing has happened. */
bool key_claim_commit(struct key_entry *entry, uint64_t word);

/* Gives the place back. A claim that its owner forgets or dies with is in nobody's way: the next
 * one for this key takes it over, and other keys take its place if there is no better one. */
void key_claim_drop(const struct key_entry *entry);

/* For going through all keys: how many slots there are, and what is in one; false: no key. */
uint64_t key_table_slots(const struct key_table *table);
bool key_table_at(const struct key_table *table, uint64_t slot, struct key_entry *ret);

#endif
