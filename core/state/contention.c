/* SPDX-License-Identifier: MIT */
/* Turns of threads that contend for a set, and back-off after a lost CAS. */
#include "state/contention.h"
#include "base/backoff.h"
#include "base/sched_point.h"
#include "os/os.h"
#include "shm/region.h"

#define FIRST_PAUSES   4u
#define WORD_SLOW_NS   150u
#define WORD_PAUSES    32u
#define LONG_PAUSES    256u
#define POLL_PAUSES    32u /* between the first looks at whether the set changes; then longer */
#define POLL_DOUBLINGS 3u
#define POLLS_MAX      16u
#define STILL_MAX      2u /* looks in a row that find no change */

static struct thread_head *contention_thread(const struct region *region, uint32_t thread)
{
    if (!thread || (region->segment && !region_has_thread_unit(region, thread)))
        return NULL; /* no process of this library has written that */
    return region_block(region, thread);
}

/* Pauses so often, or until the thread's turn has come. */
static bool contention_pause(const struct thread_head *head, unsigned pauses)
{
    for (unsigned i = 0; i < pauses; i++) {
        if (atomic_load_explicit(&head->turn_has_come, memory_order_relaxed))
            return true;
        spin_pause();
    }
    return false;
}

/* Waits for the turn of a thread that stands in `next_turn`, as long as the set changes: the thread
 * that works on it may have been stopped, or need it no more. */
static void contention_await_turn(struct set_head *set, struct thread_head *head, uint32_t thread)
{
    uint64_t word = atomic_load_explicit(&set->state_word, memory_order_relaxed);
    unsigned changes = 0, still = 0;

    for (unsigned i = 0; i < POLLS_MAX && still < STILL_MAX; i++) {
        uint64_t before = word;

        SCHED_POINT(); /* in `next_turn` */
        if (contention_pause(head, POLL_PAUSES << (still ? 0 : changes)))
            break;
        word = atomic_load_explicit(&set->state_word, memory_order_relaxed);
        still = word == before ? still + 1 : 0;
        changes += changes < POLL_DOUBLINGS;
    }
    /* Mostly another one stands there by now, but not if the turn was given to an earlier wait. */
    atomic_compare_exchange_strong_explicit(&set->next_turn, &thread, 0, memory_order_relaxed,
                                            memory_order_relaxed);
}

/* Waits for a turn, without a look at the set's lines until then. */
static void contention_wait(const struct region *region, uint32_t set, uint32_t thread)
{
    struct set_head *head = region_block(region, set);
    struct thread_head *own = contention_thread(region, thread);
    uint32_t none = 0;

    if (!own)
        return;
    atomic_store_explicit(&own->turn_has_come, 0, memory_order_relaxed);
    atomic_store_explicit(&own->turn_done, 0, memory_order_relaxed);
    if (atomic_compare_exchange_strong_explicit(&head->next_turn, &none, thread,
                                                memory_order_relaxed, memory_order_relaxed))
        contention_await_turn(head, own, thread);
    else
        contention_pause(own, LONG_PAUSES); /* a third thread */
}

void contention_backoff(const struct region *region, uint32_t set, uint32_t thread,
                        unsigned *losses)
{
    if ((*losses)++ == 0) {
        for (unsigned i = 0; i < FIRST_PAUSES; i++)
            spin_pause();
        return;
    }
    contention_wait(region, set, thread);
}

/* Where the line comes slowly, it pays that one thread does some twenty operations in a row. Where
 * it comes fast, an attempt takes 60 to 130 ns, and two threads are faster side by side. */
void contention_lost_word(uint64_t since_ns)
{
    if (since_ns && os_now_ns() <= since_ns + WORD_SLOW_NS)
        return;
    for (unsigned i = 0; i < WORD_PAUSES; i++)
        spin_pause();
}

/* The next thread works on the set's lines until the caller, which waits, is told in a line of its
 * own. */
void contention_give_turn(const struct region *region, uint32_t set, uint32_t thread)
{
    struct set_head *head = region_block(region, set);
    uint32_t next = atomic_load_explicit(&head->next_turn, memory_order_relaxed);
    struct thread_head *own = contention_thread(region, thread);
    struct thread_head *other = contention_thread(region, next);
    uint32_t done;

    if (!own)
        return;
    done = atomic_load_explicit(&own->turn_done, memory_order_relaxed);
    if (done < CONTENTION_OPERATIONS) {
        atomic_store_explicit(&own->turn_done, done + 1, memory_order_relaxed);
        return;
    }
    atomic_store_explicit(&own->turn_done, 0, memory_order_relaxed);
    atomic_store_explicit(&own->turn_has_come, 0, memory_order_relaxed);
    if (!atomic_compare_exchange_strong_explicit(&head->next_turn, &next, thread,
                                                 memory_order_relaxed, memory_order_relaxed))
        return;
    if (other)
        atomic_store_explicit(&other->turn_has_come, 1, memory_order_relaxed);
    contention_await_turn(head, own, thread);
}
