// SPDX-License-Identifier: Apache-2.0
// Both sides are ours, so a file that does not fit is a fault of ours and said in a word.
#include "daemon/shim_spec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/nameserver.h"

char **shim_strings(const json_t *array) {
    size_t count = json_array_size(array);
    char **list = NEW_ARRAY(char *, count + 1);
    for (size_t i = 0; list && i < count; i++) {
        list[i] = (char *)(uintptr_t)json_string_value(json_array_get(array, i));
        if (!list[i]) free(TAKE_POINTER(list));
    }
    return list;
}

// One block: the list, then the texts.
char **shim_environment(const json_t *object) {
    size_t size = sizeof(char *), at = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        if (!json_is_string(value)) return NULL;
        size += sizeof(char *) + strlen(key) + json_string_length(value) + 2;
    }
    char **list = (char **)(void *)NEW_ARRAY(char, size);
    char *end = (char *)list + size, *text = (char *)(list + json_object_size(object) + 1);
    if (!list) return NULL;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        list[at++] = text;
        text += snprintf(text, (size_t)(end - text), "%s=%s", key, json_string_value(value)) + 1;
    }
    return list;
}

static const struct {
    const char *word;
    enum policy_dialect dialect;
} shim_dialects[] = {{"network", POLICY_DIALECT_NETWORK}, {"e2b", POLICY_DIALECT_E2B}, {"native", POLICY_DIALECT_NATIVE}};

static int shim_bad(const char *what, struct error *err) {
    return error_set(err, -EINVAL, "the sandbox's specification has no good \"%s\"; report this", what);
}

// Whoever may use the API is not thereby whoever may read the node's files and run its commands.
static int shim_check_secrets(const struct policy_model *model, struct error *err) {
    for (size_t i = 0; i < model->binding_count; i++) {
        const struct policy_binding *binding = &model->bindings[i];
        const char *secret = policy_binding_secret(binding);
        if (binding->workspace || binding->literal || !*secret || strncmp(secret, "store:", 6) == 0) continue;
        return error_set(err, -EINVAL, "secret \"%.200s\": a sandbox of a node takes secrets from its store only; keep it with "
                         "`penstock secret set NAME` there, and write store:NAME", secret);
    }
    return 0;
}

static int shim_read_servers(const json_t *array, struct ipc_resolver_start *ret_servers, struct error *err) {
    int rc = json_array_size(array) <= IPC_SERVERS_MAX ? 0 : shim_bad("dns", err);
    for (size_t i = 0; rc == 0 && i < json_array_size(array); i++) {
        const char *text = json_string_value(json_array_get(array, i));
        rc = text ? nameserver_parse(text, &ret_servers->servers[ret_servers->count++], err) : shim_bad("dns", err);
    }
    return rc;
}

int shim_policy_read(const json_t *object, enum policy_type type, struct shim_policy *ret_policy, struct error *err) {
    const char *text = json_string_value(json_object_get(object, "policy"));
    const char *word = json_string_value(json_object_get(object, "dialect"));
    const char *node = json_string_value(json_object_get(object, "node"));
    const char *node_name = json_string_value(json_object_get(object, "node_name"));
    enum policy_dialect dialect = POLICY_DIALECT_AUTO;
    for (size_t i = 0; word && i < ARRAY_LENGTH(shim_dialects); i++)
        if (strcmp(word, shim_dialects[i].word) == 0) dialect = shim_dialects[i].dialect;
    AUTO_FREE char **variables = shim_strings(json_object_get(object, "variables"));
    *ret_policy = (struct shim_policy){0};
    if (!variables) return shim_bad("variables", err);
    if (!text) return shim_bad("policy", err);
    if (dialect == POLICY_DIALECT_AUTO) return shim_bad("dialect", err);
    int rc = policy_read(text, strlen(text), "policy", dialect, &ret_policy->model, err);
    explicit_bzero((char *)(uintptr_t)text, strlen(text)); // may hold credentials, which are in the model now
    if (rc == 0) rc = policy_model_set_type(ret_policy->model, type, err);
    if (rc == 0) rc = policy_check_type(ret_policy->model, type, err);
    if (rc == 0) rc = shim_check_secrets(ret_policy->model, err);
    if (rc == 0) rc = policy_node_read(node, node ? strlen(node) : 0, node_name ? node_name : "node", variables, &ret_policy->node, err);
    if (rc == 0) rc = shim_read_servers(json_object_get(object, "dns"), &ret_policy->servers, err);
    if (ret_policy->model) ret_policy->model->known = json_is_true(json_object_get(object, "known"));
    ret_policy->node.guarded = true;
    if (rc == 0) rc = policy_bind_workspace(ret_policy->model, &ret_policy->node, err);
    if (rc < 0) shim_policy_done(ret_policy);
    return rc;
}

void shim_policy_done(struct shim_policy *policy) {
    policy_model_free(policy->model);
    policy_node_done(&policy->node);
    *policy = (struct shim_policy){0};
}

static int shim_list(const json_t *object, const char *key, const char ***ret_list, size_t *ret_count, struct error *err) {
    *ret_list = (const char **)shim_strings(json_object_get(object, key));
    *ret_count = json_array_size(json_object_get(object, key));
    return *ret_list ? 0 : shim_bad(key, err);
}

static struct sandbox_registry *shim_mirrors(const json_t *object, size_t *ret_count) {
    struct sandbox_registry *list = NEW_ARRAY(struct sandbox_registry, json_object_size(object) + 1);
    const char *key;
    json_t *value;
    *ret_count = 0;
    if (list) json_object_foreach((json_t *)(uintptr_t)object, key, value)
        list[(*ret_count)++] = (struct sandbox_registry){.from = key, .to = json_string_value(value)};
    return list;
}

static uint64_t shim_number(const json_t *object, const char *key) {
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 ? (uint64_t)value : 0;
}

int shim_spec_read(const char *text, struct shim_spec *ret_spec, struct error *err) {
    json_error_t why;
    json_t *json = json_loads(text, 0, &why);
    *ret_spec = (struct shim_spec){.json = json};
    if (!json) return error_set(err, -EINVAL, "the sandbox's specification: line %d: %.100s; report this", why.line, why.text);
    struct shim_spec *spec = ret_spec;
    spec->id = json_string_value(json_object_get(json, "id"));
    spec->image = json_string_value(json_object_get(json, "image"));
    spec->user = json_string_value(json_object_get(json, "user"));
    spec->cwd = json_string_value(json_object_get(json, "cwd"));
    spec->upstream_ca = json_string_value(json_object_get(json, "upstream_ca"));
    spec->start_command = json_string_value(json_object_get(json, "start_cmd"));
    spec->memory_bytes = shim_number(json, "memory_mb") << 20;
    spec->cpu_millis = (uint32_t)shim_number(json, "cpu_count") * 1000;
    spec->pids_max = (uint32_t)shim_number(json, "pids");
    spec->generation = shim_number(json, "generation");
    const char *type = json_string_value(json_object_get(json, "type"));
    spec->environment = shim_environment(json_object_get(json, "env"));
    spec->place.folder = json_string_value(json_object_get(json, "images"));
    spec->place.local = json_is_true(json_object_get(json, "local"));
    spec->place.mirrors = shim_mirrors(json_object_get(json, "mirrors"), &spec->place.mirror_count);
    spec->place.plain_registries = (const char *const *)shim_strings(json_object_get(json, "plain_http"));
    spec->place.plain_count = json_array_size(json_object_get(json, "plain_http"));
    if (json_is_array(json_object_get(json, "argv"))) spec->argv = shim_strings(json_object_get(json, "argv"));
    int rc = spec->id && type && policy_type_from_word(type, &spec->type) ? 0 : shim_bad("id", err);
    if (rc == 0 && (!spec->environment || !spec->place.mirrors || !spec->place.plain_registries)) rc = shim_bad("env", err);
    if (rc == 0) rc = shim_list(json, "layers", &spec->layers, &spec->layer_count, err);
    if (rc == 0) rc = shim_policy_read(json, spec->type, &spec->policy, err);
    if (rc < 0) shim_spec_done(spec);
    return rc;
}

void shim_spec_done(struct shim_spec *spec) {
    shim_policy_done(&spec->policy);
    void *lists[] = {spec->argv, spec->environment, spec->layers, (void *)(uintptr_t)spec->place.mirrors,
                     (void *)(uintptr_t)spec->place.plain_registries};
    for (size_t i = 0; i < ARRAY_LENGTH(lists); i++) free(lists[i]);
    json_decref(spec->json);
    *spec = (struct shim_spec){0};
}
