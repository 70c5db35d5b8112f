/* SPDX-License-Identifier: MIT */
/* Which sets of a snapshot are shown, and in which order. */
#include "selection.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int set_order(struct selection *selection, const char *argument, const char *command)
{
    bool by_waiting = strcmp(argument, "waiting") == 0;

    if (!by_waiting && strcmp(argument, "name") != 0) {
        fprintf(stderr, "%s: `%s`: sets are sorted by name or waiting\n", command, argument);
        return -1;
    }
    selection->order = by_waiting ? SELECTION_BY_WAITING : SELECTION_BY_NAME;
    return 1;
}

int selection_option(struct selection *selection, struct snapshot_names *names, int option,
                     const char *argument, const char *command)
{
    if (option == 's')
        return set_order(selection, argument, command);
    if (option == 'm')
        names->match = argument;
    else if (option == 'n')
        selection->no_idle = true;
    else
        return 0;
    return 1;
}

bool selection_is_idle(const struct snapshot_set *set)
{
    if (set->is_unknown || snapshot_held(set) != 0 || set->stats.waiting != 0 ||
        set->holders_n != 0)
        return false;
    if (set->has_subjects && set->subjects.known != 0)
        return false;
    for (size_t i = 0; i < set->limits_n; i++)
        if (set->limits[i].stats.available < set->limits[i].stats.capacity)
            return false;
    return true;
}

static int compare_names(const void *a, const void *b)
{
    const struct snapshot_set *x = a, *y = b;

    int r = strcmp(x->name, y->name);

    if (r == 0)
        r = (x->engine != NULL) - (y->engine != NULL);
    if (r == 0)
        r = (x->process > y->process) - (x->process < y->process);
    return r != 0 ? r : (x->instance > y->instance) - (x->instance < y->instance);
}

/* Returns for how long the first waiter has waited. */
static uint64_t longest_wait_ns(const struct snapshot_set *set)
{
    return set->held_n < set->holders_n ? set->holders[set->held_n].age_ns : 0;
}

/* Orders the most waiters first, then the longest wait. */
static int compare_waiting(const void *a, const void *b)
{
    const struct snapshot_set *x = a, *y = b;

    if (x->stats.waiting != y->stats.waiting)
        return x->stats.waiting > y->stats.waiting ? -1 : 1;
    if (longest_wait_ns(x) != longest_wait_ns(y))
        return longest_wait_ns(x) > longest_wait_ns(y) ? -1 : 1;
    return compare_names(a, b);
}

size_t selection_apply(const struct selection *selection, struct snapshot *snapshot)
{
    struct snapshot_set *sets = snapshot->sets;
    size_t n = 0;

    for (size_t i = 0; i < snapshot->sets_n; i++) {
        struct snapshot_set set = sets[i];

        if (selection->no_idle && selection_is_idle(&set))
            continue;
        sets[i] = sets[n];
        sets[n++] = set;
    }
    if (n > 0)
        qsort(sets, n, sizeof(*sets),
              selection->order == SELECTION_BY_WAITING ? compare_waiting : compare_names);
    return n;
}
