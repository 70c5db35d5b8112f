/* SPDX-License-Identifier: MIT */
/* Pools that a reload gives other sets, another balancer or other settings, while they are used. */
#include "../engine.h"
#include "api/instance.h"
#include "api/pool.h"
#include "lib/child.h"
#include "lib/world.h"
#include <errno.h>
#include <unistd.h>

static struct weir_error error;

static int reload(const char *text)
{
    const struct weir_options options = {.size = sizeof(options), .text = text};

    error = (struct weir_error){0};
    return weir_reload(world.w, &options, &error);
}

#define SET(name, n) name ": { limits: [ { type: resource, key: k, capacity: " #n " } ] }"
#define A            SET("a", 9)
#define B            SET("b", 9)
#define C            SET("c", 9)
#define ABC          "version: 1\nsets: { " A ", " B ", " C " }\npools: { p: "
#define BC           "version: 1\nsets: { " B ", " C " }\npools: { p: "
#define P(pool)      ABC pool " }\n"

/* Returns the name of the set that grants by a handle, without a wait. */
static const char *granted_by(weir_pool *pool)
{
    static char name[16];
    const struct weir_request *request =
        &(struct weir_request){.size = sizeof(*request), .subject = "x", .subject_size = 1};
    weir_acquisition *acquisition = NULL;

    assert_int_equal(weir_try_acquire(pool, request, &acquisition, NULL), 0);
    snprintf(name, sizeof(name), "%s", weir_acquisition_set(acquisition));
    release(acquisition);
    return name;
}

/* These sets grant to a handle, one after the other. */
static void assert_grants(weir_pool *pool, const char *names)
{
    for (; *names; names++) {
        const char name[] = {*names, '\0'};

        assert_string_equal(granted_by(pool), name);
    }
}

/* ---- what changes ---- */

static void the_next_pick_is_among_the_new_sets(void **state)
{
    (void)state;
    world_open(P("{ sets: [a, b] }"), "p");
    assert_grants(world.pool, "aba");
    assert_int_equal(reload(P("{ sets: [b, c] }")), 0);
    assert_grants(world.pool, "bcbc");
    assert_int_equal(weir_pool_sets(world.pool), 2);
    assert_string_equal(weir_set_name(weir_pool_set(world.pool, 1)), "c");
    assert_null(weir_pool_set(world.pool, 2));
    assert_int_equal(reload(P("{ sets: [c, b, a] }")), 0);
    assert_grants(world.pool, "cbacba");
    assert_int_equal(weir_pool_sets(world.pool), 3);
    world_close();
}

/* By each of the ways of a handle from one set to several and back. */
static void one_set_becomes_several_and_several_one(void **state)
{
    static const struct {
        const char *sets, *grants;
    } steps[] = {{"[a]", "aaa"},       {"[b]", "bb"},  {"[c, a]", "caca"}, {"[b]", "bbb"},
                 {"[b, c, a]", "bca"}, {"[c]", "ccc"}, {"[c, a]", "ca"},   {"[a, c]", "ac"}};
    char text[512];
    weir_pool *other;

    (void)state;
    world_open(P("{ sets: [b, c] }"), "p");
    other = pool_open("p", 1);
    assert_grants(world.pool, "bcb");
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        snprintf(text, sizeof(text), P("{ sets: %s }"), steps[i].sets);
        assert_int_equal(reload(text), 0);
        assert_grants(world.pool, steps[i].grants);
        assert_true(weir_pool_sets(other) == weir_pool_sets(world.pool));
    }
    assert_grants(other, "cac"); /* of worker 1, after all of that */
    weir_pool_close(other);
    world_close();
}

/* The fast path serves what it can, and nothing else. */
static void a_set_of_one_limit_and_one_of_many_change_places(void **state)
{
#define MANY                                                                                       \
    "version: 1\nsets: { one: { limits: [ { type: resource, key: k, capacity: 9 } ] }, many: { "   \
    "hold_histogram: true, limits: [ { type: resource, key: k, capacity: 9 } ] } }\npools: { p: "  \
    "{ sets: [%s] } }\n"
    static const char *const names[] = {"one", "many", "one, many", "many", "one", "many, one"};
    char text[512];

    (void)state;
    snprintf(text, sizeof(text), MANY, "many");
    world_open(text, "p");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(text, sizeof(text), MANY, names[i]);
        assert_int_equal(reload(text), 0);
        for (int k = 0; k < 4; k++) {
            const char *by = granted_by(world.pool);

            assert_non_null(strstr(names[i], by));
        }
    }
    assert_string_equal(granted_by(world.pool), "many");
    assert_string_equal(granted_by(world.pool), "one");
    world_close();
#undef MANY
}

static void each_handle_keeps_its_worker(void **state)
{
    weir_pool *handles[3], *later;

    (void)state;
    world_open(P("{ sets: [a] }"), "p"); /* worker 0 */
    for (uint32_t i = 0; i < 3; i++)
        handles[i] = pool_open("p", i == 2 ? 2 : WEIR_WORKER_AUTO);
    assert_int_equal(reload(P("{ sets: [a, b, c] }")), 0);
    assert_grants(handles[0], "abc");
    assert_grants(handles[1], "bca");
    assert_grants(handles[2], "cab");
    later = pool_open("p", WEIR_WORKER_AUTO);
    assert_grants(later, "ca"); /* the third that asked for a number */
    handles[1] = weir_pool_close(handles[1]);
    assert_int_equal(reload(P("{ sets: [c, b, a] }")), 0);
    assert_grants(handles[0], "cba");
    assert_grants(handles[2], "acb");
    for (int i = 0; i < 3; i++)
        weir_pool_close(handles[i]);
    weir_pool_close(later);
    world_close();
}

static void the_balancer_and_its_settings_change(void **state)
{
    weir_acquisition *held;
    char grants[12] = {0};
    int bs = 0;

    (void)state;
    world_open(P("{ sets: [a, b] }"), "p");
    assert_string_equal(weir_pool_balancer(world.pool), "round_robin");
    assert_int_equal(weir_pool_flags(world.pool), 0);
    assert_int_equal(reload(P("{ sets: [a, b], balancer: failover, try: next }")), 0);
    assert_string_equal(weir_pool_balancer(world.pool), "failover");
    assert_int_equal(weir_pool_flags(world.pool), WEIR_POOL_TRY_NEXT);
    assert_grants(world.pool, "aaa");
    held = granted(ASK({"k", 9}));
    assert_grants(world.pool, "bb");
    release(held);
    assert_int_equal(reload(P("{ sets: [ { name: a, weight: 3 }, b ], balancer: weighted }")), 0);
    for (int i = 0; i < 8; i++)
        strcat(grants, granted_by(world.pool));
    assert_int_equal(strspn(grants, "ab"), 8);
    assert_int_equal(grants[0] == 'b', 0);
    for (int i = 0; i < 8; i++)
        bs += grants[i] == 'b';
    assert_int_equal(bs, 2);
    assert_string_equal(weir_pool_balancer(world.pool), "weighted");
    assert_int_equal(weir_pool_flags(world.pool), 0);
    world_close();
}

static void a_pool_that_is_the_same_is_left_alone(void **state)
{
    (void)state;
    world_open(P("{ sets: [a, b, c] }"), "p");
    assert_grants(world.pool, "ab");
    assert_int_equal(reload(P("{ sets: [a, b, c], balancer: round_robin }")), 0);
    assert_grants(world.pool, "ca");
    world_close();
}

#define HIGH_LOW                                                                                   \
    "{ shares: { high: 3, low: 1 }, limits: [ { type: resource, key: k, capacity: 1 } ] }"
#define FIRST_LAST                                                                                 \
    "{ shares: { first: 1, last: 1 }, limits: [ { type: resource, key: k, capacity: 1 } ] }"
#define CLASSED(sets, name)                                                                        \
    "version: 1\nsets: { a: " HIGH_LOW ", a2: " HIGH_LOW ", b: " FIRST_LAST ", b2: " FIRST_LAST    \
    " }\npools: { p: { sets: [" sets "], class: " name " } }\n"

static void the_class_of_its_requests_changes(void **state)
{
    struct weir_request *low = ASK({"k", 1}), *nested = ASK({"k", 0});
    weir_acquisition *held, *waits[2][4];
    unsigned granted_n[2] = {0};

    (void)state;
    world_open(CLASSED("a", "low"), "p");
    assert_int_equal(reload(CLASSED("a", "high")), 0);
    held = granted(NULL);
    low->wait_class = "low";
    for (int i = 0; i < 8; i++)
        waits[i % 2][i / 2] = pending(i % 2 ? NULL : low);
    release(held);
    for (int grants = 0; grants < 4; grants++) {
        int class =
            granted_n[0] < 4 && weir_acquisition_result(waits[0][granted_n[0]]) == 0 ? 0 : 1;

        release(waits[class][granted_n[class]++]);
    }
    assert_int_equal(granted_n[1], 3); /* of class high */
    for (int class = 0; class < 2; class ++)
        while (granted_n[class] < 4)
            release(waits[class][granted_n[class]++]);
    held = granted(NULL);
    nested->within = held;
    assert_int_equal(reload(CLASSED("b", "last")), 0);
    release(granted(NULL));   /* `b` has no class high */
    release(granted(nested)); /* and `a` no class last */
    release(held);
    world_close();
    world_open(CLASSED("a, a2", "high"), "p");
    held = granted(NULL);
    nested->within = held;
    assert_int_equal(reload(CLASSED("b, b2", "last")), 0);
    release(granted(NULL));
    release(granted(nested));
    release(held);
    world_close();
}

/* ---- what stays ---- */

static void waiters_stay_in_the_set_where_they_wait(void **state)
{
    weir_acquisition *held, *waits[2];
    weir_set *a;

    (void)state;
    world_open(P("{ sets: [a] }"), "p");
    a = weir_pool_set(world.pool, 0);
    held = granted(ASK({"k", 9}));
    waits[0] = pending(ASK({"k", 9}));
    assert_int_equal(reload(P("{ sets: [b, c] }")), 0);
    assert_grants(world.pool, "bc");
    assert_int_equal(weir_acquisition_result(waits[0]), -EINPROGRESS);
    release(held);
    assert_int_equal(weir_acquisition_result(waits[0]), 0);
    assert_string_equal(weir_acquisition_set(waits[0]), "a");
    assert_int_equal(reload(P("{ sets: [a] }")), 0);
    waits[1] = pending(ASK({"k", 1}));
    assert_int_equal(reload(BC "{ sets: [b] } }\n"), 0); /* `a` is gone */
    assert_int_equal(weir_acquisition_result(waits[1]), -ESHUTDOWN);
    assert_grants(world.pool, "bb");
    release(waits[0]);
    release(waits[1]);
    assert_string_equal(weir_set_name(a), "a");
    world_close();
}

static void a_request_that_waits_in_several_sets_stays_in_them(void **state)
{
    weir_acquisition *held[4], *waits[2];

    (void)state;
    world_open(P("{ sets: [a, b], wait: any, try: next }"), "p");
    held[0] = granted(ASK({"k", 9}));
    held[1] = granted(ASK({"k", 9}));
    waits[0] = pending(ASK({"k", 9}));
    assert_int_equal(reload(P("{ sets: [b, c], wait: any, try: next }")), 0);
    held[2] = granted(ASK({"k", 9}));
    assert_string_equal(weir_acquisition_set(held[2]), "c");
    waits[1] = pending(ASK({"k", 1}));
    release(held[0]);
    assert_int_equal(weir_acquisition_result(waits[0]), 0);
    assert_string_equal(weir_acquisition_set(waits[0]), "a");
    assert_int_equal(weir_acquisition_result(waits[1]), -EINPROGRESS);
    assert_int_equal(reload(P("{ sets: [a] }")), 0); /* no group set is needed any more */
    release(held[2]);
    assert_int_equal(weir_acquisition_result(waits[1]), 0);
    assert_string_equal(weir_acquisition_set(waits[1]), "c");
    assert_int_equal(reload(P("{ sets: [a, c], wait: any, try: next }")), 0);
    held[3] = granted(ASK({"k", 8}));
    assert_string_equal(weir_acquisition_set(held[3]), "c");
    release(held[1]);
    release(held[3]);
    release(waits[0]);
    release(waits[1]);
    world_close();
}

static void all_definitions_have_one_group_set(void **state)
{
    uint32_t sets_n;

    (void)state;
    world_open(P("{ sets: [a, b], wait: any }"), "p");
    sets_n = world.w->sets_n;
    assert_int_equal(reload(P("{ sets: [c, b], wait: any }")), 0);
    assert_int_equal(reload(P("{ sets: [c] }")), 0);
    assert_int_equal(reload(P("{ sets: [a, b, c], wait: any }")), 0);
    assert_int_equal(world.w->sets_n, sets_n);
    world_close();
}

static void a_completion_queue_serves_all_definitions(void **state)
{
    struct weir_completion done[4];
    weir_acquisition *held;
    weir_queue *queue = NULL;

    (void)state;
    world_open(P("{ sets: [a] }"), "p");
    assert_int_equal(weir_queue_open(&queue, world.w, 8), 0);
    held = granted(ASK({"k", 9}));
    assert_int_equal(weir_queue_submit(queue, world.pool, NULL, 1, NULL, NULL), 0);
    assert_int_equal(reload(P("{ sets: [b, c] }")), 0);
    assert_int_equal(weir_queue_submit(queue, world.pool, NULL, 2, NULL, NULL), 0);
    assert_int_equal(reload(P("{ sets: [b, c], wait: any }")), 0);
    assert_int_equal(weir_queue_submit(queue, world.pool, NULL, 3, NULL, NULL), 0);
    assert_int_equal(weir_queue_reap(queue, done, 4), 2);
    release(held);
    assert_int_equal(weir_queue_reap(queue, done + 2, 2), 1);
    assert_int_equal(done[2].user_data, 1);
    assert_string_equal(weir_acquisition_set(done[2].acquisition), "a");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(done[i].result, 0);
        release(done[i].acquisition);
    }
    weir_queue_close(queue);
    world_close();
}

static void a_nested_request_goes_to_the_set_of_the_outer_one(void **state)
{
    struct weir_request *nested = ASK({"k", 1});
    weir_acquisition *outer, *inner, *none = NULL;

    (void)state;
    world_open(P("{ sets: [a] }"), "p");
    outer = granted(ASK({"k", 1}));
    nested->within = outer;
    assert_int_equal(reload(P("{ sets: [b, c] }")), 0);
    inner = granted(nested);
    assert_string_equal(weir_acquisition_set(inner), "a");
    release(inner);
    assert_int_equal(reload(P("{ sets: [c] }")), 0);
    inner = granted(nested);
    assert_string_equal(weir_acquisition_set(inner), "a");
    release(inner);
    assert_int_equal(reload(BC "{ sets: [c] } }\n"), 0);
    assert_int_equal(try_acquire(nested, &none), -EINVAL);
    assert_int_equal(reload(BC "{ sets: [c, b] } }\n"), 0);
    assert_int_equal(try_acquire(nested, &none), -EINVAL);
    release(outer);
    world_close();
}

/* The pool is the program's, so it keeps the set that the configuration has lost. */
static void a_nested_request_ends_where_the_set_of_the_outer_one_has_gone(void **state)
{
    static const char *const names[] = {"b", "a"};
    struct weir_pool_spec spec = {.size = sizeof(spec), .set_names = names, .set_names_n = 2};
    struct weir_request *nested = ASK({"k", 1});
    weir_acquisition *outer = NULL, *none = NULL;
    weir_pool *own = NULL;

    (void)state;
    world_open(P("{ sets: [b] }"), "p");
    assert_int_equal(weir_pool_new(&own, world.w, &spec, NULL), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir_release(&outer), 0);
        assert_int_equal(weir_try_acquire(own, NULL, &outer, NULL), 0);
    }
    assert_string_equal(weir_acquisition_set(outer), "a");
    assert_int_equal(reload(BC "{ sets: [b] } }\n"), 0);
    nested->within = outer;
    assert_int_equal(weir_try_acquire(own, nested, &none, NULL), -EINVAL);
    release(outer);
    weir_pool_close(own);
    world_close();
}

/* The first set of the program's pool has gone, and is not asked. */
static void a_nested_request_needs_only_the_set_of_the_outer_one(void **state)
{
    static const char *const names[] = {"a", "b"};
    struct weir_pool_spec spec = {.size = sizeof(spec), .set_names = names, .set_names_n = 2};
    struct weir_request *nested = ASK({"k", 1});
    weir_acquisition *outer = NULL;
    weir_pool *own = NULL;

    (void)state;
    world_open(P("{ sets: [b] }"), "p");
    assert_int_equal(weir_pool_new(&own, world.w, &spec, NULL), 0);
    outer = granted(NULL);
    assert_string_equal(weir_acquisition_set(outer), "b");
    assert_int_equal(reload(BC "{ sets: [b] } }\n"), 0);
    nested->within = outer;
    for (int i = 0; i < 4; i++) {
        weir_acquisition *inner = NULL;

        assert_int_equal(weir_try_acquire(own, nested, &inner, NULL), 0);
        assert_string_equal(weir_acquisition_set(inner), "b");
        release(inner);
    }
    release(outer);
    nested->within = NULL; /* the pool has lost a set, which is asked in turn */
    assert_int_equal(weir_take(own, NULL, NULL) == -ESTALE || weir_take(own, NULL, NULL) == -ESTALE,
                     1);
    weir_pool_close(own);
    world_close();
}

static void *try_spare_lock(void *ret)
{
    *(bool *)ret = pthread_mutex_trylock(&world.w->spare_lock) == 0;
    if (*(bool *)ret)
        pthread_mutex_unlock(&world.w->spare_lock);
    return NULL;
}

/* Whether another thread could have it. */
static bool spare_lock_is_free(void)
{
    pthread_t thread;
    bool is_free = false;

    assert_int_equal(pthread_create(&thread, NULL, try_spare_lock, &is_free), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return is_free;
}

/* A callback of the program may close a handle while its thread has the spare context. */
static void closing_gives_no_lock_away(void **state)
{
    weir_pool *other;

    (void)state;
    world_open(P("{ sets: [a, b] }"), "p");
    other = pool_open("p", 1);
    thread_ctx_spare_lock(world.w);
    weir_pool_close(other);
    assert_false(spare_lock_is_free());
    thread_ctx_spare_unlock(world.w);
    other = pool_open("p", 1);
    assert_true(spare_lock_is_free());
    weir_pool_close(other);
    world_close();
}

/* Another thread of the parent was in a pick. */
static void a_child_closes_a_handle_of_several_sets(void **state)
{
    pid_t pid;

    (void)state;
    world_open(P("{ sets: [a, b] }"), "p");
    assert_grants(world.pool, "a");
    assert_int_equal(pthread_mutex_lock(&pool_choice(world.pool)->lock), 0);
    pid = child_fork();
    if (pid == 0) {
        int r = weir_take(world.pool, NULL, NULL);

        weir_pool_close(world.pool);
        weir_close(world.w);
        _exit(r == -ECHILD ? 0 : 1);
    }
    assert_true(child_exited(child_wait(pid), 0));
    assert_int_equal(pthread_mutex_unlock(&pool_choice(world.pool)->lock), 0);
    assert_grants(world.pool, "b");
    world_close();
}

static int keep(void *userdata, const char *text, size_t n)
{
    strncat(userdata, text, n);
    return 0;
}

static void assert_picks(const char *expected)
{
    static char text[65536];
    char found[512] = "";

    text[0] = '\0';
    assert_int_equal(weir_metrics_write(world.w, WEIR_METRICS_OPENMETRICS, keep, text), 0);
    assert_true(strlen(text) < sizeof(text) / 2);
    for (const char *at = text; (at = strstr(at, "weir_pool_picks_total{")); at++)
        strncat(found, strchr(at, '{'), strcspn(strchr(at, '{'), "\n") + 1);
    assert_string_equal(found, expected);
}

static void the_picks_of_a_set_that_stays_go_on(void **state)
{
    weir_pool *other;

    (void)state;
    world_open(P("{ sets: [a, b, c] }"), "p");
    other = pool_open("p", 0);
    assert_grants(world.pool, "ab");
    assert_grants(other, "abca");
    assert_picks("{pool=\"p\",set=\"a\"} 3\n{pool=\"p\",set=\"b\"} 2\n{pool=\"p\",set=\"c\"} 1\n");
    assert_int_equal(reload(P("{ sets: [b, a] }")), 0);
    assert_grants(world.pool, "bab");
    assert_picks("{pool=\"p\",set=\"b\"} 4\n{pool=\"p\",set=\"a\"} 4\n");
    other = weir_pool_close(other);
    assert_picks("{pool=\"p\",set=\"b\"} 4\n{pool=\"p\",set=\"a\"} 4\n");
    assert_int_equal(reload(P("{ sets: [a] }")), 0);
    assert_grants(world.pool, "aaa");
    assert_picks("");
    assert_int_equal(reload(P("{ sets: [c, a] }")), 0);
    assert_grants(world.pool, "ca");
    assert_picks("{pool=\"p\",set=\"c\"} 1\n{pool=\"p\",set=\"a\"} 5\n");
    world_close();
}

/* ---- names ---- */

static void a_name_leads_to_the_newest_definition(void **state)
{
    const char *names[4];
    weir_pool *again;

    (void)state;
    world_open(P("{ sets: [a, b] }, q: { sets: [c] }"), "p");
    assert_int_equal(reload(P("{ sets: [c, b] }, q: { sets: [c] }")), 0);
    assert_int_equal(weir_pools(world.w, names, 4), 2);
    assert_string_equal(names[0], "q");
    assert_string_equal(names[1], "p");
    again = pool_open("p", 0);
    assert_grants(again, "cb");
    weir_pool_close(again);
    world_close();
}

static void a_changed_pool_can_be_removed(void **state)
{
    weir_acquisition *none = NULL;
    weir_pool *again;

    (void)state;
    world_open(P("{ sets: [a] }"), "p");
    assert_int_equal(reload(P("{ sets: [b, c] }")), 0);
    assert_int_equal(reload("version: 1\nsets: { " A ", " B ", " C " }\n"), 0);
    assert_int_equal(try_acquire(NULL, &none), -ESTALE);
    assert_int_equal(submit(NULL, &none), -ESTALE);
    assert_int_equal(take(ASK({"k", 0})), -ESTALE);
    assert_int_equal(reload(P("{ sets: [b, a] }")), 0); /* another pool of its name */
    assert_int_equal(try_acquire(NULL, &none), -ESTALE);
    again = pool_open("p", 0);
    assert_grants(again, "ba");
    weir_pool_close(again);
    world_close();
}

static void a_set_and_a_pool_exchange_their_names(void **state)
{
    weir_acquisition *none = NULL;
    weir_pool *set;

    (void)state;
    world_open("version: 1\nsets: { " A ", " B
               ", " SET("q", 9) " }\npools: { p: { sets: [a, b] } }\n",
               "p");
    set = pool_open("q", 0);
    assert_int_equal(reload("version: 1\nsets: { " A ", " B ", " SET("p", 9) " }\npools: { q: { "
                                                                             "sets: [p, b] } }\n"),
                     0);
    assert_int_equal(try_acquire(NULL, &none), -ESTALE);
    assert_int_equal(weir_try_acquire(set, NULL, &none, NULL), -ESTALE);
    weir_pool_close(set);
    set = pool_open("q", 0);
    assert_grants(set, "pbp");
    weir_pool_close(set);
    world_close();
}

/* ---- sets of other kinds ---- */

static struct engine_control control;

/* Writes a configuration with a pool of these sets. */
static void write_kinds(char text[1024], const char *sets)
{
    snprintf(text, 1024,
             "version: 1\nprocess_dir: %s\nbackends: { e: { type: engine, control: \"%p\" } }\n"
             "sets: { far: { backend: e, limits: [ { type: resource, key: k, capacity: 9 } ] }, "
             "shared: { backend: process, limits: [ { type: resource, key: k, capacity: 9 } ] }, "
             "each: { subjects: { max: 9 }, limits: [ { type: resource, key: k, capacity: 9 } ] }, "
             "near: { backend: thread, limits: [ { type: resource, key: k, capacity: 9 } ] } }\n"
             "pools: { p: { sets: [%s] } }\n",
             world_directory(), (void *)&control, sets);
}

static void sets_of_all_kinds_come_and_go(void **state)
{
    static const char *const steps[] = {"far, near", "shared", "near, shared",      "far",
                                        "each, far", "each",   "shared, each, near"};
    char text[1024];

    (void)state;
    control = (struct engine_control){.now_ns = &world.now};
    write_kinds(text, "near");
    world_open(text, "p");
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        write_kinds(text, steps[i]);
        assert_int_equal(reload(text), 0);
        for (size_t k = 0; k < weir_pool_sets(world.pool); k++)
            assert_string_equal(granted_by(world.pool),
                                weir_set_name(weir_pool_set(world.pool, k)));
    }
    world_close();
}

/* ---- in the middle of a call ---- */

static const char *change_to;

/* Changes the pool as a call reads the clock: it has read by what it goes. */
static void change_once(void)
{
    world.on_now = NULL;
    assert_int_equal(reload(change_to), 0);
}

enum way { TAKE, TRY, RESERVE, SUBMIT, ACQUIRE, QUEUE, WAYS };

/* Asks for nothing but the call, so that a rate, too, can be taken. */
static int ask(enum way way, weir_queue *queue, weir_acquisition **ret)
{
    uint64_t at_ns;
    struct weir_completion done;
    int r;

    switch (way) {
    case TAKE:
        return weir_take(world.pool, NULL, NULL);
    case TRY:
        return weir_try_acquire(world.pool, NULL, ret, NULL);
    case RESERVE:
        return weir_reserve(world.pool, NULL, ret, &at_ns, NULL);
    case SUBMIT:
        return weir_submit(world.pool, NULL, ret, NULL);
    case ACQUIRE:
        return weir_acquire(world.pool, NULL, ret, NULL);
    default:
        r = weir_queue_submit(queue, world.pool, NULL, 1, NULL, NULL);
        if (r < 0)
            return r;
        assert_int_equal(weir_queue_reap(queue, &done, 1), 1);
        *ret = done.acquisition;
        return done.result;
    }
}

#define CALLS(name)                                                                                \
    name ": { limits: [ { type: call, algorithm: fixed_window, capacity: 9, window: 1d } ] }"
#define CA  "version: 1\nsets: { " CALLS("a") " }\npools: { p: "
#define CAC "version: 1\nsets: { " CALLS("a") ", " CALLS("c") " }\npools: { p: "
#define CB  "version: 1\nsets: { " CALLS("b") ", " CALLS("c") " }\npools: { p: "

static void use_up(const char *name, int n)
{
    weir_pool *pool;

    assert_int_equal(weir_pool_open(&pool, world.w, name, 0, NULL), 0);
    for (int i = 0; i < n; i++)
        assert_int_equal(weir_take(pool, NULL, NULL), 0);
    weir_pool_close(pool);
}

/* Returns whether a request goes on to other sets of the pool. */
static bool asks_several(const char *pool, enum way way)
{
    return strstr(pool, "try: next") ? way <= TRY : way > RESERVE;
}

/* A pool that has never lost all its sets is never stale. */
static void no_call_fails_since_its_pool_changes(void **state)
{
    static const struct {
        const char *before, *after;
        bool keeps_c; /* it is used up */
    } changes[] = {
        {CB "{ sets: [b, c], try: next } }\n", CAC "{ sets: [a] } }\n", true},
        {CB "{ sets: [c, b], try: next } }\n", CAC "{ sets: [a] } }\n", true},
        {CB "{ sets: [b, c], wait: any } }\n", CAC "{ sets: [a] } }\n", true},
        {CB "{ sets: [c, b], wait: any } }\n", CAC "{ sets: [a] } }\n", true},
        {CA "{ sets: [a] } }\n", CB "{ sets: [b] } }\n", false},
        {CA "{ sets: [a] } }\n", CB "{ sets: [b, c] } }\n", false},
        {CA "{ sets: [a] } }\n", CB "{ sets: [b, c], wait: any } }\n", false},
        {CB "{ sets: [b, c] } }\n", CA "{ sets: [a] } }\n", false},
        {CB "{ sets: [b, c], try: next } }\n", CA "{ sets: [a] } }\n", false},
        {CB "{ sets: [b, c], wait: any } }\n", CA "{ sets: [a] } }\n", false},
        {CB "{ sets: [b, c] } }\n",
         "version: 1\nsets: { " CALLS("a") ", " CALLS("d") " }\npools: { p: { sets: [a, d] } }\n",
         false},
        {CB "{ sets: [b, c] } }\n",
         "version: 1\nsets: { " CALLS("a") ", " CALLS(
             "d") " }\npools: { p: { sets: [a, d], wait: any } }\n",
         false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
        for (enum way way = 0; way < WAYS; way++)
            for (int is_warm = 0; is_warm < 2; is_warm++) {
                weir_acquisition *acquisition = NULL;
                weir_queue *queue = NULL;

                if (changes[i].keeps_c && !asks_several(changes[i].before, way))
                    continue;
                world_open(changes[i].before, "p");
                assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
                if (changes[i].keeps_c)
                    use_up("c", 9);
                if (is_warm) { /* the thread has used the set: the fast path serves it */
                    assert_int_equal(ask(way, queue, &acquisition), 0);
                    assert_int_equal(weir_release(&acquisition), 0);
                }
                change_to = changes[i].after;
                world.on_now = change_once;
                assert_int_equal(ask(way, queue, &acquisition), 0);
                assert_null(world.on_now);
                assert_int_equal(weir_release(&acquisition), 0);
                assert_int_equal(ask(way, queue, &acquisition), 0);
                assert_int_equal(weir_release(&acquisition), 0);
                assert_int_equal(weir_pool_sets(world.pool), strstr(change_to, "[a]")   ? 1
                                                             : strstr(change_to, "[b]") ? 1
                                                                                        : 2);
                weir_queue_close(queue);
                world_close();
            }
}

/* A call that goes by the only set meets the new definition of that, when there is a choice. */
static void a_handle_of_several_sets_stays_one(void **state)
{
    static const char before[] = P("{ sets: [a] }"),
                      after[] =
                          "version: 1\nsets: { " SET("a", 8) ", " B
                                                             " }\npools: { p: { sets: [b, a] } }\n";

    (void)state;
    for (enum way way = TRY; way < WAYS; way++) {
        weir_acquisition *acquisition = NULL;
        weir_queue *queue = NULL;

        if (way == RESERVE)
            continue; /* of rates and calls */
        world_open(before, "p");
        assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
        change_to = after;
        world.on_now = change_once;
        assert_int_equal(ask(way, queue, &acquisition), 0);
        assert_null(world.on_now);
        release(acquisition);
        for (int i = 0; i < 2; i++) {
            char first[16];

            snprintf(first, sizeof(first), "%s", granted_by(world.pool));
            assert_string_not_equal(granted_by(world.pool), first);
        }
        weir_queue_close(queue);
        world_close();
    }
}

/* ---- all or nothing ---- */

static void a_change_that_fails_changes_nothing(void **state)
{
    uint64_t failed = 0;
    weir_pool *other;
    int r;

    (void)state;
    world_open(P("{ sets: [a, b] }, q: { sets: [c] }"), "p");
    other = pool_open("q", 0);
    for (uint64_t n = 1;; n++) {
        fake_os_fail_kind_at(n, FAKE_MEMORY, 0);
        r = reload(BC "{ sets: [c, b], wait: any }, q: { sets: [b, c] }, r: { sets: [c] } }\n");
        fake_os_fail_kind_at(0, FAKE_MEMORY, 0);
        if (r == 0)
            break;
        failed++;
        assert_int_equal(r, -ENOMEM);
        assert_grants(world.pool, failed % 2 ? "a" : "b");
        assert_grants(other, "c");
        assert_int_equal(weir_pools(world.w, NULL, 0), 2);
    }
    assert_true(failed > 10);
    assert_grants(world.pool, "cb");
    assert_grants(other, "bc");
    weir_pool_close(other);
    world_close();
}

/* The name of the set that was opened goes to a pool, and comes back. */
static void the_name_of_a_removed_set_comes_back(void **state)
{
    weir_pool *set, *again;
    uint64_t n = 0;
    size_t names_n;
    int r;

    (void)state;
    world_open(P("{ sets: [b, c] }"), "p");
    set = pool_open("a", 0);
    names_n = instance_of(world.w)->pool_names.n;
    do {
        fake_os_fail_kind_at(++n, FAKE_MEMORY, 0);
        r = reload("version: 1\nsets: { " B ", " C " }\npools: { a: { sets: [b] }, p: { sets: [c] "
                   "}, q: { sets: [b] } }\n");
        fake_os_fail_kind_at(0, FAKE_MEMORY, 0);
        again = pool_open("a", 0);
        assert_grants(again, r == 0 ? "b" : "a");
        weir_pool_close(again);
        if (r < 0) {
            assert_grants(set, "a");
            assert_int_equal(instance_of(world.w)->pool_names.n, names_n);
        }
    } while (r < 0);
    weir_pool_close(set);
    world_close();
}

/* What was in use before a change is freed with the handle, and with the instance. */
static void a_closed_handle_takes_all_its_choices_along(void **state)
{
    struct fake_os_live before, after;
    weir_pool *other;

    (void)state;
    world_open(P("{ sets: [a, b] }"), "p");
    assert_int_equal(reload(P("{ sets: [a, c] }")), 0);
    other = pool_open("p", 1);
    assert_int_equal(reload(P("{ sets: [a, b, c] }")), 0);
    assert_int_equal(reload(P("{ sets: [a] }")), 0);
    assert_int_equal(reload(P("{ sets: [b, c] }")), 0);
    assert_grants(world.pool, "b");
    before = fake_os_live();
    other = weir_pool_close(other);
    /* A handle, and the choices of the pool as it was opened and of two of three changes. */
    assert_int_equal(fake_os_live().blocks, before.blocks - 4);
    assert_grants(world.pool, "c");
    world.pool = weir_pool_close(world.pool);
    after = fake_os_live();
    world.pool = pool_open("p", 0);
    assert_grants(world.pool, "bc");
    /* A handle and one choice. */
    assert_int_equal(fake_os_live().blocks, after.blocks + 2);
    world_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(the_next_pick_is_among_the_new_sets),
        leak_checked_test(one_set_becomes_several_and_several_one),
        leak_checked_test(a_set_of_one_limit_and_one_of_many_change_places),
        leak_checked_test(each_handle_keeps_its_worker),
        leak_checked_test(the_balancer_and_its_settings_change),
        leak_checked_test(a_pool_that_is_the_same_is_left_alone),
        leak_checked_test(the_class_of_its_requests_changes),
        leak_checked_test(waiters_stay_in_the_set_where_they_wait),
        leak_checked_test(a_request_that_waits_in_several_sets_stays_in_them),
        leak_checked_test(all_definitions_have_one_group_set),
        leak_checked_test(a_completion_queue_serves_all_definitions),
        leak_checked_test(a_nested_request_goes_to_the_set_of_the_outer_one),
        leak_checked_test(a_nested_request_ends_where_the_set_of_the_outer_one_has_gone),
        leak_checked_test(a_nested_request_needs_only_the_set_of_the_outer_one),
        leak_checked_test(closing_gives_no_lock_away),
        leak_checked_test(a_child_closes_a_handle_of_several_sets),
        leak_checked_test(the_picks_of_a_set_that_stays_go_on),
        leak_checked_test(a_name_leads_to_the_newest_definition),
        leak_checked_test(a_changed_pool_can_be_removed),
        leak_checked_test(a_set_and_a_pool_exchange_their_names),
        leak_checked_test(sets_of_all_kinds_come_and_go),
        leak_checked_test(no_call_fails_since_its_pool_changes),
        leak_checked_test(a_handle_of_several_sets_stays_one),
        leak_checked_test(a_change_that_fails_changes_nothing),
        leak_checked_test(the_name_of_a_removed_set_comes_back),
        leak_checked_test(a_closed_handle_takes_all_its_choices_along),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
