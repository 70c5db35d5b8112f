/* SPDX-License-Identifier: MIT */
/* Writes the values of HTTP fields that tell of limits (weir/http.h). Their syntax is that of
 * structured fields, RFC 9651. */
#include "base/text_out.h"
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <weir/http.h>

#define NS_PER_S UINT64_C(1000000000)
/* The largest Integer of a structured field. */
#define HTTP_INTEGER_MAX UINT64_C(999999999999999)

__extension__ typedef unsigned __int128 u128;

static uint64_t http_seconds(uint64_t ns)
{
    return ns / NS_PER_S + (ns % NS_PER_S != 0);
}

/* Returns the seconds of `Retry-After`; UINT64_MAX: the field is left out. */
static uint64_t http_retry_after_s(uint64_t retry_after_ns)
{
    if (retry_after_ns >= WEIR_BLOCKED)
        return UINT64_MAX;
    return retry_after_ns ? http_seconds(retry_after_ns) : 1;
}

/* Writes a parameter with an Integer. */
static void http_parameter(struct text_out *out, const char *name, uint64_t number)
{
    text_out_string(out, name);
    text_out_number(out, number < HTTP_INTEGER_MAX ? number : HTTP_INTEGER_MAX);
}

/* Writes a key as a part of a String. No two keys become one: `%` and `#` are written as others. */
static void http_key(struct text_out *out, const char *key)
{
    for (; *key; key++) {
        unsigned char c = (unsigned char)*key;

        if (c < ' ' || c > '~' || c == '%' || c == '#') {
            text_out_char(out, '%');
            text_out_char(out, "0123456789ABCDEF"[c >> 4]);
            text_out_char(out, "0123456789ABCDEF"[c & 15]);
            continue;
        }
        if (c == '"' || c == '\\')
            text_out_char(out, '\\');
        text_out_char(out, *key);
    }
}

/* Begins the item of a limit with its name. */
static void http_item(struct text_out *out, const struct weir_remaining *limits, size_t i)
{
    uint64_t same = 1;

    for (size_t k = 0; k < i; k++)
        same += strcmp(limits[k].key, limits[i].key) == 0;
    text_out_string(out, i ? ", \"" : "\"");
    http_key(out, limits[i].key);
    if (same > 1) {
        text_out_char(out, '#');
        text_out_number(out, same);
    }
    text_out_char(out, '"');
}

static void http_unit(struct text_out *out, const struct weir_remaining *limit)
{
    if (limit->type == WEIR_LIMIT_CALL)
        return; /* `requests`, which is the default */
    text_out_string(out, ";qu=\"");
    if (limit->type == WEIR_LIMIT_RESOURCE)
        text_out_string(out, "concurrent-requests");
    else
        http_key(out, limit->key);
    text_out_char(out, '"');
}

int weir_http_retry_after(uint64_t retry_after_ns, char *ret, size_t size)
{
    struct text_buffer buffer = {ret, size, 0};
    struct text_out out = {.write = text_buffer_write, .userdata = &buffer};
    uint64_t seconds = http_retry_after_s(retry_after_ns);

    if (!ret)
        return -EINVAL;
    if (!size)
        return -ENOBUFS;
    if (seconds != UINT64_MAX)
        text_out_number(&out, seconds);
    return text_buffer_end(&out);
}

/* Writes the items of a list, each followed by its parameters. */
static int http_list(const struct weir_remaining *limits, size_t n, uint64_t retry_after_ns,
                     void (*parameters)(struct text_out *out, const struct weir_remaining *limit,
                                        uint64_t retry_after_ns),
                     char *ret, size_t size)
{
    struct text_buffer buffer = {ret, size, 0};
    struct text_out out = {.write = text_buffer_write, .userdata = &buffer};

    if (!ret || (n && !limits))
        return -EINVAL;
    if (!size)
        return -ENOBUFS;
    for (size_t i = 0; i < n; i++) {
        http_item(&out, limits, i);
        parameters(&out, &limits[i], retry_after_ns);
    }
    return text_buffer_end(&out);
}

static void http_policy(struct text_out *out, const struct weir_remaining *limit, uint64_t unused)
{
    (void)unused;
    http_parameter(out, ";q=", limit->capacity);
    http_unit(out, limit);
    if (limit->window_ns)
        http_parameter(out, ";w=", http_seconds(limit->window_ns));
}

int weir_http_ratelimit_policy(const struct weir_remaining *limits, size_t n, char *ret,
                               size_t size)
{
    return http_list(limits, n, 0, http_policy, ret, size);
}

static void http_remaining(struct text_out *out, const struct weir_remaining *limit,
                           uint64_t retry_after_ns)
{
    uint64_t after_ns = limit->more_after_ns;

    http_parameter(out, ";r=", limit->available);
    if (after_ns && after_ns < WEIR_BLOCKED &&
        http_seconds(after_ns) <= http_retry_after_s(retry_after_ns))
        http_parameter(out, ";t=", http_seconds(after_ns));
}

int weir_http_ratelimit(const struct weir_remaining *limits, size_t n, uint64_t retry_after_ns,
                        char *ret, size_t size)
{
    return http_list(limits, n, retry_after_ns, http_remaining, ret, size);
}

/* Returns whether less of its capacity remains of `a` than of `b`. */
static bool http_is_scarcer(const struct weir_remaining *a, const struct weir_remaining *b)
{
    return (u128)a->available * b->capacity < (u128)b->available * a->capacity;
}

int weir_http_triple(const struct weir_remaining *limits, size_t n, struct weir_http_triple *ret)
{
    size_t scarcest = 0;

    if (!ret || (n && !limits))
        return -EINVAL;
    if (!n)
        return -ENOENT;
    for (size_t i = 1; i < n; i++)
        if (http_is_scarcer(&limits[i], &limits[scarcest]))
            scarcest = i;
    *ret = (struct weir_http_triple){.limit = limits[scarcest].capacity,
                                     .remaining = limits[scarcest].available,
                                     .reset_s = limits[scarcest].full_after_ns >= WEIR_BLOCKED
                                                    ? UINT64_MAX
                                                    : http_seconds(limits[scarcest].full_after_ns)};
    return (int)scarcest;
}
