/* SPDX-License-Identifier: MIT */
/*
 * Runs algorithms that adapt against a simulated service (tests/lib/service.h) and prints what was
 * seen, one line for each half second: the algorithm, the phase, the end of that time in ns, the
 * limit, what is held, requests done and refused, their mean latency in ns, the best concurrency,
 * the time that a request takes in ns, and the clients. The clock is moved by hand, so the output
 * is the same on every machine. bench/adaptive makes a table and a picture of it.
 *
 *     adaptive [ALGORITHM]...
 */
#include "lib/service_changes.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define SEED UINT64_C(17)

static _Atomic uint64_t adaptive_now;

static uint64_t read_now(void *userdata)
{
    (void)userdata;
    return atomic_load_explicit(&adaptive_now, memory_order_relaxed);
}

static void print_sample(void *userdata, size_t phase, const struct service_sample *sample)
{
    printf("%s %zu %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu32
           " %" PRIu64 " %" PRIu32 "\n",
           (const char *)userdata, phase, sample->at_ns, sample->limit, sample->held, sample->done,
           sample->refused, sample->latency_ns, service_changes[phase].servers,
           service_changes[phase].service_ns, service_changes[phase].clients);
}

static int run(const char *algorithm)
{
    char text[512], name[64];
    struct weir_clock clock = {.size = sizeof(clock), .now_ns = read_now};
    struct weir_options options = {.size = sizeof(options), .text = text, .clock = &clock};
    struct weir_error error = {0};
    struct service_plan plan = {.phases = service_changes,
                                .phases_n = SERVICE_CHANGES,
                                .seed = SEED,
                                .sample_ns = SECOND / 2,
                                .key = "slots",
                                .sample = print_sample,
                                .userdata = name};
    weir *w = NULL;
    weir_pool *pool = NULL;
    int r;

    snprintf(name, sizeof(name), "%s", algorithm);
    snprintf(text, sizeof(text),
             "version: 1\n"
             "sets: { main: { limits: [ { type: resource, key: slots, algorithm: %s, "
             "capacity: 200 } ] } }\n",
             algorithm);
    adaptive_now = 1000 * SECOND;
    r = weir_open(&w, &options, &error);
    if (r == 0)
        r = weir_pool_open(&pool, w, "main", 0, &error);
    if (r == 0)
        r = service_run(&plan, pool, &adaptive_now);
    if (r < 0)
        fprintf(stderr, "adaptive: %s: %s\n", algorithm, error.code ? error.message : strerror(-r));
    weir_pool_close(pool);
    weir_close(w);
    return r;
}

int main(int argc, char **argv)
{
    static const char *const all[] = {"aimd", "gradient2", "vegas"};

    if (argc > 1) {
        for (int i = 1; i < argc; i++)
            if (run(argv[i]) < 0)
                return 1;
        return 0;
    }
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (run(all[i]) < 0)
            return 1;
    return 0;
}
