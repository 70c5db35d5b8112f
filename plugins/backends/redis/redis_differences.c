/* SPDX-License-Identifier: MIT */
/* What differs between two revisions of a set, one by one. */
#include "redis_differences.h"

#include "redis_revision.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of a rate. */
enum {
    DIFFERENCES_CAPACITY,
    DIFFERENCES_WINDOW,
    DIFFERENCES_BURST,
    DIFFERENCES_INITIAL,
    DIFFERENCES_EXTRA,
    DIFFERENCES_DELTA,
    DIFFERENCES_REFUND,
    DIFFERENCES_CHARGE,
    DIFFERENCES_NUMBERS
};

/* How a number is written. */
enum differences_unit {
    DIFFERENCES_AMOUNT,
    DIFFERENCES_US,      /* a duration */
    DIFFERENCES_WAITERS, /* there is a bound, or not */
    DIFFERENCES_POSITIVE /* 0: not set */
};

struct differences_word {
    char text[32];
};

static struct differences_word differences_duration(uint64_t us)
{
    static const struct {
        uint64_t us;
        const char *unit;
    } units[] = {{3600000000, "h"}, {60000000, "m"}, {1000000, "s"}, {1000, "ms"}, {1, "us"}};
    struct differences_word ret;
    size_t i = 0;
    while (us % units[i].us)
        i++;
    snprintf(ret.text, sizeof(ret.text), "%" PRIu64 "%s", us / units[i].us, units[i].unit);
    return ret;
}

static struct differences_word differences_write(enum differences_unit unit, uint64_t n)
{
    struct differences_word ret = {""};
    if (unit == DIFFERENCES_US && n > 0)
        return differences_duration(n);
    if (unit == DIFFERENCES_AMOUNT ||
        (n > 0 && (unit != DIFFERENCES_WAITERS || n < REDIS_WAITERS_MAX)))
        snprintf(ret.text, sizeof(ret.text), "%" PRIu64, n);
    return ret;
}

static const char *differences_or_none(const char *text)
{
    return text[0] ? text : NULL;
}

static void differences_tell(const struct weir_backend_apply *how, uint32_t limit, const char *name,
                             const char *before, const char *after)
{
    how->differs(how->context,
                 &(struct weir_backend_difference){.size = sizeof(struct weir_backend_difference),
                                                   .limit = limit,
                                                   .name = name,
                                                   .before = differences_or_none(before),
                                                   .after = differences_or_none(after)});
}

/* Returns 1 if they differ. */
static int differences_tell_number(const struct weir_backend_apply *how, uint32_t limit,
                                   const char *name, enum differences_unit unit, uint64_t before,
                                   uint64_t after)
{
    if (before == after)
        return 0;
    differences_tell(how, limit, name, differences_write(unit, before).text,
                     differences_write(unit, after).text);
    return 1;
}

/* Reads the numbers of a limit behind its letter; those that it does not have are 0. */
static void differences_read_numbers(const char *limit, uint64_t ret[DIFFERENCES_NUMBERS])
{
    char *at = (char *)(uintptr_t)limit + 1;
    memset(ret, 0, DIFFERENCES_NUMBERS * sizeof(*ret));
    for (int i = 0; i < DIFFERENCES_NUMBERS && *at == ','; i++)
        ret[i] = strtoull(at + 1, &at, 10);
}

/* What a number chooses: one of these words. */
static int differences_tell_choice(const struct weir_backend_apply *how, uint32_t limit,
                                   const char *name, const char *const *words,
                                   const uint64_t *numbers)
{
    if (numbers[0] == numbers[1])
        return 0;
    differences_tell(how, limit, name, words[numbers[0] % 3], words[numbers[1] % 3]);
    return 1;
}

/* What only one kind of limit has. */
static int differences_tell_extra(const struct weir_backend_apply *how, uint32_t limit, char letter,
                                  uint64_t before, uint64_t after)
{
    static const char *const anchors[] = {"first_use", "creation", "epoch"};
    switch (letter) {
    case 't':
        return differences_tell_number(how, limit, "every", DIFFERENCES_US, before, after);
    case 's':
        return differences_tell_number(how, limit, "segments", DIFFERENCES_AMOUNT, before, after);
    case 'f':
        return differences_tell_choice(how, limit, "anchor", anchors,
                                       (const uint64_t[]){before, after});
    default: /* it has none that can change */
        return 0;
    }
}

/* Tells a burst where it is not the capacity, and what there is at first where that is not the
 * burst. */
static int differences_tell_rate(const struct weir_backend_apply *how, uint32_t limit, char letter,
                                 const uint64_t *a, const uint64_t *b)
{
    static const char *const refunds[] = {"false", "true", "strict"}, *const overuses[] = {
                                                                          "ignore", "charge",
                                                                          "charge"};
    int n = differences_tell_number(how, limit, "window", DIFFERENCES_US, a[DIFFERENCES_WINDOW],
                                    b[DIFFERENCES_WINDOW]);
    if (a[DIFFERENCES_BURST] != a[DIFFERENCES_CAPACITY] ||
        b[DIFFERENCES_BURST] != b[DIFFERENCES_CAPACITY])
        n += differences_tell_number(how, limit, "burst", DIFFERENCES_AMOUNT, a[DIFFERENCES_BURST],
                                     b[DIFFERENCES_BURST]);
    if (a[DIFFERENCES_INITIAL] != a[DIFFERENCES_BURST] ||
        b[DIFFERENCES_INITIAL] != b[DIFFERENCES_BURST])
        n += differences_tell_number(how, limit, "initial", DIFFERENCES_AMOUNT,
                                     a[DIFFERENCES_INITIAL], b[DIFFERENCES_INITIAL]);
    n += differences_tell_extra(how, limit, letter, a[DIFFERENCES_EXTRA], b[DIFFERENCES_EXTRA]);
    n += differences_tell_number(how, limit, "lease", DIFFERENCES_US, a[DIFFERENCES_DELTA],
                                 b[DIFFERENCES_DELTA]);
    n += differences_tell_choice(how, limit, "refund", refunds,
                                 (const uint64_t[]){a[DIFFERENCES_REFUND], b[DIFFERENCES_REFUND]});
    return n + differences_tell_choice(
                   how, limit, "overuse", overuses,
                   (const uint64_t[]){a[DIFFERENCES_CHARGE], b[DIFFERENCES_CHARGE]});
}

static int differences_tell_limits(const struct weir_backend_apply *how, const char *before,
                                   const char *after)
{
    uint64_t a[DIFFERENCES_NUMBERS], b[DIFFERENCES_NUMBERS];
    uint32_t limit = 0;
    int n = 0;
    for (; before && after; limit++) {
        differences_read_numbers(before, a);
        differences_read_numbers(after, b);
        n += differences_tell_number(how, limit, "capacity", DIFFERENCES_AMOUNT,
                                     a[DIFFERENCES_CAPACITY], b[DIFFERENCES_CAPACITY]);
        if (*before != 'r' && *before != 'x')
            n += differences_tell_rate(how, limit, *before, a, b);
        before = redis_revision_next(before);
        after = redis_revision_next(after);
    }
    return n;
}

/* Tells a flag. `letter` has it be `when`. */
static int differences_tell_flag(const struct weir_backend_apply *how, const char *name,
                                 char letter, const char *when, const char *before,
                                 const char *after)
{
    const char *otherwise = strcmp(when, "true") ? "true" : "false";
    int a = memchr(before, letter, redis_revision_part_size(before)) != NULL;
    int b = memchr(after, letter, redis_revision_part_size(after)) != NULL;
    if (a != b)
        differences_tell(how, UINT32_MAX, name, a ? when : otherwise, b ? when : otherwise);
    return a != b;
}

/* Tells that something differs of which the server has a hash only. */
static void differences_tell_hash(const struct weir_backend_apply *how, const char *before,
                                  const char *after)
{
    struct differences_word a, b;
    size_t n = strcspn(before, "./"), m = strcspn(after, "./");
    snprintf(a.text, sizeof(a.text), "%.*s", (int)(n < 31 ? n : 31), before);
    snprintf(b.text, sizeof(b.text), "%.*s", (int)(m < 31 ? m : 31), after);
    if (strcmp(a.text, b.text))
        differences_tell(how, UINT32_MAX, "hash", a.text, b.text);
}

void redis_differences_tell(const char *own, const char *there,
                            const struct weir_backend_apply *how)
{
    const char *before = redis_revision_next(there), *after = redis_revision_next(own); /* flags */
    differences_tell_number(how, UINT32_MAX, "revision", DIFFERENCES_POSITIVE,
                            (uint64_t)redis_revision_of(there), (uint64_t)redis_revision_of(own));
    int n = differences_tell_flag(how, "fair", 'b', "false", before, after);
    n += differences_tell_flag(how, "drain_after_loss", 'd', "true", before, after);
    before = redis_revision_next(before);
    after = redis_revision_next(after);
    n += differences_tell_number(how, UINT32_MAX, "max_waiters", DIFFERENCES_WAITERS,
                                 strtoull(before, NULL, 10), strtoull(after, NULL, 10));
    before = redis_revision_next(before); /* the lease, which stays */
    after = redis_revision_next(after);
    n += differences_tell_limits(how, redis_revision_next(before), redis_revision_next(after));
    if (n == 0)
        differences_tell_hash(how, there, own);
}
