/* SPDX-License-Identifier: MIT */
/*
 * Leased quota: units of a rate that an engine keeps, taken ahead of use in batches. Requests for
 * leased limits only are granted from batches, without asking the engine. The engine accounts for
 * all that is used by the end of a batch, so no unit is used after that: README.md has the reasons.
 *
 * A limit has one batch in use, and at most one besides that came meanwhile. The units in use and
 * the number of their batch are one atomic word: a thread that has found a batch valid takes units
 * of that batch or none. Everything else is under the engine's lock.
 */
#ifndef WEIR_CORE_REMOTE_REMOTE_LEASE_H
#define WEIR_CORE_REMOTE_REMOTE_LEASE_H

#include "remote/remote.h"

/* Units that were granted at one instant. */
struct remote_batch {
    uint64_t units;       /* as granted; of the one that came meanwhile: 0, there is none */
    uint64_t deadline_ns; /* CLOCK_BOOTTIME: not used from then on */
    uint64_t at;          /* the engine's word for the instant */
    uint64_t place;       /* in the order in which batches of the set came into use */
};

struct remote_lease {
    _Alignas(64) _Atomic uint64_t word; /* number of the batch:32 | units left:32 */
    _Atomic uint64_t deadlines[2];      /* of the batches of even and of odd number */
    /* A thread that leaves fewer units, or takes some from that time on, sees to the next batch. */
    _Atomic uint64_t attend_units, attend_ns;

    /* Under the engine's lock. */
    _Alignas(64) struct remote_batch current, next;
    uint64_t for_ns;                    /* as configured; 0: the limit is not leased */
    uint64_t capacity;                  /* the largest amount that the engine grants */
    uint64_t asked_ns, wanted;          /* of the batch that is asked for; wanted 0: none is */
    uint64_t not_before_ns;             /* none is asked for before */
    uint64_t size;                      /* of the last batch */
    uint64_t since_ns, missed, counted; /* demand: units refused since then; granted before */
    uint64_t seen_word;                 /* when it was last looked whether units are spare */
    uint64_t batches, taken, returned, stranded; /* statistics: batches, units */
};

/* Makes the leases of a set from its plan: none if no limit is leased. Returns 0 or -ENOMEM. */
int remote_leases_open(struct remote_set *remote, const struct set_plan *plan);
/* Gives all units back; no more are asked for. A thread that has decided to ask before that may do
 * so still: a successor may get that batch, and knows by its tag since when it is valid. */
void remote_leases_close(struct remote_set *remote);

/* Takes the amounts from batches, all or none. `*ret_place`: the last batch that had come into use
 * before. `counts`: if not, the engine is asked next, and the demand is to be counted. */
bool remote_leases_take(struct remote_set *remote, const uint64_t *amounts, bool counts,
                        uint64_t *ret_place);
/* Puts what was not used of a grant from batches back, as far as they are still in use. */
void remote_leases_put(struct remote_set *remote, const struct release_args *args, uint64_t place);

/* Returns how many units of limit `i` are there to be granted. */
uint64_t remote_leases_ready(struct remote_set *remote, uint32_t i);
/* Tells of the lease of limit `i` of any set. Returns 0, or -ENOENT: it has none. */
int remote_leases_stats(weir_set *set, uint32_t i, struct weir_lease_stats *ret);

/* The host's calls about batches. */
uint64_t remote_batched(void *context, void *set, const struct weir_backend_batch *batch);
uint64_t remote_spare(void *context, void *set, uint32_t limit, struct weir_backend_batch *ret);

#endif
