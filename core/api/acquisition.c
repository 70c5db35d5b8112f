/* SPDX-License-Identifier: MIT */
/* Acquisitions: looking at them, updating them, giving them back. acquire.c makes them. */
#include "api/acquisition.h"

#include "api/instance.h"
#include "api/request.h"
#include "base/mutant.h"
#include "base/sched_point.h"
#include "os/os.h"
#include "peer/participant.h"
#include "wait/cq.h"
#include "wait/timer_thread.h"
#include <errno.h>
#include <sys/stat.h>

static struct record *record_of(const weir_acquisition *acquisition)
{
    return record_at(acquisition->set->region, acquisition->record);
}

static weir_acquisition *memory_for(struct actor *actor, uint32_t limits_n)
{
    weir_acquisition *acquisition = actor->cache;
    uint32_t n = limits_n < ACQUISITION_LIMITS ? ACQUISITION_LIMITS : limits_n;

    if (limits_n > ACQUISITION_LIMITS || !acquisition || MUTANT(404))
        return sys_alloc(1, sizeof(*acquisition) + 2 * n * sizeof(uint64_t));
    actor->cache = acquisition->next;
    actor->cache_n--;
    if (acquisition->set) /* it is ready for that, which wants no more for now */
        record_free(actor, acquisition->set, acquisition->record);
    return acquisition;
}

static inline weir_acquisition *without_amounts(struct actor *actor, weir_set *set)
{
    weir_acquisition *acquisition = memory_for(actor, set->limits.n);

    if (!acquisition)
        return NULL;
    *acquisition = (weir_acquisition){.set = set, .fd = -1};
    actor_hold(actor);
    return acquisition;
}

weir_acquisition *acquisition_adopt(struct actor *actor, weir_set *set, uint32_t record,
                                    uint32_t kept)
{
    const struct record *r = record_at(set->region, record);
    weir_acquisition *acquisition = without_amounts(actor, set);

    if (!acquisition)
        return NULL;
    acquisition->record = record;
    acquisition->keeping = kept;
    for (uint32_t i = 0; i < set->limits.n; i++)
        acquisition_amounts(acquisition)[i] = acquisition_used(acquisition)[i] =
            record_load(&r->amounts[i]);
    return acquisition;
}

weir_acquisition *acquisition_new(struct actor *actor, weir_set *set, const uint64_t *amounts)
{
    uint32_t n = set->limits.n;
    uint64_t any = 0;
    weir_acquisition *acquisition = without_amounts(actor, set);

    if (!acquisition)
        return NULL;
    for (uint32_t i = 0; i < n; i++) {
        acquisition->values[i] = acquisition->values[n + i] = amounts[i];
        any |= amounts[i];
    }
    if (!any)
        return acquisition;
    acquisition->record = record_new(actor, set);
    if (!acquisition->record) {
        acquisition_free(actor, acquisition);
        return NULL;
    }
    return acquisition;
}

weir_acquisition *acquisition_next(const weir_acquisition *acquisition)
{
    return acquisition->next;
}

void acquisition_free(struct actor *actor, weir_acquisition *acquisition)
{
    weir_set *set = acquisition->set;

    if (acquisition->keeping)
        kept_free(set, acquisition->keeping);
    if (acquisition->record)
        record_free(actor, set, acquisition->record);
    if (set->limits.n <= ACQUISITION_LIMITS && actor->cache_n < CACHE_MAX) {
        acquisition->set = NULL;
        acquisition->next = actor->cache;
        actor->cache = acquisition;
        actor->cache_n++;
    } else {
        sys_free(acquisition);
    }
    actor_drop(actor);
}

static enum record_state state_of(const weir_acquisition *acquisition)
{
    if (!acquisition->record)
        return acquisition->canceled ? RECORD_CANCELED : RECORD_HELD;
    return record_state(set_word(acquisition->set, acquisition->record));
}

static void wake_blocked(const weir_acquisition *acquisition)
{
    const uint32_t *futex = record_futex(record_of(acquisition));

    if (acquisition->set->member)
        sys_futex_wake_shared(futex, 1);
    else
        sys_futex_wake(futex, 1);
}

int acquisition_signal(weir_acquisition *acquisition)
{
    int r;

    if (acquisition->blocked)
        wake_blocked(acquisition);
    if (acquisition->fd < 0 || acquisition->signaled)
        return 0;
    if (acquisition->grants_only && state_of(acquisition) != RECORD_HELD && !MUTANT(100))
        return 0;
    /* Adding 1 to a descriptor that holds 0 fails only if it was closed behind our back. */
    r = sys_signal_fd(acquisition->fd);
    acquisition->signaled = r == 0 && !MUTANT(91);
    return r;
}

int acquisition_result_of(enum record_state state)
{
    static const int results[] = {
        [RECORD_FREE] = -ECANCELED,
        [RECORD_WAITING] = -EINPROGRESS,
        [RECORD_HELD] = 0,
        [RECORD_TIMED_OUT] = -ETIMEDOUT,
        [RECORD_REFUSED] = -EAGAIN,
        [RECORD_CANCELED] = -ECANCELED,
        [RECORD_SHUT_DOWN] = -ESHUTDOWN,
        [RECORD_TURNED_AWAY] = -ENOBUFS,
        [RECORD_BROKEN] = -EUCLEAN,
    };

    return results[state];
}

int weir_acquisition_result(weir_acquisition *acquisition)
{
    enum record_state state;
    bool told;

    if (instance_forked(acquisition->set->w))
        return -ECHILD;
    /* In this order: it may be decided, and told of, between the two. */
    told = atomic_load_explicit(&acquisition->told, memory_order_acquire);
    STEP();
    state = state_of(acquisition);
    STEP();
    if (MUTANT(691))
        told = atomic_load(&acquisition->told);
    if (state == RECORD_WAITING && told && acquisition->set->member && !MUTANT(549)) {
        member_break(acquisition->set->member); /* somebody has tampered with it */
        state = RECORD_BROKEN;
    }
    /* That a reservation is granted was never news. */
    if (state == RECORD_HELD && (!acquisition->reserved || MUTANT(114)))
        acquisition_see(acquisition);
    return acquisition_result_of(state);
}

/* The fd, made if there is none yet. The caller holds the keeper's lock. */
static int fd_of(weir_acquisition *acquisition, bool grants_only)
{
    int fd = acquisition->fd;

    if (fd >= 0)
        return acquisition->grants_only == grants_only ? fd : -EINVAL;
    fd = sys_eventfd();
    if (fd >= 0) {
        acquisition->fd = fd;
        acquisition->grants_only = grants_only;
    }
    return fd;
}

/* Whether it can have a descriptor. */
static int check_fd(weir_acquisition *acquisition)
{
    if (instance_forked(acquisition->set->w))
        return -ECHILD;
    return queue_has(acquisition) ? -EBUSY : 0;
}

/* Whoever decides from now on writes to it. The caller holds the keeper's lock. */
static int signal_if_decided(weir_acquisition *acquisition)
{
    if (!MUTANT(553))
        acquisition->actor = NULL; /* there is a descriptor to be forgotten */
    return state_of(acquisition) != RECORD_WAITING && !MUTANT(90) ? acquisition_signal(acquisition)
                                                                  : 0;
}

static int open_fd(weir_acquisition *acquisition, bool grants_only)
{
    weir *w = acquisition->set->w;
    int fd, r = check_fd(acquisition);

    if (r < 0)
        return r;
    pthread_mutex_lock(&w->keeper.lock);
    fd = fd_of(acquisition, grants_only);
    if (fd >= 0)
        r = signal_if_decided(acquisition);
    pthread_mutex_unlock(&w->keeper.lock);
    return r < 0 ? r : fd;
}

int weir_acquisition_fd(weir_acquisition *acquisition)
{
    return open_fd(acquisition, false);
}

int weir_acquisition_grant_fd(weir_acquisition *acquisition)
{
    return open_fd(acquisition, true);
}

/* What has no type can be written to without harm, and if it is no eventfd says so then. Nobody comes
 * back from a wait for it because nothing was added. */
static int check_eventfd(int fd)
{
    struct stat found;
    int r = sys_stat_fd(fd, &found);

    if (r < 0)
        return r;
    if (found.st_mode & S_IFMT)
        return -EINVAL;
    return MUTANT(673) ? 0 : sys_probe_fd(fd);
}

/* The caller holds the keeper's lock. */
static int attach(weir_acquisition *acquisition, int event_fd)
{
    int r;

    if (acquisition->fd >= 0)
        return -EINVAL;
    acquisition->fd = event_fd;
    acquisition->attached = !MUTANT(670);
    r = signal_if_decided(acquisition);
    if (r < 0 && !MUTANT(671)) {
        acquisition->fd = -1;
        acquisition->attached = false;
    }
    return r;
}

int weir_acquisition_attach(weir_acquisition *acquisition, int event_fd)
{
    weir *w = acquisition->set->w;
    int r = check_fd(acquisition);

    if (r == 0 && !MUTANT(672))
        r = check_eventfd(event_fd);
    if (r < 0)
        return r;
    pthread_mutex_lock(&w->keeper.lock);
    r = attach(acquisition, event_fd);
    pthread_mutex_unlock(&w->keeper.lock);
    return r;
}

const char *weir_acquisition_set(const weir_acquisition *acquisition)
{
    return set_name(acquisition->set);
}

const char *weir_acquisition_config(const weir_acquisition *acquisition, const char *name)
{
    return weir_set_config(acquisition->set, name);
}

static int check_update(weir_acquisition *acquisition, uint32_t i, uint64_t used)
{
    uint64_t amount = acquisition_amounts(acquisition)[i];
    enum weir_limit_type type = acquisition->set->limits.items[i].type;

    if ((type == WEIR_LIMIT_RESOURCE && !MUTANT(32)) || !amount)
        return -EINVAL;
    if (type == WEIR_LIMIT_CALL && (used > amount || (amount == 1 && used != 1)))
        return -ERANGE;
    return 0;
}

static void update(weir_acquisition *acquisition, uint32_t i, uint64_t used)
{
    const struct limit *limit = &acquisition->set->limits.items[i];

    acquisition_used(acquisition)[i] = used;
    acquisition->updated |= UINT64_C(1) << i;
    if (used != acquisition_amounts(acquisition)[i])
        acquisition->differs = true;
    if (used > acquisition_amounts(acquisition)[i])
        request_warn(acquisition->set, limit->key, "was used beyond the amount acquired");
}

/* Of any set; apart from what suffices for most, which needs few registers. */
static __attribute__((noinline)) int update_all(weir_acquisition *acquisition, const char *key,
                                                uint64_t used)
{
    weir_set *set = acquisition->set;
    uint64_t meant = 0; /* bit i: limit i */

    /* Of whom there is an actor it is known that he holds it. */
    if (!key || (!acquisition->actor && state_of(acquisition) != RECORD_HELD))
        return -EINVAL;
    for (uint32_t i = 0; i < set->limits.n; i++) {
        int r;

        if (!key_equal(set->limits.items[i].key, key))
            continue;
        r = check_update(acquisition, i, used);
        if (r < 0)
            return r;
        meant |= UINT64_C(1) << i;
    }
    if (!meant && (acquisition->strict || set->strict))
        return -ENOENT;
    if (!meant)
        request_warn(set, key, "is unknown and was skipped");
    acquisition_see(acquisition);
    for (; meant; meant &= meant - 1)
        update(acquisition, (uint32_t)__builtin_ctzll(meant), used);
    return 0;
}

/* The same where the limits that are meant are known, and that it is held. */
static __attribute__((noinline)) int update_named(weir_acquisition *acquisition, const char *key,
                                                  uint64_t used)
{
    if (!acquisition_names(acquisition, key))
        return update_all(acquisition, key, used);
    for (uint32_t named = acquisition->named; named; named &= named - 1) {
        int r = check_update(acquisition, (uint32_t)__builtin_ctz(named), used);

        if (r < 0)
            return r;
    }
    for (uint32_t named = acquisition->named; named; named &= named - 1)
        update(acquisition, (uint32_t)__builtin_ctz(named), used);
    return 0;
}

int weir_update(weir_acquisition *acquisition, const char *key, uint64_t used)
{
    const weir_set *set = acquisition->set;
    int r;

    if (instance_forked(set->w))
        return -ECHILD;
    if (set_is_broken(set) && !MUTANT(655))
        return -EUCLEAN;
    if (acquisition->actor && set->limits.n > 1)
        return update_named(acquisition, key, used);
    if (!acquisition->actor || !key || !key_equal(set->limits.items->key, key))
        return update_all(acquisition, key, used);
    r = check_update(acquisition, 0, used); /* it is held, of one limit, and known to be */
    if (r == 0)
        update(acquisition, 0, used);
    return r;
}

/* What a release comes to. */
struct end {
    bool changes_set; /* otherwise the record can be freed without publishing */
    bool missing;     /* an update that was required */
};

static struct end end_of(weir_acquisition *acquisition, bool unused)
{
    struct end end = {false, false};

    for (uint32_t i = 0; i < acquisition->set->limits.n; i++) {
        uint64_t amount = acquisition_amounts(acquisition)[i];

        if (!amount)
            continue;
        end.missing |= acquisition_lacks_update(acquisition, i);
        end.changes_set |= acquisition->set->limits.items[i].type == WEIR_LIMIT_RESOURCE ||
                           unused || acquisition_used(acquisition)[i] != amount;
    }
    end.missing &= !unused;
    return end;
}

static int settle(struct actor *actor, weir_acquisition *acquisition, bool unused)
{
    struct counters *counters = actor_counters(actor, acquisition->set->number);
    struct end end = end_of(acquisition, unused);

    if (end.changes_set) {
        const struct settlement settlement = {.amounts = acquisition_amounts(acquisition),
                                              .used = acquisition_used(acquisition),
                                              .unused = unused};

        set_settle(actor, acquisition->set, acquisition->record, &settlement);
    } else {
        acquisition_free_word(acquisition->set, acquisition->record);
        count(&counters->released, 1);
        count(&counters->canceled, unused);
    }
    if (end.missing)
        count(&counters->missing_update, 1);
    return end.missing ? -EPROTO : 0;
}

bool acquisition_undo(struct actor *actor, weir_set *set, uint32_t record, uint64_t word)
{
    const struct record *r = record_at(set->region, record);
    uint64_t amounts[WEIR_LIMITS_MAX];
    const struct settlement settlement = {.amounts = amounts, .used = amounts, .unused = true};

    for (uint32_t i = 0; i < set->limits.n; i++)
        amounts[i] = record_load(&r->amounts[i]);
    if (set->head)
        return set_settle_exactly(actor, set, record, word, &settlement);
    acquisition_free_word(set, record);
    count(&actor_counters(actor, set->number)->released, 1);
    count(&actor_counters(actor, set->number)->canceled, 1);
    return true;
}

static bool was_signaled(weir_acquisition *acquisition)
{
    weir *w = acquisition->set->w;
    bool signaled;

    pthread_mutex_lock(&w->keeper.lock);
    signaled = acquisition->signaled;
    pthread_mutex_unlock(&w->keeper.lock);
    return signaled;
}

/* A pending acquisition becomes CANCELED; false: it was decided before. */
static bool withdraw(struct actor *actor, weir_acquisition *acquisition)
{
    return state_of(acquisition) == RECORD_WAITING &&
           set_withdraw(actor, acquisition->set, acquisition->record, 0, RECORD_CANCELED);
}

/* Takes a grant back that the caller does not know of; or says why not. */
static int take_back(struct actor *actor, weir_acquisition *acquisition)
{
    if (state_of(acquisition) != RECORD_HELD)
        return -EALREADY;
    if (!MUTANT(96))
        settle(actor, acquisition, true);
    return 0;
}

/* Tells whoever waits for its descriptor that it was canceled. */
static void tell(weir_acquisition *acquisition)
{
    weir *w = acquisition->set->w;

    pthread_mutex_lock(&w->keeper.lock);
    acquisition_signal(acquisition);
    pthread_mutex_unlock(&w->keeper.lock);
}

/* A reservation of nothing: only the caller's own. */
static int cancel_nothing(const struct actor *actor, weir_acquisition *acquisition)
{
    struct counters *counters = actor_counters(actor, acquisition->set->number);

    if (acquisition->canceled)
        return -EALREADY;
    acquisition->canceled = true;
    count(&counters->canceled, 1);
    count(&counters->released, 1);
    return 0;
}

int weir_cancel(weir_acquisition *acquisition)
{
    weir_set *set = acquisition->set;
    weir_queue *queue = acquisition->queue;
    struct actor *actor;
    int r = 0;

    if (instance_forked(set->w))
        return -ECHILD;
    if (queue)
        return queue_cancel_acquisition(queue, acquisition);
    if (acquisition->seen)
        return -EALREADY;
    actor = actor_borrow(set);
    if (!acquisition->record)
        r = cancel_nothing(actor, acquisition);
    else if (!withdraw(actor, acquisition))
        r = take_back(actor, acquisition);
    actor_return(actor);
    if (r == 0)
        tell(acquisition);
    return r;
}

/* Ends an acquisition in whatever state it is; its record is FREE afterwards. */
static int end(struct actor *actor, weir_acquisition *acquisition)
{
    int r = 0;

    withdraw(actor, acquisition);
    if (state_of(acquisition) == RECORD_HELD) {
        bool unused = !acquisition->seen && !acquisition->reserved && !was_signaled(acquisition);

        r = settle(actor, acquisition, unused && !MUTANT(19));
    } else if (MUTANT(95) && state_of(acquisition) == RECORD_TIMED_OUT) {
        settle(actor, acquisition, true);
    } else if (state_of(acquisition) != RECORD_FREE) {
        acquisition_free_word(acquisition->set, acquisition->record);
    }
    return r;
}

static void close_fd(const weir_acquisition *acquisition)
{
    if (acquisition->fd >= 0 && !acquisition->attached)
        sys_close(acquisition->fd);
}

/* Nobody will tell of it any more. */
static void forget(weir_acquisition *acquisition)
{
    weir *w = acquisition->set->w;

    if (acquisition->kept)
        timekeeper_forget(w, acquisition->keeping);
    close_fd(acquisition);
}

static int release_in_child(weir_acquisition *acquisition)
{
    close_fd(acquisition);
    sys_free(acquisition);
    return -ECHILD;
}

int acquisition_release(weir_acquisition *acquisition)
{
    struct actor *actor;
    int r = 0;

    if (instance_forked(acquisition->set->w))
        return release_in_child(acquisition);
    queue_forget(acquisition);
    actor = actor_borrow(acquisition->set);
    if (acquisition->record)
        r = end(actor, acquisition);
    else if (!acquisition->canceled)
        count(&actor_counters(actor, acquisition->set->number)->released, 1);
    forget(acquisition);
    acquisition_free(actor, acquisition);
    actor_return(actor);
    return r;
}
