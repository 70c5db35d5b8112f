/* SPDX-License-Identifier: MIT */
/* Ends a test build in which an invariant does not hold. */
#include "base/invariant.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef WEIR_INVARIANTS
void invariant_failed(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: invariant does not hold: %s\n", file, line, condition);
    abort();
}
#endif
