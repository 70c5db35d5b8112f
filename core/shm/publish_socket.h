/* SPDX-License-Identifier: MIT */
/*
 * Sockets at which processes tell their private sets: PROCESS.NUMBER.RANDOM.sock in the segment
 * directory. A socket has its name only once it listens, and loses it before it is closed. So one
 * that refuses connections is of a dead process, and any other may remove it.
 */
#ifndef WEIR_CORE_SHM_PUBLISH_SOCKET_H
#define WEIR_CORE_SHM_PUBLISH_SOCKET_H

#include "os/os.h"

#define PUBLISH_SOCKET_NAME_SIZE 64u

struct publish_socket {
    int fd;                              /* listens */
    int directory_fd;                    /* owned */
    char name[PUBLISH_SOCKET_NAME_SIZE]; /* of the file */
};

/* Makes the socket of the instance with this number. Takes the directory over, also on failure.
 * Returns 0; -EBUSY (others keep removing it); or an error of the system. */
int publish_socket_open(struct publish_socket *ret, int directory_fd, uint32_t number);

/* Removes the name, unless `in_child`: then it is the parent's. Closes the descriptors. */
void publish_socket_close(struct publish_socket *socket, bool in_child);

/* Removes the sockets of dead processes. Returns as segment_dir_sweep() does. */
int publish_socket_sweep(int directory_fd);

#endif
