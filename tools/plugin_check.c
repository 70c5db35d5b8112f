/* SPDX-License-Identifier: MIT */
/* `weir plugin check`: tests plugin files, for those that write them. */
#include "json.h"
#include "plugin.h"
#include "usage.h"
#include "validator/validator.h"
#include "weir.h"
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char help[] =
    "Usage: weir plugin check [--json] [--seed N] [--time SECONDS] [--only TEST] FILE...\n"
    "\n"
    "Tests the algorithms and balancers of plugin files against what weir-plugin(7) demands of "
    "them,\n"
    "each test in a process of its own, with random settings and random histories. What a file "
    "does\n"
    "when it is loaded, it does to this machine: check only files that may run here.\n"
    "\n"
    "  -j, --json           write JSON\n"
    "  -s, --seed N         repeat the tests that another run with this seed made\n"
    "  -o, --only TEST      make this test alone\n"
    "  -t, --time SECONDS   processor time of each test; without it, 40 rounds\n"
    "  -v, --verbose        also list the tests that found nothing\n"
    "  -h, --help           show this text\n"
    "\n"
    "Exit status: 0 nothing was found, 1 something was, 2 wrong usage, 3 a file cannot be "
    "tested.\n";

#define PLUGIN_TIME_MAX 3600u

struct plugin_report {
    bool as_json, is_verbose;
    struct json json;
    const char *path, *only;
    unsigned wrong, run;
    uint64_t seed;
    char plugin[256]; /* that the last line was about */
};

static void plugin_report_json(struct plugin_report *report, const struct validator_result *result)
{
    static const char *const verdicts[] = {"fine", "skipped", "wrong"};
    struct json *json = &report->json;

    json_object(json, NULL);
    json_text(json, "path", report->path);
    json_text(json, "plugin", result->plugin[0] ? result->plugin : NULL);
    json_text(json, "test", result->test);
    json_text(json, "promise", result->promise);
    json_text(json, "verdict", verdicts[result->verdict]);
    json_text(json, "text", result->text[0] ? result->text : NULL);
    json_text(json, "settings", result->subject[0] ? result->subject : NULL);
    json_text(json, "call", result->doing[0] ? result->doing : NULL);
    json_number(json, "calls", result->calls);
    json_end_object(json);
}

static void plugin_report_text(struct plugin_report *report, const struct validator_result *result)
{
    static const char *const verdicts[] = {"ok", "skipped", "WRONG"};

    if (result->verdict != VERDICT_WRONG && !report->is_verbose)
        return;
    if (strcmp(report->plugin, result->plugin) != 0 && result->plugin[0])
        printf("%s: %s\n", report->path, result->plugin);
    snprintf(report->plugin, sizeof(report->plugin), "%s", result->plugin);
    printf("  %-8s%-15s%s%s%s\n", verdicts[result->verdict], result->test, result->promise,
           result->text[0] ? ": " : "", result->text);
    if (result->verdict == VERDICT_WRONG && result->subject[0])
        printf("          %-15s%s\n", "settings", result->subject);
    if (result->verdict == VERDICT_WRONG && result->doing[0])
        printf("          %-15s%s\n", "last call", result->doing);
}

static void plugin_on_result(void *userdata, const struct validator_result *result)
{
    struct plugin_report *report = userdata;

    report->run += result->verdict != VERDICT_SKIPPED;
    report->wrong += result->verdict == VERDICT_WRONG;
    if (report->as_json)
        plugin_report_json(report, result);
    else
        plugin_report_text(report, result);
}

/* Tests one file. Returns an exit code. */
static int plugin_check_file(struct plugin_report *report, const char *path, uint64_t seconds)
{
    const struct validator_options options = {.path = path,
                                              .only = report->only,
                                              .seed = report->seed,
                                              .budget_ns = seconds * 1000000000u,
                                              .report = plugin_on_result,
                                              .userdata = report};

    report->path = path;
    report->wrong = report->run = 0;
    report->plugin[0] = '\0';
    if (validator_run(&options) < 0) {
        fprintf(stderr, "weir plugin: %s cannot be tested: %s\n", path, strerror(errno));
        return ENDING_SYSTEM;
    }
    if (!report->run) {
        fprintf(stderr, "weir plugin: %s: no test %s was made\n", path,
                report->only ? report->only : "");
        return ENDING_SYSTEM;
    }
    if (!report->as_json)
        printf("%s: %u of %u tests found something (seed %" PRIu64 ")\n", path, report->wrong,
               report->run, report->seed);
    return report->wrong ? ENDING_COMPLAINTS : ENDING_FINE;
}

/* Reads a whole number up to `max`. */
static bool plugin_read_number(const char *text, uint64_t max, uint64_t *ret)
{
    char *end;

    errno = 0;
    *ret = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && *ret <= max;
}

static uint64_t plugin_new_seed(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int plugin_check_files(struct plugin_report *report, char **paths, uint64_t seconds)
{
    int ending = ENDING_FINE;

    report->json.out = stdout;
    if (report->as_json) {
        json_object(&report->json, NULL);
        json_number(&report->json, "seed", report->seed);
        json_array(&report->json, "tests");
    }
    for (; *paths; paths++) {
        int r = plugin_check_file(report, *paths, seconds);

        ending = r > ending ? r : ending;
    }
    if (report->as_json) {
        json_end_array(&report->json);
        json_end_object(&report->json);
    }
    return ending;
}

int run_plugin_check(int argc, char **argv)
{
    static const struct option options[] = {
        {"help", no_argument, NULL, 'h'},
        {"json", no_argument, NULL, 'j'},
        {"only", required_argument, NULL, 'o'},
        {"seed", required_argument, NULL, 's'},
        {"time", required_argument, NULL, 't'},
        {"verbose", no_argument, NULL, 'v'},
        {NULL, 0, NULL, 0},
    };
    struct plugin_report report = {.seed = plugin_new_seed()};
    uint64_t seconds = 0;
    int option;

    while ((option = getopt_long(argc, argv, "hjo:s:t:v", options, NULL)) != -1) {
        if (option == 'h')
            return usage_help(help);
        if (option == 'j')
            report.as_json = true;
        else if (option == 'o')
            report.only = optarg;
        else if (option == 'v')
            report.is_verbose = true;
        else if (option == 's' && !plugin_read_number(optarg, UINT64_MAX, &report.seed))
            return usage_wrong(argv[0], "--seed takes a number, not ", optarg);
        else if (option == 't' &&
                 (!plugin_read_number(optarg, PLUGIN_TIME_MAX, &seconds) || !seconds))
            return usage_wrong(argv[0], "--time takes seconds from 1 to 3600, not ", optarg);
        else if (option == '?')
            return usage_hint(argv[0]);
    }
    if (optind == argc)
        return usage_wrong(argv[0], "no file is given", "");
    return plugin_check_files(&report, argv + optind, seconds);
}
