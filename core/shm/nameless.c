/* SPDX-License-Identifier: MIT */
/* Finds out that the file of a segment in use has lost its name, and reports it. */
#include "shm/nameless.h"

#include "base/error.h"
#include "base/sched_point.h"
#include "os/os.h"
#include "shm/participant.h"
#include "shm/segment.h"
#include <errno.h>

/* What the file of a segment has come to. */
enum naming {
    NAMING_NAMED,
    NAMING_REMOVED, /* by force */
    NAMING_LOST     /* removed or renamed by another program, perhaps with the directory */
};

/* Returns an enum naming; or a negative errno if that cannot be told now. */
static int nameless_look(const struct segment *segment)
{
    struct stat of_file, of_name;
    int r = os_fstat(segment->fd, &of_file);

    if (r < 0)
        return r;
    if (of_file.st_nlink > 0) {
        r = os_stat_at(segment->directory_fd, segment->file_name, &of_name);
        if (r < 0 && r != -ENOENT)
            return r;
        if (r == 0 && of_name.st_dev == of_file.st_dev && of_name.st_ino == of_file.st_ino)
            return NAMING_NAMED;
    }
    return shm_load_seq_cst(&segment_header(segment)->removal) & 1 ? NAMING_REMOVED : NAMING_LOST;
}

static void nameless_report(const struct participant *participant, enum naming naming)
{
    log_write(participant->log, WEIR_LOG_ERROR,
              "set `%s`: %s. Processes that come now make another one, and the limits hold in each "
              "of the two: restart the processes that are attached, this one included%s",
              participant->segment->file_stem,
              naming == NAMING_REMOVED ? "its segment was removed by force while it is in use"
                                       : "the file of its segment is gone while it is in use",
              naming == NAMING_REMOVED
                  ? ""
                  : ". If systemd-logind took it at a logout (RemoveIPC), give the set another "
                    "`process_dir`, or the program a system user (see weir(1))");
}

/* Relaxed: the time of the last look limits the rate only. */
static bool nameless_is_due(struct participant *participant)
{
    uint64_t now_ns = os_now_coarse_ns();
    uint64_t before = atomic_load_explicit(&participant->looked_ns, memory_order_relaxed);

    if (now_ns >= before && now_ns - before < NAMELESS_INTERVAL_NS)
        return false;
    atomic_store_explicit(&participant->looked_ns, now_ns, memory_order_relaxed);
    return true;
}

bool nameless_check(struct participant *participant, bool now)
{
    int naming;

    if (!now && !nameless_is_due(participant))
        return false;
    naming = nameless_look(participant->segment);
    if (naming < 0)
        return false;
    atomic_store_explicit(&participant->nameless, naming != NAMING_NAMED, memory_order_seq_cst);
    if (naming == NAMING_NAMED ||
        atomic_exchange_explicit(&participant->nameless_reported, true, memory_order_seq_cst))
        return false;
    nameless_report(participant, (enum naming)naming);
    return true;
}

bool nameless_is(const struct participant *participant)
{
    return atomic_load_explicit(&participant->nameless, memory_order_seq_cst);
}
