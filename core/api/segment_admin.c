/* SPDX-License-Identifier: MIT */
/* Administration of segments: weir_segments, weir_segment_users, weir_segment_remove and
 * weir_segment_fault. */
#include "config/value.h"
#include "os/os.h"
#include "shm/doorbell.h"
#include "shm/nameless.h"
#include "shm/peer_id.h"
#include "shm/publish_socket.h"
#include "shm/segment.h"
#include "shm/segment_dir.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/segment.h>

/* ---- directory ---- */

/* Chooses the segment directory, if `wrong` does not name an argument at fault. `*ret`: NULL for
 * the default, else freed with os_free(). */
static int segment_admin_choose_dir(const struct weir_options *options, const char *wrong,
                                    char **ret, struct weir_error *reterr)
{
    static const struct weir_options none = {.size = sizeof(none)};
    struct complaints complaints = {0};
    struct config_ast definition = {0};
    int r = 0, reported;

    *ret = NULL;
    options = options ? options : &none;
    if (options->size < sizeof(*options))
        wrong = "the size of the options is wrong";
    else if (options->file && options->text)
        wrong = "the options name both a file and a text";
    if (wrong)
        return error_set(reterr, -EINVAL, "%s", wrong);
    complaints.report = options->complaint;
    complaints.userdata = options->userdata;
    if (!options->process_dir) /* else the configuration does not matter */
        r = config_yaml_load(options, &definition, &complaints);
    if (r == 0)
        r = value_check_path(&complaints, &definition.process_dir);
    reported = complaints_report(&complaints);
    if (r == 0 && reported == 0)
        r = reported = segment_dir_choose(options, definition.process_dir.text, &complaints, ret);
    config_ast_free(&definition);
    if (reported < 0 && reported != -ENOMEM) {
        if (reterr)
            *reterr = complaints.first;
        return reported;
    }
    return r < 0 ? error_set(reterr, r, "%s", strerrordesc_np(-r)) : 0;
}

/* ---- users ---- */

/* Counts the living processes with these peer ids; a process may have several. Writes the ids of
 * the first `room` of them. */
static uint32_t segment_admin_list_users(const uint64_t *peer_ids, uint32_t n, uint32_t *ret,
                                         size_t room)
{
    uint32_t users = 0;

    for (uint32_t i = 0; i < n; i++) {
        bool is_known = false;

        for (uint32_t k = 0; k < i && !is_known; k++)
            is_known = peer_id_same_process(peer_ids[i], peer_ids[k]);
        if (is_known || peer_id_pid(peer_ids[i]) == 0 || peer_id_is_dead(peer_ids[i]))
            continue;
        if (users < room)
            ret[users] = peer_id_pid(peer_ids[i]);
        users++;
    }
    return users;
}

/* ---- listing ---- */

/* Names are collected first: this gives their order and lets the callback call anything. */
struct name_list {
    char **items;
    size_t n, capacity;
};

static void name_list_free(struct name_list *names)
{
    for (size_t i = 0; i < names->n; i++)
        os_free(names->items[i]);
    os_free(names->items);
}

static int name_list_add(void *userdata, const char *name)
{
    struct name_list *names = userdata;
    size_t capacity = names->capacity ? 2 * names->capacity : 16;

    if (names->n == names->capacity) {
        char **items = os_realloc(names->items, capacity, sizeof(*items));

        if (!items)
            return -ENOMEM;
        names->items = items;
        names->capacity = capacity;
    }
    names->items[names->n] = os_strdup(name);
    if (!names->items[names->n])
        return -ENOMEM;
    names->n++;
    return 0;
}

static int name_list_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int name_list_read(const char *dir, struct name_list *ret, struct weir_error *reterr)
{
    int r = segment_dir_list(dir, name_list_add, ret, reterr);

    if (r == -ENOENT) /* no directory yet */
        return 0;
    if (r == -ENOMEM)
        return error_set(reterr, r, "%s", strerrordesc_np(-r));
    if (r == 0 && ret->n > 1)
        qsort(ret->items, ret->n, sizeof(*ret->items), name_list_compare);
    return r;
}

/* Returns why a segment that could be read cannot be used, or 0. */
static int segment_admin_refuse_state(const char *name, enum segment_state state,
                                      struct weir_error *ret)
{
    if (state == SEGMENT_STALE)
        return error_set(ret, -ESTALE,
                         "the segment of the set `%s` is of an earlier boot of the machine",
                         error_text(name).text);
    if (state == SEGMENT_FOREIGN)
        return error_set(ret, -EXDEV,
                         "the segment of the set `%s` belongs to another pid or time namespace",
                         error_text(name).text);
    return 0;
}

/* One segment, as far as it can be read. */
struct segment_entry {
    struct segment_summary summary;
    struct weir_error refusal;
    struct weir_segment segment;
    char path[PATH_MAX];
};

static void segment_admin_describe(struct segment_entry *entry)
{
    const struct segment_summary *summary = &entry->summary;
    struct weir_segment *segment = &entry->segment;

    segment->definition = summary->definition;
    segment->lifetime = summary->identity.while_used ? "users" : "boot";
    segment->created_ns = summary->identity.created_ns;
    segment->bytes = summary->real_size;
    segment->creator = (uint32_t)summary->identity.creator_pid;
    segment->users = segment_admin_list_users(summary->peer_ids, summary->peers_n, NULL, 0);
}

/* Inspects one segment. Returns 0, or -ENOENT if it is gone or about to go. */
static int segment_admin_inspect(const char *dir, const char *name, struct segment_entry *entry)
{
    char own[SEGMENT_DIR_PATH_SIZE], encoded[SEGMENT_DIR_FILE_SIZE];
    int r;

    r = segment_inspect(dir, name, &entry->summary, &entry->refusal);
    if (r == 0 && entry->summary.state == SEGMENT_REMOVED)
        r = -ENOENT;
    if (r == -ENOENT)
        return r;
    segment_dir_default(own);
    if (segment_dir_encode(name, encoded) < 0)
        return -ENOENT; /* impossible: it was listed */
    snprintf(entry->path, sizeof(entry->path), "%s/%s" SEGMENT_SUFFIX, dir ? dir : own, encoded);
    if (r == 0)
        r = segment_admin_refuse_state(name, entry->summary.state, &entry->refusal);
    entry->segment = (struct weir_segment){.size = sizeof(entry->segment),
                                           .name = name,
                                           .path = entry->path,
                                           .refusal = r < 0 ? &entry->refusal : NULL};
    if (r == 0)
        segment_admin_describe(entry);
    return 0;
}

/* What the callback is called for. */
struct segment_report {
    const char *dir;
    int (*found)(void *userdata, const struct weir_segment *segment);
    void *userdata;
    struct segment_entry *entry;
    int n;     /* calls */
    bool done; /* the callback wants no more */
};

static void segment_admin_report(struct segment_report *report)
{
    report->n++;
    report->done = report->found(report->userdata, &report->entry->segment) != 0;
}

static void segment_admin_report_named(struct segment_report *report, const struct name_list *names)
{
    for (size_t i = 0; i < names->n && !report->done; i++)
        if (segment_admin_inspect(report->dir, names->items[i], report->entry) == 0)
            segment_admin_report(report);
}

/* ---- segments without a name ---- */

/* Describes a segment that has lost its name, as one that cannot be used. */
static void segment_admin_describe_nameless(const char *dir,
                                            const struct nameless_segment *nameless,
                                            struct segment_entry *entry)
{
    char own[SEGMENT_DIR_PATH_SIZE], encoded[SEGMENT_DIR_FILE_SIZE] = "";
    char others[48] = "";

    segment_dir_default(own);
    (void)segment_dir_encode(nameless->name, encoded);
    snprintf(entry->path, sizeof(entry->path), "%s/%s" SEGMENT_SUFFIX, dir ? dir : own, encoded);
    if (nameless->users > 1)
        snprintf(others, sizeof(others), " and %u other%s", nameless->users - 1,
                 nameless->users > 2 ? "s" : "");
    error_set(&entry->refusal, -EIDRM,
              "the segment of the set `%s` has lost its name (%s), but process %u%s still uses it: "
              "later ones make another, and the limits hold in each; restart its users",
              error_text(nameless->name).text,
              nameless->by_force ? "it was removed by force" : "its file was removed",
              nameless->pid, others);
    entry->segment = (struct weir_segment){.size = sizeof(entry->segment),
                                           .name = nameless->name,
                                           .path = entry->path,
                                           .users = nameless->users,
                                           .refusal = &entry->refusal};
}

/* Returns 0 or why they cannot be found. */
static int segment_admin_report_nameless(struct segment_report *report, struct weir_error *reterr)
{
    struct nameless_list list = {0};
    int r = report->done ? 0 : nameless_find(report->dir, &list);

    for (size_t i = 0; i < list.n && r == 0 && !report->done; i++) {
        segment_admin_describe_nameless(report->dir, &list.items[i], report->entry);
        segment_admin_report(report);
    }
    nameless_list_free(&list);
    return r == 0 || r == -ENOENT
               ? 0
               : error_set(reterr, r, "the processes that use segments cannot be found: %s",
                           strerrordesc_np(-r));
}

/* What stays of the dead does no harm, nor does what cannot be looked at. */
static void segment_admin_sweep(const char *dir)
{
    int fd = segment_dir_open(dir, false, NULL);

    if (fd < 0)
        return;
    (void)doorbell_sweep(fd, NULL);
    (void)publish_socket_sweep(fd);
    os_close(fd);
}

static int segment_admin_report_all(struct segment_report *report, struct weir_error *reterr)
{
    struct name_list names = {0};
    int r = name_list_read(report->dir, &names, reterr);

    if (r == 0)
        segment_admin_report_named(report, &names);
    name_list_free(&names);
    if (r == 0)
        r = segment_admin_report_nameless(report, reterr);
    return r < 0 ? r : report->n;
}

int weir_segments(const struct weir_options *options,
                  int (*found)(void *userdata, const struct weir_segment *segment), void *userdata,
                  struct weir_error *reterr)
{
    struct segment_report report = {.found = found, .userdata = userdata};
    char *dir;
    int r = segment_admin_choose_dir(options, found ? NULL : "there is no callback", &dir, reterr);

    if (r < 0)
        return r;
    report.dir = dir;
    report.entry = os_alloc(1, sizeof(*report.entry));
    segment_admin_sweep(dir);
    r = report.entry ? segment_admin_report_all(&report, reterr)
                     : error_set(reterr, -ENOMEM, "out of memory");
    os_free(report.entry);
    os_free(dir);
    return r;
}

int weir_segment_dir(const struct weir_options *options, int *ret_fd, struct weir_error *reterr)
{
    const char *wrong = ret_fd ? NULL : "there is no place for the descriptor";
    char *dir;
    int r = segment_admin_choose_dir(options, wrong, &dir, reterr);

    if (r == 0)
        r = segment_dir_open(dir, false, reterr);
    os_free(dir);
    if (r < 0)
        return r;
    *ret_fd = r;
    return 0;
}

/* ---- the users of one ---- */

static int segment_admin_read_users(const char *dir, const char *name, uint32_t *ret, size_t n,
                                    struct weir_error *reterr)
{
    struct segment_summary *summary = os_alloc(1, sizeof(*summary));
    int r = summary ? segment_inspect(dir, name, summary, reterr)
                    : error_set(reterr, -ENOMEM, "out of memory");

    if (r == 0 && summary->state == SEGMENT_REMOVED)
        r = error_set(reterr, -ENOENT, "the segment of the set `%s` is gone",
                      error_text(name).text);
    if (r == 0)
        r = segment_admin_refuse_state(name, summary->state, reterr);
    if (r == 0)
        r = (int)segment_admin_list_users(summary->peer_ids, summary->peers_n, ret, n);
    os_free(summary);
    return r;
}

int weir_segment_users(const struct weir_options *options, const char *name, uint32_t *ret,
                       size_t n, struct weir_error *reterr)
{
    const char *wrong = !name || (!ret && n > 0) ? "there is no name, or no place for ids" : NULL;
    char *dir;
    int r = segment_admin_choose_dir(options, wrong, &dir, reterr);

    if (r == 0)
        r = segment_admin_read_users(dir, name, ret, n, reterr);
    os_free(dir);
    return r;
}

/* ---- removing ---- */

int weir_segment_remove(const struct weir_options *options, const char *name, uint32_t flags,
                        struct weir_error *reterr)
{
    const char *wrong = !name || (flags & ~WEIR_SEGMENT_FORCE)
                            ? "there is no name, or the flags are not known"
                            : NULL;
    uint32_t remove_flags = flags & WEIR_SEGMENT_FORCE ? SEGMENT_REMOVE_FORCE : 0;
    char *dir;
    int r = segment_admin_choose_dir(options, wrong, &dir, reterr);

    if (options && options->flags & WEIR_OPEN_NO_HANDLER)
        remove_flags |= SEGMENT_REMOVE_LEAVES_SIGBUS;
    if (r == 0)
        r = segment_remove(dir, name, remove_flags, segment_has_users, reterr);
    os_free(dir);
    return r;
}

/* ---- faults ---- */

int weir_segment_fault(const void *siginfo)
{
    return siginfo && os_fault_handle(siginfo);
}
