/* SPDX-License-Identifier: MIT */
/* A completion queue watched by one multishot poll, as weir/uring.h says: how many CQEs its wakes
 * make, and what comes of a poll that the kernel ends because the program took no CQEs. On each
 * kind of ring. */
#include "rings.h"

#include <pthread.h>

enum { QUEUE = 1, CAPACITY = 256, BATCH = 8, PATIENCE_NS = 1000000000 };

static struct weir_uring uring;
static struct io_uring ring;
static weir *w;
static weir_pool *pool;
static weir_queue *queue;
static bool watched;

static void watch(void)
{
    require(weir_uring_prep_queue(&uring, &ring, queue, QUEUE) == 0);
    require(io_uring_submit(&ring) == 1);
    watched = true;
}

/* Takes the next CQE. Returns whether there was one within so long. */
static bool take_cqe(uint64_t patience_ns)
{
    struct io_uring_cqe cqe;

    if (ring_next(&ring, patience_ns, &cqe) < 0)
        return false;
    require(cqe.user_data == QUEUE && cqe.res > 0);
    watched = cqe.flags & IORING_CQE_F_MORE;
    return true;
}

static void submit(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        require(weir_queue_submit(queue, pool, NULL, i, NULL, NULL) == 0);
}

/* The loop of the header. */
static unsigned reap_all(void)
{
    struct weir_completion done[BATCH];
    unsigned all = 0;
    int n;

    do {
        n = weir_queue_reap(queue, done, BATCH);
        require(n >= 0);
        for (int i = 0; i < n; i++)
            require(done[i].result == 0 && weir_release(&done[i].acquisition) == 0);
        all += (unsigned)n;
    } while (n == BATCH);
    return all;
}

/* However many there are: one CQE for all that come while the queue is not empty. */
static void test_one_cqe_per_change(void)
{
    for (unsigned n = 1; n <= CAPACITY; n = 2 * n + 1) {
        submit(n);
        require(take_cqe(PATIENCE_NS));
        require(watched);
        require(!take_cqe(MS));
        require(reap_all() == n);
        require(!take_cqe(MS));
    }
}

/* Wakes with CQEs that the program does not take: the kernel ends the poll. Watched again, it
 * misses nothing. */
static void test_overflow(void)
{
    unsigned ended = 0;

    for (int round = 0; round < 5; round++) {
        unsigned wakes = 4 * *ring.cq.kring_entries;

        for (unsigned i = 0; i < wakes; i++) {
            submit(1);
            io_uring_get_events(&ring); /* a turn of a loop that looks at nothing */
            require(reap_all() == 1);
        }
        while (watched && take_cqe(10 * MS))
            ;
        submit(3);
        if (!watched) {
            ended++;
            watch();
        }
        require(take_cqe(PATIENCE_NS));
        require(reap_all() == 3);
    }
    printf("the kernel ended the poll in %u of 5 rounds\n", ended);
}

static void open_weir(void)
{
    const struct weir_options options = {.size = sizeof(options)};

    require(weir_open(&w, &options, NULL) == 0);
    require(weir_pool_open(&pool, w, "anything", 0, NULL) == 0); /* grants all */
    require(weir_queue_open(&queue, w, CAPACITY) == 0);
}

static void close_weir(void)
{
    require(weir_uring_prep_cancel(&ring, QUEUE, 0) == 0);
    require(io_uring_submit(&ring) == 1);
    io_uring_queue_exit(&ring); /* which ends what is on it */
    queue = weir_queue_close(queue);
    pool = weir_pool_close(pool);
    w = weir_close(w);
}

/* A small ring, so that its completion queue is soon full. */
static void run_on(unsigned kind)
{
    printf("%s\n", ring_kinds[kind].name);
    require(io_uring_queue_init(2, &ring, ring_kinds[kind].flags) == 0);
    open_weir();
    watch();
    test_one_cqe_per_change();
    test_overflow();
    close_weir();
}

int main(void)
{
    if (!rings_begin(&uring))
        return 77;
    if (!(uring.features & WEIR_URING_MULTISHOT)) {
        fprintf(stderr, "SKIPPED: this kernel has no multishot poll\n");
        return 77;
    }
    for (unsigned kind = 0; kind < RING_KINDS; kind++) {
        if (ring_exists(kind))
            run_on(kind);
        else
            printf("%s: there are no such rings here\n", ring_kinds[kind].name);
    }
    return 0;
}
