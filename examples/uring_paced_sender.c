/* SPDX-License-Identifier: MIT */
/*
 * Sends datagrams at the pace of a limit, without running for each: for every packet the program
 * submits a chain to its ring, a wait and the send behind it, all of them at once. The kernel then
 * starts each send at its time, while the program
 *
 *     --mode wait      sleeps in one wait on its ring, for all of them
 *     --mode poll      sits in poll(2) on something else
 *     --mode compute   computes, without a single system call
 *
 * A chain waits for:
 *
 *     --how linked     the grant of a pending acquisition: a READ of its descriptor,
 *                      to which weir writes at the grant. weir's thread is awake before that
 *                      (timer_advance_ns, --advance-us) and spins, which costs a tenth of a
 *                      processor at 1000/s; the processor time of all threads is printed
 *     --how paced      the time that weir_reserve has returned: a TIMEOUT, and no descriptor
 *
 * The receiver is in this program as well. The kernel stamps each datagram, and the stamps are
 * compared with the times that weir forecast. In the end weir's counters must equal the number
 * sent.
 *
 * Three rules keep this sound:
 *   - A chain ends with exactly one CQE, that of its head or that of its send, and its acquisition
 *     is touched only then: weir_uring_settle keeps the grant or takes it back.
 *   - What the kernel still uses (the packet, the wait) stays in place until that CQE.
 *   - To stop, cancel the chains, not the acquisitions, and await their CQEs like any others.
 */
#include "receiver.h"
#include <liburing.h>
#include <weir/uring.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>
#include <weir/weir.h>

#define NS_PER_MS ((uint64_t)1000000)
#define NS_PER_S  ((uint64_t)1000000000)

#define COUNT_MAX 10000
/* Small, so that the first chains run while the last are being prepared. */
#define SQ_ENTRIES 64
/* Wait of poll and compute for datagrams after the last can have been sent. */
#define GRACE_NS     (100 * NS_PER_MS)
#define PATIENCE_NS  (10 * NS_PER_S)
#define COMPUTE_LONG 10000

enum mode { WAIT, POLL, COMPUTE };
enum how { LINKED, PACED };
enum outcome { IN_FLIGHT, SENT, FAILED, EXPIRED, CANCELED, REFUSED, OUTCOMES };

static const char *const modes[] = {"wait", "poll", "compute", NULL};
static const char *const hows[] = {"linked", "paced", NULL};
static const char *const rings[] = {"default", "single", "defer", NULL};
static const unsigned ring_flags[] = {0, IORING_SETUP_SINGLE_ISSUER,
                                      IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};

struct packet {
    uint64_t sequence; /* the payload */
    struct weir_uring_wait wait;
    weir_acquisition *acquisition;
    enum outcome outcome;
};

struct sender {
    unsigned mode, how, ring_type;
    unsigned count, line_max;
    uint64_t rate;
    uint64_t burst;       /* 0: the units of one second */
    uint64_t deadline_ns; /* from the start, ns; WEIR_FOREVER: none */
    uint64_t advance_us;  /* lead of weir's timer: longer than a sleeping thread takes to run */

    weir *weir;
    weir_pool *pool;
    struct weir_uring uring;
    struct io_uring ring;
    struct receiver receiver;
    struct packet *packets;
    uint64_t *at_ns;             /* earliest time of each packet, as forecast by weir */
    unsigned outcomes[OUTCOMES]; /* packets by outcome */
    unsigned cancels;            /* cancels without a CQE so far */
    unsigned ended_alone;        /* chains that ended before the program looked at its ring */
};

/* Return the user_data of the head and the send of a packet; each is unique on the ring. */
static uint64_t head_of(unsigned i)
{
    return 2 * (uint64_t)i;
}

static uint64_t send_of(unsigned i)
{
    return 2 * (uint64_t)i + 1;
}

#define CANCEL UINT64_MAX

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

static int complain(const char *what, int e)
{
    fprintf(stderr, "uring_paced_sender: %s: %s\n", what, strerror(-e));
    return EX_OSERR;
}

/* ---- the command line ---- */

static int usage(void)
{
    fputs(
        "usage: uring_paced_sender [OPTION]...\n"
        "  --how linked|paced            wait for grants, or for reserved instants (linked)\n"
        "  --mode wait|poll|compute      what the program does meanwhile (wait)\n"
        "  --ring default|single|defer   the kind of ring (default)\n"
        "  --rate N                      packets per second (1000)\n"
        "  --burst N                     how many may make up for a delay at once (as many as in "
        "1 s)\n"
        "  --count N                     packets to send, up to 10000 (300)\n"
        "  --deadline-ms N               send nothing later than this after the start\n"
        "  --line N                      at most N packets wait for their grant\n"
        "  --advance-us N                weir's thread wakes up so long before a grant, up to 1000 "
        "(100)\n",
        stderr);
    return EX_USAGE;
}

/* Returns false if the text is no number from 1 to `max`. */
static bool read_number(const char *text, uint64_t max, uint64_t *ret)
{
    char *end;

    errno = 0;
    *ret = strtoull(text, &end, 10);
    if (errno == 0 && end != text && *end == '\0' && *text != '-' && *ret >= 1 && *ret <= max)
        return true;
    fprintf(stderr, "uring_paced_sender: `%s` is not a number from 1 to %" PRIu64 "\n", text, max);
    return false;
}

/* Returns false if the text is none of the names. */
static bool read_name(const char *text, const char *const *names, unsigned *ret)
{
    for (*ret = 0; names[*ret]; ++*ret)
        if (strcmp(text, names[*ret]) == 0)
            return true;
    fprintf(stderr, "uring_paced_sender: unknown `%s`\n", text);
    return false;
}

static bool read_option(struct sender *s, int option, const char *text)
{
    uint64_t n = 0;
    bool good;

    switch (option) {
    case 'h':
        return read_name(text, hows, &s->how);
    case 'm':
        return read_name(text, modes, &s->mode);
    case 'i':
        return read_name(text, rings, &s->ring_type);
    case 'r':
        return read_number(text, 100000, &s->rate);
    case 'b':
        return read_number(text, COUNT_MAX, &s->burst);
    case 'c':
        good = read_number(text, COUNT_MAX, &n);
        s->count = (unsigned)n;
        return good;
    case 'd':
        good = read_number(text, 3600000, &n);
        s->deadline_ns = n * NS_PER_MS;
        return good;
    case 'a':
        return read_number(text, 1000, &s->advance_us);
    case 'l':
        good = read_number(text, COUNT_MAX, &n);
        s->line_max = (unsigned)n;
        return good;
    default:
        return false;
    }
}

static int read_options(struct sender *s, int argc, char **argv)
{
    static const struct option options[] = {
        {"how", required_argument, NULL, 'h'},         {"mode", required_argument, NULL, 'm'},
        {"ring", required_argument, NULL, 'i'},        {"rate", required_argument, NULL, 'r'},
        {"burst", required_argument, NULL, 'b'},       {"count", required_argument, NULL, 'c'},
        {"advance-us", required_argument, NULL, 'a'},  {"line", required_argument, NULL, 'l'},
        {"deadline-ms", required_argument, NULL, 'd'}, {NULL, 0, NULL, 0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        if (!read_option(s, option, optarg))
            return usage();
    if (optind != argc)
        return usage();
    if (s->mode != WAIT && (ring_flags[s->ring_type] & IORING_SETUP_DEFER_TASKRUN)) {
        fprintf(stderr,
                "uring_paced_sender: a ring with DEFER_TASKRUN stands still unless it is entered: "
                "with --ring defer nothing would be sent while the program is in --mode %s\n",
                modes[s->mode]);
        return EX_USAGE;
    }
    return 0;
}

/* ---- weir, ring, memory ---- */

/*
 * Makes the kernel's table of descriptors grow now: a linked wait takes a descriptor each. The
 * table grows by doubling; in a program of several threads each time stops the caller for
 * milliseconds.
 */
static int reserve_descriptors(const struct sender *s)
{
    rlim_t needed = s->count + 64;
    struct rlimit limit;
    int fd;

    if (s->how != LINKED)
        return 0;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return complain("descriptors", -errno);
    if (limit.rlim_cur < needed) {
        limit.rlim_cur = needed;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
            return complain("too few descriptors for that many packets", -errno);
    }
    fd = fcntl(s->ring.ring_fd, F_DUPFD_CLOEXEC, (int)needed - 1);
    if (fd < 0)
        return complain("descriptors", -errno);
    close(fd);
    return 0;
}

/*
 * Opens the instance. With `initial: 0` the time of the first packet lies ahead, too. A grant may
 * come some µs after its time, because a thread has to run for it; without the burst these delays
 * would add up.
 */
static int open_weir(struct sender *s)
{
    char burst[24];
    const struct weir_setting settings[] = {{"burst", burst}, {"initial", "0"}};
    const struct weir_limit_spec limit = {
        .size = sizeof(limit),
        .type = WEIR_LIMIT_RATE,
        .key = "packets",
        .algorithm = "gcra",
        .capacity = s->rate,
        .window_ns = NS_PER_S,
        .settings = settings,
        .settings_n = 2,
    };
    const struct weir_set_spec set = {
        .size = sizeof(set),
        .name = "wire",
        .limits = &limit,
        .limits_n = 1,
        .max_waiters = s->line_max,
    };
    const struct weir_pool_spec spec = {.size = sizeof(spec), .sets = &set, .sets_n = 1};
    const struct weir_options options = {.size = sizeof(options),
                                         .timer_advance_ns = 1000 * s->advance_us};
    struct weir_error error = {0};
    int e = weir_open(&s->weir, &options, &error);

    snprintf(burst, sizeof(burst), "%" PRIu64, s->burst != 0 ? s->burst : s->rate);
    if (e == 0)
        e = weir_pool_new(&s->pool, s->weir, &spec, &error);
    if (e < 0)
        fprintf(stderr, "uring_paced_sender: %s\n",
                error.message[0] != '\0' ? error.message : strerror(-e));
    return e < 0 ? EX_SOFTWARE : 0;
}

static int open_ring(struct sender *s)
{
    struct io_uring_params params = {
        .flags = ring_flags[s->ring_type] | IORING_SETUP_CQSIZE,
        .cq_entries = 2 * s->count + SQ_ENTRIES, /* every chain and its cancel */
    };
    int e = weir_uring_probe(&s->uring);

    if (e == 0)
        e = io_uring_queue_init_params(SQ_ENTRIES, &s->ring, &params);
    if (e == -EINVAL)
        fprintf(stderr, "uring_paced_sender: this kernel has no --ring %s\n", rings[s->ring_type]);
    else if (e < 0)
        fprintf(stderr, "uring_paced_sender: io_uring cannot be used here (%s)\n", strerror(-e));
    return e < 0 ? EX_UNAVAILABLE : 0;
}

/* ---- chains ---- */

static unsigned in_flight(const struct sender *s)
{
    return s->outcomes[IN_FLIGHT];
}

static void set_outcome(struct sender *s, struct packet *packet, enum outcome outcome)
{
    packet->outcome = outcome;
    s->outcomes[outcome]++;
}

/* Submits. A chain taken only in part is fatal: its rest would start without a grant. */
static void submit(struct sender *s)
{
    int e;

    do {
        e = io_uring_submit(&s->ring);
    } while (e == -EINTR);
    if (e < 0 || io_uring_sq_ready(&s->ring) > 0)
        exit(complain("io_uring_submit", e < 0 ? e : -ENOMEM));
}

/* Submits packet `i`, or reserves for it. Returns 0 or a negative errno with the refusal. */
static int ask(struct sender *s, unsigned i, uint64_t deadline_ns, struct weir_refusal *refusal)
{
    weir_acquisition **acquisition = &s->packets[i].acquisition;
    const struct weir_amount one = {"packets", 1};
    struct weir_request request = {
        .size = sizeof(request),
        .amounts = &one,
        .amounts_n = 1,
        .timeout_ns = WEIR_FOREVER, /* the chain has the deadline */
    };
    uint64_t now_ns = weir_now(s->weir);
    int e;

    if (s->how == PACED) {
        if (deadline_ns != WEIR_FOREVER)
            request.max_wait_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 1;
        return weir_reserve(s->pool, &request, acquisition, &s->at_ns[i], refusal);
    }
    e = weir_set_ready_at(weir_pool_set(s->pool, 0), &request, &s->at_ns[i]);
    if (e == 0)
        e = weir_submit(s->pool, &request, acquisition, refusal);
    return e < 0 ? e : 0; /* 1: it is in the wait queue */
}

static int prepare_head(struct sender *s, unsigned i, uint64_t deadline_ns)
{
    struct packet *packet = &s->packets[i];

    if (s->how == PACED)
        return weir_uring_prep_paced(&s->uring, &s->ring, &packet->wait, s->at_ns[i], head_of(i),
                                     1);
    return weir_uring_prep_linked_wait(&s->uring, &s->ring, &packet->wait, packet->acquisition,
                                       deadline_ns, head_of(i), 1);
}

/* Prepares the head and the send behind it; submits earlier chains first if there is no room. */
static int prepare_chain(struct sender *s, unsigned i, uint64_t deadline_ns)
{
    struct packet *packet = &s->packets[i];
    struct io_uring_sqe *sqe;
    int e = prepare_head(s, i, deadline_ns);

    if (e == -EBUSY) {
        submit(s);
        e = prepare_head(s, i, deadline_ns);
    }
    if (e < 0)
        return e;
    sqe = io_uring_get_sqe(&s->ring);
    io_uring_prep_send(sqe, s->receiver.sender, &packet->sequence, sizeof(packet->sequence), 0);
    io_uring_sqe_set_data64(sqe, send_of(i));
    return 0;
}

static void tell_refusal(const struct sender *s, int e, const struct weir_refusal *refusal)
{
    if (s->outcomes[REFUSED] > 1)
        return;
    printf("refused: %s", strerror(-e));
    if (refusal->retry_after_ns != 0 && refusal->retry_after_ns != WEIR_FOREVER)
        printf("; come back in %.1f ms", (double)refusal->retry_after_ns / 1e6);
    puts("");
}

/* Keeps the grant of a packet that was sent; returns the grant of any other. */
static void settle(struct packet *packet, bool ran, bool sent)
{
    if (weir_uring_settle(&packet->acquisition, ran) < 0)
        return; /* no grant, or no longer */
    weir_update(packet->acquisition, "packets", sent);
    weir_release(&packet->acquisition);
}

/* Puts all chains on the ring. Returns 0, or a negative errno if the rest is missing. */
static int start(struct sender *s)
{
    uint64_t deadline_ns =
        s->deadline_ns == WEIR_FOREVER ? WEIR_FOREVER : weir_now(s->weir) + s->deadline_ns;

    for (unsigned i = 0; i < s->count; i++) {
        struct packet *packet = &s->packets[i];
        struct weir_refusal refusal = {.size = sizeof(refusal)};
        int e = ask(s, i, deadline_ns, &refusal);

        packet->sequence = i;
        if (e == -EAGAIN || e == -ENOBUFS) {
            set_outcome(s, packet, REFUSED);
            tell_refusal(s, e, &refusal);
            continue;
        }
        if (e == 0)
            e = prepare_chain(s, i, deadline_ns);
        if (e < 0 && packet->acquisition)
            settle(packet, false, false);
        if (e < 0)
            return e;
        set_outcome(s, packet, IN_FLIGHT);
    }
    submit(s);
    return 0;
}

/* Handles the end of the chain of packet `i`: by its send, or without one. */
static void end_chain(struct sender *s, unsigned i, bool ran, int result)
{
    struct packet *packet = &s->packets[i];
    bool sent = ran && result == (int)sizeof(packet->sequence);

    settle(packet, ran, sent);
    s->outcomes[IN_FLIGHT]--;
    if (sent)
        set_outcome(s, packet, SENT);
    else if (ran)
        set_outcome(s, packet, FAILED);
    else
        set_outcome(s, packet, interrupted ? CANCELED : EXPIRED);
    if (ran && !sent)
        complain("send", result < 0 ? result : -EMSGSIZE);
}

static void reap(struct sender *s)
{
    struct io_uring_cqe *cqe;

    while (io_uring_peek_cqe(&s->ring, &cqe) == 0) {
        uint64_t user_data = cqe->user_data;
        int result = cqe->res;

        io_uring_cqe_seen(&s->ring, cqe);
        if (user_data == CANCEL)
            s->cancels--;
        else
            end_chain(s, (unsigned)(user_data / 2), user_data % 2 == 1, result);
    }
}

/* Cancels all chains. The one CQE of each says whether the cancel or the grant came first. */
static void cancel_chains(struct sender *s)
{
    for (unsigned i = 0; i < s->count; i++) {
        if (!s->packets[i].acquisition)
            continue;
        if (weir_uring_prep_cancel(&s->ring, head_of(i), CANCEL) == -EBUSY) {
            submit(s);
            weir_uring_prep_cancel(&s->ring, head_of(i), CANCEL);
        }
        s->cancels++;
    }
    submit(s);
}

/* ---- the program meanwhile: signals reach it nowhere else ---- */

static sigset_t no_signals;

/*
 * Waits once for all operations on the ring; only a signal ends it early. It makes the bare system
 * call, because io_uring_wait_cqes sleeps again after a signal if there are some completions
 * already.
 */
static int sleep_on_ring(struct sender *s)
{
    int e = 0;

    while (!interrupted && io_uring_cq_ready(&s->ring) < in_flight(s) && (e >= 0 || e == -EINTR))
        e = io_uring_enter((unsigned)s->ring.ring_fd, 0, in_flight(s), IORING_ENTER_GETEVENTS,
                           &no_signals);
    return e == -EINTR || e > 0 ? 0 : e;
}

/* Returns the time until which poll and compute wait for the receiver to have everything. */
static uint64_t patience_ends_ns(const struct sender *s, uint64_t begin_ns)
{
    uint64_t last_ns = 0;

    for (unsigned i = 0; i < s->count; i++)
        if (s->packets[i].acquisition && s->at_ns[i] > last_ns)
            last_ns = s->at_ns[i];
    if (s->outcomes[REFUSED] == 0 && s->deadline_ns == WEIR_FOREVER)
        return last_ns + PATIENCE_NS;
    if (s->deadline_ns != WEIR_FOREVER && begin_ns + s->deadline_ns < last_ns)
        last_ns = begin_ns + s->deadline_ns;
    return last_ns + GRACE_NS; /* some will not come */
}

static int sit_in_poll(struct sender *s, uint64_t end_ns)
{
    struct pollfd other = {.fd = s->receiver.complete, .events = POLLIN};
    uint64_t now_ns;
    int e = 0;

    while (!interrupted && e == 0 && (now_ns = weir_now(s->weir)) < end_ns) {
        struct timespec left = {.tv_sec = (time_t)((end_ns - now_ns) / NS_PER_S),
                                .tv_nsec = (long)((end_ns - now_ns) % NS_PER_S)};

        e = ppoll(&other, 1, &left, &no_signals);
        if (e < 0)
            e = errno == EINTR ? 0 : -errno;
    }
    return e < 0 ? e : 0;
}

static int compute(struct sender *s, uint64_t end_ns)
{
    volatile uint64_t x = 1;
    sigset_t blocked;

    pthread_sigmask(SIG_SETMASK, &no_signals, &blocked);
    while (!interrupted && !receiver_is_complete(&s->receiver) && weir_now(s->weir) < end_ns)
        for (int i = 0; i < COMPUTE_LONG; i++)
            x = x * UINT64_C(6364136223846793005) + 1;
    pthread_sigmask(SIG_SETMASK, &blocked, NULL);
    return 0;
}

static int meanwhile(struct sender *s, uint64_t begin_ns)
{
    int e = 0;

    if (s->mode == POLL)
        e = sit_in_poll(s, patience_ends_ns(s, begin_ns));
    else if (s->mode == COMPUTE)
        e = compute(s, patience_ends_ns(s, begin_ns));
    if (s->mode != WAIT)
        s->ended_alone = io_uring_cq_ready(&s->ring);
    if (e == 0)
        e = sleep_on_ring(s);
    return e;
}

/* Awaits every CQE that is due, whatever its result. */
static int finish(struct sender *s)
{
    int e = 0;

    for (reap(s); in_flight(s) + s->cancels > 0; reap(s)) {
        struct io_uring_cqe *cqe;

        e = io_uring_wait_cqe(&s->ring, &cqe);
        if (e < 0 && e != -EINTR)
            return e;
    }
    return 0;
}

static int send_all(struct sender *s)
{
    uint64_t begin_ns = weir_now(s->weir);
    int e = start(s), e2;

    if (e < 0)
        complain("not everything could be started", e);
    else
        e = meanwhile(s, begin_ns);
    reap(s);
    if (interrupted || e < 0) {
        interrupted = 1;
        cancel_chains(s);
    }
    e2 = finish(s);
    if (e2 < 0)
        exit(complain("io_uring", e2)); /* the kernel still holds our memory */
    return e;
}

/* ---- results ---- */

/* Returns the processor time of all threads: this one, the receiver, weir's. */
static uint64_t processor_ns(void)
{
    struct rusage usage;

    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * NS_PER_S +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
}

static void report_price(const struct sender *s, uint64_t used_ns, uint64_t passed_ns)
{
    printf("processor time: %" PRIu64 " ms of %" PRIu64 " ms", used_ns / NS_PER_MS,
           passed_ns / NS_PER_MS);
    if (s->how == LINKED)
        printf(", weir's thread being awake %" PRIu64 " us ahead of each grant", s->advance_us);
    printf("\n");
}

/* Returns true if the counters of weir equal those of the program, and nothing is held. */
static bool counters_agree(const struct sender *s)
{
    struct weir_set_stats set = {.size = sizeof(set)};
    struct weir_limit_stats limit;
    bool agree;

    if (weir_set_stats(weir_pool_set(s->pool, 0), &set, &limit, 1) < 0)
        return false;
    agree = limit.granted - limit.refunded == s->outcomes[SENT] && set.held == 0 &&
            set.waiting == 0 && set.missing_update == 0;
    printf("weir: granted %" PRIu64 ", given back %" PRIu64 ", held %" PRIu64 ", waiting %" PRIu64
           ": %s what was sent\n",
           limit.granted, limit.refunded, set.held, set.waiting,
           agree ? "agrees with" : "does NOT agree with");
    return agree;
}

/*
 * Prints the result and returns the exit status. An overtaken packet is no failure: chains know
 * nothing of each other. A chain may be overtaken if its delay is longer than the distance to the
 * next, as when a grant comes to chains of which some are still being submitted.
 */
static int report(const struct sender *s)
{
    const unsigned *n = s->outcomes;
    bool good = counters_agree(s);
    struct lateness late;

    if (receiver_compare(&s->receiver, s->at_ns, &late) < 0)
        return complain("arrivals", -ENOMEM);
    printf("sent %u, failed %u, expired %u, canceled %u, refused %u; received %u, repeated %u, "
           "overtaken %u\n",
           n[SENT], n[FAILED], n[EXPIRED], n[CANCELED], n[REFUSED], late.n, late.repeated,
           late.overtaken);
    if (s->mode != WAIT)
        printf("%u chains had ended before the program looked at its ring\n", s->ended_alone);
    if (receiver_lost_time(&s->receiver)) {
        printf("error: unknown, because the wall clock was set meanwhile\n");
        return EX_TEMPFAIL;
    }
    if (late.n > 0)
        printf("error: median %.1f us, p90 %.1f us, max %.1f us; early %u (clocks compared to %.2f "
               "us)\n",
               (double)late.median_ns / 1e3, (double)late.p90_ns / 1e3, (double)late.max_ns / 1e3,
               late.early, (double)(s->receiver.offset.high_ns - s->receiver.offset.low_ns) / 1e3);
    good = good && late.n == n[SENT] && late.repeated == 0 && late.early == 0 && n[FAILED] == 0;
    return good ? 0 : EXIT_FAILURE;
}

/* ---- the program ---- */

/* Blocks the signals, except where the program waits: none is missed between a check and a wait. */
static int take_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t signals;

    sigemptyset(&no_signals);
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    if (pthread_sigmask(SIG_BLOCK, &signals, &no_signals) != 0 ||
        sigaction(SIGINT, &action, NULL) != 0 || sigaction(SIGTERM, &action, NULL) != 0)
        return complain("signals", -errno);
    return 0;
}

static int run(struct sender *s)
{
    int e = receiver_open(&s->receiver, s->count), status = e < 0 ? complain("receiver", e) : 0;
    uint64_t used_ns, begin_ns;

    if (status == 0)
        status = open_weir(s);
    if (status == 0) {
        printf("%s, %s, ring %s: %u packets at %" PRIu64 "/s\n", hows[s->how], modes[s->mode],
               rings[s->ring_type], s->count, s->rate);
        used_ns = processor_ns();
        begin_ns = weir_now(s->weir);
        e = send_all(s);
        receiver_stop(&s->receiver);
        report_price(s, processor_ns() - used_ns, weir_now(s->weir) - begin_ns);
        status = report(s);
        if (e < 0 && status == 0)
            status = EX_OSERR;
    }
    weir_pool_close(s->pool);
    weir_close(s->weir);
    receiver_close(&s->receiver);
    return status;
}

int main(int argc, char **argv)
{
    static struct sender s = {
        .rate = 1000, .count = 300, .deadline_ns = WEIR_FOREVER, .advance_us = 100};
    int status = read_options(&s, argc, argv);

    if (status == 0)
        status = take_signals();
    if (status != 0)
        return status;
    status = open_ring(&s);
    if (status != 0)
        return status;
    status = reserve_descriptors(&s);
    if (status == 0) {
        s.packets = calloc(s.count, sizeof(*s.packets));
        s.at_ns = calloc(s.count, sizeof(*s.at_ns));
        status = s.packets && s.at_ns ? run(&s) : complain("packets", -ENOMEM);
    }
    io_uring_queue_exit(&s.ring);
    free(s.packets);
    free(s.at_ns);
    return status;
}
