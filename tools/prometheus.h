/* SPDX-License-Identifier: MIT */
/* A snapshot in the text format of Prometheus, version 0.0.4. */
#ifndef WEIR_TOOLS_PROMETHEUS_H
#define WEIR_TOOLS_PROMETHEUS_H

#include "snapshot.h"
#include <stdio.h>

void prometheus_write(FILE *out, const struct snapshot *snapshot);

#endif
