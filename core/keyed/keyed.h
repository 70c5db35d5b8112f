/* SPDX-License-Identifier: MIT */
/*
 * Keyed sets: one template of limits, and a state of its own for every subject of requests: a
 * client, a tenant, an address.
 *
 * The template is an ordinary set whose own state nobody changes. Subjects are known by their hash
 * in a table of keys (key_table.h). The word of a key is one of two things:
 *
 *   bit 63 = 0   the state itself, of limits whose state is one word, as long as nobody is in line.
 *                A grant, a refusal and what is given back are one compare-and-swap of the entry.
 *   bit 63 = 1   the number of a live set (key_set.h), which has the state, and a line: a hidden set
 *                with versions and a line of its own, that shares everything else with the template.
 *                It goes back to the table's word, or the key is forgotten, when nobody is in line
 *                and what it says fits there.
 *
 * A key that is not in the table is new. One whose limits would decide as if it were new may be
 * forgotten at any time, which nobody can tell. If there is room for no new key otherwise, the
 * configuration says who gives way; who holds a resource, or waits, does not.
 *
 * Records say of which key they are, by the words behind their amounts; and while they are in line
 * of which live set. What was granted is given back to wherever the key's word says by then.
 */
#ifndef WEIR_CORE_KEYED_KEYED_H
#define WEIR_CORE_KEYED_KEYED_H

#include "base/stable_array.h"
#include "set/hooks.h"
#include "set/set_op.h"
#include "shm/key_table.h"
#include "shm/segment.h"

struct keyed {
    weir_set *set;                      /* the template */
    const struct segment *segment;      /* that processes share; NULL: private */
    struct segment_keyed *shared_state; /* what all who use it have in common: there, or our own */
    struct siphash_secret secret;
    struct key_table table;
    void *memory; /* of a private table */
    size_t memory_size;
    uint64_t capacity;             /* that it has room for */
    uint64_t max_keys, memory_max; /* as configured; 0: no such bound on memory */
    enum key_eviction eviction;
    bool fits_inline; /* the state of one key can be its word */

    /* key_set.c */
    struct stable_array
        key_sets; /* by number; as this process has met them; they go with the keyed set */
    _Atomic uint32_t key_sets_known_n; /* so many there is room for */
    uint32_t key_sets_max;
    _Atomic uint32_t
        clock_hand; /* key_set_reclaim.c: of those looked at for one that can go, the next */
};

/* Words of a version of a keyed set, or of a live one, behind the states: key_set.h. */
#define KEY_SET_WORDS 4u

/* Words of a record of a keyed set behind its amounts: the key. */
#define KEYED_RECORD_WORDS 2u

/*
 * Makes a set keyed, whose limits are described: before it has a place, which depends on how many keys
 * there are to be; and opens it once it has. Return 0 or -ENOMEM or -ENOTSUP, with the reason. The
 * instance's lock is held.
 */
int keyed_new(weir_set *set, const struct set_plan *plan, struct weir_error *reterr);
int keyed_open(weir_set *set, struct weir_error *reterr);
void keyed_free(struct keyed *keyed);

/* Hashes the subject of a request: 0, or -EINVAL: it has none, or one that is too long. */
int keyed_hash(const struct keyed *keyed, const struct weir_request *request,
               struct key_digest *ret);

/* As set_acquire(), for the key of a request to a keyed set. If a live set has it then, asking->set,
 * its acquisition and the record become that set's; if it is refused they stay the template's. */
int keyed_acquire(struct acquire_op *op, uint32_t record, enum wait_mode entry,
                  uint64_t max_wait_ns);

/* As set_release_exact(), for a record of the template's or of one of its live sets. */
bool keyed_release(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                   const struct release_args *args);

/* As set_forecast(), for a key; and for that of a record of the template's. */
void keyed_forecast(struct thread_ctx *ctx, weir_set *set, const struct key_digest *key,
                    const uint64_t *amounts, enum forecast_walk forecast_walk,
                    struct decision *ret);
void keyed_forecast_record(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                           const uint64_t *amounts, enum forecast_walk forecast_walk,
                           struct decision *ret);

/* How many wait, for whatever key. */
uint64_t keyed_waiters_n(struct thread_ctx *ctx, const weir_set *set);

/* The key of a record is written behind its amounts, when the record is filled. */
void keyed_write_key(const weir_set *set, struct acq_record *r, const struct key_digest *key);

#endif
