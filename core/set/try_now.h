/* SPDX-License-Identifier: MIT */
/*
 * What is asked of a set most often, as short as it can be: to grant something now, or to take it
 * back, while nobody is in line and nothing is reserved. For sets whose state is in a box; inline_state.h
 * does the same for those whose state is one word.
 *
 * A version is read onto the stack, changed, and published, with nothing else: no line, nobody to
 * wake, no projection. Where those who use the set cannot die one by one, the word of the record does
 * not change with the version, for nobody knows of a record that is granted at once: it says HELD
 * after the grant was published, and FREE before it is given back.
 *
 * Everything else is done with the whole of the set: set.c, txn.h.
 */
#ifndef WEIR_CORE_SET_TRY_NOW_H
#define WEIR_CORE_SET_TRY_NOW_H

#include "set/set.h"

/* try_now_acquire(): set.h. */

/* Whether it can do so: of a set without keys. */
bool try_now_supports(const weir_set *set);

/*
 * Gives back what a record holds whose word is `word`: 1; 0, somebody else has done it; or
 * -EINPROGRESS, as above. `asked`: an algorithm may be. `own`: by whoever holds it. `*claimed`: the
 * record is FREE already, here or afterwards.
 */
int try_now_release(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                    bool is_owner, bool use_algorithm, const struct release_args *args,
                    bool *record_freed);

#endif
