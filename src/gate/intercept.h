// SPDX-License-Identifier: Apache-2.0
// TLS opened for a host with a credential: the gate is the server of the sandbox's client and the client of the real
// server, and requests are judged and relayed one by one in between (http_relay.c, h2_relay.c).
//
// Order: the ClientHello was judged, the name it claims is the name that was resolved and dialled; TLS upstream first,
// with the protocols that the client offers, verified for the name; then the client's handshake, with the protocol that
// the server chose. A server that is not there or not the host's: the client's handshake is made all the same
// (HTTP/1.1, if it takes that) so that requests are answered with 502. No session tickets, no early data.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gate/injection.h"
#include "policy/policy.h"

struct flow;
struct gate;
struct stream;

// Loads OpenSSL, roots of trust and what else is in files, before the gate isolates itself. extra_roots: PEM, or NULL.
int intercept_prepare(struct gate *gate, const char *extra_roots, struct error *err);
void intercept_done(struct gate *gate);

// Whether this TLS connection, judged and allowed, is to be opened: sni is the name it claims (canonical, NULL: none).
bool intercept_wanted(const struct flow *flow, const char *sni);
// Takes flow->fd, flow->upstream and the opening's bytes.
void intercept_start(struct flow *flow);
void intercept_free(struct flow *flow, bool reset);

// ---- for the relays of both versions of HTTP, of a flow that is opened ----

const char *intercept_host(const struct flow *flow);   // the bound host
// The two ends, TLS done; from here on the relay's, which gives them its handlers (stream_handle). upstream NULL: there
// is none, every request gets upstream_failed.
struct stream *intercept_take_client(struct flow *flow);
struct stream *intercept_take_upstream(struct flow *flow);
// What is wrong with a server that did not answer, in a few words.
const char *intercept_why(const struct flow *flow);
// The client ended the connection: that it did so before it asked for anything is told in the log.
void intercept_client_left(struct flow *flow);
// A request carried these values: the connection ends (flow_end) when one of them is replaced or revoked.
void intercept_carries(struct flow *flow, const struct injection *injection);

// h2_relay.c: both ends speak HTTP/2 (RFC 9113)
struct h2_relay;
void h2_relay_start(struct flow *flow);
void h2_relay_free(struct h2_relay *relay, bool reset);
struct policy_decision h2_relay_rejudge(const struct flow *flow);
void h2_relay_resume(struct flow *flow); // the log has room again
