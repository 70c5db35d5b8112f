/* SPDX-License-Identifier: MIT */
/* The `weir` command: what its parts share. */
#ifndef WEIR_TOOLS_WEIR_H
#define WEIR_TOOLS_WEIR_H

#include <stdbool.h>

/* How the command ends. Part of its interface: see weir(1). */
enum ending {
    ENDING_FINE = 0,
    ENDING_COMPLAINTS = 1, /* the file is wrong, or a plugin file is refused */
    ENDING_USAGE = 2,      /* the command line is wrong */
    ENDING_SYSTEM = 3      /* something cannot be read, written or had */
};

#define DIRS_MAX 64

/* What the command line says. */
struct arguments {
    bool json;
    const char *config;             /* plugins: a configuration file, or NULL */
    const char *file;               /* check: the file, or "-" */
    const char *dirs[DIRS_MAX + 1]; /* plugin directories, NULL-terminated */
    int dirs_n;
};

enum ending run_check(const struct arguments *arguments);
enum ending run_plugins(const struct arguments *arguments);

#endif
