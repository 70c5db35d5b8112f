/* SPDX-License-Identifier: MIT */
/* The work that `costs` measures: bare primitives as a program would inline them, and library
 * calls. */
#include "costs.h"

#include <errno.h>
#include <string.h>

/* ---- the sets ---- */

/*
 * Units come back faster than they are taken, so that nothing is refused, except by `spent`. Each
 * set belongs to one work; the operations of the work are compared with the counters of the set.
 */
#define CALL   "{ type: call, algorithm: gcra, capacity: 1G, window: 1s }"
#define RATE   "{ type: rate, key: tokens, algorithm: gcra, capacity: 1G, window: 1s }"
#define LEASED "{ type: rate, key: tokens, algorithm: gcra, capacity: 1G, window: 1s, lease: 32 }"
#define SPENT  "{ type: rate, key: tokens, algorithm: gcra, capacity: 1, window: 1d }"
#define SLOTS  "{ type: resource, key: slots, capacity: 1000 }"

static const char sets[] = "sets:\n"
                           "  call: { limits: [ " CALL " ] }\n"
                           "  held_call: { limits: [ " CALL " ] }\n"
                           "  rate: { limits: [ " RATE " ] }\n"
                           "  leased: { limits: [ " LEASED " ] }\n"
                           "  held_rate: { limits: [ " RATE " ] }\n"
                           "  spent: { limits: [ " SPENT " ] }\n"
                           "  slots: { limits: [ " SLOTS " ] }\n"
                           "  three: { limits: [ " RATE ", " CALL ", " SLOTS " ] }\n";

/* ---- bare primitives ---- */

enum { CELL_DEPTH_NS = 1000000000 };

/* Takes from a GCRA on one word: the least that a limiter by that algorithm does. */
static inline bool cell_take(struct object *object)
{
    uint64_t now = clock_now();
    uint64_t tat = atomic_load_explicit(&object->cell.tat, memory_order_relaxed);
    uint64_t next;

    do {
        next = (tat > now ? tat : now) + object->cell.unit_ns;
        if (next - now > object->cell.depth_ns)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&object->cell.tat, &tat, next,
                                                    memory_order_acq_rel, memory_order_relaxed));
    return true;
}

static void cell_open(struct object *object)
{
    object->cell.unit_ns = 1;
    object->cell.depth_ns = CELL_DEPTH_NS;
}

static void cell_spend(struct object *object)
{
    object->cell.unit_ns = object->cell.depth_ns = UINT64_C(86400) * 1000000000;
    require(cell_take(object));
}

static void cell_loop(struct object *object, unsigned n)
{
    while (n-- > 0)
        require(cell_take(object));
}

static void cell_refused_loop(struct object *object, unsigned n)
{
    while (n-- > 0)
        require(!cell_take(object));
}

static void cell_thrice_loop(struct object *object, unsigned n)
{
    while (n-- > 0)
        require(cell_take(object) && cell_take(object) && cell_take(object));
}

static void clock_loop(struct object *object, unsigned n)
{
    (void)object;
    while (n-- > 0)
        require(clock_now() > 0);
}

static void semaphore_loop(struct object *object, unsigned n)
{
    while (n-- > 0) {
        require(sem_trywait(&object->semaphore) == 0);
        require(sem_post(&object->semaphore) == 0);
    }
}

static void mutex_loop(struct object *object, unsigned n)
{
    while (n-- > 0) {
        require(pthread_mutex_lock(&object->mutex) == 0);
        require(pthread_mutex_unlock(&object->mutex) == 0);
    }
}

/* ---- the library ---- */

static const struct weir_amount token = {"tokens", 1};
static const struct weir_request of_rate = {
    .size = sizeof(of_rate), .amounts = &token, .amounts_n = 1};

static void take_rate_loop(struct object *object, unsigned n)
{
    while (n-- > 0)
        require(weir_take(object->pool, &of_rate, NULL) == 0);
}

static void take_refused_loop(struct object *object, unsigned n)
{
    while (n-- > 0)
        require(weir_take(object->pool, &of_rate, NULL) == -EAGAIN);
}

static void take_call_loop(struct object *object, unsigned n)
{
    while (n-- > 0)
        require(weir_take(object->pool, NULL, NULL) == 0);
}

static void spend(struct object *object)
{
    take_rate_loop(object, 1);
}

/* Acquires and releases a call or a resource: it has a default amount and needs no update. */
static void acquire_loop(struct object *object, unsigned n)
{
    weir_acquisition *acquisition;

    while (n-- > 0) {
        require(weir_try_acquire(object->pool, NULL, &acquisition, NULL) == 0);
        require(weir_release(&acquisition) == 0);
    }
}

/* Acquires, updates and releases a rate. */
static void acquire_rate_loop(struct object *object, unsigned n)
{
    weir_acquisition *acquisition;

    while (n-- > 0) {
        require(weir_try_acquire(object->pool, &of_rate, &acquisition, NULL) == 0);
        require(weir_update(acquisition, "tokens", 1) == 0);
        require(weir_release(&acquisition) == 0);
    }
}

/* ---- the table ---- */

#define CELL         "raw: clock + CAS"
#define CELL_REFUSED "raw: clock + CAS, refused"
#define CELL_THRICE  "raw: 3 x (clock + CAS)"
#define SEMAPHORE    "raw: sem_trywait + sem_post"

/* Without a usable counter the system clock is read. */
#define TSC "clock: tsc\n"

const struct work works[] = {
    {.name = "raw: clock_gettime", .loop = clock_loop},
    {.name = CELL, .loop = cell_loop, .prepare = cell_open, .two = true},
    {.name = CELL_REFUSED,
     .loop = cell_refused_loop,
     .prepare = cell_spend,
     .refused = true,
     .two = true},
    {.name = CELL_THRICE, .loop = cell_thrice_loop, .prepare = cell_open, .two = true},
    {.name = SEMAPHORE, .loop = semaphore_loop, .two = true},
    {.name = "raw: mutex lock + unlock", .loop = mutex_loop, .two = true},
    {"take, rate", CELL, "rate", take_rate_loop, .two = true},
    {"take, rate, lease of 32", CELL, "leased", take_rate_loop, .two = true},
    {"take, rate, refused", CELL_REFUSED, "spent", take_refused_loop, .prepare = spend,
     .refused = true, .two = true},
    {"take, call", CELL, "call", take_call_loop, .two = true},
    {"acquire + release, call", CELL, "held_call", acquire_loop, .two = true},
    {"acquire + update + release, rate", CELL, "held_rate", acquire_rate_loop, .two = true},
    {"acquire + release, resource", SEMAPHORE, "slots", acquire_loop, .two = true},
    {"acquire + release, 3 limits", CELL_THRICE, "three", acquire_rate_loop, .two = true},
    {"take, rate, tsc", CELL, "rate", take_rate_loop, .top = TSC, .two = true},
    {"take, rate, refused, tsc", CELL_REFUSED, "spent", take_refused_loop, .prepare = spend,
     .top = TSC, .refused = true},
    {"acquire + release, 3 limits, tsc", CELL_THRICE, "three", acquire_rate_loop, .top = TSC,
     .two = true},
    {.name = NULL},
};

/* ---- objects ---- */

/* An instance for each `top` line of a configuration; closed with its last pool. */
static struct instance {
    const char *top;
    weir *w;
    unsigned users;
} instances[4];

static struct instance *instance_of(const char *top)
{
    size_t i = 0;

    while (instances[i].top && strcmp(instances[i].top, top) != 0)
        i++;
    require(i + 1 < sizeof(instances) / sizeof(instances[0]));
    instances[i].top = top;
    return &instances[i];
}

static void open_instance(struct instance *at)
{
    struct weir_options options = {.size = sizeof(options)};
    char text[sizeof(sets) + 64];

    require(snprintf(text, sizeof(text), "version: 1\n%s%s", at->top, sets) < (int)sizeof(text));
    options.text = text;
    at->w = bench_instance(&options);
}

static const char *top_of(const struct work *work)
{
    return work->top ? work->top : "";
}

static weir_pool *open_pool(const struct work *work)
{
    struct instance *at = instance_of(top_of(work));
    weir_pool *pool;

    if (at->users++ == 0)
        open_instance(at);
    require(weir_pool_open(&pool, at->w, work->set, WEIR_WORKER_AUTO, NULL) == 0);
    return pool;
}

struct object *object_new(const struct work *work)
{
    struct object *object = aligned_alloc(64, sizeof(*object));

    require(object);
    memset(object, 0, sizeof(*object));
    require(sem_init(&object->semaphore, 0, 1000) == 0);
    require(pthread_mutex_init(&object->mutex, NULL) == 0);
    if (work->set)
        object->pool = open_pool(work);
    if (work->prepare)
        work->prepare(object);
    return object;
}

static void close_pool(weir_pool *pool, const struct work *work, uint64_t done)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct instance *at = instance_of(top_of(work));

    require(weir_set_stats(weir_pool_set(pool, 0), &stats, NULL, 0) > 0);
    require(stats.held == 0 && stats.waiting == 0 && stats.missing_update == 0);
    require(stats.granted == stats.taken + stats.released);
    require(work->refused ? stats.refused_busy == done : stats.granted == done);
    weir_pool_close(pool);
    if (--at->users == 0)
        at->w = weir_close(at->w);
}

void object_free(struct object *object, const struct work *work, uint64_t done)
{
    int value;

    require(sem_getvalue(&object->semaphore, &value) == 0 && value == 1000);
    if (object->pool)
        close_pool(object->pool, work, done);
    sem_destroy(&object->semaphore);
    pthread_mutex_destroy(&object->mutex);
    free(object);
}
