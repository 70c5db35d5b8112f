/* SPDX-License-Identifier: MIT */
/* File systems that are really full: memory that a segment has given out can be written to, and any
 * more is -ENOSPC, never a signal. Needs to be root, to mount some in a private namespace; skips
 * itself otherwise. */
#include "lib/child.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/require.h"
#include "lib/segments.h"
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include <cmocka.h>

#define NOT_HERE 77

static char full[TMPDIR_SIZE + 8];

static bool mount_of(unsigned kib)
{
    char options[64];

    snprintf(options, sizeof(options), "size=%uk,mode=0700,huge=never", kib);
    return mount("none", full, "tmpfs", 0, options) == 0;
}

static void require_nothing_in_use(void)
{
    struct statvfs found;

    require(statvfs(full, &found) == 0);
    require(found.f_bfree == found.f_blocks);
}

/* How far it got. */
struct got {
    uint32_t processes, threads, runs, key_sets;
};

static bool get(const struct segment *segment, struct got *got, uint64_t *random)
{
    int r;

    switch (random_below(random, segment->layout.sizes.key_sets_max ? 4 : 3)) {
    case 0:
        r = segment_alloc_peer(segment, got->processes);
        got->processes += r == 0;
        break;
    case 1:
        r = segment_alloc_thread(segment, got->threads);
        got->threads += r == 0;
        break;
    case 3:
        r = segment_alloc_key_set(segment, got->key_sets);
        got->key_sets += r == 0;
        break;
    default:
        r = segment_alloc_run(segment, got->runs + 1);
        got->runs += r == 0;
    }
    require(r == 0 || r == -ENOSPC);
    return r == 0;
}

static void write_all(const struct segment *segment, const struct got *got)
{
    const struct segment_layout *layout = &segment->layout;

    require(segment_peers_n(segment) == got->processes);
    require(segment_threads_n(segment) == got->threads);
    require(segment_key_sets_n(segment) == got->key_sets);
    require(got->runs == 0 || segment_runs_n(segment) == got->runs + 1);
    for (uint32_t i = 0; i < got->processes; i++)
        memset(segment_peer(segment, i), 1, sizeof(struct peer_slot));
    for (uint32_t i = 0; i < got->threads; i++) {
        memset(segment_thread(segment, i), 1, layout->thread_stride);
        memset(segment->base + (segment_block_slot(segment, i + 1) << layout->sizes.block_class), 1,
               (size_t)1 << layout->sizes.block_class);
    }
    for (uint32_t run = 1; run <= got->runs; run++) {
        atomic_store(segment_run_owner(segment, run), 1);
        memset(segment->base + segment->layout.records_at + run * SEGMENT_RUN_SIZE, 1,
               SEGMENT_RUN_SIZE);
    }
    for (uint32_t i = 0; i < got->key_sets; i++) {
        memset(segment_key_set(segment, i), 1, sizeof(struct segment_key_set));
        memset(segment->base + (segment_key_set_slot(segment, i) << layout->sizes.block_class), 1,
               (size_t)1 << layout->sizes.block_class);
    }
    if (layout->sizes.keys_max) {
        memset(segment_keyed(segment), 1, SEGMENT_PAGE);
        memset(segment_key_table(segment), 1, layout->size - layout->keys_at);
    }
    memset(segment->base, 1, sizeof(struct segment_header));
}

/* Until nothing fits any more. False: not even the segment did. */
static bool fill(uint64_t *random)
{
    struct segment_shape shape = some_shape();
    struct segment *segment = NULL;
    struct got got = {0};
    int r;

    shape.sizes.block_class += (uint32_t)random_below(random, 6);
    if (random_below(random, 2)) {
        shape.sizes.keys_max = 1 + random_below(random, 2000);
        shape.sizes.key_sets_max = 1000;
    }
    r = segment_open(full, &shape, &segment, &error);
    require(r == 0 || (r == -ENOSPC && strstr(error.message, "No space left")));
    if (r == 0)
        while (get(segment, &got, random))
            ;
    if (r == 0)
        write_all(segment, &got);
    if (r == 0)
        require(unlinkat(segment->directory_fd, SOME_FILE, 0) == 0);
    segment_close(segment);
    require_nothing_in_use();
    return r == 0;
}

static int fill_all(void)
{
    uint64_t random = test_seed;
    unsigned fitted = 0, failed = 0;

    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return NOT_HERE;
    for (unsigned kib = 4; kib <= 200; kib += 4) {
        if (!mount_of(kib))
            return NOT_HERE;
        if (fill(&random))
            fitted++;
        else
            failed++;
        require(umount(full) == 0);
    }
    require(fitted > 0 && failed > 0);
    return 0;
}

static void a_full_file_system_sends_no_signal(void **state)
{
    int status = -1;
    pid_t child;

    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: only root can mount a small file system\n");
        skip();
    }
    seed_begin();
    snprintf(full, sizeof(full), "%s/full", place);
    require(mkdir(full, 0700) == 0);
    child = child_fork();
    if (child == 0)
        _exit(fill_all());
    status = child_wait(child);
    assert_int_equal(rmdir(full), 0);
    if (child_exited(status, NOT_HERE)) {
        print_message("skipped: a small file system cannot be mounted here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_full_file_system_sends_no_signal),
    };

    return cmocka_run_group_tests(tests, place_setup, place_teardown);
}
