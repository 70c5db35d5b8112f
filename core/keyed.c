/* SPDX-License-Identifier: MIT */
/* Keyed sets: see keyed.h. */
#include "keyed.h"

#include "instance.h"
#include "live.h"
#include "mutant.h"
#include "operation.h"
#include "step.h"
#include "sys.h"
#include <errno.h>
#include <string.h>

/* ---- made and freed ---- */

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
    keyed->lives_max = lives < LIVES_MAX ? (uint32_t)lives : LIVES_MAX;
    keyed->keys = keys;
    return 0;
}

static int open_table(struct keyed *keyed)
{
    keyed->memory = sys_reserve(keyed->memory_size);
    if (!keyed->memory)
        return -ENOMEM;
    if (sys_commit(keyed->memory, keyed->memory_size) < 0)
        return -ENOMEM;
    sys_prefer_large_pages(keyed->memory, keyed->memory_size);
    key_secret_new(&keyed->secret);
    return key_table_open(&keyed->table, keyed->memory, keyed->keys);
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
    keyed->set = set;
    keyed->max_keys = plan->keyed.max_keys;
    keyed->memory_max = plan->keyed.memory;
    keyed->eviction = evictions[plan->keyed.evict];
    keyed->fits = set->limits.n == 1 && set->limits.state_words == 1;
    pthread_mutex_init(&keyed->lock, NULL);
    r = divide_memory(keyed);
    if (r == 0)
        r = open_table(keyed);
    if (r < 0) {
        keyed_free(keyed);
        return error_set(reterr, r, "set `%s`: no table of %llu keys can be made: %s", plan->name,
                         (unsigned long long)plan->keyed.max_keys, strerrordesc_np(-r));
    }
    set->keyed = keyed;
    return 0;
}

void keyed_free(struct keyed *keyed)
{
    if (!keyed)
        return;
    lives_free(keyed);
    if (keyed->memory)
        sys_unreserve(keyed->memory, keyed->memory_size);
    pthread_mutex_destroy(&keyed->lock);
    sys_free(keyed);
}

int keyed_hash(const struct keyed *keyed, const struct weir_request *request, struct key *ret)
{
    if (request->size < sizeof(*request) || !request->subject || !request->subject_size ||
        request->subject_size > WEIR_SUBJECT_MAX)
        return -EINVAL;
    key_hash(&keyed->secret, request->subject, request->subject_size, ret);
    key_table_prefetch(&keyed->table, ret);
    return 0;
}

/* ---- keys of records ---- */

void keyed_mark(const weir_set *set, struct record *r, const struct key *key)
{
    record_store(&r->amounts[set->limits.n], key->place);
    record_store(&r->amounts[set->limits.n + 1], key->id);
}

static struct key key_of(const weir_set *set, uint32_t record)
{
    const struct record *r = record_at(set->region, record);

    return (struct key){record_load(&r->amounts[set->limits.n]),
                        record_load(&r->amounts[set->limits.n + 1])};
}

/* ---- places for new keys ---- */

struct judging {
    struct actor *actor;
    const struct keyed *keyed;
    struct weir_instant at;
};

static enum key_use judge(const void *userdata, uint64_t word, uint64_t *ret_instant)
{
    const struct judging *judging = userdata;

    if (word & WORD_LIVE)
        return live_use(judging->actor, judging->keyed, word, ret_instant);
    return states_use(&judging->keyed->set->limits, &word, &judging->at, ret_instant);
}

static void tell(struct keyed *keyed, const struct key_tally *tally)
{
    if (tally->forgotten)
        atomic_fetch_add_explicit(&keyed->forgotten, tally->forgotten, memory_order_relaxed);
    if (tally->evicted)
        atomic_fetch_add_explicit(&keyed->evicted, tally->evicted, memory_order_relaxed);
}

static enum key_claim claim(struct keyed *keyed, struct actor *actor, const struct key *key,
                            const struct weir_instant *at, struct key_entry *ret)
{
    const struct judging judging = {actor, keyed, *at};
    const struct key_judge keys = {judge, &judging, keyed->eviction};
    struct key_tally tally = {0};
    enum key_claim claimed =
        key_table_claim(&keyed->table, key, &keys, &actor->claimant, ret, &tally);

    tell(keyed, &tally);
    return claimed;
}

/* ---- entering ---- */

/* One attempt to enter, for all that follows. */
struct entering {
    struct asking *asking;
    struct keyed *keyed;
    weir_set *set; /* the template */
    uint32_t record;
    enum entry entry;
    uint64_t max_wait_ns;
};

/* The record, and the acquisition that has it, are of this set from now on. */
static void move(const struct entering *entering, weir_set *set)
{
    struct asking *asking = entering->asking;

    asking->set = set;
    if (asking->acquisition)
        asking->acquisition->set = set;
    if (entering->record)
        record_store(&record_at(set->region, entering->record)->set,
                     (uint64_t)set->id << 32 | asking->actor->thread);
}

/* Into a live set that is pinned. */
static int enter_live(const struct entering *entering, struct live *live)
{
    struct asking *asking = entering->asking;
    int r;

    move(entering, &live->set);
    r = set_enter(asking->actor, &live->set, asking->amounts, entering->record, entering->entry,
                  entering->max_wait_ns, &asking->verdict);
    if (r >= 0 && entering->record)
        return r; /* the pin is the record's */
    move(entering, entering->set);
    live_unpin(asking->actor, live);
    return r;
}

/* No room for another key, or for a line. */
static int turn_away(const struct entering *entering, int r)
{
    struct asking *asking = entering->asking;

    asking->verdict = (struct verdict){.now_ns = instance_now(entering->set->w)};
    asking->verdict.estimate_ns = asking->verdict.now_ns;
    if (r == -ENOBUFS) {
        atomic_fetch_add_explicit(&entering->keyed->refused, 1, memory_order_relaxed);
        count(&actor_counters(asking->actor, entering->set->number)->refused_full, 1);
    }
    return r;
}

/* The key of an entry gets a live set, which is entered. */
static int enter_promoted(const struct entering *entering, struct key_entry *entry)
{
    struct asking *asking = entering->asking;
    uint64_t state = entry->word;
    struct live *live;
    int r = live_borrow(entering->keyed, asking->actor, &asking->key, &state, &live);

    if (r < 0)
        return turn_away(entering, r);
    if (key_entry_swap(entry, live_word(live)) != KEY_SWAPPED) {
        live_return(live);
        return -EINPROGRESS;
    }
    live_known(live);
    return enter_live(entering, live);
}

/* The same for a place that was claimed. */
static int enter_claimed_live(const struct entering *entering, struct key_entry *entry)
{
    struct asking *asking = entering->asking;
    struct live *live;
    int r = live_borrow(entering->keyed, asking->actor, &asking->key, NULL, &live);

    if (r < 0) {
        key_claim_drop(entry);
        return turn_away(entering, r);
    }
    if (!key_claim_commit(entry, live_word(live))) {
        live_return(live);
        return -EINPROGRESS;
    }
    live_known(live);
    return enter_live(entering, live);
}

/* By the word of its key, that is of a set with one limit. */
static void granted(const struct entering *entering, uint64_t now_ns)
{
    struct asking *asking = entering->asking;
    struct counters *counters = actor_counters(asking->actor, entering->set->number);

    if (entering->record) {
        struct record *r = record_at(entering->set->region, entering->record);
        uint64_t held = record_next_word(record_load(&r->word), RECORD_HELD);

        record_store(&r->granted, now_ns);
        record_store(&r->since, now_ns);
        atomic_store_explicit(&r->word, held, memory_order_release);
        STEP();
    }
    asking->verdict = (struct verdict){.now_ns = now_ns, .estimate_ns = now_ns};
    count(&counters->granted, 1);
    count(&counters->limits[0].granted, asking->amounts[0]);
    if (!entering->record)
        count(&counters->taken, 1);
}

/* What the word says cannot be had before `ready`, and nobody is in line. */
static int refuse(const struct entering *entering, struct key_entry *entry, uint64_t now_ns,
                  uint64_t ready)
{
    const struct limit *limit = entering->set->limits.items;
    struct asking *asking = entering->asking;

    asking->verdict = (struct verdict){.now_ns = now_ns, .estimate_ns = ready, .blame = limit};
    if (ready == WEIR_NEVER) {
        set_count_refusal(asking->actor, entering->set, -ERANGE, limit->key);
        return -ERANGE;
    }
    if (entering->entry == ENTRY_PROBE)
        return -EAGAIN;
    if (entering->entry != ENTRY_TRY)
        return enter_promoted(entering, entry);
    if (limit->type == WEIR_LIMIT_RESOURCE)
        asking->verdict.estimate_ns = now_ns; /* not foreseen */
    set_count_busy(asking->actor, entering->set, limit);
    return -EAGAIN;
}

/*
 * By the word of a key that is there. The clock was read before it, which others want, too: an
 * earlier instant grants no more.
 */
static int enter_word(const struct entering *entering, struct key_entry *entry,
                      struct weir_instant at)
{
    const struct keyed *keyed = entering->keyed;
    const struct limit *limit = entering->set->limits.items;
    uint64_t amount = entering->asking->amounts[0];
    enum key_swap swap;

    do {
        uint64_t state = entry->word, quiet_ns, ready;

        if (state & WORD_LIVE)
            return -EINPROGRESS;
        quiet_ns = atomic_load_explicit(&keyed->quiet_ns, memory_order_acquire);
        if (at.now_ns < quiet_ns)
            at.now_ns = quiet_ns; /* somebody has read that from the clock meanwhile */
        ready = limit_try_take(limit, &state, &at, amount);
        if (ready > at.now_ns)
            return refuse(entering, entry, at.now_ns, ready);
        if (state & WORD_LIVE)
            return enter_promoted(entering, entry);
        swap = key_entry_swap(entry, state);
    } while (swap == KEY_CHANGED);
    if (swap != KEY_SWAPPED && !MUTANT(459))
        return -EINPROGRESS;
    granted(entering, at.now_ns);
    return 0;
}

/* By the word that a new key gets. */
static int enter_claimed(const struct entering *entering, struct key_entry *entry)
{
    const weir_set *set = entering->set;
    const struct limit *limit = set->limits.items;
    uint64_t amount = entering->asking->amounts[0], state = 0, ready;
    /* After the claim: see key_table.h. */
    struct weir_instant at = instance_instant(set->w, set->limits.reads_wall);
    bool grants;

    limits_init(&set->limits, &state, &at);
    ready = limit_try_take(limit, &state, &at, amount);
    if (ready == WEIR_NEVER) {
        key_claim_drop(entry);
        return refuse(entering, NULL, at.now_ns, ready);
    }
    /* Otherwise the key begins with a refusal, and its time runs from now on. */
    grants = ready <= at.now_ns;
    if (state & WORD_LIVE)
        return enter_claimed_live(entering, entry);
    if (!key_claim_commit(entry, state) || !grants)
        return -EINPROGRESS;
    granted(entering, at.now_ns);
    return 0;
}

static int enter_found(const struct entering *entering, struct key_entry *entry,
                       const struct weir_instant *at)
{
    struct live *live;

    if (!(entry->word & WORD_LIVE))
        return enter_word(entering, entry, *at);
    live = live_at(entering->keyed, entry->word);
    if (!live || key_entry_swap(entry, live_pinned(entry->word)) != KEY_SWAPPED)
        return -EINPROGRESS;
    return enter_live(entering, live);
}

static int enter_once(const struct entering *entering)
{
    struct asking *asking = entering->asking;
    struct keyed *keyed = entering->keyed;
    const weir_set *set = entering->set;
    const struct weir_instant at = instance_instant(set->w, set->limits.reads_wall);
    struct key_entry entry;

    if (key_table_find(&keyed->table, &asking->key, &entry))
        return enter_found(entering, &entry, &at);
    switch (claim(keyed, asking->actor, &asking->key, &at, &entry)) {
    case KEY_FOUND:
        return enter_found(entering, &entry, &at);
    case KEY_FULL:
        return turn_away(entering, -ENOBUFS);
    default:
        return keyed->fits ? enter_claimed(entering, &entry) : enter_claimed_live(entering, &entry);
    }
}

int keyed_enter(struct asking *asking, uint32_t record, enum entry entry, uint64_t max_wait_ns)
{
    const struct entering entering = {asking, asking->set->keyed, asking->set, record,
                                      entry,  max_wait_ns};
    unsigned turn = 0;

    for (;; publication_back_off(&turn)) {
        int r = enter_once(&entering);

        if (r != -EINPROGRESS)
            return r;
        if (instance_closed(entering.set->w))
            return -ESHUTDOWN;
    }
}

/* ---- giving back ---- */

/* A state that no word can be. If there is no room for a live set, nothing is given back. */
static bool settle_promoted(struct actor *actor, weir_set *set, const struct key *key,
                            struct key_entry *entry, uint64_t state)
{
    struct live *live;

    if (live_borrow(set->keyed, actor, key, &state, &live) < 0)
        return true;
    if (key_entry_swap(entry, live_word(live)) != KEY_SWAPPED) {
        live_return(live);
        return false;
    }
    live_known(live);
    live_unpin(actor, live);
    return true;
}

/* To the word of a key: true, or false: another attempt is due. */
static bool settle_word(struct actor *actor, weir_set *set, const struct key *key,
                        struct key_entry *entry, const struct settlement *settlement,
                        uint64_t granted_ns)
{
    struct weir_instant at = {0};
    uint64_t state = entry->word;

    if (set->limits.items[0].algorithm)
        at = instance_instant(set->w, set->limits.reads_wall);
    set_settle_limit(set, 0, &state, &at, settlement, granted_ns);
    if (state & WORD_LIVE)
        return settle_promoted(actor, set, key, entry, state);
    return state == entry->word || key_entry_swap(entry, state) == KEY_SWAPPED;
}

/* Whether a settlement charges something: then a key that is not known has to be, for nobody shall
 * be able to tell that it was forgotten. What is given back to a new key makes no difference. */
static bool charges(const weir_set *set, const struct settlement *settlement)
{
    return set->limits.items[0].charges && !settlement->unused &&
           settlement->used[0] > settlement->amounts[0] && !MUTANT(463);
}

/* Charges a new key: true, or false: another attempt is due. Without room for it nobody pays. */
static bool settle_new(struct actor *actor, weir_set *set, const struct key *key,
                       const struct settlement *settlement, uint64_t granted_ns)
{
    struct weir_instant at = instance_instant(set->w, set->limits.reads_wall);
    struct key_entry entry;
    uint64_t state = 0;

    switch (claim(set->keyed, actor, key, &at, &entry)) {
    case KEY_FOUND:
        return false;
    case KEY_FULL:
        return true;
    default:
        break;
    }
    at = instance_instant(set->w, set->limits.reads_wall);
    limits_init(&set->limits, &state, &at);
    set_settle_limit(set, 0, &state, &at, settlement, granted_ns);
    if (!(state & WORD_LIVE))
        return key_claim_commit(&entry, state);
    key_claim_drop(&entry);
    return true;
}

/* What a record of the template's held, which only the caller can give back. The record is free
 * afterwards. */
static void settle_claimed(struct actor *actor, weir_set *set, uint32_t record, uint64_t word,
                           const struct settlement *settlement)
{
    struct record *r = record_at(set->region, record);
    uint64_t granted_ns = record_load(&r->granted);
    const struct key key = key_of(set, record);
    struct key_entry entry;
    unsigned turn = 0;

    for (;; publication_back_off(&turn)) {
        struct live *live;

        if (!key_table_find(&set->keyed->table, &key, &entry)) {
            if (!charges(set, settlement) || settle_new(actor, set, &key, settlement, granted_ns))
                break;
            continue;
        }
        live = live_at(set->keyed, entry.word);
        if (!live && settle_word(actor, set, &key, &entry, settlement, granted_ns))
            break;
        if (live && key_entry_swap(&entry, live_pinned(entry.word)) == KEY_SWAPPED) {
            set_settle_exactly(actor, &live->set, record, word, settlement);
            live_unpin(actor, live);
            return;
        }
    }
    atomic_store_explicit(&r->word, record_next_word(word, RECORD_FREE), memory_order_release);
    STEP();
    set_count_settlement(actor, set, settlement);
}

bool keyed_settle(struct actor *actor, weir_set *set, uint32_t record, uint64_t word,
                  const struct settlement *settlement)
{
    uint64_t expected = word, claimed = record_next_word(word, RECORD_HELD);

    /* Of all who try, one gives back. */
    if (!atomic_compare_exchange_strong(&record_at(set->region, record)->word, &expected, claimed))
        return false;
    STEP();
    settle_claimed(actor, set, record, claimed, settlement);
    return true;
}

/* ---- looking ---- */

static void estimate_states(const weir_set *set, const uint64_t *states,
                            const struct weir_instant *at, const uint64_t *amounts,
                            struct verdict *ret)
{
    *ret = (struct verdict){.now_ns = at->now_ns};
    /* If only a resource is short, that is what is to blame, though nothing can be foreseen. */
    limits_ready_at(&set->limits, states, at, amounts, true, &ret->blame);
    ret->estimate_ns = limits_ready_at(&set->limits, states, at, amounts, false, &ret->blame);
}

void keyed_estimate(struct actor *actor, weir_set *set, const struct key *key,
                    const uint64_t *amounts, enum walk walk, struct verdict *ret)
{
    struct keyed *keyed = set->keyed;
    uint64_t *states = actor->content;
    struct weir_instant at;
    struct key_entry entry;

    while (key_table_find(&keyed->table, key, &entry)) {
        struct live *live = live_at(keyed, entry.word);

        at = instance_instant(set->w, set->limits.reads_wall);
        if (!live) {
            estimate_states(set, &entry.word, &at, amounts, ret);
            return;
        }
        if (key_entry_swap(&entry, live_pinned(entry.word)) != KEY_SWAPPED)
            continue;
        set_estimate(actor, &live->set, amounts, walk, ret);
        live_unpin(actor, live);
        return;
    }
    at = instance_instant(set->w, set->limits.reads_wall);
    memset(states, 0, set->limits.state_words * sizeof(*states));
    limits_init(&set->limits, states, &at);
    estimate_states(set, states, &at, amounts, ret);
}

void keyed_estimate_record(struct actor *actor, weir_set *set, uint32_t record,
                           const uint64_t *amounts, enum walk walk, struct verdict *ret)
{
    const struct key key = key_of(set, record);

    keyed_estimate(actor, set, &key, amounts, walk, ret);
}

void keyed_shut(struct actor *actor, weir_set *set)
{
    for (uint32_t i = 0; i < atomic_load(&set->keyed->lives_n); i++) {
        struct live *live = *table_at(&set->keyed->lives, i);

        set_shut(actor, &live->set);
    }
}

uint64_t keyed_waiting(struct actor *actor, const weir_set *set)
{
    uint64_t waiting = 0;

    for (uint32_t i = 0; i < atomic_load(&set->keyed->lives_n); i++) {
        struct live *live = *table_at(&set->keyed->lives, i);

        waiting += set_snapshot(actor, &live->set);
    }
    return waiting;
}

int weir_set_keyed(weir_set *set, struct weir_keyed_stats *ret)
{
    static const char *const policies[] = {
        [KEY_EVICT_NONE] = "none", [KEY_EVICT_OLDEST] = "oldest", [KEY_EVICT_RANDOM] = "random"};
    const struct keyed *keyed = set->keyed;
    struct key_entry entry;
    uint64_t keys = 0, lives = 0;

    if (instance_forked(set->w))
        return -ECHILD;
    if (!ret || ret->size < sizeof(*ret))
        return -EINVAL;
    if (!keyed)
        return 0;
    for (uint64_t i = 0; i < key_table_slots(&keyed->table); i++) {
        bool there = key_table_at(&keyed->table, i, &entry);

        keys += there;
        lives += there && entry.word & WORD_LIVE;
    }
    *ret = (struct weir_keyed_stats){
        .size = sizeof(*ret),
        .keys = keys,
        .live = lives,
        .max_keys = keyed->max_keys,
        .room = keyed->keys,
        .memory = keyed->memory_size + atomic_load(&keyed->lives_n) * live_size(set),
        .memory_max = keyed->memory_max,
        .evict = policies[keyed->eviction],
        .forgotten = atomic_load_explicit(&keyed->forgotten, memory_order_relaxed),
        .evicted = atomic_load_explicit(&keyed->evicted, memory_order_relaxed),
        .refused = atomic_load_explicit(&keyed->refused, memory_order_relaxed),
    };
    return 1;
}
