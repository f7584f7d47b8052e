// SPDX-License-Identifier: Apache-2.0
// UDP of the sandbox, as tproxy hands it over, whole (the kernel has put fragments together). Port 53 is answered by the
// DNS front, or relayed to a server that a CIDR entry allows. Other datagrams belong to an exchange (exchange.h); the first
// one of each is judged. What is denied is refused with an ICMP error at once. Names never allow UDP: QUIC to a listed name
// is refused, so that the client falls back to TLS over TCP, whose name can be seen.
//
// ICMP echo requests are shown by the packet socket and dropped by the sandbox's kernel, for which every address is local.
// An allowed one is sent from the host through a ping socket, which has an identifier of its own; the sequence number and
// the payload stay, and the reply gets the sandbox's identifier back.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "gate/datagram_answers.h"
#include "gate/state.h"

#define DATAGRAM_QUOTE_MAX 512 // of a datagram, in the error about it
#define DATAGRAM_CONTROL_SIZE 256

// ---- DNS ----

// Where an answer goes: the client's address, from the server it asked.
struct datagram_reply {
    struct gate *gate;
    struct exchange_key key;
};

static void datagram_answer(const uint8_t *answer, size_t len, void *data) {
    struct datagram_reply *reply = data;
    if (answer) answers_add(reply->gate->answers, &reply->key, answer, len);
    free(reply);
}

static void datagram_dns(struct gate *gate, const struct exchange_key *key, const uint8_t *message, size_t len) {
    struct policy_request request = {.protocol = POLICY_UDP, .address = &key->server, .port = key->port};
    struct policy_decision decision = datagram_decide(gate, &request);
    bool relayed = decision.verdict == POLICY_ALLOW && decision.reason == POLICY_ALLOWED_CIDR;
    if (!relayed && !keeper_owns(&key->server) && !request.dialled) {
        // An entry for TCP opens the server too: both transports lead to it (semantics section 8).
        request.protocol = POLICY_TCP;
        decision = policy_decide(gate->policy, &request);
        relayed = decision.verdict == POLICY_ALLOW && decision.reason == POLICY_ALLOWED_CIDR;
    }
    if (relayed) journal_decision(gate, &request, &decision);
    struct datagram_reply *reply = NEW(struct datagram_reply);
    if (!reply) return;
    *reply = (struct datagram_reply){.gate = gate, .key = *key};
    if (len > DATAGRAM_DNS_MAX) len = DATAGRAM_DNS_MAX;
    if (relayed) dns_front_relay(gate->front, message, len, &reply->key.server, key->port, datagram_answer, reply);
    else dns_front_query(gate->front, message, len, &reply->key.server, datagram_answer, reply);
}

// ---- verdict ----

static struct policy_decision datagram_denial(enum policy_reason reason, uint32_t rule) {
    return (struct policy_decision){.verdict = POLICY_DENY, .reason = reason, .rule = rule};
}

struct policy_decision datagram_decide(struct gate *gate, struct policy_request *request) {
    if (keeper_owns(request->address)) return datagram_denial(POLICY_NODE_OWN_ADDRESS, POLICY_RULE_NONE);
    if (gate->facts.synthetic && dns_pool_contains(gate->pool, request->address)) {
        request->dialled = dns_pool_name(gate->pool, request->address);
        if (!request->dialled) return datagram_denial(POLICY_NO_NAME, POLICY_RULE_NONE);
        request->address = NULL;
    }
    struct policy_decision decision = policy_decide(gate->policy, request);
    bool by_name = request->dialled && decision.verdict != POLICY_DENY;
    return by_name ? datagram_denial(POLICY_PROTOCOL_DENIED, decision.rule) : decision;
}

// The exchange of an allowed datagram, new if it is the first one. NULL: refused and logged.
static struct exchange *datagram_admit(struct gate *gate, const struct exchange_key *key, const struct ip_packet *about) {
    struct policy_request request = {.protocol = key->protocol, .address = &key->server, .port = key->port};
    struct exchange *exchange = exchange_find(gate, key);
    if (exchange) return exchange;
    struct policy_decision decision = datagram_decide(gate, &request);
    if (decision.verdict == POLICY_ALLOW) return exchange_open(gate, key, &decision, about);
    journal_decision(gate, &request, &decision);
    refusal_packet(gate, about, IP_UNREACHABLE_PROHIBITED);
    return NULL;
}

// ---- ICMP echo ----

void datagram_echo(struct gate *gate, const struct ip_packet *request) {
    const struct exchange_key key = {
        .client = request->source,
        .server = request->destination,
        .client_port = request->echo_identifier,
        .protocol = POLICY_ICMP,
    };
    struct exchange *exchange = datagram_admit(gate, &key, request);
    if (!exchange) return;
    struct iovec icmp = {.iov_base = request->bytes + request->transport, .iov_len = request->len - request->transport};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &icmp, .msg_iovlen = 1}};
    exchange_send(exchange, &message, 1);
}

// ---- UDP ----

static bool datagram_original(struct msghdr *message, struct addr *ret_addr, uint16_t *ret_port) {
    for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control; control = CMSG_NXTHDR(message, control)) {
        if ((control->cmsg_level == SOL_IP && control->cmsg_type == IP_ORIGDSTADDR) ||
            (control->cmsg_level == SOL_IPV6 && control->cmsg_type == IPV6_ORIGDSTADDR)) {
            struct sockaddr_storage original = {0};
            size_t len = control->cmsg_len - CMSG_LEN(0);
            memcpy(&original, CMSG_DATA(control), len < sizeof(original) ? len : sizeof(original));
            return addr_from_sockaddr((struct sockaddr *)&original, ret_addr, ret_port) == 0;
        }
    }
    return false;
}

static bool datagram_key(struct msghdr *message, struct exchange_key *ret_key) {
    *ret_key = (struct exchange_key){.protocol = POLICY_UDP};
    return addr_from_sockaddr(message->msg_name, &ret_key->client, &ret_key->client_port) == 0 &&
           datagram_original(message, &ret_key->server, &ret_key->port) && ret_key->client.family == ret_key->server.family;
}

static struct exchange *datagram_first(struct gate *gate, const struct exchange_key *key, const struct iovec *payload) {
    uint8_t about[EXCHANGE_HEAD_SIZE + DATAGRAM_QUOTE_MAX];
    struct ip_packet packet;
    size_t quoted = payload->iov_len < DATAGRAM_QUOTE_MAX ? payload->iov_len : DATAGRAM_QUOTE_MAX;
    size_t len = ip_write_udp(&key->client, key->client_port, &key->server, key->port, payload->iov_base, quoted, about,
                              sizeof(about));
    return ip_packet_parse(about, len, &packet) == WIRE_OK ? datagram_admit(gate, key, &packet) : NULL;
}

// Datagrams that follow each other in one exchange are sent together. Each vector has the length that came.
static void datagram_batch(struct gate *gate, struct mmsghdr *messages, unsigned count) {
    struct mmsghdr run[EXCHANGE_BATCH];
    unsigned run_count = 0;
    struct exchange *exchange = NULL;
    for (unsigned i = 0; i < count; i++) {
        struct iovec *payload = messages[i].msg_hdr.msg_iov;
        struct exchange_key key;
        if (!datagram_key(&messages[i].msg_hdr, &key)) continue;
        if (!exchange || !exchange_key_equal(&exchange->key, &key)) {
            // Sent before the next one is opened, which may end this one.
            if (exchange) exchange_send(exchange, run, run_count);
            run_count = 0;
            exchange = NULL;
            if (key.port == 53) datagram_dns(gate, &key, payload->iov_base, payload->iov_len);
            else exchange = datagram_first(gate, &key, payload);
        }
        if (exchange) run[run_count++] = (struct mmsghdr){.msg_hdr = {.msg_iov = payload, .msg_iovlen = 1}};
    }
    if (exchange) exchange_send(exchange, run, run_count);
}

void datagram_readable(evutil_socket_t fd, short what, void *data) {
    (void)what;
    struct sockaddr_storage from[EXCHANGE_BATCH];
    struct iovec vectors[EXCHANGE_BATCH];
    struct mmsghdr messages[EXCHANGE_BATCH];
    _Alignas(struct cmsghdr) uint8_t controls[EXCHANGE_BATCH][DATAGRAM_CONTROL_SIZE];
    for (size_t i = 0; i < EXCHANGE_BATCH; i++) {
        vectors[i] = (struct iovec){.iov_base = exchange_room[i], .iov_len = EXCHANGE_DATAGRAM_SIZE};
        messages[i].msg_hdr = (struct msghdr){
            .msg_name = &from[i], .msg_namelen = sizeof(from[i]), .msg_iov = &vectors[i], .msg_iovlen = 1,
            .msg_control = controls[i], .msg_controllen = sizeof(controls[i])};
    }
    int count = recvmmsg(fd, messages, EXCHANGE_BATCH, MSG_DONTWAIT, NULL);
    for (int i = 0; i < count; i++) vectors[i].iov_len = messages[i].msg_len;
    if (count > 0) datagram_batch(data, messages, (unsigned)count);
}
