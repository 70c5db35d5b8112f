/* SPDX-License-Identifier: MIT */
/* The thread that tells the private sets of an instance to other processes of the user. */
#include "api/publisher.h"

#include "api/instance.h"
#include "api/published.h"
#include "api/set_object.h"
#include "base/long_look.h"
#include "base/text_out.h"
#include "config/plan.h"
#include "os/os.h"
#include "shm/publish_socket.h"
#include "shm/segment_dir.h"
#include <errno.h>
#include <string.h>
#include <weir/acquisition.h>

#define PUBLISHER_CLIENT_NS   UINT64_C(1000000000) /* that one client may take */
#define PUBLISHER_REST_NS     UINT64_C(10000000)   /* least time between two answers */
#define PUBLISHER_REST_MAX_NS UINT64_C(100000000)
#define PUBLISHER_NEXTS_MAX   8 /* waiters of a set of which is told what they wait for */

struct publisher {
    weir *w;
    struct publish_socket socket;
    int stop_fd; /* readable: the thread ends */
    struct os_thread *thread;

    /* Of the client that is answered. */
    _Atomic int client; /* -1: none */
    uint64_t until_ns;
    struct text_out out;
    struct weir_holder *holders; /* room for those of a set, see set_holders_oldest() */
};

/* ---- items ---- */

/* Returns whether the answer goes on: the client is there and has time, the instance is not to
 * end. It is asked between any two pieces of work that have a bound, and within long looks. After
 * false nothing can be sent any more, so what a look that was ended has found is not told. */
static bool publisher_goes_on(void *userdata)
{
    const struct publisher *publisher = userdata;

    return !publisher->out.code && os_now_ns() < publisher->until_ns &&
           os_socket_wait(-1, false, publisher->stop_fd, 0) == -ETIMEDOUT;
}

/* Sends a piece. A client that takes nothing for too long, or an end, is an error. */
static int publisher_send(void *userdata, const char *bytes, size_t n)
{
    struct publisher *publisher = userdata;
    int client = atomic_load_explicit(&publisher->client, memory_order_relaxed);

    while (n) {
        uint64_t now_ns = os_now_ns();
        int r = now_ns < publisher->until_ns
                    ? os_socket_wait(client, true, publisher->stop_fd, publisher->until_ns - now_ns)
                    : -ETIMEDOUT;

        if (r == 0)
            return -ESHUTDOWN;
        if (r > 0)
            r = os_socket_send(client, bytes, n);
        if (r == -EAGAIN)
            continue;
        if (r < 0)
            return r;
        bytes += r;
        n -= (size_t)r;
    }
    return 0;
}

static void publisher_put_bytes(struct text_out *out, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        text_out_char(out, ((const char *)data)[i]);
}

static void publisher_put(struct text_out *out, uint32_t kind, const void *data, size_t size)
{
    const struct published_item item = {.kind = kind, .size = (uint32_t)size};
    static const char padding[8];

    publisher_put_bytes(out, &item, sizeof(item));
    publisher_put_bytes(out, data, size);
    publisher_put_bytes(out, padding, -size % sizeof(padding));
}

/* NULL: no item. */
static void publisher_put_text(struct text_out *out, uint32_t kind, const char *text)
{
    if (text)
        publisher_put(out, kind, text, strnlen(text, PUBLISHED_TEXT_MAX));
}

/* ---- sets ---- */

static void publisher_put_gauges(struct text_out *out, weir_set *set, size_t limit)
{
    struct weir_limit_gauge gauges[WEIR_GAUGES_MAX];
    int n = weir_set_limit_gauges(set, limit, gauges, WEIR_GAUGES_MAX);

    for (int i = 0; i < n; i++) {
        const char *name = gauges[i].name;

        gauges[i].name = gauges[i].doc = NULL;
        publisher_put(out, PUBLISHED_GAUGE, &gauges[i], sizeof(gauges[i]));
        publisher_put_text(out, PUBLISHED_GAUGE_NAME, name);
    }
}

/* What is read of a limit by its number may be that of a definition that came meanwhile. */
static void publisher_put_limit(struct text_out *out, weir_set *set, size_t limit,
                                const struct weir_limit_stats *stats)
{
    struct weir_setting settings[CONFIG_SETTINGS_MAX];
    uint64_t words[sizeof(*stats) / sizeof(uint64_t)];
    int n = weir_set_limit_settings(set, limit, settings, CONFIG_SETTINGS_MAX);

    memcpy(words, stats, sizeof(words));
    words[0] = stats->type; /* with what the struct is padded by */
    words[1] = words[2] = 0;
    publisher_put(out, PUBLISHED_LIMIT, words, sizeof(words));
    publisher_put_text(out, PUBLISHED_KEY, stats->key);
    publisher_put_text(out, PUBLISHED_ALGORITHM, stats->algorithm);
    for (int i = 0; i < n && i < (int)CONFIG_SETTINGS_MAX; i++) {
        publisher_put_text(out, PUBLISHED_SETTING, settings[i].name);
        publisher_put_text(out, PUBLISHED_VALUE, settings[i].value);
    }
    if (!set->is_keyed) /* those of a new subject tell nothing */
        publisher_put_gauges(out, set, limit);
}

/* Notes for how long a holder has held a limit for too long, if it has. */
static void publisher_note_overheld(struct published_holder *item, weir_set *set, uint64_t now_ns)
{
    struct weir_overheld overheld = {.size = sizeof(overheld)};
    int limit = weir_set_holder_overheld(set, &item->holder, &overheld) == 1
                    ? weir_set_limit_find(set, overheld.key, 0)
                    : -ENOENT;

    if (limit < 0)
        return;
    item->overheld = (uint64_t)limit + 1;
    item->overheld_ns = now_ns > overheld.since_ns ? now_ns - overheld.since_ns : 0;
}

/* `with_wait`: also what the first of a wait queue waits for. */
static void publisher_put_holder(struct text_out *out, weir_set *set,
                                 const struct weir_holder *holder, uint64_t now_ns, bool with_wait)
{
    struct published_holder item = {.holder = *holder, .limiting = UINT32_MAX};
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    uint64_t amounts[WEIR_LIMITS_MAX];
    int n = weir_set_holder_amounts(set, holder, amounts, WEIR_LIMITS_MAX);

    if (n < 0) /* it has gone meanwhile */
        return;
    item.age_ns = now_ns > holder->since_ns ? now_ns - holder->since_ns : 0;
    if (with_wait && weir_set_waiter_refusal(set, holder, &refusal) == 0) {
        int limiting = weir_set_limit_find(set, refusal.key, 0);

        item.is_next = 1;
        item.retry_after_ns = refusal.retry_after_ns;
        item.limiting = limiting < 0 ? UINT32_MAX : (uint32_t)limiting;
    }
    publisher_note_overheld(&item, set, now_ns);
    publisher_put(out, PUBLISHED_HOLDER, &item, sizeof(item));
    publisher_put(out, PUBLISHED_AMOUNTS, amounts, (size_t)n * sizeof(*amounts));
}

static void publisher_put_classes(struct text_out *out, weir_set *set)
{
    struct weir_class_stats classes[WEIR_CLASSES_MAX];
    int n = weir_set_classes(set, classes, WEIR_CLASSES_MAX);

    for (int i = 0; i < n; i++)
        publisher_put(out, PUBLISHED_CLASS, &classes[i], sizeof(classes[i]));
}

/* What a waiter waits for is searched in all wait queues of its set: so not for every subject. */
static int publisher_put_holders(struct publisher *publisher, weir_set *set)
{
    struct weir_holder *all = publisher->holders;
    int n = set_holders_oldest(set, all, PUBLISHED_HOLDERS_MAX / 2);
    uint64_t now_ns = weir_now(set->w);
    int nexts_n = 0;

    for (int i = 0; i < n; i++) {
        bool is_next = all[i].position == 1 && nexts_n < PUBLISHER_NEXTS_MAX;

        if (!publisher_goes_on(publisher))
            return -ECANCELED;
        publisher_put_holder(&publisher->out, set, &all[i], now_ns, is_next);
        nexts_n += is_next;
    }
    return n < 0 ? n : 0;
}

/* Returns 0, or why the set cannot be read, or not to its end. */
static int publisher_put_set(struct publisher *publisher, weir_set *set)
{
    struct text_out *out = &publisher->out;
    struct weir_set_info info = {.size = sizeof(info)};
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_subjects_stats subjects = {.size = sizeof(subjects)};
    struct weir_limit_stats limits[WEIR_LIMITS_MAX];
    int n = weir_set_stats(set, &stats, limits, WEIR_LIMITS_MAX);

    if (n < 0)
        return n;
    weir_set_info(set, &info);
    info.backend = info.lifetime = NULL;
    publisher_put_text(out, PUBLISHED_SET, set_name(set));
    publisher_put(out, PUBLISHED_INFO, &info, sizeof(info));
    publisher_put(out, PUBLISHED_STATS, &stats, sizeof(stats));
    if (weir_set_subjects(set, &subjects) == 1) {
        const char *evict = subjects.evict;

        subjects.evict = NULL;
        publisher_put(out, PUBLISHED_SUBJECTS, &subjects, sizeof(subjects));
        publisher_put_text(out, PUBLISHED_EVICT, evict);
    }
    publisher_put_classes(out, set);
    for (int i = 0; i < n; i++) {
        if (!publisher_goes_on(publisher))
            return -ECANCELED;
        publisher_put_limit(out, set, (size_t)i, &limits[i]);
    }
    return stats.held || stats.waiting ? publisher_put_holders(publisher, set) : 0;
}

/* ---- the thread ---- */

/* Puts all sets that are private. Returns 0, or why not all. */
static int publisher_put_sets(struct publisher *publisher)
{
    weir_set **sets = NULL;
    int n = registry_named_sets(publisher->w, &sets), r = n < 0 ? n : 0;

    for (int i = 0; i < n && r >= 0; i++) {
        weir_set *set = set_newest(sets[i]);

        if (!publisher_goes_on(publisher))
            r = -ECANCELED;
        else if (!set_is_removed(set) && !set_is_shared(set) && set->backend != BACKEND_REMOTE)
            r = publisher_put_set(publisher, set);
    }
    os_free(sets);
    return r;
}

/* Without its end, an answer is not whole. */
static void publisher_answer(struct publisher *publisher)
{
    const struct published_head head = {
        .magic = PUBLISHED_MAGIC, .version = PUBLISHED_VERSION, .process = os_process_id()};
    struct text_out *out = &publisher->out;

    *out = (struct text_out){.write = publisher_send, .userdata = publisher};
    publisher_put_bytes(out, &head, sizeof(head));
    text_out_end(out); /* a sweep that only looked whether anything listens has gone */
    if (publisher_put_sets(publisher) < 0)
        return;
    publisher_put(out, PUBLISHED_END, NULL, 0);
    text_out_end(out);
}

/* Answers a client, if it may ask. */
static void publisher_serve(struct publisher *publisher)
{
    struct long_look look = {.goes_on = publisher_goes_on, .userdata = publisher};
    uint32_t user;
    int client = os_socket_accept(publisher->socket.fd, &user);

    if (client < 0)
        return;
    atomic_store_explicit(&publisher->client, client, memory_order_relaxed);
    publisher->holders = os_alloc(2 * PUBLISHED_HOLDERS_MAX, sizeof(*publisher->holders));
    long_look_self = &look;
    if (publisher->holders && (user == os_user_id() || user == 0))
        publisher_answer(publisher);
    long_look_self = NULL;
    os_free(publisher->holders);
    atomic_store_explicit(&publisher->client, -1, memory_order_relaxed);
    os_close(client);
}

/* Returns how long to rest after an answer: nine times the processor time that it took, up to a
 * tenth of a second, and no less than that time itself. So the thread has half a processor at most,
 * and a tenth of it unless an answer takes long. */
static uint64_t publisher_rest_ns(uint64_t cpu_ns)
{
    uint64_t rest_ns = 9 * cpu_ns;

    if (rest_ns > PUBLISHER_REST_MAX_NS)
        rest_ns = cpu_ns > PUBLISHER_REST_MAX_NS ? cpu_ns : PUBLISHER_REST_MAX_NS;
    return rest_ns > PUBLISHER_REST_NS ? rest_ns : PUBLISHER_REST_NS;
}

/* Rests between two answers, so that many clients take a part of a processor at most. */
static void publisher_run(void *argument)
{
    struct publisher *publisher = argument;
    int r;

    os_thread_be_ordinary();
    do {
        uint64_t cpu_ns;

        r = os_socket_wait(publisher->socket.fd, false, publisher->stop_fd, WEIR_FOREVER);
        publisher->until_ns = os_now_ns() + PUBLISHER_CLIENT_NS;
        cpu_ns = os_thread_cpu_ns();
        if (r == 1)
            publisher_serve(publisher);
        cpu_ns = os_thread_cpu_ns() - cpu_ns;
        if (r != 0)
            r = os_socket_wait(-1, false, publisher->stop_fd, publisher_rest_ns(cpu_ns));
        if (r < 0 && r != -ETIMEDOUT)
            os_pause();
    } while (r != 0);
}

/* ---- opening and closing ---- */

static int publisher_start(struct publisher *publisher, const char *path, uint32_t number,
                           struct weir_error *reterr)
{
    int r = segment_dir_open(path, true, reterr);

    if (r < 0)
        return r;
    r = publish_socket_open(&publisher->socket, r, number);
    if (r < 0)
        return r;
    r = publisher->stop_fd = os_eventfd();
    if (r >= 0)
        r = os_thread_start(&publisher->thread, publisher_run, publisher, "weir-publish");
    if (r >= 0)
        return 0;
    os_close(publisher->stop_fd);
    publish_socket_close(&publisher->socket, false);
    return r;
}

/* Numbers the instances of the process that publish: metrics tell them apart by that. */
static uint32_t publisher_next_number(void)
{
    static _Atomic uint64_t
        last; /* with the process in its upper half: a parent counted on its own */
    uint64_t process = (uint64_t)os_process_id() << 32, next;
    uint64_t was = atomic_load_explicit(&last, memory_order_relaxed);

    do
        next = (was >> 32 == process >> 32 ? was : process) + 1;
    while (!atomic_compare_exchange_weak_explicit(&last, &was, next, memory_order_relaxed,
                                                  memory_order_relaxed));
    return (uint32_t)next;
}

int publisher_open(weir *w, const struct weir_options *options)
{
    const uint32_t never = WEIR_OPEN_APART | WEIR_OPEN_EXISTING | WEIR_OPEN_UNPUBLISHED;
    struct weir_error error = {.message = ""};
    struct publisher *publisher;
    int r;

    if (options->flags & never)
        return 0;
    publisher = os_alloc(1, sizeof(*publisher));
    if (!publisher)
        return -ENOMEM;
    publisher->w = w;
    publisher->client = -1;
    r = options->clock
            ? error_set(&error, -EOPNOTSUPP, "the instance has a clock of the program")
            : publisher_start(publisher, w->process_dir, publisher_next_number(), &error);
    if (r == 0) {
        instance_of(w)->publisher = publisher;
        return 0;
    }
    log_write(&w->log, WEIR_LOG_WARNING, "publish: other processes cannot see the sets: %s",
              error.message[0] ? error.message : strerrordesc_np(-r));
    os_free(publisher);
    return 0;
}

void publisher_close(weir *w, bool in_child)
{
    struct publisher *publisher = instance_of(w)->publisher;

    if (!publisher)
        return;
    while (!in_child && os_eventfd_add(publisher->stop_fd, 1) < 0)
        os_pause(); /* which the kernel gives no reason for */
    if (!in_child)
        os_thread_join(publisher->thread);
    publish_socket_close(&publisher->socket, in_child);
    os_close(publisher->stop_fd);
    os_close(atomic_load_explicit(&publisher->client, memory_order_relaxed)); /* in a child only */
    if (!in_child)
        os_free(publisher);
    instance_of(w)->publisher = NULL;
}
