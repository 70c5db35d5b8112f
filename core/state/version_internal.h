/* SPDX-License-Identifier: MIT */
/* The steps of publication_read() and publication_commit(), compiled into them, and into what is
 * done most often. What order they are in is said in publication.c. */
#ifndef WEIR_CORE_STATE_VERSION_INTERNAL_H
#define WEIR_CORE_STATE_VERSION_INTERNAL_H

#include "base/mutant.h"
#include "base/sched_point.h"
#include "state/version.h"
#include "state/version_block.h"

static inline uint64_t load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static inline uint64_t load_acquire(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

static inline void store(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static inline bool swap(_Atomic uint64_t *word, uint64_t before, uint64_t after)
{
    return atomic_compare_exchange_strong_explicit(word, &before, after, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

static inline struct set_head *set_at(const struct region *region, uint32_t set)
{
    return region_box(region, set);
}

TWICE void apply(bool shared, const struct region *region, const struct effect *effect)
{
    uint32_t record = effect->place >> 3;
    _Atomic uint64_t *at = shared ? region_record(region, record) : region_at(region, record);

    at += effect->place & 7;
    STEP();
    if (effect->own || MUTANT(21))
        atomic_store_explicit(at, effect->after, memory_order_release);
    else
        swap(at, effect->before, effect->after);
    STEP();
}

TWICE void copy_content(const struct box *box, struct version *version)
{
    uint32_t n = box_content_n(load(&box->meta));
    uint64_t *content = version->content;

    if (n > version->content_capacity)
        n = version->content_capacity; /* torn: the word has moved, and the copy is thrown away */
    for (uint32_t i = 0; i < n; i++) {
        content[i] = load(&box->content[i]);
        STEP();
    }
    version->content_n = n;
}

/* What came of reading a version. */
enum reading {
    READ_WHOLE,
    READ_STATE, /* the word is not boxed */
    READ_MOVED, /* somebody was faster */
    READ_OWING  /* its effects are not complete */
};

/* What others can write need not be of the version that the word names; nor need they have come to
 * wake anybody. */
TWICE void judge(const struct box *box, struct version *version)
{
    uint64_t word = version->word;

    version->strange = (WORD_BOXED | word_make(word_slot(word), load(&box->version))) != word;
    version->untold = load(&box->told) != word_version(word);
}

TWICE enum reading read_once(bool shared, const struct region *region, const struct set_head *set,
                             struct version *version)
{
    uint64_t word = version->word = load_acquire(&set->word), done;
    const struct box *box;

    if (!(word & WORD_BOXED))
        return READ_STATE;
    box = boxes_at(shared, region, boxes_class(shared, region, set), word);
    done = load_acquire(&box->done);
    version->strange = version->untold = false;
    if (shared && region->segment)
        judge(box, version);
    copy_content(box, version);
    atomic_thread_fence(memory_order_acquire);
    if (load(&set->word) != word && !MUTANT(2))
        return READ_MOVED;
    if (done != word_version(word) && !MUTANT(3))
        return READ_OWING;
    return READ_WHOLE;
}

/* help() in publication.c: completes what this version owes. */
void publication_help_with(const struct region *region, struct set_head *set, uint64_t word);

TWICE void write_effect(struct box *box, uint32_t i, const struct effect *effect)
{
    store(&box->effects[i][0], effect->before);
    STEP();
    store(&box->effects[i][1], effect->after);
    STEP();
}

/* Two have their places in one word. */
TWICE void write_effects(struct box *box, const struct effect *effects, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 2) {
        uint64_t places = effects[i].place;

        write_effect(box, i, &effects[i]);
        if (i + 1 < n) {
            write_effect(box, i + 1, &effects[i + 1]);
            places |= (uint64_t)effects[i + 1].place << 32;
        }
        store(&box->places[i / 2], places);
        STEP();
    }
}

/* Writes a version into this box of the actor's as the one that `word` names. */
TWICE void write_box(struct box *box, uint32_t actor, uint64_t word, const struct version *version)
{
    uint32_t n = version->content_n;
    const uint64_t *content = version->content;

    atomic_thread_fence(memory_order_release);
    store(&box->version, word_version(word));
    STEP();
    /* It may say that this very version is complete: a short one, which was not published. */
    if (!MUTANT(566))
        store(&box->done, word_version(word) - 1);
    STEP();
    store(&box->told, version->tells ? 0 : word_version(word));
    STEP();
    store(&box->replaced, version->word);
    STEP();
    store(&box->meta, box_meta(actor, n, version->effects_n));
    STEP();
    write_effects(box, version->effects, version->effects_n);
    for (uint32_t i = 0; i < n; i++) {
        store(&box->content[i], content[i]);
        STEP();
    }
}

/*
 * The publisher completes its own version. That needs no copy of what it owes, and no compare-and-
 * swap where only helpers could have been faster, with the same value: its own box, and the words of
 * its own record.
 */
TWICE void complete(bool shared, const struct region *region, _Atomic uint64_t *own,
                    struct box *box, const struct version *version, uint64_t replaced)
{
    uint32_t effects_n = version->effects_n;

    for (uint32_t i = 0; i < effects_n; i++)
        apply(shared, region, &version->effects[i]);
    store(own, replaced);
    STEP();
    atomic_store_explicit(&box->done, word_version(version->word), memory_order_release);
    STEP();
}

TWICE bool commit(bool shared, const struct region *region, uint32_t actor, uint32_t set_unit,
                  struct version *version)
{
    struct set_head *set = set_at(region, set_unit);
    uint32_t box_class = boxes_class(shared, region, set);
    _Atomic uint64_t *own = boxes_own(shared, region, actor, box_class);
    uint64_t mine = load_acquire(own), before = version->word;
    struct box *box = boxes_at(shared, region, box_class, mine);
    uint64_t word = WORD_BOXED | word_make(word_slot(mine), word_version(mine) + 1);

    write_box(box, actor, word, version);
    if (!publication_swap(region, set_unit, before, word))
        return false;
    STEP();
    version->word = word;
    if (before & WORD_BOXED)
        complete(shared, region, own, box, version, word_own(before));
    else if (MUTANT(480))
        complete(shared, region, own, box, version, load(&set->spare));
    else
        publication_help_with(region, set,
                              word); /* the box that it receives may have been changed by others */
    return true;
}

#endif
