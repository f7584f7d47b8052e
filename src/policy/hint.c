// SPDX-License-Identifier: Apache-2.0
// What to add to a policy so that a denied request is allowed. A hint that is an option or an entry, once added, makes the
// verdict on the same request allow, or inspect where only bytes are missing; it opens no more than it must. Where no such
// addition exists there is no hint, or words that say what else can be done.
#include <stdarg.h>

#include "base/mem.h"
#include "policy/block.h"

struct hint {
    const struct policy *policy;
    const struct policy_request *request;
    char *text; // POLICY_HINT_SIZE
};

// A hint that would be cut is none.
static void hint_set(const struct hint *hint, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void hint_set(const struct hint *hint, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int len = vsnprintf(hint->text, POLICY_HINT_SIZE, format, args);
    va_end(args);
    if (len < 0 || len >= POLICY_HINT_SIZE) hint->text[0] = '\0';
}

// ---- by name ----

// Names that no entry can be written for: the root, labels with '_', and addresses turned into names (their PTR records).
static bool is_writable(const char *name) {
    size_t len = strlen(name);
    return len > 0 && !strchr(name, '_') && !(len >= 5 && strcmp(name + len - 5, ".arpa") == 0);
}

static bool is_localhost(const char *name) {
    size_t len = strlen(name);
    return strcmp(name, "localhost") == 0 || (len > 10 && strcmp(name + len - 10, ".localhost") == 0);
}

// Ports on which a client begins with TLS or with HTTP; on others it may say anything, or wait for the server.
static enum policy_entry_protocol port_protocol(uint16_t port) {
    static const uint16_t tls[] = {443, 465, 636, 853, 990, 993, 995, 4443, 5061, 5671, 6443, 8443, 8883, 9443, 10443};
    static const uint16_t http[] = {80, 8080};
    for (size_t i = 0; i < ARRAY_LENGTH(tls); i++)
        if (port == tls[i]) return POLICY_ENTRY_HTTPS;
    for (size_t i = 0; i < ARRAY_LENGTH(http); i++)
        if (port == http[i]) return POLICY_ENTRY_HTTP;
    return POLICY_ENTRY_TCP;
}

// The protocol of an entry for this connection: what its bytes showed, else what the entry that came near says.
static enum policy_entry_protocol name_protocol(const struct hint *hint, uint32_t rule) {
    switch (hint->request->app) {
    case POLICY_APP_TLS:
        return POLICY_ENTRY_HTTPS;
    case POLICY_APP_HTTP:
        return POLICY_ENTRY_HTTP;
    case POLICY_APP_OTHER:
        return POLICY_ENTRY_TCP;
    case POLICY_APP_UNKNOWN:
        break;
    }
    bool entry = rule < block_count(hint->policy, BLOCK_ENTRIES);
    bool tcp = entry && hint->policy->entries[rule].protocol == POLICY_ENTRY_TCP;
    return tcp ? POLICY_ENTRY_TCP : port_protocol(hint->request->port);
}

static void hint_name(const struct hint *hint, const char *name, uint32_t rule, bool private_ok) {
    const struct policy_request *request = hint->request;
    if (!is_writable(name)) return;
    switch (request->protocol) {
    case POLICY_DNS: // the port of a question is the server's
        hint_set(hint, "--allow %s", name);
        return;
    case POLICY_UDP:
        hint_set(hint, "no entry for a name opens UDP; use its address and policy entry {cidr: ADDRESS, protocol: udp, "
                       "ports: [%u]}%s", request->port, hint->policy->header->name_base_allow ? "" : ", or --network all");
        return;
    case POLICY_ICMP:
        hint_set(hint, "no entry for a name opens ICMP; use its address and policy entry {cidr: ADDRESS, protocol: icmp}");
        return;
    case POLICY_TCP:
        break;
    }
    enum policy_entry_protocol protocol = name_protocol(hint, rule);
    private_ok |= is_localhost(name);
    if (protocol == POLICY_ENTRY_HTTPS && !private_ok && request->port == 443)
        hint_set(hint, "--allow %s", name);
    else if (protocol == POLICY_ENTRY_HTTPS && !private_ok)
        hint_set(hint, "--allow %s:%u", name, request->port);
    else
        hint_set(hint, "policy entry {host: %s, protocol: %s, ports: [%u]%s}", name, explain_entry_protocol(protocol),
                 request->port, private_ok ? ", private: true" : "");
}

// ---- by address ----

// Where clouds give a machine's credentials to whoever asks.
static const char *metadata_words(const struct hint *hint, const struct addr *addr) {
    static const struct addr_prefix places[] = {
        {{.family = ADDR_IPV4, .bytes = {169, 254}}, 16},
        {{.family = ADDR_IPV4, .bytes = {100, 100, 100, 200}}, 32},
        {{.family = ADDR_IPV6, .bytes = {0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, 0x54}}, 128},
        {{.family = ADDR_IPV6, .bytes = {0xfd, 0x20, 0x00, 0xce, [14] = 0x02, 0x54}}, 128},
    };
    struct addr inner;
    bool carries = addr_embedded_ipv4(addr, hint->policy->nat64, block_count(hint->policy, BLOCK_NAT64), &inner);
    for (size_t i = 0; i < ARRAY_LENGTH(places); i++)
        if (addr_prefix_contains(&places[i], addr) || (carries && addr_prefix_contains(&places[i], &inner)))
            return " (cloud metadata: opens the machine's credentials)";
    return "";
}

// No entry helps there: a dial that reaches the host itself is reset but for the TCP ports of its loopback that an entry
// lists, and the pool's addresses are only names.
static bool is_out_of_reach(const struct hint *hint, const struct addr *addr) {
    struct policy_facts facts = policy_facts(hint->policy);
    if (addr_is_loopback(addr)) return hint->request->protocol != POLICY_TCP;
    return addr_is_unspecified(addr) || block_find_node(hint->policy, BLOCK_TREE_OWN, addr) != NULL ||
           (facts.synthetic && (addr_prefix_contains(&facts.pool4, addr) || addr_prefix_contains(&facts.pool6, addr)));
}

static void hint_address(const struct hint *hint, const struct addr *addr, uint32_t rule) {
    const struct policy_request *request = hint->request;
    char text[ADDR_TEXT_SIZE], option[ADDR_TEXT_SIZE + 48] = "";
    if (is_out_of_reach(hint, addr)) return;
    addr_format(addr, text);
    // Where a range is open on some ports, or the address is delicate, nobody is led to open all of it.
    bool listed = rule < block_count(hint->policy, BLOCK_ENTRIES), delicate = metadata_words(hint, addr)[0] != '\0';
    if (!listed && !delicate && !addr_is_loopback(addr))
        snprintf(option, sizeof(option), ", or --allow-cidr %s for every port", text);
    if (request->protocol == POLICY_ICMP)
        hint_set(hint, "policy entry {cidr: \"%s\", protocol: icmp}%s", text, metadata_words(hint, addr));
    else if (request->port == 0)
        hint_set(hint, "--allow-cidr %s%s", text, metadata_words(hint, addr));
    else
        hint_set(hint, "policy entry {cidr: \"%s\", protocol: %s, ports: [%u]}%s%s", text,
                 policy_protocol_name(request->protocol), request->port, option, metadata_words(hint, addr));
}

static bool is_host(const struct addr *addr) { return addr_is_loopback(addr) || addr_is_unspecified(addr); }

// Addresses of a name are not the sandbox's choice; a literal is, and only it may be offered.
static void hint_private(const struct hint *hint, const char *name, uint32_t rule) {
    struct policy_request alone = *hint->request;
    const struct addr *addr = alone.address;
    if (!addr) return;
    alone.address = NULL;
    if (!name) {
        hint_address(hint, addr, rule);
        return;
    }
    struct policy_decision decision = policy_decide(hint->policy, &alone);
    if (alone.protocol == POLICY_DNS && is_host(addr)) return;
    if (decision.verdict != POLICY_DENY && !is_host(addr))
        hint_set(hint, "--allow-private%s", metadata_words(hint, addr));
    else if (alone.dialled)
        hint_name(hint, name, decision.rule, true);
    else
        hint_address(hint, addr, rule);
}

// The private block refused a literal, though the reason is that of a range which is open for something else.
static bool is_blocked_literal(const struct hint *hint) {
    const struct policy *policy = hint->policy;
    const struct addr *addr = hint->request->address;
    return addr && !hint->request->dialled && policy->header->block_private &&
           (addr_special_block(addr, policy->nat64, block_count(policy, BLOCK_NAT64)) != NULL ||
            block_find_node(policy, BLOCK_TREE_OWN, addr) != NULL);
}

// What the bytes showed to be wrong cannot be opened by a name on the command line; the address can.
const char *policy_hint(const struct policy *policy, const struct policy_request *request,
                        const struct policy_decision *decision, char buf[POLICY_HINT_SIZE]) {
    const struct hint hint = {.policy = policy, .request = request, .text = buf};
    const char *name = request->dialled ? request->dialled : request->claimed;
    buf[0] = '\0';
    if (decision->verdict != POLICY_DENY) return buf;
    bool limited = decision->reason == POLICY_LIMIT_EXCEEDED;
    if (!limited && name && request->address && is_host(request->address) && !is_localhost(name)) return buf; // no other name opens it
    switch (decision->reason) {
    case POLICY_BASE_DENIED:
    case POLICY_PORT_DENIED:
    case POLICY_NOT_HTTPS:
    case POLICY_PROTOCOL_DENIED:
    case POLICY_DNS_NAME_DENIED:
    case POLICY_DENIED_CIDR:
        if (name && !is_blocked_literal(&hint))
            hint_name(&hint, name, decision->rule, false);
        else if (request->address)
            hint_address(&hint, request->address, decision->rule);
        break;
    case POLICY_PRIVATE_ADDRESS:
        hint_private(&hint, name, decision->rule);
        break;
    case POLICY_NO_NAME:
        if (request->address) hint_address(&hint, request->address, decision->rule);
        break;
    case POLICY_LIMIT_EXCEEDED:
        limit_hint(policy, decision->limit, buf);
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
    case POLICY_BINDING_FAILED:
    case POLICY_UPSTREAM_FAILED:
    case POLICY_POLICY_CHANGED:
    case POLICY_REASON_COUNT:
        break;
    }
    return buf;
}
