/* SPDX-License-Identifier: MIT */
/* `weir exec`: waits for limits of shared sets, then becomes the command. The process itself is the
 * holder, so whatever ends the command releases what it holds. */
#include "amounts.h"
#include "limit_option.h"
#include "source.h"
#include "time_text.h"
#include "usage.h"
#include "weir.h"
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Exit codes if the command does not run; otherwise the code is the command's. See weir(1). */
enum {
    EXEC_REFUSED = 123,
    EXEC_TIMED_OUT = 124,
    /* EXEC_FAILED is 125 */
    EXEC_CANNOT_RUN = 126,
    EXEC_NOT_FOUND = 127
};

static const char help[] =
    "Usage:\n"
    "  weir exec [OPTION]... [-f FILE] -s NAME [--] COMMAND [ARGUMENT]...\n"
    "  weir exec [OPTION]... --limit LIMIT... --name NAME [--] COMMAND [ARGUMENT]...\n"
    "\n"
    "Waits until the set NAME grants 1 of each of its limits, then becomes COMMAND, which holds "
    "them\n"
    "until it ends, however it ends.\n"
    "\n"
    "  -s, --set, --name NAME   the set, or a pool of such sets\n"
    "  -f, --file FILE          the configuration; default: the file that WEIR_CONFIG names\n"
    "  -l, --limit KEY:N        define the set here: N may be held at a time\n"
    "  -l, --limit KEY:N/WINDOW[/ALGORITHM]\n"
    "                           N per WINDOW, as in \"calls:100/60s\"; default: gcra\n"
    "  -a, --amount KEY=N       acquire N of KEY instead of 1; 0: none\n"
    "  -S, --subject TEXT       the subject, if the set has limits per subject\n"
    "  -t, --timeout DURATION   wait no longer; 0s: not at all\n"
    "  -w, --max-wait DURATION  do not begin to wait if the forecast is longer\n"
    "  -r, --retry-after        if it was not granted, write when to try again: seconds from now,\n"
    "                           or unknown, or never\n"
    "  -v, --verbose            say what is requested and when it was granted\n"
    "      --process-dir DIR    where shared sets are\n"
    "  -d, --plugin-dir DIR     look for plugins in DIR first\n"
    "  -h, --help               show this text\n"
    "\n"
    "Exit status: that of COMMAND; 123 refused, 124 timed out, 125 weir itself failed,\n"
    "126 COMMAND cannot be run, 127 COMMAND is not found.\n";

struct exec {
    const char *title; /* prefix of messages */
    const char *name;
    const char *subject; /* or NULL */
    struct source source;
    struct weir_limit_spec limits[WEIR_LIMITS_MAX];
    size_t limits_n;
    struct amounts amounts;
    bool has_timeout, has_max_wait;
    uint64_t timeout_ns, max_wait_ns;
    bool retry_after, verbose;
    uint64_t begun_ns;
    char **command;

    weir *w;
    weir_pool *pool;
};

static int fail(const struct exec *exec, int code)
{
    fprintf(stderr, "%s: %s\n", exec->title, strerror(-code));
    return EXEC_FAILED;
}

/* ---- the request ---- */

/* ---- a place in the set ---- */

/* Pauses between two attempts to get a place in a set that as many processes share as can. */
#define PLACE_PAUSE_MIN_NS UINT64_C(4000000)
#define PLACE_PAUSE_MAX_NS UINT64_C(256000000)

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Returns how long it may wait, by the options. */
static uint64_t patience_ns(const struct exec *exec)
{
    uint64_t timeout_ns = exec->has_timeout ? exec->timeout_ns : WEIR_FOREVER;
    uint64_t max_wait_ns = exec->has_max_wait ? exec->max_wait_ns : WEIR_FOREVER;

    return timeout_ns < max_wait_ns ? timeout_ns : max_wait_ns;
}

/* Waits before the next attempt. Returns false if that would be too long. Processes that have come
 * together try apart. */
static bool pause_for_place(const struct exec *exec, uint64_t *pause_ns)
{
    uint64_t waited_ns = now_ns() - exec->begun_ns, patience = patience_ns(exec);
    uint64_t apart_ns = (uint64_t)getpid() * 7919 % 1024 * (*pause_ns / 2048);
    uint64_t ns = *pause_ns / 2 + apart_ns;
    struct timespec pause;

    if (waited_ns >= patience)
        return false;
    if (ns > patience - waited_ns)
        ns = patience - waited_ns;
    if (exec->verbose && *pause_ns == PLACE_PAUSE_MIN_NS)
        fprintf(stderr, "%s: `%s` is shared by as many processes as can be: waiting for a place\n",
                exec->title, exec->name);
    pause = (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    nanosleep(&pause, NULL);
    *pause_ns = *pause_ns * 2 < PLACE_PAUSE_MAX_NS ? *pause_ns * 2 : PLACE_PAUSE_MAX_NS;
    return true;
}

/* Repeats an attempt to attach to the set as long as it lacks a place. Returns what that returned
 * last: 0, or an error that was reported unless it is -EUSERS. Takes the time that this took from
 * what is left. */
static int wait_for_place(struct exec *exec, int (*attempt)(struct exec *exec))
{
    uint64_t pause_ns = PLACE_PAUSE_MIN_NS, waited_ns;
    int r;

    while ((r = attempt(exec)) == -EUSERS)
        if (!pause_for_place(exec, &pause_ns))
            return r;
    if (pause_ns == PLACE_PAUSE_MIN_NS)
        return r;
    waited_ns = now_ns() - exec->begun_ns;
    if (exec->has_timeout && exec->timeout_ns != WEIR_FOREVER)
        exec->timeout_ns -= waited_ns < exec->timeout_ns ? waited_ns : exec->timeout_ns;
    if (exec->has_max_wait && exec->max_wait_ns != WEIR_FOREVER)
        exec->max_wait_ns -= waited_ns < exec->max_wait_ns ? waited_ns : exec->max_wait_ns;
    return r;
}

static int open_source(struct exec *exec)
{
    return source_open(&exec->source, exec->name, exec->title, &exec->w);
}

/* Opens a pool of the one set that the command line defines. */
static int define_set(struct exec *exec)
{
    struct weir_set_spec set = {.size = sizeof(set),
                                .name = exec->name,
                                .limits = exec->limits,
                                .limits_n = exec->limits_n,
                                .backend = "process"};
    struct weir_pool_spec pool = {.size = sizeof(pool), .sets = &set, .sets_n = 1};
    struct weir_error error = {0};
    int r = weir_pool_new(&exec->pool, exec->w, &pool, &error);

    if (r == 0 || r == -EUSERS)
        return r;
    error.code = r;
    source_complain(exec->title, &error);
    return r;
}

static int open_set(struct exec *exec)
{
    /* Workers begin at different sets of a pool, and each process requests only once. */
    struct weir_error error = {0};
    int r = weir_pool_open(&exec->pool, exec->w, exec->name, (uint32_t)getpid(), &error);

    if (r == 0)
        return 0;
    if (r != -ENOENT)
        return fail(exec, r);
    source_complain(exec->title, &error);
    return EXEC_FAILED;
}

/* Refuses other backends: such a set would be shared with no process and so limit nothing. */
static int require_shared(const struct exec *exec)
{
    for (size_t i = 0; i < weir_pool_sets(exec->pool); i++) {
        weir_set *set = weir_pool_set(exec->pool, i);
        struct weir_set_info info = {.size = sizeof(info)};

        weir_set_info(set, &info);
        if (strcmp(info.backend, "process") == 0)
            continue;
        if (!exec->source.file && !getenv("WEIR_CONFIG"))
            fprintf(stderr, "%s: nothing defines `%s`: name a file (-f) or limits (--limit)\n",
                    exec->title, exec->name);
        else
            fprintf(stderr,
                    "%s: set `%s` is not shared by processes: it needs `backend: process`\n",
                    exec->title, weir_set_name(set));
        return EXEC_FAILED;
    }
    return 0;
}

static int complete_amounts(struct exec *exec)
{
    const char *key = NULL;
    int r = amounts_complete(&exec->amounts, exec->pool, &key);

    if (r == 0)
        return 0;
    if (r != -ENOENT)
        return fail(exec, r);
    fprintf(stderr, "%s: `%s` has no limit of the key `%s`\n", exec->title, exec->name, key);
    return EXEC_FAILED;
}

static void write_retry_after(uint64_t ns)
{
    char text[TIME_TEXT_MAX];

    puts(ns == 0 ? "unknown" : ns == WEIR_FOREVER ? "never" : time_text_seconds(ns, text));
}

/* Reports that no place was free in time. */
static int report_no_place(const struct exec *exec)
{
    bool timed_out = exec->has_timeout && exec->timeout_ns == patience_ns(exec);

    if (exec->verbose)
        fprintf(stderr, "%s: %s: no place was free\n", exec->title,
                timed_out ? "timed out" : "refused");
    if (exec->retry_after) {
        write_retry_after(0);
        if (fflush(stdout) != 0)
            return fail(exec, -errno);
    }
    return timed_out ? EXEC_TIMED_OUT : EXEC_REFUSED;
}

/* Attaches to the set, once there is a place. */
static int attach(struct exec *exec)
{
    int r;

    exec->begun_ns = now_ns();
    exec->source.waits_for_place = true;
    exec->source.needs_no_config = exec->limits_n != 0;
    r = wait_for_place(exec, open_source);
    if (r == 0 && exec->limits_n != 0)
        r = wait_for_place(exec, define_set);
    if (r == -EUSERS)
        return report_no_place(exec);
    if (r < 0)
        return EXEC_FAILED;
    return exec->limits_n != 0 ? 0 : open_set(exec);
}

static int prepare(struct exec *exec)
{
    int ending = attach(exec);

    if (ending == 0)
        ending = require_shared(exec);
    if (ending == 0)
        ending = complete_amounts(exec);
    return ending;
}

/* ---- waiting ---- */

static bool has_subjects(weir_pool *pool)
{
    for (size_t i = 0; i < weir_pool_sets(pool); i++) {
        struct weir_subjects_stats subjects = {.size = sizeof(subjects)};

        if (weir_set_subjects(weir_pool_set(pool, i), &subjects) == 1)
            return true;
    }
    return false;
}

/* Reports an error other than a refusal. -EINVAL without a subject comes from a per-subject set. */
static int report_failure(const struct exec *exec, int r)
{
    if (r != -EINVAL || exec->subject || !has_subjects(exec->pool))
        return fail(exec, r);
    fprintf(stderr, "%s: `%s` has limits per subject: name one (--subject)\n", exec->title,
            exec->name);
    return EXEC_FAILED;
}

/* Reports a refusal. -EAGAIN is a timeout if only the timeout forbade to wait. */
static int report_refusal(const struct exec *exec, int r, const struct weir_refusal *refusal)
{
    bool timed_out = r == -ETIMEDOUT || (r == -EAGAIN && !exec->has_max_wait && exec->has_timeout &&
                                         exec->timeout_ns == 0);
    const char *full = !exec->subject
                           ? "refused: the wait queue is full"
                           : "refused: the wait queue is full, or there are too many subjects";
    const char *why = timed_out       ? "timed out"
                      : r == -EAGAIN  ? "refused: it would take too long"
                      : r == -ENOBUFS ? full
                                      : "refused: more than can ever be granted";

    if (r != -ETIMEDOUT && r != -EAGAIN && r != -ENOBUFS && r != -ERANGE)
        return report_failure(exec, r);
    if (exec->verbose || r == -ERANGE)
        fprintf(stderr, "%s: %s%s%s%s\n", exec->title, why, refusal->key[0] != '\0' ? " (`" : "",
                refusal->key, refusal->key[0] != '\0' ? "`)" : "");
    if (exec->retry_after) {
        write_retry_after(r == -ERANGE ? WEIR_FOREVER : refusal->retry_after_ns);
        if (fflush(stdout) != 0)
            return fail(exec, -errno);
    }
    return timed_out ? EXEC_TIMED_OUT : EXEC_REFUSED;
}

static void print_request(const struct exec *exec)
{
    fprintf(stderr, "%s: asking `%s` for", exec->title, exec->name);
    for (size_t i = 0; i < exec->amounts.n; i++)
        if (exec->amounts.items[i].amount != 0)
            fprintf(stderr, " %s=%" PRIu64, exec->amounts.items[i].key,
                    exec->amounts.items[i].amount);
    fputc('\n', stderr);
}

/* Returns 0 once it is granted. */
static int wait_for_grant(const struct exec *exec, weir_acquisition **ret)
{
    struct weir_request request = {.size = sizeof(request),
                                   .amounts = exec->amounts.items,
                                   .amounts_n = exec->amounts.n,
                                   .timeout_ns = exec->timeout_ns,
                                   .max_wait_ns = exec->max_wait_ns,
                                   .subject = exec->subject,
                                   .subject_size = exec->subject ? strlen(exec->subject) : 0,
                                   .route = (uint64_t)getpid()};
    struct weir_refusal refusal = {.size = sizeof(refusal), .key = ""};
    bool at_once = (exec->has_timeout && exec->timeout_ns == 0) ||
                   (exec->has_max_wait && exec->max_wait_ns == 0);
    uint64_t begun = weir_now(exec->w);
    int r;

    if (exec->verbose)
        print_request(exec);
    r = at_once ? weir_try_acquire(exec->pool, &request, ret, &refusal)
                : weir_acquire(exec->pool, &request, ret, &refusal);
    if (r < 0)
        return report_refusal(exec, r, &refusal);
    if (exec->verbose)
        fprintf(stderr, "%s: granted by `%s` after %" PRIu64 " ms\n", exec->title,
                weir_acquisition_set(*ret), (weir_now(exec->w) - begun) / 1000000);
    return 0;
}

/* ---- running the command ---- */

/* Releases a grant of which nothing was used. */
static void release_unused(const struct exec *exec, weir_acquisition *acquisition)
{
    for (size_t i = 0; i < exec->amounts.n; i++)
        weir_update(acquisition, exec->amounts.items[i].key, 0); /* fails without updates */
    weir_release(&acquisition);
}

/*
 * Closes the instance first, so that its threads end in order. The acquisition outlives it, with
 * the entry in the set that names this process as its holder; the process goes on as the command.
 */
static int exec_command(struct exec *exec, weir_acquisition *acquisition)
{
    int error;

    exec->pool = weir_pool_close(exec->pool);
    exec->w = weir_close(exec->w);
    fflush(stderr);
    execvp(exec->command[0], exec->command);
    error = errno;
    release_unused(exec, acquisition);
    fprintf(stderr, "%s: %s: %s\n", exec->title, exec->command[0], strerror(error));
    return error == ENOENT ? EXEC_NOT_FOUND : EXEC_CANNOT_RUN;
}

static int run(struct exec *exec)
{
    weir_acquisition *acquisition = NULL;
    int ending = prepare(exec);

    if (ending == 0)
        ending = wait_for_grant(exec, &acquisition);
    if (ending == 0)
        ending = exec_command(exec, acquisition);
    weir_pool_close(exec->pool);
    weir_close(exec->w);
    return ending;
}

/* ---- command line ---- */

static int report_usage(const struct exec *exec, const char *what, const char *which)
{
    usage_wrong(exec->title, what, which);
    return EXEC_FAILED;
}

/* Reports a wrong argument of an option. */
static int report_argument(const struct exec *exec, const char *argument, const char *what)
{
    fprintf(stderr, "%s: `%s`: %s\n", exec->title, argument, what);
    usage_hint(exec->title);
    return EXEC_FAILED;
}

static int add_limit(struct exec *exec, char *argument)
{
    const char *what;

    if (exec->limits_n == WEIR_LIMITS_MAX)
        return report_usage(exec, "too many limits", "");
    what = limit_option_parse(argument, &exec->limits[exec->limits_n]);
    if (what)
        return report_argument(exec, argument, what);
    exec->limits_n++;
    return 0;
}

static int add_amount(struct exec *exec, char *argument)
{
    struct weir_amount amount;
    const char *what = amount_option_parse(argument, &amount);
    int r;

    if (what)
        return report_argument(exec, argument, what);
    r = amounts_add(&exec->amounts, amount.key, amount.amount);
    if (r == -EEXIST)
        return report_usage(exec, "there are two amounts of ", amount.key);
    return r < 0 ? fail(exec, r) : 0;
}

static int set_subject(struct exec *exec, const char *argument)
{
    if (argument[0] == '\0' || strlen(argument) > WEIR_SUBJECT_MAX)
        return report_usage(exec, "a subject is 1 to 4096 bytes", "");
    exec->subject = argument;
    return 0;
}

static int read_duration(const struct exec *exec, const char *argument, bool *ret_given,
                         uint64_t *ret_ns)
{
    const char *what = duration_option_parse(argument, ret_ns);

    if (what)
        return report_argument(exec, argument, what);
    *ret_given = true;
    return 0;
}

/* Returns 0, or the exit code. */
static int read_option(struct exec *exec, int option, char *argument)
{
    switch (option) {
    case 's':
        exec->name = argument;
        return 0;
    case 'l':
        return add_limit(exec, argument);
    case 'a':
        return add_amount(exec, argument);
    case 'S':
        return set_subject(exec, argument);
    case 't':
        return read_duration(exec, argument, &exec->has_timeout, &exec->timeout_ns);
    case 'w':
        return read_duration(exec, argument, &exec->has_max_wait, &exec->max_wait_ns);
    case 'r':
        exec->retry_after = true;
        return 0;
    case 'v':
        exec->verbose = true;
        return 0;
    default:
        if (source_option(&exec->source, option, argument, exec->title))
            return 0;
        usage_hint(exec->title);
        return EXEC_FAILED;
    }
}

static int run_options(struct exec *exec, int argc, char **argv)
{
    static const struct option options[] = {
        {"set", required_argument, NULL, 's'},
        {"name", required_argument, NULL, 's'}, /* with --limit */
        {"limit", required_argument, NULL, 'l'},
        {"amount", required_argument, NULL, 'a'},
        {"subject", required_argument, NULL, 'S'},
        {"timeout", required_argument, NULL, 't'},
        {"max-wait", required_argument, NULL, 'w'},
        {"retry-after", no_argument, NULL, 'r'},
        {"verbose", no_argument, NULL, 'v'},
        SOURCE_OPTIONS,
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option, ending;

    while ((option = getopt_long(argc, argv, "+s:l:a:S:t:w:rvh" SOURCE_LETTERS, options, NULL)) !=
           -1) {
        if (option == 'h')
            return usage_help(help);
        ending = read_option(exec, option, optarg);
        if (ending != 0)
            return ending;
    }
    if (!exec->name)
        return report_usage(exec, "no set is given: name it with -s", "");
    if (exec->limits_n != 0 && exec->subject)
        return report_usage(exec, "a set that is defined here has no subjects", "");
    if (optind == argc)
        return report_usage(exec, "no command is given", "");
    exec->command = argv + optind;
    return run(exec);
}

int run_exec(int argc, char **argv)
{
    struct exec exec = {.title = argv[0]};
    int ending = run_options(&exec, argc, argv);

    amounts_free(&exec.amounts);
    return ending;
}
