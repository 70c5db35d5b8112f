/* SPDX-License-Identifier: MIT */
/* Keyed sets: see keyed.h. */
#include "keyed.h"

#include "burial.h"
#include "instance.h"
#include "live.h"
#include "mutant.h"
#include "operation.h"
#include "step.h"
#include "sys.h"
#include <errno.h>
#include <string.h>

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

/* Whether a word that is a state can be one. Half of it may be another key's, and in a segment it may
 * be anything. */
static bool is_state(const struct keyed *keyed, uint64_t word)
{
    return keyed->fits && limits_check(&keyed->set->limits, &word) == 0;
}

/* The same of a key's word, and that this process may go by it. False: the set is broken. */
static bool is_sound(const struct keyed *keyed, uint64_t word)
{
    struct member *member = keyed->set->member;

    if (!member)
        return true;
    if (!member_has_place(member) || !is_state(keyed, word))
        member_break(member);
    if (member_is_broken(member))
        member_tell_broken(member);
    return !member_is_broken(member);
}

struct judging {
    struct actor *actor;
    struct keyed *keyed;
    struct weir_instant at;
};

static enum key_use judge(const void *userdata, uint64_t word, uint64_t *ret_instant)
{
    const struct judging *judging = userdata;

    if (word_is_live(word))
        return live_use(judging->actor, judging->keyed, word, ret_instant);
    if (!is_state(judging->keyed, word))
        return KEY_HELD; /* half of it may be another's */
    return states_use(&judging->keyed->set->limits, &word, &judging->at, ret_instant);
}

static bool let_go(const void *userdata, uint64_t word, enum key_use use)
{
    const struct judging *judging = userdata;

    return !word_is_live(word) || live_let_go(judging->actor, judging->keyed, word, use);
}

static void tell(struct keyed *keyed, const struct key_tally *tally)
{
    if (tally->forgotten)
        atomic_fetch_add_explicit(&keyed->common->forgotten, tally->forgotten,
                                  memory_order_relaxed);
    if (tally->evicted)
        atomic_fetch_add_explicit(&keyed->common->evicted, tally->evicted, memory_order_relaxed);
}

static enum key_claim claim(struct keyed *keyed, struct actor *actor, const struct key *key,
                            const struct weir_instant *at, struct key_entry *ret)
{
    const struct judging judging = {actor, keyed, *at};
    const struct key_judge keys = {judge, &judging, keyed->eviction, let_go};
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
    bool gives_up; /* it has tried often enough to find room */
};

/* The record, and the acquisition that has it, are of this set from now on. */
static void move(const struct entering *entering, weir_set *set)
{
    struct asking *asking = entering->asking;

    asking->set = set;
    if (asking->acquisition)
        asking->acquisition->set = set;
    if (entering->record)
        live_mark(set, entering->record, asking->actor->thread);
}

/* No room for another key, or for a line; or the set is broken. The room may be taken by the dead:
 * then -EINPROGRESS. */
static int turn_away(const struct entering *entering, int r)
{
    struct asking *asking = entering->asking;
    weir_set *set = entering->set;
    uint64_t now_ns = instance_now(set->w);

    asking->verdict = (struct verdict){.now_ns = now_ns, .estimate_ns = now_ns};
    if (r == -ENOBUFS && set->member && !MUTANT(612) &&
        burial_attend_rarely(asking->actor, set, now_ns))
        return -EINPROGRESS;
    if (r == -ENOBUFS) {
        atomic_fetch_add_explicit(&entering->keyed->common->refused, 1, memory_order_relaxed);
        count(&actor_counters(asking->actor, entering->set->number)->refused_full, 1);
    }
    return r;
}

/* Into the live set that the entry names. */
static int enter_live(const struct entering *entering, struct live *live, struct key_entry *entry)
{
    struct asking *asking = entering->asking;
    int r;

    move(entering, &live->set);
    asking->actor->loan = word_loan(entry->word);
    r = set_enter_boxed(asking->actor, &live->set, asking->amounts, entering->record,
                        entering->entry, entering->max_wait_ns, &asking->verdict);
    if (r >= 0 && entering->record)
        return r;
    move(entering, entering->set);
    if (r == -ESTALE) {
        r = live_mend(asking->actor, entering->keyed, &asking->key, entry);
        return r == -EINPROGRESS ? r : turn_away(entering, r);
    }
    if (r < 0 || entering->keyed->fits)
        live_leave(asking->actor, live);
    return r;
}

/* Where the last live set is as good as new again and again, several may take it from each other: so
 * there is an end to it. */
#define ATTEMPTS_MAX 256u

static int borrow(const struct entering *entering, const uint64_t *state, struct live **ret,
                  uint64_t *ret_word)
{
    struct asking *asking = entering->asking;

    if (entering->gives_up)
        return -ENOBUFS;
    return live_borrow(entering->keyed, asking->actor, &asking->key, state, ret, ret_word);
}

/* The key of an entry gets a live set, which is entered. */
static int enter_promoted(const struct entering *entering, struct key_entry *entry)
{
    struct asking *asking = entering->asking;
    uint64_t state = entry->word, word;
    struct live *live;
    int r = borrow(entering, &state, &live, &word);

    if (r < 0)
        return turn_away(entering, r);
    if (key_entry_swap(entry, word) == KEY_SWAPPED)
        return enter_live(entering, live, entry);
    live_return(live, asking->actor, word);
    return -EINPROGRESS;
}

/* The same for a place that was claimed. */
static int enter_claimed_live(const struct entering *entering, struct key_entry *entry)
{
    struct asking *asking = entering->asking;
    struct live *live;
    uint64_t word;
    int r = borrow(entering, NULL, &live, &word);

    if (r < 0) {
        key_claim_drop(entry);
        return turn_away(entering, r);
    }
    if (key_claim_commit(entry, word))
        return enter_live(entering, live, entry);
    live_return(live, asking->actor, word);
    return -EINPROGRESS;
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
 * earlier instant grants no more. It may grant less, if somebody was faster who read it later: so
 * whoever is refused reads it again.
 */
static int enter_word(const struct entering *entering, struct key_entry *entry,
                      struct weir_instant at)
{
    const struct keyed *keyed = entering->keyed;
    const struct limit *limit = entering->set->limits.items;
    uint64_t amount = entering->asking->amounts[0];
    enum key_swap swap = KEY_CHANGED;
    bool is_late = MUTANT(613); /* the instant is one after that of the word */

    do {
        uint64_t state = entry->word, quiet_ns, ready;

        if (word_is_live(state))
            return -EINPROGRESS;
        if (!is_sound(keyed, state))
            return turn_away(entering, -EUCLEAN);
        quiet_ns = atomic_load_explicit(&keyed->common->quiet_ns, memory_order_acquire);
        if (at.now_ns < quiet_ns && quiet_ns < GRANTED_MARKER)
            at.now_ns = quiet_ns; /* somebody has read that from the clock meanwhile */
        ready = limit_try_take(limit, &state, &at, amount);
        if (ready > at.now_ns && is_late)
            return refuse(entering, entry, at.now_ns, ready);
        if (ready > at.now_ns) {
            at = instance_instant(entering->set->w, entering->set->limits.reads_wall);
            is_late = true;
            continue;
        }
        if (word_is_live(state))
            return enter_promoted(entering, entry);
        swap = key_entry_swap(entry, state);
        is_late = MUTANT(613);
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
    if (word_is_live(state))
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

    if (!word_is_live(entry->word))
        return enter_word(entering, entry, *at);
    live = live_at(entering->keyed, entry->word, NULL);
    if (live)
        return enter_live(entering, live, entry);
    if (live_mend(entering->asking->actor, entering->keyed, &entering->asking->key, entry) ==
        -EUCLEAN)
        return turn_away(entering, -EUCLEAN);
    return turn_away(entering, -ENOMEM);
}

static int enter_once(const struct entering *entering)
{
    struct asking *asking = entering->asking;
    struct keyed *keyed = entering->keyed;
    const weir_set *set = entering->set;
    const struct weir_instant at = instance_instant(set->w, set->limits.reads_wall);
    struct key_entry entry;

    if (set_is_broken(set))
        return turn_away(entering, -EUCLEAN);
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
    struct entering entering = {asking, asking->set->keyed, asking->set, record,
                                entry,  max_wait_ns,        false};
    unsigned turn = 0;

    for (uint32_t attempt = 0;; publication_back_off(&turn)) {
        int r = enter_once(&entering);

        if (r != -EINPROGRESS)
            return r;
        if (instance_closed(entering.set->w))
            return turn_away(&entering, -ESHUTDOWN);
        entering.gives_up = ++attempt >= ATTEMPTS_MAX;
    }
}

/* ---- giving back ---- */

/* What is given back, whose record may be free by then. */
struct giving {
    struct actor *actor;
    weir_set *set; /* the template */
    struct key key;
    uint32_t record;
    uint64_t word; /* as the record says while it holds that */
    struct settlement settlement;
    bool claimed; /* the record is free, and only the key lacks what it gives back */
};

/* Of all who try, one gives back; false: another one does. */
static bool claim_record(struct giving *giving)
{
    struct record *r = record_at(giving->set->region, giving->record);
    uint64_t word = giving->word;

    if (!giving->claimed)
        giving->claimed = atomic_compare_exchange_strong(
            &r->word, &word, record_next_word(giving->word, RECORD_FREE));
    STEP();
    return giving->claimed;
}

/* The key gets a live set with these states, for what no word can be. 1: there is no room for one,
 * and nothing is given back; or -EINPROGRESS. */
static int give_room(const struct giving *giving, struct key_entry *entry, const uint64_t *state)
{
    struct live *live;
    uint64_t word;
    bool known;

    if (live_borrow(giving->set->keyed, giving->actor, &giving->key, state, &live, &word) < 0)
        return 1;
    known = state ? key_entry_swap(entry, word) == KEY_SWAPPED : key_claim_commit(entry, word);
    if (!known)
        live_return(live, giving->actor, word);
    return -EINPROGRESS;
}

/* To the word of a key: 1 done, 0 somebody else did it, or -EINPROGRESS. */
static int give_word(struct giving *giving, struct key_entry *entry)
{
    const weir_set *set = giving->set;
    struct weir_instant at = {0};
    uint64_t state = entry->word;

    if (!claim_record(giving))
        return 0;
    if (!is_sound(set->keyed, state))
        return 1; /* there is nothing that it could be given back to */
    if (set->limits.items[0].algorithm)
        at = instance_instant(set->w, set->limits.reads_wall);
    set_settle_limit(set, 0, &state, &at, &giving->settlement, giving->settlement.granted_ns);
    if (word_is_live(state))
        return give_room(giving, entry, &entry->word);
    return state == entry->word || key_entry_swap(entry, state) == KEY_SWAPPED ? 1 : -EINPROGRESS;
}

static int give_live(struct giving *giving, struct key_entry *entry)
{
    struct keyed *keyed = giving->set->keyed;
    struct live storage, *live = live_at(keyed, entry->word, &storage);
    uint64_t entered = giving->actor->loan; /* by whoever is at burying the dead meanwhile */
    int r = -ESTALE;

    giving->actor->loan = word_loan(entry->word);
    if (live)
        r = set_settle_live(giving->actor, &live->set, giving->record, giving->word,
                            &giving->settlement, giving->claimed);
    giving->actor->loan = entered;
    if (r == -ESTALE)
        return live_mend(giving->actor, keyed, &giving->key, entry) == -EUCLEAN ? 1 : -EINPROGRESS;
    live_leave(giving->actor, live);
    return r;
}

/* Whether a settlement charges something: then a key that is not known has to be, for nobody shall
 * be able to tell that it was forgotten. What is given back to a new key makes no difference. */
static bool charges(const weir_set *set, const struct settlement *settlement)
{
    bool charges = false;

    for (uint32_t i = 0; i < set->limits.n; i++)
        charges |= set->limits.items[i].charges && settlement->used[i] > settlement->amounts[i];
    return charges && !settlement->unused && !MUTANT(463);
}

/* Charges a new key: 1, or -EINPROGRESS. Without room for it nobody pays. */
static int charge_new(const struct giving *giving)
{
    weir_set *set = giving->set;
    struct weir_instant at = instance_instant(set->w, set->limits.reads_wall);
    struct key_entry entry;
    uint64_t state = 0;
    int r;

    switch (claim(set->keyed, giving->actor, &giving->key, &at, &entry)) {
    case KEY_FOUND:
        return -EINPROGRESS;
    case KEY_FULL:
        return 1;
    default:
        break;
    }
    if (set->keyed->fits) {
        at = instance_instant(set->w, set->limits.reads_wall);
        limits_init(&set->limits, &state, &at);
        set_settle_limit(set, 0, &state, &at, &giving->settlement, giving->settlement.granted_ns);
        if (!word_is_live(state))
            return key_claim_commit(&entry, state) ? 1 : -EINPROGRESS;
    }
    r = give_room(giving, &entry, NULL);
    if (r == 1)
        key_claim_drop(&entry);
    return r;
}

static int give_once(struct giving *giving)
{
    struct keyed *keyed = giving->set->keyed;
    struct key_entry entry;

    if (key_table_find(&keyed->table, &giving->key, &entry))
        return word_is_live(entry.word) ? give_live(giving, &entry) : give_word(giving, &entry);
    if (!claim_record(giving))
        return 0;
    return charges(giving->set, &giving->settlement) ? charge_new(giving) : 1;
}

bool keyed_settle(struct actor *actor, weir_set *set, uint32_t record, uint64_t word,
                  const struct settlement *settlement)
{
    struct giving giving = {.actor = actor,
                            .set = set,
                            .key = key_of(set, record),
                            .record = record,
                            .word = word,
                            .settlement = *settlement};
    unsigned turn = 0;
    int r;

    giving.settlement.granted_ns = record_load(&record_at(set->region, record)->granted);
    for (; (r = give_once(&giving)) == -EINPROGRESS; publication_back_off(&turn))
        ;
    if (r == 0)
        return false;
    if (!set_is_broken(set))
        set_count_settlement(actor, set, settlement);
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
        struct live storage, *live;

        if (!word_is_live(entry.word) && is_sound(keyed, entry.word)) {
            at = instance_instant(set->w, set->limits.reads_wall);
            estimate_states(set, &entry.word, &at, amounts, ret);
            return;
        }
        live = live_at(keyed, entry.word, &storage);
        if (live && live_estimate(actor, live, entry.word, amounts, walk, ret))
            return;
        if (set_is_broken(set) || live_mend(actor, keyed, key, &entry) == -EUCLEAN) {
            *ret = (struct verdict){.now_ns = instance_now(set->w), .estimate_ns = WEIR_NEVER};
            return;
        }
    }
    at = instance_instant(set->w, set->limits.reads_wall);
    memset(states, 0, (set->limits.state_words - LIVE_WORDS) * sizeof(*states));
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
    for (uint32_t i = 0; i < lives_n(set->keyed); i++)
        set_shut(actor, &live_numbered(set->keyed, i, NULL)->set);
}

uint64_t keyed_waiting(struct actor *actor, const weir_set *set)
{
    struct live storage;
    uint64_t waiting = 0;

    for (uint32_t i = 0; i < lives_n(set->keyed); i++)
        waiting += set_snapshot(actor, &live_numbered(set->keyed, i, &storage)->set);
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
        lives += there && word_is_live(entry.word);
    }
    *ret = (struct weir_keyed_stats){
        .size = sizeof(*ret),
        .keys = keys,
        .live = lives,
        .max_keys = keyed->max_keys,
        .room = keyed->keys,
        .memory = keyed->memory_size + lives_n(keyed) * live_size(set),
        .memory_max = keyed->memory_max,
        .evict = policies[keyed->eviction],
        .forgotten = atomic_load_explicit(&keyed->common->forgotten, memory_order_relaxed),
        .evicted = atomic_load_explicit(&keyed->common->evicted, memory_order_relaxed),
        .refused = atomic_load_explicit(&keyed->common->refused, memory_order_relaxed),
    };
    return 1;
}
