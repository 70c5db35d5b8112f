/* SPDX-License-Identifier: MIT */
/* Stream sockets that have names in a directory. */
#include "os/os_internal.h"
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <weir/error.h>

/* Writes the address of a name in an open directory: by the link of the descriptor, since an
 * address is shorter than a path may be. Returns 0 or -ENAMETOOLONG. */
static int os_socket_address(int directory_fd, const char *name, struct sockaddr_un *ret)
{
    int n;

    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    n = snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/thread-self/fd/%d/%s", directory_fd,
                 name);
    return n < 0 || (size_t)n >= sizeof(ret->sun_path) ? -ENAMETOOLONG : 0;
}

static int os_socket_make(void)
{
    return os_result(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

int os_socket_listen(int directory_fd, const char *name)
{
    struct sockaddr_un address;
    int r = os_socket_address(directory_fd, name, &address), fd;

    if (r < 0)
        return r;
    fd = os_socket_make();
    if (fd < 0)
        return fd;
    r = os_result(bind(fd, (const struct sockaddr *)&address, sizeof(address)));
    if (r == 0)
        r = os_result(fchmodat(directory_fd, name, S_IRUSR | S_IWUSR, 0));
    if (r == 0)
        r = os_result(listen(fd, 64));
    if (r == 0)
        return fd;
    os_close(fd);
    return r;
}

int os_socket_is_heard(int directory_fd, const char *name)
{
    struct sockaddr_un address;
    struct ucred peer;
    socklen_t size = sizeof(peer);
    int r = os_socket_address(directory_fd, name, &address), fd = r < 0 ? r : os_socket_make();

    if (fd < 0)
        return fd;
    OS_RETRY(r, syscall(SYS_connect, fd, &address, sizeof(address)));
    /* The kernel names the process that made it: after its death a child may have it still. */
    if (r == 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid != 0 &&
        os_process_exists((uint32_t)peer.pid) == -ESRCH)
        r = -ECONNREFUSED;
    os_close(fd);
    return r == 0 || r == -EAGAIN ? 1 : r == -ECONNREFUSED ? 0 : r;
}

int os_socket_accept(int fd, uint32_t *ret_user)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    int client, r;

    OS_RETRY(client, accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (client < 0)
        return client;
    r = os_result(getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &size));
    if (r < 0) {
        os_close(client);
        return r;
    }
    *ret_user = peer.uid;
    return client;
}

int os_socket_send(int fd, const void *data, size_t size)
{
    int r;

    OS_RETRY(r, send(fd, data, size, MSG_NOSIGNAL));
    return r;
}

int os_socket_wait(int fd, bool writes, int stop_fd, uint64_t wait_ns)
{
    struct pollfd fds[] = {{.fd = fd, .events = writes ? POLLOUT : POLLIN},
                           {.fd = stop_fd, .events = POLLIN}};
    struct timespec wait = os_timespec(wait_ns);
    int r;

    OS_RETRY(r, ppoll(fds, 2, wait_ns == WEIR_FOREVER ? NULL : &wait, NULL));
    if (r <= 0)
        return r == 0 ? -ETIMEDOUT : r;
    return fds[1].revents ? 0 : 1;
}
