/* SPDX-License-Identifier: MIT */
/*
 * Keys and their key sets, stopped at every step, with fibers (fiber.h). One thread asks, waits,
 * gives up or gives back, and is stopped anywhere. Others do that with its key and with other keys
 * meanwhile; then the first goes on. All keys are checked before every step. The true state of a
 * key, by its entry, changes only by what one call takes or gives back, and vanishes only if
 * nothing is held. A waiter is in the wait queue of the key set that its key's entry names, as of
 * its binding. At the end the true state is what the records hold, everything was counted once, and
 * all key sets can be had at the same time.
 *
 *     test_key_set_steps [STRIDE]
 *
 * Where two threads are stopped, each at any of its steps, every STRIDE-th pair is tried; 1 is all.
 * Exits with 77 under ThreadSanitizer.
 */
#include "api/acquire.h"
#include "api/instance.h"
#include "api/set_object.h"
#include "config/plan.h"
#include "crash_world.h"
#include "keyed/keyed.h"
#include "os/os.h"
#include "state/stack_version.h"
#include "stepped.h"

#include "lib/require.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { KEYS = 4, FOREIGN = 2, LIMITS_MAX = 2, PRESETS = 3, PATHS = 4 };
enum { HOLDER, WAITER, STOPPED, OTHER, LAST, USERS };
#define UNITS_MAX (UINT64_C(1) << 40)

static uint64_t stride = 499, rounds, pair;

/* ---- a rate that time does nothing to ---- */

static void count_init(const void *config, void *state, const struct weir_instant *at)
{
    (void)config;
    (void)at;
    *(uint64_t *)state = 0;
}

static uint64_t count_ready_at(const void *config, const void *state, const struct weir_instant *at,
                               uint64_t amount)
{
    (void)config;
    return *(const uint64_t *)state + amount <= UNITS_MAX ? at->now_ns : WEIR_NEVER;
}

static void count_take(const void *config, void *state, const struct weir_instant *at,
                       uint64_t amount)
{
    (void)config;
    (void)at;
    *(uint64_t *)state += amount;
}

static uint64_t count_available(const void *config, const void *state,
                                const struct weir_instant *at)
{
    (void)config;
    (void)at;
    return UNITS_MAX - *(const uint64_t *)state;
}

static int count_is_new(const void *config, const void *state, const struct weir_instant *at)
{
    (void)config;
    (void)at;
    return *(const uint64_t *)state == 0;
}

static const struct weir_algorithm count_algorithm = {
    .size = sizeof(count_algorithm),
    .types = 1u << WEIR_LIMIT_RATE,
    .init = count_init,
    .ready_at = count_ready_at,
    .take = count_take,
    .available = count_available,
    .is_new = count_is_new,
};

/* ---- the sets ---- */

/* Sets of one resource, with states in key words while no thread waits; of two resources, so that
 * every key that is not as new needs a key set; and of a rate and a resource, so that keys are
 * never as new again, and are evicted for others. */
static const struct kind {
    const char *name;
    enum weir_limit_type types[LIMITS_MAX];
    uint32_t limits_n, key_sets;
} kinds[] = {
    {"words", {WEIR_LIMIT_RESOURCE}, 1, 2},
    {"key_set", {WEIR_LIMIT_RESOURCE, WEIR_LIMIT_RESOURCE}, 2, 2},
    {"evicted", {WEIR_LIMIT_RESOURCE, WEIR_LIMIT_RATE}, 2, 2},
};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static weir_set *sets[KINDS], *set;
static const struct kind *kind;

static void fill_limit(struct limit *limit, enum weir_limit_type type, uint32_t at)
{
    *limit = (struct limit){.type = type, .capacity = 1, .state_offset = (uint16_t)at};
    limit->key = os_strdup(at ? "second" : "first");
    limit->state_words = 1;
    if (type == WEIR_LIMIT_RATE) {
        limit->capacity = UNITS_MAX;
        limit->algorithm = &count_algorithm;
        limit->algorithm_name = "count";
    }
}

static weir_set *make_set(const struct kind *of)
{
    struct set_plan plan = {.timeout_ns = UINT64_MAX,
                            .max_wait_ns = UINT64_MAX,
                            .fair = true,
                            .limits_n = of->limits_n,
                            .state_words = of->limits_n,
                            .keyed = {.max_keys = KEYS}};
    weir_set *made;

    plan.name = os_strdup(of->name);
    plan.limits = os_alloc(of->limits_n, sizeof(*plan.limits));
    require(plan.name && plan.limits);
    for (uint32_t i = 0; i < of->limits_n; i++)
        fill_limit(&plan.limits[i], of->types[i], i);
    instance_lock(world.w);
    require(registry_add_set(world.w, &plan, set_ops_for(&plan), &made, NULL) == 0);
    keyed_of(made)->key_sets_max = of->key_sets;
    for (uint32_t u = 0; u < USERS; u++)
        require(thread_ctx_prepare(world.threads[u], made) == 0);
    instance_unlock(world.w);
    return made;
}

static struct key_digest key_at(uint32_t number)
{
    return (struct key_digest){number % 2 ? UINT64_MAX : 0, 2 * number + 2};
}

/* ---- what is true ---- */

struct truth {
    bool there;
    uint64_t states[LIMITS_MAX];
    uint64_t word;
    bool idle; /* the key set that it names */
};

static struct truth seen[KEYS];
static uint64_t taken[KEYS]; /* of the last limit, as was seen */

static struct user {
    struct fiber fiber;
    uint32_t key, record;
    struct acquire_op asking;
    bool entered;
    int result;
} users[USERS];

static uint64_t told[KEYS]; /* grants, as their callers know */

static const struct version_block *block_of(const struct key_set *key_set)
{
    const struct set_head *head = region_block(key_set->set.region, key_set->set.head_unit);

    return block_at(false, key_set->set.region, key_set->set.block_class,
                    atomic_load(&head->state_word));
}

/* The key set that the word names has the key, as of that binding, or of the next that is about to
 * be: then its states are the key's. */
static void read_live(uint32_t key, struct truth *ret)
{
    struct key_set *key_set = key_set_at(keyed_of(set), ret->word, NULL);
    const struct version_block *block = block_of(key_set);
    const _Atomic uint64_t *states = &block->content[CONTENT_STATES];
    const struct key_binding *words = (const void *)(uintptr_t)(states + kind->limits_n);
    uint64_t binding = words->binding;

    require(words->key.buckets == key_at(key).buckets && words->key.id == key_at(key).id);
    require(binding >> 2 == key_word_binding(ret->word) ||
            (binding >> 2 == key_word_binding(ret->word) + 1 && (binding & 3) == 1));
    ret->idle = (binding & 3) == 0;
    for (uint32_t i = 0; i < kind->limits_n; i++)
        ret->states[i] = atomic_load(&states[i]);
}

static void read_entry(const struct atomic128 *slot, struct truth *now)
{
    uint64_t id = atomic_load(&slot->low);

    for (uint32_t k = 0; k < KEYS && id; k++) {
        if (id != key_at(k).id)
            continue;
        require(!now[k].there);
        now[k].there = true;
        now[k].word = now[k].states[0] = atomic_load(&slot->high);
        if (key_word_is_key_set(now[k].word))
            read_live(k, &now[k]);
    }
}

static void read_keys(struct truth *ret)
{
    const struct key_table *table = &keyed_of(set)->table;
    const struct atomic128 *end = table->slots + key_table_slots(table);

    memset(ret, 0, KEYS * sizeof(*ret));
    for (const struct atomic128 *slot = table->slots; slot < end; slot++)
        if (atomic_load_explicit(&slot->low, memory_order_relaxed)) /* most are free */
            read_entry(slot, ret);
}

static void compare(uint32_t key, const struct truth *before, const struct truth *now)
{
    const uint32_t last = kind->limits_n - 1;

    require(now->states[0] <= 1);
    require(now->there || !before->states[0]); /* a resource that is held is not forgotten */
    for (uint32_t i = 0; i < kind->limits_n && now->there; i++)
        require(now->states[i] + 1 >= before->states[i] && now->states[i] <= before->states[i] + 1);
    if (now->states[last] > before->states[last])
        taken[key]++;
}

/* From here on it is about this set. */
static void choose(uint32_t number)
{
    set = sets[number];
    kind = &kinds[number];
    read_keys(seen);
}

static enum record_state state_of(const struct user *user)
{
    return user->record ? record_state(record_load(&record_at(set->region, user->record)->word))
                        : RECORD_FREE;
}

/* A waiter is in the wait queue of the key set that its key's entry names. */
static void look_at_waiter(const struct user *user)
{
    uint64_t set_word = record_load(&record_at(set->region, user->record)->set);
    const weir_set *where = instance_set(world.w, (uint32_t)(set_word >> 32));

    require(set_is_key_set(where) && seen[user->key].there &&
            key_word_is_key_set(seen[user->key].word));
    require(&key_set_at(keyed_of(set), seen[user->key].word, NULL)->set == where);
}

static void look(void)
{
    struct truth now[KEYS];

    if (!set)
        return;
    read_keys(now);
    for (uint32_t k = 0; k < KEYS; k++)
        compare(k, &seen[k], &now[k]);
    memcpy(seen, now, sizeof(seen));
    for (uint32_t u = 0; u < USERS; u++)
        if (state_of(&users[u]) == RECORD_WAITING)
            look_at_waiter(&users[u]);
}

/* ---- using it ---- */

static struct thread_ctx *context_of(const struct user *user)
{
    return world.threads[user - users];
}

static void fill_record(const struct user *user)
{
    struct acq_record *r = record_at(set->region, user->record);

    for (uint32_t i = 0; i < kind->limits_n; i++)
        record_store(&r->amounts[i], 1);
    keyed_fill_record(&user->asking, r);
    record_store(&r->owner, (uint64_t)context_of(user)->unit << 32);
    record_store(&r->set, (uint64_t)set->id << 32 | context_of(user)->thread);
    record_set_wait_target(r, WAIT_TARGET_FUTEX, 0, 0);
    record_store(&r->deadline_ns, WEIR_FOREVER);
}

static void enter(struct user *user)
{
    user->record = record_pool_get(context_of(user), set);
    require(user->record);
    user->asking =
        (struct acquire_op){.set = set, .ctx = context_of(user), .key = key_at(user->key)};
    fill_record(user);
    for (uint32_t i = 0; i < kind->limits_n; i++)
        user->asking.amounts[i] = 1;
    user->result = keyed_acquire(&user->asking, user->record, MODE_WAIT, UINT64_MAX);
    user->entered = true;
}

static void leave(struct user *user)
{
    const uint64_t amounts[LIMITS_MAX] = {1, 1};
    const struct release_args args = {.amounts = amounts, .used = amounts};
    struct acq_record *r = record_at(set->region, user->record);

    if (!user->record)
        return;
    if (state_of(user) == RECORD_WAITING)
        set_cancel_wait(user->asking.ctx, user->asking.set, user->record, 0, RECORD_CANCELED);
    require(state_of(user) != RECORD_WAITING);
    if (state_of(user) == RECORD_HELD) {
        told[user->key]++;
        keyed_release(user->asking.ctx, user->asking.set, user->record, record_load(&r->word), true,
                      &args);
    } else if (state_of(user) != RECORD_FREE) {
        atomic_store(&r->word, record_next_word(record_load(&r->word), RECORD_FREE));
    }
    require(state_of(user) == RECORD_FREE);
    record_pool_put(user->asking.ctx, user->asking.set, user->record);
    user->record = 0;
}

static void enter_and_leave(void *argument)
{
    enter(argument);
    leave(argument);
}

static void only_leave(void *argument)
{
    leave(argument);
}

static struct fiber *start(uint32_t number, uint32_t key, void (*run)(void *))
{
    struct user *user = &users[number];

    if (run != only_leave) {
        user->key = key;
        user->entered = false;
    }
    fiber_start(&user->fiber, run, user);
    return &user->fiber;
}

/* ---- rounds ---- */

/* No thread is in the middle of an operation. */
static void check_at_rest(void)
{
    uint64_t held[KEYS] = {0};

    look();
    for (uint32_t u = 0; u < USERS; u++)
        held[users[u].key] += state_of(&users[u]) == RECORD_HELD;
    for (uint32_t k = 0; k < KEYS; k++)
        require(seen[k].states[0] == held[k]);
}

/*
 * All key sets can be had at the same time: by a key each, with a waiter where a key set needs one.
 */
static void have_all(void)
{
    bool lines = kind->limits_n == 1;

    for (uint32_t i = 0; i < kind->key_sets; i++) {
        users[i].key = i;
        enter(&users[i]);
        require(users[i].result == 0);
        if (!lines)
            continue;
        users[i + 2].key = i;
        enter(&users[i + 2]);
        require(users[i + 2].result == 1);
    }
    check_at_rest();
    for (uint32_t u = USERS; u-- > 0;)
        leave(&users[u]);
    check_at_rest();
}

static void begin_with(uint32_t preset)
{
    memset(taken, 0, sizeof(taken));
    memset(told, 0, sizeof(told));
    users[HOLDER].key = users[WAITER].key = 0;
    if (preset > 0)
        enter(&users[HOLDER]);
    if (preset > 1)
        enter(&users[WAITER]);
    check_at_rest();
}

static void finish(void)
{
    const uint32_t last = kind->limits_n - 1;

    rounds++;
    for (uint32_t u = 0; u < USERS; u++)
        require(fiber_go(&users[u].fiber, 0) == FIBER_DONE);
    check_at_rest();
    leave(&users[WAITER]);
    leave(&users[HOLDER]);
    check_at_rest();
    /* What a resource hands over at once is not seen. */
    for (uint32_t k = 0; k < KEYS; k++)
        require(kind->types[last] == WEIR_LIMIT_RATE ? taken[k] == told[k] : taken[k] <= told[k]);
    have_all();
}

/* What the others do while one is stopped. */
static struct fiber *other(uint32_t path, uint32_t preset)
{
    static const struct {
        uint32_t user, key;
        void (*run)(void *);
    } paths[PATHS] = {{OTHER, 0, enter_and_leave},
                      {OTHER, 1, enter_and_leave},
                      {HOLDER, 0, only_leave},
                      {WAITER, 0, only_leave}};

    return path >= 2 && preset < path - 1
               ? NULL
               : start(paths[path].user, paths[path].key, paths[path].run);
}

/* No thread is held up by the stopped ones; but there may be no key set left. */
static void last_gets_on(uint32_t key)
{
    require(fiber_go(start(LAST, key, enter_and_leave), 0) == FIBER_DONE);
    require(users[LAST].result >= 0 || (users[LAST].result == -ENOBUFS && kind->limits_n > 1));
}

static void one_is_stopped_on(uint32_t key, uint32_t preset, uint32_t path)
{
    enum fiber_state state = FIBER_READY;

    for (uint64_t n = 1; state == FIBER_READY; n++) {
        struct fiber *fiber;

        begin_with(preset);
        state = fiber_go(start(STOPPED, key, enter_and_leave), n);
        fiber = other(path, preset);
        if (fiber)
            require(fiber_go(fiber, 0) == FIBER_DONE);
        require(path != 1 || users[OTHER].result == 0 || kind->limits_n > 1);
        last_gets_on((uint32_t)(n % KEYS));
        finish();
    }
}

/* The first of them, and after that every stride-th. */
static void two_are_stopped_on(uint32_t key, uint32_t preset, uint32_t path)
{
    enum fiber_state first = FIBER_READY;

    for (uint64_t n = 1; first == FIBER_READY; n++) {
        enum fiber_state second = FIBER_READY;

        for (uint64_t m = 1 + pair++ % stride; second == FIBER_READY; m += stride) {
            struct fiber *fiber;

            begin_with(preset);
            first = fiber_go(start(STOPPED, key, enter_and_leave), n);
            fiber = other(path, preset);
            second = fiber ? fiber_go(fiber, m) : FIBER_DONE;
            last_gets_on((uint32_t)((n + m) % KEYS));
            if (m % 2)
                fiber_go(&users[STOPPED].fiber, 0);
            finish();
        }
    }
}

/* In all sets, whatever was there before, and whatever the others do. The stopped thread uses a key
 * that is there, or one for which it has to make room. */
static void each_case(void (*stop)(uint32_t key, uint32_t preset, uint32_t path))
{
    rounds = 0;
    for (uint32_t i = 0; i < KINDS; i++) {
        choose(i);
        for (uint32_t key = 0; key <= FOREIGN; key += FOREIGN)
            for (uint32_t preset = 0; preset < PRESETS; preset++)
                for (uint32_t path = 0; path < PATHS; path++)
                    stop(key, preset, path);
    }
    set = NULL;
    print_message("%" PRIu64 " rounds\n", rounds);
}

static void one_is_stopped(void **state)
{
    (void)state;
    each_case(one_is_stopped_on);
}

static void two_are_stopped(void **state)
{
    (void)state;
    pair = 0;
    each_case(two_are_stopped_on);
}

/* The key with an entry that names its unbound key set; KEYS: none. */
static uint32_t left_idle(void)
{
    uint32_t k = 0;

    look();
    while (k < KEYS && !seen[k].idle)
        k++;
    return k;
}

/* A thread that evicts a key is stopped. Another binds the key set to it anew and is stopped. A
 * third finds what both have left. */
static void binding_anew_is_stopped(void **state)
{
    enum fiber_state evicts = FIBER_READY;

    (void)state;
    rounds = 0;
    choose(KINDS - 1);
    for (uint64_t n = 1; evicts == FIBER_READY; n++) {
        enum fiber_state binds = FIBER_READY;

        for (uint64_t m = 1; binds == FIBER_READY; m++) {
            uint32_t key;

            begin_with(0);
            evicts = fiber_go(start(STOPPED, FOREIGN, enter_and_leave), n);
            key = left_idle();
            binds = key < KEYS ? fiber_go(start(OTHER, key, enter_and_leave), m) : FIBER_DONE;
            if (key < KEYS)
                last_gets_on(key);
            finish();
        }
    }
    set = NULL;
    print_message("%" PRIu64 " rounds\n", rounds);
    require(rounds > 1000);
}

static void enter_key(uint32_t number, uint32_t key)
{
    users[number].key = key;
    enter(&users[number]);
}

/* A thread is about to join the wait queue of a key. The waiters in it leave, and others form one
 * for another key, in the same key set; then the thread goes on. */
static void a_wait_queue_becomes_another_key_s(void **state)
{
    (void)state;
    rounds = 0;
    for (uint32_t i = 0; i < KINDS; i++) {
        enum fiber_state stopped = FIBER_READY;

        choose(i);
        for (uint64_t n = 1; stopped == FIBER_READY; n++) {
            begin_with(2);
            stopped = fiber_go(start(STOPPED, 0, enter_and_leave), n);
            leave(&users[WAITER]);
            leave(&users[HOLDER]);
            enter_key(OTHER, 1);
            enter_key(LAST, 1);
            require(users[OTHER].result == 0 && users[LAST].result == 1);
            require(fiber_go(&users[STOPPED].fiber, 0) == FIBER_DONE);
            require(users[STOPPED].result >= 0);
            leave(&users[LAST]);
            leave(&users[OTHER]);
            finish();
        }
    }
    set = NULL;
    print_message("%" PRIu64 " rounds\n", rounds);
}

static int setup(void **state)
{
    (void)state;
    atomic128_detect();
    world_make(INTERVAL_NS);
    world_share(false);
    for (uint32_t i = 0; i < KINDS; i++)
        sets[i] = make_set(&kinds[i]);
    for (uint32_t u = 0; u < USERS; u++)
        users[u].fiber.state = FIBER_DONE;
    fibers_begin(look);
    for (uint32_t i = 0; i < KINDS; i++) { /* from now on there are as many as there can be */
        choose(i);
        have_all();
    }
    set = NULL;
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_queue_becomes_another_key_s),
        cmocka_unit_test(one_is_stopped),
        cmocka_unit_test(two_are_stopped),
        cmocka_unit_test(binding_anew_is_stopped),
    };

    if (!fibers_are_possible())
        return FIBERS_SKIPPED;
    stride = argument(argc, argv, 1, effort_stride(stride));
    return cmocka_run_group_tests(tests, setup, stepped_teardown);
}
