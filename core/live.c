/* SPDX-License-Identifier: MIT */
/* Live sets: see live.h. */
#include "live.h"

#include "kept.h"
#include "member.h"
#include "mutant.h"
#include "placement.h"
#include "step.h"
#include "sys.h"
#include <errno.h>
#include <string.h>

/* How many are looked at for one that can go: what a newcomer waits for has a bound. */
#define SWEEP_MAX 64u

enum live_phase { LIVE_IDLE, LIVE_LENDING, LIVE_LENT };

#define PHASE_BITS 2u
#define PHASE_MASK ((UINT64_C(1) << PHASE_BITS) - 1)

size_t live_size(const weir_set *set)
{
    size_t box = (size_t)1 << box_class_for(set_content_max(set));

    if (set->backend == BACKEND_PROCESS && !set->w->apart)
        return sizeof(struct segment_live) + box;
    return sizeof(struct live) + UNIT_SIZE + (box > UNIT_SIZE ? box : UNIT_SIZE);
}

/* ---- what a version says ---- */

static uint64_t *words_of(const struct operation *op)
{
    return operation_states(op) + op->set->limits.state_words - LIVE_WORDS;
}

static enum live_phase phase_of(const struct operation *op)
{
    return (enum live_phase)(words_of(op)[LIVE_LOAN] & PHASE_MASK);
}

static uint64_t loan_of(const struct operation *op)
{
    return words_of(op)[LIVE_LOAN] >> PHASE_BITS & LIVE_LOAN_MASK;
}

static void set_loan(const struct operation *op, uint64_t loan, enum live_phase phase)
{
    words_of(op)[LIVE_LOAN] = (loan & LIVE_LOAN_MASK) << PHASE_BITS | phase;
}

/* The word that names a loan of it. */
static uint64_t name_of(const struct operation *op, uint64_t loan)
{
    return WORD_LIVE | (uint64_t)live_of(op->set)->number << LIVE_LOAN_BITS |
           (loan & LIVE_LOAN_MASK);
}

static struct key key_of(const struct operation *op)
{
    return (struct key){words_of(op)[LIVE_PLACE], words_of(op)[LIVE_ID]};
}

/* Whether the key of the version names it by its word; then its entry. */
static bool is_named(const struct keyed *keyed, const struct operation *op, struct key_entry *ret)
{
    const struct key key = key_of(op);

    return loan_of(op) && key_table_find(&keyed->table, &key, ret) &&
           ret->word == name_of(op, loan_of(op));
}

/* Who lends it anew may be stopped before the key's word says so, or dead. That is done for him. */
static void help(const struct keyed *keyed, const struct operation *op)
{
    const struct key key = key_of(op);
    struct key_entry entry;

    if (phase_of(op) == LIVE_LENDING && !MUTANT(606) &&
        key_table_find(&keyed->table, &key, &entry) && entry.word == name_of(op, loan_of(op) - 1))
        key_entry_swap(&entry, name_of(op, loan_of(op)));
}

/* Reads the live set that a word names; false: it is not what the word says any more. */
static bool read_named(struct operation *op, struct actor *actor, struct keyed *keyed,
                       uint64_t word, struct live *storage)
{
    struct live *live = live_at(keyed, word, storage);

    if (!live)
        return false;
    operation_read(op, actor, &live->set);
    if (set_is_broken(op->set))
        return false;
    if (name_of(op, loan_of(op)) == word)
        return true;
    help(keyed, op);
    return false;
}

/* Nobody is in line, or has reserved. */
static bool is_quiet(const struct operation *op)
{
    return (!line_length(&op->version) || MUTANT(602)) &&
           !(version_flags(&op->version) & CONTENT_SHUT) && op->at.now_ns == op->now_ns &&
           !set_is_broken(op->set);
}

bool live_admits(struct operation *op)
{
    if ((loan_of(op) != op->actor->loan && !MUTANT(603)) ||
        (phase_of(op) == LIVE_IDLE && !MUTANT(599)))
        return false;
    set_loan(op, op->actor->loan, LIVE_LENT);
    return true;
}

bool live_estimate(struct actor *actor, struct live *live, uint64_t word, const uint64_t *amounts,
                   enum walk walk, struct verdict *ret)
{
    struct operation op = {.set = &live->set, .version.content = actor->content};

    set_estimate(actor, &live->set, amounts, walk, ret); /* which leaves what it went by there */
    return set_is_broken(&live->set) || name_of(&op, loan_of(&op)) == word;
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

/* The same of a live set that the key names. Once it is idle, nobody is in line. */
static enum key_use use_of(const struct operation *op, uint64_t *ret_instant)
{
    if (phase_of(op) != LIVE_IDLE && !is_quiet(op))
        return KEY_HELD;
    return states_use(&op->set->limits, operation_states(op), &op->at, ret_instant);
}

enum key_use live_use(struct actor *actor, struct keyed *keyed, uint64_t word,
                      uint64_t *ret_instant)
{
    struct live storage;
    struct operation op;

    if (!read_named(&op, actor, keyed, word, &storage))
        return KEY_HELD;
    return use_of(&op, ret_instant);
}

/* ---- ends of loans ---- */

/* False: the live set has changed. Nobody enters it any more. */
static bool end_loan(struct operation *op)
{
    set_loan(op, loan_of(op), LIVE_IDLE);
    projection_forget(op);
    return operation_commit(op);
}

static void raise(_Atomic uint64_t *instant, uint64_t to)
{
    uint64_t before = atomic_load_explicit(instant, memory_order_relaxed);

    while (before < to && !atomic_compare_exchange_weak(instant, &before, to))
        ;
}

static bool fits(const struct keyed *keyed, const struct operation *op)
{
    return keyed->fits && !(*operation_states(op) & WORD_LIVE);
}

/* Takes the key's entry away, if it is still what was looked at. */
static bool remove_entry(const struct key_entry *entry, _Atomic uint64_t *counter)
{
    if (!key_entry_forget(entry))
        return false;
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
    return true;
}

/* After the end of a loan that the entry names: the key gets its state back, or goes; by us, or
 * somebody else has seen to it. False: no word can be that. */
static bool end_name(struct keyed *keyed, const struct operation *op, struct key_entry *entry)
{
    const uint64_t *states = operation_states(op);

    if (states_are_new(&op->set->limits, states, &op->at) || MUTANT(461)) {
        remove_entry(entry, &keyed->common->forgotten);
        return true;
    }
    if (!fits(keyed, op))
        return false;
    raise(&keyed->common->quiet_ns, op->at.now_ns);
    key_entry_swap(entry, *states);
    return true;
}

/* ---- those that are idle ---- */

/* Its place in the list of those. */
struct link {
    _Atomic uint32_t *next, *listed;
};

static struct link link_of(const struct keyed *keyed, uint32_t number)
{
    struct segment_live *shared;
    struct live *live;

    if (keyed->segment) {
        shared = segment_live(keyed->segment, number);
        return (struct link){&shared->next, &shared->listed};
    }
    live = *table_at(&keyed->lives, number);
    return (struct link){&live->next, &live->listed};
}

/* Unless it is there already. */
static void push(struct keyed *keyed, uint32_t number)
{
    struct link link = link_of(keyed, number);
    uint64_t top = atomic_load(&keyed->common->idle), next;

    if (atomic_exchange(link.listed, 1))
        return;
    STEP();
    do {
        atomic_store(link.next, (uint32_t)top);
        next = ((top >> 32) + 1) << 32 | (number + 1);
    } while (!atomic_compare_exchange_weak(&keyed->common->idle, &top, next));
    STEP();
}

/* Whoever pops one looks afterwards whether it is idle; and whoever ends a loan looks then whether
 * it is listed: so that it is lent or listed. */
static bool pop(struct keyed *keyed, uint32_t *ret)
{
    uint64_t top = atomic_load(&keyed->common->idle), next;
    uint32_t number;

    do {
        number = (uint32_t)top - 1;
        if (number >= lives_n(keyed))
            return false;
        next = ((top >> 32) + 1) << 32 | atomic_load(link_of(keyed, number).next);
        STEP();
    } while (!atomic_compare_exchange_weak(&keyed->common->idle, &top, next));
    STEP();
    atomic_store(link_of(keyed, number).listed, 0);
    *ret = number;
    return true;
}

bool live_let_go(struct actor *actor, struct keyed *keyed, uint64_t word, enum key_use use)
{
    struct live storage;
    struct operation op;
    enum key_use now;
    uint64_t instant;

    if (!read_named(&op, actor, keyed, word, &storage))
        return false;
    now = use_of(&op, &instant);
    if (now == KEY_HELD || (use == KEY_AS_NEW && now != use))
        return false;
    if (phase_of(&op) != LIVE_IDLE && !MUTANT(601) && !end_loan(&op))
        return false;
    push(keyed, live_of(op.set)->number); /* whoever replaces the entry does so at once */
    return true;
}

void live_leave(struct actor *actor, struct live *live)
{
    struct keyed *keyed = live->keyed;
    struct key_entry entry;
    struct operation op;

    operation_read(&op, actor, &live->set);
    if (phase_of(&op) == LIVE_IDLE || !is_quiet(&op))
        return;
    if (!fits(keyed, &op) && !states_are_new(&op.set->limits, operation_states(&op), &op.at))
        return;
    if (is_named(keyed, &op, &entry) && (MUTANT(607) || end_loan(&op)) &&
        end_name(keyed, &op, &entry))
        push(keyed, live->number);
}

void live_leave_record(struct actor *actor, weir_set *set)
{
    live_leave(actor, live_of(set));
}

/* ---- lending ---- */

/* Who lends, as records say whose they are. */
static uint64_t lender_of(const struct operation *op)
{
    uint32_t unit = actor_part(op->actor, op->set->number)->unit;
    const struct actor_head *head = region_box(op->set->region, unit);

    return (uint64_t)unit << 32 |
           (uint32_t)atomic_load_explicit(&head->generation, memory_order_relaxed);
}

/* The next loan; returns the word that names it. */
static uint64_t begin_loan(const struct operation *op)
{
    uint64_t loan = loan_of(op) + (!MUTANT(605) || !loan_of(op));

    set_loan(op, loan, LIVE_LENDING);
    words_of(op)[LIVE_LENDER] = lender_of(op);
    return name_of(op, loan);
}

static void fill(struct operation *op, const struct key *key, const uint64_t *states)
{
    uint64_t *to = operation_states(op);
    size_t n = op->set->limits.state_words - LIVE_WORDS;

    if (states && !MUTANT(460)) {
        memcpy(to, states, n * sizeof(*to));
    } else {
        memset(to, 0, n * sizeof(*to));
        limits_init(&op->set->limits, to, &op->at);
    }
    words_of(op)[LIVE_PLACE] = key->place;
    words_of(op)[LIVE_ID] = key->id;
    projection_forget(op);
}

/* What somebody wants one for. */
struct wish {
    struct keyed *keyed;
    struct actor *actor;
    const struct key *key;
    const uint64_t *states;
    struct live *live; /* what it comes to */
    uint64_t word;
};

/* Lends it: 1; 0: it is not to be had; or a negative errno. */
static int lend(struct wish *wish, struct live *live)
{
    struct key_entry entry;
    struct operation op;

    operation_read(&op, wish->actor, &live->set);
    if (set_is_broken(&live->set))
        return -EUCLEAN;
    if (version_flags(&op.version) & CONTENT_SHUT)
        return -ESHUTDOWN;
    if (phase_of(&op) != LIVE_IDLE || line_length(&op.version) ||
        (is_named(wish->keyed, &op, &entry) && !MUTANT(600)))
        return 0;
    fill(&op, wish->key, wish->states);
    wish->word = begin_loan(&op);
    wish->live = live;
    return operation_commit(&op);
}

void live_return(struct live *live, struct actor *actor, uint64_t word)
{
    struct key_entry entry;
    struct operation op;

    do {
        operation_read(&op, actor, &live->set);
        if (phase_of(&op) != LIVE_LENDING || name_of(&op, loan_of(&op)) != word ||
            set_is_broken(&live->set) || is_named(live->keyed, &op, &entry) || MUTANT(604))
            return;
    } while (!end_loan(&op));
    push(live->keyed, live->number);
}

/* To the key that it is still named by. The entry is changed by us, or for us. */
static void lend_anew(struct operation *op, struct key_entry *entry)
{
    uint64_t word = begin_loan(op);

    if (!operation_commit(op) || key_entry_swap(entry, word) == KEY_SWAPPED || entry->word == word)
        return;
    live_return(live_of(op->set), op->actor, word);
}

/* Whether the entry, that of a live set which was read after it, says the same still. */
static bool is_still(const struct keyed *keyed, const struct key *key,
                     const struct key_entry *entry)
{
    struct key_entry now;

    return key_table_find(&keyed->table, key, &now) && now.word == entry->word;
}

int live_mend(struct actor *actor, struct keyed *keyed, const struct key *key,
              struct key_entry *entry)
{
    struct live storage;
    struct operation op;

    if (!read_named(&op, actor, keyed, entry->word, &storage)) {
        if (keyed->set->member && is_still(keyed, key, entry))
            member_break(keyed->set->member); /* nobody would have written that */
    } else if (phase_of(&op) == LIVE_IDLE && !end_name(keyed, &op, entry)) {
        lend_anew(&op, entry);
    }
    return set_is_broken(keyed->set) ? -EUCLEAN : -EINPROGRESS;
}

/* ---- to be had ---- */

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

/* One more, under the instance's lock: 0, -ENOBUFS: there are enough; or as above, or of a segment
 * what the system says. */
static int make(struct keyed *keyed, uint32_t number)
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

/* The best of those looked at. */
struct candidate {
    struct live *live;
    struct key_entry entry;
    uint64_t instant;
};

static void consider(struct candidate *best, const struct keyed *keyed, struct live *live,
                     const struct key_entry *entry, uint64_t instant)
{
    if (!best->live || (keyed->eviction == KEY_EVICT_OLDEST && instant < best->instant))
        *best = (struct candidate){live, *entry, instant};
}

/* Whether who lends is dead, and what he held given back. Threads are not. */
static bool is_abandoned(const struct operation *op)
{
    const struct segment *segment = live_of(op->set)->keyed->segment;
    uint64_t lender = words_of(op)[LIVE_LENDER];
    uint32_t i;

    if (!segment)
        return MUTANT(608);
    return !segment_actor_of(segment, (uint32_t)(lender >> 32), &i) ||
           (uint32_t)atomic_load(&segment_actor(segment, i)->head.generation) != (uint32_t)lender;
}

/* Whether it is in nobody's hands from now on, without anybody's loss; else it may be a candidate. */
static bool frees(const struct wish *wish, struct live *live, struct candidate *best)
{
    struct keyed *keyed = wish->keyed;
    struct key_entry entry;
    struct operation op;
    uint64_t instant;
    bool abandoned;

    operation_read(&op, wish->actor, &live->set);
    if (set_is_broken(&live->set))
        return false;
    abandoned = is_abandoned(&op); /* then he has done to the key's word what he has */
    help(keyed, &op);
    if (!is_named(keyed, &op, &entry))
        return phase_of(&op) == LIVE_IDLE ||
               (phase_of(&op) == LIVE_LENDING && abandoned && end_loan(&op));
    if (phase_of(&op) == LIVE_IDLE && end_name(keyed, &op, &entry))
        return true;
    if (fits(keyed, &op) && is_quiet(&op) &&
        !MUTANT(611)) /* whoever left last did not come to it */
        return end_loan(&op) && end_name(keyed, &op, &entry);
    switch (use_of(&op, &instant)) {
    case KEY_AS_NEW:
        return (MUTANT(609) || end_loan(&op)) && remove_entry(&entry, &keyed->common->forgotten);
    case KEY_LIVE:
        consider(best, keyed, live, &entry, instant);
        return false;
    default:
        return false;
    }
}

/* One that can go is lent: 0, or -ENOBUFS. */
static int sweep(struct wish *wish)
{
    struct keyed *keyed = wish->keyed;
    uint32_t all = lives_n(keyed), n = all < SWEEP_MAX ? all : SWEEP_MAX;
    struct candidate best = {0};
    int r;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t hand = atomic_fetch_add_explicit(&keyed->hand, 1, memory_order_relaxed);
        struct live *live = live_numbered(keyed, hand % all, NULL);

        if (live && frees(wish, live, &best) && (r = lend(wish, live)) != 0)
            return r < 0 ? r : 0;
    }
    if (!best.live || keyed->eviction == KEY_EVICT_NONE ||
        !live_let_go(wish->actor, keyed, best.entry.word, KEY_LIVE) ||
        !remove_entry(&best.entry, &keyed->common->evicted))
        return -ENOBUFS;
    r = lend(wish, best.live);
    return r == 1 ? 0 : r < 0 ? r : -ENOBUFS;
}

/* One that is idle is lent: 0, or -ENOBUFS: none is listed. */
static int lend_idle(struct wish *wish)
{
    uint32_t number;

    for (uint32_t i = 0; i < SWEEP_MAX && pop(wish->keyed, &number); i++) {
        struct live *live = live_numbered(wish->keyed, number, NULL);
        int r = live ? lend(wish, live) : -ENOMEM;

        if (r != 0)
            return r < 0 ? r : 0;
    }
    return -ENOBUFS;
}

static int lend_new(struct wish *wish)
{
    struct keyed *keyed = wish->keyed;
    weir *w = keyed->set->w;
    struct live *live;
    uint32_t number;
    int r;

    do {
        pthread_mutex_lock(&w->lock);
        number = lives_n(keyed);
        r = make(keyed, number);
        pthread_mutex_unlock(&w->lock);
        if (r < 0)
            return r == -ENOSPC ? -ENOMEM : r; /* as for all that calls need in a segment */
        live = live_numbered(keyed, number, NULL);
        r = live ? lend(wish, live) : -ENOMEM;
    } while (r == 0); /* somebody else has it already */
    return r < 0 ? r : 0;
}

int live_borrow(struct keyed *keyed, struct actor *actor, const struct key *key,
                const uint64_t *states, struct live **ret, uint64_t *ret_word)
{
    struct wish wish = {.keyed = keyed, .actor = actor, .key = key, .states = states};
    int r = lend_idle(&wish), lacks;

    if (r == -ENOBUFS)
        r = lend_new(&wish);
    if (r == -ENOBUFS || r == -ENOMEM) {
        lacks = r;
        r = sweep(&wish);
        if (r == -ENOBUFS)
            r = lacks;
    }
    *ret = wish.live;
    *ret_word = wish.word;
    return r;
}
