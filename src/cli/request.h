// SPDX-License-Identifier: Apache-2.0
// A REQUEST of `penstock check`: a URL as what a sandbox's client would do, and its verdict.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/name.h"
#include "policy/policy.h"

struct request {
    enum policy_protocol protocol;
    enum policy_app app;
    bool sends_name; // the client says the host's name: SNI of https, Host of http
    struct name_host host;
    uint16_t port; // 0 for ICMP and DNS
    const char *path; // of the text, with its query, path_len bytes; "/" if there is none
    size_t path_len;
};

// https://, http://, tcp://host:port, udp://host:port, icmp://address, dns://name. User information is ignored; path and
// query, which borrow from the text, are for credentials only. 0, or -EINVAL with a message that quotes the text.
int request_parse(const char *text, size_t len, struct request *ret_request, struct error *err);

struct request_verdict {
    struct policy_decision decision;
    bool has_address; // an address was judged
    struct addr address;
};

// The verdict on a request. answers: what the host resolves to, or NULL if a name is to be judged alone (but localhost,
// whose addresses everybody knows). A client that sends neither TLS nor HTTP is taken to send something else, so the verdict is never inspect.
struct request_verdict request_judge(const struct policy *policy, const struct request *request,
                                     const struct addr *answers, size_t count);

// The credentials that a GET of it gets, as policy_credentials says; none where it is not allowed or not HTTPS by name.
size_t request_credentials(const struct policy *policy, const struct request *request, const struct request_verdict *verdict,
                           struct policy_credential ret_credentials[POLICY_CREDENTIALS_MAX]);

// The request as policy_decide takes it; borrows from request and address.
struct policy_request request_for_policy(const struct request *request, const struct addr *address);

// policy_hint for a request and its verdict. Returns buf.
const char *request_hint(const struct policy *policy, const struct request *request, const struct request_verdict *verdict,
                         char buf[POLICY_HINT_SIZE]);
