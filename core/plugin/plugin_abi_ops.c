/* SPDX-License-Identifier: MIT */
/* Operations of plugins, by their kind: which must be there, that they are code of the file, and
 * the gauges of an algorithm. */
#include "os/os.h"
#include "plugin/plugin_abi_internal.h"
#include <errno.h>
#include <string.h>

static int plugin_abi_check_algorithm(const struct plugin_abi_reader *reader,
                                      const struct weir_algorithm *algorithm)
{
    const uint32_t types =
        1u << WEIR_LIMIT_RATE | 1u << WEIR_LIMIT_CALL | 1u << WEIR_LIMIT_RESOURCE;
    const char *missing = !algorithm->configure   ? "configure"
                          : !algorithm->ready_at  ? "ready_at"
                          : !algorithm->take      ? "take"
                          : !algorithm->available ? "available"
                                                  : NULL;
    if (missing)
        return plugin_abi_refuse(reader, "its operation `%s` is missing", missing);
    if ((algorithm->types & types) == 0)
        return plugin_abi_refuse(reader, "it serves no type of limit");
    if ((algorithm->flags & WEIR_ALGORITHM_REFUNDS) != 0 && !algorithm->refund)
        return plugin_abi_refuse(reader, "it says that it refunds, but has no operation `refund`");
    if (algorithm->refund_strict && !algorithm->refund)
        return plugin_abi_refuse(reader, "it has `refund_strict`, but no operation `refund`");
    return 0;
}

/* Reads one gauge. `*stride` as for parameters. */
static int plugin_abi_read_gauge(const struct plugin_abi_reader *reader, const void *data,
                                 size_t *stride, struct weir_gauge *ret)
{
    size_t size;
    int r = plugin_abi_read_struct(reader, "gauge", data, sizeof(*ret), ret, sizeof(*ret));
    if (r == 0)
        r = plugin_abi_check_name(reader, "gauge's name", ret->name);
    if (r == 0)
        r = plugin_abi_check_text(reader, "gauge's doc", ret->doc);
    if (r < 0)
        return r;
    memcpy(&size, data, sizeof(size));
    if (*stride != 0 && size != *stride)
        return plugin_abi_refuse(reader, "the size %zu of its gauge `%s` is not that of the first",
                                 size, ret->name);
    *stride = size;
    if (ret->type != WEIR_PARAMETER_AMOUNT && ret->type != WEIR_PARAMETER_DURATION)
        return plugin_abi_skip(reader, "the type %u of its gauge `%s` is unknown here", ret->type,
                               ret->name);
    return plugin_abi_check_flags(reader, ret->flags, 0);
}

/* Replaces the gauges of an algorithm by complete copies. */
static int plugin_abi_read_gauges(const struct plugin_abi_reader *reader, struct plugin *plugin)
{
    const unsigned char *data = (const unsigned char *)plugin->algorithm.gauges;
    uint32_t n = plugin->algorithm.gauges_n;
    size_t stride = 0;
    int r = 0;
    plugin->algorithm.gauges = NULL;
    if (n == 0)
        return 0;
    if (n > WEIR_GAUGES_MAX)
        return plugin_abi_refuse(reader, "it has %u gauges; at most %u are possible", n,
                                 WEIR_GAUGES_MAX);
    if (!plugin->algorithm.observe)
        return plugin_abi_refuse(reader, "it has gauges, but no operation `observe`");
    plugin->gauges = os_alloc(n, sizeof(plugin->gauges[0]));
    if (!plugin->gauges)
        return -ENOMEM;
    for (uint32_t i = 0; i < n && r == 0; i++) {
        r = plugin_abi_read_gauge(reader, i == 0 ? data : data + i * stride, &stride,
                                  &plugin->gauges[i]);
        for (uint32_t j = 0; j < i && r == 0; j++)
            if (strcmp(plugin->gauges[j].name, plugin->gauges[i].name) == 0)
                r = plugin_abi_refuse(reader, "its gauge `%s` is declared twice",
                                      plugin->gauges[i].name);
    }
    plugin->algorithm.gauges = plugin->gauges;
    return r;
}

static int plugin_abi_check_balancer(const struct plugin_abi_reader *reader,
                                     const struct weir_balancer *balancer, uint32_t parameters_n)
{
    if (!balancer->pick)
        return plugin_abi_refuse(reader, "its operation `pick` is missing");
    if (!balancer->configure && parameters_n > 0)
        return plugin_abi_refuse(reader, "it has parameters, but no operation `configure`");
    return 0;
}

/* Every operation is required but those of leases, which come together. */
static int plugin_abi_check_backend(const struct plugin_abi_reader *reader,
                                    const struct weir_backend *backend)
{
    const char *missing = !backend->open                        ? "open"
                          : !backend->close                     ? "close"
                          : !backend->run                       ? "run"
                          : !backend->stop                      ? "stop"
                          : !backend->set_open                  ? "set_open"
                          : !backend->set_close                 ? "set_close"
                          : !backend->ask                       ? "ask"
                          : !backend->wait                      ? "wait"
                          : !backend->cancel                    ? "cancel"
                          : !backend->release                   ? "release"
                          : !backend->return_part               ? "return_part"
                          : !backend->is_held                   ? "is_held"
                          : !backend->snapshot                  ? "snapshot"
                          : !backend->check                     ? "check"
                          : !backend->batch && backend->unbatch ? "batch"
                          : !backend->unbatch && backend->batch ? "unbatch"
                                                                : NULL;
    return missing ? plugin_abi_refuse(reader, "its operation `%s` is missing", missing) : 0;
}

/* How much of the struct of operations of a kind must be there, and how much is known of it. */
static const struct {
    size_t least, size;
} plugin_abi_operations[PLUGIN_KINDS] = {
    [WEIR_PLUGIN_ALGORITHM] = {FIELD_END(struct weir_algorithm, available),
                               sizeof(struct weir_algorithm)},
    [WEIR_PLUGIN_BALANCER] = {FIELD_END(struct weir_balancer, pick), sizeof(struct weir_balancer)},
    [WEIR_PLUGIN_BACKEND] = {FIELD_END(struct weir_backend, check), sizeof(struct weir_backend)},
};

/* Where functions lie in these structs. */
static const struct {
    uint32_t kind;
    size_t begin, end;
} plugin_abi_functions[] = {
    {WEIR_PLUGIN_ALGORITHM, offsetof(struct weir_algorithm, configure),
     FIELD_END(struct weir_algorithm, refund_strict)},
    {WEIR_PLUGIN_ALGORITHM, offsetof(struct weir_algorithm, observe),
     FIELD_END(struct weir_algorithm, observe)},
    {WEIR_PLUGIN_BALANCER, offsetof(struct weir_balancer, configure),
     FIELD_END(struct weir_balancer, outcome)},
    {WEIR_PLUGIN_BACKEND, offsetof(struct weir_backend, open), sizeof(struct weir_backend)},
};

/* Refuses a function that is no code of the object. It may be one of another library that has the
 * name. */
static int plugin_abi_check_function(const struct plugin_abi_reader *reader,
                                     const struct plugin *plugin, size_t at, size_t number)
{
    uintptr_t function;
    memcpy(&function, (const char *)&plugin->algorithm + at, sizeof(function));
    if (function == 0 || plugin_abi_is_code(reader, function))
        return 0;
    return plugin_abi_refuse(reader,
                             "operation %zu in its struct is no function of the file that exports "
                             "the table: make it static, or hide it",
                             number);
}

static int plugin_abi_check_functions(const struct plugin_abi_reader *reader,
                                      const struct plugin *plugin)
{
    size_t number = 0;
    for (size_t i = 0; i < sizeof(plugin_abi_functions) / sizeof(plugin_abi_functions[0]); i++) {
        if (plugin_abi_functions[i].kind != plugin->info.kind)
            continue;
        for (size_t at = plugin_abi_functions[i].begin; at < plugin_abi_functions[i].end;
             at += sizeof(uintptr_t))
            if (plugin_abi_check_function(reader, plugin, at, ++number) < 0)
                return -ENOEXEC;
    }
    return 0;
}

int plugin_abi_read_operations(const struct plugin_abi_reader *reader, struct plugin *plugin)
{
    uint32_t kind = plugin->info.kind;
    int r = plugin_abi_read_struct(reader, "struct of operations", plugin->info.ops,
                                   plugin_abi_operations[kind].least, &plugin->algorithm,
                                   plugin_abi_operations[kind].size);
    plugin->info.ops = &plugin->algorithm;
    if (r == 0)
        r = plugin_abi_check_functions(reader, plugin);
    if (r < 0)
        return r;
    if (kind == WEIR_PLUGIN_ALGORITHM)
        r = plugin_abi_check_algorithm(reader, &plugin->algorithm);
    else if (kind == WEIR_PLUGIN_BACKEND)
        r = plugin_abi_check_backend(reader, &plugin->backend);
    else
        r = plugin_abi_check_balancer(reader, &plugin->balancer, plugin->info.parameters_n);
    if (r == 0 && kind == WEIR_PLUGIN_ALGORITHM)
        r = plugin_abi_read_gauges(reader, plugin);
    if (r != 0)
        return r;
    return plugin_abi_check_flags(reader,
                                  kind == WEIR_PLUGIN_ALGORITHM ? plugin->algorithm.flags
                                  : kind == WEIR_PLUGIN_BACKEND ? plugin->backend.flags
                                                                : plugin->balancer.flags,
                                  0);
}
