/* SPDX-License-Identifier: MIT */
/* Parameters of plugins: settings become values of the types that the plugin declares, and the
 * plugin makes its configuration of them. The plugin's answers are checked, too. */
#include "base/invariant.h"
#include "config/resolve.h"
#include "config/value.h"
#include "os/os.h"
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

/* Calls a plugin's `configure` once. */
static int params_call_plugin(const struct plugin *plugin, const struct weir_setup *setup,
                              void *config, struct weir_footprint *ret, struct weir_reason *reterr)
{
    *ret = (struct weir_footprint){.size = sizeof(*ret)};
    *reterr = (struct weir_reason){.size = sizeof(*reterr), .parameter = UINT32_MAX};
    int r = plugin->info.kind == WEIR_PLUGIN_ALGORITHM
                ? plugin->algorithm.configure(setup, config, ret, reterr)
                : plugin->balancer.configure(setup, config, ret, reterr);
    reterr->message[sizeof(reterr->message) - 1] = '\0';
    return r;
}

void resolve_params_set_up(struct weir_setup *ret, const struct plugin *plugin,
                           const struct weir_value *const *values)
{
    ret->size = sizeof(*ret);
    ret->abi_minor = WEIR_PLUGIN_ABI_MINOR;
    ret->values_n = plugin->info.parameters_n;
    ret->values = values;
}

/* Returns whether the plugin's claims about its own needs are possible. */
static bool params_check_footprint(const struct plugin *plugin,
                                   const struct weir_footprint *footprint)
{
    if (footprint->config > WEIR_CONFIG_MAX || footprint->state > WEIR_STATE_MAX)
        return false;
    return footprint->state % 8 == 0 &&
           (plugin->info.kind == WEIR_PLUGIN_BALANCER || footprint->amount_max >= 1);
}

/* Returns whether the two calls of `configure` said the same. */
static bool params_are_equal_footprints(const struct weir_footprint *a,
                                        const struct weir_footprint *b)
{
    return a->config == b->config && a->state == b->state && a->amount_max == b->amount_max &&
           a->flags == b->flags;
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

/* Complains about the plugin itself. Returns false. */
static bool params_complain_plugin(struct resolver *resolver, const struct params_owner *owner,
                                   const char *what)
{
    complaint_add(resolver->complaints, -ENOEXEC, owner->mark, "plugin `%s` %s (%s)",
                  owner->plugin->info.name, what, owner->plugin->path);
    return false;
}

static bool params_has_configure(const struct plugin *plugin)
{
    if (plugin->info.kind == WEIR_PLUGIN_BACKEND)
        return false;
    return plugin->info.kind == WEIR_PLUGIN_ALGORITHM ? plugin->algorithm.configure != NULL
                                                      : plugin->balancer.configure != NULL;
}

bool resolve_params_configure(struct resolver *resolver, const struct params_owner *owner,
                              const struct weir_setup *about, void **ret_config,
                              struct weir_footprint *ret)
{
    const struct plugin *plugin = owner->plugin;
    struct weir_setup setup = *about;
    struct weir_footprint again;
    struct weir_reason reason;
    *ret = (struct weir_footprint){0};
    if (!resolve_params_read(resolver, owner))
        return false;
    if (!params_has_configure(plugin))
        return true;
    resolve_params_set_up(&setup, plugin, resolver->params.addresses);
    if (params_call_plugin(plugin, &setup, NULL, ret, &reason) != 0)
        return params_complain_reason(resolver, owner, &reason);
    if ((ret->flags & WEIR_FLAGS_NEEDED) != 0)
        return params_complain_plugin(resolver, owner, "needs a newer weir");
    if (!params_check_footprint(plugin, ret))
        return params_complain_plugin(resolver, owner, "requests an impossible amount of memory");
    *ret_config = os_alloc_aligned(16, ret->config > 0 ? (size_t)ret->config : 16);
    if (!*ret_config) {
        resolver->complaints->memory_failed = true;
        return false;
    }
    if (params_call_plugin(plugin, &setup, *ret_config, &again, &reason) != 0 ||
        !params_are_equal_footprints(&again, ret))
        return params_complain_plugin(resolver, owner, "contradicts itself when configured");
    return true;
}
