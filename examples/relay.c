/* SPDX-License-Identifier: MIT */
/* Relays of the proxy: a client, an upstream, and the data that moves between them. */
#include "uring_proxy.h"
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void ask_for_connection(struct server *s, struct relay *r);
static void receive(struct server *s, struct stream *stream);

/* ---- the end of a relay ---- */

/*
 * Begins the end of a relay: cancels all its operations. After the last of them has completed, the
 * sockets are closed, and then the relay is freed. `count`: the counter that it adds to.
 */
static void end_relay(struct server *s, struct relay *r, uint64_t *count)
{
    struct operation *const all[] = {&r->hung_up,       &r->connected, &r->idle,
                                     &r->up.received,   &r->up.sent,   &r->up.ended,
                                     &r->down.received, &r->down.sent, &r->down.ended,
                                     &r->slot,          &r->up.chunk,  &r->down.chunk};

    if (r->phase >= ENDING)
        return;
    if (count != &s->proxy.served) {
        const struct linger reset = {.l_onoff = 1};

        setsockopt(r->client, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        if (r->remote >= 0)
            setsockopt(r->remote, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    }
    r->phase = ENDING;
    ++*count;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        cancel(s, all[i]);
    }
}

static void break_relay(struct server *s, struct relay *r)
{
    end_relay(s, r, &s->proxy.broken);
}

static void close_sockets(struct server *s, struct relay *r)
{
    r->phase = CLOSING;
    ring_close(s, &r->client, &r->client_closed);
    ring_close(s, &r->remote, &r->remote_closed);
}

static void free_relay(struct server *s, struct relay *r)
{
    weir_release(&r->slot.acquisition);
    proxy_release_bytes(&r->up.chunk.acquisition, r->up.used);
    proxy_release_bytes(&r->down.chunk.acquisition, r->down.used);
    *(r->previous ? &r->previous->next : &s->relays) = r->next;
    if (r->next)
        r->next->previous = r->previous;
    free(r);
    s->proxy.relays_n--;
    ring_accept(s);
}

void advance_relay(struct server *s, struct relay *r)
{
    if (r->phase == ENDING)
        close_sockets(s, r);
    else if (r->phase == CLOSING)
        free_relay(s, r);
}

/* Releases the connection, now that the upstream has it back, unless the relay is ending anyway. */
static void on_remote_closed(struct server *s, struct operation *operation, int result)
{
    struct relay *r = operation->relay;

    (void)result;
    weir_release(&r->slot.acquisition);
    if (r->phase == CONNECTING)
        ask_for_connection(s, r);
}

/* ---- streams ---- */

static void send_chunk(struct server *s, struct stream *stream)
{
    struct io_uring_sqe *sqe = ring_get(s);

    io_uring_prep_send(sqe, *stream->to, stream->bytes + stream->at, stream->granted,
                       MSG_NOSIGNAL | MSG_WAITALL);
    ring_expect(sqe, &stream->sent);
}

/* Submits a request for the next chunk, of a size that the limit of the upstream can grant. */
static void ask_for_chunk(struct server *s, struct stream *stream)
{
    const struct upstream *u = stream->chunk.relay->upstream;
    size_t left = stream->n - stream->at;
    int e;

    stream->granted = left < u->chunk_max ? left : u->chunk_max;
    stream->used = 0;
    if (!u->bytes) {
        send_chunk(s, stream);
        return;
    }
    e = queue_expect(&stream->chunk,
                     proxy_ask_bytes(&s->proxy, u, stream->granted, &stream->chunk));
    if (e < 0)
        break_relay(s, stream->chunk.relay);
}

static void on_chunk(struct server *s, struct operation *operation, int result)
{
    if (operation->relay->phase >= ENDING)
        return;
    operation->relay->moved_ns = now_ns();
    if (result < 0)
        break_relay(s, operation->relay);
    else
        send_chunk(s, operation->stream);
}

static void on_sent(struct server *s, struct operation *operation, int result)
{
    struct stream *stream = operation->stream;
    struct relay *r = operation->relay;
    size_t n = result > 0 ? (size_t)result : 0;

    stream->at += n;
    stream->used += n;
    stream->granted -= n;
    *stream->passed += n;
    r->moved_ns = now_ns();
    if (r->phase >= ENDING)
        return;
    if (n == 0) {
        break_relay(s, r);
    } else if (stream->granted > 0) {
        send_chunk(s, stream);
    } else {
        proxy_release_bytes(&stream->chunk.acquisition, stream->used);
        if (stream->at < stream->n)
            ask_for_chunk(s, stream);
        else
            receive(s, stream);
    }
}

static void receive(struct server *s, struct stream *stream)
{
    struct io_uring_sqe *sqe = ring_get(s);

    io_uring_prep_recv(sqe, *stream->from, stream->bytes, sizeof(stream->bytes), 0);
    ring_expect(sqe, &stream->received);
}

/* Passes the end of the data on to the receiver. */
static void pass_end(struct server *s, struct stream *stream)
{
    struct io_uring_sqe *sqe = ring_get(s);

    io_uring_prep_shutdown(sqe, *stream->to, SHUT_WR);
    ring_expect(sqe, &stream->ended);
}

static void on_ended(struct server *s, struct operation *operation, int result)
{
    struct relay *r = operation->relay;

    operation->stream->is_over = true;
    if (result < 0)
        break_relay(s, r);
    else if (r->up.is_over && r->down.is_over)
        end_relay(s, r, &s->proxy.served);
}

/*
 * Handles received data. The first data of a client is read before it has an upstream. A client
 * that closes its side without data counts as gone; after some data it may wait for the answer.
 */
static void on_received(struct server *s, struct operation *operation, int result)
{
    struct stream *stream = operation->stream;
    struct relay *r = operation->relay;

    if (r->phase >= ENDING)
        return;
    if (result < 0 || (result == 0 && r->phase != OPEN)) {
        end_relay(s, r, r->phase == OPEN ? &s->proxy.broken : &s->proxy.gone);
        return;
    }
    r->heard = true;
    r->moved_ns = now_ns();
    stream->n = (size_t)result;
    stream->at = 0;
    if (result == 0)
        pass_end(s, stream);
    else if (r->phase == OPEN)
        ask_for_chunk(s, stream);
}

/* ---- the connection to an upstream ---- */

static void refuse(struct server *s, struct relay *r)
{
    end_relay(s, r, &s->proxy.refused);
}

static void ask_for_connection(struct server *s, struct relay *r)
{
    r->phase = WAITING;
    if (r->tries++ == s->proxy.upstreams_n ||
        queue_expect(&r->slot, proxy_ask_connection(&s->proxy, &r->slot)) < 0)
        refuse(s, r);
}

/* Releases the connection and tries again, with the upstream that the pool picks next. */
static void fail_try(struct server *s, struct relay *r, int e)
{
    fprintf(stderr, "%s: %s at %s: %s\n", s->proxy.name, r->upstream->name,
            weir_acquisition_config(r->slot.acquisition, "address"), strerror(-e));
    r->upstream->tries_failed++;
    if (r->remote >= 0)
        ring_close(s, &r->remote, &r->remote_closed);
    else
        refuse(s, r);
}

/* Turns off the delay of small packets. */
static void send_at_once(int fd)
{
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

static void connect_upstream(struct server *s, struct relay *r)
{
    const struct upstream *u = r->upstream;
    struct io_uring_sqe *sqe;

    r->phase = CONNECTING;
    r->remote = socket(u->socket_address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (r->remote < 0) {
        fail_try(s, r, -errno);
        return;
    }
    send_at_once(r->remote);
    ring_room(s, 2);
    sqe = ring_get(s);
    io_uring_prep_connect(sqe, r->remote, (const struct sockaddr *)&u->socket_address,
                          u->socket_length);
    sqe->flags |= IOSQE_IO_LINK;
    ring_expect(sqe, &r->connected);
    r->connect_end = timespec_of(s->proxy.connect_ns);
    sqe = ring_get(s);
    io_uring_prep_link_timeout(sqe, &r->connect_end, 0);
    ring_expect(sqe, &r->connect_timed_out);
}

static void on_slot(struct server *s, struct operation *operation, int result)
{
    struct relay *r = operation->relay;

    if (r->phase >= ENDING)
        return;
    if (result < 0) {
        refuse(s, r);
        return;
    }
    r->upstream = proxy_upstream(&s->proxy, operation->acquisition);
    connect_upstream(s, r);
}

static void on_connected(struct server *s, struct operation *operation, int result)
{
    struct relay *r = operation->relay;

    if (r->phase >= ENDING)
        return;
    if (result < 0) {
        fail_try(s, r, result == -ECANCELED ? -ETIMEDOUT : result);
        return;
    }
    r->phase = OPEN;
    r->moved_ns = now_ns();
    receive(s, &r->down);
    if (r->heard)
        ask_for_chunk(s, &r->up);
}

/* ---- the beginning of a relay ---- */

static void on_nothing(struct server *s, struct operation *operation, int result)
{
    (void)s, (void)operation, (void)result; /* the canceled operation completes by itself */
}

/* Handles a reset: the only sign that a client is gone while no data moves. */
static void on_hung_up(struct server *s, struct operation *operation, int result)
{
    struct relay *r = operation->relay;

    if (result > 0 && (result & POLLERR))
        end_relay(s, r, r->phase == OPEN ? &s->proxy.broken : &s->proxy.gone);
}

/* Returns true if data could move. Waits for weir or for the connection do not count as idle. */
static bool could_move(const struct relay *r)
{
    return r->phase == OPEN && !r->up.chunk.in_queue && !r->down.chunk.in_queue;
}

static void watch_idle(struct server *s, struct relay *r)
{
    uint64_t end = r->moved_ns + s->proxy.idle_ns, now = now_ns();

    r->idle_left = timespec_of(end > now ? end - now : 0);
    ring_timer(s, &r->idle_left, &r->idle);
}

static void on_idle(struct server *s, struct operation *operation, int result)
{
    struct relay *r = operation->relay;
    uint64_t now = now_ns();

    (void)result;
    if (r->phase >= ENDING)
        return;
    if (!could_move(r))
        r->moved_ns = now;
    if (r->moved_ns + s->proxy.idle_ns <= now)
        break_relay(s, r);
    else
        watch_idle(s, r);
}

static void init_stream(struct relay *r, struct stream *stream, int *from, int *to,
                        uint64_t *passed)
{
    stream->from = from;
    stream->to = to;
    stream->passed = passed;
    stream->received = (struct operation){on_received, r, stream, NULL, false, false};
    stream->chunk = (struct operation){on_chunk, r, stream, NULL, false, false};
    stream->sent = (struct operation){on_sent, r, stream, NULL, false, false};
    stream->ended = (struct operation){on_ended, r, stream, NULL, false, false};
}

static void init_relay(struct server *s, struct relay *r, int client)
{
    r->client = client;
    r->remote = -1;
    r->moved_ns = now_ns();
    r->slot = (struct operation){.done = on_slot, .relay = r};
    r->hung_up = (struct operation){.done = on_hung_up, .relay = r};
    r->connected = (struct operation){.done = on_connected, .relay = r};
    r->connect_timed_out = (struct operation){.done = on_nothing, .relay = r};
    r->idle = (struct operation){.done = on_idle, .relay = r};
    r->client_closed = (struct operation){.done = on_nothing, .relay = r};
    r->remote_closed = (struct operation){.done = on_remote_closed, .relay = r};
    init_stream(r, &r->up, &r->client, &r->remote, &s->proxy.bytes_up);
    init_stream(r, &r->down, &r->remote, &r->client, &s->proxy.bytes_down);
}

void add_relay(struct server *s, int client)
{
    struct relay *r = calloc(1, sizeof(*r));

    if (!r) {
        close(client);
        return;
    }
    init_relay(s, r, client);
    send_at_once(client);
    r->next = s->relays;
    if (r->next)
        r->next->previous = r;
    s->relays = r;
    s->proxy.relays_n++;
    s->proxy.accepted++;
    ring_poll(s, client, 0, &r->hung_up); /* for as long as the relay lives */
    watch_idle(s, r);
    receive(s, &r->up);
    ask_for_connection(s, r);
}

void end_relays(struct server *s, enum phase phase)
{
    for (struct relay *r = s->relays; r; r = r->next)
        if (r->phase <= phase)
            end_relay(s, r, r->phase == OPEN ? &s->proxy.broken : &s->proxy.refused);
}
