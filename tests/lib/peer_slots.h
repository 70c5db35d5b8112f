/* SPDX-License-Identifier: MIT */
/* Peer slots as a process claims them: the first that is free. */
#ifndef WEIR_TESTS_LIB_PEER_SLOTS_H
#define WEIR_TESTS_LIB_PEER_SLOTS_H

#include "shm/peer_id.h"
#include <errno.h>

/* Claims the first free one of `n` slots. Returns 0 or -ENOSPC. */
static inline int first_slot_claim(struct peer_slot *slots, uint32_t n, uint64_t self,
                                   uint32_t *ret_slot, uint64_t *ret_id)
{
    for (uint32_t i = 0; i < n; i++)
        if (peer_slot_claim(&slots[i], self, ret_id)) {
            *ret_slot = i;
            return 0;
        }
    return -ENOSPC;
}

#endif
