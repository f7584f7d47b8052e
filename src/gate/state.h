// SPDX-License-Identifier: Apache-2.0
// What the files of the gate room share: the gate itself, and a flow, which is one TCP connection of the sandbox.
//
// A flow's states, what it holds in each, and what may happen next:
//
//   CONNECTING SYN held. `opening->connector` resolves and dials.          -> ADMITTED, or refused as the dial was
//   ADMITTED   SYN let through to the listener; `upstream` may be open.    -> by accept: RELAYING, SNIFFING, HTTP, ASKING
//   ASKING     of a door: accepted; where to is read under a deadline.     -> CONNECTING (accepted already), HTTP, LINGERING
//   SNIFFING   accepted; first bytes are read under a deadline. Nothing has been sent upstream; where every outcome is
//              the same destination, upstream bytes already flow back.     -> FETCHING, RELAYING, OPENING, HTTP, LINGERING
//   FETCHING   accepted, bytes held; resolving and dialling a claimed name -> RELAYING, OPENING, LINGERING
//   OPENING    `intercept`: handshakes with the server and then with the client of a host that has a credential; `fd` and
//              `upstream` are still the flow's.                               -> HTTP, LINGERING, ended
//   RELAYING   `relay` owns both descriptors; no `opening`.                -> ended
//   HTTP       `http` owns both descriptors, or `http` or `h2` both streams of opened TLS. -> RELAYING (after an upgrade), LINGERING, ended
//   LINGERING  a refusal was written; reads are thrown away until the peer has closed or a deadline -> ended
//              (of opened TLS, `http` still has the client's stream)
//
// A flow is counted against the sandbox's limit from its SYN to its end. It is in `gate->pending` only while its SYN is
// held or let through, so that a later connection with the same ports is a flow of its own.
#pragma once

#include <event2/event.h>

#include "base/addr.h"
#include "base/list.h"
#include "base/slab.h"
#include "dns/dns.h"
#include "gate/connector.h"
#include "gate/door.h"
#include "gate/exchange.h"
#include "gate/h2_budget.h"
#include "gate/journal.h"
#include "gate/limit.h"
#include "net/net.h"
#include "policy/policy.h"
#include "wire/http1.h"
#include "wire/ip.h"
#include "wire/tls.h"

#define GATE_BUCKETS 1024        // of the table of pending SYNs
#define GATE_SYN_MAX 256         // bytes of a held SYN without its data

enum gate_time { // milliseconds
    GATE_DIAL_MS = 30000,      // all attempts of one connection
    GATE_STAGGER_MS = 250,     // RFC 8305 5
    GATE_ACCEPT_MS = 5000,     // from letting a SYN through to its accept
    GATE_SNIFF_MS = 10000,     // for the first bytes
    GATE_LISTEN_MS = 20,       // until a server that may not speak first is listened to
    GATE_LINGER_MS = 2000,     // for the peer to read a refusal
    GATE_TLS_MS = 10000,       // each handshake of an opened connection
    GATE_HTTP_IDLE_MS = 600000 // between bytes of an HTTP connection
};

enum flow_state {
    FLOW_CONNECTING, FLOW_ADMITTED, FLOW_ASKING, FLOW_SNIFFING, FLOW_FETCHING, FLOW_OPENING, FLOW_RELAYING, FLOW_HTTP,
    FLOW_LINGERING,
};

struct gate;
struct buf;
struct h2_relay;
struct http_relay;
struct intercept;
struct injections;
struct tls_context;

struct gate_listener {
    int fd;
    struct event *event;
};

// What a flow needs only until it relays.
struct opening {
    struct flow *flow;
    struct list bucket;       // in gate->pending, or alone
    struct addr source;       // of the SYN, with its port
    uint16_t source_port;
    uint8_t syn[GATE_SYN_MAX];
    size_t syn_len;
    struct connector *connector;
    struct event *timer;
    struct watch readable;    // of the sandbox's socket, while sniffing or lingering
    struct watch back;        // of the upstream socket, while sniffing an open destination
    struct meter_turn turns[2]; // to read from either, by enum relay_side
    uint8_t *bytes;           // first bytes of the sandbox
    size_t len, size;
    struct tls_walk walk;     // over these bytes
    char sni[NAME_SIZE];      // that they claim, canonical; "": none
    bool alpn_http1, alpn_http2;
};

struct flow {
    struct list link;         // in gate->flows
    struct gate *gate;
    struct opening *opening;
    struct http_relay *http;
    struct h2_relay *h2;      // instead of http, where both ends speak HTTP/2
    struct intercept *intercept; // of an opened connection, to its end
    struct door *door;        // of a connection to an explicit proxy of ours, else NULL
    const char *dialled;      // of the pool or the door, or "localhost"; NULL for a literal destination
    char *name;               // the claimed name that admitted it, owned; NULL if `dialled` or the address did
    uint64_t started_us;
    uint64_t generation;      // of the policy that judged it last
    uint32_t rule;
    int fd, upstream;         // -1 while closed or owned by relay or http
    struct addr destination, peer; // peer: what was dialled
    uint16_t port;
    uint8_t state, app, reason;
    uint8_t protocol;         // what it is judged as: TCP, or UDP where an entry opens a DNS server over UDP
    uint8_t transport;        // what it is: TCP; other in what exchanges give to the journal
    uint8_t limit;            // enum policy_limit, where reason is that of a limit
    bool counted : 1;         // a decision was logged, so its end is logged too
    bool judged : 1;          // any was, whatever it said
    bool resolved : 1;        // `name` was resolved and dialled, not the destination: it is judged as a dialled name
    bool open_destination : 1; // allowed whatever comes; sniffed because a guardrail has names, or to learn what comes
    bool dns : 1;             // TCP to port 53, answered by the DNS front
    bool refuse_only : 1;     // accepted only so that the refusal can be told in HTTP
    bool arrived : 1;         // accepted before anything was judged, since no SYN is held; until it is let in
    struct relay relay;       // its counts of bytes also before it starts
};

struct gate {
    struct event_base *base;
    int channel;                 // to main
    struct event *channel_event;
    int keeper;                  // channel to the keeper
    struct event *keeper_event;
    int sockets[IPC_SOCKET_COUNT];
    struct event *socket_events[IPC_SOCKET_COUNT];
    struct gate_listener *listeners; // of the skeleton without nft, where nothing is held: connections arrive accepted
    size_t listener_count;
    struct policy *policy;
    void *policy_block;          // mapped
    size_t policy_size;
    struct policy_facts facts;
    struct dns_client *dns;
    struct dns_pool *pool;
    struct dns_front *front;
    struct relay_engine *relays;
    struct watcher *watcher;     // of sockets of openings
    struct slab flow_memory;
    struct list flows;
    uint32_t flow_count;         // with exchanges
    struct meter meter;
    uint64_t bytes_before;          // of meter, that were out before this gate was there
    struct event *meter_event;
    struct meter_bucket connection_rate;
    struct h2_budget h2_budget;
    bool small_buffers;          // what the keeper was told last
    unsigned buffers_asked;      // of that it has not yet said that it is so
    struct exchange_table *exchanges;
    struct event *exchange_sweep;
    struct event *rest;          // timer of gate_rest
    struct list pending[GATE_BUCKETS];
    uint32_t hash_seed;
    struct journal *journal;
    struct answers *answers;
    struct ipc_counters counters; // what is not counted elsewhere (gate_send_counters)
    struct injections *injections; // NULL without bindings
    struct tls_context *tls;     // the same
    bool doors;                  // explicit proxies are offered
    bool paused;                 // the log is behind: no new work
    bool closing;
};

// gate.c
void gate_pause(struct gate *gate, bool paused); // stops or resumes taking new work while the log is behind
void gate_buffers(struct gate *gate); // after the number of connections changed: how large their buffers may grow
void gate_rest(struct gate *gate);               // out of descriptors or memory: accepts again in a moment
void gate_fail(struct gate *gate, const char *why);      // tells main and ends: the sandbox has no network then

// flow.c
struct flow *flow_new(struct gate *gate, const struct ip_packet *syn); // NULL: out of memory
struct flow *flow_find_pending(struct gate *gate, const struct addr *source, uint16_t source_port,
                               const struct addr *destination, uint16_t port);
void flow_end(struct flow *flow, bool reset); // closes and frees whatever it holds, logs its end
void flow_report(struct flow *flow); // logs the end of what was counted so far: another destination follows
// One timer a flow; what it means depends on the state. False: out of memory, and nothing would ever end the flow.
bool flow_deadline(struct flow *flow, unsigned milliseconds);
void flow_stop_timer(struct flow *flow);
#define FLOW_AUTHORITY_SIZE (NAME_SIZE + 6)
// "host", or "host:port" where that is not HTTPS's.
void flow_authority(const struct flow *flow, const char *host, char ret_text[FLOW_AUTHORITY_SIZE]);
struct policy_request flow_request(const struct flow *flow); // what is known about it so far
void flow_judged(struct flow *flow, const struct policy_request *request, const struct policy_decision *decision); // logs
void flow_noted(struct flow *flow, const struct policy_request *request, const struct policy_decision *decision,
                const struct journal_note *note); // the same
// Logs that an allowed destination could not be reached: the verdict stays what the policy says, the reason is ours. why: NULL
// if the network has said all there is.
struct policy_decision flow_unreachable(struct flow *flow, const struct policy_request *request, const char *why);
void flow_relay(struct flow *flow, const uint8_t *back, size_t back_len);
void flow_relay_ended(struct relay *relay, int error); // of gate->relays
bool flow_need_opening(struct flow *flow); // there is one, if need be another. False: out of memory
void flow_free_opening(struct flow *flow);
// Reads more first bytes of the sandbox into its opening. How many, 0 at their end, or a negative errno (-EAGAIN: later).
ssize_t flow_read(struct flow *flow);
// Whether the side may be read, and how much. Else it is not watched until it may: then its event's callback is called.
ssize_t flow_ask(struct flow *flow, enum relay_side side, size_t max);
bool flow_waits(const struct flow *flow);      // for its turn to read
void flow_forget_events(struct flow *flow);    // readable and back
const char *flow_admitted_name(const struct flow *flow);

// syn.c
void syn_readable(evutil_socket_t fd, short what, void *data);
// What the destination stands for: the host's loopback, a name of the pool (flow and request are changed), or itself.
// False: an address of the pool that no name has.
bool syn_locate(struct flow *flow, struct policy_request *request);
void syn_judge(struct flow *flow);                       // the destination is known: refuses, dials or admits
void syn_admit(struct flow *flow);                       // lets the held SYN through, once buffers are as small as they must be
void syn_readmit(struct gate *gate);                     // they are
void syn_pass(struct flow *flow);                        // admitted and accepted: relays, or reads first bytes
void syn_refuse(struct flow *flow, int error);           // answers it as the real dial was: reset or ICMP error
void syn_accept(evutil_socket_t fd, short what, void *data);
bool syn_is_open(struct gate *gate, struct policy_request request); // allowed even for bytes that show nothing
void syn_rejudge(struct flow *flow);                     // while it is dialled: may end it

// sniff.c
void sniff_rejudge(struct flow *flow);                   // while its first bytes are read, or what they claim is dialled
void sniff_start(struct flow *flow);
void sniff_timeout(struct flow *flow);
void sniff_deadline(struct flow *flow); // the client said nothing, or not enough

// http_relay.c
void http_relay_start(struct flow *flow); // takes fd, upstream and the opening's bytes
void http_relay_free(struct http_relay *http, bool reset);
// The verdict on the host that the connection is used for now.
struct policy_decision http_relay_rejudge(const struct flow *flow);
void http_relay_resume(struct flow *flow); // the log has room again
void http_relay_carry(struct http_relay *http); // what it has moved goes to the flow's count

// intercept.c, besides intercept.h
void intercept_deadline(struct flow *flow); // of a handshake

// refusal.c
void refusal_tls(struct flow *flow, enum tls_alert alert);
void refusal_http(struct flow *flow, const struct policy_request *request, const struct policy_decision *decision);
void refusal_http2(struct flow *flow);
void refusal_reset(struct flow *flow);
void refusal_linger(struct flow *flow, const void *bytes, size_t len); // writes, then lingers
// The body and head of a 403 (400, 421, 502) in one string, caller frees. why: in the place of the hint, or NULL. NULL: out of
// memory.
char *refusal_http_text(struct gate *gate, const struct policy_request *request, const struct policy_decision *decision,
                        const char *why);
// The body alone, as JSON; failed is set without memory.
void refusal_json(struct gate *gate, const struct policy_request *request, const struct policy_decision *decision,
                  const char *why, struct buf *ret_body);
void refusal_packet(struct gate *gate, const struct ip_packet *about, enum ip_unreachable code);
void refusal_send_raw(struct gate *gate, const struct addr *destination, const uint8_t *bytes, size_t len);

// datagram.c
void datagram_readable(evutil_socket_t fd, short what, void *data);
// The verdict on a datagram to request->address. Of a synthetic address its name is judged (request is changed), which
// never allows datagrams.
struct policy_decision datagram_decide(struct gate *gate, struct policy_request *request);
void datagram_echo(struct gate *gate, const struct ip_packet *request); // an ICMP echo request

// rejudge.c
void rejudge_all(struct gate *gate, bool keep_existing, uint32_t *ret_closed, uint32_t *ret_kept);
