/* SPDX-License-Identifier: MIT */
/* Reads sets for observers. */
#include "set/set.h"

#include "os/os.h"
#include "set/hooks.h"
#include "set/instance_base.h"
#include "set/set_storage.h"
#include "set/txn.h"
#include "shm/participant.h"
#include <errno.h>
#include <string.h>

uint64_t set_record_word(const weir_set *set, uint32_t record)
{
    uint64_t word = record_load(&set_record(set, record)->word);

    if (set_is_shared(set) &&
        (participant_is_broken(set->participant) || (word & 0xff) >= RECORD_BROKEN))
        return record_next_word(word, RECORD_BROKEN);
    return word;
}

void set_forecast(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts,
                  enum forecast_walk forecast_walk, struct decision *ret)
{
    struct txn txn;

    txn.forecast_walks = 0;
    do {
        ret->limiting = NULL;
        txn_begin(&txn, ctx, set);
        if (set_is_broken(set)) {
            *ret = (struct decision){.now_ns = txn.now_ns, .forecast_ns = WEIR_NEVER};
            return;
        }
        if (forecast_walk == FORECAST_SHORT_QUEUE &&
            waitq_length(&txn.version) > FORECAST_QUEUE_MAX)
            txn.forecast_walks = FORECAST_WALKS_MAX;
        /* If only a resource is short, it is the limiting one, though nothing can be forecast. */
        limits_ready_at(&set->limits, txn_states(&txn), &txn.at, amounts, true, &ret->limiting);
    } while (!forecast_compute(&txn, amounts, ret));
}

void set_snapshot(struct thread_ctx *ctx, weir_set *set, struct set_view *ret)
{
    struct txn txn;

    txn_begin(&txn, ctx, set);
    ret->content = txn.version.content;
    ret->last_ns = txn.version.content[CONTENT_LAST_NS];
    ret->head = waitq_head(&txn.version);
    ret->length = waitq_length(&txn.version);
}
