/* SPDX-License-Identifier: MIT */
/*
 * Joining a line that others are in already, as a short operation: whoever comes behind others
 * cannot be granted, so of a version he reads and changes what is the line's, and the projection; the
 * limits' states go from box to box as they are. It is a version as any other, and owes what a place
 * in line owes (line_push()).
 */
#ifndef WEIR_CORE_JOIN_H
#define WEIR_CORE_JOIN_H

#include "set.h"

/*
 * As set_enter() of ENTRY_WAIT: 1. -EINPROGRESS: nothing has happened, and it takes the whole of
 * the set, for nobody is in line, or there is something else to be looked at.
 */
int join_line(struct actor *actor, weir_set *set, const uint64_t *amounts, uint32_t record,
              uint64_t max_wait_ns, struct verdict *ret);

#endif
