/* SPDX-License-Identifier: MIT */
/* The `weir` command: what its parts share. */
#ifndef WEIR_TOOLS_WEIR_H
#define WEIR_TOOLS_WEIR_H

/* How the command ends. Part of its interface: see weir(1). `weir exec` has codes of its own. */
enum ending {
    ENDING_FINE = 0,
    ENDING_COMPLAINTS = 1, /* something that was looked at is wrong, or refused */
    ENDING_USAGE = 2,      /* the command line is wrong */
    ENDING_SYSTEM = 3      /* something cannot be read, written or had */
};

/* How `weir exec` ends where weir itself fails, wrong usage included. */
#define EXEC_FAILED 125

/* Each reads its own part of the command line; argv[0] is the name of the part. */
int run_check(int argc, char **argv);
int run_exec(int argc, char **argv);
int run_ls(int argc, char **argv);
int run_plugins(int argc, char **argv);
int run_rm(int argc, char **argv);
int run_stat(int argc, char **argv);
int run_top(int argc, char **argv);

#endif
