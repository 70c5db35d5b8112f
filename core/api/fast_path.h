/* SPDX-License-Identifier: MIT */
/*
 * What most calls come to: a set whose state is its word while nobody is in line, or a short version
 * (try_now.h); a request with nothing peculiar about it; a thread that has been there before. For these,
 * what acquire_op.h, inline_state.h and acquisition.c do for all is done here in a row, by the same rules.
 *
 * All that is out of the ordinary is looked for before anything is changed. Then nothing has
 * happened, and the long way (acquire.h) says what is to happen, or what is wrong.
 *
 * An acquisition that came and went like that stays *ready* in its thread's cache, with its record,
 * which is FREE and says already all that does not change from one to the next: whose it is and how
 * it waits. `set` is NULL of those in the cache that are not.
 *
 * Of a set that processes share it is as much: the record is in the segment, and whoever recovers the
 * actor finds there what he needs. It was entered by this actor the first time, in the life that the
 * actor still has; so what says whose it is, and which set the actor works on, is as it was. The amount,
 * the thread and the instants are written before the set changes, the word of the record after (detectable_cas.h), or
 * with it. What others may have written instead is theirs at any moment, and is checked where
 * something is decided by it.
 */
#ifndef WEIR_CORE_API_FAST_PATH_H
#define WEIR_CORE_API_FAST_PATH_H

#include "api/acquisition.h"

/* Whether a set is *plain*: its state its word, or of few words in a box (try_now.h). A pool of one set
 * knows it. */
bool fast_path_supports(const weir_set *set);

/* The actor has filled the acquisition's record, and it was granted at once: it can go back so. */
void fast_path_enable(struct thread_ctx *ctx, weir_acquisition *acquisition);
/* The same, but it was refused at once. False: it cannot be ready for another time. */
bool fast_path_cache_put(struct thread_ctx *ctx, weir_acquisition *acquisition);

#endif
