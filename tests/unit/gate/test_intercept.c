// SPDX-License-Identifier: Apache-2.0
// Opened connections, between a real client and a real server that misbehave at each step: whatever they do, the server
// of another name, or one whose request lacks its credential, gets no byte of a request, and nothing stays behind.
#include "tls_peer.h"

#include <event2/buffer.h>
#include <event2/event.h>

#include "base/mem.h"
#include "gate/intercept.h"
#include "gate/state.h"
#include "policy/model.h"
#include "vault/vault.h"

// ---- the vault's side, and memory that fails (linked with --wrap) ----

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);

static unsigned calls, failing; // the number of the one that fails, 0: none

static bool fails(void) { return failing && ++calls == failing; }
void *__wrap_malloc(size_t size) { return fails() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) { return fails() ? NULL : __real_calloc(count, size); }
void *__wrap_realloc(void *old, size_t size) { return fails() ? NULL : __real_realloc(old, size); }
char *__wrap_strdup(const char *text) { return fails() ? NULL : __real_strdup(text); }

struct injection_wait {
    struct event *event;
    injection_done *done;
    void *data;
};

struct injection_wait *__wrap_injection_start(struct gate *gate, const char *host, const void *method, size_t method_len,
                                              const void *path, size_t path_len, injection_done *done, void *data);
void __wrap_injection_cancel(struct injection_wait *wait);
void __wrap_injection_free(struct injection *injection);
const struct injection_leaf *__wrap_injection_leaf(struct gate *gate, const char *host);
struct injection_leaf_wait *__wrap_injection_leaf_start(struct gate *gate, const char *host,
                                                        void (*ready)(int status, void *data), void *data);
void __wrap_injection_on_change(struct gate *gate, injection_changed *changed);

static struct gate gate;
static struct injection_leaf leaf;
static bool has_leaf, scrubs, conditional;
static int wants_certificate; // of a client, by this version of TLS; 0: no
static int injection_status; // of the next answer
static unsigned asked, given, freed;
static char asked_for[300];
static injection_changed *changed;

static void injection_wait_free(struct injection_wait *wait) {
    event_free(wait->event);
    free(wait);
}

static void answer(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct injection_wait *wait = data;
    struct injection *injection = injection_status == 0 ? calloc(1, sizeof(*injection)) : NULL;
    injection_done *done = wait->done;
    void *its = wait->data;
    int status = injection ? 0 : injection_status ? injection_status : -ENOMEM;
    injection_wait_free(wait);
    if (injection) {
        given++;
        injection->count = 2;
        injection->conditional = conditional;
        injection->values[0] = (struct injection_value){"Authorization", "Bearer sesame-sesame", 20, 0, 7, scrubs};
        injection->values[1] = (struct injection_value){"X-Key", "key", 3, 1, 9, false};
    }
    done(status, injection, its);
}

struct injection_wait *__wrap_injection_start(struct gate *of, const char *host, const void *method, size_t method_len,
                                              const void *path, size_t path_len, injection_done *done, void *data) {
    struct injection_wait *wait = calloc(1, sizeof(*wait));
    if (!wait) return NULL;
    *wait = (struct injection_wait){.done = done, .data = data};
    wait->event = evtimer_new(of->base, answer, wait);
    if (!wait->event) {
        free(wait);
        return NULL;
    }
    asked++;
    snprintf(asked_for, sizeof(asked_for), "%s %.*s %.*s", host, (int)method_len, (const char *)method, (int)path_len,
             (const char *)path);
    event_active(wait->event, EV_TIMEOUT, 0);
    return wait;
}

void __wrap_injection_cancel(struct injection_wait *wait) { injection_wait_free(wait); }

void __wrap_injection_free(struct injection *injection) {
    if (injection) freed++;
    free(injection);
}

const struct injection_leaf *__wrap_injection_leaf(struct gate *of, const char *host) {
    (void)of;
    assert_string_equal(host, "bound.test");
    return has_leaf ? &leaf : NULL;
}

struct injection_leaf_wait *__wrap_injection_leaf_start(struct gate *of, const char *host,
                                                        void (*ready)(int status, void *data), void *data) {
    (void)of, (void)host, (void)ready, (void)data;
    return NULL; // the vault is gone
}

void __wrap_injection_on_change(struct gate *of, injection_changed *callback) {
    (void)of;
    changed = callback;
}

// ---- the rig ----

#define AUTHORITY "Host: bound.test\r\n"
#define VALUES "Authorization: Bearer sesame-sesame\r\nX-Key: key\r\n"
#define OK "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nanswer"

static struct tls_peer client, server;
static struct tls_identity root, inner_root, good, other, expired, unknown, inner;
static int channel[2];
static struct flow *flow;

static struct policy *compile(void) {
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    struct policy_warnings warnings = {0};
    struct policy *policy = NULL;
    struct error err = {0};
    assert_int_equal(policy_model_allow(model, "bound.test", "test", &err), 0);
    assert_int_equal(policy_model_bind(model, "header:bound.test:Authorization:Bearer {secret}=env:A", "test", &err), 0);
    assert_int_equal(policy_model_bind(model, "header:bound.test:X-Key=env:B", "test", &err), 0);
    assert_int_equal(policy_compile(model, NULL, NULL, 0, 1, &policy, &warnings, &err), 0);
    policy_warnings_done(&warnings);
    policy_model_free(model);
    return policy;
}

static int set_up(void **state) {
    (void)state;
    struct error err = {0};
    char *pem = tls_identity_pem(&root);
    gate = (struct gate){.keeper = -1};
    assert_int_equal(channel_pair(channel), 0);
    gate.channel = channel[0];
    gate.base = event_base_new();
    gate.journal = journal_new(&gate);
    if (watcher_new(gate.base, &gate.watcher) < 0) abort();
    slab_init(&gate.flow_memory, sizeof(struct flow));
    list_init(&gate.flows);
    for (size_t i = 0; i < GATE_BUCKETS; i++) list_init(&gate.pending[i]);
    gate.policy = compile();
    gate.facts = policy_facts(gate.policy);
    assert_int_equal(relay_engine_new(gate.base, flow_relay_ended, &gate.relays), 0);
    if (intercept_prepare(&gate, pem, &err) < 0) fail_msg("%s", err.text);
    free(pem);
    leaf = (struct injection_leaf){.certificate = inner.certificate, .ca = inner_root.certificate, .key = inner.key, .serial = 1};
    has_leaf = true;
    scrubs = conditional = false;
    injection_status = 0;
    asked = given = freed = 0;
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    tls_peer_close(&client, false);
    tls_peer_close(&server, false);
    for (int i = 0; i < 8; i++) event_base_loop(gate.base, EVLOOP_NONBLOCK);
    LIST_FOREACH(&gate.flows, node) flow_end(LIST_ENTRY(node, struct flow, link), true);
    for (int i = 0; i < 8; i++) event_base_loop(gate.base, EVLOOP_NONBLOCK);
    assert_int_equal(gate.flow_count, 0);
    assert_int_equal(freed, given); // whatever became of the request
    relay_engine_free(gate.relays);
    event_base_loop(gate.base, EVLOOP_NONBLOCK);
    intercept_done(&gate);
    journal_free(gate.journal);
    policy_free(gate.policy);
    slab_done(&gate.flow_memory);
    watcher_free(gate.watcher);
    event_base_free(gate.base);
    close(channel[0]);
    close(channel[1]);
    return 0;
}

static void turn(void) {
    for (int i = 0; i < 10; i++) {
        event_base_loop(gate.base, EVLOOP_NONBLOCK);
        tls_peer_step(&client);
        tls_peer_step(&server);
    }
}

// A flow as sniff.c leaves it: the hello was read and judged, the server was dialled. identity NULL: a server without
// TLS.
static void open_flow(const struct tls_identity *identity, const char *alpn) {
    uint8_t bytes[40] = {0};
    struct ip_packet syn = {.bytes = bytes, .len = sizeof(bytes), .source = addr_ipv4(0xc0000002),
                            .destination = addr_ipv4(0xc6120001), .source_port = 40000, .destination_port = 443};
    unsigned armed = failing;
    failing = 0;
    flow = flow_new(&gate, &syn);
    assert_non_null(flow);
    list_remove(&flow->opening->bucket);
    flow->dialled = "bound.test";
    flow->app = POLICY_APP_TLS;
    flow->peer = addr_ipv4(0xc6336401);
    flow->fd = tls_peer_pair(&client);
    flow->upstream = tls_peer_pair(&server);
    tls_peer_tls(&client, false, NULL);
    SSL_set_tlsext_host_name(client.ssl, "bound.test");
    if (alpn) SSL_set_alpn_protos(client.ssl, (const unsigned char *)alpn, (unsigned)strlen(alpn));
    if (identity) tls_peer_tls(&server, true, identity);
    if (wants_certificate) {
        SSL_set_verify(server.ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
        SSL_set_max_proto_version(server.ssl, wants_certificate);
    }
    tls_peer_step(&client);
    flow->opening->bytes = malloc(4096);
    flow->opening->size = 4096;
    ssize_t got = recv(flow->fd, flow->opening->bytes, 4096, 0);
    assert_true(got > 0);
    flow->opening->len = (size_t)got;
    snprintf(flow->opening->sni, sizeof(flow->opening->sni), "bound.test");
    flow->opening->alpn_http1 = alpn && strstr(alpn, "http/1.1");
    assert_true(intercept_wanted(flow, flow->opening->sni));
    failing = armed;
    intercept_start(flow);
    turn();
}

static void ask(const char *text) {
    tls_peer_say(&client, text, strlen(text));
    turn();
}

static void reply(const char *text) {
    tls_peer_say(&server, text, strlen(text));
    turn();
}

static void forget(struct tls_peer *peer) {
    memset(peer->got, 0, peer->len);
    peer->len = peer->reads = 0;
}

static bool begins(const struct tls_peer *peer, const char *text) { return strncmp(peer->got, text, strlen(text)) == 0; }

static bool has(const struct tls_peer *peer, const char *text) { return strstr(peer->got, text) != NULL; }

// ---- tests ----

static void test_requests(void **state) {
    (void)state;
    open_flow(&good, "\x08http/1.1");
    assert_true(client.done);
    assert_string_equal(SSL_get_version(client.ssl), "TLSv1.3");
    ask("POST /a?b HTTP/1.1\r\n" AUTHORITY "x-key: mine\r\nAUTHORIZATION: mine\r\nX-Other:  kept \r\nauthorization:\r\n"
        "Content-Length: 4\r\n\r\nbody");
    assert_string_equal(asked_for, "bound.test POST /a?b");
    assert_string_equal(server.got, "POST /a?b HTTP/1.1\r\n" AUTHORITY "X-Other:  kept \r\nContent-Length: 4\r\n" VALUES "\r\nbody");
    assert_int_equal(server.reads, 1); // head and body in one record
    reply(OK);
    assert_string_equal(client.got, OK);
    forget(&server);
    forget(&client);
    ask("GET https://bound.test/c HTTP/1.1\r\n" AUTHORITY "\r\n"); // the same connection, the absolute form
    assert_string_equal(server.got, "GET /c HTTP/1.1\r\n" AUTHORITY VALUES "\r\n");
    reply(OK);
    assert_string_equal(client.got, OK);
    assert_int_equal(asked, 2);
    // A rotation of a value that no request carried, and then of one.
    changed(&gate, 0, 7);
    turn();
    assert_false(client.ended);
    changed(&gate, 1, 10);
    turn();
    assert_true(client.failed && server.failed);
}

// What a server, or a proxy in front of it, could read otherwise than it was judged.
static void test_rewritten(void **state) {
    (void)state;
    conditional = true;
    open_flow(&good, NULL);
    ask("POST /a HTTP/1.1\r\nHost: Bound.Test.:443\r\nX-HTTP-Method-Override: DELETE\r\nx_http_method: PUT\r\nX-Method-Override: PUT\r\n"
        "X-Original-URL: /b\r\nX-Rewrite-Url: /b\r\nX-Original: kept\r\n"
        "Connection: authorization, Keep-Alive,content-length ,x-key\r\nConnection: host\r\nContent-Length: 4\r\n\r\nbody");
    assert_string_equal(server.got, "POST /a HTTP/1.1\r\n" AUTHORITY "X-Original: kept\r\nConnection: Keep-Alive\r\nContent-Length: 4\r\n"
                                    VALUES "\r\nbody");
    reply(OK);
    forget(&server);
    conditional = false;
    ask("GET https://bound.test.:443/c HTTP/1.1\r\nHost: bound.test.:443\r\nX-HTTP-Method: kept\r\nConnection: x, close, upgrade\r\n\r\n");
    assert_string_equal(server.got, "GET /c HTTP/1.1\r\n" AUTHORITY "X-HTTP-Method: kept\r\nConnection: close, upgrade\r\n" VALUES "\r\n");
}

static void test_other_names(void **state) {
    static const char *const requests[] = {
        "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", "GET / HTTP/1.1\r\nHost: bound.test:444\r\n\r\n",
        "GET http://bound.test/ HTTP/1.1\r\nHost: bound.test\r\n\r\n", "GET https://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 203.0.113.1\r\n\r\n", "GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost: xbound.test\r\n\r\n",
    };
    static const char *const malformed[] = {
        "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: bound.test\r\nHost: bound.test\r\n\r\n",
        "POST / HTTP/1.1\r\n" AUTHORITY "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "TRACE / HTTP/1.1\r\n" AUTHORITY "\r\n", "CONNECT bound.test:443 HTTP/1.1\r\nHost: bound.test:443\r\n\r\n",
        "GET https://other.test/ HTTP/1.1\r\n" AUTHORITY "\r\n", "GET / HTTP/1.1\r\n" AUTHORITY "A : b\r\n\r\n",
        "POST / HTTP/1.1\r\n" AUTHORITY "Transfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: mine\r\n\r\n",
        "POST / HTTP/1.1\r\n" AUTHORITY "Transfer-Encoding: chunked\r\n\r\nnonsense\r\n\r\n",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(requests) + ARRAY_LENGTH(malformed); i++) {
        bool named = i < ARRAY_LENGTH(requests);
        const char *text = named ? requests[i] : malformed[i - ARRAY_LENGTH(requests)];
        open_flow(&good, NULL);
        ask(text);
        if (!begins(&client, named ? "HTTP/1.1 421 " : "HTTP/1.1 400 ")) fail_msg("%s: %s", text, client.got);
        assert_true(client.notified);
        assert_int_equal(server.len, 0);
        tls_peer_close(&client, true);
        tls_peer_close(&server, true);
        turn();
        assert_int_equal(gate.flow_count, 0);
    }
}

static void test_no_credential(void **state) {
    (void)state;
    open_flow(&good, NULL);
    injection_status = -EIO;
    ask("GET / HTTP/1.1\r\n" AUTHORITY "\r\n");
    assert_true(begins(&client, "HTTP/1.1 502 "));
    assert_true(has(&client, "\"error\":\"binding_failed\",\"reason\":\"binding_failed\""));
    assert_int_equal(server.len, 0);
}

static void test_no_leaf(void **state) {
    (void)state;
    has_leaf = false;
    open_flow(&good, NULL);
    assert_true(client.failed && !client.done);
    assert_int_equal(server.len, 0);
}

static void test_wrong_servers(void **state) {
    static const struct {
        const struct tls_identity *identity;
        const char *why;
    } cases[] = {
        {&other, "the server's certificate is not accepted: hostname mismatch"},
        {&expired, "the server's certificate is not accepted: certificate has expired"},
        {&unknown, "the server's certificate is not accepted: "},
        {NULL, "the server does not speak TLS"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        open_flow(cases[i].identity, "\x08http/1.1");
        if (!cases[i].identity) {
            forget(&server);
            reply("HTTP/1.1 400 Bad Request\r\n\r\n");
        }
        assert_true(client.done); // and is told why, in HTTP
        assert_false(server.done && server.len > 0);
        ask("GET / HTTP/1.1\r\n" AUTHORITY "\r\n");
        if (!begins(&client, "HTTP/1.1 502 ") || !has(&client, cases[i].why)) fail_msg("%zu: %s", i, client.got);
        assert_true(has(&client, "\"error\":\"upstream_failed\""));
        assert_int_equal(server.len, 0);
        assert_int_equal(asked, 0);
        tls_peer_close(&client, true);
        tls_peer_close(&server, true);
        turn();
        assert_int_equal(gate.flow_count, 0);
    }
}

// With TLS 1.3 the refusal comes behind the handshake, with 1.2 within it.
static void test_client_certificate_wanted(void **state) {
    (void)state;
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        wants_certificate = version;
        open_flow(&good, "\x08http/1.1");
        wants_certificate = 0;
        assert_true(client.done);
        ask("GET / HTTP/1.1\r\n" AUTHORITY "\r\n");
        if (!begins(&client, "HTTP/1.1 502 ") || !has(&client, "\"hint\":\"the server")) fail_msg("%x: %s", (unsigned)version, client.got);
        assert_int_equal(server.len, 0);
        tls_peer_close(&client, true);
        tls_peer_close(&server, true);
        turn();
        assert_int_equal(gate.flow_count, 0);
    }
}

// Both ends close, or say nonsense, after each number of turns of the handshakes.
static void test_ends_early(void **state) {
    (void)state;
    for (int at = 0; at < 12; at++) {
        for (int how = 0; how < 4; how++) {
            open_flow(&good, NULL);
            forget(&server);
            if (at > 0) {
                tls_peer_close(&client, false);
                tls_peer_close(&server, false);
                turn();
                assert_int_equal(gate.flow_count, 0);
                open_flow(NULL, NULL); // this time by hand
                tls_peer_tls(&server, true, &good);
                for (int i = 0; i < at; i++) {
                    event_base_loop(gate.base, EVLOOP_NONBLOCK);
                    tls_peer_step(i % 2 ? &client : &server);
                }
            }
            struct tls_peer *peer = how % 2 ? &client : &server;
            if (how < 2) (void)!send(peer->fd, "nonsense nonsense nonsense", 26, MSG_NOSIGNAL);
            else tls_peer_close(peer, false);
            turn();
            assert_int_equal(asked, 0);
            tls_peer_close(&client, false);
            tls_peer_close(&server, false);
            turn();
            assert_int_equal(gate.flow_count, 0);
        }
    }
}

static void test_early_answer(void **state) {
    (void)state;
    open_flow(&good, NULL);
    ask("POST /a HTTP/1.1\r\n" AUTHORITY "Content-Length: 8\r\n\r\nbo");
    reply(OK);
    assert_string_equal(client.got, OK);
    forget(&server);
    ask("dy");
    assert_string_equal(server.got, "dy"); // goes on to it
    ask("body" "GET /b HTTP/1.1\r\n" AUTHORITY "\r\n");
    assert_string_equal(server.got, "dybodyGET /b HTTP/1.1\r\n" AUTHORITY VALUES "\r\n");
    reply(OK);
    assert_int_equal(client.len, 2 * strlen(OK));
    // A second answer, while the body is still on its way, is nobody's: the connection ends, and the body with it.
    forget(&client);
    forget(&server);
    ask("POST /c HTTP/1.1\r\n" AUTHORITY "Content-Length: 8\r\n\r\nbo");
    reply(OK);
    reply(OK);
    assert_string_equal(client.got, OK);
    assert_true(client.notified);
    forget(&server);
    ask("dybody" "GET /d HTTP/1.1\r\n" AUTHORITY "\r\n");
    assert_int_equal(server.len, 0);
}

// A server that has answered although it was asked whether it wants the body may take the body for a request.
static void test_expectation_unmet(void **state) {
    (void)state;
    open_flow(&good, NULL);
    ask("POST /a HTTP/1.1\r\n" AUTHORITY "Expect: 100-continue\r\nContent-Length: 40\r\n\r\n");
    assert_true(has(&server, "Expect: 100-continue"));
    reply("HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n");
    assert_true(client.notified);
    forget(&server);
    ask("GET /admin HTTP/1.1\r\nHost: bound.test\r\n\r\n");
    assert_int_equal(server.len, 0);
}

// The same where the body has come at once: by then it is the server's, as body or as request.
static void test_expectation_ignored(void **state) {
    (void)state;
    open_flow(&good, NULL);
    ask("POST /a HTTP/1.1\r\n" AUTHORITY "Expect: 100-continue\r\nContent-Length: 32\r\n\r\n"
        "GET /evil HTTP/1.1\r\nX: 34567\r\n\r\n");
    reply(OK);
    assert_string_equal(client.got, OK);
    assert_true(client.notified);
    forget(&server);
    ask("GET /b HTTP/1.1\r\n" AUTHORITY "\r\n");
    assert_int_equal(server.len, 0);
}

static void test_expectation_met(void **state) {
    (void)state;
    open_flow(&good, NULL);
    ask("POST /a HTTP/1.1\r\n" AUTHORITY "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    reply("HTTP/1.1 100 Continue\r\n\r\n");
    assert_string_equal(client.got, "HTTP/1.1 100 Continue\r\n\r\n");
    forget(&server);
    ask("body");
    assert_string_equal(server.got, "body");
    reply(OK);
    assert_true(has(&client, OK));
    assert_false(client.ended);
}

static void test_answers(void **state) {
    static const struct {
        const char *answer;
        bool closes;    // the server, without close_notify where cut
        bool cut;
        const char *got;
        bool orderly;   // the client's end
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nanswer", true, false, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nanswer", false},
        {"HTTP/1.1 200 OK\r\n\r\nanswer", true, false, "HTTP/1.1 200 OK\r\n\r\nanswer", true},
        {"HTTP/1.1 200 OK\r\n\r\nanswer", true, true, "HTTP/1.1 200 OK\r\n\r\nanswer", false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", true, false,
         "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", false},
        {"nonsense\r\n\r\n", false, false, "HTTP/1.1 502 ", true},
        {"HTTP/1.1 101 Switching Protocols\r\n\r\n", false, false, "HTTP/1.1 502 ", true}, // which nobody asked for
        {"", true, false, "HTTP/1.1 502 ", true},
        {OK OK, false, false, OK, true},
        {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 6\r\n\r\nanswer", false, false,
         "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 6\r\n\r\nanswer", true},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        open_flow(&good, NULL);
        ask("GET / HTTP/1.1\r\n" AUTHORITY "\r\n");
        if (cases[i].answer[0]) reply(cases[i].answer);
        if (cases[i].closes) tls_peer_close(&server, !cases[i].cut);
        turn();
        if (!begins(&client, cases[i].got)) fail_msg("%zu: %s", i, client.got);
        if (strncmp(cases[i].got, "HTTP/1.1 502", 12) != 0 && client.len != strlen(cases[i].got)) fail_msg("%zu: more", i);
        if (!client.ended || client.notified != cases[i].orderly) fail_msg("%zu: end %d %d", i, client.ended, client.notified);
        tls_peer_close(&client, true);
        tls_peer_close(&server, true);
        turn();
        assert_int_equal(gate.flow_count, 0);
    }
}

static void test_tunnel(void **state) {
    (void)state;
    open_flow(&good, "\x08http/1.1");
    ask("GET /ws HTTP/1.1\r\n" AUTHORITY "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    reply("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello");
    assert_true(has(&client, "\r\n\r\nhello"));
    forget(&server);
    forget(&client);
    ask("GET / HTTP/1.1\r\n"); // bytes, no request any more
    assert_string_equal(server.got, "GET / HTTP/1.1\r\n");
    SSL_shutdown(client.ssl);
    shutdown(client.fd, SHUT_WR);
    turn();
    assert_true(server.notified);
    static char much[300000];
    memset(much, 'x', sizeof(much));
    for (size_t sent = 0; sent < sizeof(much); sent += 10000) {
        tls_peer_say(&server, much + sent, 10000);
        turn();
    }
    assert_int_equal(client.len, sizeof(much));
    SSL_shutdown(server.ssl);
    shutdown(server.fd, SHUT_WR);
    turn();
    assert_true(client.notified);
    assert_int_equal(gate.flow_count, 0);
}

static void test_scrub(void **state) {
    (void)state;
    scrubs = true;
    open_flow(&good, NULL);
    ask("GET / HTTP/1.1\r\n" AUTHORITY "Accept-Encoding: gzip\r\nRange: bytes=3-7\r\nIf-Range: x\r\n\r\n");
    assert_true(has(&server, "Accept-Encoding: identity\r\n"));
    assert_false(has(&server, "gzip") || has(&server, "Range"));
    reply("HTTP/1.1 200 OK\r\nsesame-sesame: 1\r\nConnection: sesame-sesame, keep-alive\r\nX-sesame-sesame:\r\nX-Echo: Bearer sesame-sesame\r\nTransfer-Encoding: chunked\r\n\r\n6\r\na sesa\r\n9\r\nme-sesame\r\n");
    reply("4\r\n ses\r\n0\r\nX-Trailer: sesame-sesame\r\n\r\n");
    assert_true(has(&client, "X-Echo: Bearer *************\r\n"));
    assert_true(has(&client, "2\r\na \r\n"));
    assert_true(has(&client, "*************"));
    assert_true(has(&client, "0\r\nX-Trailer: *************\r\n\r\n"));
    assert_true(has(&client, "\r\n*************: 1\r\nConnection: *************, keep-alive\r\nX-*************:\r\n"));
    assert_false(has(&client, "sesame"));
    forget(&client);
    ask("GET / HTTP/1.1\r\n" AUTHORITY "\r\n");
    reply("HTTP/1.1 200 OK\r\nContent-Length: 26\r\n\r\nsesame-sesamesesame-");
    reply("sesame");
    assert_true(has(&client, "\r\n\r\n**************************"));
    forget(&client);
    ask("GET / HTTP/1.1\r\n" AUTHORITY "\r\n");
    reply("HTTP/1.1 200 OK\r\n\r\nsesame-sesame sesame-se");
    tls_peer_close(&server, true);
    turn();
    assert_true(has(&client, "\r\n\r\n************* sesame-se"));
}

// Behind a 101 nothing would be scrubbed.
static void test_scrub_upgrade(void **state) {
    (void)state;
    scrubs = true;
    open_flow(&good, "\x08http/1.1");
    ask("GET /ws HTTP/1.1\r\n" AUTHORITY "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_true(begins(&client, "HTTP/1.1 403 "));
    assert_true(has(&client, "\"reason\":\"protocol_denied\""));
    assert_int_equal(server.len, 0);
}

// The server's connection ends between two requests: so does the client's, in order.
static void test_idle_end(void **state) {
    (void)state;
    open_flow(&good, NULL);
    ask("GET / HTTP/1.1\r\n" AUTHORITY "\r\n");
    reply(OK);
    tls_peer_close(&server, true);
    turn();
    assert_true(client.notified);
    assert_string_equal(client.got, OK);
}

static void test_memory_fails(void **state) {
    (void)state;
    for (unsigned at = 1, done = 0; !done; at++) {
        calls = 0;
        failing = at;
        open_flow(&good, "\x08http/1.1");
        ask("POST /a HTTP/1.1\r\n" AUTHORITY "Content-Length: 4\r\n\r\nbo");
        ask("dy");
        reply(OK);
        ask("GET /b HTTP/1.1\r\n" AUTHORITY "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        reply("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello");
        ask("bye");
        done = calls < failing;
        failing = 0;
        bool whole = has(&client, OK "HTTP/1.1 101") && has(&client, "hello") && has(&server, "bye");
        if (done && !whole) fail_msg("without a failure: %s", client.got);
        if (!whole && !client.ended && !has(&client, "HTTP/1.1 4") && !has(&client, "HTTP/1.1 5")) fail_msg("call %u: hangs", at);
        // Whatever fails, each request that reached the server has its credentials.
        for (const char *line = server.got; (line = strstr(line, " HTTP/1.1\r\n")); line++)
            if (!strstr(line, VALUES)) fail_msg("call %u: %s", at, server.got);
        tls_peer_close(&client, true);
        tls_peer_close(&server, true);
        turn();
        LIST_FOREACH(&gate.flows, node) flow_end(LIST_ENTRY(node, struct flow, link), true);
        turn();
        if (done) assert_in_range(at, 20, 2000);
    }
}

int main(void) {
    struct error err = {0};
    signal(SIGPIPE, SIG_IGN);
    event_set_mem_functions(__wrap_malloc, __wrap_realloc, free);
    if (vault_client_init(&err) < 0) return 1;
    root = tls_identity_new("Upstream CA", NULL, 10);
    inner_root = tls_identity_new("Inner CA", NULL, 10);
    good = tls_identity_new("bound.test", &root, 5);
    other = tls_identity_new("other.test", &root, 5);
    expired = tls_identity_new("bound.test", &root, -1);
    unknown = tls_identity_new("bound.test", &inner_root, 5);
    inner = tls_identity_new("bound.test", &inner_root, 5);
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_requests),      TEST(test_other_names),      TEST(test_no_credential),    TEST(test_no_leaf),
        TEST(test_wrong_servers), TEST(test_ends_early),       TEST(test_early_answer),     TEST(test_expectation_unmet),
        TEST(test_answers),       TEST(test_expectation_met),  TEST(test_tunnel),           TEST(test_scrub),
        TEST(test_idle_end),      TEST(test_memory_fails),     TEST(test_client_certificate_wanted),
        TEST(test_expectation_ignored), TEST(test_rewritten),   TEST(test_scrub_upgrade),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    struct tls_identity *all[] = {&root, &inner_root, &good, &other, &expired, &unknown, &inner};
    for (size_t i = 0; i < ARRAY_LENGTH(all); i++) tls_identity_done(all[i]);
    return failed;
}
