/* SPDX-License-Identifier: MIT */
/* TLS, where the plugin is built without OpenSSL: there is no context, so no call comes further. */
#include "redis_tls.h"

#include <errno.h>
#include <stdio.h>

int redis_tls_context_new(const char *ca_file, const char *cert_file, const char *key_file,
                          struct redis_tls_context **ret, struct weir_reason *reterr)
{
    (void)ca_file;
    (void)cert_file;
    (void)key_file;
    (void)ret;
    snprintf(reterr->message, sizeof(reterr->message), "this plugin was built without TLS");
    return -EINVAL;
}

void redis_tls_context_free(struct redis_tls_context *context)
{
    (void)context;
}

struct redis_tls *redis_tls_new(struct redis_tls_context *context, int fd, const char *host)
{
    (void)context;
    (void)fd;
    (void)host;
    return NULL;
}

void redis_tls_free(struct redis_tls *tls)
{
    (void)tls;
}

int redis_tls_connect(struct redis_tls *tls, short *ret_events, const char **ret_why)
{
    (void)tls;
    *ret_events = 0;
    *ret_why = NULL;
    return -EPROTO;
}

ssize_t redis_tls_write(struct redis_tls *tls, const void *bytes, size_t n)
{
    (void)tls;
    (void)bytes;
    (void)n;
    return -EPROTO;
}

ssize_t redis_tls_read(struct redis_tls *tls, void *bytes, size_t n)
{
    (void)tls;
    (void)bytes;
    (void)n;
    return -EPROTO;
}

int redis_tls_has_more(struct redis_tls *tls)
{
    (void)tls;
    return 0;
}
