/* SPDX-License-Identifier: MIT */
/* Slots of keys in a Redis Cluster. */
#ifndef WEIR_REDIS_SLOT_H
#define WEIR_REDIS_SLOT_H

#include <stddef.h>
#include <stdint.h>

#define REDIS_SLOTS 16384

/* Returns the slot of a key: that of its hash tag, the text in its first braces, if it has one. */
uint16_t redis_slot(const char *key, size_t size);

#endif
