/* SPDX-License-Identifier: MIT */
/*
 * The kill test of keyed sets. Processes of three threads ask for few keys, of which there is too
 * little, and for many, for which there is no room at the same time, while random ones are killed
 * at random moments and others take their places. So key sets are bound, joined, left, unbound and
 * bound again by processes that die over it. Never is more held of a key than its capacity, nor
 * more granted than its rate; no request overtakes, and none waits for ever. Once they rest, all of
 * each key can be had, by as many keys at the same time as there is room for, and by no more.
 *
 *     test_keyed_kill [kills]     of each kind of set; or WEIR_ROUNDS; seed from WEIR_SEED
 */
#include "api/acquisition.h"
#include "api/instance.h"
#include "fleet.h"
#include "keyed/keyed.h"
#include "lib/clock.h"
#include "lib/history.h"
#include "look.h"
#include "shared.h"
#include "shm/key_table.h"
#include "shm/participant.h"
#include "state/version.h"
#include "state/wait_queue.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>

enum { WORKERS = 5, THREADS = 3, SUBJECTS = 128, HOT = 4, MAX_KEYS = 8, LOG_ROOM = 1 << 12 };
enum { STUCK_S = 60, KILLS_PER_REST = 30, LIFE_STEPS = 400 };

#define SLOTS UINT64_C(3)
#define BURST UINT64_C(8)
#define PER_S UINT64_C(1000)

#define HEAD(evict)                                                                                \
    "version: 1\n"                                                                                 \
    "sets:\n"                                                                                      \
    "  s:\n"                                                                                       \
    "    backend: process\n"                                                                       \
    "    subjects: { max: 8, evict: " evict " }\n"                                                 \
    "    limits:\n"

#define SLOT "      - { type: resource, key: slot, capacity: 3 }\n"
#define WORD "      - { type: rate, key: n, algorithm: gcra, capacity: 1k, window: 1s, burst: 8 }\n"
#define WIDE                                                                                       \
    "      - { type: rate, key: n, algorithm: token_bucket, capacity: 1k, window: 1s, burst: 8 "   \
    "}\n"

static const struct yaml_kind {
    const char *name, *text;
    bool slots, rate; /* it has these */
    bool evicts;      /* then what a rate has granted may be forgotten */
} shapes[] = {
    {"resource", HEAD("oldest") SLOT, true, false, true},
    {"rate", HEAD("none") WORD, false, true, false},
    {"both", HEAD("none") SLOT WIDE, true, true, false},
    {"both, evicted", HEAD("random") SLOT WIDE, true, true, true},
};

static const struct yaml_kind *shape;

/* ---- the log that survives deaths ---- */

/* A grant; or a refund, of a request that has not waited. */
struct noted {
    uint32_t subject, amount;
    uint64_t since, lo, hi;
    bool refund;
};

/* Of one thread, which alone writes there. */
struct log {
    _Atomic uint64_t n, read;
    const char *_Atomic doing;
    _Atomic uint32_t subject;
    _Atomic bool rests;
    _Atomic bool refunding; /* it may have come to this refund, or not: */
    struct noted refund;
    struct noted noted[LOG_ROOM];
};

/* A byte per worker and subject: what it holds, and whether it is about to be killed. */
struct grants_log {
    _Atomic uint64_t holders[SUBJECTS];
    _Atomic uint64_t granted, refused; /* acquisitions; requests for which there was no room */
    _Atomic bool rest;
    struct log logs[WORKERS][THREADS];
};

#define DOOMED UINT64_C(0x80)

static struct grants_log *grants_log;
static struct history histories[SUBJECTS];
static uint64_t checked;

static unsigned shift(uint32_t worker)
{
    return 8 * worker;
}

static void hold(uint32_t worker, uint32_t subject, uint64_t amount)
{
    uint64_t all = atomic_fetch_add(&grants_log->holders[subject], amount << shift(worker)),
             sum = 0;

    all += amount << shift(worker);
    for (uint32_t i = 0; i < WORKERS; i++)
        if (!(all >> shift(i) & DOOMED))
            sum += all >> shift(i) & (DOOMED - 1);
    if (sum > SLOTS)
        fprintf(stderr, "of key %" PRIu32 " %" PRIu64 " are held: %016" PRIx64 "\n", subject, sum,
                all);
    require(sum <= SLOTS);
}

static void let_go(uint32_t worker, uint32_t subject, uint64_t amount)
{
    atomic_fetch_sub(&grants_log->holders[subject], amount << shift(worker));
}

static void doom(uint32_t worker)
{
    for (uint32_t i = 0; i < SUBJECTS; i++)
        atomic_fetch_or(&grants_log->holders[i], DOOMED << shift(worker));
}

static bool has_room(const struct log *log)
{
    return atomic_load(&log->n) - atomic_load(&log->read) < LOG_ROOM;
}

static void note(struct log *log, const struct noted *noted)
{
    uint64_t n = atomic_load(&log->n);

    log->noted[n % LOG_ROOM] = *noted;
    atomic_store(&log->n, n + 1);
}

/* What there is no room for is left out: then less is checked. */
static void note_grant(struct log *log, const struct noted *grant)
{
    if (has_room(log))
        note(log, grant);
}

/* Without a refund what it made possible would be too much. */
static void note_refund(struct log *log, const struct noted *refund)
{
    while (!has_room(log))
        pause_ns(100000);
    note(log, refund);
}

static void add(const struct noted *noted)
{
    const struct event event = {
        .since = noted->since, .lo = noted->lo, .hi = noted->hi, .amounts = {noted->amount}};
    const struct refund refund = {.lo = noted->lo, .hi = noted->hi, .amounts = {noted->amount}};

    if (noted->refund)
        history_add_refund(&histories[noted->subject], &refund);
    else
        history_add(&histories[noted->subject], &event);
}

static void read_log(struct log *log)
{
    uint64_t n = atomic_load(&log->n), i = atomic_load(&log->read);

    for (; i < n; i++)
        add(&log->noted[i % LOG_ROOM]);
    atomic_store(&log->read, n);
}

static void read_logs(void)
{
    for (uint32_t i = 0; i < WORKERS; i++)
        for (uint32_t k = 0; k < THREADS; k++)
            read_log(&grants_log->logs[i][k]);
}

static void reap_worker(uint32_t worker)
{
    for (uint32_t k = 0; k < THREADS; k++) {
        struct log *log = &grants_log->logs[worker][k];

        read_log(log);
        if (atomic_load(&log->refunding)) {
            log->refund.hi = clock_now();
            add(&log->refund);
        }
        atomic_store(&log->refunding, false);
        atomic_store(&log->rests, false);
    }
    for (uint32_t i = 0; i < SUBJECTS; i++)
        atomic_fetch_and(&grants_log->holders[i], ~(UINT64_C(0xff) << shift(worker)));
}

static void check_histories(void)
{
    read_logs();
    for (uint32_t i = 0; i < SUBJECTS; i++) {
        if (shape->rate && !shape->evicts)
            require(history_keeps_rate(&histories[i], 0, BURST, PER_S, SECOND));
        require(history_keeps_order(&histories[i]));
        checked += histories[i].events_n;
        histories[i].events_n = histories[i].refunds_n = 0;
    }
}

/* ---- a request ---- */

struct want {
    uint32_t subject;
    uint64_t slots, n;
    struct weir_amount items[2];
    struct weir_request request;
};

static void want(struct want *ret, uint32_t subject, uint64_t slots, uint64_t n)
{
    uint32_t items = 0;

    *ret = (struct want){.subject = subject, .slots = slots, .n = n};
    if (shape->slots)
        ret->items[items++] = (struct weir_amount){"slot", slots};
    if (shape->rate)
        ret->items[items++] = (struct weir_amount){"n", n};
    ret->request = (struct weir_request){.size = sizeof(ret->request),
                                         .amounts = ret->items,
                                         .amounts_n = items,
                                         .subject = &ret->subject,
                                         .subject_size = sizeof(ret->subject),
                                         .timeout_ns = WEIR_FOREVER};
}

/* ---- threads of workers ---- */

struct thread {
    uint32_t worker, steps;
    uint64_t random;
    struct log *log;
    weir_pool *pool;
    struct fleet_worker *me;
    pthread_t id;
};

static uint64_t below(struct thread *t, uint64_t n)
{
    return random_below(&t->random, n);
}

static void choose(struct thread *t, struct want *ret)
{
    uint32_t subject =
        (uint32_t)(below(t, 3) ? below(t, HOT) : HOT + below(t, SUBJECTS - (uint64_t)HOT));

    want(ret, subject, 1 + below(t, SLOTS), shape->slots ? below(t, 3) : 1 + below(t, 3));
    if (below(t, 3) == 0)
        ret->request.timeout_ns = 1 + below(t, 3 * MS);
    if (below(t, 4) == 0)
        ret->request.max_wait_ns = 1 + below(t, 3 * MS);
    atomic_store(&t->log->subject, subject);
}

/* Whether it was granted; otherwise it ended as it may. */
static bool is_granted(const struct want *want, int r)
{
    bool good = r == 0 || r == -ENOBUFS || r == -ECANCELED || r == -EAGAIN ||
                (r == -ETIMEDOUT && want->request.timeout_ns != WEIR_FOREVER);

    if (!good)
        fprintf(stderr, "of key %" PRIu32 ": %d\n", want->subject, r);
    require(good);
    if (r == -ENOBUFS)
        atomic_fetch_add(&grants_log->refused, 1);
    return r == 0;
}

/* At the instants that the set itself used. */
static void use(struct thread *t, const struct want *want, weir_acquisition *acquisition)
{
    const struct acq_record *r = record_at(acquisition->set->region, acquisition->record);
    struct noted grant = {.subject = want->subject, .amount = (uint32_t)want->n};

    require(record_state(record_load(&r->word)) == RECORD_HELD);
    grant.since = record_load(&r->enqueued_ns);
    grant.lo = grant.hi = record_load(&r->granted_ns);
    require(grant.since <= grant.lo && grant.hi <= clock_now());
    if (shape->slots)
        hold(t->worker, want->subject, want->slots);
    note_grant(t->log, &grant);
    atomic_store(&t->log->doing, "hold");
    if (below(t, 4) == 0)
        pause_ns(below(t, 300000));
    if (shape->rate && want->n)
        require(weir_update(acquisition, "n", want->n) == 0);
    if (shape->slots)
        let_go(t->worker, want->subject, want->slots);
    atomic_store(&t->log->doing, "release");
    require(weir_release(&acquisition) == 0);
    atomic_fetch_add_explicit(&grants_log->granted, 1, memory_order_relaxed);
}

static void step_acquire(struct thread *t, const struct want *want)
{
    weir_acquisition *acquisition = NULL;

    atomic_store(&t->log->doing, "acquire");
    if (is_granted(want, weir_acquire(t->pool, &want->request, &acquisition, NULL)))
        use(t, want, acquisition);
}

static void step_try(struct thread *t, const struct want *want)
{
    weir_acquisition *acquisition = NULL;

    atomic_store(&t->log->doing, "try");
    if (is_granted(want, weir_try_acquire(t->pool, &want->request, &acquisition, NULL)))
        use(t, want, acquisition);
}

/* Of a rate alone. */
static void step_take(struct thread *t, struct want *chosen)
{
    struct noted grant = {.subject = chosen->subject, .amount = (uint32_t)chosen->n};

    atomic_store(&t->log->doing, "take");
    want(chosen, chosen->subject, 0, chosen->n);
    grant.lo = clock_now();
    if (!is_granted(chosen, weir_take(t->pool, &chosen->request, NULL)))
        return;
    grant.hi = clock_now();
    note_grant(t->log, &grant);
}

static void settle(struct thread *t, const struct want *want, weir_acquisition *acquisition)
{
    if (is_granted(want, weir_acquisition_result(acquisition)))
        use(t, want, acquisition);
    else
        require(weir_release(&acquisition) == 0);
}

static void await(struct thread *t, weir_acquisition *acquisition)
{
    struct pollfd fd = {.fd = weir_acquisition_fd(acquisition), .events = POLLIN};

    atomic_store(&t->log->doing, "await");
    require(fd.fd >= 0);
    require(poll(&fd, 1, -1) == 1);
}

/* A thread that was granted it, and does not know yet, gives it back. */
static void cancel(struct thread *t, const struct want *want, weir_acquisition *acquisition)
{
    const struct acq_record *r = record_at(acquisition->set->region, acquisition->record);
    struct log *log = t->log;
    int result;

    atomic_store(&log->doing, "cancel");
    log->refund = (struct noted){
        .subject = want->subject, .amount = (uint32_t)want->n, .lo = clock_now(), .refund = true};
    atomic_store(&log->refunding, true);
    result = weir_cancel(acquisition);
    require(result == 0 || result == -EALREADY);
    if (result == 0 && record_state(record_load(&r->word)) == RECORD_FREE) {
        struct noted refund = log->refund;

        refund.hi = clock_now();
        note_refund(log, &refund);
    }
    atomic_store(&log->refunding, false);
}

static void step_submit(struct thread *t, const struct want *want)
{
    weir_acquisition *acquisition = NULL;
    int r;

    atomic_store(&t->log->doing, "submit");
    r = weir_submit(t->pool, &want->request, &acquisition, NULL);
    if (r < 0) {
        is_granted(want, r);
        return;
    }
    if (r == 1 && below(t, 3) == 0)
        cancel(t, want, acquisition);
    else if (r == 1)
        await(t, acquisition);
    settle(t, want, acquisition);
}

static void step(struct thread *t)
{
    uint64_t way = below(t, 100);
    struct want want;

    choose(t, &want);
    if (way < 35)
        step_acquire(t, &want);
    else if (way < 60)
        step_try(t, &want);
    else if (way < 75 && shape->rate && want.n)
        step_take(t, &want);
    else
        step_submit(t, &want);
    fleet_step(t->me, shape->name);
}

static void rest(struct thread *t)
{
    atomic_store(&t->log->doing, "rest");
    atomic_store(&t->log->rests, true);
    while (atomic_load(&grants_log->rest) && fleet_goes_on(t->me))
        pause_ns(200000);
    atomic_store(&t->log->rests, false);
}

static void *live(void *argument)
{
    struct thread *t = argument;

    for (uint32_t i = 0; i < t->steps && fleet_goes_on(t->me); i++) {
        if (atomic_load(&grants_log->rest))
            rest(t);
        step(t);
    }
    atomic_store(&t->log->doing, "end");
    atomic_store(&t->log->rests, true); /* it holds nothing */
    return NULL;
}

/* One instance after another. */
static void work(struct fleet_worker *me)
{
    struct thread threads[THREADS];

    test_seed = me->random;
    while (fleet_goes_on(me)) {
        weir *w = shared_open(shape->text);
        weir_pool *pool = shared_pool(w, "s");

        for (uint32_t i = 0; i < THREADS; i++) {
            threads[i] = (struct thread){.worker = me->number,
                                         .steps = LIFE_STEPS,
                                         .random = random_next(&me->random),
                                         .log = &grants_log->logs[me->number][i],
                                         .pool = pool,
                                         .me = me};
            atomic_store(&threads[i].log->rests, false);
            require(pthread_create(&threads[i].id, NULL, live, &threads[i]) == 0);
        }
        for (uint32_t i = 0; i < THREADS; i++)
            require(pthread_join(threads[i].id, NULL) == 0);
        weir_pool_close(pool);
        weir_close(w);
    }
}

/* ---- what is left when they rest ---- */

static struct fleet *fleet;
static uint64_t killed;

static uint64_t chance(uint64_t n)
{
    return fleet_random(fleet) % n;
}

static void say_holder(void)
{
    for (uint32_t i = 0; i < WORKERS; i++)
        for (uint32_t k = 0; k < THREADS; k++) {
            struct log *log = &grants_log->logs[i][k];
            const char *doing = atomic_load(&log->doing);

            fprintf(stderr, "worker %" PRIu32 ".%" PRIu32 ": %s of key %" PRIu32 "\n", i, k,
                    doing ? doing : "nothing", atomic_load(&log->subject));
        }
}

static void say_set(weir_pool *pool)
{
    struct weir_holder holders[32];
    struct weir_subjects_stats keyed = {.size = sizeof(keyed)};
    struct weir_set_stats stats = shared_stats(pool);
    int n = weir_set_holders(weir_pool_set(pool, 0), holders, 32);

    weir_set_subjects(weir_pool_set(pool, 0), &keyed);
    fprintf(stderr,
            "held %" PRIu64 ", waiting %" PRIu64 ", %" PRIu64 " keys, %" PRIu64 " live; at %" PRIu64
            "\n",
            stats.held, stats.waiting, keyed.known, keyed.live, clock_now());
    for (int i = 0; i < n && i < 32; i++)
        fprintf(stderr, "  %s: process %u since %" PRIu64 " us, position %u\n",
                holders[i].waiting ? "waits" : "holds", holders[i].process,
                (clock_now() - holders[i].since_ns) / 1000, holders[i].position);
}

static void say_live(weir_set *set)
{
    static const char *const phases[] = {"unbound", "binding", "bound", "?"};
    uint64_t content[64];
    struct version version = {
        .content = content, .content_capacity = 64, .inline_format = set->inline_format};
    const struct key_binding *words = key_binding_behind(set, content + CONTENT_STATES);

    version_read(set->region, set->head_unit, &version);
    fprintf(stderr,
            "  key set %" PRIu32 ": %s, binding %" PRIu64 ", %" PRIu32 "waiters, state %" PRIx64
            "\n",
            key_set_of(set)->number, phases[words->binding & 3], words->binding >> 2,
            waitq_length(&version), content[CONTENT_STATES]);
}

static void say_key_sets(struct keyed *keyed)
{
    struct key_entry entry;

    for (uint32_t i = 0; i < key_sets_n(keyed); i++)
        say_live(&key_set_by_number(keyed, i, NULL)->set);
    for (uint64_t i = 0; i < key_table_slots(&keyed->table); i++)
        if (key_table_at(&keyed->table, i, &entry))
            fprintf(stderr, "  entry %" PRIu64 ": %" PRIx64 ", %" PRIx64 "\n", i, entry.id,
                    entry.word);
}

static _Noreturn void give_up(const char *why, weir_pool *pool)
{
    fprintf(stderr, "%s, %s:\n", shape->name, why);
    say_holder();
    if (pool)
        say_key_sets(keyed_of(weir_pool_set(pool, 0)));
    say_set(pool ? pool : shared_pool(shared_open(shape->text), "s"));
    require_failed(why, __FILE__, __LINE__);
}

static bool all_rest(void)
{
    for (uint32_t i = 0; i < WORKERS; i++)
        for (uint32_t k = 0; k < THREADS; k++)
            if (!atomic_load(&grants_log->logs[i][k].rests))
                return false;
    return true;
}

static void let_rest(void)
{
    uint64_t until = clock_now() + STUCK_S * SECOND;

    atomic_store(&grants_log->rest, true);
    while (!all_rest()) {
        read_logs();
        pause_ns(200000);
        if (clock_now() > until)
            give_up("a request waits for ever", NULL);
    }
}

static int have_all_r;

/* All of so many keys, of which every thread asks for some; how many were had. */
static uint32_t have_all(weir_pool *pool, uint32_t first, weir_acquisition *held[MAX_KEYS + 1])
{
    struct want all;

    for (uint32_t i = 0; i <= MAX_KEYS; i++) {
        int r;

        want(&all, (first + i) % SUBJECTS, SLOTS, BURST);
        r = weir_try_acquire(pool, &all.request, &held[i], NULL);
        require(r == 0 || r == -EAGAIN || r == -ENOBUFS);
        have_all_r = r;
        if (r < 0)
            return i;
    }
    return MAX_KEYS + 1;
}

static void give_back(weir_acquisition **held, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (shape->rate)
            require(weir_update(held[i], "n", BURST) == 0);
        require(weir_release(&held[i]) == 0);
    }
}

static void require_unused(weir_pool *pool)
{
    struct weir_set_stats stats = shared_stats(pool);

    if (stats.held || stats.waiting)
        say_set(pool);
    require(stats.held == 0 && stats.waiting == 0);
    require(weir_set_holders(weir_pool_set(pool, 0), NULL, 0) == 0);
}

/* Rates come back with time, and the dead are looked for once in a millisecond. */
static void require_all_free(weir_pool *pool)
{
    uint64_t until = clock_now() + 5 * SECOND;
    weir_acquisition *held[MAX_KEYS + 1];
    uint32_t first = (uint32_t)chance(SUBJECTS), n;

    while ((n = have_all(pool, first, held)) < MAX_KEYS) {
        give_back(held, n);
        if (clock_now() > until) {
            fprintf(stderr, "%d: only %" PRIu32 " keys can be had\n", have_all_r, n);
            give_up("something is lost", pool);
        }
        pause_ns(10 * MS);
    }
    if (shape->slots) {
        struct weir_subjects_stats keyed = {.size = sizeof(keyed)};

        require(n == MAX_KEYS);
        require(weir_set_subjects(weir_pool_set(pool, 0), &keyed) == 1 && keyed.live == MAX_KEYS);
        require(shared_stats(pool).held == MAX_KEYS);
        require(weir_set_holders(weir_pool_set(pool, 0), NULL, 0) == MAX_KEYS);
    }
    give_back(held, n);
}

/* As many keys can have waiters as there can be keys. False: time has let a request through. */
static bool have_lines(weir_pool *pool, uint32_t first)
{
    weir_acquisition *waiting[MAX_KEYS] = {NULL}, *held;
    bool all = true;
    struct want want_all;

    for (uint32_t i = 0; i < MAX_KEYS; i++) {
        int r;

        want(&want_all, (first + i) % SUBJECTS, SLOTS, BURST);
        held = NULL;
        r = weir_try_acquire(pool, &want_all.request, &held, NULL);
        require(r == 0 || r == -EAGAIN);
        if (r == 0)
            give_back(&held, 1);
        r = weir_submit(pool, &want_all.request, &waiting[i], NULL);
        if (r < 0)
            give_up("there is no room for waiters", pool);
    }
    for (uint32_t i = 0; i < MAX_KEYS; i++)
        all &= weir_acquisition_result(waiting[i]) == -EINPROGRESS;
    for (uint32_t i = 0; i < MAX_KEYS; i++)
        weir_release(&waiting[i]);
    return all;
}

static void require_all_lines(weir_pool *pool)
{
    uint64_t until = clock_now() + 20 * SECOND;

    while (!have_lines(pool, (uint32_t)chance(SUBJECTS)))
        require(clock_now() < until);
}

static void inspect(bool ends)
{
    weir *w = shared_open(shape->text);
    weir_pool *pool = shared_pool(w, "s");
    const weir_set *set = weir_pool_set(pool, 0);

    require_all_free(pool);
    require_unused(pool);
    if (!shape->slots)
        require_all_lines(pool);
    require_unused(pool);
    look_key_sets(set);
    if (ends)
        look_idle(set, &set->participant->peer_key, 1);
    check_histories();
    weir_pool_close(pool);
    weir_close(w);
}

/* ---- the test ---- */

/* One process, or several at once, or nearly: the second may be at cleaning up after the first. */
static void kill_some(uint32_t n)
{
    uint32_t first = (uint32_t)chance(WORKERS);

    for (uint32_t i = 0; i < n; i++)
        doom((first + i) % WORKERS);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t worker = (first + i) % WORKERS;

        if (chance(8) == 0)
            require(fleet_stop(fleet, worker));
        require(fleet_kill(fleet, worker));
        killed++;
        if (chance(2))
            pause_ns(chance(300000));
    }
    for (uint32_t i = 0; i < n; i++) {
        reap_worker((first + i) % WORKERS);
        require(fleet_respawn(fleet, (first + i) % WORKERS));
    }
}

static void kill_many(uint64_t kills)
{
    uint64_t rest_at = KILLS_PER_REST;

    while (killed < kills) {
        pause_ns(chance(4) ? chance(10 * MS) : chance(100000));
        kill_some(chance(8) ? 1 : 2 + (uint32_t)chance(2));
        read_logs();
        if (killed < rest_at && killed < kills)
            continue;
        let_rest();
        inspect(false);
        atomic_store(&grants_log->rest, false);
        rest_at = killed + KILLS_PER_REST;
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        doom(i);
        require(fleet_kill(fleet, i));
        reap_worker(i);
    }
    inspect(true);
}

static void say_numbers(void)
{
    weir *w = shared_open(shape->text);
    weir_pool *pool = shared_pool(w, "s");
    struct weir_subjects_stats keyed = {.size = sizeof(keyed)};

    require(weir_set_subjects(weir_pool_set(pool, 0), &keyed) == 1);
    printf("%s: %" PRIu64 " killed, %" PRIu64 " granted, %" PRIu64 " found no room; %" PRIu64
           " grants checked; %" PRIu64 " keys forgotten, %" PRIu64 " evicted\n",
           shape->name, killed, atomic_load(&grants_log->granted),
           atomic_load(&grants_log->refused), checked, keyed.forgotten, keyed.evicted);
    require(atomic_load(&grants_log->granted) > 0 && keyed.forgotten + keyed.evicted > 0);
    weir_pool_close(pool);
    weir_close(w);
}

static void run(uint64_t kills)
{
    const struct fleet_plan plan = {
        .workers = WORKERS, .events_max = 1 << 16, .seed = test_seed, .run = work};

    grants_log =
        mmap(NULL, sizeof(*grants_log), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    require(grants_log != MAP_FAILED);
    killed = checked = 0;
    shared_begin();
    fleet = fleet_new(&plan);
    require(fleet && fleet_start(fleet));
    kill_many(kills);
    fleet_free(fleet);
    say_numbers();
    shared_end();
    for (uint32_t i = 0; i < SUBJECTS; i++)
        history_free(&histories[i]);
    munmap(grants_log, sizeof(*grants_log));
}

int main(int argc, char **argv)
{
    uint64_t kills = argc > 1 ? strtoull(argv[1], NULL, 10) : effort_from("WEIR_ROUNDS", 60);

    seed_begin();
    printf("seed %" PRIu64 "\n", test_seed);
    fflush(stdout);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        shape = &shapes[i];
        run(kills);
        fflush(stdout);
    }
    return 0;
}
