/* SPDX-License-Identifier: MIT */
/* Replies of a Redis server, in memory of fixed size. */
#include "redis_reply.h"

#include <errno.h>
#include <hiredis/read.h>
#include <stdlib.h>
#include <string.h>

#define NODES_MAX    2048        /* elements of one reply; weir_list has at most 602 */
#define TEXT_MAX     (64u << 10) /* bytes of all texts of one reply */
#define UNREAD       4  /* bytes of a reply that is not there as a whole, for each of text */
#define LARGER       32 /* times as much for the description of a cluster */
#define LONG_TEXT    (1u << 20) /* bytes of one text that is longer than all others: of weir_fetch */
#define INTEGER_LAST (INT64_C(1) << 53)

struct redis_replies {
    redisReader *reader;
    size_t nodes_n, nodes_max, text_n, text_max;
    char *text;
    char *long_text; /* of this reply; NULL: it has none */
    struct redis_reply nodes[];
};

/* Returns n nodes in a row, or NULL: the reader gives up then. */
static struct redis_reply *redis_reply_nodes(struct redis_replies *replies, size_t n)
{
    if (n > replies->nodes_max - replies->nodes_n)
        return NULL;
    struct redis_reply *nodes = &replies->nodes[replies->nodes_n];
    replies->nodes_n += n;
    memset(nodes, 0, n * sizeof(*nodes));
    return nodes;
}

/* Returns the node for what was read: an element of the array around it, or a node of its own. */
static struct redis_reply *redis_reply_place(const redisReadTask *task, enum redis_reply_type type)
{
    struct redis_reply *node;
    if (task->parent)
        node = &((struct redis_reply *)task->parent->obj)->elements[task->idx];
    else
        node = redis_reply_nodes(task->privdata, 1);
    if (node)
        node->type = type;
    return node;
}

/* Returns memory for a text, or NULL: there is none, or it is too long. */
static char *redis_reply_room(struct redis_replies *replies, size_t size)
{
    if (size < replies->text_max - replies->text_n) {
        replies->text_n += size + 1;
        return &replies->text[replies->text_n - size - 1];
    }
    if (replies->long_text || size > LONG_TEXT)
        return NULL;
    replies->long_text = malloc(size + 1);
    return replies->long_text;
}

static void *redis_reply_text(const redisReadTask *task, char *text, size_t size)
{
    int is_error = task->type == REDIS_REPLY_ERROR;
    struct redis_reply *node = redis_reply_place(task, is_error ? REDIS_ERROR : REDIS_TEXT);
    char *copy = node ? redis_reply_room(task->privdata, size) : NULL;
    if (!copy)
        return NULL;
    memcpy(copy, text, size);
    copy[size] = '\0';
    node->text = copy;
    node->size = size;
    return node;
}

static void *redis_reply_array(const redisReadTask *task, int n)
{
    struct redis_reply *node = redis_reply_place(task, REDIS_ARRAY);
    if (!node || n < 0)
        return NULL;
    node->elements = redis_reply_nodes(task->privdata, (size_t)n);
    node->elements_n = (uint32_t)n;
    return node->elements ? node : NULL;
}

static void *redis_reply_number(const redisReadTask *task, long long value)
{
    struct redis_reply *node = redis_reply_place(task, REDIS_INTEGER);
    if (node)
        node->integer = value;
    return node;
}

static void *redis_reply_nil(const redisReadTask *task)
{
    return redis_reply_place(task, REDIS_NIL);
}

static void redis_reply_forget(void *node)
{
    (void)node; /* lies in the memory of the replies */
}

static redisReplyObjectFunctions reply_functions = {
    .createString = redis_reply_text,
    .createArray = redis_reply_array,
    .createInteger = redis_reply_number,
    .createNil = redis_reply_nil,
    .freeObject = redis_reply_forget,
};

struct redis_replies *redis_replies_new(int is_large)
{
    size_t times = is_large ? LARGER : 1;
    size_t size = times * (NODES_MAX * sizeof(struct redis_reply) + TEXT_MAX);
    struct redis_replies *replies = malloc(sizeof(*replies) + size);
    if (!replies)
        return NULL;
    replies->nodes_n = replies->text_n = 0;
    replies->long_text = NULL;
    replies->nodes_max = times * NODES_MAX;
    replies->text_max = times * TEXT_MAX;
    replies->text = (char *)(replies->nodes + replies->nodes_max);
    replies->reader = redisReaderCreateWithFunctions(&reply_functions);
    if (!replies->reader) {
        free(replies);
        return NULL;
    }
    replies->reader->privdata = replies;
    return replies;
}

void redis_replies_free(struct redis_replies *replies)
{
    if (!replies)
        return;
    redisReaderFree(replies->reader);
    free(replies->long_text);
    free(replies);
}

int redis_replies_feed(struct redis_replies *replies, const void *bytes, size_t n)
{
    return redisReaderFeed(replies->reader, bytes, n) == REDIS_OK ? 0 : -ENOMEM;
}

int redis_replies_next(struct redis_replies *replies, const struct redis_reply **ret)
{
    void *reply = NULL;
    if (!replies->reader->reply) {
        replies->nodes_n = replies->text_n = 0;
        free(replies->long_text);
        replies->long_text = NULL;
    }
    if (redisReaderGetReply(replies->reader, &reply) != REDIS_OK)
        return -EPROTO;
    if (!reply)
        return replies->reader->len - replies->reader->pos > UNREAD * replies->text_max + LONG_TEXT
                   ? -EPROTO
                   : 0;
    *ret = reply;
    return 1;
}

int64_t redis_reply_integer(const struct redis_reply *reply, uint32_t i, int64_t least)
{
    if (reply->type != REDIS_ARRAY || i >= reply->elements_n ||
        reply->elements[i].type != REDIS_INTEGER || reply->elements[i].integer < least ||
        reply->elements[i].integer >= INTEGER_LAST)
        return -EPROTO;
    return reply->elements[i].integer;
}

int redis_reply_is_error(const struct redis_reply *reply, const char *code)
{
    size_t n = strlen(code);
    return reply->type == REDIS_ERROR && !strncmp(reply->text, code, n) &&
           (reply->text[n] == ' ' || reply->text[n] == '\0');
}
