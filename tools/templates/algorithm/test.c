/*
 * Compares __NAME__ with a plain reference, over random histories: in a program of its own, in a
 * set that processes share, and for each subject of a per-subject set. The clock is moved by hand.
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

enum { ROUNDS = 20, STEPS = 500, SUBJECTS = 4 };

/* ---- the reference ---- */

/* A bucket that is filled by 1 each nanosecond; a unit is as large as the interval. It is another
 * way to the same decisions: the plugin knows instants, and this one a level. */
struct reference {
    uint64_t level, seen, next;
};

struct setting {
    uint64_t interval, burst, gap;
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void reference_fill(struct reference *bucket, const struct setting *setting, uint64_t now)
{
    uint64_t full = setting->burst * setting->interval;

    bucket->level = least(full, bucket->level + (now - bucket->seen));
    bucket->seen = now;
}

/* Returns 0 and takes the amount, or returns how long it has to wait. */
static uint64_t reference_take(struct reference *bucket, const struct setting *setting,
                               uint64_t now, uint64_t amount)
{
    uint64_t cost = amount * setting->interval, wait = 0;

    reference_fill(bucket, setting, now);
    if (bucket->next > now)
        wait = bucket->next - now;
    if (cost > bucket->level && cost - bucket->level > wait)
        wait = cost - bucket->level;
    if (wait == 0) {
        bucket->level -= cost;
        bucket->next = now + setting->gap;
    }
    return wait;
}

static void reference_refund(struct reference *bucket, const struct setting *setting, uint64_t now,
                             uint64_t amount)
{
    bucket->level += amount * setting->interval;
    reference_fill(bucket, setting, now);
}

/* ---- the plugin, in use ---- */

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

/* One round: a set, the instances that use it, and what is expected of each subject. */
struct round {
    const char *what;
    struct setting setting;
    weir *instances[2];
    weir_pool *pools[2];
    unsigned instances_n;
    struct reference references[SUBJECTS];
    unsigned subjects_n;
};

static void open_round(struct round *round, const char *directory, const char *set)
{
    const char *const directories[] = {directory, NULL};
    const struct weir_clock clock = {.size = sizeof(clock), .now_ns = read_clock};
    char text[1024];
    const struct weir_options options = {.size = sizeof(options),
                                         .text = text,
                                         .plugin_dirs = directories,
                                         .process_dir = process_dir,
                                         .clock = &clock};
    struct weir_error error = {0};

    snprintf(text, sizeof(text),
             "version: 1\n"
             "sets: { s: { %s, limits: [ { type: rate, key: units, algorithm: __NAME__,"
             " interval: %" PRIu64 "ns, burst: %" PRIu64 ", gap: %" PRIu64 "ns } ] } }\n",
             set, round->setting.interval, round->setting.burst, round->setting.gap);
    for (unsigned i = 0; i < round->instances_n; i++)
        if (weir_open(&round->instances[i], &options, &error) < 0 ||
            weir_pool_open(&round->pools[i], round->instances[i], "s", 0, &error) < 0)
            fail(round->what, error.message);
}

static void close_round(struct round *round)
{
    for (unsigned i = 0; i < round->instances_n; i++) {
        weir_pool_close(round->pools[i]);
        weir_close(round->instances[i]);
    }
}

/* Asks for an amount, gives a part of it back, and compares. */
static void step(struct round *round)
{
    uint64_t amount = 1 + below(round->setting.burst), used = below(amount + 1), wait;
    unsigned subject = (unsigned)below(round->subjects_n);
    weir_pool *pool = round->pools[below(round->instances_n)];
    const struct weir_amount units = {"units", amount};
    const struct weir_request request = {.size = sizeof(request),
                                         .amounts = &units,
                                         .amounts_n = 1,
                                         .subject = &subject,
                                         .subject_size = sizeof(subject)};
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    weir_acquisition *acquisition = NULL;
    int r = weir_try_acquire(pool, &request, &acquisition, &refusal);

    wait = reference_take(&round->references[subject], &round->setting, now_ns, amount);
    if (r != 0 && r != -EAGAIN)
        fail(round->what, "the request is refused otherwise than by the limit");
    if ((r == 0) != (wait == 0))
        fail(round->what, r == 0 ? "it grants too early" : "it grants too late");
    if (r != 0 && refusal.retry_after_ns != wait)
        fail(round->what, "it foresees another instant");
    if (r != 0)
        return;
    if (weir_update(acquisition, "units", used) != 0 || weir_release(&acquisition) != 0)
        fail(round->what, "the grant cannot be released");
    reference_refund(&round->references[subject], &round->setting, now_ns, amount - used);
}

static void run_round(const char *what, const char *set, unsigned instances_n, unsigned subjects_n,
                      const char *directory)
{
    struct round round = {.what = what, .instances_n = instances_n, .subjects_n = subjects_n};

    round.setting.interval = 1 + below(below(2) ? 10 : 1000000000);
    round.setting.burst = 1 + below(20);
    round.setting.gap = below(2) ? below(3 * round.setting.interval) : 0;
    now_ns = 1000000000 + below(1000000);
    for (unsigned i = 0; i < SUBJECTS; i++) {
        round.references[i].level = round.setting.burst * round.setting.interval;
        round.references[i].seen = now_ns;
    }
    open_round(&round, directory, set);
    for (unsigned i = 0; i < STEPS; i++) {
        now_ns += below(3) ? below(3 * round.setting.interval) : 0;
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
    printf("test: %u histories as the reference (seed %" PRIu64 ")\n", 3u * ROUNDS, seed);
    return 0;
}
