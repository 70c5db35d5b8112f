/* SPDX-License-Identifier: MIT */
/* Reading segments without attaching to them, for observers. */
#include "shm/segment.h"

#include "os/os.h"
#include "shm/segment_file.h"
#include <errno.h>
#include <string.h>

static int segment_read_state(struct segment_file *file, enum segment_state *ret)
{
    struct segment_layout layout;
    int r = segment_file_read_layout(file, &layout);

    if (r < 0 && r != -ESTALE && r != -EXDEV)
        return r;
    *ret = r == -ESTALE                    ? SEGMENT_STALE
           : r == -EXDEV                   ? SEGMENT_FOREIGN
           : segment_file_is_removed(file) ? SEGMENT_REMOVED
                                           : SEGMENT_USABLE;
    return 0;
}

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
    const struct segment_identity *identity = &file->header.identity;
    int r = segment_read_state(file, &ret->state);

    if (r < 0)
        return r;
    memcpy(ret->name, identity->name, sizeof(ret->name));
    memcpy(ret->definition, file->definition, sizeof(ret->definition));
    ret->creator_pid = identity->creator_pid;
    ret->created_ns = identity->created_ns;
    ret->size = file->size;
    ret->real_size = file->real_size;
    ret->limits_n = identity->limits_n;
    ret->while_used = identity->while_used;
    ret->peers_n = 0;
    return segment_read_peers(file, ret);
}

/* Opens a segment to look at it: one that is removed at this moment is not there. */
static int segment_look(const char *directory, const char *name, struct segment_file **ret,
                        struct weir_error *reterr)
{
    int r = segment_file_locate(directory, name, false, ret, reterr);

    if (r < 0)
        return r;
    r = segment_file_open(*ret, false);
    if (r == -EAGAIN)
        r = error_set(&(*ret)->error, -ENOENT, "the segment of the set `%s` is gone",
                      error_text(name).text);
    return r < 0 ? segment_file_finish(*ret, r, NULL, reterr) : 0;
}

int segment_inspect(const char *directory, const char *name, struct segment_summary *ret,
                    struct weir_error *reterr)
{
    struct segment_file *file;
    int r = segment_look(directory, name, &file, reterr);

    return r < 0 ? r : segment_file_finish(file, segment_summarize(file, ret), NULL, reterr);
}

int segment_view(const char *directory, const char *name, struct segment **ret,
                 struct weir_error *reterr)
{
    struct segment_layout layout;
    struct segment_file *file;
    int r = segment_look(directory, name, &file, reterr);

    if (r < 0)
        return r;
    r = segment_file_read_layout(file, &layout);
    if (r == 0)
        r = segment_file_map(file, &layout, false);
    return segment_file_finish(file, r, ret, reterr);
}
