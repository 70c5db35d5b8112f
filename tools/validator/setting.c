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

    if (type == WEIR_PARAMETER_RATIO)
        return WEIR_RATIO_ONE / 100 * (1 + trial_below(trial, 200));
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

/* ---- texts ---- */

/* Writes a text of a length in the range, as far as there is room. Returns its length, and where it
 * lies. */
static uint64_t settings_write_text(struct trial *trial, struct settings *settings,
                                    const struct weir_parameter *parameter, size_t *ret_at)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_-./: ";
    size_t room = SETTINGS_TEXTS_MAX - settings->texts_n;
    uint64_t span = parameter->max - parameter->min, length = parameter->min;

    length += trial_below(trial, span < 40 ? span + 1 : 40);
    if (trial_below(trial, 8) == 0 && parameter->max < room)
        length = parameter->max;
    if (length >= room) {
        settings->is_full = true;
        length = 0;
    }
    *ret_at = settings->texts_n;
    for (uint64_t i = 0; i < length; i++)
        settings->texts[settings->texts_n++] = letters[trial_below(trial, sizeof(letters) - 1)];
    settings->texts[settings->texts_n] = 0;
    settings->texts_n += settings->texts_n + 1 < SETTINGS_TEXTS_MAX;
    return length;
}

/* ---- zones ---- */

static const void *settings_zone; /* NULL: that of settings_write_zone() */
static size_t settings_zone_size;

void settings_use_zone(const void *bytes, size_t size)
{
    settings_zone = bytes;
    settings_zone_size = size;
}

/* A version-2 file without changes but for those of the rule at its end (RFC 8536). */
size_t settings_write_zone(unsigned char ret[256])
{
    static const char rule[] = "\nCET-1CEST,M3.5.0,M10.5.0/3\n";
    size_t size = 0;

    for (unsigned part = 0; part < 2; part++) {
        memset(ret + size, 0, 44 + 6 + 4);
        memcpy(ret + size, "TZif2", 5);
        ret[size + 39] = 1; /* one type of local time */
        ret[size + 43] = 4; /* and the letters of its name */
        ret[size + 44 + 2] = 0x0e;
        ret[size + 44 + 3] = 0x10; /* an hour */
        memcpy(ret + size + 50, "CET", 3);
        size += 44 + 6 + 4;
    }
    memcpy(ret + size, rule, sizeof(rule) - 1);
    return size + sizeof(rule) - 1;
}

static void settings_set_zone(struct trial *trial, struct weir_value *value)
{
    static unsigned char bytes[256];

    value->text = "Test/Zone";
    value->value = 0;
    value->zone = NULL;
    if (!settings_zone && trial_below(trial, 3) == 0)
        return; /* UTC */
    value->zone = settings_zone ? settings_zone : bytes;
    value->value = settings_zone ? settings_zone_size : settings_write_zone(bytes);
}

bool settings_have_zone(const struct weir_plugin *plugin)
{
    for (uint32_t i = 0; i < plugin->parameters_n; i++)
        if (plugin->parameters[i].type == WEIR_PARAMETER_ZONE)
            return true;
    return false;
}

/* ---- all of a plugin ---- */

/* Gives a value of the parameter's type: not a list. */
static void settings_give(struct trial *trial, struct settings *settings,
                          const struct weir_parameter *parameter, struct weir_value *value,
                          size_t *text_at)
{
    *value = (struct weir_value){.size = sizeof(*value), .given = 1};
    if (parameter->type == WEIR_PARAMETER_TEXT)
        value->value = settings_write_text(trial, settings, parameter, text_at);
    else if (parameter->type == WEIR_PARAMETER_ZONE)
        settings_set_zone(trial, value);
    else
        value->value = settings_value(trial, parameter);
}

/* Gives a list. Most are short, and lists of one plugin often have to be equally long. */
static void settings_give_list(struct trial *trial, struct settings *settings, uint32_t number,
                               uint32_t usual_n)
{
    const struct weir_parameter *parameter = &settings->plugin->parameters[number];
    struct settings_list *list = &settings->lists[number];
    uint32_t n = trial_below(trial, 8) ? usual_n : 1 + (uint32_t)trial_below(trial, WEIR_LIST_MAX);

    *list = (struct settings_list){.first = settings->items_n};
    while (list->n < n && settings->items_n < SETTINGS_ITEMS_MAX) {
        settings_give(trial, settings, parameter, &settings->items[settings->items_n],
                      &settings->item_text_at[settings->items_n]);
        settings->items_n++;
        list->n++;
    }
    settings->is_full |= !list->n;
    settings->values[number] =
        (struct weir_value){.size = sizeof(struct weir_value), .given = 1, .items_n = list->n};
}

bool settings_choose(struct trial *trial, struct settings *ret)
{
    const struct weir_plugin *plugin = trial->plugin;
    uint64_t left_out = trial_below(trial, 4); /* so many of four are left out, if they may be */
    uint32_t usual_n = 1 + (uint32_t)trial_below(trial, 5);

    memset(ret, 0, sizeof(*ret));
    ret->plugin = plugin;
    for (uint32_t i = 0; i < plugin->parameters_n; i++) {
        const struct weir_parameter *parameter = &plugin->parameters[i];

        ret->values[i] =
            (struct weir_value){.size = sizeof(ret->values[i]), .value = parameter->default_value};
        if (!(parameter->flags & WEIR_PARAMETER_REQUIRED) && trial_below(trial, 4) < left_out)
            continue;
        if (parameter->flags & WEIR_PARAMETER_LIST)
            settings_give_list(trial, ret, i, usual_n);
        else
            settings_give(trial, ret, parameter, &ret->values[i], &ret->text_at[i]);
    }
    ret->setup = (struct weir_setup){.size = sizeof(ret->setup),
                                     .abi_minor = WEIR_PLUGIN_ABI_MINOR,
                                     .values_n = plugin->parameters_n};
    settings_bind(ret);
    return !ret->is_full;
}

void settings_bind(struct settings *settings)
{
    for (uint32_t i = 0; i < settings->items_n; i++)
        settings->item_addresses[i] = &settings->items[i];
    for (uint32_t i = 0; i < settings->plugin->parameters_n; i++) {
        const struct weir_parameter *parameter = &settings->plugin->parameters[i];
        struct settings_list list = settings->lists[i];
        bool is_text = parameter->type == WEIR_PARAMETER_TEXT;

        settings->addresses[i] = &settings->values[i];
        if (is_text && settings->values[i].given && !list.n)
            settings->values[i].text = settings->texts + settings->text_at[i];
        for (uint32_t j = list.first; is_text && j < list.first + list.n; j++)
            settings->items[j].text = settings->texts + settings->item_text_at[j];
        settings->values[i].items = list.n ? &settings->item_addresses[list.first] : NULL;
    }
    settings->setup.values = settings->addresses;
}

void settings_choose_pool(struct trial *trial, struct settings *settings, uint32_t sets_n,
                          uint64_t weight_max, struct settings_pool *ret)
{
    ret->sets_n = sets_n;
    for (uint32_t i = 0; i < sets_n; i++) {
        ret->weights[i] = 1 + trial_below(trial, weight_max);
        snprintf(ret->set_names[i], sizeof(ret->set_names[i]), "set%u", i);
        for (uint32_t j = 0; j < settings->plugin->parameters_n; j++) {
            const struct weir_parameter *parameter = &settings->plugin->parameters[j];
            bool is_plain =
                parameter->type != WEIR_PARAMETER_TEXT && !(parameter->flags & WEIR_PARAMETER_LIST);
            size_t unused;

            ret->set_values[i][j].size = 0; /* as for the pool */
            if (parameter->flags & WEIR_PARAMETER_PER_SET && is_plain && trial_below(trial, 2))
                settings_give(trial, settings, parameter, &ret->set_values[i][j], &unused);
        }
    }
    settings_bind_pool(settings, ret);
}

void settings_bind_pool(struct settings *settings, struct settings_pool *pool)
{
    for (uint32_t i = 0; i < pool->sets_n; i++) {
        for (uint32_t j = 0; j < settings->plugin->parameters_n; j++)
            pool->set_addresses[i][j] =
                pool->set_values[i][j].size ? &pool->set_values[i][j] : &settings->values[j];
        pool->sets[i] = (struct weir_set_setup){.size = sizeof(pool->sets[i]),
                                                .name = pool->set_names[i],
                                                .weight = pool->weights[i],
                                                .values = pool->set_addresses[i]};
        pool->sets_addresses[i] = &pool->sets[i];
    }
    settings->setup.sets_n = pool->sets_n;
    settings->setup.sets = pool->sets_addresses;
}

/* ---- in words ---- */

/* Writes one value as in a configuration. */
static const char *settings_text(const struct weir_parameter *parameter,
                                 const struct weir_value *value, char buffer[UNITS_TEXT_MAX])
{
    switch (parameter->type) {
    case WEIR_PARAMETER_TEXT:
        return value->text;
    case WEIR_PARAMETER_ZONE:
        return value->zone ? value->text : "UTC";
    case WEIR_PARAMETER_DURATION:
        return units_format(UNITS_DURATION, value->value, buffer);
    case WEIR_PARAMETER_BOOLEAN:
        return value->value ? "true" : "false";
    case WEIR_PARAMETER_CHOICE:
        return parameter->choices[value->value];
    default:
        return units_format(UNITS_AMOUNT, value->value, buffer);
    }
}

/* Appends a text, as far as there is room. */
static void settings_say(char *text, size_t room, const char *before, const char *what)
{
    size_t used = strlen(text);

    snprintf(text + used, room - used, "%s%s", before, what);
}

void settings_describe(const struct trial *trial, const struct settings *settings,
                       const char *prefix)
{
    char *text = trial->report->subject, buffer[UNITS_TEXT_MAX];
    size_t room = sizeof(trial->report->subject);

    snprintf(text, room, "%s", prefix);
    for (uint32_t i = 0; i < trial->plugin->parameters_n; i++) {
        const struct weir_parameter *parameter = &trial->plugin->parameters[i];
        const struct weir_value *value = &settings->values[i];

        if (!value->given)
            continue;
        settings_say(text, room, ", ", parameter->name);
        if (!value->items_n)
            settings_say(text, room, ": ", settings_text(parameter, value, buffer));
        for (uint32_t j = 0; j < value->items_n; j++)
            settings_say(text, room, j ? ", " : ": [",
                         settings_text(parameter, value->items[j], buffer));
        if (value->items_n)
            settings_say(text, room, "]", "");
    }
}

void settings_describe_pool(const struct trial *trial, const struct settings_pool *pool)
{
    char *text = trial->report->subject, buffer[UNITS_TEXT_MAX];

    for (uint32_t i = 0; i < pool->sets_n && i < 8; i++)
        settings_say(text, sizeof(trial->report->subject), i ? ", " : ", weights: ",
                     units_format(UNITS_AMOUNT, pool->weights[i], buffer));
}
