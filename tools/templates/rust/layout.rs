//! Prints what weir.rs says of each field (where it lies, and its size) and constant, as layout.c does
//! for the headers.

mod weir;

use std::mem::{size_of, MaybeUninit};
use std::ptr::addr_of;
use weir::*;

fn size_of_pointee<T>(_: *const T) -> usize {
    size_of::<T>()
}

macro_rules! field {
    ($in_c:literal, $type:ty, $field:ident) => {{
        let memory = MaybeUninit::<$type>::uninit();
        let field = unsafe { addr_of!((*memory.as_ptr()).$field) };
        let offset = field as usize - memory.as_ptr() as usize;
        let name = stringify!($field).trim_end_matches('_');
        println!("{}.{} {} {}", $in_c, name, offset, size_of_pointee(field));
    }};
}

macro_rules! value {
    ($name:ident) => {
        println!("WEIR_{} {}", stringify!($name), $name)
    };
}

fn print_plugin() {
    field!("weir_parameter", Parameter, size);
    field!("weir_parameter", Parameter, name);
    field!("weir_parameter", Parameter, type_);
    field!("weir_parameter", Parameter, flags);
    field!("weir_parameter", Parameter, min);
    field!("weir_parameter", Parameter, max);
    field!("weir_parameter", Parameter, default_value);
    field!("weir_parameter", Parameter, choices);
    field!("weir_parameter", Parameter, doc);
    field!("weir_value", Value, size);
    field!("weir_value", Value, value);
    field!("weir_value", Value, text);
    field!("weir_value", Value, given);
    field!("weir_value", Value, items_n);
    field!("weir_value", Value, items);
    field!("weir_value", Value, zone);
    field!("weir_set_setup", SetSetup, size);
    field!("weir_set_setup", SetSetup, name);
    field!("weir_set_setup", SetSetup, weight);
    field!("weir_set_setup", SetSetup, values);
    field!("weir_setup", Setup, size);
    field!("weir_setup", Setup, abi_minor);
    field!("weir_setup", Setup, values_n);
    field!("weir_setup", Setup, limit_type);
    field!("weir_setup", Setup, sets_n);
    field!("weir_setup", Setup, values);
    field!("weir_setup", Setup, sets);
    field!("weir_reason", Reason, size);
    field!("weir_reason", Reason, parameter);
    field!("weir_reason", Reason, message);
    field!("weir_footprint", Footprint, size);
    field!("weir_footprint", Footprint, config);
    field!("weir_footprint", Footprint, state);
    field!("weir_footprint", Footprint, amount_max);
    field!("weir_footprint", Footprint, flags);
    field!("weir_footprint", Footprint, reserved);
    field!("weir_plugin", Plugin, size);
    field!("weir_plugin", Plugin, kind);
    field!("weir_plugin", Plugin, parameters_n);
    field!("weir_plugin", Plugin, name);
    field!("weir_plugin", Plugin, version);
    field!("weir_plugin", Plugin, summary);
    field!("weir_plugin", Plugin, parameters);
    field!("weir_plugin", Plugin, ops);
    field!("weir_plugin", Plugin, flags);
    field!("weir_plugin", Plugin, reserved);
    field!("weir_plugin", Plugin, state_id);
    field!("weir_plugin_table", PluginTable, size);
    field!("weir_plugin_table", PluginTable, abi_minor);
    field!("weir_plugin_table", PluginTable, plugins_n);
    field!("weir_plugin_table", PluginTable, plugins);
    field!("weir_plugin_table", PluginTable, needs_minor);
    field!("weir_plugin_table", PluginTable, flags);
}

fn print_algorithm() {
    field!("weir_instant", Instant, now_ns);
    field!("weir_instant", Instant, wall_offset_ns);
    field!("weir_release", Release, size);
    field!("weir_release", Release, amount);
    field!("weir_release", Release, granted_ns);
    field!("weir_release", Release, latency_ns);
    field!("weir_release", Release, outcome);
    field!("weir_release", Release, reserved);
    field!("weir_gauge", Gauge, size);
    field!("weir_gauge", Gauge, name);
    field!("weir_gauge", Gauge, doc);
    field!("weir_gauge", Gauge, type_);
    field!("weir_gauge", Gauge, flags);
    field!("weir_algorithm", Algorithm, size);
    field!("weir_algorithm", Algorithm, types);
    field!("weir_algorithm", Algorithm, flags);
    field!("weir_algorithm", Algorithm, configure);
    field!("weir_algorithm", Algorithm, init);
    field!("weir_algorithm", Algorithm, ready_at);
    field!("weir_algorithm", Algorithm, take);
    field!("weir_algorithm", Algorithm, refund);
    field!("weir_algorithm", Algorithm, charge);
    field!("weir_algorithm", Algorithm, available);
    field!("weir_algorithm", Algorithm, release);
    field!("weir_algorithm", Algorithm, reconfigure);
    field!("weir_algorithm", Algorithm, migrate);
    field!("weir_algorithm", Algorithm, check);
    field!("weir_algorithm", Algorithm, try_take);
    field!("weir_algorithm", Algorithm, is_new);
    field!("weir_algorithm", Algorithm, refund_strict);
    field!("weir_algorithm", Algorithm, gauges);
    field!("weir_algorithm", Algorithm, gauges_n);
    field!("weir_algorithm", Algorithm, reserved);
    field!("weir_algorithm", Algorithm, observe);
}

fn print_balancer() {
    field!("weir_set_view", SetView, held);
    field!("weir_set_view", SetView, waiting);
    field!("weir_set_view", SetView, ready_at_ns);
    field!("weir_set_view", SetView, id);
    field!("weir_set_view", SetView, weight);
    field!("weir_set_view", SetView, capacity);
    field!("weir_set_view", SetView, available);
    field!("weir_set_view", SetView, flags);
    field!("weir_set_view", SetView, reserved);
    field!("weir_pick", Pick, size);
    field!("weir_pick", Pick, now_ns);
    field!("weir_pick", Pick, random);
    field!("weir_pick", Pick, route);
    field!("weir_pick", Pick, worker);
    field!("weir_pick", Pick, sets_n);
    field!("weir_pick", Pick, views);
    field!("weir_pick", Pick, view_size);
    field!("weir_pick", Pick, attempt);
    field!("weir_pick", Pick, reserved);
    field!("weir_pick_outcome", PickOutcome, size);
    field!("weir_pick_outcome", PickOutcome, now_ns);
    field!("weir_pick_outcome", PickOutcome, retry_after_ns);
    field!("weir_pick_outcome", PickOutcome, index);
    field!("weir_pick_outcome", PickOutcome, result);
    field!("weir_balancer", Balancer, size);
    field!("weir_balancer", Balancer, flags);
    field!("weir_balancer", Balancer, reserved);
    field!("weir_balancer", Balancer, configure);
    field!("weir_balancer", Balancer, init);
    field!("weir_balancer", Balancer, pick);
    field!("weir_balancer", Balancer, outcome);
}

fn print_constants() {
    value!(PLUGIN_ALGORITHM);
    value!(PLUGIN_BALANCER);
    value!(PARAMETER_AMOUNT);
    value!(PARAMETER_DURATION);
    value!(PARAMETER_BOOLEAN);
    value!(PARAMETER_CHOICE);
    value!(PARAMETER_TEXT);
    value!(PARAMETER_RATIO);
    value!(PARAMETER_SIZE);
    value!(PARAMETER_ZONE);
    value!(PARAMETER_REQUIRED);
    value!(PARAMETER_DIVISIBLE);
    value!(PARAMETER_LIST);
    value!(PARAMETER_PER_SET);
    value!(LIMIT_RATE);
    value!(LIMIT_CALL);
    value!(LIMIT_RESOURCE);
    value!(NEVER);
    value!(BLOCKED);
    value!(INSTANT_MAX);
    value!(CLOCK_MAX);
    value!(ALGORITHM_REFUNDS);
    value!(ALGORITHM_WALL);
    value!(ALGORITHM_WORD);
    value!(ALGORITHM_MONOTONE);
    value!(VIEW_LIVE);
    value!(VIEW_TRIED);
    value!(BALANCER_VIEWS);
    value!(BALANCER_LOOKS);
    value!(BALANCER_RANKS);
    value!(PICK_LOOK);
    value!(PICK_NONE);
}

fn main() {
    print_plugin();
    print_algorithm();
    print_balancer();
    print_constants();
}
