// SPDX-License-Identifier: Apache-2.0
// The node's configuration, and what of it the kernel holds.
//
// Gates and resolvers of a node are users by numbers from 0x74000000, behind those of `penstock run` as root (role.h): a
// sixteenth of that block a node, chosen by its state folder, so that the same node finds the same numbers again and another
// one on the same machine hardly ever has them (then both hold for both). The rules are there before the first gate and stay
// while there are sandboxes, also without the daemon.
//
// A configuration is taken when every sandbox's policy can be compiled with it, and the kernel has it: whatever fails before
// that leaves the old one. Then the shims are told, each of which swaps its policy as by an update.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/nameserver.h"
#include "daemon/node.h"
#include "net/guard.h"
#include "sandbox/sandbox.h"

#define GUARD_FIRST UINT32_C(0x74000000)
#define GUARD_NODES 16 // of 2 * GUARD_ROLE_USERS each
#define CONFIG_MAX (1 << 20)

// ---- reading ----

static int config_read_file(const char *path, char **ret_text, struct error *err) {
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) < 0)
        return error_set(err, -EINVAL, "--config \"%s\": %s; name a file that can be read", path, strerror(errno));
    if (!S_ISREG(status.st_mode) || status.st_size > CONFIG_MAX)
        return error_set(err, -EINVAL, "--config \"%s\": expected a file of at most %d bytes", path, CONFIG_MAX);
    AUTO_FREE char *text = NEW_ARRAY(char, (size_t)status.st_size + 1);
    if (!text) return error_set(err, -ENOMEM, "out of memory");
    if (pread(fd, text, (size_t)status.st_size, 0) != status.st_size)
        return error_set(err, -EINVAL, "--config \"%s\": it changed while it was read; try again", path);
    if (strlen(text) != (size_t)status.st_size)
        return error_set(err, -EINVAL, "--config \"%s\": a NUL byte at %zu; expected YAML text", path, strlen(text));
    *ret_text = TAKE_POINTER(text);
    return 0;
}

static json_t *config_variables(void) {
    json_t *array = json_array();
    for (char **entry = environ; array && *entry; entry++)
        if (policy_node_is_variable(*entry) && json_array_append_new(array, json_string(*entry)) < 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

// A list in the place of the default opens private networks to policies that have no base of their own for them (e2b).
static void config_warn(const struct policy_node *node) {
    char ranges[POLICY_GUARDRAIL_SIZE];
    size_t count = policy_guardrail_open(node, ranges);
    if (count == 0) return;
    fprintf(stderr, "penstock: warning: network.egress.always_denied stands in place of the default, so e2b policies may reach %.*s",
            (int)strcspn(ranges, ","), ranges);
    if (count > 1) fprintf(stderr, " and %zu more ranges that are not public", count - 1);
    fprintf(stderr, "; add %s (to always_allowed what sandboxes may reach), or leave the list out\n", ranges);
}

int node_config_read(const char *path, const char *const *dns, size_t dns_count, struct node_config *ret_config, struct error *err) {
    struct node_config config = {.name = path, .variables = config_variables()};
    int rc = config.variables ? 0 : error_set(err, -EINVAL, "a variable PENSTOCK_... is not UTF-8; set it to text");
    if (rc == 0 && path) rc = config_read_file(path, &config.text, err);
    if (rc == 0) rc = policy_node_read(config.text, config.text ? strlen(config.text) : 0, path, environ, &config.node, err);
    config.node.guarded = true;
    const struct policy_node *node = &config.node;
    if (rc == 0)
        rc = nameserver_collect(dns_count ? dns : (const char *const *)node->dns_servers, dns_count ? dns_count : node->dns_server_count,
                                &config.servers, err);
    if (rc == 0) config_warn(node);
    if (rc < 0) node_config_done(&config);
    else *ret_config = config;
    return rc;
}

void node_config_done(struct node_config *config) {
    policy_node_done(&config->node);
    json_decref(config->variables);
    free(config->text);
    *config = (struct node_config){0};
}

// ---- the kernel's part ----

static uint64_t guard_hash(const char *text) { // FNV-1a
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *text; text++) hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return hash;
}

uint32_t node_guard_users(const struct node *node) {
    if (!sandbox_identity().from_root) return 0;
    return GUARD_FIRST + (uint32_t)(guard_hash(node->state) % GUARD_NODES) * 2 * GUARD_ROLE_USERS;
}

static void guard_name(const struct node *node, char name[GUARD_NAME_SIZE]) {
    snprintf(name, GUARD_NAME_SIZE, "penstock-node-%016llx", (unsigned long long)guard_hash(node->state));
}

int node_guard_load(const struct node *node, const struct node_config *config, struct error *err) {
    const struct policy_node *rails = &config->node;
    char name[GUARD_NAME_SIZE];
    const struct guard guard = {
        .name = name, .users = node_guard_users(node), .special = !rails->has_always_denied,
        .own = rails->has_deny_own_addresses ? rails->deny_own_addresses : true, .denied = rails->always_denied,
        .denied_count = rails->always_denied_count, .allowed = rails->always_allowed, .allowed_count = rails->always_allowed_count,
        .nat64 = rails->nat64_prefixes, .nat64_count = rails->nat64_count, .own_addresses = rails->own_addresses,
        .own_count = rails->own_address_count, .servers = config->servers.servers, .server_count = config->servers.count,
    };
    if (!guard.users) return 0;
    guard_name(node, name);
    if (rails->always_allowed_name_count > 0)
        fprintf(stderr, "penstock: warning: network.egress.always_allowed \"%s\": the kernel knows addresses only; list those of its "
                        "names too, or gates cannot reach them\n", rails->always_allowed_names[0]);
    return guard_load(&guard, err);
}

static void guard_changed(evutil_socket_t fd, short what, void *data) {
    (void)what;
    struct node *node = data;
    struct error err = {0};
    char name[GUARD_NAME_SIZE];
    guard_name(node, name);
    if (!guard_is_lost(fd, name)) return;
    if (node_guard_load(node, &node->config, &err) < 0) fprintf(stderr, "penstock: %s; what it held is gone\n", err.text);
    else fprintf(stderr, "penstock: somebody took the node's guardrails out of the kernel (nf_tables); they are back\n");
    guard_is_lost(fd, name); // our own doing
}

int node_guard_watch(struct node *node, struct error *err) {
    if (!node_guard_users(node)) return 0;
    int fd = guard_watch();
    if (fd < 0) return error_set(err, fd, "watching nf_tables: %s", strerror(-fd));
    node->guard_event = event_new(node->base, fd, EV_READ | EV_PERSIST, guard_changed, node);
    if (node->guard_event && event_add(node->guard_event, NULL) == 0) return 0;
    if (!node->guard_event) close(fd);
    return error_set(err, -ENOMEM, "out of memory");
}

static void guard_unwatch(struct node *node) {
    if (!node->guard_event) return;
    int fd = event_get_fd(node->guard_event);
    event_free(TAKE_POINTER(node->guard_event));
    close(fd);
}

void node_guard_leave(struct node *node, bool known) {
    guard_unwatch(node);
    char name[GUARD_NAME_SIZE];
    struct error err = {0};
    if (!known || !node_guard_users(node) || node->sandbox_count > 0) return;
    guard_name(node, name);
    if (guard_remove(name, &err) < 0) fprintf(stderr, "penstock: %s\n", err.text);
}

// ---- another configuration ----

static int renew_check(const struct node *node, const struct node_config *config, struct error *err) {
    int rc = 0;
    LIST_FOREACH(&node->sandboxes, at) {
        const struct node_sandbox *sandbox = LIST_ENTRY(at, struct node_sandbox, list);
        struct store_sandbox row = {0};
        struct policy *policy = NULL;
        if (rc < 0 || sandbox->hidden || sandbox->ending) continue;
        rc = store_sandbox_get(node->store, sandbox->id, &row, err);
        if (rc == 0) rc = node_compile(config, &row, true, &policy, err);
        policy_free(policy);
        store_sandbox_done(&row);
        if (rc < 0) error_context(err, rc, "the policy of sandbox %s does not fit it", sandbox->id);
    }
    return rc;
}

int node_renew(struct node *node, struct node_config *config, struct error *err) {
    int rc = renew_check(node, config, err);
    if (rc == 0) rc = node_guard_load(node, config, err);
    if (rc < 0) return rc;
    if (node->guard_event) {
        char name[GUARD_NAME_SIZE];
        guard_name(node, name);
        guard_is_lost(event_get_fd(node->guard_event), name); // our own doing
    }
    node_config_done(&node->config);
    node->config = *config;
    *config = (struct node_config){0};
    node->renewals++;
    api_set_node(node->api, &node->config.node);
    LIST_FOREACH(&node->sandboxes, at) node_push_policy(LIST_ENTRY(at, struct node_sandbox, list));
    return 0;
}
