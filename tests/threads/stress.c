/* SPDX-License-Identifier: MIT */
/*
 * 100 threads on one set of five limits, in every way there is to ask, wait, give up and give back,
 * against the real clock. Rounds end with all threads done, so that no thread comes and goes that
 * would hide a forgotten waiter. Checked: resources are never held beyond their capacity, rates and
 * windows keep their bounds, no request overtakes, every count adds up, and at the end of every
 * round nothing is held and none waits.
 *
 *     stress [seconds [tsc]]    or WEIR_DURATION; 4 if neither; seed from WEIR_SEED; tsc: readings
 *                               of the clock are shared, if they can be
 */
#include "api/acquisition.h"
#include "api/instance.h"
#include "base/clock.h"
#include "lib/clock.h"
#include "lib/history.h"
#include "lib/require.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <weir/weir.h>

enum { THREADS = 100, RELEASERS = 2, STEPS = 12, STUCK_S = 60 };

#define AHEAD_NS (3 * MS) /* the furthest instant that is reserved */

enum { TOKENS, BYTES, CALLS, DB, FILES };
#define TOKENS_BURST    300u
#define TOKENS_CAPACITY 200000u
#define BYTES_BURST     20000u
#define BYTES_CAPACITY  20000000u
#define CALLS_CAPACITY  100u
#define DB_CAPACITY     8u
#define FILES_CAPACITY  5u

static const char text[] =
    "version: 1\n"
    "sets:\n"
    "  five:\n"
    "    limits:\n"
    "      - { type: rate, key: tokens, algorithm: token_bucket, capacity: 200k, window: 1s,\n"
    "          burst: 300, overuse: charge }\n"
    "      - { type: rate, key: bytes, algorithm: gcra, capacity: 20M, window: 1s, burst: 20k }\n"
    "      - { type: call, algorithm: sliding_window, capacity: 100, window: 1ms }\n"
    "      - { type: resource, key: db, capacity: 8 }\n"
    "      - { type: resource, key: files, capacity: 5 }\n"
    "pools:\n"
    "  pool: { sets: [five] }\n";

/* How far the instance's clock may be behind. */
static uint64_t late_ns;
static enum weir_clock_source clock_source;

static const char *const keys[HISTORY_LIMITS] = {"tokens", "bytes", "call_count", "db", "files"};

/* What the threads saw themselves; to be compared with what the set counted. */
struct tally {
    uint64_t asked, granted, taken, busy, impossible, refused_max_wait, timed_out;
    uint64_t canceled;  /* for certain */
    uint64_t abandoned; /* released without a look: canceled, or timed out just before */
    uint64_t missing, overused;
    uint64_t reserved, unreserved; /* granted in advance; busy or beyond max_wait */
};

struct worker {
    pthread_t thread;
    uint64_t random;
    weir_pool *pool;
    struct history history;
    struct tally tally;
    int event_fd; /* its own, for one wait after the other */
};

/* An acquisition on its way to another thread that releases it. */
struct parcel {
    weir_acquisition *acquisition;
    uint64_t amounts[HISTORY_LIMITS];
    struct parcel *next;
};

static weir *instance;
static weir_set *five;
static atomic_uint held[HISTORY_LIMITS];
static pthread_barrier_t begin, finish;
static atomic_bool over;
static _Atomic uint64_t parcels_out; /* handed on and not released yet */

static pthread_mutex_t parcels_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t parcels_more = PTHREAD_COND_INITIALIZER;
static struct parcel *parcels;

static void hold(const uint64_t *amounts)
{
    static const unsigned capacities[HISTORY_LIMITS] = {
        [DB] = DB_CAPACITY, [FILES] = FILES_CAPACITY};

    for (int i = DB; i <= FILES; i++) {
        unsigned n = (unsigned)amounts[i];

        require(atomic_fetch_add(&held[i], n) + n <= capacities[i]);
    }
}

/* Before the release: from then on another request may have it. */
static void let_go(const uint64_t *amounts)
{
    for (int i = DB; i <= FILES; i++)
        atomic_fetch_sub(&held[i], (unsigned)amounts[i]);
}

/* A request of random amounts; sometimes rates are left out, sometimes resources. */
struct want {
    struct weir_amount items[HISTORY_LIMITS];
    struct weir_request request;
    uint64_t amounts[HISTORY_LIMITS];
};

static void choose(struct worker *me, bool take, struct want *ret)
{
    static const uint64_t most[HISTORY_LIMITS] = {20, 2000, 2, 3, 2};

    *ret = (struct want){.request = {.size = sizeof(ret->request), .timeout_ns = WEIR_FOREVER}};
    for (int i = 0; i < HISTORY_LIMITS; i++) {
        uint64_t amount = random_below(&me->random, most[i] + 1);

        if ((i >= DB && (take || random_below(&me->random, 3) == 0)) ||
            (i < CALLS && random_below(&me->random, 4) == 0))
            amount = 0;
        ret->amounts[i] = amount;
        ret->items[i] = (struct weir_amount){keys[i], amount};
    }
    ret->request.amounts = ret->items;
    ret->request.amounts_n = HISTORY_LIMITS;
}

/* Notes a grant at the instants that the set itself used. */
static void note_grant(struct worker *me, const struct want *want, weir_acquisition *acquisition)
{
    const struct acq_record *r;
    struct event event;

    me->tally.granted++;
    for (int i = 0; i < HISTORY_LIMITS; i++)
        event.amounts[i] = (uint32_t)want->amounts[i];
    if (!acquisition->record)
        return; /* asked for nothing */
    r = record_at(&instance->region, acquisition->record);
    require(record_state(record_load(&r->word)) == RECORD_HELD);
    event.since = record_load(&r->enqueued_ns);
    event.lo = event.hi = record_load(&r->granted_ns);
    require(event.since <= event.lo && event.hi <= clock_now());
    history_add(&me->history, &event);
    hold(want->amounts);
}

/* Updates that are right, missing, below or beyond; what will be refunded. */
static bool update(struct worker *me, const struct want *want, weir_acquisition *acquisition,
                   struct refund *ret)
{
    bool complete = true;

    *ret = (struct refund){.lo = clock_now() - late_ns};
    for (int i = 0; i <= CALLS; i++) {
        uint64_t amount = want->amounts[i], used = amount;
        unsigned way = (unsigned)random_below(&me->random, 8);

        if (!amount || (i == CALLS && amount == 1))
            continue;
        if (way == 0) {
            complete = false;
            continue;
        }
        if (way < 3)
            used = random_below(&me->random, amount);
        else if (way == 3 && i != CALLS)
            used = amount + 1 + random_below(&me->random, 3);
        require(weir_update(acquisition, keys[i], used) == 0);
        if (used < amount && i != CALLS) /* a window gives nothing back */
            ret->amounts[i] = (uint32_t)(amount - used);
        me->tally.overused += used > amount;
    }
    me->tally.missing += !complete;
    return complete;
}

static void give_back(weir_acquisition **acquisition, bool complete)
{
    require(weir_release(acquisition) == (complete ? 0 : -EPROTO));
    require(!*acquisition);
}

/* Hands it to a releaser. */
static void send(const struct want *want, weir_acquisition *acquisition)
{
    struct parcel *parcel = malloc(sizeof(*parcel));

    require(parcel != NULL);
    parcel->acquisition = acquisition;
    memcpy(parcel->amounts, want->amounts, sizeof(parcel->amounts));
    atomic_fetch_add(&parcels_out, 1);
    pthread_mutex_lock(&parcels_lock);
    parcel->next = parcels;
    parcels = parcel;
    pthread_cond_signal(&parcels_more);
    pthread_mutex_unlock(&parcels_lock);
}

/* Everything that is done with a grant. */
static void use(struct worker *me, const struct want *want, weir_acquisition *acquisition)
{
    struct refund refund;
    bool complete;

    note_grant(me, want, acquisition);
    if (random_below(&me->random, 8) == 0)
        pause_ns(random_below(&me->random, 200000));
    complete = update(me, want, acquisition, &refund);
    if (complete && random_below(&me->random, 4) == 0) {
        refund.hi = UINT64_MAX; /* whenever that will be */
        history_add_refund(&me->history, &refund);
        if (!acquisition->record) {
            give_back(&acquisition, true);
            return;
        }
        send(want, acquisition);
        return;
    }
    if (acquisition->record)
        let_go(want->amounts);
    give_back(&acquisition, complete);
    refund.hi = clock_now() + AHEAD_NS; /* it may count as of an instant that is reserved */
    history_add_refund(&me->history, &refund);
}

static void step_acquire(struct worker *me, struct want *want)
{
    weir_acquisition *acquisition = NULL;
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    int r;

    if (random_below(&me->random, 3) == 0)
        want->request.timeout_ns = 1 + random_below(&me->random, 3 * MS);
    if (random_below(&me->random, 4) == 0)
        want->request.max_wait_ns = 1 + random_below(&me->random, 3 * MS);
    r = weir_acquire(me->pool, &want->request, &acquisition, &refusal);
    require((r == 0) == (acquisition != NULL));
    if (r == 0)
        use(me, want, acquisition);
    else if (r == -ETIMEDOUT)
        me->tally.timed_out++;
    else
        me->tally.refused_max_wait++;
    require(r == 0 || (r == -ETIMEDOUT && want->request.timeout_ns != WEIR_FOREVER) ||
            (r == -EAGAIN && want->request.max_wait_ns));
    require(r == 0 || strcmp(refusal.set, "five") == 0);
}

static void step_try(struct worker *me, struct want *want)
{
    weir_acquisition *acquisition = NULL;
    int r = weir_try_acquire(me->pool, &want->request, &acquisition, NULL);

    require((r == 0) == (acquisition != NULL));
    require(r == 0 || r == -EAGAIN);
    if (r == 0)
        use(me, want, acquisition);
    else
        me->tally.busy++;
}

static void step_take(struct worker *me, struct want *want)
{
    struct event event = {.lo = clock_now() - late_ns};
    int r = weir_take(me->pool, &want->request, NULL);

    event.hi = clock_now();
    require(r == 0 || r == -EAGAIN);
    if (r == -EAGAIN) {
        me->tally.busy++;
        return;
    }
    me->tally.granted++;
    me->tally.taken++;
    for (int i = 0; i < HISTORY_LIMITS; i++)
        event.amounts[i] = (uint32_t)want->amounts[i];
    if (event.amounts[TOKENS] || event.amounts[BYTES] || event.amounts[CALLS])
        history_add(&me->history, &event);
}

/* Nothing of what is taken back counts, before its instant or after. */
static void step_reserve(struct worker *me, struct want *want)
{
    weir_acquisition *acquisition = NULL;
    uint64_t at = 0;
    int r;

    want->request.max_wait_ns = 1 + random_below(&me->random, AHEAD_NS);
    r = weir_reserve(me->pool, &want->request, &acquisition, &at, NULL);
    require(r == 0 || r == -EAGAIN);
    require((r == 0) == (acquisition != NULL) && (r == 0) == (at != 0));
    if (r < 0) {
        me->tally.unreserved++;
        return;
    }
    require(weir_acquisition_result(acquisition) == 0);
    me->tally.reserved++;
    while (random_below(&me->random, 16) && clock_now() < at)
        pause_ns(random_below(&me->random, 100000));
    if (clock_now() >= at && random_below(&me->random, 4)) {
        use(me, want, acquisition);
        return;
    }
    require(weir_cancel(acquisition) == 0);
    require(weir_acquisition_result(acquisition) == -ECANCELED);
    give_back(&acquisition, true);
    me->tally.canceled++;
}

static void step_impossible(struct worker *me, struct want *want)
{
    weir_acquisition *acquisition = NULL;

    want->items[DB].amount = DB_CAPACITY + 1;
    require(weir_submit(me->pool, &want->request, &acquisition, NULL) == -ERANGE);
    require(!acquisition);
    me->tally.impossible++;
}

static void await(struct worker *me, weir_acquisition *acquisition)
{
    bool own = random_below(&me->random, 2);
    struct pollfd poll_fd = {.events = POLLIN};
    uint64_t count;

    if (own)
        require(weir_acquisition_attach(acquisition, me->event_fd) == 0);
    poll_fd.fd = weir_acquisition_fd(acquisition);
    require(own ? poll_fd.fd == me->event_fd : poll_fd.fd >= 0);
    require(poll(&poll_fd, 1, STUCK_S * 1000) == 1);
    require(poll_fd.revents == POLLIN);
    require(read(poll_fd.fd, &count, sizeof(count)) == sizeof(count) && count == 1);
    require(weir_acquisition_result(acquisition) != -EINPROGRESS);
}

/* Whatever became of it, once it is decided. */
static void settle_submitted(struct worker *me, struct want *want, weir_acquisition *acquisition)
{
    int r = weir_acquisition_result(acquisition);

    if (r == 0) {
        use(me, want, acquisition);
        return;
    }
    require(r == -ETIMEDOUT || r == -EAGAIN || r == -ECANCELED);
    me->tally.timed_out += r == -ETIMEDOUT;
    me->tally.refused_max_wait += r == -EAGAIN;
    me->tally.canceled += r == -ECANCELED;
    give_back(&acquisition, true);
}

static void cancel(struct worker *me, struct want *want, weir_acquisition *acquisition)
{
    int r;

    if (random_below(&me->random, 2))
        pause_ns(random_below(&me->random, 100000));
    if (random_below(&me->random, 2))
        require(weir_acquisition_fd(acquisition) >= 0);
    r = weir_cancel(acquisition);
    require(r == 0 || r == -EALREADY);
    require(r != 0 || weir_acquisition_result(acquisition) == -ECANCELED);
    settle_submitted(me, want, acquisition);
}

static void step_submit(struct worker *me, struct want *want)
{
    weir_acquisition *acquisition = NULL;
    int r;

    if (random_below(&me->random, 3) == 0)
        want->request.timeout_ns = 1 + random_below(&me->random, 3 * MS);
    if (random_below(&me->random, 4) == 0)
        want->request.max_wait_ns = 1 + random_below(&me->random, 3 * MS);
    r = weir_submit(me->pool, &want->request, &acquisition, NULL);
    require((r >= 0) == (acquisition != NULL));
    require(r >= 0 || (r == -EAGAIN && want->request.max_wait_ns));
    if (r < 0) {
        me->tally.refused_max_wait++;
        return;
    }
    if (r == 0) {
        use(me, want, acquisition);
        return;
    }
    switch (random_below(&me->random, 4)) {
    case 0:
        cancel(me, want, acquisition);
        break;
    case 1: /* without ever looking at it */
        give_back(&acquisition, true);
        me->tally.abandoned++;
        break;
    default:
        await(me, acquisition);
        settle_submitted(me, want, acquisition);
    }
}

/* What observers see while everything moves. */
static void step_look(struct worker *me)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[HISTORY_LIMITS];
    struct weir_holder holders[16];
    uint64_t ready_at;
    int n;

    require(weir_set_stats(five, &stats, limits, HISTORY_LIMITS) == HISTORY_LIMITS);
    require(stats.waiting <= THREADS && stats.held < UINT64_MAX / 2);
    require(limits[DB].held <= DB_CAPACITY && limits[FILES].held <= FILES_CAPACITY);
    require(limits[DB].available + limits[DB].held == DB_CAPACITY);
    require(limits[CALLS].available <= CALLS_CAPACITY);
    n = weir_set_holders(five, holders, random_below(&me->random, 17));
    require(n >= 0);
    require(weir_set_ready_at(five, NULL, &ready_at) == -EINVAL);
}

static void step(struct worker *me)
{
    uint64_t way = random_below(&me->random, 100);
    struct want want;

    choose(me, way >= 45 && way < 64, &want);
    if (way == 99) {
        step_look(me);
        return;
    }
    me->tally.asked++;
    if (way < 30)
        step_acquire(me, &want);
    else if (way < 45)
        step_try(me, &want);
    else if (way < 60)
        step_take(me, &want);
    else if (way < 64)
        step_reserve(me, &want);
    else if (way < 97)
        step_submit(me, &want);
    else
        step_impossible(me, &want);
}

static void *work(void *argument)
{
    struct worker *me = argument;

    for (;;) {
        pthread_barrier_wait(&begin);
        if (atomic_load(&over))
            return NULL;
        for (int i = 0; i < STEPS; i++)
            step(me);
        pthread_barrier_wait(&finish);
    }
}

static void *release_for_others(void *unused)
{
    (void)unused;
    for (;;) {
        struct parcel *parcel;

        pthread_mutex_lock(&parcels_lock);
        while (!parcels && !atomic_load(&over))
            pthread_cond_wait(&parcels_more, &parcels_lock);
        parcel = parcels;
        if (parcel)
            parcels = parcel->next;
        pthread_mutex_unlock(&parcels_lock);
        if (!parcel)
            return NULL;
        let_go(parcel->amounts);
        give_back(&parcel->acquisition, true);
        free(parcel);
        atomic_fetch_sub(&parcels_out, 1);
    }
}

static void check_quiet(void)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[HISTORY_LIMITS];

    while (atomic_load(&parcels_out))
        sched_yield();
    require(weir_set_stats(five, &stats, limits, HISTORY_LIMITS) == HISTORY_LIMITS);
    require(stats.waiting == 0 && stats.held == 0);
    require(limits[DB].held == 0 && limits[FILES].held == 0);
    require(limits[DB].available == DB_CAPACITY && limits[FILES].available == FILES_CAPACITY);
    require(weir_set_holders(five, NULL, 0) == 0);
}

static void add_tally(struct tally *to, const struct tally *from)
{
    to->asked += from->asked;
    to->granted += from->granted;
    to->taken += from->taken;
    to->busy += from->busy;
    to->impossible += from->impossible;
    to->refused_max_wait += from->refused_max_wait;
    to->timed_out += from->timed_out;
    to->canceled += from->canceled;
    to->abandoned += from->abandoned;
    to->missing += from->missing;
    to->overused += from->overused;
    to->reserved += from->reserved;
    to->unreserved += from->unreserved;
}

/* Every request ended in exactly one way, and the set counted what the threads saw. */
static void check_counts(const struct tally *seen)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    uint64_t unwanted, unreserved, in_time = 0;

    require(weir_set_stats(five, &stats, NULL, 0) == HISTORY_LIMITS);
    for (int i = 0; i < WEIR_WAIT_BUCKETS; i++)
        in_time += stats.wait_histogram[i];
    require(stats.granted >= seen->granted);
    unwanted = stats.granted - seen->granted; /* grants that went back */
    require(stats.granted == stats.released + stats.taken);
    require(stats.taken == seen->taken);
    require(stats.refused_busy >= seen->busy);
    unreserved = stats.refused_busy - seen->busy;
    require(unreserved <= seen->unreserved);
    unreserved = seen->unreserved - unreserved; /* those that were beyond max_wait */
    require(stats.refused_impossible == seen->impossible);
    require(stats.refused_full == 0 && stats.refused_unknown == 0);
    require(stats.timed_out + stats.refused_max_wait + stats.canceled ==
            seen->timed_out + seen->refused_max_wait + seen->canceled + seen->abandoned +
                unreserved);
    require(stats.timed_out >= seen->timed_out && stats.canceled >= seen->canceled);
    require(unwanted <= stats.canceled);
    require(seen->asked == seen->granted + stats.refused_busy + stats.refused_impossible +
                               stats.timed_out + stats.refused_max_wait + stats.canceled);
    require(stats.missing_update == seen->missing);
    require(stats.overused <= seen->overused);
    require(in_time == stats.granted_waited);
    printf("%" PRIu64 " asked, %" PRIu64 " granted (%" PRIu64 " after a wait, the longest %" PRIu64
           " ms), %" PRIu64 " timed out, %" PRIu64 " canceled, %" PRIu64 " granted in vain\n",
           seen->asked, stats.granted, stats.granted_waited, stats.wait_ns_max / MS,
           stats.timed_out, stats.canceled, unwanted);
    printf("%" PRIu64 " reserved, %" PRIu64 " not\n", seen->reserved, seen->unreserved);
    require(stats.granted_waited > 0 && stats.canceled > 0 && stats.timed_out > 0);
    require(seen->reserved > 0);
}

static void check_history(const struct history *history)
{
    require(history_keeps_order(history));
    require(history_keeps_rate(history, TOKENS, TOKENS_BURST, TOKENS_CAPACITY, SECOND));
    require(history_keeps_rate(history, BYTES, BYTES_BURST, BYTES_CAPACITY, SECOND));
    require(history_keeps_window(history, CALLS, CALLS_CAPACITY, MS));
}

static void open_instance(void)
{
    struct weir_options options = {
        .size = sizeof(options), .text = text, .clock_source = clock_source};
    struct weir_error error = {0};
    weir_pool *pool;

    if (weir_open(&instance, &options, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    require(weir_pool_open(&pool, instance, "five", 0, NULL) == 0);
    five = weir_pool_set(pool, 0);
    weir_pool_close(pool);
}

static void run_rounds(uint64_t until)
{
    do {
        alarm(STUCK_S); /* a round that never ends: a waiter was forgotten */
        pthread_barrier_wait(&begin);
        pthread_barrier_wait(&finish);
        check_quiet();
    } while (clock_now() < until);
    atomic_store(&over, true);
    pthread_barrier_wait(&begin);
    pthread_mutex_lock(&parcels_lock);
    pthread_cond_broadcast(&parcels_more);
    pthread_mutex_unlock(&parcels_lock);
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS];
    uint64_t seconds = argc > 1 ? strtoull(argv[1], NULL, 10) : number_from("WEIR_DURATION", 4);
    pthread_t releasers[RELEASERS];
    struct history history = {0};
    struct tally tally = {0};

    if (argc > 2 && strcmp(argv[2], "tsc") == 0) {
        clock_source = WEIR_CLOCK_TSC;
        late_ns = TSC_LAG_NS;
    }
    seed_begin();
    open_instance();
    pthread_barrier_init(&begin, NULL, THREADS + 1);
    pthread_barrier_init(&finish, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        workers[i].random = random_case(test_seed, (uint64_t)i);
        workers[i].event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        require(workers[i].event_fd >= 0);
        require(weir_pool_open(&workers[i].pool, instance, i % 2 ? "five" : "pool",
                               WEIR_WORKER_AUTO, NULL) == 0);
        require(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < RELEASERS; i++)
        require(pthread_create(&releasers[i], NULL, release_for_others, NULL) == 0);
    run_rounds(clock_now() + seconds * SECOND);
    for (int i = 0; i < THREADS; i++) {
        require(pthread_join(workers[i].thread, NULL) == 0);
        weir_pool_close(workers[i].pool);
        add_tally(&tally, &workers[i].tally);
        history_merge(&history, &workers[i].history);
    }
    for (int i = 0; i < RELEASERS; i++)
        require(pthread_join(releasers[i], NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        require(close(workers[i].event_fd) == 0);
    alarm(STUCK_S);
    check_quiet();
    check_counts(&tally);
    check_history(&history);
    history_free(&history);
    weir_close(instance);
    return 0;
}
