/* SPDX-License-Identifier: MIT */
/*
 * The part of HTTP/1.1 that the example servers need, without any I/O: requests are parsed from the
 * bytes of a connection (by http-parser), responses are written into a buffer.
 */
#ifndef WEIR_EXAMPLES_HTTP_H
#define WEIR_EXAMPLES_HTTP_H

#include <http_parser.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bounds on the memory that a client can use. */
#define HTTP_INPUT_MAX   8192 /* size of a request, bytes, body included */
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

/* Input of a connection. The caller appends to `bytes` and adds to `n`. */
struct http_input {
    size_t n;
    size_t parsed;
    http_parser parser;
    struct http_text target;
    struct http_header headers[HTTP_HEADERS_MAX];
    size_t headers_n;
    bool in_value;     /* the parser is in the value of a header */
    bool head_is_read; /* all headers were parsed */
    bool complete;     /* the body was parsed, too */
    bool too_many;     /* more than HTTP_HEADERS_MAX headers */
    char bytes[HTTP_INPUT_MAX];
};

/* Output of a connection: `n` bytes, of which `sent` were sent. */
struct http_reply {
    size_t n;
    size_t sent;
    char bytes[HTTP_REPLY_MAX];
};

/* Results of http_parse besides an error status. */
enum { HTTP_INCOMPLETE = 0, HTTP_REQUEST_READY = 1 };

void http_input_init(struct http_input *in);

/* Parses the new bytes. Returns HTTP_INCOMPLETE, HTTP_REQUEST_READY, or the status of a refusal. */
int http_parse(struct http_input *in);

/* Drops the request that was ready; the bytes behind it move to the front. */
void http_next(struct http_input *in);

/* Returns true if the request, which is ready, has this path. */
bool http_path_is(const struct http_input *in, const char *path);
bool http_keep_alive(const struct http_input *in);

/* Reads a header as a number. Returns 1 and `*ret`; 0 if it is missing; -1 if it is no number up to
 * `max`. */
int http_number(const struct http_input *in, const char *name, uint64_t max, uint64_t *ret);

/* Writes a response. `headers` are whole lines, each with its CRLF, or "". */
void http_respond(struct http_reply *reply, int status, bool keep_alive, const char *headers,
                  const char *body);

#endif
