/* SPDX-License-Identifier: MIT */
/* Watches: pidfds in an epoll. */
#include "shm/peer_watch.h"

#include "os/os.h"
#include <errno.h>

int watch_open(struct watch *watch, uint64_t self)
{
    *watch = (struct watch){.epoll_fd = sys_epoll_create(), .self = self, .stale = true};
    return watch->epoll_fd < 0 ? watch->epoll_fd : 0;
}

/* Takes nothing out of the epoll: in a forked child that is still its parent's. */
void watch_close(struct watch *watch)
{
    for (uint32_t i = 0; i < watch->n; i++)
        sys_close(watch->slots[i].fd);
    sys_free(watch->slots);
    sys_close(watch->epoll_fd);
    *watch = (struct watch){.epoll_fd = -1};
}

/* Out of the epoll by name: closing is not enough if a forked child has the descriptor as well. */
static void unlist(struct watch *watch, int fd)
{
    sys_epoll_remove(watch->epoll_fd, fd);
    sys_close(fd);
}

static void forget(struct watch *watch, struct watched *watched)
{
    if (watched->fd >= 0)
        unlist(watch, watched->fd);
    else if (watched->life)
        watch->unwatched--;
    *watched = (struct watched){.fd = -1};
}

/*
 * A descriptor in the epoll that is of this life; or -1: it is over, or that cannot be had now.
 * First the descriptor, then the look: so what was looked at is what the descriptor is of, not
 * somebody who got the pid later.
 */
static int list(struct watch *watch, uint32_t slot, uint64_t life)
{
    int fd = sys_process_open(process_pid(life));

    if (fd < 0)
        return -1;
    if (process_look(life) == 1 && sys_epoll_add(watch->epoll_fd, fd, slot) == 0)
        return fd;
    sys_close(fd);
    return -1;
}

static void follow(struct watch *watch, uint32_t slot, uint64_t life)
{
    struct watched *watched = &watch->slots[slot];

    if (!process_pid(life) || process_is_same(life, watch->self))
        life = 0;
    if (watched->life == life && (!life || watched->fd >= 0))
        return;
    forget(watch, watched);
    if (!life)
        return;
    *watched = (struct watched){life, list(watch, slot, life)};
    watch->unwatched += watched->fd < 0;
}

/* Room for n slots; they are never fewer than before. */
static int grow(struct watch *watch, uint32_t n)
{
    struct watched *slots;

    if (n <= watch->n)
        return 0;
    slots = sys_grow(watch->slots, n, sizeof(*slots));
    if (!slots)
        return -ENOMEM;
    for (uint32_t i = watch->n; i < n; i++)
        slots[i] = (struct watched){.fd = -1};
    watch->slots = slots;
    watch->n = n;
    return 0;
}

int watch_sync(struct watch *watch, const struct segment_process *processes, uint32_t n,
               uint64_t registrations)
{
    if (registrations == watch->registrations && n <= watch->n && !watch->unwatched &&
        !watch->stale)
        return 0;
    if (grow(watch, n) < 0)
        return -ENOMEM;
    watch->processes = processes;
    watch->registrations = registrations;
    watch->stale = false;
    for (uint32_t i = 0; i < watch->n; i++)
        follow(watch, i, i < n ? atomic_load(&processes[i].life) : 0);
    return (int)watch->unwatched;
}

/* Forgets who has died. False: the slot was freed meanwhile, or is somebody else's. */
static bool tell(struct watch *watch, uint32_t slot, uint64_t *ret_life)
{
    *ret_life = watch->slots[slot].life;
    forget(watch, &watch->slots[slot]);
    watch->stale = true;
    return atomic_load(&watch->processes[slot].life) == *ret_life;
}

/* Among those that the kernel watches. */
static int next_event(struct watch *watch, uint32_t *ret_slot, uint64_t *ret_life)
{
    uint64_t slot;
    int r;

    while ((r = sys_epoll_look(watch->epoll_fd, &slot, 1)) > 0) {
        *ret_slot = (uint32_t)slot;
        if (tell(watch, *ret_slot, ret_life))
            return 1;
    }
    return r;
}

/* Among the others, each once around. */
static int next_unwatched(struct watch *watch, uint32_t *ret_slot, uint64_t *ret_life)
{
    while (watch->unwatched && watch->at < watch->n) {
        uint32_t slot = watch->at++;
        const struct watched *watched = &watch->slots[slot];

        if (!watched->life || watched->fd >= 0 || !process_is_dead(watched->life))
            continue;
        *ret_slot = slot;
        if (tell(watch, slot, ret_life))
            return 1;
    }
    watch->at = 0;
    return 0;
}

int watch_next(struct watch *watch, uint32_t *ret_slot, uint64_t *ret_life)
{
    uint32_t slot = 0;
    uint64_t life = 0;
    int r = next_event(watch, &slot, &life);

    if (r == 0)
        r = next_unwatched(watch, &slot, &life);
    if (r == 1) {
        *ret_slot = slot;
        *ret_life = life;
    }
    return r;
}
