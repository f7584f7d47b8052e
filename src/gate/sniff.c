// SPDX-License-Identifier: Apache-2.0
// The first bytes of a connection that the destination alone does not decide. They are consumed into a buffer and
// replayed: peeking at a partial ClientHello would spin a level-triggered loop. Nothing goes upstream before the verdict.
// Where the destination is allowed whatever comes (only a guardrail has names), upstream bytes flow back meanwhile; where
// only TLS or HTTP is allowed, an upstream that speaks before its client is refused after a moment.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "gate/intercept.h"
#include "gate/state.h"

#define SNIFF_STEP 4096

static void sniff_decide(struct flow *flow);

static void sniff_stop(struct flow *flow) {
    flow_stop_timer(flow);
    flow_forget_events(flow);
}

static void sniff_answer(struct flow *flow, const struct policy_request *request,
                         const struct policy_decision *decision, enum tls_alert alert) {
    switch ((enum policy_app)flow->app) {
    case POLICY_APP_TLS:
        refusal_tls(flow, alert);
        break;
    case POLICY_APP_HTTP:
        refusal_http(flow, request, decision);
        break;
    case POLICY_APP_UNKNOWN:
    case POLICY_APP_OTHER:
        refusal_reset(flow);
        break;
    }
}

static void sniff_refuse(struct flow *flow, const struct policy_request *request,
                         const struct policy_decision *decision, enum tls_alert alert) {
    flow_judged(flow, request, decision);
    sniff_answer(flow, request, decision, alert);
}

static struct policy_decision sniff_reason(enum policy_reason reason) {
    return (struct policy_decision){.verdict = POLICY_DENY, .reason = reason, .rule = POLICY_RULE_NONE};
}

// ---- after the verdict ----

static bool sniff_opens(const struct flow *flow) {
    return flow->app == POLICY_APP_TLS && intercept_wanted(flow, flow->opening->sni[0] ? flow->opening->sni : NULL);
}

// What is opened is logged request by request.
static void sniff_pass(struct flow *flow, const struct policy_request *request, const struct policy_decision *decision) {
    if (sniff_opens(flow)) {
        intercept_start(flow);
        return;
    }
    flow_judged(flow, request, decision);
    flow_relay(flow, NULL, 0);
}

static void sniff_connected(int fd, const struct addr *peer, const struct policy_decision *denied, void *data) {
    struct flow *flow = data;
    flow->opening->connector = NULL;
    flow->upstream = fd;
    if (fd >= 0) flow->peer = *peer;
    struct policy_request request = flow_request(flow);
    if (peer && (flow->name || flow->dialled)) request.address = peer;
    struct policy_decision own = sniff_reason(POLICY_NODE_OWN_ADDRESS);
    if (!denied && fd == -EACCES) denied = &own; // the dial found itself on this host
    if (fd < 0 && !denied && sniff_opens(flow)) {
        flow->upstream = -1;
        intercept_start(flow);
        return;
    }
    if (fd < 0 && !denied) {
        struct policy_decision failed = flow_unreachable(flow, &request, NULL);
        sniff_answer(flow, &request, &failed, TLS_ALERT_ACCESS_DENIED);
        return;
    }
    struct policy_decision decision = denied ? *denied : policy_decide(flow->gate->policy, &request);
    if (decision.verdict != POLICY_ALLOW) {
        sniff_refuse(flow, &request, &decision, TLS_ALERT_ACCESS_DENIED);
        return;
    }
    sniff_pass(flow, &request, &decision);
}

static void sniff_fetch(struct flow *flow, const struct policy_request *request, const char *name) {
    flow->state = FLOW_FETCHING;
    struct opening *opening = flow->opening;
    opening->connector =
        connector_start(flow->gate, request, name, flow->destination.family, sniff_connected, flow);
    if (opening->connector) return;
    struct policy_decision limit = sniff_reason(POLICY_LIMIT_EXCEEDED);
    sniff_refuse(flow, request, &limit, TLS_ALERT_INTERNAL_ERROR);
}

void sniff_rejudge(struct flow *flow) {
    struct opening *opening = flow->opening;
    struct policy_request request = flow_request(flow);
    if (flow->upstream >= 0) request.address = &flow->peer;
    if (opening->connector) {
        struct policy_decision decision = connector_rejudge(opening->connector);
        if (decision.verdict != POLICY_DENY) return;
        connector_cancel(TAKE_POINTER(opening->connector));
        sniff_refuse(flow, &request, &decision, TLS_ALERT_ACCESS_DENIED);
    } else if (flow->open_destination && !syn_is_open(flow->gate, request)) {
        // Nothing flows back any more until the client's bytes are judged.
        flow->open_destination = false;
        meter_leave(&flow->gate->meter, METER_IN, &opening->turns[RELAY_UPSTREAM]);
        watch_stop(&opening->back);
    }
}

static void sniff_allowed(struct flow *flow, const struct policy_request *request,
                          const struct policy_decision *decision) {
    const char *name = decision->name;
    if (flow->upstream >= 0 && (!name || (flow->dialled && strcmp(name, flow->dialled) == 0))) {
        sniff_pass(flow, request, decision);
        return;
    }
    if (flow->upstream >= 0) relay_reset_fd(TAKE_FD(flow->upstream));
    if (name && !flow->dialled && !(flow->name = strdup(name))) {
        flow_end(flow, true);
        return;
    }
    flow->resolved = flow->name != NULL;
    sniff_fetch(flow, request, name || request->address ? name : flow->dialled);
}

// ---- what the bytes show ----

static void sniff_tls(struct flow *flow) {
    struct opening *opening = flow->opening;
    struct tls_hello hello;
    enum wire_result result = tls_hello_parse(opening->bytes, opening->len, &opening->walk, &hello);
    if (result == WIRE_MORE) return;
    sniff_stop(flow);
    struct policy_request request = flow_request(flow);
    if (flow->upstream >= 0) request.address = &flow->peer;
    struct name_host claimed = {0};
    struct policy_decision decision = sniff_reason(POLICY_TLS_BAD_HELLO);
    if (result == WIRE_BAD) {
        sniff_refuse(flow, &request, &decision, TLS_ALERT_DECODE_ERROR);
        return;
    }
    if (hello.has_sni && name_from_wire(hello.sni, hello.sni_len, &claimed) < 0) {
        sniff_refuse(flow, &request, &decision, TLS_ALERT_UNRECOGNIZED_NAME);
        return;
    }
    request.ech = hello.has_ech;
    if (hello.has_sni && claimed.is_address) request.claimed_address = &claimed.address;
    else if (hello.has_sni) request.claimed = claimed.name;
    memccpy(opening->sni, claimed.name, 0, sizeof(opening->sni));
    opening->alpn_http1 = hello.alpn_http1;
    opening->alpn_http2 = hello.alpn_h2;
    decision = policy_decide(flow->gate->policy, &request);
    if (decision.verdict == POLICY_ALLOW) sniff_allowed(flow, &request, &decision);
    else sniff_refuse(flow, &request, &decision, TLS_ALERT_UNRECOGNIZED_NAME);
}

static void sniff_http(struct flow *flow) {
    sniff_stop(flow);
    http_relay_start(flow);
}

static void sniff_other(struct flow *flow) {
    sniff_stop(flow);
    struct policy_request request = flow_request(flow);
    if (flow->upstream >= 0) request.address = &flow->peer;
    struct policy_decision decision = policy_decide(flow->gate->policy, &request);
    if (decision.verdict == POLICY_ALLOW) sniff_allowed(flow, &request, &decision);
    else sniff_refuse(flow, &request, &decision, TLS_ALERT_ACCESS_DENIED);
}

// HTTP/2 without TLS has many requests on one connection that a request-by-request relay of HTTP/1 cannot judge.
static void sniff_http2(struct flow *flow) {
    if (flow->open_destination) {
        flow->app = POLICY_APP_OTHER;
        sniff_other(flow);
        return;
    }
    sniff_stop(flow);
    flow->app = POLICY_APP_HTTP;
    struct policy_request request = flow_request(flow);
    struct policy_decision decision = policy_decide(flow->gate->policy, &request);
    if (decision.verdict != POLICY_DENY) decision = sniff_reason(POLICY_PROTOCOL_DENIED);
    flow_judged(flow, &request, &decision);
    refusal_http2(flow);
}

static void sniff_decide(struct flow *flow) {
    switch (wire_classify(flow->opening->bytes, flow->opening->len)) {
    case WIRE_APP_MORE:
        break;
    case WIRE_APP_TLS:
        flow->app = POLICY_APP_TLS;
        sniff_tls(flow);
        break;
    case WIRE_APP_HTTP1:
        flow->app = POLICY_APP_HTTP;
        sniff_http(flow);
        break;
    case WIRE_APP_HTTP2:
        sniff_http2(flow);
        break;
    case WIRE_APP_OTHER:
        flow->app = POLICY_APP_OTHER;
        sniff_other(flow);
        break;
    }
}

void sniff_deadline(struct flow *flow) {
    if (flow->app == POLICY_APP_UNKNOWN) flow->app = POLICY_APP_OTHER;
    if (flow->app == POLICY_APP_OTHER) {
        sniff_other(flow);
        return;
    }
    sniff_stop(flow); // a hello that never became whole
    struct policy_request request = flow_request(flow);
    struct policy_decision decision = sniff_reason(POLICY_TLS_BAD_HELLO);
    sniff_refuse(flow, &request, &decision, TLS_ALERT_DECODE_ERROR);
}

// ---- reading ----

static void sniff_readable(int fd, void *data) {
    (void)fd;
    struct flow *flow = data;
    ssize_t len = flow_read(flow);
    if (len > 0) sniff_decide(flow);
    else if (len == 0) sniff_deadline(flow); // the client has nothing (more) to say: what it said stands for all
    else if (len != -EAGAIN) flow_end(flow, true);
}

// A server that speaks first, to a destination that is allowed whatever the client says.
static void sniff_back(int fd, void *data) {
    struct flow *flow = data;
    uint8_t bytes[SNIFF_STEP];
    ssize_t allowed = flow_ask(flow, RELAY_UPSTREAM, sizeof(bytes));
    if (allowed < 0) return;
    ssize_t len = recv(fd, bytes, (size_t)allowed, MSG_PEEK);
    if (len < 0 && (errno == EAGAIN || errno == EINTR)) return;
    ssize_t sent = len > 0 ? send(flow->fd, bytes, (size_t)len, MSG_NOSIGNAL) : -1;
    if (sent < 0 && len > 0 && errno == EAGAIN) {
        // A client that neither reads nor speaks: the deadline ends the wait.
        watch_pause(&flow->opening->back);
    } else if (sent < 0) {
        sniff_deadline(flow); // the end or a failure of the upstream side is the relay's to pass on
    } else {
        (void)!recv(fd, bytes, (size_t)sent, 0);
        meter_take(&flow->gate->meter, METER_IN, (size_t)sent);
        flow->relay.bytes[RELAY_UPSTREAM] += (uint64_t)sent;
    }
}

// Servers of TLS and HTTP never speak first. Where one does and nothing else is allowed, there is nothing to wait for:
// its client waits for it, and would do so until the deadline.
static void sniff_spoke(int fd, void *data) {
    struct flow *flow = data;
    uint8_t byte;
    ssize_t len = recv(fd, &byte, 1, MSG_PEEK);
    if (len < 0 && (errno == EAGAIN || errno == EINTR)) return;
    watch_pause(&flow->opening->back);
    if (len <= 0 || flow->opening->len > 0) return; // ended, or the client has spoken: its bytes decide
    struct policy_request request = flow_request(flow);
    request.app = POLICY_APP_OTHER;
    request.address = &flow->peer;
    if (policy_decide(flow->gate->policy, &request).verdict == POLICY_DENY) sniff_deadline(flow);
}

static bool sniff_watch(struct flow *flow, int fd, watch_ready *ready, struct watch *watch) {
    return watch_start(flow->gate->watcher, watch, fd, ready, flow) == 0;
}

// Few clients leave the first word to the server, so a server that must not have it is listened to a moment later.
static bool sniff_listens_later(const struct flow *flow) {
    return flow->upstream >= 0 && !flow->open_destination && !watch_started(&flow->opening->back);
}

void sniff_timeout(struct flow *flow) {
    if (flow_waits(flow) && flow_deadline(flow, GATE_SNIFF_MS)) return; // not the client's fault
    if (!sniff_listens_later(flow)) sniff_deadline(flow);
    else if (!sniff_watch(flow, flow->upstream, sniff_spoke, &flow->opening->back) || !flow_deadline(flow, GATE_SNIFF_MS))
        flow_end(flow, true);
}

void sniff_start(struct flow *flow) {
    struct opening *opening = flow->opening;
    flow->state = FLOW_SNIFFING;
    bool ready = sniff_watch(flow, flow->fd, sniff_readable, &opening->readable);
    if (ready && flow->upstream >= 0 && flow->open_destination) ready = sniff_watch(flow, flow->upstream, sniff_back, &opening->back);
    if (!ready || !flow_deadline(flow, sniff_listens_later(flow) ? GATE_LISTEN_MS : GATE_SNIFF_MS)) flow_end(flow, true);
    else if (opening->len > 0) sniff_decide(flow); // what a client of a door sent at once with its request
}
