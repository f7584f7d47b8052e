// SPDX-License-Identifier: Apache-2.0
// UDP and ICMP echo of the sandbox. Port 53 is answered by the DNS front, or relayed to a server that a CIDR entry allows.
// Everything else is refused with an ICMP error at once: this version relays no other datagrams.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "gate/state.h"

#define DATAGRAM_BATCH 64
#define DATAGRAM_MAX 4096 // bytes of a DNS message over UDP that anybody sends; longer ones are cut and refused

// Where an answer goes: the client's address, from the server it asked.
struct datagram_reply {
    struct gate *gate;
    struct addr client, server;
    uint16_t client_port, port;
};

static void datagram_answer(const uint8_t *answer, size_t len, void *data) {
    struct datagram_reply *reply = data;
    uint8_t packet[DATAGRAM_MAX + 64];
    if (answer) {
        size_t size = ip_write_udp(&reply->server, reply->port, &reply->client, reply->client_port, answer, len, packet,
                                   sizeof(packet));
        refusal_send_raw(reply->gate, &reply->client, packet, size);
    }
    free(reply);
}

static void datagram_dns(struct gate *gate, const struct datagram_reply *reply, const uint8_t *message, size_t len,
                         bool relayed) {
    struct datagram_reply *copy = NEW(struct datagram_reply);
    if (!copy) return;
    *copy = *reply;
    if (relayed) dns_front_relay(gate->front, message, len, &copy->server, copy->port, datagram_answer, copy);
    else dns_front_query(gate->front, message, len, &copy->server, datagram_answer, copy);
}

// The verdict on a datagram. What it would allow is refused all the same, with a reason that says so.
static struct policy_decision datagram_decide(struct gate *gate, struct policy_request *request) {
    struct policy_decision decision = {.verdict = POLICY_DENY, .reason = POLICY_NO_NAME, .rule = POLICY_RULE_NONE};
    if (gate->facts.synthetic && dns_pool_contains(gate->pool, request->address)) {
        request->dialled = dns_pool_name(gate->pool, request->address);
        if (!request->dialled) return decision;
        request->address = NULL;
    }
    return policy_decide(gate->policy, request);
}

static void datagram_refuse(struct gate *gate, const struct policy_request *request, struct policy_decision decision,
                            const struct ip_packet *about) {
    if (decision.verdict != POLICY_DENY) {
        decision = (struct policy_decision){
            .verdict = POLICY_DENY, .reason = POLICY_PROTOCOL_DENIED, .rule = decision.rule};
    }
    journal_decision(gate, request, &decision);
    refusal_packet(gate, about, IP_UNREACHABLE_PROHIBITED);
}

static void datagram_handle(struct gate *gate, const struct datagram_reply *reply, const uint8_t *bytes, size_t len) {
    struct policy_request request = {.protocol = POLICY_UDP, .address = &reply->server, .port = reply->port};
    struct policy_decision decision = datagram_decide(gate, &request);
    if (reply->port == 53) {
        bool relayed = decision.verdict == POLICY_ALLOW && decision.reason == POLICY_ALLOWED_CIDR;
        datagram_dns(gate, reply, bytes, len, relayed);
        return;
    }
    uint8_t about[128];
    struct ip_packet packet;
    size_t quoted = ip_write_udp(&reply->client, reply->client_port, &reply->server, reply->port, bytes,
                                 len < 8 ? len : 8, about, sizeof(about));
    if (ip_packet_parse(about, quoted, &packet) == WIRE_OK) datagram_refuse(gate, &request, decision, &packet);
}

void datagram_echo(struct gate *gate, const struct ip_packet *packet) {
    struct policy_request request = {.protocol = POLICY_ICMP, .address = &packet->destination};
    struct policy_decision decision = datagram_decide(gate, &request);
    datagram_refuse(gate, &request, decision, packet);
}

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

void datagram_readable(evutil_socket_t fd, short what, void *data) {
    (void)what;
    struct gate *gate = data;
    uint8_t bytes[DATAGRAM_MAX];
    for (int i = 0; i < DATAGRAM_BATCH; i++) {
        struct sockaddr_storage from;
        union {
            struct cmsghdr align;
            uint8_t bytes[256];
        } control;
        struct iovec vector = {.iov_base = bytes, .iov_len = sizeof(bytes)};
        struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &vector, .msg_iovlen = 1,
                                 .msg_control = &control, .msg_controllen = sizeof(control)};
        struct datagram_reply reply = {.gate = gate};
        ssize_t len = recvmsg(fd, &message, 0);
        if (len < 0) return;
        if (addr_from_sockaddr((struct sockaddr *)&from, &reply.client, &reply.client_port) == 0 &&
            datagram_original(&message, &reply.server, &reply.port)) {
            datagram_handle(gate, &reply, bytes, (size_t)len);
        }
    }
}
