/* SPDX-License-Identifier: MIT */
/*
 * Groups: one request that waits in several sets at once (docs/decisions/wait-any.md). Its members
 * are ordinary acquisitions, one of each set, in the order in which the sets are tried. The first
 * that is granted wins. The acquisition that the program has is of a hidden set, the group set of
 * the pool: its record stands for the group, and after the grant for the winner.
 */
#ifndef WEIR_CORE_API_WAIT_GROUP_H
#define WEIR_CORE_API_WAIT_GROUP_H

#include "api/acquisition.h"
#include "api/pool.h"

struct wait_group;

/* The kind of the group set: its state is that of the groups. It has one resource without a bound,
 * of which each record holds 1. */
extern const struct set_ops group_set_ops;

/* What is asked of a group set: one unit, and to wait for this group. The set takes the group over
 * with the record, and makes it NULL. */
struct group_request {
    struct weir_request request;
    struct wait_group *group;
};

/* Makes a group of at most `members_max` members that no record stands for yet. NULL: out of
 * memory. */
struct wait_group *wait_group_new(weir *w, uint32_t members_max);
/* Makes a group that was granted: `winner` is its only member. NULL: out of memory. */
struct wait_group *wait_group_of_winner(weir_acquisition *winner);
/* Announces an acquisition that is about to enter its set. False: the group is decided. */
bool wait_group_begin_member(struct wait_group *group, weir_acquisition *member);
/* Takes the member over, which waits (1) or was granted (0); else it is gone. If the group is
 * decided meanwhile, the member is to be withdrawn. */
void wait_group_add_member(struct wait_group *group, weir_acquisition *member, int result);
/* No members follow. Returns whether the group has any, or had: else it is freed. */
bool wait_group_complete(struct wait_group *group);
/* Withdraws all members, and frees a group that no record stands for. */
void wait_group_abandon(struct wait_group *group);

/* Ends the group that an acquisition of a group set stands for, and makes its record FREE. A grant
 * that the program knows of is released, another one is undone. Returns 0, -EPROTO or -EOWNERDEAD.
 * For a release. */
int wait_group_end(weir_acquisition *acquisition);

/* ---- group_submit.c ---- */

/* Returns whether a request to a pool of several sets waits in all of them. One that is nested
 * waits in the set of the outer acquisition. */
static inline bool group_serves(const struct pool_choice *choice,
                                const struct weir_request *request)
{
    request = choice->definition->group_set ? request_validate(request) : NULL;
    return request && !request_within(request);
}

/* The contracts are those of weir_submit, weir_acquire and weir_queue_submit. The pool waits in
 * several sets, and group_serves() the request. */
int group_submit(struct pool_choice *choice, const struct weir_request *request,
                 weir_acquisition **ret, struct weir_refusal *retref);
int group_acquire(struct pool_choice *choice, const struct weir_request *request,
                  weir_acquisition **ret, struct weir_refusal *retref);
int group_queue_submit(weir_queue *queue, struct pool_choice *choice,
                       const struct weir_request *request, uint64_t user_data,
                       weir_acquisition **ret, struct weir_refusal *retref);

#endif
