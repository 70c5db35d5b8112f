/* SPDX-License-Identifier: MIT */
/* The inbox of this process. */
#include "redis_inbox.h"

#include "redis_answers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define CALLS_AHEAD 16
#define LEAST_MS    100

/* How long a BLPOP blocks. A server that is silent for longer is gone. */
static uint64_t redis_inbox_block_ms(const struct redis_server *server)
{
    uint64_t ms = server->connection->options.session_ns / 2 / 1000000;
    return ms > LEAST_MS ? ms : LEAST_MS;
}

uint64_t redis_inbox_end_ns(const struct redis_server *server)
{
    return server->inbox_heard_ns + redis_inbox_block_ms(server) * 1000000 +
           server->connection->options.timeout_ns;
}

void redis_inbox_name(struct redis_server *server)
{
    snprintf(server->inbox_key, sizeof(server->inbox_key), "%sinbox:%s",
             server->connection->options.prefix, server->connection->name);
}

int redis_inbox_ask(struct redis_server *server)
{
    struct redis_buffer buffer = {0};
    uint64_t ms = redis_inbox_block_ms(server);
    char seconds[32];
    int r = 0;
    snprintf(seconds, sizeof(seconds), "%" PRIu64 ".%03u", ms / 1000, (unsigned)(ms % 1000));
    for (; server->inbox_calls_n < CALLS_AHEAD && r == 0; server->inbox_calls_n++) {
        redis_buffer_begin(&buffer, 3);
        redis_buffer_text(&buffer, "BLPOP");
        redis_buffer_text(&buffer, server->inbox_key);
        redis_buffer_text(&buffer, seconds);
        r = redis_buffer_end(&buffer);
    }
    if (r == 0 && buffer.size > 0) {
        ssize_t n = redis_link_send(server->inbox, buffer.bytes, buffer.size);
        r = n < 0                     ? (int)n
            : (size_t)n < buffer.size ? -ENOBUFS
                                      : 0; /* a server that reads nothing */
    }
    redis_buffer_free(&buffer);
    return r;
}

static int redis_inbox_take(struct redis_server *server, const struct redis_reply *reply)
{
    if (server->inbox_calls_n == 0)
        return -EPROTO;
    server->inbox_calls_n--;
    if (reply->type == REDIS_NIL)
        return 0;
    if (reply->type != REDIS_ARRAY || reply->elements_n != 2 ||
        reply->elements[1].type != REDIS_TEXT)
        return -EPROTO;
    redis_answers_message(server, reply->elements[1].text, reply->elements[1].size);
    return 0;
}

int redis_inbox_serve(struct redis_server *server)
{
    const struct redis_reply *reply;
    int r = redis_link_receive(server->inbox);
    if (r == -EAGAIN)
        return 0;
    server->inbox_heard_ns = redis_boot_ns();
    while (r > 0 && (r = redis_replies_next(server->inbox->replies, &reply)) > 0) {
        r = redis_inbox_take(server, reply);
        r = r < 0 ? r : 1;
    }
    return r < 0 ? r : redis_inbox_ask(server);
}
