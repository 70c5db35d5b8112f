/* SPDX-License-Identifier: MIT */
/* `weir exec`: waits for limits of shared sets, then becomes the command. The process itself is the
 * holder, so whatever ends the command releases what it holds. */
#include "grant.h"
#include "usage.h"
#include "weir.h"
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Exit codes if the command does not run; otherwise the code is the command's. See weir(1). Those
 * of a grant are in grant.h. */
enum {
    /* EXEC_FAILED is 125 */
    EXEC_CANNOT_RUN = 126,
    EXEC_NOT_FOUND = 127
};

static const char help_begin[] =
    "Usage:\n"
    "  weir exec [OPTION]... [-f FILE] -s NAME [--] COMMAND [ARGUMENT]...\n"
    "  weir exec [OPTION]... --limit LIMIT... --name NAME [--] COMMAND [ARGUMENT]...\n"
    "\n"
    "Waits until the set NAME grants 1 of each of its limits, then becomes COMMAND, which holds "
    "them\n"
    "until it ends, however it ends.\n"
    "\n";
static const char help_end[] =
    "\n"
    "Exit status: that of COMMAND; 123 refused, 124 timed out, 125 weir itself failed,\n"
    "126 COMMAND cannot be run, 127 COMMAND is not found.\n";

/* Becomes the command. The acquisition outlives the instance, and the process goes on. */
static int exec_command(struct grant *grant, char **command)
{
    int error;

    grant_detach(grant);
    fflush(stderr);
    execvp(command[0], command);
    error = errno;
    grant_return(grant);
    fprintf(stderr, "%s: %s: %s\n", grant->title, command[0], strerror(error));
    return error == ENOENT ? EXEC_NOT_FOUND : EXEC_CANNOT_RUN;
}

static int show_help(void)
{
    usage_help(help_begin);
    usage_help(grant_help);
    return usage_help(help_end);
}

/* Returns the exit code, before `--exit-code` has its say. */
static int run_options(struct grant *grant, int argc, char **argv)
{
    static const struct option options[] = {
        GRANT_OPTIONS,
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option, result;

    while ((option = getopt_long(argc, argv, "+h" GRANT_LETTERS, options, NULL)) != -1) {
        if (option == 'h')
            return show_help();
        result = grant_option(grant, option, optarg);
        if (result != 0)
            return result;
    }
    result = grant_check_options(grant);
    if (result != 0)
        return result;
    if (optind == argc)
        return grant_fail_usage(grant, "no command is given", "");
    result = grant_wait(grant);
    return result == 0 ? exec_command(grant, argv + optind) : result;
}

int run_exec(int argc, char **argv)
{
    struct grant grant = {.title = argv[0]};
    int ending = grant_exit_code(&grant, run_options(&grant, argc, argv));

    grant_free(&grant);
    return ending;
}
