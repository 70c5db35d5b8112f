/* SPDX-License-Identifier: MIT */
/* Makes and frees keyed sets, hashes subjects into keys, and counts the keys. */
#include "config/plan.h"
#include "shm/segment.h"

#include "base/invariant.h"
#include "base/long_look.h"
#include "keyed/keyed_internal.h"
#include "os/os.h"
#include "set/instance_base.h"
#include "set/places.h"
#include "shm/segment_definition.h"
#include <errno.h>

_Static_assert(KEY_SET_WORDS == KEYED_STATE_WORDS, "the plan counts them");

/* ---- creation ---- */

static bool keyed_is_shared(const weir_set *set)
{
    return set->backend == BACKEND_PROCESS && !set->w->private_only;
}

uint32_t keyed_block_class(const struct keyed *keyed)
{
    const struct limits *limits = &keyed->set->limits;
    uint32_t block_class, least = BLOCK_CLASS_MIN;

    if (!keyed_is_shared(keyed->set))
        return block_class_for(set_content_max(keyed->set));
    for (uint32_t i = 0; i < limits->n; i++)
        if (limits->items[i].algorithm && limit_fits_word(&limits->items[i]))
            least = BLOCK_CLASS_MIN + 1; /* by other numbers it may not */
    block_class = block_class_for(CONTENT_STATES + 2 * (limits->state_words + 1));
    return block_class < least ? least : block_class; /* with a forecast, by any definition */
}

/* Returns the approximate memory of one key set, in bytes. */
static size_t key_set_size(const weir_set *set)
{
    size_t block_size = (size_t)1 << keyed_block_class(keyed_of(set));

    if (keyed_is_shared(set))
        return sizeof(struct segment_key_set) + block_size;
    return sizeof(struct key_set) + REGION_UNIT_SIZE +
           (block_size > REGION_UNIT_SIZE ? block_size : REGION_UNIT_SIZE);
}

/* Divides the configured memory between the key table and the key sets. */
static int keyed_divide_memory(struct keyed *keyed)
{
    size_t set_size = key_set_size(keyed->set);
    uint64_t keys = keyed->max_keys, rest = UINT64_MAX, sets_n;
    uint32_t sets_max = key_sets_room(keyed_block_class(keyed), keyed_is_shared(keyed->set));

    /* Without inline states every key needs a key set: keep room for one per key. In any case the
     * table takes at most three quarters. */
    if (keyed->memory_max && !keyed->fits_inline) {
        sets_n = keyed->memory_max / (set_size + 2 * sizeof(struct atomic128));
        sets_n = sets_n < sets_max ? sets_n : sets_max;
        keys = sets_n < keys ? sets_n : keys;
    }
    while (keyed->memory_max && keys > 1 &&
           key_table_size(keys) > keyed->memory_max - keyed->memory_max / 4)
        keys -= (keys + 15) / 16;
    keyed->memory_size = key_table_size(keys);
    if (!keyed->memory_size)
        return -ENOMEM;
    if (keyed->memory_max)
        rest = (keyed->memory_max - keyed->memory_size) / set_size;
    sets_n = rest < keys ? rest : keys;
    keyed->key_sets_max = sets_n < sets_max ? (uint32_t)sets_n : sets_max;
    keyed->capacity = keys;
    return 0;
}

/*
 * Returns whether the state of one key fits its word. The limit is then decided as that of a set
 * with inline state (inline_state.h). A shared resource does not fit: a word cannot tell which
 * units a dead process held. A limit in shadow has records that say what was not taken.
 */
static bool keyed_fits_inline(const weir_set *set)
{
    const struct limit *limit;

    if (set_listed_n(set) != 1 || set->limits.has_shadow)
        return false;
    limit = &set->limits.items[set_listed(set, 0)];
    if (!limit_fits_word(limit))
        return false;
    return limit->type != WEIR_LIMIT_RESOURCE || !keyed_is_shared(set);
}

static int keyed_error(const weir_set *set, int r, struct weir_error *reterr)
{
    return error_set(reterr, r, "set `%s`: no table of %llu subjects can be created: %s",
                     set_own_name(set), (unsigned long long)keyed_of(set)->max_keys,
                     strerrordesc_np(-r));
}

static const enum key_eviction keyed_evictions[] = {
    [EVICT_OLDEST] = KEY_EVICT_OLDEST,
    [EVICT_RANDOM] = KEY_EVICT_RANDOM,
    [EVICT_NONE] = KEY_EVICT_NONE,
};

bool keyed_is_planned(const struct keyed *keyed, const struct set_plan *plan)
{
    return keyed->max_keys == plan->keyed.max_keys && keyed->memory_max == plan->keyed.memory &&
           keyed->eviction == keyed_evictions[plan->keyed.evict];
}

int keyed_new(weir_set *set, const struct set_plan *plan, struct weir_error *reterr)
{
    struct keyed *keyed = os_alloc(1, sizeof(*keyed)), *before = NULL;
    int r;

    WEIR_INVARIANT(!set->is_keyed);
    if (set->origin || plan->newest)
        before = keyed_of(set->origin ? set->origin->predecessor : plan->newest);
    if (keyed)
        keyed->store = before ? before->store : os_alloc(1, sizeof(*keyed->store));
    if (!keyed || !keyed->store) {
        os_free(keyed);
        return error_set(reterr, -ENOMEM, "out of memory");
    }
    ((struct keyed_set *)set)->keyed = keyed;
    set->is_keyed = true;
    keyed->set = set;
    keyed->store->users++;
    keyed->max_keys = plan->keyed.max_keys;
    keyed->memory_max = plan->keyed.memory;
    keyed->eviction = keyed_evictions[plan->keyed.evict];
    keyed->fits_inline = keyed_fits_inline(set);
    r = keyed_divide_memory(keyed);
    if (before && keyed->key_sets_max < before->key_sets_max)
        keyed->key_sets_max = before->key_sets_max;
    return r < 0 ? keyed_error(set, r, reterr) : 0;
}

int keyed_new_variant(weir_set *set, const struct keyed *of)
{
    struct keyed *keyed = os_alloc(1, sizeof(*keyed));

    WEIR_INVARIANT(!set->is_keyed && of->segment);
    if (!keyed)
        return -ENOMEM;
    ((struct keyed_set *)set)->keyed = keyed;
    set->is_keyed = true;
    keyed->set = set;
    keyed->store = of->store;
    keyed->store->users++;
    keyed->definition = of->definition;
    atomic_init(&keyed->is_opened, atomic_load_explicit(&of->is_opened, memory_order_relaxed));
    keyed->segment = of->segment;
    keyed->shared_state = of->shared_state;
    keyed->secret = of->secret;
    keyed->table = of->table;
    keyed->memory_size = of->memory_size;
    keyed->capacity = of->capacity;
    keyed->max_keys = of->max_keys;
    keyed->memory_max = of->memory_max;
    keyed->eviction = of->eviction;
    keyed->fits_inline = of->fits_inline;
    keyed->key_sets_max = of->key_sets_max;
    return 0;
}

/* Adds a table with room for `keys` keys to those of this definition. */
static int keyed_add_table(struct keyed *keyed, uint64_t keys)
{
    int r;

    WEIR_INVARIANT(!keyed->memory);
    keyed->added_size = key_table_size(keys);
    keyed->memory = keyed->added_size ? os_vm_reserve(keyed->added_size) : NULL;
    if (!keyed->memory || os_vm_commit(keyed->memory, keyed->added_size) < 0)
        return -ENOMEM;
    os_vm_prefer_huge_pages(keyed->memory, keyed->added_size);
    r = key_table_open(&keyed->table, keyed->memory, keys);
    key_table_set_tag(&keyed->table, keyed->definition);
    return r;
}

static int keyed_open_private(struct keyed *keyed)
{
    struct keyed_store *store = keyed->store;
    int r;

    WEIR_INVARIANT(!keyed->segment);
    store->own_state = keyed->shared_state = os_alloc(1, sizeof(*keyed->shared_state));
    if (!store->own_state)
        return -ENOMEM;
    r = os_random_secret(keyed->secret.words, 2);
    return r < 0 ? r : keyed_add_table(keyed, keyed->capacity);
}

/* Opens the tables of the definition before, and another one if they lack room: each at least
 * doubles it, so there are few. What has room keeps it. */
static int keyed_open_successor(struct keyed *keyed, struct keyed *before)
{
    int r = 0;

    keyed->shared_state = before->shared_state;
    keyed->secret = before->secret;
    keyed->definition = before->definition + 1;
    atomic_store_explicit(&keyed->oldest,
                          atomic_load_explicit(&before->oldest, memory_order_relaxed),
                          memory_order_relaxed);
    keyed->memory_size = before->memory_size;
    if (keyed->capacity > before->capacity) {
        r = keyed_add_table(keyed, keyed->capacity);
        keyed->table.more = &before->table;
        keyed->capacity += before->capacity;
        keyed->memory_size += keyed->added_size;
    } else {
        keyed->capacity = before->capacity;
        keyed->table = before->table;
        key_table_set_tag(&keyed->table, keyed->definition);
    }
    return r;
}

/* Checks whether a segment has room for the subjects of a definition. Bound by `memory`, another
 * size of states alone makes neither more nor less of it. All subjects that there may be need a key
 * set each once their states are no words any more. */
static int keyed_check_room(const struct keyed *keyed, const struct keyed *before,
                            struct weir_error *reterr)
{
    const struct segment_sizes *sizes = &keyed->segment->layout.sizes;
    bool lacks_key_sets =
        !keyed->fits_inline && before->fits_inline && sizes->key_sets_max < sizes->keys_max;
    bool asks_for_more =
        keyed->max_keys > before->max_keys ||
        (before->memory_max && (!keyed->memory_max || keyed->memory_max > before->memory_max));

    if (lacks_key_sets)
        return error_set(reterr, -EOPNOTSUPP,
                         "its segment has room for %llu subjects, and for %llu with a state that "
                         "is no word; " START_ANEW,
                         (unsigned long long)sizes->keys_max,
                         (unsigned long long)sizes->key_sets_max);
    if (asks_for_more && keyed->capacity > sizes->keys_max)
        return error_set(reterr, -EOPNOTSUPP,
                         "it would have room for %llu subjects, and its segment has room for "
                         "%llu; " START_ANEW,
                         (unsigned long long)keyed->capacity, (unsigned long long)sizes->keys_max);
    return 0;
}

/* The table and the number of key sets are those of the segment, by any definition. */
static int keyed_open_shared(struct keyed *keyed, struct weir_error *reterr)
{
    const weir_set *set = keyed->set;
    const struct segment_sizes *sizes;
    int r;

    keyed->segment = set->participant->segment;
    sizes = &keyed->segment->layout.sizes;
    r = set->origin ? keyed_check_room(keyed, keyed_of(set->origin->predecessor), reterr) : 0;
    if (r < 0)
        return r;
    if (!segment_definition_of_unit(keyed->segment, set->head_unit, &keyed->definition))
        WEIR_INVARIANT(false); /* it was found by its number */
    keyed->shared_state = segment_keyed(keyed->segment);
    keyed->secret = keyed->segment->secret;
    keyed->capacity = sizes->keys_max;
    if (!keyed->fits_inline && sizes->key_sets_max < keyed->capacity)
        keyed->capacity = sizes->key_sets_max;
    keyed->memory_size = key_table_size(sizes->keys_max);
    keyed->key_sets_max = (uint32_t)sizes->key_sets_max;
    r = key_table_open(&keyed->table, segment_key_table(keyed->segment), sizes->keys_max);
    key_table_set_tag(&keyed->table, keyed->definition);
    return r < 0 ? keyed_error(set, r, reterr) : 0;
}

int keyed_open(weir_set *set, struct weir_error *reterr)
{
    struct keyed *keyed = keyed_of(set);
    int r;

    WEIR_INVARIANT(keyed->capacity > 0);
    if (set_is_shared(set))
        return keyed_open_shared(keyed, reterr);
    if (set->origin)
        r = keyed_open_successor(keyed, keyed_of(set->origin->predecessor));
    else
        r = keyed_open_private(keyed);
    return r < 0 ? keyed_error(set, r, reterr) : 0;
}

void keyed_populate(weir_set *set)
{
    struct keyed *keyed = keyed_of(set);

    if (keyed->memory &&
        !atomic_exchange_explicit(&keyed->is_populated, true, memory_order_relaxed))
        os_vm_populate(keyed->memory, keyed->added_size);
}

void keyed_free(struct keyed *keyed)
{
    if (!keyed)
        return;
    if (keyed->memory)
        os_vm_free(keyed->memory, keyed->added_size);
    if (--keyed->store->users == 0) {
        key_sets_free(keyed->store);
        os_free(keyed->store->own_state);
        os_free(keyed->store);
    }
    os_free(keyed);
}

/* ---- subjects become keys ---- */

int keyed_hash(struct acquire_op *op)
{
    const struct keyed *keyed = keyed_of(op->set);
    size_t size;
    const void *subject = request_subject(op->request, &size);

    if (!subject)
        return -EINVAL;
    siphash_128(&keyed->secret, subject, size, &op->key);
    key_table_prefetch(&keyed->table, &op->key);
    return 0;
}

bool keyed_is_of_subject(const struct acquire_op *op, uint32_t record)
{
    const weir_set *of = op->set; /* of the definition that has made the record */
    struct key_digest key;

    if (of->origin && !set_is_shared(of))
        of = set_ancestor(of, record_set_number(record_at(of->region, record)));
    if (!of)
        return false;
    key = keyed_record_key(of, record);
    return key.buckets == op->key.buckets && key.id == op->key.id;
}

uint64_t keyed_record_subject(const weir_set *set, uint32_t record)
{
    if (!set->is_keyed && !set_is_key_set(set))
        return 0;
    return keyed_record_key(key_set_template((weir_set *)(uintptr_t)set), record).id;
}

void keyed_fill_record(const struct acquire_op *op, struct acq_record *r)
{
    uint32_t n = set_amounts_n(op->set);

    WEIR_INVARIANT(op->set->is_keyed);
    record_store(&r->amounts[n], op->key.buckets);
    record_store(&r->amounts[n + 1], op->key.id);
}

/* ---- sums over all keys ---- */

int weir_set_subjects(weir_set *set, struct weir_subjects_stats *ret)
{
    static const char *const policies[] = {
        [KEY_EVICT_NONE] = "none", [KEY_EVICT_OLDEST] = "oldest", [KEY_EVICT_RANDOM] = "random"};
    const struct keyed *keyed;
    struct key_entry entry;
    uint64_t keys = 0, key_sets = 0, made_n;

    if (!set || !ret || ret->size < sizeof(*ret))
        return -EINVAL;
    if (instance_is_forked(set->w))
        return -ECHILD;
    set = set_current(set);
    if (!set->is_keyed)
        return 0;
    keyed = keyed_of(set);
    made_n = set_is_shared(set)
                 ? key_sets_n(keyed)
                 : atomic_load_explicit(&keyed->store->key_sets_made, memory_order_relaxed);
    for (const struct key_table *table = &keyed->table; table; table = table->more) {
        for (uint64_t i = 0; i < key_table_slots(table) && long_look_goes_on(); i++) {
            bool is_used = key_table_at(table, i, &entry);

            keys += is_used;
            key_sets += is_used && key_word_is_key_set(entry.word);
        }
    }
    *ret = (struct weir_subjects_stats){
        .size = sizeof(*ret),
        .known = keys,
        .live = key_sets,
        .max = keyed->max_keys,
        .room = keyed->capacity,
        .memory = keyed->memory_size + made_n * key_set_size(set),
        .memory_max = keyed->memory_max,
        .evict = policies[keyed->eviction],
        .forgotten = atomic_load_explicit(&keyed->shared_state->forgotten, memory_order_relaxed),
        .evicted = atomic_load_explicit(&keyed->shared_state->evicted, memory_order_relaxed),
        .refused = atomic_load_explicit(&keyed->shared_state->refused, memory_order_relaxed),
    };
    return 1;
}
