/* SPDX-License-Identifier: MIT */
/* Instances: opening, closing, clocks and logging. */
#include "api/instance.h"

#include "api/acquisition.h"
#include "api/pool.h"
#include "base/clock_tsc.h"
#include "os/os.h"
#include "peer/participant.h"
#include "peer/peer_cleanup.h"
#include "shm/segment_dir_choose.h"
#include "wait/cq.h"
#include "wait/peer_events.h"
#include "wait/timer_thread.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Times stay below the marker of records; 292 years are enough. */
#define CLOCK_MAX (GRANT_MARKER - 1)

void instance_ref(weir *w, uint64_t n)
{
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

            ctx->cache = acquisition_next(acquisition);
            os_free(acquisition);
        }
        thread_ctx_free(ctx);
    }
}

static weir *instance_free(weir *w)
{
    peer_events_close(&w->timer, 0);
    instance_free_ctxs(w);
    registry_free(w);
    if (w->plugins)
        plugin_search_free(w->plugins);
    timer_free(&w->timer);
    cq_free_all(w);
    region_close(&w->region);
    if (w->fork_page)
        os_wipe_page_free(w->fork_page);
    pthread_mutex_destroy(&w->lock);
    pthread_mutex_destroy(&w->spare_lock);
    os_free(w->process_dir);
    clock_tsc_free(w->tsc);
    os_free(w);
    return NULL;
}

void instance_unref(weir *w, uint64_t n)
{
    if (atomic_fetch_sub_explicit(&w->references, n, memory_order_acq_rel) == n)
        instance_free(w);
}

void instance_lock(weir *w)
{
    pthread_mutex_lock(&w->spare_lock);
    pthread_mutex_lock(&w->lock);
}

void instance_unlock(weir *w)
{
    pthread_mutex_unlock(&w->lock);
    pthread_mutex_unlock(&w->spare_lock);
}

/* Reads the injected clock. If it goes back, the latest reading holds. */
static uint64_t instance_now_injected(weir *w)
{
    uint64_t now = w->clock.now_ns(w->clock.userdata);
    uint64_t seen = atomic_load(&w->clock_last_ns);

    if (now > CLOCK_MAX)
        now = CLOCK_MAX;
    while (now > seen && !atomic_compare_exchange_weak(&w->clock_last_ns, &seen, now))
        ;
    return now > seen ? now : seen;
}

void instance_report_tsc_loss(weir *w)
{
    static const char *const why[] = {
        [TSC_WENT_BACK] = "the time stamp counter went back",
        [TSC_LOST_TIME] = "the time stamp counter was too slow",
        [TSC_SHARED] = "there is a set that processes share",
    };

    if (w->tsc && clock_tsc_state(w->tsc) != TSC_OK &&
        !atomic_exchange(&w->tsc_loss_reported, true))
        instance_log(w, WEIR_LOG_WARNING, "clock: tsc is given up for CLOCK_MONOTONIC: %s",
                     why[clock_tsc_state(w->tsc)]);
}

uint64_t instance_now_slow(weir *w)
{
    return w->clock.now_ns ? instance_now_injected(w) : clock_tsc_now(w->tsc);
}

uint64_t instance_now_fresh(weir *w)
{
    if (w->clock.now_ns)
        return instance_now_injected(w);
    if (!w->tsc)
        return os_now_ns();
    return clock_tsc_now_fresh(w->tsc);
}

int64_t instance_wall_offset_ns(weir *w)
{
    if (!w->clock.now_ns)
        return os_wall_offset_ns();
    return w->clock.wall_offset_ns ? w->clock.wall_offset_ns(w->clock.userdata) : 0;
}

void instance_log(weir *w, enum weir_log_level level, const char *format, ...)
{
    char message[512];
    va_list arguments;

    if (!w->log)
        return;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    w->log(w->userdata, level, message);
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
        return "the kernel does not go by the time stamp counter";
    case -ETIME:
        return "the time stamp counter and CLOCK_MONOTONIC do not go together";
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
    r = clock_tsc_new(&w->tsc);
    w->reads_system_clock = r < 0;
    if (r < 0 && r != -ENOMEM) {
        instance_log(w, WEIR_LOG_WARNING, "clock: tsc cannot be had, it is CLOCK_MONOTONIC: %s",
                     instance_tsc_refusal(r));
        r = 0;
    }
    return r;
}

static int instance_apply_config(weir *w, const struct weir_options *options, const char *text,
                                 size_t size, struct complaints *complaints)
{
    struct instance_pool *pool;
    struct plan plan = {0};
    struct weir_error error = {0};
    int r = plan_from_text(text, size, w->plugins, &plan, complaints);

    if (r == 0 && options->only)
        plan_select(&plan, options->only);
    if (r == 0)
        r = segment_dir_choose(options, plan.process_dir, complaints, &w->process_dir);
    if (r == 0)
        r = instance_choose_clock(w, options, plan.clock);
    if (r == 0) {
        instance_lock(w);
        r = registry_add_plan(w, &plan, &pool, &error);
        instance_unlock(w);
        if (r == 0)
            peer_reap_crowded(w, 0);
    }
    plan_free(&plan);
    if (!error.code)
        return r;
    complaint_add(complaints, r, (struct mark){0, 0}, "%s", error.message);
    return complaints_report(complaints);
}

static int instance_configure(weir *w, const struct weir_options *options,
                              struct complaints *complaints)
{
    const char *file = options->file;
    char *text;
    size_t size;
    int r;

    if (options->text) {
        w->configured = true;
        complaints->file = options->text_name ? options->text_name : "<text>";
        return instance_apply_config(w, options, options->text, strlen(options->text), complaints);
    }
    if (!file)
        file = os_getenv("WEIR_CONFIG");
    if (!file) {
        r = segment_dir_choose(options, NULL, complaints, &w->process_dir);
        return r == 0 ? instance_choose_clock(w, options, WEIR_CLOCK_DEFAULT) : r;
    }
    w->configured = true;
    complaints->file = file;
    r = os_file_read(file, CONFIG_TEXT_MAX, &text, &size);
    if (r < 0) {
        complaint_add(complaints, r, (struct mark){0, 0}, "cannot be read: %s",
                      strerrordesc_np(-r));
        return complaints_report(complaints);
    }
    r = instance_apply_config(w, options, text, size, complaints);
    os_free(text);
    return r;
}

/* Error-checking: thread_ctx_lock_spare() relies on EDEADLK. */
static void instance_init_spare_lock(weir *w)
{
    pthread_mutexattr_t attributes;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&w->spare_lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

static int instance_build(weir *w, const struct weir_options *options)
{
    int r;

    pthread_mutex_init(&w->lock, NULL);
    instance_init_spare_lock(w);
    timer_init(&w->timer, w);
    w->timer_advance_ns = options->clock ? 0 : options->timer_advance_ns;
    w->timer.advance_ns = w->timer_advance_ns;
    w->references = 1;
    w->log = options->log;
    w->userdata = options->userdata;
    w->seed = options->seed ? options->seed : os_random();
    w->private_only = (options->flags & WEIR_OPEN_APART) != 0;
    w->observer_only = (options->flags & WEIR_OPEN_EXISTING) != 0;
    if (options->clock)
        w->clock = *options->clock;
    w->reads_system_clock = !options->clock;
    w->fork_page = os_wipe_page_alloc();
    if (!w->fork_page)
        return -ENOMEM;
    w->fork_page[0] = 1;
    r = region_open(&w->region);
    if (r == 0)
        r = plugin_search_new(&w->plugins, options->plugin_dirs);
    if (r == 0 && !(w->spare_ctx = thread_ctx_new(w)))
        r = -ENOMEM;
    return r;
}

static int instance_check_options(const struct weir_options *options, struct weir_error *reterr)
{
    const uint32_t known = WEIR_OPEN_APART | WEIR_OPEN_EXISTING;

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
        return error_set(reterr, -EINVAL, "options.clock_source is %d, which is none",
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
        return error_set(reterr, -EINVAL, "there is nowhere to put the instance");
    r = instance_check_options(options, reterr);
    if (r < 0)
        return r;
    complaints.report = options->complaint;
    complaints.userdata = options->userdata;
    w = os_alloc(1, sizeof(*w));
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
    instance_report_tsc_loss(w);
    *ret = w;
    return 0;
}

/* ---- weir_close ---- */

static void instance_shutdown_sets(weir *w)
{
    /* No set is added once `closed` was set under the lock. */
    for (uint32_t i = 0; i < w->sets_n; i++) {
        weir_set *set = instance_set(w, i);
        struct thread_ctx *ctx;

        /* No waiter yet; a thread that prepares the set later sees `closed` itself. */
        if (!atomic_load(&set->spare_prepared))
            continue;
        ctx = thread_ctx_borrow(set);
        set_shutdown(ctx, set);
        thread_ctx_return(ctx);
    }
}

static void instance_await_blocked(weir *w)
{
    const uint32_t *futex = (const uint32_t *)(uintptr_t)&w->blocked_n;
    uint32_t blocked;

    while ((blocked = atomic_load(&w->blocked_n)) != 0)
        os_futex_wait(futex, blocked, WEIR_FOREVER);
}

static weir *instance_close_in_child(weir *w)
{
    peer_events_close_in_child(&w->timer);
    wake_fd_close(&w->timer.wake_fd);
    for (uint32_t i = 0; i < w->sets_n; i++)
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
    instance_lock(w);
    pthread_mutex_lock(&w->timer.lock);
    atomic_store(&w->closed, 1);
    pthread_mutex_unlock(&w->timer.lock);
    instance_unlock(w);
    instance_shutdown_sets(w);
    instance_await_blocked(w);
    timer_thread_stop(w);
    thread_ctx_detach(w);
    instance_unref(w, 1);
    return NULL;
}

uint64_t weir_now(weir *w)
{
    instance_report_tsc_loss(w);
    return instance_now(w);
}

enum weir_clock_source weir_clock_in_use(weir *w)
{
    if (w->clock.now_ns)
        return WEIR_CLOCK_INJECTED;
    return w->tsc && clock_tsc_state(w->tsc) == TSC_OK ? WEIR_CLOCK_TSC : WEIR_CLOCK_MONOTONIC;
}

int weir_tick(weir *w)
{
    return instance_is_forked(w) ? -ECHILD : timer_run(&w->timer) + cq_run_all(w);
}

const char *weir_version(void)
{
    return WEIR_VERSION;
}
