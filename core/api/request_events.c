/* SPDX-License-Identifier: MIT */
/* Tells events of requests and acquisitions. */
#include "api/request_events.h"
#include "api/request.h"
#include "os/os.h"
#include <string.h>

/* ---- requests ---- */

/* The hidden set of a group has no events: its members have. */
static bool request_event_is_of(const weir_set *set)
{
    return !set->ops->winner;
}

void acquire_op_tell_request(struct acquire_op *op, int r, const char *key)
{
    const char *traceparent = request_traceparent(op->request);
    struct weir_event event = {
        .type = WEIR_EVENT_REQUEST, .amounts = op->amounts, .key = key, .result = r};

    op->is_observed = request_event_is_of(op->set);
    if (!op->is_observed)
        return;
    op->tag = (struct event_tag){.subject = op->set->ops->identify ? op->key.id : 0};
    op->decision.limiting = NULL;
    if (traceparent)
        (void)weir_trace_parse(traceparent, &op->tag.trace); /* malformed: the request has none */
    if (r < 0) {                                             /* its amounts are not resolved */
        event.type = WEIR_EVENT_REFUSAL;
        memset(op->amounts, 0, op->set->limits.n * sizeof(*op->amounts));
    }
    event_tell(op->set, &event, &op->tag);
}

void acquire_op_tell_result(const struct acquire_op *op, const weir_acquisition *acquisition, int r)
{
    const weir_set *set = acquisition ? acquisition->set : op->set;
    struct weir_event event = {.type = r == 0   ? WEIR_EVENT_GRANT
                                       : r == 1 ? WEIR_EVENT_WAIT
                                                : WEIR_EVENT_REFUSAL,
                               .amounts = op->amounts,
                               .result = r < 0 ? r : 0};

    if (acquisition && acquisition->record && r >= 0)
        event.id = event_id(set, acquisition->record);
    if (r != 0)
        event.key = decision_key(&op->decision);
    event_tell(set, &event, &op->tag);
}

int acquire_op_tell_failure(const struct acquire_op *op, int r)
{
    if (op->is_observed)
        acquire_op_tell_result(op, NULL, r);
    return r;
}

void acquire_op_tell_wait(const struct acquire_op *op, uint32_t record, uint64_t enqueued_ns)
{
    struct weir_event event = {.type = WEIR_EVENT_WAIT,
                               .amounts = op->amounts,
                               .id = event_id_of(enqueued_ns, record),
                               .key = decision_key(&op->decision)};

    event_tell(op->set, &event, &op->tag);
}

/* ---- acquisitions ---- */

void acquisition_keep_tag(const struct acquire_op *op, weir_acquisition *acquisition)
{
    WEIR_INVARIANT(!acquisition->tag);
    if (!op->tag.subject && !event_has_trace(&op->tag))
        return;
    acquisition->tag = os_alloc(1, sizeof(*acquisition->tag));
    if (acquisition->tag)
        *acquisition->tag = op->tag;
}

void acquisition_tell_decision(weir_acquisition *acquisition, int result, const char *key)
{
    acquisition->awaits_event = false;
    event_tell_decision(acquisition->set, acquisition->record, result, key, acquisition->values,
                        acquisition->tag);
}

void acquisition_tell_cancel(weir_acquisition *acquisition)
{
    struct weir_event event = {.type = WEIR_EVENT_CANCEL, .amounts = acquisition->values};

    acquisition->awaits_event = false;
    if (acquisition->record) {
        event.id = event_id(acquisition->set, acquisition->record);
        event.wait_ns = event_wait_ns(acquisition->set, acquisition->record, false);
    }
    event_tell(acquisition->set, &event, acquisition->tag);
}

void acquisition_tell_release(weir_acquisition *acquisition, enum record_state state,
                              bool is_unused)
{
    struct weir_event event = {.type = WEIR_EVENT_RELEASE, .amounts = acquisition->values};

    if (state == RECORD_WAITING || (state == RECORD_HELD && is_unused)) {
        acquisition_tell_cancel(acquisition);
        return;
    }
    if (acquisition->awaits_event)
        acquisition_tell_decision(acquisition, acquisition_result_of(state), NULL);
    if (state != RECORD_HELD)
        return;
    if (acquisition->record) {
        event.id = event_id(acquisition->set, acquisition->record);
        event.hold_ns = event_hold_ns(acquisition->set, acquisition->record);
    }
    event_tell(acquisition->set, &event, acquisition->tag);
}
