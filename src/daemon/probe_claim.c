// SPDX-License-Identifier: Apache-2.0
// Claims to be talking to an allowed host while dialling another: in the server name of TLS, in Host, by CONNECT.
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "daemon/probe.h"

#define HELLO_MAX 512

struct hello {
    uint8_t bytes[HELLO_MAX];
    size_t len;
};

static void put(struct hello *hello, const void *bytes, size_t len) {
    if (hello->len + len > HELLO_MAX) return;
    memcpy(hello->bytes + hello->len, bytes, len);
    hello->len += len;
}

static void put_u16(struct hello *hello, size_t value) {
    const uint8_t bytes[2] = {(uint8_t)(value >> 8), (uint8_t)value};
    put(hello, bytes, 2);
}

static void put_server_name(struct hello *hello, const char *name) { // RFC 6066 3
    size_t len = strlen(name);
    put_u16(hello, 0);
    put_u16(hello, len + 5);
    put_u16(hello, len + 3);
    put(hello, "\0", 1);
    put_u16(hello, len);
    put(hello, name, len);
}

// A ClientHello of TLS 1.2 (RFC 5246 7.4.1.2) in one record; name NULL: without the extension.
static void make_hello(struct hello *hello, const char *name) {
    static const uint8_t suites[] = {0, 4, 0xc0, 0x2f, 0xc0, 0x30, 1, 0};
    static const uint8_t groups[] = {0, 10, 0, 4, 0, 2, 0, 23};
    uint8_t random[32];
    size_t extensions = sizeof(groups) + (name ? strlen(name) + 9 : 0);
    size_t body = 2 + 32 + 1 + sizeof(suites) + 2 + extensions;
    random_bytes(random, sizeof(random));
    *hello = (struct hello){0};
    put(hello, "\x16\x03\x01", 3);
    put_u16(hello, body + 4);
    put(hello, "\x01\x00", 2);
    put_u16(hello, body);
    put(hello, "\x03\x03", 2);
    put(hello, random, sizeof(random));
    put(hello, "\0", 1);
    put(hello, suites, sizeof(suites));
    put_u16(hello, extensions);
    if (name) put_server_name(hello, name);
    put(hello, groups, sizeof(groups));
}

// A handshake record in answer means that a server took it.
static enum probe_result say_hello(struct probe *probe, const char *argument, const char *name) {
    struct hello hello;
    make_hello(&hello, name);
    return network_talk(probe, argument, hello.bytes, hello.len, "\x16");
}

enum probe_result claim_tls(struct probe *probe, const char *argument) {
    struct sockaddr_storage to;
    const char *name;
    if (probe_sockaddr(argument, &to, &name) == 0) return probe_say(probe, PROBE_BROKEN, "not a target: \"%.100s\"", argument);
    return say_hello(probe, argument, strcmp(name, "-") == 0 ? NULL : name);
}

enum probe_result claim_http(struct probe *probe, const char *argument) {
    struct sockaddr_storage to;
    const char *request;
    if (probe_sockaddr(argument, &to, &request) == 0) return probe_say(probe, PROBE_BROKEN, "not a target: \"%.100s\"", argument);
    return network_talk(probe, argument, request, strlen(request), "HTTP/1.1 200");
}

// The allowed name itself, which the test's DNS server gives an address of this host.
enum probe_result claim_rebound(struct probe *probe, const char *argument) {
    char address[64], target[PROBE_TEXT_SIZE];
    const char *name = strrchr(argument, ' ');
    if (!name || question_address(argument, address, sizeof(address)) < 0) return PROBE_HELD; // no address at all
    snprintf(target, sizeof(target), "%s %s", address, probe_target(probe, "port"));
    return say_hello(probe, target, name + 1);
}
