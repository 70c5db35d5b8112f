/* SPDX-License-Identifier: MIT */
/* FIFOs that wake one waiter of another process, and the granters that may ring them. */
#include "shm/direct_doorbell.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "os/os.h"
#include "shm/acq_record.h"
#include "shm/doorbell.h"
#include "shm/doorbell_cache.h"

_Static_assert(DIRECT_DOORBELL_MAX == WAIT_TARGET_CQ_MAX, "a number fits a wait target");

/* `data`: turn:32 | is rung:1 | granters:31. A number that was never lent to it may be anything. */
#define DIRECT_TURN_SHIFT 32
#define DIRECT_RUNG       (UINT64_C(1) << 31)
#define DIRECT_GRANTERS   (DIRECT_RUNG - 1)

static uint32_t direct_doorbell_timer(uint32_t number)
{
    WEIR_INVARIANT(number && number <= DIRECT_DOORBELL_MAX);
    return WAIT_TARGET_CQ_MAX + number;
}

int direct_doorbell_open(int directory_fd, const char *stem, uint32_t key, uint32_t number,
                         struct direct_doorbell *ret)
{
    *ret = (struct direct_doorbell){.number = number};
    ret->fd = doorbell_open(directory_fd, stem, key, direct_doorbell_timer(number));
    return ret->fd < 0 ? ret->fd : 0;
}

void direct_doorbell_close(int directory_fd, const char *stem, uint32_t key,
                           const struct direct_doorbell *doorbell)
{
    doorbell_close(directory_fd, doorbell->fd, stem, key, direct_doorbell_timer(doorbell->number));
}

int direct_doorbell_open_read_end(int directory_fd, const char *stem, uint32_t key,
                                  const struct direct_doorbell *doorbell)
{
    return doorbell_open_read_end(directory_fd, stem, key, direct_doorbell_timer(doorbell->number));
}

int direct_doorbell_remove(int directory_fd, const char *stem, uint32_t key, uint32_t last)
{
    uint32_t end = last < DIRECT_DOORBELL_MAX ? last : DIRECT_DOORBELL_MAX;
    uint32_t n = end < DOORBELL_REMOVE_MAX ? end : DOORBELL_REMOVE_MAX;

    return n ? doorbell_remove(directory_fd, stem, key, direct_doorbell_timer(end - n + 1), n) : 0;
}

bool direct_doorbell_empty(const struct direct_doorbell *doorbell)
{
    char unused[256];
    int n = os_read(doorbell->fd, unused, sizeof(unused));

    return n >= 0 && (size_t)n < sizeof(unused);
}

static uint32_t direct_doorbell_target(const struct direct_doorbell *doorbell)
{
    return (uint32_t)WAIT_TARGET_TIMER | doorbell->number << WAIT_TARGET_CQ_SHIFT;
}

void direct_doorbell_lend(struct direct_doorbell *doorbell, struct acq_record *r)
{
    uint64_t data = shm_load_seq_cst(&r->data);

    while (!shm_cas_seq_cst(&r->data, data, (data | UINT32_MAX) + 1))
        data = shm_load_seq_cst(&r->data);
    doorbell->turn = ((data | UINT32_MAX) + 1) >> DIRECT_TURN_SHIFT;
    doorbell->r = r;
    atomic_store_explicit(&r->wait_target, direct_doorbell_target(doorbell), memory_order_seq_cst);
    SCHED_POINT();
}

/* A record that another process has taken has another wait target by now. */
void direct_doorbell_take_back(const struct direct_doorbell *doorbell)
{
    uint32_t target = direct_doorbell_target(doorbell);

    atomic_compare_exchange_strong_explicit(&doorbell->r->wait_target, &target,
                                            (uint32_t)WAIT_TARGET_TIMER, memory_order_seq_cst,
                                            memory_order_seq_cst);
    SCHED_POINT();
}

bool direct_doorbell_is_over(const struct direct_doorbell *doorbell)
{
    uint64_t data = doorbell->r ? shm_load_seq_cst(&doorbell->r->data) : 0;

    return !doorbell->r ||
           (data >> DIRECT_TURN_SHIFT == doorbell->turn && !(data & DIRECT_GRANTERS));
}

bool direct_doorbell_is_rung(const struct acq_record *r)
{
    return (shm_load_seq_cst(&r->data) & DIRECT_RUNG) != 0;
}

/* Notes in this turn that the doorbell is rung. Returns whether the caller, which has counted
 * itself `own` times, has to ring it: it is the first, or one that was before it may be stopped. */
static bool direct_doorbell_claim(struct acq_record *r, uint64_t turn, uint64_t own)
{
    uint64_t data = shm_load_seq_cst(&r->data);

    while (data >> DIRECT_TURN_SHIFT == turn &&
           !shm_cas_seq_cst(&r->data, data, data | DIRECT_RUNG))
        data = shm_load_seq_cst(&r->data);
    return !(data & DIRECT_RUNG) || (data & DIRECT_GRANTERS) > own;
}

int direct_doorbell_ring_own(const struct direct_doorbell *doorbell)
{
    return direct_doorbell_claim(doorbell->r, doorbell->turn, 0)
               ? doorbell_write(doorbell->fd, DOORBELL_DIRECT)
               : 0;
}

/* The number is loaded before the word: a HELD record of a later wait with the same number was
 * granted, too. */
static uint32_t direct_doorbell_to_ring(const struct acq_record *r, uint64_t turn)
{
    uint32_t target = atomic_load_explicit(&r->wait_target, memory_order_seq_cst);

    SCHED_POINT();
    if (shm_load_seq_cst(&r->data) >> DIRECT_TURN_SHIFT != turn ||
        record_state(shm_load_seq_cst(&r->word)) != RECORD_HELD)
        return 0;
    return wait_target_direct(target);
}

static void direct_doorbell_leave(struct acq_record *r, uint64_t turn)
{
    uint64_t count = shm_load_seq_cst(&r->data);

    while (count >> DIRECT_TURN_SHIFT == turn && !shm_cas_seq_cst(&r->data, count, count - 1))
        count = shm_load_seq_cst(&r->data);
}

bool direct_doorbell_ring(struct doorbell_cache *cache, uint32_t key, struct acq_record *r)
{
    uint64_t turn;
    uint32_t number;

    if (!wait_target_direct(record_wait_target(r)))
        return false;
    turn = atomic_fetch_add_explicit(&r->data, 1, memory_order_seq_cst) >> DIRECT_TURN_SHIFT;
    SCHED_POINT();
    number = direct_doorbell_to_ring(r, turn);
    /* If it cannot ring it stays counted, as a dead one does: then others ring. */
    if (number && direct_doorbell_claim(r, turn, 1) &&
        doorbell_cache_ring(cache, key, direct_doorbell_timer(number), DOORBELL_DIRECT) < 0)
        return false;
    SCHED_POINT();
    direct_doorbell_leave(r, turn);
    return number != 0;
}
