/* SPDX-License-Identifier: MIT */
/*
 * A pool gets other sets, another balancer or other settings: its handles go over to another
 * definition, while threads use them. All that they need is made before any of them does.
 *
 * A call reads once by what it goes, a choice or the only set. So it is decided by one definition,
 * and the next call on the handle by the newest one.
 */
#include "api/pool.h"

#include "base/invariant.h"
#include "base/str_map.h"
#include "set/instance_base.h"
#include <errno.h>

int pool_follow_on(struct instance_pool *after, struct instance_pool *before)
{
    const struct pool_plan *plan = &before->plan;
    struct str_map names = {0};

    if (str_map_reserve(&names, plan->sets_n) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < plan->sets_n; i++)
        str_map_add(&names, plan->sets[i], &plan->sets[i]);
    for (uint32_t i = 0; i < after->sets_n; i++) {
        char **place = after->plan.sets_n ? str_map_find(&names, after->plan.sets[i]) : NULL;

        after->places_before[i] = place ? (uint32_t)(place - plan->sets) : POOL_NO_PLACE;
    }
    str_map_free(&names);
    after->before = before;
    after->workers = before->workers;
    return 0;
}

int pool_prepare_change(struct instance_pool *before, struct instance_pool *after)
{
    if (after->sets_n == 1)
        return 0;
    for (weir_pool *at = before->handles; at; at = at->next) {
        at->coming = pool_make_choice(at, after);
        if (!at->coming)
            return -ENOMEM;
    }
    return 0;
}

void pool_undo_change(struct instance_pool *before)
{
    for (weir_pool *at = before->handles; at; at = at->next) {
        pool_free_choice(at->coming);
        at->coming = NULL;
    }
}

/*
 * Has a handle go on by another definition. A thread that finds no choice finds a set, of this
 * definition or of an earlier one: it is stored before the choice goes, and stays when one comes.
 * The fast path, which looks for no choice, is kept away as long as there is one, so that no call
 * is by an earlier definition than the one before it.
 */
static void pool_change_handle(weir_pool *pool, struct instance_pool *after)
{
    atomic_store_explicit(&pool->definition, after, memory_order_release);
    if (after->sets_n > 1) {
        atomic_fetch_or_explicit(&pool->only_set, POOL_SEVERAL, memory_order_seq_cst);
        pool_take_choice(pool, pool->coming);
        pool->coming = NULL;
        return;
    }
    atomic_store_explicit(&pool->only_set, pool_word(pool_set(after, 0), POOL_SEVERAL),
                          memory_order_seq_cst);
    atomic_store_explicit(&pool->choice, NULL, memory_order_seq_cst);
    atomic_fetch_and_explicit(&pool->only_set, ~(uintptr_t)POOL_SEVERAL, memory_order_seq_cst);
}

void pool_change(struct instance_pool *before, struct instance_pool *after)
{
    WEIR_INVARIANT(after->before == before && !after->handles);
    for (weir_pool *at = before->handles; at; at = at->next) {
        WEIR_INVARIANT(instance_lock_is_held(at->w));
        pool_change_handle(at, after);
    }
    after->handles = before->handles;
    if (after->handles)
        after->handles->link = &after->handles;
    before->handles = NULL;
}
