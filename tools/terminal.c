/* SPDX-License-Identifier: MIT */
/* The terminal. Not in top.c: term.h defines macros `lines`, `columns` and many other words. */
#include "terminal.h"
#include <unistd.h>

#include <curses.h>

#include <term.h>

bool terminal_is_known(void)
{
    int error;

    if (setupterm(NULL, STDOUT_FILENO, &error) != OK)
        return false;
    del_curterm(cur_term);
    return true;
}
