/* SPDX-License-Identifier: MIT */
/*
 * Metrics of an instance in text, as Prometheus and others collect them. docs/operations.md lists
 * them. `weir stat` and `weir serve` write those of sets that processes share.
 */
#ifndef WEIR_METRICS_H
#define WEIR_METRICS_H

#include <weir/instance.h>

#ifdef __cplusplus
extern "C" {
#endif

enum weir_metrics_format {
    /* OpenMetrics 1.0: application/openmetrics-text; version=1.0.0; charset=utf-8 */
    WEIR_METRICS_OPENMETRICS = 0,
    /* The older text format of Prometheus: text/plain; version=0.0.4; charset=utf-8 */
    WEIR_METRICS_PROMETHEUS = 1
};

/*
 * Writes the metrics of an instance. They are of its sets, its pools of several sets, and its
 * backends.
 * `write` gets the text piece by piece, each of at most 512 bytes, not terminated. A result other
 * than 0 of it ends the call, with that result. It may call the library, but not weir_close. Sets
 * that processes share count what all of them do. Sets that an engine keeps count what this process
 * does, as no engine is asked. A set that cannot be read is left out: it is damaged, or has no room
 * for another thread. Takes memory while it runs, and holds no lock while `write` runs.
 * Any thread. Returns 0, -EINVAL (`w` or `write` is NULL, or there is no such format), -ENOMEM,
 * -ECHILD, or what `write` returned. [any thread, reads]
 */
WEIR_PUBLIC int weir_metrics_write(weir *w, enum weir_metrics_format format,
                                   int (*write)(void *userdata, const char *text, size_t n),
                                   void *userdata);

#ifdef __cplusplus
}
#endif
#endif
