/* SPDX-License-Identifier: MIT */
/* Where a server listens: an address of the command line, or a socket that systemd passes. */
#include "listen_address.h"
#include "usage.h"
#include "weir.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define PASSED_FD 3 /* the first descriptor that systemd passes */

/* Reads a port. Returns -1 if the text is none. */
static int parse_port(const char *text)
{
    unsigned long port = 0;
    size_t n = strspn(text, "0123456789");

    if (n == 0 || n > 5 || text[n] != '\0')
        return -1;
    port = strtoul(text, NULL, 10);
    return port <= UINT16_MAX ? (int)port : -1;
}

socklen_t listen_address_parse(const char *text, struct sockaddr_storage *ret)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;
    const char *colon = strrchr(text, ':');
    int port = parse_port(colon ? colon + 1 : text);
    char host[INET6_ADDRSTRLEN + 2] = "127.0.0.1";
    size_t n = colon ? (size_t)(colon - text) : 0;

    if (port < 0 || n >= sizeof(host) || (colon && n == 0))
        return 0;
    if (colon) {
        memcpy(host, text, n);
        host[n] = '\0';
    }
    *ret = (struct sockaddr_storage){0};
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        return sizeof(*v4);
    }
    if (n < 3 || host[0] != '[' || host[n - 1] != ']')
        return 0;
    host[n - 1] = '\0';
    if (inet_pton(AF_INET6, host + 1, &v6->sin6_addr) != 1)
        return 0;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)port);
    return sizeof(*v6);
}

/* Returns the socket that systemd has passed, or -1. */
static int passed_socket(void)
{
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    int listens = 0;
    socklen_t size = sizeof(listens);

    if (!pid || !n || strtoul(pid, NULL, 10) != (unsigned long)getpid() || strcmp(n, "1") != 0)
        return -1;
    if (getsockopt(PASSED_FD, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || !listens)
        return -1;
    if (fcntl(PASSED_FD, F_SETFD, FD_CLOEXEC) != 0)
        return -1;
    return PASSED_FD;
}

static int listen_at(const struct sockaddr_storage *address, socklen_t size)
{
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1, code;

    if (fd < 0)
        return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
        bind(fd, (const struct sockaddr *)address, size) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    code = errno;
    close(fd);
    errno = code;
    return -1;
}

int listen_address_open(const char *text, const char *command, int *ret_ending)
{
    struct sockaddr_storage address;
    socklen_t size;
    int fd;

    *ret_ending = ENDING_SYSTEM;
    if (strcmp(text, "systemd") == 0) {
        fd = passed_socket();
        if (fd < 0)
            fprintf(stderr, "%s: systemd has not passed one socket that listens\n", command);
        return fd;
    }
    size = listen_address_parse(text, &address);
    if (size == 0) {
        fprintf(stderr, "%s: `%s` is no address: PORT, A.B.C.D:PORT, [IPv6]:PORT, or `systemd`\n",
                command, text);
        *ret_ending = usage_hint(command);
        return -1;
    }
    fd = listen_at(&address, size);
    if (fd < 0)
        fprintf(stderr, "%s: cannot listen at `%s`: %s\n", command, text, strerror(errno));
    return fd;
}

/* Tells systemd that the service is ready, as sd_notify(3) does. */
static void notify_ready(void)
{
    static const char ready[] = "READY=1";
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = path ? strlen(path) : 0;
    int fd;

    if (n < 2 || n >= sizeof(to.sun_path) || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(to.sun_path, path, n);
    if (to.sun_path[0] == '@')
        to.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    (void)sendto(fd, ready, sizeof(ready) - 1, MSG_NOSIGNAL, (const struct sockaddr *)&to,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    close(fd);
}

void listen_address_announce(int fd, const char *path)
{
    struct sockaddr_storage at = {0};
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&at;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&at;
    char host[INET6_ADDRSTRLEN] = "";
    socklen_t size = sizeof(at);
    bool is_known = getsockname(fd, (struct sockaddr *)&at, &size) == 0;

    if (is_known && at.ss_family == AF_INET &&
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host)))
        printf("listening on http://%s:%u%s\n", host, ntohs(v4->sin_port), path);
    else if (is_known && at.ss_family == AF_INET6 &&
             inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host)))
        printf("listening on http://[%s]:%u%s\n", host, ntohs(v6->sin6_port), path);
    fflush(stdout);
    notify_ready();
}
