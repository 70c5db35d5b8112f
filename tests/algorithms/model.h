/* SPDX-License-Identifier: MIT */
/*
 * The reference: what semantics say, computed without a thought for speed and in another way than
 * the plugins do. It knows only whether an amount is granted at an instant; that an algorithm's
 * `ready_at` is the first such instant is seen by asking about it and about the one before it.
 */
#ifndef WEIR_TESTS_MODEL_H
#define WEIR_TESTS_MODEL_H

#include "wide.h"
#include <stdbool.h>
#include <stddef.h>

enum model_kind { BUCKET, STEPS, METER, QUEUE, LOG, SEGMENTS, FIRST_USE, CREATION, EPOCH };

struct model_grant {
    uint64_t instant;
    uint64_t amount;
    u128 number; /* of the sub-window or window */
};

struct model {
    enum model_kind kind;
    uint64_t capacity, window;
    uint64_t burst;    /* the largest amount granted */
    uint64_t initial;  /* available at the start */
    uint64_t every;    /* STEPS */
    uint64_t segments; /* SEGMENTS */
    bool strict;       /* its refunds */

    uint64_t created, last;
    struct wide level; /* BUCKET, STEPS, METER: level · window */
    uint64_t base;     /* QUEUE: when the waiting units began to leave */
    u128 line;         /* QUEUE: how many have waited since */
    uint64_t granted;  /* QUEUE: the last grant */
    struct model_grant *grants;
    size_t grants_n, grants_size;
    u128 number;    /* windows: the present one */
    uint64_t start; /* FIRST_USE: when it began; EPOCH: of its first grant */
};

void model_init(struct model *model, uint64_t now, int64_t wall_offset_ns);
void model_free(struct model *model);
/* Whether `amount` (≥ 1) is granted at `now`, if nothing happens before. */
bool model_grants(const struct model *model, uint64_t now, int64_t wall_offset_ns, uint64_t amount);
void model_take(struct model *model, uint64_t now, int64_t wall_offset_ns, uint64_t amount);
void model_refund(struct model *model, uint64_t now, int64_t wall_offset_ns, uint64_t amount,
                  uint64_t granted_ns);
void model_charge(struct model *model, uint64_t now, uint64_t amount);

#endif
