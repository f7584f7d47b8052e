// SPDX-License-Identifier: Apache-2.0
// The caller's terminal is opened once more, so that not to wait for it is a setting of ours alone. While we are in its
// foreground it is raw: every key is the inner terminal's to interpret. In the background nothing is read.
#include "daemon/terminal.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

#define TERMINAL_LAST_US 2000000 // for a caller's terminal that takes no more at the end

struct terminal_way {
    struct terminal *terminal;
    struct event *readable, *writable;
    int from, to;
    char bytes[8192];
    size_t len;
};

struct terminal {
    struct terminal_way in, out;
    struct termios before; // of the caller's
    int outer, inner, slave;
    bool typed, raw;       // typed: standard input is a terminal
};

// ---- both ways ----

static void way_write(struct terminal_way *way) {
    ssize_t written = write(way->to, way->bytes, way->len);
    if (written < 0 && errno != EAGAIN && errno != EINTR) written = (ssize_t)way->len; // nobody is there
    if (written > 0) memmove(way->bytes, way->bytes + written, way->len -= (size_t)written);
}

// Reads when there is room, writes when there is something.
static void way_watch(struct terminal_way *way) {
    if (way->len > 0) {
        event_del(way->readable);
        event_add(way->writable, NULL);
    } else {
        event_del(way->writable);
        event_add(way->readable, NULL);
    }
}

static bool way_read(struct terminal_way *way) {
    ssize_t got = read(way->from, way->bytes, sizeof(way->bytes));
    if (got > 0) way->len = (size_t)got;
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

static void way_ready(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    struct terminal_way *way = data;
    if ((what & EV_READ) && !way_read(way)) {
        event_del(way->readable); // it has ended
        return;
    }
    if (way->len > 0) way_write(way);
    way_watch(way);
}

static bool way_open(struct terminal_way *way, struct event_base *base, struct terminal *terminal, int from, int to) {
    way->terminal = terminal;
    way->from = from;
    way->to = to;
    way->readable = event_new(base, from, EV_READ | EV_PERSIST, way_ready, way);
    way->writable = event_new(base, to, EV_WRITE | EV_PERSIST, way_ready, way);
    return way->readable && way->writable;
}

static void way_close(struct terminal_way *way) {
    if (way->readable) event_free(way->readable);
    if (way->writable) event_free(way->writable);
}

// ---- the caller's terminal ----

static bool terminal_is_ours(const struct terminal *terminal) { return tcgetpgrp(terminal->outer) == getpgrp(); }

static void terminal_set_raw(struct terminal *terminal) {
    if (!terminal->typed) return;
    if (!terminal_is_ours(terminal)) {
        event_del(terminal->in.readable);
        return;
    }
    struct termios raw = terminal->before;
    cfmakeraw(&raw);
    terminal->raw = tcsetattr(terminal->outer, TCSADRAIN, &raw) == 0;
    if (terminal->raw) way_watch(&terminal->in);
}

void terminal_adapt(struct terminal *terminal) {
    struct winsize size;
    if (ioctl(terminal->outer, TIOCGWINSZ, &size) == 0) ioctl(terminal->inner, TIOCSWINSZ, &size);
    terminal_set_raw(terminal);
}

static int terminal_outer(int fd) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int outer = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    return outer >= 0 ? outer : fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

static int terminal_inner(struct terminal *terminal) {
    struct winsize size;
    terminal->inner = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (terminal->inner < 0 || grantpt(terminal->inner) < 0 || unlockpt(terminal->inner) < 0) return -errno;
    terminal->slave = ioctl(terminal->inner, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (terminal->slave < 0 || tcgetattr(terminal->outer, &terminal->before) < 0) return -errno;
    tcsetattr(terminal->slave, TCSANOW, &terminal->before);
    if (ioctl(terminal->outer, TIOCGWINSZ, &size) == 0) ioctl(terminal->inner, TIOCSWINSZ, &size);
    return fcntl(terminal->inner, F_SETFL, O_RDWR | O_NONBLOCK) < 0 ? -errno : 0;
}

// ---- from start to end ----

static int terminal_of(void) {
    static const int order[] = {STDOUT_FILENO, STDERR_FILENO, STDIN_FILENO};
    for (size_t i = 0; i < ARRAY_LENGTH(order); i++)
        if (isatty(order[i])) return order[i];
    return -1;
}

int terminal_open(struct event_base *base, int ret_streams[3], struct terminal **ret_terminal, struct error *err) {
    int ours = terminal_of();
    for (int i = 0; i < 3; i++) ret_streams[i] = i;
    *ret_terminal = NULL;
    if (ours < 0) return 0;
    struct terminal *terminal = NEW(struct terminal);
    if (!terminal) return error_set(err, -ENOMEM, "out of memory");
    *terminal = (struct terminal){.outer = terminal_outer(ours), .inner = -1, .slave = -1, .typed = isatty(STDIN_FILENO)};
    int rc = terminal->outer < 0 ? -errno : terminal_inner(terminal);
    if (rc == 0 && (!way_open(&terminal->in, base, terminal, terminal->outer, terminal->inner) ||
                    !way_open(&terminal->out, base, terminal, terminal->inner, terminal->outer)))
        rc = -ENOMEM;
    if (rc < 0) {
        terminal_close(terminal);
        return error_set(err, rc, "no terminal for the sandbox: %s", strerror(-rc));
    }
    for (int i = 0; i < 3; i++)
        if (isatty(i)) ret_streams[i] = terminal->slave;
    *ret_terminal = terminal;
    return 0;
}

void terminal_begin(struct terminal *terminal) {
    close(TAKE_FD(terminal->slave));
    way_watch(&terminal->out);
    terminal_set_raw(terminal);
}

// Until every end inside is closed.
static void terminal_drain(struct terminal *terminal) {
    struct terminal_way *way = &terminal->out;
    for (uint64_t end = clock_us() + TERMINAL_LAST_US; clock_us() < end;) {
        struct pollfd item = {.fd = way->len > 0 ? way->to : way->from, .events = way->len > 0 ? POLLOUT : POLLIN};
        if (poll(&item, 1, 100) < 0 && errno != EINTR) return;
        if (way->len > 0) way_write(way);
        else if (!way_read(way)) return;
    }
}

void terminal_close(struct terminal *terminal) {
    if (!terminal) return;
    mem_close_pointer(&terminal->slave);
    if (terminal->out.writable) terminal_drain(terminal);
    if (terminal->raw && terminal_is_ours(terminal)) tcsetattr(terminal->outer, TCSADRAIN, &terminal->before);
    way_close(&terminal->in);
    way_close(&terminal->out);
    mem_close_pointer(&terminal->inner);
    mem_close_pointer(&terminal->outer);
    free(terminal);
}
