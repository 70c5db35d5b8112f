/* SPDX-License-Identifier: MIT */
/*
 * Death and stops at every step of a change of a shared set's definition, between real processes:
 * of the process that changes it, and of one that comes upon a change which another has begun.
 * Each time the users of the set go on, the change can be made again, and in the end exactly the
 * capacity of the last definition can be had.
 *
 * WEIR_STRIDE: only every so many-th step; 1 if it is not set.
 */
#include "shared.h"
#include "stepping.h"

#include "api/acquisition.h"
#include "api/instance.h"
#include "lib/child.h"
#include "shm/participant.h"
#include "shm/segment_definition.h"
#include "state/version.h"
#include "state/wait_queue.h"
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/segment.h>

#include <cmocka.h>

#define BEFORE    3 /* units, by the first definition */
#define AFTER     5
#define STEPS_MAX 5000 /* nothing takes so many */

/* ---- the set ---- */

/* With a second limit the set is never inline. With subjects all of it is for each of them, and
 * this is about one. The next two get a second limit by the change, or lose theirs. The last one
 * gets so many units that they do not fit its word any more. */
static enum { INFLATED, INLINE, WITH_SUBJECTS, GAINS, LOSES, GROWS, VARIANTS } variant;

/* Units that the set has besides, by the second definition. */
static unsigned more_units(unsigned capacity)
{
    return variant == GROWS && capacity == AFTER ? 70000 : 0;
}

static const struct weir_request *ask(struct shared_request *memory, uint64_t n,
                                      uint64_t timeout_ns)
{
    (void)shared_ask(memory, "slot", n, timeout_ns);
    memory->request.subject = "one";
    memory->request.subject_size = variant == WITH_SUBJECTS ? 3 : 0;
    return &memory->request;
}

/* In place of the resource, a rate that gets another algorithm. */
static bool is_rate;
enum { RATE = 10 };

static const char *text_of(unsigned capacity)
{
    static char texts[2][512];
    static int turn;

    turn = !turn;
    if (is_rate) {
        snprintf(texts[turn], sizeof(texts[0]),
                 "version: 1\nsets: { s: { backend: process, limits: [ { type: rate, key: slot,"
                 " algorithm: %s, capacity: %d, window: 1h, refund: true } ] } }\n",
                 capacity == BEFORE ? "gcra" : "token_bucket", RATE);
        return texts[turn];
    }
    snprintf(texts[turn], sizeof(texts[0]),
             "version: 1\nsets: { s: { backend: process, %slimits: ["
             "%s{ type: resource, key: slot, capacity: %u }%s ] } }\n",
             variant == WITH_SUBJECTS ? "subjects: { max: 8, evict: none }, " : "",
             variant == (capacity == BEFORE ? LOSES : GAINS)
                 ? "{ type: resource, key: disk, capacity: 1000 }, "
                 : "",
             capacity + more_units(capacity),
             variant == INFLATED || variant == WITH_SUBJECTS
                 ? ", { type: call, key: calls, algorithm: gcra, capacity: 1000000, window: 1s }"
                 : "");
    return texts[turn];
}

static int apply(unsigned capacity,
                 int (*differs)(void *userdata, const struct weir_redefinition *redefinition),
                 void *userdata)
{
    const struct weir_options options = {
        .size = sizeof(options), .text = text_of(capacity), .process_dir = shared_directory()};
    struct weir_error error = {0};
    int r = weir_segment_redefine(&options, "s", 0, differs, userdata, &error);

    if (r < 0)
        print_message("a change ends with %d: %s\n", r, error.message);
    return r;
}

static int try_one(weir_pool *pool, weir_acquisition **ret)
{
    struct shared_request memory;

    return weir_try_acquire(pool, ask(&memory, 1, 0), ret, NULL);
}

/* What the dead had may come back a little later. */
static void check_all(weir_pool *pool, unsigned capacity)
{
    weir_acquisition *acquisitions[AFTER + 1] = {NULL}, *more = NULL;
    uint64_t end = clock_now() + 20000 * MS;
    struct shared_request memory;
    unsigned n = 0;

    if (more_units(capacity))
        require(weir_try_acquire(pool, ask(&memory, more_units(capacity), 0), &more, NULL) == 0);
    while (n < capacity && clock_now() < end) {
        if (try_one(pool, &acquisitions[n]) == 0)
            n++;
        else
            pause_ns(MS / 5);
    }
    require(n == capacity);
    require(try_one(pool, &acquisitions[n]) == -EAGAIN);
    for (unsigned i = 0; i < n; i++)
        require(weir_release(&acquisitions[i]) == 0);
    weir_release(&more);
}

static void leave(weir *w, weir_pool *pool)
{
    weir_pool_close(pool);
    weir_close(w);
}

/* A process that comes later finds the last definition, by that alone. */
static void check_newcomer(unsigned capacity)
{
    weir *w = shared_open(text_of(capacity)), *other = NULL;
    weir_pool *pool = shared_pool(w, "s");

    require(shared_try_open(&other, text_of(BEFORE + AFTER - capacity), NULL) == -EEXIST);
    check_all(pool, capacity);
    leave(w, pool);
}

/* ---- a process that is sent a signal at a step ---- */

struct stepped {
    uint64_t n;
    int signal;
    bool follows;                                           /* a change, before it */
    void (*deed)(weir_pool *pool, weir_acquisition **held); /* NULL: it changes the definition */
    struct shared_pipe ready, go;
};

static int begin_steps(void *userdata, const struct weir_redefinition *redefinition)
{
    const struct stepped *stepped = userdata;

    require(redefinition->size == sizeof(*redefinition));
    stepping_begin(stepped->n, stepped->signal, STEPS_OF_CALLER);
    return 0;
}

static void change(void *argument)
{
    require(apply(AFTER, begin_steps, argument) >= 0);
    stepping_end();
}

static void do_try(weir_pool *pool, weir_acquisition **held)
{
    weir_acquisition *another = NULL;

    (void)held;
    require(try_one(pool, &another) == 0);
    require(weir_release(&another) == 0);
}

static void use(void *argument)
{
    struct stepped *stepped = argument;
    weir *w = shared_open(text_of(BEFORE));
    weir_pool *pool = shared_pool(w, "s");
    weir_acquisition *held = NULL;

    require(try_one(pool, &held) == 0);
    shared_tell(&stepped->ready);
    shared_hear(&stepped->go);
    if (stepped->follows)
        do_try(pool, &held);
    stepping_begin(stepped->n, stepped->signal, STEPS_OF_CALLER);
    stepped->deed(pool, &held);
    stepping_end();
    weir_release(&held);
    leave(w, pool);
}

/* Returns whether the process was sent the signal; if not, it has ended well. */
static bool was_sent(pid_t pid)
{
    int status;

    require(waitpid(pid, &status, WUNTRACED) == pid);
    if (WIFSTOPPED(status) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
        return true;
    require(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return false;
}

/* ---- each step ---- */

struct user {
    weir *w;
    weir_pool *pool;
    weir_acquisition *held, *waiting;
    struct pollfd fd;
};

/* It holds what there is but for one, and waits for two more. */
static struct user user_begin(void)
{
    struct user user = {.fd = {.events = POLLIN}};
    struct shared_request memory;

    shared_begin();
    user.w = shared_open(text_of(BEFORE));
    user.pool = shared_pool(user.w, "s");
    require(weir_try_acquire(user.pool, ask(&memory, BEFORE - 1, 0), &user.held, NULL) == 0);
    require(weir_submit(user.pool, ask(&memory, 2, WEIR_FOREVER), &user.waiting, NULL) == 1);
    user.fd.fd = weir_acquisition_fd(user.waiting);
    return user;
}

static void user_is_granted(struct user *user)
{
    require(poll(&user->fd, 1, 20000) == 1);
    require(weir_acquisition_result(user->waiting) == 0);
}

static void user_end(struct user *user, unsigned capacity)
{
    weir_release(&user->held);
    require(weir_release(&user->waiting) == 0);
    check_all(user->pool, capacity);
    leave(user->w, user->pool);
    check_newcomer(capacity);
    shared_end();
}

/* Returns whether there may be another step. */
typedef bool round_fn(struct stepped *stepped);

static void each_step(const char *what, int signal,
                      void (*deed)(weir_pool *pool, weir_acquisition **held), round_fn *round)
{
    uint64_t stride = effort_from("WEIR_STRIDE", 1);

    for (variant = INFLATED; variant < VARIANTS; variant++) {
        static const char *const names[] = {"inflated",      "inline",       "with subjects",
                                            "a limit comes", "a limit goes", "units come"};
        struct stepped stepped = {
            .n = 1, .signal = signal, .deed = deed, .ready = shared_pipe(), .go = shared_pipe()};

        for (; round(&stepped); stepped.n += stride)
            assert_true(stepped.n < STEPS_MAX);
        print_message("%s, %s: %lu steps\n", what, names[variant], stepped.n - 1);
        assert_true(stepped.n > 2);
        shared_pipe_close(&stepped.ready);
        shared_pipe_close(&stepped.go);
    }
}

/* Nothing is left half done: the same change can be made again, and so can the one back. */
static bool die_alone(struct stepped *stepped)
{
    unsigned again = stepped->n % 2 ? AFTER : BEFORE;
    bool sent;

    shared_begin();
    weir_close(shared_open(text_of(BEFORE)));
    sent = was_sent(shared_fork(change, stepped));
    require(apply(again, NULL, NULL) >= 0);
    require(apply(again, NULL, NULL) == 0);
    check_newcomer(again);
    shared_end();
    return sent;
}

static void a_change_can_be_made_again(void **state)
{
    (void)state;
    each_step("death without users", SIGKILL, NULL, die_alone);
}

/* The waiter is granted by the change, or by what comes back. */
static bool die_with_users(struct stepped *stepped)
{
    struct user user = user_begin();
    bool sent = was_sent(shared_fork(change, stepped));

    if (stepped->n % 2) {
        require(weir_release(&user.held) == 0);
        user_is_granted(&user);
        require(apply(AFTER, NULL, NULL) >= 0);
    } else {
        require(apply(AFTER, NULL, NULL) >= 0);
        user_is_granted(&user);
    }
    user_end(&user, AFTER);
    return sent;
}

static void users_go_on_after_a_death(void **state)
{
    (void)state;
    each_step("death among users", SIGKILL, NULL, die_with_users);
}

/* No other process may wait for the stopped one but for a change. */
static bool stop_with_users(struct stepped *stepped)
{
    struct user user = user_begin();
    weir_acquisition *one = NULL;
    pid_t pid = shared_fork(change, stepped);
    bool sent = was_sent(pid);
    weir *w = NULL;

    require(weir_release(&user.held) == 0);
    user_is_granted(&user);
    require(try_one(user.pool, &one) == 0);
    require(weir_release(&one) == 0);
    if (shared_try_open(&w, text_of(BEFORE), NULL) < 0)
        w = shared_open(text_of(AFTER));
    weir_close(w);
    if (sent) {
        require(kill(pid, SIGCONT) == 0);
        require(!was_sent(pid));
    }
    user_end(&user, AFTER);
    return sent;
}

static void users_go_on_beside_a_stopped_process(void **state)
{
    (void)state;
    each_step("stop among users", SIGSTOP, NULL, stop_with_users);
}

/* ---- another algorithm ---- */

static weir_acquisition *take_rate(weir_pool *pool, uint64_t n)
{
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;

    if (weir_try_acquire(pool, ask(&memory, n, 0), &acquisition, NULL) < 0)
        return NULL;
    return acquisition;
}

static void give_back(weir_acquisition **acquisition)
{
    require(weir_update(*acquisition, "slot", 0) == 0);
    require(weir_release(acquisition) == 0);
}

/* Takes all that there is, one by one. */
static int take_all(weir_pool *pool, weir_acquisition *ret[2 * RATE])
{
    int n = 0;

    while (n < 2 * RATE && (ret[n] = take_rate(pool, 1)))
        n++;
    return n;
}

/* While the process is stopped units are taken and as many are given back, so that the state is as
 * it was. What the earlier algorithm gave goes back to no other one. */
static bool stop_a_swap(struct stepped *stepped)
{
    weir_acquisition *first, *second, *late, *all[2 * RATE], *more[2 * RATE];
    weir_pool *pool;
    bool sent;
    int n, is_late;
    pid_t pid;
    weir *w;

    shared_begin();
    w = shared_open(text_of(BEFORE));
    pool = shared_pool(w, "s");
    require((first = take_rate(pool, 2)) && (second = take_rate(pool, 3)));
    pid = shared_fork(change, stepped);
    sent = was_sent(pid);
    pause_ns(1);
    require((late = take_rate(pool, 2)) != NULL);
    give_back(&first);
    if (sent) {
        require(kill(pid, SIGCONT) == 0);
        require(!was_sent(pid));
    }
    pause_ns(1);
    n = take_all(pool, all);
    is_late = n == RATE - 2; /* it was granted by the later algorithm */
    require(n == RATE || is_late);
    give_back(&second);
    require(take_all(pool, more) == 0);
    give_back(&late);
    require(take_all(pool, more) == (is_late ? 2 : 0));
    for (int i = 0; i < n; i++)
        give_back(&all[i]);
    for (int i = 0; is_late && i < 2; i++)
        give_back(&more[i]);
    leave(w, pool);
    shared_end();
    return sent;
}

static void grants_of_another_algorithm_are_told(void **state)
{
    struct stepped stepped = {
        .n = 1, .signal = SIGSTOP, .ready = shared_pipe(), .go = shared_pipe()};

    (void)state;
    variant = INFLATED;
    for (is_rate = true; stop_a_swap(&stepped); stepped.n++)
        assert_true(stepped.n < STEPS_MAX);
    is_rate = false;
    print_message("stop of another algorithm: %lu steps\n", stepped.n - 1);
    assert_true(stepped.n > 2);
    shared_pipe_close(&stepped.ready);
    shared_pipe_close(&stepped.go);
}

/* ---- coming upon a change that is half done ---- */

/* Returns whether the set has moved, and the next definition does not have its state. */
static bool is_half_done(weir_pool *pool)
{
    const weir_set *set = weir_pool_set(pool, 0);
    const struct segment *segment = set->participant->segment;
    uint64_t count = version_peek_content(set->region, segment_set_head_unit(), CONTENT_COUNT);
    uint64_t word = version_peek_word(set->region, segment_set_head_unit());

    return word & INFLATED_BIT && content_flags_in(count) & CONTENT_MOVED &&
           segment_definition_head(segment, 1)->state_word ==
               segment_definition_unopened(&segment->layout, 1);
}

/* Returns the first step at which the death of a process leaves a change half done. */
static uint64_t half_done_step(void)
{
    struct stepped stepped = {.n = 1, .signal = SIGKILL};
    bool found = false;

    for (; !found; stepped.n++) {
        weir_acquisition *held = NULL; /* as of the process that will come upon the change */
        weir *w;
        weir_pool *pool;

        shared_begin();
        w = shared_open(text_of(BEFORE));
        pool = shared_pool(w, "s");
        require(try_one(pool, &held) == 0);
        require(was_sent(shared_fork(change, &stepped)));
        found = is_half_done(pool);
        require(weir_release(&held) == 0);
        leave(w, pool);
        shared_end();
    }
    return stepped.n - 1;
}

static bool die_at_half_done(struct stepped *stepped)
{
    static uint64_t steps[VARIANTS];
    struct stepped changing = {.signal = SIGKILL};
    weir_pool *pool;
    bool sent;
    pid_t pid;
    weir *w;

    if (!steps[variant])
        steps[variant] = half_done_step();
    changing.n = steps[variant];
    shared_begin();
    w = shared_open(text_of(BEFORE));
    pool = shared_pool(w, "s");
    pid = shared_fork(use, stepped);
    shared_hear(&stepped->ready);
    require(was_sent(shared_fork(change, &changing)));
    require(is_half_done(pool));
    shared_tell(&stepped->go);
    sent = was_sent(pid);
    if (stepped->n % 2)
        require(apply(AFTER, NULL, NULL) >= 0);
    check_all(pool, AFTER);
    leave(w, pool);
    check_newcomer(AFTER);
    shared_end();
    return sent;
}

static void do_release(weir_pool *pool, weir_acquisition **held)
{
    (void)pool;
    require(weir_release(held) == 0);
}

static void do_submit(weir_pool *pool, weir_acquisition **held)
{
    struct shared_request memory;
    weir_acquisition *waiting = NULL;

    (void)held;
    require(weir_submit(pool, ask(&memory, AFTER + more_units(AFTER), WEIR_FOREVER), &waiting,
                        NULL) == 1);
    require(weir_release(&waiting) == 0);
}

/* What the dead one had begun is done by a process that knows only the first definition. */
static bool die_around_a_change(struct stepped *stepped, bool after)
{
    weir *w;
    weir_pool *pool;
    bool sent;
    pid_t pid;

    shared_begin();
    w = shared_open(text_of(BEFORE));
    pool = shared_pool(w, "s");
    stepped->follows = after;
    pid = shared_fork(use, stepped);
    shared_hear(&stepped->ready);
    if (after)
        require(apply(AFTER, NULL, NULL) == 1);
    shared_tell(&stepped->go);
    sent = was_sent(pid);
    if (!after)
        require(apply(AFTER, NULL, NULL) == 1);
    check_all(pool, AFTER);
    leave(w, pool);
    check_newcomer(AFTER);
    shared_end();
    return sent;
}

static bool die_before_a_change(struct stepped *stepped)
{
    return die_around_a_change(stepped, false);
}

static bool die_after_a_change(struct stepped *stepped)
{
    return die_around_a_change(stepped, true);
}

static void a_user_dies_before_a_change(void **state)
{
    (void)state;
    each_step("death at a try, then a change", SIGKILL, do_try, die_before_a_change);
}

static void a_user_dies_after_a_change(void **state)
{
    (void)state;
    each_step("a change, then death at a try", SIGKILL, do_try, die_after_a_change);
    each_step("a change, then death at a release", SIGKILL, do_release, die_after_a_change);
}

static void a_user_dies_at_a_change(void **state)
{
    (void)state;
    each_step("death at a try", SIGKILL, do_try, die_at_half_done);
    each_step("death at a release", SIGKILL, do_release, die_at_half_done);
    each_step("death at a wait", SIGKILL, do_submit, die_at_half_done);
}

/* Dies as it would between the swap of the set's word and the store of its record. */
static void die_with_an_announcement(void *unused)
{
    weir *w = shared_open(text_of(BEFORE));
    weir_pool *pool = shared_pool(w, "s");
    weir_acquisition *held = NULL;
    struct acq_record *r;

    (void)unused;
    require(try_one(pool, &held) == 0); /* the first one takes the slow path */
    require(weir_release(&held) == 0);
    require(try_one(pool, &held) == 0);
    r = set_record(held->set, held->record);
    require(record_state(r->word) == RECORD_HELD);
    r->word = ((r->word >> 8) - 1) << 8 | RECORD_FREE;
    kill(getpid(), SIGKILL);
}

/* Changes the definition in a process that is killed at this step. Returns whether the set has
 * moved then, and the next definition does not have its state. */
static bool is_told_by_an_unopened_definition(uint64_t step)
{
    struct stepped changing = {.n = step, .signal = SIGKILL};
    struct weir_set_stats stats = {.size = sizeof(stats)};
    weir_pool *pool;
    bool is_found;
    weir *w;

    shared_begin();
    w = shared_open(text_of(BEFORE));
    pool = shared_pool(w, "s");
    require(was_sent(shared_fork(die_with_an_announcement, NULL)));
    require(was_sent(shared_fork(change, &changing)));
    is_found = is_half_done(pool);
    if (is_found) { /* the dead are looked after before anything is asked of the set */
        require(weir_set_stats(weir_pool_set(pool, 0), &stats, NULL, 0) == 1);
        check_all(pool, AFTER);
        check_newcomer(AFTER);
    }
    leave(w, pool);
    shared_end();
    return is_found;
}

/* What was announced by a form of the state word is told by a definition without it that the
 * process opens which cleans up. */
static void an_announcement_outlives_its_form(void **state)
{
    uint64_t step = 1;

    (void)state;
    for (variant = GROWS; !is_told_by_an_unopened_definition(step); step++)
        assert_true(step < STEPS_MAX);
    print_message("moved at step %lu\n", step);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_can_be_made_again),
        cmocka_unit_test(users_go_on_after_a_death),
        cmocka_unit_test(users_go_on_beside_a_stopped_process),
        cmocka_unit_test(grants_of_another_algorithm_are_told),
        cmocka_unit_test(a_user_dies_at_a_change),
        cmocka_unit_test(a_user_dies_before_a_change),
        cmocka_unit_test(a_user_dies_after_a_change),
        cmocka_unit_test(an_announcement_outlives_its_form),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
