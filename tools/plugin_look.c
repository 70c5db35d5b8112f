/* SPDX-License-Identifier: MIT */
/* Loads a plugin file in a child, which writes what it finds to a pipe. */
#include "plugin_look.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TEXT_MAX  ((uint64_t)1 << 20) /* bytes of one entry */
#define LOOKS_MAX 65                  /* entries of one file */
#define LOOK_END  LOOK_OUTCOMES       /* the outcome of the last entry, which has nothing else */

/* An entry in the pipe; its text follows. */
struct wire_entry {
    uint64_t state_id, text_size;
    uint32_t outcome, kind;
    char name[72], version[256];
};

/* ---- the child ---- */

/* Where the child writes entries. */
struct reporter {
    FILE *out;
    const struct looks *looks;
};

static int report(void *userdata, const struct weir_plugin_info *info)
{
    const struct reporter *reporter = userdata;
    struct wire_entry entry = {.outcome = info->plugin    ? LOOK_PLUGIN
                                          : info->skipped ? LOOK_SKIPPED
                                                          : LOOK_REFUSED};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return 1;
    reporter->looks->render(out, info);
    if (fclose(out) != 0)
        return 1;
    if (info->plugin) {
        entry.kind = info->plugin->kind;
        entry.state_id = info->plugin->state_id;
        snprintf(entry.name, sizeof(entry.name), "%s", info->plugin->name);
        snprintf(entry.version, sizeof(entry.version), "%s", info->plugin->version);
    }
    entry.text_size = size;
    fwrite(&entry, sizeof(entry), 1, reporter->out);
    fwrite(text, 1, size, reporter->out);
    free(text);
    return ferror(reporter->out);
}

/* Loads the file and ends. What it prints while it is loaded is no part of the output. */
static void run_child(const struct looks *looks, const char *path, int fd)
{
    const struct rlimit no_core = {0, 0};
    const struct wire_entry end = {.outcome = LOOK_END};
    struct reporter reporter = {fdopen(fd, "w"), looks};
    int r;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    if (!reporter.out)
        _exit(1);
    r = weir_plugin_file(path, report, &reporter, NULL);
    if (r >= 0 || r == -ENOENT) { /* it may have been removed meanwhile */
        fwrite(&end, sizeof(end), 1, reporter.out);
        fflush(reporter.out);
    }
    _exit(0);
}

/* ---- the command ---- */

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Returns how long poll() may wait: until then, rounded up, or for ever. */
static int milliseconds_until(uint64_t until_ns)
{
    uint64_t now = now_ns(), left = until_ns > now ? (until_ns - now + 999999) / 1000000 : 0;

    return until_ns == WEIR_FOREVER ? -1 : left < 1000000 ? (int)left : 1000000;
}

/* Reads all of it. Returns 0, -EPIPE (the writer is gone) or -ETIMEDOUT. */
static int read_until(int fd, void *to, size_t n, uint64_t until_ns)
{
    size_t at = 0;

    while (at < n) {
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        int ready = poll(&readable, 1, milliseconds_until(until_ns));
        ssize_t got;

        if (ready == 0 && now_ns() >= until_ns)
            return -ETIMEDOUT;
        if (ready <= 0)
            continue;
        got = read(fd, (char *)to + at, n - at);
        if (got == 0 || (got < 0 && errno != EINTR))
            return -EPIPE;
        at += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

static struct look *append(struct looks *looks, const char *path)
{
    struct look *grown = realloc(looks->items, (looks->n + 1) * sizeof(*grown));

    if (!grown)
        return NULL;
    looks->items = grown;
    grown[looks->n] = (struct look){.path = strdup(path)};
    return grown[looks->n].path ? &grown[looks->n++] : NULL;
}

static void drop_from(struct looks *looks, size_t n)
{
    while (looks->n > n) {
        looks->n--;
        free(looks->items[looks->n].path);
        free(looks->items[looks->n].text);
    }
}

/* Reads entries until the last one. The process that writes them may run anything, so they are not
 * trusted. Returns 0, -ENOMEM, or what read_until() returns. */
static int read_entries(struct looks *looks, const char *path, int fd, uint64_t until_ns)
{
    struct wire_entry entry;

    for (int i = 0; i <= LOOKS_MAX; i++) {
        struct look *look;
        int r = read_until(fd, &entry, sizeof(entry), until_ns);

        if (r < 0 || entry.outcome == LOOK_END)
            return r;
        if (entry.outcome > LOOK_END || entry.text_size > TEXT_MAX ||
            entry.kind > WEIR_PLUGIN_BACKEND)
            return -EPIPE;
        look = append(looks, path);
        if (!look)
            return -ENOMEM;
        look->outcome = entry.outcome;
        look->kind = entry.kind;
        look->state_id = entry.state_id;
        snprintf(look->name, sizeof(look->name), "%.*s", (int)sizeof(entry.name), entry.name);
        snprintf(look->version, sizeof(look->version), "%.*s", (int)sizeof(entry.version),
                 entry.version);
        look->text_size = (size_t)entry.text_size;
        look->text = malloc(look->text_size + 1);
        if (!look->text)
            return -ENOMEM;
        r = read_until(fd, look->text, look->text_size, until_ns);
        if (r < 0)
            return r;
    }
    return -EPIPE;
}

int looks_add_refusal(struct looks *looks, const char *path, const struct weir_error *refusal)
{
    const struct weir_plugin_info info = {sizeof(info), path, NULL, refusal, 0, 0};
    struct look *look = append(looks, path);
    FILE *out;

    if (!look)
        return -ENOMEM;
    look->outcome = LOOK_REFUSED;
    out = open_memstream(&look->text, &look->text_size);
    if (!out)
        return -ENOMEM;
    looks->render(out, &info);
    return fclose(out) == 0 ? 0 : -ENOMEM;
}

/* Ends the child, unless it has ended. Says how it did. */
static void end_child(pid_t child, uint64_t until_ns, bool is_late, struct weir_error *ret)
{
    int status = 0;

    while (!is_late && waitpid(child, &status, WNOHANG) == 0) {
        const struct timespec moment = {0, 1000000};

        nanosleep(&moment, NULL); /* its end of the pipe is closed: it is about to end */
        is_late = now_ns() >= until_ns;
    }
    kill(-child, SIGKILL); /* whatever it has started, too */
    if (is_late) {
        waitpid(child, &status, 0);
        snprintf(ret->message, sizeof(ret->message), "it hangs: it is not loaded in time");
    } else if (WIFSIGNALED(status)) {
        snprintf(ret->message, sizeof(ret->message), "it crashes when it is loaded: %s",
                 strsignal(WTERMSIG(status)));
    } else {
        snprintf(ret->message, sizeof(ret->message),
                 "it ends the process that loads it, with status %d", WEXITSTATUS(status));
    }
}

/* Replaces what was read of a file that cannot be loaded by one refusal. */
static int refuse(struct looks *looks, size_t before, const char *path, const char *why)
{
    struct weir_error refusal = {.code = -ENOEXEC};

    drop_from(looks, before);
    snprintf(refusal.message, sizeof(refusal.message), "plugin file `%s` is refused: %.200s", path,
             why);
    return looks_add_refusal(looks, path, &refusal);
}

int looks_add_file(struct looks *looks, const char *path, uint64_t timeout_ns)
{
    uint64_t now = now_ns();
    uint64_t until_ns = timeout_ns < WEIR_FOREVER - now ? now + timeout_ns : WEIR_FOREVER;
    struct weir_error ending = {.code = 0};
    size_t before = looks->n;
    pid_t child;
    int fds[2], r;

    if (pipe(fds) < 0)
        return -errno;
    child = fork();
    if (child == 0) {
        setpgid(0, 0);
        close(fds[0]);
        run_child(looks, path, fds[1]);
    }
    r = child < 0 ? -errno : 0;
    close(fds[1]);
    if (r == 0) {
        setpgid(child, child); /* whichever of both is first */
        r = read_entries(looks, path, fds[0], until_ns);
        end_child(child, until_ns, r == -ETIMEDOUT, &ending);
        if (r == -EPIPE || r == -ETIMEDOUT)
            r = refuse(looks, before, path, ending.message);
    }
    close(fds[0]);
    return r;
}

void looks_free(struct looks *looks)
{
    drop_from(looks, 0);
    free(looks->items);
}

static bool is_in_own_file(const struct look *plugin)
{
    const char *slash = strrchr(plugin->path, '/'), *file = slash ? slash + 1 : plugin->path;
    size_t n = strlen(plugin->name);

    return strncmp(file, plugin->name, n) == 0 && strcmp(file + n, ".so") == 0;
}

const struct look *looks_used(const struct looks *looks, const struct look *plugin)
{
    const struct look *first = NULL;

    for (size_t i = 0; i < looks->n; i++) {
        const struct look *look = &looks->items[i];

        if (look->outcome != LOOK_PLUGIN || look->kind != plugin->kind ||
            strcmp(look->name, plugin->name) != 0)
            continue;
        if (is_in_own_file(look))
            return look;
        first = first ? first : look;
    }
    return first;
}

bool looks_is_hidden(const struct looks *looks, const struct look *plugin)
{
    const struct look *used = looks_used(looks, plugin);

    return used != plugin &&
           (used->state_id != plugin->state_id || strcmp(used->version, plugin->version) != 0);
}
