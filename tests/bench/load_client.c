// SPDX-License-Identifier: Apache-2.0
// The load of the benchmarks: load_client MODE -c CONNECTIONS -d MILLISECONDS [-n NAME] [-a ADDRESS] [-p PORT]
//
//   rate  connect, one ClientHello, read the answer to its end, close; CONNECTIONS in flight all the time
//   down  read on each connection; up: write; for that time
//   idle  open CONNECTIONS, wait for each one's answer, say so, hold them until a line comes on standard input
//
// NAME is resolved once by the system's resolver, unless an ADDRESS is given, and is the server name of the ClientHello in
// any case. One thread, one epoll set. The result is one line of JSON. Times are microseconds from the call of connect().
// The server closes first, so that no TIME_WAIT stays here.
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/number.h"

#define EVENTS 256
#define SAMPLES_MAX 1000000U
#define IDLE_BATCH 64 // connections that are being opened at a time
#define HELLO_SIZE 410

enum mode { MODE_RATE, MODE_DOWN, MODE_UP, MODE_IDLE };
static const char *const mode_names[] = {"rate", "down", "up", "idle"};

enum state { STATE_CONNECTING, STATE_ASKED, STATE_ANSWERED };

struct connection {
    int fd;
    enum state state;
    uint64_t start_us;
};

struct load {
    enum mode mode;
    uint32_t wanted, started, answered, failed;
    uint64_t duration_us, bytes;
    struct sockaddr_in to;
    int epoll;
    struct connection *connections;
    uint8_t hello[HELLO_SIZE];
    uint32_t connect_count, first_count;
    uint32_t *connect_us, *first_us; // samples
};

static uint8_t block[262144];

static void die(const char *what) {
    fprintf(stderr, "load_client: %s: %s\n", what, strerror(errno));
    exit(1);
}

// ---- the ClientHello: TLS 1.3 with usual extensions, padded to a usual size ----

struct writer {
    uint8_t *at;
};

static void put8(struct writer *writer, unsigned value) { *writer->at++ = (uint8_t)value; }
static void put16(struct writer *writer, unsigned value) {
    put8(writer, value >> 8);
    put8(writer, value & 255);
}
static void fill(struct writer *writer, unsigned count, unsigned step) {
    for (unsigned i = 0; i < count; i++) put8(writer, i * step);
}
static void extension(struct writer *writer, unsigned type, const char *bytes, unsigned len) {
    put16(writer, type);
    put16(writer, len);
    memcpy(writer->at, bytes, len);
    writer->at += len;
}

static void hello_extensions(struct writer *writer, const char *name) {
    unsigned len = (unsigned)strlen(name);
    put16(writer, 0); // server_name
    put16(writer, len + 5);
    put16(writer, len + 3);
    put8(writer, 0);
    put16(writer, len);
    memcpy(writer->at, name, len);
    writer->at += len;
    extension(writer, 10, "\0\2\0\x1d", 4);                   // groups: x25519
    extension(writer, 13, "\0\6\4\3\x8\4\4\1", 8);            // signatures
    extension(writer, 43, "\4\3\4\3\3", 5);                   // versions
    extension(writer, 16, "\0\xc\2h2\x8http/1.1", 14);        // ALPN
    put16(writer, 51);                                        // key share
    put16(writer, 38);
    put16(writer, 36);
    put16(writer, 0x1d);
    put16(writer, 32);
    fill(writer, 32, 3);
}

static void hello_make(uint8_t *hello, const char *name) {
    if (strlen(name) > 100) die("the name is too long");
    struct writer writer = {hello};
    put8(&writer, 22);
    put16(&writer, 0x0301);
    put16(&writer, HELLO_SIZE - 5);
    put16(&writer, 0x0100); // client_hello, 24 bits of length
    put16(&writer, HELLO_SIZE - 9);
    put16(&writer, 0x0303);
    fill(&writer, 32, 7);
    put8(&writer, 32);
    fill(&writer, 32, 5);
    put16(&writer, 4); // cipher suites
    put16(&writer, 0x1301);
    put16(&writer, 0x1302);
    put16(&writer, 0x0100); // no compression
    put16(&writer, (unsigned)(hello + HELLO_SIZE - writer.at - 2));
    hello_extensions(&writer, name);
    put16(&writer, 21); // padding
    put16(&writer, (unsigned)(hello + HELLO_SIZE - writer.at - 2));
    memset(writer.at, 0, (size_t)(hello + HELLO_SIZE - writer.at));
}

// ---- connections ----

static void watch(struct load *load, struct connection *connection, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = connection};
    if (epoll_ctl(load->epoll, operation, connection->fd, &event) < 0) die("epoll_ctl");
}

static void open_connection(struct load *load, struct connection *connection) {
    int one = 1;
    connection->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connection->fd < 0) die("socket");
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    connection->state = STATE_CONNECTING;
    connection->start_us = clock_us();
    if (connect(connection->fd, (struct sockaddr *)&load->to, sizeof(load->to)) < 0 && errno != EINPROGRESS) die("connect");
    watch(load, connection, EPOLL_CTL_ADD, EPOLLOUT);
}

static void open_next(struct load *load) {
    if (load->started < load->wanted) open_connection(load, &load->connections[load->started++]);
}

static void close_connection(struct load *load, struct connection *connection, bool failed) {
    load->failed += failed;
    close(connection->fd);
    connection->fd = -1;
    if (load->mode == MODE_RATE) open_connection(load, connection);
}

static void sample(uint32_t *samples, uint32_t *count, uint64_t since_us) {
    if (*count < SAMPLES_MAX) samples[(*count)++] = (uint32_t)(clock_us() - since_us);
}

static void connected(struct load *load, struct connection *connection) {
    int error = 0;
    socklen_t len = sizeof(error);
    getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &len);
    if (error == 0) sample(load->connect_us, &load->connect_count, connection->start_us);
    if (error != 0 || send(connection->fd, load->hello, HELLO_SIZE, MSG_NOSIGNAL) != HELLO_SIZE) {
        close_connection(load, connection, true);
        return;
    }
    connection->state = STATE_ASKED;
    watch(load, connection, EPOLL_CTL_MOD, load->mode == MODE_UP ? EPOLLOUT : EPOLLIN);
}

static void writable(struct load *load, struct connection *connection) {
    ssize_t sent = send(connection->fd, block, sizeof(block), MSG_NOSIGNAL);
    if (sent > 0) load->bytes += (uint64_t)sent;
    else if (errno != EAGAIN) close_connection(load, connection, true);
}

static void readable(struct load *load, struct connection *connection) {
    // Bytes of a download are counted, not copied, so that the client is not what limits.
    ssize_t got = recv(connection->fd, block, sizeof(block), load->mode == MODE_DOWN ? MSG_TRUNC : 0);
    if (got > 0) {
        load->bytes += (uint64_t)got;
        if (connection->state == STATE_ASKED) {
            connection->state = STATE_ANSWERED;
            load->answered++;
            sample(load->first_us, &load->first_count, connection->start_us);
            if (load->mode == MODE_IDLE) open_next(load);
        }
    } else if (got == 0 || errno != EAGAIN) {
        close_connection(load, connection, load->mode != MODE_RATE || connection->state != STATE_ANSWERED);
    }
}

static void serve(struct load *load, int timeout_ms) {
    struct epoll_event events[EVENTS];
    int count = epoll_wait(load->epoll, events, EVENTS, timeout_ms);
    for (int i = 0; i < count; i++) {
        struct connection *connection = events[i].data.ptr;
        if (connection->fd < 0) continue;
        if (connection->state == STATE_CONNECTING) connected(load, connection);
        else if (load->mode == MODE_UP && (events[i].events & EPOLLOUT)) writable(load, connection);
        else readable(load, connection);
    }
}

// ---- results ----

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static uint32_t quantile(const uint32_t *sorted, uint32_t count, unsigned percent) {
    return count ? sorted[(uint64_t)(count - 1) * percent / 100] : 0;
}

static void report(struct load *load, uint64_t elapsed_us) {
    qsort(load->connect_us, load->connect_count, sizeof(uint32_t), compare);
    qsort(load->first_us, load->first_count, sizeof(uint32_t), compare);
    printf("{\"answered\": %u, \"failed\": %u, \"rate\": %.1f, \"gbit\": %.3f, \"gigabytes\": %.4f, \"connect_p50\": %u, "
           "\"first_p50\": %u, \"first_p99\": %u}\n",
           load->answered, load->failed, (double)load->answered * 1e6 / (double)elapsed_us,
           (double)load->bytes * 8 / 1e3 / (double)elapsed_us, (double)load->bytes / 1e9,
           quantile(load->connect_us, load->connect_count, 50), quantile(load->first_us, load->first_count, 50),
           quantile(load->first_us, load->first_count, 99));
    fflush(stdout);
}

static void run(struct load *load) {
    uint64_t start_us = clock_us(), now;
    uint32_t first = load->mode == MODE_IDLE && load->wanted > IDLE_BATCH ? IDLE_BATCH : load->wanted;
    for (uint32_t i = 0; i < first; i++) open_next(load);
    while ((now = clock_us()) - start_us < load->duration_us) {
        if (load->mode == MODE_IDLE && load->answered + load->failed >= load->wanted) break;
        serve(load, 50);
    }
    report(load, now - start_us);
    char byte = 0;
    while (load->mode == MODE_IDLE && read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n') continue;
}

static void resolve(struct load *load, const char *name, const char *address) {
    if (address) {
        if (inet_pton(AF_INET, address, &load->to.sin_addr) != 1) die("not an IPv4 address");
        return;
    }
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    int rc = getaddrinfo(name, NULL, &hints, &found);
    if (rc != 0) {
        fprintf(stderr, "load_client: %s: %s\n", name, gai_strerror(rc));
        exit(1);
    }
    memcpy(&load->to.sin_addr, &((struct sockaddr_in *)(void *)found->ai_addr)->sin_addr, sizeof(load->to.sin_addr));
    freeaddrinfo(found);
}

static uint64_t number(const char *text) {
    uint64_t value;
    if (number_parse(text, strlen(text), 1, 1000000, &value) < 0) die(text);
    return value;
}

int main(int argc, char **argv) {
    static struct load load = {.wanted = 1, .duration_us = 1000000, .to = {.sin_family = AF_INET}};
    const char *name = "rate.example", *address = NULL;
    uint64_t port = 443;
    bool known = false;
    for (size_t i = 0; argc > 1 && i < ARRAY_LENGTH(mode_names); i++) {
        if (strcmp(argv[1], mode_names[i]) != 0) continue;
        load.mode = (enum mode)i;
        known = true;
    }
    for (int option; known && (option = getopt(argc - 1, argv + 1, "c:d:n:a:p:")) >= 0;) {
        if (option == 'c') load.wanted = (uint32_t)number(optarg);
        else if (option == 'd') load.duration_us = number(optarg) * 1000;
        else if (option == 'n') name = optarg;
        else if (option == 'a') address = optarg;
        else if (option == 'p') port = number(optarg);
        else known = false;
    }
    if (!known) {
        fputs("usage: load_client rate|down|up|idle -c CONNECTIONS -d MILLISECONDS [-n NAME] [-a ADDRESS] [-p PORT]\n", stderr);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    load.to.sin_port = htons((uint16_t)port);
    resolve(&load, name, address);
    hello_make(load.hello, name);
    load.epoll = epoll_create1(EPOLL_CLOEXEC);
    load.connections = NEW_ARRAY(struct connection, load.wanted);
    load.connect_us = NEW_ARRAY(uint32_t, SAMPLES_MAX);
    load.first_us = NEW_ARRAY(uint32_t, SAMPLES_MAX);
    if (load.epoll < 0 || !load.connections || !load.connect_us || !load.first_us) die("out of memory");
    run(&load);
    return 0;
}
