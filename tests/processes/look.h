/* SPDX-License-Identifier: MIT */
/* Checks of all of a segment, byte by byte: what must hold when no thread is in the middle of an
 * operation. */
#ifndef WEIR_TESTS_LOOK_H
#define WEIR_TESTS_LOOK_H

#include "api/instance.h"

/* Checks the wait queue of the current version: from its head, as many links as it has waiters lead
 * to its tail, forth and back; all of them wait, and joined in this order. Returns its length. */
uint32_t look_line(const weir_set *set);

/* How many waiters ever joined, modulo 2^28. */
uint32_t look_joined(const weir_set *set);

/*
 * Whether the head of the wait queue could have what it waits for of the first limit, a resource.
 */
bool look_can_serve(const weir_set *set);

#define LOOK_KEY_SETS_MAX 64u

/* A keyed set that has at most so many key sets: each is named by one key at most, has no waiters,
 * and nothing is held of it. */
void look_key_sets(const weir_set *set);

/* How many places of processes are taken. */
uint32_t look_places(const weir_set *set);

/* No record holds or waits, all records are free, all blocks are where they belong, and nothing has
 * an owner but what belongs to these `n` participants. */
void look_idle(const weir_set *set, const uint32_t *keys, uint32_t n);

#endif
