/* SPDX-License-Identifier: MIT */
/*
 * Looks at much, as all records or all subjects, that another thread may want to end. A thread that
 * does so has a question that they ask after each LONG_LOOK_STEPS steps. A look that was ended
 * returns what it has come to, which is not to be used.
 */
#ifndef WEIR_CORE_BASE_LONG_LOOK_H
#define WEIR_CORE_BASE_LONG_LOOK_H

#include <stdbool.h>
#include <stdint.h>

#define LONG_LOOK_STEPS 1024u

/* The question of a thread; its owner keeps it as long as the thread has it. */
struct long_look {
    bool (*goes_on)(void *userdata);
    void *userdata;
    uint64_t steps;
    bool has_ended; /* the answer was no, and is so from then on */
};

/* The calling thread's; NULL: its looks go on to their ends. */
extern _Thread_local struct long_look *long_look_self __attribute__((tls_model("initial-exec")));

/* Takes a step of a look of the calling thread. Returns whether it goes on. */
static inline bool long_look_goes_on(void)
{
    struct long_look *look = long_look_self;

    if (!look)
        return true;
    if (look->steps++ % LONG_LOOK_STEPS == 0 && !look->has_ended)
        look->has_ended = !look->goes_on(look->userdata);
    return !look->has_ended;
}

#endif
