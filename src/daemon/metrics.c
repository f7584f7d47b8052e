// SPDX-License-Identifier: Apache-2.0
// Prometheus' text exposition format, version 0.0.4: a family is two lines of comment and then all of its samples.
#include "daemon/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "policy/policy.h"

// All fields of the counters are numbers; what a gate has now are the last ones.
#define METRICS_ALL (sizeof(struct ipc_counters) / sizeof(uint64_t))
#define METRICS_COUNTED (offsetof(struct ipc_counters, flows_open) / sizeof(uint64_t))

static void metrics_sum(struct ipc_counters *sum, const struct ipc_counters *one, size_t count) {
    uint64_t to[METRICS_ALL], from[METRICS_ALL];
    static_assert(sizeof(to) == sizeof(*sum), "nothing but numbers of 64 bits");
    memcpy(to, sum, sizeof(to));
    memcpy(from, one, sizeof(from));
    for (size_t i = 0; i < count; i++) to[i] += from[i];
    memcpy(sum, to, sizeof(to));
}

void metrics_add(struct ipc_counters *sum, const struct ipc_counters *one) { metrics_sum(sum, one, METRICS_ALL); }

void metrics_retire(struct ipc_counters *sum, const struct ipc_counters *last) { metrics_sum(sum, last, METRICS_COUNTED); }

// ---- text ----

struct metrics_text {
    struct buf *out;
    const char *name, *label, *value; // of the family, of the row
};

// name{label="value",more} number
static void metrics_sample(const struct metrics_text *text, const char *suffix, const char *more, const char *number) {
    buf_printf(text->out, "%s%s{%s=\"", text->name, suffix, text->label);
    for (const char *at = text->value; *at; at++) {
        if (*at == '\n') buf_append(text->out, "\\n", 2);
        else if (*at == '"' || *at == '\\') buf_printf(text->out, "\\%c", *at);
        else buf_append(text->out, at, 1);
    }
    buf_printf(text->out, "\"%s%s} %s\n", more[0] ? "," : "", more, number);
}

static void metrics_number(const struct metrics_text *text, const char *suffix, const char *more, uint64_t number) {
    char digits[32];
    snprintf(digits, sizeof(digits), "%" PRIu64, number);
    metrics_sample(text, suffix, more, digits);
}

static void metrics_decisions(const struct metrics_text *text, const struct ipc_counters *counters) {
    char more[128];
    for (int protocol = 0; protocol < IPC_PROTOCOLS; protocol++) {
        for (int verdict = 0; verdict < IPC_VERDICTS; verdict++) {
            for (int reason = 0; reason < IPC_REASONS; reason++) {
                uint64_t number = counters->decisions[protocol][verdict][reason];
                if (number == 0) continue;
                snprintf(more, sizeof(more), "protocol=\"%s\",verdict=\"%s\",reason=\"%s\"", policy_protocol_name((enum policy_protocol)protocol),
                         policy_verdict_name((enum policy_verdict)verdict), policy_reason_name((enum policy_reason)reason));
                metrics_number(text, "", more, number);
            }
        }
    }
}

// The same decisions as an operator of DNS sees them.
static void metrics_questions(const struct metrics_text *text, const struct ipc_counters *counters) {
    uint64_t answered = 0, denied = 0, failed = 0;
    for (int reason = 0; reason < IPC_REASONS; reason++) {
        bool failure = reason == POLICY_DNS_FAILED || reason == POLICY_UPSTREAM_FAILED || reason == POLICY_LIMIT_EXCEEDED;
        for (int verdict = 0; verdict < IPC_VERDICTS; verdict++)
            *(failure ? &failed : verdict == POLICY_DENY ? &denied : &answered) += counters->decisions[POLICY_DNS][verdict][reason];
    }
    metrics_number(text, "", "result=\"answered\"", answered);
    metrics_number(text, "", "result=\"denied\"", denied);
    metrics_number(text, "", "result=\"failed\"", failed);
}

static void metrics_limited(const struct metrics_text *text, const struct ipc_counters *counters) {
    char more[64];
    for (int limit = 0; limit < IPC_LIMITS; limit++) {
        snprintf(more, sizeof(more), "limit=\"%s\"", policy_limit_name((enum policy_limit)limit));
        metrics_number(text, "", more, counters->limited[limit]);
    }
}

static void metrics_ways(const struct metrics_text *text, const uint64_t ways[2]) {
    metrics_number(text, "", "direction=\"out\"", ways[0]);
    metrics_number(text, "", "direction=\"in\"", ways[1]);
}

static void metrics_bytes(const struct metrics_text *text, const struct ipc_counters *counters) {
    metrics_ways(text, counters->bytes);
}

static void metrics_lost(const struct metrics_text *text, const struct ipc_counters *counters) {
    metrics_ways(text, counters->lost);
}

static void metrics_waits(const struct metrics_text *text, const struct ipc_counters *counters) {
    metrics_ways(text, counters->waits);
}

static void metrics_flows(const struct metrics_text *text, const struct ipc_counters *counters) {
    metrics_number(text, "", "kind=\"tcp\"", counters->flows);
    metrics_number(text, "", "kind=\"datagram\"", counters->exchanges);
}

static void metrics_open(const struct metrics_text *text, const struct ipc_counters *counters) {
    metrics_number(text, "", "kind=\"tcp\"", counters->flows_open);
    metrics_number(text, "", "kind=\"datagram\"", counters->exchanges_open);
}

static void metrics_updates(const struct metrics_text *text, const struct ipc_counters *counters) {
    static const char *const bounds[IPC_UPDATE_STEPS] = {"0.0001", "0.001", "0.01", "0.1", "1", "+Inf"};
    char more[32], seconds[48];
    uint64_t sum = 0;
    for (size_t i = 0; i < IPC_UPDATE_STEPS; i++) {
        sum += counters->updates[i];
        snprintf(more, sizeof(more), "le=\"%s\"", bounds[i]);
        metrics_number(text, "_bucket", more, sum);
    }
    snprintf(seconds, sizeof(seconds), "%" PRIu64 ".%06u", counters->update_us / 1000000, (unsigned)(counters->update_us % 1000000));
    metrics_sample(text, "_sum", "", seconds);
    metrics_number(text, "_count", "", sum);
}

static const struct metrics_family {
    const char *name, *type, *help;
    void (*write)(const struct metrics_text *text, const struct ipc_counters *counters); // NULL: one number,
    size_t offset;                                                                       // which is here
} metrics_families[] = {
    {"penstock_decisions_total", "counter", "Decisions that were logged.", metrics_decisions, 0},
    {"penstock_dns_questions_total", "counter", "Questions of sandboxes to port 53.", metrics_questions, 0},
    {"penstock_limited_total", "counter", "Denials for a limit of a sandbox.", metrics_limited, 0},
    {"penstock_flows_total", "counter", "Connections and exchanges that were begun.", metrics_flows, 0},
    {"penstock_flows_open", "gauge", "Connections and exchanges that are open.", metrics_open, 0},
    {"penstock_bytes_total", "counter", "Bytes from and to sandboxes.", metrics_bytes, 0},
    {"penstock_datagrams_lost_total", "counter", "Datagrams beyond a limit of bandwidth.", metrics_lost, 0},
    {"penstock_bandwidth_waits_total", "counter", "Times that a connection waited for its turn.", metrics_waits, 0},
    {"penstock_policy_update_seconds", "histogram", "Time from a new policy to its being in force.", metrics_updates, 0},
    {"penstock_policy_updates_refused_total", "counter", "Policies that gates could not take.", NULL,
     offsetof(struct ipc_counters, updates_refused)},
    {"penstock_policy_closed_flows_total", "counter", "Connections and exchanges that an update closed.", NULL,
     offsetof(struct ipc_counters, closed)},
    {"penstock_starved_total", "counter", "Times that descriptors or memory were short.", NULL, offsetof(struct ipc_counters, starved)},
    {"penstock_names", "gauge", "Names that have a synthetic address.", NULL, offsetof(struct ipc_counters, names)},
    {"penstock_log_waiting", "gauge", "Records that wait to be logged.", NULL, offsetof(struct ipc_counters, log_waiting)},
};

void metrics_text(struct buf *out, const char *label, const struct metrics_row *rows, size_t count) {
    for (size_t i = 0; i < ARRAY_LENGTH(metrics_families); i++) {
        const struct metrics_family *family = &metrics_families[i];
        buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", family->name, family->help, family->name, family->type);
        for (size_t row = 0; row < count; row++) {
            const struct metrics_text text = {out, family->name, label, rows[row].value};
            const struct ipc_counters *counters = &rows[row].counters;
            uint64_t number;
            memcpy(&number, (const char *)counters + family->offset, sizeof(number));
            if (family->write) family->write(&text, counters);
            else metrics_number(&text, "", "", number);
        }
    }
}
