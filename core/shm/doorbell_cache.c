/* SPDX-License-Identifier: MIT */
/* Doorbells of other processes that stay open. */
#include "shm/doorbell_cache.h"

#include "base/invariant.h"
#include "os/os.h"
#include "shm/doorbell.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Of all caches of this process. Relaxed accesses: it orders nothing. */
static _Atomic uint32_t doorbell_cached_n;

struct doorbell_cache *doorbell_cache_new(int directory_fd, const char *stem)
{
    struct doorbell_cache *cache = os_alloc(1, sizeof(*cache));

    if (!cache)
        return NULL;
    cache->directory_fd = directory_fd;
    cache->stem = stem;
    pthread_mutex_init(&cache->lock, NULL);
    for (uint32_t i = 0; i < DOORBELL_CACHE_SIZE; i++)
        cache->entries[i].fd = -1;
    return cache;
}

static void cached_doorbell_close(struct cached_doorbell *entry)
{
    if (entry->fd < 0)
        return;
    os_close(entry->fd);
    entry->fd = -1;
    atomic_fetch_sub_explicit(&doorbell_cached_n, 1, memory_order_relaxed); /* see above */
}

void doorbell_cache_free(struct doorbell_cache *cache)
{
    for (uint32_t i = 0; cache && i < DOORBELL_CACHE_SIZE; i++)
        cached_doorbell_close(&cache->entries[i]);
    if (cache)
        pthread_mutex_destroy(&cache->lock);
    os_free(cache);
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
static int doorbell_cache_load(const struct doorbell_cache *cache, struct cached_doorbell *entry,
                               const struct cached_doorbell *wanted)
{
    uint32_t n;

    if (entry->fd >= 0 && entry->slot == wanted->slot && entry->timer == wanted->timer &&
        entry->closed_n == wanted->closed_n)
        return 0;
    cached_doorbell_close(entry);
    n = atomic_load_explicit(&doorbell_cached_n, memory_order_relaxed); /* see above */
    if (n >= os_descriptors_max() / 8)
        return -EMFILE;
    *entry = *wanted;
    entry->fd = doorbell_open_other(cache->directory_fd, cache->stem, entry->slot, entry->timer);
    if (entry->fd < 0)
        return entry->fd;
    atomic_fetch_add_explicit(&doorbell_cached_n, 1, memory_order_relaxed); /* see above */
    return 0;
}

int doorbell_cache_ring(struct doorbell_cache *cache, uint32_t slot, uint32_t timer,
                        uint64_t closed_n, uint32_t record)
{
    struct cached_doorbell *entry = &cache->entries[(slot + timer) % DOORBELL_CACHE_SIZE];
    const struct cached_doorbell wanted = {slot, timer, closed_n, -1};
    int r = -EBUSY;

    if (pthread_mutex_trylock(&cache->lock) == 0) {
        r = doorbell_cache_load(cache, entry, &wanted);
        if (r == 0)
            r = doorbell_write(entry->fd, record);
        if (r < 0)
            cached_doorbell_close(entry);
        pthread_mutex_unlock(&cache->lock);
    }
    return r < 0 ? doorbell_ring(cache->directory_fd, cache->stem, slot, timer, record) : r;
}
