/* SPDX-License-Identifier: MIT */
/* The commands of `weir plugin`. */
#ifndef WEIR_TOOLS_PLUGIN_H
#define WEIR_TOOLS_PLUGIN_H

/* Each parses its own part of the command line; argv[0] is its title. Returns an exit code. */
int run_plugin_check(int argc, char **argv);
int run_plugin_new(int argc, char **argv);

#endif
