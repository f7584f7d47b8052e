// SPDX-License-Identifier: Apache-2.0
#include "daemon/decision_log.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/learn.h"

#define DECISION_LOG_SHOWN 20
#define DECISION_LOG_DENIALS 256 // different destinations kept for the summary; a sandbox can make up any number

struct denial {
    char name[NAME_SIZE];
    struct addr address;
    uint16_t port;
    uint8_t protocol, reason;
    uint64_t count;
    char hint[POLICY_HINT_SIZE];
};

struct decision_log {
    int fd;
    int failure;
    char sandbox[64];
    const struct learn *learn; // or NULL
    struct denial *denials;
    size_t denial_count;
    uint64_t more; // denials of destinations that found no place
};

struct decision_log *decision_log_new(int fd, const char *sandbox) {
    struct decision_log *log = NEW(struct decision_log);
    if (!log) return NULL;
    log->fd = fd;
    snprintf(log->sandbox, sizeof(log->sandbox), "%s", sandbox);
    return log;
}

void decision_log_free(struct decision_log *log) {
    if (!log) return;
    free(log->denials);
    free(log);
}

void decision_log_learn(struct decision_log *log, const struct learn *learn) { log->learn = learn; }


static void decision_log_write(struct decision_log *log, const char *text, size_t len) {
    while (len > 0 && !log->failure) {
        ssize_t written = write(log->fd, text, len);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            log->failure = -errno;
            return;
        }
        text += written;
        len -= (size_t)written;
    }
}

static void decision_log_would_deny(const struct decision_log *log, const struct ipc_decision *record, json_t *json) {
    struct policy_decision decision;
    char hint[POLICY_HINT_SIZE];
    if (!json || !log->learn || !learn_would_deny(log->learn, record, &decision, hint)) return;
    json_object_set_new(json, "would_deny", json_string(policy_reason_name(decision.reason)));
    if (hint[0]) json_object_set_new(json, "hint", json_string(hint));
}

static void decision_log_line(struct decision_log *log, const struct ipc_decision *record, const struct policy *policy) {
    char time[CLOCK_TEXT_SIZE], address[ADDR_TEXT_SIZE] = "";
    bool flow = record->event == IPC_EVENT_FLOW;
    const char *rule = NULL;
    if (policy && record->rule != POLICY_RULE_NONE) rule = policy_rule_info(policy, record->rule).text;
    if (record->address.family != ADDR_NONE) addr_format(&record->address, address);
    json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:s?, s:s?, s:i, s:s, s:s, s:s?, s:o, s:o, s:o}",
                             "time", clock_text(time), "sandbox", log->sandbox,
                             "event", flow ? "flow" : "decision",
                             "protocol", policy_protocol_name(record->protocol),
                             "name", record->name[0] ? record->name : NULL,
                             "address", address[0] ? address : NULL, "port", (int)record->port,
                             "verdict", policy_verdict_name(record->verdict),
                             "reason", policy_reason_name(record->reason), "rule", rule,
                             "bytes_out", flow ? json_integer((json_int_t)record->bytes_out) : json_null(),
                             "bytes_in", flow ? json_integer((json_int_t)record->bytes_in) : json_null(),
                             "duration_ms", flow ? json_real((double)record->duration_us / 1000) : json_null());
    // What would allow it is the reader's next question.
    if (json && record->hint[0]) json_object_set_new(json, "hint", json_string(record->hint));
    decision_log_would_deny(log, record, json);
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(json);
    if (!text) {
        log->failure = -ENOMEM;
        return;
    }
    size_t len = strlen(text);
    text[len] = '\n'; // the place of the NUL: one write for the whole line
    decision_log_write(log, text, len + 1);
    free(text);
}

// Some clients (apt, Chromium) ask for services of a host, "_https._tcp.NAME", before they ask for the host itself, and take
// no for an answer. Where the host is allowed, nobody needs to hear of that; it is in the log.
static bool decision_log_is_service(const struct ipc_decision *record, const struct policy *policy) {
    struct policy_request request = {.protocol = POLICY_DNS, .dialled = record->name};
    if (!policy || record->protocol != POLICY_DNS || record->name[0] != '_') return false;
    while (request.dialled && request.dialled[0] == '_') {
        request.dialled = strchr(request.dialled, '.');
        if (request.dialled) request.dialled++;
    }
    return request.dialled && policy_decide(policy, &request).verdict == POLICY_ALLOW;
}

static void decision_log_denied(struct decision_log *log, const struct ipc_decision *record) {
    if (!log->denials) log->denials = NEW_ARRAY(struct denial, DECISION_LOG_DENIALS);
    if (!log->denials) return;
    for (size_t i = 0; i < log->denial_count; i++) {
        struct denial *denial = &log->denials[i];
        bool same_place = record->name[0] ? strcmp(denial->name, record->name) == 0
                                          : !denial->name[0] && addr_equal(&denial->address, &record->address);
        if (same_place && denial->port == record->port && denial->protocol == record->protocol &&
            denial->reason == record->reason) {
            denial->count++;
            return;
        }
    }
    if (log->denial_count == DECISION_LOG_DENIALS) {
        log->more++;
        return;
    }
    struct denial *denial = &log->denials[log->denial_count++];
    *denial = (struct denial){.address = record->address, .port = record->port, .protocol = record->protocol,
                              .reason = record->reason, .count = 1};
    memcpy(denial->name, record->name, sizeof(denial->name));
    memcpy(denial->hint, record->hint, sizeof(denial->hint) - 1);
}

int decision_log_record(struct decision_log *log, const struct ipc_decision *record, const struct policy *policy) {
    if (log->fd >= 0 && !log->failure) decision_log_line(log, record, policy);
    if (record->event == IPC_EVENT_DECISION && record->verdict == POLICY_DENY && !decision_log_is_service(record, policy))
        decision_log_denied(log, record);
    return log->failure;
}

bool decision_log_summary(const struct decision_log *log) {
    bool hinted = false;
    for (size_t i = 0; i < log->denial_count && i < DECISION_LOG_SHOWN; i++) {
        const struct denial *denial = &log->denials[i];
        char address[ADDR_TEXT_SIZE], port[16] = "";
        const char *where = denial->name[0] ? denial->name : addr_format(&denial->address, address);
        bool brackets = !denial->name[0] && denial->address.family == ADDR_IPV6 && denial->port;
        if (denial->port && denial->protocol != POLICY_DNS) snprintf(port, sizeof(port), ":%u", denial->port);
        fprintf(stderr, "penstock: denied %s %s%s%s%s (%s) %llu time%s%s%s\n", policy_protocol_name(denial->protocol),
                brackets ? "[" : "", where, brackets ? "]" : "", port, policy_reason_name(denial->reason),
                (unsigned long long)denial->count, denial->count == 1 ? "" : "s", denial->hint[0] ? "; to allow: " : "",
                denial->hint);
        hinted |= denial->hint[0] == '-';
    }
    size_t hidden = log->denial_count > DECISION_LOG_SHOWN ? log->denial_count - DECISION_LOG_SHOWN : 0;
    if (hidden || log->more)
        fprintf(stderr, "penstock: denied %s%zu other destinations; all of them are in the log that --log FILE writes\n",
                log->more ? "more than " : "", hidden);
    return hinted;
}
