// SPDX-License-Identifier: Apache-2.0
// Words: names of the enums, and rules as a person reads them.
#include "policy/block.h"

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

static void print_text(struct buf *buf, const char *text) { buf_append(buf, text, strlen(text)); }

static void print_destination(struct buf *buf, const struct policy_entry *entry) {
    char text[ADDR_TEXT_SIZE];
    switch (entry->kind) {
    case POLICY_ENTRY_NAME:
        print_text(buf, entry->name);
        break;
    case POLICY_ENTRY_WILDCARD:
        print_text(buf, entry->name[0] ? "*." : "*");
        print_text(buf, entry->name);
        break;
    case POLICY_ENTRY_ADDRESS:
    case POLICY_ENTRY_CIDR: {
        bool bracket = entry->prefix.addr.family == ADDR_IPV6 && entry->port_count > 0;
        addr_prefix_format(&entry->prefix, text);
        if (bracket) print_text(buf, "[");
        print_text(buf, text);
        if (bracket) print_text(buf, "]");
        break;
    }
    }
}

static void print_ports(struct buf *buf, const struct policy_entry *entry) {
    bool name = entry->kind != POLICY_ENTRY_CIDR;
    if (entry->port_count == 0 && name && entry->protocol == POLICY_ENTRY_HTTPS) print_text(buf, ":443");
    if (entry->port_count == 0 && name && entry->protocol == POLICY_ENTRY_HTTP) print_text(buf, ":80");
    for (size_t i = 0; i < entry->port_count; i++) {
        const struct policy_port_range *range = &entry->ports[i];
        buf_printf(buf, "%s%u", i == 0 ? ":" : ",", range->first);
        if (range->last != range->first) buf_printf(buf, "-%u", range->last);
    }
}

char *explain_entry(const struct policy_entry *entry, bool allow) {
    struct buf buf = BUF_INIT;
    print_text(&buf, allow ? "allow " : "deny ");
    if (allow) {
        print_text(&buf, explain_entry_protocol(entry->protocol));
        print_text(&buf, " ");
    }
    print_destination(&buf, entry);
    if (allow) print_ports(&buf, entry);
    if (entry->private_ok) print_text(&buf, " private");
    return buf_take(&buf);
}
