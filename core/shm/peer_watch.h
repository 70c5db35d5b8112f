/* SPDX-License-Identifier: MIT */
/*
 * A watch: hears from the kernel that a process which takes part in a segment has died. It has an
 * epoll with a descriptor of each such process (a pidfd) other than this one. The epoll is readable
 * once one of them has died, whether its parent has asked for it or not, and can itself be in
 * another epoll.
 *
 * A life that the kernel does not watch for us, mostly because there are no descriptors left, is
 * looked at by peer_id_probe whenever peer_watch_next is called. That needs a descriptor, too, for a
 * moment: without, only a death is seen that the parent has asked for.
 *
 * One thread at a time may use a watch. A forked child may only close it, and disturbs nobody.
 */
#ifndef WEIR_CORE_SHM_PEER_WATCH_H
#define WEIR_CORE_SHM_PEER_WATCH_H

#include "shm/peer_id.h"

struct peer_watch_entry {
    uint64_t id; /* 0: nobody is there whom we watch */
    int fd;      /* -1: not watched by the kernel */
};

struct peer_watch {
    int epoll_fd;
    uint64_t self;
    const struct peer_slot *peers;
    struct peer_watch_entry *entries;
    uint32_t n;             /* of them */
    uint32_t polled_n;      /* of these, lives without a descriptor */
    uint32_t poll_next;     /* where the next look at those begins */
    uint64_t registrations; /* as of the last look at all slots */
    bool needs_sync;        /* something else calls for another look */
};

/* `self` is peer_id_self's: slots of this process are not watched. Returns 0 or a negative errno
 * (-EMFILE, -ENOMEM …), after which it may be closed like any other. */
int peer_watch_open(struct peer_watch *watch, uint64_t self);
void peer_watch_close(struct peer_watch *watch);

/*
 * Brings the watch up to date with the first `n` slots if any was claimed since the last time, as
 * the count of registrations tells: read that before `n`. `processes` stays where it is until the
 * next call or peer_watch_close. Returns how many lives are not watched by the kernel (which is tried
 * again each time), or -ENOMEM: then nothing has changed. Deaths before this call are told by
 * peer_watch_next, which is to be called after it; they do not make the epoll readable.
 */
int peer_watch_sync(struct peer_watch *watch, const struct peer_slot *peers, uint32_t n,
                    uint64_t registrations);

/*
 * The next one that has died and is still in its slot. Returns 1, the slot and the life; 0: no more
 * now; or a negative errno (-ENOMEM …). Never blocks. A death is told once, and again after the
 * next peer_watch_sync if it is still there: whoever was told may have failed to do what is due.
 */
int peer_watch_next(struct peer_watch *watch, uint32_t *ret_slot, uint64_t *ret_id);

#endif
