/* SPDX-License-Identifier: MIT */
/*
 * The hash of a key: SipHash-2-4 with 128 bits (Aumasson, Bernstein: SipHash: a fast short-input
 * PRF, 2012; the 128-bit form is that of the authors' reference, github.com/veorq/SipHash). It is a
 * pseudorandom function of a secret, so whoever chooses keys but does not know the secret of the
 * table can neither aim them at one bucket nor make two of them collide.
 */
#ifndef WEIR_CORE_BASE_SIPHASH_H
#define WEIR_CORE_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

/* Random, one per table, the same in all processes that share it. */
struct key_secret {
    uint64_t words[2];
};

/* A key as the table knows it. */
struct key {
    uint64_t place; /* where it may be: two buckets, by 32 bits each */
    uint64_t id;    /* what it is known by there; even, never 0 */
};

/* A secret from the system's random numbers. */
void key_secret_new(struct key_secret *ret);

/* Hashes any bytes; of equal bytes, equal keys. */
void key_hash(const struct key_secret *secret, const void *bytes, size_t n, struct key *ret);

#endif
