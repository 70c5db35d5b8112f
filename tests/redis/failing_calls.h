/* SPDX-License-Identifier: MIT */
/*
 * Calls of the plugin that can fail: memory, the system, hiredis. The linker has them go through
 * here (-Wl,--wrap). A place is a call in the program, and a way in which it may come out. Each
 * place that is met is noted, and one of them at a time fails, once: in the threads that say so.
 */
#ifndef WEIR_TESTS_FAILING_CALLS_H
#define WEIR_TESTS_FAILING_CALLS_H

#include <stddef.h>
#include <stdint.h>

/* From now on calls of this thread are noted and may fail. */
void failing_calls_begin(void);
void failing_calls_end(void);

/* Has a place fail, once, after it was met so many times; SIZE_MAX: none. */
void failing_calls_choose(size_t place, unsigned after);
/* Whether it has. */
int failing_calls_has_failed(void);
/* How many places were met so far. */
size_t failing_places(void);
const char *failing_place_name(size_t place);

/* Returns how a call of the host for a thread comes out: 0, or a code. */
int __wrap_work(void);

/* What was obtained by calls that go through here, and not given back: blocks, descriptors, readers
 * and lists of addresses. */
int64_t failing_calls_live(void);

#endif
