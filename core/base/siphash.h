/* SPDX-License-Identifier: MIT */
/*
 * Keyed hash of keys: SipHash-2-4 with 128 bits (Aumasson, Bernstein: SipHash: a fast short-input
 * PRF, 2012; the 128-bit form is that of the authors' reference, github.com/veorq/SipHash). It is a
 * pseudorandom function. Without the table's secret, an attacker that chooses keys can neither aim
 * them at one bucket nor make two collide.
 */
#ifndef WEIR_CORE_BASE_SIPHASH_H
#define WEIR_CORE_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

/* Random secret of one table, equal in all processes that share it: from os_random_secret(), since
 * a secret that can be guessed would protect nothing. */
struct siphash_secret {
    uint64_t words[2];
};

/* Digest of a key. */
struct key_digest {
    uint64_t buckets; /* selects the key's two buckets, by 32 bits each */
    uint64_t id;      /* identifies the key; key_table.c makes it even and not 0 */
};

/* Computes the digest of any bytes. */
void siphash_128(const struct siphash_secret *secret, const void *bytes, size_t n,
                 struct key_digest *ret);

#endif
