/* SPDX-License-Identifier: MIT */
/* Direct doorbells of an instance, and the acquisitions that have them. */
#include "wait/direct_wait.h"

#include "os/os.h"
#include "set/set_ops.h"
#include "shm/direct_doorbell.h"
#include "shm/doorbell.h"
#include "shm/participant.h"
#include "wait/acquisition_handle.h"
#include "wait/wait_timer.h"

struct direct_wait {
    struct participant *participant; /* that the doorbell is of; NULL: not open */
    struct direct_doorbell doorbell;
    bool is_used; /* a descriptor of it is open */
    bool is_lent; /* to a record */
};

struct direct_waits {
    uint32_t last_number; /* of the last doorbell; never given again */
    struct direct_wait items[DIRECT_WAITS_MAX];
};

/* Forgets the doorbell before it closes it: see cached_doorbell_close(). */
static void direct_wait_close(struct direct_wait *wait)
{
    struct participant *participant = wait->participant;

    wait->participant = NULL;
    atomic_signal_fence(memory_order_seq_cst);
    participant_close_direct(participant, &wait->doorbell);
}

static bool direct_wait_open(struct direct_waits *waits, struct direct_wait *wait,
                             struct participant *participant)
{
    if (waits->last_number == DIRECT_DOORBELL_MAX ||
        participant_open_direct(participant, ++waits->last_number, &wait->doorbell) < 0)
        return false;
    wait->participant = participant;
    return true;
}

/* Returns a doorbell of the participant that is silent, or NULL. */
static struct direct_wait *direct_waits_find(struct direct_waits *waits,
                                             struct participant *participant)
{
    struct direct_wait *unused = NULL;

    for (uint32_t i = 0; i < DIRECT_WAITS_MAX; i++) {
        struct direct_wait *wait = &waits->items[i];

        if (wait->participant == participant && !wait->is_used) {
            if (direct_doorbell_is_over(&wait->doorbell) && direct_doorbell_empty(&wait->doorbell))
                return wait;
            direct_wait_close(wait);
        }
        if (!wait->participant)
            unused = unused ? unused : wait;
    }
    return unused && direct_wait_open(waits, unused, participant) ? unused : NULL;
}

int direct_wait_begin(weir_acquisition *acquisition)
{
    const weir_set *set = acquisition->set;
    struct instance_wait *iw = instance_wait(set->w);
    struct direct_wait *wait;
    int fd;

    if (!set_is_shared(set) || !acquisition->is_timed || set->w->clock.injected.now_ns ||
        set_used_record_state(set, acquisition->record) != RECORD_WAITING)
        return -1;
    if (!iw->direct_waits)
        iw->direct_waits = os_alloc(1, sizeof(*iw->direct_waits));
    wait = iw->direct_waits ? direct_waits_find(iw->direct_waits, set->participant) : NULL;
    fd = wait ? participant_open_read_end(set->participant, &wait->doorbell) : -1;
    if (fd < 0)
        return -1;
    wait->is_used = wait->is_lent = true;
    acquisition->direct = (uint8_t)(wait - iw->direct_waits->items + 1);
    direct_doorbell_lend(&wait->doorbell, set_record(set, acquisition->record));
    return fd;
}

static struct direct_wait *direct_wait_of(const weir_acquisition *acquisition)
{
    struct direct_waits *waits = instance_wait(acquisition->set->w)->direct_waits;

    WEIR_INVARIANT(timer_is_locked(&instance_wait(acquisition->set->w)->timer));
    WEIR_INVARIANT(acquisition->direct && waits->items[acquisition->direct - 1].is_used);
    return &waits->items[acquisition->direct - 1];
}

bool direct_wait_is_signaled(const weir_acquisition *acquisition)
{
    const struct direct_wait *wait = direct_wait_of(acquisition);

    return wait->is_lent && direct_doorbell_is_rung(wait->doorbell.r);
}

static void direct_wait_take_back(struct direct_wait *wait)
{
    if (wait->is_lent)
        direct_doorbell_take_back(&wait->doorbell);
    wait->is_lent = false;
}

int direct_wait_signal(weir_acquisition *acquisition)
{
    struct direct_wait *wait = direct_wait_of(acquisition);
    int r = wait->is_lent ? direct_doorbell_ring_own(&wait->doorbell) : 0;

    direct_wait_take_back(wait);
    return r;
}

static bool direct_wait_goes_on(const weir_acquisition *acquisition)
{
    return set_used_record_state(acquisition->set, acquisition->record) == RECORD_WAITING;
}

void direct_wait_check(weir_acquisition *acquisition)
{
    struct direct_wait *wait = direct_wait_of(acquisition);
    bool is_emptied = direct_wait_goes_on(acquisition);

    if (!wait->is_lent)
        return;
    if (is_emptied)
        (void)direct_doorbell_empty(&wait->doorbell);
    if (direct_wait_goes_on(acquisition) || !direct_doorbell_is_rung(wait->doorbell.r))
        return;
    if (is_emptied)
        (void)doorbell_write(wait->doorbell.fd, DOORBELL_DIRECT);
    direct_wait_take_back(wait);
    acquisition->signaled = true;
}

void direct_wait_end(weir_acquisition *acquisition)
{
    struct direct_wait *wait = direct_wait_of(acquisition);

    direct_wait_take_back(wait);
    wait->is_used = false;
    acquisition->direct = 0;
}

void direct_waits_close(struct instance_wait *iw)
{
    for (uint32_t i = 0; iw->direct_waits && i < DIRECT_WAITS_MAX; i++)
        if (iw->direct_waits->items[i].participant)
            direct_wait_close(&iw->direct_waits->items[i]);
    os_free(iw->direct_waits);
}

void direct_waits_close_in_child(struct instance_wait *iw)
{
    for (uint32_t i = 0; iw->direct_waits && i < DIRECT_WAITS_MAX; i++)
        if (iw->direct_waits->items[i].participant)
            os_close(iw->direct_waits->items[i].doorbell.fd);
    iw->direct_waits = NULL;
}
