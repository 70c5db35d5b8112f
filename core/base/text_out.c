/* SPDX-License-Identifier: MIT */
/* Text that is written in pieces, and handed on in larger ones. */
#include "base/text_out.h"
#include "base/invariant.h"
#include <errno.h>
#include <string.h>

static void text_out_flush(struct text_out *out)
{
    WEIR_INVARIANT(out->n <= sizeof(out->bytes));
    if (out->n && !out->code)
        out->code = out->write(out->userdata, out->bytes, out->n);
    out->n = 0;
}

void text_out_char(struct text_out *out, char c)
{
    if (out->n == sizeof(out->bytes))
        text_out_flush(out);
    out->bytes[out->n++] = c;
}

void text_out_string(struct text_out *out, const char *text)
{
    for (; *text; text++)
        text_out_char(out, *text);
}

void text_out_number(struct text_out *out, uint64_t number)
{
    char digits[24];
    size_t n = 0;

    do
        digits[n++] = (char)('0' + number % 10);
    while (number /= 10);
    while (n)
        text_out_char(out, digits[--n]);
}

int text_out_end(struct text_out *out)
{
    text_out_flush(out);
    return out->code;
}

int text_buffer_write(void *userdata, const char *text, size_t n)
{
    struct text_buffer *buffer = userdata;

    WEIR_INVARIANT(buffer->n < buffer->size);
    if (n >= buffer->size - buffer->n)
        return -ENOBUFS;
    memcpy(buffer->bytes + buffer->n, text, n);
    buffer->n += n;
    return 0;
}

int text_buffer_end(struct text_out *out)
{
    struct text_buffer *buffer = out->userdata;
    int r = text_out_end(out);

    if (r < 0)
        buffer->n = 0;
    buffer->bytes[buffer->n] = '\0';
    return r < 0 ? r : (int)buffer->n;
}
