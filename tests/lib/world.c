/* SPDX-License-Identifier: MIT */
/* The small world: opening, asking, looking. */
#include "lib/world.h"
#include "api/instance.h"
#include "config/plan.h"
#include "lib/redis_world.h"
#include "lib/require.h"
#include "lib/tmpdir.h"
#include <poll.h>
#include <pthread.h>
#include <unistd.h>
#include <weir/segment.h>

#define PATIENCE           (20 * SECOND)
#define TWINS_MAX          4
#define ANSWERS_OF_A_ROUND 4 /* and one to spare */

struct world world;
struct weir_refusal refusal;

static pthread_t main_thread;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static struct twin open_ones[TWINS_MAX]; /* instances: the world's, and its twin */

/* The server's clock follows that of the test: only the thread that moves it has the last word. */
static void show_clock(void)
{
    if (backend->is_remote && pthread_equal(pthread_self(), main_thread))
        redis_world_set_clock(world.now, world.wall);
}

static uint64_t read_now(void *userdata)
{
    (void)userdata;
    show_clock();
    if (world.on_now)
        world.on_now();
    return world.now;
}

static int64_t read_wall(void *userdata)
{
    (void)userdata;
    return world.wall;
}

static void hear(void *userdata, enum weir_log_level level, const char *message)
{
    (void)userdata;
    (void)level;
    pthread_mutex_lock(&log_lock);
    if (world.logged < LOG_MAX)
        snprintf(world.log[world.logged], sizeof(world.log[0]), "%s", message);
    world.logged++;
    pthread_mutex_unlock(&log_lock);
    if (world.on_log)
        world.on_log();
}

uint64_t world_start = START;

static const struct weir_clock clock_by_hand = {sizeof(clock_by_hand), read_now, read_wall, NULL};

static weir *open_instance(const struct weir_options *options)
{
    struct weir_error error = {0};
    weir *w = NULL;

    if (weir_open(&w, options, &error) < 0)
        fail_msg("%s:%u:%u: %s", error.file, error.line, error.column, error.message);
    return w;
}

static void note_open(const struct twin *twin)
{
    size_t i = 0;

    while (i < TWINS_MAX && open_ones[i].w)
        i++;
    assert_true(i < TWINS_MAX);
    open_ones[i] = *twin;
}

static void note_closed(const weir *w)
{
    for (size_t i = 0; i < TWINS_MAX; i++)
        if (open_ones[i].w == w)
            open_ones[i] = (struct twin){0};
}

static void open_with(const struct weir_options *options, const char *name)
{
    world = (struct world){.now = world_start - world_start % backend->tick_ns};
    main_thread = pthread_self();
    if (backend->is_remote && options->clock)
        redis_world_open(world.now);
    else if (backend->is_remote)
        redis_world_open_real();
    world.w = open_instance(options);
    world.pool = pool_open(name, 0);
    world.set = weir_pool_set(world.pool, 0);
    memset(open_ones, 0, sizeof(open_ones)); /* of a test that has failed */
    note_open(&(struct twin){world.w, world.pool, world.set});
}

/* What is shared by processes is shared by this one alone: other tests run beside it. */
static char directory[TMPDIR_SIZE];
static pid_t directory_of;

static void remove_directory(void)
{
    if (getpid() == directory_of)
        rmdir(directory);
}

const char *world_directory(void)
{
    if (!directory_of) {
        assert_true(tmpdir_make(directory, NULL));
        directory_of = getpid();
        assert_int_equal(atexit(remove_directory), 0);
    }
    return directory;
}

static struct weir_options options_by_hand(const char *text)
{
    return (struct weir_options){.size = sizeof(struct weir_options),
                                 .text = text,
                                 .process_dir = world_directory(),
                                 .clock = &clock_by_hand,
                                 .seed = 1,
                                 .log = hear};
}

/* Of the last world_open(). */
static char world_text[16384];

void world_open(const char *text, const char *name)
{
    const struct weir_options options = options_by_hand(world_text);

    backend_write(text, world_text, sizeof(world_text));
    open_with(&options, name);
}

void world_set(const char *fields)
{
    char text[4096];

    snprintf(text, sizeof(text), "version: 1\nsets: { main: { %s } }\n", fields);
    world_open(text, "main");
}

struct twin world_twin(const char *name)
{
    const struct weir_options options = options_by_hand(world_text);
    struct twin twin = {.w = open_instance(&options)};

    assert_int_equal(weir_pool_open(&twin.pool, twin.w, name, 0, NULL), 0);
    twin.set = weir_pool_set(twin.pool, 0);
    note_open(&twin);
    return twin;
}

void world_twin_close(struct twin *twin)
{
    note_closed(twin->w);
    weir_pool_close(twin->pool);
    weir_close(twin->w);
    *twin = (struct twin){0};
}

int world_redefine(const char *text, const char *name, uint32_t flags, struct weir_error *reterr)
{
    const struct weir_options options = options_by_hand(world_text);

    assert_true(backend->is_shared);
    backend_write(text, world_text, sizeof(world_text));
    return weir_segment_redefine(&options, name, flags, NULL, NULL, reterr);
}

void world_limits(const char *limits)
{
    char fields[4096];

    snprintf(fields, sizeof(fields), "limits: [ %s ]", limits);
    world_set(fields);
}

void world_real(const char *fields)
{
    char text[4096];

    snprintf(text, sizeof(text), "version: 1\nsets: { main: { %s } }\n", fields);
    backend_write(text, world_text, sizeof(world_text));
    open_with(&(struct weir_options){.size = sizeof(struct weir_options),
                                     .text = world_text,
                                     .process_dir = world_directory(),
                                     .log = hear},
              "main");
}

void world_close(void)
{
    note_closed(world.w);
    world.pool = weir_pool_close(world.pool);
    world.w = weir_close(world.w);
}

void world_refused(const char *text, const char *why)
{
    const struct weir_options options = {.size = sizeof(options), .text = text};
    struct weir_error error;
    weir *w = NULL;

    assert_true(weir_open(&w, &options, &error) < 0);
    assert_null(w);
    if (!strstr(error.message, why))
        fail_msg("`%s` does not say `%s`", error.message, why);
}

weir_pool *pool_open(const char *name, uint32_t worker)
{
    weir_pool *pool = NULL;

    assert_int_equal(weir_pool_open(&pool, world.w, name, worker, NULL), 0);
    return pool;
}

/* ---- an engine ---- */

/* Looks at the set, again if an engine does not answer in time: the machine is busy. */
static int look(weir_set *set, struct picture *ret)
{
    uint64_t end = clock_now() + PATIENCE;
    int r;

    do {
        *ret = (struct picture){.set.size = sizeof(ret->set)};
        r = weir_set_stats(set, &ret->set, ret->limits, 8);
    } while (r == -EHOSTUNREACH && backend->is_remote && clock_now() < end);
    return r;
}

/* After this an engine has acted on all that the instance has sent, and what the answers brought up
 * has been done here: all sets of an instance have one link, on which they come in order. Counters
 * would not do, as those of a set with subjects are known without the engine. */
static void await_answer(weir_set *set)
{
    static const struct weir_request request = {
        .size = sizeof(request), .subject = "await", .subject_size = 5};
    uint64_t end = clock_now() + PATIENCE;
    struct weir_remaining ignored;
    int r;

    do
        r = weir_set_remaining(set, &request, &ignored, 1);
    while (r == -EHOSTUNREACH && clock_now() < end); /* the machine is busy */
    assert_true(r >= 0);
}

static void await_answers(void)
{
    for (size_t i = 0; i < TWINS_MAX; i++)
        if (open_ones[i].w)
            await_answer(open_ones[i].set);
}

/* Counts what the records of remote sets say. */
static void add_tickets(weir *w, struct redis_world_tickets *ret)
{
    uint32_t record = 0;

    pthread_mutex_lock(&w->lock);
    while ((record = region_next_record(&w->region, record))) {
        const struct acq_record *r = record_at(&w->region, record);
        enum record_state state = record_state(record_load(&r->word));
        const weir_set *set;
        uint64_t sum = 0;

        if (state != RECORD_HELD && state != RECORD_WAITING)
            continue;
        set = instance_set(w, record_set_number(r));
        for (uint32_t i = 0; i < set->limits.n; i++)
            sum += record_load(&r->amounts[i]);
        if (set->backend == BACKEND_REMOTE && sum > 0)
            *(state == RECORD_HELD ? &ret->held : &ret->waiting) += 1;
    }
    pthread_mutex_unlock(&w->lock);
}

static bool is_settled(struct redis_world_tickets *ret_here, struct redis_world_tickets *ret_there)
{
    struct redis_world_tickets here = {0}, there;

    await_answers();
    there = redis_world_tickets();
    for (size_t i = 0; i < TWINS_MAX; i++)
        if (open_ones[i].w)
            add_tickets(open_ones[i].w, &here);
    *ret_here = here;
    *ret_there = there;
    return here.waiting == there.waiting && here.held == there.held;
}

/* An instance that has acted on a message fetches, commits, and commits once more if the clock was
 * moved meanwhile. Each takes one answer. A commit that succeeds may bring up the next one. */
static bool is_decided(void)
{
    struct redis_world_tickets before, after;

    if (!backend->is_foreign)
        return true;
    if (!redis_world_is_quiet())
        return false;
    before = redis_world_tickets();
    for (int i = 0; i < ANSWERS_OF_A_ROUND; i++)
        await_answers();
    after = redis_world_tickets();
    return redis_world_is_quiet() && before.commits == after.commits &&
           before.waiting == after.waiting && before.held == after.held;
}

/* What an engine has granted or ended it has said, maybe on the way to here. As long as that is not
 * known, one side has more that waits or holds than the other. */
void settle(void)
{
    uint64_t end = clock_now() + PATIENCE;
    struct redis_world_tickets here, there;

    if (!backend->is_remote || !world.w)
        return;
    show_clock();
    while (!is_settled(&here, &there) || !is_decided()) {
        if (clock_now() > end)
            fail_msg("%" PRIu64 " wait and %" PRIu64 " are held here; %" PRIu64 " and %" PRIu64
                     " on the server",
                     here.waiting, here.held, there.waiting, there.held);
        sched_yield();
    }
    await_answers(); /* of what the last messages brought up */
}

static uint64_t waiting_here(void)
{
    struct redis_world_tickets here = {0};

    add_tickets(world.w, &here);
    return here.waiting;
}

int advance(uint64_t ns)
{
    uint64_t before = waiting_here();
    int n;

    world.now += ns;
    if (backend->is_remote) {
        show_clock();
        redis_world_pump();
        settle(); /* what is granted at this instant does not end at it */
    }
    n = weir_tick(world.w);
    assert_true(n >= 0);
    settle();
    return backend->is_remote ? (int)(before - waiting_here()) : n;
}

/* A submission to an engine waits, until that has answered. Then it is as with other sets. */
static int answered(weir_acquisition **acquisition)
{
    int r;

    settle();
    r = weir_acquisition_result(*acquisition);
    if (r == -EINPROGRESS)
        return 1;
    if (r < 0) {
        assert_int_equal(weir_acquisition_refusal(*acquisition, &refusal), 0);
        weir_release(acquisition);
    }
    return r;
}

struct weir_request *with_timeout(struct weir_request *request, uint64_t timeout_ns)
{
    request->timeout_ns = timeout_ns;
    return request;
}

struct weir_request *with_max_wait(struct weir_request *request, uint64_t max_wait_ns)
{
    request->max_wait_ns = max_wait_ns;
    return request;
}

struct weir_request *strict(struct weir_request *request)
{
    request->flags |= WEIR_STRICT;
    return request;
}

static struct weir_refusal *fresh_refusal(void)
{
    refusal = (struct weir_refusal){.size = sizeof(refusal)};
    return &refusal;
}

int take(const struct weir_request *request)
{
    return weir_take(world.pool, request, fresh_refusal());
}

int try_acquire(const struct weir_request *request, weir_acquisition **ret)
{
    return weir_try_acquire(world.pool, request, ret, fresh_refusal());
}

int submit(const struct weir_request *request, weir_acquisition **ret)
{
    int r = weir_submit(world.pool, request, ret, fresh_refusal());

    return r == 1 && backend->is_remote ? answered(ret) : r;
}

int reserve(const struct weir_request *request, weir_acquisition **ret, uint64_t *ret_at_ns)
{
    return weir_reserve(world.pool, request, ret, ret_at_ns, fresh_refusal());
}

weir_acquisition *granted(const struct weir_request *request)
{
    weir_acquisition *acquisition = NULL;

    assert_int_equal(try_acquire(request, &acquisition), 0);
    assert_non_null(acquisition);
    return acquisition;
}

weir_acquisition *pending(const struct weir_request *request)
{
    weir_acquisition *acquisition = NULL;

    assert_int_equal(submit(request, &acquisition), 1);
    assert_non_null(acquisition);
    assert_int_equal(weir_acquisition_result(acquisition), -EINPROGRESS);
    return acquisition;
}

void release_expecting(weir_acquisition *acquisition, int result)
{
    assert_int_equal(weir_release(&acquisition), result);
    assert_null(acquisition);
    settle();
}

void release(weir_acquisition *acquisition)
{
    release_expecting(acquisition, 0);
}

void release_used(weir_acquisition *acquisition, const char *key, uint64_t used)
{
    assert_int_equal(weir_update(acquisition, key, used), 0);
    release(acquisition);
}

void assert_forecast(const char *key, uint64_t retry_after_ns)
{
    bool is_exact = backend->has & HAS_EXACT_FORECASTS;

    assert_true(refusal.retry_after_ns <= retry_after_ns);
    if (is_exact)
        assert_int_equal(refusal.retry_after_ns, retry_after_ns);
    if (is_exact || (retry_after_ns && refusal.retry_after_ns == retry_after_ns))
        assert_string_equal(refusal.key, key);
}

void assert_ready_at(const struct weir_request *request, uint64_t ns)
{
    uint64_t at = UINT64_MAX;

    assert_int_equal(weir_set_ready_at(world.set, request, &at), 0);
    assert_true(at <= ns);
    if (backend->has & HAS_EXACT_FORECASTS)
        assert_int_equal(at, ns);
}

struct picture picture(void)
{
    struct picture ret;

    show_clock();
    assert_true(look(world.set, &ret) >= 0);
    return ret;
}

struct weir_set_stats stats(void)
{
    return picture().set;
}

struct weir_limit_stats limit_stats(size_t limit)
{
    return picture().limits[limit];
}

uint64_t available(size_t limit)
{
    return limit_stats(limit).available;
}

void assert_same_limits(const struct picture *before, const struct picture *after)
{
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(before->limits[i].available, after->limits[i].available);
        assert_int_equal(before->limits[i].held, after->limits[i].held);
        assert_int_equal(before->limits[i].granted, after->limits[i].granted);
        assert_int_equal(before->limits[i].refunded, after->limits[i].refunded);
        assert_int_equal(before->limits[i].overused, after->limits[i].overused);
    }
    assert_int_equal(before->set.granted, after->set.granted);
    assert_int_equal(before->set.held, after->set.held);
}

bool readable(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    return poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & POLLIN);
}
