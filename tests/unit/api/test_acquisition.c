/* SPDX-License-Identifier: MIT */
/* An acquisition's descriptor, its states, and the timer thread behind it. */
#include "api/acquisition.h"
#include "api/instance.h"
#include "lib/world.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define SLOT "{ type: resource, key: r, capacity: 1 }"
#define RATE "{ type: rate, key: k, algorithm: gcra, capacity: 1000, window: 1s }"

/* A state that only sets of engines have is damage in a set that processes share. */
static void a_state_of_an_engine_is_damage_in_a_shared_set(void **state)
{
    weir_acquisition *a, *b;
    struct acq_record *r;
    uint64_t word;

    (void)state;
    world_set("backend: process, lifetime: users, limits: [ " SLOT " ]");
    a = granted(NULL);
    b = pending(NULL);
    r = set_record(b->set, b->record);
    word = record_load(&r->word);
    for (uint64_t of = RECORD_UNREACHABLE; of <= RECORD_DAMAGED; of++) {
        if (of == RECORD_QUEUE_FULL)
            continue;
        record_store(&r->word, (word & ~UINT64_C(0xff)) | of);
        assert_int_equal(weir_acquisition_result(b), -EUCLEAN);
    }
    record_store(&r->word, word);
    release(b);
    release(a);
    world_close();
}

/* Marks the bytes in which two handles differ. */
static void mark_difference(const struct weir_acquisition *one,
                            const struct weir_acquisition *other,
                            bool ret[sizeof(struct weir_acquisition)])
{
    const unsigned char *bytes = (const unsigned char *)one;
    const unsigned char *others = (const unsigned char *)other;

    for (size_t i = 0; i < sizeof(*one); i++)
        ret[i] = bytes[i] != others[i];
}

/* What is written under the timer's lock has no byte in common with what the caller writes, which
 * has no lock: a byte is written as a whole. */
static void fields_of_two_owners_share_no_byte(void **state)
{
    static struct weir_acquisition none, timers, callers;
    bool of_timer[sizeof(none)], of_caller[sizeof(none)];

    (void)state;
    timers.signaled = timers.in_group = timers.grants_only = timers.attached = true;
    callers.canceled = callers.has_latency = 1;
    callers.outcome = 7;
    callers.reserved = callers.strict = callers.amounts_differ = true;
    mark_difference(&none, &timers, of_timer);
    mark_difference(&none, &callers, of_caller);
    for (size_t i = 0; i < sizeof(none); i++)
        assert_false(of_timer[i] && of_caller[i]);
}

static void no_descriptor_is_made_before_it_is_asked_for(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    world_limits(SLOT);
    a = granted(NULL);
    b = pending(NULL);
    assert_int_equal(fake_os_live().descriptors, 0);
    assert_true(weir_acquisition_fd(b) >= 0);
    assert_int_equal(fake_os_live().descriptors, 1);
    assert_int_equal(weir_acquisition_fd(b), weir_acquisition_fd(b));
    assert_int_equal(fake_os_live().descriptors, 1);
    release(b);
    assert_int_equal(fake_os_live().descriptors, 0);
    release(a);
    world_close();
}

static void a_descriptor_is_close_on_exec_and_non_blocking(void **state)
{
    weir_acquisition *a, *b;
    uint64_t value;
    int fd;

    (void)state;
    world_limits(SLOT);
    a = granted(NULL);
    b = pending(NULL);
    fd = weir_acquisition_fd(b);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_int_equal(read(fd, &value, sizeof(value)), -1);
    assert_int_equal(errno, EAGAIN);
    release(b);
    release(a);
    world_close();
}

static void a_descriptor_becomes_readable_once_decided(void **state)
{
    enum { GRANT, TIMEOUT, MAX_WAIT, CANCEL };
    static const int results[] = {0, -ETIMEDOUT, -EAGAIN, -ECANCELED};

    (void)state;
    for (int way = GRANT; way <= CANCEL; way++) {
        struct weir_request request = {.size = sizeof(request)};
        weir_acquisition *holder, *a;
        int fd;

        world_limits(SLOT);
        holder = granted(NULL);
        request.timeout_ns = way == TIMEOUT ? 5 : 0;
        request.max_wait_ns = way == MAX_WAIT ? 5 : 0;
        a = pending(&request);
        fd = weir_acquisition_fd(a);
        assert_false(readable(fd));
        if (way == GRANT)
            release(holder);
        else if (way == CANCEL)
            assert_int_equal(weir_cancel(a), 0);
        else
            advance(5);
        assert_true(readable(fd));
        assert_int_equal(weir_acquisition_result(a), results[way]);
        assert_true(readable(fd)); /* until it is read */
        release(a);
        if (way != GRANT)
            release(holder);
        world_close();
    }
}

static void a_descriptor_is_readable_at_once_if_decided_already(void **state)
{
    weir_acquisition *a, *b, *c;

    (void)state;
    world_limits(SLOT);
    a = granted(NULL);
    assert_true(readable(weir_acquisition_fd(a)));
    b = pending(with_timeout(ASK_DEFAULTS, 1));
    c = pending(NULL);
    advance(1);
    assert_true(readable(weir_acquisition_fd(b)));
    assert_int_equal(weir_cancel(c), 0);
    assert_true(readable(weir_acquisition_fd(c)));
    release(a);
    release(b);
    release(c);
    world_close();
}

static void a_descriptor_counts_one_decision(void **state)
{
    weir_acquisition *holder, *a;
    uint64_t value = 0;
    int fd;

    (void)state;
    world_limits(SLOT);
    holder = granted(NULL);
    a = pending(NULL);
    fd = weir_acquisition_fd(a);
    release(holder);
    assert_int_equal(weir_acquisition_fd(a), fd);
    assert_int_equal(read(fd, &value, sizeof(value)), (int)sizeof(value));
    assert_int_equal(value, 1);
    assert_int_equal(weir_acquisition_fd(a), fd); /* asking again does not signal again */
    assert_false(readable(fd));
    release(a);
    world_close();
}

/* An acquisition's eventfd, under another number, must not be signaled for the next acquisition. */
static void a_descriptor_is_never_handed_out_twice(void **state)
{
    weir_acquisition *holder, *a;
    int kept;

    (void)state;
    world_limits(SLOT);
    holder = granted(NULL);
    a = pending(NULL);
    kept = dup(weir_acquisition_fd(a));
    release(a);
    for (int i = 0; i < 40; i++) {
        a = pending(NULL);
        assert_true(weir_acquisition_fd(a) >= 0);
        assert_int_equal(weir_cancel(a), 0);
        release(a);
        assert_false(readable(kept));
    }
    close(kept);
    release(holder);
    world_close();
}

static void out_of_descriptors_the_acquisition_can_still_be_asked(void **state)
{
    weir_acquisition *holder, *a;

    (void)state;
    world_limits(SLOT);
    holder = granted(NULL);
    a = pending(NULL);
    fake_os_fail_kind_at(1, FAKE_DESCRIPTOR, -EMFILE);
    assert_int_equal(weir_acquisition_fd(a), -EMFILE);
    release(holder);
    assert_int_equal(weir_acquisition_result(a), 0);
    assert_true(readable(weir_acquisition_fd(a)));
    release(a);
    world_close();
}

/* An eventfd of the program's own */

static uint64_t count_of(int fd)
{
    uint64_t count = 0;

    assert_true(read(fd, &count, sizeof(count)) == sizeof(count) || errno == EAGAIN);
    return count;
}

static int own_eventfd(void)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    assert_true(fd >= 0);
    return fd;
}

static void an_attached_eventfd_counts_decisions(void **state)
{
    weir_acquisition *holder, *granted_late, *timed_out, *canceled;
    int fd = own_eventfd();

    (void)state;
    world_limits(SLOT);
    holder = granted(NULL);
    assert_int_equal(weir_acquisition_attach(holder, fd), 0); /* it is decided already */
    assert_int_equal(count_of(fd), 1);
    granted_late = pending(NULL);
    timed_out = pending(with_timeout(ASK_DEFAULTS, 5));
    canceled = pending(NULL);
    assert_int_equal(weir_acquisition_attach(granted_late, fd), 0);
    assert_int_equal(weir_acquisition_attach(timed_out, fd), 0);
    assert_int_equal(weir_acquisition_attach(canceled, fd), 0);
    assert_int_equal(weir_acquisition_fd(canceled), fd);
    assert_int_equal(count_of(fd), 0);
    assert_int_equal(fake_os_live().descriptors, 0); /* of the library's */
    advance(5);
    assert_int_equal(count_of(fd), 1);
    assert_int_equal(weir_cancel(canceled), 0);
    release(holder);
    assert_int_equal(count_of(fd), 2);
    assert_int_equal(weir_acquisition_result(granted_late), 0);
    assert_int_equal(weir_acquisition_fd(granted_late), fd); /* which does not tell again */
    release(granted_late);
    release(timed_out);
    release(canceled);
    assert_int_equal(count_of(fd), 0);
    assert_int_equal(close(fd), 0);
    world_close();
}

/* Waits again and again, one after the other, with one descriptor. */
static void an_attached_eventfd_stays_the_callers(void **state)
{
    int fd = own_eventfd();

    (void)state;
    world_limits(SLOT);
    for (int i = 0; i < 3; i++) {
        weir_acquisition *holder = granted(NULL), *a = pending(NULL);

        assert_int_equal(weir_acquisition_attach(a, fd), 0);
        assert_false(readable(fd));
        release(holder);
        assert_int_equal(count_of(fd), 1);
        release(a);
        holder = granted(NULL); /* perhaps in the same memory: it must not be known any more */
        assert_false(readable(fd));
        release(holder);
        assert_true(fcntl(fd, F_GETFD) >= 0); /* still open */
    }
    assert_int_equal(close(fd), 0);
    world_close();
}

/* The counter is full. No thread waits for that, and the wake is made up for when it is asked for.
 * A counter that counts one by one does as well. */
static void an_attached_eventfd_may_be_full(void **state)
{
    weir_acquisition *holder, *a, *b;
    int fd = own_eventfd(), one_by_one = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);

    (void)state;
    world_limits(SLOT);
    holder = granted(NULL);
    a = pending(NULL);
    b = pending(NULL);
    assert_int_equal(weir_acquisition_attach(a, fd), 0);
    assert_int_equal(weir_acquisition_attach(b, one_by_one), 0);
    assert_int_equal(eventfd_write(fd, UINT64_MAX - 1), 0);
    assert_int_equal(weir_acquisition_attach(holder, fd), -EAGAIN);
    assert_int_equal(weir_acquisition_attach(holder, one_by_one), 0);
    release(holder);
    assert_int_equal(count_of(fd), UINT64_MAX - 1);
    assert_int_equal(weir_acquisition_fd(a), fd);
    assert_int_equal(count_of(fd), 1);
    release(a);
    for (int i = 0; i < 2; i++)
        assert_int_equal(count_of(one_by_one), 1);
    assert_int_equal(count_of(one_by_one), 0);
    release(b);
    close(fd);
    close(one_by_one);
    world_close();
}

/* An acquisition that is granted at once takes the fast path back, unless something must be
 * forgotten. */
static void an_attached_eventfd_is_forgotten(void **state)
{
    weir_acquisition *a;
    int fd = own_eventfd();

    (void)state;
    world_limits(SLOT);
    release(granted(NULL));
    a = granted(NULL);
    assert_int_equal(weir_acquisition_attach(a, fd), 0);
    assert_int_equal(count_of(fd), 1);
    release(a);
    a = granted(NULL);
    assert_int_not_equal(weir_acquisition_fd(a), fd);
    release(a);
    assert_int_equal(close(fd), 0);
    world_close();
}

static void what_is_no_eventfd_is_not_attached(void **state)
{
    weir_acquisition *holder, *a;
    int pipes[2], other;
    char byte;

    (void)state;
    world_limits(SLOT);
    holder = granted(NULL);
    a = pending(NULL);
    assert_int_equal(weir_acquisition_attach(a, -1), -EBADF);
    assert_int_equal(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(weir_acquisition_attach(a, pipes[1]), -EINVAL);
    assert_int_equal(close(pipes[1]), 0);
    assert_int_equal(weir_acquisition_attach(a, pipes[1]), -EBADF);
    other = epoll_create1(EPOLL_CLOEXEC);
    assert_int_equal(weir_acquisition_attach(holder, other), -EINVAL); /* the kernel's word */
    assert_int_equal(weir_acquisition_attach(a, other), -EINVAL);
    assert_int_equal(close(other), 0);
    other = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    assert_int_equal(weir_acquisition_attach(a, other), -EINVAL);
    assert_int_equal(close(other), 0);
    fake_os_fail_kind_at(1, FAKE_FILE, -EIO);
    assert_int_equal(weir_acquisition_attach(a, pipes[0]), -EIO);
    release(holder);
    assert_int_equal(read(pipes[0], &byte, 1), 0); /* nothing was written to it */
    assert_true(readable(weir_acquisition_fd(a))); /* it has none yet */
    release(a);
    assert_int_equal(close(pipes[0]), 0);
    world_close();
}

static void an_acquisition_has_one_descriptor(void **state)
{
    weir_acquisition *holder, *a, *b, *c;
    int fd = own_eventfd(), other = own_eventfd();

    (void)state;
    world_limits(SLOT);
    holder = granted(NULL);
    a = pending(NULL);
    b = pending(NULL);
    c = pending(NULL);
    assert_int_equal(weir_acquisition_attach(a, fd), 0);
    assert_int_equal(weir_acquisition_attach(a, other), -EINVAL);
    assert_int_equal(weir_acquisition_attach(a, fd), -EINVAL);
    assert_int_equal(weir_acquisition_grant_fd(a), -EINVAL);
    assert_true(weir_acquisition_fd(b) >= 0);
    assert_int_equal(weir_acquisition_attach(b, fd), -EINVAL);
    assert_true(weir_acquisition_grant_fd(c) >= 0);
    assert_int_equal(weir_acquisition_attach(c, fd), -EINVAL);
    release(holder);
    assert_true(readable(fd));
    assert_false(readable(other));
    release(a);
    release(b);
    release(c);
    close(fd);
    close(other);
    world_close();
}

/* That it was decided cannot be told: then nothing is attached, and it can be tried again. */
static void an_attachment_that_fails_leaves_nothing(void **state)
{
    weir_acquisition *a;
    int fd = own_eventfd(), other = own_eventfd();

    (void)state;
    world_limits(SLOT);
    a = granted(NULL);
    for (unsigned call = 1; call <= 2; call++) { /* is it one; it is decided */
        fake_os_fail_kind_at(call, FAKE_EVENT, -ENOMEM);
        assert_int_equal(weir_acquisition_attach(a, fd), -ENOMEM);
    }
    assert_int_equal(weir_acquisition_attach(a, other), 0);
    assert_int_equal(count_of(other), 1);
    assert_int_equal(count_of(fd), 0);
    release(a);
    close(fd);
    close(other);
    world_close();
}

/* The timer thread */

static void the_thread_starts_only_when_a_waiter_pends(void **state)
{
    weir_acquisition *a, *b, *c = NULL;

    (void)state;
    world_real("limits: [ " SLOT "," RATE " ]");
    a = granted(ASK({"r", 1}));
    assert_int_equal(try_acquire(ASK({"r", 1}), &c), -EAGAIN);
    assert_int_equal(weir_acquire(world.pool, with_timeout(ASK({"r", 1}), 1000), &c, NULL),
                     -ETIMEDOUT);
    assert_int_equal(fake_os_live().threads, 0);
    assert_int_equal(fake_os_live().descriptors, 0);
    b = pending(ASK({"r", 1}));
    assert_int_equal(fake_os_live().threads, 1);
    assert_int_equal(fake_os_live().descriptors, fake_os_timers_ring() ? 2 : 3);
    c = pending(ASK({"r", 1}));
    assert_int_equal(fake_os_live().threads, 1);
    release(c);
    release(b);
    release(a);
    world_close();
}

static void an_injected_clock_needs_no_thread(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    world_limits(SLOT);
    a = granted(NULL);
    b = pending(NULL);
    assert_int_equal(fake_os_live().threads, 0);
    assert_int_equal(fake_os_counts().open, 0);
    release(b);
    release(a);
    world_close();
}

/* The segment is overwritten, and then restored. A thread that looks meanwhile must not lose sight
 * of a wait that has a deadline; nor does the wait go on after its end was reported. */
static void what_is_tampered_with_for_a_moment_ends_all_the_same(void **state)
{
    weir_acquisition *a, *b;
    struct acq_record *r;
    uint64_t word;

    (void)state;
    for (int told = 0; told < 2; told++) {
        world_set("backend: process, lifetime: users, limits: [ " SLOT " ]");
        a = granted(NULL);
        b = pending(with_timeout(ASK({"r", 1}), 1000));
        r = record_at(world.set->region, b->record);
        word = record_load(&r->word);
        record_store(&r->word, record_next_word(word, told ? RECORD_TIMED_OUT : RECORD_FREE));
        advance(1000);
        record_store(&r->word, word);
        assert_int_equal(weir_acquisition_result(b), told ? -EUCLEAN : -EINPROGRESS);
        advance(UINT64_C(1000000000));
        assert_int_equal(weir_acquisition_result(b), told ? -EUCLEAN : -ETIMEDOUT);
        weir_release(&b);
        weir_release(&a);
        world_close();
    }
}

static void without_a_thread_nothing_is_taken(void **state)
{
    static const unsigned kinds[] = {FAKE_THREAD, FAKE_DESCRIPTOR};
    weir_acquisition *a, *b = NULL;

    (void)state;
    for (int i = 0; i < 2; i++) {
        world_real("limits: [ " SLOT " ]");
        a = granted(NULL);
        fake_os_fail_kind_at(1, kinds[i], 0);
        assert_int_equal(submit(NULL, &b), i == 0 ? -EAGAIN : -EMFILE);
        assert_null(b);
        assert_int_equal(stats().waiting, 0);
        assert_int_equal(fake_os_live().descriptors, 0);
        b = pending(NULL); /* the next one works */
        release(b);
        b = NULL;
        release(a);
        world_close();
    }
}

/* Readable within a generous while. */
static bool becomes_readable(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    return poll(&poll_fd, 1, 10000) == 1;
}

static void the_timer_thread_grants_and_ends_waits_by_itself(void **state)
{
    weir_acquisition *holder, *a, *b, *c;
    uint64_t began;

    (void)state;
    world_real("limits: [ { type: resource, key: r, capacity: 2 }, " RATE " ]");
    began = weir_now(world.w);
    holder = granted(ASK({"r", 1}, {"k", 1000}));
    a = pending(ASK({"k", 300}, {"r", 0}));
    b = pending(with_timeout(ASK({"r", 2}), 400 * MS));
    c = pending(with_max_wait(ASK({"r", 2}), 400 * MS));
    assert_true(becomes_readable(weir_acquisition_fd(a)));
    assert_true(weir_now(world.w) - began >= 300 * MS);
    assert_int_equal(weir_acquisition_result(a), 0);
    assert_true(becomes_readable(weir_acquisition_fd(b)));
    assert_true(weir_now(world.w) - began >= 400 * MS);
    assert_int_equal(weir_acquisition_result(b), -ETIMEDOUT);
    assert_true(becomes_readable(weir_acquisition_fd(c)));
    assert_int_equal(weir_acquisition_result(c), -EAGAIN);
    release_used(a, "k", 300);
    release(b);
    release(c);
    release_used(holder, "k", 1000);
    world_close();
}

/* No thread polls: while nothing is due, a thousand waiters make no system call at all. */
static void waiting_makes_no_system_call(void **state)
{
    static weir_acquisition *waiters[1000];
    weir_acquisition *holder;
    struct pollfd none = {.fd = -1};
    uint64_t before;
    int looks = 0;

    (void)state;
    world_real("limits: [ " SLOT " ]");
    holder = granted(NULL);
    for (int i = 0; i < 1000; i++)
        waiters[i] = pending(with_timeout(ASK_DEFAULTS, 3600 * SECOND));
    do { /* the timer thread goes to sleep when the machine lets it */
        assert_true(looks++ < 100);
        before = fake_os_system_calls();
        poll(&none, 1, 200);
    } while (fake_os_system_calls() != before);
    for (int i = 0; i < 1000; i++)
        release(waiters[i]);
    release(holder);
    world_close();
}

static void tick_says_how_many_were_decided(void **state)
{
    weir_acquisition *waiters[5];

    (void)state;
    world_limits("{ type: rate, key: k, algorithm: fixed_window, capacity: 3, window: 1s }");
    assert_int_equal(advance(0), 0);
    assert_int_equal(take(ASK({"k", 3})), 0);
    for (int i = 0; i < 5; i++)
        waiters[i] = pending(i == 4 ? with_timeout(ASK({"k", 1}), SECOND + 1) : ASK({"k", 1}));
    assert_int_equal(advance(SECOND - 1), 0);
    assert_int_equal(advance(1), 3);
    assert_int_equal(advance(1), 1); /* timed out */
    assert_int_equal(weir_cancel(waiters[3]), 0);
    assert_int_equal(advance(10 * SECOND), 0); /* its instant passes, and no thread looks */
    for (int i = 0; i < 5; i++)
        release(waiters[i]); /* unseen grants want no update */
    world_close();
}

struct handed {
    weir_acquisition *acquisition;
    int result;
};

static void *release_handed(void *argument)
{
    struct handed *handed = argument;

    handed->result = weir_release(&handed->acquisition);
    return NULL;
}

static void an_acquisition_may_be_released_by_another_thread(void **state)
{
    struct handed handed;
    pthread_t thread;

    (void)state;
    world_limits(SLOT);
    for (int i = 0; i < 100; i++) {
        handed.acquisition = granted(NULL);
        pthread_create(&thread, NULL, release_handed, &handed);
        pthread_join(thread, NULL);
        assert_int_equal(handed.result, 0);
        assert_null(handed.acquisition);
    }
    assert_int_equal(stats().held, 0);
    assert_int_equal(limit_stats(0).held, 0);
    world_close();
}

static void a_set_may_have_64_limits(void **state)
{
    char limits[8192] = "", text[8400];
    size_t length = 0;
    weir_acquisition *a, *b = NULL;

    (void)state;
    for (int i = 0; i < 64; i++)
        length += (size_t)snprintf(limits + length, sizeof(limits) - length,
                                   "%s{ type: resource, key: k%d, capacity: %d }", i ? "," : "", i,
                                   i + 1);
    snprintf(text, sizeof(text), "version: 1\nsets: { main: { limits: [ %s ] } }\n", limits);
    world_open(text, "main");
    a = granted(NULL);
    assert_int_equal(try_acquire(ASK({"k63", 64}), &b), -EAGAIN);
    assert_string_equal(refusal.key, "k0");
    b = pending(ASK({"k63", 64}, {"k0", 0}));
    release(a);
    assert_int_equal(weir_acquisition_result(b), 0);
    release(b);
    assert_int_equal(stats().held, 0);
    world_close();
}

/* Acquires twice, is refused, gives back, and takes; and all that so often. */
static void ask_and_give_back(unsigned times, const struct weir_request *request,
                              const struct weir_request *too_much, const struct weir_request *taken)
{
    for (unsigned i = 0; i < times; i++) {
        weir_acquisition *a = granted(request), *b = granted(request), *c = NULL;

        assert_int_equal(try_acquire(too_much, &c), -EAGAIN);
        weir_update(a, "k", 1);
        weir_update(b, "k", 1);
        release(a);
        release(b);
        assert_int_equal(take(taken), 0);
    }
}

/* Nor does any of these six calls read the clock more than once; of a resource alone, none. */
static void expect_cheap(const char *fields, const struct weir_request *request,
                         const struct weir_request *too_much, const struct weir_request *taken,
                         bool reads_clock)
{
    struct fake_os_counts before, after;
    uint64_t calls;

    world_real(fields);
    ask_and_give_back(3, request, too_much, taken);
    before = fake_os_counts();
    calls = fake_os_system_calls();
    ask_and_give_back(100, request, too_much, taken);
    after = fake_os_counts();
    assert_int_equal(after.alloc, before.alloc);
    assert_int_equal(fake_os_system_calls(), calls);
    assert_in_range(after.now - before.now, reads_clock, reads_clock ? 600 : 0);
    world_close();
}

static void what_need_not_wait_allocates_nothing_and_makes_no_system_call(void **state)
{
#define PAIR   "{ type: resource, key: r, capacity: 2 }"
#define HOURLY "{ type: rate, key: k, algorithm: gcra, capacity: 1000, window: 1h }"
    (void)state;
    expect_cheap("limits: [ " PAIR " ]", NULL, NULL, ASK({"r", 0}), false);
    expect_cheap("limits: [ " HOURLY " ]", ASK({"k", 1}), ASK({"k", 1000}), ASK({"k", 1}), true);
    expect_cheap("limits: [ " PAIR ", " HOURLY " ]", ASK({"k", 1}), ASK({"k", 1000}),
                 ASK({"k", 1}, {"r", 0}), true);
}

/* The kernel's last tick will do to say since when, but not to decide. */
static void a_resource_does_not_go_by_the_clock_but_a_rate_does(void **state)
{
    struct weir_holder holder;
    weir_acquisition *a;

    (void)state;
    fake_clock_set(START + 3 * MS);
    world_real("limits: [ { type: resource, key: r, capacity: 2 } ]");
    a = granted(NULL);
    assert_int_equal(weir_set_holders(world.set, &holder, 1), 1);
    assert_int_equal(holder.since_ns, START);
    release(a);
    world_close();
    world_real("limits: [ { type: rate, key: k, algorithm: gcra, capacity: 1, window: 1ms } ]");
    for (int i = 0; i < 9; i++) {
        a = granted(ASK({"k", 1}));
        assert_int_equal(weir_set_holders(world.set, &holder, 1), 1);
        assert_int_equal(holder.since_ns, START + (3 + (unsigned)i) * MS);
        assert_int_equal(weir_update(a, "k", 1), 0);
        assert_int_equal(take(ASK({"k", 1})), -EAGAIN);
        release(a);
        fake_clock_advance(MS);
    }
    world_close();
}

/* ---- refusals ---- */

static weir_queue *queue;

static int take_with(const struct weir_request *request, struct weir_refusal *retref)
{
    return weir_take(world.pool, request, retref);
}

static int try_with(const struct weir_request *request, struct weir_refusal *retref)
{
    return weir_try_acquire(world.pool, request, &(weir_acquisition *){NULL}, retref);
}

static int acquire_with(const struct weir_request *request, struct weir_refusal *retref)
{
    return weir_acquire(world.pool, request, &(weir_acquisition *){NULL}, retref);
}

static int submit_with(const struct weir_request *request, struct weir_refusal *retref)
{
    return weir_submit(world.pool, request, &(weir_acquisition *){NULL}, retref);
}

static int reserve_with(const struct weir_request *request, struct weir_refusal *retref)
{
    uint64_t at;

    return weir_reserve(world.pool, request, &(weir_acquisition *){NULL}, &at, retref);
}

static int queue_with(const struct weir_request *request, struct weir_refusal *retref)
{
    return weir_queue_submit(queue, world.pool, request, 1, NULL, retref);
}

typedef int ask_fn(const struct weir_request *request, struct weir_refusal *retref);

static ask_fn *const ways[] = {take_with,   try_with,     acquire_with,
                               submit_with, reserve_with, queue_with};
enum { WAYS = sizeof(ways) / sizeof(ways[0]), WAYS_AT_ONCE = 2 }; /* the first ones do not wait */

/* Whether the refusal is filled, or as it was before the call. */
static bool fills(ask_fn *ask, const struct weir_request *request, int result)
{
    struct weir_refusal told = {
        .size = sizeof(told), .key = "before", .set = "before", .retry_after_ns = 77};
    int r = ask(request, &told);

    assert_int_equal(r, result);
    if (strcmp(told.set, "before") != 0) {
        assert_string_equal(told.set, "main");
        return true;
    }
    assert_string_equal(told.key, "before");
    assert_int_equal(told.retry_after_ns, 77);
    return false;
}

/* The region of the instance has no room for another block. */
static void use_up_memory(void)
{
    fake_os_fail_kind_from(1, FAKE_MEMORY, 0);
    while (region_alloc_block(&world.w->region, REGION_UNIT_SIZE, REGION_UNIT_SIZE))
        ;
}

/* A set that was never inflated cannot hold waiters then, nor a reservation. */
static void without_memory_a_refusal_is_untouched(void **state)
{
    (void)state;
    world_limits("{ type: rate, key: k, algorithm: gcra, capacity: 1, window: 60s }");
    assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
    release_used(granted(ASK({"k", 1})), "k", 1);
    for (int i = 0; i < WAYS_AT_ONCE; i++)
        assert_true(fills(ways[i], ASK({"k", 1}), -EAGAIN));
    use_up_memory();
    for (int i = WAYS_AT_ONCE; i < WAYS; i++)
        assert_false(fills(ways[i], ASK({"k", 1}), -ENOMEM));
    for (int i = 0; i < WAYS_AT_ONCE; i++)
        assert_true(fills(ways[i], ASK({"k", 1}), -EAGAIN));
    fake_os_fail_at(0);
    assert_null(weir_queue_close(queue));
    world_close();
}

static void *try_spare_lock(void *unused)
{
    (void)unused;
    return pthread_mutex_trylock(&world.w->spare_lock) == 0 ? &world : NULL;
}

/* As the log does while a call uses the spare context, for want of memory for one of its own. */
static void *release_within_a_use_of_the_spare_context(void *acquisition)
{
    weir_acquisition *a = acquisition;
    struct thread_ctx *spare = thread_ctx_lock_spare(world.set);
    pthread_t other;
    void *has_got_it;

    fake_os_fail_kind_from(1, FAKE_MEMORY, 0);
    assert_int_equal(weir_release(&a), 0);
    fake_os_fail_at(0);
    assert_int_equal(pthread_create(&other, NULL, try_spare_lock, NULL), 0);
    assert_int_equal(pthread_join(other, &has_got_it), 0);
    assert_null(has_got_it);
    thread_ctx_return(spare);
    return NULL;
}

/* Each acquisition has one reference to the instance, which is given back once. */
static void uses_of_the_spare_context_nest(void **state)
{
    weir_acquisition *held[2];
    uint64_t references;
    pthread_t thread;

    (void)state;
    world_limits("{ type: resource, key: r, capacity: 2 }");
    for (int i = 0; i < 2; i++)
        held[i] = granted(NULL);
    references = atomic_load_explicit(&world.w->references, memory_order_relaxed);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            pthread_create(&thread, NULL, release_within_a_use_of_the_spare_context, held[i]), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(atomic_load_explicit(&world.w->references, memory_order_relaxed),
                         references - (uint64_t)i - 1);
    }
    world_close();
}

static struct weir_request *of_subject(struct weir_request *request, const char *subject)
{
    request->subject = subject;
    request->subject_size = strlen(subject);
    return request;
}

static void of_a_damaged_set_a_refusal_is_untouched(void **state)
{
    static const char *const fields[] = {
        "limits: [ " RATE " ]",
        "limits: [ { type: rate, key: k, algorithm: gcra, capacity: 1000, window: 1s, lease: 10 } "
        "]",
        "limits: [ " RATE ", { type: call, algorithm: gcra, capacity: 10, window: 1s } ]",
        "subjects: { max: 3 }, limits: [ " RATE " ]"};

    (void)state;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        char text[512];

        snprintf(text, sizeof(text), "backend: process, lifetime: users, %s", fields[i]);
        world_set(text);
        assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
        for (int way = 0; way < WAYS_AT_ONCE; way++) /* something is there already */
            assert_int_equal(take(of_subject(ASK({"k", 1}), "a")), 0);
        participant_mark_broken(world.set->participant);
        for (int way = 0; way < WAYS; way++)
            assert_false(fills(ways[way], of_subject(ASK({"k", 1}), "a"), -EUCLEAN));
        assert_null(weir_queue_close(queue));
        world_close();
    }
}

static void of_a_closed_instance_a_refusal_is_untouched(void **state)
{
    (void)state;
    world_limits(RATE);
    assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
    assert_int_equal(take(ASK({"k", 1})), 0);
    weir_close(world.w);
    for (int way = 0; way < WAYS; way++)
        assert_false(fills(ways[way], ASK({"k", 1}), -ESHUTDOWN));
    weir_queue_close(queue);
    weir_pool_close(world.pool);
}

/* Also by those that would wait: without room for the subject no wait can help. */
static void without_room_for_a_subject_a_refusal_says_so(void **state)
{
    weir_acquisition *held;

    (void)state;
    world_set("subjects: { max: 1 }, limits: [ " SLOT ", " RATE " ]");
    held = granted(of_subject(ASK({"r", 1}), "a"));
    assert_true(fills(try_with, of_subject(ASK({"r", 1}), "b"), -ENOBUFS));
    assert_true(fills(submit_with, of_subject(ASK({"r", 1}), "b"), -ENOBUFS));
    assert_true(fills(acquire_with, of_subject(ASK({"r", 1}), "b"), -ENOBUFS));
    assert_true(fills(take_with, of_subject(ASK({"r", 0}, {"k", 1}), "b"), -ENOBUFS));
    assert_true(fills(reserve_with, of_subject(ASK({"r", 0}, {"k", 1}), "b"), -ENOBUFS));
    release(held);
    world_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_state_of_an_engine_is_damage_in_a_shared_set),
        leak_checked_test(fields_of_two_owners_share_no_byte),
        leak_checked_test(no_descriptor_is_made_before_it_is_asked_for),
        leak_checked_test(a_descriptor_is_close_on_exec_and_non_blocking),
        leak_checked_test(a_descriptor_becomes_readable_once_decided),
        leak_checked_test(a_descriptor_is_readable_at_once_if_decided_already),
        leak_checked_test(a_descriptor_counts_one_decision),
        leak_checked_test(a_descriptor_is_never_handed_out_twice),
        leak_checked_test(out_of_descriptors_the_acquisition_can_still_be_asked),
        leak_checked_test(an_attached_eventfd_counts_decisions),
        leak_checked_test(an_attached_eventfd_stays_the_callers),
        leak_checked_test(an_attached_eventfd_may_be_full),
        leak_checked_test(an_attached_eventfd_is_forgotten),
        leak_checked_test(what_is_no_eventfd_is_not_attached),
        leak_checked_test(an_acquisition_has_one_descriptor),
        leak_checked_test(an_attachment_that_fails_leaves_nothing),
        leak_checked_test(the_thread_starts_only_when_a_waiter_pends),
        leak_checked_test(an_injected_clock_needs_no_thread),
        leak_checked_test(what_is_tampered_with_for_a_moment_ends_all_the_same),
        leak_checked_test(without_a_thread_nothing_is_taken),
        leak_checked_test(the_timer_thread_grants_and_ends_waits_by_itself),
        leak_checked_test(waiting_makes_no_system_call),
        leak_checked_test(tick_says_how_many_were_decided),
        leak_checked_test(an_acquisition_may_be_released_by_another_thread),
        leak_checked_test(a_set_may_have_64_limits),
        leak_checked_test(what_need_not_wait_allocates_nothing_and_makes_no_system_call),
        leak_checked_test(a_resource_does_not_go_by_the_clock_but_a_rate_does),
        leak_checked_test(without_memory_a_refusal_is_untouched),
        leak_checked_test(uses_of_the_spare_context_nest),
        leak_checked_test(of_a_damaged_set_a_refusal_is_untouched),
        leak_checked_test(of_a_closed_instance_a_refusal_is_untouched),
        leak_checked_test(without_room_for_a_subject_a_refusal_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
