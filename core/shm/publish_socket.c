/* SPDX-License-Identifier: MIT */
/* Makes and removes the sockets at which processes tell their sets. */
#include "shm/publish_socket.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "shm/segment_dir.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PUBLISH_SOCKET_TRIES 16 /* a sweep takes it if its maker did not run for a moment */

static int publish_socket_make(struct publish_socket *ret, uint32_t number)
{
    char fresh[PUBLISH_SOCKET_NAME_SIZE];
    int r, length = snprintf(ret->name, sizeof(ret->name),
                             "%" PRIu32 ".%" PRIu32 ".%016" PRIx64 PUBLISH_SUFFIX, os_process_id(),
                             number, os_random());

    WEIR_INVARIANT(length > 0 && (size_t)length + sizeof(FRESH_SUFFIX) <= sizeof(fresh));
    memcpy(fresh, ret->name, (size_t)length);
    memcpy(fresh + length, FRESH_SUFFIX, sizeof(FRESH_SUFFIX));
    r = ret->fd = os_socket_listen(ret->directory_fd, fresh);
    SCHED_POINT();
    if (r >= 0)
        r = os_rename_at(ret->directory_fd, fresh, ret->name);
    if (r >= 0)
        return 0;
    if (ret->fd >= 0)
        os_close(ret->fd);
    os_unlink_at(ret->directory_fd, fresh);
    return r == -ENOENT ? -EAGAIN : r;
}

int publish_socket_open(struct publish_socket *ret, int directory_fd, uint32_t number)
{
    int r = -EAGAIN;

    ret->directory_fd = directory_fd;
    (void)publish_socket_sweep(directory_fd); /* what stays does no harm */
    for (int i = 0; i < PUBLISH_SOCKET_TRIES && r == -EAGAIN; i++)
        r = publish_socket_make(ret, number);
    if (r < 0)
        os_close(directory_fd);
    return r == -EAGAIN ? -EBUSY : r;
}

void publish_socket_close(struct publish_socket *socket, bool in_child)
{
    if (!in_child)
        os_unlink_at(socket->directory_fd, socket->name);
    SCHED_POINT();
    os_close(socket->fd);
    os_close(socket->directory_fd);
}

/* A process that exists is not asked; it may be another one with the number of the dead, so what is
 * left then goes later. One that does not exist here may live in another namespace. */
static int publish_socket_is_used(int directory_fd, const char *name, const char *file_stem)
{
    uint32_t process;
    int end = 0;

    (void)file_stem;
    (void)sscanf(name, "%9" SCNu32 ".%*9[0-9].%*16[0-9a-f]" PUBLISH_SUFFIX "%n", &process, &end);
    if (!end || (name[end] && strcmp(name + end, FRESH_SUFFIX) != 0) ||
        os_process_exists(process) != -ESRCH)
        return 1;
    return os_socket_is_heard(directory_fd, name);
}

int publish_socket_sweep(int directory_fd)
{
    return segment_dir_sweep(directory_fd, NULL, publish_socket_is_used);
}
