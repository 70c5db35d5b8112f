/* SPDX-License-Identifier: MIT */
/* Hearing: see hearing.h. */
#include "wait/peer_events.h"

#include "base/mutant.h"
#include "os/os.h"
#include "peer/participant.h"
#include "peer/peer_cleanup.h"
#include "shm/doorbell.h"
#include "wait/timer_thread.h"
#include "wait/waiter.h"
#include <errno.h>

struct hearing {
    struct hearing *next;
    weir_set *set;
    int fd;
};

static struct hearing *find(const struct keeper *keeper, const weir_set *set)
{
    struct hearing *hearing = atomic_load_explicit(&keeper->hearings, memory_order_acquire);

    while (hearing && hearing->set != set)
        hearing = hearing->next;
    return hearing;
}

/* With an injected clock nobody would attend to the instance's keeper but weir_tick, which looks by
 * itself. */
static int add_to_epoll(const struct keeper *keeper, const struct hearing *hearing)
{
    int epoll_fd = keeper->alarm.epoll_fd, r;
    const weir *w = keeper->w;

    if (epoll_fd < 0 || (keeper == &w->keeper && w->clock.now_ns))
        return 0;
    r = sys_epoll_add(epoll_fd, hearing->fd, 0);
    if (r < 0)
        return r;
    r = sys_epoll_add(epoll_fd, hearing->set->member->watch.epoll_fd, 0);
    if (r < 0)
        sys_epoll_remove(epoll_fd, hearing->fd);
    return r;
}

/* By name, as everywhere: closing is not enough if a forked child has the descriptor as well. */
static void take_from_epoll(const struct keeper *keeper, const struct hearing *hearing)
{
    if (keeper->alarm.epoll_fd < 0 || MUTANT(680))
        return;
    sys_epoll_remove(keeper->alarm.epoll_fd, hearing->fd);
    sys_epoll_remove(keeper->alarm.epoll_fd, hearing->set->member->watch.epoll_fd);
}

/* Who has died the timekeeper hears for itself: this keeper may be gone by then. */
static int relay(const struct keeper *keeper, uint32_t number, const struct hearing *hearing)
{
    struct keeper *own = &keeper->w->keeper;
    int r;

    if (!alarm_is_open(&own->alarm))
        return 0; /* the instance is closed */
    r = hearing_begin(own, 0, hearing->set);
    return r < 0 ? r : sys_epoll_add(alarm_fd(&own->alarm), hearing->fd, number);
}

static void end_relay(const struct keeper *keeper)
{
    struct hearing *hearing = atomic_load(&keeper->hearings);

    for (; hearing; hearing = hearing->next)
        sys_epoll_remove(alarm_fd(&keeper->w->keeper.alarm), hearing->fd);
}

/* A queue whose alarm gathers nothing has no other way to hear than the timekeeper. */
static bool needs_relay(const struct keeper *keeper)
{
    return alarm_is_open(&keeper->alarm) && keeper->alarm.epoll_fd < 0;
}

int hearing_relay(struct keeper *keeper, uint32_t number)
{
    struct hearing *hearing = atomic_load(&keeper->hearings);
    int r = 0;

    if (needs_relay(keeper))
        return 0;
    for (; hearing && r == 0; hearing = hearing->next)
        r = relay(keeper, number, hearing);
    if (r < 0)
        end_relay(keeper);
    keeper->relayed = r == 0;
    return r;
}

void hearing_end_relay(struct keeper *keeper)
{
    if (keeper->relayed)
        end_relay(keeper);
    keeper->relayed = false;
}

/* Makes what is heard known to whoever moves the keeper. */
static int announce(const struct keeper *keeper, uint32_t number, const struct hearing *hearing)
{
    int r = needs_relay(keeper) ? timekeeper_start(keeper->w) : add_to_epoll(keeper, hearing);

    if (r < 0 || !(keeper->relayed || needs_relay(keeper)) || MUTANT(545))
        return r;
    r = relay(keeper, number, hearing);
    if (r < 0)
        take_from_epoll(keeper, hearing);
    return r;
}

/* Under the keeper's lock. */
static int begin(struct keeper *keeper, uint32_t number, weir_set *set)
{
    const struct member *member = set->member;
    struct hearing *hearing = sys_alloc(1, sizeof(*hearing));
    int r;

    if (!hearing)
        return -ENOMEM;
    r = hearing->fd =
        bell_open(member->segment->directory_fd, member->segment->encoded, member->key, number);
    if (r == -ENOSPC)
        r = -ENOMEM; /* as for all that calls need in a segment: a full queue is something else */
    hearing->set = set;
    if (r >= 0)
        r = announce(keeper, number, hearing);
    if (r < 0) {
        if (hearing->fd >= 0)
            bell_close(member->segment->directory_fd, hearing->fd, member->segment->encoded,
                       member->key, number);
        sys_free(hearing);
        return r;
    }
    hearing->next = atomic_load(&keeper->hearings);
    atomic_store_explicit(&keeper->hearings, hearing, memory_order_release);
    return 0;
}

int hearing_begin(struct keeper *keeper, uint32_t number, weir_set *set)
{
    int r = 0;

    if (find(keeper, set))
        return 0;
    pthread_mutex_lock(&keeper->lock);
    if (!find(keeper, set))
        r = begin(keeper, number, set);
    pthread_mutex_unlock(&keeper->lock);
    return r;
}

/* Something was done to a record of ours; what, its word says. To a free one, in an earlier life:
 * it is about to enter the set, or was taken back. Of a broken set all find out when they look. */
static void hear(weir_set *set, uint32_t kept)
{
    uint64_t word = kept_word(set->w, kept);

    if (record_state(word) == RECORD_FREE || MUTANT(325) || set_is_broken(set))
        return;
    if (record_state(word) == RECORD_WAITING)
        keeper_arm(set->w, kept, word, instance_now(set->w));
    else
        keeper_wake(set->w, kept, word);
}

static void hear_each(void *set, uint32_t record, uint32_t kept)
{
    (void)record;
    hear(set, kept);
}

static void attend(const struct hearing *hearing)
{
    weir_set *set = hearing->set;
    uint32_t records[BELL_READ_MAX], kept;
    bool overflowed = false;
    int n = bell_read(hearing->fd, records, BELL_READ_MAX, &overflowed);

    for (int i = 0; i < n; i++)
        if ((kept = member_kept(set->member, records[i])) != 0)
            hear(set, kept);
    if (overflowed)
        member_each_kept(set->member, hear_each, set);
    burial_attend(NULL, set);
}

void hearing_attend_all(struct keeper *keeper)
{
    struct hearing *hearing;

    if (!alarm_enter(&keeper->alarm))
        return;
    hearing = atomic_load_explicit(&keeper->hearings, memory_order_acquire);
    for (; hearing; hearing = hearing->next)
        attend(hearing);
    alarm_leave(&keeper->alarm);
}

/* Of a queue that could not hear but by the timekeeper, which may have ended. */
static void end_needed_relay(const struct keeper *keeper)
{
    struct keeper *own = &keeper->w->keeper;

    if (!needs_relay(keeper) || MUTANT(681))
        return;
    pthread_mutex_lock(&own->lock);
    if (alarm_is_open(&own->alarm))
        end_relay(keeper);
    pthread_mutex_unlock(&own->lock);
}

void hearing_end(struct keeper *keeper, uint32_t number)
{
    struct hearing *hearing = atomic_load(&keeper->hearings);

    end_needed_relay(keeper);
    atomic_store(&keeper->hearings, NULL);
    while (hearing) {
        const struct member *member = hearing->set->member;
        struct hearing *next = hearing->next;

        bell_close(member->segment->directory_fd, hearing->fd, member->segment->encoded,
                   member->key, number);
        sys_free(hearing);
        hearing = next;
    }
}

void hearing_close_in_child(struct keeper *keeper)
{
    struct hearing *hearing = atomic_exchange(&keeper->hearings, NULL);

    for (; hearing && !MUTANT(682); hearing = hearing->next)
        sys_close(hearing->fd);
}
