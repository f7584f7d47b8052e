// SPDX-License-Identifier: Apache-2.0
// From a judged destination to a connected socket.
#pragma once

#include "base/addr.h"
#include "policy/policy.h"

struct gate;
struct connector;
// fd >= 0: connected; peer is what was dialled. fd < 0: -errno; denied is the decision if the answers were refused (peer is
// then the first denied one), else NULL. The connector is gone when this is called. Never called from inside connector_start.
typedef void connector_done(int fd, const struct addr *peer, const struct policy_decision *denied, void *data);
// name not NULL: resolves it in this family (ADDR_NONE: both), judges every answer with the request, dials what may be
// dialled. name NULL: dials request->address, which the caller has judged. NULL: out of memory or descriptors.
struct connector *connector_start(struct gate *gate, const struct policy_request *request, const char *name,
                                  enum addr_family family, connector_done *done, void *data);
void connector_cancel(struct connector *connector);
// What the policy that is in force now says to where it is on its way: denied if one of the addresses it may dial is.
struct policy_decision connector_rejudge(const struct connector *connector);
