/* SPDX-License-Identifier: MIT */
/* Segments as other processes see them: listed with their state, removed unless in use. */
#include "lib/child.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/peer_slots.h"
#include "lib/segments.h"
#include "os/os.h"
#include "shm/peer_id.h"
#include "shm/segment.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <weir/segment.h>

#include <cmocka.h>

static struct weir_options options;

static struct segment *make(const char *name)
{
    struct segment_shape shape = some_shape();
    struct segment *segment = NULL;

    shape.name = name;
    if (segment_open(place, &shape, &segment, &error) < 0)
        fail_msg("%s", error.message);
    return segment;
}

/* ---- listening ---- */

#define SEEN_MAX 16

static struct {
    unsigned n, stop_at;
    struct {
        char name[64], path[256], definition[64], lifetime[8], refusal[512];
        int code;
        uint32_t users, creator;
        uint64_t created_ns, bytes;
    } items[SEEN_MAX];
} seen;

static int hear(void *userdata, const struct weir_segment *segment)
{
    assert_ptr_equal(userdata, &seen);
    assert_int_equal(segment->size, sizeof(*segment));
    assert_in_range(seen.n, 0, SEEN_MAX - 1);
#define KEEP(field)                                                                                \
    snprintf(seen.items[seen.n].field, sizeof(seen.items[0].field), "%s",                          \
             segment->field ? segment->field : "NULL")
    KEEP(name);
    KEEP(path);
    KEEP(definition);
    KEEP(lifetime);
    seen.items[seen.n].code = segment->refusal ? segment->refusal->code : 0;
    snprintf(seen.items[seen.n].refusal, sizeof(seen.items[0].refusal), "%s",
             segment->refusal ? segment->refusal->message : "");
    seen.items[seen.n].users = segment->users;
    seen.items[seen.n].creator = segment->creator;
    seen.items[seen.n].created_ns = segment->created_ns;
    seen.items[seen.n].bytes = segment->bytes;
    return ++seen.n == seen.stop_at;
}

static int listen_to(const struct weir_options *wanted)
{
    memset(&seen, 0, sizeof(seen));
    error = (struct weir_error){0};
    return weir_segments(wanted, hear, &seen, &error);
}

static int list(void)
{
    options = (struct weir_options){.size = sizeof(options), .process_dir = place};
    return listen_to(&options);
}

static int remove_set(const char *name, uint32_t flags)
{
    options = (struct weir_options){.size = sizeof(options), .process_dir = place};
    error = (struct weir_error){0};
    return weir_segment_remove(&options, name, flags, &error);
}

/* Takes part as a process would. */
static uint64_t join(const struct segment *segment, uint64_t life, uint32_t *ret_slot)
{
    uint64_t claimed = 0;

    assert_int_equal(segment_alloc_peer(segment, 0), 0);
    assert_int_equal(
        first_slot_claim(segment_peer(segment, 0), SEGMENT_PEERS_MAX, life, ret_slot, &claimed), 0);
    return claimed;
}

static uint64_t self(void)
{
    uint64_t life = 0;

    assert_int_equal(peer_id_self(&life), 0);
    return life;
}

/* ---- what is listed ---- */

static void an_empty_directory(void **state)
{
    (void)state;
    assert_int_equal(list(), 0);
    assert_int_equal(seen.n, 0);
    assert_int_equal(remove_set("set", 0), -ENOENT);
}

static void segments_come_by_name(void **state)
{
    static const char *const names[] = {"m/x", "z", "a b", "B"};
    struct segment *segments[4];

    (void)state;
    for (unsigned i = 0; i < 4; i++)
        segments[i] = make(names[i]);
    assert_int_equal(list(), 4);
    assert_string_equal(seen.items[0].name, "B");
    assert_string_equal(seen.items[1].name, "a b");
    assert_string_equal(seen.items[2].name, "m/x");
    assert_string_equal(seen.items[3].name, "z");
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(seen.items[i].code, 0);
        assert_string_equal(seen.items[i].definition, "{rate: tokens, capacity: 100}");
        assert_string_equal(seen.items[i].lifetime, "boot");
        assert_int_equal(seen.items[i].creator, getpid());
        assert_int_equal(seen.items[i].users, 0);
        assert_in_range(seen.items[i].bytes, 4096, 1 << 20);
        assert_int_equal(access(seen.items[i].path, F_OK), 0);
    }
    memset(&seen, 0, sizeof(seen));
    seen.stop_at = 2;
    assert_int_equal(weir_segments(&options, hear, &seen, NULL), 2);
    for (unsigned i = 0; i < 4; i++) {
        segment_close(segments[i]);
        assert_int_equal(remove_set(names[i], 0), 0);
    }
    assert_int_equal(list(), 0);
}

static void users_are_counted_once(void **state)
{
    struct segment *segment = make("set");
    uint32_t slots[3], users[2] = {7, 7};
    uint64_t lives[3];
    pid_t child;

    (void)state;
    lives[0] = join(segment, self(), &slots[0]);
    lives[1] = join(segment, self(), &slots[1]); /* another instance of this process */
    child = child_fork();
    if (child == 0)
        _exit(0);
    assert_true(child > 0);
    lives[2] = join(segment, peer_id_make(0, 0, (uint32_t)child), &slots[2]);
    assert_int_equal(child_wait(child), 0);
    assert_int_equal(list(), 1);
    assert_int_equal(seen.items[0].users, 1); /* and not the dead one */
    assert_int_equal(weir_segment_users(&options, "set", NULL, 0, &error), 1);
    assert_int_equal(weir_segment_users(&options, "set", users, 2, &error), 1);
    assert_int_equal(users[0], getpid());
    assert_int_equal(users[1], 7);
    assert_int_equal(weir_segment_users(&options, "other", users, 2, &error), -ENOENT);
    assert_int_equal(error.code, -ENOENT);
    assert_int_equal(remove_set("set", 0), -EBUSY);
    assert_non_null(strstr(error.message, "in use"));
    for (unsigned i = 0; i < 2; i++)
        assert_true(peer_slot_free(segment_peer(segment, slots[i]), lives[i]));
    assert_int_equal(list(), 1);
    assert_int_equal(seen.items[0].users, 0);
    assert_int_equal(weir_segment_users(&options, "set", users, 2, &error), 0);
    segment_close(segment);
    assert_int_equal(remove_set("set", 0), 0); /* the dead do not count */
}

static void force_removes_what_is_used(void **state)
{
    struct segment *segment = make("set");
    uint32_t slot;

    (void)state;
    join(segment, self(), &slot);
    assert_int_equal(remove_set("set", 0), -EBUSY);
    assert_int_equal(remove_set("set", WEIR_SEGMENT_FORCE), 0);
    assert_int_equal(list(), 0);
    segment_close(segment);
}

static void the_unusable_say_why(void **state)
{
    int fd;

    (void)state;
    segment_close(make("namespace"));
    fake_os_set_namespaces(77, 78);
    assert_int_equal(list(), 1);
    assert_int_equal(seen.items[0].code, -EXDEV);
    assert_int_equal(weir_segment_users(&options, "namespace", NULL, 0, NULL), -EXDEV);
    assert_non_null(strstr(seen.items[0].refusal, "namespace"));
    assert_string_equal(seen.items[0].definition, "NULL");
    assert_string_equal(seen.items[0].lifetime, "NULL");
    assert_int_equal(remove_set("namespace", 0), -EXDEV);
    assert_int_equal(remove_set("namespace", WEIR_SEGMENT_FORCE), 0);

    segment_close(make("stale"));
    fake_os_set_boot(77);
    assert_int_equal(list(), 1);
    assert_int_equal(seen.items[0].code, -ESTALE);
    assert_non_null(strstr(seen.items[0].refusal, "earlier boot"));
    assert_int_equal(remove_set("stale", 0), 0);

    fd = open(inside("junk.weir"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, "junk", 4) == 4);
    close(fd);
    fd = open(inside("no segment"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(list(), 1);
    assert_int_equal(seen.items[0].code, -EUCLEAN);
    assert_int_equal(remove_set("junk", 0), -EUCLEAN);
    assert_int_equal(remove_set("junk", WEIR_SEGMENT_FORCE), 0);
    assert_int_equal(list(), 0);
    unlink(inside("no segment"));
}

/* A callback may remove what it is told of. */
static int remove_it(void *userdata, const struct weir_segment *segment)
{
    (void)userdata;
    assert_int_equal(weir_segment_remove(&options, segment->name, 0, &error), 0);
    return 0;
}

/* A process is attached to it, or was. */
static struct segment *make_used(const char *name)
{
    struct segment *segment = make(name);

    segment_header(segment)->registrations = 1;
    return segment;
}

static void assert_nameless(unsigned i, const char *name, uint32_t users, const char *why)
{
    assert_string_equal(seen.items[i].name, name);
    assert_string_equal(seen.items[i].definition, "NULL");
    assert_int_equal(seen.items[i].code, -EIDRM);
    assert_int_equal(seen.items[i].users, users);
    if (!strstr(seen.items[i].refusal, why))
        fail_msg("`%s` does not say `%s`", seen.items[i].refusal, why);
}

static void those_without_a_name_come_last(void **state)
{
    struct segment *removed = make_used("a"), *lost = make_used("m/x"), *unused = make("b");
    struct segment *named = make_used("z");

    (void)state;
    assert_int_equal(remove_set("a", WEIR_SEGMENT_FORCE), 0);
    unlink(inside("m%2Fx.weir"));
    unlink(inside("b.weir"));
    assert_int_equal(list(), 3);
    assert_string_equal(seen.items[0].name, "z");
    assert_int_equal(seen.items[0].code, 0);
    if (strcmp(seen.items[1].name, "a") == 0) {
        assert_nameless(1, "a", 1, "it was removed by force");
        assert_nameless(2, "m/x", 1, "its file was removed");
        assert_string_equal(seen.items[2].path, inside("m%2Fx.weir"));
    } else {
        assert_nameless(1, "m/x", 1, "its file was removed");
        assert_nameless(2, "a", 1, "it was removed by force");
    }
    seen.n = 0;
    seen.stop_at = 1;
    assert_int_equal(weir_segments(&options, hear, &seen, NULL), 1);
    assert_int_equal(remove_set("z", 0), 0);
    segment_close(removed);
    segment_close(lost);
    segment_close(unused);
    segment_close(named);
    assert_int_equal(list(), 0);
}

static void a_process_counts_once_without_a_name(void **state)
{
    struct segment *first = make_used("a"), *second = make("a");
    int ends[2];
    pid_t pid;
    char byte;

    (void)state;
    unlink(inside("a.weir"));
    assert_int_equal(list(), 1);
    assert_nameless(0, "a", 1, "still uses it");
    assert_int_equal(pipe(ends), 0);
    pid = child_fork();
    if (pid == 0) /* has the descriptors as well */
        _exit(read(ends[0], &byte, 1) == 1 ? 0 : 1);
    assert_int_equal(list(), 1);
    assert_nameless(0, "a", 2, " and 1 other ");
    assert_int_equal(write(ends[1], "!", 1), 1);
    assert_true(child_exited(child_wait(pid), 0));
    close(ends[0]);
    close(ends[1]);
    segment_close(first);
    segment_close(second);
}

static void a_directory_that_is_gone_is_searched(void **state)
{
    struct segment *segment = make_used("a"), *other;

    (void)state;
    unlink(inside("a.weir"));
    assert_int_equal(rmdir(place), 0);
    assert_int_equal(list(), 1);
    assert_nameless(0, "a", 1, "the limits hold in each");
    assert_int_equal(mkdir(place, 0700), 0);
    other = make_used("a");
    assert_int_equal(list(), 2);
    assert_int_equal(seen.items[0].code, 0);
    assert_nameless(1, "a", 1, "the limits hold in each");
    segment_close(segment);
    segment_close(other);
    assert_int_equal(remove_set("a", 0), 0);
}

static void a_listener_may_remove(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 40; i++) {
        char name[16];

        snprintf(name, sizeof(name), "set%u", i);
        segment_close(make(name));
    }
    options = (struct weir_options){.size = sizeof(options), .process_dir = place};
    assert_int_equal(weir_segments(&options, remove_it, NULL, &error), 40);
    assert_int_equal(list(), 0);
}

/* ---- which directory ---- */

static void the_directory_is_that_of_weir_open(void **state)
{
    char text[64 + TMPDIR_SIZE];

    (void)state;
    segment_close(make("set"));
    snprintf(text, sizeof(text), "{version: 1, process_dir: %s}", place);
    options = (struct weir_options){.size = sizeof(options), .text = text};
    assert_int_equal(listen_to(&options), 1);
    options.process_dir = "/nowhere/at/all"; /* comes first; it is not made yet */
    assert_int_equal(listen_to(&options), 0);
    options = (struct weir_options){.size = sizeof(options)};
    setenv("WEIR_PROCESS_DIR", place, 1);
    assert_int_equal(listen_to(&options), 1);
    setenv("WEIR_PROCESS_DIR", "/nowhere/at/all", 1);
    assert_int_equal(listen_to(&options), 0);
    options.text = text;
    assert_int_equal(listen_to(&options), 1);
    unsetenv("WEIR_PROCESS_DIR");
    assert_int_equal(weir_segment_remove(&options, "set", 0, &error), 0);
    assert_int_equal(listen_to(&options), 0);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
#define ASSERT_WRONG(expected, why, ...)                                                           \
    options = (struct weir_options){.size = sizeof(options), __VA_ARGS__};                         \
    assert_int_equal(listen_to(&options), expected);                                               \
    assert_int_equal(error.code, expected);                                                        \
    if (!strstr(error.message, why))                                                               \
        fail_msg("`%s` does not say `%s`", error.message, why);                                    \
    assert_int_equal(weir_segment_remove(&options, "set", 0, NULL), expected)
    ASSERT_WRONG(-EINVAL, "absolute", .process_dir = "relative");
    ASSERT_WRONG(-EINVAL, "absolute", .text = "{version: 1, process_dir: relative}");
    ASSERT_WRONG(-EINVAL, "unknown field", .text = "{version: 1, proces_dir: /tmp}");
    ASSERT_WRONG(-EINVAL, "both", .text = "", .file = "x");
    ASSERT_WRONG(-ENOENT, "cannot be read", .file = "/nowhere/at/all");
    options.size = 1;
    assert_int_equal(listen_to(&options), -EINVAL);
    options = (struct weir_options){.size = sizeof(options), .process_dir = place};
    assert_int_equal(weir_segments(&options, NULL, NULL, NULL), -EINVAL);
    assert_int_equal(remove_set(NULL, 0), -EINVAL);
    assert_int_equal(remove_set("set", 2), -EINVAL);
    assert_int_equal(remove_set("", 0), -EINVAL);
    assert_int_equal(chmod(place, 0750), 0);
    assert_int_equal(list(), -EPERM);
    assert_int_equal(chmod(place, 0700), 0);
}

/* ---- looking without making ---- */

static void an_observer_makes_nothing(void **state)
{
    static const char text[] = "version: 1\nsets: { set: { backend: process, limits:"
                               " [ { type: resource, key: slots, capacity: 4 } ] } }\n";
    weir *w = NULL, *observer = NULL;

    (void)state;
    options = (struct weir_options){
        .size = sizeof(options), .text = text, .process_dir = place, .flags = WEIR_OPEN_EXISTING};
    assert_int_equal(weir_open(&observer, &options, &error), -ENOENT);
    assert_non_null(strstr(error.message, "there is no segment"));
    assert_int_equal(files_n(), 0);
    options.flags = 0;
    assert_int_equal(weir_open(&w, &options, &error), 0);
    options.flags = WEIR_OPEN_EXISTING;
    assert_int_equal(weir_open(&observer, &options, &error), 0);
    assert_int_equal(list(), 1);
    assert_int_equal(seen.items[0].users, 1);
    weir_close(observer);
    weir_close(w);
    fake_os_set_boot(77); /* a stale one is as good as none */
    options = (struct weir_options){
        .size = sizeof(options), .text = text, .process_dir = place, .flags = WEIR_OPEN_EXISTING};
    assert_int_equal(weir_open(&observer, &options, &error), -ENOENT);
    assert_int_equal(list(), 0);
    options.text = "version: 1";
    options.flags = 1u << 30;
    assert_int_equal(weir_open(&observer, &options, &error), -EINVAL);
}

/* ---- failures ---- */

/* Whichever call fails: an error or the truth, and nothing is left behind. */
static void every_call_may_fail(void **state)
{
    char text[64 + TMPDIR_SIZE];

    (void)state;
    segment_close(make("one"));
    segment_close(make("two"));
    snprintf(text, sizeof(text), "{version: 1, process_dir: %s}", place);
    for (uint64_t n = 1;; n++) {
        int r;

        options = (struct weir_options){.size = sizeof(options), .text = text};
        fake_os_fail_at(n);
        r = listen_to(&options);
        if (!fake_os_has_failed())
            break;
        fake_os_reset();
        if (r < 0)
            assert_int_equal(error.code, r);
        for (unsigned i = 0; i < seen.n; i++)
            assert_true(seen.items[i].code != 0 || strlen(seen.items[i].definition) > 4);
        assert_int_equal(listen_to(&options), 2);
    }
    fake_os_reset();
    for (uint64_t n = 1;; n++) {
        int r;
        bool has_failed;

        fake_os_fail_at(n);
        r = weir_segment_users(&options, "one", NULL, 0, &error);
        has_failed = fake_os_has_failed();
        fake_os_reset();
        assert_true(r == 0 || (has_failed && error.code == r));
        fake_os_fail_at(n);
        r = weir_segment_remove(&options, "one", 0, &error);
        has_failed = fake_os_has_failed();
        fake_os_reset();
        if (r == 0 && !has_failed)
            break;
        if (r == 0)
            segment_close(make("one"));
    }
    assert_int_equal(weir_segment_remove(&options, "two", 0, &error), 0);
    assert_int_equal(files_n(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(an_empty_directory),
        leak_checked_test(segments_come_by_name),
        leak_checked_test(users_are_counted_once),
        leak_checked_test(force_removes_what_is_used),
        leak_checked_test(the_unusable_say_why),
        leak_checked_test(those_without_a_name_come_last),
        leak_checked_test(a_process_counts_once_without_a_name),
        leak_checked_test(a_directory_that_is_gone_is_searched),
        leak_checked_test(a_listener_may_remove),
        leak_checked_test(the_directory_is_that_of_weir_open),
        leak_checked_test(wrong_options_are_refused),
        leak_checked_test(an_observer_makes_nothing),
        leak_checked_test(every_call_may_fail),
    };

    return cmocka_run_group_tests(tests, place_setup, place_teardown);
}
