/* SPDX-License-Identifier: MIT */
/* Waits for the grant of a shared set, as the command line says. */
#include "grant.h"
#include "ahead.h"
#include "engine_grant.h"
#include "limit_option.h"
#include "time_text.h"
#include "usage.h"
#include "weir.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char grant_help[] =
    "  -s, --set, --name NAME   the set, or a pool of such sets\n"
    "  -f, --file FILE          the configuration; default: the file that WEIR_CONFIG names\n"
    "  -l, --limit KEY:N        define the set here: N may be held at a time\n"
    "  -l, --limit KEY:N/WINDOW[/ALGORITHM]\n"
    "                           N per WINDOW, as in \"calls:100/60s\" or \"calls:10/s\"; default:\n"
    "                           gcra\n"
    "  -a, --amount KEY=N       acquire N of KEY instead of 1; 0: none\n"
    "  -S, --subject TEXT       the subject, if the set has limits per subject\n"
    "      --class NAME         the class, if the set has priorities (0 is the most urgent) or\n"
    "                           shares\n"
    "  -t, --timeout DURATION   wait no longer; 0s: not at all\n"
    "  -w, --max-wait DURATION  do not begin to wait if the forecast is longer\n"
    "  -E, --exit-code N        the exit status if it was not granted in time, instead of 123 and\n"
    "                           124\n"
    "  -r, --retry-after        if it was not granted, write when to try again: seconds from now,\n"
    "                           or unknown, or never\n"
    "  -v, --verbose            say what is requested and when it was granted\n"
    "      --process-dir DIR    where shared sets are; made if it is missing\n"
    "  -d, --plugin-dir DIR     look for plugins in DIR first\n"
    "  -h, --help               show this text\n";

int grant_fail(const struct grant *grant, int code)
{
    fprintf(stderr, "%s: %s\n", grant->title, strerror(-code));
    return EXEC_FAILED;
}

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
static uint64_t patience_ns(const struct grant *grant)
{
    uint64_t timeout_ns = grant->has_timeout ? grant->timeout_ns : WEIR_FOREVER;
    uint64_t max_wait_ns = grant->has_max_wait ? grant->max_wait_ns : WEIR_FOREVER;

    return timeout_ns < max_wait_ns ? timeout_ns : max_wait_ns;
}

/* Waits before the next attempt. Returns false if that would be too long. Processes that have come
 * together try apart. */
static bool pause_for_place(const struct grant *grant, uint64_t *pause_ns)
{
    uint64_t waited_ns = now_ns() - grant->begun_ns, patience = patience_ns(grant);
    uint64_t apart_ns = (uint64_t)getpid() * 7919 % 1024 * (*pause_ns / 2048);
    uint64_t ns = *pause_ns / 2 + apart_ns;
    struct timespec pause;

    if (waited_ns >= patience)
        return false;
    if (ns > patience - waited_ns)
        ns = patience - waited_ns;
    if (grant->verbose && *pause_ns == PLACE_PAUSE_MIN_NS)
        fprintf(stderr, "%s: `%s` is shared by as many processes as can be: waiting for a place\n",
                grant->title, grant->name);
    pause = (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    nanosleep(&pause, NULL);
    *pause_ns = *pause_ns * 2 < PLACE_PAUSE_MAX_NS ? *pause_ns * 2 : PLACE_PAUSE_MAX_NS;
    return true;
}

/* Repeats an attempt to attach to the set as long as it lacks a place. Returns what that returned
 * last: 0, or an error that was reported unless it is -EUSERS. Takes the time that this took from
 * what is left. */
static int wait_for_place(struct grant *grant, int (*attempt)(struct grant *grant))
{
    uint64_t pause_ns = PLACE_PAUSE_MIN_NS, waited_ns;
    int r;

    while ((r = attempt(grant)) == -EUSERS)
        if (!pause_for_place(grant, &pause_ns))
            return r;
    if (pause_ns == PLACE_PAUSE_MIN_NS)
        return r;
    waited_ns = now_ns() - grant->begun_ns;
    if (grant->has_timeout && grant->timeout_ns != WEIR_FOREVER)
        grant->timeout_ns -= waited_ns < grant->timeout_ns ? waited_ns : grant->timeout_ns;
    if (grant->has_max_wait && grant->max_wait_ns != WEIR_FOREVER)
        grant->max_wait_ns -= waited_ns < grant->max_wait_ns ? waited_ns : grant->max_wait_ns;
    return r;
}

static int open_source(struct grant *grant)
{
    return source_open(&grant->source, grant->name, grant->title, &grant->w);
}

/* Opens a pool of the one set that the command line defines. */
static int define_set(struct grant *grant)
{
    struct weir_set_spec set = {.size = sizeof(set),
                                .name = grant->name,
                                .limits = grant->limits,
                                .limits_n = grant->limits_n,
                                .backend = "process"};
    struct weir_pool_spec pool = {.size = sizeof(pool), .sets = &set, .sets_n = 1};
    struct weir_error error = {0};
    int r = weir_pool_new(&grant->pool, grant->w, &pool, &error);

    if (r == 0 || r == -EUSERS)
        return r;
    error.code = r;
    source_complain(grant->title, &error);
    return r;
}

static int open_set(struct grant *grant)
{
    /* Workers begin at different sets of a pool, and each process requests only once. */
    struct weir_error error = {0};
    int r = weir_pool_open(&grant->pool, grant->w, grant->name, (uint32_t)getpid(), &error);

    if (r == 0)
        return 0;
    if (r != -ENOENT)
        return grant_fail(grant, r);
    source_complain(grant->title, &error);
    return EXEC_FAILED;
}

/* Refuses sets that would be shared with no process and so limit nothing. */
static int require_shared(struct grant *grant)
{
    for (size_t i = 0; i < weir_pool_sets(grant->pool); i++) {
        weir_set *set = weir_pool_set(grant->pool, i);
        struct weir_set_info info = {.size = sizeof(info)};

        weir_set_info(set, &info);
        grant->of_engine = grant->of_engine || (strcmp(info.backend, "process") != 0 &&
                                                strcmp(info.backend, "thread") != 0);
        if (strcmp(info.backend, "thread") != 0)
            continue;
        if (!grant->source.file && !getenv("WEIR_CONFIG"))
            fprintf(stderr, "%s: nothing defines `%s`: name a file (-f) or limits (--limit)\n",
                    grant->title, grant->name);
        else
            fprintf(
                stderr,
                "%s: set `%s` is not shared by processes: it needs `backend: process`, or one of "
                "`backends`\n",
                grant->title, weir_set_name(set));
        return EXEC_FAILED;
    }
    return 0;
}

static int complete_amounts(struct grant *grant)
{
    const char *key = NULL;
    int r = amounts_complete(&grant->amounts, grant->pool, &key);

    if (r == 0)
        return 0;
    if (r != -ENOENT)
        return grant_fail(grant, r);
    fprintf(stderr, "%s: `%s` has no limit of the key `%s`\n", grant->title, grant->name, key);
    return EXEC_FAILED;
}

static void write_retry_after(uint64_t ns)
{
    char text[TIME_TEXT_MAX];

    puts(ns == 0 ? "unknown" : ns == WEIR_FOREVER ? "never" : time_text_seconds(ns, text));
}

/* Reports that no place was free in time. */
static int report_no_place(const struct grant *grant)
{
    bool timed_out = grant->has_timeout && grant->timeout_ns == patience_ns(grant);

    if (grant->verbose)
        fprintf(stderr, "%s: %s: no place was free\n", grant->title,
                timed_out ? "timed out" : "refused");
    if (grant->retry_after) {
        write_retry_after(0);
        if (fflush(stdout) != 0)
            return grant_fail(grant, -errno);
    }
    return timed_out ? GRANT_TIMED_OUT : GRANT_REFUSED;
}

/* Attaches to the set, once there is a place. */
static int attach(struct grant *grant)
{
    int r;

    source_read(&grant->source);
    if (!source_make_process_dir(&grant->source, grant->title))
        return EXEC_FAILED;
    grant->begun_ns = now_ns();
    grant->source.waits_for_place = true;
    grant->source.needs_no_config = grant->limits_n != 0;
    r = wait_for_place(grant, open_source);
    if (r == 0 && grant->limits_n != 0)
        r = wait_for_place(grant, define_set);
    if (r == -EUSERS)
        return report_no_place(grant);
    if (r < 0)
        return EXEC_FAILED;
    return grant->limits_n != 0 ? 0 : open_set(grant);
}

int grant_open(struct grant *grant)
{
    int ending = attach(grant);

    if (ending == 0)
        ending = require_shared(grant);
    if (ending == 0)
        ending = complete_amounts(grant);
    return ending;
}

/* ---- waiting ---- */

static bool has_subjects(weir_pool *pool)
{
    for (size_t i = 0; i < weir_pool_sets(pool); i++) {
        struct weir_set_info info = {.size = sizeof(info)};

        weir_set_info(weir_pool_set(pool, i), &info);
        if (info.subjects_max != 0)
            return true;
    }
    return false;
}

/* Reports an error other than a refusal. -EINVAL without a subject comes from a per-subject set. */
static int report_failure(const struct grant *grant, int r)
{
    const char *why = !grant->of_engine    ? NULL
                      : r == -EHOSTUNREACH ? "the engine that keeps it cannot be asked"
                      : r == -EEXIST       ? "the engine that keeps it has another definition"
                      : r == -EACCES       ? "the engine that keeps it does not permit its use"
                                           : NULL;

    if (why) {
        fprintf(stderr, "%s: `%s`: %s\n", grant->title, grant->name, why);
        return EXEC_FAILED;
    }
    if (r != -EINVAL || grant->subject || !has_subjects(grant->pool))
        return grant_fail(grant, r);
    fprintf(stderr, "%s: `%s` has limits per subject: name one (--subject)\n", grant->title,
            grant->name);
    return EXEC_FAILED;
}

/* Reports a refusal. -EAGAIN is a timeout if only the timeout forbade to wait. */
static int report_refusal(const struct grant *grant, int r, const struct weir_refusal *refusal)
{
    bool timed_out = r == -ETIMEDOUT || (r == -EAGAIN && !grant->has_max_wait &&
                                         grant->has_timeout && grant->timeout_ns == 0);
    const char *full = !grant->subject
                           ? "refused: the wait queue is full"
                           : "refused: the wait queue is full, or there are too many subjects";
    static const char circle[] =
        "refused: it would wait for ever for what the commands hold that it runs in";
    const char *why = timed_out       ? "timed out"
                      : r == -EAGAIN  ? "refused: it would take too long"
                      : r == -ENOBUFS ? full
                      : r == -EDEADLK ? circle
                                      : "refused: more than can ever be granted";
    bool is_final = r == -ERANGE || r == -EDEADLK;

    if (r != -ETIMEDOUT && r != -EAGAIN && r != -ENOBUFS && !is_final)
        return report_failure(grant, r);
    if (grant->verbose || is_final)
        fprintf(stderr, "%s: %s%s%s%s\n", grant->title, why, refusal->key[0] != '\0' ? " (`" : "",
                refusal->key, refusal->key[0] != '\0' ? "`)" : "");
    if (grant->retry_after) {
        write_retry_after(r == -ERANGE ? WEIR_FOREVER : refusal->retry_after_ns);
        if (fflush(stdout) != 0)
            return grant_fail(grant, -errno);
    }
    return timed_out ? GRANT_TIMED_OUT : is_final ? GRANT_NEVER : GRANT_REFUSED;
}

static void print_request(const struct grant *grant)
{
    fprintf(stderr, "%s: asking `%s` for", grant->title, grant->name);
    for (size_t i = 0; i < grant->amounts.n; i++)
        if (grant->amounts.items[i].amount != 0)
            fprintf(stderr, " %s=%" PRIu64, grant->amounts.items[i].key,
                    grant->amounts.items[i].amount);
    fputc('\n', stderr);
}

static int wait_in_queue(struct grant *grant, const struct weir_request *request,
                         struct weir_refusal *refusal)
{
    struct ahead ahead;
    int r;

    ahead_begin(&ahead, grant->pool, grant->title);
    r = weir_acquire(grant->pool, request, &grant->acquisition, refusal);
    ahead_end(&ahead);
    return r;
}

int grant_request(struct grant *grant)
{
    struct weir_request request = {.size = sizeof(request),
                                   .amounts = grant->amounts.items,
                                   .amounts_n = grant->amounts.n,
                                   .timeout_ns = grant->timeout_ns,
                                   .max_wait_ns = grant->max_wait_ns,
                                   .subject = grant->subject,
                                   .subject_size = grant->subject ? strlen(grant->subject) : 0,
                                   .within_process = (uint32_t)getpid(),
                                   .route = (uint64_t)getpid(),
                                   .wait_class = grant->wait_class};
    struct weir_refusal refusal = {.size = sizeof(refusal), .key = ""};
    bool at_once = (grant->has_timeout && grant->timeout_ns == 0) ||
                   (grant->has_max_wait && grant->max_wait_ns == 0);
    uint64_t begun = weir_now(grant->w);
    int r;

    if (grant->verbose)
        print_request(grant);
    if (at_once)
        r = weir_try_acquire(grant->pool, &request, &grant->acquisition, &refusal);
    else
        r = grant->of_engine ? engine_grant_wait(grant, &request, &refusal)
                             : wait_in_queue(grant, &request, &refusal);
    if (r == -ECANCELED)
        return GRANT_ENDED;
    if (r < 0)
        return report_refusal(grant, r, &refusal);
    if (grant->verbose)
        fprintf(stderr, "%s: granted by `%s` after %" PRIu64 " ms\n", grant->title,
                weir_acquisition_set(grant->acquisition), (weir_now(grant->w) - begun) / 1000000);
    return 0;
}

void grant_return(struct grant *grant)
{
    for (size_t i = 0; i < grant->amounts.n; i++)
        weir_update(grant->acquisition, grant->amounts.items[i].key, 0); /* fails without updates */
    weir_release(&grant->acquisition);
}

void grant_detach(struct grant *grant)
{
    grant->pool = weir_pool_close(grant->pool);
    grant->w = weir_close(grant->w);
}

void grant_free(struct grant *grant)
{
    grant_detach(grant);
    amounts_free(&grant->amounts);
    for (size_t i = 0; i < grant->texts_n; i++)
        free(grant->texts[i]);
    free(grant->texts);
    source_free(&grant->source);
}

int grant_exit_code(const struct grant *grant, int result)
{
    if (result == GRANT_NEVER)
        return GRANT_REFUSED;
    if (grant->has_exit_code && (result == GRANT_REFUSED || result == GRANT_TIMED_OUT))
        return grant->exit_code;
    return result;
}

/* ---- command line ---- */

int grant_fail_usage(const struct grant *grant, const char *what, const char *which)
{
    usage_wrong(grant->title, what, which);
    return EXEC_FAILED;
}

/* Reports a wrong argument of an option. */
static int report_argument(const struct grant *grant, const char *argument, const char *what)
{
    fprintf(stderr, "%s: `%s`: %s\n", grant->title, argument, what);
    usage_hint(grant->title);
    return EXEC_FAILED;
}

/* Returns a copy of an argument that lives as long as the grant, or NULL. */
static char *copy_argument(struct grant *grant, const char *argument)
{
    char **grown = realloc(grant->texts, (grant->texts_n + 1) * sizeof(*grown));
    char *copy = grown ? strdup(argument) : NULL;

    if (grown)
        grant->texts = grown;
    if (copy)
        grant->texts[grant->texts_n++] = copy;
    return copy;
}

static int add_limit(struct grant *grant, const char *argument)
{
    char *copy = copy_argument(grant, argument);
    struct option_complaint wrong;

    if (!copy)
        return grant_fail(grant, -ENOMEM);
    if (grant->limits_n == WEIR_LIMITS_MAX)
        return grant_fail_usage(grant, "too many limits", "");
    if (!limit_option_parse(copy, &grant->limits[grant->limits_n], &wrong))
        return report_argument(grant, argument, wrong.text);
    grant->limits_n++;
    return 0;
}

static int add_amount(struct grant *grant, const char *argument)
{
    char *copy = copy_argument(grant, argument);
    struct option_complaint wrong;
    struct weir_amount amount;
    int r;

    if (!copy)
        return grant_fail(grant, -ENOMEM);
    if (!amount_option_parse(copy, &amount, &wrong))
        return report_argument(grant, argument, wrong.text);
    r = amounts_add(&grant->amounts, amount.key, amount.amount);
    if (r == -EEXIST)
        return grant_fail_usage(grant, "there are two amounts of ", amount.key);
    return r < 0 ? grant_fail(grant, r) : 0;
}

static int set_subject(struct grant *grant, const char *argument)
{
    if (argument[0] == '\0' || strlen(argument) > WEIR_SUBJECT_MAX)
        return grant_fail_usage(grant, "a subject is 1 to 4096 bytes", "");
    grant->subject = argument;
    return 0;
}

static int read_duration(const struct grant *grant, const char *argument, bool *ret_given,
                         uint64_t *ret_ns)
{
    struct option_complaint wrong;

    if (!duration_option_parse(argument, ret_ns, &wrong))
        return report_argument(grant, argument, wrong.text);
    *ret_given = true;
    return 0;
}

static int read_exit_code(struct grant *grant, const char *argument)
{
    size_t digits = strspn(argument, "0123456789");

    if (digits == 0 || digits > 3 || argument[digits] != '\0' || atoi(argument) > 255)
        return report_argument(grant, argument, "an exit code is 0 to 255");
    grant->exit_code = atoi(argument);
    grant->has_exit_code = true;
    return 0;
}

int grant_option(struct grant *grant, int option, const char *argument)
{
    switch (option) {
    case 's':
        grant->name = argument;
        return 0;
    case 'l':
        return add_limit(grant, argument);
    case 'a':
        return add_amount(grant, argument);
    case 'S':
        return set_subject(grant, argument);
    case GRANT_CLASS:
        grant->wait_class = argument;
        return 0;
    case 't':
        return read_duration(grant, argument, &grant->has_timeout, &grant->timeout_ns);
    case 'w':
        return read_duration(grant, argument, &grant->has_max_wait, &grant->max_wait_ns);
    case 'E':
        return read_exit_code(grant, argument);
    case 'r':
        grant->retry_after = true;
        return 0;
    case 'v':
        grant->verbose = true;
        return 0;
    default:
        if (source_option(&grant->source, option, argument, grant->title))
            return 0;
        usage_hint(grant->title);
        return EXEC_FAILED;
    }
}

int grant_check_options(const struct grant *grant)
{
    if (!grant->name)
        return grant_fail_usage(grant, "no set is given: name it with -s", "");
    if (grant->limits_n != 0 && grant->subject)
        return grant_fail_usage(grant, "a set that is defined here has no subjects", "");
    return 0;
}
