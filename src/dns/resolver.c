// SPDX-License-Identifier: Apache-2.0
// The resolver process: one for all gates of a main, the only one that talks DNS to the outside.
//
// It is told its servers once, sets libunbound up, isolates itself and then serves gates. It knows nothing about
// policies: what may be asked was judged by the gate that asks. It ends when main's channel closes.
#include "dns/resolver.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <event2/event.h>

#include "base/mem.h"
#include "dns/dns.h"
#include "net/net.h"

#define START_TIMEOUT_MS 10000

struct resolver {
    struct event_base *base;
    int channel;
    struct event *readable;
    struct resolver_contexts contexts;
    struct list gates;
    uint8_t buffer[sizeof(struct ipc_header) + sizeof(struct ipc_resolver_start) + 1];
};

static void resolver_message(struct resolver *resolver, struct channel_message *message) {
    if (message->type == IPC_RESOLVER_GATE)
        resolver_gate_new(resolver->base, &resolver->contexts, &resolver->gates, TAKE_FD(message->fds[0]));
    channel_message_close(message);
}

static void resolver_readable(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct resolver *resolver = data;
    for (;;) {
        struct channel_message message;
        int r = channel_receive(resolver->channel, resolver->buffer, sizeof(resolver->buffer), &message);
        if (r == -EAGAIN) return;
        if (r <= 0) {
            event_base_loopbreak(resolver->base);
            return;
        }
        resolver_message(resolver, &message);
    }
}

// Sockets for queries: libunbound holds up to a few hundred in each context.
static void raise_descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static int resolver_start(struct resolver *resolver, struct error *err) {
    struct channel_message message;
    int r = channel_wait(resolver->channel, START_TIMEOUT_MS, resolver->buffer, sizeof(resolver->buffer), &message);
    if (r <= 0) return error_set(err, r < 0 ? r : -EPIPE, "the resolver got no start message from main");
    channel_message_close(&message);
    if (message.type != IPC_RESOLVER_START)
        return error_set(err, -EBADMSG, "the resolver expected its start message, got type %u", message.type);
    r = resolver_contexts_init(&resolver->contexts, resolver->base, message.body, err);
    if (r < 0) return r;
    resolver->readable =
        event_new(resolver->base, resolver->channel, EV_READ | EV_PERSIST, resolver_readable, resolver);
    if (!resolver->readable || event_add(resolver->readable, NULL) < 0)
        return error_set(err, -ENOMEM, "out of memory for the resolver's events");
    r = isolate_process(ISOLATE_RESOLVER, err);
    if (r < 0) return error_context(err, r, "the resolver cannot isolate itself");
    r = channel_send(resolver->channel, IPC_RESOLVER_READY, NULL, 0, NULL, 0);
    return r < 0 ? error_set(err, r, "main does not take the resolver's messages") : 0;
}

static void resolver_report(int channel, const struct error *err) {
    struct ipc_error message = {0};
    snprintf(message.text, sizeof(message.text), "%s", err->text);
    (void)channel_send(channel, IPC_ERROR, &message, sizeof(message), NULL, 0);
}

int resolver_main(int channel) {
    struct resolver resolver = {.channel = channel};
    struct error err = {0};
    list_init(&resolver.gates);
    list_init(&resolver.contexts.foreign);
    signal(SIGPIPE, SIG_IGN); // libunbound writes to TCP servers that may be gone
    raise_descriptors();
    resolver.base = event_base_new();
    int r =
        resolver.base ? resolver_start(&resolver, &err) : error_set(&err, -ENOMEM, "out of memory for an event loop");
    if (r < 0)
        resolver_report(channel, &err);
    else
        event_base_dispatch(resolver.base);
    resolver_gates_free(&resolver.gates);
    resolver_contexts_done(&resolver.contexts);
    if (resolver.readable) event_free(resolver.readable);
    if (resolver.base) event_base_free(resolver.base);
    close(channel);
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
