/* SPDX-License-Identifier: MIT */
/*
 * A history of grants and refunds, and whether it keeps what was promised. Each event happened at
 * an instant in [lo, hi]; checks count for a span only what surely lies in it, so what they find is
 * never due to uncertainty.
 */
#ifndef WEIR_TESTS_HISTORY_H
#define WEIR_TESTS_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HISTORY_LIMITS = 5 };

struct event {
    uint64_t since;  /* joined the wait queue; the grant's instant if it did not wait; 0: a take */
    uint64_t lo, hi; /* of the grant; equal if known exactly */
    uint32_t amounts[HISTORY_LIMITS];
};

struct refund {
    uint64_t lo, hi;
    uint32_t amounts[HISTORY_LIMITS];
};

struct history {
    struct event *events;
    size_t events_n, events_capacity;
    struct refund *refunds;
    size_t refunds_n, refunds_capacity;
};

void history_add(struct history *history, const struct event *event);
void history_add_refund(struct history *history, const struct refund *refund);
/* Moves everything of `from`, which is empty afterwards. */
void history_merge(struct history *history, struct history *from);
void history_free(struct history *history);
/* For limits that a process decides by the last reply of an engine: what a request is decided by is
 * as late as the latest grant of one of these limits (bits) that was known before, or later. So
 * that is the earliest instant of each event. */
void history_date_by_replies(struct history *history, unsigned limits);

/* In any span [a, b]: granted <= burst + capacity * (b - a) / window + refunded. */
bool history_keeps_rate(const struct history *history, unsigned limit, uint64_t burst,
                        uint64_t capacity, uint64_t window);
/* In any half-open span of this length: granted <= capacity. */
bool history_keeps_window(const struct history *history, unsigned limit, uint64_t capacity,
                          uint64_t window);
/* No request was granted while an earlier waiter still waited for its own grant. */
bool history_keeps_order(const struct history *history);

#endif
