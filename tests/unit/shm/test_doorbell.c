/* SPDX-License-Identifier: MIT */
/* Doorbells: what is heard of what was rung, and what is never taken for a doorbell. */
#include "lib/children.h"
#include "lib/random.h"
#include "lib/tmpdir.h"
#include "os/os.h"
#include "shm/doorbell.h"

#include <dirent.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define SET "set%2E1"

static char directory[TMPDIR_SIZE];
static int directory_fd;
static uint32_t heard[DOORBELL_READ_MAX];

static int setup(void **state)
{
    if (!tmpdir_make(directory, "/tmp"))
        return -1;
    directory_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return directory_fd < 0 ? -1 : fixture_setup(state);
}

/* How many entries the directory has; removes them if asked. */
static int entries(bool remove)
{
    DIR *list = opendir(directory);
    const struct dirent *entry;
    int n = 0;

    while ((entry = readdir(list))) {
        if (entry->d_name[0] == '.')
            continue;
        n++;
        if (remove && unlinkat(directory_fd, entry->d_name, 0) < 0)
            unlinkat(directory_fd, entry->d_name, AT_REMOVEDIR);
    }
    closedir(list);
    return n;
}

/* A thread that sweeps all the time. It ends with its case, however that ends. */
static struct {
    pthread_t thread;
    _Atomic bool is_wanted;
    bool is_there;
} sweeper;

static void *run_sweeping(void *unused)
{
    (void)unused;
    while (atomic_load(&sweeper.is_wanted))
        doorbell_sweep(directory_fd, NULL);
    return NULL;
}

static void start_sweeping(void)
{
    atomic_store(&sweeper.is_wanted, true);
    assert_int_equal(pthread_create(&sweeper.thread, NULL, run_sweeping, NULL), 0);
    sweeper.is_there = true;
}

static void stop_sweeping(void)
{
    atomic_store(&sweeper.is_wanted, false);
    if (sweeper.is_there)
        pthread_join(sweeper.thread, NULL);
    sweeper.is_there = false;
}

static int teardown(void **state)
{
    int r;

    stop_sweeping();
    r = fixture_teardown(state);

    entries(true);
    close(directory_fd);
    return rmdir(directory) < 0 ? -1 : r;
}

#define doorbell_test(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

static bool is_readable(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};

    return poll(&poller, 1, 0) == 1;
}

static void assert_silent(int fd)
{
    bool overflowed = true;

    assert_false(is_readable(fd));
    assert_int_equal(doorbell_read(fd, heard, DOORBELL_READ_MAX, &overflowed), 0);
    assert_false(overflowed);
}

/* ---- ringing ---- */

static void run_ringing(const void *unused)
{
    (void)unused;
    for (uint32_t i = 0; i < 5; i++)
        if (doorbell_ring(directory_fd, SET, 3, 0, 1000 + i) != 0)
            _exit(1);
    child_is_ready();
}

static void another_process_signals(void **state)
{
    int fd = doorbell_open(directory_fd, SET, 3, 0);
    bool overflowed = true;

    (void)state;
    assert_true(fd >= 0);
    assert_silent(fd);
    child_reap(child_start(run_ringing, NULL));
    assert_true(is_readable(fd));
    assert_int_equal(doorbell_read(fd, heard, DOORBELL_READ_MAX, &overflowed), 5);
    assert_false(overflowed);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(heard[i], 1000 + i);
    assert_silent(fd);
    doorbell_close(directory_fd, fd, SET, 3, 0);
    assert_int_equal(entries(false), 0);
}

static void each_timer_has_its_own(void **state)
{
    static const uint32_t places[][2] = {{1, 0}, {1, 1}, {11, 0}, {1023, UINT32_MAX}};
    int fds[4];
    bool overflowed;

    (void)state;
    for (int i = 0; i < 4; i++)
        fds[i] = doorbell_open(directory_fd, SET, places[i][0], places[i][1]);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(doorbell_ring(directory_fd, SET, places[i][0], places[i][1], 7), 0);
        for (int k = 0; k < 4; k++)
            assert_int_equal(is_readable(fds[k]), i == k);
        assert_int_equal(doorbell_read(fds[i], heard, 2, &overflowed), 1);
    }
    for (int i = 0; i < 4; i++)
        doorbell_close(directory_fd, fds[i], SET, places[i][0], places[i][1]);
    assert_int_equal(entries(false), 0);
}

static void without_a_doorbell_no_other_process_is_heard_of(void **state)
{
    int fd = doorbell_open(directory_fd, SET, 3, 0);

    (void)state;
    assert_int_equal(doorbell_ring(directory_fd, SET, 3, 1, 7), -ENOENT);
    assert_int_equal(doorbell_ring(directory_fd, SET, 4, 0, 7), -ENOENT);
    assert_int_equal(doorbell_ring(directory_fd, "other", 3, 0, 7), -ENOENT);
    assert_silent(fd);
    doorbell_close(directory_fd, fd, SET, 3, 0);
    assert_int_equal(doorbell_ring(directory_fd, SET, 3, 0, 7), -ENOENT);
}

/* Its reader is dead, and it has not been removed yet. */
static void ringing_for_the_dead_raises_no_signal(void **state)
{
    int fd = doorbell_open(directory_fd, SET, 3, 0);

    (void)state;
    os_close(fd);
    for (int i = 0; i < 3; i++)
        assert_int_equal(doorbell_ring(directory_fd, SET, 3, 0, 7), 0);
    doorbell_close(directory_fd, -1, SET, 3, 0);
    assert_int_equal(entries(false), 0);
}

static void the_doorbell_of_a_predecessor_is_replaced(void **state)
{
    int old = doorbell_open(directory_fd, SET, 3, 0), new = doorbell_open(directory_fd, SET, 3, 0);

    (void)state;
    assert_true(new >= 0);
    assert_int_equal(doorbell_ring(directory_fd, SET, 3, 0, 7), 0);
    assert_false(is_readable(old));
    assert_true(is_readable(new));
    os_close(old);
    doorbell_close(directory_fd, new, SET, 3, 0);
}

static void a_name_that_is_too_long_is_refused(void **state)
{
    char encoded[300] = "";

    (void)state;
    memset(encoded, 'x', 260);
    assert_int_equal(doorbell_open(directory_fd, encoded, 1, 1), -ENAMETOOLONG);
    assert_int_equal(doorbell_ring(directory_fd, encoded, 1, 1, 1), -ENAMETOOLONG);
    assert_int_equal(doorbell_remove(directory_fd, encoded, 1, 0, 1), -ENAMETOOLONG);
    doorbell_close(directory_fd, -1, encoded, 1, 1);
    encoded[250] = '\0';
    assert_int_equal(doorbell_open(directory_fd, encoded, 1, 1), -ENAMETOOLONG);
}

/* ---- more than it holds ---- */

static void a_full_doorbell_is_no_error_and_is_noticed(void **state)
{
    int fd = doorbell_open(directory_fd, SET, 3, 0);
    bool overflowed = false;

    (void)state;
    for (uint32_t i = 0; i < 40000; i++)
        assert_int_equal(doorbell_ring(directory_fd, SET, 3, 0, i), 0);
    assert_int_equal(doorbell_read(fd, heard, DOORBELL_READ_MAX, &overflowed), DOORBELL_READ_MAX);
    assert_true(overflowed);
    assert_silent(fd);
    assert_int_equal(doorbell_ring(directory_fd, SET, 3, 0, 7), 0);
    assert_int_equal(doorbell_read(fd, heard, DOORBELL_READ_MAX, &overflowed), 1);
    assert_false(overflowed);
    assert_int_equal(heard[0], 7);
    doorbell_close(directory_fd, fd, SET, 3, 0);
}

static uint64_t random_state;

static uint32_t below(uint32_t n)
{
    return (uint32_t)random_below(&random_state, n);
}

/*
 * Every number is heard in order, or its loss is noticed: by the time the doorbell is silent at the
 * latest. In the smallest pipe there is, filled and emptied in pieces of all sizes.
 */
static void no_loss_goes_unnoticed(void **state)
{
    int fd = doorbell_open(directory_fd, SET, 3, 0), overflows = 0, whole = 0;
    uint32_t rung = 0, next = 0;

    (void)state;
    random_state = 1;
    assert_true(fcntl(fd, F_SETPIPE_SZ, 8192) >= 8192);
    for (int turn = 0; turn < 120; turn++) {
        uint32_t size = 1 + below(DOORBELL_READ_MAX);
        bool overflowed = false;
        int n;

        for (uint32_t i = below(turn % 3 ? 400 : 3000); i > 0; i--)
            assert_int_equal(doorbell_ring(directory_fd, SET, 3, 0, rung++), 0);
        n = doorbell_read(fd, heard, size, &overflowed);
        assert_true(n >= 0 && n <= (int)size);
        for (int i = 0; i < n; i++)
            assert_int_equal(heard[i], next + (uint32_t)i);
        if (!overflowed)
            assert_int_equal(next + (uint32_t)n, rung);
        next = rung;
        overflows += overflowed;
        whole += !overflowed;
    }
    assert_true(overflows > 15 && whole > 15);
    doorbell_close(directory_fd, fd, SET, 3, 0);
}

/* Another process has written there. */
static void torn_numbers_are_noticed(void **state)
{
    int fd = doorbell_open(directory_fd, SET, 3, 0);
    bool overflowed;

    (void)state;
    for (size_t torn = 1; torn < 8; torn++) {
        if (torn == 4)
            continue;
        overflowed = false;
        assert_int_equal(write(fd, "torn it is", torn), torn);
        assert_int_equal(doorbell_ring(directory_fd, SET, 3, 0, 7), 0);
        assert_int_equal(doorbell_read(fd, heard, DOORBELL_READ_MAX, &overflowed), 1 + torn / 4);
        assert_true(overflowed);
        assert_int_equal(doorbell_ring(directory_fd, SET, 3, 0, 7), 0);
        assert_int_equal(doorbell_read(fd, heard, DOORBELL_READ_MAX, &overflowed), 1);
        assert_false(overflowed); /* and what comes next is in order again */
        assert_int_equal(heard[0], 7);
    }
    doorbell_close(directory_fd, fd, SET, 3, 0);
}

/* ---- what is no doorbell ---- */

static void only_a_doorbell_of_ours_is_rung(void **state)
{
    char planted[4] = "";
    int fd;

    (void)state;
    fd = openat(directory_fd, "s.1.1.bell", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(doorbell_ring(directory_fd, "s", 1, 1, 7), -EPERM);
    assert_int_equal(read(fd, planted, sizeof(planted)), 0);
    close(fd);
    assert_int_equal(symlinkat("s.1.1.bell", directory_fd, "s.1.2.bell"), 0);
    assert_int_equal(doorbell_ring(directory_fd, "s", 1, 2, 7), -ELOOP);
    assert_int_equal(mkdirat(directory_fd, "s.1.3.bell", 0700), 0);
    assert_int_equal(doorbell_ring(directory_fd, "s", 1, 3, 7), -EISDIR);
    assert_int_equal(mkfifoat(directory_fd, "s.1.4.bell", 0600), 0);
    assert_int_equal(fchmodat(directory_fd, "s.1.4.bell", 0620, 0), 0);
    assert_int_equal(doorbell_ring(directory_fd, "s", 1, 4, 7), -EPERM);
    assert_int_equal(fchmodat(directory_fd, "s.1.4.bell", 0600, 0), 0);
    assert_int_equal(doorbell_ring(directory_fd, "s", 1, 4, 7), 0);
    fake_os_set_user(geteuid() + 1); /* the same as if the doorbell were another's */
    assert_int_equal(doorbell_ring(directory_fd, "s", 1, 4, 7), -EPERM);
}

/* A link goes, not what it leads to. A directory does not go. */
static void what_is_in_the_place_of_a_doorbell_is_removed_or_told(void **state)
{
    struct stat found;
    int fd;

    (void)state;
    fd = openat(directory_fd, "file", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    close(fd);
    assert_int_equal(symlinkat("file", directory_fd, "s.1.1.bell"), 0);
    fd = doorbell_open(directory_fd, "s", 1, 1);
    assert_true(fd >= 0);
    assert_int_equal(fstatat(directory_fd, "file", &found, 0), 0);
    assert_int_equal(fstatat(directory_fd, "s.1.1.bell", &found, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(found.st_mode, S_IFIFO | 0600);
    doorbell_close(directory_fd, fd, "s", 1, 1);
    assert_int_equal(mkdirat(directory_fd, "s.1.1.bell", 0700), 0);
    assert_int_equal(doorbell_open(directory_fd, "s", 1, 1), -EISDIR);
}

/* A process that may not even read its own files has no doorbell; and nothing is left. */
static void a_strange_umask_is_told(void **state)
{
    mode_t before = umask(0777);
    int r = doorbell_open(directory_fd, SET, 1, 1);

    (void)state;
    umask(before);
    assert_true(r == -EACCES || r == -EPERM); /* root gets further */
    assert_int_equal(entries(false), 0);
}

/* ---- directories that go ---- */

/* Its reader hears of nothing, and looks for itself. */
static void without_a_directory_it_is_silent(void **state)
{
    char gone[TMPDIR_SIZE];
    int gone_fd, fd;

    (void)state;
    assert_true(tmpdir_make(gone, "/tmp"));
    gone_fd = open(gone, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(rmdir(gone), 0);
    fd = doorbell_open(gone_fd, SET, 3, 0);
    assert_true(fd >= 0);
    assert_silent(fd);
    assert_int_equal(doorbell_ring(gone_fd, SET, 3, 0, 7), -ENOENT);
    assert_silent(fd);
    doorbell_close(gone_fd, fd, SET, 3, 0);
    close(gone_fd);
}

/* ---- removal ---- */

static void make(const char *name)
{
    assert_int_equal(mkfifoat(directory_fd, name, 0600), 0);
}

static bool is_there(const char *name)
{
    struct stat found;

    return fstatat(directory_fd, name, &found, AT_SYMLINK_NOFOLLOW) == 0;
}

static void the_doorbells_of_a_dead_process_go(void **state)
{
    static const char *const others[] = {"s.2.0.bell", "s.11.0.bell", "s.1.2.bell", "s.1.2.new",
                                         "t.1.0.bell", "s.0.1.bell",  "s.weir"};

    (void)state;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        make(others[i]);
    make("s.1.0.bell");
    make("s.1.1.bell");
    make("s.1.1.new"); /* it died while it made it */
    assert_int_equal(doorbell_remove(directory_fd, "s", 1, 0, 2), 0);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_true(is_there(others[i]));
    assert_int_equal(entries(false), sizeof(others) / sizeof(others[0]));
    assert_int_equal(doorbell_remove(directory_fd, "s", 1, 0, 2), 0);
    assert_int_equal(doorbell_remove(directory_fd, "s", 11, 0, 0), 0);
    assert_int_equal(entries(true), sizeof(others) / sizeof(others[0]));
}

/* The process that cleans up may have none. */
static void their_removal_needs_no_descriptor(void **state)
{
    (void)state;
    make("s.1.0.bell");
    fake_os_fail_kind_from(1, FAKE_DESCRIPTOR, -EMFILE);
    assert_int_equal(doorbell_remove(directory_fd, "s", 1, 0, 1), 0);
    assert_false(fake_os_has_failed());
    fake_os_reset();
    assert_int_equal(entries(false), 0);
}

/* Another program can write any number to the segment. */
static void a_count_of_wait_timers_is_not_believed(void **state)
{
    uint64_t before = fake_os_counts().file;

    (void)state;
    make("s.1.1023.bell");
    make("s.1.1024.bell");
    assert_int_equal(doorbell_remove(directory_fd, "s", 1, 0, UINT64_MAX), 0);
    assert_false(is_there("s.1.1023.bell"));
    assert_true(is_there("s.1.1024.bell"));
    assert_true(fake_os_counts().file - before <= 2 * DOORBELL_REMOVE_MAX);
    entries(true);
}

static void one_that_cannot_be_removed_spares_no_other(void **state)
{
    (void)state;
    make("s.1.1.bell");
    assert_int_equal(mkdirat(directory_fd, "s.1.0.bell", 0700), 0);
    assert_int_equal(doorbell_remove(directory_fd, "s", 1, 0, 2), -EISDIR);
    assert_int_equal(entries(false), 1);
}

/* ---- sweeping ---- */

#define FIRST  "s.00000000000000ab"
#define SECOND "s.ffffffffffffffff"

static void generations_have_names_of_their_own(void **state)
{
    char stem[SEGMENT_DIR_FILE_SIZE], longest[SEGMENT_DIR_STEM_MAX + 1];

    (void)state;
    doorbell_stem(stem, "s", 0xab);
    assert_string_equal(stem, FIRST);
    doorbell_stem(stem, "s", UINT64_MAX);
    assert_string_equal(stem, SECOND);
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    doorbell_stem(stem, longest, UINT64_MAX);
    doorbell_close(directory_fd, doorbell_open(directory_fd, stem, UINT32_MAX, UINT32_MAX), stem,
                   UINT32_MAX, UINT32_MAX);
    assert_int_equal(entries(false), 0);
}

static void what_has_no_reader_is_swept(void **state)
{
    static const char *const others[] = {"s.weir",       "t" FIRST ".1.0.bell", "s.1.0.bell",
                                         FIRST ".bell",  FIRST ".1.bell",       FIRST ".1.0.bells",
                                         FIRST ".1.0.x", FIRST ".x.0.bell",     "bell"};
    int read = doorbell_open(directory_fd, FIRST, 1, 0);
    int other = doorbell_open(directory_fd, SECOND, 1, 0);

    (void)state;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        make(others[i]);
    make(FIRST ".2.0.bell");
    make(FIRST ".2.1.new");
    make(SECOND ".4294967295.4294967295.bell");
    assert_int_equal(doorbell_sweep(directory_fd, "s"), 0);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_true(is_there(others[i]));
    assert_int_equal(entries(false), 2 + sizeof(others) / sizeof(others[0]));
    assert_int_equal(doorbell_ring(directory_fd, FIRST, 1, 0, 7), 0);
    assert_true(is_readable(read));
    assert_false(is_readable(other));
    os_close(other); /* as if its process had died */
    assert_int_equal(doorbell_sweep(directory_fd, NULL), 0);
    assert_false(is_there(SECOND ".1.0.bell"));
    assert_false(is_there("t" FIRST ".1.0.bell")); /* of the set `ts` */
    assert_true(is_there(FIRST ".1.0.bell"));
    doorbell_close(directory_fd, read, FIRST, 1, 0);
    entries(true);
}

static void what_is_no_fifo_is_not_swept(void **state)
{
    (void)state;
    close(openat(directory_fd, FIRST ".1.0.bell", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_int_equal(symlinkat("nowhere", directory_fd, FIRST ".1.1.bell"), 0);
    assert_int_equal(mkdirat(directory_fd, FIRST ".1.2.bell", 0700), 0);
    make(FIRST ".1.3.bell");
    assert_true(doorbell_sweep(directory_fd, "s") < 0);
    assert_false(is_there(FIRST ".1.3.bell"));
    assert_int_equal(entries(true), 3);
}

/* Whenever a sweep comes, what has a name has a reader. */
static void none_is_swept_while_it_is_made(void **state)
{
    (void)state;
    start_sweeping();
    for (uint32_t i = 0; i < 3000; i++) {
        int fd = doorbell_open(directory_fd, FIRST, 1, i);

        if (fd < 0)
            fail_msg("doorbell %u: %s", (unsigned)i, strerror(-fd));
        assert_int_equal(doorbell_ring(directory_fd, FIRST, 1, i, 7), 0);
        assert_true(is_readable(fd));
        doorbell_close(directory_fd, fd, FIRST, 1, i);
    }
    stop_sweeping();
    assert_int_equal(entries(false), 0);
}

/* ---- failures ---- */

enum { ANY = FAKE_ANY | FAKE_EVENT };

static void making_it_succeeds_or_leaves_nothing(void **state)
{
    int fd = -1;

    (void)state;
    for (uint64_t n = 1; fd < 0; n++) {
        fake_os_fail_kind_at(n, ANY, 0);
        fd = doorbell_open(directory_fd, SET, 3, 0);
        assert_int_equal(fd < 0, fake_os_has_failed());
        assert_int_equal(entries(false), fd < 0 ? 0 : 1);
        assert_true(n < 10);
    }
    doorbell_close(directory_fd, fd, SET, 3, 0);
}

static void ringing_succeeds_or_fails(void **state)
{
    int fd = doorbell_open(directory_fd, SET, 3, 0), r = -1;

    (void)state;
    for (uint64_t n = 1; r < 0; n++) {
        assert_silent(fd);
        fake_os_fail_kind_at(n, ANY, 0);
        r = doorbell_ring(directory_fd, SET, 3, 0, 7);
        assert_int_equal(r < 0, fake_os_has_failed());
        assert_true(n < 10);
    }
    assert_true(is_readable(fd));
    doorbell_close(directory_fd, fd, SET, 3, 0);
}

static void reading_that_fails_takes_nothing(void **state)
{
    int fd = doorbell_open(directory_fd, SET, 3, 0);
    bool overflowed = false;

    (void)state;
    doorbell_ring(directory_fd, SET, 3, 0, 7);
    fake_os_fail_kind_at(1, FAKE_EVENT, -EIO);
    assert_int_equal(doorbell_read(fd, heard, 10, &overflowed), -EIO);
    assert_int_equal(doorbell_read(fd, heard, 10, &overflowed), 1);
    doorbell_close(directory_fd, fd, SET, 3, 0);
}

static void removal_that_fails_is_told(void **state)
{
    int r = -1;

    (void)state;
    for (uint64_t n = 1; r < 0; n++) {
        entries(true);
        make("s.1.0.bell");
        make("s.1.1.bell");
        fake_os_fail_kind_at(n, ANY, 0);
        r = doorbell_remove(directory_fd, "s", 1, 0, 2);
        assert_int_equal(r < 0, fake_os_has_failed());
        assert_true(n < 10);
    }
    assert_int_equal(entries(false), 0);
}

static void a_sweep_that_fails_is_told(void **state)
{
    int r = -1;

    (void)state;
    for (uint64_t n = 1; r < 0; n++) {
        entries(true);
        make(FIRST ".1.0.bell");
        make(FIRST ".1.1.bell");
        fake_os_fail_kind_at(n, ANY, 0);
        r = doorbell_sweep(directory_fd, "s");
        assert_int_equal(r < 0, fake_os_has_failed());
        assert_true(n < 20);
    }
    assert_int_equal(entries(false), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        doorbell_test(another_process_signals),
        doorbell_test(each_timer_has_its_own),
        doorbell_test(without_a_doorbell_no_other_process_is_heard_of),
        doorbell_test(ringing_for_the_dead_raises_no_signal),
        doorbell_test(the_doorbell_of_a_predecessor_is_replaced),
        doorbell_test(a_name_that_is_too_long_is_refused),
        doorbell_test(a_full_doorbell_is_no_error_and_is_noticed),
        doorbell_test(no_loss_goes_unnoticed),
        doorbell_test(torn_numbers_are_noticed),
        doorbell_test(only_a_doorbell_of_ours_is_rung),
        doorbell_test(what_is_in_the_place_of_a_doorbell_is_removed_or_told),
        doorbell_test(a_strange_umask_is_told),
        doorbell_test(the_doorbells_of_a_dead_process_go),
        doorbell_test(their_removal_needs_no_descriptor),
        doorbell_test(a_count_of_wait_timers_is_not_believed),
        doorbell_test(one_that_cannot_be_removed_spares_no_other),
        doorbell_test(without_a_directory_it_is_silent),
        doorbell_test(generations_have_names_of_their_own),
        doorbell_test(what_has_no_reader_is_swept),
        doorbell_test(what_is_no_fifo_is_not_swept),
        doorbell_test(none_is_swept_while_it_is_made),
        doorbell_test(making_it_succeeds_or_leaves_nothing),
        doorbell_test(ringing_succeeds_or_fails),
        doorbell_test(reading_that_fails_takes_nothing),
        doorbell_test(removal_that_fails_is_told),
        doorbell_test(a_sweep_that_fails_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
