/* SPDX-License-Identifier: MIT */
/*
 * Every call that can fail, failing in turn. Each scenario is run with the first, the second, the
 * third … fallible call failing, until it ends without a failure; once with only that call failing,
 * once with it and all that follow, once with calls that a healthy kernel never refuses. Each time
 * the answer is success or an error that the scenario may give, out-parameters are untouched on
 * failure, the set is whole afterwards, and nothing is left behind.
 */
#include "lib/clock.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/require.h"
#include "lib/tmpdir.h"
#include "wait/cq.h"
#include "whole_set.h"
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <weir/segment.h>

#include <cmocka.h>

#define FEW             ((const int[]){-ENOMEM, 0})
#define UNTOUCHED(type) ((type *)(uintptr_t)&untouched)

static char untouched; /* where out-parameters point before a call */
static const char *config_file;
static bool failure_seen;

/* From now on everything works. */
static void calm(void)
{
    failure_seen |= fake_os_has_failed();
    fake_os_fail_kind_at(0, 0, 0);
}

typedef void arm_fn(uint64_t n);

/* What calm() has ended goes on, from the first call. */
static arm_fn *armed;
static uint64_t armed_n;

static void resume(void)
{
    armed(armed_n);
}

struct scenario {
    const char *name;
    /* 0, or the error of the call under test. The world is open, except for `bare` scenarios. */
    int (*run)(struct whole_set *world);
    const int *errors; /* that it may give, ending with 0 */
    bool bare;
};

static int open_with(struct whole_set *world, const struct weir_options *options)
{
    struct weir_error error = {0};
    weir *w = UNTOUCHED(weir);
    int r = weir_open(&w, options, &error);

    require(r <= 0);
    if (r < 0) {
        require(w == UNTOUCHED(weir));
        require(error.code == r && error.message[0]);
        return r;
    }
    world->w = w;
    return 0;
}

static int run_open(struct whole_set *world)
{
    return open_with(world, NULL);
}

static int run_open_text(struct whole_set *world)
{
    struct weir_options options = {.size = sizeof(options), .text = world_text};

    return open_with(world, &options);
}

static int run_open_file(struct whole_set *world)
{
    struct weir_options options = {.size = sizeof(options), .file = config_file};

    return open_with(world, &options);
}

/* Returns how much the instance that publishes says to one that asks, or 0 if it has no socket. */
static size_t asked(const char *directory)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[128], bytes[512];
    size_t said = 0;
    ssize_t n;
    int fd;

    if (!tmpdir_find(directory, ".sock", name))
        return 0;
    require(snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", directory, name) < 108);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    require(fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
    while ((n = read(fd, bytes, sizeof(bytes))) > 0)
        said += (size_t)n;
    close(fd);
    return said;
}

static int ignore_segment(void *userdata, const struct weir_segment *segment)
{
    (void)userdata, (void)segment;
    return 0;
}

static bool was_warned;

static void note_warning(void *userdata, enum weir_log_level level, const char *message)
{
    (void)userdata;
    was_warned |= level == WEIR_LOG_WARNING && strncmp(message, "publish: ", 9) == 0;
}

/* It publishes, or says why not and works otherwise. What fails while it is asked passes. */
static int run_open_published(struct whole_set *world)
{
    static char directory[TMPDIR_SIZE], text[1024];
    struct weir_options options = {
        .size = sizeof(options), .text = text, .process_dir = directory, .log = note_warning};
    bool is_heard;
    int r;

    snprintf(text, sizeof(text), "%spublish: true\n", world_text);
    require(tmpdir_make(directory, NULL));
    was_warned = false;
    r = open_with(world, &options);
    if (r == 0) {
        calm();
        is_heard = !was_warned; /* else a file may have stayed: removing it failed, too */
        require(!is_heard || tmpdir_find(directory, ".sock", text));
        resume();
        (void)weir_segments(&options, ignore_segment, NULL, NULL);
        calm();
        require(!is_heard || asked(directory) > 1000);
        world->w = weir_close(world->w);
        require(!is_heard || !tmpdir_find(directory, ".sock", text));
    }
    tmpdir_remove(directory);
    return r;
}

static int open_pool(struct whole_set *world, const char *name)
{
    weir_pool *pool = UNTOUCHED(weir_pool);
    int r = weir_pool_open(&pool, world->w, name, WEIR_WORKER_AUTO, NULL);

    require(r <= 0 && (r == 0) == (pool != UNTOUCHED(weir_pool)));
    if (r == 0)
        weir_pool_close(pool);
    return r;
}

static int run_pool_open(struct whole_set *world)
{
    int r = open_pool(world, "pool");

    return r < 0 ? r : open_pool(world, "set");
}

static int run_pool_of_anything(struct whole_set *world)
{
    int r = open_with(world, NULL);

    return r < 0 ? r : open_pool(world, "anything");
}

/* Two sets of its own, one that is there already, and a name. */
static int define_with(struct whole_set *world, uint32_t flags, weir_pool **ret,
                       struct weir_error *reterr)
{
    static const struct weir_setting settings[] = {{"burst", "5"}};
    static const struct weir_setting config[] = {{"region", "there"}};
    static const struct weir_limit_spec limits[] = {
        {.size = sizeof(limits[0]),
         .type = WEIR_LIMIT_RATE,
         .key = "tokens",
         .algorithm = "gcra",
         .capacity = 100,
         .window_ns = 1000000000,
         .settings = settings,
         .settings_n = 1},
        {.size = sizeof(limits[0]), .type = WEIR_LIMIT_RESOURCE, .key = "db", .capacity = 1},
    };
    static const char *const names[] = {"set"};
    const struct weir_set_spec sets[] = {
        {.size = sizeof(sets[0]),
         .name = "a",
         .limits = limits,
         .limits_n = 2,
         .config = config,
         .config_n = 1},
        {.size = sizeof(sets[0]), .name = "b", .limits = limits, .limits_n = 2},
    };
    struct weir_pool_spec spec = {.size = sizeof(spec),
                                  .name = "both",
                                  .sets = sets,
                                  .sets_n = 2,
                                  .set_names = names,
                                  .set_names_n = 1,
                                  .flags = flags};

    return weir_pool_new(ret, world->w, &spec, reterr);
}

static int define(struct whole_set *world, weir_pool **ret, struct weir_error *reterr)
{
    return define_with(world, 0, ret, reterr);
}

/* All or nothing: what could not be defined can be defined afterwards, under the same names. */
static int run_pool_new(struct whole_set *world)
{
    struct weir_error error = {0};
    weir_pool *pool = UNTOUCHED(weir_pool);
    int r = define(world, &pool, &error);

    require(r <= 0 && (r == 0) == (pool != UNTOUCHED(weir_pool)));
    if (r == 0) {
        require(weir_pool_sets(pool) == 3);
        weir_pool_close(pool);
        return 0;
    }
    require(error.code == r && error.message[0]);
    calm();
    require(weir_pool_open(&pool, world->w, "a", 0, NULL) == -ENOENT);
    require(weir_pool_open(&pool, world->w, "both", 0, NULL) == -ENOENT);
    require(define(world, &pool, &error) == 0);
    weir_pool_close(pool);
    return r;
}

/* One set changes with a holder and a waiter, one is removed, one comes, and a pool; another pool
 * gets other sets. */
static int reload_with(const struct whole_set *world, const char *capacity, const char *others,
                       struct weir_error *reterr)
{
    char text[1024];
    const struct weir_options options = {
        .size = sizeof(options), .text = text, .flags = WEIR_OPEN_WARNINGS};

    snprintf(text, sizeof(text),
             "version: 1\nsets: { r: { limits: [ { type: resource, key: k, capacity: %s }, { type: "
             "call, key: c, algorithm: gcra, capacity: 9, window: 1s } ] }, %s",
             capacity, others);
    return weir_reload(world->w, &options, reterr);
}

static int run_reload(struct whole_set *world)
{
    static const char before[] = "gone: { limits: [] } }\npools: { p: { sets: [gone, r] } }\n",
                      after[] = "comes: { limits: [ { type: resource, key: k, capacity: 1 } ] } }\n"
                                "pools: { p: { sets: [comes, r], wait: any }, both: { sets: [r, "
                                "comes] } }\n";
    struct weir_error error = {0};
    weir_pool *pool = NULL, *none = NULL, *changes = NULL;
    weir_acquisition *held = NULL, *waiting = NULL, *more = NULL;
    int r;

    calm();
    require(weir_open(
                &world->w,
                &(struct weir_options){.size = sizeof(struct weir_options), .text = "version: 1\n"},
                NULL) == 0);
    require(reload_with(world, "1", before, NULL) == 0);
    require(weir_pool_open(&pool, world->w, "r", 0, NULL) == 0);
    require(weir_pool_open(&changes, world->w, "p", 0, NULL) == 0);
    require(weir_try_acquire(pool, NULL, &held, NULL) == 0);
    require(weir_submit(pool, NULL, &waiting, NULL) == 1);
    resume();
    r = reload_with(world, "2", after, &error);
    require(r <= 0 && (r == 0 || (error.code == r && error.message[0])));
    calm();
    require(weir_acquisition_result(waiting) == (r == 0 ? 0 : -EINPROGRESS));
    require(weir_pool_open(&none, world->w, r == 0 ? "gone" : "comes", 0, NULL) == -ENOENT);
    require(weir_pool_open(&none, world->w, r == 0 ? "gone" : "both", 0, NULL) == -ENOENT);
    require(weir_pool_open(&none, world->w, "r", 0, NULL) == 0); /* its name is as it was */
    none = weir_pool_close(none);
    require(weir_try_acquire(changes, NULL, &more, NULL) == 0);
    require(strcmp(weir_acquisition_set(more), r == 0 ? "comes" : "gone") == 0);
    require(weir_pool_flags(changes) == (r == 0 ? WEIR_POOL_WAIT_ANY : 0));
    require(weir_release(&more) == 0);
    weir_pool_close(changes);
    require(weir_release(&held) == 0);
    require(weir_acquisition_result(waiting) == 0);
    require(weir_try_acquire(pool, NULL, &more, NULL) == (r == 0 ? 0 : -EAGAIN));
    require(weir_release(&more) == 0 && weir_release(&waiting) == 0);
    weir_pool_close(pool);
    return r;
}

static int reload_subjects_with(const struct whole_set *world, const char *limits, unsigned max,
                                struct weir_error *reterr)
{
    char text[1024];
    const struct weir_options options = {.size = sizeof(options), .text = text};

    snprintf(
        text, sizeof(text),
        "version: 1\nsets: { each: { subjects: { max: %u }, limits: [ { type: resource, key: k, "
        "capacity: %s ] } }\n",
        max, limits);
    return weir_reload(world->w, &options, reterr);
}

/* A subject has a holder and a waiter, another one a holder alone, which is a word that becomes a
 * key set or stays a word. If there is no memory for the change of a subject the waiter goes on by
 * the definition that it has, and a release returns to that. */
static int run_reload_subjects_to(struct whole_set *world, const char *limits, unsigned max)
{
    const struct weir_request a = {.size = sizeof(a), .subject = "a", .subject_size = 1};
    const struct weir_request b = {.size = sizeof(b), .subject = "b", .subject_size = 1};
    weir_acquisition *held = NULL, *waiting = NULL, *alone = NULL, *more = NULL;
    struct weir_error error = {0};
    weir_pool *pool = NULL;
    int r, asked;

    calm();
    require(weir_open(
                &world->w,
                &(struct weir_options){.size = sizeof(struct weir_options), .text = "version: 1\n"},
                NULL) == 0);
    require(reload_subjects_with(world, "1 }", 9, NULL) == 0);
    require(weir_pool_open(&pool, world->w, "each", 0, NULL) == 0);
    require(weir_try_acquire(pool, &a, &held, NULL) == 0);
    require(weir_try_acquire(pool, &b, &alone, NULL) == 0);
    require(weir_submit(pool, &a, &waiting, NULL) == 1);
    resume();
    r = reload_subjects_with(world, limits, max, &error);
    require(r <= 0 && (r == 0 || (error.code == r && error.message[0])));
    asked = weir_try_acquire(pool, &b, &more, NULL);
    require(asked == 0 ? r == 0 : asked == -EAGAIN ? r < 0 : asked == -ENOMEM);
    require(weir_release(&alone) == 0);
    if (asked == 0)
        require(weir_release(&more) == 0);
    require(weir_acquisition_result(waiting) == -EINPROGRESS || r == 0);
    require(weir_release(&held) == 0);
    calm();
    require(weir_acquisition_result(waiting) == 0);
    require(weir_release(&waiting) == 0);
    /* Whatever failed, no unit is lost, and the new definition holds. */
    for (int i = 0; i < 2; i++) {
        const struct weir_request *request = i ? &a : &b;

        require(weir_try_acquire(pool, request, &held, NULL) == 0);
        require(weir_try_acquire(pool, request, &more, NULL) == (r == 0 ? 0 : -EAGAIN));
        require(r < 0 || weir_release(&more) == 0);
        require(weir_release(&held) == 0);
    }
    weir_pool_close(pool);
    return r < 0 ? r : asked == -EAGAIN ? 0 : asked;
}

static int run_reload_subjects(struct whole_set *world)
{
    return run_reload_subjects_to(world, "2 }", 9);
}

static int run_reload_subjects_to_two_limits(struct whole_set *world)
{
    return run_reload_subjects_to(
        world, "2 }, { type: call, key: c, algorithm: gcra, capacity: 9, window: 1s }", 999);
}

static int run_try(struct whole_set *world)
{
    weir_acquisition *acquisition = UNTOUCHED(weir_acquisition);
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    int r = weir_try_acquire(world->pool, &want_db, &acquisition, &refusal);

    require((r == 0) == (acquisition != UNTOUCHED(weir_acquisition)));
    if (r == 0)
        require(weir_release(&acquisition) == 0);
    return r;
}

static int run_take(struct whole_set *world)
{
    return weir_take(world->pool, &want_tokens, NULL);
}

static int run_acquire(struct whole_set *world)
{
    weir_acquisition *acquisition = UNTOUCHED(weir_acquisition);
    int r = weir_acquire(world->pool, &want_all, &acquisition, NULL);

    require((r == 0) == (acquisition != UNTOUCHED(weir_acquisition)));
    if (r == 0) {
        require(weir_update(acquisition, "tokens", 0) == 0);
        require(weir_release(&acquisition) == 0);
    }
    return r;
}

/* Blocks until the bucket has one more. */
static int run_acquire_later(struct whole_set *world)
{
    weir_acquisition *acquisition = UNTOUCHED(weir_acquisition);
    int r = weir_take(world->pool, &want_every_token, NULL);

    if (r < 0)
        return r;
    r = weir_acquire(world->pool, &want_tokens, &acquisition, NULL);
    require((r == 0) == (acquisition != UNTOUCHED(weir_acquisition)));
    if (r == 0)
        require(weir_release(&acquisition) == -EPROTO);
    return r;
}

/* In advance; taken back or used. Until its instant comes nothing else is granted. */
static int reserve(struct whole_set *world, bool use)
{
    weir_acquisition *acquisition = UNTOUCHED(weir_acquisition);
    uint64_t at = 7;
    int r = weir_reserve(world->pool, &want_tokens, &acquisition, &at, NULL);

    require((r == 0) == (acquisition != UNTOUCHED(weir_acquisition)));
    require((r == 0) == (at != 7));
    if (r < 0)
        return r;
    require((use ? weir_update(acquisition, "tokens", 1) : weir_cancel(acquisition)) == 0);
    require(weir_acquisition_result(acquisition) == (use ? 0 : -ECANCELED));
    require(weir_release(&acquisition) == 0);
    while (weir_now(world->w) < at)
        pause_ns(MS);
    return 0;
}

static int run_reserve(struct whole_set *world)
{
    int r = weir_take(world->pool, &want_every_token, NULL);

    if (r == 0)
        r = reserve(world, false);
    return r < 0 ? r : reserve(world, true);
}

/* Holds all there is of the resource; an error of that is the scenario's. */
static int fill(struct whole_set *world, weir_acquisition **ret)
{
    *ret = NULL;
    return weir_try_acquire(world->pool, &want_every_db, ret, NULL);
}

static int run_acquire_in_vain(struct whole_set *world)
{
    weir_acquisition *all, *acquisition = UNTOUCHED(weir_acquisition);
    struct weir_request request = want_db;
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    int r = fill(world, &all);

    if (r < 0)
        return r;
    request.timeout_ns = 2 * MS;
    r = weir_acquire(world->pool, &request, &acquisition, &refusal);
    require(r < 0 && acquisition == UNTOUCHED(weir_acquisition));
    require(r != -ETIMEDOUT || strcmp(refusal.key, "db") == 0);
    require(weir_release(&all) == 0);
    return r == -ETIMEDOUT ? 0 : r;
}

/* With a token: in vain, and then canceled. */
static int acquire_with_token(struct whole_set *world, weir_token *token)
{
    weir_acquisition *all, *acquisition = UNTOUCHED(weir_acquisition);
    struct weir_request request = want_db;
    int r = fill(world, &all);

    if (r < 0)
        return r;
    request.timeout_ns = 2 * MS;
    request.token = token;
    r = weir_acquire(world->pool, &request, &acquisition, NULL);
    require(r < 0 && acquisition == UNTOUCHED(weir_acquisition));
    require(weir_release(&all) == 0);
    require(weir_token_cancel(token) == 0);
    if (r == -ETIMEDOUT)
        r = weir_acquire(world->pool, &request, &acquisition, NULL);
    require(r < 0 && acquisition == UNTOUCHED(weir_acquisition));
    return r == -ECANCELED ? 0 : r;
}

static int run_token(struct whole_set *world)
{
    weir_token *token = UNTOUCHED(weir_token);
    int r = weir_token_open(&token, world->w);

    require((r == 0) == (token != UNTOUCHED(weir_token)));
    if (r < 0)
        return r;
    r = acquire_with_token(world, token);
    require(!weir_token_close(token));
    return r;
}

static int run_return(struct whole_set *world)
{
    weir_acquisition *all;
    int r = fill(world, &all);

    if (r < 0)
        return r;
    require(weir_return(all, "db", 1) == 0); /* of a private set it cannot fail */
    require(weir_release(&all) == 0);
    return 0;
}

/* The holder of all asks for more, which closes a circle: the search for it needs memory. */
static int run_acquire_nested(struct whole_set *world)
{
    weir_acquisition *all, *acquisition = UNTOUCHED(weir_acquisition);
    struct weir_request request = want_db;
    int r = fill(world, &all);

    if (r < 0)
        return r;
    request.within = all;
    r = weir_acquire(world->pool, &request, &acquisition, NULL);
    require(r < 0 && acquisition == UNTOUCHED(weir_acquisition));
    require(weir_release(&all) == 0);
    return r == -EDEADLK ? 0 : r;
}

/* A pending submission, or its error; `*ret_all` is released already on failure. */
static int submit_behind(struct whole_set *world, const struct weir_request *request,
                         weir_acquisition **ret_all, weir_acquisition **ret)
{
    int r = fill(world, ret_all);

    *ret = UNTOUCHED(weir_acquisition);
    if (r < 0)
        return r;
    r = weir_submit(world->pool, request, ret, NULL);
    require(r == 1 || r < 0);
    require((r == 1) == (*ret != UNTOUCHED(weir_acquisition)));
    if (r < 0)
        require(weir_release(ret_all) == 0);
    return r < 0 ? r : 0;
}

static int run_submit(struct whole_set *world)
{
    weir_acquisition *all, *acquisition;
    int r = submit_behind(world, &want_db, &all, &acquisition), fd;

    if (r < 0)
        return r;
    fd = weir_acquisition_fd(acquisition);
    require(weir_release(&all) == 0);
    if (fd >= 0)
        require(world_await(world, acquisition) == 0);
    else
        require(weir_acquisition_result(acquisition) == 0);
    require(weir_release(&acquisition) == 0);
    return fd < 0 ? fd : 0;
}

/* With a descriptor of the program's own, which is attached before or after the grant. */
static int attach_and_await(struct whole_set *world, int event_fd, bool late)
{
    weir_acquisition *all, *acquisition;
    int r = submit_behind(world, &want_db, &all, &acquisition);
    uint64_t count;

    if (r < 0)
        return r;
    if (late)
        require(weir_release(&all) == 0);
    r = weir_acquisition_attach(acquisition, event_fd);
    require(weir_release(&all) == 0);
    require(weir_acquisition_result(acquisition) == 0);
    if (r == 0)
        require(world_await(world, acquisition) == 0);
    require(read(event_fd, &count, sizeof(count)) == (r == 0 ? (ssize_t)sizeof(count) : -1));
    require(weir_release(&acquisition) == 0);
    return r;
}

static int run_attach(struct whole_set *world)
{
    int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), r;

    require(event_fd >= 0);
    r = attach_and_await(world, event_fd, false);
    if (r == 0)
        r = attach_and_await(world, event_fd, true);
    require(close(event_fd) == 0);
    return r;
}

/* Granted by time alone. */
static int run_submit_later(struct whole_set *world)
{
    weir_acquisition *acquisition = UNTOUCHED(weir_acquisition);
    int r = weir_take(world->pool, &want_every_token, NULL);

    if (r < 0)
        return r;
    r = weir_submit(world->pool, &want_tokens, &acquisition, NULL);
    require((r >= 0) == (acquisition != UNTOUCHED(weir_acquisition)));
    if (r < 0)
        return r;
    for (int i = 0; i < 5000 && weir_acquisition_result(acquisition) == -EINPROGRESS; i++)
        weir_tick(world->w), pause_ns(MS);
    require(weir_acquisition_result(acquisition) == 0);
    require(weir_release(&acquisition) == -EPROTO);
    return 0;
}

static int run_submit_in_vain(struct whole_set *world)
{
    struct weir_request request = want_db;
    weir_acquisition *all, *acquisition;
    int r;

    request.timeout_ns = 2 * MS;
    r = submit_behind(world, &request, &all, &acquisition);
    if (r < 0)
        return r;
    for (int i = 0; i < 5000 && weir_acquisition_result(acquisition) == -EINPROGRESS; i++)
        weir_tick(world->w), pause_ns(MS);
    require(weir_acquisition_result(acquisition) == -ETIMEDOUT);
    require(weir_release(&acquisition) == 0);
    require(weir_release(&all) == 0);
    return 0;
}

static int run_cancel(struct whole_set *world)
{
    weir_acquisition *all, *acquisition;
    int r = submit_behind(world, &want_db, &all, &acquisition);

    if (r < 0)
        return r;
    require(weir_cancel(acquisition) == 0);
    require(weir_acquisition_result(acquisition) == -ECANCELED);
    r = weir_acquisition_fd(acquisition);
    if (r >= 0)
        require(world_await(world, acquisition) == -ECANCELED);
    require(weir_release(&acquisition) == 0);
    require(weir_release(&all) == 0);
    return r < 0 ? r : 0;
}

/* Released while it pends. */
static int run_release_pending(struct whole_set *world)
{
    weir_acquisition *all, *acquisition;
    int r = submit_behind(world, &want_db, &all, &acquisition);

    if (r < 0)
        return r;
    require(weir_release(&acquisition) == 0);
    require(weir_release(&all) == 0);
    return 0;
}

/* Closed under a waiter; the world is opened anew for the last check. */
static int run_close(struct whole_set *world)
{
    weir_acquisition *all, *acquisition;
    int r = submit_behind(world, &want_db, &all, &acquisition);

    if (r < 0)
        return r;
    weir_close(world->w);
    require(weir_acquisition_result(acquisition) == -ESHUTDOWN);
    require(weir_release(&acquisition) == 0);
    require(weir_release(&all) == 0);
    weir_pool_close(world->pool);
    calm();
    world_open(world);
    return 0;
}

static int run_look(struct whole_set *world)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_holder holders[2] = {{0}};
    weir_set *set = weir_pool_set(world->pool, 0);
    uint64_t ready_at = 7;
    weir_acquisition *all;
    int r;

    require(weir_set_stats(set, &stats, NULL, 0) > 0 || stats.granted == 0);
    r = weir_set_ready_at(set, &want_db, &ready_at);
    require(r == 0 || ready_at == 7);
    if (r == 0)
        r = fill(world, &all);
    if (r < 0)
        return r;
    r = weir_set_holders(set, holders, 2);
    require(r == 1 || holders[0].id == 0);
    if (r == 1)
        r = weir_set_stats(set, &stats, NULL, 0) == 3 ? 0 : -ENOMEM;
    require(weir_release(&all) == 0);
    return r;
}

/* Through a balancer. */
static int run_pool_of_three(struct whole_set *world)
{
    weir_pool *pool = NULL;
    int r = define(world, &pool, NULL);

    for (int i = 0; i < 3 && r == 0; i++) {
        weir_acquisition *acquisition = NULL;

        r = weir_acquire(pool, &want_db, &acquisition, NULL);
        require(weir_release(&acquisition) == 0);
    }
    weir_pool_close(pool);
    return r;
}

/* ---- a request that waits in three sets ---- */

enum { SLOTS_OF_THREE = 1 + 1 + DB_CAPACITY };

struct three {
    weir_pool *pool;
    weir_acquisition *held[SLOTS_OF_THREE];
};

/* Lets go of everything. What had to be withdrawn is gone from the sets by then, or soon. */
static int end_three(struct three *three, int r)
{
    calm();
    for (int i = 0; i < SLOTS_OF_THREE; i++)
        require(weir_release(&three->held[i]) == 0);
    for (size_t i = 0; i < weir_pool_sets(three->pool); i++) {
        struct weir_set_stats stats = {.size = sizeof(stats), .waiting = 1};

        for (int turn = 0; turn < 20000 && (stats.waiting || stats.held); turn++) {
            require(weir_set_stats(weir_pool_set(three->pool, i), &stats, NULL, 0) > 0);
            pause_ns(MS / 10);
        }
        require(!stats.waiting && !stats.held);
    }
    three->pool = weir_pool_close(three->pool);
    return r;
}

/* Holds all slots of three sets. On failure there is nothing. */
static int begin_three(struct whole_set *world, struct three *ret)
{
    int r;

    *ret = (struct three){.pool = NULL};
    r = define_with(world, WEIR_POOL_WAIT_ANY, &ret->pool, NULL);
    for (int i = 0; r == 0 && i < SLOTS_OF_THREE; i++)
        r = weir_submit(ret->pool, &want_db, &ret->held[i], NULL);
    require(r <= 0);
    return r < 0 ? end_three(ret, r) : 0;
}

/* Granted by a set, canceled, and released while it waits. */
static int run_any_submit(struct whole_set *world)
{
    struct three three;
    weir_acquisition *acquisition = NULL;
    int r = begin_three(world, &three);

    for (int end = 0; r == 0 && end < 3; end++) {
        r = weir_submit(three.pool, &want_db, &acquisition, NULL);
        require(r < 0 || r == 1);
        require((r < 0) == !acquisition);
        if (r < 0)
            return end_three(&three, r);
        if (end == 0)
            require(weir_release(&three.held[2]) == 0);
        if (end == 1)
            require(weir_cancel(acquisition) == 0);
        if (end < 2)
            require(world_await(world, acquisition) == (end == 0 ? 0 : -ECANCELED));
        require(weir_release(&acquisition) == 0);
        r = end == 0 ? weir_submit(three.pool, &want_db, &three.held[2], NULL) : 0;
        if (r == 1) { /* what was withdrawn has not left its set yet */
            require(weir_release(&three.held[2]) == 0);
            break;
        }
    }
    return three.pool ? end_three(&three, r < 0 ? r : 0) : r;
}

static int run_any_acquire(struct whole_set *world)
{
    struct weir_request request = want_db;
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    weir_acquisition *acquisition = UNTOUCHED(weir_acquisition);
    struct three three;
    int r = begin_three(world, &three);

    if (r < 0)
        return r;
    request.timeout_ns = 2 * MS;
    r = weir_acquire(three.pool, &request, &acquisition, &refusal);
    require(r < 0 && acquisition == UNTOUCHED(weir_acquisition));
    return end_three(&three, r == -ETIMEDOUT ? 0 : r);
}

/* Granted, with and without an acquisition from the start; canceled; and dropped. */
static int run_any_queue(struct whole_set *world)
{
    struct weir_completion done;
    weir_acquisition *kept = NULL;
    weir_queue *queue;
    struct three three;
    int r = begin_three(world, &three);

    if (r == 0 && (r = weir_queue_open(&queue, world->w, 4)) < 0)
        return end_three(&three, r);
    if (r < 0)
        return r;
    r = weir_queue_submit(queue, three.pool, &want_db, 1, NULL, NULL);
    if (r == 0 && (r = weir_queue_submit(queue, three.pool, &want_db, 2, &kept, NULL)) == 0) {
        weir_acquisition *first;

        require(weir_release(&three.held[0]) == 0);
        for (int i = 0; i < 2000 && (r = weir_queue_reap(queue, &done, 1)) <= 0; i++)
            calm();
        require(r == 1 && done.result == 0 && done.user_data == 1);
        first = done.acquisition;
        require(weir_release(&first) == 0);
        for (int i = 0; i < 2000 && (r = weir_queue_reap(queue, &done, 1)) <= 0; i++)
            pause_ns(MS);
        require(r == 1 && done.result == 0 && done.acquisition == kept);
        require(weir_release(&kept) == 0);
        r = weir_queue_submit(queue, three.pool, &want_db, 3, NULL, NULL);
        require(r < 0 || weir_queue_cancel(queue, 3) == 1);
    }
    weir_queue_close(queue);
    require(weir_release(&kept) == 0);
    return end_three(&three, r < 0 ? r : 0);
}

/* Queues. Each of these closes what it opened, so that only the call under test may fail. */

static bool is_readable(weir_queue *queue)
{
    return poll(&(struct pollfd){weir_queue_fd(queue), POLLIN, 0}, 1, 0) == 1;
}

static int open_queue(struct whole_set *world, weir_queue **ret)
{
    int r;

    *ret = UNTOUCHED(weir_queue);
    r = weir_queue_open(ret, world->w, 100);
    require(r <= 0 && (r == 0) == (*ret != UNTOUCHED(weir_queue)));
    return r;
}

static int run_queue_open(struct whole_set *world)
{
    weir_queue *queue;
    int r = open_queue(world, &queue);

    if (r == 0)
        weir_queue_close(queue);
    return r;
}

/* Reaps exactly `n`. One that there is no memory for stays, and the descriptor says so. */
static int reap(weir_queue *queue, struct weir_completion *ret, unsigned n)
{
    unsigned reaped = 0;
    int error = 0;

    for (int i = 0; i < 2000 && reaped < n; i++) {
        int r;

        poll(&(struct pollfd){weir_queue_fd(queue), POLLIN, 0}, 1, 5);
        r = weir_queue_reap(queue, ret + reaped, n - reaped);
        require(r >= 0 || r == -ENOMEM);
        reaped += r > 0 ? (unsigned)r : 0;
        error = r < 0 ? r : error;
        if (r < 0 || i == 10)
            calm();
        require(r >= 0 || is_readable(queue));
    }
    require(reaped == n);
    return error;
}

/* Nothing comes any more, and the descriptor does not keep a loop busy. */
static void close_quiet(weir_queue *queue)
{
    struct weir_completion c;

    calm();
    require(weir_queue_reap(queue, &c, 1) == 0);
    require(!is_readable(queue));
    require(atomic_load(&queue->pending) == 0); /* every place was given back */
    weir_queue_close(queue);
}

/* A full set and a queue. On failure there is neither. */
static int begin_queue(struct whole_set *world, weir_queue **ret, weir_acquisition **ret_all)
{
    int r = fill(world, ret_all);

    if (r < 0)
        return r;
    r = open_queue(world, ret);
    if (r < 0)
        require(weir_release(ret_all) == 0);
    return r;
}

/* Submits; out-parameters are as they should be. */
static int put(struct whole_set *world, weir_queue *queue, const struct weir_request *request,
               uint64_t user_data, weir_acquisition **ret)
{
    weir_acquisition *acquisition = UNTOUCHED(weir_acquisition);
    int r =
        weir_queue_submit(queue, world->pool, request, user_data, ret ? &acquisition : NULL, NULL);

    require(r <= 0 && (ret && r == 0) == (acquisition != UNTOUCHED(weir_acquisition)));
    if (ret && r == 0)
        *ret = acquisition;
    return r;
}

static int run_queue(struct whole_set *world)
{
    weir_acquisition *all, *kept = NULL;
    struct weir_completion done[2];
    weir_queue *queue;
    int r = begin_queue(world, &queue, &all);

    if (r < 0)
        return r;
    r = put(world, queue, &want_db, 1, NULL);
    if (r == 0 && (r = put(world, queue, &want_db, 2, &kept)) < 0) {
        require(weir_release(&all) == 0);
        reap(queue, done, 1);
        require(weir_release(&done[0].acquisition) == 0);
    } else {
        require(weir_release(&all) == 0);
    }
    if (r == 0) {
        r = reap(queue, done, 2);
        require(done[0].user_data == 1 && done[0].result == 0);
        require(done[1].user_data == 2 && done[1].result == 0 && done[1].acquisition == kept);
        require(weir_release(&done[0].acquisition) == 0 && weir_release(&kept) == 0);
    }
    close_quiet(queue);
    return r;
}

/* By time: a grant, and an end. */
static int run_queue_later(struct whole_set *world)
{
    struct weir_request request = want_db;
    struct weir_completion done[2];
    weir_acquisition *all;
    weir_queue *queue;
    int r = weir_take(world->pool, &want_every_token, NULL);

    if (r == 0)
        r = begin_queue(world, &queue, &all);
    if (r < 0)
        return r;
    request.timeout_ns = 3 * MS;
    if ((r = put(world, queue, &want_tokens, 1, NULL)) == 0) {
        int put_r = put(world, queue, &request, 2, NULL);

        r = reap(queue, done, put_r == 0 ? 2 : 1);
        require(done[0].user_data == 1 && done[0].result == 0);
        require(put_r < 0 || (done[1].result == -ETIMEDOUT && !done[1].acquisition));
        require(put_r < 0 || strcmp(done[1].refusal.key, "db") == 0);
        require(weir_release(&done[0].acquisition) == -EPROTO);
        r = put_r < 0 ? put_r : r;
    }
    require(weir_release(&all) == 0);
    close_quiet(queue);
    return r;
}

/* Waiting, granted, and by its acquisition. */
static int run_queue_cancel(struct whole_set *world)
{
    struct weir_completion done[3];
    weir_acquisition *all, *kept = NULL;
    weir_queue *queue;
    unsigned n = 0;
    int r = begin_queue(world, &queue, &all);

    if (r < 0)
        return r;
    if ((r = put(world, queue, &want_tokens, 5, NULL)) == 0 && ++n &&
        (r = put(world, queue, &want_db, 5, NULL)) == 0 && ++n &&
        (r = put(world, queue, &want_db, 6, &kept)) == 0 && ++n)
        require(weir_cancel(kept) == 0);
    require(n == 3 || r < 0);
    require(r < 0 || weir_queue_cancel(queue, 5) == 2);
    if (r < 0 && n)
        weir_queue_cancel(queue, 5);
    reap(queue, done, n); /* what was canceled needs no memory */
    for (unsigned i = 0; i < n; i++)
        require(done[i].result == -ECANCELED || r < 0);
    for (unsigned i = 0; i < n; i++)
        require(weir_release(&done[i].acquisition) == 0);
    require(weir_release(&all) == 0);
    close_quiet(queue);
    return r;
}

/* Released before it was reaped: waiting, and granted. */
static int run_queue_release(struct whole_set *world)
{
    weir_acquisition *all, *kept[2] = {NULL, NULL};
    weir_queue *queue;
    int r = begin_queue(world, &queue, &all);

    if (r < 0)
        return r;
    r = put(world, queue, &want_db, 1, &kept[0]);
    if (r == 0)
        r = put(world, queue, &want_db, 1, &kept[1]);
    require(weir_release(&kept[0]) == 0);
    require(weir_release(&all) == 0);
    require(weir_release(&kept[1]) == 0);
    close_quiet(queue);
    return r;
}

/* Closed with some that wait, some that were granted, and some that the program has. */
static int run_queue_close(struct whole_set *world)
{
    weir_acquisition *all, *kept[2] = {NULL, NULL};
    weir_queue *queue;
    int r = begin_queue(world, &queue, &all);

    if (r < 0)
        return r;
    if ((r = put(world, queue, &want_tokens, 1, NULL)) == 0 &&
        (r = put(world, queue, &want_tokens, 2, &kept[0])) == 0 &&
        (r = put(world, queue, &want_db, 3, NULL)) == 0 &&
        (r = put(world, queue, &want_db, 4, &kept[1])) == 0)
        r = put(world, queue, &want_every_db, 5, NULL);
    weir_queue_close(queue);
    require(!kept[1] || weir_acquisition_result(kept[1]) == -ECANCELED);
    require(weir_release(&kept[0]) == 0 && weir_release(&kept[1]) == 0);
    require(weir_release(&all) == 0);
    return r;
}

/* The instance is closed before the queue is reaped. */
static int run_queue_shutdown(struct whole_set *world)
{
    struct weir_completion done[2];
    weir_acquisition *all;
    weir_queue *queue;
    int r = begin_queue(world, &queue, &all);
    unsigned n = 0;

    if (r < 0)
        return r;
    if ((r = put(world, queue, &want_tokens, 1, NULL)) == 0 && ++n)
        n += (r = put(world, queue, &want_db, 2, NULL)) == 0;
    weir_close(world->w);
    r = reap(queue, done, n) < 0 ? -ENOMEM : r;
    require(n < 1 || done[0].result == 0);
    require(n < 2 || done[1].result == -ESHUTDOWN);
    require(n < 1 || weir_release(&done[0].acquisition) == -EPROTO);
    close_quiet(queue);
    require(weir_release(&all) == 0);
    weir_pool_close(world->pool);
    calm();
    world_open(world);
    return r;
}

/* More than a reap takes out at a time; each needs memory that may not be there. */
static int run_queue_many(struct whole_set *world)
{
    static const struct weir_amount nothing[] = {{"tokens", 0}, {"call_count", 0}, {"db", 0}};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = nothing, .amounts_n = 3};
    struct weir_completion done[80];
    weir_queue *queue;
    unsigned n = 0;
    int r = open_queue(world, &queue), reap_r;

    if (r < 0)
        return r;
    while (n < 80 && (r = put(world, queue, &request, n, NULL)) == 0)
        n++;
    reap_r = reap(queue, done, n);
    for (unsigned i = 0; i < n; i++) {
        require(done[i].user_data == i &&
                done[i].result == 0); /* in order, though some came back */
        require(weir_release(&done[i].acquisition) == 0);
    }
    close_quiet(queue);
    return r < 0 ? r : reap_r;
}

static const int open_errors[] = {-ENOMEM, -EIO, -ENOEXEC, -EINVAL, 0};
static const int submit_errors[] = {-ENOMEM, -EMFILE, -EAGAIN, 0};

static const int any_errors[] = {-ENOMEM, -EIO, -ENOEXEC, -EINVAL, -EMFILE, -EAGAIN, 0};
static const int attach_errors[] = {-ENOMEM, -EMFILE, -EAGAIN, -EIO, 0};

static const struct scenario scenarios[] = {
    {"open", run_open, FEW, true},
    {"open a text", run_open_text, open_errors, true},
    {"open a file", run_open_file, open_errors, true},
    {"open, and publish", run_open_published, open_errors, true},
    {"a pool of anything", run_pool_of_anything, FEW, true},
    {"pool_open", run_pool_open, FEW, false},
    {"pool_new", run_pool_new, open_errors, false},
    {"reload", run_reload, open_errors, true},
    {"reload of subjects", run_reload_subjects, open_errors, true},
    {"reload of subjects to two limits", run_reload_subjects_to_two_limits, open_errors, true},
    {"a pool of three", run_pool_of_three, open_errors, false},
    {"any, submit", run_any_submit, any_errors, false},
    {"any, acquire in vain", run_any_acquire, any_errors, false},
    {"any, queue", run_any_queue, any_errors, false},
    {"try", run_try, FEW, false},
    {"take", run_take, FEW, false},
    {"reserve", run_reserve, FEW, false},
    {"acquire", run_acquire, FEW, false},
    {"acquire, later", run_acquire_later, FEW, false},
    {"acquire, in vain", run_acquire_in_vain, FEW, false},
    {"acquire, nested", run_acquire_nested, FEW, false},
    {"acquire, with a token", run_token, FEW, false},
    {"return", run_return, FEW, false},
    {"submit", run_submit, submit_errors, false},
    {"submit, later", run_submit_later, submit_errors, false},
    {"submit, in vain", run_submit_in_vain, submit_errors, false},
    {"attach", run_attach, attach_errors, false},
    {"cancel", run_cancel, submit_errors, false},
    {"release while it pends", run_release_pending, submit_errors, false},
    {"close", run_close, submit_errors, false},
    {"look", run_look, FEW, false},
    {"queue_open", run_queue_open, submit_errors, false},
    {"queue", run_queue, submit_errors, false},
    {"queue, later", run_queue_later, submit_errors, false},
    {"queue, canceled", run_queue_cancel, submit_errors, false},
    {"queue, released", run_queue_release, submit_errors, false},
    {"queue, closed", run_queue_close, submit_errors, false},
    {"queue, weir_close", run_queue_shutdown, submit_errors, false},
    {"queue, many", run_queue_many, submit_errors, false},
};

static bool may_give(const struct scenario *scenario, int r)
{
    for (const int *error = scenario->errors; *error; error++)
        if (*error == r)
            return true;
    return r == 0;
}

static void fail_once(uint64_t n)
{
    fake_os_fail_at(n);
}

static void fail_from_then_on(uint64_t n)
{
    fake_os_fail_kind_from(n, FAKE_ANY, 0);
}

static void fail_unheard_of(uint64_t n)
{
    fake_os_fail_kind_at(n, FAKE_EVENT | FAKE_FUTEX, 0);
}

static void check_nothing_left(const struct scenario *scenario, uint64_t n,
                               const struct fake_os_live *before)
{
    struct fake_os_live live = fake_os_live();

    if (memcmp(&live, before, sizeof(live)) != 0)
        fprintf(stderr, "'%s' leaves something behind when call %" PRIu64 " fails\n",
                scenario->name, n);
    require(memcmp(&live, before, sizeof(live)) == 0);
}

/* True if a call was made to fail. */
static bool run_once(const struct scenario *scenario, arm_fn arm, uint64_t n)
{
    struct fake_os_live before = fake_os_live();
    struct whole_set world = {0};
    bool failed;
    int r;

    if (!scenario->bare)
        world_open(&world);
    failure_seen = false;
    armed = arm;
    armed_n = n;
    arm(n);
    r = scenario->run(&world);
    calm();
    failed = failure_seen;
    if (!may_give(scenario, r) || (!failed && r < 0))
        fprintf(stderr, "'%s' gives %d (%s) when call %" PRIu64 " fails\n", scenario->name, r,
                strerror(-r), n);
    require(may_give(scenario, r));
    if (!scenario->bare)
        world_check_whole(&world);
    world_close(&world);
    check_nothing_left(scenario, n, &before);
    return failed;
}

/* All faults with names that begin so. */
static void run_those(const char *begin, arm_fn arm)
{
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        uint64_t n = 1;

        if (strncmp(scenarios[i].name, begin, strlen(begin)) != 0)
            continue;
        while (run_once(&scenarios[i], arm, n))
            n++;
        printf("  %-24s %3" PRIu64 " calls failed in turn\n", scenarios[i].name, n - 1);
    }
}

static void run_all(arm_fn arm)
{
    run_those("", arm);
}

static void test_one_call_fails(void **state)
{
    (void)state;
    run_all(fail_once);
}

static void test_all_calls_from_then_on_fail(void **state)
{
    (void)state;
    run_all(fail_from_then_on);
}

static void test_what_no_kernel_refuses(void **state)
{
    (void)state;
    run_all(fail_unheard_of);
}

static void fail_events_for_a_while(uint64_t n)
{
    fake_os_fail_kind_from(n, FAKE_EVENT, 0);
}

/* Only for a completion queue: its program reaps again by itself. */
static void test_events_that_fail_for_a_while(void **state)
{
    (void)state;
    run_those("queue", fail_events_for_a_while);
}

static void write_config(char *path)
{
    FILE *file = fdopen(mkstemp(path), "w");

    require(file != NULL);
    fputs(world_text, file);
    require(fclose(file) == 0);
    config_file = path;
}

int main(void)
{
    static char path[] = "/tmp/weir-faults-XXXXXX";
    const struct CMUnitTest tests[] = {
        leak_checked_test(test_one_call_fails),
        leak_checked_test(test_all_calls_from_then_on_fail),
        leak_checked_test(test_what_no_kernel_refuses),
        leak_checked_test(test_events_that_fail_for_a_while),
    };
    int r;

    write_config(path);
    r = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return r;
}
