/* SPDX-License-Identifier: MIT */
/* A look at all of a segment, by the bytes: what must hold when nobody is in the middle of
 * anything.
 */
#ifndef WEIR_TESTS_LOOK_H
#define WEIR_TESTS_LOOK_H

#include "api/instance.h"

/*
 * The line of the version that is current is whole: from its head so many go to its tail, forth and
 * back, all of which wait, and joined in this order. Returns its length.
 */
uint32_t look_line(const weir_set *set);

/* How many ever joined the line, modulo 2^28. */
uint32_t look_joined(const weir_set *set);

/* Whether the head of the line could have what it waits for of the first limit, a resource. */
bool look_can_serve(const weir_set *set);

#define LOOK_LIVES_MAX 64u

/* Of a keyed set that has so many key sets at most: each is named by one key at most, nobody is in
 * line for any, and nothing is held of it. */
void look_lives(const weir_set *set);

/* How many places of processes are taken. */
uint32_t look_places(const weir_set *set);

/*
 * Nobody holds or waits, all records are free, all blocks are where they belong, and nothing is
 * anybody's but what belongs to these `n` members.
 */
void look_idle(const weir_set *set, const uint32_t *keys, uint32_t n);

#endif
