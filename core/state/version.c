/* SPDX-License-Identifier: MIT */
/*
 * Publication: see publication.h for the scheme and its invariants.
 *
 * Memory order. All shared words are atomic; what is not said otherwise is relaxed.
 *   - Commit is a compare-and-swap with acquire and release: it publishes the box before it, and
 *     whoever loads the word with acquire sees the box.
 *   - A reader copies a box that may be rewritten meanwhile (a seqlock whose sequence is the word):
 *     its copy is followed by an acquire fence and a second look at the word. The writer's stores
 *     into a box are preceded by a release fence, and the box became its own by a change of the
 *     word that comes before the fence; so a reader that saw one of these stores sees the word
 * changed.
 *   - `done` is stored with release after the effects and loaded with acquire before relying on
 * them.
 */
#include "state/version_internal.h"

#include <errno.h>
#include <string.h>

_Static_assert(sizeof(struct box) == 120, "nearly two lines of a box are its header");
_Static_assert(sizeof(struct actor_head) % 8 == 0, "flat");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "64-bit atomics must be lock-free");

#define BACK_OFF_MAX 6u

/* What is done rarely shall not take registers from what is done most often. */
#define RARELY static __attribute__((noinline))

static struct box *word_box(const struct region *region, uint32_t box_class, uint64_t word)
{
    return boxes_at(true, region, box_class, word);
}

static uint32_t class_of(const struct region *region, const struct set_head *set)
{
    return boxes_class(true, region, set);
}

static _Atomic uint64_t *own_of(const struct region *region, uint32_t actor, uint32_t box_class)
{
    return boxes_own(true, region, actor, box_class);
}

void publication_back_off(unsigned *turn)
{
    for (unsigned i = 0; i < 1u << *turn; i++) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
    if (*turn < BACK_OFF_MAX)
        ++*turn;
}

uint32_t box_class_for(size_t content_words)
{
    uint32_t box_class = BOX_CLASS_MIN;

    while (box_class <= BOX_CLASS_MAX && box_capacity(box_class) < content_words)
        box_class++;
    return box_class <= BOX_CLASS_MAX ? box_class : 0;
}

size_t box_capacity(uint32_t box_class)
{
    return (((size_t)1 << box_class) - sizeof(struct box)) / sizeof(uint64_t);
}

/* A box of this class as version 0 of its slot, in the form of an own word; 0: no memory. */
static uint64_t new_box(struct region *region, uint32_t box_class)
{
    size_t size = (size_t)1 << box_class;
    uint32_t unit = region_alloc_box(region, size, size);
    uint64_t slot = (uint64_t)unit * UNIT_SIZE >> box_class;

    return unit && slot <= WORD_SLOT_MASK ? word_make(slot, 0) : 0;
}

void publication_begin(struct set_head *set, uint32_t box_class, uint32_t number, struct box *box,
                       uint64_t slot, const uint64_t *content, size_t content_n)
{
    for (size_t i = 0; i < content_n; i++)
        store(&box->content[i], content[i]);
    store(&box->meta, box_meta(0, (uint32_t)content_n, 0));
    store(&box->version, 1);
    store(&box->done, 1);
    store(&box->told, 1);
    set->box_class = box_class;
    set->number = number;
    atomic_store_explicit(&set->word, WORD_BOXED | word_make(slot, 1), memory_order_release);
}

uint32_t publication_new_set(struct region *region, uint32_t box_class, uint32_t number,
                             const uint64_t *content, size_t content_n)
{
    uint32_t unit = region_alloc_box(region, sizeof(struct set_head), UNIT_SIZE);
    uint64_t own = unit ? new_box(region, box_class) : 0;

    if (!own)
        return 0;
    publication_begin(region_box(region, unit), box_class, number, word_box(region, box_class, own),
                      word_slot(own), content, content_n);
    return unit;
}

uint32_t publication_new_word(struct region *region, uint32_t box_class, uint32_t number,
                              uint64_t word)
{
    uint32_t unit = region_alloc_box(region, sizeof(struct set_head), UNIT_SIZE);

    if (unit) {
        struct set_head *set = region_box(region, unit);

        set->box_class = box_class;
        set->number = number;
        atomic_store_explicit(&set->word, word, memory_order_release);
    }
    return unit;
}

int publication_reserve(struct region *region, uint32_t set_unit)
{
    struct set_head *set = set_at(region, set_unit);
    uint64_t box;

    if (load(&set->spare))
        return 0;
    box = new_box(region, class_of(region, set));
    if (!box)
        return -ENOMEM;
    atomic_store_explicit(&set->spare, box, memory_order_release);
    return 0;
}

uint32_t publication_new_actor(struct region *region)
{
    uint32_t unit = region_alloc_box(region, sizeof(struct actor_head), UNIT_SIZE);

    if (unit) {
        struct actor_head *actor = region_box(region, unit);

        store(&actor->generation, 1);
    }
    return unit;
}

int publication_prepare(struct region *region, uint32_t actor, uint32_t box_class)
{
    _Atomic uint64_t *own = own_of(region, actor, box_class);
    uint64_t box;

    if (load(own))
        return 0;
    box = new_box(region, box_class);
    if (!box)
        return -ENOMEM;
    atomic_store_explicit(own, box, memory_order_release);
    return 0;
}

/* Everything that a version owes, copied before it is known to be still current. */
struct debt {
    uint32_t actor, effects_n;
    uint64_t replaced;
    struct effect effects[EFFECTS_MAX];
};

static void copy_debt(const struct box *box, struct debt *ret)
{
    uint64_t meta = load(&box->meta);

    ret->actor = (uint32_t)(meta >> 32);
    ret->effects_n = (uint32_t)(meta & 0xff);
    if (ret->effects_n > EFFECTS_MAX)
        ret->effects_n = EFFECTS_MAX; /* never, but in a segment that was tampered with */
    ret->replaced = load(&box->replaced);
    for (uint32_t i = 0; i < ret->effects_n; i++) {
        ret->effects[i] =
            (struct effect){.place = (uint32_t)(load(&box->places[i / 2]) >> 32 * (i % 2)),
                            .before = load(&box->effects[i][0]),
                            .after = load(&box->effects[i][1])};
    }
}

/* Completes what the version named by `word` owes, unless it has been superseded: then somebody
 * else completed it before. Any number of helpers, any delay between any two lines. */
void publication_help_with(const struct region *region, struct set_head *set, uint64_t word)
{
    struct box *box = word_box(region, class_of(region, set), word);
    uint64_t version = word_version(word);
    _Atomic uint64_t *own;
    struct debt debt;

    if (load_acquire(&box->done) == version)
        return;
    STEP();
    copy_debt(box, &debt);
    STEP();
    if (!(debt.replaced & WORD_BOXED))
        debt.replaced = load(&set->spare);
    atomic_thread_fence(memory_order_acquire);
    if (load(&set->word) != word && !MUTANT(23))
        return;
    STEP();
    if (MUTANT(22))
        atomic_store_explicit(&box->done, version, memory_order_release);
    for (uint32_t i = 0; i < debt.effects_n; i++)
        if (!(MUTANT(1) && i == 1))
            apply(true, region, &debt.effects[i]);
    own = own_of(region, debt.actor, class_of(region, set));
    if (MUTANT(20))
        store(own, word_own(debt.replaced));
    else
        swap(own, word_make(word_slot(word), version - 1), word_own(debt.replaced));
    STEP();
    atomic_store_explicit(&box->done, version, memory_order_release);
    STEP();
}

void publication_help(const struct region *region, uint32_t set_unit)
{
    struct set_head *set = set_at(region, set_unit);
    uint64_t word;

    do {
        word = load_acquire(&set->word);
        if (word & WORD_BOXED)
            publication_help_with(region, set, word);
    } while (load_acquire(&set->word) != word);
}

uint64_t publication_guess(const struct region *region, uint32_t set_unit, uint32_t i)
{
    struct set_head *set = set_at(region, set_unit);
    uint64_t word = load_acquire(&set->word);

    return word & WORD_BOXED ? load(&word_box(region, class_of(region, set), word)->content[i]) : 0;
}

void publication_read_word(struct version *version, uint64_t word)
{
    memset(version->content, 0, WORD_STATE_AT * sizeof(uint64_t));
    version->content[WORD_STATE_AT] = word_state(version->form, word);
    version->content_n = WORD_STATE_AT + 1;
    if (version->form == WORD_LEDGER)
        version->content[version->content_n++] = word & LEDGER_BITS;
    version->strange = version->form == WORD_NONE;
    version->untold = false;
    version->word = word;
    version->effects_n = 0;
}

/* Until it is whole. */
RARELY void read_on(const struct region *region, struct set_head *set, struct version *version,
                    enum reading reading)
{
    for (unsigned turn = 0; reading != READ_WHOLE;) {
        if (reading == READ_STATE) {
            publication_read_word(version, version->word);
            return;
        }
        if (reading == READ_OWING && turn >= HELP_AFTER) {
            publication_help_with(region, set, version->word);
            return;
        }
        publication_back_off(&turn);
        reading = read_once(true, region, set, version);
    }
}

void publication_read(const struct region *region, uint32_t set_unit, struct version *version)
{
    struct set_head *set = set_at(region, set_unit);
    enum reading reading;

    version->effects_n = 0;
    reading = region->segment ? read_once(true, region, set, version)
                              : read_once(false, region, set, version);
    if (reading != READ_WHOLE)
        read_on(region, set, version, reading);
}

bool publication_current(const struct region *region, uint32_t set_unit,
                         const struct version *version)
{
    atomic_thread_fence(memory_order_acquire);
    return load(&set_at(region, set_unit)->word) == version->word;
}

uint32_t publication_effects(const struct region *region, uint32_t set_unit,
                             const struct version *version, struct effect *ret)
{
    struct set_head *set = set_at(region, set_unit);
    const struct box *box;
    uint32_t n;

    if (!version_is_boxed(version))
        return 0;
    box = word_box(region, class_of(region, set), version->word);
    n = load(&box->meta) & 0xff;
    n = n < EFFECTS_MAX ? n : EFFECTS_MAX;
    for (uint32_t i = 0; i < n; i++)
        ret[i] = (struct effect){.place = (uint32_t)(load(&box->places[i / 2]) >> 32 * (i % 2)),
                                 .before = load(&box->effects[i][0]),
                                 .after = load(&box->effects[i][1])};
    return publication_current(region, set_unit, version) ? n : 0;
}

/* If the box is another version's by now, that one counts as untold, and is told of again. */
void publication_told(const struct region *region, uint32_t set_unit, const struct version *version)
{
    struct set_head *set = set_at(region, set_unit);
    struct box *box = word_box(region, class_of(region, set), version->word);

    atomic_store_explicit(&box->told, word_version(version->word), memory_order_release);
    STEP();
}

bool publication_commit(const struct region *region, uint32_t actor, uint32_t set_unit,
                        struct version *version)
{
    return region->segment ? commit(true, region, actor, set_unit, version)
                           : commit(false, region, actor, set_unit, version);
}

bool publication_unbox(const struct region *region, uint32_t set_unit,
                       const struct version *version, uint64_t word)
{
    struct set_head *set = set_at(region, set_unit);
    uint64_t spare;

    do {
        spare = load_acquire(&set->spare);
        STEP();
        if (load(&set->word) != version->word && !MUTANT(482))
            return false;
        STEP();
    } while (!MUTANT(506) && spare != word_own(version->word) &&
             !swap(&set->spare, MUTANT(481) ? load(&set->spare) : spare, word_own(version->word)));
    STEP();
    return publication_swap(region, set_unit, version->word, word);
}
