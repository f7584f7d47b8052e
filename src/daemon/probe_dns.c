// SPDX-License-Identifier: Apache-2.0
// Questions that must not leave. Held: an answer without records, or (for a message that is none) nothing at all; whether
// a query left is seen by the test's own DNS server.
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/probe.h"

#define ANSWER_MS 2500
#define ODD_MS 500
#define MESSAGE_MAX 600

struct question {
    uint8_t bytes[MESSAGE_MAX];
    size_t len;
    bool odd; // no answer is due
};

static void put(struct question *question, const void *bytes, size_t len) {
    if (question->len + len > MESSAGE_MAX) return;
    memcpy(question->bytes + question->len, bytes, len);
    question->len += len;
}

static void put_header(struct question *question, uint8_t flags, uint8_t questions) {
    const uint8_t header[12] = {0x5e, 0x1f, flags, 0, 0, questions};
    put(question, header, sizeof(header));
}

static void put_name(struct question *question, const char *name, uint8_t type) {
    const uint8_t tail[5] = {0, 0, type, 0, 1};
    while (*name) {
        uint8_t len = (uint8_t)strcspn(name, ".");
        put(question, &len, 1);
        put(question, name, len);
        name += len + (name[len] == '.');
    }
    put(question, tail, sizeof(tail));
}

static void make_loop(struct question *question) {
    static const uint8_t pointer_to_itself[6] = {0xc0, 12, 0, 1, 0, 1};
    put_header(question, 1, 1);
    put(question, pointer_to_itself, sizeof(pointer_to_itself));
    question->odd = true;
}

// More than 255 bytes of name (RFC 1035 2.3.4).
static void make_long(struct question *question, const char *name) {
    uint8_t label[64] = {63};
    memset(label + 1, 'x', 63);
    put_header(question, 1, 1);
    for (size_t i = 0; i < 5; i++) put(question, label, sizeof(label));
    put_name(question, name, 1);
    question->odd = true;
}

static void make(struct question *question, const char *kind, const char *name) {
    *question = (struct question){0};
    if (strcmp(kind, "loop") == 0) {
        make_loop(question);
    } else if (strcmp(kind, "long") == 0) {
        make_long(question, name);
    } else if (strcmp(kind, "two") == 0) {
        put_header(question, 1, 2);
        put_name(question, name, 1);
        put_name(question, name, 1);
        question->odd = true;
    } else {
        bool response = strcmp(kind, "response") == 0, update = strcmp(kind, "update") == 0;
        uint8_t type = strcmp(kind, "any") == 0 ? 255 : strcmp(kind, "axfr") == 0 ? 252 : strcmp(kind, "txt") == 0 ? 16 : 1;
        put_header(question, response ? 0x81 : update ? 0x29 : 1, 1);
        put_name(question, name, type);
        question->odd = response || update;
    }
}

// "ADDRESS PORT KIND NAME"
static socklen_t take(const char *argument, struct sockaddr_storage *to, struct question *question) {
    const char *rest;
    char kind[16];
    socklen_t len = probe_sockaddr(argument, to, &rest);
    size_t word = strcspn(rest = len > 0 ? rest : "", " ");
    if (word == 0 || word >= sizeof(kind) || rest[word] != ' ') return 0;
    memcpy(kind, rest, word);
    kind[word] = '\0';
    make(question, kind, rest + word + 1);
    return len;
}

static enum probe_result judge(struct probe *probe, const uint8_t *answer, ssize_t len) {
    unsigned records = len >= 12 ? (unsigned)(answer[6] << 8 | answer[7]) : 0;
    return records > 0 ? probe_say(probe, PROBE_ESCAPED, "%u records came back", records) : PROBE_HELD;
}

static ssize_t receive(int fd, void *bytes, size_t size, int timeout_ms) {
    struct pollfd item = {.fd = fd, .events = POLLIN};
    if (poll(&item, 1, timeout_ms) <= 0) {
        errno = ETIMEDOUT;
        return -1;
    }
    return recv(fd, bytes, size, 0);
}

static enum probe_result no_answer(struct probe *probe, const struct question *question) {
    if (question->odd || errno != ETIMEDOUT || probe_target(probe, "intruded")[0]) return PROBE_HELD;
    return probe_say(probe, PROBE_HUNG, "no answer within %d ms", ANSWER_MS);
}

enum probe_result question_udp(struct probe *probe, const char *argument) {
    struct sockaddr_storage to;
    struct question question;
    uint8_t answer[1500];
    socklen_t len = take(argument, &to, &question);
    AUTO_CLOSE int fd = len > 0 ? socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0) return probe_say(probe, PROBE_BROKEN, "not a question: \"%.100s\"", argument);
    uint64_t start = clock_us();
    if (connect(fd, (struct sockaddr *)&to, len) < 0 || send(fd, question.bytes, question.len, MSG_NOSIGNAL) < 0)
        return PROBE_HELD;
    ssize_t got = receive(fd, answer, sizeof(answer), question.odd ? ODD_MS : ANSWER_MS);
    if (got < 0) return no_answer(probe, &question);
    probe_took(probe, start);
    return judge(probe, answer, got);
}

enum probe_result question_tcp(struct probe *probe, const char *argument) {
    struct sockaddr_storage to;
    struct question question;
    uint8_t answer[1500], length[2];
    socklen_t len = take(argument, &to, &question);
    AUTO_CLOSE int fd = len > 0 ? socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0) return probe_say(probe, PROBE_BROKEN, "not a question: \"%.100s\"", argument);
    uint64_t start = clock_us();
    const struct timeval patience = {.tv_sec = ANSWER_MS / 1000, .tv_usec = ANSWER_MS % 1000 * 1000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (connect(fd, (struct sockaddr *)&to, len) < 0) {
        if (errno == EINPROGRESS) errno = ETIMEDOUT;
        return no_answer(probe, &question);
    }
    length[0] = (uint8_t)(question.len >> 8);
    length[1] = (uint8_t)question.len;
    if (send(fd, length, 2, MSG_NOSIGNAL) < 0 || send(fd, question.bytes, question.len, MSG_NOSIGNAL) < 0) return PROBE_HELD;
    int timeout_ms = question.odd ? ODD_MS : ANSWER_MS;
    ssize_t got = receive(fd, length, 2, timeout_ms);
    if (got < 0) return no_answer(probe, &question);
    if (got == 2) got = receive(fd, answer, sizeof(answer), timeout_ms);
    probe_took(probe, start);
    return judge(probe, answer, got);
}

// The last four bytes of an answer with one A record and nothing behind it: enough for the test's own server and the gate.
int question_address(const char *argument, char *ret_text, size_t size) {
    struct sockaddr_storage to;
    struct question question = {0};
    const char *name;
    uint8_t answer[1500];
    socklen_t len = probe_sockaddr(argument, &to, &name);
    AUTO_CLOSE int fd = len > 0 ? socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0) return -1;
    put_header(&question, 1, 1);
    put_name(&question, name, 1);
    if (connect(fd, (struct sockaddr *)&to, len) < 0 || send(fd, question.bytes, question.len, MSG_NOSIGNAL) < 0) return -1;
    ssize_t got = receive(fd, answer, sizeof(answer), ANSWER_MS);
    size_t at = question.len + 12; // a record of a pointer, type, class, TTL, length, in front of the address
    if (got < (ssize_t)at + 4 || (answer[6] << 8 | answer[7]) == 0) return -1;
    snprintf(ret_text, size, "%u.%u.%u.%u", answer[at], answer[at + 1], answer[at + 2], answer[at + 3]);
    return 0;
}
