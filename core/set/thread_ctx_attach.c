/* SPDX-License-Identifier: MIT */
/* Makes, binds and frees thread contexts, one per thread and instance. */
#include "set/thread_ctx.h"

#include "base/hash.h"
#include "base/invariant.h"
#include "limit/counters.h"
#include "os/os.h"
#include "set/hooks.h"
#include "set/instance_base.h"
#include "set/lease.h"
#include "shm/participant.h"
#include "shm/segment.h"
#include "state/wait_class.h"
#include <errno.h>
#include <string.h>

_Thread_local struct thread_ctx *thread_ctx_self __attribute__((tls_model("initial-exec")));

static pthread_key_t thread_ctx_key;
static pthread_once_t thread_ctx_key_once = PTHREAD_ONCE_INIT;
static bool thread_ctx_key_ready;

/* Takes the references of a context that is not used from now on: its credits, and those of the
 * acquisitions that stay in its cache. Returns how many they are. */
static uint64_t thread_ctx_take_references(struct thread_ctx *ctx)
{
    uint64_t references = ctx->credits + ctx->cache_n;

    ctx->credits = 0;
    return references;
}

static void thread_ctx_unbind(struct thread_ctx *ctx)
{
    weir *w = ctx->w;
    uint64_t references;

    /* The forked child may lack the thread that holds a lock; it reuses nothing. */
    if (instance_is_forked(w))
        return;
    WEIR_INVARIANT(ctx != w->spare_ctx);
    lease_return_all(ctx);
    references = thread_ctx_take_references(ctx) + 1;
    pthread_mutex_lock(&w->lock);
    ctx->idle_next = w->idle_ctxs;
    w->idle_ctxs = ctx;
    pthread_mutex_unlock(&w->lock);
    instance_unref(w, references);
}

/* Gives back the calling thread's contexts; or only those of closed instances, which they keep in
 * memory. */
static void thread_ctx_leave(bool only_closed)
{
    struct thread_ctx **at = &thread_ctx_self;

    while (*at) {
        struct thread_ctx *ctx = *at;

        if (only_closed && !instance_is_closed(ctx->w)) {
            at = &ctx->thread_next;
            continue;
        }
        *at = ctx->thread_next;
        thread_ctx_unbind(ctx);
    }
}

static void thread_ctx_on_exit(void *unused)
{
    (void)unused;
    thread_ctx_leave(false);
}

static void thread_ctx_make_key(void)
{
    thread_ctx_key_ready = pthread_key_create(&thread_ctx_key, thread_ctx_on_exit) == 0;
}

struct thread_ctx *thread_ctx_new(weir *w)
{
    struct thread_ctx *ctx = os_alloc_aligned(_Alignof(struct thread_ctx), sizeof(*ctx));
    uint64_t nonce_seed;

    if (!ctx)
        return NULL;
    ctx->w = w;
    ctx->unit = version_new_thread(&w->region);
    if (!ctx->unit) {
        os_free(ctx);
        return NULL;
    }
    /* Two nonces of one key table are equal by chance alone. A state that is itself such a number
     * begins anywhere in the generator's sequence; multiples of its step would begin side by side.
     * The kernel's random numbers would make this a cancellation point. */
    nonce_seed = w->nonce_seed ^ ctx->unit;
    ctx->nonce_state = splitmix64_next(&nonce_seed);
    ctx->next = w->thread_ctxs;
    w->thread_ctxs = ctx;
    return ctx;
}

/* Counters in a segment stay there; the magazine is the context's own then. */
void thread_ctx_unprepare(struct thread_ctx *ctx, uint32_t set_number)
{
    struct thread_set_ctx *set_ctx;

    if (!thread_ctx_is_prepared(ctx, set_number))
        return;
    set_ctx = &ctx->set_ctxs[set_number];
    if (set_ctx->in_segment)
        os_free(set_ctx->magazine);
    else
        os_free(set_ctx->counters);
    *set_ctx = (struct thread_set_ctx){0};
}

void thread_ctx_free(struct thread_ctx *ctx)
{
    for (uint32_t i = 0; i < ctx->set_ctxs_n; i++)
        thread_ctx_unprepare(ctx, i);
    for (uint32_t i = 0; i <= RECORD_UNITS_MAX; i++)
        os_free(ctx->magazines[i]);
    os_free(ctx->set_ctxs);
    os_free(ctx->content);
    os_free(ctx);
}

static struct thread_ctx *thread_ctx_bind(weir *w)
{
    struct thread_ctx *ctx;

    pthread_once(&thread_ctx_key_once, thread_ctx_make_key);
    if (!thread_ctx_key_ready)
        return NULL;
    thread_ctx_leave(true);
    pthread_mutex_lock(&w->lock);
    ctx = w->idle_ctxs;
    if (ctx)
        w->idle_ctxs = ctx->idle_next;
    else
        ctx = thread_ctx_new(w);
    pthread_mutex_unlock(&w->lock);
    if (!ctx)
        return NULL;
    WEIR_INVARIANT(!ctx->credits && ctx != w->spare_ctx);
    ctx->thread = os_thread_id();
    ctx->thread_next = thread_ctx_self;
    thread_ctx_self = ctx;
    instance_ref(w, ctx->cache_n + 1);
    /* Any value but NULL makes the destructor run. */
    if (pthread_setspecific(thread_ctx_key, ctx) != 0) {
        thread_ctx_detach(w);
        return NULL;
    }
    return ctx;
}

/* Returns the calling thread's context of this instance, moved to the front; or NULL. */
static struct thread_ctx *thread_ctx_lookup(const weir *w)
{
    for (struct thread_ctx **at = &thread_ctx_self; *at; at = &(*at)->thread_next) {
        struct thread_ctx *ctx = *at;

        if (ctx->w != w)
            continue;
        *at = ctx->thread_next;
        ctx->thread_next = thread_ctx_self;
        thread_ctx_self = ctx;
        return ctx;
    }
    return NULL;
}

void thread_ctx_detach(weir *w)
{
    struct thread_ctx *ctx = thread_ctx_lookup(w);

    if (ctx) {
        thread_ctx_self = ctx->thread_next;
        thread_ctx_unbind(ctx);
    }
}

static int thread_ctx_grow_sets(struct thread_ctx *ctx, uint32_t number)
{
    uint32_t n = ctx->set_ctxs_n ? 2 * ctx->set_ctxs_n : 8;
    struct thread_set_ctx *grown;

    if (number < ctx->set_ctxs_n)
        return 0;
    if (n <= number)
        n = number + 1;
    grown = os_alloc(n, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    if (ctx->set_ctxs_n)
        memcpy(grown, ctx->set_ctxs, ctx->set_ctxs_n * sizeof(*grown));
    os_free(ctx->set_ctxs);
    ctx->set_ctxs = grown;
    ctx->set_ctxs_n = n;
    return 0;
}

/* All copies are one allocation. */
static int thread_ctx_grow_content(struct thread_ctx *ctx, uint32_t words, uint32_t copies)
{
    uint64_t *content;

    if (words <= ctx->content_capacity && copies <= ctx->copies)
        return 0;
    words = words > ctx->content_capacity ? words : ctx->content_capacity;
    copies = copies > ctx->copies ? copies : ctx->copies;
    content = os_alloc(words, copies * sizeof(*content));
    if (!content)
        return -ENOMEM;
    os_free(ctx->content);
    ctx->content = content;
    ctx->saved_states = content + words;
    for (uint32_t i = 0; i < 2 && copies > 2; i++)
        ctx->converted[i] = content + (2 + i) * (size_t)words;
    ctx->content_capacity = words;
    ctx->copies = copies;
    return 0;
}

/* Claims a thread context in the set's segment. The spare context, by which the process cleans up
 * after others, takes one over from a dead process if there is no other. */
static int thread_ctx_join_shared(struct thread_ctx *ctx, weir_set *set)
{
    struct thread_set_ctx set_ctx = {.magazine = os_alloc(1, sizeof(struct magazine)),
                                     .in_segment = true};
    uint32_t i = 0;
    int r;

    if (!set_ctx.magazine)
        return -ENOMEM;
    if (ctx == set->w->spare_ctx)
        r = participant_claim_spare_thread(set->participant, &i, &set_ctx.is_inherited);
    else
        r = participant_claim_thread(set->participant, &i);
    set_ctx.unit = segment_thread_unit(set->participant->segment, i);
    set_ctx.counters = segment_thread_counters(set->participant->segment, i);
    if (r < 0) {
        os_free(set_ctx.magazine);
        return r;
    }
    WEIR_INVARIANT(set_ctx.counters && set_ctx.unit);
    if (set->limits.n) /* its former process may have died */
        atomic_store_explicit(&set_ctx.counters->limits[0].leased, 0, memory_order_relaxed);
    ctx->set_ctxs[set->number] = set_ctx;
    return 0;
}

/* Returns the content words that a thread has to have room for. Later definitions of a shared set
 * have blocks of the same size. */
static uint32_t thread_ctx_content(const weir_set *set)
{
    if (set_is_shared(set))
        return (uint32_t)block_capacity(set->block_class);
    return set->head_unit ? set_content_max(set) : 0;
}

/* Reserves what all sets of this size need. */
static int thread_ctx_reserve(struct thread_ctx *ctx, const weir_set *set)
{
    struct magazine **magazine = &ctx->magazines[set->record_units];
    const weir_set *before = set_definition(set); /* of a key set that is met first as well */
    uint32_t words = thread_ctx_content(set),
             copies = before->is_keyed && set_is_shared(set) ? 4 : 2;

    WEIR_INVARIANT(set->record_units > 0 && set->record_units <= RECORD_UNITS_MAX);
    /* States of a subject go through those of every definition before. */
    while (before->is_keyed && before->origin) {
        before = before->origin->predecessor;
        words = set_content_max(before) > words ? set_content_max(before) : words;
        copies = 4;
    }
    if (thread_ctx_grow_content(ctx, words, copies) < 0)
        return -ENOMEM;
    if (set_is_shared(set))
        return 0;
    if (set->head_unit && version_add_own_block(set->region, ctx->unit, set->block_class) < 0)
        return -ENOMEM;
    if (!*magazine)
        *magazine = os_alloc(1, sizeof(**magazine));
    return *magazine ? 0 : -ENOMEM;
}

int thread_ctx_prepare(struct thread_ctx *ctx, weir_set *set)
{
    struct counters *counters;

    WEIR_INVARIANT(ctx->w == set->w && !thread_ctx_is_prepared(ctx, set->number));
    if (thread_ctx_grow_sets(ctx, set->number) < 0 || thread_ctx_reserve(ctx, set) < 0)
        return -ENOMEM;
    if (set_is_shared(set))
        return thread_ctx_join_shared(ctx, set);
    counters = os_alloc(1, counters_size(set_amounts_n(set), set->limits.counts_holds,
                                         set->classes ? set->classes->rule.n : 0));
    if (!counters)
        return -ENOMEM;
    ctx->set_ctxs[set->number] = (struct thread_set_ctx){
        .counters = counters, .magazine = ctx->magazines[set->record_units], .unit = ctx->unit};
    return 0;
}

int thread_ctx_prepare_spare(weir_set *set)
{
    struct thread_ctx *spare = set->w->spare_ctx;
    int r = 0;

    if (!thread_ctx_is_prepared(spare, set->number)) /* a caller of this thread may be using it */
        r = set->w->spare_depth > 1 ? -ENOMEM : thread_ctx_prepare(spare, set);
    if (r == 0)
        atomic_store_explicit(&set->spare_prepared, true, memory_order_seq_cst);
    return r;
}

/* Also prepares the spare context at the first use of a set, so that a release cannot fail later.
 */
static int thread_ctx_prepare_locked(struct thread_ctx *ctx, weir_set *set)
{
    bool is_first = !atomic_load_explicit(&set->spare_prepared, memory_order_seq_cst);
    weir *w = set->w;
    int r = 0;

    if (is_first)
        thread_ctx_spare_lock(w);
    /* The lock protects the region, and readers of counters. */
    pthread_mutex_lock(&w->lock);
    if (is_first)
        r = thread_ctx_prepare_spare(set);
    if (r == 0)
        r = thread_ctx_prepare(ctx, set);
    pthread_mutex_unlock(&w->lock);
    if (is_first)
        thread_ctx_spare_unlock(w);
    return r;
}

void thread_ctx_spare_lock(weir *w)
{
    pthread_mutex_lock(&w->spare_lock);
    w->spare_depth++;
}

/* The spare context stays with the instance, so it must hold no reference when it is unused. */
void thread_ctx_spare_unlock(weir *w)
{
    uint64_t references = 0;

    WEIR_INVARIANT(w->spare_depth > 0);
    if (--w->spare_depth == 0)
        references = thread_ctx_take_references(w->spare_ctx);
    pthread_mutex_unlock(&w->spare_lock);
    if (references)
        instance_unref(w, references);
}

/* Returns the spare context, the lock of which is held, for use. Before its first use it recovers
 * what a dead thread had begun in the context that was taken over for it. */
static struct thread_ctx *thread_ctx_begin_spare(weir_set *set)
{
    struct thread_ctx *spare = set->w->spare_ctx;

    WEIR_INVARIANT(!spare->cache_n);
    spare->thread = os_thread_id();
    if (thread_ctx_is_prepared(spare, set->number) && spare->set_ctxs[set->number].is_inherited) {
        /* Recovering may need the spare context again, and must not begin anew. */
        spare->set_ctxs[set->number].is_inherited = false;
        spare->set_ctxs[set->number].is_inherited = !peer_recover_inherited(spare, set);
    }
    return spare;
}

/* Makes room in the segment by cleaning up after dead processes. Returns false if it cannot: the
 * set is private, or this is a callback of a call that uses the spare context. */
static bool thread_ctx_make_room(weir_set *set)
{
    weir *w = set->w;
    bool makes_room;

    if (!set_is_shared(set))
        return false;
    thread_ctx_spare_lock(w);
    makes_room = w->spare_depth == 1;
    if (makes_room)
        peer_make_room(thread_ctx_begin_spare(set), set);
    thread_ctx_spare_unlock(w);
    return makes_room;
}

struct thread_ctx *thread_ctx_find(weir_set *set)
{
    struct thread_ctx *ctx = thread_ctx_lookup(set->w);

    if (!ctx)
        ctx = thread_ctx_bind(set->w);
    if (!ctx || thread_ctx_is_prepared(ctx, set->number))
        return ctx;
    if (thread_ctx_prepare_locked(ctx, set) == 0)
        return ctx;
    return thread_ctx_make_room(set) && thread_ctx_prepare_locked(ctx, set) == 0 ? ctx : NULL;
}

struct thread_ctx *thread_ctx_lock_spare(weir_set *set)
{
    thread_ctx_spare_lock(set->w);
    return thread_ctx_begin_spare(set);
}

void thread_ctx_return_slow(struct thread_ctx *ctx)
{
    weir *w = ctx->w;

    if (ctx == w->spare_ctx)
        thread_ctx_spare_unlock(w);
    else if (instance_is_closed(w))
        thread_ctx_detach(w);
}

uint64_t thread_ctx_decided(const struct thread_ctx *ctx, const weir_set *of,
                            const weir_set *newest)
{
    uint64_t decided = counters_decided(thread_ctx_counters(ctx, of->number));

    if (newest->number != of->number && thread_ctx_is_prepared(ctx, newest->number))
        decided += counters_decided(thread_ctx_counters(ctx, newest->number));
    return decided;
}

void thread_ctx_get_credits(struct thread_ctx *ctx)
{
    WEIR_INVARIANT(!ctx->credits);
    instance_ref(ctx->w, THREAD_CREDITS);
    ctx->credits += THREAD_CREDITS;
}

void thread_ctx_put_credits(struct thread_ctx *ctx)
{
    WEIR_INVARIANT(ctx->credits > THREAD_CREDITS);
    ctx->credits -= THREAD_CREDITS;
    instance_unref(ctx->w, THREAD_CREDITS);
}
