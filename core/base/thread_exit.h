/* SPDX-License-Identifier: MIT */
/* Whether a thread of the program still lives: said by the end of the thread itself. */
#ifndef WEIR_CORE_BASE_THREAD_EXIT_H
#define WEIR_CORE_BASE_THREAD_EXIT_H

#include <stdbool.h>

struct life;

/* That of the calling thread, or NULL: out of memory. Goes back with life_drop, in any thread. */
struct life *life_hold(void);
void life_drop(struct life *life); /* NULL is fine */

/* True from the moment when the thread's own code is over. */
bool life_is_over(const struct life *life);

#endif
