/* SPDX-License-Identifier: MIT */
/* `weir rm`: removes shared sets with all their counts. */
#include "process_text.h"
#include "source.h"
#include "usage.h"
#include "weir.h"
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <weir/segment.h>

static const char help[] =
    "Usage: weir rm [-f] [--file FILE] [--process-dir DIR] NAME...\n"
    "\n"
    "Removes shared sets, and all that was counted in them. One that a living process uses is\n"
    "refused, and the processes are shown.\n"
    "\n"
    "  -f, --force             remove it also if it is in use, or cannot be used: its users\n      "
    "                    go on with it, apart from all later ones\n"
    "      --file FILE         a configuration that says where shared sets are; default: the file\n"
    "                          that WEIR_CONFIG names\n"
    "      --process-dir DIR   where shared sets are\n"
    "  -h, --help              show this text\n"
    "\n"
    "Exit status: 0 fine, 1 a set was not removed, 2 wrong usage, 3 the directory cannot be "
    "read.\n";

enum { USERS_SHOWN = 10 };

/* Writes which processes use a set. Those that end meanwhile are left out. */
static void show_users(const char *title, const struct weir_options *options, const char *name)
{
    uint32_t users[USERS_SHOWN];
    char text[PROCESS_TEXT_MAX];
    int n = weir_segment_users(options, name, users, USERS_SHOWN, NULL);

    for (int i = 0; i < n && i < USERS_SHOWN; i++) {
        process_text_read(users[i], text);
        fprintf(stderr, "%s:   process %" PRIu32 ": %s\n", title, users[i], text);
    }
    if (n > USERS_SHOWN)
        fprintf(stderr, "%s:   and %d more\n", title, n - USERS_SHOWN);
}

static int stop(void *userdata, const struct weir_segment *segment)
{
    (void)userdata;
    (void)segment;
    return 1;
}

/* Returns whether sets can be looked for. If there is no directory, no set is there. */
static bool can_look(const char *title, const struct weir_options *options)
{
    struct weir_error error = {0};
    int r = weir_segments(options, stop, NULL, &error);

    if (r < 0)
        source_complain(title, &error);
    return r >= 0;
}

static int remove_all(const char *title, const struct source *source, char **names, int n,
                      uint32_t flags)
{
    struct weir_options options = source_options(source);
    int ending = ENDING_FINE;

    if (!can_look(title, &options))
        return ENDING_SYSTEM;
    for (int i = 0; i < n; i++) {
        struct weir_error error = {0};
        int r = weir_segment_remove(&options, names[i], flags, &error);

        if (r == 0)
            continue;
        error.code = r;
        source_complain(title, &error);
        if (r == -EBUSY)
            show_users(title, &options, names[i]);
        ending = ENDING_COMPLAINTS;
    }
    return ending;
}

int run_rm(int argc, char **argv)
{
    static const struct option options[] = {
        {"force", no_argument, NULL, 'f'},
        SOURCE_OPTIONS,
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct source source = {0};
    uint32_t flags = 0;
    int option;

    while ((option = getopt_long(argc, argv, "fd:h", options, NULL)) != -1) {
        if (option == 'h')
            return usage_help(help);
        if (option == 'f')
            flags = WEIR_SEGMENT_FORCE;
        else if (!source_option(&source, option, optarg, argv[0]))
            return usage_hint(argv[0]);
    }
    if (optind == argc)
        return usage_wrong(argv[0], "no set is given", "");
    return remove_all(argv[0], &source, argv + optind, argc - optind, flags);
}
