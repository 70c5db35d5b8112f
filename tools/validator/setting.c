/* SPDX-License-Identifier: MIT */
#include "setting.h"

#include "base/units.h"
#include <stdio.h>
#include <string.h>
#include <weir/algorithm.h>

/* Values that are often written, so that several of them fit together. */
static uint64_t settings_usual(struct trial *trial, uint32_t type)
{
    static const uint64_t amounts[] = {1, 2, 3, 5, 10, 60, 100, 1000, 90000};
    static const uint64_t spans[] = {1,          1000,        1000000,       250000000,
                                     1000000000, 60000000000, 3600000000000, 86400000000000};

    if (type == WEIR_PARAMETER_DURATION)
        return spans[trial_below(trial, sizeof(spans) / sizeof(spans[0]))];
    return amounts[trial_below(trial, sizeof(amounts) / sizeof(amounts[0]))];
}

static uint64_t settings_number(struct trial *trial, const struct weir_parameter *parameter)
{
    uint64_t min = parameter->min, max = parameter->max, value;

    switch (trial_below(trial, 8)) {
    case 0:
        return min;
    case 1:
        return max;
    case 2:
        return max - min > 20 ? min + trial_below(trial, 20) : min;
    case 3:
        value = min + trial_magnitude(trial, max - min ? max - min : 1);
        break;
    default:
        value = settings_usual(trial, parameter->type);
    }
    return value < min ? min : value > max ? max : value;
}

static uint64_t settings_value(struct trial *trial, const struct weir_parameter *parameter)
{
    uint64_t n = 0;

    switch (parameter->type) {
    case WEIR_PARAMETER_BOOLEAN:
        return trial_below(trial, 2);
    case WEIR_PARAMETER_CHOICE:
        while (parameter->choices[n])
            n++;
        return trial_below(trial, n);
    default:
        return settings_number(trial, parameter);
    }
}

static bool settings_are_known(uint32_t type)
{
    return type == WEIR_PARAMETER_AMOUNT || type == WEIR_PARAMETER_DURATION ||
           type == WEIR_PARAMETER_BOOLEAN || type == WEIR_PARAMETER_CHOICE;
}

void settings_choose(struct trial *trial, struct settings *ret)
{
    const struct weir_plugin *plugin = trial->plugin;
    uint64_t left_out = trial_below(trial, 4); /* so many of four are left out, if they may be */

    memset(ret, 0, sizeof(*ret));
    for (uint32_t i = 0; i < plugin->parameters_n; i++) {
        const struct weir_parameter *parameter = &plugin->parameters[i];
        bool is_given = parameter->flags & WEIR_PARAMETER_REQUIRED ||
                        (settings_are_known(parameter->type) && trial_below(trial, 4) >= left_out);

        ret->values[i] =
            (struct weir_value){.size = sizeof(ret->values[i]), .value = parameter->default_value};
        if (is_given && settings_are_known(parameter->type)) {
            ret->values[i].given = 1;
            ret->values[i].value = settings_value(trial, parameter);
        }
        ret->addresses[i] = &ret->values[i];
    }
    ret->setup = (struct weir_setup){.size = sizeof(ret->setup),
                                     .abi_minor = WEIR_PLUGIN_ABI_MINOR,
                                     .values_n = plugin->parameters_n,
                                     .values = ret->addresses};
}

/* Writes one value as in a configuration. */
static const char *settings_text(const struct weir_parameter *parameter, uint64_t value,
                                 char buffer[UNITS_TEXT_MAX])
{
    switch (parameter->type) {
    case WEIR_PARAMETER_DURATION:
        return units_format(UNITS_DURATION, value, buffer);
    case WEIR_PARAMETER_BOOLEAN:
        return value ? "true" : "false";
    case WEIR_PARAMETER_CHOICE:
        return parameter->choices[value];
    default:
        return units_format(UNITS_AMOUNT, value, buffer);
    }
}

void settings_describe(const struct trial *trial, const struct settings *settings,
                       const char *prefix)
{
    char *text = trial->report->subject, buffer[UNITS_TEXT_MAX];
    size_t room = sizeof(trial->report->subject), used;

    snprintf(text, room, "%s", prefix);
    for (uint32_t i = 0; i < trial->plugin->parameters_n; i++) {
        const struct weir_parameter *parameter = &trial->plugin->parameters[i];

        used = strlen(text);
        if (settings->values[i].given && used < room)
            snprintf(text + used, room - used, ", %s: %s", parameter->name,
                     settings_text(parameter, settings->values[i].value, buffer));
    }
}
