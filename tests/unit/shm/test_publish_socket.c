/* SPDX-License-Identifier: MIT */
/* Sockets at which processes tell their sets: made whole or not at all, and swept once they are of
 * the dead, and no others. */
#include "lib/children.h"
#include "lib/tmpdir.h"
#include "shm/publish_socket.h"
#include "shm/segment_dir.h"

#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/un.h>

static char place[TMPDIR_SIZE];

/* A process id that no process has: the kernel gives out none above 4194304. */
#define NO_PROCESS "4999999"

static int setup(void **state)
{
    return tmpdir_make(place, NULL) ? fixture_setup(state) : -1;
}

static int teardown(void **state)
{
    return fixture_teardown(state) == 0 && tmpdir_remove(place) ? 0 : -1;
}

static int directory(void)
{
    int fd = segment_dir_open(place, false, NULL);

    assert_true(fd >= 0);
    return fd;
}

static int sweep(void)
{
    int fd = directory(), r = publish_socket_sweep(fd);

    os_close(fd);
    return r;
}

static const char *path_of(const char *name)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/%s", place, name);
    return path;
}

static bool is_there(const char *name)
{
    struct stat found;

    return lstat(path_of(name), &found) == 0;
}

static unsigned entries(void)
{
    DIR *list = opendir(place);
    const struct dirent *entry;
    unsigned n = 0;

    while ((entry = readdir(list)))
        n += entry->d_name[0] != '.';
    closedir(list);
    return n;
}

/* Binds a socket; listens if asked. */
static int bound(const char *name, bool listens)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path_of(name));
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    if (listens)
        assert_int_equal(listen(fd, 1), 0);
    return fd;
}

static void its_name_tells_process_and_number(void **state)
{
    struct publish_socket made;
    char begin[32];

    (void)state;
    assert_int_equal(publish_socket_open(&made, directory(), 7), 0);
    snprintf(begin, sizeof(begin), "%d.7.", getpid());
    assert_memory_equal(made.name, begin, strlen(begin));
    assert_int_equal(strlen(made.name), strlen(begin) + 16 + strlen(PUBLISH_SUFFIX));
    assert_int_equal(entries(), 1);
    assert_int_equal(os_socket_is_heard(made.directory_fd, made.name), 1);
    publish_socket_close(&made, false);
    assert_int_equal(entries(), 0);
}

/* What a sweep could take for that of the dead has another name. */
static void it_has_its_name_once_it_listens(void **state)
{
    struct publish_socket made;
    _Alignas(struct inotify_event) char events[4096];
    int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK), renamed = 0;
    ssize_t n;

    (void)state;
    assert_true(watch >= 0);
    assert_true(inotify_add_watch(watch, place, IN_CREATE | IN_MOVED_TO) >= 0);
    assert_int_equal(publish_socket_open(&made, directory(), 1), 0);
    n = read(watch, events, sizeof(events));
    assert_true(n > 0);
    for (ssize_t at = 0; at < n;) {
        const struct inotify_event *event = (const void *)(events + at);

        if (event->mask & IN_CREATE)
            assert_non_null(strstr(event->name, PUBLISH_SUFFIX FRESH_SUFFIX));
        else
            assert_string_equal(event->name, made.name);
        renamed += (event->mask & IN_MOVED_TO) != 0;
        at += (ssize_t)(sizeof(*event) + event->len);
    }
    assert_int_equal(renamed, 1);
    close(watch);
    publish_socket_close(&made, false);
}

static void in_a_child_the_name_stays(void **state)
{
    struct publish_socket made, copy;

    (void)state;
    assert_int_equal(publish_socket_open(&made, directory(), 1), 0);
    copy = made;
    copy.fd = copy.directory_fd = -1;
    publish_socket_close(&copy, true);
    assert_int_equal(entries(), 1);
    publish_socket_close(&made, false);
}

/* Longer than the address of a socket may be. */
static void the_directory_may_have_a_long_path(void **state)
{
    struct publish_socket made;
    char long_path[256];
    int fd;

    (void)state;
    snprintf(long_path, sizeof(long_path), "%s/%0120d", place, 1);
    assert_int_equal(mkdir(long_path, 0700), 0);
    fd = segment_dir_open(long_path, false, NULL);
    assert_int_equal(publish_socket_open(&made, fd, 1), 0);
    assert_int_equal(os_socket_is_heard(made.directory_fd, made.name), 1);
    publish_socket_close(&made, false);
    assert_int_equal(rmdir(long_path), 0);
}

static void what_nothing_listens_at_is_swept(void **state)
{
    static const char *const dead[] = {NO_PROCESS ".1.0123456789abcdef.sock",
                                       NO_PROCESS ".1.0123456789abcdef.sock.new",
                                       NO_PROCESS ".23.00000000000000ff.sock"};

    (void)state;
    for (size_t i = 0; i < 3; i++)
        close(bound(dead[i], i != 1));
    assert_int_equal(entries(), 3);
    assert_int_equal(sweep(), 0);
    assert_int_equal(entries(), 0);
}

/* As a process of another pid namespace would: its number means nothing here. */
static void what_is_listened_at_stays(void **state)
{
    static const char name[] = NO_PROCESS ".1.0123456789abcdef.sock";
    int fd = bound(name, true);

    (void)state;
    for (int i = 0; i < 9; i++) { /* more connections than it takes */
        assert_int_equal(sweep(), 0);
        assert_true(is_there(name));
    }
    close(fd);
    assert_int_equal(sweep(), 0);
    assert_false(is_there(name));
}

/* It may be about to listen. */
static void what_an_existing_process_has_made_stays(void **state)
{
    char name[64];

    (void)state;
    snprintf(name, sizeof(name), "%d.1.0123456789abcdef.sock.new", getpid());
    close(bound(name, false));
    assert_int_equal(sweep(), 0);
    assert_true(is_there(name));
}

static void other_files_stay(void **state)
{
    static const char *const names[] = {
        "a.weir",
        NO_PROCESS ".1.0123456789abcdef.sock.old",
        NO_PROCESS ".1.0123456789abcdef.socket",
        NO_PROCESS ".1.sock",
        NO_PROCESS ".x.0123456789abcdef.sock",
        "x.1.0123456789abcdef.sock",
        NO_PROCESS "." NO_PROCESS NO_PROCESS ".0123456789abcdef.sock",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        close(bound(names[i], false));
    assert_int_equal(sweep(), 0);
    assert_int_equal(entries(), sizeof(names) / sizeof(names[0]));
}

/* The kernel refuses a connection to it as to one of the dead. */
static void a_file_of_such_a_name_goes_too(void **state)
{
    static const char name[] = NO_PROCESS ".1.0123456789abcdef.sock";
    FILE *file = fopen(path_of(name), "w");

    (void)state;
    fclose(file);
    assert_int_equal(sweep(), 0);
    assert_false(is_there(name));
}

static void each_failing_call_leaves_nothing(void **state)
{
    struct publish_socket made;
    uint64_t n = 0;
    bool done;
    int r;

    (void)state;
    close(bound(NO_PROCESS ".1.0123456789abcdef.sock", true)); /* something to sweep */
    do {
        int fd = directory();

        fake_os_fail_kind_at(++n, FAKE_ANY | FAKE_PROCESS | FAKE_EVENT, 0);
        r = publish_socket_open(&made, fd, 1);
        done = !fake_os_has_failed();
        fake_os_fail_kind_at(0, 0, 0);
        if (r == 0)
            publish_socket_close(&made, false);
        assert_int_equal(sweep(), 0);
        assert_int_equal(entries(), 0);
    } while (!done);
    assert_true(n > 3);
}

static void in_a_directory_that_is_gone_it_is_an_error(void **state)
{
    struct publish_socket made;
    int fd = directory();

    (void)state;
    assert_int_equal(rmdir(place), 0);
    assert_true(publish_socket_open(&made, fd, 1) < 0);
    assert_int_equal(mkdir(place, 0700), 0);
}

/* Sweeps all the time, as processes of another pid namespace do: no process exists for them. */
static _Atomic bool sweeps;

static void *keep_sweeping(void *unused)
{
    (void)unused;
    while (atomic_load(&sweeps))
        sweep();
    return NULL;
}

static void what_is_made_amid_sweeps_is_heard(void **state)
{
    pthread_t thread;

    (void)state;
    atomic_store(&sweeps, true);
    fake_os_fail_kind_from(1, FAKE_PROCESS, -ESRCH);
    assert_int_equal(pthread_create(&thread, NULL, keep_sweeping, NULL), 0);
    for (int i = 0; i < 300; i++) {
        struct publish_socket made;
        int r = publish_socket_open(&made, directory(), 1);

        assert_int_equal(r, 0);
        assert_int_equal(os_socket_is_heard(made.directory_fd, made.name), 1);
        publish_socket_close(&made, false);
    }
    atomic_store(&sweeps, false);
    pthread_join(thread, NULL);
    assert_int_equal(entries(), 0);
}

#define place_test(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        place_test(its_name_tells_process_and_number),
        place_test(it_has_its_name_once_it_listens),
        place_test(in_a_child_the_name_stays),
        place_test(the_directory_may_have_a_long_path),
        place_test(what_nothing_listens_at_is_swept),
        place_test(what_is_listened_at_stays),
        place_test(what_an_existing_process_has_made_stays),
        place_test(other_files_stay),
        place_test(a_file_of_such_a_name_goes_too),
        place_test(each_failing_call_leaves_nothing),
        place_test(in_a_directory_that_is_gone_it_is_an_error),
        place_test(what_is_made_amid_sweeps_is_heard),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
