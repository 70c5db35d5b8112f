/* SPDX-License-Identifier: MIT */
/* Sets that an engine keeps: that of engine.c, which does as it is told. */
#include "../engine.h"
#include "api/acquisition.h"
#include "api/set_object.h"
#include "lib/require.h"
#include "lib/world.h"
#include "remote/remote.h"
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <weir/backend.h>

#define SLOTS(n)  "{ type: resource, key: slot, capacity: " #n " }"
#define RATE      "{ type: rate, key: k, algorithm: token_bucket, capacity: 10, window: 10s, burst: 7 }"
#define LIMITS(x) "limits: [ " x " ]"

static struct engine_control control;

/* A configuration with one set `main`, which the engine keeps. */
static const char *text_of(const char *fields)
{
    static char text[1024];

    snprintf(text, sizeof(text),
             "version: 1\nbackends: { far: { type: engine, control: \"%p\" } }\n"
             "sets: { main: { backend: far, %s } }\n",
             (void *)&control, fields);
    return text;
}

static void open_far(const char *fields)
{
    control = (struct engine_control){0};
    world_open(text_of(fields), "main");
}

static void close_far(void)
{
    world_close();
    assert_int_equal(control.connections, 0);
    assert_int_equal(control.sets, 0);
    assert_int_equal(control.threads, 0);
    assert_int_equal(control.waiting, 0);
    assert_int_equal(control.holds, 0);
    assert_int_equal(control.held[0], 0);
    assert_int_equal(control.holds, 0);
}

static weir_acquisition *slots(uint64_t n)
{
    return granted(ASK({"slot", n}));
}

static int result_of(weir_acquisition *acquisition)
{
    return weir_acquisition_result(acquisition);
}

/* A request that the engine grants at once, which the call does not tell yet. */
static weir_acquisition *submitted(const struct weir_request *request)
{
    weir_acquisition *acquisition = NULL;

    assert_int_equal(submit(request, &acquisition), 1);
    assert_int_equal(result_of(acquisition), 0);
    return acquisition;
}

/* ---- granted and refused ---- */

static void grants_and_refusals_are_the_engine_s(void **state)
{
    weir_acquisition *a, *b = NULL;

    (void)state;
    open_far(LIMITS(SLOTS(3)));
    a = slots(2);
    assert_int_equal(control.held[0], 2);
    control.retry_after_ns = 7 * MS;
    assert_int_equal(try_acquire(ASK({"slot", 2}), &b), -EAGAIN);
    assert_null(b);
    assert_string_equal(refusal.key, "slot");
    assert_int_equal(refusal.retry_after_ns, 7 * MS);
    assert_int_equal(stats().granted, 1);
    assert_int_equal(stats().refused_busy, 1);
    assert_int_equal(stats().held, 1);
    release(a);
    assert_int_equal(control.held[0], 0);
    release(slots(3));
    close_far();
}

/* It cannot say when a resource will be free: that is no forecast, and not "never". */
static void a_refusal_for_a_resource_is_no_forecast(void **state)
{
    weir_acquisition *a, *b = NULL;

    (void)state;
    open_far(LIMITS(SLOTS(1)));
    a = slots(1);
    control.retry_after_ns = UINT64_MAX;
    assert_int_equal(try_acquire(ASK({"slot", 1}), &b), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, 0);
    release(a);
    close_far();
}

/* What an engine refuses counts as what a set of threads refuses. */
static void refusals_are_counted_by_limit_and_reason(void **state)
{
    weir_acquisition *a, *b = NULL;
    uint64_t at;

    (void)state;
    open_far(LIMITS(SLOTS(1) ", " RATE));
    a = slots(1);
    assert_int_equal(try_acquire(ASK({"slot", 1}), &b), -EAGAIN);
    assert_int_equal(stats().refused_busy, 1);
    assert_int_equal(limit_stats(0).refused, 1);
    control.refuses = -EAGAIN;
    assert_int_equal(submit(ASK({"slot", 1}), &b), 1);
    assert_int_equal(result_of(b), -EAGAIN);
    assert_int_equal(stats().refused_max_wait, 1);
    assert_int_equal(limit_stats(0).refused, 2);
    release(b);
    b = NULL;
    assert_int_equal(reserve(ASK({"slot", 0}, {"k", 1}), &b, &at), -EAGAIN);
    assert_int_equal(stats().refused_busy, 2);
    control.is_too_late = 1;
    assert_int_equal(reserve(ASK({"slot", 0}, {"k", 1}), &b, &at), -EAGAIN);
    assert_int_equal(stats().refused_busy, 2);
    assert_int_equal(stats().refused_max_wait, 2);
    assert_null(b);
    release(a);
    close_far();
}

/* The clock of an instance may begin at 0. */
static void grants_count_at_any_instant(void **state)
{
    (void)state;
    world_start = 0;
    open_far(LIMITS(SLOTS(1)));
    world_start = START;
    release(submitted(ASK({"slot", 1})));
    assert_int_equal(stats().granted, 1);
    close_far();
}

/* The engine decides when the caller waits for it. */
static void an_answer_is_waited_for(void **state)
{
    weir_acquisition *a, *b = NULL;

    (void)state;
    open_far(LIMITS(RATE ", " SLOTS(1)));
    control.is_slow = control.thread_rests = true;
    a = granted(ASK({"slot", 1}, {"k", 0}));
    assert_true(control.waits > 0);
    assert_int_equal(try_acquire(ASK({"slot", 1}, {"k", 0}), &b), -EAGAIN);
    assert_string_equal(refusal.key, "slot");
    assert_int_equal(take(ASK({"slot", 0}, {"k", 1})), 0);
    release(a);
    close_far();
}

static void what_is_used_is_told(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_far(LIMITS(RATE ", " SLOTS(3)));
    assert_string_equal(control.last_algorithm, "");
    a = granted(ASK({"k", 5}, {"slot", 2}));
    assert_int_equal(weir_update(a, "k", 3), 0);
    assert_int_equal(weir_return(a, "slot", 1), 0);
    assert_int_equal(control.held[1], 1);
    release(a);
    assert_int_equal(control.used[0], 3);
    assert_int_equal(control.held[1], 0);
    assert_int_equal(stats().refunded, 1);
    close_far();
}

/* Nothing goes back, and the engine still has to forget the grant. */
static void a_rate_that_is_used_in_full_is_released(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_far(LIMITS(RATE));
    a = granted(ASK({"k", 5}));
    assert_int_equal(control.holds, 1);
    assert_int_equal(weir_update(a, "k", 5), 0);
    release(a);
    assert_int_equal(control.holds, 0);
    assert_int_equal(control.used[0], 5);
    close_far();
}

static void the_engine_learns_the_definition(void **state)
{
    uint64_t before;

    (void)state;
    open_far(LIMITS(RATE));
    assert_string_equal(control.last_algorithm, "token_bucket");
    assert_int_equal(control.last_setting, 10);   /* capacity comes first */
    assert_int_equal(control.last_settings_n, 3); /* `initial` and `every` were left out */
    before = control.fingerprint;
    close_far();
    open_far("timeout: 3s, " LIMITS(RATE)); /* each process decides that for itself */
    assert_int_equal(control.fingerprint, before);
    close_far();
    open_far("max_waiters: 3, " LIMITS(RATE));
    assert_int_not_equal(control.fingerprint, before);
    close_far();
}

/* Also if nothing of it is given back: the engine keeps a grant until then. */
static void every_grant_ends_at_the_engine(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_far(LIMITS(RATE));
    a = granted(ASK({"k", 2}));
    assert_int_equal(control.holds, 1);
    release_used(a, "k", 2);
    assert_int_equal(control.holds, 0);
    assert_int_equal(control.used[0], 2);
    close_far();
}

static void takes_hold_nothing(void **state)
{
    (void)state;
    open_far(LIMITS(RATE));
    for (int i = 0; i < 100; i++)
        assert_int_equal(take(ASK({"k", 7})), 0);
    assert_int_equal(take(ASK({"k", 8})), -ERANGE);
    assert_string_equal(refusal.key, "k");
    assert_int_equal(control.asked, 100); /* what can never be is not asked for */
    assert_int_equal(stats().granted, 100);
    assert_int_equal(stats().held, 0);
    close_far();
}

static void reservations_are_for_later(void **state)
{
    weir_acquisition *a = NULL;
    uint64_t at = 0;

    (void)state;
    open_far(LIMITS(RATE));
    assert_int_equal(reserve(ASK({"k", 1}), &a, &at), 0);
    assert_int_equal(at, world.now + 5 * MS);
    assert_int_equal(weir_update(a, "k", 1), 0);
    release(a);
    close_far();
}

static void requests_of_subjects_name_them(void **state)
{
    struct weir_request *request = ASK({"slot", 1});
    weir_acquisition *a = NULL;

    (void)state;
    open_far("subjects: { max: 10 }, " LIMITS(SLOTS(1)));
    assert_int_equal(try_acquire(request, &a), -EINVAL);
    request->subject = "alice";
    request->subject_size = 5;
    a = granted(request);
    assert_string_equal(control.last_subject, "alice");
    release(a);
    close_far();
}

/* A request of an earlier version ends before the field, and so does its memory. */
static void short_requests_have_no_subject(void **state)
{
    volatile size_t size = offsetof(struct weir_request, subject); /* hidden: gcc warns of it */
    struct weir_request *request = calloc(1, size);
    weir_acquisition *a = NULL;

    (void)state;
    open_far("subjects: { max: 100M }, " LIMITS(SLOTS(1)));
    request->size = size;
    assert_int_equal(try_acquire(request, &a), -EINVAL);
    close_far();
    open_far(LIMITS(SLOTS(1)));
    release(granted(request));
    free(request);
    close_far();
}

static void nested_requests_are_not_for_engines(void **state)
{
    struct weir_request *request = ASK({"slot", 1});
    weir_acquisition *a, *b = NULL;

    (void)state;
    open_far(LIMITS(SLOTS(3)));
    a = slots(1);
    request->within = a;
    assert_int_equal(try_acquire(request, &b), -EOPNOTSUPP);
    assert_int_equal(submit(request, &b), -EOPNOTSUPP);
    release(a);
    close_far();
}

/* ---- waiting ---- */

static void waiters_are_granted_by_the_engine(void **state)
{
    weir_acquisition *a, *first, *second;

    (void)state;
    open_far(LIMITS(SLOTS(2)));
    a = slots(2);
    first = pending(ASK({"slot", 2}));
    second = pending(ASK({"slot", 1}));
    assert_int_equal(stats().waiting, 2);
    release(a);
    assert_int_equal(result_of(first), 0);
    assert_int_equal(result_of(second), -EINPROGRESS);
    release(first);
    assert_int_equal(result_of(second), 0);
    release(second);
    assert_int_equal(stats().granted_waited, 2);
    release(submitted(ASK({"slot", 2})));
    assert_int_equal(stats().granted, 4);
    assert_int_equal(stats().granted_waited, 2); /* that one has not waited */
    close_far();
}

static void a_descriptor_becomes_readable(void **state)
{
    struct pollfd fd = {.events = POLLIN};
    weir_acquisition *a, *b;

    (void)state;
    open_far(LIMITS(SLOTS(1)));
    a = slots(1);
    b = pending(ASK({"slot", 1}));
    fd.fd = weir_acquisition_fd(b);
    assert_int_equal(poll(&fd, 1, 0), 0);
    release(a);
    assert_int_equal(poll(&fd, 1, 0), 1);
    release(b);
    close_far();
}

static void waits_end_at_their_deadlines(void **state)
{
    weir_acquisition *a, *b, *c;

    (void)state;
    open_far(LIMITS(SLOTS(1)));
    a = slots(1);
    b = pending(with_timeout(ASK({"slot", 1}), SECOND));
    c = pending(with_max_wait(ASK({"slot", 1}), 2 * SECOND));
    assert_int_equal(advance(SECOND), 1);
    assert_int_equal(result_of(b), -ETIMEDOUT);
    assert_int_equal(control.waiting, 1);
    assert_int_equal(advance(SECOND), 1);
    assert_int_equal(result_of(c), -EAGAIN);
    assert_int_equal(control.waiting, 0);
    assert_int_equal(stats().timed_out, 1);
    assert_int_equal(stats().refused_max_wait, 1);
    release(b);
    release(c);
    release(a);
    close_far();
}

/* The engine may end a wait at its deadline before this process does. Either way it ends as the
 * same. */
static void the_engine_ends_waits_as_the_timer_does(void **state)
{
    static const struct {
        uint64_t timeout, max_wait;
        int result;
    } cases[] = {{SECOND, WEIR_FOREVER, -ETIMEDOUT},
                 {SECOND, 2 * SECOND, -ETIMEDOUT},
                 {SECOND, SECOND, -ETIMEDOUT},
                 {2 * SECOND, SECOND, -EAGAIN},
                 {WEIR_FOREVER, SECOND, -EAGAIN}};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(*cases); i++) {
        bool is_engine = i % 2;
        weir_acquisition *a, *b;

        open_far(LIMITS(SLOTS(1)));
        a = slots(1);
        b = pending(with_timeout(with_max_wait(ASK({"slot", 1}), cases[i / 2].max_wait),
                                 cases[i / 2].timeout));
        assert_int_equal(control.last_timeout_ns, UINT64_MAX); /* it has another clock */
        if (is_engine) {
            control.refuses = -ETIMEDOUT;
            weir_return(a, "slot", 1);
        } else {
            advance(SECOND);
        }
        assert_int_equal(result_of(b), cases[i / 2].result);
        assert_int_equal(control.waiting, 0);
        assert_int_equal(stats().timed_out, cases[i / 2].result == -ETIMEDOUT);
        assert_int_equal(stats().refused_max_wait, cases[i / 2].result == -EAGAIN);
        control.refuses = 0;
        advance(2 * SECOND);
        assert_int_equal(stats().timed_out + stats().refused_max_wait, 1);
        release(b);
        release(a);
        close_far();
    }
}

static void a_late_grant_goes_back(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    open_far(LIMITS(SLOTS(1)));
    a = slots(1);
    b = pending(ASK({"slot", 1}));
    control.is_deaf = true;
    assert_int_equal(weir_cancel(b), 0);
    assert_int_equal(result_of(b), -ECANCELED);
    release(b);
    b = pending(ASK({"slot", 1})); /* perhaps in the same record */
    release(a);
    assert_int_equal(control.unwanted, 1);
    assert_int_equal(result_of(b), 0);
    release(b);
    close_far();
}

static void a_queue_completes(void **state)
{
    struct weir_completion done[4];
    weir_acquisition *a;
    weir_queue *queue;

    (void)state;
    open_far("max_wait: 1s, " LIMITS(SLOTS(1)));
    assert_int_equal(weir_queue_open(&queue, world.w, 8), 0);
    a = slots(1);
    assert_int_equal(weir_queue_submit(queue, world.pool, ASK({"slot", 1}), 1, NULL, NULL), 0);
    assert_int_equal(weir_queue_submit(queue, world.pool, ASK({"slot", 1}), 2, NULL, NULL), 0);
    assert_int_equal(weir_queue_reap(queue, done, 4), 0);
    release(a);
    assert_int_equal(weir_queue_reap(queue, done, 4), 1);
    assert_int_equal(done[0].user_data, 1);
    assert_int_equal(done[0].result, 0);
    world.now += SECOND;
    assert_int_equal(weir_queue_reap(queue, done + 1, 3), 1);
    assert_int_equal(done[1].result, -EAGAIN);
    release(done[0].acquisition);
    weir_queue_close(queue);
    close_far();
}

static void closing_ends_waits(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    open_far(LIMITS(SLOTS(1)));
    a = slots(1);
    b = pending(ASK({"slot", 1}));
    weir_close(world.w);
    assert_int_equal(result_of(b), -ESHUTDOWN);
    assert_int_equal(control.waiting, 0);
    release(b);
    assert_int_equal(control.held[0], 1); /* until it is released */
    release(a);
    assert_int_equal(control.held[0], 0);
    weir_pool_close(world.pool);
    world.w = NULL;
    world.pool = NULL;
    world_close();
    assert_int_equal(control.connections, 0);
}

static void verdicts_about_nothing_change_nothing(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    open_far(LIMITS(SLOTS(2)));
    a = slots(1);
    control.is_hostile = true;
    b = slots(1);
    control.is_hostile = false;
    assert_int_equal(control.unwanted, 28 + 64);
    assert_int_equal(stats().held, 2);
    release(a);
    release(b);
    close_far();
}

/* A token names a record, which may be one that waits for another set of the same engine, or for
 * one that no engine keeps. */
static void verdicts_are_about_their_own_set(void **state)
{
    static const char *const names[] = {"other", "own"};
    const struct weir_backend_verdict grant = {.size = sizeof(grant), .hold = 7, .fence = 7};
    const struct weir_backend_host *host;
    char text[512];

    (void)state;
    control = (struct engine_control){0};
    snprintf(text, sizeof(text),
             "version: 1\nbackends: { far: { type: engine, control: \"%p\" } }\n"
             "sets: { main: { backend: far, " LIMITS(SLOTS(1)) " }, other: { backend: far, " LIMITS(
                 SLOTS(1)) " }, own: { backend: thread, " LIMITS(SLOTS(1)) " } }\n",
             (void *)&control);
    world_open(text, "main");
    host = control.host;
    for (int i = 0; i < 2; i++) {
        weir_acquisition *holder = NULL, *waiter = NULL;
        weir_pool *pool = pool_open(names[i], 0);
        uint64_t word;

        assert_int_equal(weir_try_acquire(pool, ASK({"slot", 1}), &holder, NULL), 0);
        assert_int_equal(weir_submit(pool, ASK({"slot", 1}), &waiter, NULL), 1);
        word = record_load(&set_record(waiter->set, waiter->record)->word);
        assert_int_equal(
            host->decided(host->context, world.set, remote_token(waiter->record, word), &grant), 1);
        assert_int_equal(result_of(waiter), -EINPROGRESS);
        weir_release(&holder);
        assert_int_equal(result_of(waiter), 0);
        release(waiter);
        weir_pool_close(pool);
    }
    close_far();
}

/* ---- sessions ---- */

static void grants_have_fencing_tokens(void **state)
{
    weir_acquisition *a, *b;
    uint64_t first = 0, second = 0;

    (void)state;
    open_far(LIMITS(SLOTS(2)));
    a = slots(1);
    b = pending(ASK({"slot", 2}));
    assert_int_equal(weir_acquisition_fence(a, &first), 0);
    assert_int_equal(first, 1001);
    assert_int_equal(weir_acquisition_fence(b, &second), -EINVAL);
    release(a);
    assert_int_equal(weir_acquisition_fence(b, &second), 0);
    assert_true(second > first);
    release(b);
    close_far();
    world_limits(SLOTS(2));
    a = slots(1);
    assert_int_equal(weir_acquisition_fence(a, &first), -EOPNOTSUPP);
    release(a);
    world_close();
}

/* Reports the loss of a grant, as the engine does when its session has ended. */
static void lose(uint64_t token, uint64_t hold)
{
    const struct weir_backend_host *host = control.host;

    host->lost(host->context, control.host_set, token, hold);
}

static bool is_readable(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    assert_true(fd >= 0);
    return poll(&poll_fd, 1, 0) == 1;
}

static void a_loss_is_noticed(void **state)
{
    weir_acquisition *a, *b;
    uint64_t fence = 7;
    int fd;

    (void)state;
    open_far(LIMITS(SLOTS(2)));
    a = slots(1);
    fd = weir_acquisition_lost_fd(a);
    assert_int_equal(weir_acquisition_lost_fd(a), fd);
    assert_false(is_readable(fd));
    lose(control.last_token, control.last_hold);
    assert_true(is_readable(fd));
    assert_int_equal(result_of(a), -EOWNERDEAD);
    assert_int_equal(weir_acquisition_fence(a, &fence), -EOWNERDEAD);
    assert_int_equal(fence, 7);
    b = slots(1);
    assert_int_equal(result_of(b), 0);
    assert_int_equal(weir_acquisition_fence(b, &fence), 0);
    assert_false(is_readable(weir_acquisition_lost_fd(b)));
    release_expecting(a, -EOWNERDEAD);
    release(b);
    close_far();
}

/* The backend is asked for each answer: a process that was stopped goes on with any thread first.
 */
static void the_clock_is_looked_at(void **state)
{
    weir_acquisition *a;
    uint64_t fence = 7;

    (void)state;
    open_far(LIMITS(SLOTS(2)));
    a = slots(1);
    assert_int_equal(result_of(a), 0);
    control.is_over = true;
    assert_int_equal(result_of(a), -EOWNERDEAD);
    assert_int_equal(weir_acquisition_fence(a, &fence), -EOWNERDEAD);
    assert_int_equal(fence, 7);
    release_expecting(a, -EOWNERDEAD);
    close_far();
}

/* One session of several: that of another subject. */
static void what_other_sessions_hold_stays_held(void **state)
{
    struct weir_request *request = ASK({"slot", 1});
    weir_acquisition *a, *b;

    (void)state;
    open_far("subjects: { max: 10 }, " LIMITS(SLOTS(2)));
    request->subject_size = 5;
    request->subject = "alice";
    a = granted(request);
    request->subject = "berta";
    b = granted(request);
    lose(control.last_token, control.last_hold);
    assert_int_equal(result_of(a), 0);
    assert_int_equal(result_of(b), -EOWNERDEAD);
    assert_true(is_readable(weir_acquisition_lost_fd(b))); /* asked for late */
    release(a);
    release_expecting(b, -EOWNERDEAD);
    close_far();
}

/* Reports about what was released, and about what never was. */
static void losses_of_nothing_change_nothing(void **state)
{
    uint64_t token, hold;
    weir_acquisition *a;

    (void)state;
    open_far(LIMITS(SLOTS(1)));
    a = slots(1);
    token = control.last_token;
    hold = control.last_hold;
    release(a);
    lose(token, hold);
    a = slots(1); /* in the same record */
    assert_int_equal((uint32_t)control.last_token & 0xffff, (uint32_t)token & 0xffff);
    lose(token, hold);
    lose(0, control.last_hold);
    lose(control.last_token, 0);
    assert_false(is_readable(weir_acquisition_lost_fd(a)));
    assert_int_equal(result_of(a), 0);
    release(a);
    close_far();
}

static void only_grants_of_engines_can_be_lost(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    open_far("on_failure: open, " LIMITS(SLOTS(1)));
    a = slots(1);
    b = pending(ASK({"slot", 1}));
    assert_int_equal(weir_acquisition_lost_fd(b), -EINVAL);
    release(b);
    release(a);
    control.away = -ECONNREFUSED;
    a = slots(1);
    assert_int_equal(weir_acquisition_lost_fd(a), -EOPNOTSUPP);
    release(a);
    control.away = 0;
    close_far();
    world_limits(SLOTS(2));
    a = slots(1);
    assert_int_equal(weir_acquisition_lost_fd(a), -EOPNOTSUPP);
    release(a);
    world_close();
}

static void a_loss_without_a_descriptor_is_no_failure(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_far(LIMITS(SLOTS(1)));
    a = slots(1);
    fake_os_fail_kind_at(1, FAKE_ANY, 0);
    assert_true(weir_acquisition_lost_fd(a) < 0);
    fake_os_fail_kind_at(0, 0, 0);
    lose(control.last_token, control.last_hold);
    release_expecting(a, -EOWNERDEAD);
    close_far();
}

static void a_set_says_which_backend_keeps_it(void **state)
{
    struct weir_set_info info = {.size = sizeof(info)};

    (void)state;
    open_far(LIMITS(SLOTS(2)));
    assert_int_equal(weir_set_info(world.set, &info), 0);
    assert_string_equal(info.backend, "far");
    assert_null(info.lifetime);
    close_far();
}

static void what_all_processes_hold_is_asked_of_the_engine(void **state)
{
    struct weir_set_stats of_set = {.size = sizeof(of_set)};
    weir_acquisition *a, *b;

    (void)state;
    open_far(LIMITS(SLOTS(3)));
    a = slots(2);
    control.away = -ECONNREFUSED;
    assert_int_equal(weir_set_stats(world.set, &of_set, NULL, 0), -EHOSTUNREACH);
    assert_int_equal(of_set.held, 1); /* as this process knows */
    assert_int_equal(of_set.engine_held, 0);
    control.away = 0;
    b = pending(ASK({"slot", 2}));
    control.held[0]++; /* another process */
    assert_int_equal(stats().engine_granted, 1);
    assert_int_equal(stats().engine_held, 1);
    assert_int_equal(stats().waiting, 1);
    assert_int_equal(limit_stats(0).held, 3);
    assert_int_equal(limit_stats(0).available, 0);
    control.held[0]--;
    release(b);
    release(a);
    assert_int_equal(stats().engine_granted, 1);
    assert_int_equal(stats().engine_held, 0);
    close_far();
}

/* ---- a pool of such sets ---- */

static void a_balancer_asks_no_engine(void **state)
{
    weir_acquisition *held[4];
    char text[1024];

    (void)state;
    control = (struct engine_control){0};
    snprintf(text, sizeof(text),
             "version: 1\nbackends: { far: { type: engine, control: \"%p\" } }\n"
             "sets: { a: { backend: far, " LIMITS(SLOTS(2)) " }, b: { backend: far, " LIMITS(
                 SLOTS(2)) " } }\n"
                           "pools: { p: { balancer: emptiest, sets: [a, b] } }\n",
             (void *)&control);
    world_open(text, "p");
    held[0] = granted(NULL); /* a holds 1 */
    held[1] = granted(NULL); /* b holds 1, and the engine has no more */
    held[2] = pending(NULL); /* one waits in a */
    held[3] = pending(NULL); /* one waits in b */
    for (int i = 0; i < 4; i++)
        assert_string_equal(weir_acquisition_set(held[i]), i % 2 ? "b" : "a");
    release(held[3]); /* canceled: it waits no more */
    assert_string_equal(weir_acquisition_set(held[3] = pending(NULL)), "b");
    release(held[1]);
    release(held[3]);
    control.away = -ECONNREFUSED;
    assert_int_equal(submit(NULL, &held[3]), 1);
    assert_string_equal(weir_acquisition_set(held[3]), "b");
    assert_int_equal(result_of(held[3]), -EHOSTUNREACH);
    release(held[3]);
    assert_int_equal(control.snapshots, 0);
    release(held[0]);
    release(held[2]);
    close_far();
}

/* ---- whether engines can be used ---- */

struct checked {
    int n;
    struct weir_backend_info info[4];
    char name[4][16], message[4][300];
    int stops_after;
};

static int note_backend(void *userdata, const struct weir_backend_info *info)
{
    struct checked *checked = userdata;
    int i = checked->n++;

    assert_int_equal(info->size, sizeof(*info));
    checked->info[i] = *info;
    snprintf(checked->name[i], sizeof(checked->name[i]), "%s", info->name);
    snprintf(checked->message[i], sizeof(checked->message[i]), "%s", info->message);
    assert_string_equal(info->type, "engine");
    return checked->n == checked->stops_after;
}

static void backends_are_checked(void **state)
{
    struct checked checked = {0};
    char text[1024];

    (void)state;
    control = (struct engine_control){.says = "engine 7\n"};
    snprintf(text, sizeof(text),
             "version: 1\nbackends: { far: { type: engine, control: \"%p\" },"
             " further: { type: engine, control: \"%p\" } }\nsets: { main: { } }\n",
             (void *)&control, (void *)&control);
    world_open(text, "main");
    assert_int_equal(weir_check_backends(world.w, 3 * SECOND, note_backend, &checked), 2);
    assert_string_equal(checked.name[0], "far");
    assert_string_equal(checked.name[1], "further");
    assert_int_equal(checked.info[1].result, 0);
    assert_string_equal(checked.message[1], "engine 7?");
    assert_in_range(control.checked_ns, 1, 3 * SECOND);
    assert_int_equal(weir_check_backends(world.w, WEIR_FOREVER, note_backend, &checked), 2);
    assert_true(control.checked_ns > 1000 * SECOND);
    control.fails_check = -ECONNREFUSED;
    control.says = "refused";
    checked = (struct checked){.stops_after = 1};
    assert_int_equal(weir_check_backends(world.w, 0, note_backend, &checked), 1);
    assert_int_equal(checked.info[0].result, -ECONNREFUSED);
    assert_string_equal(checked.message[0], "refused");
    world_close();
    world_limits(SLOTS(1));
    assert_int_equal(weir_check_backends(world.w, 0, note_backend, &checked), 0);
    world_close();
}

static void offline_asks_no_engine(void **state)
{
    struct weir_options options = {.size = sizeof(options),
                                   .text = text_of("on_failure: open, " LIMITS(SLOTS(3))),
                                   .flags = WEIR_OPEN_OFFLINE};
    struct weir_set_stats of_set = {.size = sizeof(of_set)};
    struct weir_limit_stats limit = {0};
    struct checked checked = {0};
    weir_acquisition *a = NULL;

    (void)state;
    control = (struct engine_control){0};
    assert_int_equal(weir_open(&world.w, &options, NULL), 0);
    assert_int_equal(weir_pool_open(&world.pool, world.w, "main", 0, NULL), 0);
    world.set = weir_pool_set(world.pool, 0);
    assert_int_equal(try_acquire(ASK({"slot", 1}), &a), -EHOSTUNREACH);
    assert_int_equal(submit(ASK({"slot", 1}), &a), -EHOSTUNREACH);
    assert_int_equal(weir_set_stats(world.set, &of_set, &limit, 1), -EHOSTUNREACH);
    assert_int_equal(limit.capacity, 3);
    assert_string_equal(limit.key, "slot");
    assert_int_equal(of_set.held, 0);
    assert_int_equal(control.asked, 0);
    assert_int_equal(control.snapshots, 0);
    assert_int_equal(weir_check_backends(world.w, SECOND, note_backend, &checked), 1);
    world.pool = weir_pool_close(world.pool);
    world.w = weir_close(world.w);
    assert_int_equal(control.connections, 0);
}

/* ---- threads, by the system's clock ---- */

static void open_far_real(const char *fields)
{
    control = (struct engine_control){0};
    assert_int_equal(weir_open(&world.w,
                               &(struct weir_options){.size = sizeof(struct weir_options),
                                                      .text = text_of(fields)},
                               NULL),
                     0);
    assert_int_equal(weir_pool_open(&world.pool, world.w, "main", 0, NULL), 0);
    world.set = weir_pool_set(world.pool, 0);
}

/* So that a process that is stopped at its deadline is not granted anything later. */
static void the_engine_knows_the_deadline(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    open_far_real("timeout: 1h, " LIMITS(SLOTS(1)));
    a = slots(1);
    b = pending(ASK({"slot", 1}));
    assert_int_equal(control.last_timeout_ns, 3600 * SECOND);
    release(b);
    b = pending(with_timeout(ASK({"slot", 1}), WEIR_FOREVER));
    assert_int_equal(control.last_timeout_ns, UINT64_MAX);
    release(b);
    b = pending(with_max_wait(with_timeout(ASK({"slot", 1}), 300 * SECOND), 200 * SECOND));
    assert_int_equal(control.last_timeout_ns, 200 * SECOND);
    release(b);
    release(a);
    close_far();
}

/* ---- threads that may block ---- */

static _Atomic unsigned works_begun, works_ended;
static _Atomic bool works_end;

static void work_until_told(void *argument)
{
    atomic_fetch_add((_Atomic unsigned *)argument, 1);
    while (!atomic_load(&works_end))
        sched_yield();
    atomic_fetch_add(&works_ended, 1);
}

static void *end_works(void *argument)
{
    (void)argument;
    while (atomic_load(&works_begun) < REMOTE_WORKERS + 1)
        sched_yield();
    atomic_store(&works_end, true);
    return NULL;
}

static void an_engine_has_threads_that_may_block(void **state)
{
    const struct weir_backend_host *host;
    pthread_t thread;
    int r;

    (void)state;
    open_far_real(LIMITS(SLOTS(1)));
    host = control.host;
    atomic_store(&works_begun, 0);
    atomic_store(&works_ended, 0);
    atomic_store(&works_end, true);
    assert_int_equal(host->work(host->context, work_until_told, &works_begun), 0);
    while (atomic_load(&works_ended) == 0)
        sched_yield();
    atomic_store(&works_end, false);
    for (unsigned i = 0; i < REMOTE_WORKERS;
         i++) { /* the first one is used again, if it is through */
        while ((r = host->work(host->context, work_until_told, &works_begun)) == -EAGAIN &&
               i == REMOTE_WORKERS - 1)
            sched_yield();
        assert_int_equal(r, 0);
    }
    assert_int_equal(host->work(host->context, work_until_told, &works_begun), -EAGAIN);
    release(slots(1)); /* its own thread */
    assert_int_equal(pthread_create(&thread, NULL, end_works, NULL), 0);
    close_far(); /* waits for them */
    assert_int_equal(atomic_load(&works_ended), REMOTE_WORKERS + 1);
    pthread_join(thread, NULL);
}

static void *block(void *argument)
{
    weir_acquisition **ret = argument;

    require(weir_acquire(world.pool, ASK({"slot", 1}), ret, NULL) == 0);
    return NULL;
}

static void a_blocked_thread_is_granted(void **state)
{
    weir_acquisition *a, *b = NULL;
    pthread_t thread;

    (void)state;
    open_far_real(LIMITS(SLOTS(1)));
    a = slots(1);
    assert_int_equal(pthread_create(&thread, NULL, block, &b), 0);
    while (stats().waiting == 0)
        sched_yield();
    release(a);
    pthread_join(thread, NULL);
    assert_non_null(b);
    release(b);
    close_far();
}

/* weir_close has looked for waiters just before this one was there. */
static void closing_ends_a_wait_that_begins(void **state)
{
    weir_acquisition *holder, *a = NULL;

    (void)state;
    open_far(LIMITS(SLOTS(1)));
    holder = slots(1);
    control.closes = world.w->state;
    control.closed = INSTANCE_HERE | INSTANCE_CLOSED;
    assert_int_equal(submit(ASK({"slot", 1}), &a), -ESHUTDOWN);
    *world.w->state = INSTANCE_HERE;
    assert_null(a);
    assert_int_equal(control.waiting, 0);
    assert_int_equal(stats().waiting, 0);
    control.closes = NULL;
    release(holder);
    close_far();
}

static void *try_one(void *ret)
{
    weir_acquisition *acquisition = NULL;

    *(int *)ret = weir_try_acquire(world.pool, ASK({"slot", 1}), &acquisition, NULL);
    return NULL;
}

static void closing_ends_a_try(void **state)
{
    pthread_t thread;
    int result = 0;

    (void)state;
    open_far_real(LIMITS(SLOTS(1)));
    control.is_stuck = true;
    assert_int_equal(pthread_create(&thread, NULL, try_one, &result), 0);
    while (stats().waiting == 0)
        sched_yield();
    weir_close(world.w);
    pthread_join(thread, NULL);
    assert_int_equal(result, -ESHUTDOWN);
    world.w = NULL;
    weir_pool_close(world.pool);
    world.pool = NULL;
    close_far();
}

static void *work(void *argument)
{
    static _Atomic uint64_t held;

    (void)argument;
    for (int i = 0; i < 300; i++) {
        weir_acquisition *a = NULL;
        int r = i % 3 == 0 ? weir_try_acquire(world.pool, ASK({"slot", 1}), &a, NULL)
                           : weir_acquire(world.pool, ASK({"slot", 1}), &a, NULL);

        require(r == 0 || (r == -EAGAIN && i % 3 == 0));
        if (r < 0)
            continue;
        require(atomic_fetch_add(&held, 1) < 2);
        atomic_fetch_sub(&held, 1);
        require(weir_release(&a) == 0);
    }
    return NULL;
}

static void threads_share_an_engine(void **state)
{
    pthread_t threads[4];

    (void)state;
    open_far_real(LIMITS(SLOTS(2)));
    control.is_slow = true; /* its thread decides, or whichever of these waits */
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    close_far();
}

/* ---- an engine that is away ---- */

static void closed_refuses(void **state)
{
    struct weir_set_stats of_set = {.size = sizeof(of_set)};
    weir_acquisition *a = NULL;

    (void)state;
    open_far(LIMITS(SLOTS(1)));
    control.away = -ECONNREFUSED;
    assert_int_equal(try_acquire(ASK({"slot", 1}), &a), -EHOSTUNREACH);
    assert_int_equal(try_acquire(ASK({"slot", 1}), &a), -EHOSTUNREACH);
    assert_int_equal(weir_set_stats(world.set, &of_set, NULL, 0), -EHOSTUNREACH);
    assert_int_equal(world.logged, 1); /* once */
    assert_non_null(strstr(world.log[0], "refused"));
    assert_int_equal(submit(ASK({"slot", 1}), &a), 1);
    assert_int_equal(result_of(a), -EHOSTUNREACH);
    release(a);
    control.away = 0;
    release(slots(1));
    control.away = -ECONNRESET;
    assert_int_equal(try_acquire(ASK({"slot", 1}), &a), -EHOSTUNREACH);
    assert_int_equal(world.logged, 2); /* again, as it had answered */
    control.away = 0;
    close_far();
}

/* ---- the program's log ---- */

static atomic_uint heard, may_go_on;

/* Requests something, and so needs the engine's lock, as well as that of the backend. */
static void hear_and_ask(void)
{
    assert_int_equal(pthread_mutex_trylock(control.lock), 0);
    pthread_mutex_unlock(control.lock);
    assert_int_equal(take(ASK({"slot", 0}, {"k", 1})), -EHOSTUNREACH);
    heard++;
}

/* The program's callback may call weir: also what the engine says is logged without locks. */
static void the_log_is_written_without_locks(void **state)
{
    weir_acquisition *a = NULL;

    (void)state;
    open_far(LIMITS(SLOTS(1) ", " RATE));
    heard = 0;
    world.on_log = hear_and_ask;
    control.away = -ECONNREFUSED;
    assert_int_equal(submit(ASK({"slot", 1}, {"k", 0}), &a), 1);
    assert_int_equal(heard, 1);
    assert_int_equal(result_of(a), -EHOSTUNREACH);
    release(a);
    control.away = 0;
    assert_int_equal(take(ASK({"slot", 0}, {"k", 1})), 0);
    control.away = -ECONNREFUSED;
    assert_int_equal(take(ASK({"slot", 0}, {"k", 1})), -EHOSTUNREACH);
    assert_int_equal(heard, 2);
    close_far();
}

static void hear_and_block(void)
{
    heard++;
    while (!may_go_on)
        sched_yield();
}

/* The thread that keeps the connection does not wait for the program's callback. */
static void the_log_holds_up_no_engine(void **state)
{
    const struct weir_backend_host *host;
    int level = WEIR_LOG_WARNING;

    (void)state;
    open_far(LIMITS(SLOTS(1)));
    host = control.host;
    heard = may_go_on = 0;
    world.on_log = hear_and_block;
    host->write_log(host->context); /* there is nothing */
    for (int i = 0; i < 2; i++) {
        host->log(host->context, level, "a word");
        host->write_log(host->context);
    }
    while (!heard)
        sched_yield();
    for (int i = 0; i < 40; i++)
        host->log(host->context, level, "one word more");
    host->log(host->context, WEIR_LOG_DEBUG, "not for this program");
    host->log(host->context, 77, "nor this");
    may_go_on = 1;
    close_far();
    assert_int_equal(world.logged, 1 + REMOTE_LINES_MAX + 1);
    assert_string_equal(world.log[0], "backend `far`: a word");
    assert_string_equal(world.log[LOG_MAX - 1], "backend `far`: one word more");
}

static void open_grants(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    open_far("on_failure: open, " LIMITS(SLOTS(1)));
    control.away = -ECONNREFUSED;
    a = slots(1);
    b = slots(1);
    assert_int_equal(control.held[0], 0);
    assert_non_null(strstr(world.log[0], "granted without it"));
    control.away = 0;
    release(a); /* the engine knows nothing of it */
    release(b);
    close_far();
}

/* A set that the engine does not serve is not one without an engine. */
static void open_grants_nothing_that_is_refused(void **state)
{
    static const struct {
        int away, code;
        const char *why;
    } cases[] = {{-EEXIST, -EEXIST, "defined otherwise"},
                 {-EACCES, -EACCES, "not be used"},
                 {-EUCLEAN, -EUCLEAN, "damaged"},
                 {-EINVAL, -EHOSTUNREACH, "Invalid argument"}};
    struct weir_set_stats of_set = {.size = sizeof(of_set)};
    weir_acquisition *a = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        open_far("on_failure: open, " LIMITS(SLOTS(1)));
        control.away = cases[i].away;
        assert_int_equal(try_acquire(ASK({"slot", 1}), &a), cases[i].code);
        assert_null(a);
        assert_non_null(strstr(world.log[0], "requests are refused"));
        assert_non_null(strstr(world.log[0], cases[i].why));
        assert_int_equal(weir_set_stats(world.set, &of_set, NULL, 0), cases[i].code);
        assert_int_equal(submit(ASK({"slot", 1}), &a), 1);
        assert_int_equal(result_of(a), cases[i].code);
        release(a);
        a = NULL;
        control.away = 0;
        close_far();
    }
}

static void wait_waits(void **state)
{
    weir_acquisition *a = NULL, *b;

    (void)state;
    open_far("on_failure: wait, " LIMITS(SLOTS(2)));
    control.away = -ECONNREFUSED;
    assert_int_equal(submit(ASK({"slot", 1}), &a), 1);
    assert_int_equal(result_of(a), -EINPROGRESS);
    assert_int_equal(control.patient, 1);
    control.away = 0;
    b = slots(1); /* behind it */
    assert_int_equal(result_of(a), 0);
    release(a);
    release(b);
    close_far();
}

/* ---- on_failure: local_share ---- */

static const struct weir_backend_host *engine_host(void)
{
    return control.host;
}

/* The engine goes away, or comes back, and says so. */
static void go_away(bool is_away)
{
    control.away = is_away ? -ECONNREFUSED : 0;
    engine_host()->away(engine_host()->context, control.host_set, is_away);
    remote_log_write(&remote_of(world.set)->engine->log);
}

/* Opens a set that so many nodes use, the engine of which is away. */
static void open_share(const char *fields, uint32_t nodes)
{
    open_far(fields);
    assert_int_equal(control.counts_nodes, 1);
    engine_host()->nodes(engine_host()->context, control.host_set, nodes);
    go_away(true);
}

static void close_share(void)
{
    control.away = 0;
    close_far();
}

#define SHARE(x) "on_failure: local_share, " LIMITS(x)

static uint64_t shared_available(size_t limit)
{
    struct weir_set_stats of_set = {.size = sizeof(of_set)};
    struct weir_limit_stats of_limits[4];

    assert_true(weir_set_stats(world.set, &of_set, of_limits, 4) > (int)limit);
    return of_limits[limit].available;
}

static void a_share_is_rounded_down(void **state)
{
    static const struct {
        uint32_t nodes;
        uint64_t slots, units; /* of 10 and of a burst of 7 */
    } cases[] = {{1, 10, 7}, {2, 5, 3}, {3, 3, 2}, {7, 1, 1}};
    weir_acquisition *a, *b = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        open_share(SHARE(SLOTS(10) ", " RATE), cases[i].nodes);
        assert_int_equal(shared_available(0), cases[i].slots);
        assert_int_equal(shared_available(1), cases[i].units);
        a = granted(ASK({"slot", cases[i].slots}, {"k", 0}));
        assert_int_equal(take(ASK({"slot", 0}, {"k", cases[i].units})), 0);
        assert_int_equal(try_acquire(ASK({"slot", 1}, {"k", 0}), &b), -EAGAIN);
        assert_string_equal(refusal.key, "slot");
        assert_int_equal(take(ASK({"slot", 0}, {"k", 1})), -EAGAIN);
        assert_int_equal(take(ASK({"slot", 0}, {"k", cases[i].units + 1})),
                         cases[i].nodes == 1 ? -ERANGE : -EHOSTUNREACH);
        world.now += 10 * SECOND / (10 / cases[i].nodes) + 1; /* for one more unit */
        assert_int_equal(take(ASK({"slot", 0}, {"k", 1})), 0);
        assert_int_equal(take(ASK({"slot", 0}, {"k", 1})), -EAGAIN);
        assert_int_equal(control.asked, 0);
        assert_int_equal(stats().granted, 3);
        assert_int_equal(stats().granted_alone, 3);
        assert_int_equal(stats().held, 1);
        release(a);
        close_share();
    }
}

/* Of 3 units, 4 nodes have none each. */
static void a_share_of_nothing_grants_nothing(void **state)
{
    weir_acquisition *a = NULL;

    (void)state;
    open_share(SHARE(SLOTS(3) ", " RATE), 8);
    assert_int_equal(try_acquire(ASK({"slot", 1}, {"k", 0}), &a), -EHOSTUNREACH);
    assert_int_equal(take(ASK({"slot", 0}, {"k", 1})), -EHOSTUNREACH); /* a burst of 7 */
    assert_int_equal(submit(ASK({"slot", 1}, {"k", 0}), &a), -EHOSTUNREACH);
    assert_null(a);
    close_share();
}

static void many_nodes_are_rounded_up(void **state)
{
    (void)state;
    open_share(SHARE(SLOTS(340)), 17); /* as 18 */
    assert_int_equal(shared_available(0), 18);
    close_share();
    open_share(SHARE(SLOTS(4294967295)), UINT32_MAX);
    assert_int_equal(shared_available(0), 1);
    close_share();
}

/* Until the engine was heard, the number is not known. */
static void an_unknown_share_is_none(void **state)
{
    weir_acquisition *a = NULL;

    (void)state;
    open_far(SHARE(SLOTS(3)));
    go_away(true);
    assert_int_equal(try_acquire(ASK({"slot", 1}), &a), -EHOSTUNREACH);
    close_share();
}

/* The engine has not said that it is away: the first request finds out. */
static void a_request_that_failed_goes_to_the_share(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_share(SHARE(SLOTS(4) ", " RATE), 2);
    engine_host()->away(engine_host()->context, control.host_set, false);
    a = granted(ASK({"slot", 2}, {"k", 0}));
    assert_int_equal(take(ASK({"slot", 0}, {"k", 1})), 0);
    assert_int_equal(control.asked, 2);
    go_away(true);
    assert_int_equal(stats().granted_alone, 2);
    assert_int_equal(world.logged, 1);
    assert_non_null(strstr(world.log[0], "a part in 2 of the limits"));
    release(a);
    close_share();
}

static void a_share_has_waiters(void **state)
{
    struct weir_set_view view = {0};
    weir_acquisition *a, *b, *c;

    (void)state;
    open_share(SHARE(SLOTS(4)), 2);
    a = slots(2);
    b = pending(ASK({"slot", 2}));
    c = pending(with_timeout(ASK({"slot", 1}), SECOND));
    assert_int_equal(stats().waiting, 2);
    assert_int_equal(stats_view(world.set, ASK({"slot", 1}), 0, &view), 0);
    assert_int_equal(view.waiting, 2);
    assert_int_equal(weir_set_holders(world.set, NULL, 0), 3);
    assert_int_equal(advance(SECOND), 1);
    assert_int_equal(result_of(c), -ETIMEDOUT);
    release(a);
    assert_int_equal(result_of(b), 0);
    assert_string_equal(weir_acquisition_set(b), "main");
    release(b);
    release(c);
    assert_int_equal(shared_available(0), 2);
    close_share();
}

static void what_returns_decides_again(void **state)
{
    struct weir_completion done[2];
    weir_acquisition *a, *b, *c;
    weir_queue *queue;

    (void)state;
    open_share(SHARE(SLOTS(4)), 2);
    assert_int_equal(weir_queue_open(&queue, world.w, 8), 0);
    a = slots(2);
    b = pending(ASK({"slot", 1}));
    assert_int_equal(weir_queue_submit(queue, world.pool, ASK({"slot", 1}), 7, NULL, NULL), 0);
    go_away(false);
    assert_int_equal(result_of(b), -EHOSTUNREACH);
    assert_int_equal(weir_queue_reap(queue, done, 2), 1);
    assert_int_equal(done[0].result, -EHOSTUNREACH);
    assert_int_equal(world.logged, 2);
    assert_non_null(strstr(world.log[1], "can be asked again"));
    assert_int_equal(stats().waiting, 0);
    c = slots(4); /* whatever was granted meanwhile */
    assert_int_equal(control.held[0], 4);
    assert_int_equal(result_of(a), 0);
    assert_int_equal(weir_set_holders(world.set, NULL, 0), 2);
    release(a); /* to the share */
    assert_int_equal(control.held[0], 4);
    release(b);
    release(c);
    weir_queue_close(queue);
    go_away(true);
    assert_int_equal(shared_available(0), 2);
    close_share();
}

/* Another outage, with another number of nodes; what the earlier share granted is held there. */
static void each_outage_has_its_number(void **state)
{
    weir_acquisition *a, *b, *c;

    (void)state;
    open_share(SHARE(SLOTS(12)), 2);
    a = slots(6);
    go_away(false);
    engine_host()->nodes(engine_host()->context, control.host_set, 3);
    go_away(true);
    b = slots(4);
    assert_int_equal(try_acquire(ASK({"slot", 1}), &c), -EAGAIN);
    release(a);
    assert_int_equal(try_acquire(ASK({"slot", 1}), &c), -EAGAIN);
    go_away(false);
    engine_host()->nodes(engine_host()->context, control.host_set, 2);
    go_away(true);
    c = slots(6);
    assert_int_equal(stats().granted_alone, 3);
    release(b);
    release(c);
    close_share();
}

/* What waits for the engine goes on waiting for it. */
static void waiters_of_the_engine_stay_there(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    open_far(SHARE(SLOTS(2)));
    engine_host()->nodes(engine_host()->context, control.host_set, 1);
    a = slots(2);
    b = pending(ASK({"slot", 2}));
    assert_int_equal(control.patient, 1);
    go_away(true);
    assert_int_equal(result_of(b), -EINPROGRESS);
    release(slots(2)); /* from the share: what was held before does not count */
    go_away(false);
    release(a);
    assert_int_equal(result_of(b), 0);
    release(b);
    close_share();
}

static void a_share_that_cannot_be_made_grants_nothing(void **state)
{
    bool failed = true;

    (void)state;
    for (uint64_t n = 1; failed; n++) {
        weir_acquisition *a = NULL;
        int r;

        open_share(SHARE(RATE ", " SLOTS(4)), 2);
        fake_os_fail_kind_at(n, FAKE_ANY, 0);
        r = try_acquire(ASK({"k", 0}, {"slot", 1}), &a);
        failed = fake_os_has_failed();
        fake_os_fail_kind_at(0, 0, 0);
        assert_true(r == 0 || (r == -ENOMEM && failed && !a));
        if (r < 0)
            a = granted(ASK({"k", 0}, {"slot", 2})); /* it can be made later */
        assert_int_equal(world.w->sets_n, 2);        /* sets are never removed */
        release(a);
        close_share();
    }
}

static void open_counts_what_it_grants(void **state)
{
    (void)state;
    open_far("on_failure: open, " LIMITS(SLOTS(1)));
    control.away = -ECONNREFUSED;
    release(slots(1));
    control.away = 0;
    release(slots(1));
    assert_int_equal(stats().granted, 2);
    assert_int_equal(stats().granted_alone, 1);
    assert_int_equal(world.logged, 2);
    assert_non_null(strstr(world.log[1], "can be asked again"));
    close_far();
}

static void a_request_that_cannot_be_sent_fails(void **state)
{
    weir_acquisition *a = NULL;

    (void)state;
    open_far(LIMITS(RATE));
    control.fails_ask = -ENOMEM;
    assert_int_equal(take(ASK({"k", 1})), -ENOMEM);
    assert_int_equal(try_acquire(ASK({"k", 1}), &a), -ENOMEM);
    assert_int_equal(submit(ASK({"k", 1}), &a), -ENOMEM);
    assert_null(a);
    assert_int_equal(stats().waiting, 0);
    close_far();
}

/* By the time that it cannot be sent, the request has ended otherwise. */
static void a_request_that_has_ended_does_not_fail(void **state)
{
    weir_acquisition *a = NULL;

    (void)state;
    open_far(LIMITS(RATE));
    control.fails_ask = -ENOMEM;
    control.ends_failed = -EUCLEAN;
    assert_int_equal(take(ASK({"k", 1})), -EUCLEAN);
    assert_int_equal(try_acquire(ASK({"k", 1}), &a), -EUCLEAN);
    assert_null(a);
    assert_int_equal(submit(ASK({"k", 1}), &a), 1);
    assert_int_equal(result_of(a), -EUCLEAN);
    release(a);
    assert_int_equal(stats().waiting, 0);
    close_far();
}

/* ---- configuration ---- */

static void refuses(const char *text, const char *why)
{
    world_refused(text, why);
    assert_int_equal(control.connections, 0);
    assert_int_equal(control.sets, 0);
}

static void wrong_configurations_are_refused(void **state)
{
    char text[1024];

    (void)state;
    control = (struct engine_control){0};
#define WITH(backend, set)                                                                         \
    (snprintf(text, sizeof(text),                                                                  \
              "version: 1\nbackends: { far: { " backend " } }\n"                                   \
              "sets: { main: { " set " } }\n",                                                     \
              (void *)&control),                                                                   \
     text)
#define GOOD_BACKEND "type: engine, control: \"%p\""
    refuses(WITH(GOOD_BACKEND, "backend: fat, limits: []"), "did you mean `far`");
    refuses(WITH("control: \"%p\"", "limits: []"), "a backend needs `type`");
    refuses(WITH("type: engin, control: \"%p\"", "limits: []"), "there is no backend `engin`");
    refuses(WITH(GOOD_BACKEND ", x: 3", "limits: []"), "`x` is not a field of engine");
    refuses(WITH(GOOD_BACKEND ", note: \"123456\"", "limits: []"), "`note` has 6 bytes: 0 to 5");
    refuses(WITH(GOOD_BACKEND, "on_failure: open"), "it needs a `backend` of `backends`");
    refuses(WITH(GOOD_BACKEND, "backend: far, lifetime: users, " LIMITS(SLOTS(1))), "`lifetime`");
    refuses(WITH(GOOD_BACKEND, "backend: far, fair: per_limit, " LIMITS(SLOTS(1))), "per_limit");
    refuses(WITH(GOOD_BACKEND, "backend: far, priorities: 2, " LIMITS(SLOTS(1))),
            "for the backends thread and process");
    refuses(WITH(GOOD_BACKEND, "backend: far, clock: boottime, " LIMITS(SLOTS(1))), "its own");
    refuses(WITH(GOOD_BACKEND, "backend: far, limits: [ { type: rate, key: k, algorithm: gcra,"
                               " capacity: 9, window: 1s, lease: 3 } ]"),
            "`lease` as a number is for the backends");
    refuses(
        WITH(GOOD_BACKEND, "backend: far, subjects: { max: 9, memory: 1MiB }, " LIMITS(SLOTS(1))),
        "`memory` and `evict`");
    refuses(WITH(GOOD_BACKEND,
                 "backend: far, on_failure: local_share, subjects: { max: 9 }, " LIMITS(SLOTS(1))),
            "without `subjects`");
    refuses(WITH(GOOD_BACKEND, "backend: far, on_failure: closd, " LIMITS(SLOTS(1))), "closed");
    refuses("version: 1\nbackends: { thread: { type: engine, control: \"1\" } }\n",
            "name this one otherwise");
    control.fails_open = -EINVAL;
    refuses(text_of(LIMITS(SLOTS(1))), "backend `far`: no engine today");
    control.fails_open = 0;
    control.fails_set_open = -EINVAL;
    refuses(text_of(LIMITS(SLOTS(1))), "such a set cannot be kept");
    control.fails_set_open = 0;
}

/* ---- failures of the system ---- */

static void a_failed_opening_leaves_nothing(void **state)
{
    const struct weir_options options = {.size = sizeof(options),
                                         .text = text_of(LIMITS(RATE ", " SLOTS(1)))};
    bool failed = true;

    (void)state;
    control = (struct engine_control){0};
    for (uint64_t n = 1; failed; n++) {
        weir *w = NULL;
        int r;

        fake_os_fail_kind_at(n, FAKE_ANY, 0);
        r = weir_open(&w, &options, NULL);
        failed = fake_os_has_failed();
        fake_os_fail_kind_at(0, 0, 0);
        assert_true(failed || r == 0);
        weir_close(w);
        assert_int_equal(control.connections, 0);
        assert_int_equal(control.sets, 0);
    }
}

static void a_failed_request_leaves_nothing(void **state)
{
    bool failed = true;

    (void)state;
    for (uint64_t n = 1; failed; n++) {
        weir_acquisition *a = NULL;
        int r;

        open_far(LIMITS(RATE ", " SLOTS(1)));
        fake_os_fail_kind_at(n, FAKE_ANY, 0);
        r = submit(ASK({"k", 1}, {"slot", 1}), &a);
        failed = fake_os_has_failed();
        fake_os_fail_kind_at(0, 0, 0);
        assert_true(r >= 0 || (failed && !a));
        if (r >= 0)
            assert_int_equal(weir_update(a, "k", 1), 0);
        weir_release(&a);
        close_far();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(grants_and_refusals_are_the_engine_s),
        leak_checked_test(a_refusal_for_a_resource_is_no_forecast),
        leak_checked_test(refusals_are_counted_by_limit_and_reason),
        leak_checked_test(grants_count_at_any_instant),
        leak_checked_test(every_grant_ends_at_the_engine),
        leak_checked_test(an_answer_is_waited_for),
        leak_checked_test(what_is_used_is_told),
        leak_checked_test(a_rate_that_is_used_in_full_is_released),
        leak_checked_test(the_engine_learns_the_definition),
        leak_checked_test(takes_hold_nothing),
        leak_checked_test(reservations_are_for_later),
        leak_checked_test(requests_of_subjects_name_them),
        leak_checked_test(short_requests_have_no_subject),
        leak_checked_test(nested_requests_are_not_for_engines),
        leak_checked_test(waiters_are_granted_by_the_engine),
        leak_checked_test(a_descriptor_becomes_readable),
        leak_checked_test(waits_end_at_their_deadlines),
        leak_checked_test(the_engine_ends_waits_as_the_timer_does),
        leak_checked_test(a_late_grant_goes_back),
        leak_checked_test(a_queue_completes),
        leak_checked_test(closing_ends_waits),
        leak_checked_test(verdicts_about_nothing_change_nothing),
        leak_checked_test(verdicts_are_about_their_own_set),
        leak_checked_test(grants_have_fencing_tokens),
        leak_checked_test(a_loss_is_noticed),
        leak_checked_test(the_clock_is_looked_at),
        leak_checked_test(what_other_sessions_hold_stays_held),
        leak_checked_test(losses_of_nothing_change_nothing),
        leak_checked_test(only_grants_of_engines_can_be_lost),
        leak_checked_test(a_loss_without_a_descriptor_is_no_failure),
        leak_checked_test(a_set_says_which_backend_keeps_it),
        leak_checked_test(what_all_processes_hold_is_asked_of_the_engine),
        leak_checked_test(a_balancer_asks_no_engine),
        leak_checked_test(backends_are_checked),
        leak_checked_test(offline_asks_no_engine),
        leak_checked_test(the_engine_knows_the_deadline),
        leak_checked_test(an_engine_has_threads_that_may_block),
        leak_checked_test(a_blocked_thread_is_granted),
        leak_checked_test(closing_ends_a_wait_that_begins),
        leak_checked_test(closing_ends_a_try),
        leak_checked_test(threads_share_an_engine),
        leak_checked_test(closed_refuses),
        leak_checked_test(open_grants),
        leak_checked_test(open_grants_nothing_that_is_refused),
        leak_checked_test(wait_waits),
        leak_checked_test(a_share_is_rounded_down),
        leak_checked_test(a_share_of_nothing_grants_nothing),
        leak_checked_test(many_nodes_are_rounded_up),
        leak_checked_test(an_unknown_share_is_none),
        leak_checked_test(a_request_that_failed_goes_to_the_share),
        leak_checked_test(a_share_has_waiters),
        leak_checked_test(what_returns_decides_again),
        leak_checked_test(each_outage_has_its_number),
        leak_checked_test(waiters_of_the_engine_stay_there),
        leak_checked_test(a_share_that_cannot_be_made_grants_nothing),
        leak_checked_test(open_counts_what_it_grants),
        leak_checked_test(a_request_that_cannot_be_sent_fails),
        leak_checked_test(a_request_that_has_ended_does_not_fail),
        leak_checked_test(wrong_configurations_are_refused),
        leak_checked_test(a_failed_opening_leaves_nothing),
        leak_checked_test(the_log_is_written_without_locks),
        leak_checked_test(the_log_holds_up_no_engine),
        leak_checked_test(a_failed_request_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
