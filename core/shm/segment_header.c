/* SPDX-License-Identifier: MIT */
/* What a segment is: written by whoever makes it, compared by everybody else. */
#include "base/atomic128.h"
#include "base/mutant.h"
#include "keyed/key_table.h"
#include "limit/counters.h"
#include "os/os.h"
#include "shm/segment_file.h"
#include "state/acq_record.h"
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <weir/plugin.h>
#include <weir/set.h>

static const char magic[8] = "weir seg"; /* without a NUL */

#define HASH_BEGIN UINT64_C(14695981039346656037)

/* FNV-1a. */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *byte = bytes;

    for (size_t i = 0; i < n; i++)
        hash = (hash ^ byte[i]) * UINT64_C(1099511628211);
    return hash;
}

/* Two builds for which any of these differs must not share a segment. */
static uint64_t abi_hash(void)
{
    const uint64_t sizes[] = {
        WEIR_PLUGIN_ABI_MAJOR,
        sizeof(struct segment_header),
        offsetof(struct segment_header, removed),
        offsetof(struct segment_header, registrations),
        offsetof(struct segment_header, processes_high),
        offsetof(struct segment_header, head),
        offsetof(struct segment_header, seats),
        offsetof(struct seats, at),
        LEDGER_SEATS,
        sizeof(struct segment_process),
        sizeof(struct segment_actor),
        offsetof(struct segment_actor, process),
        sizeof(struct segment_keyed),
        offsetof(struct segment_keyed, quiet_ns),
        offsetof(struct segment_keyed, idle),
        offsetof(struct segment_keyed, forgotten),
        offsetof(struct segment_keyed, evicted),
        offsetof(struct segment_keyed, refused),
        sizeof(struct segment_live),
        offsetof(struct segment_live, next),
        offsetof(struct segment_live, listed),
        sizeof(struct key_secret),
        sizeof(struct double_word),
        offsetof(struct double_word, high),
        key_table_size(1),
        key_table_size(KEY_TABLE_KEYS_MAX),
        sizeof(struct set_head),
        offsetof(struct set_head, spare),
        sizeof(struct actor_head),
        offsetof(struct actor_head, intent),
        offsetof(struct actor_head, generation),
        sizeof(struct box),
        offsetof(struct box, done),
        offsetof(struct box, replaced),
        offsetof(struct box, meta),
        offsetof(struct box, places),
        offsetof(struct box, effects),
        sizeof(struct record),
        offsetof(struct record, next),
        offsetof(struct record, prev),
        offsetof(struct record, granted),
        offsetof(struct record, since),
        offsetof(struct record, owner),
        offsetof(struct record, set),
        offsetof(struct record, waker),
        offsetof(struct record, before),
        offsetof(struct record, amounts),
        sizeof(struct counters),
        offsetof(struct counters, taken),
        offsetof(struct counters, wait_histogram),
        EFFECTS_MAX,
        LINK_BITS,
        WORD_SLOT_BITS,
        BOX_CLASS_MIN,
        SEGMENT_RUN_UNITS,
        SEGMENT_RUNS_MAX,
        SEGMENT_PROCESSES_MAX,
        SEGMENT_DEFINITION_MAX,
        RECORD_UNIT_SIZE,
    };

    return hash_bytes(HASH_BEGIN, sizes, sizeof sizes);
}

/* Everything behind the field itself, and the definition. */
static uint64_t checksum(const struct segment_identity *identity, const char *definition)
{
    const size_t from = offsetof(struct segment_identity, abi);
    uint64_t hash = hash_bytes(HASH_BEGIN, (const char *)identity + from, sizeof *identity - from);

    return hash_bytes(hash, definition, identity->definition_length);
}

int segment_here(struct segment_here *ret, struct weir_error *reterr)
{
    int r = sys_boot_id(ret->boot);

    if (r == 0)
        r = sys_namespace("pid", &ret->pid_namespace);
    if (r == 0)
        r = sys_namespace("time", &ret->time_namespace);
    if (r < 0)
        return error_set(reterr, r, "a set of processes needs /proc: %s", strerrordesc_np(-r));
    return 0;
}

void segment_identify(struct segment_header *header, const struct segment_shape *shape,
                      const struct segment_layout *layout, const struct segment_here *here)
{
    struct segment_identity *identity = &header->identity;
    const char *definition = (const char *)header + SEGMENT_DEFINITION_AT;

    *identity = (struct segment_identity){
        .layout = SEGMENT_LAYOUT,
        .header_size = sizeof *header,
        .abi = abi_hash(),
        .pid_namespace = here->pid_namespace,
        .time_namespace = here->time_namespace,
        .creator = sys_process_id(),
        .created_ns = (uint64_t)((int64_t)sys_now_ns() + sys_wall_offset_ns()),
        .size = layout->size,
        .definition_hash = shape->definition_hash,
        .definition_length = (uint32_t)strlen(definition),
        .while_used = shape->while_used,
        .box_class = shape->box_class,
        .record_units = shape->record_units,
        .limits_n = shape->limits_n,
        .counters_size = (uint32_t)shape->counters_size,
        .actors_n = layout->actors_n,
        .runs_n = layout->runs_n,
        .keys_max = layout->keys_max,
        .lives_max = layout->lives_max,
    };
    if (layout->keys_max)
        key_secret_new(&identity->secret);
    memcpy(identity->magic, magic, sizeof magic);
    memcpy(identity->boot, here->boot, sizeof here->boot);
    memcpy(identity->name, shape->name, strlen(shape->name));
    identity->checksum = checksum(identity, definition);
}

static int damaged(const struct segment_site *site, const char *what)
{
    return site_error(site, -EUCLEAN, "is damaged: %s; remove it with `weir rm`", what);
}

/* Whether the identity is as somebody wrote it. */
static int is_whole(const struct segment_site *site, const struct segment_file *file)
{
    const struct segment_identity *identity = &file->header.identity;

    if (memcmp(identity->magic, magic, sizeof magic) != 0)
        return damaged(site, "it does not begin as a segment of weir does");
    if (identity->layout != SEGMENT_LAYOUT || identity->header_size != sizeof file->header)
        return site_error(site, -EPROTONOSUPPORT,
                          "was made by another version of weir (layout %u, here %u): when nobody "
                          "uses it any more, remove it with `weir rm`",
                          identity->layout, SEGMENT_LAYOUT);
    if (identity->definition_length >= SEGMENT_DEFINITION_MAX ||
        identity->checksum != checksum(identity, file->definition) ||
        file->definition[identity->definition_length] != '\0' ||
        memchr(identity->name, '\0', sizeof identity->name) == NULL)
        return damaged(site, "its header was changed");
    return 0;
}

int segment_file_usable(const struct segment_site *site, const struct segment_file *file,
                        const struct segment_here *here)
{
    const struct segment_identity *identity = &file->header.identity;
    int r = is_whole(site, file);

    if (r < 0)
        return r;
    if (memcmp(identity->boot, here->boot, sizeof here->boot) != 0)
        return site_error(site, -ESTALE, "is of %s", "an earlier boot of the machine");
    if (identity->abi != abi_hash())
        return site_error(site, -EPROTONOSUPPORT,
                          "was made by another build of weir (%016llx, here %016llx): when nobody "
                          "uses it any more, remove it with `weir rm`",
                          (unsigned long long)identity->abi, (unsigned long long)abi_hash());
    if (identity->pid_namespace != here->pid_namespace)
        return site_error(site, -EXDEV,
                          "belongs to another pid namespace (%llu, here %llu), in which processes "
                          "cannot be told dead or alive from here",
                          (unsigned long long)identity->pid_namespace,
                          (unsigned long long)here->pid_namespace);
    if (identity->time_namespace != here->time_namespace)
        return site_error(
            site, -EXDEV,
            "belongs to another time namespace (%llu, here %llu), whose clock differs",
            (unsigned long long)identity->time_namespace, (unsigned long long)here->time_namespace);
    return 0;
}

/* A definition as a message shows it: from shortly before it differs, if it is long. */
struct excerpt {
    char text[192];
};

static struct excerpt excerpt(const char *definition, size_t differs_at)
{
    enum { BEFORE = 40, ROOM = 160 };
    struct excerpt ret;
    size_t from = differs_at > BEFORE && strlen(definition) > ROOM ? differs_at - BEFORE : 0;

    while (from > 0 && ((unsigned char)definition[from] & 0xc0) == 0x80)
        from--;
    snprintf(ret.text, sizeof ret.text, "%s%.*s%s", from > 0 ? "…" : "", (int)ROOM,
             definition + from, strlen(definition + from) > ROOM ? "…" : "");
    for (char *c = ret.text; *c != '\0'; c++)
        if (*c == '\n')
            *c = ' ';
    return ret;
}

static int differs(const struct segment_site *site, const char *there, const char *here)
{
    size_t at = 0;

    while (there[at] != '\0' && there[at] == here[at])
        at++;
    return error_set(site->reterr, -EEXIST,
                     "the set is defined otherwise by those who share it: there `%s`, here `%s`%s "
                     "(segment `%s` in `%s`)",
                     excerpt(there, at).text, excerpt(here, at).text,
                     there[at] == here[at] ? ", with plugins of another version" : "",
                     show(site->file).text, show(site->directory).text);
}

/* Whether its numbers are those of the layout. */
static int fits(const struct segment_site *site, const struct segment_file *file,
                const struct segment_layout *layout)
{
    const struct segment_identity *identity = &file->header.identity;

    if (identity->box_class != layout->box_class ||
        identity->record_units != layout->record_units || identity->limits_n != layout->limits_n ||
        identity->actors_n != layout->actors_n || identity->runs_n != layout->runs_n ||
        identity->counters_size != layout->counters_size ||
        (identity->keys_max != layout->keys_max && !MUTANT(590)) ||
        (identity->lives_max != layout->lives_max && !MUTANT(591)) ||
        identity->size != layout->size)
        return damaged(site, "its numbers are not those of its definition");
    if (file->size != layout->size)
        return site_error(site, -EUCLEAN,
                          "is damaged: it is %llu bytes long instead of %llu; remove it with "
                          "`weir rm`",
                          (unsigned long long)file->size, (unsigned long long)layout->size);
    return 0;
}

int segment_file_matches(const struct segment_site *site, const struct segment_file *file,
                         const struct segment_shape *shape, const struct segment_layout *layout)
{
    const struct segment_identity *identity = &file->header.identity;

    if (strcmp(identity->name, shape->name) != 0)
        return damaged(site, "it is that of another set");
    if (identity->definition_hash != shape->definition_hash ||
        identity->while_used != shape->while_used)
        return differs(site, file->definition, shape->definition);
    return fits(site, file, layout);
}

int segment_file_layout(const struct segment_site *site, const struct segment_file *file,
                        struct segment_layout *ret)
{
    const struct segment_identity *identity = &file->header.identity;
    const struct segment_shape shape = {
        .name = identity->name,
        .definition = file->definition,
        .box_class = identity->box_class,
        .record_units = identity->record_units,
        .limits_n = identity->limits_n,
        .counters_size = identity->counters_size,
        .keys_max = identity->keys_max,
        .lives_max = (uint32_t)identity->lives_max,
    };

    if (segment_layout_compute(&shape, ret) < 0)
        return damaged(site, "its numbers cannot be");
    return fits(site, file, ret);
}
