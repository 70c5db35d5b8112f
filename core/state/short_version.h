/* SPDX-License-Identifier: MIT */
/*
 * Short versions: publication_read() and publication_commit() of what most versions are: complete,
 * with nobody to be woken, at most one effect, which is on the publisher's own record, and as many
 * words of content as whoever reads it expects. They are versions as any others, but they fit onto the
 * stack, and what is done to them into the caller: it is done most often.
 *
 * Where those who use the set can die one by one (`mortal`), all is as publication.h says. Where they
 * cannot, there is no effect, and nobody else need see to it that the publisher gets the box that was
 * replaced: then the version says that it is complete before it is published.
 */
#ifndef WEIR_CORE_STATE_SHORT_VERSION_H
#define WEIR_CORE_STATE_SHORT_VERSION_H

#include "base/sched_point.h"
#include "state/contention.h"
#include "state/version.h"
#include "state/version_block.h"

/* Half of them are copied, or all, with some that nobody looks at. Every box has room for so many. */
#define SHORT_WORDS_MAX 16u
_Static_assert(sizeof(struct box) + SHORT_WORDS_MAX * sizeof(uint64_t) <= 1u << BOX_CLASS_MIN,
               "within the smallest box");

struct short_version {
    struct set_head *head;
    uint32_t box_class;
    uint32_t content_n;
    uint64_t word;   /* the set's word when it was read */
    bool has_effect; /* only of the mortal */
    struct effect effect;
    uint64_t content[SHORT_WORDS_MAX];
};

TWICE void short_store(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
    STEP();
}

TWICE uint64_t short_load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

TWICE void short_get(uint64_t *to, const _Atomic uint64_t *from)
{
    *to = short_load(from);
    STEP();
}

TWICE void short_get_4(uint64_t *to, const _Atomic uint64_t *from)
{
    short_get(&to[0], &from[0]);
    short_get(&to[1], &from[1]);
    short_get(&to[2], &from[2]);
    short_get(&to[3], &from[3]);
}

TWICE void short_put_4(_Atomic uint64_t *to, const uint64_t *from)
{
    short_store(&to[0], from[0]);
    short_store(&to[1], from[1]);
    short_store(&to[2], from[2]);
    short_store(&to[3], from[3]);
}

/* Without a loop: most have eight words at most. */
TWICE void short_get_content(uint64_t *to, const struct box *box, uint32_t n)
{
    short_get_4(to, box->content);
    short_get_4(to + 4, box->content + 4);
    if (n <= 8)
        return;
    short_get_4(to + 8, box->content + 8);
    short_get_4(to + 12, box->content + 12);
}

TWICE void short_put_content(struct box *box, const uint64_t *from, uint32_t n)
{
    short_put_4(box->content, from);
    short_put_4(box->content + 4, from + 4);
    if (n <= 8)
        return;
    short_put_4(box->content + 8, from + 8);
    short_put_4(box->content + 12, from + 12);
}

/* Whether the box is all of the version that `word` names, as far as can be said before another look
 * at the word. In private memory nobody has written anything else. */
TWICE bool short_is_whole(bool mortal, const struct region *region, const struct box *box,
                          uint64_t word, uint32_t content_n)
{
    if (box_content_n(short_load(&box->meta)) != content_n || !(word & WORD_BOXED))
        return false;
    return !mortal || !region->segment ||
           (short_load(&box->version) == word_version(word) &&
            short_load(&box->told) == word_version(word));
}

/* Somebody was faster: waits a while. `*turn` begins at 0. */
TWICE void short_lost(bool mortal, struct set_head *set, unsigned *turn)
{
    if (mortal)
        publication_back_off(turn);
    else
        pressing_lost(set, turn);
}

/* Of so many words of content. False: it is not short, or not complete, and is not soon. */
TWICE bool short_version_read(bool mortal, const struct region *region, uint32_t set_unit,
                              uint32_t content_n, unsigned *turn, struct short_version *version)
{
    struct set_head *set = region_box(region, set_unit);
    uint32_t box_class = boxes_class(mortal, region, set);

    version->head = set;
    version->box_class = box_class;
    version->content_n = content_n;
    for (unsigned early = 0; early < HELP_AFTER; short_lost(mortal, set, turn)) {
        uint64_t word = atomic_load_explicit(&set->word, memory_order_acquire);
        const struct box *box = boxes_at(mortal, region, box_class, word);
        bool done = atomic_load_explicit(&box->done, memory_order_acquire) == word_version(word);

        if (!short_is_whole(mortal, region, box, word, content_n))
            return false;
        short_get_content(version->content, box, content_n);
        atomic_thread_fence(memory_order_acquire);
        if (short_load(&set->word) != word)
            continue;
        version->word = word;
        if (done || MUTANT(561))
            return true;
        early++;
    }
    return false;
}

/* What goes before the content, of a version that `word` names. Of one that is complete when it is
 * published nobody asks what it owes. */
TWICE void short_write_head(bool mortal, const struct region *region, uint32_t actor,
                            struct box *box, uint64_t word, const struct short_version *version)
{
    bool has_effect = mortal && version->has_effect;

    atomic_thread_fence(memory_order_release);
    if (mortal && region->segment) {
        short_store(&box->version, word_version(word));
        short_store(&box->told, word_version(word));
    }
    short_store(&box->done, word_version(word) - (mortal && !MUTANT(562)));
    if (mortal)
        short_store(&box->replaced, version->word);
    short_store(&box->meta, box_meta(mortal ? actor : 0, version->content_n, has_effect));
    if (has_effect) {
        short_store(&box->effects[0][0], version->effect.before);
        short_store(&box->effects[0][1], version->effect.after);
        short_store(&box->places[0], version->effect.place);
    }
}

/* The publisher completes his own version. */
TWICE void short_complete(const struct region *region, const struct effect *effect)
{
    _Atomic uint64_t *at = region_record(region, effect->place >> 3);
    uint64_t before = effect->before;

    at += effect->place & 7;
    if (effect->own)
        atomic_store_explicit(at, effect->after, memory_order_release);
    else
        atomic_compare_exchange_strong(at, &before, effect->after);
    STEP();
}

/* As publication_commit(). */
TWICE bool short_version_commit(bool mortal, const struct region *region, uint32_t actor,
                                unsigned turn, const struct short_version *version)
{
    _Atomic uint64_t *own = boxes_own(mortal, region, actor, version->box_class);
    uint64_t mine = atomic_load_explicit(own, memory_order_acquire), before = version->word;
    struct box *box = boxes_at(mortal, region, version->box_class, mine);
    uint64_t word = word_after(mine);

    short_write_head(mortal, region, actor, box, word, version);
    short_put_content(box, version->content, version->content_n);
    /* In one order with what says that the instance is closed: see set_enter(). */
    if (!atomic_compare_exchange_strong(&version->head->word, &before, word))
        return false;
    STEP();
    if (mortal && version->has_effect)
        short_complete(region, &version->effect);
    short_store(own, word_own(version->word));
    if (!mortal)
        pressing_won(version->head, turn);
    if (mortal) {
        atomic_store_explicit(&box->done, word_version(word), memory_order_release);
        STEP();
    }
    return true;
}

#endif
