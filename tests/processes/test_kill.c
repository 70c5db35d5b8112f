/* SPDX-License-Identifier: MIT */
/*
 * The kill test. Eight processes ask a set of five limits in every way, as fast as they can, while
 * a parent kills random ones of them at random moments, several at once at times, and starts
 * others. Whatever happens, never is more granted than the limits allow, no request overtakes, and
 * none waits for ever. Once they rest, nothing is held, no request waits, and all that can be had
 * is there for a newcomer. Then the test is repeated with processes that are only stopped for a
 * while; and in two storms, in which some are killed, some are stopped, and half of them have
 * hardly any descriptors. Refunds are strict in the second. No doorbell is left behind.
 *
 *     test_kill [kills]            or WEIR_ROUNDS; 300 if neither; seed from WEIR_SEED
 *     test_kill storm SECONDS      only the storms
 */
#include "api/instance.h"
#include "grants_log.h"
#include "lib/child.h"
#include "shared.h"
#include "shm/participant.h"
#include "shm/segment.h"
#include "worker.h"
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

enum { STUCK_S = 60, KILLS_PER_REST = 50, STOP_MS = 100 };

static uint64_t chance;
static uint64_t killed, exited, stopped_n;

static uint64_t below(uint64_t n)
{
    return random_below(&chance, n);
}

/* ---- starting and ending workers ---- */

static int pid_of(int worker)
{
    return atomic_load(&grants_log->accounts[worker].pid);
}

static void start(int worker)
{
    uint64_t random = random_next(&chance);
    pid_t pid = child_fork();

    require(pid >= 0);
    if (pid == 0) {
        worker_run(worker, random);
        _exit(0);
    }
    atomic_store(&grants_log->accounts[worker].pid, pid);
}

static void require_good_end(int worker, int status)
{
    bool good = (WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
                (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

    if (!good)
        fprintf(stderr, "worker %d ended with status %x while doing %s\n", worker, status,
                doing_names[atomic_load(&grants_log->accounts[worker].doing)]);
    require(good);
}

/* Those that ended by themselves; they hold nothing by then. */
static void replace_ended(void)
{
    for (int i = 0; i < ACCOUNTS; i++) {
        int status;
        pid_t pid = waitpid(pid_of(i), &status, WNOHANG);

        require(pid >= 0);
        if (pid == 0)
            continue;
        require_good_end(i, status);
        exited++;
        account_clear(i);
        start(i);
    }
}

static void stop(int worker)
{
    siginfo_t info;

    require(kill(pid_of(worker), SIGSTOP) == 0);
    require(waitid(P_PID, (id_t)pid_of(worker), &info, WSTOPPED | WEXITED | WNOWAIT) == 0);
}

static void reap_worker(int worker)
{
    int status;

    require(waitpid(pid_of(worker), &status, 0) == pid_of(worker));
    require_good_end(worker, status);
    account_clear(worker);
    killed++;
}

/* Kills so many at once, or nearly: the second one may be at cleaning up after the first. */
static void kill_some(int n)
{
    int first = (int)below(ACCOUNTS);

    for (int i = 0; i < n; i++) {
        int worker = (first + i) % ACCOUNTS;

        account_doom(worker);
        if (below(8) == 0)
            stop(worker);
        require(kill(pid_of(worker), SIGKILL) == 0);
        if (below(2))
            pause_ns(below(300000));
    }
    for (int i = 0; i < n; i++) {
        reap_worker((first + i) % ACCOUNTS);
        start((first + i) % ACCOUNTS);
    }
}

/* ---- what is left when they rest ---- */

static void say_holder(void)
{
    for (int i = 0; i < ACCOUNTS; i++) {
        struct account *account = &grants_log->accounts[i];

        fprintf(stderr, "worker %d, process %d: %s, resting %u, %" PRIu64 " steps\n", i, pid_of(i),
                doing_names[atomic_load(&account->doing)], atomic_load(&account->resting),
                atomic_load(&account->progress));
    }
}

static void say_set(weir_pool *pool)
{
    weir_set *set = weir_pool_set(pool, 0);
    struct weir_holder holders[32];
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[HISTORY_LIMITS];
    int n;

    weir_set_stats(set, &stats, limits, HISTORY_LIMITS);
    fprintf(stderr, "held %" PRIu64 ", waiting %" PRIu64 ", db %" PRIu64 ", files %" PRIu64 "\n",
            stats.held, stats.waiting, limits[DB].held, limits[FILES].held);
    n = weir_set_holders(set, holders, 32);
    for (int i = 0; i < n && i < 32; i++)
        fprintf(stderr, "  %s: process %u since %" PRIu64 " us, position %u\n",
                holders[i].waiting ? "waits" : "holds", holders[i].process,
                (clock_now() - holders[i].since_ns) / 1000, holders[i].position);
}

static void give_up(const char *why)
{
    weir *w;

    fprintf(stderr, "%s\n", why);
    say_holder();
    w = shared_open(account_set());
    say_set(shared_pool(w, "five"));
    require_failed("everybody goes on", __FILE__, __LINE__);
}

static bool all_rest(void)
{
    for (int i = 0; i < ACCOUNTS; i++)
        if (!atomic_load(&grants_log->accounts[i].resting))
            return false;
    return true;
}

/* No worker is killed meanwhile, as coming and going would hide that one is forgotten. */
static void let_rest(void)
{
    uint64_t until = clock_now() + STUCK_S * 1000 * MS;

    atomic_store(&grants_log->rest, 1);
    while (!all_rest()) {
        replace_ended();
        accounts_read();
        pause_ns(200000);
        if (clock_now() > until)
            give_up("a request waits for ever");
    }
}

static void go_on(void)
{
    atomic_store(&grants_log->rest, 0);
}

/* The whole capacity of every resource at once. Another process may be in the middle of a cleanup:
 * then this one sees what a dead one holds, and finds no dead one any more. On a busy machine that
 * lasts until the other one runs again. */
static void require_all_free(weir_pool *pool)
{
    const struct weir_amount amounts[] = {{"tokens", 0},
                                          {"bytes", 0},
                                          {"call_count", 0},
                                          {"db", account_capacities[DB]},
                                          {"files", account_capacities[FILES]}};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = amounts, .amounts_n = HISTORY_LIMITS};
    weir_acquisition *acquisition = NULL;
    uint64_t until = clock_now() + STUCK_S * 1000 * MS;
    int r;

    while ((r = weir_try_acquire(pool, &request, &acquisition, NULL)) == -EAGAIN &&
           clock_now() < until)
        pause_ns(MS);
    if (r < 0) {
        say_set(pool);
        fprintf(stderr, "the set refuses: %s\n", strerror(-r));
    }
    require(r == 0);
    require(weir_release(&acquisition) == 0);
}

static void require_unused(weir_pool *pool)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[HISTORY_LIMITS];

    require(weir_set_stats(weir_pool_set(pool, 0), &stats, limits, HISTORY_LIMITS) ==
            HISTORY_LIMITS);
    if (stats.held || stats.waiting)
        say_set(pool);
    require(stats.held == 0 && stats.waiting == 0);
    require(limits[DB].held == 0 && limits[FILES].held == 0);
    require(weir_set_holders(weir_pool_set(pool, 0), NULL, 0) == 0);
}

/* High marks stay where so many processes at once need them: newcomers take the slots of processes
 * that have gone. Besides the workers there are this process, and the dead before their cleanup. */
static void require_no_leak(const struct segment *segment)
{
    const uint32_t processes = 3 * ACCOUNTS;

    require(segment_peers_n(segment) <= processes);
    require(segment_threads_n(segment) <= 4 * processes);
    require(segment_runs_n(segment) <= 8 * processes);
}

static uint32_t doorbells(void)
{
    DIR *entries = opendir(shared_directory());
    const struct dirent *entry;
    uint32_t n = 0;

    require(entries);
    while ((entry = readdir(entries)))
        n += strstr(entry->d_name, ".bell") != NULL;
    closedir(entries);
    return n;
}

/* While they rest, or when they are dead. */
static void inspect(void)
{
    weir *w = shared_open(account_set());
    weir_pool *pool = shared_pool(w, "five");

    require_all_free(pool);
    require_unused(pool);
    require_no_leak(weir_pool_set(pool, 0)->participant->segment);
    accounts_check();
    weir_pool_close(pool);
    weir_close(w);
}

/* This process alone is left: nothing names any other one. */
static void inspect_the_end(void)
{
    weir *w = shared_open(account_set());
    weir_pool *pool = shared_pool(w, "five");
    const weir_set *set = weir_pool_set(pool, 0);
    const struct participant *member = set->participant;
    const struct segment *segment = member->segment;
    uint32_t places = 0;

    require_all_free(pool);
    require_unused(pool);
    for (uint32_t i = 0; i < segment_peers_n(segment); i++)
        places += peer_id_pid(atomic_load(&segment_peer(segment, i)->id)) != 0;
    require(places == 1);
    for (uint32_t i = 0; i < segment_threads_n(segment); i++) {
        uint64_t owner = atomic_load(&segment_thread(segment, i)->peer_key);

        require(owner == 0 || owner == member->peer_key);
    }
    for (uint32_t i = 1; i < segment_runs_n(segment); i++) {
        uint64_t owner = atomic_load(segment_run_owner(segment, i));

        require(owner == 0 || owner == member->peer_key);
    }
    for (uint32_t at = 0; (at = region_next_record(set->region, at)) != 0;)
        require(record_state(record_load(&record_at(set->region, at)->word)) == RECORD_FREE);
    weir_pool_close(pool);
    weir_close(w);
    require(doorbells() == 0);
}

/* ---- the tests ---- */

static void start_all(bool strict)
{
    account_begin(strict);
    go_on();
    for (int i = 0; i < ACCOUNTS; i++)
        start(i);
}

static void end_all(void)
{
    for (int i = 0; i < ACCOUNTS; i++) {
        account_doom(i);
        require(kill(pid_of(i), SIGKILL) == 0);
    }
    for (int i = 0; i < ACCOUNTS; i++)
        reap_worker(i);
    inspect_the_end();
    accounts_check();
    printf("%" PRIu64 " grants checked, %" PRIu64 " killed, %" PRIu64 " ended by themselves\n",
           account_grants(), killed, exited);
    account_end();
}

/* Without deaths: what the workers get together, as fast as they can. */
static void disturb_none(uint64_t ms)
{
    uint64_t begun = clock_now(), steps = 0;

    killed = exited = 0;
    start_all(false);
    while (clock_now() - begun < ms * MS) {
        pause_ns(5 * MS);
        replace_ended();
        accounts_read();
    }
    for (int i = 0; i < ACCOUNTS; i++)
        steps += atomic_load(&grants_log->accounts[i].progress);
    printf("%" PRIu64 " steps in %" PRIu64 " ms\n", steps, ms);
    let_rest();
    inspect();
    end_all();
}

static void kill_many(uint64_t kills)
{
    uint64_t rest_at = KILLS_PER_REST;

    killed = exited = 0;
    start_all(false);
    while (killed < kills) {
        pause_ns(below(4) ? below(6 * MS) : below(50000));
        replace_ended();
        kill_some(below(8) ? 1 : 2 + (int)below(3));
        accounts_read();
        if (killed < rest_at)
            continue;
        let_rest();
        inspect();
        go_on();
        rest_at = killed + KILLS_PER_REST;
    }
    end_all();
}

/* Whether the process holds something. */
static bool holds(int pid)
{
    weir *w = shared_open(account_set());
    struct weir_holder holders[64];
    weir_pool *pool = shared_pool(w, "five");
    int n = weir_set_holders(weir_pool_set(pool, 0), holders, 64);
    bool found = false;

    require(n >= 0 && n <= 64);
    for (int i = 0; i < n; i++)
        found |= !holders[i].waiting && holders[i].process == (uint32_t)pid;
    weir_pool_close(pool);
    weir_close(w);
    return found;
}

static bool others_moved(int worker, const uint64_t *before)
{
    for (int i = 0; i < ACCOUNTS; i++)
        if (i != worker && atomic_load(&grants_log->accounts[i].progress) == before[i])
            return false;
    return true;
}

/* Stops one for so long that all others have moved on, unless it holds something. */
static void stop_one(void)
{
    int worker = (int)below(ACCOUNTS);
    uint64_t before[ACCOUNTS], from = clock_now();

    stop(worker);
    for (int i = 0; i < ACCOUNTS; i++)
        before[i] = atomic_load(&grants_log->accounts[i].progress);
    while (clock_now() - from < STOP_MS * MS || !others_moved(worker, before)) {
        pause_ns(MS);
        replace_ended();
        accounts_read();
        if (clock_now() - from < STOP_MS * MS)
            continue;
        if (holds(pid_of(worker)))
            break;
        if (clock_now() - from > STUCK_S * 1000 * MS)
            give_up("a request is held up by a process that was stopped");
    }
    stopped_n += others_moved(worker, before);
    require(kill(pid_of(worker), SIGCONT) == 0);
}

static void stop_many(uint64_t stops)
{
    killed = exited = stopped_n = 0;
    start_all(false);
    for (uint64_t i = 0; i < stops; i++) {
        pause_ns(below(5 * MS));
        replace_ended();
        stop_one();
        accounts_read();
    }
    let_rest();
    inspect();
    printf("%" PRIu64 " stopped, %" PRIu64 " times everybody else went on\n", stops, stopped_n);
    end_all();
}

/* Stops some for a while, and kills some of the stopped. */
static void stop_and_kill(void)
{
    int first = (int)below(ACCOUNTS), n = 1 + (int)below(3);

    for (int i = 0; i < n; i++)
        stop((first + i) % ACCOUNTS);
    pause_ns(below(30 * MS));
    if (below(2))
        kill_some(1 + (int)below(2));
    for (int i = 0; i < n; i++)
        require(kill(pid_of((first + i) % ACCOUNTS), SIGCONT) == 0);
}

/* `strict`: refunds are. */
static void storm(uint64_t ms, bool strict)
{
    uint64_t until = clock_now() + ms * MS, rest_at = KILLS_PER_REST;

    shared_begin();
    killed = exited = 0;
    start_all(strict);
    atomic_store(&grants_log->few_descriptors, 1);
    while (clock_now() < until) {
        pause_ns(below(3 * MS));
        replace_ended();
        if (below(3))
            kill_some(1 + (int)below(3));
        else
            stop_and_kill();
        accounts_read();
        if (killed < rest_at)
            continue;
        let_rest();
        inspect();
        go_on();
        rest_at = killed + KILLS_PER_REST;
    }
    end_all();
    shared_end();
}

int main(int argc, char **argv)
{
    uint64_t kills = argc > 1 ? strtoull(argv[1], NULL, 10) : effort_from("WEIR_ROUNDS", 300);

    seed_begin();
    chance = test_seed;
    printf("seed %" PRIu64 "\n", test_seed);
    fflush(stdout);
    if (argc > 2 && strcmp(argv[1], "storm") == 0) {
        storm(strtoull(argv[2], NULL, 10) * 500, false);
        storm(strtoull(argv[2], NULL, 10) * 500, true);
        return 0;
    }
    shared_begin();
    disturb_none(3 * kills);
    shared_end();
    shared_begin();
    kill_many(kills);
    shared_end();
    shared_begin();
    stop_many(kills / 10);
    shared_end();
    storm(5 * kills, false);
    storm(5 * kills, true);
    return 0;
}
