/* SPDX-License-Identifier: MIT */
/* TLS on a link, by OpenSSL. */
#include "redis_tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct redis_tls_context {
    SSL_CTX *ssl;
    BIO_METHOD *method;
};

struct redis_tls {
    pthread_mutex_t lock; /* of `ssl`: held for calls that do not block */
    SSL *ssl;
};

static int tls_fd(BIO *bio)
{
    return (int)(intptr_t)BIO_get_data(bio);
}

/* OpenSSL's own sockets raise SIGPIPE. */
static int tls_send(BIO *bio, const char *bytes, int n)
{
    ssize_t sent = send(tls_fd(bio), bytes, (size_t)n, MSG_NOSIGNAL);
    BIO_clear_retry_flags(bio);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_write(bio);
    return (int)sent;
}

static int tls_receive(BIO *bio, char *bytes, int n)
{
    ssize_t received = recv(tls_fd(bio), bytes, (size_t)n, 0);
    BIO_clear_retry_flags(bio);
    if (received < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_read(bio);
    return (int)received;
}

static long tls_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static int tls_refuse(struct weir_reason *reterr, const char *what)
{
    const char *why = ERR_reason_error_string(ERR_peek_last_error());
    snprintf(reterr->message, sizeof(reterr->message), "%s: %s", what, why ? why : "unknown");
    ERR_clear_error();
    return -EINVAL;
}

static int tls_configure(SSL_CTX *ssl, const char *ca_file, const char *cert_file,
                         const char *key_file, struct weir_reason *reterr)
{
    SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (!SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION))
        return tls_refuse(reterr, "TLS 1.2");
    if (ca_file ? !SSL_CTX_load_verify_locations(ssl, ca_file, NULL)
                : !SSL_CTX_set_default_verify_paths(ssl))
        return tls_refuse(reterr, "ca_file");
    if (cert_file && SSL_CTX_use_certificate_chain_file(ssl, cert_file) != 1)
        return tls_refuse(reterr, "cert_file");
    if (key_file && SSL_CTX_use_PrivateKey_file(ssl, key_file, SSL_FILETYPE_PEM) != 1)
        return tls_refuse(reterr, "key_file");
    return 0;
}

int redis_tls_context_new(const char *ca_file, const char *cert_file, const char *key_file,
                          struct redis_tls_context **ret, struct weir_reason *reterr)
{
    struct redis_tls_context *context = calloc(1, sizeof(*context));
    int r = -ENOMEM;
    if (!context)
        return r;
    context->ssl = SSL_CTX_new(TLS_client_method());
    context->method = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "weir");
    if (context->ssl && context->method && BIO_meth_set_write(context->method, tls_send) &&
        BIO_meth_set_read(context->method, tls_receive) &&
        BIO_meth_set_ctrl(context->method, tls_control))
        r = tls_configure(context->ssl, ca_file, cert_file, key_file, reterr);
    if (r < 0) {
        redis_tls_context_free(context);
        return r;
    }
    *ret = context;
    return 0;
}

void redis_tls_context_free(struct redis_tls_context *context)
{
    if (!context)
        return;
    SSL_CTX_free(context->ssl);
    BIO_meth_free(context->method);
    free(context);
}

/* Has the certificate be for this host: a name, or an address. */
static int tls_expect_host(SSL *ssl, const char *host)
{
    X509_VERIFY_PARAM *parameters = SSL_get0_param(ssl);
    if (X509_VERIFY_PARAM_set1_ip_asc(parameters, host))
        return 1;
    ERR_clear_error();
    /* SSL_set_tlsext_host_name, which casts the `const` away. */
    return SSL_set1_host(ssl, host) && SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME,
                                                TLSEXT_NAMETYPE_host_name, (void *)(uintptr_t)host);
}

struct redis_tls *redis_tls_new(struct redis_tls_context *context, int fd, const char *host)
{
    struct redis_tls *tls = calloc(1, sizeof(*tls));
    BIO *bio = tls ? BIO_new(context->method) : NULL;
    if (bio)
        tls->ssl = SSL_new(context->ssl);
    if (!bio || !tls->ssl || !tls_expect_host(tls->ssl, host) ||
        pthread_mutex_init(&tls->lock, NULL)) {
        BIO_free(bio);
        if (tls)
            SSL_free(tls->ssl);
        free(tls);
        return NULL;
    }
    BIO_set_data(bio, (void *)(intptr_t)fd);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->ssl, bio, bio);
    return tls;
}

void redis_tls_free(struct redis_tls *tls)
{
    if (!tls)
        return;
    SSL_free(tls->ssl);
    pthread_mutex_destroy(&tls->lock);
    free(tls);
}

/* Returns the code for the result of a call of OpenSSL. Closed without a goodbye is closed too. */
static ssize_t tls_result(struct redis_tls *tls, int result, int error)
{
    (void)tls;
    ERR_clear_error();
    switch (error) {
    case SSL_ERROR_NONE:
        return result;
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    case SSL_ERROR_SYSCALL:
        return -ECONNRESET;
    default:
        return -EPROTO;
    }
}

int redis_tls_connect(struct redis_tls *tls, short *ret_events, const char **ret_why)
{
    ERR_clear_error();
    int result = SSL_connect(tls->ssl);
    int error = SSL_get_error(tls->ssl, result);
    long verdict = SSL_get_verify_result(tls->ssl);
    *ret_events = error == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN;
    *ret_why = verdict != X509_V_OK ? X509_verify_cert_error_string(verdict) : NULL;
    ssize_t r = tls_result(tls, result, error);
    return r == 1 ? 0 : r == 0 ? -ECONNRESET : (int)r;
}

ssize_t redis_tls_write(struct redis_tls *tls, const void *bytes, size_t n)
{
    pthread_mutex_lock(&tls->lock);
    ERR_clear_error();
    int result = SSL_write(tls->ssl, bytes, n > INT32_MAX ? INT32_MAX : (int)n);
    ssize_t r = tls_result(tls, result, SSL_get_error(tls->ssl, result));
    pthread_mutex_unlock(&tls->lock);
    return r == 0 ? -ECONNRESET : r;
}

int redis_tls_has_more(struct redis_tls *tls)
{
    pthread_mutex_lock(&tls->lock);
    int has_more = SSL_has_pending(tls->ssl);
    pthread_mutex_unlock(&tls->lock);
    return has_more;
}

ssize_t redis_tls_read(struct redis_tls *tls, void *bytes, size_t n)
{
    pthread_mutex_lock(&tls->lock);
    ERR_clear_error();
    int result = SSL_read(tls->ssl, bytes, n > INT32_MAX ? INT32_MAX : (int)n);
    ssize_t r = tls_result(tls, result, SSL_get_error(tls->ssl, result));
    pthread_mutex_unlock(&tls->lock);
    return r;
}
