/* SPDX-License-Identifier: MIT */
/* The acquisition handle of the caller: a reference to a record of a set, and its private state. */
#ifndef WEIR_CORE_API_ACQUISITION_H
#define WEIR_CORE_API_ACQUISITION_H

#include "api/request.h"
#include "base/invariant.h"
#include "os/os.h"
#include "set/set.h"
#include "wait/acquisition_handle.h"
#include <stdatomic.h>
#include <weir/queue.h>

static inline uint64_t *acquisition_amounts(weir_acquisition *acquisition)
{
    return acquisition->values;
}

static inline uint64_t *acquisition_used(weir_acquisition *acquisition)
{
    return acquisition->values + acquisition->set->limits.n;
}

/* Returns whether the record has this state. */
static inline bool acquisition_record_is(const weir_acquisition *acquisition,
                                         enum record_state state)
{
    const weir_set *set = acquisition->set;

    return record_state(record_load(&set_record(set, acquisition->record)->word)) == state;
}

/* Marks the grant as observed. Loads first: an unconditional seq_cst store is a locked one. Relaxed
 * suffices for the load, as the flag is only ever set. */
static inline void acquisition_mark_observed(weir_acquisition *acquisition)
{
    if (!atomic_load_explicit(&acquisition->observed, memory_order_relaxed))
        atomic_store_explicit(&acquisition->observed, true, memory_order_seq_cst);
}

/* Returns whether limit i still needs an update before release. */
static inline bool acquisition_lacks_update(const weir_acquisition *acquisition, uint32_t i)
{
    uint64_t amount = acquisition->values[i];
    enum weir_limit_type type = acquisition->set->limits.items[i].type;

    WEIR_INVARIANT(i < acquisition->set->limits.n);
    if (acquisition->updated_limits >> i & 1)
        return false;
    return (type == WEIR_LIMIT_RATE && amount > 0) || (type == WEIR_LIMIT_CALL && amount > 1);
}

/* Frees what events were told with. */
static inline void acquisition_drop_tag(weir_acquisition *acquisition)
{
    if (acquisition->tag) {
        os_free(acquisition->tag);
        acquisition->tag = NULL;
    }
}

/* Returns the latency that the program said, or 0. */
static inline uint64_t acquisition_latency_ns(const weir_acquisition *acquisition)
{
    return acquisition->has_latency ? acquisition->latency_ns : 0;
}

/* Makes an acquisition of these amounts; a FREE record unless all are 0. NULL: out of memory. */
weir_acquisition *acquisition_new(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts);
/* Makes an acquisition of a filled record with waiter id `waiter`. NULL: out of memory. */
weir_acquisition *acquisition_from_record(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                                          uint32_t waiter);
/* Updates or returns nothing: the set has no limit with this key. Warns, or returns -ENOENT. */
int acquisition_skip_key(weir_acquisition *acquisition, const char *key);
/* Says in the record of a grant what it is nested in, for requests that are nested in it. Before
 * any of them, and again, it does no harm. */
void acquisition_publish_within(weir_acquisition *acquisition);
/* Returns the state of its record, or the one that an acquisition without a record would have. */
enum record_state acquisition_state(const weir_acquisition *acquisition);
/* Notes the decision on an acquisition with a direct doorbell, or takes back that it was rung
 * without one, as any program of the user can. */
void acquisition_look_direct(weir_acquisition *acquisition);
/* Returns why a call needs a HELD acquisition, which this one is not: -EOWNERDEAD if it was
 * revoked, -EUCLEAN or -EINVAL. */
int acquisition_not_held(const weir_acquisition *acquisition);
/* Returns 0 if the acquisition is held and no queue has it, or a negative errno. */
int acquisition_check_held(weir_acquisition *acquisition);
/* Returns whether what was granted is not held any more: the session with its engine has ended. */
bool acquisition_is_lost(const weir_acquisition *acquisition);
/* Returns the acquisition that was granted, of the set that has granted it: itself, or the winner
 * of several that it stands for. */
weir_acquisition *acquisition_granted(const weir_acquisition *acquisition);
/* Marks the grant of an acquisition that stands for another one as observed, if a call on that one
 * has returned 0. Returns `r`. */
int acquisition_note_use(weir_acquisition *acquisition, int r);
/* Returns whether the program does not know of the grant: a release undoes it. */
bool acquisition_is_unused(weir_acquisition *acquisition);
/* Releases an acquisition of any set: the slow path of weir_release. */
int acquisition_release(weir_acquisition *acquisition);
/* Frees the acquisition and its record, which must be FREE. */
void acquisition_free(struct thread_ctx *ctx, weir_acquisition *acquisition);

/*
 * ---- fast_path.c: acquisitions that a thread keeps for its next calls ----
 *
 * One that came and went on the fast path stays in its thread's cache with its record. The record
 * is FREE and keeps what does not change from one use to the next: its owner and its wait target.
 * `set` is NULL for cached acquisitions without a record.
 */

/* Marks an acquisition that was granted at once with a record filled by `ctx` for the fast path. */
void acquisition_cache_enable(struct thread_ctx *ctx, weir_acquisition *acquisition);
/* Caches a refused acquisition with a record filled by `ctx`. False: it cannot be cached. */
bool acquisition_cache_put(struct thread_ctx *ctx, weir_acquisition *acquisition);

#endif
