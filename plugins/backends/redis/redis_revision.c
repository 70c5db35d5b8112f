/* SPDX-License-Identifier: MIT */
/* Revisions of definitions, told apart in words. */
#include "redis_revision.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parts of a definition, each up to a slash or the end. */
struct revision_parts {
    uint64_t revision;
    const char *shape; /* NULL: not known */
    const char *lease, *limits;
};

size_t redis_revision_part_size(const char *part)
{
    return strcspn(part, "/");
}

const char *redis_revision_next(const char *part)
{
    part += redis_revision_part_size(part);
    return *part == '/' ? part + 1 : NULL;
}

static int revision_parts_equal(const char *a, const char *b)
{
    size_t n = redis_revision_part_size(a);
    return n == redis_revision_part_size(b) && !memcmp(a, b, n);
}

/* Reads a definition, which may be anything. Returns 1, or 0: it is none. */
static int revision_read(const char *text, struct revision_parts *ret)
{
    const char *part = text, *dot = memchr(text, '.', redis_revision_part_size(text));
    char *end = NULL;
    *ret = (struct revision_parts){0};
    if (dot)
        ret->revision = strtoull(dot + 1, &end, 10);
    if (dot && (*end != '.' || ret->revision == 0 || ret->revision > REDIS_REVISION_MAX))
        return 0;
    ret->shape = dot ? end + 1 : NULL;
    for (int i = 0; i < 3 && part; i++)
        part = redis_revision_next(part);
    ret->lease = part;
    ret->limits = part ? redis_revision_next(part) : NULL;
    return ret->limits != NULL;
}

int64_t redis_revision_of(const char *text)
{
    struct revision_parts parts;
    return revision_read(text, &parts) ? (int64_t)parts.revision : -1;
}

/* Returns 1 if a limit has an EXTRA other than 0: the fifth number. */
static int revision_has_extra(const char *limit)
{
    size_t n = redis_revision_part_size(limit);
    const char *end = limit + n, *at = limit;
    for (int i = 0; i < 5 && at; i++) {
        at = memchr(at, ',', (size_t)(end - at));
        at = at ? at + 1 : NULL;
    }
    return at && at < end && *at != '0';
}

/* Returns 1 if one limit can go on with the state of the other. */
static int revision_limits_are_alike(const char *a, const char *b)
{
    if (*a != *b)
        return 0;
    if (*a == 'x')
        return revision_parts_equal(a, b);
    return (*a != 't' && *a != 'l') || revision_has_extra(a) == revision_has_extra(b);
}

/* Returns 1 if nodes decide a limit. */
static int revision_has_foreign(const char *limits)
{
    for (; limits; limits = redis_revision_next(limits))
        if (*limits == 'x')
            return 1;
    return 0;
}

static const char *revision_limits_obstacle(const struct revision_parts *a,
                                            const struct revision_parts *b,
                                            char words[REDIS_REVISION_WORDS])
{
    const char *p = a->limits, *q = b->limits;
    unsigned number = 1;
    for (; p && q; p = redis_revision_next(p), q = redis_revision_next(q), number++) {
        if (revision_limits_are_alike(p, q))
            continue;
        snprintf(words, REDIS_REVISION_WORDS, "limit number %u is of another algorithm or mode",
                 number);
        return words;
    }
    return p || q ? "there is another number of limits" : NULL;
}

const char *redis_revision_obstacle(const char *a, const char *b, char words[REDIS_REVISION_WORDS])
{
    struct revision_parts from, to;
    if (!revision_read(a, &from) || !revision_read(b, &to))
        return "it is none that this version of weir knows";
    const char *why = revision_limits_obstacle(&from, &to, words);
    if (why)
        return why;
    if (!revision_parts_equal(from.lease, to.lease))
        return "`session` of the backend is another one";
    if (from.shape && to.shape && !revision_parts_equal(from.shape, to.shape))
        return "limits have other keys, or processes decide some that are others";
    if (revision_has_foreign(from.limits) && (!from.shape || !to.shape))
        return "processes decide some of the limits, which needs a `revision` from the beginning";
    return NULL;
}

const char *redis_revision_refusal(const struct redis_set *set, const struct redis_set *next,
                                   char words[2 * REDIS_REVISION_WORDS])
{
    char obstacle[REDIS_REVISION_WORDS];
    if (!strcmp(set->definition, next->definition))
        return NULL;
    const char *why = redis_revision_obstacle(set->definition, next->definition, obstacle);
    if (!why && set->shape != next->shape)
        why = "limits have other keys, or processes decide some that are others";
    if (why)
        snprintf(words, 2 * REDIS_REVISION_WORDS, "%s: rename the set", why);
    else if (next->revision < set->revision)
        redis_revision_explain_earlier(set->revision, words, 2 * REDIS_REVISION_WORDS);
    else if (next->revision == set->revision)
        snprintf(words, 2 * REDIS_REVISION_WORDS,
                 "an engine keeps it, for all that use it: raise `revision`, which is %" PRIu32,
                 set->revision);
    else
        return NULL;
    return words;
}

void redis_revision_explain(const char *own, const char *there, char *ret, size_t size)
{
    struct revision_parts mine, other;
    char words[REDIS_REVISION_WORDS];
    const char *why = redis_revision_obstacle(own, there, words);
    int is_known = revision_read(own, &mine) && revision_read(there, &other);
    if (!why)
        snprintf(ret, size,
                 "it is defined otherwise there, with the same `revision`, %" PRIu64
                 ": raise it, or rename the set",
                 mine.revision);
    else if (is_known)
        snprintf(ret, size,
                 "it is defined otherwise there, as revision %" PRIu64 ": %s: rename the set",
                 other.revision, why);
    else
        snprintf(ret, size, "it is defined otherwise there: %s: rename the set", why);
}

void redis_revision_explain_earlier(int64_t revision, char *ret, size_t size)
{
    snprintf(ret, size,
             "`revision` is %" PRId64 " now: raise it, also to go back to what was before",
             revision);
}

int redis_revision_compare(const char *own, const char *there, char *words, size_t size)
{
    char obstacle[REDIS_REVISION_WORDS];
    int64_t mine = redis_revision_of(own), other = redis_revision_of(there);
    if (!strcmp(own, there))
        return 0;
    if (mine != other && !redis_revision_obstacle(own, there, obstacle))
        return mine > other ? 1 : -ESTALE;
    redis_revision_explain(own, there, words, size);
    return -EEXIST;
}
