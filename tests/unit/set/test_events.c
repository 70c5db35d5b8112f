/* SPDX-License-Identifier: MIT */
/* Setting a listener: what is refused, which one hears, and when it ends. */
#include "lib/child.h"
#include "lib/world.h"
#include "set/events.h"

#define SLOT "{ type: resource, key: r, capacity: 1 }"

static unsigned calls[2];

static void count(void *userdata, const struct weir_event *event)
{
    assert_true(event->type >= WEIR_EVENT_REQUEST && event->type <= WEIR_EVENT_OVERHELD);
    ++*(unsigned *)userdata;
}

static struct weir_listener counting(unsigned i)
{
    calls[i] = 0;
    return (struct weir_listener){
        .size = sizeof(struct weir_listener), .event = count, .userdata = &calls[i]};
}

static int set_listener(struct weir_listener listener)
{
    return weir_listen(world.w, &listener);
}

static void wrong_listeners_are_refused(void **state)
{
    struct weir_listener right = counting(0), wrong[4];

    (void)state;
    world_limits(SLOT);
    for (int i = 0; i < 4; i++)
        wrong[i] = right;
    wrong[0].size = sizeof(right) - 1;
    wrong[1].event = NULL;
    wrong[2].types = 1;
    wrong[3].types = 1u << (WEIR_EVENT_OVERHELD + 1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(weir_listen(world.w, &wrong[i]), -EINVAL);
    assert_int_equal(weir_listen(NULL, &right), -EINVAL);
    assert_int_equal(weir_listen(NULL, NULL), -EINVAL);
    release(granted(NULL));
    assert_int_equal(calls[0], 0);
    assert_false(events_are_on(world.w));
    right.types = 1u << WEIR_EVENT_CANCEL;
    assert_int_equal(weir_listen(world.w, &right), 0);
    release(granted(NULL));
    assert_int_equal(calls[0], 0);
    world_close();
}

static void the_last_listener_hears(void **state)
{
    (void)state;
    world_limits(SLOT);
    for (int turn = 0; turn < 3; turn++) {
        assert_int_equal(set_listener(counting(0)), 0);
        assert_int_equal(set_listener(counting(1)), 0);
        release(granted(NULL));
        assert_int_equal(calls[0], 0);
        assert_int_equal(calls[1], 3); /* request, grant, release */
    }
    assert_int_equal(weir_listen(world.w, NULL), 0);
    assert_int_equal(weir_listen(world.w, NULL), 0);
    release(granted(NULL));
    assert_int_equal(calls[1], 3);
    world_close();
}

static unsigned nested;

/* Against its contract it calls weir: a change would wait for itself; a request is told to none. */
static void call_weir(void *userdata, const struct weir_event *event)
{
    (void)userdata;
    nested++;
    assert_int_equal(weir_listen(world.w, NULL), -EDEADLK);
    if (event->type == WEIR_EVENT_GRANT)
        assert_int_equal(weir_set_ready_at(world.set, NULL, &(uint64_t){0}), 0);
}

static void a_listener_does_not_replace_itself(void **state)
{
    (void)state;
    world_limits(SLOT);
    nested = 0;
    assert_int_equal(set_listener((struct weir_listener){.size = sizeof(struct weir_listener),
                                                         .event = call_weir}),
                     0);
    release(granted(NULL));
    assert_int_equal(nested, 3);
    world_close();
}

/* An acquisition may be released after weir_close; none listens any more. */
static void closing_removes_the_listener(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    world_limits(SLOT);
    assert_int_equal(set_listener(counting(0)), 0);
    a = granted(NULL);
    b = pending(NULL);
    assert_int_equal(calls[0], 4);
    weir_pool_close(world.pool);
    weir_close(world.w);
    assert_int_equal(weir_acquisition_result(b), -ESHUTDOWN);
    assert_int_equal(weir_release(&b), 0);
    assert_int_equal(weir_release(&a), 0);
    assert_int_equal(calls[0], 4);
}

static void a_child_has_no_listener_to_set(void **state)
{
    pid_t pid;

    (void)state;
    world_limits(SLOT);
    assert_int_equal(set_listener(counting(0)), 0);
    pid = child_fork();
    if (pid == 0)
        _exit(weir_listen(world.w, NULL) == -ECHILD ? 0 : 1);
    assert_true(child_exited(child_wait(pid), 0));
    world_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(wrong_listeners_are_refused),
        leak_checked_test(the_last_listener_hears),
        leak_checked_test(a_listener_does_not_replace_itself),
        leak_checked_test(closing_removes_the_listener),
        leak_checked_test(a_child_has_no_listener_to_set),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
