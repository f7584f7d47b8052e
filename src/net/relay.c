// SPDX-License-Identifier: Apache-2.0
// The relay: bytes between two connected sockets, both ways; a few by recv and send, more by splice.
//
// One epoll set, edge-triggered, holds both sockets of every relay and is itself one event of the loop. Per side we remember
// "may be readable" and "may be writable" until the kernel says EAGAIN. A direction first empties its pipe, then reads again,
// and reads only while the other side may be written: so what we hold for a peer that does not read is one pipe at most, and
// the rest stays in the sender. The pipe goes back to the pool as soon as it is empty.
//
// Fair: a direction moves at most RELAY_TURN_BYTES in a turn, then waits on the ready list until the loop has polled again.
//
// Small: what one recv takes is sent from memory, which is cheaper than a pipe; a full one is the sign to splice. A recv that
// gives less than was asked for has emptied the socket, so nothing asks again, unless an end or urgent byte was told of.
//
// Memory: the sandbox side has its namespace's limits (skeleton_buffers.c). The receive buffer of the upstream side is fixed
// at RELAY_RECEIVE_BYTES once more than a few bytes have come, since the kernel would let it grow to megabytes that stay full
// when the sandbox stops reading. A connection that has moved some and goes on moving may grow it (long, fast paths need
// that), RELAY_ROOMY_MAX of them at a time.
//
// Limits: what is read is asked for first (base/meter.h). A direction that gets nothing waits in the meter's queue, not in
// the kernel's; what was read goes on whatever the limit. Idle deadlines do not run meanwhile. Its places in the queue are
// made when it first asks under a limit: most relays never do.
//
// Ends: FIN of one side becomes FIN of the other once the pipe is empty, each direction by itself; any error becomes a reset
// of both. The owner hears of it when the work of the turn is done, so its callback may free or stop what it likes.
//
// Traps: at an urgent byte splice says EAGAIN, or even 0 as at the end, though bytes are there (Linux net/ipv4/tcp.c,
// tcp_read_sock). EPOLLPRI tells of it, and the end is believed only if recv says so too; then one step is copied by recv.
#include <errno.h>
#include <event2/event.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/net.h"
#include "net/relay_pipe.h"

// Deadlines without a byte. Redefined by the unit test.
#ifndef RELAY_IDLE_OPEN_S
#define RELAY_IDLE_OPEN_S 3600
#define RELAY_IDLE_HALF_S 120 // one direction has ended
#define RELAY_SWEEP_S 5
#endif
#define RELAY_TURN_BYTES (1024 * 1024)
#define RELAY_EVENTS 256
#define RELAY_COPY_SIZE 16384
// Bytes that a socket takes before the network can: the rest waits in the sender, not in our kernel's memory.
#define RELAY_UNSENT_BYTES (64 * 1024)
#define RELAY_RECEIVE_BYTES (64 * 1024) // fixed; the kernel doubles it, for its overhead
#define RELAY_FIX_AFTER RELAY_COPY_SIZE // bytes from upstream; so few do not let it grow
#define RELAY_ROOMY_MAX 6
#define RELAY_ROOMY_AFTER (1024 * 1024) // bytes from upstream, and then
#define RELAY_ROOMY_STEP (32 * 1024)    // bytes in one run
#define RELAY_ROOMY_BYTES (1024 * 1024) // to begin with; the kernel takes less where net.core.rmem_max is less
#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72 // Linux 5.14; before it, buffers stay as they are
#endif

// Per side: shifted by the side.
enum relay_flag {
    RELAY_READABLE = 1 << 0,
    RELAY_WRITABLE = 1 << 2,
    RELAY_EOF = 1 << 4,    // the side has sent its FIN, and we have read up to it
    RELAY_SHUT = 1 << 6,   // we have sent our FIN to the side
    RELAY_WARY = 1 << 8,   // the side has sent an urgent byte or its end: from then on only recv is believed
    RELAY_ENDED = 1 << 10, // not per side
    RELAY_MORE = 1 << 11,  // not per side: stopped by the turn's limit
    RELAY_ROOMY = 1 << 12, // not per side: upstream's receive buffer may grow
    RELAY_BULK = 1 << 13,  // the side sends much at a time
    RELAY_FIXED = 1 << 15, // not per side: upstream's receive buffer was fixed once
};

struct relay_engine {
    struct event *event; // the epoll set
    struct event *again; // due at once: ready or ended relays wait
    struct event *sweep;
    struct relay_pool pool;
    struct list open, half; // by active_s, longest idle first
    struct list ready;      // have more to do
    struct list ended;
    relay_ended *tell; // the owner
    struct relay *roomy[RELAY_ROOMY_MAX]; // NULL: free
    struct meter *meter;  // the owner's, or `own`, which limits nothing
    struct meter own;
    uint32_t now_s;
    int epoll;
    bool fix_early; // receive buffers are large from the start here
};

struct relay_turns {
    struct relay *relay;
    struct meter_turn turns[2]; // to read from a side
};

static bool relay_has(const struct relay *relay, enum relay_flag flag, int side) {
    return (relay->flags & ((unsigned)flag << side)) != 0;
}
static void relay_set(struct relay *relay, enum relay_flag flag, int side) {
    relay->flags = (uint16_t)(relay->flags | ((unsigned)flag << side));
}
static void relay_clear(struct relay *relay, enum relay_flag flag, int side) {
    relay->flags = (uint16_t)(relay->flags & ~((unsigned)flag << side));
}

void relay_reset_fd(int fd) {
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    if (fd < 0) return;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(fd);
}

static void relay_room_fix(struct relay *relay) {
    int bytes = RELAY_RECEIVE_BYTES;
    if (relay->fds[RELAY_UPSTREAM] >= 0) setsockopt(relay->fds[RELAY_UPSTREAM], SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    for (size_t i = 0; i < RELAY_ROOMY_MAX && relay_has(relay, RELAY_ROOMY, 0); i++)
        if (relay->engine->roomy[i] == relay) relay->engine->roomy[i] = NULL;
    relay_clear(relay, RELAY_ROOMY, 0);
    relay_set(relay, RELAY_FIXED, 0);
}

static void relay_room_grow(struct relay *relay, uint64_t moved) {
    int unlocked = 0, bytes = RELAY_ROOMY_BYTES;
    if (!relay_has(relay, RELAY_FIXED, 0) && relay->bytes[RELAY_UPSTREAM] > RELAY_FIX_AFTER) relay_room_fix(relay);
    if (relay_has(relay, RELAY_ROOMY, 0) || moved < RELAY_ROOMY_STEP || relay->bytes[RELAY_UPSTREAM] < RELAY_ROOMY_AFTER) return;
    for (size_t i = 0; i < RELAY_ROOMY_MAX; i++) {
        if (relay->engine->roomy[i]) continue;
        relay->engine->roomy[i] = relay;
        relay_set(relay, RELAY_ROOMY, 0);
        // The kernel lets a window grow that was used up; this one was measured while it could not grow. So it gets a start.
        setsockopt(relay->fds[RELAY_UPSTREAM], SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
        setsockopt(relay->fds[RELAY_UPSTREAM], IPPROTO_TCP, TCP_WINDOW_CLAMP, &bytes, sizeof(bytes));
        setsockopt(relay->fds[RELAY_UPSTREAM], SOL_SOCKET, SO_BUF_LOCK, &unlocked, sizeof(unlocked));
        return;
    }
}

static void relay_close(struct relay *relay, bool reset) {
    if (relay_has(relay, RELAY_ROOMY, 0)) relay_room_fix(relay);
    for (int side = 0; side < 2; side++) {
        if (relay->turns) meter_leave(relay->engine->meter, (enum meter_way)side, &relay->turns->turns[side]);
        if (relay->pipes[side]) relay_pool_put(&relay->engine->pool, relay->pipes[side]);
        relay->pipes[side] = NULL;
        if (relay->fds[side] < 0) continue;
        if (reset) {
            relay_reset_fd(relay->fds[side]);
        } else {
            close(relay->fds[side]);
        }
        relay->fds[side] = -1;
    }
    free(TAKE_POINTER(relay->turns));
}

static void relay_again(struct relay_engine *engine) {
    // In the next turn; without memory for the timer in this one.
    if (event_add(engine->again, &(struct timeval){0}) < 0) event_active(engine->again, EV_TIMEOUT, 0);
}

// The owner is told later.
static void relay_end(struct relay *relay, int error) {
    if (relay_has(relay, RELAY_ENDED, 0)) return;
    relay_set(relay, RELAY_ENDED, 0);
    relay->error = (int16_t)error;
    relay_close(relay, error != 0);
    list_remove(&relay->idle);
    list_append(&relay->engine->ended, &relay->idle);
}

// EPOLLOUT is asked for once the side has refused bytes: few ever do, and each that is watched so tells at once that it does
// not.
static int relay_watch(struct relay *relay, int side, int operation, uint32_t out) {
    struct epoll_event event = {
        .events = EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLET | out,
        .data.u64 = (uint64_t)(uintptr_t)relay | (uint64_t)side,
    };
    return epoll_ctl(relay->engine->epoll, operation, relay->fds[side], &event) < 0 ? -errno : 0;
}

// 0, or a negative errno that ends the relay.
static int relay_full(struct relay *relay, int side) {
    relay_clear(relay, RELAY_WRITABLE, side);
    return relay_watch(relay, side, EPOLL_CTL_MOD, EPOLLOUT);
}

static void relay_resume(struct relay *relay);

static void relay_resume_sandbox(struct meter_turn *turn) {
    relay_resume(LIST_ENTRY(turn, struct relay_turns, turns[RELAY_SANDBOX])->relay);
}

static void relay_resume_upstream(struct meter_turn *turn) {
    relay_resume(LIST_ENTRY(turn, struct relay_turns, turns[RELAY_UPSTREAM])->relay);
}

static struct relay_turns *relay_turns_new(struct relay *relay) {
    struct relay_turns *turns = NEW(struct relay_turns);
    if (!turns) return NULL;
    turns->relay = relay;
    meter_turn_init(&turns->turns[RELAY_SANDBOX], relay_resume_sandbox);
    meter_turn_init(&turns->turns[RELAY_UPSTREAM], relay_resume_upstream);
    return turns;
}

// How many bytes may be read from the side now (the pipe is empty). 0: it waits for its turn; -EDQUOT: none any more; -ENOMEM.
static ssize_t relay_allowance(struct relay *relay, int from) {
    struct meter *meter = relay->engine->meter;
    if (!meter->limited) return RELAY_TURN_BYTES;
    if (!relay->turns && !(relay->turns = relay_turns_new(relay))) return -ENOMEM;
    return meter_ask(meter, (enum meter_way)from, &relay->turns->turns[from], RELAY_TURN_BYTES);
}

// A step answers with bytes moved (0: look again) or a negative errno; -EAGAIN: this direction waits for an event.

// By recv and send. What send does not take waits in a piece of memory.
static ssize_t relay_copy(struct relay *relay, int from, size_t max) {
    uint8_t bytes[RELAY_COPY_SIZE];
    size_t size = max < sizeof(bytes) ? max : sizeof(bytes);
    ssize_t got = recv(relay->fds[from], bytes, size, MSG_DONTWAIT);

    if (got < 0 && errno == EINTR) return 0;
    if (got < 0) {
        if (errno == EAGAIN) relay_clear(relay, RELAY_READABLE, from);
        return -errno;
    }
    if (got == 0) relay_set(relay, RELAY_EOF, from);
    if (got == 0) return 0;
    meter_take(relay->engine->meter, (enum meter_way)from, (size_t)got);
    if ((size_t)got == sizeof(bytes)) relay_set(relay, RELAY_BULK, from);
    if ((size_t)got < size && !relay_has(relay, RELAY_WARY, from)) relay_clear(relay, RELAY_READABLE, from);
    ssize_t sent = send(relay->fds[!from], bytes, (size_t)got, MSG_NOSIGNAL | MSG_DONTWAIT);
    int error = sent < 0 ? errno : 0;
    if (error == EAGAIN) error = -relay_full(relay, !from);
    if (error != 0 && error != EINTR) return -error;
    if (sent < 0) sent = 0;
    relay->bytes[from] += (size_t)sent;
    if (sent == got) return sent;
    if (relay->pipes[from]) relay_pool_put(&relay->engine->pool, relay->pipes[from]);
    relay->pipes[from] = relay_pipe_memory(bytes + sent, (size_t)(got - sent));
    return relay->pipes[from] ? sent : -ENOMEM;
}

static ssize_t relay_drain(struct relay *relay, int from) {
    ssize_t moved = relay_pipe_drain(relay->pipes[from], relay->fds[!from]);
    if (moved == -EAGAIN) {
        int error = relay_full(relay, !from);
        return error < 0 ? error : -EAGAIN;
    }
    if (moved == 0) return -EIO;
    if (moved > 0) relay->bytes[from] += (size_t)moved;
    return moved;
}

// The budget is used up: one more byte ends the relay, FIN does not.
static ssize_t relay_over_budget(struct relay *relay, int from) {
    uint8_t byte;
    ssize_t got = recv(relay->fds[from], &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0) return -EDQUOT;
    if (got == 0) {
        relay_set(relay, RELAY_EOF, from);
        return 0;
    }
    if (errno == EAGAIN) relay_clear(relay, RELAY_READABLE, from);
    return errno == EINTR ? 0 : -errno;
}

static ssize_t relay_fill(struct relay *relay, int from) {
    ssize_t allowed = relay_allowance(relay, from);
    if (allowed == -EDQUOT) return relay_over_budget(relay, from);
    if (allowed < 0) return allowed;
    if (allowed == 0) return -EAGAIN;
    size_t max = (size_t)allowed;
    if (relay->pipes[from] && relay->pipes[from]->fds[0] < 0) { // memory, and empty now
        relay_pool_put(&relay->engine->pool, relay->pipes[from]);
        relay->pipes[from] = NULL;
    }
    if (!relay_has(relay, RELAY_BULK, from)) return relay_copy(relay, from, max);
    if (!relay->pipes[from]) relay->pipes[from] = relay_pool_get(&relay->engine->pool);
    if (!relay->pipes[from]) return relay_copy(relay, from, max); // no descriptors left
    ssize_t got = relay_pipe_fill(relay->pipes[from], relay->fds[from], max);
    if (got == 0) return relay_copy(relay, from, max); // the end, or an urgent byte before it
    if (got == -EAGAIN) {
        if (relay_has(relay, RELAY_WARY, from)) return relay_copy(relay, from, max);
        relay_clear(relay, RELAY_READABLE, from);
    }
    if (got > 0) meter_take(relay->engine->meter, (enum meter_way)from, (size_t)got);
    return got;
}

// Moves one direction as far as it goes. 0, or a negative errno that ends the relay.
static int relay_direction(struct relay *relay, int from) {
    uint64_t before = relay->bytes[from], limit = before + RELAY_TURN_BYTES;
    ssize_t moved = 0;

    while (moved != -EAGAIN) {
        bool loaded = relay->pipes[from] && relay->pipes[from]->used > 0;
        if (!loaded && relay_has(relay, RELAY_EOF, from)) {
            if (relay_has(relay, RELAY_SHUT, !from)) break;
            relay_set(relay, RELAY_SHUT, !from);
            if (shutdown(relay->fds[!from], SHUT_WR) < 0) return -errno;
            break;
        }
        if (!relay_has(relay, RELAY_WRITABLE, !from)) break;
        if (!loaded && !relay_has(relay, RELAY_READABLE, from)) break;
        if (relay->bytes[from] >= limit) {
            relay_set(relay, RELAY_MORE, 0);
            break;
        }
        moved = loaded ? relay_drain(relay, from) : relay_fill(relay, from);
        if (moved < 0 && moved != -EAGAIN) return (int)moved;
    }
    if (relay->pipes[from] && relay->pipes[from]->used == 0) {
        relay_pool_put(&relay->engine->pool, relay->pipes[from]);
        relay->pipes[from] = NULL;
    }
    uint64_t all = relay->bytes[from] - before;
    if (all > 0 && all < RELAY_COPY_SIZE) relay_clear(relay, RELAY_BULK, from);
    return 0;
}

// Works on a relay and puts it on the list where it belongs.
static void relay_run(struct relay *relay) {
    struct relay_engine *engine = relay->engine;
    int error = 0;

    relay_clear(relay, RELAY_MORE, 0);
    relay->active_s = engine->now_s; // every event is bytes, room for bytes, or an end
    uint64_t before = relay->bytes[RELAY_UPSTREAM];
    for (int from = 0; from < 2 && error == 0; from++) error = relay_direction(relay, from);
    relay_room_grow(relay, relay->bytes[RELAY_UPSTREAM] - before);
    bool shut[2] = {relay_has(relay, RELAY_SHUT, 0), relay_has(relay, RELAY_SHUT, 1)};
    if (error != 0 || (shut[0] && shut[1])) {
        relay_end(relay, error);
        return;
    }
    list_remove(&relay->idle);
    if (relay_has(relay, RELAY_MORE, 0)) {
        list_append(&engine->ready, &relay->idle);
    } else {
        list_append(shut[0] || shut[1] ? &engine->half : &engine->open, &relay->idle);
    }
}

static void relay_engine_work_done(struct relay_engine *engine) {
    while (!list_empty(&engine->ended)) {
        struct relay *relay = LIST_ENTRY(engine->ended.next, struct relay, idle);
        list_remove(&relay->idle);
        engine->tell(relay, relay->error);
    }
    if (!list_empty(&engine->ready)) relay_again(engine);
}

static void relay_engine_clock(struct relay_engine *engine) { engine->now_s = (uint32_t)(clock_us() / 1000000); }

static bool relay_waits_for_turn(const struct relay *relay) {
    const struct relay_turns *turns = relay->turns;
    return turns && (meter_turn_waits(&turns->turns[RELAY_SANDBOX]) || meter_turn_waits(&turns->turns[RELAY_UPSTREAM]));
}

static void relay_resume(struct relay *relay) {
    struct relay_engine *engine = relay->engine;
    relay_engine_clock(engine);
    relay_run(relay);
    if (!list_empty(&engine->ended) || !list_empty(&engine->ready)) relay_again(engine);
}


static void relay_engine_event(evutil_socket_t fd, short what, void *data) {
    struct relay_engine *engine = data;
    struct epoll_event events[RELAY_EVENTS];
    int count = epoll_wait(fd, events, RELAY_EVENTS, 0);

    (void)what;
    relay_engine_clock(engine);
    for (int i = 0; i < count; i++) {
        // The lowest bit of the pointer says which side.
        int side = (int)(events[i].data.u64 & 1);
        struct relay *relay = (struct relay *)(uintptr_t)(events[i].data.u64 & ~(uint64_t)1);
        if (relay_has(relay, RELAY_ENDED, 0)) continue;
        if (events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) relay_set(relay, RELAY_READABLE, side);
        if (events[i].events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) relay_set(relay, RELAY_WRITABLE, side);
        if (events[i].events & (EPOLLPRI | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) relay_set(relay, RELAY_WARY, side);
        relay_run(relay);
    }
    relay_engine_work_done(engine);
}

static void relay_engine_again(evutil_socket_t fd, short what, void *data) {
    struct relay_engine *engine = data;
    struct list turn;

    (void)fd, (void)what;
    relay_engine_clock(engine);
    list_init(&turn);
    while (!list_empty(&engine->ready)) {
        struct list *node = engine->ready.next;
        list_remove(node);
        list_append(&turn, node);
    }
    LIST_FOREACH(&turn, node) relay_run(LIST_ENTRY(node, struct relay, idle));
    relay_engine_work_done(engine);
}

static void relay_engine_expire(struct list *list, uint32_t now_s, uint32_t limit_s) {
    while (!list_empty(list)) {
        struct relay *relay = LIST_ENTRY(list->next, struct relay, idle);
        if (now_s - relay->active_s < limit_s) break;
        if (!relay_waits_for_turn(relay)) {
            relay_end(relay, -ETIMEDOUT);
            continue;
        }
        relay->active_s = now_s;
        list_remove(&relay->idle);
        list_append(list, &relay->idle);
    }
}

static void relay_engine_sweep(evutil_socket_t fd, short what, void *data) {
    struct relay_engine *engine = data;
    (void)fd, (void)what;
    relay_engine_clock(engine);
    for (size_t i = 0; i < RELAY_ROOMY_MAX; i++) { // idle and empty: room for others
        struct relay *relay = engine->roomy[i];
        if (relay && engine->now_s - relay->active_s >= RELAY_SWEEP_S && !relay_has(relay, RELAY_READABLE, RELAY_UPSTREAM))
            relay_room_fix(relay);
    }
    relay_engine_expire(&engine->open, engine->now_s, RELAY_IDLE_OPEN_S);
    relay_engine_expire(&engine->half, engine->now_s, RELAY_IDLE_HALF_S);
    relay_engine_work_done(engine);
}

// Whether the kernel gives TCP sockets more to begin with than we would.
static bool relay_engine_early(void) {
    int bytes = 0;
    socklen_t len = sizeof(bytes);
    AUTO_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
    return fd < 0 || getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &len) < 0 || bytes > 2 * RELAY_RECEIVE_BYTES;
}

void relay_engine_meter(struct relay_engine *engine, struct meter *meter) { engine->meter = meter; }

int relay_engine_new(struct event_base *base, relay_ended *ended, struct relay_engine **ret_engine) {
    struct relay_engine *engine = NEW(struct relay_engine);
    if (!engine) return -ENOMEM;
    // splice to a socket that was closed by its peer raises it, and has no flag against that.
    signal(SIGPIPE, SIG_IGN);
    engine->tell = ended;
    engine->meter = &engine->own;
    list_init(&engine->open);
    list_init(&engine->half);
    list_init(&engine->ready);
    list_init(&engine->ended);
    relay_pool_init(&engine->pool);
    relay_engine_clock(engine);
    engine->fix_early = relay_engine_early();
    engine->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (engine->epoll < 0) {
        free(engine);
        return -errno;
    }
    engine->event = event_new(base, engine->epoll, EV_READ | EV_PERSIST, relay_engine_event, engine);
    engine->again = event_new(base, -1, 0, relay_engine_again, engine);
    engine->sweep = event_new(base, -1, EV_PERSIST, relay_engine_sweep, engine);
    if (!engine->event || !engine->again || !engine->sweep || event_add(engine->event, NULL) < 0 ||
        event_add(engine->sweep, &(struct timeval){.tv_sec = RELAY_SWEEP_S}) < 0) {
        relay_engine_free(engine);
        return -ENOMEM;
    }
    *ret_engine = engine;
    return 0;
}

void relay_engine_free(struct relay_engine *engine) {
    if (!engine) return;
    struct list *lists[] = {&engine->open, &engine->half, &engine->ready, &engine->ended};
    for (size_t i = 0; i < ARRAY_LENGTH(lists); i++)
        while (!list_empty(lists[i])) relay_stop(LIST_ENTRY(lists[i]->next, struct relay, idle), true);
    struct event *events[] = {engine->event, engine->again, engine->sweep};
    for (size_t i = 0; i < ARRAY_LENGTH(events); i++)
        if (events[i]) event_free(events[i]);
    relay_pool_done(&engine->pool);
    close(engine->epoll);
    free(engine);
}

void relay_prepare(int fd) {
    int one = 1, unsent = RELAY_UNSENT_BYTES;
    // Only TCP has them; what else is relayed does without.
    setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
}

int relay_start(struct relay_engine *engine, struct relay *relay, int sandbox_fd, int upstream_fd, const uint8_t *first,
                size_t first_len, const uint8_t *back, size_t back_len) {
    const uint8_t *bytes[2] = {first, back};
    size_t lengths[2] = {first_len, back_len};

    list_init(&relay->idle);
    relay->engine = engine;
    relay->error = 0;
    relay->flags = 0;
    relay_engine_clock(engine);
    relay->active_s = engine->now_s;
    relay->turns = NULL;
    for (int side = 0; side < 2; side++) {
        relay->fds[side] = side == RELAY_SANDBOX ? sandbox_fd : upstream_fd;
        relay->pipes[side] = NULL;
    }
    int error = 0;
    for (int side = 0; side < 2 && error == 0; side++) {
        if (lengths[side] > 0) {
            relay->pipes[side] = relay_pipe_memory(bytes[side], lengths[side]);
            if (!relay->pipes[side]) error = -ENOMEM;
        }
        if (error == 0) error = relay_watch(relay, side, EPOLL_CTL_ADD, 0);
    }
    if (error < 0) {
        for (int side = 0; side < 2; side++) {
            epoll_ctl(engine->epoll, EPOLL_CTL_DEL, relay->fds[side], NULL);
            relay->fds[side] = -1;
        }
        relay_close(relay, false);
        return error == -EMFILE ? -EMFILE : -ENOMEM;
    }
    if (engine->fix_early) relay_room_fix(relay);
    // What was read already goes out now, for latency; epoll brings the rest.
    relay_set(relay, RELAY_WRITABLE, RELAY_SANDBOX);
    relay_set(relay, RELAY_WRITABLE, RELAY_UPSTREAM);
    relay_run(relay);
    if (!list_empty(&engine->ended) || !list_empty(&engine->ready)) relay_again(engine);
    return 0;
}

void relay_stop(struct relay *relay, bool reset) {
    relay_set(relay, RELAY_ENDED, 0);
    list_remove(&relay->idle);
    relay_close(relay, reset);
}
