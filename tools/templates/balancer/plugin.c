/*
 * __NAME__: a balancer for weir. It picks the cheapest set that grants now; if none does, the one
 * that would grant first. What a set costs is a parameter of each set. Sets of equal cost take
 * turns at random.
 *
 * It looks at one set after the other, the cheapest first, and no further than it has to.
 */
#include <weir/algorithm.h>
#include <weir/balancer.h>

enum { COST };

static const struct weir_parameter parameters[] = {
    [COST] = {.size = sizeof(struct weir_parameter),
              .name = "cost",
              .type = WEIR_PARAMETER_AMOUNT,
              .flags = WEIR_PARAMETER_PER_SET,
              .max = INT64_MAX,
              .doc = "what a request costs in the set; default 0"},
};

/* The configuration: one place for each set, the cheapest first. */
struct place {
    uint32_t set;
    uint32_t first;  /* of the places of equal cost, the first one, */
    uint32_t equals; /* and how many there are */
    uint32_t unused; /* 0: no byte is left undefined */
};

static uint64_t cost_of(const struct weir_setup *setup, uint32_t set)
{
    const struct weir_value *const *values = setup->sets ? setup->sets[set]->values : setup->values;

    return values[COST]->value;
}

/* Sorts the sets by cost. Of equal ones the first of the pool comes first. */
static void sort(const struct weir_setup *setup, struct place *places)
{
    for (uint32_t i = 0; i < setup->sets_n; i++) {
        uint32_t at = i;

        for (; at > 0 && cost_of(setup, places[at - 1].set) > cost_of(setup, i); at--)
            places[at].set = places[at - 1].set;
        places[at].set = i;
    }
}

/* Fills where the places of equal cost begin, and how many there are. */
static void group(const struct weir_setup *setup, struct place *places)
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

static int configure(const struct weir_setup *setup, void *bytes, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    (void)reterr;
    ret->config = setup->sets_n * sizeof(struct place);
    ret->state = 0;
    if (bytes) {
        sort(setup, bytes);
        group(setup, bytes);
    }
    return 0;
}

static const struct weir_set_view *view_of(const struct weir_pick *request, uint32_t set)
{
    const unsigned char *views = (const void *)request->views;

    return (const void *)(views + set * request->view_size);
}

/* Returns the set that is asked as the i-th. `random` is the same at each call for one pick. */
static uint32_t set_at(const struct place *places, uint32_t i, uint64_t random)
{
    const struct place *place = &places[i];

    return places[place->first + (i - place->first + random) % place->equals].set;
}

static uint32_t pick(const void *bytes, void *memory, const struct weir_pick *request)
{
    uint64_t random = request->random >> 32; /* so that no sum overflows */
    uint64_t soonest = 0;
    uint32_t best = WEIR_PICK_NONE;

    (void)memory;
    for (uint32_t i = 0; i < request->sets_n; i++) {
        uint32_t set = set_at(bytes, i, random);
        const struct weir_set_view *view = view_of(request, set);

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

static const struct weir_balancer balancer = {
    .size = sizeof(balancer),
    .flags = WEIR_BALANCER_LOOKS | WEIR_BALANCER_RANKS,
    .configure = configure,
    .pick = pick,
};

static const struct weir_plugin plugin = {
    .size = sizeof(plugin),
    .kind = WEIR_PLUGIN_BALANCER,
    .parameters_n = sizeof(parameters) / sizeof(parameters[0]),
    .name = "__NAME__",
    .version = "0.1",
    .summary = "the cheapest set that grants now, or else the one that grants first",
    .parameters = parameters,
    .ops = &balancer,
    .state_id = UINT64_C(__STATE_ID__), /* a new one for each change of config or state */
};

static const struct weir_plugin *const plugins[] = {&plugin};

const struct weir_plugin_table weir_plugins_v1 = {
    .size = sizeof(weir_plugins_v1),
    .abi_minor = WEIR_PLUGIN_ABI_MINOR,
    .plugins_n = 1,
    .plugins = plugins,
};
