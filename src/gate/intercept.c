// SPDX-License-Identifier: Apache-2.0
// One opened connection until its relay takes over, and what the relay needs afterwards. Stages: UPSTREAM (handshake
// with the server; skipped where there is none) -> LEAF (the vault makes the certificate; as a rule it is there) ->
// CLIENT (handshake with the sandbox's client) -> DONE. A server that fails is forgotten, with the reason for the 502s.
//
// Until DONE the sockets are the flow's. Nothing is sent to the client before its certificate is there, so that a
// failure can still be told with an alert. The sandbox's ClientHello goes nowhere: the server gets one of ours.
#include "gate/intercept.h"

#include <event2/event_struct.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "gate/h2_calls.h"
#include "gate/state.h"
#include "gate/stream.h"
#include "gate/tls_calls.h"
#include "gate/tls_context.h"

#define INTERCEPT_WHY_SIZE 256

enum intercept_stage { INTERCEPT_UPSTREAM, INTERCEPT_LEAF, INTERCEPT_CLIENT, INTERCEPT_DONE };

struct intercept_carried {
    uint32_t rule, epoch;
};

struct intercept {
    struct flow *flow;
    char host[NAME_SIZE];
    char why[INTERCEPT_WHY_SIZE];
    enum intercept_stage stage;
    enum tls_protocol protocol; // that the client is to take
    bool http1, http2;          // that it offers
    SSL *upstream_ssl, *client_ssl;
    struct stream *upstream, *client;
    struct event ready;         // the socket of the handshake under way
    bool waiting;               // ready was added
    struct injection_leaf_wait *leaf;
    size_t carried_count;
    struct intercept_carried carried[POLICY_CREDENTIALS_MAX];
};

static void intercept_go_on(struct intercept *intercept);

// ---- life of the gate ----

// Sees to it that connections whose requests carried an older value of this rule end.
static void intercept_changed(struct gate *gate, uint32_t rule, uint32_t epoch) {
    LIST_FOREACH(&gate->flows, node) {
        struct flow *flow = LIST_ENTRY(node, struct flow, link);
        const struct intercept *intercept = flow->intercept;
        bool old = false;
        for (size_t i = 0; intercept && i < intercept->carried_count; i++)
            old |= intercept->carried[i].rule == rule && intercept->carried[i].epoch < epoch;
        if (old) flow_end(flow, true);
    }
}

int intercept_prepare(struct gate *gate, const char *extra_roots, struct error *err) {
    int rc = h2_calls_load(err);
    if (rc == 0) rc = tls_context_new(extra_roots, &gate->tls, err);
    if (rc == 0) injection_on_change(gate, intercept_changed);
    return rc;
}

void intercept_done(struct gate *gate) { tls_context_free(TAKE_POINTER(gate->tls)); }

// ---- what the relays ask ----

const char *intercept_host(const struct flow *flow) { return flow->intercept->host; }

const char *intercept_why(const struct flow *flow) {
    return flow->intercept->why[0] ? flow->intercept->why : "the server ended the connection, or does not speak HTTP";
}

struct stream *intercept_take_client(struct flow *flow) { return TAKE_POINTER(flow->intercept->client); }

struct stream *intercept_take_upstream(struct flow *flow) { return TAKE_POINTER(flow->intercept->upstream); }

void intercept_carries(struct flow *flow, const struct injection *injection) {
    struct intercept *intercept = flow->intercept;
    for (size_t i = 0; i < injection->count; i++) {
        const struct injection_value *value = &injection->values[i];
        size_t at = 0;
        while (at < intercept->carried_count && intercept->carried[at].rule != value->rule) at++;
        if (at == ARRAY_LENGTH(intercept->carried)) at = 0; // rules of a host are fewer: never
        if (at == intercept->carried_count) intercept->carried_count++;
        else if (value->epoch >= intercept->carried[at].epoch) continue; // the oldest decides
        intercept->carried[at] = (struct intercept_carried){value->rule, value->epoch};
    }
}

bool intercept_wanted(const struct flow *flow, const char *sni) {
    const char *dialled = flow->resolved ? flow->name : flow->dialled;
    return flow->gate->tls && sni && dialled && strcmp(sni, dialled) == 0 && policy_name_bound(flow->gate->policy, sni);
}

// ---- the handshakes ----

static void intercept_stop(struct intercept *intercept) {
    if (intercept->waiting) event_del(&intercept->ready);
    intercept->waiting = false;
}

void intercept_free(struct flow *flow, bool reset) {
    struct intercept *intercept = TAKE_POINTER(flow->intercept);
    if (!intercept) return;
    intercept_stop(intercept);
    if (intercept->leaf) injection_leaf_cancel(intercept->leaf);
    if (intercept->upstream_ssl) SSL_free(intercept->upstream_ssl);
    if (intercept->client_ssl) SSL_free(intercept->client_ssl);
    stream_free(intercept->upstream, reset);
    stream_free(intercept->client, reset);
    free(intercept);
}

static struct policy_request intercept_request(const struct intercept *intercept) {
    const struct flow *flow = intercept->flow;
    return (struct policy_request){
        .protocol = POLICY_TCP, .app = POLICY_APP_TLS, .dialled = intercept->host, .claimed = intercept->host,
        .address = flow->upstream >= 0 ? &flow->peer : NULL, .port = flow->port,
    };
}

static void intercept_readied(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct intercept *intercept = data;
    intercept->waiting = false;
    intercept_go_on(intercept);
}

static void intercept_wait(struct intercept *intercept, int fd, bool writes) {
    struct flow *flow = intercept->flow;
    event_assign(&intercept->ready, flow->gate->base, fd, writes ? EV_WRITE : EV_READ, intercept_readied, intercept);
    intercept->waiting = event_add(&intercept->ready, NULL) == 0;
    if (!intercept->waiting) flow_end(flow, true);
}

// Without its server: HTTP/1.1 is what a client can be told in most simply.
static void intercept_alone(struct intercept *intercept) {
    struct flow *flow = intercept->flow;
    SSL_free(TAKE_POINTER(intercept->upstream_ssl));
    if (flow->upstream >= 0) relay_reset_fd(TAKE_FD(flow->upstream));
    intercept->protocol = intercept->http2 ? TLS_PROTOCOL_HTTP2 : TLS_PROTOCOL_NONE;
    if (intercept->http1) intercept->protocol = TLS_PROTOCOL_HTTP1;
    intercept->stage = INTERCEPT_LEAF;
    intercept_go_on(intercept);
}

static void intercept_upstream(struct intercept *intercept) {
    struct flow *flow = intercept->flow;
    bool writes = false;
    int rc = tls_context_shake(intercept->upstream_ssl, false, &writes);
    if (rc == 0) {
        intercept_wait(intercept, flow->upstream, writes);
        return;
    }
    if (rc < 0) {
        tls_context_why(intercept->upstream_ssl, intercept->why, sizeof(intercept->why));
        intercept_alone(intercept);
        return;
    }
    intercept->protocol = tls_context_protocol(intercept->upstream_ssl);
    intercept->stage = INTERCEPT_LEAF;
    intercept_go_on(intercept);
}

// No certificate, so no TLS in which anything could be said.
static void intercept_leafless(struct intercept *intercept, int status) {
    char why[INJECTION_WHY_SIZE];
    struct flow *flow = intercept->flow;
    struct policy_request request = intercept_request(intercept);
    struct policy_decision decision = {.verdict = POLICY_DENY, .reason = POLICY_BINDING_FAILED, .rule = POLICY_RULE_NONE};
    const struct journal_note note = {.hint = injection_why(status, why)};
    flow_noted(flow, &request, &decision, &note);
    intercept_free(flow, true);
    refusal_tls(flow, TLS_ALERT_INTERNAL_ERROR);
}

static void intercept_leaf_ready(int status, void *data) {
    struct intercept *intercept = data;
    intercept->leaf = NULL;
    if (status < 0) intercept_leafless(intercept, status);
    else intercept_go_on(intercept);
}

static void intercept_leaf(struct intercept *intercept) {
    struct flow *flow = intercept->flow;
    const struct injection_leaf *leaf = injection_leaf(flow->gate, intercept->host);
    flow_stop_timer(flow);
    if (!leaf) { // which has a deadline of its own
        intercept->leaf = injection_leaf_start(flow->gate, intercept->host, intercept_leaf_ready, intercept);
        if (!intercept->leaf) intercept_leafless(intercept, -EBUSY);
        return;
    }
    intercept->client_ssl = tls_context_accept(flow->gate->tls, flow->fd, flow->opening->bytes, flow->opening->len, leaf,
                                               intercept->protocol);
    if (!intercept->client_ssl || !flow_deadline(flow, GATE_TLS_MS)) {
        flow_end(flow, true);
        return;
    }
    free(TAKE_POINTER(flow->opening->bytes));
    flow->opening->len = flow->opening->size = 0;
    intercept->stage = INTERCEPT_CLIENT;
    intercept_go_on(intercept);
}

#define INTERCEPT_TRUST "let it use the file in SSL_CERT_FILE, or trust what `penstock ca export` prints"

// What it did not like it has been told, or has told us. refused: our certificate.
static void intercept_client_failed(struct intercept *intercept, bool refused) {
    struct flow *flow = intercept->flow;
    struct policy_request request = intercept_request(intercept);
    struct policy_decision decision = {.verdict = POLICY_DENY, .reason = POLICY_BINDING_FAILED, .rule = POLICY_RULE_NONE};
    struct journal_note note = {.hint = "the client does not accept the certificate that Penstock made for this host, which has a "
                                        "credential; " INTERCEPT_TRUST};
    if (!refused) {
        decision = policy_decide(flow->gate->policy, &request);
        note.hint = "the client did not end the TLS handshake; if that is for Penstock's certificate, " INTERCEPT_TRUST;
    }
    flow_noted(flow, &request, &decision, &note);
    intercept_free(flow, true);
    refusal_linger(flow, "", 0);
}

void intercept_client_left(struct flow *flow) {
    if (!flow->intercept || flow->judged) return;
    struct policy_request request = intercept_request(flow->intercept);
    struct policy_decision decision = policy_decide(flow->gate->policy, &request);
    const struct journal_note note = {.hint = "the client ended the connection before its first request; if that is for Penstock's "
                                              "certificate, " INTERCEPT_TRUST};
    flow_noted(flow, &request, &decision, &note);
}

static bool intercept_streams(struct intercept *intercept) {
    struct flow *flow = intercept->flow;
    struct event_base *base = flow->gate->base;
    intercept->client = stream_new(base, flow->fd, intercept->client_ssl, GATE_HTTP_IDLE_MS, NULL, NULL);
    if (!intercept->client) return false;
    stream_meter(intercept->client, &flow->gate->meter, METER_OUT);
    flow->fd = -1;
    intercept->client_ssl = NULL;
    if (!intercept->upstream_ssl) return true;
    intercept->upstream = stream_new(base, flow->upstream, intercept->upstream_ssl, GATE_HTTP_IDLE_MS, NULL, NULL);
    if (!intercept->upstream) return false;
    stream_meter(intercept->upstream, &flow->gate->meter, METER_IN);
    flow->upstream = -1;
    intercept->upstream_ssl = NULL;
    return true;
}

static void intercept_client(struct intercept *intercept) {
    struct flow *flow = intercept->flow;
    bool writes = false;
    int rc = tls_context_shake(intercept->client_ssl, true, &writes);
    if (rc == 0) {
        intercept_wait(intercept, flow->fd, writes);
        return;
    }
    // A hello that OpenSSL understands differently than we did, or another one after a HelloRetryRequest.
    bool same = rc > 0 && tls_context_claims(intercept->client_ssl, intercept->host) &&
                tls_context_protocol(intercept->client_ssl) == intercept->protocol;
    if (!same) {
        intercept_client_failed(intercept, rc < 0 && tls_context_refused());
        return;
    }
    intercept->stage = INTERCEPT_DONE;
    flow_free_opening(flow);
    if (!intercept_streams(intercept)) flow_end(flow, true);
    else if (intercept->protocol == TLS_PROTOCOL_HTTP2) h2_relay_start(flow);
    else http_relay_start(flow);
}

static void intercept_go_on(struct intercept *intercept) {
    switch (intercept->stage) {
    case INTERCEPT_UPSTREAM:
        intercept_upstream(intercept);
        break;
    case INTERCEPT_LEAF:
        intercept_leaf(intercept);
        break;
    case INTERCEPT_CLIENT:
        intercept_client(intercept);
        break;
    case INTERCEPT_DONE:
        break;
    }
}

void intercept_deadline(struct flow *flow) {
    struct intercept *intercept = flow->intercept;
    intercept_stop(intercept);
    if (intercept->stage != INTERCEPT_UPSTREAM) {
        intercept_client_failed(intercept, false);
        return;
    }
    snprintf(intercept->why, sizeof(intercept->why), "the server does not go on with the TLS handshake");
    intercept_alone(intercept);
}

void intercept_start(struct flow *flow) {
    struct intercept *intercept = flow->intercept = NEW(struct intercept);
    flow->state = FLOW_OPENING;
    flow->judged = false;
    // Where the server has spoken already its client is not one that waits for a handshake.
    if (!intercept || flow->relay.bytes[RELAY_UPSTREAM] > 0 || !flow_deadline(flow, GATE_TLS_MS)) {
        flow_end(flow, true);
        return;
    }
    intercept->flow = flow;
    intercept->http1 = flow->opening->alpn_http1;
    intercept->http2 = flow->opening->alpn_http2;
    memccpy(intercept->host, flow->resolved ? flow->name : flow->dialled, 0, sizeof(intercept->host));
    if (flow->upstream < 0) {
        snprintf(intercept->why, sizeof(intercept->why), "the server cannot be reached");
        intercept_alone(intercept);
        return;
    }
    intercept->upstream_ssl =
        tls_context_connect(flow->gate->tls, flow->upstream, intercept->host, intercept->http1, intercept->http2);
    if (intercept->upstream_ssl) intercept_go_on(intercept);
    else flow_end(flow, true);
}
