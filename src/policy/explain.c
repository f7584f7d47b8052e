// SPDX-License-Identifier: Apache-2.0
// Words: names of the enums, rules as a person reads them, and what to add to be allowed.
#include "policy/block.h"

#include <errno.h>

#include "base/buf.h"
#include "base/mem.h"

const char *policy_verdict_name(enum policy_verdict verdict) {
    static const char *const names[] = {[POLICY_DENY] = "deny", [POLICY_ALLOW] = "allow", [POLICY_INSPECT] = "inspect"};
    return names[verdict];
}

const char *policy_reason_name(enum policy_reason reason) {
    static const char *const names[] = {
        [POLICY_ALLOWED_NAME] = "allowed_name",
        [POLICY_ALLOWED_CIDR] = "allowed_cidr",
        [POLICY_ALLOWED_BASE] = "allowed_base",
        [POLICY_NODE_DENIED] = "node_denied",
        [POLICY_NODE_OWN_ADDRESS] = "node_own_address",
        [POLICY_PRIVATE_ADDRESS] = "private_address",
        [POLICY_DENIED_CIDR] = "denied_cidr",
        [POLICY_BASE_DENIED] = "base_denied",
        [POLICY_NO_NAME] = "no_name",
        [POLICY_NAME_MISMATCH] = "name_mismatch",
        [POLICY_NOT_HTTPS] = "not_https",
        [POLICY_PROTOCOL_DENIED] = "protocol_denied",
        [POLICY_PORT_DENIED] = "port_denied",
        [POLICY_DNS_NAME_DENIED] = "dns_name_denied",
        [POLICY_DNS_FAILED] = "dns_failed",
        [POLICY_DNS_BAD_MESSAGE] = "dns_bad_message",
        [POLICY_BAD_REQUEST] = "bad_request",
        [POLICY_TLS_BAD_HELLO] = "tls_bad_hello",
        [POLICY_ECH_DENIED] = "ech_denied",
        [POLICY_LIMIT_EXCEEDED] = "limit_exceeded",
        [POLICY_BINDING_FAILED] = "binding_failed",
        [POLICY_UPSTREAM_FAILED] = "upstream_failed",
        [POLICY_POLICY_CHANGED] = "policy_changed",
    };
    _Static_assert(ARRAY_LENGTH(names) == POLICY_REASON_COUNT, "a name for each reason");
    return names[reason];
}

const char *policy_protocol_name(enum policy_protocol protocol) {
    static const char *const names[] = {
        [POLICY_TCP] = "tcp", [POLICY_UDP] = "udp", [POLICY_ICMP] = "icmp", [POLICY_DNS] = "dns"};
    return names[protocol];
}

const char *explain_entry_protocol(enum policy_entry_protocol protocol) {
    static const char *const names[] = {
        [POLICY_ENTRY_HTTPS] = "https", [POLICY_ENTRY_HTTP] = "http", [POLICY_ENTRY_TCP] = "tcp",
        [POLICY_ENTRY_UDP] = "udp",     [POLICY_ENTRY_ICMP] = "icmp", [POLICY_ENTRY_ANY] = "any",
    };
    _Static_assert(ARRAY_LENGTH(names) == POLICY_ENTRY_ANY + 1, "a name for each protocol");
    return names[protocol];
}

static void print_destination(struct buf *buf, const struct policy_entry *entry) {
    char text[ADDR_TEXT_SIZE];
    switch (entry->kind) {
    case POLICY_ENTRY_NAME:
        buf_printf(buf, "%s", entry->name);
        break;
    case POLICY_ENTRY_WILDCARD:
        buf_printf(buf, "*%s%s", entry->name[0] ? "." : "", entry->name);
        break;
    case POLICY_ENTRY_ADDRESS:
    case POLICY_ENTRY_CIDR: {
        bool bracket = entry->prefix.addr.family == ADDR_IPV6 && entry->port_count > 0;
        addr_prefix_format(&entry->prefix, text);
        buf_printf(buf, bracket ? "[%s]" : "%s", text);
        break;
    }
    }
}

static void print_ports(struct buf *buf, const struct policy_entry *entry) {
    bool name = entry->kind != POLICY_ENTRY_CIDR;
    if (entry->port_count == 0 && name && entry->protocol == POLICY_ENTRY_HTTPS) buf_printf(buf, ":443");
    if (entry->port_count == 0 && name && entry->protocol == POLICY_ENTRY_HTTP) buf_printf(buf, ":80");
    for (size_t i = 0; i < entry->port_count; i++) {
        const struct policy_port_range *range = &entry->ports[i];
        buf_printf(buf, "%s%u", i == 0 ? ":" : ",", range->first);
        if (range->last != range->first) buf_printf(buf, "-%u", range->last);
    }
}

char *explain_entry(const struct policy_entry *entry, bool allow) {
    struct buf buf = BUF_INIT;
    if (allow)
        buf_printf(&buf, "allow %s ", explain_entry_protocol(entry->protocol));
    else
        buf_printf(&buf, "deny ");
    print_destination(&buf, entry);
    if (allow) print_ports(&buf, entry);
    if (entry->private_ok) buf_printf(&buf, " private");
    return buf_take(&buf);
}

// ---- hints ----

// Names that no entry can be written for: the root, labels with '_', and addresses turned into names (their PTR records).
static bool hintable(const char *name) {
    size_t len = strlen(name);
    return len > 0 && !strchr(name, '_') && !(len >= 5 && strcmp(name + len - 5, ".arpa") == 0);
}

static void hint_name(const struct policy_request *request, const char *name, char *buf) {
    if (!hintable(name)) return;
    unsigned port = request->protocol == POLICY_DNS ? 0 : request->port; // a question's port is the server's
    bool plain = request->app == POLICY_APP_HTTP || (request->app == POLICY_APP_UNKNOWN && port == 80);
    if (request->protocol == POLICY_DNS ||
        (request->protocol == POLICY_TCP && !plain && request->app != POLICY_APP_OTHER)) {
        if (port == 0 || port == 443)
            snprintf(buf, POLICY_HINT_SIZE, "--allow %s", name);
        else
            snprintf(buf, POLICY_HINT_SIZE, "--allow %s:%u", name, port);
    } else if (request->protocol == POLICY_TCP) {
        snprintf(buf, POLICY_HINT_SIZE, "policy entry {host: %s, protocol: %s, ports: [%u]}", name,
                 plain ? "http" : "tcp", port);
    }
}

static void hint_address(const struct policy_request *request, char *buf) {
    char text[ADDR_TEXT_SIZE];
    addr_format(request->address, text);
    if (request->protocol == POLICY_ICMP)
        snprintf(buf, POLICY_HINT_SIZE, "policy entry {cidr: \"%s\", protocol: icmp}", text);
    else
        snprintf(buf, POLICY_HINT_SIZE, "--allow-cidr %s", text);
}

// No entry helps there: a dial that reaches the host itself is reset, and the pool's addresses are only names.
static bool is_own_or_pool(const struct policy *policy, const struct addr *addr) {
    struct policy_facts facts = policy_facts(policy);
    return block_find_node(policy, BLOCK_TREE_OWN, addr) != NULL ||
           (facts.synthetic && (addr_prefix_contains(&facts.pool4, addr) || addr_prefix_contains(&facts.pool6, addr)));
}

// What the bytes showed to be wrong cannot be opened by a name on the command line; the address can.
const char *policy_hint(const struct policy *policy, const struct policy_request *request,
                        const struct policy_decision *decision, char buf[POLICY_HINT_SIZE]) {
    const char *name = request->dialled ? request->dialled : request->claimed;
    buf[0] = '\0';
    if (decision->verdict != POLICY_DENY) return buf;
    switch (decision->reason) {
    case POLICY_BASE_DENIED:
    case POLICY_PORT_DENIED:
    case POLICY_NOT_HTTPS:
    case POLICY_PROTOCOL_DENIED:
    case POLICY_DNS_NAME_DENIED:
    case POLICY_DENIED_CIDR:
        if (name)
            hint_name(request, name, buf);
        else if (request->address)
            hint_address(request, buf);
        break;
    case POLICY_PRIVATE_ADDRESS:
        // Addresses of a name are not the sandbox's choice; a literal is, and only its own range may be offered.
        if (request->dialled || request->claimed)
            snprintf(buf, POLICY_HINT_SIZE, "--allow-private");
        else if (request->address && !is_own_or_pool(policy, request->address))
            hint_address(request, buf);
        break;
    case POLICY_NO_NAME:
        if (request->address && !is_own_or_pool(policy, request->address)) hint_address(request, buf);
        break;
    case POLICY_ALLOWED_NAME:
    case POLICY_ALLOWED_CIDR:
    case POLICY_ALLOWED_BASE:
    case POLICY_NODE_DENIED:
    case POLICY_NODE_OWN_ADDRESS:
    case POLICY_NAME_MISMATCH:
    case POLICY_DNS_FAILED:
    case POLICY_DNS_BAD_MESSAGE:
    case POLICY_BAD_REQUEST:
    case POLICY_TLS_BAD_HELLO:
    case POLICY_ECH_DENIED:
    case POLICY_LIMIT_EXCEEDED:
    case POLICY_BINDING_FAILED:
    case POLICY_UPSTREAM_FAILED:
    case POLICY_POLICY_CHANGED:
    case POLICY_REASON_COUNT:
        break;
    }
    return buf;
}
