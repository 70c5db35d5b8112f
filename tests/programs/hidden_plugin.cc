// SPDX-License-Identifier: MIT
// A plugin in C++, as the header says: an algorithm that grants everything. It is compiled with
// -fvisibility=hidden, and must export its table all the same.
#include <weir/algorithm.h>

namespace
{
int configure(const weir_setup *setup, void *, weir_footprint *ret, weir_reason *)
{
    ret->config = 8;
    ret->state = 8;
    ret->amount_max = setup->values[0]->value;
    return 0;
}

uint64_t ready_at(const void *, const void *, const weir_instant *at, uint64_t)
{
    return at->now_ns;
}

void take(const void *, void *, const weir_instant *, uint64_t)
{
}

uint64_t available(const void *, const void *, const weir_instant *)
{
    return 1;
}

constexpr weir_algorithm make_algorithm()
{
    weir_algorithm made{};
    made.size = sizeof(made);
    made.types = 1u << WEIR_LIMIT_CALL;
    made.configure = configure;
    made.ready_at = ready_at;
    made.take = take;
    made.available = available;
    return made;
}

constexpr weir_algorithm algorithm = make_algorithm();

// Members by name, one by one: structs of a later header have more of them.
constexpr weir_parameter make_parameter()
{
    weir_parameter made{};
    made.size = sizeof(made);
    made.name = "capacity";
    made.type = WEIR_PARAMETER_AMOUNT;
    made.flags = WEIR_PARAMETER_REQUIRED;
    made.min = 1;
    made.max = 100;
    return made;
}

constexpr weir_parameter parameters[] = {make_parameter()};

constexpr weir_plugin make_plugin()
{
    weir_plugin made{};
    made.size = sizeof(made);
    made.kind = WEIR_PLUGIN_ALGORITHM;
    made.parameters_n = 1;
    made.name = "hidden";
    made.version = "1.0";
    made.summary = "grants everything";
    made.parameters = parameters;
    made.ops = &algorithm;
    return made;
}

constexpr weir_plugin plugin = make_plugin();
const weir_plugin *const plugins[] = {&plugin};

constexpr weir_plugin_table make_table()
{
    weir_plugin_table made{};
    made.size = sizeof(made);
    made.abi_minor = WEIR_PLUGIN_ABI_MINOR;
    made.plugins_n = 1;
    made.plugins = plugins;
    return made;
}
} // namespace

const weir_plugin_table weir_plugins_v1 = make_table();
