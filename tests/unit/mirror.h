/* SPDX-License-Identifier: MIT */
/* What the balancers `mirror_*` of wild.c answer, and what they were told: a request's route is the
 * address of this. */
#ifndef WEIR_TESTS_MIRROR_H
#define WEIR_TESTS_MIRROR_H

#include <weir/balancer.h>

struct mirror {
    uint32_t answers[16]; /* to call after call of `pick` */
    uint32_t picks_n;
    struct weir_pick pick;         /* of the last call */
    struct weir_set_view views[4]; /* as they were then */
    struct weir_pick_outcome outcomes[16];
    uint32_t outcomes_n;
};

#endif
