/* SPDX-License-Identifier: MIT */
/*
 * Threads of a process that use one set on a Redis server for a while, in all ways, and see that
 * nothing is granted twice.
 *
 *     engine_crowd PLUGIN URL FILE SLOT THREADS MS CAPACITY [SUBJECT]...
 *
 * FILE is mapped by all processes of the test. It has two words for each subject. The first one has
 * what each process holds, a byte for each SLOT: so one addition counts, and sees what all hold at
 * that moment. The second word has the last fencing token, which is looked at where CAPACITY is 1.
 * Threads use the subjects in turn. With WEIR_TEST_FOREIGN in the environment the processes decide
 * the limits, and not the server. Prints how often what happened.
 */
#include "engine_user.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define THREADS_MAX  64
#define SUBJECTS_MAX 8

struct shared {
    struct {
        _Atomic uint64_t held, fence;
    } subjects[SUBJECTS_MAX];
};

struct held {
    uint64_t hold; /* 0: nothing is held */
    uint32_t subject;
};

struct crowd {
    struct user user;
    struct shared *shared;
    void *set;
    pthread_mutex_t lock;
    uint64_t capacity, end_ns;
    struct held holds[THREADS_MAX];
    unsigned slot;
    uint32_t subjects_n;
    char **subjects;
    _Atomic uint64_t granted, refused, expired, unreachable, denied, taken, losses, again, late_ns;
};

static void count(struct crowd *crowd, uint32_t subject, int64_t n)
{
    uint64_t step = (uint64_t)n << 8 * crowd->slot, sum = 0;
    uint64_t all = atomic_fetch_add(&crowd->shared->subjects[subject].held, step) + step;
    for (unsigned i = 0; i < 8; i++)
        sum += all >> 8 * i & 0xff;
    if (n > 0 && sum > crowd->capacity)
        fprintf(stderr, "slot %u: %016" PRIx64 " is held\n", crowd->slot, all);
    require(n < 0 || sum <= crowd->capacity);
}

/* Returns the place of a hold, or of none (0); NULL if there is no such one. */
static struct held *find_hold(struct crowd *crowd, uint64_t hold)
{
    for (size_t i = 0; i < THREADS_MAX; i++) {
        if (crowd->holds[i].hold == hold)
            return &crowd->holds[i];
    }
    return NULL;
}

/* What was held is held no more, unless it was lost. */
static void drop_hold(struct crowd *crowd, uint64_t hold)
{
    struct held *held = find_hold(crowd, hold);
    if (!held)
        return;
    count(crowd, held->subject, -1);
    held->hold = 0;
}

/* Counts a grant at the moment at which the plugin reports it. */
static int crowd_decided(void *context, void *set, uint64_t token,
                         const struct weir_backend_verdict *verdict)
{
    struct crowd *crowd = context;
    uint32_t subject = ((const struct request *)(uintptr_t)token)->index;
    _Atomic uint64_t *fence = &crowd->shared->subjects[subject].fence;
    int is_held = verdict->result == 0 && verdict->hold;
    pthread_mutex_lock(&crowd->lock);
    int abandoned = user_decided(&crowd->user, set, token, verdict);
    if (!abandoned && is_held) {
        struct held *held = find_hold(crowd, 0);
        require(held);
        count(crowd, subject, 1);
        *held = (struct held){verdict->hold, subject};
        require(crowd->capacity > 1 || verdict->fence > atomic_load(fence));
        if (crowd->capacity == 1)
            atomic_store(fence, verdict->fence);
    }
    pthread_mutex_unlock(&crowd->lock);
    return abandoned;
}

static void crowd_lost(void *context, void *set, uint64_t token, uint64_t hold)
{
    struct crowd *crowd = context;
    (void)set;
    (void)token;
    pthread_mutex_lock(&crowd->lock);
    drop_hold(crowd, hold); /* it may be on its way to be released */
    atomic_fetch_add(&crowd->losses, 1);
    pthread_mutex_unlock(&crowd->lock);
}

static void release(struct crowd *crowd, const struct weir_backend_verdict *verdict, int undo)
{
    const uint64_t used[LIMITS_MAX] = {!undo};
    const struct weir_backend_release how = {
        .size = sizeof(how), .hold = verdict->hold, .used = used, .undo = (uint32_t)undo};
    pthread_mutex_lock(&crowd->lock);
    drop_hold(crowd, verdict->hold);
    pthread_mutex_unlock(&crowd->lock);
    crowd->user.backend->release(crowd->set, &how);
}

static void tally(struct crowd *crowd, int result)
{
    switch (result) {
    case 0:
        atomic_fetch_add(&crowd->granted, 1);
        break;
    case -EAGAIN:
        atomic_fetch_add(&crowd->refused, 1);
        break;
    case -ETIMEDOUT:
        atomic_fetch_add(&crowd->expired, 1);
        break;
    case -ENOTCONN:
    case -ECONNRESET:
        atomic_fetch_add(&crowd->unreachable, 1);
        break;
    case -EACCES:
        atomic_fetch_add(&crowd->denied, 1);
        break;
    default:
        fprintf(stderr, "result %d\n", result);
        require(!"a result that nothing explains");
    }
}

static void one(struct crowd *crowd, uint32_t subject, uint64_t random)
{
    const uint64_t amounts[] = {1, random >> 8 & 1}, rates[] = {0, 1};
    struct request_args args = {.amounts = amounts,
                                .mode = WEIR_BACKEND_WAIT,
                                .timeout_ns = 2000 * MS,
                                .index = subject,
                                .subject = crowd->subjects[subject]};
    struct weir_backend_verdict verdict = {0};
    if (random % 8 == 0)
        args.mode = WEIR_BACKEND_TRY;
    else if (random % 8 == 1)
        args.timeout_ns = (random >> 16) % 3000000; /* many are withdrawn */
    if (random % 16 == 2) {
        args.mode = WEIR_BACKEND_TAKE;
        args.amounts = rates;
    }
    tally(crowd, user_acquire(&crowd->user, crowd->set, &args, &verdict));
    if (verdict.result != 0) {
        struct timespec pause = {0, 200000};
        nanosleep(&pause, NULL);
        return;
    }
    if (verdict.hold == 0) {
        atomic_fetch_add(&crowd->taken, 1);
        return;
    }
    if (random >> 32 & 1) {
        struct timespec pause = {0, (long)((random >> 33) % 300000)};
        nanosleep(&pause, NULL);
    }
    if (random % 5 == 0) {
        const uint64_t left[LIMITS_MAX] = {1};
        crowd->user.backend->return_part(crowd->set, verdict.hold, left);
    }
    release(crowd, &verdict, random % 7 == 0);
}

static void *go(void *of)
{
    struct crowd *crowd = of;
    static _Atomic uint64_t seeds;
    uint64_t number = atomic_fetch_add(&seeds, 1);
    uint64_t x = (number + 1) * UINT64_C(0x9e3779b97f4a7c15) + crowd->slot;
    uint32_t subject = crowd->subjects_n ? (uint32_t)(number % crowd->subjects_n) : 0;
    while (now_ns() < crowd->end_ns) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        one(crowd, subject, x * UINT64_C(0x2545f4914f6cdd1d));
    }
    return NULL;
}

/* Adds up how late it wakes up: so much time the machine has not given to this process. */
static void *watch(void *of)
{
    struct crowd *crowd = of;
    const struct timespec pause = {0, 20 * MS};
    for (uint64_t last = now_ns(), now; last < crowd->end_ns; last = now) {
        nanosleep(&pause, NULL);
        now = now_ns();
        if (now - last > 40 * MS)
            atomic_fetch_add(&crowd->late_ns, now - last - 20 * MS);
    }
    return NULL;
}

static struct shared *map(const char *path)
{
    int fd = open(path, O_RDWR);
    require(fd >= 0);
    void *memory = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    require(memory != MAP_FAILED);
    close(fd);
    return memory;
}

/* Opens the connection, with what else WEIR_TEST_PARAMETERS names: NAME=VALUE, and a space after
 * each. */
static void open_user(struct crowd *crowd, const char *plugin, const char *url)
{
    const char *parameters[32] = {"url", url, "session", "2000", "timeout", "1000"};
    char *more = strdup(getenv("WEIR_TEST_PARAMETERS") ? getenv("WEIR_TEST_PARAMETERS") : "");
    size_t n = 6;
    require(more);
    for (char *name = strtok(more, "="); name; name = strtok(NULL, "=")) {
        require(n + 3 < sizeof(parameters) / sizeof(*parameters));
        parameters[n++] = name;
        parameters[n++] = strtok(NULL, " ");
    }
    struct weir_reason reason = {0};
    int r = user_open(&crowd->user, plugin, &reason, parameters);
    if (r < 0)
        fprintf(stderr, "%s\n", reason.message);
    require(r == 0);
}

int main(int argc, char **argv)
{
    struct crowd crowd = {.lock = PTHREAD_MUTEX_INITIALIZER};
    require(argc >= 8 && argc <= 8 + SUBJECTS_MAX);
    pthread_t threads[THREADS_MAX], watcher;
    size_t threads_n = strtoul(argv[5], NULL, 10);
    crowd.shared = map(argv[3]);
    crowd.slot = (unsigned)strtoul(argv[4], NULL, 10);
    crowd.capacity = strtoull(argv[7], NULL, 10);
    crowd.subjects = &argv[8]; /* argv[8] is NULL where there are none */
    crowd.subjects_n = (uint32_t)argc - 8;
    crowd.user.is_quiet = getenv("WEIR_TEST_QUIET") != NULL;
    crowd.user.is_foreign = getenv("WEIR_TEST_FOREIGN") != NULL;
    require(threads_n <= THREADS_MAX && crowd.slot < 8);
    open_user(&crowd, argv[1], argv[2]);
    crowd.user.host.context = &crowd;
    crowd.user.host.decided = crowd_decided;
    crowd.user.host.lost = crowd_lost;
    crowd.set = user_open_set(&crowd.user, "crowd", crowd.capacity, 1000000, crowd.subjects_n > 0);
    user_start(&crowd.user);
    crowd.end_ns = now_ns() + strtoull(argv[6], NULL, 10) * MS;
    require(pthread_create(&watcher, NULL, watch, &crowd) == 0);
    for (size_t i = 0; i < threads_n; i++)
        require(pthread_create(&threads[i], NULL, go, &crowd) == 0);
    pthread_join(watcher, NULL);
    for (size_t i = 0; i < threads_n; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < THREADS_MAX; i++)
        require(crowd.holds[i].hold == 0);
    crowd.user.backend->set_close(crowd.set);
    user_close(&crowd.user);
    printf("granted %" PRIu64 " refused %" PRIu64 " expired %" PRIu64 " unreachable %" PRIu64
           " denied %" PRIu64 " taken %" PRIu64 " losses %" PRIu64 " late %" PRIu64 "\n",
           crowd.granted, crowd.refused, crowd.expired, crowd.unreachable, crowd.denied,
           crowd.taken, crowd.losses, crowd.late_ns / MS);
    return 0;
}
