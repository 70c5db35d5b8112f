/* SPDX-License-Identifier: MIT */
/* A snapshot of the shared sets of a directory, of those that engines keep, and of those that
 * processes publish: the data of `weir stat` and `weir top`. */
#ifndef WEIR_TOOLS_SNAPSHOT_H
#define WEIR_TOOLS_SNAPSHOT_H

#include "engine_sets.h"
#include "process_text.h"
#include "source.h"

struct snapshot_limit {
    struct weir_limit_stats stats; /* its strings are those below */
    char *key;
    char *algorithm;               /* NULL for a counted resource */
    struct weir_setting *settings; /* as written */
    size_t settings_n;
    struct weir_limit_gauge gauges[WEIR_GAUGES_MAX]; /* `name` is owned, `doc` NULL */
    size_t gauges_n;
};

/* An acquisition that is held or waits. */
struct snapshot_holder {
    struct weir_holder holder;
    uint64_t age_ns;                     /* since it was granted or enqueued */
    char name[PROCESS_TEXT_MAX];         /* of the process; empty: it is gone */
    char command_line[PROCESS_TEXT_MAX]; /* of the process, or why it is not known */
    bool has_command_line;
    uint64_t amounts[WEIR_LIMITS_MAX]; /* by limit */
    uint32_t overheld;                 /* limit that it holds too long, by number, or UINT32_MAX */
    uint64_t overheld_ns;              /* for how long too long */
    /* Of the first of a wait queue (is_next), what it waits for: if that is asked for. */
    bool is_next;
    uint32_t limiting;       /* limit that refuses it, by number; UINT32_MAX: none does */
    uint64_t retry_after_ns; /* by time alone; WEIR_FOREVER: units have to be released */
};

struct snapshot_set {
    char *name;
    char *engine;      /* backend that keeps it; NULL: it is a shared set of this machine */
    uint32_t process;  /* that published it; 0: it is shared, or an engine keeps it */
    uint32_t instance; /* of that process, from 1 */
    char process_name[PROCESS_TEXT_MAX];
    char command_line[PROCESS_TEXT_MAX]; /* of that process, or why it is not known */
    bool has_command_line;
    int away;             /* 0, or a negative errno: why the engine cannot be asked of it */
    bool is_unknown;      /* what is available, held and waits: also if each subject has its own */
    const char *lifetime; /* static; NULL: an engine keeps it */
    uint32_t users;       /* attached processes, without this one; not known of an engine */
    struct weir_set_info info;
    struct weir_set_stats stats;
    bool has_subjects;
    struct weir_subjects_stats subjects; /* if it has them */
    char *evict;                         /* of the subjects of a published set: owned */
    struct snapshot_limit *limits;
    size_t limits_n;
    struct snapshot_holder *holders; /* holders, the longest first, then waiters */
    size_t holders_n, held_n;
    struct weir_class_stats classes[WEIR_CLASSES_MAX];
    size_t classes_n; /* 0: it has none */
};

struct snapshot {
    uint64_t at_ns;            /* CLOCK_MONOTONIC */
    struct snapshot_set *sets; /* by name at first */
    size_t sets_n;
    unsigned refused; /* sets that could not be inspected */
};

/* What a snapshot is of. All zero: of all sets that are usable. */
struct snapshot_names {
    const char *const *items; /* these, if `n` is not 0 */
    size_t n;
    const char *match; /* those with this text in their names, or NULL */
    bool with_waits;   /* what the first of each wait queue waits for, too: is_next */
};

/*
 * Takes a snapshot of the sets named. Calls `refuse`, if not NULL, for each that could not be
 * inspected, unknown names included, and for a configuration that cannot be opened. A set with an
 * engine that is away is in the snapshot, and counts as refused. `engines` stays open for the next
 * snapshot. Returns 0, or a negative errno and the reason if the directory cannot be read or memory
 * is lacking; then `*ret` is empty.
 */
int snapshot_take(struct snapshot *ret, const struct source *source, struct engine_sets *engines,
                  const struct snapshot_names *names,
                  void (*refuse)(void *userdata, const struct weir_error *error), void *userdata,
                  struct weir_error *reterr);

/* What tells a set from all others, some of its name. */
struct snapshot_id {
    char name[256];
    bool of_engine;
    uint32_t process, instance; /* of one that is published */
};
struct snapshot_id snapshot_set_id(const struct snapshot_set *set);

/* Returns the set with this id, or NULL. */
const struct snapshot_set *snapshot_find(const struct snapshot *snapshot,
                                         const struct snapshot_id *id);

/* Returns why the engine of a set that is away cannot be asked. */
const char *snapshot_why_away(const struct snapshot_set *set);

/* Return how many requests were granted, and how many of them are held: an engine counts all nodes.
 */
uint64_t snapshot_granted(const struct snapshot_set *set);
uint64_t snapshot_held(const struct snapshot_set *set);

/* Returns whether limit `i` is the first with its key: an amount is the same for all of one key. */
bool snapshot_is_first_of_key(const struct snapshot_set *set, size_t i);

/* Describes the processes of holders and waiters, and puts holders before waiters, the longest
 * first. */
void snapshot_order_holders(struct snapshot_set *set);

void snapshot_free_set(struct snapshot_set *set);
void snapshot_free(struct snapshot *snapshot);

#endif
