/* SPDX-License-Identifier: MIT */
/* `weir top` where ncurses was missing when this was built. */
#include "weir.h"
#include <stdio.h>

int run_top(int argc, char **argv)
{
    (void)argc;
    fprintf(stderr, "%s: built without ncurses; see `weir stat`\n", argv[0]);
    return ENDING_SYSTEM;
}
