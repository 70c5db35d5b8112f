/* SPDX-License-Identifier: MIT */
/* Instances: opening, closing, clocks and logging. */
#include "api/instance.h"

#include "api/pool.h"
#include "api/publisher.h"
#include "base/clock.h"
#include "base/invariant.h"
#include "os/os.h"
#include "peer/peer.h"
#include "remote/remote.h"
#include "set/events.h"
#include "set/set_ops.h"
#include "shm/participant.h"
#include "shm/segment_dir.h"
#include "wait/cq.h"
#include "wait/direct_wait.h"
#include <errno.h>
#include <string.h>

void instance_ref(weir *w, uint64_t n)
{
    WEIR_INVARIANT(atomic_load_explicit(&w->references, memory_order_relaxed) > 0);
    /* Relaxed: the caller has a reference already. */
    atomic_fetch_add_explicit(&w->references, n, memory_order_relaxed);
}

static void instance_free_ctxs(weir *w)
{
    while (w->thread_ctxs) {
        struct thread_ctx *ctx = w->thread_ctxs;

        w->thread_ctxs = ctx->next;
        while (ctx->cache) {
            weir_acquisition *acquisition = ctx->cache;

            ctx->cache = acquisition->next;
            os_free(acquisition);
        }
        thread_ctx_free(ctx);
    }
}

/* With `inherits`, a thread that has a lock gets the priority of those that wait for it, if the
 * kernel can do that. The spare lock is recursive: a callback of the program may run while its
 * thread has it. */
static void instance_init_locks(weir *w, bool inherits)
{
    pthread_mutexattr_t attributes;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, inherits ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE);
    if (pthread_mutex_init(&w->lock, &attributes) != 0) {
        pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_NONE);
        pthread_mutex_init(&w->lock, &attributes);
    }
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&w->spare_lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

static void instance_destroy_locks(weir *w)
{
    pthread_mutex_destroy(&w->lock);
    pthread_mutex_destroy(&w->spare_lock);
}

/* The publishing thread has an ordinary priority, and takes the locks of threads that may be
 * real-time ones. No other thread knows the instance yet. */
static void instance_prepare_publishing(weir *w)
{
    instance_destroy_locks(w);
    instance_init_locks(w, true);
}

static weir *instance_free(weir *w)
{
    peer_events_close(&instance_wait(w)->timer);
    direct_waits_close(instance_wait(w));
    remote_engines_stop(w);
    registry_free(w);
    remote_engines_free(w);
    instance_free_ctxs(w);
    plugin_search_free(instance_of(w)->plugins);
    deadline_heap_free(&instance_wait(w)->timer.heap);
    cq_free_all(w);
    region_close(&w->region);
    if (w->state)
        os_wipe_page_free(w->state);
    instance_destroy_locks(w);
    os_free(w->process_dir);
    os_free(w->clock.tsc);
    os_free(w);
    return NULL;
}

void instance_unref(weir *w, uint64_t n)
{
    WEIR_INVARIANT(atomic_load_explicit(&w->references, memory_order_relaxed) >= n);
    if (atomic_fetch_sub_explicit(&w->references, n, memory_order_acq_rel) == n)
        instance_free(w);
}

void instance_lock(weir *w)
{
    thread_ctx_spare_lock(w);
    pthread_mutex_lock(&w->lock);
}

void instance_unlock(weir *w)
{
    pthread_mutex_unlock(&w->lock);
    thread_ctx_spare_unlock(w);
}

/* ---- weir_open ---- */

static const char *instance_tsc_refusal(int error)
{
    switch (error) {
    case -EOPNOTSUPP:
        return "the processor has no time stamp counter that runs at one rate";
    case -EPERM:
        return "the process may not read the time stamp counter";
    case -ENODEV:
        return "the kernel does not use the time stamp counter";
    case -ETIME:
        return "the time stamp counter and CLOCK_MONOTONIC disagree";
    default:
        return strerrordesc_np(-error);
    }
}

/* Chooses the clock by the options, else by the configuration. Without a usable TSC the system
 * clock is read each time. */
static int instance_choose_clock(weir *w, const struct weir_options *options,
                                 enum weir_clock_source configured)
{
    enum weir_clock_source source = options->clock_source ? options->clock_source : configured;
    int r;

    if (source != WEIR_CLOCK_TSC || options->clock)
        return 0;
    r = clock_tsc_new(&w->clock.tsc);
    w->clock.reads_system = r < 0;
    if (r < 0 && r != -ENOMEM) {
        log_write(&w->log, WEIR_LOG_WARNING,
                  "clock: tsc is not available, CLOCK_MONOTONIC is used: %s",
                  instance_tsc_refusal(r));
        r = 0;
    }
    return r;
}

/* Reads an environment variable that is 0, 1, or not set: then, and without one, false. Returns 0
 * or the complaint. */
static int instance_read_switch(const char *name, struct complaints *complaints, bool *ret)
{
    const char *variable = os_getenv(name);

    *ret = variable && strcmp(variable, "1") == 0;
    if (!variable || !*variable || *ret || strcmp(variable, "0") == 0)
        return 0;
    return complaint_add(complaints, -EINVAL, (struct mark){0, 0}, "%s is `%s`: it takes 0 or 1",
                         name, error_text(variable).text);
}

/* Checks that there is a configuration if the program or the environment requires one. */
static int instance_require_config(const struct weir_options *options,
                                   struct complaints *complaints)
{
    bool by_variable;
    int r = instance_read_switch("WEIR_REQUIRE_CONFIG", complaints, &by_variable);

    if (r < 0 || options->text || complaints->file[0] != '\0')
        return r;
    if (!by_variable && !(options->flags & WEIR_OPEN_REQUIRE_CONFIG))
        return 0;
    return complaint_add(
        complaints, -ENOENT, (struct mark){0, 0},
        "%s requires a configuration, and there is none: the program names neither "
        "a file nor a text, and the environment variable WEIR_CONFIG is not set, "
        "or ignored since the process is privileged",
        by_variable ? "WEIR_REQUIRE_CONFIG=1" : "WEIR_OPEN_REQUIRE_CONFIG");
}

static void instance_log_config(const weir *w, const char *file, const struct plan *plan)
{
    if (instance_of(w)->configured)
        log_write(&w->log, WEIR_LOG_INFO, "%s: sets: %zu, pools: %zu", file, plan->sets_n,
                  plan->pools_n);
    else
        log_write(&w->log, WEIR_LOG_INFO, "no configuration: WEIR_CONFIG is not set");
}

struct instance_warner {
    const weir *w;
    const struct weir_options *options;
};

void instance_pass_warning(const weir *w, const struct weir_options *options,
                           const struct weir_error *warning)
{
    if (options->complaint && options->flags & WEIR_OPEN_WARNINGS)
        options->complaint(options->userdata, warning);
    log_write(&w->log, WEIR_LOG_INFO, "%s:%u:%u: %s", warning->file, warning->line, warning->column,
              warning->message);
}

bool instance_wants_warnings(const weir *w, const struct weir_options *options)
{
    return options->flags & WEIR_OPEN_WARNINGS || w->log.level_max >= WEIR_LOG_INFO;
}

static void instance_warn(void *userdata, const struct weir_error *warning)
{
    const struct instance_warner *warner = userdata;

    instance_pass_warning(warner->w, warner->options, warning);
}

/* Reads the configuration, and reports what is wrong with it, or else what is odd. */
static int instance_plan(weir *w, const struct weir_options *options, struct complaints *complaints,
                         struct plan *ret)
{
    struct instance_warner warner = {w, options};
    struct complaints warnings = {
        .report = instance_warn, .userdata = &warner, .are_warnings = true};
    bool publishes = false;
    struct config_ast ast;
    int r = config_yaml_load(options, &ast, complaints);

    warnings.file = complaints->file;
    complaints->warnings = instance_wants_warnings(w, options) ? &warnings : NULL;
    if (r == 0)
        r = instance_require_config(options, complaints);
    if (r == 0)
        r = instance_read_switch("WEIR_PUBLISH", complaints, &publishes);
    r = plan_resolve(r, &ast, instance_of(w)->plugins, NULL, ret);
    if (publishes && ret->publish == WEIR_DEFAULT)
        ret->publish = WEIR_YES;
    complaints->warnings = NULL;
    complaints_report(&warnings);
    instance_of(w)->configured = options->text || complaints->file[0] != '\0';
    return r;
}

static int instance_configure(weir *w, const struct weir_options *options,
                              struct complaints *complaints)
{
    struct instance_pool *pool;
    struct plan plan;
    struct weir_error error = {0};
    int r = instance_plan(w, options, complaints, &plan);

    if (r == 0 && plan.publish == WEIR_YES)
        instance_prepare_publishing(w);
    if (r == 0 && options->only)
        plan_select(&plan, options->only);
    if (r == 0)
        r = segment_dir_choose(options, plan.process_dir, complaints, &w->process_dir);
    if (r == 0)
        r = instance_choose_clock(w, options, plan.clock);
    if (r == 0) {
        instance_log_config(w, complaints->file, &plan);
        instance_lock(w);
        r = remote_engines_add(w, &plan, &error);
        if (r == 0)
            r = registry_add_plan(w, &plan, true, &pool, &error);
        instance_unlock(w);
        if (r == 0)
            peer_reap_crowded(w, 0);
    }
    if (r == 0 && plan.publish == WEIR_YES)
        r = publisher_open(w, options);
    plan_free(&plan);
    if (!error.code)
        return r;
    complaint_add(complaints, r, (struct mark){0, 0}, "%s", error.message);
    return complaints_report(complaints);
}

static int instance_build(weir *w, const struct weir_options *options)
{
    const uint64_t random = os_random();
    int r;

    instance_init_locks(w, false);
    timer_init(&instance_wait(w)->timer, w, 0);
    instance_wait(w)->timer_advance_ns = options->clock ? 0 : options->timer_advance_ns;
    instance_wait(w)->timer.advance_ns = instance_wait(w)->timer_advance_ns;
    atomic_store_explicit(&w->references, 1, memory_order_seq_cst);
    log_open(&w->log, options);
    w->seed = options->seed ? options->seed : random;
    w->nonce_seed = random;
    w->private_only = (options->flags & WEIR_OPEN_APART) != 0;
    w->leaves_sigbus = (options->flags & WEIR_OPEN_NO_HANDLER) != 0;
    w->observer_only = (options->flags & WEIR_OPEN_EXISTING) != 0;
    w->is_offline = (options->flags & WEIR_OPEN_OFFLINE) != 0;
    if (options->clock)
        w->clock.injected = *options->clock;
    w->clock.reads_system = !options->clock;
    wall_watch_init(w);
    w->state = os_wipe_page_alloc();
    if (!w->state)
        return -ENOMEM;
    atomic_store_explicit(w->state, INSTANCE_HERE, memory_order_seq_cst);
    r = region_open(&w->region);
    if (r == 0)
        r = plugin_search_new(&instance_of(w)->plugins, options->plugin_dirs);
    if (r == 0 && !(w->spare_ctx = thread_ctx_new(w)))
        r = -ENOMEM;
    return r;
}

int instance_check_options(const struct weir_options *options, struct weir_error *reterr)
{
    const uint32_t known = WEIR_OPEN_APART | WEIR_OPEN_EXISTING | WEIR_OPEN_NO_HANDLER |
                           WEIR_OPEN_REQUIRE_CONFIG | WEIR_OPEN_WARNINGS | WEIR_OPEN_OFFLINE |
                           WEIR_OPEN_UNPUBLISHED;

    if (options->size < sizeof(*options))
        return error_set(reterr, -EINVAL,
                         "options.size is %zu; it must be sizeof(struct "
                         "weir_options), %zu",
                         options->size, sizeof(*options));
    if (options->timer_advance_ns > WEIR_TIMER_ADVANCE_MAX_NS)
        return error_set(reterr, -EINVAL, "options.timer_advance_ns is more than 1 ms");
    if (options->flags & ~known)
        return error_set(reterr, -EINVAL, "options.flags 0x%x are not known",
                         options->flags & ~known);
    if (options->file && options->text)
        return error_set(reterr, -EINVAL, "options name both a file and a text");
    if (options->clock &&
        (options->clock->size < sizeof(*options->clock) || !options->clock->now_ns))
        return error_set(reterr, -EINVAL, "options.clock has no now_ns or a wrong size");
    if ((uint32_t)options->clock_source > WEIR_CLOCK_TSC)
        return error_set(reterr, -EINVAL, "options.clock_source %d is not known",
                         (int)options->clock_source);
    if (options->clock && options->clock_source)
        return error_set(reterr, -EINVAL, "options name both a clock and a clock_source");
    return 0;
}

int weir_open(weir **ret, const struct weir_options *options, struct weir_error *reterr)
{
    static const struct weir_options none = {.size = sizeof(none)};
    struct complaints complaints = {.file = ""};
    weir *w;
    int r;

    options = options ? options : &none;
    if (!ret)
        return error_set(reterr, -EINVAL, "`ret` is NULL");
    r = instance_check_options(options, reterr);
    if (r < 0)
        return r;
    complaints.report = options->complaint;
    complaints.userdata = options->userdata;
    w = os_alloc(1, sizeof(struct instance));
    if (!w)
        return error_set(reterr, -ENOMEM, "out of memory");
    r = instance_build(w, options);
    if (r == 0)
        r = instance_configure(w, options, &complaints);
    if (r < 0) {
        instance_free(w);
        if (!complaints.first.complaints)
            return error_set(reterr, r, "%s", strerrordesc_np(-r));
        if (reterr)
            *reterr = complaints.first;
        return r;
    }
    clock_report_tsc_loss(&w->clock, &w->log);
    *ret = w;
    return 0;
}

/* ---- weir_close ---- */

static void instance_shutdown_sets(weir *w)
{
    WEIR_INVARIANT(instance_is_closed(w));
    /* No set is added once INSTANCE_CLOSED was set under the lock. */
    for (uint32_t i = 0; i < atomic_load_explicit(&w->sets_n, memory_order_seq_cst); i++) {
        weir_set *set = instance_set(w, i);
        struct thread_ctx *ctx;

        /* No waiter yet; a thread that prepares the set later sees INSTANCE_CLOSED itself. */
        if (!atomic_load_explicit(&set->spare_prepared, memory_order_seq_cst))
            continue;
        ctx = thread_ctx_borrow(set);
        set->ops->shut_down(ctx, set);
        thread_ctx_return(ctx);
    }
}

static void instance_await_blocked(weir *w)
{
    const uint32_t *futex = (const uint32_t *)(uintptr_t)&instance_wait(w)->blocked_n;
    uint32_t blocked;

    while ((blocked = atomic_load_explicit(&instance_wait(w)->blocked_n, memory_order_seq_cst)) !=
           0)
        os_futex_wait(futex, false, blocked, WEIR_FOREVER);
}

static weir *instance_close_in_child(weir *w)
{
    peer_events_close_in_child(&instance_wait(w)->timer);
    direct_waits_close_in_child(instance_wait(w));
    wall_watch_close(w);
    wake_fd_close(&instance_wait(w)->timer.wake_fd);
    publisher_close(w, true);
    for (uint32_t i = 0; i < atomic_load_explicit(&w->sets_n, memory_order_seq_cst); i++)
        if (instance_set(w, i)->participant)
            participant_close_in_child(instance_set(w, i)->participant);
    return NULL;
}

weir *weir_close(weir *w)
{
    if (!w)
        return NULL;
    if (instance_is_forked(w))
        return instance_close_in_child(w);
    publisher_close(w, false);
    instance_lock(w);
    lock_take(&instance_wait(w)->timer.lock);
    atomic_fetch_or_explicit(w->state, INSTANCE_CLOSED, memory_order_seq_cst);
    lock_release(&instance_wait(w)->timer.lock);
    instance_unlock(w);
    instance_shutdown_sets(w);
    instance_await_blocked(w);
    timer_thread_stop(w);
    wait_group_withdraw(w);
    events_end(w);
    thread_ctx_detach(w);
    instance_unref(w, 1);
    return NULL;
}

uint64_t weir_now(weir *w)
{
    if (!w)
        return 0;
    clock_report_tsc_loss(&w->clock, &w->log);
    return clock_now_ns(&w->clock);
}

enum weir_clock_source weir_clock_in_use(weir *w)
{
    if (!w)
        return WEIR_CLOCK_DEFAULT;
    if (w->clock.injected.now_ns)
        return WEIR_CLOCK_INJECTED;
    return w->clock.tsc && clock_tsc_state(w->clock.tsc) == TSC_OK ? WEIR_CLOCK_TSC
                                                                   : WEIR_CLOCK_MONOTONIC;
}

int weir_tick(weir *w)
{
    if (!w)
        return -EINVAL;
    return instance_is_forked(w) ? -ECHILD : timer_run_all(w);
}

const char *weir_version(void)
{
    return WEIR_VERSION;
}

int weir_due_at(weir *w, uint64_t *ret_ns)
{
    if (!w || !ret_ns)
        return -EINVAL;
    if (instance_is_forked(w))
        return -ECHILD;
    *ret_ns = timer_next_of_all(w);
    return 0;
}
