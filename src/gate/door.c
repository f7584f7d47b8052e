// SPDX-License-Identifier: Apache-2.0
// Theory of operation: a door only learns the destination. Then the flow goes the way of every flow (syn_judge), where
// "let the SYN through" is to say yes in the door's protocol and "answer it with a reset" to say no. A name is dialled
// as if it had come from a synthetic address; an address is judged as the address of a SYN would be. So nothing is decided
// here, and what may follow behind the answer (TLS, HTTP, anything) is sniffed and judged as on every flow.
//
// Requests of HTTP in the absolute form go to the HTTP relay, which aims anew for each of them. What belongs to the
// sandbox's own namespace is refused here, before the verdict, as the kernel and syn_new do for others.
#include "gate/door.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "gate/state.h"
#include "wire/socks5.h"

enum door_kind door_at(const struct gate *gate, const struct addr *destination, uint16_t port) {
    if (!gate->doors || !keeper_serves(destination)) return DOOR_NONE;
    return port == KEEPER_PORT_HTTP ? DOOR_HTTP : port == KEEPER_PORT_SOCKS ? DOOR_SOCKS : DOOR_NONE;
}

void door_open(struct flow *flow, enum door_kind kind) {
    flow->door = NEW(struct door);
    if (!flow->door) {
        syn_refuse(flow, -ECONNREFUSED);
        return;
    }
    flow->door->kind = kind;
    syn_admit(flow);
}

static struct policy_decision door_reason(enum policy_reason reason) {
    return (struct policy_decision){.verdict = POLICY_DENY, .reason = reason, .rule = POLICY_RULE_NONE};
}

// ---- the destination ----

bool door_aims_at(const struct flow *flow, const struct name_host *target, uint16_t port) {
    const struct name_host *last = &flow->door->target;
    return flow->port == port && last->is_address == target->is_address &&
           addr_equal(&last->address, &target->address) && strcmp(last->name, target->name) == 0;
}

// What a program of the sandbox would reach in its own namespace: its own services, and the gate's.
static bool door_leads_back(const struct gate *gate, const struct addr *address, uint16_t port) {
    uint16_t opened[IPC_PORTS_MAX];
    if (keeper_owns(address) || addr_is_unspecified(address)) return true;
    if (!addr_is_loopback(address)) return false;
    size_t count = policy_loopback_ports(gate->policy, opened, ARRAY_LENGTH(opened));
    for (size_t i = 0; i < count; i++)
        if (opened[i] == port) return false;
    return true;
}

// The name localhost under a policy that opens the host's loopback by address only.
static void door_localhost(struct flow *flow) {
    static const struct addr addresses[] = {
        {.family = ADDR_IPV4, .bytes = {127, 0, 0, 1}},
        {.family = ADDR_IPV6, .bytes = {[15] = 1}},
    };
    struct policy_request request = flow_request(flow);
    if (policy_decide(flow->gate->policy, &request).verdict != POLICY_DENY) return;
    for (size_t i = 0; i < ARRAY_LENGTH(addresses); i++) {
        request.dialled = NULL;
        request.address = &addresses[i];
        if (door_leads_back(flow->gate, &addresses[i], flow->port)) continue;
        if (policy_decide(flow->gate->policy, &request).verdict == POLICY_DENY) continue;
        flow->dialled = NULL;
        flow->destination = addresses[i];
        return;
    }
}

bool door_aim(struct flow *flow, const struct name_host *target, uint16_t port, struct policy_decision *ret_denial) {
    struct door *door = flow->door;
    if (!door_aims_at(flow, target, port)) {
        flow_report(flow); // another destination on a kept connection: each has its own line in the log
        flow->peer = target->address;
    }
    free(TAKE_POINTER(flow->name));
    door->target = *target;
    flow->dialled = target->is_address ? NULL : door->target.name;
    flow->destination = target->address; // none of a name
    flow->port = port;
    if (!target->is_address && strcmp(target->name, "localhost") == 0) door_localhost(flow);
    bool own = target->is_address && door_leads_back(flow->gate, &target->address, port);
    struct policy_request request = flow_request(flow);
    if (!own && syn_locate(flow, &request)) return true;
    *ret_denial = door_reason(own ? POLICY_NODE_OWN_ADDRESS : POLICY_NO_NAME);
    return false;
}

void door_lose_aim(struct flow *flow) {
    flow_report(flow);
    free(TAKE_POINTER(flow->name));
    flow->door->target = (struct name_host){0};
    flow->dialled = NULL;
    flow->destination = flow->peer = (struct addr){0};
    flow->port = 0;
}

// ---- answers ----

static void door_stop(struct flow *flow) {
    flow_stop_timer(flow);
    flow_forget_events(flow);
}

// What is written here is short, and fits unless the answer before it is still unread: then the connection ends behind that
// one, as any proxy may end it. False: the flow has ended, or will.
static bool door_write(struct flow *flow, const void *bytes, size_t len) {
    if (send(flow->fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len) return true;
    refusal_linger(flow, "", 0);
    return false;
}

static enum socks5_code door_code(const struct policy_decision *decision, int error) {
    if (decision->reason == POLICY_DNS_FAILED) return SOCKS5_HOST_UNREACHABLE;
    if (decision->reason == POLICY_BAD_REQUEST || decision->reason == POLICY_LIMIT_EXCEEDED) return SOCKS5_FAILED;
    if (decision->reason != POLICY_UPSTREAM_FAILED) return SOCKS5_NOT_ALLOWED;
    switch (-error) {
    case ECONNREFUSED:
        return SOCKS5_REFUSED;
    case ENETUNREACH:
        return SOCKS5_NETWORK_UNREACHABLE;
    case EHOSTUNREACH:
    case ETIMEDOUT:
        return SOCKS5_HOST_UNREACHABLE;
    }
    return SOCKS5_FAILED;
}

static void door_reply(struct flow *flow, enum socks5_code code) {
    uint8_t reply[SOCKS5_REPLY_SIZE];
    socks5_reply_write(code, reply);
    refusal_linger(flow, reply, sizeof(reply));
}

void door_refuse(struct flow *flow, const struct policy_request *request, const struct policy_decision *decision,
                 int error) {
    if (flow->door->kind == DOOR_HTTP) refusal_http(flow, request, decision);
    else door_reply(flow, door_code(decision, error));
}

void door_admit(struct flow *flow) {
    static const char established[] = "HTTP/1.1 200 Connection established\r\n\r\n";
    uint8_t reply[SOCKS5_REPLY_SIZE];
    socks5_reply_write(SOCKS5_SUCCEEDED, reply);
    bool http = flow->door->kind == DOOR_HTTP;
    if (door_write(flow, http ? (const void *)established : reply, http ? strlen(established) : sizeof(reply)))
        syn_pass(flow);
}

static void door_bad_socks(struct flow *flow) {
    struct opening *opening = flow->opening;
    uint8_t rejection[SOCKS4_REJECTION_SIZE], choice[SOCKS5_CHOICE_SIZE];
    uint8_t version = opening->len > 0 ? opening->bytes[0] : 0;
    socks4_rejection_write(rejection);
    socks5_choice_write(SOCKS5_NO_METHOD, choice);
    if (flow->door->stage == DOOR_REQUEST) door_reply(flow, SOCKS5_FAILED);
    else if (flow->door->stage == DOOR_GREETING && version == 4) refusal_linger(flow, rejection, sizeof(rejection));
    else if (flow->door->stage == DOOR_GREETING && version == 5) refusal_linger(flow, choice, sizeof(choice));
    else refusal_reset(flow);
}

// The client did not say where it wants to go, or not as the door's protocol has it.
static void door_bad(struct flow *flow) {
    struct policy_request request = flow_request(flow);
    struct policy_decision decision = door_reason(POLICY_BAD_REQUEST);
    door_stop(flow);
    flow_judged(flow, &request, &decision);
    if (flow->door->kind == DOOR_HTTP) refusal_http(flow, &request, &decision);
    else door_bad_socks(flow);
}

// ---- requests ----

static void door_consume(struct flow *flow, size_t len) {
    struct opening *opening = flow->opening;
    opening->len -= len;
    memmove(opening->bytes, opening->bytes + len, opening->len);
}

// The destination is read; what stands behind it is the first of the connection.
static void door_ask(struct flow *flow, const struct name_host *target, uint16_t port) {
    struct policy_decision denial;
    door_stop(flow);
    flow->door->stage = DOOR_PASSED;
    if (door_aim(flow, target, port, &denial)) {
        syn_judge(flow);
        return;
    }
    struct policy_request request = flow_request(flow);
    flow_judged(flow, &request, &denial);
    door_refuse(flow, &request, &denial, 0);
}

static void door_http(struct flow *flow) {
    struct opening *opening = flow->opening;
    struct http1_head head;
    struct name_host target;
    uint16_t port = 0;
    enum wire_result result = http1_head(&flow->door->http1, opening->bytes, opening->len, &head);
    if (result == WIRE_MORE) return;
    if (result == WIRE_OK && head.form != HTTP1_FORM_AUTHORITY) {
        door_stop(flow);
        flow->app = POLICY_APP_HTTP;
        http_relay_start(flow);
        return;
    }
    if (result == WIRE_OK) {
        if (name_authority_from_wire(head.authority.data, head.authority.len, &target, &port) < 0) port = 0;
        door_consume(flow, head.len);
    }
    if (port == 0) door_bad(flow);
    else door_ask(flow, &target, port);
}

static void door_socks_request(struct flow *flow, const struct socks5_request *socks, size_t used) {
    struct name_host target = {.is_address = socks->name.len == 0, .address = socks->address};
    bool wellformed = !socks->unknown_address && socks->port != 0 &&
                      (target.is_address || name_from_wire(socks->name.data, socks->name.len, &target) == 0);
    door_consume(flow, used);
    if (wellformed && socks->command == SOCKS5_CONNECT) {
        door_ask(flow, &target, socks->port);
    } else if (wellformed || socks->unknown_address) {
        struct policy_request request = flow_request(flow);
        struct policy_decision decision = door_reason(wellformed ? POLICY_PROTOCOL_DENIED : POLICY_BAD_REQUEST);
        door_stop(flow);
        flow_judged(flow, &request, &decision);
        door_reply(flow, wellformed ? SOCKS5_COMMAND_UNKNOWN : SOCKS5_ADDRESS_UNKNOWN);
    } else {
        door_bad(flow);
    }
}

// Each reads one message. True: it was whole, and the next one may be there.
static bool door_socks_greeting(struct flow *flow) {
    uint8_t choice[SOCKS5_CHOICE_SIZE];
    enum socks5_method method = SOCKS5_NO_METHOD;
    size_t used = 0;
    enum wire_result result = socks5_greeting(flow->opening->bytes, flow->opening->len, &method, &used);
    if (result == WIRE_MORE) return false;
    if (result == WIRE_BAD || method == SOCKS5_NO_METHOD) {
        door_bad(flow);
        return false;
    }
    door_consume(flow, used);
    flow->door->stage = method == SOCKS5_PASSWORD ? DOOR_CREDENTIALS : DOOR_REQUEST;
    socks5_choice_write(method, choice);
    return door_write(flow, choice, sizeof(choice));
}

static bool door_socks_credentials(struct flow *flow) {
    uint8_t welcome[SOCKS5_WELCOME_SIZE];
    size_t used = 0;
    enum wire_result result = socks5_credentials(flow->opening->bytes, flow->opening->len, &used);
    if (result == WIRE_BAD) door_bad(flow);
    if (result != WIRE_OK) return false;
    door_consume(flow, used);
    flow->door->stage = DOOR_REQUEST;
    socks5_welcome_write(welcome);
    return door_write(flow, welcome, sizeof(welcome));
}

static void door_socks(struct flow *flow) {
    struct door *door = flow->door;
    struct socks5_request request;
    size_t used = 0;
    if (door->stage == DOOR_GREETING && !door_socks_greeting(flow)) return;
    if (door->stage == DOOR_CREDENTIALS && !door_socks_credentials(flow)) return;
    enum wire_result result = socks5_request(flow->opening->bytes, flow->opening->len, &request, &used);
    if (result == WIRE_OK) door_socks_request(flow, &request, used);
    else if (result == WIRE_BAD) door_bad(flow);
}

// ---- reading ----

static void door_read(struct flow *flow) {
    if (flow->door->kind == DOOR_HTTP) door_http(flow);
    else door_socks(flow);
}

void door_deadline(struct flow *flow) {
    if (flow_waits(flow) && flow_deadline(flow, GATE_SNIFF_MS)) return; // not the client's fault
    if (flow->opening->len > 0 || flow->door->stage > DOOR_GREETING) door_bad(flow);
    else flow_end(flow, false); // it never said anything
}

static void door_readable(int fd, void *data) {
    (void)fd;
    struct flow *flow = data;
    ssize_t len = flow_read(flow);
    if (len > 0) door_read(flow);
    else if (len == 0) door_deadline(flow);
    else if (len != -EAGAIN) flow_end(flow, true);
}

void door_start(struct flow *flow) {
    struct door *door = flow->door;
    struct opening *opening = flow->opening;
    flow->state = FLOW_ASKING;
    flow->app = POLICY_APP_UNKNOWN;
    door->stage = DOOR_GREETING;
    http1_init(&door->http1, HTTP1_REQUEST, (struct wire_slice){0});
    bool ready = watch_start(flow->gate->watcher, &opening->readable, flow->fd, door_readable, flow) == 0;
    if (!ready || !flow_deadline(flow, GATE_SNIFF_MS)) flow_end(flow, true);
    else if (opening->len > 0) door_read(flow);
}
