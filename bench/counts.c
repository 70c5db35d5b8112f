/* SPDX-License-Identifier: MIT */
/*
 * Runs operations to count their instructions: bench/counts runs this under callgrind, which counts
 * the instructions inside of counted() and writes them down each time that measured() returns.
 *
 * It prints each operation in the order of measurement: its repetitions and its name; the first is
 * an empty measurement. By itself it measures nothing, but still requires that each operation
 * works.
 *
 * Operations on sets that processes share are done by this process alone.
 *
 * The clock is the real one, and nothing here depends on how much time passes. callgrind hides the
 * vDSO, so a clock reading counts as the C library's code around a system call: a few instructions,
 * and always as many.
 */
#include "bench.h"
#include "lib/tmpdir.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/*
 * Replaces the C library's strcmp: its number of instructions depends on the position of the texts
 * in their pages, and on the processor.
 */
int strcmp(const char *a, const char *b)
{
    size_t i = 0;

    while (a[i] && a[i] == b[i])
        i++;
    return (unsigned char)a[i] - (unsigned char)b[i];
}

enum { WARM_UP = 300, TIMES = 1000, LIMITS = 3 };

static char directory[TMPDIR_SIZE];

struct scene {
    const char *backend;
    weir *w;
    weir_pool *rate, *leased, *dry, *bucket, *call, *slots, *three;
    weir_pool *clients, *clients_slots, *clients_three; /* per subject */
    weir_queue *queue;
    weir_acquisition *holder;  /* holds `one`, while others wait for it */
    weir_acquisition *pending; /* one of the waiters */
    weir_pool *one;
};

#define RATE(algorithm_)                                                                           \
    {                                                                                              \
        .size = sizeof(struct weir_limit_spec), .type = WEIR_LIMIT_RATE, .key = "tokens",          \
        .algorithm = (algorithm_), .capacity = 1000000000, .window_ns = 1000 * MS                  \
    }
#define RESOURCE(capacity_)                                                                        \
    {                                                                                              \
        .size = sizeof(struct weir_limit_spec), .type = WEIR_LIMIT_RESOURCE, .key = "slots",       \
        .capacity = (capacity_)                                                                    \
    }
#define CALL                                                                                       \
    {                                                                                              \
        .size = sizeof(struct weir_limit_spec), .type = WEIR_LIMIT_CALL, .algorithm = "gcra",      \
        .capacity = 1000000000, .window_ns = 1000 * MS                                             \
    }

static const struct weir_limit_spec rate = RATE("gcra"), bucket = RATE("token_bucket"), call = CALL,
                                    slots = RESOURCE(1000), one = RESOURCE(1),
                                    three[LIMITS] = {RATE("gcra"), CALL, RESOURCE(1000)};

static const struct weir_limit_spec leased = {.size = sizeof(leased),
                                              .type = WEIR_LIMIT_RATE,
                                              .key = "tokens",
                                              .algorithm = "gcra",
                                              .capacity = 1000000000,
                                              .window_ns = 1000 * MS,
                                              .lease = 32};

/* One unit in an hour, and none to begin with. */
static const struct weir_setting dry_settings[] = {{"initial", "0"}};
static const struct weir_limit_spec dry = {.size = sizeof(dry),
                                           .type = WEIR_LIMIT_RATE,
                                           .key = "tokens",
                                           .algorithm = "gcra",
                                           .capacity = 1,
                                           .window_ns = 3600000 * MS,
                                           .settings = dry_settings,
                                           .settings_n = 1};

static const struct weir_amount token = {"tokens", 1};
static const struct weir_request request = {
    .size = sizeof(request), .amounts = &token, .amounts_n = 1};

static const uint64_t client = 7;
static const struct weir_request clients_request = {.size = sizeof(request),
                                                    .amounts = &token,
                                                    .amounts_n = 1,
                                                    .subject = &client,
                                                    .subject_size = sizeof(client)};
static const struct weir_request clients_default = {
    .size = sizeof(request), .subject = &client, .subject_size = sizeof(client)};

/* Opens a pool of a set with these limits; keyed: with limits for each client. */
static weir_pool *pool_open(const struct scene *scene, const char *name,
                            const struct weir_limit_spec *limits, unsigned limits_n,
                            const struct weir_subjects_spec *keyed)
{
    const struct weir_set_spec set = {.size = sizeof(set),
                                      .name = name,
                                      .limits = limits,
                                      .limits_n = limits_n,
                                      .backend = scene->backend,
                                      .lifetime = scene->backend ? "users" : NULL,
                                      .subjects = keyed};

    return bench_pool_of(scene->w, &set);
}

static void scene_open(struct scene *scene, const char *backend)
{
    static const struct weir_subjects_spec keyed = {.size = sizeof(keyed), .max = 1000};
    const struct weir_options options = {.size = sizeof(options), .process_dir = directory};

    scene->backend = backend;
    scene->w = bench_instance(&options);
    scene->rate = pool_open(scene, "rate", &rate, 1, NULL);
    scene->leased = pool_open(scene, "leased", &leased, 1, NULL);
    scene->dry = pool_open(scene, "dry", &dry, 1, NULL);
    scene->bucket = pool_open(scene, "bucket", &bucket, 1, NULL);
    scene->call = pool_open(scene, "call", &call, 1, NULL);
    scene->slots = pool_open(scene, "slots", &slots, 1, NULL);
    scene->three = pool_open(scene, "three", three, LIMITS, NULL);
    scene->one = pool_open(scene, "one", &one, 1, NULL);
    scene->clients = pool_open(scene, "clients", &rate, 1, &keyed);
    scene->clients_slots = pool_open(scene, "clients_slots", &slots, 1, &keyed);
    scene->clients_three = pool_open(scene, "clients_three", three, LIMITS, &keyed);
    require(weir_queue_open(&scene->queue, scene->w, 8) == 0);
    require(weir_try_acquire(scene->one, NULL, &scene->holder, NULL) == 0);
}

static void scene_close(struct scene *scene)
{
    weir_pool *const pools[] = {scene->rate,          scene->leased,       scene->dry,
                                scene->bucket,        scene->call,         scene->slots,
                                scene->three,         scene->one,          scene->clients,
                                scene->clients_slots, scene->clients_three};

    require(weir_release(&scene->holder) == 0);
    weir_queue_close(scene->queue);
    for (size_t i = 0; i < sizeof(pools) / sizeof(pools[0]); i++)
        weir_pool_close(pools[i]);
    weir_close(scene->w);
}

static void nothing(struct scene *scene)
{
    require(scene->w);
}

static void take_rate(struct scene *scene)
{
    require(weir_take(scene->rate, &request, NULL) == 0);
}

static void take_leased(struct scene *scene)
{
    require(weir_take(scene->leased, &request, NULL) == 0);
}

static void take_bucket(struct scene *scene)
{
    require(weir_take(scene->bucket, &request, NULL) == 0);
}

static void take_call(struct scene *scene)
{
    require(weir_take(scene->call, NULL, NULL) == 0);
}

static void take_refused(struct scene *scene)
{
    require(weir_take(scene->dry, &request, NULL) == -EAGAIN);
}

static void take_keyed(struct scene *scene)
{
    require(weir_take(scene->clients, &clients_request, NULL) == 0);
}

static void hold_call(struct scene *scene)
{
    weir_acquisition *acquisition;

    require(weir_try_acquire(scene->call, NULL, &acquisition, NULL) == 0);
    require(weir_release(&acquisition) == 0);
}

/* Acquires, updates and releases a rate. */
static void hold_rate(struct scene *scene)
{
    weir_acquisition *acquisition;

    require(weir_try_acquire(scene->rate, &request, &acquisition, NULL) == 0);
    require(weir_update(acquisition, "tokens", 1) == 0);
    require(weir_release(&acquisition) == 0);
}

static void hold_resource(struct scene *scene)
{
    weir_acquisition *acquisition;

    require(weir_try_acquire(scene->slots, NULL, &acquisition, NULL) == 0);
    require(weir_release(&acquisition) == 0);
}

static void hold_keyed(struct scene *scene)
{
    weir_acquisition *acquisition;

    require(weir_try_acquire(scene->clients_slots, &clients_default, &acquisition, NULL) == 0);
    require(weir_release(&acquisition) == 0);
}

static void hold_keyed_three(struct scene *scene)
{
    weir_acquisition *acquisition;

    require(weir_try_acquire(scene->clients_three, &clients_request, &acquisition, NULL) == 0);
    require(weir_update(acquisition, "tokens", 1) == 0);
    require(weir_release(&acquisition) == 0);
}

static void hold_refused(struct scene *scene)
{
    weir_acquisition *acquisition;

    require(weir_try_acquire(scene->one, NULL, &acquisition, NULL) == -EAGAIN);
}

static void hold_three(struct scene *scene)
{
    weir_acquisition *acquisition;

    require(weir_try_acquire(scene->three, &request, &acquisition, NULL) == 0);
    require(weir_update(acquisition, "tokens", 1) == 0);
    require(weir_release(&acquisition) == 0);
}

static void queue_at_once(struct scene *scene)
{
    struct weir_completion completion;

    require(weir_queue_submit(scene->queue, scene->slots, NULL, 1, NULL, NULL) == 0);
    require(weir_queue_reap(scene->queue, &completion, 1) == 1 && completion.result == 0);
    require(weir_release(&completion.acquisition) == 0);
}

/* Submits a request that waits, releases, and reaps its grant, which is the next to be held. */
static void queue_hand_over(struct scene *scene)
{
    struct weir_completion completion;

    require(weir_queue_submit(scene->queue, scene->one, NULL, 1, NULL, NULL) == 0);
    require(weir_release(&scene->holder) == 0);
    require(weir_queue_reap(scene->queue, &completion, 1) == 1 && completion.result == 0);
    scene->holder = completion.acquisition;
}

static void release_holder(struct scene *scene)
{
    require(weir_release(&scene->holder) == 0);
}

/* Makes `holder` acquire without waiting, as most acquisitions do. */
static void hold_anew(struct scene *scene)
{
    release_holder(scene);
    require(weir_try_acquire(scene->one, NULL, &scene->holder, NULL) == 0);
}

static void wait_in_queue(struct scene *scene)
{
    require(weir_queue_submit(scene->queue, scene->one, NULL, 1, NULL, NULL) == 0);
}

static void reap_holder(struct scene *scene)
{
    struct weir_completion completion;

    require(weir_queue_reap(scene->queue, &completion, 1) == 1 && completion.result == 0);
    scene->holder = completion.acquisition;
}

static void reap(struct scene *scene)
{
    reap_holder(scene);
    hold_anew(scene);
}

static void reap_second(struct scene *scene)
{
    reap_holder(scene);
    release_holder(scene);
    reap(scene);
}

static void wait_in_queue_twice(struct scene *scene)
{
    wait_in_queue(scene);
    wait_in_queue(scene);
}

static void reap_both(struct scene *scene)
{
    release_holder(scene);
    reap_second(scene);
}

/* Submits two requests that wait, the second of which can be told apart. */
static void wait_in_queue_apart(struct scene *scene)
{
    wait_in_queue(scene);
    require(weir_queue_submit(scene->queue, scene->one, NULL, 2, NULL, NULL) == 0);
}

static void cancel_second(struct scene *scene)
{
    require(weir_queue_cancel(scene->queue, 2) == 1);
}

static void reap_canceled(struct scene *scene)
{
    struct weir_completion completion;

    require(weir_queue_reap(scene->queue, &completion, 1) == 1);
    require(completion.user_data == 2 && completion.result == -ECANCELED);
    release_holder(scene);
    reap(scene);
}

static void wait_for_descriptor(struct scene *scene)
{
    require(weir_submit(scene->one, NULL, &scene->pending, NULL) == 1);
    require(weir_acquisition_fd(scene->pending) >= 0);
}

static void take_over(struct scene *scene)
{
    require(weir_acquisition_result(scene->pending) == 0);
    scene->holder = scene->pending;
    hold_anew(scene);
}

struct operation {
    const char *name;
    void (*run)(struct scene *scene);
    void (*begin)(struct scene *scene), (*end)(struct scene *scene); /* not counted; may be NULL */
};

static const struct operation operations[] = {
    {"nothing", nothing, NULL, NULL},
    {"take: rate", take_rate, NULL, NULL},
    {"take: rate, leased", take_leased, NULL, NULL},
    {"take: rate, token bucket", take_bucket, NULL, NULL},
    {"take: call", take_call, NULL, NULL},
    {"take: rate, refused", take_refused, NULL, NULL},
    {"take: rate, per subject", take_keyed, NULL, NULL},
    {"acquire + release: call", hold_call, NULL, NULL},
    {"acquire + update + release: rate", hold_rate, NULL, NULL},
    {"acquire + release: resource", hold_resource, NULL, NULL},
    {"acquire + release: resource, per subject", hold_keyed, NULL, NULL},
    {"acquire + update + release: 3, per subject", hold_keyed_three, NULL, NULL},
    {"acquire: resource, refused", hold_refused, NULL, NULL},
    {"acquire + update + release: 3 limits", hold_three, NULL, NULL},
    {"submit + reap + release: resource", queue_at_once, NULL, NULL},
    {"submit + hand-over + reap: resource", queue_hand_over, NULL, NULL},
    {"submit behind a waiter: resource", wait_in_queue, wait_in_queue, reap_both},
    {"release to the first of two waiters", release_holder, wait_in_queue_twice, reap_second},
    {"release to a waiter: completion queue", release_holder, wait_in_queue, reap},
    {"cancel of the last of two waiters", cancel_second, wait_in_queue_apart, reap_canceled},
    {"release to a waiter: descriptor", release_holder, wait_for_descriptor, take_over},
};

/* None is refused: a refusal checks for dead peers, once in a millisecond. */
static const struct operation shared_operations[] = {
    {"shared, take: rate", take_rate, NULL, NULL},
    {"shared, take: call", take_call, NULL, NULL},
    {"shared, acquire + release: call", hold_call, NULL, NULL},
    {"shared, acquire + release: resource", hold_resource, NULL, NULL},
    {"shared, acquire + update + release: 3 limits", hold_three, NULL, NULL},
};

/* The functions that callgrind looks for: not static, called through a pointer, and so never cloned
 * or inlined. The first makes no tail call. */
void counted(const struct operation *operation, struct scene *scene);
void counted(const struct operation *operation, struct scene *scene)
{
    operation->run(scene);
    require(scene->w);
}

static void run(const struct operation *operation, struct scene *scene)
{
    void (*volatile call_counted)(const struct operation *, struct scene *) = counted;

    if (operation->begin)
        operation->begin(scene);
    call_counted(operation, scene);
    if (operation->end)
        operation->end(scene);
}

void measured(const struct operation *operation, struct scene *scene, unsigned times);
void measured(const struct operation *operation, struct scene *scene, unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        run(operation, scene);
}

static void measure(const struct operation *operation, struct scene *scene)
{
    void (*volatile call_measured)(const struct operation *, struct scene *, unsigned) = measured;

    for (unsigned i = 0; i < WARM_UP; i++)
        run(operation, scene);
    call_measured(operation, scene, TIMES);
    printf("%u %s\n", TIMES, operation->name);
}

int main(int argc, char **argv)
{
    struct scene own, shared;
    struct bench bench;

    bench_open(&bench, "counts", 0, argc, argv);
    require(tmpdir_make(directory, "/dev/shm"));
    scene_open(&own, NULL);
    scene_open(&shared, "process");
    for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
        measure(&operations[i], &own);
    for (size_t i = 0; i < sizeof(shared_operations) / sizeof(shared_operations[0]); i++)
        measure(&shared_operations[i], &shared);
    scene_close(&shared);
    scene_close(&own);
    require(rmdir(directory) == 0); /* the sets were removed with their last user */
    return fflush(stdout) == 0 ? 0 : 1;
}
