/* SPDX-License-Identifier: MIT */
/*
 * The time of an acquisition with its release on a Redis server, by the plugin, beside that of the
 * raw calls on a blocking socket of the test's own.
 *
 *     redis_bench PLUGIN SOCKET RUNS
 */
#include "engine_user.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define REPLY_MAX 4096

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    require(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    return fd;
}

/* Sends a command in one write, and reads its reply in one read. */
static void raw_call(int fd, char reply[REPLY_MAX], const char *const *words)
{
    char command[8192];
    size_t n = 0, words_n = 0;
    while (words[words_n])
        words_n++;
    n += (size_t)sprintf(command, "*%zu\r\n", words_n);
    for (size_t i = 0; i < words_n; i++)
        n += (size_t)sprintf(command + n, "$%zu\r\n%s\r\n", strlen(words[i]), words[i]);
    require(write(fd, command, n) == (ssize_t)n);
    ssize_t r = read(fd, reply, REPLY_MAX - 1);
    require(r > 0);
    reply[r] = '\0';
    require(reply[0] != '-');
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, uint64_t *times, size_t n)
{
    qsort(times, n, sizeof(*times), by_value);
    printf("%-44s p50 %6.1f us, p99 %6.1f us\n", what, (double)times[n / 2] / 1000,
           (double)times[n * 99 / 100] / 1000);
}

static void bench_raw(const char *path, size_t runs)
{
    const char *text =
        "0000000000000002/-/100/5000000/r,10/g,1000000,1000000,1000000,1000000,0,0,1,0";
    char reply[REPLY_MAX], run[64] = "", serial[24], *at;
    uint64_t *acquires = calloc(runs, sizeof(*acquires)), *both = calloc(runs, sizeof(*both));
    int fd = connect_to(path);
    require(acquires && both);
    raw_call(fd, reply, (const char *const[]){"INFO", "server", NULL});
    at = strstr(reply, "run_id:");
    require(at && sscanf(at, "run_id:%63[0-9a-f]", run) == 1);
    raw_call(fd, reply,
             (const char *const[]){"FCALL", "weir_open", "1", "raw", run, text, "node", "inbox",
                                   "0", NULL});
    for (size_t i = 0; i < runs; i++) {
        uint64_t begin = now_ns();
        snprintf(serial, sizeof(serial), "%zu", i + 1);
        raw_call(fd, reply,
                 (const char *const[]){"FCALL", "weir_acquire", "1", "raw", run, text, "node", "",
                                       "0", serial, "try", "-1", "-1", "1", "1", NULL});
        acquires[i] = now_ns() - begin;
        raw_call(fd, reply,
                 (const char *const[]){"FCALL", "weir_release", "1", "raw", run, text, "node", "0",
                                       serial, "end", "1", "1", NULL});
        both[i] = now_ns() - begin;
    }
    report("raw: weir_acquire", acquires, runs);
    report("raw: weir_acquire and weir_release", both, runs);
    for (size_t i = 0; i < runs / 10; i++) {
        struct timespec pause = {0, 500000};
        nanosleep(&pause, NULL);
        snprintf(serial, sizeof(serial), "%zu", runs + i + 1);
        uint64_t begin = now_ns();
        raw_call(fd, reply,
                 (const char *const[]){"FCALL", "weir_acquire", "1", "raw", run, text, "node", "",
                                       "0", serial, "try", "-1", "-1", "1", "1", NULL});
        acquires[i] = now_ns() - begin;
        raw_call(fd, reply,
                 (const char *const[]){"FCALL", "weir_release", "1", "raw", run, text, "node", "0",
                                       serial, "end", "1", "1", NULL});
    }
    report("raw: weir_acquire, after a pause", acquires, runs / 10);
    close(fd);
    free(acquires);
    free(both);
}

static void bench_plugin(const char *plugin, const char *path, size_t runs)
{
    struct user user = {0};
    struct weir_reason reason = {0};
    char url[256];
    const uint64_t amounts[] = {1, 1};
    uint64_t *acquires = calloc(runs, sizeof(*acquires)), *both = calloc(runs, sizeof(*both));
    struct request_args args = {
        .amounts = amounts, .mode = WEIR_BACKEND_TRY, .timeout_ns = PATIENCE_NS};
    struct weir_backend_verdict verdict = {0};
    snprintf(url, sizeof(url), "unix://%s", path);
    require(acquires && both);
    require(user_open(&user, plugin, &reason, (const char *const[]){"url", url, NULL}) == 0);
    void *set = user_open_set(&user, "bench", 10, 1000000, 0);
    user_start(&user);
    /* A server that was just started grants nothing for the length of a session. */
    while (user_acquire(&user, set, &args, &verdict) == -EAGAIN) {
        struct timespec pause = {0, 10000000};
        nanosleep(&pause, NULL);
    }
    require(verdict.result == 0);
    user_release(&user, set, verdict.hold, amounts);
    for (size_t i = 0; i < runs; i++) {
        uint64_t begin = now_ns();
        require(user_acquire(&user, set, &args, &verdict) == 0);
        acquires[i] = now_ns() - begin;
        user_release(&user, set, verdict.hold, amounts);
        both[i] = now_ns() - begin;
    }
    report("plugin: acquire, after a release", acquires, runs);
    report("plugin: acquire and release", both, runs);
    for (size_t i = 0; i < runs / 10; i++) {
        struct timespec pause = {0, 500000};
        nanosleep(&pause, NULL); /* the release is through, and its reply read or not */
        uint64_t begin = now_ns();
        require(user_acquire(&user, set, &args, &verdict) == 0);
        acquires[i] = now_ns() - begin;
        user_release(&user, set, verdict.hold, amounts);
    }
    report("plugin: acquire, after a pause", acquires, runs / 10);
    user.backend->set_close(set);
    user_close(&user);
    free(acquires);
    free(both);
}

int main(int argc, char **argv)
{
    require(argc == 4);
    size_t runs = strtoul(argv[3], NULL, 10);
    bench_plugin(argv[1], argv[2], runs);
    bench_raw(argv[2], runs);
    bench_plugin(argv[1], argv[2], runs);
    bench_raw(argv[2], runs);
    return 0;
}
