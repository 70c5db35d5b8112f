/* SPDX-License-Identifier: MIT */
/*
 * Acquisitions of shared sets that wait with a direct doorbell (shm/direct_doorbell.h). The end of
 * it that is read is the acquisition's descriptor, a file of its own: closing it takes it out of an
 * epoll. No thread of this process runs between another one's grant and the waiter.
 *
 * A doorbell is free again when the descriptor is closed and no granter may ring it. What prevents
 * a direct wait is no error: then the descriptor is an eventfd, which the wait timer signals.
 *
 * All of these are called with the lock of the instance's wait timer.
 */
#ifndef WEIR_CORE_WAIT_DIRECT_WAIT_H
#define WEIR_CORE_WAIT_DIRECT_WAIT_H

#include <stdbool.h>
#include <weir/weir.h>

struct instance_wait;

/* Direct doorbells of an instance, at most. */
#define DIRECT_WAITS_MAX 16u

/* Returns a descriptor for an acquisition that waits, or -1 if that has to be an eventfd. */
int direct_wait_begin(weir_acquisition *acquisition);
/* Returns whether the descriptor has been signaled. */
bool direct_wait_is_signaled(const weir_acquisition *acquisition);
/* Signals the descriptor of a decided acquisition, unless that was done. From then on its record
 * has no direct doorbell. Returns 0 or a negative errno. */
int direct_wait_signal(weir_acquisition *acquisition);
/* Notes that the descriptor of a decided acquisition is signaled, if it is. While it waits, makes
 * its descriptor unreadable: any program of the user can ring. */
void direct_wait_check(weir_acquisition *acquisition);
/* The descriptor was closed. */
void direct_wait_end(weir_acquisition *acquisition);

/* Free all, when no acquisition waits; or a forked child's copies of the descriptors. */
void direct_waits_close(struct instance_wait *iw);
void direct_waits_close_in_child(struct instance_wait *iw);

#endif
