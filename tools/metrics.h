/* SPDX-License-Identifier: MIT */
/* The metrics of a snapshot, in the formats of weir/metrics.h. */
#ifndef WEIR_TOOLS_METRICS_H
#define WEIR_TOOLS_METRICS_H

#include "snapshot.h"
#include <weir/metrics.h>

/* Writes as weir_metrics_write() does, and returns as that. */
int metrics_write(const struct snapshot *snapshot, enum weir_metrics_format format,
                  int (*write)(void *userdata, const char *text, size_t n), void *userdata);

#endif
