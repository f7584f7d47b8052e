// SPDX-License-Identifier: Apache-2.0
// Words for the limits of a sandbox: which one a denial is about, and its value as a policy writes it.
#include <assert.h>
#include <inttypes.h>

#include "base/mem.h"
#include "policy/block.h"

const char *policy_limit_name(enum policy_limit limit) {
    static const char *const names[] = {
        [POLICY_LIMIT_NONE] = "other",
        [POLICY_LIMIT_CONNECTIONS] = "connections",
        [POLICY_LIMIT_CONNECTION_RATE] = "connections_per_second",
        [POLICY_LIMIT_BANDWIDTH] = "bandwidth",
        [POLICY_LIMIT_BYTES_OUT] = "bytes_out",
    };
    static_assert(ARRAY_LENGTH(names) == POLICY_LIMIT_COUNT, "each has its name");
    return names[limit];
}

struct limit_unit {
    const char *name;
    uint64_t size;
};

// In the largest unit of which it is a whole number; the last one always is.
static void limit_value(uint64_t value, const struct limit_unit *units, char *text, size_t size) {
    while (value % units->size != 0) units++;
    snprintf(text, size, "%" PRIu64 "%s", value / units->size, units->name);
}

void limit_hint(const struct policy *policy, enum policy_limit limit, char buf[POLICY_HINT_SIZE]) {
    static const struct limit_unit rates[] = {{"gbit", 1000000000}, {"mbit", 1000000}, {"kbit", 1000}, {"bit", 1}};
    static const struct limit_unit sizes[] = {{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {" bytes", 1}};
    const struct block_header *header = policy->header;
    char value[32] = "";
    switch (limit) {
    case POLICY_LIMIT_NONE:
        return;
    case POLICY_LIMIT_CONNECTIONS:
        snprintf(buf, POLICY_HINT_SIZE, "as many are open as limits: {connections: %u} lets be; close some, or raise it in the policy",
                 header->max_connections);
        return;
    case POLICY_LIMIT_CONNECTION_RATE:
        snprintf(buf, POLICY_HINT_SIZE, "limits: {connections_per_second: %u}: wait a moment, or raise it in the policy",
                 header->connection_rate);
        return;
    case POLICY_LIMIT_BANDWIDTH:
        limit_value(header->bandwidth_bytes * 8, rates, value, sizeof(value));
        snprintf(buf, POLICY_HINT_SIZE, "limits: {bandwidth: %s}: datagrams beyond it are lost; send slower, or raise it in the "
                 "policy", value);
        return;
    case POLICY_LIMIT_BYTES_OUT:
        limit_value(header->max_bytes_out, sizes, value, sizeof(value));
        snprintf(buf, POLICY_HINT_SIZE, "limits: {bytes_out: %s} is used up for the life of this sandbox; raise it in the policy",
                 value);
        return;
    case POLICY_LIMIT_COUNT:
        return;
    }
}
