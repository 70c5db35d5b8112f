/* SPDX-License-Identifier: MIT */
/* Classes of requests: shares and priorities, against rules and against a model of their own. */
#include "lib/random.h"
#include "lib/world.h"
#include <inttypes.h>

#define ONE_AT_A_TIME                                                                              \
    "limits: [ { type: rate, key: tokens, algorithm: token_bucket, capacity: 1000, window: 1s, "   \
    "burst: 1 } ]"
#define SHARES     "shares: { gold: 5, silver: 3, bronze: 2 }, "
#define PRIORITIES "priorities: 3, ageing: 20, "

#define CLASSES 3u
static const char *const share_names[CLASSES] = {"gold", "silver", "bronze"};
static const char *const priority_names[CLASSES] = {"0", "1", "2"};

static struct weir_request *of_class(struct weir_request *request, const char *name)
{
    request->wait_class = name;
    return request;
}

/* ---- what is counted ---- */

/* Reads the classes, and compares their sums with what the set counts. */
static void read_classes(struct weir_class_stats *ret)
{
    struct weir_class_stats sum = {.name = ""};
    struct weir_set_stats set = stats();

    assert_int_equal(weir_set_classes(world.set, ret, CLASSES), CLASSES);
    for (unsigned c = 0; c < CLASSES; c++) {
        sum.granted += ret[c].granted;
        sum.granted_waited += ret[c].granted_waited;
        sum.refused += ret[c].refused;
        sum.timed_out += ret[c].timed_out;
        sum.wait_ns_sum += ret[c].wait_ns_sum;
    }
    assert_int_equal(sum.granted, set.granted);
    assert_int_equal(sum.granted_waited, set.granted_waited);
    assert_int_equal(sum.refused, set.refused_busy + set.refused_max_wait + set.refused_full +
                                      set.refused_impossible + set.refused_deadlock);
    assert_int_equal(sum.timed_out, set.timed_out);
    assert_int_equal(sum.wait_ns_sum, set.wait_ns_sum);
}

/* Asserts what is counted of one class. */
static void expect_counts(unsigned c, uint64_t granted, uint64_t waited, uint64_t refused,
                          uint64_t timed_out)
{
    struct weir_class_stats classes[CLASSES];

    read_classes(classes);
    assert_int_equal(classes[c].granted, granted);
    assert_int_equal(classes[c].granted_waited, waited);
    assert_int_equal(classes[c].refused, refused);
    assert_int_equal(classes[c].timed_out, timed_out);
}

/* ---- what is granted under overload ---- */

#define WAITERS 8u

/* Waiters of each class, of which there are always as many. */
struct load {
    weir_acquisition *waiters[CLASSES][WAITERS];
    uint64_t since[CLASSES][WAITERS]; /* grants in all, when it began to wait */
    uint64_t granted[CLASSES], grants, longest[CLASSES];
    bool is_idle[CLASSES];
};

static void load_enqueue(struct load *load, const char *const *names, unsigned c, unsigned i)
{
    load->waiters[c][i] = pending(of_class(ASK({"tokens", 1}), names[c]));
    load->since[c][i] = load->grants;
}

static void load_start(struct load *load, const char *const *names)
{
    assert_int_equal(take(ASK({"tokens", 1})), 0);
    for (unsigned i = 0; i < WAITERS; i++)
        for (unsigned c = 0; c < CLASSES; c++)
            if (!load->is_idle[c])
                load_enqueue(load, names, c, i);
}

/* Passes `ms` milliseconds, in each of which one request is granted. Those that are granted are
 * followed by others. The wait of a class is that of its first waiter. */
static void load_run(struct load *load, const char *const *names, unsigned ms)
{
    uint64_t last[CLASSES] = {load->grants, load->grants, load->grants};

    for (unsigned step = 0; step < ms; step++) {
        assert_int_equal(advance(SECOND / 1000), 1);
        load->grants++;
        for (unsigned c = 0; c < CLASSES; c++)
            for (unsigned i = 0; i < WAITERS; i++) {
                if (!load->waiters[c][i] || weir_acquisition_result(load->waiters[c][i]) != 0)
                    continue;
                release_used(load->waiters[c][i], "tokens", 1);
                load->granted[c]++;
                if (load->grants - last[c] > load->longest[c])
                    load->longest[c] = load->grants - last[c];
                last[c] = load->grants;
                load_enqueue(load, names, c, i);
            }
    }
}

static void load_end(struct load *load)
{
    for (unsigned c = 0; c < CLASSES; c++)
        for (unsigned i = 0; i < WAITERS; i++)
            if (load->waiters[c][i])
                release(load->waiters[c][i]);
    world_close();
}

static void assert_share(uint64_t granted, uint64_t of, uint64_t percent)
{
    assert_true(granted * 100 >= of * (percent - 1) && granted * 100 <= of * (percent + 1));
}

static void weights_5_3_2_share_an_overloaded_rate_as_50_30_20(void **state)
{
    struct load load = {0};

    (void)state;
    world_set(SHARES ONE_AT_A_TIME);
    load_start(&load, share_names);
    load_run(&load, share_names, 10000);
    assert_share(load.granted[0], 10000, 50);
    assert_share(load.granted[1], 10000, 30);
    assert_share(load.granted[2], 10000, 20);
    /* The first, which did not wait, was of the last class. */
    for (unsigned c = 0; c < CLASSES; c++)
        expect_counts(c, load.granted[c] + (c == 2), load.granted[c], 0, 0);
    load_end(&load);
}

static void the_share_of_an_idle_class_goes_to_the_others(void **state)
{
    struct load load = {.is_idle = {true, false, false}};

    (void)state;
    world_set(SHARES ONE_AT_A_TIME);
    load_start(&load, share_names);
    load_run(&load, share_names, 10000);
    assert_int_equal(load.granted[0], 0);
    assert_share(load.granted[1], 10000, 60);
    assert_share(load.granted[2], 10000, 40);
    load_end(&load);
}

/* What a class did not use while it was idle does not come back to it. */
static void a_class_that_was_idle_gets_no_more_than_its_share(void **state)
{
    struct load load = {.is_idle = {true, false, false}};

    (void)state;
    world_set(SHARES ONE_AT_A_TIME);
    load_start(&load, share_names);
    load_run(&load, share_names, 5000);
    for (unsigned i = 0; i < WAITERS; i++)
        load_enqueue(&load, share_names, 0, i);
    memset(load.granted, 0, sizeof(load.granted));
    load_run(&load, share_names, 1000);
    assert_share(load.granted[0], 1000, 50);
    assert_share(load.granted[1], 1000, 30);
    assert_share(load.granted[2], 1000, 20);
    load_end(&load);
}

static void priorities_go_first_and_starve_no_class(void **state)
{
    struct load load = {0};

    (void)state;
    world_set(PRIORITIES ONE_AT_A_TIME);
    load_start(&load, priority_names);
    load_run(&load, priority_names, 10000);
    /* Each class has one of ageing + n - 1 grants in a row. */
    assert_true(load.longest[1] <= 20 + 3 - 1 && load.longest[2] <= 20 + 3 - 1);
    assert_true(load.granted[1] >= 10000 / 22 && load.granted[2] >= 10000 / 22);
    assert_true(load.granted[0] >= 10000 - 2 * 10000 / 20);
    load_end(&load);
}

/* ---- single rules ---- */

static void expect_order(weir_acquisition *const *waiters, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(advance(SECOND / 1000), 1);
        for (unsigned j = 0; j < n; j++)
            assert_int_equal(weir_acquisition_result(waiters[j]), j <= i ? 0 : -EINPROGRESS);
    }
    for (unsigned i = 0; i < n; i++)
        release_used(waiters[i], "tokens", 1);
}

static void priorities_are_served_in_order_and_fifo_within(void **state)
{
    weir_acquisition *waiters[6];

    (void)state;
    world_set(PRIORITIES ONE_AT_A_TIME);
    assert_int_equal(take(ASK({"tokens", 1})), 0);
    waiters[4] = pending(of_class(ASK({"tokens", 1}), "2"));
    waiters[2] = pending(of_class(ASK({"tokens", 1}), "1"));
    waiters[0] = pending(of_class(ASK({"tokens", 1}), "0"));
    waiters[5] = pending(ASK({"tokens", 1})); /* no class: the last one */
    waiters[3] = pending(of_class(ASK({"tokens", 1}), "1"));
    waiters[1] = pending(of_class(ASK({"tokens", 1}), "0"));
    expect_order(waiters, 6);
    world_close();
}

static void a_new_request_passes_only_waiters_of_worse_classes(void **state)
{
    weir_acquisition *waiter, *holder;

    (void)state;
    world_set("priorities: 2, limits: [ { type: resource, key: a, capacity: 4 } ]");
    holder = granted(ASK({"a", 3}));
    waiter = pending(of_class(ASK({"a", 2}), "1"));
    assert_int_equal(take(of_class(ASK({"a", 0}), "1")), 0);
    release(granted(of_class(ASK({"a", 1}), "0")));
    assert_int_equal(try_acquire(of_class(ASK({"a", 1}), "1"), &holder), -EAGAIN);
    release(holder);
    assert_int_equal(weir_acquisition_result(waiter), 0);
    release(waiter);
    world_close();
}

/* A newcomer that passes a class brings its turn nearer. */
static void new_requests_do_not_starve_a_waiter(void **state)
{
    weir_acquisition *waiter, *holder, *ignored;
    unsigned passed = 0;

    (void)state;
    world_set("priorities: 2, ageing: 7, limits: [ { type: resource, key: a, capacity: 4 } ]");
    holder = granted(ASK({"a", 3}));
    waiter = pending(of_class(ASK({"a", 2}), "1"));
    while (try_acquire(of_class(ASK({"a", 1}), "0"), &ignored) == 0) {
        release(ignored);
        passed++;
    }
    assert_int_equal(passed, 7);
    release(holder);
    assert_int_equal(weir_acquisition_result(waiter), 0);
    release(waiter);
    world_close();
}

static void nested_requests_go_before_all_classes(void **state)
{
    weir_acquisition *outer, *waiter, *nested;
    struct weir_request *request = of_class(ASK({"a", 1}), "1");

    (void)state;
    world_set("priorities: 2, limits: [ { type: resource, key: a, capacity: 2 } ]");
    outer = granted(ASK({"a", 1}));
    weir_acquisition *other = granted(ASK({"a", 1}));
    waiter = pending(of_class(ASK({"a", 1}), "0"));
    request->within = outer;
    nested = pending(request);
    release(other);
    assert_int_equal(weir_acquisition_result(nested), 0);
    assert_int_equal(weir_acquisition_result(waiter), -EINPROGRESS);
    release(nested);
    assert_int_equal(weir_acquisition_result(waiter), 0);
    release(waiter);
    release(outer);
    world_close();
}

static void waiters_and_holders_of_each_class_are_told(void **state)
{
    static const char *const asked[] = {"bronze", "gold", "bronze", "silver", "bronze"};
    struct weir_class_stats classes[WEIR_CLASSES_MAX];
    weir_acquisition *all[5];

    (void)state;
    world_set(SHARES "limits: [ { type: resource, key: slots, capacity: 2 } ]");
    for (unsigned i = 0; i < 2; i++)
        all[i] = granted(of_class(ASK({"slots", 1}), asked[i]));
    for (unsigned i = 2; i < 5; i++)
        all[i] = pending(of_class(ASK({"slots", 1}), asked[i]));
    assert_int_equal(weir_set_classes(world.set, NULL, 0), CLASSES);
    assert_int_equal(weir_set_classes(world.set, classes, 1), CLASSES);
    assert_int_equal(weir_set_classes(world.set, classes, WEIR_CLASSES_MAX), CLASSES);
    for (unsigned c = 0; c < CLASSES; c++) {
        assert_string_equal(classes[c].name, share_names[c]);
        assert_int_equal(classes[c].weight, c == 0 ? 5 : c == 1 ? 3 : 2);
        assert_int_equal(classes[c].waiting, c); /* none, one, two */
        assert_int_equal(classes[c].held, c != 1);
    }
    assert_int_equal(weir_return(all[0], "slots", 1), 0); /* it holds nothing any more */
    assert_int_equal(weir_set_classes(world.set, classes, CLASSES), CLASSES);
    assert_int_equal(classes[0].held + classes[1].held + classes[2].held, 2);
    assert_int_equal(classes[1].waiting + classes[2].waiting, 2);
    assert_int_equal(weir_set_classes(NULL, classes, CLASSES), -EINVAL);
    assert_int_equal(weir_set_classes(world.set, NULL, 1), -EINVAL);
    for (unsigned i = 0; i < 5; i++)
        release(all[i]);
    world_close();
    world_set(PRIORITIES "limits: [ { type: resource, key: slots, capacity: 2 } ]");
    assert_int_equal(weir_set_classes(world.set, classes, CLASSES), CLASSES);
    assert_string_equal(classes[2].name, "2");
    assert_int_equal(classes[2].weight, 0);
    world_close();
    world_set("limits: [ { type: resource, key: slots, capacity: 2 } ]");
    assert_int_equal(weir_set_classes(world.set, classes, CLASSES), 0);
    world_close();
}

#define COUNTED                                                                                    \
    SHARES "max_waiters: 3, limits: [ { type: resource, key: slots, capacity: 2 }, "               \
           "{ type: rate, key: tokens, algorithm: gcra, capacity: 4, window: 4s } ]"

static void grants_of_each_class_are_counted(void **state)
{
    weir_acquisition *outer, *nested, *waiter, *empty;
    struct weir_request *request = of_class(ASK({"slots", 1}), "silver");
    struct weir_class_stats classes[CLASSES];

    (void)state;
    world_set(COUNTED);
    outer = granted(of_class(ASK({"slots", 1}), "gold"));
    expect_counts(0, 1, 0, 0, 0);
    request->within = outer;
    nested = granted(request); /* of the class that it names */
    assert_int_equal(take(of_class(ASK({"slots", 0}, {"tokens", 1}), "silver")), 0);
    assert_int_equal(take(of_class(ASK({"slots", 0}), "bronze")), 0); /* of nothing */
    empty = granted(of_class(ASK({"slots", 0}), "bronze"));
    expect_counts(1, 2, 0, 0, 0);
    expect_counts(2, 2, 0, 0, 0);
    waiter = pending(of_class(ASK({"slots", 1}), "gold"));
    advance(3 * SECOND);
    release(nested);
    assert_int_equal(weir_acquisition_result(waiter), 0);
    expect_counts(0, 2, 1, 0, 0);
    read_classes(classes);
    assert_int_equal(classes[0].wait_ns_sum, 3 * SECOND);
    release(waiter);
    release(outer);
    release(empty);
    expect_counts(0, 2, 1, 0, 0);
    world_close();
}

static void refusals_of_each_class_are_counted(void **state)
{
    weir_acquisition *holder, *waiters[3], *ignored;
    struct weir_request *request = of_class(ASK({"slots", 2}), "silver");

    (void)state;
    world_set(COUNTED);
    holder = granted(of_class(ASK({"slots", 2}), "gold"));
    assert_int_equal(try_acquire(of_class(ASK({"slots", 1}), "gold"), &ignored), -EAGAIN);
    assert_int_equal(take(of_class(ASK({"slots", 0}, {"tokens", 5}), "gold")), -ERANGE);
    expect_counts(0, 1, 0, 2, 0);
    request->within = holder; /* a circle */
    assert_int_equal(submit(request, &ignored), -EDEADLK);
    expect_counts(1, 0, 0, 1, 0);
    waiters[0] = pending(with_timeout(of_class(ASK({"slots", 1}), "silver"), SECOND));
    waiters[1] = pending(with_max_wait(of_class(ASK({"slots", 1}), "bronze"), SECOND));
    waiters[2] = pending(of_class(ASK({"slots", 1}), "bronze"));
    assert_int_equal(submit(of_class(ASK({"slots", 1}), "gold"), &ignored), -ENOBUFS);
    expect_counts(0, 1, 0, 3, 0);
    advance(SECOND);
    expect_counts(1, 0, 0, 1, 1);
    expect_counts(2, 0, 0, 1, 0);
    release(waiters[2]); /* canceled */
    expect_counts(2, 0, 0, 1, 0);
    for (unsigned i = 0; i < 2; i++)
        release(waiters[i]);
    release(holder);
    assert_int_equal(take(of_class(ASK({"slots", 0}, {"tokens", 4}), "bronze")), 0);
    assert_int_equal(
        submit(with_max_wait(of_class(ASK({"tokens", 4}, {"slots", 0}), "bronze"), SECOND),
               &ignored),
        -EAGAIN); /* at once */
    assert_int_equal(weir_acquire(world.pool,
                                  with_max_wait(of_class(ASK({"tokens", 4}), "silver"), SECOND),
                                  &ignored, NULL),
                     -EAGAIN);
    expect_counts(2, 1, 0, 2, 0);
    expect_counts(1, 0, 0, 2, 1);
    world_close();
}

static void an_unknown_class_is_refused(void **state)
{
    weir_acquisition *ignored;

    (void)state;
    world_set(SHARES ONE_AT_A_TIME);
    assert_int_equal(try_acquire(of_class(ASK({"tokens", 1}), "gild"), &ignored), -ENOENT);
    assert_string_equal(refusal.key, "gild");
    assert_int_equal(stats().refused_unknown, 1);
    world_close();
    world_set(ONE_AT_A_TIME);
    assert_int_equal(take(of_class(ASK({"tokens", 1}), "gild")), 0); /* the set has no classes */
    world_close();
}

static void a_pool_gives_its_requests_a_class(void **state)
{
    weir_acquisition *waiters[3];
    weir_pool *urgent;

    (void)state;
    world_open("version: 1\nsets: { main: { " PRIORITIES ONE_AT_A_TIME " } }\n"
               "pools: { urgent: { sets: [main], class: 0 } }",
               "main");
    urgent = pool_open("urgent", 0);
    assert_int_equal(take(ASK({"tokens", 1})), 0);
    waiters[2] = pending(ASK({"tokens", 1}));
    assert_int_equal(weir_submit(urgent, of_class(ASK({"tokens", 1}), "1"), &waiters[1], NULL), 1);
    assert_int_equal(weir_submit(urgent, ASK({"tokens", 1}), &waiters[0], NULL), 1);
    expect_order(waiters, 3);
    weir_pool_close(urgent);
    world_close();
}

static void forecasts_count_those_that_go_before(void **state)
{
    weir_acquisition *waiters[4];

    (void)state;
    world_set(PRIORITIES ONE_AT_A_TIME);
    assert_int_equal(take(ASK({"tokens", 1})), 0);
    for (unsigned i = 0; i < 4; i++)
        waiters[i] = pending(of_class(ASK({"tokens", 1}), i < 2 ? "1" : "2"));
    assert_int_equal(take(of_class(ASK({"tokens", 1}), "0")), -EAGAIN);
    assert_forecast("tokens", SECOND / 1000);
    assert_int_equal(take(of_class(ASK({"tokens", 1}), "1")), -EAGAIN);
    assert_forecast("tokens", 3 * SECOND / 1000);
    assert_int_equal(take(of_class(ASK({"tokens", 1}), "2")), -EAGAIN);
    assert_forecast("tokens", 5 * SECOND / 1000);
    assert_ready_at(of_class(ASK({"tokens", 1}), "1"), world.now + 3 * SECOND / 1000);
    assert_ready_at(ASK({"tokens", 1}), world.now + 5 * SECOND / 1000);
    expect_order(waiters, 4);
    world_close();
}

/* ---- against a model ---- */

/*
 * The model keeps what was asked for in an array, in order. Shares are start-time fair queueing as
 * published: tags are given on arrival, and grow for ever. Priorities count for each class how many
 * grants others have had since its last one.
 */
#define MODEL_MAX 64u

struct model_request {
    weir_acquisition *acquisition;
    unsigned c;
    uint64_t amounts[2]; /* tokens, slots */
    bool waits, held;
    __extension__ unsigned __int128 start;
};

static struct {
    struct model_request requests[MODEL_MAX];
    unsigned n; /* in the order of their arrival */
    bool shares;
    bool cancels; /* tags on arrival count those that leave, so shares are compared without */
    uint64_t weights[CLASSES], ageing, capacity, slots, passed[CLASSES];
    __extension__ unsigned __int128 v, finish[CLASSES], unit[CLASSES];
    uint64_t level, now, held; /* level in ns: a token is a millisecond */
    uint64_t granted[CLASSES], granted_waited[CLASSES];
    uint64_t random;
} model;

static uint64_t below(uint64_t n)
{
    return random_below(&model.random, n);
}

static unsigned model_waiting(unsigned c)
{
    unsigned n = 0;

    for (unsigned i = 0; i < model.n; i++)
        n += model.requests[i].waits && (model.requests[i].c == c || c == CLASSES);
    return n;
}

static uint64_t model_cost(const uint64_t *amounts)
{
    uint64_t most = model.capacity > model.slots ? model.capacity : model.slots;
    uint64_t a = amounts[0] * ((most << 16) / model.capacity);
    uint64_t b = amounts[1] * ((most << 16) / model.slots);

    return a > b ? a : b;
}

static struct model_request *model_first(unsigned c)
{
    for (unsigned i = 0; i < model.n; i++)
        if (model.requests[i].waits && model.requests[i].c == c)
            return &model.requests[i];
    return NULL;
}

/* Gives a request its tags, as it comes. */
static void model_arrive(struct model_request *r)
{
    r->start = model.v > model.finish[r->c] ? model.v : model.finish[r->c];
    model.finish[r->c] = r->start + model_cost(r->amounts) * model.unit[r->c];
}

static struct model_request *model_next(void)
{
    struct model_request *next = NULL;
    unsigned oldest = CLASSES;

    for (unsigned c = CLASSES; model.shares && c-- > 0;) {
        struct model_request *first = model_first(c);

        if (first && (!next || first->start <= next->start))
            next = first;
    }
    if (model.shares)
        return next;
    for (unsigned c = 0; c < CLASSES; c++) {
        if (!model_waiting(c))
            continue;
        if (!next)
            next = model_first(c);
        if (model.passed[c] >= model.ageing &&
            (oldest == CLASSES || model.passed[c] > model.passed[oldest]))
            oldest = c;
    }
    return oldest < CLASSES ? model_first(oldest) : next;
}

static bool model_fits(const uint64_t *amounts)
{
    return model.level >= amounts[0] * (SECOND / 1000) && model.held + amounts[1] <= model.slots;
}

static void model_grant(struct model_request *r)
{
    r->waits = false;
    r->held = true;
    model.granted[r->c]++;
    model.granted_waited[r->c]++;
    model.level -= r->amounts[0] * (SECOND / 1000);
    model.held += r->amounts[1];
    model.v = r->start;
    for (unsigned c = 0; c < CLASSES; c++) {
        model.passed[c] += c != r->c && model_waiting(c);
        if (c == r->c || !model_waiting(c))
            model.passed[c] = 0;
    }
    if (model_waiting(CLASSES))
        return;
    for (unsigned c = 0; c < CLASSES; c++) /* the end of a busy period */
        model.v = model.finish[c] > model.v ? model.finish[c] : model.v;
}

static void model_serve(void)
{
    struct model_request *next = model_next();

    for (; next && model_fits(next->amounts); next = model_next())
        model_grant(next);
}

static void model_release(const struct model_request *r)
{
    if (r->held && r->amounts[0])
        release_used(r->acquisition, "tokens", r->amounts[0]);
    else
        release(r->acquisition);
}

static void model_forget(struct model_request *r)
{
    memmove(r, r + 1, (size_t)(model.requests + model.n - r - 1) * sizeof(*r));
    model.n--;
}

static void step_ask(void)
{
    struct model_request *r = &model.requests[model.n];
    struct weir_request *request;
    bool was_idle = !model_waiting(CLASSES);
    int result;

    if (model.n == MODEL_MAX)
        return;
    *r = (struct model_request){.c = (unsigned)below(CLASSES)};
    r->amounts[0] = below(4) ? 1 + below(model.capacity / 2) : 0;
    r->amounts[1] = r->amounts[0] ? below(model.slots + 1) : 1 + below(model.slots);
    request = ASK({"tokens", r->amounts[0]}, {"slots", r->amounts[1]});
    request->wait_class = (model.shares ? share_names : priority_names)[r->c];
    result = submit(request, &r->acquisition);
    if (was_idle && model_fits(r->amounts)) { /* in no queue, it is charged to no class */
        assert_int_equal(result, 0);
        r->held = true;
        model.granted[r->c]++;
        model.n++;
        model.level -= r->amounts[0] * (SECOND / 1000);
        model.held += r->amounts[1];
        return;
    }
    model.n++;
    r->waits = true;
    model_arrive(r);
    model_serve();
    assert_int_equal(result, r->waits);
    model.granted_waited[r->c] -= !r->waits;
}

static void step_release(bool granted)
{
    unsigned at = model.n ? (unsigned)below(model.n) : 0;
    struct model_request *r = &model.requests[at], gone;

    if (!model.n || r->held != granted || (r->waits && !model.cancels))
        return;
    gone = *r;
    model_forget(r);
    if (granted)
        model.held -= gone.amounts[1];
    else if (!model_waiting(gone.c))
        model.passed[gone.c] = 0;
    model_serve();
    model_release(&gone);
}

static void step_advance(void)
{
    uint64_t ns = 1 + below(model.capacity * SECOND / 1000 / 2);

    model.level += ns;
    if (model.level > model.capacity * SECOND / 1000)
        model.level = model.capacity * SECOND / 1000;
    model_serve();
    advance(ns);
}

static void model_compare(void)
{
    for (unsigned i = 0; i < model.n; i++)
        assert_int_equal(weir_acquisition_result(model.requests[i].acquisition),
                         model.requests[i].held ? 0 : -EINPROGRESS);
    assert_int_equal(stats().waiting, model_waiting(CLASSES));
    for (unsigned c = 0; c < CLASSES; c++)
        expect_counts(c, model.granted[c], model.granted_waited[c], 0, 0);
}

static void model_open(void)
{
    static const uint64_t multiples[] = {30, 30, 30};
    char fields[512], classes[128];

    for (unsigned c = 0; c < CLASSES; c++) {
        static const uint64_t weights[] = {1, 2, 3, 5, 6, 10, 15, 30};

        model.weights[c] = weights[below(8)];
        model.unit[c] = multiples[c] / model.weights[c];
    }
    model.ageing = 1 + below(6);
    model.capacity = 2 + below(20);
    model.slots = 1 + below(8);
    model.level = model.capacity * (SECOND / 1000);
    if (model.shares)
        snprintf(classes, sizeof(classes),
                 "shares: { gold: %" PRIu64 ", silver: %" PRIu64 ", bronze: %" PRIu64 " }",
                 model.weights[0], model.weights[1], model.weights[2]);
    else
        snprintf(classes, sizeof(classes), "priorities: 3, ageing: %" PRIu64, model.ageing);
    snprintf(fields, sizeof(fields),
             "%s, limits: [ { type: rate, key: tokens, algorithm: token_bucket, refund: false, "
             "capacity: %" PRIu64 ", window: %" PRIu64
             "ms }, { type: resource, key: slots, capacity: %" PRIu64 " } ]",
             classes, model.capacity, model.capacity, model.slots);
    world_set(fields);
}

/* Of one case. WEIR_OPERATIONS is the number of all steps. */
enum { STEPS = 400 };

static void run_model(bool shares, bool cancels)
{
    uint64_t seed = random_seed(), cases = 1 + random_operations(60 * STEPS) / STEPS;

    printf("seed %" PRIu64 "\n", seed);
    for (uint64_t i = 0; i < cases; i++) {
        memset(&model, 0, sizeof(model));
        model.random = random_case(seed, i);
        model.shares = shares;
        model.cancels = cancels;
        model_open();
        for (unsigned step = 0; step < STEPS; step++) {
            switch (below(5)) {
            case 0:
            case 1:
                step_ask();
                break;
            case 2:
                step_release(true);
                break;
            case 3:
                step_release(false);
                break;
            default:
                step_advance();
            }
            model_compare();
        }
        for (unsigned n = 0; n < model.n;
             n++) /* first those that wait: they are not granted then */
            if (model.requests[n].waits)
                model_release(&model.requests[n]);
        for (unsigned n = 0; n < model.n; n++)
            if (model.requests[n].held)
                model_release(&model.requests[n]);
        world_close();
    }
}

static void shares_are_those_of_the_model(void **state)
{
    (void)state;
    run_model(true, false);
}

static void priorities_are_those_of_the_model(void **state)
{
    (void)state;
    run_model(false, true);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(weights_5_3_2_share_an_overloaded_rate_as_50_30_20),
        leak_checked_test(the_share_of_an_idle_class_goes_to_the_others),
        leak_checked_test(a_class_that_was_idle_gets_no_more_than_its_share),
        leak_checked_test(priorities_go_first_and_starve_no_class),
        leak_checked_test(priorities_are_served_in_order_and_fifo_within),
        leak_checked_test(a_new_request_passes_only_waiters_of_worse_classes),
        leak_checked_test(new_requests_do_not_starve_a_waiter),
        leak_checked_test(nested_requests_go_before_all_classes),
        leak_checked_test(waiters_and_holders_of_each_class_are_told),
        leak_checked_test(grants_of_each_class_are_counted),
        leak_checked_test(refusals_of_each_class_are_counted),
        leak_checked_test(an_unknown_class_is_refused),
        leak_checked_test(a_pool_gives_its_requests_a_class),
        leak_checked_test(forecasts_count_those_that_go_before),
        leak_checked_test(shares_are_those_of_the_model),
        leak_checked_test(priorities_are_those_of_the_model),
    };

    backend_choose(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
