/* SPDX-License-Identifier: MIT */
/*
 * The table of plugins that a file exports. Everything in it is doubted: sizes before fields are
 * read, pointers before they are followed, texts before they are printed. A struct longer than ours
 * is newer and its tail is ignored; a shorter one is older and what it lacks is absent. One mistake
 * refuses the file, so that nobody uses half of it.
 */
#include "plugin/plugin_abi.h"
#include "base/mutant.h"
#include "config/config_ast.h"
#include "os/os.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The end of a field: how large a struct must be to have it. */
#define END_OF(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))

/* What is being read, for messages. */
struct reading {
    struct cause *cause;
    const char *path;
    uint32_t number;       /* of the plugin, from 1; 0: the table */
    const char *plugin;    /* its name; NULL: not known yet */
    const char *parameter; /* the parameter's name, or NULL */
};

__attribute__((format(printf, 2, 3))) static int refuse(const struct reading *reading,
                                                        const char *format, ...)
{
    char *text = reading->cause->text;
    size_t size = sizeof reading->cause->text;
    int n = 0;
    va_list arguments;

    if (reading->plugin != NULL)
        n = snprintf(text, size, "plugin `%s`: ", show(reading->plugin).text);
    else if (reading->number > 0)
        n = snprintf(text, size, "plugin %u: ", reading->number);
    if (reading->parameter != NULL)
        n +=
            snprintf(text + n, size - (size_t)n, "parameter `%s`: ", show(reading->parameter).text);
    va_start(arguments, format);
    vsnprintf(text + n, size - (size_t)n, format, arguments);
    va_end(arguments);
    return -ENOEXEC;
}

bool plugin_is_name(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    size_t length = strnlen(text, PLUGIN_NAME_MAX + 1);

    if (MUTANT(45))
        return true;
    return length > 0 && length <= PLUGIN_NAME_MAX && strspn(text, allowed) == length;
}

const char *plugin_kind_name(enum weir_plugin_kind kind)
{
    return kind == WEIR_PLUGIN_ALGORITHM ? "algorithm" : "balancer";
}

/* Whether a struct may be read at all: there, aligned, and of a size that can be true. */
static int struct_check(const struct reading *reading, const char *what, const void *data,
                        size_t least)
{
    size_t size;

    if (data == NULL)
        return refuse(reading, "its %s is missing (NULL)", what);
    if ((uintptr_t)data % _Alignof(uint64_t) != 0)
        return refuse(reading, "its %s is not aligned", what);
    memcpy(&size, data, sizeof size);
    if (size < least && !MUTANT(40))
        return refuse(reading, "its %s is truncated: size %zu, at least %zu needed", what, size,
                      least);
    if ((size > ABI_STRUCT_MAX || size % 8 != 0) && !MUTANT(47))
        return refuse(reading, "its %s has the absurd size %zu", what, size);
    return 0;
}

/* Copies what is there; the rest of `ret` is absent. Both structs start with their size. */
static void struct_copy(void *ret, size_t ret_size, const void *data)
{
    size_t size;

    memcpy(&size, data, sizeof size);
    if (size > ret_size || MUTANT(51))
        size = ret_size;
    memset(ret, 0, ret_size);
    memcpy(ret, data, size);
    memcpy(ret, &ret_size, sizeof ret_size);
}

/* A line of text that may be shown as it is. */
static int text_check(const struct reading *reading, const char *what, const char *text)
{
    size_t length;

    if (text == NULL)
        return refuse(reading, "its %s is missing (NULL)", what);
    length = strnlen(text, PLUGIN_STRING_MAX + 1);
    if (length == 0)
        return refuse(reading, "its %s is empty", what);
    if (length > PLUGIN_STRING_MAX)
        return refuse(reading, "its %s is longer than %u bytes", what, PLUGIN_STRING_MAX);
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return refuse(reading, "its %s has a control character", what);
    }
    if (utf8_length(text, length) != length)
        return refuse(reading, "its %s is not UTF-8", what);
    return 0;
}

static int name_check(const struct reading *reading, const char *what, const char *name)
{
    if (name == NULL)
        return refuse(reading, "its %s is missing (NULL)", what);
    if (!plugin_is_name(name))
        return refuse(reading, "its %s `%s` is not of the form [a-z0-9_]+, at most %u long", what,
                      show(name).text, PLUGIN_NAME_MAX);
    return 0;
}

/* Checks the words of a choice and counts them. */
static int choices_check(const struct reading *reading, const struct weir_parameter *parameter,
                         uint64_t *ret_n)
{
    uint64_t n = 0;

    *ret_n = MUTANT(58) ? 1 : 0;
    if (parameter->choices == NULL || parameter->choices[0] == NULL)
        return MUTANT(58) ? 0 : refuse(reading, "it is a choice without choices");
    for (; parameter->choices[n] != NULL; n++) {
        if (n == CHOICES_MAX)
            return refuse(reading, "it has more than %u choices", CHOICES_MAX);
        if (name_check(reading, "choice", parameter->choices[n]) < 0)
            return -ENOEXEC;
        for (uint64_t i = 0; i < n; i++) {
            if (strcmp(parameter->choices[i], parameter->choices[n]) == 0)
                return refuse(reading, "its choice `%s` is there twice", parameter->choices[n]);
        }
    }
    *ret_n = n;
    return 0;
}

/* The range and the default. A default of 0 may lie outside: it stands for none. */
static int range_check(const struct reading *reading, const struct weir_parameter *parameter)
{
    uint64_t min = parameter->min, max = parameter->max, n;

    switch (parameter->type) {
    case WEIR_PARAMETER_AMOUNT:
    case WEIR_PARAMETER_DURATION:
        if (min > max && !MUTANT(49))
            return refuse(reading, "its least value %llu is above its greatest %llu",
                          (unsigned long long)min, (unsigned long long)max);
        if (parameter->default_value == 0)
            return 0;
        break;
    case WEIR_PARAMETER_BOOLEAN:
        min = 0, max = 1;
        break;
    case WEIR_PARAMETER_CHOICE:
        if (choices_check(reading, parameter, &n) < 0)
            return -ENOEXEC;
        min = 0, max = n - 1;
        break;
    default:
        return refuse(reading, "its type %u is unknown", parameter->type);
    }
    if ((parameter->default_value < min || parameter->default_value > max) && !MUTANT(44))
        return refuse(reading, "its default %llu is not within %llu and %llu",
                      (unsigned long long)parameter->default_value, (unsigned long long)min,
                      (unsigned long long)max);
    return 0;
}

/* `*stride` is the size of the first parameter, which all must have; 0: this is the first. */
static int parameter_read(struct reading *reading, const void *data, size_t *stride,
                          struct weir_parameter *ret)
{
    size_t size;
    int r = struct_check(reading, "parameter", data, END_OF(struct weir_parameter, max));

    if (r < 0)
        return r;
    struct_copy(ret, sizeof *ret, data);
    r = name_check(reading, "parameter's name", ret->name);
    if (r < 0)
        return r;
    reading->parameter = ret->name;
    memcpy(&size, data, sizeof size);
    if (*stride != 0 && size != *stride)
        return refuse(reading, "its size %zu is not that of the first, %zu", size, *stride);
    *stride = size;
    if (ret->doc == NULL) /* older than the field, or nothing to say */
        ret->doc = "";
    else
        r = text_check(reading, "doc", ret->doc);
    return r < 0 ? r : range_check(reading, ret);
}

static int parameters_read(struct reading *reading, const struct weir_plugin *info,
                           struct plugin *plugin)
{
    const unsigned char *data = (const unsigned char *)info->parameters;
    size_t stride = 0;

    if (info->parameters_n == 0)
        return 0;
    if (info->parameters_n > PARAMETERS_MAX)
        return refuse(reading, "it has %u parameters; at most %u are possible", info->parameters_n,
                      PARAMETERS_MAX);
    plugin->parameters = sys_alloc(info->parameters_n, sizeof plugin->parameters[0]);
    if (plugin->parameters == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < info->parameters_n; i++) {
        struct weir_parameter *parameter = &plugin->parameters[i];
        int r = parameter_read(reading, i == 0 ? data : data + i * stride, &stride, parameter);

        if (r < 0)
            return r;
        for (uint32_t j = 0; j < i && !MUTANT(59); j++) {
            if (strcmp(plugin->parameters[j].name, parameter->name) == 0)
                return refuse(reading, "it is declared twice");
        }
        reading->parameter = NULL;
    }
    plugin->parameters_n = info->parameters_n;
    return 0;
}

static void no_algorithm_init(const void *config, void *state, const struct weir_instant *at)
{
    (void)config, (void)state, (void)at;
}

static void no_balancer_init(const void *config, void *state, uint32_t sets_n, uint32_t worker)
{
    (void)config, (void)state, (void)sets_n, (void)worker;
}

static int algorithm_read(const struct reading *reading, const void *ops,
                          struct weir_algorithm *ret)
{
    const uint32_t types =
        1u << WEIR_LIMIT_RATE | 1u << WEIR_LIMIT_CALL | 1u << WEIR_LIMIT_RESOURCE;
    int r = struct_check(reading, "struct of operations", ops,
                         END_OF(struct weir_algorithm, available));

    if (r < 0)
        return r;
    struct_copy(ret, sizeof *ret, ops);
    if (MUTANT(48))
        return 0;
    if (ret->configure == NULL)
        return refuse(reading, "its operation `configure` is missing");
    if (ret->ready_at == NULL)
        return refuse(reading, "its operation `ready_at` is missing");
    if (ret->take == NULL)
        return refuse(reading, "its operation `take` is missing");
    if (ret->available == NULL)
        return refuse(reading, "its operation `available` is missing");
    if ((ret->types & types) == 0)
        return refuse(reading, "it serves no type of limit");
    if ((ret->flags & WEIR_ALGORITHM_REFUNDS) != 0 && ret->refund == NULL)
        return refuse(reading, "it says that it refunds, but has no operation `refund`");
    if (ret->init == NULL)
        ret->init = no_algorithm_init;
    return 0;
}

static int balancer_read(const struct reading *reading, const void *ops, uint32_t parameters_n,
                         struct weir_balancer *ret)
{
    int r = struct_check(reading, "struct of operations", ops, END_OF(struct weir_balancer, pick));

    if (r < 0)
        return r;
    struct_copy(ret, sizeof *ret, ops);
    if (ret->pick == NULL)
        return refuse(reading, "its operation `pick` is missing");
    if (ret->configure == NULL && parameters_n > 0)
        return refuse(reading, "it has parameters, but no operation `configure`");
    if (ret->init == NULL)
        ret->init = no_balancer_init;
    return 0;
}

static int plugin_read(struct reading *reading, const struct weir_plugin *data, struct loaded *ret)
{
    struct weir_plugin *info = &ret->info;
    struct plugin *plugin = &ret->plugin;
    int r = struct_check(reading, "description", data, END_OF(struct weir_plugin, ops));

    if (r < 0)
        return r;
    struct_copy(info, sizeof *info, data);
    r = name_check(reading, "name", info->name);
    if (r < 0)
        return r;
    reading->plugin = info->name;
    if (info->kind != WEIR_PLUGIN_ALGORITHM && info->kind != WEIR_PLUGIN_BALANCER && !MUTANT(56))
        return refuse(reading, "its kind %u is unknown", info->kind);
    plugin->kind = (enum weir_plugin_kind)info->kind;
    plugin->name = info->name;
    plugin->version = info->version;
    plugin->summary = info->summary;
    plugin->path = reading->path;
    r = text_check(reading, "version", info->version);
    if (r == 0)
        r = text_check(reading, "summary", info->summary);
    if (r == 0)
        r = parameters_read(reading, info, plugin);
    if (r == 0)
        r = info->kind == WEIR_PLUGIN_ALGORITHM
                ? algorithm_read(reading, info->ops, &plugin->algorithm)
                : balancer_read(reading, info->ops, info->parameters_n, &plugin->balancer);
    info->parameters = plugin->parameters;
    info->ops = info->kind == WEIR_PLUGIN_ALGORITHM ? (const void *)&plugin->algorithm
                                                    : (const void *)&plugin->balancer;
    return r;
}

/* Whether the last of `n` plugins is the only one of its kind and name. */
static int duplicate_check(const struct reading *reading, const struct loaded *loaded, uint32_t n)
{
    const struct plugin *last = &loaded[n - 1].plugin;

    for (uint32_t i = 0; i + 1 < n && !MUTANT(42); i++) {
        if (loaded[i].plugin.kind == last->kind && strcmp(loaded[i].plugin.name, last->name) == 0)
            return refuse(reading, "there are two plugins of this kind and name");
    }
    return 0;
}

static int table_check(const struct reading *reading, const struct weir_plugin_table *table)
{
    int r = struct_check(reading, "table", table, END_OF(struct weir_plugin_table, plugins));

    if (r < 0)
        return r;
    if ((table->plugins_n == 0 || table->plugins_n > PLUGINS_MAX) && !MUTANT(54))
        return refuse(reading, "its table has %u plugins; 1 to %u are possible", table->plugins_n,
                      PLUGINS_MAX);
    if (table->plugins == NULL)
        return refuse(reading, "its table has no plugins (NULL)");
    return 0;
}

int plugin_table_read(const struct weir_plugin_table *table, const char *path, struct loaded **ret,
                      uint32_t *ret_n, struct cause *cause)
{
    struct reading reading = {.cause = cause, .path = path};
    int r = table_check(&reading, table);
    struct loaded *loaded;
    uint32_t n;

    if (r < 0)
        return r;
    n = table->plugins_n;
    loaded = sys_alloc(n, sizeof *loaded);
    if (loaded == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < n && r == 0; i++) {
        reading.number = i + 1;
        reading.plugin = NULL;
        r = plugin_read(&reading, table->plugins[i], &loaded[i]);
        if (r == 0)
            r = duplicate_check(&reading, loaded, i + 1);
    }
    if (r < 0) {
        plugin_table_free(loaded, n);
        return r;
    }
    *ret = loaded;
    *ret_n = n;
    return 0;
}

void plugin_table_free(struct loaded *loaded, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        sys_free(loaded[i].plugin.parameters);
    sys_free(loaded);
}
