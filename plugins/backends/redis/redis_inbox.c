/* SPDX-License-Identifier: MIT */
/* The inbox of this process. */
#include "redis_inbox.h"

#include "redis_cluster.h"
#include "redis_due.h"
#include "redis_messages.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <weir/error.h>

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

/* In a cluster: a key with a slot of this server, the next one of these. Returns 0 if there is
 * none. */
static int redis_inbox_find_key(struct redis_server *server)
{
    const struct redis_connection *connection = server->connection;
    char tag[REDIS_TAG_SIZE + 1];
    for (uint32_t i = 0; i < REDIS_SLOTS; i++) {
        server->inbox_slot = (uint16_t)((server->inbox_slot + 1) % REDIS_SLOTS);
        if (connection->slots[server->inbox_slot] != server)
            continue;
        redis_slot_tag(server->inbox_slot, tag);
        snprintf(server->inbox_key, sizeof(server->inbox_key), "%sinbox:%s:{%s}",
                 connection->options.prefix, connection->name, tag);
        return 1;
    }
    server->inbox_key[0] = '\0';
    return 0;
}

void redis_inbox_name(struct redis_server *server)
{
    const struct redis_connection *connection = server->connection;
    const char *key = server->inbox_key;
    if (connection->is_cluster && key[0] && !server->inbox_leaves &&
        connection->slots[redis_slot(key, strlen(key))] == server)
        return;
    int had_key = key[0] != '\0';
    if (connection->is_cluster) {
        server->inbox_n += (uint64_t)(redis_inbox_find_key(server) || had_key);
        server->inbox_leaves = 0;
    } else if (server->inbox_n == 0) {
        snprintf(server->inbox_key, sizeof(server->inbox_key), "%sinbox:%s",
                 connection->options.prefix, connection->name);
        server->inbox_n++;
    }
    redis_due_all(server);
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

/* The inbox may not be read, or is none. Or, in a cluster, the slot of the key is elsewhere, or on
 * its way: the next link reads another key. */
static int redis_inbox_refused(struct redis_server *server, const struct redis_reply *reply)
{
    int has_moved = redis_reply_is_error(reply, "MOVED"), asks = redis_reply_is_error(reply, "ASK");
    if (server->connection->is_cluster && (has_moved ? !redis_cluster_learn(server, reply) : asks))
        server->inbox_leaves = 1;
    if (!has_moved && !asks && !server->inbox_refusals)
        redis_log(server, WEIR_LOG_WARNING, "the inbox %s cannot be read: %.200s",
                  server->inbox_key, reply->text);
    server->inbox_refusals++;
    return -EREMCHG;
}

static int redis_inbox_take(struct redis_server *server, const struct redis_reply *reply)
{
    if (server->inbox_calls_n == 0)
        return -EPROTO;
    server->inbox_calls_n--;
    if (reply->type == REDIS_NIL) {
        server->inbox_refusals = 0;
        return 0;
    }
    if (reply->type == REDIS_ERROR)
        return redis_inbox_refused(server, reply);
    if (reply->type != REDIS_ARRAY || reply->elements_n != 2 ||
        reply->elements[1].type != REDIS_TEXT)
        return -EPROTO;
    server->inbox_refusals = 0;
    redis_messages_take(server, reply->elements[1].text, reply->elements[1].size);
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
