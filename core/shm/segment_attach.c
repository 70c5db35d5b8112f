/* SPDX-License-Identifier: MIT */
/* Computing the layout of segments, making them and attaching to them. */
#include "base/backoff.h"
#include "base/invariant.h"
#include "shm/segment.h"

#include "base/sched_point.h"
#include "limit/counters.h"
#include "os/os.h"
#include "shm/acq_record.h"
#include "shm/key_table.h"
#include "shm/segment_definition.h"
#include "shm/segment_file.h"
#include <errno.h>
#include <string.h>
#include <weir/set.h>

#define COUNTERS_SIZE_MAX ((size_t)1 << 16)
#define TRIES             100 /* another process may remove the segment each time */

static size_t segment_round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static bool segment_shape_is_valid(const struct segment_shape *shape)
{
    const struct segment_sizes *sizes = &shape->sizes;
    size_t length = strnlen(shape->name, SEGMENT_NAME_SIZE);

    if (length == 0 || length >= SEGMENT_NAME_SIZE)
        return false;
    if (sizes->block_class < BLOCK_CLASS_MIN || sizes->block_class > BLOCK_CLASS_MAX)
        return false;
    if (sizes->limits_n > WEIR_LIMITS_MAX || sizes->record_units < record_units(sizes->limits_n) ||
        sizes->record_units > RECORD_UNITS_MAX)
        return false;
    if (sizes->counters_size % sizeof(uint64_t) != 0 || (sizes->key_sets_max && !sizes->keys_max))
        return false;
    return shape->initial_state_n <= block_capacity(sizes->block_class);
}

static uint32_t segment_threads_for(size_t block_size)
{
    size_t n = SEGMENT_BLOCKS_SIZE_MAX / block_size - 1; /* one block is the set's */

    if (n > SEGMENT_THREADS_MAX)
        n = SEGMENT_THREADS_MAX;
    return n < SEGMENT_THREADS_MIN ? SEGMENT_THREADS_MIN : (uint32_t)n;
}

_Static_assert(SEGMENT_DEFINITIONS_KEYED < KEY_TAGS / 2,
               "the order of tags is that of definitions");

/* Each later definition has a block for ever. */
static uint32_t segment_definitions_for(const struct segment_sizes *sizes, size_t block_size)
{
    size_t n = SEGMENT_DEFINITION_BLOCKS / block_size;
    size_t most = sizes->keys_max ? SEGMENT_DEFINITIONS_KEYED : SEGMENT_DEFINITIONS_MAX;

    if (n > most)
        n = most;
    return n < SEGMENT_DEFINITIONS_MIN ? SEGMENT_DEFINITIONS_MIN : (uint32_t)n;
}

/*
 * Returns whether slot numbers suffice for all version blocks. If so, these take less than 2^50
 * bytes and a key table less than 2^38, so no sum of sizes overflows.
 */
static bool segment_blocks_have_slots(const struct segment_layout *layout)
{
    return (layout->blocks_at >> layout->sizes.block_class) + layout->blocks_n - 1 <=
           BLOCK_SLOT_MASK;
}

/* Adds the parts of a keyed set, behind the records. Returns 0 or -E2BIG. */
static int segment_layout_add_keyed(struct segment_layout *layout)
{
    const struct segment_sizes *sizes = &layout->sizes;
    size_t key_sets_size = sizes->key_sets_max * sizeof(struct segment_key_set);

    if (sizes->keys_max > KEY_TABLE_KEYS_MAX)
        return -E2BIG;
    layout->keyed_at = layout->size;
    layout->key_sets_at = layout->keyed_at + SEGMENT_PAGE;
    layout->keys_at = segment_round_up(layout->key_sets_at + key_sets_size, SEGMENT_PAGE);
    layout->size =
        layout->keys_at + segment_round_up(key_table_size(sizes->keys_max), SEGMENT_PAGE);
    if (layout->keys_at / REGION_UNIT_SIZE > UINT32_MAX)
        return -E2BIG; /* key sets are found by their units */
    return 0;
}

int segment_layout_compute(const struct segment_shape *shape, struct segment_layout *ret)
{
    struct segment_layout layout = {.sizes = shape->sizes};
    struct segment_sizes *sizes = &layout.sizes;
    size_t block;

    if (!segment_shape_is_valid(shape))
        return -EINVAL;
    if (sizes->counters_size > COUNTERS_SIZE_MAX || sizes->key_sets_max > UINT32_MAX)
        return -E2BIG;
    block = segment_block_size(&layout);
    sizes->threads_n = segment_threads_for(block);
    sizes->runs_n = SEGMENT_RUNS_MAX;
    layout.thread_stride =
        segment_round_up(sizeof(struct segment_thread) + sizes->counters_size, REGION_UNIT_SIZE);
    layout.definitions_n = segment_definitions_for(sizes, block);
    layout.definitions_at = segment_round_up(
        SEGMENT_THREADS_AT + sizes->threads_n * layout.thread_stride, SEGMENT_PAGE);
    layout.blocks_at =
        segment_round_up(layout.definitions_at + layout.definitions_n * SEGMENT_DEFINITION_STRIDE,
                         block > SEGMENT_PAGE ? block : SEGMENT_PAGE);
    layout.blocks_n = UINT64_C(1) + sizes->threads_n + sizes->key_sets_max + layout.definitions_n;
    if (!segment_blocks_have_slots(&layout))
        return -E2BIG;
    layout.records_at = segment_round_up(layout.blocks_at + layout.blocks_n * block, SEGMENT_PAGE);
    layout.size = layout.records_at + sizes->runs_n * SEGMENT_RUN_SIZE;
    WEIR_INVARIANT(layout.blocks_at / REGION_UNIT_SIZE <= UINT32_MAX); /* units of thread heads */
    WEIR_INVARIANT(layout.blocks_at % block == 0 && layout.blocks_at % SEGMENT_PAGE == 0);
    WEIR_INVARIANT(layout.records_at % SEGMENT_PAGE == 0 && layout.size % SEGMENT_PAGE == 0);
    if (sizes->keys_max && segment_layout_add_keyed(&layout) < 0)
        return -E2BIG;
    *ret = layout;
    return 0;
}

/* ---- making ---- */

/* Sizes the file and allocates what the first user needs: the header, the definition, the set's
 * version block; of a keyed set all parts but the key sets. */
static int segment_size_file(const struct segment_file *file, const struct segment_layout *layout)
{
    int fd = file->segment->fd, r = os_ftruncate(fd, layout->size);

    if (r == 0)
        r = segment_fallocate(fd, 0, SEGMENT_DEFINITION_AT + strlen(file->definition) + 1);
    if (r == 0)
        r = segment_fallocate(fd, layout->blocks_at, segment_block_size(layout));
    if (r == 0 && layout->sizes.keys_max)
        r = segment_fallocate(fd, layout->keyed_at, SEGMENT_PAGE);
    if (r == 0 && layout->sizes.keys_max)
        r = segment_fallocate(fd, layout->keys_at, layout->size - layout->keys_at);
    return r;
}

static void segment_init(const struct segment_file *file, const struct segment_shape *shape)
{
    const struct segment *segment = file->segment;
    struct segment_header *header = segment_header(segment);

    memcpy(segment->base + SEGMENT_DEFINITION_AT, file->definition, strlen(file->definition));
    set_layout_init(&header->head, shape->sizes.block_class, 0,
                    (struct version_block *)(void *)(segment->base + segment->layout.blocks_at),
                    segment_block_slot(segment, 0), shape->initial_state, shape->initial_state_n);
    header->identity = file->header.identity;
}

/* Makes the segment in an unnamed file and links it. -EAGAIN: another process was faster. */
static int segment_create(struct segment_file *file, const struct segment_shape *shape,
                          const struct segment_layout *layout)
{
    struct segment *segment = file->segment;
    int r;

    SCHED_POINT();
    r = segment->fd = os_open_tmpfile(segment->directory_fd);
    if (r >= 0)
        r = segment_file_describe(file, shape, layout);
    if (r == 0)
        r = segment_size_file(file, layout);
    if (r < 0)
        return segment_error(file, r, "cannot be created: %s", strerrordesc_np(-r));
    r = segment_file_map(file, layout);
    if (r < 0)
        return r;
    segment_init(file, shape);
    r = segment_file_check_whole(file);
    if (r < 0)
        return r;
    SCHED_POINT();
    r = os_link_at(segment->fd, segment->directory_fd, segment->file_name);
    SCHED_POINT();
    if (r == 0 || r == -EEXIST)
        return r == 0 ? 0 : -EAGAIN;
    return segment_error(file, r, "cannot be linked to its name: %s", strerrordesc_np(-r));
}

/* ---- attaching ---- */

/* Checks that the version block that the state word names, or else the reserve block, exists and
 * has that version. Uses pread: the block may be a hole, and a load would allocate its page. */
static int segment_check_head(const struct segment *segment)
{
    const struct set_head *head = segment_definition_head(segment, segment->definition);
    const _Atomic uint64_t *word = &head->state_word;
    unsigned turn = 0;

    for (int i = 0; i < TRIES; i++, spin_backoff(&turn)) {
        uint64_t now = atomic_load_explicit(word, memory_order_seq_cst);
        uint64_t block = now & INFLATED_BIT
                             ? now
                             : atomic_load_explicit(&head->reserve_block, memory_order_seq_cst);
        uint64_t slot = block & BLOCK_SLOT_MASK, found = 0;
        uint64_t version = (block & ~INFLATED_BIT) >> BLOCK_SLOT_BITS;
        int r;

        if (!segment_has_block(segment, slot))
            return -EUCLEAN;
        r = os_pread(segment->fd, slot << segment->layout.sizes.block_class, &found, sizeof(found));
        if (r < 0 || (size_t)r < sizeof(found))
            return r < 0 ? r : -EUCLEAN;
        if (atomic_load_explicit(word, memory_order_seq_cst) == now)
            return found == version ? 0 : -EUCLEAN;
    }
    return 0; /* the word keeps changing, so another process uses it successfully */
}

/* Checks the numbers of key sets against their maximum. Uses pread: the page may be a hole. */
static int segment_check_keyed(const struct segment *segment)
{
    const uint64_t max = segment->layout.sizes.key_sets_max;
    struct segment_keyed keyed;
    int r;

    if (!segment->layout.sizes.keys_max)
        return 0;
    r = os_pread(segment->fd, segment->layout.keyed_at, &keyed, sizeof(keyed));
    if (r < 0)
        return r;
    if ((size_t)r < sizeof(keyed) ||
        atomic_load_explicit(&keyed.key_sets_high, memory_order_seq_cst) > max ||
        (uint32_t)atomic_load_explicit(&keyed.unbound_list, memory_order_seq_cst) > max ||
        atomic_load_explicit(&keyed.oldest, memory_order_seq_cst) > segment->layout.definitions_n)
        return -EUCLEAN;
    return 0;
}

static int segment_check_state(struct segment_file *file)
{
    const struct segment *segment = file->segment;
    const struct set_head *head = segment_definition_head(segment, segment->definition);
    bool same = head->block_class == segment->layout.sizes.block_class && head->number == 0;
    int r = same ? segment_check_head(segment) : -EUCLEAN;

    if (r == 0)
        r = segment_check_keyed(segment);
    if (r < 0)
        return segment_error(file, r,
                             "is damaged: its state cannot be found (%s); remove it with "
                             "`weir rm`",
                             strerrordesc_np(-r));
    return 0;
}

/* Removes a segment of another definition if its lifetime is `users` and all users have died: the
 * last of them would have removed it. Returns -EAGAIN (removed); -EEXIST, of which the reason is
 * known already; or another error. */
static int segment_replace_unused(struct segment_file *file, const struct segment_shape *shape)
{
    struct segment_layout layout;
    int r;

    if (!file->header.identity.while_used || !shape->in_use || shape->must_exist)
        return -EEXIST;
    r = segment_file_read_layout(file, &layout);
    if (r == 0)
        r = segment_file_try_remove(file, &layout, false, shape->in_use);
    return r == 0 ? -EEXIST : r < 0 ? r : -EAGAIN;
}

/* Computes the layout of a usable segment for a process with this shape. An earlier definition may
 * have needed larger blocks, and the first one says for how many limits and subjects there is room.
 */
static int segment_layout_there(const struct segment_file *file, const struct segment_shape *shape,
                                struct segment_layout *ret)
{
    const struct segment_sizes *sizes = &file->header.identity.sizes;
    struct segment_shape there = *shape;

    if (sizes->block_class > shape->sizes.block_class)
        there.sizes.block_class = sizes->block_class;
    if (sizes->limits_n && sizes->limits_n <= WEIR_LIMITS_MAX) {
        there.sizes.limits_n = sizes->limits_n;
        there.sizes.record_units = record_units(sizes->limits_n + shape->record_words);
        there.sizes.counters_size +=
            (sizes->limits_n - shape->sizes.limits_n) * (uint32_t)sizeof(struct limit_counters);
    }
    if (shape->sizes.keys_max && sizes->keys_max) {
        there.sizes.keys_max = sizes->keys_max;
        there.sizes.key_sets_max = sizes->key_sets_max;
    }
    return segment_layout_compute(&there, ret) < 0 ? segment_layout_compute(shape, ret) : 0;
}

static int segment_attach(struct segment_file *file, const struct segment_shape *shape)
{
    struct segment_layout layout;
    int r = segment_file_check_usable(file);

    if (r == -ESTALE || (r == 0 && segment_file_is_removed(file))) {
        r = segment_file_unlink(file->segment);
        return r == 0 ? -EAGAIN
                      : segment_error(file, r, "is obsolete, but cannot be removed: %s",
                                      strerrordesc_np(-r));
    }
    if (r == 0)
        r = segment_layout_there(file, shape, &layout);
    if (r == 0)
        r = segment_file_check_match(file, shape, &layout);
    if (r == -EEXIST)
        r = segment_replace_unused(file, shape);
    if (r == 0)
        r = segment_file_map(file, &layout);
    if (r == 0)
        r = segment_check_state(file);
    return r == 0 ? segment_file_check_whole(file) : r;
}

static int segment_attach_or_create(struct segment_file *file, const struct segment_shape *shape,
                                    const struct segment_layout *layout)
{
    int r = segment_file_open(file, true);

    if (r == 0)
        r = segment_attach(file, shape);
    if (r == -ENOENT && !shape->must_exist) {
        segment_file_close(file->segment);
        r = segment_create(file, shape, layout);
    }
    if (r < 0)
        segment_file_close(file->segment);
    return r;
}

int segment_open(const char *directory, const struct segment_shape *shape, struct segment **ret,
                 struct weir_error *reterr)
{
    struct segment_layout layout;
    struct segment_file *file;
    int r = segment_layout_compute(shape, &layout);

    if (r < 0)
        return error_set(reterr, r, "the set `%s` cannot be shared by processes: %s",
                         error_text(shape->name).text,
                         r == -E2BIG && shape->sizes.keys_max
                             ? "it would be too large; lower `max` of `subjects`, or bound `memory`"
                             : strerrordesc_np(-r));
    r = segment_file_locate(directory, shape->name, true, &file, reterr);
    if (r < 0)
        return r;
    file->segment->leaves_sigbus = shape->leaves_sigbus;
    if (shape->broken)
        file->segment->broken = shape->broken;
    r = -EAGAIN;
    for (int i = 0; i < TRIES && r == -EAGAIN; i++)
        r = segment_attach_or_create(file, shape, &layout);
    if (r == -EAGAIN)
        r = segment_error(file, -EBUSY, "%s", "is removed repeatedly");
    return segment_file_finish(file, r, ret, reterr);
}
