// SPDX-License-Identifier: Apache-2.0
// What a compiled policy needs where each port has to have a listener: only entries whose ports are known and that are for
// TCP can be served so. Tables say which those are.
#include "policy/block.h"

#define PORT_COUNT 65536
#define PORT_DNS 53
#define PORT_HTTP 80

static bool kind_serves(enum policy_entry_kind kind) {
    switch (kind) {
    case POLICY_ENTRY_NAME:
    case POLICY_ENTRY_WILDCARD:
    case POLICY_ENTRY_ADDRESS: // as a literal that shows by its bytes
        return true;
    case POLICY_ENTRY_CIDR:
        return false;
    }
    return false;
}

static bool protocol_serves(enum policy_entry_protocol protocol) {
    switch (protocol) {
    case POLICY_ENTRY_HTTPS:
    case POLICY_ENTRY_HTTP:
    case POLICY_ENTRY_TCP:
        return true;
    case POLICY_ENTRY_UDP:
    case POLICY_ENTRY_ICMP:
    case POLICY_ENTRY_ANY:
        return false;
    }
    return false;
}

// The ports of an entry; those of HTTPS also mean that plain HTTP on 80 is told why not. False: all ports.
static bool entry_ports(const struct policy *policy, const struct block_entry *entry, bool wanted[PORT_COUNT]) {
    if (entry->ports.count == 0) return false;
    for (uint32_t i = 0; i < entry->ports.count; i++) {
        const struct policy_port_range *range = &policy->ports[entry->ports.first + i];
        for (uint32_t port = range->first; port <= range->last; port++) wanted[port] = true;
    }
    if (entry->protocol == POLICY_ENTRY_HTTPS && !entry->loopback) wanted[PORT_HTTP] = true;
    return true;
}

static size_t count_ports(const bool wanted[PORT_COUNT]) {
    size_t count = 0;
    for (uint32_t port = 1; port < PORT_COUNT; port++) count += wanted[port];
    return count;
}

int policy_listener_ports(const struct policy *policy, uint16_t *ret_ports, size_t max, uint32_t *ret_rule, bool *ret_many) {
    bool wanted[PORT_COUNT] = {[PORT_DNS] = true};
    size_t count = 0;

    *ret_many = false;
    *ret_rule = policy->header->rule_base;
    if (policy_facts(policy).base_allow) return -1;
    for (uint32_t i = 0; i < block_count(policy, BLOCK_ENTRIES); i++) {
        const struct block_entry *entry = &policy->entries[i];
        *ret_rule = i;
        bool served = kind_serves((enum policy_entry_kind)entry->kind) &&
                      protocol_serves((enum policy_entry_protocol)entry->protocol) && entry_ports(policy, entry, wanted);
        *ret_many = served && count_ports(wanted) > max;
        if (!served || *ret_many) return -1;
    }
    for (uint32_t port = 1; port < PORT_COUNT; port++)
        if (wanted[port]) ret_ports[count++] = (uint16_t)port;
    return (int)count;
}
