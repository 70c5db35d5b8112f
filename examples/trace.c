/* SPDX-License-Identifier: MIT */
/* A trace of a server. */
#include "trace.h"
#include <errno.h>
#include <inttypes.h>
#include <time.h>

static uint64_t look_at_clock(void *userdata)
{
    const struct trace *trace = userdata;

    return trace->now_ns;
}

static uint64_t real_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int trace_open(struct trace *trace, const char *path)
{
    trace->out = fopen(path, "we");
    if (!trace->out)
        return -errno;
    trace->now_ns = real_ns();
    fputs("time,tokens,used,hold,decision,decided,set\n", trace->out);
    return 0;
}

bool trace_close(struct trace *trace)
{
    bool failed = trace->out && ferror(trace->out);

    return !trace->out || (fclose(trace->out) == 0 && !failed);
}

const struct weir_clock *trace_clock(struct trace *trace, struct weir_clock *ret)
{
    *ret = (struct weir_clock){.size = sizeof(*ret), .now_ns = look_at_clock, .userdata = trace};
    return trace->out ? ret : NULL;
}

uint64_t trace_move(struct trace *trace, weir *w)
{
    uint64_t now_ns, due_ns;

    if (!trace->out)
        return 0;
    now_ns = real_ns();
    if (now_ns <= trace->now_ns)
        now_ns = trace->now_ns + 1;
    while (weir_due_at(w, &due_ns) == 0 && due_ns < now_ns) {
        if (due_ns > trace->now_ns)
            trace->now_ns = due_ns;
        weir_tick(w);
    }
    trace->now_ns = now_ns;
    return now_ns;
}

uint64_t trace_due_ns(const struct trace *trace, weir *w)
{
    uint64_t due_ns;

    if (!trace->out || weir_due_at(w, &due_ns) < 0 || due_ns == WEIR_FOREVER)
        return 0;
    return due_ns + 1; /* trace_move() stops at times that have passed */
}

static const char *refusal_word(int result)
{
    switch (result) {
    case -EAGAIN:
        return "refused_max_wait";
    case -ENOBUFS:
        return "refused_full";
    case -ERANGE:
        return "refused_impossible";
    case -ETIMEDOUT:
        return "timed_out";
    default:
        return "failed";
    }
}

void trace_refused(struct trace *trace, const struct trace_request *request, int result,
                   const char *set)
{
    if (trace->out && request->arrived_ns)
        fprintf(trace->out, "%" PRIu64 ",%" PRIu64 ",0,0,%s,0,%s\n", request->arrived_ns,
                request->tokens, refusal_word(result), set ? set : "");
}

void trace_released(struct trace *trace, const struct trace_request *request,
                    weir_acquisition *granted)
{
    uint64_t granted_ns;

    if (!trace->out || weir_acquisition_granted_ns(granted, &granted_ns) < 0)
        return;
    if (granted_ns < request->arrived_ns)
        granted_ns = request->arrived_ns;
    fprintf(trace->out, "%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%s,%" PRIu64 ",%s\n",
            request->arrived_ns, request->tokens, request->used, trace->now_ns - granted_ns,
            granted_ns > request->arrived_ns ? "granted_waited" : "granted", granted_ns,
            weir_acquisition_set(granted));
}
