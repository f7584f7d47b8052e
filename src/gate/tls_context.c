// SPDX-License-Identifier: Apache-2.0
// OpenSSL's contexts and sockets. Its BIO for sockets would raise SIGPIPE and cannot be given the ClientHello that was
// read to be judged, so there is one of ours: it reads these bytes first, then from the socket.
#include "gate/tls_context.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/name.h"
#include "gate/tls_calls.h"

#define TLS_READ_BUFFER 32768 // bytes that one read may take from a socket; held only while something is in it

struct tls_context {
    SSL_CTX *client, *server;
    BIO_METHOD *method;
};

struct tls_socket { // of a BIO
    int fd;
    size_t len, position; // of what is read first
    uint8_t *first;
};

// ---- the socket ----

static int tls_socket_read(BIO *bio, char *bytes, int len) {
    struct tls_socket *socket = BIO_get_data(bio);
    BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY | BIO_FLAGS_IN_EOF);
    if (len <= 0) return 0;
    if (socket->first) {
        size_t left = socket->len - socket->position, count = left < (size_t)len ? left : (size_t)len;
        memcpy(bytes, socket->first + socket->position, count);
        socket->position += count;
        if (count == left) free(TAKE_POINTER(socket->first));
        if (count > 0) return (int)count;
    }
    ssize_t got = recv(socket->fd, bytes, (size_t)len, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY);
    if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
    return (int)got;
}

static int tls_socket_write(BIO *bio, const char *bytes, int len) {
    struct tls_socket *socket = BIO_get_data(bio);
    BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    if (len <= 0) return 0;
    ssize_t sent = send(socket->fd, bytes, (size_t)len, MSG_NOSIGNAL);
    bool later = sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS);
    if (later) BIO_set_flags(bio, BIO_FLAGS_WRITE | BIO_FLAGS_SHOULD_RETRY);
    return (int)sent;
}

static long tls_socket_ctrl(BIO *bio, int command, long number, void *pointer) {
    (void)number;
    (void)pointer;
    if (command == BIO_CTRL_FLUSH) return 1;
    if (command == BIO_CTRL_EOF) return (BIO_test_flags(bio, BIO_FLAGS_IN_EOF)) != 0;
    return 0;
}

static int tls_socket_destroy(BIO *bio) {
    struct tls_socket *socket = BIO_get_data(bio);
    if (socket) free(socket->first);
    free(socket);
    BIO_set_data(bio, NULL);
    return 1;
}

static BIO_METHOD *tls_socket_method(void) {
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK | 100, "penstock socket");
    if (!method) return NULL;
    bool good = BIO_meth_set_read(method, tls_socket_read) && BIO_meth_set_write(method, tls_socket_write) &&
                BIO_meth_set_ctrl(method, tls_socket_ctrl) && BIO_meth_set_destroy(method, tls_socket_destroy);
    if (good) return method;
    BIO_meth_free(method);
    return NULL;
}

static BIO *tls_socket_new(BIO_METHOD *method, int fd, const uint8_t *first, size_t len) {
    BIO *bio = BIO_new(method);
    struct tls_socket *socket = bio ? NEW(struct tls_socket) : NULL;
    if (!socket) {
        BIO_free(bio);
        return NULL;
    }
    socket->fd = fd;
    BIO_set_data(bio, socket);
    BIO_set_init(bio, 1);
    if (len == 0) return bio;
    socket->first = malloc(len);
    if (!socket->first) {
        BIO_free(bio);
        return NULL;
    }
    memcpy(socket->first, first, len);
    socket->len = len;
    return bio;
}

// ---- roots of trust ----

static const char *const tls_bundles[] = {
    "/etc/ssl/certs/ca-certificates.crt", // Debian, Arch, Gentoo
    "/etc/pki/tls/certs/ca-bundle.crt",   // Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",             // SUSE
    "/etc/ssl/cert.pem",                  // Alpine
};

static bool tls_add_roots(X509_STORE *store, const char *pem) {
    BIO *bio = BIO_new_mem_buf(pem, -1);
    size_t count = 0;
    bool good = bio != NULL;
    while (good) {
        X509 *root = PEM_read_bio_X509(bio, NULL, NULL, NULL);
        if (!root) break;
        good = X509_STORE_add_cert(store, root) == 1;
        X509_free(root);
        count++;
    }
    BIO_free(bio);
    ERR_clear_error(); // the end of the text is one
    return good && count > 0;
}

static int tls_roots(const char *extra, X509_STORE **ret_store, struct error *err) {
    X509_STORE *store = X509_STORE_new();
    if (!store) return error_set(err, -ENOMEM, "out of memory for roots of trust");
    bool found = false;
    for (size_t i = 0; !found && i < ARRAY_LENGTH(tls_bundles); i++)
        found = access(tls_bundles[i], R_OK) == 0 && X509_STORE_load_file(store, tls_bundles[i]) == 1;
    ERR_clear_error();
    int rc = 0;
    if (extra && *extra && !tls_add_roots(store, extra))
        rc = error_set(err, -EINVAL, "no certificate in the file of --upstream-ca could be read; give one in PEM form");
    else if (!found && !(extra && *extra))
        rc = error_set(err, -ENOENT, "no roots of trust were found in %s or where other systems have them; install "
                       "ca-certificates, or give --upstream-ca", tls_bundles[0]);
    if (rc < 0) X509_STORE_free(store);
    else *ret_store = store;
    return rc;
}

// ---- contexts ----

static int tls_choose(SSL *ssl, const unsigned char **ret, unsigned char *ret_len, const unsigned char *offers,
                      unsigned len, void *data) {
    (void)data;
    const char *wanted = SSL_get_app_data(ssl);
    for (unsigned at = 0; wanted && at < len; at += 1U + offers[at]) {
        if (at + 1U + offers[at] > len) break;
        if (offers[at] != strlen(wanted) || memcmp(offers + at + 1, wanted, offers[at]) != 0) continue;
        *ret = offers + at + 1;
        *ret_len = offers[at];
        return SSL_TLSEXT_ERR_OK;
    }
    return SSL_TLSEXT_ERR_NOACK;
}

static SSL_CTX *tls_context_make(const SSL_METHOD *method) {
    SSL_CTX *context = SSL_CTX_new(method);
    if (!context) return NULL;
    SSL_CTX_set_options(context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, TLS_READ_BUFFER);
    if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1) return context;
    SSL_CTX_free(context);
    return NULL;
}

int tls_context_new(const char *extra_roots, struct tls_context **ret_context, struct error *err) {
    int rc = tls_calls_load(err);
    if (rc < 0) return rc;
    struct tls_context *context = NEW(struct tls_context);
    if (context) {
        context->client = tls_context_make(TLS_client_method());
        context->server = tls_context_make(TLS_server_method());
        context->method = tls_socket_method();
    }
    X509_STORE *store = NULL;
    bool made = context && context->client && context->server && context->method;
    rc = made ? tls_roots(extra_roots, &store, err) : error_set(err, -ENOMEM, "out of memory for TLS");
    if (rc < 0) {
        tls_context_free(context);
        return rc;
    }
    SSL_CTX_set1_cert_store(context->client, store);
    X509_STORE_free(store);
    SSL_CTX_set_verify(context->client, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_num_tickets(context->server, 0);
    SSL_CTX_set_alpn_select_cb(context->server, tls_choose, NULL);
    *ret_context = context;
    return 0;
}

void tls_context_free(struct tls_context *context) {
    if (!context) return;
    SSL_CTX_free(context->client);
    SSL_CTX_free(context->server);
    BIO_meth_free(context->method);
    free(context);
}

// ---- connections ----

static SSL *tls_context_ssl(const struct tls_context *context, SSL_CTX *side, int fd, const uint8_t *first,
                            size_t len) {
    SSL *ssl = SSL_new(side);
    BIO *bio = ssl ? tls_socket_new(context->method, fd, first, len) : NULL;
    if (bio) {
        SSL_set_bio(ssl, bio, bio);
        return ssl;
    }
    SSL_free(ssl);
    return NULL;
}

struct ssl_st *tls_context_connect(const struct tls_context *context, int fd, const char *host, bool http1,
                                   bool http2) {
    static const unsigned char offers[] = "\x02h2\x08http/1.1"; // the order of nearly all clients that offer both
    const unsigned char *first = http2 ? offers : offers + 3;
    unsigned len = (http2 ? 3 : 0) + (http1 ? 9 : 0);
    SSL *ssl = tls_context_ssl(context, context->client, fd, NULL, 0);
    if (!ssl) return NULL;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    bool good = SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1 &&
                (len == 0 || SSL_set_alpn_protos(ssl, first, len) == 0);
    if (good) return ssl;
    SSL_free(ssl);
    return NULL;
}

struct ssl_st *tls_context_accept(const struct tls_context *context, int fd, const uint8_t *first, size_t len,
                                  const struct injection_leaf *leaf, enum tls_protocol protocol) {
    static const char *const names[] = {[TLS_PROTOCOL_NONE] = NULL, [TLS_PROTOCOL_HTTP1] = "http/1.1",
                                        [TLS_PROTOCOL_HTTP2] = "h2"};
    SSL *ssl = tls_context_ssl(context, context->server, fd, first, len);
    if (!ssl) return NULL;
    bool good = SSL_set_app_data(ssl, (char *)(uintptr_t)names[protocol]) == 1 &&
                SSL_use_certificate(ssl, leaf->certificate) == 1 && SSL_use_PrivateKey(ssl, leaf->key) == 1;
    if (good) return ssl;
    SSL_free(ssl);
    return NULL;
}

int tls_context_shake(struct ssl_st *ssl, bool server, bool *ret_writes) {
    ERR_clear_error();
    int rc = server ? SSL_accept(ssl) : SSL_connect(ssl);
    if (rc == 1) return 1;
    int error = SSL_get_error(ssl, rc);
    *ret_writes = error == SSL_ERROR_WANT_WRITE;
    return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? 0 : -1;
}

enum tls_protocol tls_context_protocol(const struct ssl_st *ssl) {
    const unsigned char *name = NULL;
    unsigned len = 0;
    SSL_get0_alpn_selected(ssl, &name, &len);
    if (len == 0) return TLS_PROTOCOL_NONE;
    return len == 2 && memcmp(name, "h2", 2) == 0 ? TLS_PROTOCOL_HTTP2 : TLS_PROTOCOL_HTTP1;
}

bool tls_context_claims(const struct ssl_st *ssl, const char *host) {
    struct name_host claimed;
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    if (!name || name_from_wire(name, strlen(name), &claimed) < 0) return false;
    return !claimed.is_address && strcmp(claimed.name, host) == 0;
}

bool tls_context_refused(void) {
    static const int reasons[] = {
        SSL_R_TLSV1_ALERT_UNKNOWN_CA,          SSL_R_SSLV3_ALERT_BAD_CERTIFICATE,     SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN,
        SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED, SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED, SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE,
    };
    int reason = ERR_GET_REASON(ERR_peek_error());
    for (size_t i = 0; i < ARRAY_LENGTH(reasons); i++)
        if (reasons[i] == reason) return true;
    return false;
}

// What more roots of trust can mend.
static bool is_unknown_root(long verified) {
    return verified == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY || verified == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT ||
           verified == X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE || verified == X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN ||
           verified == X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT;
}

const char *tls_context_why(const struct ssl_st *ssl, char *text, size_t size) {
    static const struct {
        int reason;
        const char *words;
    } known[] = {
        {SSL_R_WRONG_VERSION_NUMBER, "the server does not speak TLS"},
        {SSL_R_HTTP_REQUEST, "the server does not speak TLS"},
        {SSL_R_UNSUPPORTED_PROTOCOL, "the server speaks no TLS 1.2 or 1.3"},
        {SSL_R_TLSV1_ALERT_PROTOCOL_VERSION, "the server speaks no TLS 1.2 or 1.3"},
        {SSL_R_UNEXPECTED_EOF_WHILE_READING, "the server closed the connection during the TLS handshake"},
        {SSL_R_SSLV3_ALERT_BAD_CERTIFICATE, "the server wants a client's certificate"},
        {SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE, "the server refuses the TLS handshake"},
        {SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED, "the server wants a client's certificate"},
        {SSL_R_TLSV1_UNRECOGNIZED_NAME, "the server does not know the host"},
    };
    long verified = SSL_get_verify_result(ssl);
    int reason = ERR_GET_REASON(ERR_peek_error());
    const char *words = "the TLS handshake with the server failed";
    if (verified != X509_V_OK) {
        snprintf(text, size, "the server's certificate is not accepted: %s%s", X509_verify_cert_error_string(verified),
                 is_unknown_root(verified) ? "; if its authority is yours, name that with --upstream-ca FILE" : "");
        return text;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(known); i++)
        if (known[i].reason == reason) words = known[i].words;
    snprintf(text, size, "%s", words);
    return text;
}
