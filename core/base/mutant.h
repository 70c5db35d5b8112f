/* SPDX-License-Identifier: MIT */
/*
 * Seeded faults. `if (MUTANT(n))` is constant false unless the build option `mutant` is n; the test
 * suite must turn red for every one of them (tests/mutants.list names them).
 */
#ifndef WEIR_CORE_BASE_MUTANT_H
#define WEIR_CORE_BASE_MUTANT_H

#include "mutant_number.h"

#define MUTANT(n) (WEIR_MUTANT == (n))

#endif
