/* SPDX-License-Identifier: MIT */
/*
 * The timekeeper: the thread that moves an instance's own keeper, for acquisitions that are waited
 * for by a descriptor. Started when the first of them pends. With an injected clock there is none.
 */
#ifndef WEIR_CORE_TIMEKEEPER_H
#define WEIR_CORE_TIMEKEEPER_H

#include <stdint.h>
#include <weir/clock.h>

/*
 * Makes room for one more acquisition and starts the thread if there is none. Returns 0, -ENOMEM,
 * -ESHUTDOWN or what the kernel said. timekeeper_forget() takes the room back, and the record out.
 */
int timekeeper_expect(weir *w);
void timekeeper_forget(weir *w, uint32_t record);

/* Ends the thread. No acquisition pends any more. */
void timekeeper_stop(weir *w);

#endif
