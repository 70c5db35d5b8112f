/* SPDX-License-Identifier: MIT */
/*
 * Refunds, plain and strict, in every way in which units go back and wherever the state is. Ten of
 * a full limit's units are granted when it has no others, four have come since and are used, and
 * then the ten go back: all of them with a plain refund, and the six that have not come anyway with
 * a strict one.
 */
#include "lib/require.h"
#include "lib/world.h"
#include <pthread.h>

enum { AMOUNT = 10, SINCE = 4 }; /* units, one a second */

#define ONE_PER_SECOND "capacity: 25, window: 25s"
#define RESOURCE       "{ type: resource, key: slots, capacity: 9 }"

static const struct kind {
    const char *name;
    const char *limit; /* all but what is refunded */
    const char *other; /* another limit of the set, or "" */
    uint64_t burst;
} kinds[] = {
    {"token_bucket", "algorithm: token_bucket, " ONE_PER_SECOND, "", 25},
    {"token_bucket, every", "algorithm: token_bucket, every: 2s, " ONE_PER_SECOND, "", 25},
    {"gcra", "algorithm: gcra, " ONE_PER_SECOND, "", 25},
    {"gcra, wide", "algorithm: gcra, capacity: 1, window: 1s, burst: 2G", "", 2000000000},
    {"leaky_bucket", "algorithm: leaky_bucket, " ONE_PER_SECOND, "", 25},
    {"gcra, and a resource", "algorithm: gcra, " ONE_PER_SECOND, "," RESOURCE, 25},
};

static const char *const places[] = {"", "subjects: { max: 10 }, "};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]), PLACES = sizeof(places) / sizeof(places[0]) };

static struct weir_request *ask(uint64_t amount)
{
    static struct weir_amount amounts[2];
    static struct weir_request request;

    amounts[0] = (struct weir_amount){"k", amount};
    amounts[1] = (struct weir_amount){"slots", 0};
    request = (struct weir_request){.size = sizeof(request),
                                    .amounts = amounts,
                                    .amounts_n = 2,
                                    .timeout_ns = WEIR_FOREVER,
                                    .subject = "s",
                                    .subject_size = 1};
    return &request;
}

static void open_kind(const struct kind *kind, const char *place, bool strict_refund)
{
    char fields[512];

    snprintf(fields, sizeof(fields), "%slimits: [ { type: rate, key: k, refund: %s, %s } %s ]",
             place, strict_refund ? "strict" : "true", kind->limit, kind->other);
    world_set(fields);
}

/* Ways in which a grant ends: the first part when there is room for it or soon, the second later.
 */
struct way {
    const char *name;
    void (*begin)(void);
    void (*end)(void);
    bool waits; /* is granted by time, or as of a time that comes */
};

static weir_acquisition *acquisition;
static weir_queue *queue;

static void acquire(void)
{
    acquisition = granted(ask(AMOUNT));
}

static void update(void)
{
    release_used(acquisition, "k", 0);
}

static void wait(void)
{
    acquisition = pending(ask(AMOUNT));
}

static void cancel(void)
{
    assert_int_equal(weir_cancel(acquisition), 0);
    release(acquisition);
}

static void release_unseen(void)
{
    release(acquisition);
}

static void reserve_ahead(void)
{
    uint64_t at;

    assert_int_equal(reserve(ask(AMOUNT), &acquisition, &at), 0);
    assert_int_equal(at, weir_now(world.w) + AMOUNT * SECOND);
}

static void open_queue(void)
{
    assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
    assert_int_equal(weir_queue_submit(queue, world.pool, ask(AMOUNT), 1, NULL, NULL), 0);
    settle();
}

static void close_queue(void)
{
    weir_queue_close(queue);
}

static void cancel_submission(void)
{
    struct weir_completion done;

    assert_int_equal(weir_queue_cancel(queue, 1), 1);
    assert_int_equal(weir_queue_reap(queue, &done, 1), 1);
    assert_int_equal(done.result, -ECANCELED);
    weir_queue_close(queue);
}

static void open_queue_kept(void)
{
    assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
    assert_int_equal(weir_queue_submit(queue, world.pool, ask(AMOUNT), 1, &acquisition, NULL), 0);
    settle();
}

static void withdraw_submission(void)
{
    release(acquisition);
    weir_queue_close(queue);
}

static const struct way ways[] = {
    {"an update", acquire, update, false},
    {"a cancel of a grant by time", wait, cancel, true},
    {"a release of a grant by time", wait, release_unseen, true},
    {"a cancel of a reservation", reserve_ahead, cancel, true},
    {"a queue that is closed", open_queue, close_queue, false},
    {"a cancel in a queue", open_queue, cancel_submission, false},
    {"a release before the reap", open_queue_kept, withdraw_submission, false},
};

static void go_back(const struct kind *kind, const char *place, const struct way *way,
                    bool strict_refund)
{
    uint64_t expected = strict_refund ? AMOUNT - SINCE : AMOUNT;

    if (way->begin == reserve_ahead && !(backend->has & HAS_RESERVATIONS))
        return;
    open_kind(kind, place, strict_refund);
    assert_int_equal(take(ask(kind->burst)), 0);
    if (way->waits)
        way->begin();
    advance(AMOUNT * SECOND);
    if (!way->waits)
        way->begin();
    advance(SINCE * SECOND);
    assert_int_equal(take(ask(SINCE)), 0);
    assert_int_equal(take(ask(1)), -EAGAIN);
    way->end();
    if (take(ask(expected)) != 0 || take(ask(1)) != -EAGAIN)
        fail_msg("%s%s, after %s: not %u units are back", place, kind->name, way->name,
                 (unsigned)expected);
    world_close();
}

static void each_way(bool strict_refund)
{
    for (size_t i = 0; i < KINDS; i++)
        for (size_t j = 0; j < PLACES; j++)
            for (size_t k = 0; k < sizeof(ways) / sizeof(ways[0]); k++)
                go_back(&kinds[i], places[j], &ways[k], strict_refund);
}

static void plain_refunds_give_all_back(void **state)
{
    (void)state;
    each_way(false);
}

static void strict_refunds_give_back_what_has_not_come_since(void **state)
{
    (void)state;
    each_way(true);
}

struct lessee {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int phase;
};

/* Takes one unit, and with it a lease of ten; ends when it is told to. */
static void *lease(void *argument)
{
    struct lessee *lessee = argument;

    require(weir_take(world.pool, ask(1), NULL) == 0);
    pthread_mutex_lock(&lessee->lock);
    lessee->phase = 1;
    pthread_cond_broadcast(&lessee->changed);
    while (lessee->phase != 2)
        pthread_cond_wait(&lessee->changed, &lessee->lock);
    pthread_mutex_unlock(&lessee->lock);
    return NULL;
}

static void lease_and_return(bool strict_refund)
{
    struct lessee lessee = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    const struct kind kind = {"", "algorithm: gcra, lease: 10, " ONE_PER_SECOND, "", 25};
    uint64_t expected = AMOUNT - 1 - (strict_refund ? SINCE : 0);
    pthread_t thread;

    open_kind(&kind, places[0], strict_refund);
    assert_int_equal(take(ask(kind.burst)), 0);
    advance(AMOUNT * SECOND);
    assert_int_equal(pthread_create(&thread, NULL, lease, &lessee), 0);
    pthread_mutex_lock(&lessee.lock);
    while (lessee.phase != 1)
        pthread_cond_wait(&lessee.changed, &lessee.lock);
    pthread_mutex_unlock(&lessee.lock);
    advance(SINCE * SECOND);
    assert_int_equal(take(ask(SINCE)), 0);
    pthread_mutex_lock(&lessee.lock);
    lessee.phase = 2;
    pthread_cond_broadcast(&lessee.changed);
    pthread_mutex_unlock(&lessee.lock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(take(ask(expected)), 0);
    assert_int_equal(take(ask(1)), -EAGAIN);
    world_close();
}

/* A lease was granted when it was filled. */
static void a_lease_goes_back_as_of_its_fill(void **state)
{
    (void)state;
    needs(HAS_THREAD_LEASES);
    lease_and_return(false);
    lease_and_return(true);
}

/* Windows and shapers have one refund, which keeps their bound by itself. */
static void a_strict_refund_of_others_is_the_plain_one(void **state)
{
    static const char *const limits[] = {"sliding_window", "fixed_window",
                                         "leaky_bucket, mode: shaper"};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        uint64_t left[2];

        for (int strict_refund = 0; strict_refund < 2; strict_refund++) {
            char limit[200];
            weir_acquisition *a;

            snprintf(limit, sizeof(limit),
                     "{ type: rate, key: k, algorithm: %s, " ONE_PER_SECOND ", refund: %s }",
                     limits[i], strict_refund ? "strict" : "true");
            world_limits(limit);
            a = granted(ask(AMOUNT));
            advance(SINCE * SECOND);
            release_used(a, "k", 0);
            advance(AMOUNT * SECOND / 2);
            left[strict_refund] = available(0);
            assert_int_equal(limit_stats(0).refunded, AMOUNT);
            world_close();
        }
        assert_int_equal(left[0], left[1]);
        assert_int_equal(left[0], 25);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(plain_refunds_give_all_back),
        leak_checked_test(strict_refunds_give_back_what_has_not_come_since),
        leak_checked_test(a_lease_goes_back_as_of_its_fill),
        leak_checked_test(a_strict_refund_of_others_is_the_plain_one),
    };

    backend_choose(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
