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

#include "shm/segment_layout.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct log_sink;
struct segment;

/* Returns whether the segment's file has lost its name; false in doubt. */
bool nameless_segment_is(const struct segment *segment);

#define NAMELESS_INTERVAL_NS UINT64_C(100000000) /* between two looks, unless one is asked for */

/*
 * Looks whether the segment still has its name, if the last look was long ago or `now` is true.
 * Reports to the log callback, once, that it has none. Returns whether it did that: the callback
 * may have used the set, so copies of it are outdated. The caller holds no locks.
 */
bool nameless_check(struct segment *segment, const struct log_sink *log, bool now);

/* ---- for observers ---- */

/* A nameless segment that processes of this user have open. */
struct nameless_segment {
    uint64_t device, inode; /* of its file */
    char name[SEGMENT_NAME_SIZE];
    bool by_force; /* it was removed by force, not by another program */
    uint32_t pid;  /* of the last one of the processes */
    uint32_t users;
};

struct nameless_list {
    struct nameless_segment *items;
    size_t n, capacity;
};

/*
 * Finds the nameless segments of a directory, which may itself be gone: looks at the descriptors of
 * all processes of this user, so it takes milliseconds. A command that `weir exec` has started is
 * not found, because it has nothing open. Returns 0 or a negative errno; in either case the caller
 * frees the list.
 */
int nameless_find(const char *directory, struct nameless_list *ret);
void nameless_list_free(struct nameless_list *list);

#endif
