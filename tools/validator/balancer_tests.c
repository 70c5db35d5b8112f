/* SPDX-License-Identifier: MIT */
/* Tests of balancers: the promises of weir/balancer.h that can be seen from outside. */
#include "setting.h"
#include "tests.h"
#include <errno.h>
#include <string.h>
#include <time.h>
#include <weir/algorithm.h>
#include <weir/balancer.h>

#define BALANCER_SETS_MAX 64u
#define BALANCER_PICKS    200u
#define BALANCER_SLOW_NS  20000u

/* How a balancer is called: what must make no difference. */
struct balancer_way {
    bool moves;         /* the state has another address at each pick */
    bool is_disturbed;  /* another pool is balanced in between */
    size_t between;     /* bytes behind each view, as of a library that knows more */
    bool is_guarded;    /* where it writes is looked at, which takes time */
    unsigned char fill; /* what the stack has before each call */
};

struct balancer {
    struct trial *trial;
    const struct weir_balancer *ops;
    struct balancer_way way;
    struct settings settings;
    struct settings_pool pool;
    struct weir_footprint footprint;
    struct arena config, states[2], other, views;
    unsigned current;                             /* the state is in states[current] */
    struct weir_set_view sets[BALANCER_SETS_MAX]; /* as they are, looked at or not */
    uint32_t sets_n;
    uint64_t now;
    uint32_t picked[BALANCER_PICKS];
    uint64_t times[BALANCER_SETS_MAX]; /* each set was picked */
};

/* The distance from one view to the next. */
static size_t balancer_stride(const struct balancer *balancer)
{
    return sizeof(struct weir_set_view) + balancer->way.between;
}

static struct weir_set_view *balancer_view(const struct balancer *balancer, uint32_t index)
{
    return (struct weir_set_view *)(void *)(balancer->views.data +
                                            index * balancer_stride(balancer));
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
    settings_describe_pool(trial, &balancer->pool);
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
    arena_make(trial, &balancer->views, "the views", balancer->sets_n * balancer_stride(balancer),
               true);
    return true;
}

/* Makes a balancer with settings that it accepts, of sets that weigh up to `weight_max`. False: the
 * rounds are over. */
static bool balancer_next_weighed(struct trial *trial, struct balancer *ret,
                                  const struct balancer_way *way, uint64_t weight_max)
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
        if (!settings_choose(trial, &ret->settings))
            continue;
        settings_choose_pool(trial, &ret->settings, ret->sets_n, weight_max, &ret->pool);
        if (balancer_build(ret))
            return true;
    }
    trial_fail(trial,
               "accepts no settings: 200 random ones within the ranges of its parameters were "
               "refused");
}

static bool balancer_next(struct trial *trial, struct balancer *ret, const struct balancer_way *way)
{
    uint64_t weight_max = trial->round % 3 ? 10 : trial->round % 2 ? WEIR_WEIGHT_MAX : 1;

    return balancer_next_weighed(trial, ret, way, weight_max);
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
    ret->pool = like->pool;
    settings_bind(&ret->settings);
    settings_bind_pool(&ret->settings, &ret->pool);
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

/* Lets a set be seen as it is. */
static void balancer_reveal(struct balancer *balancer, uint32_t index)
{
    struct weir_set_view *view = balancer_view(balancer, index);
    uint32_t flags = view->flags;

    *view = balancer->sets[index];
    view->flags = flags | WEIR_VIEW_LIVE;
}

/* Lets only be seen what is known without a look. */
static void balancer_hide(struct balancer *balancer)
{
    for (uint32_t i = 0; i < balancer->sets_n; i++) {
        struct weir_set_view *view = balancer_view(balancer, i);
        uint32_t flags = view->flags & WEIR_VIEW_TRIED;

        *view = (struct weir_set_view){
            .id = balancer->sets[i].id, .weight = balancer->sets[i].weight, .flags = flags};
        if (balancer->ops->flags & WEIR_BALANCER_VIEWS)
            balancer_reveal(balancer, i);
    }
}

/* Sets as they could be: each is free, busy, or waited for. */
static void balancer_show(struct balancer *balancer, bool is_equal)
{
    struct trial *trial = balancer->trial;

    for (uint32_t i = 0; i < balancer->sets_n; i++) {
        uint64_t capacity = 1 + trial_below(trial, 20);
        uint64_t held = is_equal ? 0 : trial_below(trial, capacity + 1);
        struct weir_set_view *set = &balancer->sets[i];

        *set = (struct weir_set_view){.ready_at_ns = balancer->now,
                                      .id = i * UINT64_C(0x9e3779b97f4a7c15) + 1,
                                      .weight = balancer->pool.weights[i],
                                      .capacity = is_equal ? 10 : capacity,
                                      .available = is_equal ? 10 : capacity - held,
                                      .held = held};
        if (!is_equal && held == capacity)
            set->ready_at_ns =
                trial_below(trial, 2) ? WEIR_BLOCKED : balancer->now + trial_below(trial, 1000);
    }
    memset(balancer->views.data, 0xff, balancer->views.size);
    for (uint32_t i = 0; i < balancer->sets_n; i++)
        balancer_view(balancer, i)->flags = 0;
    balancer_hide(balancer);
}

static struct weir_pick balancer_request(struct balancer *balancer)
{
    struct weir_pick pick = {.size = sizeof(pick),
                             .now_ns = balancer->now += trial_below(balancer->trial, 1000000),
                             .random = trial_random(balancer->trial),
                             .route = trial_random(balancer->trial),
                             .sets_n = balancer->sets_n,
                             .view_size = balancer_stride(balancer)};

    if (balancer_reads_views(balancer))
        pick.views = balancer_view(balancer, 0);
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
    bool is_guarded = balancer->way.is_guarded;
    uint32_t index;

    if (balancer->way.moves) {
        const struct arena *old = &balancer->states[balancer->current];

        balancer->current = !balancer->current;
        memcpy(balancer_state(balancer), old->data, old->size);
        memset(old->data, 0xee, old->size);
    }
    if (balancer->way.is_disturbed)
        (void)balancer->ops->pick(balancer->config.data, balancer->other.data, pick);
    if (is_guarded || balancer->way.fill)
        trial_fill_stack(balancer->way.fill);
    if (is_guarded)
        arena_freeze(&balancer->views, true);
    index = balancer->ops->pick(balancer->config.data, balancer_state(balancer), pick);
    if (is_guarded) {
        arena_freeze(&balancer->views, false);
        arena_check(trial, &balancer->states[balancer->current]);
    }
    return index;
}

/* Answers all looks that the balancer wants. Returns what it picks. */
static uint32_t balancer_look(struct balancer *balancer, const struct weir_pick *pick)
{
    struct trial *trial = balancer->trial;
    uint32_t index;

    for (uint32_t looks = 0;; looks++) {
        index = balancer_call(balancer, pick);
        if (!(balancer->ops->flags & WEIR_BALANCER_LOOKS) || !(index & WEIR_PICK_LOOK) ||
            (index == WEIR_PICK_NONE && pick->attempt))
            return index;
        index &= ~WEIR_PICK_LOOK;
        if (index >= balancer->sets_n || looks >= balancer->sets_n)
            trial_fail(trial, "wants to look at set %u of %u, after %u looks", index,
                       balancer->sets_n, looks);
        if (balancer_view(balancer, index)->flags & WEIR_VIEW_LIVE)
            trial_fail(trial, "looks at set %u twice in one pick", index);
        balancer_reveal(balancer, index);
    }
}

/* Picks a set of those that are shown. Returns the index. */
static uint32_t balancer_pick(struct balancer *balancer)
{
    struct weir_pick pick = balancer_request(balancer);
    uint32_t index;

    trial_note(balancer->trial, "pick", pick.now_ns, balancer->sets_n);
    index = balancer_look(balancer, &pick);
    if (index >= balancer->sets_n)
        trial_fail(balancer->trial, "picks set %u of %u", index, balancer->sets_n);
    return index;
}

/* Tells of the outcome of a pick. */
static void balancer_tell(struct balancer *balancer, uint32_t index, int32_t result)
{
    const struct weir_pick_outcome outcome = {
        .size = sizeof(outcome), .now_ns = balancer->now, .index = index, .result = result};

    if (!balancer->ops->outcome)
        return;
    trial_note(balancer->trial, "outcome", balancer->now, index);
    balancer->ops->outcome(balancer->config.data, balancer_state(balancer), &outcome);
    arena_check(balancer->trial, &balancer->states[balancer->current]);
}

static void balancer_begin(struct balancer *balancer, bool is_equal)
{
    struct weir_pick first;

    balancer->now = trial_magnitude(balancer->trial, WEIR_CLOCK_MAX / 2);
    balancer_show(balancer, is_equal);
    first = balancer_request(balancer);
    if (!balancer->ops->init)
        return;
    trial_note(balancer->trial, "init", first.now_ns, 0);
    balancer->ops->init(balancer->config.data, balancer_state(balancer), &first);
    balancer->ops->init(balancer->config.data, balancer->other.data, &first);
    arena_check(balancer->trial, &balancer->states[balancer->current]);
}

/* Fewer if each may be many looks. */
static unsigned balancer_picks(const struct balancer *balancer)
{
    return balancer->sets_n > 8 ? BALANCER_PICKS / 8 : BALANCER_PICKS;
}

static void balancer_run(struct balancer *balancer, bool is_equal)
{
    static const int32_t results[] = {0, 0, 0, 1, -EAGAIN, -EHOSTUNREACH, -EUCLEAN, INT32_MIN};

    balancer_begin(balancer, is_equal);
    for (unsigned i = 0; i < balancer_picks(balancer); i++) {
        balancer_show(balancer, is_equal);
        balancer->picked[i] = balancer_pick(balancer);
        balancer_tell(balancer, balancer->picked[i],
                      results[trial_below(balancer->trial, sizeof(results) / sizeof(*results))]);
    }
}

/* ---- the tests ---- */

static const struct balancer_way balancer_plainly = {.fill = 0};

static void test_pick(struct trial *trial)
{
    const struct balancer_way way = {.is_guarded = true};
    static struct balancer balancer;

    while (balancer_next(trial, &balancer, &way)) {
        balancer_run(&balancer, false);
        balancer_free(&balancer);
    }
}

/* Refuses each pick, and asks for another set, until there is none that was not tried. */
static void ranks_run(struct balancer *balancer)
{
    struct weir_pick pick;

    balancer_show(balancer, false);
    pick = balancer_request(balancer);
    trial_note(balancer->trial, "pick", pick.now_ns, balancer->sets_n);
    for (pick.attempt = 0; pick.attempt < balancer->sets_n; pick.attempt++) {
        uint32_t index;

        balancer_hide(balancer);
        index = balancer_look(balancer, &pick);
        if (index == WEIR_PICK_NONE && pick.attempt)
            return;
        if (index >= balancer->sets_n)
            trial_fail(balancer->trial, "picks set %u of %u, after %u refusals", index,
                       balancer->sets_n, pick.attempt);
        if (balancer_reads_views(balancer) &&
            balancer_view(balancer, index)->flags & WEIR_VIEW_TRIED)
            trial_fail(balancer->trial, "picks set %u, which has refused this request", index);
        balancer_view(balancer, index)->flags |= WEIR_VIEW_TRIED;
        balancer_tell(balancer, index, -EAGAIN);
    }
}

static void test_ranks(struct trial *trial)
{
    static struct balancer balancer;
    const struct weir_balancer *ops = trial->plugin->ops;

    if (!(ops->flags & WEIR_BALANCER_RANKS))
        trial_skip(trial, "it does not say WEIR_BALANCER_RANKS");
    while (balancer_next(trial, &balancer, &balancer_plainly)) {
        balancer_begin(&balancer, false);
        for (unsigned i = 0; i < 10; i++)
            ranks_run(&balancer);
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

/* A later library has more in a view. */
static void test_view_size(struct trial *trial)
{
    const struct balancer_way way = {.between = 40};
    const struct weir_balancer *ops = trial->plugin->ops;

    if (!(ops->flags & (WEIR_BALANCER_VIEWS | WEIR_BALANCER_LOOKS)))
        trial_skip(trial, "it sees no views");
    balancer_twice(trial, &way,
                   "picks otherwise when views are longer: it does not go by view_size");
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

/* ---- how often each set is picked ---- */

#define BIAS_PICKS 4096u

/* Picks among sets that are all free. */
static void bias_run(struct balancer *balancer)
{
    balancer_begin(balancer, true);
    for (unsigned i = 0; i < BIAS_PICKS; i++) {
        uint32_t index;

        balancer_hide(balancer);
        index = balancer_pick(balancer);
        balancer->times[index]++;
        balancer_tell(balancer, index, 0);
    }
}

/* Returns whether sets may differ by parameters of their own. */
static bool bias_is_wanted(const struct weir_plugin *plugin)
{
    for (uint32_t i = 0; i < plugin->parameters_n; i++)
        if (plugin->parameters[i].flags & WEIR_PARAMETER_PER_SET)
            return true;
    return false;
}

/* Of sets that are all free and weigh the same each is picked some day: the first of an order
 * always, or all of them. */
static void test_bias(struct trial *trial)
{
    static struct balancer balancer;

    if (bias_is_wanted(trial->plugin))
        trial_skip(trial, "its sets may differ by parameters of their own");
    while (balancer_next_weighed(trial, &balancer, &balancer_plainly, 1)) {
        uint32_t used = 0;
        uint64_t most = 0;

        bias_run(&balancer);
        for (uint32_t i = 0; i < balancer.sets_n; i++) {
            used += balancer.times[i] != 0;
            most = balancer.times[i] > most ? balancer.times[i] : most;
        }
        if (used > 1 && used < balancer.sets_n)
            trial_fail(trial, "%u of %u equal sets are never picked, in %u picks",
                       balancer.sets_n - used, balancer.sets_n, BIAS_PICKS);
        if (used == balancer.sets_n && most > BIAS_PICKS / 10 * 9)
            trial_fail(trial, "one of %u equal sets has %llu of %u picks", balancer.sets_n,
                       (unsigned long long)most, BIAS_PICKS);
        balancer_free(&balancer);
    }
}

/* The square root of `n`, rounded up. */
static uint64_t bias_root(uint64_t n)
{
    uint64_t root = 0;

    while (root * root < n)
        root++;
    return root;
}

/* Each set has its part of the picks, within six standard deviations of independent draws and six
 * picks, by which an even spread may be ahead. */
static void weigh_parts(struct trial *trial, const struct balancer *balancer)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < balancer->sets_n; i++)
        total += balancer->pool.weights[i];
    for (uint32_t i = 0; i < balancer->sets_n; i++) {
        uint64_t expected = BIAS_PICKS * balancer->pool.weights[i] / total;
        uint64_t off = 6 * bias_root(expected + 1) + 6, times = balancer->times[i];

        if (times + off < expected || times > expected + off)
            trial_fail(trial,
                       "set %u of %u has %llu of %u picks; by its weight, %llu of %llu, it is due "
                       "%llu",
                       i, balancer->sets_n, (unsigned long long)times, BIAS_PICKS,
                       (unsigned long long)balancer->pool.weights[i], (unsigned long long)total,
                       (unsigned long long)expected);
    }
}

/* A set that weighs more has no fewer picks, but for chance. */
static void weigh_more(struct trial *trial, struct balancer *light)
{
    static struct balancer heavy;
    uint32_t i = (uint32_t)trial_below(trial, light->sets_n);
    uint64_t random = trial->random;

    bias_run(light);
    light->pool.weights[i] *= 4;
    balancer_make_again(&heavy, light, &balancer_plainly);
    light->pool.weights[i] /= 4;
    trial->random = random;
    bias_run(&heavy);
    if (heavy.times[i] + 6 * bias_root(light->times[i] + 1) + 6 < light->times[i])
        trial_fail(trial,
                   "set %u of %u has %llu of %u picks with weight %llu, and %llu with 4 times as "
                   "much",
                   i, light->sets_n, (unsigned long long)light->times[i], BIAS_PICKS,
                   (unsigned long long)light->pool.weights[i], (unsigned long long)heavy.times[i]);
    balancer_free(&heavy);
}

/* Weights 1 .. 10, or one set that outweighs all others. */
static void test_weights(struct trial *trial)
{
    static struct balancer balancer;

    while (balancer_next_weighed(trial, &balancer, &balancer_plainly,
                                 trial->round % 4 ? 10 : WEIR_WEIGHT_MAX / 4)) {
        if (balancer.ops->flags & WEIR_BALANCER_WEIGHS) {
            bias_run(&balancer);
            weigh_parts(trial, &balancer);
        } else {
            weigh_more(trial, &balancer);
        }
        balancer_free(&balancer);
    }
}

/* ---- speed ---- */

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
    {"ranks", "after refusals it picks a set that has not refused, or none", test_ranks},
    {"address", "the state can be moved", test_balancer_address},
    {"hidden-state", "nothing but the arguments decides", test_balancer_hidden_state},
    {"uninitialized", "no uninitialized memory is used", test_balancer_uninitialized},
    {"view-size", "views may be longer", test_view_size},
    {"system-calls", "no system call is made", test_balancer_system_calls},
    {"bias", "sets that are equal are picked equally, or in order", test_bias},
    {"weights",
     "a set is not picked less because it weighs more; with WEIR_BALANCER_WEIGHS, by its part",
     test_weights},
    {"speed", "picks are quick", test_balancer_speed},
    {NULL, NULL, NULL},
};
