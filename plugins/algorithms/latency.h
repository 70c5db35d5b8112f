/* SPDX-License-Identifier: MIT */
/*
 * Latencies of successes, in windows, and the latency without a queue, for limits that adapt to
 * them. A window is at least `window` long and has at least 20 releases; what is decided at its end
 * is decided by their mean.
 *
 * What a service takes without a queue, its base, changes, and a minimum of all times would not
 * follow; of means of few it would be too small, too. So now and then (`probe`) the limit is halved
 * for two windows: in the first the queue runs empty, and the mean of what was granted in the
 * second, of at least 100, is the base. Half is enough as long as the limit is at most
 * twice what the service can do at once, and if it is more, the limit comes down and the next probe
 * sees more. So does BBRv2 (N. Cardwell et al., IETF 106, 2019). Envoy's adaptive concurrency lets
 * three requests through meanwhile, and refuses the others. A limit that has fallen by half since
 * the last probe is probed at once: perhaps it is the base that is wrong. Processes that have begun
 * together would probe together; so the time between two probes varies by a quarter, by a hash of
 * how many there were.
 */
#ifndef WEIR_PLUGINS_LATENCY_H
#define WEIR_PLUGINS_LATENCY_H

#include "adaptive.h"

#define LATENCY_LEAST       20  /* releases in a window */
#define LATENCY_PROBE_LEAST 100 /* and in one that measures */
#define LATENCY_FIRST_PROBE 10  /* windows until the first probe: the first limit is a guess */
#define LATENCY_SAMPLES_MAX (UINT64_C(1) << 20)

/* Indices of the parameters. */
enum { LATENCY_WINDOW = ADAPTIVE_PARAMETERS, LATENCY_PROBE, LATENCY_PARAMETERS };

#define PARAMETERS_LATENCY                                                                         \
    {.size = sizeof(struct weir_parameter),                                                        \
     .name = "window",                                                                             \
     .type = WEIR_PARAMETER_DURATION,                                                              \
     .min = 1,                                                                                     \
     .max = WINDOW_MAX,                                                                            \
     .default_value = UINT64_C(100000000),                                                         \
     .doc = "the limit moves at most once in this time; default 100ms"},                           \
    {                                                                                              \
        .size = sizeof(struct weir_parameter), .name = "probe", .type = WEIR_PARAMETER_DURATION,   \
        .min = 1, .max = WINDOW_MAX, .default_value = UINT64_C(10000000000),                       \
        .doc = "how often the limit is halved for two windows, to measure the latency without a "  \
               "queue; default 10s"                                                                \
    }

struct latency_config {
    uint64_t window_ns, probe_ns;
};

enum { PHASE_NORMAL, PHASE_DRAIN, PHASE_MEASURE, PHASES };

struct latency {
    uint64_t samples; /* successes in the window */
    uint64_t sum_ns;  /* of their latencies */
    uint64_t start_ns;
    uint64_t overloads; /* in the window */
    uint64_t held_max;  /* in the window, units */
    uint64_t phase;
    uint64_t probe_at_ns; /* 0: nothing was released yet */
    uint64_t probes;
    uint64_t peak; /* the largest limit since the last probe, in 1/65536 units */
};

/* What a window says at its end. */
struct latency_window {
    uint64_t mean_ns; /* at least 1; 0: there was no success */
    uint64_t phase;   /* in which it was */
    bool has_overload;
    bool is_used; /* the limit bounded the load */
};

static inline struct latency_config latency_configure(const struct weir_setup *setup)
{
    return (struct latency_config){.window_ns = setup->values[LATENCY_WINDOW]->value,
                                   .probe_ns = setup->values[LATENCY_PROBE]->value};
}

/* Returns the limit in whole units: half of it during a probe, but no less than the floor. */
static inline uint64_t latency_limit(const struct latency *latency, const struct load *load,
                                     const struct bounds *bounds)
{
    uint64_t limit = load->limit / ADAPTIVE_ONE;
    return latency->phase == PHASE_NORMAL ? limit : max_u64(limit / 2, bounds->floor);
}

/* Returns the time until the next probe, from 7/8 to 9/8 of the configured one. */
static inline uint64_t latency_probe_pause(const struct latency_config *config, uint64_t probes)
{
    uint64_t hash = (probes + 1) * UINT64_C(0x9e3779b97f4a7c15); /* Knuth's multiplicative hash */
    return config->probe_ns / 8 * 7 + (uint64_t)((u128)(config->probe_ns / 4) * (hash >> 32) >> 32);
}

/* Begins an empty window under this limit, and a probe if it is time. */
static inline void latency_begin(struct latency *latency, const struct latency_config *config,
                                 uint64_t limit, uint64_t now)
{
    latency->samples = latency->sum_ns = latency->overloads = latency->held_max = 0;
    latency->start_ns = now;
    if (latency->phase == PHASE_MEASURE)
        latency->peak = 0;
    latency->peak = max_u64(latency->peak, limit);
    if (latency->phase != PHASE_NORMAL) {
        latency->phase = (latency->phase + 1) % PHASES;
    } else if (now >= latency->probe_at_ns || limit < latency->peak / 2) {
        latency->phase = PHASE_DRAIN;
        latency->probes++;
        latency->probe_at_ns = now + latency_probe_pause(config, latency->probes);
    }
}

/* Returns whether the window is over. */
static inline bool latency_is_over(const struct latency *latency,
                                   const struct latency_config *config, uint64_t now)
{
    uint64_t seen = latency->samples + latency->overloads;
    if (seen >= LATENCY_SAMPLES_MAX)
        return true;
    if (seen < (latency->phase == PHASE_MEASURE ? LATENCY_PROBE_LEAST : LATENCY_LEAST))
        return false;
    return now - latency->start_ns >= config->window_ns;
}

/* Counts a release, before which `held` units were held. Returns whether it was the last of its
 * window, and what that says; then latency_begin() is next. */
static inline bool latency_release(struct latency *latency, const struct latency_config *config,
                                   const struct load *load, uint64_t held, uint64_t now,
                                   const struct weir_release *release, struct latency_window *ret)
{
    bool is_success = release->outcome == WEIR_OUTCOME_SUCCESS;
    if (!is_success && release->outcome != WEIR_OUTCOME_OVERLOAD)
        return false;
    if (latency->probe_at_ns == 0) {
        latency->start_ns = now;
        latency->probe_at_ns =
            now + LATENCY_FIRST_PROBE *
                      min_u64(config->probe_ns / LATENCY_FIRST_PROBE, config->window_ns);
    }
    /* What was granted before the queue was empty does not say what it takes without one. */
    if (latency->phase == PHASE_MEASURE && release->granted_ns < latency->start_ns)
        return false;
    latency->held_max = max_u64(latency->held_max, min_u64(held, ADAPTIVE_UNITS_MAX));
    if (is_success) {
        latency->samples++;
        latency->sum_ns += min_u64(release->latency_ns, ADAPTIVE_LATENCY_MAX);
    } else {
        latency->overloads++;
    }
    if (!latency_is_over(latency, config, now))
        return false;
    *ret = (struct latency_window){
        .mean_ns = latency->samples == 0 ? 0 : max_u64(latency->sum_ns / latency->samples, 1),
        .phase = latency->phase,
        .has_overload = latency->overloads != 0,
        .is_used = load_is_used(load, latency->held_max)};
    return true;
}

static inline int latency_check(const struct latency *latency)
{
    if (latency->samples > LATENCY_SAMPLES_MAX || latency->overloads > LATENCY_SAMPLES_MAX)
        return -1;
    if (latency->sum_ns > latency->samples * ADAPTIVE_LATENCY_MAX)
        return -1;
    return latency->phase < PHASES ? 0 : -1;
}

static inline bool latency_is_new(const struct latency *latency)
{
    return latency->probe_at_ns == 0;
}

#endif
