/* SPDX-License-Identifier: MIT */
/* Reading segments without attaching to them, for observers. */
#include "base/invariant.h"
#include "shm/segment.h"

#include "os/os.h"
#include "shm/segment_file.h"
#include <errno.h>
#include <string.h>

static int segment_read_state(const struct segment_location *location,
                              const struct segment_file *file, enum segment_state *ret)
{
    struct segment_host host;
    struct segment_layout layout;
    int r = segment_host_read(&host, location->reterr);

    if (r < 0)
        return r;
    r = segment_file_check_usable(location, file, &host);
    if (r == -ESTALE || r == -EXDEV) {
        *ret = r == -ESTALE ? SEGMENT_STALE : SEGMENT_FOREIGN;
        return 0;
    }
    if (r == 0)
        r = segment_file_read_layout(location, file, &layout);
    if (r == 0)
        *ret = atomic_load_explicit(&file->header.removal, memory_order_seq_cst) & 1
                   ? SEGMENT_REMOVED
                   : SEGMENT_USABLE;
    return r;
}

/* Reads the peer slots with pread: a load from a mapped hole would allocate its page. */
static int segment_read_peers(const struct segment_location *location,
                              const struct segment_file *file, struct segment_summary *ret)
{
    enum { BATCH_SIZE = 64 };
    struct peer_slot peers[BATCH_SIZE];

    for (uint32_t at = 0; at < SEGMENT_PEERS_MAX; at += BATCH_SIZE) {
        int n = os_pread(file->fd, SEGMENT_PEERS_AT + at * sizeof peers[0], peers, sizeof peers);

        if (n < 0)
            return segment_error(location, n, "cannot be read: %s", strerrordesc_np(-n));
        for (size_t i = 0; i < (size_t)n / sizeof peers[0]; i++) {
            uint64_t id = atomic_load_explicit(&peers[i].id, memory_order_seq_cst);

            WEIR_INVARIANT(ret->peers_n < SEGMENT_PEERS_MAX);
            if (peer_id_pid(id))
                ret->peer_ids[ret->peers_n++] = id;
        }
    }
    return 0;
}

static int segment_summarize(const struct segment_location *location,
                             const struct segment_file *file, struct segment_summary *ret)
{
    const struct segment_identity *identity = &file->header.identity;
    int r = segment_read_state(location, file, &ret->state);

    if (r < 0)
        return r;
    memcpy(ret->name, identity->name, sizeof ret->name);
    memcpy(ret->definition, file->definition, sizeof ret->definition);
    ret->creator_pid = identity->creator_pid;
    ret->created_ns = identity->created_ns;
    ret->size = file->size;
    ret->real_size = file->real_size;
    ret->limits_n = identity->limits_n;
    ret->while_used = identity->while_used;
    ret->peers_n = 0;
    return segment_read_peers(location, file, ret);
}

static int segment_summarize_visit(struct segment_location *location, struct segment_file *file,
                                   int opened, void *userdata)
{
    return opened == 0 ? segment_summarize(location, file, userdata) : opened;
}

/* Visits a segment to look at it: one that is removed at this moment is not there. */
static int segment_look(const char *directory, const char *name, segment_visit_fn *visit,
                        void *userdata, struct weir_error *reterr)
{
    int r = segment_visit(directory, name, false, visit, userdata, reterr);

    return r != -EAGAIN ? r
                        : error_set(reterr, -ENOENT, "the segment of the set `%s` is gone",
                                    error_text(name).text);
}

int segment_inspect(const char *directory, const char *name, struct segment_summary *ret,
                    struct weir_error *reterr)
{
    return segment_look(directory, name, segment_summarize_visit, ret, reterr);
}

static int segment_map_visit(struct segment_location *location, struct segment_file *file,
                             int opened, void *userdata)
{
    struct segment_layout layout;
    struct segment_host host;
    int r = opened == 0 ? segment_host_read(&host, location->reterr) : opened;

    if (r == 0)
        r = segment_file_check_usable(location, file, &host);
    if (r == 0)
        r = segment_file_read_layout(location, file, &layout);
    return r == 0 ? segment_map(location, file, &layout, false, userdata) : r;
}

int segment_view(const char *directory, const char *name, struct segment **ret,
                 struct weir_error *reterr)
{
    return segment_look(directory, name, segment_map_visit, ret, reterr);
}
