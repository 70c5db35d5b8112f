/* SPDX-License-Identifier: MIT */
/*
 * Doorbells of other processes that a participant keeps open: most rings are one system call. The
 * place of a doorbell in the cache follows from its process and timer; another one takes it over.
 * Whatever prevents that a doorbell is kept, it is opened for the one ring.
 */
#ifndef WEIR_CORE_SHM_DOORBELL_CACHE_H
#define WEIR_CORE_SHM_DOORBELL_CACHE_H

#include <pthread.h>
#include <stdint.h>

/* Descriptors of one cache, at most; all of the process have an eighth of what it may have. */
#define DOORBELL_CACHE_SIZE 16u

struct cached_doorbell {
    uint32_t slot, timer;
    uint64_t closed_n; /* loaded before it was opened */
    int fd;            /* -1: none */
};

struct doorbell_cache {
    int directory_fd;
    const char *stem;
    pthread_mutex_t lock; /* only tried, as no ring waits for another one */
    struct cached_doorbell entries[DOORBELL_CACHE_SIZE];
};

/* `directory_fd` and `stem` stay the caller's, and valid. NULL: out of memory. A forked child may
 * free its copy. */
struct doorbell_cache *doorbell_cache_new(int directory_fd, const char *stem);
void doorbell_cache_free(struct doorbell_cache *cache);

/* Closes the doorbells of a dead process, unless a ring is under way. */
void doorbell_cache_forget(struct doorbell_cache *cache, uint32_t slot);

/* doorbell_ring(). `closed_n`: how many doorbells the other process has closed, loaded after the
 * record was read; one that was opened before the last of these may have a successor. */
int doorbell_cache_ring(struct doorbell_cache *cache, uint32_t slot, uint32_t timer,
                        uint64_t closed_n, uint32_t record);

#endif
