/* SPDX-License-Identifier: MIT */
/* The `weir` command: dispatches to its subcommands. */
#include "weir.h"
#include "usage.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

static const char help[] =
    "Usage: weir COMMAND [OPTION]... [ARGUMENT]...\n"
    "\n"
    "  weir exec       run a command within limits that other processes share\n"
    "  weir hold       hold limits for the rest of a script\n"
    "  weir stat       show the state of shared and published sets, their holders and waiters\n"
    "  weir top        show the same live, with rates per second\n"
    "  weir why        say what the first waiter of such a set waits for\n"
    "  weir serve      answer Prometheus with the metrics of such sets\n"
    "  weir ls         list shared sets\n"
    "  weir rm         remove shared sets\n"
    "  weir apply      change the definitions of sets in use\n"
    "  weir set        change settings of a shared set in use\n"
    "  weir check      check a configuration and say what it means\n"
    "  weir simulate   say what a configuration would do with recorded traffic\n"
    "  weir plugins    list plugins and refused plugin files\n"
    "  weir plugin     write and test plugins\n"
    "\n"
    "  weir --version | --help\n"
    "\n"
    "`weir COMMAND --help` shows the options of a command. See weir(1).\n";

struct part {
    const char *name, *title; /* `title` is the prefix of its messages */
    int (*run)(int argc, char **argv);
    int failed; /* exit code if the output cannot be written */
};

static const struct part parts[] = {
    {"apply", "weir apply", run_apply, ENDING_SYSTEM},
    {"check", "weir check", run_check, ENDING_SYSTEM},
    {"exec", "weir exec", run_exec, EXEC_FAILED},
    {"hold", "weir hold", run_hold, EXEC_FAILED},
    {"ls", "weir ls", run_ls, ENDING_SYSTEM},
    {"plugin", "weir plugin", run_plugin, ENDING_SYSTEM},
    {"plugins", "weir plugins", run_plugins, ENDING_SYSTEM},
    {"rm", "weir rm", run_rm, ENDING_SYSTEM},
    {"set", "weir set", run_set, ENDING_SYSTEM},
    {"serve", "weir serve", run_serve, ENDING_SYSTEM},
    {"simulate", "weir simulate", run_simulate, ENDING_SYSTEM},
    {"stat", "weir stat", run_stat, ENDING_SYSTEM},
    {"top", "weir top", run_top, ENDING_SYSTEM},
    {"why", "weir why", run_why, ENDING_SYSTEM},
};

static int show_version(void)
{
    printf("weir %s\n", weir_version());
    return ENDING_FINE;
}

/* Returns the exit code; a failed write of the output is an error. */
static int finish(int ending, int failed)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return ending;
    fprintf(stderr, "weir: cannot write: %s\n", strerror(errno));
    return failed;
}

static int run_part(const struct part *part, int argc, char **argv)
{
    char title[32];

    snprintf(title, sizeof(title), "%s", part->title);
    argv[0] = title; /* getopt's messages begin with it, too */
    return finish(part->run(argc, argv), part->failed);
}

static int run(int argc, char **argv)
{
    if (argc < 2)
        return usage_wrong("weir", "no command is given", "");
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
        return finish(show_version(), ENDING_SYSTEM);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return finish(usage_help(help), ENDING_SYSTEM);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (strcmp(argv[1], parts[i].name) == 0)
            return run_part(&parts[i], argc - 1, argv + 1);
    return usage_wrong("weir", argv[1][0] == '-' ? "unknown option " : "unknown command ", argv[1]);
}

/*
 * Opens those of the descriptors 0 to 2 that are closed, so that no message is written into a
 * descriptor of the library. Reading 0 and writing the others fails as if they were still closed. A
 * command that is run finds them closed.
 */
static void fill_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
}

int main(int argc, char **argv)
{
    fill_descriptors();
    return run(argc, argv);
}
