/* SPDX-License-Identifier: MIT */
/* Makes files of time zones (TZif): an offset of one hour and one of two, changes from one to the
 * other, and a rule. */
#ifndef WEIR_TESTS_ZONE_FILE_H
#define WEIR_TESTS_ZONE_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define HOUR INT64_C(3600)

/* A file in the making. */
static unsigned char file[8192];
static size_t file_n;

static inline void put(uint64_t value, unsigned size)
{
    for (unsigned i = size; i > 0; i--)
        file[file_n++] = (unsigned char)(value >> 8 * (i - 1));
}

static inline void put_header(char version, const uint32_t counts[6])
{
    memcpy(file + file_n, "TZif", 4);
    file_n += 4;
    put((unsigned char)version, 1);
    put(0, 8);
    put(0, 7);
    for (int i = 0; i < 6; i++)
        put(counts[i], 4);
}

struct change {
    int64_t at_s;
    uint8_t type;
};

/* Makes a file with two offsets, an hour and two, these changes, and this rule. */
static inline void make_file(const struct change *changes, uint32_t n, const char *rule)
{
    const uint32_t none[6] = {0}, counts[6] = {0, 0, 0, n, 2, 4};

    file_n = 0;
    put_header('2', none);
    put_header('2', counts);
    for (uint32_t i = 0; i < n; i++)
        put((uint64_t)changes[i].at_s, 8);
    for (uint32_t i = 0; i < n; i++)
        put(changes[i].type, 1);
    for (uint32_t i = 0; i < 2; i++) {
        put((i + 1) * HOUR, 4);
        put(i << 8, 2);
    }
    put(0x41424300, 4);
    file_n += (size_t)sprintf((char *)file + file_n, "\n%s\n", rule);
}

#endif
