/* SPDX-License-Identifier: MIT */
/*
 * An actor: one thread's part in an instance: its boxes, its private copies, its counters, its free
 * records. A thread gets one with its first call and gives it back when it ends or the instance
 * closes.
 */
#ifndef WEIR_CORE_SET_THREAD_CTX_H
#define WEIR_CORE_SET_THREAD_CTX_H

#include "keyed/key_table.h"
#include "limit/counters.h"
#include "state/acq_record.h"
#include "state/version.h"
#include <weir/acquisition.h>

#define MAGAZINE_SIZE 32u
#define ACTOR_CREDITS 256u

struct magazine {
    uint32_t n;
    uint32_t records[MAGAZINE_SIZE];
};

/* An actor's part in one set. */
struct part {
    struct counters *counters; /* NULL: it is not prepared for the set */
    struct magazine *magazine; /* of records of the set's size */
    uint32_t unit;             /* of its struct actor_head in the set's region */
    bool shared;               /* in a segment: the magazine is its own, the counters are not */
    bool leases;               /* something may be leased; what is, since then: */
    uint8_t seat;              /* in the set's ledger, from 1; 0: none yet */
    uint64_t leased_ns;
};

struct actor {
    /* What every call needs. */
    _Alignas(64) weir *w;
    struct part *parts; /* by set number */
    uint32_t parts_n;
    uint32_t unit;                     /* of its struct actor_head in the instance's region */
    uint32_t thread;                   /* kernel id */
    uint32_t cache_n;                  /* unused acquisitions: so many */
    weir_acquisition *cache;           /* the first of them */
    uint64_t credits;                  /* references to the instance that acquisitions may use */
    uint64_t *content, *spare_content; /* private copies of versions */

    struct key_claimant claimant; /* of places in tables of keys */
    uint64_t loan;                /* of a live set, which the call is about (live.h) */
    uint32_t content_capacity;    /* words in each */
    struct actor *thread_next;    /* other instances' actors of the same thread */
    struct actor *next;           /* all actors of the instance */
    struct actor *idle_next;
    struct magazine *magazines[RECORD_UNITS_MAX + 1]; /* by size of record in units, if used */
    uint64_t
        granted_amounts[WEIR_LIMITS_MAX]; /* of the record that the operation under way grants */
};

/* The calling thread's actors, one per instance, the last used first. */
extern _Thread_local struct actor *actor_mine __attribute__((tls_model("initial-exec")));

/*
 * actor_self(), actor_borrow() and actor_return() (instance.h) when the actor is not at hand: it is
 * not the last used, or not prepared for the set; there is no memory for it; the instance is closed,
 * or it was the spare one.
 */
struct actor *actor_find(weir_set *set);
struct actor *actor_spare(weir_set *set);
void actor_give_back(struct actor *actor);

/* Makes and prepares the spare actor. The caller holds the instance's lock or is its only user. */
struct actor *actor_new(weir *w);
/* Takes no lock. Returns 0, -ENOMEM, or of a set that processes share also -ENOSPC, …. */
int actor_prepare(struct actor *actor, weir_set *set);
/*
 * The spare one, for a set that somebody is about to ask for something: so it can be given back
 * whatever happens. Before that, an idle set needs none of it. The caller holds instance_lock().
 */
int actor_prepare_spare(weir_set *set);
/* Takes back the preparation for a set that is being removed. */
void actor_unprepare(struct actor *actor, const weir_set *set);
void actor_free(struct actor *actor);

/* The calling thread gives back its actor of this instance, if it has one. */
void actor_leave(weir *w);

/* Many references to the instance at once, for acquisitions to come; and back. */
void actor_get_credits(struct actor *actor);
void actor_put_credits(struct actor *actor);

/* record_new() and record_free() (instance.h) when the magazine is empty (false: it still is, out of
 * memory), or full. */
bool magazine_refill(const weir_set *set, struct magazine *magazine);
void magazine_empty(const weir_set *set, struct magazine *magazine);

/* References to the instance, one per acquisition, from the actor's credits. */
static inline void actor_hold(struct actor *actor)
{
    if (!actor->credits)
        actor_get_credits(actor);
    actor->credits--;
}

static inline void actor_drop(struct actor *actor)
{
    if (++actor->credits > 2 * ACTOR_CREDITS)
        actor_put_credits(actor);
}

/* Its part in a set that it is prepared for. */
static inline const struct part *actor_part(const struct actor *actor, uint32_t set_number)
{
    return &actor->parts[set_number];
}

static inline struct counters *actor_counters(const struct actor *actor, uint32_t set_number)
{
    return actor->parts[set_number].counters;
}

/* Whether it is prepared for the set. By another thread only under the instance's lock. */
static inline bool actor_is_prepared(const struct actor *actor, uint32_t set_number)
{
    return set_number < actor->parts_n && actor->parts[set_number].counters;
}

#endif
