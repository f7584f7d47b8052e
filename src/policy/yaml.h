// SPDX-License-Identifier: Apache-2.0
// Policy and configuration texts as a tree of values that know their line. YAML, of which JSON is a part.
// Private to the policy room.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define YAML_TEXT_MAX ((size_t)1 << 20) // bytes of a text
#define YAML_DEPTH_MAX 16
#define YAML_VALUES_MAX 262144
#define YAML_KEYS_MAX 256 // keys of one mapping

enum yaml_kind { YAML_SCALAR, YAML_LIST, YAML_MAP };

struct yaml_value {
    enum yaml_kind kind;
    bool quoted;   // scalar: written in quotes, so it is a string whatever it looks like
    unsigned line; // 1 for the first; of a member of a mapping: of its key
    char *key;     // member of a mapping, else NULL; NUL-terminated
    size_t key_len;
    char *text; // scalar; NUL-terminated, may hold NULs
    size_t len;
    size_t count;                    // list, mapping
    struct yaml_value *first, *last; // children in order
    struct yaml_value *next;         // sibling
};

// A text being read: where its messages go.
struct yaml_file {
    const char *name;  // "policy.yaml"; NULL: messages carry no position
    bool may_be_empty; // root stays NULL for an empty text, instead of an error
    struct yaml_value *root;
    struct error *err;
    const char *text; // while it is read, for messages
    size_t len;
};

// Parses one document into file->root. Refuses anchors, aliases, tags, keys given twice, and what exceeds the limits
// above. 0, -EINVAL with a message, -ENOMEM.
int yaml_read(struct yaml_file *file, const char *text, size_t len);
void yaml_done(struct yaml_file *file);

// Sets "NAME:LINE: message". value may be NULL (then "NAME: message"). Returns -EINVAL.
int yaml_fail(const struct yaml_file *file, const struct yaml_value *value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Puts "NAME:LINE" in front of a message already set. Returns code.
int yaml_context(const struct yaml_file *file, const struct yaml_value *value, int code);

// Text as a message quotes it: control bytes as \xNN, cut with "..." if long. Returns buf.
#define YAML_QUOTE_SIZE 360
const char *yaml_quote(const char *text, size_t len, char buf[YAML_QUOTE_SIZE]);
// A scalar the same way; "a list" and "a mapping" for the others.
const char *yaml_show(const struct yaml_value *value, char buf[YAML_QUOTE_SIZE]);

// Member of a mapping, or NULL (also if value is no mapping).
const struct yaml_value *yaml_member(const struct yaml_value *value, const char *key);

// One row of a table of keys. what is how messages name the value, such as "network.allow.hosts".
struct yaml_key {
    const char *name;
    const char *what;
    int (*read)(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context);
};
// Hands each member of a mapping to its row, in the order of the table (so a row may build on those before it). A key
// without a row is an error that names it. what: "the policy".
int yaml_map(const struct yaml_file *file, const struct yaml_value *value, const char *what,
             const struct yaml_key *keys, size_t key_count, void *context);
// Hands each item of a list to item. Fewer than min_count items are an error.
int yaml_each(const struct yaml_file *file, const struct yaml_value *value, const char *what, size_t min_count,
              int (*item)(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                          void *context),
              void *context);

// Typed scalars. A plain scalar is null ("null", "~", nothing), a boolean ("true", "false"), a number (JSON's form),
// else a string. 0, or -EINVAL with a message that says what was expected.
int yaml_string(const struct yaml_file *file, const struct yaml_value *value, const char *what);
// A string without NUL, copied for the caller.
int yaml_copy(const struct yaml_file *file, const struct yaml_value *value, const char *what, char **ret_text);
int yaml_bool(const struct yaml_file *file, const struct yaml_value *value, const char *what, bool *ret_bool);
int yaml_number(const struct yaml_file *file, const struct yaml_value *value, const char *what, uint64_t min,
                uint64_t max, uint64_t *ret_number);
// One of the words (a NULL-terminated list); its index.
int yaml_word(const struct yaml_file *file, const struct yaml_value *value, const char *what, const char *const *words,
              size_t *ret_index);
// The word of the list that text probably meant (a few letters off), or NULL.
const char *yaml_meant(const char *text, const char *const *words);
