/* SPDX-License-Identifier: MIT */
/* Slots of keys in a Redis Cluster. */
#include "redis_slot.h"

#include <string.h>

#define SLOT_BITS    14
#define SLOT_MASK    (REDIS_SLOTS - 1)
#define TAG_BITS     4 /* that are free in a character of a tag */
#define TAG_FIRST    0x40
#define TAG_UNKNOWNS (TAG_BITS * REDIS_TAG_SIZE)

/* CRC16 as of XMODEM. */
static uint16_t redis_slot_crc(const char *bytes, size_t size)
{
    uint32_t crc = 0;
    for (size_t i = 0; i < size; i++) {
        crc ^= (uint32_t)(unsigned char)bytes[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1;
        crc &= 0xffff;
    }
    return (uint16_t)crc;
}

uint16_t redis_slot(const char *key, size_t size)
{
    const char *open = memchr(key, '{', size), *end = key + size;
    const char *close = open ? memchr(open, '}', (size_t)(end - open)) : NULL;
    if (close && close > open + 1)
        return redis_slot_crc(open + 1, (size_t)(close - open) - 1) % REDIS_SLOTS;
    return redis_slot_crc(key, size) % REDIS_SLOTS;
}

/* A CRC of bytes of one size is linear: each bit adds (by XOR) the CRC of itself alone. So the free
 * bits of a tag are the unknowns of linear equations, one for each bit of the slot. A row of them
 * is what an unknown adds to the slot, and above that which unknown it is; so a sum of rows says of
 * which it is the sum. Gaussian elimination brings the difference from the slot of the tag of zeros
 * to 0, and tells of what it was the sum. */
void redis_slot_tag(uint16_t slot, char ret[REDIS_TAG_SIZE + 1])
{
    uint32_t rows[TAG_UNKNOWNS], sum, rows_n = TAG_UNKNOWNS;
    for (uint32_t i = 0; i < TAG_UNKNOWNS; i++) {
        char one[REDIS_TAG_SIZE] = {0};
        one[i / TAG_BITS] = (char)(1 << i % TAG_BITS);
        rows[i] = (redis_slot_crc(one, REDIS_TAG_SIZE) & SLOT_MASK) | UINT32_C(1)
                                                                          << (SLOT_BITS + i);
    }
    memset(ret, TAG_FIRST, REDIS_TAG_SIZE);
    ret[REDIS_TAG_SIZE] = '\0';
    sum = (redis_slot_crc(ret, REDIS_TAG_SIZE) ^ slot) & SLOT_MASK;
    for (uint32_t bit = 1; bit < REDIS_SLOTS; bit <<= 1) {
        uint32_t at = 0;
        while (at < rows_n && !(rows[at] & bit))
            at++;
        if (at == rows_n)
            continue;
        uint32_t row = rows[at];
        rows[at] = rows[--rows_n];
        for (uint32_t i = 0; i < rows_n; i++)
            rows[i] ^= rows[i] & bit ? row : 0;
        sum ^= sum & bit ? row : 0;
    }
    for (uint32_t i = 0; i < TAG_UNKNOWNS; i++)
        ret[i / TAG_BITS] |= (char)((sum >> (SLOT_BITS + i) & 1) << i % TAG_BITS);
}
