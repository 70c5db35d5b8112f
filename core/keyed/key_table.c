/* SPDX-License-Identifier: MIT */
/* The table of keys: two buckets for each. */
#include "keyed/key_table.h"

#include "base/mutant.h"
#include "base/sched_point.h"
#include "state/version.h"
#include <errno.h>

#define BUCKET_SLOTS 8u
#define BUCKET_SIZE  (BUCKET_SLOTS * sizeof(struct double_word))
#define PLACES       (2 * BUCKET_SLOTS)
#define LINE_SLOTS   4u /* of a line of the cache */

/* A bucket of a full table has 9 keys in 16 slots, and there are some buckets more than that. */
#define KEYS_PER_16_SLOTS 9u
#define BUCKETS_MORE      8u

/* A first bucket with so few keys takes another one even if the second has fewer. */
#define FEW_KEYS 5u

/* A slot's low half is 0 if it is empty, a key's id, or that with this bit: claimed. */
#define CLAIMED UINT64_C(1)

/* A claim that is thwarted so often is refused. */
#define ATTEMPTS_MAX 256u

static uint32_t buckets_for(uint64_t keys_max)
{
    return (uint32_t)((keys_max * 16 / KEYS_PER_16_SLOTS) / BUCKET_SLOTS + BUCKETS_MORE);
}

size_t key_table_size(uint64_t keys_max)
{
    if (keys_max == 0 || keys_max > KEY_TABLE_KEYS_MAX)
        return 0;
    return buckets_for(keys_max) * BUCKET_SIZE;
}

int key_table_open(struct key_table *ret, void *memory, uint64_t keys_max)
{
    if (key_table_size(keys_max) == 0)
        return -EINVAL;
    if (!double_word_prepare())
        return -ENOTSUP;
    *ret = (struct key_table){memory, buckets_for(keys_max)};
    return 0;
}

/* ---- where a key may be ---- */

struct places {
    struct double_word *buckets[2];
    uint64_t id;
};

static inline uint32_t part_of(uint32_t random, uint32_t n)
{
    return (uint32_t)((uint64_t)random * n >> 32);
}

/* Two different buckets. */
static inline struct places places_of(const struct key_table *table, const struct key *key)
{
    uint32_t n = table->buckets_n, first = part_of((uint32_t)key->place, n);
    uint64_t second = (uint64_t)first + 1 + part_of((uint32_t)(key->place >> 32), n - 1);

    return (struct places){
        {table->slots + (size_t)first * BUCKET_SLOTS,
         table->slots + (size_t)(second < n ? second : second - n) * BUCKET_SLOTS},
        key->id & ~CLAIMED || MUTANT(442) ? key->id & ~CLAIMED : 2};
}

/* A key takes the slots of a bucket in an order of its own, first those in one line of the cache. So
 * most keys are in the line that is looked at first. */
static inline struct double_word *slot_in(struct double_word *bucket, uint64_t id, uint32_t i)
{
    return &bucket[(id / (CLAIMED + 1) ^ i) % BUCKET_SLOTS];
}

/* The line of that slot. */
static inline struct double_word *line_in(struct double_word *bucket, uint64_t id, uint32_t i)
{
    return &bucket[(id / (CLAIMED + 1) ^ i) % BUCKET_SLOTS / LINE_SLOTS * LINE_SLOTS];
}

static inline struct double_word *slot_at(const struct places *places, uint32_t i)
{
    return slot_in(places->buckets[i / BUCKET_SLOTS], places->id, i);
}

void key_table_prefetch(const struct key_table *table, const struct key *key)
{
    struct places places = places_of(table, key);

    __builtin_prefetch(slot_at(&places, 0));
    __builtin_prefetch(slot_at(&places, BUCKET_SLOTS));
}

/* ---- entries ---- */

static inline struct double_value value_of(const struct key_entry *entry)
{
    return (struct double_value){entry->id, entry->word};
}

static bool replace(const struct key_entry *entry, uint64_t id, uint64_t word)
{
    struct double_value expected = value_of(entry);
    bool done;

    STEP();
    done = double_word_swap(entry->slot, &expected, (struct double_value){id, word});
    STEP();
    return done;
}

enum key_swap key_entry_swap(struct key_entry *entry, uint64_t word)
{
    struct double_value value = value_of(entry);

    STEP();
    if (double_word_swap(entry->slot, &value, (struct double_value){entry->id, word})) {
        entry->word = word;
        return KEY_SWAPPED;
    }
    if (value.low != entry->id && !MUTANT(430))
        return KEY_GONE;
    entry->word = value.high;
    return KEY_CHANGED;
}

bool key_entry_forget(const struct key_entry *entry)
{
    return replace(entry, 0, 0);
}

/* Which slot of a line has this id; NULL: none. Without a branch for each: where in the line it is
 * cannot be foreseen. */
static inline struct double_word *find_in_line(struct double_word *line, uint64_t id)
{
    struct double_word *found = NULL;

    for (uint32_t i = 0; i < LINE_SLOTS; i++) {
        STEP();
        found = atomic_load_explicit(&line[i].low, memory_order_acquire) == id ? &line[i] : found;
    }
    return found;
}

/* In the order in which the key's slots are taken. */
static inline bool find_in(struct double_word *bucket, uint64_t id, struct key_entry *ret)
{
    for (uint32_t i = 0; i < BUCKET_SLOTS; i += LINE_SLOTS) {
        struct double_word *line = line_in(bucket, id, i);
        struct double_word *slot = find_in_line(line, id);
        struct double_value value;

        if (!slot)
            continue;
        STEP();
        value = double_word_load(slot);
        if (value.low != id && !MUTANT(443))
            continue; /* then there was an instant without it */
        *ret = (struct key_entry){slot, id, value.high};
        return true;
    }
    return false;
}

bool key_table_find(const struct key_table *table, const struct key *key, struct key_entry *ret)
{
    struct places places = places_of(table, key);

    /* Whether it is in the first is known too late to begin with the second then. */
    __builtin_prefetch(slot_at(&places, BUCKET_SLOTS));
    return find_in(places.buckets[0], places.id, ret) ||
           (find_in(places.buckets[1], places.id, ret) && !MUTANT(445));
}

/* ---- claims ---- */

bool key_claim_commit(struct key_entry *entry, uint64_t word)
{
    if (!replace(entry, entry->id & ~CLAIMED, word))
        return false;
    entry->id &= ~CLAIMED;
    entry->word = word;
    return true;
}

void key_claim_drop(const struct key_entry *entry)
{
    replace(entry, 0, 0);
}

/* What a slot has of a key: its entry, a claim, or (id 0) neither. */
static struct key_entry look_at(struct double_word *slot, uint64_t id)
{
    struct double_value value = {atomic_load_explicit(&slot->low, memory_order_acquire), 0};

    if ((value.low & ~CLAIMED) == id)
        value = double_word_load(slot);
    return (value.low & ~CLAIMED) == id ? (struct key_entry){slot, value.low, value.high}
                                        : (struct key_entry){slot, 0, 0};
}

/* What a search found of a key. */
struct sighting {
    struct key_entry entry; /* its entry, or its first claim; id 0: neither */
    bool clear;             /* nor is there any other claim */
};

/* Looks at all places of the key, and withdraws every claim but the first. */
static struct sighting search(const struct places *places)
{
    struct sighting sighting = {.clear = true};

    for (uint32_t i = 0; i < (MUTANT(440) ? BUCKET_SLOTS : PLACES); i++) {
        struct key_entry seen;

        STEP();
        seen = look_at(slot_at(places, i), places->id);
        if (seen.id == places->id)
            return (struct sighting){seen, true};
        if (seen.id && sighting.entry.id)
            sighting.clear &= MUTANT(431) || replace(&seen, 0, 0);
        else if (seen.id)
            sighting.entry = seen;
    }
    return sighting;
}

/* A place for a new key, and what is there. */
struct choice {
    struct key_entry entry; /* slot NULL: none */
    enum { EMPTY, FORGOTTEN, EVICTED, DISPLACED } kind;
};

/* What a bucket has to offer: slots that are empty, and those of keys as good as new. */
struct offer {
    uint32_t empty_n, new_n;
    struct choice empty, as_new;
};

struct chooser {
    const struct key_judge *judge;
    uint64_t random;
    struct offer offers[2];
    struct choice victim, claim;
    uint32_t live_n;
    uint64_t least;
};

static bool goes_before(struct chooser *chooser, uint64_t instant)
{
    chooser->live_n++;
    switch (chooser->judge->eviction) {
    case KEY_EVICT_OLDEST:
        return chooser->live_n == 1 || (instant < chooser->least) != MUTANT(432);
    case KEY_EVICT_RANDOM:
        return part_of((uint32_t)(chooser->random >> 32), chooser->live_n) == 0;
    case KEY_EVICT_NONE:
        break;
    }
    return MUTANT(434);
}

static void offer_empty(struct offer *offer, const struct key_entry *entry)
{
    if (offer->empty_n++ == 0)
        offer->empty = (struct choice){*entry, EMPTY};
}

static void offer_new(struct offer *offer, const struct key_entry *entry)
{
    if (offer->new_n++ == 0)
        offer->as_new = (struct choice){*entry, FORGOTTEN};
}

static void consider_key(struct chooser *chooser, struct offer *offer,
                         const struct key_entry *entry)
{
    const struct key_judge *judge = chooser->judge;
    uint64_t instant = 0;

    switch (judge->use(judge->userdata, entry->word, &instant)) {
    case KEY_AS_NEW:
        offer_new(offer, entry);
        break;
    case KEY_LIVE:
        if (!goes_before(chooser, instant))
            break;
        chooser->victim = (struct choice){*entry, EVICTED};
        chooser->least = instant;
        break;
    case KEY_HELD:
        if (MUTANT(433))
            chooser->victim = (struct choice){*entry, EVICTED};
        break;
    }
}

/* The halves may be of different instants: then the compare-and-swap that relies on them fails. */
static void consider(struct chooser *chooser, struct offer *offer, struct double_word *slot)
{
    struct key_entry entry = {.slot = slot};

    entry.id = atomic_load_explicit(&slot->low, memory_order_acquire);
    STEP();
    entry.word = atomic_load_explicit(&slot->high, memory_order_acquire);
    if (!entry.id)
        offer_empty(offer, &entry);
    else if (entry.id & CLAIMED && !MUTANT(441))
        chooser->claim = (struct choice){entry, DISPLACED};
    else
        consider_key(chooser, offer, &entry);
}

/* Which of a key's buckets takes it, by how many slots each can give away; -1: neither has any. */
static int emptier(uint32_t first_n, uint32_t second_n)
{
    if (first_n > BUCKET_SLOTS - FEW_KEYS || (first_n && first_n >= second_n))
        return 0;
    if (!second_n || MUTANT(446))
        return -1;
    return 1;
}

/* Keys as good as new stay while there is another place: they may come back, and together they may
 * be as many as there is room for. */
static struct choice choose(const struct places *places, const struct key_judge *judge,
                            uint64_t random)
{
    struct chooser chooser = {.judge = judge, .random = random};
    const struct offer *offers = chooser.offers;
    int empty, as_new;

    for (uint32_t i = 0; i < PLACES; i++)
        consider(&chooser, &chooser.offers[i / BUCKET_SLOTS], slot_at(places, i));
    empty = emptier(offers[0].empty_n, offers[1].empty_n);
    as_new = emptier(offers[0].new_n, offers[1].new_n);
    if (empty >= 0 && !(MUTANT(448) && as_new >= 0))
        return offers[empty].empty;
    if (as_new >= 0)
        return offers[as_new].as_new;
    return chooser.victim.entry.slot && !(MUTANT(435) && chooser.claim.entry.slot) ? chooser.victim
                                                                                   : chooser.claim;
}

static void count(struct key_tally *tally, const struct choice *choice)
{
    tally->forgotten += choice->kind == FORGOTTEN;
    tally->evicted += choice->kind == EVICTED && !MUTANT(444);
}

/* Claims the place that was chosen. The fence: whoever looks for other claims afterwards, and does
 * not see one, is seen by whoever made that one. */
static bool claim(const struct choice *choice, uint64_t id, uint64_t nonce, struct key_tally *tally)
{
    if (!replace(&choice->entry, id | CLAIMED, nonce))
        return false;
    atomic_thread_fence(memory_order_seq_cst);
    count(tally, choice);
    return true;
}

/* The splitmix64 generator's step and its output function: Steele, Lea, Flood, 2014. */
static uint64_t next_nonce(struct key_claimant *claimant)
{
    uint64_t x = claimant->nonce += MUTANT(436) ? 0 : UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Whether nothing is in the way of replacing what was chosen. */
static bool let_go(const struct choice *choice, const struct key_judge *judge)
{
    if (!judge->let_go || (choice->kind != FORGOTTEN && choice->kind != EVICTED))
        return true;
    return judge->let_go(judge->userdata, choice->entry.word,
                         choice->kind == FORGOTTEN ? KEY_AS_NEW : KEY_LIVE);
}

/* Where nobody has claimed a place. The claim that is made is in `ret`, or none. False: there is no
 * place. */
static bool claim_any(const struct places *places, const struct key_judge *judge,
                      struct key_claimant *claimant, struct key_entry *ret, struct key_tally *tally)
{
    uint64_t nonce = next_nonce(claimant);
    struct choice choice = choose(places, judge, nonce);

    if (!choice.entry.slot)
        return false;
    if (let_go(&choice, judge) && claim(&choice, places->id, nonce, tally))
        *ret = (struct key_entry){choice.entry.slot, places->id | CLAIMED, nonce};
    return true;
}

/* A claim is good if it was there before the search began, and nothing else of the key was. */
static bool is_granted(const struct sighting *sighting, const struct key_entry *known)
{
    const struct key_entry *seen = &sighting->entry;

    if (MUTANT(439) && seen->id)
        return true;
    return known->id && (sighting->clear || MUTANT(438)) && seen->slot == known->slot &&
           seen->id == known->id && seen->word == known->word;
}

enum key_claim key_table_claim(const struct key_table *table, const struct key *key,
                               const struct key_judge *judge, struct key_claimant *claimant,
                               struct key_entry *ret, struct key_tally *tally)
{
    struct places places = places_of(table, key);
    struct key_entry known = {0}; /* a claim that was there before the search begins */
    unsigned turn = 0;

    for (uint32_t attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        struct sighting sighting = search(&places);

        if (sighting.entry.id == places.id) {
            if (known.id && !MUTANT(437))
                key_claim_drop(&known);
            *ret = sighting.entry;
            return KEY_FOUND;
        }
        if (is_granted(&sighting, &known)) {
            *ret = sighting.entry;
            return KEY_CLAIMED;
        }
        known = sighting.entry;
        if (!known.id && !claim_any(&places, judge, claimant, &known, tally))
            break;
        if (attempt)
            publication_back_off(&turn);
    }
    if (known.id)
        key_claim_drop(&known);
    tally->refused++;
    return KEY_FULL;
}

/* ---- all of them ---- */

uint64_t key_table_slots(const struct key_table *table)
{
    return (uint64_t)table->buckets_n * BUCKET_SLOTS;
}

bool key_table_at(const struct key_table *table, uint64_t slot, struct key_entry *ret)
{
    struct double_value value = double_word_load(&table->slots[slot]);

    if (!value.low || value.low & CLAIMED)
        return false;
    *ret = (struct key_entry){&table->slots[slot], value.low, value.high};
    return true;
}
