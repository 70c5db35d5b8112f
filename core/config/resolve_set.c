/* SPDX-License-Identifier: MIT */
/* Resolves sets: their fields, and limits that must go together. */
#include "base/invariant.h"
#include "config/resolve.h"
#include "config/value.h"
#include "shm/segment_layout.h"
#include <stdlib.h>
#include <string.h>

/* Resolves a default for requests; WEIR_FOREVER if not given. */
static void resolve_set_timeout(struct resolver *resolver, const char *field,
                                const struct config_value *value, uint64_t *ret_ns)
{
    *ret_ns = WEIR_FOREVER;
    if (!value->text || strcmp(value->text, "forever") != 0)
        value_read_number(resolver->complaints, field, value, UNITS_DURATION, 1, WEIR_FOREVER - 1,
                          ret_ns);
}

/* Resolves where the set's state is, and how long it exists. */
static void resolve_set_backend(struct resolver *resolver, const struct ast_set *ast,
                                struct set_plan *plan)
{
    static const char *const lifetimes[] = {"boot", "users"};
    uint64_t lifetime = 0;
    bool known = resolve_engine(resolver, ast, plan);
    if (known && plan->backend != BACKEND_PROCESS && value_is_given(&ast->lifetime))
        complain(resolver->complaints, ast->lifetime.mark,
                 "`lifetime` is for shared sets: it needs `backend: process`");
    else
        value_read_choice(resolver->complaints, "lifetime", &ast->lifetime, lifetimes,
                          ARRAY_LENGTH(lifetimes), &lifetime);
    plan->while_used = lifetime == 1;
}

/* Resolves `subjects`. Whether the limits suit it is unknown here: they are resolved later. */
static void resolve_set_subjects(struct resolver *resolver, const struct ast_set *ast,
                                 struct set_plan *plan)
{
    const struct ast_subjects *subjects = &ast->subjects;
    uint64_t evict = EVICT_OLDEST;
    if (!subjects->name.text)
        return;
    if (!value_is_given(&subjects->max))
        complain(resolver->complaints, subjects->name.mark,
                 "`max` is missing: how many subjects the set may know at a time");
    value_read_number(resolver->complaints, "max", &subjects->max, UNITS_AMOUNT, 1,
                      WEIR_SUBJECTS_MAX, &plan->keyed.max_keys);
    value_read_number(resolver->complaints, "memory", &subjects->memory, UNITS_SIZE,
                      KEYED_MEMORY_MIN, KEYED_MEMORY_MAX, &plan->keyed.memory);
    value_read_choice(resolver->complaints, "evict", &subjects->evict, evict_names, EVICT_NAMES_N,
                      &evict);
    plan->keyed.evict = (enum evict)evict;
    if (ast->limits_n == 0)
        complain(resolver->complaints, subjects->name.mark,
                 "`subjects` is for sets with limits: without limits a subject has no state");
}

static void resolve_set_clock(struct resolver *resolver, const struct ast_set *ast,
                              struct set_plan *plan)
{
    static const char *const clocks[] = {"monotonic", "boottime"};
    uint64_t clock = 0;
    value_read_choice(resolver->complaints, "clock", &ast->clock, clocks, ARRAY_LENGTH(clocks),
                      &clock);
    plan->boottime = clock == 1;
}

static void resolve_set_fairness(struct resolver *resolver, const struct ast_set *ast,
                                 struct set_plan *plan)
{
    static const char *const words[] = {"false", "true", "per_limit"};
    uint64_t fair = FAIR_SET;
    value_read_choice(resolver->complaints, "fair", &ast->fair, words, ARRAY_LENGTH(words), &fair);
    plan->fair = (enum fairness)fair;
}

static void resolve_set_fields(struct resolver *resolver, const struct ast_set *ast,
                               struct set_plan *plan)
{
    uint64_t waiters = 0;
    resolve_set_backend(resolver, ast, plan);
    resolve_set_subjects(resolver, ast, plan);
    resolve_set_clock(resolver, ast, plan);
    resolve_set_timeout(resolver, "timeout", &ast->timeout, &plan->timeout_ns);
    resolve_set_timeout(resolver, "max_wait", &ast->max_wait, &plan->max_wait_ns);
    value_read_boolean(resolver->complaints, "strict", &ast->strict, &plan->strict);
    value_read_boolean(resolver->complaints, "hold_histogram", &ast->hold_histogram,
                       &plan->counts_holds);
    resolve_set_fairness(resolver, ast, plan);
    value_read_number(resolver->complaints, "max_waiters", &ast->max_waiters, UNITS_AMOUNT, 1,
                      UINT32_MAX, &waiters);
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

static void resolve_set_config(struct resolver *resolver, const struct settings *config,
                               struct set_plan *plan)
{
    plan->config = resolve_alloc(resolver, config->n, sizeof(*plan->config));
    const struct setting **sorted = resolve_scratch(resolver, config->n, sizeof(*sorted));
    if (!plan->config || !sorted)
        return;
    for (size_t i = 0; i < config->n; i++)
        sorted[i] = &config->items[i];
    qsort(sorted, config->n, sizeof(*sorted), resolve_compare_settings);
    for (size_t i = 0; i < config->n; i++) {
        const struct setting *setting = sorted[i];
        if (!value_check_name(resolver->complaints, "a name in `config`", &setting->name))
            continue;
        if (i > 0 && strcmp(sorted[i - 1]->name.text, setting->name.text) == 0) {
            complain(resolver->complaints, setting->name.mark, "`%s` is given twice in `config`",
                     error_text(setting->name.text).text);
            continue;
        }
        if (setting->refusal)
            complain(resolver->complaints, setting->value.mark, "`%s` %s",
                     error_text(setting->name.text).text, setting->refusal);
        if (!setting->value.text)
            continue;
        plan->config[plan->config_n++] =
            (struct name_value){.name = resolve_strdup(resolver, setting->name.text),
                                .value = resolve_strdup(resolver, setting->value.text)};
    }
}

/* Returns whether two limits have one key and different types. A limit with an error in either has
 * neither. */
static bool resolve_set_types_clash(const struct limit *limit, const struct limit *other)
{
    if (!limit->key || !other->key || limit->type == 0 || other->type == 0)
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
        complain(
            resolver->complaints, limit->key.mark.line != 0 ? limit->key.mark : limit->name.mark,
            "limit %zu of this set has the key `%s` too, but is a %s: limits with one key must be "
            "of one type",
            i + 1, error_text(limits[at].key).text, ast->limits[i].type.text);
        return;
    }
}

/* Places a limit's state behind those of the limits before it. */
static void resolve_set_place_limit(struct resolver *resolver, const struct ast_limit *ast,
                                    struct set_plan *plan, struct limit *limit)
{
    WEIR_INVARIANT(plan->state_words <= SET_STATE_WORDS_MAX);
    limit->state_offset = plan->state_words;
    if (limit->state_words > SET_STATE_WORDS_MAX - plan->state_words)
        complain(resolver->complaints, ast->name.mark,
                 "this limit needs %llu bytes of state, and those before it %llu: the limits of a "
                 "set can have %llu together",
                 8ULL * limit->state_words, 8ULL * plan->state_words,
                 (unsigned long long)WEIR_STATE_MAX);
    else
        plan->state_words += limit->state_words;
}

/* Checks that a lease is for a set of one limit: units taken ahead would be withheld from other
 * limits. */
static void resolve_set_check_lease(struct resolver *resolver, const struct ast_set *ast,
                                    const struct set_plan *plan, const struct ast_limit *limit)
{
    const struct config_value *lease = &limit->lease;
    if (limit->lease_ahead.name.text && plan->backend != BACKEND_REMOTE)
        complain(
            resolver->complaints, lease->mark,
            "`lease: { for: … }` is for sets that an engine keeps; here `lease` is a number of "
            "units");
    if (!lease->text || plan->backend == BACKEND_REMOTE)
        return;
    if (ast->subjects.name.text)
        complain(resolver->complaints, lease->mark,
                 "`lease` cannot be used with `subjects`: a thread keeps units of one set, "
                 "not of subjects");
    if (ast->limits_n > 1)
        complain(resolver->complaints, lease->mark,
                 "`lease` needs a set of this one limit, not of %zu", ast->limits_n);
}

/* Checks that there is room for all subjects if they cannot do with a word in the table each. */
static void resolve_set_check_room(struct resolver *resolver, const struct ast_set *ast,
                                   const struct set_plan *plan)
{
    bool shared = plan->backend == BACKEND_PROCESS;
    char texts[2][UNITS_TEXT_MAX];
    uint32_t block_class = set_plan_block_class(plan), room = key_sets_room(block_class, shared);
    if (plan->backend == BACKEND_REMOTE || !plan->limits || plan->keyed.memory != 0 ||
        plan->keyed.max_keys <= room)
        return;
    bool needs_record =
        plan->limits->shadow != 0 || (shared && plan->limits->type == WEIR_LIMIT_RESOURCE);
    if (plan->limits_n == 1 && limit_fits_word(plan->limits) && !needs_record)
        return;
    complain(resolver->complaints, ast->subjects.max.mark,
             "`max` is %s: with these limits each subject takes %s of its own, and there is "
             "room for %u: lower `max`, or bound `memory`",
             units_format_about(UNITS_AMOUNT, plan->keyed.max_keys, texts[0]),
             units_format_about(UNITS_SIZE, UINT64_C(1) << block_class, texts[1]), room);
}

/* Gives `shadow` and `enforce` of the set to the limits that have neither. */
static void resolve_set_shadow(struct resolver *resolver, const struct ast_set *ast)
{
    uint8_t ignored;
    if (!resolve_shadow(resolver, &ast->shadow, &ast->enforce, &ignored))
        return;
    for (size_t i = 0; i < ast->limits_n; i++) {
        struct ast_limit *limit = &ast->limits[i];
        if (value_is_given(&limit->shadow) || value_is_given(&limit->enforce))
            continue;
        limit->shadow = ast->shadow;
        limit->enforce = ast->enforce;
    }
}

static void resolve_set_limits(struct resolver *resolver, const struct ast_set *ast,
                               struct set_plan *plan)
{
    size_t n = ast->limits_n;
    resolve_set_shadow(resolver, ast);
    if (n > WEIR_LIMITS_MAX) {
        complain(resolver->complaints, ast->limits[WEIR_LIMITS_MAX].name.mark,
                 "a set has at most %d limits, not %zu", WEIR_LIMITS_MAX, n);
        n = WEIR_LIMITS_MAX;
    }
    plan->limits = resolve_alloc(resolver, n, sizeof(*plan->limits));
    for (size_t i = 0; i < n && plan->limits; i++) {
        resolver->complaints->location.limit_number = (uint32_t)i + 1;
        plan->limits_n = (uint32_t)i + 1;
        resolve_limit(resolver, &ast->limits[i], &plan->limits[i]);
        if (plan->backend == BACKEND_REMOTE)
            resolve_engine_limit(resolver, &ast->limits[i], plan, (uint32_t)i);
        resolve_set_check_keys(resolver, ast, plan->limits, i);
        resolve_set_check_lease(resolver, ast, plan, &ast->limits[i]);
        resolve_set_place_limit(resolver, &ast->limits[i], plan, &plan->limits[i]);
    }
}

void resolve_set(struct resolver *resolver, const struct ast_set *ast, struct set_plan *plan)
{
    resolver->complaints->location = (struct spec_location){.set = ast->name.text};
    plan->name = resolve_strdup(resolver, ast->name.text);
    resolve_set_fields(resolver, ast, plan);
    resolve_set_config(resolver, &ast->config, plan);
    resolve_set_limits(resolver, ast, plan);
    resolve_classes(resolver, ast, plan);
    resolve_set_check_room(resolver, ast, plan);
    resolver->complaints->location = (struct spec_location){0};
}
