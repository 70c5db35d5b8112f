/* SPDX-License-Identifier: MIT */
/* The terminal that `weir top` draws on. */
#ifndef WEIR_TOOLS_TERMINAL_H
#define WEIR_TOOLS_TERMINAL_H

#include <stdbool.h>

/* Returns whether ncurses can draw on the standard output (TERM). */
bool terminal_is_known(void);

#endif
