// SPDX-License-Identifier: Apache-2.0
// `penstock serve`: configuration, state folder, API key, store, and then the loop. SIGHUP reads the configuration again; when
// it is wrong the old one stays. SIGTERM and SIGINT end the daemon; the sandboxes run on, and are found again by the next one.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/number.h"
#include "daemon/daemon.h"
#include "daemon/nameserver.h"
#include "daemon/node.h"
#include "vault/vault.h"

#define SERVE_LISTEN "127.0.0.1:8000"
#define SERVE_CONFIG_MAX (1 << 20)
#define SERVE_SOCKET 3 // of the service manager

struct serve {
    const struct daemon_serve *options;
    struct node node;
    struct event *events[3];
    char state[PATH_MAX];
    char *upstream_ca;
    int lock;
};

// ---- configuration ----

static int serve_read_file(const char *path, char **ret_text, struct error *err) {
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) < 0) return error_set(err, -EINVAL, "--config %s: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode) || status.st_size > SERVE_CONFIG_MAX)
        return error_set(err, -EINVAL, "--config %s: expected a file of at most %d bytes", path, SERVE_CONFIG_MAX);
    AUTO_FREE char *text = NEW_ARRAY(char, (size_t)status.st_size + 1);
    if (!text) return error_set(err, -ENOMEM, "out of memory");
    if (pread(fd, text, (size_t)status.st_size, 0) != status.st_size) return error_set(err, -EINVAL, "--config %s: cannot be read", path);
    *ret_text = TAKE_POINTER(text);
    return 0;
}

static int serve_read_config(const struct daemon_serve *options, char **ret_text, struct policy_node *ret_node, struct error *err) {
    AUTO_FREE char *text = NULL;
    int rc = options->config ? serve_read_file(options->config, &text, err) : 0;
    if (rc == 0) rc = policy_node_read(text, text ? strlen(text) : 0, options->config, environ, ret_node, err);
    if (rc < 0) return rc;
    ret_node->guarded = true;
    *ret_text = TAKE_POINTER(text);
    return 0;
}

static void serve_reload(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct serve *serve = data;
    struct policy_node config = {0};
    struct error err = {0};
    char *text = NULL;
    if (serve_read_config(serve->options, &text, &config, &err) < 0) {
        fprintf(stderr, "penstock: %s; the configuration stays as it was\n", err.text);
        return;
    }
    policy_node_done(&serve->node.config);
    free(serve->node.node_text);
    serve->node.config = config;
    serve->node.node_text = text;
    api_set_node(serve->node.api, &serve->node.config);
    node_renew(&serve->node);
    fprintf(stderr, "penstock: the configuration was read again\n");
}

static void serve_end(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    event_base_loopbreak(((struct serve *)data)->node.base);
}

// ---- state ----

static int serve_folder(const char *path, struct error *err) {
    struct stat status;
    if (mkdir(path, 0700) < 0 && errno != EEXIST) return error_set(err, -errno, "--state %s: %s", path, strerror(errno));
    if (lstat(path, &status) < 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid() || status.st_mode & 077)
        return error_set(err, -EPERM, "--state %s: must be a folder that is yours alone: chown and chmod 700 it", path);
    return 0;
}

static int serve_open_state(struct serve *serve, struct error *err) {
    static const char *const folders[] = {"images", "layers", "sandboxes"};
    AUTO_FREE char *made = NULL, *path = NULL;
    if (serve->options->state) {
        if (!realpath(serve->options->state, serve->state) &&
            (mkdir(serve->options->state, 0700) < 0 || !realpath(serve->options->state, serve->state)))
            return error_set(err, -errno, "--state %s: %s", serve->options->state, strerror(errno));
    } else {
        int rc = vault_state_folder(true, &made, err);
        if (rc < 0) return rc;
        if (snprintf(serve->state, sizeof(serve->state), "%s/node", made) >= (int)sizeof(serve->state))
            return error_set(err, -ENAMETOOLONG, "%s: the path is too long; name another folder with --state", made);
    }
    int rc = serve_folder(serve->state, err);
    for (size_t i = 0; rc == 0 && i < ARRAY_LENGTH(folders); i++) {
        AUTO_FREE char *one = NULL;
        rc = asprintf(&one, "%s/%s", serve->state, folders[i]) < 0 ? -ENOMEM : serve_folder(one, err);
    }
    if (rc < 0) return rc;
    if (asprintf(&path, "%s/lock", serve->state) < 0) return error_set(err, -ENOMEM, "out of memory");
    serve->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (serve->lock < 0) return error_set(err, -errno, "%s: %s", path, strerror(errno));
    if (flock(serve->lock, LOCK_EX | LOCK_NB) < 0)
        return error_set(err, -EBUSY, "%s: another `penstock serve` uses this folder; stop it, or name another one with --state", serve->state);
    free(path);
    if (asprintf(&path, "%s/store.db", serve->state) < 0) return error_set(err, -ENOMEM, "out of memory");
    return store_open(path, &serve->node.store, err);
}

// ---- start ----

// How many sockets the service manager has opened for us (sd_listen_fds(3)).
static uint64_t serve_given(void) {
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    uint64_t process, sockets;
    bool ours = pid && count && number_parse(pid, strlen(pid), 1, INT32_MAX, &process) == 0 && (pid_t)process == getpid() &&
                number_parse(count, strlen(count), 1, 16, &sockets) == 0;
    return ours ? sockets : 0;
}

static int serve_listen(struct serve *serve, struct error *err) {
    const struct policy_node *config = &serve->node.config;
    char address[ADDR_TEXT_SIZE + 16], text[ADDR_TEXT_SIZE];
    uint64_t given = serve_given();
    uint16_t port;
    for (uint64_t i = 0; i < given; i++) {
        fcntl(SERVE_SOCKET + (int)i, F_SETFD, FD_CLOEXEC);
        int rc = api_listen(serve->node.api, SERVE_SOCKET + (int)i, err);
        if (rc < 0) return rc;
    }
    if (given) return 0;
    snprintf(address, sizeof(address), "%s", SERVE_LISTEN);
    if (config->listen_port)
        snprintf(address, sizeof(address), config->listen_address.family == ADDR_IPV6 ? "[%s]:%u" : "%s:%u",
                 addr_format(&config->listen_address, text), config->listen_port);
    AUTO_CLOSE int fd = api_bind(serve->options->listen ? serve->options->listen : address, &port, err);
    if (fd < 0) return fd;
    fprintf(stderr, "penstock: listening on %s (port %u)\n", serve->options->listen ? serve->options->listen : address, port);
    return api_listen(serve->node.api, TAKE_FD(fd), err);
}

static int serve_new_api(struct serve *serve, struct error *err) {
    struct node *node = &serve->node;
    AUTO_FREE char *key = NULL;
    int rc = vault_api_key(serve->state, &key, err);
    if (rc == 0) rc = vault_token_seed(serve->state, &node->token_seed, err);
    if (rc < 0) return rc;
    struct api_options options = {.base = node->base, .store = node->store, .backend = &node_backend, .data = node, .key = key,
                                  .node = &node->config, .cpu_count = node->config.cpu_count, .memory_mb = node->config.memory_mb};
    return api_new(&options, &node->api, err);
}

static int serve_watch(struct serve *serve, struct error *err) {
    static const struct {
        int number;
        event_callback_fn handler;
    } rows[] = {{SIGHUP, serve_reload}, {SIGTERM, serve_end}, {SIGINT, serve_end}};
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        serve->events[i] = evsignal_new(serve->node.base, rows[i].number, rows[i].handler, serve);
        if (!serve->events[i] || event_add(serve->events[i], NULL) < 0) return error_set(err, -ENOMEM, "out of memory");
    }
    return 0;
}

static int serve_check_servers(const struct daemon_serve *options, struct error *err) {
    struct ipc_resolver_start servers;
    return options->dns_count ? nameserver_collect(options->dns, options->dns_count, &servers, err) : 0;
}

static int serve_start(struct serve *serve, struct error *err) {
    struct node *node = &serve->node;
    int rc = serve_open_state(serve, err);
    if (rc < 0) return rc;
    node->state = serve->state;
    node->node_name = serve->options->config;
    node->upstream_ca = serve->upstream_ca;
    node->dns = serve->options->dns;
    node->dns_count = serve->options->dns_count;
    node->base = event_base_new();
    if (!node->base) return error_set(err, -ENOMEM, "out of memory");
    rc = serve_new_api(serve, err);
    if (rc == 0) rc = serve_watch(serve, err);
    if (rc == 0) rc = node_reconcile(node, err);
    if (rc == 0) node_prepare(node);
    return rc < 0 ? rc : serve_listen(serve, err);
}

int daemon_api_key(char **ret_key, struct error *err) {
    static const char *const names[] = {"PENSTOCK_API_KEY", "AENV_API_KEY"};
    AUTO_FREE char *state = NULL, *folder = NULL, *file = NULL;
    struct error ignored;
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return (*ret_key = strdup(value)) ? 0 : error_set(err, -ENOMEM, "out of memory");
    }
    if (vault_state_folder(false, &state, &ignored) == 0 && asprintf(&folder, "%s/node", state) >= 0 &&
        asprintf(&file, "%s/api-key", folder) >= 0 && access(file, R_OK) == 0)
        return vault_api_key(folder, ret_key, err);
    return error_set(err, -ENOENT, "no API key; set PENSTOCK_API_KEY to that of the node (the file api-key in its state folder)");
}

int daemon_serve(const struct daemon_serve *options) {
    struct error err = {0};
    struct serve serve = {.options = options, .lock = -1};
    list_init(&serve.node.sandboxes);
    list_init(&serve.node.sweeps);
    serve.node.spare.fd = -1;
    signal(SIGPIPE, SIG_IGN);
    umask(077);
    int rc = serve_read_config(options, &serve.node.node_text, &serve.node.config, &err);
    if (rc == 0) rc = serve_check_servers(options, &err);
    if (rc == 0 && options->upstream_ca && !(serve.upstream_ca = realpath(options->upstream_ca, NULL)))
        rc = error_set(&err, -EINVAL, "--upstream-ca %s: %s", options->upstream_ca, strerror(errno));
    if (rc == 0 && !options->check_config) rc = serve_start(&serve, &err);
    if (rc == 0 && !options->check_config) event_base_dispatch(serve.node.base);
    if (rc == 0 && options->check_config) printf("the configuration is valid\n");
    if (rc < 0) fprintf(stderr, "penstock: %s\n", err.text);
    for (size_t i = 0; i < ARRAY_LENGTH(serve.events); i++)
        if (serve.events[i]) event_free(serve.events[i]);
    api_free(serve.node.api);
    node_free(&serve.node);
    store_close(serve.node.store);
    if (serve.node.base) event_base_free(serve.node.base);
    policy_node_done(&serve.node.config);
    free(serve.node.node_text);
    free(serve.node.token_seed);
    free(serve.upstream_ca);
    if (serve.lock >= 0) close(serve.lock);
    return rc < 0 ? 1 : 0;
}
