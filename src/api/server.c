// SPDX-License-Identifier: Apache-2.0
// Listening sockets and the set of connections. When there are as many as there may be, a new one takes the place of the
// one that has waited longest for (the rest of) a request; if all are being answered, the new one is closed.
#include <errno.h>
#include <event2/listener.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/api_state.h"
#include "base/addr.h"
#include "base/mem.h"
#include "base/number.h"

#define CONNECTIONS_DEFAULT 1024
#define CPU_DEFAULT 1
#define MEMORY_DEFAULT 512
#define BACKLOG 512
#define REARM_MS 100

struct listener {
    struct list link;
    struct evconnlistener *event;
};

static void peer_text(const struct sockaddr *sockaddr, char ret_peer[API_PEER_SIZE]) {
    struct addr addr;
    uint16_t port;
    char text[ADDR_TEXT_SIZE];
    if (addr_from_sockaddr(sockaddr, &addr, &port) < 0) {
        snprintf(ret_peer, API_PEER_SIZE, "local");
        return;
    }
    addr_format(&addr, text);
    snprintf(ret_peer, API_PEER_SIZE, addr.family == ADDR_IPV6 ? "[%s]:%u" : "%s:%u", text, port);
}

static bool make_room(struct api *api) {
    if (api->counts.connections < api->options.max_connections) return true;
    LIST_FOREACH(&api->connections, link) {
        struct connection *connection = connection_of(link);
        if (!connection_is_idle(connection)) continue;
        connection_free(connection);
        return true;
    }
    return false;
}

static void accepted(struct evconnlistener *event, evutil_socket_t fd, struct sockaddr *sockaddr, int len, void *data) {
    struct api *api = data;
    char peer[API_PEER_SIZE];
    (void)event, (void)len;
    peer_text(sockaddr, peer);
    if (!make_room(api) || connection_new(api, fd, peer) < 0) close(fd);
}

static void set_listening(struct api *api, bool on) {
    LIST_FOREACH(&api->listeners, link) {
        struct listener *listener = LIST_ENTRY(link, struct listener, link);
        if (on)
            evconnlistener_enable(listener->event);
        else
            evconnlistener_disable(listener->event);
    }
}

// Out of descriptors, most likely: the connection stays in the backlog, and we do not spin.
static void accept_failed(struct evconnlistener *event, void *data) {
    struct api *api = data;
    (void)event;
    set_listening(api, false);
    event_add(api->rearm, &(struct timeval){.tv_usec = REARM_MS * 1000});
}

static void rearm(evutil_socket_t fd, short events, void *data) {
    (void)fd, (void)events;
    set_listening(data, true);
}

int api_new(const struct api_options *options, struct api **ret_api, struct error *err) {
    struct api *api = NEW(struct api);
    if (!api) return error_set(err, -ENOMEM, "out of memory");
    api->options = *options;
    if (api->options.max_connections == 0) api->options.max_connections = CONNECTIONS_DEFAULT;
    if (api->options.cpu_count == 0) api->options.cpu_count = CPU_DEFAULT;
    if (api->options.memory_mb == 0) api->options.memory_mb = MEMORY_DEFAULT;
    if (api->options.disk_mb == 0) api->options.disk_mb = 1024;
    if (api->options.head_ms == 0) api->options.head_ms = 10000;
    if (api->options.body_ms == 0) api->options.body_ms = 60000;
    if (api->options.idle_ms == 0) api->options.idle_ms = 300000;
    signal(SIGPIPE, SIG_IGN); // bufferevents write as to a file
    list_init(&api->connections);
    list_init(&api->listeners);
    list_init(&api->calls);
    api->key = strdup(options->key);
    api->domain = options->domain ? strdup(options->domain) : NULL;
    api->rearm = event_new(options->base, -1, 0, rearm, api);
    if (api->key && api->rearm && (api->domain || !options->domain) && *api->key) {
        *ret_api = api;
        return 0;
    }
    int r = api->key && !*api->key ? error_set(err, -EINVAL, "the API key is empty; set PENSTOCK_API_KEY")
                                   : error_set(err, -ENOMEM, "out of memory");
    api_free(api);
    return r;
}

int api_listen(struct api *api, int fd, struct error *err) {
    struct listener *listener = NEW(struct listener);
    if (!listener || evutil_make_socket_nonblocking(fd) < 0) {
        free(listener);
        return error_set(err, -ENOMEM, "out of memory");
    }
    unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC;
    listener->event = evconnlistener_new(api->options.base, accepted, api, flags, BACKLOG, fd);
    if (!listener->event) {
        free(listener);
        return error_set(err, -EINVAL, "cannot listen: %s", strerror(errno));
    }
    evconnlistener_set_error_cb(listener->event, accept_failed);
    list_append(&api->listeners, &listener->link);
    return 0;
}

static int parse_address(const char *address, struct addr *ret_addr, uint16_t *ret_port) {
    const char *colon = strrchr(address, ':');
    uint64_t port;
    if (!colon || number_parse(colon + 1, strlen(colon + 1), 0, 65535, &port) < 0) return -EINVAL;
    size_t len = (size_t)(colon - address);
    bool brackets = len > 2 && address[0] == '[' && address[len - 1] == ']';
    if (addr_parse(address + brackets, len - 2 * (size_t)brackets, ret_addr) < 0) return -EINVAL;
    if (brackets != (ret_addr->family == ADDR_IPV6)) return -EINVAL;
    *ret_port = (uint16_t)port;
    return 0;
}

int api_parse_address(const char *address, struct addr *ret_addr, uint16_t *ret_port, struct error *err) {
    if (parse_address(address, ret_addr, ret_port) == 0) return 0;
    return error_set(err, -EINVAL, "\"%s\" is no place to listen; write ADDR:PORT or [ADDR6]:PORT", address);
}

int api_bind(const char *address, uint16_t *ret_port, struct error *err) {
    struct addr addr;
    uint16_t port;
    struct sockaddr_storage sockaddr;
    int on = 1;
    int rc = api_parse_address(address, &addr, &port, err);
    if (rc < 0) return rc;
    socklen_t len = addr_to_sockaddr(&addr, port, &sockaddr);
    AUTO_CLOSE int fd = socket(sockaddr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(fd, (struct sockaddr *)&sockaddr, len) < 0 || listen(fd, BACKLOG) < 0)
        return error_set(err, -errno, "cannot listen on %s: %s; use another with --listen", address, strerror(errno));
    len = sizeof(sockaddr);
    if (getsockname(fd, (struct sockaddr *)&sockaddr, &len) == 0)
        addr_from_sockaddr((struct sockaddr *)&sockaddr, &addr, &port);
    if (ret_port) *ret_port = port;
    return TAKE_FD(fd);
}

void api_set_node(struct api *api, const struct policy_node *node) {
    api->options.node = node;
    api->options.cpu_count = node->cpu_count ? node->cpu_count : CPU_DEFAULT;
    api->options.memory_mb = node->memory_mb ? node->memory_mb : MEMORY_DEFAULT;
}

void api_stop(struct api *api) { api->stopping = true; }
struct api_counts api_counts(const struct api *api) { return api->counts; }

void api_free(struct api *api) {
    if (!api) return;
    LIST_FOREACH(&api->listeners, link) {
        struct listener *listener = LIST_ENTRY(link, struct listener, link);
        evconnlistener_free(listener->event);
        free(listener);
    }
    // Each takes its call's hook; the calls live on without us.
    while (!list_empty(&api->connections)) connection_free(connection_of(api->connections.next));
    LIST_FOREACH(&api->calls, link) {
        LIST_ENTRY(link, struct api_call, link)->api = NULL;
        list_remove(link);
    }
    if (api->rearm) event_free(api->rearm);
    if (api->key) explicit_bzero(api->key, strlen(api->key));
    free(api->key);
    free(api->domain);
    free(api);
}
