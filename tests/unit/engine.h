/* SPDX-License-Identifier: MIT */
/* What a test and its engine (engine.c) share. The engine's parameter `control` is the address of
 * this struct, as a text. */
#ifndef WEIR_TESTS_ENGINE_H
#define WEIR_TESTS_ENGINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { ENGINE_QUEUE_MAX = 64, ENGINE_LIMITS = 4, ENGINE_BATCHES = 16 };

/* The first limit as a bucket: as plugins/backends/redis/buckets.lua decides, by whole
 * microseconds. Units are counted in parts, of which there are as many as a window has
 * microseconds. All instances that have this struct share it. */
struct engine_bucket {
    uint64_t capacity, window_us, burst, delta_us; /* window_us 0: there is none */
    uint64_t beyond, last_us;                      /* what is missing, in parts, and as of when */
};

/* A call of `batch`: on its way to the engine, or back. */
struct engine_batch {
    const void *host; /* struct weir_backend_host; NULL: no call */
    void *set;        /* to the core */
    bool is_decided;
    uint32_t limit;
    uint64_t wanted, tag;
    int32_t result; /* if it is decided */
    uint64_t units, valid_ns, at, retry_after_ns;
};

/* When `spare` is to be called. */
struct engine_spare {
    const void *host; /* NULL: it is not */
    void *set, *handle;
    uint32_t limit;
    uint64_t due_ns;
};

struct engine_control {
    /* Set by the test. */
    int fails_open, fails_set_open, fails_ask, fails_check; /* negative errno, or 0 */
    int applies;              /* what `set_apply` returns: 1, 0 or a negative errno */
    bool applies_nonsense;    /* it tells differences of what there is not */
    int ends_failed;          /* negative errno that requests end with before fails_ask, or 0 */
    _Atomic uint32_t *closes; /* where requests store `closed`, or NULL */
    uint32_t closed;
    const char *says;  /* word about the engine for `check`, or why it fails */
    int away;          /* negative errno that requests fail with, or 0 */
    int refuses;       /* negative errno that every request is refused with, or 0 */
    bool is_slow;      /* requests are decided in `wait`, or by the engine's thread */
    bool thread_rests; /* the engine's thread decides no requests */
    bool is_stuck;     /* requests are not decided */
    bool is_deaf;      /* cancellations are lost */
    bool is_over;      /* the session has ended, which was not reported */
    bool is_hostile;   /* verdicts about other tokens, and of impossible values */
    uint64_t retry_after_ns;
    uint32_t is_too_late; /* of refusals */
    int fails_batch;
    uint32_t decides;               /* a bit for each limit that is given to the core to decide */
    uint64_t leased_capacity;       /* what can be granted beside batches; 0: the capacity */
    bool batches_wait;              /* they go on when the test says so */
    const _Atomic uint64_t *now_ns; /* the clock of the bucket */
    struct engine_bucket bucket;

    /* Seen by the test. */
    unsigned connections, sets, threads; /* open now */
    unsigned asked, patient, undone, waits, unwanted, snapshots;
    unsigned holds;      /* grants that were not released */
    uint64_t checked_ns; /* how long the last check was allowed to take */
    uint64_t waiting, held[ENGINE_LIMITS], used[ENGINE_LIMITS];
    uint64_t fingerprint;
    char last_subject[16];
    char last_algorithm[32];
    uint64_t last_setting;
    uint64_t state_sizes[ENGINE_LIMITS], state_ids[ENGINE_LIMITS]; /* of the last set opened */
    uint32_t last_settings_n, counts_nodes;
    uint64_t last_token, last_hold;    /* of the last grant that holds */
    uint64_t last_timeout_ns;          /* of the last request, as is */
    void *host_set;                    /* the last one opened, to the core */
    const void *host;                  /* struct weir_backend_host */
    pthread_mutex_t *lock;             /* of the connection */
    uint64_t lease_for_ns;             /* of the last limit that is leased */
    uint32_t revision;                 /* of the definition that is in use */
    unsigned redefined;                /* calls of `set_redefine` */
    unsigned applied;                  /* definitions that it took by `set_apply` */
    uint64_t apply_ns;                 /* how long the last of these was allowed to take */
    unsigned batched, refused_batches; /* calls of `batch` */
    uint64_t last_wanted, batched_units, unbatched_units;
    struct engine_batch batches[ENGINE_BATCHES]; /* those that go on when the test says so */
    struct engine_spare spares[ENGINE_BATCHES];

    /* Calls of the test, once a set was opened. */
    void (*decide_batch)(struct engine_control *control, struct engine_batch *batch);
    void (*deliver_batch)(struct engine_control *control, struct engine_batch *batch);
    void (*run_spares)(struct engine_control *control); /* those that are due */
};

#endif
