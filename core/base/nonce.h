/* SPDX-License-Identifier: MIT */
/* Numbers that name an attempt of one thread. */
#ifndef WEIR_CORE_BASE_NONCE_H
#define WEIR_CORE_BASE_NONCE_H

#include <stdint.h>

/* Used by one thread at a time. Every source starts from a random number. */
struct nonce_source {
    uint64_t last;
};

#endif
