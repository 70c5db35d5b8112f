/* SPDX-License-Identifier: MIT */
/*
 * Specifications in code, copied into a definition: numbers become text, so that from here on they
 * are read, checked and complained about like those of a file. Structs may be of another version:
 * a shorter one lacks fields, which count as 0; a longer one must hold zeroes where this version
 * knows nothing.
 */
#include "base/mutant.h"
#include "base/units.h"
#include "config/config_ast.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct copier {
    struct definition *definition;
    struct complaints *complaints;
    bool memory_failed;
};

static const struct mark nowhere = {0, 0};

static void wrong(struct copier *copier, const char *message)
{
    complain(copier->complaints, -EINVAL, nowhere, "%s", message);
}

/* Copies a struct that begins with its size. False: the size makes no sense. */
static bool struct_copy(struct copier *copier, const char *name, const void *from, void *to,
                        size_t known)
{
    size_t size;
    memcpy(&size, from, sizeof size);
    if (size < 2 * sizeof size || size > CONFIG_SPEC_SIZE_MAX || size % sizeof size != 0) {
        complain(copier->complaints, -EINVAL, nowhere,
                 "size of struct %s is %zu: set it to sizeof(struct %s)", name, size, name);
        return false;
    }
    const unsigned char *bytes = from;
    for (size_t i = known; i < size; i++) {
        if (bytes[i] != 0) {
            complain(copier->complaints, -EINVAL, nowhere,
                     "struct %s sets fields that this version does not know", name);
            return false;
        }
    }
    memset(to, 0, known);
    memcpy(to, from, size < known ? size : known);
    return true;
}

/* The i-th struct of an array; the first says how far they lie apart. */
static const void *struct_at(const void *array, size_t i, size_t known)
{
    size_t size;
    memcpy(&size, array, sizeof size);
    return (const char *)array + i * (MUTANT(88) ? known : size);
}

static void text_copy(struct copier *copier, const char *text, struct scalar *ret)
{
    *ret = (struct scalar){0};
    if (text == NULL)
        return;
    ret->text = definition_strdup(copier->definition, text, strlen(text));
    if (ret->text == NULL)
        copier->memory_failed = true;
}

/* A number with its unit; 0 is not given. */
static void number_copy(struct copier *copier, uint64_t number, struct scalar *ret)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, number);
    text_copy(copier, number != 0 ? text : NULL, ret);
}

/* As people write it: it is shown to them. */
static void duration_copy(struct copier *copier, uint64_t ns, struct scalar *ret)
{
    char text[QUANTITY_TEXT_MAX];
    text_copy(copier, ns != 0 ? quantity_write_duration(ns, text) : NULL, ret);
}

static void span_copy(struct copier *copier, uint64_t ns, struct scalar *ret)
{
    duration_copy(copier, ns == WEIR_FOREVER ? 0 : ns, ret);
}

static void *array_new(struct copier *copier, size_t n, size_t size)
{
    void *array = n > 0 ? definition_alloc(copier->definition, n, size) : NULL;
    if (n > 0 && array == NULL)
        copier->memory_failed = true;
    return array;
}

/* An array of `n` items that the program gave. False: it cannot be one, or is too large. */
static bool array_check(struct copier *copier, const char *name, const void *array, size_t n,
                        size_t most)
{
    if (n > 0 && array == NULL)
        complain(copier->complaints, -EINVAL, nowhere, "%s is NULL, but %s_n is %zu", name, name,
                 n);
    else if (n > most)
        complain(copier->complaints, -EINVAL, nowhere, "%s_n is %zu: at most %zu are possible",
                 name, n, most);
    else
        return true;
    return false;
}

/* Appends settings behind the `settings->n` there are; room was made. */
static void settings_fill(struct copier *copier, const struct weir_setting *from, size_t n,
                          struct settings *settings)
{
    for (size_t i = 0; i < n; i++) {
        if (from[i].name == NULL || from[i].value == NULL) {
            wrong(copier, "a setting needs a name and a value, not NULL");
            continue;
        }
        struct setting *setting = &settings->items[settings->n++];
        text_copy(copier, from[i].name, &setting->name);
        text_copy(copier, from[i].value, &setting->value);
    }
}

static void settings_copy(struct copier *copier, const char *name, const struct weir_setting *from,
                          size_t n, size_t most, struct settings *ret)
{
    if (!array_check(copier, name, from, n, most))
        return;
    ret->items = array_new(copier, n, sizeof *ret->items);
    if (ret->items != NULL)
        settings_fill(copier, from, n, ret);
}

static void choice_copy(struct copier *copier, const char *field, enum weir_choice choice,
                        const char *yes, const char *no, struct scalar *ret)
{
    if (choice == WEIR_YES || choice == WEIR_NO)
        text_copy(copier, choice == WEIR_YES ? yes : no, ret);
    else if (choice != WEIR_DEFAULT)
        complain(copier->complaints, -EINVAL, nowhere,
                 "%s is %d: use WEIR_DEFAULT, WEIR_YES or WEIR_NO", field, (int)choice);
}

/* The two numbers that a limit's struct has fields for are parameters like any other. */
static void number_setting(struct copier *copier, const char *name, uint64_t number,
                           void (*copy)(struct copier *, uint64_t, struct scalar *),
                           struct settings *settings)
{
    if (number == 0)
        return;
    struct setting *setting = &settings->items[settings->n++];
    text_copy(copier, name, &setting->name);
    copy(copier, number, &setting->value);
}

static void limit_copy(struct copier *copier, const struct weir_limit_spec *spec,
                       struct limit_definition *ret)
{
    static const char *const types[] = {NULL, "rate", "call", "resource"};
    if ((size_t)spec->type >= sizeof types / sizeof types[0])
        complain(copier->complaints, -EINVAL, nowhere,
                 "type is %d: use WEIR_LIMIT_RATE, WEIR_LIMIT_CALL or WEIR_LIMIT_RESOURCE",
                 (int)spec->type);
    else
        text_copy(copier, types[spec->type], &ret->type);
    text_copy(copier, spec->key, &ret->key);
    text_copy(copier, spec->algorithm, &ret->algorithm);
    choice_copy(copier, "refund", spec->refund, "true", "false", &ret->refund);
    choice_copy(copier, "charge_overuse", spec->charge_overuse, "charge", "ignore", &ret->overuse);
    number_copy(copier, spec->lease, &ret->lease);
    if (!array_check(copier, "settings", spec->settings, spec->settings_n, CONFIG_SETTINGS_MAX))
        return;
    ret->settings.items = array_new(copier, spec->settings_n + 2, sizeof *ret->settings.items);
    if (ret->settings.items == NULL)
        return;
    number_setting(copier, "capacity", spec->capacity, number_copy, &ret->settings);
    number_setting(copier, "window", spec->window_ns, duration_copy, &ret->settings);
    settings_fill(copier, spec->settings, spec->settings_n, &ret->settings);
}

static void limits_copy(struct copier *copier, const struct weir_set_spec *spec,
                        struct set_definition *ret)
{
    struct weir_limit_spec limit;
    if (!array_check(copier, "limits", spec->limits, spec->limits_n, WEIR_LIMITS_MAX))
        return;
    ret->limits = array_new(copier, spec->limits_n, sizeof *ret->limits);
    if (ret->limits == NULL)
        return;
    for (size_t i = 0; i < spec->limits_n; i++) {
        copier->complaints->place.limit_number = (uint32_t)i + 1;
        const void *from = struct_at(spec->limits, i, sizeof limit);
        if (!struct_copy(copier, "weir_limit_spec", from, &limit, sizeof limit))
            break; /* nobody knows where the next one lies */
        limit_copy(copier, &limit, &ret->limits[i]);
        ret->limits_n = i + 1;
    }
    copier->complaints->place.limit_number = 0;
}

static void keyed_copy(struct copier *copier, const struct weir_keyed_spec *spec,
                       struct keyed_definition *ret)
{
    struct weir_keyed_spec keyed;
    if (spec == NULL)
        return;
    if (!struct_copy(copier, "weir_keyed_spec", spec, &keyed, sizeof keyed))
        return;
    ret->given = true;
    number_copy(copier, keyed.max_keys, &ret->max_keys);
    number_copy(copier, keyed.memory, &ret->memory);
    text_copy(copier, keyed.evict, &ret->evict);
}

static void set_copy(struct copier *copier, const struct weir_set_spec *spec,
                     struct set_definition *ret)
{
    const uint32_t flags = WEIR_SET_STRICT | WEIR_SET_UNFAIR;
    if (spec->name == NULL)
        wrong(copier, "needs a name");
    copier->complaints->place.set = spec->name;
    if ((spec->flags & ~flags) != 0)
        complain(copier->complaints, -EINVAL, nowhere, "flags 0x%x are not known",
                 spec->flags & ~flags);
    text_copy(copier, spec->name, &ret->name);
    text_copy(copier, spec->backend, &ret->backend);
    text_copy(copier, spec->lifetime, &ret->lifetime);
    span_copy(copier, spec->timeout_ns, &ret->timeout);
    span_copy(copier, spec->max_wait_ns, &ret->max_wait);
    number_copy(copier, spec->max_waiters, &ret->max_waiters);
    if ((spec->flags & WEIR_SET_STRICT) != 0)
        text_copy(copier, "true", &ret->strict);
    if ((spec->flags & WEIR_SET_UNFAIR) != 0)
        text_copy(copier, "false", &ret->fair);
    keyed_copy(copier, spec->keyed, &ret->keyed);
    settings_copy(copier, "config", spec->config, spec->config_n, CONFIG_ENTRIES_MAX, &ret->config);
    limits_copy(copier, spec, ret);
}

static void sets_copy(struct copier *copier, const struct weir_pool_spec *spec)
{
    struct definition *definition = copier->definition;
    struct weir_set_spec set;
    if (!array_check(copier, "sets", spec->sets, spec->sets_n, CONFIG_SETS_MAX))
        return;
    definition->sets = array_new(copier, spec->sets_n, sizeof *definition->sets);
    if (definition->sets == NULL)
        return;
    for (size_t i = 0; i < spec->sets_n; i++) {
        copier->complaints->place = (struct place){.set_number = (uint32_t)i + 1};
        const void *from = struct_at(spec->sets, i, sizeof set);
        if (!struct_copy(copier, "weir_set_spec", from, &set, sizeof set))
            break;
        set_copy(copier, &set, &definition->sets[i]);
        definition->sets_n = i + 1;
    }
    copier->complaints->place = (struct place){0};
}

/* The pool's sets: the new ones, then those that exist. */
static void pool_sets_copy(struct copier *copier, const struct weir_pool_spec *spec,
                           struct pool_definition *ret)
{
    const struct definition *definition = copier->definition;
    if (!array_check(copier, "set_names", spec->set_names, spec->set_names_n, CONFIG_SETS_MAX))
        return;
    ret->sets = array_new(copier, definition->sets_n + spec->set_names_n, sizeof *ret->sets);
    if (ret->sets == NULL)
        return;
    for (size_t i = 0; i < definition->sets_n; i++)
        ret->sets[ret->sets_n++] = definition->sets[i].name;
    for (size_t i = 0; i < spec->set_names_n; i++) {
        if (spec->set_names[i] == NULL)
            wrong(copier, "a name in set_names is NULL");
        else
            text_copy(copier, spec->set_names[i], &ret->sets[ret->sets_n++]);
    }
}

static void pool_copy(struct copier *copier, const struct weir_pool_spec *spec)
{
    struct definition *definition = copier->definition;
    definition->pools = array_new(copier, 1, sizeof *definition->pools);
    if (definition->pools == NULL)
        return;
    struct pool_definition *pool = definition->pools;
    definition->pools_n = 1;
    copier->complaints->place = (struct place){.pool = spec->name};
    text_copy(copier, spec->name, &pool->name);
    text_copy(copier, spec->balancer, &pool->balancer);
    number_copy(copier, spec->seed, &pool->seed);
    settings_copy(copier, "settings", spec->settings, spec->settings_n, CONFIG_SETTINGS_MAX,
                  &pool->settings);
    pool_sets_copy(copier, spec, pool);
    copier->complaints->place = (struct place){0};
}

int spec_define(const struct weir_pool_spec *spec, struct definition *ret,
                struct complaints *complaints)
{
    struct copier copier = {.definition = ret, .complaints = complaints};
    struct weir_pool_spec known;
    uint32_t before = complaints->total;
    *ret = (struct definition){0};
    if (struct_copy(&copier, "weir_pool_spec", spec, &known, sizeof known)) {
        sets_copy(&copier, &known);
        pool_copy(&copier, &known);
    }
    if (copier.memory_failed)
        return -ENOMEM;
    return complaints->total > before ? -EBADMSG : 0;
}
