/* SPDX-License-Identifier: MIT */
/* Resolves limits: type, key, algorithm and its configuration. */
#include "config/resolve.h"
#include "config/value.h"
#include <stdio.h>
#include <string.h>

static const char *const limit_fields[] = {"type",    "key",      "algorithm",       "shadow",
                                           "enforce", "max_hold", "max_hold_action", "refund",
                                           "overuse", "lease"};
enum {
    LIMIT_FIELD_TYPE,
    LIMIT_FIELD_KEY,
    LIMIT_FIELD_ALGORITHM,
    LIMIT_FIELD_SHADOW,
    LIMIT_FIELD_ENFORCE,
    LIMIT_FIELD_MAX_HOLD,
    LIMIT_FIELD_MAX_HOLD_ACTION
};

/* Returns whether a field is missing, and no hint for a misspelled one has named it. */
static bool resolve_field_is_missing(const struct resolver *resolver, const struct plugin *plugin,
                                     const struct config_value *value, size_t field)
{
    size_t parameters_n = plugin ? plugin->info.parameters_n : 0;
    return !value_is_given(value) && !resolver->params.hinted[parameters_n + field];
}

static void resolve_limit_type(struct resolver *resolver, const struct ast_limit *ast,
                               const struct plugin *plugin, struct limit *limit)
{
    const char *served[ARRAY_LENGTH(limit_type_names)];
    size_t served_n = 0;
    uint64_t type;
    if (resolve_field_is_missing(resolver, plugin, &ast->type, LIMIT_FIELD_TYPE))
        complain(resolver->complaints, ast->name.mark,
                 "a limit needs `type`: rate, call or resource");
    if (!value_read_choice(resolver->complaints, "type", &ast->type,
                           limit_type_names + WEIR_LIMIT_RATE, WEIR_LIMIT_RESOURCE, &type))
        return;
    limit->type = WEIR_LIMIT_RATE + (unsigned)type;
    if (!plugin || (plugin->algorithm.types & (1u << limit->type)) != 0)
        return;
    for (unsigned i = WEIR_LIMIT_RATE; i <= WEIR_LIMIT_RESOURCE; i++) {
        if ((plugin->algorithm.types & (1u << i)) != 0)
            served[served_n++] = limit_type_names[i];
    }
    complain(resolver->complaints, ast->algorithm.mark,
             "%s does not serve limits of type %s, only %s", plugin->info.name,
             limit_type_names[limit->type], text_join(served, served_n, ", ", ", ").text);
}

static void resolve_limit_key(struct resolver *resolver, const struct ast_limit *ast,
                              const struct plugin *plugin, struct limit *limit)
{
    const char *key = ast->key.text;
    if (key && !value_check_name(resolver->complaints, "`key`", &ast->key))
        return;
    if (limit->type == WEIR_LIMIT_CALL && !value_is_given(&ast->key))
        key = "call_count";
    else if (limit->type != 0 && limit->type != WEIR_LIMIT_CALL &&
             resolve_field_is_missing(resolver, plugin, &ast->key, LIMIT_FIELD_KEY))
        complain(resolver->complaints, ast->name.mark, "a %s needs `key`: its name in requests",
                 limit_type_names[limit->type]);
    if (key)
        limit->key = resolve_strdup(resolver, key);
}

/* Complains of a refund that the algorithm cannot do. */
static void resolve_limit_check_refund(struct resolver *resolver, const struct ast_limit *ast,
                                       const struct limit *limit)
{
    const struct weir_algorithm *algorithm = limit->algorithm;
    if (!algorithm || limit->refund == REFUND_NO)
        return;
    if (!algorithm->refund)
        complain(resolver->complaints, ast->refund.mark, "%s cannot refund: leave `refund` out",
                 ast->algorithm.text);
    else if (limit->refund == REFUND_STRICT && !algorithm->refund_strict)
        complain(resolver->complaints, ast->refund.mark,
                 "%s cannot refund strictly: `refund` can only be true or false",
                 ast->algorithm.text);
}

static void resolve_limit_refund(struct resolver *resolver, const struct ast_limit *ast,
                                 struct limit *limit)
{
    static const char *const words[] = {
        [REFUND_NO] = "false", [REFUND_YES] = "true", [REFUND_STRICT] = "strict"};
    const struct weir_algorithm *algorithm = limit->algorithm;
    uint64_t word = REFUND_NO;
    if (limit->type == WEIR_LIMIT_RESOURCE) {
        if (value_is_given(&ast->refund))
            complain(resolver->complaints, ast->refund.mark,
                     "`refund` is for rates and calls: a resource always returns everything");
        return;
    }
    if (algorithm && (algorithm->flags & WEIR_ALGORITHM_REFUNDS) != 0)
        word = REFUND_YES;
    value_read_choice(resolver->complaints, "refund", &ast->refund, words, ARRAY_LENGTH(words),
                      &word);
    limit->refund = (uint8_t)word;
    resolve_limit_check_refund(resolver, ast, limit);
}

static void resolve_limit_overuse(struct resolver *resolver, const struct ast_limit *ast,
                                  struct limit *limit)
{
    static const char *const words[] = {"ignore", "charge"};
    uint64_t word = 0;
    if (!value_is_given(&ast->overuse))
        return;
    if (limit->type == WEIR_LIMIT_CALL || limit->type == WEIR_LIMIT_RESOURCE) {
        complain(resolver->complaints, ast->overuse.mark,
                 "`overuse` is for rates: nothing else can be used beyond what was granted");
        return;
    }
    value_read_choice(resolver->complaints, "overuse", &ast->overuse, words, ARRAY_LENGTH(words),
                      &word);
    limit->charges = word == 1;
    if (limit->charges && limit->algorithm && !limit->algorithm->charge)
        complain(resolver->complaints, ast->overuse.mark,
                 "%s cannot charge what was used beyond the amount: `overuse` can only be ignore",
                 ast->algorithm.text);
}

/* Ratios are read in billionths. */
#define RATIO_ONE     UINT64_C(1000000000)
#define RATIO_PERCENT (RATIO_ONE / 100)

bool resolve_shadow(struct resolver *resolver, const struct config_value *shadow,
                    const struct config_value *enforce, uint8_t *ret)
{
    uint64_t enforced = RATIO_ONE;
    bool is_shadow = false;
    if (value_is_given(shadow) && value_is_given(enforce)) {
        complain(resolver->complaints, enforce->mark,
                 "`enforce` is given besides `shadow`: `shadow: true` is `enforce: 0%%`");
        return false;
    }
    if (value_is_given(shadow) &&
        !value_read_boolean(resolver->complaints, "shadow", shadow, &is_shadow))
        return false;
    if (value_is_given(enforce) && !value_read_number(resolver->complaints, "enforce", enforce,
                                                      UNITS_RATIO, 0, RATIO_ONE, &enforced))
        return false;
    if (enforced % RATIO_PERCENT != 0) {
        complain(resolver->complaints, enforce->mark, "`enforce` takes whole percent, not `%s`",
                 error_text(enforce->text).text);
        return false;
    }
    *ret = (uint8_t)(is_shadow ? 100 : 100 - enforced / RATIO_PERCENT);
    return true;
}

/* Resolves `lease`. Units that are taken ahead of use need inline state and an algorithm that can
 * refund. */
static void resolve_limit_lease(struct resolver *resolver, const struct ast_limit *ast,
                                struct limit *limit)
{
    const struct config_value *lease = &ast->lease;
    const struct weir_algorithm *algorithm = limit->algorithm;
    if (!value_is_given(lease))
        return;
    if (limit->type == WEIR_LIMIT_RESOURCE)
        complain(resolver->complaints, lease->mark,
                 "`lease` is for rates and calls: a resource is held, not used up");
    else if (!algorithm || !lease->text)
        return;
    else if (limit->shadow != 0)
        complain(resolver->complaints, lease->mark,
                 "`lease` cannot be used with `shadow` or `enforce`: leave it out until the limit "
                 "is enforced");
    else if ((algorithm->flags & WEIR_ALGORITHM_WORD) == 0 || !algorithm->refund)
        complain(resolver->complaints, lease->mark,
                 "%s cannot lease: `lease` needs one word of state and a refund, as gcra has",
                 ast->algorithm.text);
    else if (limit->state_words > 1)
        complain(
            resolver->complaints, lease->mark,
            "`lease` needs one word of state, and %s needs %u with these parameters: let a unit "
            "take a whole number of nanoseconds, and all of the burst less than 36 years",
            ast->algorithm.text, (unsigned)limit->state_words);
    else
        value_read_number(resolver->complaints, "lease", lease, UNITS_AMOUNT, 1,
                          limit->capacity != 0 ? limit->capacity : UINT64_MAX, &limit->lease);
}

/* Resolves `max_hold` and `max_hold_action`. */
static void resolve_limit_max_hold(struct resolver *resolver, const struct ast_limit *ast,
                                   struct limit *limit)
{
    static const char *const words[] = {"warn", "revoke"};
    const struct config_value *given = &ast->max_hold;
    uint64_t word = 0;
    if (!value_is_given(given) && value_is_given(&ast->max_hold_action)) {
        complain(resolver->complaints, ast->max_hold_action.mark,
                 "`max_hold_action` needs `max_hold`: how long units may be held");
        return;
    }
    if (!value_is_given(given))
        return;
    if (limit->type == WEIR_LIMIT_RATE || limit->type == WEIR_LIMIT_CALL)
        complain(resolver->complaints, given->mark,
                 "`max_hold` is for resources: a rate or call is used up, not held");
    else
        value_read_number(resolver->complaints, "max_hold", given, UNITS_DURATION,
                          LIMIT_MAX_HOLD_MIN_NS, LIMIT_MAX_HOLD_MAX_NS, &limit->max_hold_ns);
    value_read_choice(resolver->complaints, "max_hold_action", &ast->max_hold_action, words,
                      ARRAY_LENGTH(words), &word);
    limit->revokes = word == 1;
}

/* A resource without an algorithm just counts: a pseudo plugin declares its parameter. */
static struct weir_parameter counted_capacity = {.name = "capacity",
                                                 .type = WEIR_PARAMETER_AMOUNT,
                                                 .flags = WEIR_PARAMETER_REQUIRED |
                                                          WEIR_PARAMETER_DIVISIBLE,
                                                 .min = 1,
                                                 .max = UINT64_MAX,
                                                 .doc = "how many units may be held at once"};
static const struct plugin counted_resource = {.info.kind = WEIR_PLUGIN_ALGORITHM,
                                               .info.name = "a counted resource",
                                               .info.parameters_n = 1,
                                               .parameters = &counted_capacity,
                                               .algorithm.types = 1u << WEIR_LIMIT_RESOURCE};

/* Reads the parameters and makes the configuration. */
static void resolve_limit_configure(struct resolver *resolver, const struct params_owner *owner,
                                    struct limit *limit)
{
    struct weir_footprint footprint;
    const struct weir_setup about = {.limit_type = limit->type};
    if (!owner->plugin ||
        !resolve_params_configure(resolver, owner, &about, &limit->config, &footprint))
        return;
    bool is_counted = !limit->algorithm;
    limit->config_size = (size_t)footprint.config;
    limit->capacity = is_counted ? resolver->params.values[0].value : footprint.amount_max;
    limit->is_stateless = !is_counted && footprint.state == 0;
    limit->state_words = is_counted || limit->is_stateless ? 1 : (uint32_t)(footprint.state / 8);
    limit->ignores_wall = (footprint.flags & WEIR_FOOTPRINT_NO_WALL) != 0;
}

static bool resolve_limit_is_counted(const struct ast_limit *ast)
{
    return ast->type.text && strcmp(ast->type.text, "resource") == 0 &&
           !value_is_given(&ast->algorithm);
}

/* Writes names and values of all settings, each with its NUL, or only measures them if `to` is
 * NULL. Returns their size. */
static size_t resolve_write_settings(const struct ast_limit *ast, char *to, size_t room,
                                     uint32_t *ret_n)
{
    const struct settings *settings = &ast->settings;
    const struct config_value *fields[] = {
        &ast->refund, &ast->overuse, &ast->lease,    &ast->lease_ahead.span,
        &ast->shadow, &ast->enforce, &ast->max_hold, &ast->max_hold_action};
    static const char *const names[] = {"refund", "overuse", "lease",    "lease.for",
                                        "shadow", "enforce", "max_hold", "max_hold_action"};
    size_t size = 0;
    *ret_n = 0;
    for (size_t i = 0; i < settings->n + ARRAY_LENGTH(fields); i++) {
        bool more = i >= settings->n;
        const char *name = more ? names[i - settings->n] : settings->items[i].name.text;
        const char *value = more                      ? fields[i - settings->n]->text
                            : settings->items[i].list ? settings->items[i].list
                                                      : settings->items[i].value.text;
        if (!name || !value)
            continue;
        size += (size_t)snprintf(to ? to + size : NULL, to ? room - size : 0, "%s%c%s", name, '\0',
                                 value) +
                1;
        ++*ret_n;
    }
    return size;
}

/* Stores the source text of the settings, for inspection of the set. */
static void resolve_limit_source_text(struct resolver *resolver, const struct ast_limit *ast,
                                      struct limit *limit)
{
    size_t size = resolve_write_settings(ast, NULL, 0, &limit->settings_n);
    limit->settings_text = resolve_alloc(resolver, size, 1);
    if (limit->settings_text)
        resolve_write_settings(ast, limit->settings_text, size, &limit->settings_n);
}

void resolve_limit(struct resolver *resolver, const struct ast_limit *ast, struct limit *limit)
{
    struct params_owner owner = {.mark = ast->name.mark,
                                 .settings = &ast->settings,
                                 .fields = limit_fields,
                                 .fields_n = ARRAY_LENGTH(limit_fields)};
    const struct plugin *plugin = NULL;
    if (ast->algorithm.text)
        plugin = resolve_plugin(resolver, WEIR_PLUGIN_ALGORITHM, ast->algorithm.text,
                                ast->algorithm.mark);
    if (plugin) {
        limit->algorithm = &plugin->algorithm;
        limit->algorithm_name = plugin->info.name;
        limit->algorithm_version = plugin->info.version;
        limit->algorithm_state_id = plugin->info.state_id;
    } else if (resolve_limit_is_counted(ast)) {
        plugin = &counted_resource;
        owner.fields_n = LIMIT_FIELD_MAX_HOLD_ACTION + 1; /* the others are not for resources */
    }
    owner.plugin = plugin;
    resolve_params_assign(resolver, &owner);
    resolve_limit_type(resolver, ast, plugin, limit);
    if (limit->type != 0 && !plugin &&
        resolve_field_is_missing(resolver, plugin, &ast->algorithm, LIMIT_FIELD_ALGORITHM))
        complain(resolver->complaints, ast->name.mark,
                 "a %s needs `algorithm`: token_bucket, for example",
                 limit_type_names[limit->type]);
    resolve_limit_refund(resolver, ast, limit);
    resolve_limit_overuse(resolver, ast, limit);
    resolve_limit_key(resolver, ast, plugin, limit);
    resolve_limit_source_text(resolver, ast, limit);
    resolve_limit_configure(resolver, &owner, limit);
    resolve_shadow(resolver, &ast->shadow, &ast->enforce, &limit->shadow);
    resolve_limit_lease(resolver, ast, limit);
    resolve_limit_max_hold(resolver, ast, limit);
}
