/* SPDX-License-Identifier: MIT */
/* Parameters of plugins: settings become values of the types that the plugin declares, and the
 * plugin makes its configuration of them. The plugin's answers are checked, too. */
#include "base/invariant.h"
#include "config/resolve.h"
#include "config/value.h"
#include <errno.h>
#include <string.h>

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
        if (setting->refusal)
            complain(resolver->complaints, setting->value.mark, "`%s` %s",
                     error_text(setting->name.text).text, setting->refusal);
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

/* Reads the value of one parameter. Returns false if a complaint was added, now or earlier. */
static bool params_read_one(struct complaints *complaints, const struct weir_parameter *parameter,
                            const struct config_value *value, struct weir_value *ret)
{
    bool truth = false;
    size_t n = 0;
    switch (parameter->type) {
    case WEIR_PARAMETER_AMOUNT:
    case WEIR_PARAMETER_DURATION:
        return value_read_number(complaints, parameter->name, value,
                                 parameter->type == WEIR_PARAMETER_AMOUNT ? UNITS_AMOUNT
                                                                          : UNITS_DURATION,
                                 parameter->min, parameter->max, &ret->value);
    case WEIR_PARAMETER_BOOLEAN:
        if (!value_read_boolean(complaints, parameter->name, value, &truth))
            return false;
        ret->value = truth;
        return true;
    case WEIR_PARAMETER_TEXT:
        return params_read_text(complaints, parameter, value, ret);
    default:
        while (parameter->choices[n])
            n++;
        return value_read_choice(complaints, parameter->name, value, parameter->choices, n,
                                 &ret->value);
    }
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
            if (!params_read_one(resolver->complaints, parameter, &setting->value, value))
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
