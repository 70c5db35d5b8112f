/* SPDX-License-Identifier: MIT */
/*
 * Declarations that all algorithms share: capacity and window, types of limits, the plugin table.
 */
#ifndef WEIR_PLUGINS_DECLARE_H
#define WEIR_PLUGINS_DECLARE_H

#include "exact.h"

/* Indices of the first two parameters of every algorithm. */
enum { CAPACITY, WINDOW };

#define PARAMETER(name_, type_, min_, max_, doc_)                                                  \
    {                                                                                              \
        .size = sizeof(struct weir_parameter), .name = (name_), .type = (type_), .min = (min_),    \
        .max = (max_), .doc = (doc_)                                                               \
    }

/* An amount of units that are granted. */
#define PARAMETER_UNITS(name_, min_, doc_)                                                         \
    {                                                                                              \
        .size = sizeof(struct weir_parameter), .name = (name_), .type = WEIR_PARAMETER_AMOUNT,     \
        .flags = WEIR_PARAMETER_DIVISIBLE, .min = (min_), .max = AMOUNT_MAX, .doc = (doc_)         \
    }

#define PARAMETER_CHOICE(name_, choices_, doc_)                                                    \
    {                                                                                              \
        .size = sizeof(struct weir_parameter), .name = (name_), .type = WEIR_PARAMETER_CHOICE,     \
        .choices = (choices_), .doc = (doc_)                                                       \
    }

#define PARAMETERS_CAPACITY_AND_WINDOW                                                             \
    {.size = sizeof(struct weir_parameter),                                                        \
     .name = "capacity",                                                                           \
     .type = WEIR_PARAMETER_AMOUNT,                                                                \
     .flags = WEIR_PARAMETER_REQUIRED | WEIR_PARAMETER_DIVISIBLE,                                  \
     .min = 1,                                                                                     \
     .max = AMOUNT_MAX,                                                                            \
     .doc = "units granted per window"},                                                           \
    {                                                                                              \
        .size = sizeof(struct weir_parameter), .name = "window", .type = WEIR_PARAMETER_DURATION,  \
        .flags = WEIR_PARAMETER_REQUIRED, .min = 1, .max = WINDOW_MAX,                             \
        .doc = "the time in which capacity units are granted"                                      \
    }

/* Types of limits that the algorithms serve. A resource is held; time does not replenish it. */
#define TYPES_OF_RATES (1u << WEIR_LIMIT_RATE | 1u << WEIR_LIMIT_CALL)

#define PLUGIN_TABLE(name_, state_id_, summary_)                                                   \
    static const struct weir_plugin plugin = {                                                     \
        .size = sizeof(plugin),                                                                    \
        .kind = WEIR_PLUGIN_ALGORITHM,                                                             \
        .parameters_n = sizeof(parameters) / sizeof(parameters[0]),                                \
        .name = (name_),                                                                           \
        .version = "1.0",                                                                          \
        .summary = (summary_),                                                                     \
        .parameters = parameters,                                                                  \
        .ops = &algorithm,                                                                         \
        .state_id = (state_id_),                                                                   \
    };                                                                                             \
    static const struct weir_plugin *const plugins[] = {&plugin};                                  \
    const struct weir_plugin_table weir_plugins_v1 = {                                             \
        .size = sizeof(weir_plugins_v1),                                                           \
        .abi_minor = WEIR_PLUGIN_ABI_MINOR,                                                        \
        .plugins_n = 1,                                                                            \
        .plugins = plugins,                                                                        \
    }

/* Fills the reason why `configure` refuses a parameter. Returns -1. */
static inline int refuse_parameter(struct weir_reason *reterr, uint32_t parameter,
                                   const char *message)
{
    size_t i = 0;
    for (; message[i] != '\0' && i + 1 < sizeof(reterr->message); i++)
        reterr->message[i] = message[i];
    reterr->message[i] = '\0';
    reterr->parameter = parameter;
    return -1;
}

/* Reads the optional initial amount, at most `full`, which is also the default. Returns 0, or -1
 * with the reason. */
static inline int read_initial(const struct weir_setup *setup, uint32_t index, uint64_t full,
                               uint64_t *ret, struct weir_reason *reterr)
{
    *ret = setup->values[index]->given ? setup->values[index]->value : full;
    if (*ret > full)
        return refuse_parameter(reterr, index,
                                "more than can ever be available: at most the burst, or the "
                                "capacity where there is none");
    return 0;
}

#endif
