// SPDX-License-Identifier: Apache-2.0
// The keeper: holds a sandbox's namespaces, the originals of its gate's sockets, and the synthetic mappings, so that a gate
// can die and be started again. Two channels, one poll, no event library.
//
//   start     namespaces (told at once: bubblewrap can enter them, nobody else is in them before all is ready), sysctls,
//             skeleton (refusing, unless the first gate came with the start: then it is put in place once), isolation, READY
//   no gate   the kernel of the sandbox refuses every connection
//   gate      the skeleton leads to its sockets, sockets sent, mappings replayed as fast as the gate takes them
//   end       END, when nothing of the sandbox runs any more, and its gate has gone: exit. Or main's channel closes: it
//             refuses again, exit
//
// The skeleton with nft is tried first. Only where the kernel lacks something that it alone needs, and main said on which
// ports the policy's connections can come, the one without nft takes its place: it can do less, never more.
//
// A gate is hostile once taken over: its messages are of two kinds, bounded, and a mapping never changes its name. What
// breaks that loses its channel, so the sandbox loses its network.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "net/namespace.h"
#include "net/net.h"
#include "net/skeleton.h"

#define KEEPER_DRAIN_MAX 8192 // packets and connections thrown away when a gate is lost

const char *const keeper_address4 = SKELETON_ADDRESS4;
const char *const keeper_address6 = SKELETON_ADDRESS6;

bool keeper_owns(const struct addr *addr) {
    static const struct addr_prefix owned[] = {
        {.addr = {.family = ADDR_IPV4, .bytes = {192}}, .length = 29},
        {.addr = {.family = ADDR_IPV6, .bytes = {0xfd, 0x5a, 0x91, 0xc3, 0x7e, 0x24, 0, 1}}, .length = 125},
    };
    return addr_prefix_contains(&owned[0], addr) || addr_prefix_contains(&owned[1], addr);
}

bool keeper_serves(const struct addr *addr) {
    static const struct addr server4 = {.family = ADDR_IPV4, .bytes = {192, 0, 0, 1}};
    static const struct addr server6 = {.family = ADDR_IPV6, .bytes = {0xfd, 0x5a, 0x91, 0xc3, 0x7e, 0x24, 0, 1, [15] = 1}};
    return addr_equal(addr, &server4) || addr_equal(addr, &server6);
}

struct keeper {
    int main, gate; // channels; gate -1: none
    int sockets[IPC_SOCKET_COUNT]; // -1: the skeleton has no such socket
    struct ipc_keeper_ready ready; // which skeleton it is
    int buffers[SKELETON_BUFFERS];
    struct skeleton_rules *rules;  // TPROXY
    struct ipc_ports opened;
    struct ipc_ports ports;        // ROUTES
    int listeners[IPC_LISTENERS_MAX];
    size_t listener_count;
    char (*names)[NAME_SIZE]; // by index; "" = not mapped
    uint32_t name_count;      // the highest index that is mapped, and one
    uint32_t replay;          // the next index to send to the gate
    bool replaying;
    bool entered, ending, over;
    int left[2]; // what is sent to [1] is in the queue of [0]
    int lock;    // of who may leave sockets there, or -1
    _Alignas(max_align_t) char buffer[CHANNEL_BUFFER_SIZE];
};

static void keeper_report(const struct keeper *keeper, const struct error *err) {
    struct ipc_error report = {0};
    snprintf(report.text, sizeof(report.text), "%s", err->text);
    channel_send(keeper->main, IPC_ERROR, &report, sizeof(report), NULL, 0);
}

// ---- the skeleton ----

// Whether the sandbox's connections lead to the gate's sockets; else its kernel refuses them at once.
static int keeper_lead(struct keeper *keeper, bool with_gate, struct error *err) {
    if (keeper->ready.skeleton == IPC_SKELETON_TPROXY)
        return skeleton_rules_apply(keeper->rules, &keeper->opened, with_gate, err);
    int result = skeleton_listener_open(keeper->sockets[IPC_SOCKET_UDP4], with_gate);
    if (result == 0) result = skeleton_listener_open(keeper->sockets[IPC_SOCKET_UDP6], with_gate);
    for (size_t i = 0; i < keeper->listener_count && result == 0; i++)
        result = skeleton_listener_open(keeper->listeners[i], with_gate);
    if (result == 0) return 0;
    return error_set(err, result, "cannot %s the sandbox's listeners: %s", with_gate ? "open" : "close", strerror(-result));
}

static int keeper_try_tproxy(struct keeper *keeper, struct error *err) {
    int result = skeleton_rules_new(true, &keeper->rules, err);
    if (result == 0) result = skeleton_socket(IPC_SKELETON_TPROXY, keeper->sockets, err);
    // Last, since rules that stay would refuse what the other skeleton lets through.
    if (result == 0) result = skeleton_rules_apply(keeper->rules, &keeper->opened, keeper->gate >= 0, err);
    return result;
}

static int keeper_try_routes(struct keeper *keeper, struct error *err) {
    int result = skeleton_socket(IPC_SKELETON_ROUTES, keeper->sockets, err);
    if (result == 0) result = skeleton_listener(&keeper->ports, keeper->listeners, err);
    if (result == 0) keeper->listener_count = 2 * keeper->ports.count;
    return result;
}

static void keeper_close_sockets(struct keeper *keeper) {
    for (size_t i = 0; i < IPC_SOCKET_COUNT; i++)
        if (keeper->sockets[i] >= 0) close(TAKE_FD(keeper->sockets[i]));
}

// TPROXY cannot be, or was not asked for.
static int keeper_fall_back(struct keeper *keeper, const struct ipc_keeper_start *start, struct error *err) {
    const char *lacks = keeper->ready.lacks;
    char without[IPC_TEXT_SIZE];
    snprintf(without, sizeof(without), "%s%.200s", lacks[0] ? "this kernel lacks " : "PENSTOCK_SKELETON=routes does without nft", lacks);
    keeper->ready.skeleton = IPC_SKELETON_ROUTES;
    if (start->ports.count == 0)
        return error_set(err, -ENOTSUP, "%s, which %.500s needs; %s it, or allow hosts by name and port only", without,
                         start->need[0] ? start->need : "the sandbox's network", lacks[0] ? "load or enable" : "unset");
    keeper_close_sockets(keeper);
    skeleton_rules_free(TAKE_POINTER(keeper->rules));
    int result = keeper_try_routes(keeper, err);
    return result < 0 ? error_context(err, result, "%s", without) : 0;
}

static int keeper_skeleton(struct keeper *keeper, const struct ipc_keeper_start *start, struct error *err) {
    struct error own = {0};
    int result = skeleton_link(err);
    if (result < 0) return result;
    result = start->skeleton == IPC_SKELETON_TPROXY ? keeper_try_tproxy(keeper, &own) : -ENOTSUP;
    if (result < 0 && result != -ENOTSUP) return error_set(err, result, "%s", own.text);
    if (result == -ENOTSUP) {
        snprintf(keeper->ready.lacks, sizeof(keeper->ready.lacks), "%s", own.text);
        result = keeper_fall_back(keeper, start, err);
    }
    return result < 0 ? result : skeleton_route((enum ipc_skeleton)keeper->ready.skeleton, err);
}

// ---- gates ----

static void keeper_drain_one(int fd, bool listener) {
    for (int n = 0; n < KEEPER_DRAIN_MAX && fd >= 0; n++) {
        char byte;
        int got = listener ? accept4(fd, NULL, NULL, SOCK_CLOEXEC) : (int)recv(fd, &byte, 1, MSG_DONTWAIT | MSG_TRUNC);
        if (got < 0 && errno != ECONNABORTED && errno != EINTR) break;
        if (listener && got >= 0) relay_reset_fd(got);
    }
}

// What was meant for a gate that is gone must not reach the next one: its clients have given up.
static void keeper_drain(struct keeper *keeper) {
    for (size_t i = 0; i < IPC_SOCKET_COUNT; i++)
        keeper_drain_one(keeper->sockets[i], i == IPC_SOCKET_TCP4 || i == IPC_SOCKET_TCP6);
    for (size_t i = 0; i < keeper->listener_count; i++) keeper_drain_one(keeper->listeners[i], true);
}

static int keeper_send_sockets(struct keeper *keeper) {
    if (keeper->ready.skeleton == IPC_SKELETON_TPROXY)
        return channel_send(keeper->gate, IPC_GATE_SOCKETS, NULL, 0, keeper->sockets, IPC_SOCKET_COUNT);
    struct ipc_plain plain = {.listeners = (uint32_t)keeper->listener_count};
    const int *first = &keeper->sockets[IPC_SOCKET_UDP4];
    int result = channel_send(keeper->gate, IPC_GATE_PLAIN, &plain, sizeof(plain), first, IPC_PLAIN_SOCKETS);
    for (size_t i = 0; i < keeper->listener_count && result == 0; i += IPC_FDS_MAX) {
        size_t count = keeper->listener_count - i < IPC_FDS_MAX ? keeper->listener_count - i : IPC_FDS_MAX;
        result = channel_send(keeper->gate, IPC_GATE_LISTENERS, NULL, 0, &keeper->listeners[i], count);
    }
    return result;
}

static void keeper_gate_lost(struct keeper *keeper) {
    struct error err = {0};
    if (keeper->gate < 0) return;
    close(keeper->gate);
    keeper->gate = -1;
    keeper->replaying = false;
    if (keeper->ending) {
        keeper->over = true; // there is nobody to refuse anything to
        return;
    }
    if (keeper_lead(keeper, false, &err) < 0) {
        keeper_report(keeper, &err);
        keeper->over = true;
    }
    keeper_drain(keeper);
}

// Sends what the gate takes now; the rest when poll says so.
static void keeper_replay(struct keeper *keeper) {
    int result = 0;
    for (; result == 0 && keeper->replay < keeper->name_count; keeper->replay++) {
        struct ipc_mapping mapping = {.index = keeper->replay};
        if (keeper->names[keeper->replay][0] == '\0') continue;
        snprintf(mapping.name, sizeof(mapping.name), "%s", keeper->names[keeper->replay]);
        result = channel_send(keeper->gate, IPC_MAPPING, &mapping, sizeof(mapping), NULL, 0);
        if (result < 0) break;
    }
    if (result == 0) result = channel_send(keeper->gate, IPC_MAPPINGS_END, NULL, 0, NULL, 0);
    keeper->replaying = result == -EAGAIN;
    if (result < 0 && result != -EAGAIN) keeper_gate_lost(keeper);
}

// The sandbox's connections lead to the gate already.
static void keeper_gate_begin(struct keeper *keeper) {
    if (keeper_send_sockets(keeper) < 0) keeper_gate_lost(keeper);
    else keeper_replay(keeper);
}

static void keeper_gate_new(struct keeper *keeper, int channel) {
    struct error err = {0};
    keeper_gate_lost(keeper); // one at a time
    keeper->gate = channel;
    keeper->replay = 0;
    skeleton_buffers_set(keeper->buffers, true); // as a new gate, without connections, expects
    if (keeper_lead(keeper, true, &err) == 0) {
        keeper_gate_begin(keeper);
        return;
    }
    keeper_report(keeper, &err);
    keeper_gate_lost(keeper);
}

static bool keeper_remember(struct keeper *keeper, const struct ipc_mapping *mapping) {
    if (mapping->index >= IPC_MAPPINGS_MAX || mapping->name[0] == '\0') return false;
    char *name = keeper->names[mapping->index];
    if (name[0] != '\0') return strcmp(name, mapping->name) == 0;
    snprintf(name, NAME_SIZE, "%s", mapping->name);
    if (mapping->index >= keeper->name_count) keeper->name_count = mapping->index + 1;
    return true;
}

// False: this is not what a gate may say.
static bool keeper_gate_message(struct keeper *keeper, const struct channel_message *message) {
    if (message->type == IPC_MAPPING) return keeper_remember(keeper, message->body);
    if (message->type != IPC_BUFFERS) return false;
    const struct ipc_buffers *buffers = message->body;
    return skeleton_buffers_set(keeper->buffers, buffers->large) == 0 &&
           channel_send(keeper->gate, IPC_BUFFERS, buffers, sizeof(*buffers), NULL, 0) == 0;
}

static void keeper_gate_readable(struct keeper *keeper) {
    for (;;) {
        struct channel_message message;
        int result = channel_receive(keeper->gate, keeper->buffer, sizeof(keeper->buffer), &message);
        if (result == -EAGAIN) return;
        bool good = result == 1 && keeper_gate_message(keeper, &message);
        if (result == 1) channel_message_close(&message);
        if (!good) {
            keeper_gate_lost(keeper);
            return;
        }
    }
}

// ---- main ----

// Without nft there are the listeners that were made at the start, and no others: an isolated keeper makes no sockets.
static int keeper_ports_known(const struct keeper *keeper, const struct ipc_ports *ports, struct error *err) {
    for (uint32_t i = 0; i < ports->count; i++) {
        bool known = false;
        for (uint32_t k = 0; k < keeper->ports.count; k++) known |= keeper->ports.ports[k] == ports->ports[i];
        if (!known)
            return error_set(err, -ENOTSUP, "cannot open port %u of loopback: without nft a sandbox keeps the ports that it was "
                             "started with; start it again with the new policy", ports->ports[i]);
    }
    return 0;
}

static void keeper_ports(struct keeper *keeper, const struct ipc_ports *ports) {
    struct error err = {0};
    int result = keeper->ready.skeleton == IPC_SKELETON_ROUTES ? keeper_ports_known(keeper, ports, &err) : 0;
    if (result == 0) {
        keeper->opened = *ports;
        result = keeper_lead(keeper, keeper->gate >= 0, &err);
    }
    if (result == 0) return;
    keeper_report(keeper, &err);
    keeper_gate_lost(keeper);
}

static void keeper_main_readable(struct keeper *keeper) {
    while (!keeper->over) {
        struct channel_message message;
        int result = channel_receive(keeper->main, keeper->buffer, sizeof(keeper->buffer), &message);
        if (result == -EAGAIN) return;
        if (result == 1 && message.type == IPC_KEEPER_GATE) {
            keeper_gate_new(keeper, TAKE_FD(message.fds[0]));
        } else if (result == 1 && message.type == IPC_KEEPER_PORTS) {
            keeper_ports(keeper, message.body);
        } else if (result == 1 && message.type == IPC_KEEPER_END) {
            keeper->ending = true;
            if (message.fd_count > 0 && keeper->lock < 0) keeper->lock = TAKE_FD(message.fds[0]);
            keeper->over = keeper->gate < 0;
        } else {
            keeper->over = true; // closed, or not a message that main sends
        }
        if (result == 1) channel_message_close(&message);
    }
}

static void keeper_loop(struct keeper *keeper) {
    while (!keeper->over) {
        struct pollfd items[2] = {
            {.fd = keeper->main, .events = POLLIN},
            {.fd = keeper->gate, .events = (short)(POLLIN | (keeper->replaying ? POLLOUT : 0))},
        };
        if (poll(items, keeper->gate >= 0 ? 2 : 1, -1) < 0) {
            if (errno == EINTR) continue;
            break;
        }
        if (keeper->gate >= 0 && (items[1].revents & POLLOUT) && keeper->replaying) keeper_replay(keeper);
        if (keeper->gate >= 0 && (items[1].revents & ~POLLOUT)) keeper_gate_readable(keeper);
        if (items[0].revents) keeper_main_readable(keeper);
    }
    keeper_gate_lost(keeper);
}

// Whoever is the last to close a packet socket, or one for rules that were changed just before, waits until all processors have
// passed a quiet state, for milliseconds. So these are left with the kernel, which collects them by itself (since Linux 6.10; before,
// in who closes a UNIX socket next, which is us): in the queue of a socket that is known from its own queue alone. It does so one
// after another: as long as it is not through, a lock that lies there too makes other keepers close their own.
static void keeper_leave(struct keeper *keeper) {
    const int fds[] = {keeper->left[0], keeper->sockets[IPC_SOCKET_PACKET], skeleton_rules_fd(keeper->rules), keeper->lock};
    if (keeper->rules && keeper->left[0] >= 0 && keeper->lock >= 0)
        channel_send(keeper->left[1], IPC_KEEPER_END, NULL, 0, fds, ARRAY_LENGTH(fds));
}

static int keeper_tell_namespaces(struct keeper *keeper, struct error *err) {
    AUTO_CLOSE int user = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
    AUTO_CLOSE int net = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (user < 0 || net < 0)
        return error_set(err, -errno, "cannot open this process's namespaces: %s; mount /proc", strerror(errno));
    int fds[] = {user, net};
    int result = channel_send(keeper->main, IPC_KEEPER_NAMESPACES, NULL, 0, fds, 2);
    return result < 0 ? error_set(err, result, "cannot tell main of the sandbox's namespaces: %s", strerror(-result)) : 0;
}

static int keeper_ready(struct keeper *keeper, struct error *err) {
    // The last step that may open files; after it nothing but the channels and the rules is touched.
    int result = isolate_process(ISOLATE_KEEPER, err);
    if (result < 0) return result;
    result = channel_send(keeper->main, IPC_KEEPER_READY, &keeper->ready, sizeof(keeper->ready), NULL, 0);
    return result < 0 ? error_set(err, result, "cannot tell main that the sandbox's network is ready: %s", strerror(-result)) : 0;
}

static int keeper_enter(struct keeper *keeper, uint32_t uid, uint32_t gid, struct error *err) {
    if (keeper->entered) return 0;
    keeper->entered = true;
    int result = namespace_enter(uid, gid, err);
    return result < 0 ? result : keeper_tell_namespaces(keeper, err);
}

static int keeper_setup(struct keeper *keeper, const struct ipc_keeper_start *start, struct error *err) {
    int result = keeper_enter(keeper, start->uid, start->gid, err);
    if (result == 0) result = skeleton_sysctl(start->gid, err);
    if (result == 0) result = skeleton_buffers_open(keeper->buffers, err);
    if (result == 0) result = keeper_skeleton(keeper, start, err);
    if (result == 0 && keeper->gate >= 0 && keeper->ready.skeleton == IPC_SKELETON_ROUTES)
        result = keeper_lead(keeper, true, err); // its listeners are made closed
    if (result == 0) result = keeper_ready(keeper, err);
    if (result == 0 && keeper->gate >= 0) keeper_gate_begin(keeper);
    return result;
}

// Without nft there is nothing to do: with its sockets closed the kernel refuses by itself.
int keeper_refuse(int user_namespace, int net_namespace) {
    pid_t pid = fork();
    if (pid == 0) {
        struct skeleton_rules *rules;
        struct ipc_ports none = {0};
        bool inside = setns(user_namespace, CLONE_NEWUSER) == 0 && setns(net_namespace, CLONE_NEWNET) == 0;
        _exit(!inside || skeleton_rules_new(false, &rules, NULL) < 0 || skeleton_rules_apply(rules, &none, false, NULL) < 0);
    }
    int status = -1;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return status == 0 ? 0 : -EIO;
}

static void keeper_free(struct keeper *keeper) {
    if (!keeper) return;
    if (keeper->ending) keeper_leave(keeper);
    if (keeper->gate >= 0) close(keeper->gate);
    keeper_close_sockets(keeper);
    for (size_t i = 0; i < keeper->listener_count; i++) close(keeper->listeners[i]);
    for (size_t i = 0; i < SKELETON_BUFFERS; i++)
        if (keeper->buffers[i] >= 0) close(keeper->buffers[i]);
    skeleton_rules_free(keeper->rules);
    for (size_t i = 0; i < ARRAY_LENGTH(keeper->left); i++)
        if (keeper->left[i] >= 0) close(keeper->left[i]); // [1] last of all: then the kernel looks
    if (keeper->lock >= 0) close(keeper->lock);
    free(keeper->names);
    free(keeper);
}

int keeper_main(int channel) {
    struct error err = {0};
    struct channel_message message;
    struct keeper *keeper = NEW(struct keeper);
    if (!keeper) return 1;
    keeper->main = channel;
    keeper->gate = -1;
    for (size_t i = 0; i < IPC_SOCKET_COUNT; i++) keeper->sockets[i] = -1;
    for (size_t i = 0; i < SKELETON_BUFFERS; i++) keeper->buffers[i] = -1;
    keeper->lock = -1;
    if (channel_pair(keeper->left) < 0) keeper->left[0] = keeper->left[1] = -1;
    keeper->names = calloc(IPC_MAPPINGS_MAX, NAME_SIZE); // pages that no name uses cost nothing

    int result = channel_wait(channel, -1, keeper->buffer, sizeof(keeper->buffer), &message);
    if (result == 1 && message.type == IPC_KEEPER_ENTER) {
        struct ipc_keeper_enter enter;
        memcpy(&enter, message.body, sizeof(enter));
        int entered = keeper_enter(keeper, enter.uid, enter.gid, &err);
        result = channel_wait(channel, -1, keeper->buffer, sizeof(keeper->buffer), &message);
        if (entered < 0) { // with nothing unread, or what we say would be lost with it
            if (result == 1) channel_message_close(&message);
            keeper_report(keeper, &err);
            result = entered;
        }
    }
    if (result == 1 && message.type == IPC_KEEPER_START && keeper->names) {
        struct ipc_keeper_start start;
        memcpy(&start, message.body, sizeof(start));
        keeper->opened = start.loopback_ports;
        keeper->ports = start.ports;
        if (message.fd_count > 0) keeper->gate = TAKE_FD(message.fds[0]);
        result = keeper_setup(keeper, &start, &err);
        if (result == 0) keeper_loop(keeper);
        if (result < 0) keeper_report(keeper, &err);
    } else if (result == 1) {
        channel_message_close(&message);
        result = -EBADMSG;
    }
    keeper_free(keeper);
    return result < 0 ? 1 : 0;
}
