/* SPDX-License-Identifier: MIT */
/*
 * Many threads on the keys of one set, one of them hot, in a table with little room: keys get key
 * sets and are inline again, are forgotten and come back all the time. No key ever has more than
 * its limits allow, no waiter of a key is forgotten, and in the end nothing is held. WEIR_SECONDS:
 * for how long, each; WEIR_SEED.
 */
#include "lib/clock.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/require.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <weir/weir.h>

#include <cmocka.h>

#define THREADS   4
#define SUBJECTS  400u
#define SLOTS     3u
#define STEPS_MIN 2000

static struct {
    weir *w;
    weir_pool *pool;
    uint64_t begin_ns, until_ns;
    _Atomic uint64_t threads;
    _Atomic int64_t held[SUBJECTS];
    _Atomic uint64_t taken[SUBJECTS]; /* tokens */
    _Atomic uint64_t waited, turned_away, timed_out;
} run;

static const struct weir_amount one_slot[] = {{"slots", 1}, {"tokens", 0}};
static const struct weir_amount one_token[] = {{"slots", 0}, {"tokens", 1}};

/* Every other time the first. */
static uint64_t any_subject(uint64_t *random)
{
    return random_below(random, 2) ? 0 : random_below(random, SUBJECTS);
}

static struct weir_request request_of(const struct weir_amount *amounts, const uint64_t *subject)
{
    return (struct weir_request){.size = sizeof(struct weir_request),
                                 .amounts = amounts,
                                 .amounts_n = 2,
                                 .timeout_ns = 20 * MS,
                                 .subject = subject,
                                 .subject_size = sizeof(*subject)};
}

static void held(uint64_t subject)
{
    require(atomic_fetch_add(&run.held[subject], 1) < (int64_t)SLOTS);
}

static void give_back(uint64_t subject, weir_acquisition **acquisition)
{
    require(atomic_fetch_sub(&run.held[subject], 1) > 0);
    require(weir_release(acquisition) == 0);
}

/* Waits for what was submitted, or has had enough of it. */
static void await(uint64_t *random, uint64_t subject, weir_acquisition *acquisition)
{
    int r;

    for (unsigned i = (unsigned)random_below(random, 20); i > 0; i--)
        if (weir_acquisition_result(acquisition) != -EINPROGRESS)
            break;
        else
            pause_ns(10000);
    r = weir_cancel(acquisition);
    require(r == 0 || r == -EALREADY);
    r = weir_acquisition_result(acquisition);
    require(r == 0 || r == -ECANCELED || r == -ETIMEDOUT);
    if (r == 0) {
        held(subject);
        give_back(subject, &acquisition);
        atomic_fetch_add(&run.waited, 1);
    } else {
        require(weir_release(&acquisition) == 0);
    }
}

static void use_slot(uint64_t *random)
{
    uint64_t subject = any_subject(random), how = random_below(random, 4);
    struct weir_request request = request_of(one_slot, &subject);
    weir_acquisition *acquisition = NULL;
    int r = how == 0   ? weir_acquire(run.pool, &request, &acquisition, NULL)
            : how == 1 ? weir_submit(run.pool, &request, &acquisition, NULL)
                       : weir_try_acquire(run.pool, &request, &acquisition, NULL);

    if (r == 1) {
        await(random, subject, acquisition);
    } else if (r == 0) {
        held(subject);
        if (random_below(random, 64) == 0)
            pause_ns(1000);
        give_back(subject, &acquisition);
    } else if (r == -ENOBUFS) {
        atomic_fetch_add(&run.turned_away, 1);
    } else {
        require(r == -EAGAIN || r == -ETIMEDOUT);
        atomic_fetch_add(&run.timed_out, r == -ETIMEDOUT);
    }
}

static void use_token(uint64_t *random)
{
    uint64_t subject = any_subject(random);
    struct weir_request request = request_of(one_token, &subject);
    weir_acquisition *acquisition = NULL;
    int r;

    if (random_below(random, 64) == 0) { /* waiters, from time to time */
        r = weir_acquire(run.pool, &request, &acquisition, NULL);
        if (r == 0) {
            require(weir_update(acquisition, "tokens", 1) == 0);
            require(weir_release(&acquisition) == 0);
            atomic_fetch_add(&run.waited, 1);
        }
    } else {
        r = weir_take(run.pool, &request, NULL);
    }
    if (r == 0)
        atomic_fetch_add(&run.taken[subject], 1);
    else if (r == -ENOBUFS)
        atomic_fetch_add(&run.turned_away, 1);
    else
        require(r == -EAGAIN || r == -ETIMEDOUT);
}

static void *work(void *use)
{
    void (*const *const step)(uint64_t *) = use;
    uint64_t random = random_case(test_seed, atomic_fetch_add(&run.threads, 1));

    /* Some steps in any case: a machine that stood still may begin after the time. */
    for (int n = 0; n < STEPS_MIN || clock_now() < run.until_ns; n++)
        (*step)(&random);
    return NULL;
}

static void open_set(const char *limits)
{
    char text[512];
    struct weir_error error = {0};

    memset(&run, 0, sizeof(run));
    snprintf(text, sizeof(text),
             "version: 1\nsets: { main: { subjects: { max: 40, evict: none }, limits: [ %s ] } }\n",
             limits);
    run.begin_ns = clock_now();
    run.until_ns = run.begin_ns + number_from("WEIR_SECONDS", 1) * SECOND;
    if (weir_open(&run.w, &(struct weir_options){.size = sizeof(struct weir_options), .text = text},
                  &error) < 0)
        fail_msg("%s", error.message);
    require(weir_pool_open(&run.pool, run.w, "main", 0, NULL) == 0);
}

static void run_threads(void (*step)(uint64_t *))
{
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        require(pthread_create(&threads[i], NULL, work, &step) == 0);
    for (int i = 0; i < THREADS; i++)
        require(pthread_join(threads[i], NULL) == 0);
}

static void close_set(void)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_subjects_stats keyed = {.size = sizeof(keyed)};
    weir_set *set = weir_pool_set(run.pool, 0);

    require(weir_set_stats(set, &stats, NULL, 0) > 0);
    require(weir_set_subjects(set, &keyed) == 1);
    print_message("granted %" PRIu64 ", after waiting %" PRIu64 " (%" PRIu64 " submitted), timed "
                  "out %" PRIu64 ", turned away %" PRIu64 ", forgotten %" PRIu64 ", live %" PRIu64
                  "\n",
                  stats.granted, stats.granted_waited, run.waited, stats.timed_out, run.turned_away,
                  keyed.forgotten, keyed.live);
    require(stats.held == 0 && stats.waiting == 0);
    require(stats.granted == stats.taken + stats.released);
    require(keyed.evicted == 0 && keyed.refused == run.turned_away);
    require(keyed.live == 0 || weir_set_limits(set) > 1);
    weir_pool_close(run.pool);
    weir_close(run.w);
}

static void slots(const char *limits)
{
    open_set(limits);
    run_threads(use_slot);
    /* Everything can be had, of each key. */
    for (uint64_t i = 0; i < SUBJECTS; i++) {
        const struct weir_amount all[] = {{"slots", SLOTS}, {"tokens", 0}};
        struct weir_request request = request_of(all, &i);
        weir_acquisition *acquisition = NULL;

        require(weir_try_acquire(run.pool, &request, &acquisition, NULL) == 0);
        require(weir_release(&acquisition) == 0);
    }
    close_set();
}

#define SLOTS_LIMIT "{ type: resource, key: slots, capacity: 3 }"
#define TOKENS_LIMIT                                                                               \
    "{ type: rate, key: tokens, algorithm: gcra, capacity: 5000, window: 1s, burst: 10 }"

static void slots_of_key_words(void **state)
{
    (void)state;
    slots(SLOTS_LIMIT);
}

static void slots_of_key_sets(void **state)
{
    (void)state;
    slots(SLOTS_LIMIT ", " TOKENS_LIMIT);
}

static void tokens(const char *limits)
{
    uint64_t elapsed_ns;

    open_set(limits);
    run_threads(use_token);
    elapsed_ns = clock_now() - run.begin_ns;
    for (unsigned i = 0; i < SUBJECTS; i++)
        require(run.taken[i] <= 10 + elapsed_ns / (SECOND / 5000) + 1);
    require(run.taken[0] > 0);
    close_set();
}

static void tokens_of_key_words(void **state)
{
    (void)state;
    tokens(TOKENS_LIMIT);
}

static void tokens_of_key_sets(void **state)
{
    (void)state;
    tokens(TOKENS_LIMIT ", " SLOTS_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(slots_of_key_words),
        leak_checked_test(slots_of_key_sets),
        leak_checked_test(tokens_of_key_words),
        leak_checked_test(tokens_of_key_sets),
    };

    seed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
