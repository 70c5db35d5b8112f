/* SPDX-License-Identifier: MIT */
/* The library of Redis Functions, as it is loaded into a server. */
#ifndef WEIR_REDIS_LIBRARY_H
#define WEIR_REDIS_LIBRARY_H

#include <stddef.h>

extern const unsigned char redis_library[];
extern const size_t redis_library_size;

#endif
