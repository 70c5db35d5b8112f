/* SPDX-License-Identifier: MIT */
/*
 * Doorbells of other processes that a participant keeps open: most rings are one system call. The
 * place of a doorbell in the cache follows from its process and timer; another one takes it over.
 * Whatever prevents that a doorbell is kept, it is opened for the one ring.
 */
#ifndef WEIR_CORE_SHM_DOORBELL_CACHE_H
#define WEIR_CORE_SHM_DOORBELL_CACHE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct peer_slot;

/* Descriptors of one cache, at most; all of the process have an eighth of what it may have. */
#define DOORBELL_CACHE_SIZE 16u

struct cached_doorbell {
    uint32_t slot, timer;
    uint64_t changed_n; /* doorbells_changed of the process, loaded before it was opened */
    int fd;             /* -1: none */
};

struct doorbell_cache {
    int directory_fd;
    const char *stem;
    const struct peer_slot *peers;
    pthread_mutex_t lock; /* only tried, as no ring waits for another one */
    struct cached_doorbell entries[DOORBELL_CACHE_SIZE];
};

/* All of these stay the caller's, and valid; `peers`: the slots of the segment. NULL: out of
 * memory. */
struct doorbell_cache *doorbell_cache_new(int directory_fd, const char *stem,
                                          const struct peer_slot *peers);
void doorbell_cache_free(struct doorbell_cache *cache);
/* Closes a forked child's copies of the descriptors, and nothing else: a thread of the parent may
 * have had the lock. Accepts NULL. */
void doorbell_cache_close_in_child(struct doorbell_cache *cache);

/* Closes the doorbells of a dead process, unless a ring is under way. */
void doorbell_cache_forget(struct doorbell_cache *cache, uint32_t slot);

/* Closes the doorbells of processes that have no slot any more, and those that were closed or
 * replaced since. Returns false if it did nothing, because a ring is under way. */
bool doorbell_cache_prune(struct doorbell_cache *cache);

/* doorbell_ring() of a process that has, or had, one of the slots. The caller has read the record
 * before: a doorbell that was opened before the last change of them may have a successor. */
int doorbell_cache_ring(struct doorbell_cache *cache, uint32_t slot, uint32_t timer,
                        uint32_t record);

#endif
