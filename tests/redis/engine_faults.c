/* SPDX-License-Identifier: MIT */
/*
 * Each allocation and each call of the system that the plugin makes, failing once: by the place
 * that makes it, and in each way in which it may come out. A scenario does what a program does with
 * a set. Whatever fails in it, the answers are those that a backend may give, all of them come, and
 * afterwards the plugin works: its set is whole, on the server as well, and nothing is left behind.
 * So it goes for the first times that a place is met. New places that show up on the way, as where
 * a link is made anew, have their turn.
 *
 *     engine_faults PLUGIN SOCKET CLUSTER TLS CA SENTINEL
 *
 * The plugin is linked in. CLUSTER, TLS and SENTINEL are URLs, which may be empty; CA is the file
 * with the authority of TLS.
 */
#include "engine_user.h"
#include "failing_calls.h"

#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <sys/socket.h>
#include <weir/error.h>

#define CAPACITY   3
#define HANG_S     120
#define TIMES      3  /* that a place is met, each of which fails in turn; more: WEIR_OPERATIONS */
#define PLACES_MIN 60 /* fewer: calls are not seen */
#define FULL       3  /* targets for which it is so; of others each place fails once */
#define PASSWORD   "open-sesame"

extern const struct weir_plugin_table weir_plugins_v1;

static redisContext *server;
static char unix_url[256], tcp_url[64], password_file[] = "/tmp/weir-test-password-XXXXXX";
static char doing[512];
static _Atomic unsigned errors_n,
    broken_n; /* of all runs: calls that gave an error; links that did */

/* Where a connection leads, and what else it takes. */
struct target {
    const char *url, *parameter, *value;
};

#define must(condition) ((condition) ? (void)0 : fail(#condition, __LINE__))

static _Noreturn void fail(const char *condition, int line)
{
    fprintf(stderr, "%s\n", doing);
    require_failed(condition, __FILE__, line);
}

/* What a verdict may say, and what ask(), open() and set_open() may return. */
static int is_known(int code)
{
    static const int codes[] = {0,          -EAGAIN,       -ENOBUFS,    -ERANGE,
                                -ETIMEDOUT, -ENOTCONN,     -ECONNRESET, -ECONNREFUSED,
                                -ENOMEM,    -EHOSTUNREACH, -EOWNERDEAD};
    for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
        if (codes[i] == code)
            return 1;
    fprintf(stderr, "%s: code %d\n", doing, code);
    return 0;
}

static int seen(int code)
{
    require(is_known(code));
    errors_n += code != 0 && code != -EAGAIN;
    return code;
}

/* ---- the host ---- */

static _Atomic unsigned batches_n; /* that came */
static _Atomic uint64_t batch_at, batch_units;

static uint64_t host_batched(void *context, void *set, const struct weir_backend_batch *batch)
{
    (void)context, (void)set;
    if (seen(batch->result) == 0) {
        atomic_store(&batch_at, batch->at);
        atomic_store(&batch_units, batch->units);
    }
    atomic_fetch_add(&batches_n, 1);
    return batch->result == 0 ? 0 : UINT64_MAX;
}

/* Gives back what came with the last batch. */
static uint64_t host_spare(void *context, void *set, uint32_t limit, struct weir_backend_batch *ret)
{
    (void)context, (void)set, (void)limit;
    *ret = (struct weir_backend_batch){.size = sizeof(*ret),
                                       .limit = limit,
                                       .units = atomic_exchange(&batch_units, 0),
                                       .at = atomic_load(&batch_at)};
    return UINT64_MAX;
}

static void host_log(void *context, int level, const char *message)
{
    (void)context;
    must(message[0] && !strchr(message, '\n') && !strstr(message, PASSWORD));
    broken_n += level <= WEIR_LOG_WARNING;
}

/* ---- the scenario ---- */

static void *run(void *of)
{
    failing_calls_begin();
    user_run(of);
    failing_calls_end();
    return NULL;
}

static void *work(void *of)
{
    failing_calls_begin();
    user_work_main(of);
    failing_calls_end();
    return NULL;
}

static int host_work(void *context, void (*main)(void *), void *argument)
{
    int r = __wrap_work();
    return r < 0 ? r : user_work_in(context, work, main, argument);
}

static int open_connection(struct user *user, const struct target *target)
{
    struct weir_reason reason = {.parameter = UINT32_MAX};
    const char *const parameters[] = {"url", target->url,       "session",     "400", "timeout",
                                      "200", target->parameter, target->value, NULL};
    int r = user_open_plugin(user, weir_plugins_v1.plugins[0], &reason, parameters);
    must(r == 0 || r == -ENOMEM || (r == -EINVAL && reason.message[0]));
    errors_n += r != 0;
    user->host.batched = host_batched;
    user->host.spare = host_spare;
    user->host.log = host_log;
    user->host.work = host_work;
    return r;
}

/* Describes a set. `before`: the one that is to get the definition, of a higher revision; NULL. */
static void *describe_set(struct user *user, const char *name, uint32_t has_subjects, void *before)
{
    struct weir_reason reason = {0};
    void *opened = NULL;
    uint64_t leased = 1000;
    const struct weir_backend_setting settings[] = {{"capacity", 1000}, {"window", 1000 * MS}};
    const struct weir_backend_limit limits[] = {
        {.size = sizeof(limits[0]),
         .type = WEIR_LIMIT_RESOURCE,
         .key = "held",
         .capacity = CAPACITY},
        {.size = sizeof(limits[0]),
         .type = WEIR_LIMIT_RATE,
         .key = "rate",
         .algorithm = "gcra",
         .state_id = GCRA_STATE_ID,
         .capacity = 1000,
         .lease_for_ns = has_subjects || !user->backend->batch ? 0 : 10 * MS,
         .settings_n = 2,
         .settings = settings,
         .ret_capacity = &leased}};
    const struct weir_backend_set set = {.size = sizeof(set),
                                         .name = name,
                                         .fingerprint = before ? 2 : 1,
                                         .revision = before ? 1 : 0,
                                         .before = before,
                                         .fair = 1,
                                         .has_subjects = has_subjects,
                                         .limits_n = 2,
                                         .limits = limits};
    int r = user->backend->set_open(user->connection, &set, &opened, &reason);
    must(r == 0 || r == -ENOMEM);
    errors_n += r != 0;
    return r == 0 ? opened : NULL;
}

static void *open_set(struct user *user, const char *name, uint32_t has_subjects)
{
    return describe_set(user, name, has_subjects, NULL);
}

/* Raises the revision, unless there is no memory for that. */
static void revise(struct user *user, void *set, const char *name, uint32_t has_subjects)
{
    void *next = describe_set(user, name, has_subjects, set);
    if (next)
        user->backend->set_redefine(set, next);
}

/* What the test itself calls does not fail. */
static void begin(struct request *request)
{
    failing_calls_end();
    request_begin(request);
    failing_calls_begin();
}

static int ask(struct user *user, void *set, enum weir_backend_mode mode, const uint64_t *amounts,
               const char *subject, struct weir_backend_verdict *ret)
{
    const struct request_args args = {
        .amounts = amounts, .mode = mode, .timeout_ns = PATIENCE_NS, .subject = subject};
    struct request request;
    *ret = (struct weir_backend_verdict){0};
    begin(&request);
    int r = user_acquire_by(user, set, &request, &args, ret);
    must(r != -ETIMEDOUT); /* decided in a time that the backend bounds */
    return seen(r);
}

/* Cancels a request, or gives back what it was granted. */
static void withdraw(struct user *user, void *set, struct request *request, const uint64_t *amounts)
{
    int state = UNDECIDED;
    user->backend->wait(set, (uintptr_t)request, now_ns() + PATIENCE_NS);
    if (atomic_compare_exchange_strong(&request->state, &state, ABANDONED)) {
        user->backend->cancel(set, (uintptr_t)request);
        return;
    }
    must(request_wait(request, now_ns()));
    if (seen(request->verdict.result) == 0)
        user_release(user, set, request->verdict.hold, amounts);
}

/* A request that waits for what others hold, and is granted when that comes back. */
static void hand_over(struct user *user, void *set)
{
    static const uint64_t all[] = {CAPACITY, 0}, one[] = {1, 0};
    struct weir_backend_verdict first, second;
    struct request waiter, canceled;
    int r = ask(user, set, WEIR_BACKEND_TRY, all, NULL, &first);
    begin(&waiter);
    begin(&canceled);
    struct weir_backend_ask wait = {.size = sizeof(wait),
                                    .token = (uintptr_t)&waiter,
                                    .mode = WEIR_BACKEND_WAIT,
                                    .flags = WEIR_BACKEND_PATIENT,
                                    .timeout_ns = UINT64_MAX,
                                    .max_wait_ns = UINT64_MAX,
                                    .amounts = one};
    int waits = seen(user->backend->ask(set, &wait)) == 0;
    if (waits)
        user->backend->wait(set, wait.token, now_ns() + PATIENCE_NS);
    wait.token = (uintptr_t)&canceled;
    if (seen(user->backend->ask(set, &wait)) == 0)
        withdraw(user, set, &canceled, one);
    if (r == 0) {
        user->backend->return_part(set, first.hold, one);
        user_release(user, set, first.hold, all);
    }
    if (!waits)
        return;
    must(request_wait(&waiter, now_ns() + PATIENCE_NS));
    second = waiter.verdict;
    if (seen(second.result) == 0)
        user_release(user, set, second.hold, one);
}

/* A batch is decided once, however it comes out; then what came is given back. */
static void use_batch(struct user *user, void *set)
{
    unsigned before = atomic_load(&batches_n);
    if (!user->backend->batch || seen(user->backend->batch(set, 1, 10, before)) < 0)
        return;
    for (uint64_t end = now_ns() + PATIENCE_NS; atomic_load(&batches_n) == before;) {
        struct timespec pause = {0, 100000};
        must(now_ns() < end);
        nanosleep(&pause, NULL);
    }
    must(atomic_load(&batches_n) == before + 1);
}

/* Whether it has changed may not be known. If this process could not raise the revision, that of
 * the server may be the higher one. */
static void apply(struct user *user, void *set)
{
    struct weir_reason reason = {.size = sizeof(reason)};
    struct weir_backend_apply how = {.size = sizeof(how), .until_ns = now_ns() + PATIENCE_NS};
    for (how.changes = 0; user->backend->set_apply && how.changes < 2; how.changes++) {
        int r = user->backend->set_apply(set, &how, &reason);
        seen(r == 1 || r == -ENOENT || r == -EOPNOTSUPP ? 0 : r);
    }
}

static void use(struct user *user, void *set, void *keyed)
{
    static const uint64_t rate[] = {0, 5}, both[] = {1, 1}, none[] = {0, 0};
    struct weir_backend_limit_stats limits[2];
    struct weir_backend_snapshot snapshot = {.size = sizeof(snapshot), .limits = limits};
    struct weir_backend_verdict verdict;
    hand_over(user, set);
    ask(user, set, WEIR_BACKEND_TAKE, rate, NULL, &verdict);
    if (ask(user, set, WEIR_BACKEND_RESERVE, rate, NULL, &verdict) == 0)
        user_release(user, set, verdict.hold, none);
    seen(user->backend->snapshot(set, NULL, 0, now_ns() + 1000 * MS, &snapshot));
    use_batch(user, set);
    for (const char *subject = "aaaaaaaaaaaaaaaaaaaa"; *subject; subject++)
        if (ask(user, keyed, WEIR_BACKEND_TRY, both, subject, &verdict) == 0)
            user_release(user, keyed, verdict.hold, both);
}

/* Afterwards everything can be had, and is given back: the plugin has recovered. */
static void recover(struct user *user, void *set)
{
    static const uint64_t all[] = {CAPACITY, 0};
    struct weir_backend_verdict verdict;
    uint64_t end = now_ns() + PATIENCE_NS;
    while (ask(user, set, WEIR_BACKEND_TRY, all, NULL, &verdict) != 0) {
        struct timespec pause = {0, 2000000};
        must(now_ns() < end);
        nanosleep(&pause, NULL);
    }
    user_release(user, set, verdict.hold, all);
}

static void scenario(const struct target *target)
{
    struct user user = {0};
    if (open_connection(&user, target) < 0)
        return;
    void *set = open_set(&user, "faults", 0);
    void *keyed = set ? open_set(&user, "keyed", 1) : NULL;
    if (keyed) {
        must(pthread_create(&user.thread, NULL, run, &user) == 0);
        use(&user, set, keyed);
        revise(&user, set, "faults", 0);
        revise(&user, keyed, "keyed", 1);
        apply(&user, set);
        use(&user, set, keyed);
        recover(&user, set);
        user.backend->set_close(keyed);
    }
    if (set)
        user.backend->set_close(set);
    if (keyed) {
        user_stop(&user);
    }
    user.backend->close(user.connection);
}

/* ---- the server ---- */

/* On the server too: what a lost message has left there ends with its session. */
static void expect_nothing_held(void)
{
    static const char script[] = "local n = 0\n"
                                 "for _, key in ipairs(redis.call('KEYS', 'weir:{*')) do\n"
                                 "  for _, field in ipairs(redis.call('HKEYS', key)) do\n"
                                 "    if string.match(field, '^t') then n = n + 1 end\n"
                                 "  end\n"
                                 "end\n"
                                 "return n\n";
    uint64_t end = now_ns() + PATIENCE_NS;
    long long n = 1;
    while (n > 0) {
        struct user user = {0};
        must(open_connection(&user, &(struct target){.url = unix_url}) == 0);
        void *set = open_set(&user, "faults", 0), *keyed = open_set(&user, "keyed", 1);
        struct weir_backend_verdict verdict;
        static const uint64_t rate[] = {0, 1};
        user_start(&user);
        ask(&user, set, WEIR_BACKEND_TAKE, rate, NULL, &verdict); /* ends sessions that are over */
        ask(&user, keyed, WEIR_BACKEND_TAKE, rate, "a", &verdict);
        for (const char *subject = "aaaaaaaaaaaaaaaaaaaa"; *subject; subject++)
            ask(&user, keyed, WEIR_BACKEND_TAKE, rate, subject, &verdict);
        user.backend->set_close(keyed);
        user.backend->set_close(set);
        user_close(&user);
        redisReply *reply = redisCommand(server, "EVAL %s 0", script);
        must(reply && reply->type == REDIS_REPLY_INTEGER);
        n = reply->integer;
        freeReplyObject(reply);
        must(now_ns() < end);
    }
}

/* Lets the server listen on a port of this machine, and want a password there. */
static void open_port(void)
{
    for (int i = 0; i < 100 && !tcp_url[0]; i++) {
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof(address);
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        require(fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 &&
                getsockname(fd, (struct sockaddr *)&address, &size) == 0);
        close(fd);
        redisReply *reply = redisCommand(server, "CONFIG SET port %d", ntohs(address.sin_port));
        if (reply->type != REDIS_REPLY_ERROR)
            snprintf(tcp_url, sizeof(tcp_url), "redis://weir@localhost:%d",
                     ntohs(address.sin_port));
        freeReplyObject(reply);
    }
    require(tcp_url[0]);
    freeReplyObject(redisCommand(server, "ACL SETUSER weir on >%s ~* &* +@all", PASSWORD));
}

static void hang(int signal)
{
    (void)signal;
    static const char text[] = "this hangs: ";
    (void)!write(2, text, sizeof(text) - 1);
    (void)!write(2, doing, strlen(doing));
    (void)!write(2, "\n", 1);
    _exit(1);
}

static void run_scenario(const struct target *target, size_t place, unsigned after)
{
    int64_t before = failing_calls_live();
    snprintf(doing, sizeof(doing), "%s, after %u, %s",
             place == SIZE_MAX ? "nothing" : failing_place_name(place), after, target->url);
    alarm(HANG_S);
    failing_calls_choose(place, after);
    failing_calls_begin();
    scenario(target);
    failing_calls_end();
    if (failing_calls_live() != before)
        fprintf(stderr, "%d left behind\n", (int)(failing_calls_live() - before));
    must(failing_calls_live() == before);
}

/* Returns how many calls failed. */
static size_t run_all(const struct target *target, unsigned times)
{
    size_t failed = 0;
    run_scenario(target, SIZE_MAX, 0);
    for (size_t place = 0; place < failing_places(); place++) {
        int has_failed = 1;
        for (unsigned after = 0; after < times && has_failed; after++) {
            run_scenario(target, place, after);
            has_failed = failing_calls_has_failed();
            failed += (size_t)has_failed;
        }
    }
    return failed;
}

int main(int argc, char **argv)
{
    require(argc == 7);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGALRM, hang);
    server = redisConnectUnix(argv[2]);
    require(server && !server->err);
    snprintf(unix_url, sizeof(unix_url), "unix://%s", argv[2]);
    int fd = mkstemp(password_file);
    require(fd >= 0 && write(fd, PASSWORD "\n", strlen(PASSWORD) + 1) > 0);
    close(fd);
    open_port();
    unsigned times = (unsigned)number_from("WEIR_OPERATIONS", TIMES);
    const struct target targets[] = {{.url = unix_url},
                                     {tcp_url, "password_file", password_file},
                                     {.url = argv[3]},
                                     {argv[4], "ca_file", argv[5]},
                                     {argv[6], "sentinel", "the-master"}};
    size_t failed = 0;
    for (size_t i = 0; i < sizeof(targets) / sizeof(*targets); i++)
        if (targets[i].url[0])
            failed += run_all(&targets[i], i < FULL ? times : 1);
    alarm(0);
    expect_nothing_held();
    unlink(password_file);
    redisFree(server);
    printf("%zu places, %zu failures, %u errors, %u links given up\n", failing_places(), failed,
           errors_n, broken_n);
    require(failing_places() >= PLACES_MIN);
    return 0;
}
