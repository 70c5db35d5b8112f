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

struct spec_copier {
    struct config_ast *ast;
    struct complaints *complaints;
};

#define spec_complain(copier, ...)                                                                 \
    complain((copier)->complaints, ((struct mark){0, 0}), __VA_ARGS__)

/* Copies a struct that begins with its size. Returns false if the size is invalid. */
static bool spec_copy_struct(struct spec_copier *copier, const char *name, const void *from,
                             void *to, size_t known)
{
    size_t size;
    memcpy(&size, from, sizeof(size));
    if (size < 2 * sizeof(size) || size > CONFIG_SPEC_SIZE_MAX || size % sizeof(size) != 0) {
        spec_complain(copier, "size of struct %s is %zu: set it to sizeof(struct %s)", name, size,
                      name);
        return false;
    }
    const unsigned char *bytes = from;
    for (size_t i = known; i < size; i++) {
        if (bytes[i] != 0) {
            spec_complain(copier, "struct %s sets fields that this version does not know", name);
            return false;
        }
    }
    memset(to, 0, known);
    memcpy(to, from, size < known ? size : known);
    return true;
}

/* Returns the i-th struct of an array. The size in the first one is the distance between them. */
static const void *spec_struct_at(const void *array, size_t i)
{
    size_t size;
    memcpy(&size, array, sizeof(size));
    return (const char *)array + i * size;
}

static void spec_copy_text(struct spec_copier *copier, const char *text, struct config_value *ret)
{
    *ret = (struct config_value){0};
    if (!text)
        return;
    ret->text = config_ast_strdup(copier->ast, text, strlen(text));
    if (!ret->text)
        copier->complaints->memory_failed = true;
}

/* Copies a number as text; 0 means not given. */
static void spec_copy_number(struct spec_copier *copier, uint64_t number, struct config_value *ret)
{
    char text[32];
    snprintf(text, sizeof(text), "%" PRIu64, number);
    spec_copy_text(copier, number != 0 ? text : NULL, ret);
}

/* Copies a duration in the form that people write, since messages show it. */
static void spec_copy_duration(struct spec_copier *copier, uint64_t ns, struct config_value *ret)
{
    char text[UNITS_TEXT_MAX];
    spec_copy_text(copier, ns != 0 ? units_format(UNITS_DURATION, ns, text) : NULL, ret);
}

static void spec_copy_timeout(struct spec_copier *copier, uint64_t ns, struct config_value *ret)
{
    spec_copy_duration(copier, ns == WEIR_FOREVER ? 0 : ns, ret);
}

/* Makes room for copies of an array of the program with `n` items, at most `most`, and for `more`
 * items. Returns NULL if there are none, the array is impossible, or memory is short. */
static void *spec_array_new(struct spec_copier *copier, const char *name, const void *array,
                            size_t n, size_t most, size_t more, size_t size)
{
    if (n > 0 && !array) {
        spec_complain(copier, "%s is NULL, but %s_n is %zu", name, name, n);
        return NULL;
    }
    if (n > most) {
        spec_complain(copier, "%s_n is %zu: at most %zu are possible", name, n, most);
        return NULL;
    }
    if (n + more == 0)
        return NULL;
    void *copies = config_ast_alloc(copier->ast, n + more, size);
    if (!copies)
        copier->complaints->memory_failed = true;
    return copies;
}

/* Appends settings. The array must have room for them. */
static void spec_append_settings(struct spec_copier *copier, const struct weir_setting *from,
                                 size_t n, struct settings *settings)
{
    for (size_t i = 0; i < n; i++) {
        if (!from[i].name || !from[i].value) {
            spec_complain(copier, "a setting needs a name and a value, not NULL");
            continue;
        }
        struct setting *setting = &settings->items[settings->n++];
        spec_copy_text(copier, from[i].name, &setting->name);
        spec_copy_text(copier, from[i].value, &setting->value);
    }
}

static void spec_copy_settings(struct spec_copier *copier, const char *name,
                               const struct weir_setting *from, size_t n, size_t most,
                               struct settings *ret)
{
    ret->items = spec_array_new(copier, name, from, n, most, 0, sizeof(*ret->items));
    if (ret->items)
        spec_append_settings(copier, from, n, ret);
}

static void spec_copy_choice(struct spec_copier *copier, const char *field, enum weir_choice choice,
                             const char *yes, const char *no, struct config_value *ret)
{
    if (choice == WEIR_YES || choice == WEIR_NO)
        spec_copy_text(copier, choice == WEIR_YES ? yes : no, ret);
    else if (choice != WEIR_DEFAULT)
        spec_complain(copier, "%s is %d: use WEIR_DEFAULT, WEIR_YES or WEIR_NO", field,
                      (int)choice);
}

/* Appends one of the two parameters that the struct of a limit has fields for. */
static void spec_append_number(struct spec_copier *copier, const char *name, uint64_t number,
                               void (*copy)(struct spec_copier *, uint64_t, struct config_value *),
                               struct settings *settings)
{
    if (number == 0)
        return;
    struct setting *setting = &settings->items[settings->n++];
    spec_copy_text(copier, name, &setting->name);
    copy(copier, number, &setting->value);
}

static void spec_copy_limit(struct spec_copier *copier, const struct weir_limit_spec *spec,
                            struct ast_limit *ret)
{
    if ((size_t)spec->type > WEIR_LIMIT_RESOURCE)
        spec_complain(copier,
                      "type is %d: use WEIR_LIMIT_RATE, WEIR_LIMIT_CALL or WEIR_LIMIT_RESOURCE",
                      (int)spec->type);
    else
        spec_copy_text(copier, limit_type_names[spec->type], &ret->type);
    spec_copy_text(copier, spec->key, &ret->key);
    spec_copy_text(copier, spec->algorithm, &ret->algorithm);
    spec_copy_choice(copier, "refund", spec->refund, "true", "false", &ret->refund);
    spec_copy_choice(copier, "charge_overuse", spec->charge_overuse, "charge", "ignore",
                     &ret->overuse);
    spec_copy_number(copier, spec->lease, &ret->lease);
    ret->settings.items = spec_array_new(copier, "settings", spec->settings, spec->settings_n,
                                         CONFIG_SETTINGS_MAX, 2, sizeof(*ret->settings.items));
    if (!ret->settings.items)
        return;
    spec_append_number(copier, "capacity", spec->capacity, spec_copy_number, &ret->settings);
    spec_append_number(copier, "window", spec->window_ns, spec_copy_duration, &ret->settings);
    spec_append_settings(copier, spec->settings, spec->settings_n, &ret->settings);
}

static void spec_copy_limits(struct spec_copier *copier, const struct weir_set_spec *spec,
                             struct ast_set *ret)
{
    struct weir_limit_spec limit;
    ret->limits = spec_array_new(copier, "limits", spec->limits, spec->limits_n, WEIR_LIMITS_MAX, 0,
                                 sizeof(*ret->limits));
    if (!ret->limits)
        return;
    for (size_t i = 0; i < spec->limits_n; i++) {
        copier->complaints->location.limit_number = (uint32_t)i + 1;
        const void *from = spec_struct_at(spec->limits, i);
        if (!spec_copy_struct(copier, "weir_limit_spec", from, &limit, sizeof(limit)))
            break; /* it is unknown where the next one lies */
        spec_copy_limit(copier, &limit, &ret->limits[i]);
        ret->limits_n = i + 1;
    }
    copier->complaints->location.limit_number = 0;
}

static void spec_copy_subjects(struct spec_copier *copier, const struct weir_subjects_spec *spec,
                               struct ast_subjects *ret)
{
    struct weir_subjects_spec subjects;
    if (!spec || !spec_copy_struct(copier, "weir_subjects_spec", spec, &subjects, sizeof(subjects)))
        return;
    ret->name.text = "subjects";
    spec_copy_number(copier, subjects.max, &ret->max);
    spec_copy_number(copier, subjects.memory, &ret->memory);
    spec_copy_text(copier, subjects.evict, &ret->evict);
}

static void spec_copy_set(struct spec_copier *copier, const struct weir_set_spec *spec,
                          struct ast_set *ret)
{
    const uint32_t flags = WEIR_SET_STRICT | WEIR_SET_UNFAIR;
    if (!spec->name)
        spec_complain(copier, "needs a name");
    copier->complaints->location.set = spec->name;
    if ((spec->flags & ~flags) != 0)
        spec_complain(copier, "flags 0x%x are not known", spec->flags & ~flags);
    spec_copy_text(copier, spec->name, &ret->name);
    spec_copy_text(copier, spec->backend, &ret->backend);
    spec_copy_text(copier, spec->lifetime, &ret->lifetime);
    spec_copy_timeout(copier, spec->timeout_ns, &ret->timeout);
    spec_copy_timeout(copier, spec->max_wait_ns, &ret->max_wait);
    spec_copy_number(copier, spec->max_waiters, &ret->max_waiters);
    if ((spec->flags & WEIR_SET_STRICT) != 0)
        spec_copy_text(copier, "true", &ret->strict);
    if ((spec->flags & WEIR_SET_UNFAIR) != 0)
        spec_copy_text(copier, "false", &ret->fair);
    spec_copy_subjects(copier, spec->subjects, &ret->subjects);
    spec_copy_settings(copier, "config", spec->config, spec->config_n, CONFIG_ENTRIES_MAX,
                       &ret->config);
    spec_copy_limits(copier, spec, ret);
}

static void spec_copy_sets(struct spec_copier *copier, const struct weir_pool_spec *spec)
{
    struct config_ast *ast = copier->ast;
    struct weir_set_spec set;
    ast->sets = spec_array_new(copier, "sets", spec->sets, spec->sets_n, CONFIG_SETS_MAX, 0,
                               sizeof(*ast->sets));
    if (!ast->sets)
        return;
    for (size_t i = 0; i < spec->sets_n; i++) {
        copier->complaints->location = (struct spec_location){.set_number = (uint32_t)i + 1};
        const void *from = spec_struct_at(spec->sets, i);
        if (!spec_copy_struct(copier, "weir_set_spec", from, &set, sizeof(set)))
            break;
        spec_copy_set(copier, &set, &ast->sets[i]);
        ast->sets_n = i + 1;
    }
    copier->complaints->location = (struct spec_location){0};
}

/* Lists the sets of the pool: the new ones, then those that exist. */
static void spec_copy_pool_sets(struct spec_copier *copier, const struct weir_pool_spec *spec,
                                struct ast_pool *ret)
{
    const struct config_ast *ast = copier->ast;
    ret->sets = spec_array_new(copier, "set_names", spec->set_names, spec->set_names_n,
                               CONFIG_SETS_MAX, ast->sets_n, sizeof(*ret->sets));
    if (!ret->sets)
        return;
    for (size_t i = 0; i < ast->sets_n; i++)
        ret->sets[ret->sets_n++] = ast->sets[i].name;
    for (size_t i = 0; i < spec->set_names_n; i++) {
        if (!spec->set_names[i])
            spec_complain(copier, "a name in set_names is NULL");
        else
            spec_copy_text(copier, spec->set_names[i], &ret->sets[ret->sets_n++]);
    }
}

static void spec_copy_pool(struct spec_copier *copier, const struct weir_pool_spec *spec)
{
    struct config_ast *ast = copier->ast;
    struct ast_pool *pool = config_ast_append(ast, NULL, &ast->pools_n, sizeof(*pool));
    if (!pool) {
        copier->complaints->memory_failed = true;
        return;
    }
    ast->pools = pool;
    copier->complaints->location = (struct spec_location){.pool = spec->name};
    spec_copy_text(copier, spec->name, &pool->name);
    spec_copy_text(copier, spec->balancer, &pool->balancer);
    spec_copy_number(copier, spec->seed, &pool->seed);
    spec_copy_settings(copier, "settings", spec->settings, spec->settings_n, CONFIG_SETTINGS_MAX,
                       &pool->settings);
    spec_copy_pool_sets(copier, spec, pool);
    copier->complaints->location = (struct spec_location){0};
}

int config_spec_read(const struct weir_pool_spec *spec, struct config_ast *ret,
                     struct complaints *complaints)
{
    struct spec_copier copier = {.ast = ret, .complaints = complaints};
    struct weir_pool_spec known;
    uint32_t before = complaints->total;
    *ret = (struct config_ast){0};
    if (spec_copy_struct(&copier, "weir_pool_spec", spec, &known, sizeof(known))) {
        spec_copy_sets(&copier, &known);
        spec_copy_pool(&copier, &known);
    }
    if (complaints->memory_failed)
        return -ENOMEM;
    return complaints->total > before ? -EBADMSG : 0;
}
