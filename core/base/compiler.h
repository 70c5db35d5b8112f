/* SPDX-License-Identifier: MIT */
/* Compiler attributes that C17 lacks: forced inlining and its opposite. */
#ifndef WEIR_CORE_BASE_COMPILER_H
#define WEIR_CORE_BASE_COMPILER_H

/* Function that is inlined into each caller and specialised for the constants it passes. */
#define WEIR_ALWAYS_INLINE static inline __attribute__((always_inline))

/* Function that stays a call, so that a rare path takes no registers from the common one. */
#define WEIR_NOINLINE static __attribute__((noinline))

#endif
