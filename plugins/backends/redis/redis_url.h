/* SPDX-License-Identifier: MIT */
/*
 * Addresses of Redis servers:
 *
 *     redis://[USER@]HOST[:PORT][,HOST[:PORT]]…[/DB]      rediss://…: by TLS
 *     unix://[USER@]/PATH[?db=N]
 *
 * A host that has colons in it is written in brackets. A password is refused: it would be read in
 * the configuration, and in messages.
 */
#ifndef WEIR_REDIS_URL_H
#define WEIR_REDIS_URL_H

#include <weir/plugin.h>

#define REDIS_URLS_MAX 16

/* One server, out of an address that may name several. */
struct redis_url {
    int is_unix, has_tls;
    char user[128]; /* empty: none */
    char host[256]; /* or the path of a socket */
    char port[8];
    unsigned db;
};

/* Reads an address, with this port where none is written. Returns how many servers it names, or
 * -EINVAL with the reason. */
int redis_url_read(const char *text, unsigned port, struct redis_url ret[REDIS_URLS_MAX],
                   struct weir_reason *reterr);
/* Sets the host and the port as a server has named them. Returns 0, or -EINVAL: they are nonsense.
 */
int redis_url_set_host(struct redis_url *url, const char *host, size_t size, uint64_t port);

#endif
