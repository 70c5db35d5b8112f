/* SPDX-License-Identifier: MIT */
/*
 * Random operations for a few subjects of a keyed set. Each is also done to an ordinary set of the
 * same limits that is that subject's alone. Results, refusals and their retry-after, the instant of
 * each grant, the order of each wait queue and the sums of all counters are the same. The keyed set
 * has little room, so keys are forgotten all the time, which must not show; a request for which
 * there is no room is left out. What counts from the creation of a limit is not among the limits
 * here: a key is created when it is first asked for. Both sides get other limits now and then: a
 * set of threads by a reload, one that processes share by a change of its definition. A subject
 * that is as good as new begins anew with that: its own set is exchanged for another one then. Of a
 * limit that begins anew in a shared set no waiter asks anything, but in the ordinary sets some do:
 * so those end before. WEIR_SEED and WEIR_OPERATIONS override the seed and how many there
 * are. An engine has room for all, and the ordinary sets as well: it counts in its own units.
 */
#include "api/instance.h"
#include "lib/require.h"
#include "lib/world.h"
#include "wait/wait_timer.h"
#include <weir/segment.h>

#define SUBJECTS           12u
#define ASKERS             40u
#define OPERATIONS_PER_SET 500u

static const char *const limits_of[] = {
    "{ type: rate, key: tokens, algorithm: gcra, capacity: 5, window: 1s }",
    "{ type: rate, key: tokens, algorithm: gcra, capacity: 5, window: 1s, "
    "overuse: charge }",
    "{ type: call, algorithm: gcra, capacity: 3, window: 3us, burst: 2 }",
    "{ type: rate, key: tokens, algorithm: gcra, capacity: 5, window: 1s, refund: strict }",
    "{ type: resource, key: slots, capacity: 3 }",
    "{ type: rate, key: tokens, algorithm: token_bucket, capacity: 7, window: 999ms }",
    "{ type: rate, key: tokens, algorithm: token_bucket, capacity: 6, window: 3s, refund: "
    "strict }",
    "{ type: rate, key: tokens, algorithm: leaky_bucket, capacity: 4, window: 3s, mode: shaper }",
    "{ type: call, algorithm: leaky_bucket, capacity: 4, window: 3s, refund: true }",
    "{ type: call, algorithm: fixed_window, capacity: 4, window: 2s, refund: true }",
    "{ type: call, algorithm: fixed_window, capacity: 4, window: 2s, anchor: epoch, refund: true }",
    "{ type: call, algorithm: sliding_window, capacity: 4, window: 2s, refund: true }",
    "{ type: call, algorithm: sliding_window, capacity: 4, window: 2s, segments: 3 }",
    "{ type: rate, key: tokens, algorithm: gcra, capacity: 5, window: 1s }, "
    "{ type: resource, key: slots, capacity: 2 }",
    "{ type: rate, key: tokens, algorithm: leaky_bucket, capacity: 5, window: 1s, refund: strict "
    "}, { type: resource, key: slots, capacity: 2 }",
    "{ type: call, algorithm: gcra, capacity: 10, window: 1s }, "
    "{ type: call, algorithm: sliding_window, capacity: 15, window: 3s }, "
    "{ type: resource, key: slots, capacity: 4 }",
};
static const char *const all_keys[] = {"tokens", "slots", "call_count"};
#define KINDS (sizeof(limits_of) / sizeof(limits_of[0]))

/* What was asked for twice: of the keyed set, and of the subject's own. */
struct asker {
    weir_acquisition *keyed, *own;
    unsigned subject;
    uint64_t amounts[3];
};

static struct {
    uint64_t random, operation;
    const char *doing, *limits, *kind;
    bool is_of_others; /* it has had other limits */
    bool has_room;     /* for key sets of all subjects; only then the definition of a shared set
                          changes: a release that finds no room goes by the earlier definition */
    bool shared;       /* the keyed set is one that processes share; then it is asked by turns of */
    struct twin twin;  /* chance in the world and in another instance */
    weir_pool *own[SUBJECTS];
    const char *keys[3]; /* of the limits */
    size_t limits_n;
    struct asker askers[ASKERS];
    unsigned generation[SUBJECTS]; /* how often its own set was exchanged */
    struct weir_set_stats gone;    /* counted by those that were */
    uint64_t reloads, all_reloads, kinds, without_room;
    uint64_t turned_away;
    uint64_t forgotten, live, refusals; /* of all sets, to be sure that there were any */
} run;

#define SAME(a, b)                                                                                 \
    do {                                                                                           \
        int64_t a_ = (int64_t)(a), b_ = (int64_t)(b);                                              \
        if (a_ != b_)                                                                              \
            fail_msg("WEIR_SEED=%" PRIu64 ", operation %" PRIu64 ", %s: " #a " is %" PRId64        \
                     ", " #b " is %" PRId64 "\nlimits: %s",                                        \
                     test_seed, run.operation, run.doing, a_, b_, run.limits);                     \
    } while (0)

static uint64_t below(uint64_t n)
{
    return random_below(&run.random, n);
}

static bool chance(uint64_t one_in)
{
    return below(one_in) == 0;
}

/* ---- the sets ---- */

static const char *own_name(unsigned subject)
{
    static char name[32];

    snprintf(name, sizeof(name), "own%u_%u", subject, run.generation[subject]);
    return name;
}

/* Replaces the capacities by others. */
static const char *other_numbers(const char *limits)
{
    static const char before[] = "capacity: ";
    static char ret[1024];
    size_t n = 0;

    for (const char *at = limits; *at; at++) {
        ret[n++] = *at;
        ret[n] = '\0';
        if (n < sizeof(before) - 1 || strcmp(ret + n - (sizeof(before) - 1), before) != 0)
            continue;
        n += (size_t)snprintf(ret + n, sizeof(ret) - n, "%u", 2 + (unsigned)below(9));
        while (at[1] >= '0' && at[1] <= '9')
            at++;
    }
    return ret;
}

static unsigned subjects_max(bool is_change)
{
    if (run.has_room)
        return 64;
    return chance(2) && !is_change ? 4 : 1;
}

/* Of a set that exists and is shared often only the numbers are others. */
static void write_config(char *text, size_t size, bool is_change)
{
    char fields[1024];
    size_t n;

    if (!is_change || !run.shared || chance(2))
        run.kind = limits_of[below(KINDS)];
    run.limits = is_change && run.shared ? other_numbers(run.kind) : run.kind;
    snprintf(fields, sizeof(fields), "max_waiters: %u, fair: %s, limits: [ %s ]",
             chance(3) ? 2 : 100, chance(4) ? "false" : "true", run.limits);
    n = (size_t)snprintf(
        text, size, "version: 1\nsets:\n  main: { %ssubjects: { max: %u%s%s }, %s }\n",
        run.shared ? backend->fields : "", subjects_max(is_change),
        backend->is_remote ? "" : ", evict: none",
        chance(3) && !backend->is_remote && !run.has_room ? ", memory: 64KiB" : "", fields);
    for (unsigned i = 0; i < SUBJECTS; i++)
        n += (size_t)snprintf(text + n, size - n, "  %s: { %s }\n", own_name(i), fields);
}

static void find_keys(void)
{
    run.limits_n = weir_set_limits(world.set);
    for (size_t i = 0; i < run.limits_n; i++) {
        struct weir_set_stats set = {.size = sizeof(set)};
        struct weir_limit_stats limits[3];

        assert_int_equal(weir_set_stats(world.set, &set, limits, 3), run.limits_n);
        run.keys[i] = limits[i].key;
    }
}

static void open_sets(void)
{
    char text[16384];

    run.shared = backend->is_shared && !backend->is_remote;
    run.has_room = run.shared && chance(2);
    write_config(text, sizeof(text), false);
    world_open(text, "main");
    if (run.shared)
        run.twin = world_twin("main");
    for (unsigned i = 0; i < SUBJECTS; i++)
        run.own[i] = pool_open(own_name(i), 0);
    find_keys();
}

static void release_both(struct asker *asker)
{
    SAME(weir_release(&asker->keyed), weir_release(&asker->own));
}

/* Every caller's result is the same on both sides. */
static void compare_askers(void)
{
    for (unsigned i = 0; i < ASKERS; i++) {
        struct asker *asker = &run.askers[i];

        if (asker->keyed)
            SAME(weir_acquisition_result(asker->keyed), weir_acquisition_result(asker->own));
    }
}

/* Of a set that processes share, an acquisition of nothing is nowhere held. */
static uint64_t holders_of_something(void)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < ASKERS; i++) {
        const struct asker *asker = &run.askers[i];
        uint64_t all = 0, amount;

        if (!asker->keyed || weir_acquisition_result(asker->keyed) != 0)
            continue;
        for (size_t k = 0; k < sizeof(all_keys) / sizeof(all_keys[0]); k++)
            if (weir_acquisition_amount(asker->keyed, all_keys[k], &amount) == 0)
                all |= amount;
        n += all != 0;
    }
    return n;
}

static void add_stats(struct weir_set_stats *all, const struct weir_set_stats *own)
{
    all->granted += own->granted, all->taken += own->taken;
    all->granted_waited += own->granted_waited, all->refused_busy += own->refused_busy;
    all->refused_max_wait += own->refused_max_wait, all->refused_full += own->refused_full;
    all->timed_out += own->timed_out, all->canceled += own->canceled;
    all->released += own->released, all->refunded += own->refunded;
    all->overused += own->overused, all->waiting += own->waiting, all->held += own->held;
    all->wait_ns_sum += own->wait_ns_sum;
}

static void compare_counters(void)
{
    struct weir_set_stats keyed = {.size = sizeof(keyed)}, all = run.gone;
    struct weir_limit_stats limits[3], own_limits[3], all_limits[3] = {{0}};

    run.doing = "count";
    assert_int_equal(weir_set_stats(world.set, &keyed, limits, 3), run.limits_n);
    for (unsigned i = 0; i < SUBJECTS; i++) {
        struct weir_set_stats own = {.size = sizeof(own)};

        assert_int_equal(weir_set_stats(weir_pool_set(run.own[i], 0), &own, own_limits, 3),
                         run.limits_n);
        add_stats(&all, &own);
        for (size_t j = 0; j < run.limits_n; j++) {
            all_limits[j].granted += own_limits[j].granted;
            all_limits[j].refused += own_limits[j].refused;
            all_limits[j].refunded += own_limits[j].refunded;
            all_limits[j].overused += own_limits[j].overused;
            all_limits[j].held += own_limits[j].held;
        }
    }
    SAME(keyed.granted, all.granted);
    SAME(keyed.taken, all.taken);
    SAME(keyed.granted_waited, all.granted_waited);
    SAME(keyed.refused_busy, all.refused_busy);
    SAME(keyed.refused_max_wait, all.refused_max_wait);
    SAME(keyed.refused_full - run.turned_away, all.refused_full);
    SAME(keyed.timed_out, all.timed_out);
    SAME(keyed.canceled, all.canceled);
    SAME(keyed.released, all.released);
    SAME(keyed.refunded, all.refunded);
    SAME(keyed.overused, all.overused);
    if (!backend->is_remote) /* each subject has its own */
        SAME(keyed.waiting, all.waiting);
    if (!run.shared)
        SAME(keyed.held, all.held);
    else if (run.is_of_others) /* after a part was returned, of limits that are gone nothing is */
        assert_true(keyed.held <= holders_of_something());
    else
        SAME(keyed.held, holders_of_something());
    SAME(keyed.wait_ns_sum, all.wait_ns_sum);
    for (size_t j = 0; j < run.limits_n; j++) {
        if (!backend->is_remote)
            SAME(limits[j].held, all_limits[j].held);
        if (run.reloads) /* those of sets that were exchanged are gone */
            continue;
        SAME(limits[j].granted, all_limits[j].granted);
        SAME(limits[j].refused, all_limits[j].refused);
        SAME(limits[j].refunded, all_limits[j].refunded);
        SAME(limits[j].overused, all_limits[j].overused);
    }
}

static void close_sets(void)
{
    struct weir_subjects_stats keyed = {.size = sizeof(keyed)};

    run.doing = "close";
    if (!backend->is_remote)
        assert_int_equal(weir_set_subjects(world.set, &keyed), 1);
    run.forgotten += keyed.forgotten;
    run.live += keyed.live;
    run.refusals += keyed.refused;
    SAME(keyed.evicted, 0);
    for (unsigned i = 0; i < ASKERS; i++)
        if (run.askers[i].keyed)
            release_both(&run.askers[i]);
    compare_counters();
    for (unsigned i = 0; i < SUBJECTS; i++)
        weir_pool_close(run.own[i]);
    if (run.shared)
        world_twin_close(&run.twin);
    world_close();
}

/* ---- requests ---- */

struct both {
    struct weir_request request;
    struct weir_amount amounts[3];
    char subject[32];
    unsigned number;
};

static void make_request(struct both *both)
{
    *both = (struct both){.request = {.size = sizeof(both->request)}};
    both->number = (unsigned)below(SUBJECTS);
    snprintf(both->subject, sizeof(both->subject), "subject %u", both->number);
    both->request.subject = both->subject;
    both->request.subject_size = strlen(both->subject);
    for (size_t i = 0; i < run.limits_n; i++)
        both->amounts[i] = (struct weir_amount){run.keys[i], below(4)};
    both->request.amounts = both->amounts;
    both->request.amounts_n = run.limits_n;
    if (chance(3))
        both->request.timeout_ns = 1 + below(2 * SECOND);
    if (chance(3))
        both->request.max_wait_ns = 1 + below(2 * SECOND);
}

/* How many requests the keyed set has turned away for want of room. */
static uint64_t refused(void)
{
    struct weir_subjects_stats keyed = {.size = sizeof(keyed)};

    assert_int_equal(weir_set_subjects(world.set, &keyed), 1);
    return keyed.refused;
}

/* Whether the request was one too many for the table: then its twin is left out. */
static bool was_turned_away(int r)
{
    uint64_t before = run.turned_away;

    if (r != -ENOBUFS || backend->is_remote)
        return false;
    run.turned_away = refused();
    return run.turned_away > before;
}

static void same_refusal(const struct weir_refusal *keyed, const struct weir_refusal *own)
{
    /* Of two limits that lack as much it names the first one, by their places. */
    if (!run.is_of_others || !keyed->key[0] || !own->key[0])
        SAME(strcmp(keyed->key, own->key), 0);
    SAME(keyed->retry_after_ns, own->retry_after_ns);
}

static weir_pool *keyed_pool(void)
{
    return run.shared && chance(2) ? run.twin.pool : world.pool;
}

static void do_take(void)
{
    struct weir_refusal keyed = {.size = sizeof(keyed), .key = ""}, own = keyed;
    struct both both;
    int r;

    run.doing = "take";
    make_request(&both);
    r = weir_take(keyed_pool(), &both.request, &keyed);
    if (was_turned_away(r))
        return;
    /* A wrong request is told by the definition that the instance knows. */
    if (r == -EINVAL && run.shared && run.reloads)
        return;
    SAME(r, weir_take(run.own[both.number], &both.request, &own));
    same_refusal(&keyed, &own);
}

static struct asker *free_asker(void)
{
    struct asker *asker = &run.askers[below(ASKERS)];

    if (asker->keyed)
        release_both(asker);
    settle(); /* a try before the hand-over finds the waiter still there */
    return asker;
}

static void do_ask(void)
{
    struct weir_refusal keyed = {.size = sizeof(keyed), .key = ""}, own = keyed;
    struct asker *asker = free_asker();
    uint64_t keyed_at = 0, own_at = 0, how = below(4);
    weir_pool *pool;
    struct both both;
    int r;

    make_request(&both);
    asker->subject = both.number;
    for (size_t i = 0; i < run.limits_n; i++)
        asker->amounts[i] = both.amounts[i].amount;
    run.doing = how == 0 ? "try" : how == 1 ? "reserve" : "submit";
    pool = keyed_pool();
    r = how == 0   ? weir_try_acquire(pool, &both.request, &asker->keyed, &keyed)
        : how == 1 ? weir_reserve(pool, &both.request, &asker->keyed, &keyed_at, &keyed)
                   : weir_submit(pool, &both.request, &asker->keyed, &keyed);
    if (was_turned_away(r) || (r == -EINVAL && run.shared && run.reloads))
        return;
    SAME(r, how == 0 ? weir_try_acquire(run.own[both.number], &both.request, &asker->own, &own)
            : how == 1
                ? weir_reserve(run.own[both.number], &both.request, &asker->own, &own_at, &own)
                : weir_submit(run.own[both.number], &both.request, &asker->own, &own));
    SAME(keyed_at, own_at);
    same_refusal(&keyed, &own);
}

static void do_release(void)
{
    run.doing = "release";
    (void)free_asker();
}

static void do_update(void)
{
    struct asker *asker = &run.askers[below(ASKERS)];
    const char *key = run.keys[below(run.limits_n)];
    uint64_t used = below(5);

    run.doing = "update";
    if (asker->keyed)
        SAME(weir_update(asker->keyed, key, used), weir_update(asker->own, key, used));
}

static void do_return(void)
{
    struct asker *asker = &run.askers[below(ASKERS)];
    uint64_t n = below(4), i = below(run.limits_n), own = 0;
    int r;

    run.doing = "return";
    if (!asker->keyed)
        return;
    SAME(weir_return(asker->keyed, run.keys[i], n), weir_return(asker->own, run.keys[i], n));
    r = weir_acquisition_amount(asker->keyed, run.keys[i], &asker->amounts[i]);
    SAME(r, weir_acquisition_amount(asker->own, run.keys[i], &own));
    if (r == 0) /* it may be of a definition without that key */
        SAME(asker->amounts[i], own);
}

static void do_cancel(void)
{
    struct asker *asker = &run.askers[below(ASKERS)];

    run.doing = "cancel";
    if (asker->keyed)
        SAME(weir_cancel(asker->keyed), weir_cancel(asker->own));
}

static void do_look(void)
{
    uint64_t keyed = 0, own = 0;
    struct both both;

    run.doing = "ready_at";
    make_request(&both);
    SAME(weir_set_ready_at(world.set, &both.request, &keyed),
         weir_set_ready_at(weir_pool_set(run.own[both.number], 0), &both.request, &own));
    SAME(keyed, own);
}

static void do_refusal(void)
{
    struct weir_refusal keyed = {.size = sizeof(keyed), .key = ""}, own = keyed;
    struct asker *asker = &run.askers[below(ASKERS)];

    run.doing = "refusal";
    if (!asker->keyed)
        return;
    SAME(weir_acquisition_refusal(asker->keyed, &keyed),
         weir_acquisition_refusal(asker->own, &own));
    same_refusal(&keyed, &own);
}

/* Returns whether a subject's own set is as good as new, with nothing ahead. */
static bool is_as_new(unsigned subject)
{
    weir_set *set = weir_pool_set(run.own[subject], 0);
    struct weir_instant at;
    struct set_view view;

    set_snapshot(thread_ctx_get(set), set, &view);
    at = set_view_instant(set, &view);
    for (uint32_t i = 0; i < set->limits.n; i++) {
        const struct limit *limit = &set->limits.items[i];

        if (!limit_is_new(limit, view.content + CONTENT_STATES + limit->state_offset, &at))
            return false;
    }
    return !view.length && at.now_ns == world.now;
}

/* Counts what the own set of a subject has done, which is about to be exchanged. */
static void part_with(unsigned subject)
{
    struct weir_set_stats own = {.size = sizeof(own)};

    assert_true(weir_set_stats(weir_pool_set(run.own[subject], 0), &own, NULL, 0) >= 0);
    add_stats(&run.gone, &own);
    run.generation[subject]++;
}

static void do_reload(void)
{
    const char *kind = run.kind;
    struct weir_error error = {0};
    bool is_new[SUBJECTS];
    char text[16384];
    uint64_t random;
    const struct weir_options options = {.size = sizeof(options), .text = text};

    run.doing = "reload";
    if (backend->is_remote || (run.shared && !run.has_room) || !chance(8))
        return;
    random = run.random;
    write_config(text, sizeof(text), true);
    if (run.shared && world_redefine(text, "main", WEIR_REDEFINE_CHECK, &error) < 0) {
        run.kind = kind;
        run.without_room++; /* for the state, or for the limits */
        return;
    }
    run.kinds += run.shared && run.kind != kind;
    run.is_of_others |= run.kind != kind;
    for (unsigned i = 0; i < ASKERS && run.shared && run.kind != kind; i++)
        if (run.askers[i].keyed && weir_acquisition_result(run.askers[i].keyed) != 0)
            release_both(&run.askers[i]);
    /* What a set granted is released before: a late refund finds no such set, but maybe the
     * subject. A charge may make it another one than a new one. */
    for (unsigned i = 0; i < SUBJECTS; i++) {
        for (unsigned k = 0; k < ASKERS && is_as_new(i); k++)
            if (run.askers[k].keyed && run.askers[k].subject == i)
                release_both(&run.askers[k]);
        is_new[i] = is_as_new(i);
        if (is_new[i])
            part_with(i);
    }
    run.random = random; /* the same numbers, with the new names of sets */
    write_config(text, sizeof(text), true);
    if ((run.shared && world_redefine(text, "main", 0, &error) < 0) ||
        weir_reload(world.w, &options, &error) < 0)
        fail_msg("WEIR_SEED=%" PRIu64 ", operation %" PRIu64 ": %s", test_seed, run.operation,
                 error.message);
    world.set = weir_pool_set(world.pool, 0);
    for (unsigned i = 0; i < SUBJECTS; i++) {
        if (!is_new[i])
            continue;
        weir_pool_close(run.own[i]);
        run.own[i] = pool_open(own_name(i), 0);
    }
    find_keys();
    run.reloads++;
    run.all_reloads++;
}

/* What one of two does may be for the other to see to. */
static void tick_both(void)
{
    for (int rounds = 0; rounds < 2; rounds++)
        while (weir_tick(world.w) + weir_tick(run.twin.w) > 0)
            rounds = 0;
}

/* From one instant at which something is due to the next: neither of the two comes late. */
static void advance_both(uint64_t until)
{
    while (world.now < until) {
        uint64_t first = timer_next_ns(&instance_wait(world.w)->timer),
                 second = timer_next_ns(&instance_wait(run.twin.w)->timer);

        first = second < first ? second : first;
        world.now = first > world.now ? first < until ? first : until : world.now + 1;
        tick_both();
    }
}

static void do_advance(void)
{
    uint64_t ns = chance(8) ? below(20 * SECOND) : chance(2) ? below(SECOND) : below(2000);

    run.doing = "advance";
    if (run.shared)
        advance_both(world.now + ns);
    else
        advance(ns);
}

static void step(void)
{
    static void (*const operations[])(void) = {
        do_take,   do_take,   do_ask,  do_ask,     do_ask,     do_release, do_update,
        do_return, do_cancel, do_look, do_refusal, do_advance, do_advance, do_reload};

    operations[below(sizeof(operations) / sizeof(operations[0]))]();
    if (run.shared)
        tick_both();
    settle();
    compare_askers();
    if (chance(20))
        compare_counters();
    run.operation++;
}

static void subjects_are_sets_of_their_own(void **state)
{
    uint64_t operations =
        backend->is_remote ? random_operations(4000) : number_from("WEIR_OPERATIONS", 30000);

    (void)state;
    seed_begin();
    run.random = test_seed;
    while (run.operation < operations) {
        memset(run.askers, 0, sizeof(run.askers));
        memset(run.generation, 0, sizeof(run.generation));
        run.gone = (struct weir_set_stats){0};
        run.turned_away = run.reloads = 0;
        run.is_of_others = false;
        open_sets();
        for (unsigned i = 0; i < OPERATIONS_PER_SET; i++)
            step();
        close_sets();
    }
    print_message("%" PRIu64 " operations, %" PRIu64 " keys forgotten, %" PRIu64 " live, %" PRIu64
                  " turned away, %" PRIu64 " reloads, %" PRIu64 " to others, %" PRIu64
                  " without room\n",
                  run.operation, run.forgotten, run.live, run.refusals, run.all_reloads, run.kinds,
                  run.without_room);
    assert_true(backend->is_remote || (run.forgotten > 0 && run.live > 0 && run.refusals > 0));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {leak_checked_test(subjects_are_sets_of_their_own)};

    backend_choose(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
