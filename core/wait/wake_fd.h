/* SPDX-License-Identifier: MIT */
/*
 * An alarm: a descriptor that becomes readable at an instant, and when it is rung, which any thread
 * may do, until whoever it is for silences it.
 *
 * Where the kernel lets others make a timerfd readable (TFD_IOC_SET_TICKS, which kernels have that
 * can checkpoint processes: those of the distributions do), that is all: one timerfd, and who is
 * woken by it waits for no epoll behind his own. Elsewhere an eventfd is rung. There, and if the
 * descriptor is to gather others as well, it is an epoll over what there is.
 *
 * Everything is under the lock of whom the alarm belongs to, but where it says without.
 */
#ifndef WEIR_CORE_WAIT_WAKE_FD_H
#define WEIR_CORE_WAIT_WAKE_FD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* First what whoever rings writes and whoever is woken reads. */
struct alarm {
    int timer_fd;
    int event_fd;           /* what is rung; -1: the timerfd */
    _Atomic uint32_t users; /* without the lock: rings under way, and others; a futex */
    bool rung;              /* since it was silenced: it is readable, or is about to be */
    bool stale;             /* it may be readable because of a ring, even if silenced */
    bool attended;          /* somebody is about to look for himself: it need not be rung */
    bool failing;           /* the instant could not be set */
    uint64_t at_ns;         /* the instant; WEIR_FOREVER: none */
    int epoll_fd;           /* over these and others; -1: there is no need */
    uint32_t set_ahead_ns;  /* so much before at_ns the timer was set */
    uint32_t lead_ns;       /* and is to be set the next time */
    _Atomic bool closing;   /* somebody waits for the last user */
};

/* No descriptors yet. */
void alarm_init(struct alarm *alarm);

/* `gathers`: others are to be added to alarm_fd. Returns 0 or a negative errno. */
int alarm_open(struct alarm *alarm, bool gathers);
void alarm_close(struct alarm *alarm);

static inline bool alarm_is_open(const struct alarm *alarm)
{
    return alarm->timer_fd >= 0;
}

/* What to wait for. */
static inline int alarm_fd(const struct alarm *alarm)
{
    return alarm->epoll_fd >= 0 ? alarm->epoll_fd : alarm->timer_fd;
}

/* Rings it, unless it was. */
void alarm_ring(struct alarm *alarm);

/*
 * The same in two steps, so that who is woken does not meet the lock. alarm_claim: whether there is
 * anything to be done, and then whoever claimed is a user. alarm_sound, without the lock: the system
 * call; if it fails, alarm_mend, under the lock again. Then alarm_leave.
 */
bool alarm_claim(struct alarm *alarm);
int alarm_sound(const struct alarm *alarm);
void alarm_mend(struct alarm *alarm);

/*
 * Without the lock: users, who use what goes when the alarm is closed. alarm_enter: false, and no
 * user, if that is about to be. alarm_await: there is none any more, nor will there be.
 */
bool alarm_enter(struct alarm *alarm);
void alarm_leave(struct alarm *alarm);
void alarm_await(struct alarm *alarm);

/* A ring that was claimed may sound only now: then it is heard the next time. */
void alarm_silence(struct alarm *alarm);

/* Also wakes an edge-triggered loop to which it was readable before. */
void alarm_ring_again(struct alarm *alarm);

/*
 * Sets the instant; that an earlier one has come is taken back. If it cannot be set it is none, and
 * rings. The descriptor becomes readable a moment before, by as much as it has lately taken at least
 * to wake up: 2 to 8 us.
 */
void alarm_set(struct alarm *alarm, uint64_t at_ns);

/* By then somebody runs whom it may have woken. */
void alarm_attend(struct alarm *alarm, uint64_t now_ns);

/* Whether its instant stands for a ring that failed, as far as it can be told. */
static inline bool alarm_was_mended(const struct alarm *alarm)
{
    return alarm->at_ns == 0;
}

/* Whether the instant is to come, but the descriptor may be readable for it. */
static inline bool alarm_is_ahead(const struct alarm *alarm, uint64_t now_ns)
{
    return now_ns < alarm->at_ns && alarm->at_ns - now_ns <= alarm->set_ahead_ns;
}

#endif
