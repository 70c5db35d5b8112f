/* SPDX-License-Identifier: MIT */
/* Another user of the machine: can neither read nor change a segment, nor make us use what it has
 * laid in our way beforehand. Needs to be root, to become two others; skips itself otherwise. */
#include "lib/child.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/require.h"
#include "lib/segments.h"
#include <errno.h>
#include <grp.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define VICTIM   65533u
#define ATTACKER 65534u

static char mine[64]; /* a directory of the attacker's */
static char in_default[80];
static char default_directory[SEGMENT_DIR_PATH_SIZE];

/* Runs it in a child as that user. Its failed `require` fails the test. */
static void as(uid_t user, void (*run)(void))
{
    pid_t child = child_fork();

    if (child == 0) {
        require(setgroups(0, NULL) == 0);
        require(setresgid(user, user, user) == 0);
        require(setresuid(user, user, user) == 0);
        umask(022);
        run();
        _exit(0);
    }
    assert_int_equal(child_wait(child), 0);
}

/* Root of a container may not have these users. */
static bool can_become_others(void)
{
    pid_t child = child_fork();

    if (child == 0)
        _exit(setgroups(0, NULL) == 0 && setresuid(ATTACKER, VICTIM, VICTIM) == 0 ? 0 : 1);
    return child_wait(child) == 0;
}

static void must_be_root(void)
{
    if (geteuid() != 0 || !can_become_others()) {
        print_message("skipped: only root can become two other users\n");
        skip();
    }
}

static int open_some(const char *directory)
{
    const struct segment_shape shape = some_shape();
    struct segment *segment = NULL;
    int r;

    error = (struct weir_error){0};
    r = segment_open(directory, &shape, &segment, &error);
    require((r == 0) == (segment != NULL));
    segment_close(segment);
    return r;
}

static void require_refused(const char *directory, int code, const char *why)
{
    int r = open_some(directory);

    if (r != code || !strstr(error.message, why))
        fprintf(stderr, "%d instead of %d, `%s` instead of `%s`\n", r, code, error.message, why);
    require(r == code && strstr(error.message, why));
}

/* ---- a segment that is there ---- */

static void open_in_place(void)
{
    require(open_some(place) == 0);
}

static void break_in(void)
{
    static struct segment_summary summary;
    struct stat found;
    char path[TMPDIR_SIZE + 8];

    require(stat(inside(SOME_FILE), &found) < 0 && errno == EACCES);
    require(open(inside(SOME_FILE), O_RDONLY | O_CLOEXEC) < 0 && errno == EACCES);
    require(open(inside(SOME_FILE), O_RDWR | O_CLOEXEC) < 0 && errno == EACCES);
    require(open(inside("new"), O_CREAT | O_RDWR | O_CLOEXEC, 0600) < 0 && errno == EACCES);
    require(open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC) < 0 && errno == EACCES);
    require(truncate(inside(SOME_FILE), 0) < 0 && errno == EACCES);
    require(unlink(inside(SOME_FILE)) < 0 && errno == EACCES);
    require(rename(inside(SOME_FILE), inside("new")) < 0 && errno == EACCES);
    require(chmod(place, 0777) < 0 && errno == EPERM);
    snprintf(path, sizeof(path), "%s-moved", place);
    require(rename(place, path) < 0 && errno == EPERM); /* /dev/shm is sticky */
    require(open_some(place) == -EACCES);
    require(segment_inspect(place, "set", &summary, &error) == -EACCES);
    require(segment_remove(place, "set", true, is_in_use, &error) == -EACCES);
}

static void no_other_user_reads_or_changes_it(void **state)
{
    uint64_t inode;

    (void)state;
    must_be_root();
    require(chown(place, VICTIM, VICTIM) == 0);
    as(VICTIM, open_in_place);
    inode = inode_of(inside(SOME_FILE));
    as(ATTACKER, break_in);
    assert_int_equal(inode_of(inside(SOME_FILE)), inode);
    as(VICTIM, open_in_place);
    assert_int_equal(inode_of(inside(SOME_FILE)), inode);
    assert_int_equal(unlink(inside(SOME_FILE)), 0);
}

/* Root may read all, and trusts only its own. */
static void root_uses_no_segment_of_another_user(void **state)
{
    (void)state;
    must_be_root();
    require(chown(place, VICTIM, VICTIM) == 0);
    as(VICTIM, open_in_place);
    require_refused(place, -EPERM, "it belongs to user 65533, not to user 0");
    require(chown(place, 0, 0) == 0);
    require_refused(place, -EPERM, "segment `set.weir`");
    require_refused(place, -EPERM, "it belongs to user 65533, not to user 0");
    assert_int_equal(unlink(inside(SOME_FILE)), 0);
}

/* ---- the default directory, taken by another ---- */

static void lay_a_directory(void)
{
    require(mkdir(default_directory, 0700) == 0);
}

static void lay_an_open_directory(void)
{
    require(mkdir(default_directory, 0700) == 0 && chmod(default_directory, 0777) == 0);
}

static void lay_a_link(void)
{
    require(mkdir(mine, 0777) == 0 && chmod(mine, 0777) == 0);
    require(symlink(mine, default_directory) == 0);
}

static void lay_a_link_to_what_is_theirs(void)
{
    require(symlink(place, default_directory) == 0);
}

static void lay_a_dangling_link(void)
{
    require(symlink(mine, default_directory) == 0);
}

static void lay_a_file(void)
{
    require(close(open(default_directory, O_CREAT | O_RDWR | O_CLOEXEC, 0666)) == 0);
}

static void lay_a_fifo(void)
{
    require(mkfifo(default_directory, 0666) == 0);
}

static void open_default_is_foreign(void)
{
    require_refused(NULL, -EPERM, "it belongs to user 65534, not to user 65533");
}

/* Another user may not even look into it. */
static void open_default_is_closed(void)
{
    require_refused(NULL, -EACCES, "cannot be opened: Permission denied");
}

static void open_default_is_a_link(void)
{
    require_refused(NULL, -EPERM, "it is a symbolic link or not a directory");
}

static void the_default_directory_taken_by_another_is_refused(void **state)
{
    static const struct {
        void (*lay)(void);
        void (*open)(void);
    } cases[] = {
        {lay_a_directory, open_default_is_closed},
        {lay_an_open_directory, open_default_is_foreign},
        {lay_a_link, open_default_is_a_link},
        {lay_a_link_to_what_is_theirs, open_default_is_a_link},
        {lay_a_dangling_link, open_default_is_a_link},
        {lay_a_file, open_default_is_a_link},
        {lay_a_fifo, open_default_is_a_link},
    };

    (void)state;
    must_be_root();
    if (inode_of(default_directory) != 0) {
        print_message("skipped: %s is in use\n", default_directory);
        skip();
    }
    require(chown(place, VICTIM, VICTIM) == 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        as(ATTACKER, cases[i].lay);
        as(VICTIM, cases[i].open);
        assert_int_equal(inode_of(in_default), 0);
        assert_int_equal(files_n(), 0);
        assert_int_equal(remove(default_directory), 0);
        rmdir(mine);
    }
}

static void open_default(void)
{
    require(open_some(NULL) == 0);
}

/* Made by the user that it is meant for, it is out of the reach of others. */
static void the_default_directory_is_safe_once_made(void **state)
{
    struct stat found;

    (void)state;
    must_be_root();
    if (inode_of(default_directory) != 0) {
        print_message("skipped: %s is in use\n", default_directory);
        skip();
    }
    as(VICTIM, open_default);
    assert_int_equal(stat(default_directory, &found), 0);
    assert_int_equal(found.st_uid, VICTIM);
    assert_int_equal(found.st_mode & 07777, 0700);
    assert_int_equal(stat(in_default, &found), 0);
    assert_int_equal(found.st_uid, VICTIM);
    assert_int_equal(found.st_mode & 07777, 0600);
    as(VICTIM, open_default);
    unlink(in_default);
    rmdir(default_directory);
}

/* ---- files in a directory that was open once ---- */

static void lay_foreign_file(void)
{
    require(close(open(inside(SOME_FILE), O_CREAT | O_RDWR | O_CLOEXEC, 0600)) == 0);
}

static void lay_foreign_file_open_to_all(void)
{
    lay_foreign_file();
    require(chmod(inside(SOME_FILE), 0666) == 0);
}

static void lay_link_to_precious(void)
{
    require(symlink(inside("precious"), inside(SOME_FILE)) == 0);
}

static void lay_link_to_nowhere(void)
{
    require(symlink("/dev/shm/nowhere", inside(SOME_FILE)) == 0);
}

static void lay_fifo(void)
{
    require(mkfifo(inside(SOME_FILE), 0666) == 0 && chmod(inside(SOME_FILE), 0666) == 0);
}

static void lay_directory(void)
{
    require(mkdir(inside(SOME_FILE), 0777) == 0);
}

/* The kernel may forbid it (protected_hardlinks), so root helps. */
static void lay_hard_link_to_precious(void)
{
    require(link(inside("precious"), inside(SOME_FILE)) == 0);
}

static void lay_wrong_mode(void)
{
    require(open_some(place) == 0 && chmod(inside(SOME_FILE), 0622) == 0);
}

static const char *why_refused;
static int code_of_refusal;

static void open_is_refused(void)
{
    require_refused(place, code_of_refusal, why_refused);
}

static void lay_precious(void)
{
    int fd = open(inside("precious"), O_CREAT | O_RDWR | O_CLOEXEC, 0600);

    require(fd >= 0 && write(fd, "precious", 8) == 8 && close(fd) == 0);
}

static void require_precious(void)
{
    char text[16] = "";
    int fd = open(inside("precious"), O_RDONLY | O_CLOEXEC);

    require(fd >= 0 && read(fd, text, 15) == 8 && strcmp(text, "precious") == 0);
    close(fd);
}

static void files_laid_beforehand_are_refused(void **state)
{
    static const struct {
        uid_t user;
        void (*lay)(void);
        int code;
        const char *why;
    } cases[] = {
        {ATTACKER, lay_foreign_file, -EACCES, "cannot be opened: Permission denied"},
        {ATTACKER, lay_foreign_file_open_to_all, -EPERM, "it belongs to user 65534, not to user"},
        {ATTACKER, lay_link_to_precious, -EPERM, "it is a symbolic link"},
        {ATTACKER, lay_link_to_nowhere, -EPERM, "it is a symbolic link"},
        {ATTACKER, lay_fifo, -EPERM, "it is not a regular file"},
        {ATTACKER, lay_directory, -EPERM, "it is a directory"},
        {VICTIM, lay_hard_link_to_precious, -EPERM, "it has 2 hard links"},
        {VICTIM, lay_wrong_mode, -EPERM, "its mode 0622 gives other users access"},
    };

    (void)state;
    must_be_root();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool first = cases[i].user == ATTACKER;

        assert_int_equal(chown(place, VICTIM, VICTIM), 0);
        as(VICTIM, lay_precious);
        assert_int_equal(chmod(place, first ? 01777 : 0700), 0);
        as(cases[i].user, cases[i].lay);
        if (first) { /* refused for the directory already */
            code_of_refusal = -EPERM;
            why_refused = "its mode 1777 gives other users access";
            as(VICTIM, open_is_refused);
        }
        assert_int_equal(chmod(place, 0700), 0);
        code_of_refusal = cases[i].code;
        why_refused = cases[i].why;
        as(VICTIM, open_is_refused);
        require_precious();
        assert_int_equal(inode_of("/dev/shm/nowhere"), 0);
        assert_int_equal(remove(inside(SOME_FILE)), 0);
        assert_int_equal(unlink(inside("precious")), 0);
    }
}

static int setup(void **state)
{
    snprintf(default_directory, sizeof(default_directory), "/dev/shm/weir-%u", VICTIM);
    snprintf(in_default, sizeof(in_default), "%s/" SOME_FILE, default_directory);
    snprintf(mine, sizeof(mine), "/dev/shm/weir-test-%d", (int)getpid());
    return place_setup(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(no_other_user_reads_or_changes_it),
        leak_checked_test(root_uses_no_segment_of_another_user),
        leak_checked_test(the_default_directory_taken_by_another_is_refused),
        leak_checked_test(the_default_directory_is_safe_once_made),
        leak_checked_test(files_laid_beforehand_are_refused),
    };

    return cmocka_run_group_tests(tests, setup, place_teardown);
}
