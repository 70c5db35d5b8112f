/* SPDX-License-Identifier: MIT */
/*
 * One attempt to change a set: what was read, what is to be published, and what has to be done once
 * that has happened. Made of parts that each edit the private version: serve the head, project the
 * line, add effects. set_*.c puts them together.
 */
#ifndef WEIR_CORE_SET_TXN_H
#define WEIR_CORE_SET_TXN_H

#include "base/mutant.h"
#include "set/set.h"

/* How often an estimate walks a line that does not stand still before it leaves the line out. */
#define WALKS_MAX      16u
#define SHORT_LINE_MAX 64u

struct wake {
    uint32_t record;
    uint64_t word; /* what its word has become */
};

struct operation {
    struct actor *actor;
    weir_set *set;
    struct version version;
    uint64_t now_ns;        /* the clock */
    struct weir_instant at; /* when limits are asked about: ahead of it if somebody reserved */
    unsigned walks; /* of the line for an estimate that came to nothing; zeroed by whoever asks */

    /* Once published: */
    struct wake wakes[2];
    uint32_t wakes_n;
    uint64_t arm_ns; /* the keeper of `arm` is to look at it then; WEIR_FOREVER: no change */
    struct wake arm;
    uint64_t look_ns;   /* when the head can be granted by time alone; WEIR_FOREVER: not */
    bool again;         /* the new head can be granted too */
    uint32_t granted;   /* the record that was granted, or 0 */
    uint64_t waited_ns; /* and how long it had waited */
};

/* Reads the set; everything after is of this version or will not be published. */
void operation_read(struct operation *op, struct actor *actor, weir_set *set);

/* Whether what was read, links and records included, is still current. */
bool operation_current(const struct operation *op);

/* Publishes; false: somebody was faster, read again. On success wakes and arms what is due. */
bool operation_commit(struct operation *op);

/* The same for what asks no algorithm: without a line, the instant is that of the version. */
void operation_read_untimed(struct operation *op, struct actor *actor, weir_set *set);

/* Boxes a set that has such a word, which owes nothing, and leaves it boxed until whoever asks for
 * that has published something. False: somebody was faster. */
bool operation_box(struct operation *op, struct actor *actor, weir_set *set, uint64_t word);

static inline uint64_t *operation_states(const struct operation *op)
{
    return op->version.content + CONTENT_STATES;
}

/*
 * Whether what can be granted at `ready` can be granted now. Never while a reservation is ahead of
 * the clock: nothing is ready before the instant that limits are asked about.
 */
static inline bool operation_is_due(const struct operation *op, uint64_t ready)
{
    return ready <= op->now_ns;
}

/* Whether a record that waits is in line. If it is not, either the set has changed since it was read,
 * or it is shared, and broken from now on. */
bool operation_has(const struct operation *op, uint32_t record);

/* The amounts of a record, copied to `ret`. */
static inline void operation_amounts(const struct operation *op, uint32_t record, uint64_t *ret)
{
    const struct record *r = record_at(op->set->region, record);

    for (uint32_t i = 0; i < op->set->limits.n; i++)
        ret[i] = atomic_load_explicit(&r->amounts[i], memory_order_relaxed);
}

/* When the head can be granted, as things are in the private version; WEIR_NEVER without a head. */
uint64_t operation_head_ready(const struct operation *op);

/* Who looks at the head already, for when time alone will do. */
enum head_watch {
    WATCHED_BY_NOBODY,
    WATCHED_BY_CALLER, /* whenever that is */
    WATCHED_AS_READ    /* somebody, for when it was by the states that operation_remember() saw */
};

/* Keeps the states as they are, as far as operation_serve() is to know of them. */
void operation_remember(const struct operation *op);

/*
 * Grants to the head if it can be granted now. Otherwise, or for the head after it: if time alone
 * will do, sees to it that somebody looks then, unless somebody does.
 */
void operation_serve(struct operation *op, enum head_watch watch);

/* estimate.c: the projection, the state as it will be when everybody in line has been served. */

/* Whether it foresees when everybody in line is served. */
bool projection_is_valid(const struct operation *op);
/* Extends the projection, if it is valid or the line is empty, by a request that joins the line.
 * False: it is not, because the request can never be granted. */
bool projection_push(struct operation *op, const uint64_t *amounts);
/* The same of a valid one whose words are elsewhere. */
bool projection_extend(const struct limits *limits, const struct weir_instant *now, uint64_t *words,
                       const uint64_t *amounts);
/* It no longer holds: somebody left the line, or something was given back. */
static inline void projection_forget(struct operation *op)
{
    uint32_t flags = version_flags(&op->version);

    if (!MUTANT(38))
        version_set_flags(&op->version, flags & ~(uint32_t)CONTENT_PROJECTED);
}
/* The first instant at which `amounts` would be granted to somebody who joins now; false: the set
 * has changed meanwhile. */
bool projection_estimate(struct operation *op, const uint64_t *amounts, struct verdict *ret);

#endif
