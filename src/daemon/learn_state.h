// SPDX-License-Identifier: Apache-2.0
// What learning holds: shared by learn.c, which fills it, and learn_text.c, which makes a policy of it.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/name.h"
#include "policy/model.h"

#define LEARN_ROWS_MAX 4096 // a sandbox can make up any number
#define LEARN_CONNECTIONS 256 // the default limit, which a policy need not say

// In the order of a host's entries in the policy: what is broader first, so that it leaves out what it covers.
enum learn_protocol {
    LEARN_TCP,
    LEARN_UDP,
    LEARN_ICMP,
    LEARN_HTTPS,
    LEARN_HTTP,
    LEARN_UNANSWERED, // dialled by name, and nobody answered: what would have been said is not known
    LEARN_LOOKUP,     // asked for in the DNS
    LEARN_PROTOCOL_COUNT,
};

struct learn_row {
    char name[NAME_SIZE]; // "" for an address
    struct addr address;
    enum learn_protocol protocol;
    uint16_t port;   // 0: none
    bool private_ok; // an entry given with "private: true" allowed it
    uint64_t count;
};

struct learn {
    char *path;  // as given
    char *file;  // its last part
    char *way;   // the rest of it
    int folder;  // O_PATH
    const struct policy_model *model;
    size_t given_count;       // allow entries of the model before it was opened
    struct policy *reference; // what was given, compiled
    struct learn_row *rows;   // sorted: names before addresses, then by protocol and port
    size_t row_count;
    uint64_t lost; // records that found no place
};

struct buf;
// The bindings that were given as entries of `credentials`, and of `allow` where their hosts were not reached.
void learn_print_credentials(const struct learn *learn, struct buf *hosts, struct buf *credentials);

const char *learn_protocol_name(enum learn_protocol protocol);
