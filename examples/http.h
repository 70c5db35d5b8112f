/* SPDX-License-Identifier: MIT */
/*
 * As much of HTTP/1.1 as the example servers need, without any I/O: requests are parsed out of the
 * bytes of a connection (by http-parser), responses are written into a buffer.
 */
#ifndef WEIR_EXAMPLES_HTTP_H
#define WEIR_EXAMPLES_HTTP_H

#include <http_parser.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A bound on everything a client can make us keep. */
#define HTTP_INPUT_MAX   8192 /* bytes of a request, body included */
#define HTTP_HEADERS_MAX 32
#define HTTP_REPLY_MAX   16384

/* Characters inside the input; not terminated. */
struct http_text {
    const char *at;
    size_t n;
};

struct http_header {
    struct http_text name, value;
};

/* What has come in on a connection. The caller appends to `bytes` and counts up `n`. */
struct http_input {
    size_t n;
    size_t parsed;
    http_parser parser;
    struct http_text target;
    struct http_header headers[HTTP_HEADERS_MAX];
    size_t headers_n;
    bool in_value;     /* the last thing parsed was a header's value */
    bool head_is_read; /* all headers are there */
    bool complete;     /* the body too */
    bool too_many;     /* headers */
    char bytes[HTTP_INPUT_MAX];
};

/* What goes out: `n` bytes, of which `sent` have gone. */
struct http_reply {
    size_t n;
    size_t sent;
    char bytes[HTTP_REPLY_MAX];
};

/* What http_parse returns besides an error status. */
enum { HTTP_INCOMPLETE = 0, HTTP_REQUEST_READY = 1 };

void http_input_init(struct http_input *in);

/* Parses what is new. HTTP_INCOMPLETE, HTTP_REQUEST_READY, or the status to refuse it with. */
int http_parse(struct http_input *in);

/* Forgets the request that was ready; what the client sent behind it moves to the front. */
void http_next(struct http_input *in);

/* Of a request that is ready. */
bool http_path_is(const struct http_input *in, const char *path);
bool http_keep_alive(const struct http_input *in);

/* A header as a number: 1 and `*ret`; 0 if it is not there; -1 if it is no number up to `max`. */
int http_number(const struct http_input *in, const char *name, uint64_t max, uint64_t *ret);

/* Writes a response. `headers` are whole lines, each with its CRLF, or "". */
void http_respond(struct http_reply *reply, int status, bool keep_alive, const char *headers,
                  const char *body);

#endif
