/* SPDX-License-Identifier: MIT */
/*
 * `weir exec`: waits for limits of shared sets, then becomes the command. The process itself is the
 * holder, so whatever ends the command releases what it holds.
 *
 * A set that an engine keeps needs a process that stays: one in the background waits and holds, and
 * ends with the command, which it knows by a pidfd. In a container that would be too late, if the
 * command is the first process there: so that one holds, and the command is its child.
 */
#include "engine_grant.h"
#include "first_process.h"
#include "grant.h"
#include "holder.h"
#include "usage.h"
#include "weir.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
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

static int report_exec(const struct grant *grant, const char *command, int error)
{
    fprintf(stderr, "%s: %s: %s\n", grant->title, command, strerror(error));
    return error == ENOENT ? EXEC_NOT_FOUND : EXEC_CANNOT_RUN;
}

/* Becomes the command. The acquisition outlives the instance, and the process goes on. */
static int exec_command(struct grant *grant, char **command)
{
    int error;

    grant_detach(grant);
    fflush(stderr);
    execvp(command[0], command);
    error = errno;
    grant_return(grant);
    return report_exec(grant, command[0], error);
}

/* ---- a set that an engine keeps ---- */

/* Holds until the command ends. Signals for the group of the command, as at the end of a service,
 * are no reason: the command may take its time. Then nothing keeps the command's standard error
 * open. */
__attribute__((noreturn)) static void hold_for_command(struct grant *grant, int unused)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    char byte;

    grant->ends.signals = -1;
    if (read(unused, &byte, 1) == 1) { /* else it is closed by the execution, or by the end */
        grant_return(grant);
        engine_grant_end(grant, EXEC_FAILED);
    }
    if (engine_grant_hold(grant) == -EOWNERDEAD)
        engine_grant_report_loss(grant);
    dup2(null, STDERR_FILENO);
    engine_grant_end(grant, EXEC_FAILED);
}

__attribute__((noreturn)) static void run_holder(struct grant *grant, struct holder *holder,
                                                 int unused)
{
    int kept[] = {holder->report[1], holder->starter, unused};
    int r = holder_close_others(kept, sizeof(kept) / sizeof(kept[0])), result;

    signal(SIGPIPE, SIG_IGN);
    grant->ends.process = holder->starter;
    if (r == 0)
        r = engine_grant_begin(grant);
    result = r < 0 ? grant_fail(grant, r) : grant_open(grant);
    if (result == 0)
        result = grant_request(grant);
    fflush(stdout);
    if (result == 0 && (r = holder_leave(STDIN_FILENO, STDOUT_FILENO)) < 0) {
        grant_return(grant);
        result = grant_fail(grant, r);
    }
    if (result != GRANT_ENDED)
        result = holder_report(holder, result);
    if (result == 0)
        hold_for_command(grant, unused);
    engine_grant_end(grant, EXEC_FAILED);
}

/* Has the holder wait, and becomes the command. */
static int exec_with_holder(struct grant *grant, char **command)
{
    struct holder holder;
    int unused[2], r = holder_begin(&holder), result;
    pid_t pid = 0;

    grant_detach(grant); /* a child cannot use it */
    amounts_forget(&grant->amounts);
    if (r == 0 && pipe2(unused, O_CLOEXEC) < 0)
        r = -errno;
    if (r == 0)
        r = (pid = holder_fork_apart(&holder)) < 0 ? (int)pid : 0;
    if (r < 0)
        return grant_fail(grant, r);
    if (pid == 0) {
        close(unused[1]);
        run_holder(grant, &holder, unused[0]);
    }
    result = holder_read_report(&holder, pid);
    if (result != 0) {
        if (result < 0)
            fprintf(stderr, "%s: the process that holds has ended\n", grant->title);
        return result < 0 ? EXEC_FAILED : result;
    }
    fflush(stderr);
    execvp(command[0], command);
    r = errno;
    signal(SIGPIPE, SIG_IGN);
    if (write(unused[1], "u", 1) != 1)
        fprintf(stderr, "%s: the process that holds has ended\n", grant->title);
    return report_exec(grant, command[0], r);
}

/* Waits, and holds while the command runs as a child. */
static int exec_as_first(struct grant *grant, char **command)
{
    sigset_t mask;
    int r, result;

    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    r = engine_grant_begin(grant);
    result = r < 0 ? grant_fail(grant, r) : grant_request(grant);
    fflush(stdout);
    if (result == GRANT_ENDED)
        engine_grant_end(grant, EXEC_FAILED);
    if (result != 0)
        return result;
    r = first_process_run(grant, command, &mask);
    if (r < 0) {
        grant_return(grant);
        return report_exec(grant, command[0], -r);
    }
    close(grant->ends.signals);
    grant->ends.signals = -1; /* what came was for the command */
    engine_grant_end(grant, r);
}

/* ---- command line ---- */

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
    result = grant_open(grant);
    if (result == 0 && grant->of_engine)
        return getpid() == 1 ? exec_as_first(grant, argv + optind)
                             : exec_with_holder(grant, argv + optind);
    if (result == 0)
        result = grant_request(grant);
    return result == 0 ? exec_command(grant, argv + optind) : result;
}

int run_exec(int argc, char **argv)
{
    struct grant grant = GRANT_NONE(argv[0]);
    int ending = grant_exit_code(&grant, run_options(&grant, argc, argv));

    grant_free(&grant);
    return ending;
}
