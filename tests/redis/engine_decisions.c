/* SPDX-License-Identifier: MIT */
/*
 * What becomes of decisions that are overtaken: by a cancellation, by what others commit, by a
 * refusal of the server, by another server. Between one user and the server is a gate that holds
 * back requests, so that what is on its way at the same time is known.
 *
 *     engine_decisions PLUGIN SOCKET
 */
#include "engine_user.h"

#include <hiredis/hiredis.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SOON_NS    (20000 * MS) /* before a heartbeat is due */
#define LINKS_MAX  8
#define HELD_MAX   (1 << 20)
#define SNAPSHOT   "*11\r\n" /* so begins a reply to weir_snapshot, and no other one here */
#define CAPACITY   3
#define SLOT_WORDS 2
#define IDLE_MS    200 /* far longer than a decision is taken by the server */
#define OTHER_RUN  "00000000000000000000000000000000000000ff"

/* ---- the gate ---- */

struct link {
    int client, server; /* -1: none */
    size_t held_n;
    char last; /* of a reply that is cut */
    int is_cut;
    char held[HELD_MAX];
};

static struct {
    _Atomic int is_other;  /* the server says that it is the one of OTHER_RUN */
    _Atomic int is_closed; /* requests are held */
    _Atomic int passes;    /* 1: those that are held go on, as one */
    _Atomic int cuts;      /* replies to weir_snapshot lack their last byte, until it is 0 again */
    _Atomic int ends;
    pthread_mutex_t lock; /* of the links */
    struct link links[LINKS_MAX];
    struct sockaddr_un server, own;
    int listener;
    pthread_t thread;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void write_all(int fd, const char *bytes, size_t n)
{
    for (ssize_t r = 0; n > 0; bytes += r, n -= (size_t)r) {
        r = send(fd, bytes, n, MSG_NOSIGNAL);
        require(r > 0);
    }
}

static void link_end(struct link *link)
{
    close(link->client);
    close(link->server);
    link->client = link->server = -1;
}

static void link_accept(void)
{
    int client = accept(gate.listener, NULL, NULL), i = 0;
    require(client >= 0);
    while (i < LINKS_MAX && gate.links[i].client >= 0)
        i++;
    require(i < LINKS_MAX);
    struct link *link = &gate.links[i];
    link->client = client;
    link->held_n = 0;
    link->is_cut = 0;
    link->server = socket(AF_UNIX, SOCK_STREAM, 0);
    require(connect(link->server, (struct sockaddr *)&gate.server, sizeof(gate.server)) == 0);
}

static void link_flush(struct link *link)
{
    write_all(link->server, link->held, link->held_n);
    link->held_n = 0;
}

static void link_take_requests(struct link *link)
{
    ssize_t n = read(link->client, link->held + link->held_n, HELD_MAX - link->held_n);
    if (n <= 0) {
        link_end(link);
        return;
    }
    link->held_n += (size_t)n;
}

/* In the place of what INFO says. */
static void say_other_run(char *bytes, size_t n)
{
    static const char word[] = "run_id:";
    char *at = memmem(bytes, n, word, strlen(word));
    if (at && n - (size_t)(at - bytes) > strlen(word) + strlen(OTHER_RUN))
        memcpy(at + strlen(word), OTHER_RUN, strlen(OTHER_RUN));
}

static void link_take_replies(struct link *link)
{
    static char bytes[1 << 16];
    ssize_t n = read(link->server, bytes, sizeof(bytes));
    if (n <= 0) {
        link_end(link);
        return;
    }
    if (atomic_load(&gate.cuts) && memmem(bytes, (size_t)n, SNAPSHOT, strlen(SNAPSHOT))) {
        link->is_cut = 1;
        link->last = bytes[--n];
    }
    if (atomic_load(&gate.is_other))
        say_other_run(bytes, (size_t)n);
    write_all(link->client, bytes, (size_t)n);
}

static void link_attend(struct link *link, short of_client, short of_server, int flushes)
{
    if (link->client >= 0 && of_client)
        link_take_requests(link);
    if (link->client >= 0 && of_server && !link->is_cut)
        link_take_replies(link);
    if (link->client >= 0 && flushes)
        link_flush(link);
    if (link->client >= 0 && link->is_cut && !atomic_load(&gate.cuts)) {
        link->is_cut = 0;
        write_all(link->client, &link->last, 1);
    }
}

static void *gate_run(void *unused)
{
    (void)unused;
    while (!atomic_load(&gate.ends)) {
        struct pollfd fds[2 * LINKS_MAX + 1];
        for (int i = 0; i < LINKS_MAX; i++) {
            fds[2 * i] = (struct pollfd){.fd = gate.links[i].client, .events = POLLIN};
            fds[2 * i + 1] = (struct pollfd){.fd = gate.links[i].server, .events = POLLIN};
        }
        fds[2 * LINKS_MAX] = (struct pollfd){.fd = gate.listener, .events = POLLIN};
        poll(fds, 2 * LINKS_MAX + 1, 1);
        pthread_mutex_lock(&gate.lock);
        int passes = atomic_load(&gate.passes), flushes = passes || !atomic_load(&gate.is_closed);
        for (int i = 0; i < LINKS_MAX; i++)
            link_attend(&gate.links[i], fds[2 * i].revents, fds[2 * i + 1].revents, flushes);
        if (fds[2 * LINKS_MAX].revents)
            link_accept();
        if (passes)
            atomic_store(&gate.passes, 0);
        pthread_mutex_unlock(&gate.lock);
    }
    return NULL;
}

static void gate_begin(const char *server)
{
    gate.server.sun_family = gate.own.sun_family = AF_UNIX;
    snprintf(gate.server.sun_path, sizeof(gate.server.sun_path), "%s", server);
    snprintf(gate.own.sun_path, sizeof(gate.own.sun_path), "%.90s.gate", server);
    for (int i = 0; i < LINKS_MAX; i++)
        gate.links[i].client = gate.links[i].server = -1;
    gate.listener = socket(AF_UNIX, SOCK_STREAM, 0);
    require(bind(gate.listener, (struct sockaddr *)&gate.own, sizeof(gate.own)) == 0);
    require(listen(gate.listener, LINKS_MAX) == 0);
    require(pthread_create(&gate.thread, NULL, gate_run, NULL) == 0);
}

static void gate_end(void)
{
    atomic_store(&gate.ends, 1);
    pthread_join(gate.thread, NULL);
    for (int i = 0; i < LINKS_MAX; i++)
        if (gate.links[i].client >= 0)
            link_end(&gate.links[i]);
    close(gate.listener);
    unlink(gate.own.sun_path);
}

static void pause_ms(void)
{
    nanosleep(&(struct timespec){0, (long)MS}, NULL);
}

/* Waits until a call of this name is held. */
static void gate_await(const char *call)
{
    for (uint64_t end = now_ns() + PATIENCE_NS;; pause_ms()) {
        int found = 0;
        pthread_mutex_lock(&gate.lock);
        for (int i = 0; i < LINKS_MAX; i++) {
            const struct link *link = &gate.links[i];
            found |=
                link->client >= 0 && memmem(link->held, link->held_n, call, strlen(call)) != NULL;
        }
        pthread_mutex_unlock(&gate.lock);
        if (found)
            return;
        require(now_ns() < end);
    }
}

/* Lets go what is held, and holds what comes. */
static void gate_pass(void)
{
    atomic_store(&gate.passes, 1);
    while (atomic_load(&gate.passes))
        pause_ms();
}

/* ---- two users ---- */

static struct user first, second;  /* the first one is behind the gate */
static _Atomic uint64_t undone_ns; /* when the last grant was granted that was undone */
static _Atomic uint32_t undone_n;  /* how many were */

static _Atomic uint64_t used_last; /* of a rate, by the last grant that was given back */

static int decide(void *context, void *set, struct weir_backend_decision *decision)
{
    if (decision->deed == WEIR_BACKEND_GIVE_BACK && decision->undo) {
        atomic_store(&undone_ns, decision->granted_ns);
        atomic_fetch_add(&undone_n, 1);
    }
    if (decision->deed == WEIR_BACKEND_GIVE_BACK)
        atomic_store(&used_last, decision->used[FOREIGN_TAKEN]);
    return user_decide(context, set, decision);
}

static void open_user(struct user *user, const char *plugin, const char *path)
{
    struct weir_reason reason = {0};
    char url[256];
    snprintf(url, sizeof(url), "unix://%s", path);
    user->is_quiet = user->is_foreign = 1;
    require(user_open(user, plugin, &reason,
                      (const char *const[]){"url", url, "session", "100000", "timeout", "60000",
                                            NULL}) == 0);
    user->host.decide = decide;
    user_start(user);
}

/* A set with slots that users decide, and a seat that the server does. */
static void *open_set_of(struct user *user, const char *name, uint32_t slots, uint32_t fair)
{
    uint32_t marks[2] = {0};
    const struct weir_backend_limit limits[] = {{.size = sizeof(limits[0]),
                                                 .type = WEIR_LIMIT_RESOURCE,
                                                 .key = "slots",
                                                 .algorithm = "slots",
                                                 .capacity = slots,
                                                 .state_size = SLOT_WORDS * sizeof(uint64_t),
                                                 .ret_is_decided = &marks[0]},
                                                {.size = sizeof(limits[0]),
                                                 .type = WEIR_LIMIT_RESOURCE,
                                                 .key = "seat",
                                                 .capacity = 1,
                                                 .ret_is_decided = &marks[1]}};
    const struct weir_backend_set set = {.size = sizeof(set),
                                         .name = name,
                                         .fingerprint = 1,
                                         .fair = fair,
                                         .limits_n = 2,
                                         .limits = limits};
    struct weir_reason reason = {0};
    void *opened = NULL;
    user->capacity = slots;
    require(user->backend->set_open(user->connection, &set, &opened, &reason) == 0);
    require(marks[0] == 1 && marks[1] == 0);
    return opened;
}

static void *open_set(struct user *user, const char *name, uint32_t slots)
{
    return open_set_of(user, name, slots, 1);
}

static uint64_t acquire(struct user *user, void *set, uint64_t slots, uint64_t seats)
{
    const uint64_t amounts[] = {slots, seats};
    const struct request_args args = {
        .amounts = amounts, .mode = WEIR_BACKEND_TRY, .timeout_ns = PATIENCE_NS};
    struct weir_backend_verdict verdict = {0};
    require(user_acquire(user, set, &args, &verdict) == 0);
    return verdict.hold;
}

static void submit(struct user *user, void *set, struct request *request,
                   enum weir_backend_mode mode, const uint64_t *amounts)
{
    request_begin(request);
    const struct weir_backend_ask ask = {.size = sizeof(ask),
                                         .token = (uintptr_t)request,
                                         .mode = mode,
                                         .timeout_ns = UINT64_MAX,
                                         .max_wait_ns = UINT64_MAX,
                                         .amounts = amounts};
    require(user->backend->ask(set, &ask) == 0);
}

static void cancel(struct user *user, void *set, struct request *request)
{
    int state = UNDECIDED;
    require(atomic_compare_exchange_strong(&request->state, &state, ABANDONED));
    user->backend->cancel(set, (uintptr_t)request);
}

static struct weir_backend_snapshot look(struct user *user, void *set)
{
    struct weir_backend_limit_stats limits[LIMITS_MAX];
    struct weir_backend_snapshot ret = {.size = sizeof(ret), .limits = limits};
    int r;
    do /* a link that ends fails it */
        r = user->backend->snapshot(set, NULL, 0, now_ns() + PATIENCE_NS, &ret);
    while (r == -ENOTCONN || r == -ECONNRESET);
    require(r == 0);
    ret.limits = NULL;
    return ret;
}

static void await_waiting(struct user *user, void *set, uint64_t waiting)
{
    for (uint64_t end = now_ns() + PATIENCE_NS; look(user, set).waiting != waiting; pause_ms())
        require(now_ns() < end);
}

/* Waits until so many grants are held. */
static void await_held(struct user *user, void *set, uint64_t held)
{
    for (uint64_t end = now_ns() + PATIENCE_NS; look(user, set).held != held; pause_ms())
        require(now_ns() < end);
}

/* ---- what overtakes ---- */

/* What was granted and canceled at the same time is undone as of its grant. */
static void test_canceled_on_its_way(void)
{
    static const uint64_t one[] = {1, 0};
    static struct request request;
    void *set = open_set(&first, "canceled", CAPACITY);
    user_release(&first, set, acquire(&first, set, 1, 0), one);
    await_held(&first, set, 0);
    atomic_store(&gate.is_closed, 1);
    submit(&first, set, &request, WEIR_BACKEND_TRY, one);
    gate_await("weir_commit");
    cancel(&first, set, &request);
    gate_await("weir_cancel");
    atomic_store(&gate.is_closed, 0);
    for (uint64_t end = now_ns() + PATIENCE_NS; atomic_load(&undone_n) == 0; pause_ms())
        require(now_ns() < end);
    require(atomic_load(&undone_ns) > 0);
    await_held(&first, set, 0);
    first.backend->set_close(set);
}

/* A head that the server has decided now is not refused by a text from before. */
static void test_head_by_an_old_text(void)
{
    static const uint64_t slot[] = {1, 0}, seat[] = {0, 1}, both[] = {1, 1};
    static struct request head;
    void *set = open_set(&first, "head", 1), *other = open_set(&second, "head", 1);
    uint64_t first_hold = acquire(&first, set, 0, 1), second_hold = acquire(&second, other, 1, 0);
    submit(&first, set, &head, WEIR_BACKEND_WAIT, both);
    require(first.backend->wait(set, (uintptr_t)&head, now_ns() + PATIENCE_NS) == 1);
    user_release(&second, other, second_hold, slot);
    await_held(&second, other, 1); /* that of the first user, for which its head waits as well */
    user_release(&first, set, first_hold, seat);
    require(request_wait(&head, now_ns() + SOON_NS));
    require(head.verdict.result == 0);
    user_release(&first, set, head.verdict.hold, both);
    await_held(&second, other, 0);
    first.backend->set_close(set);
    second.backend->set_close(other);
}

/* A request that is refused for one that stands before it, and is not granted, is not refused. */
static void test_refused_for_nothing(void)
{
    static const uint64_t slot[] = {1, 0}, both[] = {1, 1};
    static struct request before, ahead, behind;
    void *set = open_set(&first, "refused", CAPACITY);
    user_release(&first, set, acquire(&first, set, 1, 0), slot);
    await_held(&first, set, 0);
    atomic_store(&gate.is_closed, 1);
    submit(&first, set, &before, WEIR_BACKEND_TRY, slot);
    gate_await("weir_commit");
    submit(&first, set, &ahead, WEIR_BACKEND_TRY, both);
    submit(&first, set, &behind, WEIR_BACKEND_TRY, both);
    gate_pass();
    gate_await("weir_commit"); /* of both */
    cancel(&first, set, &ahead);
    atomic_store(&gate.is_closed, 0);
    require(request_wait(&before, now_ns() + PATIENCE_NS) && before.verdict.result == 0);
    require(request_wait(&behind, now_ns() + PATIENCE_NS) && behind.verdict.result == 0);
    user_release(&first, set, before.verdict.hold, slot);
    user_release(&first, set, behind.verdict.hold, both);
    await_held(&first, set, 0);
    first.backend->set_close(set);
}

/*
 * The commit for a waiter that is not the head is refused. That says nothing of the requests behind
 * it in the commit, also if the waiter was canceled meanwhile. In an unfair set
 * 1. the first user has the head and, behind a waiter of the second one, another waiter;
 * 2. while it fetches what the head is decided by, it cancels the head;
 * 3. so it decides its other waiter, with a request, and cancels that as well.
 */
static void test_refused_for_a_canceled_waiter(void)
{
    static const uint64_t slot[] = {1, 0}, slots[] = {2, 0}, all[] = {CAPACITY, 0};
    static struct request head, other_head, behind, asked;
    void *set = open_set_of(&first, "unfair", CAPACITY, 0);
    void *other = open_set_of(&second, "unfair", CAPACITY, 0);
    uint64_t hold = acquire(&second, other, 2, 0), last_hold = acquire(&second, other, 1, 0);
    submit(&first, set, &head, WEIR_BACKEND_WAIT, slot);
    await_waiting(&second, other, 1);
    submit(&second, other, &other_head, WEIR_BACKEND_WAIT, all);
    await_waiting(&second, other, 2);
    submit(&first, set, &behind, WEIR_BACKEND_WAIT, slot);
    await_waiting(&second, other, 3);
    atomic_store(&gate.is_closed, 1);
    user_release(&second, other, hold, slots);
    gate_await("weir_fetch");
    submit(&first, set, &asked, WEIR_BACKEND_TRY, slot);
    cancel(&first, set, &head);
    gate_await("weir_cancel");
    gate_pass();
    gate_await("weir_commit");
    cancel(&first, set, &behind);
    gate_await("weir_cancel");
    atomic_store(&gate.is_closed, 0);
    require(request_wait(&asked, now_ns() + PATIENCE_NS) && asked.verdict.result == 0);
    user_release(&first, set, asked.verdict.hold, slot);
    user_release(&second, other, last_hold, slot);
    require(request_wait(&other_head, now_ns() + PATIENCE_NS) && other_head.verdict.result == 0);
    user_release(&second, other, other_head.verdict.hold, all);
    await_held(&second, other, 0);
    first.backend->set_close(set);
    second.backend->set_close(other);
}

/* A snapshot takes two replies. With one of them it has not been had. */
static void test_half_a_snapshot(void)
{
    static const uint64_t one[] = {1, 0};
    struct weir_backend_limit_stats limits[LIMITS_MAX];
    struct weir_backend_snapshot snapshot = {.size = sizeof(snapshot), .limits = limits};
    void *set = open_set(&first, "half", CAPACITY);
    uint64_t hold = acquire(&first, set, 1, 0);
    await_held(&first, set, 1);
    atomic_store(&gate.cuts, 1);
    require(first.backend->snapshot(set, NULL, 0, now_ns() + 300 * MS, &snapshot) == -ETIMEDOUT);
    atomic_store(&gate.cuts, 0);
    await_held(&first, set, 1);
    user_release(&first, set, hold, one);
    await_held(&first, set, 0);
    first.backend->set_close(set);
}

static uint64_t calls_of(redisContext *server)
{
    static const char word[] = "cmdstat_fcall:calls=";
    redisReply *reply = redisCommand(server, "INFO commandstats");
    const char *at = reply ? strstr(reply->str, word) : NULL;
    require(at);
    uint64_t ret = strtoull(at + strlen(word), NULL, 10);
    freeReplyObject(reply);
    return ret;
}

/* What comes after idleness is decided by an instant of then: the server takes the first commit,
 * unless the machine is busy. It would not take one by the instant of the last reply. */
static void test_after_idleness(const char *path)
{
    static const uint64_t one[] = {1, 0};
    void *set = open_set(&second, "idle", CAPACITY);
    redisContext *server = redisConnectUnix(path);
    uint64_t end = now_ns() + PATIENCE_NS, calls;
    require(server && !server->err);
    user_release(&second, set, acquire(&second, set, one[0], one[1]), one);
    do {
        require(now_ns() < end);
        await_held(&second, set, 0);
        poll(NULL, 0, IDLE_MS);
        calls = calls_of(server);
        uint64_t hold = acquire(&second, set, one[0], one[1]);
        calls = calls_of(server) - calls;
        user_release(&second, set, hold, one);
    } while (calls != 1);
    await_held(&second, set, 0);
    second.backend->set_close(set);
    redisFree(server);
}

/* What is held when another server takes over, its text may not have taken: it counts as used, or
 * the refund would make units. The set is in a grace then. */
static void test_asserted_is_used(const char *path)
{
    static const uint64_t amounts[] = {1, 5}, used[] = {1, 2};
    void *set = user_open_set(&first, "asserted", CAPACITY, 1000, 0);
    redisContext *server = redisConnectUnix(path);
    uint64_t hold = acquire(&first, set, amounts[0], amounts[1]);
    require(server && !server->err);
    await_held(&first, set, 1);
    atomic_store(&gate.is_other, 1);
    freeReplyObject(redisCommand(server, "SET identity %s", OTHER_RUN));
    freeReplyObject(redisCommand(server, "CLIENT KILL TYPE normal SKIPME yes"));
    await_held(&first, set, 1); /* by the other server */
    user_release(&first, set, hold, used);
    await_held(&first, set, 0);
    require(atomic_load(&used_last) == amounts[1]);
    first.backend->set_close(set);
    redisFree(server);
}

int main(int argc, char **argv)
{
    require(argc == 3);
    gate_begin(argv[2]);
    open_user(&first, argv[1], gate.own.sun_path);
    open_user(&second, argv[1], argv[2]);
    test_canceled_on_its_way();
    test_head_by_an_old_text();
    test_refused_for_nothing();
    test_refused_for_a_canceled_waiter();
    test_half_a_snapshot();
    test_after_idleness(argv[2]);
    user_close(&second);
    test_asserted_is_used(argv[2]);
    user_close(&first);
    gate_end();
    return 0;
}
