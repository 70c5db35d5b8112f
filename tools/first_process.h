/* SPDX-License-Identifier: MIT */
/*
 * `weir exec` as the first process of a pid namespace, as in a container. When that one ends, the
 * kernel kills all others at once, so a holder in the background could not give back what it holds.
 * Here the first process holds, and the command is its child.
 */
#ifndef WEIR_TOOLS_FIRST_PROCESS_H
#define WEIR_TOOLS_FIRST_PROCESS_H

#include "grant.h"
#include <signal.h>

/*
 * Runs the command with what an engine has granted. Passes signals on to it, and waits until it has
 * ended; other children are reaped. `mask` is the command's signal mask. Returns its exit status,
 * 128 and the signal that has ended it, or a negative errno: it cannot be executed.
 */
int first_process_run(const struct grant *grant, char **command, const sigset_t *mask);

#endif
