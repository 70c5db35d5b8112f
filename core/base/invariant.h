/* SPDX-License-Identifier: MIT */
/*
 * Invariants that sanitizer, crash and fuzz builds check while they run. A release build compiles
 * them and evaluates nothing: the library never aborts a program.
 */
#ifndef WEIR_CORE_BASE_INVARIANT_H
#define WEIR_CORE_BASE_INVARIANT_H

#ifdef WEIR_INVARIANTS
_Noreturn void invariant_failed(const char *file, int line, const char *condition);
#define WEIR_INVARIANT(condition)                                                                  \
    ((condition) ? (void)0 : invariant_failed(__FILE__, __LINE__, #condition))
#else
#define WEIR_INVARIANT(condition) ((void)(0 && (condition)))
#endif

#endif
