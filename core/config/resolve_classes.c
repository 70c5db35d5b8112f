/* SPDX-License-Identifier: MIT */
/* Resolves the classes of a set's waiters: priorities, or shares and what a request costs. */
#include "config/resolve.h"
#include "config/value.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef unsigned __int128 u128;

enum { AGEING_DEFAULT = 100 };
/* Of several limits, parts of a capacity are compared to one part in 2^16. */
enum { COST_SHIFT = 16 };

static uint64_t classes_gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

static void classes_resolve_priorities(struct resolver *resolver, const struct ast_set *ast,
                                       struct wait_classes *classes)
{
    uint64_t n = 0, ageing = AGEING_DEFAULT;

    value_read_number(resolver->complaints, "priorities", &ast->priorities, UNITS_AMOUNT, 2,
                      WAIT_CLASSES_MAX, &n);
    value_read_number(resolver->complaints, "ageing", &ast->ageing, UNITS_AMOUNT, 1,
                      WAIT_CLASS_AGEING_MAX, &ageing);
    classes->rule.n = (uint32_t)n;
    classes->rule.ageing = (uint32_t)ageing;
    for (uint32_t c = 0; c < classes->rule.n; c++)
        snprintf(classes->names[c], sizeof(classes->names[c]), "%u", c);
}

/* Reads the name and weight of a share. Returns the weight, or 0 after a complaint. */
static uint64_t classes_read_share(struct resolver *resolver, const struct setting *share,
                                   struct wait_classes *classes)
{
    struct complaints *complaints = resolver->complaints;
    uint64_t weight = 0;

    if (!value_check_name(complaints, "a share", &share->name))
        return 0;
    if (strlen(share->name.text) > WAIT_CLASS_NAME_MAX) {
        complain(complaints, share->name.mark, "the name of a share has at most %u bytes",
                 WAIT_CLASS_NAME_MAX);
        return 0;
    }
    for (uint32_t c = 0; c < classes->rule.n; c++)
        if (strcmp(classes->names[c], share->name.text) == 0)
            complain(complaints, share->name.mark, "the share `%s` is given twice",
                     error_text(share->name.text).text);
    snprintf(classes->names[classes->rule.n++], sizeof(classes->names[0]), "%s", share->name.text);
    if (share->refusal)
        complain(complaints, share->value.mark, "`%s` %s", error_text(share->name.text).text,
                 share->refusal);
    else
        value_read_number(complaints, share->name.text, &share->value, UNITS_AMOUNT, 1,
                          WEIR_WEIGHT_MAX, &weight);
    return weight;
}

/* Stores what a unit of each limit costs. Returns the largest cost of a request. */
static u128 classes_set_costs(const struct set_plan *plan, struct wait_classes *classes)
{
    u128 largest = 1, cost_max = 0;

    for (uint32_t i = 0; i < plan->limits_n; i++)
        largest = plan->limits[i].capacity > largest ? plan->limits[i].capacity : largest;
    largest <<= plan->limits_n > 1 ? COST_SHIFT : 0;
    for (uint32_t i = 0; i < plan->limits_n; i++) {
        uint64_t capacity = plan->limits[i].capacity ? plan->limits[i].capacity : 1;
        u128 unit = plan->limits_n > 1 ? largest / capacity : 1;

        classes->unit_costs[i] = unit < WAIT_CLASS_KEY_END ? (uint64_t)unit : WAIT_CLASS_KEY_END;
        cost_max = unit * capacity > cost_max ? unit * capacity : cost_max;
    }
    return cost_max;
}

/* Stores the times of a unit of cost: the least common multiple of the weights, by each weight.
 * Tags are whole numbers then. */
static void classes_set_times(struct resolver *resolver, const struct ast_set *ast,
                              const struct set_plan *plan, const uint64_t *weights,
                              struct wait_classes *classes)
{
    u128 cost_max = classes_set_costs(plan, classes), multiple = 1;
    uint64_t least = UINT64_MAX;

    for (uint32_t c = 0; c < classes->rule.n && multiple < WAIT_CLASS_KEY_END; c++) {
        multiple *= weights[c] / classes_gcd(weights[c], (uint64_t)(multiple % weights[c]));
        least = weights[c] < least ? weights[c] : least;
    }
    if (cost_max >= WAIT_CLASS_KEY_END || multiple >= WAIT_CLASS_KEY_END ||
        multiple / least * cost_max >= WAIT_CLASS_KEY_END) {
        complain(resolver->complaints, ast->shares.items[0].name.mark,
                 "the weights cannot be computed with exactly for amounts as large as the "
                 "capacities: use weights with a smaller common multiple, such as 5, 3 and 2");
        return;
    }
    for (uint32_t c = 0; c < classes->rule.n; c++)
        classes->rule.unit_times[c] = (uint64_t)multiple / weights[c];
}

static void classes_resolve_shares(struct resolver *resolver, const struct ast_set *ast,
                                   const struct set_plan *plan, struct wait_classes *classes)
{
    uint64_t weights[WAIT_CLASSES_MAX] = {0};
    bool ok = true;
    size_t n = ast->shares.n;

    if (n < 2 || n > WAIT_CLASSES_MAX) {
        complain(resolver->complaints, ast->shares.items[0].name.mark,
                 "a set has 2 to %d shares, not %zu", WAIT_CLASSES_MAX, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t weight = classes_read_share(resolver, &ast->shares.items[i], classes);

        ok = ok && weight;
        weights[i] = weight;
        classes->weights[i] = (uint32_t)weight;
    }
    if (ok)
        classes_set_times(resolver, ast, plan, weights, classes);
}

/* Returns where the classes are given, or NULL. */
static const struct mark *classes_mark(const struct ast_set *ast)
{
    if (value_is_given(&ast->priorities))
        return &ast->priorities.mark;
    return ast->shares.n ? &ast->shares.items[0].name.mark : NULL;
}

/* Returns what in the set cannot be used with classes, or NULL. */
static const char *classes_conflict(const struct ast_set *ast, const struct set_plan *plan)
{
    if (value_is_given(&ast->priorities) && ast->shares.n)
        return "a set has either `priorities` or `shares`";
    if (plan->backend == BACKEND_REMOTE)
        return "`priorities` and `shares` are for the backends thread and process";
    if (ast->limits_n == 0)
        return "`priorities` and `shares` are for sets with limits: without limits no request "
               "waits";
    if (ast->subjects.name.text)
        return "`priorities` and `shares` cannot be used with `subjects`: each subject has a wait "
               "queue of its own";
    if (plan->fair != FAIR_SET)
        return "`priorities` and `shares` say which request is granted before which: they cannot "
               "be used with `fair`";
    if (ast->limits_n == 1 && value_is_given(&ast->limits[0].lease))
        return "`priorities` and `shares` cannot be used with `lease`: a thread would take units "
               "ahead of its turn";
    for (uint32_t i = 0; i < plan->limits_n; i++)
        if (plan->limits[i].shadow != 0)
            return "`priorities` and `shares` cannot be used with `shadow` or `enforce`: a limit "
                   "in "
                   "shadow orders nothing";
    return NULL;
}

void resolve_classes(struct resolver *resolver, const struct ast_set *ast, struct set_plan *plan)
{
    const struct mark *mark = classes_mark(ast);
    const char *conflict = mark ? classes_conflict(ast, plan) : NULL;
    struct wait_classes *classes;

    if (value_is_given(&ast->ageing) && !value_is_given(&ast->priorities))
        complain(resolver->complaints, ast->ageing.mark, "`ageing` is for sets with `priorities`");
    if (conflict)
        complain(resolver->complaints, *mark, "%s", conflict);
    if (!mark || conflict || !plan->limits_n)
        return;
    classes = resolve_alloc(resolver, 1,
                            sizeof(*classes) + WEIR_LIMITS_MAX * sizeof(*classes->unit_costs));
    if (!classes)
        return;
    plan->classes = classes;
    if (ast->shares.n)
        classes_resolve_shares(resolver, ast, plan, classes);
    else
        classes_resolve_priorities(resolver, ast, classes);
    classes->state_offset = plan->state_words;
    if (classes->rule.n * WAIT_CLASS_WORDS > SET_STATE_WORDS_MAX - plan->state_words)
        complain(resolver->complaints, *mark,
                 "the limits of the set leave no room for the state of its classes");
    else
        plan->state_words += classes->rule.n * WAIT_CLASS_WORDS;
}

/* Returns whether a set, as written, has a class of this name. */
static bool classes_has(const struct ast_set *ast, const char *name)
{
    char *end;

    for (size_t i = 0; i < ast->shares.n; i++)
        if (strcmp(ast->shares.items[i].name.text, name) == 0)
            return true;
    if (!ast->priorities.text || name[0] < '0' || name[1])
        return false;
    return name[0] - '0' < strtol(ast->priorities.text, &end, 10);
}

void resolve_pool_class(struct resolver *resolver, const struct ast_pool *ast,
                        struct pool_plan *plan)
{
    const char *name = ast->class_.text;
    bool is_used = false;

    if (!name)
        return;
    plan->wait_class = resolve_strdup(resolver, name);
    for (uint32_t i = 0; i < plan->sets_n && plan->sets[i]; i++) {
        /* The name is the first member; an existing set may have classes, for all that is known. */
        const struct ast_set *set = str_map_find(&resolver->set_names, plan->sets[i]);

        is_used |= !set || classes_mark(set);
        if (set && classes_mark(set) && !classes_has(set, name))
            complain(resolver->complaints, ast->class_.mark, "the set `%s` has no class `%s`",
                     error_text(plan->sets[i]).text, error_text(name).text);
    }
    if (!is_used)
        complain(resolver->complaints, ast->class_.mark,
                 "`class` is for pools of sets with `priorities` or `shares`");
}
