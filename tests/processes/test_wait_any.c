/* SPDX-License-Identifier: MIT */
/*
 * Processes with requests that wait in three shared sets at once (`wait: any`), and are killed now
 * and then, wherever they are: between the grants of two sets, or while they withdraw. A set grants
 * to one at a time. In the end nothing is held and nothing waits, and of each rate as much was used
 * as there were winners; a process that was killed may have taken one more of each set.
 *
 * WEIR_ROUNDS is the number of kills.
 */
#include "lib/clock.h"
#include "lib/require.h"
#include "lib/tmpdir.h"
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/weir.h>

enum { SETS = 3, WORKERS = 5, CALLS = 100000000, KILLS_MAX = 10000 };

#define SET                                                                                        \
    "{ backend: process, limits: [ { type: resource, key: slots, capacity: 1 },"                   \
    " { type: rate, key: calls, algorithm: fixed_window, capacity: 100M, window: 365d,"            \
    " refund: false } ] }"

static const char text[] = "version: 1\nsets: { a: " SET ", b: " SET ", c: " SET " }\n"
                           "pools: { p: { sets: [a, b, c], wait: any } }\n";

static const char *const names[SETS] = {"a", "b", "c"};

/* What outlives the processes. */
struct ledger {
    _Atomic pid_t owner[SETS];       /* that uses the slot; 0: none */
    _Atomic pid_t doomed[KILLS_MAX]; /* may be dead, and what they held free */
    _Atomic unsigned doomed_n;
    _Atomic unsigned wins[SETS], lost_n, races_n;
    _Atomic bool is_over;
};

static struct ledger *ledger;
static char directory[TMPDIR_SIZE];

struct user {
    weir *w;
    weir_pool *pool;
    uint64_t random;
};

static struct user open_user(uint64_t random)
{
    const struct weir_options options = {
        .size = sizeof(options), .text = text, .process_dir = directory};
    struct user user = {.random = random};
    struct weir_error error = {0};

    if (weir_open(&user.w, &options, &error) < 0)
        printf("%s\n", error.message);
    require(user.w && weir_pool_open(&user.pool, user.w, "p", WEIR_WORKER_AUTO, NULL) == 0);
    return user;
}

static void close_user(struct user *user)
{
    weir_pool_close(user->pool);
    weir_close(user->w);
}

static bool is_doomed(pid_t pid)
{
    for (unsigned i = 0; i < atomic_load(&ledger->doomed_n); i++)
        if (atomic_load(&ledger->doomed[i]) == pid)
            return true;
    return false;
}

/* Uses the slot of the set, which no process has that lives. */
static void use(struct user *user, weir_acquisition *won)
{
    struct timespec time = {.tv_nsec = (long)random_below(&user->random, 300 * US)};
    int set = 0;
    pid_t before;

    while (strcmp(names[set], weir_acquisition_set(won)) != 0)
        require(++set < SETS);
    before = atomic_exchange(&ledger->owner[set], getpid());
    require(before == 0 || is_doomed(before));
    atomic_fetch_add(&ledger->wins[set], 1);
    nanosleep(&time, NULL);
    require(weir_update(won, "calls", 1) == 0);
    require(atomic_exchange(&ledger->owner[set], 0) == getpid());
    require(weir_release(&won) == 0);
}

static int await(weir_acquisition *acquisition)
{
    struct pollfd decided = {.fd = weir_acquisition_fd(acquisition), .events = POLLIN};

    require(decided.fd >= 0 && poll(&decided, 1, 60000) == 1);
    return weir_acquisition_result(acquisition);
}

static void run_race(struct user *user)
{
    const struct weir_amount one = {"calls", 1};
    struct weir_request request = {.size = sizeof(request),
                                   .amounts = &one,
                                   .amounts_n = 1,
                                   .timeout_ns = random_below(&user->random, 4) == 0
                                                     ? 1 + random_below(&user->random, MS)
                                                     : 0};
    weir_acquisition *acquisition = NULL;
    int r;

    if (random_below(&user->random, 2)) {
        r = weir_acquire(user->pool, &request, &acquisition, NULL);
    } else {
        r = weir_submit(user->pool, &request, &acquisition, NULL);
        if (r == 1)
            r = random_below(&user->random, 4) ? await(acquisition) : -ECANCELED;
    }
    require(r == 0 || r == -ETIMEDOUT || r == -ECANCELED);
    if (r == 0)
        use(user, acquisition);
    else
        require(weir_release(&acquisition) == 0);
    atomic_fetch_add(&ledger->lost_n, r != 0);
    atomic_fetch_add(&ledger->races_n, 1);
}

static pid_t start(uint64_t random)
{
    pid_t parent = getpid(), pid = fork();
    struct user user;

    require(pid >= 0);
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    user = open_user(random);
    while (!atomic_load(&ledger->is_over))
        run_race(&user);
    close_user(&user);
    _exit(0);
}

/* Lets the workers make races, then kills one. */
static pid_t replace(pid_t pid, uint64_t *random)
{
    unsigned before = atomic_load(&ledger->races_n);
    uint64_t end = clock_now() + 60 * SECOND;
    int status;

    while (atomic_load(&ledger->races_n) < before + 10)
        require(clock_now() < end && poll(NULL, 0, 1) == 0);
    atomic_store(&ledger->doomed[ledger->doomed_n], pid);
    atomic_fetch_add(&ledger->doomed_n, 1);
    require(kill(pid, SIGKILL) == 0);
    require(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    return start(random_next(random));
}

/* The last one cleans up after those that were killed. */
static void check(const struct user *user, unsigned kills)
{
    for (size_t i = 0; i < SETS; i++) {
        struct weir_set_stats stats = {.size = sizeof(stats)};
        struct weir_limit_stats limits[2];
        uint64_t end = clock_now() + 60 * SECOND, used;

        do
            require(weir_set_stats(weir_pool_set(user->pool, i), &stats, limits, 2) == 2);
        while ((limits[0].held || stats.waiting) && clock_now() < end);
        require(!limits[0].held && !stats.waiting && limits[0].available == 1);
        used = CALLS - limits[1].available;
        require(used >= ledger->wins[i] && used <= ledger->wins[i] + kills);
    }
}

int main(void)
{
    uint64_t wanted = effort_from("WEIR_ROUNDS", 12);
    unsigned kills = (unsigned)(wanted < KILLS_MAX ? wanted : KILLS_MAX);
    pid_t workers[WORKERS];
    struct user user;
    uint64_t random;
    int status;

    seed_begin();
    random = random_case(test_seed, 0);
    require(tmpdir_make(directory, NULL));
    ledger = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    require(ledger != MAP_FAILED);
    for (int i = 0; i < WORKERS; i++)
        workers[i] = start(random_next(&random));
    for (unsigned i = 0; i < kills; i++) {
        int worker = (int)random_below(&random, WORKERS);

        workers[worker] = replace(workers[worker], &random);
    }
    atomic_store(&ledger->is_over, true);
    for (int i = 0; i < WORKERS; i++)
        require(waitpid(workers[i], &status, 0) == workers[i] && status == 0);
    user = open_user(1);
    check(&user, kills);
    require(ledger->wins[0] + ledger->wins[1] + ledger->wins[2] + ledger->lost_n >=
            ledger->races_n);
    close_user(&user);
    printf("%u races, %u without a grant; granted by a %u, b %u, c %u; %u processes killed\n",
           ledger->races_n, ledger->lost_n, ledger->wins[0], ledger->wins[1], ledger->wins[2],
           kills);
    require(tmpdir_remove(directory));
    return 0;
}
