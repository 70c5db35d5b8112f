/* SPDX-License-Identifier: MIT */
/*
 * Values of HTTP fields that tell a client of its limits. They are `Retry-After` (RFC
 * 9110, 10.2.3), and `RateLimit-Policy` and `RateLimit` of the IETF's
 * draft-ietf-httpapi-ratelimit-headers-11.
 *
 *     n = weir_set_remaining(set, &request, limits, 4);
 *     weir_http_ratelimit_policy(limits, n, policy, sizeof(policy));  "call_count";q=100;w=60
 *     weir_http_ratelimit(limits, n, refusal.retry_after_ns, left, sizeof(left));
 *                                                                     "call_count";r=0;t=3
 *     weir_http_retry_after(refusal.retry_after_ns, after, sizeof(after));               3
 *
 * The calls write into the caller's buffer. They allocate nothing and keep nothing. Times are in
 * whole seconds, rounded up, so that a client never comes back too early.
 *
 * A limit is a policy with its key as the name. What a name cannot have (bytes other than printable
 * ASCII, `%` and `#`) is written as `%` and two hexadecimal digits. If several limits have one key,
 * the second is `KEY#2`, and so on. The unit of a call is a request, that of a resource a
 * concurrent request, and a rate is counted in units that are named as its key. (The registry of
 * the draft has no unit for tokens or the like.)
 */
#ifndef WEIR_HTTP_H
#define WEIR_HTTP_H

#include <weir/set.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Room for the value of `Retry-After`; and, for each limit, in the other two fields. With that much
 * no call fails for want of room. */
#define WEIR_HTTP_RETRY_AFTER_MAX 24
#define WEIR_HTTP_LIMIT_MAX       1664

/*
 * Writes the value of `Retry-After` for a refusal. It is weir_refusal.retry_after_ns in whole
 * seconds, at least 1, also where there is no forecast. Nothing is written for WEIR_FOREVER: no
 * time can be told, and the field is left out. Any thread. Returns the length of the text, which is
 * empty then; -EINVAL (`ret` is NULL) or -ENOBUFS (`size` is too small; the text is empty).
 * [any thread, writes arguments]
 */
WEIR_PUBLIC int weir_http_retry_after(uint64_t retry_after_ns, char *ret, size_t size);

/*
 * Writes the value of `RateLimit-Policy`: of each limit its capacity and its window. It stays the
 * same as long as the set is defined the same, but for leases of an engine. Any thread. Returns the
 * length of the text, which is empty without limits, when the field is left out; -EINVAL (an
 * argument is NULL) or -ENOBUFS (`size` is too small; the text is empty).
 * [any thread, writes arguments]
 */
WEIR_PUBLIC int weir_http_ratelimit_policy(const struct weir_remaining *limits, size_t n, char *ret,
                                           size_t size);

/*
 * Writes the value of `RateLimit`. It has of each limit what is available, and for how long there
 * will be no more than that, if time tells. `retry_after_ns` is that of `Retry-After` in the same
 * response; WEIR_FOREVER: it has none. Times after it are left out, because the draft wants none.
 * Any thread. Returns the length of the text, which is empty without limits, when the field is left
 * out; -EINVAL (an argument is NULL) or -ENOBUFS (`size` is too small; the text is empty).
 * [any thread, writes arguments]
 */
WEIR_PUBLIC int weir_http_ratelimit(const struct weir_remaining *limits, size_t n,
                                    uint64_t retry_after_ns, char *ret, size_t size);

/* Values of the fields `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset` of earlier
 * drafts, which many clients read, also with `X-` before their names. */
struct weir_http_triple {
    uint64_t limit;
    uint64_t remaining;
    uint64_t reset_s; /* until the limit is whole; UINT64_MAX: not by the passing of time, and the
                         field is left out */
};

/*
 * Fills the fields of earlier drafts. They have room for one limit: the one of which the least part
 * of its capacity remains, and the first of those that are alike. Any thread. Returns the number of
 * that limit, -ENOENT (there is none) or -EINVAL (an argument is NULL).
 * [any thread, writes arguments]
 */
WEIR_PUBLIC int weir_http_triple(const struct weir_remaining *limits, size_t n,
                                 struct weir_http_triple *ret);

#ifdef __cplusplus
}
#endif
#endif
