// SPDX-License-Identifier: Apache-2.0
// What the readers of the three dialects share. Private to the policy room.
#pragma once

#include "policy/entry.h"
#include "policy/model.h"
#include "policy/yaml.h"

// A policy being read. The lists point into the model.
struct policy_reader {
    struct policy_model *model;
    struct policy_entry_list allow, deny;
};

// One per dialect: file->root into reader->model. 0, -EINVAL with a message, -ENOMEM.
int policy_network_read(const struct yaml_file *file, struct policy_reader *reader);
int policy_e2b_read(const struct yaml_file *file, struct policy_reader *reader);
int policy_native_read(const struct yaml_file *file, struct policy_reader *reader);

// Row readers for the keys that all dialects have, and for parts that two of them share. context: struct policy_reader.
int policy_read_dialect_key(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                            void *context);
int policy_read_type_key(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context);
// context: struct policy_binding.
int policy_read_repos(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context);
int policy_read_binding_host(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                             void *context);
int policy_read_binding_header(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                               void *context);
int policy_read_binding_value(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                              void *context);
int policy_read_binding_secret(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                               void *context);

// Not a row: it is given its host and header first.
int policy_read_binding_literal(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                                struct policy_binding *binding);

// An entry of a list of credentials, appended. context: struct policy_model.
int policy_read_credential(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                           void *context);

// "50mbit" (per second) or "1GiB" in bytes. 0 or -EINVAL.
enum policy_quantity { POLICY_RATE, POLICY_SIZE };
int policy_read_quantity(const char *text, size_t len, enum policy_quantity kind, uint64_t *ret_bytes);
const char *policy_quantity_words(enum policy_quantity kind); // what it must be

// "FILE:LINE" for source fields; NULL if out of memory.
char *policy_read_source(const struct yaml_file *file, const struct yaml_value *value);
// Gives entry its source and appends it. Takes over what entry owns.
int policy_read_append(const struct yaml_file *file, const struct yaml_value *value, struct policy_entry_list *list,
                       struct policy_entry *entry);
// The same for a binding; the position is put in front of a message.
int policy_read_append_binding(const struct yaml_file *file, const struct yaml_value *value, struct policy_model *model,
                               struct policy_binding *binding);
// Remembers where the base came from.
int policy_read_base_source(const struct yaml_file *file, const struct yaml_value *value, struct policy_model *model);
