/* SPDX-License-Identifier: MIT */
/*
 * Keyed sets: one template of limits, with a separate state for every subject of requests: a
 * client, a tenant, an address. README.md says where that state is.
 */
#ifndef WEIR_CORE_KEYED_KEYED_H
#define WEIR_CORE_KEYED_KEYED_H

#include "base/invariant.h"
#include "base/stable_array.h"
#include "set/set_ops.h"
#include "set/txn.h"
#include "shm/key_table.h"
#include "shm/segment_layout.h"

struct segment;
struct set_plan;

#define KEY_SET_BIT (UINT64_C(1) << 63)

/* Returns whether a key's word names a key set. */
static inline bool key_word_is_key_set(uint64_t word)
{
    return (word & KEY_SET_BIT) != 0;
}

/* What all definitions of a keyed set have in common, in this process. */
struct keyed_store {
    uint32_t users; /* definitions, under the instance's lock */
    struct stable_array
        key_sets; /* struct key_set * by number, the newest that this process has met; owned */
    _Atomic uint32_t key_sets_known_n; /* entries of key_sets in use */
    _Atomic uint32_t clock_hand;       /* key_set.c: the next key set to examine */
    _Atomic uint32_t key_sets_made;    /* by all definitions */
    struct segment_keyed *own_state;   /* of a private set */
};

struct keyed {
    weir_set *set; /* the template set */
    struct keyed_store *store;
    uint32_t definition;                /* number among those of its set: the tag of its words */
    struct weir_instant change_at;      /* when it succeeded the one before */
    _Atomic uint32_t oldest;            /* private: no word has the tag of an earlier definition */
    _Atomic bool is_opened;             /* shared: the template was seen to have its state */
    const struct segment *segment;      /* the shared segment; NULL: private */
    struct segment_keyed *shared_state; /* counters and list heads; in the segment, or owned */
    struct siphash_secret secret;
    struct key_table table;
    void *memory; /* of a private table, or of what was added to that of the definition before */
    _Atomic bool is_populated;     /* keyed_populate() was called */
    size_t memory_size;            /* of all tables */
    size_t added_size;             /* of `memory` */
    uint64_t capacity;             /* keys that the tables have room for */
    uint64_t max_keys, memory_max; /* as configured; memory_max 0: unbounded */
    enum key_eviction eviction;
    bool fits_inline; /* the state of one key fits its word */

    uint32_t key_sets_max;
    uint32_t owed_n; /* key sets that are to have a successor by this definition, and are promised
                        room for it (struct weir); under the instance's lock */
};

/* A template set. */
struct keyed_set {
    weir_set set; /* first: see keyed_of() */
    struct keyed *keyed;
};

/* Returns whether the set has the subjects that a plan says. */
bool keyed_is_planned(const struct keyed *keyed, const struct set_plan *plan);

/* Returns what a template set has beside its weir_set. */
static inline struct keyed *keyed_of(const weir_set *set)
{
    WEIR_INVARIANT(set->is_keyed);
    return ((const struct keyed_set *)set)->keyed;
}

/* Words behind the amounts in a record of a keyed set: the key. */
#define KEYED_RECORD_WORDS 2u

/* Makes a set keyed after its limits are described, before its storage is sized by the number of
 * keys. Returns 0, -ENOMEM or -ENOTSUP, with the reason. The instance's lock is held. */
int keyed_new(weir_set *set, const struct set_plan *plan, struct weir_error *reterr);
/* Makes the variant of a shared set keyed (api/set_object.h). Returns 0 or -ENOMEM. The instance's
 * lock is held. */
int keyed_new_variant(weir_set *set, const struct keyed *of);
/* Returns the class of the blocks of key sets. In a segment it has room for limits that fit a word,
 * and may not by a later definition. */
uint32_t keyed_block_class(const struct keyed *keyed);
/* Opens the key table once the set has its storage. Returns 0, -ENOMEM or -ENOTSUP, with the
 * reason. The instance's lock is held. */
int keyed_open(weir_set *set, struct weir_error *reterr);
/* Gives a private table that this definition has added its memory, the first time. Otherwise
 * requests of new subjects would wait for it: the kernel takes 0.1 ms and more to clear a large
 * page. Called without the instance's lock: of a large table it may last a second. */
void keyed_populate(weir_set *set);
void keyed_free(struct keyed *keyed);

/*
 * ---- successors (keyed_moved.c) ----
 *
 * A successor has the table and the key sets of its predecessor. Each word has the tag of the
 * definition by which it is to be read, and README.md says how a subject changes its definition.
 * In a segment the versions of a key set say of which definition they are, and change in place.
 */

/* Returns the number of the earliest definition of a shared set by which there may still be a
 * subject. */
uint32_t keyed_oldest(const struct keyed *keyed);

/* Says that a successor is about to be published: its subjects change their definition as of now.
 * The instance's lock is held. */
void keyed_begin_change(weir_set *set);
/* Lets the subjects change that can be changed without a request. Those that wait change in any
 * case, if memory permits. Takes no time from other threads, and may be repeated. Of a shared set
 * any process does so. */
void keyed_take_over(weir_set *set);
/* Returns whether the words of so many definitions are in use that there is no tag for another. */
bool keyed_lacks_tags(const struct keyed *keyed);
/* Adds what a successor with blocks of this class would be promised, in place of what the set is:
 * another key set for each that there is. The instance's lock is held. */
void keyed_plan_owed(const struct keyed *keyed, uint32_t block_class,
                     struct promised_sets *promised);
/* Promises room for so many key sets, and no longer for those before; 0 for a set that is removed.
 * The instance's lock is held. */
void keyed_owe(struct keyed *keyed, uint32_t n);

/* Hashes the subject of a request. Returns 0, or -EINVAL if it is missing or too long. */
int keyed_hash(struct acquire_op *op);

/*
 * Acquires for the key of a request to a keyed set; results as set_acquire(). If a key set has the
 * key, op->set, its acquisition and the record become that key set's. After a refusal they are the
 * template set's.
 */
int keyed_acquire(struct acquire_op *op, uint32_t record, enum wait_mode mode,
                  uint64_t max_wait_ns);

/* Releases a record of the template set or of one of its key sets, as set_release() specifies. */
bool keyed_release(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                   bool is_owner, const struct release_args *args);

/* Returns a part of what such a record holds, as set_return_part() specifies. */
void keyed_return_part(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint32_t rest,
                       const struct release_args *args);

/* Forecasts as set_ops.forecast specifies. */
void keyed_forecast(struct acquire_op *op, uint32_t record, enum forecast_walk walk);

/* Tells what remains for a key, as set_ops.remaining specifies. */
int keyed_remaining(struct acquire_op *op, struct weir_remaining *ret, uint32_t n);

/* Writes the key behind the amounts of a record that is being filled. */
void keyed_fill_record(const struct acquire_op *op, struct acq_record *r);
/* Returns whether a record of the set is of the subject of op->request. */
bool keyed_is_of_subject(const struct acquire_op *op, uint32_t record);

/*
 * ---- key sets: full sets that hold the state of keys for which one word is not enough ----
 *
 * A key set is made once and then bound to one key after another. README.md has the protocol.
 */

#define BINDING_BITS        39
#define BINDING_MASK        ((UINT64_C(1) << BINDING_BITS) - 1)
#define KEY_SET_NUMBER_BITS 24
#define KEY_SETS_MAX        (UINT32_C(1) << KEY_SET_NUMBER_BITS)
_Static_assert(KEY_SET_NUMBER_BITS + BINDING_BITS == 63, "a word, beside KEY_SET_BIT");
_Static_assert(BLOCK_SLOT_MASK < KEY_SETS_MAX, "every key set that has a block has a number");

struct key_set {
    weir_set set; /* first: see key_set_of(); settings are the template set's */
    struct keyed *keyed;
    uint32_t number;
    struct key_set *before; /* of this number, by an earlier definition; owned */
    struct unbound_link own_unbound,
        *unbound; /* of a private key set: of the first of its number */
};

/* Returns the key set of a set for which set_is_key_set() is true. */
static inline struct key_set *key_set_of(weir_set *set)
{
    WEIR_INVARIANT(set_is_key_set(set));
    return (struct key_set *)set;
}

/* Returns the template set of a key set; any other set itself. */
static inline weir_set *key_set_template(weir_set *set)
{
    return set_is_key_set(set) ? key_set_of(set)->keyed->set : set;
}

/* Returns the hash of the subject of a record; 0: its set has none. */
uint64_t keyed_record_subject(const weir_set *set, uint32_t record);
/* Returns the set that a record of `template` names: the template set or one of its key sets.
 * `storage`: see key_set_at(). */
weir_set *key_set_of_record(weir_set *template, const struct acq_record *r,
                            struct key_set *storage);

/* What a version of a key set has behind its states; that of a template set has room for it. */
struct key_binding {
    struct key_digest key;
    uint64_t binding; /* definition:23 | number:39 | phase:2 */
    uint64_t binder;  /* thread that bound it: unit:32 | generation of its thread head:32 */
};

#define KEY_SET_WORDS (sizeof(struct key_binding) / sizeof(uint64_t))

static inline struct key_binding *key_binding_behind(const weir_set *set, uint64_t *states)
{
    return (struct key_binding *)(states + set->limits.state_words - KEY_SET_WORDS);
}

/* Returns the binding that the word names. */
static inline uint64_t key_word_binding(uint64_t word)
{
    return word & BINDING_MASK;
}

/*
 * Returns the key set that a key's word names, of this definition: made as the successor of that of
 * an earlier definition, if need be. If this process has not met it yet and `storage` is not NULL,
 * `*storage` is initialized and returned; it is valid for one operation. Returns NULL if the word
 * names no key set (in a segment, damage), if there is a later definition or, in a private set or
 * without `storage`, if memory is short.
 */
struct key_set *key_set_at(struct keyed *keyed, uint64_t word, struct key_set *storage);

/* Returns the number of key sets made so far. */
uint32_t key_sets_n(const struct keyed *keyed);
/* Returns the key set of this number, as key_set_at(); takes the instance's lock where it does not
 * initialize `storage`. */
struct key_set *key_set_by_number(struct keyed *keyed, uint32_t number, struct key_set *storage);
/* Returns the key set of this number, of the latest definition by which this process has met it, or
 * NULL. */
struct key_set *key_set_known(const struct keyed *keyed, uint32_t number);

#endif
