/* SPDX-License-Identifier: MIT */
/* Memory: what an unused set takes, all told, and that what need not wait takes none. */
#include "api/instance.h"
#include "lib/world.h"
#include "limit/limit.h"

#define SETS       10000
#define IDLE_MAX   296 /* bytes of a set of one limit; 24 of them are for weir_reload */
#define BLOCK      256 /* bytes of a version of few limits */
#define BLOCK_COST 8   /* of the C library, beside what is in a block */

/* Of an instance: its blocks, and what is used of its region. */
static uint64_t bytes_of(const weir *w)
{
    struct fake_os_live live = fake_os_live();

    return live.bytes + BLOCK_COST * live.blocks + w->region.blocks.used + w->region.records.used;
}

/* A configuration of so many sets of these fields. */
static char *text_of(unsigned n, const char *fields)
{
    size_t size = 64 + n * (strlen(fields) + 32);
    char *text = malloc(size);
    size_t length = (size_t)snprintf(text, size, "version: 1\nsets:\n");

    for (unsigned i = 0; i < n; i++)
        length += (size_t)snprintf(text + length, size - length, "  set%05u: { %s }\n", i, fields);
    return text;
}

/* With so many sets, before any is opened. */
static uint64_t bytes_with(unsigned n, const char *fields)
{
    char *text = text_of(n, fields);
    const struct weir_options options = {.size = sizeof(options), .text = text};
    struct weir_error error = {0};
    uint64_t bytes;
    weir *w;

    if (weir_open(&w, &options, &error) < 0)
        fail_msg("%s", error.message);
    bytes = bytes_of(w);
    assert_null(weir_close(w));
    free(text);
    return bytes;
}

/* What each of many takes, what tables keep in reserve included. */
static double each(const char *fields)
{
    return (double)(bytes_with(SETS, fields) - bytes_with(1, fields)) / (SETS - 1);
}

#define SLOTS  "{ type: resource, key: slots, capacity: 10 }"
#define TOKENS "{ type: rate, key: tokens, algorithm: gcra, capacity: 100, window: 1s }"
#define CALLS  "{ type: call, algorithm: gcra, capacity: 100, window: 1s }"

static void an_idle_set_takes_little(void **state)
{
    static const char *const fields[] = {"limits: [ " SLOTS " ]", "limits: [ " TOKENS " ]",
                                         "limits: [ " CALLS " ]",
                                         "limits: [ " SLOTS " ], timeout: 2s, max_waiters: 10"};

    (void)state;
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
        double bytes = each(fields[i]);

        print_message("%.1f bytes: %s\n", bytes, fields[i]);
        assert_true(bytes <= IDLE_MAX);
    }
}

/* Sets of other limits have a block as well, and several limits are shared as one is. */
static void what_does_not_fit_a_word_takes_a_block(void **state)
{
    double bucket = each("limits: [ { type: rate, key: tokens, algorithm: token_bucket, "
                         "capacity: 100, window: 1s } ]"),
           three = each("limits: [ " SLOTS ", " TOKENS ", " CALLS " ]");

    (void)state;
    print_message("%.1f bytes: token_bucket; %.1f bytes: three limits\n", bucket, three);
    /* The allocator may give a little more than it was asked for. */
    assert_true(bucket <= IDLE_MAX + BLOCK + 16 && three <= IDLE_MAX + BLOCK + 16);
}

static void equal_limits_are_kept_until_the_last_is_given_back(void **state)
{
    static char first[] = "capacity\0"
                          "10",
                second[] = "capacity\0"
                           "11",
                key[] = "slots", same_key[] = "slots", other_key[] = "slot", config[] = "abc",
                same[] = "abc", other[] = "abd";
    const struct limit one = {.type = WEIR_LIMIT_RATE,
                              .key = key,
                              .settings_text = first,
                              .settings_n = 1,
                              .config = config,
                              .config_size = 3,
                              .capacity = 10,
                              .state_words = 1};
    struct limit equal = one, different[] = {one, one, one, one, one, one, one, one};
    size_t n = sizeof(different) / sizeof(*different);
    struct limit_intern_table table = {0};
    struct limit *limits, *others[sizeof(different) / sizeof(*different)];

    (void)state;
    equal.key = same_key;
    equal.config = same;
    different[0].key = other_key;
    different[1].settings_text = second;
    different[2].config = other;
    different[3].capacity = 11;
    different[4].refund = REFUND_YES;
    different[5].lease = 2;
    different[6].state_offset = 1;
    different[7].type = WEIR_LIMIT_CALL;
    assert_non_null(limits = limit_intern(&table, &one, 1));
    assert_ptr_equal(limit_intern(&table, &equal, 1), limits);
    for (size_t i = 0; i < n; i++) {
        assert_non_null(others[i] = limit_intern(&table, &different[i], 1));
        for (size_t k = 0; k < i; k++)
            assert_ptr_not_equal(others[i], others[k]);
        assert_ptr_not_equal(others[i], limits);
    }
    assert_int_equal(table.n, 1 + n);
    limit_intern_release(&table, limits);
    assert_int_equal(table.n, 1 + n);
    assert_ptr_equal(limit_intern(&table, &one, 1), limits);
    assert_string_equal(limits->key, "slots");
    assert_memory_equal(limits->settings_text, first, sizeof(first));
    assert_memory_equal(limits->config, config, 3);
    for (size_t i = 0; i < n; i++)
        limit_intern_release(&table, others[i]);
    limit_intern_release(&table, limits);
    limit_intern_release(&table, limits);
    assert_int_equal(table.n, 0);
    limit_intern_free(&table);
}

static void without_memory_limits_are_not_shared(void **state)
{
    static char key[] = "slots";
    const struct limit one = {.type = WEIR_LIMIT_RESOURCE, .key = key, .capacity = 1};
    struct limit_intern_table table = {0};

    (void)state;
    for (uint64_t n = 1; n <= 2; n++) {
        fake_os_fail_kind_at(n, FAKE_MEMORY, 0);
        assert_null(limit_intern(&table, &one, 1));
        assert_int_equal(table.n, 0);
        limit_intern_free(&table);
    }
    fake_os_fail_at(0);
}

/* ---- what need not wait ---- */

static weir_queue *queue;

static void take_one(const struct weir_request *request)
{
    assert_int_equal(take(request), 0);
}

/* No call says how much of a rate was used. */
static void give_back(weir_acquisition *a)
{
    int r = weir_release(&a);

    assert_true(r == 0 || r == -EPROTO);
}

static void try_one(const struct weir_request *request)
{
    weir_acquisition *a;

    assert_int_equal(try_acquire(request, &a), 0);
    give_back(a);
}

static void acquire_one(const struct weir_request *request)
{
    weir_acquisition *a;

    assert_int_equal(weir_acquire(world.pool, request, &a, &refusal), 0);
    give_back(a);
}

static void submit_one(const struct weir_request *request)
{
    give_back(granted(request));
}

static void queue_one(const struct weir_request *request)
{
    struct weir_completion completion;

    assert_int_equal(weir_queue_submit(queue, world.pool, request, 1, NULL, &refusal), 0);
    assert_int_equal(weir_queue_reap(queue, &completion, 1), 1);
    assert_int_equal(completion.result, 0);
    give_back(completion.acquisition);
}

/* Before anything is counted, so much of it is done that everything is there that it needs. */
static void expect_no_memory(void (*one)(const struct weir_request *), const char *fields,
                             const struct weir_request *request)
{
    struct fake_os_counts before, after;

    world_real(fields);
    assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
    for (int i = 0; i < 300; i++)
        one(request);
    before = fake_os_counts();
    for (int i = 0; i < 1000; i++)
        one(request);
    after = fake_os_counts();
    assert_int_equal(after.alloc, before.alloc);
    assert_int_equal(after.free, before.free);
    assert_int_equal(after.commit, before.commit);
    assert_null(weir_queue_close(queue));
    world_close();
}

static void what_need_not_wait_takes_no_memory(void **state)
{
#define MANY "{ type: rate, key: tokens, algorithm: gcra, capacity: 1000000, window: 1h }"
#define MORE "{ type: call, algorithm: token_bucket, capacity: 1000000, window: 1h }"
    static const char rate[] = "limits: [ " MANY " ]", slots[] = "limits: [ " SLOTS " ]",
                      three[] = "limits: [ " MANY ", " MORE ", " SLOTS " ]";
    static void (*const ways[])(const struct weir_request *) = {try_one, acquire_one, submit_one,
                                                                queue_one};

    (void)state;
    expect_no_memory(take_one, rate, ASK({"tokens", 1}));
    expect_no_memory(take_one, three, ASK({"tokens", 1}, {"slots", 0}));
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        expect_no_memory(ways[i], rate, ASK({"tokens", 1}));
        expect_no_memory(ways[i], slots, NULL);
        expect_no_memory(ways[i], three, ASK({"tokens", 1}));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(an_idle_set_takes_little),
        leak_checked_test(what_does_not_fit_a_word_takes_a_block),
        leak_checked_test(equal_limits_are_kept_until_the_last_is_given_back),
        leak_checked_test(without_memory_limits_are_not_shared),
        leak_checked_test(what_need_not_wait_takes_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
