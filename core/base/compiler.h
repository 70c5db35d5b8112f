/* SPDX-License-Identifier: MIT */
/* What C17 cannot ask of the compiler: where a function is compiled to. */
#ifndef WEIR_CORE_BASE_COMPILER_H
#define WEIR_CORE_BASE_COMPILER_H

/* A function that is compiled into each caller, specialised for the constants that the caller passes. */
#define WEIR_ALWAYS_INLINE static inline __attribute__((always_inline))

/* A function that stays a call, so that a rare path takes no registers from the common one. */
#define WEIR_NOINLINE static __attribute__((noinline))

#endif
