/* SPDX-License-Identifier: MIT */
/* SipHash-2-4 with 128 bits of output. */
#include "base/siphash.h"
#include "base/compiler.h"

struct siphash_state {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t siphash_rotl(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

WEIR_ALWAYS_INLINE void siphash_round(struct siphash_state *s)
{
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = siphash_rotl(s->v1, 13) ^ s->v0;
    s->v3 = siphash_rotl(s->v3, 16) ^ s->v2;
    s->v0 = siphash_rotl(s->v0, 32);
    s->v2 += s->v1;
    s->v0 += s->v3;
    s->v1 = siphash_rotl(s->v1, 17) ^ s->v2;
    s->v3 = siphash_rotl(s->v3, 21) ^ s->v0;
    s->v2 = siphash_rotl(s->v2, 32);
}

/* Written out: a loop around the rounds took a tenth of all instructions. */
WEIR_ALWAYS_INLINE void siphash_two_rounds(struct siphash_state *s)
{
    siphash_round(s);
    siphash_round(s);
}

WEIR_ALWAYS_INLINE void siphash_compress(struct siphash_state *s, uint64_t word)
{
    s->v3 ^= word;
    siphash_two_rounds(s);
    s->v0 ^= word;
}

/* Loads eight bytes, least significant first; compiled to one load. */
static inline uint64_t siphash_load_word(const unsigned char *at)
{
    return (uint64_t)at[0] | (uint64_t)at[1] << 8 | (uint64_t)at[2] << 16 | (uint64_t)at[3] << 24 |
           (uint64_t)at[4] << 32 | (uint64_t)at[5] << 40 | (uint64_t)at[6] << 48 |
           (uint64_t)at[7] << 56;
}

/* Loads the last bytes, less than eight, with `n` modulo 256 in the top byte. */
static inline uint64_t siphash_load_tail(const unsigned char *at, size_t n)
{
    uint64_t word = (uint64_t)n << 56;

    for (size_t i = 0; i < n % 8; i++)
        word |= (uint64_t)at[i] << 8 * i;
    return word;
}

void siphash_128(const struct siphash_secret *secret, const void *bytes, size_t n,
                 struct key_digest *ret)
{
    const unsigned char *at = bytes;
    struct siphash_state s = {
        secret->words[0] ^ UINT64_C(0x736f6d6570736575),
        secret->words[1] ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
        secret->words[0] ^ UINT64_C(0x6c7967656e657261),
        secret->words[1] ^ UINT64_C(0x7465646279746573),
    };

    for (size_t left = n; left >= 8; left -= 8) {
        siphash_compress(&s, siphash_load_word(at));
        at += 8;
    }
    siphash_compress(&s, siphash_load_tail(at, n));
    s.v2 ^= 0xee;
    siphash_two_rounds(&s);
    siphash_two_rounds(&s);
    ret->buckets = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
    s.v1 ^= 0xdd;
    siphash_two_rounds(&s);
    siphash_two_rounds(&s);
    ret->id = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
