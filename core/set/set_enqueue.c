/* SPDX-License-Identifier: MIT */
/* Joining a line that others are in: see join.h. */
#include "set/set_enqueue.h"

#include "api/instance.h"
#include "base/mutant.h"
#include "base/sched_point.h"
#include "set/txn.h"
#include "state/version_block.h"
#include <errno.h>

/* One attempt: what is read of a version, and what becomes of it. Its states are not among that. */
struct joining {
    const struct region *region;
    struct set_head *head;
    uint32_t box_class;
    const struct limits *limits;
    uint32_t states_n;    /* words of the limits' states */
    uint32_t projected_n; /* of the projection behind them; 0: there is none */
    uint64_t *asked;      /* memory of the actor's: that, or else the states */
    const struct box *box;
    uint64_t word; /* the set's, which names that box */
    uint64_t ends, count, last;
};

/* Between whom he is to stand: what his record's word and the link behind the tail are, and become. */
struct standing {
    struct record *tail;
    struct effect word, link;
};

static uint64_t load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static void store(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
    STEP();
}

static void copy(uint64_t *to, const _Atomic uint64_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to[i] = load(&from[i]);
        STEP();
    }
}

static uint32_t length_of(const struct joining *joining)
{
    return (uint32_t)joining->count & COUNT_MASK;
}

/* Whether nothing but his place is to be decided of a newcomer, because others are in line. */
static bool stands_behind(const struct joining *joining, uint32_t max_waiters)
{
    uint32_t length = length_of(joining);
    uint64_t flags = joining->count >> FLAGS_SHIFT;

    return length && !(flags & ~(uint64_t)CONTENT_PROJECTED) &&
           (!max_waiters || length < max_waiters || MUTANT(15));
}

/* What the limits are asked by, if there is anything to ask of them: a resource waits for what is
 * given back, whatever it is. */
static void copy_asked(struct joining *joining)
{
    const _Atomic uint64_t *states = joining->box->content + CONTENT_STATES;
    bool projected = joining->count >> FLAGS_SHIFT & CONTENT_PROJECTED;

    joining->projected_n = projected ? 1 + joining->states_n : 0;
    if (projected)
        copy(joining->asked, states + joining->states_n, joining->projected_n);
    else if (joining->limits->has_waits)
        copy(joining->asked, states, joining->states_n);
}

/* Reads a version that owes nothing any more. False: it is none yet, or takes more than a place. */
static bool read_line(struct joining *joining, uint32_t max_waiters)
{
    for (unsigned turn = 0; turn < HELP_AFTER; publication_back_off(&turn)) {
        uint64_t word = atomic_load_explicit(&joining->head->word, memory_order_acquire);
        const struct box *box = boxes_at(false, joining->region, joining->box_class, word);
        bool done;

        if (!(word & WORD_BOXED))
            return false;
        done = atomic_load_explicit(&box->done, memory_order_acquire) == word_version(word);
        joining->word = word;
        joining->box = box;
        joining->count = load(&box->content[CONTENT_COUNT]);
        STEP();
        if (!stands_behind(joining, max_waiters))
            return false;
        joining->ends = load(&box->content[CONTENT_ENDS]);
        STEP();
        joining->last = load(&box->content[CONTENT_LAST]);
        STEP();
        copy_asked(joining);
        atomic_thread_fence(memory_order_acquire);
        if (load(&joining->head->word) == word && (done || MUTANT(620)))
            return true;
    }
    return false;
}

/* ---- the version behind it ---- */

/* The record, which is free and the caller's, as the one behind the tail. As line_push(). */
static void stand_behind(const struct joining *joining, uint32_t record, struct record *r,
                         struct standing *ret)
{
    uint32_t tail = (uint32_t)(joining->ends >> 32);
    struct record *ahead = record_at(joining->region, tail);
    uint64_t word = record_load(&r->word), link = record_load(&ahead->next);

    line_prepare(r, word, tail);
    ret->tail = ahead;
    ret->word = (struct effect){.place = effect_place(record, RECORD_WORD),
                                .before = word,
                                .after = record_next_word(word, RECORD_WAITING)};
    ret->link = (struct effect){
        .place = effect_place(tail, RECORD_NEXT), .before = link, .after = link_next(link, record)};
}

/* What is owed with it. In private memory nobody looks at which version of a box it is, nor whether
 * it was told of. */
static void write_header(const struct joining *joining, uint32_t unit, struct box *box,
                         uint64_t version, const struct standing *standing)
{
    uint32_t n = CONTENT_STATES + joining->states_n + joining->projected_n;

    store(&box->done, version - !MUTANT(621));
    store(&box->replaced, joining->word);
    store(&box->meta, box_meta(unit, n, 2));
    store(&box->places[0], standing->word.place | (uint64_t)standing->link.place << 32);
    store(&box->effects[0][0], standing->word.before);
    store(&box->effects[0][1], standing->word.after);
    store(&box->effects[1][0], standing->link.before);
    store(&box->effects[1][1], standing->link.after);
}

/* The line is one longer. What is read of the other box here counts only if the commit finds that it
 * is still current. */
static void write_content(const struct joining *joining, struct box *box, uint32_t record,
                          uint64_t at_ns)
{
    const _Atomic uint64_t *states = joining->box->content + CONTENT_STATES;
    _Atomic uint64_t *to = box->content + CONTENT_STATES;
    size_t n = joining->states_n, projected_n = joining->projected_n;
    const uint64_t *projection = joining->asked;

    store(&box->content[CONTENT_ENDS], (uint64_t)record << 32 | (uint32_t)joining->ends);
    store(&box->content[CONTENT_COUNT],
          joining->count + 1); /* there are fewer records than it holds */
    store(&box->content[CONTENT_LAST], at_ns);
    for (size_t i = 0; i < n; i++)
        store(&to[i], load(&states[i]));
    for (size_t i = 0; i < projected_n; i++)
        store(&to[n + i], projection[i]);
}

/* Somebody else may have done it by now, and more. */
static void complete(_Atomic uint64_t *place, const struct effect *effect)
{
    uint64_t before = MUTANT(622) ? record_load(place) : effect->before;

    atomic_compare_exchange_strong_explicit(place, &before, effect->after, memory_order_acq_rel,
                                            memory_order_relaxed);
    STEP();
}

/* As publication_commit(). Apart from the rest, which needs registers of its own. */
__attribute__((noinline)) static bool commit(const struct joining *joining, uint32_t unit,
                                             uint32_t record, struct record *r, uint64_t at_ns)
{
    _Atomic uint64_t *own = boxes_own(false, joining->region, unit, joining->box_class);
    uint64_t mine = atomic_load_explicit(own, memory_order_acquire), before = joining->word;
    uint64_t word = word_after(mine);
    struct box *box = boxes_at(false, joining->region, joining->box_class, word);
    struct standing standing;

    stand_behind(joining, record, r, &standing);
    atomic_thread_fence(memory_order_release);
    write_header(joining, unit, box, word_version(word), &standing);
    write_content(joining, box, record, at_ns);
    /* In one order with what says that the instance is closed, as publication_swap(). */
    if (!atomic_compare_exchange_strong(&joining->head->word, &before, word))
        return false;
    STEP();
    complete(&r->word, &standing.word);
    complete(&standing.tail->next, &standing.link);
    store(own, word_own(joining->word));
    atomic_store_explicit(&box->done, word_version(word), memory_order_release);
    STEP();
    return true;
}

/* ---- joining ---- */

/* What others are in line for is foreseen of one more, if it was of them. False: he can never be
 * granted. */
static bool foresee(const struct joining *joining, const struct weir_instant *at,
                    const uint64_t *amounts)
{
    const struct limits *limits = joining->limits;
    const struct limit *blame;

    if (joining->projected_n)
        return projection_extend(limits, at, joining->asked, amounts);
    return !limits->has_waits ||
           limits_ready_at(limits, joining->asked, at, amounts, true, &blame) != WEIR_NEVER;
}

/* 1, 0: the set has changed meanwhile, or -EINPROGRESS. */
static int join_once(struct joining *joining, struct actor *actor, const weir_set *set,
                     const uint64_t *amounts, uint32_t record, struct verdict *ret)
{
    /* After the word: no published version can have read a later instant from the clock. */
    struct weir_instant at = instance_instant(set->w, set->limits.reads_wall);
    struct record *r = record_at(joining->region, record);
    uint32_t left = (uint32_t)(joining->count >> LEFT_SHIFT) & COUNT_MASK;

    *ret = (struct verdict){
        .now_ns = at.now_ns, .estimate_ns = WEIR_NEVER, .ticket = left + length_of(joining)};
    if (at.now_ns < joining->last)
        at.now_ns = joining->last;
    if (!foresee(joining, &at, amounts))
        return -EINPROGRESS;
    record_store(&r->since, MUTANT(119) ? at.now_ns : ret->now_ns);
    STEP();
    return commit(joining, actor_part(actor, set->number)->unit, record, r, at.now_ns);
}

int join_line(struct actor *actor, weir_set *set, const uint64_t *amounts, uint32_t record,
              uint64_t max_wait_ns, struct verdict *ret)
{
    struct joining joining;
    unsigned turn = 0;
    int r;

    if (set->mortal || (set_is_hidden(set) && !MUTANT(654)) || !set->fair ||
        set->limits.has_unforeseen || max_wait_ns != WEIR_FOREVER || MUTANT(14))
        return -EINPROGRESS;
    joining.region = set->region;
    joining.head = region_box(set->region, set->head);
    joining.box_class = joining.head->box_class;
    joining.limits = &set->limits;
    joining.states_n = set->limits.state_words;
    joining.asked = actor->content;
    for (;; publication_back_off(&turn)) {
        if (!read_line(&joining, set->max_waiters))
            return -EINPROGRESS;
        r = join_once(&joining, actor, set, amounts, record, ret);
        if (r != 0)
            return r;
    }
}
