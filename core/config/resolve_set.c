/* SPDX-License-Identifier: MIT */
/* Resolves sets: their fields, and limits that must go together. */
#include "base/invariant.h"
#include "config/resolve.h"
#include "config/value.h"
#include "os/os.h"
#include <stdlib.h>
#include <string.h>

/* Resolves a default for requests; WEIR_FOREVER if not given. */
static void resolve_set_timeout(struct resolver *resolver, const char *field,
                                const struct config_value *value, uint64_t *ret_ns)
{
    *ret_ns = WEIR_FOREVER;
    if (value->text != NULL && strcmp(value->text, "forever") != 0)
        value_read_number(resolver->complaints, field, value, true, 1, WEIR_FOREVER - 1, ret_ns);
}

/* Resolves where the set's state is, and how long it exists. */
static void resolve_set_backend(struct resolver *resolver, const struct ast_set *ast,
                                struct set_plan *plan)
{
    static const char *const backends[] = {"thread", "process"};
    static const char *const lifetimes[] = {"boot", "users"};
    const struct config_value *backend = &ast->backend, *lifetime = &ast->lifetime;
    bool known = !value_is_given(backend);
    if (backend->text != NULL) {
        int i = value_read_choice(resolver->complaints, "backend", backend, backends,
                                  ARRAY_LENGTH(backends));
        known = i >= 0;
        plan->backend = i == BACKEND_PROCESS ? BACKEND_PROCESS : BACKEND_THREAD;
    }
    if (known && plan->backend == BACKEND_THREAD && value_is_given(lifetime))
        resolve_complain(resolver, -EINVAL, lifetime->mark,
                         "`lifetime` is for shared sets: it needs `backend: process`");
    else if (lifetime->text != NULL)
        plan->while_used = value_read_choice(resolver->complaints, "lifetime", lifetime, lifetimes,
                                             ARRAY_LENGTH(lifetimes)) == 1;
}

/* Resolves `keyed`. Whether the limits suit it is unknown here: they are resolved later. */
static void resolve_set_keyed(struct resolver *resolver, const struct ast_set *ast,
                              struct set_plan *plan)
{
    static const char *const policies[] = {"oldest", "random", "none"};
    const struct ast_keyed *keyed = &ast->keyed;
    int i;
    if (!keyed->given)
        return;
    if (!value_is_given(&keyed->max_keys))
        resolve_complain(resolver, -EINVAL, keyed->mark,
                         "`max` is missing: how many subjects the set may know at a time");
    else if (keyed->max_keys.text != NULL)
        value_read_number(resolver->complaints, "max", &keyed->max_keys, false, 1,
                          WEIR_SUBJECTS_MAX, &plan->keyed.max_keys);
    if (keyed->memory.text != NULL)
        value_read_size(resolver->complaints, "memory", &keyed->memory, KEYED_MEMORY_MIN,
                        KEYED_MEMORY_MAX, &plan->keyed.memory);
    if (keyed->evict.text != NULL) {
        i = value_read_choice(resolver->complaints, "evict", &keyed->evict, policies,
                              ARRAY_LENGTH(policies));
        plan->keyed.evict = i < 0 ? EVICT_OLDEST : (enum evict)i;
    }
    if (ast->limits_n == 0)
        resolve_complain(
            resolver, -EINVAL, keyed->mark,
            "`subjects` is for sets with limits: without limits a subject has no state");
}

static void resolve_set_fields(struct resolver *resolver, const struct ast_set *ast,
                               struct set_plan *plan)
{
    uint64_t waiters;
    plan->fair = true;
    resolve_set_backend(resolver, ast, plan);
    resolve_set_keyed(resolver, ast, plan);
    resolve_set_timeout(resolver, "timeout", &ast->timeout, &plan->timeout_ns);
    resolve_set_timeout(resolver, "max_wait", &ast->max_wait, &plan->max_wait_ns);
    value_read_boolean(resolver->complaints, "strict", &ast->strict, &plan->strict);
    value_read_boolean(resolver->complaints, "fair", &ast->fair, &plan->fair);
    if (ast->max_waiters.text != NULL &&
        value_read_number(resolver->complaints, "max_waiters", &ast->max_waiters, false, 1,
                          UINT32_MAX, &waiters))
        plan->max_waiters = (uint32_t)waiters;
}

/* Orders settings by name, and those of one name by position in the text. */
static int resolve_compare_settings(const void *left, const void *right)
{
    const struct setting *a = *(const struct setting *const *)left;
    const struct setting *b = *(const struct setting *const *)right;
    int order = strcmp(a->name.text, b->name.text);
    return order != 0 ? order : a < b ? -1 : 1;
}

static int resolve_set_fill_config(struct resolver *resolver, const struct setting **sorted,
                                   size_t n, struct set_plan *plan)
{
    for (size_t i = 0; i < n; i++) {
        const struct setting *setting = sorted[i];
        if (!value_check_name(resolver->complaints, "a name in `config`", &setting->name))
            continue;
        if (i > 0 && strcmp(sorted[i - 1]->name.text, setting->name.text) == 0) {
            resolve_complain(resolver, -EINVAL, setting->name.mark,
                             "`%s` is given twice in `config`",
                             error_text(setting->name.text).text);
            continue;
        }
        if (setting->value.text == NULL)
            continue;
        struct name_value *item = &plan->config[plan->config_n];
        WEIR_INVARIANT(plan->config_n < n);
        plan->config_n++;
        if (resolve_copy_text(setting->name.text, &item->name) < 0 ||
            resolve_copy_text(setting->value.text, &item->value) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int resolve_set_config(struct resolver *resolver, const struct settings *config,
                              struct set_plan *plan)
{
    if (config->n == 0)
        return 0;
    plan->config = os_alloc(config->n, sizeof *plan->config);
    const struct setting **sorted = os_alloc(config->n, sizeof *sorted);
    int rc = -ENOMEM;
    if (plan->config != NULL && sorted != NULL) {
        for (size_t i = 0; i < config->n; i++)
            sorted[i] = &config->items[i];
        qsort(sorted, config->n, sizeof *sorted, resolve_compare_settings);
        rc = resolve_set_fill_config(resolver, sorted, config->n, plan);
    }
    os_free(sorted);
    return rc;
}

/* Returns whether two limits have one key and different types. A limit with an error in either has
 * neither. */
static bool resolve_set_types_clash(const struct limit *limit, const struct limit *other)
{
    if (limit->key == NULL || other->key == NULL || limit->type == 0 || other->type == 0)
        return false;
    return limit->type != other->type && strcmp(limit->key, other->key) == 0;
}

/* Checks that limits with one key have one type, since amounts are requested by key. */
static void resolve_set_check_keys(struct resolver *resolver, const struct ast_set *ast,
                                   const struct limit *limits, size_t at)
{
    for (size_t i = 0; i < at; i++) {
        if (!resolve_set_types_clash(&limits[i], &limits[at]))
            continue;
        const struct ast_limit *limit = &ast->limits[at];
        resolve_complain(
            resolver, -EINVAL, limit->key.mark.line != 0 ? limit->key.mark : limit->mark,
            "limit %zu of this set has the key `%s` too, but is a %s: limits with one key must be "
            "of one type",
            i + 1, error_text(limits[at].key).text, ast->limits[i].type.text);
        return;
    }
}

/* Places a limit's state behind those of the limits before it. */
static void resolve_set_place_limit(struct resolver *resolver, const struct ast_set *ast,
                                    struct set_plan *plan, struct limit *limit)
{
    WEIR_INVARIANT(plan->state_words <= SET_STATE_WORDS_MAX);
    limit->state_offset = plan->state_words;
    if (limit->state_words > SET_STATE_WORDS_MAX - plan->state_words)
        resolve_complain(resolver, -EINVAL, ast->limits[limit - plan->limits].mark,
                         "the limits of this set need more than %u MiB together",
                         (unsigned)(WEIR_STATE_MAX >> 20));
    else
        plan->state_words += limit->state_words;
}

/* Checks that a lease is for a set of one limit: units taken ahead would be withheld from other
 * limits. */
static void resolve_set_check_lease(struct resolver *resolver, const struct ast_set *ast, size_t at)
{
    if (ast->limits[at].lease.text == NULL)
        return;
    if (ast->keyed.given)
        resolve_complain(resolver, -EINVAL, ast->limits[at].lease.mark,
                         "`lease` cannot be used with `subjects`: a thread keeps units of one set, "
                         "not of subjects");
    if (ast->limits_n > 1)
        resolve_complain(resolver, -EINVAL, ast->limits[at].lease.mark,
                         "`lease` needs a set of this one limit, not of %zu", ast->limits_n);
}

static int resolve_set_limits(struct resolver *resolver, const struct ast_set *ast,
                              struct set_plan *plan)
{
    size_t n = ast->limits_n;
    if (n > WEIR_LIMITS_MAX) {
        resolve_complain(resolver, -EINVAL, ast->limits[WEIR_LIMITS_MAX].mark,
                         "a set has at most %d limits, not %zu", WEIR_LIMITS_MAX, n);
        n = WEIR_LIMITS_MAX;
    }
    if (n == 0)
        return 0;
    plan->limits = os_alloc(n, sizeof *plan->limits);
    if (plan->limits == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        resolver->complaints->location.limit_number = (uint32_t)i + 1;
        plan->limits_n = (uint32_t)i + 1;
        int rc = resolve_limit(resolver, &ast->limits[i], &plan->limits[i]);
        if (rc < 0)
            return rc;
        resolve_set_check_keys(resolver, ast, plan->limits, i);
        resolve_set_check_lease(resolver, ast, i);
        resolve_set_place_limit(resolver, ast, plan, &plan->limits[i]);
    }
    return 0;
}

int resolve_set(struct resolver *resolver, const struct ast_set *ast, struct set_plan *plan)
{
    resolver->complaints->location = (struct spec_location){.set = ast->name.text};
    int rc = resolve_copy_text(ast->name.text, &plan->name);
    if (rc < 0)
        return rc;
    resolve_set_fields(resolver, ast, plan);
    rc = resolve_set_config(resolver, &ast->config, plan);
    if (rc == 0)
        rc = resolve_set_limits(resolver, ast, plan);
    resolver->complaints->location = (struct spec_location){0};
    return rc;
}
