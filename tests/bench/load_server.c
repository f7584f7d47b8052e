// SPDX-License-Identifier: Apache-2.0
// The other end of load_client: load_server PORT. A word in the first bytes says what a connection is for: "down." streams
// until the client closes, "up." swallows, "idle." answers and holds; any other is answered and closed.
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/number.h"

#define EVENTS 256
#define ACCEPTS 64 // a turn
#define BACKLOG 4096

enum task { TASK_ASK, TASK_DOWN, TASK_UP, TASK_IDLE };

struct connection {
    int fd;
    enum task task;
};

static const char answer[] = "HTTP/1.1 200 OK\r\nServer: b\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n"
                             "Connection: close\r\n\r\n1234567\n";
static char block[262144];

static void die(const char *what) {
    fprintf(stderr, "load_server: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void watch(int epoll, int operation, struct connection *connection, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = connection};
    if (epoll_ctl(epoll, operation, connection->fd, &event) < 0) die("epoll_ctl");
}

static void take(int epoll, int listener) {
    for (int i = 0; i < ACCEPTS; i++) {
        int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        struct connection *connection = fd >= 0 ? NEW(struct connection) : NULL;
        if (!connection) return;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        connection->fd = fd;
        watch(epoll, EPOLL_CTL_ADD, connection, EPOLLIN);
    }
}

// False: the connection is over.
static bool ask(int epoll, struct connection *connection, size_t len) {
    if (memmem(block, len, "down.", 5)) {
        connection->task = TASK_DOWN;
        watch(epoll, EPOLL_CTL_MOD, connection, EPOLLOUT);
    } else if (memmem(block, len, "up.", 3)) {
        connection->task = TASK_UP;
    } else {
        if (memmem(block, len, "idle.", 5)) connection->task = TASK_IDLE;
        if (send(connection->fd, answer, sizeof(answer) - 1, MSG_NOSIGNAL) < 0) return false;
        return connection->task == TASK_IDLE;
    }
    return true;
}

static bool serve(int epoll, struct connection *connection, uint32_t events) {
    if (connection->task == TASK_DOWN) {
        bool good = send(connection->fd, block, sizeof(block), MSG_NOSIGNAL) >= 0 || errno == EAGAIN;
        return good && !(events & (EPOLLHUP | EPOLLERR));
    }
    ssize_t got = recv(connection->fd, block, sizeof(block), connection->task == TASK_UP ? MSG_TRUNC : 0);
    if (got <= 0) return got < 0 && errno == EAGAIN;
    return connection->task != TASK_ASK || ask(epoll, connection, (size_t)got);
}

static int listen_on(uint16_t port) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port)};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof(here)) < 0 || listen(fd, BACKLOG) < 0) die("listen");
    return fd;
}

int main(int argc, char **argv) {
    uint64_t port;
    if (argc != 2 || number_parse(argv[1], strlen(argv[1]), 1, 65535, &port) < 0) {
        fputs("usage: load_server PORT\n", stderr);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    struct connection listener = {.fd = listen_on((uint16_t)port)};
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0) die("epoll");
    watch(epoll, EPOLL_CTL_ADD, &listener, EPOLLIN);
    for (;;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;
            if (connection == &listener) {
                take(epoll, listener.fd);
            } else if (!serve(epoll, connection, events[i].events)) {
                close(connection->fd);
                free(connection);
            }
        }
    }
}
