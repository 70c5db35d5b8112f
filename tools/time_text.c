/* SPDX-License-Identifier: MIT */
/* Durations as text. */
#include "time_text.h"
#include <inttypes.h>
#include <stdio.h>

#define NS_PER_S  UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)

const char *time_text_seconds(uint64_t ns, char buffer[TIME_TEXT_MAX])
{
    int n = snprintf(buffer, TIME_TEXT_MAX, "%" PRIu64 ".%09" PRIu64, ns / NS_PER_S, ns % NS_PER_S);

    while (buffer[n - 1] == '0')
        n--;
    if (buffer[n - 1] == '.')
        n--;
    buffer[n] = '\0';
    return buffer;
}

const char *time_text_age(uint64_t ns, char buffer[TIME_TEXT_MAX])
{
    uint64_t s = ns / NS_PER_S;

    if (ns < NS_PER_S)
        snprintf(buffer, TIME_TEXT_MAX, "%" PRIu64 "ms", ns / NS_PER_MS);
    else if (s < 60)
        snprintf(buffer, TIME_TEXT_MAX, "%" PRIu64 ".%" PRIu64 "s", s, ns / (NS_PER_S / 10) % 10);
    else if (s < 3600)
        snprintf(buffer, TIME_TEXT_MAX, "%" PRIu64 "m%02" PRIu64 "s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(buffer, TIME_TEXT_MAX, "%" PRIu64 "h%02" PRIu64 "m", s / 3600, s / 60 % 60);
    else
        snprintf(buffer, TIME_TEXT_MAX, "%" PRIu64 "d", s / 86400);
    return buffer;
}
