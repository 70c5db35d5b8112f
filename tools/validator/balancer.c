/* SPDX-License-Identifier: MIT */
#include "balancer.h"
#include <errno.h>
#include <string.h>
#include <weir/algorithm.h>

/* The distance from one view to the next. */
static size_t balancer_stride(const struct balancer *balancer)
{
    return sizeof(struct weir_set_view) + balancer->way.between;
}

struct weir_set_view *balancer_view(const struct balancer *balancer, uint32_t index)
{
    return (struct weir_set_view *)(void *)(balancer->views.data +
                                            index * balancer_stride(balancer));
}

bool balancer_reads_views(const struct balancer *balancer)
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
    if (balancer->footprint.flags & WEIR_FLAGS_NEEDED)
        trial_fail(trial, "needs a newer weir: the flags 0x%x of its footprint are unknown here",
                   balancer->footprint.flags & WEIR_FLAGS_NEEDED);
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
bool balancer_next_weighed(struct trial *trial, struct balancer *ret,
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

bool balancer_next(struct trial *trial, struct balancer *ret, const struct balancer_way *way)
{
    uint64_t weight_max = trial->round % 3 ? 10 : trial->round % 2 ? WEIR_WEIGHT_MAX : 1;

    return balancer_next_weighed(trial, ret, way, weight_max);
}

void balancer_make_again(struct balancer *ret, const struct balancer *like,
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

void balancer_free(struct balancer *balancer)
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
void balancer_hide(struct balancer *balancer)
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
void balancer_show(struct balancer *balancer, bool is_equal)
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

struct weir_pick balancer_request(struct balancer *balancer)
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

void *balancer_state(const struct balancer *balancer)
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
uint32_t balancer_look(struct balancer *balancer, const struct weir_pick *pick)
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
uint32_t balancer_pick(struct balancer *balancer)
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
void balancer_tell(struct balancer *balancer, uint32_t index, int32_t result)
{
    const struct weir_pick_outcome outcome = {
        .size = sizeof(outcome), .now_ns = balancer->now, .index = index, .result = result};

    if (!balancer->ops->outcome)
        return;
    trial_note(balancer->trial, "outcome", balancer->now, index);
    balancer->ops->outcome(balancer->config.data, balancer_state(balancer), &outcome);
    arena_check(balancer->trial, &balancer->states[balancer->current]);
}

void balancer_begin(struct balancer *balancer, bool is_equal)
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

void balancer_run(struct balancer *balancer, bool is_equal)
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
