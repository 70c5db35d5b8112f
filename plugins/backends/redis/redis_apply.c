/* SPDX-License-Identifier: MIT */
/* Has a server go on with another definition of a set, without a request. */
#include "redis_apply.h"

#include "redis_calls.h"
#include "redis_differences.h"
#include "redis_revision.h"
#include "redis_server.h"
#include "redis_set.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void redis_apply_answer(const struct redis_call *call, int code, const struct redis_reply *reply)
{
    struct redis_waiter *waiter = call->waiter;
    if (!waiter)
        return;
    if (reply && reply->type == REDIS_ARRAY && reply->elements_n == 1)
        reply = &reply->elements[0];
    waiter->result = code < 0 || (reply && reply->type == REDIS_TEXT) ? code : -EPROTO;
    if (reply && (reply->type == REDIS_TEXT || reply->type == REDIS_ERROR))
        snprintf(waiter->text, REDIS_WAITER_TEXT, "%s", reply->text);
    redis_calls_answer(waiter);
}

static int apply_call(struct redis_waiter *waiter, const char *how, uint64_t until_ns)
{
    struct redis_session *session = waiter->session;
    waiter->text[0] = '\0'; /* of an earlier attempt */
    redis_call_begin(session, "weir_redefine", 1);
    redis_buffer_text(&session->server->outbox, how);
    int r = redis_call_end(session->server, &(struct redis_call){.kind = REDIS_CALL_REDEFINE,
                                                                 .session = session,
                                                                 .waiter = waiter,
                                                                 .is_urgent = 1});
    return r < 0 ? r : redis_set_await(waiter, until_ns);
}

static int apply_call_check(struct redis_waiter *waiter, uint64_t until_ns)
{
    return apply_call(waiter, "check", until_ns);
}

static int apply_call_change(struct redis_waiter *waiter, uint64_t until_ns)
{
    return apply_call(waiter, "change", until_ns);
}

/* Says why there is no answer: that of the server, or of the last attempt to connect. */
static int apply_refuse(int r, int complained, const char *said, struct weir_reason *reterr)
{
    const char *why = "the server cannot be asked";
    if (r == -EOPNOTSUPP)
        snprintf(reterr->message, sizeof(reterr->message),
                 "the server has an earlier library of functions, without `weir_redefine`: load "
                 "that of this version first");
    else if (said[0])
        snprintf(reterr->message, sizeof(reterr->message), "the server says: %.200s", said);
    else if ((r == -ENOTCONN || r == -EACCES) && complained < 0)
        snprintf(reterr->message, sizeof(reterr->message), "%s: %s", why, strerror(-complained));
    else
        snprintf(reterr->message, sizeof(reterr->message), "%s: %s", why, strerror(-r));
    return r;
}

/* Takes the definition that the server has had. `is_refused`: it does not go on to this one. */
static int apply_compare(const char *own, const char *there, int is_refused,
                         const struct weir_backend_apply *how, struct weir_reason *reterr)
{
    char words[2 * REDIS_REVISION_WORDS];
    int r = redis_revision_compare(own, there, words, sizeof(words));
    if (r == -ESTALE)
        redis_revision_explain_earlier(redis_revision_of(there), words, sizeof(words));
    if (r >= 0 && is_refused)
        snprintf(words, sizeof(words), "the server does not read its definition as this version");
    if (r < 0 || is_refused) {
        snprintf(reterr->message, sizeof(reterr->message), "%.250s", words);
        return -EOPNOTSUPP;
    }
    if (r == 1 && how->differs)
        redis_differences_tell(own, there, how);
    return r;
}

int redis_apply(void *of, const struct weir_backend_apply *how, struct weir_reason *reterr)
{
    struct redis_set *set = of;
    char own[REDIS_DEFINITION_MAX + 1], there[REDIS_WAITER_TEXT] = "";
    struct redis_waiter waiter = {.text = there};
    reterr->parameter = UINT32_MAX;
    pthread_mutex_lock(&set->connection->lock);
    memcpy(own, set->definition, set->definition_size + 1);
    int r = redis_set_call(set, NULL, 0, &waiter, how->until_ns,
                           how->changes ? apply_call_change : apply_call_check);
    int complained = set->only->server->complained, is_reloaded = strcmp(own, set->definition);
    pthread_mutex_unlock(&set->connection->lock);
    if (is_reloaded) { /* the server was asked with either definition */
        snprintf(reterr->message, sizeof(reterr->message), "the set is being reloaded: try again");
        return -EAGAIN;
    }
    if (r == 0)
        return apply_compare(own, there, 0, how, reterr);
    if (r == -EEXIST) { /* MISMATCH, and the definition */
        const char *text = strchr(there, ' ');
        return apply_compare(own, text ? text + 1 : "", 1, how, reterr);
    }
    return r == -ENOENT ? r : apply_refuse(r, complained, there, reterr);
}
