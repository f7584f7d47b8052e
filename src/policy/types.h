// SPDX-License-Identifier: Apache-2.0
// Sandbox types and what each can enforce: one table (semantics section 6).
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum policy_type {
    POLICY_TYPE_NONE, POLICY_TYPE_BASHKIT, POLICY_TYPE_MISTRAL, POLICY_TYPE_DOCKER, POLICY_TYPE_HOST,
    POLICY_TYPE_CUSTOM, POLICY_TYPE_PROCESS, POLICY_TYPE_CONTAINER,
    POLICY_TYPE_COUNT,
};

enum policy_binding_kind {
    POLICY_BINDING_GITHUB, POLICY_BINDING_MISTRAL_API, POLICY_BINDING_WORKSPACE, POLICY_BINDING_HEADER,
    POLICY_BINDING_COUNT,
};

// How far a type's network filter goes.
enum policy_cidr_support { POLICY_CIDR_NO, POLICY_CIDR_CUSTOM, POLICY_CIDR_YES };

struct policy_type_info {
    const char *word;    // "mistral"
    const char *display; // "MistralSandbox"
    bool none, all, allow, native; // policies it can enforce
    enum policy_cidr_support cidr;
    bool bindings[POLICY_BINDING_COUNT];
    bool built;          // its engine exists in this version
    const char *runs;    // what it runs, for `penstock types`
    bool declared;       // a plug-in declares what it enforces; the row says what holds without a declaration
};

const struct policy_type_info *policy_type_info(enum policy_type type);
// "github" and so on, as files write it.
const char *policy_binding_word(enum policy_binding_kind kind);
// False if there is no such type.
bool policy_type_from_word(const char *word, enum policy_type *ret_type);
