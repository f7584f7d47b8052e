// SPDX-License-Identifier: Apache-2.0
// `penstock serve`: configuration, state folder, API key, store, and then the loop. SIGHUP reads the configuration again; when
// it is wrong the old one stays. SIGTERM and SIGINT end the daemon; the sandboxes run on, and are found again by the next one.
#include <errno.h>
#include <event2/util.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/number.h"
#include "daemon/daemon.h"
#include "daemon/node.h"
#include "daemon/run_state.h"
#include "vault/vault.h"

#define SERVE_LISTEN "127.0.0.1:8000"
#define SERVE_CONFIG "/etc/penstock/penstock.yaml"
#define SERVE_SECRET "/run/secrets/api-key" // as the vault has it
#define SERVE_SOCKET 3 // of the service manager

struct serve {
    const struct daemon_serve *options;
    struct node node;
    struct event *events[3];
    char state[PATH_MAX];
    char *config, *upstream_ca;
    bool misused;   // an argument is wrong, whatever the machine is like
    bool knows_all; // its sandboxes have been found
    int lock;
};

// ---- what it is told ----

static const char *serve_address(const struct serve *serve, const struct policy_node *config, char *buf, size_t size) {
    char text[ADDR_TEXT_SIZE];
    if (serve->options->listen) return serve->options->listen;
    if (!config->listen_port) return SERVE_LISTEN;
    snprintf(buf, size, config->listen_address.family == ADDR_IPV6 ? "[%s]:%u" : "%s:%u",
             addr_format(&config->listen_address, text), config->listen_port);
    return buf;
}

// The usual one, if there is one.
static int serve_find_config(struct serve *serve, struct error *err) {
    const char *home = getenv("HOME"), *folder = getenv("XDG_CONFIG_HOME");
    serve->config = serve->options->config ? strdup(serve->options->config) : NULL;
    if (serve->options->config) return serve->config ? 0 : error_set(err, -ENOMEM, "out of memory");
    AUTO_FREE char *path = NULL;
    int rc = 0;
    if (geteuid() == 0) rc = (path = strdup(SERVE_CONFIG)) ? 0 : -1;
    else if (folder && folder[0] == '/') rc = asprintf(&path, "%s/penstock/penstock.yaml", folder);
    else if (home && home[0] == '/') rc = asprintf(&path, "%s/.config/penstock/penstock.yaml", home);
    if (rc < 0) return error_set(err, -ENOMEM, "out of memory");
    if (path && access(path, F_OK) == 0) serve->config = TAKE_POINTER(path);
    return 0;
}

static int serve_check_roots(const struct serve *serve, struct error *err) {
    const struct daemon_run options = {.upstream_ca = serve->options->upstream_ca};
    struct run run = {.options = &options, .roots = -1};
    int rc = run_read_roots(&run, err);
    if (run.roots >= 0) close(run.roots);
    return rc;
}

// All that can be said without a state folder.
static int serve_read(struct serve *serve, struct error *err) {
    const struct daemon_serve *options = serve->options;
    struct addr addr;
    uint16_t port;
    char address[ADDR_TEXT_SIZE + 16];
    int rc = options->listen ? api_parse_address(options->listen, &addr, &port, err) : 0;
    serve->misused = rc < 0;
    if (rc == 0) rc = serve_find_config(serve, err);
    if (rc == 0) rc = node_config_read(serve->config, options->dns, options->dns_count, &serve->node.config, err);
    if (rc == 0) rc = api_parse_address(serve_address(serve, &serve->node.config.node, address, sizeof(address)), &addr, &port, err);
    if (rc < 0) return rc;
    if (!addr_is_loopback(&addr))
        fprintf(stderr, "penstock: warning: %s is not of the loopback, and the API has no TLS: whoever sees its traffic has its key; "
                "put a proxy with TLS before it\n", serve_address(serve, &serve->node.config.node, address, sizeof(address)));
    rc = serve_check_roots(serve, err);
    if (rc == 0 && options->upstream_ca && !(serve->upstream_ca = realpath(options->upstream_ca, NULL)))
        rc = error_set(err, -EINVAL, "--upstream-ca %s: %s", options->upstream_ca, strerror(errno));
    return rc;
}

// ---- signals ----

// To the service manager, if there is one (sd_notify(3)).
static void serve_notify(const char *text) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    size_t len = path ? strlen(path) : 0;
    if (len == 0 || len >= sizeof(name.sun_path) || (path[0] != '/' && path[0] != '@')) return;
    memcpy(name.sun_path, path, len);
    if (path[0] == '@') name.sun_path[0] = '\0';
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
}

static int serve_renew(struct serve *serve, struct error *err) {
    struct node *node = &serve->node;
    struct node_config config = {0};
    char before[ADDR_TEXT_SIZE + 16], after[ADDR_TEXT_SIZE + 16];
    snprintf(before, sizeof(before), "%s", serve_address(serve, &node->config.node, after, sizeof(after)));
    int rc = node_config_read(serve->config, serve->options->dns, serve->options->dns_count, &config, err);
    if (rc == 0) rc = node_renew(node, &config, err);
    node_config_done(&config);
    if (rc == 0 && strcmp(before, serve_address(serve, &node->config.node, after, sizeof(after))) != 0)
        fprintf(stderr, "penstock: warning: node.listen: it stays %s until the daemon is started again\n", before);
    return rc;
}

static void serve_reload(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct serve *serve = data;
    struct error err = {0};
    struct timespec now;
    char text[64];
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%lld", (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    serve_notify(text);
    if (serve_renew(serve, &err) < 0) fprintf(stderr, "penstock: %s; the configuration stays as it was\n", err.text);
    else fprintf(stderr, "penstock: the configuration was read again, for %zu sandboxes\n", serve->node.sandbox_count);
    serve_notify("READY=1");
}

static void serve_end(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    serve_notify("STOPPING=1");
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

static int serve_take_sockets(struct serve *serve, uint64_t count, struct error *err) {
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < count; i++) {
        int fd = SERVE_SOCKET + (int)i, listening = 0;
        socklen_t len = sizeof(listening);
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) < 0 || !listening || evutil_make_socket_nonblocking(fd) < 0)
            return error_set(err, -ENOTSOCK, "descriptor %d of LISTEN_FDS is no listening socket; see the unit's ListenStream=", fd);
        rc = api_listen(serve->node.api, fd, err);
    }
    if (rc == 0) fprintf(stderr, "penstock: listening on %llu sockets of the service manager\n", (unsigned long long)count);
    return rc;
}

static int serve_listen(struct serve *serve, struct error *err) {
    char buf[ADDR_TEXT_SIZE + 16];
    const char *address = serve_address(serve, &serve->node.config.node, buf, sizeof(buf));
    uint64_t given = serve_given();
    uint16_t port;
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    if (given) return serve_take_sockets(serve, given, err);
    AUTO_CLOSE int fd = api_bind(address, &port, err);
    if (fd < 0) return fd;
    int host = (int)(strrchr(address, ':') - address); // api_bind has taken it, so it has a port, which may be 0
    fprintf(stderr, "penstock: listening on %.*s:%u\n", host, address, port);
    return api_listen(serve->node.api, TAKE_FD(fd), err);
}

// What of a node is not to be had here, once, at the start.
static void serve_say_missing(void) {
    static const char *const programs[] = {"crun", "skopeo", "umoci"}, *const folders[] = {"/usr/sbin", "/usr/bin", "/sbin", "/bin"};
    if (!sandbox_identity().from_root) {
        fprintf(stderr, "penstock: warning: without root there are no containers (they need cgroups, ranges of users, overlays) and no "
                "rules for gates in the kernel: this node answers, and refuses to create sandboxes; `penstock run` works\n");
        return;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(programs); i++) {
        bool found = false;
        for (size_t j = 0; !found && j < ARRAY_LENGTH(folders); j++) {
            char path[64];
            snprintf(path, sizeof(path), "%s/%s", folders[j], programs[i]);
            found = access(path, X_OK) == 0;
        }
        if (!found) fprintf(stderr, "penstock: warning: no %s in /usr/bin: %s; install it\n", programs[i],
                            i == 0 ? "no sandbox can be created" : "no image can be fetched");
    }
}

static int serve_new_api(struct serve *serve, struct error *err) {
    struct node *node = &serve->node;
    AUTO_FREE char *key = NULL;
    int rc = vault_api_key(serve->state, &key, err);
    if (rc == 0) rc = vault_token_seed(serve->state, &node->token_seed, err);
    if (rc < 0) return rc;
    struct api_options options = {.base = node->base, .store = node->store, .backend = &node_backend, .data = node, .key = key,
                                  .node = &node->config.node, .cpu_count = node->config.node.cpu_count,
                                  .memory_mb = node->config.node.memory_mb};
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

static int serve_start(struct serve *serve, struct error *err) {
    struct node *node = &serve->node;
    int rc = serve_open_state(serve, err);
    if (rc < 0) return rc;
    node->state = serve->state;
    node->upstream_ca = serve->upstream_ca;
    node->base = event_base_new();
    if (!node->base) return error_set(err, -ENOMEM, "out of memory");
    rc = serve_new_api(serve, err);
    if (rc == 0) rc = serve_watch(serve, err);
    serve_say_missing();
    if (rc == 0) rc = node_guard_load(node, &node->config, err); // before any gate
    if (rc == 0) rc = node_guard_watch(node, err);
    if (rc == 0) rc = node_reconcile(node, err);
    serve->knows_all = rc == 0;
    if (rc == 0) rc = serve_listen(serve, err);
    if (rc == 0) node_prepare(node);
    if (rc == 0) serve_notify("READY=1");
    return rc;
}

int daemon_api_key(char **ret_key, struct error *err) {
    static const char *const names[] = {"PENSTOCK_API_KEY", "AENV_API_KEY"};
    AUTO_FREE char *state = NULL, *folder = NULL, *file = NULL;
    struct error ignored;
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return (*ret_key = strdup(value)) ? 0 : error_set(err, -ENOMEM, "out of memory");
    }
    if (access(SERVE_SECRET, R_OK) == 0) return vault_api_key("/", ret_key, err); // it comes before the folder
    if (vault_state_folder(false, &state, &ignored) == 0 && asprintf(&folder, "%s/node", state) >= 0 &&
        asprintf(&file, "%s/api-key", folder) >= 0 && access(file, R_OK) == 0)
        return vault_api_key(folder, ret_key, err);
    return error_set(err, -ENOENT, "no API key; set PENSTOCK_API_KEY to that of the node (the file api-key in its state folder)");
}

static int serve_run(struct serve *serve, struct error *err) {
    int rc = serve_start(serve, err);
    if (rc < 0) return rc;
    event_base_dispatch(serve->node.base);
    node_settle(&serve->node);
    return 0;
}

int daemon_serve(const struct daemon_serve *options) {
    struct error err = {0};
    struct serve serve = {.options = options, .lock = -1};
    list_init(&serve.node.sandboxes);
    list_init(&serve.node.sweeps);
    list_init(&serve.node.builds);
    serve.node.spare.fd = -1;
    signal(SIGPIPE, SIG_IGN);
    role_keep_secrets();
    umask(077);
    int rc = serve_read(&serve, &err);
    if (rc == 0 && options->check_config) printf("the configuration is valid\n");
    else if (rc == 0) rc = serve_run(&serve, &err);
    if (rc < 0) fprintf(stderr, "penstock: %s\n", err.text);
    for (size_t i = 0; i < ARRAY_LENGTH(serve.events); i++)
        if (serve.events[i]) event_free(serve.events[i]);
    api_free(serve.node.api);
    node_guard_leave(&serve.node, serve.knows_all);
    node_free(&serve.node);
    store_close(serve.node.store);
    if (serve.node.base) event_base_free(serve.node.base);
    node_config_done(&serve.node.config);
    free(serve.config);
    free(serve.node.token_seed);
    free(serve.upstream_ca);
    if (serve.lock >= 0) close(serve.lock);
    return rc == 0 ? 0 : serve.misused ? 2 : 1;
}
