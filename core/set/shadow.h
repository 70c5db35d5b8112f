/* SPDX-License-Identifier: MIT */
/*
 * Limits in shadow: `shadow: true`, and `enforce: N%` for the requests that are not enforced. Such
 * a limit decides, takes and counts as any other one, but its refusal does not count.
 *
 * Each request has a number from 0 to 99, by its subject or route. A limit covers those numbers
 * with shadow that are at least 100 less its `shadow`. What a request asks of these limits is left
 * out of all decisions, waits and forecasts. When it is granted by the others, its covered amounts
 * are taken together if all of them are there, and no waiter waits for one of these limits, as if
 * the covered limits were a set of their own.
 *
 * Records of a set that has such limits have one word more, the number of the request. If covered
 * amounts were not taken, GRANT_WITHOUT_SHADOW is added to `granted_ns`, and a release returns none
 * of them. Of such a grant later than 73 years, which only an injected clock reaches, that instant
 * is stored.
 */
#ifndef WEIR_CORE_SET_SHADOW_H
#define WEIR_CORE_SET_SHADOW_H

#include "set/set.h"

struct acquire_op;
struct weir_request;

#define SHADOW_NUMBERS 100u

/* Returns whether the limit is in shadow for the request with this number. */
static inline bool shadow_covers(const struct limit *limit, uint64_t number)
{
    return number % SHADOW_NUMBERS + limit->shadow >= SHADOW_NUMBERS;
}

/* Returns the number of a valid request: FNV-1a (64 bits) of its subject, or of its route as
 * 8 bytes, lowest first; modulo 100. NULL: 0. Processes and machines agree on it. */
uint64_t shadow_number(const struct weir_request *request);

/* Sets what limits in shadow are asked for to 0. */
void shadow_remove(const weir_set *set, uint64_t number, uint64_t *amounts);
/* Sets them to 0 in op->amounts, by op->request or, without one, by a record; 0: no record. Returns
 * whether nothing is left of something; then it says in op->decision that it would be granted now.
 */
bool shadow_forecast(struct acquire_op *op, uint32_t record);

/* Stores the number of the request in its record. */
void shadow_fill_record(const struct acquire_op *op, struct acq_record *r);

/* Returns whether a record that this definition has made may have amounts that were not taken. */
static inline bool shadow_may_be_untaken(const weir_set *set)
{
    return set->limits.has_shadow || set_successor(set);
}

/* Sets the amounts of a HELD record that were not taken at all to 0. Amounts are by the limits of
 * `of`, which has made the record; a successor may have granted to it. */
void shadow_remove_untaken(const weir_set *of, const struct acq_record *r, uint64_t *amounts);
/* Returns the set by the definition of which a HELD record was granted, or `last` if that comes
 * first; NULL: none does. */
const weir_set *shadow_granter(const weir_set *of, const struct acq_record *r,
                               const weir_set *last);
/* Turns amounts of a HELD record as successor_translate() does, without what was not taken. */
void shadow_translate_taken(const weir_set *set, const weir_set *of, const struct acq_record *r,
                            uint64_t *amounts);

/* What a release returns, without what was not taken. */
struct shadow_release {
    struct release_args args; /* for the set */
    uint64_t amounts[WEIR_LIMITS_MAX], used[WEIR_LIMITS_MAX];
};
/* Fills `ret` with what a record returns of `args`. */
void shadow_release_args(const weir_set *set, uint32_t record, const struct release_args *args,
                         struct shadow_release *ret);

#endif
