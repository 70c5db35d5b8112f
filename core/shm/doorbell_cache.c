/* SPDX-License-Identifier: MIT */
/* Doorbells of other processes that stay open. */
#include "shm/doorbell_cache.h"

#include "base/sched_point.h"
#include "os/os.h"
#include "shm/doorbell.h"
#include "shm/peer_id.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Of all caches of this process, and of those that are being opened. Relaxed accesses: it orders
 * nothing. */
static _Atomic uint32_t doorbell_cached_n;

/* Counts one that is about to be opened. Returns false if there may be no more. */
static bool doorbell_cached_reserve(void)
{
    uint32_t n = atomic_load_explicit(&doorbell_cached_n, memory_order_relaxed); /* see above */

    while (n < os_descriptors_max() / 8)
        if (atomic_compare_exchange_weak_explicit(&doorbell_cached_n, &n, n + 1,
                                                  memory_order_relaxed,  /* see above */
                                                  memory_order_relaxed)) /* see above */
            return true;
    return false;
}

/* Not below 0: a forked child may have one that was opened while its memory was copied, and the
 * count from before. */
static void doorbell_cached_release(void)
{
    uint32_t n = atomic_load_explicit(&doorbell_cached_n, memory_order_relaxed); /* see above */

    while (n > 0 && !atomic_compare_exchange_weak_explicit(&doorbell_cached_n, &n, n - 1,
                                                           memory_order_relaxed,  /* see above */
                                                           memory_order_relaxed)) /* see above */
        ;
}

struct doorbell_cache *doorbell_cache_new(int directory_fd, const char *stem,
                                          const struct peer_slot *peers)
{
    struct doorbell_cache *cache = os_alloc(1, sizeof(*cache));

    if (!cache)
        return NULL;
    cache->directory_fd = directory_fd;
    cache->stem = stem;
    cache->peers = peers;
    pthread_mutex_init(&cache->lock, NULL);
    for (uint32_t i = 0; i < DOORBELL_CACHE_SIZE; i++)
        cache->entries[i].fd = -1;
    return cache;
}

/* Forgets the number before it closes it: once closed, it may be a descriptor of the program, which
 * a child that is forked now would close. The fork orders the rest. Returns whether it was open. */
static bool cached_doorbell_close(struct cached_doorbell *entry)
{
    int fd = entry->fd;

    if (fd < 0)
        return false;
    entry->fd = -1;
    atomic_signal_fence(memory_order_seq_cst);
    os_close(fd);
    doorbell_cached_release();
    return true;
}

static bool doorbell_cache_close_all(struct doorbell_cache *cache)
{
    bool has_closed = false;

    for (uint32_t i = 0; i < DOORBELL_CACHE_SIZE; i++)
        has_closed |= cached_doorbell_close(&cache->entries[i]);
    return has_closed;
}

void doorbell_cache_free(struct doorbell_cache *cache)
{
    if (!cache)
        return;
    doorbell_cache_close_all(cache);
    pthread_mutex_destroy(&cache->lock);
    os_free(cache);
}

void doorbell_cache_close_in_child(struct doorbell_cache *cache)
{
    if (cache)
        doorbell_cache_close_all(cache);
}

static uint64_t doorbell_cache_changes(const struct doorbell_cache *cache, uint32_t slot)
{
    return shm_load_seq_cst(&cache->peers[slot % PEERS_MAX].doorbells_changed);
}

/* Closes those of processes that have left or died, and those that their processes have closed. */
static void doorbell_cache_close_outdated(struct doorbell_cache *cache)
{
    for (uint32_t i = 0; i < DOORBELL_CACHE_SIZE; i++) {
        struct cached_doorbell *entry = &cache->entries[i];

        if (entry->fd >= 0 && (!peer_slot_find(cache->peers, PEERS_MAX, entry->slot) ||
                               doorbell_cache_changes(cache, entry->slot) != entry->changed_n))
            cached_doorbell_close(entry);
    }
}

bool doorbell_cache_prune(struct doorbell_cache *cache)
{
    if (pthread_mutex_trylock(&cache->lock) != 0)
        return false;
    doorbell_cache_close_outdated(cache);
    pthread_mutex_unlock(&cache->lock);
    return true;
}

void doorbell_cache_forget(struct doorbell_cache *cache, uint32_t slot)
{
    if (pthread_mutex_trylock(&cache->lock) != 0)
        return;
    for (uint32_t i = 0; i < DOORBELL_CACHE_SIZE; i++)
        if (cache->entries[i].slot == slot)
            cached_doorbell_close(&cache->entries[i]);
    pthread_mutex_unlock(&cache->lock);
}

/* Puts the doorbell into the entry, unless it is there. Returns 0 or a negative errno. */
static int doorbell_cache_load(struct doorbell_cache *cache, struct cached_doorbell *entry,
                               const struct cached_doorbell *wanted)
{
    if (entry->fd >= 0 && entry->slot == wanted->slot && entry->timer == wanted->timer &&
        entry->changed_n == wanted->changed_n)
        return 0;
    cached_doorbell_close(entry);
    if (!doorbell_cached_reserve()) {
        doorbell_cache_close_outdated(cache);
        if (!doorbell_cached_reserve())
            return -EMFILE;
    }
    *entry = *wanted;
    entry->fd = doorbell_open_other(cache->directory_fd, cache->stem, entry->slot, entry->timer);
    if (entry->fd >= 0)
        return 0;
    doorbell_cached_release();
    return entry->fd;
}

/* Opens the doorbell for this ring alone. If the process has no descriptor for that, it gives up
 * those that it keeps. */
static int doorbell_cache_ring_once(struct doorbell_cache *cache, uint32_t slot, uint32_t timer,
                                    uint32_t record)
{
    int r = doorbell_ring(cache->directory_fd, cache->stem, slot, timer, record);
    bool has_closed;

    if ((r != -EMFILE && r != -ENFILE) || pthread_mutex_trylock(&cache->lock) != 0)
        return r;
    has_closed = doorbell_cache_close_all(cache);
    pthread_mutex_unlock(&cache->lock);
    return has_closed ? doorbell_ring(cache->directory_fd, cache->stem, slot, timer, record) : r;
}

int doorbell_cache_ring(struct doorbell_cache *cache, uint32_t slot, uint32_t timer,
                        uint32_t record)
{
    struct cached_doorbell *entry = &cache->entries[(slot + timer) % DOORBELL_CACHE_SIZE];
    const struct cached_doorbell wanted = {slot, timer, doorbell_cache_changes(cache, slot), -1};
    int r = -EBUSY;

    if (pthread_mutex_trylock(&cache->lock) == 0) {
        r = doorbell_cache_load(cache, entry, &wanted);
        if (r == 0)
            r = doorbell_write(entry->fd, record);
        if (r < 0)
            cached_doorbell_close(entry);
        pthread_mutex_unlock(&cache->lock);
    }
    return r < 0 ? doorbell_cache_ring_once(cache, slot, timer, record) : r;
}
