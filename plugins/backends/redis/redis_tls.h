/* SPDX-License-Identifier: MIT */
/*
 * TLS on a link, by OpenSSL. One thread may read while another one writes.
 *
 * The server's certificate must be signed by `ca_file`, or without one by what the system trusts,
 * and be for the host of the address.
 */
#ifndef WEIR_REDIS_TLS_H
#define WEIR_REDIS_TLS_H

#include <sys/types.h>
#include <weir/plugin.h>

struct redis_tls_context; /* what all links have in common */
struct redis_tls;

/* Files may be NULL. Returns 0, -ENOMEM, or -EINVAL with the message: a file cannot be used, or the
 * plugin was built without TLS. */
int redis_tls_context_new(const char *ca_file, const char *cert_file, const char *key_file,
                          struct redis_tls_context **ret, struct weir_reason *reterr);
void redis_tls_context_free(struct redis_tls_context *context);

/* Returns NULL if there is no memory. */
struct redis_tls *redis_tls_new(struct redis_tls_context *context, int fd, const char *host);
void redis_tls_free(struct redis_tls *tls);
/* Goes on with the handshake. Returns 0 when it is done, or as below. `why`: what is wrong with the
 * certificate, or NULL. */
int redis_tls_connect(struct redis_tls *tls, short *ret_events, const char **ret_why);

/* Return bytes, 0 at the end of what there is to read, -EAGAIN, or an error. */
ssize_t redis_tls_write(struct redis_tls *tls, const void *bytes, size_t n);
ssize_t redis_tls_read(struct redis_tls *tls, void *bytes, size_t n);
/* Returns 1 if something was received that has not been read. */
int redis_tls_has_more(struct redis_tls *tls);

#endif
