/* SPDX-License-Identifier: MIT */
/*
 * Copies specifications in code into a config AST. Numbers become text, so that they are read,
 * checked and complained about like those of a file. Structs may be of another version. A shorter
 * one lacks fields, which count as 0; a longer one must have zeroes where this version knows no
 * field.
 */
#include "base/units.h"
#include "config/plan.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define spec_complain(ast, ...) complain((ast)->complaints, ((struct mark){0, 0}), __VA_ARGS__)

/* Copies the i-th struct of an array. A struct begins with its size, and that of the first is the
 * distance between all. Returns false if the size is invalid. */
static bool spec_copy_struct(struct config_ast *ast, const char *name, const void *array, size_t i,
                             void *to, size_t known)
{
    size_t size, first_size;
    memcpy(&first_size, array, sizeof(first_size));
    const unsigned char *from = (const unsigned char *)array + i * first_size;
    memcpy(&size, from, sizeof(size));
    if (size < 2 * sizeof(size) || size > CONFIG_SPEC_SIZE_MAX || size % sizeof(size) != 0) {
        spec_complain(ast, "size of struct %s is %zu: set it to sizeof(struct %s)", name, size,
                      name);
        return false;
    }
    if (size != first_size) {
        spec_complain(ast,
                      "size of struct %s is %zu, but that of the first one is %zu: all structs of "
                      "an array have one size",
                      name, size, first_size);
        return false;
    }
    for (size_t at = known; at < size; at++) {
        if (from[at] != 0) {
            spec_complain(ast, "struct %s sets fields that this version does not know", name);
            return false;
        }
    }
    memset(to, 0, known);
    memcpy(to, from, size < known ? size : known);
    return true;
}

/* Checks an array of the program with `n` items, at most `most`. Returns false if it is wrong. */
static bool spec_check_array(struct config_ast *ast, const char *name, const void *array, size_t n,
                             size_t most)
{
    if (n > 0 && !array)
        spec_complain(ast, "%s is NULL, but %s_n is %zu", name, name, n);
    else if (n > most)
        spec_complain(ast, "%s_n is %zu: at most %zu are possible", name, n, most);
    else
        return true;
    return false;
}

/* Values as text: NULL if none is given, which is 0 for a number. */

static const char *spec_text(struct config_ast *ast, const char *text)
{
    return text ? config_ast_strdup(ast, text, strlen(text)) : NULL;
}

static const char *spec_number(struct config_ast *ast, uint64_t number)
{
    char text[32];
    snprintf(text, sizeof(text), "%" PRIu64, number);
    return spec_text(ast, number != 0 ? text : NULL);
}

/* A duration has the form that people write, since messages show it. */
static const char *spec_duration(struct config_ast *ast, uint64_t ns)
{
    char text[UNITS_TEXT_MAX];
    return spec_text(ast, ns != 0 ? units_format(UNITS_DURATION, ns, text) : NULL);
}

static const char *spec_timeout(struct config_ast *ast, uint64_t ns)
{
    return spec_duration(ast, ns == WEIR_FOREVER ? 0 : ns);
}

static const char *spec_choice(struct config_ast *ast, const char *field, enum weir_choice choice,
                               const char *yes, const char *no)
{
    if (choice != WEIR_YES && choice != WEIR_NO && choice != WEIR_DEFAULT)
        spec_complain(ast, "%s is %d: use WEIR_DEFAULT, WEIR_YES or WEIR_NO", field, (int)choice);
    return choice == WEIR_YES ? yes : choice == WEIR_NO ? no : NULL;
}

static const char *spec_refund(struct config_ast *ast, enum weir_choice refund)
{
    if ((unsigned)refund > WEIR_STRICTLY)
        spec_complain(ast, "refund is %d: use WEIR_DEFAULT, WEIR_YES, WEIR_NO or WEIR_STRICTLY",
                      (int)refund);
    return refund == WEIR_STRICTLY ? "strict"
           : refund == WEIR_YES    ? "true"
           : refund == WEIR_NO     ? "false"
                                   : NULL;
}

/* Appends a setting if it has a value. Both texts live as long as the AST. */
static void spec_append_setting(struct config_ast *ast, struct settings *settings, const char *name,
                                const char *value)
{
    struct setting *setting = NULL;
    if (value)
        setting = config_ast_append(ast, &settings->items, &settings->n, sizeof(*setting));
    if (setting)
        *setting = (struct setting){.name.text = name, .value.text = value};
}

static void spec_copy_settings(struct config_ast *ast, const char *name,
                               const struct weir_setting *from, size_t n, size_t most,
                               struct settings *ret)
{
    if (!spec_check_array(ast, name, from, n, most))
        return;
    for (size_t i = 0; i < n; i++) {
        if (!from[i].name || !from[i].value)
            spec_complain(ast, "a setting needs a name and a value, not NULL");
        else
            spec_append_setting(ast, ret, spec_text(ast, from[i].name),
                                spec_text(ast, from[i].value));
    }
}

static void spec_copy_limit(struct config_ast *ast, const struct weir_limit_spec *spec,
                            struct ast_limit *ret)
{
    if ((size_t)spec->type > WEIR_LIMIT_RESOURCE)
        spec_complain(ast,
                      "type is %d: use WEIR_LIMIT_RATE, WEIR_LIMIT_CALL or WEIR_LIMIT_RESOURCE",
                      (int)spec->type);
    else
        ret->type.text = limit_type_names[spec->type];
    ret->key.text = spec_text(ast, spec->key);
    ret->algorithm.text = spec_text(ast, spec->algorithm);
    ret->refund.text = spec_refund(ast, spec->refund);
    ret->overuse.text =
        spec_choice(ast, "charge_overuse", spec->charge_overuse, "charge", "ignore");
    ret->lease.text = spec_number(ast, spec->lease);
    ret->enforce.text = spec_text(ast, spec->enforce);
    ret->max_hold.text = spec_duration(ast, spec->max_hold_ns);
    ret->max_hold_action.text = spec_text(ast, spec->max_hold_action);
    spec_append_setting(ast, &ret->settings, "capacity", spec_number(ast, spec->capacity));
    spec_append_setting(ast, &ret->settings, "window", spec_duration(ast, spec->window_ns));
    spec_copy_settings(ast, "settings", spec->settings, spec->settings_n, CONFIG_SETTINGS_MAX,
                       &ret->settings);
}

static void spec_copy_limits(struct config_ast *ast, const struct weir_set_spec *spec,
                             struct ast_set *ret)
{
    struct spec_location *location = &ast->complaints->location;
    struct weir_limit_spec limit;
    if (!spec_check_array(ast, "limits", spec->limits, spec->limits_n, WEIR_LIMITS_MAX))
        return;
    for (size_t i = 0; i < spec->limits_n; i++) {
        location->limit_number = (uint32_t)i + 1;
        if (!spec_copy_struct(ast, "weir_limit_spec", spec->limits, i, &limit, sizeof(limit)))
            break; /* it is unknown where the next one lies */
        struct ast_limit *copy =
            config_ast_append(ast, &ret->limits, &ret->limits_n, sizeof(*copy));
        if (!copy)
            break;
        spec_copy_limit(ast, &limit, copy);
    }
    location->limit_number = 0;
}

static void spec_copy_subjects(struct config_ast *ast, const struct weir_subjects_spec *spec,
                               struct ast_subjects *ret)
{
    struct weir_subjects_spec subjects;
    if (!spec || !spec_copy_struct(ast, "weir_subjects_spec", spec, 0, &subjects, sizeof(subjects)))
        return;
    ret->name.text = "subjects";
    ret->max.text = spec_number(ast, subjects.max);
    ret->memory.text = spec_number(ast, subjects.memory);
    ret->evict.text = spec_text(ast, subjects.evict);
}

static void spec_copy_set(struct config_ast *ast, const struct weir_set_spec *spec,
                          struct ast_set *ret)
{
    const uint32_t fairness = WEIR_SET_UNFAIR | WEIR_SET_FAIR_PER_LIMIT;
    const uint32_t flags = WEIR_SET_STRICT | WEIR_SET_BOOTTIME | WEIR_SET_HOLD_HISTOGRAM | fairness;
    if (!spec->name)
        spec_complain(ast, "needs a name");
    ast->complaints->location.set = spec->name;
    if ((spec->flags & ~flags) != 0)
        spec_complain(ast, "flags 0x%x are not known", spec->flags & ~flags);
    if ((spec->flags & fairness) == fairness)
        spec_complain(ast, "is either unfair or fair per limit");
    ret->name.text = spec_text(ast, spec->name);
    ret->backend.text = spec_text(ast, spec->backend);
    ret->lifetime.text = spec_text(ast, spec->lifetime);
    ret->timeout.text = spec_timeout(ast, spec->timeout_ns);
    ret->max_wait.text = spec_timeout(ast, spec->max_wait_ns);
    ret->max_waiters.text = spec_number(ast, spec->max_waiters);
    ret->priorities.text = spec_number(ast, spec->priorities);
    ret->ageing.text = spec_number(ast, spec->ageing);
    spec_copy_settings(ast, "shares", spec->shares, spec->shares_n, CONFIG_SETTINGS_MAX,
                       &ret->shares);
    ret->strict.text = (spec->flags & WEIR_SET_STRICT) != 0 ? "true" : NULL;
    ret->fair.text = (spec->flags & WEIR_SET_UNFAIR) != 0           ? "false"
                     : (spec->flags & WEIR_SET_FAIR_PER_LIMIT) != 0 ? "per_limit"
                                                                    : NULL;
    ret->clock.text = (spec->flags & WEIR_SET_BOOTTIME) != 0 ? "boottime" : NULL;
    ret->hold_histogram.text = (spec->flags & WEIR_SET_HOLD_HISTOGRAM) != 0 ? "true" : NULL;
    spec_copy_subjects(ast, spec->subjects, &ret->subjects);
    spec_copy_settings(ast, "config", spec->config, spec->config_n, CONFIG_ENTRIES_MAX,
                       &ret->config);
    spec_copy_limits(ast, spec, ret);
}

static void spec_copy_sets(struct config_ast *ast, const struct weir_pool_spec *spec)
{
    struct weir_set_spec set;
    if (!spec_check_array(ast, "sets", spec->sets, spec->sets_n, CONFIG_SETS_MAX))
        return;
    for (size_t i = 0; i < spec->sets_n; i++) {
        ast->complaints->location = (struct spec_location){.set_number = (uint32_t)i + 1};
        if (!spec_copy_struct(ast, "weir_set_spec", spec->sets, i, &set, sizeof(set)))
            break;
        struct ast_set *copy = config_ast_append(ast, &ast->sets, &ast->sets_n, sizeof(*copy));
        if (!copy)
            break;
        spec_copy_set(ast, &set, copy);
    }
}

/* Appends a set to the pool. The name lives as long as the AST. */
static void spec_append_pool_set(struct config_ast *ast, struct ast_pool *pool, const char *name)
{
    struct ast_pool_set *set = config_ast_append(ast, &pool->sets, &pool->sets_n, sizeof(*set));
    if (set)
        set->name.text = name;
}

static void spec_copy_pool(struct config_ast *ast, const struct weir_pool_spec *spec)
{
    const uint32_t known_flags = WEIR_POOL_TRY_NEXT | WEIR_POOL_WAIT_ANY;
    struct ast_pool *pool = config_ast_append(ast, &ast->pools, &ast->pools_n, sizeof(*pool));
    ast->complaints->location = (struct spec_location){.pool = spec->name};
    if (!pool)
        return;
    pool->name.text = spec_text(ast, spec->name);
    pool->balancer.text = spec_text(ast, spec->balancer);
    pool->seed.text = spec_number(ast, spec->seed);
    pool->class_.text = spec_text(ast, spec->wait_class);
    if ((spec->flags & ~known_flags) != 0)
        spec_complain(ast, "flags 0x%x are not known", spec->flags & ~known_flags);
    pool->try_.text = (spec->flags & WEIR_POOL_TRY_NEXT) != 0 ? "next" : NULL;
    pool->wait.text = (spec->flags & WEIR_POOL_WAIT_ANY) != 0 ? "any" : NULL;
    spec_copy_settings(ast, "settings", spec->settings, spec->settings_n, CONFIG_SETTINGS_MAX,
                       &pool->settings);
    for (size_t i = 0; i < ast->sets_n; i++) /* first the new sets, then those that exist */
        spec_append_pool_set(ast, pool, ast->sets[i].name.text);
    if (!spec_check_array(ast, "set_names", spec->set_names, spec->set_names_n, CONFIG_SETS_MAX))
        return;
    for (size_t i = 0; i < spec->set_names_n; i++) {
        if (!spec->set_names[i])
            spec_complain(ast, "a name in set_names is NULL");
        else
            spec_append_pool_set(ast, pool, spec_text(ast, spec->set_names[i]));
    }
}

int config_spec_read(const struct weir_pool_spec *spec, struct config_ast *ret,
                     struct complaints *complaints)
{
    struct weir_pool_spec known;
    uint32_t before = complaints->total;
    *ret = (struct config_ast){.complaints = complaints};
    if (spec_copy_struct(ret, "weir_pool_spec", spec, 0, &known, sizeof(known))) {
        spec_copy_sets(ret, &known);
        spec_copy_pool(ret, &known);
    }
    complaints->location = (struct spec_location){0};
    if (ret->memory_failed || complaints->memory_failed)
        return -ENOMEM;
    return complaints->total > before ? -EBADMSG : 0;
}
