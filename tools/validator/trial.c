/* SPDX-License-Identifier: MIT */
#include "trial.h"
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define ARENA_FILL 0xa5 /* beside the bytes of an arena */
#define ARENAS_MAX 16u

static struct trial *trial_current; /* of this process, for the handler of faults */
static struct arena *arenas[ARENAS_MAX];

/* ---- findings ---- */

_Noreturn static void trial_end(struct trial *trial)
{
    trial->report->is_done = true;
    _exit(0);
}

_Noreturn void trial_fail(struct trial *trial, const char *format, ...)
{
    char *text = trial->report->finding;
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(trial->report->finding), format, args);
    va_end(args);
    trial_end(trial);
}

_Noreturn void trial_skip(struct trial *trial, const char *reason)
{
    snprintf(trial->report->skipped, sizeof(trial->report->skipped), "%s", reason);
    trial_end(trial);
}

void trial_note(struct trial *trial, const char *function, uint64_t now_ns, uint64_t amount)
{
    struct trial_report *report = trial->report;

    report->calls++;
    snprintf(report->doing, sizeof(report->doing), "%s at %llu ns, amount %llu", function,
             (unsigned long long)now_ns, (unsigned long long)amount);
}

/* SplitMix64 (S. Vigna). */
static uint64_t trial_mix(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t trial_used_ns(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

/* Gives the next round its time: a round that takes longer does not end. */
static void trial_limit_round(void)
{
    struct rlimit limit = {.rlim_cur = trial_used_ns() / 1000000000u + TRIAL_ROUND_S,
                           .rlim_max = RLIM_INFINITY};

    (void)setrlimit(RLIMIT_CPU, &limit);
}

bool trial_next(struct trial *trial)
{
    uint64_t state = trial->seed;

    trial_limit_round();
    if (trial->budget_ns ? trial->round && trial_used_ns() > trial->budget_ns
                         : trial->round == TRIAL_ROUNDS)
        return false;
    state = trial_mix(&state) + trial->round++;
    trial->random = trial_mix(&state);
    return true;
}

uint64_t trial_random(struct trial *trial)
{
    return trial_mix(&trial->random);
}

uint64_t trial_below(struct trial *trial, uint64_t n)
{
    return trial_random(trial) % n;
}

uint64_t trial_magnitude(struct trial *trial, uint64_t most)
{
    uint64_t value = trial_random(trial) >> trial_below(trial, 64);

    return value % most + 1;
}

/* ---- memory ---- */

static size_t arena_page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

void arena_make(struct trial *trial, struct arena *arena, const char *what, size_t size,
                bool at_the_end)
{
    size_t page = arena_page(), inner = (size + 16 + page - 1) / page * page, i = 0;
    unsigned char *pages =
        mmap(NULL, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (pages == MAP_FAILED || mprotect(pages + page, inner, PROT_READ | PROT_WRITE) < 0)
        trial_skip(trial, "there is too little memory");
    memset(pages + page, ARENA_FILL, inner);
    *arena = (struct arena){.what = what,
                            .pages = pages,
                            .pages_size = inner + 2 * page,
                            .size = size,
                            .data = pages + page + (at_the_end ? (inner - size) / 16 * 16 : 0)};
    if (at_the_end && size % 8 == 0)
        arena->data = pages + page + inner - size;
    memset(arena->data, 0, size);
    while (i < ARENAS_MAX - 1 && arenas[i])
        i++;
    arenas[i] = arena;
}

void arena_free(struct arena *arena)
{
    for (size_t i = 0; i < ARENAS_MAX; i++)
        if (arenas[i] == arena)
            arenas[i] = NULL;
    munmap(arena->pages, arena->pages_size);
}

void arena_freeze(struct arena *arena, bool is_frozen)
{
    size_t page = arena_page();

    (void)mprotect(arena->pages + page, arena->pages_size - 2 * page,
                   is_frozen ? PROT_READ : PROT_READ | PROT_WRITE);
    arena->is_frozen = is_frozen;
}

static bool arena_is_filled(const unsigned char *begin, const unsigned char *end)
{
    return begin >= end ||
           (*begin == ARENA_FILL && memcmp(begin, begin + 1, (size_t)(end - begin) - 1) == 0);
}

void arena_check(struct trial *trial, const struct arena *arena)
{
    size_t page = arena_page();
    const unsigned char *end = arena->pages + arena->pages_size - page;

    if (!arena_is_filled(arena->pages + page, arena->data))
        trial_fail(trial, "writes before %s", arena->what);
    if (!arena_is_filled(arena->data + arena->size, end))
        trial_fail(trial, "writes behind %s", arena->what);
}

__attribute__((noinline)) void trial_fill_stack(unsigned char byte)
{
    volatile unsigned char stack[8192];

    for (size_t i = 0; i < sizeof(stack); i++)
        stack[i] = byte;
}

/* ---- faults ---- */

/* Says what lies at an address that must not be touched, or NULL. */
static const struct arena *trial_arena_at(const void *address, bool *ret_is_inside)
{
    const unsigned char *at = address;
    size_t page = arena_page();

    for (size_t i = 0; i < ARENAS_MAX; i++) {
        const struct arena *arena = arenas[i];

        if (!arena || at < arena->pages || at >= arena->pages + arena->pages_size)
            continue;
        *ret_is_inside = at >= arena->pages + page && at < arena->pages + arena->pages_size - page;
        return arena;
    }
    return NULL;
}

static void trial_on_fault(int number, siginfo_t *info, void *context)
{
    struct trial *trial = trial_current;
    bool is_inside = false;
    const struct arena *arena =
        number == SIGSEGV || number == SIGBUS ? trial_arena_at(info->si_addr, &is_inside) : NULL;

    (void)context;
    if (number == SIGSYS)
        trial_fail(trial, "makes system call %d", info->si_syscall);
    if (number == SIGXCPU)
        trial_fail(trial, "does not end");
    if (arena && is_inside)
        trial_fail(trial, "writes %s, which it must not", arena->what);
    if (arena)
        trial_fail(trial, "reads or writes beyond %s", arena->what);
    trial_fail(trial, "crashes: %s%s", strsignal(number),
               number == SIGSEGV && !info->si_addr ? ", by a null pointer" : "");
}

void trial_catch_faults(struct trial *trial)
{
    static unsigned char stack[65536];
    static const int faults[] = {SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                                 SIGABRT, SIGTRAP, SIGSYS, SIGXCPU};
    const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof(stack)};
    struct sigaction action = {.sa_sigaction = trial_on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};

    trial_current = trial;
    sigaltstack(&alternate, NULL);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        sigaction(faults[i], &action, NULL);
}

/* ---- static data ---- */

/* Writable memory of a loaded file, without what the loader has made read-only. */
struct statics {
    const unsigned char *at[8];
    unsigned char *copy[8];
    size_t size[8];
    unsigned n;
    const void *address; /* in the file */
};

static bool statics_has(const struct dl_phdr_info *info, const void *address)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;

        if (info->dlpi_phdr[i].p_type == PT_LOAD && (uintptr_t)address >= begin &&
            (uintptr_t)address < begin + info->dlpi_phdr[i].p_memsz)
            return true;
    }
    return false;
}

/* Adds what lies in a segment before and behind what is read-only after the relocation. */
static void statics_add(struct statics *statics, uintptr_t begin, uintptr_t end,
                        const struct dl_phdr_info *info)
{
    size_t page = arena_page();

    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t relro_end = info->dlpi_addr + header->p_vaddr + header->p_memsz;

        if (header->p_type == PT_GNU_RELRO && relro_end > begin && relro_end <= end + page)
            begin = relro_end / page * page;
    }
    if (begin < end && statics->n < sizeof(statics->at) / sizeof(statics->at[0])) {
        statics->at[statics->n] =
            (const unsigned char *)begin; /* NOLINT: an address of the loader */
        statics->size[statics->n++] = end - begin;
    }
}

static int statics_look(struct dl_phdr_info *info, size_t size, void *userdata)
{
    struct statics *statics = userdata;

    (void)size;
    if (!statics_has(info, statics->address))
        return 0;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + header->p_vaddr;

        if (header->p_type == PT_LOAD && header->p_flags & PF_W)
            statics_add(statics, begin, begin + header->p_memsz, info);
    }
    return 1;
}

struct statics *statics_of(struct trial *trial, const void *address)
{
    static struct statics statics;

    statics = (struct statics){.address = address};
    dl_iterate_phdr(statics_look, &statics);
    for (unsigned i = 0; i < statics.n; i++) {
        statics.copy[i] = malloc(statics.size[i]);
        if (!statics.copy[i])
            trial_skip(trial, "there is too little memory");
        memcpy(statics.copy[i], statics.at[i], statics.size[i]);
    }
    return &statics;
}

void statics_check(struct trial *trial, const struct statics *statics)
{
    for (unsigned i = 0; i < statics->n; i++)
        if (memcmp(statics->copy[i], statics->at[i], statics->size[i]) != 0)
            trial_fail(trial, "changes static data of its file");
}
