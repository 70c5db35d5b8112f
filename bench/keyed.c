/* SPDX-License-Identifier: MIT */
/*
 * Measures decisions of a keyed set, each for one of very many subjects, beside the least that a
 * keyed limiter does: find the subject's word in a table, read the clock, and a CAS. Also the
 * memory of a key, and the longest take of a new one; and all that again once every key has
 * recovered. keyed_new.c has the takes of subjects that were never seen.
 *
 *     keyed [--seconds S] [--rounds N] [--samples N] [--only TEXT] [HOW_MANY]
 *
 * Subjects are 8 bytes, in random order. It requires that the set has known as many keys as there
 * were subjects, and evicted none.
 */
#include "keyed.h"

#include "weigh.h"
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { HERE = 0, THERE = 1, BATCH = 2000, SAMPLES = 30, WARM_UP = 2, BLOCK = 16, SIZES = 3 };

/*
 * A key is remembered for as long as a unit takes to come back: 4 s, or 100 s of so many keys that
 * each is used rarely. The burst is more than any subject uses.
 */
static uint64_t kept_capacity(uint64_t n)
{
    return n > 100000 ? 10000000 : 250000000;
}

/* Recovers while the program sleeps a little. */
#define BRIEF_WINDOW (50 * MS)

/* ---- the bare table ---- */

/* Open addressing, at most half full. */
struct table {
    struct slot {
        uint64_t subject; /* 0: free */
        _Atomic uint64_t tat;
    } * slots;
    uint64_t mask;
    uint64_t unit_ns, depth_ns;
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ (x >> 32);
}

/* Returns the slot of a subject, or the free one that it would take. */
static inline struct slot *table_find(const struct table *table, uint64_t subject)
{
    uint64_t at = mix(subject) & table->mask;

    while (table->slots[at].subject != subject && table->slots[at].subject)
        at = (at + 1) & table->mask;
    return &table->slots[at];
}

static size_t table_size(const struct table *table)
{
    return (table->mask + 1) * sizeof(struct slot);
}

static void table_open(struct table *table, uint64_t n)
{
    *table = (struct table){
        .mask = 1, .unit_ns = KEPT_WINDOW / kept_capacity(n), .depth_ns = KEPT_WINDOW};
    while (table->mask + 1 < 2 * n)
        table->mask = 2 * table->mask + 1;
    table->slots =
        mmap(NULL, table_size(table), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(table->slots != MAP_FAILED);
    for (uint64_t i = 0; i < n; i++)
        table_find(table, subject_of(i))->subject = subject_of(i);
}

static void table_close(struct table *table)
{
    munmap(table->slots, table_size(table));
}

/* Takes from a GCRA on the word of a subject, as costs_work.c does on one word. */
static inline bool table_take(const struct table *table, uint64_t subject)
{
    struct slot *slot = table_find(table, subject);
    uint64_t now = clock_now();
    uint64_t tat = atomic_load_explicit(&slot->tat, memory_order_relaxed);
    uint64_t next;

    do {
        next = (tat > now ? tat : now) + table->unit_ns;
        if (next - now > table->depth_ns)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&slot->tat, &tat, next, memory_order_acq_rel,
                                                    memory_order_relaxed));
    return true;
}

/* ---- the set ---- */

static weir_pool *open_set_of(weir *w, const char *backend, const char *name, uint64_t n,
                              uint64_t capacity, uint64_t window_ns)
{
    const struct weir_limit_spec limit = {.size = sizeof(limit),
                                          .type = WEIR_LIMIT_CALL,
                                          .algorithm = "gcra",
                                          .capacity = capacity,
                                          .window_ns = window_ns};
    const struct weir_subjects_spec keyed = {.size = sizeof(keyed), .max = n, .evict = "none"};
    const struct weir_set_spec set = {.size = sizeof(set),
                                      .name = name,
                                      .limits = &limit,
                                      .limits_n = 1,
                                      .subjects = &keyed,
                                      .backend = backend,
                                      .lifetime = backend ? "users" : NULL};

    return bench_pool_of(w, &set);
}

weir_pool *open_set(weir *w, const char *name, uint64_t n, uint64_t capacity, uint64_t window_ns)
{
    return open_set_of(w, NULL, name, n, capacity, window_ns);
}

struct weir_subjects_stats keys_of(weir_pool *pool)
{
    struct weir_subjects_stats stats = {.size = sizeof(stats)};

    require(weir_set_subjects(weir_pool_set(pool, 0), &stats) == 1);
    require(stats.evicted == 0 && stats.refused == 0);
    return stats;
}

/* ---- a number of subjects ---- */

struct scene {
    uint64_t n;
    struct table table;
    weir_pool *pool;
    uint64_t random;
    uint64_t done; /* operations on the set */
    struct bench_figure *raw, *own, *raw_beside, *own_beside, *raw_two, *own_two;
    weir_pool *shared; /* pool of the shared set with this definition */
    struct bench_figure *own_shared;
};

static void table_loop(struct scene *scene, uint64_t *random, unsigned n)
{
    while (n-- > 0)
        require(table_take(&scene->table, subject_of(random_below(random, scene->n))));
}

static void set_loop(struct scene *scene, uint64_t *random, unsigned n)
{
    while (n-- > 0)
        require(set_take(scene->pool, subject_of(random_below(random, scene->n))) == 0);
}

static void shared_loop(struct scene *scene, uint64_t *random, unsigned n)
{
    while (n-- > 0)
        require(set_take(scene->shared, subject_of(random_below(random, scene->n))) == 0);
}

static void share(struct scene *scene, weir *w)
{
    char name[64];

    snprintf(name, sizeof(name), "bench-keys-%ld", (long)getpid());
    scene->shared = open_set_of(w, "process", name, scene->n, kept_capacity(scene->n), KEPT_WINDOW);
    for (uint64_t i = 0; i < scene->n; i++)
        require(set_take(scene->shared, subject_of(i)) == 0);
}

static void scene_open(struct scene *scene, weir *w, uint64_t n)
{
    char name[32];

    snprintf(name, sizeof(name), "keys-%llu", (unsigned long long)n);
    *scene = (struct scene){.n = n, .random = 88172645463325252u};
    table_open(&scene->table, n);
    scene->pool = open_set(w, name, n, kept_capacity(n), KEPT_WINDOW);
    for (uint64_t i = 0; i < n; i++)
        require(set_take(scene->pool, subject_of(i)) == 0);
    scene->done = n;
}

static void scene_close(struct scene *scene)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};

    require(weir_set_stats(weir_pool_set(scene->pool, 0), &stats, NULL, 0) == 1);
    require(stats.granted == scene->done && stats.taken == scene->done);
    require(keys_of(scene->pool).known <= scene->n);
    table_close(&scene->table);
    weir_pool_close(scene->pool);
    if (scene->shared) {
        require(keys_of(scene->shared).known <= scene->n);
        weir_pool_close(scene->shared);
    }
}

static double run_batch(struct scene *scene,
                        void (*loop)(struct scene *scene, uint64_t *random, unsigned n))
{
    uint64_t begin = clock_now();

    loop(scene, &scene->random, BATCH);
    scene->done += loop == set_loop ? BATCH : 0;
    return (double)(clock_now() - begin) / BATCH;
}

static void alone_round(struct scene *scenes, unsigned n, unsigned samples)
{
    for (unsigned i = 0; i < n; i++)
        for (unsigned j = 0; scenes[i].own && j < WARM_UP + samples; j++) {
            double raw = run_batch(&scenes[i], table_loop);
            double own = run_batch(&scenes[i], set_loop);
            double shared = scenes[i].shared ? run_batch(&scenes[i], shared_loop) : 0;

            if (j >= WARM_UP) {
                bench_add(scenes[i].raw, raw);
                bench_add(scenes[i].own, own);
            }
            if (j >= WARM_UP && scenes[i].shared)
                bench_add(scenes[i].own_shared, shared);
        }
}

/* ---- with another thread ---- */

/* A thread on another processor that takes from the table or set until `over`. */
struct rival {
    struct scene *scene;
    bool of_set, is_hot; /* is_hot: one subject again and again */
    atomic_bool over;
    _Alignas(64) _Atomic uint64_t done;
};

static void rival_block(struct rival *rival, uint64_t *random)
{
    struct scene *scene = rival->scene;

    if (!rival->is_hot) {
        (rival->of_set ? set_loop : table_loop)(scene, random, BLOCK);
        return;
    }
    for (int i = 0; i < BLOCK; i++)
        if (rival->of_set)
            require(set_take(scene->pool, subject_of(0)) == 0);
        else
            require(table_take(&scene->table, subject_of(0)));
}

static void *compete(void *argument)
{
    struct rival *rival = argument;
    uint64_t random = 1, done = 0;

    while (!atomic_load_explicit(&rival->over, memory_order_relaxed)) {
        rival_block(rival, &random);
        done += BLOCK;
        atomic_store_explicit(&rival->done, done, memory_order_relaxed);
    }
    return NULL;
}

/* Runs a batch beside a rival. Returns ns of one thread per operation, over both threads; beside a
 * hot one, over this thread alone. */
static double rival_batch(struct rival *rival)
{
    uint64_t done = atomic_load_explicit(&rival->done, memory_order_relaxed);
    double ns = run_batch(rival->scene, rival->of_set ? set_loop : table_loop);

    done = atomic_load_explicit(&rival->done, memory_order_relaxed) - done;
    return rival->is_hot ? ns : 2 * ns * BATCH / (double)(BATCH + done);
}

static void run_rival(struct scene *scene, bool of_set, bool is_hot, struct bench_figure *figure,
                      unsigned samples)
{
    struct rival rival = {.scene = scene, .of_set = of_set, .is_hot = is_hot};
    pthread_t thread = bench_start(THERE, compete, &rival);

    while (atomic_load_explicit(&rival.done, memory_order_relaxed) == 0)
        bench_yield();
    for (unsigned i = 0; i < WARM_UP + samples; i++) {
        double ns = rival_batch(&rival);

        if (i >= WARM_UP)
            bench_add(figure, ns);
    }
    atomic_store(&rival.over, true);
    require(pthread_join(thread, NULL) == 0);
    scene->done += of_set ? rival.done : 0;
}

static void two_round(struct scene *scene, unsigned samples)
{
    if (scene->own_two) {
        run_rival(scene, false, false, scene->raw_two, samples);
        run_rival(scene, true, false, scene->own_two, samples);
    }
    if (scene->own_beside) {
        run_rival(scene, false, true, scene->raw_beside, samples);
        run_rival(scene, true, true, scene->own_beside, samples);
    }
}

/* ---- once every key has recovered ---- */

/* Each subject is used once in a round, and has recovered by the next. */
static struct {
    uint64_t n;
    struct table table;
    weir_pool *pool;
    uint64_t touched_ns; /* time of the last use */
    struct bench_figure *raw, *own;
} brief;

static void brief_open(weir *w, uint64_t n)
{
    brief.n = n;
    table_open(&brief.table, n);
    brief.pool = open_set(w, "brief", n, 1, BRIEF_WINDOW);
    for (uint64_t i = 0; i < n; i++)
        require(set_take(brief.pool, subject_of(i)) == 0);
    brief.touched_ns = clock_now();
}

static void brief_close(void)
{
    keys_of(brief.pool);
    table_close(&brief.table);
    weir_pool_close(brief.pool);
}

/* Returns the i-th subject of a round, in an order unlike that of memory; each comes once. */
static uint64_t brief_subject(uint64_t i)
{
    return subject_of(i * UINT64_C(7919) % brief.n);
}

static void brief_round(void)
{
    uint64_t begin;

    while (clock_now() < brief.touched_ns + BRIEF_WINDOW)
        nanosleep(&(struct timespec){0, BRIEF_WINDOW / 4}, NULL);
    for (uint64_t i = 0; i + BATCH <= brief.n; i += BATCH) {
        begin = clock_now();
        for (uint64_t j = i; j < i + BATCH; j++)
            require(table_take(&brief.table, brief_subject(j)));
        bench_add(brief.raw, (double)(clock_now() - begin) / BATCH);
        begin = clock_now();
        for (uint64_t j = i; j < i + BATCH; j++)
            require(set_take(brief.pool, brief_subject(j)) == 0);
        bench_add(brief.own, (double)(clock_now() - begin) / BATCH);
    }
    brief.touched_ns = clock_now();
}

/* ---- memory, and stops ---- */

enum { STOP_FIRST = 12, STOPS = 24 }; /* powers of two, ns: from 4 us on, to 17 s */

/* Reasons why a take lasted long. */
enum stop { STOP_FAULT, STOP_INTERRUPTED, STOP_OTHER, STOP_KINDS };
static const char *const stop_names[] = {"a page fault", "an interruption", "neither"};

/* Results of a set with a number of subjects. */
struct weight {
    double used, used_after; /* bytes; and after all have recovered and were used again */
    double again_ns;         /* ns per subject */
    uint64_t stops[STOPS];   /* takes of new subjects that lasted 2^(STOP_FIRST + i) ns or more */
    uint64_t longest_ns[STOP_KINDS];
};

static double take_all(weir_pool *pool, uint64_t n)
{
    uint64_t begin = clock_now();

    for (uint64_t i = 0; i < n; i++)
        require(set_take(pool, subject_of(i)) == 0);
    return (double)(clock_now() - begin) / (double)n;
}

/* Notes a take that lasted long, and what has happened since the last one that did. */
static void note_stop(struct weight *weight, struct rusage *before, uint64_t ns)
{
    enum stop stop = STOP_OTHER;
    struct rusage now;

    for (int i = 0; i < STOPS && ns >> (STOP_FIRST + i); i++)
        weight->stops[i]++;
    require(getrusage(RUSAGE_SELF, &now) == 0);
    if (now.ru_nivcsw + now.ru_nvcsw != before->ru_nivcsw + before->ru_nvcsw)
        stop = STOP_INTERRUPTED;
    else if (now.ru_minflt + now.ru_majflt != before->ru_minflt + before->ru_majflt)
        stop = STOP_FAULT;
    *before = now;
    if (ns > weight->longest_ns[stop])
        weight->longest_ns[stop] = ns;
}

/* Takes for each subject the first time, and notes how long each take lasts. */
static void take_all_new(weir_pool *pool, uint64_t n, struct weight *weight)
{
    struct rusage usage;
    uint64_t begin, end;

    require(getrusage(RUSAGE_SELF, &usage) == 0);
    begin = clock_now();
    for (uint64_t i = 0; i < n; i++, begin = end) {
        require(set_take(pool, subject_of(i)) == 0);
        end = clock_now();
        if ((end - begin) >> STOP_FIRST == 0)
            continue;
        note_stop(weight, &usage, end - begin);
        end = clock_now();
    }
}

static void weigh(const void *argument, void *ret)
{
    uint64_t n = *(const uint64_t *)argument;
    struct weight *weight = ret;
    weir *w = bench_instance(NULL);
    weir_pool *pool;
    double before;

    *weight = (struct weight){0};
    require(set_take(open_set(w, "first", 1, 1, BRIEF_WINDOW), subject_of(0)) == 0);
    before = weigh_now();
    pool = open_set(w, "weighed", n, 1, BRIEF_WINDOW);
    take_all_new(pool, n, weight);
    weight->used = (weigh_now() - before) / (double)n;
    nanosleep(&(struct timespec){0, BRIEF_WINDOW}, NULL);
    weight->again_ns = take_all(pool, n);
    weight->used_after = (weigh_now() - before) / (double)n;
    require(keys_of(pool).known <= n);
}

static void measure_memory(struct bench *bench, uint64_t n)
{
    struct weight weight;

    weigh_apart(weigh, &n, &weight, sizeof(weight));
    bench_value(bench, weight.used, "bytes each", "memory, most subjects");
    bench_value(bench, weight.used_after, "bytes each", "memory, most subjects, recovered");
    bench_value(bench, weight.again_ns, "ns each", "take, most subjects, each recovered");
    for (int i = 0; i < STOP_KINDS; i++)
        bench_value(bench, (double)weight.longest_ns[i] / 1000, "us",
                    "longest take of a new subject, with %s", stop_names[i]);
    for (int i = 0; bench->only && i < STOPS && weight.stops[i]; i++)
        bench_value(bench, (double)weight.stops[i], "takes", "takes of new subjects of %llu us",
                    (1ull << (STOP_FIRST + i)) / 1000);
}

/* ---- main ---- */

static void make_pair(struct bench *bench, const char *name, struct bench_figure **ret_raw,
                      struct bench_figure **ret_own)
{
    if (!bench_wants(bench, name))
        return;
    *ret_raw = bench_figure(bench, NULL, "raw: find + clock + CAS%s", name);
    *ret_own = bench_figure(bench, *ret_raw, "take%s", name);
}

static const char *const names[SIZES] = {", 1 subject", ", 100000 subjects", ", most subjects"};

int main(int argc, char **argv)
{
    uint64_t sizes[SIZES] = {1, 100000, 1000000};
    struct scene scenes[SIZES] = {0};
    struct bench bench;
    weir *w;

    bench_open(&bench, "keyed", 18, argc, argv);
    if (bench.argc > 0)
        sizes[2] = strtoull(bench.argv[0], NULL, 10);
    require(sizes[2] >= BATCH && sizes[2] <= WEIR_SUBJECTS_MAX);
    if (bench_wants(&bench, "memory"))
        measure_memory(&bench, sizes[2]);
    w = bench_instance(NULL);
    for (int i = 0; i < SIZES; i++) {
        if (i == 2 && !bench_wants(&bench, names[i]))
            continue; /* it may be large */
        scene_open(&scenes[i], w, sizes[i]);
        make_pair(&bench, names[i], &scenes[i].raw, &scenes[i].own);
    }
    new_open(&bench, sizes[2]);
    if (scenes[1].own) {
        share(&scenes[1], w);
        scenes[1].own_shared = bench_figure(&bench, scenes[1].raw, "take, 100000 subjects, shared");
    }
    brief_open(w, sizes[1]);
    make_pair(&bench, ", 100000 subjects, recovered", &brief.raw, &brief.own);
    if (bench_processors() > 1) {
        make_pair(&bench, ", 100000 subjects, two", &scenes[1].raw_two, &scenes[1].own_two);
        make_pair(&bench, ", 100000 subjects, beside a hot", &scenes[1].raw_beside,
                  &scenes[1].own_beside);
    } else {
        bench_skip("two threads", "there is but one processor");
    }
    bench_pin(HERE);
    while (bench_round(&bench)) {
        alone_round(scenes, SIZES, bench_samples(&bench, SAMPLES));
        two_round(&scenes[1], bench_samples(&bench, SAMPLES));
        if (brief.own)
            brief_round();
        new_round();
    }
    for (int i = 0; i < SIZES; i++)
        if (scenes[i].pool)
            scene_close(&scenes[i]);
    brief_close();
    weir_close(w);
    return bench_close(&bench);
}
