/* SPDX-License-Identifier: MIT */
/*
 * The short way (at_once.h) of a private set whose state is in a box: of several limits, or of one
 * that does not fit its word. Each is 0 or what the call comes to, or -EINPROGRESS: nothing has
 * happened, and the long way says what is to happen.
 */
#ifndef WEIR_CORE_AT_ONCE_BOXED_H
#define WEIR_CORE_AT_ONCE_BOXED_H

#include "acquisition.h"

/* Who is refused is told the long way. */
int boxed_take(weir_set *set, const struct weir_request *request);
/* The same, or waits. */
int boxed_acquire(weir_set *set, const struct weir_request *request, enum entry entry,
                  weir_acquisition **ret);
int boxed_release(weir_acquisition *acquisition);

#endif
