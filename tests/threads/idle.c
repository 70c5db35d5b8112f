/* SPDX-License-Identifier: MIT */
/*
 * Modes of a program that idle.sh watches from outside, between the lines "begin" and "end" that it
 * writes:
 *
 *     idle waiters SECONDS    1000 waiters, blocked and submitted; the first grant lies beyond
 *                             SECONDS; this thread sleeps meanwhile
 *     idle queue SECONDS      1000 waiters of a completion queue; this thread sleeps in epoll_wait
 *     idle alone              grants, releases, refusals and takes without waiters
 */
#include "lib/clock.h"
#include "lib/require.h"
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <weir/weir.h>

enum { BLOCKED = 50, SUBMITTED = 950, QUEUED = 1000 };

static weir *w;
static weir_pool *pool;

static void open_set(uint64_t window_ns)
{
    const struct weir_limit_spec limits[] = {
        {.size = sizeof(limits[0]),
         .type = WEIR_LIMIT_CALL,
         .algorithm = "gcra",
         .capacity = 1,
         .window_ns = window_ns},
        {.size = sizeof(limits[0]), .type = WEIR_LIMIT_RESOURCE, .key = "db", .capacity = 2000},
    };
    struct weir_set_spec set = {
        .size = sizeof(set), .name = "set", .limits = limits, .limits_n = 2};
    struct weir_pool_spec spec = {.size = sizeof(spec), .sets = &set, .sets_n = 1};

    require(weir_open(&w, NULL, NULL) == 0);
    require(weir_pool_new(&pool, w, &spec, NULL) == 0);
}

static void say(const char *line)
{
    require(write(STDOUT_FILENO, line, strlen(line)) == (ssize_t)strlen(line));
}

static void *block(void *unused)
{
    weir_acquisition *acquisition = NULL;

    (void)unused;
    require(weir_acquire(pool, NULL, &acquisition, NULL) == -ESHUTDOWN);
    return NULL;
}

static bool sleeps(const char *task)
{
    char path[64], line[512] = "";
    FILE *file;
    const char *state;

    snprintf(path, sizeof(path), "/proc/self/task/%.16s/stat", task);
    file = fopen(path, "r");
    if (!file)
        return true; /* it has ended */
    require(fgets(line, sizeof(line), file) != NULL);
    fclose(file);
    state = strrchr(line, ')');
    return state && state[2] == 'S';
}

/* Every thread but this one sleeps. */
static bool all_sleep(void)
{
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *entry;
    unsigned awake = 0;

    require(tasks != NULL);
    while ((entry = readdir(tasks)))
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != getpid())
            awake += !sleeps(entry->d_name);
    closedir(tasks);
    return awake == 0;
}

static void await_sleep(void)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};

    do
        require(weir_set_stats(weir_pool_set(pool, 0), &stats, NULL, 0) == 2);
    while (stats.waiting < BLOCKED + SUBMITTED);
    for (int looks = 0; looks < 3; looks = all_sleep() ? looks + 1 : 0)
        pause_ns(SECOND / 20);
}

static void wait_idle(uint64_t seconds)
{
    static weir_acquisition *submitted[SUBMITTED];
    static const struct weir_amount amounts[] = {{"call_count", 1}, {"db", 0}};
    struct weir_request request = {.size = sizeof(request), .amounts = amounts, .amounts_n = 2};
    pthread_t threads[BLOCKED];

    open_set((seconds + 60) * SECOND);
    require(weir_take(pool, &request, NULL) == 0);
    for (int i = 0; i < SUBMITTED; i++) {
        request.timeout_ns =
            i % 3 ? WEIR_FOREVER : (seconds + 100) * SECOND + (uint64_t)(i * 7919 % 97);
        require(weir_submit(pool, &request, &submitted[i], NULL) == 1);
        require(i % 5 || weir_acquisition_fd(submitted[i]) >= 0);
        if (i % (SUBMITTED / BLOCKED) == 0)
            require(pthread_create(&threads[i / (SUBMITTED / BLOCKED)], NULL, block, NULL) == 0);
    }
    await_sleep();
    say("begin\n");
    pause_ns(seconds * SECOND);
    say("end\n");
    weir_close(w);
    for (int i = 0; i < SUBMITTED; i++) {
        require(weir_acquisition_result(submitted[i]) == -ESHUTDOWN);
        require(weir_release(&submitted[i]) == 0);
    }
    for (int i = 0; i < BLOCKED; i++)
        require(pthread_join(threads[i], NULL) == 0);
    weir_pool_close(pool);
}

static void await_queue_idle(weir_queue *queue, uint64_t seconds)
{
    struct epoll_event event = {.events = EPOLLIN};
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);

    require(epoll_fd >= 0);
    require(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, weir_queue_fd(queue), &event) == 0);
    say("begin\n");
    require(epoll_wait(epoll_fd, &event, 1, (int)(seconds * 1000)) == 0);
    say("end\n");
    close(epoll_fd);
}

static void wait_for_a_queue(uint64_t seconds)
{
    static const struct weir_amount amounts[] = {{"call_count", 1}, {"db", 0}};
    struct weir_request request = {.size = sizeof(request), .amounts = amounts, .amounts_n = 2};
    static struct weir_completion done[QUEUED];
    weir_queue *queue = NULL;

    open_set((seconds + 60) * SECOND);
    require(weir_take(pool, &request, NULL) == 0);
    require(weir_queue_open(&queue, w, QUEUED) == 0);
    for (uint64_t i = 0; i < QUEUED; i++) {
        request.timeout_ns = i % 3 ? WEIR_FOREVER : (seconds + 100) * SECOND + i * 7919 % 97;
        require(weir_queue_submit(queue, pool, &request, i, NULL, NULL) == 0);
    }
    await_queue_idle(queue, seconds);
    weir_close(w);
    require(weir_queue_reap(queue, done, QUEUED) == QUEUED);
    for (int i = 0; i < QUEUED; i++)
        require(done[i].result == -ESHUTDOWN && !done[i].acquisition);
    weir_queue_close(queue);
    weir_pool_close(pool);
}

static void use_alone(int rounds)
{
    static const struct weir_amount db[] = {{"call_count", 0}, {"db", 1500}};
    static const struct weir_amount call[] = {{"call_count", 1}, {"db", 0}};
    const struct weir_request want_db = {.size = sizeof(want_db), .amounts = db, .amounts_n = 2};
    const struct weir_request want_call = {
        .size = sizeof(want_call), .amounts = call, .amounts_n = 2, .max_wait_ns = 1};

    for (int i = 0; i < rounds; i++) {
        weir_acquisition *a = NULL, *b = NULL;
        struct weir_refusal refusal = {.size = sizeof(refusal)};

        require(weir_acquire(pool, &want_db, &a, NULL) == 0);
        require(weir_try_acquire(pool, &want_db, &b, &refusal) == -EAGAIN);
        require(weir_take(pool, &want_call, &refusal) == -EAGAIN);
        require(weir_acquire(pool, &want_call, &b, &refusal) == -EAGAIN);
        require(weir_release(&a) == 0);
        require(weir_submit(pool, &want_db, &a, NULL) == 0);
        require(weir_acquisition_result(a) == 0);
        require(weir_release(&a) == 0);
    }
}

/* More than a thread keeps to use again: some go back by the slow path. */
static void use_many(int rounds)
{
    enum { MANY = 100 };
    static const struct weir_amount db[] = {{"call_count", 0}, {"db", 1}};
    const struct weir_request want_db = {.size = sizeof(want_db), .amounts = db, .amounts_n = 2};
    weir_acquisition *held[MANY] = {NULL};

    while (rounds--) {
        for (int i = 0; i < MANY; i++)
            require(weir_acquire(pool, &want_db, &held[i], NULL) == 0);
        for (int i = 0; i < MANY; i++)
            require(weir_release(&held[i]) == 0);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "waiters") == 0) {
        wait_idle(strtoull(argv[2], NULL, 10));
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "queue") == 0) {
        wait_for_a_queue(strtoull(argv[2], NULL, 10));
        return 0;
    }
    if (argc != 2 || strcmp(argv[1], "alone") != 0)
        return 2;
    open_set(3600 * SECOND);
    require(weir_take(pool,
                      &(struct weir_request){.size = sizeof(struct weir_request),
                                             .amounts = &(struct weir_amount){"db", 0},
                                             .amounts_n = 1},
                      NULL) == 0);
    use_alone(100);
    use_many(10);
    say("begin\n");
    use_alone(10000);
    use_many(100);
    say("end\n");
    weir_close(w);
    weir_pool_close(pool);
    return 0;
}
