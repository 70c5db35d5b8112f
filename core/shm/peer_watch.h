/* SPDX-License-Identifier: MIT */
/*
 * Peer watch: reports deaths of the processes attached to a segment. It has an epoll with pidfds of
 * some of them. The epoll becomes readable when one of these dies, also before the parent reaps it,
 * and can itself be in another epoll.
 *
 * A watch has PEER_WATCH_MAX pidfds at most, fewer if the process may have few descriptors. It
 * takes them for the processes in the slots before its own, and goes round: so if most of the
 * processes watch, each is watched by several. The caller may prefer some, which then come first.
 *
 * The others are probed with peer_id_probe when the caller says so. That briefly needs a
 * descriptor, too. Without one a death is detected only after the parent has reaped the process.
 *
 * One thread at a time may use a watch. A forked child may only close it, which does not affect the
 * parent.
 */
#ifndef WEIR_CORE_SHM_PEER_WATCH_H
#define WEIR_CORE_SHM_PEER_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct peer_slot;

/* pidfds of one watch, at most: also of an eighth of the descriptors that the process may have; and
 * of all its watches a quarter. */
#define PEER_WATCH_MAX 32u

struct peer_watch_entry {
    uint64_t id;       /* 0: not watched */
    int fd;            /* pidfd; -1: probed */
    bool is_preferred; /* at the last sync that said which are */
};

struct peer_watch {
    int epoll_fd;
    uint64_t self;
    const struct peer_slot *peers;
    struct peer_watch_entry *entries;
    uint32_t n;             /* entries */
    uint32_t slot;          /* of the instance */
    uint32_t watched_n;     /* entries of processes with a pidfd */
    uint32_t polled_n;      /* entries of processes without one */
    uint32_t preferred_n;   /* of these: preferred ones, at that sync */
    uint32_t round_at;      /* next entry of the round of probes, from round_first */
    uint32_t others_left;   /* probes of others than the preferred in this round */
    uint32_t others_next;   /* slot at which the next round begins */
    uint32_t round_first;   /* slot at which this round began */
    uint64_t registrations; /* count of attaches at the last sync */
    bool needs_sync;        /* forces the next sync to read all slots */
    bool has_predecessors;  /* slots may have been taken over from dead processes */
    bool is_blind;          /* a probe failed, for lack of a descriptor */
};

/* The slots of a segment, for peer_watch_sync(). */
struct peer_census {
    const struct peer_slot *peers; /* valid until the next sync or peer_watch_close() */
    uint32_t n;                    /* slots */
    uint64_t registrations;        /* count of attaches, loaded before `n` */
    const uint64_t *preferred;     /* bits by slot; NULL: as at the last sync */
};

/* Opens a watch for the instance in this slot. `self` is from peer_id_self: slots of this process
 * are not watched. Returns 0 or a negative errno (-EMFILE, -ENOMEM …), after which the watch may be
 * closed as usual. */
int peer_watch_open(struct peer_watch *watch, uint64_t self, uint32_t slot);
void peer_watch_close(struct peer_watch *watch);

/* Returns how many pidfds a watch may have now. */
uint32_t peer_watch_limit(void);

/*
 * Brings the watch up to date with the slots, if any was claimed since the last sync. Returns the
 * number of processes without a pidfd, for which one is tried again each time as long as there may
 * be more; or -ENOMEM, in which case nothing has changed. The caller then calls peer_watch_next:
 * earlier deaths are reported there, but do not make the epoll readable.
 */
int peer_watch_sync(struct peer_watch *watch, const struct peer_census *census);

/* Makes peer_watch_next() probe processes without a pidfd, each once, until it returns 0: those
 * that are preferred, and as many others, which are others the next time. */
void peer_watch_begin_probes(struct peer_watch *watch, uint32_t others_n);

/*
 * Finds the next dead process that still has its slot, or from which the slot was taken over.
 * Returns 1, the slot and the peer id; 0: no more now; or a negative errno (-ENOMEM …). Does not
 * block. A death is reported once, and again after the next peer_watch_sync if the slot is still in
 * use: the cleanup may have failed.
 */
int peer_watch_next(struct peer_watch *watch, uint32_t *ret_slot, uint64_t *ret_id);

#endif
