// SPDX-License-Identifier: Apache-2.0
// The servers of `penstock self-test` on the host, which nobody may reach: on every address of the host, TCP and UDP, both
// families; UNIX sockets; a DNS server that must see no name but the allowed one; and a process that nobody may signal.
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/addr.h"
#include "base/error.h"

enum canary_socket {
    CANARY_TCP4, CANARY_TCP6, CANARY_UDP4, CANARY_UDP6, CANARY_ABSTRACT, CANARY_INSIDE, CANARY_OUTSIDE, CANARY_DNS_UDP,
    CANARY_DNS_TCP, CANARY_DECOY, CANARY_COUNT,
};

struct canary {
    int fds[CANARY_COUNT];    // -1: none (no IPv6 on this host, say)
    uint16_t port, dns_port;
    struct addr own4, own6;   // what the DNS server says that the allowed name is
    const char *allowed;      // that name
    struct addr *addresses;   // of this host: whoever comes from elsewhere is not ours
    size_t address_count;
    pid_t decoy;
    char contact[160]; // the first contact since it was cleared; "" if none
};

// abstract: name without the leading NUL. Paths of the two UNIX sockets. 0, or a negative errno with a message.
int canary_start(struct canary *canary, const char *abstract, const char *inside, const char *outside, struct error *err);
// Takes over a running process (a child of the caller).
void canary_watch(struct canary *canary, pid_t decoy);
// Serves what is there now, without waiting, and notes contacts.
void canary_serve(struct canary *canary);
void canary_stop(struct canary *canary);
