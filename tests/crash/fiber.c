/* SPDX-License-Identifier: MIT */
/* Fibers: see fiber.h. */
#include "fiber.h"

#include "system.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define STACK_SIZE   ((size_t)128 << 10)
#define SLEEPERS_MAX 16u
#define PATIENCE     1000000u

static ucontext_t outside;
static struct fiber *current;
static uint64_t steps, patience; /* since a fiber was last run */
static struct fiber *sleepers[SLEEPERS_MAX];
static struct fiber *started; /* all that have a stack */
static void (*look_hook)(void);

bool fibers_are_possible(void)
{
    if (UNDER_TSAN)
        printf("fibers cannot be had under ThreadSanitizer: SKIPPED\n");
    return !UNDER_TSAN;
}

static void leave(void)
{
    swapcontext(&current->context, &outside);
}

/* What is broken may turn in circles for ever. */
static void bear(void)
{
    if (++patience <= PATIENCE)
        return;
    fprintf(stderr, "this does not come to an end\n");
    _exit(1);
}

static void on_step(void)
{
    if (look_hook)
        look_hook();
    steps++;
    bear();
    if (current && current->left && --current->left == 0)
        leave();
}

static uint32_t value_of(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static int on_wait(const uint32_t *word, uint32_t expected, uint64_t until_ns)
{
    struct fiber *self = current;
    uint32_t i = 0;

    if (!self || value_of(word) != expected)
        return -EAGAIN;
    self->state = FIBER_ASLEEP;
    self->futex = word;
    self->expected = expected;
    self->until_ns = until_ns;
    while (i < SLEEPERS_MAX - 1 && sleepers[i] && sleepers[i] != self)
        i++;
    sleepers[i] = self;
    leave();
    return 0;
}

static void wake(struct fiber *fiber)
{
    for (uint32_t i = 0; i < SLEEPERS_MAX; i++)
        if (sleepers[i] == fiber)
            sleepers[i] = NULL;
    fiber->state = FIBER_READY;
}

static void on_wake(const uint32_t *word)
{
    for (uint32_t i = 0; i < SLEEPERS_MAX; i++)
        if (sleepers[i] && sleepers[i]->futex == word)
            wake(sleepers[i]);
}

void fibers_begin(void (*look)(void))
{
    look_hook = look;
    step_hook = on_step;
    wait_hook = on_wait;
    wake_hook = on_wake;
    steps = 0;
}

void fibers_end(void)
{
    step_hook = NULL;
    wait_hook = NULL;
    wake_hook = NULL;
    for (struct fiber *fiber; (fiber = started);) {
        started = fiber->next;
        wake(fiber);
        free(fiber->stack);
        fiber->stack = NULL;
    }
}

uint64_t fiber_steps(void)
{
    return steps;
}

static void enter(void)
{
    current->run(current->argument);
    current->state = FIBER_DONE;
    leave();
}

static void make_stack(struct fiber *fiber)
{
    fiber->stack = malloc(STACK_SIZE);
    if (!fiber->stack)
        abort();
    fiber->next = started;
    started = fiber;
}

void fiber_start(struct fiber *fiber, void (*run)(void *), void *argument)
{
    wake(fiber);
    if (!fiber->stack)
        make_stack(fiber);
    fiber->run = run;
    fiber->argument = argument;
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = STACK_SIZE;
    fiber->context.uc_link = NULL;
    makecontext(&fiber->context, enter, 0);
}

enum fiber_state fiber_go(struct fiber *fiber, uint64_t n)
{
    if (fiber->state != FIBER_READY)
        return fiber->state;
    fiber->left = n;
    patience = 0;
    current = fiber;
    swapcontext(&outside, &fiber->context);
    current = NULL;
    return fiber->state;
}

uint32_t fibers_missed(const struct fiber *fibers, uint32_t n)
{
    uint32_t missed = 0;

    for (uint32_t i = 0; i < n; i++)
        missed +=
            fibers[i].state == FIBER_ASLEEP && value_of(fibers[i].futex) != fibers[i].expected;
    return missed;
}

void fibers_on_time(struct fiber *fibers, uint32_t n, uint64_t now_ns)
{
    for (uint32_t i = 0; i < n; i++)
        if (fibers[i].state == FIBER_ASLEEP && fibers[i].until_ns <= now_ns)
            wake(&fibers[i]);
}
