/* SPDX-License-Identifier: MIT */
/*
 * A user of the backend for Redis, in the place of the core: it loads the plugin, runs it in a
 * thread, and asks by its table of functions.
 */
#ifndef WEIR_TESTS_ENGINE_USER_H
#define WEIR_TESTS_ENGINE_USER_H

#include "lib/require.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weir/backend.h>

#define MS          UINT64_C(1000000)
#define LIMITS_MAX  4
#define WORKS_MAX   8
#define PATIENCE_NS (60000 * MS) /* that a busy machine may take for anything */
/* Of the plugin that the server has as well. */
#define GCRA_STATE_ID UINT64_C(0xe0523881fe18ae4b)

enum { UNDECIDED, DECIDED, ABANDONED };

struct request {
    _Atomic int state;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct weir_backend_verdict verdict;
    uint32_t index; /* as the test likes */
};

/* A thread that may block. */
struct user_work {
    _Atomic int is_used;
    void (*main)(void *argument);
    void *argument;
};

struct user {
    const struct weir_backend *backend;
    const struct weir_plugin *plugin;
    void *connection;
    pthread_t thread;
    struct weir_backend_host host;
    _Atomic uint64_t lost; /* the last hold that was */
    _Atomic uint64_t losses;
    _Atomic uint32_t nodes;
    _Atomic int is_away;
    struct user_work works[WORKS_MAX];
    int is_quiet;
    /* Limits that the user decides, in the place of the core: a resource and a rate that only
     * counts. Their states are the units that are held, and those that were taken. */
    int is_foreign;
    uint64_t capacity;
    _Atomic uint64_t damaged; /* states that were none */
};

enum { FOREIGN_HELD, FOREIGN_TAKEN, FOREIGN_WORDS };

static inline uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 * MS + (uint64_t)t.tv_nsec;
}

static inline int user_decided(void *context, void *set, uint64_t token,
                               const struct weir_backend_verdict *verdict)
{
    struct request *request = (struct request *)(uintptr_t)token;
    int state = UNDECIDED;
    (void)context;
    (void)set;
    pthread_mutex_lock(&request->lock);
    request->verdict = *verdict;
    int won = atomic_compare_exchange_strong(&request->state, &state, DECIDED);
    pthread_cond_broadcast(&request->changed);
    pthread_mutex_unlock(&request->lock);
    return !won;
}

static inline void user_lost(void *context, void *set, uint64_t token, uint64_t hold)
{
    struct user *user = context;
    (void)set;
    (void)token;
    atomic_store(&user->lost, hold);
    atomic_fetch_add(&user->losses, 1);
}

static inline void user_away(void *context, void *set, int is_away)
{
    struct user *user = context;
    (void)set;
    atomic_store(&user->is_away, is_away);
}

static inline void user_nodes(void *context, void *set, uint32_t nodes)
{
    struct user *user = context;
    (void)set;
    atomic_store(&user->nodes, nodes);
}

static inline void user_give_back(const struct user *user, uint64_t *state,
                                  const struct weir_backend_decision *decision)
{
    uint64_t used = decision->undo ? 0 : decision->used[FOREIGN_TAKEN];
    uint64_t amount = decision->amounts[FOREIGN_TAKEN];
    (void)user;
    require(decision->amounts[FOREIGN_HELD] <= state[FOREIGN_HELD]); /* nothing is released twice */
    state[FOREIGN_HELD] -= decision->amounts[FOREIGN_HELD];
    require(used >= amount || amount - used <= state[FOREIGN_TAKEN]);
    if (used < amount)
        state[FOREIGN_TAKEN] -= amount - used;
}

static inline int user_decide_on(const struct user *user, uint64_t *state,
                                 struct weir_backend_decision *decision)
{
    const uint64_t *amounts = decision->amounts;
    switch (decision->deed) {
    case WEIR_BACKEND_BEGIN:
        state[FOREIGN_HELD] = state[FOREIGN_TAKEN] = 0;
        return 0;
    case WEIR_BACKEND_CHECK:
        return state[FOREIGN_HELD] > user->capacity ? -EUCLEAN : 0;
    case WEIR_BACKEND_DECIDE:
    case WEIR_BACKEND_FORESEE:
        decision->limit = FOREIGN_HELD;
        decision->ready_ns = WEIR_BLOCKED;
        if (amounts[FOREIGN_HELD] > user->capacity - state[FOREIGN_HELD])
            return -EAGAIN;
        for (int i = 0; i < FOREIGN_WORDS && decision->deed == WEIR_BACKEND_DECIDE; i++)
            state[i] += amounts[i];
        return 0;
    case WEIR_BACKEND_GIVE_BACK:
        user_give_back(user, state, decision);
        return 0;
    case WEIR_BACKEND_LOOK:
        decision->stats[FOREIGN_HELD].available = user->capacity - state[FOREIGN_HELD];
        decision->stats[FOREIGN_HELD].held = state[FOREIGN_HELD];
        decision->stats[FOREIGN_TAKEN] =
            (struct weir_backend_limit_stats){.available = state[FOREIGN_TAKEN]};
        return 0;
    default:
        decision->ready_ns = WEIR_NEVER;
        return 0;
    }
}

static inline int user_decide(void *context, void *set, struct weir_backend_decision *decision)
{
    struct user *user = context;
    (void)set;
    require((uintptr_t)decision->states % sizeof(uint64_t) == 0);
    require(decision->at.now_ns > 0 && decision->at.now_ns <= WEIR_CLOCK_MAX);
    int r = user_decide_on(user, decision->states, decision);
    if (r == -EUCLEAN)
        atomic_fetch_add(&user->damaged, 1);
    return r;
}

static inline void user_log(void *context, int level, const char *message)
{
    const struct user *user = context;
    if (!user->is_quiet)
        fprintf(stderr, "log %d: %s\n", level, message);
}

static inline void user_write_log(void *context)
{
    (void)context;
}

static inline void *user_run(void *of)
{
    struct user *user = of;
    user->backend->run(user->connection);
    return NULL;
}

static inline void *user_work_main(void *of)
{
    struct user_work *work = of;
    work->main(work->argument);
    atomic_store(&work->is_used, 0);
    return NULL;
}

/* In the place of the core: threads that are not joined, but waited for. */
static inline int user_work_in(struct user *user, void *(*in)(void *), void (*main)(void *),
                               void *argument)
{
    pthread_t thread;
    for (int i = 0; i < WORKS_MAX; i++) {
        struct user_work *work = &user->works[i];
        if (atomic_exchange(&work->is_used, 1))
            continue;
        work->main = main;
        work->argument = argument;
        require(pthread_create(&thread, NULL, in, work) == 0 && pthread_detach(thread) == 0);
        return 0;
    }
    return -EAGAIN;
}

static inline int user_work(void *context, void (*main)(void *), void *argument)
{
    return user_work_in(context, user_work_main, main, argument);
}

/* Returns the plugin in a file. */
static inline const struct weir_plugin *user_load(const char *path)
{
    void *file = dlopen(path, RTLD_NOW);
    require(file);
    const struct weir_plugin_table *table = dlsym(file, WEIR_PLUGIN_SYMBOL);
    require(table);
    return table->plugins[0];
}

/* Opens a connection with parameters: pairs of name and text, then NULL. Durations are in ms. */
static inline int user_open_plugin(struct user *user, const struct weir_plugin *plugin,
                                   struct weir_reason *reason, const char *const *parameters)
{
    struct weir_value values[64] = {{0}};
    const struct weir_value *addresses[64];
    struct weir_setup setup = {
        .size = sizeof(setup), .abi_minor = WEIR_PLUGIN_ABI_MINOR, .values = addresses};
    user->plugin = plugin;
    user->backend = user->plugin->ops;
    setup.values_n = user->plugin->parameters_n;
    for (uint32_t i = 0; i < user->plugin->parameters_n; i++) {
        const struct weir_parameter *parameter = &user->plugin->parameters[i];
        addresses[i] = &values[i];
        values[i].size = sizeof(values[i]);
        values[i].value = parameter->default_value;
        for (const char *const *pair = parameters; *pair; pair += 2) {
            if (strcmp(parameter->name, pair[0]))
                continue;
            values[i].given = 1;
            if (parameter->type == WEIR_PARAMETER_TEXT)
                values[i].text = pair[1];
            else
                values[i].value = strtoull(pair[1], NULL, 10);
            if (parameter->type == WEIR_PARAMETER_DURATION)
                values[i].value *= MS;
        }
    }
    user->host = (struct weir_backend_host){.size = sizeof(user->host),
                                            .context = user,
                                            .decided = user_decided,
                                            .lost = user_lost,
                                            .away = user_away,
                                            .nodes = user_nodes,
                                            .log = user_log,
                                            .work = user_work,
                                            .write_log = user_write_log,
                                            .decide = user_decide};
    return user->backend->open(&setup, &user->host, &user->connection, reason);
}

static inline int user_open(struct user *user, const char *path, struct weir_reason *reason,
                            const char *const *parameters)
{
    return user_open_plugin(user, user_load(path), reason, parameters);
}

static inline void user_start(struct user *user)
{
    require(pthread_create(&user->thread, NULL, user_run, user) == 0);
}

/* Ends what runs. */
static inline void user_stop(struct user *user)
{
    struct timespec pause = {0, 1000000};
    user->backend->stop(user->connection);
    pthread_join(user->thread, NULL);
    for (int i = 0; i < WORKS_MAX; i++)
        while (atomic_load(&user->works[i].is_used))
            nanosleep(&pause, NULL);
}

static inline void user_close(struct user *user)
{
    user_stop(user);
    user->backend->close(user->connection);
}

/* A set with a resource of this capacity, and a bucket if `rate` is not 0; of algorithms that the
 * server does not have if the user is foreign. */
static inline void *user_open_set(struct user *user, const char *name, uint64_t capacity,
                                  uint64_t rate, uint32_t has_subjects)
{
    struct weir_reason reason = {0};
    const struct weir_backend_setting settings[] = {{"capacity", rate}, {"window", 1000 * MS}};
    uint32_t marks[2] = {0};
    user->capacity = capacity;
    const struct weir_backend_limit limits[] = {{.size = sizeof(limits[0]),
                                                 .type = WEIR_LIMIT_RESOURCE,
                                                 .key = "held",
                                                 .algorithm = user->is_foreign ? "slots" : NULL,
                                                 .capacity = capacity,
                                                 .state_size = sizeof(uint64_t),
                                                 .ret_is_decided = &marks[0]},
                                                {.size = sizeof(limits[0]),
                                                 .type = WEIR_LIMIT_RATE,
                                                 .refund = WEIR_BACKEND_REFUND,
                                                 .key = "rate",
                                                 .algorithm = user->is_foreign ? "sum" : "gcra",
                                                 .state_id = GCRA_STATE_ID,
                                                 .capacity = rate,
                                                 .settings_n = 2,
                                                 .settings = settings,
                                                 .state_size = sizeof(uint64_t),
                                                 .ret_is_decided = &marks[1]}};
    const struct weir_backend_set set = {.size = sizeof(set),
                                         .name = name,
                                         .fingerprint = 1,
                                         .fair = 1,
                                         .has_subjects = has_subjects,
                                         .limits_n = rate ? 2 : 1,
                                         .limits = limits};
    void *opened = NULL;
    int r = user->backend->set_open(user->connection, &set, &opened, &reason);
    if (r < 0)
        fprintf(stderr, "set_open: %d %s\n", r, reason.message);
    require(r == 0 && marks[0] == (uint32_t)user->is_foreign);
    return opened;
}

static inline void request_begin(struct request *request)
{
    pthread_condattr_t attributes;
    atomic_init(&request->state, UNDECIDED);
    pthread_mutex_init(&request->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&request->changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* Blocks until it is decided. Returns 0 if the time is over. */
static inline int request_wait(struct request *request, uint64_t until_ns)
{
    struct timespec until = {(time_t)(until_ns / (1000 * MS)), (long)(until_ns % (1000 * MS))};
    pthread_mutex_lock(&request->lock);
    while (atomic_load(&request->state) == UNDECIDED &&
           pthread_cond_timedwait(&request->changed, &request->lock, &until) == 0)
        ;
    pthread_mutex_unlock(&request->lock);
    return atomic_load(&request->state) == DECIDED;
}

struct request_args {
    const uint64_t *amounts;
    enum weir_backend_mode mode;
    uint32_t flags;
    uint64_t timeout_ns;
    const char *subject;
    uint32_t index; /* of the request */
};

/* Asks by a request that has begun, and waits until it is decided, or withdraws it. Returns the
 * result. */
static inline int user_acquire_by(struct user *user, void *set, struct request *request,
                                  const struct request_args *args, struct weir_backend_verdict *ret)
{
    request->index = args->index;
    const struct weir_backend_ask ask = {.size = sizeof(ask),
                                         .token = (uintptr_t)request,
                                         .mode = args->mode,
                                         .flags = args->flags,
                                         .timeout_ns = args->timeout_ns,
                                         .max_wait_ns = UINT64_MAX,
                                         .amounts = args->amounts,
                                         .subject = args->subject,
                                         .subject_size = args->subject ? strlen(args->subject) : 0};
    uint64_t until = now_ns() + args->timeout_ns;
    int r = user->backend->ask(set, &ask), state = UNDECIDED;
    if (r < 0)
        return r;
    user->backend->wait(set, ask.token, until);
    request_wait(request, until);
    if (atomic_compare_exchange_strong(&request->state, &state, ABANDONED)) {
        user->backend->cancel(set, ask.token);
        request->verdict.result = -ETIMEDOUT;
    }
    pthread_mutex_lock(&request->lock); /* the last call of `decided` is through */
    *ret = request->verdict;
    pthread_mutex_unlock(&request->lock);
    return ret->result;
}

static inline int user_acquire(struct user *user, void *set, const struct request_args *args,
                               struct weir_backend_verdict *ret)
{
    struct request request;
    request_begin(&request);
    return user_acquire_by(user, set, &request, args, ret);
}

static inline void user_release(struct user *user, void *set, uint64_t hold, const uint64_t *used)
{
    const struct weir_backend_release how = {.size = sizeof(how), .hold = hold, .used = used};
    user->backend->release(set, &how);
}

#endif
