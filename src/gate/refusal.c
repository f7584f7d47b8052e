// SPDX-License-Identifier: Apache-2.0
// How a refusal looks (semantics section 9): in the client's own protocol, at once, never a hang.
// A refusal in bytes is followed by a lingering close: a plain close with unread data in the socket would send a reset,
// and the client's kernel would then throw our bytes away unread.
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "gate/state.h"

void refusal_send_raw(struct gate *gate, const struct addr *destination, const uint8_t *bytes, size_t len) {
    struct sockaddr_storage to;
    socklen_t to_len = addr_to_sockaddr(destination, 0, &to);
    int fd = gate->sockets[destination->family == ADDR_IPV4 ? IPC_SOCKET_RAW4 : IPC_SOCKET_RAW6];
    // Loss is the network's right: the sandbox sends again.
    if (len > 0) (void)!sendto(fd, bytes, len, 0, (struct sockaddr *)&to, to_len);
}

void refusal_packet(struct gate *gate, const struct ip_packet *about, enum ip_unreachable code) {
    uint8_t bytes[1280];
    size_t len = ip_write_unreachable(about, code, bytes, sizeof(bytes));
    refusal_send_raw(gate, &about->source, bytes, len);
}

void refusal_reset(struct flow *flow) { flow_end(flow, true); }

static void refusal_drain(int fd, void *data) {
    struct flow *flow = data;
    char bytes[16384];
    for (int i = 0; i < 16; i++) {
        ssize_t len = recv(fd, bytes, sizeof(bytes), 0);
        if (len < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (len <= 0) {
            flow_end(flow, false);
            return;
        }
    }
}

void refusal_linger(struct flow *flow, const void *bytes, size_t len) {
    flow->state = FLOW_LINGERING;
    if (flow->opening) flow_forget_events(flow);
    if (flow->upstream >= 0) relay_reset_fd(TAKE_FD(flow->upstream));
    // A refusal is smaller than any empty send buffer. Only behind an answer that is still unread it may not fit: then the end
    // of the connection has to say it, for a reset would take that answer too.
    bool sent = flow_need_opening(flow) && (send(flow->fd, bytes, len, MSG_NOSIGNAL) >= 0 || errno == EAGAIN);
    if (!sent || shutdown(flow->fd, SHUT_WR) < 0) {
        flow_end(flow, true);
        return;
    }
    struct opening *opening = flow->opening;
    if (opening->connector) connector_cancel(TAKE_POINTER(opening->connector));
    bool ready = watch_start(flow->gate->watcher, &opening->readable, flow->fd, refusal_drain, flow) == 0;
    if (!ready || !flow_deadline(flow, GATE_LINGER_MS)) flow_end(flow, true);
}

void refusal_tls(struct flow *flow, enum tls_alert alert) {
    uint8_t record[TLS_ALERT_SIZE];
    tls_alert_write(alert, record);
    refusal_linger(flow, record, sizeof(record));
}

void refusal_http2(struct flow *flow) {
    // An empty SETTINGS frame and GOAWAY with HTTP_1_1_REQUIRED (RFC 9113 6.5, 6.8, 7).
    static const uint8_t frames[] = {0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 13};
    refusal_linger(flow, frames, sizeof(frames));
}

static const char *refusal_status(enum policy_reason reason, bool opened) {
    if (reason == POLICY_NAME_MISMATCH && opened) return "421 Misdirected Request"; // RFC 9110 15.5.20
    if (reason == POLICY_BINDING_FAILED) return "502 Bad Gateway";
    if (reason == POLICY_BAD_REQUEST) return "400 Bad Request";
    if (reason == POLICY_UPSTREAM_FAILED || reason == POLICY_DNS_FAILED) return "502 Bad Gateway";
    return "403 Forbidden";
}

static const char *refusal_error(enum policy_reason reason) {
    if (reason == POLICY_UPSTREAM_FAILED) return "upstream_failed";
    return reason == POLICY_BINDING_FAILED ? "binding_failed" : "egress_denied";
}

void refusal_json(struct gate *gate, const struct policy_request *request, const struct policy_decision *decision,
                  const char *why, struct buf *ret_body) {
    char hint[POLICY_HINT_SIZE], address[ADDR_TEXT_SIZE] = "";
    const char *host = request->claimed ? request->claimed : request->dialled;
    const struct addr *literal = request->claimed_address ? request->claimed_address : request->address;
    if (!host && literal) host = addr_format(literal, address);
    policy_hint(gate->policy, request, decision, hint);
    json_t *json = json_pack("{s:s, s:s, s:s?, s:i, s:s?, s:s}", "error", refusal_error(decision->reason), "reason",
                             policy_reason_name(decision->reason), "host", host, "port", (int)request->port, "rule",
                             decision->rule == POLICY_RULE_NONE ? NULL
                                                                : policy_rule_info(gate->policy, decision->rule).text,
                             "hint", why ? why : hint);
    AUTO_FREE char *text = json ? json_dumps(json, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(json);
    if (text) buf_printf(ret_body, "%s\n", text);
    else ret_body->failed = true;
}

char *refusal_http_text(struct gate *gate, const struct policy_request *request, const struct policy_decision *decision,
                        const char *why) {
    struct buf body = BUF_INIT, text = BUF_INIT;
    refusal_json(gate, request, decision, why, &body);
    buf_printf(&text,
               "HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %zu\r\nx-penstock-reason: %s\r\n"
               "cache-control: no-store\r\nconnection: close\r\n\r\n%s",
               refusal_status(decision->reason, request->app == POLICY_APP_TLS), body.len, policy_reason_name(decision->reason),
               body.data ? body.data : "");
    if (body.failed) text.failed = true;
    buf_done(&body);
    return buf_take(&text);
}

void refusal_http(struct flow *flow, const struct policy_request *request, const struct policy_decision *decision) {
    AUTO_FREE char *text = refusal_http_text(flow->gate, request, decision, NULL);
    if (text) refusal_linger(flow, text, strlen(text));
    else flow_end(flow, true);
}
