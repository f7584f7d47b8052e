// SPDX-License-Identifier: Apache-2.0
// From text to model: finds out the dialect, hands the tree to its reader, and holds what the readers share. Nothing
// here knows what a sandbox type can enforce, and no secret is read.
#include "policy/read.h"

#include <assert.h>
#include <errno.h>

#include "base/mem.h"

static const char *const dialect_words[] = {"network", "e2b", "native", NULL}; // by enum policy_dialect, without AUTO
static_assert(POLICY_DIALECT_NETWORK == 1 && POLICY_DIALECT_E2B == 2 && POLICY_DIALECT_NATIVE == 3,
              "order of the words");

int policy_read_dialect_key(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                            void *context) {
    (void)context; // it was looked at before the reader was chosen
    size_t index;
    return yaml_word(file, value, what, dialect_words, &index);
}

int policy_read_type_key(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                         void *context) {
    struct policy_reader *reader = context;
    const char *words[POLICY_TYPE_COUNT + 1] = {0};
    size_t index;
    for (size_t i = 0; i < POLICY_TYPE_COUNT; i++) words[i] = policy_type_info((enum policy_type)i)->word;
    int r = yaml_word(file, value, what, words, &index);
    if (r < 0) return r;
    reader->model->type = (enum policy_type)index;
    reader->model->has_type = true;
    return 0;
}

// --- sources and lists ---

char *policy_read_source(const struct yaml_file *file, const struct yaml_value *value) {
    char *source;
    int r =
        file->name ? asprintf(&source, "%s:%u", file->name, value->line) : asprintf(&source, "line %u", value->line);
    return r < 0 ? NULL : source;
}

int policy_read_append(const struct yaml_file *file, const struct yaml_value *value, struct policy_entry_list *list,
                       struct policy_entry *entry) {
    entry->source = policy_read_source(file, value);
    if (!entry->source) {
        policy_entry_done(entry);
        return error_set(file->err, -ENOMEM, "out of memory");
    }
    return policy_entry_append(list, entry) < 0 ? error_set(file->err, -ENOMEM, "out of memory") : 0;
}

int policy_read_base_source(const struct yaml_file *file, const struct yaml_value *value, struct policy_model *model) {
    free(model->base_source);
    model->base_source = policy_read_source(file, value);
    return model->base_source ? 0 : error_set(file->err, -ENOMEM, "out of memory");
}

// --- the whole ---

static int find_dialect(const struct yaml_file *file, enum policy_dialect *dialect) {
    if (*dialect != POLICY_DIALECT_AUTO) return 0;
    const struct yaml_value *key = yaml_member(file->root, "dialect");
    if (!key) {
        *dialect = yaml_member(file->root, "version") ? POLICY_DIALECT_NATIVE : POLICY_DIALECT_NETWORK;
        return 0;
    }
    size_t index;
    int r = yaml_word(file, key, "dialect", dialect_words, &index);
    if (r == 0) *dialect = (enum policy_dialect)(index + 1);
    return r;
}

#define E2B_FIX "add --dialect e2b, or \"dialect\": \"e2b\""
#define NATIVE_FIX "add version: 1"

// Keys of the other dialects in a text that is read as one of `network`, because it does not say which it is.
static int check_dialect(const struct yaml_file *file) {
    static const struct {
        const char *key;
        bool in_network; // of the mapping `network`
        const char *dialect, *fix;
    } keys[] = {
        {"allowOut", true, "e2b", E2B_FIX},
        {"denyOut", true, "e2b", E2B_FIX},
        {"allowPublicTraffic", true, "e2b", E2B_FIX},
        {"maskRequestHost", true, "e2b", E2B_FIX},
        {"allow_internet_access", false, "e2b", E2B_FIX},
        {"allowInternetAccess", false, "e2b", E2B_FIX},
        {"allow", false, "native", NATIVE_FIX},
        {"deny", false, "native", NATIVE_FIX},
        {"base", false, "native", NATIVE_FIX},
        {"credentials", false, "native", NATIVE_FIX},
        {"limits", false, "native", NATIVE_FIX},
        {"dns", false, "native", NATIVE_FIX},
    };
    const struct yaml_value *network = yaml_member(file->root, "network");
    for (size_t i = 0; i < ARRAY_LENGTH(keys); i++) {
        const struct yaml_value *map = keys[i].in_network ? network : file->root;
        const struct yaml_value *value = map ? yaml_member(map, keys[i].key) : NULL;
        if (value)
            return yaml_fail(file, value, "\"%s\" is a key of the %s dialect, but the text is read in the network dialect; %s",
                             keys[i].key, keys[i].dialect, keys[i].fix);
    }
    return 0;
}

static int read_tree(const struct yaml_file *file, enum policy_dialect dialect, struct policy_reader *reader) {
    switch (dialect) {
    case POLICY_DIALECT_AUTO:
    case POLICY_DIALECT_NETWORK:
        return policy_network_read(file, reader);
    case POLICY_DIALECT_E2B:
        return policy_e2b_read(file, reader);
    case POLICY_DIALECT_NATIVE:
        return policy_native_read(file, reader);
    }
    return -EINVAL;
}

int policy_read(const char *text, size_t len, const char *file_name, enum policy_dialect dialect,
                struct policy_model **ret_model, struct error *err) {
    struct yaml_file file = {.name = file_name, .err = err};
    struct policy_model *model = NULL;
    int r = yaml_read(&file, text, len);
    if (r < 0) return r;
    if (file.root->kind != YAML_MAP)
        r = yaml_fail(&file, file.root,
                      "a policy must be a mapping of keys to values, such as {\"network\": \"none\"}");
    if (r == 0) r = find_dialect(&file, &dialect);
    if (r == 0) {
        if (dialect == POLICY_DIALECT_NETWORK) r = check_dialect(&file);
    }
    if (r == 0) {
        model = policy_model_new(dialect);
        if (!model) r = error_set(err, -ENOMEM, "out of memory");
    }
    if (r == 0) {
        struct policy_reader reader = {
            .model = model,
            .allow = {.entries = &model->allow, .count = &model->allow_count},
            .deny = {.entries = &model->deny, .count = &model->deny_count},
        };
        r = read_tree(&file, dialect, &reader);
        policy_entry_list_done(&reader.allow);
        policy_entry_list_done(&reader.deny);
    }
    yaml_done(&file);
    if (r < 0) {
        policy_model_free(model);
        return r;
    }
    *ret_model = model;
    return 0;
}
