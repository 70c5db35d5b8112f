/* SPDX-License-Identifier: MIT */
/*
 * A shared set gets another definition again and again, while four processes and their threads use
 * it without a pause: more units and fewer of a resource, another capacity of a rate, another
 * algorithm of one, a limit that comes and goes, and invalid ones in between. A log outside of the
 * set says what is held and what was granted.
 *
 *   - What is held never exceeds the capacity, from when no more than that is held.
 *   - No grant is lost and none is made twice: in the end nothing is held, as much of the rate is
 *     used as was granted, and exactly the capacity can be held.
 *   - Waiters are woken: no blocked request is left behind.
 *
 * Besides, each process changes what it has for itself of the set, and another instance of it drops
 * the set, with something held or not, and takes it back.
 *
 * The second test kills the processes that use the set and those that change it, wherever they are.
 * Both are made again with a set that has subjects, where each has all of that for itself; and then
 * with one where a rate goes on alone at times, so that states are words, and with others at times.
 *
 * WEIR_ROUNDS is the number of changes.
 */
#include "lib/clock.h"
#include "lib/require.h"
#include "lib/tmpdir.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/segment.h>
#include <weir/weir.h>

enum { WORKERS = 4, THREADS = 2, SLOTS_MAX = 6, CALLS_MAX = 20000000, SUBJECTS = 3, LIMITS = 5 };

/* What outlives the processes. */
struct ledger {
    _Atomic int held[SUBJECTS];
    _Atomic uint64_t granted[SUBJECTS];
    _Atomic uint64_t bound; /* epoch << 8 | what may be held */
    _Atomic bool is_over;
};

static struct ledger *ledger;
static char directory[TMPDIR_SIZE];
static unsigned subjects_n; /* 0: the set has none */
static bool has_words;      /* of subjects, by some definitions */

/* A limit that is there at times, before others. */
static const char *guest_text(unsigned calls)
{
    static const char *const guests[] = {
        "", " { type: resource, key: guest, capacity: 100 },",
        " { type: call, key: guest, algorithm: gcra, capacity: 1000000, window: 1s },",
        (" { type: resource, key: other, capacity: 100 },"
         " { type: resource, key: guest, capacity: 90 },")};

    return guests[calls % 4];
}

/* By two of four definitions there are slots, and by one `calls` is alone. Of that nothing comes
 * back in the time of a test. */
static const char *words_text(unsigned slots, unsigned calls, char ret[1024])
{
    static const char *const others[] = {
        ", { type: call, key: pace, algorithm: gcra, capacity: 1000000, window: 1s }", "",
        ", { type: call, key: guest, algorithm: token_bucket, capacity: 1000000, window: 1s }", ""};
    char first[128] = "";

    if (calls % 4 % 3 == 0)
        snprintf(first, sizeof(first), "{ type: resource, key: slots, capacity: %u },", slots);
    snprintf(ret, 1024,
             "version: 1\nsets: { jobs: { backend: process, subjects: { max: 16, evict: none },"
             " limits: [ %s { type: call, key: calls, algorithm: gcra, capacity: %d,"
             " window: 10000d, refund: false }%s ] } }\n",
             first, CALLS_MAX, others[calls % 4]);
    return ret;
}

static const char *definition_text(unsigned slots, unsigned calls, char ret[1024])
{
    static const char *const algorithms[] = {"gcra", "token_bucket", "fixed_window",
                                             "leaky_bucket"};

    if (has_words)
        return words_text(slots, calls, ret);
    snprintf(ret, 1024,
             "version: 1\nsets: { jobs: { backend: process, %slimits: ["
             " { type: resource, key: slots, capacity: %u },"
             " { type: call, key: calls, algorithm: fixed_window, capacity: %u, window: 365d,"
             " refund: false },%s"
             " { type: call, key: pace, algorithm: %s, capacity: %u, window: 1s } ] } }\n",
             subjects_n ? "subjects: { max: 16, evict: none }, " : "", slots, calls,
             guest_text(calls), algorithms[calls / 4 % 4], calls % 2 ? 999983 : 1000000);
    return ret;
}

static struct weir_options options_for(const char *text)
{
    return (struct weir_options){
        .size = sizeof(struct weir_options), .text = text, .process_dir = directory};
}

/* ---- users ---- */

static int copy_definition(void *userdata, const struct weir_segment *segment)
{
    require(!segment->refusal && segment->definition);
    snprintf(userdata, 2048, "%s", segment->definition);
    return 1;
}

/* Opens the set by the definition that it has, which may change meanwhile. */
static weir *open_newest(weir_pool **ret)
{
    char text[2048] = "";
    struct weir_options options = options_for(NULL);
    weir *w = NULL;
    int r;

    do {
        struct weir_error error = {0};

        require(weir_segments(&options, copy_definition, text, NULL) == 1);
        options.text = text;
        r = weir_open(&w, &options, &error);
        if (r < 0 && r != -EEXIST)
            printf("%s\n", error.message);
        require(r == 0 || r == -EEXIST);
        options.text = NULL;
    } while (r < 0);
    require(weir_pool_open(ret, w, "jobs", WEIR_WORKER_AUTO, NULL) == 0);
    return w;
}

/* A request of a subject, if there are any. */
static struct weir_request ask(unsigned subject)
{
    static const char *const names[SUBJECTS] = {"one", "two", "three"};

    return (struct weir_request){.size = sizeof(struct weir_request),
                                 .timeout_ns = WEIR_FOREVER,
                                 .subject = names[subject],
                                 .subject_size = subjects_n ? strlen(names[subject]) : 0};
}

static void use_once(weir_pool *pool, uint64_t *random)
{
    unsigned subject = subjects_n ? (unsigned)(random_next(random) % subjects_n) : 0;
    const struct weir_request request = ask(subject);
    uint64_t before = atomic_load(&ledger->bound), choice = random_next(random) % 4;
    weir_acquisition *acquisition = NULL;
    int r = choice ? weir_acquire(pool, &request, &acquisition, NULL)
                   : weir_try_acquire(pool, &request, &acquisition, NULL);
    int held;

    if (!choice && r == -EAGAIN)
        return;
    if (choice && r == -ERANGE) /* it waited as `guest`, or `pace` of subjects, began anew */
        return;
    if (r != 0)
        printf("a request ended with %d: %s\n", r, strerror(-r));
    require(r == 0);
    atomic_fetch_add(&ledger->granted[subject], 1);
    held = atomic_fetch_add(&ledger->held[subject], 1) + 1;
    require(held <= SLOTS_MAX || has_words);
    if (atomic_load(&ledger->bound) == before && !has_words)
        require(held <= (int)(before & 0xff));
    if (choice == 2)
        usleep(50);
    atomic_fetch_sub(&ledger->held[subject], 1);
    require(weir_release(&acquisition) == 0);
}

static void *use(void *userdata)
{
    uint64_t random = test_seed ^ (uint64_t)(uintptr_t)&random ^ (uint64_t)getpid() << 32;

    while (!atomic_load(&ledger->is_over))
        use_once(userdata, &random);
    return NULL;
}

/* The definition that the set has, with a `timeout` of this process. */
static const char *own_text(unsigned timeout_h, char ret[4096])
{
    static const char at[] = "backend: process";
    const struct weir_options options = options_for(NULL);
    char text[2048] = "", *rest;

    require(weir_segments(&options, copy_definition, text, NULL) == 1);
    rest = strstr(text, at);
    require(rest);
    snprintf(ret, 4096, "%.*stimeout: %uh, %s", (int)(rest - text), text, timeout_h, rest);
    return ret;
}

/* Returns whether it was done: the definition may have changed since it was read. */
static bool reload_with(weir *w, const char *text)
{
    const struct weir_options options = options_for(text);
    struct weir_error error = {0};
    int r = weir_reload(w, &options, &error);

    if (r < 0 && r != -EOPNOTSUPP && r != -EEXIST)
        printf("%s\n", error.message);
    require(r == 0 || r == -EOPNOTSUPP || r == -EEXIST);
    return r == 0;
}

struct worker {
    weir *w;
    weir_pool *pool;
};

/* Changes what the process has for itself, again and again. */
static void *change_own_settings(void *userdata)
{
    uint64_t random = test_seed ^ (uint64_t)(uintptr_t)&random;
    struct weir_set_info info = {.size = sizeof(info)};
    const struct worker *worker = userdata;
    char text[4096];

    while (!atomic_load(&ledger->is_over)) {
        unsigned timeout_h = 1 + (unsigned)(random_next(&random) % 100);

        if (reload_with(worker->w, own_text(timeout_h, text))) {
            require(weir_set_info(weir_pool_set(worker->pool, 0), &info) == 0);
            require(info.timeout_ns == timeout_h * 3600 * SECOND);
        }
        usleep(2000);
    }
    return NULL;
}

/* Drops the set, holding something of it or not, and takes it back. */
static void *come_and_go(void *userdata)
{
    static const char none[] = "version: 1\nsets: {}\n";
    uint64_t random = test_seed ^ (uint64_t)(uintptr_t)&random;
    struct worker own;
    char text[4096];

    (void)userdata;
    own.w = open_newest(&own.pool);
    while (!atomic_load(&ledger->is_over)) {
        unsigned subject = subjects_n ? (unsigned)(random_next(&random) % subjects_n) : 0;
        const struct weir_request request = ask(subject);
        weir_acquisition *held = NULL, *none_held = NULL;
        int r = weir_try_acquire(own.pool, &request, &held, NULL);

        if (r < 0 && r != -EAGAIN)
            printf("a try ended with %d: %s\n", r, strerror(-r));
        require(r == 0 || r == -EAGAIN);
        if (r == 0) {
            atomic_fetch_add(&ledger->granted[subject], 1);
            require(atomic_fetch_add(&ledger->held[subject], 1) < SLOTS_MAX || has_words);
        }
        require(reload_with(own.w, none));
        require(weir_try_acquire(own.pool, &request, &none_held, NULL) == -ESTALE);
        if (r == 0) {
            atomic_fetch_sub(&ledger->held[subject], 1);
            require(weir_release(&held) == 0);
        }
        weir_pool_close(own.pool);
        do
            own_text(1 + (unsigned)(random_next(&random) % 100), text);
        while (!reload_with(own.w, text));
        require(weir_pool_open(&own.pool, own.w, "jobs", WEIR_WORKER_AUTO, NULL) == 0);
        usleep(20000); /* each turn takes a place among the participants until the end */
    }
    weir_pool_close(own.pool);
    weir_close(own.w);
    return NULL;
}

static _Noreturn void run_worker(void)
{
    pthread_t threads[THREADS + 2];
    struct worker worker;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    worker.w = open_newest(&worker.pool);
    for (int i = 0; i < THREADS; i++)
        require(pthread_create(&threads[i], NULL, use, worker.pool) == 0);
    require(pthread_create(&threads[THREADS], NULL, change_own_settings, &worker) == 0);
    require(pthread_create(&threads[THREADS + 1], NULL, come_and_go, NULL) == 0);
    for (int i = 0; i < THREADS + 2; i++)
        pthread_join(threads[i], NULL);
    weir_pool_close(worker.pool);
    weir_close(worker.w);
    _exit(0);
}

static pid_t start_worker(void)
{
    pid_t pid = fork();

    require(pid >= 0);
    if (pid == 0)
        run_worker();
    return pid;
}

/* ---- changes ---- */

static int redefine(unsigned slots, unsigned calls)
{
    char text[1024];
    struct weir_options options = options_for(definition_text(slots, calls, text));
    struct weir_error error = {0};
    int r;

    do /* what is held of limits that are gone takes their places */
        r = weir_segment_redefine(&options, "jobs", 0, NULL, NULL, &error);
    while (r == -EBUSY);
    if (r < 0 && !strstr(error.message, "change it twice"))
        printf("%s\n", error.message);
    return r;
}

/* A definition that is wrong, or cannot be had while the set is in use, changes nothing. */
static void refuse_one(uint64_t choice)
{
    static const char *const refused[] = {
        "version: 1\nsets: { jobs: { backend: process, limits: [ { type: resource } ] } }\n",
        "version: 1\nsets: { jobs: { backend: process, limits: [] } }\n",
        "version: 1\nsets: { jobs: { backend: process, lifetime: users, limits: ["
        " { type: resource, key: slots, capacity: 3 },"
        " { type: call, key: calls, algorithm: gcra, capacity: 5, window: 1s } ] } }\n",
        "nonsense",
    };
    const struct weir_options options = options_for(refused[choice % 4]);
    struct weir_error error = {0};

    require(weir_segment_redefine(&options, "jobs", 0, NULL, NULL, &error) < 0);
    require(error.message[0] != '\0');
}

static weir *begin(weir_pool **ret)
{
    char text[1024];
    struct weir_options options = options_for(definition_text(2, CALLS_MAX, text));
    struct weir_error error = {0};
    weir *w = NULL;

    *ledger = (struct ledger){.bound = SLOTS_MAX};
    require(tmpdir_make(directory, NULL));
    if (weir_open(&w, &options, &error) < 0)
        printf("%s\n", error.message);
    require(w);
    require(weir_pool_open(ret, w, "jobs", 0, NULL) == 0);
    return w;
}

static uint64_t all_granted(void)
{
    uint64_t all = 0;

    for (unsigned i = 0; i < SUBJECTS; i++)
        all += atomic_load(&ledger->granted[i]);
    return all;
}

/* Checks what is left of a subject: all of it, and nothing twice. */
static void check_rest(weir_pool *pool, unsigned subject, unsigned slots, unsigned calls,
                       unsigned kills)
{
    const struct weir_request request = ask(subject);
    uint64_t used, granted = atomic_load(&ledger->granted[subject]);
    weir_acquisition *acquisitions[SLOTS_MAX + 1] = {NULL};
    struct weir_remaining remaining[LIMITS];

    require(weir_set_remaining(weir_pool_set(pool, 0), &request, remaining, LIMITS) >= 3);
    require(remaining[0].available == slots);
    used = calls - remaining[1].available;
    if (kills == 0)
        require(atomic_load(&ledger->held[subject]) == 0);
    require(used + (has_words ? 10 : 0) >= granted && used <= granted + kills * (THREADS + 1));
    for (unsigned i = 0; i < slots; i++)
        require(weir_try_acquire(pool, &request, &acquisitions[i], NULL) == 0);
    require(weir_try_acquire(pool, &request, &acquisitions[slots], NULL) == -EAGAIN);
    for (unsigned i = 0; i < slots; i++)
        require(weir_release(&acquisitions[i]) == 0);
}

/* Checks what is left once no process uses the set. */
static void end(weir *w, weir_pool *pool, unsigned slots, unsigned calls, unsigned kills)
{
    struct weir_limit_stats limits[LIMITS];
    struct weir_set_stats stats = {.size = sizeof(stats)};
    int n;

    n = weir_set_stats(weir_pool_set(pool, 0), &stats, limits, LIMITS);
    require(n >= 3);
    require(limits[0].capacity == slots && limits[1].capacity == calls);
    for (int i = 2; i < n; i++)
        require(limits[i].held == 0);
    require(stats.waiting == 0);
    for (unsigned i = 0; i < (subjects_n ? subjects_n : 1); i++)
        check_rest(pool, i, slots, calls, kills);
    weir_pool_close(pool);
    weir_close(w);
    require(tmpdir_remove(directory));
}

/* Waits until no more is held than may be, and lets the users check that from then on. */
static void set_bound(weir_pool *pool, uint64_t epoch, unsigned slots)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[LIMITS];

    do
        require(weir_set_stats(weir_pool_set(pool, 0), &stats, limits, LIMITS) >= 3);
    while (limits[0].held > slots);
    require(limits[0].capacity == slots);
    atomic_store(&ledger->bound, epoch << 8 | slots);
}

static void test_storm(uint64_t rounds)
{
    unsigned slots = 2, calls = CALLS_MAX;
    uint64_t random = test_seed;
    pid_t workers[WORKERS];
    weir_pool *pool;
    weir *w = begin(&pool);
    int status;

    for (int i = 0; i < WORKERS; i++)
        workers[i] = start_worker();
    for (uint64_t round = 1; round <= rounds; round++) {
        slots = 1 + (unsigned)(random_next(&random) % SLOTS_MAX);
        calls = CALLS_MAX - (unsigned)(round % 1000);
        atomic_store(&ledger->bound, round << 9 << 8 | SLOTS_MAX);
        require(redefine(slots, calls) == 1);
        if (!has_words)
            set_bound(pool, (round << 9) + 1, slots);
        if (round % 8 == 0)
            refuse_one(random_next(&random));
    }
    calls = has_words ? CALLS_MAX : calls;
    require(redefine(slots, calls) >= 0);
    require(redefine(slots, calls) == 0);
    atomic_store(&ledger->is_over, true);
    for (int i = 0; i < WORKERS; i++)
        require(waitpid(workers[i], &status, 0) == workers[i] && status == 0);
    end(w, pool, slots, calls, 0);
    printf("%" PRIu64 " changes, %" PRIu64 " grants\n", rounds, all_granted());
}

/* Changes the definition in a process of its own, which is killed at some time. */
static void redefine_and_kill(unsigned slots, uint64_t delay_us)
{
    pid_t pid = fork();

    require(pid >= 0);
    if (pid == 0)
        _exit(redefine(slots, CALLS_MAX - slots) < 0);
    usleep((useconds_t)delay_us);
    kill(pid, SIGKILL);
    require(waitpid(pid, NULL, 0) == pid);
}

static void test_kills(uint64_t rounds)
{
    uint64_t random = test_seed;
    pid_t workers[WORKERS];
    unsigned kills = 0;
    weir_pool *pool;
    weir *w = begin(&pool);
    int status;

    for (int i = 0; i < WORKERS; i++)
        workers[i] = start_worker();
    for (uint64_t round = 1; round <= rounds; round++) {
        int i = (int)(random_next(&random) % WORKERS);

        redefine_and_kill(1 + (unsigned)(random_next(&random) % SLOTS_MAX),
                          random_next(&random) % 6000);
        if (round % 2)
            continue;
        kill(workers[i], SIGKILL);
        require(waitpid(workers[i], NULL, 0) == workers[i]);
        /* What it held stays counted outside of the set. */
        for (unsigned subject = 0; subject < SUBJECTS; subject++)
            atomic_fetch_sub(&ledger->held[subject], SLOTS_MAX);
        kills++;
        workers[i] = start_worker();
    }
    require(redefine(3, CALLS_MAX) >= 0);
    atomic_store(&ledger->is_over, true);
    for (int i = 0; i < WORKERS; i++)
        require(waitpid(workers[i], &status, 0) == workers[i] && status == 0);
    end(w, pool, 3, CALLS_MAX, kills);
    printf("%" PRIu64 " changes, %u users killed, %" PRIu64 " grants\n", rounds, kills,
           all_granted());
}

int main(void)
{
    uint64_t rounds = effort_from("WEIR_ROUNDS", 1000);

    setvbuf(stdout, NULL, _IOLBF, 0);
    seed_begin();
    ledger = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    require(ledger != MAP_FAILED);
    test_storm(rounds);
    test_kills(rounds / 4 + 1);
    subjects_n = SUBJECTS;
    for (int i = 0; i < 2; i++) {
        has_words = i == 1;
        test_storm(rounds / 2 + 1);
        test_kills(rounds / 4 + 1);
    }
    return 0;
}
