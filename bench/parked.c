/* SPDX-License-Identifier: MIT */
/*
 * Measures very many acquisitions that wait in one completion queue: the memory of each, and the
 * time to submit, grant, reap, cancel and close. They stand beside a doubly linked list of 64-byte
 * nodes in an arena, the least that could hold them.
 *
 *     parked [--seconds S] [--rounds N] [--samples N] [--only TEXT] [HOW_MANY]
 *
 * --only takes "1 limit", "3 limits, timeouts", and so on; "cancel"; "close".
 * It requires that they are granted in the order of submission, and that each completes once.
 */
#include "bench.h"

#include "weigh.h"
#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <string.h>
#include <sys/mman.h>

enum { HOLDERS = 64, SUBMIT_BLOCK = 10000, CANCEL_BLOCK = 1000, LIMITS = 3, SIZES = 3 };

/* ---- the bare list ---- */

struct node {
    struct node *next, *previous;
    uint64_t user_data, deadline_ns, sequence;
    uint32_t amounts[4];
    uint64_t state;
};
_Static_assert(sizeof(struct node) == 64, "a cache line");

struct list {
    struct node head; /* next: the first; previous: the last */
    struct node *arena;
    size_t n;
};

static void list_open(struct list *list, size_t n)
{
    list->head.next = list->head.previous = &list->head;
    list->n = n;
    list->arena = mmap(NULL, n * sizeof(struct node), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(list->arena != MAP_FAILED);
}

static void list_close(struct list *list)
{
    munmap(list->arena, list->n * sizeof(struct node));
}

static void list_add(struct list *list, size_t i)
{
    struct node *node = &list->arena[i];

    *node = (struct node){.next = &list->head,
                          .previous = list->head.previous,
                          .user_data = i,
                          .sequence = i,
                          .amounts = {1}};
    list->head.previous->next = node;
    list->head.previous = node;
}

static void list_remove(struct node *node)
{
    node->previous->next = node->next;
    node->next->previous = node->previous;
    node->state = 1;
}

/* ---- weir ---- */

/* Kinds of acquisitions. */
struct kind {
    const char *name;
    unsigned limits;
    bool timeout; /* each acquisition has a timeout of its own */
};

/* An instance with all units held, and a completion queue. */
struct scene {
    const struct kind *kind;
    weir *w;
    weir_pool *pool;
    weir_queue *queue;
    weir_acquisition *held[HOLDERS];
};

static const struct weir_limit_spec limits[LIMITS] = {
    {.size = sizeof(limits[0]), .type = WEIR_LIMIT_RESOURCE, .key = "slots", .capacity = HOLDERS},
    {.size = sizeof(limits[0]),
     .type = WEIR_LIMIT_CALL,
     .algorithm = "gcra",
     .capacity = 1000000000,
     .window_ns = 1000 * MS},
    {.size = sizeof(limits[0]),
     .type = WEIR_LIMIT_RATE,
     .key = "tokens",
     .algorithm = "token_bucket",
     .capacity = 1000000000,
     .window_ns = 1000 * MS},
};

static const struct weir_amount tokens = {"tokens", 1};

static struct weir_request request_of(const struct kind *kind)
{
    return (struct weir_request){.size = sizeof(struct weir_request),
                                 .amounts = &tokens,
                                 .amounts_n = kind->limits == LIMITS ? 1 : 0};
}

static void scene_open(struct scene *scene, const struct kind *kind, size_t n)
{
    const struct weir_request request = request_of(kind);

    scene->kind = kind;
    scene->w = bench_instance(NULL);
    scene->pool = bench_pool(scene->w, "set", limits, kind->limits);
    require(weir_queue_open(&scene->queue, scene->w, (unsigned)n) == 0);
    for (unsigned i = 0; i < HOLDERS; i++)
        require(weir_try_acquire(scene->pool, &request, &scene->held[i], NULL) == 0);
}

static void scene_stats(struct scene *scene, struct weir_set_stats *ret)
{
    ret->size = sizeof(*ret);
    require(weir_set_stats(weir_pool_set(scene->pool, 0), ret, NULL, 0) >= 0);
}

/* Updates the rates, which the release requires. */
static void tell_use(const struct scene *scene, weir_acquisition *acquisition)
{
    if (scene->kind->limits == LIMITS)
        require(weir_update(acquisition, "tokens", 1) == 0);
}

static void scene_close(struct scene *scene)
{
    struct weir_set_stats stats;

    for (unsigned i = 0; i < HOLDERS; i++)
        if (scene->held[i]) {
            tell_use(scene, scene->held[i]);
            require(weir_release(&scene->held[i]) == 0);
        }
    weir_queue_close(scene->queue);
    scene_stats(scene, &stats);
    require(stats.held == 0 && stats.waiting == 0 && stats.granted == stats.released);
    weir_pool_close(scene->pool);
    weir_close(scene->w);
}

/* Submits requests with numbers `from` to `to` - 1, all of which have to wait. */
static void submit(struct scene *scene, size_t from, size_t to)
{
    struct weir_request request = request_of(scene->kind);

    for (size_t i = from; i < to; i++) {
        /* Timeouts in an hour or two, unordered. */
        if (scene->kind->timeout)
            request.timeout_ns = 3600000 * MS + i * UINT64_C(2654435761) % (3600000 * MS);
        require(weir_queue_submit(scene->queue, scene->pool, &request, i, NULL, NULL) == 0);
    }
}

static void require_parked(struct scene *scene, size_t n)
{
    struct weir_completion completion;
    struct weir_set_stats stats;

    scene_stats(scene, &stats);
    require(stats.waiting == n && stats.held == HOLDERS);
    require(weir_queue_reap(scene->queue, &completion, 1) == 0);
}

/* ---- memory and descriptors ---- */

static double open_fds(void)
{
    DIR *directory = opendir("/proc/self/fd");
    double n = 0;

    require(directory);
    while (readdir(directory))
        n++;
    closedir(directory);
    return n;
}

/* Memory and descriptors of a process. */
struct use {
    double resident, allocated; /* bytes; page tables included */
    double fds;
};

static struct use use_now(void)
{
    struct mallinfo2 info = mallinfo2();

    return (struct use){
        .resident = weigh_now(),
        .allocated = (double)(info.uordblks + info.hblkhd),
        .fds = open_fds(),
    };
}

/* A number of acquisitions of one kind. */
struct load {
    const struct kind *kind;
    size_t n;
};

static void weigh(const void *argument, void *ret)
{
    const struct load *load = argument;
    struct scene scene;
    struct use before, *after = ret;
    double fds = open_fds();

    scene_open(&scene, load->kind, load->n);
    before = use_now();
    submit(&scene, 0, load->n);
    *after = use_now();
    require_parked(&scene, load->n);
    after->resident = (after->resident - before.resident) / (double)load->n;
    after->allocated = (after->allocated - before.allocated) / (double)load->n;
    after->fds -= fds;
}

static void measure_memory(struct bench *bench, const struct kind *kind, size_t n)
{
    const struct load load = {kind, n};
    struct use use;

    weigh_apart(weigh, &load, &use, sizeof(use));
    bench_value(bench, use.resident, "bytes each", "memory, %s", kind->name);
    bench_value(bench, use.allocated, "bytes each", "allocated, %s", kind->name);
    bench_value(bench, use.fds, "in all", "descriptors, %s", kind->name);
}

/* ---- submit, grant, reap ---- */

static const struct kind kinds[] = {
    {"1 limit", 1, false},
    {"1 limit, timeouts", 1, true},
    {"3 limits", LIMITS, false},
    {"3 limits, timeouts", LIMITS, true},
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* Figures by kind. */
struct figures {
    struct bench_figure *raw_enqueue, *raw_pop, *raw_remove[SIZES];
    struct bench_figure *submit[KINDS], *submit_all[KINDS], *release[KINDS], *reap[KINDS];
    struct bench_figure *cancel[SIZES], *close;
};

/* Returns the time since `*start_ns` for each of `n`, and sets `*start_ns` to now. */
static double lap(uint64_t *start_ns, size_t n)
{
    uint64_t start = *start_ns;

    *start_ns = clock_now();
    return (double)(*start_ns - start) / (double)n;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Submits block by block, in turns with the bare list. */
static void park(struct figures *figures, unsigned kind, struct scene *scene, struct list *list)
{
    double all_ns = 0;

    for (size_t i = 0; i < list->n; i += SUBMIT_BLOCK) {
        size_t end = smaller(i + SUBMIT_BLOCK, list->n);
        uint64_t start = clock_now();
        double ns;

        submit(scene, i, end);
        ns = lap(&start, end - i);
        bench_add(figures->submit[kind], ns);
        all_ns += ns * (double)(end - i);
        for (size_t j = i; j < end; j++)
            list_add(list, j);
        bench_add(figures->raw_enqueue, lap(&start, end - i));
    }
    bench_add(figures->submit_all[kind], all_ns / (double)list->n);
    require_parked(scene, list->n);
}

/* Requires that all `n` of a batch were granted, in order. They are held from here on. */
static void take_over(struct scene *scene, const struct weir_completion *done, size_t n,
                      size_t first)
{
    for (size_t i = 0; i < n; i++) {
        require(done[i].user_data == first + i && done[i].result == 0);
        scene->held[i] = done[i].acquisition;
        tell_use(scene, scene->held[i]);
    }
}

/* Releases: each grants the next waiter; reaps a batch of them at once. */
static void grant(struct figures *figures, unsigned kind, struct scene *scene, struct list *list)
{
    struct weir_completion done[HOLDERS];

    for (unsigned i = 0; i < HOLDERS; i++)
        tell_use(scene, scene->held[i]);
    for (size_t i = 0; i < list->n; i += HOLDERS) {
        size_t n = smaller(HOLDERS, list->n - i);
        uint64_t start = clock_now();
        int reaped;

        for (size_t j = 0; j < n; j++)
            require(weir_release(&scene->held[j]) == 0);
        bench_add(figures->release[kind], lap(&start, n));
        reaped = weir_queue_reap(scene->queue, done, HOLDERS);
        bench_add(figures->reap[kind], lap(&start, n));
        require(reaped == (int)n);
        take_over(scene, done, n, i);
        start = clock_now();
        for (size_t j = 0; j < n; j++)
            list_remove(list->head.next);
        bench_add(figures->raw_pop, lap(&start, n));
    }
}

static void measure_kind(struct figures *figures, unsigned kind, size_t n)
{
    struct scene scene;
    struct list list;

    scene_open(&scene, &kinds[kind], n);
    list_open(&list, n);
    park(figures, kind, &scene, &list);
    grant(figures, kind, &scene, &list);
    list_close(&list);
    scene_close(&scene);
}

/* ---- cancel ---- */

static uint64_t random_state = 1;

/* Returns every second number below `n` in random order. */
static size_t *odd_numbers(size_t n)
{
    size_t *numbers = malloc((n / 2 + 1) * sizeof(*numbers));

    require(numbers);
    for (size_t i = 0; i < n / 2; i++) {
        size_t other = (size_t)random_below(&random_state, i + 1);

        numbers[i] = numbers[other];
        numbers[other] = 2 * i + 1;
    }
    return numbers;
}

static void cancel(struct figures *figures, unsigned size, struct scene *scene, struct list *list,
                   const size_t *numbers)
{
    for (size_t i = 0; i < list->n / 2; i += CANCEL_BLOCK) {
        size_t end = smaller(i + CANCEL_BLOCK, list->n / 2);
        uint64_t start = clock_now();

        for (size_t j = i; j < end; j++)
            require(weir_queue_cancel(scene->queue, numbers[j]) == 1);
        bench_add(figures->cancel[size], lap(&start, end - i));
        for (size_t j = i; j < end; j++)
            list_remove(&list->arena[numbers[j]]);
        bench_add(figures->raw_remove[size], lap(&start, end - i));
    }
}

/* Requires that each was canceled once, in this order, and that the others still wait. */
static void require_canceled(struct scene *scene, const size_t *numbers, size_t n)
{
    struct weir_completion done[HOLDERS];

    for (size_t i = 0; i < n / 2;) {
        int reaped = weir_queue_reap(scene->queue, done, HOLDERS);

        require(reaped > 0);
        for (int j = 0; j < reaped; j++, i++)
            require(done[j].user_data == numbers[i] && done[j].result == -ECANCELED &&
                    !done[j].acquisition);
    }
    require_parked(scene, n - n / 2);
    require(weir_release(&scene->held[0]) == 0);
    require(weir_queue_reap(scene->queue, done, HOLDERS) == 1);
    require(done[0].user_data == 0 && done[0].result == 0);
    scene->held[0] = done[0].acquisition;
}

static void measure_cancel(struct figures *figures, unsigned size, size_t n)
{
    size_t *numbers = odd_numbers(n);
    struct scene scene;
    struct list list;

    scene_open(&scene, &kinds[1], n);
    list_open(&list, n);
    submit(&scene, 0, n);
    for (size_t i = 0; i < n; i++)
        list_add(&list, i);
    cancel(figures, size, &scene, &list, numbers);
    require_canceled(&scene, numbers, n);
    list_close(&list);
    scene_close(&scene);
    free(numbers);
}

/* ---- close ---- */

static void measure_close(struct figures *figures, size_t n)
{
    struct scene scene;
    struct weir_set_stats stats;
    uint64_t start;

    scene_open(&scene, &kinds[1], n);
    submit(&scene, 0, n);
    require_parked(&scene, n);
    start = clock_now();
    scene.queue = weir_queue_close(scene.queue);
    bench_add(figures->close, lap(&start, n));
    scene_stats(&scene, &stats);
    require(stats.waiting == 0 && stats.canceled == n);
    scene_close(&scene);
}

/* ---- main ---- */

static const size_t size_unit[SIZES] = {10000, 100000, 1000000};

static void make_figures(struct bench *bench, struct figures *figures, size_t n)
{
    *figures = (struct figures){.raw_enqueue = bench_figure(bench, NULL, "raw list, enqueue")};
    for (unsigned i = 0; i < KINDS; i++) {
        figures->submit[i] = bench_figure(bench, figures->raw_enqueue, "submit, %s", kinds[i].name);
        figures->submit_all[i] =
            bench_figure(bench, NULL, "submit, mean of all, %s", kinds[i].name);
    }
    figures->raw_pop = bench_figure(bench, NULL, "raw list, pop");
    for (unsigned i = 0; i < KINDS; i++) {
        figures->release[i] =
            bench_figure(bench, figures->raw_pop, "release and grant, %s", kinds[i].name);
        figures->reap[i] = bench_figure(bench, figures->raw_pop, "reap, %s", kinds[i].name);
    }
    for (unsigned i = 0; i < SIZES && size_unit[i] <= n; i++) {
        figures->raw_remove[i] = bench_figure(bench, NULL, "raw list, remove of %zu", size_unit[i]);
        figures->cancel[i] =
            bench_figure(bench, figures->raw_remove[i], "cancel of %zu, timeouts", size_unit[i]);
    }
    figures->close = bench_figure(bench, NULL, "close with all parked, timeouts");
}

static void measure_all(const struct bench *bench, struct figures *figures, size_t n)
{
    for (unsigned i = 0; i < KINDS; i++)
        if (bench_wants(bench, kinds[i].name))
            measure_kind(figures, i, n);
    for (unsigned i = 0; i < SIZES && size_unit[i] <= n && bench_wants(bench, "cancel"); i++)
        measure_cancel(figures, i, size_unit[i]);
    if (bench_wants(bench, "close"))
        measure_close(figures, n);
}

int main(int argc, char **argv)
{
    struct bench bench;
    struct figures figures;
    size_t n;

    bench_open(&bench, "parked", 18, argc, argv);
    n = bench.argc > 0 ? strtoull(bench.argv[0], NULL, 10) : 1000000;
    require(n >= HOLDERS && n <= WEIR_QUEUE_CAPACITY_MAX);
    for (unsigned i = 0; i < KINDS; i++)
        if (bench_wants(&bench, kinds[i].name))
            measure_memory(&bench, &kinds[i], n);
    make_figures(&bench, &figures, n);
    bench_pin(0);
    while (bench_round(&bench))
        measure_all(&bench, &figures, n);
    return bench_close(&bench);
}
