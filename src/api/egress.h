// SPDX-License-Identifier: Apache-2.0
// The policy that a request asks for: found in its body, read by the policy room (which has all rules and texts), held
// against the sandbox's type and compiled once, so that what is handed on is valid. Private to the api room.
#pragma once

#include "api/api_state.h"

struct egress {
    char *policy; // what is stored; no ingress settings in it
    enum policy_dialect dialect;
    bool allow_public_traffic;
    char *mask_request_host;
};

// From the body of a create or build (`network`, the switch in either spelling, or `policy`). Adds x-penstock-warning to the
// call for what the policy does not do though it seems to. 0, or -EINVAL, -ENOMEM with a message.
int egress_create(const struct api *api, struct api_call *call, json_t *body, enum policy_type type,
                  struct egress *ret_egress, struct error *err);
// From the body of PUT network: lists and switch side by side, or `policy`; ingress settings in it are an error.
int egress_update(const struct api *api, struct api_call *call, json_t *body, enum policy_type type,
                  struct egress *ret_egress, struct error *err);
void egress_done(struct egress *egress); // wipes
