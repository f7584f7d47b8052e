// SPDX-License-Identifier: Apache-2.0
// The node's guardrails in the kernel: what a node's gates and resolvers may not send to, whatever becomes of these
// processes. They are known by their users' numbers, so the rules stand before the first gate is started, need no change when
// one comes or goes, and hold for one whose node is gone.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/error.h"
#include "wire/ipc.h"

// Numbers of users: a node has 2 * GUARD_ROLE_USERS of them from a multiple of that; the first half is its gates', the second
// its resolvers'.
#define GUARD_ROLE_USERS (UINT32_C(1) << 22)

struct guard {
    const char *name;   // of its tables, less than GUARD_NAME_SIZE
    uint32_t users;     // the first number
    bool special;       // every address that is not globally reachable is denied
    bool own;           // and every address of this host
    const struct addr_prefix *denied, *allowed, *nat64; // allowed: of these two and of `denied` exempt
    size_t denied_count, allowed_count, nat64_count;
    const struct addr *own_addresses; // more of them
    size_t own_count;
    const struct ipc_resolver_server *servers; // what resolvers may reach besides
    size_t server_count;
};
#define GUARD_NAME_SIZE 64

// Puts it into force in this network namespace, in the place of the one of that name, all at once: when it fails, that one
// stays. 0, or a negative errno with a message.
int guard_load(const struct guard *guard, struct error *err);
// Takes it away. 0 also if there is none.
int guard_remove(const char *name, struct error *err);

// A descriptor that is readable when somebody has changed nf_tables of this network namespace, or -errno.
int guard_watch(void);
// Reads it empty. True: something of the guard of that name has been taken away ("nft flush ruleset"), perhaps by its own load.
bool guard_is_lost(int fd, const char *name);

// ---- guard_range.c: addresses as ranges, pure ----

struct guard_range {
    struct addr first, last;
};

struct guard_ranges {
    struct guard_range *list; // freed by the caller
    size_t count, size;
};

// All that is denied, with the IPv6 addresses that carry an IPv4 address which is; sorted, without overlaps. 0 or -ENOMEM.
int guard_denied(const struct guard *guard, struct guard_ranges *ret_ranges);
int guard_allowed(const struct guard *guard, struct guard_ranges *ret_ranges);
// The address behind it. False: there is none.
bool guard_next(const struct addr *addr, struct addr *ret_next);
