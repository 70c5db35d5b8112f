/* SPDX-License-Identifier: MIT */
/*
 * Packets at an even pace. The program reserves the time of each packet, sleeps until then, and
 * sends; so it is never early, and a late packet does not make the next one late.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <weir/weir.h>

#define PACKETS 20
#define MS      UINT64_C(1000000)

static void sleep_until(uint64_t at_ns)
{
    struct timespec at = {.tv_sec = (time_t)(at_ns / (1000 * MS)),
                          .tv_nsec = (long)(at_ns % (1000 * MS))};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

/* Sends one packet at its time, which it returns in `*ret_at_ns`. */
static int send_paced(weir_pool *pool, int fd, uint64_t *ret_at_ns)
{
    const struct weir_request request = {.size = sizeof(request), .max_wait_ns = 100 * MS};
    weir_acquisition *acquisition = NULL;
    int e = weir_reserve(pool, &request, &acquisition, ret_at_ns, NULL);

    if (e < 0)
        return e;
    sleep_until(*ret_at_ns);
    if (send(fd, "packet", 6, MSG_NOSIGNAL) != 6) {
        e = -errno;
        weir_cancel(acquisition); /* nothing was sent: the packet is refunded */
    }
    weir_release(&acquisition);
    return e;
}

/* A socket that sends to itself. */
static int open_socket(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    socklen_t size = sizeof(to);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&to, size) < 0 ||
        getsockname(fd, (struct sockaddr *)&to, &size) < 0 ||
        connect(fd, (struct sockaddr *)&to, size) < 0)
        return -errno;
    return fd;
}

int main(void)
{
    uint64_t at_ns[PACKETS] = {0}, least_ns = UINT64_MAX;
    const struct weir_options options = {.size = sizeof(options),
                                         .flags = WEIR_OPEN_REQUIRE_CONFIG};
    struct weir_error error = {0};
    weir_pool *pool = NULL;
    weir *w = NULL;
    int fd = open_socket(), e = fd < 0 ? fd : weir_open(&w, &options, &error);

    if (e == 0)
        e = weir_pool_open(&pool, w, "uplink", 0, &error);
    for (int i = 0; e == 0 && i < PACKETS; i++) {
        e = send_paced(pool, fd, &at_ns[i]);
        if (e == 0 && i > 0 && at_ns[i] - at_ns[i - 1] < least_ns)
            least_ns = at_ns[i] - at_ns[i - 1];
    }
    if (e < 0)
        fprintf(stderr, "pacing: %s\n", error.code ? error.message : strerror(-e));
    else
        printf("%d packets, %s 1 ms apart\n", PACKETS, least_ns >= MS ? "at least" : "less than");
    weir_pool_close(pool);
    weir_close(w);
    close(fd);
    return e == 0 ? 0 : 1;
}
