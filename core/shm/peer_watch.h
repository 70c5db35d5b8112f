/* SPDX-License-Identifier: MIT */
/*
 * A watch: hears from the kernel that a process which takes part in a segment has died. It has an
 * epoll with a descriptor of each such process (a pidfd) other than this one. The epoll is readable
 * once one of them has died, whether its parent has asked for it or not, and can itself be in
 * another epoll.
 *
 * A life that the kernel does not watch for us, mostly because there are no descriptors left, is
 * looked at by process_look whenever watch_next is called. That needs a descriptor, too, for a
 * moment: without, only a death is seen that the parent has asked for.
 *
 * One thread at a time may use a watch. A forked child may only close it, and disturbs nobody.
 */
#ifndef WEIR_CORE_SHM_PEER_WATCH_H
#define WEIR_CORE_SHM_PEER_WATCH_H

#include "shm/peer_id.h"

struct watched {
    uint64_t life; /* 0: nobody is there whom we watch */
    int fd;        /* -1: not watched by the kernel */
};

struct watch {
    int epoll_fd;
    uint64_t self;
    const struct segment_process *processes;
    struct watched *slots;
    uint32_t n;             /* of them */
    uint32_t unwatched;     /* of these, lives without a descriptor */
    uint32_t at;            /* where the next look at those begins */
    uint64_t registrations; /* as of the last look at all slots */
    bool stale;             /* something else calls for another look */
};

/* `self` is process_self's: slots of this process are not watched. Returns 0 or a negative errno
 * (-EMFILE, -ENOMEM …), after which it may be closed like any other. */
int watch_open(struct watch *watch, uint64_t self);
void watch_close(struct watch *watch);

/*
 * Brings the watch up to date with the first `n` slots if any was claimed since the last time, as
 * the count of registrations tells: read that before `n`. `processes` stays where it is until the
 * next call or watch_close. Returns how many lives are not watched by the kernel (which is tried
 * again each time), or -ENOMEM: then nothing has changed. Deaths before this call are told by
 * watch_next, which is to be called after it; they do not make the epoll readable.
 */
int watch_sync(struct watch *watch, const struct segment_process *processes, uint32_t n,
               uint64_t registrations);

/*
 * The next one that has died and is still in its slot. Returns 1, the slot and the life; 0: no more
 * now; or a negative errno (-ENOMEM …). Never blocks. A death is told once, and again after the
 * next watch_sync if it is still there: whoever was told may have failed to do what is due.
 */
int watch_next(struct watch *watch, uint32_t *ret_slot, uint64_t *ret_life);

#endif
