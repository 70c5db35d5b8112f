/* SPDX-License-Identifier: MIT */
/*
 * The key table, stopped at every step, with fibers (fiber.h). Threads decide on keys, forget them
 * and evict each other's keys from a few slots. Each is stopped between two accesses to the table
 * and goes on later, or never. The whole table is checked before every step: no key is in it twice,
 * a word changes only by one decision, no decision is lost, and the first decision uses a clock
 * that was read after the key was last taken out.
 *
 *     test_key_table_steps [STRIDE [SEED]]
 *
 * Where two threads are stopped, each at any of its steps, every STRIDE-th pair is tried; 1 is all.
 * Exits with 77 under ThreadSanitizer.
 */
#include "shm/key_table.h"
#include "stepped.h"

#include "lib/require.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

#define SLOTS   16u /* two buckets */
#define KEYS    3u
#define THREADS 4u
#define HELD    (UINT64_C(1) << 63)

static uint64_t stride = 37, rng, rounds;
static struct key_table table;
static struct probe_stats tally;
static _Alignas(128) struct atomic128 slots[SLOTS];

/* What was last seen in the slots, and what became of each key. */
static struct atomic128_value seen[SLOTS];
static struct {
    uint64_t taken;    /* decisions that the table has or had */
    uint64_t removals; /* how often it was taken out */
    uint64_t told;     /* decisions that their threads know of */
} fates[KEYS];

static struct thread {
    struct fiber fiber;
    uint64_t nonce_state;
    const struct key_policy *policy;
    uint32_t key;
    uint32_t turns; /* decisions it is to make, and to forget the key after each second one */
} threads[THREADS];

/* Every key has these places, not all in the same order. */
static struct key_digest key_at(uint32_t number)
{
    return (struct key_digest){number % 2 ? UINT64_MAX : 0, 2 * number + 2};
}

static uint32_t number_of(uint64_t id)
{
    return (uint32_t)(id / 2 - 1);
}

/* A word is the number of decisions on a key, and above that, as a clock, how often the key had
 * been taken out before the first of them, and its number. Each third decision is as good as none.
 */
#define DECISIONS(word) ((uint32_t)(word))
#define OWNER(word)     ((word) >> 60)

static enum key_use use(const void *userdata, uint64_t id, uint64_t word, uint64_t *ret_instant)
{
    (void)userdata;
    (void)id;
    *ret_instant = word;
    if (word & HELD)
        return KEY_PINNED;
    return DECISIONS(word) % 3 == 0 ? KEY_AS_NEW : KEY_EVICTABLE;
}

static const struct key_policy policies[] = {{use, NULL, KEY_EVICT_OLDEST, NULL},
                                             {use, NULL, KEY_EVICT_NONE, NULL},
                                             {use, NULL, KEY_EVICT_RANDOM, NULL}};

static bool is_key(const struct atomic128_value *value)
{
    return value->low && !(value->low & 1) && !(value->high & HELD);
}

static uint64_t first_word(uint32_t number)
{
    return (uint64_t)number << 60 | fates[number].removals << 32 | 1;
}

/* What changed in a slot since the last look. */
static void look_at_slot(struct atomic128_value *before, const struct atomic128_value *now)
{
    bool same = is_key(before) && before->low == now->low;

    if (same && now->high == before->high)
        return;
    if (same)
        require(now->high == before->high + 1);
    else if (is_key(now))
        require(now->high == first_word(number_of(now->low)));
    if (is_key(now))
        fates[number_of(now->low)].taken++;
    if (is_key(before) && !same)
        fates[number_of(before->low)].removals++;
    *before = *now;
}

static void look(void)
{
    uint32_t there[KEYS] = {0};

    for (uint32_t i = 0; i < SLOTS; i++) {
        struct atomic128_value now = {atomic_load(&slots[i].low), atomic_load(&slots[i].high)};

        look_at_slot(&seen[i], &now);
        if (is_key(&now))
            require(++there[number_of(now.low)] == 1);
    }
}

/* ---- threads ---- */

/* Returns whether it was decided; false: not at this attempt. */
static bool try_new(struct thread *thread, const struct key_digest *key, bool *ret_full)
{
    struct key_entry entry;

    switch (key_table_claim(&table, key, thread->policy, &thread->nonce_state, &entry, &tally)) {
    case KEY_CLAIMED:
        look();
        return key_claim_commit(&entry, first_word(thread->key));
    case KEY_FOUND:
        return false;
    case KEY_FULL:
        break;
    }
    *ret_full = true;
    return false;
}

static bool try_decide(struct thread *thread, const struct key_digest *key, bool *ret_full)
{
    struct key_entry entry;

    if (key_table_find(&table, key, &entry)) {
        require(OWNER(entry.word) == thread->key);
        return key_entry_swap(&entry, entry.word + 1) == KEY_SWAPPED;
    }
    return try_new(thread, key, ret_full);
}

static void run_thread(void *argument)
{
    struct thread *thread = argument;
    const struct key_digest key = key_at(thread->key);

    for (uint32_t turn = 0; turn < thread->turns; turn++) {
        struct key_entry entry;
        bool full = false;

        while (!full && !try_decide(thread, &key, &full))
            ;
        if (!full)
            fates[thread->key].told++;
        require(!full || thread->policy->eviction == KEY_EVICT_NONE);
        if (turn % 2 && key_table_find(&table, &key, &entry))
            key_entry_remove(&entry);
    }
}

static struct fiber *begin(uint32_t number, uint32_t key, const struct key_policy *policy,
                           uint32_t turns)
{
    struct thread *thread = &threads[number];

    thread->nonce_state = number;
    thread->policy = policy;
    thread->key = key;
    thread->turns = turns;
    fiber_start(&thread->fiber, run_thread, thread);
    return &thread->fiber;
}

/* An empty table, except that all slots but `room` belong to keys that stay. */
static void prepare(uint32_t room)
{
    memset(slots, 0, sizeof(slots));
    memset(fates, 0, sizeof(fates));
    tally = (struct probe_stats){0};
    for (uint32_t i = 0; i < SLOTS - room; i++) {
        atomic_store(&slots[(i * 5 + 1) % SLOTS].low, 1000 + 2 * i);
        atomic_store(&slots[(i * 5 + 1) % SLOTS].high, HELD);
    }
    for (uint32_t i = 0; i < SLOTS; i++)
        seen[i] = (struct atomic128_value){atomic_load(&slots[i].low), atomic_load(&slots[i].high)};
}

/* At most `dead` threads were stopped for ever, each perhaps after a decision that it could not
 * report, or with a claim. */
static void finish(uint32_t dead)
{
    uint64_t taken = 0, told = 0;

    rounds++;
    look();
    for (uint32_t k = 0; k < KEYS; k++) {
        require(fates[k].taken >= fates[k].told);
        taken += fates[k].taken;
        told += fates[k].told;
    }
    require(taken <= told + dead);
    for (uint32_t i = 0; i < SLOTS; i++)
        require(dead || !(seen[i].low & 1));
}

/* Another thread gets on, whatever the first ones left behind. */
static void others_get_on(uint32_t number, uint32_t key, const struct key_policy *policy)
{
    struct fiber *fiber = begin(number, key, policy, 1);
    uint64_t told = fates[key].told;

    require(fiber_go(fiber, 0) == FIBER_DONE);
    require(fates[key].told == told + 1 || policy->eviction == KEY_EVICT_NONE);
}

/* ---- tests ---- */

static uint64_t count_steps(uint32_t room, const struct key_policy *policy, uint32_t turns)
{
    uint64_t before;

    prepare(room);
    before = fiber_steps();
    fiber_go(begin(0, 0, policy, turns), 0);
    return fiber_steps() - before;
}

/*
 * Of two threads each is stopped at any step; a third gets on; then they go on, or only one does.
 */
static void round_of_two(const struct key_policy *policy, uint32_t room, uint32_t other, uint64_t n,
                         uint64_t m)
{
    for (uint32_t end = 0; end < 4; end++) {
        prepare(room);
        fiber_go(begin(0, 0, policy, 2), n);
        fiber_go(begin(1, other, policy, 2), m);
        others_get_on(2, end % 2 ? other : 0, policy);
        fiber_go(&threads[end < 2 ? 0 : 1].fiber, 0);
        others_get_on(3, 2, policy);
        if (end % 2)
            fiber_go(&threads[end < 2 ? 1 : 0].fiber, 0);
        finish(end % 2 ? 0 : 1);
    }
}

static void each_pair(uint32_t other)
{
    uint64_t pair = 0;

    rounds = 0;
    for (uint32_t j = 0; j < 3; j++)
        for (uint32_t room = 2; room <= 3; room++) {
            const uint64_t steps = count_steps(room, &policies[j], 2);

            for (uint64_t n = 1; n <= steps; n++)
                for (uint64_t m = 1; m <= steps; m++)
                    if (pair++ % stride == 0)
                        round_of_two(&policies[j], room, other, n, m);
        }
    print_message("%" PRIu64 " rounds\n", rounds);
}

static void two_stop_in_the_same_key(void **state)
{
    (void)state;
    each_pair(0);
}

static void two_stop_in_keys_that_share_places(void **state)
{
    (void)state;
    each_pair(1);
}

/* One goes on for a few steps, then another. */
static void any_turns(void **state)
{
    (void)state;
    rounds = 0;
    for (uint64_t i = 0; i < 200000 / stride; i++) {
        const struct key_policy *policy = &policies[i % 3];
        const uint32_t keys = 1 + (uint32_t)random_below(&rng, KEYS);
        uint32_t done = 0, dead = 0;

        prepare(2 + (uint32_t)random_below(&rng, 3));
        for (uint32_t a = 0; a < THREADS; a++)
            begin(a, a % keys, policy, 6);
        while (done < THREADS) {
            struct thread *thread = &threads[random_below(&rng, THREADS)];

            if (i % 2 && thread->fiber.state == FIBER_READY && random_below(&rng, 400) == 0) {
                thread->fiber.state = FIBER_DONE; /* dies */
                dead++;
            }
            fiber_go(&thread->fiber, 1 + random_below(&rng, random_below(&rng, 8) ? 12 : 100));
            for (uint32_t a = done = 0; a < THREADS; a++)
                done += threads[a].fiber.state == FIBER_DONE;
        }
        finish(dead);
    }
    print_message("%" PRIu64 " rounds, seed then %" PRIu64 "\n", rounds, rng);
}

static int setup(void **state)
{
    (void)state;
    atomic128_detect();
    table = (struct key_table){.slots = slots, .buckets_n = 2, .id_mask = KEY_ID_MASK};
    fibers_begin(look);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fibers_end();
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_stop_in_the_same_key),
        cmocka_unit_test(two_stop_in_keys_that_share_places),
        cmocka_unit_test(any_turns),
    };

    if (!fibers_are_possible())
        return FIBERS_SKIPPED;
    stride = argument(argc, argv, 1, effort_stride(stride));
    rng = test_seed = argument(argc, argv, 2, 1);
    return cmocka_run_group_tests(tests, setup, teardown);
}
