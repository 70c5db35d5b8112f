/* SPDX-License-Identifier: MIT */
/*
 * An algorithm under test, loaded straight from its file. Every call goes through here, and on the
 * way the promises of algorithm.h are checked: before each call the state is moved to another
 * address, between guard words; after it the guards and the configuration are as they were, and
 * the calls that must not change the state have not. Whenever an algorithm is asked when it would
 * grant, its try_take, if it has one, is tried on a copy, and must answer and do the same as
 * ready_at and take.
 */
#ifndef WEIR_TESTS_SUBJECT_H
#define WEIR_TESTS_SUBJECT_H

#include "lib/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <weir/algorithm.h>
#include <weir/balancer.h>

#define DAY  (86400 * SECOND)
#define YEAR (365 * DAY)

struct setting {
    const char *name; /* NULL ends a list */
    uint64_t value;   /* of a zone: the address of its struct weir_value */
};

struct subject {
    const struct weir_algorithm *ops;
    struct weir_footprint footprint;
    void *config, *config_copy;
    uint64_t *memory[2]; /* each a guard word, the state, and a guard word */
    uint64_t *state;     /* in one of them */
    uint64_t *tried;     /* as these: what try_take makes of the state */
    int64_t wall_offset_ns;
};

/* The only plugin of NAME.so in WEIR_PLUGIN_PATH. Ends the program if there is none. */
const struct weir_plugin *plugin_load(const char *name);

/* 0, or -1 with the reason. Also checks that configuring is repeatable to the byte. */
int subject_try(struct subject *ret, const char *algorithm, const struct setting *settings,
                struct weir_reason *reterr);
void subject_free(struct subject *subject);

void subject_init(struct subject *subject, uint64_t now);
uint64_t subject_ready_at(struct subject *subject, uint64_t now, uint64_t amount);
uint64_t subject_available(struct subject *subject, uint64_t now);
int subject_check(struct subject *subject);
bool subject_is_new(struct subject *subject, uint64_t now);
void subject_take(struct subject *subject, uint64_t now, uint64_t amount);
void subject_refund(struct subject *subject, uint64_t now, uint64_t amount, uint64_t granted_ns);
void subject_refund_strictly(struct subject *subject, uint64_t now, uint64_t amount,
                             uint64_t granted_ns);
void subject_release(struct subject *subject, uint64_t now, struct weir_release release);
void subject_charge(struct subject *subject, uint64_t now, uint64_t amount);
void subject_reconfigure(struct subject *to, struct subject *from, uint64_t now);

/* Takes `amount` if it is granted now. */
bool subject_request(struct subject *subject, uint64_t now, uint64_t amount);

/* A subject with settings that must be accepted, initialized at `now`. */
#define SUBJECT(subject, now, algorithm, ...)                                                      \
    do {                                                                                           \
        struct weir_reason reason_ = {sizeof(reason_), 0, ""};                                     \
        const struct setting settings_[] = {__VA_ARGS__, {NULL, 0}};                               \
        if (subject_try((subject), (algorithm), settings_, &reason_) < 0)                          \
            fail_msg("%s refused: %s", (algorithm), reason_.message);                              \
        subject_init((subject), (now));                                                            \
    } while (0)

/* Settings that must be refused, blaming `parameter`, with a message that contains `words`. */
void refused(const char *algorithm, const struct setting *settings, const char *parameter,
             const char *words);
#define REFUSED(algorithm, parameter, words, ...)                                                  \
    refused((algorithm), (const struct setting[]){__VA_ARGS__, {NULL, 0}}, (parameter), (words))

#endif
