/* SPDX-License-Identifier: MIT */
/* The library of Redis Functions: its bytes are written by meson.build from the files beside it. */
#include "redis_library.h"

const unsigned char redis_library[] = {
#include "weir_lua.inc"
};
const size_t redis_library_size = sizeof(redis_library);
