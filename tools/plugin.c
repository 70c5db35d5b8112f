/* SPDX-License-Identifier: MIT */
/* `weir plugin`: dispatches to its commands, for those that write plugins. */
#include "plugin.h"
#include "usage.h"
#include "weir.h"
#include <stdio.h>
#include <string.h>

static const char help[] =
    "Usage: weir plugin COMMAND [OPTION]... [ARGUMENT]...\n"
    "\n"
    "  weir plugin new      write a new plugin, with its tests, to begin with\n"
    "  weir plugin check    test plugin files\n"
    "\n"
    "`weir plugin COMMAND --help` shows the options of a command.\n";

int run_plugin(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[] = {{"check", run_plugin_check}, {"new", run_plugin_new}};
    char title[32];

    if (argc < 2)
        return usage_wrong(argv[0], "no command is given: new or check", "");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return usage_help(help);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        snprintf(title, sizeof(title), "%s %s", argv[0], commands[i].name);
        argv[1] = title; /* getopt's messages begin with it, too */
        return commands[i].run(argc - 1, argv + 1);
    }
    return usage_wrong(argv[0], argv[1][0] == '-' ? "unknown option " : "unknown command ",
                       argv[1]);
}
