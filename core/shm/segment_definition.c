/* SPDX-License-Identifier: MIT */
/* Writes and reads the later definitions of a shared set. */
#include "shm/segment_definition.h"

#include "base/hash.h"
#include "base/sched_point.h"
#include "os/os.h"
#include "shm/segment_file.h"
#include <errno.h>
#include <string.h>

static uint64_t definition_checksum(uint64_t hash, const struct limit_places *places,
                                    const char *text)
{
    uint64_t sum = fnv1a_bytes(FNV1A_INIT, &hash, sizeof(hash));

    sum = fnv1a_bytes(sum, places, sizeof(*places));
    return fnv1a_bytes(sum, text, strlen(text) + 1);
}

static uint64_t definition_copy_checksum(const struct definition_copy *copy)
{
    return definition_checksum(copy->hash, &copy->places, copy->text);
}

/* Reads a part of the file that is there as a whole. */
static int definition_pread(int fd, size_t at, void *ret, size_t n)
{
    int r = os_pread(fd, at, ret, n);

    return r < 0 ? r : (size_t)r < n ? -EUCLEAN : 0;
}

/* The identity was checked when the process attached, with the text. */
static int definition_read_first(int fd, struct definition_copy *ret)
{
    int r = definition_pread(fd, offsetof(struct segment_identity, definition_hash), &ret->hash,
                             sizeof(ret->hash));

    ret->number = 0;
    ret->places.n = 0;
    if (r == 0)
        r = definition_pread(fd, SEGMENT_DEFINITION_AT, ret->text, sizeof(ret->text));
    ret->text[sizeof(ret->text) - 1] = '\0';
    return r;
}

int segment_definition_read(int fd, const struct segment_layout *layout, uint64_t number,
                            struct definition_copy *ret)
{
    struct segment_definition definition;
    size_t at;
    int r;

    if (number == 0)
        return definition_read_first(fd, ret);
    if (number > layout->definitions_n)
        return -EUCLEAN;
    at = segment_definition_at(layout, (uint32_t)number);
    r = definition_pread(fd, at, &definition, sizeof(definition));
    if (r == 0)
        r = definition_pread(fd, at + SEGMENT_PAGE, ret->text, sizeof(ret->text));
    if (r < 0)
        return r;
    ret->text[sizeof(ret->text) - 1] = '\0';
    ret->number = (uint32_t)number;
    ret->hash = definition.hash;
    ret->places = definition.places;
    return definition.checksum == definition_copy_checksum(ret) ? 0 : -EUCLEAN;
}

/* The text changes only before the head has the state. So one that was read before, and is there
 * after, is that of the head. */
int segment_definition_read_opened(int fd, const struct segment_layout *layout, uint64_t number,
                                   struct definition_copy *ret)
{
    uint64_t checksum = 0, word = 0;
    size_t at;
    int r = 0;

    if (number == 0 || number > layout->definitions_n)
        return 0;
    at = segment_definition_at(layout, (uint32_t)number);
    r = definition_pread(fd, at + offsetof(struct segment_definition, checksum), &checksum,
                         sizeof(checksum));
    if (r < 0 || !checksum) /* most often: a hole */
        return r;
    r = segment_definition_read(fd, layout, number, ret);
    if (r < 0)
        return r == -EUCLEAN ? 0 : r;
    r = definition_pread(fd, at + offsetof(struct segment_definition, head.state_word), &word,
                         sizeof(word));
    if (r == 0)
        r = definition_pread(fd, at + offsetof(struct segment_definition, checksum), &checksum,
                             sizeof(checksum));
    if (r < 0)
        return r;
    return checksum == definition_copy_checksum(ret) &&
           word != segment_definition_unopened(layout, (uint32_t)number);
}

void segment_definition_seal(struct segment_definition *definition)
{
    const char *text = (const char *)definition + SEGMENT_PAGE;

    atomic_store_explicit(&definition->checksum,
                          definition_checksum(definition->hash, &definition->places, text),
                          memory_order_release);
}

/* The block is that of this definition alone. */
int segment_definition_write(const struct segment *segment, uint32_t number, const char *text,
                             uint64_t hash, const struct limit_places *places,
                             const struct limit_base *base, const uint64_t *content,
                             uint32_t content_n)
{
    const struct segment_layout *layout = &segment->layout;
    size_t length = strlen(text) + 1, at;
    struct segment_definition *definition;
    uint64_t slot;
    int r;

    WEIR_INVARIANT(length <= SEGMENT_DEFINITION_MAX); /* fingerprint_new() */
    if (number > layout->definitions_n)
        return -ENOSPC;
    at = segment_definition_at(layout, number);
    slot = segment_definition_slot(layout, number);
    WEIR_INVARIANT(segment_has_block(segment, slot));
    r = segment_fallocate(segment->fd, at, SEGMENT_PAGE + length);
    if (r == 0)
        r = segment_fallocate(segment->fd, slot << layout->sizes.block_class,
                              segment_block_size(layout));
    if (r < 0)
        return r;
    SCHED_POINT();
    definition = segment_definition(segment, number);
    set_layout_init(
        &definition->head, layout->sizes.block_class, 0,
        (struct version_block *)(void *)(segment->base + (slot << layout->sizes.block_class)), slot,
        content, content_n);
    SCHED_POINT();
    memcpy(segment->base + at + SEGMENT_PAGE, text, length);
    SCHED_POINT();
    definition->hash = hash;
    definition->places = *places;
    memcpy(definition->base, base, sizeof(definition->base));
    segment_definition_seal(definition);
    SCHED_POINT();
    return 0;
}
