/* SPDX-License-Identifier: MIT */
/*
 * Static probes (USDT): places where a tool (bpftrace, SystemTap, perf, gdb) looks at the library
 * while it runs. One for each type of event, with the provider `weir`.
 *
 * A tool that attaches adds to the semaphore of a probe. All have one word for it, so that the fast
 * path asks once, with one comparison in memory; then calls take the slow path, where events.c
 * passes the probes. A probe by itself is a nop.
 *
 * All have the same arguments; those that scripts want most come first, as bpftrace has six:
 *   arg0  name of the set, text
 *   arg1  id of the acquisition (struct weir_event); 0: none
 *   arg2  a number, as each probe says; else 0
 *   arg3  key of the limit that refused or lets it wait, text; empty: none is known
 *   arg4  amounts, one uint64_t for each limit
 *   arg5  hash of the subject; 0: none
 *   arg6  struct weir_trace: 16 bytes of trace id, 8 of parent id, 1 of flags; NULL: none
 *   arg7  number of amounts
 */
#ifndef WEIR_CORE_SET_PROBES_H
#define WEIR_CORE_SET_PROBES_H

#include <stdbool.h>
#include <weir/event.h>

#if defined WEIR_PROBES && WEIR_PROBES

#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>

/* Counts the tools that are attached to any probe. Written by them from outside. */
extern unsigned short weir_probes_semaphore __attribute__((visibility("hidden")));

/* Returns whether a tool is attached to a probe. Not volatile, so that it is one comparison in
 * memory: a call that begins meanwhile may miss it. */
static inline bool probes_are_on(void)
{
    return weir_probes_semaphore != 0;
}

#define PROBE_EVENT(name, event, number)                                                           \
    STAP_PROBE8(weir, name, (event)->set, (event)->id, number, (event)->key, (event)->amounts,     \
                (event)->subject, (event)->trace, (event)->amounts_n)

#else

static inline bool probes_are_on(void)
{
    return false;
}

#define PROBE_EVENT(name, event, number) ((void)(event))

#endif

/* A call asks a set. */
#define PROBE_REQUEST(event) PROBE_EVENT(request, event, 0)
/* A grant. arg2: how long it waited, ns. */
#define PROBE_GRANT(event) PROBE_EVENT(grant, event, (event)->wait_ns)
/* An end without a grant. arg2: result, a negative errno. */
#define PROBE_REFUSAL(event) PROBE_EVENT(refusal, event, (int64_t)(event)->result)
/* A request has entered the wait queue. */
#define PROBE_WAIT(event) PROBE_EVENT(wait, event, 0)
/* A release, before it. arg2: how long it was held, ns. */
#define PROBE_RELEASE(event) PROBE_EVENT(release, event, (event)->hold_ns)
/* A timeout. arg2: how long it waited, ns. */
#define PROBE_TIMEOUT(event) PROBE_EVENT(timeout, event, (event)->wait_ns)
/* A canceled wait, or a grant that is undone. arg2: how long it waited, ns. */
#define PROBE_CANCEL(event) PROBE_EVENT(cancel, event, (event)->wait_ns)
/* An acquisition that is held too long. arg2: how long it was held, ns. */
#define PROBE_OVERHELD(event) PROBE_EVENT(overheld, event, (event)->hold_ns)

#endif
