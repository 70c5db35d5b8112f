/* SPDX-License-Identifier: MIT */
/* Parameters of plugins: settings to values to a configuration. The plugin's answers are checked
 * too. */
#include "config/plugin_params.h"
#include "base/invariant.h"
#include "config/value.h"
#include "os/os.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Makes room for `n` parameters and other fields, and clears them. */
static int plugin_params_reserve(struct plugin_params *params, size_t n)
{
    if (n > params->capacity) {
        os_free(params->values);
        os_free(params->settings);
        os_free(params->hinted);
        params->capacity = 0;
        params->values = os_alloc(n, sizeof *params->values);
        params->settings = os_alloc(n, sizeof *params->settings);
        params->hinted = os_alloc(n, sizeof *params->hinted);
        if (params->values == NULL || params->settings == NULL || params->hinted == NULL)
            return -ENOMEM;
        params->capacity = n;
    }
    for (size_t i = 0; i < n; i++) {
        params->settings[i] = NULL;
        params->hinted[i] = false;
    }
    return 0;
}

/*
 * Complains about a field that neither the owner nor its plugin has. If there is a hint, it marks
 * the named field as hinted, so that no other complaint says that it is missing. If the plugin is
 * unknown, only a field that resembles one of the owner's is certainly wrong.
 */
static void params_complain_unknown(struct plugin_params *params, const struct params_owner *owner,
                                    const struct plugin *plugin, const struct setting *setting)
{
    const char *candidates[CONFIG_SETTINGS_MAX + 8] = {NULL};
    size_t parameters_n = plugin != NULL ? plugin->parameters_n : 0, n = 0;
    char list[256] = "";
    size_t length = 0;
    if (parameters_n > CONFIG_SETTINGS_MAX)
        parameters_n = CONFIG_SETTINGS_MAX;
    for (size_t i = 0; i < parameters_n + owner->fields_n; i++) {
        const char *name =
            i < parameters_n ? plugin->parameters[i].name : owner->fields[i - parameters_n];
        candidates[n++] = name;
        if (length < sizeof list)
            length += (size_t)snprintf(list + length, sizeof list - length, "%s%s",
                                       i == 0 ? "" : ", ", name);
    }
    const char *closest = hint_find(setting->name.text, candidates, n);
    for (size_t i = 0; closest != NULL && i < n; i++) {
        if (candidates[i] == closest)
            params->hinted[i] = true;
    }
    if (closest != NULL)
        complaint_add(params->complaints, -EINVAL, setting->name.mark, "unknown field `%s`%s",
                      error_text(setting->name.text).text, hint_format(closest).text);
    else if (owner->name != NULL)
        complaint_add(params->complaints, -EINVAL, setting->name.mark,
                      "`%s` is not a field of %s; there are: %s",
                      error_text(setting->name.text).text, owner->name, list);
}

int plugin_params_assign(struct plugin_params *params, const struct params_owner *owner,
                         const struct plugin *plugin)
{
    size_t parameters_n = plugin != NULL ? plugin->parameters_n : 0;
    int rc = plugin_params_reserve(params, parameters_n + owner->fields_n);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < owner->settings->n; i++) {
        const struct setting *setting = &owner->settings->items[i];
        size_t at = 0;
        while (at < parameters_n && strcmp(plugin->parameters[at].name, setting->name.text) != 0)
            at++;
        if (at < parameters_n && params->settings[at] != NULL)
            complaint_add(params->complaints, -EINVAL, setting->name.mark, "`%s` is given twice",
                          error_text(setting->name.text).text);
        else if (at < parameters_n)
            params->settings[at] = setting;
        else
            params_complain_unknown(params, owner, plugin, setting);
    }
    return 0;
}

/* Reads the value of one parameter. Returns false if a complaint was added, now or earlier. */
static bool plugin_params_read_one(struct plugin_params *params,
                                   const struct weir_parameter *parameter,
                                   const struct setting *setting, uint64_t *ret)
{
    const struct config_value *value = &setting->value;
    bool truth = false;
    int word;
    size_t n = 0;
    if (value->text == NULL)
        return false;
    switch (parameter->type) {
    case WEIR_PARAMETER_AMOUNT:
    case WEIR_PARAMETER_DURATION:
        return value_read_number(params->complaints, parameter->name, value,
                                 parameter->type == WEIR_PARAMETER_DURATION, parameter->min,
                                 parameter->max, ret);
    case WEIR_PARAMETER_BOOLEAN:
        if (!value_read_boolean(params->complaints, parameter->name, value, &truth))
            return false;
        *ret = truth;
        return true;
    default:
        while (parameter->choices[n] != NULL)
            n++;
        word = value_read_choice(params->complaints, parameter->name, value, parameter->choices, n);
        *ret = (uint64_t)word;
        return word >= 0;
    }
}

void plugin_params_read(struct plugin_params *params, const struct params_owner *owner,
                        const struct plugin *plugin, bool *ret_ok)
{
    WEIR_INVARIANT(plugin->parameters_n <= params->capacity);
    *ret_ok = true;
    for (uint32_t i = 0; i < plugin->parameters_n; i++) {
        const struct weir_parameter *parameter = &plugin->parameters[i];
        const struct setting *setting = params->settings[i];
        struct weir_value *value = &params->values[i];
        *value = (struct weir_value){.value = parameter->default_value, .given = setting != NULL};
        if (setting != NULL) {
            if (!plugin_params_read_one(params, parameter, setting, &value->value))
                *ret_ok = false;
        } else if ((parameter->flags & WEIR_PARAMETER_REQUIRED) != 0) {
            *ret_ok = false;
            const char *doc = parameter->doc != NULL ? parameter->doc : "";
            if (!params->hinted[i])
                complaint_add(params->complaints, -EINVAL, owner->mark, "%s needs `%s`%s%s",
                              owner->name, parameter->name, doc[0] != '\0' ? ": " : "", doc);
        }
    }
}

/* Calls a plugin's `configure` once, with the arguments for its kind. */
static int plugin_params_call_plugin(struct plugin_params *params, const struct plugin *plugin,
                                     uint32_t sets_n, void *config, struct weir_footprint *ret,
                                     struct weir_reason *reterr)
{
    *ret = (struct weir_footprint){.size = sizeof *ret};
    *reterr = (struct weir_reason){.parameter = UINT32_MAX};
    int rc = plugin->kind == WEIR_PLUGIN_ALGORITHM
                 ? plugin->algorithm.configure(params->values, config, ret, reterr)
                 : plugin->balancer.configure(params->values, sets_n, config, ret, reterr);
    reterr->message[sizeof reterr->message - 1] = '\0';
    return rc;
}

/* Returns whether the plugin's claims about its own needs are possible. */
static bool params_check_footprint(const struct plugin *plugin,
                                   const struct weir_footprint *footprint)
{
    if (footprint->config > WEIR_CONFIG_MAX || footprint->state > WEIR_STATE_MAX)
        return false;
    return footprint->state % 8 == 0 &&
           (plugin->kind == WEIR_PLUGIN_BALANCER || footprint->amount_max >= 1);
}

static void params_complain_reason(struct plugin_params *params, const struct params_owner *owner,
                                   const struct plugin *plugin, const struct weir_reason *reason)
{
    struct mark mark = owner->mark;
    if (reason->parameter < plugin->parameters_n && params->settings[reason->parameter] != NULL)
        mark = params->settings[reason->parameter]->value.mark;
    complaint_add(params->complaints, -EINVAL, mark, "%s: %s", owner->name, reason->message);
}

int plugin_params_configure(struct plugin_params *params, const struct params_owner *owner,
                            const struct plugin *plugin, uint32_t sets_n, void **ret_config,
                            struct weir_footprint *ret, bool *ret_ok)
{
    struct weir_footprint again;
    struct weir_reason reason;
    *ret_ok = false;
    if (plugin_params_call_plugin(params, plugin, sets_n, NULL, ret, &reason) != 0) {
        params_complain_reason(params, owner, plugin, &reason);
        return 0;
    }
    if (!params_check_footprint(plugin, ret)) {
        complaint_add(params->complaints, -ENOEXEC, owner->mark,
                      "plugin `%s` requests an impossible amount of memory (%s)", plugin->name,
                      plugin->path);
        return 0;
    }
    void *config = os_alloc_aligned(16, ret->config > 0 ? (size_t)ret->config : 16);
    if (config == NULL)
        return -ENOMEM;
    if (plugin_params_call_plugin(params, plugin, sets_n, config, &again, &reason) != 0 ||
        again.config != ret->config || again.state != ret->state ||
        again.amount_max != ret->amount_max) {
        os_free(config);
        complaint_add(params->complaints, -ENOEXEC, owner->mark,
                      "plugin `%s` contradicts itself when configured (%s)", plugin->name,
                      plugin->path);
        return 0;
    }
    *ret_config = config;
    *ret_ok = true;
    return 0;
}

void plugin_params_free(struct plugin_params *params)
{
    os_free(params->values);
    os_free(params->settings);
    os_free(params->hinted);
}
