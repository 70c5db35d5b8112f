/* SPDX-License-Identifier: MIT */
/* Validates the plugin ABI table of a file, of which nothing is trusted, and copies it into
 * complete structs. One error refuses the whole file. A plugin that is well-formed, but needs a
 * newer library, is skipped. */
#include "base/utf8.h"
#include "os/os.h"
#include "plugin/plugin_abi_internal.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ABI_STRUCT_MAX     4096u /* bytes of any struct of the ABI, now and in the future */
#define PLUGINS_MAX        64u   /* per file */
#define PLUGIN_CHOICES_MAX 64u   /* per parameter */
#define PLUGIN_STRING_MAX  255u  /* bytes in any text but a name */

const char *const plugin_kind_names[PLUGIN_KINDS] = {
    [WEIR_PLUGIN_ALGORITHM] = "algorithm",
    [WEIR_PLUGIN_BALANCER] = "balancer",
    [WEIR_PLUGIN_BACKEND] = "backend",
};

int plugin_abi_refuse(const struct plugin_abi_reader *reader, const char *format, ...)
{
    char where[200] = "", reason[300];
    va_list arguments;
    if (reader->plugin)
        text_append(where, sizeof(where), "plugin `%s`: ", error_text(reader->plugin).text);
    else if (reader->number > 0)
        text_append(where, sizeof(where), "plugin %u: ", reader->number);
    if (reader->parameter)
        text_append(where, sizeof(where), "parameter `%s`: ", error_text(reader->parameter).text);
    va_start(arguments, format);
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    return plugin_file_refuse(reader->file, "%s%s", where, reason);
}

int plugin_abi_skip(const struct plugin_abi_reader *reader, const char *format, ...)
{
    struct plugin *plugin = &reader->file->plugins[reader->number - 1];
    struct weir_error error;
    char reason[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    error_set(&error, -ENOEXEC, "plugin `%s` of file `%s` needs a newer weir: %s%s%s%s",
              reader->plugin, error_text(reader->file->path).text,
              reader->parameter ? "parameter `" : "", reader->parameter ? reader->parameter : "",
              reader->parameter ? "`: " : "", reason);
    plugin->skipped = os_strdup(error.message);
    return plugin->skipped ? ABI_SKIPPED : -ENOMEM;
}

int plugin_abi_check_flags(const struct plugin_abi_reader *reader, uint32_t flags, uint32_t known)
{
    uint32_t unknown = flags & WEIR_FLAGS_NEEDED & ~known;
    return unknown ? plugin_abi_skip(reader, "its flags 0x%x are unknown here", unknown) : 0;
}

static void plugin_abi_add_segment(void *userdata, uintptr_t begin, uintptr_t end, bool is_readable,
                                   bool is_code)
{
    struct plugin_abi_reader *reader = userdata;
    size_t i = reader->segments_n;
    if (i == ABI_SEGMENTS_MAX)
        return;
    reader->segments[i].begin = begin;
    reader->segments[i].end = end;
    reader->segments[i].is_readable = is_readable;
    reader->segments[i].is_code = is_code;
    reader->segments_n++;
}

/* Returns how many bytes of the object can be read from `data` on. */
static size_t plugin_abi_room(const struct plugin_abi_reader *reader, const void *data)
{
    uintptr_t at = (uintptr_t)data;
    for (size_t i = 0; i < reader->segments_n; i++)
        if (reader->segments[i].is_readable && at >= reader->segments[i].begin &&
            at < reader->segments[i].end)
            return reader->segments[i].end - at;
    return 0;
}

bool plugin_abi_is_code(const struct plugin_abi_reader *reader, uintptr_t function)
{
    for (size_t i = 0; i < reader->segments_n; i++)
        if (reader->segments[i].is_code && function >= reader->segments[i].begin &&
            function < reader->segments[i].end)
            return true;
    return false;
}

/* Refuses what does not lie in the object that exports the table: it may be any memory. */
static int plugin_abi_check_inside(const struct plugin_abi_reader *reader, const char *what,
                                   const void *data, size_t size)
{
    if (plugin_abi_room(reader, data) >= size)
        return 0;
    return plugin_abi_refuse(reader, "its %s does not lie in the file that exports the table",
                             what);
}

/* Refuses a text without an end in the object. It may be longer than any text can be. */
static int plugin_abi_check_end(const struct plugin_abi_reader *reader, const char *what,
                                const char *text)
{
    size_t room = plugin_abi_room(reader, text), most = PLUGIN_STRING_MAX + 1;
    if (!text)
        return plugin_abi_refuse(reader, "its %s is missing (NULL)", what);
    if (room >= most || (room > 0 && memchr(text, '\0', room)))
        return 0;
    return plugin_abi_check_inside(reader, what, text, most);
}

bool plugin_abi_is_name(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    size_t length = strnlen(text, PLUGIN_NAME_MAX + 1);
    return length > 0 && length <= PLUGIN_NAME_MAX && strspn(text, allowed) == length;
}

int plugin_abi_read_struct(const struct plugin_abi_reader *reader, const char *what,
                           const void *data, size_t least, void *ret, size_t ret_size)
{
    size_t size;
    if (!data)
        return plugin_abi_refuse(reader, "its %s is missing (NULL)", what);
    if ((uintptr_t)data % _Alignof(uint64_t) != 0)
        return plugin_abi_refuse(reader, "its %s is not aligned", what);
    if (plugin_abi_check_inside(reader, what, data, sizeof(size)) < 0)
        return -ENOEXEC;
    memcpy(&size, data, sizeof(size));
    if (size < least)
        return plugin_abi_refuse(reader, "its %s is truncated: size %zu, at least %zu needed", what,
                                 size, least);
    if (size > ABI_STRUCT_MAX || size % 8 != 0)
        return plugin_abi_refuse(reader, "its %s has the impossible size %zu", what, size);
    if (size > ret_size)
        size = ret_size;
    if (plugin_abi_check_inside(reader, what, data, size) < 0)
        return -ENOEXEC;
    memset(ret, 0, ret_size);
    memcpy(ret, data, size);
    memcpy(ret, &ret_size, sizeof(ret_size));
    return 0;
}

int plugin_abi_check_text(const struct plugin_abi_reader *reader, const char *what,
                          const char *text)
{
    if (plugin_abi_check_end(reader, what, text) < 0)
        return -ENOEXEC;
    size_t length = strnlen(text, PLUGIN_STRING_MAX + 1);
    if (length > PLUGIN_STRING_MAX)
        return plugin_abi_refuse(reader, "its %s is longer than %u bytes", what, PLUGIN_STRING_MAX);
    const char *wrong = length == 0                                 ? "is empty"
                        : text_has_control(text)                    ? "has a control character"
                        : utf8_valid_length(text, length) != length ? "is not UTF-8"
                                                                    : NULL;
    return wrong ? plugin_abi_refuse(reader, "its %s %s", what, wrong) : 0;
}

bool plugin_abi_is_plugin_name(const char *text)
{
    char part[PLUGIN_NAME_MAX + 1];
    const char *dot = memchr(text, '.', strnlen(text, sizeof(part)));
    if (!dot)
        return plugin_abi_is_name(text);
    snprintf(part, sizeof(part), "%.*s", (int)(dot - text), text);
    return plugin_abi_is_name(part) && plugin_abi_is_name(dot + 1) &&
           strnlen(text, sizeof(part)) < sizeof(part);
}

int plugin_abi_check_name(const struct plugin_abi_reader *reader, const char *what,
                          const char *name)
{
    if (plugin_abi_check_end(reader, what, name) < 0)
        return -ENOEXEC;
    if (!plugin_abi_is_name(name))
        return plugin_abi_refuse(reader,
                                 "its %s `%s` is not of the form [a-z0-9_]+, at most %u long", what,
                                 error_text(name).text, PLUGIN_NAME_MAX);
    return 0;
}

/* Checks and counts the choices of a parameter. */
static int plugin_abi_check_choices(const struct plugin_abi_reader *reader,
                                    const char *const *choices, uint64_t *ret_n)
{
    uint64_t n = 0;
    for (; choices; n++) {
        if (plugin_abi_check_inside(reader, "array of choices", &choices[n], sizeof(*choices)) < 0)
            return -ENOEXEC;
        if (!choices[n])
            break;
        if (n == PLUGIN_CHOICES_MAX)
            return plugin_abi_refuse(reader, "it has more than %u choices", PLUGIN_CHOICES_MAX);
        if (plugin_abi_check_name(reader, "choice", choices[n]) < 0)
            return -ENOEXEC;
        for (uint64_t i = 0; i < n; i++) {
            if (strcmp(choices[i], choices[n]) == 0)
                return plugin_abi_refuse(reader, "its choice `%s` is given twice", choices[n]);
        }
    }
    *ret_n = n;
    return n > 0 ? 0 : plugin_abi_refuse(reader, "it is a choice without choices");
}

/* Checks the range and the default. A default of 0 may lie outside the range: it means none. */
static int plugin_abi_check_range(const struct plugin_abi_reader *reader,
                                  const struct weir_parameter *parameter)
{
    unsigned long long min = 0, max = 1, given = parameter->default_value;
    uint64_t choices_n = 0;
    switch (parameter->type) {
    case WEIR_PARAMETER_AMOUNT:
    case WEIR_PARAMETER_DURATION:
    case WEIR_PARAMETER_RATIO:
    case WEIR_PARAMETER_SIZE:
        min = parameter->min;
        max = parameter->max;
        if (min > max)
            return plugin_abi_refuse(reader, "its least value %llu is above its greatest %llu", min,
                                     max);
        if (given == 0)
            return 0;
        break;
    case WEIR_PARAMETER_BOOLEAN:
        break;
    case WEIR_PARAMETER_CHOICE:
        if (plugin_abi_check_choices(reader, parameter->choices, &choices_n) < 0)
            return -ENOEXEC;
        max = choices_n - 1;
        break;
    case WEIR_PARAMETER_ZONE:
        max = 0;
        break;
    case WEIR_PARAMETER_TEXT:
        max = 0;
        if (parameter->min > parameter->max)
            return plugin_abi_refuse(reader, "its least length is above its greatest");
        break;
    default:
        return plugin_abi_skip(reader, "its type %u is unknown here", parameter->type);
    }
    if (given < min || given > max)
        return plugin_abi_refuse(reader, "its default %llu is not within %llu and %llu", given, min,
                                 max);
    return 0;
}

/* Checks what the flags of a parameter ask of it: what is a list for one kind of plugin, or a
 * secret, has no meaning for another one. */
static int plugin_abi_check_form(const struct plugin_abi_reader *reader,
                                 const struct weir_parameter *parameter)
{
    uint32_t kind = reader->file->plugins[reader->number - 1].info.kind;
    bool is_list = parameter->flags & WEIR_PARAMETER_LIST;
    bool is_secret = parameter->flags & WEIR_PARAMETER_SECRET;
    if (is_list && (kind == WEIR_PLUGIN_BACKEND || parameter->flags & WEIR_PARAMETER_DIVISIBLE))
        return plugin_abi_refuse(reader, "it is a list: not of backends, and not divisible");
    if (is_list && parameter->default_value != 0)
        return plugin_abi_refuse(reader, "it is a list, and has a default");
    if ((parameter->flags & WEIR_PARAMETER_PER_SET) != 0 &&
        (kind != WEIR_PLUGIN_BALANCER || (parameter->flags & WEIR_PARAMETER_REQUIRED) != 0))
        return plugin_abi_refuse(reader, "it is of each set: only of balancers, and not required");
    if (is_secret && (kind != WEIR_PLUGIN_BACKEND || parameter->type != WEIR_PARAMETER_TEXT))
        return plugin_abi_refuse(reader, "it is a secret: only texts of backends are");
    return 0;
}

/* Reads one parameter. `*stride` is the size of the first parameter, which all others must have; 0:
 * this is the first. */
static int plugin_abi_read_parameter(struct plugin_abi_reader *reader, const void *data,
                                     size_t *stride, struct weir_parameter *ret)
{
    size_t size;
    int r = plugin_abi_read_struct(reader, "parameter", data, FIELD_END(struct weir_parameter, max),
                                   ret, sizeof(*ret));
    if (r == 0)
        r = plugin_abi_check_name(reader, "parameter's name", ret->name);
    if (r < 0)
        return r;
    reader->parameter = ret->name;
    memcpy(&size, data, sizeof(size));
    if (*stride != 0 && size != *stride)
        return plugin_abi_refuse(reader, "its size %zu is not that of the first, %zu", size,
                                 *stride);
    *stride = size;
    if (!ret->doc) /* an older plugin, or no text */
        ret->doc = "";
    else
        r = plugin_abi_check_text(reader, "doc", ret->doc);
    if (r == 0)
        r = plugin_abi_check_flags(reader, ret->flags,
                                   WEIR_PARAMETER_LIST | WEIR_PARAMETER_SECRET |
                                       WEIR_PARAMETER_PER_SET);
    if (r == 0)
        r = plugin_abi_check_range(reader, ret);
    return r != 0 ? r : plugin_abi_check_form(reader, ret);
}

static int plugin_abi_read_parameters(struct plugin_abi_reader *reader, struct plugin *plugin)
{
    const unsigned char *data = (const unsigned char *)plugin->info.parameters;
    uint32_t n = plugin->info.parameters_n;
    size_t stride = 0;
    if (n == 0)
        return 0;
    if (n > PLUGIN_PARAMETERS_MAX)
        return plugin_abi_refuse(reader, "it has %u parameters; at most %u are possible", n,
                                 PLUGIN_PARAMETERS_MAX);
    plugin->parameters = os_alloc(n, sizeof(plugin->parameters[0]));
    if (!plugin->parameters)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        struct weir_parameter *parameter = &plugin->parameters[i];
        int r = plugin_abi_read_parameter(reader, i == 0 ? data : data + i * stride, &stride,
                                          parameter);
        if (r != 0)
            return r;
        for (uint32_t j = 0; j < i; j++) {
            if (strcmp(plugin->parameters[j].name, parameter->name) == 0)
                return plugin_abi_refuse(reader, "it is declared twice");
        }
        reader->parameter = NULL;
    }
    return 0;
}

static int plugin_abi_read_plugin(struct plugin_abi_reader *reader, const struct weir_plugin *data,
                                  struct plugin *plugin)
{
    struct weir_plugin *info = &plugin->info;
    int r = plugin_abi_read_struct(reader, "description", data, FIELD_END(struct weir_plugin, ops),
                                   info, sizeof(*info));
    if (r < 0)
        return r;
    if (plugin_abi_check_end(reader, "name", info->name) < 0)
        return -ENOEXEC;
    if (!plugin_abi_is_plugin_name(info->name))
        return plugin_abi_refuse(
            reader, "its name `%s` is not of the form [a-z0-9_]+ or vendor.name, at most %u long",
            error_text(info->name).text, PLUGIN_NAME_MAX);
    reader->plugin = info->name;
    if (info->kind == 0)
        return plugin_abi_refuse(reader, "its kind is 0");
    if (info->kind >= PLUGIN_KINDS)
        return plugin_abi_skip(reader, "its kind %u is unknown here", info->kind);
    plugin->path = reader->file->path;
    r = plugin_abi_check_flags(reader, info->flags, 0);
    if (r == 0)
        r = plugin_abi_check_text(reader, "version", info->version);
    if (r == 0)
        r = plugin_abi_check_text(reader, "summary", info->summary);
    if (r == 0)
        r = plugin_abi_read_parameters(reader, plugin);
    info->parameters = plugin->parameters;
    return r != 0 ? r : plugin_abi_read_operations(reader, plugin);
}

/* Checks that the last plugin is the only one of its kind and name. */
static int plugin_abi_check_duplicate(const struct plugin_abi_reader *reader)
{
    const struct plugin *plugins = reader->file->plugins;
    uint32_t last = reader->number - 1;
    for (uint32_t i = 0; i < last; i++) {
        if (plugins[i].info.kind == plugins[last].info.kind &&
            strcmp(plugins[i].info.name, plugins[last].info.name) == 0)
            return plugin_abi_refuse(reader, "there are two plugins of this kind and name");
    }
    return 0;
}

/* Checks that the file is for this library. */
static int plugin_abi_check_version(const struct plugin_abi_reader *reader,
                                    const struct weir_plugin_table *table)
{
    if (table->abi_minor < WEIR_PLUGIN_ABI_MINOR_FIRST)
        return plugin_abi_refuse(reader,
                                 "it was built for version %u.%u of the plugin interface, before "
                                 "the first that stays, %u.%u: build it again",
                                 WEIR_PLUGIN_ABI_MAJOR, table->abi_minor, WEIR_PLUGIN_ABI_MAJOR,
                                 WEIR_PLUGIN_ABI_MINOR_FIRST);
    if (table->needs_minor > WEIR_PLUGIN_ABI_MINOR)
        return plugin_abi_refuse(reader,
                                 "it needs a newer weir: version %u.%u of the plugin interface, "
                                 "not %u.%u",
                                 WEIR_PLUGIN_ABI_MAJOR, table->needs_minor, WEIR_PLUGIN_ABI_MAJOR,
                                 WEIR_PLUGIN_ABI_MINOR);
    if ((table->flags & WEIR_FLAGS_NEEDED) != 0)
        return plugin_abi_refuse(reader, "it needs a newer weir: its flags 0x%x are unknown here",
                                 table->flags & WEIR_FLAGS_NEEDED);
    return 0;
}

static int plugin_abi_read_table(struct plugin_abi_reader *reader,
                                 const struct weir_plugin_table *data)
{
    struct plugin_file *file = reader->file;
    struct weir_plugin_table table;
    int r = plugin_abi_read_struct(
        reader, "table", data, FIELD_END(struct weir_plugin_table, plugins), &table, sizeof(table));
    if (r == 0)
        r = plugin_abi_check_version(reader, &table);
    if (r < 0)
        return r;
    if (table.plugins_n == 0 || table.plugins_n > PLUGINS_MAX)
        return plugin_abi_refuse(reader, "its table has %u plugins; 1 to %u are possible",
                                 table.plugins_n, PLUGINS_MAX);
    if (!table.plugins)
        return plugin_abi_refuse(reader, "its table has no plugins (NULL)");
    r = plugin_abi_check_inside(reader, "array of plugins", table.plugins,
                                table.plugins_n * sizeof(const struct weir_plugin *));
    if (r < 0)
        return r;
    file->plugins = os_alloc(table.plugins_n, sizeof(*file->plugins));
    if (!file->plugins)
        return -ENOMEM;
    while (file->plugins_n < table.plugins_n && r == 0) {
        uint32_t i = file->plugins_n++;
        reader->number = i + 1;
        reader->plugin = reader->parameter = NULL;
        r = plugin_abi_read_plugin(reader, table.plugins[i], &file->plugins[i]);
        if (r >= 0)
            r = plugin_abi_check_duplicate(reader);
    }
    return r;
}

int plugin_abi_read(struct plugin_file *file, const struct weir_plugin_table *data)
{
    struct plugin_abi_reader reader = {.file = file};
    os_object_segments(data, plugin_abi_add_segment, &reader);
    int r = plugin_abi_read_table(&reader, data);
    if (r < 0)
        plugin_abi_free(file);
    return r;
}

void plugin_abi_free(struct plugin_file *file)
{
    for (uint32_t i = 0; i < file->plugins_n; i++) {
        os_free(file->plugins[i].parameters);
        os_free(file->plugins[i].gauges);
        os_free(file->plugins[i].skipped);
    }
    os_free(file->plugins);
    file->plugins = NULL;
    file->plugins_n = 0;
}
