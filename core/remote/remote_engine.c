/* SPDX-License-Identifier: MIT */
/* Connections to engines, and their threads. */
#include "remote/remote_lease.h"

#include "base/error.h"
#include "os/os.h"
#include "set/instance_base.h"
#include <errno.h>
#include <string.h>

static void remote_engine_log(void *context, int level, const char *message)
{
    struct remote_engine *engine = context;

    if (level >= WEIR_LOG_ERROR && level <= WEIR_LOG_DEBUG)
        remote_log_add(&engine->log, (enum weir_log_level)level, "backend `%s`: %s",
                       engine->plan.name, error_text(message).text);
}

static void remote_engine_write_log(void *context)
{
    remote_log_write_apart(&((struct remote_engine *)context)->log);
}

/* Release: what the thread has written is seen by the one that uses the worker again. */
static void remote_worker_main(void *argument)
{
    struct remote_worker *worker = argument;

    worker->main(worker->argument);
    atomic_store_explicit(&worker->is_done, true, memory_order_release);
}

static int remote_engine_work(void *context, void (*main)(void *argument), void *argument)
{
    struct remote_engine *engine = context;

    for (uint32_t i = 0; i < REMOTE_WORKERS; i++) {
        struct remote_worker *worker = &engine->workers[i];

        if (worker->thread && !atomic_load_explicit(&worker->is_done, memory_order_acquire))
            continue;
        os_thread_join(worker->thread);
        *worker = (struct remote_worker){.main = main, .argument = argument};
        return os_thread_start(&worker->thread, remote_worker_main, worker, "weir-connect");
    }
    return -EAGAIN;
}

static void remote_engine_free(struct remote_engine *engine)
{
    if (engine->connection)
        engine->backend->close(engine->connection);
    remote_log_free(&engine->log);
    backend_plan_free(&engine->plan);
    pthread_mutex_destroy(&engine->lock);
    pthread_mutex_destroy(&engine->start_lock);
    os_free(engine);
}

/* Opens the connection; the engine takes the plan over. */
static int remote_engine_open(struct remote_engine *engine, struct backend_plan *plan,
                              struct weir_error *reterr)
{
    struct weir_reason reason = {.size = sizeof(reason), .parameter = UINT32_MAX};
    int r;

    engine->plan = *plan;
    *plan = (struct backend_plan){0};
    engine->backend = &engine->plan.plugin->backend;
    engine->host = (struct weir_backend_host){.size = sizeof(engine->host),
                                              .context = engine,
                                              .decided = remote_decided,
                                              .lost = remote_lost,
                                              .away = remote_away,
                                              .nodes = remote_nodes,
                                              .log = remote_engine_log,
                                              .batched = remote_batched,
                                              .spare = remote_spare,
                                              .work = remote_engine_work,
                                              .write_log = remote_engine_write_log,
                                              .decide = remote_decide};
    engine->ctx = thread_ctx_new(engine->w);
    if (!engine->ctx)
        return -ENOMEM;
    r = engine->backend->open(&engine->plan.setup, &engine->host, &engine->connection, &reason);
    if (r >= 0)
        return 0;
    engine->connection = NULL;
    reason.message[sizeof(reason.message) - 1] = '\0';
    return error_set(reterr, r, "backend `%s`: %s", engine->plan.name,
                     *reason.message ? error_text(reason.message).text : strerrordesc_np(-r));
}

int remote_engines_add(weir *w, struct plan *plan, struct weir_error *reterr)
{
    struct remote_engine **end = &w->engines;

    for (size_t i = 0; i < plan->backends_n; i++) {
        struct remote_engine *engine = os_alloc(1, sizeof(*engine));
        int r;

        if (!engine)
            return -ENOMEM;
        engine->w = w;
        remote_log_init(&engine->log, &w->log);
        pthread_mutex_init(&engine->lock, NULL);
        pthread_mutex_init(&engine->start_lock, NULL);
        *end = engine;
        end = &engine->next;
        r = remote_engine_open(engine, &plan->backends[i], reterr);
        if (r < 0)
            return r;
    }
    return 0;
}

void remote_engines_stop(weir *w)
{
    for (struct remote_engine *engine = w->engines; engine; engine = engine->next) {
        if (engine->thread)
            engine->backend->stop(engine->connection);
        os_thread_join(engine->thread);
        engine->thread = NULL;
        for (uint32_t i = 0; i < REMOTE_WORKERS; i++) {
            os_thread_join(engine->workers[i].thread);
            engine->workers[i].thread = NULL;
        }
    }
}

void remote_engines_free(weir *w)
{
    while (w->engines) {
        struct remote_engine *engine = w->engines;

        w->engines = engine->next;
        remote_engine_free(engine);
    }
}

struct remote_engine *remote_engine_find(const weir *w, const char *name)
{
    struct remote_engine *engine = w->engines;

    while (engine && strcmp(engine->plan.name, name) != 0)
        engine = engine->next;
    return engine;
}

const char *remote_engine_name(const weir_set *set)
{
    const struct remote_set *remote = (const struct remote_set *)set;

    return remote->engine ? remote->engine->plan.name : "";
}

static void remote_engine_main(void *argument)
{
    const struct remote_engine *engine = argument;

    engine->backend->run(engine->connection);
}

int remote_engine_check(const struct remote_engine *engine, uint64_t timeout_ns,
                        struct weir_error *ret)
{
    struct weir_reason reason = {.size = sizeof(reason), .parameter = UINT32_MAX};
    int r = engine->backend->check(engine->connection, remote_until_ns(timeout_ns), &reason);

    reason.message[sizeof(reason.message) - 1] = '\0';
    return error_set(ret, r < 0 ? r : 0, "%s", reason.message);
}

/* Not when the instance is opened: a program may fork before its first request. */
int remote_engine_start(struct remote_engine *engine)
{
    int r = 0;

    if (engine->w->is_offline)
        return -EHOSTUNREACH;
    pthread_mutex_lock(&engine->start_lock);
    if (!engine->thread)
        r = os_thread_start(&engine->thread, remote_engine_main, engine, "weir-backend");
    pthread_mutex_unlock(&engine->start_lock);
    return r;
}
