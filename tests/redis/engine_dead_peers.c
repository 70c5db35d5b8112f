/* SPDX-License-Identifier: MIT */
/*
 * A server of a cluster that is stopped, and one with a name that is looked up for ever, delay what
 * is asked of another server in no way: also where a link to that one has to be made anew.
 *
 *     engine_dead_peers PLUGIN SOCKET CLUSTER    the plugin is linked in; CLUSTER: its URL
 */
#include "engine_user.h"

#include <hiredis/hiredis.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>

#define SET     "peers"
#define NAME    "slow.test"
#define TIMEOUT "20000" /* ms, of an attempt to connect */

extern const struct weir_plugin_table weir_plugins_v1;

struct peer {
    redisContext *client;
    pid_t pid;
    char subject[16]; /* with a key that lies there */
};

static struct peer living, dead;
static _Atomic int is_found, looks;

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **ret);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **ret);

static void pause_ms(void)
{
    const struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
}

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **ret)
{
    if (strcmp(host, NAME))
        return __real_getaddrinfo(host, port, hints, ret);
    atomic_fetch_add(&looks, 1);
    while (!atomic_load(&is_found))
        pause_ms();
    return __real_getaddrinfo("127.0.0.1", port, hints, ret);
}

static redisReply *command(redisContext *client, const char *text)
{
    redisReply *reply = redisCommand(client, text);
    require(reply && reply->type != REDIS_REPLY_ERROR);
    return reply;
}

static void run(const struct peer *peer, const char *text)
{
    freeReplyObject(command(peer->client, text));
}

static int port_of_url(const char *url)
{
    return (int)strtol(strrchr(url, ':') + 1, NULL, 10);
}

/* The key of the subject lies in the first half of the slots, or in the second. */
static void find_peer(struct peer *peer, int port, int is_second)
{
    peer->client = redisConnect("127.0.0.1", port);
    require(peer->client && !peer->client->err);
    redisReply *info = command(peer->client, "INFO server");
    peer->pid = (pid_t)strtol(strstr(info->str, "process_id:") + strlen("process_id:"), NULL, 10);
    freeReplyObject(info);
    run(peer, "CONFIG SET cluster-node-timeout 600000");
    for (int i = 0, is_there = 0; !is_there; i++) {
        char text[64];
        snprintf(peer->subject, sizeof(peer->subject), "s%d", i);
        snprintf(text, sizeof(text), "CLUSTER KEYSLOT weir:{" SET ":%s}", peer->subject);
        redisReply *slot = command(peer->client, text);
        is_there = (slot->integer >= 8192) == is_second;
        freeReplyObject(slot);
    }
}

static void find_peers(const char *url)
{
    find_peer(&living, port_of_url(url), 0);
    redisReply *slots = command(living.client, "CLUSTER SLOTS");
    for (size_t i = 0; i < slots->elements; i++) {
        redisReply *range = slots->element[i];
        if (range->element[0]->integer > 0)
            find_peer(&dead, (int)range->element[2]->element[1]->integer, 1);
    }
    freeReplyObject(slots);
    require(dead.client);
}

static void name_peers(void)
{
    static const char named[] = NAME;
    int is_known = 0;
    run(&living, "CONFIG SET cluster-announce-hostname 127.0.0.1");
    run(&dead, "CONFIG SET cluster-announce-hostname " NAME);
    run(&living, "CONFIG SET cluster-preferred-endpoint-type hostname");
    run(&dead, "CONFIG SET cluster-preferred-endpoint-type hostname");
    for (uint64_t end = now_ns() + PATIENCE_NS; !is_known; pause_ms()) {
        redisReply *slots = command(living.client, "CLUSTER SLOTS");
        for (size_t i = 0; i < slots->elements; i++)
            is_known |= !strcmp(slots->element[i]->element[2]->element[0]->str, named);
        freeReplyObject(slots);
        require(now_ns() < end);
    }
}

static void submit(struct user *user, void *set, struct request *request, const char *subject)
{
    static const uint64_t one[] = {1};
    request_begin(request);
    const struct weir_backend_ask ask = {.size = sizeof(ask),
                                         .token = (uintptr_t)request,
                                         .mode = WEIR_BACKEND_WAIT,
                                         .timeout_ns = UINT64_MAX,
                                         .max_wait_ns = UINT64_MAX,
                                         .amounts = one,
                                         .subject = subject,
                                         .subject_size = strlen(subject)};
    require(user->backend->ask(set, &ask) == 0);
}

static void expect_grant(struct user *user, void *set, struct request *request)
{
    static const uint64_t one[] = {1};
    require(request_wait(request, now_ns() + PATIENCE_NS) && request->verdict.result == 0);
    user_release(user, set, request->verdict.hold, one);
}

/* The link to the living one breaks while that to the dead one is being made. */
static void use_both(const char *url, void (*revive)(void))
{
    static struct request first, second, again;
    struct user user = {.is_quiet = 1};
    struct weir_reason reason = {0};
    require(user_open_plugin(&user, weir_plugins_v1.plugins[0], &reason,
                             (const char *const[]){"url", url, "session", "1000", "timeout",
                                                   TIMEOUT, NULL}) == 0);
    user_start(&user);
    void *set = user_open_set(&user, SET, 1, 0, 1);
    submit(&user, set, &first, living.subject);
    expect_grant(&user, set, &first);
    submit(&user, set, &second, dead.subject);
    for (int i = 0; i < 3; i++) {
        run(&living, "CLIENT KILL TYPE normal SKIPME yes");
        submit(&user, set, &again, living.subject);
        expect_grant(&user, set, &again);
    }
    require(atomic_load(&second.state) == UNDECIDED);
    revive();
    expect_grant(&user, set, &second);
    user.backend->set_close(set);
    user_close(&user);
}

static void revive_process(void)
{
    require(kill(dead.pid, SIGCONT) == 0);
}

static void revive_name(void)
{
    while (!atomic_load(&looks)) /* the thread that looks may be slow to begin */
        poll(NULL, 0, 1);
    atomic_store(&is_found, 1);
}

static void expect_away(const struct user *user, int is_away)
{
    for (uint64_t end = now_ns() + PATIENCE_NS; atomic_load(&user->is_away) != is_away; pause_ms())
        require(now_ns() < end);
}

/* While a name is looked up its server is known to be away. */
static void look_up(int port)
{
    struct user user = {.is_quiet = 1};
    struct weir_reason reason = {0};
    char url[64];
    snprintf(url, sizeof(url), "redis://" NAME ":%d", port);
    atomic_store(&is_found, 0);
    require(user_open_plugin(&user, weir_plugins_v1.plugins[0], &reason,
                             (const char *const[]){"url", url, "timeout", "20", NULL}) == 0);
    void *set = user_open_set(&user, "named", 1, 0, 0);
    user_start(&user);
    expect_away(&user, 1);
    atomic_store(&is_found, 1);
    expect_away(&user, 0);
    user.backend->set_close(set);
    user_close(&user);
}

int main(int argc, char **argv)
{
    require(argc == 4);
    find_peers(argv[3]);
    require(kill(dead.pid, SIGSTOP) == 0);
    use_both(argv[3], revive_process);
    name_peers();
    use_both(argv[3], revive_name);
    look_up(port_of_url(argv[3]));
    redisFree(living.client);
    redisFree(dead.client);
    return 0;
}
