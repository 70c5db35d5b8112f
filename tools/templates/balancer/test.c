/*
 * Compares __NAME__ with a plain reference, over random histories: with sets of a program of its
 * own, with sets that processes share, and with per-subject sets. The clock is moved by hand.
 *
 *     test DIRECTORY [SEED]
 *
 * DIRECTORY has the plugin, as an absolute path. The seed is printed, and plays a history again.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <weir/weir.h>

enum { ROUNDS = 20, STEPS = 300, SETS = 4, SUBJECTS = 3 };

static uint64_t now_ns, seed, random_state;
static char process_dir[] = "/dev/shm/plugin-test-XXXXXX";

static uint64_t read_clock(void *userdata)
{
    (void)userdata;
    return now_ns;
}

/* Returns a number below n. Steele, Lea and Flood, "Fast splittable pseudorandom number
 * generators". */
static uint64_t below(uint64_t n)
{
    uint64_t x = random_state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (x ^ x >> 31) % n;
}

/* Removes the directory of the shared sets, also after a failure, which leaves the sets behind. */
static void remove_process_dir(void)
{
    DIR *directory = opendir(process_dir);
    const struct dirent *entry;

    while (directory && (entry = readdir(directory)))
        unlinkat(dirfd(directory), entry->d_name, 0);
    if (directory)
        closedir(directory);
    rmdir(process_dir);
}

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "test: %s: %s (seed %" PRIu64 ")\n", what, why, seed);
    exit(1);
}

/* ---- the reference ---- */

/* Each set grants one unit in each `interval`. */
struct reference {
    uint64_t cost, interval;
    uint64_t ready[SUBJECTS]; /* from when on it grants, to each subject */
};

/* Returns how long a subject would wait for a set. */
static uint64_t reference_wait(const struct reference *set, unsigned subject)
{
    return set->ready[subject] > now_ns ? set->ready[subject] - now_ns : 0;
}

/* Returns the least cost of a set that grants now, or UINT64_MAX if none does. */
static uint64_t reference_cheapest(const struct reference *sets, unsigned subject)
{
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < SETS; i++)
        if (reference_wait(&sets[i], subject) == 0 && sets[i].cost < least)
            least = sets[i].cost;
    return least;
}

/* Returns the least wait of all sets. */
static uint64_t reference_soonest(const struct reference *sets, unsigned subject)
{
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < SETS; i++)
        if (reference_wait(&sets[i], subject) < least)
            least = reference_wait(&sets[i], subject);
    return least;
}

/* ---- the plugin, in use ---- */

/* One round: a pool, the instances that use it, and what is expected of each set. */
struct round {
    const char *what;
    weir *instances[2];
    weir_pool *pools[2];
    unsigned instances_n, subjects_n;
    struct reference sets[SETS];
    unsigned picked[SETS];
};

static void open_round(struct round *round, const char *directory, const char *set)
{
    const char *const directories[] = {directory, NULL};
    const struct weir_clock clock = {.size = sizeof(clock), .now_ns = read_clock};
    char text[4096];
    const struct weir_options options = {.size = sizeof(options),
                                         .text = text,
                                         .plugin_dirs = directories,
                                         .process_dir = process_dir,
                                         .clock = &clock,
                                         .seed = 1 + below(UINT64_MAX - 1)};
    struct weir_error error = {0};
    size_t used = (size_t)snprintf(text, sizeof(text), "version: 1\nsets:\n");

    for (unsigned i = 0; i < SETS; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used,
                                 "  s%u: { %s, limits: [ { type: rate, key: units, algorithm: gcra,"
                                 " capacity: 1, window: %" PRIu64 "ns } ] }\n",
                                 i, set, round->sets[i].interval);
    used += (size_t)snprintf(text + used, sizeof(text) - used,
                             "pools:\n  p: { balancer: __NAME__, sets: [");
    for (unsigned i = 0; i < SETS; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used,
                                 "%s { name: s%u, cost: %" PRIu64 " }", i ? "," : "", i,
                                 round->sets[i].cost);
    snprintf(text + used, sizeof(text) - used, " ] }\n");
    for (unsigned i = 0; i < round->instances_n; i++)
        if (weir_open(&round->instances[i], &options, &error) < 0 ||
            weir_pool_open(&round->pools[i], round->instances[i], "p", 0, &error) < 0)
            fail(round->what, error.message);
}

static void close_round(struct round *round)
{
    for (unsigned i = 0; i < round->instances_n; i++) {
        weir_pool_close(round->pools[i]);
        weir_close(round->instances[i]);
    }
}

/* Compares the set that was picked for a grant, and takes the unit from its reference. */
static void see_grant(struct round *round, weir_acquisition *acquisition, unsigned subject)
{
    unsigned index = (unsigned)(weir_acquisition_set(acquisition)[1] - '0');
    struct reference *set = &round->sets[index];

    if (reference_wait(set, subject) != 0)
        fail(round->what, "a set grants too early");
    if (set->cost != reference_cheapest(round->sets, subject))
        fail(round->what, "a cheaper set grants as well");
    set->ready[subject] = now_ns + set->interval;
    round->picked[index]++;
    if (weir_update(acquisition, "units", 1) != 0 || weir_release(&acquisition) != 0)
        fail(round->what, "the grant cannot be released");
}

/* Asks for a unit and compares. */
static void step(struct round *round)
{
    const struct weir_amount units = {"units", 1};
    unsigned subject = (unsigned)below(round->subjects_n);
    weir_pool *pool = round->pools[below(round->instances_n)];
    const struct weir_request request = {.size = sizeof(request),
                                         .amounts = &units,
                                         .amounts_n = 1,
                                         .subject = &subject,
                                         .subject_size = sizeof(subject)};
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    weir_acquisition *acquisition = NULL;
    int r = weir_try_acquire(pool, &request, &acquisition, &refusal);

    if (r == 0)
        see_grant(round, acquisition, subject);
    else if (r != -EAGAIN)
        fail(round->what, "the request is refused otherwise than by the limit");
    else if (reference_cheapest(round->sets, subject) != UINT64_MAX)
        fail(round->what, "a set that grants was not picked");
    else if (refusal.retry_after_ns != reference_soonest(round->sets, subject))
        fail(round->what, "the set that grants first was not picked");
}

/* Of sets that are equal each one is picked. */
static void run_equal(const char *directory)
{
    struct round round = {.what = "equal sets", .instances_n = 1, .subjects_n = 1};

    for (unsigned i = 0; i < SETS; i++)
        round.sets[i] = (struct reference){.cost = 5, .interval = 1};
    open_round(&round, directory, "backend: thread");
    for (unsigned i = 0; i < STEPS; i++, now_ns++)
        step(&round);
    for (unsigned i = 0; i < SETS; i++)
        if (round.picked[i] == 0)
            fail(round.what, "one of them was never picked");
    close_round(&round);
}

static void run_round(const char *what, const char *set, unsigned instances_n, unsigned subjects_n,
                      const char *directory)
{
    struct round round = {.what = what, .instances_n = instances_n, .subjects_n = subjects_n};

    for (unsigned i = 0; i < SETS; i++)
        round.sets[i] = (struct reference){.cost = below(4), .interval = 1 + below(1000)};
    now_ns = 1000000000 + below(1000000);
    open_round(&round, directory, set);
    for (unsigned i = 0; i < STEPS; i++) {
        now_ns += below(3) ? below(300) : 0;
        step(&round);
    }
    close_round(&round);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: test DIRECTORY [SEED]\n");
        return 2;
    }
    seed = random_state = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
    if (!mkdtemp(process_dir))
        fail("process_dir", "it cannot be made");
    atexit(remove_process_dir);
    for (unsigned i = 0; i < ROUNDS; i++) {
        run_round("thread", "backend: thread", 1, 1, argv[1]);
        run_round("process", "backend: process, lifetime: users", 2, 1, argv[1]);
        run_round("subjects", "subjects: { max: 100 }", 1, SUBJECTS, argv[1]);
    }
    run_equal(argv[1]);
    printf("test: %u histories as the reference (seed %" PRIu64 ")\n", 3u * ROUNDS + 1, seed);
    return 0;
}
