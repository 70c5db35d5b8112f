/* SPDX-License-Identifier: MIT */
/*
 * Places of limits: limits of a shared set come and go while processes use it.
 *
 * A record says what it holds, or waits for, by the places of limits, and nothing of the definition
 * by which it was made. So a place means one limit as long as a record has an amount of it. A limit
 * that goes on keeps its place in the next definition. A new one gets a place that has no limit.
 * The place of one that is gone has a retired limit (limit/limit.h): all can be taken of it and be
 * returned to it. Records have room for some more amounts than the first definition has limits.
 *
 * A limit that begins anew gets another place if records could return to it what was taken of the
 * former one. What waits for the former one asks nothing of the new one, so such waits end: amounts
 * of a record do not change. They would otherwise be granted with the change, all at once.
 *
 * A place is given to another limit once no record in use has an amount there. None can come later:
 * whichever commit makes a record HELD or WAITING, the record has amounts of those limits only that
 * the definition has, and the rest of it is 0.
 *
 * The definition in the segment has the place of each limit. Private sets have their limits as
 * their configuration lists them.
 *
 * With subjects each of them changes its definition at an instant of its own (keyed/keyed.h). So a
 * place is free only if it has no limit by any definition by which there may still be a subject.
 */
#ifndef WEIR_CORE_SET_PLACES_H
#define WEIR_CORE_SET_PLACES_H

#include "set/set.h"
#include "shm/segment_layout.h"

struct set_plan;

/* Room in the records of a shared set for amounts of limits that come later, at least. */
#define PLACES_SPARE 3u

/* What to do about what no change of a shared set can do. */
#define START_ANEW                                                                                 \
    "end the processes that use the set, remove it with `weir rm`, and start them with the new "   \
    "definition"

/* Returns how many amounts fit into the units that a record of a shared set takes with so many
 * limits and the spare places, before `words` others. */
uint32_t places_room(uint32_t limits_n, uint32_t words);

/* Returns whether these can be the places of `n` limits in records with room for `room` amounts. */
bool places_are_valid(const struct limit_places *places, uint32_t n, uint32_t room);

/* Moves the limits of a set, which has them as they are listed, to their places. They have to be
 * described anew. Returns 0 or -ENOMEM. The instance's lock is held. */
int places_apply(weir_set *set, const struct limit_places *places);

/* Describes the limits of a set, as limits_describe(). A thread uses the rest of its lease without
 * a look at the set. So only the limit that was the first one of all has leases. */
void places_describe(weir_set *set);

/* Moves the costs of the classes of a set, which has them as its limits are listed. */
void places_apply_costs(weir_set *set);

/* Returns the limit that the set has at a place, or NULL. */
static inline const struct limit *places_limit(const weir_set *set, uint32_t place)
{
    const struct limit *limit = place < set->limits.n ? &set->limits.items[place] : NULL;

    return limit && !limit_is_retired(limit) ? limit : NULL;
}

/* Returns whether a limit can go on in the place of another one with the state of that. */
bool places_can_carry(const struct limit *from, const struct limit *to);

/* Returns whether a limit can have the place of another one while records still have amounts of
 * that: it goes on with the state, or is a rate or call that begins anew. The time of a grant tells
 * which of two rates it was taken of (set_moved.c); but with subjects a reservation may be later
 * than the change, so that one that begins anew has another place. */
bool places_can_go_on(const struct limit *from, const struct limit *to);

/*
 * Chooses the places of the limits of `plan`, which is to succeed `before`, the newest definition.
 * Returns 0; -EOPNOTSUPP, with the reason: there are not as many places; -EBUSY, with the reason:
 * some are not free yet; -ESTALE: there is a later definition; or an error of set_catch_up(). The
 * instance's lock is not held.
 */
int places_choose(struct thread_ctx *ctx, weir_set *before, const struct set_plan *plan,
                  struct limit_places *ret, struct weir_error *reterr);

/* Fills `ret`, for WEIR_LIMITS_MAX places, with what was counted at each place of a successor
 * before its limit had it. The predecessor is the newest definition. */
void places_count_base(const weir_set *set, struct limit_base *ret);

/* Turns the amounts of a record that was filled by the definition `of` into those by a later one,
 * `set`. No other thread knows the record. */
void places_translate_record(const weir_set *set, const weir_set *of, uint32_t record);

#endif
