/* SPDX-License-Identifier: MIT */
/* Slots of keys in a Redis Cluster. */
#ifndef WEIR_REDIS_SLOT_H
#define WEIR_REDIS_SLOT_H

#include <stddef.h>
#include <stdint.h>

#define REDIS_SLOTS    16384
#define REDIS_TAG_SIZE 4

/* Returns the slot of a key: that of its hash tag, the text in its first braces, if it has one. */
uint16_t redis_slot(const char *key, size_t size);

/* Writes a hash tag of this slot: some of the characters from @ to O, and a NUL. */
void redis_slot_tag(uint16_t slot, char ret[REDIS_TAG_SIZE + 1]);

#endif
