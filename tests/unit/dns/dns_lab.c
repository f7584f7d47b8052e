// SPDX-License-Identifier: Apache-2.0
#include "dns_lab.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/net.h"
#include "policy/model.h"

size_t lab_question(uint8_t *bytes, const char *name, uint16_t type, bool edns) {
    const uint8_t header[12] = {0x12, 0x34, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, edns};
    memcpy(bytes, header, sizeof(header));
    size_t len = sizeof(header);
    while (*name) {
        size_t label = strcspn(name, ".");
        bytes[len++] = (uint8_t)label;
        memcpy(bytes + len, name, label);
        len += label;
        name += label + (name[label] == '.');
    }
    const uint8_t tail[5] = {0, (uint8_t)(type >> 8), (uint8_t)type, 0, 1};
    memcpy(bytes + len, tail, sizeof(tail));
    len += sizeof(tail);
    const uint8_t opt[11] = {0, 0, DNS_OPT, 0x04, 0xd0, 0, 0, 0, 0, 0, 0};
    if (edns) memcpy(bytes + len, opt, sizeof(opt));
    return len + (edns ? sizeof(opt) : 0);
}

struct policy *lab_policy(const char *yaml) {
    struct policy_model *model = NULL;
    struct policy *policy = NULL;
    struct error err = {0};
    struct policy_warnings warnings = {0};
    if (policy_read(yaml, strlen(yaml), "lab.yaml", POLICY_DIALECT_NATIVE, &model, &err) < 0 ||
        policy_compile(model, NULL, NULL, 0, 1, &policy, &warnings, &err) < 0)
        fail_msg("%s", err.text);
    policy_warnings_done(&warnings);
    policy_model_free(model);
    return policy;
}

struct addr lab_addr(const char *text) {
    struct addr addr;
    assert_int_equal(addr_parse(text, strlen(text), &addr), 0);
    return addr;
}

struct addr_prefix lab_prefix(const char *text) {
    struct addr_prefix prefix;
    bool host_bits;
    assert_int_equal(addr_prefix_parse(text, strlen(text), &prefix, &host_bits), 0);
    return prefix;
}

// ---- zone ----

static void zone_address(struct dns_writer *writer, const char *owner, const char *text) {
    struct addr addr;
    if (addr_parse(text, strlen(text), &addr) == 0) dns_answer_address(writer, owner, &addr, 300);
}

static void zone_addresses(const struct dns_question *question, struct dns_writer *writer) {
    const char *name = question->name;
    bool four = question->type == DNS_A;
    if (strcmp(name, "big.test") == 0) {
        for (int i = 0; i < 40 && four; i++) {
            struct addr addr = addr_ipv4(0x7f000001 + (uint32_t)i);
            dns_answer_address(writer, name, &addr, 300);
        }
    } else if (strcmp(name, "four.test") == 0) {
        if (four) zone_address(writer, name, "127.0.0.4");
    } else if (strcmp(name, "noroute.test") == 0) {
        zone_address(writer, name, four ? "255.255.255.255" : "::1");
    } else if (strcmp(name, "mixed.test") == 0) {
        zone_address(writer, name, four ? "203.0.113.9" : "2001:db8::9");
        if (four) zone_address(writer, name, "10.0.0.9");
    } else if (strcmp(name, "stray.test") == 0) { // an address that the chain does not reach
        zone_address(writer, "other.test", four ? "127.0.0.66" : "::1");
        dns_answer_name(writer, name, DNS_CNAME, "middle.test", 30);
        zone_address(writer, "middle.test", four ? "127.0.0.7" : "::1");
    } else
        zone_address(writer, name, four ? "127.0.0.5" : "::1");
}

static void zone_mx(struct dns_writer *writer, const char *name) {
    const uint8_t good[] = {0, 10, 1, 'a', 4, 't', 'e', 's', 't', 0};
    const uint8_t bad[] = {0, 20, 4, 'e', 'v', 'i', 'l', 4, 't', 'e', 's', 't', 0};
    dns_answer_rdata(writer, name, DNS_MX, 300, good, sizeof(good));
    dns_answer_rdata(writer, name, DNS_MX, 300, bad, sizeof(bad));
}

bool lab_zone_test(const struct dns_question *question, struct dns_writer *writer) {
    const char *name = question->name;
    const uint8_t text[] = {2, 'h', 'i'};
    // 1 . alpn=h3,h2 ech=x
    const uint8_t https[] = {0, 1, 0, 0, 1, 0, 6, 2, 'h', '3', 2, 'h', '2', 0, 5, 0, 1, 'x'};
    if (strncmp(name, "silent", 6) == 0) return false;
    if (strncmp(name, "nx", 2) == 0)
        writer->rcode = DNS_NXDOMAIN, writer->bytes[3] |= DNS_NXDOMAIN;
    else if (strncmp(name, "broken", 6) == 0)
        writer->rcode = DNS_SERVFAIL, writer->bytes[3] |= DNS_SERVFAIL;
    else if (question->type == DNS_A || question->type == DNS_AAAA)
        zone_addresses(question, writer);
    else if (question->type == DNS_TXT)
        dns_answer_rdata(writer, name, DNS_TXT, 300, text, sizeof(text));
    else if (question->type == DNS_MX)
        zone_mx(writer, name);
    else if (question->type == DNS_HTTPS)
        dns_answer_rdata(writer, name, DNS_HTTPS, 300, https, sizeof(https));
    else if (question->type == DNS_CNAME)
        dns_answer_name(writer, name, DNS_CNAME, "evil.test", 300);
    else if (question->type == DNS_PTR)
        dns_answer_name(writer, name, DNS_PTR, "host.test", 300);
    if (writer->answers == 0) dns_answer_negative(writer, 5);
    return true;
}

// ---- scripted resolver ----

static void resolver_serve(struct lab *lab, const struct ipc_query *query) {
    uint8_t message[512], answer[4096];
    struct dns_question question;
    struct dns_writer writer;
    lab->asked++;
    lab->last = *query;
    if (lab->silent) return;
    size_t len = lab_question(message, query->name, query->type, false);
    assert_int_equal(dns_question_parse(message, len, &question), 0);
    dns_answer_begin(&writer, answer, sizeof(answer), &question, DNS_NOERROR);
    bool answered = lab_zone_test(&question, &writer);
    int answer_len = dns_answer_end(&writer);
    bool good = answered && writer.rcode != DNS_SERVFAIL;
    struct ipc_answer head = {.id = query->id,
                              .status = good       ? 0
                                        : answered ? -EIO
                                                   : -ETIMEDOUT,
                              .length = good ? (uint32_t)answer_len : 0};
    assert_int_equal(channel_send_tail(lab->resolver, IPC_ANSWER, &head, sizeof(head), answer, head.length), 0);
}

void lab_turn(struct lab *lab) {
    static uint8_t buffer[CHANNEL_BUFFER_SIZE];
    struct channel_message message;
    event_base_loop(lab->base, EVLOOP_NONBLOCK);
    while (lab->resolver >= 0 && channel_receive(lab->resolver, buffer, sizeof(buffer), &message) == 1) {
        assert_int_equal(message.type, IPC_QUERY);
        struct ipc_query query;
        memcpy(&query, message.body, sizeof(query));
        resolver_serve(lab, &query);
    }
    event_base_loop(lab->base, EVLOOP_NONBLOCK);
}

void lab_until(struct lab *lab, const unsigned *counter, unsigned value) {
    uint64_t end = clock_us() + 15000000;
    while (*counter < value) {
        lab_turn(lab);
        if (*counter < value) usleep(500);
        if (clock_us() > end) fail_msg("nothing happens: %u of %u", *counter, value);
    }
}

void lab_reply(const uint8_t *answer, size_t len, void *data) {
    struct lab *lab = data;
    lab->replies++;
    lab->len = len;
    if (answer)
        memcpy(lab->answer, answer, len);
    else
        lab->nothing++;
}

static const struct policy *lab_policy_in_force(void *data) { return ((struct lab *)data)->policy; }

static void lab_decided(const struct policy_request *request, const struct policy_decision *decision, void *data) {
    struct lab *lab = data;
    lab->decisions++;
    lab->decision = (struct lab_decision){.verdict = decision->verdict, .reason = decision->reason};
    snprintf(lab->decision.name, NAME_SIZE, "%s", request->dialled ? request->dialled : "");
    if (request->address) lab->decision.server = *request->address;
    assert_int_equal(request->protocol, POLICY_DNS);
}

void lab_build(struct lab *lab, const char *yaml, int channel) {
    *lab = (struct lab){.base = event_base_new(), .resolver = -1};
    lab->policy = lab_policy(yaml);
    lab->client = dns_client_new(lab->base, channel);
    struct addr_prefix pool4 = lab_prefix("198.18.0.0/15"), pool6 = lab_prefix("fd53:796e::/64");
    lab->pool = dns_pool_new(&pool4, &pool6, NULL, NULL);
    struct dns_front_callbacks callbacks = {.policy = lab_policy_in_force, .decided = lab_decided, .data = lab};
    lab->front = dns_front_new(lab->base, lab->client, lab->pool, &callbacks);
    assert_non_null(lab->front);
}

void lab_start(struct lab *lab, const char *yaml) {
    int fds[2];
    assert_int_equal(channel_pair(fds), 0);
    lab_build(lab, yaml, fds[0]);
    lab->resolver = fds[1];
}

void lab_end(struct lab *lab) {
    dns_front_free(lab->front);
    dns_client_free(lab->client);
    dns_pool_free(lab->pool);
    policy_free(lab->policy);
    event_base_free(lab->base);
    if (lab->resolver >= 0) close(lab->resolver);
}

void lab_ask(struct lab *lab, const char *name, uint16_t type) {
    uint8_t message[512];
    struct addr server = lab_addr("192.0.0.2");
    size_t len = lab_question(message, name, type, true);
    unsigned replies = lab->replies;
    dns_front_query(lab->front, message, len, &server, lab_reply, lab);
    lab_until(lab, &lab->replies, replies + 1);
}

// ---- reading answers ----

static uint16_t get16(const uint8_t *bytes) { return (uint16_t)(bytes[0] << 8 | bytes[1]); }

static size_t skip_name(const uint8_t *bytes, size_t at) {
    while (bytes[at] != 0 && bytes[at] < 0xc0) at += bytes[at] + (size_t)1;
    return at + (bytes[at] == 0 ? 1 : 2);
}

struct lab_answer lab_read(const uint8_t *bytes, size_t len) {
    struct lab_answer answer = {.ede = -1};
    assert_true(len >= 12);
    assert_true(bytes[2] & 0x80);
    answer.rcode = bytes[3] & 15;
    answer.truncated = bytes[2] & 2;
    answer.answers = get16(bytes + 6);
    answer.authorities = get16(bytes + 8);
    size_t at = 12;
    for (int i = 0; i < get16(bytes + 4); i++) at = skip_name(bytes, at) + 4;
    int records = answer.answers + answer.authorities + get16(bytes + 10);
    for (int i = 0; i < records; i++) {
        at = skip_name(bytes, at);
        uint16_t type = get16(bytes + at), size = get16(bytes + at + 8);
        const uint8_t *rdata = bytes + at + 10;
        at += 10 + (size_t)size;
        assert_true(at <= len);
        if ((type == DNS_A || type == DNS_AAAA) && answer.address.family == ADDR_NONE)
            answer.address = addr_from_bytes(rdata, type == DNS_A ? ADDR_IPV4 : ADDR_IPV6);
        if (type == DNS_OPT && size >= 6 && get16(rdata) == 15) {
            answer.ede = get16(rdata + 4);
            memcpy(answer.ede_text, rdata + 6, get16(rdata + 2) - (size_t)2);
        }
    }
    assert_int_equal(at, len);
    return answer;
}

// ---- server ----

struct lab_server {
    pthread_t thread;
    int udp, tcp, stop[2];
    atomic_uint udp_count, tcp_count;
    atomic_bool mute;
};

static size_t server_answer(const uint8_t *message, size_t len, uint8_t *answer, size_t size) {
    struct dns_question question;
    struct dns_writer writer;
    if (dns_question_parse(message, len, &question) != 0) return 0;
    dns_answer_begin(&writer, answer, size, &question, DNS_NOERROR);
    if (!lab_zone_test(&question, &writer)) return 0;
    int r = dns_answer_end(&writer);
    return r > 0 ? (size_t)r : 0;
}

static void serve_udp(struct lab_server *server) {
    uint8_t message[4096], answer[512];
    struct sockaddr_storage peer;
    socklen_t peer_len = sizeof(peer);
    ssize_t n = recvfrom(server->udp, message, sizeof(message), 0, (struct sockaddr *)&peer, &peer_len);
    if (n <= 0) return;
    server->udp_count++;
    size_t len = server->mute ? 0 : server_answer(message, (size_t)n, answer, sizeof(answer));
    if (len > 0) sendto(server->udp, answer, len, 0, (struct sockaddr *)&peer, peer_len);
}

static void serve_tcp(struct lab_server *server) {
    uint8_t message[4096], answer[2 + 8192];
    int fd = accept4(server->tcp, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return;
    size_t have = 0;
    while (have < 2 || have < 2 + (size_t)get16(message)) {
        ssize_t n = recv(fd, message + have, sizeof(message) - have, 0);
        if (n <= 0) break;
        have += (size_t)n;
    }
    if (have > 2) {
        server->tcp_count++;
        size_t len = server_answer(message + 2, have - 2, answer + 2, sizeof(answer) - 2);
        answer[0] = (uint8_t)(len >> 8);
        answer[1] = (uint8_t)len;
        if (len > 0) send(fd, answer, len + 2, MSG_NOSIGNAL);
    }
    close(fd);
}

static void *server_run(void *data) {
    struct lab_server *server = data;
    struct pollfd fds[] = {{server->udp, POLLIN, 0}, {server->tcp, POLLIN, 0}, {server->stop[0], POLLIN, 0}};
    while (poll(fds, 3, -1) >= 0 && !fds[2].revents) {
        if (fds[0].revents) serve_udp(server);
        if (fds[1].revents) serve_tcp(server);
    }
    return NULL;
}

struct lab_server *lab_server_new(uint16_t *ret_port) {
    struct lab_server *server = NEW(struct lab_server);
    assert_non_null(server);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(address);
    server->udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    server->tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server->tcp, (struct sockaddr *)&address, len), 0);
    assert_int_equal(getsockname(server->tcp, (struct sockaddr *)&address, &len), 0);
    assert_int_equal(bind(server->udp, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(server->tcp, 16), 0);
    assert_int_equal(pipe2(server->stop, O_CLOEXEC), 0);
    assert_int_equal(pthread_create(&server->thread, NULL, server_run, server), 0);
    *ret_port = ntohs(address.sin_port);
    return server;
}

void lab_server_free(struct lab_server *server) {
    close(server->stop[1]);
    pthread_join(server->thread, NULL);
    close(server->stop[0]);
    close(server->udp);
    close(server->tcp);
    free(server);
}

unsigned lab_server_udp(struct lab_server *server) { return server->udp_count; }
unsigned lab_server_tcp(struct lab_server *server) { return server->tcp_count; }
void lab_server_mute(struct lab_server *server, bool mute) { server->mute = mute; }
