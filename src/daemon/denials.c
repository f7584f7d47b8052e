// SPDX-License-Identifier: Apache-2.0
// A row is a destination with a protocol and a reason; its ports share it, so that a scan is one line and hides nothing.
// What a sandbox can make us hold is bounded: rows, ports of a row, and one hint for each of these ports.
#include "daemon/denials.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "policy/policy.h"

#define DENIALS_SHOWN 20
#define DENIALS_MAX 256
#define DENIALS_PORTS 4

struct denial {
    char name[NAME_SIZE];
    struct addr address;
    uint16_t ports[DENIALS_PORTS];
    size_t port_count, hint_count;
    bool more_ports;
    uint8_t protocol, reason;
    uint64_t count;
    char hints[DENIALS_PORTS][POLICY_HINT_SIZE];
};

struct denials {
    struct denial *rows;
    size_t count;
    bool lost; // destinations that found no place
    uint32_t hashes[DENIALS_MAX]; // of rows: a row is large, and each denial looks for its own
};

struct denials *denials_new(void) { return NEW(struct denials); }

void denials_free(struct denials *denials) {
    if (!denials) return;
    free(denials->rows);
    free(denials);
}

// ---- while it runs ----

static bool is_same(const struct denial *row, const struct ipc_decision *record) {
    bool place = record->name[0] ? strcmp(row->name, record->name) == 0
                                 : !row->name[0] && addr_equal(&row->address, &record->address);
    return place && row->protocol == record->protocol && row->reason == record->reason;
}

static uint32_t hash_of(const struct ipc_decision *record) {
    uint32_t hash = UINT32_C(2166136261) ^ record->reason ^ (uint32_t)record->protocol << 8;
    for (const char *at = record->name; *at; at++) hash = (hash ^ (uint8_t)*at) * UINT32_C(16777619);
    for (size_t i = 0; !record->name[0] && i < sizeof(record->address.bytes); i++)
        hash = (hash ^ record->address.bytes[i]) * UINT32_C(16777619);
    return hash;
}

static struct denial *find_row(struct denials *denials, const struct ipc_decision *record) {
    if (!denials->rows) denials->rows = NEW_ARRAY(struct denial, DENIALS_MAX);
    if (!denials->rows) return NULL;
    uint32_t hash = hash_of(record);
    for (size_t i = 0; i < denials->count; i++)
        if (denials->hashes[i] == hash && is_same(&denials->rows[i], record)) return &denials->rows[i];
    if (denials->count == DENIALS_MAX) {
        denials->lost = true;
        return NULL;
    }
    denials->hashes[denials->count] = hash;
    struct denial *row = &denials->rows[denials->count++];
    *row = (struct denial){.address = record->address, .protocol = record->protocol, .reason = record->reason};
    memcpy(row->name, record->name, sizeof(row->name));
    return row;
}

// Two entries that differ in their ports alone are one: the port goes into the brackets of the first. False if they are not,
// or there is no room.
static bool merge_ports(char known[POLICY_HINT_SIZE], const char *hint) {
    const char *list = strstr(hint, "ports: ["), *end = list ? strchr(list, ']') : NULL;
    char *known_end = strchr(known, ']'), merged[POLICY_HINT_SIZE];
    if (!end || !known_end || strcmp(end, known_end) != 0) return false;
    size_t head = (size_t)(list - hint) + strlen("ports: [");
    if (strncmp(known, hint, head) != 0) return false;
    int len = snprintf(merged, sizeof(merged), "%.*s, %s", (int)(known_end - known), known, hint + head);
    if (len < 0 || (size_t)len >= sizeof(merged)) return false;
    memcpy(known, merged, (size_t)len + 1);
    return true;
}

static void add_hint(struct denial *row, const char *hint) {
    if (!hint[0]) return;
    for (size_t i = 0; i < row->hint_count; i++)
        if (strcmp(row->hints[i], hint) == 0 || merge_ports(row->hints[i], hint)) return;
    if (row->hint_count == DENIALS_PORTS) return;
    snprintf(row->hints[row->hint_count++], POLICY_HINT_SIZE, "%s", hint);
}

void denials_add(struct denials *denials, const struct ipc_decision *record) {
    struct denial *row = find_row(denials, record);
    if (!row) return;
    row->count++;
    if (record->port && record->protocol != POLICY_DNS) { // a question's port is the server's
        for (size_t i = 0; i < row->port_count; i++)
            if (row->ports[i] == record->port) return;
        if (row->port_count == DENIALS_PORTS) {
            row->more_ports = true;
            return;
        }
        row->ports[row->port_count++] = record->port;
    }
    add_hint(row, record->hint);
}

// ---- the summary ----

// The value of an option, which ends at the first space: what is behind that is words (in parentheses).
static bool takes(const char *hint, const char *option, const char **ret_value, int *ret_len) {
    size_t len = strlen(option);
    if (strncmp(hint, option, len) != 0) return false;
    *ret_value = hint + len;
    *ret_len = (int)strcspn(hint + len, " ");
    return true;
}

// A hint as an entry of a native policy; what has no such form as it is.
static void print_entry(const char *hint, FILE *out) {
    const char *value;
    int len;
    if (takes(hint, "--allow-cidr ", &value, &len)) {
        fprintf(out, "- cidr: \"%.*s\"%s", len, value, value + len);
    } else if (takes(hint, "--allow ", &value, &len)) {
        const char *port = memchr(value, ':', (size_t)len);
        if (port) fprintf(out, "- {host: \"%.*s\", ports: [%.*s]}", (int)(port - value), value, (int)(value + len - port - 1), port + 1);
        else fprintf(out, "- host: \"%.*s\"", len, value);
        fputs(value + len, out);
    } else if (takes(hint, "--allow-private", &value, &len)) {
        fprintf(out, "private: true in its entry%s", value);
    } else if (takes(hint, "policy entry ", &value, &len)) {
        const char *option = strstr(value, ", or --"); // in a file the entry is enough
        fprintf(out, "- %.*s", option ? (int)(option - value) : (int)strlen(value), value);
    } else {
        fputs(hint, out);
    }
}

// Allowed by the policy, and did not come about.
static bool is_failure(const struct denial *row) {
    return row->reason == POLICY_DNS_FAILED || row->reason == POLICY_UPSTREAM_FAILED || row->reason == POLICY_BINDING_FAILED;
}

static bool print_hints(const struct denial *row, const char *policy_file, FILE *out) {
    bool options = false;
    bool words = is_failure(row) || row->reason == POLICY_LIMIT_EXCEEDED; // and no entry of a policy
    for (size_t i = 0; i < row->hint_count && words; i++) fprintf(out, "; %s", row->hints[i]);
    if (words) return false;
    for (size_t i = 0; i < row->hint_count; i++) {
        if (i == 0 && policy_file) fprintf(out, "; to allow, in \"%s\" under allow: ", policy_file);
        else fputs(i == 0 ? "; to allow: " : policy_file || row->hints[i][0] != '-' ? ", " : " ", out);
        if (policy_file) print_entry(row->hints[i], out);
        else fputs(row->hints[i], out);
        options |= row->hints[i][0] == '-';
    }
    return options;
}

// What no entry of a policy can change.
static const char *explanation(const struct denial *row) {
    bool literal = !row->name[0] && row->address.family != ADDR_NONE;
    // Without a hint, a public address that counts as private is one of the host.
    bool own = row->reason == POLICY_NODE_OWN_ADDRESS ||
               (row->reason == POLICY_PRIVATE_ADDRESS && literal && !addr_special_block(&row->address, NULL, 0));
    if (row->reason == POLICY_NODE_DENIED) return "; this node's configuration says so: ask the operator";
    return own ? "; this machine's own address" : "";
}

static bool print_row(const struct denial *row, const char *policy_file, FILE *out) {
    char address[ADDR_TEXT_SIZE];
    bool brackets = !row->name[0] && row->address.family == ADDR_IPV6 && row->port_count;
    fprintf(out, "penstock: %s %s %s%s%s", is_failure(row) ? "failed" : "denied", policy_protocol_name(row->protocol),
            brackets ? "[" : "", row->name[0] ? row->name : addr_format(&row->address, address), brackets ? "]" : "");
    for (size_t i = 0; i < row->port_count; i++) fprintf(out, "%c%u", i ? ',' : ':', row->ports[i]);
    fprintf(out, "%s (%s) %llu time%s", row->more_ports ? " and other ports" : "", policy_reason_name(row->reason),
            (unsigned long long)row->count, row->count == 1 ? "" : "s");
    if (!row->hint_count) fputs(explanation(row), out);
    bool options = print_hints(row, policy_file, out);
    fputc('\n', out);
    return options;
}

bool denials_print(const struct denials *denials, const char *policy_file, FILE *out) {
    bool options = false;
    for (size_t i = 0; i < denials->count && i < DENIALS_SHOWN; i++) options |= print_row(&denials->rows[i], policy_file, out);
    size_t hidden = denials->count > DENIALS_SHOWN ? denials->count - DENIALS_SHOWN : 0;
    if (hidden || denials->lost)
        fprintf(out, "penstock: denied %s%zu other destinations; all of them are in the log that --log FILE writes\n",
                denials->lost ? "more than " : "", hidden);
    return options;
}
