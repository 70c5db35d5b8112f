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
#ifndef WEIR_CORE_SHORT_VERSION_H
#define WEIR_CORE_SHORT_VERSION_H

#include "publication.h"
#include "segment.h"
#include "step.h"

/* Even, for they are copied two at a time: with one that nobody looks at, if need be. Every box has
 * room for so many. */
#define SHORT_WORDS_MAX 16u
_Static_assert(SHORT_WORDS_MAX % 2 == 0, "two at a time");
_Static_assert(sizeof(struct box) + SHORT_WORDS_MAX * sizeof(uint64_t) <= 1u << BOX_CLASS_MIN,
               "within the smallest box");

struct short_version {
    uint64_t word;      /* the set's word when it was read */
    uint32_t content_n; /* set by the caller */
    bool has_effect;    /* only of the mortal */
    struct effect effect;
    uint64_t content[SHORT_WORDS_MAX];
};

/* Compiled into its caller for either kind of set, with nothing of the other one. */
#define SHORT_INLINE static inline __attribute__((always_inline))

SHORT_INLINE void short_store(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
    STEP();
}

SHORT_INLINE uint64_t short_load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

SHORT_INLINE void short_copy(uint64_t *to, const _Atomic uint64_t *from)
{
    *to = short_load(from);
    STEP();
}

/* What others can write says neither how large boxes are nor where they end. */
SHORT_INLINE uint32_t short_class(bool mortal, const struct region *region,
                                  const struct set_head *set)
{
    return mortal && region->segment ? region->box_class : set->box_class;
}

SHORT_INLINE struct box *short_box(bool mortal, const struct region *region, uint32_t box_class,
                                   uint64_t slot)
{
    if (mortal && slot - region->slot_first >= region->slots_n)
        return region_stray(region);
    return (struct box *)(void *)(region->boxes.base + (slot << box_class));
}

SHORT_INLINE _Atomic uint64_t *short_own(bool mortal, const struct region *region, uint32_t actor,
                                         uint32_t box_class)
{
    struct actor_head *head = region_box(region, actor);
    uint32_t i;

    if (mortal && region->segment && !segment_actor_of(region->segment, actor, &i))
        return region_stray(region);
    return &head->own[box_class - BOX_CLASS_MIN];
}

/* Whether the box is all of the version that `word` names, as far as can be said before another look
 * at the word. In private memory nobody has written anything else. */
SHORT_INLINE bool short_is_whole(bool mortal, const struct region *region, const struct box *box,
                                 uint64_t word, const struct short_version *version)
{
    if (box_content_n(short_load(&box->meta)) != version->content_n || !(word & WORD_BOXED))
        return false;
    return !mortal || !region->segment ||
           (short_load(&box->version) == word_version(word) &&
            short_load(&box->told) == word_version(word));
}

/* False: it is not short, or not complete, and is not soon. */
SHORT_INLINE bool short_version_read(bool mortal, const struct region *region, uint32_t set_unit,
                                     struct short_version *version)
{
    const struct set_head *set = region_box(region, set_unit);
    uint32_t box_class = short_class(mortal, region, set);

    for (unsigned turn = 0; turn < HELP_AFTER; publication_back_off(&turn)) {
        uint64_t word = atomic_load_explicit(&set->word, memory_order_acquire);
        const struct box *box = short_box(mortal, region, box_class, word_slot(word));
        bool done = atomic_load_explicit(&box->done, memory_order_acquire) == word_version(word);

        if (!short_is_whole(mortal, region, box, word, version))
            return false;
        for (uint32_t i = 0; i < version->content_n; i += 2) {
            short_copy(&version->content[i], &box->content[i]);
            short_copy(&version->content[i + 1], &box->content[i + 1]);
        }
        atomic_thread_fence(memory_order_acquire);
        if (short_load(&set->word) != word)
            continue;
        version->word = word;
        if (done || MUTANT(561))
            return true;
    }
    return false;
}

/* Writes it into this box as the version that `word` names. */
SHORT_INLINE void short_write(bool mortal, const struct region *region, uint32_t actor,
                              struct box *box, uint64_t word, const struct short_version *version)
{
    bool has_effect = mortal && version->has_effect;

    atomic_thread_fence(memory_order_release);
    if (mortal && region->segment) {
        short_store(&box->version, word_version(word));
        short_store(&box->told, word_version(word));
    }
    short_store(&box->done, word_version(word) - (mortal && !MUTANT(562)));
    short_store(&box->replaced, version->word);
    short_store(&box->meta, box_meta(actor, version->content_n, has_effect));
    if (has_effect) {
        short_store(&box->effects[0][0], version->effect.before);
        short_store(&box->effects[0][1], version->effect.after);
        short_store(&box->places[0], version->effect.place);
    }
    for (uint32_t i = 0; i < version->content_n; i += 2) {
        short_store(&box->content[i], version->content[i]);
        short_store(&box->content[i + 1], version->content[i + 1]);
    }
}

/* The publisher completes his own version. */
SHORT_INLINE void short_complete(const struct region *region, const struct effect *effect)
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
SHORT_INLINE bool short_version_commit(bool mortal, const struct region *region, uint32_t actor,
                                       uint32_t set_unit, const struct short_version *version)
{
    const struct set_head *set = region_box(region, set_unit);
    uint32_t box_class = short_class(mortal, region, set);
    _Atomic uint64_t *own = short_own(mortal, region, actor, box_class);
    uint64_t mine = atomic_load_explicit(own, memory_order_acquire);
    struct box *box = short_box(mortal, region, box_class, word_slot(mine));
    uint64_t word = WORD_BOXED | word_make(word_slot(mine), word_version(mine) + 1);

    short_write(mortal, region, actor, box, word, version);
    if (!publication_swap(region, set_unit, version->word, word))
        return false;
    STEP();
    if (mortal && version->has_effect)
        short_complete(region, &version->effect);
    short_store(own, word_own(version->word));
    if (mortal) {
        atomic_store_explicit(&box->done, word_version(word), memory_order_release);
        STEP();
    }
    return true;
}

#endif
