/* SPDX-License-Identifier: MIT */
/*
 * Nameless segments: the file of a segment loses its name while processes use it. A forced removal
 * takes it; so may any program of the user, and systemd-logind does when the user has logged out.
 * The users go on with the segment, but processes that come later make another one, and what the
 * set limits is granted in each. No process can give the name back: the kernel links no file that
 * has lost its last name. So the users find out and say so.
 */
#ifndef WEIR_CORE_SHM_NAMELESS_H
#define WEIR_CORE_SHM_NAMELESS_H

#include <stdbool.h>
#include <stdint.h>

struct participant;

#define NAMELESS_INTERVAL_NS UINT64_C(100000000) /* between two looks, unless one is asked for */

/*
 * Looks whether the segment still has its name, if the last look was long ago or `now` is true.
 * Reports to the log callback, once, that it has none. Returns whether it did that: the callback
 * may have used the set, so copies of it are outdated. The caller holds no locks.
 */
bool nameless_check(struct participant *participant, bool now);

/* Returns whether the segment had no name when that was last looked at. */
bool nameless_is(const struct participant *participant);

#endif
