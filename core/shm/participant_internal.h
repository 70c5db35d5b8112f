/* SPDX-License-Identifier: MIT */
/* Shared parts of this folder: what a participant claims in a segment, and releases
 * (participant_claim.c). */
#ifndef WEIR_CORE_SHM_PARTICIPANT_INTERNAL_H
#define WEIR_CORE_SHM_PARTICIPANT_INTERNAL_H

#include "shm/participant.h"

/* Claims a slot and confirms the attach. Returns 0, -EUSERS (all are of living processes), -ESTALE
 * (the segment was removed meanwhile), or the error of the file system. */
int participant_claim_slot(struct participant *participant, uint64_t self_id);

/* Claims a thread context or a run if its owner is 0. */
bool participant_claim_owner(_Atomic uint64_t *owner, uint32_t peer_key);
/* Releases a thread context, run or announcement slot that still has this owner; of a dead process
 * also if the owner was in its slot before. */
void participant_release_owner(_Atomic uint64_t *owner, uint32_t peer_key, bool is_dead);
/* Releases a thread context as participant_release_owner(). One that was taken over and not
 * recovered goes back to the dead process. */
void participant_release_thread(_Atomic uint64_t *owner, uint32_t peer_key, bool is_dead);

#endif
