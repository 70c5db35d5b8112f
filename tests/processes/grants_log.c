/* SPDX-License-Identifier: MIT */
/* A log of grants in shared memory, with an account for each worker. */
#include "grants_log.h"
#include "lib/clock.h"

#include "lib/require.h"
#include <sys/mman.h>

/* As in the text below. */
#define TOKENS_PER_S UINT64_C(40000)
#define TOKENS_BURST UINT64_C(40)
#define BYTES_PER_S  UINT64_C(4000000)
#define BYTES_BURST  UINT64_C(4000)
#define CALLS_WINDOW UINT64_C(5000000)

#define ACCOUNT_SET(refund)                                                                        \
    "version: 1\n"                                                                                 \
    "sets:\n"                                                                                      \
    "  five:\n"                                                                                    \
    "    backend: process\n"                                                                       \
    "    limits:\n"                                                                                \
    "      - { type: rate, key: tokens, algorithm: token_bucket, capacity: 40k, window: 1s,\n"     \
    "          burst: 40, refund: " refund " }\n"                                                  \
    "      - { type: rate, key: bytes, algorithm: gcra, capacity: 4M, window: 1s, burst: 4k,\n"    \
    "          refund: " refund " }\n"                                                             \
    "      - { type: call, algorithm: sliding_window, capacity: 100, window: 5ms }\n"              \
    "      - { type: resource, key: db, capacity: 5 }\n"                                           \
    "      - { type: resource, key: files, capacity: 4 }\n"
const char *const account_keys[HISTORY_LIMITS] = {"tokens", "bytes", "call_count", "db", "files"};
const uint64_t account_capacities[HISTORY_LIMITS] = {TOKENS_BURST, BYTES_BURST, 100, 5, 4};

struct grants_log *grants_log;

static struct history history, uses;
static uint64_t checked, read_ns;

const char *account_set(void)
{
    return grants_log->strict ? ACCOUNT_SET("strict") : ACCOUNT_SET("true");
}

void account_begin(bool strict)
{
    void *memory =
        mmap(NULL, sizeof(*grants_log), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    require(memory != MAP_FAILED);
    grants_log = memory;
    grants_log->strict = strict;
    checked = 0;
    read_ns = clock_now();
}

void account_end(void)
{
    history_free(&history);
    history_free(&uses);
    munmap(grants_log, sizeof(*grants_log));
    grants_log = NULL;
}

/* ---- resources ---- */

#define DOOMED UINT64_C(0x80)

static uint64_t shares(const uint64_t *amounts)
{
    return amounts[DB] | amounts[FILES] << 3;
}

static unsigned shift(int worker)
{
    return 8 * (unsigned)worker;
}

/* All of it is one word, so this is what was held at one instant. */
static void require_within_capacity(uint64_t holders)
{
    uint64_t db = 0, files = 0;

    for (int i = 0; i < ACCOUNTS; i++) {
        uint64_t byte = holders >> shift(i) & 0xff;

        if (byte & DOOMED)
            continue;
        db += byte & 7;
        files += byte >> 3 & 7;
    }
    if (db > account_capacities[DB] || files > account_capacities[FILES])
        fprintf(stderr, "db %" PRIu64 ", files %" PRIu64 ": %016" PRIx64 "\n", db, files, holders);
    require(db <= account_capacities[DB] && files <= account_capacities[FILES]);
}

void account_hold(int worker, const uint64_t *amounts)
{
    uint64_t more = shares(amounts), expected = atomic_load(&grants_log->holders) >> shift(worker);

    require((expected & 7) + amounts[DB] <= account_capacities[DB]);
    require((expected >> 3 & 7) + amounts[FILES] <= account_capacities[FILES]);
    expected = atomic_fetch_add(&grants_log->holders, more << shift(worker));
    require_within_capacity(expected + (more << shift(worker)));
}

void account_let_go(int worker, const uint64_t *amounts)
{
    atomic_fetch_sub(&grants_log->holders, shares(amounts) << shift(worker));
}

void account_doom(int worker)
{
    atomic_fetch_or(&grants_log->holders, DOOMED << shift(worker));
}

/* ---- rates ---- */

/* The auditor reads in time; if it does not, grants can be left out, but not refunds. */
void account_grant(int worker, const struct event *event)
{
    struct account *account = &grants_log->accounts[worker];
    uint64_t n = atomic_load(&account->events_n);

    if (n - atomic_load(&account->events_read) == ACCOUNT_ROOM) {
        atomic_fetch_add(&account->events_lost, 1);
        return;
    }
    account->events[n % ACCOUNT_ROOM] = *event;
    atomic_store(&account->events_n, n + 1);
}

/* Without room for it, less is checked. */
void account_use(int worker, const struct event *event)
{
    struct account *account = &grants_log->accounts[worker];
    uint64_t n = atomic_load(&account->uses_n);

    if (!grants_log->strict || n - atomic_load(&account->uses_read) == ACCOUNT_ROOM)
        return;
    account->uses[n % ACCOUNT_ROOM] = *event;
    atomic_store(&account->uses_n, n + 1);
}

void account_refund_begin(int worker, const uint64_t *amounts)
{
    struct account *account = &grants_log->accounts[worker];

    account->refund = (struct refund){.lo = clock_now(), .hi = UINT64_MAX};
    for (int i = 0; i < CALLS; i++)
        account->refund.amounts[i] = (uint32_t)amounts[i];
    atomic_store(&account->refunding, true);
}

void account_refund_end(int worker, uint64_t later_ns)
{
    struct account *account = &grants_log->accounts[worker];
    uint64_t n = atomic_load(&account->refunds_n);
    struct refund refund = account->refund;

    while (n - atomic_load(&account->refunds_read) == ACCOUNT_ROOM)
        pause_ns(100000);
    refund.hi = clock_now() + later_ns;
    account->refunds[n % ACCOUNT_ROOM] = refund;
    atomic_store(&account->refunds_n, n + 1);
    atomic_store(&account->refunding, false);
}

static void read_events(struct account *account)
{
    uint64_t n = atomic_load(&account->events_n), i = atomic_load(&account->events_read);

    for (; i < n; i++)
        history_add(&history, &account->events[i % ACCOUNT_ROOM]);
    atomic_store(&account->events_read, n);
}

static void read_uses(struct account *account)
{
    uint64_t n = atomic_load(&account->uses_n), i = atomic_load(&account->uses_read);

    for (; i < n; i++)
        history_add(&uses, &account->uses[i % ACCOUNT_ROOM]);
    atomic_store(&account->uses_read, n);
}

static void read_refunds(struct account *account)
{
    uint64_t n = atomic_load(&account->refunds_n), i = atomic_load(&account->refunds_read);

    for (; i < n; i++)
        history_add_refund(&history, &account->refunds[i % ACCOUNT_ROOM]);
    atomic_store(&account->refunds_read, n);
}

/* Grants first: a refund that made one of them possible is either over by then, or under way. */
void accounts_read(void)
{
    for (int i = 0; i < ACCOUNTS; i++)
        read_events(&grants_log->accounts[i]);
    for (int i = 0; i < ACCOUNTS; i++)
        read_refunds(&grants_log->accounts[i]);
    for (int i = 0; i < ACCOUNTS; i++)
        read_uses(&grants_log->accounts[i]);
}

void account_clear(int worker)
{
    struct account *account = &grants_log->accounts[worker];

    read_events(account);
    read_refunds(account);
    read_uses(account);
    if (atomic_load(&account->refunding)) { /* it may have come to it, or not */
        account->refund.hi = clock_now();
        history_add_refund(&history, &account->refund);
    }
    atomic_store(&account->refunding, false);
    atomic_store(&account->resting, 0);
    atomic_fetch_and(&grants_log->holders, ~(UINT64_C(0xff) << shift(worker)));
}

/* What is under way counts for this check, and will be read when it is over. */
static void add_refunds_under_way(void)
{
    for (int i = 0; i < ACCOUNTS; i++) {
        struct account *account = &grants_log->accounts[i];

        if (atomic_load(&account->refunding))
            history_add_refund(&history, &account->refund);
    }
}

/* Those that may have made possible what comes next stay. */
static void forget_before(uint64_t instant)
{
    size_t n = 0;

    for (size_t i = 0; i < history.refunds_n; i++)
        if (history.refunds[i].hi >= instant && history.refunds[i].hi != UINT64_MAX)
            history.refunds[n++] = history.refunds[i];
    history.refunds_n = n;
    history.events_n = 0;
}

void accounts_check(void)
{
    uint64_t now_ns = clock_now();

    for (int i = 0; i < ACCOUNTS; i++)
        read_events(&grants_log->accounts[i]);
    add_refunds_under_way();
    for (int i = 0; i < ACCOUNTS; i++)
        read_refunds(&grants_log->accounts[i]);
    require(history_keeps_rate(&history, TOKENS, TOKENS_BURST, TOKENS_PER_S, SECOND));
    require(history_keeps_rate(&history, BYTES, BYTES_BURST, BYTES_PER_S, SECOND));
    require(history_keeps_window(&history, CALLS, account_capacities[CALLS], CALLS_WINDOW));
    require(history_keeps_order(&history));
    require(history_keeps_rate(&uses, TOKENS, TOKENS_BURST, TOKENS_PER_S, SECOND));
    require(history_keeps_rate(&uses, BYTES, BYTES_BURST, BYTES_PER_S, SECOND));
    checked += history.events_n;
    uses.events_n = 0;
    forget_before(read_ns);
    read_ns = now_ns;
}

uint64_t account_grants(void)
{
    return checked;
}
