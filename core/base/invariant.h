/* SPDX-License-Identifier: MIT */
/*
 * Invariants that sanitizer, crash and fuzz builds check while they run. A release build compiles
 * them and evaluates nothing: the library never aborts a program.
 */
#ifndef WEIR_CORE_BASE_INVARIANT_H
#define WEIR_CORE_BASE_INVARIANT_H

#ifdef WEIR_INVARIANTS
#include <stdio.h>
#include <stdlib.h>
#define WEIR_INVARIANT(condition)                                                                  \
    ((condition) ? (void)0                                                                         \
                 : (fprintf(stderr, "%s:%d: invariant does not hold: %s\n", __FILE__, __LINE__,    \
                            #condition),                                                           \
                    abort()))
#else
#define WEIR_INVARIANT(condition) ((void)(0 && (condition)))
#endif

#endif
