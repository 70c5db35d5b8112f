/* SPDX-License-Identifier: MIT */
/*
 * A set that is in use, while its segment is overwritten: bits, bytes, words that would be right
 * elsewhere, whole pages, one change or a storm of them. Whatever is called then gives an error, or
 * goes on. It neither crashes, nor hangs, nor touches memory outside the mapping, which has an
 * inaccessible page on either side. Waits with a timeout end; a waiter of a set that was found
 * broken is notified.
 *
 * Each case is a set made anew: of many limits, which is always inflated; or of one, which is
 * inline while no thread waits; or a keyed one, with room for fewer keys than are asked for. Cases
 * run in children, one per shape of sets; a parent names the case in which one died or got stuck.
 * WEIR_SECONDS: how long, of each kind (0: every case, once); else WEIR_DURATION, else 6. WEIR_SEED
 * repeats the order; WEIR_CASE=KIND:OFFSET:NUMBER:SHAPE runs a single one. An argument is a pattern
 * of the tests to run.
 */
#include "lib/child.h"
#include "shared.h"
#include "shm/segment.h"
#include "shm/segment_layout.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/segment.h>

#include <cmocka.h>

static const char all_limits[] =
    "version: 1\n"
    "sets:\n"
    "  s:\n"
    "    backend: process\n"
    "    limits:\n"
    "      - { type: resource, key: slot, capacity: 4 }\n"
    "      - { type: rate, key: bucket, algorithm: token_bucket, capacity: 1000, window: 1s }\n"
    "      - { type: rate, key: word, algorithm: gcra, capacity: 1000, window: 1s }\n"
    "      - { type: rate, key: wide, algorithm: gcra, capacity: 1001, window: 1s }\n"
    "      - { type: rate, key: leaky, algorithm: leaky_bucket, capacity: 1000, window: 1s }\n"
    "      - { type: rate, key: sliding, algorithm: sliding_window, capacity: 6, window: 10ms }\n"
    "      - { type: rate, key: fixed, algorithm: fixed_window, capacity: 1000, window: 1s }\n"
    "      - { type: call, algorithm: token_bucket, capacity: 1000, window: 1s }\n";

static const char counted[] = "version: 1\n"
                              "sets:\n"
                              "  s:\n"
                              "    backend: process\n"
                              "    limits:\n"
                              "      - { type: resource, key: slot, capacity: 4 }\n";

static const char rated[] =
    "version: 1\n"
    "sets:\n"
    "  s:\n"
    "    backend: process\n"
    "    limits:\n"
    "      - { type: rate, key: word, algorithm: gcra, capacity: 1000, window: 1s }\n";

static const char keyed_count[] = "version: 1\n"
                                  "sets:\n"
                                  "  s:\n"
                                  "    backend: process\n"
                                  "    subjects: { max: 3 }\n"
                                  "    limits:\n"
                                  "      - { type: resource, key: slot, capacity: 4 }\n";

/* What is taken does not come back while a case lasts, so that requests wait. */
static const char keyed_rate[] =
    "version: 1\n"
    "sets:\n"
    "  s:\n"
    "    backend: process\n"
    "    subjects: { max: 3, evict: random }\n"
    "    limits:\n"
    "      - { type: rate, key: word, algorithm: gcra, capacity: 4, window: 4000s }\n";

static const char keyed_both[] =
    "version: 1\n"
    "sets:\n"
    "  s:\n"
    "    backend: process\n"
    "    subjects: { max: 3 }\n"
    "    limits:\n"
    "      - { type: resource, key: slot, capacity: 4 }\n"
    "      - { type: rate, key: wide, algorithm: gcra, capacity: 1001, window: 1s }\n";

#define KEYS     7u
#define LIMITS   8u
#define SUBJECTS 8u

enum shape_number { MANY, COUNTED, RATED, KEYED_COUNT, KEYED_RATE, KEYED_BOTH, SHAPES };

/* Kinds of sets. Where there are slots, they come first, and all of them can be held. */
static const struct yaml_kind {
    const char *text;
    bool has_slots, is_keyed;
    uint32_t keys_n;
    const char *keys[KEYS];
} shapes[SHAPES] = {
    {all_limits,
     true,
     false,
     KEYS,
     {"slot", "bucket", "word", "wide", "leaky", "sliding", "fixed"}},
    {counted, true, false, 1, {"slot"}},
    {rated, false, false, 1, {"word"}},
    {keyed_count, true, true, 1, {"slot"}},
    {keyed_rate, true, true, 1, {"word"}},
    {keyed_both, true, true, 2, {"slot", "wide"}},
};

static const struct yaml_kind *shape = shapes;

#define SHORT_NS (3 * MS)

/* ---- what the parent sees of a child ---- */

enum kind { FLIP, WORD, PAGE, STORM, KINDS };

static const char *const kind_names[KINDS] = {"flip", "word", "page", "storm"};

struct progress {
    _Atomic uint64_t kind, offset, number, shape, cases, broken, step; /* of the case under way */
    _Atomic(const char *) call;                                        /* that was made last */
};

static struct progress *progress;

static void say_call(const char *call)
{
    progress->call = call;
    progress->step++;
}

#define CALL(expression) (say_call(#expression), (expression))

/* ---- the file ---- */

struct bytes {
    int fd;
    char path[128];
};

static struct bytes segment_file(void)
{
    struct bytes bytes;

    snprintf(bytes.path, sizeof(bytes.path), "%s/s.weir", shared_directory());
    bytes.fd = open(bytes.path, O_RDWR | O_CLOEXEC);
    require(bytes.fd >= 0);
    return bytes;
}

static uint64_t get_word(const struct bytes *bytes, uint64_t at)
{
    uint64_t word;

    require(pread(bytes->fd, &word, sizeof(word), (off_t)at) == sizeof(word));
    return word;
}

static void put_word(const struct bytes *bytes, uint64_t at, uint64_t word)
{
    require(pwrite(bytes->fd, &word, sizeof(word), (off_t)at) == sizeof(word));
}

/* The pages that are there, but not the definition, which is not read again. */
static uint32_t find_pages(const struct bytes *bytes, uint64_t *ret, uint32_t n)
{
    off_t at = 0, end;
    uint32_t found = 0;

    while ((at = lseek(bytes->fd, at, SEEK_DATA)) >= 0) {
        end = lseek(bytes->fd, at, SEEK_HOLE);
        require(end > at);
        for (; at < end; at += (off_t)SEGMENT_PAGE)
            if (at < (off_t)SEGMENT_DEFINITION_AT || at >= (off_t)SEGMENT_PEERS_AT) {
                require(found < n);
                ret[found++] = (uint64_t)at;
            }
    }
    return found;
}

#define PAGES_MAX 256u
#define WORDS_MAX (PAGES_MAX * 512u)

/* The table of a few keys is at the end; in each set keys are elsewhere in it. */
static bool is_key_table(const struct bytes *bytes, uint64_t at)
{
    uint64_t table = get_word(bytes, offsetof(struct segment_header, identity.size)) - SEGMENT_PAGE;

    return shape->is_keyed && at >= table && at < table + 1024;
}

/* Where something is: words of cache lines in which any word is not 0. */
static uint32_t find_words(const struct bytes *bytes, uint64_t *ret)
{
    uint64_t pages[PAGES_MAX], line[8];
    uint32_t pages_n = find_pages(bytes, pages, PAGES_MAX), found = 0;

    for (uint32_t i = 0; i < pages_n; i++)
        for (uint64_t at = pages[i]; at < pages[i] + SEGMENT_PAGE; at += sizeof(line)) {
            uint64_t any = is_key_table(bytes, at);

            require(pread(bytes->fd, line, sizeof(line), (off_t)at) == sizeof(line));
            for (uint32_t k = 0; k < 8; k++)
                any |= line[k];
            for (uint32_t k = 0; any && k < 8; k++)
                ret[found++] = at + k * sizeof(uint64_t);
        }
    return found;
}

/* ---- a set in use ---- */

/* How many participants of this process, and how many submissions to each completion queue. */
enum { SIDES = 2, HELD = 2, SUBMITTED = 4 };

struct side {
    weir *w;
    weir_pool *pool;
    weir_queue *queue;
    weir_acquisition *held[HELD], *waiting, *brief, *queued, *got[SUBMITTED];
    pthread_t blocked;
    bool has_blocked;
    _Atomic bool ended; /* the blocked one */
    bool is_broken;
};

static struct side sides[SIDES];

/* The participant that asks: the first one holds and waits. */
static unsigned subject;
static const char subjects[SUBJECTS] = {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'};

static struct weir_request ask(struct weir_amount amounts[static KEYS], uint64_t slots, uint64_t n,
                               uint64_t timeout_ns)
{
    for (uint32_t i = 0; i < shape->keys_n; i++)
        amounts[i] = (struct weir_amount){shape->keys[i], i || !shape->has_slots ? n : slots};
    return (struct weir_request){.size = sizeof(struct weir_request),
                                 .amounts = amounts,
                                 .amounts_n = shape->keys_n,
                                 .subject = &subjects[subject], /* others ignore it */
                                 .subject_size = 1,
                                 .timeout_ns = timeout_ns};
}

static void expect(int r, const char *what, const int *allowed)
{
    for (; *allowed; allowed++)
        if (r == *allowed)
            return;
    if (r >= 0)
        return;
    fprintf(stderr, "%s: %d\n", what, r);
    require(!"an error that is expected");
}

/* Damage can make a record one that was revoked: then -EOWNERDEAD. */
/* The call is made before it is named. */
#define EXPECT(r, ...)                                                                             \
    do {                                                                                           \
        int result_ = (r);                                                                         \
                                                                                                   \
        expect(result_, progress->call, (const int[]){-EUCLEAN, __VA_ARGS__, 0});                  \
    } while (0)

static void *wait_blocked(void *argument)
{
    struct side *side = argument;
    struct weir_amount amounts[KEYS];
    struct weir_request request = ask(amounts, 4, 1, WEIR_FOREVER);
    weir_acquisition *acquisition = NULL;
    int r = weir_acquire(side->pool, &request, &acquisition, NULL);

    EXPECT(r, -ESHUTDOWN, -ECANCELED, -ETIMEDOUT, -EAGAIN, -ENOBUFS, -ENOMEM, -ERANGE, -EOWNERDEAD);
    side->ended = true;
    weir_release(&acquisition);
    return NULL;
}

static void take_part(struct side *side)
{
    *side = (struct side){.w = shared_open(shape->text)};
    side->pool = shared_pool(side->w, "s");
    require(weir_queue_open(&side->queue, side->w, 2 * SUBMITTED) == 0);
}

/* Holders first, until nothing is left; then waiters of every kind. */
static void hold(struct side *side)
{
    struct weir_amount amounts[KEYS];
    struct weir_request one = ask(amounts, 1, 1, WEIR_FOREVER);
    struct weir_completion completion;

    require(weir_try_acquire(side->pool, &one, &side->held[0], NULL) == 0);
    require(weir_queue_submit(side->queue, side->pool, &one, 1, NULL, NULL) == 0);
    require(weir_queue_reap(side->queue, &completion, 1) == 1 && completion.result == 0);
    side->held[1] = completion.acquisition;
}

static uint32_t waiting(struct side *side)
{
    return (uint32_t)shared_stats(side->pool).waiting;
}

static void block(struct side *side)
{
    uint32_t before = waiting(side);

    side->has_blocked = true;
    require(pthread_create(&side->blocked, NULL, wait_blocked, side) == 0);
    while (waiting(side) == before)
        pause_ns(MS / 20);
}

static void wait_in_queue(struct side *side)
{
    struct weir_amount amounts[KEYS];
    struct weir_request request = ask(amounts, 1, 1, WEIR_FOREVER);

    require(weir_submit(side->pool, &request, &side->waiting, NULL) == 1);
    require(weir_queue_submit(side->queue, side->pool, &request, 2, NULL, NULL) == 0);
    require(weir_queue_submit(side->queue, side->pool, &request, 3, &side->queued, NULL) == 0);
    request.timeout_ns = 4 * SHORT_NS;
    require(weir_queue_submit(side->queue, side->pool, &request, 4, NULL, NULL) == 0);
    require(weir_submit(side->pool, &request, &side->brief, NULL) == 1);
}

/* A process that holds and waits, and is killed: its cleanup is still due. */
struct victim {
    pid_t pid;
    struct shared_pipe begins, ready;
};

static void be_victim(void *argument)
{
    struct victim *victim = argument;
    struct weir_amount amounts[KEYS];
    struct weir_request request = ask(amounts, 1, 1, WEIR_FOREVER);
    weir_acquisition *a = NULL, *b = NULL;
    weir_pool *pool;
    int r;

    shared_hear(&victim->begins);
    pool = shared_pool(shared_open(shape->text), "s");
    require(weir_submit(pool, &request, &a, NULL) >= 0);
    request.amounts = NULL;
    r = weir_submit(pool, &request, &b, NULL);
    require((r >= 0) == (b != NULL));
    shared_tell(&victim->ready);
    for (;;)
        pause();
}

/* Forked while there is no other thread, which could hold a lock of the C library's or a
 * sanitizer's.
 */
static void fork_victim(struct victim *victim)
{
    *victim = (struct victim){.begins = shared_pipe(), .ready = shared_pipe()};
    victim->pid = shared_fork(be_victim, victim);
}

static void start_victim(struct victim *victim)
{
    shared_tell(&victim->begins);
    shared_hear(&victim->ready);
    shared_pipe_close(&victim->begins);
    shared_pipe_close(&victim->ready);
}

/* ---- guards ---- */

struct guards {
    void *at[2 * SIDES];
    uint32_t n;
};

#define GUARD_SIZE ((size_t)1 << 20)

static void guard_one(struct guards *guards, uintptr_t at)
{
    void *made = mmap((void *)at, GUARD_SIZE, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

    if (made != MAP_FAILED && guards->n < 2 * SIDES)
        guards->at[guards->n++] = made;
}

/* Both sides of each mapping of the segment, where nothing else is. */
static void guard_mappings(struct guards *guards)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    uintptr_t from[SIDES], to[SIDES];
    uint32_t n = 0;
    char line[512];

    *guards = (struct guards){.n = 0};
    require(maps);
    while (fgets(line, sizeof(line), maps))
        if (strstr(line, shared_directory()) && n < SIDES &&
            sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &from[n], &to[n]) == 2)
            n++;
    fclose(maps);
    require(n == SIDES || n == 1);
    for (uint32_t i = 0; i < n; i++) {
        guard_one(guards, from[i] - GUARD_SIZE);
        guard_one(guards, to[i]);
    }
}

static void unguard(const struct guards *guards)
{
    for (uint32_t i = 0; i < guards->n; i++)
        munmap(guards->at[i], GUARD_SIZE);
}

/* ---- damage ---- */

static uint64_t words[WORDS_MAX];
static uint32_t words_n;
static uint64_t pages[PAGES_MAX];
static uint32_t pages_n;

static uint64_t any_word(const struct bytes *bytes, uint64_t *random)
{
    return get_word(bytes, words[random_below(random, words_n)]);
}

/* A value that could be right there, or somewhere else. */
static uint64_t plausible(const struct bytes *bytes, uint64_t at, uint64_t *random)
{
    uint64_t is = get_word(bytes, at), other = any_word(bytes, random);
    unsigned shift = (unsigned)random_below(random, 64);

    switch (random_below(random, 12)) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX;
    case 2:
        return is + 1;
    case 3:
        return is - 1;
    case 4:
        return other;
    case 5: /* another record, of the same sequence */
        return (is & ~UINT64_C(0xfffffff)) | (other & 0xfffffff);
    case 6:
        return (is & ~UINT64_C(0xffffffff)) | (other & 0xffffffff);
    case 7:
        return (is & 0xffffffff) | (other & ~UINT64_C(0xffffffff));
    case 8: /* another state of the same record */
        return (is & ~UINT64_C(0xff)) | random_below(random, 12);
    case 9:
        return is ^ UINT64_C(0xff) << (shift & ~7u);
    case 10:
        return other << shift | other >> ((64 - shift) & 63);
    default:
        return random_next(random);
    }
}

static void damage_page(const struct bytes *bytes, uint64_t at, uint64_t *random)
{
    uint64_t page[512];

    for (uint32_t i = 0; i < 512; i++)
        page[i] = random_next(random);
    switch (random_below(random, 4)) {
    case 0:
        memset(page, 0, sizeof(page));
        break;
    case 1:
        memset(page, 0xff, sizeof(page));
        break;
    case 2:
        require(pread(bytes->fd, page, sizeof(page), (off_t)pages[random_below(random, pages_n)]) ==
                sizeof(page));
        break;
    default:
        break;
    }
    require(pwrite(bytes->fd, page, sizeof(page), (off_t)at) == sizeof(page));
}

/* `number`: of a flip the bit, otherwise where the random numbers begin. */
struct damage {
    enum kind kind;
    uint64_t offset, number;
    unsigned shape; /* of a single case that was asked for */
};

static void do_damage(const struct bytes *bytes, const struct damage *damage)
{
    uint64_t random = damage->number;

    switch (damage->kind) {
    case FLIP:
        put_word(bytes, damage->offset,
                 get_word(bytes, damage->offset) ^ UINT64_C(1) << (damage->number & 63));
        break;
    case WORD:
        put_word(bytes, damage->offset, plausible(bytes, damage->offset, &random));
        break;
    case PAGE:
        damage_page(bytes, damage->offset, &random);
        break;
    case STORM:
    case KINDS:
        break;
    }
}

struct storm {
    const struct bytes *bytes;
    uint64_t random;
    _Atomic bool ends;
};

static void *rage(void *argument)
{
    struct storm *storm = argument;

    while (!storm->ends) {
        uint64_t at = words[random_below(&storm->random, words_n)];
        uint64_t was = get_word(storm->bytes, at);

        put_word(storm->bytes, at, plausible(storm->bytes, at, &storm->random));
        if (random_below(&storm->random, 2))
            put_word(storm->bytes, at, was);
        pause_ns(random_below(&storm->random, 200000));
    }
    return NULL;
}

/* ---- every call ---- */

static void reap(struct side *side)
{
    struct weir_completion completions[SUBMITTED];
    int n = CALL(weir_queue_reap(side->queue, completions, SUBMITTED));

    EXPECT(n, -ENOMEM);
    for (int i = 0; i < n; i++) {
        const int r = completions[i].result;

        EXPECT(r, -ETIMEDOUT, -EAGAIN, -ENOBUFS, -ECANCELED, -ESHUTDOWN);
        if (completions[i].acquisition == side->queued)
            side->queued = NULL;
        CALL(weir_release(&completions[i].acquisition));
    }
}

static void call_take(struct side *side)
{
    struct weir_amount amounts[KEYS];
    struct weir_request request = ask(amounts, 0, 1, 0);
    struct weir_refusal refusal = {.size = sizeof(refusal)};

    EXPECT(CALL(weir_take(side->pool, &request, &refusal)), -EAGAIN, -ENOBUFS, -ERANGE, -ENOMEM);
}

static void call_try(struct side *side)
{
    struct weir_amount amounts[KEYS];
    struct weir_request request = ask(amounts, 1, 1, 0);
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    weir_acquisition *acquisition = NULL;

    EXPECT(CALL(weir_try_acquire(side->pool, &request, &acquisition, &refusal)), -EAGAIN, -ENOBUFS,
           -ERANGE, -ENOMEM);
    EXPECT(CALL(weir_release(&acquisition)), -EPROTO, -EOWNERDEAD);
}

static void call_acquire(struct side *side)
{
    struct weir_amount amounts[KEYS];
    struct weir_request request = ask(amounts, 1, 1, SHORT_NS);
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    weir_acquisition *acquisition = NULL;

    EXPECT(CALL(weir_acquire(side->pool, &request, &acquisition, &refusal)), -ETIMEDOUT, -EAGAIN,
           -ENOBUFS, -ERANGE, -ENOMEM, -ECANCELED, -ESHUTDOWN, -EOWNERDEAD);
    EXPECT(CALL(weir_release(&acquisition)), -EPROTO, -EOWNERDEAD);
}

static void call_submit(struct side *side)
{
    struct weir_amount amounts[KEYS];
    struct weir_request request = ask(amounts, 1, 1, SHORT_NS);
    weir_acquisition *acquisition = NULL;
    struct pollfd fd = {.events = POLLIN};

    request.max_wait_ns = 2 * SHORT_NS;
    EXPECT(CALL(weir_submit(side->pool, &request, &acquisition, NULL)), -EAGAIN, -ENOBUFS, -ERANGE,
           -ENOMEM);
    if (!acquisition)
        return;
    fd.fd = CALL(weir_acquisition_fd(acquisition));
    require(fd.fd >= 0);
    CALL(poll(&fd, 1, 1));
    EXPECT(CALL(weir_cancel(acquisition)), -EALREADY);
    CALL(weir_acquisition_result(acquisition));
    EXPECT(CALL(weir_release(&acquisition)), -EPROTO, -EOWNERDEAD);
}

static void call_queue(struct side *side)
{
    struct weir_amount amounts[KEYS];
    struct weir_request request = ask(amounts, 1, 1, SHORT_NS);
    weir_acquisition *known = NULL;

    EXPECT(CALL(weir_queue_submit(side->queue, side->pool, &request, 5, NULL, NULL)), -ENOSPC,
           -ENOBUFS, -ERANGE, -ENOMEM);
    EXPECT(CALL(weir_queue_submit(side->queue, side->pool, &request, 6, &known, NULL)), -ENOSPC,
           -ENOBUFS, -ERANGE, -ENOMEM);
    EXPECT(CALL(weir_queue_cancel(side->queue, 5)), 0);
    if (known)
        EXPECT(CALL(weir_cancel(known)), -EALREADY);
    CALL(weir_release(&known));
    EXPECT(CALL(weir_queue_cancel(side->queue, 2)), 0);
    reap(side);
}

static void call_release(struct side *side)
{
    for (uint32_t i = 0; i < HELD; i++) {
        if (side->held[i])
            EXPECT(CALL(weir_update(side->held[i], shape->keys[(1 + i) % shape->keys_n], i)),
                   -EINVAL, -ERANGE, -EOWNERDEAD);
        EXPECT(CALL(weir_release(&side->held[i])), -EPROTO, -EOWNERDEAD);
    }
}

static void call_stats(struct side *side)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[LIMITS];
    int r = CALL(weir_set_stats(weir_pool_set(side->pool, 0), &stats, limits, LIMITS));

    EXPECT(r, -ENOMEM);
    side->is_broken |= r == -EUCLEAN;
    if (side->is_broken)
        require(r == -EUCLEAN);
}

static void call_holders(struct side *side)
{
    enum { N = 16 };
    struct weir_holder holders[N];
    uint64_t amounts[LIMITS];
    weir_set *set = weir_pool_set(side->pool, 0);
    int n = CALL(weir_set_holders(set, holders, N));

    EXPECT(n, -ENOMEM);
    for (int i = 0; i < n && i < N; i++)
        EXPECT(CALL(weir_set_holder_amounts(set, &holders[i], amounts, LIMITS)), -ESRCH);
}

static void call_keyed(struct side *side)
{
    struct weir_subjects_stats stats = {.size = sizeof(stats)};

    EXPECT(CALL(weir_set_subjects(weir_pool_set(side->pool, 0), &stats)), 0);
}

static void call_ready_at(struct side *side)
{
    struct weir_amount amounts[KEYS];
    struct weir_request request = ask(amounts, 1, 1, 0);
    uint64_t at_ns;

    EXPECT(CALL(weir_set_ready_at(weir_pool_set(side->pool, 0), &request, &at_ns)), -ENOMEM);
}

static void call_reserve(struct side *side)
{
    struct weir_amount amounts[KEYS];
    struct weir_request request = ask(amounts, 0, 1, 0);
    weir_acquisition *acquisition = NULL;
    uint64_t at_ns;

    request.max_wait_ns = SHORT_NS;
    EXPECT(CALL(weir_reserve(side->pool, &request, &acquisition, &at_ns, NULL)), -EAGAIN, -ENOBUFS,
           -ERANGE, -ENOMEM);
    if (acquisition)
        EXPECT(CALL(weir_cancel(acquisition)), -EALREADY);
    EXPECT(CALL(weir_release(&acquisition)), -EPROTO, -EOWNERDEAD);
}

static void call_waiting(struct side *side)
{
    struct weir_refusal refusal = {.size = sizeof(refusal)};

    if (!side->waiting)
        return;
    EXPECT(CALL(weir_acquisition_result(side->waiting)), -EINPROGRESS, -ETIMEDOUT, -EAGAIN,
           -ENOBUFS, -ECANCELED, -ESHUTDOWN, -EOWNERDEAD);
    EXPECT(CALL(weir_acquisition_refusal(side->waiting, &refusal)), -EINVAL);
}

static int tell_nothing(void *userdata, const struct weir_segment *segment)
{
    (void)userdata;
    (void)segment;
    return 0;
}

/* A new participant. */
static void call_attach(struct side *unused)
{
    const struct weir_options options = {.size = sizeof(options),
                                         .process_dir = shared_directory()};
    struct weir_error error = {0};
    struct side side = {.w = NULL};
    int r = CALL(shared_try_open(&side.w, shape->text, &error));

    (void)unused;
    EXPECT(r, -EPROTONOSUPPORT, -EXDEV, -EEXIST, -EBUSY, -ENOSPC, -ENOMEM);
    if (r == 0) {
        side.pool = shared_pool(side.w, "s");
        call_take(&side);
        call_acquire(&side);
        CALL(weir_pool_close(side.pool));
        CALL(weir_close(side.w));
    }
    EXPECT(CALL(weir_segments(&options, tell_nothing, NULL, &error)), -EPROTONOSUPPORT);
}

static void (*const calls[])(struct side *) = {
    call_take,    call_try,      call_acquire, call_submit,  call_queue, call_release, call_stats,
    call_holders, call_ready_at, call_reserve, call_waiting, call_keyed, call_attach,
};

#define CALLS (sizeof(calls) / sizeof(*calls))

/* All of them, in some order, on either side. */
static void call_all(uint64_t *random)
{
    uint8_t order[CALLS * SIDES];

    for (uint8_t i = 0; i < sizeof(order); i++) {
        uint8_t k = (uint8_t)random_below(random, i + 1u);

        order[i] = order[k];
        order[k] = i;
    }
    for (uint32_t i = 0; i < sizeof(order); i++) {
        subject = random_below(random, 2) ? 0 : (unsigned)random_below(random, SUBJECTS);
        calls[order[i] % CALLS](&sides[order[i] / CALLS]);
    }
    subject = 0;
}

/* ---- one case ---- */

/* What had a timeout has ended, whatever has happened. */
static void end_brief(struct side *side)
{
    say_call("a wait with a timeout");
    while (side->brief && weir_acquisition_result(side->brief) == -EINPROGRESS)
        pause_ns(MS / 5);
    CALL(weir_release(&side->brief));
}

/* A waiter of a broken set is notified, and nothing else is had of the set. */
static void end_broken(struct side *side)
{
    struct weir_amount amounts[KEYS];
    struct weir_request request = ask(amounts, 1, 1, 0);
    weir_acquisition *acquisition;

    require(CALL(weir_try_acquire(side->pool, &request, &acquisition, NULL)) == -EUCLEAN);
    say_call("a wait on a broken set");
    while ((side->waiting && weir_acquisition_result(side->waiting) == -EINPROGRESS) ||
           (side->has_blocked && !side->ended))
        pause_ns(MS / 5);
}

static void leave(struct side *side, uint64_t *random)
{
    bool first = random_below(random, 2) != 0;

    if (first)
        CALL(weir_close(side->w));
    CALL(weir_release(&side->waiting));
    CALL(weir_release(&side->brief));
    reap(side);
    CALL(weir_release(&side->queued));
    for (uint32_t i = 0; i < HELD; i++)
        CALL(weir_release(&side->held[i]));
    CALL(weir_queue_close(side->queue));
    if (!first)
        CALL(weir_close(side->w));
    if (side->has_blocked)
        CALL(pthread_join(side->blocked, NULL));
    CALL(weir_pool_close(side->pool));
}

/* With `waits` a request waits; with `blocks` a blocked one, too. */
static void set_up(bool waits, bool blocks)
{
    for (uint32_t i = 0; i < SIDES; i++)
        take_part(&sides[i]);
    for (uint32_t i = 0; i < SIDES; i++)
        hold(&sides[i]);
    for (uint32_t i = 0; i < SIDES && waits && blocks; i++)
        block(&sides[i]);
    for (uint32_t i = 0; i < SIDES && waits; i++)
        wait_in_queue(&sides[i]);
}

/* A rate has enough for all. A set of one limit is inline as long as no thread waits. */
static bool has_line(uint64_t *random)
{
    return shape->has_slots && (shape->keys_n > 1 || random_below(random, 3) == 0);
}

static void clear_directory(void)
{
    DIR *entries = opendir(shared_directory());
    struct dirent *entry;

    require(entries);
    while ((entry = readdir(entries)))
        unlinkat(dirfd(entries), entry->d_name, 0);
    closedir(entries);
}

static void run_case(const struct damage *damage)
{
    uint64_t random = damage->number ^ damage->offset << 20;
    bool has_victim = random_below(&random, 8) == 0;
    struct storm storm = {.random = random_next(&random)};
    pthread_t storms;
    struct guards guards;
    struct bytes bytes;
    struct victim victim;

    progress->kind = damage->kind;
    progress->offset = damage->offset;
    progress->number = damage->number;
    bool blocks = random_below(&random, 2) != 0;

    if (has_victim)
        fork_victim(&victim);
    CALL(set_up(has_line(&random), blocks));
    if (has_victim)
        start_victim(&victim);
    bytes = segment_file();
    guard_mappings(&guards);
    if (has_victim)
        kill(victim.pid, SIGKILL);
    do_damage(&bytes, damage);
    storm.bytes = &bytes;
    if (damage->kind == STORM)
        require(pthread_create(&storms, NULL, rage, &storm) == 0);
    call_all(&random);
    if (damage->kind == STORM) {
        storm.ends = true;
        pthread_join(storms, NULL);
        call_all(&random);
    }
    for (uint32_t i = 0; i < SIDES; i++) {
        end_brief(&sides[i]);
        call_stats(&sides[i]);
        progress->broken += sides[i].is_broken;
        if (sides[i].is_broken && random_below(&random, 2))
            end_broken(&sides[i]);
    }
    for (uint32_t i = 0; i < SIDES; i++)
        leave(&sides[i], &random);
    unguard(&guards);
    close(bytes.fd);
    if (has_victim)
        shared_wait(victim.pid, SIGKILL);
    clear_directory();
    progress->cases++;
}

/* ---- children and their parent ---- */

static uint64_t seconds;

/* Places are the same in each set that is made. */
static void look_around(void)
{
    uint64_t random = 0;
    struct bytes bytes;

    set_up(shape->has_slots, true);
    bytes = segment_file();
    words_n = find_words(&bytes, words);
    pages_n = find_pages(&bytes, pages, PAGES_MAX);
    for (uint32_t i = 0; i < SIDES; i++)
        leave(&sides[i], &random);
    close(bytes.fd);
    clear_directory();
}

/* The i-th case of a kind; how many there are. */
static struct damage damage_of(enum kind kind, uint64_t i)
{
    switch (kind) {
    case FLIP:
        return (struct damage){kind, words[i / 64], i % 64, 0};
    case WORD:
        return (struct damage){kind, words[i % words_n], random_case(test_seed, i), 0};
    case PAGE:
        return (struct damage){kind, pages[i % pages_n], random_case(test_seed, i), 0};
    default:
        return (struct damage){kind, 0, random_case(test_seed, i), 0};
    }
}

static uint64_t cases_of(enum kind kind)
{
    const uint64_t n[KINDS] = {UINT64_C(64) * words_n, UINT64_C(16) * words_n,
                               UINT64_C(16) * pages_n, 200};

    return n[kind];
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    return b ? common_divisor(b, a % b) : a;
}

/* From all over, until the time is over. */
static void run_cases(enum kind kind)
{
    uint64_t n = cases_of(kind), random = test_seed, stride = random_below(&random, n) | 1;
    uint64_t end = clock_now() + seconds * 1000 * MS;

    while (common_divisor(stride, n) != 1)
        stride++;
    for (uint64_t i = 0; i < n && (!seconds || clock_now() < end); i++) {
        struct damage damage = damage_of(kind, (i * stride + random) % n);

        run_case(&damage);
    }
}

static void say_stuck(const struct progress *at, const char *what)
{
    fprintf(stderr,
            "%s: WEIR_CASE=%s:%" PRIu64 ":%" PRIu64 ":%" PRIu64 " (seed %" PRIu64 ", case %" PRIu64
            "), in %s\n",
            what, kind_names[at->kind], at->offset, at->number, at->shape, test_seed, at->cases,
            at->call ? at->call : "nothing");
}

/* A child that is at the same call for so long hangs. */
#define STUCK_NS (20000 * MS)

/* Whether it still runs. */
static bool attend(pid_t pid, const struct progress *at, uint64_t *seen, uint64_t *since)
{
    uint64_t step = at->step + at->cases;
    int status = 0;

    if (waitpid(pid, &status, WNOHANG) == pid) {
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            say_stuck(at, "died");
        require(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        return false;
    }
    if (step != *seen) {
        *seen = step;
        *since = clock_now();
    }
    if (clock_now() - *since > STUCK_NS) {
        say_stuck(at, "hangs");
        kill(pid, SIGABRT);
        require(!"an end to the case");
    }
    return true;
}

static pid_t start_child(enum kind kind, const struct damage *only, unsigned child,
                         struct progress *at)
{
    pid_t pid;

    pid = child_fork();
    require(pid >= 0);
    if (pid)
        return pid;
    progress = at;
    progress->shape = only ? only->shape : child;
    shape = &shapes[progress->shape];
    shared_begin();
    look_around();
    if (only)
        run_case(only);
    else
        run_cases(kind);
    shared_end();
    _exit(0);
}

static void run_kind(enum kind kind, const struct damage *only)
{
    struct progress *all = mmap(NULL, SHAPES * sizeof(*all), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t seen[SHAPES] = {0}, since[SHAPES], cases = 0, broken = 0;
    pid_t pids[SHAPES];
    unsigned n = only ? 1 : SHAPES, left = n;

    require(all != MAP_FAILED);
    for (unsigned i = 0; i < n; i++) {
        pids[i] = start_child(kind, only, i, &all[i]);
        since[i] = clock_now();
    }
    while (left) {
        pause_ns(10 * MS);
        for (unsigned i = 0; i < n; i++)
            if (pids[i] && !attend(pids[i], &all[i], &seen[i], &since[i])) {
                cases += all[i].cases;
                broken += all[i].broken;
                pids[i] = 0;
                left--;
            }
    }
    print_message("%s: %" PRIu64 " cases, %" PRIu64 " times found broken\n", kind_names[kind],
                  cases, broken);
    require(cases > 0);
    munmap(all, SHAPES * sizeof(*all));
}

static void single_bits(void **state)
{
    (void)state;
    run_kind(FLIP, NULL);
}

static void plausible_words(void **state)
{
    (void)state;
    run_kind(WORD, NULL);
}

static void whole_pages(void **state)
{
    (void)state;
    run_kind(PAGE, NULL);
}

static void storms(void **state)
{
    (void)state;
    run_kind(STORM, NULL);
}

/* ---- damage that was not survived once ---- */

static const char slots[] = "version: 1\n"
                            "sets:\n"
                            "  s:\n"
                            "    backend: process\n"
                            "    limits:\n"
                            "      - { type: resource, key: slot, capacity: 1k }\n";

static const struct weir_request *ask_slots(struct shared_request *memory, uint64_t n)
{
    return shared_ask(memory, "slot", n, WEIR_FOREVER);
}

/* Nothing in the set is what it was. */
static void spoil(const struct bytes *bytes)
{
    put_word(bytes, offsetof(struct segment_header, head.state_word), UINT64_MAX);
}

/* In a child that does not last: it is what crashed, or went round for ever. */
static void alone(void (*body)(void *))
{
    shared_begin();
    shared_wait(shared_fork(body, NULL), 0);
    shared_end();
}

static void hold_all_and_be_killed(void *argument)
{
    struct shared_pipe *ready = argument;
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;

    require(weir_try_acquire(pool, ask_slots(&memory, 1000), &acquisition, NULL) == 0);
    shared_tell(ready);
    for (;;)
        pause();
}

static void clean_up_in_broken_set(void *unused)
{
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    struct shared_pipe ready = shared_pipe();
    pid_t pid = shared_fork(hold_all_and_be_killed, &ready);
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct bytes bytes;

    (void)unused;
    shared_hear(&ready);
    bytes = segment_file();
    spoil(&bytes);
    kill(pid, SIGKILL);
    shared_wait(pid, SIGKILL);
    for (int i = 0; i < 3; i++)
        require(weir_set_stats(weir_pool_set(pool, 0), &stats, NULL, 0) == -EUCLEAN);
    weir_pool_close(pool);
    weir_close(w);
}

static void the_dead_of_a_broken_set_stay_dead(void **state)
{
    (void)state;
    alone(clean_up_in_broken_set);
}

static void cancel_in_broken_set(void *unused)
{
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    struct shared_request memory;
    struct weir_completion completion;
    weir_queue *queue;
    struct bytes bytes;

    (void)unused;
    require(weir_queue_open(&queue, w, 4) == 0);
    require(weir_queue_submit(queue, pool, ask_slots(&memory, 1), 1, NULL, NULL) == 0);
    bytes = segment_file();
    spoil(&bytes);
    require(weir_set_stats(weir_pool_set(pool, 0),
                           &(struct weir_set_stats){.size = sizeof(struct weir_set_stats)}, NULL,
                           0) == -EUCLEAN);
    require(weir_queue_cancel(queue, 1) == 0);
    require(weir_queue_reap(queue, &completion, 1) == 1 && completion.result == -EUCLEAN);
    weir_queue_close(queue);
    weir_pool_close(pool);
    weir_close(w);
}

static void a_grant_of_a_broken_set_is_not_canceled(void **state)
{
    (void)state;
    alone(cancel_in_broken_set);
}

/* What the stack was before is not what a refusal says. */
static void dirty_stack(void)
{
    volatile unsigned char bytes[8192];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = 0xa5;
}

static void ask_broken_keyed_set(void *unused)
{
    weir *w = shared_open(keyed_count);
    weir_pool *pool = shared_pool(w, "s");
    struct weir_amount amount = {"slot", 1};
    struct weir_request request = {.size = sizeof(request),
                                   .amounts = &amount,
                                   .amounts_n = 1,
                                   .subject = "subject",
                                   .subject_size = 7};
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    struct weir_set_stats stats = {.size = sizeof(stats)};
    weir_acquisition *acquisition = NULL;
    struct bytes bytes = segment_file();

    (void)unused;
    spoil(&bytes);
    require(weir_set_stats(weir_pool_set(pool, 0), &stats, NULL, 0) == -EUCLEAN);
    dirty_stack();
    require(weir_try_acquire(pool, &request, &acquisition, &refusal) == -EUCLEAN);
    require(!refusal.key && !refusal.set);
    dirty_stack();
    require(weir_acquire(pool, &request, &acquisition, &refusal) == -EUCLEAN);
    require(!refusal.key && !refusal.set);
    close(bytes.fd);
    weir_pool_close(pool);
    weir_close(w);
}

static void a_broken_keyed_set_says_so(void **state)
{
    (void)state;
    alone(ask_broken_keyed_set);
}

/* The set's word says that less is held than is. */
static void release_too_much(void *unused)
{
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    struct shared_request memory;
    weir_acquisition *held = NULL;
    struct bytes bytes = segment_file();

    (void)unused;
    require(weir_try_acquire(pool, ask_slots(&memory, 3), &held, NULL) == 0);
    put_word(&bytes, offsetof(struct segment_header, head.state_word),
             UINT64_C(2) << DCAS_USED_SHIFT);
    weir_release(&held);
    require(weir_try_acquire(pool, ask_slots(&memory, 1), &held, NULL) == -EUCLEAN);
    close(bytes.fd);
    weir_pool_close(pool);
    weir_close(w);
}

static void more_than_is_held_is_not_given_back(void **state)
{
    (void)state;
    alone(release_too_much);
}

/* A grant that the program has not seen is taken back while less is held: the word stays. */
static void take_back_too_much(void *unused)
{
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    uint64_t at = offsetof(struct segment_header, head.state_word), word;
    struct shared_request memory;
    weir_acquisition *held = NULL, *unseen = NULL;
    struct bytes bytes = segment_file();

    (void)unused;
    require(weir_try_acquire(pool, ask_slots(&memory, 1000), &held, NULL) == 0);
    require(weir_submit(pool, ask_slots(&memory, 3), &unseen, NULL) == 1);
    weir_release(&held);
    require(weir_try_acquire(pool, ask_slots(&memory, 1), &held, NULL) == 0);
    weir_release(&held); /* in the word again */
    word = get_word(&bytes, at);
    require(!(word & INFLATED_BIT) && (word & ~DCAS_BITS) == UINT64_C(3) << DCAS_USED_SHIFT);
    word = (word & DCAS_BITS) | UINT64_C(2) << DCAS_USED_SHIFT;
    put_word(&bytes, at, word);
    weir_release(&unseen);
    require(get_word(&bytes, at) == word);
    require(weir_try_acquire(pool, ask_slots(&memory, 1), &held, NULL) == -EUCLEAN);
    close(bytes.fd);
    weir_pool_close(pool);
    weir_close(w);
}

static void more_than_is_held_is_not_taken_back(void **state)
{
    (void)state;
    alone(take_back_too_much);
}

enum { RUN_RECORDS = SEGMENT_RUN_UNITS / 8 };

/* All records of the first run are in use, and a write says that the run has no owner. */
static void lose_run(void *unused)
{
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    struct shared_request memory;
    weir_acquisition *held[4 * RUN_RECORDS] = {NULL};
    struct bytes bytes;
    int refused = 0;

    (void)unused;
    require(weir_try_acquire(pool, ask_slots(&memory, 1), &held[0], NULL) == 0);
    bytes = segment_file();
    require(get_word(&bytes, SEGMENT_RUN_OWNERS_AT + sizeof(uint64_t)) != 0);
    put_word(&bytes, SEGMENT_RUN_OWNERS_AT + sizeof(uint64_t), 0);
    for (int i = 1; i < 4 * RUN_RECORDS; i++)
        refused += weir_try_acquire(pool, ask_slots(&memory, 1), &held[i], NULL) != 0;
    require(refused > 0);
    require(weir_take(pool, shared_ask(&memory, "slot", 0, 0), NULL) == 0); /* nothing of it */
    require(weir_try_acquire(pool, ask_slots(&memory, 1), &held[0], NULL) == -EUCLEAN);
    for (int i = 0; i < 4 * RUN_RECORDS; i++)
        weir_release(&held[i]);
    weir_pool_close(pool);
    weir_close(w);
}

static void records_are_not_claimed_twice(void **state)
{
    (void)state;
    alone(lose_run);
}

static uint64_t one_instant(void *unused)
{
    (void)unused;
    return 1000;
}

struct blocked {
    weir_pool *pool;
    int result;
};

static void *block_for_all(void *argument)
{
    struct blocked *blocked = argument;
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;

    blocked->result = weir_acquire(blocked->pool, ask_slots(&memory, 1000), &acquisition, NULL);
    weir_release(&acquisition);
    return NULL;
}

/* The clock stands still, so no thread keeps time. */
static void close_broken_set(void *unused)
{
    const struct weir_clock clock = {.size = sizeof(clock), .now_ns = one_instant};
    const struct weir_options options = {
        .size = sizeof(options), .text = slots, .process_dir = shared_directory(), .clock = &clock};
    weir *w;
    struct blocked blocked;
    struct shared_request memory;
    weir_acquisition *held = NULL, *waiting = NULL;
    struct pollfd fd = {.events = POLLIN};
    struct bytes bytes;
    pthread_t thread;

    (void)unused;
    require(weir_open(&w, &options, NULL) == 0);
    blocked.pool = shared_pool(w, "s");
    require(weir_try_acquire(blocked.pool, ask_slots(&memory, 1), &held, NULL) == 0);
    require(weir_submit(blocked.pool, ask_slots(&memory, 1000), &waiting, NULL) == 1);
    fd.fd = weir_acquisition_fd(waiting);
    require(pthread_create(&thread, NULL, block_for_all, &blocked) == 0);
    while (shared_stats(blocked.pool).waiting < 2)
        pause_ns(MS);
    bytes = segment_file();
    spoil(&bytes);
    weir_close(w);
    require(pthread_join(thread, NULL) == 0 && blocked.result == -EUCLEAN);
    require(poll(&fd, 1, 0) == 1 && weir_acquisition_result(waiting) == -EUCLEAN);
    weir_release(&waiting);
    weir_release(&held);
    weir_pool_close(blocked.pool);
}

static void closing_ends_waits_on_a_broken_set(void **state)
{
    (void)state;
    alone(close_broken_set);
}

/* Returns where the record of a waiter begins in the file: that at a position, from 1. */
static uint64_t waiter_in_file(const struct bytes *bytes, weir_pool *pool, uint32_t position)
{
    uint64_t size = get_word(bytes, offsetof(struct segment_header, identity.size));
    struct weir_holder holders[4];
    int n = weir_set_holders(weir_pool_set(pool, 0), holders, 4);

    for (int i = 0; i < n && i < 4; i++)
        if (holders[i].waiting && holders[i].position == position)
            return size - SEGMENT_RUNS_MAX * SEGMENT_RUN_SIZE + /* record 0 */
                   (holders[i].id & 0xfffffff) * RECORD_UNIT_SIZE;
    require(false);
    return 0;
}

/* The second of three waiters is left out of the queue, by a link: it never heads it, but looks. */
static void lose_waiter(void *unused)
{
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    struct shared_request memory;
    weir_acquisition *held = NULL, *waiting[3];
    struct bytes bytes;
    uint64_t at;

    (void)unused;
    require(weir_try_acquire(pool, ask_slots(&memory, 1000), &held, NULL) == 0);
    for (int i = 0; i < 3; i++)
        require(weir_submit(pool, ask_slots(&memory, 1), &waiting[i], NULL) == 1);
    bytes = segment_file();
    at = waiter_in_file(&bytes, pool, 1) + sizeof(uint64_t);
    put_word(&bytes, at, get_word(&bytes, at) & ~UINT64_C(0xfffffff));
    while (weir_acquisition_result(waiting[1]) == -EINPROGRESS)
        pause_ns(MS);
    require(weir_acquisition_result(waiting[1]) == -EUCLEAN);
    while (weir_acquisition_result(waiting[2]) == -EINPROGRESS)
        pause_ns(MS);
    for (int i = 0; i < 3; i++)
        weir_release(&waiting[i]);
    weir_release(&held);
    weir_pool_close(pool);
    weir_close(w);
}

static void a_waiter_left_out_of_the_wait_queue_is_notified(void **state)
{
    (void)state;
    alone(lose_waiter);
}

/* Of two waiters for different limits, the amount of one is damaged; the other is always next. */
static void enlarge_amount(void *unused)
{
    static const char text[] =
        "version: 1\nsets: { s: { backend: process, fair: per_limit, limits: ["
        " { type: resource, key: a, capacity: 2 }, { type: resource, key: b, capacity: 2 } ] } }\n";
    weir *w = shared_open(text);
    weir_pool *pool = shared_pool(w, "s");
    const struct weir_amount amounts[2][2] = {{{"a", 2}, {"b", 0}}, {{"a", 0}, {"b", 2}}};
    weir_acquisition *held[2] = {NULL}, *waiting[2] = {NULL};
    struct bytes bytes;

    (void)unused;
    for (int i = 0; i < 4; i++) {
        const struct weir_request request = {
            .size = sizeof(request), .amounts = amounts[i % 2], .amounts_n = 2};

        require(weir_submit(pool, &request, i < 2 ? &held[i] : &waiting[i - 2], NULL) == i / 2);
    }
    bytes = segment_file();
    put_word(&bytes, waiter_in_file(&bytes, pool, 1) + offsetof(struct acq_record, amounts), 3);
    for (int i = 0; i < 2; i++) {
        while (weir_acquisition_result(waiting[i]) == -EINPROGRESS)
            pause_ns(MS);
        require(weir_acquisition_result(waiting[i]) == -EUCLEAN);
        weir_release(&waiting[i]);
        weir_release(&held[i]);
    }
    weir_pool_close(pool);
    weir_close(w);
}

static void a_waiter_that_is_never_next_is_looked_at(void **state)
{
    (void)state;
    alone(enlarge_amount);
}

/* Of two waiters, each in a class of its own, the end of the first class is damaged. */
static void damage_class(void *unused)
{
    static const char text[] = "version: 1\nsets: { s: { backend: process, priorities: 2, limits: ["
                               " { type: resource, key: a, capacity: 1 } ] } }\n";
    weir *w = shared_open(text);
    weir_pool *pool = shared_pool(w, "s");
    weir_acquisition *held = NULL, *waiting[2] = {NULL}, *late = NULL;
    struct weir_request request = {.size = sizeof(request)};
    uint64_t found_at[PAGES_MAX];
    uint32_t found_n;
    struct bytes bytes;
    unsigned damaged = 0;

    (void)unused;
    require(weir_submit(pool, &request, &held, NULL) == 0);
    for (int i = 0; i < 2; i++) {
        request.wait_class = i ? "1" : "0";
        require(weir_submit(pool, &request, &waiting[i], NULL) == 1);
    }
    bytes = segment_file();
    found_n = find_pages(&bytes, found_at, PAGES_MAX);
    for (uint32_t i = 0; i < found_n * (SEGMENT_PAGE / sizeof(uint64_t) - 3); i++) {
        uint64_t at = found_at[i % found_n] + i / found_n * sizeof(uint64_t);
        uint64_t first = get_word(&bytes, at), second = get_word(&bytes, at + 16);

        if (!first || first >> 32 != (uint32_t)first || !second || first == second ||
            second >> 32 != (uint32_t)second || get_word(&bytes, at + 8) > 1 ||
            get_word(&bytes, at + 24) > 1)
            continue;
        put_word(&bytes, at, UINT64_C(0x7fffffff) << 32 | (uint32_t)first);
        damaged++;
    }
    require(damaged);
    require(weir_submit(pool, &request, &late, NULL) == -EUCLEAN);
    for (int i = 0; i < 2; i++) {
        while (weir_acquisition_result(waiting[i]) == -EINPROGRESS)
            pause_ns(MS);
        require(weir_acquisition_result(waiting[i]) == -EUCLEAN);
        weir_release(&waiting[i]);
    }
    weir_release(&held);
    weir_pool_close(pool);
    weir_close(w);
}

static void a_class_with_a_wrong_end_breaks_the_set(void **state)
{
    (void)state;
    alone(damage_class);
}

/* Of the cases above. */
static void cases_that_were_not_survived_once(void **state)
{
    static const struct damage damages[] = {
        /* a key's word holds a state, but the limits do not fit a word */
        {.kind = STORM,
         .offset = 0,
         .number = UINT64_C(13373018410604632320),
         .shape = KEYED_COUNT},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++)
        run_kind(damages[i].kind, &damages[i]);
}

static int run_only(const char *text)
{
    struct damage damage = {.shape = MANY};
    char name[8];

    if (sscanf(text, "%7[a-z]:%" SCNu64 ":%" SCNu64 ":%u", name, &damage.offset, &damage.number,
               &damage.shape) < 3 ||
        damage.shape >= SHAPES)
        return 2;
    for (damage.kind = FLIP; damage.kind < KINDS; damage.kind++)
        if (strcmp(kind_names[damage.kind], name) == 0)
            run_kind(damage.kind, &damage);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_dead_of_a_broken_set_stay_dead),
        cmocka_unit_test(a_grant_of_a_broken_set_is_not_canceled),
        cmocka_unit_test(a_broken_keyed_set_says_so),
        cmocka_unit_test(more_than_is_held_is_not_given_back),
        cmocka_unit_test(more_than_is_held_is_not_taken_back),
        cmocka_unit_test(records_are_not_claimed_twice),
        cmocka_unit_test(closing_ends_waits_on_a_broken_set),
        cmocka_unit_test(a_waiter_left_out_of_the_wait_queue_is_notified),
        cmocka_unit_test(a_waiter_that_is_never_next_is_looked_at),
        cmocka_unit_test(a_class_with_a_wrong_end_breaks_the_set),
        cmocka_unit_test(cases_that_were_not_survived_once),
        cmocka_unit_test(single_bits),
        cmocka_unit_test(plausible_words),
        cmocka_unit_test(whole_pages),
        cmocka_unit_test(storms),
    };
    const char *only = getenv("WEIR_CASE");

    seed_begin();
    seconds = number_from("WEIR_SECONDS", number_from("WEIR_DURATION", 6));
    if (only)
        return run_only(only);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
