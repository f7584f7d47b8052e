// SPDX-License-Identifier: Apache-2.0
// Streams, plain and TLS, against another end that is slow, ends in each possible way, or sends nonsense.
#include "tls_peer.h"

#include <event2/buffer.h>
#include <event2/event.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/meter.h"
#include "gate/stream.h"

// gate/tls_calls.h gives OpenSSL's functions other names, which this file needs as they are.
int tls_calls_load(struct error *err);

struct end { // what the handlers of one stream were told
    struct stream *stream;
    unsigned readable, written, ended;
    int error;
    bool inside; // a function of stream.h is running
    bool keeps;  // the input is not taken
    size_t most; // bytes that were in the input at most
    char got[400000];
    size_t len;
};

static struct event_base *base;
static struct end end;
static struct tls_peer peer;
static struct tls_identity identity;

static void on_readable(struct stream *stream, void *data) {
    struct end *told = data;
    struct evbuffer *input = stream_input(stream);
    assert_false(told->inside);
    told->readable++;
    if (evbuffer_get_length(input) > told->most) told->most = evbuffer_get_length(input);
    if (told->keeps) return;
    size_t room = sizeof(told->got) - told->len;
    told->len += (size_t)evbuffer_remove(input, told->got + told->len, room);
}

static void on_written(struct stream *stream, void *data) {
    struct end *told = data;
    assert_false(told->inside);
    assert_int_equal(evbuffer_get_length(stream_output(stream)), 0);
    told->written++;
}

static void on_ended(struct stream *stream, int error, void *data) {
    struct end *told = data;
    (void)stream;
    assert_false(told->inside);
    told->ended++;
    told->error = error;
}

static const struct stream_handlers handlers = {on_readable, on_written, on_ended};

static void turn(void) {
    for (int i = 0; i < 8; i++) {
        event_base_loop(base, EVLOOP_NONBLOCK);
        tls_peer_step(&peer);
    }
}

static bool push(void) {
    end.inside = true;
    bool good = stream_push(end.stream);
    end.inside = false;
    return good;
}

static bool read_on(bool wanted) {
    end.inside = true;
    bool good = stream_read(end.stream, wanted);
    end.inside = false;
    return good;
}

// A stream whose other end is the peer. In TLS the handshake is done.
static void start(bool tls, unsigned idle_ms) {
    memset(&end, 0, sizeof(end));
    int fd = tls_peer_pair(&peer);
    SSL *ssl = NULL;
    SSL_CTX *context = NULL;
    if (tls) {
        context = SSL_CTX_new(TLS_server_method());
        SSL_CTX_use_certificate(context, identity.certificate);
        SSL_CTX_use_PrivateKey(context, identity.key);
        SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
        SSL_CTX_set_num_tickets(context, 0);
        SSL_CTX_set_read_ahead(context, 1);
        ssl = SSL_new(context);
        SSL_CTX_free(context);
        SSL_set_fd(ssl, fd);
        tls_peer_tls(&peer, false, NULL);
        for (int i = 0; i < 4; i++) {
            tls_peer_step(&peer);
            SSL_accept(ssl);
        }
        assert_true(peer.done);
        assert_true(SSL_is_init_finished(ssl));
    }
    end.stream = stream_new(base, fd, ssl, idle_ms, &handlers, &end);
    assert_non_null(end.stream);
}

static void stop(bool reset) {
    stream_free(end.stream, reset);
    end.stream = NULL;
    event_base_loop(base, EVLOOP_NONBLOCK);
    tls_peer_close(&peer, false);
}

static void converses(bool tls) {
    start(tls, 10000);
    tls_peer_say(&peer, "early", 5);
    turn();
    assert_int_equal(end.readable, 0); // nothing is read before it is wanted
    assert_true(read_on(true));
    turn();
    assert_int_equal(end.len, 5);
    evbuffer_add(stream_output(end.stream), "head ", 5);
    struct evbuffer *more = evbuffer_new();
    evbuffer_add(more, "body", 4);
    evbuffer_add_buffer(stream_output(end.stream), more);
    evbuffer_free(more);
    assert_true(push());
    assert_int_equal(evbuffer_get_length(stream_output(end.stream)), 0); // at once
    turn();
    assert_int_equal(peer.reads, 1); // one record
    assert_memory_equal(peer.got, "head body", 9);
    assert_int_equal(end.written, 0); // nothing had to wait
    // Half-closed by the peer: told once, and the other direction works.
    if (tls) SSL_shutdown(peer.ssl);
    shutdown(peer.fd, SHUT_WR);
    turn();
    assert_int_equal(end.ended, 1);
    assert_int_equal(end.error, 0);
    evbuffer_add(stream_output(end.stream), "more", 4);
    assert_true(push());
    turn();
    assert_int_equal(peer.len, 13);
    assert_true(stream_shut(end.stream));
    turn();
    assert_true(peer.notified);
    assert_int_equal(end.ended, 1);
    stop(false);
}

static void test_plain_converses(void **state) { (void)state; converses(false); }
static void test_tls_converses(void **state) { (void)state; converses(true); }

static uint8_t pattern(size_t at) { return (uint8_t)(at * 31 + at / 251); }

static int wipes;
static void wiped(void *data) {
    (void)data;
    wipes++;
}

// More than the kernel takes: the rest goes out by itself, in order, with a secret in the middle that no buffer has.
static void secret_waits(bool tls) {
    enum { BEFORE = 300000, SECRET = 20000, AFTER = 30000 };
    static uint8_t bytes[BEFORE + SECRET + AFTER];
    start(tls, 10000);
    wipes = 0;
    for (size_t i = 0; i < sizeof(bytes); i++) bytes[i] = pattern(i);
    evbuffer_add(stream_output(end.stream), bytes, BEFORE);
    assert_true(push());
    assert_true(evbuffer_get_length(stream_output(end.stream)) > 0);
    end.inside = true;
    assert_true(stream_push_secret(end.stream, bytes + BEFORE, SECRET, wiped, NULL));
    assert_false(stream_push_secret(end.stream, bytes, 1, wiped, NULL)); // one at a time
    end.inside = false;
    assert_int_equal(wipes, 1); // of the second
    evbuffer_add(stream_output(end.stream), bytes + BEFORE + SECRET, AFTER);
    assert_true(push());
    for (int i = 0; i < 200 && peer.len < sizeof(bytes); i++) turn();
    assert_int_equal(peer.len, sizeof(bytes));
    assert_memory_equal(peer.got, bytes, sizeof(bytes));
    assert_int_equal(wipes, 2);
    assert_int_equal(end.written, 1);
    // Freed while one waits.
    for (int i = 0; i < 8; i++) evbuffer_add(stream_output(end.stream), bytes, BEFORE);
    assert_true(push());
    assert_true(stream_push_secret(end.stream, bytes, SECRET, wiped, NULL));
    stop(true);
    assert_int_equal(wipes, 3);
}

static void test_plain_secret(void **state) { (void)state; secret_waits(false); }
static void test_tls_secret(void **state) { (void)state; secret_waits(true); }

// What is read is bounded, and what OpenSSL has already is not forgotten.
static void bounded(bool tls) {
    enum { ALL = 200000 };
    static uint8_t bytes[ALL];
    start(tls, 10000);
    for (size_t i = 0; i < sizeof(bytes); i++) bytes[i] = pattern(i);
    int large = ALL * 4;
    setsockopt(peer.fd, SOL_SOCKET, SO_SNDBUF, &large, sizeof(large));
    tls_peer_say(&peer, bytes, ALL);
    end.keeps = true;
    assert_true(read_on(true));
    turn();
    assert_in_range(end.most, 16384, STREAM_INPUT_MAX);
    size_t sum = 0;
    for (int i = 0; i < 5000 && sum < ALL; i++) { // a little at a time: reading stops and goes on
        uint8_t piece[997];
        int got = evbuffer_remove(stream_input(end.stream), piece, sizeof(piece));
        assert_true(got >= 0);
        assert_memory_equal(piece, bytes + sum, (size_t)got);
        sum += (size_t)got;
        assert_true(read_on(i % 3 != 0));
        event_base_loop(base, EVLOOP_NONBLOCK);
    }
    assert_int_equal(sum, ALL);
    assert_in_range(end.most, 1, STREAM_INPUT_MAX);
    stop(false);
}

static void test_plain_bounded(void **state) { (void)state; bounded(false); }
static void test_tls_bounded(void **state) { (void)state; bounded(true); }

static void test_tls_cut_short(void **state) {
    (void)state;
    start(true, 10000);
    assert_true(read_on(true));
    tls_peer_say(&peer, "last", 4);
    shutdown(peer.fd, SHUT_WR); // no close_notify
    turn();
    assert_int_equal(end.len, 4); // told before the end
    assert_int_equal(end.ended, 1);
    assert_int_equal(end.error, -EPROTO);
    evbuffer_add(stream_output(end.stream), "x", 1);
    assert_true(push());
    assert_int_equal(evbuffer_get_length(stream_output(end.stream)), 0); // to nowhere
    turn();
    assert_int_equal(end.ended, 1);
    stop(false);
}

static void test_tls_nonsense(void **state) {
    (void)state;
    start(true, 10000);
    assert_true(read_on(true));
    assert_int_equal(send(peer.fd, "\x17\x03\x03\x00\x20nonsense nonsense nonsense nonse", 37, 0), 37);
    turn();
    assert_int_equal(end.ended, 1);
    assert_int_equal(end.error, -EPROTO);
    stop(false);
    assert_int_equal(end.readable, 0);
}

// A write that fails is told later, and only after the peer's last words.
static void test_last_words(void **state) {
    (void)state;
    start(false, 10000);
    tls_peer_say(&peer, "413", 3);
    tls_peer_close(&peer, false);
    evbuffer_add(stream_output(end.stream), "body", 4);
    assert_true(push());
    assert_int_equal(end.ended, 0);
    event_base_loop(base, EVLOOP_NONBLOCK);
    event_base_loop(base, EVLOOP_NONBLOCK);
    assert_int_equal(end.len, 3);
    assert_int_equal(end.ended, 1);
    stop(false);
}

static void test_idle(void **state) {
    (void)state;
    start(false, 30);
    assert_true(read_on(true));
    for (int i = 0; i < 4; i++) { // what moves keeps it
        usleep(15000);
        tls_peer_say(&peer, "x", 1);
        turn();
    }
    assert_int_equal(end.ended, 0);
    for (int i = 0; i < 50 && !end.ended; i++) {
        usleep(10000);
        turn();
    }
    assert_int_equal(end.error, -ETIMEDOUT);
    stop(true);
}

// An end that the owner did not finish is no orderly one; one that it did is.
static void test_tls_end(void **state) {
    (void)state;
    start(true, 10000);
    stream_free(end.stream, false);
    turn();
    assert_true(peer.notified);
    tls_peer_close(&peer, false);
    start(true, 10000);
    stream_free(end.stream, true);
    turn();
    assert_true(peer.failed);
    tls_peer_close(&peer, false);
}

// ---- limits ----

static struct event *meter_event;

static void meter_due(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    meter_serve(data);
}

static void meter_wake(uint64_t delay_us, void *data) {
    (void)data;
    struct timeval after = {.tv_sec = (time_t)(delay_us / 1000000), .tv_usec = (suseconds_t)(delay_us % 1000000)};
    event_add(meter_event, &after);
}

// At the rate, whole, asleep in between, and to the byte of the budget.
static void metered(bool tls, size_t budget) {
    enum { ALL = 40000, RATE = 200000 }; // of which 10000 come at once
    static const struct meter_callbacks callbacks = {.wake = meter_wake};
    static uint8_t bytes[ALL];
    struct meter meter;
    start(tls, 10000);
    for (size_t i = 0; i < ALL; i++) bytes[i] = pattern(i);
    meter_init(&meter, 0, &callbacks);
    meter_event = evtimer_new(base, meter_due, &meter);
    meter_limit(&meter, RATE, budget ? budget : METER_NONE);
    stream_meter(end.stream, &meter, METER_OUT);
    size_t expected = budget ? budget : ALL;
    tls_peer_say(&peer, bytes, ALL);
    assert_true(read_on(true));
    uint64_t begin = clock_us();
    unsigned turns = 0;
    for (; end.len < expected && turns < 3000; turns++) {
        tls_peer_step(&peer);
        event_base_loop(base, EVLOOP_ONCE);
    }
    assert_int_equal(end.len, expected);
    assert_memory_equal(end.got, bytes, expected);
    assert_true(meter.used[METER_OUT] == expected);
    assert_true(clock_us() - begin > (expected - RATE / 20) * 9 / 10 * 1000000 / RATE && turns < 500);
    for (int i = 0; budget && i < 100 && !end.ended; i++) event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    if (budget) assert_int_equal(end.error, -EDQUOT);
    if (budget) assert_int_equal(end.len, expected);
    stop(true);
    assert_int_equal(meter.paths[METER_OUT].count, 0);
    event_free(meter_event);
}

static void test_plain_rate(void **state) { (void)state; metered(false, 0); }
static void test_tls_rate(void **state) { (void)state; metered(true, 0); }
static void test_plain_budget(void **state) { (void)state; metered(false, 20001); }
static void test_tls_budget(void **state) { (void)state; metered(true, 20001); }

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    struct error err = {0};
    if (tls_calls_load(&err) < 0) return 1;
    base = event_base_new();
    identity = tls_identity_new("one.test", NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_converses), cmocka_unit_test(test_tls_converses), cmocka_unit_test(test_plain_secret),
        cmocka_unit_test(test_tls_secret),      cmocka_unit_test(test_plain_bounded), cmocka_unit_test(test_tls_bounded),
        cmocka_unit_test(test_tls_cut_short),   cmocka_unit_test(test_tls_nonsense),  cmocka_unit_test(test_last_words),
        cmocka_unit_test(test_idle),            cmocka_unit_test(test_tls_end),       cmocka_unit_test(test_plain_rate),
        cmocka_unit_test(test_tls_rate),        cmocka_unit_test(test_plain_budget),  cmocka_unit_test(test_tls_budget),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tls_identity_done(&identity);
    event_base_free(base);
    return failed;
}
