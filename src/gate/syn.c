// SPDX-License-Identifier: Apache-2.0
// Faithful connects. The sandbox's SYN is shown to us by a packet socket and dropped by the kernel; we judge, dial, and
// then send the very SYN again with mark 2, which hands it to the listener, or answer it as the real dial was answered.
// So connect() in the sandbox succeeds exactly when the destination was reached. Only where bytes have to be read before
// anything can be decided (a literal address under a policy of names) is the SYN let through at once.
//
// The skeleton without nft holds nothing: its connections arrive accepted, and are judged in the same way. What would have
// been a refused connect is a reset then; where bytes decide, they are read before the dial, so that a dial that fails is
// told in the client's own protocol too.
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "gate/state.h"

#define SYN_BATCH 64   // packets or accepts a turn, so that flows get theirs
#define SYN_PACKETS 16 // of a system call
#define SYN_HEAD 256   // bytes of a packet that are kept close together: nearly all packets are shorter

static void syn_accepted(struct flow *flow, int fd);

void syn_admit(struct flow *flow) {
    struct opening *opening = flow->opening;
    struct ip_packet packet;
    if (flow->door && flow->door->stage == DOOR_PASSED) {
        door_admit(flow);
        return;
    }
    if (flow->arrived) {
        flow->arrived = false; // it is in, as if its SYN had been let through
        syn_accepted(flow, flow->fd);
        return;
    }
    flow->state = FLOW_ADMITTED;
    if (!flow_deadline(flow, GATE_ACCEPT_MS)) {
        syn_refuse(flow, -ECONNREFUSED);
        return;
    }
    // A socket keeps the buffers that it was connected with: not before they are small, where they have to be.
    if (flow->gate->small_buffers && flow->gate->buffers_asked > 0) return;
    if (ip_packet_parse(opening->syn, opening->syn_len, &packet) != WIRE_OK) return;
    ip_packet_checksum(&packet);
    refusal_send_raw(flow->gate, &flow->destination, packet.bytes, packet.len);
}

void syn_readmit(struct gate *gate) {
    LIST_FOREACH(&gate->flows, node) {
        struct flow *flow = LIST_ENTRY(node, struct flow, link);
        if (flow->state == FLOW_ADMITTED && flow->fd < 0) syn_admit(flow);
    }
}

static void syn_answer(struct gate *gate, const struct ip_packet *syn, int error) {
    static const struct {
        int error;
        enum ip_unreachable code;
    } codes[] = {
        {ENETUNREACH, IP_UNREACHABLE_NETWORK},
        {EHOSTUNREACH, IP_UNREACHABLE_HOST},
        {ETIMEDOUT, IP_UNREACHABLE_HOST},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(codes); i++) {
        if (codes[i].error == -error) {
            refusal_packet(gate, syn, codes[i].code);
            return;
        }
    }
    uint8_t bytes[128];
    size_t len = ip_write_reset(syn, bytes, sizeof(bytes));
    refusal_send_raw(gate, &syn->source, bytes, len);
}

void syn_refuse(struct flow *flow, int error) {
    struct ip_packet syn;
    if (ip_packet_parse(flow->opening->syn, flow->opening->syn_len, &syn) == WIRE_OK) syn_answer(flow->gate, &syn, error);
    flow_end(flow, true);
}

// Says no, for a reason that was logged, in the way in which the flow was asked for.
static void syn_turn_away(struct flow *flow, const struct policy_request *request,
                          const struct policy_decision *decision, int error) {
    if (flow->door) door_refuse(flow, request, decision, error);
    else syn_refuse(flow, error);
}

static void syn_denied(struct flow *flow, const struct policy_request *request,
                       const struct policy_decision *decision) {
    flow_judged(flow, request, decision);
    syn_turn_away(flow, request, decision, -ECONNREFUSED);
}

static struct policy_decision syn_reason(enum policy_reason reason) {
    return (struct policy_decision){.verdict = POLICY_DENY, .reason = reason, .rule = POLICY_RULE_NONE};
}

// The destination answered, or did not. The verdict is asked again: the policy may have changed while we dialled.
static void syn_connected(int fd, const struct addr *peer, const struct policy_decision *denied, void *data) {
    struct flow *flow = data;
    flow->opening->connector = NULL;
    flow->upstream = fd;
    struct policy_request request = flow_request(flow);
    if (peer) request.address = peer;
    if (fd >= 0) flow->peer = *peer;
    if (fd < 0) {
        struct policy_decision own = syn_reason(POLICY_NODE_OWN_ADDRESS);
        if (!denied && fd == -EACCES) denied = &own; // the dial found itself on this host
        if (denied) {
            syn_denied(flow, &request, denied);
            return;
        }
        struct policy_decision failed = flow_unreachable(flow, &request, NULL);
        syn_turn_away(flow, &request, &failed, fd);
        return;
    }
    struct policy_decision decision = policy_decide(flow->gate->policy, &request);
    if (decision.verdict == POLICY_DENY && !flow->refuse_only) {
        syn_denied(flow, &request, &decision);
        return;
    }
    syn_admit(flow);
}

void syn_rejudge(struct flow *flow) {
    struct policy_request request = flow_request(flow);
    struct policy_decision decision = connector_rejudge(flow->opening->connector);
    if (decision.verdict != POLICY_DENY) return;
    connector_cancel(TAKE_POINTER(flow->opening->connector));
    syn_denied(flow, &request, &decision);
}

static void syn_connect(struct flow *flow, const struct policy_request *request, const char *name) {
    flow->state = FLOW_CONNECTING;
    flow->opening->connector =
        connector_start(flow->gate, request, name, flow->destination.family, syn_connected, flow);
    if (flow->opening->connector) return;
    struct policy_decision limit = syn_reason(POLICY_LIMIT_EXCEEDED);
    syn_denied(flow, request, &limit);
}

// A port of the sandbox's loopback that an entry opened stands for the host's, by name if the entry has the name.
static bool syn_loopback(struct flow *flow, struct policy_request *request) {
    static const struct addr one = {.family = ADDR_IPV6, .bytes = {[15] = 1}};
    struct addr local = addr_ipv4(0x7f000001);
    if (!addr_equal(&flow->destination, &local) && !addr_equal(&flow->destination, &one)) return false;
    flow->dialled = "localhost";
    request->dialled = flow->dialled;
    request->address = &flow->destination;
    if (policy_decide(flow->gate->policy, request).verdict == POLICY_DENY) request->dialled = flow->dialled = NULL;
    return true;
}

// Whether a connection to port 80 is accepted only so that the 403 can say why: to a listed name, but not where the answer
// of a door says why.
static bool syn_explains(const struct flow *flow, const struct policy_decision *decision) {
    if (!flow->dialled || flow->port != 80) return false;
    return !flow->door || (flow->door->kind == DOOR_SOCKS && decision->reason == POLICY_NOT_HTTPS);
}

// Whether the destination is allowed even for bytes that show nothing: then it is dialled first and its bytes flow back
// while the client's first ones are read, so that server-first protocols do not wait.
bool syn_is_open(struct gate *gate, struct policy_request request) {
    request.app = POLICY_APP_OTHER;
    return policy_decide(gate->policy, &request).verdict == POLICY_ALLOW;
}

// A DNS server that a CIDR entry opens over either transport is relayed to over both (semantics section 8): a truncated
// answer comes again over TCP. The flow is then judged as what the entry says.
static bool syn_dns_server(struct flow *flow, struct policy_request *request, struct policy_decision *decision) {
    for (int i = 0; i < 2; i++) {
        if (decision->verdict == POLICY_ALLOW && decision->reason == POLICY_ALLOWED_CIDR) return true;
        if (i == 1 || flow->dialled) break;
        struct policy_request datagram = *request;
        datagram.protocol = POLICY_UDP;
        struct policy_decision other = policy_decide(flow->gate->policy, &datagram);
        if (other.verdict != POLICY_ALLOW || other.reason != POLICY_ALLOWED_CIDR) break;
        *decision = other;
        request->protocol = flow->protocol = POLICY_UDP;
    }
    return false;
}

bool syn_locate(struct flow *flow, struct policy_request *request) {
    struct gate *gate = flow->gate;
    if (syn_loopback(flow, request) || !gate->facts.synthetic || !dns_pool_contains(gate->pool, &flow->destination)) {
        return true;
    }
    request->dialled = flow->dialled = dns_pool_name(gate->pool, &flow->destination);
    if (!flow->dialled) return false;
    request->address = NULL;
    return true;
}

void syn_judge(struct flow *flow) {
    struct gate *gate = flow->gate;
    struct policy_request request = flow_request(flow);
    if (!syn_locate(flow, &request)) {
        struct policy_decision unmapped = syn_reason(POLICY_NO_NAME);
        syn_denied(flow, &request, &unmapped);
        return;
    }
    struct policy_decision decision = policy_decide(gate->policy, &request);
    bool relayed_dns = flow->port == 53 && !keeper_owns(&flow->destination) && syn_dns_server(flow, &request, &decision);
    if (flow->port == 53 && !relayed_dns) {
        flow->dns = true;
        syn_admit(flow);
    } else if (decision.verdict == POLICY_DENY && syn_explains(flow, &decision)) {
        flow->refuse_only = true;
        syn_admit(flow);
    } else if (decision.verdict == POLICY_DENY) {
        syn_denied(flow, &request, &decision);
    } else if (flow->arrived && !flow->door && decision.verdict == POLICY_INSPECT && !syn_is_open(gate, request)) {
        syn_admit(flow);
    } else if (decision.verdict == POLICY_ALLOW || flow->dialled) {
        flow->open_destination = decision.verdict == POLICY_INSPECT && syn_is_open(gate, request);
        syn_connect(flow, &request, request.address ? NULL : flow->dialled);
    } else if (syn_is_open(gate, request)) {
        flow->open_destination = true;
        syn_connect(flow, &request, NULL);
    } else {
        syn_admit(flow);
    }
}

// Only the header is needed: data of a TCP Fast Open SYN is sent again by the client since nobody acknowledges it.
static bool syn_trim(struct ip_packet *syn) {
    size_t len = syn->payload;
    if (len > GATE_SYN_MAX) return false;
    uint16_t field = htons((uint16_t)(syn->source.family == ADDR_IPV4 ? len : len - 40));
    memcpy(syn->bytes + (syn->source.family == ADDR_IPV4 ? 2 : 4), &field, sizeof(field));
    return ip_packet_parse(syn->bytes, len, syn) == WIRE_OK;
}

// A connection that gets no flow: refused, and logged.
static void syn_turn(struct gate *gate, const struct ip_packet *syn, int fd, struct policy_decision decision) {
    struct policy_request request = {.protocol = POLICY_TCP, .address = &syn->destination, .port = syn->destination_port};
    journal_decision(gate, &request, &decision);
    if (fd >= 0) relay_reset_fd(fd);
    else syn_answer(gate, syn, -ECONNREFUSED);
}

// The sandbox's own loopback is not for the gate, but for what an entry opens of the host's.
static bool syn_is_local(const struct gate *gate, const struct ip_packet *syn) {
    uint16_t ports[IPC_PORTS_MAX];
    if (!addr_is_loopback(&syn->destination)) return false;
    size_t count = policy_loopback_ports(gate->policy, ports, IPC_PORTS_MAX);
    for (size_t i = 0; i < count; i++)
        if (ports[i] == syn->destination_port) return false;
    return true;
}

// A SYN that is held (fd -1), or a connection that was accepted already; only its addresses and ports count then.
static void syn_begin(struct gate *gate, const struct ip_packet *syn, int fd) {
    struct flow *flow = NULL;
    enum door_kind door = door_at(gate, &syn->destination, syn->destination_port);
    bool own = keeper_owns(&syn->destination) || (fd >= 0 && syn_is_local(gate, syn));
    if (own && syn->destination_port != 53 && door == DOOR_NONE) {
        syn_turn(gate, syn, fd, syn_reason(POLICY_NODE_OWN_ADDRESS));
        return;
    }
    enum policy_limit limit = limit_connection(gate);
    if (limit == POLICY_LIMIT_NONE) flow = flow_new(gate, syn);
    if (!flow) {
        syn_turn(gate, syn, fd, limit_denial(limit));
        return;
    }
    flow->arrived = fd >= 0;
    flow->fd = fd;
    if (door == DOOR_NONE) syn_judge(flow);
    else door_open(flow, door);
}

static void syn_new(struct gate *gate, struct ip_packet *syn) {
    if (!syn_trim(syn)) return;
    struct flow *flow = flow_find_pending(gate, &syn->source, syn->source_port, &syn->destination,
                                          syn->destination_port);
    if (flow) { // sent again while we dial, or because the first one we let through was lost
        if (flow->state == FLOW_ADMITTED) syn_admit(flow);
        return;
    }
    syn_begin(gate, syn, -1);
}

static void syn_packet(struct gate *gate, uint8_t *bytes, size_t len) {
    struct ip_packet packet;
    if (ip_packet_parse(bytes, len, &packet) != WIRE_OK || packet.fragment) return;
    if (packet.protocol == IPPROTO_TCP) {
        int flags = packet.tcp_flags & (IP_TCP_SYN | IP_TCP_ACK | IP_TCP_RST | IP_TCP_FIN);
        if (flags == IP_TCP_SYN) syn_new(gate, &packet);
    } else if (packet.protocol == IPPROTO_ICMP || packet.protocol == IPPROTO_ICMPV6) {
        datagram_echo(gate, &packet);
    }
}

// Echo requests may be longer than a head.
static void syn_parts(struct gate *gate, uint8_t head[SYN_HEAD], const uint8_t *tail, size_t len) {
    static uint8_t whole[IP_PACKET_MAX + 1];
    if (len <= SYN_HEAD) {
        syn_packet(gate, head, len);
        return;
    }
    memcpy(whole, head, SYN_HEAD);
    memcpy(whole + SYN_HEAD, tail, len - SYN_HEAD);
    syn_packet(gate, whole, len);
}

void syn_readable(evutil_socket_t fd, short what, void *data) {
    (void)what;
    struct gate *gate = data;
    static uint8_t heads[SYN_PACKETS][SYN_HEAD], tails[SYN_PACKETS][IP_PACKET_MAX + 1 - SYN_HEAD];
    struct iovec parts[SYN_PACKETS][2];
    struct mmsghdr packets[SYN_PACKETS];
    int count = SYN_PACKETS;
    for (int i = 0; i < SYN_BATCH && count == SYN_PACKETS; i += count) {
        for (int j = 0; j < SYN_PACKETS; j++) {
            parts[j][0] = (struct iovec){.iov_base = heads[j], .iov_len = SYN_HEAD};
            parts[j][1] = (struct iovec){.iov_base = tails[j], .iov_len = sizeof(tails[j])};
            packets[j] = (struct mmsghdr){.msg_hdr = {.msg_iov = parts[j], .msg_iovlen = 2}};
        }
        count = recvmmsg(fd, packets, SYN_PACKETS, MSG_DONTWAIT, NULL);
        for (int j = 0; j < count; j++)
            if (!(packets[j].msg_hdr.msg_flags & MSG_TRUNC)) syn_parts(gate, heads[j], tails[j], packets[j].msg_len);
    }
}

void syn_pass(struct flow *flow) {
    if (flow->dns) {
        // The front reads from the socket: a client of a door has to wait for its answer.
        bool early = flow->opening->len > 0;
        if (!early) dns_front_stream(flow->gate->front, TAKE_FD(flow->fd), &flow->destination);
        flow_end(flow, early);
        return;
    }
    struct policy_request request = flow_request(flow);
    if (flow->upstream >= 0) request.address = &flow->peer;
    struct policy_decision decision = policy_decide(flow->gate->policy, &request);
    // Whatever the protocol an entry opens to it: TLS to a host with a credential is looked for.
    bool bound = flow->dialled && policy_name_bound(flow->gate->policy, flow->dialled);
    if (bound && decision.verdict == POLICY_ALLOW) flow->open_destination = true;
    if (decision.verdict == POLICY_ALLOW && flow->upstream >= 0 && !bound) {
        flow_judged(flow, &request, &decision);
        flow_relay(flow, NULL, 0);
    } else {
        sniff_start(flow);
    }
}

static void syn_accepted(struct flow *flow, int fd) {
    flow->fd = fd;
    list_remove(&flow->opening->bucket);
    flow_stop_timer(flow);
    if (flow->door) door_start(flow);
    else syn_pass(flow);
}

void syn_accept(evutil_socket_t listener, short what, void *data) {
    (void)what;
    struct gate *gate = data;
    for (int i = 0; i < SYN_BATCH; i++) {
        struct sockaddr_storage from, to;
        socklen_t from_len = sizeof(from), to_len = sizeof(to);
        AUTO_CLOSE int fd = accept4(listener, (struct sockaddr *)&from, &from_len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            bool full = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
            if (full) gate_rest(gate); // else the listener would stay readable and the loop spin
            return;
        }
        uint8_t nothing[1] = {0};
        struct ip_packet syn = {.bytes = nothing};
        if (getsockname(fd, (struct sockaddr *)&to, &to_len) < 0 ||
            addr_from_sockaddr((struct sockaddr *)&from, &syn.source, &syn.source_port) < 0 ||
            addr_from_sockaddr((struct sockaddr *)&to, &syn.destination, &syn.destination_port) < 0) {
            continue;
        }
        struct flow *flow = flow_find_pending(gate, &syn.source, syn.source_port, &syn.destination, syn.destination_port);
        if (gate->listener_count > 0) {
            syn_begin(gate, &syn, TAKE_FD(fd));
        } else if (flow && flow->state == FLOW_ADMITTED) {
            syn_accepted(flow, TAKE_FD(fd));
        } else if (addr_is_loopback(&syn.destination) && syn.destination_port == 53) {
            dns_front_stream(gate->front, TAKE_FD(fd), &syn.destination);
        } else {
            relay_reset_fd(TAKE_FD(fd)); // nobody let this one through
        }
    }
}
