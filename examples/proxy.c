/* SPDX-License-Identifier: MIT */
/* Reads the options and the configuration of the proxy, asks weir, and counts. */
#include "proxy.h"
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS ((uint64_t)1000000)
#define NS_PER_S  ((uint64_t)1000000000)
#define HOUR_MS   3600000

/* A relay waits for its connection, and then for bytes in both directions. */
#define ASKED_BY_A_RELAY 2

uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* ---- the command line ---- */

static int usage(const struct proxy *p)
{
    fprintf(stderr,
            "usage: %s [OPTION]... CONFIGURATION\n"
            "  --pool NAME      the pool of upstreams (upstreams)\n"
            "  --port N         listen on this port of 127.0.0.1 (0: any)\n"
            "  --relays N       serve at most this many clients at a time (256)\n"
            "  --connect-ms N   give an upstream this long to accept a connection (2000)\n"
            "  --idle-ms N      end what has not moved for this long (60000)\n"
            "  --grace-ms N     after SIGTERM, give transfers this long to end (10000)\n"
            "SIGUSR1 prints a line of counters.\n",
            p->name);
    return EX_USAGE;
}

/* Returns the number of an option, or exits with the reason. */
static uint64_t number(const struct proxy *p, const char *text, uint64_t min, uint64_t max)
{
    char *end;
    unsigned long long n;

    errno = 0;
    n = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || *text == '-' || n < min || n > max) {
        fprintf(stderr, "%s: `%s` is not a number from %" PRIu64 " to %" PRIu64 "\n", p->name, text,
                min, max);
        exit(usage(p));
    }
    return n;
}

static int read_options(struct proxy *p, int argc, char **argv)
{
    static const struct option options[] = {
        {"pool", required_argument, NULL, 'p'},
        {"port", required_argument, NULL, 'n'},
        {"relays", required_argument, NULL, 'r'},
        {"idle-ms", required_argument, NULL, 'i'},
        {"connect-ms", required_argument, NULL, 'c'},
        {"grace-ms", required_argument, NULL, 'g'},
        {NULL, 0, NULL, 0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'p')
            p->pool_name = optarg;
        else if (option == 'n')
            p->port = (uint16_t)number(p, optarg, 0, UINT16_MAX);
        else if (option == 'r')
            p->relays_max = (unsigned)number(p, optarg, 1, 10000);
        else if (option == 'c')
            p->connect_ns = number(p, optarg, 1, HOUR_MS) * NS_PER_MS;
        else if (option == 'i')
            p->idle_ns = number(p, optarg, 1, HOUR_MS) * NS_PER_MS;
        else if (option == 'g')
            p->grace_ns = number(p, optarg, 1, HOUR_MS) * NS_PER_MS;
        else
            return usage(p);
    }
    if (optind + 1 != argc)
        return usage(p);
    p->file = argv[optind];
    return 0;
}

/* ---- what the configuration says ---- */

static int complain(const struct proxy *p, const char *set, const char *what)
{
    fprintf(stderr, "%s: set %s: %s\n", p->name, set, what);
    return EX_CONFIG;
}

/* Reads `host:port` or `[host]:port`. Looks a name up once, now. */
static int read_address(const struct proxy *p, struct upstream *u)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    const char *colon = u->address ? strrchr(u->address, ':') : NULL;
    struct addrinfo *found;
    char host[256];
    size_t n;
    int e;

    if (!colon)
        return complain(p, u->name, "its config has no `address: \"host:port\"`");
    n = (size_t)(colon - u->address);
    snprintf(host, sizeof(host), "%.*s", (int)(n < 256 ? n : 255), u->address);
    if (n >= 2 && host[0] == '[' && host[n - 1] == ']') {
        host[n - 1] = '\0';
        memmove(host, host + 1, n - 1);
    }
    e = getaddrinfo(host, colon + 1, &hints, &found);
    if (e != 0)
        return complain(p, u->name, gai_strerror(e));
    memcpy(&u->socket_address, found->ai_addr, found->ai_addrlen);
    u->socket_length = found->ai_addrlen;
    freeaddrinfo(found);
    return 0;
}

/* Opens the set of bytes of an upstream, and sets the greatest amount of one request. */
static int open_bytes(const struct proxy *p, struct upstream *u, const char *name)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[WEIR_LIMITS_MAX];
    int n, e;

    u->chunk_max = PROXY_BUFFER;
    if (!name)
        return 0;
    e = weir_pool_open(&u->bytes, p->weir, name, 0, NULL);
    n = e < 0 ? e : weir_set_stats(weir_pool_set(u->bytes, 0), &stats, limits, WEIR_LIMITS_MAX);
    if (n < 0)
        return complain(p, name, strerror(-n));
    e = -ENOENT;
    for (int i = 0; i < n; i++) {
        if (limits[i].type == WEIR_LIMIT_RESOURCE)
            return complain(p, name, "a resource does not go with bytes");
        if (strcmp(limits[i].key, "bytes") != 0)
            continue;
        e = 0;
        if (limits[i].capacity < u->chunk_max)
            u->chunk_max = (size_t)limits[i].capacity;
    }
    return e == 0 ? 0 : complain(p, name, "it has no rate of `bytes`");
}

/*
 * Checks that the set of connections has no rate. A relay would ask for the rate while it holds a
 * connection, behind the waiters for that connection; see proxy.yaml.
 */
static int check_connections(const struct proxy *p, weir_set *set)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[WEIR_LIMITS_MAX];
    int n = weir_set_stats(set, &stats, limits, WEIR_LIMITS_MAX);

    for (int i = 0; i < n; i++)
        if (limits[i].type == WEIR_LIMIT_RATE)
            return complain(p, weir_set_name(set),
                            "a rate goes into a set of its own, which `bytes` of the config names");
    return n < 0 ? complain(p, weir_set_name(set), strerror(-n)) : 0;
}

static int open_upstreams(struct proxy *p)
{
    int status = 0;

    p->upstreams = calloc(weir_pool_sets(p->pool), sizeof(*p->upstreams));
    if (!p->upstreams)
        return EX_OSERR;
    p->upstreams_n = weir_pool_sets(p->pool);
    for (size_t i = 0; status == 0 && i < p->upstreams_n; i++) {
        struct upstream *u = &p->upstreams[i];
        weir_set *set = weir_pool_set(p->pool, i);

        u->name = weir_set_name(set);
        u->address = weir_set_config(set, "address");
        status = check_connections(p, set);
        if (status == 0)
            status = read_address(p, u);
        if (status == 0)
            status = open_bytes(p, u, weir_set_config(set, "bytes"));
    }
    return status;
}

static void on_complaint(void *userdata, const struct weir_error *complaint)
{
    (void)userdata;
    fprintf(stderr, "%s:%" PRIu32 ":%" PRIu32 ": %s\n", complaint->file, complaint->line,
            complaint->column, complaint->message);
}

static void on_log(void *userdata, enum weir_log_level level, const char *message)
{
    const struct proxy *p = userdata;

    (void)level;
    fprintf(stderr, "%s: %s\n", p->name, message);
}

static int open_weir(struct proxy *p)
{
    const struct weir_options options = {
        .size = sizeof(options),
        .file = p->file,
        .log = on_log,
        .complaint = on_complaint,
        .userdata = p,
    };
    struct weir_error error = {0};
    int e = weir_open(&p->weir, &options, &error);

    if (e < 0 && error.line == 0) /* otherwise on_complaint has printed it */
        fprintf(stderr, "%s: %s: %s\n", p->name, p->file,
                error.message[0] != '\0' ? error.message : strerror(-e));
    if (e < 0)
        return EX_CONFIG;
    e = weir_pool_open(&p->pool, p->weir, p->pool_name, 0, &error);
    if (e < 0) {
        fprintf(stderr, "%s: %s\n", p->name, error.message);
        return EX_CONFIG;
    }
    e = weir_queue_open(&p->queue, p->weir, ASKED_BY_A_RELAY * p->relays_max);
    if (e < 0)
        fprintf(stderr, "%s: completion queue: %s\n", p->name, strerror(-e));
    return e < 0 ? EX_OSERR : 0;
}

/* Raises the limit of descriptors. A relay has two sockets; waiting for weir takes none. */
static int reserve_descriptors(const struct proxy *p)
{
    rlim_t needed = 2 * (rlim_t)p->relays_max + 64;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return EX_OSERR;
    if (limit.rlim_cur >= needed)
        return 0;
    limit.rlim_cur = needed;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0)
        return 0;
    fprintf(stderr, "%s: %u relays need %ju descriptors: %s\n", p->name, p->relays_max,
            (uintmax_t)needed, strerror(errno));
    return EX_OSERR;
}

int proxy_open(struct proxy *p, int argc, char **argv)
{
    int e;

    *p = (struct proxy){
        .name = argv[0],
        .pool_name = "upstreams",
        .connect_ns = 2 * NS_PER_S,
        .idle_ns = 60 * NS_PER_S,
        .grace_ns = 10 * NS_PER_S,
        .relays_max = 256,
    };
    e = read_options(p, argc, argv);
    if (e == 0)
        e = reserve_descriptors(p);
    if (e == 0)
        e = open_weir(p);
    if (e == 0)
        e = open_upstreams(p);
    return e;
}

void proxy_close(struct proxy *p)
{
    weir_queue_close(p->queue);
    for (size_t i = 0; i < p->upstreams_n; i++)
        weir_pool_close(p->upstreams[i].bytes);
    free(p->upstreams);
    weir_pool_close(p->pool);
    weir_close(p->weir);
}

/* ---- sockets and signals ---- */

int proxy_listen(const struct proxy *p)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons(p->port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) != 0 ||
        bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, SOMAXCONN) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
        fprintf(stderr, "%s: port %u: %s\n", p->name, p->port, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    printf("listening on 127.0.0.1:%u\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

int proxy_signals(const struct proxy *p)
{
    sigset_t signals;
    int fd = -1;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGUSR1);
    if (sigprocmask(SIG_BLOCK, &signals, NULL) == 0)
        fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0)
        fprintf(stderr, "%s: signalfd: %s\n", p->name, strerror(errno));
    return fd;
}

/* ---- requests ---- */

int proxy_ask_connection(struct proxy *p, void *user_data)
{
    const struct weir_request request = {.size = sizeof(request)}; /* one of everything */

    return weir_queue_submit(p->queue, p->pool, &request, (uintptr_t)user_data, NULL, NULL);
}

int proxy_ask_bytes(struct proxy *p, const struct upstream *upstream, size_t n, void *user_data)
{
    const struct weir_amount bytes = {"bytes", n};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = &bytes, .amounts_n = 1};

    return weir_queue_submit(p->queue, upstream->bytes, &request, (uintptr_t)user_data, NULL, NULL);
}

void proxy_release_bytes(weir_acquisition **acquisition, size_t used)
{
    if (*acquisition)
        weir_update(*acquisition, "bytes", used);
    weir_release(acquisition);
}

struct upstream *proxy_upstream(struct proxy *p, const weir_acquisition *granted)
{
    const char *set = weir_acquisition_set(granted);

    for (size_t i = 0; i < p->upstreams_n; i++)
        if (strcmp(p->upstreams[i].name, set) == 0)
            return &p->upstreams[i];
    return NULL; /* not from this pool */
}

/* ---- counters ---- */

static void print_set(const char *name, weir_set *set)
{
    struct weir_set_stats s = {.size = sizeof(s)};

    if (weir_set_stats(set, &s, NULL, 0) >= 0)
        printf("; %s: held %" PRIu64 ", waiting %" PRIu64 ", granted %" PRIu64 ", waited %" PRIu64
               ", released %" PRIu64 ", refused %" PRIu64 ", timed out %" PRIu64
               ", canceled %" PRIu64,
               name, s.held, s.waiting, s.granted, s.granted_waited, s.released,
               s.refused_full + s.refused_max_wait, s.timed_out, s.canceled);
}

void proxy_print_status(const struct proxy *p)
{
    printf("status: relays %u, accepted %" PRIu64 ", served %" PRIu64 ", refused %" PRIu64
           ", gone %" PRIu64 ", broken %" PRIu64 ", bytes up %" PRIu64 ", bytes down %" PRIu64,
           p->relays_n, p->accepted, p->served, p->refused, p->gone, p->broken, p->bytes_up,
           p->bytes_down);
    for (size_t i = 0; i < p->upstreams_n; i++) {
        const struct upstream *u = &p->upstreams[i];

        print_set(u->name, weir_pool_set(p->pool, i));
        printf(", failed %" PRIu64, u->tries_failed);
        if (u->bytes)
            print_set(weir_set_name(weir_pool_set(u->bytes, 0)), weir_pool_set(u->bytes, 0));
    }
    puts("");
    fflush(stdout);
}

static bool set_is_idle(weir_set *set)
{
    struct weir_set_stats s = {.size = sizeof(s)};

    return weir_set_stats(set, &s, NULL, 0) >= 0 && s.held == 0 && s.waiting == 0;
}

bool proxy_is_idle(const struct proxy *p)
{
    bool idle = true;

    for (size_t i = 0; i < p->upstreams_n; i++) {
        idle = idle && set_is_idle(weir_pool_set(p->pool, i));
        if (p->upstreams[i].bytes)
            idle = idle && set_is_idle(weir_pool_set(p->upstreams[i].bytes, 0));
    }
    return idle;
}
