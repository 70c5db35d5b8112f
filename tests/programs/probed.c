/* SPDX-License-Identifier: MIT */
/*
 * A program with known events, and a tool that looks at its probes from within: what uprobes do
 * from the kernel, where no privilege is needed. A breakpoint in place of each probe's nop counts,
 * and evaluates the arguments as the notes of the library say where they are.
 *
 *     probed inside          compares the probes with what a listener hears
 *     probed wait ROUNDS     waits for a line, makes the events, and prints how many they were
 */
#include "lib/require.h"
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <weir/weir.h>

#define MS      UINT64_C(1000000)
#define SKIPPED 77
#define PARENT  "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

/* ---- events ---- */

static weir *w;
static weir_pool *pool;

static const char *const names[] = {
    [WEIR_EVENT_REQUEST] = "request", [WEIR_EVENT_GRANT] = "grant",
    [WEIR_EVENT_REFUSAL] = "refusal", [WEIR_EVENT_WAIT] = "wait",
    [WEIR_EVENT_RELEASE] = "release", [WEIR_EVENT_TIMEOUT] = "timeout",
    [WEIR_EVENT_CANCEL] = "cancel",   [WEIR_EVENT_OVERHELD] = "overheld",
};
enum { TYPES_N = sizeof(names) / sizeof(*names) };

/* What one round is made of, by type. Nothing is held for too long: that takes time. */
static const unsigned per_round[TYPES_N] = {
    [WEIR_EVENT_REQUEST] = 9, [WEIR_EVENT_GRANT] = 6,   [WEIR_EVENT_REFUSAL] = 1,
    [WEIR_EVENT_WAIT] = 3,    [WEIR_EVENT_RELEASE] = 6, [WEIR_EVENT_TIMEOUT] = 1,
    [WEIR_EVENT_CANCEL] = 1,
};

static void open_set(void)
{
    const struct weir_options options = {
        .size = sizeof(options),
        .text = "version: 1\nsets: { probed: { limits: [ { type: resource, key: slots,"
                " capacity: 1 } ] } }"};

    require(weir_open(&w, &options, NULL) == 0);
    require(weir_pool_open(&pool, w, "probed", 0, NULL) == 0);
}

static void make_round(void)
{
    struct weir_request request = {.size = sizeof(request), .traceparent = PARENT};
    weir_acquisition *a = NULL, *b = NULL;
    struct pollfd readable = {.events = POLLIN};

    require(weir_acquire(pool, &request, &a, NULL) == 0);
    require(weir_release(&a) == 0);

    require(weir_acquire(pool, &request, &a, NULL) == 0);
    require(weir_try_acquire(pool, NULL, &b, NULL) == -EAGAIN);
    require(weir_release(&a) == 0);

    require(weir_acquire(pool, NULL, &a, NULL) == 0);
    require(weir_submit(pool, &request, &b, NULL) == 1);
    require(weir_release(&a) == 0);
    readable.fd = weir_acquisition_fd(b);
    require(poll(&readable, 1, -1) == 1);
    require(weir_acquisition_result(b) == 0);
    require(weir_release(&b) == 0);

    require(weir_acquire(pool, &request, &a, NULL) == 0);
    request.timeout_ns = 2 * MS;
    require(weir_acquire(pool, &request, &b, NULL) == -ETIMEDOUT);
    request.timeout_ns = 0;
    require(weir_submit(pool, &request, &b, NULL) == 1);
    require(weir_cancel(b) == 0);
    require(weir_release(&b) == 0);
    require(weir_release(&a) == 0);
    require(weir_acquire(pool, &request, &a, NULL) == 0);
    require(weir_release(&a) == 0);
}

static void print_counts(const unsigned *counts)
{
    for (int i = 1; i < TYPES_N; i++)
        printf("%s %u\n", names[i], counts[i]);
    fflush(stdout);
}

static int wait_and_make(unsigned rounds)
{
    unsigned counts[TYPES_N];
    char line[16];

    open_set();
    make_round(); /* of which no tool knows */
    printf("ready\n");
    fflush(stdout);
    require(fgets(line, sizeof(line), stdin));
    for (unsigned i = 0; i < rounds; i++)
        make_round();
    for (int i = 0; i < TYPES_N; i++)
        counts[i] = per_round[i] * rounds;
    print_counts(counts);
    require(fgets(line, sizeof(line), stdin)); /* until the tool has left */
    weir_pool_close(pool);
    weir_close(w);
    return 0;
}

#if defined __x86_64__

/* ---- probes, as the notes of the library describe them ---- */

enum { SITES_MAX = 16, ARGUMENTS_N = 8 };

static struct site {
    unsigned char *at;         /* the nop */
    unsigned short *semaphore; /* what a tool adds to */
    const char *arguments;
    int type;
} sites[SITES_MAX];
static unsigned sites_n;

struct object {
    const char *path;
    ElfW(Addr) base;
};

static int find_library(struct dl_phdr_info *info, size_t size, void *ret)
{
    (void)size;
    if (!strstr(info->dlpi_name, "libweir.so"))
        return 0;
    *(struct object *)ret = (struct object){info->dlpi_name, info->dlpi_addr};
    return 1;
}

static int type_of(const char *name)
{
    for (int i = 1; i < TYPES_N; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return 0;
}

/* Reads one note: three addresses, then provider, name and arguments as texts. */
static void read_site(const char *content, ElfW(Addr) load, ElfW(Addr) base_section)
{
    uint64_t words[3];
    const char *provider = content + sizeof(words), *name = provider + strlen(provider) + 1;
    struct site *site = &sites[sites_n];
    ElfW(Addr) shift;

    memcpy(words, content, sizeof(words));
    shift = load + base_section - words[1];
    if (strcmp(provider, "weir") != 0)
        return;
    require(sites_n < SITES_MAX);
    site->at = (unsigned char *)(words[0] + shift);
    site->semaphore = (unsigned short *)(words[2] + shift);
    site->arguments = name + strlen(name) + 1;
    site->type = type_of(name);
    require(site->type && words[2] != 0);
    sites_n++;
}

static void read_sites(void)
{
    struct object object = {NULL, 0};
    const char *file, *section_names, *notes = NULL, *end = NULL;
    const ElfW(Ehdr) * header;
    const ElfW(Shdr) * sections;
    ElfW(Addr) base_section = 0;
    struct stat status;
    int fd;

    require(dl_iterate_phdr(find_library, &object) == 1);
    fd = open(object.path, O_RDONLY | O_CLOEXEC);
    require(fd >= 0 && fstat(fd, &status) == 0);
    file = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    require(file != MAP_FAILED); /* and stays: sites point into it */
    close(fd);
    header = (const void *)file;
    sections = (const void *)(file + header->e_shoff);
    section_names = file + sections[header->e_shstrndx].sh_offset;
    for (int i = 0; i < header->e_shnum; i++) {
        const char *name = section_names + sections[i].sh_name;

        if (strcmp(name, ".stapsdt.base") == 0)
            base_section = sections[i].sh_addr;
        if (strcmp(name, ".note.stapsdt") == 0) {
            notes = file + sections[i].sh_offset;
            end = notes + sections[i].sh_size;
        }
    }
    while (notes < end) {
        const ElfW(Nhdr) *note = (const void *)notes;
        const char *content = notes + sizeof(*note) + ((note->n_namesz + 3) & ~3u);

        read_site(content, object.base, base_section);
        notes = content + ((note->n_descsz + 3) & ~3u);
    }
}

/* ---- arguments: "8@%rax", "-4@$-11", "8@16(%rsp)" ---- */

static const struct {
    char name[5];
    int number;
} registers[] = {
    {"rax", REG_RAX},  {"eax", REG_RAX},  {"rbx", REG_RBX},  {"ebx", REG_RBX},  {"rcx", REG_RCX},
    {"ecx", REG_RCX},  {"rdx", REG_RDX},  {"edx", REG_RDX},  {"rsi", REG_RSI},  {"esi", REG_RSI},
    {"rdi", REG_RDI},  {"edi", REG_RDI},  {"rbp", REG_RBP},  {"ebp", REG_RBP},  {"rsp", REG_RSP},
    {"r8", REG_R8},    {"r8d", REG_R8},   {"r9", REG_R9},    {"r9d", REG_R9},   {"r10", REG_R10},
    {"r10d", REG_R10}, {"r11", REG_R11},  {"r11d", REG_R11}, {"r12", REG_R12},  {"r12d", REG_R12},
    {"r13", REG_R13},  {"r13d", REG_R13}, {"r14", REG_R14},  {"r14d", REG_R14}, {"r15", REG_R15},
    {"r15d", REG_R15},
};

/* Reads the name of a register, and moves on. */
static uint64_t read_register(const char **text, const ucontext_t *context)
{
    char name[5] = "";
    size_t n = strspn(*text, "abcdefghijklmnopqrstuvwxyz0123456789");

    require(n < sizeof(name));
    memcpy(name, *text, n);
    *text += n;
    for (size_t i = 0; i < sizeof(registers) / sizeof(*registers); i++)
        if (strcmp(registers[i].name, name) == 0)
            return (uint64_t)context->uc_mcontext.gregs[registers[i].number];
    require(!"a register that is known");
    return 0;
}

static uint64_t narrow(uint64_t value, long size)
{
    if (size == 8 || size == -8)
        return value;
    require(size == 4 || size == -4);
    return size == 4 ? (uint32_t)value : (uint64_t)(int64_t)(int32_t)value;
}

/* Evaluates the next argument, and moves on. */
static uint64_t read_argument(const char **text, const ucontext_t *context)
{
    char *end;
    long size = strtol(*text, &end, 10), offset;
    uint64_t value;

    require(*end == '@');
    *text = end + 1;
    if (**text == '%') {
        ++*text;
        value = read_register(text, context);
    } else if (**text == '$') {
        value = (uint64_t)strtoll(*text + 1, &end, 10);
        *text = end;
    } else {
        offset = strtol(*text, &end, 10);
        require(end[0] == '(' && end[1] == '%');
        *text = end + 2;
        value = read_register(text, context) + (uint64_t)offset;
        require(**text == ')');
        ++*text;
        memcpy(&value, (const void *)value, size == 4 || size == -4 ? 4 : 8);
    }
    require(**text == ' ' || !**text);
    *text += **text == ' ';
    return narrow(value, size);
}

/* ---- breakpoints ---- */

static unsigned hits[TYPES_N], heard[TYPES_N];

/* What the last probe said: names and numbers by value, as they go with the event. */
static struct passed {
    int type;
    uint64_t arguments[ARGUMENTS_N];
    char set[16], key[16];
    uint64_t amount;
    struct weir_trace trace;
} passed;

static void copy_text(char ret[16], uint64_t address)
{
    const char *text = (const char *)address;
    size_t size = strlen(text) + 1;

    require(size <= 16);
    memcpy(ret, text, size);
}

static void note_passed(const struct site *site, const ucontext_t *context)
{
    const char *text = site->arguments;

    passed = (struct passed){.type = site->type};
    for (int i = 0; i < ARGUMENTS_N; i++)
        passed.arguments[i] = read_argument(&text, context);
    require(!*text);
    copy_text(passed.set, passed.arguments[0]);
    require(passed.arguments[7] == 1);
    memcpy(&passed.amount, (const void *)passed.arguments[4], sizeof(passed.amount));
    if (passed.arguments[6])
        memcpy(&passed.trace, (const void *)passed.arguments[6], sizeof(passed.trace));
    copy_text(passed.key, passed.arguments[3]);
    hits[site->type]++;
}

/* The breakpoint has taken the place of a nop of one byte, so the program goes on behind it. The
 * library's code is at a known place: no lock is held, and stdio is not inside a call. */
static void handle_trap(int signal, siginfo_t *info, void *context)
{
    const ucontext_t *at = context;

    (void)signal, (void)info;
    for (unsigned i = 0; i < sites_n; i++)
        if (sites[i].at == (unsigned char *)at->uc_mcontext.gregs[REG_RIP] - 1) {
            note_passed(&sites[i], at);
            return;
        }
    require(!"a breakpoint of a probe");
}

static void set_breakpoints(void)
{
    const struct sigaction action = {.sa_sigaction = handle_trap, .sa_flags = SA_SIGINFO};

    require(sigaction(SIGTRAP, &action, NULL) == 0);
    for (unsigned i = 0; i < sites_n; i++) {
        uintptr_t page = (uintptr_t)sites[i].at & ~UINT64_C(4095);

        require(*sites[i].at == 0x90);
        if (mprotect((void *)page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) {
            printf("code cannot be changed here: %s\n", strerror(errno));
            exit(SKIPPED);
        }
        *sites[i].at = 0xcc;
    }
}

/* Attaches to all probes, as a tool does, or detaches. */
static void attach(int by)
{
    for (unsigned i = 0; i < sites_n; i++)
        *(volatile unsigned short *)sites[i].semaphore = (unsigned short)(*sites[i].semaphore + by);
}

/* ---- comparison ---- */

/* The probe was passed just before, and said the same. */
static void hear(void *userdata, const struct weir_event *event)
{
    const uint64_t number[TYPES_N] = {
        [WEIR_EVENT_GRANT] = event->wait_ns,
        [WEIR_EVENT_RELEASE] = event->hold_ns,
        [WEIR_EVENT_TIMEOUT] = event->wait_ns,
        [WEIR_EVENT_CANCEL] = event->wait_ns,
        [WEIR_EVENT_REFUSAL] = (uint64_t)(int64_t)-EAGAIN,
    };

    (void)userdata;
    heard[event->type]++;
    require(passed.type == (int)event->type && hits[event->type] == heard[event->type]);
    require(strcmp(passed.set, event->set) == 0 && strcmp(event->set, "probed") == 0);
    require(passed.arguments[1] == event->id && passed.amount == event->amounts[0]);
    require(passed.arguments[5] == event->subject);
    require(!event->trace == !passed.arguments[6]);
    if (event->trace)
        require(memcmp(&passed.trace, event->trace, sizeof(passed.trace)) == 0);
    require(strcmp(passed.key, event->key) == 0);
    require(passed.arguments[2] == number[event->type]);
}

static void expect_hits(unsigned rounds)
{
    for (int i = 1; i < TYPES_N; i++)
        require(hits[i] == per_round[i] * rounds);
    memset(hits, 0, sizeof(hits));
}

static int look_inside(void)
{
    const struct weir_listener listener = {.size = sizeof(listener), .event = hear};

    read_sites();
    if (!sites_n) {
        printf("the library has no probes\n");
        return SKIPPED;
    }
    require(sites_n == TYPES_N - 1);
    open_set();
    set_breakpoints();
    make_round();
    expect_hits(0); /* no tool is attached: no call comes by a probe */
    attach(1);
    make_round();
    expect_hits(1);
    attach(1); /* two tools, of which one leaves */
    attach(-1);
    make_round();
    expect_hits(1);
    attach(-1);
    make_round();
    expect_hits(0);
    require(weir_listen(w, &listener) == 0);
    for (int i = 0; i < 3; i++)
        make_round();
    require(memcmp(hits, heard, sizeof(hits)) == 0);
    expect_hits(3);
    require(weir_listen(w, NULL) == 0);
    weir_pool_close(pool);
    weir_close(w);
    return 0;
}

#else

static int look_inside(void)
{
    printf("where the arguments of a probe are is known here for x86-64 alone\n");
    return SKIPPED;
}

#endif

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "inside") == 0)
        return look_inside();
    require(argc == 3 && strcmp(argv[1], "wait") == 0);
    return wait_and_make((unsigned)strtoul(argv[2], NULL, 10));
}
