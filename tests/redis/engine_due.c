/* SPDX-License-Identifier: MIT */
/*
 * The thread of the backend for Redis looks at the sessions that are due, however many there are:
 * shown by counts of how often it wakes up, and of how often it looks at a session. And what is to
 * wake it while it is awake does so.
 *
 *     engine_due PLUGIN SOCKET    the plugin is linked in, with two functions that are counted
 */
#include "../../plugins/backends/redis/redis_calls.h"
#include "engine_user.h"

#include <stdio.h>

#define SUBJECTS   2000
#define WAKES      10 /* and more, for each heartbeat that a session may have had */
#define SESSION_MS 1000
#define BEATS      4 /* heartbeats of a session */
#define LOOKS_MAX  4 /* for each time that the thread wakes up */

uint64_t __real_redis_session_tick(struct redis_session *session, uint64_t now);
uint64_t __wrap_redis_session_tick(struct redis_session *session, uint64_t now);
uint64_t __real_redis_server_tick(struct redis_server *server, uint64_t now);
uint64_t __wrap_redis_server_tick(struct redis_server *server, uint64_t now);

static _Atomic uint64_t looks, wakes;
static struct redis_connection *connection;
static int tells;                /* owner: the connection's lock. It is told to wake up once more */
static _Atomic uint64_t told_at; /* as many times as it had been awake then; 0: not yet */
extern const struct weir_plugin_table weir_plugins_v1;

uint64_t __wrap_redis_session_tick(struct redis_session *session, uint64_t now)
{
    atomic_fetch_add(&looks, 1);
    return __real_redis_session_tick(session, now);
}

/* There is one server: it is looked at each time. */
uint64_t __wrap_redis_server_tick(struct redis_server *server, uint64_t now)
{
    uint64_t woke = atomic_fetch_add(&wakes, 1) + 1;
    connection = server->connection;
    if (tells) {
        tells = 0;
        redis_calls_wake_by(connection, now + MS);
        atomic_store(&told_at, woke);
    }
    return __real_redis_server_tick(server, now);
}

static int ask(struct user *user, void *set, enum weir_backend_mode mode, const char *subject,
               const uint64_t *amounts)
{
    const struct request_args args = {
        .amounts = amounts, .mode = mode, .timeout_ns = PATIENCE_NS, .subject = subject};
    struct weir_backend_verdict verdict;
    return user_acquire(user, set, &args, &verdict);
}

static void *begin(struct user *user, const char *url, const char *ms, const char *name)
{
    struct weir_reason reason = {0};
    require(user_open_plugin(
                user, weir_plugins_v1.plugins[0], &reason,
                (const char *const[]){"url", url, "session", ms, "timeout", ms, NULL}) == 0);
    user_start(user);
    return user_open_set(user, name, 1, 1000, 1);
}

static void end(struct user *user, void *set)
{
    user->backend->set_close(set);
    user_close(user);
}

static void test_many_sessions(const char *url)
{
    static const uint64_t held[] = {1, 0}, unit[] = {0, 1}, all[] = {0, 1000};
    struct user user = {0};
    char subject[32];
    void *set = begin(&user, url, "1000", "due");
    for (int i = 0; i < SUBJECTS; i++) {
        snprintf(subject, sizeof(subject), "s%d", i);
        require(ask(&user, set, WEIR_BACKEND_WAIT, subject, held) == 0);
    }
    uint64_t looks_before = atomic_load(&looks), wakes_before = atomic_load(&wakes);
    uint64_t began_ns = now_ns(), looked, woke, beats;
    require(ask(&user, set, WEIR_BACKEND_TAKE, "busy", all) == 0);
    do { /* each waits for a millisecond, by a timer of the thread, unless the machine is slow */
        require(ask(&user, set, WEIR_BACKEND_WAIT, "busy", unit) == 0);
        looked = atomic_load(&looks) - looks_before;
        woke = atomic_load(&wakes) - wakes_before;
        beats = (now_ns() - began_ns) / (SESSION_MS * MS / BEATS) + 2;
        require(now_ns() - began_ns < PATIENCE_NS);
    } while (woke < WAKES * beats);
    printf("%llu times awake, %llu looks at sessions\n", (unsigned long long)woke,
           (unsigned long long)looked);
    require(looked <= LOOKS_MAX * woke + beats * SUBJECTS);
    end(&user, set);
}

/* All else that it sleeps for is an hour away. */
static void test_told_while_awake(const char *url)
{
    static const uint64_t unit[] = {1, 0};
    struct user user = {0};
    void *set = begin(&user, url, "14400000", "awake");
    uint64_t end_ns = now_ns() + PATIENCE_NS;
    (void)ask(&user, set, WEIR_BACKEND_TRY, "one", unit); /* the server is young: a grace */
    pthread_mutex_lock(&connection->lock);
    tells = 1;
    redis_calls_wake_by(connection, 0);
    pthread_mutex_unlock(&connection->lock);
    while (!atomic_load(&told_at) || atomic_load(&wakes) == atomic_load(&told_at)) {
        require(now_ns() < end_ns);
        sched_yield();
    }
    end(&user, set);
}

int main(int argc, char **argv)
{
    char url[256];
    require(argc == 3);
    snprintf(url, sizeof(url), "unix://%s", argv[2]);
    test_many_sessions(url);
    test_told_while_awake(url);
    return 0;
}
