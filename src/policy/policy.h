// SPDX-License-Identifier: Apache-2.0
// The front door of the policy room: what a sandbox may reach, compiled once, and the one pure function that decides.
//
// A compiled policy is one position-independent block of memory (offsets, no pointers), so that main can put it into a
// sealed memfd and the gate can map it read-only. It holds the guardrails and the host's own addresses as data.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/error.h"
#include "base/name.h"

enum policy_protocol { POLICY_TCP, POLICY_UDP, POLICY_ICMP, POLICY_DNS };
enum policy_app { POLICY_APP_UNKNOWN, POLICY_APP_TLS, POLICY_APP_HTTP, POLICY_APP_OTHER };
enum policy_verdict { POLICY_DENY, POLICY_ALLOW, POLICY_INSPECT };

// Reason codes: stable interface (semantics section 2). The names are in policy_reason_name().
enum policy_reason {
    POLICY_ALLOWED_NAME, POLICY_ALLOWED_CIDR, POLICY_ALLOWED_BASE, POLICY_NODE_DENIED, POLICY_NODE_OWN_ADDRESS,
    POLICY_PRIVATE_ADDRESS, POLICY_DENIED_CIDR, POLICY_BASE_DENIED, POLICY_NO_NAME, POLICY_NAME_MISMATCH,
    POLICY_NOT_HTTPS, POLICY_PROTOCOL_DENIED, POLICY_PORT_DENIED, POLICY_DNS_NAME_DENIED, POLICY_DNS_FAILED,
    POLICY_DNS_BAD_MESSAGE, POLICY_BAD_REQUEST, POLICY_TLS_BAD_HELLO, POLICY_ECH_DENIED, POLICY_LIMIT_EXCEEDED,
    POLICY_BINDING_FAILED, POLICY_UPSTREAM_FAILED, POLICY_POLICY_CHANGED,
    POLICY_REASON_COUNT,
};

struct policy; // compiled; immutable

// One question. Names are canonical (base/name.h) or NULL.
struct policy_request {
    enum policy_protocol protocol;
    enum policy_app app;
    const char *dialled;      // from a synthetic address, an explicit proxy, or the DNS question
    const char *claimed;      // SNI, Host, :authority
    const struct addr *claimed_address; // the same when it was an address literal (Host: 203.0.113.10), else NULL
    bool ech;                 // the ClientHello carries an encrypted_client_hello extension
    const struct addr *address; // NULL: the name is judged alone, before it is resolved. DNS: an answer to be shown under
                                // `names: real`: steps 1 and 2 whatever the port, and inside a range if only ranges allow
    uint16_t port;            // 0 for ICMP and DNS
};

#define POLICY_RULE_NONE UINT32_MAX

// Which of a sandbox's limits a denial for limit_exceeded is about. policy_decide knows none: who counts, says.
enum policy_limit {
    POLICY_LIMIT_NONE, // one of our own
    POLICY_LIMIT_CONNECTIONS, POLICY_LIMIT_CONNECTION_RATE, POLICY_LIMIT_BANDWIDTH, POLICY_LIMIT_BYTES_OUT,
    POLICY_LIMIT_COUNT,
};
const char *policy_limit_name(enum policy_limit limit); // its key in a policy; NONE: "other"

struct policy_decision {
    enum policy_verdict verdict;
    enum policy_reason reason;
    uint32_t rule;    // index for policy_rule_info(), or POLICY_RULE_NONE
    // On allow by name (and on inspect of a dialled name): the name to resolve and dial, equal to request.dialled or
    // request.claimed. NULL: dial the literal address.
    const char *name;
    enum policy_limit limit; // where the reason is limit_exceeded
};

// The verdict: pure, no I/O, no clock, no globals, no allocation.
struct policy_decision policy_decide(const struct policy *policy, const struct policy_request *request);

// Judges every answer of a lookup (semantics section 2: if any answer of a family is denied, the family is refused as a
// whole). request->address is ignored. Writes one family after the other into ret_allowed the indexes of the answers that
// may be dialled, in order, at most count; *ret_allowed_count says how many. The decision returned is allow (or inspect)
// if there is at least one, else the denial of the first denied answer, or dns_failed if count is 0. Uses policy_decide.
struct policy_decision policy_judge_answers(const struct policy *policy, const struct policy_request *request,
                                            const struct addr *answers, size_t count, size_t *ret_allowed,
                                            size_t *ret_allowed_count);

// Facts about a compiled policy that doors need.
enum policy_dns_names { POLICY_DNS_SYNTHETIC, POLICY_DNS_REAL };
struct policy_facts {
    uint64_t generation;
    bool base_allow;          // after "0.0.0.0/0 in deny counts as base deny"
    bool names_are_policy;    // base deny and at least one allow entry is a name (semantics section 8)
    bool has_names;           // any name entry at all
    bool synthetic;           // some name gets a synthetic address, so the pools are in use
    enum policy_dns_names dns_names;
    uint32_t max_connections;
    uint32_t connection_rate; // new ones per second; 0 = no limit
    uint64_t bandwidth_bytes; // per second, each way; 0 = none
    uint64_t max_bytes_out;   // 0 = none
    struct addr_prefix pool4, pool6; // synthetic pools
};
struct policy_facts policy_facts(const struct policy *policy);

// Whether a name's lookups may leave: the name could be allowed by some entry on some port. (policy_decide with
// POLICY_DNS is what judges a question; this is the same answer.)
bool policy_name_bound(const struct policy *policy, const char *name); // host with a credential binding

// ---- credentials (semantics section 7) ----

#define POLICY_CREDENTIALS_MAX 16 // headers bound to one host

// A header that a binding sets.
struct policy_credential {
    uint32_t rule;      // its number, as main gives it to the vault: the order of policy_binding_targets over the model
    const char *header; // as it is written
    const char *name;   // of its binding, for people: "github", "header:api.example:X-Key". It lives as long as the policy
    bool scrub;         // its value is taken out of responses
    bool conditional;   // only for some methods or paths
};

struct policy_credential_request {
    const char *host;    // canonical: the name that was resolved, dialled and claimed
    const void *method;  // as sent; NULL: whatever the request is, all that are bound to the host
    size_t method_len;
    const void *path;    // with its query, as sent
    size_t path_len;
};

// The headers that this request gets: those bound to its host whose repositories, path prefix and methods fit it, in the
// order of their rules. A path of which a server could make something else than it shows is in no repository and below no
// prefix. TRACE, TRACK and CONNECT get none. Pure.
size_t policy_credentials(const struct policy *policy, const struct policy_credential_request *request,
                          struct policy_credential ret_credentials[POLICY_CREDENTIALS_MAX]);
// Not of methods that hand a request back (TRACE, TRACK) or on (CONNECT), in whatever case: a bound host gets none.
bool policy_method_may(const void *method, size_t len);
// The bound hosts, one after the other; NULL behind the last. They live as long as the policy.
const char *policy_bound_host(const struct policy *policy, size_t index);

// TCP ports of the host's loopback that entries open (semantics 5.1 localhost): fills at most max, returns the count.
// Each port stands for 127.0.0.1 and ::1 and for the names localhost, 127.0.0.1, ::1 as the entries say.
size_t policy_loopback_ports(const struct policy *policy, uint16_t *ret_ports, size_t max);

// The TCP ports on which connections that this policy allows can come, ascending, with those of a refusal that is told in
// its own words (80) and of DNS (53): for a kernel in which each port needs a listener of its own. Returns the count. -1:
// that is not enough for the policy; *ret_rule is the rule that needs more (an open base, addresses, UDP or ICMP), or, with
// *ret_many, more ports than max in all.
int policy_listener_ports(const struct policy *policy, uint16_t *ret_ports, size_t max, uint32_t *ret_rule, bool *ret_many);

// A rule as a person reads it. Strings live as long as the policy.
struct policy_rule_info {
    const char *text;   // "allow https api.github.com:443", "base deny", "node always_denied 10.0.0.0/8"
    const char *source; // "--allow api.github.com", "policy.yaml:4", "default", "penstock.yaml:7"
};
struct policy_rule_info policy_rule_info(const struct policy *policy, uint32_t rule);
size_t policy_rule_count(const struct policy *policy);

// What to add so that this would have been allowed: "--allow example.com:8443", "--allow-private", or, for a native file,
// "policy entry {cidr: \"203.0.113.5\", protocol: tcp, ports: [22]}"; in parentheses behind it what it opens besides. UDP and
// ICMP to a name get words instead. Empty if nothing a sandbox's policy could say would help (node guardrails). Returns buf.
#define POLICY_HINT_SIZE 320
const char *policy_hint(const struct policy *policy, const struct policy_request *request,
                        const struct policy_decision *decision, char buf[POLICY_HINT_SIZE]);

const char *policy_verdict_name(enum policy_verdict verdict);
const char *policy_reason_name(enum policy_reason reason);
const char *policy_protocol_name(enum policy_protocol protocol);

// The block: for the memfd that main gives to a gate. policy_from_block borrows the memory (which must outlive the policy
// and never change) and checks magic, version, size and every offset; -EINVAL if it is not a policy of this program.
const void *policy_block(const struct policy *policy, size_t *ret_size);
int policy_from_block(const void *block, size_t size, struct policy **ret_policy, struct error *err);
void policy_free(struct policy *policy);
