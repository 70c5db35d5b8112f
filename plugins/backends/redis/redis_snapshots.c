/* SPDX-License-Identifier: MIT */
/* What a snapshot tells. */
#include "redis_snapshots.h"

#include "redis_calls.h"
#include "redis_decisions.h"

#include <errno.h>
#include <stddef.h>

enum {
    SNAPSHOT_WAITING = 3,
    SNAPSHOT_GRANTED,
    SNAPSHOT_RELEASED,
    SNAPSHOT_REAPED,
    SNAPSHOT_LIMITS = 10
};

/* Returns the struct that asks for waits, or NULL. */
static struct weir_backend_limit_waits *snapshots_waits(const struct weir_backend_snapshot *ret)
{
    size_t with_waits = offsetof(struct weir_backend_snapshot, waits) + sizeof(ret->waits);
    return ret->size >= with_waits ? ret->waits : NULL;
}

/* Fills in when more of a limit can be had. -1: not by the passing of time. */
static int snapshots_fill_waits(const struct redis_reply *limit,
                                struct weir_backend_limit_waits *ret)
{
    int64_t more_us = redis_reply_integer(limit, 3, -1);
    int64_t full_us = redis_reply_integer(limit, 4, -1);
    if (more_us < -1 || full_us < -1)
        return -EPROTO;
    ret->more_after_ns = more_us < 0 ? UINT64_MAX : (uint64_t)more_us * 1000;
    ret->full_after_ns = full_us < 0 ? UINT64_MAX : (uint64_t)full_us * 1000;
    return 0;
}

/* Fills in what there is of a limit that the server decides. */
static int snapshots_fill_limit(const struct redis_set *set, const struct redis_reply *limit,
                                uint32_t i, struct weir_backend_snapshot *ret)
{
    int64_t available = redis_reply_integer(limit, 0, 0);
    if (available < 0)
        return -EPROTO;
    if (snapshots_waits(ret) && snapshots_fill_waits(limit, &ret->waits[i]) < 0)
        return -EPROTO;
    ret->limits[i].available = (uint64_t)available;
    if (set->holds[i] && set->initial[i] > (uint64_t)available)
        ret->limits[i].held = set->initial[i] - (uint64_t)available;
    /* A reservation is ahead if not even one would be granted now. */
    if (snapshots_waits(ret) && redis_reply_integer(limit, 2, -1) != 0)
        ret->limits[i].available = 0;
    return 0;
}

static int snapshots_fill(const struct redis_set *set, const struct redis_reply *reply,
                          struct weir_backend_snapshot *ret)
{
    int64_t waiting = redis_reply_integer(reply, SNAPSHOT_WAITING, 0);
    int64_t granted = redis_reply_integer(reply, SNAPSHOT_GRANTED, 0);
    int64_t ended = redis_reply_integer(reply, SNAPSHOT_RELEASED, 0) +
                    redis_reply_integer(reply, SNAPSHOT_REAPED, 0);
    if (waiting < 0 || ended < 0 || granted < 0 || reply->elements_n <= SNAPSHOT_LIMITS)
        return -EPROTO;
    const struct redis_reply *limits = &reply->elements[SNAPSHOT_LIMITS];
    if (limits->type != REDIS_ARRAY || limits->elements_n != set->limits_n)
        return -EPROTO;
    ret->waiting = (uint64_t)waiting;
    ret->granted = (uint64_t)granted;
    ret->held = granted > ended ? (uint64_t)(granted - ended) : 0;
    for (uint32_t i = 0; i < set->limits_n; i++) {
        ret->limits[i] = (struct weir_backend_limit_stats){0};
        if (!set->foreign[i] && snapshots_fill_limit(set, &limits->elements[i], i, ret) < 0)
            return -EPROTO;
    }
    return 0;
}

static void snapshots_fill_new(const struct redis_set *set, struct weir_backend_snapshot *ret)
{
    ret->waiting = ret->granted = ret->held = 0;
    for (uint32_t i = 0; i < set->limits_n; i++) {
        ret->limits[i].available = set->initial[i];
        ret->limits[i].held = 0;
    }
}

void redis_snapshots_answer(const struct redis_call *call, int code,
                            const struct redis_reply *reply)
{
    const struct redis_set *set = call->session->set;
    struct redis_waiter *waiter = call->waiter;
    int is_new = reply && redis_reply_is_error(reply, "NOSET");
    if (!waiter)
        return;
    if (call->kind == REDIS_CALL_LOOK && code == 0 && waiter->result == 0) {
        waiter->result = redis_decisions_look(set, is_new ? NULL : reply, waiter->snapshot);
    } else if (call->kind == REDIS_CALL_SNAPSHOT && is_new) {
        waiter->result = 0;
        snapshots_fill_new(set, waiter->snapshot);
    } else if (call->kind == REDIS_CALL_SNAPSHOT) {
        waiter->result = reply && code == 0 ? snapshots_fill(set, reply, waiter->snapshot) : code;
    } else if (code < 0) {
        waiter->result = code;
    }
    if (call->kind == REDIS_CALL_LOOK || set->states_size == 0)
        redis_calls_answer(waiter);
}
