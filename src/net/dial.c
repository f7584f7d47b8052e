// SPDX-License-Identifier: Apache-2.0
// Dialling: staggered connection attempts to judged addresses (RFC 8305 section 5), one deadline for all of them.
//
// Attempts start in the order given: the next one when the one before failed, or when it has been silent for the stagger.
// The first that connects wins and the others are closed. Nothing is reported from inside dial_start: a result that is
// known at once waits for the timer, which is made due.
//
// The last guard against reaching the host itself (semantics section 2) sits here, because only a connected socket knows:
// a connection whose local address is its peer's, or is loopback without leave, is reset before a byte is sent.
#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/net.h"

#define DIAL_ADDRESSES_MAX 16

struct dial_attempt {
    struct dial *dial;
    struct event event;
    int fd; // -1: not started or over
    bool connected; // connect said so
    struct addr address;
};

struct dial {
    struct event_base *base;
    struct event timer;      // the stagger, the deadline, or due at once when finished
    struct dial_options options;
    dial_done *done;
    void *data;
    uint64_t deadline_us, next_us; // next_us: when the next attempt may start beside the others
    size_t count, started, open;   // open: attempts in progress
    uint16_t port;
    bool finished;
    int result_fd, error;
    struct addr peer;
    struct dial_attempt attempts[]; // count
};

static void dial_attempt_close(struct dial_attempt *attempt) {
    if (attempt->fd < 0) return;
    event_del(&attempt->event);
    close(attempt->fd);
    attempt->fd = -1;
    attempt->dial->open--;
}

void dial_cancel(struct dial *dial) {
    if (!dial) return;
    event_del(&dial->timer);
    for (size_t i = 0; i < dial->started; i++) dial_attempt_close(&dial->attempts[i]);
    if (dial->result_fd >= 0) close(dial->result_fd);
    free(dial);
}

static void dial_timer_in(struct dial *dial, uint64_t us) {
    struct timeval tv = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
    if (event_add(&dial->timer, &tv) == 0) return;
    // Without memory for its timer a dial would never end: it ends in this turn, which needs none.
    for (size_t i = 0; i < dial->started && !dial->finished; i++) dial_attempt_close(&dial->attempts[i]);
    if (!dial->finished) dial->error = -ENOMEM;
    dial->finished = true;
    event_active(&dial->timer, EV_TIMEOUT, 0);
}

// Remembers the outcome; the timer, due at once, reports it.
static void dial_finish(struct dial *dial, int fd, int error) {
    for (size_t i = 0; i < dial->started; i++) dial_attempt_close(&dial->attempts[i]);
    dial->result_fd = fd;
    dial->error = error;
    dial->finished = true;
    event_active(&dial->timer, EV_TIMEOUT, 0);
}

static void dial_options_set(int fd) {
    int one = 1;
    relay_prepare(fd);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
}

// Who answered: what was dialled. Only the unspecified address stands for another.
static int dial_peer(int fd, const struct addr *dialled, struct addr *ret_peer) {
    struct sockaddr_storage name = {0};
    socklen_t len = sizeof(name);
    uint16_t port;

    *ret_peer = *dialled;
    if (!addr_is_unspecified(dialled)) return 0;
    return getpeername(fd, (struct sockaddr *)&name, &len) < 0 ? -errno : addr_from_sockaddr((struct sockaddr *)&name, ret_peer, &port);
}

// 0, or why this connection must not be used.
static int dial_verify(const struct dial *dial, int fd, const struct addr *dialled, struct addr *ret_peer) {
    struct sockaddr_storage name = {0};
    socklen_t len = sizeof(name);
    struct addr local;
    uint16_t port;

    if (getsockname(fd, (struct sockaddr *)&name, &len) < 0) return -errno;
    int result = addr_from_sockaddr((struct sockaddr *)&name, &local, &port);
    if (result == 0) result = dial_peer(fd, dialled, ret_peer);
    if (result < 0) return result;
    bool same = addr_equal(&local, ret_peer);
    if (addr_is_loopback(&local)) {
        if (!dial->options.allow_loopback) return -EACCES;
        // TCP's simultaneous open with itself: nobody listens there.
        return same && port == dial->port ? -ECONNREFUSED : 0;
    }
    return same ? -EACCES : 0;
}

// One attempt reached its end: 0 or a negative errno of connect.
static void dial_attempt_end(struct dial_attempt *attempt, int error);
static void dial_advance(struct dial *dial);

static void dial_attempt_event(evutil_socket_t fd, short what, void *data) {
    struct dial_attempt *attempt = data;
    int error = 0;
    socklen_t len = sizeof(error);
    (void)what;
    if (!attempt->connected && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0) error = errno;
    dial_attempt_end(attempt, -error);
}

static void dial_attempt_end(struct dial_attempt *attempt, int error) {
    struct dial *dial = attempt->dial;
    if (error == 0) {
        error = dial_verify(dial, attempt->fd, &attempt->address, &dial->peer);
        if (error == 0) {
            event_del(&attempt->event);
            int fd = TAKE_FD(attempt->fd);
            dial->open--;
            dial_finish(dial, fd, 0);
            return;
        }
        struct linger now = {.l_onoff = 1, .l_linger = 0};
        setsockopt(attempt->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    }
    dial_attempt_close(attempt);
    dial->error = error;
    dial->next_us = 0; // a failure starts the next one at once
    dial_advance(dial);
}

// 0: in progress or over (dial_attempt_end was called); -EMFILE and the like: no socket could be had.
static int dial_attempt_start(struct dial *dial) {
    struct dial_attempt *attempt = &dial->attempts[dial->started];
    const struct addr *address = &attempt->address;
    struct sockaddr_storage to;
    socklen_t len = addr_to_sockaddr(address, dial->port, &to);

    dial->started++;
    if ((addr_is_loopback(address) || addr_is_unspecified(address)) && !dial->options.allow_loopback) {
        dial->error = -EACCES;
        return 0;
    }
    int fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0) {
        dial->error = -errno;
        return errno == EAFNOSUPPORT ? 0 : -errno;
    }
    dial_options_set(fd);
    int result = connect(fd, (struct sockaddr *)&to, len);
    // What is on this machine has answered by now: that is told by a second call, not by a turn of the loop.
    if (result < 0 && errno == EINPROGRESS) result = connect(fd, (struct sockaddr *)&to, len);
    bool waits = result < 0 && errno == EALREADY;
    if (result < 0 && !waits) {
        dial->error = -errno;
        close(fd);
        return 0;
    }
    attempt->fd = fd;
    attempt->connected = !waits;
    dial->open++;
    event_assign(&attempt->event, dial->base, fd, EV_WRITE, dial_attempt_event, attempt);
    if (!waits) {
        event_active(&attempt->event, EV_WRITE, 0);
    } else if (event_add(&attempt->event, NULL) < 0) {
        dial_attempt_close(attempt);
        dial->error = -ENOMEM;
    }
    return 0;
}

// Starts what is due, and sets the timer for what comes next.
static void dial_advance(struct dial *dial) {
    uint64_t now = clock_us();
    if (now >= dial->deadline_us) {
        dial_finish(dial, -1, -ETIMEDOUT);
        return;
    }
    while (dial->started < dial->count && (dial->open == 0 || now >= dial->next_us)) {
        dial_attempt_start(dial);
        dial->next_us = now + (uint64_t)dial->options.stagger_ms * 1000;
    }
    if (dial->open == 0) {
        dial_finish(dial, -1, dial->error);
        return;
    }
    uint64_t wake = dial->deadline_us;
    if (dial->started < dial->count && dial->next_us < wake) wake = dial->next_us;
    dial_timer_in(dial, wake > now ? wake - now : 0);
}

static void dial_timer_event(evutil_socket_t fd, short what, void *data) {
    struct dial *dial = data;
    (void)fd, (void)what;
    if (!dial->finished) {
        dial_advance(dial);
        return;
    }
    int result = dial->result_fd >= 0 ? TAKE_FD(dial->result_fd) : dial->error;
    struct addr peer = dial->peer;
    dial_done *done = dial->done;
    void *done_data = dial->data;
    dial_cancel(dial);
    done(result, result >= 0 ? &peer : NULL, done_data);
}

const struct addr *dial_address(const struct dial *dial, size_t i) { return i < dial->count ? &dial->attempts[i].address : NULL; }

struct dial *dial_start(struct event_base *base, const struct addr *addresses, size_t count, uint16_t port,
                        const struct dial_options *options, dial_done *done, void *data) {
    if (count > DIAL_ADDRESSES_MAX) count = DIAL_ADDRESSES_MAX;
    struct dial *dial = calloc(1, sizeof(*dial) + count * sizeof(dial->attempts[0]));
    if (!dial) return NULL;
    dial->base = base;
    dial->options = *options;
    dial->done = done;
    dial->data = data;
    dial->count = count;
    dial->port = port;
    dial->result_fd = -1;
    dial->error = -EADDRNOTAVAIL;
    dial->deadline_us = clock_us() + (uint64_t)options->deadline_ms * 1000;
    for (size_t i = 0; i < count; i++) dial->attempts[i] = (struct dial_attempt){.dial = dial, .fd = -1, .address = addresses[i]};
    evtimer_assign(&dial->timer, base, dial_timer_event, dial);

    int error = count > 0 ? dial_attempt_start(dial) : 0;
    if (error < 0) {
        dial_cancel(dial);
        errno = -error;
        return NULL;
    }
    dial->next_us = clock_us() + (uint64_t)options->stagger_ms * 1000;
    dial_advance(dial);
    return dial;
}
