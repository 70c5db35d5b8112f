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
struct siphash_secret {
    uint64_t words[2];
};

/* A key as the table knows it. */
struct key_digest {
    uint64_t buckets; /* where it may be: two buckets, by 32 bits each */
    uint64_t id;      /* what it is known by there; even, never 0 */
};

/* A secret from the system's random numbers. */
void siphash_secret_new(struct siphash_secret *ret);

/* Hashes any bytes; of equal bytes, equal keys. */
void siphash_128(const struct siphash_secret *secret, const void *bytes, size_t n,
                 struct key_digest *ret);

#endif
