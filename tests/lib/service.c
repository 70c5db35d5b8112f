/* SPDX-License-Identifier: MIT */
/* A service and its clients, simulated: see service.h. */
#include "lib/service.h"

#include "lib/random.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define REFUSAL_NS UINT64_C(1000000) /* until a client knows that it was refused */

struct client {
    weir_acquisition *acquisition; /* NULL: it does not ask */
    uint64_t granted_ns, ends_ns;
    uint64_t order; /* of events at one instant */
    bool is_refused;
};

/* A ring of clients. */
struct line {
    struct client *clients[SERVICE_CLIENTS_MAX];
    size_t head, n;
};

struct service {
    const struct service_plan *plan;
    const struct service_phase *phase;
    weir_pool *pool;
    _Atomic uint64_t *now;
    uint64_t rng, order;
    struct client clients[SERVICE_CLIENTS_MAX];
    struct line pending;                        /* at the limit, first come, first served */
    struct line queue;                          /* in the service */
    struct client *events[SERVICE_CLIENTS_MAX]; /* a heap: the next to end first */
    size_t events_n, busy, asking;              /* busy: at servers; asking: clients that do */
    struct service_sample sample;
    uint64_t latency_sum_ns;
    int code;
};

static void line_push(struct line *line, struct client *client)
{
    line->clients[(line->head + line->n++) % SERVICE_CLIENTS_MAX] = client;
}

static struct client *line_pop(struct line *line)
{
    struct client *client = line->clients[line->head];

    line->head = (line->head + 1) % SERVICE_CLIENTS_MAX;
    line->n--;
    return client;
}

static bool ends_before(const struct client *a, const struct client *b)
{
    return a->ends_ns != b->ends_ns ? a->ends_ns < b->ends_ns : a->order < b->order;
}

static void events_swap(struct service *service, size_t i, size_t j)
{
    struct client *other = service->events[i];

    service->events[i] = service->events[j];
    service->events[j] = other;
}

static void events_push(struct service *service, struct client *client, uint64_t ends_ns)
{
    size_t i = service->events_n++;

    client->ends_ns = ends_ns;
    client->order = service->order++;
    service->events[i] = client;
    for (; i > 0 && ends_before(client, service->events[(i - 1) / 2]); i = (i - 1) / 2)
        events_swap(service, i, (i - 1) / 2);
}

static struct client *events_pop(struct service *service)
{
    struct client *first = service->events[0];
    size_t i = 0, least;

    service->events[0] = service->events[--service->events_n];
    for (;; i = least) {
        least = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < service->events_n; child++)
            if (ends_before(service->events[child], service->events[least]))
                least = child;
        if (least == i)
            return first;
        events_swap(service, i, least);
    }
}

/* ---- the service ---- */

static void serve(struct service *service, struct client *client)
{
    uint64_t mean = service->phase->service_ns;

    service->busy++;
    client->is_refused = false;
    events_push(service, client, *service->now + mean / 2 + random_below(&service->rng, mean + 1));
}

/* A request arrives, at the instant of its grant. */
static void arrive(struct service *service, struct client *client)
{
    client->granted_ns = *service->now;
    if (service->busy < service->phase->servers) {
        serve(service, client);
    } else if (service->queue.n < service->phase->queue_max) {
        line_push(&service->queue, client);
    } else {
        client->is_refused = true;
        events_push(service, client, *service->now + REFUSAL_NS);
    }
}

/* Serves those for which there is a server now. */
static void serve_queue(struct service *service)
{
    while (service->queue.n > 0 && service->busy < service->phase->servers)
        serve(service, line_pop(&service->queue));
}

/* ---- clients ---- */

/* Those that were granted at a release go to the service. */
static void grant(struct service *service)
{
    while (service->pending.n > 0) {
        struct client *client = service->pending.clients[service->pending.head];

        if (weir_acquisition_result(client->acquisition) == -EINPROGRESS)
            return;
        arrive(service, line_pop(&service->pending));
    }
}

static void ask(struct service *service, struct client *client)
{
    const struct weir_amount amount = {service->plan->key, 1};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = &amount, .amounts_n = 1};
    int r = weir_submit(service->pool, &request, &client->acquisition, NULL);

    if (r < 0)
        service->code = r;
    else if (r == 1)
        line_push(&service->pending, client);
    else if (weir_acquisition_result(client->acquisition) == 0)
        arrive(service, client);
    service->asking += r >= 0;
}

static void end(struct service *service, struct client *client)
{
    uint64_t latency_ns = *service->now - client->granted_ns;

    if (client->is_refused) {
        service->sample.refused++;
    } else {
        service->busy--;
        service->sample.done++;
        service->latency_sum_ns += latency_ns;
    }
    service->asking--;
    if (weir_outcome(client->acquisition,
                     client->is_refused ? WEIR_OUTCOME_OVERLOAD : WEIR_OUTCOME_SUCCESS, 0) < 0)
        service->code = -EPROTO;
    serve_queue(service); /* before those that come with the release */
    weir_release(&client->acquisition);
    grant(service);
    if (service->asking < service->phase->clients)
        ask(service, client);
}

/* ---- the run ---- */

static void take_sample(struct service *service, uint64_t at_ns, size_t phase)
{
    struct weir_limit_gauge gauges[WEIR_GAUGES_MAX];
    weir_set *set = weir_pool_set(service->pool, 0);
    int n = weir_set_limit_gauges(set, 0, gauges, WEIR_GAUGES_MAX);

    for (int i = 0; i < n; i++) {
        if (strcmp(gauges[i].name, "limit") == 0)
            service->sample.limit = gauges[i].value;
        if (strcmp(gauges[i].name, "held") == 0)
            service->sample.held = gauges[i].value;
    }
    service->sample.at_ns = at_ns;
    if (service->sample.done > 0)
        service->sample.latency_ns = service->latency_sum_ns / service->sample.done;
    service->plan->sample(service->plan->userdata, phase, &service->sample);
    service->sample = (struct service_sample){0};
    service->latency_sum_ns = 0;
}

/* Lets what happens up to `until` happen. */
static void run_until(struct service *service, uint64_t until)
{
    while (service->code == 0 && service->events_n > 0 && service->events[0]->ends_ns <= until) {
        struct client *client = events_pop(service);

        *service->now = client->ends_ns;
        end(service, client);
    }
    *service->now = until;
}

static void begin_phase(struct service *service, const struct service_phase *phase)
{
    service->phase = phase;
    for (size_t i = 0; i < phase->clients && service->asking < phase->clients; i++)
        if (!service->clients[i].acquisition)
            ask(service, &service->clients[i]);
    serve_queue(service);
}

/* Lets the clients end, and none begin anew. */
static void finish(struct service *service)
{
    static const struct service_phase service_last = {
        .servers = SERVICE_CLIENTS_MAX, .queue_max = SERVICE_CLIENTS_MAX, .service_ns = 2};

    service->phase = &service_last;
    serve_queue(service);
    while (service->events_n > 0 && service->code == 0)
        run_until(service, service->events[0]->ends_ns);
    for (size_t i = 0; i < SERVICE_CLIENTS_MAX; i++)
        weir_release(&service->clients[i].acquisition);
}

int service_run(const struct service_plan *plan, weir_pool *pool, _Atomic uint64_t *now)
{
    static struct service service;
    uint64_t begin = *now, phase_end = begin;

    service = (struct service){.plan = plan, .pool = pool, .now = now, .rng = plan->seed};
    for (size_t i = 0; i < plan->phases_n && service.code == 0; i++) {
        uint64_t at = phase_end;

        begin_phase(&service, &plan->phases[i]);
        phase_end += plan->phases[i].for_ns;
        for (; at < phase_end && service.code == 0; at += plan->sample_ns) {
            run_until(&service, at + plan->sample_ns);
            take_sample(&service, at + plan->sample_ns - begin, i);
        }
    }
    finish(&service);
    return service.code;
}
