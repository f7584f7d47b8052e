// SPDX-License-Identifier: Apache-2.0
// What the fields of a parsed head mean for framing, routing and the connection. Private to the http1_* files.
#pragma once

#include "wire/http1.h"

// The request target: form, authority, path (RFC 9112 3.2). False: malformed.
bool http1_field_target(struct http1_head *head);
// Host, Connection, Upgrade, Expect, Content-Length, Transfer-Encoding; then the framing. False: malformed, ambiguous.
bool http1_field_read(const struct http1 *http1, struct http1_head *head);
// Letter case ignored.
bool http1_field_is(struct wire_slice slice, const char *text);
