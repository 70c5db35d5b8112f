/* SPDX-License-Identifier: MIT */
/* Identity of a segment: written when it is made, compared by every process that attaches, and
 * read by observers. */
#include "base/atomic128.h"
#include "base/hash.h"
#include "limit/counters.h"
#include "os/os.h"
#include "shm/acq_record.h"
#include "shm/definition_diff.h"
#include "shm/key_table.h"
#include "shm/segment_definition.h"
#include "shm/segment_file.h"
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <weir/plugin.h>
#include <weir/set.h>

static const char segment_magic[8] = "weir seg"; /* no NUL */

/* The shared layout. Builds that differ in any of these values must not share a segment. */
static const uint64_t segment_abi_sizes[] = {
    WEIR_PLUGIN_ABI_MAJOR,
    sizeof(struct segment_header),
    offsetof(struct segment_header, removal),
    offsetof(struct segment_header, registrations),
    offsetof(struct segment_header, peers_high),
    offsetof(struct segment_header, probed_ns),
    offsetof(struct segment_header, full_ns),
    offsetof(struct segment_header, head),
    offsetof(struct segment_header, announce_slots),
    sizeof(struct segment_definition),
    offsetof(struct segment_definition, dcas_bits),
    offsetof(struct segment_definition, places),
    sizeof(struct limit_places),
    offsetof(struct limit_places, of_limit),
    WEIR_LIMITS_MAX,
    offsetof(struct announce_slots, slots),
    DCAS_SLOTS,
    sizeof(struct peer_slot),
    offsetof(struct peer_slot, predecessor),
    offsetof(struct peer_slot, doorbells_changed),
    offsetof(struct peer_slot, doorbells),
    sizeof(struct segment_thread),
    offsetof(struct segment_thread, peer_key),
    offsetof(struct segment_keyed, unbound_ns),
    offsetof(struct segment_keyed, unbound_list),
    offsetof(struct segment_keyed, forgotten),
    offsetof(struct segment_keyed, evicted),
    offsetof(struct segment_keyed, refused),
    offsetof(struct segment_keyed, oldest),
    offsetof(struct segment_keyed, removed_ns),
    sizeof(struct segment_key_set),
    offsetof(struct segment_key_set, unbound.next),
    offsetof(struct segment_key_set, unbound.is_listed),
    sizeof(struct siphash_secret),
    sizeof(struct atomic128),
    offsetof(struct atomic128, high),
    sizeof(struct set_head),
    offsetof(struct set_head, reserve_block),
    offsetof(struct set_head, next_turn),
    sizeof(struct thread_head),
    offsetof(struct thread_head, active_set),
    offsetof(struct thread_head, generation),
    offsetof(struct thread_head, turn_has_come),
    sizeof(struct version_block),
    offsetof(struct version_block, completed),
    offsetof(struct version_block, predecessor),
    offsetof(struct version_block, meta),
    offsetof(struct version_block, targets),
    offsetof(struct version_block, writes),
    sizeof(struct acq_record),
    offsetof(struct acq_record, next),
    offsetof(struct acq_record, prev),
    offsetof(struct acq_record, granted_ns),
    offsetof(struct acq_record, enqueued_ns),
    offsetof(struct acq_record, owner),
    offsetof(struct acq_record, set),
    offsetof(struct acq_record, wait_target),
    offsetof(struct acq_record, bucket_prev_flags),
    offsetof(struct acq_record, amounts),
    offsetof(struct counters, taken),
    offsetof(struct counters, wait_histogram),
    DEFERRED_WRITES_MAX,
    RECORD_LINK_BITS,
    BLOCK_SLOT_BITS,
    BLOCK_CLASS_MIN,
    SEGMENT_RUN_UNITS,
    SEGMENT_RUNS_MAX,
    SEGMENT_PEERS_MAX,
    SEGMENT_DEFINITION_MAX,
    RECORD_UNIT_SIZE,
};

static uint64_t segment_abi_hash(void)
{
    const uint64_t computed[] = {key_table_size(1), key_table_size(KEY_TABLE_KEYS_MAX),
                                 counters_size(0, true, 1)};

    return fnv1a_bytes(fnv1a_bytes(FNV1A_INIT, segment_abi_sizes, sizeof(segment_abi_sizes)),
                       computed, sizeof(computed));
}

/* Hashes the identity behind the checksum field, and the definition. */
static uint64_t segment_checksum(const struct segment_identity *identity, const char *definition)
{
    const size_t from = offsetof(struct segment_identity, abi);
    uint64_t hash =
        fnv1a_bytes(FNV1A_INIT, (const char *)identity + from, sizeof(*identity) - from);

    return fnv1a_bytes(hash, definition, identity->definition_length);
}

int segment_file_describe(struct segment_file *file, const struct segment_shape *shape,
                          const struct segment_layout *layout)
{
    struct segment_identity *identity = &file->header.identity;
    int r = 0;

    snprintf(file->definition, sizeof(file->definition), "%s", shape->definition);
    *identity = (struct segment_identity){
        .layout = SEGMENT_LAYOUT,
        .header_size = sizeof(file->header),
        .abi = segment_abi_hash(),
        .pid_namespace = file->pid_namespace,
        .time_namespace = file->time_namespace,
        .creator_pid = os_process_id(),
        .created_ns = (uint64_t)((int64_t)os_now_ns() + os_wall_offset_ns()),
        .size = layout->size,
        .generation = os_random(),
        .definition_hash = shape->definition_hash,
        .definition_length = (uint32_t)strlen(file->definition),
        .while_used = shape->while_used,
        .sizes = layout->sizes,
    };
    if (layout->sizes.keys_max)
        r = os_random_secret(identity->secret.words, 2);
    if (r < 0)
        return r;
    memcpy(identity->magic, segment_magic, sizeof(segment_magic));
    memcpy(identity->boot_id, file->boot_id, sizeof(identity->boot_id));
    memcpy(identity->name, shape->name, strlen(shape->name));
    identity->checksum = segment_checksum(identity, file->definition);
    return 0;
}

bool segment_is_ours(const struct segment_header *header)
{
    const struct segment_identity *identity = &header->identity;
    bool has_name =
        identity->name[0] != '\0' && memchr(identity->name, '\0', sizeof(identity->name));

    return has_name && memcmp(identity->magic, segment_magic, sizeof(segment_magic)) == 0 &&
           identity->layout == SEGMENT_LAYOUT && identity->header_size == sizeof(*header);
}

static int segment_error_damaged(struct segment_file *file, const char *what)
{
    return segment_error(file, -EUCLEAN, "is damaged: %s; remove it with `weir rm`", what);
}

/* Checks that the identity is intact: magic, layout, checksum and terminators. */
static int segment_check_identity(struct segment_file *file)
{
    const struct segment_identity *identity = &file->header.identity;

    if (memcmp(identity->magic, segment_magic, sizeof(segment_magic)) != 0)
        return segment_error_damaged(file, "it does not begin like a segment of weir");
    if (identity->layout != SEGMENT_LAYOUT || identity->header_size != sizeof(file->header))
        return segment_error(file, -EPROTONOSUPPORT,
                             "was made by another version of weir (layout %u, here %u): remove it "
                             "with `weir rm` once it is not in use",
                             identity->layout, SEGMENT_LAYOUT);
    if (identity->definition_length >= SEGMENT_DEFINITION_MAX ||
        identity->checksum != segment_checksum(identity, file->definition) ||
        file->definition[identity->definition_length] != '\0' ||
        !memchr(identity->name, '\0', sizeof(identity->name)))
        return segment_error_damaged(file, "its header was changed");
    return 0;
}

int segment_file_check_usable(struct segment_file *file)
{
    const struct segment_identity *identity = &file->header.identity;
    int r = segment_check_identity(file);

    if (r < 0)
        return r;
    if (memcmp(identity->boot_id, file->boot_id, sizeof(file->boot_id)) != 0)
        return segment_error(file, -ESTALE, "is of %s", "an earlier boot of the machine");
    if (identity->abi != segment_abi_hash())
        return segment_error(file, -EPROTONOSUPPORT,
                             "was made by another build of weir (%016llx, here %016llx): remove it "
                             "with `weir rm` once it is not in use",
                             (unsigned long long)identity->abi,
                             (unsigned long long)segment_abi_hash());
    if (identity->pid_namespace != file->pid_namespace)
        return segment_error(file, -EXDEV,
                             "belongs to another pid namespace (%llu, here %llu), the processes of "
                             "which cannot be probed from here",
                             (unsigned long long)identity->pid_namespace,
                             (unsigned long long)file->pid_namespace);
    if (identity->time_namespace != file->time_namespace)
        return segment_error(
            file, -EXDEV,
            "belongs to another time namespace (%llu, here %llu), where the clock differs",
            (unsigned long long)identity->time_namespace, (unsigned long long)file->time_namespace);
    return 0;
}

/* Excerpt of a definition for a message. Of a long one, begins shortly before the difference. */
struct definition_excerpt {
    char text[192];
};

static struct definition_excerpt definition_excerpt(const char *definition, size_t differs_at)
{
    enum { EXCERPT_CONTEXT = 40, EXCERPT_MAX = 160 };
    struct definition_excerpt ret;
    size_t from = differs_at > EXCERPT_CONTEXT && strlen(definition) > EXCERPT_MAX
                      ? differs_at - EXCERPT_CONTEXT
                      : 0;

    while (from > 0 && ((unsigned char)definition[from] & 0xc0) == 0x80)
        from--;
    snprintf(ret.text, sizeof(ret.text), "%s%.*s%s", from > 0 ? "…" : "", (int)EXCERPT_MAX,
             definition + from, strlen(definition + from) > EXCERPT_MAX ? "…" : "");
    for (char *c = ret.text; *c != '\0'; c++)
        if (*c == '\n')
            *c = ' ';
    return ret;
}

static int segment_error_differs(struct segment_file *file, const char *there, const char *here)
{
    const struct definition_diff diff = definition_diff(there, here);
    size_t at = 0;

    if (diff.text[0] != '\0')
        return error_set(
            &file->error, -EEXIST,
            "the segment has another definition of the set: %s; define it alike, "
            "change it there with `weir apply`, or remove it with `weir rm` once it is "
            "not in use (segment `%s` in `%s`)",
            diff.text, error_text(file->segment->file_name).text, error_text(file->directory).text);
    while (there[at] != '\0' && there[at] == here[at])
        at++;
    return error_set(&file->error, -EEXIST,
                     "the segment has another definition of the set: there `%s`, here `%s`%s "
                     "(segment `%s` in `%s`)",
                     definition_excerpt(there, at).text, definition_excerpt(here, at).text,
                     there[at] == here[at] ? ", with other plugins of these names" : "",
                     error_text(file->segment->file_name).text, error_text(file->directory).text);
}

/* Checks the numbers of the identity and the file's size against the layout. */
static int segment_check_layout(struct segment_file *file, const struct segment_layout *layout)
{
    const struct segment_identity *identity = &file->header.identity;

    if (identity->size != layout->size ||
        memcmp(&identity->sizes, &layout->sizes, sizeof(layout->sizes)) != 0)
        return segment_error_damaged(file, "its sizes do not match its definition");
    if (file->size != layout->size)
        return segment_error(file, -EUCLEAN,
                             "is damaged: it is %llu bytes long instead of %llu; remove it with "
                             "`weir rm`",
                             (unsigned long long)file->size, (unsigned long long)layout->size);
    return 0;
}

int segment_file_check_match(struct segment_file *file, const struct segment_shape *shape,
                             const struct segment_layout *layout)
{
    const struct segment_identity *identity = &file->header.identity;
    int r;

    if (strcmp(identity->name, shape->name) != 0)
        return segment_error_damaged(file, "it belongs to another set");
    r = segment_file_read_newest(file);
    if (r < 0)
        return r;
    if (file->newest.hash != shape->definition_hash || identity->while_used != shape->while_used)
        return segment_error_differs(file, file->newest.text, shape->definition);
    file->segment->definition = file->newest.number;
    if (!file->newest.number && (layout->sizes.limits_n != shape->sizes.limits_n ||
                                 layout->sizes.keys_max != shape->sizes.keys_max ||
                                 layout->sizes.key_sets_max != shape->sizes.key_sets_max))
        return segment_error_damaged(file, "its sizes do not match its definition");
    return segment_check_layout(file, layout);
}

/* Computes the layout of a usable segment from its identity. Returns 0 or -EUCLEAN. */
static int segment_own_layout(struct segment_file *file, struct segment_layout *ret)
{
    const struct segment_identity *identity = &file->header.identity;
    const struct segment_shape shape = {
        .name = identity->name,
        .definition = file->definition,
        .sizes = identity->sizes,
    };

    if (segment_layout_compute(&shape, ret) < 0)
        return segment_error_damaged(file, "its sizes are impossible");
    return segment_check_layout(file, ret);
}

int segment_file_read_layout(struct segment_file *file, struct segment_layout *ret)
{
    int r = segment_file_check_usable(file);

    return r == 0 ? segment_own_layout(file, ret) : r;
}

/* Reads the definition that the header names. The first one is in the identity, and has been
 * checked with it. */
static int segment_read_named(struct segment_file *file, const struct segment_layout *layout)
{
    uint64_t number = atomic_load_explicit(&file->header.definition, memory_order_seq_cst);

    if (number)
        return segment_definition_read(file->segment->fd, layout, number, &file->newest);
    file->newest.number = 0;
    file->newest.hash = file->header.identity.definition_hash;
    memcpy(file->newest.text, file->definition, sizeof(file->newest.text));
    return 0;
}

/* Goes on from there to the last one that has the state. */
int segment_file_read_newest(struct segment_file *file)
{
    struct segment_layout layout;
    int r = segment_own_layout(file, &layout);

    if (r < 0)
        return r;
    r = segment_read_named(file, &layout);
    if (r == 0)
        r = segment_definition_read_opened(file->segment->fd, &layout,
                                           file->newest.number + UINT64_C(1), &file->next);
    while (r > 0) {
        file->newest = file->next;
        r = segment_definition_read_opened(file->segment->fd, &layout,
                                           file->newest.number + UINT64_C(1), &file->next);
    }
    if (r == -EUCLEAN)
        return segment_error_damaged(file, "its newest definition is not whole");
    return r < 0 ? segment_error(file, r, "cannot be read: %s", strerrordesc_np(-r)) : 0;
}

/* ---- reading for observers ---- */

/* Reads the peer slots with pread: a load from a mapped hole would allocate its page. */
static int segment_read_peers(struct segment_file *file, struct segment_summary *ret)
{
    enum { BATCH_SIZE = 64 };
    struct peer_slot peers[BATCH_SIZE];

    for (uint32_t at = 0; at < SEGMENT_PEERS_MAX; at += BATCH_SIZE) {
        int n = os_pread(file->segment->fd, SEGMENT_PEERS_AT + at * sizeof(peers[0]), peers,
                         sizeof(peers));

        if (n < 0)
            return segment_error(file, n, "cannot be read: %s", strerrordesc_np(-n));
        for (size_t i = 0; i < (size_t)n / sizeof(peers[0]); i++) {
            uint64_t id = atomic_load_explicit(&peers[i].id, memory_order_seq_cst);

            if (peer_id_pid(id))
                ret->peer_ids[ret->peers_n++] = id;
        }
    }
    return 0;
}

static int segment_summarize(struct segment_file *file, struct segment_summary *ret)
{
    struct segment_layout layout;
    int r = segment_file_read_layout(file, &layout);

    if (r < 0 && r != -ESTALE && r != -EXDEV)
        return r;
    ret->state = r == -ESTALE                    ? SEGMENT_STALE
                 : r == -EXDEV                   ? SEGMENT_FOREIGN
                 : segment_file_is_removed(file) ? SEGMENT_REMOVED
                                                 : SEGMENT_USABLE;
    ret->identity = file->header.identity;
    if (r == 0)
        r = segment_file_read_newest(file);
    if (r < 0 && r != -ESTALE && r != -EXDEV)
        return r;
    memcpy(ret->definition, r < 0 ? file->definition : file->newest.text, sizeof(ret->definition));
    ret->real_size = file->real_size;
    ret->peers_n = 0;
    return segment_read_peers(file, ret);
}

int segment_inspect(const char *directory, const char *name, struct segment_summary *ret,
                    struct weir_error *reterr)
{
    struct segment_file *file;
    int r = segment_file_locate(directory, name, false, &file, reterr);

    if (r < 0)
        return r;
    r = segment_file_open(file, false);
    if (r == -EAGAIN)
        r = error_set(&file->error, -ENOENT, "the segment of the set `%s` is gone",
                      error_text(name).text);
    if (r == 0)
        r = segment_summarize(file, ret);
    return segment_file_finish(file, r, NULL, reterr);
}
