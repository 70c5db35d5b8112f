/* SPDX-License-Identifier: MIT */
/* Sentinels. */
#include "redis_sentinel.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads the host and the port of the master from the reply. Returns 0, or a code and `why`. */
static int sentinel_read(const struct redis_reply *reply, struct redis_link_how *how,
                         struct redis_url *ret)
{
    const struct redis_reply *words = reply->type == REDIS_ARRAY ? reply->elements : NULL;
    if (words && reply->elements_n == 2 && words[0].type == REDIS_TEXT &&
        words[1].type == REDIS_TEXT &&
        redis_url_set_host(ret, words[0].text, words[0].size, strtoull(words[1].text, NULL, 10)) ==
            0)
        return 0;
    snprintf(how->why, sizeof(how->why), "%s",
             reply->type == REDIS_NIL ? "the Sentinel knows no master of that name"
                                      : "the Sentinel names no address");
    return -ENXIO;
}

/* Asks one over its link. */
static int sentinel_ask(const struct redis_options *options, struct redis_link *link,
                        struct redis_link_how *how, struct redis_url *ret)
{
    struct redis_buffer buffer = {0};
    const struct redis_reply *reply;
    int r = redis_link_log_in(link, how);
    if (r < 0)
        return r;
    redis_buffer_begin(&buffer, 3);
    redis_buffer_text(&buffer, "SENTINEL");
    redis_buffer_text(&buffer, "GET-MASTER-ADDR-BY-NAME");
    redis_buffer_text(&buffer, options->sentinel);
    r = redis_link_ask(link, how, &buffer, "SENTINEL", &reply);
    redis_buffer_free(&buffer);
    return r < 0 ? r : sentinel_read(reply, how, ret);
}

/* Asks the one of this number. */
static int sentinel_try(const struct redis_options *options, struct redis_sentinels *sentinels,
                        uint32_t at, struct redis_link_how *how, struct redis_url *ret)
{
    struct redis_url url = options->urls[at];
    struct addrinfo **addresses = &sentinels->addresses[at];
    struct redis_link *link = NULL;
    memcpy(url.user, options->sentinel_user, sizeof(url.user));
    how->url = &url;
    how->password = options->sentinel_password;
    how->deadline_ns = redis_boot_ns() + options->timeout_ns;
    int r = redis_link_resolve(how, addresses, !sentinels->down[at]);
    how->addresses = *addresses;
    if (r == 0)
        link = redis_link_open(how, &r);
    if (link)
        r = sentinel_ask(options, link, how, ret);
    redis_link_close(link);
    sentinels->down[at] = r < 0;
    return r;
}

int redis_sentinel_find(const struct redis_options *options, struct redis_sentinels *sentinels,
                        struct redis_link_how *how, struct redis_url *ret)
{
    struct redis_link_how ask = *how;
    int r = -EHOSTUNREACH;
    *ret = options->urls[0];
    for (uint32_t i = 0; i < options->urls_n && r < 0 && r != -ECANCELED; i++) {
        uint32_t at = (sentinels->first + i) % options->urls_n;
        r = sentinel_try(options, sentinels, at, &ask, ret);
        if (r == 0)
            sentinels->first = at;
    }
    memcpy(how->why, ask.why, sizeof(how->why));
    return r;
}

void redis_sentinel_forget(struct redis_sentinels *sentinels)
{
    for (size_t i = 0; i < REDIS_URLS_MAX; i++) {
        if (sentinels->addresses[i])
            freeaddrinfo(sentinels->addresses[i]);
        sentinels->addresses[i] = NULL;
    }
}
