/* SPDX-License-Identifier: MIT */
/* Lives of threads: one word each, shared by the thread and by whoever asks. */
#include "base/thread_exit.h"

#include "os/os.h"
#include <pthread.h>
#include <stdatomic.h>

struct life {
    _Atomic uint64_t references; /* the thread's own, and one per life_hold */
    _Atomic bool over;
};

static _Thread_local struct life *mine __attribute__((tls_model("initial-exec")));

static pthread_key_t thread_end;
static pthread_once_t thread_end_once = PTHREAD_ONCE_INIT;
static bool thread_end_ready;

static void drop(struct life *life)
{
    if (atomic_fetch_sub(&life->references, 1) == 1)
        sys_free(life);
}

static void on_thread_end(void *life)
{
    mine = NULL;
    atomic_store(&((struct life *)life)->over, true);
    drop(life);
}

static void make_thread_end(void)
{
    thread_end_ready = pthread_key_create(&thread_end, on_thread_end) == 0;
}

static struct life *begin(void)
{
    struct life *life;

    pthread_once(&thread_end_once, make_thread_end);
    life = thread_end_ready ? sys_alloc(1, sizeof(*life)) : NULL;
    if (!life)
        return NULL;
    if (pthread_setspecific(thread_end, life) != 0) {
        sys_free(life);
        return NULL;
    }
    life->references = 1;
    return life;
}

struct life *life_hold(void)
{
    if (!mine)
        mine = begin();
    if (mine)
        atomic_fetch_add(&mine->references, 1);
    return mine;
}

void life_drop(struct life *life)
{
    if (!life)
        return;
    drop(life);
    /* Nobody asks any more; the thread itself may be the only one that is left to free it. */
    if (life != mine || atomic_load(&life->references) > 1)
        return;
    mine = NULL;
    pthread_setspecific(thread_end, NULL);
    drop(life);
}

bool life_is_over(const struct life *life)
{
    return atomic_load(&life->over);
}
