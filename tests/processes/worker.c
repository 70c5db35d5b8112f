/* SPDX-License-Identifier: MIT */
/* Workers: see worker.h. */
#include "worker.h"

#include "api/acquisition.h"
#include "api/instance.h"
#include "grants_log.h"
#include "shared.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>

#define AHEAD_NS (2 * MS) /* the furthest instant that is reserved */

enum { BATCH = 4 };

const char *const doing_names[] = {"nothing", "open",    "close",  "acquire", "try",
                                   "take",    "reserve", "submit", "cancel",  "abandon",
                                   "await",   "queue",   "hold",   "release", "rest"};

static struct worker {
    int number;
    uint64_t random;
    struct account *account;
    weir *w;
    weir_pool *pool;
    weir_queue *queue;
    uint64_t serial; /* of queue submissions */
    bool few_descriptors;
} me;

/* A request of random amounts. */
struct want {
    struct weir_amount items[HISTORY_LIMITS];
    struct weir_request request;
    uint64_t amounts[HISTORY_LIMITS];
};

static void now_doing(enum doing what)
{
    atomic_store(&me.account->doing, what);
}

static uint64_t below(uint64_t n)
{
    return random_below(&me.random, n);
}

/* At least one call or resource, so that there is a record. */
static void choose(bool take, struct want *ret)
{
    static const uint64_t most[HISTORY_LIMITS] = {8, 800, 3, 3, 2};

    *ret = (struct want){.request = {.size = sizeof(ret->request), .timeout_ns = WEIR_FOREVER}};
    for (int i = 0; i < HISTORY_LIMITS; i++) {
        uint64_t amount = below(most[i] + 1);

        if ((i >= DB && take) || (i < CALLS && below(3) == 0))
            amount = 0;
        if (i == CALLS && amount == 0 && (take || below(2)))
            amount = 1;
        ret->amounts[i] = amount;
    }
    if (!take && !ret->amounts[CALLS] && !ret->amounts[DB])
        ret->amounts[FILES] = 1;
    for (int i = 0; i < HISTORY_LIMITS; i++)
        ret->items[i] = (struct weir_amount){account_keys[i], ret->amounts[i]};
    ret->request.amounts = ret->items;
    ret->request.amounts_n = HISTORY_LIMITS;
}

/* Leaves the process few descriptors, or none, beyond those that it has. `spare` < 0: all that
 * there may be. */
static void leave_descriptors(int spare)
{
    struct rlimit limit;
    int next = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);

    require(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = spare < 0 ? limit.rlim_max : (rlim_t)(next + spare);
    require(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    if (next >= 0)
        close(next);
}

/* Whether the call failed for lack of descriptors, which is no fault. It has taken nothing. */
static bool is_short(int r)
{
    return me.few_descriptors && (r == -EMFILE || r == -ENFILE);
}

static void limit_the_wait(struct want *want)
{
    if (below(3) == 0)
        want->request.timeout_ns = 1 + below(3 * MS);
    if (below(4) == 0)
        want->request.max_wait_ns = 1 + below(3 * MS);
}

/* Whether a wait may end so. */
static void require_reason(const struct want *want, int r)
{
    bool good = r == 0 || r == -ECANCELED ||
                (r == -ETIMEDOUT && want->request.timeout_ns != WEIR_FOREVER) ||
                (r == -EAGAIN && want->request.max_wait_ns);

    if (!good)
        fprintf(stderr, "worker %d got %d\n", me.number, r);
    require(good);
}

/* At the instants that the set itself used. */
static struct event note_grant(const struct want *want, weir_acquisition *acquisition)
{
    const struct acq_record *r = record_at(acquisition->set->region, acquisition->record);
    struct event event;

    account_hold(me.number, want->amounts);
    for (int i = 0; i < HISTORY_LIMITS; i++)
        event.amounts[i] = (uint32_t)want->amounts[i];
    require(record_state(record_load(&r->word)) == RECORD_HELD);
    event.since = record_load(&r->enqueued_ns);
    event.lo = event.hi = record_load(&r->granted_ns);
    require(event.since <= event.lo && event.hi <= clock_now());
    account_grant(me.number, &event);
    return event;
}

/* Updates that are right, below, or missing; what goes back at most. */
static bool update(const struct want *want, weir_acquisition *acquisition, uint64_t *ret_unused)
{
    bool complete = true;

    memset(ret_unused, 0, HISTORY_LIMITS * sizeof(*ret_unused));
    for (int i = 0; i <= CALLS; i++) {
        uint64_t amount = want->amounts[i], used = amount;
        uint64_t way = below(8);

        if (!amount || (i == CALLS && amount == 1))
            continue;
        if (way == 0) {
            complete = false;
            continue;
        }
        if (way < 3)
            used = below(amount);
        require(weir_update(acquisition, account_keys[i], used) == 0);
        ret_unused[i] = amount - used;
    }
    return complete;
}

static void give_back(weir_acquisition *acquisition, bool complete, const uint64_t *unused)
{
    now_doing(DOING_RELEASE);
    account_refund_begin(me.number, unused);
    require(weir_release(&acquisition) == (complete ? 0 : -EPROTO));
    require(!acquisition);
    account_refund_end(me.number, AHEAD_NS);
}

static void use(const struct want *want, weir_acquisition *acquisition)
{
    struct event event = note_grant(want, acquisition);
    uint64_t unused[HISTORY_LIMITS];
    bool complete;

    now_doing(DOING_HOLD);
    if (below(8) == 0)
        pause_ns(below(300000));
    complete = update(want, acquisition, unused);
    account_let_go(me.number, want->amounts);
    give_back(acquisition, complete, unused);
    for (int i = 0; i < HISTORY_LIMITS; i++)
        event.amounts[i] -= (uint32_t)unused[i];
    account_use(me.number, &event);
}

/* It was not granted, or its fate is unknown. All that it asked for may go back. */
static void drop(const struct want *want, weir_acquisition *acquisition)
{
    give_back(acquisition, true, want->amounts);
}

static void step_acquire(struct want *want)
{
    weir_acquisition *acquisition = NULL;
    int r;

    now_doing(DOING_ACQUIRE);
    limit_the_wait(want);
    r = weir_acquire(me.pool, &want->request, &acquisition, NULL);
    require((r == 0) == (acquisition != NULL));
    if (is_short(r))
        return;
    require_reason(want, r);
    if (r == 0)
        use(want, acquisition);
}

static void step_try(struct want *want)
{
    weir_acquisition *acquisition = NULL;
    int r;

    now_doing(DOING_TRY);
    r = weir_try_acquire(me.pool, &want->request, &acquisition, NULL);
    require(r == 0 || r == -EAGAIN);
    if (r == 0)
        use(want, acquisition);
}

static void step_take(struct want *want)
{
    struct event event = {.lo = clock_now()};
    int r;

    now_doing(DOING_TAKE);
    r = weir_take(me.pool, &want->request, NULL);
    event.hi = clock_now();
    require(r == 0 || r == -EAGAIN);
    for (int i = 0; i < HISTORY_LIMITS; i++)
        event.amounts[i] = (uint32_t)want->amounts[i];
    if (r < 0)
        return;
    account_grant(me.number, &event);
    account_use(me.number, &event);
}

/* Nothing of what is taken back counts, before its instant or after. */
static void step_reserve(struct want *want)
{
    weir_acquisition *acquisition = NULL;
    uint64_t at = 0;
    int r;

    now_doing(DOING_RESERVE);
    want->request.max_wait_ns = 1 + below(AHEAD_NS);
    r = weir_reserve(me.pool, &want->request, &acquisition, &at, NULL);
    require(r == 0 || r == -EAGAIN);
    if (r < 0)
        return;
    while (below(8) && clock_now() < at)
        pause_ns(below(100000));
    if (clock_now() >= at && below(4)) {
        use(want, acquisition);
        return;
    }
    account_refund_begin(me.number, want->amounts);
    require(weir_cancel(acquisition) == 0);
    account_refund_end(me.number, AHEAD_NS);
    require(weir_acquisition_result(acquisition) == -ECANCELED);
    drop(want, acquisition);
}

static void settle(const struct want *want, weir_acquisition *acquisition)
{
    int r = weir_acquisition_result(acquisition);

    require_reason(want, r);
    if (r == 0)
        use(want, acquisition);
    else
        drop(want, acquisition);
}

static void cancel(const struct want *want, weir_acquisition *acquisition)
{
    int r;

    now_doing(DOING_CANCEL);
    if (below(2))
        pause_ns(below(100000));
    if (below(2)) {
        r = weir_acquisition_fd(acquisition);
        require(r >= 0 || is_short(r));
    }
    account_refund_begin(me.number, want->amounts);
    r = weir_cancel(acquisition);
    account_refund_end(me.number, AHEAD_NS);
    require(r == 0 || r == -EALREADY);
    settle(want, acquisition);
}

/* False: there is no descriptor for it. */
static bool await(weir_acquisition *acquisition)
{
    struct pollfd fd = {.fd = weir_acquisition_fd(acquisition), .events = POLLIN};

    now_doing(DOING_AWAIT);
    if (is_short(fd.fd))
        return false;
    require(fd.fd >= 0);
    require(poll(&fd, 1, -1) == 1 && fd.revents == POLLIN);
    require(weir_acquisition_result(acquisition) != -EINPROGRESS);
    return true;
}

static void step_submit(struct want *want)
{
    weir_acquisition *acquisition = NULL;
    int r;

    now_doing(DOING_SUBMIT);
    limit_the_wait(want);
    r = weir_submit(me.pool, &want->request, &acquisition, NULL);
    require((r >= 0) == (acquisition != NULL));
    if (is_short(r)) {
        return;
    } else if (r < 0) {
        require_reason(want, r);
    } else if (r == 0) {
        use(want, acquisition);
    } else if (below(4) == 0) {
        cancel(want, acquisition);
    } else if (below(4) == 0) {
        now_doing(DOING_ABANDON);
        drop(want, acquisition);
    } else {
        if (await(acquisition))
            settle(want, acquisition);
        else
            drop(want, acquisition);
    }
}

/* ---- in batches ---- */

struct batch {
    uint64_t first; /* user_data of the first */
    int n, left;
    struct want wants[BATCH];
};

static void complete_one(struct batch *batch, const struct weir_completion *done)
{
    uint64_t i = done->user_data - batch->first;

    require(i < (uint64_t)batch->n);
    require_reason(&batch->wants[i], done->result);
    require((done->result == 0) == (done->acquisition != NULL));
    batch->left--;
    if (done->result == 0)
        use(&batch->wants[i], done->acquisition);
}

static void complete_all(struct batch *batch)
{
    struct pollfd fd = {.fd = weir_queue_fd(me.queue), .events = POLLIN};
    struct weir_completion done[BATCH];

    while (batch->left) {
        int n;

        now_doing(DOING_QUEUE);
        require(poll(&fd, 1, -1) == 1);
        n = weir_queue_reap(me.queue, done, 1 + (unsigned)below(BATCH));
        require(n >= 0);
        /* Held until its turn comes, but not written down: that only makes less of it. */
        for (int i = 0; i < n; i++)
            complete_one(batch, &done[i]);
    }
}

static void cancel_some(const struct batch *batch)
{
    for (int i = 0; i < batch->n; i++) {
        if (below(4))
            continue;
        now_doing(DOING_CANCEL);
        account_refund_begin(me.number, batch->wants[i].amounts);
        require(weir_queue_cancel(me.queue, batch->first + (uint64_t)i) >= 0);
        account_refund_end(me.number, AHEAD_NS);
    }
}

static void step_queue(void)
{
    struct batch batch = {.first = me.serial};
    int r;

    batch.n = 1 + (int)below(BATCH);
    me.serial += BATCH;
    now_doing(DOING_QUEUE);
    for (int i = 0; i < batch.n; i++) {
        choose(false, &batch.wants[i]);
        limit_the_wait(&batch.wants[i]);
        r = weir_queue_submit(me.queue, me.pool, &batch.wants[i].request, batch.first + (uint64_t)i,
                              NULL, NULL);
        if (is_short(r)) {
            batch.n = i;
            break;
        }
        if (r < 0)
            require_reason(&batch.wants[i], r);
        require(r == 0);
    }
    batch.left = batch.n;
    if (below(3) == 0)
        cancel_some(&batch);
    complete_all(&batch);
}

/* ---- all of it ---- */

static void step(void)
{
    uint64_t way = below(100);
    struct want want;

    choose(way >= 35 && way < 54, &want);
    if (way < 25)
        step_acquire(&want);
    else if (way < 35)
        step_try(&want);
    else if (way < 50)
        step_take(&want);
    else if (way < 54)
        step_reserve(&want);
    else if (way < 80)
        step_submit(&want);
    else
        step_queue();
}

static void rest(void)
{
    now_doing(DOING_REST);
    atomic_store(&me.account->resting, 1);
    while (atomic_load(&grants_log->rest))
        pause_ns(200000);
    atomic_store(&me.account->resting, 0);
}

static void begin(void)
{
    now_doing(DOING_OPEN);
    me.w = shared_open(account_set());
    me.pool = shared_pool(me.w, "five");
    require(weir_queue_open(&me.queue, me.w, 64) == 0);
    if (me.few_descriptors)
        leave_descriptors((int)below(12));
}

static void end(void)
{
    now_doing(DOING_CLOSE);
    if (me.few_descriptors)
        leave_descriptors(-1);
    weir_queue_close(me.queue);
    weir_pool_close(me.pool);
    weir_close(me.w);
}

void worker_run(int worker, uint64_t random)
{
    me = (struct worker){
        .number = worker, .random = random, .account = &grants_log->accounts[worker]};
    test_seed = random;
    me.few_descriptors = atomic_load(&grants_log->few_descriptors) && below(2);
    begin();
    for (;;) {
        if (atomic_load(&grants_log->rest))
            rest();
        step();
        atomic_fetch_add(&me.account->progress, 1);
        if (below(500) == 0)
            return; /* as if it had crashed, but for its exit status */
        if (below(500) == 0) {
            end();
            begin();
        }
    }
}
