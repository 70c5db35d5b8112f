/* SPDX-License-Identifier: MIT */
/*
 * What an instance tells of its private sets, over a socket, to the command, which is compiled with
 * this header. It is a head, then items, each padded to 8 bytes, up to the one that ends it. They
 * are structs of the public headers, as the program's library knows them: one of another release is
 * shorter or longer, and what it lacks is 0. Pointers in them are 0; their texts are items behind
 * them.
 */
#ifndef WEIR_CORE_API_PUBLISHED_H
#define WEIR_CORE_API_PUBLISHED_H

#include <weir/set.h>

#define PUBLISHED_MAGIC       "weir set" /* 8 bytes, no NUL */
#define PUBLISHED_VERSION     1u
#define PUBLISHED_HOLDERS_MAX 1000  /* of a set: half the oldest holders, half the waiters */
#define PUBLISHED_TEXT_MAX    4096u /* bytes of a text, of which the rest is left out */

struct published_head {
    char magic[8];
    uint32_t version;
    uint32_t process; /* as the program knows itself */
};

struct published_item {
    uint32_t kind; /* PUBLISHED_* */
    uint32_t size; /* of what follows, without its padding */
};

/* Kinds. Unknown ones are passed over: later versions append some. */
enum {
    PUBLISHED_END = 0,       /* of all */
    PUBLISHED_SET = 1,       /* text: a set begins, by its name */
    PUBLISHED_INFO = 2,      /* struct weir_set_info */
    PUBLISHED_STATS = 3,     /* struct weir_set_stats */
    PUBLISHED_SUBJECTS = 4,  /* struct weir_subjects_stats */
    PUBLISHED_EVICT = 5,     /* text, of the subjects */
    PUBLISHED_LIMIT = 6,     /* struct weir_limit_stats: a limit begins */
    PUBLISHED_KEY = 7,       /* text, of the limit */
    PUBLISHED_ALGORITHM = 8, /* text, of the limit */
    PUBLISHED_SETTING = 9,   /* text, of the limit: a name */
    PUBLISHED_VALUE = 10,    /* text, of the setting */
    PUBLISHED_GAUGE = 11,    /* struct weir_limit_gauge, of the limit */
    PUBLISHED_GAUGE_NAME = 12,
    PUBLISHED_HOLDER = 13,  /* struct published_holder */
    PUBLISHED_AMOUNTS = 14, /* of the holder: a uint64_t for each limit */
    PUBLISHED_CLASS = 15    /* struct weir_class_stats, of the set, in order */
};

struct published_holder {
    struct weir_holder holder;
    uint64_t age_ns;         /* since it was granted or enqueued */
    uint64_t retry_after_ns; /* if is_next: until it is granted, by time alone */
    uint32_t is_next;        /* the first of its wait queue, of which is known what it waits for */
    uint32_t limiting;       /* limit that refuses it, by number; UINT32_MAX: none does */
    uint64_t overheld;       /* limit that it holds too long, by number from 1; 0: none */
    uint64_t overheld_ns;    /* for how long too long */
};

#endif
