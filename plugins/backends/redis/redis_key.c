/* SPDX-License-Identifier: MIT */
/* Keys on the server. */
#include "redis_key.h"

#include <string.h>

/* Writes bytes, those of `reserved` escaped. Returns the end. */
static char *redis_key_escape(char *to, const char *reserved, const void *bytes, size_t size)
{
    static const char digits[] = "0123456789ABCDEF";
    const unsigned char *from = bytes;
    for (size_t i = 0; i < size; i++) {
        if (from[i] == '\0' || !strchr(reserved, from[i])) {
            *to++ = (char)from[i];
            continue;
        }
        *to++ = '%';
        *to++ = digits[from[i] >> 4];
        *to++ = digits[from[i] & 15];
    }
    return to;
}

size_t redis_key_begin(char *ret, const char *prefix, const char *name)
{
    size_t n = strlen(prefix);
    memcpy(ret, prefix, n);
    ret[n] = '{';
    return (size_t)(redis_key_escape(ret + n + 1, "%:}", name, strlen(name)) - ret);
}

size_t redis_key_end(char *ret)
{
    ret[0] = '}';
    return 1;
}

size_t redis_key_end_subject(char *ret, const void *subject, size_t size)
{
    ret[0] = ':';
    char *end = redis_key_escape(ret + 1, "%}", subject, size);
    *end = '}';
    return (size_t)(end - ret) + 1;
}
