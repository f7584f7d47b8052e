// SPDX-License-Identifier: Apache-2.0
// How the gate speaks TLS at both ends of an opened connection: TLS 1.2 and 1.3, no compression, renegotiation,
// tickets, sessions or early data; upstream only to a server whose certificate is good for the host.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "gate/injection.h"

struct ssl_st;
struct tls_context;

enum tls_protocol { TLS_PROTOCOL_NONE, TLS_PROTOCOL_HTTP1, TLS_PROTOCOL_HTTP2 }; // by ALPN; NONE: not said

// Loads OpenSSL and the system's roots of trust, and those of extra_roots (PEM, or NULL). 0, or a negative errno.
int tls_context_new(const char *extra_roots, struct tls_context **ret_context, struct error *err);
void tls_context_free(struct tls_context *context);

// A client of host on this socket, which offers these protocols. The socket stays the caller's. NULL: out of memory.
struct ssl_st *tls_context_connect(const struct tls_context *context, int fd, const char *host, bool http1, bool http2);
// A server with this leaf; first: what was read from the socket already, copied. Takes this protocol if the client
// offers it.
struct ssl_st *tls_context_accept(const struct tls_context *context, int fd, const uint8_t *first, size_t len,
                                  const struct injection_leaf *leaf, enum tls_protocol protocol);

// Goes on with the handshake. 1: done; 0: later, when the socket is readable or, with *ret_writes, writable; -1:
// failed.
int tls_context_shake(struct ssl_st *ssl, bool server, bool *ret_writes);
enum tls_protocol tls_context_protocol(const struct ssl_st *ssl);
bool tls_context_claims(const struct ssl_st *ssl, const char *host); // of a server: the SNI of its client is this host
// Whether the handshake that failed just now did because the client does not accept the certificate: it said so by an alert.
bool tls_context_refused(void);
// Why a handshake that just failed did so, in a few words. Returns text.
const char *tls_context_why(const struct ssl_st *ssl, char *text, size_t size);
