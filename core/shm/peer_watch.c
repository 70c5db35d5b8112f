/* SPDX-License-Identifier: MIT */
/* Peer watches: pidfds in an epoll, and polling of processes without one. */
#include "shm/peer_watch.h"
#include "shm/peer_id.h"

#include "base/invariant.h"
#include "os/os.h"
#include <errno.h>

int peer_watch_open(struct peer_watch *watch, uint64_t self)
{
    *watch = (struct peer_watch){.epoll_fd = os_epoll_create(), .self = self, .needs_sync = true};
    return watch->epoll_fd < 0 ? watch->epoll_fd : 0;
}

/* Removes nothing from the epoll: a forked child shares it with its parent. */
void peer_watch_close(struct peer_watch *watch)
{
    for (uint32_t i = 0; i < watch->n; i++)
        os_close(watch->entries[i].fd);
    os_free(watch->entries);
    os_close(watch->epoll_fd);
    *watch = (struct peer_watch){.epoll_fd = -1};
}

/* Removes explicitly: closing is not enough if a forked child has the descriptor as well. */
static void peer_watch_clear_entry(struct peer_watch *watch, struct peer_watch_entry *entry)
{
    if (entry->fd >= 0)
        os_epoll_remove(watch->epoll_fd, entry->fd);
    else if (entry->id)
        watch->polled_n--;
    os_close(entry->fd);
    *entry = (struct peer_watch_entry){.fd = -1};
}

/*
 * Adds a pidfd of the process `id` to the epoll and returns it; -1: the process is dead, or none is
 * available now. Opens before it probes: if the probe succeeds, the pidfd is of this process, not
 * of a later one with its pid.
 */
static int peer_watch_epoll_add(struct peer_watch *watch, uint32_t slot, uint64_t id)
{
    int fd = os_pidfd_open(peer_id_pid(id));

    if (fd < 0)
        return -1;
    if (peer_id_probe(id) == 1 && os_epoll_add(watch->epoll_fd, fd, slot) == 0)
        return fd;
    os_close(fd);
    return -1;
}

static void peer_watch_update_entry(struct peer_watch *watch, uint32_t slot, uint64_t id)
{
    struct peer_watch_entry *entry = &watch->entries[slot];

    WEIR_INVARIANT(slot < watch->n);
    if (!peer_id_pid(id) || peer_id_same_process(id, watch->self))
        id = 0;
    if (entry->id == id && (!id || entry->fd >= 0))
        return;
    peer_watch_clear_entry(watch, entry);
    if (!id)
        return;
    *entry = (struct peer_watch_entry){id, peer_watch_epoll_add(watch, slot, id)};
    watch->polled_n += entry->fd < 0;
}

/* Makes room for `n` entries; `n` never shrinks. */
static int peer_watch_reserve(struct peer_watch *watch, uint32_t n)
{
    struct peer_watch_entry *entries;

    if (n <= watch->n)
        return 0;
    entries = os_realloc(watch->entries, n, sizeof(*entries));
    if (!entries)
        return -ENOMEM;
    for (uint32_t i = watch->n; i < n; i++)
        entries[i] = (struct peer_watch_entry){.fd = -1};
    watch->entries = entries;
    watch->n = n;
    return 0;
}

int peer_watch_sync(struct peer_watch *watch, const struct peer_slot *peers, uint32_t n,
                    uint64_t registrations)
{
    if (registrations == watch->registrations && n <= watch->n && !watch->polled_n &&
        !watch->needs_sync)
        return 0;
    if (peer_watch_reserve(watch, n) < 0)
        return -ENOMEM;
    watch->peers = peers;
    watch->registrations = registrations;
    watch->needs_sync = false;
    for (uint32_t i = 0; i < watch->n; i++)
        peer_watch_update_entry(
            watch, i, i < n ? atomic_load_explicit(&peers[i].id, memory_order_seq_cst) : 0);
    WEIR_INVARIANT(watch->polled_n <= watch->n);
    return (int)watch->polled_n;
}

/* Removes the entry of a dead process. Returns false if the slot was freed or claimed anew. */
static bool peer_watch_take_dead(struct peer_watch *watch, uint32_t slot, uint32_t *ret_slot,
                                 uint64_t *ret_id)
{
    uint64_t id = watch->entries[slot].id;

    WEIR_INVARIANT(slot < watch->n && watch->peers);
    peer_watch_clear_entry(watch, &watch->entries[slot]);
    watch->needs_sync = true;
    if (atomic_load_explicit(&watch->peers[slot].id, memory_order_seq_cst) != id)
        return false;
    *ret_slot = slot;
    *ret_id = id;
    return true;
}

/* Finds a death among processes with a pidfd. */
static int peer_watch_next_event(struct peer_watch *watch, uint32_t *ret_slot, uint64_t *ret_id)
{
    uint64_t slot;
    int r;

    while ((r = os_epoll_wait(watch->epoll_fd, &slot, 1, false)) > 0)
        if (peer_watch_take_dead(watch, (uint32_t)slot, ret_slot, ret_id))
            return 1;
    return r;
}

/* Finds a death among polled processes. Probes each once until it returns 0. */
static int peer_watch_next_polled(struct peer_watch *watch, uint32_t *ret_slot, uint64_t *ret_id)
{
    while (watch->polled_n && watch->poll_next < watch->n) {
        uint32_t slot = watch->poll_next++;
        const struct peer_watch_entry *entry = &watch->entries[slot];

        if (entry->id && entry->fd < 0 && peer_id_is_dead(entry->id) &&
            peer_watch_take_dead(watch, slot, ret_slot, ret_id))
            return 1;
    }
    watch->poll_next = 0;
    return 0;
}

int peer_watch_next(struct peer_watch *watch, uint32_t *ret_slot, uint64_t *ret_id)
{
    int r = peer_watch_next_event(watch, ret_slot, ret_id);

    return r == 0 ? peer_watch_next_polled(watch, ret_slot, ret_id) : r;
}
