/* SPDX-License-Identifier: MIT */
/* What a test and its engine (engine.c) share. The engine's parameter `control` is the address of
 * this struct, as a text. */
#ifndef WEIR_TESTS_ENGINE_H
#define WEIR_TESTS_ENGINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { ENGINE_QUEUE_MAX = 64, ENGINE_LIMITS = 4 };

struct engine_control {
    /* Set by the test. */
    int fails_open, fails_set_open, fails_ask, fails_check; /* negative errno, or 0 */
    int away;        /* negative errno that requests fail with, or 0 */
    bool is_slow;    /* requests are decided in `wait`, or by the engine's thread */
    bool is_stuck;   /* requests are not decided */
    bool is_deaf;    /* cancellations are lost */
    bool is_hostile; /* verdicts about other tokens, and of impossible values */
    uint64_t retry_after_ns;

    /* Seen by the test. */
    unsigned connections, sets, threads; /* open now */
    unsigned asked, patient, undone, waits, unwanted;
    unsigned holds; /* grants that were not released */
    uint64_t waiting, held[ENGINE_LIMITS], used[ENGINE_LIMITS];
    uint64_t fingerprint;
    char last_subject[16];
    char last_algorithm[32];
    uint64_t last_setting;
    uint32_t last_settings_n;
    uint64_t last_token, last_hold; /* of the last grant that holds */
    void *host_set;                 /* the last one opened, to the core */
    const void *host;               /* struct weir_backend_host */
};

#endif
