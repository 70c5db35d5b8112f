/* SPDX-License-Identifier: MIT */
/*
 * Peer watch: reports deaths of the processes attached to a segment. It has an epoll with a pidfd
 * of each of them except the calling process. The epoll becomes readable when one dies, also before
 * the parent reaps it, and can itself be in another epoll.
 *
 * A process without a pidfd, mostly for lack of descriptors, is polled: each peer_watch_next probes
 * it with peer_id_probe. That briefly needs a descriptor, too. Without one a death is detected only
 * after the parent has reaped the process.
 *
 * One thread at a time may use a watch. A forked child may only close it, which does not affect the
 * parent.
 */
#ifndef WEIR_CORE_SHM_PEER_WATCH_H
#define WEIR_CORE_SHM_PEER_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct peer_slot;

struct peer_watch_entry {
    uint64_t id; /* 0: not watched */
    int fd;      /* pidfd; -1: polled */
};

struct peer_watch {
    int epoll_fd;
    uint64_t self;
    const struct peer_slot *peers;
    struct peer_watch_entry *entries;
    uint32_t n;             /* entries */
    uint32_t polled_n;      /* entries of processes without a pidfd */
    uint32_t poll_next;     /* next entry to probe */
    uint64_t registrations; /* count of attaches at the last sync */
    bool needs_sync;        /* forces the next sync to read all slots */
};

/* Opens a watch. `self` is from peer_id_self: slots of this process are not watched. Returns 0 or a
 * negative errno (-EMFILE, -ENOMEM …), after which the watch may be closed as usual. */
int peer_watch_open(struct peer_watch *watch, uint64_t self);
void peer_watch_close(struct peer_watch *watch);

/*
 * Brings the watch up to date with the first `n` slots, if any was claimed since the last sync. The
 * caller loads `registrations`, the count of attaches, before `n`. `peers` must stay valid until
 * the next sync or peer_watch_close. Returns the number of polled processes, for which a pidfd is
 * tried again each time; or -ENOMEM, in which case nothing has changed. The caller then calls
 * peer_watch_next: earlier deaths are reported there, but do not make the epoll readable.
 */
int peer_watch_sync(struct peer_watch *watch, const struct peer_slot *peers, uint32_t n,
                    uint64_t registrations);

/*
 * Finds the next dead process that still has its slot. Returns 1, the slot and the peer id; 0: no
 * more now; or a negative errno (-ENOMEM …). Does not block. A death is reported once, and again
 * after the next peer_watch_sync if the slot is still in use: the cleanup may have failed.
 */
int peer_watch_next(struct peer_watch *watch, uint32_t *ret_slot, uint64_t *ret_id);

#endif
