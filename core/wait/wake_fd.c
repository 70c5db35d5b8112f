/* SPDX-License-Identifier: MIT */
/* Alarms: a timerfd that is rung as well, or what stands in for it. */
#include "wait/wake_fd.h"

#include "base/mutant.h"
#include "os/os.h"
#include <weir/error.h>

void alarm_init(struct alarm *alarm)
{
    uint32_t unused;

    alarm->timer_fd = alarm->event_fd = alarm->epoll_fd = -1;
    alarm->rung = alarm->stale = alarm->attended = alarm->failing = false;
    alarm->at_ns = WEIR_FOREVER;
    alarm->set_ahead_ns = 0;
    sys_timer_lead(&alarm->lead_ns, &unused);
}

void alarm_close(struct alarm *alarm)
{
    sys_close(alarm->epoll_fd);
    sys_close(alarm->event_fd);
    sys_close(alarm->timer_fd);
    alarm_init(alarm);
}

/* Whether it can be rung, which is taken back; or a negative errno. */
static int rings(int timer_fd)
{
    int r;

    if (sys_timerfd_ring(timer_fd) < 0)
        return 0;
    r = sys_timerfd_set(timer_fd, WEIR_FOREVER);
    return r < 0 ? r : 1;
}

static int open_event(struct alarm *alarm)
{
    alarm->event_fd = sys_eventfd();
    return alarm->event_fd < 0 ? alarm->event_fd : 0;
}

static int open_epoll(struct alarm *alarm)
{
    int r = alarm->epoll_fd = sys_epoll_create();

    if (r >= 0)
        r = sys_epoll_add(alarm->epoll_fd, alarm->timer_fd, 0);
    if (r >= 0 && alarm->event_fd >= 0)
        r = sys_epoll_add(alarm->epoll_fd, alarm->event_fd, 0);
    return r;
}

int alarm_open(struct alarm *alarm, bool gathers)
{
    int r;

    alarm_init(alarm);
    atomic_store(&alarm->closing, false);
    r = alarm->timer_fd = sys_timerfd();
    if (r >= 0)
        r = rings(alarm->timer_fd);
    if (r == 0) {
        gathers = true;
        r = open_event(alarm);
    }
    if (r >= 0 && gathers)
        r = open_epoll(alarm);
    if (r < 0)
        alarm_close(alarm);
    return r < 0 ? r : 0;
}

/* ---- users ---- */

bool alarm_enter(struct alarm *alarm)
{
    atomic_fetch_add(&alarm->users, 1);
    if (!atomic_load(&alarm->closing))
        return true;
    alarm_leave(alarm);
    return false;
}

void alarm_leave(struct alarm *alarm)
{
    if (atomic_fetch_sub(&alarm->users, 1) == 1 && atomic_load(&alarm->closing))
        sys_futex_wake((const uint32_t *)(uintptr_t)&alarm->users, 1);
}

void alarm_await(struct alarm *alarm)
{
    const uint32_t *futex = (const uint32_t *)(uintptr_t)&alarm->users;
    uint32_t users;

    atomic_store(&alarm->closing, true);
    while ((users = atomic_load(&alarm->users)) != 0)
        sys_futex_wait(futex, users, WEIR_FOREVER);
}

/* ---- ringing ---- */

bool alarm_claim(struct alarm *alarm)
{
    if (alarm->attended || (alarm->rung && !MUTANT(161)))
        return false;
    alarm->rung = alarm->stale = true;
    atomic_fetch_add(&alarm->users, 1);
    return true;
}

int alarm_sound(const struct alarm *alarm)
{
    return alarm->event_fd >= 0 ? sys_signal_fd(alarm->event_fd)
                                : sys_timerfd_ring(alarm->timer_fd);
}

/* What could be rung when it was opened can no longer be: a sandbox has closed in, or somebody has
 * closed what is not his. An instant that has passed does as well. */
void alarm_mend(struct alarm *alarm)
{
    alarm->rung = false;
    alarm->at_ns = 0;
    sys_timerfd_set(alarm->timer_fd, 0);
}

void alarm_ring(struct alarm *alarm)
{
    if (!alarm_claim(alarm))
        return;
    if (alarm_sound(alarm) < 0)
        alarm_mend(alarm);
    alarm_leave(alarm);
}

/* Whether a ring was claimed and may be yet to sound. To be asked before it is silenced: what has
 * sounded by then is not heard afterwards. */
static bool is_late(const struct alarm *alarm)
{
    return atomic_load(&alarm->users) != 0 && !MUTANT(542);
}

static void silenced(struct alarm *alarm, bool late)
{
    alarm->rung = false;
    alarm->stale = late;
}

/* A read takes back that the instant has come as well. Unless it is still to come afterwards, it is
 * set again. */
static void look_at_instant(struct alarm *alarm)
{
    uint64_t now_ns;

    if (alarm->event_fd >= 0 || alarm->at_ns == WEIR_FOREVER || MUTANT(543))
        return;
    now_ns = sys_now_ns();
    if (now_ns >= alarm->at_ns || alarm_is_ahead(alarm, now_ns))
        alarm_set(alarm, alarm->at_ns);
}

void alarm_silence(struct alarm *alarm)
{
    bool late = is_late(alarm);

    alarm->rung = false;
    if (!alarm->stale)
        return;
    if (sys_drain_fd(alarm->event_fd >= 0 ? alarm->event_fd : alarm->timer_fd) >= 0 ||
        MUTANT(133)) {
        silenced(alarm, late);
        look_at_instant(alarm);
    }
}

void alarm_ring_again(struct alarm *alarm)
{
    if (!MUTANT(160))
        alarm_silence(alarm);
    alarm_ring(alarm);
}

/* ---- the instant ---- */

void alarm_set(struct alarm *alarm, uint64_t at_ns)
{
    bool rung = alarm->rung, late = is_late(alarm);
    uint32_t ahead_ns = at_ns != WEIR_FOREVER && at_ns > alarm->lead_ns ? alarm->lead_ns : 0;

    alarm->failing = sys_timerfd_set(alarm->timer_fd, at_ns - ahead_ns) < 0;
    alarm->at_ns = alarm->failing ? WEIR_FOREVER : at_ns;
    alarm->set_ahead_ns = ahead_ns;
    if (alarm->failing) {
        alarm_ring_again(alarm); /* whoever attends to it will try again */
    } else if (alarm->event_fd < 0) {
        silenced(alarm, late); /* setting the instant has done that, too */
        if (rung && !MUTANT(544))
            alarm_ring(alarm);
    }
}

/* Shorter at once, for who comes before the instant has to wait for it; longer bit by bit. */
void alarm_attend(struct alarm *alarm, uint64_t now_ns)
{
    uint64_t expired_ns = alarm->at_ns - alarm->set_ahead_ns, took_ns;
    uint32_t least_ns, most_ns;

    if (alarm->at_ns == WEIR_FOREVER || now_ns < expired_ns || MUTANT(547))
        return;
    sys_timer_lead(&least_ns, &most_ns);
    took_ns = now_ns - expired_ns;
    if (took_ns > most_ns)
        took_ns = most_ns;
    if (took_ns < least_ns)
        took_ns = least_ns;
    if (took_ns < alarm->lead_ns)
        alarm->lead_ns = (uint32_t)took_ns;
    else
        alarm->lead_ns += (uint32_t)(took_ns - alarm->lead_ns + 15) / 16;
}
