/* SPDX-License-Identifier: MIT */
/* An acquisition, as the core sees it: the caller's handle on a record. */
#ifndef WEIR_CORE_API_ACQUISITION_H
#define WEIR_CORE_API_ACQUISITION_H

#include "api/request.h"
#include "base/sched_point.h"
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

/* A store that has no equal before would be a locked one. */
static inline void acquisition_mark_observed(weir_acquisition *acquisition)
{
    if (!atomic_load_explicit(&acquisition->observed, memory_order_relaxed))
        acquisition->observed = true;
}

/* Whether limit i of the acquisition must still be updated before release. */
static inline bool acquisition_lacks_update(weir_acquisition *acquisition, uint32_t i)
{
    uint64_t amount = acquisition_amounts(acquisition)[i];
    enum weir_limit_type type = acquisition->set->limits.items[i].type;

    return !(acquisition->updated_limits >> i & 1) &&
           ((type == WEIR_LIMIT_RATE && amount > 0) || (type == WEIR_LIMIT_CALL && amount > 1));
}

/* Whether what it says to be named has this key. */
static inline bool acquisition_names_key(const weir_acquisition *acquisition, const char *key)
{
    uint32_t named_limits = acquisition->named_limits;

    return named_limits && key &&
           request_key_equal(acquisition->set->limits.items[__builtin_ctz(named_limits)].key, key);
}

/* For emptying a cache. */
weir_acquisition *acquisition_next(const weir_acquisition *acquisition);
/* An acquisition of these amounts, with a free record unless it is empty. NULL: out of memory. */
weir_acquisition *acquisition_new(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts);
/* An acquisition of a record that is filled already, and is kept as `kept`; or NULL: out of memory.
 */
weir_acquisition *acquisition_from_record(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                                          uint32_t waiter);
/* weir_release() of any set; fast_path.c, where that begins, knows a shorter way for most. */
int acquisition_release(weir_acquisition *acquisition);
/* Frees it and its record, whose word must be FREE. */
void acquisition_free(struct thread_ctx *ctx, weir_acquisition *acquisition);
#endif
