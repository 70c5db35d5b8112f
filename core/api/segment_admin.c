/* SPDX-License-Identifier: MIT */
/* weir_segments(), weir_segment_remove(): segments, for whoever looks after them. */
#include "config/config_ast.h"
#include "os/os.h"
#include "shm/peer_id.h"
#include "shm/segment.h"
#include "shm/segment_dir_choose.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/segment.h>

/* ---- where ---- */

static int configured_dir(const struct definition *definition, struct complaints *complaints,
                          const char **ret)
{
    const struct scalar *dir = &definition->process_dir;

    if (dir->text != NULL && dir->text[0] != '/')
        return complain(complaints, -EINVAL, dir->mark,
                        "`%s` is not an absolute path: begin it with `/`", show(dir->text).text);
    *ret = dir->text;
    return 0;
}

/* `*ret`: NULL for the default, else to be given back with sys_free. */
static int choose_dir(const struct weir_options *options, char **ret, struct weir_error *reterr)
{
    struct complaints complaints = {.hear = options->complaint, .userdata = options->userdata};
    struct definition definition = {0};
    const char *configured = NULL;
    int r = 0, told;

    *ret = NULL;
    if (options->process_dir == NULL) /* else the configuration does not matter */
        r = config_find(options, &definition, &complaints);
    if (r == 0)
        r = configured_dir(&definition, &complaints, &configured);
    told = complaints_tell(&complaints);
    if (r == 0 && told == 0)
        r = told = process_dir_choose(options, configured, &complaints, ret);
    definition_free(&definition);
    if (told < 0 && told != -ENOMEM) {
        if (reterr != NULL)
            *reterr = complaints.first;
        return told;
    }
    return r < 0 ? error_set(reterr, r, "%s", strerrordesc_np(-r)) : 0;
}

static int check_options(const struct weir_options *options, struct weir_error *reterr)
{
    if (options->size < sizeof *options)
        return error_set(reterr, -EINVAL, "the size of the options is wrong");
    if (options->file != NULL && options->text != NULL)
        return error_set(reterr, -EINVAL, "the options name both a file and a text");
    return 0;
}

static const struct weir_options no_options = {.size = sizeof no_options};

/* ---- who ---- */

/* How many processes are alive whose lives these are; one may have several. */
static uint32_t count_users(const uint64_t *lives, uint32_t n)
{
    uint32_t users = 0;

    for (uint32_t i = 0; i < n; i++) {
        bool is_known = false;

        for (uint32_t k = 0; k < i && !is_known; k++)
            is_known = process_is_same(lives[i], lives[k]);
        if (!is_known && process_pid(lives[i]) != 0 && !process_is_dead(lives[i]))
            users++;
    }
    return users;
}

/* ---- listing ---- */

/* The names first, all of them: then they are in order, and the callback may do anything. */
struct names {
    char **items;
    size_t n, capacity;
};

static void names_free(struct names *names)
{
    for (size_t i = 0; i < names->n; i++)
        sys_free(names->items[i]);
    sys_free(names->items);
}

static int grow(struct names *names)
{
    size_t capacity = names->capacity ? 2 * names->capacity : 16;
    char **items = sys_alloc(capacity, sizeof *items);

    if (!items)
        return -ENOMEM;
    if (names->n)
        memcpy(items, names->items, names->n * sizeof *items);
    sys_free(names->items);
    names->items = items;
    names->capacity = capacity;
    return 0;
}

static int add_name(void *userdata, const char *name)
{
    struct names *names = userdata;

    if (names->n == names->capacity && grow(names) < 0)
        return -ENOMEM;
    names->items[names->n] = sys_strdup(name);
    if (!names->items[names->n])
        return -ENOMEM;
    names->n++;
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_names(const char *dir, struct names *ret, struct weir_error *reterr)
{
    int r = directory_list(dir, add_name, ret, reterr);

    if (r == -ENOENT) /* nobody has made it yet */
        return 0;
    if (r == -ENOMEM)
        return error_set(reterr, r, "%s", strerrordesc_np(-r));
    if (r == 0 && ret->n > 1)
        qsort(ret->items, ret->n, sizeof *ret->items, compare_names);
    return r;
}

/* Why one that could be inspected cannot be used. */
static int refuse_state(const char *name, enum segment_state state, struct weir_error *ret)
{
    if (state == SEGMENT_STALE)
        return error_set(ret, -ESTALE,
                         "the segment of the set `%s` is of an earlier boot of the machine",
                         show(name).text);
    if (state == SEGMENT_ELSEWHERE)
        return error_set(ret, -EXDEV,
                         "the segment of the set `%s` belongs to another namespace of processes "
                         "or of time",
                         show(name).text);
    return 0;
}

/* One segment, as far as it can be told. */
struct sight {
    struct segment_summary summary;
    struct weir_error refusal;
    struct weir_segment segment;
    char path[PATH_MAX];
};

static void describe(struct sight *sight)
{
    const struct segment_summary *summary = &sight->summary;
    struct weir_segment *segment = &sight->segment;

    segment->definition = summary->definition;
    segment->lifetime = summary->while_used ? "users" : "boot";
    segment->created_ns = summary->created_ns;
    segment->bytes = summary->real_size;
    segment->creator = (uint32_t)summary->creator;
    segment->users = count_users(summary->lives, summary->lives_n);
}

/* 0; or -ENOENT: it is gone, or about to go. */
static int look_at(const char *dir, const char *name, struct sight *sight)
{
    char own[DIRECTORY_PATH_SIZE], encoded[DIRECTORY_FILE_SIZE];
    int r;

    r = segment_inspect(dir, name, &sight->summary, &sight->refusal);
    if (r == 0 && sight->summary.state == SEGMENT_REMOVED)
        r = -ENOENT;
    if (r == -ENOENT)
        return r;
    directory_default(own);
    if (directory_encode(name, encoded) < 0)
        return -ENOENT; /* cannot be: it was listed */
    snprintf(sight->path, sizeof sight->path, "%s/%s" SEGMENT_SUFFIX, dir ? dir : own, encoded);
    if (r == 0)
        r = refuse_state(name, sight->summary.state, &sight->refusal);
    sight->segment = (struct weir_segment){.size = sizeof sight->segment,
                                           .name = name,
                                           .path = sight->path,
                                           .refusal = r < 0 ? &sight->refusal : NULL};
    if (r == 0)
        describe(sight);
    return 0;
}

static int tell_all(const char *dir, const struct names *names,
                    int (*found)(void *userdata, const struct weir_segment *segment),
                    void *userdata, struct weir_error *reterr)
{
    struct sight *sight = sys_alloc(1, sizeof *sight);
    int n = 0;

    if (!sight)
        return error_set(reterr, -ENOMEM, "out of memory");
    for (size_t i = 0; i < names->n; i++) {
        if (look_at(dir, names->items[i], sight) < 0)
            continue;
        n++;
        if (found(userdata, &sight->segment) != 0)
            break;
    }
    sys_free(sight);
    return n;
}

int weir_segments(const struct weir_options *options,
                  int (*found)(void *userdata, const struct weir_segment *segment), void *userdata,
                  struct weir_error *reterr)
{
    struct names names = {0};
    char *dir = NULL;
    int r;

    options = options ? options : &no_options;
    r = check_options(options, reterr);
    if (r == 0 && !found)
        r = error_set(reterr, -EINVAL, "nobody listens");
    if (r == 0)
        r = choose_dir(options, &dir, reterr);
    if (r == 0)
        r = list_names(dir, &names, reterr);
    if (r == 0)
        r = tell_all(dir, &names, found, userdata, reterr);
    names_free(&names);
    sys_free(dir);
    return r;
}

/* ---- removing ---- */

int weir_segment_remove(const struct weir_options *options, const char *name, uint32_t flags,
                        struct weir_error *reterr)
{
    char *dir = NULL;
    int r;

    options = options ? options : &no_options;
    r = check_options(options, reterr);
    if (r == 0 && (!name || (flags & ~WEIR_SEGMENT_FORCE) != 0))
        r = error_set(reterr, -EINVAL, "there is no name, or the flags are not known");
    if (r == 0)
        r = choose_dir(options, &dir, reterr);
    if (r == 0)
        r = segment_remove(dir, name, (flags & WEIR_SEGMENT_FORCE) != 0, segment_has_users, NULL,
                           reterr);
    sys_free(dir);
    return r;
}
