/* SPDX-License-Identifier: MIT */
/*
 * weir limits rates and concurrency: a program asks a set of limits for what it needs, all or
 * nothing, and waits for it as it waits for anything else: blocked, or on a file descriptor.
 *
 *     weir_open → weir_pool_open → weir_acquire | weir_submit | weir_take → weir_release
 */
#ifndef WEIR_WEIR_H
#define WEIR_WEIR_H

#include <weir/acquisition.h>
#include <weir/clock.h>
#include <weir/error.h>
#include <weir/event.h>
#include <weir/http.h>
#include <weir/instance.h>
#include <weir/metrics.h>
#include <weir/pool.h>
#include <weir/queue.h>
#include <weir/set.h>
#include <weir/token.h>

#endif
