/* SPDX-License-Identifier: MIT */
/* What a process says of the sets that it publishes: the format of core/api/published.h, checked
 * and made a part of a snapshot. */
#ifndef WEIR_TOOLS_PUBLISHED_SET_H
#define WEIR_TOOLS_PUBLISHED_SET_H

#include "snapshot.h"

/* What may still be read of all answers together. */
struct published_budget {
    size_t sets, holders;
};

/* Of a process. All zero but for the first three: nothing has come yet. */
struct published_answer {
    int fd;                   /* -1: ended */
    uint32_t process, number; /* the process, by the kernel's word; its instance */
    unsigned char *bytes;     /* what has come; owned */
    size_t n, room;
    size_t scanned; /* of these, whole items */
    bool is_whole;
    int code; /* what went wrong, or 0 */
    struct published_budget *budget;
};

/* Goes on through items that have come. Returns 0, -EBADMSG (it is not of the format), or
 * -EPROTONOSUPPORT (it is of another version). */
int published_answer_scan(struct published_answer *answer);

/* Calls `found` for each set of a whole answer; it takes the set over. Returns 0, -ENOMEM,
 * -EBADMSG, -EFBIG (beyond the budget), or what `found` returned if that is not 0. */
int published_answer_read(const struct published_answer *answer,
                          int (*found)(void *userdata, struct snapshot_set *set), void *userdata);

#endif
