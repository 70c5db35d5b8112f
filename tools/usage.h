/* SPDX-License-Identifier: MIT */
/* Command lines: what is wrong with one, and where the help is. */
#ifndef WEIR_TOOLS_USAGE_H
#define WEIR_TOOLS_USAGE_H

/* `command` is argv[0], as "weir check". Both write to the standard error; return ENDING_USAGE. */
int usage_wrong(const char *command, const char *what, const char *which);
int usage_hint(const char *command); /* for when getopt has said what is wrong */

/* Writes it to the standard output. Returns ENDING_FINE. */
int usage_help(const char *text);

#endif
