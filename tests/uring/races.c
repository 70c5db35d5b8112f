/* SPDX-License-Identifier: MIT */
/*
 * Races that the kernel, another thread and this one decide: a deadline, or a cancellation, against
 * a grant, or against the instant of one that was reserved. Every round ends in exactly one way:
 * the operation ran once and the grant is ours, or it never runs and there is no grant. At the end
 * nothing is held, nothing was lost, nothing was given back twice, to the last token.
 *
 * The grant comes from a thread that releases at an instant around that of its rival, which follows
 * the outcomes so that both are about as frequent.
 *
 *     races [ROUNDS]      or WEIR_ROUNDS, of each race on each kind of ring; seed from WEIR_SEED
 */
#include "rings.h"

#include "lib/require.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <weir/weir.h>

enum { HEAD = 1, OPERATION, CANCEL };

#define TOKENS    UINT64_C(1000000)
#define ASKED     2u
#define USED      1u
#define PATIENCE  (60 * SECOND)
#define LEAD_MIN  (100 * INT64_C(1000)) /* from the submission to the race */
#define LEAD_MAX  (2000 * INT64_C(1000))
#define PACE_NS   (300 * UINT64_C(1000))
#define SPREAD_NS 20000 /* the grant comes within so much of where it is aimed at */

static struct weir_uring probed;
static struct weir_uring uring;
static struct io_uring ring;
static weir *w;
static weir_pool *pool;
static weir_set *set;
static int out[2];
static uint64_t random_state;

/* The other thread: releases what it is given at its instant. */
static _Atomic(weir_acquisition *) parcel;
static _Atomic uint64_t release_at_ns;
static atomic_bool over;

/* Yields, in case both threads have to share a processor. */
static void await_instant(uint64_t at_ns)
{
    while (clock_now() < at_ns)
        sched_yield();
}

static void *release_in_time(void *unused)
{
    (void)unused;
    while (!atomic_load(&over)) {
        weir_acquisition *acquisition = atomic_load(&parcel);

        if (!acquisition) {
            sched_yield();
            continue;
        }
        await_instant(atomic_load(&release_at_ns));
        require(weir_release(&acquisition) == 0);
        atomic_store(&parcel, NULL);
    }
    return NULL;
}

static int submit(uint64_t slots, uint64_t tokens, weir_acquisition **ret)
{
    const struct weir_amount amounts[] = {{"slot", slots}, {"tokens", tokens}};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = amounts, .amounts_n = 2, .timeout_ns = WEIR_FOREVER};

    return weir_submit(pool, &request, ret, NULL);
}

/* One round. */

struct round {
    weir_acquisition *acquisition;
    struct weir_uring_wait wait;
    uint64_t at_ns;      /* of the grant's rival */
    uint64_t instant_ns; /* of a reservation */
};

static void next(struct io_uring_cqe *ret)
{
    require(ring_next(&ring, PATIENCE, ret) == 0);
}

/* How many bytes operations have written since the last look. */
static int written(void)
{
    char bytes[8];
    ssize_t n = read(out[0], bytes, sizeof(bytes));

    return n < 0 ? 0 : (int)n;
}

static void submit_ring(void)
{
    int n = (int)io_uring_sq_ready(&ring);

    require(io_uring_submit(&ring) == n);
}

static void prepare_write(void)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

    require(sqe != NULL);
    io_uring_prep_write(sqe, out[1], "x", 1, 0);
    io_uring_sqe_set_data64(sqe, OPERATION);
}

/* Meanwhile a DEFER_TASKRUN ring has to be entered: otherwise the grant could not win. */
static void cancel_at(uint64_t at_ns)
{
    while (clock_now() < at_ns) {
        sched_yield();
        require(io_uring_get_events(&ring) >= 0);
    }
    require(weir_uring_prep_cancel(&ring, HEAD, CANCEL) == 0);
    submit_ring();
}

/* Whether the one CQE of the chain says that the operation ran. */
static bool ran(const struct io_uring_cqe *cqe)
{
    bool operation = cqe->user_data == OPERATION;

    require(operation || cqe->user_data == HEAD);
    require(cqe->res == (operation ? 1 : -ECANCELED));
    require(written() == operation);
    return operation;
}

/* Whether the operation ran, if the cancellation has a CQE as well. */
static bool ran_beside_cancel(void)
{
    struct io_uring_cqe first, second;

    next(&first);
    next(&second);
    require((first.user_data == CANCEL) != (second.user_data == CANCEL));
    return ran(first.user_data == CANCEL ? &second : &first);
}

/* Ends a chain; returns whether there is a grant. */
static bool settle(struct round *round, bool has_run)
{
    int r = weir_uring_settle(&round->acquisition, has_run);

    require(r == (has_run ? 0 : -ECANCELED));
    require((round->acquisition != NULL) == has_run);
    if (!has_run)
        return false;
    require(weir_update(round->acquisition, "tokens", USED) == 0);
    if (round->instant_ns)
        require(weir_update(round->acquisition, "sends", 1) == 0);
    require(weir_release(&round->acquisition) == 0);
    return true;
}

static bool deadline_against_grant(struct round *round)
{
    struct io_uring_cqe cqe;

    require(weir_uring_prep_linked_wait(&uring, &ring, &round->wait, round->acquisition,
                                        round->at_ns, HEAD, 1) == 0);
    prepare_write();
    submit_ring();
    next(&cqe);
    return settle(round, ran(&cqe));
}

static bool chain_cancel_against_grant(struct round *round)
{
    uint64_t deadline_ns =
        random_below(&random_state, 2) ? WEIR_FOREVER : round->at_ns + 60 * SECOND;

    require(weir_uring_prep_linked_wait(&uring, &ring, &round->wait, round->acquisition,
                                        deadline_ns, HEAD, 1) == 0);
    prepare_write();
    submit_ring();
    cancel_at(round->at_ns);
    return settle(round, ran_beside_cancel());
}

/* Three at once: it is canceled about when its deadline passes. */
static bool both_against_grant(struct round *round)
{
    require(weir_uring_prep_linked_wait(&uring, &ring, &round->wait, round->acquisition,
                                        round->at_ns + random_below(&random_state, SPREAD_NS), HEAD,
                                        1) == 0);
    prepare_write();
    submit_ring();
    cancel_at(round->at_ns);
    return settle(round, ran_beside_cancel());
}

/* A plain wait completes in any case, and a grant that was looked at is the program's. */
static bool cancel_against_grant(struct round *round)
{
    struct io_uring_cqe cqe;
    int r;

    require(weir_uring_prep_wait(&uring, &ring, &round->wait, round->acquisition, HEAD) == 0);
    submit_ring();
    await_instant(round->at_ns);
    r = weir_acquisition_result(round->acquisition);
    require(r == 0 || r == -EINPROGRESS);
    require(weir_cancel(round->acquisition) == (r == 0 ? -EALREADY : 0));
    require(weir_acquisition_result(round->acquisition) == (r == 0 ? 0 : -ECANCELED));
    next(&cqe);
    require(cqe.user_data == HEAD && cqe.res > 0);
    if (r == 0)
        require(weir_update(round->acquisition, "tokens", USED) == 0);
    require(weir_release(&round->acquisition) == 0);
    return r == 0;
}

/* What was reserved is used or refunded. */
static bool cancel_against_instant(struct round *round)
{
    require(weir_uring_prep_paced(&uring, &ring, &round->wait, round->instant_ns, HEAD, 1) == 0);
    prepare_write();
    submit_ring();
    cancel_at(round->at_ns);
    return settle(round, ran_beside_cancel());
}

/* The grant was not seen: there is none afterwards, whichever was faster. */
static bool cancel_unseen_grant(struct round *round)
{
    struct io_uring_cqe cqe;

    require(weir_uring_prep_wait(&uring, &ring, &round->wait, round->acquisition, HEAD) == 0);
    submit_ring();
    await_instant(round->at_ns);
    require(weir_cancel(round->acquisition) == 0);
    require(weir_acquisition_result(round->acquisition) == -ECANCELED);
    next(&cqe);
    require(cqe.user_data == HEAD && cqe.res > 0);
    require(weir_release(&round->acquisition) == 0);
    return false;
}

static const struct {
    const char *name;
    bool (*run)(struct round *round);
    bool blind; /* no round is won: nothing to aim by */
    unsigned needs;
} races[] = {
    {"deadline", deadline_against_grant, false, WEIR_URING_LINKED},
    {"cancel of the chain", chain_cancel_against_grant, false, WEIR_URING_LINKED},
    {"deadline and cancel", both_against_grant, false, WEIR_URING_LINKED},
    {"paced", cancel_against_instant, false, WEIR_URING_PACED},
    {"weir_cancel", cancel_against_grant, false, 0},
    {"weir_cancel, unseen", cancel_unseen_grant, true, 0},
};

/* Rounds. */

static int64_t lead_ns, aim_ns;

static void begin(struct round *round)
{
    weir_acquisition *holder = NULL;
    uint64_t spread = random_below(&random_state, 2 * SPREAD_NS);

    *round = (struct round){.acquisition = NULL};
    require(submit(1, 0, &holder) == 0);
    require(submit(1, ASKED, &round->acquisition) == 1);
    round->at_ns = clock_now() + (uint64_t)lead_ns;
    atomic_store(&release_at_ns, round->at_ns + (uint64_t)(aim_ns - SPREAD_NS) + spread);
    atomic_store(&parcel, holder);
}

/* The same for the race against an instant, which needs no other thread. */
static void begin_paced(struct round *round)
{
    const struct weir_amount amounts[] = {{"sends", 1}, {"tokens", ASKED}};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = amounts, .amounts_n = 2};
    uint64_t spread = random_below(&random_state, 2 * SPREAD_NS);

    *round = (struct round){.acquisition = NULL};
    require(weir_reserve(pool, &request, &round->acquisition, &round->instant_ns, NULL) == 0);
    round->at_ns = round->instant_ns - (uint64_t)(aim_ns - SPREAD_NS) - spread;
}

/* Until the other thread has released. */
static void end(void)
{
    while (atomic_load(&parcel))
        sched_yield();
}

/*
 * Later if it was won, earlier if it was lost. If there is no earlier, the other thread hardly gets
 * a processor: it is given more time.
 */
static void aim_again(bool won)
{
    aim_ns += won ? lead_ns / 128 : -lead_ns / 128;
    if (aim_ns > lead_ns)
        aim_ns = lead_ns;
    if (aim_ns - SPREAD_NS > -lead_ns)
        return;
    aim_ns = SPREAD_NS - lead_ns;
    lead_ns = lead_ns * 2 < LEAD_MAX ? lead_ns * 2 : LEAD_MAX;
}

static void check_totals(uint64_t used)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[2];

    require(weir_set_stats(set, &stats, limits, 2) == 2);
    require(stats.held == 0 && stats.waiting == 0);
    require(stats.granted == stats.released + stats.taken);
    require(stats.timed_out == 0 && stats.missing_update == 0 && stats.overused == 0);
    require(limits[0].held == 0 && limits[0].available <= 1);
    require(limits[1].available == TOKENS - used);
    require(written() == 0);
}

/* Tokens in abundance, and a slot that is fought for, or instants far enough apart. */
static void open_limits(bool paced)
{
    const struct weir_setting no_burst = {"burst", "1"};
    const struct weir_limit_spec slot = {
        .size = sizeof(slot), .type = WEIR_LIMIT_RESOURCE, .key = "slot", .capacity = 1};
    const struct weir_limit_spec sends = {.size = sizeof(sends),
                                          .type = WEIR_LIMIT_RATE,
                                          .key = "sends",
                                          .algorithm = "gcra",
                                          .capacity = 1,
                                          .window_ns = PACE_NS,
                                          .settings = &no_burst,
                                          .settings_n = 1};
    const struct weir_limit_spec tokens = {.size = sizeof(tokens),
                                           .type = WEIR_LIMIT_RATE,
                                           .key = "tokens",
                                           .algorithm = "token_bucket",
                                           .capacity = TOKENS,
                                           .window_ns = TOKENS * 3600 * SECOND};
    const struct weir_limit_spec limits[] = {paced ? sends : slot, tokens};
    struct weir_set_spec spec = {
        .size = sizeof(spec), .name = "set", .limits = limits, .limits_n = 2};
    struct weir_pool_spec pool_spec = {.size = sizeof(pool_spec), .sets = &spec, .sets_n = 1};
    struct weir_error error = {0};

    require(weir_open(&w, NULL, NULL) == 0);
    if (weir_pool_new(&pool, w, &pool_spec, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        require(!"a pool");
    }
    set = weir_pool_set(pool, 0);
}

static void run(size_t race, unsigned kind, uint64_t rounds)
{
    bool paced = races[race].needs & WEIR_URING_PACED;
    struct weir_set_stats stats = {.size = sizeof(stats)};
    uint64_t begun_ns = clock_now(), won = 0, late;
    struct io_uring_cqe cqe;
    pthread_t thread;

    open_limits(paced);
    require(io_uring_queue_init(8, &ring, ring_kinds[kind].flags) == 0);
    lead_ns = LEAD_MIN;
    aim_ns = 0;
    atomic_store(&over, false);
    require(pthread_create(&thread, NULL, release_in_time, NULL) == 0);
    for (uint64_t i = 0; i < rounds; i++) {
        struct round round;
        bool granted;

        uring = probed;
        uring.features &= ~(i & 1 ? 0u : (unsigned)WEIR_URING_READ);
        if (paced)
            begin_paced(&round);
        else
            begin(&round);
        granted = races[race].run(&round);
        won += granted;
        if (races[race].blind)
            aim_ns = (int64_t)random_below(&random_state, 2 * SPREAD_NS) - SPREAD_NS;
        else
            aim_again(granted);
        end();
    }
    atomic_store(&over, true);
    require(pthread_join(thread, NULL) == 0);
    require(ring_next(&ring, MS, &cqe) == -ETIME);
    check_totals(won * USED);
    require(weir_set_stats(set, &stats, NULL, 0) == 2);
    late = stats.granted - won - (paced ? 0 : rounds);
    printf("%-13s %-19s %7" PRIu64 " rounds: %7" PRIu64 " ran, %7" PRIu64 " withdrawn, %6" PRIu64
           " granted too late and taken back; %5" PRIu64 " ms\n",
           ring_kinds[kind].name, races[race].name, rounds, won, rounds - won - late, late,
           (clock_now() - begun_ns) / MS);
    fflush(stdout);
    require(rounds < 1000 ||
            (races[race].blind ? late > 0 && late < rounds : won > 0 && won < rounds));
    io_uring_queue_exit(&ring);
    weir_close(w);
    weir_pool_close(pool);
}

int main(int argc, char **argv)
{
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : effort_from("WEIR_ROUNDS", 1000);
    bool skipped = false;

    seed_begin();
    random_state = test_seed;
    if (!rings_begin(&probed))
        return 77;
    require(rounds * USED <= TOKENS);
    require(pipe2(out, O_CLOEXEC | O_NONBLOCK) == 0);
    for (unsigned kind = 0; kind < RING_KINDS; kind++)
        for (size_t i = 0; i < sizeof(races) / sizeof(races[0]); i++) {
            if (ring_exists(kind) && (probed.features & races[i].needs) == races[i].needs) {
                run(i, kind, rounds);
                continue;
            }
            fprintf(stderr, "SKIPPED: this kernel lacks what is needed for %s, %s\n",
                    ring_kinds[kind].name, races[i].name);
            skipped = true;
        }
    return skipped ? 77 : 0;
}
