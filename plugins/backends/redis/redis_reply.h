/* SPDX-License-Identifier: MIT */
/*
 * Replies of a Redis server (RESP2), read by the reader of hiredis into memory of fixed size.
 *
 *     while ((r = redis_replies_feed(replies, bytes, n)) == 0 &&
 *            (r = redis_replies_next(replies, &reply)) > 0)
 *         … reply is valid until the next call …
 *
 * A server may say anything. A reply with more elements or longer texts than any call of the
 * protocol has is an error, and the connection is given up.
 */
#ifndef WEIR_REDIS_REPLY_H
#define WEIR_REDIS_REPLY_H

#include <stddef.h>
#include <stdint.h>

enum redis_reply_type {
    REDIS_TEXT = 1, /* of a bulk string or a status */
    REDIS_INTEGER,
    REDIS_NIL,
    REDIS_ARRAY,
    REDIS_ERROR
};

struct redis_reply {
    enum redis_reply_type type;
    uint32_t elements_n;
    int64_t integer;
    const char *text; /* of texts and errors; NUL-terminated, may have other zeros in it */
    size_t size;
    struct redis_reply *elements;
};

struct redis_replies;

/* `is_large`: a reply may describe a cluster. Returns NULL if there is no memory. */
struct redis_replies *redis_replies_new(int is_large);
void redis_replies_free(struct redis_replies *replies);

/* Adds bytes that were received. Returns 0 or -ENOMEM. */
int redis_replies_feed(struct redis_replies *replies, const void *bytes, size_t n);
/* Reads the next reply. Returns 1, 0 if it has not all been received, or -EPROTO: it is none, or
 * too long. */
int redis_replies_next(struct redis_replies *replies, const struct redis_reply **ret);

/* Returns element `i` as an integer from `least` to 2^53 - 1; else -EPROTO, which is less. */
int64_t redis_reply_integer(const struct redis_reply *reply, uint32_t i, int64_t least);
/* Returns 1 if the reply is an error with this code, its first word. */
int redis_reply_is_error(const struct redis_reply *reply, const char *code);

#endif
