/* SPDX-License-Identifier: MIT */
/* Makes key sets, and finds them by number. */
#include "keyed/key_set_internal.h"
#include "set/instance_base.h"
#include "shm/segment.h"

#include "base/invariant.h"
#include "os/os.h"
#include "set/set_storage.h"
#include "set/waiter.h"
#include "shm/participant.h"
#include <errno.h>
#include <string.h>

/* Copies all settings of the template set; a shared key set has its state in the segment. */
static void key_set_init(struct key_set *key_set, struct keyed *keyed, uint32_t number)
{
    const weir_set *template = keyed->set;
    weir_set *set = &key_set->set;

    WEIR_INVARIANT(number < KEY_SETS_MAX);
    key_set->keyed = keyed;
    key_set->number = number;
    set->w = template->w;
    set->ops = template->ops;
    set->region = template->region;
    set->number = template->number; /* for the counters, which are the template set's */
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
    if (!keyed->segment)
        return;
    set->participant = template->participant;
    set->is_robust = true;
    set->head_unit = segment_key_set_unit(keyed->segment, number);
    set->block_class = template->block_class;
    set->deflated_ns = &set->own_deflated_ns;
}

static _Atomic(struct key_set *) *key_set_slot(const struct keyed *keyed, uint32_t number)
{
    return (_Atomic(struct key_set *) *)(void *)stable_array_at(&keyed->key_sets, number);
}

/* Returns the key set if this process has met it, else NULL. */
static struct key_set *key_set_known(const struct keyed *keyed, uint32_t number)
{
    if (number >= atomic_load_explicit(&keyed->key_sets_known_n, memory_order_acquire))
        return NULL;
    return atomic_load_explicit(key_set_slot(keyed, number), memory_order_acquire);
}

/* Makes a key set known in this process. The instance's lock is held. The release stores pair with
 * the acquire loads of key_set_known(). Returns 0, -ENOMEM or -ESHUTDOWN. */
static int key_set_add(struct keyed *keyed, uint32_t number)
{
    weir *w = keyed->set->w;
    struct key_set *key_set = os_alloc(1, sizeof(*key_set));
    int r = key_set ? 0 : -ENOMEM;

    WEIR_INVARIANT(instance_lock_is_held(w));
    WEIR_INVARIANT(!key_set_known(keyed, number));
    if (instance_is_closed(w))
        r = -ESHUTDOWN;
    if (r == 0)
        r = stable_array_reserve(&keyed->key_sets, number + 1);
    if (r == 0)
        r = stable_array_reserve(&w->key_sets, w->key_sets_n + 1);
    if (r == 0) {
        key_set_init(key_set, keyed, number);
        if (!keyed->segment)
            r = set_storage_make(&key_set->set, &(struct set_storage_plan){0}, NULL);
    }
    if (r < 0) {
        os_free(key_set);
        return r;
    }
    key_set->set.id = KEY_SET_ID_BIT | w->key_sets_n;
    *stable_array_at(&w->key_sets, w->key_sets_n++) = &key_set->set;
    atomic_store_explicit(key_set_slot(keyed, number), key_set, memory_order_release);
    if (atomic_load_explicit(&keyed->key_sets_known_n, memory_order_seq_cst) <= number)
        atomic_store_explicit(&keyed->key_sets_known_n, number + 1, memory_order_release);
    return 0;
}

int key_set_make(struct keyed *keyed, uint32_t number)
{
    int r;

    WEIR_INVARIANT(instance_lock_is_held(keyed->set->w));
    if (number >= keyed->key_sets_max)
        return -ENOBUFS;
    if (keyed->segment)
        return segment_alloc_key_set(keyed->segment, number);
    r = key_set_add(keyed, number);
    if (r == 0)
        atomic_store_explicit(&keyed->shared_state->key_sets_high, number + UINT64_C(1),
                              memory_order_seq_cst);
    return r;
}

uint32_t key_sets_n(const struct keyed *keyed)
{
    return segment_scan_count(&keyed->shared_state->key_sets_high, keyed->key_sets_max);
}

struct key_set *key_set_by_number(struct keyed *keyed, uint32_t number, struct key_set *storage)
{
    struct key_set *key_set = key_set_known(keyed, number);
    weir *w = keyed->set->w;

    if (key_set)
        return key_set;
    if (storage) {
        memset(storage, 0, sizeof(*storage));
        key_set_init(storage, keyed, number);
        storage->set.id = KEY_SET_ID_BIT;
        return storage;
    }
    pthread_mutex_lock(&w->lock);
    key_set = key_set_known(keyed, number);
    if (!key_set && key_set_add(keyed, number) == 0)
        key_set = key_set_known(keyed, number);
    pthread_mutex_unlock(&w->lock);
    return key_set;
}

struct key_set *key_set_at(struct keyed *keyed, uint64_t word, struct key_set *storage)
{
    uint32_t number = (uint32_t)(word >> BINDING_BITS & (KEY_SETS_MAX - 1));

    if (!key_word_is_key_set(word) || number >= key_sets_n(keyed))
        return NULL;
    return key_set_by_number(keyed, number, storage);
}

/* ---- the set that a record names ---- */

/* In a segment the record names the key set by its number, which is valid in all processes.
 * Otherwise the record has the instance's id of the set. */
void key_set_mark_record(const weir_set *set, uint32_t record, uint32_t thread)
{
    struct acq_record *r = record_at(set->region, record);
    uint64_t id = set->id;
    uint32_t waiter;

    WEIR_INVARIANT(record);
    if (set_is_shared(set)) {
        waiter = participant_waiter(set->participant, record);
        if (waiter)
            record_store(&waiter_at(set->w, waiter)->set, id << 32);
        if (set_is_key_set(set))
            id = KEY_SET_ID_BIT | ((const struct key_set *)set)->number;
    }
    record_store(&r->set, id << 32 | thread);
}

weir_set *key_set_of_record(weir_set *template, const struct acq_record *r, struct key_set *storage)
{
    uint32_t id = record_set_number(r);

    if (!template->is_keyed || !(id & KEY_SET_ID_BIT))
        return template;
    id &= ~KEY_SET_ID_BIT;
    return id < key_sets_n(keyed_of(template))
               ? &key_set_by_number(keyed_of(template), id, storage)->set
               : template;
}

void key_sets_free(struct keyed *keyed)
{
    for (uint32_t i = 0; i < atomic_load_explicit(&keyed->key_sets_known_n, memory_order_seq_cst);
         i++)
        os_free(key_set_known(keyed, i));
    stable_array_free(&keyed->key_sets);
}
