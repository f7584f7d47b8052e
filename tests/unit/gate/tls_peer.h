// SPDX-License-Identifier: Apache-2.0
// For unit tests: certificates made on the spot, and the other end of a TLS connection, with OpenSSL itself.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct tls_identity {
    X509 *certificate;
    EVP_PKEY *key;
};

// name: the DNS name of a leaf, or of a CA. issuer NULL: its own. days: until it ends; negative: ago.
static inline struct tls_identity tls_identity_new(const char *name, const struct tls_identity *issuer, int days) {
    struct tls_identity own = {X509_new(), EVP_EC_gen("P-256")};
    static long serial;
    char san[300];
    X509V3_CTX context;
    assert_non_null(own.certificate);
    assert_non_null(own.key);
    X509_set_version(own.certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(own.certificate), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(own.certificate), -86400 * 10);
    X509_gmtime_adj(X509_getm_notAfter(own.certificate), 86400L * days);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(own.certificate), "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(own.certificate, X509_get_subject_name((issuer ? issuer : &own)->certificate));
    X509_set_pubkey(own.certificate, own.key);
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, (issuer ? issuer : &own)->certificate, own.certificate, NULL, NULL, 0);
    snprintf(san, sizeof(san), "DNS:%s", name);
    X509_EXTENSION *extension = issuer ? X509V3_EXT_conf_nid(NULL, &context, NID_subject_alt_name, san)
                                       : X509V3_EXT_conf_nid(NULL, &context, NID_basic_constraints, "critical,CA:TRUE");
    assert_non_null(extension);
    X509_add_ext(own.certificate, extension, -1);
    X509_EXTENSION_free(extension);
    assert_true(X509_sign(own.certificate, (issuer ? issuer : &own)->key, EVP_sha256()) > 0);
    return own;
}

static inline void tls_identity_done(struct tls_identity *identity) {
    X509_free(identity->certificate);
    EVP_PKEY_free(identity->key);
    *identity = (struct tls_identity){0};
}

static inline char *tls_identity_pem(const struct tls_identity *identity) {
    BIO *bio = BIO_new(BIO_s_mem());
    char *bytes;
    assert_int_equal(PEM_write_bio_X509(bio, identity->certificate), 1);
    long len = BIO_get_mem_data(bio, &bytes);
    char *text = calloc(1, (size_t)len + 1);
    memcpy(text, bytes, (size_t)len);
    BIO_free(bio);
    return text;
}

struct tls_peer {
    int fd;        // -1: closed
    SSL_CTX *context;
    SSL *ssl;      // NULL: plain
    char got[400000];
    size_t len, reads; // reads: how many pieces (records, in TLS) it came in
    bool done;     // handshake
    bool notified; // the other end's orderly end
    bool ended;    // the end of the connection, or a failure
    bool failed;
};

static inline int tls_peer_pair(struct tls_peer *peer) {
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    *peer = (struct tls_peer){.fd = fds[0]};
    return fds[1];
}

static inline void tls_peer_tls(struct tls_peer *peer, bool server, const struct tls_identity *identity) {
    peer->context = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    if (identity) {
        assert_int_equal(SSL_CTX_use_certificate(peer->context, identity->certificate), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey(peer->context, identity->key), 1);
    }
    peer->ssl = SSL_new(peer->context);
    SSL_set_fd(peer->ssl, peer->fd);
    if (server) SSL_set_accept_state(peer->ssl);
    else SSL_set_connect_state(peer->ssl);
}

// Whatever can go on now.
static inline void tls_peer_step(struct tls_peer *peer) {
    while (peer->fd >= 0 && !peer->ended && peer->len < sizeof(peer->got) - 1) {
        size_t room = sizeof(peer->got) - 1 - peer->len;
        if (peer->ssl && !peer->done) {
            ERR_clear_error();
            int rc = SSL_do_handshake(peer->ssl);
            int error = rc == 1 ? 0 : SSL_get_error(peer->ssl, rc);
            if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return;
            peer->done = rc == 1;
            peer->ended = peer->failed = rc != 1;
            continue;
        }
        ERR_clear_error();
        ssize_t got = peer->ssl ? SSL_read(peer->ssl, peer->got + peer->len, (int)room) : recv(peer->fd, peer->got + peer->len, room, 0);
        if (got > 0) {
            peer->len += (size_t)got;
            peer->reads++;
            continue;
        }
        int error = peer->ssl ? SSL_get_error(peer->ssl, (int)got) : 0;
        if (peer->ssl ? error == SSL_ERROR_WANT_READ : got < 0 && errno == EAGAIN) return;
        peer->notified = peer->ssl ? error == SSL_ERROR_ZERO_RETURN : got == 0;
        peer->failed = !peer->notified;
        peer->ended = true;
    }
}

static inline void tls_peer_say(struct tls_peer *peer, const void *bytes, size_t len) {
    if (peer->fd < 0) return;
    if (peer->ssl) (void)!SSL_write(peer->ssl, bytes, (int)len);
    else (void)!send(peer->fd, bytes, len, MSG_NOSIGNAL);
}

static inline void tls_peer_close(struct tls_peer *peer, bool orderly) {
    if (peer->ssl && orderly) SSL_shutdown(peer->ssl);
    SSL_free(peer->ssl);
    SSL_CTX_free(peer->context);
    if (peer->fd >= 0) close(peer->fd);
    peer->fd = -1;
    peer->ssl = NULL;
    peer->context = NULL;
}
