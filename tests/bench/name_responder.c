// SPDX-License-Identifier: Apache-2.0
// The DNS server of the benchmarks: name_responder LISTEN ADDRESS. Answers every question for an A record with ADDRESS, and
// every other one with nothing; as little work as can be, so that what is measured is in front of it.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "wire/dns_message.h"

#define BATCH 32
#define HEADER 12
#define TTL 3600
#define ROOM 1232

static struct in_addr answer;

// Length of the answer that is written in place, 0: no question.
static size_t respond(uint8_t *message, size_t len) {
    size_t at = HEADER;
    if (len < HEADER || message[2] & 0x80) return 0;
    while (at < len && message[at] != 0) at += message[at] + 1U;
    if (at + 5 > len || at + 5 + 16 > ROOM) return 0;
    bool address = message[at + 1] == 0 && message[at + 2] == DNS_A;
    at += 5;
    memcpy(message + 2, "\x85\x80\0\1\0\0\0\0\0\0", 10); // an answer, authoritative, recursion; one question
    if (!address) return at;
    message[7] = 1;
    memcpy(message + at, "\xc0\x0c\0\1\0\1\0\0", 8);
    message[at + 8] = TTL >> 8;
    message[at + 9] = TTL & 255;
    memcpy(message + at + 10, "\0\4", 2);
    memcpy(message + at + 12, &answer, 4);
    return at + 16;
}

static void serve(int fd) {
    static uint8_t bytes[BATCH][ROOM];
    struct sockaddr_in peers[BATCH];
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH];
    for (size_t i = 0; i < BATCH; i++) {
        parts[i] = (struct iovec){bytes[i], ROOM};
        messages[i].msg_hdr = (struct msghdr){
            .msg_name = &peers[i], .msg_namelen = sizeof(peers[i]), .msg_iov = &parts[i], .msg_iovlen = 1};
    }
    int count = recvmmsg(fd, messages, BATCH, MSG_WAITFORONE, NULL);
    unsigned kept = 0;
    for (int i = 0; i < count; i++) {
        size_t len = respond(parts[i].iov_base, messages[i].msg_len);
        if (len == 0) continue;
        parts[i].iov_len = len;
        messages[kept++] = messages[i];
    }
    for (unsigned sent = 0; sent < kept;) {
        int more = sendmmsg(fd, messages + sent, kept - sent, 0);
        if (more <= 0) break;
        sent += (unsigned)more;
    }
}

int main(int argc, char **argv) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(53)};
    int size = 4 << 20, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (argc != 3 || inet_pton(AF_INET, argv[1], &here.sin_addr) != 1 || inet_pton(AF_INET, argv[2], &answer) != 1) {
        fputs("usage: name_responder LISTEN ADDRESS\n", stderr);
        return 2;
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
    if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof(here)) < 0) {
        fprintf(stderr, "name_responder: %s: %s\n", argv[1], strerror(errno));
        return 1;
    }
    for (;;) serve(fd);
}
