/* SPDX-License-Identifier: MIT */
/*
 * A node of the chaos runner (`cluster`): threads that use five sets on a Redis server through the
 * library, in all ways in which a program can, until SIGTERM. Each writes down what it asked for,
 * what it was told and when, into a file that it maps: so nothing of that is lost by SIGKILL. It
 * judges nothing: cluster_checker.py does.
 *
 *     cluster_node CONFIG LOGS THREADS SEED
 *
 * CONFIG is a configuration with the sets `api`, of two resources and a rate, `quota`, of a rate,
 * `users`, of a resource for each subject, `leased`, of a rate with leases, and `foreign`, of a
 * resource and a rate that the processes decide. LOGS begins the names of the files: LOGS.N of
 * thread N, and LOGS.late.
 */
#include "lib/random.h"
#include "lib/require.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <weir/weir.h>

enum { THREADS_MAX = 16, RECORDS_MAX = 1 << 19, LIMITS = 3, SLOTS = 0, SEATS = 1, TOKENS = 2 };
enum { SUBJECTS = 4 };
/* Subject N of `users`: USERS + N. */
enum { API, QUOTA, USERS, LEASED = USERS + SUBJECTS, FOREIGN };
enum { POOLS = 5 };
#define LEASE (50 * MS) /* as CONFIG says */
#define HOARD_PERIOD                                                                               \
    (600 * MS) /* the set `leased` rests from HOARD_REST on; all hoard at HOARD_AT */
#define HOARD_REST (250 * MS)
#define HOARD_AT   (480 * MS)
enum operation { BLOCK = 1, TRY, DESCRIPTOR, QUEUE, TAKE, RESERVE };
enum state { UNUSED, ASKED, HELD, RELEASING, ENDED };

/* A request, as far as it has come. Instants are by CLOCK_MONOTONIC, ns. The state is written last,
 * so what it says of the other fields is so. */
struct record {
    _Atomic uint64_t state;
    uint64_t operation, set, amounts[LIMITS], timeout_ns, asked_ns;
    int64_t result;                       /* of the request */
    uint64_t granted_ns, known_ns, fence; /* if it is 0: when it was granted, as the library says;
                                             when the program had it */
    _Atomic uint64_t held_ns;             /* when it was still held, for certain */
    uint64_t used, ended_ns;              /* units of the rate; when all was over */
    int64_t end;                          /* of the release; -EOWNERDEAD: the session has ended */
    _Atomic uint64_t returned_ns; /* from when on no more is held than is `left`; 0: never */
    uint64_t left[LIMITS];
};
_Static_assert(sizeof(struct record) == 160, "cluster_checker.py reads it");

struct late {
    uint64_t at_ns, late_ns;
};

struct asker {
    pthread_t thread;
    uint64_t random;
    struct record *records;
    size_t records_n;
};

static const char *const keys[LIMITS] = {"slots", "seats", "tokens"};
static weir *instance;
static weir_pool *pools[POOLS];
static weir_queue *queue;
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static struct asker askers[THREADS_MAX + 1];
static atomic_bool stopping;

static void *map(const char *prefix, const char *suffix, size_t size)
{
    char path[512];

    snprintf(path, sizeof(path), "%s.%s", prefix, suffix);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    require(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    require(memory != MAP_FAILED);
    close(fd);
    return memory;
}

static void become(struct record *record, enum state state)
{
    atomic_store(&record->state, state);
}

/* ---- holding ---- */

static uint64_t hold_ns(uint64_t *random, const struct record *record)
{
    if (record->amounts[SLOTS] == 1 && random_below(random, 100) == 0)
        return 100 * MS + random_below(random, random_below(random, 3) ? 800 * MS : 3 * SECOND);
    return random_below(random, random_below(random, 8) == 0 ? 30 * MS : 2 * MS);
}

/* What an engine has not granted, but a lease of this process, has no fencing token. */
static int fence_of(const weir_acquisition *acquisition, uint64_t *ret)
{
    int r = weir_acquisition_fence(acquisition, ret);

    if (r == -EOPNOTSUPP)
        *ret = 0;
    require(r == 0 || r == -EOWNERDEAD || r == -EOPNOTSUPP);
    return r == -EOPNOTSUPP ? 0 : r;
}

/* Returns a part of one limit, or all of it. */
static void return_part(struct asker *asker, weir_acquisition *acquisition, struct record *record)
{
    uint64_t i = random_below(&asker->random, LIMITS);
    uint64_t n = random_below(&asker->random, record->amounts[i] + 1);

    if (n == 0)
        return;
    for (int k = 0; k < LIMITS; k++)
        record->left[k] = record->amounts[k];
    record->left[i] -= n;
    atomic_store(&record->returned_ns, clock_now());
    require(weir_return(acquisition, keys[i], n) == 0);
}

/* Holds for a while, and looks again and again whether it still does. As soon as it learns that it
 * does not, it ends that: a program must not go on then. */
static void hold(struct asker *asker, weir_acquisition *acquisition, struct record *record)
{
    uint64_t now = clock_now(), until = now + hold_ns(&asker->random, record), fence;
    bool returns = random_below(&asker->random, 3) == 0;

    for (;; now = clock_now()) {
        if (fence_of(acquisition, &fence) < 0)
            return;
        require(fence == record->fence);
        atomic_store(&record->held_ns, now);
        if (now >= until || atomic_load(&stopping))
            return;
        if (returns)
            return_part(asker, acquisition, record);
        returns = false;
        pause_ns(until - now < MS ? until - now : MS);
    }
}

/* Says what was used of the rate, which is required of it. */
static void use(struct asker *asker, weir_acquisition *acquisition, struct record *record)
{
    bool has_returned = atomic_load(&record->returned_ns) != 0;
    uint64_t amount = has_returned ? record->left[TOKENS] : record->amounts[TOKENS];

    record->used =
        random_below(&asker->random, 3) ? amount : random_below(&asker->random, amount + 1);
    if (amount > 0)
        require(weir_update(acquisition, "tokens", record->used) == 0);
}

static void release(weir_acquisition *acquisition, struct record *record)
{
    uint64_t now;

    become(record, RELEASING);
    now = clock_now();
    record->end = weir_release(&acquisition);
    require(record->end == 0 || record->end == -EOWNERDEAD);
    if (record->end == 0)
        atomic_store(&record->held_ns, now);
}

/* Waits for the instant of a reservation. Returns whether it came, and the reservation was not
 * undone. */
static bool await_instant(struct asker *asker, weir_acquisition *acquisition,
                          const struct record *record)
{
    bool undoes = random_below(&asker->random, 5) == 0;
    uint64_t now;
    int r;

    while (!undoes && (now = clock_now()) < record->granted_ns) {
        pause_ns(record->granted_ns - now < MS ? record->granted_ns - now : MS);
        undoes = atomic_load(&stopping);
    }
    if (!undoes)
        return true;
    r = weir_cancel(acquisition);
    require(r == 0 || r == -EOWNERDEAD);
    return false;
}

/* Of a grant: holds it for a while, and releases it. */
static void hold_and_release(struct asker *asker, weir_acquisition *acquisition,
                             struct record *record)
{
    int r = fence_of(acquisition, &record->fence);

    record->known_ns = clock_now();
    require(weir_acquisition_granted_ns(acquisition, &record->granted_ns) == 0);
    atomic_store(&record->held_ns, record->granted_ns);
    become(record, HELD);
    if (record->operation == RESERVE && !await_instant(asker, acquisition, record)) {
        release(acquisition, record);
        return;
    }
    if (r == 0)
        hold(asker, acquisition, record);
    use(asker, acquisition, record);
    release(acquisition, record);
}

/* ---- asking ---- */

static const char *const subjects[SUBJECTS] = {"0", "1", "2", "3"};

static bool is_of_subject(const struct record *record)
{
    return record->set >= USERS && record->set < LEASED;
}

/* Returns whether a request says something of a limit. */
static bool is_asked_for(const struct record *record, int limit)
{
    if (record->set == FOREIGN)
        return record->amounts[limit] > 0;
    return record->set == API || limit == (is_of_subject(record) ? SLOTS : TOKENS);
}

static struct weir_request request_of(const struct record *record, struct weir_amount *amounts)
{
    bool is_of_user = is_of_subject(record);
    size_t n = 0;

    for (int i = 0; i < LIMITS; i++)
        if (is_asked_for(record, i))
            amounts[n++] = (struct weir_amount){keys[i], record->amounts[i]};
    return (struct weir_request){.subject = is_of_user ? subjects[record->set - USERS] : NULL,
                                 .subject_size = is_of_user,
                                 .size = sizeof(struct weir_request),
                                 .amounts = amounts,
                                 .amounts_n = n,
                                 .timeout_ns = record->timeout_ns};
}

/* The set `leased` is left alone before the hoarders use it, so that all is there. */
static uint64_t choose_set(struct asker *asker)
{
    uint64_t set = random_below(&asker->random, 7);

    if (set == USERS)
        return USERS + random_below(&asker->random, SUBJECTS);
    if (set == 6)
        return FOREIGN;
    if (set > 4)
        return clock_now() % HOARD_PERIOD < HOARD_REST ? LEASED : API;
    return set == QUOTA ? QUOTA : API;
}

/* For rates alone: mostly for good, sometimes in advance. */
static enum operation choose_for_rate(struct asker *asker, uint64_t operation)
{
    switch (random_below(&asker->random, 6)) {
    case 0:
    case 1:
    case 2:
        return TAKE;
    case 3:
        return RESERVE;
    default:
        return (enum operation)operation;
    }
}

/* There is nothing in advance. */
static void choose_foreign(uint64_t *random, struct record *record)
{
    bool is_for_good = random_below(random, 4) == 0;

    if (is_for_good)
        record->operation = TAKE;
    record->amounts[SLOTS] = is_for_good ? 0 : 1 + random_below(random, 2);
    record->amounts[TOKENS] = is_for_good ? 1 + random_below(random, 3) : random_below(random, 3);
}

/* Decides what to ask for. */
static void choose(struct asker *asker, struct record *record)
{
    uint64_t *random = &asker->random;

    record->set = choose_set(asker);
    record->operation = BLOCK + random_below(random, 4);
    if (is_of_subject(record)) {
        record->amounts[SLOTS] = 1;
    } else if (record->set == FOREIGN) {
        choose_foreign(random, record);
    } else if (record->set != API) {
        record->operation = choose_for_rate(asker, record->operation);
        record->amounts[TOKENS] = 1 + random_below(random, 3);
    } else {
        record->amounts[SLOTS] = 1 + random_below(random, random_below(random, 3) ? 1 : 3);
        record->amounts[SEATS] = random_below(random, 4);
        record->amounts[TOKENS] = random_below(random, 3);
    }
    if (record->operation != BLOCK && record->operation != DESCRIPTOR && record->operation != QUEUE)
        return;
    record->timeout_ns = random_below(random, 4) ? 2 * SECOND + random_below(random, 8 * SECOND)
                                                 : 1 + random_below(random, 20 * MS);
}

/* Waits until the acquisition is decided; sometimes only for a moment. */
static void await(struct asker *asker, weir_acquisition *acquisition)
{
    struct pollfd fd = {.fd = weir_acquisition_fd(acquisition), .events = POLLIN};

    require(fd.fd >= 0);
    if (random_below(&asker->random, 6)) {
        while (poll(&fd, 1, -1) < 1)
            require(errno == EINTR);
    } else if (poll(&fd, 1, (int)random_below(&asker->random, 8)) == 0) {
        int r = weir_cancel(acquisition);
        require(r == 0 || r == -EALREADY);
    }
}

static int ask_by_descriptor(struct asker *asker, weir_pool *pool,
                             const struct weir_request *request, weir_acquisition **ret)
{
    int r = weir_submit(pool, request, ret, NULL);

    if (r < 0)
        return r;
    if (r > 0)
        await(asker, *ret);
    r = weir_acquisition_result(*ret);
    require(r != -EINPROGRESS);
    if (r < 0 && r != -EOWNERDEAD)
        weir_release(ret);
    return r == -EOWNERDEAD ? 0 : r;
}

/* One thread of the process at a time has the completion queue. */
static int ask_by_queue(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret)
{
    struct weir_completion done = {0};
    struct pollfd fd = {.fd = weir_queue_fd(queue), .events = POLLIN};

    pthread_mutex_lock(&queue_lock);
    int r = weir_queue_submit(queue, pool, request, 7, NULL, NULL);
    while (r == 0 && weir_queue_reap(queue, &done, 1) == 0)
        require(poll(&fd, 1, -1) == 1 || errno == EINTR);
    pthread_mutex_unlock(&queue_lock);
    *ret = done.acquisition;
    return r < 0 ? r : done.result;
}

/* Not far ahead: nothing is granted before that instant. */
static int ask_in_advance(struct asker *asker, weir_pool *pool, struct weir_request *request,
                          weir_acquisition **ret)
{
    uint64_t at_ns, granted_ns;
    int r;

    request->max_wait_ns = 1 + random_below(&asker->random, 100 * MS);
    r = weir_reserve(pool, request, ret, &at_ns, NULL);
    require(r < 0 || weir_acquisition_granted_ns(*ret, &granted_ns) == 0);
    require(r < 0 || granted_ns == at_ns);
    return r;
}

/* All subjects have one. */
static weir_pool *pool_of(const struct record *record)
{
    if (is_of_subject(record))
        return pools[USERS];
    return pools[record->set < LEASED ? record->set : record->set - SUBJECTS + 1];
}

static int ask(struct asker *asker, struct record *record, weir_acquisition **ret)
{
    weir_pool *pool = pool_of(record);
    struct weir_amount amounts[LIMITS];
    struct weir_request request = request_of(record, amounts);

    switch (record->operation) {
    case BLOCK:
        return weir_acquire(pool, &request, ret, NULL);
    case TRY:
        return weir_try_acquire(pool, &request, ret, NULL);
    case DESCRIPTOR:
        return ask_by_descriptor(asker, pool, &request, ret);
    case QUEUE:
        return ask_by_queue(pool, &request, ret);
    case RESERVE:
        return ask_in_advance(asker, pool, &request, ret);
    default:
        return weir_take(pool, &request, NULL);
    }
}

static struct record *next_record(struct asker *asker)
{
    require(asker->records_n + 1 < RECORDS_MAX);
    return &asker->records[asker->records_n++];
}

static void carry_out(struct asker *asker, struct record *record)
{
    weir_acquisition *acquisition = NULL;

    record->asked_ns = clock_now();
    become(record, ASKED);
    record->result = ask(asker, record, &acquisition);
    if (record->result == 0 && acquisition) {
        hold_and_release(asker, acquisition, record);
    } else if (record->result == 0) {
        record->used = record->amounts[TOKENS];
        record->granted_ns = record->known_ns = clock_now();
    }
    record->ended_ns = clock_now();
    become(record, ENDED);
}

static void *run(void *argument)
{
    struct asker *asker = argument;

    while (!atomic_load(&stopping)) {
        struct record *record = next_record(asker);

        choose(asker, record);
        carry_out(asker, record);
        pause_ns(random_below(&asker->random, 6 * MS));
    }
    return NULL;
}

/* ---- hoarding leased quota ---- */

static bool take_leased(struct asker *asker, uint64_t units)
{
    struct record *record = next_record(asker);

    record->set = LEASED;
    record->operation = TAKE;
    record->amounts[TOKENS] = units;
    carry_out(asker, record);
    return record->result == 0;
}

/* Brings batches in, uses just enough of them that they do not go back, and the rest shortly before
 * they end, with all that has come meanwhile. */
static void hoard(struct asker *asker)
{
    uint64_t until = clock_now() + LEASE * 2 / 5 + random_below(&asker->random, LEASE / 2);

    for (int i = 0; i < 15; i++) {
        take_leased(asker, 1);
        if (i % 3 == 2)
            pause_ns(MS);
    }
    while (clock_now() < until) {
        take_leased(asker, 1);
        pause_ns(LEASE / 8);
    }
    for (int refused = 0; refused < 3 && !atomic_load(&stopping);)
        refused += !take_leased(asker, 1 + random_below(&asker->random, 3));
}

/* All processes hoard at the same times. */
static void *run_hoarder(void *argument)
{
    struct asker *asker = argument;

    while (!atomic_load(&stopping)) {
        uint64_t phase = clock_now() % HOARD_PERIOD;

        if (phase >= HOARD_AT && phase < HOARD_AT + 5 * MS)
            hoard(asker);
        pause_ns(MS);
    }
    return NULL;
}

/* ---- the process ---- */

static void open_sets(const char *config)
{
    static const char *const sets[POOLS] = {"api", "quota", "users", "leased", "foreign"};
    const struct weir_options options = {.size = sizeof(options), .file = config};
    struct weir_error error;

    if (weir_open(&instance, &options, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    for (int i = 0; i < POOLS; i++)
        require(weir_pool_open(&pools[i], instance, sets[i], 0, NULL) == 0);
    require(weir_queue_open(&queue, instance, 8) == 0);
}

/* Until SIGTERM: notes when this thread was woken late, as others may have been then. */
static void watch(const char *logs)
{
    enum { LATE_MAX = 1 << 14 };
    struct late *late = map(logs, "late", LATE_MAX * sizeof(*late));
    struct timespec beat = {.tv_nsec = 20 * (long)MS};
    size_t n = 0;
    sigset_t term;

    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    for (;;) {
        uint64_t due = clock_now() + 20 * MS;
        if (sigtimedwait(&term, NULL, &beat) == SIGTERM)
            break;
        uint64_t now = clock_now();
        if (now > due + 20 * MS && n < LATE_MAX)
            late[n++] = (struct late){now, now - due};
    }
    atomic_store(&stopping, true);
}

int main(int argc, char **argv)
{
    sigset_t term;

    require(argc == 5);
    unsigned threads = (unsigned)strtoul(argv[3], NULL, 10);
    require(threads >= 1 && threads <= THREADS_MAX);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, NULL);
    open_sets(argv[1]);
    for (unsigned i = 0; i <= threads; i++) {
        char suffix[16];
        snprintf(suffix, sizeof(suffix), "%u", i);
        askers[i].records = map(argv[2], suffix, RECORDS_MAX * sizeof(struct record));
        askers[i].random = random_case(strtoull(argv[4], NULL, 10), i);
        require(pthread_create(&askers[i].thread, NULL, i < threads ? run : run_hoarder,
                               &askers[i]) == 0);
    }
    watch(argv[2]);
    for (unsigned i = 0; i <= threads; i++)
        require(pthread_join(askers[i].thread, NULL) == 0);
    weir_queue_close(queue);
    for (int i = 0; i < POOLS; i++)
        weir_pool_close(pools[i]);
    weir_close(instance);
    return 0;
}
