/* SPDX-License-Identifier: MIT */
/*
 * Random histories of a resource with `max_hold`, against a plain model: a list of holders with the
 * instants of their grants, and a list of waiters in order. After each step everything that can be
 * seen of the set is as in the model: what is held and waits, what was told and revoked, what each
 * acquisition says. The number of operations is WEIR_OPERATIONS, the seed WEIR_SEED.
 */
#include "lib/random.h"
#include "lib/require.h"
#include "lib/world.h"

enum { ASKERS = 24, CAPACITY = 6 };

enum phase { NONE, WAITS, HOLDS, REVOKED };

struct asker {
    weir_acquisition *real;
    enum phase phase;
    uint64_t amount, granted_at;
    bool is_told;
};

static struct model {
    struct asker askers[ASKERS];
    struct asker *line[ASKERS]; /* of those that wait */
    unsigned line_n;
    uint64_t held, now, max_hold;
    bool revokes;
    uint64_t told, revoked, granted, released;
} model;

static uint64_t random_state;
static uint64_t heard; /* events */

static uint64_t below(uint64_t n)
{
    return random_below(&random_state, n);
}

/* ---- the model ---- */

static void model_grant(struct asker *asker)
{
    asker->phase = HOLDS;
    asker->granted_at = model.now;
    asker->is_told = false;
    model.held += asker->amount;
    model.granted++;
}

static void model_serve(void)
{
    while (model.line_n && model.line[0]->amount <= CAPACITY - model.held) {
        model_grant(model.line[0]);
        memmove(model.line, model.line + 1, --model.line_n * sizeof(model.line[0]));
    }
}

static void model_leave(const struct asker *asker)
{
    unsigned at = 0;

    while (model.line[at] != asker)
        at++;
    memmove(model.line + at, model.line + at + 1, (--model.line_n - at) * sizeof(model.line[0]));
}

/* All that are due are looked at in one go; what that lets others have is granted now. */
static void model_advance(uint64_t ns)
{
    model.now += ns;
    for (unsigned i = 0; i < ASKERS; i++) {
        struct asker *asker = &model.askers[i];

        if (asker->phase != HOLDS || model.now - asker->granted_at < model.max_hold)
            continue;
        model.told += !asker->is_told;
        asker->is_told = true;
        if (!model.revokes)
            continue;
        asker->phase = REVOKED;
        model.held -= asker->amount;
        model.revoked++;
        model.released++;
    }
    model_serve();
}

/* ---- comparing ---- */

static void compare(void)
{
    static const int results[] = {[WAITS] = -EINPROGRESS, [HOLDS] = 0, [REVOKED] = -EOWNERDEAD};
    struct weir_set_stats set = stats();
    struct weir_limit_stats limit = limit_stats(0);
    uint64_t due = WEIR_FOREVER, next;

    if (limit.held != model.held || set.waiting != model.line_n)
        fprintf(stderr, "held %u, not %u; %u wait, not %u; max_hold %u, revokes %d\n",
                (unsigned)limit.held, (unsigned)model.held, (unsigned)set.waiting, model.line_n,
                (unsigned)model.max_hold, model.revokes);
    require(limit.held == model.held && set.waiting == model.line_n);
    require(set.overheld == model.told && set.revoked == model.revoked);
    require(set.granted == model.granted && set.released == model.released);
    require(heard == model.told);
    for (unsigned i = 0; i < ASKERS; i++) {
        const struct asker *asker = &model.askers[i];

        if (asker->phase != NONE)
            require(weir_acquisition_result(asker->real) == results[asker->phase]);
        if (asker->phase == HOLDS && !asker->is_told && asker->granted_at + model.max_hold < due)
            due = asker->granted_at + model.max_hold;
    }
    require(weir_due_at(world.w, &next) == 0);
    require(next <= due);
}

/* ---- operations ---- */

static struct asker *find(enum phase phase)
{
    for (uint64_t i = below(ASKERS), n = 0; n < ASKERS; i = (i + 1) % ASKERS, n++)
        if (model.askers[i].phase == phase)
            return &model.askers[i];
    return NULL;
}

static void ask(const char *subject, bool waits)
{
    struct asker *asker = find(NONE);
    struct weir_amount amount = {"slot", 1 + below(CAPACITY)};
    struct weir_request request = {.size = sizeof(request),
                                   .amounts = &amount,
                                   .amounts_n = 1,
                                   .timeout_ns = WEIR_FOREVER,
                                   .subject = subject,
                                   .subject_size = subject ? strlen(subject) : 0};
    bool fits = !model.line_n && amount.amount <= CAPACITY - model.held;

    if (!asker)
        return;
    asker->amount = amount.amount;
    if (fits)
        model_grant(asker);
    if (waits) {
        require(submit(&request, &asker->real) == !fits);
        if (!fits) {
            asker->phase = WAITS;
            model.line[model.line_n++] = asker;
        }
    } else {
        require(try_acquire(&request, &asker->real) == (fits ? 0 : -EAGAIN));
    }
}

static void end(struct asker *asker)
{
    if (asker->phase == HOLDS) {
        model.held -= asker->amount;
        model.released++;
    } else if (asker->phase == WAITS) {
        model_leave(asker);
    }
    release_expecting(asker->real, asker->phase == REVOKED ? -EOWNERDEAD : 0);
    *asker = (struct asker){0};
    model_serve();
}

static void return_part(struct asker *asker)
{
    uint64_t n = 1 + below(asker->amount + 1);
    int r = weir_return(asker->real, "slot", n);

    if (n > asker->amount) {
        require(r == -ERANGE);
        return;
    }
    require(r == 0);
    asker->amount -= n;
    model.held -= n;
    model_serve();
}

static void step(const char *subject)
{
    struct asker *asker;

    switch (below(8)) {
    case 0:
    case 1:
        ask(subject, false);
        break;
    case 2:
    case 3:
        ask(subject, true);
        break;
    case 4:
        if ((asker = find(HOLDS)) || (asker = find(REVOKED)))
            end(asker);
        break;
    case 5:
        if ((asker = find(below(2) ? REVOKED : WAITS)))
            end(asker);
        break;
    case 6:
        if ((asker = find(HOLDS)))
            return_part(asker);
        break;
    default: {
        uint64_t ns = below(2) ? below(model.max_hold) : below(3 * model.max_hold / 2);

        advance(ns);
        model_advance(ns);
    }
    }
}

/* What holds nothing any more is not held too long. */
static bool is_empty_holder(const struct asker *asker)
{
    return asker->phase == HOLDS && asker->amount == 0;
}

static void hear(void *userdata, const struct weir_event *event)
{
    (void)userdata;
    require(event->type == WEIR_EVENT_OVERHELD);
    require(event->result == (model.revokes ? -EOWNERDEAD : 0));
    require(event->hold_ns >= model.max_hold);
    heard++;
}

static void run(const char *fields, const char *subject, uint64_t operations)
{
    char text[256];

    model = (struct model){.now = START,
                           .max_hold = below(2) ? 1 + below(100) * MS + MS : 1 + below(SECOND) + MS,
                           .revokes = below(2)};
    heard = 0;
    snprintf(text, sizeof(text),
             "%slimits: [ { type: resource, key: slot, capacity: %d, max_hold: %" PRIu64
             "ns, max_hold_action: %s } ]",
             fields, CAPACITY, model.max_hold, model.revokes ? "revoke" : "warn");
    world_set(text);
    require(weir_listen(world.w, &(struct weir_listener){.size = sizeof(struct weir_listener),
                                                         .event = hear,
                                                         .types = 1u << WEIR_EVENT_OVERHELD}) == 0);
    for (uint64_t i = 0; i < operations; i++) {
        step(subject);
        for (unsigned k = 0; k < ASKERS; k++)
            if (is_empty_holder(&model.askers[k]))
                end(&model.askers[k]);
        compare();
    }
    for (unsigned i = 0; i < ASKERS; i++)
        if (model.askers[i].phase != NONE)
            end(&model.askers[i]);
    compare();
    require(model.held == 0);
    world_close();
}

static void histories_are_as_in_the_model(void **state)
{
    static const char *const fields[] = {"", "fair: per_limit, ", "priorities: 3, ",
                                         "subjects: { max: 4 }, "};
    uint64_t operations = random_operations(400);

    (void)state;
    seed_begin();
    random_state = test_seed;
    for (unsigned turn = 0; turn < 24; turn++)
        run(fields[turn % 4], turn % 4 == 3 ? "s" : NULL, operations);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {leak_checked_test(histories_are_as_in_the_model)};

    backend_choose(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
