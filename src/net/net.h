// SPDX-License-Identifier: Apache-2.0
// The front door of the net room: channels between our processes, the keeper of a sandbox's namespaces, dialling, the
// splice relay, facts about the host, isolation of a process.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/addr.h"
#include "base/error.h"
#include "base/list.h"
#include "base/meter.h"
#include "wire/ipc.h"

struct event_base;

// ---- channel: one message, with descriptors, over SOCK_SEQPACKET ----

struct channel_message {
    uint32_t type;
    uint32_t length;
    const void *body;      // points into the static buffer given to channel_receive
    int fds[IPC_FDS_MAX];  // owned by the receiver; -1 beyond fd_count
    size_t fd_count;
};

int channel_pair(int ret_fds[2]); // non-blocking, CLOEXEC
// 0; -EAGAIN when the peer is slow; -EPIPE when it is gone; -errno.
int channel_send(int fd, enum ipc_type type, const void *body, size_t len, const int *fds, size_t fd_count);
// The same for a body with a tail.
int channel_send_tail(int fd, enum ipc_type type, const void *body, size_t len, const void *tail, size_t tail_len);
// 1: a message, checked by ipc_check. 0: the peer closed. -EAGAIN, -EBADMSG (fds already closed), -errno.
int channel_receive(int fd, void *buffer, size_t size, struct channel_message *ret_message);
// Waits (poll) up to timeout_ms (negative: for ever) for one message. -ETIMEDOUT.
int channel_wait(int fd, int timeout_ms, void *buffer, size_t size, struct channel_message *ret_message);
void channel_message_close(struct channel_message *message); // closes descriptors not taken
#define CHANNEL_BUFFER_SIZE (sizeof(struct ipc_header) + sizeof(struct ipc_answer) + DNS_ANSWER_MAX + 1)

// ---- keeper: the process that holds a sandbox's user and network namespace ----

// Role main: makes the namespaces and the skeleton, serves its gates on channels, ends when main's channel closes.
// While no gate is connected it makes the sandbox's kernel refuse every connection at once. Returns an exit status.
int keeper_main(int channel);
// For a keeper that died: makes the kernel of its namespaces refuse every connection, in a process of its own that enters
// them. 0, or -EIO.
int keeper_refuse(int user_namespace, int net_namespace);
// Takes away every nft rule of this process's network namespace. 0 or -errno.
int nft_flush(void);

// Addresses of the skeleton, which are never destinations.
extern const char *const keeper_address4; // "192.0.0.2", the sandbox's own
extern const char *const keeper_address6; // "fd5a:91c3:7e24:1::2"
// Whether an address belongs to the skeleton: the /29 (RFC 7335) and the /125 around these two. The sandbox's name server
// (192.0.0.1) and the gate's listeners are among them; nothing there is ever dialled, whatever a policy says.
bool keeper_owns(const struct addr *addr);
// Where a sandbox finds what its gate serves itself: the name server, and on these ports the doors of `--proxy`.
#define KEEPER_SERVER4 "192.0.0.1"
#define KEEPER_SERVER6 "fd5a:91c3:7e24:1::1"
#define KEEPER_PORT_HTTP 3128
#define KEEPER_PORT_SOCKS 1080
bool keeper_serves(const struct addr *addr); // one of the two

// ---- dial ----

struct dial;
struct dial_options {
    unsigned deadline_ms;   // for all attempts together
    unsigned stagger_ms;    // before the next address is tried beside the first (RFC 8305 5: 250)
    bool allow_loopback;    // an entry opens the host's loopback
};
// fd >= 0: connected, non-blocking, TCP_NODELAY and SO_OOBINLINE set, owned by the callee; peer is the address reached. fd < 0: -errno of
// the last attempt (-ECONNREFUSED, -ENETUNREACH, -EHOSTUNREACH, -ETIMEDOUT; -EACCES: reached the host itself).
typedef void dial_done(int fd, const struct addr *peer, void *data);
// Connects to one of the addresses (at most 16 are tried, in order). done is always called later, never from inside.
// NULL if out of memory or descriptors (errno set).
struct dial *dial_start(struct event_base *base, const struct addr *addresses, size_t count, uint16_t port,
                        const struct dial_options *options, dial_done *done, void *data);
// What is dialled, by its place in the order. NULL: there are no more.
const struct addr *dial_address(const struct dial *dial, size_t i);
void dial_cancel(struct dial *dial); // done is not called

// ---- watch ----

// Sockets of which many come and go, watched for a moment until they may be read. (What stays may be an event of libevent.)
struct watcher;
int watcher_new(struct event_base *base, struct watcher **ret_watcher); // 0 or -errno
void watcher_free(struct watcher *watcher);                              // nothing is watched any more
// May be read, or has ended, or failed. May stop any watch, and free what it is in.
typedef void watch_ready(int fd, void *data);
struct watch { // embedded; private to watch.c. All zero: unused
    struct watcher *watcher;
    watch_ready *ready;
    void *data;
    int fd;
    bool on;
};
// Whatever it watched before. Called as long as there is something to read, until it is stopped, which comes before the
// descriptor is closed or the memory freed. 0 or -errno: it does not watch.
int watch_start(struct watcher *watcher, struct watch *watch, int fd, watch_ready *ready, void *data);
static inline bool watch_started(const struct watch *watch) { return watch->watcher != NULL; } // also while it pauses
void watch_pause(struct watch *watch);
int watch_resume(struct watch *watch); // 0 or -errno: it still pauses
void watch_stop(struct watch *watch);  // fine if it was not started

// ---- relay ----

struct relay_engine;
struct relay;
// Both directions ended (error 0), or a socket failed (-errno), or the idle deadline passed (-ETIMEDOUT), or there was a byte
// beyond the meter's budget (-EDQUOT). Sockets are closed already. Called at the end of a loop turn.
typedef void relay_ended(struct relay *relay, int error);
// One epoll set of its own inside the loop, so that an idle connection costs no event structure; pipes from a pool, held
// only while bytes are in flight; one coarse sweep for idle deadlines.
int relay_engine_new(struct event_base *base, relay_ended *ended, struct relay_engine **ret_engine);
void relay_engine_free(struct relay_engine *engine);
// From now on its relays are counted and limited by this; it outlives the engine. Before the first relay.
void relay_engine_meter(struct relay_engine *engine, struct meter *meter);

enum relay_side { RELAY_SANDBOX, RELAY_UPSTREAM };
struct relay { // embedded in a flow, which owns the memory; private to relay.c but for bytes
    struct list idle;
    struct relay_engine *engine;
    struct relay_pipe *pipes[2];
    uint64_t bytes[2];    // moved from RELAY_SANDBOX, from RELAY_UPSTREAM; counted on from what the owner has set
    struct relay_turns *turns; // NULL: it never had to ask a meter with limits
    int fds[2];
    uint32_t active_s;    // loop time of the last event
    uint16_t flags;
    int16_t error;        // what ended is told
};
// Options of a socket that is going to be relayed, of both sides; a listener hands them down to what it accepts.
void relay_prepare(int fd);
// Takes both descriptors (connected, non-blocking, prepared). first: bytes read from the sandbox already, sent upstream first
// (copied if they do not go out at once). back: the same in the other direction. 0, or -ENOMEM, -EMFILE (nothing taken).
int relay_start(struct relay_engine *engine, struct relay *relay, int sandbox_fd, int upstream_fd, const uint8_t *first,
                size_t first_len, const uint8_t *back, size_t back_len);
// Closes both sockets, with a reset if asked; ended is not called.
void relay_stop(struct relay *relay, bool reset);
// Closes a socket so that the peer sees a reset (SO_LINGER 0).
void relay_reset_fd(int fd);

// ---- host ----

// The host's own addresses: what its local routing table says (rtnetlink), both families, without multicast.
int host_addresses(struct addr **ret_addresses, size_t *ret_count, struct error *err);
// A netlink socket (non-blocking) that becomes readable when addresses change; drain it with host_watch_drain.
int host_watch_new(void);
void host_watch_drain(int fd);
// Whether the host has a route to this address (a UDP connect, nothing is sent).
bool host_has_route(const struct addr *address);

// ---- isolation ----

enum isolate_role { ISOLATE_KEEPER, ISOLATE_GATE, ISOLATE_RESOLVER, ISOLATE_VAULT };
// Last step of a role's start: rlimits (no core), not dumpable, no capabilities (keeper: CAP_NET_ADMIN and CAP_NET_RAW in
// its own user namespace), no_new_privs, Landlock where the kernel has it, a seccomp filter by role (a table of allowed
// calls; anything else kills the process). Then proves itself: open("/etc/passwd") and socket(AF_UNIX) must fail in a gate.
int isolate_process(enum isolate_role role, struct error *err);
