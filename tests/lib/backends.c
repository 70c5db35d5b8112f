/* SPDX-License-Identifier: MIT */
/* The list of backends. */
#include "lib/backends.h"
#include "lib/redis_world.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HAS_ALL (~0u)
#define DAY_NS  (UINT64_C(86400) * 1000000000)

const struct test_backend backends[] = {
    {.name = "thread", .fields = "", .has = HAS_ALL, .tick_ns = 1, .session_ns = UINT64_MAX},
    {.name = "process",
     .fields = "backend: process, lifetime: users, ",
     .has = HAS_ALL & ~(unsigned)HAS_SINGLE_WAKES,
     .is_shared = true,
     .tick_ns = 1,
     .session_ns = UINT64_MAX},
    {.name = "redis",
     .fields = "backend: redis, ",
     .has = HAS_SINGLE_WAKES | HAS_OTHER_ALGORITHMS | HAS_RESERVATIONS | HAS_LONG_IDLENESS,
     .is_shared = true,
     .is_remote = true,
     .tick_ns = 1000,
     .session_ns = DAY_NS},
    {.name = "redis_foreign",
     .fields = "backend: redis, ",
     .has = HAS_SINGLE_WAKES | HAS_OTHER_ALGORITHMS,
     .is_shared = true,
     .is_remote = true,
     .is_foreign = true,
     .tick_ns = 1000,
     .session_ns = DAY_NS},
};
const size_t backends_n = sizeof(backends) / sizeof(backends[0]);
const struct test_backend *backend = &backends[0];

void backend_choose(int argc, char **argv)
{
    size_t i = 0;

    if (argc < 2)
        return;
    while (i < backends_n && strcmp(backends[i].name, argv[1]) != 0)
        i++;
    if (i == backends_n) {
        fprintf(stderr, "there is no backend %s\n", argv[1]);
        exit(2);
    }
    backend = &backends[i];
    if (backend->is_remote && !redis_world_begin()) {
        fprintf(stderr, "a Redis server cannot be had here\n");
        exit(77);
    }
}

bool backend_lacks(unsigned abilities)
{
    static const struct {
        unsigned ability;
        const char *reason;
    } reasons[] = {
        {HAS_NANOSECONDS, "limits do not count nanoseconds"},
        {HAS_PER_LIMIT, "there is no `fair: per_limit`"},
        {HAS_NESTING, "there are no requests within others"},
        {HAS_EXACT_FORECASTS, "forecasts are lower bounds"},
        {HAS_OTHER_ALGORITHMS, "there are no algorithms of other plugins"},
        {HAS_SUMS, "each instance has counters of its own"},
        {HAS_THREAD_LEASES, "threads have no leases"},
        {HAS_SINGLE_WAKES, "all that help wake a waiter, since one of them may be stopped"},
        {HAS_OWN_CLOCK, "the instance's clock decides nothing"},
        {HAS_RESERVATIONS, "nothing is granted in advance"},
        {HAS_LONG_IDLENESS, "a take needs a session, which ends after a day"},
        {HAS_OTHER_RESERVATIONS, "only the engine's own algorithms grant in advance"},
    };
    unsigned lacking = abilities & ~backend->has;

    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (lacking & reasons[i].ability) {
            printf("%s: %s\n", backend->name, reasons[i].reason);
            break;
        }
    return lacking != 0;
}

static size_t add(char *ret, size_t size, size_t n, const char *text, size_t text_size)
{
    if (n + text_size >= size)
        abort();
    memcpy(ret + n, text, text_size);
    ret[n + text_size] = '\0';
    return n + text_size;
}

/* Names the copies of the project's algorithms that an engine does not have. */
static void name_copies(char *text, size_t size)
{
    static const char *const names[] = {"algorithm: token_bucket", "algorithm: gcra",
                                        "algorithm: leaky_bucket", "algorithm: sliding_window",
                                        "algorithm: fixed_window"};
    static const char copy[] = "copy_of_";

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        for (char *at = text; (at = strstr(at, names[i])); at += sizeof(copy)) {
            char *name = at + strlen("algorithm: ");

            if (strlen(text) + sizeof(copy) > size)
                abort();
            memmove(name + sizeof(copy) - 1, name, strlen(name) + 1);
            memcpy(name, copy, sizeof(copy) - 1);
        }
}

void backend_write(const char *text, char *ret, size_t size)
{
    static const char before[] = "limits: [", version[] = "version: 1\n";
    const char *section = backend->is_remote ? redis_world_section() : "";
    bool is_its_own = strstr(text, "backend:") != NULL;
    const char *at;
    size_t n = 0;

    *ret = '\0';
    if (!is_its_own && strncmp(text, version, strlen(version)) == 0) {
        n = add(ret, size, n, version, strlen(version));
        n = add(ret, size, n, section, strlen(section));
        text += strlen(version);
    }
    while (!is_its_own && (at = strstr(text, before))) {
        n = add(ret, size, n, text, (size_t)(at - text));
        n = add(ret, size, n, backend->fields, strlen(backend->fields));
        n = add(ret, size, n, before, strlen(before));
        text = at + strlen(before);
    }
    add(ret, size, n, text, strlen(text));
    if (backend->is_foreign)
        name_copies(ret, size);
}
