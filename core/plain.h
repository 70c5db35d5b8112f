/* SPDX-License-Identifier: MIT */
/*
 * What is asked of a set most often, as short as it can be: to grant something now, or to take it
 * back, while nobody is in line and nothing is reserved. For sets whose state is in a box; word.h
 * does the same for those whose state is one word.
 *
 * A version is read onto the stack, changed, and published, with nothing else: no line, nobody to
 * wake, no projection. Where those who use the set cannot die one by one, the word of the record does
 * not change with the version, for nobody knows of a record that is granted at once: it says HELD
 * after the grant was published, and FREE before it is given back.
 *
 * Everything else is done with the whole of the set: set.c, operation.h.
 */
#ifndef WEIR_CORE_PLAIN_H
#define WEIR_CORE_PLAIN_H

#include "set.h"

/* plain_enter(): set.h. */

/* Who can wait often finds others in line, and then needs no clock here: whether it seems so. */
bool plain_has_line(const weir_set *set, enum entry entry);

/*
 * The same of private sets, without a record, and without counting anything: plain_take() is 0 and tells
 * when it was taken, or -EINPROGRESS; plain_give_back() is for amounts of which all was used, asks no
 * limit, and is true if it could be done.
 */
bool plain_knows(const weir_set *set);
int plain_take(struct actor *actor, weir_set *set, const uint64_t *amounts, uint64_t *ret_now_ns);
bool plain_give_back(struct actor *actor, weir_set *set, const uint64_t *amounts);

/*
 * Gives back what a record holds whose word is `word`: 1; 0, somebody else has done it; or
 * -EINPROGRESS, as above. `asked`: an algorithm may be. `own`: by whoever holds it. `*claimed`: the
 * record is FREE already, here or afterwards.
 */
int plain_settle(struct actor *actor, weir_set *set, uint32_t record, uint64_t word, bool own,
                 bool asked, const struct settlement *settlement, bool *claimed);

#endif
