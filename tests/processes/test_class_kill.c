/* SPDX-License-Identifier: MIT */
/*
 * Classes of requests under load, by threads of one process, and by processes that are killed at
 * random moments and replaced. Each request is logged: its class, when it was asked, when it was
 * known to wait, when it was granted or given up. From the log:
 *
 * - within a class, a request that was asked once another one waited is not granted before it;
 * - with priorities, no class with waiters is passed over more often in a row than `ageing` and the
 *   number of classes allow;
 * - what the set has counted of each class is what was asked and granted.
 *
 * A request that was given up, or that a killed process made, may have been granted all the same.
 * Such a grant is missing in the log, and the passed over ones before and after it look like one
 * row: the bound holds once more for each. None of them is granted any more once a request of the
 * class is that was asked after their end. Instants are those of grants in the set, which never go
 * back.
 *
 *     WEIR_OPERATIONS: requests of each thread; WEIR_ROUNDS: kills; WEIR_SEED
 */
#include "shared.h"

#include "lib/random.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { WORKERS = 3, THREADS = 3, CLASSES = 3, AGEING = 6, LOG_ROOM = 1 << 14 };
#define SLACK_NS (MS / 10) /* clocks of several processes differ by less */

#define SLOTS      "limits: [ { type: resource, key: slot, capacity: 2 } ]"
#define PRIORITIES "priorities: 3, ageing: 6, "
#define SHARES     "shares: { a: 1, b: 3, c: 2 }, "

static const struct kind {
    const char *text;
    bool is_shared, has_priorities;
} kinds[] = {
    {"version: 1\nsets: { s: { " PRIORITIES SLOTS " } }\n", false, true},
    {"version: 1\nsets: { s: { " SHARES SLOTS " } }\n", false, false},
    {"version: 1\nsets: { s: { backend: process, " PRIORITIES SLOTS " } }\n", true, true},
    {"version: 1\nsets: { s: { backend: process, " SHARES SLOTS " } }\n", true, false},
};

static const struct kind *kind;
static const char *const names[][CLASSES] = {{"a", "b", "c"}, {"0", "1", "2"}};

struct entry {
    uint32_t wait_class;
    pid_t process;
    _Atomic uint64_t asked;   /* 0: not yet */
    _Atomic uint64_t queued;  /* 0: it has not waited */
    _Atomic uint64_t granted; /* 0: not known */
    _Atomic uint64_t ended;   /* without a known grant */
};

static struct log {
    _Atomic uint32_t n;
    _Atomic bool ends;
    struct entry entries[LOG_ROOM];
} * entries_log;

static weir *w;
static weir_pool *pool;
static uint64_t operations;

static uint32_t log_length(void)
{
    uint32_t n = atomic_load(&entries_log->n);

    return n < LOG_ROOM ? n : LOG_ROOM;
}

/* Returns a new entry; NULL: there is no room, and the thread asks no more. */
static struct entry *log_request(uint32_t wait_class)
{
    uint32_t i = atomic_fetch_add(&entries_log->n, 1);
    struct entry *entry = entries_log->entries + i;

    if (i >= LOG_ROOM)
        return NULL;
    entry->wait_class = wait_class;
    entry->process = getpid();
    return entry;
}

/* The requests of a process that was killed have ended. */
static void log_kill(pid_t process)
{
    uint64_t now = clock_now();

    for (uint32_t i = 0; i < log_length(); i++) {
        struct entry *entry = &entries_log->entries[i];

        if (entry->process == process && !atomic_load(&entry->granted) &&
            !atomic_load(&entry->ended))
            atomic_store(&entry->ended, now);
    }
}

/* Waits until it is decided, or gives up. */
static bool await_grant(weir_acquisition *acquisition, bool gives_up)
{
    struct pollfd fd = {weir_acquisition_fd(acquisition), POLLIN, 0};

    require(fd.fd >= 0);
    require(poll(&fd, 1, gives_up ? 1 : 60000) >= (gives_up ? 0 : 1));
    return weir_acquisition_result(acquisition) == 0;
}

static void ask_once(struct entry *entry, uint64_t *random)
{
    struct shared_request memory;
    struct weir_request request =
        *shared_ask(&memory, "slot", 1 + random_chance(random, 20), WEIR_FOREVER);
    weir_acquisition *acquisition = NULL;
    struct timespec rest = {0, (long)random_below(random, MS / 20)};
    uint64_t granted = 0;
    int r;

    request.wait_class = names[kind->has_priorities][entry->wait_class];
    atomic_store(&entry->asked, weir_now(w));
    r = weir_submit(pool, &request, &acquisition, NULL);
    require(r == 0 || r == 1);
    if (r == 1)
        atomic_store(&entry->queued, weir_now(w));
    if (r == 0 || await_grant(acquisition, random_chance(random, 10))) {
        require(weir_acquisition_granted_ns(acquisition, &granted) == 0);
        atomic_store(&entry->granted, granted);
        clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, NULL);
    }
    require(weir_release(&acquisition) == 0);
    if (!granted)
        atomic_store(&entry->ended, weir_now(w));
}

static void *work(void *argument)
{
    uint64_t random = *(uint64_t *)argument;

    for (uint64_t i = 0; i < operations && !atomic_load(&entries_log->ends); i++) {
        struct entry *entry = log_request((uint32_t)random_below(&random, CLASSES));
        if (!entry)
            break;
        ask_once(entry, &random);
    }
    return NULL;
}

static void run_threads(uint64_t seed)
{
    pthread_t threads[THREADS];
    uint64_t seeds[THREADS];

    for (uint64_t i = 0; i < THREADS; i++) {
        seeds[i] = seed * THREADS + i;
        require(pthread_create(&threads[i], NULL, work, &seeds[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        require(pthread_join(threads[i], NULL) == 0);
}

static void run_worker(void *argument)
{
    w = shared_open(kind->text);
    pool = shared_pool(w, "s");
    run_threads(*(uint64_t *)argument);
    while (!atomic_load(&entries_log->ends))
        pause_ns(MS);
    weir_pool_close(pool);
    weir_close(w);
}

/* ---- what the log says ---- */

static int compare_granted(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    return x->granted < y->granted ? -1 : x->granted > y->granted;
}

/* Of those granted later, none has waited before this one was asked, in its class. */
static void check_order(const struct entry *entries, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = i + 1; k < n; k++) {
            const struct entry *first = &entries[i], *second = &entries[k];

            if (first->wait_class != second->wait_class || !second->queued ||
                first->granted == second->granted)
                continue;
            require(first->asked <= second->queued + SLACK_NS);
        }
}

/* Returns how many grants of a class may be missing from the log after an instant and before that
 * of an entry. */
static uint32_t missing_between(uint64_t start_ns, const struct entry *entry)
{
    uint64_t decided_ns = 0; /* all requests that ended before this were decided before the start */
    uint32_t missing = 0;

    for (uint32_t i = 0; i < log_length(); i++) {
        const struct entry *earlier = &entries_log->entries[i];

        if (earlier->wait_class == entry->wait_class && earlier->granted &&
            earlier->granted <= start_ns && earlier->asked > decided_ns)
            decided_ns = earlier->asked;
    }
    for (uint32_t i = 0; i < log_length(); i++) {
        const struct entry *ended = &entries_log->entries[i];

        missing += ended->wait_class == entry->wait_class && ended->asked && !ended->granted &&
                   ended->asked < entry->granted && ended->ended + SLACK_NS > decided_ns;
    }
    return missing;
}

/* Grants strictly between the last one of the class, or the beginning of the wait, and the grant.
 */
static void check_bound(const struct entry *granted, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct entry *entry = &granted[i];
        uint64_t start_ns = entry->queued;
        uint32_t passed = 0;

        for (uint32_t k = i; entry->queued && k-- > 0;) {
            if (granted[k].granted <= entry->queued + SLACK_NS)
                break;
            if (granted[k].wait_class == entry->wait_class) {
                start_ns = granted[k].granted;
                break;
            }
            passed += granted[k].granted < entry->granted;
        }
        if (passed > AGEING + CLASSES - 2)
            require(passed <= (AGEING + CLASSES - 2) * (1 + missing_between(start_ns, entry)));
    }
}

static uint32_t check_log(void)
{
    static struct entry granted[LOG_ROOM];
    uint32_t n = 0, waited = 0;

    for (uint32_t i = 0; i < log_length(); i++) {
        const struct entry *entry = &entries_log->entries[i];

        if (entry->granted) {
            waited += entry->queued != 0;
            memcpy(&granted[n++], entry, sizeof(*entry));
        }
    }
    qsort(granted, n, sizeof(*granted), compare_granted);
    check_order(granted, n);
    if (kind->has_priorities)
        check_bound(granted, n);
    printf("%s: %u grants, %u after waiting\n", kind->text + 11, n, waited);
    require(waited > 0);
    return n;
}

/*
 * What was counted of each class, together, is what the set has counted. It is no less than what
 * threads have seen, and no more than what they asked for: a grant that met the end of its wait is
 * undone, and counts. A thread that is killed leaves out one change at most, of the set, of its
 * class, or both.
 */
/* Returns whether the classes together have what the set has. A thread counts one after the other:
 * the timer thread may still be in between. */
static bool counts_agree(uint64_t killed_n, struct weir_class_stats *ret)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    uint64_t granted = 0, waited = 0, wait_ns = 0;

    require(weir_set_stats(weir_pool_set(pool, 0), &stats, NULL, 0) == 1);
    require(weir_set_classes(weir_pool_set(pool, 0), ret, CLASSES) == CLASSES);
    for (unsigned c = 0; c < CLASSES; c++) {
        granted += ret[c].granted;
        waited += ret[c].granted_waited;
        wait_ns += ret[c].wait_ns_sum;
    }
    return granted <= stats.granted + killed_n && stats.granted <= granted + killed_n &&
           waited <= stats.granted_waited + killed_n && stats.granted_waited <= waited + killed_n &&
           (killed_n || wait_ns == stats.wait_ns_sum);
}

static void check_counts(uint64_t killed_n)
{
    struct weir_class_stats classes[CLASSES];
    uint64_t asked[CLASSES] = {0}, seen[CLASSES] = {0};

    for (uint32_t i = 0; i < log_length(); i++) {
        const struct entry *entry = &entries_log->entries[i];

        asked[entry->wait_class] += entry->asked != 0;
        seen[entry->wait_class] += entry->granted != 0;
    }
    for (unsigned tries = 0; !counts_agree(killed_n, classes); tries++) {
        require(tries < 10000);
        pause_ns(MS);
    }
    for (unsigned c = 0; c < CLASSES; c++) {
        require(classes[c].granted + killed_n >= seen[c] && classes[c].granted <= asked[c]);
        require(classes[c].refused == 0 && classes[c].timed_out == 0);
    }
}

/* All that there is can be had, so nothing was lost. */
static void check_rest(void)
{
    struct weir_class_stats classes[CLASSES];
    struct shared_request memory;
    weir_acquisition *all = NULL;

    require(weir_acquire(pool, shared_ask(&memory, "slot", 2, 20 * SECOND), &all, NULL) == 0);
    require(weir_set_classes(weir_pool_set(pool, 0), classes, CLASSES) == CLASSES);
    for (unsigned c = 0; c < CLASSES; c++)
        require(classes[c].waiting == 0 && classes[c].held == (c == CLASSES - 1));
    require(weir_release(&all) == 0);
}

static void begin(const struct kind *of)
{
    kind = of;
    shared_begin();
    entries_log =
        mmap(NULL, sizeof(*entries_log), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    require(entries_log != MAP_FAILED);
}

static void end(void)
{
    require(munmap(entries_log, sizeof(*entries_log)) == 0);
    shared_end();
}

static void threads_are_granted_in_the_order_of_classes(void **state)
{
    (void)state;
    operations = random_operations(400);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        begin(&kinds[i]);
        w = shared_open(kind->text);
        pool = shared_pool(w, "s");
        run_threads(test_seed);
        check_log();
        check_counts(0);
        check_rest();
        weir_pool_close(pool);
        weir_close(w);
        end();
    }
}

static void processes_that_die_leave_the_order(void **state)
{
    uint64_t random = test_seed, kills = number_from("WEIR_ROUNDS", 20);

    (void)state;
    operations = UINT64_MAX;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        pid_t workers[WORKERS];
        uint64_t seeds = 1;

        if (!kinds[i].is_shared)
            continue;
        begin(&kinds[i]);
        for (unsigned k = 0; k < WORKERS; k++, seeds++)
            workers[k] = shared_fork(run_worker, &seeds);
        for (uint64_t kill_n = 0; kill_n < kills; kill_n++, seeds++) {
            struct timespec time = {0, (long)(MS + random_below(&random, 20 * MS))};
            uint64_t victim = random_below(&random, WORKERS);

            clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
            kill(workers[victim], SIGKILL);
            shared_wait(workers[victim], SIGKILL);
            log_kill(workers[victim]);
            workers[victim] = shared_fork(run_worker, &seeds);
        }
        atomic_store(&entries_log->ends, true);
        for (unsigned k = 0; k < WORKERS; k++)
            shared_wait(workers[k], 0);
        check_log();
        w = shared_open(kind->text);
        pool = shared_pool(w, "s");
        check_counts(kills * THREADS);
        check_rest();
        weir_pool_close(pool);
        weir_close(w);
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_are_granted_in_the_order_of_classes),
        cmocka_unit_test(processes_that_die_leave_the_order),
    };

    seed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
