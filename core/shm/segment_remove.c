/* SPDX-License-Identifier: MIT */
/*
 * Removing segments while other processes may be attaching. The word `removal` goes from 0 (in use)
 * to tentative, and from there back to 0 or to removed.
 *
 *   attaching process A               remover B
 *   A1. claims its peer slot          B1. makes `removal` tentative, with a random id
 *   A2. loads `removal`; resets it    B2. scans the peer slots; if one is in use, resets it to 0
 *       to 0 if it is tentative       B3. else CAS from its own tentative value to removed
 *
 * A1 precedes A2 and B1 precedes B2 in the order of seq_cst operations, so A or B sees the other.
 * If A2 resets the word, B3 fails; if A2 comes after B3, A finds the segment removed. A process
 * that leaves and finds the word tentative takes over with its own id: the scan of the earlier
 * remover may have seen the slot that this process has freed since.
 */
#include "shm/segment.h"

#include "base/sched_point.h"
#include "os/os.h"
#include "shm/doorbell.h"
#include "shm/peer_id.h"
#include "shm/segment_file.h"
#include <errno.h>
#include <string.h>

bool segment_has_users(const struct segment *segment)
{
    for (uint32_t i = 0; i < segment_peers_n(segment); i++) {
        uint64_t id = atomic_load_explicit(&segment_peer(segment, i)->id, memory_order_seq_cst);

        if (peer_id_pid(id) && !peer_id_is_dead(id))
            return true;
    }
    return false;
}

int segment_confirm_attach(const struct segment *segment)
{
    _Atomic uint64_t *removal = &segment_header(segment)->removal;
    uint64_t value = shm_load_seq_cst(removal);
    int r;

    while (!(value & 1)) {
        if (!value || shm_cas_seq_cst(removal, value, 0))
            return 0;
        value = shm_load_seq_cst(removal);
    }
    r = segment_file_unlink(segment);
    return r < 0 ? r : -ESTALE;
}

/* Marks the segment as removed unless it is in use. Returns whether it is removed, by this call or
 * before. */
static bool segment_mark_removed(const struct segment *segment, segment_in_use_fn *in_use)
{
    _Atomic uint64_t *removal = &segment_header(segment)->removal;
    const uint64_t claim = (os_random() | 1) << 1; /* not 0; unique */
    bool is_used;

    for (;;) {
        uint64_t value = shm_load_seq_cst(removal);

        if (value & 1)
            return true;
        if (shm_cas_seq_cst(removal, value, claim))
            break;
    }
    is_used = in_use(segment);
    SCHED_POINT();
    if (is_used) {
        shm_cas_seq_cst(removal, claim, 0);
        return false;
    }
    return shm_cas_seq_cst(removal, claim, claim | 1) || (shm_load_seq_cst(removal) & 1);
}

int segment_remove_if_unused(const struct segment *segment, segment_in_use_fn *in_use)
{
    bool is_removed;
    int r;

    if (segment_is_broken(segment))
        return -EUCLEAN;
    is_removed = segment_mark_removed(segment, in_use);
    if (segment_is_broken(segment))
        return -EUCLEAN; /* what was read is not the file's */
    if (!is_removed)
        return 0;
    r = segment_file_unlink(segment);
    return r < 0 ? r : 1;
}

/* Retries while another remover has taken over: it may die before it is done. With `force` attached
 * processes go on, but no other can attach. */
int segment_file_try_remove(struct segment_file *file, const struct segment_layout *layout,
                            bool force, segment_in_use_fn *in_use)
{
    enum { TRIES = 100 };
    int r = segment_file_map(file, layout);

    if (r < 0)
        return r;
    if (force)
        atomic_store_explicit(&segment_header(file->segment)->removal, os_random() | 1,
                              memory_order_seq_cst);
    for (int i = 0; i < TRIES && r == 0; i++) {
        r = segment_remove_if_unused(file->segment, in_use);
        if (r == 0 && in_use(file->segment))
            break;
    }
    return r < 0 ? segment_error(file, r, "cannot be removed: %s", strerrordesc_np(-r)) : r;
}

static int segment_file_remove(struct segment_file *file, bool force, segment_in_use_fn *in_use)
{
    struct segment_layout layout;
    int r = segment_file_read_layout(file, &layout);

    if (r == 0) {
        r = segment_file_try_remove(file, &layout, force, in_use);
        if (r == 0)
            return segment_error(file, -EBUSY, "is %s", "in use");
        if (r != -EUCLEAN)
            return r < 0 ? r : 0;
    }
    if (r != -ESTALE && !force)
        return r;
    r = segment_file_unlink(file->segment);
    return r < 0 ? segment_error(file, r, "cannot be removed: %s", strerrordesc_np(-r)) : 0;
}

int segment_remove(const char *directory, const char *name, uint32_t flags,
                   segment_in_use_fn *in_use, struct weir_error *reterr)
{
    const bool force = flags & SEGMENT_REMOVE_FORCE;
    struct segment_file *file;
    int r = segment_file_locate(directory, name, false, &file, reterr);

    if (r < 0)
        return r;
    file->segment->leaves_sigbus = flags & SEGMENT_REMOVE_LEAVES_SIGBUS;
    r = segment_file_open(file, true);
    if (r == 0 || (r == -EUCLEAN && force))
        r = segment_file_remove(file, force, in_use);
    else if (r == -ENOENT) /* the users of one that was removed by force may have died since */
        (void)doorbell_sweep(file->segment->directory_fd, file->segment->file_stem);
    if (r == -EAGAIN)
        r = 0; /* another process removed it */
    return segment_file_finish(file, r, NULL, reterr);
}
