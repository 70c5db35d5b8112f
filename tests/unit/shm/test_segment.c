/* SPDX-License-Identifier: MIT */
/* Segments: made once, attached to by processes that mean the same, trusted by none. */
#include "lib/child.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/open_segments.h"
#include "os/os.h"
#include "shm/doorbell.h"
#include "shm/key_table.h"
#include "shm/segment.h"
#include "shm/segment_definition.h"
#include "state/version.h"
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>

static void assert_refused(const struct segment_shape *shape, int code, const char *why)
{
    struct segment *segment = NULL;

    error = (struct weir_error){0};
    assert_int_equal(segment_open(place, shape, &segment, &error), code);
    assert_null(segment);
    assert_int_equal(error.code, code);
    if (!strstr(error.message, why))
        fail_msg("`%s` does not say `%s`", error.message, why);
    assert_int_equal(segment_open(place, shape, &segment, NULL), code);
}

static void assert_some_refused(int code, const char *why)
{
    const struct segment_shape shape = some_shape();

    assert_refused(&shape, code, why);
}

static const char *definition_of(const struct segment *of)
{
    return (const char *)of->base + SEGMENT_DEFINITION_AT;
}

static int readable(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};

    return poll(&poller, 1, 0);
}

/* A doorbell of a process that has died. */
static void leave_doorbell(void)
{
    assert_int_equal(mkfifo(inside("set.0123456789abcdef.0.0.bell"), 0600), 0);
}

/* ---- layout ---- */

static void parts_are_apart_and_aligned(void **state)
{
    (void)state;
    for (uint32_t class = BLOCK_CLASS_MIN; class <= BLOCK_CLASS_MAX; class ++) {
        struct segment_shape shape = some_shape();
        struct segment_layout layout;
        size_t block = (size_t)1 << class;

        shape.sizes.block_class = class;
        shape.sizes.counters_size = 8 * class;
        assert_int_equal(segment_layout_compute(&shape, &layout), 0);
        assert_int_equal(layout.thread_stride % REGION_UNIT_SIZE, 0);
        assert_true(layout.thread_stride >=
                    sizeof(struct segment_thread) + shape.sizes.counters_size);
        assert_int_equal(layout.blocks_at % block, 0);
        assert_true(layout.blocks_at >=
                    SEGMENT_THREADS_AT + layout.sizes.threads_n * layout.thread_stride);
        assert_true(layout.records_at >= layout.blocks_at + (layout.sizes.threads_n + 1) * block);
        assert_int_equal(layout.records_at % SEGMENT_PAGE, 0);
        assert_int_equal(layout.size, layout.records_at + layout.sizes.runs_n * SEGMENT_RUN_SIZE);
        assert_true((layout.blocks_at >> class) + layout.sizes.threads_n <= BLOCK_SLOT_MASK);
        assert_true(layout.records_at / REGION_UNIT_SIZE <= UINT32_MAX);
        assert_in_range(layout.sizes.threads_n, SEGMENT_THREADS_MIN, SEGMENT_THREADS_MAX);
        if (layout.sizes.threads_n > SEGMENT_THREADS_MIN)
            assert_true((layout.sizes.threads_n + 1) * block <= SEGMENT_BLOCKS_SIZE_MAX + block);
        if (block <= 1 << 17)
            assert_int_equal(layout.sizes.threads_n, SEGMENT_THREADS_MAX);
        assert_int_equal(layout.blocks_n, layout.sizes.threads_n + 1 + layout.definitions_n);
        assert_in_range(layout.definitions_n, SEGMENT_DEFINITIONS_MIN, SEGMENT_DEFINITIONS_MAX);
        assert_true(!layout.keyed_at && !layout.key_sets_at && !layout.keys_at &&
                    !layout.sizes.keys_max);
    }
}

/* All else stays where it is, unless blocks come between. */
static void parts_of_keyed_sets_are_apart_and_aligned(void **state)
{
    (void)state;
    for (uint32_t class = BLOCK_CLASS_MIN; class <= BLOCK_CLASS_MAX; class ++) {
        struct segment_shape shape = keyed_shape();
        struct segment_layout layout, other;

        shape.sizes.block_class = class;
        for (shape.sizes.keys_max = 1; shape.sizes.keys_max <= 1000000;
             shape.sizes.keys_max = 7 * shape.sizes.keys_max) {
            assert_int_equal(segment_layout_compute(&shape, &layout), 0);
            assert_int_equal(layout.sizes.keys_max, shape.sizes.keys_max);
            assert_int_equal(layout.sizes.key_sets_max, shape.sizes.key_sets_max);
            assert_int_equal(layout.blocks_n, layout.sizes.threads_n + 1 + layout.definitions_n +
                                                  shape.sizes.key_sets_max);
            assert_in_range(layout.definitions_n, SEGMENT_DEFINITIONS_MIN,
                            SEGMENT_DEFINITIONS_KEYED);
            assert_true(layout.records_at - layout.blocks_at >= (size_t)layout.blocks_n << class);
            assert_int_equal(layout.keyed_at,
                             layout.records_at + layout.sizes.runs_n * SEGMENT_RUN_SIZE);
            assert_true(layout.key_sets_at >= layout.keyed_at + sizeof(struct segment_keyed));
            assert_true(layout.keys_at >= layout.key_sets_at + shape.sizes.key_sets_max *
                                                                   sizeof(struct segment_key_set));
            assert_true(layout.size >= layout.keys_at + key_table_size(shape.sizes.keys_max));
            assert_int_equal(layout.keyed_at % SEGMENT_PAGE, 0);
            assert_int_equal(layout.key_sets_at % SEGMENT_PAGE, 0);
            assert_int_equal(layout.keys_at % SEGMENT_PAGE, 0);
            assert_int_equal(layout.size % SEGMENT_PAGE, 0);
        }
        shape.sizes.keys_max = shape.sizes.key_sets_max = 0;
        assert_int_equal(segment_layout_compute(&shape, &other), 0);
        assert_true(layout.definitions_n <= other.definitions_n);
        assert_int_equal(other.definitions_at, layout.definitions_at);
        assert_int_equal(other.sizes.threads_n, layout.sizes.threads_n);
    }
}

static int compute(uint32_t block_class, uint64_t keys_max, uint64_t key_sets_max,
                   struct segment_layout *ret)
{
    struct segment_shape shape = some_shape();

    assert_true(key_sets_max <= UINT32_MAX);
    shape.sizes.block_class = block_class;
    shape.sizes.keys_max = keys_max;
    shape.sizes.key_sets_max = (uint32_t)key_sets_max;
    return segment_layout_compute(&shape, ret);
}

/* As many key sets as have slots for their blocks, and units for their heads. */
static void numbers_have_their_bounds(void **state)
{
    struct segment_layout layout, most;

    (void)state;
    for (uint32_t class = BLOCK_CLASS_MIN; class <= BLOCK_CLASS_MAX; class ++) {
        uint64_t by_slots, by_units, before_key_sets, key_sets;

        assert_int_equal(compute(class, 1, 0, &layout), 0);
        by_slots = BLOCK_SLOT_MASK - (layout.blocks_at >> class) - layout.sizes.threads_n -
                   layout.definitions_n;
        before_key_sets = layout.key_sets_at; /* of none */
        by_units = ((UINT64_C(1) << 32) * REGION_UNIT_SIZE - before_key_sets) /
                   ((UINT64_C(1) << class) + sizeof(struct segment_key_set));
        if (by_slots < by_units) {
            assert_int_equal(compute(class, 1, by_slots, &most), 0);
            assert_int_equal((most.blocks_at >> class) + most.blocks_n - 1, BLOCK_SLOT_MASK);
            assert_int_equal(compute(class, 1, by_slots + 1, &most), -E2BIG);
        }
        key_sets = by_slots < by_units ? by_slots : by_units - 100;
        assert_int_equal(compute(class, KEY_TABLE_KEYS_MAX, key_sets, &most), 0);
        assert_true((most.key_sets_at + key_sets * sizeof(struct segment_key_set)) /
                        REGION_UNIT_SIZE <=
                    UINT32_MAX);
        assert_true(most.size > most.keys_at && most.keys_at > most.key_sets_at &&
                    most.key_sets_at > most.records_at && most.records_at > most.blocks_at);
        assert_true((uint64_t)most.size < UINT64_C(1) << 51);
        assert_int_equal(compute(class, 1, by_units + 100, &most), -E2BIG);
        assert_int_equal(compute(class, 1, UINT32_MAX, &most), -E2BIG);
        assert_int_equal(compute(class, KEY_TABLE_KEYS_MAX + 1, 1, &most), -E2BIG);
        assert_int_equal(compute(class, UINT64_MAX, 1, &most), -E2BIG);
        assert_int_equal(compute(class, 0, 1, &most), -EINVAL);
    }
}

static void impossible_shapes_are_refused(void **state)
{
    char name[SEGMENT_NAME_SIZE + 1];
    struct segment_shape shape = some_shape();
    struct segment_layout layout;

    (void)state;
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
#define ASSERT_IMPOSSIBLE(field, value, code)                                                      \
    shape = some_shape();                                                                          \
    shape.field = (value);                                                                         \
    assert_int_equal(segment_layout_compute(&shape, &layout), code);                               \
    assert_refused(&shape, code, "cannot be shared")
    ASSERT_IMPOSSIBLE(name, "", -EINVAL);
    ASSERT_IMPOSSIBLE(name, name, -EINVAL);
    ASSERT_IMPOSSIBLE(sizes.block_class, BLOCK_CLASS_MIN - 1, -EINVAL);
    ASSERT_IMPOSSIBLE(sizes.block_class, BLOCK_CLASS_MAX + 1, -EINVAL);
    ASSERT_IMPOSSIBLE(sizes.block_class, UINT32_MAX, -EINVAL);
    ASSERT_IMPOSSIBLE(sizes.limits_n, 65, -EINVAL);
    ASSERT_IMPOSSIBLE(sizes.record_units, 0, -EINVAL);
    ASSERT_IMPOSSIBLE(sizes.record_units, RECORD_UNITS_MAX + 1, -EINVAL);
    ASSERT_IMPOSSIBLE(sizes.limits_n, 3, -EINVAL); /* more than the records have room for */
    ASSERT_IMPOSSIBLE(sizes.counters_size, 12, -EINVAL);
    ASSERT_IMPOSSIBLE(sizes.counters_size, (size_t)1 << 20, -E2BIG);
    ASSERT_IMPOSSIBLE(initial_state_n, 1000, -EINVAL);
    ASSERT_IMPOSSIBLE(sizes.key_sets_max, 1, -EINVAL); /* of no key */
    ASSERT_IMPOSSIBLE(sizes.keys_max, UINT64_MAX, -E2BIG);
    assert_refused(&shape, -E2BIG, "lower `max` of `subjects`");
    name[SEGMENT_NAME_SIZE - 1] = '\0'; /* possible, but not as the name of a file */
    shape = some_shape();
    shape.name = name;
    assert_refused(&shape, -ENAMETOOLONG, "too long");
    assert_int_equal(files_n(), 0);
}

static void numbers_from_outside_are_checked(void **state)
{
    struct segment *segment = open_some();
    const struct segment_layout *layout = &segment->layout;
    uint32_t i = 0, first = segment_thread_unit(segment, 0);
    uint32_t last = segment_thread_unit(segment, layout->sizes.threads_n - 1);

    (void)state;
    assert_true(segment_thread_of_unit(segment, first, &i) && i == 0);
    assert_true(segment_thread_of_unit(segment, last, &i) && i == layout->sizes.threads_n - 1);
    assert_false(segment_thread_of_unit(segment, first - 1, &i));
    assert_false(segment_thread_of_unit(segment, first + 1, &i));
    assert_false(segment_thread_of_unit(segment, 0, &i));
    assert_false(segment_thread_of_unit(segment, UINT32_MAX, &i));
    assert_false(segment_thread_of_unit(
        segment, last + (uint32_t)(layout->thread_stride / REGION_UNIT_SIZE), &i));
    assert_ptr_equal(segment->base + first * REGION_UNIT_SIZE, &segment_thread(segment, 0)->head);
    assert_ptr_equal(segment->base + segment_set_head_unit() * REGION_UNIT_SIZE,
                     &segment_header(segment)->head);
    assert_true(segment_has_block(segment, segment_block_slot(segment, 0)));
    assert_true(
        segment_has_block(segment, segment_block_slot(segment, (uint32_t)layout->blocks_n - 1)));
    assert_false(
        segment_has_block(segment, segment_block_slot(segment, (uint32_t)layout->blocks_n)));
    assert_false(segment_has_block(segment, segment_block_slot(segment, 0) - 1));
    assert_false(segment_has_block(segment, 0));
    assert_false(segment_has_block(segment, UINT64_MAX));
    assert_false(segment_has_record(segment, 0));
    assert_false(segment_has_record(segment, layout->sizes.record_units)); /* run 0 is never used */
    assert_true(segment_has_record(segment, SEGMENT_RUN_UNITS));
    assert_true(segment_has_record(segment, SEGMENT_RUN_UNITS + layout->sizes.record_units));
    assert_false(segment_has_record(segment, SEGMENT_RUN_UNITS + 1));
    for (uint32_t unit = SEGMENT_RUN_UNITS; unit < 2 * SEGMENT_RUN_UNITS; unit++)
        if (segment_has_record(segment, unit))
            i = unit;
    assert_true(i + layout->sizes.record_units <= 2 * SEGMENT_RUN_UNITS);
    assert_true(segment_has_record(segment, (layout->sizes.runs_n - 1) * SEGMENT_RUN_UNITS));
    assert_false(segment_has_record(segment, layout->sizes.runs_n * SEGMENT_RUN_UNITS));
    assert_false(segment_has_record(segment, UINT32_MAX));
    assert_false(segment_key_set_of_unit(segment, 0, &i));
    assert_false(segment_key_set_of_unit(segment, UINT32_MAX, &i));
    assert_int_equal(segment_key_sets_n(segment), 0);
    segment_close(segment);
    remove_some();
}

static void numbers_of_key_sets_are_checked(void **state)
{
    struct segment *segment = open_keyed();
    const struct segment_layout *layout = &segment->layout;
    uint32_t i = 0, first = segment_key_set_unit(segment, 0),
             third = segment_key_set_unit(segment, 2);

    (void)state;
    assert_ptr_equal(segment->base + (size_t)third * REGION_UNIT_SIZE,
                     &segment_key_set(segment, 2)->head);
    assert_false(
        segment_key_set_of_unit(segment, first, &i)); /* as long as there is nothing behind it */
    for (uint32_t k = 0; k < 3; k++)
        assert_int_equal(segment_alloc_key_set(segment, k), 0);
    assert_true(segment_key_set_of_unit(segment, first, &i) && i == 0);
    assert_true(segment_key_set_of_unit(segment, third, &i) && i == 2);
    assert_false(segment_key_set_of_unit(segment, first - 1, &i));
    assert_false(segment_key_set_of_unit(segment, first - 2, &i));
    assert_false(segment_key_set_of_unit(segment, first + 1, &i));
    assert_false(segment_key_set_of_unit(segment, third + 2, &i));
    assert_false(segment_key_set_of_unit(segment, 0, &i));
    assert_false(segment_key_set_of_unit(segment, UINT32_MAX, &i));
    segment_keyed(segment)->key_sets_high = UINT64_MAX; /* nonsense is cut */
    assert_int_equal(segment_key_sets_n(segment), layout->sizes.key_sets_max);
    assert_true(segment_key_set_of_unit(
        segment, segment_key_set_unit(segment, layout->sizes.key_sets_max - 1), &i));
    assert_false(segment_key_set_of_unit(
        segment, segment_key_set_unit(segment, layout->sizes.key_sets_max), &i));
    assert_int_equal(segment_key_set_slot(segment, 0),
                     segment_block_slot(segment, layout->sizes.threads_n) + layout->definitions_n +
                         1);
    assert_int_equal(segment_key_set_slot(segment, 0),
                     segment_definition_slot(layout, (uint32_t)layout->definitions_n) + 1);
    assert_true(
        segment_has_block(segment, segment_key_set_slot(segment, layout->sizes.key_sets_max - 1)));
    assert_false(
        segment_has_block(segment, segment_key_set_slot(segment, layout->sizes.key_sets_max)));
    assert_false(segment_has_block(segment, segment_block_slot(segment, 0) - 1));
    segment_close(segment);
    remove_some();
}

/* ---- making and attaching ---- */

static void a_segment_is_made_complete(void **state)
{
    const struct segment_shape shape = some_shape();
    struct segment *segment;
    const struct segment_identity *identity;
    struct stat found;
    mode_t before = umask(0);

    (void)state;
    segment = open_some();
    umask(before);
    assert_int_equal(lstat(inside(SOME_FILE), &found), 0);
    assert_int_equal(found.st_mode, S_IFREG | 0600);
    assert_int_equal(found.st_nlink, 1);
    assert_int_equal(found.st_size, segment->layout.size);
    assert_true(found.st_blocks * 512 <= 16384); /* of a quarter of a GiB */
    assert_int_equal(fcntl(segment->fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    identity = &segment_header(segment)->identity;
    assert_string_equal(identity->name, shape.name);
    assert_int_equal(identity->creator_pid, getpid());
    assert_string_equal(definition_of(segment), shape.definition);
    assert_true(has_first_version(segment));
    assert_int_equal(files_n(), 1);
    segment_close(segment);
    segment_close(NULL);
    remove_some();
}

static void a_later_process_attaches(void **state)
{
    struct segment *first = open_some(), *second = open_some();

    (void)state;
    assert_ptr_not_equal(first->base, second->base);
    assert_true(has_first_version(second));
    segment_header(first)->registrations = 5;
    assert_int_equal(segment_header(second)->registrations, 5);
    segment_close(first);
    first = open_some(); /* it stays when all are gone */
    segment_close(second);
    assert_int_equal(segment_header(first)->registrations, 5);
    segment_close(first);
    remove_some();
}

static bool is_zero(const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (((const unsigned char *)bytes)[i] != 0)
            return false;
    return true;
}

/* One compare-and-swap of 16 bytes there is seen here. */
static void keys_are_shared(void **state)
{
    struct segment *first = open_keyed(), *second = open_keyed();
    const size_t size = key_table_size(first->layout.sizes.keys_max);
    struct atomic128_value value = {0, 0};
    struct atomic128 *there = segment_key_table(first), *here = segment_key_table(second);
    const size_t last = size / sizeof(*there) - 1;
    struct stat before, after;

    (void)state;
    assert_true(atomic128_detect());
    assert_true(is_zero(segment_keyed(first), sizeof(struct segment_keyed)));
    assert_true(is_zero(there, size));
    fstat(first->fd, &before);
    assert_true(before.st_blocks * 512 >= (off_t)size);
    assert_true(atomic128_cas(&there[last], &value, (struct atomic128_value){2, 3}));
    value = atomic128_load(&here[last]);
    assert_true(value.low == 2 && value.high == 3);
    memset(there, 1, size);
    memset(segment_keyed(first), 0, SEGMENT_PAGE);
    fstat(first->fd, &after);
    assert_int_equal(before.st_blocks, after.st_blocks); /* all of it was there */
    segment_keyed(first)->evicted = 5;
    assert_int_equal(segment_keyed(second)->evicted, 5);
    segment_close(first);
    segment_close(second);
    remove_some();
}

static void a_secret_is_the_segment_s(void **state)
{
    struct segment *first = open_keyed(), *second = open_keyed();
    struct siphash_secret secret = first->secret;

    (void)state;
    assert_false(is_zero(&secret, sizeof(secret)));
    assert_memory_equal(&second->secret, &secret, sizeof(secret));
    segment_close(first);
    segment_close(second);
    second = open_keyed(); /* it stays with it */
    assert_memory_equal(&second->secret, &secret, sizeof(secret));
    segment_close(second);
    remove_some();
    second = open_keyed();
    assert_memory_not_equal(&second->secret, &secret, sizeof(secret));
    segment_close(second);
    remove_some();
    second = open_some(); /* not asked for */
    assert_true(is_zero(&second->secret, sizeof(second->secret)));
    segment_close(second);
    remove_some();
}

static void sets_have_files_of_their_own(void **state)
{
    struct segment_shape shape = some_shape();
    struct segment *first = open_some(), *second;

    (void)state;
    shape.name = "../set";
    second = open_shape(&shape);
    segment_header(first)->registrations = 5;
    assert_int_equal(segment_header(second)->registrations, 0);
    assert_int_equal(files_n(), 2);
    segment_close(first);
    segment_close(second);
    assert_int_equal(segment_remove(place, "../set", false, is_in_use, &error), 0);
    remove_some();
}

static void the_default_directory_is_used(void **state)
{
    struct segment_shape shape = some_shape();
    char name[60], path[120];
    struct segment *segment = NULL;

    (void)state;
    snprintf(name, sizeof(name), "test-of-weir-%d", (int)getpid());
    snprintf(path, sizeof(path), "/dev/shm/weir-%u/%s.weir", geteuid(), name);
    shape.name = name;
    assert_int_equal(segment_open(NULL, &shape, &segment, &error), 0);
    assert_true(inode_of(path) != 0);
    segment_close(segment);
    assert_int_equal(segment_remove(NULL, name, false, is_in_use, &error), 0);
    assert_true(inode_of(path) == 0);
    *strrchr(path, '/') = '\0';
    rmdir(path); /* unless in use */
}

static void a_child_has_no_mapping(void **state)
{
    struct segment *segment = open_some();
    pid_t child = child_fork();

    (void)state;
    if (child == 0) {
        char line[512];
        FILE *maps = fopen("/proc/self/maps", "re");
        bool found = false;

        while (maps && fgets(line, sizeof(line), maps))
            found |= strstr(line, place) != NULL;
        segment_close_in_child(segment);
        found |= fcntl(segment->fd, F_GETFD) >= 0 || fcntl(segment->directory_fd, F_GETFD) >= 0;
        _exit(maps && !found ? 0 : 1);
    }
    assert_int_equal(child_wait(child), 0);
    assert_true(has_first_version(segment));
    segment_close(segment);
    remove_some();
}

/* The kernel sends a signal to a process that makes a file larger than it may. */
static void a_limit_on_files_is_an_error(void **state)
{
    struct rlimit before, small;

    (void)state;
    if (getenv("MESON_EXE_WRAPPER")) {
        print_message("an emulator does not take a limit back\n");
        skip();
    }
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){1 << 20, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_some_refused(-EFBIG, "cannot be created");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(files_n(), 0);
}

/* ---- another definition ---- */

static void another_definition_is_refused_with_what_differs(void **state)
{
    const struct segment_shape other = other_shape();
    struct segment *segment = open_some();

    (void)state;
    assert_refused(&other, -EEXIST,
                   "`rate` is tokens there, not set here; `capacity` is 100 there, 4 here");
    assert_refused(&other, -EEXIST, "remove it with `weir rm`");
    assert_refused(&other, -EEXIST, place);
    segment_close(segment);
    remove_some();
}

static void only_the_hash_decides(void **state)
{
    struct segment_shape shape = some_shape();
    struct segment *first = open_some(), *second;

    (void)state;
    shape.definition = "{ rate: tokens, capacity: 100 }";
    second = open_shape(&shape);
    segment_close(second);
    shape = some_shape();
    shape.definition_hash = 44;
    assert_refused(&shape, -EEXIST, "other plugins of these names");
    shape = some_shape();
    shape.while_used = true;
    assert_refused(&shape, -EEXIST, "another definition of the set");
    shape = some_shape(); /* the same hash, and yet another shape: the hash is wrong */
    shape.sizes.block_class++;
    assert_refused(&shape, -EUCLEAN, "its sizes");
    shape = keyed_shape();
    assert_refused(&shape, -EUCLEAN, "its sizes");
    segment_close(first);
    remove_some();
    first = open_keyed();
    assert_some_refused(-EUCLEAN, "its sizes");
    shape = keyed_shape();
    shape.sizes.keys_max++;
    assert_refused(&shape, -EUCLEAN, "its sizes");
    shape = keyed_shape();
    shape.sizes.key_sets_max--; /* the file is as long */
    assert_refused(&shape, -EUCLEAN, "its sizes");
    segment_close(first);
    remove_some();
}

/* Of long ones the message shows what differs. */
static void long_definitions_are_cut(void **state)
{
    static char there[SEGMENT_DEFINITION_MAX + 100], here[SEGMENT_DEFINITION_MAX + 100];
    struct segment_shape shape = some_shape();
    struct segment *segment;

    (void)state;
    for (size_t i = 0; i < sizeof(there) - 1; i++)
        there[i] = here[i] = (char)('a' + i % 26);
    memcpy(there + 9000, "FIFTEEN", 7);
    memcpy(here + 9000, "FOURTEEN", 8);
    shape.definition = there;
    segment = open_shape(&shape);
    assert_int_equal(strlen(definition_of(segment)), SEGMENT_DEFINITION_MAX - 1);
    segment_close(segment);
    segment = open_shape(&shape);
    segment_close(segment);
    shape.definition = here;
    shape.definition_hash++;
    assert_refused(&shape, -EEXIST, "FIFTEEN");
    assert_refused(&shape, -EEXIST, "FOURTEEN");
    remove_some();
}

/* ---- versions ---- */

/* What one thread of a segment commits, others that are attached read. */
static void versions_are_published(void **state)
{
    struct segment *first = open_some(), *second = open_some();
    _Atomic bool broken = false;
    struct region region, other;
    uint64_t words[30], seen[30];
    struct version version = {.content = words, .content_capacity = 30};
    struct version read = {.content = seen, .content_capacity = 30};

    (void)state;
    assert_int_equal(region_open_segment(&region, first, &broken), 0);
    assert_int_equal(region_open_segment(&other, second, &broken), 0);
    assert_int_equal(segment_alloc_thread(first, 2), 0);
    assert_int_equal(segment_alloc_run(first, 1), 0);
    for (uint64_t i = 1; i <= 100; i++) {
        version_read(&region, segment_set_head_unit(), &version);
        words[4] = i;
        version.writes_n = 1;
        version.writes[0] = (struct deferred_write){
            .target = deferred_write_target(SEGMENT_RUN_UNITS, RECORD_FIELD_WORD),
            .expected = i - 1,
            .desired = i};
        assert_true(version_commit(&region, segment_thread_unit(first, 2), segment_set_head_unit(),
                                   &version));
        version_read(&other, segment_set_head_unit(), &read);
        assert_int_equal(seen[4], i);
        assert_int_equal(record_at(&other, SEGMENT_RUN_UNITS)->word, i);
    }
    assert_false(broken);
    region_close(&region);
    region_close(&other);
    segment_close(second);
    second = open_some(); /* and the newcomer */
    segment_close(second);
    segment_close(first);
    remove_some();
}

/* ---- room ---- */

static void no_room_for_keys_is_an_error(void **state)
{
    struct segment *segment;
    struct segment_shape shape = keyed_shape();

    (void)state;
    shape.sizes.keys_max = 100000; /* a table of nearly three MiB is asked for piece by piece */
    for (uint64_t n = 1; n <= 6; n++) {
        fake_os_fail_kind_from(n, FAKE_ROOM, 0);
        assert_refused(&shape, -ENOSPC, "cannot be created: No space left");
        assert_int_equal(files_n(), 0);
    }
    fake_os_fail_kind_from(7, FAKE_ROOM, 0);
    segment = open_shape(&shape);
    fake_os_reset();
    segment_close(segment);
    remove_some();
}

static void no_secret_for_keys_is_an_error(void **state)
{
    struct segment_shape shape = keyed_shape();

    (void)state;
    fake_os_fail_kind_from(1, FAKE_RANDOM, 0);
    assert_refused(&shape, -EPERM, "cannot be created: Operation not permitted");
    assert_int_equal(files_n(), 0);
    segment_close(open_some()); /* without keys there is no secret */
    fake_os_reset();
    remove_some();
}

static void a_full_file_system_is_an_error(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 2; n++) {
        fake_os_fail_kind_from(n, FAKE_ROOM, 0);
        assert_some_refused(-ENOSPC, "cannot be created: No space left");
        assert_int_equal(files_n(), 0);
    }
}

/* ---- files that are not trusted ---- */

static void what_is_no_regular_file_is_refused(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    assert_int_equal(symlink("elsewhere", inside(SOME_FILE)), 0);
    assert_some_refused(-EPERM, "a symbolic link");
    assert_int_equal(unlink(inside(SOME_FILE)), 0);
    assert_int_equal(mkdir(inside(SOME_FILE), 0700), 0);
    assert_some_refused(-EPERM, "a directory");
    assert_int_equal(rmdir(inside(SOME_FILE)), 0);
    assert_int_equal(mkfifo(inside(SOME_FILE), 0600), 0);
    assert_some_refused(-EPERM, "not a regular file");
    assert_int_equal(unlink(inside(SOME_FILE)), 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", inside(SOME_FILE));
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    close(fd);
    assert_some_refused(-EPERM, "not a regular file");
    assert_int_equal(unlink(inside(SOME_FILE)), 0);
}

static void what_others_may_touch_is_refused(void **state)
{
    static const mode_t modes[] = {0601, 0602, 0604, 0610, 0620, 0640, 0666};
    struct segment *segment = open_some();

    (void)state;
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        assert_int_equal(chmod(inside(SOME_FILE), modes[i]), 0);
        assert_some_refused(-EPERM, "gives other users access");
    }
    assert_int_equal(chmod(inside(SOME_FILE), 0600), 0);
    assert_int_equal(link(inside(SOME_FILE), inside("another")), 0);
    assert_some_refused(-EPERM, "it has 2 hard links");
    assert_int_equal(unlink(inside("another")), 0);
    segment_close(segment);
    segment = open_some();
    segment_close(segment);
    remove_some();
}

static void a_file_of_another_length_is_damaged(void **state)
{
    struct segment *segment = open_some();
    const off_t size = (off_t)segment->layout.size;
    const off_t sizes[] = {0, 1, 63, 575, 576, 4095, 4096, 20479, 20480, 65536, size - 1, size + 1};

    (void)state;
    segment_close(segment);
    remove_some();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        segment_close(open_some());
        assert_int_equal(truncate(inside(SOME_FILE), sizes[i]), 0);
        assert_some_refused(-EUCLEAN, "damaged");
        assert_int_equal(segment_remove(place, "set", false, is_in_use, &error), -EUCLEAN);
        remove_some(); /* by force */
    }
}

/* Renamed by hand. */
static void the_file_of_another_set_is_refused(void **state)
{
    struct segment_shape shape = some_shape();

    (void)state;
    segment_close(open_some());
    assert_int_equal(rename(inside(SOME_FILE), inside("b.weir")), 0);
    shape.name = "b";
    assert_refused(&shape, -EUCLEAN, "another set");
    unlink(inside("b.weir"));
}

/* ---- other boots, other namespaces ---- */

static void one_of_an_earlier_boot_is_replaced(void **state)
{
    struct segment *old, *new;
    uint64_t inode;

    (void)state;
    fake_os_set_boot(1);
    old = open_some();
    inode = inode_of(inside(SOME_FILE));
    leave_doorbell();
    segment_header(old)->registrations = 5;
    fake_os_set_boot(0);
    new = open_some();
    assert_true(inode_of(inside(SOME_FILE)) != inode);
    assert_int_equal(segment_header(new)->registrations, 0);
    assert_int_equal(segment_header(old)->registrations, 5); /* left alone */
    assert_int_equal(files_n(), 1);
    segment_close(old);
    segment_close(new);
    remove_some();
}

static void other_namespaces_are_refused(void **state)
{
    struct segment *segment;

    (void)state;
    fake_os_set_namespaces(1, 0);
    segment = open_some();
    segment_close(segment);
    fake_os_set_namespaces(0, 0);
    assert_some_refused(-EXDEV, "another pid namespace (1, here ");
    assert_int_equal(segment_remove(place, "set", false, is_in_use, &error), -EXDEV);
    remove_some();
    fake_os_set_namespaces(0, 1);
    segment = open_some();
    segment_close(segment);
    fake_os_set_namespaces(0, 0);
    assert_some_refused(-EXDEV, "another time namespace (1, here ");
    remove_some();
}

/* ---- removing ---- */

static void claim(const struct segment *segment, uint32_t i)
{
    assert_int_equal(segment_alloc_peer(segment, i), 0);
    segment_peer(segment, i)->id = UINT64_C(1) << 42 | (uint64_t)getpid();
}

static void give_back(const struct segment *segment, uint32_t i)
{
    segment_peer(segment, i)->id = UINT64_C(1) << 42;
}

static void the_last_one_removes_it(void **state)
{
    struct segment *first = open_some(), *second = open_some();

    (void)state;
    claim(first, 0);
    assert_int_equal(segment_confirm_attach(first), 0);
    claim(second, 1);
    assert_int_equal(segment_confirm_attach(second), 0);
    give_back(first, 0);
    assert_int_equal(segment_remove_if_unused(first, is_in_use), 0);
    assert_int_equal(segment_header(first)->removal, 0);
    assert_int_equal(files_n(), 1);
    give_back(second, 1);
    assert_int_equal(segment_remove_if_unused(second, is_in_use), 1);
    assert_int_equal(files_n(), 0);
    assert_int_equal(segment_remove_if_unused(first, is_in_use), 1); /* it was */
    segment_close(first);
    segment_close(second);
}

/* A process that attached to a segment before it was removed has to open it anew. */
static void a_latecomer_opens_anew(void **state)
{
    struct segment *late = open_some(), *last = open_some(), *new;

    (void)state;
    assert_int_equal(segment_remove_if_unused(last, is_in_use), 1);
    claim(late, 0);
    assert_int_equal(segment_confirm_attach(late), -ESTALE);
    new = open_some();
    assert_int_equal(segment_confirm_attach(late), -ESTALE); /* and the new one stays */
    assert_int_equal(segment_remove_if_unused(last, is_in_use), 1);
    assert_int_equal(files_n(), 1);
    assert_int_equal(segment_confirm_attach(new), 0);
    segment_close(late);
    segment_close(last);
    segment_close(new);
    remove_some();
}

/* Died between the decision and taking the name away. */
static void a_removed_one_with_its_name_is_replaced(void **state)
{
    struct segment *old = open_some(), *late = open_some(), *new;
    uint64_t inode = inode_of(inside(SOME_FILE));

    (void)state;
    segment_header(old)->removal = 77;
    new = open_some();
    assert_true(inode_of(inside(SOME_FILE)) != inode);
    segment_close(new);
    remove_some();
    new = open_some();
    segment_header(new)->removal = 77;
    claim(new, 0);
    assert_int_equal(segment_confirm_attach(new), -ESTALE);
    assert_int_equal(files_n(), 0);
    segment_close(old);
    segment_close(late);
    segment_close(new);
}

/* What the process that comes between meets the others with. */
static struct segment *between;

static bool newcomer_comes(const struct segment *segment)
{
    assert_int_equal(segment_header(segment)->removal & 1, 0);
    assert_int_not_equal(segment_header(segment)->removal, 0);
    claim(between, 9);
    assert_int_equal(segment_confirm_attach(between), 0);
    return false; /* it was not there yet when that place was looked at */
}

/* Of two that meet, the newcomer stays. */
static void a_newcomer_can_veto(void **state)
{
    struct segment *leaving = open_some(), *coming = open_some();

    (void)state;
    between = coming;
    assert_int_equal(segment_remove_if_unused(leaving, newcomer_comes), 0);
    assert_int_equal(segment_header(coming)->removal, 0);
    assert_int_equal(files_n(), 1);
    segment_close(leaving);
    segment_close(coming);
    remove_some();
}

static bool another_leaves(const struct segment *segment)
{
    (void)segment;
    give_back(between, 9);
    assert_int_equal(segment_remove_if_unused(between, is_in_use), 1);
    return true; /* it was still there when its place was looked at */
}

/* Two leave at once, and the first saw the second: the second removes it. */
static void a_later_one_takes_over(void **state)
{
    struct segment *first = open_some(), *second = open_some();

    (void)state;
    claim(second, 9);
    between = second;
    assert_int_equal(segment_remove_if_unused(first, another_leaves), 0);
    assert_int_equal(files_n(), 0);
    segment_close(first);
    segment_close(second);
}

/* A tentative word of a process that died with it. */
static void a_dead_remover_is_in_no_process_s_way(void **state)
{
    struct segment *segment = open_some();

    (void)state;
    segment_header(segment)->removal = 76;
    claim(segment, 0);
    assert_int_equal(segment_confirm_attach(segment), 0);
    assert_int_equal(segment_header(segment)->removal, 0);
    segment_header(segment)->removal = 76;
    give_back(segment, 0);
    assert_int_equal(segment_remove_if_unused(segment, is_in_use), 1);
    assert_int_equal(files_n(), 0);
    segment_close(segment);
}

static int takes_over_n;

static bool another_takes_over_and_dies(const struct segment *segment)
{
    if (++takes_over_n == 1)
        segment_header(segment)->removal = 76;
    return false;
}

/* ---- of another definition, and there for its users only ---- */

static void assert_conflict_refused(const struct segment_shape *shape)
{
    const uint64_t inode = inode_of(inside(SOME_FILE));

    assert_refused(shape, -EEXIST, "another definition of the set");
    assert_int_equal(inode_of(inside(SOME_FILE)), inode);
}

/* A killed process does not remove it; one with another definition does. */
static void one_with_killed_users_is_replaced(void **state)
{
    const struct segment_shape some = brief(some_shape()), other = brief(other_shape());
    struct segment *old = open_shape(&some), *new;

    (void)state;
    claim(old, 0);
    leave_doorbell();
    assert_conflict_refused(&other);
    assert_int_equal(segment_header(old)->removal, 0);
    assert_int_equal(files_n(), 2);
    give_back(old, 0); /* another process has cleaned up, or could */
    new = open_shape(&some);
    assert_int_equal(segment_header(new)->removal,
                     0); /* a process that means the same goes on with it */
    segment_close(new);
    new = open_shape(&other);
    assert_int_equal(files_n(), 1);
    assert_true(has_first_version(new));
    claim(old, 0);
    assert_int_equal(segment_confirm_attach(old), -ESTALE);
    claim(new, 0);
    assert_int_equal(segment_confirm_attach(new), 0);
    assert_conflict_refused(&some);
    segment_close(old);
    segment_close(new);
    remove_some();
}

/* A set may be there for longer from now on; then it stays. */
static void one_that_outlives_its_users_is_not(void **state)
{
    struct segment_shape longer = some_shape();
    const struct segment_shape some = brief(some_shape());
    struct segment *segment;

    (void)state;
    longer.in_use = is_in_use;
    segment_close(open_shape(&some));
    segment = open_shape(&longer);
    assert_false(segment->while_used);
    segment_close(segment);
    assert_conflict_refused(&some);
    remove_some();
}

static void an_observer_replaces_nothing(void **state)
{
    const struct segment_shape some = brief(some_shape());
    struct segment_shape other = brief(other_shape());

    (void)state;
    segment_close(open_shape(&some));
    other.must_exist = true;
    assert_conflict_refused(&other);
    other.must_exist = false;
    other.in_use = NULL;
    assert_conflict_refused(&other);
    remove_some();
}

/* While it is searched for users, one comes; then that one is there. */
static bool one_comes_back(const struct segment *segment)
{
    return segment_header(segment)->removal ? newcomer_comes(segment) : is_in_use(segment);
}

/* Of two that meet, the one with the definition of the earlier users stays. */
static void a_newcomer_can_veto_that(void **state)
{
    const struct segment_shape some = brief(some_shape());
    struct segment_shape other = brief(other_shape());
    struct segment *coming = open_shape(&some), *segment = NULL;

    (void)state;
    other.in_use = one_comes_back;
    between = coming;
    assert_int_equal(segment_open(place, &other, &segment, &error), -EEXIST);
    assert_int_equal(segment_header(coming)->removal, 0);
    assert_int_equal(segment_confirm_attach(coming), 0);
    segment_close(coming);
    remove_some();
}

/* A process with another definition is faster, and takes part. */
static bool another_replaces_it(const struct segment *segment)
{
    const struct segment_shape shape = brief(other_shape());

    if (between)
        return is_in_use(segment);
    between = open_shape(&shape);
    claim(between, 0);
    assert_int_equal(segment_confirm_attach(between), 0);
    return false;
}

static void of_two_processes_that_replace_it_one_does(void **state)
{
    const struct segment_shape some = brief(some_shape());
    struct segment_shape third = brief(some_shape());
    struct segment *segment = NULL;

    (void)state;
    third.definition = "{rate: tokens, capacity: 101}";
    third.definition_hash = 44;
    third.in_use = another_replaces_it;
    between = NULL;
    segment_close(open_shape(&some));
    assert_int_equal(segment_open(place, &third, &segment, &error), -EEXIST);
    assert_non_null(strstr(error.message, "`resource` is slots there, not set here"));
    assert_int_equal(segment_confirm_attach(between), 0);
    assert_int_equal(files_n(), 1);
    segment_close(between);
    remove_some();
}

static void removal_by_name_is_not_left_to_the_dead(void **state)
{
    (void)state;
    segment_close(open_some());
    assert_int_equal(segment_remove(place, "set", false, another_takes_over_and_dies, &error), 0);
    assert_int_equal(files_n(), 0);
    assert_true(takes_over_n > 1);
}

/* Its users go on, and so do their doorbells, which those of its successors cannot be taken for. */
static void forced_removal_spares_the_doorbells_of_users(void **state)
{
    struct segment *old = open_some(), *new;
    int of_old = doorbell_open(old->directory_fd, old->doorbell_stem, 1, 0), of_new;

    (void)state;
    leave_doorbell();
    claim(old, 0);
    assert_int_equal(segment_remove(place, "set", true, is_in_use, &error), 0);
    assert_int_equal(files_n(), 1);
    new = open_some();
    assert_string_not_equal(old->doorbell_stem, new->doorbell_stem);
    of_new = doorbell_open(new->directory_fd, new->doorbell_stem, 1, 0);
    assert_int_equal(doorbell_ring(old->directory_fd, old->doorbell_stem, 1, 0, 7), 0);
    assert_int_equal(readable(of_old), 1);
    assert_int_equal(readable(of_new), 0);
    doorbell_close(new->directory_fd, of_new, new->doorbell_stem, 1, 0);
    assert_int_equal(segment_remove(place, "set", false, is_in_use, &error), 0);
    assert_int_equal(files_n(), 1);
    os_close(of_old); /* the last of them dies */
    assert_int_equal(segment_remove(place, "set", false, is_in_use, &error), -ENOENT);
    assert_int_equal(files_n(), 0);
    segment_close(old);
    segment_close(new);
}

static void removal_by_name(void **state)
{
    struct segment *segment = open_some();

    (void)state;
    claim(segment, 0);
    leave_doorbell();
    assert_int_equal(segment_remove(place, "set", false, is_in_use, &error), -EBUSY);
    assert_non_null(strstr(error.message, "in use"));
    assert_int_equal(segment_header(segment)->removal, 0);
    assert_int_equal(files_n(), 2);
    assert_int_equal(segment_remove(place, "set", true, is_in_use, &error), 0);
    assert_int_equal(files_n(), 0); /* the doorbell went too */
    assert_int_equal(segment_header(segment)->removal & 1, 1);
    assert_true(has_first_version(segment));
    assert_int_equal(segment_remove(place, "set", false, is_in_use, &error), -ENOENT);
    assert_non_null(strstr(error.message, "there is no segment"));
    assert_int_equal(segment_remove(place, "", false, is_in_use, &error), -EINVAL);
    segment_close(segment);
    segment = open_some();
    claim(segment, 0);
    give_back(segment, 0);
    assert_int_equal(segment_remove(place, "set", false, is_in_use, NULL), 0);
    assert_int_equal(files_n(), 0);
    segment_close(segment);
}

static void one_of_an_earlier_boot_is_removed(void **state)
{
    struct segment *segment;

    (void)state;
    fake_os_set_boot(1);
    segment = open_some();
    claim(segment, 0);
    fake_os_set_boot(0);
    assert_int_equal(segment_remove(place, "set", false, is_in_use, &error), 0);
    assert_int_equal(files_n(), 0);
    segment_close(segment);
}

static void what_is_not_trusted_is_not_removed(void **state)
{
    (void)state;
    assert_int_equal(symlink("elsewhere", inside(SOME_FILE)), 0);
    assert_int_equal(segment_remove(place, "set", true, is_in_use, &error), -EPERM);
    assert_int_equal(unlink(inside(SOME_FILE)), 0);
}

/* ---- looking ---- */

static void a_look_tells_what_there_is(void **state)
{
    static struct segment_summary summary;
    struct segment_shape shape = some_shape();
    struct segment *segment;

    (void)state;
    shape.while_used = true;
    segment = open_shape(&shape);
    assert_int_equal(segment_inspect(place, "set", &summary, &error), 0);
    assert_int_equal(summary.state, SEGMENT_USABLE);
    assert_string_equal(summary.identity.name, "set");
    assert_string_equal(summary.definition, shape.definition);
    assert_int_equal(summary.identity.creator_pid, getpid());
    assert_int_equal(summary.identity.size, segment->layout.size);
    assert_in_range(summary.real_size, 4096, 16384);
    assert_int_equal(summary.identity.sizes.limits_n, 1);
    assert_true(summary.identity.while_used);
    assert_int_equal(summary.peers_n, 0);
    claim(segment, 0);
    claim(segment, SEGMENT_PEERS_MAX - 1);
    assert_int_equal(segment_inspect(place, "set", &summary, &error), 0);
    assert_int_equal(summary.peers_n, 2);
    assert_int_equal(peer_id_pid(summary.peer_ids[1]), getpid());
    segment_header(segment)->removal = 77;
    assert_int_equal(segment_inspect(place, "set", &summary, &error), 0);
    assert_int_equal(summary.state, SEGMENT_REMOVED);
    fake_os_set_namespaces(1, 0);
    assert_int_equal(segment_inspect(place, "set", &summary, &error), 0);
    assert_int_equal(summary.state, SEGMENT_FOREIGN);
    fake_os_set_boot(1);
    assert_int_equal(segment_inspect(place, "set", &summary, &error), 0);
    assert_int_equal(summary.state, SEGMENT_STALE);
    fake_os_reset();
    segment_close(segment);
    remove_some();
    assert_int_equal(segment_inspect(place, "set", &summary, &error), -ENOENT);
}

static void an_observer_changes_nothing(void **state)
{
    static struct segment_summary summary;
    struct segment *segment = open_some();
    struct stat before, after;

    (void)state;
    claim(segment, 0);
    fstat(segment->fd, &before);
    assert_int_equal(segment_inspect(place, "set", &summary, &error), 0);
    assert_int_equal(summary.peers_n, 1);
    assert_string_equal(summary.definition, definition_of(segment));
    fstat(segment->fd, &after);
    assert_int_equal(before.st_blocks, after.st_blocks);
    assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
    assert_int_equal(segment_header(segment)->removal, 0);
    segment_close(segment);
    remove_some();
    assert_int_equal(segment_inspect(place, "set", &summary, &error), -ENOENT);
}

/* ---- faults ---- */

static int open_and_close(void)
{
    const struct segment_shape shape = brief(keyed_shape());
    struct segment *untouched = (struct segment *)(uintptr_t)&error, *segment = untouched;
    int r = segment_open(place, &shape, &segment, &error);

    assert_true(r <= 0 && (r < 0) == (segment == untouched));
    if (r == 0) {
        fake_os_fail_kind_at(0, 0, 0);
        assert_true(has_first_version(segment));
        segment_close(segment);
    }
    return r;
}

static int make(void)
{
    int r = open_and_close();

    if (r < 0)
        assert_int_equal(files_n(), 0); /* nothing half-made */
    return r;
}

static int attach(void)
{
    int r = open_and_close();

    assert_int_equal(files_n(), 1);
    return r;
}

static int remove_by_name(void)
{
    return segment_remove(place, "set", false, is_in_use, &error);
}

static int look(void)
{
    static struct segment_summary summary;

    return segment_inspect(place, "set", &summary, &error);
}

/* Runs it with the first, the second, the third … call failing until none fails any more. */
static void with_each_call_failing(int (*run)(void), void (*before)(void))
{
    uint64_t n;

    for (n = 1;; n++) {
        bool failed;
        int r;

        fake_os_fail_kind_at(0, 0, 0);
        segment_remove(place, "set", true, is_in_use, NULL);
        if (before)
            before();
        error = (struct weir_error){0};
        fake_os_fail_at(n);
        r = run();
        failed = fake_os_has_failed() || r < 0;
        fake_os_reset();
        if (!failed) {
            assert_int_equal(r, 0);
            break;
        }
        if (r < 0) {
            if (r != -EIO && r != -ENOMEM && r != -EMFILE && r != -ENOSPC)
                fail_msg("call %d failing gave %d: %s", (int)n, r, error.message);
            assert_int_equal(error.code, r);
            assert_true(error.message[0] != '\0');
        }
    }
    assert_true(n > 6);
    segment_remove(place, "set", true, is_in_use, NULL);
    assert_int_equal(files_n(), 0);
}

static void one_is_there(void)
{
    const struct segment_shape shape = brief(keyed_shape());

    segment_close(open_shape(&shape));
}

static void another_is_there(void)
{
    const struct segment_shape other = brief(other_shape());

    segment_close(open_shape(&other));
}

static void a_stale_one_is_there(void)
{
    fake_os_set_boot(1);
    segment_close(open_keyed());
    fake_os_set_boot(0);
}

static void each_call_may_fail(void **state)
{
    (void)state;
    with_each_call_failing(make, NULL);
    with_each_call_failing(attach, one_is_there);
    with_each_call_failing(open_and_close, a_stale_one_is_there);
    with_each_call_failing(open_and_close, another_is_there);
    with_each_call_failing(remove_by_name, one_is_there);
    with_each_call_failing(look, one_is_there);
}

/* A process that could not take the name away says so; the next one does it. */
static void a_failed_removal_is_made_good(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        struct segment *segment = open_some();
        int r;

        fake_os_fail_at(n);
        r = segment_remove_if_unused(segment, is_in_use);
        if (!fake_os_has_failed()) {
            assert_int_equal(r, 1);
            assert_true(n > 4);
            segment_close(segment);
            break;
        }
        assert_true(r == -EIO || r == 1); /* 1: only a doorbell may have stayed */
        assert_int_equal(files_n(), r == 1 ? 0 : 1);
        fake_os_reset();
        assert_int_equal(segment_confirm_attach(segment), -ESTALE);
        assert_int_equal(files_n(), 0);
        segment_close(segment);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(parts_are_apart_and_aligned),
        leak_checked_test(parts_of_keyed_sets_are_apart_and_aligned),
        leak_checked_test(numbers_have_their_bounds),
        leak_checked_test(impossible_shapes_are_refused),
        leak_checked_test(numbers_from_outside_are_checked),
        leak_checked_test(numbers_of_key_sets_are_checked),
        leak_checked_test(a_segment_is_made_complete),
        leak_checked_test(a_later_process_attaches),
        leak_checked_test(keys_are_shared),
        leak_checked_test(a_secret_is_the_segment_s),
        leak_checked_test(sets_have_files_of_their_own),
        leak_checked_test(the_default_directory_is_used),
        leak_checked_test(a_child_has_no_mapping),
        leak_checked_test(a_limit_on_files_is_an_error),
        leak_checked_test(another_definition_is_refused_with_what_differs),
        leak_checked_test(only_the_hash_decides),
        leak_checked_test(long_definitions_are_cut),
        leak_checked_test(versions_are_published),
        leak_checked_test(no_room_for_keys_is_an_error),
        leak_checked_test(no_secret_for_keys_is_an_error),
        leak_checked_test(a_full_file_system_is_an_error),
        leak_checked_test(what_is_no_regular_file_is_refused),
        leak_checked_test(what_others_may_touch_is_refused),
        leak_checked_test(a_file_of_another_length_is_damaged),
        leak_checked_test(the_file_of_another_set_is_refused),
        leak_checked_test(one_of_an_earlier_boot_is_replaced),
        leak_checked_test(other_namespaces_are_refused),
        leak_checked_test(the_last_one_removes_it),
        leak_checked_test(a_latecomer_opens_anew),
        leak_checked_test(a_removed_one_with_its_name_is_replaced),
        leak_checked_test(a_newcomer_can_veto),
        leak_checked_test(a_later_one_takes_over),
        leak_checked_test(a_dead_remover_is_in_no_process_s_way),
        leak_checked_test(one_with_killed_users_is_replaced),
        leak_checked_test(one_that_outlives_its_users_is_not),
        leak_checked_test(an_observer_replaces_nothing),
        leak_checked_test(a_newcomer_can_veto_that),
        leak_checked_test(of_two_processes_that_replace_it_one_does),
        leak_checked_test(removal_by_name_is_not_left_to_the_dead),
        leak_checked_test(removal_by_name),
        leak_checked_test(forced_removal_spares_the_doorbells_of_users),
        leak_checked_test(one_of_an_earlier_boot_is_removed),
        leak_checked_test(what_is_not_trusted_is_not_removed),
        leak_checked_test(a_look_tells_what_there_is),
        leak_checked_test(an_observer_changes_nothing),
        leak_checked_test(each_call_may_fail),
        leak_checked_test(a_failed_removal_is_made_good),
    };

    return cmocka_run_group_tests(tests, place_setup, place_teardown);
}
