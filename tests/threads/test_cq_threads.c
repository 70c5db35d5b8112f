/* SPDX-License-Identifier: MIT */
/*
 * Completion queues and many threads. Each submission ends in exactly one completion, whichever
 * threads submit, cancel, release, reap and close meanwhile. Nothing is granted beyond its capacity
 * or out of turn, and nothing is lost. Reapers sleep in poll: a missed wake shows as a poll that
 * does not end.
 *
 * WEIR_ROUNDS and WEIR_SEED override how many races are run, and the seed.
 */
#include "api/acquisition.h"
#include "api/instance.h"
#include "lib/clock.h"
#include "lib/fixture.h"
#include "lib/history.h"
#include "lib/require.h"
#include "wait/wait_timer.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/eventfd.h>
#include <weir/weir.h>

#include <cmocka.h>

enum { SETS = 2, QUEUES = 2, STUCK_S = 60, BATCH_MAX = 100 };

/* Two sets: one of a rate and a resource, one of a resource alone. */
enum { TOKENS, DB };
#define TOKENS_BURST    50u
#define TOKENS_CAPACITY 100000u
static const char text[] =
    "version: 1\n"
    "sets:\n"
    "  both:\n"
    "    limits:\n"
    "      - { type: rate, key: tokens, algorithm: token_bucket, capacity: 100k, window: 1s,\n"
    "          burst: 50 }\n"
    "      - { type: resource, key: db, capacity: 4 }\n"
    "  one:\n"
    "    limits: [ { type: resource, key: db, capacity: 1 } ]\n";
static const char *const names[SETS] = {"both", "one"};
static const unsigned db_capacity[SETS] = {4, 1};

static weir *w;
static weir_pool *pools[SETS];

static void open_world(void)
{
    struct weir_options options = {.size = sizeof(options), .text = text};

    require(weir_open(&w, &options, NULL) == 0);
    for (int i = 0; i < SETS; i++)
        require(weir_pool_open(&pools[i], w, names[i], 0, NULL) == 0);
}

static struct weir_set_stats stats_of(int set)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};

    require(weir_set_stats(weir_pool_set(pools[set], 0), &stats, NULL, 0) > 0);
    return stats;
}

static void check_whole(void)
{
    for (int i = 0; i < SETS; i++) {
        struct weir_set_stats stats = stats_of(i);

        require(stats.held == 0 && stats.waiting == 0);
        require(stats.granted == stats.released + stats.taken);
        require(weir_set_holders(weir_pool_set(pools[i], 0), NULL, 0) == 0);
    }
}

static void close_world(void)
{
    weir_close(w);
    for (int i = 0; i < SETS; i++)
        weir_pool_close(pools[i]);
}

struct want {
    struct weir_amount amounts[2];
    struct weir_request request;
};

static void ask_for(struct want *ret, int set, uint64_t tokens, uint64_t db, uint64_t timeout_ns)
{
    *ret = (struct want){.amounts = {{"db", db}, {"tokens", tokens}},
                         .request = {.size = sizeof(ret->request), .timeout_ns = timeout_ns}};
    ret->request.amounts = ret->amounts;
    ret->request.amounts_n = set == 0 ? 2 : 1;
}

static weir_queue *open_queue(unsigned capacity)
{
    weir_queue *queue = NULL;

    require(weir_queue_open(&queue, w, capacity) == 0);
    return queue;
}

static bool is_readable(weir_queue *queue)
{
    return poll(&(struct pollfd){weir_queue_fd(queue), POLLIN, 0}, 1, 0) == 1;
}

/* Sleeps until there is something, or `stop` is readable too; false: it is, and there is not. */
static bool await_queue(weir_queue *queue, int stop)
{
    struct pollfd fds[] = {{weir_queue_fd(queue), POLLIN, 0}, {stop, POLLIN, 0}};

    require(poll(fds, stop < 0 ? 1 : 2, STUCK_S * 1000) > 0); /* or a wake was missed */
    return fds[0].revents != 0;
}

static void give_back(weir_acquisition *acquisition)
{
    int r = weir_release(&acquisition);

    require(r == 0 || r == -EPROTO);
}

/* ---- two threads that meet, again and again ---- */

static struct {
    atomic_uint here;
    atomic_bool over;
    pthread_t thread;
    void (*act)(uint64_t *random);
} racer;

/* Both come out of it at once. Each of the two calls it; `turn` counts the meetings. */
static void meet(unsigned *turn)
{
    *turn += 2;
    atomic_fetch_add(&racer.here, 1);
    for (unsigned spins = 0; (int)(atomic_load(&racer.here) - *turn) < 0; spins++)
        if (spins > 200)
            sched_yield();
}

static void *race(void *unused)
{
    uint64_t random = random_case(test_seed, 1);
    unsigned turn = 0;

    (void)unused;
    for (;;) {
        meet(&turn);
        if (atomic_load(&racer.over))
            return NULL;
        racer.act(&random);
        meet(&turn);
    }
}

static weir_queue *race_queue;
static weir_acquisition *race_holder; /* holds all of `one` */
static _Atomic uint64_t race_delay_ns;
static atomic_int race_result;

static void spin_for(uint64_t ns)
{
    for (uint64_t until = clock_now() + ns; ns && clock_now() < until;)
        ;
}

/* Now and then the other goes first, also where the two share a processor. */
static void hesitate(uint64_t *random)
{
    switch (random_below(random, 4)) {
    case 0:
        sched_yield();
        break;
    case 1:
        spin_for(random_below(random, 2 * US));
        break;
    }
}

static void race_release(uint64_t *random)
{
    hesitate(random);
    require(weir_release(&race_holder) == 0);
}

static void race_release_later(uint64_t *random)
{
    uint64_t delay = random_below(random, atomic_load(&race_delay_ns));

    if (random_below(random, 2))
        pause_ns(delay);
    else
        spin_for(delay);
    require(weir_release(&race_holder) == 0);
}

static void race_cancel(uint64_t *random)
{
    hesitate(random);
    atomic_store(&race_result, weir_queue_cancel(race_queue, 7));
}

static weir_acquisition *race_kept;

static void race_release_kept(uint64_t *random)
{
    hesitate(random);
    require(weir_release(&race_kept) == 0);
}

/* How the races ended. */
struct tally {
    uint64_t granted, canceled, timed_out, forgotten;
    uint64_t random;
};

static void put(const struct want *want, weir_acquisition **ret)
{
    require(weir_queue_submit(race_queue, pools[1], &want->request, 7, ret, NULL) == 0);
}

/* After the race: exactly one completion, which the descriptor tells of. */
static struct weir_completion only_completion(void)
{
    struct weir_completion c[2];

    require(is_readable(race_queue));
    require(weir_queue_reap(race_queue, c, 2) == 1);
    require(!is_readable(race_queue) && weir_queue_reap(race_queue, c + 1, 1) == 0);
    require(c->user_data == 7);
    return *c;
}

static void count_completion(struct tally *tally, const struct weir_completion *c, bool canceled)
{
    require(c->result == (canceled ? -ECANCELED : 0));
    tally->granted += !canceled;
    tally->canceled += canceled;
}

static void begin_race(struct tally *tally, const struct want *want, weir_acquisition **ret,
                       unsigned *turn)
{
    require(weir_try_acquire(pools[1], &want->request, &race_holder, NULL) == 0); /* it is free */
    put(want, ret);
    meet(turn);
    hesitate(&tally->random);
}

static void cancel_by_user_data(struct tally *tally, const struct want *want, unsigned *turn)
{
    struct weir_completion c;
    int n;

    begin_race(tally, want, NULL, turn);
    n = weir_queue_cancel(race_queue, 7);
    require(n == 0 || n == 1);
    meet(turn);
    c = only_completion();
    count_completion(tally, &c, n == 1);
    require(weir_release(&c.acquisition) == 0);
}

static void cancel_by_handle(struct tally *tally, const struct want *want, unsigned *turn)
{
    weir_acquisition *kept = NULL;
    struct weir_completion c;

    begin_race(tally, want, &kept, turn);
    require(weir_cancel(kept) == 0); /* no thread has seen a grant */
    meet(turn);
    c = only_completion();
    require(c.acquisition == kept);
    count_completion(tally, &c, true);
    require(weir_release(&kept) == 0);
}

static void release_the_handle(struct tally *tally, const struct want *want, unsigned *turn)
{
    weir_acquisition *kept = NULL;

    begin_race(tally, want, &kept, turn);
    require(weir_release(&kept) == 0);
    meet(turn);
    /* The granting thread may have signaled after it was forgotten: a reap finds nothing, once. */
    require(weir_queue_reap(race_queue, NULL, 0) == 0 && !is_readable(race_queue));
    require(weir_queue_cancel(race_queue, 7) == 0);
    tally->forgotten++;
}

/* Its result was asked for meanwhile: a grant that was seen stays. */
static void look_and_cancel(struct tally *tally, const struct want *want, unsigned *turn)
{
    weir_acquisition *kept = NULL;
    struct weir_completion c;
    int r, seen;

    begin_race(tally, want, &kept, turn);
    seen = weir_acquisition_result(kept);
    r = weir_cancel(kept);
    require(r == (seen == 0 ? -EALREADY : 0));
    meet(turn);
    c = only_completion();
    count_completion(tally, &c, r == 0);
    require(weir_release(&kept) == 0);
}

/* The other grants at about the deadline. Every second time the reaper sleeps meanwhile. */
static void time_out(struct tally *tally, const struct want *want, unsigned *turn)
{
    bool sleeps = (tally->granted + tally->timed_out) % 2;
    struct want hurried = *want;
    struct weir_completion c;

    hurried.request.amounts = hurried.amounts;
    hurried.request.timeout_ns = sleeps ? 100 * US : 10 * US;
    atomic_store(&race_delay_ns, sleeps ? 300 * US : 20 * US);
    begin_race(tally, &hurried, NULL, turn);
    do
        require(!sleeps || await_queue(race_queue, -1));
    while (weir_queue_reap(race_queue, &c, 1) == 0);
    require(c.result == 0 || c.result == -ETIMEDOUT);
    tally->granted += c.result == 0;
    tally->timed_out += c.result == -ETIMEDOUT;
    require(c.result != -ETIMEDOUT || strcmp(c.refusal.set, "one") == 0);
    require(weir_release(&c.acquisition) == 0);
    meet(turn);
    require(weir_queue_reap(race_queue, &c, 1) == 0);
}

/* Closed while the other grants. */
static void close_the_queue(struct tally *tally, const struct want *want, unsigned *turn)
{
    weir_acquisition *kept = NULL;

    begin_race(tally, want, tally->canceled % 2 ? &kept : NULL, turn);
    race_queue = weir_queue_close(race_queue);
    meet(turn);
    require(weir_release(&kept) == 0);
    race_queue = open_queue(2);
    tally->canceled++;
}

/* Closed while the other releases what was submitted, granted or not. All places come back. */
static void close_what_is_released(struct tally *tally, const struct want *want, unsigned *turn)
{
    bool waits = tally->canceled % 2;

    if (waits)
        require(weir_try_acquire(pools[1], &want->request, &race_holder, NULL) == 0);
    put(want, &race_kept);
    meet(turn);
    hesitate(&tally->random);
    race_queue = weir_queue_close(race_queue);
    race_queue = open_queue(1);
    meet(turn);
    require(!waits || weir_release(&race_holder) == 0);
    tally->canceled++;
}

/* The other cancels a grant: by user_data as well, … */
static void cancel_twice(struct tally *tally, const struct want *want, unsigned *turn)
{
    struct weir_completion c;
    int n;

    put(want, NULL);
    meet(turn);
    hesitate(&tally->random);
    n = weir_queue_cancel(race_queue, 7);
    meet(turn);
    require(n + atomic_load(&race_result) == 1);
    c = only_completion();
    count_completion(tally, &c, true);
}

/* … while it is reaped. */
static void reap_and_cancel(struct tally *tally, const struct want *want, unsigned *turn)
{
    struct weir_completion c;
    int n;

    put(want, NULL);
    meet(turn);
    hesitate(&tally->random);
    n = weir_queue_reap(race_queue, &c, 1);
    meet(turn);
    if (n == 0)
        c = only_completion();
    require(weir_queue_reap(race_queue, NULL, 0) == 0 && !is_readable(race_queue));
    count_completion(tally, &c, atomic_load(&race_result) == 1);
    require(weir_release(&c.acquisition) == 0);
}

static void run_races(const char *name, void (*act)(uint64_t *),
                      void (*once)(struct tally *, const struct want *, unsigned *))
{
    uint64_t rounds = effort_from("WEIR_ROUNDS", 3000);
    struct weir_set_stats stats;
    struct tally tally = {.random = test_seed};
    struct want want;
    unsigned turn = 0;

    open_world();
    race_queue = open_queue(2);
    atomic_store(&racer.here, 0);
    atomic_store(&racer.over, false);
    racer.act = act;
    require(pthread_create(&racer.thread, NULL, race, NULL) == 0);
    ask_for(&want, 1, 0, 1, WEIR_FOREVER);
    for (uint64_t i = 0; i < rounds; i++)
        once(&tally, &want, &turn);
    atomic_store(&racer.over, true);
    meet(&turn);
    require(pthread_join(racer.thread, NULL) == 0);
    stats = stats_of(1);
    require(stats.timed_out == tally.timed_out);
    require(tally.granted + tally.canceled + tally.timed_out + tally.forgotten == rounds);
    require(stats.canceled == tally.canceled + tally.forgotten);
    weir_queue_close(race_queue);
    check_whole();
    close_world();
    printf("  %-22s %8" PRIu64 " granted %8" PRIu64 " canceled %8" PRIu64 " timed out\n", name,
           tally.granted, tally.canceled + tally.forgotten, tally.timed_out);
}

static void races_have_one_outcome(void **state)
{
    (void)state;
    run_races("cancel by user_data", race_release, cancel_by_user_data);
    run_races("cancel by handle", race_release, cancel_by_handle);
    run_races("release of the handle", race_release, release_the_handle);
    run_races("look, then cancel", race_release, look_and_cancel);
    run_races("timeout", race_release_later, time_out);
    run_races("close", race_release, close_the_queue);
    run_races("close and release", race_release_kept, close_what_is_released);
    run_races("cancel twice", race_cancel, cancel_twice);
    run_races("cancel and reap", race_cancel, reap_and_cancel);
}

/* ---- a storm ---- */

enum { SUBMITTERS = 4, BLOCKED = 2, PER_ROUND = 60, HANDLES = 4 };

/* What is known of one submission. */
struct fate {
    atomic_int completed;
    atomic_int canceled; /* how many calls said so */
    int result;
};

struct reaper {
    pthread_t thread;
    weir_queue *queue;
    uint64_t random, handles_left;
    weir_acquisition *handles[HANDLES]; /* submitted by the reaper itself */
    uint64_t handle_ids[HANDLES];
    struct history history[SETS];
    int stop;
};

static struct {
    struct reaper reapers[QUEUES];
    struct fate *fates;
    size_t fates_n;
    _Atomic uint64_t next_id, outstanding;
    _Atomic uint64_t ended[SETS]; /* canceled, timed out, refused, or forgotten */
    atomic_uint held[SETS];
    atomic_bool over;
} storm;

#define SET_OF(id) ((int)((id) % SETS)) /* which set it was submitted to */

static uint64_t new_id(int set)
{
    uint64_t id = atomic_fetch_add(&storm.next_id, 1) * SETS + (uint64_t)set;

    require(id < storm.fates_n);
    return id;
}

static void random_want(struct want *ret, int set, uint64_t *random)
{
    uint64_t tokens = random_below(random, 4), db = 1 + random_below(random, db_capacity[set]);

    ask_for(ret, set, tokens, db, WEIR_FOREVER);
    if (random_below(random, 3) == 0)
        ret->request.timeout_ns = 1 + random_below(random, MS);
    if (random_below(random, 4) == 0)
        ret->request.max_wait_ns = 1 + random_below(random, MS);
}

/* A grant as the reaper sees it, at the instants that the set itself used. */
static void use_grant(struct reaper *me, int set, weir_acquisition *acquisition)
{
    const struct acq_record *r = record_at(&w->region, acquisition->record);
    struct event event = {.since = record_load(&r->enqueued_ns)};
    unsigned db = (unsigned)acquisition_amounts(acquisition)[set == 0 ? DB : 0];

    require(record_state(record_load(&r->word)) == RECORD_HELD);
    event.lo = event.hi = record_load(&r->granted_ns);
    event.amounts[DB] = db;
    if (set == 0)
        event.amounts[TOKENS] = (uint32_t)acquisition_amounts(acquisition)[TOKENS];
    require(event.since <= event.lo && event.lo <= clock_now());
    history_add(&me->history[set], &event);
    require(atomic_fetch_add(&storm.held[set], db) + db <= db_capacity[set]);
    if (random_below(&me->random, 16) == 0)
        pause_ns(random_below(&me->random, 50 * US));
    atomic_fetch_sub(&storm.held[set], db);
    give_back(acquisition);
}

static void forget_handle(struct reaper *me, uint64_t id)
{
    for (int i = 0; i < HANDLES; i++)
        if (me->handles[i] && me->handle_ids[i] == id)
            me->handles[i] = NULL;
}

static void complete(struct reaper *me, const struct weir_completion *c)
{
    struct fate *fate = &storm.fates[c->user_data];
    int set = SET_OF(c->user_data);

    require(atomic_fetch_add(&fate->completed, 1) == 0);
    fate->result = c->result;
    require(c->result == 0 || c->result == -ETIMEDOUT || c->result == -EAGAIN ||
            c->result == -ECANCELED);
    require((c->result != -ETIMEDOUT && c->result != -EAGAIN) ||
            strcmp(c->refusal.set, names[set]) == 0);
    forget_handle(me, c->user_data);
    if (c->result == 0)
        use_grant(me, set, c->acquisition);
    else
        give_back(c->acquisition);
    if (c->result != 0)
        atomic_fetch_add(&storm.ended[set], 1);
    atomic_fetch_sub(&storm.outstanding, 1);
}

/* 0, or -ENOSPC. */
static int submit_one(weir_queue *queue, uint64_t *random, uint64_t *ret_id, weir_acquisition **ret)
{
    int set = (int)random_below(random, SETS), r;
    uint64_t id = new_id(set);
    struct want want;

    random_want(&want, set, random);
    atomic_fetch_add(&storm.outstanding, 1);
    r = weir_queue_submit(queue, pools[set], &want.request, id, ret, NULL);
    require(r == 0 || r == -ENOSPC);
    if (r < 0)
        atomic_fetch_sub(&storm.outstanding, 1);
    *ret_id = id;
    return r;
}

/* The reaper's own: only it may touch their acquisitions. */
static void play_with_handles(struct reaper *me)
{
    int i = (int)random_below(&me->random, HANDLES);
    uint64_t id = me->handle_ids[i];

    if (!me->handles[i]) {
        if (!atomic_load(&storm.over) && me->handles_left) {
            me->handles_left--;
            submit_one(me->queue, &me->random, &me->handle_ids[i], &me->handles[i]);
        }
        return;
    }
    switch (random_below(&me->random, 4)) {
    case 0:
        require(weir_acquisition_result(me->handles[i]) <= 0);
        break;
    case 1:
        if (weir_cancel(me->handles[i]) == 0)
            atomic_fetch_add(&storm.fates[id].canceled, 1);
        break;
    case 2:
        require(atomic_fetch_add(&storm.fates[id].completed, 1) == 0); /* none will follow */
        storm.fates[id].result = 1;
        if (weir_acquisition_result(me->handles[i]) != 0)
            atomic_fetch_add(&storm.ended[SET_OF(id)], 1);
        give_back(me->handles[i]);
        me->handles[i] = NULL;
        atomic_fetch_sub(&storm.outstanding, 1);
        break;
    }
}

static void *reap_loop(void *argument)
{
    struct reaper *me = argument;
    struct weir_completion done[BATCH_MAX];

    while (await_queue(me->queue, me->stop) || atomic_load(&storm.outstanding)) {
        unsigned room = 1 + (unsigned)random_below(&me->random, BATCH_MAX);
        int n = weir_queue_reap(me->queue, done, room);

        require(n >= 0 && n <= (int)room);
        for (int i = 0; i < n; i++)
            complete(me, &done[i]);
        for (int i = 0; i < HANDLES; i++)
            play_with_handles(me);
    }
    return NULL;
}

static void *submit_loop(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument, id;

    for (int i = 0; i < PER_ROUND; i++) {
        weir_queue *queue = storm.reapers[random_below(&random, QUEUES)].queue;
        bool submitted = submit_one(queue, &random, &id, NULL) == 0;

        if (random_below(&random, 3) == 0)
            pause_ns(random_below(&random, 50 * US));
        if (submitted && random_below(&random, 3) == 0) {
            int n = weir_queue_cancel(queue, id);

            require(n == 0 || n == 1);
            atomic_fetch_add(&storm.fates[id].canceled, n);
        }
    }
    return NULL;
}

static void *block_loop(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument;

    for (int i = 0; i < PER_ROUND; i++) {
        int set = (int)random_below(&random, SETS), r;
        weir_acquisition *acquisition = NULL;
        struct want want;

        random_want(&want, set, &random);
        r = weir_acquire(pools[set], &want.request, &acquisition, NULL);
        require(r == 0 || r == -ETIMEDOUT || r == -EAGAIN);
        if (r < 0) {
            atomic_fetch_add(&storm.ended[set], 1);
            continue;
        }
        require(atomic_fetch_add(&storm.held[set], (unsigned)want.amounts[0].amount) +
                    want.amounts[0].amount <=
                db_capacity[set]);
        atomic_fetch_sub(&storm.held[set], (unsigned)want.amounts[0].amount);
        give_back(acquisition);
    }
    return NULL;
}

/* Until nothing is outstanding; then every waiter was served, without newcomers behind it. */
static void await_all(void)
{
    uint64_t until = clock_now() + STUCK_S * UINT64_C(1000000000);

    while (atomic_load(&storm.outstanding) && clock_now() < until)
        pause_ns(100 * US);
    require(atomic_load(&storm.outstanding) == 0);
}

static void storm_round(uint64_t *random)
{
    pthread_t threads[SUBMITTERS + BLOCKED]; /* new ones each time */

    atomic_store(&storm.over, false);
    for (int i = 0; i < SUBMITTERS + BLOCKED; i++)
        require(pthread_create(&threads[i], NULL, i < SUBMITTERS ? submit_loop : block_loop,
                               (void *)(uintptr_t)random_next(random)) == 0);
    for (int i = 0; i < SUBMITTERS + BLOCKED; i++)
        require(pthread_join(threads[i], NULL) == 0);
    atomic_store(&storm.over, true);
    await_all();
}

static void start_reapers(uint64_t *random, uint64_t rounds)
{
    for (int i = 0; i < QUEUES; i++) {
        struct reaper *reaper = &storm.reapers[i];

        *reaper = (struct reaper){.random = random_next(random),
                                  .handles_left = rounds * PER_ROUND,
                                  .queue = open_queue(i == 0 ? 30 : 10),
                                  .stop = eventfd(0, EFD_CLOEXEC)};
        require(reaper->stop >= 0);
        require(pthread_create(&reaper->thread, NULL, reap_loop, reaper) == 0);
    }
}

/* Nothing is left. A signal that came after its completion was reaped, and a timer that was set for
 * a waiter that is gone, may each wake once for nothing. */
static void expect_quiet(weir_queue *queue)
{
    struct weir_completion c;

    for (unsigned wakes = 0; is_readable(queue); wakes++)
        require(wakes < 2 && weir_queue_reap(queue, &c, 1) == 0);
    require(weir_queue_reap(queue, &c, 1) == 0);
}

static void stop_reapers(struct history *history)
{
    for (int i = 0; i < QUEUES; i++) {
        require(eventfd_write(storm.reapers[i].stop, 1) == 0);
        require(pthread_join(storm.reapers[i].thread, NULL) == 0);
    }
    for (int i = 0; i < QUEUES; i++) {
        struct reaper *reaper = &storm.reapers[i];

        expect_quiet(reaper->queue);
        weir_queue_close(reaper->queue);
        close(reaper->stop);
        for (int set = 0; set < SETS; set++)
            history_merge(&history[set], &reaper->history[set]);
    }
}

/* What was said of each cancellation came true, and what was not canceled was not. */
static void check_fates(void)
{
    for (size_t i = 0; i < storm.fates_n; i++) {
        const struct fate *fate = &storm.fates[i];
        bool canceled = fate->completed && fate->result == -ECANCELED;

        require(fate->result == 1 || canceled == (fate->canceled == 1));
        require(fate->completed <= 1 && fate->canceled <= 1);
    }
}

static void check_sums(struct history *history)
{
    for (int set = 0; set < SETS; set++) {
        struct weir_set_stats stats = stats_of(set);

        require(stats.canceled + stats.timed_out + stats.refused_max_wait ==
                atomic_load(&storm.ended[set]));
        require(stats.refused_full + stats.refused_busy == 0);
        require(history_keeps_order(&history[set]));
        history_free(&history[set]);
    }
}

static void every_submission_in_a_storm_completes_once(void **state)
{
    uint64_t rounds = 1 + effort_from("WEIR_ROUNDS", 3000) / 100, random = test_seed;
    struct history history[SETS] = {{0}};

    (void)state;
    open_world();
    memset(&storm, 0, sizeof(storm));
    storm.fates_n = rounds * PER_ROUND * (SUBMITTERS + QUEUES) * SETS + SETS;
    storm.fates = calloc(storm.fates_n, sizeof(*storm.fates));
    require(storm.fates != NULL);
    start_reapers(&random, rounds);
    for (uint64_t i = 0; i < rounds; i++)
        storm_round(&random);
    stop_reapers(history);
    printf("  %" PRIu64 " submissions, %zu and %zu grants in order\n", atomic_load(&storm.next_id),
           history[0].events_n, history[1].events_n);
    check_fates();
    check_sums(history);
    check_whole();
    free(storm.fates);
    close_world();
}

/* ---- queues that come and go while others release ---- */

static atomic_bool churn_over;

static void *churn(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument;

    while (!atomic_load(&churn_over)) {
        int set = (int)random_below(&random, SETS);
        weir_acquisition *acquisition = NULL;
        struct want want;
        int r;

        ask_for(&want, set, random_below(&random, 20), 1, WEIR_FOREVER);
        if (random_below(&random, 4) == 0)
            want.request.timeout_ns = 1 + random_below(&random, 100 * US);
        if (random_below(&random, 2))
            r = weir_submit(pools[set], &want.request, &acquisition, NULL);
        else
            r = weir_acquire(pools[set], &want.request, &acquisition, NULL);
        require((r >= 0) == (acquisition != NULL));
        give_back(acquisition);
        if (random_below(&random, 4) == 0)
            weir_tick(w);
    }
    return NULL;
}

/* Some of each: reaped, released by its handle, canceled; the rest goes with the queue. */
static void use_briefly(weir_queue *queue, uint64_t *random)
{
    weir_acquisition *kept[8] = {0};
    struct weir_completion done[16];
    int n = 0;

    for (uint64_t i = 0; i < 24; i++) {
        int set = (int)random_below(random, SETS);
        struct want want;

        ask_for(&want, set, random_below(random, 30), 1, WEIR_FOREVER);
        if (random_below(random, 2))
            want.request.timeout_ns = 1 + random_below(random, 200 * US);
        require(weir_queue_submit(queue, pools[set], &want.request, i, i < 8 ? &kept[i] : NULL,
                                  NULL) == 0);
        if (i >= 8 && i % 3 == 0)
            give_back(kept[i / 3 - 3]), kept[i / 3 - 3] = NULL;
    }
    require(weir_queue_cancel(queue, 9) <= 1);
    if (random_below(random, 2))
        n = weir_queue_reap(queue, done, 1 + (unsigned)random_below(random, 16));
    require(n >= 0);
    weir_queue_close(queue);
    for (int i = 0; i < n; i++)
        if (done[i].user_data >= 8)
            give_back(done[i].acquisition);
    for (int i = 0; i < 8; i++)
        give_back(kept[i]);
}

static void queues_come_and_go_in_a_storm_of_releases(void **state)
{
    uint64_t rounds = 1 + effort_from("WEIR_ROUNDS", 3000) / 4, random = test_seed;
    weir_queue *idle;
    pthread_t threads[3];

    (void)state;
    open_world();
    atomic_store(&churn_over, false);
    for (int i = 0; i < 3; i++)
        require(pthread_create(&threads[i], NULL, churn, (void *)(uintptr_t)random_next(&random)) ==
                0);
    idle = open_queue(1);
    for (uint64_t i = 0; i < rounds; i++)
        use_briefly(open_queue(24), &random);
    atomic_store(&churn_over, true);
    for (int i = 0; i < 3; i++)
        require(pthread_join(threads[i], NULL) == 0);
    require(instance_wait(w)->queues_n == 2);
    require(!is_readable(idle) && weir_queue_reap(idle, NULL, 0) == 0);
    weir_queue_close(idle);
    check_whole();
    close_world();
}

/* ---- the instance closes ---- */

static struct {
    weir_queue *queue;
    _Atomic uint64_t submitted, completed;
    atomic_bool closed;
} closing;

static void *submit_until_closed(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument;
    int r = 0;

    while (r != -ESHUTDOWN) {
        int set = (int)random_below(&random, SETS);
        struct want want;

        random_want(&want, set, &random);
        r = weir_queue_submit(closing.queue, pools[set], &want.request, random_below(&random, 50),
                              NULL, NULL);
        require(r == 0 || r == -ENOSPC || r == -ESHUTDOWN);
        atomic_fetch_add(&closing.submitted, r == 0);
        if (random_below(&random, 4) == 0)
            require(weir_queue_cancel(closing.queue, random_below(&random, 50)) >= 0);
        if (r == -ENOSPC)
            sched_yield();
    }
    return NULL;
}

static void reap_some(unsigned room)
{
    struct weir_completion done[32];
    int n = weir_queue_reap(closing.queue, done, room);

    require(n >= 0);
    atomic_fetch_add(&closing.completed, (uint64_t)n);
    for (int i = 0; i < n; i++)
        give_back(done[i].acquisition);
}

static void *reap_until_closed(void *unused)
{
    (void)unused;
    while (!atomic_load(&closing.closed) || is_readable(closing.queue)) {
        poll(&(struct pollfd){weir_queue_fd(closing.queue), POLLIN, 0}, 1, 10);
        reap_some(32);
    }
    return NULL;
}

static void weir_close_in_the_middle(void **state)
{
    uint64_t rounds = 1 + effort_from("WEIR_ROUNDS", 3000) / 30, random = test_seed;

    (void)state;
    for (uint64_t i = 0; i < rounds; i++) {
        pthread_t threads[3], reaper;

        open_world();
        closing.queue = open_queue(40);
        atomic_store(&closing.submitted, 0);
        atomic_store(&closing.completed, 0);
        atomic_store(&closing.closed, false);
        require(pthread_create(&reaper, NULL, reap_until_closed, NULL) == 0);
        for (int t = 0; t < 3; t++)
            require(pthread_create(&threads[t], NULL, submit_until_closed,
                                   (void *)(uintptr_t)random_next(&random)) == 0);
        pause_ns(random_below(&random, 500 * US));
        weir_close(w);
        for (int t = 0; t < 3; t++)
            require(pthread_join(threads[t], NULL) == 0);
        atomic_store(&closing.closed, true);
        require(pthread_join(reaper, NULL) == 0);
        require(atomic_load(&closing.submitted) == atomic_load(&closing.completed));
        check_whole();
        for (int set = 0; set < SETS; set++)
            weir_pool_close(pools[set]);
        weir_queue_close(closing.queue);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(races_have_one_outcome),
        leak_checked_test(every_submission_in_a_storm_completes_once),
        leak_checked_test(queues_come_and_go_in_a_storm_of_releases),
        leak_checked_test(weir_close_in_the_middle),
    };

    seed_begin();
    printf("seed %" PRIu64 "\n", test_seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
