/* SPDX-License-Identifier: MIT */
/* The small world: opening, asking, looking. */
#include "lib/world.h"
#include "lib/tmpdir.h"
#include <poll.h>
#include <unistd.h>

struct world world;
struct weir_refusal refusal;

static uint64_t read_now(void *userdata)
{
    (void)userdata;
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
    if (world.logged < LOG_MAX)
        snprintf(world.log[world.logged], sizeof(world.log[0]), "%s", message);
    world.logged++;
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

static void open_with(const struct weir_options *options, const char *name)
{
    world = (struct world){.now = world_start};
    world.w = open_instance(options);
    world.pool = pool_open(name, 0);
    world.set = weir_pool_set(world.pool, 0);
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

    snprintf(world_text, sizeof(world_text), "%s", text);
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
    return twin;
}

void world_twin_close(struct twin *twin)
{
    weir_pool_close(twin->pool);
    weir_close(twin->w);
    *twin = (struct twin){0};
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
    open_with(&(struct weir_options){.size = sizeof(struct weir_options),
                                     .text = text,
                                     .process_dir = world_directory(),
                                     .log = hear},
              "main");
}

void world_close(void)
{
    world.pool = weir_pool_close(world.pool);
    world.w = weir_close(world.w);
}

weir_pool *pool_open(const char *name, uint32_t worker)
{
    weir_pool *pool = NULL;

    assert_int_equal(weir_pool_open(&pool, world.w, name, worker, NULL), 0);
    return pool;
}

int advance(uint64_t ns)
{
    int n;

    world.now += ns;
    n = weir_tick(world.w);
    assert_true(n >= 0);
    return n;
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
    return weir_submit(world.pool, request, ret, fresh_refusal());
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

struct picture picture(void)
{
    struct picture ret = {.set.size = sizeof(ret.set)};

    assert_true(weir_set_stats(world.set, &ret.set, ret.limits, 8) >= 0);
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
