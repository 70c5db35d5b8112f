/* SPDX-License-Identifier: MIT */
/* `weir serve` where libmicrohttpd was missing when this was built. */
#include "usage.h"
#include "weir.h"
#include <stdio.h>
#include <string.h>

static const char help[] =
    "Usage: weir serve\n\nNot in this build, which is without libmicrohttpd.\n";

int run_serve(int argc, char **argv)
{
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return usage_help(help);
    fprintf(stderr, "%s: built without libmicrohttpd; see `weir stat --openmetrics`\n", argv[0]);
    return ENDING_SYSTEM;
}
