/* SPDX-License-Identifier: MIT */
/*
 * A web server that lets each client address have so many requests, and answers 429 Too Many
 * Requests to more, with the seconds after which to come back. Each response says what is left.
 *
 *     WEIR_CONFIG=too_many.yaml ./too_many [PORT]
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <weir/weir.h>

#define LINES_MAX (2 * WEIR_HTTP_LIMIT_MAX + 128) /* of the one limit */

/* Writes the lines that tell a client of its limit. */
static void tell(weir_set *set, const struct weir_request *request, uint64_t retry_after_ns,
                 char lines[static LINES_MAX])
{
    char policy[WEIR_HTTP_LIMIT_MAX], left[WEIR_HTTP_LIMIT_MAX], after[WEIR_HTTP_RETRY_AFTER_MAX];
    struct weir_remaining limit;
    int n = weir_set_remaining(set, request, &limit, 1);

    lines[0] = '\0';
    if (n != 1 || weir_http_ratelimit_policy(&limit, 1, policy, sizeof(policy)) < 0 ||
        weir_http_ratelimit(&limit, 1, retry_after_ns, left, sizeof(left)) < 0)
        return;
    n = snprintf(lines, LINES_MAX, "RateLimit-Policy: %s\r\nRateLimit: %s\r\n", policy, left);
    if (weir_http_retry_after(retry_after_ns, after, sizeof(after)) > 0)
        snprintf(lines + n, LINES_MAX - (size_t)n, "Retry-After: %s\r\n", after);
}

static void serve(int client, weir_pool *pool, const struct in_addr *address)
{
    const struct timeval patience = {.tv_sec = 1};
    const struct weir_request request = {
        .size = sizeof(request), .subject = address, .subject_size = sizeof(*address)};
    struct weir_refusal refusal = {.size = sizeof(refusal), .retry_after_ns = WEIR_FOREVER};
    char lines[LINES_MAX], text[4096];
    int n, e;

    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (recv(client, text, sizeof(text), 0) <= 0)
        return;
    e = weir_take(pool, &request, &refusal); /* never waits */
    tell(weir_pool_set(pool, 0), &request, refusal.retry_after_ns, lines);
    n = snprintf(text, sizeof(text),
                 "HTTP/1.1 %s\r\n%sContent-Length: 0\r\nConnection: close\r\n\r\n",
                 e == 0         ? "200 OK"
                 : e == -EAGAIN ? "429 Too Many Requests"
                                : "503 Service Unavailable", /* -ENOBUFS, -ENOMEM, … */
                 lines);
    if (send(client, text, (size_t)n, MSG_NOSIGNAL) != n)
        perror("too_many: send");
}

static int listen_on(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t size = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) < 0 ||
        bind(fd, (struct sockaddr *)&at, size) < 0 || listen(fd, 64) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &size) < 0)
        return -1;
    printf("port %u\n", ntohs(at.sin_port));
    return fflush(stdout) == 0 ? fd : -1;
}

/* Returns the next client. A client that is gone already, or a lack of descriptors or memory, ends
 * no server: it goes on with those that it has, and looks again. -1: the socket itself is wrong. */
static int accept_client(int fd, struct sockaddr_in *from)
{
    const struct timespec moment = {.tv_nsec = 100000000};

    for (;;) {
        socklen_t size = sizeof(*from);
        int client = accept(fd, (struct sockaddr *)from, &size);

        if (client >= 0 || errno == EBADF || errno == EINVAL || errno == ENOTSOCK)
            return client;
        if (errno != EINTR && errno != ECONNABORTED)
            nanosleep(&moment, NULL);
    }
}

int main(int argc, char **argv)
{
    const struct weir_options options = {.size = sizeof(options),
                                         .flags = WEIR_OPEN_REQUIRE_CONFIG};
    struct weir_error error = {0};
    weir_pool *pool = NULL;
    weir *w = NULL;
    int fd, e = weir_open(&w, &options, &error);

    if (e == 0)
        e = weir_pool_open(&pool, w, "clients", 0, &error);
    if (e < 0) {
        fprintf(stderr, "too_many: %s\n", error.code ? error.message : strerror(-e));
        weir_close(w);
        return 1;
    }
    fd = listen_on((uint16_t)(argc > 1 ? atoi(argv[1]) : 0));
    while (fd >= 0) {
        struct sockaddr_in from;
        int client = accept_client(fd, &from);

        if (client < 0)
            break;
        serve(client, pool, &from.sin_addr);
        close(client);
    }
    perror("too_many");
    return 1;
}
