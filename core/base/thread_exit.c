/* SPDX-License-Identifier: MIT */
/* Exit states of threads: reference counted, and set by a pthread key's destructor. */
#include "base/thread_exit.h"

#include "base/invariant.h"
#include "os/os.h"
#include <pthread.h>
#include <stdatomic.h>

struct thread_exit_state {
    _Atomic uint64_t references; /* the thread's own, and one per thread_exit_ref */
    _Atomic bool has_ended;
};

static _Thread_local struct thread_exit_state *thread_exit_self
    __attribute__((tls_model("initial-exec")));

static pthread_key_t thread_exit_key;
static pthread_once_t thread_exit_once = PTHREAD_ONCE_INIT;
static bool thread_exit_key_is_valid;

static void thread_exit_put(struct thread_exit_state *state)
{
    WEIR_INVARIANT(atomic_load_explicit(&state->references, memory_order_relaxed) > 0);
    if (atomic_fetch_sub_explicit(&state->references, 1, memory_order_seq_cst) == 1)
        os_free(state);
}

static void thread_exit_on_end(void *state)
{
    thread_exit_self = NULL;
    atomic_store_explicit(&((struct thread_exit_state *)state)->has_ended, true,
                          memory_order_seq_cst);
    thread_exit_put(state);
}

static void thread_exit_create_key(void)
{
    thread_exit_key_is_valid = pthread_key_create(&thread_exit_key, thread_exit_on_end) == 0;
}

static struct thread_exit_state *thread_exit_create(void)
{
    struct thread_exit_state *state;

    pthread_once(&thread_exit_once, thread_exit_create_key);
    state = thread_exit_key_is_valid ? os_alloc(1, sizeof(*state)) : NULL;
    if (!state)
        return NULL;
    if (pthread_setspecific(thread_exit_key, state) != 0) {
        os_free(state);
        return NULL;
    }
    atomic_store_explicit(&state->references, 1, memory_order_seq_cst);
    return state;
}

struct thread_exit_state *thread_exit_ref(void)
{
    if (!thread_exit_self)
        thread_exit_self = thread_exit_create();
    if (thread_exit_self)
        atomic_fetch_add_explicit(&thread_exit_self->references, 1, memory_order_seq_cst);
    return thread_exit_self;
}

void thread_exit_unref(struct thread_exit_state *state)
{
    if (!state)
        return;
    thread_exit_put(state);
    /* If only the calling thread's own reference is left, it frees its state now. */
    if (state != thread_exit_self ||
        atomic_load_explicit(&state->references, memory_order_seq_cst) > 1)
        return;
    thread_exit_self = NULL;
    pthread_setspecific(thread_exit_key, NULL);
    thread_exit_put(state);
}

bool thread_exit_has_ended(const struct thread_exit_state *state)
{
    WEIR_INVARIANT(state);
    return atomic_load_explicit(&state->has_ended, memory_order_seq_cst);
}
