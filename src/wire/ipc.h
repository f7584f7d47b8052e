// SPDX-License-Identifier: Apache-2.0
// Messages between our own processes, over SOCK_SEQPACKET pairs: a header, then a body of fixed size (or with a counted
// tail). Same machine, same binary: host byte order. ipc_check() refuses anything whose length does not fit its type,
// so a compromised peer cannot make the reader look past the end.
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/addr.h"
#include "base/name.h"
#include "wire/ipc_shim.h"
#include "wire/ipc_vault.h"
#include "wire/wire.h"

enum ipc_type {
    IPC_ERROR = 1,        // any -> main: struct ipc_error, then the process ends
    // keeper
    IPC_KEEPER_ENTER,     // main -> keeper, if START is not known yet: struct ipc_keeper_enter
    IPC_KEEPER_START,     // main -> keeper: struct ipc_keeper_start; descriptor, or none: as IPC_KEEPER_GATE, for the first gate
    IPC_KEEPER_NAMESPACES, // keeper -> main: no body; descriptors: user namespace, network namespace: there is nothing in them
    IPC_KEEPER_READY,     // keeper -> main: struct ipc_keeper_ready: the skeleton is built
    IPC_KEEPER_GATE,      // main -> keeper: no body; descriptor: the keeper's end of a channel to a new gate
    IPC_KEEPER_END,       // main -> keeper: no body: nothing of the sandbox runs any more; ends with its gate, or at once without;
                          // descriptor, or none: a lock of who may leave what is slow to close
    IPC_KEEPER_PORTS,     // main -> keeper: struct ipc_ports: loopback ports opened from now on
    IPC_GATE_SOCKETS,     // keeper -> gate: no body; descriptors in the order of enum ipc_socket (IPC_SKELETON_TPROXY)
    IPC_MAPPING,          // keeper <-> gate: struct ipc_mapping
    IPC_BUFFERS,          // gate -> keeper: struct ipc_buffers; the same back when they are so
    IPC_MAPPINGS_END,     // keeper -> gate: all mappings it remembers have been sent
    // gate
    // main -> gate: struct ipc_gate_start; descriptors: channel to keeper, channel to resolver; where there are bindings:
    // channel to the vault; then, if there are more roots of trust than the system's: memory file with them (PEM)
    IPC_GATE_START,
    // main -> gate: struct ipc_policy; descriptors: sealed memfd with the policy's block; then, for another policy than the
    // first where there are bindings in either: channel to the vault for its rules, taken at the same moment
    IPC_GATE_POLICY,
    IPC_GATE_RESOLVER,    // main -> gate: no body; descriptor: channel to a new resolver, in place of a dead one
    IPC_GATE_VAULT,       // main -> gate: no body; descriptor: channel to the vault; in place of a dead one
    IPC_GATE_VAULT_LOST,  // gate -> main: no body: its channel to the vault has closed, and no other has come
    IPC_GATE_READY,       // gate -> main: no body: isolated, policy in force
    IPC_GATE_ACTIVE,      // gate -> main: struct ipc_active: the answer to each IPC_GATE_POLICY but the first
    IPC_GATE_COUNT,       // main -> gate: no body: asks for IPC_GATE_COUNTERS
    IPC_GATE_COUNTERS,    // gate -> main: struct ipc_counters
    IPC_GATE_SPENT,       // gate -> main: struct ipc_spent: to be given to the next gate, if this one dies
    IPC_DECISION,         // gate -> main: decisions as ipc_decision_pack has written them: lines of the decision log
    // resolver
    IPC_RESOLVER_START,   // main -> resolver: struct ipc_resolver_start
    IPC_RESOLVER_READY,   // resolver -> main: no body
    IPC_RESOLVER_GATE,    // main -> resolver: no body; descriptor: the resolver's end of a channel to a gate
    IPC_QUERY,            // gate -> resolver: struct ipc_query
    IPC_ANSWER,           // resolver -> gate: struct ipc_answer, then the DNS message
    // a gate's sockets where no connection waits for it (IPC_SKELETON_ROUTES)
    IPC_GATE_PLAIN,       // keeper -> gate: struct ipc_plain; descriptors: IPC_SOCKET_UDP4 to IPC_SOCKET_RAW6
    IPC_GATE_LISTENERS,   // keeper -> gate: no body; descriptors: 1 to IPC_FDS_MAX TCP listeners; until all were sent
    // vault
    IPC_VAULT_START,      // main -> vault: struct ipc_vault_start
    IPC_VAULT_ENV,        // main -> vault: struct ipc_vault_env; descriptor: memfd with the value, not a byte more
    IPC_VAULT_READY,      // vault -> main: struct ipc_vault_ready, then the CA's certificate (DER)
    IPC_VAULT_RULE,       // main -> vault: struct ipc_vault_rule: the next rule of the gate that is to come
    IPC_VAULT_GATE,       // main -> vault: no body; descriptor: the vault's end of a channel to a gate that has these rules
    IPC_VAULT_NOTICE,     // vault -> main: struct ipc_error: what its operator should know; nothing ends
    IPC_LEAF_ASK,         // gate -> vault: struct ipc_leaf_ask
    IPC_LEAF,             // vault -> gate: struct ipc_leaf, then the leaf's certificate, then the CA's (both DER)
    IPC_VALUE_ASK,        // gate -> vault: one or more struct ipc_value_ask
    IPC_VALUE,            // vault -> gate: one or more struct ipc_value, each with the header's value behind it
    IPC_VALUE_CHANGED,    // vault -> gate: struct ipc_value_changed
    // source, the vault's helper that opens files and runs commands
    IPC_SOURCE_ASK,       // vault -> source: struct ipc_source_ask
    IPC_SOURCE_FILE,      // source -> vault: struct ipc_source_answer; descriptor: the file
    IPC_SOURCE_STORED,    // source -> vault: struct ipc_source_answer; descriptors: the store's key, the stored secret
    IPC_SOURCE_OUTPUT,    // source -> vault: struct ipc_source_answer; descriptor: pipe from the command's standard output
    IPC_SOURCE_END,       // source -> vault: struct ipc_source_answer: not to be had, or how the command ended
    // shim
    IPC_SHIM_BEGIN,       // daemon -> shim that was started before there was anything to do: struct ipc_shim_begin
    IPC_SHIM_UP,          // shim -> daemon: struct ipc_shim_up
    IPC_SHIM_CALL,        // daemon -> shim: struct ipc_shim_call; descriptors: memory file with what the verb takes (JSON), and more
    IPC_SHIM_DONE,        // shim -> daemon: struct ipc_shim_done
    IPC_SHIM_EXIT,        // shim -> daemon: struct ipc_shim_exit: a command of IPC_SHIM_EXEC has ended
    IPC_SHIM_COUNTERS,    // shim -> daemon: struct ipc_counters: of all gates of the sandbox, as IPC_SHIM_COUNT asks for
    IPC_TYPE_COUNT,
};
#define IPC_SHIM_FDS 4 // of a call, at most

// How the sandbox's connections come to its gate.
enum ipc_skeleton {
    IPC_SKELETON_TPROXY, // nft rules hold each SYN until the gate has judged it, and lead the rest to its sockets
    IPC_SKELETON_ROUTES, // no nft: every address is the sandbox's own, one listener a port and family
    IPC_SKELETON_COUNT,
};

// Sockets made in the sandbox's network namespace.
enum ipc_socket {
    IPC_SOCKET_TCP4, IPC_SOCKET_TCP6,     // tproxy listeners; TPROXY only
    IPC_SOCKET_UDP4, IPC_SOCKET_UDP6,     // original destination as control message; ROUTES: port 53 only
    IPC_SOCKET_RAW4, IPC_SOCKET_RAW6,     // header included, mark 2
    IPC_SOCKET_PACKET,                    // SYNs and ICMP echo requests that wait for the gate; TPROXY only
    IPC_SOCKET_COUNT,
};

// How many values enumerations of the policy room have (which this room may not include): test_ipc.c compares them.
enum ipc_values { IPC_PROTOCOLS = 4, IPC_VERDICTS = 3, IPC_REASONS = 23, IPC_APPS = 4, IPC_LIMITS = 5 };

#define IPC_FDS_MAX 8
#define IPC_GATE_START_FDS 2 // at least
#define IPC_ROOTS_MAX (4 << 20) // bytes
#define IPC_PLAIN_SOCKETS 4 // of IPC_GATE_PLAIN
#define IPC_LISTENERS_MAX (2 * IPC_PORTS_MAX)
#define IPC_NEED_SIZE 512
#define IPC_TEXT_SIZE 1024
#define IPC_PORTS_MAX 64
#define IPC_SERVERS_MAX 8
#define IPC_MAPPINGS_MAX 4096
#define IPC_BODY_MAX (DNS_ANSWER_MAX + 64)
#define DNS_ANSWER_MAX 65535

struct ipc_header {
    uint32_t type;   // enum ipc_type
    uint32_t length; // of the body, bytes
};

struct ipc_error {
    char text[IPC_TEXT_SIZE]; // NUL-terminated
};

struct ipc_ports {
    uint32_t count;
    uint16_t ports[IPC_PORTS_MAX];
};

struct ipc_keeper_enter {
    uint32_t uid, gid; // as in ipc_keeper_start
};

struct ipc_keeper_start {
    uid_t uid; // what the sandbox's processes are, inside and outside of its user namespace
    gid_t gid;
    struct ipc_ports loopback_ports;
    uint32_t skeleton;     // enum ipc_skeleton: ROUTES not to try the other one first
    struct ipc_ports ports; // TCP ports to listen on where nft is missing; none: the sandbox cannot do without it
    char need[IPC_NEED_SIZE]; // then: what in the policy needs nft, as a person reads it
};

struct ipc_keeper_ready {
    uint32_t skeleton;         // enum ipc_skeleton
    char lacks[IPC_TEXT_SIZE]; // what is missing in the kernel for TPROXY; "" if nothing, or if it was not tried
};

struct ipc_plain {
    uint32_t listeners; // that follow, at most IPC_LISTENERS_MAX
};

struct ipc_mapping {
    uint32_t index; // of the synthetic pool, 0 to IPC_MAPPINGS_MAX - 1
    char name[NAME_SIZE];
};

struct ipc_buffers {
    uint32_t large; // 1: TCP buffers of the sandbox may grow large; 0: they stay small
};

struct ipc_gate_start {
    char sandbox[64]; // identifier for the log
    uint8_t doors;    // 1: the doors of `--proxy` are open
    uint64_t bytes_out; // of the sandbox so far, as the last IPC_GATE_SPENT said
};

struct ipc_spent {
    uint64_t bytes_out; // of the sandbox, over its life: none beyond these were sent
};

struct ipc_policy {
    uint64_t generation;
    uint64_t size;          // of the block, bytes
    uint32_t keep_existing; // 1: open flows that are no longer allowed stay
};

struct ipc_active {
    uint64_t generation; // that is in force everywhere
    uint64_t update_us;
    uint32_t flows_closed, flows_kept;
    // 0; or negative errno: the policy was not taken and the one before stays in force: -EXDEV: another synthetic pool; -ENOTSUP:
    // bindings, and this gate began without any; anything else: a damaged block, or no memory
    int32_t status;
};

#define IPC_UPDATE_STEPS 6 // of the histogram of updates, by their time: up to 0.1 ms, 1 ms, 10 ms, 100 ms, 1 s, and any

// What one gate process has counted since it began, and what it has now.
struct ipc_counters {
    uint64_t decisions[IPC_PROTOCOLS][IPC_VERDICTS][IPC_REASONS]; // lines of the decision log
    uint64_t limited[IPC_LIMITS];   // of these, for reason limit_exceeded, by the limit
    uint64_t flows, exchanges;      // that were opened: TCP, and UDP and ICMP
    uint64_t bytes[2], lost[2], waits[2]; // out, in: bytes; datagrams beyond the bandwidth; times that a reader had to wait
    uint64_t updates[IPC_UPDATE_STEPS], update_us, updates_refused, closed; // closed: flows and exchanges, by updates
    uint64_t starved;               // times that descriptors or memory were short
    uint64_t flows_open, exchanges_open, names, log_waiting; // now; names: of the synthetic pool; log_waiting: records
};

enum ipc_event { IPC_EVENT_DECISION, IPC_EVENT_FLOW };

struct ipc_decision {
    uint8_t event;     // enum ipc_event
    uint8_t protocol;  // enum policy_protocol
    uint8_t verdict;   // enum policy_verdict
    uint8_t reason;    // enum policy_reason
    uint16_t port;
    uint16_t credentials; // bit i: the header that is the i-th one bound to the name was added to this request
    uint8_t app;       // enum policy_app
    uint32_t rule;     // index in the policy of this generation, or POLICY_RULE_NONE
    uint64_t generation;
    uint64_t bytes_out, bytes_in; // flow
    uint64_t duration_us;         // flow
    struct addr address;          // ADDR_NONE if none
    char name[NAME_SIZE];         // "" if none
    char hint[320];               // "" if none
};

// A decision on its way: without the unused ends of its texts. As many as there are go in one message.
#define IPC_DECISION_PACKED_MAX (sizeof(struct ipc_decision) + 4)
size_t ipc_decision_pack(const struct ipc_decision *decision, uint8_t ret_bytes[IPC_DECISION_PACKED_MAX]); // their number
// The decision at *at, which is moved behind it. False: there is none, or none that is well-formed.
bool ipc_decision_next(const void *bytes, size_t len, size_t *at, struct ipc_decision *ret_decision);

struct ipc_resolver_server {
    struct addr address;
    uint16_t port;
};

struct ipc_resolver_start {
    uint32_t count; // 0: none (the host has no resolver): every lookup fails
    struct ipc_resolver_server servers[IPC_SERVERS_MAX];
};

struct ipc_query {
    uint32_t id;
    uint16_t type;               // DNS type
    uint8_t has_server;          // ask this server instead of the configured ones
    struct ipc_resolver_server server;
    char name[NAME_SIZE];        // canonical, "" = root
};

struct ipc_answer {
    uint32_t id;
    int32_t status;              // 0, or negative errno: no answer could be had
    uint32_t length;             // of the DNS message that follows, bytes; 0 on failure
};

// Whether body_len bytes and fd_count descriptors are what a message of this type has, with inner counts and strings
// checked (counts within arrays, text NUL-terminated). 0 or -EBADMSG.
int ipc_check(uint32_t type, const void *body, size_t body_len, size_t fd_count);
