// SPDX-License-Identifier: Apache-2.0
// The skeleton inside a sandbox's network namespace: addresses and routes on lo, nft rules, sysctls, and the sockets that a
// gate holds. All of it is made by the keeper, in the namespace, with CAP_NET_ADMIN and CAP_NET_RAW there. There are two
// (enum ipc_skeleton): with nft rules, and without, where the kernel has no nft tproxy.
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"
#include "wire/ipc.h"

#define SKELETON_ADDRESS4 "192.0.0.2"
#define SKELETON_ADDRESS6 "fd5a:91c3:7e24:1::2"
#define SKELETON_ADDRESS4_BYTES 192, 0, 0, 2
#define SKELETON_ADDRESS6_BYTES 0xfd, 0x5a, 0x91, 0xc3, 0x7e, 0x24, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2
// Where the gate's listeners are bound: addresses that are local nowhere, so that only tproxy leads to them.
#define SKELETON_GATE4 192, 0, 0, 3
#define SKELETON_GATE6 0xfd, 0x5a, 0x91, 0xc3, 0x7e, 0x24, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3
#define SKELETON_GATE_PORT 1
#define SKELETON_NO_PORT 2 // nothing of ours listens there: only what is connected is found

enum { SKELETON_MARK_HELD = 1, SKELETON_MARK_INJECTED = 2 };

// Each: 0, or a negative errno with a message that names the step, and the kernel feature or setting to change. -ENOTSUP:
// the kernel lacks what only TPROXY needs; the message is the name of that alone.
int skeleton_sysctl(gid_t gid, struct error *err);
// Files through which the limits of TCP buffers are set, large at first. They stay usable after isolation.
#define SKELETON_BUFFERS 2
int skeleton_buffers_open(int ret_fds[SKELETON_BUFFERS], struct error *err);
int skeleton_buffers_set(const int fds[SKELETON_BUFFERS], bool large);
int skeleton_link(struct error *err); // lo is up and has the sandbox's addresses
int skeleton_route(enum ipc_skeleton skeleton, struct error *err);
// -1 for those that the skeleton does not have.
int skeleton_socket(enum ipc_skeleton skeleton, int ret_fds[IPC_SOCKET_COUNT], struct error *err);

// ROUTES: one TCP listener a port and family, closed; ret_fds has room for IPC_LISTENERS_MAX.
int skeleton_listener(const struct ipc_ports *ports, int *ret_fds, struct error *err);
#define SKELETON_LISTENER_NEEDS "Linux 5.0 or later"
// Binds a socket to an interface that never is, or to none again: the kernel refuses what is sent to a closed one as if no
// socket were there, while its port stays taken. What has arrived at it stays in its queue.
int skeleton_listener_open(int fd, bool open);
bool skeleton_lacks(int error); // this errno says that the kernel lacks something

// The nft rules. One object lives as long as the keeper, since opening netlink is over once it is isolated.
struct skeleton_rules;
// fresh: a namespace where none of ours have been.
int skeleton_rules_new(bool fresh, struct skeleton_rules **ret_rules, struct error *err);
int skeleton_rules_fd(const struct skeleton_rules *rules); // its socket, or -1
void skeleton_rules_free(struct skeleton_rules *rules);
// Puts the whole rule set in place of the one before, in one transaction. Without a gate everything that would go to it is
// refused by the kernel at once. -ENOTSUP as above, from skeleton_rules_new too.
int skeleton_rules_apply(struct skeleton_rules *rules, const struct ipc_ports *opened, bool with_gate, struct error *err);
