/* SPDX-License-Identifier: MIT */
/* Binds key sets to keys, and unbinds those that lost the race for the key's word. */
#include "keyed/key_set_internal.h"
#include "set/instance_base.h"

#include "base/invariant.h"
#include <errno.h>
#include <string.h>

static void key_set_fill(struct txn *txn, const struct key_digest *key, const uint64_t *states)
{
    uint64_t *to = txn_states(txn);
    size_t n = txn->set->limits.state_words - KEY_SET_WORDS;

    WEIR_INVARIANT(CONTENT_STATES + txn->set->limits.state_words <= txn->ctx->content_capacity);
    if (states) {
        memcpy(to, states, n * sizeof(*to));
    } else {
        memset(to, 0, n * sizeof(*to));
        limits_init(&txn->set->limits, to, &txn->at);
    }
    key_set_words(txn)[KEY_SET_WORD_PLACE] = key->buckets;
    key_set_words(txn)[KEY_SET_WORD_ID] = key->id;
    forecast_invalidate(txn);
}

int key_set_try_bind(struct bind_request *request, struct key_set *key_set)
{
    struct key_entry entry;
    struct txn txn;

    WEIR_INVARIANT(key_set->keyed == request->keyed);
    txn_begin(&txn, request->ctx, &key_set->set);
    if (set_is_broken(&key_set->set))
        return -EUCLEAN;
    if (version_flags(&txn.version) & CONTENT_SHUT_DOWN)
        return -ESHUTDOWN;
    if (key_set_phase_of(&txn) != PHASE_UNBOUND || waitq_length(&txn.version) ||
        key_set_is_named(request->keyed, &txn, &entry))
        return 0;
    key_set_fill(&txn, request->key, request->states);
    request->word = key_set_begin_binding(&txn);
    request->key_set = key_set;
    return txn_commit(&txn);
}

void key_set_unbind(struct key_set *key_set, struct thread_ctx *ctx, uint64_t word)
{
    struct key_entry entry;
    struct txn txn;

    WEIR_INVARIANT(key_word_is_key_set(word));
    do {
        txn_begin(&txn, ctx, &key_set->set);
        if (key_set_phase_of(&txn) != PHASE_BINDING ||
            key_set_word(&txn, key_set_binding(&txn)) != word)
            return;
        if (set_is_broken(&key_set->set) || key_set_is_named(key_set->keyed, &txn, &entry))
            return;
    } while (!key_set_end_binding(&txn));
    key_set_push_unbound(key_set->keyed, key_set->number);
}

/* Rebinds a key set to the key that still names it. If the swap fails and the word is still not the
 * new one, the key has moved on. */
static void key_set_rebind(struct txn *txn, struct key_entry *entry)
{
    uint64_t word = key_set_begin_binding(txn);

    if (!txn_commit(txn))
        return;
    if (key_entry_swap(entry, word) == KEY_SWAPPED || entry->word == word)
        return;
    key_set_unbind(key_set_of(txn->set), txn->ctx, word);
}

/* Returns whether the entry still has this word after its key set was read. */
static bool key_set_entry_is_same(const struct keyed *keyed, const struct key_digest *key,
                                  const struct key_entry *entry)
{
    struct key_entry now;

    return key_table_find(&keyed->table, key, &now) && now.word == entry->word;
}

int key_set_repair(struct thread_ctx *ctx, struct keyed *keyed, const struct key_digest *key,
                   struct key_entry *entry)
{
    struct key_set storage;
    struct txn txn;

    if (!key_set_read(&txn, ctx, keyed, entry->word, &storage)) {
        if (set_is_shared(keyed->set) && key_set_entry_is_same(keyed, key, entry))
            participant_mark_broken(keyed->set->participant); /* no correct process writes this */
    } else if (key_set_phase_of(&txn) == PHASE_UNBOUND &&
               !key_set_restore_entry(keyed, &txn, entry)) {
        key_set_rebind(&txn, entry);
    }
    return set_is_broken(keyed->set) ? -EUCLEAN : -EINPROGRESS;
}

/* ---- choosing a key set ---- */

/*
 * Binds an unbound key set of the stack. Returns 0, -ENOBUFS (none is listed), or a negative errno.
 */
static int key_set_bind_unbound(struct bind_request *request)
{
    uint32_t number;

    for (uint32_t i = 0; i < RECLAIM_MAX && key_set_pop_unbound(request->keyed, &number); i++) {
        struct key_set *key_set = key_set_by_number(request->keyed, number, NULL);
        int r = key_set ? key_set_try_bind(request, key_set) : -ENOMEM;

        if (r != 0)
            return r < 0 ? r : 0;
    }
    return -ENOBUFS;
}

static int key_set_bind_new(struct bind_request *request)
{
    struct keyed *keyed = request->keyed;
    weir *w = keyed->set->w;
    struct key_set *key_set;
    uint32_t number;
    int r;

    do {
        pthread_mutex_lock(&w->lock);
        number = key_sets_n(keyed);
        r = key_set_make(keyed, number);
        pthread_mutex_unlock(&w->lock);
        if (r < 0)
            return r == -ENOSPC ? -ENOMEM : r; /* like every other lack of memory in a segment */
        key_set = key_set_by_number(keyed, number, NULL);
        r = key_set ? key_set_try_bind(request, key_set) : -ENOMEM;
    } while (r == 0); /* another thread has bound it already */
    return r < 0 ? r : 0;
}

int key_set_bind(struct keyed *keyed, struct thread_ctx *ctx, const struct key_digest *key,
                 const uint64_t *states, struct key_set **ret, uint64_t *ret_word)
{
    struct bind_request request = {.keyed = keyed, .ctx = ctx, .key = key, .states = states};
    int r = key_set_bind_unbound(&request), lacks;

    if (r == -ENOBUFS)
        r = key_set_bind_new(&request);
    if (r == -ENOBUFS || r == -ENOMEM) {
        lacks = r;
        r = key_set_reclaim(&request);
        if (r == -ENOBUFS)
            r = lacks;
    }
    *ret = request.key_set;
    *ret_word = request.word;
    return r;
}
