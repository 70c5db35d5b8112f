/* SPDX-License-Identifier: MIT */
/* What an instance tells of its sets, to which processes, and that it does not wait for any. */
#include "api/published.h"
#include "lib/child.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/require.h"
#include "lib/tmpdir.h"
#include "set/instance_base.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <weir/segment.h>
#include <weir/weir.h>

#include <cmocka.h>

#define SETS                                                                                       \
    "version: 1\n"                                                                                 \
    "publish: true\n"                                                                              \
    "sets:\n"                                                                                      \
    "  api: { max_waiters: 9, limits: [ { type: resource, key: slots, capacity: 2 },"              \
    " { type: rate, key: tokens, algorithm: token_bucket, capacity: 100, window: 60s } ] }\n"      \
    "  per: { subjects: { max: 10 }, limits: [ { type: call, algorithm: gcra, capacity: 6,"        \
    " window: 6s } ] }\n"                                                                          \
    "  shared: { backend: process, lifetime: users, limits: [ { type: resource, key: slots, "      \
    "capacity: 1 } ] }\n"

static char place[TMPDIR_SIZE];
static char warning[512];

static void hear(void *userdata, enum weir_log_level level, const char *message)
{
    (void)userdata;
    if (level == WEIR_LOG_WARNING)
        snprintf(warning, sizeof(warning), "%s", message);
}

static weir *opened(const char *text, uint32_t flags)
{
    const struct weir_options options = {
        .size = sizeof(options), .text = text, .process_dir = place, .log = hear, .flags = flags};
    weir *w = NULL;

    warning[0] = '\0';
    assert_int_equal(weir_open(&w, &options, NULL), 0);
    return w;
}

/* ---- sockets ---- */

/* How many sockets there are in the directory; the name of the last one. */
static unsigned sockets(char ret_name[static 64])
{
    DIR *entries = opendir(place);
    const struct dirent *entry;
    unsigned n = 0;

    assert_non_null(entries);
    while ((entry = readdir(entries)))
        if (strstr(entry->d_name, ".sock")) {
            snprintf(ret_name, 64, "%.63s", entry->d_name);
            n++;
        }
    closedir(entries);
    return n;
}

/* The directory is the working directory: another user may not be let into those above it. */
static int connected(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%.64s", name);
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* ---- what is said ---- */

static struct said {
    unsigned char bytes[1 << 20];
    size_t n;
    bool is_whole;
} said;

/* Returns the next item, or NULL. */
static const struct published_item *item_at(size_t *at)
{
    const struct published_item *item = (const void *)(said.bytes + *at);

    if (said.n - *at < sizeof(*item) || said.n - *at < sizeof(*item) + item->size)
        return NULL;
    *at += sizeof(*item) + (item->size + 7u) / 8 * 8;
    return item;
}

static void listen_to(const char *name)
{
    int fd = connected(name);
    ssize_t n;

    assert_true(fd >= 0);
    said.n = 0;
    while ((n = read(fd, said.bytes + said.n, sizeof(said.bytes) - said.n)) > 0)
        said.n += (size_t)n;
    close(fd);
    said.is_whole = false;
    for (size_t at = sizeof(struct published_head); at < said.n;) {
        const struct published_item *item = item_at(&at);

        if (!item)
            break;
        said.is_whole = item->kind == PUBLISHED_END && at == said.n;
    }
}

/* An answer takes a second at most; on a busy machine some do not suffice for many sets. */
static void listen_to_all(const char *name)
{
    said.is_whole = false;
    for (unsigned i = 0; i < 20 && !said.is_whole; i++)
        listen_to(name);
    assert_true(said.is_whole);
}

/* Returns the n-th item of a kind, from 0, within the set; NULL: there is none. */
static const struct published_item *item_of(const char *set, uint32_t kind, unsigned n)
{
    const struct published_item *item;
    bool within = false;

    for (size_t at = sizeof(struct published_head); (item = item_at(&at));) {
        if (item->kind == PUBLISHED_SET)
            within = item->size == strlen(set) && memcmp(item + 1, set, item->size) == 0;
        if (within && item->kind == kind && n-- == 0)
            return item;
    }
    return NULL;
}

static void assert_text(const char *set, uint32_t kind, unsigned n, const char *text)
{
    const struct published_item *item = item_of(set, kind, n);

    assert_non_null(item);
    assert_int_equal(item->size, strlen(text));
    assert_memory_equal(item + 1, text, item->size);
}

#define STRUCT(set, kind, n, type)                                                                 \
    (assert_non_null(item_of(set, kind, n)),                                                       \
     assert_int_equal(item_of(set, kind, n)->size, sizeof(type)),                                  \
     (const type *)(const void *)(item_of(set, kind, n) + 1))

static void what_is_said_is_what_the_calls_tell(void **state)
{
    weir *w = opened(SETS, 0);
    const struct weir_amount two[] = {{"slots", 2}, {"tokens", 5}}, one[] = {{"slots", 1}};
    const struct weir_request first = {.size = sizeof(first), .amounts = two, .amounts_n = 2};
    const struct weir_request second = {.size = sizeof(second), .amounts = one, .amounts_n = 1};
    weir_acquisition *held, *waits;
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[2];
    const struct published_head *head = (const void *)said.bytes;
    const struct published_holder *holder;
    const uint64_t *amounts;
    weir_pool *pool;
    char name[64];

    (void)state;
    assert_int_equal(weir_pool_open(&pool, w, "api", 0, NULL), 0);
    assert_int_equal(weir_submit(pool, &first, &held, NULL), 0);
    assert_int_equal(weir_submit(pool, &second, &waits, NULL), 1);
    assert_int_equal(sockets(name), 1);
    listen_to(name);
    assert_true(said.is_whole);
    assert_memory_equal(head->magic, PUBLISHED_MAGIC, 8);
    assert_int_equal(head->version, PUBLISHED_VERSION);
    assert_int_equal(head->process, getpid());
    assert_null(item_of("shared", PUBLISHED_SET, 0)); /* which others see anyway */

    assert_int_equal(weir_set_stats(weir_pool_set(pool, 0), &stats, limits, 2), 2);
    assert_memory_equal(STRUCT("api", PUBLISHED_STATS, 0, struct weir_set_stats), &stats,
                        sizeof(stats));
    assert_int_equal(stats.waiting, 1);
    assert_int_equal(STRUCT("api", PUBLISHED_INFO, 0, struct weir_set_info)->max_waiters, 9);
    assert_null(STRUCT("api", PUBLISHED_INFO, 0, struct weir_set_info)->backend);
    assert_int_equal(STRUCT("api", PUBLISHED_LIMIT, 0, struct weir_limit_stats)->held, 2);
    assert_null(STRUCT("api", PUBLISHED_LIMIT, 0, struct weir_limit_stats)->key);
    assert_int_equal(STRUCT("api", PUBLISHED_LIMIT, 1, struct weir_limit_stats)->type,
                     WEIR_LIMIT_RATE);
    assert_int_equal(STRUCT("api", PUBLISHED_LIMIT, 1, struct weir_limit_stats)->granted, 5);
    assert_null(STRUCT("api", PUBLISHED_LIMIT, 1, struct weir_limit_stats)->algorithm);
    assert_text("api", PUBLISHED_KEY, 1, "tokens");
    assert_text("api", PUBLISHED_ALGORITHM, 0, "token_bucket");
    assert_text("api", PUBLISHED_SETTING, 2, "window");
    assert_text("api", PUBLISHED_VALUE, 2, "60s");

    for (unsigned i = 0; i < 2; i++) {
        holder = STRUCT("api", PUBLISHED_HOLDER, i, struct published_holder);
        amounts = (const void *)(item_of("api", PUBLISHED_AMOUNTS, i) + 1);
        assert_int_equal(holder->holder.process, getpid());
        assert_int_equal(holder->holder.waiting, i);
        assert_int_equal(amounts[0], i ? 1 : 2);
    }
    assert_int_equal(holder->is_next, 1);
    assert_int_equal(holder->limiting, 0);
    assert_true(holder->retry_after_ns == WEIR_FOREVER);
    assert_int_equal(STRUCT("per", PUBLISHED_SUBJECTS, 0, struct weir_subjects_stats)->max, 10);
    assert_text("per", PUBLISHED_EVICT, 0, "oldest");
    assert_null(item_of("api", PUBLISHED_SUBJECTS, 0));

    weir_release(&waits);
    weir_release(&held);
    listen_to(name);
    assert_int_equal(STRUCT("api", PUBLISHED_STATS, 0, struct weir_set_stats)->canceled, 1);
    assert_null(item_of("api", PUBLISHED_HOLDER, 0));
    weir_pool_close(pool);
    weir_close(w);
    assert_int_equal(sockets(name), 0);
}

#define CLASSED                                                                                    \
    "version: 1\npublish: true\nsets:\n  c: { shares: { x: 2, y: 1 }, limits: [ { type: rate, "    \
    "key: tokens, algorithm: gcra, capacity: 9, window: 1h }, { type: resource, key: slots, "      \
    "capacity: 2, max_hold: 1ms } ] }\n"

/* The second limit is held too long. */
static void what_is_overheld_and_classes_are_told(void **state)
{
    weir *w = opened(CLASSED, 0);
    const struct weir_amount amounts[] = {{"slots", 2}}, too_much[] = {{"slots", 1}};
    struct weir_request request = {
        .size = sizeof(request), .amounts = amounts, .amounts_n = 1, .wait_class = "x"};
    struct weir_class_stats classes[2];
    const struct published_holder *holder;
    weir_acquisition *held = NULL, *waits;
    weir_pool *pool;
    char name[64];

    (void)state;
    assert_int_equal(weir_pool_open(&pool, w, "c", 0, NULL), 0);
    assert_int_equal(weir_submit(pool, &request, &held, NULL), 0);
    request.amounts = too_much;
    request.wait_class = NULL;
    assert_int_equal(weir_submit(pool, &request, &waits, NULL), 1);
    usleep(2000);
    assert_int_equal(sockets(name), 1);
    listen_to(name);
    assert_true(said.is_whole);
    holder = STRUCT("c", PUBLISHED_HOLDER, 0, struct published_holder);
    assert_int_equal(holder->overheld, 2);
    assert_true(holder->overheld_ns >= 1000000 && holder->overheld_ns < holder->age_ns);
    holder = STRUCT("c", PUBLISHED_HOLDER, 1, struct published_holder);
    assert_int_equal(holder->overheld, 0);
    assert_int_equal(weir_set_classes(weir_pool_set(pool, 0), classes, 2), 2);
    assert_int_equal(classes[0].granted, 1);
    for (unsigned i = 0; i < 2; i++)
        assert_memory_equal(STRUCT("c", PUBLISHED_CLASS, i, struct weir_class_stats), &classes[i],
                            sizeof(classes[i]));
    assert_null(item_of("c", PUBLISHED_CLASS, 2));
    assert_int_equal(weir_release(&waits), 0);
    assert_int_equal(weir_release(&held), 0);
    weir_pool_close(pool);
    weir_close(w);
}

static void sets_that_come_later_are_told(void **state)
{
    const struct weir_set_spec set = {.size = sizeof(set), .name = "later"};
    const struct weir_pool_spec spec = {
        .size = sizeof(spec), .name = "pool", .sets = &set, .sets_n = 1};
    weir *w = opened("version: 1\npublish: true\n", 0);
    weir_pool *pool;
    char name[64];

    (void)state;
    assert_int_equal(sockets(name), 1);
    listen_to(name);
    assert_true(said.is_whole);
    assert_int_equal(said.n, sizeof(struct published_head) + sizeof(struct published_item));
    assert_int_equal(weir_pool_new(&pool, w, &spec, NULL), 0);
    listen_to(name);
    assert_non_null(item_of("later", PUBLISHED_STATS, 0));
    weir_pool_close(pool);
    weir_close(w);
}

/* ---- when ---- */

static void it_is_said_by_the_file_or_else_by_the_environment(void **state)
{
    static const struct {
        const char *text, *variable;
        uint32_t flags;
        unsigned n;
    } cases[] = {
        {"version: 1\n", NULL, 0, 0},
        {"version: 1\n", "", 0, 0},
        {"version: 1\n", "0", 0, 0},
        {"version: 1\n", "1", 0, 1},
        {"version: 1\npublish: false\n", "1", 0, 0},
        {"version: 1\npublish: true\n", "0", 0, 1},
        {"version: 1\npublish: true\n", NULL, WEIR_OPEN_UNPUBLISHED, 0},
        {"version: 1\npublish: true\n", NULL, WEIR_OPEN_APART, 0},
        {"version: 1\npublish: true\n", NULL, WEIR_OPEN_EXISTING, 0},
    };
    const struct weir_options wrong = {.size = sizeof(wrong), .text = "version: 1\n"};
    struct weir_error error;
    char name[64];
    weir *w = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (cases[i].variable)
            setenv("WEIR_PUBLISH", cases[i].variable, 1);
        w = opened(cases[i].text, cases[i].flags);
        unsetenv("WEIR_PUBLISH");
        assert_int_equal(sockets(name), cases[i].n);
        assert_int_equal(fake_os_live().threads, cases[i].n);
        assert_string_equal(warning, "");
        weir_close(w);
        assert_int_equal(sockets(name), 0);
    }
    setenv("WEIR_PUBLISH", "yes", 1);
    w = NULL;
    assert_int_equal(weir_open(&w, &wrong, &error), -EINVAL);
    unsetenv("WEIR_PUBLISH");
    assert_string_equal(error.message, "WEIR_PUBLISH is `yes`: it takes 0 or 1");
    assert_null(w);
}

static uint64_t no_time(void *userdata)
{
    (void)userdata;
    return 1;
}

static void with_a_clock_of_the_program_it_is_not(void **state)
{
    const struct weir_clock clock = {.size = sizeof(clock), .now_ns = no_time};
    const struct weir_options options = {.size = sizeof(options),
                                         .text = SETS,
                                         .process_dir = place,
                                         .clock = &clock,
                                         .log = hear,
                                         .flags = 0};
    char name[64];
    weir *w;

    (void)state;
    assert_int_equal(weir_open(&w, &options, NULL), 0);
    assert_int_equal(sockets(name), 0);
    assert_string_equal(warning, "publish: other processes cannot see the sets: the instance has a "
                                 "clock of the program");
    weir_close(w);
}

static void what_the_system_refuses_is_a_warning(void **state)
{
    char name[64];
    weir *w;

    (void)state;
    assert_int_equal(chmod(place, 0755), 0);
    w = opened("version: 1\npublish: true\n", 0);
    assert_non_null(strstr(warning, "publish: other processes cannot see the sets: directory `"));
    assert_non_null(strstr(warning, "its mode 0755 gives other users access"));
    assert_int_equal(sockets(name), 0);
    weir_close(w);
    assert_int_equal(chmod(place, 0700), 0);
}

/* So that the next one is the only one. */
static int rename_away(const char *name)
{
    char from[128], to[128];

    snprintf(from, sizeof(from), "%.60s/%.60s", place, name);
    snprintf(to, sizeof(to), "%.60s/%.20s.gone", place, name);
    return rename(from, to);
}

static void instances_of_a_process_have_numbers(void **state)
{
    unsigned process, number, last = 0;
    char name[64];
    weir *w[3];

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        w[i] = opened("version: 1\npublish: true\n", 0);
        assert_int_equal(sockets(name), 1);
        assert_int_equal(sscanf(name, "%u.%u.", &process, &number), 2);
        assert_int_equal(process, getpid());
        if (last)
            assert_int_equal(number, last + 1);
        last = number;
        assert_int_equal(rename_away(name), 0);
    }
    assert_int_equal(sockets(name), 0);
    for (unsigned i = 0; i < 3; i++)
        weir_close(w[i]);
}

/* ---- clients ---- */

static void the_file_is_the_user_s_alone(void **state)
{
    weir *w = opened("version: 1\npublish: true\n", 0);
    struct stat found;
    char name[64], path[256];

    (void)state;
    assert_int_equal(sockets(name), 1);
    snprintf(path, sizeof(path), "%s/%s", place, name);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode, S_IFSOCK | 0600);
    weir_close(w);
}

/* Root, which may ask whatever the user is, becomes another user, and lets that in so far. */
static void another_user_is_told_nothing(void **state)
{
    weir *w = opened("version: 1\npublish: true\n", 0);
    char name[64], path[256];
    pid_t pid;

    (void)state;
    assert_int_equal(sockets(name), 1);
    snprintf(path, sizeof(path), "%s/%s", place, name);
    assert_int_equal(chmod(place, 0711) + chmod(path, 0666), 0);
    if (geteuid() != 0)
        fake_os_set_user(geteuid() + 1);
    pid = child_fork();
    if (pid == 0) {
        if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
            _exit(2);
        listen_to(name);
        _exit(said.n == 0 ? 0 : 1);
    }
    assert_true(child_exited(child_wait(pid), 0));
    fake_os_reset();
    listen_to(name);
    assert_true(said.is_whole);
    weir_close(w);
    assert_int_equal(chmod(place, 0700), 0);
}

/* More text than a socket takes: many sets. */
static weir *opened_with_many_sets(void)
{
    enum { SETS_N = 1000 };
    char *text = malloc(SETS_N * 128);
    int n = sprintf(text, "version: 1\npublish: true\nsets:\n");
    weir *w;

    for (unsigned i = 0; i < SETS_N; i++)
        n += sprintf(text + n,
                     "  s%u: { limits: [ { type: resource, key: slots, capacity: 2 } ] }\n", i);
    w = opened(text, 0);
    free(text);
    return w;
}

/* Another client is served once the one that reads nothing has had its time. */
static void a_client_that_reads_nothing_holds_up_no_call(void **state)
{
    weir *w = opened_with_many_sets();
    weir_acquisition *held;
    weir_pool *pool;
    char name[64];
    int silent;

    (void)state;
    assert_int_equal(sockets(name), 1);
    silent = connected(name);
    assert_true(silent >= 0);
    assert_int_equal(weir_pool_open(&pool, w, "s1", 0, NULL), 0);
    assert_int_equal(weir_try_acquire(pool, NULL, &held, NULL), 0);
    weir_release(&held);
    listen_to_all(name);
    assert_non_null(item_of("s999", PUBLISHED_STATS, 0));
    close(silent);
    weir_pool_close(pool);
    weir_close(w);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* A busy machine may delay some ends, but not all of them. */
static void a_client_that_reads_nothing_holds_up_no_end(void **state)
{
    uint64_t took_ns = UINT64_MAX;

    (void)state;
    for (unsigned i = 0; i < 20 && took_ns > 300000000; i++) {
        weir *w = opened_with_many_sets();
        char name[64], byte;
        int silent;

        assert_int_equal(sockets(name), 1);
        silent = connected(name);
        assert_int_equal(read(silent, &byte, 1), 1);
        took_ns = now_ns();
        weir_close(w);
        took_ns = now_ns() - took_ns;
        close(silent);
    }
    assert_true(took_ns <= 300000000);
}

struct reader {
    int fd;
    size_t n;
};

static void *read_all(void *argument)
{
    static char bytes[1 << 16];
    struct reader *reader = argument;
    ssize_t n;

    while ((n = read(reader->fd, bytes, sizeof(bytes))) > 0)
        reader->n += (size_t)n;
    return NULL;
}

/* Of some attempts the end comes before the answer's, and cuts it off. */
static void a_client_that_reads_all_holds_up_no_end(void **state)
{
    bool is_whole = true;

    (void)state;
    for (unsigned i = 0; i < 20 && is_whole; i++) {
        weir *w = opened_with_many_sets();
        struct reader reader = {.n = 1};
        char name[64], byte;
        pthread_t thread;

        assert_int_equal(sockets(name), 1);
        listen_to_all(name);
        reader.fd = connected(name);
        assert_int_equal(read(reader.fd, &byte, 1), 1);
        assert_int_equal(pthread_create(&thread, NULL, read_all, &reader), 0);
        weir_close(w);
        pthread_join(thread, NULL);
        close(reader.fd);
        is_whole = reader.n == said.n;
    }
    assert_false(is_whole);
}

/* However many hold a set, its waiters are told. */
static void of_many_the_oldest_are_told(void **state)
{
    enum { MANY = 1001 };
    weir *w = opened("version: 1\npublish: true\nsets:\n  many: { limits: [ { type: resource,"
                     " key: slots, capacity: 1001 } ] }\n",
                     0);
    weir_acquisition *held[MANY], *waits;
    const struct published_holder *last;
    weir_pool *pool;
    char name[64];

    (void)state;
    assert_int_equal(sockets(name), 1);
    assert_int_equal(weir_pool_open(&pool, w, "many", 0, NULL), 0);
    for (unsigned i = 0; i < MANY; i++)
        assert_int_equal(weir_submit(pool, NULL, &held[i], NULL), 0);
    assert_int_equal(weir_submit(pool, NULL, &waits, NULL), 1);
    listen_to_all(name);
    last = STRUCT("many", PUBLISHED_HOLDER, PUBLISHED_HOLDERS_MAX / 2, struct published_holder);
    assert_int_equal(last->holder.waiting, 1);
    assert_int_equal(last->is_next, 1);
    assert_int_equal(last->limiting, 0);
    assert_null(item_of("many", PUBLISHED_HOLDER, PUBLISHED_HOLDERS_MAX / 2 + 1));
    weir_release(&waits);
    for (unsigned i = 0; i < MANY; i++)
        weir_release(&held[i]);
    weir_pool_close(pool);
    weir_close(w);
}

static void clients_that_go_away_do_no_harm(void **state)
{
    weir *w = opened_with_many_sets();
    char name[64], byte;

    (void)state;
    assert_int_equal(sockets(name), 1);
    for (unsigned i = 0; i < 20; i++) {
        int fd = connected(name);

        assert_true(fd >= 0);
        if (i % 2)
            assert_int_equal(read(fd, &byte, 1), 1);
        assert_true(send(fd, "hello", 5, MSG_NOSIGNAL) == 5 || errno == EPIPE);
        close(fd);
    }
    listen_to(name);
    assert_true(said.is_whole);
    weir_close(w);
}

/* ---- calls that fail ---- */

/* What fails while it answers costs a client its answer, and no more. */
static void after_each_failing_call_it_goes_on(void **state)
{
    weir *w = opened(SETS, 0);
    char name[64];

    (void)state;
    assert_int_equal(sockets(name), 1);
    for (uint64_t n = 1; n < 60; n++) {
        int fd;

        fake_os_fail_kind_at(n, FAKE_ANY | FAKE_EVENT, 0);
        fd = connected(name);
        assert_true(fd >= 0);
        for (ssize_t r = 1; r > 0;)
            r = read(fd, said.bytes, sizeof(said.bytes));
        close(fd);
        fake_os_fail_kind_at(0, 0, 0);
        listen_to(name);
        assert_true(said.is_whole);
    }
    weir_close(w);
}

/* ---- children ---- */

/* Also that of a client that is being answered, which would else never see an end. A busy machine
 * may let its time pass before the fork. */
static void a_child_closes_its_copy_of_a_client(void **state)
{
    bool closed = false;

    (void)state;
    for (unsigned i = 0; i < 20 && !closed; i++) {
        weir *w = opened_with_many_sets();
        char name[64], byte;
        pid_t pid;
        int fd;

        assert_int_equal(sockets(name), 1);
        fd = connected(name);
        assert_int_equal(read(fd, &byte, 1), 1);
        pid = child_fork();
        if (pid == 0) {
            uint64_t before = fake_os_live().descriptors;

            weir_close(w);
            _exit(fake_os_live().descriptors + 4 <= before ? 0 : 1);
        }
        closed = child_exited(child_wait(pid), 0);
        close(fd);
        weir_close(w);
    }
    assert_true(closed);
}

/* A child has copies of the descriptors; the file is its parent's. */
static void a_child_closes_its_copies(void **state)
{
    weir *w = opened(SETS, 0);
    char name[64];
    pid_t pid;

    (void)state;
    pid = child_fork();
    if (pid == 0) {
        uint64_t before = fake_os_live().descriptors;

        weir_close(w);
        _exit(sockets(name) == 1 && fake_os_live().descriptors <= before - 3 ? 0 : 1);
    }
    assert_true(child_exited(child_wait(pid), 0));
    assert_int_equal(sockets(name), 1);
    listen_to(name);
    assert_true(said.is_whole);
    weir_close(w);
    assert_int_equal(sockets(name), 0);
}

/* Of the instances of a child its parent's are none. */
static bool has_number_1(pid_t pid)
{
    DIR *entries = opendir(place);
    const struct dirent *entry;
    char begin[32];
    bool found = false;

    snprintf(begin, sizeof(begin), "%d.1.", (int)pid);
    while (entries && (entry = readdir(entries)))
        found = found || strncmp(entry->d_name, begin, strlen(begin)) == 0;
    closedir(entries);
    return found;
}

/* Of this process, which has had some. */
static void needs_threads_in_children(void)
{
    if (getenv("MESON_EXE_WRAPPER")) {
        print_message("qemu-user cannot start a thread in a child of a process with threads\n");
        skip();
    }
}

static void a_child_publishes_what_it_opens(void **state)
{
    char name[64];
    pid_t pid;
    weir *w;

    (void)state;
    needs_threads_in_children();
    w = opened(SETS, 0);
    pid = child_fork();
    if (pid == 0) {
        weir_close(w);
        w = opened("version: 1\npublish: true\nsets: { own: {} }\n", 0);
        if (sockets(name) != 2)
            _exit(2);
        if (!has_number_1(getpid()))
            _exit(4);
        weir_close(w);
        _exit(sockets(name) == 1 ? 0 : 3);
    }
    assert_true(child_exited(child_wait(pid), 0));
    weir_close(w);
}

static int no_segment(void *userdata, const struct weir_segment *segment)
{
    (void)userdata;
    fail_msg("there is a segment: %s", segment->path);
    return 0;
}

/* One that is killed leaves its socket; the next look at the directory removes it. */
static void the_socket_of_the_killed_is_swept(void **state)
{
    const struct weir_options options = {.size = sizeof(options), .process_dir = place};
    char name[64];
    pid_t pid;

    (void)state;
    needs_threads_in_children();
    pid = child_fork();
    if (pid == 0) {
        opened("version: 1\npublish: true\n", 0);
        raise(SIGKILL);
    }
    assert_true(child_was_killed(child_wait(pid), SIGKILL));
    assert_int_equal(sockets(name), 1);
    assert_int_equal(connected(name), -1);
    assert_int_equal(weir_segments(&options, no_segment, NULL, NULL), 0);
    assert_int_equal(sockets(name), 0);
}

/* It goes, too, if a child of its process has it still: nothing will ever answer there. */
static void the_socket_that_a_child_of_the_killed_has_is_swept(void **state)
{
    const struct weir_options options = {.size = sizeof(options), .process_dir = place};
    char name[64], byte;
    int ready[2], end[2];
    pid_t pid;

    (void)state;
    needs_threads_in_children();
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(end), 0);
    pid = child_fork();
    if (pid == 0) {
        opened("version: 1\npublish: true\n", 0);
        if (fork() == 0) {
            close(end[1]);
            require(write(ready[1], "r", 1) == 1);
            _exit(read(end[0], &byte, 1) != 0);
        }
        require(read(ready[0], &byte, 1) == 1);
        raise(SIGKILL);
    }
    assert_true(child_was_killed(child_wait(pid), SIGKILL));
    assert_int_equal(sockets(name), 1);
    assert_int_equal(weir_segments(&options, no_segment, NULL, NULL), 0);
    assert_int_equal(sockets(name), 0);
    for (unsigned i = 0; i < 2; i++) {
        close(ready[i]);
        close(end[i]);
    }
}

/* ---- locks ---- */

static int priority_of(pid_t thread)
{
    char path[64], text[1024];
    const char *at;
    int fd, priority = 0;
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    assert_true(n > 0);
    text[n] = '\0';
    at = strrchr(text, ')') + 2;
    for (unsigned i = 3; i < 18; i++)
        at = strchr(at, ' ') + 1;
    assert_int_equal(sscanf(at, "%d", &priority), 1);
    return priority;
}

static void *wait_for_lock(void *argument)
{
    pthread_mutex_t *lock = argument;

    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

/* Waits for a lock that this thread has, as a real-time thread, until that raises this one. */
static void expect_raised(pthread_mutex_t *lock, const pthread_attr_t *attributes)
{
    int before = priority_of(gettid());
    pthread_t thread;

    assert_true(before > 0);
    assert_int_equal(pthread_mutex_lock(lock), 0);
    assert_int_equal(pthread_create(&thread, attributes, wait_for_lock, lock), 0);
    for (unsigned i = 0; i < 20000 && priority_of(gettid()) > 0; i++)
        usleep(1000);
    assert_true(priority_of(gettid()) < 0);
    assert_int_equal(pthread_mutex_unlock(lock), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(priority_of(gettid()), before);
}

/* The publishing thread is an ordinary one. */
static void a_lock_inherits_the_priority_of_its_waiters(void **state)
{
    const struct sched_param parameters = {.sched_priority = 10};
    weir *w = opened(SETS, 0);
    pthread_attr_t attributes;
    pthread_t thread;

    (void)state;
    pthread_attr_init(&attributes);
    pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&attributes, SCHED_FIFO);
    pthread_attr_setschedparam(&attributes, &parameters);
    if (pthread_create(&thread, &attributes, wait_for_lock, &w->lock) != 0) {
        weir_close(w);
        pthread_attr_destroy(&attributes);
        print_message("this process has no right to real-time threads\n");
        skip();
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    expect_raised(&w->lock, &attributes);
    expect_raised(&w->spare_lock, &attributes);
    pthread_attr_destroy(&attributes);
    weir_close(w);
}

static int make_place(void **state)
{
    (void)state;
    return tmpdir_make(place, NULL) && chdir(place) == 0 ? 0 : -1;
}

static int remove_place(void **state)
{
    (void)state;
    return chdir("/") == 0 && tmpdir_remove(place) ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(what_is_said_is_what_the_calls_tell),
        leak_checked_test(sets_that_come_later_are_told),
        leak_checked_test(it_is_said_by_the_file_or_else_by_the_environment),
        leak_checked_test(with_a_clock_of_the_program_it_is_not),
        leak_checked_test(what_the_system_refuses_is_a_warning),
        leak_checked_test(instances_of_a_process_have_numbers),
        leak_checked_test(the_file_is_the_user_s_alone),
        leak_checked_test(another_user_is_told_nothing),
        leak_checked_test(a_client_that_reads_nothing_holds_up_no_call),
        leak_checked_test(a_client_that_reads_nothing_holds_up_no_end),
        leak_checked_test(a_client_that_reads_all_holds_up_no_end),
        leak_checked_test(of_many_the_oldest_are_told),
        leak_checked_test(clients_that_go_away_do_no_harm),
        leak_checked_test(after_each_failing_call_it_goes_on),
        leak_checked_test(a_child_closes_its_copies),
        leak_checked_test(a_child_closes_its_copy_of_a_client),
        leak_checked_test(a_child_publishes_what_it_opens),
        leak_checked_test(the_socket_of_the_killed_is_swept),
        leak_checked_test(the_socket_that_a_child_of_the_killed_has_is_swept),
        leak_checked_test(a_lock_inherits_the_priority_of_its_waiters),
        leak_checked_test(what_is_overheld_and_classes_are_told),
    };

    return cmocka_run_group_tests(tests, make_place, remove_place);
}
