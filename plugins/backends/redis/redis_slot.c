/* SPDX-License-Identifier: MIT */
/* Slots of keys in a Redis Cluster. */
#include "redis_slot.h"

#include <string.h>

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
