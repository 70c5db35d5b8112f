/* SPDX-License-Identifier: MIT */
/* The terminal that `weir top` draws on. */
#ifndef WEIR_TOOLS_TERMINAL_H
#define WEIR_TOOLS_TERMINAL_H

#include <stdbool.h>

/* Whether the standard output is one that ncurses can draw on (TERM). */
bool terminal_is_known(void);

#endif
