// __NAME__: a balancer for weir. It picks the cheapest set that grants now; if none does, the one
// that would grant first. What a set costs is a parameter of each set. Sets of equal cost take
// turns at random.
//
// It looks at one set after the other, the cheapest first, and no further than it has to. Nothing
// of the library of C++ is linked.
#include <weir/algorithm.h>
#include <weir/balancer.h>

namespace
{
enum { COST, PARAMETERS };

// The configuration: one place for each set, the cheapest first.
struct place {
    uint32_t set;
    uint32_t first;  // of the places of equal cost, the first one,
    uint32_t equals; // and how many there are
    uint32_t unused; // 0: no byte is left undefined
};

uint64_t cost_of(const weir_setup *setup, uint32_t set)
{
    const auto *values = setup->sets ? setup->sets[set]->values : setup->values;

    return values[COST]->value;
}

// Sorts the sets by cost. Of equal ones the first of the pool comes first.
void sort(const weir_setup *setup, place *places)
{
    for (uint32_t i = 0; i < setup->sets_n; i++) {
        uint32_t at = i;

        for (; at > 0 && cost_of(setup, places[at - 1].set) > cost_of(setup, i); at--)
            places[at].set = places[at - 1].set;
        places[at].set = i;
    }
}

// Fills where the places of equal cost begin, and how many there are.
void group(const weir_setup *setup, place *places)
{
    for (uint32_t first = 0, end = 0; first < setup->sets_n; first = end) {
        uint64_t cost = cost_of(setup, places[first].set);

        while (end < setup->sets_n && cost_of(setup, places[end].set) == cost)
            end++;
        for (uint32_t i = first; i < end; i++) {
            places[i].first = first;
            places[i].equals = end - first;
        }
    }
}

int configure(const weir_setup *setup, void *bytes, weir_footprint *ret, weir_reason *)
{
    ret->config = setup->sets_n * sizeof(place);
    ret->state = 0;
    if (bytes) {
        sort(setup, static_cast<place *>(bytes));
        group(setup, static_cast<place *>(bytes));
    }
    return 0;
}

const weir_set_view *view_of(const weir_pick *request, uint32_t set)
{
    const auto *views = reinterpret_cast<const unsigned char *>(request->views);

    return reinterpret_cast<const weir_set_view *>(views + set * request->view_size);
}

// Returns the set that is asked as the i-th. `random` is the same at each call for one pick.
uint32_t set_at(const place *places, uint32_t i, uint64_t random)
{
    const place *place = &places[i];

    return places[place->first + (i - place->first + random) % place->equals].set;
}

uint32_t pick(const void *bytes, void *, const weir_pick *request)
{
    uint64_t random = request->random >> 32; // so that no sum overflows
    uint64_t soonest = 0;
    uint32_t best = WEIR_PICK_NONE;

    for (uint32_t i = 0; i < request->sets_n; i++) {
        uint32_t set = set_at(static_cast<const place *>(bytes), i, random);
        const weir_set_view *view = view_of(request, set);

        if (view->flags & WEIR_VIEW_TRIED)
            continue;
        if (!(view->flags & WEIR_VIEW_LIVE))
            return set | WEIR_PICK_LOOK;
        if (view->ready_at_ns <= request->now_ns)
            return set;
        if (best == WEIR_PICK_NONE || view->ready_at_ns < soonest) {
            best = set;
            soonest = view->ready_at_ns;
        }
    }
    return best;
}

// Structs are filled by name, one member after the other: those of a later header have more.
constexpr weir_parameter cost()
{
    weir_parameter made{};
    made.size = sizeof(made);
    made.name = "cost";
    made.type = WEIR_PARAMETER_AMOUNT;
    made.flags = WEIR_PARAMETER_PER_SET;
    made.max = INT64_MAX;
    made.doc = "what a request costs in the set; default 0";
    return made;
}

constexpr weir_parameter parameters[PARAMETERS] = {cost()};

constexpr weir_balancer make_balancer()
{
    weir_balancer made{};
    made.size = sizeof(made);
    made.flags = WEIR_BALANCER_LOOKS | WEIR_BALANCER_RANKS;
    made.configure = configure;
    made.pick = pick;
    return made;
}

constexpr weir_balancer balancer = make_balancer();

constexpr weir_plugin make_plugin()
{
    weir_plugin made{};
    made.size = sizeof(made);
    made.kind = WEIR_PLUGIN_BALANCER;
    made.parameters_n = PARAMETERS;
    made.name = "__NAME__";
    made.version = "0.1";
    made.summary = "the cheapest set that grants now, or else the one that grants first";
    made.parameters = parameters;
    made.ops = &balancer;
    made.state_id = UINT64_C(__STATE_ID__); // a new one for each change of config or state
    return made;
}

constexpr weir_plugin plugin = make_plugin();
constexpr const weir_plugin *plugins[] = {&plugin};

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
