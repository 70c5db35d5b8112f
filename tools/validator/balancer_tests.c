/* SPDX-License-Identifier: MIT */
/* Tests of balancers: the promises of weir/balancer.h that can be seen from outside. */
#include "balancer.h"
#include "tests.h"
#include <errno.h>
#include <string.h>
#include <time.h>

#define BALANCER_SLOW_NS 20000u

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
