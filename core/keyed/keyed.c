/* SPDX-License-Identifier: MIT */
/* Keyed sets, made and freed: see keyed.h. */
#include "keyed/keyed_internal.h"

#include "api/instance.h"
#include "keyed/key_set.h"
#include "os/os.h"
#include <errno.h>

/* ---- made and freed ---- */

static bool is_shared(const weir_set *set)
{
    return set->backend == BACKEND_PROCESS && !set->w->apart;
}

/* Live sets of a segment are numbered together with the actors' boxes. */
static uint32_t lives_max(const struct keyed *keyed)
{
    return is_shared(keyed->set) ? LIVES_MAX / 8 : LIVES_MAX;
}

/* How many keys there can be, and live sets, in the memory that they may take. */
static int divide_memory(struct keyed *keyed)
{
    size_t live = live_size(keyed->set);
    uint64_t keys = keyed->max_keys, rest = UINT64_MAX, lives;

    /* What the table takes is a quarter of all at least, if live sets are the rule; and the other way
     * round. */
    if (keyed->memory_max && !keyed->fits) {
        lives = keyed->memory_max / (live + 2 * sizeof(struct double_word));
        keys = lives < keys ? lives : keys;
    }
    while (keyed->memory_max && keys > 1 &&
           key_table_size(keys) > keyed->memory_max - keyed->memory_max / 4)
        keys -= (keys + 15) / 16;
    keyed->memory_size = key_table_size(keys);
    if (!keyed->memory_size)
        return -ENOMEM;
    if (keyed->memory_max)
        rest = (keyed->memory_max - keyed->memory_size) / live;
    lives = rest < keys ? rest : keys;
    keyed->lives_max = lives < lives_max(keyed) ? (uint32_t)lives : lives_max(keyed);
    keyed->keys = keys;
    return 0;
}

/*
 * Whether what a key has can be a word: then its limit is decided as that of a set that is its word
 * (word.h). What the dead held of a resource could not be told from a word.
 */
static bool fits(const weir_set *set)
{
    const struct limit *limit = set->limits.items;

    return set->limits.n == 1 && limit->state_words == 1 &&
           (!limit->algorithm || limit->algorithm->flags & WEIR_ALGORITHM_WORD) &&
           !(limit->type == WEIR_LIMIT_RESOURCE && is_shared(set));
}

static int say(const weir_set *set, int r, struct weir_error *reterr)
{
    return error_set(reterr, r, "set `%s`: no table of %llu keys can be made: %s", set_name(set),
                     (unsigned long long)set->keyed->max_keys, strerrordesc_np(-r));
}

int keyed_new(weir_set *set, const struct set_plan *plan, struct weir_error *reterr)
{
    static const enum key_eviction evictions[] = {
        [EVICT_OLDEST] = KEY_EVICT_OLDEST,
        [EVICT_RANDOM] = KEY_EVICT_RANDOM,
        [EVICT_NONE] = KEY_EVICT_NONE,
    };
    struct keyed *keyed = sys_alloc(1, sizeof(*keyed));
    int r;

    if (!keyed)
        return error_set(reterr, -ENOMEM, "out of memory");
    set->keyed = keyed;
    keyed->set = set;
    keyed->max_keys = plan->keyed.max_keys;
    keyed->memory_max = plan->keyed.memory;
    keyed->eviction = evictions[plan->keyed.evict];
    keyed->fits = fits(set);
    r = divide_memory(keyed);
    return r < 0 ? say(set, r, reterr) : 0;
}

static int make_private(struct keyed *keyed)
{
    keyed->common = sys_alloc(1, sizeof(*keyed->common));
    keyed->memory = sys_reserve(keyed->memory_size);
    if (!keyed->memory || !keyed->common)
        return -ENOMEM;
    if (sys_commit(keyed->memory, keyed->memory_size) < 0)
        return -ENOMEM;
    sys_prefer_large_pages(keyed->memory, keyed->memory_size);
    key_secret_new(&keyed->secret);
    return key_table_open(&keyed->table, keyed->memory, keyed->keys);
}

int keyed_open(weir_set *set, struct weir_error *reterr)
{
    struct keyed *keyed = set->keyed;
    int r;

    if (set->member) {
        keyed->segment = set->member->segment;
        keyed->common = segment_keyed(keyed->segment);
        keyed->secret = keyed->segment->secret;
        r = key_table_open(&keyed->table, segment_keys(keyed->segment), keyed->keys);
    } else {
        r = make_private(keyed);
    }
    return r < 0 ? say(set, r, reterr) : 0;
}

void keyed_free(struct keyed *keyed)
{
    if (!keyed)
        return;
    lives_free(keyed);
    if (keyed->memory)
        sys_unreserve(keyed->memory, keyed->memory_size);
    if (!keyed->segment)
        sys_free(keyed->common);
    sys_free(keyed);
}

/* ---- subjects become keys ---- */

int keyed_hash(const struct keyed *keyed, const struct weir_request *request, struct key *ret)
{
    if (request->size < sizeof(*request) || !request->subject || !request->subject_size ||
        request->subject_size > WEIR_SUBJECT_MAX)
        return -EINVAL;
    key_hash(&keyed->secret, request->subject, request->subject_size, ret);
    key_table_prefetch(&keyed->table, ret);
    return 0;
}

void keyed_mark(const weir_set *set, struct record *r, const struct key *key)
{
    record_store(&r->amounts[set->limits.n], key->place);
    record_store(&r->amounts[set->limits.n + 1], key->id);
}
