/* SPDX-License-Identifier: MIT */
/*
 * What a user of the backend for Redis does by itself after something went wrong: the program asks
 * for nothing meanwhile.
 *
 *     engine_recovery PLUGIN SOCKET
 *
 * Sessions are long. So what a heartbeat would mend, or the end of a wait for messages, comes too
 * late.
 */
#include "engine_user.h"

#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <sys/socket.h>
#include <unistd.h>

#define SESSION_MS   "100000"
#define PASSWORD     "open-sesame"
#define SOON_NS      (20000 * MS) /* before a heartbeat is due, or the inbox ends a wait */
#define REQUESTS_MAX 100000
#define FDS_MAX      1024
#define SHORT_MS     "100" /* until a link that does not answer is given up */

static const uint64_t one[] = {1, 0};
static redisContext *server;
static const char *plugin;
static char tcp_url[64];
static int port;

/* Sends a command of the test's own. Returns the integer of the reply; 0 if it has none. */
static long long command(const char *text)
{
    redisReply *reply = redisCommand(server, text);
    require(reply && reply->type != REDIS_REPLY_ERROR);
    long long integer = reply->integer;
    freeReplyObject(reply);
    return integer;
}

static void pause_briefly(void)
{
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
}

static int listen_at(struct sockaddr_in *ret_address)
{
    socklen_t size = sizeof(*ret_address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    *ret_address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    require(fd >= 0 && bind(fd, (struct sockaddr *)ret_address, size) == 0 &&
            getsockname(fd, (struct sockaddr *)ret_address, &size) == 0 && listen(fd, 4) == 0);
    return fd;
}

/* Lets the server listen on a port of this machine. By TCP a link that the server closes has no
 * EPOLLHUP. */
static void open_port(void)
{
    for (int i = 0; i < 100 && !port; i++) {
        struct sockaddr_in address;
        int fd = listen_at(&address);
        close(fd);
        redisReply *reply = redisCommand(server, "CONFIG SET port %d", ntohs(address.sin_port));
        if (reply->type != REDIS_REPLY_ERROR)
            port = ntohs(address.sin_port);
        freeReplyObject(reply);
    }
    require(port);
    snprintf(tcp_url, sizeof(tcp_url), "redis://127.0.0.1:%d", port);
}

static atomic_uint lines_n, denied_n;
static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static void *watched; /* a set that is open; NULL: none */

static void watch(void *set)
{
    pthread_mutex_lock(&watch_lock);
    watched = set;
    pthread_mutex_unlock(&watch_lock);
}

/* A line that is kept for the program's log. */
static void host_log(void *context, int level, const char *message)
{
    (void)context, (void)level;
    lines_n++;
    denied_n += strstr(message, "NOPERM") != NULL;
}

/* The lines go to a program that may call weir: no lock is held here. */
static void host_write_log(void *context)
{
    const struct user *user = context;
    pthread_mutex_lock(&watch_lock);
    if (watched)
        require(!user->backend->is_held(watched, 1));
    pthread_mutex_unlock(&watch_lock);
    lines_n = 0;
}

static void begin_session(struct user *user, const char *url, const char *session,
                          const char *timeout)
{
    struct weir_reason reason = {0};
    *user = (struct user){.is_quiet = 1};
    require(user_open(user, plugin, &reason,
                      (const char *const[]){"url", url, "session", session, "timeout", timeout,
                                            NULL}) == 0);
    user->host.log = host_log;
    user->host.write_log = host_write_log;
    user_start(user);
}

static void begin(struct user *user, const char *url, const char *timeout)
{
    begin_session(user, url, SESSION_MS, timeout);
}

static void end(struct user *user, void *set)
{
    user->backend->set_close(set);
    user_close(user);
}

static uint64_t acquire(struct user *user, void *set)
{
    const struct request_args args = {.amounts = one,
                                      .mode = WEIR_BACKEND_WAIT,
                                      .flags = WEIR_BACKEND_PATIENT,
                                      .timeout_ns = PATIENCE_NS};
    struct weir_backend_verdict verdict = {0};
    require(user_acquire(user, set, &args, &verdict) == 0);
    return verdict.hold;
}

static void submit(struct user *user, void *set, struct request *request)
{
    request_begin(request);
    const struct weir_backend_ask ask = {.size = sizeof(ask),
                                         .token = (uintptr_t)request,
                                         .mode = WEIR_BACKEND_WAIT,
                                         .flags = WEIR_BACKEND_PATIENT,
                                         .timeout_ns = UINT64_MAX,
                                         .max_wait_ns = UINT64_MAX,
                                         .amounts = one};
    require(user->backend->ask(set, &ask) == 0);
    require(user->backend->wait(set, ask.token, now_ns() + PATIENCE_NS) == 1);
}

/* Returns the id of the last client of the server that has sent a command of this name last; 0:
 * there is none. */
static long long client(const char *last_command)
{
    char wanted[64];
    long long id = 0;
    redisReply *reply = redisCommand(server, "CLIENT LIST TYPE normal");
    require(reply && reply->type == REDIS_REPLY_STRING);
    snprintf(wanted, sizeof(wanted), " cmd=%s ", last_command);
    for (const char *line = strtok(reply->str, "\n"); line; line = strtok(NULL, "\n"))
        if (strstr(line, wanted))
            id = strtoll(line + strlen("id="), NULL, 10);
    freeReplyObject(reply);
    return id;
}

/* Waits for a client that has come after another one. Returns its id. */
static long long wait_for_client(const char *last_command, long long after)
{
    uint64_t end_ns = now_ns() + SOON_NS;
    long long id;
    while ((id = client(last_command)) <= after) {
        require(now_ns() < end_ns);
        pause_briefly();
    }
    return id;
}

static void kill_client(long long id)
{
    redisReply *reply = redisCommand(server, "CLIENT KILL ID %lld", id);
    require(reply && reply->type != REDIS_REPLY_ERROR);
    freeReplyObject(reply);
}

/* A link that the server closes while an answer is unread for which no thread waits. */
static void test_link(void)
{
    struct user user;
    begin(&user, tcp_url, SHORT_MS);
    void *set = user_open_set(&user, "link", 3, 0, 0);
    uint64_t a = acquire(&user, set), b = acquire(&user, set);
    long long killed = client("fcall");
    user_release(&user, set, b, one);
    command("CLIENT KILL TYPE normal SKIPME yes");
    watch(set);
    wait_for_client("fcall", killed);
    require(user.backend->is_held(set, a));
    while (lines_n > 0) /* of the link that was given up */
        pause_briefly();
    watch(NULL);
    end(&user, set);
}

static int port_of(const struct sockaddr_in *address)
{
    return address->sin_family == AF_INET ? ntohs(address->sin_port) : 0;
}

/* Returns a socket of this process that is connected to the server, from another port than these;
 * 0: there is none. `ret_from`: its port. */
static int other_socket(int a, int b, int *ret_from)
{
    for (int fd = 3; fd < FDS_MAX; fd++) {
        struct sockaddr_in from = {0}, to = {0};
        socklen_t from_size = sizeof(from), to_size = sizeof(to);
        if (getsockname(fd, (struct sockaddr *)&from, &from_size) ||
            getpeername(fd, (struct sockaddr *)&to, &to_size) || port_of(&to) != port)
            continue;
        *ret_from = port_of(&from);
        if (*ret_from != a && *ret_from != b)
            return fd;
    }
    return 0;
}

/* A link that ends while the inbox is being connected, which takes as long as the server pauses. */
static void test_both(void)
{
    static struct request request;
    struct user user;
    begin(&user, tcp_url, SESSION_MS);
    void *set = user_open_set(&user, "both", 1, 0, 0);
    uint64_t hold = acquire(&user, set);
    int link_port, inbox_port, next_port, link = other_socket(0, 0, &link_port);
    submit(&user, set, &request);
    long long inbox = wait_for_client("blpop", 0);
    require(other_socket(link_port, 0, &inbox_port));
    command("MULTI");
    kill_client(inbox);
    command("CLIENT PAUSE 200 ALL");
    command("EXEC");
    while (!other_socket(link_port, inbox_port, &next_port))
        pause_briefly();
    shutdown(link, SHUT_RDWR);
    inbox = wait_for_client("blpop", inbox);
    wait_for_client("fcall", inbox);
    user_release(&user, set, hold, one);
    require(request_wait(&request, now_ns() + PATIENCE_NS) && request.verdict.result == 0);
    end(&user, set);
}

/* Returns how many units of a limit are available. */
static uint64_t available(struct user *user, void *set, uint32_t limit)
{
    struct weir_backend_limit_stats limits[LIMITS_MAX];
    struct weir_backend_snapshot snapshot = {.size = sizeof(snapshot), .limits = limits};
    require(user->backend->snapshot(set, NULL, 0, now_ns() + PATIENCE_NS, &snapshot) == 0);
    return limits[limit].available;
}

static void wait_for_available(struct user *user, void *set, uint64_t n)
{
    uint64_t end_ns = now_ns() + SOON_NS;
    while (available(user, set, 0) != n) {
        require(now_ns() < end_ns);
        pause_briefly();
    }
}

/* Returns a figure of the server's: the first one of this name from a text on. */
static long long figure(const char *section, const char *from, const char *name)
{
    redisReply *reply = redisCommand(server, "INFO %s", section);
    require(reply && reply->type == REDIS_REPLY_STRING);
    const char *line = strstr(reply->str, from), *found = line ? strstr(line, name) : NULL;
    long long value = found ? strtoll(found + strlen(name), NULL, 10) : 0;
    freeReplyObject(reply);
    return value;
}

static long long calls(void)
{
    return figure("commandstats", "cmdstat_fcall:", "calls=");
}

static long long rejected(void)
{
    return figure("commandstats", "cmdstat_fcall:", "rejected_calls=");
}

static long long connections(void)
{
    return figure("stats", "total", "total_connections_received:");
}

/* A server that has no memory left takes back what is held. */
static void test_full(void)
{
    struct user user;
    begin(&user, tcp_url, SESSION_MS);
    void *set = user_open_set(&user, "full", 3, 0, 0);
    uint64_t a = acquire(&user, set), b = acquire(&user, set);
    const struct request_args args = {
        .amounts = one, .mode = WEIR_BACKEND_TRY, .timeout_ns = PATIENCE_NS};
    struct weir_backend_verdict verdict;
    command("CONFIG SET maxmemory 1");
    require(user_acquire(&user, set, &args, &verdict) == -ENOMEM);
    user_release(&user, set, a, one);
    wait_for_available(&user, set, 2);
    user_release(&user, set, b, one);
    wait_for_available(&user, set, 3);
    command("CONFIG SET maxmemory 0");
    end(&user, set);
}

/* Waits for calls that the server does not permit, and permits them again. */
static void deny_calls(long long n)
{
    long long before = rejected();
    command("ACL SETUSER default -fcall");
    while (rejected() < before + n)
        pause_briefly();
    command("ACL SETUSER default +fcall");
}

/* Heartbeats go on after one that was not permitted. Returns whether the session has lasted for two
 * more of its length. */
static int beats_go_on(void)
{
    struct user user;
    begin_session(&user, tcp_url, "400", SESSION_MS);
    void *set = user_open_set(&user, "beat", 3, 0, 0);
    const struct request_args args = {
        .amounts = one, .mode = WEIR_BACKEND_TRY, .timeout_ns = PATIENCE_NS};
    struct weir_backend_verdict verdict;
    require(user_acquire(&user, set, &args, &verdict) == 0); /* it needs no inbox */
    deny_calls(1);
    for (long long end_n = calls() + 8; calls() < end_n && atomic_load(&user.losses) == 0;)
        pause_briefly();
    int lasts = atomic_load(&user.losses) == 0;
    end(&user, set);
    return lasts;
}

/* On a busy machine a session may run out for other reasons. */
static void test_heartbeats(void)
{
    int attempts = 10;
    while (attempts > 0 && !beats_go_on())
        attempts--;
    require(attempts > 0);
}

/* A release that was not permitted is repeated, as it was: what was used is not refunded. */
static void test_release(void)
{
    static const struct weir_backend_setting settings[] = {{"capacity", 10},
                                                           {"window", 86400000 * MS}};
    static const struct weir_backend_limit limits[] = {
        {.size = sizeof(limits[0]), .type = WEIR_LIMIT_RESOURCE, .key = "held", .capacity = 3},
        {.size = sizeof(limits[0]),
         .type = WEIR_LIMIT_RATE,
         .refund = WEIR_BACKEND_REFUND,
         .key = "rate",
         .algorithm = "gcra",
         .state_id = GCRA_STATE_ID,
         .capacity = 10,
         .settings_n = 2,
         .settings = settings}};
    static const struct weir_backend_set definition = {
        .size = sizeof(definition), .name = "undo", .fair = 1, .limits_n = 2, .limits = limits};
    static const uint64_t all[] = {3, 10}, left[] = {2, 10};
    const struct request_args args = {.amounts = all,
                                      .mode = WEIR_BACKEND_WAIT,
                                      .flags = WEIR_BACKEND_PATIENT,
                                      .timeout_ns = PATIENCE_NS};
    struct weir_backend_verdict verdict;
    struct weir_reason reason;
    struct user user;
    void *set;
    begin_session(&user, tcp_url, "400", SESSION_MS);
    require(user.backend->set_open(user.connection, &definition, &set, &reason) == 0);
    require(user_acquire(&user, set, &args, &verdict) == 0);
    command("ACL SETUSER default -fcall");
    user.backend->return_part(set, verdict.hold, left);
    user_release(&user, set, verdict.hold, left);
    deny_calls(2);
    wait_for_available(&user, set, 3);
    require(available(&user, set, 1) == 0);
    end(&user, set);
}

/* An inbox that the user may not read is tried again now and then, and that is logged. */
static void test_denied_inbox(void)
{
    static struct request request;
    struct user user;
    begin(&user, tcp_url, SESSION_MS);
    void *set = user_open_set(&user, "denied", 1, 0, 0);
    uint64_t hold = acquire(&user, set);
    submit(&user, set, &request);
    long long inbox = wait_for_client("blpop", 0), before = connections();
    denied_n = 0;
    command("ACL SETUSER default -blpop");
    kill_client(inbox);
    while (connections() < before + 4)
        pause_briefly();
    struct timespec pause = {0, 200000000};
    nanosleep(&pause, NULL);
    require(connections() < before + 20 && denied_n == 1);
    command("ACL SETUSER default +blpop");
    wait_for_client("blpop", inbox);
    user_release(&user, set, hold, one);
    require(request_wait(&request, now_ns() + PATIENCE_NS) && request.verdict.result == 0);
    end(&user, set);
}

/* Refuses to let a user in, and quotes the command in which the password stands. */
static void *refuse_login(void *of)
{
    static const char reply[] =
        "-ERR unknown command 'AUTH', with args beginning with: '" PASSWORD "' \r\n";
    char bytes[256];
    int fd = accept(*(int *)of, NULL, NULL);
    require(fd >= 0 && recv(fd, bytes, sizeof(bytes), 0) > 0);
    require(send(fd, reply, strlen(reply), 0) == (ssize_t)strlen(reply));
    while (recv(fd, bytes, sizeof(bytes), 0) > 0)
        ;
    close(fd);
    return NULL;
}

/* What a server says of a password is not told further. */
static void test_password(void)
{
    struct weir_reason reason = {0};
    struct sockaddr_in address;
    struct user user = {.is_quiet = 1};
    char url[64];
    pthread_t thread;
    int fd = listen_at(&address);
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", ntohs(address.sin_port));
    require(setenv("ENGINE_PASSWORD", PASSWORD, 1) == 0);
    require(user_open(&user, plugin, &reason,
                      (const char *const[]){"url", url, "password_env", "ENGINE_PASSWORD", NULL}) ==
            0);
    require(pthread_create(&thread, NULL, refuse_login, &fd) == 0);
    require(user.backend->check(user.connection, now_ns() + PATIENCE_NS, &reason) == -EACCES);
    require(strstr(reason.message, "ERR") && !strstr(reason.message, PASSWORD));
    pthread_join(thread, NULL);
    user.backend->close(user.connection);
    close(fd);
}

/* A release for which there was no room is sent when there is. */
static void test_room(void)
{
    struct request *requests = calloc(REQUESTS_MAX, sizeof(*requests));
    const uint64_t unit[] = {0, 1};
    struct weir_backend_ask ask = {.size = sizeof(ask), .mode = WEIR_BACKEND_TAKE, .amounts = unit};
    struct user user;
    char name[4001] = ""; /* few calls fill the outbox */
    size_t n = 0;
    int r = 0;
    require(requests);
    memset(name, 'r', sizeof(name) - 1);
    begin(&user, tcp_url, SESSION_MS);
    void *set = user_open_set(&user, name, 3, 1000, 0);
    uint64_t hold = acquire(&user, set);
    command("CLIENT PAUSE 100000 WRITE");
    for (; n < REQUESTS_MAX && r == 0; n++) {
        request_begin(&requests[n]);
        ask.token = (uintptr_t)&requests[n];
        r = user.backend->ask(set, &ask);
    }
    require(r == -ENOBUFS);
    user_release(&user, set, hold, one);
    command("CLIENT UNPAUSE");
    wait_for_available(&user, set, 3);
    for (size_t i = 0; i + 1 < n; i++)
        require(request_wait(&requests[i], now_ns() + PATIENCE_NS));
    end(&user, set);
    free(requests);
}

int main(int argc, char **argv)
{
    require(argc == 3);
    plugin = argv[1];
    server = redisConnectUnix(argv[2]);
    require(server && !server->err);
    open_port();
    test_link();
    test_both();
    test_full();
    test_heartbeats();
    test_release();
    test_denied_inbox();
    test_password();
    test_room();
    redisFree(server);
    return 0;
}
