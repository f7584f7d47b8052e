// SPDX-License-Identifier: Apache-2.0
// Messages between our own processes, over SOCK_SEQPACKET pairs: a header, then a body of fixed size (or with a counted
// tail). Same machine, same binary: host byte order. ipc_check() refuses anything whose length does not fit its type,
// so a compromised peer cannot make the reader look past the end.
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/addr.h"
#include "base/name.h"
#include "wire/wire.h"

enum ipc_type {
    IPC_ERROR = 1,        // any -> main: struct ipc_error, then the process ends
    // keeper
    IPC_KEEPER_START,     // main -> keeper: struct ipc_keeper_start
    IPC_KEEPER_READY,     // keeper -> main: no body; descriptors: user namespace, network namespace
    IPC_KEEPER_GATE,      // main -> keeper: no body; descriptor: the keeper's end of a channel to a new gate
    IPC_KEEPER_PORTS,     // main -> keeper: struct ipc_ports: loopback ports opened from now on
    IPC_GATE_SOCKETS,     // keeper -> gate: no body; descriptors in the order of enum ipc_socket
    IPC_MAPPING,          // keeper <-> gate: struct ipc_mapping
    IPC_MAPPINGS_END,     // keeper -> gate: all mappings it remembers have been sent
    // gate
    IPC_GATE_START,       // main -> gate: struct ipc_gate_start; descriptors: channel to keeper, channel to resolver
    IPC_GATE_POLICY,      // main -> gate: struct ipc_policy; descriptor: sealed memfd with the policy's block
    IPC_GATE_RESOLVER,    // main -> gate: no body; descriptor: channel to a new resolver, in place of a dead one
    IPC_GATE_READY,       // gate -> main: no body: isolated, policy in force
    IPC_GATE_ACTIVE,      // gate -> main: struct ipc_active: a policy is in force everywhere
    IPC_DECISION,         // gate -> main: struct ipc_decision: a line of the decision log
    // resolver
    IPC_RESOLVER_START,   // main -> resolver: struct ipc_resolver_start
    IPC_RESOLVER_READY,   // resolver -> main: no body
    IPC_RESOLVER_GATE,    // main -> resolver: no body; descriptor: the resolver's end of a channel to a gate
    IPC_QUERY,            // gate -> resolver: struct ipc_query
    IPC_ANSWER,           // resolver -> gate: struct ipc_answer, then the DNS message
    // vault
    IPC_VAULT_START,      // main -> vault: struct ipc_vault_start
    IPC_VAULT_ENV,        // main -> vault: struct ipc_vault_env; descriptor: memfd with the value, not a byte more
    IPC_VAULT_READY,      // vault -> main: struct ipc_vault_ready, then the CA's certificate (DER)
    IPC_VAULT_RULE,       // main -> vault: struct ipc_vault_rule: the next rule of the gate that is to come
    IPC_VAULT_GATE,       // main -> vault: no body; descriptor: the vault's end of a channel to a gate that has these rules
    IPC_VAULT_NOTICE,     // vault -> main: struct ipc_error: what its operator should know; nothing ends
    IPC_LEAF_ASK,         // gate -> vault: struct ipc_leaf_ask
    IPC_LEAF,             // vault -> gate: struct ipc_leaf, then the leaf's certificate, then the CA's (both DER)
    IPC_VALUE_ASK,        // gate -> vault: struct ipc_value_ask
    IPC_VALUE,            // vault -> gate: struct ipc_value, then the header's value
    IPC_VALUE_CHANGED,    // vault -> gate: struct ipc_value_changed
    // source, the vault's helper that opens files and runs commands
    IPC_SOURCE_ASK,       // vault -> source: struct ipc_source_ask
    IPC_SOURCE_FILE,      // source -> vault: struct ipc_source_answer; descriptor: the file
    IPC_SOURCE_STORED,    // source -> vault: struct ipc_source_answer; descriptors: the store's key, the stored secret
    IPC_SOURCE_OUTPUT,    // source -> vault: struct ipc_source_answer; descriptor: pipe from the command's standard output
    IPC_SOURCE_END,       // source -> vault: struct ipc_source_answer: not to be had, or how the command ended
    IPC_TYPE_COUNT,
};

// Sockets made in the sandbox's network namespace.
enum ipc_socket {
    IPC_SOCKET_TCP4, IPC_SOCKET_TCP6,     // tproxy listeners
    IPC_SOCKET_UDP4, IPC_SOCKET_UDP6,     // tproxy, original destination as control message
    IPC_SOCKET_RAW4, IPC_SOCKET_RAW6,     // header included, mark 2
    IPC_SOCKET_PACKET,                    // SYNs and ICMP echo requests that wait for the gate
    IPC_SOCKET_COUNT,
};

#define IPC_FDS_MAX 8
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

struct ipc_keeper_start {
    uid_t uid; // what the sandbox's processes are, inside and outside of its user namespace
    gid_t gid;
    struct ipc_ports loopback_ports;
};

struct ipc_mapping {
    uint32_t index; // of the synthetic pool, 0 to IPC_MAPPINGS_MAX - 1
    char name[NAME_SIZE];
};

struct ipc_gate_start {
    char sandbox[64]; // identifier for the log
};

struct ipc_policy {
    uint64_t generation;
    uint64_t size;          // of the block, bytes
    uint32_t keep_existing; // 1: open flows that are no longer allowed stay
};

struct ipc_active {
    uint64_t generation;
    uint64_t update_us;
    uint32_t flows_closed, flows_kept;
};

enum ipc_event { IPC_EVENT_DECISION, IPC_EVENT_FLOW };

struct ipc_decision {
    uint8_t event;     // enum ipc_event
    uint8_t protocol;  // enum policy_protocol
    uint8_t verdict;   // enum policy_verdict
    uint8_t reason;    // enum policy_reason
    uint16_t port;
    uint8_t app;       // enum policy_app
    uint32_t rule;     // index in the policy of this generation, or POLICY_RULE_NONE
    uint64_t generation;
    uint64_t bytes_out, bytes_in; // flow
    uint64_t duration_us;         // flow
    struct addr address;          // ADDR_NONE if none
    char name[NAME_SIZE];         // "" if none
    char hint[320];               // "" if none
};

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

// ---- vault ----

#define IPC_RULES_MAX 512            // of one gate: 256 bindings with two targets
#define IPC_TEMPLATE_SIZE 1024
#define IPC_REFERENCE_SIZE 4096
#define IPC_SECRET_MAX 32768         // bytes of a secret, and of a header's value
#define IPC_CERTIFICATE_MAX 4096     // DER
#define IPC_KEY_SIZE 32              // a P-256 private key, big endian

struct ipc_vault_start {
    uid_t uid; // what the vault becomes once its files are open; 0: it stays who it is
    gid_t gid;
};

struct ipc_vault_env {
    char name[256];
    uint32_t length; // of the value, bytes
};

struct ipc_vault_ready {
    uint32_t length; // of the certificate that follows
};

// One header of one host. Rules have no number in the message: the first one after a gate, or after the start, is rule 0.
struct ipc_vault_rule {
    uint32_t basic;                     // 1: the value is "Basic " and the base64 form of the filled template (RFC 7617)
    char host[NAME_SIZE];               // canonical
    char value[IPC_TEMPLATE_SIZE];      // template with {secret}
    char reference[IPC_REFERENCE_SIZE]; // "env:NAME" and so on; "": the template has no {secret}
};

struct ipc_leaf_ask {
    uint32_t rule; // any rule of the host
};

struct ipc_leaf {
    uint32_t rule;
    int32_t status;               // 0, or negative errno: none could be made
    int64_t renew_at;             // seconds of CLOCK_REALTIME: ask again from then on
    uint32_t leaf_length, ca_length;
    uint8_t key[IPC_KEY_SIZE];    // of the leaf
};

struct ipc_value_ask {
    uint32_t id; // of the question: comes back with the answer
    uint32_t rule;
};

struct ipc_value {
    uint32_t id;
    uint32_t rule;
    int32_t status;  // 0, or negative errno: the request fails with binding_failed
    uint32_t epoch;  // of the secret
    uint32_t length; // of the value, bytes; 0 on failure
};

// The rule's secret is another one, or gone: connections whose requests carried a value of an epoch before this one end.
struct ipc_value_changed {
    uint32_t rule;
    uint32_t epoch;
};

enum ipc_source_kind { IPC_SOURCE_PATH, IPC_SOURCE_NAME, IPC_SOURCE_SHELL };

struct ipc_source_ask {
    uint32_t id;
    uint32_t kind;                 // enum ipc_source_kind
    char text[IPC_REFERENCE_SIZE]; // path, name in the store, command
};

struct ipc_source_answer {
    uint32_t id;
    int32_t status; // of IPC_SOURCE_END: negative errno, or the command's wait status; else 0
};

// Whether body_len bytes and fd_count descriptors are what a message of this type has, with inner counts and strings
// checked (counts within arrays, text NUL-terminated). 0 or -EBADMSG.
int ipc_check(uint32_t type, const void *body, size_t body_len, size_t fd_count);
