/* SPDX-License-Identifier: MIT */
/* Parameters of plugins: settings become values of the types that the plugin declares, and the
 * plugin makes its configuration of them. The plugin's answers are checked, too. */
#include "base/invariant.h"
#include "config/resolve.h"
#include "config/value.h"
#include "os/os.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CONFIG_SECRET_MAX ((size_t)64 << 10) /* bytes of a secret's file */

static size_t params_count(const struct params_owner *owner)
{
    return owner->plugin ? owner->plugin->info.parameters_n : 0;
}

/*
 * Complains about a field that neither the owner nor its plugin has. If there is a hint, it marks
 * the named field as hinted, so that no other complaint says that it is missing. If the plugin is
 * unknown, only a field that resembles one of the owner's is certainly wrong. Returns whether it
 * complained.
 */
static bool params_complain_unknown(struct resolver *resolver, const struct params_owner *owner,
                                    const struct config_value *field)
{
    const char *names[PLUGIN_PARAMETERS_MAX + PARAMS_FIELDS_MAX] = {NULL};
    size_t n = params_count(owner);
    for (size_t i = 0; i < n; i++)
        names[i] = owner->plugin->parameters[i].name;
    for (size_t i = 0; i < owner->fields_n; i++)
        names[n++] = owner->fields[i];
    const char *closest = value_complain_similar(resolver->complaints, field, names, n);
    for (size_t i = 0; closest && i < n; i++) {
        if (names[i] == closest)
            resolver->params.hinted[i] = true;
    }
    bool is_number = strspn(field->text, "0123456789") == strlen(field->text);
    if (!closest && owner->plugin)
        complain(resolver->complaints, field->mark, "`%s` is not a field of %s%s; there are: %s",
                 error_text(field->text).text, owner->plugin->info.name,
                 is_number ? " (numbers have no commas)" : "",
                 text_join(names, n, ", ", ", ").text);
    return closest || owner->plugin;
}

void resolve_params_assign(struct resolver *resolver, const struct params_owner *owner)
{
    struct plugin_params *params = &resolver->params;
    size_t n = params_count(owner);
    WEIR_INVARIANT(n <= PLUGIN_PARAMETERS_MAX && owner->fields_n <= PARAMS_FIELDS_MAX);
    memset(params, 0, sizeof(*params));
    for (size_t i = 0; i < owner->settings->n; i++) {
        const struct setting *setting = &owner->settings->items[i];
        size_t at = 0;
        while (at < n && strcmp(owner->plugin->parameters[at].name, setting->name.text) != 0)
            at++;
        if (at == n && params_complain_unknown(resolver, owner, &setting->name))
            continue;
        bool is_list = at < n && (owner->plugin->parameters[at].flags & WEIR_PARAMETER_LIST);
        if (setting->refusal && !(is_list && setting->list))
            complain(resolver->complaints, setting->value.mark, "`%s` %s",
                     error_text(setting->name.text).text,
                     is_list ? "takes a list of single values, at most 64, without commas"
                             : setting->refusal);
        if (at < n && params->settings[at])
            complain(resolver->complaints, setting->name.mark, "`%s` is given twice",
                     error_text(setting->name.text).text);
        else if (at < n)
            params->settings[at] = setting;
    }
}

/* Reads a text, which lives as long as the AST. */
static bool params_read_text(struct complaints *complaints, const struct weir_parameter *parameter,
                             const struct config_value *value, struct weir_value *ret)
{
    size_t length = value->text ? strlen(value->text) : 0;
    if (!value->text)
        return false;
    if (length < parameter->min || length > parameter->max) {
        complain(complaints, value->mark, "`%s` has %zu bytes: %llu to %llu are possible",
                 parameter->name, length, (unsigned long long)parameter->min,
                 (unsigned long long)parameter->max);
        return false;
    }
    ret->text = value->text;
    ret->value = length;
    return true;
}

/* Reads the file of a zone into memory that is freed with the AST. Returns 0 or a negative errno.
 */
static int params_read_zone_file(struct resolver *resolver, const char *name,
                                 struct weir_value *ret)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-_/";
    const char *directory = os_getenv("TZDIR");
    char path[512], *bytes = NULL;
    void *kept;
    size_t size;
    int r =
        snprintf(path, sizeof(path), "%s/%s", directory ? directory : "/usr/share/zoneinfo", name);
    if (r < 0 || (size_t)r >= sizeof(path) || name[0] == '/' || name[strspn(name, allowed)] != '\0')
        return -EINVAL; /* it might lead elsewhere */
    r = os_file_read(path, (size_t)1 << 16, &bytes, &size);
    if (r < 0)
        return r;
    ret->zone = kept = resolve_scratch(resolver, size + 1, 1);
    ret->value = size;
    if (kept)
        memcpy(kept, bytes, size);
    os_free(bytes);
    return kept ? 0 : -ENOMEM;
}

/* Reads the name of a zone, and its file; UTC needs none. */
static bool params_read_zone(struct resolver *resolver, const struct weir_parameter *parameter,
                             const struct config_value *value, struct weir_value *ret)
{
    int r;
    if (!value->text)
        return false;
    if (strcmp(value->text, "UTC") == 0)
        return true;
    r = params_read_zone_file(resolver, value->text, ret);
    if (r == -ENOMEM)
        resolver->complaints->memory_failed = true;
    else if (r < 0)
        complain(resolver->complaints, value->mark,
                 "`%s` takes the name of a time zone, as UTC or Europe/Berlin, not `%s`: %s",
                 parameter->name, error_text(value->text).text,
                 r == -EINVAL ? "that is not a name of one" : strerrordesc_np(-r));
    return r == 0;
}

/* Reads the value of one parameter. Returns false if a complaint was added, now or earlier. */
static bool params_read_one(struct resolver *resolver, const struct weir_parameter *parameter,
                            const struct config_value *value, struct weir_value *ret)
{
    static const enum units_kind units[] = {[WEIR_PARAMETER_AMOUNT] = UNITS_AMOUNT,
                                            [WEIR_PARAMETER_DURATION] = UNITS_DURATION,
                                            [WEIR_PARAMETER_RATIO] = UNITS_RATIO,
                                            [WEIR_PARAMETER_SIZE] = UNITS_SIZE};
    struct complaints *complaints = resolver->complaints;
    bool truth = false;
    size_t n = 0;
    switch (parameter->type) {
    case WEIR_PARAMETER_AMOUNT:
    case WEIR_PARAMETER_DURATION:
    case WEIR_PARAMETER_RATIO:
    case WEIR_PARAMETER_SIZE:
        return value_read_number(complaints, parameter->name, value, units[parameter->type],
                                 parameter->min, parameter->max, &ret->value);
    case WEIR_PARAMETER_BOOLEAN:
        if (!value_read_boolean(complaints, parameter->name, value, &truth))
            return false;
        ret->value = truth;
        return true;
    case WEIR_PARAMETER_TEXT:
        return params_read_text(complaints, parameter, value, ret);
    case WEIR_PARAMETER_ZONE:
        return params_read_zone(resolver, parameter, value, ret);
    default:
        while (parameter->choices[n])
            n++;
        return value_read_choice(complaints, parameter->name, value, parameter->choices, n,
                                 &ret->value);
    }
}

/* Reads the values of a list, which live as long as the AST. Blanks around them do not count. */
static bool params_read_list(struct resolver *resolver, const struct weir_parameter *parameter,
                             const struct setting *setting, struct weir_value *ret)
{
    const char *text = setting->list ? setting->list : setting->value.text;
    struct weir_value *values = resolve_scratch(resolver, WEIR_LIST_MAX, sizeof(*values));
    const struct weir_value **items = resolve_scratch(resolver, WEIR_LIST_MAX, sizeof(*items));
    bool ok = true;
    ret->items = items;
    if (!text || !values || !items)
        return false;
    for (const char *at = text + strspn(text, " "); *at != '\0'; at += strspn(at, " ,")) {
        size_t length = strcspn(at, ","), end = length;
        if (ret->items_n == WEIR_LIST_MAX) {
            complain(resolver->complaints, setting->value.mark, "`%s` has more than %u values",
                     parameter->name, WEIR_LIST_MAX);
            return false;
        }
        while (end > 0 && at[end - 1] == ' ')
            end--;
        struct weir_value *value = &values[ret->items_n];
        struct config_value item = {config_ast_strdup(resolver->ast, at, end), setting->value.mark};
        *value = (struct weir_value){.size = sizeof(*value), .given = 1};
        items[ret->items_n++] = value;
        ok = params_read_one(resolver, parameter, &item, value) && ok;
        at += length;
    }
    return ok;
}

/* Reads the text of a secret from where the configuration says it is. Returns NULL, and why not. */
static char *params_fetch_secret(struct resolver *resolver, const char *place, const char **ret_why)
{
    char *bytes = NULL, *text = NULL;
    const char *from = place + strcspn(place, ":") + 1;
    size_t length = 0;
    int r;
    if (strncmp(place, "env:", 4) == 0) {
        const char *value = os_getenv(from);
        *ret_why = "is in an environment variable that is not set";
        return value ? config_ast_strdup(resolver->ast, value, strlen(value)) : NULL;
    }
    r = os_file_read(from, CONFIG_SECRET_MAX, &bytes, &length);
    *ret_why = r < 0 ? strerrordesc_np(-r) : "is in a file with a byte that no text has";
    if (r < 0)
        return NULL;
    if (length > 0 && bytes[length - 1] == '\n')
        length--;
    if (strnlen(bytes, length) == length)
        text = config_ast_strdup(resolver->ast, bytes, length);
    explicit_bzero(bytes, length);
    os_free(bytes);
    return text;
}

/* Reads a secret. What is written in its place may be the secret itself: then the complaint has no
 * place in the text that could be shown, and does not say what is there. */
static bool params_read_secret(struct resolver *resolver, const struct weir_parameter *parameter,
                               const struct setting *setting, struct weir_value *ret)
{
    struct config_value value = setting->value;
    const char *why = NULL;
    if (!value.text)
        return false;
    if (strncmp(value.text, "env:", 4) != 0 && strncmp(value.text, "file:/", 6) != 0) {
        complain(resolver->complaints, ((struct mark){0, 0}),
                 "line %u: `%s` is a secret: write where it is, as `file:/run/secrets/x` or "
                 "`env:NAME`",
                 value.mark.line, parameter->name);
        return false;
    }
    value.text = params_fetch_secret(resolver, setting->value.text, &why);
    if (!value.text)
        complain(resolver->complaints, value.mark, "`%s`: `%s` %s", parameter->name,
                 error_text(setting->value.text).text, why);
    return params_read_text(resolver->complaints, parameter, &value, ret);
}

bool resolve_params_read_setting(struct resolver *resolver, const struct weir_parameter *parameter,
                                 const struct setting *setting, struct weir_value *ret)
{
    if (parameter->flags & WEIR_PARAMETER_LIST)
        return params_read_list(resolver, parameter, setting, ret);
    if (parameter->flags & WEIR_PARAMETER_SECRET)
        return params_read_secret(resolver, parameter, setting, ret);
    return params_read_one(resolver, parameter, &setting->value, ret);
}

bool resolve_params_read(struct resolver *resolver, const struct params_owner *owner)
{
    struct plugin_params *params = &resolver->params;
    bool ok = true;
    for (uint32_t i = 0; i < owner->plugin->info.parameters_n; i++) {
        const struct weir_parameter *parameter = &owner->plugin->parameters[i];
        const struct setting *setting = params->settings[i];
        struct weir_value *value = &params->values[i];
        *value = (struct weir_value){
            .size = sizeof(*value), .value = parameter->default_value, .given = setting != NULL};
        params->addresses[i] = value;
        if (setting) {
            if (!resolve_params_read_setting(resolver, parameter, setting, value))
                ok = false;
        } else if ((parameter->flags & WEIR_PARAMETER_REQUIRED) != 0) {
            ok = false;
            if (!params->hinted[i])
                complain(resolver->complaints, owner->mark, "%s needs `%s`%s%s",
                         owner->plugin->info.name, parameter->name,
                         parameter->doc[0] != '\0' ? ": " : "", parameter->doc);
        }
    }
    return ok;
}

/* Complains about the values with the reason that the plugin gives. Returns false. */
static bool params_complain_reason(struct resolver *resolver, const struct params_owner *owner,
                                   const struct weir_reason *reason)
{
    struct mark mark = owner->mark;
    if (reason->parameter < owner->plugin->info.parameters_n &&
        resolver->params.settings[reason->parameter])
        mark = resolver->params.settings[reason->parameter]->value.mark;
    complain(resolver->complaints, mark, "%s: %s", owner->plugin->info.name, reason->message);
    return false;
}

bool resolve_params_configure(struct resolver *resolver, const struct params_owner *owner,
                              const struct weir_setup *about, void **ret_config,
                              struct weir_footprint *ret)
{
    const struct plugin *plugin = owner->plugin;
    struct weir_setup setup = *about;
    struct weir_reason reason;
    *ret = (struct weir_footprint){0};
    if (!resolve_params_read(resolver, owner))
        return false;
    plugin_set_up(&setup, plugin, resolver->params.addresses);
    switch (plugin_configure(plugin, &setup, ret_config, ret, &reason)) {
    case 0:
        return true;
    case -ENOMEM:
        resolver->complaints->memory_failed = true;
        return false;
    case -ENOEXEC:
        complaint_add(resolver->complaints, -ENOEXEC, owner->mark, "plugin `%s` %s (%s)",
                      plugin->info.name, reason.message, plugin->path);
        return false;
    default:
        return params_complain_reason(resolver, owner, &reason);
    }
}
