/* SPDX-License-Identifier: MIT */
/*
 * The layout of the plugin ABI, as it was when it was settled: size and offset of each field, and
 * values of what plugins are compiled with. docs/plugin-abi.md says what may change: a struct may
 * grow, by rows at its end and a new size. No other row ever changes.
 */
#include <stdio.h>
#include <weir/algorithm.h>
#include <weir/balancer.h>

struct row {
    const char *what;
    size_t golden_offset, golden_size, offset, size;
    int is_struct;
};

#define STRUCT(type_, size_)                                                                       \
    {                                                                                              \
        "struct " #type_, 0, (size_), 0, sizeof(struct type_), 1                                   \
    }
#define FIELD(type_, field_, offset_, size_)                                                       \
    {                                                                                              \
#type_ "." #field_, (offset_), (size_), offsetof(struct type_, field_),                    \
            sizeof(((struct type_ *)0)->field_), 0                                                 \
    }

/* Each struct, then its fields, of which there are no others. */
static const struct row rows[] = {
    STRUCT(weir_plugin_table, 32),
    FIELD(weir_plugin_table, size, 0, 8),
    FIELD(weir_plugin_table, abi_minor, 8, 4),
    FIELD(weir_plugin_table, plugins_n, 12, 4),
    FIELD(weir_plugin_table, plugins, 16, 8),
    FIELD(weir_plugin_table, needs_minor, 24, 4),
    FIELD(weir_plugin_table, flags, 28, 4),
    STRUCT(weir_plugin, 72),
    FIELD(weir_plugin, size, 0, 8),
    FIELD(weir_plugin, kind, 8, 4),
    FIELD(weir_plugin, parameters_n, 12, 4),
    FIELD(weir_plugin, name, 16, 8),
    FIELD(weir_plugin, version, 24, 8),
    FIELD(weir_plugin, summary, 32, 8),
    FIELD(weir_plugin, parameters, 40, 8),
    FIELD(weir_plugin, ops, 48, 8),
    FIELD(weir_plugin, flags, 56, 4),
    FIELD(weir_plugin, reserved, 60, 4),
    FIELD(weir_plugin, state_id, 64, 8),
    STRUCT(weir_parameter, 64),
    FIELD(weir_parameter, size, 0, 8),
    FIELD(weir_parameter, name, 8, 8),
    FIELD(weir_parameter, type, 16, 4),
    FIELD(weir_parameter, flags, 20, 4),
    FIELD(weir_parameter, min, 24, 8),
    FIELD(weir_parameter, max, 32, 8),
    FIELD(weir_parameter, default_value, 40, 8),
    FIELD(weir_parameter, choices, 48, 8),
    FIELD(weir_parameter, doc, 56, 8),
    STRUCT(weir_value, 48),
    FIELD(weir_value, size, 0, 8),
    FIELD(weir_value, value, 8, 8),
    FIELD(weir_value, text, 16, 8),
    FIELD(weir_value, given, 24, 4),
    FIELD(weir_value, items_n, 28, 4),
    FIELD(weir_value, items, 32, 8),
    FIELD(weir_value, zone, 40, 8),
    STRUCT(weir_set_setup, 32),
    FIELD(weir_set_setup, size, 0, 8),
    FIELD(weir_set_setup, name, 8, 8),
    FIELD(weir_set_setup, weight, 16, 8),
    FIELD(weir_set_setup, values, 24, 8),
    STRUCT(weir_setup, 40),
    FIELD(weir_setup, size, 0, 8),
    FIELD(weir_setup, abi_minor, 8, 4),
    FIELD(weir_setup, values_n, 12, 4),
    FIELD(weir_setup, limit_type, 16, 4),
    FIELD(weir_setup, sets_n, 20, 4),
    FIELD(weir_setup, values, 24, 8),
    FIELD(weir_setup, sets, 32, 8),
    STRUCT(weir_reason, 264),
    FIELD(weir_reason, size, 0, 8),
    FIELD(weir_reason, parameter, 8, 4),
    FIELD(weir_reason, message, 12, 252),
    STRUCT(weir_footprint, 40),
    FIELD(weir_footprint, size, 0, 8),
    FIELD(weir_footprint, config, 8, 8),
    FIELD(weir_footprint, state, 16, 8),
    FIELD(weir_footprint, amount_max, 24, 8),
    FIELD(weir_footprint, flags, 32, 4),
    FIELD(weir_footprint, reserved, 36, 4),
    STRUCT(weir_instant, 16),
    FIELD(weir_instant, now_ns, 0, 8),
    FIELD(weir_instant, wall_offset_ns, 8, 8),
    STRUCT(weir_release, 40),
    FIELD(weir_release, size, 0, 8),
    FIELD(weir_release, amount, 8, 8),
    FIELD(weir_release, granted_ns, 16, 8),
    FIELD(weir_release, latency_ns, 24, 8),
    FIELD(weir_release, outcome, 32, 4),
    FIELD(weir_release, reserved, 36, 4),
    STRUCT(weir_gauge, 32),
    FIELD(weir_gauge, size, 0, 8),
    FIELD(weir_gauge, name, 8, 8),
    FIELD(weir_gauge, doc, 16, 8),
    FIELD(weir_gauge, type, 24, 4),
    FIELD(weir_gauge, flags, 28, 4),
    STRUCT(weir_algorithm, 152),
    FIELD(weir_algorithm, size, 0, 8),
    FIELD(weir_algorithm, types, 8, 4),
    FIELD(weir_algorithm, flags, 12, 4),
    FIELD(weir_algorithm, configure, 16, 8),
    FIELD(weir_algorithm, init, 24, 8),
    FIELD(weir_algorithm, ready_at, 32, 8),
    FIELD(weir_algorithm, take, 40, 8),
    FIELD(weir_algorithm, refund, 48, 8),
    FIELD(weir_algorithm, charge, 56, 8),
    FIELD(weir_algorithm, available, 64, 8),
    FIELD(weir_algorithm, release, 72, 8),
    FIELD(weir_algorithm, reconfigure, 80, 8),
    FIELD(weir_algorithm, migrate, 88, 8),
    FIELD(weir_algorithm, check, 96, 8),
    FIELD(weir_algorithm, try_take, 104, 8),
    FIELD(weir_algorithm, is_new, 112, 8),
    FIELD(weir_algorithm, refund_strict, 120, 8),
    FIELD(weir_algorithm, gauges, 128, 8),
    FIELD(weir_algorithm, gauges_n, 136, 4),
    FIELD(weir_algorithm, reserved, 140, 4),
    FIELD(weir_algorithm, observe, 144, 8),
    STRUCT(weir_balancer, 48),
    FIELD(weir_balancer, size, 0, 8),
    FIELD(weir_balancer, flags, 8, 4),
    FIELD(weir_balancer, reserved, 12, 4),
    FIELD(weir_balancer, configure, 16, 8),
    FIELD(weir_balancer, init, 24, 8),
    FIELD(weir_balancer, pick, 32, 8),
    FIELD(weir_balancer, outcome, 40, 8),
    STRUCT(weir_pick, 64),
    FIELD(weir_pick, size, 0, 8),
    FIELD(weir_pick, now_ns, 8, 8),
    FIELD(weir_pick, random, 16, 8),
    FIELD(weir_pick, route, 24, 8),
    FIELD(weir_pick, worker, 32, 4),
    FIELD(weir_pick, sets_n, 36, 4),
    FIELD(weir_pick, views, 40, 8),
    FIELD(weir_pick, view_size, 48, 8),
    FIELD(weir_pick, attempt, 56, 4),
    FIELD(weir_pick, reserved, 60, 4),
    STRUCT(weir_pick_outcome, 32),
    FIELD(weir_pick_outcome, size, 0, 8),
    FIELD(weir_pick_outcome, now_ns, 8, 8),
    FIELD(weir_pick_outcome, retry_after_ns, 16, 8),
    FIELD(weir_pick_outcome, index, 24, 4),
    FIELD(weir_pick_outcome, result, 28, 4),
    STRUCT(weir_set_view, 64),
    FIELD(weir_set_view, held, 0, 8),
    FIELD(weir_set_view, waiting, 8, 8),
    FIELD(weir_set_view, ready_at_ns, 16, 8),
    FIELD(weir_set_view, id, 24, 8),
    FIELD(weir_set_view, weight, 32, 8),
    FIELD(weir_set_view, capacity, 40, 8),
    FIELD(weir_set_view, available, 48, 8),
    FIELD(weir_set_view, flags, 56, 4),
    FIELD(weir_set_view, reserved, 60, 4),
};

struct constant {
    const char *what;
    unsigned long long golden, now;
};

#define CONSTANT(name_, golden_)                                                                   \
    {                                                                                              \
#name_, (golden_), (unsigned long long)(name_)                                             \
    }

static const struct constant constants[] = {
    CONSTANT(WEIR_PLUGIN_ABI_MAJOR, 1),
    CONSTANT(WEIR_PLUGIN_ABI_MINOR_FIRST, 4),
    CONSTANT(WEIR_FLAGS_NEEDED, 0xffff0000),
    CONSTANT(WEIR_PLUGIN_ALGORITHM, 1),
    CONSTANT(WEIR_PLUGIN_BALANCER, 2),
    CONSTANT(WEIR_PLUGIN_BACKEND, 3),
    CONSTANT(WEIR_PARAMETER_AMOUNT, 1),
    CONSTANT(WEIR_PARAMETER_DURATION, 2),
    CONSTANT(WEIR_PARAMETER_BOOLEAN, 3),
    CONSTANT(WEIR_PARAMETER_CHOICE, 4),
    CONSTANT(WEIR_PARAMETER_TEXT, 5),
    CONSTANT(WEIR_PARAMETER_RATIO, 6),
    CONSTANT(WEIR_PARAMETER_SIZE, 7),
    CONSTANT(WEIR_RATIO_ONE, 1000000000),
    CONSTANT(WEIR_LIST_MAX, 64),
    CONSTANT(WEIR_PARAMETER_DIVISIBLE, 2),
    CONSTANT(WEIR_PARAMETER_LIST, 1 << 16),
    CONSTANT(WEIR_PARAMETER_SECRET, 1 << 17),
    CONSTANT(WEIR_PARAMETER_PER_SET, 1 << 18),
    CONSTANT(WEIR_WEIGHT_MAX, 1000000),
    CONSTANT(WEIR_PARAMETER_ZONE, 8),
    CONSTANT(WEIR_PARAMETER_REQUIRED, 1),
    CONSTANT(WEIR_FOOTPRINT_NO_WALL, 1),
    CONSTANT(WEIR_CONFIG_MAX, 1 << 20),
    CONSTANT(WEIR_STATE_MAX, (1 << 26) - 128),
    CONSTANT(WEIR_LIMIT_RATE, 1),
    CONSTANT(WEIR_LIMIT_CALL, 2),
    CONSTANT(WEIR_LIMIT_RESOURCE, 3),
    CONSTANT(WEIR_NEVER, 0xffffffffffffffff),
    CONSTANT(WEIR_BLOCKED, 0xfffffffffffffffe),
    CONSTANT(WEIR_INSTANT_MAX, 0xfffffffffffffffd),
    CONSTANT(WEIR_CLOCK_MAX, 0x5fffffffffffffff),
    CONSTANT(WEIR_ALGORITHM_REFUNDS, 1),
    CONSTANT(WEIR_ALGORITHM_WALL, 2),
    CONSTANT(WEIR_ALGORITHM_WORD, 4),
    CONSTANT(WEIR_ALGORITHM_MONOTONE, 8),
    CONSTANT(WEIR_BALANCER_VIEWS, 1),
    CONSTANT(WEIR_BALANCER_LOOKS, 2),
    CONSTANT(WEIR_BALANCER_RANKS, 4),
    CONSTANT(WEIR_BALANCER_WEIGHS, 8),
    CONSTANT(WEIR_VIEW_LIVE, 1),
    CONSTANT(WEIR_VIEW_TRIED, 2),
    CONSTANT(WEIR_PICK_LOOK, 0x80000000),
    CONSTANT(WEIR_PICK_NONE, 0xffffffff),
    CONSTANT(WEIR_OUTCOME_SUCCESS, 0),
    CONSTANT(WEIR_OUTCOME_OVERLOAD, 1),
    CONSTANT(WEIR_OUTCOME_FAILURE, 2),
    CONSTANT(WEIR_OUTCOME_IGNORED, 3),
    CONSTANT(WEIR_OUTCOME_DROPPED, 4),
    CONSTANT(WEIR_OUTCOME_CANCELED, 5),
    CONSTANT(WEIR_GAUGES_MAX, 16),
};

/* Returns how many rows are not as they were. Fields lie one behind the other, without a gap, up to
 * the end of their struct: one that has no row would leave a gap. */
static int check_rows(void)
{
    const struct row *owner = NULL;
    size_t end = 0;
    int wrong = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        int is_last = i + 1 == sizeof(rows) / sizeof(rows[0]) || rows[i + 1].is_struct;
        if (row->offset != row->golden_offset || row->size != row->golden_size) {
            printf("%s: offset %zu, size %zu; it was at %zu, of size %zu\n", row->what, row->offset,
                   row->size, row->golden_offset, row->golden_size);
            wrong++;
        }
        owner = row->is_struct ? row : owner;
        if (!row->is_struct && row->offset != end) {
            printf("%s: something before it has no row\n", row->what);
            wrong++;
        }
        end = row->is_struct ? 0 : row->offset + row->size;
        if (is_last && end != owner->size) {
            printf("%s: something behind %s has no row\n", owner->what, row->what);
            wrong++;
        }
    }
    return wrong;
}

int main(void)
{
    int wrong = check_rows();
    for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++) {
        if (constants[i].now == constants[i].golden)
            continue;
        printf("%s is %llu; it was %llu\n", constants[i].what, constants[i].now,
               constants[i].golden);
        wrong++;
    }
    if (wrong)
        printf("the plugin ABI has changed for plugins that exist: see docs/plugin-abi.md\n");
    return wrong ? 1 : 0;
}
