/* SPDX-License-Identifier: MIT */
/* Actors: one per thread and instance. */
#include "set/thread_ctx.h"

#include "api/instance.h"
#include "base/mutant.h"
#include "os/os.h"
#include "peer/participant.h"
#include "set/lease.h"
#include <errno.h>
#include <string.h>

_Thread_local struct actor *actor_mine __attribute__((tls_model("initial-exec")));

static pthread_key_t thread_end;
static pthread_once_t thread_end_once = PTHREAD_ONCE_INIT;
static bool thread_end_ready;

static void unbind(struct actor *actor)
{
    weir *w = actor->w;
    uint64_t references;

    /* In a forked child the lock may be held by a thread that is not there; nothing is reused. */
    if (instance_forked(w))
        return;
    if (!MUTANT(521))
        lease_give_back(actor);
    references = actor->credits + 1;
    actor->credits = 0;
    pthread_mutex_lock(&w->lock);
    actor->idle_next = w->idle;
    if (!MUTANT(9))
        w->idle = actor;
    pthread_mutex_unlock(&w->lock);
    instance_drop(w, references);
}

static void on_thread_end(void *unused)
{
    (void)unused;
    while (actor_mine) {
        struct actor *actor = actor_mine;

        actor_mine = actor->thread_next;
        unbind(actor);
    }
}

static void make_thread_end(void)
{
    thread_end_ready = pthread_key_create(&thread_end, on_thread_end) == 0;
}

/* Forgets actors of instances that were closed: they keep their memory alive. */
static void leave_closed(void)
{
    struct actor **at = &actor_mine;

    while (*at) {
        struct actor *actor = *at;

        if (instance_closed(actor->w)) {
            *at = actor->thread_next;
            unbind(actor);
        } else {
            at = &actor->thread_next;
        }
    }
}

struct actor *actor_new(weir *w)
{
    struct actor *actor = sys_alloc_aligned(_Alignof(struct actor), sizeof(*actor));

    if (!actor)
        return NULL;
    actor->w = w;
    actor->unit = publication_new_actor(&w->region);
    if (!actor->unit) {
        sys_free(actor);
        return NULL;
    }
    /* Far from those of others: the golden ratio. The kernel's random numbers would be a point at
     * which the thread can be canceled. */
    actor->claimant.nonce = actor->unit * UINT64_C(0x9e3779b97f4a7c15);
    actor->next = w->actors;
    w->actors = actor;
    return actor;
}

/* What is in a segment stays there. A magazine of its own is of a set that processes share. */
static void free_part(struct actor *actor, uint32_t set_number)
{
    const struct part *part = &actor->parts[set_number];

    if (!part->counters)
        return;
    if (part->shared)
        sys_free(part->magazine);
    else
        sys_free(part->counters);
    actor->parts[set_number] = (struct part){0};
}

void actor_free(struct actor *actor)
{
    for (uint32_t i = 0; i < actor->parts_n; i++)
        free_part(actor, i);
    for (uint32_t i = 0; i <= RECORD_UNITS_MAX; i++)
        sys_free(actor->magazines[i]);
    sys_free(actor->parts);
    sys_free(actor->content);
    sys_free(actor->spare_content);
    sys_free(actor);
}

static struct actor *bind(weir *w)
{
    struct actor *actor;

    pthread_once(&thread_end_once, make_thread_end);
    if (!thread_end_ready)
        return NULL;
    leave_closed();
    pthread_mutex_lock(&w->lock);
    actor = w->idle;
    if (actor)
        w->idle = actor->idle_next;
    else
        actor = actor_new(w);
    pthread_mutex_unlock(&w->lock);
    if (!actor)
        return NULL;
    actor->thread = sys_thread_id();
    actor->thread_next = actor_mine;
    actor_mine = actor;
    instance_hold(w, 1);
    /* Any value but NULL makes the destructor run. */
    if (pthread_setspecific(thread_end, actor) != 0) {
        actor_leave(w);
        return NULL;
    }
    return actor;
}

/* This thread's actor of this instance, moved to the front, or NULL. */
static struct actor *find(const weir *w)
{
    for (struct actor **at = &actor_mine; *at; at = &(*at)->thread_next) {
        struct actor *actor = *at;

        if (actor->w != w)
            continue;
        *at = actor->thread_next;
        actor->thread_next = actor_mine;
        actor_mine = actor;
        return actor;
    }
    return NULL;
}

void actor_leave(weir *w)
{
    struct actor *actor = find(w);

    if (actor) {
        actor_mine = actor->thread_next;
        unbind(actor);
    }
}

static int grow_parts(struct actor *actor, uint32_t number)
{
    uint32_t n = actor->parts_n ? 2 * actor->parts_n : 8;
    struct part *grown;

    if (number < actor->parts_n)
        return 0;
    if (n <= number)
        n = number + 1;
    grown = sys_alloc(n, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    if (actor->parts_n)
        memcpy(grown, actor->parts, actor->parts_n * sizeof(*grown));
    sys_free(actor->parts);
    actor->parts = grown;
    actor->parts_n = n;
    return 0;
}

static int grow_content(struct actor *actor, uint32_t words)
{
    uint64_t *content, *spare;

    if (words <= actor->content_capacity)
        return 0;
    content = sys_alloc(words, sizeof(*content));
    spare = sys_alloc(words, sizeof(*spare));
    if (!content || !spare) {
        sys_free(content);
        sys_free(spare);
        return -ENOMEM;
    }
    sys_free(actor->content);
    sys_free(actor->spare_content);
    actor->content = content;
    actor->spare_content = spare;
    actor->content_capacity = words;
    return 0;
}

/* Its part in a set that processes share is in the set's segment. */
static int join(struct actor *actor, weir_set *set)
{
    struct part part = {.magazine = sys_alloc(1, sizeof(struct magazine)), .shared = true};
    int r;

    if (!part.magazine)
        return -ENOMEM;
    r = member_claim_actor(set->member, &part.unit, &part.counters);
    if (r < 0) {
        sys_free(part.magazine);
        return r;
    }
    lease_begin(set, part.counters);
    actor->parts[set->number] = part;
    return 0;
}

/* What it needs for all sets of this kind. */
static int make_room(struct actor *actor, const weir_set *set)
{
    struct magazine **magazine = &actor->magazines[set->record_units];

    if (grow_content(actor, set->head ? set_content_max(set) : 0) < 0)
        return -ENOMEM;
    if (set->member)
        return 0;
    if (set->head && publication_prepare(set->region, actor->unit, set->box_class) < 0)
        return -ENOMEM;
    if (!*magazine)
        *magazine = sys_alloc(1, sizeof(**magazine));
    return *magazine ? 0 : -ENOMEM;
}

int actor_prepare(struct actor *actor, weir_set *set)
{
    struct counters *counters;

    if (grow_parts(actor, set->number) < 0 || make_room(actor, set) < 0)
        return -ENOMEM;
    if (set->member)
        return join(actor, set);
    counters = sys_alloc(1, sizeof(*counters) + set->limits.n * sizeof(counters->limits[0]));
    if (!counters)
        return -ENOMEM;
    actor->parts[set->number] = (struct part){
        .counters = counters, .magazine = actor->magazines[set->record_units], .unit = actor->unit};
    return 0;
}

void actor_unprepare(struct actor *actor, const weir_set *set)
{
    if (!actor_is_prepared(actor, set->number))
        return;
    free_part(actor, set->number);
}

int actor_prepare_spare(weir_set *set)
{
    struct actor *spare = set->w->spare;
    int r = 0;

    if (!actor_is_prepared(spare, set->number))
        r = actor_prepare(spare, set);
    if (r == 0)
        atomic_store(&set->prepared, true);
    return r;
}

/* Whoever asks a set for something for the first time makes sure that it can be given back. */
static int prepare_first(weir_set *set)
{
    weir *w = set->w;
    int r;

    /* Within a call by the spare actor somebody has heard something, and asks. */
    if (pthread_mutex_lock(&w->spare_lock) == EDEADLK)
        return -ENOMEM;
    pthread_mutex_lock(&w->lock);
    r = actor_prepare_spare(set);
    instance_unlock(w);
    return r;
}

static int prepare_locked(struct actor *actor, weir_set *set)
{
    int r = 0;

    if (!atomic_load(&set->prepared) && !MUTANT(538))
        r = prepare_first(set);
    /* The lock is for the region, and for whoever adds up counters. */
    pthread_mutex_lock(&actor->w->lock);
    if (r == 0)
        r = actor_prepare(actor, set);
    pthread_mutex_unlock(&actor->w->lock);
    return r;
}

struct actor *actor_find(weir_set *set)
{
    struct actor *actor = find(set->w);

    if (!actor)
        actor = bind(set->w);
    if (!actor || actor_is_prepared(actor, set->number))
        return actor;
    return prepare_locked(actor, set) == 0 ? actor : NULL;
}

struct actor *actor_spare(weir_set *set)
{
    pthread_mutex_lock(&set->w->spare_lock);
    set->w->spare->thread = sys_thread_id();
    return set->w->spare;
}

void actor_give_back(struct actor *actor)
{
    weir *w = actor->w;
    uint64_t references;

    if (actor != w->spare) {
        if (instance_closed(w))
            actor_leave(w);
        return;
    }
    /* The spare one stays with the instance, so it must not keep it alive. */
    references = actor->credits;
    actor->credits = 0;
    pthread_mutex_unlock(&w->spare_lock);
    if (references)
        instance_drop(w, references);
}

void actor_get_credits(struct actor *actor)
{
    instance_hold(actor->w, ACTOR_CREDITS);
    actor->credits += ACTOR_CREDITS - MUTANT(8);
}

void actor_put_credits(struct actor *actor)
{
    actor->credits -= ACTOR_CREDITS;
    instance_drop(actor->w, ACTOR_CREDITS);
}
