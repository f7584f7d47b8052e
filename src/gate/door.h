// SPDX-License-Identifier: Apache-2.0
// Doors: the explicit proxies of `penstock run --proxy`, for tools that insist on one. Each is a port of the sandbox's
// name server; a connection to it is accepted at once and then says where it wants to go.
#pragma once

#include "base/name.h"
#include "net/net.h"
#include "policy/policy.h"
#include "wire/http1.h"

struct flow;
struct gate;

enum door_kind { DOOR_NONE, DOOR_HTTP, DOOR_SOCKS };

enum door_stage {
    DOOR_GREETING, DOOR_CREDENTIALS, // SOCKS only
    DOOR_REQUEST,                    // the destination is read; of HTTP's absolute form the relay reads more of them
    DOOR_PASSED,                     // the destination is known: a flow like any other
};

struct door { // of a flow
    enum door_kind kind;
    enum door_stage stage;
    struct http1 http1;      // the head that is being read
    struct name_host target; // that was asked for last; flow->dialled may point to its name
};

// Which door this destination of a SYN is: none, where the gate has no doors.
enum door_kind door_at(const struct gate *gate, const struct addr *destination, uint16_t port);

void door_open(struct flow *flow, enum door_kind kind); // lets the SYN through
// For a flow with a door that was accepted: reads what it asks for, under a deadline.
void door_start(struct flow *flow);
void door_deadline(struct flow *flow);

// Makes this the destination of the flow. False: it is one that is refused before any verdict, for this reason.
bool door_aim(struct flow *flow, const struct name_host *target, uint16_t port, struct policy_decision *ret_denial);
// A request that names no destination came: the flow has none any more.
void door_lose_aim(struct flow *flow);
// Whether it is the destination already.
bool door_aims_at(const struct flow *flow, const struct name_host *target, uint16_t port);

// The answers: the destination is open (the flow goes on as one that was just accepted), or refused. error: of a dial
// that failed, a negative errno.
void door_admit(struct flow *flow);
void door_refuse(struct flow *flow, const struct policy_request *request, const struct policy_decision *decision,
                 int error);
