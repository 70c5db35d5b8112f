/* SPDX-License-Identifier: MIT */
/*
 * Each operation of the backend for Redis, one after the other, by two users of one set.
 *
 *     engine_steps PLUGIN SOCKET
 */
#include "engine_user.h"

#include <hiredis/hiredis.h>
#include <sys/wait.h>

#define WAITERS 50

static struct user first, second;
static void *set, *other; /* one set, of both users */
static redisContext *server;

static void open_user(struct user *user, const char *plugin, const char *url)
{
    struct weir_reason reason = {0};
    int r = user_open(user, plugin, &reason,
                      (const char *const[]){"url", url, "session", "1000", NULL});
    if (r < 0)
        fprintf(stderr, "%s\n", reason.message);
    require(r == 0);
    user->is_quiet = 1;
    user_start(user);
}

static int ask(struct user *user, void *of, enum weir_backend_mode mode, const uint64_t *amounts,
               struct weir_backend_verdict *ret)
{
    const struct request_args args = {.amounts = amounts, .mode = mode, .timeout_ns = PATIENCE_NS};
    *ret = (struct weir_backend_verdict){0};
    return user_acquire(user, of, &args, ret);
}

static void submit_until(struct user *user, void *of, struct request *request,
                         const uint64_t *amounts, uint64_t timeout_ns)
{
    request_begin(request);
    const struct weir_backend_ask args = {.size = sizeof(args),
                                          .token = (uintptr_t)request,
                                          .mode = WEIR_BACKEND_WAIT,
                                          .timeout_ns = timeout_ns,
                                          .max_wait_ns = UINT64_MAX,
                                          .amounts = amounts};
    require(user->backend->ask(of, &args) == 0);
    require(user->backend->wait(of, args.token, now_ns() + PATIENCE_NS) == 1);
}

static void submit(struct user *user, void *of, struct request *request, const uint64_t *amounts)
{
    submit_until(user, of, request, amounts, UINT64_MAX);
}

static uint64_t available(struct user *user, void *of, uint32_t limit, uint64_t *waiting)
{
    struct weir_backend_limit_stats limits[LIMITS_MAX];
    struct weir_backend_snapshot snapshot = {.size = sizeof(snapshot), .limits = limits};
    int r = user->backend->snapshot(of, NULL, 0, now_ns() + PATIENCE_NS, &snapshot);
    require(r == 0);
    if (waiting)
        *waiting = snapshot.waiting;
    return limits[limit].available;
}

/* Waits until so many units of the resource are available. */
static void expect_available(uint64_t n)
{
    uint64_t end = now_ns() + PATIENCE_NS;
    while (available(&first, set, 0, NULL) != n) {
        struct timespec pause = {0, 1000000};
        require(now_ns() < end);
        nanosleep(&pause, NULL);
    }
}

static void test_try(void)
{
    const uint64_t two[] = {2, 0}, three[] = {3, 0}, large[] = {4, 0}, rate[] = {0, 1000};
    struct weir_backend_verdict a, b;
    require(ask(&first, set, WEIR_BACKEND_TRY, large, &a) == -ERANGE && a.limit == 0);
    require(ask(&first, set, WEIR_BACKEND_TRY, two, &a) == 0 && a.hold && a.fence);
    require(first.backend->is_held(set, a.hold) && !first.backend->is_held(set, a.hold + 1));
    require(ask(&second, other, WEIR_BACKEND_TRY, two, &b) == -EAGAIN && b.limit == 0);
    require(b.retry_after_ns == UINT64_MAX);
    user_release(&first, set, a.hold, two);
    user_release(&first, set, a.hold, two); /* it is no hold any more */
    expect_available(3);                    /* the users have links of their own */
    require(ask(&second, other, WEIR_BACKEND_TRY, three, &b) == 0 && b.fence > a.fence);
    user_release(&second, other, b.hold, three);
    require(ask(&first, set, WEIR_BACKEND_TAKE, rate, &a) == 0 && a.hold == 0);
    require(ask(&second, other, WEIR_BACKEND_TAKE, rate, &b) == -EAGAIN && b.limit == 1);
    require(b.retry_after_ns > 0 && b.retry_after_ns <= 1000 * MS);
    require(ask(&first, set, WEIR_BACKEND_RESERVE, rate, &a) == 0 && a.delay_ns > 0);
    require(a.delay_ns <= 1000 * MS);
    const struct weir_backend_release undo = {
        .size = sizeof(undo), .hold = a.hold, .used = (const uint64_t[]){0, 0}, .undo = 1};
    first.backend->release(set, &undo);
    expect_available(3);
}

static void test_return_part(void)
{
    const uint64_t three[] = {3, 0}, one[] = {1, 0}, two[] = {2, 0};
    struct weir_backend_verdict a, b;
    require(ask(&first, set, WEIR_BACKEND_WAIT, three, &a) == 0); /* after what was reserved */
    first.backend->return_part(set, a.hold, one);
    expect_available(2);
    require(ask(&second, other, WEIR_BACKEND_TRY, two, &b) == 0);
    user_release(&first, set, a.hold, one);
    user_release(&second, other, b.hold, two);
    expect_available(3);
}

/* Waiters of both users are granted in the order in which they came, one at a time. */
static void test_fifo(void)
{
    static struct request requests[WAITERS];
    const uint64_t all[] = {3, 0};
    struct weir_backend_verdict a;
    uint64_t waiting, fence = 0;
    require(ask(&first, set, WEIR_BACKEND_TRY, all, &a) == 0);
    for (size_t i = 0; i < WAITERS; i++) {
        submit(i % 2 ? &second : &first, i % 2 ? other : set, &requests[i], all);
        require(atomic_load(&requests[i].state) == UNDECIDED);
    }
    (void)available(&first, set, 0, &waiting);
    require(waiting == WAITERS);
    user_release(&first, set, a.hold, all);
    for (size_t i = 0; i < WAITERS; i++) {
        require(request_wait(&requests[i], now_ns() + PATIENCE_NS));
        require(requests[i].verdict.result == 0 && requests[i].verdict.fence > fence);
        fence = requests[i].verdict.fence;
        for (size_t later = i + 1; later < WAITERS; later++)
            require(atomic_load(&requests[later].state) == UNDECIDED);
        user_release(i % 2 ? &second : &first, i % 2 ? other : set, requests[i].verdict.hold, all);
    }
    expect_available(3);
}

static void test_cancel(void)
{
    static struct request request;
    const uint64_t all[] = {3, 0};
    struct weir_backend_verdict a;
    int state = UNDECIDED;
    require(ask(&first, set, WEIR_BACKEND_TRY, all, &a) == 0);
    submit(&second, other, &request, all);
    require(atomic_compare_exchange_strong(&request.state, &state, ABANDONED));
    second.backend->cancel(other, (uintptr_t)&request);
    user_release(&first, set, a.hold, all);
    expect_available(3); /* be it that it was granted first */
    require(atomic_load(&request.state) == ABANDONED);
}

/* A process that does not run at its deadline does not end its wait. The server does, and goes on
 * to the next waiter. */
static void test_deadline(void)
{
    static struct request late, next;
    const uint64_t all[] = {3, 0};
    struct weir_backend_verdict a;
    uint64_t began;
    require(ask(&first, set, WEIR_BACKEND_TRY, all, &a) == 0);
    began = now_ns();
    submit_until(&second, other, &late, all, 20 * MS);
    submit(&second, other, &next, all);
    require(request_wait(&late, now_ns() + PATIENCE_NS) && late.verdict.result == -ETIMEDOUT);
    require(now_ns() - began >= 20 * MS && atomic_load(&next.state) == UNDECIDED);
    user_release(&first, set, a.hold, all);
    require(request_wait(&next, now_ns() + PATIENCE_NS) && next.verdict.result == 0);
    user_release(&second, other, next.verdict.hold, all);
    expect_available(3);
}

/* The server's clock may be ahead. A request that it ends before its deadline is asked again. */
static void test_early_end(void)
{
    static const char end_waits[] =
        "for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do\n"
        "  local node, slot = string.match(field, '^t(.*)%.(%d+)$')\n"
        "  if node then\n"
        "    local serial = struct.unpack('<d', redis.call('HGET', KEYS[1], field))\n"
        "    redis.call('RPUSH', redis.call('HGET', KEYS[1], 'i' .. node),\n"
        "               string.format('E %d %d 1 %s', slot, serial, KEYS[1]))\n"
        "  end\n"
        "end\n";
    static struct request request;
    const uint64_t all[] = {3, 0};
    struct weir_backend_verdict a;
    require(ask(&first, set, WEIR_BACKEND_TRY, all, &a) == 0);
    submit_until(&second, other, &request, all, PATIENCE_NS);
    freeReplyObject(redisCommand(server, "EVAL %s 1 weir:{steps}", end_waits));
    user_release(&first, set, a.hold, all);
    require(request_wait(&request, now_ns() + PATIENCE_NS) && request.verdict.result == 0);
    user_release(&second, other, request.verdict.hold, all);
    expect_available(3);
}

/* Messages that never arrive: the heartbeats find what was granted. */
static void test_lost_message(void)
{
    static struct request request;
    const uint64_t all[] = {3, 0};
    struct weir_backend_verdict a;
    require(ask(&first, set, WEIR_BACKEND_TRY, all, &a) == 0);
    submit(&second, other, &request, all);
    freeReplyObject(redisCommand(server, "CLIENT KILL TYPE normal SKIPME yes"));
    freeReplyObject(redisCommand(server, "ACL SETUSER default -blpop"));
    user_release(&first, set, a.hold, all);
    require(request_wait(&request, now_ns() + PATIENCE_NS) && request.verdict.result == 0);
    freeReplyObject(redisCommand(server, "ACL SETUSER default +blpop"));
    user_release(&second, other, request.verdict.hold, all);
    expect_available(3);
}

/* The key vanishes: what was held is lost, and after a session all can be had again. */
static void test_lost(void)
{
    const uint64_t all[] = {3, 0};
    struct weir_backend_verdict a, b;
    uint64_t losses = atomic_load(&first.losses), end = now_ns() + PATIENCE_NS;
    require(ask(&first, set, WEIR_BACKEND_TRY, all, &a) == 0);
    freeReplyObject(redisCommand(server, "DEL weir:{steps}"));
    while (atomic_load(&first.losses) == losses && now_ns() < end) {
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
    }
    require(atomic_load(&first.losses) > losses && atomic_load(&first.lost) == a.hold);
    require(ask(&second, other, WEIR_BACKEND_WAIT, all, &b) == 0);
    user_release(&first, set, a.hold, all); /* says nothing: it is not held */
    user_release(&second, other, b.hold, all);
    expect_available(3);
}

/* A session that has run out is seen by the clock, also while the thread of the connection, which
 * would see it, gets no time: a process that was stopped goes on with any of its threads. */
static void test_run_out(const char *plugin, const char *url)
{
    struct weir_reason reason = {0};
    struct weir_backend_verdict verdict;
    struct timespec session = {0, 300000000};
    struct user user = {0};
    const uint64_t one[] = {1, 0};
    require(user_open(&user, plugin, &reason,
                      (const char *const[]){"url", url, "session", "300", NULL}) == 0);
    user_start(&user);
    void *short_set = user_open_set(&user, "short", 1, 1000, 0);
    require(ask(&user, short_set, WEIR_BACKEND_WAIT, one, &verdict) == 0);
    user_stop(&user);
    nanosleep(&session, NULL);
    require(!user.backend->is_held(short_set, verdict.hold));
    require(atomic_load(&user.losses) == 1 && atomic_load(&user.lost) == verdict.hold);
    require(!user.backend->is_held(short_set, verdict.hold));
    user.backend->set_close(short_set);
    user.backend->close(user.connection);
}

/* A set that is defined otherwise, or may not be used, or is damaged, has codes of its own. */
static void test_refused_sets(void)
{
    struct weir_backend_limit_stats limits[LIMITS_MAX];
    struct weir_backend_snapshot snapshot = {.size = sizeof(snapshot), .limits = limits};
    const uint64_t one[] = {1, 0};
    struct weir_backend_verdict verdict;
    void *wrong = user_open_set(&second, "steps", 4, 1000, 0);
    require(ask(&second, wrong, WEIR_BACKEND_TRY, one, &verdict) == -EEXIST);
    require(second.backend->snapshot(wrong, NULL, 0, now_ns() + PATIENCE_NS, &snapshot) == -EEXIST);
    second.backend->set_close(wrong);
    void *text = user_open_set(&second, "text", 3, 1000, 0);
    freeReplyObject(redisCommand(server, "SET weir:{text} hello"));
    require(ask(&second, text, WEIR_BACKEND_TRY, one, &verdict) == -EUCLEAN);
    freeReplyObject(redisCommand(server, "ACL SETUSER default -fcall"));
    require(ask(&second, text, WEIR_BACKEND_TRY, one, &verdict) == -EACCES);
    freeReplyObject(redisCommand(server, "ACL SETUSER default +fcall"));
    second.backend->set_close(text);
}

/* Functions that have vanished are loaded again, whatever is called next. */
static void test_flushed(void)
{
    struct weir_backend_limit_stats limits[LIMITS_MAX];
    struct weir_backend_snapshot snapshot = {.size = sizeof(snapshot), .limits = limits};
    uint64_t end = now_ns() + PATIENCE_NS;
    int r;
    freeReplyObject(redisCommand(server, "FUNCTION FLUSH"));
    while ((r = first.backend->snapshot(set, NULL, 0, end, &snapshot)) == -ENOTCONN) {
        struct timespec pause = {0, 1000000};
        require(now_ns() < end);
        nanosleep(&pause, NULL);
    }
    require(r == 0 && limits[0].available == 3 && limits[0].held == 0);
}

/* What is taken for good needs no session. A server that says otherwise is not waited for, although
 * the session is given up. A heartbeat may come first, and have the library loaded anew. */
static void test_take_without_session(void)
{
    static const char library[] = "#!lua name=weir\n"
                                  "redis.register_function('weir_take', function()\n"
                                  "  return redis.error_reply('NOSESSION of a take')\n"
                                  "end)\n";
    const uint64_t nothing[] = {0, 0}, one[] = {1, 0};
    struct weir_backend_verdict a;
    int r;
    require(ask(&first, set, WEIR_BACKEND_WAIT, one, &a) == 0); /* there is a session */
    user_release(&first, set, a.hold, one);
    expect_available(3);
    do {
        freeReplyObject(redisCommand(server, "FUNCTION LOAD REPLACE %s", library));
        r = ask(&first, set, WEIR_BACKEND_TAKE, nothing, &a);
    } while (r == 0);
    require(r == -EPROTO);
    freeReplyObject(redisCommand(server, "FUNCTION FLUSH"));
    require(ask(&first, set, WEIR_BACKEND_WAIT, one, &a) == 0); /* this is asked again */
    user_release(&first, set, a.hold, one);
    expect_available(3);
}

/* A user that leaves gives back what it holds, at once. */
static void test_leave(void)
{
    const uint64_t all[] = {3, 0};
    struct weir_backend_verdict a;
    require(ask(&second, other, WEIR_BACKEND_WAIT, all, &a) == 0);
    second.backend->set_close(other);
    expect_available(3);
    user_close(&second);
}

/* A process that forks after it has opened a connection: each of the two has a session. */
static void test_fork(const char *plugin, const char *url)
{
    struct user user = {.is_quiet = 1};
    struct weir_reason reason = {0};
    struct weir_backend_verdict verdict;
    const uint64_t one[] = {1, 0};
    int status;
    require(user_open(&user, plugin, &reason,
                      (const char *const[]){"url", url, "session", "1000", NULL}) == 0);
    void *of = user_open_set(&user, "steps", 3, 1000, 0);
    pid_t child = fork();
    require(child >= 0);
    user_start(&user);
    require(ask(&user, of, WEIR_BACKEND_WAIT, one, &verdict) == 0);
    if (child > 0) {
        require(waitpid(child, &status, 0) == child && status == 0);
        require(available(&user, of, 0, NULL) == 2); /* the child has left, and it alone */
        user_release(&user, of, verdict.hold, one);
    }
    user.backend->set_close(of);
    user_close(&user);
    if (child == 0)
        _exit(0);
}

static void test_unreachable(const char *plugin)
{
    struct user user = {.is_quiet = 1};
    struct weir_reason reason = {0};
    struct weir_backend_verdict verdict;
    const uint64_t one[] = {1, 0};
    require(user_open(&user, plugin, &reason,
                      (const char *const[]){"url", "unix:///nowhere/socket", "timeout", "50",
                                            NULL}) == 0);
    void *of = user_open_set(&user, "steps", 3, 1000, 0);
    user_start(&user);
    require(ask(&user, of, WEIR_BACKEND_TRY, one, &verdict) == -ENOTCONN);
    require(ask(&user, of, WEIR_BACKEND_TAKE, (const uint64_t[]){0, 1}, &verdict) == -ENOTCONN);
    require(ask(&user, of, WEIR_BACKEND_WAIT, one, &verdict) == -ENOTCONN);
    const struct request_args patient = {.amounts = one,
                                         .mode = WEIR_BACKEND_WAIT,
                                         .flags = WEIR_BACKEND_PATIENT,
                                         .timeout_ns = 300 * MS};
    require(user_acquire(&user, of, &patient, &verdict) == -ETIMEDOUT);
    require(user.backend->check(user.connection, now_ns() + 1000 * MS, &reason) < 0);
    require(reason.message[0]);
    user.backend->set_close(of);
    user_close(&user);
}

/* A subject of one set, and another set of which the name is both with a colon between, are apart.
 */
static void test_names(void)
{
    static const uint64_t amounts[] = {1, 1};
    struct request_args args = {
        .amounts = amounts, .mode = WEIR_BACKEND_TRY, .timeout_ns = PATIENCE_NS, .subject = "b"};
    struct weir_backend_verdict verdict = {0};
    void *subjects = user_open_set(&first, "a", 1, 0, 1);
    void *whole = user_open_set(&first, "a:b", 1, 1000, 0);
    require(user_acquire(&first, subjects, &args, &verdict) == 0);
    args.subject = NULL;
    require(user_acquire(&first, whole, &args, &verdict) == 0);
    first.backend->set_close(subjects);
    first.backend->set_close(whole);
}

/* A server that does not let the user in is not away: no policy grants without it. */
static int login_is_denied(struct user *user)
{
    static const uint64_t amounts[] = {1, 1};
    struct request_args args = {
        .amounts = amounts, .mode = WEIR_BACKEND_TRY, .timeout_ns = PATIENCE_NS};
    struct weir_backend_verdict verdict = {0};
    void *of = user_open_set(user, "login", 3, 1000, 0);
    int is_denied = user_acquire(user, of, &args, &verdict) == -EACCES;
    args.mode = WEIR_BACKEND_WAIT;
    args.flags = WEIR_BACKEND_PATIENT;
    is_denied = is_denied && user_acquire(user, of, &args, &verdict) == -EACCES;
    user->backend->set_close(of);
    return is_denied && atomic_load(&user->is_away) == 0;
}

static void test_login(const char *plugin, const char *path)
{
    static const char *const passwords[] = {"right", "wrong"};
    char url[256];
    freeReplyObject(
        redisCommand(server, "ACL SETUSER me on >right ~weir:* +@all -@dangerous +info"));
    freeReplyObject(redisCommand(server, "ACL SETUSER me +function"));
    snprintf(url, sizeof(url), "unix://me@%s", path);
    for (size_t i = 0; i < 2; i++) {
        struct user user = {.is_quiet = 1};
        struct weir_reason reason = {0};
        require(setenv("ENGINE_PASSWORD", passwords[i], 1) == 0);
        require(user_open(&user, plugin, &reason,
                          (const char *const[]){"url", url, "password_env", "ENGINE_PASSWORD",
                                                NULL}) == 0);
        user_start(&user);
        int r = user.backend->check(user.connection, now_ns() + PATIENCE_NS, &reason);
        require(i == 0 ? r == 0 : r == -EACCES);
        require(!strstr(reason.message, passwords[i]));
        require(i == 0 || login_is_denied(&user));
        user_close(&user);
    }
}

int main(int argc, char **argv)
{
    struct weir_reason reason = {0};
    char url[256];
    require(argc == 3);
    server = redisConnectUnix(argv[2]);
    require(server && !server->err);
    snprintf(url, sizeof(url), "unix://%s", argv[2]);
    open_user(&first, argv[1], url);
    open_user(&second, argv[1], url);
    require(first.backend->check(first.connection, now_ns() + PATIENCE_NS, &reason) == 0);
    set = user_open_set(&first, "steps", 3, 1000, 0);
    other = user_open_set(&second, "steps", 3, 1000, 0);
    struct weir_backend_verdict verdict;
    const uint64_t one[] = {1, 0};
    /* A server that was just started grants nothing for the length of a session. */
    require(ask(&first, set, WEIR_BACKEND_WAIT, one, &verdict) == 0);
    user_release(&first, set, verdict.hold, one);
    test_try();
    test_return_part();
    test_fifo();
    test_cancel();
    test_deadline();
    test_early_end();
    test_lost_message();
    test_lost();
    test_run_out(argv[1], url);
    test_refused_sets();
    test_names();
    test_flushed();
    test_take_without_session();
    test_leave();
    test_fork(argv[1], url);
    test_unreachable(argv[1]);
    test_login(argv[1], argv[2]);
    first.backend->set_close(set);
    user_close(&first);
    redisFree(server);
    return 0;
}
