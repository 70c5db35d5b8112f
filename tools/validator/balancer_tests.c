/* SPDX-License-Identifier: MIT */
/* Tests of balancers: the promises of weir/balancer.h that can be seen from outside. */
#include "setting.h"
#include "tests.h"
#include <string.h>
#include <time.h>
#include <weir/algorithm.h>
#include <weir/balancer.h>

#define BALANCER_SETS_MAX 64u
#define BALANCER_PICKS    200u
#define BALANCER_SLOW_NS  20000u
#define BALANCER_WATCH    16u /* one call in so many is watched for writes to the views */

/* How a balancer is called: what must make no difference. */
struct balancer_way {
    bool moves;         /* the state has another address at each pick */
    bool is_disturbed;  /* another pool is balanced in between */
    unsigned char fill; /* what the stack has before each call */
};

struct balancer {
    struct trial *trial;
    const struct weir_balancer *ops;
    struct balancer_way way;
    struct settings settings;
    struct weir_footprint footprint;
    struct arena config, states[2], other, views;
    unsigned current; /* the state is in states[current] */
    unsigned calls;   /* of `pick` */
    uint32_t sets_n;
    uint64_t now;
    uint32_t picked[BALANCER_PICKS];
    uint64_t times[BALANCER_SETS_MAX]; /* each set was picked */
};

static struct weir_set_view *balancer_views(const struct balancer *balancer)
{
    return (struct weir_set_view *)(void *)balancer->views.data;
}

static bool balancer_reads_views(const struct balancer *balancer)
{
    return balancer->ops->flags & (WEIR_BALANCER_VIEWS | WEIR_BALANCER_LOOKS);
}

/* ---- configuration ---- */

static int balancer_configure(struct balancer *balancer, void *config, struct weir_footprint *ret)
{
    struct weir_reason reason = {.size = sizeof(reason)};

    *ret = (struct weir_footprint){.size = sizeof(*ret)};
    if (!balancer->ops->configure)
        return 0;
    trial_note(balancer->trial, "configure", 0, 0);
    trial_fill_stack(balancer->way.fill);
    return balancer->ops->configure(&balancer->settings.setup, config, ret, &reason);
}

static bool balancer_build(struct balancer *balancer)
{
    struct trial *trial = balancer->trial;
    struct weir_footprint again;

    settings_describe(trial, &balancer->settings, "a pool");
    if (balancer_configure(balancer, NULL, &balancer->footprint) < 0)
        return false;
    if (balancer->footprint.config > WEIR_CONFIG_MAX || balancer->footprint.state % 8 ||
        balancer->footprint.state > UINT64_C(1) << 20)
        trial_fail(trial, "wants %llu bytes of configuration and %llu of state",
                   (unsigned long long)balancer->footprint.config,
                   (unsigned long long)balancer->footprint.state);
    arena_make(trial, &balancer->config, "its configuration", balancer->footprint.config, true);
    if (balancer_configure(balancer, balancer->config.data, &again) < 0 ||
        memcmp(&again, &balancer->footprint, sizeof(again)) != 0)
        trial_fail(trial, "configure says something else at its second call");
    arena_check(trial, &balancer->config);
    arena_freeze(&balancer->config, true);
    for (unsigned i = 0; i < 2; i++)
        arena_make(trial, &balancer->states[i], "its state", balancer->footprint.state, i == 0);
    arena_make(trial, &balancer->other, "another state", balancer->footprint.state, true);
    arena_make(trial, &balancer->views, "the views",
               balancer->sets_n * sizeof(struct weir_set_view), true);
    return true;
}

static void balancer_bind(struct balancer *balancer)
{
    for (uint32_t i = 0; i < balancer->trial->plugin->parameters_n; i++)
        balancer->settings.addresses[i] = &balancer->settings.values[i];
    balancer->settings.setup.values = balancer->settings.addresses;
    balancer->settings.setup.sets_n = balancer->sets_n;
}

/* Makes a balancer with settings that it accepts. False: the rounds are over. */
static bool balancer_next(struct trial *trial, struct balancer *ret, const struct balancer_way *way)
{
    if (!trial_next(trial))
        return false;
    for (unsigned i = 0; i < 200; i++) {
        memset(ret, 0, sizeof(*ret));
        ret->trial = trial;
        ret->ops = trial->plugin->ops;
        ret->way = *way;
        ret->sets_n =
            2 + (uint32_t)trial_below(trial, trial_below(trial, 2) ? 4 : BALANCER_SETS_MAX - 1);
        settings_choose(trial, &ret->settings);
        balancer_bind(ret);
        if (balancer_build(ret))
            return true;
    }
    trial_fail(trial,
               "accepts no settings: 200 random ones within the ranges of its parameters were "
               "refused");
}

static void balancer_make_again(struct balancer *ret, const struct balancer *like,
                                const struct balancer_way *way)
{
    memset(ret, 0, sizeof(*ret));
    ret->trial = like->trial;
    ret->ops = like->ops;
    ret->way = *way;
    ret->sets_n = like->sets_n;
    ret->settings = like->settings;
    balancer_bind(ret);
    if (!balancer_build(ret))
        trial_fail(like->trial, "configure refuses what it has accepted before");
}

static void balancer_free(struct balancer *balancer)
{
    arena_free(&balancer->config);
    arena_free(&balancer->states[0]);
    arena_free(&balancer->states[1]);
    arena_free(&balancer->other);
    arena_free(&balancer->views);
}

/* ---- picks ---- */

/* Views as a core could show them: each set is free, busy, or waited for. */
static void balancer_show(struct balancer *balancer, bool is_equal)
{
    struct trial *trial = balancer->trial;
    struct weir_set_view *views = balancer_views(balancer);

    for (uint32_t i = 0; i < balancer->sets_n; i++) {
        uint64_t capacity = 1 + trial_below(trial, 20);
        uint64_t held = is_equal ? 0 : trial_below(trial, capacity + 1);

        views[i] = (struct weir_set_view){.ready_at_ns = balancer->now,
                                          .id = i * UINT64_C(0x9e3779b97f4a7c15) + 1,
                                          .weight = 1,
                                          .capacity = is_equal ? 10 : capacity,
                                          .available = is_equal ? 10 : capacity - held,
                                          .held = held};
        if (balancer->ops->flags & WEIR_BALANCER_VIEWS)
            views[i].flags = WEIR_VIEW_LIVE;
        if (!is_equal && held == capacity)
            views[i].ready_at_ns =
                trial_below(trial, 2) ? WEIR_BLOCKED : balancer->now + trial_below(trial, 1000);
    }
}

static struct weir_pick balancer_request(struct balancer *balancer)
{
    struct weir_pick pick = {.size = sizeof(pick),
                             .now_ns = balancer->now += trial_below(balancer->trial, 1000000),
                             .random = trial_random(balancer->trial),
                             .route = trial_random(balancer->trial),
                             .sets_n = balancer->sets_n,
                             .view_size = sizeof(struct weir_set_view)};

    if (balancer_reads_views(balancer))
        pick.views = balancer_views(balancer);
    return pick;
}

static void *balancer_state(const struct balancer *balancer)
{
    return balancer->states[balancer->current].data;
}

/* One call of `pick`. */
static uint32_t balancer_call(struct balancer *balancer, const struct weir_pick *pick)
{
    struct trial *trial = balancer->trial;
    bool is_watched;
    uint32_t index;

    trial_note(trial, "pick", pick->now_ns, balancer->sets_n);
    if (balancer->way.moves) {
        const struct arena *old = &balancer->states[balancer->current];

        balancer->current = !balancer->current;
        memcpy(balancer_state(balancer), old->data, old->size);
        memset(old->data, 0xee, old->size);
    }
    if (balancer->way.is_disturbed)
        (void)balancer->ops->pick(balancer->config.data, balancer->other.data, pick);
    trial_fill_stack(balancer->way.fill);
    is_watched = balancer->calls++ % BALANCER_WATCH == 0;
    if (is_watched)
        arena_freeze(&balancer->views, true);
    index = balancer->ops->pick(balancer->config.data, balancer_state(balancer), pick);
    if (is_watched)
        arena_freeze(&balancer->views, false);
    arena_check(trial, &balancer->states[balancer->current]);
    return index;
}

/* Picks a set, with all looks that the balancer wants. Returns the index. */
static uint32_t balancer_pick(struct balancer *balancer, bool is_equal)
{
    struct trial *trial = balancer->trial;
    struct weir_pick pick;
    uint32_t index;

    balancer_show(balancer, is_equal);
    pick = balancer_request(balancer);
    for (uint32_t looks = 0;; looks++) {
        index = balancer_call(balancer, &pick);
        if (!(balancer->ops->flags & WEIR_BALANCER_LOOKS) || !(index & WEIR_PICK_LOOK))
            break;
        index &= ~WEIR_PICK_LOOK;
        if (index >= balancer->sets_n || looks >= balancer->sets_n)
            trial_fail(trial, "wants to look at set %u of %u, after %u looks", index,
                       balancer->sets_n, looks);
        if (balancer_views(balancer)[index].flags & WEIR_VIEW_LIVE)
            trial_fail(trial, "looks at set %u twice in one pick", index);
        balancer_views(balancer)[index].flags |= WEIR_VIEW_LIVE;
    }
    if (index >= balancer->sets_n)
        trial_fail(trial, "picks set %u of %u", index, balancer->sets_n);
    return index;
}

/* Tells of the outcome of a pick. */
static void balancer_tell(struct balancer *balancer, uint32_t index)
{
    const struct weir_pick_outcome outcome = {.size = sizeof(outcome),
                                              .now_ns = balancer->now,
                                              .index = index,
                                              .result = trial_below(balancer->trial, 4) ? 0 : -11};

    if (!balancer->ops->outcome)
        return;
    trial_note(balancer->trial, "outcome", balancer->now, index);
    balancer->ops->outcome(balancer->config.data, balancer_state(balancer), &outcome);
    arena_check(balancer->trial, &balancer->states[balancer->current]);
}

static void balancer_run(struct balancer *balancer, bool is_equal)
{
    struct weir_pick first;

    balancer->now = trial_magnitude(balancer->trial, WEIR_CLOCK_MAX / 2);
    balancer_show(balancer, is_equal);
    first = balancer_request(balancer);
    if (balancer->ops->init) {
        trial_note(balancer->trial, "init", first.now_ns, 0);
        balancer->ops->init(balancer->config.data, balancer_state(balancer), &first);
        balancer->ops->init(balancer->config.data, balancer->other.data, &first);
    }
    for (unsigned i = 0; i < BALANCER_PICKS; i++) {
        balancer->picked[i] = balancer_pick(balancer, is_equal);
        balancer->times[balancer->picked[i]]++;
        balancer_tell(balancer, balancer->picked[i]);
    }
}

/* ---- the tests ---- */

static const struct balancer_way balancer_plainly = {.fill = 0};

static void test_pick(struct trial *trial)
{
    static struct balancer balancer;

    while (balancer_next(trial, &balancer, &balancer_plainly)) {
        balancer_run(&balancer, false);
        balancer_free(&balancer);
    }
}

/* Runs the same picks in two ways, which must agree. */
static void balancer_twice(struct trial *trial, const struct balancer_way *way, const char *what)
{
    static struct balancer one, two;

    while (balancer_next(trial, &one, &balancer_plainly)) {
        uint64_t random = trial->random;

        balancer_run(&one, false);
        balancer_make_again(&two, &one, way);
        if (memcmp(one.config.data, two.config.data, one.footprint.config) != 0)
            trial_fail(trial, "equal settings give other bytes of configuration");
        trial->random = random;
        balancer_run(&two, false);
        if (memcmp(one.picked, two.picked, sizeof(one.picked)) != 0 ||
            memcmp(balancer_state(&one), balancer_state(&two), one.footprint.state) != 0)
            trial_fail(trial, "%s", what);
        balancer_free(&one);
        balancer_free(&two);
    }
}

static void test_balancer_address(struct trial *trial)
{
    const struct balancer_way way = {.moves = true};

    balancer_twice(trial, &way, "picks otherwise when its state lies at another address");
}

static void test_balancer_hidden_state(struct trial *trial)
{
    const struct balancer_way way = {.is_disturbed = true};
    const struct statics *statics = statics_of(trial, trial->plugin);

    balancer_twice(trial, &way,
                   "picks otherwise when another pool is balanced in between, or when the "
                   "same is done once more: it has state elsewhere");
    statics_check(trial, statics);
}

static void test_balancer_uninitialized(struct trial *trial)
{
    const struct balancer_way way = {.fill = 0xdb};

    balancer_twice(trial, &way, "depends on uninitialized memory");
}

static void test_balancer_system_calls(struct trial *trial)
{
    static struct balancer balancer;

    if (!trial_forbid_system_calls())
        trial_skip(trial, "system calls cannot be filtered here");
    while (balancer_next(trial, &balancer, &balancer_plainly)) {
        balancer_run(&balancer, false);
        balancer_free(&balancer);
    }
}

/* Of sets that are all free and weigh the same, the refused ones apart, each is picked some day:
 * the first of an order always, or all of them. */
static void test_bias(struct trial *trial)
{
    static struct balancer balancer;

    while (balancer_next(trial, &balancer, &balancer_plainly)) {
        uint32_t used = 0;
        uint64_t most = 0;

        if (balancer.sets_n > 4) {
            balancer_free(&balancer);
            continue;
        }
        balancer_run(&balancer, true);
        for (uint32_t i = 0; i < balancer.sets_n; i++) {
            used += balancer.times[i] != 0;
            most = balancer.times[i] > most ? balancer.times[i] : most;
        }
        if (used > 1 && used < balancer.sets_n)
            trial_fail(trial, "%u of %u equal sets are never picked, in %u picks",
                       balancer.sets_n - used, balancer.sets_n, BALANCER_PICKS);
        if (used == balancer.sets_n && most > BALANCER_PICKS * 9 / 10)
            trial_fail(trial, "one of %u equal sets has %llu of %u picks", balancer.sets_n,
                       (unsigned long long)most, BALANCER_PICKS);
        balancer_free(&balancer);
    }
}

static uint64_t balancer_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void test_balancer_speed(struct trial *trial)
{
    static struct balancer balancer;

    while (balancer_next(trial, &balancer, &balancer_plainly)) {
        uint64_t best = UINT64_MAX;
        struct weir_pick pick;

        balancer_run(&balancer, false);
        pick = balancer_request(&balancer);
        for (unsigned i = 0; i < 50; i++) {
            uint64_t begin = balancer_clock(), spent;

            (void)balancer.ops->pick(balancer.config.data, balancer_state(&balancer), &pick);
            spent = balancer_clock() - begin;
            best = spent < best ? spent : best;
        }
        if (best > BALANCER_SLOW_NS)
            trial_fail(trial, "a pick of %u sets takes %llu ns", balancer.sets_n,
                       (unsigned long long)best);
        balancer_free(&balancer);
    }
}

const struct validator_test balancer_tests[] = {
    {"pick", "picks a set that there is, and writes nothing but its state", test_pick},
    {"address", "the state can be moved", test_balancer_address},
    {"hidden-state", "nothing but the arguments decides", test_balancer_hidden_state},
    {"uninitialized", "no uninitialized memory is used", test_balancer_uninitialized},
    {"system-calls", "no system call is made", test_balancer_system_calls},
    {"bias", "sets that are equal are picked equally, or in order", test_bias},
    {"speed", "picks are quick", test_balancer_speed},
    {NULL, NULL, NULL},
};
