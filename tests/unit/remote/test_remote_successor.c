/* SPDX-License-Identifier: MIT */
/* Another definition of a set that an engine keeps, that of engine.c: what waits, is held, is on
 * its way and is told goes on by the records of the old one. */
#include "../engine.h"
#include "api/acquisition.h"
#include "lib/world.h"
#include "remote/remote.h"
#include <poll.h>
#include <pthread.h>
#include <weir/backend.h>
#include <weir/segment.h>

#define SLOTS(n) "limits: [ { type: resource, key: slot, capacity: " #n " } ]"
#define LEASED(n, more)                                                                            \
    "limits: [ { type: rate, key: k, algorithm: gcra, capacity: " #n ", window: 1s" more " } ]"
#define AHEAD ", lease: { for: 200ms }"
#define LIFE  (200 * MS)

static struct engine_control control;
static struct weir_error error;

static const char *text_of(unsigned revision, const char *fields)
{
    static char text[1024];

    snprintf(text, sizeof(text),
             "version: 1\nbackends: { far: { type: engine, control: \"%p\" } }\n"
             "sets: { main: { backend: far, revision: %u, %s } }\n",
             (void *)&control, revision, fields);
    return text;
}

static void open_far(const char *fields)
{
    control = (struct engine_control){.now_ns = &world.now};
    world_open(text_of(1, fields), "main");
}

static void close_far(void)
{
    world_close();
    assert_int_equal(control.connections, 0);
    assert_int_equal(control.sets, 0);
    assert_int_equal(control.waiting, 0);
    assert_int_equal(control.holds, 0);
}

static int reload(unsigned revision, const char *fields)
{
    const struct weir_options options = {.size = sizeof(options),
                                         .text = text_of(revision, fields)};

    error = (struct weir_error){0};
    return weir_reload(world.w, &options, &error);
}

static weir_acquisition *waiting(uint64_t n)
{
    weir_acquisition *acquisition = NULL;

    assert_int_equal(submit(ASK({"slot", n}), &acquisition), 1);
    assert_int_equal(weir_acquisition_result(acquisition), -EINPROGRESS);
    return acquisition;
}

static void what_is_held_and_waits_goes_on(void **state)
{
    weir_acquisition *held, *waiters[2], *late = NULL;
    struct pollfd fd;

    (void)state;
    open_far(SLOTS(2));
    held = granted(ASK({"slot", 2}));
    waiters[0] = waiting(1);
    waiters[1] = waiting(2);
    fd = (struct pollfd){.fd = weir_acquisition_fd(waiters[1]), .events = POLLIN};
    assert_int_equal(reload(2, SLOTS(5)), 0);
    assert_int_equal(control.redefined, 1);
    assert_int_equal(control.revision, 2);
    assert_int_equal(weir_acquisition_result(waiters[0]), 0);
    assert_int_equal(poll(&fd, 1, 0), 1);
    assert_int_equal(weir_acquisition_result(waiters[1]), 0);
    assert_int_equal(control.held[0], 5);
    assert_int_equal(try_acquire(ASK({"slot", 1}), &late), -EAGAIN);
    assert_int_equal(stats().granted, 3);
    release(held);
    release(waiters[0]);
    release(granted(ASK({"slot", 3})));
    release(waiters[1]);
    assert_int_equal(control.held[0], 0);
    assert_int_equal(stats().released, 4);
    close_far();
}

static void waiters_count_through_all_definitions(void **state)
{
    weir_acquisition *held, *waiters[3];

    (void)state;
    open_far(SLOTS(1));
    held = granted(ASK({"slot", 1}));
    for (unsigned i = 0; i < 3; i++) {
        waiters[i] = waiting(1);
        assert_int_equal(reload(2 + i, i % 2 ? SLOTS(1) : "max_waiters: 9, " SLOTS(1)), 0);
    }
    assert_int_equal(stats().waiting, 3);
    weir_cancel(waiters[1]);
    assert_int_equal(weir_acquisition_result(waiters[1]), -ECANCELED);
    release(waiters[1]);
    assert_int_equal(stats().waiting, 2);
    release(held);
    assert_int_equal(weir_acquisition_result(waiters[0]), 0);
    release(waiters[0]);
    assert_int_equal(weir_acquisition_result(waiters[2]), 0);
    release(waiters[2]);
    assert_int_equal(stats().waiting, 0);
    close_far();
}

static void what_is_impossible_ends(void **state)
{
    weir_acquisition *held, *waiter, *late = NULL;

    (void)state;
    open_far(SLOTS(4));
    held = granted(ASK({"slot", 4}));
    waiter = waiting(3);
    assert_int_equal(reload(2, SLOTS(2)), 0);
    assert_int_equal(weir_acquisition_result(waiter), -ERANGE);
    assert_int_equal(try_acquire(ASK({"slot", 3}), &late), -ERANGE);
    release(waiter);
    release(held);
    release(granted(ASK({"slot", 2})));
    close_far();
}

static void a_loss_is_told_to_the_old_definition(void **state)
{
    const struct weir_backend_host *host;
    weir_acquisition *held;
    struct pollfd fd = {.events = POLLIN};

    (void)state;
    open_far(SLOTS(1));
    held = granted(ASK({"slot", 1}));
    fd.fd = weir_acquisition_lost_fd(held);
    assert_int_equal(reload(2, SLOTS(2)), 0);
    assert_int_equal(reload(3, SLOTS(3)), 0);
    assert_int_equal(poll(&fd, 1, 0), 0);
    host = control.host;
    host->lost(host->context, control.host_set, control.last_token, control.last_hold);
    assert_int_equal(poll(&fd, 1, 0), 1);
    assert_int_equal(weir_acquisition_result(held), -EOWNERDEAD);
    assert_int_equal(weir_release(&held), -EOWNERDEAD);
    close_far();
}

static void closing_ends_waits_of_the_old_definition(void **state)
{
    weir_acquisition *held, *waiter;

    (void)state;
    open_far(SLOTS(1));
    held = granted(ASK({"slot", 1}));
    waiter = waiting(1);
    assert_int_equal(reload(2, "max_waiters: 3, " SLOTS(1)), 0);
    weir_close(world.w);
    assert_int_equal(weir_acquisition_result(waiter), -ESHUTDOWN);
    assert_int_equal(control.waiting, 0);
    release(waiter);
    release(held);
    weir_pool_close(world.pool);
    world.w = NULL;
    world.pool = NULL;
    close_far();
}

/* ---- what cannot be ---- */

static void refuses(unsigned revision, const char *fields, const char *words)
{
    assert_int_equal(reload(revision, fields), -EOPNOTSUPP);
    assert_non_null(strstr(error.message, words));
    assert_non_null(strstr(error.message, "`main`"));
    assert_int_equal(control.redefined, 0);
    assert_int_equal(control.sets, 1);
    assert_int_equal(control.revision, 1);
}

static void what_cannot_be_changes_nothing(void **state)
{
    weir_acquisition *waiter, *held;

    (void)state;
    open_far(SLOTS(1));
    held = granted(ASK({"slot", 1}));
    waiter = waiting(1);
    refuses(1, SLOTS(2), "raise `revision`");
    refuses(0, SLOTS(2), "raise `revision`");
    refuses(2, "subjects: { max: 9 }, " SLOTS(2), "by `subjects`: rename the set");
    refuses(2,
            "limits: [ { type: resource, key: slot, capacity: 1 }, "
            "{ type: resource, key: other, capacity: 1 } ]",
            "another number of limits: rename the set");
    control.fails_set_open = -ENOMEM;
    assert_int_equal(reload(2, SLOTS(2)), -ENOMEM);
    control.fails_set_open = 0;
    assert_int_equal(control.sets, 1);
    assert_int_equal(weir_acquisition_result(waiter), -EINPROGRESS);
    assert_int_equal(reload(1, "timeout: 3s, " SLOTS(1)), 0); /* the process's own */
    release(held);
    assert_int_equal(weir_acquisition_result(waiter), 0);
    release(waiter);
    close_far();
}

/* Two sets change, or none: the second one cannot. */
static void all_sets_change_or_none(void **state)
{
    static const char two[] =
        "version: 1\nbackends: { far: { type: engine, control: \"%p\" } }\n"
        "sets: { main: { backend: far, revision: %u, " SLOTS(
            2) " }, "
               "more: { backend: far, revision: 1, max_waiters: %u, " SLOTS(2) " } }\n";
    char text[1024];
    const struct weir_options options = {.size = sizeof(options), .text = text};

    (void)state;
    control = (struct engine_control){.now_ns = &world.now};
    snprintf(text, sizeof(text), two, (void *)&control, 1u, 7u);
    world_open(text, "main");
    assert_int_equal(control.sets, 2);
    snprintf(text, sizeof(text), two, (void *)&control, 2u, 8u);
    assert_int_equal(weir_reload(world.w, &options, &error), -EOPNOTSUPP);
    assert_int_equal(control.redefined, 0);
    assert_int_equal(control.sets, 2);
    release(granted(ASK({"slot", 2})));
    close_far();
}

static void a_failed_reload_leaves_nothing(void **state)
{
    bool failed = true;
    weir_acquisition *held;
    int r;

    (void)state;
    open_far(SLOTS(1));
    held = granted(ASK({"slot", 1}));
    for (uint64_t n = 1; failed; n++) {
        fake_os_fail_at(n);
        r = reload(2, SLOTS(2));
        failed = fake_os_has_failed();
        fake_os_fail_at(0);
        assert_int_equal(control.sets, 1);
        if (!failed || r == 0)
            break;
        assert_int_equal(control.redefined, 0);
    }
    assert_int_equal(r, 0);
    assert_int_equal(control.redefined, 1);
    release(held);
    release(granted(ASK({"slot", 2})));
    close_far();
}

/* ---- batches ---- */

static struct weir_lease_stats lease_stats(void)
{
    struct weir_lease_stats stats = {.size = sizeof(stats)};

    assert_int_equal(weir_set_lease_stats(world.set, 0, &stats), 0);
    return stats;
}

static void take_some(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(take(ASK({"k", 1})), 0);
}

static void batches_go_back_with_their_definition(void **state)
{
    struct weir_lease_stats stats;

    (void)state;
    open_far(LEASED(1000, AHEAD));
    take_some(50);
    assert_true(lease_stats().ready > 0);
    assert_int_equal(reload(2, LEASED(500, AHEAD)), 0);
    stats = lease_stats();
    assert_int_equal(stats.ready, 0);
    assert_int_equal(stats.returned, control.unbatched_units);
    assert_int_equal(stats.taken, stats.granted + stats.returned);
    take_some(50);
    assert_true(lease_stats().ready > 0);
    assert_int_equal(reload(3, LEASED(500, "")), 0);
    take_some(1);
    close_far();
}

/* The predecessor's batch comes to the successor, which has asked for one later. */
static void a_late_batch_counts_from_its_own_call(void **state)
{
    struct engine_batch *first = &control.batches[0];

    (void)state;
    open_far(LEASED(1000, AHEAD));
    control.batches_wait = true;
    take_some(2);
    assert_int_equal(control.batched, 1);
    world.now += LIFE / 2;
    assert_int_equal(reload(2, LEASED(900, AHEAD)), 0);
    take_some(2);
    assert_int_equal(control.batched, 2);
    control.decide_batch(&control, first);
    control.deliver_batch(&control, first);
    assert_true(lease_stats().ready > 0);
    world.now += LIFE / 2;
    assert_int_equal(lease_stats().ready, 0);
    close_far();
}

static void a_batch_of_the_old_definition_alone_is_not_used(void **state)
{
    struct engine_batch *first = &control.batches[0];

    (void)state;
    open_far(LEASED(1000, AHEAD));
    control.batches_wait = true;
    take_some(2);
    assert_int_equal(reload(2, LEASED(900, AHEAD)), 0);
    control.decide_batch(&control, first);
    control.deliver_batch(&control, first);
    assert_int_equal(lease_stats().taken, 0);
    close_far();
}

/* ---- on_failure: local_share ---- */

static void go_away(bool is_away)
{
    const struct weir_backend_host *host = control.host;

    control.away = is_away ? -ECONNREFUSED : 0;
    host->away(host->context, control.host_set, is_away);
}

static void shares_of_the_old_definition_end(void **state)
{
    const struct weir_backend_host *host;
    weir_acquisition *held, *waiter = NULL;

    (void)state;
    open_far("on_failure: local_share, " SLOTS(4));
    host = control.host;
    host->nodes(host->context, control.host_set, 2);
    go_away(true);
    held = granted(ASK({"slot", 2}));
    assert_int_equal(submit(ASK({"slot", 1}), &waiter), 1);
    assert_int_equal(reload(2, "on_failure: local_share, " SLOTS(8)), 0);
    go_away(true);                      /* as the backend says, to the new one */
    release(granted(ASK({"slot", 4}))); /* the nodes are known */
    assert_int_equal(weir_acquisition_result(waiter), -EINPROGRESS);
    go_away(false);
    assert_int_equal(weir_acquisition_result(waiter), -EHOSTUNREACH);
    release(waiter);
    assert_int_equal(stats().granted_alone, 2);
    release(held);
    release(granted(ASK({"slot", 8})));
    close_far();
}

/* ---- sets that a process drops, and that come ---- */

#define FAR  "backends: { far: { type: engine, control: \"%p\" } }\n"
#define MAIN "main: { backend: far, revision: 1, " SLOTS(2) " }"
#define MORE "more: { backend: far, " SLOTS(3) " }"

/* Reloads a file with these sets. */
static int reload_sets(const char *sets)
{
    struct weir_options options = {.size = sizeof(options)};
    char text[1024];

    snprintf(text, sizeof(text), "version: 1\n" FAR "sets: { %s }\n", (void *)&control, sets);
    options.text = text;
    error = (struct weir_error){0};
    return weir_reload(world.w, &options, &error);
}

static void *acquire_one(void *pool)
{
    weir_acquisition *acquisition = NULL;

    return (void *)(intptr_t)weir_acquire(pool, ASK({"slot", 1}), &acquisition, NULL);
}

static void a_dropped_set_ends_its_waiters(void **state)
{
    weir_acquisition *held, *before, *after, *none = NULL;
    pthread_t thread;
    void *result;

    (void)state;
    open_far(SLOTS(2));
    held = granted(ASK({"slot", 2}));
    before = waiting(1);
    assert_int_equal(reload(2, "max_waiters: 9, " SLOTS(2)), 0);
    after = waiting(1);
    assert_int_equal(pthread_create(&thread, NULL, acquire_one, world.pool), 0);
    while (stats().waiting < 3)
        pause_ns(MS);
    assert_int_equal(reload_sets(""), 0);
    assert_int_equal(weir_acquisition_result(before), -ESHUTDOWN);
    assert_int_equal(weir_acquisition_result(after), -ESHUTDOWN);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_int_equal((int)(intptr_t)result, -ESHUTDOWN);
    assert_int_equal(control.waiting, 0);
    assert_int_equal(try_acquire(ASK({"slot", 1}), &none), -ESTALE);
    assert_int_equal(submit(ASK({"slot", 1}), &none), -ESTALE);
    assert_int_equal(control.held[0], 2);
    release(before);
    release(after);
    release(held);
    assert_int_equal(control.held[0], 0);
    close_far();
}

/* It has the session and the state that it had. */
static void a_dropped_set_comes_back(void **state)
{
    weir_acquisition *held, *none = NULL;
    weir_pool *pool = NULL;

    (void)state;
    open_far(SLOTS(2));
    held = granted(ASK({"slot", 2}));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(reload_sets(""), 0);
        assert_int_equal(weir_pool_open(&pool, world.w, "main", 0, NULL), -ENOENT);
        assert_int_equal(reload_sets(MAIN), 0);
        assert_int_equal(try_acquire(ASK({"slot", 1}), &none), -EAGAIN);
    }
    assert_int_equal(control.sets, 1);
    assert_int_equal(reload_sets(""), 0);
    assert_int_equal(reload(2, SLOTS(3)), 0);
    pool = pool_open("main", 0);
    assert_int_equal(weir_try_acquire(pool, ASK({"slot", 2}), &none, NULL), -EAGAIN);
    release(held);
    assert_int_equal(weir_try_acquire(pool, ASK({"slot", 3}), &held, NULL), 0);
    release(held);
    weir_pool_close(pool);
    close_far();
}

static void a_set_is_added(void **state)
{
    weir_acquisition *held = NULL;
    weir_pool *pool;

    (void)state;
    open_far(SLOTS(2));
    assert_int_equal(reload_sets(MAIN ", " MORE), 0);
    assert_int_equal(control.sets, 2);
    pool = pool_open("more", 0);
    assert_int_equal(weir_try_acquire(pool, ASK({"slot", 3}), &held, NULL), 0);
    release(held);
    weir_pool_close(pool);
    close_far();
}

static void a_backend_is_not_added(void **state)
{
    char text[1024];
    const struct weir_options options = {.size = sizeof(options), .text = text};

    (void)state;
    open_far(SLOTS(2));
    snprintf(text, sizeof(text),
             "version: 1\nbackends: { near: { type: engine, control: \"%p\" } }\n"
             "sets: { more: { backend: near, " SLOTS(3) " } }\n",
             (void *)&control);
    assert_int_equal(weir_reload(world.w, &options, &error), -EOPNOTSUPP);
    assert_non_null(strstr(error.message, "its backend was not opened with the instance"));
    assert_int_equal(control.connections, 1);
    release(granted(ASK({"slot", 2})));
    close_far();
}

static void what_waits_for_a_share_ends_with_the_set(void **state)
{
    const struct weir_backend_host *host;
    weir_acquisition *held, *waiter = NULL;

    (void)state;
    open_far("on_failure: local_share, " SLOTS(4));
    host = control.host;
    host->nodes(host->context, control.host_set, 2);
    go_away(true);
    held = granted(ASK({"slot", 2}));
    assert_int_equal(submit(ASK({"slot", 1}), &waiter), 1);
    assert_int_equal(reload_sets(""), 0);
    assert_int_equal(weir_acquisition_result(waiter), -ESHUTDOWN);
    release(waiter);
    release(held);
    close_far();
}

static void batches_go_back_with_their_set(void **state)
{
    (void)state;
    open_far(LEASED(1000, AHEAD));
    take_some(50);
    assert_true(lease_stats().ready > 0);
    assert_int_equal(reload_sets(""), 0);
    assert_true(control.unbatched_units > 0);
    assert_int_equal(take(ASK({"k", 1})), -ESTALE);
    close_far();
}

/* The context of the engine counts what the backend reports, holds among it. */
static void holds_are_counted_by_all_that_count(void **state)
{
    uint64_t n = 0;

    (void)state;
    open_far("hold_histogram: true, " SLOTS(2));
    release(granted(ASK({"slot", 1})));
    for (size_t i = 0; i < WEIR_WAIT_BUCKETS; i++)
        n += stats().hold_histogram[i];
    assert_int_equal(n, 1);
    assert_int_equal(stats().hold_ns_sum, 0); /* the clock stood still */
    assert_int_equal(stats().hold_ns_max, 0);
    close_far();
}

/* ---- without a request: weir_engine_redefine ---- */

struct seen {
    int calls, declines;
    bool loses_answer; /* the change is made by an attempt that has no answer */
    char changes[400];
};

static int note_change(void *userdata, const struct weir_redefinition *redefinition)
{
    struct seen *seen = userdata;

    assert_int_equal(redefinition->size, sizeof(*redefinition));
    assert_string_equal(redefinition->name, "main");
    assert_string_equal(redefinition->before, "");
    assert_string_equal(redefinition->after, "");
    snprintf(seen->changes, sizeof(seen->changes), "%s", redefinition->changes);
    seen->calls++;
    if (seen->loses_answer)
        control.applies = 0;
    return seen->declines;
}

static int apply(uint32_t flags, struct seen *seen)
{
    error = (struct weir_error){0};
    return weir_engine_redefine(world.set, flags, 3 * SECOND, note_change, seen, &error);
}

static void an_engine_takes_a_definition(void **state)
{
    struct seen seen = {0};

    (void)state;
    open_far(SLOTS(2));
    control.applies = 1;
    assert_int_equal(apply(WEIR_REDEFINE_CHECK, &seen), 1);
    assert_string_equal(seen.changes,
                        "`revision`: not set -> 1; `capacity` of limit 1 (`slot`): 1 -> 2");
    assert_int_equal(control.applied, 0);
    assert_in_range(control.apply_ns, 1, 3 * SECOND);
    seen.declines = 1;
    assert_int_equal(apply(0, &seen), -ECANCELED);
    assert_int_equal(control.applied, 0);
    seen.declines = 0;
    control.applies_nonsense = true;
    assert_int_equal(apply(0, &seen), 1);
    assert_int_equal(control.applied, 1);
    assert_non_null(strstr(seen.changes, "; `what?`: ? -> "));
    assert_int_equal(seen.calls, 3);
    assert_int_equal(weir_engine_redefine(world.set, 0, WEIR_FOREVER, NULL, NULL, NULL), 1);
    assert_int_equal(control.applied, 2);
    assert_true(control.apply_ns > 1000 * SECOND);
    seen.loses_answer = true; /* to a first attempt: the next one finds nothing that differs */
    assert_int_equal(apply(0, &seen), 1);
    seen.calls--;
    assert_int_equal(apply(0, &seen), 0);
    assert_int_equal(seen.calls, 3);
    assert_int_equal(control.asked, 0); /* nothing was asked for */
    close_far();
}

static void what_an_engine_does_not_take_is_told(void **state)
{
    static const struct {
        int says, result;
    } rows[] = {{-EOPNOTSUPP, -EOPNOTSUPP}, {-EACCES, -EACCES},         {-EUCLEAN, -EUCLEAN},
                {-ENOMEM, -ENOMEM},         {-ENOTCONN, -EHOSTUNREACH}, {-ETIMEDOUT, -EHOSTUNREACH},
                {-ENOENT, -ENOENT},         {-EEXIST, -EOPNOTSUPP},     {-EINVAL, -EOPNOTSUPP}};
    struct seen seen = {0};

    (void)state;
    open_far(SLOTS(2));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        control.applies = rows[i].says;
        control.says = i == 0 ? "raise it\n" : NULL;
        assert_int_equal(apply(i % 2 ? WEIR_REDEFINE_CHECK : 0, &seen), rows[i].result);
        assert_int_equal(error.code, rows[i].result);
        assert_non_null(strstr(error.message, i == 0 ? "backend `far`: raise it?" : "`far`"));
    }
    assert_int_equal(seen.calls, 0);
    control.applies = 1;
    assert_int_equal(apply(2, &seen), -EINVAL);
    assert_int_equal(control.applied, 0);
    close_far();
    open_far("subjects: { max: 9 }, " SLOTS(2));
    control.applies = 1;
    assert_int_equal(apply(0, &seen), -EOPNOTSUPP);
    assert_non_null(strstr(error.message, "each subject has a definition of its own"));
    assert_int_equal(control.applied, 0);
    close_far();
    open_far("limits: [ ]");
    control.applies = 1;
    assert_int_equal(apply(0, &seen), 0);
    close_far();
    world_open("version: 1\nsets: { main: { " SLOTS(2) " } }\n", "main");
    assert_int_equal(apply(0, &seen), -EINVAL);
    assert_string_equal(error.message, "no engine keeps the set");
    world_close();
}

/* One of an earlier version has a struct without the call. */
static void an_older_backend_cannot(void **state)
{
    struct seen seen = {0};
    char text[512];

    (void)state;
    control = (struct engine_control){.applies = 1};
    snprintf(text, sizeof(text),
             "version: 1\nbackends: { far: { type: engine_older, control: \"%p\" } }\n"
             "sets: { main: { backend: far, " SLOTS(2) " } }\n",
             (void *)&control);
    world_open(text, "main");
    assert_int_equal(apply(0, &seen), -ENOSYS);
    assert_string_equal(error.message, "backend `far` changes definitions by requests alone");
    assert_int_equal(control.applied, 0);
    close_far();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(what_is_held_and_waits_goes_on),
        leak_checked_test(waiters_count_through_all_definitions),
        leak_checked_test(what_is_impossible_ends),
        leak_checked_test(a_loss_is_told_to_the_old_definition),
        leak_checked_test(closing_ends_waits_of_the_old_definition),
        leak_checked_test(what_cannot_be_changes_nothing),
        leak_checked_test(all_sets_change_or_none),
        leak_checked_test(a_failed_reload_leaves_nothing),
        leak_checked_test(batches_go_back_with_their_definition),
        leak_checked_test(a_late_batch_counts_from_its_own_call),
        leak_checked_test(a_batch_of_the_old_definition_alone_is_not_used),
        leak_checked_test(shares_of_the_old_definition_end),
        leak_checked_test(a_dropped_set_ends_its_waiters),
        leak_checked_test(a_dropped_set_comes_back),
        leak_checked_test(a_set_is_added),
        leak_checked_test(a_backend_is_not_added),
        leak_checked_test(what_waits_for_a_share_ends_with_the_set),
        leak_checked_test(batches_go_back_with_their_set),
        leak_checked_test(holds_are_counted_by_all_that_count),
        leak_checked_test(an_engine_takes_a_definition),
        leak_checked_test(what_an_engine_does_not_take_is_told),
        leak_checked_test(an_older_backend_cannot),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
