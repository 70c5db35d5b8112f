/* SPDX-License-Identifier: MIT */
/* `weir top` where ncurses was missing when this was built. */
#include "usage.h"
#include "weir.h"
#include <stdio.h>
#include <string.h>

static const char help[] = "Usage: weir top\n\nNot in this build, which is without ncurses.\n";

int run_top(int argc, char **argv)
{
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return usage_help(help);
    fprintf(stderr, "%s: built without ncurses; see `weir stat`\n", argv[0]);
    return ENDING_SYSTEM;
}
