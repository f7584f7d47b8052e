// SPDX-License-Identifier: Apache-2.0
// The client's side of the HTTP/1 relay: heads are read, judged, given their credentials and sent.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gate/http_relay.h"
#include "gate/intercept.h"
#include "vault/vault.h"

#define HTTP_RECORD 16384 // bytes: head and first bytes of the body are one TLS record

void http_request_body(struct http_relay *http, struct evbuffer *to) {
    if (http->request_done) return;
    uint64_t *bytes = &http->bytes[RELAY_SANDBOX];
    enum wire_result result = http_body_relay(&http->request, stream_input(http->client), to, bytes);
    http->request_done = result == WIRE_OK;
    if (result == WIRE_BAD && http->answered) flow_end(http->flow, true);
    else if (result == WIRE_BAD) http_relay_refuse_reason(http, POLICY_BAD_REQUEST);
    else if (http->client_eof && !http->request_done && http->answered) http_relay_finish(http);
    else if (http->client_eof && !http->request_done) flow_end(http->flow, true);
    else if (http->answered && http->request_done) http_response_read(http); // the exchange is over only now
}

// ---- sending ----

// The log has one line for each request: this one, or that of its refusal. injection: NULL where nothing is opened.
static void http_request_begin(struct http_relay *http, const struct policy_decision *decision, const struct injection *injection) {
    struct gate *gate = http->flow->gate;
    struct policy_request request = http_relay_reached(http);
    const struct journal_note note = {
        .credentials = injection ? injection_places(gate, intercept_host(http->flow), injection) : 0};
    flow_noted(http->flow, &request, decision, &note);
    http->state = HTTP_RELAY_EXCHANGE;
    http->server_eof = http->answer_begun = false;
    http->interim = 0;
}

static void http_request_send(struct http_relay *http, const struct policy_decision *decision) {
    http_request_begin(http, decision, NULL);
    if (evbuffer_add_buffer(stream_output(http->server), http->outgoing) < 0) flow_end(http->flow, true);
    else http_request_body(http, stream_output(http->server));
}

static void http_request_reached(struct http_relay *http) {
    struct policy_decision decision = http_relay_rejudge(http->flow);
    if (decision.verdict == POLICY_ALLOW) http_request_send(http, &decision);
    else http_relay_refuse_reason(http, POLICY_POLICY_CHANGED);
}

static void http_request_connected(int fd, const struct addr *peer, const struct policy_decision *denied, void *data) {
    struct http_relay *http = data;
    http->connector = NULL;
    if (fd < 0) {
        struct policy_decision own = {.verdict = POLICY_DENY, .reason = POLICY_NODE_OWN_ADDRESS, .rule = POLICY_RULE_NONE};
        if (!denied && fd == -EACCES) denied = &own; // the dial found itself on this host
        if (denied) http_relay_refuse_at(http, peer, *denied);
        else http_relay_unreachable(http);
    } else {
        http->flow->peer = *peer;
        if (!http_relay_take_server(http, fd)) flow_end(http->flow, true);
        else http_request_reached(http);
    }
    if (!http->dead) http_relay_balance(http);
}

static void http_request_connect(struct http_relay *http, const struct policy_decision *decision) {
    struct flow *flow = http->flow;
    const char *claimed = flow->dialled ? NULL : decision->name; // NULL: the destination itself
    bool kept = http->server && strcmp(http->server_name, claimed ? claimed : "") == 0;
    struct policy_decision now = kept ? http_relay_rejudge(flow) : *decision;
    if (kept && now.verdict == POLICY_ALLOW) {
        http_request_send(http, &now);
        http->reused = true;
        return;
    }
    stream_free(TAKE_POINTER(http->server), false);
    struct policy_request request = http_relay_request(http);
    snprintf(http->server_name, sizeof(http->server_name), "%s", claimed ? claimed : "");
    flow->resolved = claimed != NULL;
    const char *name = claimed || request.address ? claimed : flow->dialled;
    http->state = HTTP_RELAY_CONNECTING;
    http->connector = connector_start(flow->gate, &request, name, flow->destination.family, http_request_connected, http);
    if (!http->connector) http_relay_refuse_reason(http, POLICY_LIMIT_EXCEEDED);
}

// ---- credentials ----

// The head with its values in locked memory, and as much of the body as fits into the same record. NULL: out of memory,
// or the body is wrong from its start and the request was refused.
static uint8_t *http_request_assemble(struct http_relay *http, const uint8_t *bytes, const struct http1_head *head,
                                      const struct injection *injection, size_t *ret_len) {
    char host[FLOW_AUTHORITY_SIZE];
    flow_authority(http->flow, intercept_host(http->flow), host);
    size_t len = http_head_inject(NULL, bytes, head, injection, host);
    size_t room = len < HTTP_RECORD ? HTTP_RECORD - len : 0;
    size_t body = evbuffer_get_length(stream_input(http->client)) - head->len;
    if (room > body) room = body;
    uint8_t *secret = vault_client_memory(len + room);
    if (!secret) return NULL;
    http_head_inject(secret, bytes, head, injection, host);
    http->bytes[RELAY_SANDBOX] += head->len;
    evbuffer_drain(stream_input(http->client), head->len);
    http_request_body(http, http->outgoing);
    if (http->dead || http->state != HTTP_RELAY_INJECTING) {
        vault_client_wipe(secret);
        return NULL;
    }
    int moved = evbuffer_remove(http->outgoing, secret + len, room);
    *ret_len = len + (moved > 0 ? (size_t)moved : 0);
    return secret;
}

// The head was read before its values were asked for, and nothing since: it is the same, read once more. True: the
// injection was taken, for the response.
static bool http_request_inject(struct http_relay *http, const struct policy_decision *decision, struct injection *injection) {
    struct evbuffer *input = stream_input(http->client);
    struct http1_head head;
    const uint8_t *bytes = evbuffer_pullup(input, -1);
    size_t len = 0;
    http1_init(&http->request, HTTP1_REQUEST, (struct wire_slice){0});
    http->request.no_trailers = injection->count > 0; // one of these could stand for a header of a credential
    bool good = bytes && http1_head(&http->request, bytes, evbuffer_get_length(input), &head) == WIRE_OK;
    uint8_t *secret = good ? http_request_assemble(http, bytes, &head, injection, &len) : NULL;
    if (http->dead || http->state != HTTP_RELAY_INJECTING) return false; // a body that is wrong from its start
    if (!secret || http_scrub_new(injection, &http->scrub) < 0) {
        vault_client_wipe(secret);
        flow_end(http->flow, true);
        return false;
    }
    bool kept = http->scrub != NULL;
    intercept_carries(http->flow, injection);
    http_request_begin(http, decision, injection);
    good = stream_push_secret(http->server, secret, len, vault_client_wipe, secret);
    if (good) good = evbuffer_add_buffer(stream_output(http->server), http->outgoing) == 0;
    if (!good) flow_end(http->flow, true);
    return kept;
}

static void http_request_injected(int status, struct injection *injection, void *data) {
    struct http_relay *http = data;
    http->wait = NULL;
    struct policy_decision decision = http_relay_rejudge(http->flow); // the policy may be another one by now
    bool kept = false;
    if (status < 0) http_relay_unbound(http, status);
    else if (decision.verdict != POLICY_ALLOW) http_relay_refuse_reason(http, POLICY_POLICY_CHANGED);
    else if (!http->server && http->reused) flow_end(http->flow, false); // it ended meanwhile: the client tries again
    else if (!http->server) http_relay_unreachable(http);
    else if (http->upgrade && injection_scrubs(injection)) http_relay_refuse_reason(http, POLICY_PROTOCOL_DENIED);
    else kept = http_request_inject(http, &decision, injection);
    if (!kept) injection_free(injection);
    if (!http->dead) http_relay_balance(http);
}

static void http_request_ask(struct http_relay *http, const struct http1_head *head) {
    struct flow *flow = http->flow;
    if (!http->server) {
        http_relay_unreachable(http);
        return;
    }
    http->reused = flow->counted; // a request went before this one
    http->state = HTTP_RELAY_INJECTING;
    http->wait = injection_start(flow->gate, intercept_host(flow), head->method.data, head->method.len, head->path.data,
                                 head->path.len, http_request_injected, http);
    if (!http->wait) http_relay_unbound(http, -EBUSY);
}

// ---- judging ----

// The destination of a request to a door: its own, whatever came before. False: the request was refused.
static bool http_request_aim(struct http_relay *http, const struct name_host *target, uint16_t port) {
    struct flow *flow = http->flow;
    struct policy_decision denial;
    if (!door_aims_at(flow, target, port)) stream_free(TAKE_POINTER(http->server), false);
    if (door_aim(flow, target, port, &denial)) return true;
    http_relay_refuse(http, denial);
    return false;
}

// The one host that a request names, and its port or 0. -EINVAL: none that is well-formed, or two that differ.
static int http_request_host(struct http_relay *http, const struct http1_head *head, struct name_host *ret_host,
                             uint16_t *ret_port) {
    struct name_host host = {0}, target;
    uint16_t port = 0, target_port = 0, own = http->opened ? http->flow->port : 80;
    http->host[0] = 0;
    http->host_address = (struct addr){0};
    if (head->has_host && head->host.len > 0 &&
        name_authority_from_wire(head->host.data, head->host.len, &host, &port) < 0) {
        return -EINVAL;
    }
    bool named = head->has_host && head->host.len > 0;
    if (head->form == HTTP1_FORM_ABSOLUTE) {
        if (name_authority_from_wire(head->authority.data, head->authority.len, &target, &target_port) < 0) return -EINVAL;
        if (named && (host.is_address != target.is_address || !addr_equal(&host.address, &target.address) ||
                      strcmp(host.name, target.name) != 0)) {
            return -EINVAL;
        }
        if ((http->door || http->opened) && port != 0 && port != (target_port ? target_port : own)) return -EINVAL;
        host = target;
        port = target_port;
        named = true;
    }
    if (!http->door && !http->opened && port != 0 && port != http->flow->port) return -EINVAL;
    if (!named && head->minor_version != 0) return -EINVAL; // RFC 9112 3.2: a 400 for HTTP/1.1
    if (host.is_address) http->host_address = host.address;
    else memcpy(http->host, host.name, sizeof(http->host));
    *ret_host = host;
    *ret_port = port;
    return 0;
}

// The body is read as far as it has come before anything is sent, so that framing which is wrong from the start reaches
// nobody.
static void http_request_pass(struct http_relay *http, const uint8_t *bytes, const struct http1_head *head,
                              const struct policy_decision *decision) {
    if (!http_head_write(http->outgoing, bytes, head)) {
        flow_end(http->flow, true);
        return;
    }
    http->bytes[RELAY_SANDBOX] += evbuffer_get_length(http->outgoing);
    evbuffer_drain(stream_input(http->client), head->len);
    http_request_body(http, http->outgoing);
    if (http->dead || http->state == HTTP_RELAY_ENDING) return;
    free(TAKE_POINTER(http->flow->name)); // the flow is the latest request's
    bool named = !http->flow->dialled && http->host[0];
    if (named && !(http->flow->name = strdup(http->host))) flow_end(http->flow, true);
    else http_request_connect(http, decision);
}

static bool http_request_wellformed(const struct http_relay *http, const struct http1_head *head) {
    bool form_fits = http->door ? head->form == HTTP1_FORM_ABSOLUTE : head->form != HTTP1_FORM_AUTHORITY;
    bool scheme_fits = head->form != HTTP1_FORM_ABSOLUTE || head->absolute_https == http->opened;
    return form_fits && (scheme_fits || http->opened) && head->method.len < sizeof(http->method);
}

// In opened TLS a request is for the one host, or for another server than this connection's (RFC 9110 15.5.20). TRACE
// would have the server tell the sandbox its credentials.
static bool http_request_misdirected(struct http_relay *http, const struct http1_head *head, uint16_t port) {
    bool scheme_fits = head->form != HTTP1_FORM_ABSOLUTE || head->absolute_https;
    bool port_fits = port == 0 || port == http->flow->port;
    bool fits = scheme_fits && port_fits && strcmp(http->host, intercept_host(http->flow)) == 0;
    if (fits && policy_method_may(head->method.data, head->method.len)) return false;
    http_relay_refuse_reason(http, fits ? POLICY_BAD_REQUEST : POLICY_NAME_MISMATCH);
    return true;
}

static void http_request_judge(struct http_relay *http, const uint8_t *bytes, const struct http1_head *head) {
    struct name_host host;
    uint16_t port;
    http->head_begun_us = 0;
    if (http->hurried) stream_idle_after(http->client, GATE_HTTP_IDLE_MS);
    http->hurried = false;
    if (http->door && head->form == HTTP1_FORM_AUTHORITY) {
        http_relay_to_door(http);
        return;
    }
    if (!http_request_wellformed(http, head) || http_request_host(http, head, &host, &port) < 0) {
        if (http->door) door_lose_aim(http->flow); // it is not what the request before asked for
        http_relay_refuse_reason(http, POLICY_BAD_REQUEST);
        return;
    }
    memcpy(http->method, head->method.data, head->method.len);
    http->method[head->method.len] = 0;
    if (http->door && !http_request_aim(http, &host, port ? port : 80)) return;
    if (http->opened && http_request_misdirected(http, head, port)) return;
    struct policy_request request = http->opened ? http_relay_reached(http) : http_relay_request(http);
    struct policy_decision decision = policy_decide(http->flow->gate->policy, &request);
    if (decision.verdict != POLICY_ALLOW) {
        http_relay_refuse(http, decision);
        return;
    }
    http->keep_alive = head->keep_alive;
    // An offer of h2c is left out (http_head.c): its frames would have to be read, and clients take an answer in HTTP/1.1.
    http->upgrade = (head->upgrade_websocket || head->upgrade_other) && !head->upgrade_h2c;
    http->expects = head->expect_continue;
    if (http->opened) http_request_ask(http, head);
    else http_request_pass(http, bytes, head, &decision);
}

void http_request_next(struct http_relay *http) {
    struct evbuffer *input = stream_input(http->client);
    size_t len = evbuffer_get_length(input);
    if (http->flow->gate->paused) return; // http_relay_resume comes back
    http->request_done = http->response_headed = http->answered = false;
    http_scrub_free(TAKE_POINTER(http->scrub));
    if (http->client_eof && len == 0) {
        http_relay_finish(http);
        return;
    }
    if (len == 0) return;
    uint64_t now = clock_us();
    if (!http->head_begun_us) { // once a head: the parser goes on where it was
        http->head_begun_us = now;
        http1_init(&http->request, HTTP1_REQUEST, (struct wire_slice){0});
    }
    struct http1_head head;
    const uint8_t *bytes = evbuffer_pullup(input, -1);
    if (!bytes) {
        flow_end(http->flow, true);
        return;
    }
    enum wire_result result = http1_head(&http->request, bytes, len, &head);
    if (result == WIRE_OK) http_request_judge(http, bytes, &head);
    else if (result == WIRE_BAD || len >= HTTP1_HEAD_MAX || now - http->head_begun_us > http->head_ms * UINT64_C(1000))
        http_relay_refuse_reason(http, POLICY_BAD_REQUEST);
    else if (http->client_eof) http_relay_finish(http);
    else if (!http->hurried && !(http->hurried = stream_idle_after(http->client, http->head_ms))) flow_end(http->flow, true);
}
