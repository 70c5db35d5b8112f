/* SPDX-License-Identifier: MIT */
/* Parses requests and writes responses of HTTP/1.1. */
#include "http.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Appends a piece of a text. The parser hands out adjacent pieces, unless a header is folded. */
static int extend(struct http_text *text, const char *at, size_t n)
{
    if (!text->at)
        text->at = at;
    if (text->at + text->n != at)
        return -1; /* folding is obsolete and must be refused: RFC 9112, 5.2 */
    text->n += n;
    return 0;
}

static int on_url(http_parser *parser, const char *at, size_t n)
{
    struct http_input *in = parser->data;

    return extend(&in->target, at, n);
}

static int on_header_field(http_parser *parser, const char *at, size_t n)
{
    struct http_input *in = parser->data;

    if (in->headers_n == 0 || in->in_value) {
        in->too_many = in->headers_n == HTTP_HEADERS_MAX;
        if (in->too_many)
            return -1;
        in->headers[in->headers_n++] = (struct http_header){0};
    }
    in->in_value = false;
    return extend(&in->headers[in->headers_n - 1].name, at, n);
}

static int on_header_value(http_parser *parser, const char *at, size_t n)
{
    struct http_input *in = parser->data;

    in->in_value = true;
    return extend(&in->headers[in->headers_n - 1].value, at, n);
}

static int on_headers_complete(http_parser *parser)
{
    struct http_input *in = parser->data;

    in->head_is_read = true;
    return 0;
}

static int on_message_complete(http_parser *parser)
{
    struct http_input *in = parser->data;

    in->complete = true;
    http_parser_pause(parser, 1); /* one request at a time; the next stays in the buffer */
    return 0;
}

static const http_parser_settings settings = {
    .on_url = on_url,
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_headers_complete = on_headers_complete,
    .on_message_complete = on_message_complete,
};

static void begin(struct http_input *in)
{
    http_parser_init(&in->parser, HTTP_REQUEST);
    in->parser.data = in;
    in->parsed = 0;
    in->headers_n = 0;
    in->target = (struct http_text){0};
    in->in_value = in->head_is_read = in->complete = in->too_many = false;
}

void http_input_init(struct http_input *in)
{
    in->n = 0;
    begin(in);
}

void http_next(struct http_input *in)
{
    in->n -= in->parsed;
    memmove(in->bytes, in->bytes + in->parsed, in->n);
    begin(in);
}

static const struct http_header *find(const struct http_input *in, const char *name)
{
    for (size_t i = 0; i < in->headers_n; i++) {
        const struct http_text *text = &in->headers[i].name;

        if (text->n == strlen(name) && strncasecmp(text->at, name, text->n) == 0)
            return &in->headers[i];
    }
    return NULL;
}

/* Refuses requests that the parser accepts and these servers do not. Returns 0 or a status. */
static int judge(const struct http_input *in)
{
    const http_parser *parser = &in->parser;

    if (parser->http_major != 1)
        return 505;
    if (parser->http_minor > 0 && !find(in, "Host"))
        return 400; /* RFC 9112, 3.2 */
    if (parser->method != HTTP_GET && parser->method != HTTP_POST)
        return 405;
    return HTTP_REQUEST_READY;
}

int http_parse(struct http_input *in)
{
    size_t fresh = in->n - in->parsed;

    if (fresh > 0 && !in->complete)
        in->parsed += http_parser_execute(&in->parser, &settings, in->bytes + in->parsed, fresh);
    if (in->complete)
        return judge(in);
    if (in->too_many)
        return 431;
    if (HTTP_PARSER_ERRNO(&in->parser) != HPE_OK)
        return 400;
    if (in->n == HTTP_INPUT_MAX)
        return in->head_is_read ? 413 : 431;
    return HTTP_INCOMPLETE;
}

bool http_path_is(const struct http_input *in, const char *path)
{
    size_t n = strlen(path);

    return in->target.n >= n && memcmp(in->target.at, path, n) == 0 &&
           (in->target.n == n || in->target.at[n] == '?');
}

bool http_keep_alive(const struct http_input *in)
{
    return http_should_keep_alive(&in->parser) != 0;
}

int http_number(const struct http_input *in, const char *name, uint64_t max, uint64_t *ret)
{
    const struct http_header *header = find(in, name);
    uint64_t number = 0;

    if (!header)
        return 0;
    for (size_t i = 0; i < header->value.n; i++) {
        unsigned digit = (unsigned char)header->value.at[i] - (unsigned)'0';

        if (digit > 9 || digit > max || number > (max - digit) / 10)
            return -1;
        number = number * 10 + digit;
    }
    if (header->value.n == 0)
        return -1;
    *ret = number;
    return 1;
}

void http_respond(struct http_reply *reply, int status, bool keep_alive, const char *headers,
                  const char *body)
{
    int n = snprintf(reply->bytes, sizeof(reply->bytes),
                     "HTTP/1.1 %d %s\r\n"
                     "Content-Length: %zu\r\n"
                     "Connection: %s\r\n"
                     "%s\r\n"
                     "%s",
                     status, http_status_str((enum http_status)status), strlen(body),
                     keep_alive ? "keep-alive" : "close", headers, body);

    reply->sent = 0;
    reply->n = (size_t)n;
    if (n < 0 || reply->n >= sizeof(reply->bytes))
        http_respond(reply, 500, keep_alive, "", "The answer does not fit.\n");
}
