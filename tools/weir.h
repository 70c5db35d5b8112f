/* SPDX-License-Identifier: MIT */
/* The `weir` command: the interface of its subcommands. */
#ifndef WEIR_TOOLS_WEIR_H
#define WEIR_TOOLS_WEIR_H

/* Exit codes. Part of the interface: see weir(1). `weir exec` has codes of its own. */
enum ending {
    ENDING_FINE = 0,
    ENDING_COMPLAINTS = 1, /* something inspected is wrong or refused */
    ENDING_USAGE = 2,      /* the command line is wrong */
    ENDING_SYSTEM = 3      /* something cannot be read, written or obtained */
};

/* Exit code of `weir exec` and `weir hold` if weir itself fails, wrong usage included. */
#define EXEC_FAILED 125

/* Subcommands. Each parses its own part of the command line; argv[0] is its title. */
int run_apply(int argc, char **argv);
int run_check(int argc, char **argv);
int run_exec(int argc, char **argv);
int run_hold(int argc, char **argv);
int run_ls(int argc, char **argv);
int run_plugin(int argc, char **argv);
int run_plugins(int argc, char **argv);
int run_rm(int argc, char **argv);
int run_set(int argc, char **argv);
int run_serve(int argc, char **argv);
int run_simulate(int argc, char **argv);
int run_stat(int argc, char **argv);
int run_top(int argc, char **argv);
int run_why(int argc, char **argv);

#endif
