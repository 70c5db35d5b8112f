/* SPDX-License-Identifier: MIT */
/* Where a server listens: an address of the command line, or a socket that systemd passes. */
#ifndef WEIR_TOOLS_LISTEN_ADDRESS_H
#define WEIR_TOOLS_LISTEN_ADDRESS_H

#include <sys/socket.h>

/* Reads `PORT`, which is of 127.0.0.1, `A.B.C.D:PORT` or `[IPv6]:PORT`. Returns the size of the
 * address, or 0: it is none. */
socklen_t listen_address_parse(const char *text, struct sockaddr_storage *ret);

/* Returns a socket that listens there, or -1 after a message, with the exit code in `*ret_ending`.
 * `systemd`: the one that was passed to this process (sd_listen_fds(3)). */
int listen_address_open(const char *text, const char *command, int *ret_ending);

/* Writes to the standard output where a socket listens, as a URL with this path, and to systemd, if
 * it wants to hear of that, that the service is ready. */
void listen_address_announce(int fd, const char *path);

#endif
