// SPDX-License-Identifier: Apache-2.0
#include "policy/types.h"

#include <assert.h>

#include "base/mem.h"

#define ALL_BINDINGS {true, true, true, true}

static const struct policy_type_info policy_types[] = {
    [POLICY_TYPE_NONE] = {.word = "none", .display = "NoSandbox", .none = true, .cidr = POLICY_CIDR_NO, .built = true,
                          .runs = "nothing: a command given to it is an error"},
    [POLICY_TYPE_BASHKIT] = {.word = "bashkit", .display = "BashkitSandbox", .none = true, .all = true, .allow = true,
                             .cidr = POLICY_CIDR_NO, .built = true,
                             .runs = "shell script text (/bin/bash -c), no container, no root"},
    [POLICY_TYPE_MISTRAL] = {.word = "mistral", .display = "MistralSandbox", .none = true, .all = true,
                             .cidr = POLICY_CIDR_CUSTOM,
                             .bindings = {[POLICY_BINDING_GITHUB] = true, [POLICY_BINDING_MISTRAL_API] = true,
                                          [POLICY_BINDING_WORKSPACE] = true},
                             .built = true,
                             .runs = "OCI container filtered by address"},
    [POLICY_TYPE_DOCKER] = {.word = "docker", .display = "LocalDockerSandbox", .none = true, .all = true,
                            .cidr = POLICY_CIDR_NO, .runs = "container of the local Docker engine"},
    [POLICY_TYPE_HOST] = {.word = "host", .display = "DangerousLocalSandbox", .all = true, .cidr = POLICY_CIDR_NO,
                          .built = true, .runs = "directly on the host"},
    [POLICY_TYPE_CUSTOM] = {.word = "custom", .display = "experimental.CustomSandbox", .none = true,
                            .cidr = POLICY_CIDR_NO, .runs = "a plug-in through the C API", .declared = true},
    [POLICY_TYPE_PROCESS] = {.word = "process", .display = "ProcessSandbox", .none = true, .all = true, .allow = true,
                             .native = true, .cidr = POLICY_CIDR_YES, .bindings = ALL_BINDINGS, .built = true,
                             .runs = "a command in namespaces (bubblewrap), no root"},
    [POLICY_TYPE_CONTAINER] = {.word = "container", .display = "ContainerSandbox", .none = true, .all = true,
                               .allow = true, .native = true, .cidr = POLICY_CIDR_YES, .bindings = ALL_BINDINGS, .built = true,
                               .runs = "OCI container (crun)"},
};
static_assert(ARRAY_LENGTH(policy_types) == POLICY_TYPE_COUNT, "one row per type");

const struct policy_type_info *policy_type_info(enum policy_type type) { return &policy_types[type]; }

const char *policy_binding_word(enum policy_binding_kind kind) {
    static const char *const words[] = {[POLICY_BINDING_GITHUB] = "github", [POLICY_BINDING_MISTRAL_API] = "mistral_api",
                                        [POLICY_BINDING_WORKSPACE] = "workspace", [POLICY_BINDING_HEADER] = "header"};
    static_assert(ARRAY_LENGTH(words) == POLICY_BINDING_COUNT, "one word per kind of binding");
    return words[kind];
}

bool policy_type_from_word(const char *word, enum policy_type *ret_type) {
    for (size_t i = 0; i < POLICY_TYPE_COUNT; i++) {
        if (strcmp(policy_types[i].word, word) != 0) continue;
        *ret_type = (enum policy_type)i;
        return true;
    }
    return false;
}
