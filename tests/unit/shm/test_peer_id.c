/* SPDX-License-Identifier: MIT */
/* The ids of processes and whether they are alive, asked of real ones. */
#include "lib/children.h"
#include "lib/peer_slots.h"

#include <dirent.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

/* ---- words ---- */

static void a_peer_id_and_a_key_hold_their_parts(void **state)
{
    uint64_t id = peer_id_make(0x2abcde, 0xfedcb, 0x3fffff);

    (void)state;
    assert_int_equal(peer_id_generation(id), 0x2abcde);
    assert_int_equal(peer_id_start(id), 0xfedcb);
    assert_int_equal(peer_id_pid(id), 0x3fffff);
    assert_int_equal(peer_id_make(~0u, ~UINT64_C(0), ~0u), UINT64_MAX);
    assert_int_equal(peer_key_make(id, 1023), 0x2abcdeu << PEER_SLOT_BITS | 1023);
    assert_true(peer_key_make(peer_id_make(1, 0, 1), 0) != 0);
}

static void the_process_with_this_pid_and_start_is_that_one(void **state)
{
    (void)state;
    assert_true(peer_id_same_process(peer_id_make(1, 5, 7), peer_id_make(2, 5, 7)));
    assert_false(peer_id_same_process(peer_id_make(1, 5, 7), peer_id_make(1, 6, 7)));
    assert_false(peer_id_same_process(peer_id_make(1, 5, 7), peer_id_make(1, 5, 8)));
}

/* ---- oneself ---- */

static void a_process_knows_itself(void **state)
{
    uint64_t self = 1;

    (void)state;
    assert_int_equal(peer_id_self(&self), 0);
    assert_int_equal(peer_id_pid(self), getpid());
    assert_int_equal(peer_id_generation(self), 0);
    assert_true(peer_id_same_process(self, peer_id_of(getpid())));
    assert_int_equal(peer_id_probe(self), 1);
    assert_false(peer_id_is_dead(self));
}

static void run_knowing_itself(const void *parent)
{
    uint64_t self = 0;

    if (peer_id_self(&self) < 0 || peer_id_pid(self) != (uint32_t)getpid() ||
        peer_id_same_process(self, *(const uint64_t *)parent))
        _exit(1);
    child_is_ready();
}

static void a_forked_child_is_another_process(void **state)
{
    uint64_t self = 0;

    (void)state;
    assert_int_equal(peer_id_self(&self), 0);
    child_reap(child_start(run_knowing_itself, &self));
}

static void without_proc_no_process_knows_its_own_id(void **state)
{
    static const int codes[] = {-ENOENT, -EMFILE, -EACCES};
    uint64_t self = 1;

    (void)state;
    for (int i = 0; i < 3; i++) {
        fake_os_fail_kind_at(1, FAKE_FILE, codes[i]);
        assert_int_equal(peer_id_self(&self), codes[i]);
    }
    assert_int_equal(self, 1);
}

/* Process 1 of a new namespace, which sees the /proc of the old one: 3 if there is no such thing
 * here, otherwise 0 if it was told. */
static int in_a_new_namespace(void)
{
    uint64_t self = 0;
    int status = 0;
    pid_t pid;

    if (unshare(CLONE_NEWPID) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) < 0)
        return 3;
    pid = fork();
    if (pid == 0)
        _exit(peer_id_self(&self) == -EXDEV ? 0 : 1);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return 3;
    return WEXITSTATUS(status);
}

static void the_proc_of_another_namespace_is_refused(void **state)
{
    int status = 0;
    pid_t pid;

    (void)state;
    if (getenv("MESON_EXE_WRAPPER")) {
        print_message("an emulator answers for /proc/self itself\n");
        skip();
    }
    pid = fork();
    if (pid == 0)
        _exit(in_a_new_namespace());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 3) {
        print_message("there are no pid namespaces here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- others ---- */

static void a_reaped_process_is_dead(void **state)
{
    pid_t pid = child_start(run_staying, NULL);
    uint64_t id = peer_id_of(pid);

    (void)state;
    assert_int_equal(peer_id_probe(id), 1);
    child_end(pid);
    assert_int_equal(peer_id_probe(id), 0);
    assert_true(peer_id_is_dead(id));
}

static void run_exiting(const void *unused)
{
    (void)unused;
    child_is_ready();
}

static void a_zombie_is_dead(void **state)
{
    pid_t killed = child_start(run_staying, NULL), exited = child_start(run_exiting, NULL);
    uint64_t ids[2] = {peer_id_of(killed), peer_id_of(exited)};

    (void)state;
    child_kill(killed);
    await_zombie(killed);
    await_zombie(exited);
    assert_true(peer_id_is_dead(ids[0]));
    assert_true(peer_id_is_dead(ids[1]));
    child_reap(killed);
    child_reap(exited);
}

static void a_process_is_dead_if_its_pid_has_another_start(void **state)
{
    pid_t pid = child_start(run_staying, NULL);
    uint64_t id = peer_id_of(pid);

    (void)state;
    assert_true(peer_id_is_dead(peer_id_make(1, peer_id_start(id) + 1, (uint32_t)pid)));
    assert_true(peer_id_is_dead(peer_id_make(1, peer_id_start(id) - 1, (uint32_t)pid)));
    assert_false(peer_id_is_dead(peer_id_make(77, peer_id_start(id), (uint32_t)pid)));
    child_end(pid);
}

static void no_process_has_pid_0(void **state)
{
    (void)state;
    assert_true(peer_id_is_dead(0));
    assert_true(peer_id_is_dead(peer_id_make(3, 4, 0)));
    assert_int_equal(fake_os_system_calls(), 0);
}

/* The id of a thread of the process that is not the first, or 0. */
static uint32_t other_thread(pid_t pid)
{
    char path[64];
    const struct dirent *entry;
    uint32_t found = 0;
    DIR *tasks;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    tasks = opendir(path);
    while (tasks && (entry = readdir(tasks)))
        if (atoi(entry->d_name) > 0 && atoi(entry->d_name) != pid)
            found = (uint32_t)atoi(entry->d_name);
    closedir(tasks);
    return found;
}

/* Numbers of processes and threads are of one kind. */
static void a_process_is_dead_if_its_pid_is_a_threads_now(void **state)
{
    pid_t pid;
    uint64_t id;
    uint32_t thread;

    (void)state;
    needs_exec();
    pid = child_start(run_role, "first thread ends");
    id = peer_id_of(pid);
    thread = other_thread(pid);
    assert_true(thread != 0);
    assert_true(peer_id_is_dead(peer_id_make(1, peer_id_start(id) - 500, thread)));
    child_end(pid);
}

static void stopped_is_alive(void **state)
{
    pid_t pid = child_start(run_staying, NULL);
    uint64_t id = peer_id_of(pid);

    (void)state;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    await_state(pid, 'T');
    assert_int_equal(peer_id_probe(id), 1);
    child_end(pid);
    assert_true(peer_id_is_dead(id));
}

static void run_stopping_before_exec(const void *unused)
{
    (void)unused;
    child_is_ready();
    raise(SIGSTOP);
    run_role("stays");
}

/* The second of the arguments that a process was started with. */
static void role_of(pid_t pid, char *ret, size_t size)
{
    char path[64], line[256] = "";
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(line, 1, sizeof(line) - 2, file) < sizeof(line) - 2);
    fclose(file);
    snprintf(ret, size, "%s", line + strlen(line) + 1);
}

static void exec_is_alive_and_the_same(void **state)
{
    pid_t pid;
    char role[64] = "";
    uint64_t id;

    (void)state;
    needs_exec();
    pid = child_start(run_stopping_before_exec, NULL);
    await_state(pid, 'T');
    id = peer_id_of(pid);
    assert_int_equal(kill(pid, SIGCONT), 0);
    while (strcmp(role, "stays") != 0) {
        assert_int_equal(peer_id_probe(id), 1);
        role_of(pid, role, sizeof(role));
    }
    assert_int_equal(peer_id_probe(id), 1);
    assert_int_equal(peer_id_of(pid), id);
    child_end(pid);
    assert_int_equal(peer_id_probe(id), 0);
}

/*
 * While a thread takes over the number of the first, there is a moment in which no thread has it.
 */
static void a_thread_that_execs_keeps_the_process_alive(void **state)
{
    pid_t pid;
    uint64_t id;
    char role[64] = "";

    (void)state;
    needs_exec();
    pid = child_start(run_role, "execs 100");
    id = peer_id_of(pid);
    while (strcmp(role, "stays") != 0) {
        for (int i = 0; i < 200; i++)
            assert_int_equal(peer_id_probe(id), 1);
        role_of(pid, role, sizeof(role));
    }
    assert_int_equal(peer_id_of(pid), id);
    child_end(pid);
}

static void a_process_without_its_first_thread_is_alive(void **state)
{
    pid_t pid;
    uint64_t id;

    (void)state;
    needs_exec();
    pid = child_start(run_role, "first thread ends");
    id = peer_id_of(pid);
    await_state(pid, 'Z');
    assert_int_equal(peer_id_probe(id), 1);
    child_kill(pid);
    await_zombie(pid);
    assert_int_equal(peer_id_probe(id), 0);
    child_reap(pid);
}

static void a_name_may_look_like_anything(void **state)
{
    static const char *const names[] = {") Z 1 1 1 1 1",
                                        "((((((((((((((",
                                        "))))) R ))) Z (",
                                        "a b c d e f g",
                                        "\n1 (x) Z 1",
                                        " ",
                                        ""};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        pid_t pid = child_start(run_staying, names[i]);
        uint64_t id = peer_id_of(pid);

        assert_int_equal(peer_id_probe(id), 1);
        assert_int_equal(peer_id_probe(peer_id_make(1, peer_id_start(id) ^ 1, (uint32_t)pid)), 0);
        child_kill(pid);
        await_zombie(pid);
        assert_int_equal(peer_id_probe(id), 0);
        child_reap(pid);
    }
}

/* ---- not knowing ---- */

static void in_doubt_it_is_alive(void **state)
{
    static const int hidden[] = {-ENOENT, -EACCES, -EPERM, -ESRCH};
    static const int passing[] = {-EMFILE, -ENFILE, -ENOMEM, -EIO};
    pid_t pid = child_start(run_staying, NULL);
    uint64_t id = peer_id_of(pid);

    (void)state;
    for (int i = 0; i < 4; i++) {
        fake_os_fail_kind_at(1, FAKE_FILE, hidden[i]);
        assert_int_equal(peer_id_probe(id), 1);
        fake_os_fail_kind_at(1, FAKE_FILE, passing[i]);
        assert_int_equal(peer_id_probe(id), passing[i]);
        fake_os_fail_kind_at(1, FAKE_FILE, passing[i]);
        assert_false(peer_id_is_dead(id));
    }
    fake_os_fail_kind_from(1, FAKE_FILE | FAKE_PROCESS, -EPERM); /* and it may not be asked for */
    assert_int_equal(peer_id_probe(id), 1);
    fake_os_fail_kind_at(0, 0, 0);
    child_end(pid);
    fake_os_fail_kind_at(1, FAKE_FILE, -EMFILE); /* that there is no such pid is seen anyway */
    assert_int_equal(peer_id_probe(id), 0);
}

/* ---- slots ---- */

enum { SLOTS = 4 };

static void slots_are_claimed_in_turn_and_freed(void **state)
{
    struct peer_slot slots[SLOTS] = {0};
    uint64_t self = peer_id_make(0, 77, 99), id = 0, ids[SLOTS];
    uint32_t slot = 0;

    (void)state;
    for (uint32_t i = 0; i < SLOTS; i++) {
        assert_int_equal(first_slot_claim(slots, SLOTS, self, &slot, &ids[i]), 0);
        assert_int_equal(slot, i);
        assert_int_equal(atomic_load(&slots[i].id), ids[i]);
        assert_true(peer_id_same_process(ids[i], self));
        assert_int_equal(peer_id_generation(ids[i]), 1);
    }
    assert_int_equal(first_slot_claim(slots, SLOTS, self, &slot, &id), -ENOSPC);
    assert_int_equal(first_slot_claim(slots, 0, self, &slot, &id), -ENOSPC);
    assert_int_equal(slot, SLOTS - 1);
    assert_int_equal(id, 0);
    assert_true(peer_slot_free(&slots[2], ids[2]));
    assert_int_equal(peer_id_pid(atomic_load(&slots[2].id)), 0);
    assert_int_equal(first_slot_claim(slots, SLOTS, self, &slot, &id), 0);
    assert_int_equal(slot, 2);
    assert_int_equal(peer_id_generation(id), 2);
}

static void only_the_peer_id_that_claimed_is_freed(void **state)
{
    struct peer_slot slots[1] = {0};
    uint64_t id = 0, next = 0;
    uint32_t slot;

    (void)state;
    first_slot_claim(slots, 1, peer_id_make(0, 1, 2), &slot, &id);
    assert_true(peer_slot_free(&slots[0], id));
    assert_false(peer_slot_free(&slots[0], id));
    first_slot_claim(slots, 1, peer_id_make(0, 1, 2), &slot, &next);
    assert_false(peer_slot_free(&slots[0], id));
    assert_int_equal(atomic_load(&slots[0].id), next);
}

static void a_generation_is_never_0(void **state)
{
    struct peer_slot slots[1] = {0};
    uint64_t id = 0;
    uint32_t slot;

    (void)state;
    atomic_store(&slots[0].id, peer_id_make(PEER_GENERATION_MASK, 5, 0));
    first_slot_claim(slots, 1, peer_id_make(0, 1, 2), &slot, &id);
    assert_int_equal(peer_id_generation(id), 1);
}

static void a_key_finds_its_peer_id_while_that_lasts(void **state)
{
    struct peer_slot slots[SLOTS] = {0};
    uint64_t id = 0, next = 0;
    uint32_t slot = 0, key;

    (void)state;
    first_slot_claim(slots, SLOTS, peer_id_make(0, 1, 2), &slot, &next);
    first_slot_claim(slots, SLOTS, peer_id_make(0, 1, 2), &slot, &id);
    key = peer_key_make(id, slot);
    assert_int_equal(peer_slot_find(slots, SLOTS, key), id);
    assert_int_equal(peer_slot_find(slots, 1, key), 0); /* not there */
    assert_int_equal(peer_slot_find(slots, SLOTS, UINT32_MAX), 0);
    assert_int_equal(peer_slot_find(slots, SLOTS, 0), 0);
    assert_int_equal(peer_slot_find(slots, SLOTS, peer_key_make(peer_id_make(2, 0, 0), slot)), 0);
    peer_slot_free(&slots[slot], id);
    assert_int_equal(peer_slot_find(slots, SLOTS, key), 0);
    first_slot_claim(slots, SLOTS, peer_id_make(0, 1, 2), &slot, &next);
    assert_int_equal(peer_slot_find(slots, SLOTS, key), 0);
    assert_int_equal(peer_slot_find(slots, SLOTS, peer_key_make(next, slot)), next);
}

static void a_key_is_until_another_of_its_slot(void **state)
{
    uint32_t key = peer_key_make(peer_id_make(9, 0, 0), 5);

    (void)state;
    assert_true(peer_key_is_until(key, key));
    assert_true(peer_key_is_until(key, peer_key_make(peer_id_make(10, 0, 0), 5)));
    assert_false(peer_key_is_until(key, peer_key_make(peer_id_make(8, 0, 0), 5)));
    assert_false(peer_key_is_until(key, peer_key_make(peer_id_make(10, 0, 0), 6)));
    assert_false(peer_key_is_until(0, key));
    assert_true(peer_key_is_until(peer_key_make(peer_id_make(PEER_GENERATION_MASK, 0, 0), 5), key));
}

static void a_slot_is_taken_over_once(void **state)
{
    struct peer_slot slots[1] = {0};
    uint64_t dead = 0, id = 0, next = 0;
    uint32_t slot;

    (void)state;
    first_slot_claim(slots, 1, peer_id_make(0, 1, 2), &slot, &dead);
    assert_int_equal(peer_slot_predecessor(slots), 0);
    assert_true(peer_slot_take_over(slots, dead, peer_id_make(0, 3, 4), &id));
    assert_int_equal(atomic_load(&slots[0].id), id);
    assert_int_equal(peer_id_generation(id), 2);
    assert_int_equal(peer_id_pid(id), 4);
    assert_int_equal(peer_slot_predecessor(slots), dead);
    assert_false(peer_slot_take_over(slots, dead, peer_id_make(0, 5, 6), &next));
    assert_true(peer_slot_take_over(slots, id, peer_id_make(0, 5, 6), &next));
    assert_int_equal(peer_slot_predecessor(slots), id); /* and what is before it */
    peer_slot_forget_predecessor(slots, dead);          /* comes late */
    assert_int_equal(peer_slot_predecessor(slots), id);
    assert_true(peer_slot_free(slots, next));
    assert_int_equal(peer_slot_predecessor(slots), id); /* outlives its successor */
    peer_slot_forget_predecessor(slots, next);
    assert_int_equal(peer_slot_predecessor(slots), 0);
}

/* A process may write anything there. */
static void a_predecessor_that_cannot_be_is_none(void **state)
{
    struct peer_slot slots[1] = {0};
    uint64_t id = 0;
    uint32_t slot;

    (void)state;
    first_slot_claim(slots, 1, peer_id_make(0, 1, 2), &slot, &id);
    atomic_store(&slots[0].predecessor, id);
    assert_int_equal(peer_slot_predecessor(slots), 0);
    atomic_store(&slots[0].predecessor, peer_id_make(2, 1, 2));
    assert_int_equal(peer_slot_predecessor(slots), 0);
}

enum { CLAIMERS = 6, CLAIMS = 5000 };

/* Each claims and frees again, and sees that no other process has the slot meanwhile. */
static void run_claiming(const void *argument)
{
    struct peer_slot *slots = (void *)(uintptr_t)argument;
    uint64_t self = 0, id = 0;
    uint32_t slot = 0;

    if (peer_id_self(&self) < 0)
        _exit(1);
    child_is_ready();
    for (int i = 0; i < CLAIMS; i++) {
        if (first_slot_claim(slots, CLAIMERS, self, &slot, &id) < 0) {
            i--; /* each was taken when it was looked at */
            continue;
        }
        if (atomic_load(&slots[slot].id) != id || !peer_id_same_process(id, self) ||
            !peer_slot_free(&slots[slot], id))
            _exit(2);
    }
}

static void claims_of_many_processes_exclude_each_other(void **state)
{
    struct peer_slot *slots = mmap(NULL, CLAIMERS * sizeof(*slots), PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[CLAIMERS];
    uint64_t claims = 0;

    (void)state;
    assert_true(slots != MAP_FAILED);
    for (int i = 0; i < CLAIMERS; i++)
        pids[i] = child_start(run_claiming, slots);
    for (int i = 0; i < CLAIMERS; i++) {
        int status = 0;

        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    for (int i = 0; i < CLAIMERS; i++) {
        assert_int_equal(peer_id_pid(atomic_load(&slots[i].id)), 0);
        claims += peer_id_generation(atomic_load(&slots[i].id));
    }
    assert_int_equal(claims, CLAIMERS * CLAIMS);
    munmap(slots, CLAIMERS * sizeof(*slots));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_peer_id_and_a_key_hold_their_parts),
        leak_checked_test(the_process_with_this_pid_and_start_is_that_one),
        leak_checked_test(a_process_knows_itself),
        leak_checked_test(a_forked_child_is_another_process),
        leak_checked_test(without_proc_no_process_knows_its_own_id),
        leak_checked_test(the_proc_of_another_namespace_is_refused),
        leak_checked_test(a_reaped_process_is_dead),
        leak_checked_test(a_zombie_is_dead),
        leak_checked_test(a_process_is_dead_if_its_pid_has_another_start),
        leak_checked_test(no_process_has_pid_0),
        leak_checked_test(a_process_is_dead_if_its_pid_is_a_threads_now),
        leak_checked_test(stopped_is_alive),
        leak_checked_test(exec_is_alive_and_the_same),
        leak_checked_test(a_thread_that_execs_keeps_the_process_alive),
        leak_checked_test(a_process_without_its_first_thread_is_alive),
        leak_checked_test(a_name_may_look_like_anything),
        leak_checked_test(in_doubt_it_is_alive),
        leak_checked_test(slots_are_claimed_in_turn_and_freed),
        leak_checked_test(only_the_peer_id_that_claimed_is_freed),
        leak_checked_test(a_generation_is_never_0),
        leak_checked_test(a_key_finds_its_peer_id_while_that_lasts),
        leak_checked_test(a_key_is_until_another_of_its_slot),
        leak_checked_test(a_slot_is_taken_over_once),
        leak_checked_test(a_predecessor_that_cannot_be_is_none),
        leak_checked_test(claims_of_many_processes_exclude_each_other),
    };

    child_role(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
