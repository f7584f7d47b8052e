// SPDX-License-Identifier: Apache-2.0
// The front door of the dns room: the resolver process, its client in a gate, the synthetic pool, and the DNS server that a
// sandbox sees on port 53 of every address.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/error.h"
#include "policy/policy.h"

struct event_base;

// ---- resolver process (libunbound) ----

// Role main. Serves any number of gates, each on its own channel; bounded queries in flight per gate. Returns an exit status.
int resolver_main(int channel);

// ---- client, in a gate ----

struct dns_client;
struct dns_client *dns_client_new(struct event_base *base, int channel); // takes the channel
// Another resolver in place of one that is gone; takes the channel. Lookups under way fail with -EPIPE. 0 or -ENOMEM.
int dns_client_replace(struct dns_client *client, int channel);
void dns_client_free(struct dns_client *client);

struct dns_lookup;
// status 0: answer is a DNS message; else a negative errno (-ETIMEDOUT, -EPIPE: the resolver is gone).
typedef void dns_lookup_done(int status, const uint8_t *answer, size_t len, void *data);
// server: NULL = the configured ones. Ends after at most 10 s. done is never called from inside. NULL: too many in flight.
struct dns_lookup *dns_client_lookup(struct dns_client *client, const char *name, uint16_t type, const struct addr *server,
                                     uint16_t port, dns_lookup_done *done, void *data);
void dns_lookup_cancel(struct dns_lookup *lookup);

// Addresses of a name in one family (or both with ADDR_NONE: IPv6 first), CNAMEs followed by the resolver, at most
// DNS_ADDRESSES_MAX. status 0 (count may be 0: no data or NXDOMAIN), else -errno: the lookup failed.
#define DNS_ADDRESSES_MAX 32
struct dns_resolve;
typedef void dns_resolve_done(int status, const struct addr *addresses, size_t count, void *data);
struct dns_resolve *dns_client_resolve(struct dns_client *client, const char *name, enum addr_family family,
                                       dns_resolve_done *done, void *data);
void dns_resolve_cancel(struct dns_resolve *resolve);

// ---- synthetic pool ----

#define DNS_POOL_MAX 4096
struct dns_pool;
// saved is called for each new mapping (the keeper remembers it).
struct dns_pool *dns_pool_new(const struct addr_prefix *pool4, const struct addr_prefix *pool6,
                              void (*saved)(uint32_t index, const char *name, void *data), void *data);
void dns_pool_free(struct dns_pool *pool);
int dns_pool_restore(struct dns_pool *pool, uint32_t index, const char *name); // 0, -EINVAL, -EEXIST
int dns_pool_assign(struct dns_pool *pool, const char *name, uint32_t *ret_index); // 0, -ENOSPC, -ENOMEM
bool dns_pool_contains(const struct dns_pool *pool, const struct addr *addr); // inside one of the prefixes
const char *dns_pool_name(const struct dns_pool *pool, const struct addr *addr); // NULL if not mapped
size_t dns_pool_count(const struct dns_pool *pool); // names that are mapped
struct addr dns_pool_address(const struct dns_pool *pool, uint32_t index, enum addr_family family);

// ---- front ----

struct dns_front;
struct dns_front_callbacks {
    const struct policy *(*policy)(void *data); // the one in force
    // A decision to log (request->dialled is the question's name or NULL). address is the server that was asked.
    void (*decided)(const struct policy_request *request, const struct policy_decision *decision, void *data);
    // What the sandbox's limits say to a question of so many bytes: 0, -EDQUOT: no more bytes, -EAGAIN: it is lost. NULL: none.
    int (*asked)(size_t len, void *data);
    void (*told)(size_t len, void *data); // an answer of so many bytes goes to the sandbox; NULL with asked
    void *data;
};
struct dns_front *dns_front_new(struct event_base *base, struct dns_client *client, struct dns_pool *pool,
                                const struct dns_front_callbacks *callbacks);
void dns_front_free(struct dns_front *front);
// While paused no further query of a TCP connection is taken (its client waits).
void dns_front_pause(struct dns_front *front, bool paused);

// answer NULL: nothing is sent (the message was not even a query). May be called from inside or later.
typedef void dns_front_reply(const uint8_t *answer, size_t len, void *data);
// One UDP datagram to port 53 of server. data lives until reply was called; at most DNS_FRONT_PENDING_MAX wait at a time,
// beyond that SERVFAIL at once. The caller has judged that no CIDR entry allows the server itself (see dns_front_relay).
#define DNS_FRONT_PENDING_MAX 256
void dns_front_query(struct dns_front *front, const uint8_t *message, size_t len, const struct addr *server,
                     dns_front_reply *reply, void *data);
// One UDP datagram to a server that a CIDR entry allows: relayed to it and the answer back, bytes untouched, one
// short-lived socket for each query.
void dns_front_relay(struct dns_front *front, const uint8_t *message, size_t len, const struct addr *server, uint16_t port,
                     dns_front_reply *reply, void *data);
// Takes an accepted TCP connection to port 53: queries with length prefix (RFC 7766), judged one by one, answered in
// order of completion, idle deadline 10 s, at most 16 outstanding.
void dns_front_stream(struct dns_front *front, int fd, const struct addr *server);
