/* SPDX-License-Identifier: MIT */
/*
 * Segments that were overwritten: every bit of the header, every byte of the definition, and bytes
 * all over the rest, one after the other and many at once. Opening, looking at and removing each
 * gives an error or what is right, and never reads or writes anywhere else. WEIR_ROUNDS: how many
 * random ones; WEIR_SEED repeats them.
 */
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/require.h"
#include "lib/segments.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct segment *original; /* stays attached, as the processes would that use it */
static int file;                 /* the same file */
static uint64_t inode;
static struct segment_summary summary;
static bool not_keyed;

static struct segment_shape this_shape(void)
{
    return not_keyed ? some_shape() : keyed_shape();
}

static void begin(void)
{
    const struct segment_shape shape = this_shape();

    require(segment_open(place, &shape, &original, &error) == 0);
    require(segment_alloc_peer(original, 0) == 0);
    require(segment_alloc_thread(original, 0) == 0);
    require(segment_alloc_run(original, 1) == 0);
    for (uint32_t i = 0; !not_keyed && i < 2; i++)
        require(segment_alloc_key_set(original, i) == 0);
    segment_peer(original, 0)->id = UINT64_C(1) << 42 | 1;
    file = open(inside(SOME_FILE), O_RDWR | O_CLOEXEC);
    inode = inode_of(inside(SOME_FILE));
    require(file >= 0 && inode != 0);
}

static void end(void)
{
    close(file);
    segment_close(original);
    require(segment_remove(place, "set", true, is_in_use, &error) == 0);
    require(files_n() == 0);
}

/* Uses what was attached to as far as it can be without knowing more than the layout. */
static void use(const struct segment *segment)
{
    uint32_t n;

    require(memcmp(&segment->layout, &original->layout, sizeof(segment->layout)) == 0);
    for (uint32_t i = 0, all = segment_peers_n(segment); i < all; i++)
        (void)peer_id_pid(atomic_load(&segment_peer(segment, i)->id));
    n = segment_threads_n(segment);
    if (n > 0)
        atomic_fetch_add(&segment_thread(segment, n - 1)->peer_key, 0);
    n = segment_runs_n(segment);
    if (n > 0)
        atomic_fetch_add(segment_run_owner(segment, n - 1), 0);
    for (uint32_t i = 0, all = segment_key_sets_n(segment); i < all && i < 2; i++) {
        uint32_t same;

        require(segment_key_set_of_unit(segment, segment_key_set_unit(segment, i), &same) &&
                same == i);
        atomic_fetch_add(&segment_key_set(segment, i)->head.state_word, 0);
    }
    require(segment_header(segment)->head.block_class == segment->layout.sizes.block_class);
    require(segment_has_block(segment, atomic_load(&segment_header(segment)->head.state_word) &
                                           BLOCK_SLOT_MASK));
}

static const int all_errors[] = {-EUCLEAN, -EPROTONOSUPPORT, -EXDEV, -EEXIST, -EBUSY, 0};

static void require_expected(int r)
{
    const int *code = all_errors;

    while (*code != 0 && *code != r)
        code++;
    require(*code == r);
    require(r == 0 || (error.code == r && error.message[0] != '\0'));
}

/* Opens what is there. Returns what came of it. */
static int try_open(void)
{
    const struct segment_shape shape = this_shape();
    struct segment *segment = NULL;
    int r = segment_open(place, &shape, &segment, &error);

    require_expected(r);
    require((r == 0) == (segment != NULL));
    if (r == 0)
        use(segment);
    segment_close(segment);
    return r;
}

static void try_all(void)
{
    int r = segment_inspect(place, "set", &summary, &error);

    require_expected(r);
    if (r == 0 && summary.state == SEGMENT_USABLE)
        require(summary.identity.size == original->layout.size);
    r = segment_remove(place, "set", false, is_in_use, &error);
    require_expected(r);
    if (r == 0) { /* it seemed unused */
        require(files_n() == 0);
        try_open();
    }
    try_open();
}

static bool replaced(void)
{
    return inode_of(inside(SOME_FILE)) != inode;
}

/* Another file took its place: begins anew. Otherwise puts the bytes back. */
static void restore(uint64_t at, const void *bytes, size_t n)
{
    if (replaced()) {
        end();
        begin();
    } else {
        require(pwrite(file, bytes, n, (off_t)at) == (ssize_t)n);
    }
}

static void every_bit_of_the_header(void **state)
{
    uint64_t stride = 8 * effort_stride(1), from;

    (void)state;
    seed_begin();
    from = test_seed % stride;
    begin();
    for (uint64_t at = 0; at < sizeof(struct segment_header); at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            unsigned char was, is;
            int r;

            require(pread(file, &was, 1, (off_t)at) == 1);
            is = was ^ (unsigned char)(1u << bit);
            require(pwrite(file, &is, 1, (off_t)at) == 1);
            r = try_open();
            if (at < sizeof(struct segment_identity)) {
                require(r == -EUCLEAN || r == -EPROTONOSUPPORT);
                require(!replaced()); /* above all not taken for one of an earlier boot */
            } else if (at == offsetof(struct segment_header, removal) && bit == 0) {
                require(r == 0 && replaced());
            }
            if (!replaced() && bit == (at + from) % stride)
                try_all();
            restore(at, &was, 1);
        }
    }
    require(try_open() == 0);
    end();
}

static void every_byte_of_the_definition(void **state)
{
    const size_t length = strlen(some_shape().definition);

    (void)state;
    seed_begin();
    begin();
    for (uint64_t at = test_seed % effort_stride(1); at <= length; at += effort_stride(1)) {
        unsigned char was, is;

        require(pread(file, &was, 1, (off_t)(SEGMENT_DEFINITION_AT + at)) == 1);
        is = was ^ (unsigned char)(1 + at % 255);
        require(pwrite(file, &is, 1, (off_t)(SEGMENT_DEFINITION_AT + at)) == 1);
        require(try_open() == -EUCLEAN);
        try_all();
        require(!replaced());
        restore(SEGMENT_DEFINITION_AT + at, &was, 1);
    }
    require(try_open() == 0);
    end();
}

/* As far as they are in use. */
static void every_byte_of_the_tables(void **state)
{
    uint64_t random;

    (void)state;
    seed_begin();
    random = test_seed;
    begin();
    for (int part = 0; part < 8; part++) {
        const struct segment_layout *layout = &original->layout;
        const uint64_t parts[][2] = {{SEGMENT_PEERS_AT, 2 * sizeof(struct peer_slot)},
                                     {SEGMENT_RUN_OWNERS_AT, 4 * sizeof(uint64_t)},
                                     {SEGMENT_THREADS_AT, layout->thread_stride},
                                     {layout->blocks_at, (uint64_t)2 << layout->sizes.block_class},
                                     {layout->records_at + SEGMENT_RUN_SIZE,
                                      2 * layout->sizes.record_units * RECORD_UNIT_SIZE},
                                     {layout->keyed_at, sizeof(struct segment_keyed)},
                                     {layout->key_sets_at, 2 * sizeof(struct segment_key_set)},
                                     {layout->keys_at, 64}};
        uint64_t from = parts[part][0], n = parts[part][1];

        const uint64_t stride = effort_stride(1);

        for (uint64_t at = from + random_below(&random, stride); at < from + n; at += stride) {
            unsigned char was, is;

            require(pread(file, &was, 1, (off_t)at) == 1);
            is = was ^ (unsigned char)(1 + random_below(&random, 255));
            require(pwrite(file, &is, 1, (off_t)at) == 1);
            try_all();
            restore(at, &was, 1);
        }
    }
    end();
}

/* An offset in one of the parts, the small ones as often as the large ones. */
static uint64_t some_place(uint64_t *random)
{
    const struct segment_layout *layout = &original->layout;
    const uint64_t parts[] = {0,
                              SEGMENT_DEFINITION_AT,
                              SEGMENT_PEERS_AT,
                              SEGMENT_RUN_OWNERS_AT,
                              SEGMENT_THREADS_AT,
                              layout->blocks_at,
                              layout->records_at,
                              layout->keyed_at,
                              layout->key_sets_at,
                              layout->keys_at};
    uint64_t from =
        parts[random_below(random, 10)]; /* of a set that is not keyed, the first again */

    return from + random_below(random, random_below(random, 2) ? 64 : 4096);
}

static void scribble_anywhere(uint64_t random)
{
    const uint64_t rounds = effort_from("WEIR_ROUNDS", 1500) / 2;

    begin();
    for (uint64_t round = 0; round < rounds; round++) {
        unsigned char was[256], is[256];
        uint64_t at = some_place(&random);
        size_t n = 1 + random_below(&random, random_below(&random, 2) ? 8 : sizeof(was));

        require(pread(file, was, n, (off_t)at) == (ssize_t)n);
        memset(is, random_below(&random, 2) ? 0xff : 0, n);
        if (random_below(&random, 2))
            for (size_t i = 0; i < n; i++)
                is[i] = (unsigned char)random_next(&random);
        require(pwrite(file, is, n, (off_t)at) == (ssize_t)n);
        try_all();
        restore(at, was, n);
    }
    end();
}

static void random_bytes_anywhere(void **state)
{
    (void)state;
    seed_begin();
    scribble_anywhere(test_seed);
    not_keyed = true;
    scribble_anywhere(test_seed);
    not_keyed = false;
}

/* ---- with a right checksum ---- */

static uint64_t hash(uint64_t value, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        value = (value ^ ((const unsigned char *)bytes)[i]) * UINT64_C(1099511628211);
    return value;
}

static void seal(struct segment_header *header)
{
    const size_t from = offsetof(struct segment_identity, abi);
    struct segment_identity *identity = &header->identity;
    uint32_t length = identity->definition_length;
    uint64_t sum = hash(UINT64_C(14695981039346656037), (const char *)identity + from,
                        sizeof(*identity) - from);

    if (length > SEGMENT_DEFINITION_MAX)
        length = SEGMENT_DEFINITION_MAX;
    identity->checksum = hash(sum, (const char *)header + SEGMENT_DEFINITION_AT, length);
}

#define ASSERT_FORGED(field, value, code)                                                          \
    do {                                                                                           \
        struct segment_identity kept = header->identity;                                           \
        header->identity.field = (value);                                                          \
        seal(header);                                                                              \
        assert_int_equal(try_open(), code);                                                        \
        try_all();                                                                                 \
        assert_false(replaced());                                                                  \
        header->identity = kept;                                                                   \
    } while (0)

static void forged_numbers(void **state)
{
    struct segment_header *header;

    (void)state;
    begin();
    header = segment_header(original);
    seal(header);
    assert_int_equal(try_open(), 0); /* it is made as we think */
    ASSERT_FORGED(layout, SEGMENT_LAYOUT + 1, -EPROTONOSUPPORT);
    ASSERT_FORGED(header_size, 0, -EPROTONOSUPPORT);
    ASSERT_FORGED(abi, 1, -EPROTONOSUPPORT);
    ASSERT_FORGED(size, 0, -EUCLEAN);
    ASSERT_FORGED(size, UINT64_MAX, -EUCLEAN);
    ASSERT_FORGED(definition_hash, 1, -EEXIST);
    ASSERT_FORGED(definition_length, 0, -EUCLEAN);
    ASSERT_FORGED(definition_length, SEGMENT_DEFINITION_MAX - 1, 0); /* zeros behind */
    ASSERT_FORGED(definition_length, SEGMENT_DEFINITION_MAX, -EUCLEAN);
    ASSERT_FORGED(definition_length, UINT32_MAX, -EUCLEAN);
    ASSERT_FORGED(while_used, 1, -EEXIST);
    ASSERT_FORGED(while_used, UINT32_MAX, -EEXIST);
    ASSERT_FORGED(sizes.block_class, 0, -EUCLEAN);
    ASSERT_FORGED(sizes.block_class, 31, -EUCLEAN);
    ASSERT_FORGED(sizes.block_class, 64, -EUCLEAN);
    ASSERT_FORGED(sizes.block_class, UINT32_MAX, -EUCLEAN);
    ASSERT_FORGED(sizes.record_units, 0, -EUCLEAN);
    ASSERT_FORGED(sizes.record_units, UINT32_MAX, -EUCLEAN);
    ASSERT_FORGED(sizes.limits_n, UINT32_MAX, -EUCLEAN);
    ASSERT_FORGED(sizes.counters_size, 4, -EUCLEAN);
    ASSERT_FORGED(sizes.counters_size, UINT32_MAX, -EUCLEAN);
    ASSERT_FORGED(sizes.threads_n, UINT32_MAX, -EUCLEAN);
    ASSERT_FORGED(sizes.runs_n, 0, -EUCLEAN);
    ASSERT_FORGED(sizes.keys_max, 0, -EUCLEAN);
    ASSERT_FORGED(sizes.keys_max, 3000, -EUCLEAN);
    ASSERT_FORGED(sizes.keys_max, UINT64_MAX, -EUCLEAN);
    ASSERT_FORGED(sizes.key_sets_max, 0, -EUCLEAN);
    ASSERT_FORGED(sizes.key_sets_max, 1000, -EUCLEAN);
    ASSERT_FORGED(sizes.key_sets_max, original->layout.sizes.key_sets_max | UINT64_C(1) << 32,
                  -EUCLEAN);
    ASSERT_FORGED(sizes.key_sets_max, UINT64_MAX, -EUCLEAN);
    ASSERT_FORGED(name[0], 'x', -EUCLEAN);
    memset(header->identity.name, 'x', sizeof(header->identity.name));
    seal(header);
    assert_int_equal(try_open(), -EUCLEAN);
    try_all();
    end();
}

/* A shape that is consistent in itself, and the file is smaller: nothing behind its end is mapped.
 */
static void forged_shapes(void **state)
{
    struct segment_header *header;

    (void)state;
    begin();
    header = segment_header(original);
    for (uint32_t class = BLOCK_CLASS_MIN; class <= BLOCK_CLASS_MAX; class ++) {
        struct segment_shape shape = this_shape();
        struct segment_layout layout;

        shape.sizes.block_class = class;
        assert_int_equal(segment_layout_compute(&shape, &layout), 0);
        header->identity.sizes.block_class = class;
        header->identity.sizes.threads_n = layout.sizes.threads_n;
        header->identity.size = layout.size;
        seal(header);
        if (class == original->layout.sizes.block_class)
            continue;
        assert_int_equal(try_open(), -EUCLEAN);
        assert_int_equal(segment_inspect(place, "set", &summary, &error), -EUCLEAN);
        try_all();
    }
    end();
}

/* The word names no block, one that is not real, or another version than it holds. */
static void forged_words(void **state)
{
    _Atomic uint64_t *word;
    uint64_t was;

    (void)state;
    begin();
    word = &segment_header(original)->head.state_word;
    was = *word;
    *word = 0;
    assert_int_equal(try_open(), -EUCLEAN);
    *word = UINT64_MAX;
    assert_int_equal(try_open(), -EUCLEAN);
    *word = was & ~INFLATED_BIT;
    assert_int_equal(try_open(), -EUCLEAN);
    *word = was + 1; /* the next block, of a thread: version 0 */
    assert_int_equal(try_open(), -EUCLEAN);
    *word = was + original->layout.sizes.threads_n; /* the last: a hole */
    assert_int_equal(try_open(), -EUCLEAN);
    *word = was + original->layout.blocks_n - 1; /* of the last key set, another hole */
    assert_int_equal(try_open(), -EUCLEAN);
    *word = was + original->layout.blocks_n;
    assert_int_equal(try_open(), -EUCLEAN);
    *word = was - 1;
    assert_int_equal(try_open(), -EUCLEAN);
    *word = was + (UINT64_C(1) << BLOCK_SLOT_BITS);
    assert_int_equal(try_open(), -EUCLEAN);
    *word = was;
    segment_header(original)->head.number = 1;
    assert_int_equal(try_open(), -EUCLEAN);
    segment_header(original)->head.number = 0;
    segment_header(original)->head.block_class++;
    assert_int_equal(try_open(), -EUCLEAN);
    segment_header(original)->head.block_class--;
    assert_int_equal(try_open(), 0);
    end();
}

/* Key sets are spoken of that cannot be. */
static void forged_key_sets(void **state)
{
    struct segment_keyed *keyed;
    uint32_t max;

    (void)state;
    begin();
    keyed = segment_keyed(original);
    max = original->layout.sizes.key_sets_max;
    keyed->key_sets_high = max;
    keyed->unbound_list = UINT64_C(77) << 32 | max;
    assert_int_equal(try_open(), 0);
    keyed->unbound_list++;
    assert_int_equal(try_open(), -EUCLEAN);
    assert_non_null(strstr(error.message, "state"));
    keyed->unbound_list = 0;
    keyed->key_sets_high = max + UINT64_C(1);
    assert_int_equal(try_open(), -EUCLEAN);
    keyed->key_sets_high = 2;
    assert_int_equal(try_open(), 0);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(every_bit_of_the_header),
        leak_checked_test(every_byte_of_the_definition),
        leak_checked_test(every_byte_of_the_tables),
        leak_checked_test(random_bytes_anywhere),
        leak_checked_test(forged_numbers),
        leak_checked_test(forged_shapes),
        leak_checked_test(forged_words),
        leak_checked_test(forged_key_sets),
    };

    return cmocka_run_group_tests(tests, place_setup, place_teardown);
}
