// SPDX-License-Identifier: Apache-2.0
// Access to the tree by table and by type. YAML's guesses are cut down to JSON's: null, true, false and numbers are
// what JSON calls so, everything else is a string, and only quotes make a string of what looks like one of those.
#include "policy/yaml.h"

#include <errno.h>

#include "base/mem.h"
#include "base/number.h"

const struct yaml_value *yaml_member(const struct yaml_value *value, const char *key) {
    if (value->kind != YAML_MAP) return NULL;
    for (const struct yaml_value *member = value->first; member; member = member->next)
        if (member->key_len == strlen(key) && memcmp(member->key, key, member->key_len) == 0) return member;
    return NULL;
}

// Optimal string alignment distance of two short words, in three rows.
static unsigned distance(const char *a, const char *b) {
    enum { MAX = 40 };
    size_t a_len = strlen(a), b_len = strlen(b);
    if (a_len >= MAX || b_len >= MAX) return MAX;
    unsigned rows[3][MAX] = {0};
    for (unsigned j = 0; j <= b_len; j++) rows[0][j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        unsigned *row = rows[i % 3], *above = rows[(i + 2) % 3], *second = rows[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_len; j++) {
            unsigned best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best) best = above[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && second[j - 2] + 1 < best)
                best = second[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[a_len % 3][b_len];
}

// "allow_out" and "allowOut" are the same word to who misspells them.
static void fold(const char *text, char out[40]) {
    size_t used = 0;
    for (; *text && used < 39; text++) {
        if (*text == '_' || *text == '-') continue;
        out[used++] = *text >= 'A' && *text <= 'Z' ? (char)(*text + 32) : *text;
    }
    out[used] = '\0';
}

const char *yaml_meant(const char *text, const char *const *words) {
    const char *best = NULL;
    size_t len = strlen(text);
    unsigned best_distance = len < 4 ? 2 : len < 8 ? 3 : 4; // one, two or three slips
    char folded[40], word[40];
    fold(text, folded);
    for (; *words; words++) {
        fold(*words, word);
        unsigned d = distance(folded, word);
        if (d < best_distance) {
            best_distance = d;
            best = *words;
        }
    }
    return best;
}

static int unknown_key(const struct yaml_file *file, const struct yaml_value *member, const char *what,
                       const struct yaml_key *keys, size_t key_count) {
    const char *words[33] = {0};
    char all[400] = "", quoted[YAML_QUOTE_SIZE];
    size_t used = 0;
    for (size_t i = 0; i < key_count && i < 32; i++) {
        words[i] = keys[i].name;
        int wrote = snprintf(all + used, sizeof(all) - used, "%s%s", i ? ", " : "", keys[i].name);
        if (wrote > 0 && used + (size_t)wrote < sizeof(all)) used += (size_t)wrote;
    }
    yaml_quote(member->key, member->key_len, quoted);
    const char *meant = strlen(member->key) == member->key_len ? yaml_meant(member->key, words) : NULL;
    if (meant) return yaml_fail(file, member, "unknown key \"%s\" in %s; did you mean \"%s\"?", quoted, what, meant);
    return yaml_fail(file, member, "unknown key \"%s\" in %s; the keys are: %s", quoted, what, all);
}

static const struct yaml_key *key_row(const struct yaml_value *member, const struct yaml_key *keys, size_t key_count) {
    for (size_t i = 0; i < key_count; i++)
        if (member->key_len == strlen(keys[i].name) && memcmp(member->key, keys[i].name, member->key_len) == 0)
            return &keys[i];
    return NULL;
}

int yaml_map(const struct yaml_file *file, const struct yaml_value *value, const char *what,
             const struct yaml_key *keys, size_t key_count, void *context) {
    char shown[YAML_QUOTE_SIZE];
    if (value->kind != YAML_MAP)
        return yaml_fail(file, value, "%s must be a mapping of keys to values, not %s", what, yaml_show(value, shown));
    for (const struct yaml_value *member = value->first; member; member = member->next)
        if (!key_row(member, keys, key_count)) return unknown_key(file, member, what, keys, key_count);
    for (size_t i = 0; i < key_count; i++) {
        const struct yaml_value *member = yaml_member(value, keys[i].name);
        int r = member && keys[i].read ? keys[i].read(file, member, keys[i].what, context) : 0;
        if (r < 0) return r;
    }
    return 0;
}

int yaml_each(const struct yaml_file *file, const struct yaml_value *value, const char *what, size_t min_count,
              int (*item)(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                          void *context),
              void *context) {
    char shown[YAML_QUOTE_SIZE];
    if (value->kind != YAML_LIST)
        return yaml_fail(file, value, "%s must be a list, not %s", what, yaml_show(value, shown));
    if (value->count < min_count)
        return yaml_fail(file, value, "%s is an empty list; it needs at least one entry (or leave %s out)", what, what);
    for (const struct yaml_value *child = value->first; child; child = child->next) {
        int r = item(file, child, what, context);
        if (r < 0) return r;
    }
    return 0;
}

static bool is_plain(const struct yaml_value *value, const char *text) {
    return value->kind == YAML_SCALAR && !value->quoted && value->len == strlen(text) &&
           memcmp(value->text, text, value->len) == 0;
}

// JSON's number, with an optional sign of either kind.
static bool is_number(const struct yaml_value *value) {
    if (value->kind != YAML_SCALAR || value->quoted) return false;
    const char *at = value->text;
    const char digits[] = "0123456789";
    if (*at == '-' || *at == '+') at++;
    size_t whole = strspn(at, digits);
    at += whole;
    size_t part = 0;
    if (*at == '.') {
        part = strspn(at + 1, digits);
        at += 1 + part;
    }
    if (whole + part == 0) return false;
    if (*at == 'e' || *at == 'E') {
        at++;
        if (*at == '-' || *at == '+') at++;
        size_t exponent = strspn(at, digits);
        if (exponent == 0) return false;
        at += exponent;
    }
    return at == value->text + value->len;
}

int yaml_string(const struct yaml_file *file, const struct yaml_value *value, const char *what) {
    char shown[YAML_QUOTE_SIZE];
    if (value->kind != YAML_SCALAR)
        return yaml_fail(file, value, "%s: expected a string, not %s", what, yaml_show(value, shown));
    if (is_plain(value, "") || is_plain(value, "null") || is_plain(value, "~"))
        return yaml_fail(file, value, "%s: expected a string, not null; write a value or leave it out", what);
    if (is_plain(value, "true") || is_plain(value, "false") || is_number(value))
        return yaml_fail(file, value,
                         "%s: expected a string, not the bare %s; write it in quotes if it is meant as text", what,
                         yaml_show(value, shown));
    return 0;
}

int yaml_copy(const struct yaml_file *file, const struct yaml_value *value, const char *what, char **ret_text) {
    char shown[YAML_QUOTE_SIZE];
    int r = yaml_string(file, value, what);
    if (r < 0) return r;
    if (memchr(value->text, '\0', value->len))
        return yaml_fail(file, value, "%s: %s has a NUL byte; remove it", what, yaml_show(value, shown));
    char *copy = strdup(value->text);
    if (!copy) return error_set(file->err, -ENOMEM, "out of memory");
    *ret_text = copy;
    return 0;
}

int yaml_bool(const struct yaml_file *file, const struct yaml_value *value, const char *what, bool *ret_bool) {
    char shown[YAML_QUOTE_SIZE];
    bool is_true = is_plain(value, "true");
    if (!is_true && !is_plain(value, "false"))
        return yaml_fail(file, value, "%s must be true or false (without quotes), not %s", what,
                         yaml_show(value, shown));
    *ret_bool = is_true;
    return 0;
}

int yaml_number(const struct yaml_file *file, const struct yaml_value *value, const char *what, uint64_t min,
                uint64_t max, uint64_t *ret_number) {
    char shown[YAML_QUOTE_SIZE];
    if (value->kind == YAML_SCALAR && !value->quoted &&
        number_parse(value->text, value->len, min, max, ret_number) == 0)
        return 0;
    return yaml_fail(file, value, "%s must be a number from %llu to %llu, not %s", what, (unsigned long long)min,
                     (unsigned long long)max, yaml_show(value, shown));
}

int yaml_word(const struct yaml_file *file, const struct yaml_value *value, const char *what, const char *const *words,
              size_t *ret_index) {
    char shown[YAML_QUOTE_SIZE], all[256] = "";
    size_t used = 0;
    for (size_t i = 0; words[i]; i++) {
        if (value->kind == YAML_SCALAR && value->len == strlen(words[i]) &&
            memcmp(value->text, words[i], value->len) == 0) {
            *ret_index = i;
            return 0;
        }
        int wrote = snprintf(all + used, sizeof(all) - used, "%s%s",
                             i == 0         ? ""
                             : words[i + 1] ? ", "
                                            : " or ",
                             words[i]);
        if (wrote > 0 && used + (size_t)wrote < sizeof(all)) used += (size_t)wrote;
    }
    return yaml_fail(file, value, "%s must be %s, not %s", what, all, yaml_show(value, shown));
}
