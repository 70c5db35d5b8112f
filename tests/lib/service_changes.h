/* SPDX-License-Identifier: MIT */
/* The changes that limits that adapt are put to, by bench/adaptive and by their test. */
#ifndef WEIR_TESTS_SERVICE_CHANGES_H
#define WEIR_TESTS_SERVICE_CHANGES_H

#include "lib/clock.h"
#include "lib/service.h"

/* More servers, fewer, slower ones; few clients; and what was there at first. The queue of the
 * service has room for three quarters of those that are served. */
static const struct service_phase service_changes[] = {
    {.for_ns = 60 * SECOND, .servers = 20, .queue_max = 15, .service_ns = 40 * MS, .clients = 300},
    {.for_ns = 60 * SECOND, .servers = 60, .queue_max = 45, .service_ns = 40 * MS, .clients = 300},
    {.for_ns = 60 * SECOND, .servers = 10, .queue_max = 8, .service_ns = 40 * MS, .clients = 300},
    {.for_ns = 60 * SECOND, .servers = 40, .queue_max = 30, .service_ns = 120 * MS, .clients = 300},
    {.for_ns = 30 * SECOND, .servers = 40, .queue_max = 30, .service_ns = 40 * MS, .clients = 8},
    {.for_ns = 60 * SECOND, .servers = 20, .queue_max = 15, .service_ns = 40 * MS, .clients = 300},
};
#define SERVICE_CHANGES (sizeof(service_changes) / sizeof(*service_changes))

#endif
