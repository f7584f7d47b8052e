// SPDX-License-Identifier: Apache-2.0
// The DNS servers that the resolver asks: from the command line, else the configuration, else the host's resolv.conf.
#pragma once

#include <stddef.h>

#include "base/error.h"
#include "wire/ipc.h"

// "ADDR", "ADDR:PORT", "[ADDR6]:PORT". 0, or -EINVAL with a message that quotes the text.
int nameserver_parse(const char *text, struct ipc_resolver_server *ret_server, struct error *err);
// From texts (count may be 0: then /etc/resolv.conf, whose lines that are not addresses are passed over, as the C library
// does). 0 (ret_start->count may be 0), or -EINVAL, -EHOSTUNREACH: a server given explicitly that the host has no route to.
int nameserver_collect(const char *const *texts, size_t count, struct ipc_resolver_start *ret_start, struct error *err);
