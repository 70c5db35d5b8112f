/* SPDX-License-Identifier: MIT */
/*
 * What transactions on sets ask of the layers above: functions that are declared here and defined
 * there. The linker resolves them, so that a call costs what it would cost without layers.
 */
#ifndef WEIR_CORE_SET_HOOKS_H
#define WEIR_CORE_SET_HOOKS_H

#include "set/set.h"

struct txn;
struct thread_ctx;

/* ---- api/instance_open.c ---- */

/* Gives back `n` references; frees the instance with the last one. No locks are held. */
void instance_unref(weir *w, uint64_t n);

/* ---- api/follow.c ---- */

/* Makes the successor of a shared set that has moved, from the next definition in its segment.
 * Returns 0, also if there is one; -EUCLEAN, after the set was marked broken since the definition
 * is damaged, or its plugins are others; or -ENOMEM, also for want of a descriptor or a file that
 * cannot be read: that may pass. With `must` any error marks the set broken. Takes the lock of the
 * instance. */
int set_follow(weir_set *set, bool must);

/* ---- wait/timer_dispatch.c ---- */

/* Tells the thread, descriptor or completion queue that waits on a waiter that its word has become
 * `word`. Notifying twice, or late, is harmless. */
void timer_notify(weir *w, uint32_t waiter, uint64_t word);
/* The timer rechecks the head of the wait queue at `at_ns`, or earlier if that was scheduled, as
 * long as its word is `word`. */
void timer_arm_recheck(weir *w, uint32_t waiter, uint64_t word, uint64_t at_ns);
/* Returns when a timer of the instance has something to do next, by its clock. */
uint64_t timer_next_of_all(weir *w);

/* ---- wait/wall_watch.c ---- */

/* The head of a set was committed and scheduled by this offset of the wall clock. If the clock has
 * stepped since, the heads of all sets are looked at again. */
void wall_watch_confirm(const weir_set *set, int64_t offset_ns);

/* ---- wait/cq.c ---- */

/* Prefetches what the notification of the waiter of this record is about to write to. */
void cq_prefetch_target(const weir *w, const struct acq_record *r);

/* ---- peer/ ---- */

/* Interval of the stall checks of a process that waits; in addition, the n-th waiter of a wait
 * queue makes one after n times that. */
#define STALL_CHECK_NS UINT64_C(25000000)

/* Releases what dead processes hold in a shared set, at most once in a millisecond. Returns how
 * many were found dead; if it is not 0, the set has changed. No locks are held. */
int peer_reap_if_due(struct thread_ctx *ctx, weir_set *set, uint64_t now_ns);

/* Releases what dead processes have of a shared set, which lacks room or waits for them. Returns
 * how many were found dead; if it is not 0, the set has changed. No locks are held but that of the
 * spare context, if that is the one. */
int peer_make_room(struct thread_ctx *ctx, weir_set *set);

/* Recovers the dead thread that the context's part for a shared set was taken over from. The lock
 * of the spare context is held. Returns false if the set is broken. */
bool peer_recover_inherited(struct thread_ctx *ctx, weir_set *set);

/* ---- keyed/ ---- */

/* Returns the definition by which a version of a shared key set is to be read, with this content.
 * NULL: a later one than that of the set, or none that there is. */
const weir_set *key_set_version_definition(const weir_set *set, const uint64_t *content);
/* Gives the version of a shared key set that was read the definition of the set, if it is of an
 * earlier one. Returns whether it is to be read again. */
bool key_set_renew(const struct txn *txn);
/* Returns the key set of the same number by the latest definition that this process knows; the set
 * itself if memory is short for it. */
weir_set *key_set_newest(const weir_set *set);

/* Returns whether the version of a key set with this content is of the binding that `ctx->binding`
 * names. Then `content` says that the binding is in use. */
bool key_set_admits(const struct thread_ctx *ctx, const weir_set *set, uint64_t *content);
/* Unbinds a key set from its key if the state fits the key's word or is as good as new. A waiter or
 * a reservation prevents that. Call when a record that was entered in it is free again. */
void key_set_unbind_if_idle(struct thread_ctx *ctx, weir_set *set);
/* Makes the states of a key set, and its binding, from those of the key set before it, the last
 * instant of which was `last_ns`. Definitions between the two are gone through one by one. */
void key_set_convert(const struct thread_ctx *ctx, const weir_set *set, uint64_t *before,
                     uint64_t last_ns, uint64_t *states);

#endif
