/* SPDX-License-Identifier: MIT */
/* Resolves limits: type, key, algorithm and its configuration. */
#include "base/invariant.h"
#include "config/resolve.h"
#include "config/value.h"
#include "os/os.h"
#include <string.h>

static const char *const limit_fields[] = {"type",   "key",     "algorithm",
                                           "refund", "overuse", "lease"};
enum { LIMIT_FIELD_TYPE, LIMIT_FIELD_KEY, LIMIT_FIELD_ALGORITHM };

static const char *const limit_types[] = {"rate", "call", "resource"};

static const char *resolve_limit_type_name(enum weir_limit_type type)
{
    WEIR_INVARIANT(type >= WEIR_LIMIT_RATE && type <= WEIR_LIMIT_RESOURCE);
    return limit_types[type - WEIR_LIMIT_RATE];
}

/* Returns whether a field is missing, and no hint for a misspelled one has named it. */
static bool resolve_field_is_missing(const struct resolver *resolver, const struct plugin *plugin,
                                     const struct config_value *value, size_t field)
{
    size_t parameters_n = plugin != NULL ? plugin->parameters_n : 0;
    return !value_is_given(value) && !resolver->params.hinted[parameters_n + field];
}

static void resolve_limit_type(struct resolver *resolver, const struct ast_limit *ast,
                               const struct plugin *plugin, struct limit *limit)
{
    if (resolve_field_is_missing(resolver, plugin, &ast->type, LIMIT_FIELD_TYPE))
        resolve_complain(resolver, -EINVAL, ast->mark,
                         "a limit needs `type`: rate, call or resource");
    if (ast->type.text == NULL)
        return;
    int type = value_read_choice(resolver->complaints, "type", &ast->type, limit_types,
                                 ARRAY_LENGTH(limit_types));
    if (type < 0)
        return;
    limit->type = WEIR_LIMIT_RATE + (unsigned)type;
    if (plugin == NULL || (plugin->algorithm.types & (1u << limit->type)) != 0)
        return;
    char list[64] = "";
    for (unsigned i = 0; i < ARRAY_LENGTH(limit_types); i++) {
        if ((plugin->algorithm.types & (1u << (WEIR_LIMIT_RATE + i))) != 0)
            strcat(strcat(list, list[0] == '\0' ? "" : ", "), limit_types[i]);
    }
    resolve_complain(resolver, -EINVAL, ast->algorithm.mark,
                     "%s does not serve limits of type %s, only %s", plugin->name,
                     resolve_limit_type_name(limit->type), list);
}

static int resolve_limit_key(struct resolver *resolver, const struct ast_limit *ast,
                             const struct plugin *plugin, struct limit *limit)
{
    const char *key = ast->key.text;
    if (key == NULL && limit->type == WEIR_LIMIT_CALL && !value_is_given(&ast->key))
        key = "call_count";
    else if (limit->type != 0 && limit->type != WEIR_LIMIT_CALL &&
             resolve_field_is_missing(resolver, plugin, &ast->key, LIMIT_FIELD_KEY))
        resolve_complain(resolver, -EINVAL, ast->mark, "a %s needs `key`: its name in requests",
                         resolve_limit_type_name(limit->type));
    if (ast->key.text != NULL && !value_check_name(resolver->complaints, "`key`", &ast->key))
        return 0;
    if (key == NULL)
        return 0;
    char *copy;
    int rc = resolve_copy_text(key, &copy);
    if (rc == 0)
        limit->key = copy;
    return rc;
}

static void resolve_limit_refund(struct resolver *resolver, const struct ast_limit *ast,
                                 struct limit *limit)
{
    const struct weir_algorithm *algorithm = limit->algorithm;
    bool can = algorithm != NULL && algorithm->refund != NULL;
    if (limit->type == WEIR_LIMIT_RESOURCE) {
        if (value_is_given(&ast->refund))
            resolve_complain(
                resolver, -EINVAL, ast->refund.mark,
                "`refund` is for rates and calls: a resource always returns everything");
        return;
    }
    limit->refunds = can && (algorithm->flags & WEIR_ALGORITHM_REFUNDS) != 0;
    value_read_boolean(resolver->complaints, "refund", &ast->refund, &limit->refunds);
    if (limit->refunds && algorithm != NULL && !can)
        resolve_complain(resolver, -EINVAL, ast->refund.mark,
                         "%s cannot refund: leave `refund` out", ast->algorithm.text);
}

static void resolve_limit_overuse(struct resolver *resolver, const struct ast_limit *ast,
                                  struct limit *limit)
{
    static const char *const words[] = {"ignore", "charge"};
    if (!value_is_given(&ast->overuse))
        return;
    if (limit->type == WEIR_LIMIT_CALL || limit->type == WEIR_LIMIT_RESOURCE) {
        resolve_complain(
            resolver, -EINVAL, ast->overuse.mark,
            "`overuse` is for rates: nothing else can be used beyond what was granted");
        return;
    }
    if (ast->overuse.text == NULL)
        return;
    limit->charges = value_read_choice(resolver->complaints, "overuse", &ast->overuse, words,
                                       ARRAY_LENGTH(words)) == 1;
    if (limit->charges && limit->algorithm != NULL && limit->algorithm->charge == NULL)
        resolve_complain(
            resolver, -EINVAL, ast->overuse.mark,
            "%s cannot charge what was used beyond the amount: `overuse` can only be ignore",
            ast->algorithm.text);
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
        resolve_complain(resolver, -EINVAL, lease->mark,
                         "`lease` is for rates and calls: a resource is held, not used up");
    else if (algorithm == NULL || lease->text == NULL)
        return;
    else if ((algorithm->flags & WEIR_ALGORITHM_WORD) == 0 || algorithm->refund == NULL)
        resolve_complain(
            resolver, -EINVAL, lease->mark,
            "%s cannot lease: `lease` needs one word of state and a refund, as gcra has",
            ast->algorithm.text);
    else if (limit->state_words > 1)
        resolve_complain(
            resolver, -EINVAL, lease->mark,
            "`lease` needs one word of state, and %s needs %u with these parameters: let a unit "
            "take a whole number of nanoseconds, and all of the burst less than 36 years",
            ast->algorithm.text, (unsigned)limit->state_words);
    else
        value_read_number(resolver->complaints, "lease", lease, false, 1,
                          limit->capacity != 0 ? limit->capacity : UINT64_MAX, &limit->lease);
}

/* Reads the parameters and makes the configuration. `plugin` may be the pseudo plugin of a counted
 * resource. */
static int resolve_limit_configure(struct resolver *resolver, const struct params_owner *owner,
                                   const struct plugin *plugin, struct limit *limit)
{
    bool ok;
    struct weir_footprint footprint;
    plugin_params_read(&resolver->params, owner, plugin, &ok);
    if (!ok)
        return 0;
    if (limit->algorithm == NULL) {
        limit->capacity = resolver->params.values[0].value;
        limit->state_words = 1;
        return 0;
    }
    int rc = plugin_params_configure(&resolver->params, owner, plugin, 0, &limit->config,
                                     &footprint, &ok);
    if (rc == 0 && ok) {
        limit->config_size = (size_t)footprint.config;
        limit->capacity = footprint.amount_max;
        limit->state_words = (uint32_t)(footprint.state / 8);
    }
    return rc;
}

static bool resolve_limit_is_counted(const struct ast_limit *ast)
{
    return ast->type.text != NULL && strcmp(ast->type.text, "resource") == 0 &&
           !value_is_given(&ast->algorithm);
}

/* Appends one setting, or only measures it if `to` is NULL. Returns its size. */
static size_t resolve_write_setting(const char *name, const char *value, char *to)
{
    size_t name_size = strlen(name) + 1, value_size = strlen(value) + 1;
    if (to != NULL) {
        memcpy(to, name, name_size);
        memcpy(to + name_size, value, value_size);
    }
    return name_size + value_size;
}

static size_t resolve_write_settings(const struct ast_limit *ast, char *to, uint32_t *ret_n)
{
    const struct settings *settings = &ast->settings;
    const struct config_value *fields[] = {&ast->refund, &ast->overuse, &ast->lease};
    static const char *const names[] = {"refund", "overuse", "lease"};
    size_t size = 0;
    *ret_n = 0;
    for (size_t i = 0; i < settings->n + ARRAY_LENGTH(fields); i++) {
        bool more = i >= settings->n;
        const char *name = more ? names[i - settings->n] : settings->items[i].name.text;
        const char *value = more ? fields[i - settings->n]->text : settings->items[i].value.text;
        if (name == NULL || value == NULL)
            continue;
        size += resolve_write_setting(name, value, to != NULL ? to + size : NULL);
        ++*ret_n;
    }
    return size;
}

/* Stores the source text of the settings, for inspection of the set. */
static int resolve_limit_source_text(const struct ast_limit *ast, struct limit *limit)
{
    size_t size = resolve_write_settings(ast, NULL, &limit->settings_n);
    if (size == 0)
        return 0;
    limit->settings_text = os_alloc(size, 1);
    if (limit->settings_text == NULL)
        return -ENOMEM;
    resolve_write_settings(ast, limit->settings_text, &limit->settings_n);
    return 0;
}

int resolve_limit(struct resolver *resolver, const struct ast_limit *ast, struct limit *limit)
{
    /* A pseudo plugin declares the parameter of a resource without an algorithm, which
     * just counts. */
    struct weir_parameter capacity = {.name = "capacity",
                                      .type = WEIR_PARAMETER_AMOUNT,
                                      .flags = WEIR_PARAMETER_REQUIRED,
                                      .min = 1,
                                      .max = UINT64_MAX,
                                      .doc = "how many units may be held at once"};
    const struct plugin counted = {.kind = WEIR_PLUGIN_ALGORITHM,
                                   .parameters = &capacity,
                                   .parameters_n = 1,
                                   .algorithm.types = 1u << WEIR_LIMIT_RESOURCE};
    const struct plugin *plugin = resolve_limit_is_counted(ast) ? &counted : NULL;
    int rc = 0;
    if (ast->algorithm.text != NULL)
        rc = resolve_plugin(resolver, WEIR_PLUGIN_ALGORITHM, ast->algorithm.text,
                            ast->algorithm.mark, &plugin);
    const struct params_owner owner = {
        .mark = ast->mark,
        .settings = &ast->settings,
        .fields = limit_fields,
        .fields_n = ARRAY_LENGTH(limit_fields),
        .name = plugin == &counted ? "a counted resource"
                : plugin != NULL   ? plugin->name
                                   : NULL,
    };
    if (rc == 0)
        rc = plugin_params_assign(&resolver->params, &owner, plugin);
    if (rc < 0)
        return rc;
    if (plugin != NULL && plugin != &counted) {
        limit->algorithm = &plugin->algorithm;
        limit->algorithm_name = plugin->name;
        limit->algorithm_version = plugin->version;
    }
    resolve_limit_type(resolver, ast, plugin, limit);
    if (limit->type != 0 && plugin == NULL &&
        resolve_field_is_missing(resolver, plugin, &ast->algorithm, LIMIT_FIELD_ALGORITHM))
        resolve_complain(resolver, -EINVAL, ast->mark,
                         "a %s needs `algorithm`: token_bucket, for example",
                         resolve_limit_type_name(limit->type));
    resolve_limit_refund(resolver, ast, limit);
    resolve_limit_overuse(resolver, ast, limit);
    rc = resolve_limit_key(resolver, ast, plugin, limit);
    if (rc == 0)
        rc = resolve_limit_source_text(ast, limit);
    if (rc == 0 && plugin != NULL)
        rc = resolve_limit_configure(resolver, &owner, plugin, limit);
    if (rc == 0)
        resolve_limit_lease(resolver, ast, limit);
    return rc;
}
