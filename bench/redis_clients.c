/* SPDX-License-Identifier: MIT */
/* What the benchmark `redis` does on bare connections. */
#include "redis_clients.h"

#include "lib/require.h"

#include <stdio.h>
#include <string.h>

#define SET     "r,1000/t,1000000000,1000000,1000000000,1000000000,0,0,1,0"
#define DEFINE  "bench/-/1000/3000000/" SET
#define GRANTED "*4\r\n:0\r\n"

/* ---- the functions of weir ---- */

void client_open(struct client *client, const struct raw_server *server, unsigned i)
{
    const char *at;

    client->raw = raw_open(server->socket);
    at = strstr(RAW_CALL(client->raw, "INFO", "server"), "run_id:");
    require(at && sscanf(at, "run_id:%63[0-9a-f]", client->run) == 1);
    snprintf(client->node, sizeof(client->node), "raw%u", i);
    snprintf(client->inbox, sizeof(client->inbox), "inbox%u", i);
}

void client_close(struct client *client)
{
    raw_close(client->raw);
}

void client_begin(struct client *client)
{
    RAW_CALL(client->raw, "FCALL", "weir_open", "1", "raw", client->run, DEFINE, client->node,
             client->inbox, "0");
}

static void client_add_acquire(struct client *client, unsigned slot)
{
    char serial[24], in[8];

    snprintf(serial, sizeof(serial), "%llu", (unsigned long long)++client->serial);
    snprintf(in, sizeof(in), "%u", slot);
    raw_add(client->raw, (const char *const[]){"FCALL", "weir_acquire", "1", "raw", client->run,
                                               DEFINE, client->node, client->inbox, in, serial,
                                               "try", "-1", "-1", "1", "1", NULL});
}

static void client_add_release(struct client *client, unsigned slot, uint64_t serial_number)
{
    char serial[24], in[8];

    snprintf(serial, sizeof(serial), "%llu", (unsigned long long)serial_number);
    snprintf(in, sizeof(in), "%u", slot);
    raw_add(client->raw,
            (const char *const[]){"FCALL", "weir_release", "1", "raw", client->run, DEFINE,
                                  client->node, in, serial, "end", "1", "1", NULL});
}

bool client_try(struct client *client)
{
    client_add_acquire(client, 0);
    return strncmp(raw_send(client->raw), GRANTED, sizeof(GRANTED) - 1) == 0;
}

void client_acquire(struct client *client)
{
    require(client_try(client));
}

void client_release(struct client *client)
{
    client_add_release(client, 0, client->serial);
    raw_send(client->raw);
}

void client_take(struct client *client)
{
    require(strncmp(RAW_CALL(client->raw, "FCALL", "weir_take", "1", "raw", client->run, DEFINE,
                             client->node, "0", "1"),
                    GRANTED, sizeof(GRANTED) - 1) == 0);
}

void client_pipeline(struct client *client)
{
    uint64_t first = client->serial + 1;

    for (unsigned i = 0; i < PIPELINE; i++)
        client_add_acquire(client, i);
    raw_send(client->raw);
    for (unsigned i = 0; i < PIPELINE; i++)
        client_add_release(client, i, first + i);
    raw_send(client->raw);
}

/* ---- semaphores ---- */

void list_open(struct client *client)
{
    for (unsigned i = 0; i < SEMAPHORE_SLOTS; i++)
        RAW_CALL(client->raw, "LPUSH", "list:free", "slot");
}

void list_acquire(struct client *client)
{
    RAW_CALL(client->raw, "GETSET", "list:exists", "1");
    RAW_CALL(client->raw, "BLPOP", "list:free", "60");
    RAW_CALL(client->raw, "HSET", "list:used", client->node, "1700000000.0");
}

void list_release(struct client *client)
{
    raw_add(client->raw, (const char *const[]){"MULTI", NULL});
    raw_add(client->raw, (const char *const[]){"HDEL", "list:used", client->node, NULL});
    raw_add(client->raw, (const char *const[]){"LPUSH", "list:free", client->node, NULL});
    raw_add(client->raw, (const char *const[]){"EXEC", NULL});
    raw_send(client->raw);
}

void sorted_acquire(struct client *client)
{
    raw_add(client->raw, (const char *const[]){"MULTI", NULL});
    raw_add(client->raw,
            (const char *const[]){"ZREMRANGEBYSCORE", "sorted", "-inf", "1700000000", NULL});
    raw_add(client->raw, (const char *const[]){"ZINTERSTORE", "sorted:owner", "2", "sorted:owner",
                                               "sorted", "WEIGHTS", "1", "0", NULL});
    raw_add(client->raw, (const char *const[]){"INCR", "sorted:counter", NULL});
    raw_add(client->raw, (const char *const[]){"EXEC", NULL});
    raw_send(client->raw);
    raw_add(client->raw, (const char *const[]){"MULTI", NULL});
    raw_add(client->raw, (const char *const[]){"ZADD", "sorted", "1800000000", client->node, NULL});
    raw_add(client->raw, (const char *const[]){"ZADD", "sorted:owner", "1", client->node, NULL});
    raw_add(client->raw, (const char *const[]){"ZRANK", "sorted:owner", client->node, NULL});
    raw_add(client->raw, (const char *const[]){"EXEC", NULL});
    raw_send(client->raw);
}

void sorted_release(struct client *client)
{
    raw_add(client->raw, (const char *const[]){"MULTI", NULL});
    raw_add(client->raw, (const char *const[]){"ZREM", "sorted", client->node, NULL});
    raw_add(client->raw, (const char *const[]){"ZREM", "sorted:owner", client->node, NULL});
    raw_add(client->raw, (const char *const[]){"EXEC", NULL});
    raw_send(client->raw);
}
