/* SPDX-License-Identifier: MIT */
/*
 * The definition of a set on a Redis server changes while nodes use it. Two instances are two
 * nodes; one reloads, and the other one goes on with what it has.
 *
 *     remote_revision PLUGIN SOCKET [CLUSTER]
 */
#include "lib/require.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <time.h>
#include <weir/segment.h>
#include <weir/weir.h>

#define SECOND      UINT64_C(1000000000)
#define PATIENCE_MS 60000

enum { TEXT_MAX = 2048 };

static const char *plugin, *path, *session = "20s";
static _Atomic unsigned told; /* log lines that say what to do about another definition */

static void note_log(void *userdata, enum weir_log_level level, const char *message)
{
    (void)userdata, (void)level;
    if (strstr(message, "raise `revision`, or rename the set"))
        atomic_fetch_add(&told, 1);
}

__attribute__((format(printf, 2, 3))) static void write_text(char text[TEXT_MAX], const char *sets,
                                                             ...)
{
    int n = snprintf(text, TEXT_MAX,
                     "version: 1\nplugin_dirs: [ \"%.*s\" ]\n"
                     "backends:\n  main: { type: redis, url: \"%s%s\", session: %s, "
                     "timeout: 20s }\nsets:\n",
                     (int)(strrchr(plugin, '/') - plugin), plugin,
                     strstr(path, "://") ? "" : "unix://", path, session);
    va_list arguments;

    va_start(arguments, sets);
    vsnprintf(text + n, TEXT_MAX - (size_t)n, sets, arguments);
    va_end(arguments);
}

/* A set of one resource. */
static const char *slots(char text[TEXT_MAX], const char *name, unsigned revision, unsigned n)
{
    write_text(text,
               "  %s:\n    backend: main\n    revision: %u\n    limits:\n"
               "      - { type: resource, key: slots, capacity: %u }\n",
               name, revision, n);
    return text;
}

static weir *open_node(const char *text)
{
    const struct weir_options options = {.size = sizeof(options), .text = text, .log = note_log};
    struct weir_error error = {0};
    weir *w = NULL;

    if (weir_open(&w, &options, &error) < 0)
        fprintf(stderr, "%s\n", error.message);
    require(w);
    return w;
}

static weir_pool *open_pool(weir *w, const char *name)
{
    weir_pool *pool = NULL;

    require(weir_pool_open(&pool, w, name, 0, NULL) == 0);
    return pool;
}

static int reload(weir *w, const char *text, struct weir_error *reterr)
{
    const struct weir_options options = {.size = sizeof(options), .text = text};

    *reterr = (struct weir_error){0};
    return weir_reload(w, &options, reterr);
}

static void reload_well(weir *w, const char *text)
{
    struct weir_error error;

    if (reload(w, text, &error) < 0)
        fprintf(stderr, "%s\n", error.message);
    require(error.code == 0);
}

static struct weir_request request_of(const struct weir_amount *amount)
{
    return (struct weir_request){
        .size = sizeof(struct weir_request), .amounts = amount, .amounts_n = 1};
}

static weir_acquisition *try_acquire(weir_pool *pool, uint64_t n, int *ret)
{
    const struct weir_amount amount = {"slots", n};
    const struct weir_request request = request_of(&amount);
    weir_acquisition *acquisition = NULL;

    *ret = weir_try_acquire(pool, &request, &acquisition, NULL);
    return acquisition;
}

static weir_acquisition *acquire(weir_pool *pool, uint64_t n)
{
    int r;
    weir_acquisition *acquisition = try_acquire(pool, n, &r);

    if (r != 0)
        fprintf(stderr, "acquire %" PRIu64 ": %d\n", n, r);
    require(r == 0);
    return acquisition;
}

static int try_result(weir_pool *pool, uint64_t n)
{
    int r;
    weir_acquisition *acquisition = try_acquire(pool, n, &r);

    if (acquisition)
        require(weir_release(&acquisition) == 0);
    return r;
}

static weir_acquisition *submit(weir_pool *pool, uint64_t n)
{
    const struct weir_amount amount = {"slots", n};
    const struct weir_request request = request_of(&amount);
    weir_acquisition *acquisition = NULL;

    require(weir_submit(pool, &request, &acquisition, NULL) == 1);
    return acquisition;
}

/* Has so much, once what other nodes have released has come to the server. */
static void have(weir_pool *pool, uint64_t n)
{
    const struct weir_amount amount = {"slots", n};
    struct weir_request request = request_of(&amount);
    weir_acquisition *acquisition = NULL;

    request.timeout_ns = PATIENCE_MS / 1000 * SECOND;
    require(weir_acquire(pool, &request, &acquisition, NULL) == 0);
    require(weir_release(&acquisition) == 0);
}

static uint64_t waiting(weir_pool *pool)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};

    require(weir_set_stats(weir_pool_set(pool, 0), &stats, NULL, 0) >= 0);
    return stats.waiting;
}

static void await_waiting(weir_pool *pool, uint64_t n)
{
    for (int i = 0; waiting(pool) != n; i++) {
        require(i < PATIENCE_MS);
        poll(NULL, 0, 1);
    }
}

/* Waits until it is decided, by its descriptor. */
static int await(weir_acquisition *acquisition)
{
    struct pollfd poll_fd = {.fd = weir_acquisition_fd(acquisition), .events = POLLIN};

    require(poll_fd.fd >= 0 && poll(&poll_fd, 1, PATIENCE_MS) == 1);
    return weir_acquisition_result(acquisition);
}

static uint64_t fence(const weir_acquisition *acquisition)
{
    uint64_t ret = 0;

    require(weir_acquisition_fence(acquisition, &ret) == 0);
    return ret;
}

/* ---- waiters of every kind ---- */

static void *block(void *argument)
{
    const struct weir_amount amount = {"slots", 1};
    const struct weir_request request = request_of(&amount);
    weir_acquisition *acquisition = NULL;

    require(weir_acquire(argument, &request, &acquisition, NULL) == 0);
    return acquisition;
}

static weir_acquisition *reap(weir_queue *queue)
{
    struct weir_completion done;
    struct pollfd poll_fd = {.fd = weir_queue_fd(queue), .events = POLLIN};

    while (weir_queue_reap(queue, &done, 1) == 0)
        require(poll(&poll_fd, 1, PATIENCE_MS) == 1);
    require(done.result == 0 && done.acquisition);
    return done.acquisition;
}

/* Waiters by descriptor, thread and queue keep their order, and what is held stays held. */
static void waiters_and_holders_go_on(void)
{
    const struct weir_amount amount = {"slots", 1};
    const struct weir_request request = request_of(&amount);
    char text[TEXT_MAX];
    weir *a = open_node(slots(text, "waits", 0, 2)), *b = open_node(text);
    weir_pool *pool = open_pool(a, "waits"), *other = open_pool(b, "waits");
    weir_acquisition *held = acquire(pool, 2), *waiters[4], *first, *last;
    weir_queue *queue = NULL;
    void *joined = NULL;
    pthread_t thread;

    waiters[0] = submit(pool, 1);
    await_waiting(pool, 1);
    require(pthread_create(&thread, NULL, block, pool) == 0);
    await_waiting(pool, 2);
    require(weir_queue_open(&queue, a, 8) == 0);
    require(weir_queue_submit(queue, pool, &request, 0, NULL, NULL) == 0);
    await_waiting(pool, 3);
    last = submit(other, 1);
    await_waiting(other, 4);
    reload_well(a, slots(text, "waits", 7, 5));
    require(await(waiters[0]) == 0);
    require(pthread_join(thread, &joined) == 0);
    waiters[1] = joined;
    waiters[2] = reap(queue);
    require(fence(waiters[0]) < fence(waiters[1]) && fence(waiters[1]) < fence(waiters[2]));
    require(weir_acquisition_result(last) == -EINPROGRESS);
    require(try_result(pool, 1) == -EAGAIN && try_result(other, 1) == -EAGAIN);
    require(weir_release(&held) == 0);
    require(await(last) == 0 && fence(last) > fence(waiters[2]));
    first = acquire(other, 1); /* one of 5: of its own definition there would be none */
    require(try_result(pool, 1) == -EAGAIN);
    for (int i = 0; i < 3; i++)
        require(weir_release(&waiters[i]) == 0);
    require(weir_release(&last) == 0 && weir_release(&first) == 0);
    have(pool, 5);
    require(try_result(pool, 6) == -ERANGE);
    require(try_result(other, 3) == -ERANGE); /* it does not know that there are more */
    weir_queue_close(queue);
    weir_pool_close(pool);
    weir_pool_close(other);
    weir_close(a);
    weir_close(b);
}

/* Waiters for what can be granted no more end as they come to the head. */
static void what_is_impossible_ends(void)
{
    char text[TEXT_MAX];
    weir *a = open_node(slots(text, "less", 3, 4)), *b = open_node(text);
    weir_pool *pool = open_pool(a, "less"), *other = open_pool(b, "less");
    weir_acquisition *held = acquire(other, 4), *waiters[3];

    waiters[0] = submit(pool, 3);
    await_waiting(pool, 1);
    waiters[1] = submit(other, 4);
    await_waiting(pool, 2);
    waiters[2] = submit(pool, 2);
    await_waiting(pool, 3);
    reload_well(a, slots(text, "less", 4, 2));
    require(await(waiters[0]) == -ERANGE && await(waiters[1]) == -ERANGE);
    require(weir_acquisition_result(waiters[2]) == -EINPROGRESS);
    require(weir_release(&held) == 0);
    require(await(waiters[2]) == 0);
    require(try_result(other, 1) == -EAGAIN && try_result(other, 3) == -ERANGE);
    for (int i = 0; i < 3; i++)
        (void)weir_release(&waiters[i]);
    have(other, 2);
    weir_pool_close(pool);
    weir_pool_close(other);
    weir_close(a);
    weir_close(b);
}

/* ---- what is refused, and changes nothing ---- */

static int take_result(weir_pool *pool, uint64_t n)
{
    const struct weir_amount amount = {"slots", n};
    const struct weir_request request = request_of(&amount);

    return weir_take(pool, &request, NULL);
}

static void refuses(weir *w, const char *text, const char *words)
{
    struct weir_error error;
    int r = reload(w, text, &error);

    if (r != -EOPNOTSUPP || !strstr(error.message, words) || !strstr(error.message, "`api`"))
        fprintf(stderr, "%d, `%s` is not in: %s\n", r, words, error.message);
    require(r == -EOPNOTSUPP && strstr(error.message, words) && strstr(error.message, "`api`"));
}

static void refuses_limits(weir *w, unsigned revision, const char *limits, const char *words)
{
    char text[TEXT_MAX];

    write_text(text, "  api:\n    backend: main\n    revision: %u\n    limits:\n%s", revision,
               limits);
    refuses(w, text, words);
}

static void what_cannot_be_is_refused(void)
{
    static const char rate[] = "      - { type: rate, key: slots, algorithm: token_bucket, "
                               "capacity: 4, window: 1h }\n",
                      other_key[] = "      - { type: rate, key: places, algorithm: token_bucket, "
                                    "capacity: 4, window: 1h }\n",
                      steps[] = "      - { type: rate, key: slots, algorithm: token_bucket, "
                                "capacity: 4, window: 4h, every: 1h }\n",
                      gcra[] = "      - { type: rate, key: slots, algorithm: gcra, capacity: 4, "
                               "window: 1h }\n",
                      two[] = "      - { type: resource, key: a, capacity: 4 }\n"
                              "      - { type: resource, key: b, capacity: 4 }\n";
    char text[TEXT_MAX];
    weir *w;
    weir_pool *pool;

    write_text(text, "  api:\n    backend: main\n    revision: 5\n    limits:\n%s", rate);
    w = open_node(text);
    pool = open_pool(w, "api");
    require(take_result(pool, 1) == 0);
    refuses_limits(w, 5, gcra, "limit number 1 is of another algorithm or mode: rename the set");
    refuses_limits(w, 6, gcra, "limit number 1 is of another algorithm or mode: rename the set");
    refuses_limits(w, 6, steps, "limit number 1 is of another algorithm or mode: rename the set");
    refuses_limits(w, 6, other_key, "limits have other keys");
    refuses_limits(w, 6, two, "another number of limits: rename the set");
    refuses(w, slots(text, "api", 4, 4), "limit number 1");
    write_text(text,
               "  api:\n    backend: main\n    revision: 5\n    max_waiters: 9\n"
               "    limits:\n%s",
               rate);
    refuses(w, text, "raise `revision`, which is 5");
    write_text(text,
               "  api:\n    backend: main\n    revision: 4\n    max_waiters: 9\n"
               "    limits:\n%s",
               rate);
    refuses(w, text, "`revision` is 5 now: raise it");
    write_text(text,
               "  api:\n    backend: main\n    revision: 6\n    subjects: { max: 9 }\n"
               "    limits:\n%s",
               rate);
    refuses(w, text, "by `subjects`: rename the set");
    require(take_result(pool, 1) == 0);
    write_text(text,
               "  api:\n    backend: main\n    revision: 5\n    timeout: 1s\n"
               "    limits:\n%s",
               rate);
    reload_well(w, text); /* a matter of this process alone */
    require(take_result(pool, 1) == 0 && take_result(pool, 2) == -EAGAIN);
    weir_pool_close(pool);
    weir_close(w);
}

static int note_backend(void *userdata, const struct weir_backend_info *info)
{
    const char *words = userdata;

    if (info->result != (words[0] == '!' ? -EEXIST : 0) || !strstr(info->message, words + 1))
        fprintf(stderr, "%d: %s\n", info->result, info->message);
    require(info->result == (words[0] == '!' ? -EEXIST : 0));
    require(strstr(info->message, words + 1));
    return 0;
}

static void check_says(const char *text, const char *words)
{
    weir *w = open_node(text);

    require(weir_check_backends(w, PATIENCE_MS / 1000 * SECOND, note_backend,
                                (void *)(uintptr_t)words) == 1);
    weir_close(w);
}

/* A node that the server does not accept hears what to do; so does `weir check --connect`. */
static void another_definition_is_told(void)
{
    char text[TEXT_MAX];
    weir *a, *b;
    weir_pool *pool, *other;

    check_says(slots(text, "told", 2, 2), " Redis");
    a = open_node(text);
    pool = open_pool(a, "told");
    require(try_result(pool, 1) == 0);
    check_says(text, " with the functions of weir");
    b = open_node(slots(text, "told", 2, 3));
    other = open_pool(b, "told");
    require(try_result(other, 1) == -EEXIST && try_result(other, 1) == -EEXIST);
    for (int i = 0; atomic_load(&told) == 0; i++) {
        require(i < PATIENCE_MS);
        poll(NULL, 0, 1);
    }
    check_says(text, "!with the same `revision`, 2: raise it, or rename the set");
    check_says(slots(text, "told", 1, 9), " has revision 2 there, which decides");
    check_says(slots(text, "told", 3, 9), " has revision 2 there, which the next request raises");
    reload_well(b, text); /* so that is what helps */
    have(other, 9);
    have(pool, 2);
    weir_pool_close(pool);
    weir_pool_close(other);
    weir_close(a);
    weir_close(b);
}

/* ---- without a request: weir_engine_redefine ---- */

static int copy_changes(void *userdata, const struct weir_redefinition *redefinition)
{
    require(redefinition->size == sizeof(*redefinition));
    require(redefinition->before[0] == '\0' && redefinition->after[0] == '\0');
    snprintf(userdata, TEXT_MAX, "%s: %s", redefinition->name, redefinition->changes);
    return 0;
}

static int decline(void *userdata, const struct weir_redefinition *redefinition)
{
    return copy_changes(userdata, redefinition) + 1;
}

/* Applies the definition that a new node has of a set. Returns what the call does, and what it has
 * shown. */
static int apply(const char *text, const char *name, uint32_t flags, char shown[TEXT_MAX],
                 struct weir_error *reterr)
{
    weir *w = open_node(text);
    weir_pool *pool = open_pool(w, name);
    int r;

    shown[0] = '\0';
    *reterr = (struct weir_error){0};
    r = weir_engine_redefine(weir_pool_set(pool, 0), flags, PATIENCE_MS / 1000 * SECOND,
                             copy_changes, shown, reterr);
    require((r < 0) == (reterr->code < 0));
    weir_pool_close(pool);
    weir_close(w);
    return r;
}

static void applies(const char *text, const char *name, uint32_t flags, int result,
                    const char *words)
{
    char shown[TEXT_MAX];
    struct weir_error error;
    int r = apply(text, name, flags, shown, &error);

    if (r != result || (result < 0 ? !strstr(error.message, words) : strcmp(shown, words) != 0))
        fprintf(stderr, "%d, not %d: %s%s\n", r, result, shown, error.message);
    require(r == result);
    require(result < 0 ? strstr(error.message, words) != NULL : strcmp(shown, words) == 0);
    require(result >= 0 || shown[0] == '\0');
}

static void applies_by(const char *name, unsigned revision, unsigned n, uint32_t flags, int result,
                       const char *words)
{
    char text[TEXT_MAX];

    applies(slots(text, name, revision, n), name, flags, result, words);
}

/* One node with the older file holds, another one waits: neither asks for anything more. */
static void an_apply_grants_waiters_and_holds_nothing(void)
{
    static const char change[] = "applied: `revision`: not set -> 2; "
                                 "`capacity` of limit 1 (`slots`): 2 -> 4";
    char text[TEXT_MAX], next[TEXT_MAX];
    weir *a = open_node(slots(text, "applied", 0, 2)), *b = open_node(text);
    weir_pool *pool = open_pool(a, "applied"), *other = open_pool(b, "applied");
    weir_acquisition *held = acquire(pool, 2), *waiters[3];

    for (unsigned i = 0; i < 3; i++) {
        waiters[i] = submit(i == 1 ? pool : other, 1);
        await_waiting(pool, i + 1);
    }
    slots(next, "applied", 2, 4);
    applies(next, "applied", WEIR_REDEFINE_CHECK, 1, change);
    applies(next, "applied", WEIR_REDEFINE_CHECK, 1, change); /* nothing has changed */
    require(waiting(pool) == 3 && weir_acquisition_result(waiters[0]) == -EINPROGRESS);
    applies(next, "applied", 0, 1, change);
    require(await(waiters[0]) == 0 && await(waiters[1]) == 0);
    require(fence(waiters[0]) < fence(waiters[1]));
    require(waiting(pool) == 1 && weir_acquisition_result(waiters[2]) == -EINPROGRESS);
    require(try_result(other, 1) == -EAGAIN); /* all is held, by these alone */
    applies(next, "applied", 0, 0, "");
    applies(next, "applied", WEIR_REDEFINE_CHECK, 0, "");
    require(weir_release(&held) == 0);
    require(await(waiters[2]) == 0 && fence(waiters[1]) < fence(waiters[2]));
    held = acquire(other, 1); /* the fourth, by a node with the older file */
    require(try_result(pool, 1) == -EAGAIN);
    for (int i = 0; i < 3; i++)
        require(weir_release(&waiters[i]) == 0);
    require(weir_release(&held) == 0);
    have(pool, 2);
    weir_pool_close(pool);
    weir_pool_close(other);
    weir_close(a);
    weir_close(b);
}

/* Less than what is held: the holder keeps it, and waiters that never can be granted end. */
static void an_apply_takes_nothing_from_holders(void)
{
    char text[TEXT_MAX];
    weir *a = open_node(slots(text, "fewer", 3, 4)), *b = open_node(text);
    weir_pool *pool = open_pool(a, "fewer"), *other = open_pool(b, "fewer");
    weir_acquisition *held = acquire(pool, 4), *impossible = submit(other, 3), *waiter;

    await_waiting(pool, 1);
    waiter = submit(pool, 2);
    await_waiting(pool, 2);
    applies(slots(text, "fewer", 4, 2), "fewer", 0, 1,
            "fewer: `revision`: 3 -> 4; `capacity` of limit 1 (`slots`): 4 -> 2");
    require(await(impossible) == -ERANGE);
    require(weir_acquisition_result(waiter) == -EINPROGRESS && weir_acquisition_result(held) == 0);
    require(weir_release(&held) == 0);
    require(await(waiter) == 0);
    require(weir_release(&waiter) == 0);
    (void)weir_release(&impossible);
    weir_pool_close(pool);
    weir_pool_close(other);
    weir_close(a);
    weir_close(b);
}

static void what_cannot_be_applied_is_refused(void)
{
    char text[TEXT_MAX], shown[TEXT_MAX] = "";
    struct weir_error error = {0};
    weir *w, *next;
    weir_pool *pool, *other;

    applies(slots(text, "strict", 2, 5), "strict", 0, -ENOENT, "backend `main` has no such set");
    w = open_node(text);
    pool = open_pool(w, "strict");
    require(try_result(pool, 5) == 0);
    applies(slots(text, "strict", 2, 6), "strict", 0, -EOPNOTSUPP,
            "with the same `revision`, 2: raise it, or rename the set");
    applies(slots(text, "strict", 1, 6), "strict", 0, -EOPNOTSUPP,
            "`revision` is 2 now: raise it, also to go back to what was before");
    write_text(text,
               "  strict:\n    backend: main\n    revision: 3\n    limits:\n"
               "      - { type: rate, key: slots, algorithm: gcra, capacity: 6, window: 1s }\n");
    applies(text, "strict", 0, -EOPNOTSUPP,
            "as revision 2: limit number 1 is of another algorithm or mode: rename the set");
    next = open_node(slots(text, "strict", 3, 6));
    other = open_pool(next, "strict");
    require(weir_engine_redefine(weir_pool_set(other, 0), 0, SECOND * 60, decline, shown, &error) ==
            -ECANCELED);
    require(strstr(shown, "5 -> 6"));
    require(weir_engine_redefine(weir_pool_set(other, 0), 2, SECOND, NULL, NULL, &error) ==
            -EINVAL);
    applies(slots(text, "strict", 2, 5), "strict", WEIR_REDEFINE_CHECK, 0, "");
    require(try_result(pool, 6) == -ERANGE && try_result(pool, 5) == 0);
    require(weir_engine_redefine(weir_pool_set(other, 0), 0, SECOND * 60, NULL, NULL, &error) == 1);
    have(other, 6);
    weir_pool_close(other);
    weir_pool_close(pool);
    weir_close(next);
    weir_close(w);
}

/* The sets lie on all masters of a cluster, and the first one that is asked has a part of them. */
static void an_apply_finds_the_server_of_a_set(const char *url)
{
    enum { SETS = 6 };
    const char *there = path, *length = session;
    char text[TEXT_MAX], name[32];

    path = url;
    session = "1s"; /* as long is the grace of a server that is new */
    for (int i = 0; i < SETS; i++) {
        weir *w;
        weir_pool *pool;

        snprintf(name, sizeof(name), "spread%d", i);
        w = open_node(slots(text, name, 1, 1));
        pool = open_pool(w, name);
        have(pool, 1);
        snprintf(text, sizeof(text),
                 "%s: `revision`: 1 -> 2; `capacity` of limit 1 (`slots`): 1 -> 2", name);
        applies_by(name, 2, 2, WEIR_REDEFINE_CHECK, 1, text);
        applies_by(name, 2, 2, 0, 1, text);
        applies_by(name, 2, 2, 0, 0, "");
        have(pool, 1);
        weir_pool_close(pool);
        weir_close(w);
    }
    path = there;
    session = length;
}

/* A server that cannot be reached is told in a time that the caller bounds, and so is one that
 * is not asked. */
static void a_server_that_is_away_is_told(void)
{
    char text[TEXT_MAX], shown[TEXT_MAX];
    struct weir_error error;
    const char *there = path;
    struct weir_options options = {.size = sizeof(options), .flags = WEIR_OPEN_OFFLINE};
    weir_pool *pool;
    weir *w = NULL;

    path = "/nowhere/at/all";
    require(apply(slots(text, "away", 1, 1), "away", 0, shown, &error) == -EHOSTUNREACH);
    require(strstr(error.message, "backend `main`: the server cannot be asked: No such file"));
    options.text = text;
    require(weir_open(&w, &options, &error) == 0);
    pool = open_pool(w, "away");
    require(weir_engine_redefine(weir_pool_set(pool, 0), 0, SECOND, NULL, NULL, &error) ==
            -EHOSTUNREACH);
    weir_pool_close(pool);
    weir_close(w);
    path = there;
}

/* ---- subjects ---- */

static int take_of(weir_pool *pool, const char *subject, uint64_t n)
{
    const struct weir_amount amount = {"slots", n};
    struct weir_request request = request_of(&amount);

    request.subject = subject;
    request.subject_size = strlen(subject);
    return weir_take(pool, &request, NULL);
}

static const char *keyed(char text[TEXT_MAX], unsigned revision, unsigned n)
{
    write_text(text,
               "  users:\n    backend: main\n    revision: %u\n    subjects: { max: 1k }\n"
               "    limits:\n      - { type: rate, key: slots, algorithm: gcra, capacity: %u, "
               "window: 2h }\n",
               revision, n);
    return text;
}

static void subjects_change_by_their_next_call(void)
{
    char text[TEXT_MAX];
    weir *a = open_node(keyed(text, 0, 8)), *b = open_node(text);
    weir_pool *pool = open_pool(a, "users"), *other = open_pool(b, "users");

    require(take_of(pool, "ann", 2) == 0 && take_of(other, "bob", 2) == 0);
    reload_well(a, keyed(text, 1, 4));
    require(take_of(other, "bob", 5) == 0); /* nothing has asked for it since */
    applies(text, "users", 0, -EOPNOTSUPP, "each subject has a definition of its own");
    require(take_of(pool, "ann", 4) == 0 && take_of(pool, "ann", 1) == -EAGAIN);
    require(take_of(other, "ann", 1) == -EAGAIN && take_of(other, "ann", 5) == -ERANGE);
    require(take_of(pool, "bob", 1) == 0 && take_of(other, "bob", 1) == -EAGAIN);
    weir_pool_close(pool);
    weir_pool_close(other);
    weir_close(a);
    weir_close(b);
}

/* ---- leases ---- */

static const char *leased(char text[TEXT_MAX], unsigned revision, unsigned n, const char *lease)
{
    write_text(text,
               "  quota:\n    backend: main\n    revision: %u\n    limits:\n"
               "      - { type: rate, key: slots, algorithm: gcra, capacity: %u, window: 1s, "
               "burst: 1000%s }\n",
               revision, n, lease);
    return text;
}

static uint64_t boot_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

/* Takes as much as there is, for a while. Returns how much it was. */
static uint64_t take_all(weir_pool *pool, uint64_t ns)
{
    const struct weir_amount amount = {"slots", 1};
    const struct weir_request request = request_of(&amount);
    uint64_t end_ns = boot_ns() + ns, n = 0;

    while (boot_ns() < end_ns) {
        int r = weir_take(pool, &request, NULL);

        require(r == 0 || r == -EAGAIN);
        n += r == 0;
    }
    return n;
}

/* Batches from before a change are used besides what the new definition grants, and no more. */
static void leases_stay_bounded(void)
{
    char text[TEXT_MAX];
    weir *a = open_node(leased(text, 0, 5000, ", lease: { for: 100ms }"));
    weir_pool *pool = open_pool(a, "quota");
    uint64_t begin_ns = boot_ns(), changed_ns, n = take_all(pool, SECOND / 2);

    require(n > 0 && n <= 1000 + 5000 * (boot_ns() - begin_ns) / SECOND + 1);
    changed_ns = boot_ns();
    reload_well(a, leased(text, 1, 500, ", lease: { for: 20ms }"));
    n = take_all(pool, SECOND / 2);
    require(n <= 1000 + 1000 + 500 * (boot_ns() - changed_ns) / SECOND + 1);
    changed_ns = boot_ns();
    reload_well(a, leased(text, 2, 50, ""));
    n = take_all(pool, SECOND / 2);
    require(n <= 1000 + 1000 + 50 * (boot_ns() - changed_ns) / SECOND + 1);
    reload_well(a, leased(text, 3, 5000, ", lease: { for: 100ms }"));
    require(take_all(pool, SECOND / 4) > 0);
    weir_pool_close(pool);
    weir_close(a);
}

/* A node drops a set, and takes it and another one. What it holds, it holds meanwhile. */
static void sets_come_and_go(void)
{
    char text[TEXT_MAX];
    weir *a = open_node(slots(text, "guest", 1, 3)), *b = open_node(text);
    weir_pool *of_a = open_pool(a, "guest"), *of_b = open_pool(b, "guest"), *other;
    weir_acquisition *held = acquire(of_a, 2), *waiter = submit(of_a, 2), *of_b_held;

    reload_well(a, slots(text, "other", 1, 5));
    require(await(waiter) == -ESHUTDOWN);
    require(weir_release(&waiter) == 0);
    require(try_result(of_a, 1) == -ESTALE);
    other = open_pool(a, "other");
    require(try_result(other, 5) == 0);
    require(try_result(of_b, 2) == -EAGAIN);
    of_b_held = acquire(of_b, 1);
    reload_well(a, slots(text, "guest", 1, 3));
    require(try_result(of_a, 1) == -EAGAIN);
    require(weir_release(&held) == 0);
    held = acquire(of_a, 2);
    require(try_result(of_b, 1) == -EAGAIN);
    require(weir_release(&held) == 0);
    require(weir_release(&of_b_held) == 0);
    weir_pool_close(other);
    weir_pool_close(of_a);
    weir_pool_close(of_b);
    weir_close(a);
    weir_close(b);
}

int main(int argc, char **argv)
{
    require(argc == 3 || argc == 4);
    plugin = argv[1];
    path = argv[2];
    waiters_and_holders_go_on();
    what_is_impossible_ends();
    what_cannot_be_is_refused();
    another_definition_is_told();
    an_apply_grants_waiters_and_holds_nothing();
    an_apply_takes_nothing_from_holders();
    what_cannot_be_applied_is_refused();
    a_server_that_is_away_is_told();
    subjects_change_by_their_next_call();
    leases_stay_bounded();
    sets_come_and_go();
    if (argc == 4)
        an_apply_finds_the_server_of_a_set(argv[3]);
    return 0;
}
