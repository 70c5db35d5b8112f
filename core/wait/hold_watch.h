/* SPDX-License-Identifier: MIT */
/* Watches for acquisitions that are held too long (set/max_hold.h), in sets with such limits. */
#ifndef WEIR_CORE_WAIT_HOLD_WATCH_H
#define WEIR_CORE_WAIT_HOLD_WATCH_H

#include "set/set.h"

/* Makes sure that looks take place: starts the timer thread, unless the clock is injected. Call
 * before a request may be granted in the set. Returns 0 or a negative errno. Any thread. */
int hold_watch_begin(const weir_set *set);
/* Makes sure that a look takes place before what was just granted, has just begun to wait, or was
 * refused because of others, is held too long. Any thread, without locks. */
void hold_watch_note(const weir_set *set);
/* The same for the record of what is left of an acquisition, as long as that is held. */
void hold_watch_note_rest(const weir_set *set, uint32_t record);
/* Has a look take place now: definitions have changed. */
void hold_watch_look_now(weir *w);
/* Looks, if that is due, and schedules the next look. Returns how many waiters were decided. Call
 * without locks. */
int hold_watch_run(weir *w);

/* As set_ops.watch_loss: a record is lost when it is revoked. Any thread. */
int hold_watch_loss(const weir_set *set, uint32_t record, int fd);
/* Watches the record `to`, which is HELD, in place of `from`. */
void hold_watch_move_loss(const weir_set *set, uint32_t from, uint32_t to);

#endif
