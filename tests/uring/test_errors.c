/* SPDX-License-Identifier: MIT */
/* What fails prepares nothing; and what probing finds, also where it is not allowed to. */
#include "ring_world.h"

#include "lib/child.h"
#include "lib/fake_os.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static int try_linked(weir_acquisition *acquisition, uint64_t deadline_ns, unsigned next)
{
    unsigned ready = io_uring_sq_ready(&world.ring);
    int r = weir_uring_prep_linked_wait(&world.uring, &world.ring, &world.wait, acquisition,
                                        deadline_ns, HEAD, next);

    assert_true(r < 0);
    assert_int_equal(io_uring_sq_ready(&world.ring), ready);
    return r;
}

static int try_paced(uint64_t at_ns, unsigned next)
{
    unsigned ready = io_uring_sq_ready(&world.ring);
    int r = weir_uring_prep_paced(&world.uring, &world.ring, &world.wait, at_ns, HEAD, next);

    assert_true(r < 0);
    assert_int_equal(io_uring_sq_ready(&world.ring), ready);
    return r;
}

static void full_ring_prepares_nothing(void **state)
{
    weir_acquisition *acquisition = pending();
    weir_queue *queue = NULL;

    (void)state;
    fill_ring(2);
    assert_int_equal(try_linked(acquisition, FAR, 1), -EBUSY);
    assert_int_equal(try_linked(acquisition, WEIR_FOREVER, 2), -EBUSY);
    assert_int_equal(try_paced(FAR, 2), -EBUSY);
    fill_ring(1);
    assert_int_equal(try_linked(acquisition, WEIR_FOREVER, 1), -EBUSY);
    assert_int_equal(try_paced(FAR, 1), -EBUSY);
    fill_ring(0);
    assert_int_equal(
        weir_uring_prep_wait(&world.uring, &world.ring, &world.wait, acquisition, HEAD), -EBUSY);
    assert_int_equal(weir_uring_prep_cancel(&world.ring, HEAD, CANCEL), -EBUSY);
    assert_int_equal(weir_queue_open(&queue, world.w, 1), 0);
    assert_int_equal(weir_uring_prep_queue(&world.uring, &world.ring, queue, OTHER), -EBUSY);
    queue = weir_queue_close(queue);
    assert_int_equal(io_uring_sq_ready(&world.ring), ENTRIES);
    empty_ring();
    fill_ring(3); /* exactly enough */
    prepare_linked(acquisition, FAR, 1);
    prepare_write(OPERATION);
    assert_int_equal(io_uring_sq_space_left(&world.ring), 0);
    submit_ring();
    for (int i = 0; i < ENTRIES - 3; i++)
        expect(MARK, 0);
    grant();
    expect_ran(acquisition);
}

static void chain_without_deadline_needs_less_room(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    fill_ring(2);
    prepare_linked(acquisition, WEIR_FOREVER, 1);
    prepare_write(OPERATION);
    assert_int_equal(io_uring_sq_space_left(&world.ring), 0);
    submit_ring();
    for (int i = 0; i < ENTRIES - 2; i++)
        expect(MARK, 0);
    grant();
    expect_ran(acquisition);
}

static void ring_too_small_for_the_chain_is_an_error(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    assert_int_equal(try_linked(acquisition, FAR, ENTRIES - 1), -EINVAL);
    assert_int_equal(try_linked(acquisition, WEIR_FOREVER, ENTRIES), -EINVAL);
    assert_int_equal(try_linked(acquisition, FAR, UINT32_MAX), -EINVAL);
    assert_int_equal(try_linked(acquisition, WEIR_FOREVER, UINT32_MAX), -EINVAL);
    assert_int_equal(try_linked(acquisition, FAR, 0), -EINVAL);
    assert_int_equal(try_paced(FAR, ENTRIES), -EINVAL);
    assert_int_equal(try_paced(FAR, UINT32_MAX), -EINVAL);
    assert_int_equal(try_paced(FAR, 0), -EINVAL);
    assert_int_equal(try_paced(WEIR_FOREVER, 1), -EINVAL);
    fill_ring(ENTRIES - 1); /* too full for what it could hold */
    assert_int_equal(try_linked(acquisition, FAR, ENTRIES - 2), -EBUSY);
    assert_int_equal(try_linked(acquisition, WEIR_FOREVER, ENTRIES - 1), -EBUSY);
    assert_int_equal(try_paced(FAR, ENTRIES - 1), -EBUSY);
    empty_ring();
    assert_int_equal(weir_uring_settle(&acquisition, false), -ECANCELED);
}

static void missing_feature_is_an_error(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    world.uring.features &= ~(WEIR_URING_LINKED | WEIR_URING_PACED);
    assert_int_equal(try_linked(acquisition, FAR, 1), -EOPNOTSUPP);
    assert_int_equal(try_paced(FAR, 1), -EOPNOTSUPP);
    assert_int_equal(weir_uring_settle(&acquisition, false), -ECANCELED);
}

/* One acquisition cannot be waited for in both ways. */
static void waits_of_two_kinds_are_an_error(void **state)
{
    weir_acquisition *first = pending(), *second = pending(), *third = pending();
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    (void)state;
    assert_true(weir_acquisition_fd(first) >= 0);
    assert_int_equal(try_linked(first, FAR, 1), -EINVAL);
    assert_int_equal(weir_acquisition_attach(third, fd), 0);
    assert_int_equal(try_linked(third, FAR, 1), -EINVAL);
    assert_true(weir_acquisition_grant_fd(second) >= 0);
    assert_int_equal(weir_uring_prep_wait(&world.uring, &world.ring, &world.wait, second, HEAD),
                     -EINVAL);
    assert_int_equal(io_uring_sq_ready(&world.ring), 0);
    release_unused(first);
    release_unused(second);
    release_unused(third);
    assert_int_equal(close(fd), 0);
}

static void descriptors_run_out(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    fake_os_fail_kind_from(1, FAKE_DESCRIPTOR, -EMFILE);
    assert_int_equal(try_linked(acquisition, FAR, 1), -EMFILE);
    assert_int_equal(
        weir_uring_prep_wait(&world.uring, &world.ring, &world.wait, acquisition, HEAD), -EMFILE);
    assert_int_equal(io_uring_sq_ready(&world.ring), 0);
    fake_os_fail_at(0);
    link_write(acquisition, FAR);
    grant();
    expect_ran(acquisition);
}

/* Probing. */

/* What skips CQEs (5.17) has all that came before. */
static void probe_finds_what_a_kernel_has(void **state)
{
    (void)state;
    assert_true(world.probed.features & WEIR_URING_READ ||
                !(world.ring.features & IORING_FEAT_CQE_SKIP));
    assert_true(world.probed.features & WEIR_URING_MULTISHOT ||
                !(world.ring.features & IORING_FEAT_CQE_SKIP));
    assert_true(world.probed.features & WEIR_URING_LINKED ||
                !(world.ring.features & IORING_FEAT_CQE_SKIP));
    assert_true(world.probed.features & WEIR_URING_PACED ||
                !(world.ring.features & IORING_FEAT_CQE_SKIP));
}

static void probe_says_the_same_again(void **state)
{
    struct weir_uring again = {.features = UINT32_MAX};

    (void)state;
    assert_int_equal(weir_uring_probe(&again), 0);
    assert_int_equal(again.features, world.probed.features);
    assert_int_equal(again.ahead_ns, world.probed.ahead_ns);
}

/* Lowers the limit of descriptors so that `n` more can be had. */
static struct rlimit limit_descriptors(unsigned n)
{
    struct rlimit before, lower;
    int lowest = dup(world.out[0]);

    require(lowest >= 0 && getrlimit(RLIMIT_NOFILE, &before) == 0);
    close(lowest);
    lower = before;
    lower.rlim_cur = (rlim_t)lowest + n;
    require(setrlimit(RLIMIT_NOFILE, &lower) == 0);
    return before;
}

static void probe_without_descriptors_fails(void **state)
{
    struct weir_uring untouched = {.features = 12345};

    (void)state;
    for (unsigned n = 0; n < 2; n++) {
        struct rlimit before = limit_descriptors(n);
        int r = weir_uring_probe(&untouched);

        require(setrlimit(RLIMIT_NOFILE, &before) == 0);
        assert_int_equal(r, -EMFILE);
        assert_int_equal(untouched.features, 12345);
    }
}

/* As containers and sandboxes do. */
static int forbid(long call, uint32_t code)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | code),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                   prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0
               ? 0
               : -1;
}

static void probe_where_it_is_forbidden_fails(void **state)
{
    static const struct {
        long call;
        uint32_t code;
    } cases[] = {
        {SYS_io_uring_setup, EPERM}, {SYS_io_uring_setup, ENOSYS}, {SYS_io_uring_enter, EPERM}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct weir_uring untouched = {.features = 12345};
        pid_t child = child_fork();

        assert_true(child >= 0);
        if (child == 0) {
            if (forbid(cases[i].call, cases[i].code) != 0)
                _exit(2);
            _exit(weir_uring_probe(&untouched) != -(int)cases[i].code ||
                  untouched.features != 12345);
        }
        assert_int_equal(child_wait(child), 0);
    }
}

static void null_is_an_error(void **state)
{
    const struct weir_uring *uring = &world.uring;
    struct weir_uring_wait *wait = &world.wait;
    struct io_uring *ring = &world.ring;
    weir_acquisition *a = pending(), *none = NULL;
    weir_queue *queue = NULL;

    (void)state;
    assert_int_equal(weir_queue_open(&queue, world.w, 1), 0);
    assert_int_equal(weir_uring_probe(NULL), -EINVAL);
    assert_int_equal(weir_uring_prep_wait(NULL, ring, wait, a, HEAD), -EINVAL);
    assert_int_equal(weir_uring_prep_wait(uring, NULL, wait, a, HEAD), -EINVAL);
    assert_int_equal(weir_uring_prep_wait(uring, ring, NULL, a, HEAD), -EINVAL);
    assert_int_equal(weir_uring_prep_wait(uring, ring, wait, NULL, HEAD), -EINVAL);
    assert_int_equal(weir_uring_prep_queue(NULL, ring, queue, HEAD), -EINVAL);
    assert_int_equal(weir_uring_prep_queue(uring, NULL, queue, HEAD), -EINVAL);
    assert_int_equal(weir_uring_prep_queue(uring, ring, NULL, HEAD), -EINVAL);
    assert_int_equal(weir_uring_prep_linked_wait(NULL, ring, wait, a, FAR, HEAD, 1), -EINVAL);
    assert_int_equal(weir_uring_prep_linked_wait(uring, NULL, wait, a, FAR, HEAD, 1), -EINVAL);
    assert_int_equal(weir_uring_prep_linked_wait(uring, ring, NULL, a, FAR, HEAD, 1), -EINVAL);
    assert_int_equal(weir_uring_prep_linked_wait(uring, ring, wait, NULL, FAR, HEAD, 1), -EINVAL);
    assert_int_equal(weir_uring_prep_paced(NULL, ring, wait, FAR, HEAD, 1), -EINVAL);
    assert_int_equal(weir_uring_prep_paced(uring, NULL, wait, FAR, HEAD, 1), -EINVAL);
    assert_int_equal(weir_uring_prep_paced(uring, ring, NULL, FAR, HEAD, 1), -EINVAL);
    assert_int_equal(weir_uring_prep_cancel(NULL, HEAD, CANCEL), -EINVAL);
    assert_int_equal(weir_uring_settle(NULL, true), -EINVAL);
    assert_int_equal(weir_uring_settle(NULL, false), -EINVAL);
    assert_int_equal(weir_uring_settle(&none, false), -EINVAL);
    assert_int_equal(io_uring_sq_ready(ring), 0);
    queue = weir_queue_close(queue);
    weir_release(&a);
}

int main(void)
{
    static const struct ring_case cases[] = {
        TEST(full_ring_prepares_nothing, PER_RING, WEIR_URING_LINKED | WEIR_URING_PACED),
        TEST(chain_without_deadline_needs_less_room, PER_RING, WEIR_URING_LINKED),
        TEST(ring_too_small_for_the_chain_is_an_error, PER_RING,
             WEIR_URING_LINKED | WEIR_URING_PACED),
        TEST(missing_feature_is_an_error, ONCE, 0),
        TEST(null_is_an_error, ONCE, 0),
        TEST(waits_of_two_kinds_are_an_error, ONCE, WEIR_URING_LINKED),
        TEST(descriptors_run_out, ONCE, WEIR_URING_LINKED),
        TEST(probe_finds_what_a_kernel_has, ONCE, 0),
        TEST(probe_says_the_same_again, ONCE, 0),
        TEST(probe_without_descriptors_fails, ONCE, 0),
        TEST(probe_where_it_is_forbidden_fails, ONCE, 0),
    };

    return world_run(cases, sizeof(cases) / sizeof(cases[0]));
}
