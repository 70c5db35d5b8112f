/* SPDX-License-Identifier: MIT */
/*
 * An algorithm that is tested: configured at random, with its state between pages that cannot be
 * touched. Each call is noted, and what is written beside configuration and state is found.
 */
#ifndef WEIR_TOOLS_SUBJECT_H
#define WEIR_TOOLS_SUBJECT_H

#include "setting.h"
#include <weir/algorithm.h>

/* How a subject is called: what must make no difference. */
struct subject_way {
    bool moves;             /* the state has another address at each call */
    bool is_disturbed;      /* another state is used in between */
    bool is_frozen;         /* the state cannot be written by what must not write it */
    unsigned char fill;     /* what the stack has before each call */
    int64_t wall_offset_ns; /* of all instants */
};

struct subject {
    struct trial *trial;
    const struct weir_algorithm *ops;
    struct settings settings;
    struct weir_footprint footprint;
    struct subject_way way;
    struct arena config, states[2], other;
    unsigned current;  /* the state is in states[current] */
    bool is_too_large; /* its state, to be tried */
};

/* Configures the algorithm with random settings that it accepts, for a limit of this type; 0: of
 * any that it serves. False: it has refused all. */
bool subject_make(struct trial *trial, struct subject *ret, const struct subject_way *way,
                  uint32_t limit_type);
/* Configures it with these settings again. */
void subject_make_again(struct subject *ret, const struct subject *like,
                        const struct subject_way *way);
void subject_free(struct subject *subject);

/* Makes the state anew at an instant. */
void subject_init(struct subject *subject, uint64_t now);
void *subject_state(const struct subject *subject);
/* Whether the limit is one of a resource. */
bool subject_is_resource(const struct subject *subject);
/* Copies the state of another subject of the same configuration. */
void subject_copy(struct subject *subject, const struct subject *from);

/* The operations. Those that the algorithm lacks must not be called. */
uint64_t subject_ready_at(struct subject *subject, uint64_t now, uint64_t amount);
uint64_t subject_try_take(struct subject *subject, uint64_t now, uint64_t amount);
uint64_t subject_available(struct subject *subject, uint64_t now);
void subject_take(struct subject *subject, uint64_t now, uint64_t amount);
void subject_refund(struct subject *subject, uint64_t now, uint64_t amount, uint64_t granted_ns);
void subject_refund_strict(struct subject *subject, uint64_t now, uint64_t amount,
                           uint64_t granted_ns);
void subject_charge(struct subject *subject, uint64_t now, uint64_t amount);
void subject_release(struct subject *subject, uint64_t now, const struct weir_release *release);
/* What may be told of a release: any outcome, known or not, and any latency. */
struct weir_release subject_choose_release(struct subject *subject, uint64_t now, uint64_t amount,
                                           uint64_t granted_ns);
void subject_observe(struct subject *subject, uint64_t now, uint64_t *ret);
/* Makes the state of that of another configuration. */
void subject_reconfigure(struct subject *subject, const struct subject *old, uint64_t now);
/* Makes the state of one of another version. */
int subject_migrate(struct subject *subject, const char *version, const struct arena *old,
                    uint64_t now);
int subject_check(struct subject *subject);
int subject_is_new(struct subject *subject, uint64_t now);

#endif
