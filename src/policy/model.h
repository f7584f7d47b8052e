// SPDX-License-Identifier: Apache-2.0
// The one data model that every dialect is read into and every compiled policy is made from. Presence is explicit.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/error.h"
#include "base/name.h"
#include "policy/policy.h"
#include "policy/types.h"

enum policy_dialect { POLICY_DIALECT_AUTO, POLICY_DIALECT_NETWORK, POLICY_DIALECT_E2B, POLICY_DIALECT_NATIVE };

// What an entry's protocol says. HTTPS: TLS on the port. HTTP: plain HTTP/1, every request judged. TCP: bytes not
// inspected. ANY: tcp and udp (cidr entries; E2B adds icmp by a second entry).
enum policy_entry_protocol {
    POLICY_ENTRY_HTTPS, POLICY_ENTRY_HTTP, POLICY_ENTRY_TCP, POLICY_ENTRY_UDP, POLICY_ENTRY_ICMP, POLICY_ENTRY_ANY,
};

struct policy_port_range {
    uint16_t first, last;
};

enum policy_entry_kind {
    POLICY_ENTRY_NAME,     // exact name
    POLICY_ENTRY_WILDCARD, // name is the suffix: "*.example.com" has "example.com"; "" is the E2B "*"
    POLICY_ENTRY_ADDRESS,  // an IP entry of `hosts`: TLS to that address; does not lift the private block
    POLICY_ENTRY_CIDR,     // lifts the private block for its range
};

struct policy_entry {
    enum policy_entry_kind kind;
    enum policy_entry_protocol protocol;
    char name[NAME_SIZE];
    struct addr_prefix prefix; // ADDRESS, CIDR
    bool both_families;        // E2B: 0.0.0.0/0 stands for ::/0 too
    bool private_ok;           // native "private: true"
    bool preset;               // from a preset: that another entry covers it is nobody's mistake
    struct policy_port_range *ports; // NULL with count 0: all (cidr) or the protocol's default (filled in by the reader)
    size_t port_count;
    char *source; // "policy.yaml:4" or "--allow api.github.com"
};

// One header that a binding sets; strings live as long as the binding.
struct policy_binding_target {
    const char *host, *header;
    const char *value; // template with {secret}
    bool basic;        // the value is "Basic " and the base64 form of the filled template
    const char *repo_root; // the segment in front of OWNER/REPO in its paths ("": none); NULL: no repositories there
};
#define POLICY_BINDING_TARGETS 2

enum policy_network { POLICY_NETWORK_NONE, POLICY_NETWORK_ALL, POLICY_NETWORK_ALLOW, POLICY_NETWORK_NATIVE };

#define POLICY_TEMPLATE_MAX 1023  // bytes of a binding's value
#define POLICY_REFERENCE_MAX 4095 // of its secret reference
#define POLICY_BINDINGS_MAX 256
#define POLICY_CONNECTIONS_MAX 65536
#define POLICY_CONNECTION_RATE_MAX 1000000

// A credential binding; the values are never here, only the reference.
struct policy_binding {
    enum policy_binding_kind kind;
    bool workspace; // from the operator's rules, in place of a workspace binding
    char **repos;   // github: "owner/repo" in lower case; NULL = any repository
    size_t repo_count;
    char host[NAME_SIZE]; // header
    char *header;
    char *value; // template, default "{secret}"
    bool basic;  // value is what the base64 form is made of: "USER:{secret}"
    // For which requests (policy_credentials).
    char *path;     // prefix of whole segments, "/v1/chat"; NULL: any path
    char **methods; // GET is HEAD too; NULL: any
    size_t method_count;
    bool scrub;     // its value is taken out of responses
    char *variable; // an environment variable that the sandbox gets with a placeholder; NULL: none
    char *secret;   // "env:NAME", "file:PATH", "cmd:...", "store:NAME"; NULL = the kind's default
    // E2B has no references: the secret itself, in place of a value that an env: reference names (its secret is then
    // "env:=HOST/HEADER", a name that no variable has). Main hands it to the vault and wipes it. It is printed nowhere.
    char *literal;
    char *source;
};

// The headers of a binding, in the order in which they are numbered everywhere (first the model's first binding's, and so
// on); the count (0: workspace, whose rules the operator keeps).
size_t policy_binding_targets(const struct policy_binding *binding,
                              struct policy_binding_target ret_targets[POLICY_BINDING_TARGETS]);
// The reference that stands for its secret, the kind's default if it names none. "": its value needs none.
const char *policy_binding_secret(const struct policy_binding *binding);
// What a binding's variable holds in the sandbox: text of the shape that tools expect of it, in which POLICY_PLACEHOLDER
// shows that it is ours. Constant for a variable. Returns buf.
#define POLICY_PLACEHOLDER "PenstockPlaceholder"
#define POLICY_PLACEHOLDER_SIZE 128
const char *policy_binding_placeholder(const struct policy_binding *binding, char buf[POLICY_PLACEHOLDER_SIZE]);
// A binding in a few words, without its value: "github octo/hello", "header X-Api-Key for a.example below /v1". For people.
#define POLICY_BINDING_TEXT_SIZE 512
const char *policy_binding_text(const struct policy_binding *binding, char buf[POLICY_BINDING_TEXT_SIZE]);

// Which entries a list made of options has already, by hash (entry.h).
struct policy_seen {
    uint32_t *slots;
    size_t slot_count;
};

struct policy_model {
    enum policy_dialect dialect;
    bool has_type;
    enum policy_type type;
    bool has_network; // false: nothing was said, which is `none` (for type host: all)
    enum policy_network network;
    bool base_allow;
    bool base_icmp; // the open base includes ICMP echo (E2B always does)
    bool block_private;
    bool has_egress; // network dialect: egress.allow_cidrs present
    struct policy_entry *allow;
    size_t allow_count;
    struct policy_entry *deny;
    size_t deny_count;
    struct policy_seen allow_seen, deny_seen;
    struct policy_binding *bindings;
    size_t binding_count;
    bool has_dns_names;
    enum policy_dns_names dns_names;
    uint32_t max_connections; // default 256
    uint32_t connection_rate; // new ones per second; 0: no limit
    uint64_t bandwidth_bytes;
    uint64_t max_bytes_out;
    // E2B ingress settings: stored, not decided on here.
    bool allow_public_traffic;
    char *mask_request_host;
    char *base_source; // where the base came from
    bool known; // compiled before: what a guardrail has since made needless is no mistake, it only warns
};

struct policy_model *policy_model_new(enum policy_dialect dialect); // native base deny, block_private, default limits
void policy_model_free(struct policy_model *model);

// Reads a policy text (YAML, of which JSON is a part) in one of the three dialects. file_name is for messages ("line N of
// FILE"). dialect AUTO: the `dialect` key, else native if it has `version`, else network. Structural and semantic errors
// of the dialect, but not the type's capabilities. 0, or -EINVAL with one message that quotes the entry.
int policy_read(const char *text, size_t len, const char *file_name, enum policy_dialect dialect,
                struct policy_model **ret_model, struct error *err);

// The command line's building blocks (native dialect). source is the option as written.
int policy_model_allow(struct policy_model *model, const char *host, const char *source, struct error *err); // HOST[:PORT], *.domain, @preset
int policy_model_allow_cidr(struct policy_model *model, const char *cidr, const char *source, struct error *err);
int policy_model_deny_cidr(struct policy_model *model, const char *cidr, const char *source, struct error *err);
// "github[:REPO,...]", "mistral_api", "workspace", "header:HOST:NAME[:TEMPLATE]", each with an optional "=SECRET".
int policy_model_bind(struct policy_model *model, const char *binding, const char *source, struct error *err);
// Opens a model of base deny for learning: everything public is allowed, and every connection still shows by which name
// and protocol it was made (synthetic names, first bytes read). What it allowed before stays first in the list, so a rule
// below the old allow_count is one of those. 0, or -EINVAL with a message if base or deny entries leave nothing to learn.
int policy_model_learn(struct policy_model *model, struct error *err);

// Warnings: one line each, collected for the caller to print.
struct policy_warnings {
    char **lines;
    size_t count; // of lines
    size_t more;  // about single rules, beyond those that can be read
};
#define POLICY_WARNINGS_MAX 50
void policy_warnings_add(struct policy_warnings *warnings, const char *format, ...) __attribute__((format(printf, 2, 3)));
void policy_warnings_done(struct policy_warnings *warnings);

// The operator's guardrails (semantics section 2 step 1) and other node data a compiled policy holds.
struct policy_node {
    bool guarded; // of `serve`: the two guardrails without a value here are on for every dialect
    bool has_always_denied; // false: the default of the dialect and of `serve`
    struct addr_prefix *always_denied;
    size_t always_denied_count;
    char (*always_denied_names)[NAME_SIZE]; // exact, or "*.suffix"
    size_t always_denied_name_count;
    struct addr_prefix *always_allowed;
    size_t always_allowed_count;
    char (*always_allowed_names)[NAME_SIZE];
    size_t always_allowed_name_count;
    bool has_deny_own_addresses, deny_own_addresses;
    struct addr_prefix *nat64_prefixes;
    size_t nat64_count;
    struct addr *own_addresses; // of the config, added to the routing table's
    size_t own_address_count;
    // Of every sandbox, whatever its policy says; 0: its policy's.
    uint32_t max_connections, connection_rate;
    uint64_t bandwidth_bytes, max_bytes_out;
    struct addr_prefix pool4, pool6; // 198.18.0.0/15 and the ULA default if family is ADDR_NONE
    char **dns_servers;              // network.dns.servers: "ADDR[:PORT]"
    size_t dns_server_count;
    // Of `serve` alone; 0, NULL and ADDR_NONE: its defaults.
    char **mirrors, **plain_http; // "REGISTRY=OTHER"; "REGISTRY"
    size_t mirror_count, plain_http_count;
    bool local_images; // clients may name oci: and docker-archive:
    struct addr listen_address;
    uint16_t listen_port;
    uint32_t max_sandboxes, memory_mb, cpu_count, max_memory_mb, max_cpu_count, pids;
    struct policy_binding *workspace; // credentials.workspace: what a workspace binding stands for
    size_t workspace_count;
    char *source;                    // file name, for explanations
};

// Where always_denied is set it stands in place of the default of e2b policies: every address that is not globally reachable.
// Of those ranges, the ones that it leaves open, at least in part, and always_allowed does not name: how many, and their texts
// with ", " between them.
#define POLICY_GUARDRAIL_SIZE 512 // all of them fit
size_t policy_guardrail_open(const struct policy_node *node, char buf[POLICY_GUARDRAIL_SIZE]);
#define POLICY_NODE_HELP_SIZE 256
// Reads a node configuration (YAML; keys as in semantics section 12) and the PENSTOCK_... variables of environ over it.
// text may be NULL: variables only. 0 or -EINVAL with one message.
int policy_node_read(const char *text, size_t len, const char *file_name, char *const *environment,
                     struct policy_node *ret_node, struct error *err);
void policy_node_done(struct policy_node *node);
bool policy_node_is_variable(const char *variable); // "PENSTOCK_...=...": of the configuration
// The settings, their variables, defaults and meaning, as text for a person: one of lines, NULL after the last.
const char *policy_node_help(size_t line, char buf[POLICY_NODE_HELP_SIZE]);

// Puts the operator's rules in place of a workspace binding: those whose hosts the policy reaches. Comes between
// policy_check_type and policy_compile. node may be NULL. 0, also if there is no such binding; -EINVAL with a message if
// there are no rules, if none of their hosts is reached, or if one sets what another binding sets; -ENOMEM.
int policy_bind_workspace(struct policy_model *model, const struct policy_node *node, struct error *err);

// Checks a model for a type (capabilities table, bindings' reach; semantics section 6 and 7) with its message to the
// letter. 0 or -EINVAL.
int policy_check_type(const struct policy_model *model, enum policy_type type, struct error *err);
// Gives the model the type that was said beside the policy (or the default). A policy that names another: -EINVAL. A model
// that says nothing about the network becomes `all` for type host.
int policy_model_set_type(struct policy_model *model, enum policy_type type, struct error *err);

// Compiles. node may be NULL (defaults of the dialect). own: the host's addresses (loopback is always included).
// Rules that can never match and the like: an error for native files (strict), a warning otherwise.
// 0, -EINVAL with one message, -ENOMEM.
int policy_compile(const struct policy_model *model, const struct policy_node *node, const struct addr *own,
                   size_t own_count, uint64_t generation, struct policy **ret_policy, struct policy_warnings *warnings,
                   struct error *err);
