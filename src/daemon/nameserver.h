// SPDX-License-Identifier: Apache-2.0
// The DNS servers that the resolver asks: from the command line, else the configuration, else the host's resolv.conf.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "wire/ipc.h"

// "ADDR", "ADDR:PORT", "[ADDR6]:PORT". 0, or -EINVAL with a message that quotes the text.
int nameserver_parse(const char *text, struct ipc_resolver_server *ret_server, struct error *err);
// From texts (count may be 0: then /etc/resolv.conf, whose lines that are not addresses are passed over, as the C library
// does). 0 (ret_start->count may be 0), or -EINVAL, -EHOSTUNREACH: a server given explicitly that the host has no route to.
int nameserver_collect(const char *const *texts, size_t count, struct ipc_resolver_start *ret_start, struct error *err);

// Whether any of the servers is there: a TCP connection to its port is begun with all of them at once; one that does not
// take TCP is asked for the root's name servers over UDP, and is dead only if it refuses that too. A host that says nothing
// at all is dead. start returns at once; finish waits up to timeout_ms for the
// first sign of life. 0, or -EHOSTUNREACH with a message that names the servers.
struct nameserver_probe {
    const struct ipc_resolver_start *servers;
    int fds[IPC_SERVERS_MAX]; // -1: refused over both transports
    bool datagram[IPC_SERVERS_MAX];
};
void nameserver_probe_start(const struct ipc_resolver_start *servers, struct nameserver_probe *ret_probe);
int nameserver_probe_finish(struct nameserver_probe *probe, int timeout_ms, struct error *err);
