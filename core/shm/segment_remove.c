/* SPDX-License-Identifier: MIT */
/*
 * Removing segments while others may be about to use them. The word `removed` decides: it goes from
 * 0 to tentative, and from there either back to 0, by anybody who takes part, or to removed, by
 * whoever made it tentative and has then found nobody. A newcomer claims its place first and looks at
 * the word then; whoever removes makes it tentative first and looks at the places then: one of the
 * two sees the other. Whoever finds it tentative when leaving takes over: the other's look may have
 * been before.
 */
#include "shm/segment.h"

#include "base/sched_point.h"
#include "os/os.h"
#include "shm/peer_id.h"
#include "shm/segment_file.h"
#include <errno.h>
#include <string.h>

bool segment_has_users(const struct segment *segment, void *unused)
{
    (void)unused;
    for (uint32_t i = 0; i < segment_processes_n(segment); i++) {
        uint64_t life = atomic_load(&segment_process(segment, i)->life);

        if (process_pid(life) && !process_is_dead(life))
            return true;
    }
    return false;
}

static int take_name(const struct segment *segment)
{
    return segment_file_take_name(segment->directory_fd, segment->encoded, segment->fd);
}

int segment_admit(const struct segment *segment)
{
    _Atomic uint64_t *removed = &segment_header(segment)->removed;
    uint64_t value = atomic_load(removed);
    int r;

    STEP();
    while (value && !(value & 1))
        if (atomic_compare_exchange_weak(removed, &value, 0))
            return 0;
    if (!value)
        return 0;
    r = take_name(segment);
    return r < 0 ? r : -ESTALE;
}

int segment_retire(const struct segment *segment, segment_used_fn *used, void *userdata)
{
    _Atomic uint64_t *removed = &segment_header(segment)->removed;
    const uint64_t mine = (sys_random() | 1) << 1; /* not 0; no two are the same */
    uint64_t value = atomic_load(removed);
    int r;

    while (!(value & 1) && !atomic_compare_exchange_weak(removed, &value, mine))
        ;
    STEP();
    if (!(value & 1)) {
        value = mine;
        if (used(segment, userdata)) {
            STEP();
            atomic_compare_exchange_strong(removed, &value, 0);
            return 0;
        }
        STEP();
        if (!atomic_compare_exchange_strong(removed, &value, mine | 1) && !(value & 1))
            return 0;
    }
    STEP();
    r = take_name(segment);
    return r < 0 ? r : 1;
}

/* Whoever takes part already goes on; nobody else can. */
static void force(const struct segment *segment)
{
    atomic_store(&segment_header(segment)->removed, sys_random() | 1);
}

/* Others who remove it may take over, and die before they are done. */
static int retire_surely(const struct segment *segment, segment_used_fn *used, void *userdata)
{
    enum { TRIES = 100 };
    int r = 0;

    for (int i = 0; i < TRIES && r == 0; i++) {
        r = segment_retire(segment, used, userdata);
        if (r == 0 && used(segment, userdata))
            break;
    }
    return r;
}

int segment_file_retire(struct segment_site *site, struct segment_file *file,
                        const struct segment_layout *layout, bool forced, segment_used_fn *used,
                        void *userdata)
{
    struct segment *segment = NULL;
    int directory_fd = site->directory_fd;
    int r = segment_map(site, file, layout, true, &segment);

    if (r < 0)
        return r;
    if (forced)
        force(segment);
    r = retire_surely(segment, used, userdata);
    segment->directory_fd = -1; /* it stays the caller's, who may go on there */
    site->directory_fd = directory_fd;
    segment_close(segment);
    return r < 0 ? site_error(site, r, "cannot be removed: %s", strerrordesc_np(-r)) : r;
}

/* One whose users can be asked for. */
static int remove_usable(struct segment_site *site, struct segment_file *file,
                         const struct segment_layout *layout, bool forced, segment_used_fn *used,
                         void *userdata)
{
    int r = segment_file_retire(site, file, layout, forced, used, userdata);

    if (r == 0)
        return site_error(site, -EBUSY, "is %s", "in use");
    return r < 0 ? r : 0;
}

static int remove_file(struct segment_site *site, struct segment_file *file, bool forced,
                       segment_used_fn *used, void *userdata)
{
    struct segment_layout layout;
    struct segment_here here;
    int r = segment_here(&here, site->reterr);

    if (r < 0)
        return r;
    r = segment_file_usable(site, file, &here);
    if (r == 0)
        r = segment_file_layout(site, file, &layout);
    if (r == 0)
        return remove_usable(site, file, &layout, forced, used, userdata);
    if (r != -ESTALE && !forced)
        return r;
    r = segment_file_take_name(site->directory_fd, site->encoded, file->fd);
    if (r < 0)
        site_error(site, r, "cannot be removed: %s", strerrordesc_np(-r));
    return r;
}

int segment_remove(const char *directory, const char *name, bool forced, segment_used_fn *used,
                   void *userdata, struct weir_error *reterr)
{
    struct segment_site site;
    struct segment_file *file = sys_alloc(1, sizeof(*file));
    struct weir_error error;
    int r;

    if (!file)
        return error_set(reterr, -ENOMEM, "out of memory");
    r = site_open(directory, name, false, &site, &error);
    if (r == 0) {
        r = segment_file_open(&site, true, file);
        if (r == 0 || (r == -EUCLEAN && forced))
            r = remove_file(&site, file, forced, used, userdata);
        segment_file_close(file);
    }
    site_close(&site);
    sys_free(file);
    if (r == -EAGAIN) /* somebody else removed it */
        return 0;
    if (r < 0 && reterr)
        *reterr = error;
    return r;
}
