/* SPDX-License-Identifier: MIT */
/* A candidate: a configuration, opened on a clock that the simulation moves. Its sets are private,
 * whatever it says: a simulation touches no segment and no engine. */
#ifndef WEIR_TOOLS_SIMULATE_CANDIDATE_H
#define WEIR_TOOLS_SIMULATE_CANDIDATE_H

#include "candidate_text.h"
#include "source.h"
#include <stdbool.h>
#include <weir/weir.h>

struct candidate_limit {
    enum weir_limit_type type;
    const char *key;
    uint32_t set;       /* index */
    uint32_t number;    /* in its set, from 0 */
    bool has_capacity;  /* it is written */
    uint64_t capacity;  /* of a window, or that may be held */
    uint64_t window_ns; /* 0: it has none */
};

struct candidate_set {
    weir_set *set;
    weir_pool *pool; /* of this set alone */
    const char *name;
    uint32_t limits_first, limits_n;
    bool has_subjects;
};

struct candidate {
    const char *command; /* prefix of messages */
    const char *name;    /* of the file, for reports */
    const char *target;  /* the pool or set */
    char *text;          /* as it was read; owned */
    struct source source;
    uint64_t now_ns; /* the clock */

    weir *w;
    weir_pool *pool;
    struct candidate_set *sets;
    uint32_t sets_n;
    bool is_taken_apart;            /* what is taken may not be what was asked for and granted */
    bool has_max_hold;              /* what is held may be taken back */
    struct candidate_limit *limits; /* of all sets */
    uint32_t limits_n;
};

/*
 * Reads a configuration, and chooses the pool or set: `target`, or the only one if that is NULL.
 * All complaints are reported. Returns 0, -EINVAL (something is wrong) or -EIO. The source is that
 * of the command line, and lives as long as the candidate, which is closed whatever comes back.
 */
int candidate_read(struct candidate *ret, const struct source *source, const char *target,
                   const char *command);

/* Opens it as of a time, instead of the one that is open. Returns 0, or a negative errno after a
 * message. */
int candidate_open(struct candidate *candidate, uint64_t now_ns, const struct capacity_edit *edit);

/* Returns whether the configuration is right with this change, without a message. */
bool candidate_accepts(const struct candidate *candidate, const struct capacity_edit *edit);

void candidate_close(struct candidate *candidate);

/* Finds a limit by [SET/]KEY[#N], N from 1 among those with the key. Returns its index, or -EINVAL
 * after a message. The candidate is open. */
int candidate_find_limit(const struct candidate *candidate, const char *name);

#endif
