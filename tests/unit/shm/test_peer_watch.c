/* SPDX-License-Identifier: MIT */
/* Watches: the deaths of others, and of no living process. */
#include "lib/children.h"
#include "lib/peer_slots.h"
#include "os/os.h"
#include "shm/peer_watch.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/resource.h>

enum { SLOTS = 24 };

static struct peer_slot slots[SLOTS];
static uint64_t registrations;
static struct peer_watch watch;
static pid_t pids[SLOTS];

static int setup(void **state)
{
    uint64_t self = 0;

    memset(slots, 0, sizeof(slots));
    memset(pids, 0, sizeof(pids));
    registrations = 0;
    return fixture_setup(state) < 0 || peer_id_self(&self) < 0 ? -1
                                                               : peer_watch_open(&watch, self, 0);
}

static int teardown(void **state)
{
    peer_watch_close(&watch);
    return fixture_teardown(state);
}

#define watch_test(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

/* A process with this id registers. Returns the slot. */
static uint32_t registers(uint64_t life)
{
    uint32_t slot = SLOTS;

    assert_int_equal(first_slot_claim(slots, SLOTS, life, &slot, &life), 0);
    registrations++;
    return slot;
}

/* A child that does this registers. */
static uint32_t child_registers(void (*run)(const void *), const void *argument)
{
    pid_t pid = child_start(run, argument);
    uint32_t slot = registers(peer_id_of(pid));

    pids[slot] = pid;
    return slot;
}

static int syncs_some(uint32_t n, const uint64_t *preferred)
{
    const struct peer_census census = {
        .peers = slots, .n = n, .registrations = registrations, .preferred = preferred};

    return peer_watch_sync(&watch, &census);
}

/* Looks for the next death, also among those without a pidfd. */
static int looks(uint32_t *ret_slot, uint64_t *ret_life)
{
    peer_watch_begin_probes(&watch, UINT32_MAX);
    return peer_watch_next(&watch, ret_slot, ret_life);
}

static int syncs(void)
{
    return syncs_some(SLOTS, NULL);
}

static bool readable_within(int ms)
{
    struct pollfd poller = {.fd = watch.epoll_fd, .events = POLLIN};

    return poll(&poller, 1, ms) == 1;
}

static void assert_no_event(void)
{
    uint32_t slot = SLOTS;
    uint64_t life = 1;

    assert_int_equal(looks(&slot, &life), 0);
    assert_int_equal(slot, SLOTS);
    assert_int_equal(life, 1);
}

/* That this one has died is told next. */
static void assert_told(uint32_t expected)
{
    uint32_t slot = SLOTS;
    uint64_t life = 0;

    assert_int_equal(looks(&slot, &life), 1);
    assert_int_equal(slot, expected);
    assert_int_equal(life, atomic_load(&slots[expected].id));
}

static void assert_told_by_the_kernel(uint32_t slot)
{
    assert_true(readable_within(20000));
    assert_told(slot);
    assert_no_event();
    assert_false(readable_within(0));
}

static bool has_pidfds(void)
{
    int fd = os_pidfd_open((uint32_t)getpid());

    if (fd >= 0)
        os_close(fd);
    return fd != -ENOSYS;
}

/* Where there are no pidfds, what is left is tested by the other tests. */
static void needs_pidfds(void)
{
    if (has_pidfds())
        return;
    print_message("there are no pidfds here\n");
    skip();
}

/* ---- death ---- */

static void killed_is_told_and_wakes(void **state)
{
    uint32_t slot = child_registers(run_staying, NULL);

    (void)state;
    needs_pidfds();
    assert_int_equal(syncs(), 0);
    assert_no_event();
    assert_false(readable_within(0));
    child_kill(pids[slot]);
    assert_told_by_the_kernel(slot); /* a zombie suffices */
    child_reap(pids[slot]);
    assert_no_event();
}

static void run_exiting_when_told(const void *unused)
{
    (void)unused;
    child_is_ready();
    raise(SIGSTOP);
}

static void exit_is_told_and_stopping_is_not(void **state)
{
    uint32_t slot = child_registers(run_exiting_when_told, NULL);

    (void)state;
    needs_pidfds();
    assert_int_equal(syncs(), 0);
    await_state(pids[slot], 'T');
    assert_no_event();
    assert_false(readable_within(0));
    kill(pids[slot], SIGCONT);
    assert_told_by_the_kernel(slot);
    child_reap(pids[slot]);
}

static void an_earlier_death_is_reported_though_nothing_wakes(void **state)
{
    uint32_t zombie = child_registers(run_staying, NULL);
    uint32_t reaped = child_registers(run_staying, NULL);

    (void)state;
    child_end(pids[reaped]);
    child_kill(pids[zombie]);
    await_zombie(pids[zombie]);
    assert_int_equal(syncs(), 2);
    assert_told(zombie);
    assert_told(reaped);
    assert_no_event();
    child_reap(pids[zombie]);
}

static void a_process_with_the_pid_of_another_is_reported(void **state)
{
    pid_t pid = child_start(run_staying, NULL);
    uint64_t life = peer_id_of(pid);
    uint32_t slot = registers(peer_id_make(0, peer_id_start(life) - 1, peer_id_pid(life)));

    (void)state;
    assert_int_equal(syncs(), 1);
    assert_told(slot);
    assert_no_event();
    child_end(pid);
}

static void exec_is_no_death(void **state)
{
    uint32_t slot;
    uint64_t life;

    (void)state;
    needs_pidfds();
    needs_exec();
    slot = child_registers(run_role, "execs 20");
    life = atomic_load(&slots[slot].id);
    assert_int_equal(syncs(), 0);
    for (int i = 0; i < 2000; i++) {
        assert_no_event();
        assert_int_equal(peer_id_probe(life), 1);
    }
    assert_false(readable_within(0));
    child_kill(pids[slot]);
    assert_told_by_the_kernel(slot);
    child_reap(pids[slot]);
}

static void the_end_of_the_first_thread_is_no_death(void **state)
{
    uint32_t slot;

    (void)state;
    needs_pidfds();
    needs_exec();
    slot = child_registers(run_role, "first thread ends");
    await_state(pids[slot], 'Z');
    assert_int_equal(syncs(), 0);
    assert_no_event();
    assert_false(readable_within(0));
    child_kill(pids[slot]);
    assert_told_by_the_kernel(slot);
    child_reap(pids[slot]);
}

static void each_of_many_is_told_once(void **state)
{
    int told[SLOTS] = {0};
    uint32_t slot = 0, n = 0;
    uint64_t life = 0;

    (void)state;
    for (uint32_t i = 0; i < SLOTS; i++)
        child_registers(run_staying, NULL);
    syncs();
    for (uint32_t i = 0; i < SLOTS; i++)
        child_end(pids[i]);
    for (; looks(&slot, &life) == 1; n++) {
        assert_int_equal(told[slot]++, 0);
        assert_true(peer_slot_free(&slots[slot], life));
    }
    assert_int_equal(n, SLOTS);
    assert_int_equal(syncs(), 0);
    assert_no_event();
    assert_int_equal(fake_os_live().descriptors, 1);
}

/* ---- which processes are watched ---- */

static void own_slots_are_not_watched(void **state)
{
    uint64_t self = 0;

    (void)state;
    peer_id_self(&self);
    registers(self);
    registers(self);
    assert_int_equal(syncs(), 0);
    assert_no_event();
    assert_int_equal(fake_os_live().descriptors, 1);
}

static void a_predecessor_with_our_pid_is_told(void **state)
{
    uint64_t self = 0;
    uint32_t slot;

    (void)state;
    peer_id_self(&self);
    slot = registers(peer_id_make(0, peer_id_start(self) - 1, peer_id_pid(self)));
    assert_int_equal(syncs(), 1);
    assert_told(slot);
}

static void a_slot_that_was_freed_is_dropped(void **state)
{
    uint32_t slot = child_registers(run_staying, NULL);
    uint64_t life = atomic_load(&slots[slot].id);

    (void)state;
    syncs();
    assert_true(peer_slot_free(&slots[slot], life));
    assert_int_equal(syncs(), 0); /* nothing was claimed, so it does not even look */
    child_kill(pids[slot]);
    await_zombie(pids[slot]);
    assert_no_event();
    assert_false(readable_within(0));
    registrations++;
    assert_int_equal(syncs(), 0);
    assert_int_equal(fake_os_live().descriptors, 1);
    child_reap(pids[slot]);
}

static void a_slot_of_another_process_is_watched_for_that_process(void **state)
{
    uint32_t slot = child_registers(run_staying, NULL);
    pid_t first = pids[slot];

    (void)state;
    needs_pidfds();
    syncs();
    peer_slot_free(&slots[slot], atomic_load(&slots[slot].id));
    assert_int_equal(child_registers(run_staying, NULL), slot);
    child_end(first);
    assert_no_event(); /* also before the watch knows of the second */
    assert_int_equal(syncs(), 0);
    assert_no_event();
    assert_false(readable_within(0));
    child_kill(pids[slot]);
    assert_told_by_the_kernel(slot);
    child_reap(pids[slot]);
}

static void without_a_claim_a_sync_asks_nothing(void **state)
{
    uint32_t slot = child_registers(run_staying, NULL);

    (void)state;
    needs_pidfds();
    assert_int_equal(syncs(), 0);
    fake_os_reset();
    assert_int_equal(syncs(), 0);
    assert_int_equal(fake_os_system_calls(), 0);
    registrations++; /* a process came and went: a known one is not opened again */
    assert_int_equal(syncs(), 0);
    assert_int_equal(fake_os_system_calls(), 0);
    child_end(pids[slot]);
}

static void slots_may_become_more_and_fewer(void **state)
{
    uint32_t first = child_registers(run_staying, NULL);
    uint32_t second = child_registers(run_staying, NULL);

    (void)state;
    needs_pidfds();
    assert_int_equal(syncs_some(1, NULL), 0);
    assert_int_equal(fake_os_live().descriptors, 2);
    assert_int_equal(syncs_some(SLOTS, NULL), 0); /* seen only now */
    assert_int_equal(fake_os_live().descriptors, 3);
    registrations++;
    assert_int_equal(syncs_some(1, NULL), 0);
    assert_int_equal(fake_os_live().descriptors, 2);
    child_end(pids[second]);
    assert_no_event();
    child_end(pids[first]);
    assert_told(first);
}

static void a_death_is_told_again_until_the_slot_is_freed(void **state)
{
    uint32_t slot = child_registers(run_staying, NULL);

    (void)state;
    syncs();
    child_end(pids[slot]);
    assert_told(slot);
    assert_no_event();
    assert_int_equal(syncs(), 1); /* though nothing was claimed */
    assert_told(slot);
    assert_no_event();
    peer_slot_free(&slots[slot], atomic_load(&slots[slot].id));
    assert_int_equal(syncs(), 0);
    assert_no_event();
}

/* ---- without descriptors ---- */

static void without_descriptors_deaths_are_found_by_looking(void **state)
{
    uint32_t first = child_registers(run_staying, NULL);
    uint32_t second = child_registers(run_staying, NULL);

    (void)state;
    needs_pidfds();
    fake_os_fail_kind_from(1, FAKE_DESCRIPTOR, 0);
    assert_int_equal(syncs(), 2);
    assert_no_event();
    child_kill(pids[second]);
    await_zombie(pids[second]);
    assert_told(second);
    assert_no_event();
    peer_slot_free(&slots[second], atomic_load(&slots[second].id));
    child_reap(pids[second]);
    assert_int_equal(syncs(), 1);
    fake_os_reset(); /* there are some again */
    assert_int_equal(syncs(), 0);
    child_kill(pids[first]);
    assert_told_by_the_kernel(first);
    child_reap(pids[first]);
}

/* No more than this process has now. Returns what it might have had. */
static struct rlimit no_more_descriptors(void)
{
    struct rlimit before = {0}, limit;
    int next = dup(0);

    assert_true(next >= 0 && getrlimit(RLIMIT_NOFILE, &before) == 0);
    close(next); /* the lowest free number */
    limit = before;
    limit.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return before;
}

static void at_the_real_limit_reaped_processes_are_reported_and_no_others(void **state)
{
    uint32_t stays = child_registers(run_staying, NULL), dies = child_registers(run_staying, NULL);
    struct rlimit before = no_more_descriptors();

    (void)state;
    assert_int_equal(syncs(), 2);
    assert_no_event();
    child_kill(pids[dies]);
    await_zombie(pids[dies]);
    assert_no_event(); /* that it is a zombie cannot be read */
    child_reap(pids[dies]);
    assert_told(dies);
    assert_no_event();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    child_end(pids[stays]);
    assert_told(stays);
}

/* One descriptor is left: for the pidfd, but not to read the owner. */
static void what_cannot_be_verified_is_not_kept(void **state)
{
    uint32_t slot = child_registers(run_staying, NULL);

    (void)state;
    fake_os_fail_kind_at(1, FAKE_FILE, -EMFILE);
    assert_int_equal(syncs(), 1);
    assert_int_equal(fake_os_live().descriptors, 1);
    needs_pidfds();
    assert_int_equal(syncs(), 0);
    child_end(pids[slot]);
    assert_told(slot);
}

static void a_hidden_process_is_watched(void **state)
{
    uint32_t slot = child_registers(run_staying, NULL);

    (void)state;
    needs_pidfds();
    fake_os_fail_kind_at(1, FAKE_FILE, -ENOENT);
    assert_int_equal(syncs(), 0);
    child_kill(pids[slot]);
    assert_told_by_the_kernel(slot);
    child_reap(pids[slot]);
}

/* ---- crowds ---- */

/* All slots are of children, and this process may have so many descriptors. Returns what it might
 * have had. */
static struct rlimit crowd_with_descriptors(rlim_t n)
{
    struct rlimit before = {0}, limit;

    for (uint32_t i = 0; i < SLOTS; i++)
        child_registers(run_staying, NULL);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    limit.rlim_cur = n;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return before;
}

static void end_crowd(const struct rlimit *before)
{
    assert_int_equal(setrlimit(RLIMIT_NOFILE, before), 0);
    for (uint32_t i = 0; i < SLOTS; i++)
        if (pids[i])
            child_end(pids[i]);
}

/* Its death wakes the watch. */
static void assert_watched(uint32_t slot)
{
    child_kill(pids[slot]);
    assert_true(readable_within(20000));
    assert_told(slot);
    child_reap(pids[slot]);
    pids[slot] = 0;
    peer_slot_free(&slots[slot], atomic_load(&slots[slot].id));
}

/* Its death is found by looking. */
static void assert_probed(uint32_t slot)
{
    child_kill(pids[slot]);
    await_zombie(pids[slot]);
    assert_false(readable_within(0));
    assert_told(slot);
    child_reap(pids[slot]);
    pids[slot] = 0;
    peer_slot_free(&slots[slot], atomic_load(&slots[slot].id));
}

/* The own slot is the first. */
static void few_are_watched_and_those_before_the_own_slot_first(void **state)
{
    struct rlimit before;

    (void)state;
    needs_pidfds();
    before = crowd_with_descriptors(40);
    assert_int_equal(peer_watch_limit(), 5);
    assert_int_equal(syncs(), SLOTS - 5);
    assert_int_equal(fake_os_live().descriptors, 1 + 5);
    assert_probed(3);
    assert_watched(SLOTS - 1);
    assert_watched(SLOTS - 5);
    assert_probed(SLOTS - 6);
    assert_int_equal(syncs(), SLOTS - 4 - 5); /* and others for those that are gone */
    assert_int_equal(fake_os_live().descriptors, 1 + 5);
    assert_watched(SLOTS - 7);
    end_crowd(&before);
}

static void the_preferred_are_watched_first(void **state)
{
    uint64_t preferred = UINT64_C(1) << 3 | UINT64_C(1) << 7;
    struct rlimit before;

    (void)state;
    needs_pidfds();
    before = crowd_with_descriptors(40);
    assert_int_equal(syncs_some(SLOTS, &preferred), SLOTS - 5);
    assert_watched(3);
    assert_watched(7);
    assert_watched(SLOTS - 1);
    assert_probed(SLOTS - 4);
    syncs();
    preferred = UINT64_C(1) << 9; /* it becomes one later */
    assert_int_equal(syncs_some(SLOTS, &preferred), SLOTS - 4 - 5);
    assert_watched(9);
    end_crowd(&before);
}

static int rounds_until_told(uint32_t expected, uint32_t others_n)
{
    uint32_t slot = SLOTS;
    uint64_t life = 0;

    for (int rounds = 1; rounds < 100; rounds++) {
        peer_watch_begin_probes(&watch, others_n);
        if (peer_watch_next(&watch, &slot, &life) == 1) {
            assert_int_equal(slot, expected);
            return rounds;
        }
    }
    return 0;
}

static void probes_take_turns_but_of_the_preferred(void **state)
{
    const uint64_t preferred = UINT64_C(0x70); /* three, of which one has the only pidfd */
    struct rlimit before;

    (void)state;
    needs_pidfds();
    before = crowd_with_descriptors(14);
    assert_int_equal(syncs_some(SLOTS, &preferred), SLOTS - 1);
    assert_int_equal(watch.preferred_n, 2);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0); /* a probe needs one, too */
    child_kill(pids[4]);
    await_zombie(pids[4]);
    assert_int_equal(rounds_until_told(4, 0), 1);
    child_kill(pids[SLOTS - 1]);
    await_zombie(pids[SLOTS - 1]);
    assert_in_range(rounds_until_told(SLOTS - 1, 4), 2, SLOTS / 4 + 1);
    end_crowd(&before);
}

static void a_slot_that_was_taken_over_is_told_until_all_is_released(void **state)
{
    uint32_t slot = child_registers(run_staying, NULL), found = SLOTS;
    uint64_t dead = atomic_load(&slots[slot].id), life = 0, self = 0, id = 0;

    (void)state;
    assert_int_equal(syncs(), has_pidfds() ? 0 : 1);
    child_end(pids[slot]);
    peer_id_self(&self);
    assert_true(peer_slot_take_over(&slots[slot], dead, self, &id));
    registrations++;
    assert_int_equal(syncs(), 0); /* it is this process's now */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(looks(&found, &life), 1);
        assert_int_equal(found, slot);
        assert_int_equal(life, dead);
    }
    peer_slot_forget_predecessor(&slots[slot], dead);
    assert_no_event();
}

/* ---- failures ---- */

enum { ANY = FAKE_ANY | FAKE_EVENT | FAKE_PROCESS };

static void opening_succeeds_or_leaves_nothing(void **state)
{
    struct peer_watch other;

    (void)state;
    fake_os_fail_kind_at(1, ANY, -ENFILE);
    assert_int_equal(peer_watch_open(&other, 0, 0), -ENFILE);
    assert_int_equal(fake_os_live().descriptors, 1);
}

/* Whatever fails, and fails once: the living are never told, and the dead are in the end. */
static void each_failure_only_delays(void **state)
{
    bool failed = true;

    (void)state;
    needs_pidfds();
    for (uint64_t n = 1; failed; n++) {
        uint32_t stays = child_registers(run_staying, NULL);
        uint32_t dies = child_registers(run_staying, NULL), slot = SLOTS;
        uint64_t life = 0;
        int r;

        fake_os_fail_kind_at(n, ANY, 0);
        syncs();
        child_end(pids[dies]);
        for (int tries = 0; (r = looks(&slot, &life)) != 1; tries++) {
            assert_true(tries < 3);
            syncs();
        }
        assert_int_equal(slot, dies);
        peer_slot_free(&slots[dies], life);
        syncs();
        assert_int_equal(syncs(), 0);
        assert_true(looks(&slot, &life) <= 0);
        failed = fake_os_has_failed();
        fake_os_reset();
        assert_no_event();
        child_end(pids[stays]);
        assert_told(stays);
        peer_slot_free(&slots[stays], atomic_load(&slots[stays].id));
        assert_true(n < 40);
    }
}

static void room_is_made_or_nothing_changes(void **state)
{
    uint32_t slot = child_registers(run_staying, NULL);

    (void)state;
    needs_pidfds();
    fake_os_fail_kind_at(1, FAKE_MEMORY, 0);
    assert_int_equal(syncs(), -ENOMEM);
    assert_no_event();
    assert_int_equal(syncs(), 0);
    child_end(pids[slot]);
    assert_told(slot);
}

/* ---- fork ---- */

static void run_closing_the_watch(const void *unused)
{
    (void)unused;
    peer_watch_close(&watch);
    child_is_ready();
}

static void a_forked_child_does_not_disturb_its_parent(void **state)
{
    uint32_t slot = child_registers(run_staying, NULL), kept;
    pid_t keeper;

    (void)state;
    needs_pidfds();
    assert_int_equal(syncs(), 0);
    child_reap(child_start(run_closing_the_watch, NULL));
    keeper = child_start(run_staying, NULL); /* it keeps all descriptors */
    child_kill(pids[slot]);
    assert_told_by_the_kernel(slot); /* though the descriptor that was closed is still open there */
    child_reap(pids[slot]);
    peer_slot_free(&slots[slot], atomic_load(&slots[slot].id));
    kept = child_registers(run_staying, NULL);
    assert_int_equal(kept, slot);
    assert_int_equal(syncs(), 0);
    assert_no_event();
    assert_false(readable_within(0));
    child_end(keeper);
    child_end(pids[kept]);
    assert_told(kept);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        watch_test(killed_is_told_and_wakes),
        watch_test(exit_is_told_and_stopping_is_not),
        watch_test(an_earlier_death_is_reported_though_nothing_wakes),
        watch_test(a_process_with_the_pid_of_another_is_reported),
        watch_test(exec_is_no_death),
        watch_test(the_end_of_the_first_thread_is_no_death),
        watch_test(each_of_many_is_told_once),
        watch_test(own_slots_are_not_watched),
        watch_test(a_predecessor_with_our_pid_is_told),
        watch_test(a_slot_that_was_freed_is_dropped),
        watch_test(a_slot_of_another_process_is_watched_for_that_process),
        watch_test(without_a_claim_a_sync_asks_nothing),
        watch_test(slots_may_become_more_and_fewer),
        watch_test(a_death_is_told_again_until_the_slot_is_freed),
        watch_test(without_descriptors_deaths_are_found_by_looking),
        watch_test(at_the_real_limit_reaped_processes_are_reported_and_no_others),
        watch_test(what_cannot_be_verified_is_not_kept),
        watch_test(a_hidden_process_is_watched),
        watch_test(opening_succeeds_or_leaves_nothing),
        watch_test(each_failure_only_delays),
        watch_test(room_is_made_or_nothing_changes),
        watch_test(few_are_watched_and_those_before_the_own_slot_first),
        watch_test(the_preferred_are_watched_first),
        watch_test(probes_take_turns_but_of_the_preferred),
        watch_test(a_slot_that_was_taken_over_is_told_until_all_is_released),
        watch_test(a_forked_child_does_not_disturb_its_parent),
    };

    child_role(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
