/* SPDX-License-Identifier: MIT */
/* Peer watches: pidfds in an epoll, and probes of processes without one. */
#include "shm/peer_watch.h"
#include "shm/peer_id.h"

#include "base/invariant.h"
#include "os/os.h"
#include <errno.h>

/* pidfds of all watches of this process. Relaxed accesses: it orders nothing. */
static _Atomic uint32_t peer_watch_pidfds_n;

int peer_watch_open(struct peer_watch *watch, uint64_t self, uint32_t slot)
{
    *watch = (struct peer_watch){
        .epoll_fd = os_epoll_create(), .self = self, .slot = slot, .needs_sync = true};
    return watch->epoll_fd < 0 ? watch->epoll_fd : 0;
}

static void peer_watch_close_pidfd(int fd)
{
    if (fd < 0)
        return;
    os_close(fd);
    atomic_fetch_sub_explicit(&peer_watch_pidfds_n, 1, memory_order_relaxed); /* see above */
}

/* Removes nothing from the epoll: a forked child shares it with its parent. */
void peer_watch_close(struct peer_watch *watch)
{
    for (uint32_t i = 0; i < watch->n; i++)
        peer_watch_close_pidfd(watch->entries[i].fd);
    os_free(watch->entries);
    os_close(watch->epoll_fd);
    *watch = (struct peer_watch){.epoll_fd = -1};
}

uint32_t peer_watch_limit(void)
{
    uint32_t most = os_descriptors_max() / 8;

    return most == 0 ? 1 : most < PEER_WATCH_MAX ? most : PEER_WATCH_MAX;
}

/* Returns how many more pidfds the watch may have. */
static uint32_t peer_watch_room(const struct peer_watch *watch)
{
    uint32_t most = peer_watch_limit(), all_most = os_descriptors_max() / 4;
    uint32_t all = atomic_load_explicit(&peer_watch_pidfds_n, memory_order_relaxed); /* see above */

    if (watch->watched_n >= most || (all >= all_most && watch->watched_n > 0))
        return 0;
    most -= watch->watched_n;
    return all + most <= all_most ? most : all < all_most ? all_most - all : 1;
}

/* Removes explicitly: closing is not enough if a forked child has the descriptor as well. */
static void peer_watch_unwatch(struct peer_watch *watch, struct peer_watch_entry *entry)
{
    int fd = entry->fd;

    os_epoll_remove(watch->epoll_fd, fd);
    entry->fd = -1; /* first, as a child that is forked closes what it finds here */
    atomic_signal_fence(memory_order_seq_cst);
    peer_watch_close_pidfd(fd);
    watch->watched_n--;
    watch->polled_n++;
}

static void peer_watch_clear_entry(struct peer_watch *watch, struct peer_watch_entry *entry)
{
    if (entry->fd >= 0)
        peer_watch_unwatch(watch, entry);
    if (entry->id)
        watch->polled_n--;
    entry->id = 0;
    entry->is_preferred = false;
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
    if (peer_id_probe(id) == 1 && os_epoll_add(watch->epoll_fd, fd, slot) == 0) {
        atomic_fetch_add_explicit(&peer_watch_pidfds_n, 1, memory_order_relaxed); /* see above */
        return fd;
    }
    os_close(fd);
    return -1;
}

/* Takes a pidfd for an entry without one. Returns false if it has one or cannot have one. */
static bool peer_watch_try(struct peer_watch *watch, uint32_t slot)
{
    struct peer_watch_entry *entry = &watch->entries[slot];

    WEIR_INVARIANT(slot < watch->n);
    if (!entry->id || entry->fd >= 0)
        return false;
    entry->fd = peer_watch_epoll_add(watch, slot, entry->id);
    if (entry->fd < 0)
        return false;
    watch->polled_n--;
    watch->watched_n++;
    return true;
}

/* Reads a slot, the process of which is not watched yet if it is another one than before. */
static void peer_watch_read_slot(struct peer_watch *watch, const struct peer_slot *peer,
                                 struct peer_watch_entry *entry)
{
    uint64_t id = peer ? atomic_load_explicit(&peer->id, memory_order_seq_cst) : 0;

    if (peer && peer_slot_predecessor(peer))
        watch->has_predecessors = true;
    if (!peer_id_pid(id) || peer_id_same_process(id, watch->self))
        id = 0;
    if (entry->id == id)
        return;
    peer_watch_clear_entry(watch, entry);
    entry->id = id;
    watch->polled_n += id != 0;
}

/* Notes which processes are preferred. Gives up the pidfds of all others if some of them have none
 * and there can be no more. */
static void peer_watch_prefer(struct peer_watch *watch, const uint64_t *preferred, uint32_t n)
{
    bool lacks = false;

    for (uint32_t i = 0; i < watch->n; i++) {
        struct peer_watch_entry *entry = &watch->entries[i];

        entry->is_preferred = entry->id && i < n && (preferred[i / 64] >> i % 64 & 1);
        lacks |= entry->is_preferred && entry->fd < 0;
    }
    if (!lacks || peer_watch_room(watch) > 0)
        return;
    for (uint32_t i = 0; i < watch->n; i++)
        if (watch->entries[i].fd >= 0 && !watch->entries[i].is_preferred)
            peer_watch_unwatch(watch, &watch->entries[i]);
}

/* Takes pidfds: of the preferred processes, then of others; of both those in the slots before the
 * own one first. */
static void peer_watch_take_pidfds(struct peer_watch *watch)
{
    uint32_t room = peer_watch_room(watch), own = watch->slot % watch->n;

    for (int preferred = 1; preferred >= 0; preferred--)
        for (uint32_t i = 1; i <= watch->n && room > 0; i++) {
            uint32_t slot = (own + watch->n - i) % watch->n;

            if (watch->entries[slot].is_preferred == (preferred != 0) &&
                peer_watch_try(watch, slot))
                room--;
        }
}

static void peer_watch_count_preferred(struct peer_watch *watch)
{
    watch->preferred_n = 0;
    for (uint32_t i = 0; i < watch->n; i++)
        watch->preferred_n += watch->entries[i].is_preferred && watch->entries[i].fd < 0;
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

/* Returns whether the slots are as they were, and nothing is to be done for those of which not all
 * can have pidfds. */
static bool peer_watch_is_current(const struct peer_watch *watch, const struct peer_census *census)
{
    if (census->registrations != watch->registrations || census->n > watch->n || watch->needs_sync)
        return false;
    return !watch->polled_n || (!census->preferred && !peer_watch_room(watch));
}

int peer_watch_sync(struct peer_watch *watch, const struct peer_census *census)
{
    uint32_t n = census->n;

    if (peer_watch_is_current(watch, census))
        return (int)watch->polled_n;
    if (peer_watch_reserve(watch, n) < 0)
        return -ENOMEM;
    watch->peers = census->peers;
    watch->registrations = census->registrations;
    watch->needs_sync = false;
    for (uint32_t i = 0; i < watch->n; i++)
        peer_watch_read_slot(watch, i < n ? &census->peers[i] : NULL, &watch->entries[i]);
    if (census->preferred)
        peer_watch_prefer(watch, census->preferred, n);
    if (watch->polled_n)
        peer_watch_take_pidfds(watch);
    peer_watch_count_preferred(watch);
    WEIR_INVARIANT(watch->polled_n + watch->watched_n <= watch->n);
    return (int)watch->polled_n;
}

void peer_watch_begin_probes(struct peer_watch *watch, uint32_t others_n)
{
    watch->round_at = 0;
    watch->round_first = watch->others_next;
    watch->others_left = others_n;
    watch->is_blind = false;
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

/* Finds a slot that was taken over from a dead process. */
static int peer_watch_next_predecessor(struct peer_watch *watch, uint32_t *ret_slot,
                                       uint64_t *ret_id)
{
    for (uint32_t i = 0; i < watch->n && watch->has_predecessors; i++) {
        uint64_t id = peer_slot_predecessor(&watch->peers[i]);

        if (!id)
            continue;
        *ret_slot = i;
        *ret_id = id;
        return 1;
    }
    watch->has_predecessors = false;
    return 0;
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

/* Returns the next entry to be probed in this round; NULL: there is none. */
static struct peer_watch_entry *peer_watch_next_probe(struct peer_watch *watch)
{
    while (watch->polled_n && watch->round_at < watch->n) {
        uint32_t slot = (watch->round_first + watch->round_at++) % watch->n;
        struct peer_watch_entry *entry = &watch->entries[slot];

        if (!entry->id || entry->fd >= 0)
            continue;
        if (entry->is_preferred)
            return entry;
        if (watch->others_left > 0) {
            watch->others_left--;
            watch->others_next = slot + 1;
            return entry;
        }
    }
    return NULL;
}

/* Finds a death among processes without one. */
static int peer_watch_next_polled(struct peer_watch *watch, uint32_t *ret_slot, uint64_t *ret_id)
{
    struct peer_watch_entry *entry;

    while ((entry = peer_watch_next_probe(watch)) != NULL) {
        int r = peer_id_probe(entry->id);

        if (r == 0 &&
            peer_watch_take_dead(watch, (uint32_t)(entry - watch->entries), ret_slot, ret_id))
            return 1;
        watch->is_blind |= r < 0;
    }
    return 0;
}

int peer_watch_next(struct peer_watch *watch, uint32_t *ret_slot, uint64_t *ret_id)
{
    int r = peer_watch_next_predecessor(watch, ret_slot, ret_id);

    if (r == 0)
        r = peer_watch_next_event(watch, ret_slot, ret_id);
    return r == 0 ? peer_watch_next_polled(watch, ret_slot, ret_id) : r;
}
