/*
 * Prints what the installed headers say of each field (where it lies, and its size) and constant.
 * layout.rs prints what weir.rs says; `make check` compares the two. Later headers may have more
 * fields at the end of a struct: a plugin that does not know them works on.
 */
#include <stddef.h>
#include <stdio.h>
#include <weir/algorithm.h>
#include <weir/balancer.h>

#define FIELD(type, field)                                                                         \
    printf("%s.%s %zu %zu\n", #type, #field, offsetof(struct type, field),                         \
           sizeof(((struct type *)NULL)->field))
#define VALUE(name) printf("%s %llu\n", #name, (unsigned long long)(name))

static void print_plugin(void)
{
    FIELD(weir_parameter, size);
    FIELD(weir_parameter, name);
    FIELD(weir_parameter, type);
    FIELD(weir_parameter, flags);
    FIELD(weir_parameter, min);
    FIELD(weir_parameter, max);
    FIELD(weir_parameter, default_value);
    FIELD(weir_parameter, choices);
    FIELD(weir_parameter, doc);
    FIELD(weir_value, size);
    FIELD(weir_value, value);
    FIELD(weir_value, text);
    FIELD(weir_value, given);
    FIELD(weir_value, items_n);
    FIELD(weir_value, items);
    FIELD(weir_value, zone);
    FIELD(weir_set_setup, size);
    FIELD(weir_set_setup, name);
    FIELD(weir_set_setup, weight);
    FIELD(weir_set_setup, values);
    FIELD(weir_setup, size);
    FIELD(weir_setup, abi_minor);
    FIELD(weir_setup, values_n);
    FIELD(weir_setup, limit_type);
    FIELD(weir_setup, sets_n);
    FIELD(weir_setup, values);
    FIELD(weir_setup, sets);
    FIELD(weir_reason, size);
    FIELD(weir_reason, parameter);
    FIELD(weir_reason, message);
    FIELD(weir_footprint, size);
    FIELD(weir_footprint, config);
    FIELD(weir_footprint, state);
    FIELD(weir_footprint, amount_max);
    FIELD(weir_footprint, flags);
    FIELD(weir_footprint, reserved);
    FIELD(weir_plugin, size);
    FIELD(weir_plugin, kind);
    FIELD(weir_plugin, parameters_n);
    FIELD(weir_plugin, name);
    FIELD(weir_plugin, version);
    FIELD(weir_plugin, summary);
    FIELD(weir_plugin, parameters);
    FIELD(weir_plugin, ops);
    FIELD(weir_plugin, flags);
    FIELD(weir_plugin, reserved);
    FIELD(weir_plugin, state_id);
    FIELD(weir_plugin_table, size);
    FIELD(weir_plugin_table, abi_minor);
    FIELD(weir_plugin_table, plugins_n);
    FIELD(weir_plugin_table, plugins);
    FIELD(weir_plugin_table, needs_minor);
    FIELD(weir_plugin_table, flags);
}

static void print_algorithm(void)
{
    FIELD(weir_instant, now_ns);
    FIELD(weir_instant, wall_offset_ns);
    FIELD(weir_release, size);
    FIELD(weir_release, amount);
    FIELD(weir_release, granted_ns);
    FIELD(weir_release, latency_ns);
    FIELD(weir_release, outcome);
    FIELD(weir_release, reserved);
    FIELD(weir_gauge, size);
    FIELD(weir_gauge, name);
    FIELD(weir_gauge, doc);
    FIELD(weir_gauge, type);
    FIELD(weir_gauge, flags);
    FIELD(weir_algorithm, size);
    FIELD(weir_algorithm, types);
    FIELD(weir_algorithm, flags);
    FIELD(weir_algorithm, configure);
    FIELD(weir_algorithm, init);
    FIELD(weir_algorithm, ready_at);
    FIELD(weir_algorithm, take);
    FIELD(weir_algorithm, refund);
    FIELD(weir_algorithm, charge);
    FIELD(weir_algorithm, available);
    FIELD(weir_algorithm, release);
    FIELD(weir_algorithm, reconfigure);
    FIELD(weir_algorithm, migrate);
    FIELD(weir_algorithm, check);
    FIELD(weir_algorithm, try_take);
    FIELD(weir_algorithm, is_new);
    FIELD(weir_algorithm, refund_strict);
    FIELD(weir_algorithm, gauges);
    FIELD(weir_algorithm, gauges_n);
    FIELD(weir_algorithm, reserved);
    FIELD(weir_algorithm, observe);
}

static void print_balancer(void)
{
    FIELD(weir_set_view, held);
    FIELD(weir_set_view, waiting);
    FIELD(weir_set_view, ready_at_ns);
    FIELD(weir_set_view, id);
    FIELD(weir_set_view, weight);
    FIELD(weir_set_view, capacity);
    FIELD(weir_set_view, available);
    FIELD(weir_set_view, flags);
    FIELD(weir_set_view, reserved);
    FIELD(weir_pick, size);
    FIELD(weir_pick, now_ns);
    FIELD(weir_pick, random);
    FIELD(weir_pick, route);
    FIELD(weir_pick, worker);
    FIELD(weir_pick, sets_n);
    FIELD(weir_pick, views);
    FIELD(weir_pick, view_size);
    FIELD(weir_pick, attempt);
    FIELD(weir_pick, reserved);
    FIELD(weir_pick_outcome, size);
    FIELD(weir_pick_outcome, now_ns);
    FIELD(weir_pick_outcome, retry_after_ns);
    FIELD(weir_pick_outcome, index);
    FIELD(weir_pick_outcome, result);
    FIELD(weir_balancer, size);
    FIELD(weir_balancer, flags);
    FIELD(weir_balancer, reserved);
    FIELD(weir_balancer, configure);
    FIELD(weir_balancer, init);
    FIELD(weir_balancer, pick);
    FIELD(weir_balancer, outcome);
}

static void print_constants(void)
{
    VALUE(WEIR_PLUGIN_ALGORITHM);
    VALUE(WEIR_PLUGIN_BALANCER);
    VALUE(WEIR_PARAMETER_AMOUNT);
    VALUE(WEIR_PARAMETER_DURATION);
    VALUE(WEIR_PARAMETER_BOOLEAN);
    VALUE(WEIR_PARAMETER_CHOICE);
    VALUE(WEIR_PARAMETER_TEXT);
    VALUE(WEIR_PARAMETER_RATIO);
    VALUE(WEIR_PARAMETER_SIZE);
    VALUE(WEIR_PARAMETER_ZONE);
    VALUE(WEIR_PARAMETER_REQUIRED);
    VALUE(WEIR_PARAMETER_DIVISIBLE);
    VALUE(WEIR_PARAMETER_LIST);
    VALUE(WEIR_PARAMETER_PER_SET);
    VALUE(WEIR_LIMIT_RATE);
    VALUE(WEIR_LIMIT_CALL);
    VALUE(WEIR_LIMIT_RESOURCE);
    VALUE(WEIR_NEVER);
    VALUE(WEIR_BLOCKED);
    VALUE(WEIR_INSTANT_MAX);
    VALUE(WEIR_CLOCK_MAX);
    VALUE(WEIR_ALGORITHM_REFUNDS);
    VALUE(WEIR_ALGORITHM_WALL);
    VALUE(WEIR_ALGORITHM_WORD);
    VALUE(WEIR_ALGORITHM_MONOTONE);
    VALUE(WEIR_VIEW_LIVE);
    VALUE(WEIR_VIEW_TRIED);
    VALUE(WEIR_BALANCER_VIEWS);
    VALUE(WEIR_BALANCER_LOOKS);
    VALUE(WEIR_BALANCER_RANKS);
    VALUE(WEIR_PICK_LOOK);
    VALUE(WEIR_PICK_NONE);
}

int main(void)
{
    print_plugin();
    print_algorithm();
    print_balancer();
    print_constants();
    return 0;
}
