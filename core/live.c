/* SPDX-License-Identifier: MIT */
/* Live sets: see live.h. */
#include "live.h"

#include "instance.h"
#include "mutant.h"
#include "operation.h"
#include "placement.h"
#include "sys.h"
#include "word.h"
#include <errno.h>
#include <string.h>

/* How many are looked at for one that can go: what a newcomer waits for has a bound. */
#define SWEEP_MAX 64u

size_t live_size(const weir_set *set)
{
    size_t box = (size_t)1 << set->box_class;

    return sizeof(struct live) + UNIT_SIZE + (box > UNIT_SIZE ? box : UNIT_SIZE);
}

/* ---- words ---- */

static uint64_t word_of(const struct live *live, uint64_t pins)
{
    return WORD_LIVE | (uint64_t)live->number << LIVE_PINS_BITS | (pins & LIVE_PINS_MASK);
}

uint64_t live_word(const struct live *live)
{
    return word_of(live, atomic_load_explicit(&live->left, memory_order_relaxed) + !MUTANT(452));
}

uint64_t live_pinned(uint64_t word)
{
    return (word & ~LIVE_PINS_MASK) | ((word + !MUTANT(453)) & LIVE_PINS_MASK);
}

struct live *live_at(const struct keyed *keyed, uint64_t word)
{
    uint32_t number = (uint32_t)(word >> LIVE_PINS_BITS & ((1u << LIVE_NUMBERS_BITS) - 1));

    if (!(word & WORD_LIVE) || number >= atomic_load(&keyed->lives_n))
        return NULL;
    return *table_at(&keyed->lives, number);
}

/* Whether everybody has let go who had taken hold by then. */
static bool is_let_go(const struct live *live, uint64_t word)
{
    return word == word_of(live, atomic_load(&live->left));
}

/* The key's entry, as long as it names the live set. */
static bool find(const struct live *live, struct key_entry *ret)
{
    const struct key key = {atomic_load_explicit(&live->place, memory_order_relaxed),
                            atomic_load_explicit(&live->id, memory_order_relaxed)};

    return key_table_find(&live->keyed->table, &key, ret) &&
           live_at(live->keyed, ret->word) == live;
}

/* ---- what can go ---- */

bool states_are_new(const struct limits *limits, const uint64_t *states,
                    const struct weir_instant *at)
{
    for (uint32_t i = 0; i < limits->n; i++)
        if (!limit_is_new(&limits->items[i], states + limits->items[i].state_at, at))
            return false;
    return true;
}

enum key_use states_use(const struct limits *limits, const uint64_t *states,
                        const struct weir_instant *at, uint64_t *ret_instant)
{
    uint64_t recovered = at->now_ns;

    if (states_are_new(limits, states, at) && !MUTANT(454))
        return KEY_AS_NEW;
    for (uint32_t i = 0; i < limits->n; i++) {
        const struct limit *limit = &limits->items[i];
        uint64_t ready = 0;

        if (limit->type != WEIR_LIMIT_RESOURCE)
            ready = limit_ready_at(limit, states + limit->state_at, at, limit->capacity);
        else if (!limit_is_new(limit, states + limit->state_at, at) && !MUTANT(455))
            return KEY_HELD;
        recovered = ready > recovered ? ready : recovered;
    }
    *ret_instant = recovered;
    return KEY_LIVE;
}

/* What the live set says, in actor->content. False: somebody has to do with it, or will have. */
static bool read_quiet(struct actor *actor, struct live *live, struct weir_instant *ret_at)
{
    struct operation op;

    operation_read(&op, actor, &live->set);
    *ret_at = op.at;
    return !line_length(&op.version) && !(version_flags(&op.version) & CONTENT_SHUT) &&
           op.at.now_ns == op.now_ns;
}

enum key_use live_use(struct actor *actor, const struct keyed *keyed, uint64_t word,
                      uint64_t *ret_instant)
{
    struct live *live = live_at(keyed, word);
    struct weir_instant at;

    if (!live || (!is_let_go(live, word) && !MUTANT(456)) || !read_quiet(actor, live, &at))
        return KEY_HELD;
    return states_use(&live->set.limits, actor->content + CONTENT_STATES, &at, ret_instant);
}

/* ---- those in nobody's hands ---- */

/* A hidden set that is as the template is, but for what changes. */
static int make_set(weir_set *set, const weir_set *template, uint32_t number)
{
    weir *w = template->w;

    set->w = w;
    set->region = template->region;
    set->number = template->number; /* it is counted as the template */
    set->id = HIDDEN_SET | number;
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
    return placement_make(set, NULL, NULL);
}

/* Adds one. Under the lock. */
static int make(struct keyed *keyed, struct live **ret)
{
    weir *w = keyed->set->w;
    uint32_t number = keyed->lives_n;
    struct live *live;
    int r = table_reserve(&keyed->lives, number + 1);

    live = r == 0 ? sys_alloc(1, sizeof(*live)) : NULL;
    if (!live)
        return -ENOMEM;
    live->keyed = keyed;
    live->number = number;
    pthread_mutex_lock(&w->lock);
    if (instance_closed(w))
        r = -ESHUTDOWN;
    else if ((r = table_reserve(&w->hidden, w->hidden_n + 1)) == 0)
        r = make_set(&live->set, keyed->set, w->hidden_n);
    if (r == 0) {
        *table_at(&w->hidden, w->hidden_n) = &live->set;
        w->hidden_n++;
    }
    pthread_mutex_unlock(&w->lock);
    if (r < 0) {
        sys_free(live);
        return r;
    }
    *table_at(&keyed->lives, number) = live;
    atomic_store(&keyed->lives_n, number + 1);
    *ret = live;
    return 0;
}

void lives_free(struct keyed *keyed)
{
    for (uint32_t i = 0; i < keyed->lives_n; i++)
        sys_free(*table_at(&keyed->lives, i));
    table_free(&keyed->lives);
}

/* Gives up a key whose live set nobody holds, if the entry is still what was looked at. */
static bool forget(struct keyed *keyed, const struct key_entry *entry, _Atomic uint64_t *counter)
{
    if (!key_entry_forget(entry))
        return false;
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
    (void)keyed;
    return true;
}

/* The best of those looked at. */
struct candidate {
    struct live *live;
    struct key_entry entry;
    uint64_t instant;
};

/* Whether this one is free from now on, without anybody's loss; else it may be a candidate. */
static bool frees(struct keyed *keyed, struct actor *actor, struct live *live,
                  struct candidate *best)
{
    struct key_entry entry;
    uint64_t instant;

    if (live->loan != LOAN_KNOWN)
        return false;
    if (!find(live, &entry))
        return true; /* its key was forgotten or evicted for another */
    switch (live_use(actor, keyed, entry.word, &instant)) {
    case KEY_AS_NEW:
        return forget(keyed, &entry, &keyed->forgotten);
    case KEY_LIVE:
        if (!best->live || (keyed->eviction == KEY_EVICT_OLDEST && instant < best->instant))
            *best = (struct candidate){live, entry, instant};
        return false;
    default:
        return false;
    }
}

/* One that can go, or NULL. Under the lock. */
static struct live *sweep(struct keyed *keyed, struct actor *actor)
{
    uint32_t n = keyed->lives_n < SWEEP_MAX ? keyed->lives_n : SWEEP_MAX;
    struct candidate best = {0};

    for (uint32_t i = 0; i < n; i++) {
        struct live *live = *table_at(&keyed->lives, keyed->hand++ % keyed->lives_n);

        if (frees(keyed, actor, live, &best))
            return live;
    }
    if (!best.live || keyed->eviction == KEY_EVICT_NONE ||
        !forget(keyed, &best.entry, &keyed->evicted))
        return NULL;
    return best.live;
}

static int take_idle(struct keyed *keyed, struct actor *actor, struct live **ret)
{
    int r = -ENOBUFS;

    *ret = keyed->idle;
    if (*ret) {
        keyed->idle = (*ret)->next;
        return 0;
    }
    if (keyed->lives_n < keyed->lives_max)
        r = make(keyed, ret);
    if (r == -ENOBUFS || r == -ENOMEM)
        *ret = sweep(keyed, actor);
    return *ret ? 0 : r;
}

static void put_idle(struct live *live)
{
    live->loan = LOAN_NONE;
    live->next = live->keyed->idle;
    live->keyed->idle = live;
}

/* ---- lending ---- */

/* One attempt: 0, -EINPROGRESS, or -ENOMEM. Nobody else knows of it, but that all are shut when the
 * instance closes. */
static int fill_once(struct actor *actor, struct live *live, const uint64_t *states)
{
    const struct limits *limits = &live->set.limits;
    weir_set *set = &live->set;
    struct operation op;
    uint64_t *to;
    bool done;

    operation_read(&op, actor, set);
    to = operation_states(&op);
    if (states && !MUTANT(460)) {
        memcpy(to, states, limits->state_words * sizeof(*to));
    } else {
        memset(to, 0, limits->state_words * sizeof(*to));
        limits_init(limits, to, &op.at);
    }
    projection_forget(&op);
    if (version_is_boxed(&op.version))
        done = operation_commit(&op);
    else if (*to & WORD_BOXED)
        return word_box(actor, set, op.version.word);
    else
        done = publication_swap(set->region, set->head, op.version.word, *to);
    return done ? 0 : -EINPROGRESS;
}

static int fill(struct actor *actor, struct live *live, const uint64_t *states)
{
    int r;

    do
        r = fill_once(actor, live, states);
    while (r == -EINPROGRESS);
    return r;
}

int live_borrow(struct keyed *keyed, struct actor *actor, const struct key *key,
                const uint64_t *states, struct live **ret)
{
    struct live *live = NULL;
    int r;

    pthread_mutex_lock(&keyed->lock);
    r = take_idle(keyed, actor, &live);
    if (r == 0) {
        live->loan = LOAN_UNKNOWN;
        atomic_fetch_add_explicit(&live->loans, 1, memory_order_relaxed);
        atomic_store_explicit(&live->place, key->place, memory_order_relaxed);
        atomic_store_explicit(&live->id, key->id, memory_order_relaxed);
    }
    pthread_mutex_unlock(&keyed->lock);
    if (r < 0)
        return r;
    r = fill(actor, live, states);
    if (r < 0)
        live_return(live);
    else
        *ret = live;
    return r;
}

void live_known(struct live *live)
{
    pthread_mutex_lock(&live->keyed->lock);
    live->loan = LOAN_KNOWN;
    pthread_mutex_unlock(&live->keyed->lock);
}

void live_return(struct live *live)
{
    pthread_mutex_lock(&live->keyed->lock);
    put_idle(live);
    pthread_mutex_unlock(&live->keyed->lock);
}

/* Its key has it no more, since that loan; whoever swept may have found that out before. */
static void retire(struct live *live, uint64_t loans)
{
    pthread_mutex_lock(&live->keyed->lock);
    if (live->loan == LOAN_KNOWN && atomic_load(&live->loans) == loans)
        put_idle(live);
    pthread_mutex_unlock(&live->keyed->lock);
}

static void raise(_Atomic uint64_t *instant, uint64_t to)
{
    uint64_t before = atomic_load_explicit(instant, memory_order_relaxed);

    while (before < to && !atomic_compare_exchange_weak(instant, &before, to))
        ;
}

/* Nobody holds it, as the entry says: what can be done without is given up. */
static void give_up(struct actor *actor, struct live *live, struct key_entry *entry)
{
    struct keyed *keyed = live->keyed;
    uint64_t loans = atomic_load(&live->loans);
    const uint64_t *states = actor->content + CONTENT_STATES;
    struct weir_instant at;

    if (!read_quiet(actor, live, &at))
        return;
    if (states_are_new(&live->set.limits, states, &at) || MUTANT(461)) {
        if (forget(keyed, entry, &keyed->forgotten))
            retire(live, loans);
    } else if (keyed->fits && !(states[0] & WORD_LIVE)) {
        raise(&keyed->quiet_ns, at.now_ns);
        if (key_entry_swap(entry, states[0]) == KEY_SWAPPED)
            retire(live, loans);
    }
}

/* Of a set that nobody holds then, what can be done without is given up. */
void live_unpin(struct actor *actor, struct live *live)
{
    uint64_t left = atomic_fetch_add(&live->left, 1) + 1;
    struct key_entry entry;

    if (find(live, &entry) && entry.word == word_of(live, left))
        give_up(actor, live, &entry);
}

void live_unpin_record(struct actor *actor, weir_set *set)
{
    live_unpin(actor, live_of(set));
}
