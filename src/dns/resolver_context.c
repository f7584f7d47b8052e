// SPDX-License-Identifier: Apache-2.0
// libunbound on our libevent base.
//
// A context forwards everything to its servers: it never recurses from the root. It reads no file (no resolv.conf, no
// hosts, no trust anchor). Answers are not validated: the servers are the host's own choice, the sandbox never sees who
// signed what, and what decides is the address that is judged afterwards; a validator would need a trust anchor on disk
// and a right clock, and would break the private zones that people run.
//
// A server that a sandbox addressed by itself gets a context of its own, so that its answers never enter the cache that
// others use. The least recently used idle one makes room for the next.
#include "dns/resolver.h"

#include <errno.h>
#include <stdio.h>
#include <event2/event.h>
#include <unbound.h>
#include <unbound-event.h>

#include "base/addr.h"
#include "base/library.h"
#include "base/mem.h"
#include "wire/dns_message.h"

struct resolver_context {
    struct list link;
    struct ub_ctx *unbound;
    struct ipc_resolver_server server; // of a foreign one
    unsigned in_flight;
};

struct context_query {
    struct resolver_context *context;
    resolver_context_done *done;
    void *data;
};

struct context_option {
    const char *name, *value;
};

#define UB_CALLS(X) \
    X(ub_ctx_create_event) X(ub_ctx_delete) X(ub_ctx_set_fwd) X(ub_ctx_set_option) X(ub_ctx_zone_remove) X(ub_resolve_event) \
    X(ub_strerror)
#define UB_ROW(name) LIBRARY_ROW(struct ub, name)
static struct ub { UB_CALLS(LIBRARY_MEMBER) } ub;
static const struct library_call ub_calls[] = {UB_CALLS(UB_ROW)};

// A name that every new context answers by itself, so that one question makes libunbound open and read what it needs.
#define WARM_UP_NAME "warm-up.penstock.invalid."

static const struct context_option options[] = {
    {"module-config:", "iterator"},
    {"do-not-query-localhost:", "no"}, // the host's stub resolver is often there
    {"unblock-lan-zones:", "yes"},
    {"local-zone:", WARM_UP_NAME " static"},
    {"qname-minimisation:", "no"}, // forwarders are asked the whole question
    {"edns-buffer-size:", "1232"},
    {"prefetch:", "no"},
    {"num-queries-per-thread:", "1024"},
    {"cache-max-ttl:", "3600"},
    {"cache-max-negative-ttl:", "60"},
    // A dead server among two costs its first timeout once; one that comes back is found within a minute.
    {"fast-server-permil:", "900"},
    {"fast-server-num:", "1"},
    {"infra-cache-max-rtt:", "3500"}, // a server that takes longer for an answer is never heard
    {"infra-keep-probing:", "yes"},
    {"infra-host-ttl:", "60"},
    {"infra-cache-numhosts:", "256"},
    {"msg-cache-slabs:", "1"},
    {"rrset-cache-slabs:", "1"},
    {"infra-cache-slabs:", "1"},
    {"use-syslog:", "no"},
    {"verbosity:", "0"},
};
static const struct context_option configured_options[] = {
    {"outgoing-range:", "256"},
    {"outgoing-num-tcp:", "32"},
    {"msg-cache-size:", "4m"},
    {"rrset-cache-size:", "8m"},
};
static const struct context_option foreign_options[] = {
    {"outgoing-range:", "32"},
    {"outgoing-num-tcp:", "8"},
    {"msg-cache-size:", "256k"},
    {"rrset-cache-size:", "512k"},
};

// Zones that libunbound answers by itself although they are the servers' to answer (or, localhost, the front's). Taken
// out after the start: set before it, `local-zone: test. nodefault` has no effect in libunbound 1.17.
static const char *const built_in_zones[] = {
    "localhost.",
    "127.in-addr.arpa.",
    "home.arpa.",
    "onion.",
    "test.",
    "invalid.",
    "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa.",
    WARM_UP_NAME,
};

static int context_options(struct ub_ctx *unbound, const struct context_option *list, size_t count, struct error *err) {
    for (size_t i = 0; i < count; i++) {
        int r = ub.ub_ctx_set_option(unbound, list[i].name, list[i].value);
        if (r != 0)
            return error_set(err, -EINVAL, "libunbound refuses the option \"%s %s\": %s; use libunbound 1.17 or later",
                             list[i].name, list[i].value, ub.ub_strerror(r));
    }
    return 0;
}

static int context_server(struct ub_ctx *unbound, const struct ipc_resolver_server *server, struct error *err) {
    char address[ADDR_TEXT_SIZE], text[ADDR_TEXT_SIZE + 8];
    snprintf(text, sizeof(text), "%s@%u", addr_format(&server->address, address), server->port);
    int r = ub.ub_ctx_set_fwd(unbound, text);
    if (r == 0) return 0;
    return error_set(err, -EINVAL, "libunbound refuses the DNS server \"%s\": %s", text, ub.ub_strerror(r));
}

static void warmed_up(void *data, int rcode, void *packet, int len, int secure, char *why, int limited) {
    (void)rcode, (void)packet, (void)len, (void)secure, (void)why, (void)limited;
    *(bool *)data = true;
}

static int context_warm_up(struct ub_ctx *unbound, struct error *err) {
    static bool answered; // lives on in case the answer comes later
    answered = false;
    int r = ub.ub_resolve_event(unbound, WARM_UP_NAME, DNS_A, 1, &answered, warmed_up, NULL);
    if (r != 0 || !answered)
        return error_set(err, -EINVAL, "libunbound does not start: %s",
                         r ? ub.ub_strerror(r) : "no answer from a local zone");
    for (size_t i = 0; i < ARRAY_LENGTH(built_in_zones); i++) {
        r = ub.ub_ctx_zone_remove(unbound, built_in_zones[i]);
        if (r != 0)
            return error_set(err, -EINVAL, "libunbound keeps its zone \"%s\": %s", built_in_zones[i], ub.ub_strerror(r));
    }
    return 0;
}

static int context_setup(struct ub_ctx *unbound, const struct ipc_resolver_server *servers, size_t count, bool foreign,
                         struct error *err) {
    int r = context_options(unbound, options, ARRAY_LENGTH(options), err);
    if (r < 0) return r;
    r = foreign ? context_options(unbound, foreign_options, ARRAY_LENGTH(foreign_options), err)
                : context_options(unbound, configured_options, ARRAY_LENGTH(configured_options), err);
    for (size_t i = 0; i < count && r == 0; i++) r = context_server(unbound, &servers[i], err);
    return r < 0 ? r : context_warm_up(unbound, err);
}

static void context_free(struct resolver_context *context) {
    if (!context) return;
    if (context->unbound) ub.ub_ctx_delete(context->unbound);
    list_remove(&context->link);
    free(context);
}

static int context_new(struct event_base *base, const struct ipc_resolver_server *servers, size_t count, bool foreign,
                       struct resolver_context **ret_context, struct error *err) {
    struct resolver_context *context = NEW(struct resolver_context);
    if (!context) return error_set(err, -ENOMEM, "out of memory for a resolver");
    list_init(&context->link);
    context->server = servers[0];
    context->unbound = ub.ub_ctx_create_event(base);
    int r = context->unbound ? context_setup(context->unbound, servers, count, foreign, err)
                             : error_set(err, -ENOMEM, "libunbound cannot make a context: out of memory");
    if (r < 0) {
        context_free(context);
        return r;
    }
    *ret_context = context;
    return 0;
}

int resolver_contexts_init(struct resolver_contexts *contexts, struct event_base *base,
                           const struct ipc_resolver_start *start, struct error *err) {
    *contexts = (struct resolver_contexts){.base = base};
    list_init(&contexts->foreign);
    int r = library_load("libunbound.so.8", ub_calls, ARRAY_LENGTH(ub_calls), &ub, err);
    if (r < 0 || start->count == 0) return r;
    return context_new(base, start->servers, start->count, false, &contexts->configured, err);
}

void resolver_contexts_done(struct resolver_contexts *contexts) {
    context_free(contexts->configured);
    LIST_FOREACH (&contexts->foreign, node) context_free(LIST_ENTRY(node, struct resolver_context, link));
}

static bool same_server(const struct ipc_resolver_server *a, const struct ipc_resolver_server *b) {
    return a->port == b->port && addr_equal(&a->address, &b->address);
}

static struct resolver_context *contexts_find(struct resolver_contexts *contexts,
                                              const struct ipc_resolver_server *server) {
    LIST_FOREACH (&contexts->foreign, node) {
        struct resolver_context *context = LIST_ENTRY(node, struct resolver_context, link);
        if (same_server(&context->server, server)) return context;
    }
    return NULL;
}

static int contexts_make_room(struct resolver_contexts *contexts) {
    if (contexts->foreign_count < RESOLVER_FOREIGN_MAX) return 0;
    LIST_FOREACH (&contexts->foreign, node) {
        struct resolver_context *context = LIST_ENTRY(node, struct resolver_context, link);
        if (context->in_flight > 0) continue;
        context_free(context);
        contexts->foreign_count--;
        return 0;
    }
    return -EBUSY;
}

static int contexts_foreign(struct resolver_contexts *contexts, const struct ipc_resolver_server *server,
                            struct resolver_context **ret_context) {
    struct resolver_context *context = contexts_find(contexts, server);
    if (!context) {
        int r = contexts_make_room(contexts);
        if (r == 0) r = context_new(contexts->base, server, 1, true, &context, NULL);
        if (r < 0) return r;
        contexts->foreign_count++;
    }
    list_remove(&context->link);
    list_append(&contexts->foreign, &context->link);
    *ret_context = context;
    return 0;
}

static void context_answered(void *data, int rcode, void *packet, int len, int secure, char *why, int limited) {
    (void)secure, (void)why, (void)limited;
    struct context_query *query = data;
    query->context->in_flight--;
    // A message comes with NOERROR and NXDOMAIN; SERVFAIL is libunbound's word for "no server gave an answer".
    bool good = packet && len > 0 && (rcode == DNS_NOERROR || rcode == DNS_NXDOMAIN);
    query->done(good ? 0 : -EIO, good ? packet : NULL, good ? (size_t)len : 0, query->data);
    free(query);
}

int resolver_contexts_ask(struct resolver_contexts *contexts, const struct ipc_query *query,
                          resolver_context_done *done, void *data) {
    if (query->type == 0 || query->type == DNS_OPT || (query->type >= 128 && query->type <= 255)) return -EINVAL;
    struct resolver_context *context = contexts->configured;
    int r = query->has_server ? contexts_foreign(contexts, &query->server, &context) : 0;
    if (r < 0) return r;
    if (!context) return -ENETUNREACH;
    if (context->in_flight >= RESOLVER_IN_FLIGHT_MAX) return -EBUSY;
    struct context_query *asked = NEW(struct context_query);
    if (!asked) return -ENOMEM;
    *asked = (struct context_query){.context = context, .done = done, .data = data};
    context->in_flight++;
    const char *name = query->name[0] ? query->name : ".";
    r = ub.ub_resolve_event(context->unbound, name, query->type, 1, asked, context_answered, NULL);
    if (r == 0) return 0;
    context->in_flight--;
    free(asked);
    return r == UB_NOMEM ? -ENOMEM : -EINVAL;
}
