/* SPDX-License-Identifier: MIT */
/* Reads options and jobs, opens weir, and writes responses for both example servers. */
#include "service.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS ((uint64_t)1000000)
#define NS_PER_S  ((uint64_t)1000000000)

/* The greatest amounts that a client may request. */
#define TOKENS_MAX  ((uint64_t)1000000000)
#define WORK_MS_MAX ((uint64_t)60000)

uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static int usage(const struct service *service)
{
    fprintf(stderr,
            "usage: %s [OPTION]... CONFIGURATION\n"
            "  --pool NAME        admit requests by this pool (api)\n"
            "  --port N           listen on this port of 127.0.0.1 (0: any)\n"
            "  --service-ms N     work this long on a request that has no X-Service-Ms (5)\n"
            "  --idle-ms N        give a client this long to send a request (10000)\n"
            "  --connections N    serve at most this many clients at a time (256)\n"
            "  --log FILE         append a line for each event of a request\n"
            "  --trace FILE       write a trace for `weir simulate` (epoll_server)\n",
            service->name);
    return EX_USAGE;
}

/* Returns the number of an option, or exits with the reason. */
static uint64_t number(const struct service *service, const char *text, uint64_t max)
{
    char *end;
    unsigned long long n;

    errno = 0;
    n = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || *text == '-' || n > max) {
        fprintf(stderr, "%s: `%s` is not a number up to %" PRIu64 "\n", service->name, text, max);
        exit(usage(service));
    }
    return n;
}

static int read_options(struct service *service, int argc, char **argv)
{
    static const struct option options[] = {
        {"pool", required_argument, NULL, 'p'},        {"port", required_argument, NULL, 'n'},
        {"service-ms", required_argument, NULL, 's'},  {"idle-ms", required_argument, NULL, 'i'},
        {"connections", required_argument, NULL, 'c'}, {"log", required_argument, NULL, 'l'},
        {"trace", required_argument, NULL, 't'},       {NULL, 0, NULL, 0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'p')
            service->pool_name = optarg;
        else if (option == 'n')
            service->port = (uint16_t)number(service, optarg, UINT16_MAX);
        else if (option == 's')
            service->work_ns = number(service, optarg, WORK_MS_MAX) * NS_PER_MS;
        else if (option == 'i')
            service->idle_ns = number(service, optarg, 3600000) * NS_PER_MS;
        else if (option == 'c')
            service->connections_max = (unsigned)number(service, optarg, 10000);
        else if (option == 'l')
            service->log_file = optarg;
        else if (option == 't')
            service->trace_file = optarg;
        else
            return usage(service);
    }
    if (optind + 1 != argc || service->connections_max == 0)
        return usage(service);
    service->file = argv[optind];
    return 0;
}

/* Raises the limit of descriptors. A connection needs a socket and, while it waits, an eventfd. */
static int reserve_descriptors(const struct service *service)
{
    rlim_t needed = 2 * (rlim_t)service->connections_max + 64;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return EX_OSERR;
    if (limit.rlim_cur >= needed)
        return 0;
    limit.rlim_cur = needed;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0)
        return 0;
    fprintf(stderr, "%s: %u connections need %ju descriptors: %s\n", service->name,
            service->connections_max, (uintmax_t)needed, strerror(errno));
    return EX_OSERR;
}

static void on_complaint(void *userdata, const struct weir_error *complaint)
{
    (void)userdata;
    fprintf(stderr, "%s:%" PRIu32 ":%" PRIu32 ": %s\n", complaint->file, complaint->line,
            complaint->column, complaint->message);
}

static void on_log(void *userdata, enum weir_log_level level, const char *message)
{
    const struct service *service = userdata;

    (void)level;
    fprintf(stderr, "%s: %s\n", service->name, message);
}

static int open_weir(struct service *service)
{
    struct weir_clock clock;
    const struct weir_options options = {
        .size = sizeof(options),
        .file = service->file,
        .clock = trace_clock(&service->trace, &clock),
        .log = on_log,
        .complaint = on_complaint,
        .userdata = service,
    };
    struct weir_error error = {0};
    int e = weir_open(&service->weir, &options, &error);

    if (e < 0 && error.line == 0) /* otherwise on_complaint has printed it */
        fprintf(stderr, "%s: %s: %s\n", service->name, service->file,
                error.message[0] != '\0' ? error.message : strerror(-e));
    if (e < 0)
        return EX_CONFIG;
    e = weir_pool_open(&service->pool, service->weir, service->pool_name, 0, &error);
    if (e < 0)
        fprintf(stderr, "%s: %s\n", service->name, error.message);
    return e < 0 ? EX_CONFIG : 0;
}

/* Opens the log and the trace, as far as they are wanted. */
static int open_files(struct service *service)
{
    const char *file = service->trace_file;
    int e = file ? trace_open(&service->trace, file) : 0;

    if (e == 0 && service->log_file) {
        file = service->log_file;
        service->log = fopen(file, "ae");
        e = service->log ? 0 : -errno;
    }
    if (e < 0)
        fprintf(stderr, "%s: %s: %s\n", service->name, file, strerror(-e));
    return e < 0 ? EX_CANTCREAT : 0;
}

/* Before weir is opened, so that no change of the file is missed. */
static int open_notices(struct service *service)
{
    int e = notices_open(&service->notices, service->file);

    if (e < 0)
        fprintf(stderr, "%s: cannot watch %s: %s\n", service->name, service->file, strerror(-e));
    return e < 0 ? EX_OSERR : 0;
}

int service_open(struct service *service, int argc, char **argv)
{
    int e;

    *service = (struct service){
        .name = argv[0],
        .pool_name = "api",
        .work_ns = 5 * NS_PER_MS,
        .idle_ns = 10 * NS_PER_S,
        .connections_max = 256,
        .notices = {.signals = -1, .changes = -1, .fd = -1},
    };
    e = read_options(service, argc, argv);
    if (e == 0)
        e = reserve_descriptors(service);
    if (e == 0)
        e = open_files(service);
    if (e == 0)
        e = open_notices(service);
    return e == 0 ? open_weir(service) : e;
}

void service_close(struct service *service)
{
    service->pool = weir_pool_close(service->pool);
    service->weir = weir_close(service->weir);
    notices_close(&service->notices);
    if (service->log && fclose(service->log) != 0)
        fprintf(stderr, "%s: %s: %s\n", service->name, service->log_file, strerror(errno));
    if (!trace_close(&service->trace))
        fprintf(stderr, "%s: %s: cannot be written\n", service->name, service->trace_file);
}

int service_listen(const struct service *service, int flags)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons(service->port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | flags, 0);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) != 0 ||
        bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, SOMAXCONN) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
        fprintf(stderr, "%s: port %u: %s\n", service->name, service->port, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    printf("listening on http://127.0.0.1:%u\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

/* Opens the pool again: a file that lacked it for a moment has ended the one that is open. */
static void reopen_pool(struct service *service)
{
    struct weir_error error = {0};
    weir_pool *pool;

    if (weir_pool_open(&pool, service->weir, service->pool_name, 0, &error) < 0) {
        fprintf(stderr, "%s: %s\n", service->name, error.message);
        return;
    }
    weir_pool_close(service->pool);
    service->pool = pool;
}

static void reload(struct service *service)
{
    const struct weir_options options = {
        .size = sizeof(options),
        .file = service->file,
        .complaint = on_complaint,
    };
    struct weir_error error = {0};
    int e = weir_reload(service->weir, &options, &error);

    if (e < 0 && error.line == 0) /* otherwise on_complaint has printed it */
        fprintf(stderr, "%s: %s: %s\n", service->name, service->file,
                error.message[0] != '\0' ? error.message : strerror(-e));
    if (e == 0)
        reopen_pool(service);
    printf("%s %s\n", e < 0 ? "unchanged by" : "changed to", service->file);
    fflush(stdout);
}

bool service_heed(struct service *service)
{
    unsigned found = notices_read(&service->notices);

    if (found & NOTICE_RELOAD)
        reload(service);
    return found & NOTICE_STOP;
}

int job_read(struct service *service, struct job *job, const struct http_input *in)
{
    uint64_t work_ms = service->work_ns / NS_PER_MS;

    job->id = ++service->jobs_n;
    job->tokens = 1;
    if (http_number(in, "X-Tokens", TOKENS_MAX, &job->tokens) < 0)
        return 400;
    job->used = job->tokens;
    if (http_number(in, "X-Used", TOKENS_MAX, &job->used) < 0)
        return 400;
    if (http_number(in, "X-Service-Ms", WORK_MS_MAX, &work_ms) < 0)
        return 400;
    job->work_ns = work_ms * NS_PER_MS;
    job->asked_ns = now_ns();
    job->arrived_ns = 0;
    return 0;
}

/* Lines of a response. */
struct headers {
    size_t n;
    char text[HTTP_REPLY_MAX / 2];
};

/* Adds a line. One that does not fit is left out. */
static void put_line(struct headers *headers, const char *name, const char *value)
{
    size_t room = sizeof(headers->text) - headers->n;
    int n = snprintf(headers->text + headers->n, room, "%s: %s\r\n", name, value);

    if (n > 0 && (size_t)n < room)
        headers->n += (size_t)n;
    headers->text[headers->n] = '\0';
}

/* Limits of a set that clients are told of: more than the examples have. */
#define LIMITS_TOLD_MAX 4

static weir_set *find_set(const struct service *service, const char *name)
{
    weir_set *set;

    for (size_t i = 0; (set = weir_pool_set(service->pool, i)); i++)
        if (strcmp(weir_set_name(set), name) == 0)
            return set;
    return NULL;
}

/* Writes the lines of a set, for a client that is to come back after that time. */
static void put_set(struct headers *headers, const struct service *service, const char *name,
                    uint64_t retry_after_ns)
{
    char value[LIMITS_TOLD_MAX * WEIR_HTTP_LIMIT_MAX];
    struct weir_remaining limits[LIMITS_TOLD_MAX];
    weir_set *set = find_set(service, name);
    int n = set ? weir_set_remaining(set, NULL, limits, LIMITS_TOLD_MAX) : 0;
    size_t told = n < 0 ? 0 : n < LIMITS_TOLD_MAX ? (size_t)n : LIMITS_TOLD_MAX;

    put_line(headers, "X-Weir-Set", name);
    if (weir_http_ratelimit_policy(limits, told, value, sizeof(value)) > 0)
        put_line(headers, "RateLimit-Policy", value);
    if (weir_http_ratelimit(limits, told, retry_after_ns, value, sizeof(value)) > 0)
        put_line(headers, "RateLimit", value);
}

void answer_done(struct http_reply *reply, const struct service *service, const struct job *job,
                 const weir_acquisition *granted, bool keep_alive)
{
    const char *region = weir_acquisition_config(granted, "region");
    struct headers headers = {.n = 0};
    char body[128];

    put_set(&headers, service, weir_acquisition_set(granted), WEIR_FOREVER);
    put_line(&headers, "X-Region", region ? region : "");
    snprintf(body, sizeof(body), "%" PRIu64 " of %" PRIu64 " tokens used\n", job->used,
             job->tokens);
    http_respond(reply, 200, keep_alive, headers.text, body);
}

/* Returns the HTTP status for a negative errno of weir_submit or weir_acquisition_result. */
static int status_of(int result)
{
    switch (result) {
    case -EAGAIN:  /* the wait would exceed max_wait, or has */
    case -ENOBUFS: /* the wait queue is full */
        return 429;
    case -ERANGE: /* more than can ever be granted */
    case -EINVAL:
    case -ENOENT:
        return 400;
    case -ETIMEDOUT:
    case -ESHUTDOWN:
    case -EMFILE:
    case -ENFILE:
    case -ENOMEM:
        return 503;
    default:
        return 500;
    }
}

void answer_refused(struct http_reply *reply, const struct service *service, int result,
                    const struct weir_refusal *refusal, bool keep_alive)
{
    int status = status_of(result);
    bool may_come_back = status == 429 || status == 503;
    uint64_t after_ns = may_come_back ? refusal->retry_after_ns : WEIR_FOREVER;
    struct headers headers = {.n = 0};
    char value[WEIR_HTTP_RETRY_AFTER_MAX], body[512];

    if (weir_http_retry_after(after_ns, value, sizeof(value)) > 0)
        put_line(&headers, "Retry-After", value);
    if (refusal->set)
        put_set(&headers, service, refusal->set, after_ns);
    snprintf(body, sizeof(body), "refused by %.200s: %s\n",
             refusal->key && refusal->key[0] != '\0' ? refusal->key : "the wait queue",
             strerror(-result));
    http_respond(reply, status, keep_alive, headers.text, body);
}

void answer_status(struct http_reply *reply, int status)
{
    char body[64];

    snprintf(body, sizeof(body), "%s\n", http_status_str((enum http_status)status));
    http_respond(reply, status, false, status == 405 ? "Allow: GET, POST\r\n" : "", body);
}

void service_log(struct service *service, const char *event, const struct job *job, const char *set,
                 uint64_t amount, uint64_t since_ns)
{
    if (service->log)
        fprintf(service->log, "%" PRIu64 " %s %" PRIu64 " %s %" PRIu64 " %" PRIu64 "\n", now_ns(),
                event, job->id, set ? set : "-", amount, since_ns);
}
