/* SPDX-License-Identifier: MIT */
/* The heap of deadlines, against a plain search over all nodes. */
#include "heap.h"
#include "world.h"

#define NODES 200

static uint64_t random_state;

static uint64_t any(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return random_state >> 33;
}

static void check(const struct heap *heap, struct heap_node *nodes)
{
    struct heap_node *first = NULL;
    size_t n = 0;

    for (int i = 0; i < NODES; i++) {
        if (!nodes[i].index)
            continue;
        n++;
        assert_ptr_equal(heap->nodes[nodes[i].index], &nodes[i]);
        if (!first || nodes[i].at_ns < first->at_ns)
            first = &nodes[i];
    }
    assert_int_equal(heap->n, n);
    assert_int_equal(heap_first(heap) != NULL, first != NULL);
    if (first)
        assert_int_equal(heap_first(heap)->at_ns, first->at_ns);
}

static void the_earliest_is_first_whatever_was_added_and_removed(void **state)
{
    struct heap_node nodes[NODES] = {{0}};
    struct heap heap = {0};

    (void)state;
    random_state = 1;
    assert_int_equal(heap_reserve(&heap, NODES), 0);
    for (int i = 0; i < 20000; i++) {
        struct heap_node *node = &nodes[any() % NODES];

        if (node->index)
            heap_remove(&heap, node);
        else
            heap_add(&heap, node, any() % 50);
        check(&heap, nodes);
    }
    for (int i = 0; i < NODES; i++)
        heap_remove(&heap, &nodes[i]); /* fine if it is not there */
    assert_null(heap_first(&heap));
    heap_free(&heap);
}

static void they_come_out_in_order(void **state)
{
    struct heap_node nodes[NODES] = {{0}};
    struct heap heap = {0};
    uint64_t last = 0;

    (void)state;
    random_state = 2;
    assert_int_equal(heap_reserve(&heap, NODES), 0);
    for (int i = 0; i < NODES; i++)
        heap_add(&heap, &nodes[i], any() % 1000);
    for (int i = 0; i < NODES; i++) {
        struct heap_node *first = heap_first(&heap);

        assert_true(first->at_ns >= last);
        last = first->at_ns;
        heap_remove(&heap, first);
        assert_int_equal(first->index, 0);
    }
    heap_free(&heap);
}

static void without_memory_the_heap_stays_as_it_was(void **state)
{
    struct heap_node node = {0};
    struct heap heap = {0};

    (void)state;
    assert_int_equal(heap_reserve(&heap, 4), 0);
    heap_add(&heap, &node, 7);
    fake_sys_fail_kind_at(1, FAKE_MEMORY, 0);
    assert_int_equal(heap_reserve(&heap, 1000), -ENOMEM);
    assert_ptr_equal(heap_first(&heap), &node);
    assert_int_equal(heap_reserve(&heap, 1000), 0);
    assert_ptr_equal(heap_first(&heap), &node);
    heap_free(&heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(the_earliest_is_first_whatever_was_added_and_removed),
        leak_checked_test(they_come_out_in_order),
        leak_checked_test(without_memory_the_heap_stays_as_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
