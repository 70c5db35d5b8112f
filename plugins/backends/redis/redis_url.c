/* SPDX-License-Identifier: MIT */
/* Addresses of Redis servers. */
#include "redis_url.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DB_MAX   65535
#define PORT_MAX 65535
/* The path of a socket's address, struct sockaddr_un, and its end. */
#define PATH_MAX_UNIX 108

static int redis_url_refuse(struct weir_reason *reterr, const char *message)
{
    snprintf(reterr->message, sizeof(reterr->message), "%s", message);
    return -EINVAL;
}

/* Copies the text from `from` to before `to`. Returns 0, or -1 if it is longer than there is room
 * for. */
static int redis_url_copy(char *ret, size_t size, const char *from, const char *to)
{
    size_t n = (size_t)(to - from);
    if (n >= size)
        return -1;
    memcpy(ret, from, n);
    ret[n] = '\0';
    return 0;
}

/* Reads a number up to the end of the text. Returns 0, or -1. */
static int redis_url_number(const char *text, unsigned max, unsigned *ret)
{
    unsigned value = 0;
    if (!*text)
        return -1;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || value > max)
            return -1;
        value = value * 10 + (unsigned)(*text - '0');
    }
    *ret = value;
    return value <= max ? 0 : -1;
}

/* Reads USER@, if it is there, from what comes before `end`. Returns what follows, or NULL with the
 * reason. */
static const char *redis_url_user(const char *text, const char *end, struct redis_url *ret,
                                  struct weir_reason *reterr)
{
    const char *at = memchr(text, '@', (size_t)(end - text));
    if (!at)
        return text;
    if (memchr(text, ':', (size_t)(at - text))) {
        redis_url_refuse(reterr, "a password does not belong into the URL: use password_file or "
                                 "password_env");
        return NULL;
    }
    if (redis_url_copy(ret->user, sizeof(ret->user), text, at) < 0) {
        redis_url_refuse(reterr, "the user's name is longer than 127 bytes");
        return NULL;
    }
    return at + 1;
}

static int redis_url_unix(const char *text, struct redis_url *ret, struct weir_reason *reterr)
{
    const char *end = strchr(text, '?'), *path;
    const char *slash = strchr(text, '/');
    end = end ? end : text + strlen(text);
    if (!slash || slash > end)
        return redis_url_refuse(reterr, "unix:// wants an absolute path: unix:///run/redis.sock");
    path = redis_url_user(text, slash, ret, reterr);
    if (!path)
        return -EINVAL;
    if (*path != '/')
        return redis_url_refuse(reterr, "unix:// wants an absolute path: unix:///run/redis.sock");
    if (redis_url_copy(ret->host, PATH_MAX_UNIX, path, end) < 0)
        return redis_url_refuse(reterr, "the path of a socket has at most 107 bytes");
    if (*end && (strncmp(end, "?db=", 4) || redis_url_number(end + 4, DB_MAX, &ret->db) < 0))
        return redis_url_refuse(reterr, "after the path comes nothing but ?db=N, N up to 65535");
    ret->is_unix = 1;
    return 0;
}

int redis_url_set_host(struct redis_url *url, const char *host, size_t size, uint64_t port)
{
    if (size == 0 || size >= sizeof(url->host) || port == 0 || port > PORT_MAX)
        return -EINVAL;
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)host[i] <= ' ' || host[i] == 0x7f || strchr("?[]/,@", host[i]))
            return -EINVAL;
    }
    memcpy(url->host, host, size);
    url->host[size] = '\0';
    url->is_unix = 0;
    snprintf(url->port, sizeof(url->port), "%u", (unsigned)port);
    return 0;
}

/* Reads HOST[:PORT] up to `end`. */
static int redis_url_host(const char *text, const char *end, unsigned port, struct redis_url *ret,
                          struct weir_reason *reterr)
{
    const char *colon, *host_end;
    if (*text == '[') {
        host_end = memchr(text, ']', (size_t)(end - text));
        if (!host_end)
            return redis_url_refuse(reterr, "the bracket around the host is not closed");
        colon = host_end + 1;
        text++;
    } else {
        colon = memchr(text, ':', (size_t)(end - text));
        colon = host_end = colon ? colon : end;
    }
    if (colon != end) {
        char number[8];
        if (*colon != ':' || redis_url_copy(number, sizeof(number), colon + 1, end) < 0 ||
            redis_url_number(number, PORT_MAX, &port) < 0 || port == 0)
            return redis_url_refuse(reterr, "a port is a number from 1 to 65535");
    }
    if (redis_url_set_host(ret, text, (size_t)(host_end - text), port) < 0)
        return redis_url_refuse(reterr, "a host has 1 to 255 bytes, none of them one of ?[]/,@");
    return 0;
}

/* Reads HOST[:PORT],… up to `end`, for servers that are alike in all else. Returns how many. */
static int redis_url_hosts(const char *text, const char *end, unsigned port,
                           struct redis_url ret[REDIS_URLS_MAX], struct weir_reason *reterr)
{
    for (int n = 0; n < REDIS_URLS_MAX; n++) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        ret[n] = ret[0];
        if (redis_url_host(text, comma ? comma : end, port, &ret[n], reterr) < 0)
            return -EINVAL;
        if (!comma)
            return n + 1;
        text = comma + 1;
    }
    return redis_url_refuse(reterr, "there are more than 16 hosts");
}

static int redis_url_net(const char *text, unsigned port, struct redis_url ret[REDIS_URLS_MAX],
                         struct weir_reason *reterr)
{
    const char *end = text + strcspn(text, "/?");
    const char *host = redis_url_user(text, end, ret, reterr);
    if (!host)
        return -EINVAL;
    if (*end == '/' && end[1] && redis_url_number(end + 1, DB_MAX, &ret->db) < 0)
        return redis_url_refuse(reterr, "a database is a number up to 65535: redis://host:6379/0");
    if (*end == '?')
        return redis_url_refuse(reterr, "the database is written as redis://host:6379/0");
    return redis_url_hosts(host, end, port, ret, reterr);
}

int redis_url_read(const char *text, unsigned port, struct redis_url ret[REDIS_URLS_MAX],
                   struct weir_reason *reterr)
{
    memset(ret, 0, sizeof(*ret));
    for (const char *c = text; *c; c++) {
        if ((unsigned char)*c <= ' ' || *c == 0x7f)
            return redis_url_refuse(reterr, "there is a space or a control character in it");
    }
    if (!strncmp(text, "unix://", 7))
        return redis_url_unix(text + 7, ret, reterr) < 0 ? -EINVAL : 1;
    if (!strncmp(text, "redis://", 8))
        return redis_url_net(text + 8, port, ret, reterr);
    if (!strncmp(text, "rediss://", 9)) {
        ret->has_tls = 1;
        return redis_url_net(text + 9, port, ret, reterr);
    }
    return redis_url_refuse(reterr, "use redis://HOST:PORT/DB, rediss://HOST:PORT/DB for TLS, or "
                                    "unix:///PATH?db=N");
}
