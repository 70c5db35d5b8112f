/* SPDX-License-Identifier: MIT */
/*
 * Segments that are truncated, extended again or punched while processes take, hold and wait in all
 * ways. No process dies of it or hangs, each finds the set broken once its memory is gone, every
 * wait ends, and never is more held than there is: nothing is granted from the zeros that take the
 * place of the segment.
 *
 * WEIR_SECONDS: how long the storms last, each (1). WEIR_SEED repeats their choices.
 */
#include "lib/child.h"
#include "shared.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weir/segment.h>

#include <cmocka.h>

#define SLOTS 2u

static const struct kind {
    const char *text, *key;
    uint64_t capacity; /* how much can be held, or taken at one instant */
    bool is_resource, is_keyed;
} kinds[] = {
    {"version: 1\n"
     "sets:\n"
     "  s:\n"
     "    backend: process\n"
     "    limits:\n"
     "      - { type: resource, key: slot, capacity: 2 }\n",
     "slot", SLOTS, true, false},
    {"version: 1\n"
     "sets:\n"
     "  s:\n"
     "    backend: process\n"
     "    limits:\n"
     "      - { type: resource, key: slot, capacity: 2 }\n"
     "      - { type: rate, key: word, algorithm: gcra, capacity: 1000000, window: 1s }\n"
     "      - { type: rate, key: bucket, algorithm: token_bucket, capacity: 1000000, window: 1s "
     "}\n",
     "slot", SLOTS, true, false},
    {"version: 1\n"
     "sets:\n"
     "  s:\n"
     "    backend: process\n"
     "    limits:\n"
     "      - { type: rate, key: word, algorithm: gcra, capacity: 40, window: 4000s }\n",
     "word", 40, false, false},
    {"version: 1\n"
     "sets:\n"
     "  s:\n"
     "    backend: process\n"
     "    subjects: { max: 1000 }\n"
     "    limits:\n"
     "      - { type: resource, key: slot, capacity: 2 }\n",
     "slot", SLOTS, true, true},
    {"version: 1\n"
     "sets:\n"
     "  s:\n"
     "    backend: process\n"
     "    subjects: { max: 1000 }\n"
     "    limits:\n"
     "      - { type: rate, key: word, algorithm: gcra, capacity: 40, window: 4000s }\n",
     "word", 40, false, true},
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static const struct kind *kind = kinds;

static void require_code(int r, const char *file, int line, const int *allowed)
{
    for (; *allowed; allowed++)
        if (r == *allowed)
            return;
    if (r >= 0)
        return;
    fprintf(stderr, "%s:%d: %d\n", file, line, r);
    require(!"an error that is expected");
}

#define ALLOW(r, ...) require_code(r, __FILE__, __LINE__, (const int[]){__VA_ARGS__, 0})

/* ---- the file ---- */

static void segment_path(char ret[static 128])
{
    snprintf(ret, 128, "%s/s.weir", shared_directory());
}

static int segment_fd(void)
{
    char path[128];

    segment_path(path);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* From its beginning: the header, the definition, the peers, and what follows. */
enum harm { CUT, CUT_TO_HEADER, CUT_TO_PEERS, CUT_SOMEWHERE, CUT_AND_EXTEND, PUNCH, HARMS };

#define PAGE     4096
#define PEERS_AT 20480

static void do_harm(int fd, enum harm harm, uint64_t *random)
{
    struct stat found;
    off_t size;

    require(fd >= 0 && fstat(fd, &found) == 0);
    if (harm == PUNCH && found.st_size == 0)
        return;
    size = found.st_size;
    switch (harm) {
    case CUT_TO_HEADER:
        require(ftruncate(fd, PAGE) == 0);
        break;
    case CUT_TO_PEERS:
        require(ftruncate(fd, PEERS_AT) == 0);
        break;
    case CUT_SOMEWHERE:
        require(ftruncate(fd, (off_t)random_below(random, (uint64_t)size + 1)) == 0);
        break;
    case CUT_AND_EXTEND:
        require(ftruncate(fd, 0) == 0 && ftruncate(fd, size) == 0);
        break;
    case PUNCH:
        require(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, size) == 0);
        break;
    default:
        require(ftruncate(fd, 0) == 0);
    }
}

/* Whether each process that goes on must meet the harm. */
static bool is_fatal(enum harm harm)
{
    return harm != CUT_SOMEWHERE;
}

/* ---- workers ---- */

static struct common {
    _Atomic uint32_t ready, held, over;
    _Atomic bool harmed, ends;
} * common;

static void await_ready(uint32_t n)
{
    uint64_t until = clock_now() + 30 * SECOND;

    while (common->ready < n) {
        require(clock_now() < until);
        usleep(100);
    }
}

struct worker {
    weir *w;
    weir_pool *pool;
    weir_queue *queue;
    uint64_t random;
    bool is_broken;
};

static const struct weir_request *ask(struct shared_request *memory, uint64_t timeout_ns)
{
    shared_ask(memory, kind->key, 1, timeout_ns);
    if (kind->is_keyed) {
        memory->request.subject = "me";
        memory->request.subject_size = 2;
    }
    return &memory->request;
}

static void note(struct worker *me, int r)
{
    me->is_broken |= r == -EUCLEAN;
}

/* What a rate has given is never given back. */
static void note_granted(void)
{
    if (atomic_fetch_add(&common->held, 1) >= kind->capacity)
        common->over++;
}

/* What is held when the set breaks stays so. */
static void let_go(weir_acquisition **acquisition)
{
    if (kind->is_resource)
        atomic_fetch_sub(&common->held, 1);
    else
        ALLOW(weir_update(*acquisition, kind->key, 1), -EUCLEAN);
    ALLOW(weir_release(acquisition), -EUCLEAN);
}

static void hold(struct worker *me, weir_acquisition **acquisition)
{
    note_granted();
    if (random_below(&me->random, 4) == 0)
        usleep((useconds_t)random_below(&me->random, 500));
    let_go(acquisition);
}

#define ANY -EUCLEAN, -EAGAIN, -ETIMEDOUT, -ENOMEM, -ENOBUFS

static void do_try(struct worker *me)
{
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;
    int r = weir_try_acquire(me->pool, ask(&memory, 0), &acquisition, NULL);

    ALLOW(r, ANY);
    note(me, r);
    if (r == 0)
        hold(me, &acquisition);
}

static void do_acquire(struct worker *me)
{
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;
    int r = weir_acquire(me->pool, ask(&memory, (1 + random_below(&me->random, 5)) * MS),
                         &acquisition, NULL);

    ALLOW(r, ANY);
    note(me, r);
    if (r == 0)
        hold(me, &acquisition);
}

static void do_submit(struct worker *me)
{
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;
    int r = weir_submit(me->pool, ask(&memory, 3 * MS), &acquisition, NULL);
    struct pollfd fd = {.events = POLLIN};

    ALLOW(r, ANY);
    note(me, r);
    if (r < 0)
        return;
    fd.fd = weir_acquisition_fd(acquisition);
    ALLOW(fd.fd, -EUCLEAN);
    if (fd.fd >= 0)
        require(poll(&fd, 1, 10000) == 1);
    r = weir_acquisition_result(acquisition);
    ALLOW(r, ANY);
    note(me, r);
    if (r == 0)
        hold(me, &acquisition);
    else
        weir_release(&acquisition);
}

static void do_queue(struct worker *me)
{
    struct shared_request memory;
    struct weir_completion done;
    struct pollfd fd = {weir_queue_fd(me->queue), POLLIN, 0};
    int r = weir_queue_submit(me->queue, me->pool, ask(&memory, 3 * MS), 7, NULL, NULL), n = 0;

    ALLOW(r, ANY);
    note(me, r);
    while (r >= 0 && n == 0) {
        require(poll(&fd, 1, 10000) == 1);
        n = weir_queue_reap(me->queue, &done, 1);
        require(n >= 0);
    }
    if (r < 0)
        return;
    ALLOW(done.result, ANY);
    note(me, done.result);
    if (done.result == 0)
        hold(me, &done.acquisition);
    else
        weir_release(&done.acquisition);
}

static void do_look(struct worker *me)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct shared_request memory;
    uint64_t at_ns;

    ALLOW(weir_set_stats(weir_pool_set(me->pool, 0), &stats, NULL, 0), -EUCLEAN);
    ALLOW(weir_set_ready_at(weir_pool_set(me->pool, 0), ask(&memory, 0), &at_ns), ANY);
}

/* Each of these, after it was found broken once. */
static void require_all_broken(struct worker *me)
{
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;

    require(weir_try_acquire(me->pool, ask(&memory, 0), &acquisition, NULL) == -EUCLEAN);
    require(weir_acquire(me->pool, ask(&memory, MS), &acquisition, NULL) == -EUCLEAN);
    require(weir_submit(me->pool, ask(&memory, MS), &acquisition, NULL) == -EUCLEAN);
    require(weir_queue_submit(me->queue, me->pool, ask(&memory, MS), 1, NULL, NULL) == -EUCLEAN);
    require(!acquisition);
}

static void run_worker(void *argument)
{
    static void (*const steps[])(struct worker * me) = {do_try,    do_try,   do_acquire,
                                                        do_submit, do_queue, do_look};
    struct worker me = {.random = *(const uint64_t *)argument};

    me.w = shared_open(kind->text);
    me.pool = shared_pool(me.w, "s");
    require(weir_queue_open(&me.queue, me.w, 4) == 0);
    common->ready++;
    while (!me.is_broken && !common->ends)
        steps[random_below(&me.random, sizeof(steps) / sizeof(steps[0]))](&me);
    if (me.is_broken)
        require_all_broken(&me);
    weir_queue_close(me.queue);
    weir_pool_close(me.pool);
    weir_close(me.w);
}

/* ---- storms ---- */

enum { WORKERS = 5 };

static void storm(enum harm harm, uint64_t *random)
{
    pid_t pids[WORKERS];
    int fd;

    memset(common, 0, sizeof(*common));
    for (int i = 0; i < WORKERS; i++) {
        uint64_t seed = random_next(random);

        pids[i] = shared_fork(run_worker, &seed);
    }
    await_ready(WORKERS);
    usleep((useconds_t)random_below(random, 10000));
    fd = segment_fd();
    do_harm(fd, harm, random);
    common->harmed = true;
    if (!is_fatal(harm)) {
        usleep(50000);
        common->ends = true;
    }
    for (int i = 0; i < WORKERS; i++)
        shared_wait(pids[i], 0);
    close(fd);
    if (common->over > 0)
        fprintf(stderr, "kind %d, harm %d: %u too many\n", (int)(kind - kinds), (int)harm,
                common->over);
    require(common->over == 0);
    shared_end();
    shared_begin();
}

static void test_storm(void **state)
{
    uint64_t random = test_seed, until = clock_now() + number_from("WEIR_SECONDS", 1) * 1000 * MS;

    (void)state;
    do
        for (size_t i = 0; i < KINDS; i++)
            for (enum harm harm = 0; harm < HARMS; harm++) {
                kind = &kinds[i];
                storm(harm, &random);
            }
    while (clock_now() < until);
}

/* ---- waits ---- */

static void *wait_blocked(void *argument)
{
    weir_pool *pool = argument;
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;

    require(weir_acquire(pool, ask(&memory, WEIR_FOREVER), &acquisition, NULL) == -EUCLEAN);
    require(!acquisition);
    return NULL;
}

static void require_readable(int fd)
{
    struct pollfd poll_fd = {fd, POLLIN, 0};

    require(fd >= 0 && poll(&poll_fd, 1, 10000) == 1);
}

/* Waits in all ways for what another process holds, and calls nothing meanwhile. */
static void run_waits(void *argument)
{
    enum { BLOCKED = 3 };
    weir *w = shared_open(kind->text);
    weir_pool *pool = shared_pool(w, "s");
    struct shared_request memory;
    weir_acquisition *submitted = NULL;
    weir_queue *queue;
    struct weir_completion done;
    pthread_t threads[BLOCKED];
    int n = 0;

    (void)argument;
    require(weir_submit(pool, ask(&memory, WEIR_FOREVER), &submitted, NULL) == 1);
    require(weir_queue_open(&queue, w, 4) == 0);
    require(weir_queue_submit(queue, pool, ask(&memory, WEIR_FOREVER), 7, NULL, NULL) == 0);
    for (int i = 0; i < BLOCKED; i++)
        require(pthread_create(&threads[i], NULL, wait_blocked, pool) == 0);
    common->ready++;
    for (int i = 0; i < BLOCKED; i++)
        require(pthread_join(threads[i], NULL) == 0);
    require_readable(weir_acquisition_fd(submitted));
    require(weir_acquisition_result(submitted) == -EUCLEAN);
    while (n == 0) {
        require_readable(weir_queue_fd(queue));
        n = weir_queue_reap(queue, &done, 1);
    }
    require(n == 1 && done.user_data == 7 && done.result == -EUCLEAN);
    weir_release(&submitted);
    weir_queue_close(queue);
    weir_pool_close(pool);
    weir_close(w);
}

/* Holds all there is, and never calls anything again. */
static void run_holder(void *argument)
{
    weir *w = shared_open(kind->text);
    weir_pool *pool = shared_pool(w, "s");
    struct shared_request memory;
    weir_acquisition *held[SLOTS];

    (void)argument;
    for (uint32_t i = 0; i < SLOTS; i++)
        require(weir_try_acquire(pool, ask(&memory, 0), &held[i], NULL) == 0);
    common->ready++;
    while (!common->ends)
        usleep(1000);
}

static void wait_in_all_ways(enum harm harm)
{
    enum { WAITERS = 2 };
    uint64_t random = 1;
    pid_t holder, waiters[WAITERS];
    int fd;

    memset(common, 0, sizeof(*common));
    holder = shared_fork(run_holder, NULL);
    await_ready(1);
    for (int i = 0; i < WAITERS; i++)
        waiters[i] = shared_fork(run_waits, NULL);
    await_ready(1 + WAITERS);
    usleep(30000); /* most threads wait by now; one that comes later finds the same */
    fd = segment_fd();
    do_harm(fd, harm, &random);
    close(fd);
    for (int i = 0; i < WAITERS; i++)
        shared_wait(waiters[i], 0);
    common->ends = true;
    shared_wait(holder, 0);
    shared_end();
    shared_begin();
}

static void test_waits_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++)
        for (enum harm harm = 0; kinds[i].is_resource && harm < HARMS; harm++) {
            kind = &kinds[i];
            if (is_fatal(harm))
                wait_in_all_ways(harm);
        }
}

/* ---- the header alone ---- */

/* A resource's state word is never 0: zeros are no set of which nothing is held. */
static void run_cleared_header(void *argument)
{
    weir *w = shared_open(kind->text);
    weir_pool *pool = shared_pool(w, "s");
    struct shared_request memory;
    weir_acquisition *held[SLOTS], *more = NULL;
    int fd = segment_fd();

    (void)argument;
    for (uint32_t i = 0; i < SLOTS; i++)
        require(weir_try_acquire(pool, ask(&memory, 0), &held[i], NULL) == 0);
    require(fd >= 0);
    require(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) == 0);
    close(fd);
    for (int i = 0; i < 3; i++)
        require(weir_try_acquire(pool, ask(&memory, 0), &more, NULL) == -EUCLEAN && !more);
    for (uint32_t i = 0; i < SLOTS; i++)
        ALLOW(weir_release(&held[i]), -EUCLEAN);
    weir_pool_close(pool);
    weir_close(w);
}

static void test_cleared_header(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        kind = &kinds[i];
        shared_wait(shared_fork(run_cleared_header, NULL), 0);
        shared_end();
        shared_begin();
    }
}

/* ---- coming and going ---- */

/* Opens, asks and closes, and removes what is broken, while segments are truncated. */
static void run_visitor(void *argument)
{
    const struct weir_options options = {
        .size = sizeof(options), .text = kind->text, .process_dir = shared_directory()};
    struct weir_error error;
    struct worker me = {.random = *(const uint64_t *)argument};
    int r;

    while (!common->ends) {
        r = shared_try_open(&me.w, kind->text, &error);
        if (r == 0) {
            me.pool = shared_pool(me.w, "s");
            do_try(&me);
            do_look(&me);
            weir_pool_close(me.pool);
            weir_close(me.w);
            common->ready++;
        } else if (r != -EUCLEAN && r != -EBUSY) {
            fprintf(stderr, "weir_open: %d: %s\n", r, error.message);
            require(!"an error that is expected");
        }
        if (r < 0 || random_below(&me.random, 4) == 0) {
            r = weir_segment_remove(&options, "s", WEIR_SEGMENT_FORCE, &error);
            require(r == 0 || r == -ENOENT || r == -EBUSY);
        } else if (random_below(&me.random, 4) == 0) {
            r = weir_segment_remove(&options, "s", 0, &error);
            require(r == 0 || r == -ENOENT || r == -EBUSY || r == -EUCLEAN ||
                    r == -EPROTONOSUPPORT);
        }
    }
}

static int look(void *userdata, const struct weir_segment *segment)
{
    int code = segment->refusal ? segment->refusal->code : 0;

    (void)userdata;
    ALLOW(code, -EUCLEAN, -EPROTONOSUPPORT, -EIDRM); /* users of one that was removed */
    return 0;
}

static void run_observer(void *argument)
{
    const struct weir_options options = {
        .size = sizeof(options), .text = kind->text, .process_dir = shared_directory()};

    (void)argument;
    while (!common->ends)
        require(weir_segments(&options, look, NULL, NULL) >= 0);
}

static void test_coming_and_going(void **state)
{
    enum { VISITORS = 3 };
    pid_t pids[VISITORS + 1];
    uint64_t random = test_seed, until;

    (void)state;
    memset(common, 0, sizeof(*common));
    kind = kinds;
    common->held = 0;
    for (int i = 0; i < VISITORS; i++) {
        uint64_t seed = random_next(&random);

        pids[i] = shared_fork(run_visitor, &seed);
    }
    pids[VISITORS] = shared_fork(run_observer, NULL);
    until = clock_now() + number_from("WEIR_SECONDS", 1) * SECOND;
    while (clock_now() < until || common->ready < 10) {
        int fd = segment_fd();

        if (fd >= 0)
            do_harm(fd, random_below(&random, HARMS), &random);
        close(fd);
        usleep((useconds_t)random_below(&random, 1000));
    }
    common->ends = true;
    for (int i = 0; i <= VISITORS; i++)
        shared_wait(pids[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        shared_test(test_storm),
        shared_test(test_waits_end),
        shared_test(test_cleared_header),
        shared_test(test_coming_and_going),
    };

    seed_begin();
    common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    require(common != MAP_FAILED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
