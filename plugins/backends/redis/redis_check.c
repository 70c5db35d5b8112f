/* SPDX-License-Identifier: MIT */
/* Sees how a server has the sets defined, for `weir check --connect`. */
#include "redis_check.h"

#include "redis_revision.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What is known of a set that a server is asked for. */
struct check_own {
    char key[64]; /* or how it begins */
    char definition[REDIS_DEFINITION_MAX + 1];
};

/* Copies the definition of the set of this number, and begins to ask the server for its own.
 * Returns 0: there is none of that number. */
static int check_begin(struct redis_connection *connection, uint32_t number,
                       struct redis_buffer *buffer, struct check_own *ret)
{
    pthread_mutex_lock(&connection->lock);
    const struct redis_set *set = connection->sets;
    for (; set && (set->has_subjects || number > 0); set = set->next)
        number -= !set->has_subjects;
    if (set) {
        memcpy(ret->definition, set->definition, set->definition_size + 1);
        snprintf(ret->key, sizeof(ret->key), "%.*s", (int)set->only->key_size, set->only->key);
        redis_buffer_begin(buffer, 3);
        redis_buffer_text(buffer, "HGET");
        redis_buffer_word(buffer, set->only->key, set->only->key_size);
        redis_buffer_text(buffer, "D");
    }
    pthread_mutex_unlock(&connection->lock);
    return set != NULL;
}

/* Compares what the server has of a set, if it has something. */
static int check_compare(struct redis_link_how *how, const struct check_own *own,
                         const struct redis_reply *reply)
{
    char words[2 * REDIS_REVISION_WORDS];
    size_t n = strlen(how->note);
    if (reply->type != REDIS_TEXT)
        return 0;
    int r = redis_revision_compare(own->definition, reply->text, words, sizeof(words));
    if (r == -EEXIST) {
        snprintf(how->why, sizeof(how->why), "set %s: %.180s", own->key, words);
        return r;
    }
    if (r != 0)
        snprintf(how->note + n, sizeof(how->note) - n,
                 "; set %.40s has revision %" PRId64 " there, %s", own->key,
                 redis_revision_of(reply->text),
                 r == -ESTALE ? "which decides" : "which the next request raises");
    return 0;
}

int redis_check_sets(struct redis_connection *connection, struct redis_link *link,
                     struct redis_link_how *how)
{
    struct redis_buffer buffer = {0};
    struct check_own own;
    int r = 0;
    for (uint32_t i = 0; r == 0 && check_begin(connection, i, &buffer, &own); i++) {
        const struct redis_reply *reply = NULL;
        r = redis_link_ask(link, how, &buffer, "HGET", &reply);
        if (r < 0 && reply && reply->type == REDIS_ERROR)
            r = 0;
        else if (r == 0)
            r = check_compare(how, &own, reply);
    }
    redis_buffer_free(&buffer);
    return r;
}
