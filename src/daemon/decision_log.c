// SPDX-License-Identifier: Apache-2.0
#include "daemon/decision_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "daemon/denials.h"
#include "daemon/learn.h"

#define DECISION_LOG_BATCH 65536 // bytes of lines that are written at once

struct decision_log {
    int fd;
    int failure;
    const char *path; // NULL: it grows
    uint64_t size, size_max;
    char sandbox[64];
    const struct learn *learn; // or NULL
    struct denials *denials;
    struct buf lines; // not written yet
};

struct decision_log *decision_log_new(int fd, const char *sandbox) {
    struct decision_log *log = NEW(struct decision_log);
    if (!log) return NULL;
    log->denials = denials_new();
    if (!log->denials) {
        free(log);
        return NULL;
    }
    log->fd = fd;
    snprintf(log->sandbox, sizeof(log->sandbox), "%s", sandbox);
    return log;
}

void decision_log_free(struct decision_log *log) {
    if (!log) return;
    decision_log_flush(log);
    buf_done(&log->lines);
    denials_free(log->denials);
    free(log);
}

void decision_log_learn(struct decision_log *log, const struct learn *learn) { log->learn = learn; }

// Fields of a line, written as they come: main does this twice for each connection, so not by way of a tree of values.
#define decision_log_put(line, literal) buf_append(line, literal, sizeof(literal) - 1)

static void decision_log_text(struct buf *line, const char *text) {
    if (!text) {
        decision_log_put(line, "null");
        return;
    }
    decision_log_put(line, "\"");
    for (; *text; text++) {
        size_t plain = 0;
        while (text[plain] >= ' ' && text[plain] < 0x7f && text[plain] != '"' && text[plain] != '\\') plain++;
        buf_append(line, text, plain);
        text += plain;
        if (*text == '\0') break;
        buf_printf(line, "\\u%04x", (unsigned)(unsigned char)*text);
    }
    decision_log_put(line, "\"");
}

#define decision_log_string(line, key, text) (decision_log_put(line, ",\"" key "\":"), decision_log_text(line, text))

static void decision_log_number(struct buf *line, uint64_t number) {
    char digits[20], *first = digits + sizeof(digits);
    do *--first = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    buf_append(line, first, (size_t)(digits + sizeof(digits) - first));
}

static void decision_log_would_deny(const struct decision_log *log, const struct ipc_decision *record, struct buf *line) {
    struct policy_decision decision;
    char hint[POLICY_HINT_SIZE];
    if (!log->learn || !learn_would_deny(log->learn, record, &decision, hint)) return;
    decision_log_string(line, "would_deny", policy_reason_name(decision.reason));
    if (hint[0]) decision_log_string(line, "hint", hint);
}

// The bindings whose values were added to a request; nothing where none was.
static void decision_log_credentials(const struct ipc_decision *record, const struct policy *policy, struct buf *line) {
    struct policy_credential bound[POLICY_CREDENTIALS_MAX];
    struct policy_credential_request request = {.host = record->name};
    size_t count = policy && record->credentials ? policy_credentials(policy, &request, bound) : 0;
    CLEANUP(buf_done) struct buf names = BUF_INIT;
    for (size_t i = 0; i < count; i++) {
        if (!(record->credentials & 1U << i)) continue;
        if (names.len) decision_log_put(&names, ", ");
        buf_append(&names, bound[i].name, strlen(bound[i].name));
    }
    if (names.len) decision_log_string(line, "credential", names.data);
    line->failed |= names.failed;
}

static void decision_log_line(struct decision_log *log, const struct ipc_decision *record, const struct policy *policy) {
    char time[CLOCK_TEXT_SIZE], address[ADDR_TEXT_SIZE] = "";
    struct buf *line = &log->lines;
    bool flow = record->event == IPC_EVENT_FLOW;
    const char *rule = NULL;
    if (policy && record->rule != POLICY_RULE_NONE) rule = policy_rule_info(policy, record->rule).text;
    if (record->address.family != ADDR_NONE) addr_format(&record->address, address);
    decision_log_put(line, "{\"time\":\"");
    buf_append(line, time, strlen(clock_text(time)));
    decision_log_put(line, "\"");
    decision_log_string(line, "sandbox", log->sandbox);
    decision_log_string(line, "event", flow ? "flow" : "decision");
    decision_log_string(line, "protocol", policy_protocol_name(record->protocol));
    decision_log_string(line, "name", record->name[0] ? record->name : NULL);
    decision_log_string(line, "address", address[0] ? address : NULL);
    decision_log_put(line, ",\"port\":");
    decision_log_number(line, record->port);
    decision_log_string(line, "verdict", policy_verdict_name(record->verdict));
    decision_log_string(line, "reason", policy_reason_name(record->reason));
    decision_log_string(line, "rule", rule);
    if (flow) {
        uint64_t rest = record->duration_us % 1000;
        decision_log_put(line, ",\"bytes_out\":");
        decision_log_number(line, record->bytes_out);
        decision_log_put(line, ",\"bytes_in\":");
        decision_log_number(line, record->bytes_in);
        decision_log_put(line, ",\"duration_ms\":");
        decision_log_number(line, record->duration_us / 1000);
        const char digits[] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10), (char)('0' + rest % 10)};
        buf_append(line, digits, sizeof(digits));
    } else {
        decision_log_put(line, ",\"bytes_out\":null,\"bytes_in\":null,\"duration_ms\":null");
    }
    decision_log_credentials(record, policy, line);
    // What would allow it is the reader's next question.
    if (record->hint[0]) decision_log_string(line, "hint", record->hint);
    decision_log_would_deny(log, record, line);
    decision_log_put(line, "}\n");
    if (line->failed) log->failure = -ENOMEM;
}

// The file of that descriptor gets another name, and the descriptor is another file's: whose descriptor it is need not know.
static int decision_log_rotate(struct decision_log *log) {
    AUTO_FREE char *old = NULL;
    if (asprintf(&old, "%s.1", log->path) < 0) return -ENOMEM;
    if (rename(log->path, old) < 0 && errno != ENOENT) return -errno;
    AUTO_CLOSE int fd = open(log->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || dup3(fd, log->fd, O_CLOEXEC) < 0) return -errno;
    log->size = 0;
    return 0;
}

int decision_log_flush(struct decision_log *log) {
    if (log->path && log->lines.len > 0 && log->size > log->size_max && !log->failure) log->failure = decision_log_rotate(log);
    while (log->lines.len > 0 && !log->failure) {
        ssize_t written = write(log->fd, log->lines.data, log->lines.len);
        if (written >= 0) buf_consume(&log->lines, (size_t)written);
        else if (errno != EINTR) log->failure = -errno;
        if (written >= 0) log->size += (uint64_t)written;
    }
    return log->failure;
}

int decision_log_bound(struct decision_log *log, const char *path, uint64_t size_max) {
    struct stat status;
    if (fstat(log->fd, &status) < 0) return -errno;
    log->size = (uint64_t)status.st_size;
    log->path = path;
    log->size_max = size_max;
    return 0;
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

int decision_log_record(struct decision_log *log, const struct ipc_decision *record, const struct policy *policy) {
    if (log->fd >= 0 && !log->failure) decision_log_line(log, record, policy);
    if (log->lines.len >= DECISION_LOG_BATCH) decision_log_flush(log);
    // What is allowed and failed is told where we know more of it than the client.
    bool told = record->verdict == POLICY_DENY || (record->reason == POLICY_UPSTREAM_FAILED && record->hint[0]);
    if (record->event == IPC_EVENT_DECISION && told && !decision_log_is_service(record, policy))
        denials_add(log->denials, record);
    return log->failure;
}

bool decision_log_summary(const struct decision_log *log, const char *policy_file) {
    return denials_print(log->denials, policy_file, stderr);
}
