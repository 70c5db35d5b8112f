/* SPDX-License-Identifier: MIT */
/*
 * Leased quota on a Redis server: processes that take from batches, hoard them and burst together.
 * In any time the uses of all of them are at most burst + rate · time.
 *
 *     remote_leases PLUGIN SOCKET|URL [MILLISECONDS [PROCESSES]]
 *
 * By a URL there is a link that breaks: what a call that failed has taken is not used.
 */
#include "lib/random.h"
#include "lib/require.h"
#include "server_set.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weir/weir.h>

#define MS    UINT64_C(1000000)
#define LIFE  (50 * MS)
#define RATE  20000 /* units per second */
#define BURST 3000

enum { PROCESSES_MAX = 8, USES_MAX = 1 << 21 };

/* A grant: after the call began, and before it returned. */
struct use {
    uint64_t begin_ns, end_ns, units;
};

struct shared {
    _Atomic uint64_t uses_n, begin_ns;
    struct weir_lease_stats leases[PROCESSES_MAX];
    uint64_t refused[PROCESSES_MAX];
    bool breaks; /* the link */
    struct use uses[USES_MAX];
};

static struct shared *shared;

static uint64_t boot_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000 * MS + (uint64_t)now.tv_nsec;
}

/* ---- a node ---- */

struct node {
    weir *w;
    weir_pool *pool;
    uint64_t random, number, end_ns;
};

static void open_node(struct node *node, const char *plugin, const char *path)
{
    char limits[256];

    snprintf(limits, sizeof(limits),
             "limits: [ { type: rate, key: tokens, algorithm: gcra, capacity: %d, window: 1s, "
             "burst: %d, lease: { for: 50ms } } ]",
             RATE, BURST);
    server_set_open(&node->w, &node->pool, plugin, path, "session: 100ms", limits);
}

/* Takes some units, and notes when. */
static bool use(struct node *node, uint64_t units)
{
    const struct weir_amount amount = {"tokens", units};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = &amount, .amounts_n = 1};
    uint64_t begin_ns = boot_ns(), n;
    int r = weir_take(node->pool, &request, NULL);

    /* A busy machine outlasts the session. */
    require(r == 0 || r == -EAGAIN || r == -EHOSTUNREACH || shared->breaks);
    shared->refused[node->number] += r < 0;
    if (r < 0)
        return false;
    n = atomic_fetch_add(&shared->uses_n, 1);
    require(n < USES_MAX);
    shared->uses[n] = (struct use){begin_ns, boot_ns(), units};
    return true;
}

static void sleep_ns(uint64_t ns)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

/* Uses all that there is. */
static void burst(struct node *node)
{
    for (int refused = 0; refused < 3 && boot_ns() < node->end_ns;)
        refused += !use(node, 1 + random_below(&node->random, 3));
}

/* Uses units evenly, so that batches fit. */
static void stroll(struct node *node, uint64_t for_ns, uint64_t units)
{
    for (uint64_t until = boot_ns() + for_ns; boot_ns() < until;) {
        for (int i = 0; i < 8; i++)
            use(node, units);
        sleep_ns(MS);
    }
}

/* Brings batches in when there is most, and uses them just before they end, together with what has
 * come since. All nodes do that at the same times. What is not used at all would go back soon. */
static void hoard(struct node *node)
{
    uint64_t now_ns = boot_ns(), begin_ns = now_ns - now_ns % (6 * LIFE) + 6 * LIFE, until_ns;

    sleep_ns(begin_ns - now_ns);
    stroll(node, LIFE / 10, 4);
    until_ns = boot_ns() + LIFE / 2 + random_below(&node->random, LIFE / 3);
    while (boot_ns() < until_ns) {
        use(node, 1);
        sleep_ns(LIFE / 8);
    }
    burst(node);
}

static void await_grace(struct node *node)
{
    const struct weir_amount amount = {"tokens", 1};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = &amount, .amounts_n = 1};

    while (weir_take(node->pool, &request, NULL) < 0)
        sleep_ns(10 * MS);
}

/* What can be granted beside batches, the server grants, and the library asks for no more. */
static void check_capacity(struct node *node)
{
    const struct weir_amount most = {"tokens", BURST - RATE / 20},
                             more = {"tokens", BURST - RATE / 20 + 1};
    struct weir_request request = {.size = sizeof(request), .amounts = &most, .amounts_n = 1};

    while (weir_take(node->pool, &request, NULL) < 0)
        sleep_ns(10 * MS);
    request.amounts = &more;
    require(weir_take(node->pool, &request, NULL) == -ERANGE);
}

static bool has_used_batches(const struct node *node)
{
    struct weir_lease_stats stats = {.size = sizeof(stats)};

    require(weir_set_lease_stats(weir_pool_set(node->pool, 0), 0, &stats) == 0);
    return stats.granted > 0;
}

/* Uses the set for so long, and the first node until it has had something from a batch. */
static int run_node(struct node *node, const char *plugin, const char *path, uint64_t ms)
{
    struct weir_lease_stats *stats = &shared->leases[node->number];

    open_node(node, plugin, path);
    await_grace(node);
    if (node->number == 0)
        check_capacity(node);
    node->end_ns = boot_ns() + ms * MS;
    while (boot_ns() < node->end_ns || (node->number == 0 && !has_used_batches(node))) {
        switch (random_below(&node->random, 4)) {
        case 0:
            burst(node);
            sleep_ns(random_below(&node->random, 2 * LIFE));
            break;
        case 1:
            stroll(node, 1 + random_below(&node->random, 100 * MS), 1);
            break;
        default:
            hoard(node);
        }
    }
    stats->size = sizeof(*stats);
    require(weir_set_lease_stats(weir_pool_set(node->pool, 0), 0, stats) == 0);
    require(stats->taken >= stats->granted + stats->returned + stats->stranded + stats->ready);
    weir_pool_close(node->pool);
    weir_close(node->w);
    return 0;
}

/* ---- the check ---- */

/* For each use, and whatever instant `a` before it: the units of uses that lie within [a, its end],
 * and rate · a besides. The largest of them over a range of instants is in a tree; `added` is what
 * the whole range of a node has had. */
struct tree {
    size_t leaves; /* a power of two */
    double *largest, *added;
};

static void tree_set(struct tree *tree, const uint64_t *begins, size_t n)
{
    while (tree->leaves < n)
        tree->leaves *= 2;
    tree->largest = calloc(2 * tree->leaves, sizeof(double));
    tree->added = calloc(2 * tree->leaves, sizeof(double));
    require(tree->largest && tree->added);
    for (size_t i = 0; i < tree->leaves; i++)
        tree->largest[tree->leaves + i] =
            (double)(begins[i < n ? i : n - 1] - begins[0]) / 1e9 * RATE;
    for (size_t i = tree->leaves - 1; i > 0; i--)
        tree->largest[i] = tree->largest[2 * i] > tree->largest[2 * i + 1]
                               ? tree->largest[2 * i]
                               : tree->largest[2 * i + 1];
}

/* Adds to the first `n` leaves, and returns the largest of them. */
static double tree_add(struct tree *tree, size_t at, size_t width, size_t n, double units)
{
    double left, right = -1;

    if (n == width) {
        tree->largest[at] += units;
        tree->added[at] += units;
        return tree->largest[at];
    }
    left = tree_add(tree, 2 * at, width / 2, n < width / 2 ? n : width / 2, units);
    if (n > width / 2)
        right = tree_add(tree, 2 * at + 1, width / 2, n - width / 2, units);
    tree->largest[at] = tree->added[at] + (tree->largest[2 * at] > tree->largest[2 * at + 1]
                                               ? tree->largest[2 * at]
                                               : tree->largest[2 * at + 1]);
    return tree->added[at] + (left > right ? left : right);
}

static int by_end(const void *a, const void *b)
{
    const struct use *x = a, *y = b;

    return x->end_ns < y->end_ns ? -1 : x->end_ns > y->end_ns;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* Returns how many of the instants are not later. */
static size_t rank(const uint64_t *begins, size_t n, uint64_t begin_ns)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (begins[middle] <= begin_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Returns the most that was used in any time beyond rate · time. */
static double most_beyond_rate(struct use *uses, size_t n)
{
    struct tree tree = {.leaves = 1};
    uint64_t *begins = calloc(n, sizeof(*begins));
    double most = 0;

    require(begins && n > 0);
    for (size_t i = 0; i < n; i++)
        begins[i] = uses[i].begin_ns;
    qsort(begins, n, sizeof(*begins), by_value);
    qsort(uses, n, sizeof(*uses), by_end);
    tree_set(&tree, begins, n);
    for (size_t i = 0; i < n; i++) {
        double sum = tree_add(&tree, 1, tree.leaves, rank(begins, n, uses[i].begin_ns),
                              (double)uses[i].units);
        double beyond = sum - (double)(uses[i].end_ns - begins[0]) / 1e9 * RATE;

        most = beyond > most ? beyond : most;
    }
    free(begins);
    free(tree.largest);
    free(tree.added);
    return most;
}

static void report(uint64_t processes)
{
    uint64_t units = 0, refused = 0;
    struct weir_lease_stats all = {0};
    double most;

    for (uint64_t i = 0; i < shared->uses_n; i++)
        units += shared->uses[i].units;
    for (uint64_t i = 0; i < processes; i++) {
        all.batches += shared->leases[i].batches;
        all.taken += shared->leases[i].taken;
        all.granted += shared->leases[i].granted;
        all.returned += shared->leases[i].returned;
        all.stranded += shared->leases[i].stranded;
        refused += shared->refused[i];
    }
    most = most_beyond_rate(shared->uses, shared->uses_n);
    printf("%" PRIu64 " units used in %" PRIu64 " grants, %" PRIu64 " refused; of %" PRIu64
           " batches: %" PRIu64 " taken ahead, %" PRIu64 " granted, %" PRIu64 " returned, %" PRIu64
           " stranded; at most %.1f beyond rate · time, of %d\n",
           units, (uint64_t)shared->uses_n, refused, all.batches, all.taken, all.granted,
           all.returned, all.stranded, most, BURST);
    require(most <= BURST + 1);
    require(all.granted > 0 && all.batches > 0);
}

int main(int argc, char **argv)
{
    uint64_t ms = argc > 3 ? strtoull(argv[3], NULL, 10) : 1500;
    uint64_t processes = argc > 4 ? strtoull(argv[4], NULL, 10) : 3;
    pid_t children[PROCESSES_MAX];

    require(argc >= 3 && processes <= PROCESSES_MAX);
    seed_begin();
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require(shared != MAP_FAILED);
    shared->breaks = strstr(argv[2], "://") != NULL;
    for (uint64_t i = 0; i < processes; i++) {
        struct node node = {.number = i, .random = random_case(test_seed, i)};

        fflush(NULL);
        children[i] = fork();
        require(children[i] >= 0);
        if (children[i] == 0)
            exit(run_node(&node, argv[1], argv[2], ms));
    }
    for (uint64_t i = 0; i < processes; i++) {
        int status;

        require(waitpid(children[i], &status, 0) == children[i]);
        require(status == 0);
    }
    report(processes);
    return 0;
}
