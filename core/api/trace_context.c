/* SPDX-License-Identifier: MIT */
/* Reads `traceparent` of W3C Trace Context (Recommendation of 23 November 2021, section 3.2). */
#include <errno.h>
#include <stdbool.h>
#include <weir/event.h>

/* Returns the value of a hexadecimal digit, in lower case as the field requires it, or -1. */
static int trace_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads `n` bytes of two digits each, and moves on. Returns false at the first other character,
 * which may be the end of the text. */
static bool trace_read(const char **text, uint8_t *ret, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int high = trace_digit((*text)[0]), low = high < 0 ? -1 : trace_digit((*text)[1]);

        if (low < 0)
            return false;
        ret[i] = (uint8_t)(high << 4 | low);
        *text += 2;
    }
    return true;
}

/* Reads a field of `n` bytes behind a hyphen. Returns false if it is not there, or all 0. */
static bool trace_read_id(const char **text, uint8_t *ret, size_t n)
{
    uint8_t any = 0;

    if (*(*text)++ != '-' || !trace_read(text, ret, n))
        return false;
    for (size_t i = 0; i < n; i++)
        any |= ret[i];
    return any;
}

int weir_trace_parse(const char *traceparent, struct weir_trace *ret)
{
    struct weir_trace trace;
    const char *text = traceparent;
    uint8_t version;

    if (!text || !ret || !trace_read(&text, &version, 1) || version == 0xff)
        return -EINVAL;
    if (!trace_read_id(&text, trace.trace_id, sizeof(trace.trace_id)) ||
        !trace_read_id(&text, trace.parent_id, sizeof(trace.parent_id)))
        return -EINVAL;
    if (*text++ != '-' || !trace_read(&text, &trace.flags, 1))
        return -EINVAL;
    if (*text && (version == 0 || *text != '-'))
        return -EINVAL; /* only later versions may have more fields */
    *ret = trace;
    return 0;
}
