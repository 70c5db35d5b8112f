/* SPDX-License-Identifier: MIT */
/* Messages about wrong command lines, and help. */
#ifndef WEIR_TOOLS_USAGE_H
#define WEIR_TOOLS_USAGE_H

/* `command` is argv[0], as "weir check". Both functions write to the standard error and return
 * ENDING_USAGE. */
int usage_wrong(const char *command, const char *what, const char *which);
int usage_hint(const char *command); /* after getopt has reported what is wrong */

/* Writes a help text to the standard output. Returns ENDING_FINE. */
int usage_help(const char *text);

#endif
