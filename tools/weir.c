/* SPDX-License-Identifier: MIT */
/* The `weir` command: looks at configurations and plugins. It changes nothing. */
#include "weir.h"
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

static const char help[] =
    "Usage:\n"
    "  weir check [--json] [-d DIR]... FILE        check a configuration and say what it means\n"
    "  weir plugins [--json] [-c FILE] [DIR]...    list plugins and refused plugin files\n"
    "  weir --version | --help\n"
    "\n"
    "Options:\n"
    "  -j, --json             write JSON\n"
    "  -d, --plugin-dir DIR   look for plugins in DIR first\n"
    "  -c, --config FILE      also look in the plugin_dirs of this configuration\n"
    "  -h, --help             show this text\n"
    "  -V, --version          show the version\n"
    "\n"
    "FILE may be - for the standard input. Exit status: 0 fine, 1 complaints, 2 wrong usage,\n"
    "3 something cannot be read or written. See weir(1).\n";

static enum ending wrong_usage(const char *what, const char *which)
{
    fprintf(stderr, "weir: %s%s\nTry `weir --help`.\n", what, which);
    return ENDING_USAGE;
}

static enum ending too_many_dirs(void)
{
    return wrong_usage("too many plugin directories", "");
}

static bool add_dir(struct arguments *arguments, const char *dir)
{
    if (arguments->dirs_n == DIRS_MAX)
        return false;
    arguments->dirs[arguments->dirs_n++] = dir;
    return true;
}

static enum ending show_version(void)
{
    printf("weir %s\n", weir_version());
    return ENDING_FINE;
}

static enum ending show_help(void)
{
    fputs(help, stdout);
    return ENDING_FINE;
}

/* The rest of the command line, once the options are read: FILE, or directories. */
static enum ending run_command(const char *command, struct arguments *arguments, char **rest, int n)
{
    if (strcmp(command, "check") == 0) {
        if (n == 0)
            return wrong_usage("check needs a file", "");
        if (n > 1)
            return wrong_usage("check takes one file, not also ", rest[1]);
        if (arguments->config != NULL)
            return wrong_usage("check has no option --config: name the file", "");
        arguments->file = rest[0];
        return run_check(arguments);
    }
    if (strcmp(command, "plugins") == 0) {
        for (int i = 0; i < n; i++) {
            if (!add_dir(arguments, rest[i]))
                return too_many_dirs();
        }
        return run_plugins(arguments);
    }
    return wrong_usage("unknown command ", command);
}

static enum ending run(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'},    {"plugin-dir", required_argument, NULL, 'd'},
        {"help", no_argument, NULL, 'h'},    {"config", required_argument, NULL, 'c'},
        {"version", no_argument, NULL, 'V'}, {NULL, 0, NULL, 0},
    };
    struct arguments arguments = {0};
    int option;

    while ((option = getopt_long(argc, argv, "jd:c:hV", options, NULL)) != -1) {
        switch (option) {
        case 'j':
            arguments.json = true;
            break;
        case 'd':
            if (!add_dir(&arguments, optarg))
                return too_many_dirs();
            break;
        case 'c':
            arguments.config = optarg;
            break;
        case 'h':
            return show_help();
        case 'V':
            return show_version();
        default: /* getopt has said what is wrong */
            fputs("Try `weir --help`.\n", stderr);
            return ENDING_USAGE;
        }
    }
    if (optind == argc)
        return wrong_usage("what is to be done? check or plugins", "");
    return run_command(argv[optind], &arguments, argv + optind + 1, argc - optind - 1);
}

int main(int argc, char **argv)
{
    enum ending ending = run(argc, argv);

    /* A full disk is no success. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "weir: cannot write: %s\n", strerror(errno));
        return ENDING_SYSTEM;
    }
    return ending;
}
