/* SPDX-License-Identifier: MIT */
/*
 * A process in the background that acquires, and holds what it was granted, for the process that
 * has started it:
 *
 *   starter    holder_begin ── holder_read_report ─► it has the grant: exits, or executes a command
 *   holder     waits ────────── holder_report ─────► stays
 *
 * The starter passes the signals on that would end it while it waits.
 */
#ifndef WEIR_TOOLS_HOLDER_H
#define WEIR_TOOLS_HOLDER_H

#include "grant.h"
#include <sys/types.h>

struct holder {
    int report[2]; /* a pipe: the result of waiting, an int */
    int starter;   /* descriptor of the process that has started the holder */
};

/* Prepares to fork the holder. Returns 0 or a negative errno. */
int holder_begin(struct holder *holder);

/* Forks the holder as a process of init: whatever the starter becomes has no child that it does not
 * know. Returns 0 in the holder, its process id in the starter, or a negative errno. */
pid_t holder_fork_apart(struct holder *holder);

/* ---- in the process that has started the holder ---- */

/* Waits for the report of the holder. Ends the process by the signal that has ended the holder.
 * Returns the result; -1: the holder has ended without one. */
int holder_read_report(struct holder *holder, pid_t pid);

/* ---- in the holder ---- */

/* Closes what was inherited besides the standard streams and these `n` descriptors. Returns 0 or a
 * negative errno. */
int holder_close_others(int *kept, size_t n);

/* Leaves the terminal, the directory and the standard streams from `first` to `last`, so that it is
 * in nothing's way. Returns 0 or a negative errno. */
int holder_leave(int first, int last);

/* Reports the result. Returns it, or EXEC_FAILED if it cannot be written. */
int holder_report(struct holder *holder, int result);

#endif
