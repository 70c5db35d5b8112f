/* SPDX-License-Identifier: MIT */
/*
 * Validates the plugin ABI table of a file, and copies it into complete structs.
 *
 * Nothing in the table is trusted: sizes are checked before fields are read, pointers before they
 * are followed, texts before they are printed. A struct longer than ours is newer, and its tail is
 * ignored. A shorter one is older, and the fields that it lacks are absent. One error refuses the
 * whole file, so that no part of it is used.
 */
#include "plugin/plugin_abi.h"
#include "base/invariant.h"
#include "os/os.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Size that a struct must have to contain the field. */
#define FIELD_END(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))

/* Current position in the table, for messages. */
struct plugin_abi_reader {
    struct refusal_reason *reason;
    const char *path;
    uint32_t number;       /* of the plugin, from 1; 0: the table */
    const char *plugin;    /* name of the plugin; NULL: not known yet */
    const char *parameter; /* name of the parameter, or NULL */
};

__attribute__((format(printf, 2, 3))) static int
plugin_abi_refuse(const struct plugin_abi_reader *reader, const char *format, ...)
{
    char *text = reader->reason->text;
    size_t size = sizeof reader->reason->text;
    int n = 0;
    va_list arguments;

    if (reader->plugin != NULL)
        n = snprintf(text, size, "plugin `%s`: ", error_text(reader->plugin).text);
    else if (reader->number > 0)
        n = snprintf(text, size, "plugin %u: ", reader->number);
    if (reader->parameter != NULL)
        n += snprintf(text + n, size - (size_t)n,
                      "parameter `%s`: ", error_text(reader->parameter).text);
    va_start(arguments, format);
    vsnprintf(text + n, size - (size_t)n, format, arguments);
    va_end(arguments);
    return -ENOEXEC;
}

bool plugin_abi_is_name(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    size_t length = strnlen(text, PLUGIN_NAME_MAX + 1);

    return length > 0 && length <= PLUGIN_NAME_MAX && strspn(text, allowed) == length;
}

const char *plugin_abi_kind_name(enum weir_plugin_kind kind)
{
    return kind == WEIR_PLUGIN_ALGORITHM ? "algorithm" : "balancer";
}

/* Checks that a struct may be read: not NULL, aligned, and of a plausible size. */
static int plugin_abi_check_struct(const struct plugin_abi_reader *reader, const char *what,
                                   const void *data, size_t least)
{
    size_t size;

    if (data == NULL)
        return plugin_abi_refuse(reader, "its %s is missing (NULL)", what);
    if ((uintptr_t)data % _Alignof(uint64_t) != 0)
        return plugin_abi_refuse(reader, "its %s is not aligned", what);
    memcpy(&size, data, sizeof size);
    if (size < least)
        return plugin_abi_refuse(reader, "its %s is truncated: size %zu, at least %zu needed", what,
                                 size, least);
    if (size > ABI_STRUCT_MAX || size % 8 != 0)
        return plugin_abi_refuse(reader, "its %s has the impossible size %zu", what, size);
    return 0;
}

/*
 * Copies the fields that exist, and zeroes the rest of `ret`. Both structs start with their size.
 */
static void plugin_abi_copy_struct(void *ret, size_t ret_size, const void *data)
{
    size_t size;

    memcpy(&size, data, sizeof size);
    if (size > ret_size)
        size = ret_size;
    memset(ret, 0, ret_size);
    memcpy(ret, data, size);
    memcpy(ret, &ret_size, sizeof ret_size);
}

/* Checks that a text can be displayed unchanged: one line of valid UTF-8 without control
 * characters. */
static int plugin_abi_check_text(const struct plugin_abi_reader *reader, const char *what,
                                 const char *text)
{
    size_t length;

    if (text == NULL)
        return plugin_abi_refuse(reader, "its %s is missing (NULL)", what);
    length = strnlen(text, PLUGIN_STRING_MAX + 1);
    if (length == 0)
        return plugin_abi_refuse(reader, "its %s is empty", what);
    if (length > PLUGIN_STRING_MAX)
        return plugin_abi_refuse(reader, "its %s is longer than %u bytes", what, PLUGIN_STRING_MAX);
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return plugin_abi_refuse(reader, "its %s has a control character", what);
    }
    if (utf8_valid_length(text, length) != length)
        return plugin_abi_refuse(reader, "its %s is not UTF-8", what);
    return 0;
}

static int plugin_abi_check_name(const struct plugin_abi_reader *reader, const char *what,
                                 const char *name)
{
    if (name == NULL)
        return plugin_abi_refuse(reader, "its %s is missing (NULL)", what);
    if (!plugin_abi_is_name(name))
        return plugin_abi_refuse(reader,
                                 "its %s `%s` is not of the form [a-z0-9_]+, at most %u long", what,
                                 error_text(name).text, PLUGIN_NAME_MAX);
    return 0;
}

/* Checks and counts the choices of a parameter. */
static int plugin_abi_check_choices(const struct plugin_abi_reader *reader,
                                    const struct weir_parameter *parameter, uint64_t *ret_n)
{
    uint64_t n = 0;

    *ret_n = 0;
    if (parameter->choices == NULL || parameter->choices[0] == NULL)
        return plugin_abi_refuse(reader, "it is a choice without choices");
    for (; parameter->choices[n] != NULL; n++) {
        if (n == PLUGIN_CHOICES_MAX)
            return plugin_abi_refuse(reader, "it has more than %u choices", PLUGIN_CHOICES_MAX);
        if (plugin_abi_check_name(reader, "choice", parameter->choices[n]) < 0)
            return -ENOEXEC;
        for (uint64_t i = 0; i < n; i++) {
            if (strcmp(parameter->choices[i], parameter->choices[n]) == 0)
                return plugin_abi_refuse(reader, "its choice `%s` is given twice",
                                         parameter->choices[n]);
        }
    }
    *ret_n = n;
    return 0;
}

/* Checks the range and the default. A default of 0 may lie outside the range: it means none. */
static int plugin_abi_check_range(const struct plugin_abi_reader *reader,
                                  const struct weir_parameter *parameter)
{
    uint64_t min = parameter->min, max = parameter->max, n;

    switch (parameter->type) {
    case WEIR_PARAMETER_AMOUNT:
    case WEIR_PARAMETER_DURATION:
        if (min > max)
            return plugin_abi_refuse(reader, "its least value %llu is above its greatest %llu",
                                     (unsigned long long)min, (unsigned long long)max);
        if (parameter->default_value == 0)
            return 0;
        break;
    case WEIR_PARAMETER_BOOLEAN:
        min = 0, max = 1;
        break;
    case WEIR_PARAMETER_CHOICE:
        if (plugin_abi_check_choices(reader, parameter, &n) < 0)
            return -ENOEXEC;
        min = 0, max = n - 1;
        break;
    default:
        return plugin_abi_refuse(reader, "its type %u is unknown", parameter->type);
    }
    if (parameter->default_value < min || parameter->default_value > max)
        return plugin_abi_refuse(reader, "its default %llu is not within %llu and %llu",
                                 (unsigned long long)parameter->default_value,
                                 (unsigned long long)min, (unsigned long long)max);
    return 0;
}

/* Reads one parameter. `*stride` is the size of the first parameter, which all others must have; 0:
 * this is the first. */
static int plugin_abi_read_parameter(struct plugin_abi_reader *reader, const void *data,
                                     size_t *stride, struct weir_parameter *ret)
{
    size_t size;
    int r =
        plugin_abi_check_struct(reader, "parameter", data, FIELD_END(struct weir_parameter, max));

    if (r < 0)
        return r;
    plugin_abi_copy_struct(ret, sizeof *ret, data);
    r = plugin_abi_check_name(reader, "parameter's name", ret->name);
    if (r < 0)
        return r;
    reader->parameter = ret->name;
    memcpy(&size, data, sizeof size);
    if (*stride != 0 && size != *stride)
        return plugin_abi_refuse(reader, "its size %zu is not that of the first, %zu", size,
                                 *stride);
    *stride = size;
    if (ret->doc == NULL) /* an older plugin, or no text */
        ret->doc = "";
    else
        r = plugin_abi_check_text(reader, "doc", ret->doc);
    return r < 0 ? r : plugin_abi_check_range(reader, ret);
}

static int plugin_abi_read_parameters(struct plugin_abi_reader *reader,
                                      const struct weir_plugin *info, struct plugin *plugin)
{
    const unsigned char *data = (const unsigned char *)info->parameters;
    size_t stride = 0;

    if (info->parameters_n == 0)
        return 0;
    if (info->parameters_n > PLUGIN_PARAMETERS_MAX)
        return plugin_abi_refuse(reader, "it has %u parameters; at most %u are possible",
                                 info->parameters_n, PLUGIN_PARAMETERS_MAX);
    plugin->parameters = os_alloc(info->parameters_n, sizeof plugin->parameters[0]);
    if (plugin->parameters == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < info->parameters_n; i++) {
        struct weir_parameter *parameter = &plugin->parameters[i];
        int r = plugin_abi_read_parameter(reader, i == 0 ? data : data + i * stride, &stride,
                                          parameter);

        if (r < 0)
            return r;
        for (uint32_t j = 0; j < i; j++) {
            if (strcmp(plugin->parameters[j].name, parameter->name) == 0)
                return plugin_abi_refuse(reader, "it is declared twice");
        }
        reader->parameter = NULL;
    }
    plugin->parameters_n = info->parameters_n;
    return 0;
}

static void plugin_abi_no_algorithm_init(const void *config, void *state,
                                         const struct weir_instant *at)
{
    (void)config, (void)state, (void)at;
}

static void plugin_abi_no_balancer_init(const void *config, void *state, uint32_t sets_n,
                                        uint32_t worker)
{
    (void)config, (void)state, (void)sets_n, (void)worker;
}

static int plugin_abi_read_algorithm(const struct plugin_abi_reader *reader, const void *ops,
                                     struct weir_algorithm *ret)
{
    const uint32_t types =
        1u << WEIR_LIMIT_RATE | 1u << WEIR_LIMIT_CALL | 1u << WEIR_LIMIT_RESOURCE;
    int r = plugin_abi_check_struct(reader, "struct of operations", ops,
                                    FIELD_END(struct weir_algorithm, available));

    if (r < 0)
        return r;
    plugin_abi_copy_struct(ret, sizeof *ret, ops);
    if (ret->configure == NULL)
        return plugin_abi_refuse(reader, "its operation `configure` is missing");
    if (ret->ready_at == NULL)
        return plugin_abi_refuse(reader, "its operation `ready_at` is missing");
    if (ret->take == NULL)
        return plugin_abi_refuse(reader, "its operation `take` is missing");
    if (ret->available == NULL)
        return plugin_abi_refuse(reader, "its operation `available` is missing");
    if ((ret->types & types) == 0)
        return plugin_abi_refuse(reader, "it serves no type of limit");
    if ((ret->flags & WEIR_ALGORITHM_REFUNDS) != 0 && ret->refund == NULL)
        return plugin_abi_refuse(reader, "it says that it refunds, but has no operation `refund`");
    if (ret->init == NULL)
        ret->init = plugin_abi_no_algorithm_init;
    return 0;
}

static int plugin_abi_read_balancer(const struct plugin_abi_reader *reader, const void *ops,
                                    uint32_t parameters_n, struct weir_balancer *ret)
{
    int r = plugin_abi_check_struct(reader, "struct of operations", ops,
                                    FIELD_END(struct weir_balancer, pick));

    if (r < 0)
        return r;
    plugin_abi_copy_struct(ret, sizeof *ret, ops);
    if (ret->pick == NULL)
        return plugin_abi_refuse(reader, "its operation `pick` is missing");
    if (ret->configure == NULL && parameters_n > 0)
        return plugin_abi_refuse(reader, "it has parameters, but no operation `configure`");
    if (ret->init == NULL)
        ret->init = plugin_abi_no_balancer_init;
    return 0;
}

static int plugin_abi_read_plugin(struct plugin_abi_reader *reader, const struct weir_plugin *data,
                                  struct plugin_entry *ret)
{
    struct weir_plugin *info = &ret->info;
    struct plugin *plugin = &ret->plugin;
    int r =
        plugin_abi_check_struct(reader, "description", data, FIELD_END(struct weir_plugin, ops));

    if (r < 0)
        return r;
    plugin_abi_copy_struct(info, sizeof *info, data);
    r = plugin_abi_check_name(reader, "name", info->name);
    if (r < 0)
        return r;
    reader->plugin = info->name;
    if (info->kind != WEIR_PLUGIN_ALGORITHM && info->kind != WEIR_PLUGIN_BALANCER)
        return plugin_abi_refuse(reader, "its kind %u is unknown", info->kind);
    plugin->kind = (enum weir_plugin_kind)info->kind;
    plugin->name = info->name;
    plugin->version = info->version;
    plugin->summary = info->summary;
    plugin->path = reader->path;
    r = plugin_abi_check_text(reader, "version", info->version);
    if (r == 0)
        r = plugin_abi_check_text(reader, "summary", info->summary);
    if (r == 0)
        r = plugin_abi_read_parameters(reader, info, plugin);
    if (r == 0)
        r = info->kind == WEIR_PLUGIN_ALGORITHM
                ? plugin_abi_read_algorithm(reader, info->ops, &plugin->algorithm)
                : plugin_abi_read_balancer(reader, info->ops, info->parameters_n,
                                           &plugin->balancer);
    info->parameters = plugin->parameters;
    info->ops = info->kind == WEIR_PLUGIN_ALGORITHM ? (const void *)&plugin->algorithm
                                                    : (const void *)&plugin->balancer;
    return r;
}

/* Checks that the last of `n` plugins is the only one of its kind and name. */
static int plugin_abi_check_duplicate(const struct plugin_abi_reader *reader,
                                      const struct plugin_entry *entries, uint32_t n)
{
    const struct plugin *last = &entries[n - 1].plugin;

    WEIR_INVARIANT(n > 0 && n <= PLUGINS_MAX);
    for (uint32_t i = 0; i + 1 < n; i++) {
        if (entries[i].plugin.kind == last->kind && strcmp(entries[i].plugin.name, last->name) == 0)
            return plugin_abi_refuse(reader, "there are two plugins of this kind and name");
    }
    return 0;
}

static int plugin_abi_check_table(const struct plugin_abi_reader *reader,
                                  const struct weir_plugin_table *table)
{
    int r = plugin_abi_check_struct(reader, "table", table,
                                    FIELD_END(struct weir_plugin_table, plugins));

    if (r < 0)
        return r;
    if (table->plugins_n == 0 || table->plugins_n > PLUGINS_MAX)
        return plugin_abi_refuse(reader, "its table has %u plugins; 1 to %u are possible",
                                 table->plugins_n, PLUGINS_MAX);
    if (table->plugins == NULL)
        return plugin_abi_refuse(reader, "its table has no plugins (NULL)");
    return 0;
}

int plugin_abi_read(const struct weir_plugin_table *table, const char *path,
                    struct plugin_entry **ret, uint32_t *ret_n, struct refusal_reason *reason)
{
    struct plugin_abi_reader reader = {.reason = reason, .path = path};
    int r = plugin_abi_check_table(&reader, table);
    struct plugin_entry *entries;
    uint32_t n;

    if (r < 0)
        return r;
    n = table->plugins_n;
    entries = os_alloc(n, sizeof *entries);
    if (entries == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < n && r == 0; i++) {
        reader.number = i + 1;
        reader.plugin = NULL;
        r = plugin_abi_read_plugin(&reader, table->plugins[i], &entries[i]);
        if (r == 0)
            r = plugin_abi_check_duplicate(&reader, entries, i + 1);
    }
    if (r < 0) {
        plugin_abi_free(entries, n);
        return r;
    }
    *ret = entries;
    *ret_n = n;
    return 0;
}

void plugin_abi_free(struct plugin_entry *entries, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        os_free(entries[i].plugin.parameters);
    os_free(entries);
}
