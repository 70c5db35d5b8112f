/* SPDX-License-Identifier: MIT */
/* The table of names, against a plain list. */
#include "base/str_map.h"
#include "lib/random.h"
#include "lib/world.h"

#define NAMES 300

static char texts[NAMES][8];
static bool there[NAMES];

static void check(const struct str_map *names)
{
    size_t n = 0;

    for (size_t i = 0; i < NAMES; i++) {
        assert_ptr_equal(str_map_find(names, texts[i]), there[i] ? &there[i] : NULL);
        n += there[i];
    }
    assert_int_equal(names->n, n);
}

/* Removal must leave all entries behind the gap within reach. */
static void names_are_found_whatever_was_added_and_removed(void **state)
{
    struct str_map names = {0};
    uint64_t random = 3;

    (void)state;
    for (size_t i = 0; i < NAMES; i++) {
        snprintf(texts[i], sizeof(texts[i]), "n%zu", i);
        there[i] = false;
    }
    for (int turn = 0; turn < 3000; turn++) {
        size_t i = random_below(&random, NAMES);

        if (there[i]) {
            str_map_remove(&names, texts[i], &there[i]);
        } else {
            assert_int_equal(str_map_reserve(&names, 1), 0);
            str_map_add(&names, texts[i], &there[i]);
        }
        there[i] = !there[i];
        if (turn % 16 == 0)
            check(&names);
    }
    check(&names);
    str_map_free(&names);
}

static void a_name_is_removed_only_by_what_it_names(void **state)
{
    struct str_map names = {0};
    int mine, other;

    (void)state;
    assert_null(str_map_find(&names, "x"));
    assert_int_equal(str_map_reserve(&names, 1), 0);
    str_map_add(&names, "x", &mine);
    str_map_remove(&names, "x", &other);
    assert_ptr_equal(str_map_find(&names, "x"), &mine);
    str_map_remove(&names, "y", &mine);
    str_map_remove(&names, "x", &mine);
    assert_null(str_map_find(&names, "x"));
    str_map_free(&names);
}

static void the_hash_is_fnv_1a(void **state)
{
    (void)state;
    assert_int_equal(fnv1a_text(""), UINT64_C(0xcbf29ce484222325));
    assert_int_equal(fnv1a_text("a"), UINT64_C(0xaf63dc4c8601ec8c));
    assert_int_equal(fnv1a_text("foobar"), UINT64_C(0x85944171f73967e8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(names_are_found_whatever_was_added_and_removed),
        leak_checked_test(a_name_is_removed_only_by_what_it_names),
        leak_checked_test(the_hash_is_fnv_1a),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
