/* SPDX-License-Identifier: MIT */
/* A Redis server of the benchmark's own, and a bare connection to it: blocking, a write and a read
 * for each call. */
#ifndef WEIR_BENCH_REDIS_RAW_H
#define WEIR_BENCH_REDIS_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct raw_server {
    pid_t pid;
    char directory[64], socket[96];
};

/* Starts a server on a socket in a new directory. Returns false if there is no redis-server. */
bool raw_server_start(struct raw_server *server);
void raw_server_stop(struct raw_server *server);

enum { RAW_OUT = 64 << 10, RAW_IN = 64 << 10 };

struct raw {
    int fd;
    size_t out_n, calls_n; /* of commands that were not sent */
    char out[RAW_OUT], in[RAW_IN];
};

struct raw *raw_open(const char *socket);
void raw_close(struct raw *raw);

/* Adds a command: words, then NULL. */
void raw_add(struct raw *raw, const char *const *words);
/* Sends what was added in one write, and reads the replies. An error reply ends the process.
 * Returns the text of all replies, valid until the next call. */
const char *raw_send(struct raw *raw);

/* A command alone. */
#define RAW_CALL(raw, ...) (raw_add((raw), (const char *const[]){__VA_ARGS__, NULL}), raw_send(raw))

#endif
