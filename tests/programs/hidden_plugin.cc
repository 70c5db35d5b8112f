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

constexpr weir_parameter parameters[] = {{sizeof(weir_parameter), "capacity", WEIR_PARAMETER_AMOUNT,
                                      WEIR_PARAMETER_REQUIRED, 1, 100, 0, nullptr, nullptr}};
constexpr weir_algorithm algorithm = make_algorithm();
constexpr weir_plugin plugin = {sizeof(plugin), WEIR_PLUGIN_ALGORITHM, 1, "hidden", "1.0",
                            "grants everything", parameters, &algorithm};
const weir_plugin *const plugins[] = {&plugin};
} // namespace

const weir_plugin_table weir_plugins_v1 = {sizeof(weir_plugins_v1), WEIR_PLUGIN_ABI_MINOR, 1,
                                           plugins};
