/* SPDX-License-Identifier: MIT */
/*
 * Completion queues: waiting for very many acquisitions through one file descriptor, without a
 * thread.
 *
 *     weir_queue_open → weir_queue_submit … → (fd readable) → weir_queue_reap → weir_release
 *
 * Each successful submission is followed by exactly one completion, whether it was granted at once,
 * granted later, or refused. Only the program advances a completion queue: weir_queue_reap hands
 * out what was decided and does what time has made due. So reap in time: while a submission of this
 * completion queue is the head of a private set's wait queue and only time is missing, the waiters
 * behind it wait for that reap as well, or for a call that the set would refuse. Waiters of a
 * shared set need not wait for it (docs/processes.md, "Stopped").
 *
 * Level-triggered (poll, epoll, most loops): reap once per event; the rest makes another event:
 *
 *     while (poll(&(struct pollfd){weir_queue_fd(queue), POLLIN, 0}, 1, -1) >= 0)
 *         for (int i = 0, n = weir_queue_reap(queue, done, N); i < n; i++)
 *             handle(&done[i]);
 *
 * Edge-triggered (EPOLLET, a multishot poll): reap until a call returns fewer than it was offered
 * room for; only then does the next completion make a new edge:
 *
 *     int n;
 *     do {
 *         n = weir_queue_reap(queue, done, N);
 *         for (int i = 0; i < n; i++)
 *             handle(&done[i]);
 *     } while (n == N);
 *
 * Any thread submits and cancels; one thread at a time reaps.
 */
#ifndef WEIR_QUEUE_H
#define WEIR_QUEUE_H

#include <weir/acquisition.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_queue weir_queue;

/* The largest capacity of a completion queue. */
#define WEIR_QUEUE_CAPACITY_MAX (1u << 26)

struct weir_completion {
    uint64_t user_data;            /* of the submission */
    weir_acquisition *acquisition; /* granted: the caller's, to release. Otherwise NULL, unless
                                      the submission had a `ret`: then that acquisition, to
                                      release */
    int result;                    /* 0, -ETIMEDOUT, -EAGAIN (would wait, or has waited, longer than
                                      max_wait), -ENOBUFS, -ECANCELED, -ESHUTDOWN, -EUCLEAN,
                                      -EHOSTUNREACH, -EEXIST, -EACCES */
    uint32_t reserved;             /* 0 */
    struct weir_refusal refusal;   /* on -EAGAIN, -ENOBUFS and -ETIMEDOUT: the limit that refused
                                      and when to try again, as of the reap. Behind a long wait
                                      queue the forecast may leave the waiters out. */
};

/*
 * Opens a completion queue. It is for at most `capacity` submissions that were not reaped yet, from
 * 1 to WEIR_QUEUE_CAPACITY_MAX. `*ret` is the caller's until weir_queue_close. Until it is used it
 * takes next to no memory.
 *
 * It takes one descriptor; two if there is a shared set or the clock is injected; three if the
 * kernel lacks the timerfd feature of CONFIG_CHECKPOINT_RESTORE. It takes one more for each shared
 * set that it is submitted to. If there was no shared set when it was opened, the instance's timer
 * thread receives the events of the other processes for it. Returns 0, -EINVAL, -ENOMEM, -EMFILE,
 * -ENFILE, -ESHUTDOWN, -ECHILD. Any thread.
 * [any thread, changes]
 */
WEIR_PUBLIC WEIR_MUST_CHECK int weir_queue_open(weir_queue **ret, weir *w, unsigned capacity);

/*
 * Submits a request to a completion queue. One completion with `user_data` follows, even if the
 * request was decided by this call. On an error no completion follows and nothing was taken;
 * `retref`, if not NULL, is filled as by weir_acquire.
 *
 * With `ret` not NULL the caller has the acquisition at once, not only with the completion, and
 * must release it. It serves to read its result, or to cancel this submission and no other
 * (weir_cancel). Releasing it before its completion was reaped withdraws the submission: no
 * completion follows. It must not be used by one thread while another reaps this completion queue.
 * It has no fd of its own until it was reaped. Such completions can also come as CQEs
 * (weir_queue_attach). The request is copied as far as needed. Any thread. Returns
 *   0            one completion follows
 *   -ENOSPC      `capacity` submissions were not reaped yet
 *   -EINVAL      as weir_acquire; or pool and completion queue are not of one instance; or the
 *                request is nested, and `ret` is NULL
 *   -EDEADLK, -ERANGE, -ENOENT, -ENOMEM, -EUCLEAN, -ESHUTDOWN, -ESTALE, -ECHILD  as weir_acquire
 *   -EMFILE, -ENFILE, …  from the kernel: the completion queue cannot receive the events of the
 *                other processes that share the set, or the timer thread those of the clock; or it
 *                is a pool with WEIR_POOL_WAIT_ANY, and there can be no timer thread
 * [any thread, changes]
 */
WEIR_PUBLIC WEIR_MUST_CHECK int weir_queue_submit(weir_queue *queue, weir_pool *pool,
                                                  const struct weir_request *request,
                                                  uint64_t user_data, weir_acquisition **ret,
                                                  struct weir_refusal *retref);

/*
 * Cancels every submission with this user_data; each still completes, with -ECANCELED. A grant that
 * came first but was not reaped is undone, with refunds as acquisition.h says at its top. If the
 * program has its acquisition (`ret` of weir_queue_submit), it completes as granted. Returns how
 * many were canceled, or -ECHILD. Takes constant time on average besides the removal from the wait
 * queue. Any thread.
 * [any thread, changes]
 */
WEIR_PUBLIC int weir_queue_cancel(weir_queue *queue, uint64_t user_data);

/*
 * Returns a descriptor that is readable while there is something to reap. That (POLLIN) is a
 * completion, or something that has become due and that only a reap does. It is close-on-exec, to
 * be waited for and nothing else, and fit for any poll, select, epoll (level- or edge-triggered) or
 * io_uring poll. It belongs to the completion queue and must not be closed. It becomes readable up
 * to 8 µs before a deadline, less if the program is quick to reap; a reap that comes early waits
 * for the rest. Completions make no system calls for it before the first call of this function.
 *
 * There is one event per change from empty to not empty. A spurious event finds nothing to reap. It
 * can follow a completion that was withdrawn or reaped while it was being signaled, a deadline
 * without a waiter, or a recheck of a shared set: waiters check it periodically, and the reap
 * completes what a dead or stopped process has left undone. Any thread. Returns
 * the descriptor, -EINVAL (`queue` is NULL) or -ECHILD.
 * [any thread, reads]
 */
WEIR_PUBLIC int weir_queue_fd(weir_queue *queue);

/*
 * Does what has become due, then hands out at most `n` completions, in the order in which they were
 * decided. Never sleeps. Returns how many; -EINVAL (`out` is NULL); -ENOMEM if there was no memory
 * for a single one (nothing is lost: reap again); -ECHILD. With n = 0 it only does what is due.
 * With an injected clock that leaves out what requests of a pool with WEIR_POOL_WAIT_ANY wait for:
 * call weir_tick() first.
 * [one thread, changes]
 */
WEIR_PUBLIC int weir_queue_reap(weir_queue *queue, struct weir_completion *out, unsigned n);

/*
 * Attaches the completion queue to a ring (io_uring) of the program. From now on each completion of
 * a submission with `ret` (see weir_queue_submit) is posted to the ring as a CQE: `user_data` that
 * of the submission, `res` the result (0 or a negative errno), `flags` 0. Nothing is reaped for it:
 * go on with the acquisition; weir_acquisition_refusal has its refusal. Completions that were
 * decided before and not reaped are posted first. Completions of all other submissions are reaped
 * as before, because their grants could not be released by anything else.
 *
 * Time: an attached completion queue needs no reap to advance, because the instance's timer thread
 * does that (with an injected clock weir_tick). The descriptor may become readable spuriously.
 *
 * Call this in the thread that takes the CQEs. When that thread ends, when the ring is closed, when
 * a sandbox closes in, or when the kernel refuses a message for whatever reason, posting ends by
 * itself. The log callback is called once, and what was not posted, as well as all that follows, is
 * reaped until the completion queue is attached again. So watch weir_queue_fd as well, best by a
 * multishot poll on the same ring. Nothing is lost: a completion is either posted or reaped. (A
 * completion posted to a ring that is no longer read counts as posted; the program has the
 * acquisition.) A full CQ loses nothing: the kernel keeps what does not fit, and liburing fetches
 * it.
 *
 * The program that takes a CQE has the acquisition as if it had been reaped, and finds it where
 * `ret` pointed, though weir_queue_submit may still be under way. Before that, the program may at
 * any time, while other threads release and time passes,
 *   weir_cancel it     0: its CQE says -ECANCELED; -EALREADY: it says how it was decided before;
 *   weir_release it    its CQE may come or not, so better cancel it and release it at its CQE.
 *
 * `ring_fd` is the ring's own descriptor (`ring.ring_fd`) or a duplicate, and must stay open: once
 * it is closed the ring counts as closed. Rings of every kind do, DEFER_TASKRUN ones too; those see
 * a CQE when their thread next asks for completions. weir sends from no thread of the program by
 * way of a ring, so no call of the program is interrupted for it.
 *
 * Detach before the ring goes (io_uring_queue_exit): weir has a duplicate of its descriptor, which
 * keeps it, and what the program has in flight on it, until posting ends.
 *
 * Returns 0; 1 (not attached, everything is reaped: this kernel, a sandbox, or a build of weir
 * without liburing does not let it post; the log callback is called once); -EBUSY (it is attached);
 * -EBADF (`ring_fd` is not open); -EBADFD (not a ring, or one that is not enabled yet); -EEXIST (a
 * DEFER_TASKRUN ring, of another thread); -EINVAL (`queue` is NULL), -EMFILE, -ENFILE, -ENOMEM,
 * -EAGAIN (no thread can be started), -ESHUTDOWN, -ECHILD, or the kernel's error of starting a
 * thread. On an error nothing has changed. Linux 5.18 or later; since 6.13 the deciding thread also
 * posts, before that the timer thread does. One thread at a time attaches and detaches.
 * [one thread, changes]
 */
WEIR_PUBLIC int weir_queue_attach(weir_queue *queue, int ring_fd);

/*
 * Detaches the completion queue from its ring, also if posting has ended by itself. Nothing is
 * posted after this call, and what was not posted is reaped. Called in the ring's own thread it
 * leaves no message under way either: all that was posted is on the CQ. weir_queue_close detaches
 * as well; so does weir_close, after it has posted what it decides (-ESHUTDOWN). Returns 0, also if
 * the completion queue is not attached; -EINVAL (`queue` is NULL); -ECHILD.
 * [one thread, changes]
 */
WEIR_PUBLIC int weir_queue_detach(weir_queue *queue);

/*
 * Closes the completion queue. What was not reaped is canceled, grants are undone, with refunds as
 * acquisition.h says at its top, and no completion follows. Acquisitions that the program has stay
 * its own and must still be released; another thread may do so meanwhile. Otherwise no other thread
 * may be using the completion queue, nor cancel such an acquisition. Also after weir_close. NULL is
 * fine. Returns NULL.
 * [one thread, changes]
 */
WEIR_PUBLIC weir_queue *weir_queue_close(weir_queue *queue);

#ifdef __cplusplus
}
#endif
#endif
