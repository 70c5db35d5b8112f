/* SPDX-License-Identifier: MIT */
/* Messages about wrong command lines, and help. */
#include "usage.h"
#include "weir.h"
#include <stdio.h>

int usage_hint(const char *command)
{
    fprintf(stderr, "Try `%s --help`.\n", command);
    return ENDING_USAGE;
}

int usage_wrong(const char *command, const char *what, const char *which)
{
    fprintf(stderr, "%s: %s%s\n", command, what, which);
    return usage_hint(command);
}

int usage_help(const char *text)
{
    fputs(text, stdout);
    return ENDING_FINE;
}
