/* SPDX-License-Identifier: MIT */
/* Directories of segments: which are refused, and how sets and their files are named. */
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/require.h"
#include "lib/tmpdir.h"
#include "os/os.h"
#include "shm/segment.h"
#include "shm/segment_dir.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char place[TMPDIR_SIZE]; /* holds everything, and goes afterwards */
static struct weir_error error;

static const char *inside(const char *name)
{
    static char path[2][300];
    static int turn;

    turn = !turn;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", place, name);
    return path[turn];
}

static void make_file(const char *name)
{
    int fd = open(inside(name), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    close(fd);
}

static void assert_refused(const char *path, int code, const char *why)
{
    error = (struct weir_error){0};
    assert_int_equal(segment_dir_open(path, true, &error), code);
    assert_int_equal(error.code, code);
    if (!strstr(error.message, why))
        fail_msg("`%s` does not say `%s`", error.message, why);
}

static void assert_opens(const char *path)
{
    int fd = segment_dir_open(path, true, &error);

    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    os_close(fd);
}

/* ---- which are refused ---- */

static void a_private_directory_is_opened(void **state)
{
    (void)state;
    assert_int_equal(mkdir(inside("own"), 0700), 0);
    assert_opens(inside("own"));
    assert_opens(inside("own//"));
    assert_int_equal(chmod(inside("own"), 0500), 0); /* less is our own loss */
    assert_opens(inside("own"));
    rmdir(inside("own"));
}

static void one_that_lets_others_in_is_refused(void **state)
{
    static const mode_t modes[] = {0701, 0702, 0704, 0710, 0720, 0740, 0755, 01777};
    char text[16];

    (void)state;
    assert_int_equal(mkdir(inside("open"), 0700), 0);
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        assert_int_equal(chmod(inside("open"), modes[i]), 0);
        snprintf(text, sizeof(text), "mode %04o", modes[i]);
        assert_refused(inside("open"), -EPERM, text);
    }
    rmdir(inside("open"));
}

static void one_of_another_user_is_refused(void **state)
{
    (void)state;
    fake_os_set_user(12345);
    assert_refused(place, -EPERM, "not to user 12345");
}

static void links_and_files_are_refused(void **state)
{
    (void)state;
    assert_int_equal(symlink(place, inside("link")), 0);
    assert_int_equal(symlink(inside("nowhere"), inside("dangling")), 0);
    make_file("file");
    assert_refused(inside("link"), -EPERM, "symbolic link");
    assert_refused(inside("link/"), -EPERM, "symbolic link");
    assert_refused(inside("link///"), -EPERM, "symbolic link");
    assert_refused(inside("dangling"), -EPERM, "symbolic link");
    assert_refused(inside("file"), -EPERM, "not a directory");
    assert_refused(inside("missing"), -ENOENT, "cannot be opened");
    assert_refused("", -ENOENT, "cannot be opened");
    unlink(inside("link"));
    unlink(inside("dangling"));
    unlink(inside("file"));
}

static void an_endless_path_is_refused(void **state)
{
    char path[5000];

    (void)state;
    memset(path, 'x', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    assert_refused(path, -ENAMETOOLONG, "cannot be opened");
}

/* Made if it is not there, only then, and with the right mode whatever the umask. */
static void the_default_directory_is_made(void **state)
{
    char path[SEGMENT_DIR_PATH_SIZE];
    struct stat found;
    mode_t before = umask(0);

    (void)state;
    fake_os_set_user(4294967295u);
    segment_dir_default(path);
    assert_string_equal(path, "/dev/shm/weir-4294967295");
    rmdir(path);
    assert_int_equal(segment_dir_open(NULL, false, &error), -ENOENT);
    /* It is not really that user's, so it is made, and then refused. */
    assert_refused(NULL, -EPERM, "not to user 4294967295");
    umask(before);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 07777, 0700);
    rmdir(path);
}

static void a_configured_directory_is_not_made(void **state)
{
    struct stat found;

    (void)state;
    assert_refused(inside("configured"), -ENOENT, "configured");
    assert_int_equal(stat(inside("configured"), &found), -1);
}

static void failures_are_reported_and_leave_nothing(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        int fd;

        fake_os_fail_at(n);
        fd = segment_dir_open(NULL, true, &error);
        if (!fake_os_has_failed()) {
            assert_true(fd >= 0);
            assert_true(n > 3);
            os_close(fd);
            break;
        }
        assert_true(fd == -EIO || fd == -EMFILE);
        assert_int_equal(error.code, fd);
    }
    fake_os_reset();
    {
        char path[SEGMENT_DIR_PATH_SIZE];

        segment_dir_default(path);
        rmdir(path); /* unless in use */
    }
}

/* ---- names ---- */

static void assert_named(const char *set, const char *file)
{
    char encoded[SEGMENT_DIR_FILE_SIZE], with_suffix[300], decoded[SEGMENT_DIR_FILE_SIZE];

    assert_int_equal(segment_dir_encode(set, encoded), 0);
    assert_string_equal(encoded, file);
    snprintf(with_suffix, sizeof(with_suffix), "%s.weir", file);
    assert_true(segment_dir_decode(with_suffix, decoded));
    assert_string_equal(decoded, set);
}

static void names_are_encoded(void **state)
{
    (void)state;
    assert_named("build", "build");
    assert_named("Az-09_", "Az-09_");
    assert_named(".", "%2E");
    assert_named("..", "%2E%2E");
    assert_named("a/b", "a%2Fb");
    assert_named("../../etc/passwd", "%2E%2E%2F%2E%2E%2Fetc%2Fpasswd");
    assert_named("100%", "100%25");
    assert_named("a b\n", "a%20b%0A");
    assert_named("é", "%C3%A9");
    assert_named("\x01\xff", "%01%FF");
    assert_named("x.weir", "x%2Eweir");
}

static void names_have_a_length(void **state)
{
    char name[300], encoded[SEGMENT_DIR_FILE_SIZE] = "untouched";

    (void)state;
    assert_int_equal(segment_dir_encode("", encoded), -EINVAL);
    memset(name, 'x', sizeof(name));
    name[SEGMENT_DIR_STEM_MAX] = '\0';
    assert_named(name, name);
    name[SEGMENT_DIR_STEM_MAX] = 'x';
    name[SEGMENT_DIR_STEM_MAX + 1] = '\0';
    assert_int_equal(segment_dir_encode(name, encoded), -ENAMETOOLONG);
    name[SEGMENT_DIR_STEM_MAX - 2] =
        '/'; /* ends on the last byte but two: three more fit no more */
    name[SEGMENT_DIR_STEM_MAX - 1] = '\0';
    assert_int_equal(segment_dir_encode(name, encoded), -ENAMETOOLONG);
    name[SEGMENT_DIR_STEM_MAX - 3] = '/';
    name[SEGMENT_DIR_STEM_MAX - 2] = '\0';
    assert_int_equal(segment_dir_encode(name, encoded), 0);
    assert_int_equal(strlen(encoded), SEGMENT_DIR_STEM_MAX);
}

static void other_files_belong_to_no_set(void **state)
{
    static const char *const files[] = {
        "",         ".weir",      "x",        "x.wei",      "x.weir2",     "x.y.weir",
        "x.1.bell", "%2e.weir",   "%.weir",   "%2.weir",    "%4a.weir",    "%61.weir",
        "%00.weir", "a%00b.weir", "a b.weir", "\xc3.weir",  "x.weir.weir", "x.0.1.bell",
        "%G1.weir", "%1G.weir",   "a%",       "a%.weirweir"};
    char decoded[SEGMENT_DIR_FILE_SIZE] = "untouched";

    (void)state;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (segment_dir_decode(files[i], decoded))
            fail_msg("`%s` is said to be of `%s`", files[i], decoded);
    assert_string_equal(decoded, "untouched");
}

static void random_names_come_back(void **state)
{
    uint64_t random;

    (void)state;
    seed_begin();
    random = test_seed;
    for (int i = 0; i < 20000; i++) {
        char name[80], encoded[SEGMENT_DIR_FILE_SIZE + 8], decoded[SEGMENT_DIR_FILE_SIZE];
        size_t n = 1 + random_below(&random, 66);

        for (size_t j = 0; j < n; j++)
            name[j] = (char)(1 + random_below(&random, 255));
        name[n] = '\0';
        require(segment_dir_encode(name, encoded) == 0);
        require(!strpbrk(encoded, "./"));
        strcat(encoded, ".weir");
        require(segment_dir_decode(encoded, decoded));
        require(strcmp(decoded, name) == 0);
    }
}

/* ---- listing ---- */

static int remember(void *userdata, const char *set)
{
    char *all = userdata;

    strcat(strcat(all, set), ";");
    return strcmp(set, "stop") == 0 ? 7 : 0;
}

static int complain_of(void *userdata, const char *set)
{
    (void)userdata;
    (void)set;
    return -EXFULL;
}

static void segments_are_listed(void **state)
{
    char all[100] = "";

    (void)state;
    assert_int_equal(segment_dir_list(place, remember, all, &error), 0);
    assert_string_equal(all, "");
    make_file("a%2Fb.weir");
    make_file("a%2Fb.0.1.bell");
    make_file("other");
    assert_int_equal(segment_dir_list(place, remember, all, &error), 0);
    assert_string_equal(all, "a/b;");
    assert_int_equal(segment_dir_list(place, complain_of, NULL, &error), -EXFULL);
    unlink(inside("a%2Fb.weir"));
    make_file("stop.weir");
    assert_int_equal(segment_dir_list(place, remember, all, &error), 7);
    assert_int_equal(segment_dir_list(inside("missing"), remember, all, &error), -ENOENT);
    unlink(inside("a%2Fb.0.1.bell"));
    unlink(inside("stop.weir"));
    unlink(inside("other"));
}

static void listing_may_fail(void **state)
{
    char all[100];

    (void)state;
    make_file("x.weir");
    for (uint64_t n = 1;; n++) {
        int r;

        all[0] = '\0';
        fake_os_fail_at(n);
        r = segment_dir_list(place, remember, all, &error);
        if (!fake_os_has_failed()) {
            assert_int_equal(r, 0);
            assert_true(n > 4);
            break;
        }
        assert_true(r == -EIO || r == -EMFILE);
        assert_int_equal(error.code, r);
    }
    unlink(inside("x.weir"));
}

static int group_setup(void **state)
{
    (void)state;
    return tmpdir_make(place, "/tmp") ? 0 : -1;
}

/* Fails if a test left anything there. */
static int group_teardown(void **state)
{
    (void)state;
    return rmdir(place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_private_directory_is_opened),
        leak_checked_test(one_that_lets_others_in_is_refused),
        leak_checked_test(one_of_another_user_is_refused),
        leak_checked_test(links_and_files_are_refused),
        leak_checked_test(an_endless_path_is_refused),
        leak_checked_test(the_default_directory_is_made),
        leak_checked_test(a_configured_directory_is_not_made),
        leak_checked_test(failures_are_reported_and_leave_nothing),
        leak_checked_test(names_are_encoded),
        leak_checked_test(names_have_a_length),
        leak_checked_test(other_files_belong_to_no_set),
        leak_checked_test(random_names_come_back),
        leak_checked_test(segments_are_listed),
        leak_checked_test(listing_may_fail),
    };

    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
