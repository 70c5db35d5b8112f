/* SPDX-License-Identifier: MIT */
/* Looking at segments without taking part. */
#include "shm/segment.h"

#include "os/os.h"
#include "shm/segment_file.h"
#include <errno.h>
#include <string.h>

static int state_of(const struct segment_site *site, const struct segment_file *file,
                    enum segment_state *ret)
{
    struct segment_here here;
    struct segment_layout layout;
    int r = segment_here(&here, site->reterr);

    if (r < 0)
        return r;
    r = segment_file_usable(site, file, &here);
    if (r == -ESTALE || r == -EXDEV) {
        *ret = r == -ESTALE ? SEGMENT_STALE : SEGMENT_ELSEWHERE;
        return 0;
    }
    if (r == 0)
        r = segment_file_layout(site, file, &layout);
    if (r == 0)
        *ret = atomic_load(&file->header.removed) & 1 ? SEGMENT_REMOVED : SEGMENT_USABLE;
    return r;
}

/* Places are read, not mapped, so that looking at a hole makes no page of it. */
static int read_lives(const struct segment_site *site, const struct segment_file *file,
                      struct segment_summary *ret)
{
    enum { AT_ONCE = 64 };
    struct segment_process processes[AT_ONCE];

    for (uint32_t at = 0; at < SEGMENT_PROCESSES_MAX; at += AT_ONCE) {
        int n = sys_read_at(file->fd, SEGMENT_PROCESSES_AT + at * sizeof processes[0], processes,
                            sizeof processes);

        if (n < 0)
            return site_error(site, n, "cannot be read: %s", strerrordesc_np(-n));
        for (size_t i = 0; i < (size_t)n / sizeof processes[0]; i++) {
            uint64_t life = atomic_load(&processes[i].life);

            if (process_pid(life))
                ret->lives[ret->lives_n++] = life;
        }
    }
    return 0;
}

static int summarize(const struct segment_site *site, const struct segment_file *file,
                     struct segment_summary *ret)
{
    const struct segment_identity *identity = &file->header.identity;
    int r = state_of(site, file, &ret->state);

    if (r < 0)
        return r;
    memcpy(ret->name, identity->name, sizeof ret->name);
    memcpy(ret->definition, file->definition, sizeof ret->definition);
    ret->creator = identity->creator;
    ret->created_ns = identity->created_ns;
    ret->size = file->size;
    ret->real_size = file->real_size;
    ret->limits_n = identity->limits_n;
    ret->while_used = identity->while_used;
    ret->lives_n = 0;
    return read_lives(site, file, ret);
}

int segment_inspect(const char *directory, const char *name, struct segment_summary *ret,
                    struct weir_error *reterr)
{
    struct segment_site site;
    struct segment_file *file = sys_alloc(1, sizeof(*file));
    struct weir_error error;
    int r;

    if (!file)
        return error_set(reterr, -ENOMEM, "out of memory");
    r = site_open(directory, name, false, &site, &error);
    if (r == 0) {
        r = segment_file_open(&site, false, file);
        if (r == 0)
            r = summarize(&site, file, ret);
        segment_file_close(file);
    }
    site_close(&site);
    sys_free(file);
    if (r == -EAGAIN)
        return error_set(reterr, -ENOENT, "there is no segment of the set `%s` any more",
                         show(name).text);
    if (r < 0 && reterr)
        *reterr = error;
    return r;
}

static int map_usable(struct segment_site *site, struct segment_file *file, struct segment **ret)
{
    struct segment_layout layout;
    struct segment_here here;
    int r = segment_here(&here, site->reterr);

    if (r == 0)
        r = segment_file_usable(site, file, &here);
    if (r == 0)
        r = segment_file_layout(site, file, &layout);
    return r == 0 ? segment_map(site, file, &layout, false, ret) : r;
}

int segment_view(const char *directory, const char *name, struct segment **ret,
                 struct weir_error *reterr)
{
    struct segment_site site;
    struct segment_file *file = sys_alloc(1, sizeof(*file));
    struct weir_error error;
    int r;

    if (!file)
        return error_set(reterr, -ENOMEM, "out of memory");
    r = site_open(directory, name, false, &site, &error);
    if (r == 0) {
        r = segment_file_open(&site, false, file);
        if (r == 0)
            r = map_usable(&site, file, ret);
        segment_file_close(file);
    }
    site_close(&site);
    sys_free(file);
    if (r == -EAGAIN)
        return error_set(reterr, -ENOENT, "there is no segment of the set `%s` any more",
                         show(name).text);
    if (r < 0 && reterr)
        *reterr = error;
    return r;
}
