/* SPDX-License-Identifier: MIT */
/*
 * What a connection to an engine consists of. One lock, the connection's, guards all of it.
 *
 * - A connection has servers. A server has a link, and a second one, the inbox, for messages.
 * - A connection has sets, a set has sessions: one for each key that is in use, which is the set's
 * or, with subjects, one for each of these. A session has tickets: requests that wait or hold.
 * - A session is at one server. Calls that were sent stand in the order of their replies, there. In
 * a cluster it goes to another one when that server says so, or cannot be reached; it sends nothing
 * until the last call on its way has its answer.
 *
 * Threads. A thread that asks writes to the link itself, unless another one is writing: that one
 * takes along what has come up meanwhile. A thread that waits reads for all of the server, unless
 * another one is reading; when its own answer has come, it hands the role on. The thread of `run`
 * reads while no thread is in that role. The lock is never held across a system call on the link.
 * Links are made by threads of the host, one for each (redis_job.h).
 *
 * A ticket says in itself what has still to be sent for it. So after a loss of the link the calls
 * on their way are forgotten, and what is unknown is sent again, in the order of the serial
 * numbers. Each call on its way names the serial number of its ticket; a reply about another one is
 * late.
 *
 * Times are by CLOCK_BOOTTIME, in nanoseconds, unless another clock is named.
 */
#ifndef WEIR_REDIS_CONNECTION_H
#define WEIR_REDIS_CONNECTION_H

#include "redis_buffer.h"
#include "redis_definition.h"
#include "redis_link.h"
#include "redis_table.h"

#include <pthread.h>
#include <weir/backend.h>

#define REDIS_NEVER      UINT64_MAX
#define REDIS_NO_SLOT    UINT32_MAX
#define REDIS_SLOTS_MAX  (UINT32_C(1) << 20)
#define REDIS_LIMITS_MAX 64
#define REDIS_NODE_MAX   64
#define REDIS_PREFIX_MAX 128
#define REDIS_US         UINT64_C(1000)

enum redis_ticket_state {
    REDIS_ASKING = 1, /* to be asked, or asked */
    REDIS_QUEUED,     /* waits in the server's wait queue */
    REDIS_HELD,
    REDIS_CANCELING, /* to be canceled; may turn out to be granted */
    REDIS_RELEASING,
    REDIS_ENDED /* kept until the replies to its calls have come */
};

struct redis_decisions;

struct redis_list {
    struct redis_ticket *first, *last;
};

/* A request, and what it was granted. */
struct redis_ticket {
    struct redis_entry by_token; /* while it is ASKING or QUEUED */
    struct redis_session *session;
    struct redis_ticket *previous, *next; /* of the session */
    struct redis_list *list;              /* of what is to be decided, or NULL */
    struct redis_ticket *list_previous, *list_next;
    struct redis_waiter *waiter; /* the thread that waits for its answer, or NULL */
    uint64_t token;
    uint64_t serial; /* 0: never sent */
    uint64_t fence, at_us;
    uint64_t asked_ns, max_wait_ns;
    uint64_t deadline_ns; /* of the wait, by CLOCK_MONOTONIC: as the caller counts it */
    uint64_t version;     /* of the session, as of the last change */
    uint64_t listed;      /* the last weir_list that had it */
    uint64_t ready_us;    /* refused in this round: until then, REDIS_NEVER: not by time. Then,
                             queued: so long when that was decided */
    int64_t limiting;     /* refused in this round: by this limit; -1: by the wait queue */
    uint64_t latency_ns;  /* of a release */
    uint32_t state;       /* enum redis_ticket_state */
    uint32_t mode;        /* enum weir_backend_mode */
    uint32_t slot;
    uint32_t index;        /* of the set's tickets: a part of the hold */
    uint32_t calls_n;      /* on their way */
    uint32_t outcome;      /* of a release */
    uint8_t unsent;        /* its next call has to be sent */
    uint8_t returns;       /* the server has not confirmed what is left of it */
    uint8_t undo;          /* of a release */
    uint8_t named;         /* is in the table of tokens */
    uint8_t patient;       /* waits on while the server cannot be reached */
    uint8_t is_too_late;   /* refused because of max_wait */
    uint8_t is_foreign;    /* asks for limits that the server does not decide */
    uint8_t queues;        /* of such a request: the server is to queue it */
    uint8_t unsure;        /* a commit with it was lost, or its ticket is gone */
    uint8_t is_asserted;   /* held as the server changed: the text may lack what it took */
    uint8_t is_plain;      /* is released without its algorithms: they cannot be asked */
    uint8_t is_refused;    /* in this round */
    uint8_t is_behind;     /* since others wait */
    uint8_t is_impossible; /* for ever */
    uint64_t *used;        /* of a release: behind `amounts` */
    uint64_t *before;      /* foreign: what the server has of them; then what a part that goes back
                              leaves, if that is on its way */
    uint64_t amounts[];
};

enum redis_session_state { REDIS_CLOSED, REDIS_OPENING, REDIS_OPEN };

/* What this process has in one key. */
struct redis_session {
    struct redis_entry by_key;
    struct redis_set *set;
    struct redis_server *server, *target;  /* target: where it goes; NULL: it stays */
    struct redis_session *previous, *next; /* of the set */
    struct redis_ticket *first, *last;     /* tickets, by serial numbers; then those never sent */
    struct redis_decisions *decisions;     /* NULL: none yet (redis_decisions.h) */
    struct redis_ticket **slots;
    uint32_t *free_slots;
    uint32_t slots_n, slots_room, free_n;
    uint32_t state; /* enum redis_session_state */
    uint32_t tickets_n, held_n, waits_n, calls_n;
    uint64_t held_sum, waits_sum; /* of serial numbers, modulo 2^32 */
    uint64_t incarnation;         /* counts sessions that were opened here */
    uint64_t run;                 /* number of the server's run that knows the session */
    uint64_t version;             /* counts changes of tickets */
    uint64_t heartbeat_ns, expires_ns, pump_ns;
    uint64_t list, list_version; /* weir_list that is running, or 0; the version when it began */
    uint64_t lists_n;
    uint64_t resume_ns;  /* until then it sends nothing; 0: it may */
    uint64_t due_ns;     /* when it is to be looked at (redis_due.h) */
    uint32_t due_i;      /* its place in the heap */
    uint64_t inbox;      /* number of the inbox that the server knows */
    uint32_t mismatches; /* heartbeats in a row that did not fit what is known here */
    uint32_t redirects;  /* since the last answer */
    uint16_t cluster_slot;
    uint8_t unsent, known, beating;
    uint8_t asks;        /* each call is preceded by ASKING */
    uint8_t target_asks; /* as of its arrival */
    uint8_t waits;       /* a request of it may wait: it needs an inbox */
    int complained;      /* the last code that was logged */
    char node[REDIS_NODE_MAX];
    size_t key_size;
    char key[];
};

struct redis_set {
    struct redis_connection *connection;
    struct redis_set *previous, *next;
    void *context; /* the set, to the core */
    struct redis_session *sessions;
    struct redis_session *only; /* of a set without subjects */
    struct redis_table tokens;
    struct redis_ticket **tickets; /* by index */
    uint32_t *free_tickets;
    uint32_t tickets_room, tickets_n, free_n;
    uint32_t limits_n, has_subjects, counts_nodes;
    uint64_t serials;     /* the last one that was used */
    uint64_t *initial;    /* units that are there in each limit that is new */
    uint64_t *spare_ns;   /* when the core is to be asked for units of each limit to give back */
    uint8_t *holds;       /* 1: the limit is a counted resource */
    uint8_t *foreign;     /* 1: the limit is one that the server does not decide */
    uint8_t *returns;     /* 1: it is a resource of that kind */
    uint64_t states_size; /* of these limits, in bytes; 0: there are none */
    uint64_t max_waiters;
    uint64_t shape; /* what its revisions have in common (redis_definition.h) */
    uint32_t revision;
    uint8_t is_fair;
    uint8_t is_next; /* a definition that another set is to get, and nothing else */
    size_t definition_size, key_size;
    char *definition, *key; /* the key, without the brace that ends it */
};

/* A definition, behind the code of an error. */
#define REDIS_WAITER_TEXT (REDIS_DEFINITION_MAX + 32)

/* A thread in `wait`, `snapshot` or `set_apply`. */
struct redis_waiter {
    struct redis_session *session;        /* valid until it is answered */
    struct redis_server *server;          /* at which it sleeps; NULL: it is awake */
    struct redis_waiter *previous, *next; /* of those that sleep there */
    pthread_cond_t condition;
    int answered;
    struct weir_backend_snapshot *snapshot; /* of a snapshot */
    char *text; /* of set_apply: REDIS_WAITER_TEXT bytes for what the server has, or says */
    int result;
};

enum redis_call_kind {
    REDIS_CALL_OPEN = 1,
    REDIS_CALL_HEARTBEAT,
    REDIS_CALL_LEAVE,
    REDIS_CALL_ACQUIRE, /* or take, or reserve */
    REDIS_CALL_CANCEL,
    REDIS_CALL_RELEASE,
    REDIS_CALL_RETURN,
    REDIS_CALL_PUMP,
    REDIS_CALL_ASSERT,
    REDIS_CALL_LIST,
    REDIS_CALL_ORPHAN, /* ends a ticket of the server that is not known here */
    REDIS_CALL_ASKING,
    REDIS_CALL_SNAPSHOT,
    REDIS_CALL_BATCH,
    REDIS_CALL_UNBATCH,
    REDIS_CALL_FETCH,
    REDIS_CALL_COMMIT,
    REDIS_CALL_RESOLVE, /* finds out whether a ticket was granted */
    REDIS_CALL_LOOK,    /* the text, for a snapshot */
    REDIS_CALL_REDEFINE /* or sees whether it can be */
};

/* A call that has no reply yet. */
struct redis_call {
    uint32_t kind;                 /* enum redis_call_kind */
    struct redis_session *session; /* NULL: closed meanwhile */
    struct redis_ticket *ticket;   /* or NULL */
    struct redis_waiter *waiter;   /* of a snapshot, or of set_apply; NULL: it waits no more */
    uint64_t serial, incarnation, version, sent_ns;
    uint64_t tag;      /* of a batch */
    uint32_t limit;    /* of a batch */
    uint8_t asks;      /* it was preceded by ASKING */
    uint8_t is_urgent; /* a thread, or the wait queue, waits for the reply */
};

struct redis_options {
    struct redis_url urls[REDIS_URLS_MAX];
    uint32_t urls_n;
    struct redis_definition_options definition;
    uint64_t session_ns, timeout_ns;
    char *prefix, *password;
    char *sentinel; /* the name of the master, which Sentinels know; NULL: there are none */
    char *sentinel_password;
    char sentinel_user[sizeof(((struct redis_url *)NULL)->user)];
    struct redis_tls_context *tls; /* NULL: none */
};

/* The Sentinels of the URL. */
struct redis_sentinels {
    struct addrinfo *addresses[REDIS_URLS_MAX];
    uint8_t down[REDIS_URLS_MAX]; /* the last attempt has failed */
    uint32_t first;               /* the one to be asked first */
};

enum redis_job_state { REDIS_JOB_IDLE, REDIS_JOB_BUSY, REDIS_JOB_DONE };

/* What may block, in a thread of the host (redis_job.h). */
struct redis_job {
    struct redis_server *server;
    int (*main)(struct redis_job *job);
    uint32_t state; /* enum redis_job_state */
    uint8_t keeps;  /* the addresses are not to be looked up again */
    uint64_t began_ns;
    int result;
    struct redis_url url; /* of the server, or as it turns out */
    struct redis_link_how how;
    struct addrinfo *addresses;
    struct redis_link *link; /* that it has made */
    const struct redis_reply *reply;
};

/* A server, and what is on its way to it. */
struct redis_server {
    struct redis_connection *connection;
    struct redis_server *next;
    struct redis_url url;
    uint32_t sessions_n; /* sessions that are at it, or go there */
    uint64_t unused_ns;  /* when its links are to be taken down; 0: they are needed */
    uint8_t is_seed;     /* the URL names it */
    uint8_t is_known;    /* a slot names it, or the last description of the cluster */
    uint8_t ask_failed;  /* it could not describe the cluster */
    uint64_t asked_ns;   /* when it was asked to */

    /* The link, while it is `ready`: greeted, and not broken. */
    struct redis_link *link;
    uint8_t ready, broken, reading, writing, blocked;
    uint8_t needs_library, inbox_wanted;
    uint8_t down;      /* the last attempt to connect has failed */
    uint32_t watched;  /* events of the link that the thread of `run` is woken for */
    uint32_t failures; /* attempts since the server gave the last answer */
    uint64_t run;      /* number of the server's run, of all servers: grows with each */
    char run_id[REDIS_RUN_ID_MAX];
    struct redis_buffer outbox, sending;
    size_t sent;              /* bytes of `sending` */
    struct redis_call *calls; /* a ring */
    size_t calls_first, calls_n, calls_room;
    size_t urgent_n; /* calls on their way with a reply that is waited for */
    struct redis_waiter *waiters;
    uint64_t retry_ns;  /* when to connect again */
    uint64_t within_us; /* so long after its instant it takes a decision, as the last ones tell */
    int complained;     /* the last code of a failed attempt that was logged */
    struct redis_job link_job;

    /* The inbox. */
    struct redis_link *inbox;
    struct redis_job inbox_job;
    uint64_t inbox_retry_ns, inbox_heard_ns;
    uint32_t inbox_failures, inbox_calls_n;
    uint64_t inbox_n;        /* number of the name of the key; grows with each */
    uint64_t inbox_link_n;   /* the one that the link reads */
    uint32_t inbox_refusals; /* in a row: of reading it, and redirections */
    uint16_t inbox_slot;     /* in a cluster: of the key, or the last one that was tried */
    uint8_t inbox_leaves;    /* the slot of the key is on its way elsewhere */
    char inbox_key[REDIS_PREFIX_MAX + 48];
};

struct redis_connection {
    const struct weir_backend_host *host;
    struct redis_options options;
    pthread_mutex_t lock;
    struct redis_server *servers;
    struct redis_server *home; /* where a session goes if the server of its key is not known */
    struct redis_sentinels sentinels;
    struct redis_server **slots; /* of a cluster; NULL: there is none, or it is not known */
    struct redis_set *sets;
    struct redis_table keys;    /* sessions */
    struct redis_session **due; /* a heap of them (redis_due.h) */
    uint32_t due_n, due_room;
    uint32_t unsent_n;   /* sessions with something that could not be sent yet */
    uint32_t undone_n;   /* releases that are to be committed */
    char name[24];       /* of this process: random; empty before `run` */
    uint64_t sessions_n; /* names that were used */
    uint64_t runs_n;     /* runs of servers that were seen */
    uint64_t random;
    uint8_t stopping, is_cluster;
    uint32_t servers_n;

    /* The thread of `run`. */
    uint64_t describe_ns, described_ns; /* when a server is to be asked, and has been */
    uint32_t describe_attempts;         /* in vain, in a row */
    int describe_complained;            /* the last code that was logged */
    int find_complained;
    uint64_t find_ns; /* when to ask Sentinels whether the master still is one */
    struct redis_job describe_job, find_job;
    int epoll, event, timer;
    uint64_t sleeps_until_ns; /* 0: it is awake */
    uint64_t wake_ns; /* when it was told to look, since it began to: it may have passed by there */
};

/* Logs a line about a server. The thread of `run` writes it. The caller has the lock. */
void redis_log(const struct redis_server *server, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
