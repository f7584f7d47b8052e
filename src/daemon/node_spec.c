// SPDX-License-Identifier: Apache-2.0
// What a shim is told of its sandbox (shim_spec.h): of the row, and of the node's configuration.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "daemon/node.h"
#include "daemon/shim.h"

static json_t *node_servers(const struct ipc_resolver_start *servers) {
    json_t *array = json_array();
    for (uint32_t i = 0; i < servers->count; i++) {
        const struct ipc_resolver_server *server = &servers->servers[i];
        char text[ADDR_TEXT_SIZE];
        bool ipv6 = server->address.family == ADDR_IPV6;
        json_array_append_new(array, json_sprintf(ipv6 ? "[%s]:%d" : "%s:%d", addr_format(&server->address, text), server->port));
    }
    return array;
}

json_t *node_policy_json(const struct node_config *config, const char *policy, enum policy_dialect dialect, uint64_t generation) {
    static const char *const words[] = {[POLICY_DIALECT_NETWORK] = "network", [POLICY_DIALECT_E2B] = "e2b",
                                        [POLICY_DIALECT_NATIVE] = "native"};
    return json_pack("{s:s,s:s,s:s?,s:s?,s:O,s:o,s:I}", "policy", policy, "dialect", words[dialect], "node", config->text,
                     "node_name", config->name, "variables", config->variables, "dns", node_servers(&config->servers), "generation",
                     (json_int_t)generation);
}

static json_t *node_texts(char *const *texts, size_t count) {
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(array, json_string(texts[i]));
    return array;
}

static json_t *node_mirrors(const struct policy_node *config) {
    json_t *object = json_object();
    for (size_t i = 0; i < config->mirror_count; i++) {
        size_t len = strcspn(config->mirrors[i], "=");
        AUTO_FREE char *name = strndup(config->mirrors[i], len);
        if (name) json_object_set_new(object, name, json_string(config->mirrors[i] + len + 1));
    }
    return object;
}

// The image's environment below the sandbox's own.
static void node_put_config(json_t *spec, const struct store_sandbox *row, bool builds) {
    json_t *config = json_loads(row->config ? row->config : "{}", 0, NULL);
    json_t *own = json_loads(row->env_vars ? row->env_vars : "{}", 0, NULL);
    json_t *environment = json_object();
    json_object_update(environment, json_object_get(config, "env"));
    json_object_update(environment, own);
    json_object_set_new(spec, "env", environment);
    json_object_set(spec, "cwd", json_object_get(config, "cwd"));
    json_object_set(spec, "user", json_object_get(config, "user"));
    if (!builds) json_object_set(spec, "start_cmd", json_object_get(config, "start_cmd")); // a build has its own
    json_decref(config);
    json_decref(own);
}

// As the row says, or the configuration, and no more than that allows.
static int node_share(uint32_t wanted, uint32_t usual, uint32_t most) {
    uint32_t share = wanted ? wanted : usual;
    return (int)(most && most < share ? most : share);
}

int node_write_spec(struct node_sandbox *sandbox, const struct store_sandbox *row, struct error *err) {
    const struct node *node = sandbox->node;
    const struct policy_node *config = &node->config.node;
    AUTO_FREE char *path = NULL, *images = NULL;
    json_t *spec = node_policy_json(&node->config, row->policy, row->dialect, row->generation ? row->generation : 1);
    sandbox->renewals = node->renewals;
    json_t *layers = json_loads(row->layers ? row->layers : "[]", 0, NULL);
    json_t *more = asprintf(&path, "%s/" SHIM_SPEC, sandbox->folder) < 0 || asprintf(&images, "%s/images", node->state) < 0 ? NULL :
        json_pack("{s:s,s:s,s:s?,s:o,s:i,s:i,s:i,s:s?,s:s,s:b,s:o,s:o}", "id", row->id, "type", policy_type_info(row->type)->word,
                  "image", sandbox->cold ? row->image : NULL, "layers", layers ? layers : json_array(), "memory_mb",
                  node_share(row->memory_mb, config->memory_mb ? config->memory_mb : 512, config->max_memory_mb), "cpu_count",
                  node_share(row->cpu_count, config->cpu_count ? config->cpu_count : 1, config->max_cpu_count), "pids",
                  (int)(config->pids ? config->pids : 1024), "upstream_ca", node->upstream_ca, "images", images, "local",
                  config->local_images, "mirrors", node_mirrors(config), "plain_http",
                  node_texts(config->plain_http, config->plain_http_count));
    int rc = spec && more && json_object_update(spec, more) == 0 ? 0 : -ENOMEM;
    if (rc == 0) node_put_config(spec, row, sandbox->hidden);
    if (rc == 0 && json_dump_file(spec, path, JSON_COMPACT) < 0) rc = -EIO;
    if (rc == 0) chmod(path, 0600);
    json_decref(spec);
    json_decref(more);
    return rc < 0 ? error_set(err, rc, "%s: the sandbox's specification cannot be written: %s", sandbox->folder, strerror(-rc)) : 0;
}
