/* SPDX-License-Identifier: MIT */
/* Joining a line that others are in: see join.h. */
#include "join.h"

#include "instance.h"
#include "mutant.h"
#include "operation.h"
#include "step.h"
#include <errno.h>

/* One attempt: what is read of a version, and what becomes of it. Its states are not among that. */
struct joining {
    const weir_set *set;
    struct set_head *head;
    const struct box *box; /* of the version that was read */
    uint64_t word;         /* the set's, which names it */
    uint64_t line[CONTENT_STATES];
    uint64_t *projection; /* memory of the actor's */
    uint32_t projected_n; /* words of it; 0: such a set has none */
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

static struct box *box_of(const struct joining *joining, uint64_t word)
{
    const struct region *region = joining->set->region;

    return (struct box *)(void *)(region->boxes.base +
                                  (word_slot(word) << joining->head->box_class));
}

/* Where the projection is in a version: behind the states. */
static uint32_t projection_at(const struct joining *joining)
{
    return CONTENT_STATES + joining->set->limits.state_words;
}

static void copy(uint64_t *to, const _Atomic uint64_t *from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        to[i] = load(&from[i]);
        STEP();
    }
}

/* Reads a version that owes nothing any more. False: it is none yet, or none at all. */
static bool read_line(struct joining *joining)
{
    for (unsigned turn = 0; turn < HELP_AFTER; publication_back_off(&turn)) {
        uint64_t word = atomic_load_explicit(&joining->head->word, memory_order_acquire);
        const struct box *box;
        bool done;

        if (!(word & WORD_BOXED))
            return false;
        box = box_of(joining, word);
        done = atomic_load_explicit(&box->done, memory_order_acquire) == word_version(word);
        copy(joining->line, box->content, CONTENT_STATES);
        copy(joining->projection, box->content + projection_at(joining), joining->projected_n);
        atomic_thread_fence(memory_order_acquire);
        if (load(&joining->head->word) != word)
            continue;
        joining->word = word;
        joining->box = box;
        if (done || MUTANT(620))
            return true;
    }
    return false;
}

/* Whether others are before a newcomer, and nothing but his place is to be decided. What others are
 * in line for is foreseen, if that is possible, and nobody is about to leave them alone. */
static bool stands_behind(const struct joining *joining)
{
    const weir_set *set = joining->set;
    uint32_t length = line_length_of(joining->line);
    uint64_t flags = joining->line[CONTENT_COUNT] >> FLAGS_SHIFT;

    return length && flags == (joining->projected_n ? CONTENT_PROJECTED : 0) &&
           (!set->max_waiters || length < set->max_waiters || MUTANT(15));
}

/* ---- the version behind it ---- */

/* The record, which is free and the caller's, as the one behind `tail`, and what changes with it. As
 * line_push(). */
static void stand_behind(const struct joining *joining, uint32_t record, struct effect *effects)
{
    const struct region *region = joining->set->region;
    uint32_t tail = (uint32_t)(joining->line[CONTENT_ENDS] >> 32);
    struct record *r = record_at(region, record);
    uint64_t word = record_load(&r->word), link = record_load(&record_at(region, tail)->next);

    record_store(&r->next, link_next(record_load(&r->next), 0));
    STEP();
    record_store(&r->prev, link_next(record_load(&r->prev), tail));
    STEP();
    record_store(&r->granted, GRANTED_MARKER | word >> 8);
    STEP();
    effects[0] = (struct effect){.place = effect_place(record, RECORD_WORD),
                                 .before = word,
                                 .after = record_next_word(word, RECORD_WAITING)};
    effects[1] = (struct effect){
        .place = effect_place(tail, RECORD_NEXT), .before = link, .after = link_next(link, record)};
}

/* In private memory nobody looks at which version of a box it is, nor whether it was told of. */
static void write_header(const struct joining *joining, uint32_t unit, struct box *box,
                         uint64_t version, const struct effect *effects)
{
    uint32_t n = projection_at(joining) + joining->projected_n;

    store(&box->done, version - !MUTANT(621));
    store(&box->replaced, joining->word);
    store(&box->meta, box_meta(unit, n, 2));
    store(&box->places[0], effects[0].place | (uint64_t)effects[1].place << 32);
    for (uint32_t i = 0; i < 2; i++) {
        store(&box->effects[i][0], effects[i].before);
        store(&box->effects[i][1], effects[i].after);
    }
}

/* What is read of the other box here counts only if the commit finds that it is still current. */
static void write_content(const struct joining *joining, struct box *box)
{
    uint32_t i;

    for (i = 0; i < CONTENT_STATES; i++)
        store(&box->content[i], joining->line[i]);
    for (; i < projection_at(joining); i++)
        store(&box->content[i], load(&joining->box->content[i]));
    for (uint32_t word = 0; word < joining->projected_n; word++)
        store(&box->content[i + word], joining->projection[word]);
}

/* Somebody else may have done it by now, and more. */
static void complete(const struct region *region, const struct effect *effect)
{
    _Atomic uint64_t *record = region_record(region, effect->place >> 3);
    uint64_t before = MUTANT(622)
    ? record_load(&record[effect->place & 7]) : effect->before;

    atomic_compare_exchange_strong_explicit(&record[effect->place & 7], &before, effect->after,
                                            memory_order_acq_rel, memory_order_relaxed);
    STEP();
}

/* As publication_commit(). */
static bool commit(const struct joining *joining, uint32_t unit, const struct effect *effects)
{
    const struct region *region = joining->set->region;
    struct actor_head *actor = region_box(region, unit);
    _Atomic uint64_t *own = &actor->own[joining->head->box_class - BOX_CLASS_MIN];
    uint64_t mine = atomic_load_explicit(own, memory_order_acquire);
    uint64_t word = WORD_BOXED | word_make(word_slot(mine), word_version(mine) + 1);
    struct box *box = box_of(joining, word);

    atomic_thread_fence(memory_order_release);
    write_header(joining, unit, box, word_version(word), effects);
    write_content(joining, box);
    if (!publication_swap(region, joining->set->head, joining->word, word))
        return false;
    STEP();
    complete(region, &effects[0]);
    complete(region, &effects[1]);
    store(own, word_own(joining->word));
    atomic_store_explicit(&box->done, word_version(word), memory_order_release);
    STEP();
    return true;
}

/* ---- joining ---- */

/* One longer, and as of `at_ns`. */
static void extend_line(struct joining *joining, uint32_t record, uint64_t at_ns)
{
    joining->line[CONTENT_ENDS] = (uint64_t)record << 32 | (uint32_t)joining->line[CONTENT_ENDS];
    joining->line[CONTENT_COUNT]++; /* there are never so many records that it runs over */
    joining->line[CONTENT_LAST] = at_ns;
}

/* 1, 0: the set has changed meanwhile, or -EINPROGRESS. */
static int join_once(struct joining *joining, struct actor *actor, const uint64_t *amounts,
                     uint32_t record, struct verdict *ret)
{
    const weir_set *set = joining->set;
    /* After the word: no published version can have read a later instant from the clock. */
    struct weir_instant at = instance_instant(set->w, set->limits.reads_wall);
    struct effect effects[2];

    *ret = (struct verdict){.now_ns = at.now_ns, .estimate_ns = WEIR_NEVER};
    if (at.now_ns < joining->line[CONTENT_LAST])
        at.now_ns = joining->line[CONTENT_LAST];
    if (joining->projected_n && !projection_extend(&set->limits, &at, joining->projection, amounts))
        return -EINPROGRESS; /* it can never be granted */
    ret->ticket = line_left_of(joining->line) + line_length_of(joining->line);
    record_store(&set_record(set, record)->since, MUTANT(119) ? at.now_ns : ret->now_ns);
    STEP();
    stand_behind(joining, record, effects);
    extend_line(joining, record, at.now_ns);
    return commit(joining, actor_part(actor, set->number)->unit, effects);
}

int join_line(struct actor *actor, weir_set *set, const uint64_t *amounts, uint32_t record,
              uint64_t max_wait_ns, struct verdict *ret)
{
    struct joining joining = {.set = set,
                              .head = region_box(set->region, set->head),
                              .projection = actor->content,
                              .projected_n = set_content_max(set) - set_content_min(set)};
    unsigned turn = 0;
    int r;

    if (set->mortal || !set->fair || set->limits.has_unforeseen || max_wait_ns != WEIR_FOREVER ||
        MUTANT(14))
        return -EINPROGRESS;
    for (;; publication_back_off(&turn)) {
        if (!read_line(&joining) || !stands_behind(&joining))
            return -EINPROGRESS;
        r = join_once(&joining, actor, amounts, record, ret);
        if (r != 0)
            return r;
    }
}
