/* SPDX-License-Identifier: MIT */
/*
 * The plugin ABI, major version 1. A plugin file is a shared object that exports one symbol,
 * WEIR_PLUGIN_SYMBOL: a constant table of plugins. Nothing runs when a file is scanned. Algorithms
 * and balancers are const data and pure functions: there is no init, no host to call back, no
 * clock, no allocation, no I/O, no lock, no randomness, no writable static data. What backends may
 * do is in backend.h.
 *
 * A plugin `a.x` is best kept in a file a.x.so; other files named *.so are looked through as well.
 * The file and its directory must belong to root or to the user, and must not be writable for
 * others. `weir plugins DIR` says what is wrong with a file that is refused.
 *
 * Growth: structs that start with their size grow at the end; a field beyond `size` counts as
 * absent (NULL or 0), which means the behavior of before it existed. Sizes are multiples of 8, at
 * most 4096. Arrays are walked by the `size` of their first element. Two structs have no size,
 * weir_instant and weir_set_view: they say themselves how they grow.
 *
 * All that the table leads to lies in the object that exports it. Functions are static or hidden:
 * otherwise another library's function of that name may take their place.
 *
 * What an older library must not overlook is a flag of WEIR_FLAGS_NEEDED, or `needs_minor` of the
 * table. A plugin of an unknown kind, with an unknown type of a parameter, or with such a flag that
 * the library does not know, cannot be used there; the other plugins of the file can.
 * docs/plugin-abi.md is the policy.
 */
#ifndef WEIR_PLUGIN_H
#define WEIR_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_PLUGIN_ABI_MAJOR 1
#define WEIR_PLUGIN_ABI_MINOR 4
/* The first minor of the ABI as it is; files that were built for an earlier one are refused. */
#define WEIR_PLUGIN_ABI_MINOR_FIRST 4

/* Name of the exported table, with the major in it. It is declared below. */
#define WEIR_PLUGIN_SYMBOL "weir_plugins_v1"
#define WEIR_PLUGIN_EXPORT __attribute__((visibility("default")))

/*
 * The half of all flags that must be understood: a flag here that the library does not know makes
 * the plugin unusable ("needs a newer weir"). Unknown flags of the other half are ignored.
 */
#define WEIR_FLAGS_NEEDED UINT32_C(0xffff0000)

enum weir_plugin_kind {
    WEIR_PLUGIN_ALGORITHM = 1,
    WEIR_PLUGIN_BALANCER = 2,
    WEIR_PLUGIN_BACKEND = 3 /* unstable: see backend.h, also for what such a plugin may do */
};

enum weir_parameter_type {
    WEIR_PARAMETER_AMOUNT = 1,   /* whole units; written 100, 10k, 1M */
    WEIR_PARAMETER_DURATION = 2, /* nanoseconds; written 250ms, 60s, 1d */
    WEIR_PARAMETER_BOOLEAN = 3,  /* 0 or 1; written true, false */
    WEIR_PARAMETER_CHOICE = 4,   /* index into `choices`; written as the word */
    WEIR_PARAMETER_TEXT = 5,     /* a text; min and max bound its length in bytes */
    WEIR_PARAMETER_RATIO = 6, /* thousand-millionths, WEIR_RATIO_ONE is 1; written 0.25, 25%, 2 */
    WEIR_PARAMETER_SIZE = 7,  /* bytes; written 65536, 256KiB, 64MiB */
    WEIR_PARAMETER_ZONE = 8 /* a time zone; written as its name, Europe/Berlin. It has no default */
};
#define WEIR_RATIO_ONE UINT64_C(1000000000)
#define WEIR_LIST_MAX  64u /* values of a list */

enum {
    WEIR_PARAMETER_REQUIRED = 1u << 0,
    /* An amount of units that are granted: of n processes that share the limit, each may have an
     * nth of it. Algorithms without such a parameter cannot be shared out (`on_failure:
     * local_share`). */
    WEIR_PARAMETER_DIVISIBLE = 1u << 1,
    /* A list of values of the type, each in the range, not of backends; written [10, 20] or "10,
     * 20". It has no default. */
    WEIR_PARAMETER_LIST = 1u << 16,
    /* A secret, of type text, and of backends only. The configuration says where it is: file:/PATH
     * (without a newline at its end) or env:NAME. The library does not show or log it; nor may the
     * plugin. */
    WEIR_PARAMETER_SECRET = 1u << 17,
    /* Of balancers: each set of the pool may have a value of its own, written beside its name. What
     * is written for the pool holds for the others. Not with WEIR_PARAMETER_REQUIRED. */
    WEIR_PARAMETER_PER_SET = 1u << 18
};

/*
 * A parameter that a plugin accepts. The core checks type and range before it calls `configure`,
 * so `configure` only has to check what depends on several parameters.
 */
struct weir_parameter {
    size_t size;                /* sizeof(struct weir_parameter) */
    const char *name;           /* [a-z0-9_]+, at most 64 bytes */
    uint32_t type;              /* enum weir_parameter_type */
    uint32_t flags;             /* WEIR_PARAMETER_* */
    uint64_t min, max;          /* inclusive; not of choices and booleans */
    uint64_t default_value;     /* when not given; for a choice, its index. Of numbers, 0 means
                                   that there is none, whatever `min` says. Of texts and lists 0 */
    const char *const *choices; /* of choices: 1 .. 64 words like names, then NULL */
    const char *doc;            /* one line of at most 255 bytes, or NULL */
};

/* The value of one parameter. */
struct weir_value {
    size_t size;      /* set by the core; fields beyond it do not exist there */
    uint64_t value;   /* of a text: its length in bytes; of a list: 0 */
    const char *text; /* of a text that was given, else NULL; ends with a NUL */
    uint32_t given;   /* 1: written by the user; 0: the default */
    uint32_t items_n; /* of a list: how many values it has, at most WEIR_LIST_MAX */
    const struct weir_value *const *items; /* of a list: one for each, found by their addresses */
    const void *zone; /* of a zone that was given, other than UTC: its file of `value` bytes, TZif
                         (RFC 8536), of which nothing was checked; else NULL */
};

/* A set of a pool, as configured. */
struct weir_set_setup {
    size_t size;      /* set by the core; fields beyond it do not exist there */
    const char *name; /* of the set */
    uint64_t weight;  /* 1 .. WEIR_WEIGHT_MAX; 1 unless given */
    const struct weir_value *const *values; /* one for each declared parameter: those of the pool,
                                               but for what is given for the set */
};
#define WEIR_WEIGHT_MAX 1000000u

/* What a plugin is configured with. Valid during the call, for a backend until `close`. A plugin
 * copies texts into its configuration. */
struct weir_setup {
    size_t size;         /* set by the core; fields beyond it do not exist there */
    uint32_t abi_minor;  /* WEIR_PLUGIN_ABI_MINOR of the library */
    uint32_t values_n;   /* the number of declared parameters */
    uint32_t limit_type; /* algorithms: enum weir_limit_type of the limit */
    uint32_t sets_n;     /* balancers: sets of the pool, at least 1 */
    const struct weir_value *const *values;   /* one for each, in the order of the declaration */
    const struct weir_set_setup *const *sets; /* balancers: sets_n of them, found by their
                                                 addresses; NULL: the pool is one empty set */
};

/* Why `configure` refused. */
struct weir_reason {
    size_t size;        /* set by the core; fields beyond it do not exist there */
    uint32_t parameter; /* index of the wrong parameter, or UINT32_MAX */
    char message[252];  /* NUL-terminated: what is wrong and what would be right */
};

/* Flags of a footprint. */
enum {
    /* Algorithms with WEIR_ALGORITHM_WALL: with this configuration wall_offset_ns is not read. The
     * library then neither reads the wall clock for this limit nor listens for its steps. */
    WEIR_FOOTPRINT_NO_WALL = 1u << 0
};

/* How much memory a configured plugin needs, in bytes. */
struct weir_footprint {
    size_t size;         /* set by the core; fields beyond it do not exist there */
    uint64_t config;     /* bytes of configuration, at most WEIR_CONFIG_MAX */
    uint64_t state;      /* bytes of state, a multiple of 8, at most WEIR_STATE_MAX */
    uint64_t amount_max; /* algorithms: the largest amount that can ever be granted, at least 1 */
    uint32_t flags;      /* WEIR_FOOTPRINT_* */
    uint32_t reserved;
};
#define WEIR_CONFIG_MAX (UINT64_C(1) << 20)
#define WEIR_STATE_MAX  ((UINT64_C(1) << 26) - 128) /* also of all limits of a set together */

/* Texts are UTF-8 without control characters, 1 .. 255 bytes. */
struct weir_plugin {
    size_t size;           /* sizeof(struct weir_plugin) */
    uint32_t kind;         /* enum weir_plugin_kind */
    uint32_t parameters_n; /* 0 .. 64 */
    const char *name;    /* `vendor.name`, each [a-z0-9_]+, at most 64 bytes in all; in a file, once
                            for each kind. Names without a vendor are the project's own */
    const char *version; /* the plugin's own */
    const char *summary; /* one line */
    const struct weir_parameter *parameters;
    const void *ops; /* struct weir_algorithm, weir_balancer or weir_backend, by kind */
    uint32_t flags;  /* none yet */
    uint32_t reserved;

    /*
     * Identity of configuration and state: a random number, with a new one for each change of the
     * layout or meaning of their bytes. Processes share a set only if name, version and identity of
     * its algorithms are equal. 0: the bytes of the plugin's file are its identity, so that only
     * equal files share.
     */
    uint64_t state_id;
};

struct weir_plugin_table {
    size_t size;        /* sizeof(struct weir_plugin_table) */
    uint32_t abi_minor; /* WEIR_PLUGIN_ABI_MINOR the plugin was built with */
    uint32_t plugins_n; /* 1 .. 64 */
    const struct weir_plugin *const *plugins;
    uint32_t needs_minor; /* the least minor of a library that can use the file; 0: any */
    uint32_t flags;       /* none yet */
};

/*
 * The table of a plugin file, which defines it, in C and in C++:
 *
 *     const struct weir_plugin_table weir_plugins_v1 = {...};
 *
 * This declaration exports it, whatever visibility the compiler is told (-fvisibility=hidden): a
 * compiler of C++ may ignore an attribute that comes after a declaration.
 */
extern WEIR_PLUGIN_EXPORT const struct weir_plugin_table weir_plugins_v1;

#ifdef __cplusplus
}
#endif
#endif
