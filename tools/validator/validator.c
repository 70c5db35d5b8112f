/* SPDX-License-Identifier: MIT */
#include "validator.h"

#include "tests.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weir/weir.h>

#define VALIDATOR_PATIENCE                                                                         \
    20u                          /* times the time, on a busy machine, or for a plugin that sleeps \
                                  */
#define VALIDATOR_LOADED_MAX 64u /* plugins of a file */

/* A copy of the file, in a directory of its own: no other file is looked at, and it does not change
 * between two tests. */
struct validator_copy {
    char dir[64];
    char path[400];
};

/* What a test is about to be run with. */
struct validator_job {
    const struct validator_options *options;
    const struct validator_copy *copy;
    const struct validator_test *test; /* NULL: tell which plugins there are */
    unsigned number;                   /* of the plugin in its file */
    unsigned seen;
    struct trial_report *report;
    struct validator_listing *listing;
};

/* The plugins of the file, as a process of its own has read them. */
struct validator_listing {
    unsigned n;
    struct {
        uint32_t kind;
        char title[224];
    } plugins[VALIDATOR_LOADED_MAX];
    char refusal[1024];
};

/* ---- the copy ---- */

static int validator_copy_bytes(int from, int to)
{
    static char bytes[65536];
    ssize_t n;

    while ((n = read(from, bytes, sizeof(bytes))) > 0)
        for (ssize_t done = 0, wrote; done < n; done += wrote)
            if ((wrote = write(to, bytes + done, (size_t)(n - done))) < 0)
                return -1;
    return n < 0 ? -1 : 0;
}

static void validator_remove(const struct validator_copy *copy)
{
    unlink(copy->path);
    rmdir(copy->dir);
}

static int validator_copy_file(const char *path, struct validator_copy *ret)
{
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    const char *tmp = getenv("TMPDIR");
    int from, to, r;

    if (snprintf(ret->dir, sizeof(ret->dir), "%s/weir-plugin-XXXXXX",
                 tmp && strlen(tmp) < 32 ? tmp : "/tmp") < 0 ||
        !mkdtemp(ret->dir))
        return -1;
    snprintf(ret->path, sizeof(ret->path), "%s/%.250s", ret->dir, name);
    from = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    to = from < 0 ? -1 : open(ret->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    r = to < 0 ? -1 : validator_copy_bytes(from, to);
    if (from >= 0)
        close(from);
    if (to >= 0 && close(to) < 0)
        r = -1;
    if (r < 0) {
        int code = errno;

        validator_remove(ret);
        errno = code;
    }
    return r;
}

/* ---- in the process of a test ---- */

static const char *validator_kind_name(uint32_t kind)
{
    return kind == WEIR_PLUGIN_ALGORITHM  ? "algorithm"
           : kind == WEIR_PLUGIN_BALANCER ? "balancer"
                                          : "backend";
}

static void validator_list(struct validator_job *job, const struct weir_plugin_info *info)
{
    struct validator_listing *listing = job->listing;

    if (info->refusal)
        snprintf(listing->refusal, sizeof(listing->refusal), "%s", info->refusal->message);
    if (!info->plugin || listing->n == VALIDATOR_LOADED_MAX)
        return;
    listing->plugins[listing->n].kind = info->plugin->kind;
    snprintf(listing->plugins[listing->n].title, sizeof(listing->plugins[0].title),
             "%s %.64s %.100s", validator_kind_name(info->plugin->kind), info->plugin->name,
             info->plugin->version);
    listing->n++;
}

_Noreturn static void validator_test_plugin(const struct validator_job *job,
                                            const struct weir_plugin *plugin)
{
    struct trial trial = {.plugin = plugin,
                          .report = job->report,
                          .seed = job->options->seed,
                          .budget_ns = job->options->budget_ns};

    job->report->is_loaded = true;
    trial_catch_faults(&trial);
    job->test->run(&trial);
    job->report->is_done = true;
    _exit(0);
}

/* For each plugin that is found: those of the copy come first. */
static int validator_on_plugin(void *userdata, const struct weir_plugin_info *info)
{
    struct validator_job *job = userdata;

    if (strcmp(info->path, job->copy->path) != 0)
        return 1;
    if (!job->test)
        validator_list(job, info);
    else if (info->plugin && job->seen++ == job->number)
        validator_test_plugin(job, info->plugin);
    return 0;
}

_Noreturn static void validator_be_child(struct validator_job *job)
{
    const char *dirs[] = {job->copy->dir, NULL};
    const struct weir_options options = {.size = sizeof(options), .plugin_dirs = dirs};
    const struct rlimit time = {.rlim_cur = TRIAL_ROUND_S, .rlim_max = RLIM_INFINITY};
    const struct rlimit no_core = {0};

    setrlimit(RLIMIT_CPU, &time);
    setrlimit(RLIMIT_CORE, &no_core);
    (void)weir_plugins(&options, validator_on_plugin, job, NULL);
    job->report->is_done = !job->test;
    _exit(0);
}

/* ---- in the command's process ---- */

/* Waits for a child. Returns 0 with its status, or -1: it took too long, and was killed. */
static int validator_await(pid_t child, unsigned seconds, int *ret_status)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    int r = 0;

    for (uint64_t waited = 0; waitpid(child, ret_status, WNOHANG) == 0; waited++) {
        if (waited > seconds * 500u && r == 0) {
            kill(child, SIGKILL);
            r = -1;
        }
        nanosleep(&pause, NULL);
    }
    return r;
}

/* Runs a job in a process of its own. Returns 0, or -1 if there is none. Says in the report what
 * the process could not say. */
static int validator_fork(struct validator_job *job)
{
    unsigned seconds = (unsigned)(job->options->budget_ns / 1000000000u + TRIAL_ROUND_S);
    struct trial_report *report = job->report;
    char *text = report->finding;
    size_t room = sizeof(report->finding);
    pid_t child;
    int status = 0, late;

    memset(report, 0, sizeof(*report));
    fflush(NULL);
    child = fork();
    if (child == 0)
        validator_be_child(job);
    if (child < 0)
        return -1;
    late = validator_await(child, seconds * VALIDATOR_PATIENCE, &status);
    if (late || (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU))
        snprintf(text, room, "does not end");
    else if (WIFSIGNALED(status))
        snprintf(text, room, "crashes: %s", strsignal(WTERMSIG(status)));
    else if (!report->is_done)
        snprintf(text, room,
                 job->test && !report->is_loaded ? "is not found a second time"
                                                 : "ends the process");
    return 0;
}

static bool validator_wants(const struct validator_options *options, const char *test)
{
    return !options->only || strcmp(options->only, test) == 0;
}

static void validator_report(const struct validator_job *job, const char *plugin)
{
    const struct trial_report *report = job->report;
    struct validator_result result = {.plugin = plugin,
                                      .test = job->test->name,
                                      .promise = job->test->promise,
                                      .subject = report->subject,
                                      .doing = report->doing,
                                      .calls = report->calls};

    result.verdict = report->finding[0]   ? VERDICT_WRONG
                     : report->skipped[0] ? VERDICT_SKIPPED
                                          : VERDICT_FINE;
    result.text = report->finding[0] ? report->finding : report->skipped;
    job->options->report(job->options->userdata, &result);
}

static int validator_run_tests(struct validator_job *job, const struct validator_test *tests,
                               const char *plugin)
{
    for (; tests->name; tests++) {
        if (!validator_wants(job->options, tests->name))
            continue;
        job->test = tests;
        job->seen = 0;
        if (validator_fork(job) < 0)
            return -1;
        validator_report(job, plugin);
    }
    return 0;
}

static bool validator_has_backend(const struct validator_listing *listing)
{
    for (unsigned i = 0; i < listing->n; i++)
        if (listing->plugins[i].kind == WEIR_PLUGIN_BACKEND)
            return true;
    return false;
}

/* Reports what was found in the file without running it, of each test. A backend may do most of it.
 */
static void validator_look(const struct validator_options *options, bool has_backend)
{
    static const struct validator_test tests[] = {
        {"file", "it is a shared object", NULL},
        {"imports", "imports nothing but what a toolchain adds", NULL},
        {"exports", "exports its table alone", NULL},
        {"writable-data", "has no writable static data", NULL},
        {"constructors", "runs nothing when it is loaded", NULL},
    };
    static struct file_finding findings[sizeof(tests) / sizeof(tests[0])];
    unsigned n = file_look(options->path, findings, sizeof(tests) / sizeof(tests[0]));

    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        struct validator_result result = {.plugin = "",
                                          .test = tests[i].name,
                                          .promise = tests[i].promise,
                                          .text = "",
                                          .subject = "",
                                          .doing = ""};

        for (unsigned j = 0; j < n; j++)
            if (strcmp(findings[j].test, tests[i].name) == 0) {
                result.verdict = VERDICT_WRONG;
                result.text = findings[j].text;
            }
        if (has_backend) {
            result.verdict = VERDICT_SKIPPED;
            result.text = "a backend may do I/O, allocate and lock";
        }
        if (validator_wants(options, tests[i].name))
            options->report(options->userdata, &result);
    }
}

/* Loads the file in a process of its own, and reports how that went. */
static int validator_load(struct validator_job *job)
{
    static const struct validator_test load = {"load", "the library takes it", NULL};
    struct validator_listing *listing = job->listing;

    if (validator_fork(job) < 0)
        return -1;
    if (!job->report->finding[0] && (listing->refusal[0] || !listing->n))
        snprintf(job->report->finding, sizeof(job->report->finding), "%s",
                 listing->refusal[0] ? listing->refusal
                                     : "is not looked at: its name does not end in .so");
    job->test = &load;
    if (validator_wants(job->options, load.name) || job->report->finding[0])
        validator_report(job, "");
    return 0;
}

static int validator_run_all(struct validator_job *job)
{
    if (validator_load(job) < 0)
        return -1;
    validator_look(job->options, validator_has_backend(job->listing));
    for (job->number = 0; job->number < job->listing->n; job->number++) {
        uint32_t kind = job->listing->plugins[job->number].kind;
        const char *title = job->listing->plugins[job->number].title;
        int r = 0;

        if (kind == WEIR_PLUGIN_ALGORITHM)
            r = validator_run_tests(job, algorithm_tests, title);
        else if (kind == WEIR_PLUGIN_BALANCER)
            r = validator_run_tests(job, balancer_tests, title);
        if (r < 0)
            return r;
    }
    return 0;
}

int validator_run(const struct validator_options *options)
{
    size_t size = sizeof(struct trial_report) + sizeof(struct validator_listing);
    struct validator_copy copy;
    struct trial_report *shared;
    struct validator_job job = {.options = options, .copy = &copy};
    int r, code;

    if (validator_copy_file(options->path, &copy) < 0)
        return -1;
    shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        code = errno;
        validator_remove(&copy);
        errno = code;
        return -1;
    }
    job.report = shared;
    job.listing = (struct validator_listing *)(shared + 1);
    r = validator_run_all(&job);
    code = errno;
    munmap(shared, size);
    validator_remove(&copy);
    errno = code;
    return r;
}
