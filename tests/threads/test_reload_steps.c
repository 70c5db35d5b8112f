/* SPDX-License-Identifier: MIT */
/*
 * A set with subjects is reloaded to limits of other places, while another thread is stopped at any
 * of its steps: in a release, a request, a wait that begins. Or the reload is stopped, and then a
 * request as well. Whatever was first, nothing is lost of what was taken and returned, and waiters
 * are granted what the reload adds. WEIR_STRIDE: so many steps further each time where two threads
 * are stopped.
 */
#include "base/sched_point.h"
#include "keyed/keyed.h"
#include "lib/require.h"
#include "set/instance_base.h"
#include "set/set.h"
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <weir/weir.h>

#define SLOTS(n) "{ type: resource, key: slots, capacity: " n " }"
#define RATE(n)  "{ type: rate, key: tokens, algorithm: gcra, capacity: " n ", window: 1000h }"
#define TOKENS   RATE("100")
#define SET_OF(max, limits)                                                                        \
    "version: 1\nsets: { s: { subjects: { max: " max " }, limits: [ " limits " ] } }\n"
#define SET(limits) SET_OF("100", limits)

static const char narrow[] = SET(TOKENS);
static const char before[] = SET(SLOTS("2") "," TOKENS);
static const char after[] = SET(TOKENS "," SLOTS("4"));

static weir *w;
static weir_pool *pool;
static const weir_set *first; /* the set before the reload */
static weir_acquisition *held, *waiting;
static bool is_narrow; /* the state of the subject is a word, by the definition before the first */

/* ---- threads that are stopped at a step ---- */

struct stepper {
    void (*act)(void);
    uint64_t left;      /* steps until it is stopped; 0: it is not */
    bool after_publish; /* only steps count that come after the successor is known */
    bool is_done;
    sem_t stopped, go;
    pthread_t thread;
};

static _Thread_local struct stepper *self;

/* Of the threads that are not stopped there is one, so a lock that is held is its own. The spare
 * lock nests: its depth tells. */
static bool holds(pthread_mutex_t *lock)
{
    if (pthread_mutex_trylock(lock) != 0)
        return true;
    pthread_mutex_unlock(lock);
    return false;
}

void sched_point(void)
{
    struct stepper *stepper = self;

    if (!stepper || !stepper->left || (stepper->after_publish && !set_successor(first)))
        return;
    if (holds(&w->lock) || w->spare_depth || --stepper->left)
        return;
    sem_post(&stepper->stopped);
    sem_wait(&stepper->go);
}

static void *run(void *argument)
{
    self = argument;
    self->act();
    self->left = 0;
    self->is_done = true;
    sem_post(&self->stopped);
    return NULL;
}

/* Lets a stepper run to its n-th step. Returns whether it is stopped there. */
static bool start(struct stepper *stepper, uint64_t n)
{
    stepper->left = n;
    require(sem_init(&stepper->stopped, 0, 0) == 0 && sem_init(&stepper->go, 0, 0) == 0);
    require(pthread_create(&stepper->thread, NULL, run, stepper) == 0);
    sem_wait(&stepper->stopped);
    return !stepper->is_done;
}

static void finish(struct stepper *stepper)
{
    if (!stepper->is_done) {
        sem_post(&stepper->go);
        sem_wait(&stepper->stopped);
    }
    require(pthread_join(stepper->thread, NULL) == 0);
    sem_destroy(&stepper->stopped);
    sem_destroy(&stepper->go);
}

/* ---- requests ---- */

static struct weir_request *of_a(uint64_t slots, uint64_t tokens)
{
    static _Thread_local struct weir_amount amounts[2];
    static _Thread_local struct weir_request request;

    amounts[0] = (struct weir_amount){"slots", slots};
    amounts[1] = (struct weir_amount){"tokens", tokens};
    request = (struct weir_request){.size = sizeof(request),
                                    .amounts = amounts,
                                    .amounts_n = 2,
                                    .subject = "a",
                                    .subject_size = 1};
    return &request;
}

static void reload_to(const char *text)
{
    const struct weir_options options = {.size = sizeof(options), .text = text};

    require(weir_reload(w, &options, NULL) == 0);
}

static void do_reload(void)
{
    reload_to(after);
}

static void do_take(void)
{
    require(weir_take(pool, of_a(0, 5), NULL) == 0);
}

static void do_reload_and_take(void)
{
    do_reload();
    do_take();
}

/* Leaves a free key set of the last definition. */
static void do_reload_and_use_another(void)
{
    weir_acquisition *acquisition = NULL;
    struct weir_request *of_b;

    do_reload();
    of_b = of_a(1, 0);
    of_b->subject = "b";
    require(weir_try_acquire(pool, of_b, &acquisition, NULL) == 0);
    require(weir_release(&acquisition) == 0);
}

/* No use of tokens was reported: all of them count. */
static void let_go(weir_acquisition **acquisition)
{
    require(!*acquisition || weir_release(acquisition) == -EPROTO);
}

static void do_release(void)
{
    let_go(&held);
}

static void do_wait(void)
{
    int r = weir_submit(pool, of_a(2, 3), &waiting, NULL);

    require(r == 0 || r == 1);
}

/* Returns whether a request can wait that needs a key set, for more tokens than there are. */
static bool can_wait(void)
{
    int r = weir_submit(pool, of_a(0, 190), &waiting, NULL);

    require(r == 1 || r == -ENOBUFS);
    require(r < 0 || weir_release(&waiting) == 0);
    return r == 1;
}

/* The subject needs no key set any more. A request does, and looks for one everywhere. */
static void do_reload_and_look_for_key_set(void)
{
    reload_to(SET_OF("1", RATE("200")));
    (void)can_wait();
}

static void do_look(void)
{
    uint64_t at_ns;

    require(weir_set_ready_at(weir_pool_set(pool, 0), of_a(1, 90), &at_ns) == 0);
}

/* ---- rounds ---- */

/* The state of the subject is its word. */
static void require_no_key_set(void)
{
    require(key_sets_n(keyed_of(weir_pool_set(pool, 0))) == 0);
}

static void open_world(void)
{
    const struct weir_options options = {.size = sizeof(options),
                                         .text = is_narrow ? narrow : before};

    require(weir_open(&w, &options, NULL) == 0);
    require(weir_pool_open(&pool, w, "s", 0, NULL) == 0);
    if (is_narrow) {
        require(weir_take(pool, of_a(0, 7), NULL) == 0);
        require_no_key_set();
        reload_to(before);
    } else {
        require(weir_try_acquire(pool, of_a(2, 7), &held, NULL) == 0);
    }
    first = weir_pool_set(pool, 0);
}

/* All slots are there again, and the tokens that were not taken. */
static void close_world(uint64_t taken)
{
    struct weir_remaining remaining[2];

    let_go(&waiting);
    let_go(&held);
    require(weir_set_remaining(weir_pool_set(pool, 0), of_a(0, 0), remaining, 2) == 2);
    require(remaining[0].available == 100 - taken);
    require(remaining[1].available == 4);
    weir_pool_close(pool);
    weir_close(w);
}

/* A thread is stopped at each of its steps until a reload is done, and what follows from it. */
static uint64_t stop_until_reload(void (*act)(void), void (*meanwhile)(void), uint64_t taken)
{
    uint64_t n = 0;

    for (bool is_stopped = true; is_stopped;) {
        struct stepper stopped = {.act = act}, reload = {.act = meanwhile};

        open_world();
        is_stopped = start(&stopped, ++n);
        require(!start(&reload, 0));
        finish(&reload);
        finish(&stopped);
        require(!waiting || weir_acquisition_result(waiting) == 0);
        close_world(taken);
    }
    return n - 1;
}

/* A thread is stopped as it binds the only key set to a subject. If it binds it in vain, the key
 * set is free again, whatever the definition by then. */
static uint64_t stop_until_bound_in_vain(void)
{
    const struct weir_options options = {.size = sizeof(options), .text = SET_OF("1", TOKENS)};
    struct weir_remaining remaining;
    uint64_t n = 0;

    for (bool is_stopped = true; is_stopped;) {
        struct stepper stopped = {.act = do_take}, reload = {.act = do_reload_and_look_for_key_set};

        require(weir_open(&w, &options, NULL) == 0);
        require(weir_pool_open(&pool, w, "s", 0, NULL) == 0);
        do_take();
        require_no_key_set();
        reload_to(SET_OF("1", SLOTS("2") "," TOKENS));
        first = weir_pool_set(pool, 0);
        is_stopped = start(&stopped, ++n);
        require(!start(&reload, 0));
        finish(&reload);
        finish(&stopped);
        require(can_wait());
        require(weir_set_remaining(weir_pool_set(pool, 0), of_a(0, 0), &remaining, 1) == 1);
        require(remaining.available == 90); /* of 100 there were 95 */
        weir_pool_close(pool);
        weir_close(w);
    }
    return n - 1;
}

/* A reload is stopped once its definition is known, until a request by that one is stopped. Then
 * the waiter does not depend on what is stopped. */
static bool stop_both(uint64_t n, uint64_t m, bool *reload_stopped)
{
    struct stepper reload = {.act = do_reload, .after_publish = true}, take = {.act = do_take};
    bool take_stopped;

    open_world();
    do_wait();
    *reload_stopped = start(&reload, n);
    take_stopped = start(&take, m);
    finish(&reload);
    require(weir_acquisition_result(waiting) == 0);
    finish(&take);
    close_world(7 + 3 + 5);
    return take_stopped;
}

int main(void)
{
    const uint64_t stride = number_from("WEIR_STRIDE", 7);
    uint64_t n = 1, rounds = 0;

    printf("steps of a release: %" PRIu64 "\n",
           stop_until_reload(do_release, do_reload_and_take, 7 + 5));
    printf("steps of a request: %" PRIu64 "\n",
           stop_until_reload(do_take, do_reload_and_take, 7 + 5 + 5));
    is_narrow = true;
    printf("steps of a request that binds a key set: %" PRIu64 "\n",
           stop_until_reload(do_take, do_reload_and_use_another, 7 + 5));
    is_narrow = false;
    printf("steps of a request that binds one in vain: %" PRIu64 "\n", stop_until_bound_in_vain());
    printf("steps of a wait: %" PRIu64 "\n", stop_until_reload(do_wait, do_reload, 7 + 3));
    printf("steps of a look: %" PRIu64 "\n", stop_until_reload(do_look, do_reload_and_take, 7 + 5));
    for (bool reload_stopped = true; reload_stopped; n += stride)
        for (uint64_t m = 1; rounds++, stop_both(n, m, &reload_stopped); m++)
            ;
    printf("rounds of two: %" PRIu64 "\n", rounds);
    return 0;
}
