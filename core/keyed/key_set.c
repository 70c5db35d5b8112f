/* SPDX-License-Identifier: MIT */
/* Live sets: hidden sets, made when they are needed, and met by their numbers: see live.h. */
#include "keyed/key_set_internal.h"

#include "os/os.h"
#include "peer/participant.h"
#include "set/set_storage.h"
#include "wait/waiter.h"
#include <errno.h>
#include <string.h>

size_t live_size(const weir_set *set)
{
    size_t box = (size_t)1 << box_class_for(set_content_max(set));

    if (set->backend == BACKEND_PROCESS && !set->w->apart)
        return sizeof(struct segment_live) + box;
    return sizeof(struct live) + UNIT_SIZE + (box > UNIT_SIZE ? box : UNIT_SIZE);
}

/* A hidden set that is as the template is, but for what changes. */
static void begin_set(weir_set *set, const weir_set *template)
{
    set->w = template->w;
    set->region = template->region;
    set->number = template->number; /* it is counted as the template */
    set->record_units = template->record_units;
    set->limits = template->limits;
    set->config = template->config;
    set->config_n = template->config_n;
    set->timeout_ns = template->timeout_ns;
    set->max_wait_ns = template->max_wait_ns;
    set->max_waiters = template->max_waiters;
    set->strict = template->strict;
    set->fair = template->fair;
    set->backend = template->backend;
}

/* Its state is in a segment. */
static void place_shared(struct live *live)
{
    const struct keyed *keyed = live->keyed;
    weir_set *set = &live->set;

    set->member = keyed->set->member;
    set->mortal = true;
    set->head = segment_live_unit(keyed->segment, live->number);
    set->box_class = keyed->set->box_class;
    set->unboxed_ns = &set->own_unboxed_ns;
}

static void begin(struct live *live, struct keyed *keyed, uint32_t number)
{
    begin_set(&live->set, keyed->set);
    live->keyed = keyed;
    live->number = number;
    if (keyed->segment)
        place_shared(live);
}

static _Atomic(struct live *) *place_of(const struct keyed *keyed, uint32_t number)
{
    return (_Atomic(struct live *) *)(void *)table_at(&keyed->lives, number);
}

/* As this process has met it, or NULL. */
static struct live *known(const struct keyed *keyed, uint32_t number)
{
    if (number >= atomic_load_explicit(&keyed->places, memory_order_acquire))
        return NULL;
    return atomic_load_explicit(place_of(keyed, number), memory_order_acquire);
}

/* Makes it known, under the instance's lock. */
static int add(struct live *live)
{
    struct keyed *keyed = live->keyed;
    weir *w = keyed->set->w;
    int r;

    if (instance_closed(w))
        return -ESHUTDOWN;
    r = table_reserve(&keyed->lives, live->number + 1);
    if (r == 0)
        r = table_reserve(&w->hidden, w->hidden_n + 1);
    if (r == 0 && !keyed->segment)
        r = placement_make(&live->set, NULL, NULL);
    if (r < 0)
        return r;
    live->set.id = HIDDEN_SET | w->hidden_n;
    *table_at(&w->hidden, w->hidden_n++) = &live->set;
    atomic_store_explicit(place_of(keyed, live->number), live, memory_order_release);
    if (keyed->places <= live->number)
        atomic_store_explicit(&keyed->places, live->number + 1, memory_order_release);
    return 0;
}

/* One that this process has not met. Under the instance's lock: 0, -ENOMEM or -ESHUTDOWN. */
static int meet(struct keyed *keyed, uint32_t number)
{
    struct live *live = sys_alloc(1, sizeof(*live));
    int r = -ENOMEM;

    if (live) {
        begin(live, keyed, number);
        r = add(live);
    }
    if (r < 0)
        sys_free(live);
    return r;
}

int live_make(struct keyed *keyed, uint32_t number)
{
    int r;

    if (number >= keyed->lives_max)
        return -ENOBUFS;
    if (keyed->segment)
        return segment_commit_live(keyed->segment, number);
    r = meet(keyed, number);
    if (r == 0)
        atomic_store(&keyed->common->lives_high, number + UINT64_C(1));
    return r;
}

uint32_t lives_n(const struct keyed *keyed)
{
    return segment_below(&keyed->common->lives_high, keyed->lives_max);
}

struct live *live_numbered(struct keyed *keyed, uint32_t number, struct live *storage)
{
    struct live *live = known(keyed, number);
    weir *w = keyed->set->w;

    if (live)
        return live;
    if (storage) {
        memset(storage, 0, sizeof(*storage));
        begin(storage, keyed, number);
        storage->set.id = HIDDEN_SET;
        return storage;
    }
    pthread_mutex_lock(&w->lock);
    live = known(keyed, number);
    if (!live && meet(keyed, number) == 0)
        live = known(keyed, number);
    pthread_mutex_unlock(&w->lock);
    return live;
}

struct live *live_at(struct keyed *keyed, uint64_t word, struct live *storage)
{
    uint32_t number = (uint32_t)(word >> LIVE_LOAN_BITS & (LIVES_MAX - 1));

    if (!word_is_live(word) || number >= lives_n(keyed))
        return NULL;
    return live_numbered(keyed, number, storage);
}

/* In a segment by number, which is the same for all processes; otherwise as the instance knows it. */
void live_mark(const weir_set *set, uint32_t record, uint32_t thread)
{
    struct record *r = record_at(set->region, record);
    uint64_t id = set->id;
    uint32_t kept;

    if (set->member) {
        kept = member_kept(set->member, record);
        if (kept)
            record_store(&kept_at(set->w, kept)->set, id << 32);
        if (set_is_hidden(set))
            id = HIDDEN_SET | ((const struct live *)set)->number;
    }
    record_store(&r->set, id << 32 | thread);
}

weir_set *live_marked(weir_set *template, const struct record *r, struct live *storage)
{
    uint32_t id = record_set_number(r);

    if (!template->keyed || !(id & HIDDEN_SET))
        return template;
    id &= ~HIDDEN_SET;
    return id < lives_n(template->keyed) ? &live_numbered(template->keyed, id, storage)->set
                                         : template;
}

void lives_free(struct keyed *keyed)
{
    for (uint32_t i = 0; i < keyed->places; i++)
        sys_free(known(keyed, i));
    table_free(&keyed->lives);
}
