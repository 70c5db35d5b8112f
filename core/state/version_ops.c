/* SPDX-License-Identifier: MIT */
/* Versions: creation, reading, helping, commit and deflation. README.md has protocol and order. */
#include "state/version_ops.h"
#include "base/backoff.h"
#include "base/compiler.h"
#include "base/invariant.h"

#include <errno.h>
#include <string.h>

_Static_assert(sizeof(struct version_block) == 120, "nearly two lines of a box are its header");
_Static_assert(sizeof(struct thread_head) % 8 == 0, "flat");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "64-bit atomics must be lock-free");

/* Returns the block of a set that `word` refers to. */
static struct version_block *version_block_of(const struct region *region,
                                              const struct set_head *set, uint64_t word)
{
    uint32_t block_class = block_class_of(true, region, set);

    WEIR_INVARIANT(region->segment ||
                   state_word_slot(word) << block_class < region->blocks.reserved);
    return block_at(true, region, block_class, word);
}

/* Allocates a block of this class with version 0 of its slot. Returns its block reference; 0: no
 * memory. */
static uint64_t version_new_block(struct region *region, uint32_t block_class)
{
    size_t size = (size_t)1 << block_class;
    uint32_t unit = region_alloc_block_below(region, size, size, block_slots_end(block_class));
    uint64_t slot = (uint64_t)unit * REGION_UNIT_SIZE >> block_class;

    return unit ? block_ref_make(slot, 0) : 0;
}

uint32_t version_new_set(struct region *region, uint32_t block_class, uint32_t number,
                         const uint64_t *content, size_t content_n)
{
    uint64_t own_ref = version_new_block(region, block_class); /* of which there is less room */
    uint32_t unit =
        own_ref ? region_alloc_block(region, sizeof(struct set_head), REGION_UNIT_SIZE) : 0;

    if (!unit)
        return 0;
    set_layout_init(region_block(region, unit), block_class, number,
                    block_at(true, region, block_class, own_ref), state_word_slot(own_ref), content,
                    content_n);
    return unit;
}

/* Small blocks have to lie in front, and large ones leave gaps between them. */
bool version_has_room(const struct region *region, const struct promised_sets *promised)
{
    size_t end = region->blocks.reserved, needed = region->blocks.used;
    bool is_mixed = false;

    WEIR_INVARIANT(!region->segment);
    for (uint32_t c = BLOCK_CLASS_MIN; c <= BLOCK_CLASS_MAX; c++) {
        size_t size = (size_t)1 << c;

        if (!promised->by_class[c])
            continue;
        end = block_slots_end(c) < end ? block_slots_end(c) : end;
        needed += promised->by_class[c] * ((is_mixed ? 2 * size : size) + sizeof(struct set_head));
        is_mixed = true;
    }
    return !promised->all ||
           needed <= end - end / 8; /* for threads, as key_sets_room() leaves it */
}

uint32_t version_new_inline_set(struct region *region, uint32_t block_class, uint32_t number,
                                uint64_t word)
{
    uint32_t unit = region_alloc_block(region, sizeof(struct set_head), REGION_UNIT_SIZE);

    WEIR_INVARIANT(!(word & INFLATED_BIT));
    if (unit) {
        struct set_head *set = region_block(region, unit);

        set->block_class = block_class;
        set->number = number;
        shm_store_release(&set->state_word, word);
    }
    return unit;
}

/* Stores a new block in `*place` unless there is one. */
static int version_add_block(struct region *region, _Atomic uint64_t *place, uint32_t block_class)
{
    uint64_t block;

    if (shm_load_relaxed(place))
        return 0;
    block = version_new_block(region, block_class);
    if (!block)
        return -ENOMEM;
    shm_store_release(place, block);
    return 0;
}

int version_add_reserve_block(struct region *region, uint32_t set_unit)
{
    struct set_head *set = set_head_at(region, set_unit);

    WEIR_INVARIANT(!region->segment);
    return version_add_block(region, &set->reserve_block, set->block_class);
}

int version_add_own_block(struct region *region, uint32_t ctx, uint32_t block_class)
{
    return version_add_block(region, block_own_ref(true, region, ctx, block_class), block_class);
}

uint32_t version_new_thread(struct region *region)
{
    uint32_t unit = region_alloc_block(region, sizeof(struct thread_head), REGION_UNIT_SIZE);

    if (unit)
        shm_store_relaxed(&((struct thread_head *)region_block(region, unit))->generation, 1);
    return unit;
}

/* The deferred writes of a version, copied before the version is known to be current. */
struct deferred_writes {
    uint32_t thread_unit, writes_n;
    uint64_t predecessor;
    struct deferred_write writes[DEFERRED_WRITES_MAX];
};

static void version_copy_deferred(const struct version_block *block, struct deferred_writes *ret)
{
    uint64_t meta = shm_load_relaxed(&block->meta);

    ret->thread_unit = (uint32_t)(meta >> 32);
    ret->writes_n = (uint32_t)(meta & 0xff);
    if (ret->writes_n > DEFERRED_WRITES_MAX)
        ret->writes_n = DEFERRED_WRITES_MAX; /* only in a segment with invalid words */
    ret->predecessor = shm_load_relaxed(&block->predecessor);
    for (uint32_t i = 0; i < ret->writes_n; i++) {
        ret->writes[i] = (struct deferred_write){
            .target = (uint32_t)(shm_load_relaxed(&block->targets[i / 2]) >> 32 * (i % 2)),
            .expected = shm_load_relaxed(&block->writes[i][0]),
            .desired = shm_load_relaxed(&block->writes[i][1])};
    }
}

/*
 * Completes the deferred writes of the version that `word` refers to, unless it has been
 * superseded: then they are complete. Any number of helpers may do so, at any delay between any
 * two lines. The loads are relaxed: an acquire fence and a second load of the state word follow
 * them.
 */
void version_help_word(const struct region *region, struct set_head *set, uint64_t word)
{
    struct version_block *block = version_block_of(region, set, word);
    uint64_t version = state_word_version(word);
    _Atomic uint64_t *own_ref;
    struct deferred_writes deferred;

    WEIR_INVARIANT(word & INFLATED_BIT);
    if (shm_load_acquire(&block->completed) == version)
        return;
    version_copy_deferred(block, &deferred);
    if (!(deferred.predecessor & INFLATED_BIT))
        deferred.predecessor = shm_load_relaxed(&set->reserve_block);
    atomic_thread_fence(memory_order_acquire);
    if (shm_load_relaxed(&set->state_word) != word)
        return;
    for (uint32_t i = 0; i < deferred.writes_n; i++)
        version_apply_write(true, region, deferred.writes[i]);
    own_ref = block_own_ref(true, region, deferred.thread_unit, block_class_of(true, region, set));
    shm_cas_acq_rel(own_ref, block_ref_make(state_word_slot(word), version - 1),
                    block_ref_of_word(deferred.predecessor));
    shm_store_release(&block->completed, version);
}

void version_help(const struct region *region, uint32_t set_unit)
{
    struct set_head *set = set_head_at(region, set_unit);
    uint64_t word;

    do {
        word = shm_load_acquire(&set->state_word);
        if (word & INFLATED_BIT)
            version_help_word(region, set, word);
    } while (shm_load_acquire(&set->state_word) != word);
}

uint64_t version_peek_content(const struct region *region, uint32_t set_unit, uint32_t i)
{
    struct set_head *set = set_head_at(region, set_unit);
    uint64_t word = shm_load_acquire(&set->state_word);

    return word & INFLATED_BIT ? shm_load_relaxed(&version_block_of(region, set, word)->content[i])
                               : 0;
}

void version_from_inline(struct version *version, uint64_t word)
{
    WEIR_INVARIANT(!(word & INFLATED_BIT));
    WEIR_INVARIANT(version->content_capacity >
                   INLINE_STATE_AT + (version->inline_format == INLINE_DCAS));
    memset(version->content, 0, INLINE_STATE_AT * sizeof(uint64_t));
    version->content[INLINE_STATE_AT] = inline_state_decode(version->inline_format, word);
    version->content_n = INLINE_STATE_AT + 1;
    if (version->inline_format == INLINE_DCAS)
        version->content[version->content_n++] = word & DCAS_BITS;
    version->is_mismatch = version->inline_format == INLINE_NONE;
    version->needs_notify = false;
    version->state_word = word;
    version->uncopied_n = version->writes_n = 0;
}

/* Reads again until the version is complete or inline; helps after HELP_AFTER back-offs. */
WEIR_NOINLINE void version_read_retry(const struct region *region, struct set_head *set,
                                      struct version *version, enum read_result result)
{
    for (unsigned turn = 0; result != READ_COMPLETE;) {
        if (result == READ_INLINE) {
            version_from_inline(version, version->state_word);
            return;
        }
        if (result == READ_INCOMPLETE && turn >= HELP_AFTER) {
            version_help_word(region, set, version->state_word);
            return;
        }
        spin_backoff(&turn);
        result = version_read_once(true, region, set, version);
    }
}

void version_read(const struct region *region, uint32_t set_unit, struct version *version)
{
    struct set_head *set = set_head_at(region, set_unit);
    enum read_result result;

    version->writes_n = 0;
    result = region->segment ? version_read_once(true, region, set, version)
                             : version_read_once(false, region, set, version);
    if (result != READ_COMPLETE)
        version_read_retry(region, set, version, result);
}

bool version_is_current(const struct region *region, uint32_t set_unit,
                        const struct version *version)
{
    atomic_thread_fence(memory_order_acquire);
    return shm_load_relaxed(&set_head_at(region, set_unit)->state_word) == version->state_word;
}

uint32_t version_deferred_writes(const struct region *region, uint32_t set_unit,
                                 const struct version *version, struct deferred_write *ret)
{
    struct set_head *set = set_head_at(region, set_unit);
    struct deferred_writes deferred;

    if (!version_is_inflated(version))
        return 0;
    version_copy_deferred(version_block_of(region, set, version->state_word), &deferred);
    memcpy(ret, deferred.writes, deferred.writes_n * sizeof(*ret));
    return version_is_current(region, set_unit, version) ? deferred.writes_n : 0;
}

/* If the block holds a later version by now, that one counts as not yet notified, and is notified
 * again. */
void version_set_notified(const struct region *region, uint32_t set_unit,
                          const struct version *version)
{
    struct set_head *set = set_head_at(region, set_unit);
    struct version_block *block = version_block_of(region, set, version->state_word);

    WEIR_INVARIANT(version_is_inflated(version));
    shm_store_release(&block->notified, state_word_version(version->state_word));
}

bool version_commit(const struct region *region, uint32_t ctx, uint32_t set_unit,
                    struct version *version)
{
    return region->segment ? version_commit_impl(true, region, ctx, set_unit, version)
                           : version_commit_impl(false, region, ctx, set_unit, version);
}

bool version_deflate(const struct region *region, uint32_t set_unit, const struct version *version,
                     uint64_t word)
{
    struct set_head *set = set_head_at(region, set_unit);
    uint64_t block = block_ref_of_word(version->state_word), reserve;

    WEIR_INVARIANT(version_is_inflated(version) && !(word & INFLATED_BIT));
    do {
        reserve = shm_load_acquire(&set->reserve_block);
        if (shm_load_relaxed(&set->state_word) != version->state_word)
            return false;
    } while (reserve != block && !shm_cas_acq_rel(&set->reserve_block, reserve, block));
    return version_cas_word(region, set_unit, version->state_word, word);
}
