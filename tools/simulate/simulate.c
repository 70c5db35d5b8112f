/* SPDX-License-Identifier: MIT */
/* `weir simulate`: what a configuration would do with recorded traffic, or with a generated load,
 * decided by the library itself on a clock that the command moves. */
#include "plot.h"
#include "report.h"
#include "usage.h"
#include "weir.h"
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: weir simulate -f FILE [OPTION]... [TRACE]\n"
    "\n"
    "Says what a configuration would grant, refuse and let wait. The requests are those of TRACE,\n"
    "an access log, JSON lines or CSV (-: the standard input), or of a generated load.\n"
    "\n"
    "  -f, --file FILE         the configuration; default: the file that WEIR_CONFIG names\n"
    "  -c, --compare FILE      another one, for the same requests\n"
    "  -s, --set NAME          its set or pool; default: the only one\n"
    "  -d, --plugin-dir DIR    search DIR for plugins first; may be repeated\n"
    "\n"
    "The requests of a trace:\n"
    "  -F, --format FORMAT     common, combined, json or csv; default: as the first line looks\n"
    "  -T, --time FIELD[:UNIT] their times; numbers are in s, ms, us or ns; default: time\n"
    "      --ends              the times are those of the ends of the requests\n"
    "      --reorder N         sort the times of N requests at a time; default: 4096\n"
    "      --strict            stop at a line that is not understood\n"
    "\n"
    "Or generated ones, from midnight on:\n"
    "  -L, --load KIND:N/WINDOW:DURATION\n"
    "                          KIND is even, poisson, day (N is the peak) or burst; may be "
    "repeated\n"
    "      --seed N            of all random numbers; default: 1\n"
    "\n"
    "What is requested:\n"
    "  -a, --amount KEY=N      N of a limit; or KEY=FIELD, KEY=exp:N, KEY=uniform:N-N; default: 1\n"
    "      --used KEY=N        how much of it is used in the end; the rest is refunded\n"
    "  -H, --hold DURATION     how long it is held; or FIELD[:UNIT], exp:DURATION,\n"
    "                          uniform:DURATION-DURATION; default: not at all\n"
    "  -S, --subject FIELD     the subjects; or uniform:N\n"
    "      --route FIELD       the routes; or uniform:N\n"
    "      --class FIELD       the classes of requests, in sets with priorities or shares\n"
    "  -m, --mode MODE         wait, try (never wait) or take; default: wait\n"
    "  -t, --timeout DURATION  wait no longer; default: as the set says\n"
    "  -w, --max-wait DURATION refuse what would wait longer; default: as the set says\n"
    "\n"
    "      --suggest [SET/]KEY[#N]\n"
    "                          find the smallest capacity of this limit that meets the target\n"
    "      --target TARGETS    p50, p90, p95, p99, p999 or max<DURATION, refused<RATIO\n"
    "\n"
    "  -j, --json              write JSON\n"
    "      --svg FILE          write a plot\n"
    "      --png FILE          write a plot, by means of rsvg-convert\n"
    "      --decisions FILE    write each decision as CSV, of the first configuration\n"
    "  -h, --help              show this text\n"
    "\n"
    "Exit status: 0 fine, 1 no capacity meets the target, or the configuration or a line is "
    "wrong,\n"
    "2 wrong usage, 3 something cannot be read, written or obtained.\n";

enum {
    OPTION_ENDS = 512,
    OPTION_REORDER,
    OPTION_STRICT,
    OPTION_SEED,
    OPTION_USED,
    OPTION_ROUTE,
    OPTION_CLASS,
    OPTION_SUGGEST,
    OPTION_TARGET,
    OPTION_SVG,
    OPTION_PNG,
    OPTION_DECISIONS
};

/* The command line. */
struct request {
    struct source source;
    const char *compared, *target, *suggested, *svg, *png, *decisions;
    struct traffic_options traffic;
    struct engine_options engine;
    bool json;
};

/* ---- options ---- */

static bool parse_count(const char *text, uint64_t low, uint64_t high, uint64_t *ret)
{
    return when_parse_amount((struct text){text, strlen(text)}, ret) && *ret >= low && *ret <= high;
}

static bool parse_mode(const char *text, enum engine_mode *ret)
{
    static const char *const names[] = {"wait", "try", "take"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i], text) == 0) {
            *ret = (enum engine_mode)i;
            return true;
        }
    }
    return false;
}

/* Says what is wrong with an argument. Returns false. */
static bool refuse(struct option_complaint *ret_wrong, const char *what)
{
    snprintf(ret_wrong->text, sizeof(ret_wrong->text), "%s", what);
    return false;
}

/* Takes an option of the traffic. Returns false and what is wrong. */
static bool traffic_option(struct traffic_options *traffic, int option, char *argument,
                           struct option_complaint *ret_wrong)
{
    struct mapping *mapping = &traffic->mapping;
    uint64_t n;

    switch (option) {
    case 'F':
        return line_kind_parse(argument, &traffic->kind) ||
               refuse(ret_wrong, "a format is common, combined, json or csv");
    case 'T':
        return mapping_time(mapping, argument, ret_wrong);
    case OPTION_ENDS:
        return mapping->ends = true;
    case OPTION_STRICT:
        return traffic->strict = true;
    case OPTION_REORDER:
        if (!parse_count(argument, 1, REORDER_MAX, &n))
            return refuse(ret_wrong, "--reorder takes a number from 1 to 1000000");
        traffic->reorder = (uint32_t)n;
        return true;
    case 'L':
        return load_add(&traffic->load, argument, ret_wrong);
    case OPTION_SEED:
        return parse_count(argument, 0, UINT64_MAX, &traffic->seed) ||
               refuse(ret_wrong, "a seed is a whole number");
    case 'a':
        return mapping_amount(mapping, argument, ret_wrong);
    case OPTION_USED:
        return mapping_used(mapping, argument, ret_wrong);
    case 'H':
        return mapping_hold(mapping, argument, ret_wrong);
    case 'S':
        return mapping_subject(mapping, argument, ret_wrong);
    case OPTION_CLASS:
        return mapping_class(mapping, argument, ret_wrong);
    default:
        return mapping_route(mapping, argument, ret_wrong);
    }
}

/* Takes an option of the simulation. Returns 1, 0 (it is another one), or -1 and what is wrong. */
static int simulation_option(struct request *request, int option, char *argument,
                             struct option_complaint *ret_wrong)
{
    bool is_right = true;

    if (option == 'c')
        request->compared = argument;
    else if (option == 's')
        request->target = argument;
    else if (option == 'j')
        request->json = true;
    else if (option == 'm')
        is_right = parse_mode(argument, &request->engine.mode) ||
                   refuse(ret_wrong, "a mode is wait, try or take");
    else if (option == 't')
        is_right = duration_option_parse(argument, &request->engine.timeout_ns, ret_wrong);
    else if (option == 'w')
        is_right = duration_option_parse(argument, &request->engine.max_wait_ns, ret_wrong);
    else if (option == OPTION_SUGGEST)
        request->suggested = argument;
    else if (option == OPTION_TARGET)
        is_right = targets_parse(&request->engine.targets, argument, ret_wrong);
    else if (option == OPTION_SVG)
        request->svg = argument;
    else if (option == OPTION_PNG)
        request->png = argument;
    else if (option == OPTION_DECISIONS)
        request->decisions = argument;
    else
        return 0;
    return is_right ? 1 : -1;
}

/* Returns what is wrong with the options together, or NULL. */
static const char *find_contradiction(const struct request *request, bool has_trace)
{
    const struct mapping *mapping = &request->traffic.mapping;
    bool generates = request->traffic.load.n > 0;

    if (generates == has_trace)
        return generates ? "a load and a trace are given" : "neither a trace nor a load is given";
    if (generates && mapping->fields.n > 0)
        return "a generated load has no fields: ";
    if ((request->suggested != NULL) != (request->engine.targets.n > 0))
        return "--suggest and --target go together";
    if (request->suggested && request->compared)
        return "--suggest is for one configuration";
    if (request->suggested && request->decisions)
        return "--suggest writes no decisions";
    if (request->suggested && has_trace && strcmp(request->traffic.path, "-") == 0)
        return "--suggest reads the trace several times: not from the standard input";
    return NULL;
}

/* Returns ENDING_FINE, or a usage error after a message. */
static int check_request(const char *command, struct request *request, int argc, char **argv)
{
    bool has_trace = optind < argc;
    const char *wrong;

    if (optind + 1 < argc)
        return usage_wrong(command, "takes one trace, not ", argv[optind + 1]);
    request->traffic.path = has_trace ? argv[optind] : "-";
    wrong = find_contradiction(request, has_trace);
    if (wrong)
        return usage_wrong(command, wrong,
                           request->traffic.load.n > 0 && request->traffic.mapping.fields.n > 0
                               ? request->traffic.mapping.fields.items[0]
                               : "");
    if (has_trace && !mapping_complete(&request->traffic.mapping))
        return usage_wrong(command, "too many fields", "");
    return ENDING_FINE;
}

/* ---- the work ---- */

static int ending_of(int r)
{
    switch (r) {
    case 0:
        return ENDING_FINE;
    case -EINVAL:
    case -ENODATA: /* there are no events */
        return ENDING_COMPLAINTS;
    default:
        return ENDING_SYSTEM;
    }
}

static int open_decisions(struct request *request, const char *command)
{
    if (!request->decisions)
        return 0;
    request->engine.decisions = fopen(request->decisions, "we");
    if (!request->engine.decisions) {
        int r = -errno;

        fprintf(stderr, "%s: %s: %s\n", command, request->decisions, strerror(errno));
        return r;
    }
    fputs("event,time,decision,decided,set,limit\n", request->engine.decisions);
    return 0;
}

/* Returns 0, or -EIO after a message. */
static int close_decisions(struct request *request, const char *command)
{
    FILE *out = request->engine.decisions;
    bool failed = out && ferror(out);

    request->engine.decisions = NULL;
    if (out && (fclose(out) != 0 || failed)) {
        fprintf(stderr, "%s: %s: cannot be written\n", command, request->decisions);
        return -EIO;
    }
    return 0;
}

static int write_reports(const struct request *request, const struct simulation *simulation,
                         const struct suggestion *suggestion)
{
    if (request->json)
        report_json(simulation, suggestion);
    else
        report_text(simulation, suggestion);
    if (request->svg && plot_svg(simulation, request->svg) < 0)
        return ENDING_SYSTEM;
    if (request->png && plot_png(simulation, request->png) < 0)
        return ENDING_SYSTEM;
    return suggestion && suggestion->capacity == 0 ? ENDING_COMPLAINTS : ENDING_FINE;
}

static int run(struct request *request, struct simulation *simulation)
{
    struct suggestion suggestion = {0};
    struct simulation_run whole = {.events_n = 0};
    bool is_missed;
    int r = open_decisions(request, simulation->command), closed;

    if (r == 0 && request->suggested)
        r = suggest(simulation, &request->engine, request->suggested, &suggestion);
    else if (r == 0)
        r = simulation_go(simulation, &request->engine, &whole, &is_missed);
    closed = close_decisions(request, simulation->command);
    if (r == 0)
        r = closed;
    if (r < 0)
        return ending_of(r);
    return write_reports(request, simulation, request->suggested ? &suggestion : NULL);
}

static int simulate(const char *command, struct request *request)
{
    struct source compared = request->source;
    struct simulation simulation = {.command = command, .n = request->compared ? 2 : 1};
    struct traffic traffic;
    int ending,
        r = candidate_read(&simulation.candidates[0], &request->source, request->target, command);

    compared.file = request->compared;
    if (r == 0 && request->compared)
        r = candidate_read(&simulation.candidates[1], &compared, request->target, command);
    if (r == 0)
        r = traffic_open(&traffic, &request->traffic, command);
    if (r == 0) {
        simulation.traffic = &traffic;
        ending = run(request, &simulation);
        simulation_end_run(&simulation);
        traffic_close(&traffic);
    } else {
        ending = ending_of(r);
    }
    for (unsigned i = 0; i < simulation.n; i++)
        candidate_close(&simulation.candidates[i]);
    return ending;
}

int run_simulate(int argc, char **argv)
{
    static const struct option options[] = {
        {"compare", required_argument, NULL, 'c'},
        {"set", required_argument, NULL, 's'},
        {"format", required_argument, NULL, 'F'},
        {"time", required_argument, NULL, 'T'},
        {"ends", no_argument, NULL, OPTION_ENDS},
        {"reorder", required_argument, NULL, OPTION_REORDER},
        {"strict", no_argument, NULL, OPTION_STRICT},
        {"load", required_argument, NULL, 'L'},
        {"seed", required_argument, NULL, OPTION_SEED},
        {"amount", required_argument, NULL, 'a'},
        {"used", required_argument, NULL, OPTION_USED},
        {"hold", required_argument, NULL, 'H'},
        {"subject", required_argument, NULL, 'S'},
        {"route", required_argument, NULL, OPTION_ROUTE},
        {"class", required_argument, NULL, OPTION_CLASS},
        {"mode", required_argument, NULL, 'm'},
        {"timeout", required_argument, NULL, 't'},
        {"max-wait", required_argument, NULL, 'w'},
        {"suggest", required_argument, NULL, OPTION_SUGGEST},
        {"target", required_argument, NULL, OPTION_TARGET},
        {"json", no_argument, NULL, 'j'},
        {"svg", required_argument, NULL, OPTION_SVG},
        {"png", required_argument, NULL, OPTION_PNG},
        {"decisions", required_argument, NULL, OPTION_DECISIONS},
        {"file", required_argument, NULL, SOURCE_FILE},
        {"plugin-dir", required_argument, NULL, 'd'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct request request = {.traffic = {.reorder = REORDER_DEFAULT, .seed = 1}};
    struct option_complaint wrong;
    int option, r;

    while ((option = getopt_long(argc, argv, "c:s:F:T:L:a:H:S:m:t:w:jh" SOURCE_LETTERS, options,
                                 NULL)) != -1) {
        if (option == 'h')
            return usage_help(help);
        if (option == '?')
            return usage_hint(argv[0]);
        r = option == 'f' || option == 'd' || option == SOURCE_FILE
                ? (source_option(&request.source, option, optarg, argv[0]) ? 1 : -2)
                : simulation_option(&request, option, optarg, &wrong);
        if (r == 0)
            r = traffic_option(&request.traffic, option, optarg, &wrong) ? 1 : -1;
        if (r == -2)
            return usage_hint(argv[0]);
        if (r < 0)
            return usage_wrong(argv[0], wrong.text, "");
    }
    r = check_request(argv[0], &request, argc, argv);
    if (r != ENDING_FINE)
        return r;
    request.engine.mapping = &request.traffic.mapping;
    return simulate(argv[0], &request);
}
