/* SPDX-License-Identifier: MIT */
/*
 * Addresses of Redis servers:
 *
 *     redis://[USER@]HOST[:PORT][/DB]        rediss://…: by TLS        unix://[USER@]/PATH[?db=N]
 *
 * A host that has colons in it is written in brackets. A password is refused: it would be read in
 * the configuration, and in messages.
 */
#ifndef WEIR_REDIS_URL_H
#define WEIR_REDIS_URL_H

#include <weir/plugin.h>

struct redis_url {
    int is_unix, has_tls;
    char user[128]; /* empty: none */
    char host[256]; /* or the path of a socket */
    char port[8];
    unsigned db;
};

/* Reads an address. Returns 0, or -EINVAL with the reason. */
int redis_url_read(const char *text, struct redis_url *ret, struct weir_reason *reterr);

#endif
