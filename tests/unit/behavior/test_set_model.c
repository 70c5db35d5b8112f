/* SPDX-License-Identifier: MIT */
/*
 * Random operations on random sets, compared with a plain model after every step: results, refusals
 * and their retry-after, every instant of a grant, the order of the wait queue, all counters.
 * WEIR_SEED and WEIR_OPERATIONS override the seed and the number of operations. The argument names
 * the backend of the sets (lib/backends.h). If instances share it, each operation uses one or the
 * other of two, which are two processes as far as the sets can tell.
 *
 * The model counts time in ticks of the backend: an engine that counts microseconds must decide as
 * one with a microsecond in place of each nanosecond.
 */
#include "api/acquisition.h"
#include "lib/redis_world.h"
#include "lib/require.h"
#include "lib/world.h"
#include "set_model.h"
#include <inttypes.h>
#include <unistd.h>

#define OPERATIONS         (backend->is_remote ? 4000u : 500000u)
#define OPERATIONS_PER_SET 400u
#define HOLDERS            (2 * MODEL_ASKERS)

static const char *const keys[MODEL_LIMITS] = {"k0", "k1", "k2", "k3", "k4"};

static struct {
    uint64_t seed, random, operation;
    uint64_t start; /* of the set, in ticks */
    const char *doing;
    char limits[1024];
    bool without_resources;
    bool has_shadow; /* limits may be in shadow; then the clock does not begin late */
    bool late;       /* a waiter was looked at later than it could be; until none waits */
    struct model model;
    struct model_asker askers[MODEL_ASKERS];
    weir_queue *queue;
    unsigned queue_capacity;
    uint64_t submissions, moment; /* of the queue: how many, and the latest of their decisions */
    uint64_t nested, deadlocks, overtaken; /* how often that came up */
    struct twin twins[2]; /* if it is shared; the first is the world's, and has the queue */
} run;

/* Something that the model and the library disagree about. */
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("WEIR_SEED=%" PRIu64 ", operation %" PRIu64 ", %s: not " #condition           \
                     "\nlimits: %s",                                                               \
                     run.seed, run.operation, run.doing, run.limits);                              \
    } while (0)

#define SAME(real, expected)                                                                       \
    do {                                                                                           \
        int64_t real_ = (int64_t)(real), expected_ = (int64_t)(expected);                          \
        if (real_ != expected_)                                                                    \
            fail_msg("WEIR_SEED=%" PRIu64 ", operation %" PRIu64 ", %s: " #real " is %" PRId64     \
                     ", not %" PRId64 "\nlimits: %s",                                              \
                     run.seed, run.operation, run.doing, real_, expected_, run.limits);            \
    } while (0)

static uint64_t below(uint64_t n)
{
    return random_below(&run.random, n);
}

static bool chance(uint64_t one_in)
{
    return below(one_in) == 0;
}

/* A random set */

static uint64_t random_window(void)
{
    switch (below(4)) {
    case 0:
        return 1 + below(20);
    case 1:
        return 1 + below(1000);
    case 2:
        return 999983;
    default:
        return SECOND;
    }
}

static void random_limit(struct model_limit *l)
{
    *l = (struct model_limit){.algorithm = (enum model_algorithm)below(MODEL_ALGORITHMS),
                              .capacity = 1 + below(12),
                              .window = random_window()};
    l->type = l->algorithm == MODEL_RESOURCE ? WEIR_LIMIT_RESOURCE
              : chance(3)                    ? WEIR_LIMIT_CALL
                                             : WEIR_LIMIT_RATE;
    l->burst = l->capacity;
    l->refunds = l->algorithm == MODEL_BUCKET || l->algorithm == MODEL_GCRA;
    if (l->refunds && chance(2))
        l->burst = 1 + below(12);
    if (l->refunds && l->type == WEIR_LIMIT_RATE)
        l->charges = chance(2);
    if (chance(3))
        l->refunds = !l->refunds;
    l->strict = l->refunds && chance(3);
    if (run.has_shadow && chance(2))
        l->shadow = chance(2) ? 100 : 1 + below(99);
    l->state.last = run.model.now;
    if (l->algorithm == MODEL_BUCKET)
        l->state.level = (i128)l->burst * l->window;
}

static int write_limit(const struct model_limit *l, unsigned i, char *text, size_t size)
{
    static const char *const names[] = {"token_bucket", "gcra", "leaky_bucket", "sliding_window",
                                        "fixed_window"};
    char burst[64] = "", enforce[32] = "";

    if (l->shadow)
        snprintf(enforce, sizeof(enforce), ", enforce: %" PRIu64 "%%", 100 - l->shadow);

    if (l->algorithm == MODEL_RESOURCE)
        return snprintf(text, size, "{ type: resource, key: k%u, capacity: %" PRIu64 "%s }, ", i,
                        l->capacity, enforce);
    if (l->burst != l->capacity)
        snprintf(burst, sizeof(burst), ", burst: %" PRIu64, l->burst);
    return snprintf(text, size,
                    "{ type: %s, key: k%u, algorithm: %s, capacity: %" PRIu64 ", window: %" PRIu64
                    "ns%s, refund: %s%s%s }, ",
                    l->type == WEIR_LIMIT_CALL ? "call" : "rate", i, names[l->algorithm],
                    l->capacity, l->window * TICK, burst,
                    l->strict    ? "strict"
                    : l->refunds ? "true"
                                 : "false",
                    l->charges ? ", overuse: charge" : "", enforce);
}

/* Mostly START; also shortly before instants at which a bit more of the clock is used. */
static uint64_t random_start(void)
{
    static const uint64_t starts[] = {0, UINT64_C(1) << 60, UINT64_C(1) << 61, UINT64_C(1) << 62};

    uint64_t at = starts[below(4)];

    return chance(2) ? START : at ? at - below(SECOND) : 0;
}

static void random_set(void)
{
    struct model *m = &run.model;
    char fields[1200];
    size_t length = 0;

    *m = (struct model){.limits_n = 1 + (unsigned)below(MODEL_LIMITS),
                        .fair = !chance(4),
                        .max_waiters = chance(3) ? 1 + below(6) : 0,
                        .tick_ns = TICK};
    m->per_limit = m->fair && chance(3) && (backend->has & HAS_PER_LIMIT);
    run.without_resources = true;
    run.late = false;
    run.has_shadow = (backend->has & HAS_SHADOW) && chance(2);
    world_start = run.has_shadow ? START : random_start();
    m->now = run.start = world_start / TICK;
    for (unsigned i = 0; i < m->limits_n; i++) {
        random_limit(&m->limits[i]);
        run.without_resources &= m->limits[i].algorithm != MODEL_RESOURCE;
        length +=
            (size_t)write_limit(&m->limits[i], i, run.limits + length, sizeof(run.limits) - length);
    }
    snprintf(fields, sizeof(fields), "fair: %s, max_waiters: %" PRIu64 ", limits: [ %s ]",
             m->per_limit ? "per_limit"
             : m->fair    ? "true"
                          : "false",
             m->max_waiters ? m->max_waiters : 1000, run.limits);
    world_set(fields);
    if (backend->is_shared) {
        run.twins[0] = (struct twin){world.w, world.pool, world.set};
        run.twins[1] = world_twin("main");
    }
    for (unsigned i = 0; i < MODEL_ASKERS; i++)
        run.askers[i] = (struct model_asker){0};
    run.queue_capacity = 1 + (unsigned)below(20);
    MUST(weir_queue_open(&run.queue, world.w, run.queue_capacity) == 0);
}

/* Comparing */

static void compare_limits(const struct picture *p)
{
    for (unsigned i = 0; i < run.model.limits_n; i++) {
        const struct model_limit *l = &run.model.limits[i];

        SAME(p->limits[i].granted, l->granted);
        SAME(p->limits[i].refused, l->refused);
        SAME(p->limits[i].would_refuse, l->would_refuse);
        SAME(p->limits[i].refunded, l->refunded);
        SAME(p->limits[i].overused, l->overused);
        SAME(p->limits[i].available, model_available(l, model_instant(&run.model)));
        SAME(p->limits[i].held, l->algorithm == MODEL_RESOURCE ? (int64_t)l->state.level : 0);
    }
}

static bool asks_something(const struct model_asker *asker)
{
    for (unsigned i = 0; i < run.model.limits_n; i++)
        if (asker->amounts[i])
            return true;
    return false;
}

/* Whether a holder has taken anything. */
static bool has_taken(const struct model_asker *asker)
{
    for (unsigned i = 0; i < run.model.limits_n; i++)
        if (model_part(asker, i))
            return true;
    return false;
}

/* What is counted by each instance for itself. */
static void add_counters(struct picture *sum, const struct picture *p)
{
    struct weir_set_stats *set = &sum->set;

    set->granted += p->set.granted, set->taken += p->set.taken;
    set->granted_waited += p->set.granted_waited, set->refused_busy += p->set.refused_busy;
    set->refused_max_wait += p->set.refused_max_wait, set->refused_full += p->set.refused_full;
    set->refused_impossible += p->set.refused_impossible;
    set->timed_out += p->set.timed_out, set->canceled += p->set.canceled;
    set->released += p->set.released, set->refunded += p->set.refunded;
    set->overused += p->set.overused, set->missing_update += p->set.missing_update;
    set->held += p->set.held, set->wait_ns_sum += p->set.wait_ns_sum;
    if (p->set.wait_ns_max > set->wait_ns_max)
        set->wait_ns_max = p->set.wait_ns_max;
    for (unsigned i = 0; i < WEIR_WAIT_BUCKETS; i++)
        set->wait_histogram[i] += p->set.wait_histogram[i];
    for (unsigned i = 0; i < run.model.limits_n; i++) {
        sum->limits[i].granted += p->limits[i].granted;
        sum->limits[i].refused += p->limits[i].refused;
        sum->limits[i].would_refuse += p->limits[i].would_refuse;
        sum->limits[i].refunded += p->limits[i].refunded;
        sum->limits[i].overused += p->limits[i].overused;
    }
}

/* Everything that can be seen of the set, with the counters of all instances. */
static struct picture whole_picture(void)
{
    struct picture p = picture();
    weir_set *set = world.set;

    if (backend->is_shared && !(backend->has & HAS_SUMS)) {
        struct picture other;

        world.set = run.twins[set == run.twins[0].set].set;
        other = picture();
        add_counters(&p, &other);
        world.set = set;
    }
    return p;
}

/* Of a set that processes share, an acquisition of nothing is nowhere held. */
static uint64_t expected_held(void)
{
    uint64_t held = 0;

    if (!backend->is_shared || !(backend->has & HAS_SUMS))
        return run.model.stats.held;
    for (unsigned i = 0; i < MODEL_ASKERS; i++)
        held += run.askers[i].phase == MODEL_HELD && asks_something(&run.askers[i]) &&
                (run.askers[i].real || run.askers[i].queued);
    return held;
}

static void compare_stats(void)
{
    const struct weir_set_stats *model = &run.model.stats;
    struct picture p = whole_picture();

    SAME(p.set.granted, model->granted);
    SAME(p.set.taken, model->taken);
    SAME(p.set.granted_waited, model->granted_waited);
    SAME(p.set.refused_busy, model->refused_busy);
    SAME(p.set.refused_max_wait, model->refused_max_wait);
    SAME(p.set.refused_full, model->refused_full);
    SAME(p.set.refused_impossible, model->refused_impossible);
    SAME(p.set.refused_deadlock, model->refused_deadlock);
    SAME(p.set.timed_out, model->timed_out);
    SAME(p.set.canceled, model->canceled);
    SAME(p.set.released, model->released);
    SAME(p.set.refunded, model->refunded);
    SAME(p.set.overused, model->overused);
    SAME(p.set.missing_update, model->missing_update);
    SAME(p.set.waiting, run.model.line_n);
    SAME(p.set.held, expected_held());
    SAME(p.set.wait_ns_sum, model->wait_ns_sum);
    SAME(p.set.wait_ns_max, model->wait_ns_max);
    MUST(memcmp(p.set.wait_histogram, model->wait_histogram, sizeof(model->wait_histogram)) == 0);
    compare_limits(&p);
}

static bool is_free(const struct model_asker *asker)
{
    return !asker->real && !asker->queued;
}

static uint64_t since(const struct model_asker *asker)
{
    return asker->phase == MODEL_HELD ? asker->granted_at : asker->since;
}

/* Those of all instances. */
static int all_holders(struct weir_holder *ret)
{
    int n = weir_set_holders(world.set, ret, HOLDERS), more = 0;
    bool is_first = world.set == run.twins[0].set;

    if (backend->is_shared && !(backend->has & HAS_SUMS))
        more = weir_set_holders(run.twins[is_first].set, ret + n, HOLDERS - (unsigned)n);
    return n + more;
}

/* All holders and waiters, and since when: the instants of all grants, without looking. */
static void compare_holders(void)
{
    struct weir_holder holders[HOLDERS];
    int n = all_holders(holders), found = 0;

    for (unsigned i = 0; i < MODEL_ASKERS; i++) {
        const struct model_asker *asker = &run.askers[i];
        bool waiting = asker->phase == MODEL_WAITING;
        int j = 0;

        if (is_free(asker) || asker->phase == MODEL_ENDED || !asks_something(asker))
            continue;
        found++;
        while (j < n && (holders[j].since_ns != since(asker) * TICK ||
                         holders[j].waiting != (uint32_t)waiting))
            j++;
        MUST(j < n);
        holders[j].since_ns = UINT64_MAX; /* each stands for one */
    }
    SAME(n, found);
}

static void look_at(struct model_asker *asker)
{
    SAME(weir_acquisition_result(asker->real), asker->result);
    if (asker->phase == MODEL_HELD && !asker->reserved)
        asker->seen = true;
}

/* Asking */

struct question {
    uint64_t amounts[MODEL_LIMITS]; /* as the limits will see them */
    struct weir_amount asked[MODEL_LIMITS];
    struct weir_request request;
    int wrong;         /* -EINVAL, -ERANGE or 0 */
    unsigned too_much; /* the limit */
};

static void judge(struct question *q)
{
    for (unsigned i = 0; i < run.model.limits_n && !q->wrong; i++) {
        const struct model_limit *l = &run.model.limits[i];

        if (q->request.amounts_n == 0 && l->type == WEIR_LIMIT_RATE)
            q->wrong = -EINVAL;
        else if (q->amounts[i] > l->burst && run.model.number < 100 - l->shadow)
            q->wrong = -ERANGE;
        q->too_much = i;
    }
}

/* The number of a request with this route, as docs/configuration.md says. */
static uint64_t number_of(uint64_t route)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (unsigned i = 0; i < 8; i++, route >>= 8)
        hash = (hash ^ (route & 0xff)) * UINT64_C(0x100000001b3);
    return hash % 100;
}

/* Nests the request that is made now in one that is held, or in none. */
static void nest(struct question *q, const struct model_asker *within)
{
    q->request.within = within ? within->real : NULL;
    run.model.nested = within != NULL;
    run.nested += within != NULL;
    run.model.within = (struct model_asker *)(uintptr_t)within;
}

/* One that holds something, and is in the hands of the same process. */
static const struct model_asker *random_holder(void)
{
    unsigned first = (unsigned)below(MODEL_ASKERS);

    for (unsigned i = 0; i < MODEL_ASKERS; i++) {
        const struct model_asker *a = &run.askers[(first + i) % MODEL_ASKERS];

        if (a->real && a->phase == MODEL_HELD && !a->queued && has_taken(a) && a->w == world.w)
            return a;
    }
    return NULL;
}

static void random_question(struct question *q, bool without_resources)
{
    *q = (struct question){.request.size = sizeof(q->request), .request.amounts = q->asked};
    q->request.route = below(1000);
    run.model.number = number_of(q->request.route);
    nest(q, chance(3) && (backend->has & HAS_NESTING) ? random_holder() : NULL);
    for (unsigned i = 0; i < run.model.limits_n; i++) {
        const struct model_limit *l = &run.model.limits[i];
        bool zero = without_resources && l->type == WEIR_LIMIT_RESOURCE;

        if (!zero && chance(3)) {
            q->amounts[i] = l->type != WEIR_LIMIT_RATE;
            continue;
        }
        q->amounts[i] = zero || chance(4) ? 0 : 1 + below(chance(20) ? l->burst + 1 : l->burst);
        q->asked[q->request.amounts_n++] = (struct weir_amount){keys[i], q->amounts[i]};
    }
    judge(q);
}

static unsigned limit_named(const char *key)
{
    MUST(key[0] == 'k' && key[1] >= '0' && (unsigned)(key[1] - '0') < run.model.limits_n);
    return (unsigned)(key[1] - '0');
}

/* Whether forecasts are exact, not just lower bounds. An engine foresees what the limits say, and
 * behind waiters only that it is not sooner. */
static bool is_exact(void)
{
    if (!(backend->has & HAS_EXACT_FORECASTS) && run.model.line_n > 0)
        return false;
    return run.without_resources && !run.late;
}

/* A refusal: the limit that it names was in the way, and the time to come back is right. */
static void compare_refusal(const struct question *q)
{
    uint64_t expected = model_forecast(&run.model, q->amounts) - run.model.now;
    uint64_t now = model_instant(&run.model);
    struct model_limit *blamed;

    if (refusal.key[0]) {
        unsigned i = limit_named(refusal.key);

        blamed = &run.model.limits[i];
        blamed->refused++;
        if (!run.model.line_n) /* otherwise it may be what others wait for */
            MUST(run.model.number < 100 - blamed->shadow &&
                 model_limit_ready(blamed, &blamed->state, now, q->amounts[i]) > now);
    } else {
        MUST(run.model.line_n > 0 || now > run.model.now);
    }
    MUST(refusal.retry_after_ns <= expected * TICK);
    if (is_exact())
        SAME(refusal.retry_after_ns, expected * TICK);
}

static void compare_wrong(const struct question *q, int r)
{
    SAME(r, q->wrong);
    if (q->wrong != -ERANGE)
        return;
    run.model.stats.refused_impossible++;
    run.model.limits[q->too_much].refused++;
    SAME(limit_named(refusal.key), q->too_much);
    MUST(refusal.retry_after_ns == WEIR_FOREVER);
}

static struct model_asker *free_asker(void)
{
    for (unsigned i = 0; i < MODEL_ASKERS; i++)
        if (is_free(&run.askers[i]))
            return &run.askers[i];
    return NULL;
}

/* A circle is closed by a resource. */
static void compare_deadlock(void)
{
    unsigned i = limit_named(refusal.key);

    run.deadlocks++;
    MUST(run.model.limits[i].algorithm == MODEL_RESOURCE);
    MUST(refusal.retry_after_ns == WEIR_FOREVER);
    run.model.limits[i].refused++;
}

static void own(struct model_asker *asker, weir_acquisition *real)
{
    asker->real = real;
    asker->w = world.w;
}

static void do_take(void)
{
    struct question q;
    int r, expected;

    run.doing = "take";
    random_question(&q, true);
    r = take(&q.request);
    if (q.wrong) {
        compare_wrong(&q, r);
        return;
    }
    expected = model_try(&run.model, q.amounts, NULL);
    SAME(r, expected);
    if (r == -EAGAIN) {
        run.model.stats.refused_busy++;
        compare_refusal(&q);
    }
}

static void do_try(void)
{
    struct model_asker *asker = free_asker();
    weir_acquisition *real = NULL;
    struct question q;
    int r, expected;

    run.doing = "try";
    if (!asker)
        return;
    random_question(&q, false);
    r = try_acquire(&q.request, &real);
    if (q.wrong) {
        compare_wrong(&q, r);
        return;
    }
    expected = model_try(&run.model, q.amounts, asker);
    SAME(r, expected);
    MUST((r == 0) == (real != NULL));
    if (r == 0)
        own(asker, real);
    else {
        run.model.stats.refused_busy++;
        compare_refusal(&q);
    }
}

static void random_patience(struct weir_request *request)
{
    uint64_t span = 1 + run.model.limits[0].window;

    if (chance(2))
        request->timeout_ns = (1 + below(3 * span)) * TICK;
    if (chance(3))
        request->max_wait_ns = chance(8) ? WEIR_FOREVER : (1 + below(3 * span)) * TICK;
}

static void do_reserve(void)
{
    struct model_asker *asker = free_asker();
    uint64_t at = 7, expected_at, max_wait;
    weir_acquisition *real = NULL;
    struct question q;
    int r, expected;
    bool busy;

    run.doing = "reserve";
    if (!asker)
        return;
    random_question(&q, true);
    random_patience(&q.request);
    max_wait = q.request.max_wait_ns ? q.request.max_wait_ns / TICK : WEIR_FOREVER;
    r = reserve(&q.request, &real, &at);
    if (q.wrong) {
        compare_wrong(&q, r);
        return;
    }
    expected = model_reserve(&run.model, q.amounts, max_wait, asker, &expected_at, &busy);
    SAME(r, expected);
    MUST((r == 0) == (real != NULL));
    own(asker, real);
    if (r == 0) {
        SAME(at, expected_at * TICK);
        return;
    }
    MUST(at == 7);
    run.model.stats.refused_busy += busy;
    run.model.stats.refused_max_wait += !busy;
    compare_refusal(&q);
}

static void set_deadline(struct model_asker *asker, const struct weir_request *request)
{
    uint64_t timeout = request->timeout_ns ? request->timeout_ns : WEIR_FOREVER;
    uint64_t max_wait = request->max_wait_ns ? request->max_wait_ns : WEIR_FOREVER;
    uint64_t wait = timeout <= max_wait ? timeout : max_wait;

    asker->deadline_result = timeout <= max_wait ? -ETIMEDOUT : -EAGAIN;
    asker->deadline = wait == WEIR_FOREVER ? UINT64_MAX : run.model.now + wait / TICK;
    asker->max_wait_ends = max_wait == WEIR_FOREVER ? UINT64_MAX : run.model.now + max_wait / TICK;
}

/* Whether the request must, or may, be refused because the forecast of its wait is too long. */
static void compare_max_wait(const struct question *q, int r)
{
    uint64_t wait = model_forecast(&run.model, q->amounts) - run.model.now;
    bool beyond = q->request.max_wait_ns && q->request.max_wait_ns != WEIR_FOREVER &&
                  wait > q->request.max_wait_ns / TICK;

    if (r == -EAGAIN)
        MUST(beyond);
    else if (is_exact())
        MUST(!beyond);
}

static void do_submit(void)
{
    struct model_asker *asker = free_asker();
    weir_acquisition *real = NULL;
    struct question q;
    int r, expected;

    run.doing = "submit";
    if (!asker)
        return;
    random_question(&q, false);
    random_patience(&q.request);
    r = submit(&q.request, &real);
    if (q.wrong) {
        compare_wrong(&q, r);
        return;
    }
    expected = model_submit(&run.model, q.amounts, asker);
    if (expected == 1)
        compare_max_wait(&q, r);
    SAME(r, expected == 1 && r == -EAGAIN ? r : expected);
    MUST((r >= 0) == (real != NULL));
    if (r == -EDEADLK) {
        compare_deadlock();
        return;
    }
    if (r < 0) {
        compare_refusal(&q);
        run.model.stats.refused_full += r == -ENOBUFS;
        run.model.stats.refused_max_wait += r == -EAGAIN;
        return;
    }
    if (r == 1) {
        model_join(&run.model, q.amounts, asker);
        set_deadline(asker, &q.request);
    }
    own(asker, real);
}

static void do_forecast(void)
{
    uint64_t at = 0, expected;
    struct question q;
    int r;

    run.doing = "foresee";
    random_question(&q, false);
    r = weir_set_ready_at(world.set, &q.request, &at);
    SAME(r, q.wrong);
    if (r < 0)
        return;
    expected = model_forecast(&run.model, q.amounts);
    MUST(at >= run.model.now * TICK && at <= expected * TICK);
    if (is_exact() && (backend->has & HAS_EXACT_FORECASTS))
        SAME(at, expected);
}

/* Giving back */

static struct model_asker *random_asker(void)
{
    unsigned first = (unsigned)below(MODEL_ASKERS);

    for (unsigned i = 0; i < MODEL_ASKERS; i++)
        if (run.askers[(first + i) % MODEL_ASKERS].real)
            return &run.askers[(first + i) % MODEL_ASKERS];
    return NULL;
}

static void do_update(struct model_asker *asker)
{
    unsigned i = (unsigned)below(run.model.limits_n);
    uint64_t used = chance(16) ? random_next(&run.random) : below(asker->amounts[i] + 3);
    int r;

    run.doing = "update";
    r = weir_update(asker->real, keys[i], used);
    SAME(r, model_update(&run.model, asker, i, used));
}

/* Whether others are nested in it: it is given back after them. */
static bool has_inner(const struct model_asker *asker)
{
    for (unsigned i = 0; i < MODEL_ASKERS; i++)
        if (run.askers[i].within == asker && !is_free(&run.askers[i]) &&
            run.askers[i].phase != MODEL_ENDED)
            return true;
    return false;
}

/* Mostly of what it holds. */
static void do_return(struct model_asker *asker)
{
    unsigned i = (unsigned)below(run.model.limits_n);
    uint64_t n = chance(16) ? random_next(&run.random) : below(asker->amounts[i] + 2), amount;
    int expected;

    if (backend->is_shared && has_inner(asker))
        return; /* its record is another one then (docs/waiting.md) */
    run.doing = "return";
    expected = model_return(&run.model, asker, i, n);
    SAME(weir_return(asker->real, keys[i], n), expected);
    settle();
    SAME(weir_acquisition_amount(asker->real, keys[i], &amount), 0);
    SAME(amount, asker->amounts[i]);
}

static void do_release(struct model_asker *asker)
{
    weir_acquisition *real = asker->real;
    int expected;

    if (has_inner(asker))
        return;
    run.doing = "release";
    expected = model_release(&run.model, asker);
    asker->real = NULL;
    asker->queued = false; /* if it was, no completion follows */
    SAME(weir_release(&real), expected);
    settle();
    MUST(!real);
}

static void do_cancel(struct model_asker *asker)
{
    int expected;

    if (has_inner(asker))
        return;
    run.doing = "cancel";
    expected = model_cancel(&run.model, asker);
    if (expected == 0)
        asker->decided = 0; /* anew */
    SAME(weir_cancel(asker->real), expected);
    settle();
}

static void do_listen(struct model_asker *asker)
{
    run.doing = "listen";
    if (asker->queued) {
        SAME(weir_acquisition_fd(asker->real), -EBUSY);
        return;
    }
    asker->listening = true;
    MUST(readable(weir_acquisition_fd(asker->real)) == (asker->phase != MODEL_WAITING));
}

/* The queue */

/* Whatever was decided since, at one moment. */
static void note_decisions(void)
{
    run.moment++;
    for (unsigned i = 0; i < MODEL_ASKERS; i++)
        if (run.askers[i].queued && run.askers[i].phase != MODEL_WAITING && !run.askers[i].decided)
            run.askers[i].decided = run.moment;
}

static unsigned count_queued(bool decided_only)
{
    unsigned n = 0;

    for (unsigned i = 0; i < MODEL_ASKERS; i++)
        n += run.askers[i].queued && (!decided_only || run.askers[i].decided);
    return n;
}

static void compare_queue(void)
{
    MUST(readable(weir_queue_fd(run.queue)) == (count_queued(true) > 0));
}

/* Which limit was blamed for a refusal is seen by its counter; the completion tells later. */
static void note_refusal(struct model_asker *asker, int result)
{
    struct picture p = whole_picture();
    unsigned blamed = 0;

    *asker = (struct model_asker){.phase = MODEL_ENDED,
                                  .result = result,
                                  .number = run.model.number,
                                  .nested = run.model.nested};
    run.model.stats.refused_full += result == -ENOBUFS;
    run.model.stats.refused_max_wait += result == -EAGAIN;
    for (unsigned i = 0; i < run.model.limits_n; i++)
        if (p.limits[i].refused != run.model.limits[i].refused) {
            run.model.limits[i].refused++;
            blamed++;
        }
    MUST(blamed <= 1);
}

/* What became of a submission that was accepted. */
static void follow_put(struct model_asker *asker, const struct question *q)
{
    int expected = model_submit(&run.model, q->amounts, asker);
    bool refused = whole_picture().set.refused_max_wait != run.model.stats.refused_max_wait;

    if (expected == 1)
        compare_max_wait(q, refused ? -EAGAIN : 1);
    if (expected == -ENOBUFS || (expected == 1 && refused)) {
        note_refusal(asker, expected == 1 ? -EAGAIN : expected);
        memcpy(asker->amounts, q->amounts, sizeof(asker->amounts));
    } else if (expected == 1) {
        model_join(&run.model, q->amounts, asker);
        set_deadline(asker, &q->request);
    }
    asker->pended = true; /* until it is reaped, a grant can be taken back */
    asker->seen = false;
}

static void do_put(void)
{
    struct model_asker *asker = free_asker();
    bool full = count_queued(false) == run.queue_capacity, handle = chance(2);
    uint64_t user_data = chance(2) && !backend->is_remote ? below(3) : random_next(&run.random);
    weir_acquisition *real = NULL;
    struct question q;
    int r;

    run.doing = "put";
    if (!asker)
        return;
    random_question(&q, false);
    if (!handle || (backend->is_shared && world.w != run.twins[0].w))
        nest(&q, NULL); /* that needs a handle, of the same instance */
    if (handle)
        random_patience(&q.request);
    else if (is_exact() && model_forecast(&run.model, q.amounts) > run.model.now + 1 && chance(4))
        q.request.max_wait_ns = TICK; /* refused at once: it must have no deadline */
    refusal = (struct weir_refusal){.size = sizeof(refusal)};
    r = weir_queue_submit(run.queue, backend->is_shared ? run.twins[0].pool : world.pool,
                          &q.request, user_data, handle ? &real : NULL, &refusal);
    MUST((real != NULL) == (handle && r == 0));
    settle();
    if (q.wrong && (q.wrong != -ERANGE || r != -ENOSPC)) {
        compare_wrong(&q, r);
        return;
    }
    if (r == -EDEADLK)
        compare_deadlock();
    SAME(r, full ? -ENOSPC : model_deadlocks(&run.model, q.amounts) ? -EDEADLK : 0);
    run.model.stats.refused_deadlock += r == -EDEADLK;
    if (r < 0)
        return;
    follow_put(asker, &q);
    own(asker, real);
    asker->w = backend->is_shared ? run.twins[0].w : world.w;
    asker->queued = true;
    asker->handle = handle;
    asker->user_data = user_data;
    asker->listed = ++run.submissions;
}

/* The one that is canceled next: the latest, of those that can be. */
static struct model_asker *to_be_canceled(uint64_t user_data)
{
    struct model_asker *latest = NULL;

    for (unsigned i = 0; i < MODEL_ASKERS; i++) {
        struct model_asker *a = &run.askers[i];
        bool can = a->phase == MODEL_WAITING || (a->phase == MODEL_HELD && a->queued && !a->handle);

        if (a->queued && can && a->user_data == user_data &&
            (!latest || a->listed > latest->listed))
            latest = a;
    }
    return latest;
}

static void cancel_queued(uint64_t user_data)
{
    struct model_asker *asker;
    int expected = 0;

    run.doing = "cancel by user_data";
    for (; (asker = to_be_canceled(user_data)); expected++) {
        SAME(model_cancel(&run.model, asker), 0);
        asker->decided = 0;
    }
    SAME(weir_queue_cancel(run.queue, user_data), expected);
    settle();
}

/* Whether the program had this acquisition before it was reaped. */
static bool is_handle(const weir_acquisition *real)
{
    for (unsigned i = 0; i < MODEL_ASKERS; i++)
        if (run.askers[i].queued && run.askers[i].handle && run.askers[i].real == real)
            return true;
    return false;
}

/* The first that is due and may be this completion. */
static struct model_asker *completed(const struct weir_completion *c)
{
    struct model_asker *first = NULL;
    bool handle = is_handle(c->acquisition);

    for (unsigned i = 0; i < MODEL_ASKERS; i++) {
        struct model_asker *a = &run.askers[i];
        bool same = handle ? a->real == c->acquisition
                           : !a->handle && (c->result == 0) == (c->acquisition != NULL);

        if (!a->queued || !a->decided || a->user_data != c->user_data || a->result != c->result ||
            !same)
            continue;
        if (c->acquisition && memcmp(acquisition_amounts(c->acquisition), a->amounts,
                                     run.model.limits_n * sizeof(a->amounts[0])) != 0)
            continue;
        if (!first || a->decided < first->decided)
            first = a;
    }
    MUST(first != NULL);
    return first;
}

static void compare_completion(const struct weir_completion *c, const struct model_asker *asker)
{
    uint64_t expected;

    run.model.nested = asker->nested;
    run.model.number = asker->number;
    expected = model_forecast(&run.model, asker->amounts) - run.model.now;
    SAME(c->reserved, 0);
    if (c->result != -EAGAIN && c->result != -ENOBUFS && c->result != -ETIMEDOUT)
        return;
    MUST(strcmp(c->refusal.set, "main") == 0);
    if (backend->is_remote) /* what the engine said when it refused */
        return;
    if (asker->handle) /* otherwise it may be another with the same user_data */
        MUST(c->refusal.retry_after_ns <= expected * TICK);
    if (asker->handle && is_exact())
        SAME(c->refusal.retry_after_ns, expected * TICK);
}

static uint64_t reap(unsigned n)
{
    unsigned due = count_queued(true);
    struct weir_completion done[MODEL_ASKERS];
    uint64_t last = 0;
    int reaped;

    run.doing = "reap";
    reaped = weir_queue_reap(run.queue, done, n);
    SAME(reaped, due < n ? due : n);
    for (int i = 0; i < reaped; i++) {
        struct model_asker *asker = completed(&done[i]);

        compare_completion(&done[i], asker);
        MUST(asker->decided >= last);
        last = asker->decided;
        asker->real = done[i].acquisition;
        asker->queued = false;
        asker->seen = asker->result == 0;
    }
    return (uint64_t)reaped;
}

static void step_queue(void)
{
    uint64_t kind = below(8);

    if (kind < 4)
        do_put();
    else if (kind < 6)
        reap((unsigned)below(chance(4) ? MODEL_ASKERS : 4));
    else if (kind == 6)
        cancel_queued(below(3));
    else if (run.submissions)
        cancel_queued(run.askers[below(MODEL_ASKERS)].user_data);
}

static void cancel_all_queued(void)
{
    for (unsigned i = 0; i < MODEL_ASKERS; i++)
        if (run.askers[i].queued)
            cancel_queued(run.askers[i].user_data);
    note_decisions();
    compare_stats();
    while (reap(MODEL_ASKERS) > 0)
        compare_stats();
    SAME(count_queued(false), 0);
}

/* Time */

/* When a grant and a deadline fall on one instant either may win, but only one. */
static bool granted_rather(struct model_asker *head)
{
    /* Of submissions without an acquisition none has a deadline. */
    return head->deadline > run.model.now || weir_acquisition_result(head->real) == 0;
}

static struct model_asker *first_expired(void)
{
    for (unsigned i = 0; i < run.model.line_n; i++)
        if (run.model.line[i]->deadline <= run.model.now)
            return run.model.line[i];
    return NULL;
}

/* An engine knows of max_wait only: when both are over it may end the wait before this side does.
 */
static void expire(struct model_asker *asker)
{
    if (backend->is_remote && asker->max_wait_ends <= run.model.now)
        asker->deadline_result = weir_acquisition_result(asker->real);
    MUST(asker->deadline_result == -ETIMEDOUT || asker->deadline_result == -EAGAIN);
    model_expire(&run.model, asker);
}

static void catch_up(void)
{
    struct model *m = &run.model;

    for (;;) {
        struct model_asker *next = model_ready_waiter(m);

        if (next) {
            run.overtaken += next != m->line[0];
            if (granted_rather(next)) {
                model_grant(m, next);
                next->seen = next->deadline <= m->now; /* it was looked at just now */
            } else {
                expire(next);
            }
        } else if (first_expired()) {
            expire(first_expired());
        } else {
            return;
        }
    }
}

/* Does what is due. What one of two does may be for the other to see to. */
static int tick(void)
{
    int n = 0, more;

    if (!backend->is_shared)
        return weir_tick(world.w);
    if (backend->is_remote) {
        redis_world_set_clock(world.now, world.wall);
        redis_world_pump();
        settle();
    }
    for (int rounds = 0; rounds < 2; rounds = more ? 0 : rounds + 1) {
        more = weir_tick(run.twins[0].w) + weir_tick(run.twins[1].w);
        n += more;
    }
    settle();
    return n;
}

/* Time goes on to `until`, stopping wherever something is due; or late, at once. An instance that
 * decides for an engine goes by its own clock meanwhile, and may be in time. */
static void pass(uint64_t until, bool late)
{
    late &= !backend->is_foreign;
    run.doing = late ? "time passes unnoticed" : "time passes";
    for (bool more = true; more;) {
        struct model *m = &run.model;
        uint64_t next = model_next(m), decided = m->line_n;
        int n;

        run.late |= late && next < until;
        more = next <= until && !late;
        m->now = more ? next : until;
        world.now = m->now * TICK;
        n = tick();
        catch_up();
        if (!backend->is_remote)
            SAME(n, decided - m->line_n);
        note_decisions();
        run.late &= m->line_n > 0;
    }
}

static void do_pass(void)
{
    uint64_t next = model_next(&run.model), until = run.model.now;

    switch (below(4)) {
    case 0:
        until += below(run.model.limits[below(run.model.limits_n)].window + 2);
        break;
    case 1:
        until = next == UINT64_MAX ? until + below(100) : next - chance(2);
        break;
    case 2:
        until += below(16);
        break;
    default:
        if (!run.model.line_n && chance(4))
            until += below(chance(8) ? WEIR_CLOCK_MAX : UINT64_C(1) << 40);
        if (until > (WEIR_CLOCK_MAX - (UINT64_C(1) << 50)) / TICK)
            until = run.model.now; /* the end of the clock is none of this test's */
        if (run.has_shadow && until > UINT64_C(1) << 60)
            until = run.model.now; /* of later grants some times are not exact (shadow.h) */
    }
    if (until > run.model.now && until - run.start < backend->session_ns / TICK)
        pass(until, chance(4));
}

/* From here on one of the two does everything. */
static void step_aside(unsigned i)
{
    world.w = run.twins[i].w;
    world.pool = run.twins[i].pool;
    world.set = run.twins[i].set;
}

static void step(void)
{
    struct model_asker *asker = random_asker();
    uint64_t kind = below(16);

    if (chance(3))
        step_queue();
    else if (kind < 4)
        do_submit();
    else if (kind < 6)
        do_try();
    else if (kind == 6 && (chance(2) || !(backend->has & HAS_RESERVATIONS)))
        do_take();
    else if (kind == 6)
        do_reserve();
    else if (kind == 7)
        do_forecast();
    else if (kind < 11)
        do_pass();
    else if (!asker)
        return;
    else if (kind == 11 && chance(2))
        do_cancel(asker);
    else if (kind == 12)
        do_update(asker);
    else if (kind == 13 && chance(2))
        look_at(asker);
    else if (kind == 14 && chance(8))
        do_listen(asker);
    else if (kind == 14 && chance(2))
        do_return(asker);
    else if (kind == 15 || !free_asker())
        do_release(asker);
}

/* What one has done the other hears of; nothing is due that was not before. */
static void catch_up_others(void)
{
    if (backend->is_remote)
        settle();
    else if (backend->is_shared)
        MUST(tick() == 0);
}

/* Closes the completion queue with what it has. The order in which it cancels is not promised, so
 * neither is which others are granted meanwhile, and the model cannot go on. */
static void close_and_release(void)
{
    run.queue = weir_queue_close(run.queue);
    for (unsigned i = 0; i < MODEL_ASKERS; i++) {
        int r = weir_release(&run.askers[i].real);

        MUST(r == 0 || r == -EPROTO);
    }
    settle();
}

static void end_set(void)
{
    struct model_asker *asker;

    if (chance(2))
        cancel_all_queued();
    else
        close_and_release();
    catch_up_others();
    while ((asker = random_asker())) {
        do_release(asker);
        catch_up_others();
        compare_stats();
    }
    weir_queue_close(run.queue);
    MUST(whole_picture().set.held == 0 && stats().waiting == 0);
    SAME(weir_set_holders(world.set, NULL, 0), 0);
    if (backend->is_shared) {
        step_aside(0);
        world_twin_close(&run.twins[1]);
    }
    world_close();
}

static void random_sets_do_what_the_model_does(void **state)
{
    uint64_t operations = random_operations(OPERATIONS);

    (void)state;
    run.seed = number_from("WEIR_SEED", 1);
    run.random = run.seed;
    run.operation = 0;
    while (run.operation < operations) {
        random_set();
        for (unsigned i = 0; i < OPERATIONS_PER_SET; i++, run.operation++) {
            if (backend->is_shared)
                step_aside((unsigned)below(2));
            step();
            catch_up_others();
            note_decisions();
            compare_queue();
            compare_stats();
            if (chance(8))
                compare_holders();
        }
        end_set();
    }
    printf("%" PRIu64 " nested requests, %" PRIu64 " of them refused for a circle; %" PRIu64
           " waiters granted before the head\n",
           run.nested, run.deadlocks, run.overtaken);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {leak_checked_test(random_sets_do_what_the_model_does)};
    int failed;

    backend_choose(argc, argv);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    /* The last one out has left nothing. */
    return failed || (backend->is_shared && !backend->is_remote && rmdir(world_directory()) < 0);
}
