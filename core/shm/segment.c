/* SPDX-License-Identifier: MIT */
/* Segments: laid out, made or attached to. */
#include "shm/segment.h"

#include "base/mutant.h"
#include "base/sched_point.h"
#include "keyed/key_table.h"
#include "os/os.h"
#include "shm/segment_file.h"
#include "state/acq_record.h"
#include <errno.h>
#include <string.h>
#include <weir/set.h>

#define COUNTERS_SIZE_MAX ((size_t)1 << 16)
#define TRIES             100 /* others may remove the segment each time that we find it */

/* A signal takes back what one call has got so far: so much is had between any two. */
#define ALLOCATE_AT_ONCE ((size_t)1 << 20)

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static bool shape_is_possible(const struct segment_shape *shape)
{
    size_t length = strnlen(shape->name, SEGMENT_NAME_SIZE);

    return length > 0 && length < SEGMENT_NAME_SIZE && shape->box_class >= BOX_CLASS_MIN &&
           shape->box_class <= BOX_CLASS_MAX && shape->limits_n <= WEIR_LIMITS_MAX &&
           shape->record_units >= record_units(shape->limits_n) &&
           shape->record_units <= RECORD_UNITS_MAX &&
           shape->counters_size % sizeof(uint64_t) == 0 && (shape->keys_max || !shape->lives_max) &&
           shape->content_n <= box_capacity(shape->box_class);
}

static uint32_t actors_for(size_t size_of_box)
{
    size_t n = SEGMENT_BOXES_SIZE_MAX / size_of_box - 1; /* one is the set's */

    if (n > SEGMENT_ACTORS_MAX)
        n = SEGMENT_ACTORS_MAX;
    return n < SEGMENT_ACTORS_MIN ? SEGMENT_ACTORS_MIN : (uint32_t)n;
}

/*
 * Whether all boxes have slots. Then what they take is below 2^50 bytes, a table of keys takes less
 * than 2^38, and no sum of such can be too large for its type.
 */
static bool slots_suffice(const struct segment_layout *layout, uint64_t boxes_n)
{
    return (layout->boxes_at >> layout->box_class) + boxes_n - 1 <= WORD_SLOT_MASK || MUTANT(592);
}

/* What a keyed set has behind the records: 0 or -E2BIG. */
static int add_keyed(struct segment_layout *layout, const struct segment_shape *shape)
{
    size_t lives = (size_t)shape->lives_max * sizeof(struct segment_live);

    if (shape->keys_max > KEY_TABLE_KEYS_MAX)
        return -E2BIG;
    layout->keys_max = shape->keys_max;
    layout->lives_max = shape->lives_max;
    layout->keyed_at = layout->size;
    layout->lives_at = layout->keyed_at + SEGMENT_PAGE;
    layout->keys_at = round_up(layout->lives_at + lives, SEGMENT_PAGE);
    layout->size = layout->keys_at + round_up(key_table_size(shape->keys_max), SEGMENT_PAGE);
    if (layout->keys_at / UNIT_SIZE > UINT32_MAX && !MUTANT(593))
        return -E2BIG; /* live sets are found by their units */
    return 0;
}

int segment_layout_compute(const struct segment_shape *shape, struct segment_layout *ret)
{
    struct segment_layout layout = {.box_class = shape->box_class,
                                    .record_units = shape->record_units,
                                    .limits_n = shape->limits_n,
                                    .runs_n = SEGMENT_RUNS_MAX};
    uint64_t boxes_n;
    size_t box;

    if (!shape_is_possible(shape))
        return -EINVAL;
    if (shape->counters_size > COUNTERS_SIZE_MAX)
        return -E2BIG;
    box = segment_box_size(&layout);
    layout.counters_size = (uint32_t)shape->counters_size;
    layout.actors_n = actors_for(box);
    layout.actor_stride = round_up(sizeof(struct segment_actor) + shape->counters_size, UNIT_SIZE);
    layout.boxes_at = round_up(SEGMENT_ACTORS_AT + layout.actors_n * layout.actor_stride,
                               box > SEGMENT_PAGE ? box : SEGMENT_PAGE);
    boxes_n = UINT64_C(1) + layout.actors_n + shape->lives_max;
    if (!slots_suffice(&layout, boxes_n))
        return -E2BIG;
    layout.boxes_n = (uint32_t)boxes_n;
    layout.records_at = round_up(layout.boxes_at + boxes_n * box, SEGMENT_PAGE);
    layout.size = layout.records_at + layout.runs_n * SEGMENT_RUN_SIZE;
    if (shape->keys_max && add_keyed(&layout, shape) < 0)
        return -E2BIG;
    *ret = layout;
    return 0;
}

int segment_map(struct segment_site *site, struct segment_file *file,
                const struct segment_layout *layout, bool writable, struct segment **ret)
{
    struct segment *segment = sys_alloc(1, sizeof(*segment));
    void *base = NULL;
    int r;

    if (!segment)
        return error_set(site->reterr, -ENOMEM, "out of memory");
    r = sys_map(file->fd, layout->size, writable, &base);
    if (r < 0) {
        sys_free(segment);
        return site_error(site, r, "cannot be mapped: %s", strerrordesc_np(-r));
    }
    *segment = (struct segment){.base = base,
                                .layout = *layout,
                                .fd = file->fd,
                                .directory_fd = site->directory_fd,
                                .while_used = file->header.identity.while_used,
                                .secret = file->header.identity.secret};
    memcpy(segment->encoded, site->encoded, sizeof segment->encoded);
    file->fd = site->directory_fd = -1;
    *ret = segment;
    return 0;
}

void segment_close(struct segment *segment)
{
    if (!segment)
        return;
    sys_unmap(segment->base, segment->layout.size);
    sys_close(segment->fd);
    sys_close(segment->directory_fd);
    sys_free(segment);
}

void segment_abandon(const struct segment *segment)
{
    sys_close(segment->fd);
    sys_close(segment->directory_fd);
}

/* ---- making one ---- */

static int allocate_all(int fd, size_t at, size_t size)
{
    int r = 0;

    for (size_t n; size > 0 && r == 0; at += n, size -= n) {
        n = size;
        if (n > ALLOCATE_AT_ONCE && !MUTANT(594))
            n = ALLOCATE_AT_ONCE;
        r = sys_allocate(fd, at, n);
    }
    return r;
}

/* All that a keyed set has but its live sets. */
static int give_keys(int fd, const struct segment_layout *layout)
{
    int r;

    if (!layout->keys_max)
        return 0;
    r = sys_allocate(fd, layout->keyed_at, SEGMENT_PAGE);
    if (r == 0 && !MUTANT(595))
        r = allocate_all(fd, layout->keys_at, layout->size - layout->keys_at);
    return r;
}

/* The file as far as its first user needs it: the identity, the definition, the set's box, the table
 * of keys. */
static int give_size(const struct segment_site *site, int fd, const struct segment_shape *shape,
                     const struct segment_layout *layout)
{
    size_t definition = strnlen(shape->definition, SEGMENT_DEFINITION_MAX - 1) + 1;
    int r = sys_resize(fd, layout->size);

    if (r == 0)
        r = sys_allocate(fd, 0, SEGMENT_DEFINITION_AT + definition);
    if (r == 0)
        r = sys_allocate(fd, layout->boxes_at, segment_box_size(layout));
    if (r == 0)
        r = give_keys(fd, layout);
    if (r < 0)
        return site_error(site, r, "cannot be made: %s", strerrordesc_np(-r));
    return 0;
}

static void fill(struct segment *segment, const struct segment_shape *shape,
                 const struct segment_here *here)
{
    struct segment_header *header = segment_header(segment);

    memcpy(segment->base + SEGMENT_DEFINITION_AT, shape->definition,
           strnlen(shape->definition, SEGMENT_DEFINITION_MAX - 1));
    segment->while_used = shape->while_used;
    publication_begin(&header->head, shape->box_class, 0,
                      (struct box *)(void *)(segment->base + segment->layout.boxes_at),
                      segment_box_slot(segment, 0), shape->content, shape->content_n);
    segment_identify(header, shape, &segment->layout, here);
    segment->secret = header->identity.secret;
}

/* -EAGAIN: somebody else was faster. */
static int make_in(struct segment_site *site, const struct segment_shape *shape,
                   const struct segment_layout *layout, const struct segment_here *here,
                   struct segment_file *file, struct segment **ret)
{
    struct segment *segment = NULL;
    int directory_fd = site->directory_fd;
    int r = give_size(site, file->fd, shape, layout);

    if (r == 0)
        r = segment_map(site, file, layout, true, &segment);
    if (r < 0)
        return r;
    STEP();
    fill(segment, shape, here);
    STEP();
    r = sys_give_name(segment->fd, directory_fd, site->file);
    STEP();
    if (r == 0) {
        *ret = segment;
        return 0;
    }
    segment->directory_fd = -1; /* it stays the caller's, who may try again */
    site->directory_fd = directory_fd;
    segment_close(segment);
    return r == -EEXIST ? -EAGAIN
                        : site_error(site, r, "cannot get its name: %s", strerrordesc_np(-r));
}

static int make(struct segment_site *site, const struct segment_shape *shape,
                const struct segment_layout *layout, const struct segment_here *here,
                struct segment_file *file, struct segment **ret)
{
    int r;

    STEP();
    file->fd = sys_open_nameless(site->directory_fd);
    if (file->fd < 0)
        return site_error(site, file->fd, "cannot be made: %s", strerrordesc_np(-file->fd));
    r = make_in(site, shape, layout, here, file, ret);
    segment_file_close(file);
    return r;
}

/* ---- attaching to one ---- */

/* The box that the set's word names, or else the spare one, is there and holds that version. Read,
 * not mapped: it may be a hole. */
static int head_is_sound(const struct segment *segment)
{
    const struct set_head *head = &segment_header(segment)->head;
    const _Atomic uint64_t *word = &head->word;
    unsigned turn = 0;

    for (int i = 0; i < TRIES; i++, publication_back_off(&turn)) {
        uint64_t now = atomic_load(word);
        uint64_t box = now & WORD_BOXED ? now : atomic_load(&head->spare);
        uint64_t slot = box & WORD_SLOT_MASK, found = 0;
        uint64_t version = (box & ~WORD_BOXED) >> WORD_SLOT_BITS;
        int r;

        if (!segment_has_slot(segment, slot))
            return -EUCLEAN;
        r = sys_read_at(segment->fd, slot << segment->layout.box_class, &found, sizeof found);
        if (r < 0)
            return r;
        if (atomic_load(word) == now)
            return found == version ? 0 : -EUCLEAN;
    }
    return 0; /* it moves: somebody lives well with it */
}

/* What is said of live sets is of some that there can be. Read, not mapped, as above. */
static int keyed_is_sound(const struct segment *segment)
{
    const uint32_t max = segment->layout.lives_max;
    struct segment_keyed keyed;
    int r;

    if (!segment->layout.keys_max)
        return 0;
    r = sys_read_at(segment->fd, segment->layout.keyed_at, &keyed, sizeof keyed);
    if (r < 0)
        return r;
    if ((size_t)r < sizeof keyed || atomic_load(&keyed.lives_high) > max ||
        ((uint32_t)atomic_load(&keyed.idle) > max && !MUTANT(596)))
        return -EUCLEAN;
    return 0;
}

static int is_sound(const struct segment_site *site, const struct segment *segment)
{
    const struct set_head *head = &segment_header(segment)->head;
    bool same = head->box_class == segment->layout.box_class && head->number == 0;
    int r = same ? head_is_sound(segment) : -EUCLEAN;

    if (r == 0)
        r = keyed_is_sound(segment);
    if (r < 0)
        return site_error(site, r,
                          "is damaged: its state cannot be found (%s); remove it with "
                          "`weir rm`",
                          strerrordesc_np(-r));
    return 0;
}

/* One of another definition that is there for its users only, all of whom have died, who would have
 * removed it: -EAGAIN, it is gone. Else -EEXIST, which was told, or an error. */
static int replace(struct segment_site *site, const struct segment_shape *shape,
                   struct segment_file *file)
{
    struct segment_layout layout;
    int r;

    if ((!file->header.identity.while_used && !MUTANT(632)) || !shape->used ||
        (shape->must_exist && !MUTANT(634)))
        return -EEXIST;
    r = segment_file_layout(site, file, &layout);
    if (r == 0)
        r = segment_file_retire(site, file, &layout, MUTANT(633), shape->used, shape->userdata);
    return r == 0 ? -EEXIST : r < 0 ? r : -EAGAIN;
}

static int attach_to(struct segment_site *site, const struct segment_shape *shape,
                     const struct segment_layout *layout, const struct segment_here *here,
                     struct segment_file *file, struct segment **ret)
{
    struct segment *segment = NULL;
    int r = segment_file_usable(site, file, here);

    if (r == -ESTALE || (r == 0 && (atomic_load(&file->header.removed) & 1))) {
        r = segment_file_take_name(site->directory_fd, site->encoded, file->fd);
        return r == 0 ? -EAGAIN
                      : site_error(site, r, "is out of use, but cannot be removed: %s",
                                   strerrordesc_np(-r));
    }
    if (r == 0)
        r = segment_file_matches(site, file, shape, layout);
    if (r == -EEXIST)
        r = replace(site, shape, file);
    if (r == 0)
        r = segment_map(site, file, layout, true, &segment);
    if (r < 0)
        return r;
    r = is_sound(site, segment);
    if (r < 0)
        segment_close(segment);
    else
        *ret = segment;
    return r;
}

static int attach_or_make(struct segment_site *site, const struct segment_shape *shape,
                          const struct segment_layout *layout, const struct segment_here *here,
                          struct segment_file *file, struct segment **ret)
{
    int r = segment_file_open(site, true, file);

    if (r == 0)
        r = attach_to(site, shape, layout, here, file, ret);
    segment_file_close(file);
    return r == -ENOENT && !shape->must_exist ? make(site, shape, layout, here, file, ret) : r;
}

static int open_in(struct segment_site *site, const struct segment_shape *shape,
                   const struct segment_layout *layout, struct segment **ret)
{
    struct segment_file *file = sys_alloc(1, sizeof(*file));
    struct segment_here here;
    int r = -EAGAIN;

    if (!file)
        return error_set(site->reterr, -ENOMEM, "out of memory");
    if (segment_here(&here, site->reterr) < 0) {
        sys_free(file);
        return site->reterr->code;
    }
    for (int i = 0; i < TRIES && r == -EAGAIN; i++)
        r = attach_or_make(site, shape, layout, &here, file, ret);
    sys_free(file);
    if (r == -EAGAIN)
        return site_error(site, -EBUSY, "%s", "is removed again and again");
    return r;
}

int segment_open(const char *directory, const struct segment_shape *shape, struct segment **ret,
                 struct weir_error *reterr)
{
    struct segment_site site;
    struct segment_layout layout;
    struct weir_error error;
    int r = segment_layout_compute(shape, &layout);

    if (r < 0)
        return error_set(reterr, r, "the set `%s` cannot be shared by processes: %s",
                         show(shape->name).text,
                         r == -E2BIG && shape->keys_max
                             ? "it would be too large; lower `max_keys`, or bound `memory`"
                             : strerrordesc_np(-r));
    r = site_open(directory, shape->name, true, &site, &error);
    if (r == 0)
        r = open_in(&site, shape, &layout, ret);
    site_close(&site);
    if (r < 0 && reterr)
        *reterr = error;
    return r;
}
